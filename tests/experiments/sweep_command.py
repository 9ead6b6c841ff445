"""How the tests run a sweep: as the command does, in this process or in another; and what is found
in its folder.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from functools import partial
from glob import glob
from pathlib import Path

import psutil
from running import ROOT, Said, bits, call, configured
from sweep_jobs import alive, wait_until

from experiments.collect.run import run
from experiments.files.job_file import read_summary
from sysid import store

MARK = "SYSID_TEST_SWEEP"  # an environment variable that all processes of a sweep have
#: jobs of a tenth of a second
QUICK = (
    *(
        "system=van_der_pol",
        "duration=120samples",
        "budget=8",
        "training=fixed",
        "training.n_initial=10",
    ),
    *(
        "training.variance=1",
        "training.length_scales=1",
        "training.noise_variance=0.01",
    ),
)
#: a sweep of them
N = 9
JOBS = (*QUICK, f"seed=range(0,{N})", "cache=null")
#: what a run measures of itself, or says about when and where it was made
OF_THE_RUN = {
    "creation_time",
    "configuration",
    "timings",
    "summary",
    "summary_sha256",
    "estimate_seconds",
}


def sweep(folder, *overrides, command="identify", cwd=None):
    """Run a sweep in this process, from the folder above its own; without a folder in that of its
    name.
    """
    named = [f"hydra.sweep.dir={folder}"] * (folder is not None)
    return call(command, "-m", *overrides, *named, cwd=cwd or Path(folder).parent)


def argv(folder, *overrides, command="identify"):
    """The same as a command line, with the script that an installation makes."""
    script = Path(sys.executable).parent / f"sysid-{command}"
    return [
        sys.executable,
        str(script),
        "-m",
        *map(str, overrides),
        f"hydra.sweep.dir={folder}",
    ]


def environment():
    """Of a process that finds this toolbox, not an installed one."""
    return os.environ | {
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


def started(folder, *overrides, **options):
    """Start a sweep in a process of its own, and in a session of its own."""
    own = {
        "cwd": Path(folder).parent,
        "env": environment(),
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    own |= {"text": True, "start_new_session": True}
    own["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    return subprocess.Popen(argv(folder, *overrides), **(own | options))


def ended(process, seconds=120):
    """What a process said, once it has ended."""
    out, err = process.communicate(timeout=seconds)
    return Said(process.returncode, out, err)


def interrupted(process, own, pause):
    """What a sweep with this environment says that Ctrl-C ends after so many seconds: a line; no
    process is left.
    """
    time.sleep(pause)
    os.killpg(process.pid, signal.SIGINT)
    said = ended(process)
    assert said.code == 130, (pause, said)
    assert "Traceback" not in said.out + said.err, (pause, said)
    assert len(said.err.splitlines()) <= 1, (pause, said)
    assert wait_until(lambda: not living(own)), (pause, living(own))
    return said


def outcome(folder, number):
    """How a job ended; None if it has not."""
    path = Path(folder) / str(number) / "outcome.json"
    return json.loads(path.read_text()) if path.exists() else None


def done(folder):
    """Numbers of the finished jobs."""
    found = (json.loads(Path(path).read_text()) for path in glob(f"{folder}/*/outcome.json"))
    return {one["number"] for one in found if one["status"] == "done"}


def manifest(folder):
    return json.loads((Path(folder) / "sweep.json").read_text())


def half_written(folder):
    """Files that somebody has begun and left."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.tmp"))


def found_by(path):
    """File of a job as dicts of bits and attributes, its summary without times, and the times."""
    content = {
        name: (
            bits(group),
            {key: str(value) for key, value in group.attrs.items() if key not in OF_THE_RUN},
        )
        for name, group in store.read_groups(path, kind="job").items()
    }
    summary = read_summary(path)
    times = summary.pop("times")
    return content, json.dumps(summary), times


def results(folder):
    """What the jobs of a sweep have found: the bits of all that does not depend on when and where
    they ran.
    """
    return {path.parent.name: found_by(path)[:2] for path in sorted(Path(folder).glob("*/job.nc"))}


def collected(folder, output):
    """The same of what `sysid-collect` makes of the sweep."""
    run(
        configured(f"folder={folder}", f"output={output}", "figures=false", command="collect"),
        output,
    )
    dataset = store.read(output / "sweep.nc", kind="sweep")
    compared = dataset[[name for name in dataset if not dataset[name].attrs.get("measured")]]
    about = {name: str(variable.attrs) for name, variable in compared.variables.items()}
    return (
        bits(compared),
        about,
        {key: str(value) for key, value in dataset.attrs.items() if key not in OF_THE_RUN},
    )


def marked():
    """Environment of a sweep whose processes can be found again."""
    return environment() | {MARK: uuid.uuid4().hex}


def living(own):
    """Processes of the sweep with this environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == own[MARK] and alive(process):
                found.append(process)
    return found


def at_work(folder):
    """Processes that run a job now, by its number."""
    found = {}
    for path in map(
        Path, glob(f"{folder}/*/attempts")
    ):  # a sweep that starts tries whether it can make its folder
        if not (path.parent / "outcome.json").exists() and (lines := path.read_text().split()):
            found[int(path.parent.name)] = int(lines[-1])
    return found


def check_whole(folder, n, jobs, *launcher, expected=None):
    """The sweep can be resumed, and then it is as if nothing had happened."""
    said = sweep(folder, *jobs, *launcher)
    assert said.code == 0, said
    assert "Traceback" not in said.out + said.err
    assert done(folder) == set(range(n))
    assert half_written(folder) == []
    assert not list(folder.rglob(".job*"))
    assert expected is None or results(folder) == expected
