"""Runs whose model has a linear part, as by default."""

import numpy as np
import pytest

from experiments.identify.run import prepare, read_settings, source_of
from helpers.commands import (
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    run_identify,
)
from helpers.records import RECORD_OVERRIDES, SMALL_MODEL, write_record
from sysid import JointModel, Model, standardised_mean_squared_error

OSCILLATOR = (
    "system=bouc_wen",
    "narx=bouc_wen",
    "duration=600samples",
    "noise=measurement",
    "noise.snr_db=30",
    "seed=1",
)
#: number of lags of each of the two signals in the linear part
N_LAGS = 14


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder of a run with noise in the lags."""
    folder = tmp_path_factory.mktemp("run")
    quick = ("training.n_initial=60", "training.restarts=1", "budget=30", "figures=false")
    return run_identify(folder, *OSCILLATOR, *quick)


def test_the_rows_have_the_lags_of_both_parts(run):
    features = load_dataset(run, "narx")["feature"].values.tolist()
    of_linear_part = [name for name in features if name.endswith("(linear)")]
    assert len(features) == 6 + 2 * N_LAGS
    assert features[6:] == of_linear_part


def test_the_stored_model_predicts_the_validation_samples(run):
    model = Model.load(run / "model.nc")
    rows = load_dataset(run, "narx")
    result = load_dataset(run, "result")
    is_after = result["phase"].values == result["phase"].values.max()
    mean = model.predict(rows["regressor"].values[is_after]).mean
    smse = standardised_mean_squared_error(rows["target"].values[is_after], mean)
    assert smse == pytest.approx(load_summary(run)["smse"], rel=1e-9)
    assert model.gp.n_linear == 2 * N_LAGS


def test_it_is_better_than_the_process_alone_and_than_a_line(run, tmp_path):
    quick = ("training.n_initial=60", "training.restarts=1", "budget=30", "figures=false")
    alone = load_summary(run_identify(tmp_path, *OSCILLATOR, *quick, "linear_part=none"))
    summary = load_summary(run)
    assert summary["smse"] < 0.9 * alone["smse"]
    assert summary["smse"] < summary["smse_linear"]


@pytest.mark.parametrize(
    "overrides",
    [
        ("learning=stored",),
        ("experiment=building_thresholds",),
        ("mean=linear",),
        ("linear_part=none",),
        ("data=function", "system=none"),
    ],
    ids=lambda overrides: overrides[0],
)
def test_some_runs_have_none(overrides):
    configuration = compose_configuration(*overrides)
    identification = prepare(read_settings(configuration), source_of(configuration))
    assert not identification.narx.linear
    assert identification.settings.training.kernel.linear_lags == ()


def test_a_run_that_is_too_short_for_its_lags_has_none():
    """The lags of the process alone leave the initial samples and one more."""
    short = ("system=bouc_wen", "narx=bouc_wen", "training.n_initial=40", "duration=90samples")
    configuration = compose_configuration(*short)
    identification = prepare(read_settings(configuration), source_of(configuration))
    assert not identification.narx.linear


def test_two_outputs_are_simulated_together(tmp_path):
    estimation = write_record(tmp_path / "estimation.csv", n=150, seed=2)
    test = write_record(tmp_path / "test.csv", n=60, seed=5)
    files = (f"data.estimation={estimation}", f"data.test={test}")
    both = ("data.outputs=[y,z]", "narx.target=all", "linear_part=stable_spline")
    folder = run_identify(tmp_path / "run", *RECORD_OVERRIDES, *SMALL_MODEL, *files, *both)
    joint = JointModel.load(folder / "model.nc")
    assert all(model.gp.n_linear for model in joint.models)
    for target in ("y", "z"):
        summary = load_summary(folder / target)
        assert np.isfinite(summary["free_run"]["rmse"])


def test_a_demanded_number_of_lags_is_taken(tmp_path):
    lags = "linear_part.lags={zone_temperature:4,mass_flow:2}"
    folder = run_identify(tmp_path, *SMALLEST_RUN, "duration=3d", lags, "validate=false")
    model = Model.load(folder / "model.nc")
    assert model.narx.linear_lags == {"zone_temperature": (1, 2, 3, 4), "mass_flow": (1, 2)}
