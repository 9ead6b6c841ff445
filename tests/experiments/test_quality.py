"""The default run over five seeds against its own beginning and against a full GP."""

import numpy as np
import pytest
from running import PLAIN, data_of, execute, phases, summary_of

from sysid import Model, OnlineGP, Scaling, fit_sparse

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
    days = ("duration=60d",) if PLAIN else ()
    folder = tmp_path_factory.mktemp("years")
    return [execute(folder / str(seed), f"seed={seed}", "figures=false", *days) for seed in SEEDS]


def median(years, key):
    return float(np.median([summary_of(folder)[key] for folder in years]))


@pytest.mark.slow
def test_medians_are_at_most_half_of_no_learning_close_to_a_full_gp_and_bands_are_honest(years):
    smse = median(years, "smse")
    assert smse <= 0.5 * min(median(years, "smse_no_change"), median(years, "smse_initial"))
    assert smse <= 1.3 * float(np.median([full_smse(folder) for folder in years]))
    assert 0.85 <= median(years, "coverage_95") <= 0.99


@pytest.mark.slow
@pytest.mark.skipif(PLAIN, reason="minutes without the compiler")
def test_the_online_gp_is_between_a_linear_model_and_a_sparse_gp_that_is_trained_on_all_samples(years):
    """What the README says of seed 0."""
    rows, result = data_of(years[0], "narx"), data_of(years[0], "result")
    initial, online, after = phases(result)
    before = initial | online
    scaling = Scaling.fit(rows["regressor"].values[before])
    z, y = scaling.transform(rows["regressor"].values), rows["target"].values - rows["target"].values[before].mean()
    sparse = fit_sparse(z[before], y[before], n_inducing=100, max_iterations=150).model.predict(z[after])[0]
    linear = np.column_stack([z, np.ones(len(z))])
    straight = linear[after] @ np.linalg.lstsq(linear[before], y[before], rcond=None)[0]
    smse = [np.mean((y[after] - mean) ** 2) / np.var(y[after]) for mean in (sparse, straight)]
    assert smse[0] == pytest.approx(0.231, abs=0.006)
    assert smse[1] == pytest.approx(0.273, abs=0.003)
    assert smse[0] < summary_of(years[0])["smse"] < smse[1]
