"""`sysid-compare`: the models of several runs on the same test record."""

from collections.abc import Sequence

from experiments.collect import is_path, quote
from experiments.launch import entry


def mark_runs(arguments: Sequence[str]) -> list[str]:
    """Turn the names of folders among the arguments, those that no option takes, into one override."""
    pairs = list(zip(["", *arguments], arguments, strict=False))
    runs = [argument for before, argument in pairs if is_path(before, argument)]
    named = [f"runs=[{','.join(map(quote, runs))}]"] if runs else []
    return [*(argument for before, argument in pairs if not is_path(before, argument)), *named]


main = entry("compare", "experiments.comparison", mark_runs)


if __name__ == "__main__":
    main()
