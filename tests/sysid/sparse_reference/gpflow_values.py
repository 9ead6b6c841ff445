"""Write values.json: sparse GPs of GPflow on a small data set, for the tests of `sysid.inducing`.

Not run by the tests: it needs GPflow and TensorFlow, in an environment of their own::

    python -m venv reference && reference/bin/pip install gpflow==2.11.2 tf-keras "setuptools<81"
    reference/bin/python gpflow_values.py
"""

import json
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

CASES = [  # variance, length scales, noise variance, absolute jitter on the covariance of the inducing points
    (1.3, [0.9, 1.6], 0.05, 0.0),
    (0.4, [2.0, 0.7], 0.3, 1e-6),
    (5.0, [1.2, 4.0], 0.002, 1e-6),
]
MODELS = {"vfe": gpflow.models.SGPR, "fitc": gpflow.models.GPRFITC}


def data():
    """40 samples of a smooth function with noise, 7 inducing points, 5 new points, rounded to what the file shows."""
    generator = np.random.default_rng(2009)
    x = generator.uniform(-2, 2, size=(40, 2)).round(6)
    y = (np.sin(2 * x[:, 0]) * x[:, 1] + 0.2 * generator.normal(size=40)).round(6)
    return x, y, generator.uniform(-2, 2, size=(7, 2)).round(6), generator.uniform(-3, 3, size=(5, 2)).round(6)


def log_gradient(parameter, gradient):
    """Gradient with respect to the logarithm, from that with respect to GPflow's unconstrained variable."""
    slope = tf.exp(parameter.transform.forward_log_det_jacobian(parameter.unconstrained_variable, event_ndims=0))
    return np.atleast_1d((gradient / slope * parameter).numpy())


def case(name, settings, x, y, points, new):
    """Objective with gradient, and prediction, of one model."""
    variance, scales, noise_variance, jitter = settings
    gpflow.config.set_default_jitter(jitter)
    kernel = gpflow.kernels.SquaredExponential(variance=variance, lengthscales=scales)
    model = MODELS[name]((x, y[:, None]), kernel, inducing_variable=points.copy(), noise_variance=noise_variance)
    hyper = [kernel.variance, kernel.lengthscales, model.likelihood.variance]
    free = [parameter.unconstrained_variable for parameter in hyper]
    with tf.GradientTape() as tape:
        objective = model.maximum_log_likelihood_objective()
    *gradients, moved = tape.gradient(objective, [*free, model.inducing_variable.Z.unconstrained_variable])
    mean, latent = model.predict_f(new)
    return {
        "approximation": name,
        "variance": variance,
        "length_scales": scales,
        "noise_variance": noise_variance,
        "jitter": jitter / variance,
        "objective": float(objective),
        "gradient": np.concatenate([log_gradient(p, g) for p, g in zip(hyper, gradients, strict=True)]).tolist(),
        "point_gradient": moved.numpy().tolist(),
        "mean": mean.numpy()[:, 0].tolist(),
        "latent_variance": latent.numpy()[:, 0].tolist(),
    }


def main():
    """All cases of both models into one file beside this script."""
    arrays = data()
    content = dict(zip(("inputs", "targets", "points", "new"), (a.tolist() for a in arrays), strict=True))
    content["versions"] = {"gpflow": gpflow.__version__, "tensorflow": tf.__version__, "numpy": np.__version__}
    content["cases"] = [case(name, settings, *arrays) for name in MODELS for settings in CASES]
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in content.items())
    Path(__file__).with_name("values.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
