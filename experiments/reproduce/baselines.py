"""Baselines: full and sparse GPs, linear models and the online GP on every task, beside published
values.
"""

import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy.linalg import cho_factor, cho_solve, solve_triangular

import sysid
from experiments.reproduce import paper
from experiments.reproduce.stream import Setting, data_of, identify, narx_without_lags
from experiments.reproduce.study import Plan, Study, Unit, part_of
from experiments.reproduce.tasks import (
    BUILDING_NARX,
    PAPER_TASKS,
    TASKS,
    Rows,
    TaskData,
)
from sysid.simulation.baselines import LinearArx

QUANTITIES = (
    *("smse", "nlpd", "coverage_95", "train_seconds"),
    "predict_us",  # per point, a batch of all test rows
    "size_bytes",  # of the arrays that the model keeps
)
TABLES = ("boston", "concrete")  # rows without time, which can be shuffled
SHUFFLED_METHODS = ("full_gp", "online_gp")
SEEDED_METHODS = ("online_gp_adaptive",)  # whose seed decides more than the rows
PUBLISHED_SMSE = {
    ("van_der_pol", "full_gp"): paper.FULL_GP_VAN_DER_POL,
    ("building", "vfe"): paper.VFE_BUILDING,
}
PREDICTIONS = 3  # of which the fastest counts
# of the stream, of the training that fills caches before the timed one
WARM_ROWS = 20
WARM_ITERATIONS = 3

# of a full GP, at most; for its training, at random; its starts
EXACT_ROWS = 1500
TRAINED_ROWS = 300
RESTARTS = 3
#: where the training of the sparse GPs starts on small tasks: the exact GP on some rows
START = sysid.MaximumLikelihood(n_initial=150, restarts=2)
#: on the Building: without bound and priors the likelihood chooses a signal variance of 1e4 mean squares, and where the
#: second half of the year is warmer than the first the model is off by far (SMSE up to 14)
CAUTIOUS_START = sysid.MaximumAPosteriori(n_initial=300, restarts=2, variance_bounds=(0.0025, 10.0))
MANY_ROWS = 5000  # from which on the cautious start is used
TOLERANCE = 1e-4  # nats per sample that ten more iterations gain, where the training ends
RIDGES = (
    0.0,
    1e-3,
    1e-2,
    0.1,
    0.3,
    1.0,
    3.0,
    10.0,
)  # mean squares of the standardised features


# --- methods --------------------------------------------------------------------------------------


class Material(NamedTuple):
    """What a method learns from."""

    data: TaskData
    seed: int
    plan: Plan


class Fitted(NamedTuple):
    """A model that has seen its data."""

    predict: Callable[
        [np.ndarray], tuple[np.ndarray, np.ndarray]
    ]  # mean and latent variance at inputs (m, p)
    noise_variance: float  # target unit^2
    size_bytes: int


@dataclass(frozen=True)
class Method:
    """A way to learn from all training rows of a task."""

    fit: Callable[[Material], Fitted]
    tasks: tuple[str, ...] = tuple(PAPER_TASKS)  # that it is computed for
    most_rows: float = np.inf  # training rows that it is computed for


def fit_full_gp(
    material: Material, training: sysid.MaximumLikelihood | sysid.MaximumAPosteriori
) -> Fitted:
    """Train on a random subset, condition on all rows."""
    x = material.data.training_inputs
    y = material.data.training_targets
    some = np.random.default_rng(material.seed).permutation(len(y))[:TRAINED_ROWS]
    return condition(training.train(x[some], y[some], material.seed), x, y)


def condition(found: sysid.Hyperparameters, x: np.ndarray, y: np.ndarray) -> Fitted:
    """Exact posterior of all points: ``mean = k'Ky^-1 y``, latent variance ``k(x, x) - k'Ky^-1 k``.

    Raises
    ------
    numpy.linalg.LinAlgError
        If Ky is not positive definite in double precision.
    """
    kernel: sysid.Kernel = found.kernel
    covariance = kernel(x, x)
    covariance[np.diag_indices(len(y))] += found.noise_variance
    factor = cho_factor(covariance, lower=True)
    weights = cho_solve(factor, y)

    def predict(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cross = kernel(inputs, x)
        whitened = solve_triangular(factor[0], cross.T, lower=True)
        return cross @ weights, np.maximum(kernel.diagonal(inputs) - (whitened**2).sum(axis=0), 0.0)

    return Fitted(predict, found.noise_variance, x.nbytes + factor[0].nbytes + weights.nbytes)


def fit_inducing(material: Material, approximation: sysid.Approximation) -> Fitted:
    """Train hyper-parameters and inducing points together; never more inducing points than distinct
    rows.
    """
    x = material.data.training_inputs
    y = material.data.training_targets
    model = sysid.fit_sparse(
        x,
        y,
        approximation=approximation,
        n_inducing=min(material.plan.inducing_points, len(np.unique(x, axis=0))),
        training=CAUTIOUS_START if len(y) > MANY_ROWS else START,
        max_iterations=material.plan.sparse_iterations,
        tolerance=TOLERANCE,
        seed=material.seed,
    ).model
    size = sum(
        part.nbytes
        for part in (model.prior.points, *model.posterior)
        if isinstance(part, np.ndarray)
    )
    return Fitted(model.predict, model.noise_variance, size)


def fit_online(material: Material, setting: Setting) -> Fitted:
    """Train on the initial rows and offer the others: mean relevance, no acceptance."""
    data = material.data
    seed = material.seed
    training = setting.training(len(data.initial_targets))
    found = training.train(data.initial_inputs, data.initial_targets, seed)
    rules = {
        "insertion": sysid.Always(),
        "acceptance": sysid.AcceptAll(),
        "reduction": sysid.MeanRelevance(),
    }
    identification = identify(
        data, found, **rules, budget=material.plan.budget, seed=seed, training=training
    )
    identification.observe_many(data.inputs, data.targets)
    model = identification.require_model()
    size = sum(array.nbytes for array in model.gp.state().values())
    return Fitted(model.predict, model.gp.noise_variance, size)


def solve_linear(inputs: np.ndarray, targets: np.ndarray, ridge: float = 0.0) -> Fitted:
    """Least squares; the variance of a prediction is that of the training residuals."""
    columns = {f"z{d + 1}": ("time", column) for d, column in enumerate(inputs.T)}
    rows = xr.Dataset({"y": ("time", targets), **columns}, {"time": np.arange(float(len(targets)))})
    model = LinearArx.fit(narx_without_lags(inputs.shape[1]), rows, ridge=ridge)

    def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return model.predict(x, np.full(len(x), np.nan)), np.zeros(len(x))

    return Fitted(
        predict,
        float(np.mean((targets - predict(inputs)[0]) ** 2)),
        model.coefficients.nbytes + 8,
    )


def fit_linear(
    material: Material,
    choose: Callable[[TaskData], float] = lambda _: 0.0,
    expand: Callable[[np.ndarray], np.ndarray] = lambda inputs: inputs,
) -> Fitted:
    """Least squares in the features (those of a dynamic task are lags), with a chosen penalty."""
    fitted = solve_linear(
        expand(material.data.training_inputs),
        material.data.training_targets,
        choose(material.data),
    )
    return fitted._replace(predict=lambda x: fitted.predict(expand(x)))


def choose_in_hindsight(data: TaskData) -> float:
    """Penalty that is best on the test rows: no honest model, but what no ridge regression can
    beat.
    """

    def error(ridge: float) -> float:
        mean, _ = solve_linear(data.training_inputs, data.training_targets, ridge).predict(
            data.test_inputs
        )
        return float(np.sum((data.test_targets - mean) ** 2))

    return min(RIDGES, key=error)


def add_flow_products(inputs: np.ndarray) -> np.ndarray:
    """Lags (n, 9) of the Building and their products with each lag of the flow, every pair once (n,
    33).
    """
    flows = [
        i for i, name in enumerate(BUILDING_NARX.feature_names) if name.startswith("mass_flow")
    ]
    pairs = [(i, j) for i in flows for j in range(inputs.shape[1]) if j not in flows or j >= i]
    return np.column_stack([inputs, *(inputs[:, i] * inputs[:, j] for i, j in pairs)])


LIKELIHOOD = sysid.MaximumLikelihood(n_initial=TRAINED_ROWS, restarts=RESTARTS)
PRIORS = sysid.MaximumAPosteriori(n_initial=TRAINED_ROWS, restarts=RESTARTS)
#: all methods, in the order of the report
METHODS = {
    "full_gp": Method(partial(fit_full_gp, training=LIKELIHOOD), most_rows=EXACT_ROWS),
    "full_gp_priors": Method(partial(fit_full_gp, training=PRIORS), TABLES),
    "vfe": Method(partial(fit_inducing, approximation=sysid.Approximation.vfe)),
    "fitc": Method(partial(fit_inducing, approximation=sysid.Approximation.fitc)),
    "online_gp": Method(partial(fit_online, setting=Setting.trained)),
    "online_gp_adaptive": Method(partial(fit_online, setting=Setting.adaptive)),
    "linear_arx": Method(fit_linear),
    "bilinear": Method(partial(fit_linear, expand=add_flow_products), ("building",)),
    "ridge_hindsight": Method(partial(fit_linear, choose=choose_in_hindsight), TABLES),
}


def measure(method: Method, material: Material) -> dict[str, float]:
    """Values of the `QUANTITIES`."""
    data = material.data
    if material.seed == 0:  # fill caches
        few = data._replace(inputs=data.inputs[:WARM_ROWS], targets=data.targets[:WARM_ROWS])
        plan = replace(material.plan, inducing_points=min(material.plan.inducing_points, WARM_ROWS))
        method.fit(
            Material(
                few,
                0,
                replace(plan, sparse_iterations=min(plan.sparse_iterations, WARM_ITERATIONS)),
            )
        )
    begin = time.perf_counter()
    fitted = method.fit(material)
    train_seconds, (mean, variance) = (
        time.perf_counter() - begin,
        fitted.predict(data.test_inputs),
    )
    times = timeit.repeat(lambda: fitted.predict(data.test_inputs), repeat=PREDICTIONS, number=1)
    found = sysid.validate(data.test_targets, mean, variance, fitted.noise_variance)
    values = (
        found.smse,
        found.nlpd,
        found.coverage_95,
        train_seconds,
        1e6 * min(times) / found.n,
        fitted.size_bytes,
    )
    return dict(zip(QUANTITIES, map(float, values), strict=True))


# --- the study ------------------------------------------------------------------------------------


class BaselinesStudy(Study):
    """Batch models beside the online GP; shuffled tables as data sets of their own, which never
    count.
    """

    name = "baselines"
    title = "Baselines: batch models beside the online GP"
    has_random_records = True  # tables are shuffled, and the adaptive GP keeps a sample
    quantities = (*QUANTITIES, "smse_published")

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Quantities of the methods in each order of the rows, and published values."""
        data = data_of(unit.task, unit.seed, plan)
        title = TASKS[unit.task].title
        rows = []
        names = METHODS if TASKS[unit.task].is_random or unit.seed == 0 else SEEDED_METHODS
        cases = [(title, name, data) for name in names]
        if unit.task in TABLES:
            shuffled = shuffle(data, unit.seed)
            cases += [(f"{title}, shuffled", name, shuffled) for name in SHUFFLED_METHODS]
        for dataset, name, case in cases:
            method = METHODS[name]
            if unit.task in method.tasks and len(case.training_targets) <= method.most_rows:
                found = measure(method, Material(case, unit.seed, plan))
                published = PUBLISHED_SMSE.get((unit.task, name), np.nan)
                rows.append(
                    {
                        "dataset": dataset,
                        "model": name,
                        **found,
                        "smse_published": published,
                    }
                )
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Shuffled tables after those in file order; all methods."""
        endings = {
            task: ("", ", shuffled") if task in TABLES else ("",)
            for task in plan.tasks
            if task in self.tasks
        }
        datasets = [TASKS[task].title + ending for task in endings for ending in endings[task]]
        return {"dataset": datasets, "model": [*METHODS]}

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """One row per data set and method that was computed, medians over the seeds that it was
        computed for.
        """
        return super().rows(store)[["dataset", "model", *self.quantities, "n_seeds"]]


def shuffle(data: TaskData, seed: int) -> TaskData:
    """All rows in a random order, split and standardised as those in file order."""
    inputs = np.vstack([data.training_inputs, data.test_inputs])
    targets = np.concatenate([data.training_targets, data.test_targets])
    order = np.random.default_rng(seed).permutation(len(targets))
    training, test = (
        Rows(inputs[i], targets[i]) for i in np.split(order, [len(data.training_targets)])
    )
    return TaskData.of(training, test, len(data.initial_targets))
