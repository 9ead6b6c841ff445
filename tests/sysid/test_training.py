"""Training: objective and gradient, starts and bounds, recovery, optimality, units, odd data, start
data, selection.
"""

import math
from functools import partial

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import rosen, rosen_der

from naive import (
    CRITERIA,
    NaiveGP,
    backward_elimination,
    covariance,
    criterion_name,
    finite_differences,
)
from sysid.gp.affine_map import AffineMap, Projection, Scaling
from sysid.gp.kernels import (
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from sysid.gp.marginal_likelihood import log_marginal_likelihood, minimise
from sysid.gp.mean import ConstantMean, LinearMean, ZeroMean
from sysid.gp.online import OnlineGP
from sysid.gp.selection import Backward, Forward
from sysid.gp.training import (
    Fixed,
    Hyperparameters,
    MarginalLikelihoodProblem,
    MaximumAPosteriori,
    MaximumLikelihood,
    Points,
    Start,
    Training,
)
from sysid.model.description import build, describe
from sysid.model.model_file import start_from_dataset, start_to_dataset
from sysid.store import from_file, to_bytes

FORMS = {
    "squared_exponential": SquaredExponential(),
    "matern_32": Matern32(),
    "matern_52": Matern52(),
    "linear": Linear(),
    "sum": Sum([Linear(), SquaredExponential()]),
    "product": Product([Linear(), Matern52()]),
    "nested": Sum([Product([SquaredExponential(), Sum([Linear(), Matern32()])]), Linear()]),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
each_kind = pytest.mark.parametrize("kind", [MaximumLikelihood, MaximumAPosteriori])


def gp_sample(kernel, noise_variance, seed, n=150):
    """Inputs and targets drawn from the prior itself."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, kernel.n_features))
    return x, np.linalg.cholesky(
        covariance(kernel, x, x) + noise_variance * np.eye(n)
    ) @ rng.normal(size=n)


def smooth_sample(length_scales, noise_variance, seed, n=150):
    return gp_sample(SquaredExponential(1.0, length_scales), noise_variance, seed, n)


def some_data(n=15):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2)) * [1.0, 3.0]
    return x, x[:, 0] + np.sin(x[:, 1]) + 0.1 * rng.normal(size=n)


def problem_of(form, kind=MaximumAPosteriori):
    return MarginalLikelihoodProblem.of(kind(kernel=form, weight_prior_median=2.0), *some_data())


# --- marginal likelihood and objective --------------------------------------------------------------


@each_kind
@each_form
def test_cost_is_minus_the_log_posterior_of_a_naive_gp_with_its_gradient(form, kind):
    problem = problem_of(form, kind)
    at = problem.starts(3, np.random.default_rng(0))[2] + 0.1
    kernel, noise = problem.kernel_and_noise(at)
    naive = NaiveGP(kernel, noise, problem.inputs, problem.targets).log_likelihood()
    assert problem.log_likelihood(at).value == pytest.approx(naive, rel=1e-8)
    assert problem.cost(at)[0] == pytest.approx(problem.prior(at)[0] - naive, rel=1e-8)
    one = np.ones((1, 2))
    assert noise == pytest.approx(covariance(kernel, one, one)[0, 0] * np.exp(at[-1]), rel=1e-12)
    numerical = finite_differences(lambda v: problem.cost(v)[0], at, 1e-3)
    np.testing.assert_allclose(problem.cost(at)[1], numerical, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(problem.logarithms(kernel, noise), at, atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError, match="15 points is not positive definite"):
        log_marginal_likelihood(kernel, -1e6, problem.inputs, problem.targets)


@each_form
def test_a_prior_holds_length_scales_and_weights_to_its_medians(form):
    """The minimum of the prior is at the medians; signal variances have none."""
    problem = problem_of(form)
    space = problem.space
    held = np.isfinite(space.stds)
    ending = np.array([name.rpartition(": ")[2] for name in problem.unit.hyperparameter_names])
    assert all(
        name.startswith(("length scale", "weight variance", "offset")) for name in ending[held]
    )
    assert not any(name.startswith(("length", "weight")) for name in ending[~held])
    x = np.append(space.start, 0.0)
    x[:-1][held] = space.medians[held]
    for moved in (0.0, 0.5):
        x[np.argmax(held)] += moved
        x[-1] = np.log(0.1 * problem.expected.variance) - problem.unit.log_variance(x[:-1])[0]
        assert problem.prior(x)[0] == pytest.approx(
            0.5 * (moved / space.stds[held][0]) ** 2, rel=1e-9, abs=1e-20
        )


# --- starts and bounds ------------------------------------------------------------------------------


@each_form
def test_starts_lie_within_the_bounds_and_the_first_is_typical_then_follow_the_seed(
    form,
):
    problem = problem_of(form)
    low, high = problem.bounds.T
    runs = [problem.starts(3, np.random.default_rng(seed)) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0][:2], runs[2][:2])
    first, longer, drawn = runs[0]
    for start in (first, longer, drawn):
        assert np.all((low <= start) & (start <= high))
    assert np.all((drawn != first)[low < high])
    assert np.all((drawn != runs[2][2])[low < high])
    kernel = problem.unit.with_log_hyperparameters(first[:-1])
    x = np.vstack([np.zeros(2), problem.expected.lengths])
    assert (
        0.05 * problem.expected.variance
        < kernel(x, x).diagonal().max()
        < 20 * problem.expected.variance
    )
    if form is FORMS["sum"]:
        half = problem.expected.variance / 2
        scale = 2.0 * problem.expected.variance / np.var(problem.inputs, axis=0)
        for start, factor in ((first, 1), (longer, 20)):
            linear, smooth = problem.kernel_and_noise(start)[0].parts
            np.testing.assert_allclose(
                linear.parameters(), [half, *(scale / factor**2)], rtol=1e-12
            )
            np.testing.assert_allclose(
                smooth.parameters(),
                [half, *(factor * problem.expected.lengths)],
                rtol=1e-12,
            )


@pytest.mark.parametrize(
    "further", [Linear(), Matern32(), FORMS["sum"]], ids=["linear", "matern_32", "sum"]
)
def test_a_further_factor_has_no_unit_and_no_prior_on_its_fixed_scale(further):
    x, y = some_data()
    training = MaximumAPosteriori(kernel=Product([SquaredExponential(), further]))
    one, other = (MarginalLikelihoodProblem.of(training, x, c * y).space for c in (1.0, 1e-2))
    shift = np.zeros(len(one.start))
    shift[0] = np.log(1e-4)  # the first factor's variance has the unit
    np.testing.assert_allclose(other.start, one.start + shift, atol=1e-12)
    np.testing.assert_allclose(other.bounds, one.bounds + shift[:, None], atol=1e-12)
    np.testing.assert_allclose(other.medians[1:], one.medians[1:], atol=1e-12)
    assert np.isfinite(one.stds[:6]).tolist() == [False, True, True, False, True, True]
    assert one.bounds[3, 0] == one.bounds[3, 1] == one.start[3]
    found = MaximumAPosteriori(kernel=FORMS["product"], restarts=1).train(x, y, seed=0)
    assert found.kernel.parts[1].variance == 1.0
    assert not any("part 2: signal variance" in text for text in found.warnings)


# --- what is found ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise_variance", [0.1, 1e-3])
@pytest.mark.parametrize("kind", [SquaredExponential, Matern32, Matern52])
def test_hyperparameters_of_a_gp_sample_are_recovered_bit_for_bit_again(kind, noise_variance):
    truth = kind(1.0, [0.5, 1.5])
    x, y = gp_sample(truth, noise_variance, seed=1)
    before = (x.tobytes(), y.tobytes())
    training = MaximumLikelihood(kernel=kind(), restarts=3)
    result = training.train(x, y, seed=0)
    assert result == training.train(x.copy(), y.copy(), seed=0)
    assert (x.tobytes(), y.tobytes()) == before
    assert type(result.kernel) is kind
    ratio = np.array(result.kernel.length_scales) / truth.length_scales
    assert np.all((ratio > 0.5) & (ratio < 2))
    assert 1 / 3 < result.noise_variance / noise_variance < 3
    assert 0.1 < result.kernel.variance < 10
    assert result.warnings == ()
    naive = NaiveGP(result.kernel, result.noise_variance, x, y).log_likelihood()
    assert result.log_likelihood == pytest.approx(naive, rel=1e-6)
    assert naive > NaiveGP(truth, noise_variance, x, y).log_likelihood()


def test_priors_hold_what_the_data_do_not_decide():
    x, y = smooth_sample([1.0], 1e-2, seed=21, n=12)
    x = np.column_stack([x, np.random.default_rng(22).normal(size=12)])
    plain = MaximumLikelihood().train(x, y, seed=0)
    held = MaximumLikelihood(length_scale_prior_median=3.0, length_scale_prior_std=0.01).train(
        x, y, seed=0
    )
    distances = [
        np.median(np.abs(column[:, None] - column)[np.triu_indices(12, 1)]) for column in x.T
    ]
    median = 3.0 * np.sqrt(2) * np.array(distances)
    np.testing.assert_allclose(held.kernel.length_scales, median, rtol=0.1)
    assert np.abs(np.log(plain.kernel.length_scales / median)).max() > 1.0
    assert held.log_likelihood <= plain.log_likelihood + 1e-6
    tight = MaximumLikelihood(noise_prior_median=0.5, noise_prior_std=1e-3).train(x, y, seed=0)
    assert tight.noise_variance == pytest.approx(0.5 * np.mean(y**2), rel=1e-2)


@each_kind
@pytest.mark.parametrize("form", [FORMS["squared_exponential"], FORMS["sum"], FORMS["product"]])
def test_units_of_target_and_features_scale_out(form, kind):
    x, y = some_data(30)
    training = kind(kernel=form, restarts=1)
    new = np.array([[0.3, 1.0], [2.0, -4.0]])
    result = training.train(x, y, seed=0)
    for factor, unit in ((1e-4, 1.0), (1e5, 1.0), (1.0, np.array([1e3, 1.0]))):
        scaled = training.train(unit * x, factor * y, seed=0)
        assert scaled.log_likelihood == pytest.approx(
            result.log_likelihood - 30 * np.log(factor), abs=2e-2
        )
        assert scaled.noise_variance == pytest.approx(factor**2 * result.noise_variance, rel=5e-2)
        np.testing.assert_allclose(
            scaled.kernel(unit * new, unit * new),
            factor**2 * result.kernel(new, new),
            rtol=0.1,
        )


ODD = {
    "constant feature": lambda x, y: (np.column_stack([x, np.full(len(y), 3.0)]), y),
    "almost constant feature": lambda x, y: (
        np.column_stack([x, np.full(len(y), 0.1)]),
        y,
    ),
    "duplicate rows": lambda x, y: (np.repeat(x, 3, axis=0), np.repeat(y, 3)),
    "target of zeros": lambda x, y: (x, 0.0 * y),
    "constant target": lambda x, y: (x, 0.0 * y + 5.0),
    "two points": lambda x, y: (x[:2], y[:2]),
    "no noise": lambda x, y: (x, np.sin(3 * x[:, 0])),
}


@pytest.mark.parametrize(
    ("kind", "form", "change"),
    [
        *(
            (kind, SquaredExponential(), change)
            for kind in (MaximumLikelihood, MaximumAPosteriori)
            for change in ODD
        ),
        *((MaximumLikelihood, form, "no noise") for form in FORMS.values()),
    ],
)
def test_odd_data_are_survived(kind, form, change):
    """The result is what an online GP can hold."""
    x, y = ODD[change](*smooth_sample([0.6], 1e-2, seed=25, n=40))
    result = kind(kernel=form, restarts=2, max_iterations=50).train(x, y, seed=0)
    gp = OnlineGP(result.kernel, noise_variance=result.noise_variance, budget=len(y)).fit(x, y)
    mean, variance = gp.predict(x)
    assert np.isfinite([*mean, *variance, result.log_likelihood]).all()
    assert (variance >= 0).all()
    assert np.exp(result.kernel.log_hyperparameters()).min() > 1e-12


def test_a_bound_that_is_reached_is_reported():
    x = np.linspace(-1, 1, 25)[:, None]
    noise_free = MaximumLikelihood().train(x, np.sin(3 * x[:, 0]), seed=0)
    assert noise_free.noise_variance >= 1e-8 * noise_free.kernel.variance * (1 - 1e-9)
    assert "noise variance at its lower bound" in noise_free.warnings
    y = np.random.default_rng(0).normal(size=25)
    noisy = MaximumLikelihood(noise_bounds=(1e-8, 1e-3), variance_bounds=(0.1, 0.2)).train(
        x, y, seed=0
    )
    assert set(noisy.warnings) == {
        "signal variance at its upper bound",
        "noise variance at its upper bound",
    }


# --- settings ---------------------------------------------------------------------------------------

PARTS = ("length_scale", "variance", "weight")
PRIORS = ("length_scale", "weight", "noise")
MOMENTS = ("median", "std")
GIVEN = {"variance": 2.0, "length_scales": [1.0, 4.0], "noise_variance": 0.1}


@pytest.mark.parametrize(
    ("form", "kernel"),
    [
        (Matern52(), Matern52(2.0, [1.0, 4.0])),
        (
            FORMS["sum"],
            Sum([Linear(1.0, [1.0, 0.0625]), SquaredExponential(1.0, [1.0, 4.0])]),
        ),
        (
            FORMS["product"],
            Product([Linear(2.0, [2.0, 0.125]), Matern52(1.0, [1.0, 4.0])]),
        ),
    ],
)
def test_fixed_returns_what_it_was_given(form, kernel):
    x = np.zeros((0, 2))
    y = np.zeros(0)
    result = Fixed(**GIVEN, kernel=form).train(x, y, seed=0)
    assert (result.kernel, result.noise_variance, result.warnings) == (kernel, 0.1, ())
    assert np.isnan(result.log_likelihood)
    assert Fixed(2, 4.0, 0.5).train(x, y, seed=0).kernel.length_scales == (4.0, 4.0)
    assert not Fixed(2, 4.0, 0.5).standardise
    with pytest.raises(ValueError, match="Fixed: length_scales"):
        Fixed(**GIVEN, kernel=form).train(np.zeros((0, 3)), y, seed=0)


@pytest.mark.parametrize(
    ("make", "name", "values"),
    [
        (MaximumLikelihood, "n_initial", ["abc", 1]),
        (MaximumLikelihood, "restarts", [0]),
        (MaximumLikelihood, "max_iterations", [0]),
        (
            MaximumLikelihood,
            "noise_bounds",
            [(1e-12, 1e-10), 3, (2.0, 1.0), (np.nan, 1.0)],
        ),
        *((MaximumLikelihood, f"{name}_bounds", [(0.0, 1.0), (1.0, 1.0)]) for name in PARTS),
        *(
            (MaximumLikelihood, f"{name}_prior_{of}", [0.0, np.nan, ".inf"])
            for name in PRIORS
            for of in MOMENTS
        ),
        (partial(Fixed, **GIVEN), "n_initial", [-1]),
        *(
            (
                make,
                "kernel",
                [
                    SquaredExponential(1.0, [1.0]),
                    SquaredExponential(2.0),
                    Linear,
                    "matern",
                    None,
                ],
            )
            for make in (MaximumLikelihood, MaximumAPosteriori, partial(Fixed, **GIVEN))
        ),
        (Backward, "max_samples", [1.5]),
    ],
)
def test_settings_are_checked(make, name, values):
    for value in values:
        with pytest.raises((TypeError, ValueError), match=f": {name} must be"):
            make(**{name: value})


def test_settings_come_back_from_their_description_and_know_their_kind_of_kernel():
    for training in (
        MaximumLikelihood(kernel=FORMS["nested"]),
        Fixed(**GIVEN, kernel=FORMS["sum"]),
    ):
        assert build(describe(training), Training) == training
    with pytest.raises(ValueError, match=r"Sum.*Matern52"):
        problem_of(FORMS["sum"]).logarithms(Matern52(1.0, [1.0, 1.0]), 0.1)


# --- search -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 2, 3, 7, 20, np.inf])
def test_the_minimum_within_the_bounds_is_found_unless_evaluations_or_iterations_end(
    most,
):
    """Rosenbrock's function."""
    values = []
    start = np.array([-1.2, 1.0])
    wide = np.array([[-5.0, 5.0], [-5.0, 5.0]])

    def cost(x):
        values.append(rosen(x))
        return rosen(x), rosen_der(x)

    found = minimise(cost, start, wide, max_iterations=200, max_evaluations=most)
    np.testing.assert_array_equal(start, [-1.2, 1.0])
    assert found.cost == min(values) == rosen(found.x)
    assert found.cost_at_start == rosen(start)
    assert found.n_evaluations == len(values) == min(most, len(values))
    assert found.converged == (most == np.inf) == np.allclose(found.x, [1.0, 1.0], atol=1e-3)
    assert not minimise(cost, start, wide, max_iterations=2).converged
    held = minimise(cost, start, np.array([[-2.0, 0.5], [-5.0, 5.0]]), max_iterations=200)
    np.testing.assert_allclose(held.x, [0.5, 0.25], atol=1e-4)


# --- selection of the first dictionary --------------------------------------------------------------

KERNEL = SquaredExponential(1.3, [0.4, 0.9])
NOISE = 0.01


def fill(selection, x, y, **rules):
    return selection.fill(OnlineGP(KERNEL, noise_variance=NOISE, **rules), x, y)


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
def test_forward_adds_the_sample_of_highest_score_and_backward_removes_the_lowest(
    criterion,
):
    """Refit from scratch for every candidate of every step."""
    x, y = some_data(25)
    chosen = []
    for _ in range(10):
        model = NaiveGP(KERNEL, NOISE, x[chosen], y[chosen])
        scores = np.full(25, -np.inf)
        for i in set(range(25)) - set(chosen):
            mean, latent = model.predict_one(x[i])
            scores[i] = criterion.acceptance(y[i] - mean, latent + NOISE, NOISE)
        chosen.append(int(np.argmax(scores)))
    gp = fill(Forward(), x, y, budget=10, reduction=criterion)
    np.testing.assert_array_equal(gp.inputs, x[chosen])
    np.testing.assert_array_equal(gp.targets, y[chosen])
    twice = np.repeat(x[:4], 3, axis=0), np.repeat(y[:4], 3)
    for selection in (Forward(), Backward()):  # all are kept if there is room
        assert sorted(fill(selection, *twice, budget=12, reduction=criterion).targets) == sorted(
            twice[1]
        )
    kept = fill(Backward(), x, y, budget=14, reduction=criterion)
    left = backward_elimination(criterion, NaiveGP(KERNEL, NOISE, x, y), 14)
    assert sorted(kept.targets) == sorted(y[left])
    for selection, targets, word in (
        (Backward(max_samples=10), y, "at most 10 samples"),
        (Forward(), np.where(y == y[3], np.nan, y), "targets"),
    ):
        with pytest.raises(ValueError, match=word):
            fill(selection, x, targets, budget=5)


# --- a start as a data set and back -----------------------------------------------------------------

THIRDS = (1 / 3, 2 / 3)
MATRIX = np.arange(6.0).reshape(2, 3) / 7
SQUARED = SquaredExponential(0.1 + 0.2, THIRDS)
REPORT = {
    "route": "A",
    "tried": [{"rmse": 1 / 7, "refusal": "", "n": 3, "none": None}],
    "limits": [-math.inf, 1.5],
}
STARTS = {
    "nothing": Start(),
    "scaling": Start(
        Scaling(np.array([0.1, 1e99]), np.array([1 / 3, 1.0]), (1,)),
        ConstantMean(math.pi),
    ),
    "projection": Start(
        Projection(np.array([1 / 3, -0.0, 5e-324]), MATRIX),
        LinearMean((0.1, -0.2, 1e-300), 1 / 3),
        Hyperparameters(Sum((Linear(0.7, THIRDS), SQUARED)), 0.1, -12.3, ("a note", "ein ß")),
        Points(np.asfortranarray(MATRIX.T), np.array([1.0, -0.0, 1 / 9])),
        (-math.inf, 10.0),
        REPORT,
    ),
    "no points": Start(
        Scaling.identity(2), ZeroMean(), None, Points(np.empty((0, 2)), np.empty(0))
    ),
}


def bits(value):
    """Everything that distinguishes a value to the last bit, with types and layout."""
    if isinstance(value, np.ndarray):
        return (
            str(value.dtype),
            value.shape,
            value.tobytes(),
            value.flags.c_contiguous,
            value.flags.f_contiguous,
        )
    if isinstance(value, AffineMap):
        return (type(value), {name: bits(part) for name, part in vars(value).items()})
    if isinstance(value, tuple | list):
        return (type(value), [bits(part) for part in value])
    return (type(value), repr(value))


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS)
def test_a_start_comes_back_bit_for_bit(start, tmp_path):
    dataset = start_to_dataset(start)
    assert bits(start_from_dataset(dataset)) == bits(start)
    (tmp_path / "start.nc").write_bytes(to_bytes(dataset))
    assert bits(start_from_dataset(from_file(tmp_path / "start.nc"))) == bits(start)


def test_what_cannot_be_described_is_refused():
    for start in (
        Start(scaling=3),
        Start(mean=object()),
        Start(report={"array": np.zeros(2)}),
    ):
        with pytest.raises(TypeError):
            start_to_dataset(start)
    with pytest.raises(KeyError):
        start_from_dataset(xr.Dataset())
