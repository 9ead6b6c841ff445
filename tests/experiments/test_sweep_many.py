"""A command of a user's own is swept as ours; of hundreds of jobs none is lost, and the driver does
not grow.
"""

import json
import subprocess
import sys

import pytest

from helpers.sweeps import process_environment, read_manifest

pytestmark = pytest.mark.slow
N = 300
COMMAND = """
import atexit, resource
import hydra
from pathlib import Path
from hydra.core.hydra_config import HydraConfig


@hydra.main(version_base="1.3", config_path=".", config_name="trivial")
def main(config):
    (Path(HydraConfig.get().runtime.output_dir) / "number.txt").write_text(str(config.number))
    if config.number in config.refused:
        raise ValueError(f"number {config.number} is not for me")
    return config.number


if __name__ == "__main__":
    atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
    main()
"""
CONFIGURATION = """
defaults: [_self_, override hydra/launcher: in_process, override hydra/sweeper: grid]
number: 0
refused: [149, 299]
hydra: {searchpath: [pkg://conf], sweep: {dir: sweep, subdir: "${hydra.job.num}"}}
"""


def test_of_many_jobs_none_is_lost_and_memory_does_not_grow(tmp_path):
    """Beside the plan of a job, some kilobytes, nothing of it is kept."""
    (tmp_path / "trivial.py").write_text(COMMAND)
    (tmp_path / "trivial.yaml").write_text(CONFIGURATION)

    def run(*overrides):
        command = [sys.executable, "trivial.py", "-m", *overrides]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=process_environment(),
            capture_output=True,
            text=True,
            timeout=400,
        )

    few = run("number=range(0,50)", "hydra.sweep.dir=few")
    process = run(f"number=range(0,{N})")
    assert process.returncode == 1, process.stderr[-2000:]
    assert f"{N} jobs: {N - 2} done, 2 failed" in process.stdout
    assert process.stderr.count("is not for me") == 2
    fewer, used = (int(one.stdout.split()[-1]) * 1024 for one in (few, process))  # byte
    assert used - fewer < (N - 50) * 40_000, (fewer, used)
    assert len(read_manifest(tmp_path / "sweep")["jobs"]) == N
    for number in range(N):
        folder = tmp_path / "sweep" / str(number)
        assert (folder / "number.txt").read_text() == str(number)
        status = json.loads((folder / "outcome.json").read_text())["status"]
        assert status == ("failed" if number % 150 == 149 else "done")
    (tmp_path / "sweep" / "7" / "number.txt").write_text("8")
    process = run(f"number=range(0,{N})", "hydra/launcher=joblib", "hydra.launcher.workers=1")
    assert f"{N - 3} finished already, 3 to run (1 again, damaged or out of date)" in process.stdout
    assert f"{N} jobs: {N - 2} done ({N - 3} before), 2 failed" in process.stdout, (
        "workers find the command"
    )
    assert "Traceback" not in process.stderr
