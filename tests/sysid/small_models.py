"""Small models of three features, with every kernel, mean and rule, that tests of models share."""

from dataclasses import dataclass

import numpy as np

from naive import CRITERIA, INSERTIONS, insertion_rule
from sysid import (
    AcceptAll,
    AffineMap,
    ConstantMean,
    ExceedsMinimum,
    JointModel,
    Linear,
    LinearMean,
    Matern32,
    Matern52,
    MeanFunction,
    Model,
    Narx,
    OnlineGP,
    Origin,
    Product,
    Reference,
    SquaredExponential,
    Sum,
    ZeroMean,
)


@dataclass(frozen=True)
class Cooling(MeanFunction):
    """A user's own mean, without a gradient and without parameters to fit."""

    rate: float = 0.1

    def __call__(self, regressors):
        return self.rate * np.tanh(regressors[:, 1] - regressors[:, 0])


LINEAR = Linear(0.3, [1.0, 0.1, 0.2])
MATERN = Matern52(0.7, [1.0, 0.5, 2.0])
SMOOTH = SquaredExponential(1.3, [1.0, 2.0, 0.7])
NESTED = Sum([LINEAR, Product([MATERN, SMOOTH])])
KERNELS = [SMOOTH, Matern32(0.7, [1.0, 0.5, 2.0]), MATERN, LINEAR, NESTED]
MEANS = [
    ZeroMean(),
    ConstantMean(7.0),
    LinearMean([0.1, -0.2, 0.3], 0.4),
    Cooling(0.2),
]
ACCEPTANCES = [
    AcceptAll(),
    *(ExceedsMinimum(criterion, reference) for criterion in CRITERIA for reference in Reference),
]
INSERTION_RULES = [insertion_rule(kind, 0.1 + 0.2, 1e-17) for kind in INSERTIONS]

ORIGIN = Origin(
    sampling_time=0.5,
    units={"y1": "m", "u": "N"},
    output_mean=0.1,
    output_variance=2.0,
    output_range=(-1.0, 3.0),
    n_samples=40,
)

#: map of three features to two coordinates
OFFSET = np.array([300.0, -2.0, 0.5])
MATRIX = np.array([[1.0, 0.5, 0.0], [0.3, -2.0, 1.0]])
MIXED_FEATURES = AffineMap.of_matrix(OFFSET, MATRIX)


def samples(n, seed=0):
    """Return regressors (n, 3) in very different units and targets far from zero."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) * [10.0, 0.1, 3.0] + [300.0, 0.0, -5.0]
    noise = 0.05 * rng.normal(size=n)
    y = 7.0 + np.sin(x[:, 0] / 5) + 3 * x[:, 1] * x[:, 2] + noise
    return x, y


def learned_model(
    kernel=SMOOTH, mean=MEANS[1], n_outputs=1, target=0, n_updates=20, scaling=None, **rules
):
    """Return the model of one of the outputs y1, y2, ... after some updates.

    Its three features are lagged outputs and inputs: y1[k-1], ..., u[k-1], ...
    """
    outputs = [f"y{i + 1}" for i in range(n_outputs)]
    narx = Narx(dict.fromkeys(outputs, 1), {"u": 3 - n_outputs}, outputs[target])
    x, y = samples(6 + n_updates, seed=target)
    if scaling is None:
        scaling = AffineMap.fit(samples(30)[0])
    gp = OnlineGP(kernel, noise_variance=0.01, budget=12, **rules)
    gp.fit(scaling.transform(x[:6]), (y - mean(x))[:6])
    model = Model(narx, scaling, mean, gp, ORIGIN)
    model.update_many(x[6:], y[6:] + target)
    return model


def learned_joint_model(n_outputs, **options):
    """Return the joint model of the outputs y1, y2, ..."""
    models = [learned_model(n_outputs=n_outputs, target=i, **options) for i in range(n_outputs)]
    return JointModel(tuple(models))
