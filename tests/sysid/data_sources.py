"""Small records, and what the tests of data sources need to make, count and compare them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import xarray as xr
from scipy.io import savemat

from sysid import Recordings, make_record
from sysid.data.source import RECORD_ROLES

UNITS = {"u": "V", "y": "m"}
DRIVE_FILES = ("DATAUNIF.MAT", "FULLTEXT01.zip")


def record(n=30, *, seed=0, window=5, dt=0.5, name="step"):
    """Return a record of n samples with input `u` and output `y`."""
    u, y = np.random.default_rng(seed).normal(size=(2, n))
    return make_record(
        {"u": u, "y": y},
        name=name,
        sampling_time=dt,
        initialisation_window=window,
        units=UNITS,
        long_names={"u": "voltage", "y": "height"},
        attributes={"licence": "CC0"},
    )


def recordings(**roles):
    """Return recordings of the rig with these records as estimation, validation or test."""
    return Recordings("rig", ("u",), ("y",), **roles)


def lengths_by_role(recordings):
    """Return the numbers of samples of the records for estimation, validation and test."""
    lengths = []
    for role in RECORD_ROLES:
        records = getattr(recordings, role)
        lengths.append([record.sizes["time"] for record in records])
    return lengths


def windows_of(recordings):
    """Return the initialisation window of every record, in samples."""
    return [record.attrs["initialisation_window"] for record in recordings.records]


def names_of(recordings):
    """Return the name of every record."""
    return [record.attrs["name"] for record in recordings.records]


def assert_same_recordings(left, right):
    """The two have the same name, signals and records."""
    assert left.name == right.name
    assert left.inputs == right.inputs
    assert left.outputs == right.outputs
    for role in RECORD_ROLES:
        pairs = zip(getattr(left, role), getattr(right, role), strict=True)
        for left_record, right_record in pairs:
            xr.testing.assert_identical(left_record, right_record)


def files_in(folder):
    """Return the relative paths of all files in a folder, in order."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def write_drives(folder):
    """Write the files of the set CED as `nonlinear_benchmarks` leaves them, with made-up numbers.

    Returns the signals u11, u12, z11, z12 (4, 500).
    """
    folder.mkdir(parents=True)
    signals = np.random.default_rng(0).normal(size=(4, 500, 1))
    names = ("u11", "u12", "z11", "z12")
    content = dict(zip(names, signals, strict=True))
    savemat(folder / "DATAUNIF.MAT", content, appendmat=False)
    (folder / "FULLTEXT01.zip").write_bytes(b"archive")
    return signals[:, :, 0]


def hold_back(call):
    """Return a call that waits until two threads make it, or half a second at most.

    The second result is the list of the arguments of all calls.
    """
    barrier = threading.Barrier(2)
    calls = []

    def wait(*arguments, **options):
        calls.append(arguments)
        with suppress(threading.BrokenBarrierError):
            barrier.wait(timeout=0.5)
        return call(*arguments, **options)

    return wait, calls


def load_twice_at_once(load):
    """Call `load` in two threads at the same time, and return both results."""
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(load), pool.submit(load)]
        return [future.result() for future in futures]
