"""Small models of three features, with every kernel and mean, that tests of exports share."""

from dataclasses import replace

import numpy as np

from sysid import (
    AffineMap,
    ConstantMean,
    JointModel,
    Linear,
    LinearMean,
    Matern32,
    Matern52,
    Model,
    Narx,
    OnlineGP,
    Origin,
    Product,
    Scaling,
    SquaredExponential,
    Sum,
    ZeroMean,
)

SMOOTH = SquaredExponential(1.3, [1.0, 2.0, 0.7])
LINEAR = Linear(0.3, [1.0, 0.1, 0.2])
MATERN = Matern52(1.1, [1.0, 2.0, 0.5])
NESTED = Sum([LINEAR, Product([MATERN, Sum([SquaredExponential(0.9, [2.0] * 3), LINEAR])])])
LINEAR_MEAN = LinearMean([0.1, -0.2, 0.3], 0.4)


def samples(n, seed=0):
    """Return regressors with three features (n, 3) and targets."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * [1.0, 3.0, 0.2] + [0.0, 5.0, 0.0]
    return x, np.sin(x[:, 0]) + 0.1 * x[:, 1]


def make_model(kernel=SMOOTH, mean=LINEAR_MEAN, scaling=None, seed=0, **lags):
    """Return a model of y with features y[k-1], u[k], u[k-2], or with other lags."""
    narx = Narx(**({"outputs": {"y": 1}, "inputs": {"u": [0, 2]}} | lags))
    x, y = samples(14, seed)
    if scaling is None:
        scaling = Scaling.fit(x)
    gp = OnlineGP(kernel, noise_variance=0.01, budget=7)
    gp.fit(scaling.transform(x[:6]), (y - mean(x))[:6])
    model = Model(narx, scaling, mean, gp, Origin(0.5, {"y": "m", "u": "N"}))
    model.update_many(x[6:], y[6:] * (1 + seed))
    return model


def make_joint_model(kernel=SMOOTH):
    """Return a joint model of the outputs y1 and y2."""
    lags = {"outputs": {"y1": 1, "y2": 1}, "inputs": {"u": [2]}}
    first = make_model(kernel, seed=0, target="y1", **lags)
    second = make_model(kernel, seed=1, target="y2", **lags)
    return JointModel((first, second))


def make_projected_model():
    """Return a model that combines its three features to two coordinates."""
    x, _ = samples(14)
    matrix = np.array([[1.0, 0.5, 0.0], [0.3, -0.2, 4.0]])
    combine = AffineMap.of_matrix(x.mean(axis=0), matrix)
    return make_model(SquaredExponential(1.0, [1.0, 2.0]), ZeroMean(), combine)


def make_empty_model():
    """Return a model without stored points."""
    return replace(make_model(), gp=OnlineGP(NESTED, noise_variance=0.01, budget=5))


def make_limited_model():
    """Return a model whose limits hold a simulation."""
    return replace(make_model(), limits=(0.38, 0.4))


MODELS = {
    "squared_exponential": make_model,
    "matern_32": lambda: make_model(Matern32(0.7, [1.0, 0.5, 2.0])),
    "matern_52": lambda: make_model(MATERN),
    "linear": lambda: make_model(LINEAR),
    "nested": lambda: make_model(NESTED),
    "constant_mean": lambda: make_model(mean=ConstantMean(0.3)),
    "value": lambda: make_model(predict="value"),
    "limits": make_limited_model,
    "projection": make_projected_model,
    "empty": make_empty_model,
    "two_outputs": make_joint_model,
    "two_outputs_nested": lambda: make_joint_model(NESTED),
}
