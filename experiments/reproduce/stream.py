"""A stream of rows offered to an online GP: hyper-parameters before, rules during, errors after."""

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
from experiments.reproduce.tasks import TASKS, TaskData, load_task
from sysid.gp.rules import CRITERIA

#: without acceptance, and with the matched criterion under each reference; the published one repeats one of the others
DISTINCT = (
    "none",
    sysid.Reference.leave_one_out.value,
    sysid.Reference.in_sample.value,
)
TITLES = dict(
    zip(
        DISTINCT,
        ("Without acceptance", "Acceptance, leave-one-out", "Acceptance, in-sample"),
        strict=True,
    )
)
VARIANTS = (*DISTINCT, sysid.Reference.published.value)
LENGTHS = np.geomspace(0.02, 20.0, 31)  # of the calibration, in standard deviations of the features
LEAST_NOISE_RATIO = 1e-4  # of the calibration: noise over signal variance


class Setting(StrEnum):
    """Where hyper-parameters come from."""

    trained = "trained"  # maximum a posteriori on the initial rows, then fixed
    # one isotropic length scale that reproduces the published initial SMSE, fixed
    published = "published"
    adaptive = "adaptive"  # trained, then following the stream

    def training(self, n_initial: int) -> sysid.Training:
        """Choose what happens to the hyper-parameters during the stream."""
        kind = sysid.Adaptive if self is Setting.adaptive else sysid.MaximumAPosteriori
        return kind(n_initial=n_initial)


# --- before the stream: rows and hyper-parameters -------------------------------------------------


def prepare(unit: Unit, plan: Plan) -> xr.Dataset:
    """Trained ``variance``, ``length_scale`` (feature), ``noise_variance``."""
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
    """Hyper-parameters (seed, feature) of the setting `published`, the initial SMSE they give,
    whether it is reached.

    One isotropic length scale, by which the median initial SMSE over seeds is the published one.
    The signal variance is the mean square of the initial targets; the noise variance that of the
    trained hyper-parameters, at least 1e-4 and at most all of the signal variance. Of several
    lengths that fit, the shortest: the published values come out where it is too short. Where none
    fits, that of the closest SMSE.
    """
    task = unit.task
    seeds = TASKS[unit.task].seeds(plan.seeds)
    rows = [data_of(task, seed, plan) for seed in seeds]
    variance = [float(np.mean(data.initial_targets**2)) for data in rows]
    trained = [
        hyperparameters_of(task, seed, Setting.trained, plan).noise_variance for seed in seeds
    ]
    noise = [
        float(np.clip(n, LEAST_NOISE_RATIO * v, v)) for n, v in zip(trained, variance, strict=True)
    ]
    published = float(paper.read_table("table_2").loc[TASKS[task].title, "initial_smse"])
    p = rows[0].inputs.shape[1]

    def median(logarithm: float) -> float:
        kernels = [sysid.SquaredExponential(v, [float(np.exp(logarithm))] * p) for v in variance]
        starts = [
            sysid.Hyperparameters(k, n, float("nan")) for k, n in zip(kernels, noise, strict=True)
        ]
        return float(
            np.median([predict_initially(*pair) for pair in zip(rows, starts, strict=True)])
        )

    logarithms = np.log(LENGTHS)
    excess = np.array([median(x) for x in logarithms]) - published
    crossings = np.flatnonzero(np.signbit(excess[:-1]) != np.signbit(excess[1:]))
    length = float(LENGTHS[np.argmin(np.abs(excess))])
    if len(crossings):
        ends = logarithms[crossings[0] : crossings[0] + 2]
        length = float(np.exp(brentq(lambda x: median(x) - published, *ends, xtol=1e-3)))
    found = {
        "variance": ("seed", variance),
        "noise_variance": ("seed", noise),
        "length_scale": (("seed", "feature"), np.full((len(seeds), p), length)),
        "initial_smse": median(np.log(length)),
        "initial_smse_published": published,
        "is_reached": bool(len(crossings)),
    }
    return xr.Dataset(found, coords={"seed": list(seeds)})


#: what is computed before any study, by the first field of its units
PREPARATIONS: dict[str, Callable[[Unit, Plan], xr.Dataset]] = {
    "preparation": prepare,
    "calibration": calibrate,
}


@lru_cache(maxsize=10)
def data_of(task: str, seed: int, plan: Plan) -> TaskData:
    """Rows of a task."""
    sizes = {
        "n_initial": plan.n_initial,
        "most_rows": plan.most_rows,
        "building_samples": plan.building_samples,
    }
    return load_task(task, seed, **sizes)


@lru_cache(maxsize=32)
def hyperparameters_of(task: str, seed: int, setting: str, plan: Plan) -> sysid.Hyperparameters:
    """Hyper-parameters at the start of the stream, as they were prepared or calibrated."""
    seed = seed if TASKS[task].is_random else 0
    is_published = setting == Setting.published
    part = read_part(
        Unit("calibration", task) if is_published else Unit("preparation", task, seed),
        plan,
    )
    part = part.sel(seed=seed) if is_published else part
    kernel = sysid.SquaredExponential(float(part["variance"]), part["length_scale"].values)
    return sysid.Hyperparameters(kernel, float(part["noise_variance"]), float("nan"))


@lru_cache(maxsize=3)
def score_initially(task: str, seed: int, setting: str, plan: Plan) -> float:
    """SMSE on the test rows of the model before the stream."""
    return predict_initially(
        data_of(task, seed, plan), hyperparameters_of(task, seed, setting, plan)
    )


def predict_initially(data: TaskData, hyperparameters: sysid.Hyperparameters) -> float:
    """SMSE on the test rows of the model of all initial rows."""
    n = len(data.initial_targets)
    gp = sysid.OnlineGP(
        hyperparameters.kernel, noise_variance=hyperparameters.noise_variance, budget=n
    )
    mean, _ = gp.fit(data.initial_inputs, data.initial_targets).predict(data.test_inputs)
    return sysid.standardised_mean_squared_error(data.test_targets, mean)


# --- the stream -----------------------------------------------------------------------------------


class Run(NamedTuple):
    """The rules of one online GP to which the stream of a task and seed is offered."""

    setting: str
    reduction: str
    acceptance: str = "none"  # or a criterion
    reference: str = ""  # of the acceptance
    rule: str = "always"  # of insertion: always, variance, error
    threshold: float = 0.0  # of the rule, target unit, squared for the variance


QUANTITIES = (
    *("smse", "smse_initial"),  # on the test rows; of the model before the stream
    *(
        "mean_variance",
        "coverage_95",
        "nlpd",
    ),  # latent, target unit^2; share; nats; all on the test rows
    *(
        "n_offered",
        "n_inserted",
        "n_revised",
    ),  # rows; that passed the insertion rule; that entered the dictionary
    "n_estimates",  # of hyper-parameters during the stream
    "seconds",
    "accepted_percent",  # share of the inserted points that entered
)


def identify(
    data: TaskData, hyperparameters: sysid.Hyperparameters, **settings: Any
) -> sysid.Identification:
    """Start an identification that has seen the initial rows; inputs and targets stay as they are
    scaled.
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
    """Features as they are: `z1` to `zp` of the same row, the target is `y`."""
    return sysid.Narx(
        {"y": []},
        {f"z{d + 1}": [0] for d in range(n_features)},
        predict=sysid.Target.value,
    )


def start(run: Run, unit: Unit, plan: Plan) -> sysid.Identification:
    """Start the identification of a run on a task and seed: it has seen the initial rows."""
    insertions: dict[str, Any] = {
        "variance": sysid.VarianceThreshold,
        "error": sysid.ErrorThreshold,
    }
    criterion = CRITERIA.get(run.acceptance)
    return identify(
        data_of(unit.task, unit.seed, plan),
        hyperparameters_of(unit.task, unit.seed, run.setting, plan),
        insertion=insertions[run.rule](run.threshold) if run.rule in insertions else sysid.Always(),
        acceptance=sysid.ExceedsMinimum(criterion(), reference=run.reference)
        if criterion
        else sysid.AcceptAll(),
        reduction=CRITERIA[run.reduction](),
        budget=plan.budget,
        seed=unit.seed,
        training=Setting(run.setting).training(plan.n_initial),
    )


def offer(run: Run, unit: Unit, plan: Plan) -> dict[str, Any]:
    """Offer the stream, and score the model on the test rows: the fields of the run, and its
    `QUANTITIES`.

    What another study offered to the same task and seed in this process is not computed again.
    """
    return _offer(run, unit._replace(study=""), plan)


@lru_cache(maxsize=1000)
def _offer(run: Run, unit: Unit, plan: Plan) -> dict[str, Any]:
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
    variants: Sequence[str] = DISTINCT,
) -> list[dict[str, Any]]:
    """Offer the stream without and with the matched acceptance, without computing what must come
    out the same.

    The in-sample score of a stored point never exceeds its leave-one-out score: with ``u =
    noise_variance q`` in (0, 1] the latent variances are ``s (1 - u)`` against ``s (1 - u) / u``,
    the squared residuals ``s^2 a^2`` against ``s^2 a^2 / u^2``, the noisy variances ``s (2 - u)``
    against ``s / u``. So where the leave-one-out reference, the strictest, accepts every point that
    is inserted, all variants make the same decisions.

    Returns
    -------
    list of dict
        Rows with ``criterion`` and ``variant``; the published reference has one if that which it
        repeats is among the `variants`.
    """
    runs = {variant: run_of(setting, criterion, variant, rule, threshold) for variant in VARIANTS}
    strictest = offer(runs["leave_one_out"], unit, plan)
    rows = {runs["leave_one_out"]: strictest}
    for run in (runs[variant] for variant in variants if variant != "leave_one_out"):
        is_same = strictest["n_revised"] == strictest["n_inserted"]
        rows[run] = {**strictest, **run._asdict()} if is_same else offer(run, unit, plan)
    return [
        {"criterion": criterion, "variant": v, **rows[run]}
        for v, run in runs.items()
        if run in rows
    ]


def run_of(
    setting: str,
    criterion: str,
    variant: str,
    rule: str = "always",
    threshold: float = 0.0,
) -> Run:
    """Run without acceptance, or with the one that the paper matches to the criterion, under one of
    its references.
    """
    if variant == "none":
        return Run(setting, criterion, rule=rule, threshold=threshold)
    reference = (
        CRITERIA[criterion].published_reference.value
        if variant == sysid.Reference.published.value
        else variant
    )
    return Run(setting, criterion, criterion, reference, rule, threshold)
