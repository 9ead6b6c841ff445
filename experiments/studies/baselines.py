"""Baselines: full and sparse GPs, linear models and the online GP on every task, beside published values and floors."""

import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.linalg import expm, lapack

import simulators
import sysid
from experiments.plots.frames import fixed, quantiles, significant, to_markdown
from experiments.plots.style import BASELINE, COLORS, PAGE, PUBLISHED, label_logarithmic, page
from experiments.studies import paper
from experiments.studies.stream import Setting, data_of, identify, narx_without_lags
from experiments.studies.study import Plan, Study, Unit, frame_of_parts, mark_least, part_of, spread_out, summarise
from experiments.studies.tasks import BUILDING_NARX, TASKS, Rows, TaskData, draw_rows
from sysid.simulation.baselines import LinearArx

QUANTITIES = {
    "smse": "1",
    "nlpd": "nat",
    "coverage_95": "1",
    "train_seconds": "s",
    "predict_us": "us",  # per point, a batch of all test rows
    "peak_bytes": "byte",  # allocated by Python and NumPy during training, on top of the data; seed 0 only
    "size_bytes": "byte",  # of the arrays that the model keeps
}
FLOORS = ("floor_whole_past", "floor_true_state")
TABLES = ("boston", "concrete")  # rows without time, which can be shuffled
SHUFFLED_METHODS = ("full_gp", "online_gp", "ridge")
SEEDED_METHODS = ("online_gp_adaptive",)  # whose seed decides more than the rows
PUBLISHED_SMSE = {("van_der_pol", "full_gp"): paper.FULL_GP_VAN_DER_POL, ("building", "vfe"): paper.VFE_BUILDING}
PREDICTIONS = 3  # of which the fastest counts
TRACED_ITERATIONS = 3  # of a training whose memory is measured: the peak does not depend on their number
WARM_ROWS = 20  # of the stream, of the training that fills caches before the timed one

EXACT_ROWS, TRAINED_ROWS, RESTARTS = 1500, 300, 3  # of a full GP, at most; for its training, at random; its starts
#: where the training of the sparse GPs starts on small tasks: the exact GP on some rows
START = sysid.MaximumLikelihood(n_initial=150, restarts=2)
#: on the Building: without bound and priors the likelihood chooses a signal variance of 1e4 mean squares, and where the
#: second half of the year is warmer than the first the model is off by far (SMSE up to 14)
CAUTIOUS_START = sysid.MaximumAPosteriori(n_initial=300, restarts=2, variance_bounds=(0.0025, 10.0))
MANY_ROWS = 5000  # from which on the cautious start is used
TOLERANCE = 1e-4  # nats per sample that ten more iterations gain, where the training ends
RIDGES = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0)  # mean squares of the standardised features
FOLDS = 5  # of consecutive rows
SETTLING = 200  # samples that the filter needs to find the temperatures that nobody measures
UNKNOWN = np.array([0.0, 10.0, 20.0])  # K, standard deviations of zone, wall, radiator at the start


# --- methods --------------------------------------------------------------------------------------


class Material(NamedTuple):
    """What a method learns from."""

    data: TaskData
    seed: int
    plan: Plan
    is_short: bool = False  # whether trainings stop after very few iterations

    def limit(self, iterations: int) -> int:
        """Iterations of a training that usually stops after so many."""
        return min(iterations, TRACED_ITERATIONS) if self.is_short else iterations

    def shrink(self) -> "Material":
        """Take few rows and iterations."""
        data = self.data._replace(inputs=self.data.inputs[:WARM_ROWS], targets=self.data.targets[:WARM_ROWS])
        plan = replace(self.plan, inducing_points=min(self.plan.inducing_points, WARM_ROWS))
        return Material(data, self.seed, plan, is_short=True)


class Fitted(NamedTuple):
    """A model that has seen its data."""

    predict: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]  # mean and latent variance at inputs (m, p)
    noise_variance: float  # target unit^2
    size_bytes: int


@dataclass(frozen=True)
class Method:
    """A way to learn from all training rows of a task."""

    title: str
    fit: Callable[[Material], Fitted]
    tasks: tuple[str, ...] = tuple(TASKS)  # that it is computed for
    most_rows: float = np.inf  # training rows that it is computed for


def fit_full_gp(material: Material, training: sysid.MaximumLikelihood | sysid.MaximumAPosteriori) -> Fitted:
    """Train on a random subset, condition on all rows."""
    x, y = material.data.training_inputs, material.data.training_targets
    some = np.random.default_rng(material.seed).permutation(len(y))[:TRAINED_ROWS]
    training = replace(training, max_iterations=material.limit(training.max_iterations))
    found = training.train(x[some], y[some], material.seed)
    return condition(found, x, y)


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
    factor, status = lapack.dpotrf(covariance.T, lower=1, clean=1)
    if status != 0:
        raise np.linalg.LinAlgError(f"full GP: the covariance of {len(y)} points is not positive definite")
    weights, _ = lapack.dpotrs(factor, y, lower=1)

    def predict(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cross = kernel(inputs, x)
        whitened, _ = lapack.dtrtrs(factor, cross.T, lower=1)
        return cross @ weights, np.maximum(kernel.diagonal(inputs) - (whitened**2).sum(axis=0), 0.0)

    return Fitted(predict, found.noise_variance, x.nbytes + factor.nbytes + weights.nbytes)


def fit_inducing(material: Material, approximation: sysid.Approximation) -> Fitted:
    """Train hyper-parameters and inducing points together; never more inducing points than distinct rows."""
    x, y = material.data.training_inputs, material.data.training_targets
    found = sysid.fit_sparse(
        x,
        y,
        approximation=approximation,
        n_inducing=min(material.plan.inducing_points, len(np.unique(x, axis=0))),
        training=CAUTIOUS_START if len(y) > MANY_ROWS else START,
        max_iterations=material.limit(material.plan.sparse_iterations),
        tolerance=TOLERANCE,
        seed=material.seed,
    )
    model = found.model
    size = sum(part.nbytes for part in (model.prior.points, *model.posterior) if isinstance(part, np.ndarray))
    return Fitted(model.predict, model.noise_variance, size)


def fit_online(material: Material, setting: Setting) -> Fitted:
    """Train on the initial rows and offer the others: mean relevance, no acceptance."""
    data = material.data
    training = setting.training(len(data.initial_targets))
    found = training.train(data.initial_inputs, data.initial_targets, material.seed)
    rules = sysid.Always(), sysid.AcceptAll(), sysid.MeanRelevance()
    identification = identify(data, found, *rules, budget=material.plan.budget, seed=material.seed, training=training)
    identification.observe_many(data.inputs, data.targets)
    model = identification.model
    assert model is not None
    size = sum(array.nbytes for array in model.gp.state().values())
    return Fitted(model.predict, model.gp.noise_variance, size)


def fit_linear(inputs: np.ndarray, targets: np.ndarray, ridge: float = 0.0) -> Fitted:
    """Least squares; the variance of a prediction is that of the training residuals."""
    columns = {f"z{d + 1}": ("time", column) for d, column in enumerate(inputs.T)}
    rows = xr.Dataset({"y": ("time", targets), **columns}, {"time": np.arange(float(len(targets)))})
    model = LinearArx.fit(narx_without_lags(inputs.shape[1]), rows, ridge=ridge)

    def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return model.predict(x, np.full(len(x), np.nan)), np.zeros(len(x))

    return Fitted(predict, float(np.mean((targets - predict(inputs)[0]) ** 2)), model.coefficients.nbytes + 8)


def fit_arx(material: Material) -> Fitted:
    """Linear ARX: the features are the lags."""
    return fit_linear(material.data.training_inputs, material.data.training_targets)


def fit_bilinear(material: Material) -> Fitted:
    """Least squares in the lags of the Building and the products of a flow with any lag: the plant is bilinear."""
    fitted = fit_linear(add_flow_products(material.data.training_inputs), material.data.training_targets)
    return fitted._replace(predict=lambda x: fitted.predict(add_flow_products(x)))


def fit_ridge(material: Material, choose: Callable[[TaskData], float]) -> Fitted:
    """Ridge regression with a chosen penalty."""
    return fit_linear(material.data.training_inputs, material.data.training_targets, choose(material.data))


def choose_by_folds(data: TaskData) -> float:
    """Penalty of the smallest squared error in the left-out blocks of consecutive training rows."""
    x, y = data.training_inputs, data.training_targets

    def error(ridge: float) -> float:
        total = 0.0
        for fold in np.array_split(np.arange(len(y)), FOLDS):
            others = np.delete(np.arange(len(y)), fold)
            mean, _ = fit_linear(x[others], y[others], ridge).predict(x[fold])
            total += float(((y[fold] - mean) ** 2).sum())
        return total

    return min(RIDGES, key=error)


def choose_in_hindsight(data: TaskData) -> float:
    """Penalty that is best on the test rows: no honest model, but what no ridge regression can beat."""

    def error(ridge: float) -> float:
        mean, _ = fit_linear(data.training_inputs, data.training_targets, ridge).predict(data.test_inputs)
        return sysid.standardised_mean_squared_error(data.test_targets, mean)

    return min(RIDGES, key=error)


def add_flow_products(inputs: np.ndarray) -> np.ndarray:
    """Lags (n, 9) of the Building and their products with each lag of the flow, every pair once (n, 33)."""
    flows = [i for i, name in enumerate(BUILDING_NARX.feature_names) if name.startswith("mass_flow")]
    pairs = [(i, j) for i in flows for j in range(inputs.shape[1]) if j not in flows or j >= i]
    return np.column_stack([inputs, *(inputs[:, i] * inputs[:, j] for i, j in pairs)])


LIKELIHOOD = sysid.MaximumLikelihood(n_initial=TRAINED_ROWS, restarts=RESTARTS)
PRIORS = sysid.MaximumAPosteriori(n_initial=TRAINED_ROWS, restarts=RESTARTS)
#: all methods, in the order of the report
METHODS = {
    "full_gp": Method("Full GP", partial(fit_full_gp, training=LIKELIHOOD), most_rows=EXACT_ROWS),
    "full_gp_priors": Method("Full GP, priors", partial(fit_full_gp, training=PRIORS), TABLES),
    "vfe": Method("VFE", partial(fit_inducing, approximation=sysid.Approximation.vfe)),
    "fitc": Method("FITC", partial(fit_inducing, approximation=sysid.Approximation.fitc)),
    "online_gp": Method("Online GP", partial(fit_online, setting=Setting.trained)),
    "online_gp_adaptive": Method("Online GP, adaptive", partial(fit_online, setting=Setting.adaptive)),
    "linear_arx": Method("Linear ARX", fit_arx),
    "bilinear": Method("Bilinear least squares", fit_bilinear, ("building",)),
    "ridge": Method("Ridge", partial(fit_ridge, choose=choose_by_folds), TABLES),
    "ridge_hindsight": Method("Ridge, hindsight", partial(fit_ridge, choose=choose_in_hindsight), TABLES),
}


def measure(method: Method, material: Material) -> dict[str, float]:
    """Values of the `QUANTITIES`; memory is traced in a training of its own, because tracing slows it."""
    is_first = material.seed == 0
    if is_first:
        method.fit(material.shrink())
    begin = time.perf_counter()
    fitted = method.fit(material)
    train_seconds = time.perf_counter() - begin
    x, y = material.data.test_inputs, material.data.test_targets
    mean, variance = fitted.predict(x)
    found = sysid.validate(y, mean, variance, fitted.noise_variance)
    times = []
    for _ in range(PREDICTIONS):
        begin = time.perf_counter()
        fitted.predict(x)
        times.append(time.perf_counter() - begin)
    return {
        "smse": found.smse,
        "nlpd": found.nlpd,
        "coverage_95": found.coverage_95,
        "train_seconds": train_seconds,
        "predict_us": 1e6 * min(times) / found.n,
        "peak_bytes": trace_memory(method, material._replace(is_short=True)) if is_first else float("nan"),
        "size_bytes": float(fitted.size_bytes),
    }


def trace_memory(method: Method, material: Material) -> float:
    """Most bytes that a training holds at once on top of what is there (tracemalloc; no BLAS workspaces)."""
    tracemalloc.start()
    try:
        method.fit(material)
        return float(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


# --- what no model of the Building can be expected to beat ----------------------------------------


class Transition(NamedTuple):
    """``x[k+1] = A x[k] + b + w``, ``w ~ N(0, Q)``, for every sample."""

    matrix: np.ndarray  # (n, 3, 3)
    offset: np.ndarray  # (n, 3) K
    covariance: np.ndarray  # (n, 3, 3) K^2


def discretise(system: simulators.Building, inputs: np.ndarray) -> Transition:
    """Exact for held inputs (n, 2) and noise: ``exp([[J, I], [0, 0]] dt)`` with ``J = df/dx``, which has no x in it."""
    zero, n = np.zeros(3), len(inputs)
    block = np.zeros((n, 6, 6))
    block[:, :3, :3] = [system.jacobian(zero, u)[0] for u in inputs]
    block[:, :3, 3:] = np.eye(3)
    rates = np.array([system.derivative(0.0, zero, u, zero) for u in inputs])
    whole = expm(block * system.dt)
    integral, noise = whole[:, :3, 3:], np.diag(system.noise_std() ** 2)
    covariance = integral @ noise @ integral.transpose(0, 2, 1)
    return Transition(whole[:, :3, :3], np.einsum("nij,nj->ni", integral, rates), covariance)


def find_floors(test: Rows) -> dict[str, float]:
    """Lowest expected one-step SMSE on consecutive test rows of the Building.

    ``floor_whole_past``: of a prediction from all earlier outputs and inputs, reached by the Kalman filter of the true
    plant (given the flow the building is linear in its temperatures; Kalman, 1960), measured; models of three lags
    know less. ``floor_true_state``: of one from the true state, variance of the noise of one sample over Var(y).
    """
    lag = {name: test.inputs[:, i] for i, name in enumerate(BUILDING_NARX.feature_names)}
    output = lag["zone_temperature[k-1]"]
    inputs = np.column_stack([lag["ambient_temperature[k-1]"], lag["mass_flow[k-1]"]])
    moves = discretise(simulators.Building(), inputs)
    error = output + test.targets - filter_output(moves, output)
    variance = float(np.var(test.targets))
    measured = float(np.mean(error[SETTLING:] ** 2)) / variance
    return dict(zip(FLOORS, (measured, float(np.mean(moves.covariance[:, 0, 0])) / variance), strict=True))


def filter_output(moves: Transition, output: np.ndarray) -> np.ndarray:
    """Zone temperature (n,) predicted for the sample after each of the exactly measured ones (n,)."""
    x, P = np.full(3, output[0]), np.diag(UNKNOWN**2)
    predicted = np.empty(len(output))
    for k, (A, b, Q) in enumerate(zip(*moves, strict=True)):
        if P[0, 0] > 0:
            gain = P[:, 0] / P[0, 0]
            x, P = x + gain * (output[k] - x[0]), P - np.outer(gain, P[0])
        x, P = A @ x + b, A @ P @ A.T + Q
        predicted[k] = x[0]
    return predicted


# --- the study ------------------------------------------------------------------------------------


class BaselinesStudy(Study):
    """Batch models beside the online GP; shuffled tables as data sets of their own, which never count."""

    name, title = "baselines", "Baselines: batch models beside the online GP"
    weight = 2.0

    def units(self, plan: Plan) -> list[Unit]:
        """One unit per task and seed, of records too: tables are shuffled, and the adaptive GP keeps a sample."""
        return [Unit(self.name, name, seed) for name in plan.tasks for seed in range(plan.seeds)]

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Quantities of the methods in each order of the rows; floors of the Building."""
        data, floors = data_of(unit.task, unit.seed, plan), dict.fromkeys(FLOORS, float("nan"))
        names = tuple(METHODS) if TASKS[unit.task].is_random or unit.seed == 0 else SEEDED_METHODS
        cases = [("given", name, data) for name in names]
        if unit.task in TABLES:
            shuffled = shuffle(data, unit.seed)
            cases += [("shuffled", name, shuffled) for name in SHUFFLED_METHODS]
        if unit.task == "building":
            floors = find_floors(draw_rows(unit.task, unit.seed, plan.building_samples)[1])
        rows = []
        for order, name, case in cases:
            method = METHODS[name]
            if unit.task in method.tasks and len(case.training_targets) <= method.most_rows:
                found = measure(method, Material(case, unit.seed, plan))
                rows.append({"order": order, "model": name, **found, **floors})
        return part_of(rows)

    def combine(self, plan: Plan) -> xr.Dataset:
        """Quantities (dataset, model, seed) and floors (dataset, seed); a task without data is there, with nan."""
        frame, endings = frame_of_parts(self.kept(plan)), {"given": "", "shuffled": ", shuffled"}
        names = [
            TASKS[task].title + ending
            for task in plan.tasks
            for order, ending in endings.items()
            if order == "given" or task in TABLES
        ]
        if not frame.empty:
            frame["dataset"] += frame["order"].map(endings)
        coordinates: dict[str, Any] = {"dataset": names, "model": [*METHODS], "seed": [*range(plan.seeds)]}
        store = spread_out(frame, coordinates, list(QUANTITIES))
        del coordinates["model"]
        store = store.assign(spread_out(frame, coordinates, FLOORS))
        store["smse_published"] = xr.full_like(store["smse"].isel(seed=0, drop=True), np.nan)
        for (task, method), value in PUBLISHED_SMSE.items():
            if task in plan.tasks:
                store["smse_published"].loc[{"dataset": TASKS[task].title, "model": method}] = value
        for name, unit in QUANTITIES.items():
            store[name].attrs["units"] = unit
        return store

    def rows(self, store: xr.Dataset) -> pd.DataFrame:
        """One row per data set and method that was computed, medians over the seeds that it was computed for."""
        known, names = store["smse"].notnull(), [*QUANTITIES, *FLOORS, "ratio_to_floor"]
        wide = store.assign(ratio_to_floor=store["smse"] / store["floor_whole_past"])
        rows = summarise(wide.assign({name: wide[name].where(known) for name in names}), names)
        rows["smse_published"] = store["smse_published"].values.ravel()
        order = ["dataset", "model", *QUANTITIES, "smse_published", *FLOORS, "ratio_to_floor", "n_seeds"]
        return rows.loc[rows["n_seeds"] > 0, order]

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """All data sets and methods; the lowest honest SMSE of a data set bold."""
        rows = self.rows(store)
        rows = rows.assign(honest=rows["smse"].where(rows["model"] != "ridge_hindsight"))
        texts = mark_least(rows, rows["smse"].map(significant), ["dataset"], "honest")
        columns: dict[str, Any] = {
            "SMSE": texts,
            "published": [fixed(x, 4, "") for x in rows["smse_published"]],
            "SMSE / published": (rows["smse"] / rows["smse_published"]).map(significant),
            "floor": rows["floor_whole_past"].map(significant),
            "SMSE / floor": rows["ratio_to_floor"].map(significant),
            "NLPD [nat]": rows["nlpd"].map(significant),
            "in 95 % [%]": [f"{100 * x:.1f}" for x in rows["coverage_95"]],
            "training [s]": rows["train_seconds"].map(significant),
            "prediction [\u00b5s]": rows["predict_us"].map(significant),
            "memory [MB]": (rows["peak_bytes"] / 1e6).map(significant),
            "size [kB]": (rows["size_bytes"] / 1e3).map(significant),
            "seeds": rows["n_seeds"].astype(str),
        }
        titles = {name: method.title for name, method in METHODS.items()}
        table = rows[["dataset"]].assign(model=rows["model"].map(titles), **columns)
        missing = [name for name in store["dataset"].values.tolist() if name not in set(rows["dataset"])]
        gaps = pd.DataFrame({"dataset": missing, "model": "no data"})
        return {"rows": to_markdown(pd.concat([table, gaps]).fillna(""))}

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Error against memory and time, on the Building; none if it was not computed."""
        here = store.sel(dataset=store["dataset"] == TASKS["building"].title)
        if not bool(here["smse"].notnull().any()):
            return {}
        return {"baselines_building": partial(draw_costs, here.isel(dataset=0))}


def shuffle(data: TaskData, seed: int) -> TaskData:
    """All rows in a random order, split and standardised as those in file order."""
    inputs = np.vstack([data.training_inputs, data.test_inputs])
    targets = np.concatenate([data.training_targets, data.test_targets])
    order = np.random.default_rng(seed).permutation(len(targets))
    training, test = np.split(order, [len(data.training_targets)])
    return TaskData.of(
        Rows(inputs[training], targets[training]), Rows(inputs[test], targets[test]), len(data.initial_targets)
    )


def list_floors(store: xr.Dataset) -> dict[str, float]:
    """SMSE by dataset below which nothing was shown to be reachable, medians over the seeds of a store of baselines.

    Of the Building the floor of the whole past; of the tables in file order the best batch model on all rows.
    """
    median = store["smse"].median("seed")
    floors = {}
    for name in ("Boston", "Concrete", "Building"):
        if name in store["dataset"].values:
            is_building = name == "Building"
            found = store["floor_whole_past"].median("seed") if is_building else median.min("model")
            floors[name] = float(found.sel(dataset=name))
    return {name: floor for name, floor in floors.items() if np.isfinite(floor)}


AXES = {
    "peak_bytes": (1e-6, "Peak memory of training [MB]"),
    "train_seconds": (1.0, "Training time [s]"),
    "predict_us": (1.0, "Prediction time [\u00b5s per row]"),
}
MARKERS = dict(zip(METHODS, "osv^DPp*Xh", strict=True))


@rc_context(PAGE)
def draw_costs(store: xr.Dataset) -> Figure:
    """SMSE with its quartiles over seeds against memory, training and prediction time."""
    figure, axes = page(1, len(AXES), 2.6, sharey=True)
    names = [name for name in store["model"].values.tolist() if store["smse"].sel(model=name).notnull().any()]
    colors = {name: COLORS["mean_relevance"] if name.startswith("online") else BASELINE for name in names}
    floor: dict[str, Any] = {"color": PUBLISHED, "linestyle": ":", "linewidth": 0.8}
    for ax, (quantity, (factor, label)) in zip(axes[0], AXES.items(), strict=True):
        for name in names:
            here = store.sel(model=name)
            low, middle, high = quantiles(here["smse"].values)
            x = factor * quantiles(here[quantity].where(here["smse"].notnull()).values, (0.5,))[0]
            style: dict[str, Any] = {"color": colors[name], "markersize": 4, "linewidth": 0.8}
            ax.errorbar(x, middle, [[middle - low], [high - middle]], fmt=MARKERS[name], **style)
        ax.axhline(float(store["floor_whole_past"].median()), **floor)
        ax.set(xscale="log", xlabel=label)
        ax.margins(x=0.15)
        label_logarithmic(ax.xaxis)
    axes[0, 0].set_ylabel("SMSE [1]")
    handles = [
        Line2D([], [], color=colors[n], marker=MARKERS[n], markersize=4, linewidth=0.8, label=METHODS[n].title)
        for n in names
    ]
    handles.append(Line2D([], [], label="Floor: filter of the true plant", **floor))
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure
