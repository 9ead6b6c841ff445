"""Training of every form of kernel: objective, starts and bounds, known hyper-parameters, units, streams, errors."""

import json

import numpy as np
import pytest
from kernel_family import reference, scratch_log_likelihood
from naive import COMPILED
from test_result import STEPS, prediction, rows

from sysid import OnlineGP, store
from sysid.adaptive import Adaptive
from sysid.description import build, describe
from sysid.identify import Identification, Settings
from sysid.kernels import (
    Linear,
    LinearForm,
    Matern32,
    Matern32Form,
    Matern52,
    Matern52Form,
    Product,
    ProductForm,
    SquaredExponential,
    SquaredExponentialForm,
    Sum,
    SumForm,
)
from sysid.mean import ZeroMean
from sysid.model import Model
from sysid.narx import Narx, Target
from sysid.result import result_dataset, with_estimates
from sysid.scaling import Scaling
from sysid.sparse import fit_sparse
from sysid.training import Fixed, MarginalLikelihoodProblem, MaximumAPosteriori, MaximumLikelihood, Training

FORMS = {
    "squared_exponential": SquaredExponentialForm(),
    "matern_32": Matern32Form(),
    "matern_52": Matern52Form(),
    "linear": LinearForm(),
    "sum": SumForm([LinearForm(), SquaredExponentialForm()]),
    "product": ProductForm([LinearForm(), Matern52Form()]),
    "nested": SumForm([ProductForm([SquaredExponentialForm(), SumForm([LinearForm(), Matern32Form()])]), LinearForm()]),
}
each_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
N = 150 if COMPILED else 40


def gp_sample(kernel, noise_variance, seed, n=N):
    """Inputs and targets drawn from the prior itself, by scikit-learn's covariance."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, kernel.n_features))
    ky = reference(kernel, x, x) + noise_variance * np.eye(n)
    return x, np.linalg.cholesky(ky) @ rng.normal(size=n)


def some_data(n=15):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n, 2)) * [1.0, 3.0]
    return x, x[:, 0] + np.sin(x[:, 1]) + 0.1 * rng.normal(size=n)


def problem_of(form, kind=MaximumAPosteriori, n=15):
    return MarginalLikelihoodProblem.of(kind(kernel=form, weight_prior_median=2.0), *some_data(n))


@each_form
def test_cost_is_minus_the_log_posterior_of_a_naive_gp_with_its_gradient(form):
    problem, h = problem_of(form), 1e-5
    at = problem.starts(3, np.random.default_rng(0))[2] + 0.1
    kernel, noise = problem.kernel_and_noise(at)
    assert problem.log_likelihood(at).value == pytest.approx(
        scratch_log_likelihood(kernel, noise, problem.inputs, problem.targets), rel=1e-8
    )
    assert noise == pytest.approx(reference(kernel, np.ones((1, 2)), np.ones((1, 2)))[0, 0] * np.exp(at[-1]), rel=1e-12)
    numerical = [(problem.cost(at + d)[0] - problem.cost(at - d)[0]) / (2 * h) for d in h * np.eye(len(at))]
    np.testing.assert_allclose(problem.cost(at)[1], numerical, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(problem.logarithms(kernel, noise), at, atol=1e-12)


@each_form
def test_starts_lie_within_the_bounds_and_the_first_two_say_what_is_typical(form):
    problem = problem_of(form)
    low, high = problem.bounds.T
    first, longer, drawn = problem.starts(3, np.random.default_rng(0))
    for start in (first, longer, drawn):
        assert np.all((low <= start) & (start <= high))
    free = low < high
    assert np.all(drawn[free] != first[free])
    kernel = problem.unit.with_log_hyperparameters(first[:-1])
    x = np.vstack([np.zeros(2), problem.typical])
    covariance = kernel(x, x)
    assert 0.05 * problem.target_variance < covariance.diagonal().max() < 20 * problem.target_variance


def test_starts_of_a_sum_are_typical_lengths_then_longer_ones():
    problem = problem_of(FORMS["sum"])
    first, longer, _ = (
        problem.kernel_and_noise(start)[0].parts for start in problem.starts(3, np.random.default_rng(0))
    )
    half = problem.target_variance / 2
    weights = 2.0 * problem.target_variance / problem.spread**2
    np.testing.assert_allclose(first[0].parameters(), [half, *weights], rtol=1e-12)
    np.testing.assert_allclose(first[1].parameters(), [half, *problem.typical], rtol=1e-12)
    np.testing.assert_allclose(longer[0].parameters(), [half, *(weights / 400)], rtol=1e-12)
    np.testing.assert_allclose(longer[1].parameters(), [half, *(20 * problem.typical)], rtol=1e-12)


@each_form
def test_a_prior_holds_length_scales_and_weights_to_its_medians(form):
    """The minimum of the prior is at the medians; signal variances have none."""
    problem = problem_of(form)
    space = problem.space
    names = np.array(problem.unit.hyperparameter_names)
    ending = np.array([name.rpartition(": ")[2] for name in names])
    assert {str(name).rsplit(" ", 1)[0] for name in ending[space.held]} <= {"length scale", "weight variance", "offset"}
    assert not any(name.startswith(("length", "weight")) for name in np.delete(ending, space.held))
    x = np.append(space.start, 0.0)
    x[space.held] = space.medians
    x[-1] = np.log(0.1 * problem.target_variance) - problem.unit.log_variance(x[:-1])[0]
    assert problem.prior(x)[0] == pytest.approx(0.0, abs=1e-20)
    moved = x.copy()
    moved[space.held[0]] += 0.5
    moved[-1] = np.log(0.1 * problem.target_variance) - problem.unit.log_variance(moved[:-1])[0]
    assert problem.prior(moved)[0] == pytest.approx(0.5 * (0.5 / space.stds[0]) ** 2, rel=1e-9)


def test_only_one_factor_of_a_product_has_a_free_scale():
    problem = problem_of(FORMS["product"])
    fixed = problem.bounds[:, 0] == problem.bounds[:, 1]
    assert [name for name, f in zip(problem.unit.hyperparameter_names, fixed, strict=False) if f] == [
        "part 2: signal variance"
    ]
    found = MaximumAPosteriori(kernel=FORMS["product"], restarts=1).train(*some_data(), seed=0)
    assert found.kernel.parts[1].variance == 1.0
    assert not any("part 2: signal variance" in text for text in found.warnings)


@pytest.mark.parametrize("further", [LinearForm(), Matern32Form(), FORMS["sum"]], ids=["linear", "matern_32", "sum"])
def test_a_further_factor_has_no_unit_and_no_prior_on_its_fixed_scale(further):
    x, y = some_data()
    training = MaximumAPosteriori(kernel=ProductForm([SquaredExponentialForm(), further]))
    one, other = (MarginalLikelihoodProblem.of(training, x, c * y).space for c in (1.0, 1e-2))
    shift = np.zeros(len(one.start))
    shift[0] = np.log(1e-4)  # the first factor's variance has the unit
    np.testing.assert_allclose(other.start, one.start + shift, atol=1e-12)
    np.testing.assert_allclose(other.bounds, one.bounds + shift[:, None], atol=1e-12)
    np.testing.assert_allclose(other.medians, one.medians, atol=1e-12)
    assert one.held[:4].tolist() == [1, 2, 4, 5]
    assert one.bounds[3, 0] == one.bounds[3, 1] == one.start[3]


@pytest.mark.parametrize("kind", [Matern32, Matern52])
def test_hyperparameters_of_a_matern_sample_are_recovered(kind):
    truth = kind(1.0, [0.5, 1.5])
    x, y = gp_sample(truth, 1e-2, seed=1)
    form = {Matern32: Matern32Form(), Matern52: Matern52Form()}[kind]
    result = MaximumLikelihood(kernel=form, restarts=2).train(x, y, seed=0)
    assert type(result.kernel) is kind
    tolerance = 2.0 if COMPILED else 3.0
    ratio = np.array(result.kernel.length_scales) / truth.length_scales
    assert np.all((1 / tolerance < ratio) & (ratio < tolerance))
    assert 1 / 3 < result.noise_variance / 1e-2 < 3
    assert result.log_likelihood > scratch_log_likelihood(truth, 1e-2, x, y)
    assert result.warnings == ()


def test_the_kernel_that_made_a_sample_has_the_higher_likelihood():
    x, y = gp_sample(Matern32(1.0, [1.0]), 1e-3, seed=3, n=80 if COMPILED else 40)
    rough, smooth = (
        MaximumLikelihood(kernel=form, restarts=2).train(x, y, seed=0).log_likelihood
        for form in (Matern32Form(), SquaredExponentialForm())
    )
    assert rough > smooth + 2.0


def test_a_trend_is_told_from_what_deviates_from_it():
    truth = Sum([Linear(0.1, [4.0, 0.001]), SquaredExponential(0.3, [0.6, 0.6])])
    x, y = gp_sample(truth, 1e-2, seed=5, n=N)
    result = MaximumLikelihood(kernel=FORMS["sum"], restarts=2).train(x, y, seed=0)
    linear, smooth = result.kernel.parts
    assert result.log_likelihood > scratch_log_likelihood(truth, 1e-2, x, y)
    assert linear.weight_variances[0] > 10 * linear.weight_variances[1]
    assert 0.3 < smooth.length_scales[0] < 1.2
    assert 1 / 3 < result.noise_variance / 1e-2 < 3


@pytest.mark.parametrize("form", [FORMS["sum"], FORMS["product"]], ids=["sum", "product"])
def test_unit_of_the_target_does_not_matter(form):
    x, y = some_data(20)
    training = MaximumAPosteriori(kernel=form, restarts=1)
    result, scaled = training.train(x, y, seed=0), training.train(x, 1e-2 * y, seed=0)
    assert scaled.log_likelihood == pytest.approx(result.log_likelihood - 20 * np.log(1e-2), abs=1e-2)
    assert scaled.noise_variance == pytest.approx(1e-4 * result.noise_variance, rel=5e-2)
    new = np.array([[0.3, 1.0], [2.0, -4.0]])
    np.testing.assert_allclose(scaled.kernel(new, new), 1e-4 * result.kernel(new, new), rtol=0.1)


@each_form
def test_noise_is_what_an_online_gp_can_hold(form):
    x = np.linspace(-1, 1, 12)[:, None]
    found = MaximumLikelihood(kernel=form, restarts=1, max_iterations=30).train(x, 2.0 * x[:, 0], seed=0)
    online = OnlineGP(found.kernel, noise_variance=found.noise_variance, budget=12).fit(x, 2.0 * x[:, 0])
    np.testing.assert_allclose(online.predict(x)[0], 2.0 * x[:, 0], atol=1e-2)


# given hyper-parameters


def test_fixed_makes_the_form_of_its_variance_and_length_scales():
    x, y = np.zeros((0, 2)), np.zeros(0)
    given = {"variance": 2.0, "length_scales": [1.0, 4.0], "noise_variance": 0.1}
    assert Fixed(**given, kernel=Matern52Form()).train(x, y, 0).kernel == Matern52(2.0, [1.0, 4.0])
    assert Fixed(**given, kernel=LinearForm()).train(x, y, 0).kernel == Linear(2.0, [2.0, 0.125])
    assert Fixed(**given, kernel=FORMS["sum"]).train(x, y, 0).kernel == Sum(
        [Linear(1.0, [1.0, 0.0625]), SquaredExponential(1.0, [1.0, 4.0])]
    )
    assert Fixed(2.0, 4.0, 0.1, kernel=FORMS["product"]).train(x, y, 0).kernel == Product(
        [Linear(2.0, [0.125, 0.125]), Matern52(1.0, [4.0, 4.0])]
    )


@pytest.mark.parametrize(
    "training",
    [
        MaximumLikelihood(kernel=FORMS["nested"]),
        Fixed(1.0, 2.0, 0.1, kernel=FORMS["sum"]),
        Adaptive(kernel=Matern32Form()),
    ],
)
def test_description_round_trip(training):
    assert build(describe(training), Training) == training


# streams


NARX = Narx(outputs={"y": 1}, inputs={"u": 1})


def followed(form, n=60):
    x, y = some_data(n)
    training = Adaptive(
        kernel=form, n_initial=12, restarts=1, interval=10, window=20, sample_size=15, significance=0.5, max_updates=5
    )
    identification = Identification(NARX, Settings(training=training, budget=12))
    identification.observe_many(x, y)
    return identification


@pytest.mark.parametrize("form", [FORMS["matern_32"], FORMS["sum"]], ids=["matern_32", "sum"])
def test_hyperparameters_of_any_kernel_follow_a_stream(form):
    identification = followed(form)
    estimates = identification.adaptation.estimates
    assert estimates
    assert identification.model.gp.kernel == estimates[-1].kernel
    assert type(estimates[-1].kernel) is type(form.kernel(1.0, np.ones(2)))
    assert all(e.log_density_after >= e.log_density_before - 5.0 for e in estimates)


def test_estimates_of_a_sum_are_told_in_the_units_of_the_data(tmp_path):
    identification = followed(FORMS["sum"])
    model, estimates = identification.model, identification.adaptation.estimates
    empty = result_dataset(STEPS[:6], rows(0), prediction(0), Target.change)
    told = with_estimates(empty, [estimates[-1]._replace(sample=5)], model)
    assert "estimate_variance" not in told
    assert told["hyperparameter"].values.tolist() == list(model.gp.kernel.hyperparameter_names)
    values = dict(zip(told["hyperparameter"].values.tolist(), told["estimate_hyperparameter"].values[0], strict=True))
    linear, smooth = model.gp.kernel.parts
    scale = model.scaling.scale
    assert values["part 1: weight variance 2"] == pytest.approx(linear.weight_variances[1] / scale[1] ** 2)
    assert values["part 2: length scale 1"] == pytest.approx(smooth.length_scales[0] * scale[0])
    assert values["part 2: signal variance"] == pytest.approx(smooth.variance)
    again = store.read(store.write(told, tmp_path / "result.nc", kind="result"), kind="result")
    np.testing.assert_array_equal(again["estimate_hyperparameter"].values, told["estimate_hyperparameter"].values)
    assert again["hyperparameter"].values.tolist() == told["hyperparameter"].values.tolist()
    nothing = with_estimates(empty, [], model)
    assert nothing.sizes["estimate"] == 0


def test_a_kernel_of_another_form_is_not_followed():
    problem = problem_of(FORMS["sum"])
    with pytest.raises(ValueError, match=r"MaximumAPosteriori: kernel must be of the form SumForm.*, got Matern52"):
        problem.logarithms(Matern52(1.0, [1.0, 1.0]), 0.1)


# bad input


@pytest.mark.parametrize(
    "make",
    [
        lambda: MaximumLikelihood(kernel=SquaredExponential(1.0, [1.0])),
        lambda: MaximumAPosteriori(kernel="matern"),
        lambda: Fixed(1.0, 1.0, 0.1, kernel=None),
    ],
)
def test_settings_take_forms_only(make):
    with pytest.raises(TypeError, match=r"kernel must be a form, such as Matern52Form\(\), got"):
        make()


@pytest.mark.parametrize("kind", [SumForm, ProductForm])
def test_parts_of_forms_are_checked(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__}: parts must be at least two, got 1"):
        kind([LinearForm()])
    with pytest.raises(TypeError, match=f"{kind.__name__}: parts must be instances of Form, got Linear"):
        kind([LinearForm(), Linear(1.0, [1.0])])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_bounds": (2.0, 1.0)}, "weight_bounds must be 0 < low < high"),
        ({"weight_prior_median": 0.0}, "weight_prior_median must be a positive number"),
        ({"weight_prior_std": "wide"}, "weight_prior_std must be a positive number"),
    ],
)
def test_settings_of_weights_are_checked(settings, message):
    with pytest.raises(ValueError, match=f"MaximumLikelihood: {message}"):
        MaximumLikelihood(**settings)


def test_sparse_gp_refuses_other_kernels():
    with pytest.raises(
        TypeError, match=r"training\.kernel must be a SquaredExponentialForm, the only kernel here, got SumForm"
    ):
        fit_sparse(*some_data(), n_inducing=3, training=MaximumLikelihood(kernel=FORMS["sum"]))


def test_model_of_a_trained_sum_tells_its_weights():
    x, y = some_data(20)
    found = MaximumAPosteriori(kernel=FORMS["sum"], restarts=1, max_iterations=20).train(x, y, seed=0)
    gp = OnlineGP(found.kernel, noise_variance=found.noise_variance, budget=5)
    told = Model(NARX, Scaling.identity(2), ZeroMean(), gp).hyperparameters
    assert list(told["kernel"]["parts"][0]["weight_variances"]) == ["y[k-1]", "u[k-1]"]
    json.dumps(told, allow_nan=False)
