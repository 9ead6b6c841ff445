"""sbatch, srun, squeue, sacct and scancel without a Slurm: one script, which does what its name says.

It knows of arrays, states and limits of parallelism, and runs tasks as processes of this machine. Its memory is the
folder FAKE_SLURM: `<id>.sh`, and `<task>.state` and `<task>.pid` for each task; `calls` has a line per command.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
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
    tasks = [f"{number}_{index}" for index in range(int(array[1]) + 1)] if array else [str(number)]
    for task in tasks:
        (HERE / f"{task}.state").write_text("PENDING")
    subprocess.Popen(
        [sys.executable, __file__, "controller", array[2] if array else "1", *tasks],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    print(f"Submitted batch job {number}")
    return 0


def controller(arguments):
    """Run the tasks of an array, so many at a time."""
    parallel, waiting, running = int(arguments[0]), arguments[1:], {}
    while waiting or running:
        while waiting and len(running) < parallel and not (HERE / "full").exists():
            if state_of(task := waiting.pop(0)) == "PENDING":
                running[task] = start(task)
                (HERE / f"{task}.pid").write_text(str(running[task].pid))
                (HERE / f"{task}.state").write_text("RUNNING")
        for task, process in list(running.items()):
            if (code := process.poll()) is not None:
                del running[task]
                if state_of(task) == "RUNNING":
                    end = {0: "COMPLETED", 137: "OUT_OF_MEMORY"}.get(code, "FAILED")
                    (HERE / f"{task}.state").write_text(end)
        time.sleep(0.02)
        waiting = [task for task in waiting if state_of(task) == "PENDING"]


def start(task):
    number, _, index = task.partition("_")
    variables = {"SLURM_JOB_ID": number, "SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    variables |= {"SLURM_NODEID": "0", "SLURM_JOB_NUM_NODES": "1"}
    variables |= {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index} if index else {}
    return subprocess.Popen(["bash", HERE / f"{number}.sh"], env=os.environ | variables, start_new_session=True)


def srun(arguments):
    paths = {}
    while arguments[0].startswith("--"):
        option = arguments.pop(0)
        if option in ("--output", "--error"):
            paths[option] = named(arguments.pop(0))
    with open(paths["--output"], "a") as output, open(paths["--error"], "a") as errors:
        code = subprocess.run(arguments, stdout=output, stderr=errors).returncode
    return code if code >= 0 else 128 - code


def named(path):
    """A path with Slurm's placeholders."""
    variables = os.environ
    for mark, name in {"%A": "SLURM_ARRAY_JOB_ID", "%a": "SLURM_ARRAY_TASK_ID", "%j": "SLURM_JOB_ID"}.items():
        path = path.replace(mark, variables.get(name, mark))
    return path.replace("%t", "0")


def squeue(arguments):
    if (HERE / "silent").exists():
        print("slurm_load_jobs error: Unable to contact slurm controller", file=sys.stderr)
        return 1
    for task in mine(arguments):
        if state_of(task) in ("PENDING", "RUNNING"):
            print(task, state_of(task))
    return 0


def scancel(arguments):
    for task in mine(arguments) if arguments[0].startswith("--") else arguments:
        if state_of(task) in ("PENDING", "RUNNING"):
            running = state_of(task) == "RUNNING"
            (HERE / f"{task}.state").write_text("CANCELLED by 0")
            if running:
                os.killpg(int((HERE / f"{task}.pid").read_text()), signal.SIGTERM)
    return 0


def sacct(arguments):
    task = next(word for word in arguments if word.startswith("--jobs=")).partition("=")[2]
    print(state_of(task))
    return 0


def mine(arguments):
    """Tasks with the name asked for."""
    name = next(word for word in arguments if word.startswith("--name=")).partition("=")[2]
    tasks = sorted(path.stem for path in HERE.glob("*.state"))
    return [task for task in tasks if f"--job-name={name}\n" in (HERE / f"{task.partition('_')[0]}.sh").read_text()]


def state_of(task):
    return (HERE / f"{task}.state").read_text()


def main():
    name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    if name == Path(__file__).name and arguments[0] == "controller":
        return controller(arguments[1:])
    with open(HERE / "calls", "a") as file:
        file.write(shlex.join([name, *arguments]) + "\n")
    return {"sbatch": sbatch, "srun": srun, "squeue": squeue, "scancel": scancel, "sacct": sacct}[name](list(arguments))


if __name__ == "__main__":
    sys.exit(main())
