"""Exported C learns the year of the building as the toolbox does."""

from dataclasses import replace

import numpy as np
import pytest

from c_models import CModel
from helpers.commands import load_dataset, run_identify
from sysid import Model, OnlineGP

OPTIONS = (
    "duration=365d",
    "training=maximum_a_posteriori",
    "training.n_initial=500",
    "training.restarts=1",
    "figures=false",
)


@pytest.mark.slow
def test_the_year_is_learned_with_the_same_decisions(tmp_path):
    folder = run_identify(tmp_path / "run", *OPTIONS)
    rows = load_dataset(folder, "narx")
    x = np.ascontiguousarray(rows["regressor"].values)
    y = rows["target"].values
    found = Model.load(folder / "model.nc")
    gp = found.gp
    names = ("insertion", "acceptance", "reduction", "learning", "gate", "gate_opens_after")
    settings = {name: getattr(gp, name) for name in names}
    empty = OnlineGP(gp.kernel, noise_variance=gp.noise_variance, budget=gp.budget, **settings)
    model = replace(found, gp=empty, pending={}, follower=None)
    plant = CModel(model, tmp_path, learn=True, name="building")

    record = model.update_many(x, y)
    names = ("outlier", "inserted", "accepted", "slot", "removed", "n_points")
    expected = list(zip(*(record[name].tolist() for name in names), strict=True))
    decided = []
    means = []
    report = plant.reports_by_output[0]
    for row, target in zip(x, y.tolist(), strict=True):
        plant.update(row, target)
        decided.append(tuple(getattr(report, name) for name in names))
        means.append(report.mean)

    assert len(y) > 17_000
    assert record["removed"].max() >= 0
    # a decision may differ only where two scores tie to 1e-9, and the year has no such tie
    assert [k for k in range(len(y)) if decided[k] != expected[k]] == []
    std = found.origin.output_variance**0.5
    np.testing.assert_allclose(means, record["mean"], rtol=0, atol=1e-10 * std)
    for k in range(0, len(y), 500):
        plant.predict(x[k])
        end = model.predict(x[[k]])
        np.testing.assert_allclose(plant.results()["mean"], end.mean, rtol=0, atol=1e-8)
        np.testing.assert_allclose(plant.results()["variance"], end.variance, rtol=1e-8)
