"""Online methods side by side: the same stream, hyper-parameters and number of points."""

import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from textwrap import fill
from typing import Any, ClassVar, NamedTuple

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import sysid
from experiments.drawing.style import GREY, PALETTE, page, scale_axis
from experiments.drawing.tables import significant, to_markdown
from experiments.reproduce import online_methods as other
from experiments.reproduce.baselines import Fitted, condition, solve_linear
from experiments.reproduce.study import Plan, Study, Unit, part_of
from experiments.reproduce.tasks import TASKS, Rows, draw_rows

N_PARTS = 12  # of a stream, whose errors stand apart
PARTS = tuple(
    f"error_{k + 1}" for k in range(N_PARTS)
)  # mean squared, over the variance of the target in the stream
COUNTS = ("n_numbers", "n_revised", "n_outliers")
QUANTITIES = ("smse", "smse_stream", "nlpd", "coverage_95", "per_sample", *COUNTS)
FULL_ROWS = 2000  # of the full GP, the last ones of the stream and some of the others
COLUMNS = 4  # of panels in a figure
#: methods whose error over the stream is drawn
DRAWN = dict(
    zip(
        ("RLS", "stored, mean relevance", "every_sample", "every_sample, adaptive"),
        PALETTE,
        strict=False,
    )
)
#: lags of the tasks whose rows have an order
LAGS: dict[str, sysid.Narx] = {
    name: task.narx for name, task in TASKS.items() if task.narx is not None
}
SLOW_ROWS = 5000  # rows up to which methods that cost O(N^3) a sample are run
#: mean in the stream (n,); mean and variance of a measurement on the test rows (m,); what is counted
Outcome = tuple[np.ndarray, np.ndarray, np.ndarray, dict[str, float]]


class Case(NamedTuple):
    """What a method gets: the stream after its first rows, and what these gave."""

    narx: sysid.Narx
    initial: Rows
    stream: Rows
    test: Rows
    scaling: Any  # of the features
    mean: Any  # of the target, a function of the features
    found: sysid.Hyperparameters
    budget: int
    seed: int

    def scaled(self, rows: Rows) -> Rows:
        """Rows as the kernel sees them: standardised features, centred targets."""
        return Rows(self.scaling.transform(rows.inputs), rows.targets - self.mean(rows.inputs))

    def learned(self) -> Rows:
        """Return the initial rows and the stream, scaled."""
        parts = self.scaled(self.initial), self.scaled(self.stream)
        return Rows(*(np.concatenate(pair) for pair in zip(*parts, strict=True)))

    @property
    def basis(self) -> tuple[sysid.Kernel, float, int]:
        """Kernel, noise variance and number of points."""
        return self.found.kernel, self.found.noise_variance, self.budget


def run_ours(case: Case, *, adaptive: bool = False, **settings: Any) -> Outcome:
    """Run an online GP of this toolbox; by default the paper's, without insertion rule, acceptance
    and gate.
    """
    chosen: dict[str, Any] = {
        "acceptance": sysid.AcceptAll(),
        "insertion": sysid.Always(),
        "gate": None,
    }
    chosen["reduction"] = sysid.MarginalLogLikelihood()
    n = len(case.initial.targets)
    budget = min(case.budget, len(case.stream.targets))
    training: Any = (sysid.Adaptive if adaptive else sysid.MaximumAPosteriori)(n_initial=n)
    options = sysid.Settings(training=training, budget=budget, seed=case.seed, **chosen | settings)
    start = sysid.Start(case.scaling, case.mean, case.found)
    identification = sysid.Identification(case.narx, options, start=start)
    identification.observe_many(*case.initial)
    record = identification.observe_many(*case.stream)
    model = identification.require_model()
    mean, variance = model.predict(case.test.inputs)
    numbers = sum(array.size for array in model.gp.state().values())
    counts = {
        "n_revised": float((record["removed"] >= 0).sum()),
        "n_outliers": float(record["outlier"].sum()),
    }
    return (
        record["mean"],
        mean,
        variance + model.gp.noise_variance,
        {"n_numbers": float(numbers), **counts},
    )


def run_published(
    criterion: sysid.Criterion,
    case: Case,
    insert: Callable[[float], sysid.Insertion],
    accept: bool = False,
) -> Outcome:
    """Run another author's rules: a criterion, and an insertion rule made from the noise's standard
    deviation.
    """
    acceptance: Any = sysid.ExceedsMinimum(criterion) if accept else sysid.AcceptAll()
    insertion = insert(float(np.sqrt(case.found.noise_variance)))
    return run_ours(case, **STORED, insertion=insertion, acceptance=acceptance, reduction=criterion)


def run_other(case: Case, make: Callable[[Case, Rows], other.Method]) -> Outcome:
    """Run a method of `online_methods` on the scaled rows, the initial ones first."""
    rows = case.learned()
    method = make(case, rows)
    found = np.array([method.learn(x, float(y))[0] for x, y in zip(*rows, strict=True)])[
        len(case.initial.targets) :
    ]
    mean, variance = method.predict(case.scaled(case.test).inputs)
    counts = {
        "n_numbers": float(method.n_numbers),
        "n_revised": float(method.n_revised),
    }
    return (
        found + case.mean(case.stream.inputs),
        mean + case.mean(case.test.inputs),
        variance,
        counts,
    )


def run_subset(case: Case, place: Callable[[int, int, np.random.Generator], int]) -> Outcome:
    """Run an exact GP on `budget` of the rows seen so far: row k takes the place ``place(k, budget,
    generator)``.

    A place that does not exist leaves the rows as they are.
    """
    (x, y), n, first = case.learned(), case.budget, len(case.initial.targets)
    generator = np.random.default_rng(case.seed)
    found = np.full(len(case.stream.targets), np.nan)
    kept = np.arange(max(0, first - n), first)
    fitted = None
    n_revised = 0
    for k in range(first, len(y)):
        if len(found) <= SLOW_ROWS:
            fitted = fitted or condition(case.found, x[kept], y[kept])
            found[k - first] = fitted.predict(x[k : k + 1])[0][0]
        if len(kept) < n:
            kept = np.append(kept, k)
            fitted = None
        elif (i := place(k, n, generator)) < n:
            kept[i], fitted, n_revised = k, None, n_revised + 1
    mean, variance = _predict(case, condition(case.found, x[kept], y[kept]))
    return (
        found,
        mean,
        variance,
        {"n_numbers": float(x[kept].size + n * n), "n_revised": float(n_revised)},
    )


def run_batch(case: Case, fit: Callable[[Case, np.ndarray, np.ndarray], Fitted]) -> Outcome:
    """Fit a model to all scaled rows at once; it predicts no stream."""
    fitted = fit(case, *case.learned())
    none = np.full(len(case.stream.targets), np.nan)
    return none, *_predict(case, fitted), {"n_numbers": fitted.size_bytes / 8}


def fit_some(case: Case, x: np.ndarray, y: np.ndarray) -> Fitted:
    """Condition an exact GP on all rows, or on some of them in equal steps."""
    some = np.linspace(0, len(y) - 1, min(len(y), FULL_ROWS)).astype(int)
    return condition(case.found, x[some], y[some])


def _predict(case: Case, fitted: Fitted) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (m,) of measurements on the test rows by a model of scaled rows."""
    mean, variance = fitted.predict(case.scaled(case.test).inputs)
    return mean + case.mean(case.test.inputs), variance + fitted.noise_variance


def _basis(name: str, case: Case, rows: Rows) -> other.Method:
    kernel, noise_variance, budget = case.basis
    budget = min(budget, len(case.stream.targets))
    best = (
        rows.inputs[other.pivoted_cholesky(kernel, rows.inputs, budget)]
        if name == "RGP, best points"
        else None
    )
    return other.BasisPosterior(
        kernel, noise_variance, budget, initial=best, **other.PRESETS[BASES[name]]
    )


OURS: dict[str, Any] = {
    "insertion": sysid.Novelty(),
    "learning": "every_sample",
    "gate": 4.0,
}
STORED: dict[str, Any] = {"learning": "stored"}
BASES = {
    "KRLS-T": "krls_t",
    "SOGP": "sogp",
    "ALD-KRLS": "ald_krls",
    "RGP": "rgp",
    "RGP, best points": "rgp",
}
ENTROPY = sysid.PredictiveEntropy()
RELEVANCE = sysid.MeanRelevance()
LIKELIHOOD = sysid.MarginalLogLikelihood()


N_OURS = 10  # of the methods, the first ones, are of this toolbox
#: all methods, in the order of the report
METHODS: dict[str, Callable[[Case], Outcome]] = {
    "every_sample": partial(run_ours, **OURS),
    "every_sample, adaptive": partial(run_ours, **OURS, adaptive=True),
    "every_sample, forgetting": partial(run_ours, **OURS, forgetting=100.0),
    "every_sample, no gate": partial(run_ours, **OURS | {"gate": None}),
    "stored, entropy": partial(run_ours, **STORED, reduction=ENTROPY),
    "stored, mean relevance": partial(run_ours, **STORED, reduction=RELEVANCE),
    "stored, likelihood": partial(run_ours, **STORED, reduction=LIKELIHOOD),
    "stored, adaptive": partial(run_ours, **STORED, reduction=RELEVANCE, adaptive=True),
    "stored, forgetting": partial(run_ours, **STORED, reduction=RELEVANCE, forgetting=300.0),
    "stored, gate": partial(run_ours, **STORED, reduction=RELEVANCE, gate=4.0),
    "Nguyen-Tuong": partial(run_published, ENTROPY, insert=lambda _: sysid.Novelty(), accept=True),
    "EGP": partial(run_published, LIKELIHOOD, insert=sysid.ErrorThreshold),
    "Maiworm": partial(run_published, LIKELIHOOD, insert=lambda s: sysid.Either(0.1 * s**2, s)),
    "frozen": partial(run_ours, **STORED | {"insertion": sysid.ErrorThreshold(1e300)}),
    "sliding_window": partial(run_subset, place=lambda k, n, _: k % n),
    "random": partial(run_subset, place=lambda k, n, generator: int(generator.integers(n))),
    "reservoir": partial(run_subset, place=lambda k, n, generator: int(generator.integers(k + 1))),
    **{name: partial(run_other, make=partial(_basis, name)) for name in BASES},
    "VFE, streaming": partial(run_other, make=lambda case, _: other.StreamingVFE(*case.basis)),
    "random_features": partial(
        run_other,
        make=lambda case, _: other.RandomFeatures(*case.basis, seed=case.seed),
    ),
    "RLS": partial(
        run_other,
        make=lambda _, rows: other.RecursiveLeastSquares(rows.inputs.shape[1]),
    ),
    "RLS, forgetting": partial(
        run_other,
        make=lambda _, rows: other.RecursiveLeastSquares(rows.inputs.shape[1], 300),
    ),
    "linear": partial(run_batch, fit=lambda _, x, y: solve_linear(x, y)),
    "full_gp": partial(run_batch, fit=fit_some),
}


def errors_of(targets: np.ndarray, means: np.ndarray) -> dict[str, float]:
    """Mean squared error in each of the `PARTS` of a stream (n,), over the variance of its
    targets.
    """
    squares = np.array_split((targets - means) ** 2, N_PARTS)
    return {
        name: float(np.mean(part) / np.var(targets))
        for name, part in zip(PARTS, squares, strict=True)
    }


def matrix_vector_seconds(n: int) -> float:
    """Seconds of a product of a matrix (n, n) with a vector by BLAS, the best of some rounds."""
    product = partial(np.dot, np.ones((n, n)), np.ones(n), out=np.ones(n))
    return min(timeit.repeat(product, repeat=5, number=1000)) / 1000


def case_of(unit: Unit, plan: Plan) -> Case:
    """Rows of a task and seed, and what is found on the first ones."""
    narx = LAGS[unit.task]
    training, test = draw_rows(unit.task, unit.seed, plan.building_samples)
    n = plan.n_initial
    most = plan.most_rows
    initial, stream = (
        Rows(*(part[rows] for part in training)) for rows in (slice(n), slice(n, n + most))
    )
    settings = sysid.Settings(
        training=sysid.MaximumAPosteriori(n_initial=n),
        budget=plan.budget,
        seed=unit.seed,
    )
    found = sysid.Identification(narx, settings)
    found.observe_many(*initial)
    model = found.require_model()
    assert found.hyperparameters is not None
    known = model.scaling, model.mean, found.hyperparameters
    return Case(
        narx,
        initial,
        stream,
        Rows(*(part[:most] for part in test)),
        *known,
        plan.budget,
        unit.seed,
    )


class OnlineStudy(Study):
    """Every online method on the same streams."""

    name = "online"
    title = "Online methods on the same streams"
    tasks: ClassVar[tuple[str, ...]] = tuple(LAGS)
    is_prepared: ClassVar[bool] = False
    quantities: ClassVar[tuple[str, ...]] = (*QUANTITIES, *PARTS)

    def compute(self, unit: Unit, plan: Plan) -> xr.Dataset:
        """One row per method."""
        case = case_of(unit, plan)
        product = matrix_vector_seconds(plan.budget)
        rows = []
        run_ours(
            case._replace(stream=Rows(*(part[:50] for part in case.stream))), **OURS
        )  # compiles
        for name, method in METHODS.items():
            begin = time.perf_counter()
            stream, mean, variance, counts = method(case)
            seconds = time.perf_counter() - begin
            after = sysid.validate(case.test.targets, mean, variance, 0.0)
            targets = case.stream.targets
            row = {
                "model": name,
                "smse": after.smse,
                "nlpd": after.nlpd,
                "coverage_95": after.coverage_95,
            }
            row |= (
                dict.fromkeys(("smse_stream", "per_sample", *COUNTS), np.nan)
                | counts
                | errors_of(targets, stream)
            )
            if np.isfinite(stream).all():
                row["smse_stream"] = sysid.standardised_mean_squared_error(targets, stream)
                row["per_sample"] = seconds / len(targets) / product
            rows.append(row)
        return part_of(rows)

    def axes(self, plan: Plan) -> dict[str, Sequence[Any]]:
        """Tasks and methods."""
        return {**super().axes(plan), "model": [*METHODS]}

    def tables(self, store: xr.Dataset) -> dict[str, str]:
        """One table for each task, and one of the errors after the streams, as ratios to those of
        linear ARX.
        """
        rows = self.rows(store)
        shown = rows[["model", *QUANTITIES]].map(
            lambda x: significant(x) if isinstance(x, float) else x
        )
        parts = rows.groupby("dataset", sort=False)
        sections = [f"## {name}\n\n{to_markdown(shown.loc[part.index])}" for name, part in parts]
        ratios = (
            (store["smse"] / store["smse"].sel(model="linear"))
            .median("seed")
            .transpose("model", "dataset")
        )
        table = (
            ratios.dropna("dataset", how="all")
            .to_pandas()
            .map(lambda x: "" if np.isnan(x) else f"{x:.3f}")
        )
        return {
            "rows": "\n\n".join(sections),
            "ratios": to_markdown(table.reset_index()),
        }

    def figures(self, store: xr.Dataset) -> Mapping[str, Callable[[], Figure]]:
        """Error after the stream against the time of a sample, and error over the stream, a panel
        for each task.
        """
        found = store.median("seed")
        found = found.sel(dataset=found["smse"].notnull().any("model"))
        return {
            "online": partial(draw_costs, found),
            "online_over_time": partial(draw_errors, found),
        }


def draw_costs(found: xr.Dataset) -> Figure:
    """SMSE against the time of a sample, medians over seeds; a number for each method."""
    names = [
        name
        for name in found["model"].values
        if np.isfinite(found["per_sample"].sel(model=name)).any()
    ]
    figure, panels = make_panels(
        found, 2.0, "time of a sample [matrix-vector products]", "SMSE [1]"
    )
    for task, ax in panels.items():
        values = found.sel(dataset=task, model=names)
        for i, (x, y) in enumerate(
            zip(values["per_sample"].values, values["smse"].values, strict=True)
        ):
            ax.plot(x, y, ".", color=PALETTE[0] if i < N_OURS else GREY, markersize=3)
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
    """Squared error in each part of the stream, as a ratio to that of recursive least squares."""
    figure, panels = make_panels(
        found, 1.7, "part of the stream [1]", "squared error over that of RLS [1]"
    )
    for task, ax in panels.items():
        errors = found[[*PARTS]].to_array("part").sel(dataset=task)
        errors = errors / errors.sel(model="RLS")
        for name, color in DRAWN.items():
            ax.plot(
                (np.arange(N_PARTS) + 0.5) / N_PARTS,
                errors.sel(model=name),
                color=color,
                label=name,
                linewidth=1,
            )
        scale_axis(ax.yaxis, errors.sel(model=[*DRAWN]).values)
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        loc="outside upper center",
        ncols=4,
        frameon=False,
    )
    return figure


def make_panels(found: xr.Dataset, height: float, x: str, y: str) -> tuple[Figure, dict[str, Axes]]:
    """Figure with an axes for each task."""
    n_rows = -(-found.sizes["dataset"] // COLUMNS)
    figure, axes = page(n_rows, COLUMNS, 0.9 + height * n_rows)
    panels = dict(zip(found["dataset"].values, axes.flat, strict=False))
    for ax in axes.flat[len(panels) :]:
        ax.set_visible(False)
    for task, ax in panels.items():
        ax.set_title(task, fontsize=7)
    figure.supxlabel(x, fontsize=8)
    figure.supylabel(y, fontsize=8)
    return figure, panels
