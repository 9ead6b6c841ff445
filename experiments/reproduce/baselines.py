"""Baselines: full and sparse GPs, linear models and the online GP, beside published values."""

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
    STUDY_TASKS,
    Rows,
    TaskData,
)
from sysid.simulation.baselines import LinearArx

BASELINE_QUANTITIES = (
    "smse",
    "nlpd",
    "coverage_95",
    "train_seconds",
    "predict_us",  # per point, of a batch of all test rows
    "size_bytes",  # of the arrays that the model keeps
)
SHUFFLED_TASKS = ("boston", "concrete")  # tasks whose rows have no time, and can be shuffled
SHUFFLED_METHODS = ("full_gp", "online_gp")
SEEDED_METHODS = ("online_gp_adaptive",)  # methods whose results depend on the seed itself, too
PUBLISHED_BASELINES = {
    ("van_der_pol", "full_gp"): paper.FULL_GP_VAN_DER_POL,
    ("building", "vfe"): paper.VFE_BUILDING,
}
N_TIMED_PREDICTIONS = 3  # predictions that are timed; the fastest one counts
# A short training before the timed one compiles and fills caches.
N_WARM_UP_ROWS = 20  # rows of the stream in the short training
N_WARM_UP_ITERATIONS = 3  # iterations of a sparse GP in the short training

MAX_FULL_GP_ROWS = 1500  # a full GP is not computed for more training rows
N_FULL_GP_TRAINING_ROWS = 300  # random rows that train the hyper-parameters of the full GP
FULL_GP_RESTARTS = 3
#: Start of the sparse GPs on small tasks: the exact GP of some rows.
SPARSE_START = sysid.MaximumLikelihood(n_initial=150, restarts=2)
#: Start of the sparse GPs on the Building. Without bounds and priors the likelihood chooses a
#: signal variance of 1e4 mean squares. Where the second half of the year is warmer than the first,
#: the model then has large errors (SMSE up to 14).
CAUTIOUS_SPARSE_START = sysid.MaximumAPosteriori(
    n_initial=300, restarts=2, variance_bounds=(0.0025, 10.0)
)
MAX_INCAUTIOUS_ROWS = 5000  # with more rows the cautious start is used
# The training of a sparse GP ends if ten more iterations gain less [nats per sample].
SPARSE_TOLERANCE = 1e-4
# Penalties of the ridge regression, in mean squares of the standardised features.
TRIED_RIDGES = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0)


# --- methods --------------------------------------------------------------------------------------


class Material(NamedTuple):
    """Data and settings from which a method learns."""

    data: TaskData
    seed: int
    plan: Plan


class Fitted(NamedTuple):
    """A model that has learned its data."""

    # Mean and latent variance at inputs (m, p).
    predict: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
    noise_variance: float  # target unit^2
    size_bytes: int


@dataclass(frozen=True)
class Method:
    """A way to learn from all training rows of a task."""

    fit: Callable[[Material], Fitted]
    tasks: tuple[str, ...] = tuple(PAPER_TASKS)  # for which it is computed
    most_rows: float = np.inf  # training rows up to which it is computed


def fit_full_gp(
    material: Material, training: sysid.MaximumLikelihood | sysid.MaximumAPosteriori
) -> Fitted:
    """Train the hyper-parameters on a random subset, and condition on all rows."""
    x = material.data.training_inputs
    y = material.data.training_targets
    order = np.random.default_rng(material.seed).permutation(len(y))
    subset = order[:N_FULL_GP_TRAINING_ROWS]
    return condition(training.train(x[subset], y[subset], material.seed), x, y)


def condition(found: sysid.Hyperparameters, x: np.ndarray, y: np.ndarray) -> Fitted:
    """Return the exact posterior of all points.

    The mean is ``k'Ky^-1 y``, the latent variance ``k(x, x) - k'Ky^-1 k``.

    Raises
    ------
    numpy.linalg.LinAlgError
        Ky is not positive definite in double precision.
    """
    kernel: sysid.Kernel = found.kernel
    covariance = kernel(x, x)
    covariance[np.diag_indices(len(y))] += found.noise_variance
    factor = cho_factor(covariance, lower=True)
    weights = cho_solve(factor, y)

    def predict(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cross = kernel(inputs, x)
        whitened = solve_triangular(factor[0], cross.T, lower=True)
        variance = kernel.diagonal(inputs) - (whitened**2).sum(axis=0)
        return cross @ weights, np.maximum(variance, 0.0)

    size = x.nbytes + factor[0].nbytes + weights.nbytes
    return Fitted(predict, found.noise_variance, size)


def fit_inducing(material: Material, approximation: sysid.Approximation) -> Fitted:
    """Train hyper-parameters and inducing points together.

    There are never more inducing points than distinct rows.
    """
    x = material.data.training_inputs
    y = material.data.training_targets
    model = sysid.fit_sparse(
        x,
        y,
        approximation=approximation,
        n_inducing=min(material.plan.inducing_points, len(np.unique(x, axis=0))),
        training=CAUTIOUS_SPARSE_START if len(y) > MAX_INCAUTIOUS_ROWS else SPARSE_START,
        max_iterations=material.plan.sparse_iterations,
        tolerance=SPARSE_TOLERANCE,
        seed=material.seed,
    ).model
    size = sum(
        part.nbytes
        for part in (model.prior.points, *model.posterior)
        if isinstance(part, np.ndarray)
    )
    return Fitted(model.predict, model.noise_variance, size)


def fit_online(material: Material, setting: Setting) -> Fitted:
    """Train on the initial rows and offer the others, by mean relevance and without acceptance."""
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
    """Fit least squares; the variance of a prediction is that of the training residuals."""
    columns = {f"z{d + 1}": ("time", column) for d, column in enumerate(inputs.T)}
    rows = xr.Dataset({"y": ("time", targets), **columns}, {"time": np.arange(float(len(targets)))})
    model = LinearArx.fit(narx_without_lags(inputs.shape[1]), rows, ridge=ridge)

    def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return model.predict(x, np.full(len(x), np.nan)), np.zeros(len(x))

    residuals = targets - predict(inputs)[0]
    return Fitted(predict, float(np.mean(residuals**2)), model.coefficients.nbytes + 8)


def fit_linear(
    material: Material,
    choose: Callable[[TaskData], float] = lambda _: 0.0,
    expand: Callable[[np.ndarray], np.ndarray] = lambda inputs: inputs,
) -> Fitted:
    """Fit least squares with a chosen penalty in expanded features.

    The features of a dynamic task are lags.
    """
    data = material.data
    fitted = solve_linear(expand(data.training_inputs), data.training_targets, choose(data))
    return fitted._replace(predict=lambda x: fitted.predict(expand(x)))


def choose_in_hindsight(data: TaskData) -> float:
    """Return the penalty with the smallest error on the test rows.

    It is no honest model, but a bound that no ridge regression can beat.
    """

    def error(ridge: float) -> float:
        fitted = solve_linear(data.training_inputs, data.training_targets, ridge)
        mean, _ = fitted.predict(data.test_inputs)
        return float(np.sum((data.test_targets - mean) ** 2))

    return min(TRIED_RIDGES, key=error)


def add_flow_products(inputs: np.ndarray) -> np.ndarray:
    """Return lags (n, 9) of the Building with their products with each lag of the flow (n, 33).

    Every pair has one product.
    """
    names = BUILDING_NARX.feature_names
    flows = [i for i, name in enumerate(names) if name.startswith("mass_flow")]
    products = []
    for i in flows:
        for j in range(inputs.shape[1]):
            is_repeated = j in flows and j < i
            if not is_repeated:
                products.append(inputs[:, i] * inputs[:, j])
    return np.column_stack([inputs, *products])


FULL_GP_LIKELIHOOD = sysid.MaximumLikelihood(
    n_initial=N_FULL_GP_TRAINING_ROWS, restarts=FULL_GP_RESTARTS
)
FULL_GP_PRIORS = sysid.MaximumAPosteriori(
    n_initial=N_FULL_GP_TRAINING_ROWS, restarts=FULL_GP_RESTARTS
)
#: All methods, in the order of the report.
BASELINE_METHODS = {
    "full_gp": Method(
        partial(fit_full_gp, training=FULL_GP_LIKELIHOOD), most_rows=MAX_FULL_GP_ROWS
    ),
    "full_gp_priors": Method(partial(fit_full_gp, training=FULL_GP_PRIORS), SHUFFLED_TASKS),
    "vfe": Method(partial(fit_inducing, approximation=sysid.Approximation.vfe)),
    "fitc": Method(partial(fit_inducing, approximation=sysid.Approximation.fitc)),
    "online_gp": Method(partial(fit_online, setting=Setting.trained)),
    "online_gp_adaptive": Method(partial(fit_online, setting=Setting.adaptive)),
    "linear_arx": Method(fit_linear),
    "bilinear": Method(partial(fit_linear, expand=add_flow_products), ("building",)),
    "ridge_hindsight": Method(partial(fit_linear, choose=choose_in_hindsight), SHUFFLED_TASKS),
}


def measure(method: Method, material: Material) -> dict[str, float]:
    """Fit a method, and return its `BASELINE_QUANTITIES`."""
    data = material.data
    if material.seed == 0:
        _warm_up(method, material)
    begin = time.perf_counter()
    fitted = method.fit(material)
    train_seconds = time.perf_counter() - begin
    mean, variance = fitted.predict(data.test_inputs)
    times = timeit.repeat(
        lambda: fitted.predict(data.test_inputs), repeat=N_TIMED_PREDICTIONS, number=1
    )
    found = sysid.validate(data.test_targets, mean, variance, fitted.noise_variance)
    values = (
        found.smse,
        found.nlpd,
        found.coverage_95,
        train_seconds,
        1e6 * min(times) / found.n,
        fitted.size_bytes,
    )
    return dict(zip(BASELINE_QUANTITIES, map(float, values), strict=True))


def _warm_up(method: Method, material: Material) -> None:
    """Fit a method to a few rows, which compiles and fills caches."""
    data = material.data
    plan = material.plan
    few = data._replace(inputs=data.inputs[:N_WARM_UP_ROWS], targets=data.targets[:N_WARM_UP_ROWS])
    small = replace(
        plan,
        inducing_points=min(plan.inducing_points, N_WARM_UP_ROWS),
        sparse_iterations=min(plan.sparse_iterations, N_WARM_UP_ITERATIONS),
    )
    method.fit(Material(few, 0, small))


# --- the study ------------------------------------------------------------------------------------


class BaselinesStudy(Study):
    """Batch models beside the online GP.

    Shuffled tables are data sets of their own; they are not compared with published numbers.
    """

    name = "baselines"
    title = "Baselines: batch models beside the online GP"
    has_random_records = True  # tables are shuffled, and the adaptive GP keeps a random sample
    quantities = (*BASELINE_QUANTITIES, "smse_published")

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Measure the methods in each order of the rows, beside published values."""
        data = data_of(unit.task, unit.seed, plan)
        title = STUDY_TASKS[unit.task].title
        has_new_rows = STUDY_TASKS[unit.task].is_random or unit.seed == 0
        names = BASELINE_METHODS if has_new_rows else SEEDED_METHODS
        cases = [(title, name, data) for name in names]
        if unit.task in SHUFFLED_TASKS:
            shuffled = shuffle(data, unit.seed)
            cases += [(f"{title}, shuffled", name, shuffled) for name in SHUFFLED_METHODS]
        rows = []
        for dataset, name, case in cases:
            method = BASELINE_METHODS[name]
            if unit.task in method.tasks and len(case.training_targets) <= method.most_rows:
                found = measure(method, Material(case, unit.seed, plan))
                published = PUBLISHED_BASELINES.get((unit.task, name), np.nan)
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
        """Return the data sets, shuffled tables after those in file order, and all methods."""
        datasets = []
        for task in plan.tasks:
            if task in self.tasks:
                datasets.append(STUDY_TASKS[task].title)
                if task in SHUFFLED_TASKS:
                    datasets.append(f"{STUDY_TASKS[task].title}, shuffled")
        return {"dataset": datasets, "model": [*BASELINE_METHODS]}

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """Return one row per data set and method, with medians over the computed seeds."""
        return super().rows(store)[["dataset", "model", *self.quantities, "n_seeds"]]


def shuffle(data: TaskData, seed: int) -> TaskData:
    """Return all rows in a random order, split and standardised as those in file order."""
    inputs = np.vstack([data.training_inputs, data.test_inputs])
    targets = np.concatenate([data.training_targets, data.test_targets])
    order = np.random.default_rng(seed).permutation(len(targets))
    first, last = np.split(order, [len(data.training_targets)])
    training = Rows(inputs[first], targets[first])
    test = Rows(inputs[last], targets[last])
    return TaskData.of(training, test, len(data.initial_targets))
