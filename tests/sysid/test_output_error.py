"""The parts of a training for simulation against naive versions: segments, free run, regression, points, search."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import rosen

from sysid.kernels import Matern52, Matern52Form, SquaredExponential, SquaredExponentialForm
from sysid.lag_window import LagWindow
from sysid.mean import LinearMean
from sysid.model import Model
from sysid.narx import Narx, Target
from sysid.online import OnlineGP
from sysid.output_error.calibration import calibrated
from sysid.output_error.candidate import Candidate, squared_error
from sysid.output_error.cross_validation import HeldOut, folds_of, held_out
from sysid.output_error.increasing import reached
from sysid.output_error.pivot import pivots
from sysid.output_error.profile import ProfileSearch
from sysid.output_error.profile_problem import Profile, ProfileProblem
from sysid.output_error.ridge import Ridge, Targets
from sysid.output_error.route import Fitted, Route
from sysid.output_error.saturation import saturation_of
from sysid.output_error.segment import Segment, segments_of, shortened
from sysid.output_error.simplex import search
from sysid.scaling import Scaling
from sysid.start import InitialSamples

FREE = (-np.inf, np.inf)
LAGS = {
    "change": Narx({"y": 2}, {"u": [0, 1]}),
    "value": Narx({"y": 2}, {"u": [1, 3]}, predict="value"),
    "change, gaps": Narx({"y": [2, 5]}, {"u": 1}),
    "value, gaps": Narx({"y": [3, 4]}, {"u": 2}, predict="value"),
    "no input": Narx({"y": [1, 4]}),
    "another output": Narx({"y": 1, "x": [1, 2]}, {"u": [0], "v": [2]}, target="y"),
}


def record(narx, n=40, seed=0):
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(n) for name in narx.signals}


def samples_of(narx, *records):
    rows = [narx.regressors(signals) for signals in records]
    follows = np.concatenate([np.arange(len(row.target)) > 0 for row in rows])
    return InitialSamples(
        narx, np.concatenate([row.regressor for row in rows]), np.concatenate([row.target for row in rows]), follows
    )


def candidate_of(narx, n_points=5, limits=FREE, seed=1, size=0.1):
    generator = np.random.default_rng(seed)
    p = narx.n_features
    return Candidate(
        narx,
        Scaling(generator.standard_normal(p), generator.uniform(0.5, 2.0, p)),
        LinearMean(0.1 * generator.standard_normal(p), 0.2),
        Matern52(1.3, generator.uniform(1.0, 3.0, p)),
        generator.standard_normal((n_points, p)),
        size * generator.standard_normal(n_points),
        limits,
    )


def simulated_by_window(candidate, signals, first):
    """The whole record sample by sample; the target is measured before `first` and fed back from there on."""
    narx, window, outputs = candidate.narx, LagWindow(candidate.narx), []
    for k in range(len(signals[narx.target])):
        inputs = np.array([signals[name][k] for name in narx.input_names])
        x, value = window.regressor(inputs), signals[narx.target][k]
        if k >= first:
            z = candidate.scaling.transform(x)[None]
            target = candidate.mean(x[None])[0] + (candidate.kernel(z, candidate.points) @ candidate.weights)[0]
            value = narx.predict.to_value(target, outputs[-1])
            value = min(max(value, candidate.limits[0]), candidate.limits[1])
        outputs.append(value)
        others = {name: signals[name][k] for name in narx.output_names} | {narx.target: value}
        window.push(np.array([others[name] for name in narx.output_names]), inputs)
    return np.array(outputs)


# segments


@pytest.mark.parametrize("name", LAGS)
def test_segments_hold_the_measured_output(name):
    narx = LAGS[name]
    records = [record(narx, n, seed) for seed, n in enumerate((30, 25))]
    segments = segments_of(samples_of(narx, *records))
    assert len(segments) == 2
    for segment, signals in zip(segments, records, strict=True):
        first, longest = narx.max_lag, max(narx.lags["y"])
        np.testing.assert_allclose(segment.values, signals["y"][first:], rtol=1e-12, atol=1e-14)
        np.testing.assert_array_equal(segment.past, signals["y"][first - longest : first])
        np.testing.assert_allclose(segment.previous, signals["y"][first - 1 : -1], rtol=1e-12, atol=1e-14)
        part = segment.part(7, 11)
        np.testing.assert_allclose(part.values, signals["y"][first + 7 : first + 11])
        np.testing.assert_allclose(part.past, signals["y"][first + 7 - longest : first + 7])
        np.testing.assert_array_equal(part.regressors, segment.regressors[7:11])


def test_a_segment_shorter_than_its_lags_is_simulated_all_the_same():
    narx, signals = LAGS["change, gaps"], record(LAGS["change, gaps"], 9)
    whole = segments_of(samples_of(narx, signals))[0]
    rows = narx.regressors(signals)
    short = InitialSamples(narx, rows.regressor[:3], rows.target[:3], np.array([False, True, True]))
    (segment,) = segments_of(short)
    candidate = candidate_of(narx)
    np.testing.assert_allclose(candidate.simulate(segment), candidate.simulate(whole)[:3])


def test_samples_that_cannot_be_simulated_are_refused():
    static = Narx({"y": []}, {"u": [0]}, predict="value")
    with pytest.raises(ValueError, match="expected lags of the target 'y'"):
        segments_of(samples_of(static, record(static)))
    narx = LAGS["change, gaps"]
    rows = narx.regressors(record(narx))
    alone = InitialSamples(narx, rows.regressor[:3], rows.target[:3], np.array([False, True, False]))
    with pytest.raises(ValueError, match="at least 2 samples, the smallest lag of 'y', got one of 1"):
        segments_of(alone)
    with pytest.raises(ValueError, match="expected samples, got none"):
        segments_of(InitialSamples(narx, rows.regressor[:0], rows.target[:0], np.zeros(0, dtype=bool)))


def test_parts_are_shortened_from_the_front():
    segments = segments_of(samples_of(LAGS["change"], record(LAGS["change"], 12), record(LAGS["change"], 12)))
    kept = shortened(segments, 13)
    assert [len(part.values) for part in kept] == [10, 3]
    np.testing.assert_array_equal(kept[1].values, segments[1].values[:3])


# simulation


@pytest.mark.parametrize("name", LAGS)
@pytest.mark.parametrize("limits", [FREE, (-0.4, 0.6)])
def test_the_free_run_is_that_of_a_lag_window(name, limits):
    narx = LAGS[name]
    signals, candidate = record(narx, 25), candidate_of(narx, limits=limits)
    (segment,) = segments_of(samples_of(narx, signals))
    for start in (0, 6):
        first = narx.max_lag + start
        naive = simulated_by_window(candidate, signals, first)[first:]
        np.testing.assert_allclose(candidate.simulate(segment, start), naive, rtol=1e-9, atol=1e-12)
    naive = simulated_by_window(candidate, signals, narx.max_lag)[narx.max_lag :]
    assert squared_error(candidate, [segment]) == pytest.approx(np.mean((naive - segment.values) ** 2))


def test_a_free_run_that_leaves_its_bounds_is_nan_from_there():
    narx = Narx({"y": 1}, predict="value")
    growing = Candidate(
        narx, Scaling.identity(1), LinearMean([2.0]), SquaredExponential(1.0, [1.0]), np.zeros((1, 1)), np.zeros(1),
        bounds=(-10.0, 10.0),
    )  # fmt: skip
    segment = Segment(np.ones((5, 1)), np.ones(5), np.ones(1))
    np.testing.assert_array_equal(growing.simulate(segment), [2.0, 4.0, 8.0, np.nan, np.nan])
    assert squared_error(growing, [segment]) == np.inf


# pseudo targets


@pytest.mark.parametrize("noise", [1e-4, 0.1, 10.0])
def test_the_online_gp_of_a_start_is_the_same_function(noise):
    narx = LAGS["change"]
    candidate = candidate_of(narx, n_points=8, limits=(-1.0, 2.0))
    x = np.random.default_rng(3).standard_normal((30, narx.n_features))
    start = candidate.start(noise, 0.02, x)
    gp = OnlineGP(start.hyperparameters.kernel, noise_variance=noise, budget=8).fit(*start.points)
    model = Model(narx, start.scaling, start.mean, gp, limits=start.limits)
    found = model.predict(x)
    np.testing.assert_allclose(found.mean, candidate.predict(x), rtol=1e-6, atol=1e-8)
    assert found.variance.mean() == pytest.approx(0.02, rel=5e-3)
    assert start.limits == (-1.0, 2.0)


def test_the_noise_for_a_latent_variance():
    narx = LAGS["change"]
    candidate, x = candidate_of(narx, n_points=8), np.random.default_rng(3).standard_normal((30, narx.n_features))
    noise = candidate.noise_for(0.9, x)
    gp = OnlineGP(candidate.kernel, noise_variance=noise, budget=8).fit(candidate.points, np.zeros(8))
    assert gp.predict(candidate.scaling.transform(x))[1].mean() == pytest.approx(0.9, rel=1e-2)


def test_reached():
    assert reached(lambda x: x**3, 8.0, 0.1, 10.0, tolerance=1e-10) == pytest.approx(2.0)
    assert reached(lambda x: x, 0.01, 0.1, 10.0) == 0.1
    assert reached(lambda x: x, 100.0, 0.1, 10.0) == 10.0


# regression


def regression(n=30, d=4, seed=0):
    generator = np.random.default_rng(seed)
    return generator.standard_normal((n, d)), generator.standard_normal(n)


def naive_weights(phi, t, noise_variance):
    """Least squares with the prior as further rows."""
    rows = np.vstack([phi / np.sqrt(noise_variance), np.eye(phi.shape[1])])
    return np.linalg.lstsq(rows, np.append(t / np.sqrt(noise_variance), np.zeros(phi.shape[1])), rcond=None)[0]


def test_weights_without_a_block_are_those_of_the_other_rows():
    phi, t = regression()
    nothing = np.zeros(30, dtype=bool)
    ridge = Ridge(lambda rows: phi[rows], Targets(t, nothing, nothing), np.array([0, 7, 10, 22, 30]), 0.3)
    np.testing.assert_allclose(ridge.weights(), naive_weights(phi, t, 0.3), rtol=1e-10)
    for first, last in ((0, 7), (7, 22), (10, 30)):
        rest = np.r_[0:first, last:30]
        np.testing.assert_allclose(ridge.weights(first, last), naive_weights(phi[rest], t[rest], 0.3), rtol=1e-9)
    covariance = np.linalg.inv(phi.T @ phi / 0.3 + np.eye(4))
    expected = np.mean([row @ covariance @ row for row in phi])
    assert ridge.mean_variance() == pytest.approx(expected)


def test_saturated_targets_are_bounds():
    phi, t = regression()
    above, below = np.zeros(30, dtype=bool), np.zeros(30, dtype=bool)
    above[[3, 10]], below[20] = True, True
    ridge = Ridge(lambda rows: phi[rows], Targets(t, above, below), np.array([0, 10, 30]), 0.3)
    seen = t.copy()
    for _ in range(8):
        w = naive_weights(phi, seen, 0.3)
        seen = np.where(above, np.maximum(t, phi @ w), np.where(below, np.minimum(t, phi @ w), t))
    np.testing.assert_allclose(ridge.weights(), w, rtol=1e-8)
    assert not np.allclose(w, naive_weights(phi, t, 0.3), rtol=1e-3)
    rest = np.r_[10:30]
    seen = t[rest]
    for _ in range(8):
        w = naive_weights(phi[rest], seen, 0.3)
        p = phi[rest] @ w
        seen = np.where(above[rest], np.maximum(t[rest], p), np.where(below[rest], np.minimum(t[rest], p), t[rest]))
    np.testing.assert_allclose(ridge.weights(0, 10), w, rtol=1e-8)


# points


def test_pivots_are_the_points_of_largest_variance_one_after_the_other():
    x = np.random.default_rng(0).standard_normal((20, 2))
    kernel = SquaredExponential(1.7, [1.0, 2.0])
    found = pivots(kernel, x, 6, 1e-9)
    K, chosen = kernel(x, x), [0]
    for _ in range(5):
        known = K[:, chosen] @ np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen])
        chosen.append(int(np.argmax(np.diag(K) - np.diag(known))))
    np.testing.assert_array_equal(found.chosen, chosen)
    known = K[:, chosen] @ np.linalg.solve(K[np.ix_(chosen, chosen)], K[chosen])
    np.testing.assert_allclose(found.columns.T @ found.columns, known, atol=1e-10)
    np.testing.assert_allclose(found.residual, np.diag(K - known), atol=1e-10)
    v = np.arange(6.0)
    np.testing.assert_allclose(kernel(x, x[chosen]) @ found.to_weights(v), found.columns.T @ v, atol=1e-8)
    np.testing.assert_allclose(found.features(kernel(x, x[chosen])), found.columns.T, atol=1e-8)


def test_pivots_stop_where_nothing_is_left():
    x = np.repeat(np.random.default_rng(0).standard_normal((3, 2)), 4, axis=0)
    found = pivots(SquaredExponential(1.0, [1.0, 1.0]), x, 10, 1e-6)
    assert sorted(found.chosen // 4) == [0, 1, 2]
    np.testing.assert_allclose(found.residual, 0.0, atol=1e-12)


# saturation


def segment_with(values):
    return Segment(np.zeros((len(values), 1)), np.asarray(values, dtype=float), np.zeros(1))


RISING = [0.1, 0.3, 0.2, 1.0, 1.0, 1.0, 0.4, 0.6]


def test_a_repeated_extreme_is_a_limit():
    found = saturation_of([segment_with([*RISING, *RISING])])
    assert found == ((-np.inf, 1.0), (0, 6))
    found = saturation_of([segment_with(RISING), segment_with(-np.array(RISING)), segment_with(-np.array(RISING))])
    assert found == ((-1.0, np.inf), (6, 0))


@pytest.mark.parametrize(
    "values",
    [
        [0.0, *RISING, 0.9, *RISING, 1.1],  # one sample beyond
        [0.1, 0.3, *[1.0] * 6, 0.4],  # one run
        [1.0, 1.0, 1.0, 0.5, 0.2, 1.0, 1.0, 1.0, 0.3],  # one of two runs is rest in the beginning
        [0.5, 1.0, 1.0, 1.0, 0.2, 1.0, 1.0, 1.0],  # or at the end
        [0.3, 0.5, 1.0, 0.2, 1.0, 0.3, 1.0, 0.4, 1.0, 0.5, 1.0, 0.2],  # never for long
        [2.0] * 20,
    ],
)
def test_other_signals_have_no_limit(values):
    assert saturation_of([segment_with(values)]).limits == FREE


# cross-validation


class Remembers(Route):
    """Constant output, the mean of what it was fitted to."""

    def __init__(self):
        self.seen = []

    def fit(self, segments, narx, budget, seed, limits):
        values = np.concatenate([segment.values for segment in segments])
        self.seen.append(values)
        mean = LinearMean([0.0] * narx.n_features, float(values.mean()))
        nothing = np.zeros((1, narx.n_features))
        kernel = SquaredExponential(1.0, np.ones(narx.n_features))
        candidate = Candidate(narx, Scaling.identity(narx.n_features), mean, kernel, nothing, np.zeros(1), limits)
        return Fitted(candidate, 0.1, {"n": len(values)})


def test_folds_leave_out_every_sample_once_and_cut_through_segments():
    narx = Narx({"y": 1}, predict="value")
    segments = segments_of(samples_of(narx, *(record(narx, n, n) for n in (8, 15))))
    everything = np.concatenate([segment.values for segment in segments])
    folds = folds_of(segments, 3)
    assert [fold.n_samples for fold in folds] == [7, 7, 7]
    left_out = [np.concatenate([part.values for part in fold.parts]) for fold in folds]
    np.testing.assert_array_equal(np.concatenate(left_out), everything)
    for fold, out in zip(folds, left_out, strict=True):
        rest = np.concatenate([segment.values for segment in fold.rest])
        np.testing.assert_array_equal(np.sort(np.concatenate([rest, out])), np.sort(everything))
    route = Remembers()
    found = held_out(route, folds, narx, budget=5, seed=0, limits=FREE)
    errors = [np.mean((out - seen.mean()) ** 2) for out, seen in zip(left_out, route.seen, strict=True)]
    np.testing.assert_allclose(found.parts, errors)
    assert found.rmse == pytest.approx(np.sqrt(np.mean(errors)))
    assert [fitted.report["n"] for fitted in found.fitted] == [14, 14, 14]


@pytest.mark.parametrize("n", [1, 7])
def test_impossible_folds_are_refused(n):
    narx = Narx({"y": 1})
    with pytest.raises(ValueError, match=f"from 2 to 6 folds of 6 samples, got {n}"):
        folds_of(segments_of(samples_of(narx, record(narx, 7))), n)


# calibration


@pytest.mark.parametrize("scale", [0.1, 3.0])
def test_the_band_covers_95_percent_of_the_held_out_samples(scale):
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    segments = [
        segment._replace(values=scale * segment.values) for segment in segments_of(samples_of(narx, record(narx, 121)))
    ]
    folds = folds_of(segments, 2)
    parts = [candidate_of(narx, n_points=8, size=0.02, seed=seed) for seed in (1, 2)]
    latents = (0.9, 1.0)
    fitted = tuple(Fitted(part, latent, {}) for part, latent in zip(parts, latents, strict=True))
    found = HeldOut(0.1, (0.1, 0.1), fitted)
    whole = Fitted(candidate_of(narx, n_points=6, seed=3), 1.1, {})

    def covered(candidate, noise, latent, fold):
        """Held-out samples within the band of functions drawn from the posterior of the online GP at all regressors."""
        x = np.concatenate([segment.regressors for segment in (*fold.rest, *fold.parts)])
        start = candidate.start(noise, latent, fold.rest[0].regressors)
        z, kernel, own = candidate.scaling.transform(x), start.hyperparameters.kernel, candidate.points
        known = np.linalg.inv(kernel(own, own) + noise * np.eye(len(own)))
        covariance = kernel(z, z) - kernel(z, own) @ known @ kernel(own, z)
        draws = np.random.default_rng(5).multivariate_normal(np.zeros(len(z)), covariance, 200, check_valid="ignore")
        around = np.linalg.solve(candidate.kernel(z, z) + 1e-9 * np.eye(len(z)), draws.T).T
        points = np.vstack([own, z])
        moved = [candidate.expanded(points, np.append(candidate.weights, w)) for w in around]
        (part,) = fold.parts
        variance = np.var([function.simulate(part) for function in moved], axis=0) + noise
        return np.abs(candidate.simulate(part) - part.values) < 1.96 * np.sqrt(variance)

    x = segments[0].regressors
    noise, latent = calibrated(whole, segments, found, folds, generator=np.random.default_rng(0))
    share = latent / 1.1
    assert noise / whole.candidate.noise_for(1.1, x) == pytest.approx(share, rel=1e-3)

    def part_covered(share):
        inside = []
        for candidate, before, fold in zip(parts, latents, folds, strict=True):
            rest = fold.rest[0].regressors
            inside.append(covered(candidate, share * candidate.noise_for(before, rest), share * before, fold))
        return np.mean(np.concatenate(inside))

    assert 0.88 <= part_covered(share) <= 0.99
    assert part_covered(share / 9) < 0.75


# search


def test_the_search_finds_a_minimum_and_keeps_to_its_evaluations():
    asked = []

    def cost(x):
        asked.append(x.copy())
        return rosen(x)

    found = search(cost, [np.array([-1.2, 1.0]), np.array([3.0, 3.0])], size=0.5, bound=4.0, evaluations=300)
    assert len(asked) == found.n_evaluations <= 300
    assert found.value == rosen(found.x) == min(map(rosen, asked)) < 1e-2
    assert np.max(np.abs(asked)) <= 4.0
    assert len(found.starts) == 2
    asked.clear()
    few = search(cost, [np.zeros(2), np.ones(2)], size=0.5, bound=4.0, evaluations=7)
    assert len(asked) == few.n_evaluations == 7


# profile


def test_length_scales_follow_a_profile_over_the_lag():
    narx = Narx({"y": [1, 3], "x": [2]}, {"u": [0, 1, 4], "v": [5]}, target="y")
    profile = Profile(narx)
    assert len(profile.priors) == 2 + 1 + 2 + 1 + 3
    z = np.linspace(-1.0, 1.0, 9)
    theta = [prior.median + prior.std * value for prior, value in zip(profile.priors, z, strict=True)]
    a_y, b_y, a_x, a_u, b_u, a_v, size, noise, slope = theta
    expected = [a_y, a_y + 2 * b_y, a_x, a_u, a_u + b_u, a_u + 4 * b_u, a_v]
    found = profile.values(z)
    np.testing.assert_allclose(np.log(found.lengths), expected, atol=1e-12)
    np.testing.assert_allclose(np.log([found.size, found.noise, found.slope]), [size, noise, slope])
    np.testing.assert_array_equal(profile.values(100 * z).lengths, profile.values(4.0 * np.sign(z)).lengths)


def system(n=60, seed=0, limit=np.inf, noise=0.0):
    generator = np.random.default_rng(seed)
    u, y = generator.standard_normal(n), np.zeros(n)
    for k in range(1, n):
        y[k] = min(0.7 * y[k - 1] + np.tanh(u[k - 1]) + noise * generator.standard_normal(), limit)
    return {"y": y, "u": u}


def naive_error(problem, narx, values, form, partitions):
    """Free-run error over all blocks with models of rows outside of them, by least squares and lag windows."""
    rows, p = problem.regressors, narx.n_features
    names = [name for name, _ in narx.features]
    scale = np.array([rows[:, names.index(name)].std() for name in names])
    offset = np.array([rows[:, names.index(name)].mean() for name in names])
    z, kernel = (rows - offset) / scale, form.kernel(1.0, values.lengths)
    points = z[pivots(kernel, z, problem.n_points, 1e-6).chosen]
    root = np.linalg.cholesky(kernel(points, points) + 1e-12 * np.eye(len(points)))
    phi = np.hstack([
        values.size * np.linalg.solve(root, kernel(points, z)).T,
        values.slope * np.column_stack([z / values.lengths, np.ones(len(z))]),
    ])  # fmt: skip
    total, count = 0.0, 0
    for n in partitions:
        cuts = np.linspace(0, len(z), n + 1).astype(int)
        for first, last in pairwise(cuts):
            rest = np.r_[0:first, last : len(z)]
            w = naive_weights(phi[rest], problem.targets.values[rest], values.noise**2)
            y = problem.outputs_before(first)
            for k in range(first, last):
                x = rows[k].copy()
                x[0] = y
                at = (x - offset) / scale
                g = np.linalg.solve(root, kernel(points, at[None]))[:, 0]
                features = np.r_[values.size * g, values.slope * at / values.lengths, values.slope]
                change = problem.unit * features @ w
                y = y + change
                total += (y - problem.value_at(k)) ** 2
                count += 1
    assert p == 2
    return np.sqrt(total / count) / problem.spread


@pytest.mark.parametrize("predict", ["change", "value"])
@pytest.mark.parametrize("form", [SquaredExponentialForm(), Matern52Form()])
def test_the_objective_is_the_error_of_blocks_that_were_left_out(predict, form):
    narx = Narx({"y": 1}, {"u": 1}, predict=predict)
    signals = system()
    segments = segments_of(samples_of(narx, signals))
    problem = ProfileProblem(
        narx, segments, FREE, form=form, blocks=(2, 3), points=6, rows=1000, simulated=1000, regularisation=0.1
    )
    problem.outputs_before = lambda k: signals["y"][k]  # row k belongs to sample k + 1
    problem.value_at = lambda k: signals["y"][k + 1]
    z = np.array([0.1, -0.2, 0.3, -0.4, 0.2])
    expected = naive_error(problem, narx, problem.profile.values(z), form, (2, 3))
    assert problem.error(z) == pytest.approx(expected, rel=1e-5)
    assert problem.cost(z) == pytest.approx(np.log(expected) + 0.05 * z @ z, rel=1e-5)
    final = problem.final(problem.profile.values(z), 6)
    fitted = problem.fit(problem.profile.values(z))
    np.testing.assert_allclose(final.ridge.weights(), fitted.ridge.weights(), rtol=1e-6)
    assert problem.narx.predict is Target(predict)


def test_lags_of_a_signal_share_a_scale_and_saturated_samples_are_bounds():
    narx, signals = Narx({"y": 2}, {"u": [1, 2, 3]}), system(40, limit=1.0)
    problem = ProfileProblem(
        narx, segments_of(samples_of(narx, signals)), (-9.0, 1.0), form=SquaredExponentialForm(), blocks=(2,), points=6,
        rows=100, simulated=100, regularisation=0.0,
    )  # fmt: skip
    y, u = signals["y"][2:-1], signals["u"][2:-1]  # at lag 1, from sample 3 on
    np.testing.assert_allclose(problem.scaling.offset, [y.mean()] * 2 + [u.mean()] * 3)
    np.testing.assert_allclose(problem.scaling.scale, [y.std()] * 2 + [u.std()] * 3)
    np.testing.assert_array_equal(problem.targets.above, signals["y"][3:] == 1.0)
    assert problem.targets.above.any()
    assert not problem.targets.below.any()


QUICK = ProfileSearch(kernels=[SquaredExponentialForm()], evaluations=12, starts=1, blocks=(2,), points=8)


def test_a_route_simulates_what_it_has_not_seen():
    narx = Narx({"y": 1}, {"u": 1})
    segments = segments_of(samples_of(narx, system(160)))
    fitted = replace(QUICK, evaluations=40).fit(segments, narx, 10, 0, FREE)
    (fresh,) = segments_of(samples_of(narx, system(80, seed=9)))
    assert squared_error(fitted.candidate, [fresh]) < 0.01 * np.var(fresh.values)
    assert len(fitted.candidate.weights) <= 10
    assert fitted.latent_variance > 0
    assert fitted.report["searches"][0]["evaluations"] <= 40


def test_thinned_rows_and_short_simulations_bound_the_cost():
    narx = Narx({"y": 1}, {"u": 1})
    segments = segments_of(samples_of(narx, system(81), system(61, 1)))
    problem = ProfileProblem(
        narx, segments, FREE, form=SquaredExponentialForm(), blocks=(2, 4), points=6, rows=50, simulated=40,
        regularisation=0.0,
    )  # fmt: skip
    assert len(problem.inputs) == 47
    assert sum(len(part.values) for block in problem.blocks for part in block.parts) == 40
    assert [(block.first, block.last) for block in problem.blocks[:2]] == [(0, 24), (24, 47)]
    assert np.isfinite(problem.cost(np.zeros(5)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernels": []}, "stationary forms"),
        ({"kernels": ["rbf"]}, "stationary forms"),
        ({"blocks": [1, 2]}, "at least 2"),
        ({"evaluations": 0}, "evaluations must be a whole number"),
        ({"starts": True}, "starts must be a whole number"),
        ({"regularisation": -1.0}, "regularisation"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ProfileSearch(**settings)


def test_too_few_samples_and_a_constant_output_are_refused():
    narx = Narx({"y": 1}, {"u": 1})
    segments = segments_of(samples_of(narx, system(20)))
    with pytest.raises(ValueError, match=r"expected at least 40 samples, 5 in each of 8 blocks, got 19"):
        ProfileSearch().fit(segments, narx, 10, 0, FREE)
    flat = system(60)
    flat["y"] = np.ones(60)
    with pytest.raises(ValueError, match="the output 'y' does not vary"):
        QUICK.fit(segments_of(samples_of(narx, flat)), narx, 10, 0, FREE)
