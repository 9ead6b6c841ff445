"""Identifications with and without a cache: the same results, and work that is done once."""

import json
import logging

import numpy as np
import pytest
from running import DAYS, PLAIN, SHORT, bits, configured, data_of, execute, summary_of

from experiments.identification import prepare, run, source_of
from experiments.job_file import read_summary
from experiments.launch import Stopped
from experiments.plant import Plant
from experiments.sweeps.cache import Cache
from sysid import MaximumAPosteriori, store

LEAN = "outputs=lean"
BASE = (f"duration={DAYS}d", "training.n_initial=20", "training.restarts=1", "budget=24", "figures=false")
#: what a run measures of itself, or says about when and where it was made
MEASURED = {"creation_time", "configuration", "timings", "summary", "summary_sha256", "estimate_seconds"}
FREE_RUN = (
    *("training=free_run", "training.folds=2", "training.routes.0.evaluations=3", "training.routes.1.stages=1"),
    *("training.n_initial=100", "training.routes.1.search_points=10"),
)
FEW = 100 if PLAIN else 160
RUNS = {
    "building": SHORT,
    "noise": (
        *("system=van_der_pol", "noise.std=0.02", f"duration={FEW}samples", "budget=12"),
        *("training.n_initial=20", "training.restarts=1", "figures=false"),
    ),
    "band-limited": (
        *("system=bouc_wen", "interpolation=band_limited", f"duration={FEW}samples", "budget=12"),
        *("training.n_initial=20", "training.restarts=1", "figures=false"),
    ),
    "adaptive": ("training=adaptive", *SHORT, "training.interval=10", "training.significance=0.2"),
    "fixed": (
        *("training=fixed", "training.variance=1", "training.length_scales=1", "training.noise_variance=0.01"),
        *("mean=zero", f"duration={DAYS}d", "budget=20", "figures=false"),
    ),
    "free run": ("system=van_der_pol", *FREE_RUN, "budget=12", "duration=210samples", "figures=false"),
}
if PLAIN:  # nothing of a cache is compiled
    RUNS = {"noise": RUNS["noise"]}
COMPILED = pytest.mark.skipif(PLAIN, reason="nothing here is compiled")


def job(folder, *overrides, cache=None):
    """Run a job with lean outputs; its file as dicts of bits and attributes, and its summary without times."""
    run(configured(*overrides, LEAN, f"cache={'null' if cache is None else cache}"), _new(folder))
    groups = store.read_groups(folder / "job.nc", kind="job")
    content = {
        name: (bits(group), {key: str(value) for key, value in group.attrs.items() if key not in MEASURED})
        for name, group in groups.items()
    }
    summary = read_summary(folder / "job.nc")
    times = summary.pop("times")
    return content, json.dumps(summary), times


def ending(samples, n, error):
    """The first n samples, then an error instead of the next."""
    for k, sample in enumerate(samples):
        if k == n:
            raise error
        yield sample


def _new(folder):
    folder.mkdir()
    return folder


@pytest.mark.parametrize("overrides", RUNS.values(), ids=RUNS)
def test_hit_miss_and_no_cache_give_the_same_bits(overrides, tmp_path):
    none = job(tmp_path / "none", *overrides)
    miss = job(tmp_path / "miss", *overrides, cache=tmp_path / "cache")
    hit = job(tmp_path / "hit", *overrides, cache=tmp_path / "cache")
    assert none[:2] == miss[:2] == hit[:2]
    assert none[0].keys() >= {"record", "model"}
    assert "cache" not in none[2]
    assert miss[2]["cache"] == {kind: {"misses": 1} for kind in ("start", "trajectory")}
    assert hit[2]["cache"] == {kind: {"hits": 1} for kind in ("start", "trajectory")}


@COMPILED
def test_all_files_are_the_same_with_and_without(tmp_path):
    cache = f"cache={tmp_path / 'cache'}"
    for name, given in (("none", "cache=null"), ("miss", cache), ("hit", cache)):
        execute(tmp_path / name, *RUNS["noise"], given)
    for name in ("miss", "hit"):
        folders = tmp_path / "none", tmp_path / name
        for kind in ("trajectory", "narx", "result", "model"):
            one, other = (data_of(folder, kind) for folder in folders)
            assert bits(one) == bits(other)
            kept = [{key: str(value) for key, value in d.attrs.items() if key not in MEASURED} for d in (one, other)]
            assert kept[0] == kept[1]
        left = [{key: value for key, value in summary_of(folder).items() if key != "times"} for folder in folders]
        assert left[0] == left[1]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A cache that a first job has filled."""
    folder = tmp_path_factory.mktemp("shared")
    job(folder / "first", *BASE, cache=folder / "cache")
    return folder / "cache"


@COMPILED
@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("insertion.error_threshold=0.07", "reduction=prior_entropy", "acceptance=none"), "both"),
        (("insertion=variance", "insertion.variance_threshold=0.001", "selection=forward"), "both"),
        (("budget=17",), "trajectory"),
        (("training.restarts=2",), "trajectory"),
        (("mean=linear",), "trajectory"),
        (("kernel=matern_52",), "trajectory"),
        (("identified=0.6",), "both"),
        (("seed=1",), "none"),
        (("noise.std=0.01",), "none"),
        (("system.substeps=31",), "none"),
    ],
    ids=str,
)
def test_what_jobs_share(overrides, expected, shared, tmp_path, monkeypatch, caplog):
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
    caplog.set_level(logging.INFO)
    _, _, times = job(tmp_path / "second", *BASE, *overrides, cache=shared)
    did = {kind: next(iter(counts)) for kind, counts in times["cache"].items()}
    does = {"both": ("hits", "hits"), "trajectory": ("hits", "misses"), "none": ("misses", "misses")}[expected]
    assert (did["trajectory"], did["start"]) == does
    assert counted["simulations"] == (does[0] == "misses")
    assert counted["trainings"] == (does[1] == "misses")
    told = [record.getMessage() for record in caplog.records if record.name.startswith("experiments.sweeps")]
    words = {"hits": "read", "misses": "computed and kept"}
    assert [line.partition(" (")[0] for line in told] == [
        f"Cache: {kind} {words[one]}" for kind, one in zip(("trajectory", "start"), does, strict=True)
    ]


@COMPILED
@pytest.mark.parametrize("after", [10, 60, 24 * 4 * DAYS // 2 + 30], ids=["initial", "online", "validation"])
def test_a_simulation_that_breaks_off_leaves_the_same_with_a_cache(after, tmp_path, monkeypatch):
    original = Plant.samples

    def breaking(self, *arguments):
        return ending(original(self, *arguments), after, ArithmeticError("the plant exploded"))

    monkeypatch.setattr(Plant, "samples", breaking)
    found = []
    for name, cache in (("none", None), ("first", tmp_path / "cache"), ("second", tmp_path / "cache")):
        with pytest.raises(Stopped, match="the plant exploded"):
            job(tmp_path / name, *SHORT, cache=cache)
        groups = store.read_groups(tmp_path / name / "job.nc", kind="job")
        summary = read_summary(tmp_path / name / "job.nc")
        assert summary["partial"] is True
        found.append(({n: bits(g) for n, g in groups.items()}, {k: v for k, v in summary.items() if k != "times"}))
    assert found[0] == found[1] == found[2]
    assert summary["times"]["cache"]["trajectory"] == {"misses": 1}
    assert not list((tmp_path / "cache" / "trajectory").glob("*.nc"))


@COMPILED
def test_what_the_plant_refuses_is_refused_with_a_cache(tmp_path):
    overrides = ("system=bouc_wen", "excitation=none", "noise.snr_db=20", "duration=400samples", "narx=bouc_wen")
    with pytest.raises(ValueError, match="constant"):
        run(configured(*overrides, LEAN, "cache=null"), tmp_path)
    with pytest.raises(ValueError, match="constant"):
        run(configured(*overrides, LEAN, f"cache={tmp_path / 'cache'}"), tmp_path)


@COMPILED
def test_damage_is_a_warning_and_nothing_else(tmp_path, caplog):
    cache = tmp_path / "cache"
    first = job(tmp_path / "first", *SHORT, cache=cache)
    for path in cache.rglob("*.nc"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 16
        path.write_bytes(content)
    caplog.clear()
    second = job(tmp_path / "second", *SHORT, cache=cache)
    assert first[:2] == second[:2]
    assert second[2]["cache"] == {kind: {"damaged": 1, "misses": 1} for kind in ("start", "trajectory")}
    told = [r.getMessage() for r in caplog.records if "damaged" in r.getMessage() and r.levelno == logging.WARNING]
    assert len(told) == 2
    assert job(tmp_path / "third", *SHORT, cache=cache)[2]["cache"]["trajectory"] == {"hits": 1}


@COMPILED
def test_a_record_shares_its_training_and_has_no_trajectory(tmp_path):
    path = tmp_path / "record.csv"
    rng = np.random.default_rng(0)
    path.write_text("u,y\n" + "\n".join(f"{a},{b}" for a, b in rng.normal(size=(60, 2)).tolist()) + "\n")
    overrides = ("data=csv", f"data.estimation={path}", "data.inputs=[u]", "data.outputs=[y]", "data.dt=1")
    overrides += ("narx=lags", "narx.outputs={y: 1}", "narx.inputs={u: 1}", "budget=10", "training.n_initial=20")
    overrides += ("training.restarts=1", "figures=false")
    none = job(tmp_path / "none", *overrides)
    miss, hit = (job(tmp_path / name, *overrides, cache=tmp_path / "cache") for name in ("miss", "hit"))
    assert none[:2] == miss[:2] == hit[:2]
    assert (miss[2]["cache"], hit[2]["cache"]) == ({"start": {"misses": 1}}, {"start": {"hits": 1}})


def test_replayed_samples_are_the_live_ones(tmp_path):
    config = configured(*RUNS["noise"])
    sources = [source_of(config), *(source_of(config, Cache(tmp_path)) for _ in range(2))]
    assert [source.n_seen for source in sources] == [0, 0, 0]
    delivered = [list(next(source.segments()).samples) for source in sources]
    live, *replayed = (
        [np.concatenate([np.atleast_2d(getattr(sample, name)) for sample in samples]) for name in ("output", "input")]
        for samples in delivered
    )
    for blocks in replayed:
        assert [block.tobytes() for block in blocks] == [block.tobytes() for block in live]
    assert len({source.n_seen for source in sources}) == 1
    part, *others = (source.simulation.record() for source in sources)
    for record in others:
        for name in ("time", "input", "state", "output", "noise_free_output", "noise"):
            ours, theirs = getattr(record, name), getattr(part, name)
            assert (ours.shape, ours.dtype, ours.tobytes()) == (theirs.shape, theirs.dtype, theirs.tobytes())
            assert ours.flags.c_contiguous == theirs.flags.c_contiguous
            assert ours.flags.writeable == theirs.flags.writeable
        assert (record.n_clipped, record.seed, record.interpolation) == (part.n_clipped, part.seed, part.interpolation)
        assert record.to_dataset().identical(part.to_dataset())
    left = [sum(len(np.atleast_2d(sample.output)) for sample in source.finish()) for source in sources]
    assert [n + source.n_identified for n, source in zip(left, sources, strict=True)] == [FEW] * 3


@COMPILED
def test_clipped_substeps_are_those_of_the_samples_seen(tmp_path):
    """Tanks that run over."""
    config = configured("system=cascaded_tanks", "duration=100samples", "operating_point.offset=6")
    counts = []
    for source in (source_of(config), source_of(config, Cache(tmp_path)), source_of(config, Cache(tmp_path))):
        seen = [source.n_seen for _ in next(source.segments()).samples]
        counts.append((seen[-1], source.simulation.record().n_clipped))
    assert counts[0] == counts[1] == counts[2]
    assert counts[0][1] > 0


def test_without_a_cache_nothing_is_wrapped():
    config = configured(*SHORT)
    source = source_of(config)
    assert type(prepare(config, source).settings.training) is MaximumAPosteriori
