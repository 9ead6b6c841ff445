"""Small identified models of two coupled outputs, and naive references for their predictions.

The references share no formula with the package.
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from sysid import (
    JointModel,
    LagWindow,
    LinearMean,
    Model,
    Narx,
    OnlineGP,
    Origin,
    Projection,
    Scaling,
    SquaredExponential,
)

TWO_OUTPUT_LAGS = {"outputs": {"a": [1, 2], "b": [2]}, "inputs": {"u": [0, 3]}}
ONE_OUTPUT_LAGS = {"outputs": {"a": [1, 2]}, "inputs": {"u": [1]}}
LENGTH_SCALES = (2.0, 1.5, 1.8, 3.0, 2.5)  # one for each feature, without unit


def signals(n, seed=0):
    """Return two coupled outputs `a` and `b` and their input `u`, each (n,)."""
    rng = np.random.default_rng(seed)
    levels = rng.uniform(-1, 1, n // 3 + 2)
    u = np.repeat(levels, 3)[2 : n + 2]
    a, b = rng.normal(size=(2, n)) * 0.02
    for k in range(2, n):
        a[k] += 0.6 * a[k - 1] + 0.3 * np.sin(2 * b[k - 2]) + 0.5 * u[k - 1]
        b[k] += 0.5 * b[k - 1] + 0.4 * np.tanh(a[k - 1]) - 0.2 * a[k - 2] * u[k]
    return {"a": a, "b": 2.0 + b, "u": u}


def record(n=30, seed=1, step=0.5, **replaced):
    """Return a data set of these signals; `replaced` gives other values to some of them."""
    values = signals(n, seed) | replaced
    variables = {name: ("time", values[name]) for name in values}
    return xr.Dataset(variables, coords={"time": 10.0 + step * np.arange(n)})


def joint_model(
    predict="value",
    lags=TWO_OUTPUT_LAGS,
    n_points=(9, 12),
    kernel=None,
    mean=None,
    noise_variance=1e-3,
    **origin,
):
    """Return a joint model with one GP per output, each with another number of points."""
    models = []
    for i, name in enumerate(lags["outputs"]):
        narx = Narx(**lags, target=name, predict=predict)
        model = single_model(
            narx,
            n_points[i],
            kernel,
            mean,
            noise_variance,
            Origin(**origin),
        )
        models.append(model)
    return JointModel(tuple(models))


def single_model(narx, n_points, kernel=None, mean=None, noise_variance=1e-3, origin=None):
    """Return the model of one output; its last point replaced another, so slots are not in order of
    age.
    """
    if mean is None:
        mean = LinearMean(ridge=0.1)
    if kernel is None:
        kernel = SquaredExponential(0.3, LENGTH_SCALES[: narx.n_features])
    if origin is None:
        origin = Origin()
    rows = narx.regressors(signals(80))
    order = np.random.default_rng(7).permutation(len(rows.target))
    chosen = order[:n_points]
    x = rows.regressor[chosen]
    target = rows.target[chosen]
    scaling = Scaling.fit(x)
    mean = mean.fitted(x, target)
    gp = OnlineGP(kernel, noise_variance=noise_variance, budget=n_points + 1)
    gp.fit(scaling.transform(x), target - mean(x))
    first, second = scaling.transform(rows.regressor[:2])
    gp.update(first, 0.1)
    gp.update(second, 0.2)
    return Model(narx, scaling, mean, gp, origin)


def with_projections(joint, n_coordinates=(2, 4)):
    """Return the same models, each of which sees linear combinations of its features."""
    models = []
    for model, n in zip(joint.models, n_coordinates, strict=True):
        models.append(_with_projection(model, n))
    return JointModel(tuple(models))


def _with_projection(model, n_coordinates):
    rng = np.random.default_rng(n_coordinates)
    matrix = rng.normal(size=(n_coordinates, model.narx.n_features)) / 2
    projection = Projection(model.scaling.offset, matrix / model.scaling.scale)
    kernel = SquaredExponential(0.3, LENGTH_SCALES[:n_coordinates])
    gp = OnlineGP(kernel, noise_variance=1e-3, budget=20)
    gp.fit(model.gp.inputs @ matrix.T, model.gp.targets)
    return replace(model, scaling=projection, gp=gp)


def unstable(gain, output_range=None):
    """Return a model of ``y[k] = gain y[k-1]``, almost certain; its points go from 0 to 1."""
    narx = Narx(outputs={"y": 1}, inputs={"u": [1]}, predict="value")
    kernel = SquaredExponential(1e-6, [1.0, 1.0])
    gp = OnlineGP(kernel, noise_variance=1e-8, budget=5)
    gp.fit([[0.0, 0.0], [1.0, 1.0]], [0.0, 0.0])
    origin = Origin(output_range=output_range)
    return Model(narx, Scaling.identity(2), LinearMean((gain, 0.0), 0.0), gp, origin)


def naive_posterior(model, x):
    """Return mean and latent variance of the target at regressors (n, p), by an inverse matrix."""
    gp = model.gp
    z = (x - model.scaling.offset) @ model.scaling.linear_part().T
    covariance = naive_kernel(gp.kernel, gp.inputs, gp.inputs)
    inverse = np.linalg.inv(covariance + gp.noise_variance * np.eye(gp.n_points))
    k = naive_kernel(gp.kernel, z, gp.inputs)
    variance = gp.kernel.variance - np.einsum("ni,ij,nj->n", k, inverse, k)
    return model.mean(x) + k @ inverse @ gp.targets, variance


def naive_kernel(kernel, x, z):
    """Return the covariance (n, m) of a squared exponential between points (n, d) and (m, d)."""
    squared_distance = 0.0
    for d, scale in enumerate(kernel.length_scales):
        squared_distance = squared_distance + ((x[:, [d]] - z[:, d]) / scale) ** 2
    return kernel.variance * np.exp(-0.5 * squared_distance)


def naive_run(joint, data, first, last, measured_until):
    """Return the outputs (last - first + 1, m) of a simulation, one sample at a time.

    Outputs from `measured_until` on are the simulation's own; before the record, the first values
    are held.
    """
    narx = joint.models[0].narx
    n_held = narx.max_lag + 1
    window = LagWindow(narx)

    def measured(names, k):
        return np.array([data[name][max(k, 0)] for name in names])

    outputs = {k: measured(narx.output_names, k) for k in range(-n_held, measured_until)}
    for k in range(-n_held, first):
        window.push(outputs[k], measured(narx.input_names, k))
    for k in range(first, last + 1):
        u = measured(narx.input_names, k)
        x = window.regressor(u)
        values = []
        for model in joint.models:
            mean, _ = naive_posterior(model, x[None])
            values.append(mean[0])
        outputs[k] = np.array(values)
        if narx.predict.value == "change":
            outputs[k] = outputs[k] + outputs[k - 1]
        window.push(outputs[k], u)
    return np.array([outputs[k] for k in range(first, last + 1)])


def naive_draws(joint, past, inputs, n, seed, feed_noise=False):
    """Return outputs (n, T, m) of trajectories that draw each step independently.

    `past` (w, m) holds the first outputs, `inputs` (w + T,) the values of the one input. With
    `feed_noise` the measurement noise is fed back too.
    """
    rng = np.random.default_rng(seed)
    narx = joint.models[0].narx
    outputs = np.repeat(past[None], n, axis=0)
    latent_outputs = []
    for k in range(len(past), len(inputs)):
        columns = []
        for name, lag in narx.features:
            if name == "u":
                columns.append(np.full(n, inputs[k - lag]))
            else:
                columns.append(outputs[:, k - lag, narx.output_names.index(name)])
        x = np.stack(columns, axis=1)
        posteriors = [naive_posterior(model, x) for model in joint.models]
        drawn = [mean + np.sqrt(variance) * rng.normal(size=n) for mean, variance in posteriors]
        latent = np.stack(drawn, axis=1)
        if narx.predict.value == "change":
            latent += outputs[:, k - 1]
        latent_outputs.append(latent)
        noise = np.sqrt(joint.noise_variance) * rng.normal(size=latent.shape)
        fed_back = latent + noise if feed_noise else latent
        outputs = np.concatenate([outputs, fed_back[:, None]], axis=1)
    return np.stack(latent_outputs, axis=1)
