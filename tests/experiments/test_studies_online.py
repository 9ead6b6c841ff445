"""Study `online`: every method on the same stream, and against dense formulas of all samples."""

from functools import partial

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
    """Plan of a quick study of three tasks, one seed each."""
    return make_plan(
        tmp_path_factory.mktemp("online"),
        tasks=("clogged", "failing_sensor", "van_der_pol"),
        seeds=1,
    )


@pytest.fixture(scope="module")
def parts(plan):
    """Table of the quantities of each method, by unit of the study."""
    tables = {}
    for unit in STUDY.units(plan):
        tables[unit] = STUDY.compute(unit, plan).to_dataframe().set_index("model")
    return tables


def test_every_method_predicts_the_same_rows(parts):
    for table in parts.values():
        assert [*table.index] == [*online.ONLINE_METHODS]
        numbers = table[["smse", "nlpd", "coverage_95", "n_numbers"]]
        assert np.isfinite(numbers).all(axis=None)
        in_stream = table.drop(index=["linear", "full_gp"])
        mean_of_parts = in_stream[[*online.PART_ERRORS]].mean(axis=1)
        np.testing.assert_allclose(mean_of_parts, in_stream["smse_stream"], rtol=0.2)
        assert 0.5 < table.loc["every_sample", "smse"] / table.loc["KRLS-T", "smse"] < 2


@pytest.fixture(scope="module")
def van_der_pol_table(parts):
    """Table of the task `van_der_pol`."""
    return next(table for unit, table in parts.items() if unit.task == "van_der_pol")


def slice_of_tested_rows(task, plan):
    """Return the rows of the first test record that are tested: they have the longest lags, too."""
    narx = online.STUDY_TASKS[task].narx
    longest = sysid.Settings().with_linear_lags(narx).max_lag
    return slice(longest - narx.max_lag, plan.most_rows)


@pytest.mark.parametrize("task", ["van_der_pol", "failing_sensor"])
def test_the_rows_with_long_lags_are_of_the_same_samples(task, plan):
    case = online.case_of(Unit("online", task), plan)
    long = case.with_linear_lags
    n_lost = long.narx.max_lag - case.narx.max_lag
    pairs = [
        (case.initial.targets[n_lost:], long.initial.targets),
        (case.stream.targets[long.is_in_stream], long.stream.targets),
        (case.test.targets, long.test.targets),
        (case.test.inputs, long.test.inputs[:, : case.narx.n_features]),
    ]
    for plain, with_long_lags in pairs:
        np.testing.assert_array_equal(plain, with_long_lags)


def test_the_row_of_the_linear_part_is_what_the_online_gp_itself_gives(parts, plan):
    """A record is learned sample by sample, and what the study reports is the same."""
    task = STREAMS["failing_sensor"]
    records = task.records(0)
    settings = sysid.Settings(
        training=sysid.Adaptive(n_initial=plan.n_initial - 12),  # the first samples lack lags
        insertion=sysid.Novelty(),
        acceptance=sysid.AcceptAll(),
        reduction=sysid.MarginalLogLikelihood(),
        budget=plan.budget,
    )
    narx = settings.with_linear_lags(task.narx)
    training, test = records.rows(narx)
    identification = sysid.Identification(narx, settings)
    n_learned = plan.n_initial + plan.most_rows - 12
    for x, y in zip(training.inputs[:n_learned], training.targets[:n_learned], strict=True):
        identification.observe(x, y)
    n_tested = plan.most_rows - 12
    predicted = identification.model.predict(test.inputs[:n_tested]).mean
    smse = sysid.standardised_mean_squared_error(test.targets[:n_tested], predicted)
    table = next(table for unit, table in parts.items() if unit.task == "failing_sensor")
    row = table.loc["every_sample, adaptive, linear part"]
    assert row["smse"] == pytest.approx(smse, rel=1e-9)


def test_the_row_of_every_sample_is_what_the_online_gp_itself_gives(van_der_pol_table, plan):
    training, test = draw_rows("van_der_pol", 0)
    settings = sysid.Settings(
        training=sysid.MaximumAPosteriori(n_initial=plan.n_initial),
        insertion=sysid.Novelty(),
        acceptance=sysid.AcceptAll(),
        reduction=sysid.MarginalLogLikelihood(),
        budget=plan.budget,
    )
    identification = sysid.Identification(online.STUDY_TASKS["van_der_pol"].narx, settings)
    n_learned = plan.n_initial + plan.most_rows
    identification.observe_many(training.inputs[:n_learned], training.targets[:n_learned])
    scored = slice_of_tested_rows("van_der_pol", plan)
    predicted = identification.model.predict(test.inputs[scored]).mean
    smse = sysid.standardised_mean_squared_error(test.targets[scored], predicted)
    assert van_der_pol_table.loc["every_sample", "smse"] == pytest.approx(smse, rel=1e-9)


def test_the_row_of_the_linear_model_is_that_of_least_squares(van_der_pol_table, plan):
    training, test = draw_rows("van_der_pol", 0)
    n_learned = plan.n_initial + plan.most_rows
    scored = slice_of_tested_rows("van_der_pol", plan)
    known = np.column_stack([training.inputs[:n_learned], np.ones(n_learned)])
    weights = np.linalg.lstsq(known, training.targets[:n_learned])[0]
    tested = np.column_stack([test.inputs[scored], np.ones(len(test.targets[scored]))])
    smse = sysid.standardised_mean_squared_error(test.targets[scored], tested @ weights)
    assert van_der_pol_table.loc["linear", "smse"] == pytest.approx(smse, rel=1e-6)


def test_the_best_line_is_the_best_of_all_orders_by_least_squares(parts, plan):
    """The rows are made anew for each order, and cut to the samples of the study."""
    task = STREAMS["failing_sensor"]
    records = task.records(0)
    n_lost = sysid.Settings().with_linear_lags(task.narx).max_lag
    n_learned = plan.n_initial + plan.most_rows - n_lost + task.narx.max_lag
    errors = []
    for order in range(1, 13):
        lags = {"pump_voltage": order}
        narx = sysid.Narx({"level": order}, lags, predict=sysid.Target.change)
        training, test = records.rows(narx)
        learned = slice(n_lost - order, n_lost - order + n_learned)
        scored = slice(n_lost - order, plan.most_rows + task.narx.max_lag - order)
        known = np.column_stack([training.inputs[learned], np.ones(n_learned)])
        weights = np.linalg.lstsq(known, training.targets[learned])[0]
        tested = np.column_stack([test.inputs[scored], np.ones(len(test.targets[scored]))])
        mean = tested @ weights
        errors.append(sysid.standardised_mean_squared_error(test.targets[scored], mean))
    table = next(table for unit, table in parts.items() if unit.task == "failing_sensor")
    assert table.loc["linear, best order", "smse"] == pytest.approx(min(errors), rel=1e-6)


def test_the_outlet_clogs_and_the_sensor_fails():
    """Streams of the tanks differ from the steady one where they state it.

    A wrong measurement is a part of two targets, which are changes of the output.
    """
    steady, _ = STREAMS["steady"].draw(0)
    clogged, after = STREAMS["clogged"].draw(0)
    failing, clean = STREAMS["failing_sensor"].draw(0)
    first_changed = np.flatnonzero(clogged.targets != steady.targets)[0]
    assert 1490 < first_changed < 1510
    wrong = abs(failing.targets - steady.targets) > 0.3
    assert 0.02 < np.mean(wrong) < 0.06
    assert not np.array_equal(after.targets, clean.targets)


@pytest.mark.slow
def test_the_building_changes_in_the_middle_of_its_stream():
    changed, _ = STREAMS["changed_building"].draw(0)
    usual, _ = draw_rows("building", 0)
    first_changed = np.flatnonzero(changed.targets != usual.targets)[0]
    assert 8750 < first_changed < 8765


def test_the_report_has_a_table_for_each_task_and_two_figures(parts, plan):
    for unit, table in parts.items():
        write_part(part_of(table.reset_index().to_dict("records")), unit, plan)
    store = STUDY.combine(plan)
    tables = STUDY.tables(store)
    assert tables["rows"].count("## ") == 3
    assert "| every_sample " in tables["ratios"]
    figures = {name: draw() for name, draw in STUDY.figures(store).items()}
    lines = figures["online_over_time"].axes[0].lines
    np.testing.assert_allclose(lines[0].get_ydata(), 1.0)  # recursive least squares over itself


@pytest.mark.parametrize("name", ["sliding_window", "random", "reservoir"])
def test_an_exact_gp_of_some_of_the_rows(plan, name):
    """The rows that stay are chosen by hand, and an exact GP of them predicts the test."""
    case = online.case_of(Unit("online", "van_der_pol"), plan)
    stream, mean, _, counts = online.ONLINE_METHODS[name](case)
    first = plan.n_initial
    n = len(case.stream.targets)
    budget = case.budget
    kept = list(range(first - budget, first))
    generator = np.random.default_rng(case.seed)
    n_revised = 0
    for k in range(first, first + n):
        if name == "sliding_window":
            slot = k % budget
        elif name == "random":
            slot = generator.integers(budget)
        else:
            slot = generator.integers(k + 1)
        if slot < budget:
            kept[slot] = k
            n_revised += 1
    assert counts["n_revised"] == n_revised
    pairs = zip(case.initial, case.stream, strict=True)
    rows = online.Rows(*(np.concatenate(pair) for pair in pairs))
    scaled = case.scaled(rows)
    hyperparameters = case.found
    gp = sysid.OnlineGP(
        hyperparameters.kernel, noise_variance=hyperparameters.noise_variance, budget=budget
    )
    gp.fit(scaled.inputs[kept], scaled.targets[kept])
    expected = gp.predict(case.scaled(case.test).inputs)[0] + case.mean(case.test.inputs)
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    assert np.isfinite(stream).all()


# --- methods against explicit inverses of all samples, nothing recursive

KERNEL = SquaredExponential(1.5, [0.8, 1.3])
NOISE_VARIANCE = 0.04


def make_basis(name, **changed):
    """Return a method with basis functions by its name; some of its settings may be changed."""
    return BasisPosterior(KERNEL, NOISE_VARIANCE, 12, **PRESETS[name] | changed)


def make_streaming_vfe(**changed):
    """Return the streaming VFE with twelve points."""
    return StreamingVFE(KERNEL, NOISE_VARIANCE, 12, batch=20, **changed)


#: functions that make each method, by its name
METHODS = {name: partial(make_basis, name) for name in PRESETS}
METHODS["vfe"] = make_streaming_vfe
METHODS["features"] = lambda: RandomFeatures(KERNEL, NOISE_VARIANCE, 20, seed=0)
METHODS["rls_inf"] = lambda: online_methods.RecursiveLeastSquares(2, np.inf)
METHODS["rls_20"] = lambda: online_methods.RecursiveLeastSquares(2, 20)


def make_rows(n=60, seed=0):
    """Return inputs (n, 2) and targets (n,) of a nonlinear function with noise."""
    z = np.random.default_rng(seed).normal(size=(n, 3))
    return z[:, :2], np.sin(2 * z[:, 0]) + z[:, 1] + 0.2 * z[:, 2]


def learn_all(method, x, y):
    """Let a method learn samples, and return the mean and variance that it predicts of each."""
    return np.array([method.learn(*sample) for sample in zip(x, y, strict=True)])


def prior_covariance(points):
    """Return the prior covariance of points, with the jitter that the methods add."""
    return KERNEL(points, points) + JITTER_RATIO * NOISE_VARIANCE * np.eye(len(points))


def assert_all_close(actual, expected, rtol=1e-7):
    """Compare several arrays one by one."""
    for left, right in zip(actual, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=rtol, atol=1e-9)


def predict_exactly(x, y, test):
    """Return mean and variance of measured targets by the exact GP of all samples."""
    mean, variance = NaiveGP(KERNEL, NOISE_VARIANCE, x, y).predict(test)
    return mean, variance + NOISE_VARIANCE


def predict_sparsely(points, x, y, test, alpha):
    """Return mean and variance by FITC (alpha = 1) or VFE (alpha = 0) of all samples."""
    inverse = np.linalg.inv(prior_covariance(points))
    cross = KERNEL(points, x)
    at_test = KERNEL(points, test)
    noise = NOISE_VARIANCE + alpha * (1.5 - np.diag(cross.T @ inverse @ cross))
    posterior = np.linalg.inv(prior_covariance(points) + cross / noise @ cross.T)
    variance = NOISE_VARIANCE + 1.5 - np.diag(at_test.T @ (inverse - posterior) @ at_test)
    return at_test.T @ posterior @ (cross / noise) @ y, variance


def test_a_basis_of_all_samples_is_the_exact_gp():
    x, y = make_rows()
    method = BasisPosterior(KERNEL, NOISE_VARIANCE, 60, **PRESETS["krls_t"])
    expected = [predict_exactly(x[:t], y[:t], x[[t]]) for t in range(60)]
    assert_all_close(learn_all(method, x, y), np.squeeze(expected))


@pytest.mark.parametrize(
    ("name", "alpha"), [("rgp", 0.0), ("rgp", 0.4), ("rgp", 1.0), ("vfe", 0.0)]
)
def test_a_basis_that_stays_is_fitc_or_vfe(name, alpha):
    x, y = make_rows()
    points, _ = make_rows(12, seed=1)
    own_setting = {"moves": 0} if name == "vfe" else {"alpha": alpha}
    method = METHODS[name](initial=points, **own_setting)
    learn_all(method, x, y)
    test = x + 0.3
    assert_all_close(method.predict(test), predict_sparsely(points, x, y, test, alpha))


def test_a_newest_point_that_leaves_at_once_is_a_projection():
    x, y = make_rows()
    dropping = BasisPosterior(
        KERNEL,
        NOISE_VARIANCE,
        10,
        growth=0.0,
        full=lambda mean, spread, inverse: -np.arange(len(mean)),
        alpha=0.3,
    )
    fixed = BasisPosterior(KERNEL, NOISE_VARIANCE, 10, **PRESETS["rgp"])
    assert_all_close(learn_all(dropping, x, y), learn_all(fixed, x, y))
    assert dropping.n_revised == 0


@pytest.fixture(scope="module")
def full_basis():
    """A basis that holds all of its fifteen samples, with these samples."""
    x, y = make_rows(15, seed=3)
    method = BasisPosterior(KERNEL, NOISE_VARIANCE, 15, **PRESETS["krls_t"])
    learn_all(method, x, y)
    return method, x, y


def changes_of_the_mean(method, covariance):
    """Return how much the mean at each point changes if the others have to predict it."""
    changes = []
    for point in range(len(method.mean)):
        others = np.delete(np.arange(len(method.mean)), point)
        weights = np.linalg.solve(covariance[np.ix_(others, others)], method.mean[others])
        changes.append(abs(method.mean[point] - covariance[point, others] @ weights))
    return changes


def test_scores_of_points_are_their_formulas(full_basis):
    method, x, _ = full_basis
    m = method.mean
    s = method.spread
    inverse = np.linalg.inv(prior_covariance(x))
    krls_t = PRESETS["krls_t"]["full"](m, s, inverse)
    sogp = PRESETS["sogp"]["full"](m, s, inverse)
    expected_sogp = (inverse @ m) ** 2 / np.diag(inverse @ s @ inverse)
    expected_krls_t = changes_of_the_mean(method, prior_covariance(x))
    assert_all_close((krls_t, sogp), (expected_krls_t, expected_sogp))


def test_the_point_of_lowest_score_leaves_the_marginal_of_the_others(full_basis):
    method, x, y = full_basis
    smaller = BasisPosterior(KERNEL, NOISE_VARIANCE, 14, **PRESETS["krls_t"])
    learn_all(smaller, x, y)
    covariance = prior_covariance(x)
    leaves = np.argmin(changes_of_the_mean(method, covariance))
    others = np.delete(np.arange(15), leaves)
    block = np.ix_(others, others)
    np.testing.assert_allclose(smaller.mean, method.mean[others], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(smaller.spread, method.spread[block], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(smaller.covariance, covariance[block], rtol=1e-7, atol=1e-9)
    product = smaller.factor @ smaller.factor.T
    np.testing.assert_allclose(product, covariance[block], rtol=1e-7, atol=1e-9)
    assert smaller.points.tolist() == x[others].tolist()
    assert smaller.n_revised == 1


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
    method = StreamingVFE(KERNEL, NOISE_VARIANCE, 10, batch=30, moves=3)
    learn_all(method, x[:30], y[:30])
    old = method.points
    half = method.factor @ np.linalg.inv(method.root).T
    m = method.factor @ method.weights
    s = half @ half.T
    learn_all(method, x[30:], y[30:])
    new = method.points
    is_same = (old[:, None] == new).all(axis=2)
    stayed, their_slots = np.nonzero(is_same)
    assert (len(new), len(stayed), method.n_revised) == (10, 7, 3)
    cross = KERNEL(old, new)
    cross[stayed, their_slots] += JITTER_RATIO * NOISE_VARIANCE
    inverse_old = np.linalg.inv(prior_covariance(old))
    inverse_new = np.linalg.inv(prior_covariance(new))
    r = cross @ inverse_new
    h = KERNEL(x[30:], new) @ inverse_new
    gained = r.T @ (np.linalg.inv(s) - inverse_old) @ r
    posterior = np.linalg.inv(inverse_new + h.T @ h / NOISE_VARIANCE + gained)
    mean = posterior @ (h.T @ y[30:] / NOISE_VARIANCE + r.T @ np.linalg.solve(s, m))
    k = KERNEL(x, new)
    known = inverse_new - inverse_new @ posterior @ inverse_new
    variance = NOISE_VARIANCE + 1.5 - np.diag(k @ known @ k.T)
    assert_all_close(method.predict(x), (k @ inverse_new @ mean, variance), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "penalty"),
    [("features", NOISE_VARIANCE), ("rls_inf", 1e-3), ("rls_20", 1e-3)],
)
def test_linear_models_are_weighted_ridge_regression(name, penalty):
    x, y = make_rows(300)
    method = METHODS[name]()
    learn_all(method, x, y)
    phi = method.features(x)
    test = method.features(x + 0.3)
    weights = method.kept ** np.arange(299, -1, -1)
    ridge = penalty * method.kept**300 * np.eye(phi.shape[1])
    inverse = np.linalg.inv(phi.T * weights @ phi + ridge)
    mean = test @ inverse @ (phi.T * weights) @ y
    variance = method.noise_variance * (1 + np.diag(test @ inverse @ test.T))
    assert_all_close(method.predict(x + 0.3), (mean, variance))


def test_recursive_least_squares_estimates_the_noise():
    x, y = make_rows(300)
    method = METHODS["rls_inf"]()
    learn_all(method, x, y)
    residual_variance = np.var(y - method.features(x) @ method.weights)
    assert 0.9 < method.noise_variance / residual_variance < 1.05


def test_products_of_random_features_are_the_kernel():
    x = make_rows(8)[0]
    drawn = [RandomFeatures(KERNEL, NOISE_VARIANCE, 20, seed=seed) for seed in range(1000)]
    products = np.mean([method.features(x) @ method.features(x).T for method in drawn], axis=0)
    np.testing.assert_allclose(products, KERNEL(x, x), atol=0.03)
    first, second = drawn[0].frequencies[:2] * KERNEL.length_scales
    assert abs(first @ second) < 1e-12


def pick_naively(x, n):
    """Pick n rows in turn, each the one of largest variance given those before."""
    picked = [0]
    while len(picked) < n:
        k = KERNEL(x[picked], x)
        explained = (k * np.linalg.solve(k[:, picked], k)).sum(axis=0)
        picked.append(np.argmax(1.5 - explained))
    return picked


def test_pivoted_cholesky_picks_what_is_least_known():
    x, _ = make_rows(40)
    picked = pick_naively(x, 12)
    np.testing.assert_array_equal(online_methods.pivoted_cholesky(KERNEL, x, 12), picked)


def test_pivoted_cholesky_goes_on_from_points_that_are_there():
    x, _ = make_rows(40)
    picked = pick_naively(x, 12)
    there = x[picked[:4]]
    explained = np.linalg.solve(np.linalg.cholesky(KERNEL(there, there)), KERNEL(there, x))
    rows = online_methods.pivoted_cholesky(KERNEL, x, 8, explained=explained)
    np.testing.assert_array_equal(rows, picked[4:])


def test_pivoted_cholesky_ends_where_nothing_is_left_to_explain():
    x, _ = make_rows(40)
    three_rows = np.repeat(x[:3], 5, axis=0)
    assert len(online_methods.pivoted_cholesky(KERNEL, three_rows, 12)) == 3


@pytest.mark.parametrize("name", METHODS)
def test_every_method_predicts_before_it_learns_and_keeps_a_bounded_memory(name):
    x, y = make_rows(200)
    method = METHODS[name]()
    learn_all(method, x[:100], y[:100])
    size = method.n_numbers
    for regressor, target in zip(x[100:], y[100:], strict=True):
        predicted = method.predict(regressor[None])
        assert_all_close(predicted, method.learn(regressor, target))
    assert 0 < size == method.n_numbers
    errors = learn_all(method, x, y)[:, 0] - y
    assert np.mean(errors**2) < 0.5 * y.var()


#: points that a method keeps of three equal samples, of which two are not novel
POINTS_OF_EQUAL_SAMPLES = {"krls_t": 3, "sogp": 1, "ald_krls": 1, "rgp": 3}


@pytest.mark.parametrize("name", METHODS)
def test_methods_with_a_novelty_test_store_equal_samples_once(name):
    x, y = make_rows(200)
    method = METHODS[name]()
    learn_all(method, x[[0, 0, 0]], y[:3])
    n_points = len(getattr(method, "points", []))
    assert n_points == POINTS_OF_EQUAL_SAMPLES.get(name, 0)
