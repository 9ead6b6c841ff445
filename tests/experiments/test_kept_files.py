"""Results of commands that were written before (tests/data/README.md): what they hold is found."""

from pathlib import Path

import numpy as np
import pytest

from experiments.files.job_file import read_summary
from experiments.plant.physics import read_physics
from experiments.report.page import read_outputs
from sysid import JointModel, StoredRecordings, store

DATA = Path(__file__).parents[1] / "data"


def test_a_job_has_its_summary_record_and_model(tmp_path):
    (tmp_path / "job.nc").write_bytes((DATA / "job.nc").read_bytes())
    summary, (output,) = read_summary(DATA / "job.nc"), read_outputs(tmp_path)
    assert summary == output["summary"]
    assert (summary["target"], summary["n_points"]) == (
        "change of displacement over one sample",
        6,
    )
    validation = output["record"].isel(sample=output["record"]["phase"] == 2)
    error = validation["target"].values - validation["mean"].values
    assert np.sqrt(np.mean(error**2)) == pytest.approx(summary["rmse"])
    (model,) = JointModel.load(DATA / "job.nc").models
    np.testing.assert_array_equal(output["model"]["targets"].values, model.gp.targets)


def test_the_physics_beside_a_model_simulates_what_it_did():
    recordings = StoredRecordings(path=str(DATA / "trajectory.nc")).load()
    physics = store.header(DATA / "model_physics.nc")
    (record,) = recordings.test
    fitted = read_physics(str(physics["physics"]), [])
    assert fitted.physics.interpolation == "held"
    again = fitted.add(record.drop_vars(["physics.level", "physics.upper_level"]))
    for name in ("physics.level", "physics.upper_level"):
        np.testing.assert_allclose(again[name].values, record[name].values, rtol=1e-9)
