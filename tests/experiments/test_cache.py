"""The cache of work that jobs share: each piece is done once, and results have the same bits.

This also holds with damaged files, on full disks, and if a process is killed.
"""

import logging
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock

from experiments.cli.ends import Stopped
from experiments.files import cache as cache_module
from experiments.files import identity
from experiments.files.cache import Cache, CachedTraining, Kind, cache_of, counts_of
from experiments.identify import linear_orders
from experiments.identify import run as identify
from experiments.plant.live import Simulation
from experiments.plant.plant import Plant
from experiments.sweeps import store as results
from experiments.sweeps.task import execute
from helpers.cached_numbers import N_ASKING, NUMBERS, VALUES, obtain_beside_others
from helpers.commands import compose_configuration, fail_after
from helpers.jobs import HANG_TIMEOUT, make_job, script_process, wait_until
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
OTHER_USER = 65534  # number of the user who owns nothing ("nobody")


class Work:
    """Computes values, and counts how often."""

    def __init__(self, values=VALUES):
        self.n_calls = 0
        self.values = values

    def __call__(self):
        self.n_calls += 1
        return self.values


def obtain(folder, work, key=KEY, kind=NUMBERS, **options):
    """Return content from the cache in a folder, and the counts of a job that has just started."""
    cache = Cache(folder, **options)
    content = cache.obtain(kind, key, work)
    return content, counts_of(cache)["cache"][kind.name]


def counts_of_obtaining(*arguments, **options):
    """Return the counts of `obtain`, without the content."""
    _, counts = obtain(*arguments, **options)
    return counts


def logged_warnings(caplog):
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


@contextmanager
def bound_by_modes():
    """Drop the rights of root, whom no mode of a file binds."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(OTHER_USER)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.fixture
def open_folder():
    """A folder that another user may enter, unlike `tmp_path`."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("closed", [".", "cache", "cache/numbers", f"cache/numbers/{KEY}.nc"])
def test_a_cache_that_another_user_has_closed_costs_only_time(closed, open_folder, caplog):
    folder = open_folder / "cache"
    obtain(folder, Work())
    obtain(folder, Work())  # imports what a reader needs
    (open_folder / closed).chmod(0)
    work = Work()
    with bound_by_modes():
        content, counts = obtain(folder, work)
    (open_folder / closed).chmod(0o755)
    assert work.n_calls == 1
    assert content.tobytes() == VALUES.tobytes()
    assert counts == {"misses": 1}
    (warning,) = logged_warnings(caplog)
    assert "every job computes what it lacks" in warning
    assert "Permission denied" in warning
    assert counts_of_obtaining(folder, Work()) == {"hits": 1}


def close_for_writing(folder):
    """Let others read a folder and all that is in it, and write nothing."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)


@contextmanager
def readable_only(folder):
    """Be another user, who may only read a folder; check that its files stay as they are."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    close_for_writing(folder)
    with bound_by_modes():
        yield
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.fixture
def cache_of_another_user(open_folder):
    """A cache with content of one key, into which only another user may write."""
    folder = open_folder / "cache"
    obtain(folder, Work())
    obtain(folder, Work())  # imports what a reader needs
    return folder


def test_a_cache_of_another_user_is_read(cache_of_another_user, caplog):
    with readable_only(cache_of_another_user):
        work = Work()
        content, counts = obtain(cache_of_another_user, work)
    assert work.n_calls == 0
    assert content.tobytes() == VALUES.tobytes()
    assert counts == {"hits": 1}
    assert not logged_warnings(caplog)


@pytest.mark.parametrize("is_damaged", [False, True], ids=["lacks it", "has it damaged"])
def test_what_a_cache_of_another_user_does_not_give_costs_only_time(
    is_damaged, cache_of_another_user, caplog
):
    if is_damaged:
        path = cache_of_another_user / "numbers" / f"{KEY}.nc"
        path.write_bytes(path.read_bytes()[:-1])
    with readable_only(cache_of_another_user):
        work = Work()
        content, _ = obtain(cache_of_another_user, work, key=KEY if is_damaged else "another")
    assert work.n_calls == 1
    assert content.tobytes() == VALUES.tobytes()
    assert any("every job computes what it lacks" in line for line in logged_warnings(caplog))


@pytest.mark.parametrize("is_damaged", [False, True], ids=["sound", "damaged"])
def test_a_result_that_another_user_has_kept_is_taken_if_it_is_sound(is_damaged, open_folder):
    jobs = []
    for name in ("theirs", "mine"):
        (open_folder / name / "0").mkdir(parents=True)
        for path in (open_folder / name, open_folder / name / "0"):
            path.chmod(0o777)
        jobs.append(make_job(open_folder / name, 0, "writing"))
    assert execute(jobs[0]).done
    kept = open_folder / "cache" / "results"
    results.share(jobs[0], kept)
    if is_damaged:
        # a new file: the kept one may be the file of the job itself
        path = kept / jobs[0].identity / "result.txt"
        path.unlink()
        path.write_text("number 1\n")
    with readable_only(open_folder / "cache"):
        outcome = results.fetch(jobs[1], kept)
    taken = open_folder / "mine" / "0" / "result.txt"
    if is_damaged:
        assert outcome is None
        assert not taken.exists()
    else:
        assert outcome.done
        assert taken.read_text() == "number 0\n"


#: a kind whose files hold another variable
OTHER_KIND = Kind(
    "odd",
    "",
    lambda values: xr.Dataset({"y": ("n", values)}),
    lambda dataset: dataset["y"].values,
)


@pytest.mark.parametrize(
    "options",
    [{"key": "another"}, {"kind": NUMBERS._replace(name="others")}, {"kind": OTHER_KIND}],
    ids=["another key", "another name", "another kind"],
)
def test_content_of_another_key_or_kind_is_not_read(options, tmp_path):
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
    obtain(folder, Work(), kind=OTHER_KIND)
    return folder


def read_content(folder):
    """Return the bytes of the file that a cache keeps under the usual key."""
    return (folder / "numbers" / f"{KEY}.nc").read_bytes()


def damaged_content(damage, folder):
    """Return the damaged content of a file in the folder of an intact cache."""
    match damage:
        case "empty":
            return b""
        case "truncated":
            return read_content(folder)[:-1]
        case "file of another key":
            return (folder / "numbers" / "another.nc").read_bytes()
        case "file of another kind":
            return (folder / "odd" / f"{KEY}.nc").read_bytes()
        case "not sealed":
            dataset = NUMBERS.to_dataset(-VALUES).assign_attrs(key=KEY)
            return store.to_bytes(dataset)


def flip_bit(content, place):
    """Return bytes with one flipped bit, in the byte at a place."""
    flipped = bytearray(content)
    bit = place % 8
    flipped[place] ^= 1 << bit
    return bytes(flipped)


def check_content_is_computed_anew(cache, content_of_file, caplog):
    """Check that a cache replaces the damaged content of its file, and warns."""
    path = cache / "numbers" / f"{KEY}.nc"
    path.parent.mkdir()
    path.write_bytes(content_of_file)
    content, counts = obtain(cache, Work())
    assert content.tobytes() == VALUES.tobytes()
    assert counts == {"damaged": 1, "misses": 1}
    (warning,) = logged_warnings(caplog)
    assert f"cache file {path} is damaged" in warning
    assert counts_of_obtaining(cache, Work()) == {"hits": 1}


DAMAGES = ["empty", "truncated", "file of another key", "file of another kind", "not sealed"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_content_is_computed_anew(damage, intact_cache, tmp_path, caplog):
    content = damaged_content(damage, intact_cache)
    check_content_is_computed_anew(tmp_path, content, caplog)


#: places in a file, evenly spread, where a bit is flipped
N_FLIPPED_PLACES = 30


@pytest.mark.parametrize("k", range(N_FLIPPED_PLACES))
def test_content_with_a_flipped_bit_is_computed_anew(k, intact_cache, tmp_path, caplog):
    content = read_content(intact_cache)
    place = k * len(content) // N_FLIPPED_PLACES
    check_content_is_computed_anew(tmp_path, flip_bit(content, place), caplog)


@pytest.mark.parametrize("n_bytes_from_end", [1, 70])
def test_content_with_a_flipped_bit_near_its_end_is_computed_anew(
    n_bytes_from_end, intact_cache, tmp_path, caplog
):
    content = read_content(intact_cache)
    place = len(content) - n_bytes_from_end
    check_content_is_computed_anew(tmp_path, flip_bit(content, place), caplog)


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
    assert len(logged_warnings(caplog)) == 1


def test_a_full_disk_is_reported_once_and_the_work_goes_on(tmp_path, monkeypatch, caplog):
    def fail_to_write(content, path):
        raise store.StoreError(f"could not write {path}: No space left on device")

    monkeypatch.setattr(cache_module.store, "write_bytes", fail_to_write)
    work = Work()
    cache = Cache(tmp_path / "cache")
    for key in ("a", "b", "a"):
        assert cache.obtain(NUMBERS, key, work) is VALUES
    assert work.n_calls == 3
    (warning,) = logged_warnings(caplog)
    assert "No space left" in warning


def test_a_lock_that_is_held_for_too_long_is_reported_and_the_work_goes_on(tmp_path, caplog):
    work = Work()
    (tmp_path / "numbers").mkdir()
    with FileLock(tmp_path / "numbers" / f"{KEY}.lock"):
        content, _ = obtain(tmp_path, work, patience=0.06)
    assert content is VALUES
    assert "0.06 s" in logged_warnings(caplog)[0]
    assert counts_of_obtaining(tmp_path, work) == {"hits": 1}


def fail(*arguments):
    """Raise an error, in place of work or of a conversion."""
    raise ArithmeticError("it diverged")


def test_nothing_is_kept_of_work_that_fails(tmp_path):
    for _ in range(2):  # the second time shows that the first has released the lock
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
def test_content_that_cannot_be_read_back_is_not_kept(to_dataset, from_dataset, tmp_path, caplog):
    work = Work()
    cache = Cache(tmp_path)
    kind = Kind("odd", "", to_dataset, from_dataset)
    for _ in range(2):
        assert cache.obtain(kind, KEY, work) is VALUES
    assert work.n_calls == 2
    assert counts_of(cache) == {"cache": {"odd": {"left_out": 2, "misses": 2}}}
    assert not logged_warnings(caplog)


@pytest.mark.parametrize("in_sweep", [False, True], ids=["run", "sweep"])
class TestCacheOf:
    """A run has a cache in a sweep, or if the folder of the cache is absolute."""

    def test_without_a_folder_there_is_no_cache(self, in_sweep):
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


#: a script that obtains the array beside other processes, and prints what its cache counts
OBTAIN_SCRIPT = """
import sys
from pathlib import Path
from helpers.cached_numbers import obtain_beside_others

folder, name, seconds = sys.argv[1:]
print(obtain_beside_others(Path(folder), name, float(seconds)))
"""


def start_obtaining(folder, name, seconds):
    """Obtain the array in a process of its own, whose computation takes some seconds."""
    return script_process(OBTAIN_SCRIPT, folder, name, seconds, stdout=subprocess.PIPE, text=True)


def kill_while_others_wait(killed, folder):
    """Kill the process that computes, once all have asked and while the others wait."""

    def all_have_asked():
        return len(list(folder.glob("*.asks"))) == N_ASKING

    def several_compute():
        return len(list(folder.glob("*.computes"))) > 1

    assert wait_until(all_have_asked)
    assert not wait_until(several_compute, seconds=0.2)
    killed.kill()


@pytest.mark.slow
def test_threads_wait_for_the_process_that_computes_and_one_takes_over_when_it_dies(tmp_path):
    with (
        start_obtaining(tmp_path, "killed", HANG_TIMEOUT) as killed,
        ThreadPoolExecutor(2) as pool,
    ):
        assert wait_until((tmp_path / "killed.computes").exists)
        waiting = [pool.submit(obtain_beside_others, tmp_path, name, 0.1) for name in "ab"]
        kill_while_others_wait(killed, tmp_path)
        counts = [future.result(timeout=HANG_TIMEOUT) for future in waiting]
    assert sorted(counts, key=str) == [{"numbers": {"hits": 1}}, {"numbers": {"misses": 1}}]
    assert len(list(tmp_path.glob("*.computes"))) == 2


@pytest.mark.slow
def test_processes_wait_for_the_one_that_computes_and_one_takes_over_when_it_dies(tmp_path):
    with start_obtaining(tmp_path, "killed", HANG_TIMEOUT) as killed:
        assert wait_until((tmp_path / "killed.computes").exists)
        with (
            start_obtaining(tmp_path, "a", 0.1) as first,
            start_obtaining(tmp_path, "b", 0.1) as second,
        ):
            kill_while_others_wait(killed, tmp_path)
            printed = [process.communicate(timeout=HANG_TIMEOUT)[0] for process in (first, second)]
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
    """Train with a cache; every argument but the cache influences the result."""
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


#: the regressors, shifted by their last bit
SHIFTED = SAMPLES.regressors + np.spacing(SAMPLES.regressors)


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


@pytest.fixture(scope="module", autouse=True)
def fixed_digest_of_the_toolbox():
    """Let all keys have the same digest of the toolbox, whose computation takes a second."""
    with mock.patch.object(identity, "_own_digest", return_value="this code"):
        yield


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
#: an oscillator whose hyper-parameters follow the stream
ADAPTIVE_OSCILLATOR = (
    "training=adaptive",
    *SHORT_OSCILLATOR,
    "training.interval=10",
    "training.significance=0.2",
)


#: names of the kinds of content that a run keeps: its simulation, its limit, its initial training,
#: and the errors of linear models
CACHED_KINDS = ("trajectory", "limit", "start", "linear")


def counts_of_kinds(computed):
    """Return the counts of a job that computes these kinds of content and reads the others."""
    return {kind: {"misses": 1} if kind in computed else {"hits": 1} for kind in CACHED_KINDS}


def numbers_of_kinds(computed):
    """Return how often each kind of content is computed by such a job."""
    return {kind: int(kind in computed) for kind in CACHED_KINDS}


def counts_of_all_kinds(**counts):
    """Return the counts of a job in which they are the same for all kinds of content."""
    return dict.fromkeys(CACHED_KINDS, counts)


def read_job(folder):
    """Return the results of a job, bit by bit, and its counts of the cache."""
    content, summary, times = job_content(folder / "job.nc")
    return SimpleNamespace(results=(content, summary), counts=times.get("cache"))


def run_job(folder, *overrides, cache="null"):
    """Run a job with lean outputs, without a cache or with one; return its results and counts."""
    folder.mkdir()
    configuration = compose_configuration(*overrides, "outputs=lean", f"cache={cache}")
    identify.run(configuration, folder)
    return read_job(folder)


@pytest.mark.parametrize(
    "overrides", [SHORT_BUILDING, ADAPTIVE_OSCILLATOR], ids=["building", "adaptive"]
)
def test_a_cache_changes_no_bit_of_the_results(overrides, tmp_path):
    """It is empty, then full, then damaged."""
    cache = tmp_path / "cache"
    without_cache = run_job(tmp_path / "without", *overrides)
    miss = run_job(tmp_path / "miss", *overrides, cache=cache)
    hit = run_job(tmp_path / "hit", *overrides, cache=cache)
    for path in cache.rglob("*.nc"):
        path.write_bytes(path.read_bytes()[:-1])
    damaged = run_job(tmp_path / "damaged", *overrides, cache=cache)
    for job in (miss, hit, damaged):
        assert job.results == without_cache.results
    assert miss.counts == counts_of_all_kinds(misses=1)
    assert hit.counts == counts_of_all_kinds(hits=1)
    assert damaged.counts == counts_of_all_kinds(damaged=1, misses=1)


@pytest.fixture(scope="module")
def cache_of_first_job(tmp_path_factory):
    """Folder of the cache that the first job has filled."""
    folder = tmp_path_factory.mktemp("first_job")
    run_job(folder / "job", *SHORT_OSCILLATOR, cache=folder / "cache")
    return folder / "cache"


@pytest.fixture
def n_computed(monkeypatch):
    """Numbers of results that are not read from a cache, by their kind."""
    numbers = dict.fromkeys(CACHED_KINDS, 0)

    def count_calls(owner, name, kind):
        original = getattr(owner, name)

        def call(*arguments):
            numbers[kind] += 1
            return original(*arguments)

        monkeypatch.setattr(owner, name, call)

    count_calls(Plant, "samples", "trajectory")
    count_calls(Simulation, "limit", "limit")
    count_calls(MaximumAPosteriori, "train", "start")
    count_calls(linear_orders, "_compare", "linear")
    return numbers


@pytest.fixture
def run_next_job(cache_of_first_job, tmp_path):
    """A function that runs a job with other settings and the same cache, and returns its counts."""

    def run_with(*overrides):
        folder = tmp_path / "job"
        return run_job(folder, *SHORT_OSCILLATOR, *overrides, cache=cache_of_first_job).counts

    return run_with


@pytest.mark.parametrize(
    ("overrides", "computed"),
    [
        (("insertion.error_threshold=0.07", "reduction=prior_entropy", "acceptance=none"), ()),
        (
            (
                "insertion=variance",
                "insertion.variance_threshold=0.001",
                "selection=forward",
                "identified=0.6",
            ),
            ("linear",),
        ),
        (("budget=11",), ("start",)),
        (("training.restarts=2",), ("start",)),
        (("mean=linear",), ("start", "linear")),  # without a linear part, rows have fewer lags
        (("kernel=matern_52",), ("start",)),
        (("seed=1",), CACHED_KINDS),
        (("noise.std=0.01",), CACHED_KINDS),
        (("system.substeps=31",), CACHED_KINDS),
    ],
    ids=lambda value: value[0] if value and "=" in value[0] else "",
)
def test_a_job_computes_only_what_its_settings_change(
    overrides, computed, run_next_job, n_computed
):
    counts = run_next_job(*overrides)
    assert n_computed == numbers_of_kinds(computed)
    assert counts == counts_of_kinds(computed)


def test_a_simulation_that_diverges_gives_the_same_results_with_a_cache(tmp_path, monkeypatch):
    simulate = Plant.samples

    def simulate_and_fail(self, *arguments, **options):
        error = DivergenceError("the plant exploded")
        return fail_after(simulate(self, *arguments, **options), 60, error)

    monkeypatch.setattr(Plant, "samples", simulate_and_fail)
    cache = tmp_path / "cache"
    jobs = []
    for name, job_cache in (("without", "null"), ("first", cache), ("second", cache)):
        with pytest.raises(Stopped, match="the plant exploded"):
            run_job(tmp_path / name, *SHORT_OSCILLATOR, cache=job_cache)
        jobs.append(read_job(tmp_path / name))
    without_cache, first, second = jobs
    assert first.results == without_cache.results
    assert second.results == without_cache.results
    assert second.counts["trajectory"] == {"misses": 1}
    assert not list((cache / "trajectory").glob("*.nc"))
