"""sbatch, squeue and scancel without a Slurm: one script, which does what its name says; tasks
never start.

Its memory is the folder FAKE_SLURM: `<id>.sh`, and `<task>.state` for each task.
"""

import os
import re
import sys
from pathlib import Path

HERE = Path(os.environ.get("FAKE_SLURM", "."))


def sbatch(arguments):
    if (HERE / "refuse").exists():
        print("sbatch: error: invalid partition specified: nowhere", file=sys.stderr)
        return 1
    script = Path(arguments[-1]).read_text()
    number = 100 + len(list(HERE.glob("*.sh")))
    (HERE / f"{number}.sh").write_text(script)
    array = re.search(r"--array='?0-(\d+)%(\d+)", script)
    for task in (
        [f"{number}_{index}" for index in range(int(array[1]) + 1)] if array else [str(number)]
    ):
        (HERE / f"{task}.state").write_text("PENDING")
    print(f"Submitted batch job {number}")
    return 0


def squeue(arguments):
    name = next(word for word in arguments if word.startswith("--name=")).partition("=")[2]
    for path in sorted(HERE.glob("*.state")):
        named = f"--job-name={name}\n" in (HERE / f"{path.stem.partition('_')[0]}.sh").read_text()
        if named and path.read_text() in ("PENDING", "RUNNING"):
            print(path.stem, path.read_text())
    return (HERE / "silent").exists()


def scancel(arguments):
    for task in arguments:
        (HERE / f"{task}.state").write_text("CANCELLED by 0")


if __name__ == "__main__":
    sys.exit(
        {"sbatch": sbatch, "squeue": squeue, "scancel": scancel}[Path(sys.argv[0]).name](
            sys.argv[1:]
        )
    )
