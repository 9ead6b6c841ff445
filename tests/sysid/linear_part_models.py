"""Small models of two coupled outputs with a linear part, and naive references for them.

The references share no formula with the package.
"""

import numpy as np

from coupled_models import naive_kernel, signals
from sysid import (
    JointModel,
    LinearMean,
    Model,
    Narx,
    OnlineGP,
    Origin,
    Scaling,
    SquaredExponential,
    StableSpline,
    WithLinearPart,
)

#: The first three features are those of the process, the others those of the linear part.
LAGS = {"outputs": {"a": 5, "b": [1, 2, 4]}, "inputs": {"u": [0, 1, 2]}}
N_POINT_FEATURES = 3
KERNEL = WithLinearPart(
    SquaredExponential(0.3, [2.0, 1.5, 1.8]),
    StableSpline([2, 3, 3], [0.3, 0.1, 0.2], [2.0, 5.0, 1.0]),
)
NOISE_VARIANCE = 1e-3


def model_with_linear_part(
    target="a",
    lags=LAGS,
    predict="value",
    kernel=KERNEL,
    mean=None,
    n_points=15,
    n_updates=0,
    scaling=None,
    noise_variance=NOISE_VARIANCE,
    **settings,
):
    """Return the model of one output that has learned a record.

    The points are among the first samples. Then it learns all other samples without storing them,
    and updates with as many more, some of which replace points.
    """
    narx = Narx(**lags, target=target, predict=predict)
    rows = narx.regressors(signals(120 + n_updates))
    x = rows.regressor
    if scaling is None:
        scaling = Scaling.fit(x[:120])
    mean = LinearMean([0.1] * narx.n_features, 0.3) if mean is None else mean
    gp = OnlineGP(
        kernel,
        noise_variance=noise_variance,
        budget=n_points,
        learning="every_sample",
        **settings,
    )
    z = scaling.transform(x)
    residual = rows.target - mean(x)
    n = len(x) - n_updates
    gp.fit(z[:n], residual[:n])
    origin = Origin(sampling_time=0.5, units={"a": "m"}, output_range=(-1.0, 4.0))
    model = Model(narx, scaling, mean, gp, origin)
    model.update_many(x[n:], rows.target[n:])
    return model


def joint_model_with_linear_parts(**settings):
    """Return the models of both outputs, with different numbers of points."""
    models = []
    for target, n_points in {"a": 15, "b": 9}.items():
        models.append(model_with_linear_part(target, **{"n_points": n_points} | settings))
    return JointModel(tuple(models))


def samples_learned(model):
    """Return the coordinates, and the targets less the mean, that a model has learned."""
    rows = model.narx.regressors(signals(120))
    return model.scaling.transform(rows.regressor), rows.target - model.mean(rows.regressor)


def naive_posterior(model, regressors):
    """Return mean (n,) and latent covariance (n, n) of the target by dense FITC.

    The prior is that of the sum of the process and of the linear part. The model has no updates.
    """
    gp = model.gp
    kernel = gp.kernel.kernel
    learned, targets = samples_learned(model)
    at = model.scaling.transform(regressors)
    projected, S = naive_covariance_of_samples(model)
    gain = np.linalg.solve(S, projected(learned, at)).T
    mean = model.mean(regressors) + gain @ targets
    d = kernel.n_features
    P = naive_coefficient_covariance(gp.kernel.linear)
    exact = naive_kernel(kernel, at[:, :d], at[:, :d]) + at[:, d:] @ P @ at[:, d:].T
    return mean, exact - gain @ projected(learned, at)


def naive_coefficients(model):
    """Return mean (p,) and covariance (p, p) of the coefficients, in coordinates, by dense FITC.

    The model has no updates.
    """
    linear = model.gp.kernel.linear
    P = naive_coefficient_covariance(linear)
    learned, targets = samples_learned(model)
    _, S = naive_covariance_of_samples(model)
    cross = P @ learned[:, -len(P) :].T
    return cross @ np.linalg.solve(S, targets), P - cross @ np.linalg.solve(S, cross.T)


def naive_covariance_of_samples(model):
    """Return a function for the covariance through the points, and that of the samples learned.

    The function takes the coordinates of two sets of samples. The covariance (n, n) of the samples
    learned has the noise of FITC on its diagonal.
    """
    gp = model.gp
    kernel = gp.kernel.kernel
    P = naive_coefficient_covariance(gp.kernel.linear)
    learned, _ = samples_learned(model)
    d = kernel.n_features
    points = gp.inputs[:, :d]
    between_points = naive_kernel(kernel, points, points) + gp.diagonal * np.eye(len(points))
    inverse = np.linalg.inv(between_points)

    def projected(first, second):
        """Return the covariance through the points, and that of the linear part."""
        to_points = naive_kernel(kernel, first[:, :d], points)
        from_points = naive_kernel(kernel, points, second[:, :d])
        return to_points @ inverse @ from_points + first[:, d:] @ P @ second[:, d:].T

    def unexplained(z):
        """Return the variance of the process that the points do not explain."""
        to_points = naive_kernel(kernel, z[:, :d], points)
        return kernel.variance - np.einsum("ni,ij,nj->n", to_points, inverse, to_points)

    noise = unexplained(learned) + gp.noise_variance
    return projected, projected(learned, learned) + np.diag(noise)


def naive_coefficient_covariance(linear):
    """Return the prior covariance P (p, p) of the coefficients, entry by entry."""
    P = np.zeros((sum(linear.n_lags), sum(linear.n_lags)))
    first = 0
    signals_of_part = zip(linear.n_lags, linear.variances, linear.memories, strict=True)
    for n, variance, memory in signals_of_part:
        for i in range(n):
            for j in range(n):
                P[first + i, first + j] = variance * np.exp(-max(i, j) / memory)
        first += n
    return P


def typical_regressors(model, n, seed=3):
    """Return regressors (n, p) of another record."""
    rows = model.narx.regressors(signals(n + 5, seed))
    return rows.regressor[:n]
