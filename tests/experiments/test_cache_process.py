"""Several processes at once on an empty cache; one of them is killed."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numba import config as numba_config

from experiments.sweeps import cache as sealed

if numba_config.DISABLE_JIT:
    pytest.skip("nothing here is compiled", allow_module_level=True)

ROOT = Path(__file__).parents[2]
JOB = """
import sys, time
from pathlib import Path
import numpy as np, xarray as xr
from experiments.sweeps.cache import Cache, Kind
folder, name, asking, seconds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
kind = Kind("numbers", "Numbers", lambda v: xr.Dataset({"x": ("n", v)}), lambda found: found["x"].values)

def compute():
    (folder / f"{name}.computes").touch()
    while len(list(folder.glob("*.asks"))) < asking:
        time.sleep(0.01)
    time.sleep(seconds)
    return np.arange(1000.0) / 3

cache = Cache(folder / "cache")
(folder / f"{name}.asks").touch()
values = cache.obtain(kind, "key", compute)
(folder / f"{name}.has").write_bytes(values.tobytes())
print(cache.summary())
"""


def start(folder, name, asking=1, seconds=0.0):
    """A process that takes this long to compute, from when so many processes have asked."""
    command = [sys.executable, "-c", JOB, str(folder), name, str(asking), str(seconds)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(*paths, process):
    end = time.monotonic() + 60
    while not all(path.exists() for path in paths):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, f"no {paths}"
        time.sleep(0.01)


def end_of(processes):
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), said
    return said


def computed(folder):
    return sorted(path.stem for path in folder.glob("*.computes"))


def test_one_computes_while_the_others_wait(tmp_path):
    processes = [start(tmp_path, name, asking=2, seconds=0.2) for name in "ab"]
    said = end_of(processes)
    assert len(computed(tmp_path)) == 1
    assert (tmp_path / "a.has").read_bytes() == (tmp_path / "b.has").read_bytes()
    assert sorted(said) == ["{'numbers': {'hits': 1}}\n", "{'numbers': {'misses': 1}}\n"]


def test_a_killed_process_is_replaced_by_one_that_waits(tmp_path):
    killed = start(tmp_path, "killed", seconds=60.0)
    waiting = None
    try:
        wait_for(tmp_path / "killed.computes", process=killed)
        waiting = start(tmp_path, "waiting")
        wait_for(tmp_path / "waiting.asks", process=waiting)
        time.sleep(0.2)
        assert computed(tmp_path) == ["killed"]
        killed.send_signal(signal.SIGKILL)
        (said,) = end_of([waiting])
    finally:
        for process in (killed, waiting):
            if process is not None:
                process.kill()
                process.communicate()
    assert computed(tmp_path) == ["killed", "waiting"]
    assert "'misses': 1" in said
    kept = sealed.read_sealed(tmp_path / "cache" / "numbers" / "key.nc", key="key")
    assert (tmp_path / "waiting.has").read_bytes() == kept["x"].values.tobytes() == (np.arange(1000.0) / 3).tobytes()
