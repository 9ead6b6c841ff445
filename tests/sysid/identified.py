"""Small identified models of a known plant, and naive references for what they predict: no shared
formula.
"""

from dataclasses import replace

import numpy as np
import xarray as xr

from sysid.gp.affine_map import Projection, Scaling
from sysid.gp.kernels import SquaredExponential
from sysid.gp.mean import LinearMean
from sysid.gp.online import OnlineGP
from sysid.model.model import JointModel, Model, Origin
from sysid.narx.lags import Narx
from sysid.narx.window import LagWindow

TWO = {"outputs": {"a": [1, 2], "b": [2]}, "inputs": {"u": [0, 3]}}
ONE = {"outputs": {"a": [1, 2]}, "inputs": {"u": [1]}}
SCALES = (2.0, 1.5, 1.8, 3.0, 2.5)


def signals(n, seed=0):
    """Two coupled outputs and their input."""
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.uniform(-1, 1, n // 3 + 2), 3)[2 : n + 2]
    a, b = rng.normal(size=(2, n)) * 0.02
    for k in range(2, n):
        a[k] += 0.6 * a[k - 1] + 0.3 * np.sin(2 * b[k - 2]) + 0.5 * u[k - 1]
        b[k] += 0.5 * b[k - 1] + 0.4 * np.tanh(a[k - 1]) - 0.2 * a[k - 2] * u[k]
    return {"a": a, "b": 2.0 + b, "u": u}


def record(n=30, seed=1, step=0.5, **changed):
    """Data set of these signals; `changed` replaces some."""
    data = {name: ("time", values) for name, values in (signals(n, seed) | changed).items()}
    return xr.Dataset(data, coords={"time": 10.0 + step * np.arange(n)})


def identified(
    predict="value",
    lags=TWO,
    n_points=(9, 12),
    kernel=None,
    mean=None,
    noise_variance=1e-3,
    **origin,
):
    """Joint model with one GP per output, each with another number of points."""
    return JointModel(
        tuple(
            one_model(
                Narx(**lags, target=name, predict=predict),
                n,
                kernel,
                mean,
                noise_variance,
                Origin(**origin),
            )
            for name, n in zip(lags["outputs"], n_points, strict=False)
        )
    )


def mixed(joint, n_coordinates=(2, 4)):
    """The same models, seeing other numbers of linear combinations of their features."""
    return JointModel(
        tuple(_projected(model, n) for model, n in zip(joint.models, n_coordinates, strict=True))
    )


def _projected(model, n):
    matrix = np.random.default_rng(n).normal(size=(n, model.narx.n_features)) / 2
    scaling = Projection(model.scaling.offset, matrix / model.scaling.scale)
    gp = OnlineGP(SquaredExponential(0.3, SCALES[:n]), noise_variance=1e-3, budget=20)
    gp.fit(model.gp.inputs @ matrix.T, model.gp.targets)
    return replace(model, scaling=scaling, gp=gp)


def one_model(narx, n_points, kernel=None, mean=None, noise_variance=1e-3, origin=None):
    rows = narx.regressors(signals(80))
    chosen = np.random.default_rng(7).permutation(len(rows.target))[:n_points]
    x = rows.regressor[chosen]
    target = rows.target[chosen]
    scaling = Scaling.fit(x)
    mean = (LinearMean(ridge=0.1) if mean is None else mean).fitted(x, target)
    kernel = SquaredExponential(0.3, SCALES[: narx.n_features]) if kernel is None else kernel
    gp = OnlineGP(kernel, noise_variance=noise_variance, budget=n_points + 1)
    gp.fit(scaling.transform(x), target - mean(x))
    gp.update(scaling.transform(rows.regressor[:1])[0], 0.1)
    gp.update(
        scaling.transform(rows.regressor[1:2])[0], 0.2
    )  # a replacement: slots are no longer in order of age
    return Model(narx, scaling, mean, gp, Origin() if origin is None else origin)


def unstable(gain, output_range=None):
    """``y[k] = gain y[k-1]``, almost certainly; its points go from 0 to 1."""
    narx = Narx(outputs={"y": 1}, inputs={"u": [1]}, predict="value")
    gp = OnlineGP(SquaredExponential(1e-6, [1.0, 1.0]), noise_variance=1e-8, budget=5)
    gp.fit([[0.0, 0.0], [1.0, 1.0]], [0.0, 0.0])
    origin = Origin(output_range=output_range)
    return Model(narx, Scaling.identity(2), LinearMean((gain, 0.0), 0.0), gp, origin)


def naive_posterior(model, x):
    """Mean and latent variance of the target at regressors (n, p), by the inverse of the
    covariance.
    """
    gp = model.gp
    z = (x - model.scaling.offset) @ model.scaling.linear_part().T
    inverse = np.linalg.inv(
        naive_kernel(gp.kernel, gp.inputs, gp.inputs) + gp.noise_variance * np.eye(gp.n_points)
    )
    k = naive_kernel(gp.kernel, z, gp.inputs)
    variance = gp.kernel.variance - np.einsum("ni,ij,nj->n", k, inverse, k)
    return model.mean(x) + k @ inverse @ gp.targets, variance


def naive_kernel(kernel, x, z):
    distance = sum(
        ((x[:, [d]] - z[:, d]) / scale) ** 2 for d, scale in enumerate(kernel.length_scales)
    )
    return kernel.variance * np.exp(-0.5 * distance)


def naive_run(joint, data, first, last, measured_until):
    """Outputs (last - first + 1, m) fed back through a live lag window of held values, one sample
    at a time.
    """
    narx = joint.models[0].narx
    held = narx.max_lag + 1
    window = LagWindow(narx)

    def input_at(k):
        return np.array([data[name][max(k, 0)] for name in narx.input_names])

    values = {
        k: np.array([data[name][max(k, 0)] for name in narx.output_names])
        for k in range(-held, measured_until)
    }
    for k in range(-held, first):
        window.push(values[k], input_at(k))
    for k in range(first, last + 1):
        x = window.regressor(input_at(k))
        targets = np.array([naive_posterior(model, x[None])[0][0] for model in joint.models])
        values[k] = targets + values[k - 1] if narx.predict.value == "change" else targets
        window.push(values[k], input_at(k))
    return np.array([values[k] for k in range(first, last + 1)])


def naive_draws(joint, past, inputs, n, seed, feed_noise=False):
    """Outputs (n, T, m) of draws that are independent at each step; past (w, m), inputs (w + T,) of
    the one input.
    """
    rng = np.random.default_rng(seed)
    narx = joint.models[0].narx
    y = np.repeat(past[None], n, axis=0)
    latent = []
    for k in range(len(past), len(inputs)):
        columns = [
            np.full(n, inputs[k - lag])
            if name == "u"
            else y[:, k - lag, narx.output_names.index(name)]
            for name, lag in narx.features
        ]
        drawn = [naive_posterior(model, np.stack(columns, axis=1)) for model in joint.models]
        step = np.stack(
            [mean + np.sqrt(variance) * rng.normal(size=n) for mean, variance in drawn],
            axis=1,
        )
        step += y[:, k - 1] if narx.predict.value == "change" else 0.0
        latent.append(step)
        noise = np.sqrt(joint.noise_variance) * rng.normal(size=step.shape) * feed_noise
        y = np.concatenate([y, (step + noise)[:, None]], axis=1)
    return np.stack(latent, axis=1)
