"""Attacks on sweeps on a real Slurm: one node is enough. They skip where there is no sbatch."""

import os
import shutil
import subprocess

import pytest
from sweep_command import done, ended, started
from sweep_jobs import wait_until

answers = shutil.which("sbatch") and subprocess.run(["sinfo"], capture_output=True).returncode == 0
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not answers, reason="there is no Slurm here (sbatch on PATH, and sinfo answers)"),
]
SLURM = ("hydra/launcher=slurm", "hydra.launcher.workers=2", "hydra.launcher.poll=0.5")
LONG = ("system=van_der_pol", "duration=400000samples", "budget=20", "seed=0,1", "cache=null")


def queue():
    return subprocess.run(["squeue", "-h", "--array", "-o", "%i %T"], capture_output=True, text=True).stdout.split(
        "\n"
    )[:-1]


@pytest.fixture(autouse=True)
def _leave_no_task():
    assert queue() == [], "the queue is to be empty before"
    yield
    left = queue()
    subprocess.run(["scancel", f"--user={os.getuid()}"])
    assert wait_until(lambda: queue() == [], 60)
    assert left == []


def test_a_killed_driver_is_taken_over_by_the_same_command_alone(tmp_path):
    folder = tmp_path / "sweep"
    starts = [folder / str(number) / "attempts" for number in (0, 1)]
    process = started(folder, *LONG, *SLURM, "hydra.launcher.time_limit=10min")
    assert wait_until(lambda: all(path.exists() for path in starts), 120)
    second = ended(started(folder, *LONG, *SLURM))
    assert (second.code, second.out) == (1, "")
    assert "another sweep runs in" in second.err
    process.kill()
    ended(process)
    assert not done(folder), "the jobs were to be at work still"
    other = ended(started(folder, *LONG))
    assert other.code == 1
    assert "take hydra/launcher=slurm" in other.out + other.err
    same = ended(started(folder, *LONG, *SLURM, "hydra.launcher.time_limit=10min"), 400)
    assert same.code == 0, same
    assert done(folder) == {0, 1}
    assert [len(path.read_text().splitlines()) for path in starts] == [1, 1], "each was started once"
