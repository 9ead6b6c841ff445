"""Runs of an online GP over a stream of rows.

The module provides the hyper-parameters before the stream, the rules during the stream, and the
errors after it.
"""

import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.optimize import brentq

import sysid
from experiments.reproduce import paper
from experiments.reproduce.study import Plan, Unit, read_part
from experiments.reproduce.tasks import STUDY_TASKS, TaskData, load_task
from sysid.gp.rules import CRITERIA

#: Without acceptance, and with the matched criterion under the references that differ.
DISTINCT_VARIANTS = (
    "none",
    sysid.Reference.leave_one_out.value,
    sysid.Reference.in_sample.value,
)
VARIANT_TITLES = {
    "none": "Without acceptance",
    sysid.Reference.leave_one_out.value: "Acceptance, leave-one-out",
    sysid.Reference.in_sample.value: "Acceptance, in-sample",
}
#: The published reference of a criterion repeats one of the others.
VARIANTS = (*DISTINCT_VARIANTS, sysid.Reference.published.value)
# Length scales that the calibration tries, in standard deviations of the features.
CALIBRATED_LENGTHS = np.geomspace(0.02, 20.0, 31)
MIN_CALIBRATED_NOISE = 1e-4  # smallest noise variance of the calibration, over the signal variance


class Setting(StrEnum):
    """Where hyper-parameters come from."""

    trained = "trained"  # maximum a posteriori on the initial rows, then fixed
    # One isotropic length scale that reproduces the published initial SMSE, then fixed.
    published = "published"
    adaptive = "adaptive"  # trained on the initial rows, then adapted to the stream

    def training(self, n_initial: int) -> sysid.Training:
        """Return the training, which decides whether hyper-parameters change in the stream."""
        kind = sysid.Adaptive if self is Setting.adaptive else sysid.MaximumAPosteriori
        return kind(n_initial=n_initial)


# --- before the stream: rows and hyper-parameters -------------------------------------------------


def prepare(unit: Unit, plan: Plan) -> xr.Dataset:
    """Train ``variance``, ``length_scale`` (feature) and ``noise_variance`` on the initial rows."""
    data = data_of(unit.task, unit.seed, plan)
    training = sysid.MaximumAPosteriori(n_initial=plan.n_initial)
    found = training.train(data.initial_inputs, data.initial_targets, unit.seed)
    variance, *lengths = found.kernel.parameters().tolist()
    trained = {
        "variance": variance,
        "length_scale": ("feature", lengths),
        "noise_variance": found.noise_variance,
    }
    return xr.Dataset(trained)


def calibrate(unit: Unit, plan: Plan) -> xr.Dataset:
    """Calibrate the hyper-parameters (seed, feature) of the setting `published`.

    They have one isotropic length scale, with which the median initial SMSE over seeds is the
    published one. The signal variance is the mean square of the initial targets. The noise variance
    is that of the trained hyper-parameters, at least 1e-4 and at most all of the signal variance.
    Of several lengths that fit, the shortest is taken, because the published values are those of
    length scales that are too short. If none fits, the one with the closest SMSE is taken.

    Returns
    -------
    xarray.Dataset
        The hyper-parameters, ``initial_smse`` that they give, ``initial_smse_published``, and
        ``is_reached``: whether a length fits.
    """
    task = unit.task
    seeds = STUDY_TASKS[unit.task].seeds(plan.seeds)
    rows = [data_of(task, seed, plan) for seed in seeds]
    variances = [float(np.mean(data.initial_targets**2)) for data in rows]
    noises = []
    for seed, variance in zip(seeds, variances, strict=True):
        trained = hyperparameters_of(task, seed, Setting.trained, plan).noise_variance
        noises.append(float(np.clip(trained, MIN_CALIBRATED_NOISE * variance, variance)))
    published = float(paper.read_table("table_2").loc[STUDY_TASKS[task].title, "initial_smse"])
    p = rows[0].inputs.shape[1]

    def median_smse(log_length: float) -> float:
        scores = []
        for data, variance, noise in zip(rows, variances, noises, strict=True):
            kernel = sysid.SquaredExponential(variance, [float(np.exp(log_length))] * p)
            start = sysid.Hyperparameters(kernel, noise, float("nan"))
            scores.append(predict_initially(data, start))
        return float(np.median(scores))

    log_lengths = np.log(CALIBRATED_LENGTHS)
    excess = np.array([median_smse(x) for x in log_lengths]) - published
    crossings = np.flatnonzero(np.signbit(excess[:-1]) != np.signbit(excess[1:]))
    if len(crossings):
        ends = log_lengths[crossings[0] : crossings[0] + 2]
        low, high = ends
        log_length = brentq(lambda x: median_smse(x) - published, low, high, xtol=1e-3)
        length = float(np.exp(log_length))
    else:
        length = float(CALIBRATED_LENGTHS[np.argmin(np.abs(excess))])
    found = {
        "variance": ("seed", variances),
        "noise_variance": ("seed", noises),
        "length_scale": (("seed", "feature"), np.full((len(seeds), p), length)),
        "initial_smse": median_smse(np.log(length)),
        "initial_smse_published": published,
        "is_reached": bool(len(crossings)),
    }
    return xr.Dataset(found, coords={"seed": list(seeds)})


#: Functions that compute what the studies need, by the first field of their units.
PREPARATIONS: dict[str, Callable[[Unit, Plan], xr.Dataset]] = {
    "preparation": prepare,
    "calibration": calibrate,
}


@lru_cache(maxsize=10)
def data_of(task: str, seed: int, plan: Plan) -> TaskData:
    """Return the rows of a task."""
    return load_task(
        task,
        seed,
        n_initial=plan.n_initial,
        most_rows=plan.most_rows,
        building_samples=plan.building_samples,
    )


@lru_cache(maxsize=32)
def hyperparameters_of(task: str, seed: int, setting: str, plan: Plan) -> sysid.Hyperparameters:
    """Return the hyper-parameters at the start of the stream, as prepared or calibrated."""
    if not STUDY_TASKS[task].is_random:
        seed = 0
    if setting == Setting.published:
        part = read_part(Unit("calibration", task), plan).sel(seed=seed)
    else:
        part = read_part(Unit("preparation", task, seed), plan)
    kernel = sysid.SquaredExponential(float(part["variance"]), part["length_scale"].values)
    return sysid.Hyperparameters(kernel, float(part["noise_variance"]), float("nan"))


@lru_cache(maxsize=3)
def score_initially(task: str, seed: int, setting: str, plan: Plan) -> float:
    """Return the SMSE on the test rows of the model before the stream."""
    hyperparameters = hyperparameters_of(task, seed, setting, plan)
    return predict_initially(data_of(task, seed, plan), hyperparameters)


def predict_initially(data: TaskData, hyperparameters: sysid.Hyperparameters) -> float:
    """Return the SMSE on the test rows of the model of all initial rows."""
    n = len(data.initial_targets)
    gp = sysid.OnlineGP(
        hyperparameters.kernel, noise_variance=hyperparameters.noise_variance, budget=n
    )
    mean, _ = gp.fit(data.initial_inputs, data.initial_targets).predict(data.test_inputs)
    return sysid.standardised_mean_squared_error(data.test_targets, mean)


# --- the stream -----------------------------------------------------------------------------------


class Run(NamedTuple):
    """The rules of an online GP, to which the stream of a task and seed is offered."""

    setting: str
    reduction: str
    acceptance: str = "none"  # or a criterion
    reference: str = ""  # of the acceptance
    rule: str = "always"  # of insertion: always, variance, error
    threshold: float = 0.0  # of the rule, target unit, squared for the variance


STREAM_QUANTITIES = (
    "smse",  # on the test rows
    "smse_initial",  # on the test rows, of the model before the stream
    "mean_variance",  # latent, on the test rows, target unit^2
    "coverage_95",  # fraction of the test rows
    "nlpd",  # nats, on the test rows
    "n_offered",  # rows of the stream
    "n_inserted",  # rows that passed the insertion rule
    "n_revised",  # rows that entered the dictionary
    "n_estimates",  # of the hyper-parameters during the stream
    "seconds",
    "accepted_percent",  # percentage of the inserted rows that entered
)


def identify(
    data: TaskData, hyperparameters: sysid.Hyperparameters, **settings: Any
) -> sysid.Identification:
    """Return an identification that has learned the initial rows.

    Inputs and targets keep the scale of the data.
    """
    p = data.inputs.shape[1]
    start = sysid.Start(
        scaling=sysid.Scaling.identity(p),
        mean=sysid.ZeroMean(),
        hyperparameters=hyperparameters,
    )
    chosen = sysid.Settings(**settings, learning="stored", gate=None)
    identification = sysid.Identification(narx_without_lags(p), chosen, start=start)
    identification.observe_many(data.initial_inputs, data.initial_targets)
    return identification


def narx_without_lags(n_features: int) -> sysid.Narx:
    """Return a structure with the features `z1` to `zp` of the same row and the target `y`."""
    return sysid.Narx(
        {"y": []},
        {f"z{d + 1}": [0] for d in range(n_features)},
        predict=sysid.Target.value,
    )


def start(run: Run, unit: Unit, plan: Plan) -> sysid.Identification:
    """Return the identification of a run that has learned the initial rows of a task and seed."""
    acceptance: sysid.Acceptance = sysid.AcceptAll()
    if run.acceptance != "none":
        criterion = CRITERIA[run.acceptance]()
        acceptance = sysid.ExceedsMinimum(criterion, reference=run.reference)
    insertion: sysid.Insertion = sysid.Always()
    if run.rule == "variance":
        insertion = sysid.VarianceThreshold(run.threshold)
    elif run.rule == "error":
        insertion = sysid.ErrorThreshold(run.threshold)
    return identify(
        data_of(unit.task, unit.seed, plan),
        hyperparameters_of(unit.task, unit.seed, run.setting, plan),
        insertion=insertion,
        acceptance=acceptance,
        reduction=CRITERIA[run.reduction](),
        budget=plan.budget,
        seed=unit.seed,
        training=Setting(run.setting).training(plan.n_initial),
    )


def offer(run: Run, unit: Unit, plan: Plan) -> dict[str, Any]:
    """Offer the stream, and score the model on the test rows.

    A run that another study offered to the same task and seed in this process is not computed
    again.

    Returns
    -------
    dict
        The fields of the run, and its `STREAM_QUANTITIES`.
    """
    return _offer(run, unit._replace(study=""), plan)


@lru_cache(maxsize=1000)
def _offer(run: Run, unit: Unit, plan: Plan) -> dict[str, Any]:
    """Do what `offer` describes, for a unit without the name of a study."""
    data = data_of(unit.task, unit.seed, plan)
    identification = start(run, unit, plan)
    begin = time.perf_counter()
    record = identification.observe_many(data.inputs, data.targets)
    seconds = time.perf_counter() - begin
    model = identification.require_model()
    adaptation = identification.adaptation
    mean, variance = model.predict(data.test_inputs)
    final = sysid.validate(data.test_targets, mean, variance, model.gp.noise_variance)
    n_inserted = int(record["inserted"].sum())
    n_revised = int(record["accepted"].sum())
    return run._asdict() | {
        "smse": final.smse,
        "smse_initial": score_initially(unit.task, unit.seed, run.setting, plan),
        "mean_variance": float(np.mean(variance)),
        "coverage_95": final.coverage_95,
        "nlpd": final.nlpd,
        "n_offered": len(data.targets),
        "n_inserted": n_inserted,
        "n_revised": n_revised,
        "n_estimates": 0 if adaptation is None else len(adaptation.estimates),
        "seconds": seconds,
        "accepted_percent": 100.0 * n_revised / n_inserted if n_inserted else float("nan"),
    }


def offer_variants(
    unit: Unit,
    plan: Plan,
    setting: str,
    criterion: str,
    rule: str,
    threshold: float,
    variants: Sequence[str] = DISTINCT_VARIANTS,
) -> list[dict[str, Any]]:
    """Offer the stream without and with the matched acceptance.

    Variants whose results must be equal are computed once. The in-sample score of a stored point
    never exceeds its leave-one-out score: with ``u = noise_variance q`` in (0, 1] the latent
    variances are ``s (1 - u)`` against ``s (1 - u) / u``, the squared residuals ``s^2 a^2`` against
    ``s^2 a^2 / u^2``, the noisy variances ``s (2 - u)`` against ``s / u``. So if the leave-one-out
    reference, the strictest, accepts every point that is inserted, all variants decide alike.

    Returns
    -------
    list of dict
        Rows with ``criterion`` and ``variant``. The published reference has a row if the reference
        that it repeats is among the `variants`.
    """
    runs = {variant: run_of(setting, criterion, variant, rule, threshold) for variant in VARIANTS}
    strictest = offer(runs["leave_one_out"], unit, plan)
    accepts_all = strictest["n_revised"] == strictest["n_inserted"]
    rows = {runs["leave_one_out"]: strictest}
    for variant in variants:
        run = runs[variant]
        if variant == "leave_one_out":
            continue
        rows[run] = {**strictest, **run._asdict()} if accepts_all else offer(run, unit, plan)
    return [
        {"criterion": criterion, "variant": variant, **rows[run]}
        for variant, run in runs.items()
        if run in rows
    ]


def run_of(
    setting: str,
    criterion: str,
    variant: str,
    rule: str = "always",
    threshold: float = 0.0,
) -> Run:
    """Return the run of a variant: without acceptance, or with the criterion's own acceptance.

    With acceptance, the variant names the reference for stored points.
    """
    if variant == "none":
        return Run(setting, criterion, rule=rule, threshold=threshold)
    reference = variant
    if variant == sysid.Reference.published.value:
        reference = CRITERIA[criterion].published_reference.value
    return Run(setting, criterion, criterion, reference, rule, threshold)
