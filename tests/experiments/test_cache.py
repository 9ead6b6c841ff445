"""The cache on its own: hits, damage, folders that cannot be used, others that compute the same."""

import logging
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock
from numba import config as numba_config
from omegaconf import OmegaConf

from experiments.sweeps import cache as cache_module
from experiments.sweeps import cache as sealed
from experiments.sweeps.cache import Cache, Kind, cache_of, counts_of
from sysid import store

if numba_config.DISABLE_JIT:
    pytest.skip("nothing here is compiled", allow_module_level=True)

VALUES = np.arange(2000.0) / 3
NUMBERS = Kind("numbers", "Numbers", lambda v: xr.Dataset({"x": ("n", v)}), lambda found: found["x"].values)
KEY = "0123456789abcdef"


class Work:
    """Something to compute, that counts."""

    def __init__(self, values=VALUES):
        self.values, self.times = values, 0

    def __call__(self):
        self.times += 1
        return self.values


@pytest.fixture
def kept(tmp_path):
    """Path of a kept file."""
    Cache(tmp_path).obtain(NUMBERS, KEY, Work())
    return tmp_path / "numbers" / f"{KEY}.nc"


def obtained(folder, work, key=KEY, **options):
    """Content by a new cache of the folder, as another job has it, and the cache."""
    cache = Cache(folder, **options)
    return cache.obtain(NUMBERS, key, work), cache


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_what_was_computed_once_is_read(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    work = Work()
    first, one = obtained(tmp_path, work)
    second, two = obtained(tmp_path, work)
    assert work.times == 1
    assert first.tobytes() == second.tobytes() == VALUES.tobytes()
    assert one.summary() == {"numbers": {"misses": 1}}
    assert two.summary() == counts_of(two)["cache"] == {"numbers": {"hits": 1}}
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(" (")[0] for line in told] == [
        "Cache: numbers computed and kept",
        "Cache: numbers read",
    ]


def test_another_key_or_kind_is_another_content(tmp_path, kept):
    work = Work(-VALUES)
    found, _ = obtained(tmp_path, work, key="another")
    assert found[1] < 0
    other = Kind("others", "Others", NUMBERS.to_dataset, NUMBERS.from_dataset)
    assert Cache(tmp_path).obtain(other, KEY, work)[1] < 0
    assert work.times == 2


def test_a_file_is_one_for_other_programs(kept):
    with xr.open_dataset(kept) as dataset:
        assert dataset["x"].values.tobytes() == VALUES.tobytes()
        assert dataset.attrs["key"] == KEY
        assert {"title", "creation_time", "package_versions"} <= dataset.attrs.keys()


def damage(path, how):
    content = bytearray(path.read_bytes())
    if how == "empty":
        content = b""
    elif how == "foreign":
        content = b"not a file of the cache" * 10
    elif how == "truncated":
        content = content[: len(content) // 2]
    elif how == "without its last byte":
        content = content[:-1]
    elif how == "longer":
        content = content + b"\n"
    elif how == "of another key":
        sealed.write_sealed(NUMBERS.to_dataset(-VALUES), path, key="another", title="")
        return
    elif how == "of another kind":
        sealed.write_sealed(xr.Dataset({"y": 1.0}), path, key=KEY, title="")
        return
    elif how == "another file":
        store.write(NUMBERS.to_dataset(-VALUES), path, kind="narx", attributes={"key": KEY})
        return
    else:
        content[how] ^= 1
    path.write_bytes(content)


DAMAGES = ["empty", "foreign", "truncated", "without its last byte", "longer"]
DAMAGES += ["of another key", "of another kind", "another file", 0, 2000, -1, -70]


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_file_is_computed_anew_and_replaced(how, kept, tmp_path, caplog):
    damage(kept, how)
    work = Work()
    found, cache = obtained(tmp_path, work)
    assert (work.times, found.tobytes()) == (1, VALUES.tobytes())
    assert cache.summary() == {"numbers": {"damaged": 1, "misses": 1}}
    (warning,) = warnings(caplog)
    assert f"cache file {kept} is damaged" in warning
    assert "computed anew" in warning
    obtained(tmp_path, work)
    assert work.times == 1


def test_no_flipped_bit_is_ever_read(kept):
    content = kept.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 100)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        kept.write_bytes(changed)
        with pytest.raises(ValueError, match="digest"):
            sealed.read_sealed(kept, key=KEY)


def full_disk(content, path):
    raise store.StoreError(f"could not write {path}: No space left on device")


def test_a_full_disk_is_said_once_and_stops_nothing(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(sealed.store, "write_bytes", full_disk)
    work, cache = Work(), Cache(tmp_path)
    for key in ("a", "b", "a"):
        assert cache.obtain(NUMBERS, key, work) is VALUES
    assert work.times == 3
    (warning,) = warnings(caplog)
    assert "No space left" in warning
    assert str(tmp_path) in warning


@pytest.mark.parametrize("place", ["file", "file/below", "numbers"])
def test_a_folder_that_is_none_stops_nothing(place, tmp_path, caplog):
    (tmp_path / place.partition("/")[0]).write_text("in the way")
    folder = tmp_path if place == "numbers" else tmp_path / place
    work = Work()
    found, cache = obtained(folder, work)
    assert found is VALUES
    assert cache.summary() == {"numbers": {"misses": 1}}
    assert len(warnings(caplog)) == 1


def test_a_file_that_is_a_folder_stops_nothing(tmp_path, caplog):
    (tmp_path / "numbers" / f"{KEY}.nc").mkdir(parents=True)
    found, _ = obtained(tmp_path, Work())
    assert found is VALUES
    assert len(warnings(caplog)) == 2  # it cannot be read, and not be written


@pytest.mark.parametrize("error", [OSError("no locks here"), NotImplementedError("no flock")], ids=repr)
def test_where_nothing_can_be_locked_every_job_computes_and_keeps(error, tmp_path, monkeypatch, caplog):
    def refused(self):
        raise error

    monkeypatch.setattr(cache_module.FileLock, "acquire", refused)
    work = Work()
    obtained(tmp_path, work)
    assert str(error) in warnings(caplog)[0]
    obtained(tmp_path, work)
    assert work.times == 1


def test_who_waits_too_long_computes_too(tmp_path, caplog):
    (tmp_path / "numbers").mkdir()
    work = Work()
    with FileLock(tmp_path / "numbers" / f"{KEY}.lock"):
        found, _ = obtained(tmp_path, work, patience=0.06)
    assert (found is VALUES, work.times) == (True, 1)
    (warning,) = warnings(caplog)
    assert "0.06 s" in warning
    obtained(tmp_path, work)
    assert work.times == 1


def test_nothing_is_kept_of_work_that_fails(tmp_path):
    def broken():
        raise ArithmeticError("it diverged")

    for _ in range(2):  # the lock of the first is released
        with pytest.raises(ArithmeticError, match="diverged"):
            obtained(tmp_path, broken, patience=0.0)
    assert [path.suffix for path in (tmp_path / "numbers").iterdir()] == [".lock"]


def refusing(what):
    raise TypeError("no description")


@pytest.mark.parametrize(
    "kind",
    [
        Kind("odd", "", refusing, NUMBERS.from_dataset),
        Kind("odd", "", NUMBERS.to_dataset, refusing),
        Kind("odd", "", lambda v: xr.Dataset({"x": ("n", v.astype(complex))}), NUMBERS.from_dataset),
    ],
    ids=["not described", "not read back", "not a number"],
)
def test_what_a_file_cannot_give_back_is_not_kept(kind, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    work, cache = Work(), Cache(tmp_path)
    for _ in range(2):
        assert cache.obtain(kind, KEY, work) is VALUES
    assert (work.times, cache.summary()) == (2, {"odd": {"left_out": 2, "misses": 2}})
    assert not warnings(caplog)
    assert "not kept" in caplog.text


@pytest.mark.parametrize("given", [{}, {"cache": None}, {"cache": "multirun/cache"}], ids=str)
def test_only_an_absolute_folder_is_a_cache(given):
    assert cache_of(OmegaConf.create(given)) is None
    assert counts_of(None) == {}


@pytest.mark.parametrize("given", [5, "", True, ["a"]], ids=repr)
def test_a_cache_that_is_no_folder_is_refused(given):
    with pytest.raises(ValueError, match="cache must be the name of a folder"):
        cache_of(OmegaConf.create({"cache": given}))


def test_the_folder_of_the_configuration_is_taken(tmp_path):
    cache = cache_of(OmegaConf.create({"cache": str(tmp_path / "cache")}))
    assert cache.folder == Path(tmp_path / "cache")
    assert not cache.folder.exists()
