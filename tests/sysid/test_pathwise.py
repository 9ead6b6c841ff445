"""Functions drawn from a prior, of which pathwise propagation is made."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from coupled_models import joint_model, signals, unstable, with_projections
from linear_part_models import joint_model_with_linear_parts
from sysid import (
    ConstantMean,
    JointModel,
    Linear,
    Matern32,
    Matern52,
    MeanFunction,
    Pathwise,
    Product,
    SquaredExponential,
    Sum,
    free_run,
)
from sysid.simulation.propagation import pathwise
from sysid.simulation.propagation.pathwise import DrawnFunction, Draws, Term, Waves, draw

SQUARED_EXPONENTIAL = SquaredExponential(0.3, [2.0, 1.5, 3.0])
LINEAR = Linear(0.5, [0.3, 0.1, 0.2])


@pytest.mark.parametrize(
    "kernel",
    [
        pytest.param(SQUARED_EXPONENTIAL, id="squared exponential"),
        pytest.param(Matern32(0.3, [2.0, 1.5, 3.0]), id="Matern 3/2"),
        pytest.param(Matern52(0.3, [2.0, 1.5, 3.0]), id="Matern 5/2"),
        pytest.param(Linear(0.2, [0.3, 0.1, 0.2]), id="linear"),
        pytest.param(Product([LINEAR, SQUARED_EXPONENTIAL]), id="product"),
        pytest.param(
            Product(
                [
                    Sum([LINEAR, SQUARED_EXPONENTIAL]),
                    Product([SQUARED_EXPONENTIAL, Matern52(2.0, [1.0, 2.0, 1.0])]),
                ]
            ),
            id="product of a sum and a product",
        ),
    ],
)
def test_functions_of_the_prior_have_its_covariance(kernel):
    """Few features are enough, because every function has its own frequencies."""
    n_functions = 6000
    points = np.random.default_rng(0).normal(size=(4, 3))
    waves = draw(Draws(n_functions, 5, np.random.default_rng(1)), kernel)
    values = DrawnFunction.of_prior(waves)(np.repeat(points, n_functions, axis=0)).reshape(4, -1)
    expected = kernel(points, points)
    covariance = values @ values.T / n_functions
    spread = np.sqrt(expected.max())
    np.testing.assert_allclose(values.mean(axis=1), 0.0, atol=0.05 * spread)
    np.testing.assert_allclose(covariance, expected, atol=0.09 * expected.max())


def test_sums_of_cosines_are_those_of_numpy():
    """Points lie far from zero too, where the angle has to be reduced."""
    rng = np.random.default_rng(0)
    points = 30 * rng.normal(size=(7, 3, 4))
    frequency = 10 * rng.normal(size=(3, 4, 50))
    phase = rng.uniform(0, 2 * np.pi, (3, 50))
    amplitude = rng.normal(size=(3, 50))
    angle = np.einsum("nsp,spf->nsf", points, frequency) + phase
    expected = (amplitude * np.cos(angle)).sum(axis=2)
    waves = Waves.of([Term((), frequency, phase, amplitude)])
    values = DrawnFunction.of_prior(waves)(points.reshape(-1, 4))
    np.testing.assert_allclose(values.reshape(7, 3), expected, atol=1e-10)


@dataclass(frozen=True)
class SameMean(MeanFunction):
    """A user's own mean, which the compiled loop does not know, equal to one that it knows."""

    known: MeanFunction

    def __call__(self, regressors):
        return self.known(regressors)


def followed_step_by_step(model):
    """Return the models of all outputs with means that are computed in Python."""
    models = JointModel.of(model).models
    return JointModel(tuple(replace(one, mean=SameMean(one.mean)) for one in models))


#: two outputs with five features each
MATERN = Matern52(0.3, [1.0] * 5)
TREND = Linear(0.01, [0.01] * 5)
FOLLOWED = {
    "value": lambda: joint_model("value"),
    "change": lambda: joint_model("change"),
    "sum": lambda: joint_model(kernel=Sum([TREND, MATERN])),
    "product": lambda: joint_model(kernel=Product([TREND, MATERN])),
    "projections": lambda: with_projections(joint_model()),
    "two kernels": lambda: JointModel(
        (
            joint_model(kernel=Product([TREND, Sum([TREND, MATERN])])).models[0],
            joint_model().models[1],
        )
    ),
    "linear part": lambda: joint_model_with_linear_parts(mean=ConstantMean(0.3)),
    "limits": lambda: JointModel(
        tuple(replace(one, limits=(-0.2, 0.3)) for one in joint_model().models)
    ),
}


@pytest.mark.parametrize("process_noise", [False, True], ids=["no noise", "process noise"])
@pytest.mark.parametrize("kind", FOLLOWED)
def test_paths_of_the_compiled_loop_are_those_of_single_steps(kind, process_noise, monkeypatch):
    """The record is longer than what the compiled loop follows at a time."""
    monkeypatch.setattr(pathwise, "STEPS_TOGETHER", 4)
    model = FOLLOWED[kind]()
    rule = Pathwise(8, 20, process_noise=process_noise)
    data = signals(20, 3)
    outputs = np.stack([data["a"], data["b"]], axis=1)[:6]
    compiled = free_run(model, data["u"][:, None], outputs, propagation=rule)
    expected = free_run(followed_step_by_step(model), data["u"][:, None], outputs, propagation=rule)
    assert np.isfinite(expected.variance).all()
    np.testing.assert_allclose(compiled.mean, expected.mean, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(compiled.variance, expected.variance, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("process_noise", [False, True], ids=["no noise", "process noise"])
@pytest.mark.parametrize("coverage", [None, 0.95])
def test_paths_of_the_compiled_loop_diverge_as_those_of_single_steps(coverage, process_noise):
    rule = Pathwise(40, 20, coverage=coverage, process_noise=process_noise)
    model = unstable(1.3)
    arguments = (np.zeros((90, 1)), np.ones((1, 1)))
    compiled = free_run(model, *arguments, propagation=rule)
    expected = free_run(followed_step_by_step(model), *arguments, propagation=rule)
    assert np.isnan(expected.variance[-1, 0])
    assert np.isfinite(expected.variance[5, 0])
    np.testing.assert_allclose(compiled.mean, expected.mean, rtol=1e-6)
    np.testing.assert_allclose(compiled.variance, expected.variance, rtol=1e-6)
