"""`sysid-compare`: the models of several runs on the same test record."""

import sys

from experiments.collect import is_path, quote
from experiments.launch import entry


def main() -> None:
    """Compare the runs whose folders are the arguments that no option takes."""
    arguments = list(zip(["", *sys.argv[1:]], sys.argv[1:], strict=False))
    runs = [argument for before, argument in arguments if is_path(before, argument)]
    named = [f"runs=[{','.join(map(quote, runs))}]"] if runs else []
    sys.argv[1:] = [*(argument for before, argument in arguments if not is_path(before, argument)), *named]
    entry("compare", "experiments.comparison")()


if __name__ == "__main__":
    main()
