"""Sources of samples, simulated and recorded: what is learned from, what judges, what is stored."""

import json

import numpy as np
import pytest
import xarray as xr
from running import PLAIN, configured, data_of, execute, phases, summary_of

from experiments import identification, sources
from experiments.identification import narx_of, source_of
from experiments.launch import Stopped
from experiments.sources import RecordedSource
from sysid import Narx, Recordings, make_record, store
from sysid.data.source import part

if PLAIN:
    pytest.skip("records are read and told apart alike without the compiler", allow_module_level=True)

SMALL = ("training.n_initial=12", "training.restarts=1", "budget=10", "figures=false")
LIVE = ("duration=80samples", "system=bouc_wen", "excitation.rms=20")


def csv_file(path, n, seed, gap=0.0):
    """Record of a known nonlinear system as a CSV file; returns u and y."""
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=n) + gap, np.zeros(n)
    for k in range(1, n):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 1]) + gap
    u, y = np.round(u, 6), np.round(y, 6)
    path.write_text("u,y\n" + "\n".join(f"{a:.6f},{b:.6f}" for a, b in zip(u, y, strict=True)) + "\n")
    return u, y


@pytest.fixture
def files(tmp_path):
    """Two estimation files of different length and level, a validation and a test file; and the overrides."""
    lengths = {"first": 40, "second": 31, "choose": 22, "judge": 25}
    signals = {n: csv_file(tmp_path / f"{n}.csv", k, i, gap=2.0 * i) for i, (n, k) in enumerate(lengths.items())}
    names = ("data=csv", "data.inputs=[u]", "data.outputs=[y]", "data.dt=0.5")
    estimation = f"data.estimation=[{tmp_path}/first.csv,{tmp_path}/second.csv]"
    return signals, (*SMALL, *names, estimation, f"data.test={tmp_path}/judge.csv")


LAGS = ("+narx.outputs.y=[1,3]", "+narx.inputs.u=[0,2]")
TWO = (*LAGS, "narx._target_=sysid.Narx", "~narx.max_order", "narx.target=y")


def naive_rows(signals, outputs=(1, 3), inputs=(0, 2)):
    """Regressors and changes of every record on its own, by loops."""
    regressors, changes = [], []
    for u, y in signals:
        for k in range(max(*outputs, *inputs), len(y)):
            regressors.append([*(y[k - lag] for lag in outputs), *(u[k - lag] for lag in inputs)])
            changes.append(y[k] - y[k - 1])
    return np.array(regressors), np.array(changes)


def test_no_lag_reaches_from_one_record_into_another(files, tmp_path):
    signals, overrides = files
    folder = execute(tmp_path / "run", *overrides, *TWO)
    rows, result = data_of(folder, "narx"), data_of(folder, "result")
    regressors, changes = naive_rows([signals[name] for name in ("first", "second", "judge")])
    np.testing.assert_array_equal(rows["regressor"], regressors)
    np.testing.assert_array_equal(rows["target"], changes)
    np.testing.assert_array_equal(result["target"], changes)
    numbers = [0] * 37 + [1] * 28 + [2] * 22
    np.testing.assert_array_equal(rows["record"], numbers)
    np.testing.assert_array_equal(result["record"], numbers)
    initial, online, after = phases(result)
    assert [initial.sum(), online.sum(), after.sum()] == [12, 37 + 28 - 12, 22]
    assert np.flatnonzero(after).tolist() == list(range(65, 87))
    np.testing.assert_allclose(result["time"][:40], [*(0.5 * np.arange(3, 40)), *(0.5 * np.arange(3, 6))])


def test_the_trajectory_has_all_records_behind_each_other(files, tmp_path):
    signals, overrides = files
    folder = execute(tmp_path / "run", *overrides, *TWO)
    trajectory = store.read(folder / "trajectory.nc", kind="trajectory")
    used = [signals[name] for name in ("first", "second", "judge")]
    for column, name in enumerate("uy"):
        np.testing.assert_array_equal(trajectory[name], np.concatenate([pair[column] for pair in used]))
    np.testing.assert_array_equal(trajectory["record"], np.repeat([0, 1, 2], [40, 31, 25]))
    np.testing.assert_array_equal(trajectory["part"], np.repeat([0, 0, 1], [40, 31, 25]))
    assert trajectory["part"].attrs["flag_meanings"] == "identified validation"
    assert (json.loads(trajectory.attrs["inputs"]), json.loads(trajectory.attrs["outputs"])) == (["u"], ["y"])


def test_test_records_judge_and_without_them_the_validation_records(files, tmp_path):
    signals, overrides = files
    both = execute(tmp_path / "both", *overrides, *TWO, f"data.validation={tmp_path}/choose.csv")
    without = [o for o in overrides if not o.startswith("data.test")]
    instead = execute(tmp_path / "instead", *without, *TWO, f"data.validation={tmp_path}/choose.csv")
    for folder, judge in ((both, "judge"), (instead, "choose")):
        result = data_of(folder, "result")
        after = phases(result)[2]
        np.testing.assert_array_equal(result["target"][after], naive_rows([signals[judge]])[1])
        assert summary_of(folder)["n_validation"] == len(signals[judge][1]) - 3
    alone = summary_of(execute(tmp_path / "alone", *without, *TWO))
    assert (alone["n_validation"], alone["smse"], alone["n_seen"]) == (0, None, 37 + 28 - 12)


@pytest.mark.parametrize("window", [0, 2, 9])
def test_the_initialisation_window_of_a_test_is_not_judged(window, files, tmp_path):
    """Rows of its samples are stored with the lag data, but neither predicted nor counted."""
    signals, overrides = files
    folder = execute(tmp_path / "run", *overrides, *TWO, f"data.initialisation_window={window}")
    result, rows = data_of(folder, "result"), data_of(folder, "narx")
    kept = naive_rows([signals["judge"]])[1][max(window - 3, 0) :]
    np.testing.assert_array_equal(result["target"][phases(result)[2]], kept)
    assert summary_of(folder)["n_validation"] == len(kept) == 25 - max(window, 3)
    assert rows.sizes["sample"] == 37 + 28 + 22
    assert (data_of(folder, "trajectory")["part"] == 1).sum() == 25


def test_a_source_of_records_counts_what_it_has_delivered():
    u, y = np.arange(6.0), np.arange(6.0) ** 2
    record = make_record({"u": u, "y": y, "more": -u}, name="r", sampling_time=0.5)
    source = RecordedSource(Recordings("r", ("u",), ("y",), (record, part(record, 0, 3)), test=(part(record, 2),)))
    assert (source.n_samples, source.n_identified, source.n_seen) == (13, 9, 0)
    seen = []
    for number, samples in enumerate(source.segments()):
        seen += [(number, s.output.tolist(), s.input.tolist()) for s in samples]
    k = np.arange(6.0)[:, None]
    assert seen == [(0, (k * k).tolist(), k.tolist()), (1, (k * k)[:3].tolist(), k[:3].tolist())]
    assert source.n_seen == 9
    assert [s.input.ravel().tolist() for s in source.finish()] == [[2.0, 3.0, 4.0, 5.0]]
    assert source.n_seen == 13
    source.restart()
    assert source.n_seen == 0
    assert next(next(source.segments())).output.tolist() == (k * k).tolist()


def test_a_live_source_is_computed_when_asked_for():
    source = source_of(configured(*LIVE, "identified=0.25"))
    assert (source.n_samples, source.n_identified, source.n_seen) == (80, 20, 0)
    (segment,) = source.segments()
    samples = [next(segment) for _ in range(5)]
    assert source.n_seen == 5
    assert len(list(segment)) == 15
    assert len(list(source.finish())) == 60
    assert [s.time for s in samples] == [source.plant.system.dt * k for k in range(5)]
    number, time = np.zeros(80, dtype=int), source.plant.system.dt * np.arange(80)
    np.testing.assert_array_equal(source.is_validation(number, time), np.arange(80) >= 20)
    np.testing.assert_array_equal(source.is_judged(number, time), np.arange(80) >= 20)


def shortened(monkeypatch, n):
    """Let recorded runs see only the first n samples of every record."""
    original = sources.build

    class Short:
        def __init__(self, data):
            self.data = data

        def load(self):
            whole = self.data.load()
            roles = ("estimation", "validation", "test")
            cut = {r: tuple(part(x, 0, min(n, x.sizes["time"])) for x in getattr(whole, r)) for r in roles}
            return Recordings(whole.name, whole.inputs, whole.outputs, **cut)

    monkeypatch.setattr(sources, "build", lambda config, group: Short(original(config, group)))


SETS = {  # records; those to learn from; features; samples of a test that are not judged
    "cascaded_tanks": (2, 1, 4, 50),
    "bouc_wen": (2, 1, 6, 0),
    "silverbox": (None, None, None, 50),
    "boston": (2, 1, 13, 0),
    "concrete": (2, 1, 8, 0),
}


@pytest.mark.parametrize("name", SETS)
def test_published_records_are_identified(name, shared_data, monkeypatch, tmp_path):
    shortened(monkeypatch, 250)
    options = (f"data={name}", f"data.path={shared_data}", *(("narx.max_order=2",) if name == "silverbox" else ()))
    config = configured(*options)
    source = source_of(config)
    folder = execute(tmp_path, *SMALL, *options)
    summary, trajectory, rows = (f(folder) for f in (summary_of, lambda f: data_of(f, "trajectory"), rows_of))
    n_records, n_learned, n_features, window = SETS[name]
    assert summary["partial"] is False
    assert trajectory.sizes["time"] == source.n_samples
    if n_records:
        assert int(trajectory["record"].max()) + 1 == n_records
        assert rows.sizes["feature"] == n_features
        assert (trajectory["part"] == 0).sum() == sum(trajectory["record"].values < n_learned)
    tests = [record.sizes["time"] for record in source.records()][n_learned or 1 :]
    max_lag = int(rows["lag"].max())
    judged = sum(length - max(window, max_lag) for length in tests)
    assert summary["n_validation"] == judged
    assert summary["n_seen"] + summary["n_initial"] == source.n_identified - (n_learned or 1) * max_lag


def rows_of(folder):
    return data_of(folder, "narx")


def test_static_data_have_rows_without_time(shared_data, tmp_path):
    folder = execute(tmp_path, *SMALL, "data=concrete", f"data.path={shared_data}", "data.n_estimation=60")
    rows, trajectory, summary = rows_of(folder), data_of(folder, "trajectory"), summary_of(folder)
    assert trajectory["time"].attrs["units"] == rows["time"].attrs["units"] == "1"
    assert data_of(folder, "result")["time"].attrs["units"] == "1"
    assert trajectory.attrs["static"] == 1
    assert set(rows["lag"].values) == {0}
    np.testing.assert_array_equal(rows["target"], trajectory["strength"])
    inputs = json.loads(trajectory.attrs["inputs"])
    np.testing.assert_array_equal(rows["regressor"], np.stack([trajectory[name] for name in inputs], axis=1))
    assert summary["smse_no_change"] is None, "rows have no order, and so no change"
    assert (summary["target_unit"], summary["n_initial"] + summary["n_seen"]) == ("MPa", 60)


def test_a_stored_trajectory_gives_the_rows_of_the_live_run(tmp_path):
    live = execute(tmp_path / "live", *SMALL, *LIVE, "identified=0.5")
    path = f"data.path={live}/trajectory.nc"
    again = execute(tmp_path / "again", *SMALL, "data=stored", path, "data.split=[0.5,0,0.5]", "narx=bouc_wen")
    first, second = rows_of(live), rows_of(again)
    assert first["feature"].values.tolist() == second["feature"].values.tolist()
    head = int((second["record"] == 0).sum())
    for name in ("regressor", "target", "time"):
        np.testing.assert_array_equal(second[name][:head], first[name][:head])
        np.testing.assert_array_equal(second[name][head:], first[name][-(second.sizes["sample"] - head) :])
    assert head + 3 == 40, "three lags, forty samples to learn from"
    learned = [data_of(folder, "result").isel(sample=slice(0, head)) for folder in (live, again)]
    for name in ("mean", "variance", "slot"):
        np.testing.assert_array_equal(learned[1][name], learned[0][name])


def test_a_stored_benchmark_keeps_its_own_parts(tmp_path):
    rng = np.random.default_rng(0)
    records = [
        make_record(
            {"u": rng.normal(size=n), "y": rng.normal(size=n)}, name=str(n), sampling_time=0.1, units={"y": "V"}
        )
        for n in (30, 25, 20)
    ]
    recordings = Recordings("made", ("u",), ("y",), tuple(records[:2]), test=(records[2],))
    store.write_groups(recordings.to_groups(), tmp_path / "benchmark.nc", kind="benchmark")
    path = ("data=stored", f"data.path={tmp_path}/benchmark.nc")
    folder = execute(tmp_path / "run", *SMALL, *path, *TWO)
    found = rows_of(folder)
    signals = [(record["u"].values, record["y"].values) for record in records]
    regressors, changes = naive_rows(signals)
    np.testing.assert_array_equal(found["regressor"], regressors)
    np.testing.assert_array_equal(found["target"], changes)
    assert summary_of(folder)["system"] == "made"
    assert summary_of(folder)["target_unit"] == "V"


def interrupted(monkeypatch, n, error):
    """End a recorded run after n samples."""
    monkeypatch.setattr(sources, "BLOCK", 1)
    original = RecordedSource._samples

    def samples(self, record):
        for sample in original(self, record):
            if self.n_seen > n:
                raise error
            yield sample

    monkeypatch.setattr(RecordedSource, "_samples", samples)


@pytest.mark.parametrize(("n", "learned"), [(8, 0), (30, 15), (60, 42), (80, 53)])
def test_an_interrupted_recorded_run_keeps_what_it_has(n, learned, files, monkeypatch, tmp_path):
    _, overrides = files
    interrupted(monkeypatch, n, KeyboardInterrupt())
    with pytest.raises(Stopped) as caught:
        execute(tmp_path / "run", *overrides, *TWO, "figures=true")
    assert caught.value.exit_code == 130
    folder = tmp_path / "run"
    summary, result = summary_of(folder), data_of(folder, "result")
    initial, online, after = phases(result)
    assert summary["partial"] is True
    assert (int(online.sum()), summary["n_seen"]) == (learned, learned)
    assert initial.sum() == min(12, n - 3)
    assert after.sum() == (22 if learned else 0), "the test judges what was learned; without a model nothing"
    assert (folder / "model.nc").exists() == bool(learned)
    assert data_of(folder, "trajectory").attrs["partial"] == 1


def test_lags_that_need_more_samples_than_the_records_have_together(files, tmp_path):
    """Every record loses its own first samples to the lags."""
    _, overrides = files
    least = 37 + 28 - 1
    execute(tmp_path / "fits", *overrides, *TWO, f"training.n_initial={least}")
    with pytest.raises(ValueError, match=rf"has 65 samples with all their lags.*at least {least + 2}"):
        execute(tmp_path / "too many", *overrides, *TWO, f"training.n_initial={least + 1}")
    assert not list((tmp_path / "too many").iterdir())


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["narx=building"], ["record 0 has no signals", "zone_temperature", "'u'"]),
        (["narx.target=u"], ["target", "['y']", "'u'"]),
        (["data.estimation=[]"], ["estimation", "record"]),
        (["data.outputs=[z]"], ["z"]),
        (["data.dt=null"], ["dt"]),
        (["data.estimation=no.csv"], ["no.csv"]),
        (["+narx.nonsense=1"], ["nonsense"]),
        (["system=building"], ["record", "system, controller, weather", "data=simulated"]),
        (["controller=pi"], ["record", "controller"]),
        (["weather=synthetic"], ["record", "weather"]),
        (["noise.std=0.1"], ["record", "noise.std"]),
        (["noise.snr_db=20"], ["record", "noise.snr_db"]),
        (["excited=[u]"], ["record", "excited"]),
        (["+excitation@excitations.u=prbs"], ["record", "excitations.u"]),
    ],
    ids=lambda value: ",".join(value) if "=" in value[0] else "",
)
def test_what_does_not_fit_records_is_refused(overrides, words, files, tmp_path):
    _, own = files
    with pytest.raises((ValueError, OSError)) as caught:
        execute(tmp_path / "run", *own, *overrides)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert not list((tmp_path / "run").iterdir())


def test_a_set_without_an_estimation_record_says_so(shared_data, tmp_path):
    with pytest.raises(ValueError, match=r"bouc_wen has no estimation record.*user_made_estimation"):
        execute(tmp_path, "data=bouc_wen", f"data.path={shared_data}", "data.user_made_estimation=false")


def test_units_may_be_missing(files, tmp_path, caplog):
    """Variances of dimensionless targets are dimensionless, and no text ends in an empty unit."""
    caplog.set_level("INFO")
    _, overrides = files
    folder = execute(tmp_path / "run", *overrides, *TWO, "figures=true")
    result, summary = data_of(folder, "result"), summary_of(folder)
    assert summary["target_unit"] in ("", "1")
    assert {result[name].attrs["units"] for name in ("mean", "variance")} <= {"", "1"}
    (line,) = (r.getMessage() for r in caplog.records if r.getMessage().startswith("RMSE"))
    assert f"RMSE {summary['rmse']:.4g}" in line
    assert " ," not in line


def test_a_constant_target_has_no_smse_and_says_so(tmp_path, caplog):
    caplog.set_level("INFO")
    rng = np.random.default_rng(0)
    learn, judge = (
        make_record({"u": rng.normal(size=30), "y": y}, name="r", sampling_time=1.0)
        for y in (rng.normal(size=30), np.full(30, 2.0))
    )
    recordings = Recordings("flat", ("u",), ("y",), (learn,), test=(judge,))
    store.write_groups(recordings.to_groups(), tmp_path / "b.nc", kind="benchmark")
    folder = execute(tmp_path / "run", *SMALL, "data=stored", f"data.path={tmp_path}/b.nc", *TWO, "figures=true")
    summary = summary_of(folder)
    assert (summary["smse"], summary["smse_initial"]) == (None, None)
    assert summary["n_validation"] == 27
    assert any("constant" in warning and "SMSE" in warning for warning in summary["warnings"])
    assert not any("nan" in warning for warning in summary["warnings"])
    assert "nan" not in caplog.text
    assert f"{summary['rmse']:.4g}" in caplog.text


def test_figures_and_sources_of_one_record_need_no_concatenation(monkeypatch):
    monkeypatch.setattr(xr, "concat", None)
    source = source_of(configured(*LIVE))
    list(next(source.segments()))
    assert source.trajectory().sizes["time"] == 40


def test_lags_given_are_the_lags_used():
    config = configured(*LIVE, "narx=bouc_wen", "narx.outputs.displacement=2")
    assert narx_of(config, source_of(config)) == Narx({"displacement": 2}, {"force": 3})
    assert identification.source_of is source_of
