"""Times of tables: which column, which unit, which sampling time, and whether `dt` agrees."""

import warnings

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from sysid import CsvFiles, Fixed, Narx, forecast, identify

N = 120
K = np.arange(N)
U = np.sin(0.3 * np.arange(N))
Y = np.cos(0.2 * np.arange(N))
NARX = Narx({"y": 1}, {"u": 1})
FIXED = Fixed(variance=1.0, length_scales=[1.0, 1.0], noise_variance=0.01)


@pytest.fixture
def load(tmp_path):
    """Return a function that writes rows below a header and reads them without a stated `dt`."""

    def load_csv(header, row, n=N, **options):
        lines = [header, *(row(k) for k in range(n))]
        path = tmp_path / "run.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        settings = {"estimation": str(path), "inputs": ["u"], "outputs": ["y"]}
        return CsvFiles(**(settings | options)).load()

    return load_csv


def clock_row(form, dt, separator=","):
    """Return a function that writes row k with the time k dt in this form."""
    return lambda k: separator.join([form(k * dt), f"{U[k % N]:.6f}", f"{Y[k % N]:.6f}"])


def minutes(t):
    """Return a time as Excel shows it below an hour; the minutes begin again after an hour."""
    return f"{int(t // 60) % 60:02d}:{t % 60:04.1f}"


@pytest.mark.parametrize(
    ("form", "dt"),
    [
        pytest.param(minutes, 0.5, id="mm:ss.0"),
        pytest.param(lambda t: minutes(t + 3590), 0.2, id="mm:ss.0 across an hour"),
        pytest.param(lambda t: minutes(t + 100).replace(".", ","), 0.5, id="mm:ss,0"),
        pytest.param(lambda t: f"{int(t) // 60}:{t % 60:06.3f}", 0.25, id="m:ss.000"),
        pytest.param(lambda t: f"0:{int(t) // 60:02d}:{t % 60:06.3f}", 0.04, id="h:mm:ss.000"),
        pytest.param(
            lambda t: str(pd.Timestamp("2024-01-01T23:59:50") + pd.Timedelta(t, "s"))[11:21],
            0.5,
            id="midnight",
        ),
        pytest.param(lambda t: f"{int(t) // 3600:02d}:{int(t) // 60 % 60:02d}", 120, id="hh:mm"),
        pytest.param(
            lambda t: f"2024-02-01 00:{int(t) // 60:02d}:{t % 60:06.3f}".replace(".", ","),
            0.05,
            id="comma before milliseconds",
        ),
        pytest.param(
            lambda t: (
                f"1.2.2024 0:{int(t) // 60:02d}:{t % 60:04.1f}".replace(".0", ",0")
                if t % 1 == 0
                else f"1.2.2024 0:{int(t) // 60:02d}:{int(t % 60):02d},{round(t % 1 * 10)}"
            ),
            0.5,
            id="German with a comma",
        ),
        pytest.param(lambda t: str(pd.Timedelta(t, "s")), 0.5, id="durations of pandas"),
    ],
)
def test_clocks_of_other_programs_give_the_sampling_time(load, form, dt):
    loaded = load("time;u;y", clock_row(form, dt, ";"))
    assert loaded.sampling_time == pytest.approx(dt, rel=1e-9)
    (record,) = loaded.estimation
    np.testing.assert_allclose(record.time - record.time[0], dt * np.arange(N), atol=1e-6)


def test_hours_beyond_a_day_may_be_minutes(load):
    with pytest.raises(ValueError, match=r"hours and minutes, or minutes and seconds"):
        load("time,u,y", clock_row(lambda t: f"{int(t) // 60}:{int(t) % 60:02d}", 20.0))


@pytest.mark.parametrize(
    ("header", "unit", "options"),
    [
        pytest.param("Time(ms)", 1e-3, {}, id="no blank"),
        pytest.param("t(us)", 1e-6, {"time": "t(us)"}, id="named with its unit"),
        pytest.param("Timestamp [min]", 60.0, {}, id="square brackets"),
        pytest.param("time_ms", 1e-3, {}, id="suffix"),
        pytest.param("T [s]", 1.0, {}, id="T with a unit of time"),
        pytest.param("when", 1e-3, {"time": "when", "time_format": "ms"}, id="stated"),
    ],
)
def test_the_unit_of_the_times_is_read(load, header, unit, options):
    loaded = load(f"{header},u,y", clock_row(lambda t: f"{t:.0f}", 5.0), **options)
    assert loaded.sampling_time == pytest.approx(5.0 * unit, rel=1e-12)


@pytest.mark.parametrize(
    ("header", "options", "message"),
    [
        pytest.param("time [ms]", {"time_format": "s"}, "the file states 'ms'", id="two units"),
        pytest.param("time", {"time_format": "%H:%M"}, "neither a number nor", id="no stamps"),
        pytest.param("time", {"time_format": "weeks"}, "state the unit", id="unknown"),
    ],
)
def test_units_that_contradict_the_file_are_refused(load, header, options, message):
    with pytest.raises(ValueError, match=message):
        load(f"{header},u,y", clock_row(lambda t: f"{t:.0f}", 5.0), **options)


def test_milliseconds_since_1970_are_not_seconds(load):
    row = clock_row(lambda t: f"{1.7e12 + t:.0f}", 10.0)
    with pytest.raises(ValueError, match=r"are no seconds.*time_format=ms"):
        load("timestamp,u,y", row)
    assert load("timestamp,u,y", row, time_format="ms").sampling_time == 0.01


@pytest.mark.parametrize("dt", [0.1, 1.0, 60.0, 900.0])
@pytest.mark.parametrize("digits", [8, 10])
@pytest.mark.parametrize("start", [45321.5, 739283.5])
def test_days_of_excel_and_matlab_are_not_seconds(load, dt, digits, start):
    row = clock_row(lambda t: f"{start + t / 86400:.{digits}f}", dt)
    with pytest.raises(ValueError, match=r"seem to be days.*time_format=d"):
        load("time,u,y", row)
    assert load("time,u,y", row, time_format="d").sampling_time == pytest.approx(dt, rel=1e-3)


@pytest.mark.parametrize("dt", [0.1, 0.25, 0.001, 0.4])
@pytest.mark.parametrize("start", [45321.5, 739283.5])
def test_seconds_of_a_day_are_seconds(load, dt, start):
    loaded = load("time,u,y", clock_row(lambda t: f"{start + t:.4f}", dt))
    assert loaded.sampling_time == dt


@pytest.mark.parametrize(
    ("header", "first"),
    [
        pytest.param("T,time", lambda k: f"{20 + 0.01 * k:.2f}", id="temperature"),
        pytest.param("Date,Time", lambda k: "2024-05-01", id="date"),
        pytest.param("t,timestamp", lambda k: f"{k % 7}", id="another t"),
    ],
)
def test_the_best_column_of_times_is_taken_and_named(load, header, first):
    loaded = load(f"{header},u,y", lambda k: f"{first(k)},{0.1 * k:.1f},{U[k]},{Y[k]}")
    assert loaded.sampling_time == 0.1
    if not header.startswith("T,"):
        taken, left = header.split(",")[::-1]
        assert f"column {taken!r} is taken as the times, not {left!r}" in loaded.notes[0]


def test_a_temperature_alone_is_no_time(load):
    with pytest.raises(ValueError, match="sampling time is not known"):
        load("T,u,y", clock_row(lambda t: f"{20 + t:.2f}", 0.01))


@pytest.mark.parametrize("rate", [60, 30, 144, 75, 24])
@pytest.mark.parametrize("form", [lambda t: f"{t:.3f}", lambda t: f"{int(1000 * t) / 1000:.3f}"])
def test_stamps_rounded_to_milliseconds_give_the_rate(load, rate, form):
    loaded = load("time,u,y", clock_row(form, 1 / rate), n=600)
    assert loaded.sampling_time == pytest.approx(1 / rate, rel=2e-4)
    (note,) = loaded.notes
    assert "times are rounded to 0.001 s" in note or "times jitter" in note


@pytest.mark.parametrize(
    ("form", "dt", "options"),
    [
        pytest.param(lambda t: f"{t:.3f}", 1 / 400, {}, id="400 Hz in milliseconds"),
        pytest.param(lambda t: f"{t:.0f}", 0.1, {"dt": 0.1}, id="10 Hz in seconds"),
        pytest.param(lambda t: "2024-01-01", 0.1, {"dt": 0.1}, id="a date"),
    ],
)
def test_rounded_stamps_stay_one_record_if_gaps_are_skipped(load, form, dt, options):
    row = clock_row(form, dt)

    def row_with_a_hole(k):
        return row(k) if k != 50 else row(k).rpartition(",")[0] + ","

    (record,) = load("time,u,y", row_with_a_hole, on_missing="skip", **options).estimation
    assert record.sizes["time"] == N
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(record.y)), [50])
    assert record.attrs["sampling_time"] == pytest.approx(dt, rel=1e-3)


def test_missing_rows_do_not_look_like_rounded_stamps(load):
    kept = np.delete(np.arange(N + 20), [7, 20, 31, 55, 78, 99, 120])
    with pytest.raises(ValueError, match=r"the step of time is 0\.2 s"):
        load("time,u,y", lambda k: f"{0.1 * kept[k]:.1f},1,2")


TABLE = pd.DataFrame({"time": 0.1 * np.arange(N), "u": U, "y": Y})
STAMPS = pd.date_range("2024-03-01", periods=N, freq="100ms")
SOURCES = {
    "column": TABLE,
    "column of stamps": TABLE.assign(time=STAMPS),
    "index of stamps": TABLE.drop(columns="time").set_index(STAMPS),
    "index of times": TABLE.set_index("time"),
    "data set": xr.Dataset({"u": ("time", U), "y": ("time", Y)}, {"time": TABLE["time"].values}),
    "data set of stamps": xr.Dataset({"u": ("time", U), "y": ("time", Y)}, {"time": STAMPS}),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dt", [0.2, 0.05, 0.11])
def test_a_stated_sampling_time_must_be_that_of_the_times(source, dt):
    with pytest.raises(ValueError, match=r"0\.1 s"):
        identify(SOURCES[source], NARX, dt=dt, budget=10, identified=1)


def test_a_stated_sampling_time_must_be_that_of_a_file(load):
    row = clock_row(lambda t: f"{t:.1f}", 0.1)
    with pytest.raises(ValueError, match=r"0\.1 s where dt is 0\.5 s.*data\.time=none"):
        load("time,u,y", row, dt=0.5)
    assert load("time,u,y", row, dt=0.5, time="none").sampling_time == 0.5
    assert load("time,u,y", row, dt=0.1).sampling_time == 0.1


def test_stamps_too_coarse_to_differ_may_agree_with_the_sampling_time(load):
    row = clock_row(lambda t: f"2024-01-01 00:00:{int(t):02d}", 0.1)
    assert load("time,u,y", row, dt=0.1).sampling_time == 0.1
    with pytest.raises(ValueError, match="not later"):
        load("time,u,y", row, dt=0.3)


@pytest.fixture(scope="module")
def identified():
    """Return a model of a table with 0.1 s between its rows."""
    return identify(TABLE, NARX, budget=10, identified=1)


@pytest.mark.parametrize("method", ["predict", "validate"])
@pytest.mark.parametrize(
    "table",
    [
        pytest.param(TABLE.assign(time=0.5 * np.arange(N)), id="other rate"),
        pytest.param(TABLE.assign(time=TABLE.time + 50.0 * (np.arange(N) > 60)), id="gap"),
        pytest.param(TABLE.assign(time=TABLE.time.to_numpy()[::-1]), id="backwards"),
        pytest.param(TABLE.set_index("time").set_axis(0.5 * np.arange(N)), id="index"),
    ],
)
def test_a_model_predicts_only_times_of_its_rate(identified, method, table):
    if table.index.dtype.kind == "f":
        table = table.rename_axis("time")
    with pytest.raises(ValueError, match="time"):
        getattr(identified, method)(table)


@pytest.mark.parametrize(
    ("table", "options"),
    [
        pytest.param(TABLE.assign(time=K % 7), {"time": "none", "dt": 0.1}, id="no times"),
        pytest.param(TABLE.rename(columns={"time": "when"}), {"time": "when"}, id="named"),
        pytest.param(TABLE.assign(run=K // 60), {"experiment": "run"}, id="experiments"),
    ],
)
def test_new_data_are_read_as_those_that_were_learned(table, options):
    fixed = {"budget": 10, "training": FIXED, "identified": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = identify(table, NARX, **fixed, **options)
        assert len(found.predict(table)) >= N - 4
        assert len(found.predict(TABLE.drop(columns="time"))) >= N - 4
        if options.get("time") == "when":
            with pytest.raises(ValueError, match="time"):
                found.predict(table.assign(when=0.5 * K))


def test_a_model_predicts_a_record_of_a_real_clock_of_its_rate(identified, load):
    steps = 0.1 * (1 + 0.01 * np.random.default_rng(5).normal(size=N))
    times = np.cumsum(steps) + 3.0
    (record,) = load("time,u,y", lambda k: f"{times[k]:.6f},{U[k]},{Y[k]}").estimation
    assert record.attrs["sampling_time"] != 0.1
    assert len(forecast(identified.model, record, horizon=1, window=1).records) == 1
    with pytest.raises(ValueError, match=r"sampled every 0\.09.*one nominal rate"):
        forecast(identified.model, record.drop_attrs(), horizon=1, window=1)


@pytest.mark.parametrize("single", [np.float32, np.float64])
@pytest.mark.parametrize("start", [0.0, 100.0, 5000.0])
def test_times_in_single_precision_are_equal_steps(single, start):
    time = (start + 0.1 * np.arange(N)).astype(single)
    table = identify(TABLE.assign(time=time), NARX, budget=10, identified=1)
    dataset = xr.Dataset({"u": ("time", U), "y": ("time", Y)}, {"time": time})
    stored = identify(dataset, NARX, budget=10, identified=1)
    assert table.recordings.sampling_time == pytest.approx(0.1, rel=1e-5)
    assert stored.recordings.sampling_time == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize("kind", ["jitter", "rounded", "stamps"])
def test_times_of_a_data_set_that_jitter_are_of_one_rate(kind):
    jitter = 0.003 * np.sin(np.arange(N) ** 2)
    time = {
        "jitter": 0.1 * np.arange(N) + jitter,
        "rounded": np.round(np.arange(N) / 60, 3),
        "stamps": np.datetime64("2024-01-01")
        + (1e9 * (0.1 * np.arange(N) + jitter)).astype("m8[ns]"),
    }[kind]
    dataset = xr.Dataset({"u": ("time", U), "y": ("time", Y)}, {"time": time})
    with pytest.warns(UserWarning, match="record 0: times .* taken as equal steps"):
        found = identify(dataset, NARX, budget=10, identified=1)
    assert found.recordings.sampling_time == pytest.approx(1 / 60 if kind == "rounded" else 0.1)
    assert found.recordings.estimation[0].attrs["jitter"] > 0
    with pytest.raises(ValueError, match=r"record 0: dt=0\.3 does not fit its times"):
        identify(dataset, NARX, budget=10, identified=1, dt=0.3)


def test_records_with_time_stamps_need_seconds():
    with pytest.raises(TypeError, match="expected seconds"):
        NARX.dataset(SOURCES["data set of stamps"])


def jittering(n, dt, seed):
    """Return a table whose clock is off by 2 % from step to step."""
    steps = dt * (1 + 0.02 * np.random.default_rng(seed).normal(size=n))
    return pd.DataFrame({"time": np.cumsum(steps), "u": np.resize(U, n), "y": np.resize(Y, n)})


@pytest.fixture
def load_two(tmp_path):
    """Return a function that reads two tables from files."""

    def load_tables(*tables):
        paths = []
        for number, table in enumerate(tables):
            paths.append(str(tmp_path / f"{number}.csv"))
            table.to_csv(paths[-1], index=False)
        return CsvFiles(estimation=paths[0], test=paths[1:], inputs=["u"], outputs=["y"]).load()

    return load_tables


def test_two_real_clocks_of_one_rate_are_read_as_one(load_two):
    recordings = load_two(jittering(300, 0.04, 0), jittering(250, 0.04, 1))
    records = recordings.records
    assert len({record.attrs["sampling_time"] for record in records}) == 1
    assert recordings.sampling_time == pytest.approx(0.04, rel=5e-3)
    assert all(0.02 < record.attrs["jitter"] < 0.1 for record in records)
    assert all("one nominal rate" in note for note in recordings.notes)


def test_a_real_clock_takes_the_sampling_time_of_an_equal_one(load_two):
    equal = jittering(250, 0.04, 1).assign(time=0.04 * np.arange(250))
    assert load_two(jittering(300, 0.04, 0), equal).sampling_time == 0.04


def test_two_tables_of_real_clocks_are_read_by_identify():
    tables = [jittering(300, 0.04, 0), jittering(250, 0.04, 1)]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        found = identify(tables, NARX, budget=10, training=FIXED, identified=1)
    told = " ".join(str(warning.message) for warning in warned)
    assert "times jitter" in told
    assert "one nominal rate" in told
    assert len(found.recordings.estimation) == 2


@pytest.mark.filterwarnings("ignore:.*jitter")
def test_clocks_of_two_rates_are_refused(load_two):
    with pytest.raises(ValueError, match="one sampling time"):
        load_two(jittering(300, 0.04, 0), jittering(250, 0.05, 1))


def test_a_clock_that_starts_again_begins_a_record(load):
    lengths = (60, 80, 70)
    times = np.concatenate([2.0 + 0.5 * np.arange(n) for n in lengths])
    loaded = load("time,u,y", lambda k: f"{times[k]},{k},{-k}", n=sum(lengths))
    assert [record.sizes["time"] for record in loaded.estimation] == [*lengths]
    assert loaded.sampling_time == 0.5
    assert loaded.estimation[1].u.values[0] == 60
    assert "the clock starts again: 3 experiments" in loaded.notes[0]


@pytest.mark.parametrize(
    "times",
    [
        pytest.param([*range(50), *range(20, 70)], id="to another time"),
        pytest.param([*range(50), 0, 50, 51], id="one row"),
        pytest.param([*range(50)][::-1], id="backwards"),
    ],
)
def test_rows_out_of_order_are_no_experiments(load, times):
    with pytest.raises(ValueError, match=r"not later.*'?data\.experiment=run"):
        load("time,u,y", lambda k: f"{times[k]},1,2", n=len(times))


def test_a_column_names_the_experiments(load):
    runs = ["a"] * 60 + ["b"] * 70
    loaded = load(
        "run,u,y", lambda k: f"{runs[k]},{k},{-k}", n=130, experiment="run", dt=0.1, time=None
    )
    assert [record.sizes["time"] for record in loaded.estimation] == [60, 70]
    assert [record.attrs["name"] for record in loaded.estimation] == [
        "run.csv, experiment a",
        "run.csv, experiment b",
    ]


def test_experiments_that_are_mixed_are_refused(load):
    with pytest.raises(ValueError, match="was there before: sort"):
        load("run,u,y", lambda k: f"{k // 30 % 2},1,2", experiment="run", dt=0.1)


def test_unequal_steps_are_resampled_when_asked(load):
    times = np.cumsum(np.random.default_rng(3).uniform(0.03, 0.17, 400))
    signals = np.sin(times), np.cos(0.5 * times)
    rows = [f"{t:.6f},{u:.9f},{y:.9f}" for t, u, y in zip(times, *signals, strict=True)]
    with pytest.raises(ValueError, match=r"data\.resample=0\.1"):
        load("time,u,y", lambda k: rows[k], n=400)
    loaded = load("time,u,y", lambda k: rows[k], n=400, resample=0.1)
    (record,) = loaded.estimation
    assert loaded.sampling_time == 0.1
    np.testing.assert_allclose(record.u, np.sin(record.time), atol=0.005)
    assert "resampled from 400 samples" in loaded.notes[0]


def test_a_coarser_step_takes_means(load):
    """A sum of a slow and a fast sine keeps the slow one only."""
    t = 0.01 * np.arange(2000)
    fast = np.sin(2 * np.pi * t / 0.02)
    rows = [f"{k},{np.sin(s) + f},0" for k, s, f in zip(t, t, fast, strict=True)]
    (record,) = load("time,u,y", lambda k: rows[k], n=2000, resample=0.2).estimation
    np.testing.assert_allclose(record.u[1:-1], np.sin(record.time[1:-1]), atol=0.01)


def test_nothing_is_interpolated_across_a_gap(load):
    times = np.concatenate([0.1 * np.arange(100), 30 + 0.1 * np.arange(90)])
    with pytest.raises(ValueError, match=r"nothing to interpolate at .*on_missing=skip"):
        load("time,u,y", lambda k: f"{times[k]},1,2", n=190, resample=0.1)
    loaded = load("time,u,y", lambda k: f"{times[k]},1,2", n=190, resample=0.1, on_missing="skip")
    (record,) = loaded.estimation
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(record.u)), np.arange(100, 300))
    assert record.attrs["on_missing"] == "skip"
