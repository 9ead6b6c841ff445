"""Study `online`: every method on the same stream, and against dense formulas of all samples."""

import numpy as np
import pytest

import sysid
from experiments.reproduce import online, online_methods
from experiments.reproduce.online_methods import (
    JITTER_RATIO,
    PRESETS,
    BasisPosterior,
    RandomFeatures,
    StreamingVFE,
)
from experiments.reproduce.study import Unit, part_of, write_part
from experiments.reproduce.tasks import STREAMS, draw_rows
from helpers.studies import make_plan
from naive import NaiveGP
from sysid import SquaredExponential

STUDY = online.OnlineStudy()


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return make_plan(
        tmp_path_factory.mktemp("online"),
        tasks=("clogged", "failing_sensor", "van_der_pol"),
        seeds=1,
    )


@pytest.fixture(scope="module")
def parts(plan):
    return {
        unit: STUDY.compute(unit, plan).to_dataframe().set_index("model")
        for unit in STUDY.units(plan)
    }


def test_every_method_predicts_the_same_rows(parts):
    for found in parts.values():
        assert [*found.index] == [*online.ONLINE_METHODS]
        assert np.isfinite(found[["smse", "nlpd", "coverage_95", "n_numbers"]]).all(axis=None)
        in_stream = found.drop(index=["linear", "full_gp"])
        np.testing.assert_allclose(
            in_stream[[*online.PART_ERRORS]].mean(axis=1), in_stream["smse_stream"], rtol=0.2
        )
        assert 0.5 < found.loc["every_sample", "smse"] / found.loc["KRLS-T", "smse"] < 2


def test_a_row_is_what_the_online_gp_itself_gives(parts, plan):
    unit = next(unit for unit in parts if unit.task == "van_der_pol")
    training, test = draw_rows(unit.task, unit.seed)
    n = plan.n_initial
    settings = sysid.Settings(
        training=sysid.MaximumAPosteriori(n_initial=n), insertion=sysid.Novelty(), acceptance=sysid.AcceptAll(),
        reduction=sysid.MarginalLogLikelihood(), budget=plan.budget,
    )  # fmt: skip
    found = sysid.Identification(online.STUDY_TASKS["van_der_pol"].narx, settings)
    last = n + plan.most_rows
    found.observe_many(training.inputs[:last], training.targets[:last])
    chosen = slice(plan.most_rows)
    expected = found.model.predict(test.inputs[chosen]).mean
    smse = sysid.standardised_mean_squared_error(test.targets[chosen], expected)
    assert parts[unit].loc["every_sample", "smse"] == pytest.approx(smse, rel=1e-9)
    centred = np.column_stack([training.inputs[:last], np.ones(last)])
    weights = np.linalg.lstsq(centred, training.targets[:last])[0]
    linear = np.column_stack([test.inputs[chosen], np.ones(len(test.targets[chosen]))]) @ weights
    smse = sysid.standardised_mean_squared_error(test.targets[chosen], linear)
    assert parts[unit].loc["linear", "smse"] == pytest.approx(smse, rel=1e-6)


def test_streams_change_and_fail_as_they_say():
    steady, _ = STREAMS["steady"].draw(0)
    clogged, after = STREAMS["clogged"].draw(0)
    failing, clean = STREAMS["failing_sensor"].draw(0)
    changed = np.flatnonzero(clogged.targets != steady.targets)
    assert 1490 < changed[0] < 1510
    assert (
        0.02 < np.mean(abs(failing.targets - steady.targets) > 0.3) < 0.06
    )  # each is a part of two targets
    assert not np.array_equal(after.targets, clean.targets)
    building, _ = STREAMS["changed_building"].draw(0)
    usual, _ = draw_rows("building", 0)
    assert 8750 < np.flatnonzero(building.targets != usual.targets)[0] < 8765


def test_the_report_has_a_table_for_each_task_and_two_figures(parts, plan):
    for unit, found in parts.items():
        write_part(part_of(found.reset_index().to_dict("records")), unit, plan)
    store = STUDY.combine(plan)
    tables = STUDY.tables(store)
    assert tables["rows"].count("## ") == 3
    assert "| every_sample " in tables["ratios"]
    figures = {name: draw() for name, draw in STUDY.figures(store).items()}
    lines = figures["online_over_time"].axes[0].lines
    np.testing.assert_allclose(lines[0].get_ydata(), 1.0)  # RLS against itself


@pytest.mark.parametrize("name", ["sliding_window", "random", "reservoir"])
def test_an_exact_gp_of_some_of_the_rows(plan, name):
    case = online.case_of(Unit("online", "van_der_pol"), plan)
    stream, mean, _, counts = online.ONLINE_METHODS[name](case)
    first = plan.n_initial
    n = len(case.stream.targets)
    budget = case.budget
    kept = list(range(first - budget, first))
    generator = np.random.default_rng(case.seed)
    n_revised = 0
    for k in range(first, first + n):
        place = {"sliding_window": k % budget}.get(name)
        if place is None:
            place = generator.integers(budget if name == "random" else k + 1)
        if place < budget:
            kept[place], n_revised = k, n_revised + 1
    assert counts["n_revised"] == n_revised
    rows = online.Rows(
        *(np.concatenate([a, b]) for a, b in zip(case.initial, case.stream, strict=True))
    )
    scaled = case.scaled(rows)
    found = case.found
    gp = sysid.OnlineGP(found.kernel, noise_variance=found.noise_variance, budget=budget)
    gp.fit(scaled.inputs[kept], scaled.targets[kept])
    expected = gp.predict(case.scaled(case.test).inputs)[0] + case.mean(case.test.inputs)
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    assert np.isfinite(stream).all()


# --- methods against explicit inverses of all samples, nothing recursive

KERNEL = SquaredExponential(1.5, [0.8, 1.3])
NOISE = 0.04
METHODS = {
    name: lambda p=p, **own: BasisPosterior(KERNEL, NOISE, 12, **p | own)
    for name, p in PRESETS.items()
}
METHODS["vfe"] = lambda **own: StreamingVFE(KERNEL, NOISE, 12, batch=20, **own)
METHODS["features"] = lambda: RandomFeatures(KERNEL, NOISE, 20, seed=0)
METHODS |= {
    f"rls_{memory}": lambda t=memory: online_methods.RecursiveLeastSquares(2, t)
    for memory in (np.inf, 20)
}


def make_rows(n=60, seed=0):
    z = np.random.default_rng(seed).normal(size=(n, 3))
    return z[:, :2], np.sin(2 * z[:, 0]) + z[:, 1] + 0.2 * z[:, 2]


def learn_all(method, x, y):
    return np.array([method.learn(*sample) for sample in zip(x, y, strict=True)])


def prior(points):
    return KERNEL(points, points) + JITTER_RATIO * NOISE * np.eye(len(points))


def agree(found, expected, rtol=1e-7):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-9)


def exact(x, y, test):
    mean, variance = NaiveGP(KERNEL, NOISE, x, y).predict(test)
    return mean, variance + NOISE


def sparse(points, x, y, test, alpha):
    """FITC (alpha = 1) or VFE (alpha = 0) of all samples."""
    inverse = np.linalg.inv(prior(points))
    cross = KERNEL(points, x)
    at_test = KERNEL(points, test)
    noise = NOISE + alpha * (1.5 - np.diag(cross.T @ inverse @ cross))
    posterior = np.linalg.inv(prior(points) + cross / noise @ cross.T)
    variance = NOISE + 1.5 - np.diag(at_test.T @ (inverse - posterior) @ at_test)
    return at_test.T @ posterior @ (cross / noise) @ y, variance


def test_a_basis_of_all_samples_is_the_exact_gp():
    (x, y), method = make_rows(), BasisPosterior(KERNEL, NOISE, 60, **PRESETS["krls_t"])
    agree(
        learn_all(method, x, y),
        np.squeeze([exact(x[:t], y[:t], x[[t]]) for t in range(60)]),
    )


@pytest.mark.parametrize(
    ("name", "alpha"), [("rgp", 0.0), ("rgp", 0.4), ("rgp", 1.0), ("vfe", 0.0)]
)
def test_a_basis_that_stays_is_fitc_or_vfe(name, alpha):
    (x, y), points = make_rows(), make_rows(12, seed=1)[0]
    method = METHODS[name](initial=points, **{"moves": 0} if name == "vfe" else {"alpha": alpha})
    learn_all(method, x, y)
    agree(method.predict(x + 0.3), sparse(points, x, y, x + 0.3, alpha))


def test_a_newest_point_that_leaves_at_once_is_a_projection():
    x, y = make_rows()
    dropping = BasisPosterior(
        KERNEL,
        NOISE,
        10,
        growth=0.0,
        full=lambda m, s, i: -np.arange(len(m)),
        alpha=0.3,
    )
    agree(
        learn_all(dropping, x, y),
        learn_all(BasisPosterior(KERNEL, NOISE, 10, **PRESETS["rgp"]), x, y),
    )
    assert dropping.n_revised == 0


def test_the_point_of_lowest_score_leaves_and_leaves_the_marginal_of_the_others():
    x, y = make_rows(15, seed=3)
    large, small = (
        BasisPosterior(KERNEL, NOISE, budget, **PRESETS["krls_t"]) for budget in (15, 14)
    )
    learn_all(large, x, y), learn_all(small, x, y)
    m = large.mean
    s = large.spread
    k = prior(x)
    q = np.linalg.inv(prior(x))
    without = [np.delete(np.arange(15), r) for r in range(15)]
    changes = [
        abs(m[r] - k[r, o] @ np.linalg.solve(k[np.ix_(o, o)], m[o])) for r, o in enumerate(without)
    ]
    agree(
        [PRESETS[name]["full"](m, s, q) for name in ("krls_t", "sogp")],
        (changes, (q @ m) ** 2 / np.diag(q @ s @ q)),
    )
    others = (o := without[np.argmin(changes)])
    expected = (m[o], s[np.ix_(o, o)], k[np.ix_(o, o)], k[np.ix_(o, o)])
    agree(
        (small.mean, small.spread, small.covariance, small.factor @ small.factor.T),
        expected,
    )
    assert (small.points.tolist(), small.n_revised) == (x[others].tolist(), 1)


@pytest.mark.parametrize("name", ["krls_t", "sogp"])
def test_small_noise_and_long_length_scales_are_no_trouble(name):
    x = make_rows(3000)[0]
    noise = 1e-3 * np.random.default_rng(1).normal(size=3000)
    y = np.sin(x[:, 0]) + 0.1 * x[:, 1] + noise
    method = BasisPosterior(SquaredExponential(1.0, [3.0, 5.0]), 1e-6, 25, **PRESETS[name])
    mean, variance = learn_all(method, x, y).T
    smallest = np.linalg.eigvalsh(method.spread)[0]
    asymmetry = abs(method.spread - method.spread.T).max()
    assert min(variance.min() - 1e-6, smallest, -asymmetry) >= 0
    assert 0.9 < (abs(mean - y) < 1.96 * np.sqrt(variance))[1000:].mean() < 0.99
    assert np.mean((mean - y)[1000:] ** 2) < 2e-6


def test_streaming_vfe_that_moves_points_is_the_closed_form_of_bui():
    x, y = make_rows()
    learn_all(method := StreamingVFE(KERNEL, NOISE, 10, batch=30, moves=3), x[:30], y[:30])
    old = method.points
    half = method.factor @ np.linalg.inv(method.root).T
    m = method.factor @ method.weights
    s = half @ half.T
    learn_all(method, x[30:], y[30:])
    new, (same, where) = (
        method.points,
        np.nonzero((old[:, None] == method.points).all(axis=2)),
    )
    assert (len(new), len(same), method.n_revised) == (10, 7, 3)
    cross = KERNEL(old, new)
    of_old = np.linalg.inv(prior(old))
    of_new = np.linalg.inv(prior(new))
    cross[same, where] += JITTER_RATIO * NOISE
    r = cross @ of_new
    h = KERNEL(x[30:], new) @ of_new
    posterior = np.linalg.inv(of_new + h.T @ h / NOISE + r.T @ (np.linalg.inv(s) - of_old) @ r)
    mean = posterior @ (h.T @ y[30:] / NOISE + r.T @ np.linalg.solve(s, m))
    k = KERNEL(x, new)
    variance = NOISE + 1.5 - np.diag(k @ (of_new - of_new @ posterior @ of_new) @ k.T)
    agree(method.predict(x), (k @ of_new @ mean, variance), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "penalty"), [("features", NOISE), ("rls_inf", 1e-3), ("rls_20", 1e-3)]
)
def test_linear_models_are_weighted_ridge_regression(name, penalty):
    (x, y), method = make_rows(300), METHODS[name]()
    learn_all(method, x, y)
    phi = method.features(x)
    test = method.features(x + 0.3)
    weights = method.kept ** np.arange(299, -1, -1)
    inverse = np.linalg.inv(
        phi.T * weights @ phi + penalty * method.kept**300 * np.eye(phi.shape[1])
    )
    variance = method.noise_variance * (1 + np.diag(test @ inverse @ test.T))
    agree(method.predict(x + 0.3), (test @ inverse @ (phi.T * weights) @ y, variance))
    assert (
        name != "rls_inf" or 0.9 < method.noise_variance / np.var(y - phi @ method.weights) < 1.05
    )


def test_products_of_random_features_are_the_kernel():
    x = make_rows(8)[0]
    drawn = [RandomFeatures(KERNEL, NOISE, 20, seed=seed) for seed in range(1000)]
    products = np.mean([method.features(x) @ method.features(x).T for method in drawn], axis=0)
    np.testing.assert_allclose(products, KERNEL(x, x), atol=0.03)
    first, second = drawn[0].frequencies[:2] * KERNEL.length_scales
    assert abs(first @ second) < 1e-12


def test_pivoted_cholesky_picks_what_is_least_known():
    x = make_rows(40)[0]
    picked = [0]
    while len(picked) < 12:
        picked.append(
            np.argmax(
                1.5 - ((k := KERNEL(x[picked], x)) * np.linalg.solve(k[:, picked], k)).sum(axis=0)
            )
        )
    explained = np.linalg.solve(
        np.linalg.cholesky(KERNEL(x[picked[:4]], x[picked[:4]])),
        KERNEL(x[picked[:4]], x),
    )
    for rows, settings in ((picked, {}), (picked[4:], {"explained": explained})):
        np.testing.assert_array_equal(
            online_methods.pivoted_cholesky(KERNEL, x, len(rows), **settings), rows
        )
    assert len(online_methods.pivoted_cholesky(KERNEL, np.repeat(x[:3], 5, axis=0), 12)) == 3


@pytest.mark.parametrize("name", METHODS)
def test_every_method_predicts_before_it_learns_and_keeps_a_bounded_memory(name):
    (x, y), method, repeated = make_rows(200), METHODS[name](), METHODS[name]()
    learn_all(method, x[:100], y[:100])
    size = method.n_numbers
    for sample in zip(x[100:], y[100:], strict=True):
        agree(method.predict(sample[0][None]), method.learn(*sample))
    assert 0 < size == method.n_numbers
    assert np.mean((learn_all(method, x, y)[:, 0] - y) ** 2) < 0.5 * y.var()
    learn_all(repeated, x[[0, 0, 0]], y[:3])  # the second and third are not novel
    assert len(getattr(repeated, "points", [])) == {
        "krls_t": 3,
        "sogp": 1,
        "ald_krls": 1,
        "rgp": 3,
    }.get(name, 0)
