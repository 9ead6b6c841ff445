"""The default run over five seeds against its own beginning and against a full GP."""

import numpy as np
import pytest
from running import data_of, execute, phases, summary_of

from sysid import Model, OnlineGP

SEEDS = range(5)
FULL = 2000  # points of the full GP


def full_smse(folder):
    """SMSE of a GP on spread points of the identified part, same hyper-parameters."""
    model, rows = Model.load(folder / "model.nc"), data_of(folder, "narx")
    initial, online, after = phases(data_of(folder, "result"))
    chosen = np.linspace(0, (initial | online).sum() - 1, FULL).astype(int)
    z, y = model.scaling.transform(rows["regressor"].values), rows["target"].values
    gp = OnlineGP(model.gp.kernel, noise_variance=model.gp.noise_variance, budget=FULL)
    gp.fit(z[chosen], y[chosen] - model.mean.value)
    mean = gp.kernel(z[after], gp.inputs[gp.age_order]) @ gp.state()["weights"]  # variances would cost most
    np.testing.assert_allclose(mean[:20], gp.predict(z[after][:20])[0], rtol=1e-6, atol=1e-8)
    return np.mean((y[after] - mean - model.mean.value) ** 2) / np.var(y[after])


@pytest.fixture(scope="module")
def years(tmp_path_factory):
    """Folders of the default year for every seed; 60 days without the compiler."""
    folder = tmp_path_factory.mktemp("years")
    return [execute(folder / str(seed), f"seed={seed}", "figures=false") for seed in SEEDS]


def median(years, key):
    return float(np.median([summary_of(folder)[key] for folder in years]))


@pytest.mark.slow
def test_medians_are_at_most_half_of_no_learning_close_to_a_full_gp_and_bands_are_honest(years):
    smse = median(years, "smse")
    assert smse <= 0.5 * min(median(years, "smse_no_change"), median(years, "smse_initial"))
    assert smse <= 1.3 * float(np.median([full_smse(folder) for folder in years]))
    assert 0.85 <= median(years, "coverage_95") <= 0.99
