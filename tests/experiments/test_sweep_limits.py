"""A job that never ends and one that eats memory end alone, and say why."""

import pytest
from running import PLAIN
from sweep_command import QUICK, done, ended, outcome, started

if PLAIN:
    pytest.skip("limits are the same without the compiler", allow_module_level=True)

LAUNCHERS = {
    "dask": ("hydra/launcher=dask", "hydra.launcher.workers=1"),
    "slurm": ("hydra/launcher=slurm", "hydra.launcher.cluster=local", "hydra.launcher.workers=1"),
}
ENDLESS = "duration=20000000samples,120samples"  # the first would take minutes and gigabytes


@pytest.mark.slow
@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("hydra.launcher.time_limit=8s", "time limit of 8 s exceeded"),
        ("hydra.launcher.memory_limit=600MB", "memory limit of 600 MB exceeded"),
    ],
    ids=["time", "memory"],
)
def test_a_job_beyond_its_limit_ends_alone_and_says_why(launcher, limit, told, tmp_path):
    pytest.importorskip("distributed" if launcher == "dask" else "submitit")
    folder = tmp_path / "sweep"
    short = [one for one in QUICK if not one.startswith("duration")]
    said = ended(started(folder, *short, ENDLESS, *LAUNCHERS[launcher], limit), 200)
    assert said.code == 1, said
    assert "2 jobs: 1 done, 1 failed" in said.out
    assert "#0 duration=20000000samples: " in said.err
    assert told in said.err
    assert "Traceback" not in said.err
    assert done(folder) == {1}
    assert told in outcome(folder, 0)["error"]
    assert "20000000samples" in outcome(folder, 0)["configuration"]
