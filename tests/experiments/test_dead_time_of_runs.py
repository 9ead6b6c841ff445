"""Runs on records whose inputs act late: lags, files, and what is told about missing lags."""

import json

import numpy as np
import pytest

from experiments.identify.settings import LagOptions
from helpers.commands import load_summary, run_identify
from helpers.records import GIVEN_MODEL, csv_overrides, has_warning, run_validate
from sysid import store

DT = 0.5


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Overrides of a record in which heat acts after 15 samples, and flow after 3."""
    rng = np.random.default_rng(0)
    heat, flow = rng.normal(size=(2, 900))
    y = np.zeros(900)
    for k in range(15, 900):
        y[k] = 0.8 * y[k - 1] + np.tanh(heat[k - 15]) + 0.7 * flow[k - 3]
    y += 0.02 * rng.normal(size=900)
    path = tmp_path_factory.mktemp("delayed") / "delayed.csv"
    columns = np.column_stack([heat, flow, y])
    np.savetxt(path, columns, delimiter=",", header="heat,flow,y", comments="")
    return csv_overrides(inputs="heat,flow", dt=DT, estimation=path)


@pytest.fixture(scope="module")
def automatic(data, tmp_path_factory):
    """Folder of a run with automatic lags."""
    folder = tmp_path_factory.mktemp("automatic")
    return run_identify(folder, *data, *GIVEN_MODEL, "narx.max_order=1", "figures=false")


def test_lags_begin_with_the_dead_times(automatic):
    summary = load_summary(automatic)
    assert summary["narx"]["inputs"] == ["heat", "flow"]
    first_lags = np.array(summary["narx"]["nk"])
    assert (np.abs(first_lags - [15, 3]) <= 1).all()
    assert summary["narx"]["nb"] == [1, 1]
    found = summary["lags"]["dead_times"]
    assert found["sampling_time"] == DT
    assert {name: row["samples"] for name, row in found["by_input"].items()} == {
        "heat": 15,
        "flow": 3,
    }


def test_the_result_file_states_the_orders(automatic):
    attributes = store.read(automatic / "result.nc", kind="result").attrs
    assert json.loads(attributes["narx_orders"]) == load_summary(automatic)["narx"]


@pytest.mark.slow
def test_dead_times_are_drawn(data, tmp_path):
    folder = run_identify(tmp_path, *data, *GIVEN_MODEL, "narx.max_order=1", "figures=true")
    assert (folder / "dead_time.png").stat().st_size > 10_000


def test_linear_rivals_know_the_dead_times(automatic):
    summary = load_summary(automatic)
    assert summary["linear"]["best"]["nk"][0] in (14, 15)
    assert summary["smse_linear"] < 0.2


def test_automatic_lags_are_not_recommended_if_they_are_set(automatic):
    assert not any("narx=auto" in note for note in load_summary(automatic)["warnings"])


@pytest.fixture(scope="module")
def with_short_lags(data, tmp_path_factory):
    """Folder of a run whose lags end before heat acts."""
    lags = ("narx=orders", "narx.na=1", "narx.nb=3")
    folder = tmp_path_factory.mktemp("short_lags")
    return run_identify(folder, *data, *GIVEN_MODEL, *lags, "figures=false")


def test_missing_lags_are_told_with_what_to_do(with_short_lags):
    notes = load_summary(with_short_lags)["warnings"]
    (note,) = [note for note in notes if "still contain" in note]
    assert "contain heat at lag 15" in note
    assert "its lags end with 3: give it lags up to 15; narx=auto finds dead times" in note


def test_linear_rivals_know_dead_times_that_the_model_does_not(with_short_lags):
    assert load_summary(with_short_lags)["smse_linear"] < 0.2


def test_a_validation_tells_which_lags_are_missing(with_short_lags, data, tmp_path):
    record = [text.replace("estimation", "test") for text in data]
    model = f"model={with_short_lags / 'model.nc'}"
    content = run_validate(tmp_path, model, *record, "propagation=mean_only", "figures=false")
    assert has_warning(content, "contain heat at lag 15")


def test_given_orders_begin_with_the_dead_times(data, tmp_path):
    lags = ("narx=orders", "narx.na=1", "narx.nb=1", "narx.nk=auto")
    summary = load_summary(run_identify(tmp_path, *data, *GIVEN_MODEL, *lags, "figures=false"))
    assert summary["narx"]["nk"] == [15, 3]
    found = summary["dead_times"]
    assert found["by_input"]["heat"]["samples"] == 15
    assert found["changes"] == []
    assert not any("finds dead times" in note for note in summary["warnings"])


@pytest.mark.parametrize(
    ("nk", "some", "every"),
    [(1, False, False), ("auto", True, True), (["auto", 1], True, False), ([0, 1], False, False)],
    ids=repr,
)
def test_options_say_which_lags_begin_with_dead_times(nk, some, every):
    options = LagOptions({"_target_": "sysid.Orders", "nk": nk}, predicts_residual=False)
    assert options.are_orders
    assert options.begin_with_dead_times is some
    assert options.all_begin_with_dead_times is every


# --- streams --------------------------------------------------------------------------------------

HEATER = (
    "system=heater",
    "system.heat_delay=30",
    "noise.std=1e-4",
    "duration=1200samples",
    "identified=0.6",
    "limit=false",
    "figures=false",
    "narx=orders",
    "narx.nb=1",
)


@pytest.fixture(scope="module")
def stream(tmp_path_factory):
    """Folder of a stream whose heat acts after 31 samples."""
    folder = tmp_path_factory.mktemp("stream")
    return run_identify(folder, *HEATER, *GIVEN_MODEL, "narx.nk=auto")


def test_lags_of_a_stream_move_to_the_dead_time(stream):
    summary = load_summary(stream)
    heat, flow = summary["narx"]["nk"]
    assert abs(heat - 31) <= 1
    assert flow == 1
    (change,) = summary["dead_times"]["changes"]
    assert change["sample"] == 500
    assert change["first_lags"] == {"heat": [1, heat]}
    assert summary["dead_times"]["by_input"]["heat"]["samples"] in (30, 31)


def test_the_record_of_a_stream_has_a_row_for_each_row_of_its_last_lags(stream):
    result = store.read(stream / "result.nc", kind="result")
    rows = store.read(stream / "narx.nc", kind="narx")
    n = result.sizes["sample"]
    assert n == rows.sizes["sample"] == 1200 - load_summary(stream)["narx"]["nk"][0]
    np.testing.assert_array_equal(result["time"], rows["time"])
    np.testing.assert_array_equal(result["target"], rows["target"])
