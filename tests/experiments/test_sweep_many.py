"""A sweep of many jobs of a command that a user wrote: no job is lost, memory stays flat."""

import json
import subprocess
import sys

import pytest

from helpers.sweeps import process_environment, read_manifest

pytestmark = pytest.mark.slow
N_MANY_JOBS = 120
N_FEW_JOBS = 20
#: most memory that the driver may need for another job, for its plan
MAX_BYTES_PER_JOB = 40_000
#: a command that prints at its end the most memory that it needed [KiB]; `ru_maxrss` would be that
#: of the process that started it, if that needed more
OWN_COMMAND = """
import atexit
import hydra
from pathlib import Path
from hydra.core.hydra_config import HydraConfig


def print_peak_memory():
    status = Path("/proc/self/status").read_text()
    print(status.partition("VmHWM:")[2].split()[0])


@hydra.main(version_base="1.3", config_path=".", config_name="trivial")
def main(config):
    (Path(HydraConfig.get().runtime.output_dir) / "number.txt").write_text(str(config.number))
    if config.number in config.refused:
        raise ValueError(f"number {config.number} is not for me")
    return config.number


if __name__ == "__main__":
    atexit.register(print_peak_memory)
    main()
"""
OWN_CONFIGURATION = """
defaults: [_self_, override hydra/launcher: in_process, override hydra/sweeper: grid]
number: 0
refused: [59, 119]
hydra: {searchpath: [pkg://conf], sweep: {dir: sweep, subdir: "${hydra.job.num}"}}
"""
REFUSED_NUMBERS = {59, 119}


@pytest.fixture
def run_own_command(tmp_path):
    """A function that sweeps the command of the user in a process of its own."""
    (tmp_path / "trivial.py").write_text(OWN_COMMAND)
    (tmp_path / "trivial.yaml").write_text(OWN_CONFIGURATION)

    def run(*overrides):
        return subprocess.run(
            [sys.executable, "trivial.py", "-m", *overrides],
            cwd=tmp_path,
            env=process_environment(),
            capture_output=True,
            text=True,
        )

    return run


def bytes_used(process):
    """Return the most memory that a process needed, which it printed at its end."""
    return int(process.stdout.split()[-1]) * 1024


def test_of_many_jobs_none_is_lost_and_memory_does_not_grow(tmp_path, run_own_command):
    few_jobs = run_own_command(f"number=range(0,{N_FEW_JOBS})", "hydra.sweep.dir=few")
    process = run_own_command(f"number=range(0,{N_MANY_JOBS})")
    assert process.returncode == 1, process.stderr[-2000:]
    assert f"{N_MANY_JOBS} jobs: {N_MANY_JOBS - 2} done, 2 failed" in process.stdout
    assert process.stderr.count("is not for me") == 2
    growth = bytes_used(process) - bytes_used(few_jobs)
    assert growth < (N_MANY_JOBS - N_FEW_JOBS) * MAX_BYTES_PER_JOB

    folder = tmp_path / "sweep"
    assert len(read_manifest(folder)["jobs"]) == N_MANY_JOBS
    for number in range(N_MANY_JOBS):
        assert (folder / str(number) / "number.txt").read_text() == str(number)
        outcome = json.loads((folder / str(number) / "outcome.json").read_text())
        assert outcome["status"] == ("failed" if number in REFUSED_NUMBERS else "done")

    (folder / "7" / "number.txt").write_text("8")
    # workers import the command too
    process = run_own_command(
        f"number=range(0,{N_MANY_JOBS})", "hydra/launcher=joblib", "hydra.launcher.workers=1"
    )
    n_sound = N_MANY_JOBS - 3
    again = f"{n_sound} finished already, 3 to run (1 again, damaged or out of date)"
    assert again in process.stdout
    done = f"{N_MANY_JOBS} jobs: {N_MANY_JOBS - 2} done ({n_sound} before), 2 failed"
    assert done in process.stdout
    assert "Traceback" not in process.stderr
