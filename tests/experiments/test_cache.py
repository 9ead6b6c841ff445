"""Jobs share work that is done once, also after damage, on full disks and if processes are killed;
results have the same bits with a cache and without.
"""

import logging
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock

from experiments.cli.ends import Stopped
from experiments.files import cache as cache_module
from experiments.files.cache import Cache, CachedTraining, Kind, cache_of, counts_of
from experiments.identify.run import run
from experiments.plant.live import Simulation
from experiments.plant.plant import Plant
from helpers.cached_numbers import N_ASKING, NUMBERS, VALUES, obtain_beside_others
from helpers.commands import compose_configuration, fail_after
from helpers.jobs import script_process, wait_until
from helpers.sweeps import job_content
from simulators import DivergenceError
from sysid import (
    Adaptive,
    ConstantMean,
    InitialSamples,
    MaximumAPosteriori,
    Narx,
    Start,
    ZeroMean,
    store,
)

KEY = "0123456789abcdef"


class Work:
    """Computes values, and counts how often."""

    def __init__(self, values=VALUES):
        self.n_calls = 0
        self.values = values

    def __call__(self):
        self.n_calls += 1
        return self.values


def obtain(folder, work, key=KEY, kind=NUMBERS, **options):
    """Return content from a new cache of the folder, as another job does, and its counts."""
    cache = Cache(folder, **options)
    content = cache.obtain(kind, key, work)
    return content, counts_of(cache)["cache"][kind.name]


def counts_of_obtaining(*arguments, **options):
    """Return the counts of a new cache of the folder that obtains content."""
    _, counts = obtain(*arguments, **options)
    return counts


def warnings(caplog):
    """Return the messages of the warnings that were logged."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_work_is_done_once_and_then_read(tmp_path):
    work = Work()
    computed, first_counts = obtain(tmp_path, work)
    read, next_counts = obtain(tmp_path, work)
    assert work.n_calls == 1
    assert computed.tobytes() == read.tobytes() == VALUES.tobytes()
    assert first_counts == {"misses": 1}
    assert next_counts == {"hits": 1}


#: a kind whose files hold another variable
ODD = Kind(
    "odd",
    "",
    lambda values: xr.Dataset({"y": ("n", values)}),
    lambda dataset: dataset["y"].values,
)


@pytest.mark.parametrize(
    "options",
    [{"key": "another"}, {"kind": NUMBERS._replace(name="others")}, {"kind": ODD}],
    ids=["another key", "another name", "another kind"],
)
def test_content_is_read_by_its_key_and_kind(options, tmp_path):
    obtain(tmp_path, Work())
    other_work = Work(-VALUES)
    content, counts = obtain(tmp_path, other_work, **options)
    assert other_work.n_calls == 1
    assert content.tobytes() == (-VALUES).tobytes()
    assert counts == {"misses": 1}


@pytest.fixture(scope="module")
def intact_cache(tmp_path_factory):
    """Folder of a cache with content of two keys, and of another kind."""
    folder = tmp_path_factory.mktemp("cache")
    obtain(folder, Work())
    obtain(folder, Work(-VALUES), key="another")
    obtain(folder, Work(), kind=ODD)
    return folder


def with_flipped_bit(content, place):
    """Return bytes in which one bit of the byte at a place is the other one."""
    flipped = bytearray(content)
    flipped[place] ^= 1 << place % 8
    return bytes(flipped)


def damage_content(damage, folder):
    """Return the content of the cache's file with this damage."""
    content = (folder / "numbers" / f"{KEY}.nc").read_bytes()
    match damage:
        case "empty":
            return b""
        case "truncated":
            return content[:-1]
        case "file of another key":
            return (folder / "numbers" / "another.nc").read_bytes()
        case "file of another kind":
            return (folder / "odd" / f"{KEY}.nc").read_bytes()
        case "not sealed":
            dataset = NUMBERS.to_dataset(-VALUES).assign_attrs(key=KEY)
            return store.to_bytes(dataset)
        case fraction:
            place = fraction if fraction < 0 else int(fraction * len(content))
            return with_flipped_bit(content, place % len(content))


N_PLACES = 30
DAMAGES = [
    "empty",
    "truncated",
    "file of another key",
    "file of another kind",
    "not sealed",
    *(k / N_PLACES for k in range(N_PLACES)),  # one bit flipped there
    -1,
    -70,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_content_is_computed_anew(damage, intact_cache, tmp_path, caplog):
    cache = tmp_path / "cache"
    shutil.copytree(intact_cache, cache)
    path = cache / "numbers" / f"{KEY}.nc"
    path.write_bytes(damage_content(damage, intact_cache))
    content, counts = obtain(cache, Work())
    assert content.tobytes() == VALUES.tobytes()
    assert counts == {"damaged": 1, "misses": 1}
    (warning,) = warnings(caplog)
    assert f"cache file {path} is damaged" in warning
    assert counts_of_obtaining(cache, Work()) == {"hits": 1}


@pytest.mark.parametrize(
    ("obstacle", "folder"),
    [("file", "file"), ("file", "file/below"), ("numbers", ".")],
    ids=["the folder", "the folder above", "the folder of the kind"],
)
def test_a_file_in_the_place_of_the_folder_is_reported_once(obstacle, folder, tmp_path, caplog):
    (tmp_path / obstacle).write_text("in the way")
    content, counts = obtain(tmp_path / folder, Work())
    assert content is VALUES
    assert counts == {"misses": 1}
    assert len(warnings(caplog)) == 1


def test_a_full_disk_is_reported_once_and_stops_nothing(tmp_path, monkeypatch, caplog):
    def fail(content, path):
        raise store.StoreError(f"could not write {path}: No space left on device")

    monkeypatch.setattr(cache_module.store, "write_bytes", fail)
    work = Work()
    cache = Cache(tmp_path / "cache")
    for key in ("a", "b", "a"):
        assert cache.obtain(NUMBERS, key, work) is VALUES
    assert work.n_calls == 3
    (warning,) = warnings(caplog)
    assert "No space left" in warning


def test_a_lock_that_is_held_for_too_long_is_reported_and_stops_nothing(tmp_path, caplog):
    work = Work()
    (tmp_path / "numbers").mkdir()
    with FileLock(tmp_path / "numbers" / f"{KEY}.lock"):
        content, _ = obtain(tmp_path, work, patience=0.06)
    assert content is VALUES
    assert "0.06 s" in warnings(caplog)[0]
    assert counts_of_obtaining(tmp_path, work) == {"hits": 1}


def fail(*arguments):
    """Fail, as work or as a conversion."""
    raise ArithmeticError("it diverged")


def test_nothing_is_kept_of_work_that_fails(tmp_path):
    for _ in range(2):  # the lock of the first is released
        with pytest.raises(ArithmeticError, match="diverged"):
            obtain(tmp_path, fail, patience=0.0)
    assert [path.suffix for path in (tmp_path / "numbers").iterdir()] == [".lock"]


def to_complex_dataset(values):
    """Return a data set of a type that a file cannot hold."""
    return xr.Dataset({"x": ("n", values.astype(complex))})


@pytest.mark.parametrize(
    ("to_dataset", "from_dataset"),
    [
        (fail, NUMBERS.from_dataset),
        (NUMBERS.to_dataset, fail),
        (to_complex_dataset, NUMBERS.from_dataset),
    ],
    ids=["not converted", "not converted back", "not written"],
)
def test_nothing_is_kept_that_a_file_cannot_give_back(to_dataset, from_dataset, tmp_path, caplog):
    work = Work()
    cache = Cache(tmp_path)
    kind = Kind("odd", "", to_dataset, from_dataset)
    for _ in range(2):
        assert cache.obtain(kind, KEY, work) is VALUES
    assert work.n_calls == 2
    assert counts_of(cache) == {"cache": {"odd": {"left_out": 2, "misses": 2}}}
    assert not warnings(caplog)


@pytest.mark.parametrize("in_sweep", [False, True], ids=["run", "sweep"])
class TestCacheOf:
    """A run has a cache in a sweep, or if the folder of the cache is absolute."""

    def test_no_folder_is_no_cache(self, in_sweep):
        assert cache_of(None, in_sweep=in_sweep) is None

    def test_an_absolute_folder_is_used(self, in_sweep, tmp_path):
        folder = tmp_path / "cache"
        assert cache_of(str(folder), in_sweep=in_sweep).folder == folder

    def test_a_relative_folder_is_used_in_a_sweep(self, in_sweep, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        cache = cache_of("multirun/cache", in_sweep=in_sweep)
        if in_sweep:
            assert cache.folder == tmp_path / "multirun" / "cache"
        else:
            assert cache is None

    @pytest.mark.parametrize("wrong", [5, "", True, ["a"]], ids=repr)
    def test_another_value_is_refused(self, in_sweep, wrong):
        with pytest.raises(ValueError, match="cache must be the name of a folder"):
            cache_of(wrong, in_sweep=in_sweep)


#: obtains the array in a process of its own, and prints what its cache counts
OBTAIN = """
import sys
from pathlib import Path
from helpers.cached_numbers import obtain_beside_others

folder, name, seconds = sys.argv[1:]
print(obtain_beside_others(Path(folder), name, float(seconds)))
"""


def start_obtaining(folder, name, seconds):
    """Obtain the array in a process of its own."""
    return script_process(OBTAIN, folder, name, seconds, stdout=subprocess.PIPE, text=True)


def kill_while_others_wait(killed, folder):
    """Kill the process that computes, once all ask and while the others do not compute."""
    assert wait_until(lambda: len(list(folder.glob("*.asks"))) == N_ASKING)
    assert not wait_until(lambda: len(list(folder.glob("*.computes"))) > 1, 0.2)
    killed.kill()


def test_one_process_computes_while_threads_of_another_wait_for_its_death(tmp_path):
    with (
        start_obtaining(tmp_path, "killed", 60.0) as killed,
        ThreadPoolExecutor(2) as pool,
    ):
        assert wait_until((tmp_path / "killed.computes").exists)
        waiting = [pool.submit(obtain_beside_others, tmp_path, name, 0.1) for name in "ab"]
        kill_while_others_wait(killed, tmp_path)
        counts = [future.result(timeout=60) for future in waiting]
    assert sorted(counts, key=str) == [{"numbers": {"hits": 1}}, {"numbers": {"misses": 1}}]
    assert len(list(tmp_path.glob("*.computes"))) == 2


@pytest.mark.slow
def test_one_process_computes_while_the_others_wait_for_its_death(tmp_path):
    with start_obtaining(tmp_path, "killed", 60.0) as killed:
        assert wait_until((tmp_path / "killed.computes").exists)
        with (
            start_obtaining(tmp_path, "a", 0.1) as first,
            start_obtaining(tmp_path, "b", 0.1) as second,
        ):
            kill_while_others_wait(killed, tmp_path)
            printed = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert sorted(printed) == [
        "{'numbers': {'hits': 1}}\n",
        "{'numbers': {'misses': 1}}\n",
    ]
    assert len(list(tmp_path.glob("*.computes"))) == 2


# --- training

NARX = Narx({"y": [1]}, {}, "y")
SAMPLES = InitialSamples(
    NARX,
    np.arange(6.0)[:, None] / 3,
    np.sin(np.arange(6.0)),
    np.array([False, True, True, True, True, True]),
)
QUICK_TRAINING = MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=3)


def train(
    cache,
    training=QUICK_TRAINING,
    samples=SAMPLES,
    known=None,
    mean=None,
    budget=5,
    seed=0,
    code="code",
):
    """Train with a cache."""
    return CachedTraining(training, cache, code).prepare(
        samples,
        known or Start(),
        mean=mean or ConstantMean(),
        budget=budget,
        seed=seed,
    )


@pytest.fixture(scope="module")
def trained_cache(tmp_path_factory):
    """Folder of a cache with one training."""
    folder = tmp_path_factory.mktemp("trained")
    train(Cache(folder))
    return folder


def test_the_same_training_is_read(trained_cache):
    cache = Cache(trained_cache)
    train(cache)
    assert counts_of(cache) == {"cache": {"start": {"hits": 1}}}


SHIFTED = SAMPLES.regressors + np.spacing(SAMPLES.regressors)  # by the last bit


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"samples": SAMPLES._replace(regressors=SHIFTED)}, id="regressors"),
        pytest.param({"samples": SAMPLES._replace(targets=-SAMPLES.targets)}, id="targets"),
        pytest.param({"samples": SAMPLES._replace(follows=np.ones(6, dtype=bool))}, id="follows"),
        pytest.param({"samples": SAMPLES._replace(narx=Narx({"y": [2]}, {}, "y"))}, id="lags"),
        pytest.param({"known": Start(limits=(0.0, 1.0))}, id="limits"),
        pytest.param({"known": Start(mean=ConstantMean(0.3))}, id="known mean"),
        pytest.param({"mean": ZeroMean()}, id="mean"),
        pytest.param({"budget": 6}, id="budget"),
        pytest.param({"seed": 1}, id="seed"),
        pytest.param({"code": "other"}, id="code"),
        pytest.param(
            {"training": MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=4)},
            id="setting of the training",
        ),
        pytest.param(
            {"training": Adaptive(n_initial=6, restarts=1, max_iterations=3)},
            id="training",
        ),
    ],
)
def test_every_argument_of_a_training_is_part_of_its_key(changed, trained_cache):
    cache = Cache(trained_cache)
    train(cache, **changed)
    assert counts_of(cache) == {"cache": {"start": {"misses": 1}}}


# --- identifications

SHORT_BUILDING = (
    "duration=160samples",
    "budget=12",
    "training.n_initial=20",
    "training.restarts=1",
    "figures=false",
)
SHORT_OSCILLATOR = (
    "system=van_der_pol",
    "noise.std=0.02",
    "insertion=error",
    *SHORT_BUILDING,
)
RUNS = {
    "building": SHORT_BUILDING,
    "adaptive": (
        "training=adaptive",
        *SHORT_OSCILLATOR,
        "training.interval=10",
        "training.significance=0.2",
    ),
}


def read_job(folder):
    """Return the bits of a job's files and its counts of the cache."""
    content, summary, times = job_content(folder / "job.nc")
    return SimpleNamespace(results=(content, summary), counts=times.get("cache"))


def run_job(folder, *overrides, cache=None):
    """Run a job with lean outputs; return its bits and its counts of the cache."""
    folder.mkdir()
    cache_override = f"cache={'null' if cache is None else cache}"
    run(compose_configuration(*overrides, "outputs=lean", cache_override), folder)
    return read_job(folder)


@pytest.mark.parametrize("overrides", RUNS.values(), ids=RUNS)
def test_hit_miss_and_no_cache_give_the_same_bits_also_after_damage(overrides, tmp_path):
    cache = tmp_path / "cache"
    without_cache = run_job(tmp_path / "without", *overrides)
    miss = run_job(tmp_path / "miss", *overrides, cache=cache)
    hit = run_job(tmp_path / "hit", *overrides, cache=cache)
    for path in cache.rglob("*.nc"):
        path.write_bytes(path.read_bytes()[:-1])
    damaged = run_job(tmp_path / "damaged", *overrides, cache=cache)
    assert miss.results == hit.results == damaged.results == without_cache.results
    for job, counts in (
        (miss, {"misses": 1}),
        (hit, {"hits": 1}),
        (damaged, {"damaged": 1, "misses": 1}),
    ):
        assert job.counts == {"limit": counts, "start": counts, "trajectory": counts}


@pytest.fixture(scope="module")
def cache_of_first_job(tmp_path_factory):
    """Folder of the cache of a job."""
    folder = tmp_path_factory.mktemp("first_job")
    run_job(folder / "job", *SHORT_OSCILLATOR, cache=folder / "cache")
    return folder / "cache"


@pytest.fixture
def n_computed(monkeypatch):
    """Numbers of simulations, limits and trainings that are computed, by kind of cached content."""
    numbers = {"trajectory": 0, "limit": 0, "start": 0}

    def count_calls(cls, method, kind):
        original = getattr(cls, method)

        def call(self, *arguments):
            numbers[kind] += 1
            return original(self, *arguments)

        monkeypatch.setattr(cls, method, call)

    count_calls(Plant, "samples", "trajectory")
    count_calls(MaximumAPosteriori, "train", "start")
    count_calls(Simulation, "limit", "limit")
    return numbers


@pytest.mark.parametrize(
    ("overrides", "n_simulations", "n_trainings"),
    [
        (
            (
                "insertion=variance",
                "insertion.variance_threshold=0.001",
                "selection=forward",
                "identified=0.6",
            ),
            0,
            0,
        ),
        (
            (
                "insertion.error_threshold=0.07",
                "reduction=prior_entropy",
                "acceptance=none",
            ),
            0,
            0,
        ),
        (("budget=11",), 0, 1),
        (("training.restarts=2",), 0, 1),
        (("mean=linear",), 0, 1),
        (("kernel=matern_52",), 0, 1),
        (("seed=1",), 1, 1),
        (("noise.std=0.01",), 1, 1),
        (("system.substeps=31",), 1, 1),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_jobs_share_what_their_settings_do_not_change(
    overrides, n_simulations, n_trainings, cache_of_first_job, n_computed, tmp_path
):
    job = run_job(tmp_path / "job", *SHORT_OSCILLATOR, *overrides, cache=cache_of_first_job)
    assert n_computed == {
        "trajectory": n_simulations,
        "limit": n_simulations,
        "start": n_trainings,
    }
    assert job.counts == {
        kind: {"misses": 1} if number else {"hits": 1} for kind, number in n_computed.items()
    }


def test_a_simulation_that_breaks_off_leaves_the_same_with_a_cache(tmp_path, monkeypatch):
    simulate = Plant.samples

    def simulate_and_fail(self, *arguments):
        error = DivergenceError("the plant exploded")
        return fail_after(simulate(self, *arguments), 60, error)

    monkeypatch.setattr(Plant, "samples", simulate_and_fail)
    cache = tmp_path / "cache"
    jobs = []
    for name, job_cache in (("without", None), ("first", cache), ("second", cache)):
        with pytest.raises(Stopped, match="the plant exploded"):
            run_job(tmp_path / name, *SHORT_OSCILLATOR, cache=job_cache)
        jobs.append(read_job(tmp_path / name))
    without_cache, first, second = jobs
    assert without_cache.results == first.results == second.results
    assert second.counts["trajectory"] == {"misses": 1}
    assert not list((cache / "trajectory").glob("*.nc"))
