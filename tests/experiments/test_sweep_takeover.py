"""Tasks that outlive their sweep: the same command takes them over, another engine keeps away."""

import os
import signal

import pytest
from running import PLAIN
from sweep_command import done, ended, started, wait_for

if PLAIN:
    pytest.skip("tasks are taken over alike without the compiler", allow_module_level=True)

LONG = ("system=van_der_pol", "duration=600000samples", "budget=20", "seed=0,1", "cache=null")
LOCAL = (
    *("hydra/launcher=slurm", "hydra.launcher.cluster=local", "hydra.launcher.workers=2"),
    "hydra.launcher.time_limit=10min",
)


@pytest.mark.slow
def test_tasks_of_a_killed_sweep_are_taken_over_and_run_once(tmp_path):
    pytest.importorskip("submitit")
    folder = tmp_path / "sweep"
    starts = [folder / str(number) / "attempts" for number in (0, 1)]
    driver = started(folder, *LONG, *LOCAL)
    assert wait_for(lambda: all(path.exists() for path in starts))
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    driver.stdout.close()
    driver.stderr.close()
    assert not done(folder), "the jobs were to be at work still"

    other = ended(started(folder, *LONG))
    assert other.code == 1
    assert "take hydra/launcher=slurm" in other.out + other.err
    assert not done(folder)

    same = ended(started(folder, *LONG, *LOCAL))
    assert same.code == 0, same
    assert done(folder) == {0, 1}
    assert [len(path.read_text().splitlines()) for path in starts] == [1, 1], "each was started once"
    assert not [path for path in folder.rglob("*") if ".pkl" in path.name or path.name == "tasks.json"]
