"""Work that jobs share, done once: damage, full disks, killed processes, and the same bits with and
without.
"""

import logging
import subprocess

import numpy as np
import pytest
import xarray as xr
from filelock import FileLock

from experiments.cli.ends import Stopped
from experiments.files import cache as cache_module
from experiments.files.cache import Cache, CachedTraining, Kind, cache_of, counts_of
from experiments.identify.run import run
from experiments.plant.plant import Plant
from helpers.cached_numbers import NUMBERS, VALUES
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
    """Something to compute, that counts."""

    def __init__(self, values=VALUES):
        self.times = 0
        self.values = values

    def __call__(self):
        self.times += 1
        return self.values


def obtained(folder, work, key=KEY, kind=NUMBERS, **options):
    """Content by a new cache of the folder, as another job has it, and what the cache did."""
    cache = Cache(folder, **options)
    found = cache.obtain(kind, key, work)
    return found, counts_of(cache)["cache"][kind.name]


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_what_was_computed_once_is_read_by_its_key_and_kind_and_computed_anew_if_damaged(
    tmp_path, caplog
):
    work = Work()
    path = tmp_path / "numbers" / f"{KEY}.nc"
    (first, one), (second, two) = obtained(tmp_path, work), obtained(tmp_path, work)
    assert work.times == 1
    assert first.tobytes() == second.tobytes() == VALUES.tobytes()
    assert (one, two) == ({"misses": 1}, {"hits": 1})
    obtained(tmp_path, Work(-VALUES), key="another")
    obtained(tmp_path, work, kind=NUMBERS._replace(name="others"))
    other = Kind(
        "odd",
        "",
        lambda v: xr.Dataset({"y": ("n", v)}),
        lambda found: found["y"].values,
    )
    obtained(tmp_path, work, kind=other)
    assert work.times == 3
    content = path.read_bytes()
    n = 30
    damages = [b"", content[:-1], (tmp_path / "numbers" / "another.nc").read_bytes()]
    damages.append((tmp_path / "odd" / f"{KEY}.nc").read_bytes())
    for place in [
        *range(0, len(content), len(content) // n),
        len(content) - 1,
        len(content) - 70,
    ]:
        damages.append(
            content[:place] + bytes([content[place] ^ 1 << place % 8]) + content[place + 1 :]
        )
    damages.append(store.to_bytes(NUMBERS.to_dataset(-VALUES).assign_attrs(key=KEY)))  # not sealed
    for damage in damages:
        path.write_bytes(damage)
        caplog.clear()
        found, did = obtained(tmp_path, Work())
        assert (found.tobytes(), did) == (VALUES.tobytes(), {"damaged": 1, "misses": 1})
        (warning,) = warnings(caplog)
        assert f"cache file {path} is damaged" in warning
    assert obtained(tmp_path, work)[1] == {"hits": 1}


def test_what_is_wrong_with_the_folder_is_said_once_and_stops_nothing(
    tmp_path, monkeypatch, caplog
):
    """No folder, a full disk, somebody locks for too long."""
    for place in ("file", "file/below", "numbers"):
        (tmp_path / place.partition("/")[0]).write_text("in the way")
        found, did = obtained(tmp_path if place == "numbers" else tmp_path / place, Work())
        assert (found is VALUES, did) == (True, {"misses": 1})
        assert len(warnings(caplog)) == 1
        caplog.clear()

    def full(content, path):
        raise store.StoreError(f"could not write {path}: No space left on device")

    with monkeypatch.context() as context:
        context.setattr(cache_module.store, "write_bytes", full)
        work = Work()
        cache = Cache(tmp_path / "cache")
        for key in ("a", "b", "a"):
            assert cache.obtain(NUMBERS, key, work) is VALUES
    assert work.times == 3
    (warning,) = warnings(caplog)
    assert "No space left" in warning

    folder = tmp_path / "locked"
    work = Work()
    (folder / "numbers").mkdir(parents=True)
    with FileLock(folder / "numbers" / f"{KEY}.lock"):
        assert obtained(folder, work, patience=0.06)[0] is VALUES
    assert "0.06 s" in warnings(caplog)[1]
    assert obtained(folder, work)[1] == {"hits": 1}


def test_nothing_is_kept_of_work_that_fails_or_that_a_file_cannot_give_back(tmp_path, caplog):
    def broken(*arguments):
        raise ArithmeticError("it diverged")

    for _ in range(2):  # the lock of the first is released
        with pytest.raises(ArithmeticError, match="diverged"):
            obtained(tmp_path, broken, patience=0.0)
    assert [path.suffix for path in (tmp_path / "numbers").iterdir()] == [".lock"]
    for functions in (
        *((broken, NUMBERS.from_dataset), (NUMBERS.to_dataset, broken)),
        (lambda v: xr.Dataset({"x": ("n", v.astype(complex))}), NUMBERS.from_dataset),
    ):
        work = Work()
        cache = Cache(tmp_path)
        for _ in range(2):
            assert cache.obtain(Kind("odd", "", *functions), KEY, work) is VALUES
        assert (work.times, counts_of(cache)) == (
            2,
            {"cache": {"odd": {"left_out": 2, "misses": 2}}},
        )
    assert not warnings(caplog)


def test_a_run_has_a_cache_in_a_sweep_or_if_its_folder_is_absolute(tmp_path, monkeypatch):
    for in_sweep in (False, True):
        assert cache_of(None, in_sweep=in_sweep) is None
        assert cache_of(f"{tmp_path}/cache", in_sweep=in_sweep).folder == tmp_path / "cache"
        for wrong in (5, "", True, ["a"]):
            with pytest.raises(ValueError, match="cache must be the name of a folder"):
                cache_of(wrong, in_sweep=in_sweep)
    monkeypatch.chdir(tmp_path)
    assert cache_of("multirun/cache", in_sweep=False) is None
    assert cache_of("multirun/cache", in_sweep=True).folder == tmp_path / "multirun" / "cache"


JOB = """
import sys, time
from pathlib import Path
from experiments.files.cache import Cache, counts_of
from helpers.cached_numbers import NUMBERS, VALUES
folder, name, seconds = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])

def compute():
    (folder / f"{name}.computes").touch()
    while len(list(folder.glob("*.asks"))) < 3:
        time.sleep(0.01)
    time.sleep(seconds)
    return VALUES

cache = Cache(folder / "cache")
(folder / f"{name}.asks").touch()
assert cache.obtain(NUMBERS, "key", compute).tobytes() == VALUES.tobytes()
print(counts_of(cache)["cache"])
"""


def test_one_process_computes_while_the_others_wait_for_it_or_its_death(tmp_path):
    pipe = {"stdout": subprocess.PIPE, "text": True}
    with script_process(JOB, tmp_path, "killed", 60.0, **pipe) as killed:
        assert wait_until((tmp_path / "killed.computes").exists)
        with (
            script_process(JOB, tmp_path, "a", 0.1, **pipe) as a,
            script_process(JOB, tmp_path, "b", 0.1, **pipe) as b,
        ):
            assert wait_until(lambda: len(list(tmp_path.glob("*.asks"))) == 3)
            assert not wait_until(lambda: len(list(tmp_path.glob("*.computes"))) > 1, 0.2)
            killed.kill()
            said = [process.communicate(timeout=60)[0] for process in (a, b)]
    assert sorted(said) == [
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
    np.array([False, *5 * [True]]),
)
QUICK = MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=3)


def started(
    training,
    cache,
    samples=SAMPLES,
    known=None,
    mean=None,
    budget=5,
    seed=0,
    code="code",
):
    wrapped = CachedTraining(training, cache, code)
    return wrapped.prepare(
        samples, known or Start(), mean=mean or ConstantMean(), budget=budget, seed=seed
    )


def test_every_argument_of_a_training_is_part_of_its_key(tmp_path):
    started(QUICK, Cache(tmp_path))
    others = [
        {
            "samples": SAMPLES._replace(
                regressors=SAMPLES.regressors + np.spacing(SAMPLES.regressors)
            )
        },
        {"samples": SAMPLES._replace(targets=-SAMPLES.targets)},
        {"samples": SAMPLES._replace(follows=np.ones(6, dtype=bool))},
        {"samples": SAMPLES._replace(narx=Narx({"y": [2]}, {}, "y"))},
        *(
            {"known": Start(limits=(0.0, 1.0))},
            {"known": Start(mean=ConstantMean(0.3))},
            {"mean": ZeroMean()},
        ),
        *({"budget": 6}, {"seed": 1}, {"code": "other"}),
        {"training": MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=4)},
        {"training": Adaptive(n_initial=6, restarts=1, max_iterations=3)},
    ]
    for other in ({}, *others):
        cache = Cache(tmp_path)
        started(**({"training": QUICK} | other), cache=cache)
        assert counts_of(cache) == {"cache": {"start": {"misses" if other else "hits": 1}}}, other


# --- identifications

FEW = (
    "duration=160samples",
    "budget=12",
    "training.n_initial=20",
    "training.restarts=1",
    "figures=false",
)
BASE = ("system=van_der_pol", "noise.std=0.02", "insertion=error", *FEW)
RUNS = {
    "building": FEW,
    "adaptive": (
        "training=adaptive",
        *BASE,
        "training.interval=10",
        "training.significance=0.2",
    ),
}


def job(folder, *overrides, cache=None):
    """Run a job with lean outputs; what `found_by` says of it."""
    folder.mkdir()
    run(
        compose_configuration(
            *overrides, "outputs=lean", f"cache={'null' if cache is None else cache}"
        ),
        folder,
    )
    return job_content(folder / "job.nc")


@pytest.mark.parametrize("overrides", RUNS.values(), ids=RUNS)
def test_hit_miss_and_no_cache_give_the_same_bits_also_after_damage(overrides, tmp_path):
    cache = tmp_path / "cache"
    found = [
        job(tmp_path / "none", *overrides),
        *(job(tmp_path / f"{k}", *overrides, cache=cache) for k in range(2)),
    ]
    for path in cache.rglob("*.nc"):
        path.write_bytes(path.read_bytes()[:-1])
    found.append(job(tmp_path / "damaged", *overrides, cache=cache))
    assert all(one[:2] == found[0][:2] for one in found)
    for one, count in zip(
        found[1:],
        ({"misses": 1}, {"hits": 1}, {"damaged": 1, "misses": 1}),
        strict=True,
    ):
        assert one[2]["cache"] == {"start": count, "trajectory": count}


def test_what_jobs_share(tmp_path, monkeypatch):
    """By what a job after a first one counts; its simulations and trainings are counted apart."""
    counted = {"trajectory": 0, "start": 0}

    def count(cls, name, kind):
        original = getattr(cls, name)

        def call(self, *arguments):
            counted[kind] += 1
            return original(self, *arguments)

        monkeypatch.setattr(cls, name, call)

    job(tmp_path / "first", *BASE, cache=tmp_path / "cache")
    count(Plant, "samples", "trajectory")
    count(MaximumAPosteriori, "train", "start")
    for number, (overrides, simulations, trainings) in enumerate(
        (
            (
                "insertion=variance insertion.variance_threshold=0.001 selection=forward identified=0.6",
                0,
                0,
            ),
            (
                "insertion.error_threshold=0.07 reduction=prior_entropy acceptance=none",
                0,
                0,
            ),
            *(
                ("budget=11", 0, 1),
                ("training.restarts=2", 0, 1),
                ("mean=linear", 0, 1),
                ("kernel=matern_52", 0, 1),
            ),
            *(("seed=1", 1, 1), ("noise.std=0.01", 1, 1), ("system.substeps=31", 1, 1)),
        )
    ):
        counted |= dict.fromkeys(counted, 0)
        *_, times = job(tmp_path / f"{number}", *BASE, *overrides.split(), cache=tmp_path / "cache")
        assert counted == {"trajectory": simulations, "start": trainings}, overrides
        assert times["cache"] == {
            kind: {"misses" if n else "hits": 1} for kind, n in counted.items()
        }, overrides


def test_a_simulation_that_breaks_off_leaves_the_same_with_a_cache(tmp_path, monkeypatch):
    original = Plant.samples

    def breaking(self, *arguments):
        return fail_after(original(self, *arguments), 60, DivergenceError("the plant exploded"))

    monkeypatch.setattr(Plant, "samples", breaking)
    found = []
    for name, cache in (
        ("none", None),
        ("first", tmp_path / "cache"),
        ("second", tmp_path / "cache"),
    ):
        with pytest.raises(Stopped, match="the plant exploded"):
            job(tmp_path / name, *BASE, cache=cache)
        found.append(job_content(tmp_path / name / "job.nc"))
    assert found[0][:2] == found[1][:2] == found[2][:2]
    assert found[2][2]["cache"]["trajectory"] == {"misses": 1}
    assert not list((tmp_path / "cache" / "trajectory").glob("*.nc"))
