"""Figures: their clock, what they show in detail, and that every kind of source can be drawn."""

from io import BytesIO

import numpy as np
import pytest
import xarray as xr
from matplotlib.image import imread
from running import execute

from experiments.plots import identification as figures
from experiments.plots.style import detail, with_clock
from sysid.model.result import INITIAL, ONLINE, VALIDATION

DAY = 86400.0  # s
UNIT = {"day": DAY, "h": 3600.0, "min": 60.0, "s": 1.0, "ms": 1e-3}


def shown(time, units="s"):
    coords = {"time": ("time", np.asarray(time, dtype=float), {"units": units})}
    return with_clock(xr.Dataset(coords=coords), "time")["shown"]


def test_time_is_shown_in_the_largest_unit_that_it_spans_three_times():
    ends = {3 * DAY: "day", 3 * DAY - 1: "h", 3 * 3600: "h", 3 * 3600 - 1: "min", 179: "s", 3: "s", 2.9: "ms"}
    for span, unit in ends.items():
        time = np.linspace(50.0, 50.0 + span, 11)
        clock = shown(time)
        assert clock.attrs == {"unit": unit, "label": "day" if unit == "day" else f"time [{unit}]"}
        np.testing.assert_allclose(clock.values * UNIT[unit], time)
    for time, units in (([0, 1, 2, 0, 1], "s"), ([0, 1, 1, 2], "s"), ([0, 1, 2], "1"), ([7.0], "s"), ([], "s")):
        clock = shown(time, units)  # no common time: the number of the sample
        assert clock.attrs == {"unit": "sample", "label": "sample"}
        np.testing.assert_array_equal(clock.values, np.arange(len(time)))


def test_detail_is_the_last_days_or_the_last_hundred_samples_per_day():
    for length, days in ((3, 2), (8, 2), (14, 7)):
        clock = shown(900.0 * np.arange(96 * length + 1))
        part = clock.values[detail(clock, float(days))]
        assert (part[-1], len(part)) == (length, 96 * days)
    sparse = shown(5 * DAY * np.arange(400))
    np.testing.assert_array_equal(sparse.values[detail(sparse, 2.0)], sparse.values[-200:])


SMALL = ("training.n_initial=20", "training.restarts=1", "budget=15", "acceptance=none", "figures=true")
RUNS = {  # `finished` shows days, test_readme.py a set-point
    "milliseconds": ("system=bouc_wen", "duration=300samples", "excitation.rms=20", "narx=bouc_wen"),
    "no input": ("system=van_der_pol", "duration=300samples", "identified=1"),
}


@pytest.mark.parametrize("run", RUNS)
def test_every_simulation_is_drawn(run, tmp_path):
    folder = execute(tmp_path, *SMALL, *RUNS[run])
    assert {path.stem for path in folder.glob("*.png")} == {"signals", "prediction", "dictionary", "error"}
    assert all(path.stat().st_size > 8_000 for path in folder.glob("*.png"))


def result_of(phase, target, mean, variance):
    n = len(phase)
    columns = {"target": target, "mean": mean, "variance": variance, "unchanged": np.zeros(n), "phase": phase}
    columns |= {
        "outlier": np.arange(n) % 9 == 8,
        "inserted": np.ones(n, bool),
        "accepted": np.ones(n, bool),
        "slot": np.arange(n) % 4,
    }
    columns |= {"n_points": np.full(n, 4)}
    return xr.Dataset(
        {name: ("sample", np.asarray(column)) for name, column in columns.items()},
        coords={"time": ("sample", np.arange(n, dtype=float)), "record": ("sample", np.zeros(n, int))},
    )


def trajectory_of(n, **attributes):
    number = np.arange(n, dtype=float)
    place = {"time": ("time", number, {"units": "s"}), "record": ("time", np.zeros(n, int))}
    return xr.Dataset(
        {"y": ("time", np.sin(number), {"units": "V", "long_name": "output"}), "u": ("time", np.cos(number))},
        coords=place | {"part": ("time", (number >= n // 2).astype(int))},
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


@pytest.mark.parametrize("stop", [1, 21, 60])
def test_runs_that_ended_early_are_drawn_and_new_data_are_preferred(stop):
    phase = np.repeat([INITIAL, ONLINE, VALIDATION], 20)
    result = result_of(phase, np.arange(60.0), np.zeros(60), np.ones(60)).isel(sample=slice(0, stop))
    drawn = figures.drawings(trajectory_of(stop), result, 0.1)
    assert set(drawn) == {"signals", "prediction", "dictionary", "error"}
    for draw in drawn.values():
        draw().savefig(picture := BytesIO(), dpi=30)
        picture.seek(0)
        assert int(np.any(imread(picture, format="png")[..., :3] < 0.95, axis=-1).sum()) > 100
    if stop > 30:  # the second half of the trajectory is shaded
        (shade,) = drawn["signals"]().axes[0].patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (stop // 2, stop - 1)
    title, first = ("new data", 40) if stop == 60 else ("while learning", 20)
    if stop >= 40:
        series = drawn["prediction"]().axes[0]
        assert title in series.get_title(loc="left")
        assert series.lines[0].get_xdata()[0] == first


def test_the_dictionary_shows_every_life():
    """Twenty initial samples in four places, each replaced every fourth of the twenty after."""
    phase = np.repeat([INITIAL, ONLINE], 20)
    result = result_of(phase, np.zeros(40), np.zeros(40), np.ones(40))
    result["slot"][:20] = -1
    lives = figures.drawings(trajectory_of(40), result, 0.1)["dictionary"]().axes[0]
    births = lives.lines[0].get_xdata()
    assert sorted(births)[:5] == [0, 0, 0, 0, 20]
    assert len(births) == 24
    ends = [(float(a[0]), float(b[0])) for a, b in lives.collections[0].get_segments()]
    assert (0.0, 20.0) in ends
    assert (36.0, 39.0) in ends
