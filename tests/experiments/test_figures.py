"""Figures: their clock, what they show in detail, and that every kind of source can be drawn."""

from io import BytesIO

import numpy as np
import pytest
import xarray as xr
from matplotlib.image import imread
from running import PLAIN, data_of, execute

from experiments.plots import identification as figures
from experiments.plots.clock import detail, on_clock_of, with_clock
from experiments.plots.signals import signals
from experiments.plots.style import label_of, png
from sysid import Recordings, make_record, store
from sysid.model.result import INITIAL, ONLINE, VALIDATION

if PLAIN:
    pytest.skip("figures are drawn alike without the compiler", allow_module_level=True)

DAY = 86400.0  # s
UNIT = {"day": DAY, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}


def timed(time, units="s", **coords):
    return xr.Dataset(coords={"time": ("time", np.asarray(time, dtype=float), {"units": units}), **coords})


def shown(time, units="s"):
    return with_clock(timed(time, units), "time")["shown"]


@pytest.mark.parametrize(
    ("span", "unit"),
    [
        (365 * DAY, "day"),
        (3 * DAY, "day"),
        (3 * DAY - 1, "h"),
        (3 * 3600, "h"),
        (3 * 3600 - 1, "min"),
        (180, "min"),
        (179, "s"),
        (3, "s"),
        (2.9, "ms"),
        (1e-5, "ms"),
    ],
)
def test_time_is_shown_in_the_largest_unit_that_it_spans_three_times(span, unit):
    time = np.linspace(50.0, 50.0 + span, 11)
    clock = shown(time)
    assert clock.attrs == {"unit": unit, "label": "day" if unit == "day" else f"time [{unit}]"}
    np.testing.assert_allclose(clock.values * UNIT[unit], time)


@pytest.mark.parametrize(
    ("time", "units"), [([0, 1, 2, 0, 1], "s"), ([0, 1, 1, 2], "s"), ([0, 1, 2], "1"), ([7.0], "s"), ([], "s")]
)
def test_records_without_a_common_time_show_the_number_of_the_sample(time, units):
    clock = shown(time, units)
    assert clock.attrs == {"unit": "sample", "label": "sample"}
    np.testing.assert_array_equal(clock.values, np.arange(len(time)))


@pytest.mark.parametrize("days", [2, 3, 7])
@pytest.mark.parametrize("length", [3, 4, 8, 10, 11, 14, 30, 365])
def test_detail_of_days_is_near_the_end(length, days):
    """Whole days, as many as asked for, within the last days plus a week; a week begins where there is room."""
    clock = shown(900.0 * np.arange(96 * length + 1))
    part = clock.values[detail(clock, float(days))]
    assert len(part) == min(96 * days, len(clock)) or (days >= length and len(part) >= 96 * length)
    assert part[0] == int(part[0])
    assert part[-1] <= length
    assert length - part[-1] < 7.1
    if length > days + 7:
        assert part[0] % 7 == 0
    else:
        assert length - part[-1] < 1.1, "no room to choose: the end"


@pytest.mark.parametrize("dt", [DAY, 5 * DAY, 7 * DAY])
def test_detail_of_sparse_samples_is_the_last_of_them(dt):
    clock = shown(dt * np.arange(400))
    part = clock.values[detail(clock, 2.0)]
    assert len(part) == 200
    assert part[-1] == clock.values[-1]


@pytest.mark.parametrize("n", [1, 50, 200, 5000])
def test_detail_of_other_units_is_the_last_hundred_per_day(n):
    clock = shown(0.01 * np.arange(n))
    rows = np.arange(n)[detail(clock, 2.0)]
    np.testing.assert_array_equal(rows, np.arange(n)[-200:])


def test_a_result_has_the_clock_of_its_trajectory():
    """Rows without all their lags are missing in a result, also inside; the numbers stay those of the samples."""
    number, time = np.repeat([0, 1, 4], [6, 5, 7]), np.concatenate([np.arange(6), np.arange(5), np.arange(7)]) * 0.5
    trajectory = with_clock(timed(time, record=("time", number)), "time")
    rows = np.array([2, 3, 5, 8, 9, 10, 14, 17])
    coords = {"time": ("sample", time[rows]), "record": ("sample", number[rows])}
    found = on_clock_of(trajectory, xr.Dataset(coords=coords))["shown"]
    np.testing.assert_array_equal(found, rows)
    assert found.attrs == trajectory["shown"].attrs


@pytest.mark.parametrize(
    ("attributes", "label"),
    [
        ({"long_name": "level", "units": "V"}, "level [V]"),
        ({"long_name": "level", "units": ""}, "level [1]"),
        ({"long_name": "level"}, "level [1]"),
        ({}, "y [1]"),
        (
            {"long_name": "a name that is far too long for the axis", "units": "m"},
            "a name that\nis far too\nlong for the\naxis [m]",
        ),
    ],
)
def test_labels_have_a_unit(attributes, label):
    assert label_of(xr.DataArray([1.0], dims="time", name="y", attrs=attributes), 12) == label


def size(figure):
    """Pixels that are not white, of a figure drawn without a warning."""
    picture = imread(BytesIO(png(figure)), format="png")
    return int(np.any(picture[..., :3] < 0.95, axis=-1).sum())


SMALL = ("training.n_initial=20", "training.restarts=1", "budget=15", "acceptance=none", "figures=true")
N = 300
RUNS = {
    "days": ("duration=4d",),
    "hours": ("duration=1d",),
    "milliseconds": ("system=bouc_wen", f"duration={N}samples", "excitation.rms=20", "narx=bouc_wen"),
    "no input": ("system=van_der_pol", f"duration={N}samples", "noise.std=0.05"),
    "set-point": ("system=cascaded_tanks", "controller=level_pi", f"duration={N}samples"),
    "at rest": ("system=bouc_wen", "excitation=none", f"duration={N}samples", "narx=bouc_wen"),
    "all identified": ("system=bouc_wen", f"duration={N}samples", "identified=1", "narx=bouc_wen"),
}


@pytest.mark.parametrize("run", RUNS)
def test_every_simulation_is_drawn(run, tmp_path):
    folder = execute(tmp_path, *SMALL, *RUNS[run])
    first = "temperatures" if run in ("days", "hours") else "signals"
    assert {path.stem for path in folder.glob("*.png")} == {first, "prediction", "dictionary", "error"}
    for path in folder.glob("*.png"):
        assert path.stat().st_size > 8_000
        assert imread(path).shape[1] == 1260, "nine inches wide"


def test_rows_of_a_table_are_drawn_as_points(shared_data, tmp_path):
    folder = execute(tmp_path, *SMALL, "data=boston", f"data.path={shared_data}", "data.n_estimation=120")
    drawn = figures.drawings(data_of(folder, "trajectory"), data_of(folder, "result"), 0.1)
    table = drawn["signals"]()
    assert len(table.axes) == 12, "six signals, each as a whole and in detail"
    assert "6 of 14 signals" in table.axes[1].get_title()
    assert all(line.get_linestyle() == "None" for ax in table.axes for line in ax.lines)
    series = drawn["prediction"]().axes[0]
    assert "step ahead" not in series.get_title(loc="left")
    assert all(line.get_linestyle() == "None" for line in series.lines)
    assert "no change" not in " ".join(line.get_label() for line in drawn["error"]().axes[0].lines)
    assert all(size(draw()) > 5_000 for draw in drawn.values())


def test_several_records_are_drawn_over_their_samples(tmp_path):
    rng = np.random.default_rng(0)
    records = []
    for n in (60, 50, 40):
        u, y = rng.normal(size=n), np.zeros(n)
        for k in range(1, n):
            y[k] = 0.6 * y[k - 1] + u[k - 1]
        records.append(make_record({"u": u, "y": y}, name="r", sampling_time=1.0))
    recordings = Recordings("three", ("u",), ("y",), tuple(records[:2]), test=(records[2],))
    store.write_groups(recordings.to_groups(), tmp_path / "b.nc", kind="benchmark")
    folder = execute(tmp_path / "run", *SMALL, "data=stored", f"data.path={tmp_path}/b.nc", "narx.max_order=2")
    drawn = figures.drawings(data_of(folder, "trajectory"), data_of(folder, "result"), 0.1)
    whole, close = drawn["signals"]().axes[:2]
    assert whole.get_xlim() == close.get_xlim() == (0, 149)
    np.testing.assert_array_equal(whole.lines[0].get_ydata(), np.concatenate([record["y"] for record in records]))
    series = drawn["prediction"]().axes[0]
    measured = next(line for line in series.lines if line.get_label() == "measured")
    lag = int(data_of(folder, "narx")["lag"].max())
    np.testing.assert_array_equal(measured.get_xdata(), np.arange(110 + lag, 150))
    np.testing.assert_allclose(measured.get_ydata(), np.diff(records[2]["y"])[lag - 1 :])
    assert series.get_xlabel() == "sample"


def result_of(phase, target, mean, variance):
    n = len(phase)
    columns = {"target": target, "mean": mean, "variance": variance, "unchanged": np.zeros(n), "phase": phase}
    whole = {
        "inserted": np.ones(n, bool),
        "accepted": np.ones(n, bool),
        "slot": np.arange(n) % 4,
        "n_points": np.full(n, 4),
    }
    return xr.Dataset(
        {name: ("sample", np.asarray(column)) for name, column in (columns | whole).items()},
        coords={"time": ("sample", np.arange(n, dtype=float)), "record": ("sample", np.zeros(n, int))},
    )


def trajectory_of(n, **attributes):
    number = np.arange(n, dtype=float)
    return xr.Dataset(
        {"y": ("time", np.sin(number), {"units": "V", "long_name": "output"}), "u": ("time", np.cos(number))},
        coords={
            "time": ("time", number, {"units": "s"}),
            "record": ("time", np.zeros(n, int)),
            "part": ("time", (number >= n // 2).astype(int)),
        },
        attrs={"inputs": '["u"]', "outputs": '["y"]', **attributes},
    )


def test_the_band_holds_95_percent_of_a_true_model():
    """Band and title against a normal distribution whose variances are known."""
    rng, n = np.random.default_rng(0), 4000
    variance = rng.uniform(0.1, 0.5, n)
    target = rng.normal(size=n) * np.sqrt(variance + 0.2)
    result = result_of(np.full(n, VALIDATION), target, np.zeros(n), variance)
    series, below = figures.drawings(trajectory_of(n), result, 0.2)["prediction"]().axes
    inside = float(below.get_title().partition(": ")[2].partition(" %")[0])
    assert inside == pytest.approx(95, abs=1.5)
    corners = series.collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(corners[:, 1].max(), 1.96 * np.sqrt(variance[-200:].max() + 0.2), rtol=1e-4)


def test_the_prediction_of_new_data_is_preferred():
    phase = np.repeat([INITIAL, ONLINE, VALIDATION], 20)
    result = result_of(phase, np.arange(60.0), np.zeros(60), np.ones(60))
    for stop, title, first in ((60, "new data", 40), (40, "while learning", 20)):
        series = figures.drawings(trajectory_of(60), result.isel(sample=slice(0, stop)), 0.1)["prediction"]().axes[0]
        assert title in series.get_title(loc="left")
        assert series.lines[0].get_xdata()[0] == first


@pytest.mark.parametrize("stop", [1, 20, 21, 22, 41])
def test_figures_of_runs_that_ended_early_are_drawn(stop):
    phase = np.repeat([INITIAL, ONLINE, VALIDATION], 20)
    result = result_of(np.append(phase, VALIDATION), np.arange(61.0), np.zeros(61), np.ones(61))
    drawn = figures.drawings(trajectory_of(stop), result.isel(sample=slice(0, stop)), 0.1)
    assert set(drawn) == {"signals", "prediction", "dictionary", "error"}
    assert all(size(draw()) > 2_000 for draw in drawn.values())


def test_the_error_is_the_root_mean_square_of_each_bin():
    n = 400
    error = np.linspace(1.0, 3.0, n)
    result = result_of(np.full(n, VALIDATION), error, np.zeros(n), np.full(n, 0.25))
    lines = {
        line.get_label(): line for line in figures.drawings(trajectory_of(n), result, 0.75)["error"]().axes[0].lines
    }
    x, rms = (np.asarray(values) for values in lines["online GP"].get_data())
    width = x[1] - x[0]
    for middle, value in zip(x, rms, strict=True):
        inside = (np.arange(n) / 60 >= middle - width / 2) & (np.arange(n) / 60 < middle + width / 2)
        assert value == pytest.approx(np.sqrt(np.mean(error[inside] ** 2)), rel=1e-6)
    np.testing.assert_allclose(lines["predicted by the GP"].get_ydata(), 1.0)
    np.testing.assert_allclose(lines["predicted, without the noise"].get_ydata(), 0.5)


def test_held_inputs_are_drawn_as_steps_and_others_as_lines():
    for interpolation, style in (("held", "steps-post"), ("linear", "default"), (None, "default")):
        attributes = {} if interpolation is None else {"interpolation": interpolation}
        trajectory = with_clock(trajectory_of(50, **attributes), "time")
        output, _, input, _ = signals(trajectory).axes
        assert output.lines[0].get_drawstyle() == "default"
        assert input.lines[0].get_drawstyle() == style
