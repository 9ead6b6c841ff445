"""Files that earlier versions of the commands wrote (tests/data/README.md) are read."""

from pathlib import Path

import numpy as np
import pytest

from experiments.files.job_file import read_summary
from experiments.plant.physics import read_physics
from experiments.report.page import read_outputs
from sysid import JointModel, StoredRecordings, store

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def job_output(tmp_path):
    """What a report reads of the job with one output."""
    (tmp_path / "job.nc").write_bytes((DATA / "job.nc").read_bytes())
    (output,) = read_outputs(tmp_path)
    return output


def test_a_job_has_its_summary(job_output):
    summary = read_summary(DATA / "job.nc")
    assert summary == job_output["summary"]
    assert summary["target"] == "change of displacement over one sample"
    assert summary["n_points"] == 6


def test_a_job_has_its_record(job_output):
    record = job_output["record"]
    validation = record.isel(sample=record["phase"] == 2)
    error = validation["target"].values - validation["mean"].values
    rmse = np.sqrt(np.mean(error**2))
    assert rmse == pytest.approx(job_output["summary"]["rmse"])


def test_a_job_has_its_model(job_output):
    (model,) = JointModel.load(DATA / "job.nc").models
    np.testing.assert_array_equal(job_output["model"]["targets"].values, model.gp.targets)


@pytest.mark.parametrize("signal", ["physics.level", "physics.upper_level"])
def test_the_physics_beside_a_model_simulates_what_it_did(signal):
    recordings = StoredRecordings(path=str(DATA / "trajectory.nc")).load()
    (record,) = recordings.test
    header = store.header(DATA / "model_physics.nc")
    fitted = read_physics(str(header["physics"]), [])
    assert fitted.physics.interpolation == "held"
    without_physics = record.drop_vars(["physics.level", "physics.upper_level"])
    simulated = fitted.add(without_physics)
    np.testing.assert_allclose(simulated[signal].values, record[signal].values, rtol=1e-9)
