"""sbatch, squeue and scancel without a Slurm: one script that does what its file name says.

Its tasks never start. It keeps its state in the folder that the variable FAKE_SLURM names:
`<id>.sh` for each script, and `<task>.state` for each task.
"""

import os
import re
import sys
from pathlib import Path

STATE_FOLDER = Path(os.environ.get("FAKE_SLURM", "."))


def sbatch(arguments):
    """Submit a script; refuse it if there is a file `refuse`."""
    if (STATE_FOLDER / "refuse").exists():
        print("sbatch: error: invalid partition specified: nowhere", file=sys.stderr)
        return 1
    script = Path(arguments[-1]).read_text()
    number = 100 + len(list(STATE_FOLDER.glob("*.sh")))
    (STATE_FOLDER / f"{number}.sh").write_text(script)
    for task in task_names(number, script):
        (STATE_FOLDER / f"{task}.state").write_text("PENDING")
    print(f"Submitted batch job {number}")
    return 0


def task_names(number, script):
    """Return the names of the tasks of a script: one for each element of its array."""
    array = re.search(r"--array='?0-(\d+)%(\d+)", script)
    if array is None:
        return [str(number)]
    return [f"{number}_{index}" for index in range(int(array[1]) + 1)]


def squeue(arguments):
    """Print the tasks of a job name that wait or run; fail if there is a file `silent`."""
    name = next(word for word in arguments if word.startswith("--name=")).partition("=")[2]
    for path in sorted(STATE_FOLDER.glob("*.state")):
        number = path.stem.partition("_")[0]
        script = (STATE_FOLDER / f"{number}.sh").read_text()
        has_name = f"--job-name={name}\n" in script
        if has_name and path.read_text() in ("PENDING", "RUNNING"):
            print(path.stem, path.read_text())
    return (STATE_FOLDER / "silent").exists()


def scancel(arguments):
    """Cancel tasks."""
    for task in arguments:
        (STATE_FOLDER / f"{task}.state").write_text("CANCELLED by 0")


COMMANDS = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel}

if __name__ == "__main__":
    command = COMMANDS[Path(sys.argv[0]).name]
    sys.exit(command(sys.argv[1:]))
