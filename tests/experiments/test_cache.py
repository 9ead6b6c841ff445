"""Work that jobs share, done once: damage, full disks, killed processes, and the same bits with and without."""

import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock
from numba import config as numba_config
from omegaconf import OmegaConf
from running import DAYS, SHORT, bits, configured, data_of, execute

from experiments.identification import prepare, run, source_of
from experiments.job_file import read_summary
from experiments.launch import Stopped
from experiments.plant import Plant
from experiments.sweeps import cache as cache_module
from experiments.sweeps.cache import Cache, CachedTraining, Kind, cache_of, counts_of, read_sealed, write_sealed
from simulators import DivergenceError
from sysid import (
    Adaptive,
    ConstantMean,
    Fixed,
    InitialSamples,
    MaximumAPosteriori,
    Narx,
    Start,
    Training,
    ZeroMean,
    store,
)

if numba_config.DISABLE_JIT:
    pytest.skip("nothing here is compiled", allow_module_level=True)

VALUES = np.arange(2000.0) / 3
NUMBERS = Kind("numbers", "Numbers", lambda v: xr.Dataset({"x": ("n", v)}), lambda found: found["x"].values)
KEY = "0123456789abcdef"


class Work:
    """Something to compute, that counts."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1
        return VALUES


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


def test_what_was_computed_once_is_read_by_its_key_and_kind(tmp_path):
    work = Work()
    (first, one), (second, two) = obtained(tmp_path, work), obtained(tmp_path, work)
    assert work.times == 1
    assert first.tobytes() == second.tobytes() == VALUES.tobytes()
    assert (one.summary(), counts_of(two)) == ({"numbers": {"misses": 1}}, {"cache": {"numbers": {"hits": 1}}})
    obtained(tmp_path, work, key="another")
    Cache(tmp_path).obtain(Kind("others", "Others", NUMBERS.to_dataset, NUMBERS.from_dataset), KEY, work)
    assert work.times == 3
    with xr.open_dataset(tmp_path / "numbers" / f"{KEY}.nc") as dataset:  # other programs read it
        assert dataset["x"].values.tobytes() == VALUES.tobytes()
        assert {"title", "creation_time", "package_versions"} <= dataset.attrs.keys()


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "foreign": lambda path: path.write_bytes(b"not a file of the cache" * 10),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\n"),
    "of another key": lambda path: write_sealed(NUMBERS.to_dataset(-VALUES), path, key="another", title=""),
    "of another kind": lambda path: write_sealed(xr.Dataset({"y": 1.0}), path, key=KEY, title=""),
    "not sealed": lambda path: store.write(NUMBERS.to_dataset(-VALUES), path, kind="narx", attributes={"key": KEY}),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_computed_anew_and_replaced(damage, kept, tmp_path, caplog):
    damage(kept)
    work = Work()
    found, cache = obtained(tmp_path, work)
    assert (work.times, found.tobytes()) == (1, VALUES.tobytes())
    assert cache.summary() == {"numbers": {"damaged": 1, "misses": 1}}
    (warning,) = warnings(caplog)
    assert f"cache file {kept} is damaged" in warning
    obtained(tmp_path, work)
    assert work.times == 1


def test_no_flipped_bit_is_ever_read(kept):
    content = kept.read_bytes()
    for place in [*range(0, len(content), max(1, len(content) // 100)), len(content) - 1, len(content) - 70]:
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        kept.write_bytes(changed)
        with pytest.raises(ValueError, match="digest"):
            read_sealed(kept, key=KEY)


def test_a_full_disk_is_said_once_and_stops_nothing(tmp_path, monkeypatch, caplog):
    def full(content, path):
        raise store.StoreError(f"could not write {path}: No space left on device")

    monkeypatch.setattr(cache_module.store, "write_bytes", full)
    work, cache = Work(), Cache(tmp_path)
    for key in ("a", "b", "a"):
        assert cache.obtain(NUMBERS, key, work) is VALUES
    assert work.times == 3
    (warning,) = warnings(caplog)
    assert "No space left" in warning


@pytest.mark.parametrize("place", ["file", "file/below", "numbers"])
def test_a_folder_that_is_none_stops_nothing(place, tmp_path, caplog):
    (tmp_path / place.partition("/")[0]).write_text("in the way")
    found, cache = obtained(tmp_path if place == "numbers" else tmp_path / place, Work())
    assert found is VALUES
    assert cache.summary() == {"numbers": {"misses": 1}}
    assert len(warnings(caplog)) == 1


def test_who_cannot_lock_or_waits_too_long_computes_too(tmp_path, caplog, monkeypatch):
    (tmp_path / "numbers").mkdir()
    work = Work()
    with FileLock(tmp_path / "numbers" / f"{KEY}.lock"):
        found, _ = obtained(tmp_path, work, patience=0.06)
    assert (found is VALUES, work.times) == (True, 1)
    assert "0.06 s" in warnings(caplog)[0]

    def refused(self):
        raise NotImplementedError("no flock")

    monkeypatch.setattr(cache_module.FileLock, "acquire", refused)
    obtained(tmp_path, work, key="another")
    assert "no flock" in warnings(caplog)[1]
    for key in (KEY, "another"):
        obtained(tmp_path, work, key=key)
    assert work.times == 2


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
    "functions",
    [
        (refusing, NUMBERS.from_dataset),
        (NUMBERS.to_dataset, refusing),
        (lambda v: xr.Dataset({"x": ("n", v.astype(complex))}), NUMBERS.from_dataset),
    ],
    ids=["not described", "not read back", "not a number"],
)
def test_what_a_file_cannot_give_back_is_not_kept(functions, tmp_path, caplog):
    work, cache = Work(), Cache(tmp_path)
    for _ in range(2):
        assert cache.obtain(Kind("odd", "", *functions), KEY, work) is VALUES
    assert (work.times, cache.summary()) == (2, {"odd": {"left_out": 2, "misses": 2}})
    assert not warnings(caplog)


def test_a_run_has_a_cache_in_a_sweep_or_if_its_folder_is_absolute(tmp_path, monkeypatch):
    for config in ({}, {"cache": None}, {"cache": "multirun/cache"}):
        assert cache_of(OmegaConf.create(config)) is None
    assert counts_of(None) == {}
    assert cache_of(OmegaConf.create({"cache": f"{tmp_path}/cache"})).folder == tmp_path / "cache"
    assert not (tmp_path / "cache").exists()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cache_module, "is_multirun", lambda: True)
    assert cache_of(OmegaConf.create({"cache": "multirun/cache"})).folder == tmp_path / "multirun" / "cache"
    for wrong in (5, "", True, ["a"]):
        with pytest.raises(ValueError, match="cache must be the name of a folder"):
            cache_of(OmegaConf.create({"cache": wrong}))


# --- several processes

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


def test_one_process_computes_while_the_others_wait_for_it_or_its_death(tmp_path):
    def start(name, seconds):
        command = [sys.executable, "-c", JOB, str(tmp_path), name, "3", str(seconds)]
        return subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)

    def wait_for(pattern, n):
        end = time.monotonic() + 60
        while len(list(tmp_path.glob(pattern))) < n:
            assert time.monotonic() < end
            time.sleep(0.01)

    killed = start("killed", 60.0)
    wait_for("killed.computes", 1)
    others = [start(name, 0.1) for name in "ab"]
    try:
        wait_for("*.asks", 3)
        time.sleep(0.2)
        assert len(list(tmp_path.glob("*.computes"))) == 1
        killed.send_signal(signal.SIGKILL)
        said = [process.communicate(timeout=60)[0] for process in others]
    finally:
        for process in (killed, *others):
            process.kill()
            process.communicate()
    assert sorted(said) == ["{'numbers': {'hits': 1}}\n", "{'numbers': {'misses': 1}}\n"]
    assert len(list(tmp_path.glob("*.computes"))) == 2
    assert (tmp_path / "a.has").read_bytes() == (tmp_path / "b.has").read_bytes() == (np.arange(1000.0) / 3).tobytes()


# --- training

NARX = Narx({"y": [1]}, {}, "y")
SAMPLES = InitialSamples(NARX, np.arange(6.0)[:, None] / 3, np.sin(np.arange(6.0)), np.array([False, *5 * [True]]))
QUICK = MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=3)


def started(training, cache, samples=SAMPLES, known=None, mean=None, budget=5, seed=0, code="code"):
    wrapped = CachedTraining(training, cache, code)
    known, mean = known or Start(), mean or ConstantMean()
    return wrapped.prepare(samples, known, mean=mean, budget=budget, seed=seed)


def test_every_argument_of_a_training_is_part_of_its_key(tmp_path):
    started(QUICK, Cache(tmp_path))
    others = [
        {"samples": SAMPLES._replace(regressors=SAMPLES.regressors + np.spacing(SAMPLES.regressors))},
        {"samples": SAMPLES._replace(targets=-SAMPLES.targets)},
        {"samples": SAMPLES._replace(follows=np.ones(6, dtype=bool))},
        {"samples": SAMPLES._replace(narx=Narx({"y": [2]}, {}, "y"))},
        {"known": Start(limits=(0.0, 1.0))},
        {"known": Start(mean=ConstantMean(0.3))},
        {"mean": ZeroMean()},
        {"budget": 6},
        {"seed": 1},
        {"code": "other"},
        {"training": MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=4)},
        {"training": Adaptive(n_initial=6, restarts=1, max_iterations=3)},
    ]
    for other in ({}, *others):
        cache = Cache(tmp_path)
        started(**({"training": QUICK} | other), cache=cache)
        assert cache.summary() == {"start": {"misses" if other else "hits": 1}}, other


class Undescribed(Training):
    """A user's own training that is no dataclass."""

    n_initial = 6
    replaces = frozenset({"kernel"})
    standardise = False

    def __init__(self):
        self.times = 0

    def train(self, inputs, targets, seed):
        self.times += 1
        return Fixed(1.0, 1.0, 0.1).train(inputs, targets, seed)


def test_a_training_that_cannot_be_described_trains_every_time_and_a_wrapped_one_looks_the_same(tmp_path):
    training, cache = Undescribed(), Cache(tmp_path)
    starts = [started(training, cache) for _ in range(2)]
    assert (training.times, cache.summary()) == (2, {"start": {"left_out": 2}})
    assert repr(starts[0]) == repr(starts[1])
    for one in (training, QUICK, Adaptive(n_initial=7)):
        wrapped = CachedTraining(one, cache, "code")
        assert (wrapped.n_initial, wrapped.standardise) == (one.n_initial, one.standardise)
        assert wrapped.replaces == one.replaces
        assert (wrapped.follow(3) is None) == (one.follow(3) is None)
    inside = Fixed(2.0, 1.0, 0.1)
    given = np.zeros((1, 1)), np.zeros(1), 0
    assert CachedTraining(inside, cache, "").train(*given)[:2] == inside.train(*given)[:2]


# --- identifications

LEAN = "outputs=lean"
BASE = (f"duration={DAYS}d", "training.n_initial=20", "training.restarts=1", "budget=24", "figures=false")
#: what a run measures of itself, or says about when and where it was made
MEASURED = {"creation_time", "configuration", "timings", "summary", "summary_sha256", "estimate_seconds"}
FEW = ("duration=160samples", "budget=12", "training.n_initial=20", "training.restarts=1", "figures=false")
RUNS = {
    "building": SHORT,
    "noise": ("system=van_der_pol", "noise.std=0.02", *FEW),
    "band-limited": ("system=bouc_wen", "interpolation=band_limited", *FEW),
    "tanks that run over": ("system=cascaded_tanks", "operating_point.offset=6", *FEW),
    "adaptive": ("training=adaptive", *SHORT, "training.interval=10", "training.significance=0.2"),
}


def job(folder, *overrides, cache=None):
    """Run a job with lean outputs; its file as dicts of bits and attributes, and its summary without times."""
    folder.mkdir()
    run(configured(*overrides, LEAN, f"cache={'null' if cache is None else cache}"), folder)
    groups = store.read_groups(folder / "job.nc", kind="job")
    content = {
        name: (bits(group), {key: str(value) for key, value in group.attrs.items() if key not in MEASURED})
        for name, group in groups.items()
    }
    summary = read_summary(folder / "job.nc")
    times = summary.pop("times")
    return content, json.dumps(summary), times


@pytest.mark.parametrize("overrides", RUNS.values(), ids=RUNS)
def test_hit_miss_and_no_cache_give_the_same_bits_also_after_damage(overrides, tmp_path, caplog):
    cache = tmp_path / "cache"
    found = [job(tmp_path / "none", *overrides), *(job(tmp_path / f"{k}", *overrides, cache=cache) for k in range(2))]
    for path in cache.rglob("*.nc"):
        path.write_bytes(path.read_bytes()[:-1])
    found.append(job(tmp_path / "damaged", *overrides, cache=cache))
    assert all(one[:2] == found[0][:2] for one in found)
    assert found[0][0].keys() >= {"record", "model"}
    assert "cache" not in found[0][2]
    for one, count in zip(found[1:], ({"misses": 1}, {"hits": 1}, {"damaged": 1, "misses": 1}), strict=True):
        assert one[2]["cache"] == {"start": count, "trajectory": count}
    assert len(warnings(caplog)) >= 2


def test_a_single_run_of_the_command_uses_an_absolute_cache_and_writes_the_same_files(tmp_path):
    given = {"none": "cache=null", "miss": f"cache={tmp_path / 'cache'}", "hit": f"cache={tmp_path / 'cache'}"}
    for name, cache in given.items():
        execute(tmp_path / name, *RUNS["noise"], cache)
    for name in ("miss", "hit"):
        for kind in ("trajectory", "narx", "result", "model"):
            assert bits(data_of(tmp_path / "none", kind)) == bits(data_of(tmp_path / name, kind))
    assert len(list((tmp_path / "cache").rglob("*.nc"))) == 2


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cache that a first job has filled."""
    folder = tmp_path_factory.mktemp("shared")
    job(folder / "first", *BASE, cache=folder / "cache")
    return folder / "cache"


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("insertion=variance", "insertion.variance_threshold=0.001", "selection=forward", "identified=0.6"), "both"),
        (("insertion.error_threshold=0.07", "reduction=prior_entropy", "acceptance=none"), "both"),
        (("budget=17",), "trajectory"),
        (("training.restarts=2",), "trajectory"),
        (("mean=linear",), "trajectory"),
        (("kernel=matern_52",), "trajectory"),
        (("seed=1",), "none"),
        (("noise.std=0.01",), "none"),
        (("system.substeps=31",), "none"),
    ],
    ids=str,
)
def test_what_jobs_share(overrides, expected, shared, tmp_path, monkeypatch):
    """By what a job after a first one counts; its simulations and trainings are counted apart."""
    counted = {"simulations": 0, "trainings": 0}
    samples, train = Plant.samples, MaximumAPosteriori.train

    def counted_samples(self, *arguments):
        counted["simulations"] += 1
        return samples(self, *arguments)

    def counted_train(self, *arguments):
        counted["trainings"] += 1
        return train(self, *arguments)

    monkeypatch.setattr(Plant, "samples", counted_samples)
    monkeypatch.setattr(MaximumAPosteriori, "train", counted_train)
    _, _, times = job(tmp_path / "second", *BASE, *overrides, cache=shared)
    did = {kind: next(iter(counts)) for kind, counts in times["cache"].items()}
    does = {"both": ("hits", "hits"), "trajectory": ("hits", "misses"), "none": ("misses", "misses")}[expected]
    assert (did["trajectory"], did["start"]) == does
    assert counted == {"simulations": does[0] == "misses", "trainings": does[1] == "misses"}


@pytest.mark.parametrize("after", [10, 60, 24 * 4 * DAYS // 2 + 30], ids=["initial", "online", "validation"])
def test_a_simulation_that_breaks_off_leaves_the_same_with_a_cache(after, tmp_path, monkeypatch):
    original = Plant.samples

    def breaking(self, *arguments):
        for k, sample in enumerate(original(self, *arguments)):
            if k == after:
                raise DivergenceError("the plant exploded")
            yield sample

    monkeypatch.setattr(Plant, "samples", breaking)
    found = []
    for name, cache in (("none", None), ("first", tmp_path / "cache"), ("second", tmp_path / "cache")):
        with pytest.raises(Stopped, match="the plant exploded"):
            job(tmp_path / name, *SHORT, cache=cache)
        groups = store.read_groups(tmp_path / name / "job.nc", kind="job")
        summary = read_summary(tmp_path / name / "job.nc")
        found.append(({n: bits(g) for n, g in groups.items()}, {k: v for k, v in summary.items() if k != "times"}))
    assert found[0] == found[1] == found[2]
    assert summary["partial"] is True
    assert summary["times"]["cache"]["trajectory"] == {"misses": 1}
    assert not list((tmp_path / "cache" / "trajectory").glob("*.nc"))


def test_a_record_shares_its_training_and_has_no_trajectory(tmp_path):
    path = tmp_path / "record.csv"
    rng = np.random.default_rng(0)
    path.write_text("u,y\n" + "\n".join(f"{a},{b}" for a, b in rng.normal(size=(60, 2)).tolist()) + "\n")
    overrides = ("data=csv", f"data.estimation={path}", "data.inputs=[u]", "data.outputs=[y]", "data.dt=1")
    overrides += ("narx=lags", "narx.outputs={y: 1}", "narx.inputs={u: 1}", "budget=10", "training.n_initial=20")
    overrides += ("training.restarts=1", "figures=false")
    miss, hit = (job(tmp_path / name, *overrides, cache=tmp_path / "cache") for name in ("miss", "hit"))
    assert miss[:2] == hit[:2]
    assert (miss[2]["cache"], hit[2]["cache"]) == ({"start": {"misses": 1}}, {"start": {"hits": 1}})
    config = configured(*SHORT)
    assert type(prepare(config, source_of(config)).settings.training) is MaximumAPosteriori
