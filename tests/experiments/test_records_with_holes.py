"""Runs on records with missing samples: what is kept, counted, compared and validated."""

import json

import numpy as np
import pytest

from helpers.commands import load_summary, run_identify
from helpers.records import QUICK_MODEL, csv_overrides, has_warning, run_validate, simulate_tanh
from sysid import store

DT = 0.5
N = 900
QUICK = (*QUICK_MODEL, "figures=false")
#: samples of the identified part whose output is missing, and the one whose input is
OUTPUT_HOLES = (100, 101, 200, 300, 400)
INPUT_HOLE = 500
#: samples of the part that validates the model whose output is missing
VALIDATION_HOLES = (700, 701, 850)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Path of a record with holes of the output and of an input."""
    u, y = simulate_tanh(N)
    y[[*OUTPUT_HOLES, *VALIDATION_HOLES]] = np.nan
    u[INPUT_HOLE] = np.nan
    rows = [
        ",".join("" if np.isnan(value) else f"{value:.9f}" for value in pair)
        for pair in zip(u, y, strict=True)
    ]
    path = tmp_path_factory.mktemp("holes") / "holes.csv"
    path.write_text("u,y\n" + "\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="module")
def run(table, tmp_path_factory):
    """Folder of a run that skips what is missing."""
    data = csv_overrides(dt=DT, estimation=table)
    return run_identify(
        tmp_path_factory.mktemp("run"), *data, *QUICK, "on_missing=skip", "report=false"
    )


def test_missing_samples_are_counted_and_next_to_no_row_is_lost(run):
    summary = load_summary(run)
    n_identified = round(0.7 * N)
    # the missing targets, the row after the hole of the input, and that after the longest hole of
    # the output, whose second estimate is not good enough
    n_lost = len(OUTPUT_HOLES) + 1 + 1
    assert summary["n_initial"] + summary["n_seen"] == n_identified - 1 - n_lost
    assert summary["repairs"]["missing_samples"] == len(OUTPUT_HOLES) + 1
    assert summary["repairs"]["skipped_rows"] == n_lost
    assert summary["repairs"]["rows_with_estimates"] == 3
    assert has_warning(summary, "8 of 900 samples of y are missing (0.89 %, 6 holes")
    assert has_warning(summary, "a free run ends at a hole of an input")
    assert has_warning(summary, "in 3 rows the lags contain estimates of missing outputs")


def test_the_free_run_goes_through_the_holes_and_does_not_score_them(run):
    summary = load_summary(run)
    assert summary["free_run"]["n"] == N - round(0.7 * N) - 1 - len(VALIDATION_HOLES)
    assert summary["free_run"]["rmse"] < 0.2
    assert np.isfinite(summary["linear"]["same_lags"]["free_run_rmse"])
    assert np.isfinite(summary["smse_linear"])


def test_files_hold_the_signals_as_they_were_measured(run):
    trajectory = store.read(run / "trajectory.nc", kind="trajectory")
    assert sorted(trajectory.data_vars) == ["u", "y"]
    missing = np.flatnonzero(np.isnan(trajectory["y"].values))
    assert missing.tolist() == [*OUTPUT_HOLES, *VALIDATION_HOLES]


def test_bridged_inputs_leave_no_hole(table, tmp_path):
    data = csv_overrides(dt=DT, estimation=table)
    options = ("on_missing=skip", "data.bridge_inputs=1")
    folder = run_identify(tmp_path, *data, *QUICK, *options)
    assert load_summary(folder)["repairs"]["missing_samples"] == len(OUTPUT_HOLES)
    assert has_warning(load_summary(folder), "1 missing samples of u are interpolated (1 hole of 1")


def test_a_validation_leaves_missing_samples_out_of_its_scores(run, table, tmp_path):
    data = csv_overrides(dt=DT, test=table)
    options = ("on_missing=skip", "figures=false", "propagation=mean_only")
    content = run_validate(tmp_path, f"model={run / 'model.nc'}", *data, *options)
    n_missing = len(OUTPUT_HOLES) + len(VALIDATION_HOLES)
    # the sample after the hole of the input cannot be predicted
    assert content["free_run"]["n"] == N - 1 - n_missing - 1


def test_several_outputs_may_have_holes_of_their_own(tmp_path):
    rng = np.random.default_rng(1)
    u = rng.normal(size=N)
    y = np.zeros((N, 2))
    for k in range(1, N):
        y[k, 0] = 0.8 * y[k - 1, 0] + 0.1 * y[k - 1, 1] + np.tanh(u[k - 1])
        y[k, 1] = 0.6 * y[k - 1, 1] + 0.2 * y[k - 1, 0]
    y += 0.02 * rng.normal(size=y.shape)
    y[[50, 120, 121], 0] = np.nan
    y[[121, 300], 1] = np.nan
    path = tmp_path / "two.csv"
    text = "\n".join(f"{row[0]:.6f},{row[1]:.6f},{row[2]:.6f}" for row in np.column_stack([u, y]))
    path.write_text("u,a,b\n" + text + "\n")
    data = csv_overrides(dt=DT, estimation=path, outputs="a,b")
    folder = run_identify(tmp_path / "run", *data, *QUICK, "narx.target=all", "on_missing=skip")
    for target, n_missing in (("a", 3), ("b", 2)):
        summary = json.loads((folder / target / "summary.json").read_text())
        assert summary["n_initial"] + summary["n_seen"] == round(0.7 * N) - 1 - n_missing
        assert summary["free_run"]["rmse"] < 0.5
