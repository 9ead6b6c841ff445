"""Causes of poor predictions that the data of a run show, for the notes of its summary."""

from collections.abc import Iterator
from enum import Enum

import numpy as np

from experiments.identify.residual_notes import run_residual_tests
from experiments.identify.result import Result
from sysid import Model, ResidualReport, WithLinearPart
from sysid.arrays import Array
from sysid.simulation.validation import Z_95

# --- bands that do not cover ----------------------------------------------------------------------

#: said where the data show no cause
UNKNOWN_CAUSE = "the noise and the uncertainty that the model has learned do not fit these samples"
MIN_CAUSE_CORRELATION = 0.3  # smaller correlations are not named as the cause of wrong bands [-]
END_OF_STREAM = 0.25  # fraction of the predicted samples of the stream that count as its end
MIN_SAMPLES_TO_COMPARE = 30  # errors are compared with those of at least this many samples
# errors differ from others if their typical size is beyond this factor of that of the others [-]
DIFFERENT_SIZE = 1.4
SIZE_QUANTILE = 0.9  # of the magnitude of the errors, which the bands have to cover
FAR_TOO_LARGE_STDS = 4.0  # errors beyond this many predicted standard deviations are far too large
MIN_COVERAGE_OF_OTHERS = 0.93  # of the 95 % band, without the errors that are far too large [-]


def explain_coverage(result: Result) -> str:
    """Return the cause of bands that do not cover the validation samples, as part of a sentence."""
    tests = run_residual_tests(result)
    return (
        _missing_lag(result, tests)
        or _few_large_errors(result)
        or _other_size_of_errors(result)
        or _missing_dynamics(result, tests)
        or UNKNOWN_CAUSE
    )


def _strong_correlations(
    tests: ResidualReport | None, name: str
) -> Iterator[tuple[str, int, float]]:
    """Yield input, lag and value of the correlations that explain much of the errors."""
    for test in () if tests is None else sorted(tests.tests, key=lambda test: test.p_value):
        top = int(np.abs(test.values).argmax())
        lag, correlation = int(test.lags[top]), float(test.values[top])
        if test.name == name and test.alarm and abs(correlation) >= MIN_CAUSE_CORRELATION:
            yield test.input, lag, correlation


def _missing_lag(result: Result, tests: ResidualReport | None) -> str:
    """Return which lag of an input the errors one step ahead ask for, if one explains much."""
    narx = result.identification.narx
    known_lags = {name: {*lags} for name, lags in narx.lags.items()}
    for name, lags in narx.linear_lags.items():
        known_lags[name] = known_lags.get(name, set()) | {*lags}
    lag_choice = result.source.lag_choice
    tried_lags = {} if lag_choice is None else lag_choice.tried_lags
    for name, lag, correlation in _strong_correlations(tests, "input"):
        if lag in known_lags.get(name, ()) or lag in tried_lags.get(name, ()):
            continue  # a lag that automatic lags leave out did not help on the learned samples
        return (
            f"the errors correlate with {name} {lag} samples before ({correlation:+.2f}), "
            f"which is not among the regressors: add this lag of {name}"
        )
    return ""


def _missing_dynamics(result: Result, tests: ResidualReport | None) -> str:
    """Return that the errors one step ahead follow from their own past, if they do.

    Those of a model that minimises the error of the free run do so even if its dynamics are right.
    """
    if result.is_trained_for_free_run:
        return ""
    for _, lag, correlation in _strong_correlations(tests, "autocorrelation"):
        return (
            f"the errors correlate with those {lag} samples before ({correlation:+.2f}): dynamics "
            "are missing"
        )
    return ""


def _few_large_errors(result: Result) -> str:
    """Return how many errors are far too large, if all others fit the bands that miss them."""
    validation = result.validation
    model = result.identification.model
    if validation is None or model is None:
        return ""
    errors = np.abs(validation["target"].values - result.predicted.mean)
    stds = np.sqrt(result.predicted.variance + model.gp.noise_variance)
    in_stds = errors / stds
    is_large = in_stds > FAR_TOO_LARGE_STDS
    if not is_large.any() or is_large.all():
        return ""
    covers_others = np.mean(in_stds[~is_large] <= Z_95) >= MIN_COVERAGE_OF_OTHERS
    if not covers_others:
        return ""
    return (
        f"{int(is_large.sum())} of {len(errors)} errors exceed {FAR_TOO_LARGE_STDS:g} standard "
        "deviations, the others fit: wrong measurements, or events that the model does not know"
    )


def _other_size_of_errors(result: Result) -> str:
    """Return by how much the errors differ from those at the end of the stream, if they do."""
    identified = result.identified
    if identified is None or result.validation is None:
        return ""
    is_online = result.is_online & ~result.record["outlier"]
    errors = (identified["target"].values - result.record["mean"])[is_online]
    n_at_end = max(int(END_OF_STREAM * len(errors)), MIN_SAMPLES_TO_COMPARE)
    at_end = np.abs(errors[-n_at_end:])
    after = np.abs(result.validation["target"].values - result.predicted.mean)
    if min(len(at_end), len(after)) < MIN_SAMPLES_TO_COMPARE:
        return ""
    size_at_end, size_after = (np.quantile(size, SIZE_QUANTILE) for size in (at_end, after))
    if not size_at_end > 0 or not size_after > 0:
        return ""
    ratio = float(size_after / size_at_end)
    if 1.0 / DIFFERENT_SIZE <= ratio <= DIFFERENT_SIZE:
        return ""
    return (
        f"the errors are {ratio:.2g} times those at the end of the learned samples, so the noise, "
        "the excitation or the plant differs there"
    )


# --- predictions that get worse -------------------------------------------------------------------

BLOCK_SAMPLES = 25  # recent samples are learned and predicted in turns of this many
MAX_COMPARED_ROWS = 10_000  # of old samples, spread over them, and of the most recent ones
# latent variance over noise variance up to which old samples determine a prediction [-]
MAX_KNOWN_VARIANCE = 1.0
MIN_DETERMINED_FRACTION = 0.5  # of the recent samples, for a comparison
# a plant has changed if old samples predict recent ones worse than other recent samples do by this
# factor of mean and median of the squared errors [-]; below the second factor it has not changed
CHANGED_PLANT_RATIO = 2.0
SAME_PLANT_RATIO = 1.3


class WorseningCause(Enum):
    """Why predictions get worse while a model learns."""

    changed_plant = "the old samples describe another plant"
    new_region = "the recent samples are where there are no old ones"
    unclear = "the old samples describe the recent ones somewhat worse than these each other"
    other = "recent samples do not predict each other any better"


def find_worsening_cause(model: Model, inputs: Array, targets: Array) -> WorseningCause:
    """Find out why the last quarter of a stream is predicted worse than its start.

    The functions that the model is made of (the kernel at its stored points, the linear part) are
    fitted to the first half of the samples, and to every other block of the last quarter. Both fits
    predict the other blocks. If the plant has changed, the old samples predict them clearly worse
    although they determine the function there.

    Parameters
    ----------
    model : Model
    inputs : (n, p)
        Regressors in their own units.
    targets : (n,)
    """
    n = len(targets)
    old = np.unique(np.linspace(0, n // 2 - 1, MAX_COMPARED_ROWS).astype(int))
    recent = np.arange(n - min(n // 4, MAX_COMPARED_ROWS), n)
    rows = np.concatenate([old, recent])
    inputs = inputs[rows]
    targets = targets[rows]
    recent = np.arange(len(old), len(rows))
    is_learned = (np.arange(len(recent)) // BLOCK_SAMPLES) % 2 == 0
    predicted = recent[~is_learned]
    features = _features_of(model, inputs)
    residuals = targets - model.mean(inputs)
    noise_variance = model.gp.noise_variance
    learned = slice(len(old))
    old_mean, old_variance = _fit(features, residuals, learned, predicted, noise_variance)
    is_known = old_variance <= MAX_KNOWN_VARIANCE * noise_variance
    if is_known.mean() < MIN_DETERMINED_FRACTION:
        return WorseningCause.new_region
    mean, _ = _fit(features, residuals, recent[is_learned], predicted, noise_variance)
    measured = residuals[predicted]
    from_old = (measured - old_mean)[is_known] ** 2
    from_recent = (measured - mean)[is_known] ** 2
    ratio = min(
        float(typical(from_old) / max(typical(from_recent), np.finfo(float).tiny))
        for typical in (np.mean, np.median)
    )
    if ratio > CHANGED_PLANT_RATIO:
        return WorseningCause.changed_plant
    return WorseningCause.unclear if ratio > SAME_PLANT_RATIO else WorseningCause.other


def _features_of(model: Model, inputs: Array) -> Array:
    """Return features (n, d) whose coefficients are a priori independent and of variance 1."""
    gp = model.gp
    z = model.scaling.transform(inputs)
    kernel = gp.point_kernel
    points = gp.inputs[:, : kernel.n_features]
    eigenvalues, eigenvectors = np.linalg.eigh(kernel(points, points))
    scales = np.sqrt(np.maximum(eigenvalues, 0.0) + gp.diagonal)
    features = kernel(z[:, : kernel.n_features], points) @ eigenvectors / scales
    if not isinstance(gp.kernel, WithLinearPart):
        return np.asarray(features)
    return np.hstack([features, gp.whiten_lags(z)])


def _fit(
    features: Array,
    residuals: Array,
    learned: Array | slice,
    predicted: Array,
    noise_variance: float,
) -> tuple[Array, Array]:
    """Return mean and latent variance of samples, predicted from other samples."""
    phi = features[learned]
    precision = phi.T @ phi / noise_variance + np.eye(phi.shape[1])
    covariance = np.linalg.inv(precision)
    weights = covariance @ (phi.T @ residuals[learned]) / noise_variance
    new = features[predicted]
    return new @ weights, np.sum((new @ covariance) * new, axis=1)
