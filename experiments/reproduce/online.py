"""Online methods side by side: the same stream, hyper-parameters and number of points."""

import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any, ClassVar, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

import sysid
from experiments.drawing.style import GREY, PALETTE, panels_by_title, scale_axis
from experiments.drawing.tables import to_markdown
from experiments.reproduce import online_methods
from experiments.reproduce.baselines import Fitted, condition, solve_linear
from experiments.reproduce.study import Plan, Study, Unit, part_of, round_numbers
from experiments.reproduce.tasks import STUDY_TASKS, Records, Rows, Stream, draw_records
from sysid.lag_choice import MAX_EQUAL_LAGS
from sysid.simulation.linear_models import recursive_least_squares

N_STREAM_PARTS = 12  # parts of a stream whose errors are reported one by one
# Mean squared error in each part, over the variance of the target in the stream.
PART_ERRORS = tuple(f"error_{k + 1}" for k in range(N_STREAM_PARTS))
ONLINE_COUNTS = ("n_numbers", "n_revised", "n_outliers")
ONLINE_QUANTITIES = ("smse", "smse_stream", "nlpd", "coverage_95", "per_sample", *ONLINE_COUNTS)
MAX_BATCH_ROWS = 2000  # rows that the full GP learns, in equal steps over the stream
N_WARM_UP_SAMPLES = 50  # samples of a first run, which compiles and is not timed
#: Methods whose error over the stream is drawn, with their colours.
DRAWN_METHODS = {
    "RLS": PALETTE[0],
    "linear, best order": GREY,
    "stored, mean relevance": PALETTE[1],
    "every_sample": PALETTE[2],
    "every_sample, adaptive": PALETTE[3],
    "every_sample, adaptive, linear part": PALETTE[4],
}
#: Model structures of the tasks whose rows have an order.
STRUCTURES: dict[str, sysid.Narx] = {
    name: task.narx for name, task in STUDY_TASKS.items() if isinstance(task, Stream)
}
MAX_CUBIC_ROWS = 5000  # rows up to which methods that cost O(N^3) a sample predict the stream


class Outcome(NamedTuple):
    """Predictions and counts of a method."""

    stream_mean: np.ndarray  # (n,) one step ahead in the stream; nan without predictions
    mean: np.ndarray  # (m,) of measurements on the test rows
    variance: np.ndarray  # (m,) of measurements on the test rows
    counts: dict[str, float]


class LongRows(NamedTuple):
    """Rows of the same samples, with the lags of a linear part too.

    The first samples of each record have no such rows.
    """

    narx: sysid.Narx
    initial: Rows
    stream: Rows
    test: Rows
    is_in_stream: np.ndarray  # (n,) whether a row of the stream of the other methods is among them

    @property
    def orders(self) -> dict[int, list[int]]:
        """Features of a linear model by its number of lags of each signal, the largest lags last.

        They are those of the linear part.
        """
        narx = self.narx
        of_lags: dict[int, list[int]] = {}  # features by the number of their lag, from 1
        for column in range(narx.n_features - narx.n_linear, narx.n_features):
            signal, lag = narx.features[column]
            first_lag = min(narx.linear_lags[signal])
            of_lags.setdefault(1 + lag - first_lag, []).append(column)
        columns: list[int] = []
        orders = {}
        for order in range(1, MAX_EQUAL_LAGS + 1):
            columns = [*columns, *of_lags[order]]
            orders[order] = columns
        return orders

    def learned(self) -> Rows:
        """Return the initial rows and the stream."""
        return Rows(
            np.concatenate([self.initial.inputs, self.stream.inputs]),
            np.concatenate([self.initial.targets, self.stream.targets]),
        )


class Case(NamedTuple):
    """The rows that a method learns and predicts, and what was identified from the first ones.

    The test rows are those that have the lags of a linear part, too.
    """

    narx: sysid.Narx
    initial: Rows
    stream: Rows
    test: Rows
    with_linear_lags: LongRows
    scaling: Any  # of the features
    mean: Any  # of the target, a function of the features
    found: sysid.Hyperparameters
    budget: int
    seed: int

    def scaled(self, rows: Rows) -> Rows:
        """Return rows in the scale of the kernel: standardised features, centred targets."""
        return Rows(self.scaling.transform(rows.inputs), rows.targets - self.mean(rows.inputs))

    def learned(self) -> Rows:
        """Return the initial rows and the stream, scaled."""
        initial = self.scaled(self.initial)
        stream = self.scaled(self.stream)
        return Rows(
            np.concatenate([initial.inputs, stream.inputs]),
            np.concatenate([initial.targets, stream.targets]),
        )

    @property
    def basis(self) -> tuple[sysid.Kernel, float, int]:
        """Kernel, noise variance and number of points."""
        return self.found.kernel, self.found.noise_variance, self.budget


def run_ours(case: Case, *, adaptive: bool = False, **settings: Any) -> Outcome:
    """Run an online GP of this toolbox.

    The default is the paper's, without insertion rule, acceptance and outlier test.
    """
    chosen: dict[str, Any] = {
        "acceptance": sysid.AcceptAll(),
        "insertion": sysid.Always(),
        "gate": None,
        "reduction": sysid.MarginalLogLikelihood(),
    }
    n = len(case.initial.targets)
    budget = min(case.budget, len(case.stream.targets))
    training: sysid.Training = sysid.MaximumAPosteriori(n_initial=n)
    if adaptive:
        training = sysid.Adaptive(n_initial=n)
    options = sysid.Settings(training=training, budget=budget, seed=case.seed, **chosen | settings)
    start = sysid.Start(case.scaling, case.mean, case.found)
    identification = sysid.Identification(case.narx, options, start=start)
    return _learn_and_predict(identification, case.initial, case.stream, case.test)


def run_with_linear_part(case: Case, **settings: Any) -> Outcome:
    """Run an online GP with a linear part, which estimates all hyper-parameters by itself.

    Its first estimate is from the initial rows that have the lags of the linear part.
    """
    rows = case.with_linear_lags
    options = sysid.Settings(
        training=sysid.Adaptive(n_initial=len(rows.initial.targets)),
        acceptance=sysid.AcceptAll(),
        reduction=sysid.MarginalLogLikelihood(),
        budget=min(case.budget, len(rows.stream.targets)),
        seed=case.seed,
        **settings,
    )
    identification = sysid.Identification(rows.narx, options)
    outcome = _learn_and_predict(identification, rows.initial, rows.stream, rows.test)
    in_stream = np.full(len(case.stream.targets), np.nan)
    in_stream[rows.is_in_stream] = outcome.stream_mean
    return outcome._replace(stream_mean=in_stream)


def _learn_and_predict(
    identification: sysid.Identification, initial: Rows, stream: Rows, test: Rows
) -> Outcome:
    """Let an identification learn the initial rows and the stream, and predict the test rows."""
    identification.observe_many(*initial)
    record = identification.observe_many(*stream)
    model = identification.require_model()
    mean, variance = model.predict(test.inputs)
    counts = {
        "n_numbers": float(sum(array.size for array in model.gp.state().values())),
        "n_revised": float((record["removed"] >= 0).sum()),
        "n_outliers": float(record["outlier"].sum()),
    }
    return Outcome(record["mean"], mean, variance + model.gp.noise_variance, counts)


def run_published(
    criterion: sysid.Criterion,
    case: Case,
    insert: Callable[[float], sysid.Insertion],
    accept: bool = False,
) -> Outcome:
    """Run the rules of other authors: a criterion and an insertion rule.

    `insert` makes the insertion rule from the standard deviation of the noise.
    """
    acceptance: Any = sysid.ExceedsMinimum(criterion) if accept else sysid.AcceptAll()
    insertion = insert(float(np.sqrt(case.found.noise_variance)))
    return run_ours(
        case, **STORED_SETTINGS, insertion=insertion, acceptance=acceptance, reduction=criterion
    )


def run_other(case: Case, make: Callable[[Case, Rows], online_methods.Method]) -> Outcome:
    """Run a method of `online_methods` on the scaled rows, the initial ones first."""
    rows = case.learned()
    method = make(case, rows)
    means = [method.learn(x, float(y))[0] for x, y in zip(*rows, strict=True)]
    in_stream = np.array(means)[len(case.initial.targets) :]
    mean, variance = method.predict(case.scaled(case.test).inputs)
    counts = {
        "n_numbers": float(method.n_numbers),
        "n_revised": float(method.n_revised),
    }
    return Outcome(
        in_stream + case.mean(case.stream.inputs),
        mean + case.mean(case.test.inputs),
        variance,
        counts,
    )


def run_subset(case: Case, choose_slot: Callable[[int, int, np.random.Generator], int]) -> Outcome:
    """Run an exact GP on `budget` of the rows seen so far.

    Row k replaces the stored row ``choose_slot(k, budget, generator)``. If there is no such stored
    row, nothing is replaced.
    """
    x, y = case.learned()
    budget = case.budget
    first = len(case.initial.targets)
    generator = np.random.default_rng(case.seed)
    in_stream = np.full(len(case.stream.targets), np.nan)
    kept = np.arange(max(0, first - budget), first)
    fitted = None
    n_revised = 0
    for k in range(first, len(y)):
        if len(in_stream) <= MAX_CUBIC_ROWS:
            if fitted is None:
                fitted = condition(case.found, x[kept], y[kept])
            in_stream[k - first] = fitted.predict(x[k : k + 1])[0][0]
        if len(kept) < budget:
            kept = np.append(kept, k)
            fitted = None
            continue
        i = choose_slot(k, budget, generator)
        if i < budget:
            kept[i] = k
            fitted = None
            n_revised += 1
    mean, variance = _predict(case, condition(case.found, x[kept], y[kept]))
    counts = {
        "n_numbers": float(x[kept].size + budget * budget),
        "n_revised": float(n_revised),
    }
    return Outcome(in_stream, mean, variance, counts)


def run_batch(case: Case, fit: Callable[[Case, np.ndarray, np.ndarray], Fitted]) -> Outcome:
    """Fit a model to all scaled rows at once; it does not predict the stream."""
    fitted = fit(case, *case.learned())
    in_stream = np.full(len(case.stream.targets), np.nan)
    return Outcome(in_stream, *_predict(case, fitted), {"n_numbers": fitted.size_bytes / 8})


def run_best_linear(case: Case) -> Outcome:
    """Fit linear models of 1 to 12 lags of each signal, and take the best one in hindsight.

    Least squares of all learned rows predict the test rows. Recursive least squares predict the
    stream; their number of lags is the best one for the stream.
    """
    rows = case.with_linear_lags
    inputs, targets = rows.learned()
    tested = []
    for columns in rows.orders.values():
        fitted = solve_linear(inputs[:, columns], targets)
        mean, variance = fitted.predict(rows.test.inputs[:, columns])
        error = sysid.standardised_mean_squared_error(rows.test.targets, mean)
        tested.append((error, mean, variance + fitted.noise_variance, fitted.size_bytes / 8))
    _, mean, variance, n_numbers = min(tested, key=lambda found: found[0])
    in_stream = np.full(len(case.stream.targets), np.nan)
    in_stream[rows.is_in_stream] = _predict_by_recursion(rows)
    return Outcome(in_stream, mean, variance, {"n_numbers": n_numbers})


def _predict_by_recursion(rows: LongRows) -> np.ndarray:
    """Return the predictions of the stream (n,) by the best recursive least squares for it."""
    orders = rows.orders
    columns = orders[MAX_EQUAL_LAGS]
    inputs, targets = rows.learned()
    scaling = sysid.Scaling.fit(rows.initial.inputs[:, columns])
    mean = rows.initial.targets.mean()
    features = np.column_stack([np.ones(len(targets)), scaling.transform(inputs[:, columns])])
    sizes = [1 + len(of_order) for of_order in orders.values()]
    predicted = mean + recursive_least_squares(features, targets - mean, sizes)
    in_stream = predicted[len(rows.initial.targets) :]
    errors = ((in_stream - rows.stream.targets[:, None]) ** 2).mean(axis=0)
    return np.asarray(in_stream[:, np.argmin(errors)])


def fit_some(case: Case, x: np.ndarray, y: np.ndarray) -> Fitted:
    """Condition an exact GP on all rows, or on some of them in equal steps."""
    chosen = np.linspace(0, len(y) - 1, min(len(y), MAX_BATCH_ROWS)).astype(int)
    return condition(case.found, x[chosen], y[chosen])


def _predict(case: Case, fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance (m,) of measurements on the test rows, by a model of scaled rows."""
    mean, variance = fitted.predict(case.scaled(case.test).inputs)
    return mean + case.mean(case.test.inputs), variance + fitted.noise_variance


def _make_basis(name: str, case: Case, rows: Rows) -> online_methods.Method:
    """Return a method whose points form a basis; "RGP, best points" chooses them from all rows."""
    kernel, noise_variance, budget = case.basis
    budget = min(budget, len(case.stream.targets))
    points = None
    if name == "RGP, best points":
        points = rows.inputs[online_methods.pivoted_cholesky(kernel, rows.inputs, budget)]
    preset = online_methods.PRESETS[BASIS_PRESETS[name]]
    return online_methods.BasisPosterior(kernel, noise_variance, budget, initial=points, **preset)


def _make_vfe(case: Case, rows: Rows) -> online_methods.Method:
    return online_methods.StreamingVFE(*case.basis)


def _make_random_features(case: Case, rows: Rows) -> online_methods.Method:
    return online_methods.RandomFeatures(*case.basis, seed=case.seed)


def _make_rls(case: Case, rows: Rows, memory: float = np.inf) -> online_methods.Method:
    return online_methods.RecursiveLeastSquares(rows.inputs.shape[1], memory)


def _replace_oldest(k: int, budget: int, generator: np.random.Generator) -> int:
    return k % budget


def _replace_random(k: int, budget: int, generator: np.random.Generator) -> int:
    return int(generator.integers(budget))


def _sample_reservoir(k: int, budget: int, generator: np.random.Generator) -> int:
    """Return a random index of all rows seen so far; those of stored rows are below the budget."""
    return int(generator.integers(k + 1))


def _insert_novel(noise_std: float) -> sysid.Insertion:
    return sysid.Novelty()


def _insert_either(noise_std: float) -> sysid.Insertion:
    """Return a rule with two thresholds: a tenth of the noise variance, and the noise std."""
    return sysid.Either(0.1 * noise_std**2, noise_std)


def _fit_linear(case: Case, x: np.ndarray, y: np.ndarray) -> Fitted:
    return solve_linear(x, y)


EVERY_SAMPLE_SETTINGS: dict[str, Any] = {
    "insertion": sysid.Novelty(),
    "learning": "every_sample",
    "gate": 4.0,
}
STORED_SETTINGS: dict[str, Any] = {"learning": "stored"}
#: Presets of `online_methods` by the name of the method.
BASIS_PRESETS = {
    "KRLS-T": "krls_t",
    "SOGP": "sogp",
    "ALD-KRLS": "ald_krls",
    "RGP": "rgp",
    "RGP, best points": "rgp",
}
ENTROPY_CRITERION = sysid.PredictiveEntropy()
RELEVANCE_CRITERION = sysid.MeanRelevance()
LIKELIHOOD_CRITERION = sysid.MarginalLogLikelihood()

_run_every_sample = partial(run_ours, **EVERY_SAMPLE_SETTINGS)
_run_stored = partial(run_ours, **STORED_SETTINGS)
_run_relevance = partial(_run_stored, reduction=RELEVANCE_CRITERION)
N_OWN_METHODS = 11  # the first methods are those of this toolbox
#: All methods, in the order of the report.
ONLINE_METHODS: dict[str, Callable[[Case], Outcome]] = {
    "every_sample": _run_every_sample,
    "every_sample, adaptive": partial(_run_every_sample, adaptive=True),
    "every_sample, adaptive, linear part": partial(run_with_linear_part, **EVERY_SAMPLE_SETTINGS),
    "every_sample, forgetting": partial(_run_every_sample, forgetting=100.0),
    "every_sample, no gate": partial(_run_every_sample, gate=None),
    "stored, entropy": partial(_run_stored, reduction=ENTROPY_CRITERION),
    "stored, mean relevance": _run_relevance,
    "stored, likelihood": partial(_run_stored, reduction=LIKELIHOOD_CRITERION),
    "stored, adaptive": partial(_run_relevance, adaptive=True),
    "stored, forgetting": partial(_run_relevance, forgetting=300.0),
    "stored, gate": partial(_run_relevance, gate=4.0),
    "Nguyen-Tuong": partial(run_published, ENTROPY_CRITERION, insert=_insert_novel, accept=True),
    "EGP": partial(run_published, LIKELIHOOD_CRITERION, insert=sysid.ErrorThreshold),
    "Maiworm": partial(run_published, LIKELIHOOD_CRITERION, insert=_insert_either),
    "frozen": partial(_run_stored, insertion=sysid.ErrorThreshold(1e300)),
    "sliding_window": partial(run_subset, choose_slot=_replace_oldest),
    "random": partial(run_subset, choose_slot=_replace_random),
    "reservoir": partial(run_subset, choose_slot=_sample_reservoir),
    **{name: partial(run_other, make=partial(_make_basis, name)) for name in BASIS_PRESETS},
    "VFE, streaming": partial(run_other, make=_make_vfe),
    "random_features": partial(run_other, make=_make_random_features),
    "RLS": partial(run_other, make=_make_rls),
    "RLS, forgetting": partial(run_other, make=partial(_make_rls, memory=300)),
    "linear": partial(run_batch, fit=_fit_linear),
    "linear, best order": run_best_linear,
    "full_gp": partial(run_batch, fit=fit_some),
}


def errors_of(targets: np.ndarray, means: np.ndarray) -> dict[str, float]:
    """Return the mean squared error in each part of a stream (n,).

    It is given over the variance of the targets.
    """
    parts = np.array_split((targets - means) ** 2, N_STREAM_PARTS)
    return {
        name: float(np.mean(part) / np.var(targets))
        for name, part in zip(PART_ERRORS, parts, strict=True)
    }


def matrix_vector_seconds(n: int) -> float:
    """Return the seconds of a product of a matrix (n, n) and a vector by BLAS, the best of five."""
    product = partial(np.dot, np.ones((n, n)), np.ones(n), out=np.ones(n))
    return min(timeit.repeat(product, repeat=5, number=1000)) / 1000


def case_of(unit: Unit, plan: Plan) -> Case:
    """Return the rows of a task and seed, and what is identified from the first ones."""
    narx = STRUCTURES[unit.task]
    records = draw_records(unit.task, unit.seed, plan.building_samples)
    training, test = records.rows(narx)
    n = plan.n_initial
    max_rows = plan.most_rows
    initial = Rows(training.inputs[:n], training.targets[:n])
    stream = Rows(training.inputs[n : n + max_rows], training.targets[n : n + max_rows])
    long_rows, is_tested = _rows_with_linear_lags(narx, records, plan)
    settings = sysid.Settings(
        training=sysid.MaximumAPosteriori(n_initial=n),
        budget=plan.budget,
        seed=unit.seed,
    )
    identification = sysid.Identification(narx, settings)
    identification.observe_many(*initial)
    model = identification.require_model()
    assert identification.hyperparameters is not None
    return Case(
        narx=narx,
        initial=initial,
        stream=stream,
        test=Rows(test.inputs[is_tested], test.targets[is_tested]),
        with_linear_lags=long_rows,
        scaling=model.scaling,
        mean=model.mean,
        found=identification.hyperparameters,
        budget=plan.budget,
        seed=unit.seed,
    )


def _rows_with_linear_lags(
    narx: sysid.Narx, records: Records, plan: Plan
) -> tuple[LongRows, np.ndarray]:
    """Return the rows with the lags of a linear part, and which test rows have them.

    They are of the same samples as the rows without these lags, of which the first `n_initial` and
    `most_rows` later ones are learned, and `most_rows` are tested.
    """
    long_narx = sysid.Settings().with_linear_lags(narx)
    training, test = records.rows(long_narx)
    has_lags = _has_lags(narx, long_narx, records.training)
    n = plan.n_initial
    is_in_stream = has_lags[n : n + plan.most_rows]
    n_initial = int(has_lags[:n].sum())
    n_learned = n_initial + int(is_in_stream.sum())
    is_tested = _has_lags(narx, long_narx, records.test)
    is_tested[plan.most_rows :] = False
    n_tested = int(is_tested.sum())
    rows = LongRows(
        narx=long_narx,
        initial=Rows(training.inputs[:n_initial], training.targets[:n_initial]),
        stream=Rows(
            training.inputs[n_initial:n_learned],
            training.targets[n_initial:n_learned],
        ),
        test=Rows(test.inputs[:n_tested], test.targets[:n_tested]),
        is_in_stream=is_in_stream,
    )
    return rows, is_tested


def _has_lags(narx: sysid.Narx, long_narx: sysid.Narx, records: Sequence[xr.Dataset]) -> np.ndarray:
    """Return which rows of `narx` belong to samples that have rows of `long_narx`, too."""
    n_lost = long_narx.max_lag - narx.max_lag
    of_records = []
    for record in records:
        n_rows = record.sizes["time"] - narx.max_lag
        of_records.append(np.arange(n_rows) >= n_lost)
    return np.concatenate(of_records)


def _measure(
    name: str, method: Callable[[Case], Outcome], case: Case, product: float
) -> dict[str, Any]:
    """Run a method, and return its row; `product` is the time of a matrix-vector product [s]."""
    begin = time.perf_counter()
    outcome = method(case)
    seconds = time.perf_counter() - begin
    score = sysid.validate(case.test.targets, outcome.mean, outcome.variance, 0.0)
    targets = case.stream.targets
    row: dict[str, Any] = {
        "model": name,
        "smse": score.smse,
        "nlpd": score.nlpd,
        "coverage_95": score.coverage_95,
    }
    row |= dict.fromkeys(("smse_stream", "per_sample", *ONLINE_COUNTS), np.nan)
    row |= outcome.counts
    row |= dict.fromkeys(PART_ERRORS, np.nan)
    if np.isfinite(outcome.stream_mean).all():
        row |= errors_of(targets, outcome.stream_mean)
        row["smse_stream"] = sysid.standardised_mean_squared_error(targets, outcome.stream_mean)
        row["per_sample"] = seconds / len(targets) / product
    return row


class OnlineStudy(Study):
    """Every online method on the same streams."""

    name = "online"
    title = "Online methods on the same streams"
    tasks: ClassVar[tuple[str, ...]] = tuple(STRUCTURES)
    is_prepared: ClassVar[bool] = False
    quantities: ClassVar[tuple[str, ...]] = (*ONLINE_QUANTITIES, *PART_ERRORS)

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """Run every method; return a row for each."""
        case = case_of(unit, plan)
        product = matrix_vector_seconds(plan.budget)
        first = slice(N_WARM_UP_SAMPLES)
        few = Rows(case.stream.inputs[first], case.stream.targets[first])
        run_ours(case._replace(stream=few), **EVERY_SAMPLE_SETTINGS)  # compiles
        return part_of(
            [_measure(name, method, case, product) for name, method in ONLINE_METHODS.items()]
        )

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Return tasks and methods."""
        return {**super().axes(plan), "model": [*ONLINE_METHODS]}

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """Return a table for each task, and one of the errors as ratios to those of linear ARX."""
        rows = self.rows(store)
        shown = round_numbers(rows[["model", *ONLINE_QUANTITIES]])
        parts = rows.groupby("dataset", sort=False)
        sections = [f"## {name}\n\n{to_markdown(shown.loc[part.index])}" for name, part in parts]
        ratios = store["smse"] / store["smse"].sel(model="linear")
        medians = ratios.median("seed").transpose("model", "dataset")
        table = medians.dropna("dataset", how="all").to_pandas()
        texts = table.map(lambda ratio: "" if np.isnan(ratio) else f"{ratio:.3f}")
        return {
            "rows": "\n\n".join(sections),
            "ratios": to_markdown(texts.reset_index()),
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Return figures of errors against times, and of errors over the stream.

        Both have a panel for each task.
        """
        found = store.median("seed")
        found = found.sel(dataset=found["smse"].notnull().any("model"))
        return {
            "online": partial(draw_costs, found),
            "online_over_time": partial(draw_errors, found),
        }


def draw_costs(found: xr.Dataset) -> Figure:
    """Draw medians of the SMSE against the time of a sample; each method has a number."""
    names = [
        name
        for name in found["model"].values
        if np.isfinite(found["per_sample"].sel(model=name)).any()
    ]
    figure, panels = panels_by_title(
        found["dataset"].values.tolist(),
        2.0,
        "time of a sample [matrix-vector products]",
        "SMSE [1]",
    )
    for task, ax in panels.items():
        values = found.sel(dataset=task, model=names)
        points = zip(values["per_sample"].values, values["smse"].values, strict=True)
        for i, (x, y) in enumerate(points):
            color = PALETTE[0] if i < N_OWN_METHODS else GREY
            ax.plot(x, y, ".", color=color, markersize=3)
            ax.annotate(
                str(i + 1),
                (x, y),
                textcoords="offset points",
                xytext=(2, 1),
                fontsize=5,
            )
        scale_axis(ax.xaxis, values["per_sample"].values, ratio=1.0)
        scale_axis(ax.yaxis, values["smse"].values, ratio=1.0)
    text = ",  ".join(f"{i + 1} {name}" for i, name in enumerate(names))
    figure.suptitle(fill(text, 150), fontsize=6, x=0.01, ha="left")
    return figure


def draw_errors(found: xr.Dataset) -> Figure:
    """Draw the squared error in each part of the stream over that of recursive least squares."""
    figure, panels = panels_by_title(
        found["dataset"].values.tolist(),
        1.7,
        "part of the stream [1]",
        "squared error over that of RLS [1]",
    )
    for task, ax in panels.items():
        errors = found[[*PART_ERRORS]].to_array("part").sel(dataset=task)
        errors = errors / errors.sel(model="RLS")
        for name, color in DRAWN_METHODS.items():
            ax.plot(
                (np.arange(N_STREAM_PARTS) + 0.5) / N_STREAM_PARTS,
                errors.sel(model=name),
                color=color,
                label=name,
                linewidth=1,
            )
        scale_axis(ax.yaxis, errors.sel(model=[*DRAWN_METHODS]).values)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=3,
        frameon=False,
    )
    return figure
