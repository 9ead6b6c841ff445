"""Thousands of jobs: none is lost, and the process that drives them does not grow with them."""

import json
import subprocess
import sys
from textwrap import dedent

import pytest
from running import PLAIN
from sweep_command import ROOT, environment, manifest

if PLAIN:
    pytest.skip("many jobs are many without the compiler, too", allow_module_level=True)

N = 2000
#: a command with jobs that take no time
COMMAND = """
import resource
import hydra
from pathlib import Path
from hydra.core.hydra_config import HydraConfig


@hydra.main(version_base="1.3", config_path=".", config_name="trivial")
def main(config):
    folder = Path(HydraConfig.get().runtime.output_dir)
    (folder / "number.txt").write_text(str(config.number))
    if config.number in config.refused:
        raise ValueError(f"number {config.number} is not for me")
    return config.number


if __name__ == "__main__":
    main()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""
CONFIGURATION = """
defaults:
  - _self_
  - override hydra/launcher: in_process
  - override hydra/sweeper: grid
number: 0
refused: [499, 999, 1499, 1999]
hydra:
  searchpath: [pkg://conf]
  sweep: {dir: sweep, subdir: "${hydra.job.num}"}
"""


def run(folder, *overrides):
    return subprocess.run(
        [sys.executable, "trivial.py", "-m", *overrides],
        cwd=folder,
        env=environment() | {"PYTHONPATH": f"{ROOT}:{folder}"},
        capture_output=True,
        text=True,
        timeout=400,
    )


@pytest.fixture
def command(tmp_path):
    """Folder of a command of a user's own, with launcher and sweeper of the package."""
    (tmp_path / "trivial.py").write_text(dedent(COMMAND))
    (tmp_path / "trivial.yaml").write_text(CONFIGURATION)
    return tmp_path


def test_a_command_of_a_users_own_is_swept_like_ours(command):
    process = run(command, "number=0,499,2")
    assert process.returncode == 1, process
    assert "3 jobs: 2 done, 1 failed" in process.stdout
    assert "#1 number=499: ValueError: number 499 is not for me" in process.stderr
    assert "Traceback" not in process.stderr
    process = run(command, "number=0,2")
    assert process.returncode == 0, process
    assert "2 finished already, 0 to run" in process.stdout
    process = run(command, "numbr=1,2")
    assert process.stderr == "Error: unknown key 'numbr'; did you mean 'number'?\n"


@pytest.mark.slow
def test_two_thousand_jobs(command):
    process = run(command, f"number=range(0,{N})")
    assert process.returncode == 1, process.stderr[-2000:]
    assert f"{N} jobs: {N - 4} done, 4 failed" in process.stdout
    assert process.stderr.count("is not for me") == 4
    assert len(manifest(command / "sweep")["jobs"]) == N
    for number in range(N):
        folder = command / "sweep" / str(number)
        assert (folder / "number.txt").read_text() == str(number)
        failed = json.loads((folder / "outcome.json").read_text())["status"] == "failed"
        assert failed == (number % 500 == 499)
    (command / "sweep" / "7" / "number.txt").write_text("8")
    process = run(command, f"number=range(0,{N})")
    assert f"{N - 5} finished already, 5 to run (1 anew, damaged or out of date)" in process.stdout


@pytest.mark.slow
def test_memory_does_not_grow_with_the_jobs(command):
    """Beside the plan of a job, some kilobytes, nothing of it is read_outcome."""
    used = {}
    for n in (100, 600):
        process = run(command, f"number=range(0,{n})", "refused=[]", f"hydra.sweep.dir=sweep{n}")
        assert process.returncode == 0, process.stderr
        used[n] = int(process.stdout.split()[-1]) * 1024  # byte
    assert used[600] - used[100] < 500 * 40_000, used
