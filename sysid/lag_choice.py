"""Lags of a record and the estimator, chosen by held-out error.

One step ahead, linear models rank all candidates, and models compete with the best of them. In free
run, quick versions of the estimators of the training rank a coarse grid of candidates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import xarray as xr

from sysid.beside import one_blas_thread
from sysid.budget_choice import LARGER_BUDGETS, choose_budget
from sysid.data.holes import has_holes
from sysid.dead_time import DeadTimes, estimate_dead_times
from sysid.errors import UserError
from sysid.gp.kernels import SquaredExponential
from sysid.gp.mean import AutomaticMean, ConstantMean
from sysid.gp.rules import Learning
from sysid.gp.training import InitialSamples, MaximumLikelihood, Start
from sysid.gross_errors import have_gross_errors, screen_records
from sysid.held_out import (
    N_FOLDS,
    FoldErrors,
    held_out_error,
    held_out_errors,
    largest_counted,
    largest_counted_error,
    scaled,
)
from sysid.identification import Settings
from sysid.linear_part import LinearPart, LinearPartKind
from sysid.narx.lags import Narx, OnMissing, Target, consecutive
from sysid.noise_choice import choose_noise
from sysid.progress import Steps
from sysid.progress_display import shows_progress
from sysid.simulation.baselines import LinearArx
from sysid.simulation.linear_models import HeldOutErrors
from sysid.simulation.segments import Segment, segments_of_records
from sysid.simulation_error.linear_model import LinearModel
from sysid.simulation_error.training import FreeRun, Trial
from sysid.time_limit import (
    COMPARISON_TIME_SHARE,
    TimeIsUp,
    TimeLimit,
    limit_of,
    out_of_time,
    share_of_time,
)

#: numbers of lags of the output that are tried in free run, with as many lags of the inputs
FREE_RUN_ORDERS = (1, 2, 3, 4, 6)

#: numbers of lags of the inputs that are tried in addition
LONG_INPUT_ORDERS = (10, 20, 41)

#: Long input lags are tried only if `max_order` is at least this.
LONG_INPUTS_FROM_MAX_ORDER = 10

#: largest number of lags of a linear model with equally many lags of every signal
MAX_EQUAL_LAGS = 12

#: number of samples of one piece of a long record in free run
PIECE_SAMPLES = 2000

#: largest number of samples that are simulated; of longer records only some pieces are simulated
MAX_SIMULATED_SAMPLES = 10_000

#: The model is scored with the lags of the best linear model with at most these numbers of lags,
#: and of the best of all. If the record is nonlinear, the order of the linear models says little:
#: then it is also scored with those of the best linear models that have the squares of the lags,
#: too, and with the lags of the best linear models whose number of lags of the output is in each
#: range between these limits, and of those whose number of lags of the inputs is.
SCORED_ORDER_LIMITS = (2, 4, 6)

#: A record counts as nonlinear if the smallest error of the linear models is this many times that
#: of the model, or of a linear model with the squares of the lags.
MIN_LINEAR_ERROR_RATIO = 1.1

#: The further candidates of a nonlinear record must lower the held-out error below this fraction.
MAX_ERROR_RATIO_OF_FURTHER = 0.98

#: Errors whose ratio is at most this count as equal: then the fewest lags are taken.
MAX_EQUAL_ERROR_RATIO = 1.01

#: Errors below this are due to rounding and count as equal, in standard deviations of the output.
ROUNDING_ERROR_STDS = 1e-7

#: A candidate is tried only with at least this many rows for each coefficient.
MIN_ROWS_PER_COEFFICIENT = 4

#: The linear part is tried only with at least this many rows for each of its coefficients.
MIN_ROWS_PER_LINEAR_COEFFICIENT = 4

#: names of the estimators whose errors a candidate has
LINEAR = "linear"
LONG_LINEAR = "linear_with_long_memory"
MODEL = "model"
LINEAR_PART = "with_linear_part"

#: variants of a model that only the best candidate is tried with
LONG_SCALES = "long_length_scales"
CONSTANT_MEAN = "constant_mean"

#: names of the errors of the best candidate with more points, by their number
LARGER = {budget: f"{budget}_points" for budget in LARGER_BUDGETS}

#: Factors of the variance of a model's kernel that compete (`record_variance_factor` of a
#: training): the likelihood of a few hundred samples often has too nonlinear a model.
VARIANCE_FACTORS = (1.0, 1 / 4, 1 / 16, 1 / 64)

#: words for the estimators in the text, the simplest first
ESTIMATOR_WORDS = {
    LINEAR: "linear",
    LONG_LINEAR: "linear with a long memory",
    MODEL: "model",
    LINEAR_PART: "model with a linear part",
    LONG_SCALES: "with longer length scales",
    CONSTANT_MEAN: "with a constant mean",
    **{name: f"with {budget} points" for budget, name in LARGER.items()},
}

#: fraction of the time that the comparison of lags in free run may use; the rest is for the model
LAGS_IN_FREE_RUN_TIME_SHARE = 0.5

#: largest number of candidates in the text of a `LagChoice`
MAX_SHOWN_CANDIDATES = 4

#: numbers na, nb, nk of a candidate
LagNumbers: TypeAlias = tuple[int, int, int]

#: first lag of the inputs: one number, or one for each input where they differ
FirstLags: TypeAlias = int | list[int]

#: what was trained for the folds of `held_out_error`, by the `id` of a candidate and the name of an
#: estimator
FoldStarts: TypeAlias = dict[tuple[int, str], list[Start]]


class LagChoice(NamedTuple):
    """The chosen lags and the candidates; `str` summarises them in a few lines."""

    narx: Narx
    criterion: str  # one_step or free_run
    #: The candidates, one of them `chosen`. One step ahead they are rows of `rank_lags`; some have
    #: the held-out RMSE of other estimators, too (`ESTIMATOR_WORDS`), and the chosen one names its
    #: `estimator`, and its `budget` if more than one was tried. In free run each has the RMSE for
    #: `linear` or `model`, and whether a `quick` version of the training was used. For each
    #: estimator, `parts` is the number of held-out parts: fewer for a candidate that could no
    #: longer become the best.
    tried: list[dict[str, Any]]
    notes: list[str]
    settings: Settings  #: those of the identification, with the chosen estimator
    #: after how many samples each input acts; None if it was not estimated
    dead_times: DeadTimes | None = None

    @property
    def tried_lags(self) -> dict[str, set[int]]:
        """Lags of each signal that some candidate has."""
        lags: dict[str, set[int]] = {name: set() for name in self.narx.lags}
        for row in self.tried:
            lags[self.narx.target] |= set(range(1, row["na"] + 1))
            for name, input_lags in _input_lags(
                self.narx.input_names, row["nb"], row["nk"]
            ).items():
                lags[name] |= set(input_lags)
        return lags

    @property
    def estimator(self) -> str | None:
        """Name of the estimator of the chosen candidate; None if only one was tried."""
        return next((row.get("estimator") for row in self.tried if "chosen" in row), None)

    @property
    def has_chosen_budget(self) -> bool:
        """Whether the number of points was chosen by held-out error."""
        return any("budget" in row for row in self.tried)

    def __str__(self) -> str:
        how = "in free run" if self.criterion == "free_run" else "one step ahead"
        target = self.narx.target
        lines = [
            f"{_shorten(self.narx)}; RMSE {how} on held-out parts, unit of {target} (the simplest "
            f"within {100 * (MAX_EQUAL_ERROR_RATIO - 1):.0f} % of the smallest is taken):"
        ]
        scored = [
            row
            for row in self.tried
            if row.get(MODEL) is not None or row.get(LINEAR_PART) is not None
        ]
        shown = scored or self.tried
        shown = shown[:MAX_SHOWN_CANDIDATES]
        shown += [row for row in self.tried if "chosen" in row and row not in shown]
        for row in shown:
            errors = [
                f"{words} {row[estimator]:.4g}{_remark(row, estimator)}"
                for estimator, words in ESTIMATOR_WORDS.items()
                if row.get(estimator) is not None
            ]
            numbers = f"na={row['na']} nb={row['nb']} nk={row['nk']}"
            chosen = ""
            if "chosen" in row:
                words = [ESTIMATOR_WORDS[row["estimator"]]] if "estimator" in row else []
                if "budget" in row:
                    words.append(f"{row['budget']} points")
                chosen = f", chosen: {', '.join(words)}" if words else ", chosen"
            lines.append(f"  {numbers}: {', '.join(errors)}{chosen}")
        return "\n".join([*lines, *self.notes])


def _remark(row: dict[str, Any], estimator: str) -> str:
    """Return how an error was measured, if not by the model itself and on all parts."""
    remarks = []
    factor = row.get(f"{estimator}_variance_factor", 1.0)
    if factor != 1.0:
        remarks.append(f"variance / {1 / factor:.4g}")
    if f"{estimator}_parts" in row:
        remarks.append(f"{row[f'{estimator}_parts']} parts")
    if row.get(f"{estimator}_quick"):
        remarks.append("quick")
    return f" ({', '.join(remarks)})" if remarks else ""


@shows_progress("ranking lags")
def rank_lags(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    max_order: int = 10,
    on_missing: OnMissing = OnMissing.error,
    dead_times: DeadTimes | None = None,
) -> list[dict[str, Any]]:
    """Rank numbers of lags by the held-out errors of linear models, the best first.

    A candidate has na lags of the output, and nb lags of each input from lag nk on. Its linear
    model is fitted by least squares to four fifths of the rows and predicts the other fifth one
    step ahead; each fifth is held out in turn. nk is 0 or 1; for an input with a dead time d of 2
    or more samples it is d - 1 or d.

    Parameters
    ----------
    records
        As for `Narx.dataset`.
    target, inputs
        Names of the output and of the inputs.
    max_order
        Largest number of lags.
    on_missing
        As for `Narx`.
    dead_times
        After how many samples each input acts; None: they are estimated (`estimate_dead_times`).

    Returns
    -------
    list of dict
        Numbers ``na``, ``nb``, ``nk`` and the RMSE ``linear`` [unit of the output]. ``nk`` is a
        list with a number for each input if they differ.

    Raises
    ------
    ValueError
        The output is constant, or the records are too short for any candidate.
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    shifts = _shifts_of(dead_times, several, target, inputs)
    return _linear_candidates(several, target, shifts, max_order, on_missing).ranked()


class _LinearCandidates(NamedTuple):
    """Numbers of lags that linear models are compared with."""

    numbers: list[LagNumbers]
    shifts: dict[str, int]  # number of lags of each input that are left out
    n_features: int  # of all candidates together
    columns: list[list[int]]  # features of each candidate among all of them
    errors: HeldOutErrors
    #: returns the same with the squares of all features, which follow them in the same order
    make_errors_with_squares: Callable[[], HeldOutErrors]
    #: larger errors count as errors of this magnitude [unit of the target]
    largest: float

    def ranked(self) -> list[dict[str, Any]]:
        """Return the rows of `rank_lags`, the best first."""
        tried = []
        for (na, nb, nk), columns in zip(self.numbers, self.columns, strict=True):
            error = self.errors.rmse(columns, self.largest)
            tried.append({"na": na, "nb": nb, "nk": _first_lags(nk, self.shifts), LINEAR: error})
        return sorted(tried, key=lambda row: row[LINEAR])

    def rank_with_squares(
        self, tried: Sequence[dict[str, Any]]
    ) -> tuple[list[dict[str, Any]], float]:
        """Return the same rows in the order of linear models with the squares of the lags, too.

        Also return the smallest RMSE of these models.
        """
        errors = self.make_errors_with_squares()
        rmse = {}
        for (na, nb, nk), columns in zip(self.numbers, self.columns, strict=True):
            squares = [self.n_features + column for column in columns]
            key = na, nb, str(_first_lags(nk, self.shifts))
            rmse[key] = errors.rmse([*columns, *squares], self.largest)
        ranked = sorted(tried, key=lambda row: rmse[row["na"], row["nb"], str(row["nk"])])
        return ranked, min(rmse.values())


def _linear_candidates(
    several: Sequence[xr.Dataset],
    target: str,
    shifts: dict[str, int],
    max_order: int,
    on_missing: OnMissing,
) -> _LinearCandidates:
    """Return the candidates of `rank_lags`; their inputs are those of `shifts`.

    Where gross errors were found in the records, large errors are cut (`largest_counted_error`), by
    the residuals of the linear model with all lags. The rows of its large residuals are not learned
    by any of the linear models, which have no other protection against them.
    """
    inputs = list(shifts)
    orders = range(1, max_order + 1)
    grid = product(orders, orders, (1, 0)) if inputs else product(orders, [0], [1])
    candidates = _affordable(grid, several, target, inputs, shifts)
    max_na = max(na for na, _, _ in candidates)
    max_input_lag = max(nb + nk - 1 for _, nb, nk in candidates)
    narx = Narx(
        {target: max_na},
        {name: range(shift, shift + max_input_lag + 1) for name, shift in shifts.items()},
        target,
        predict=Target.value,
        on_missing=on_missing,
    )
    errors = _held_out_errors(narx, several)
    largest = inf
    is_left_out = None
    if have_gross_errors(several):
        residuals = errors.residuals(range(narx.n_features))
        largest = largest_counted(residuals)
        is_left_out = np.abs(residuals) > largest
        errors.leave_out(is_left_out)

    def make_errors_with_squares() -> HeldOutErrors:
        errors_with_squares = _held_out_errors(narx, several, with_squares=True)
        if is_left_out is not None:
            errors_with_squares.leave_out(is_left_out)
        return errors_with_squares

    columns = [
        _columns_of(na, nb, nk, max_na=max_na, max_input_lag=max_input_lag, n_inputs=len(inputs))
        for na, nb, nk in candidates
    ]
    return _LinearCandidates(
        candidates, shifts, narx.n_features, columns, errors, make_errors_with_squares, largest
    )


def best_arx(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    predict: Target = Target.change,
    max_order: int = 10,
    on_missing: OnMissing = OnMissing.error,
    dead_times: DeadTimes | None = None,
) -> LinearArx:
    """Fit the linear model with the lags of the smallest held-out error to all rows.

    These are the lags of the first candidate of `rank_lags`.
    """
    ranked = rank_lags(
        records,
        target,
        inputs,
        max_order=max_order,
        on_missing=on_missing,
        dead_times=dead_times,
    )
    best = ranked[0]
    lags = _input_lags(inputs, best["nb"], best["nk"])
    narx = Narx({target: best["na"]}, lags, target, predict=predict, on_missing=on_missing)
    return LinearArx.fit(narx, records)


def _shifts_of(
    dead_times: DeadTimes | None,
    records: Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
) -> dict[str, int]:
    """Return how many lags of each input are left out; the dead times are estimated if None."""
    if dead_times is None:
        dead_times = estimate_dead_times(records, target, inputs)
    return dead_times.shifts(inputs)


def _first_lags(nk: int, shifts: Mapping[str, int]) -> FirstLags:
    """Return the first lags of a candidate: one number, or one for each input if they differ."""
    first_lags = [shift + nk for shift in shifts.values()]
    if len(set(first_lags)) > 1:
        return first_lags
    return first_lags[0] if first_lags else nk


def _input_lags(inputs: Sequence[str], nb: int, nk: FirstLags) -> dict[str, range]:
    """Return nb lags of each input from the first lag nk on."""
    first_lags = nk if isinstance(nk, list) else [nk] * len(inputs)
    return {name: range(k, k + nb) for name, k in zip(inputs, first_lags, strict=True)}


class EqualLags(NamedTuple):
    """Equally many lags of every signal, and the error of a linear model that has them."""

    narx: Narx
    #: error on fifths of the rows, of models fitted to the others; unit of the output
    held_out_rmse: float


def best_arx_of_equal_lags(
    records: xr.Dataset | Sequence[xr.Dataset], narx: Narx, inputs: Sequence[str]
) -> LinearArx:
    """Fit the best linear model with equally many lags of every signal, 1 to 12, to all rows.

    Its number of lags has the smallest error on held-out fifths of the rows (`rank_equal_lags`).

    Raises
    ------
    ValueError
        The output is constant, or the records are too short.
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    ranked = rank_equal_lags(several, narx, inputs)
    return LinearArx.fit(ranked[0].narx, several)


def rank_equal_lags(
    records: xr.Dataset | Sequence[xr.Dataset], narx: Narx, inputs: Sequence[str]
) -> list[EqualLags]:
    """Return 1 to 12 lags of every signal, those with the smallest held-out error first.

    The lags are those of the target of `narx`, and of these inputs as far as they move. The lags of
    an input begin with 0 if `narx` has this lag, else with 1; its dead time is left out in addition
    (`rank_lags`). Numbers of lags that the records do not suffice for are left out.

    Raises
    ------
    ValueError
        The output is constant, or the records are too short.
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    target = narx.target
    shifts = _shifts_of(None, several, target, _moving(inputs, several))
    first_lags = {
        name: shift + (0 if (name, 0) in narx.features else 1) for name, shift in shifts.items()
    }

    def make_narx(n_lags: int, predict: Target) -> Narx:
        lags = {name: range(first, first + n_lags) for name, first in first_lags.items()}
        return Narx({target: n_lags}, lags, target, predict=predict, on_missing=narx.on_missing)

    grid = [(n_lags, n_lags, 1) for n_lags in range(1, MAX_EQUAL_LAGS + 1)]
    affordable = _affordable(grid, several, target, [*first_lags], shifts)
    orders = [n_lags for n_lags, _, _ in affordable]
    longest = make_narx(orders[-1], Target.value)
    held_out = _held_out_errors(longest, several)
    candidates = []
    for n_lags in orders:
        features = make_narx(n_lags, Target.value).features
        error = held_out.rmse([longest.features.index(feature) for feature in features])
        candidates.append(EqualLags(make_narx(n_lags, narx.predict), error))
    return sorted(candidates, key=lambda candidate: candidate.held_out_rmse)


def _held_out_errors(
    narx: Narx, records: Sequence[xr.Dataset], *, with_squares: bool = False
) -> HeldOutErrors:
    """Return the held-out errors of linear models whose features are among those of `narx`.

    With squares, those of the features without their mean follow.
    """
    rows = narx.dataset(records)
    if not np.ptp(rows["target"].values) > 0:
        raise UserError(f"{narx.target!r} is constant: there is nothing to learn")
    features = rows["regressor"].values
    if with_squares:
        centred = features - features.mean(axis=0)
        features = np.concatenate([features, centred**2], axis=1)
    return HeldOutErrors(features, rows["target"].values, N_FOLDS)


def _moving(inputs: Sequence[str], records: Sequence[xr.Dataset]) -> list[str]:
    """Return the inputs that move in any record."""
    return [name for name in inputs if any(moves(record[name].values) for record in records)]


def moves(values: np.ndarray) -> bool:
    """Return whether the known values of a signal (n,) differ."""
    known = values[np.isfinite(values)]
    return len(known) > 0 and np.ptp(known) != 0


@shows_progress("choosing the lags")
@one_blas_thread
def choose_lags(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    settings: Settings | None = None,
    max_order: int = 10,
    predict: Target = Target.change,
    on_missing: OnMissing = OnMissing.error,
) -> LagChoice:
    """Choose lags of the output and of the inputs, and the estimator, by held-out error.

    `rank_lags` ranks all candidates with linear models. For the best candidates with at most 2, 4,
    6 and any number of lags, these estimators compete one step ahead (`sysid.held_out`):

    - the linear model of these lags, by least squares;
    - a linear model with a long memory (`sysid.StableSpline`);
    - the model with the given settings;
    - the model beside a linear part with a long memory.

    Among errors that differ by less than 1 %, or are as small as rounding errors, the first of
    these estimators and the fewest lags win. Where the model, or a linear model with the squares of
    the lags, is better than all linear models by 10 %, these are a poor guide to the lags. Then
    further candidates compete: the best ones with the squares, those with 1 to 2, 3 to 4, 5 to 6
    and more lags of the output, and those with so many lags of the inputs. They win only if they
    lower the error by 2 %. A model is scored with the variance of its kernel, and with parts of it
    (`VARIANCE_FACTORS`). If it wins without a linear part, it then competes with variants of
    itself: longer length scales a priori, a constant mean. The linear models and the variants take
    part only if the settings name no kernel, no mean and no kind of linear part. An input that
    never moves gets no lags.

    If the training is `FreeRun`, the error is that of simulations of held-out folds
    (`FreeRun.compare_lags`). The candidates have 1, 2, 3, 4 or 6 lags of the output, and as many,
    10, 20 or 41 lags of the inputs. Where the effect of an input begins slowly, as many lags from
    its onset on are candidates, too (`DeadTime.slow_onset`). Again the fewest lags within 1 % win.
    Of long records only pieces spread over them are simulated.

    Gross errors of the records are taken as missing first (`sysid.screen_records`), unless the
    settings have no gate. If any are found, others may have remained, and a single one could
    decide. So the errors one step ahead of all candidates are then cut at the same magnitude, four
    robust standard deviations of the held-out errors of the model with the lags of the best linear
    model (`sysid.held_out.largest_counted_error`).

    Lags of an input with a dead time (`estimate_dead_times`) begin with the dead time or with the
    sample before.

    A limit of the time (`seconds` of the training) ends the comparison; what was compared by then
    decides. If this is nothing, the linear model of the smallest error one step ahead does.

    Parameters and errors are those of `rank_lags`; `settings` are those of the identification.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=1000)
    >>> y = np.zeros(1000)
    >>> for k in range(2, 1000):
    ...     y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1] + 0.01 * rng.normal()
    >>> record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(1000.0)})
    >>> choose_lags(record, "y", ["u"], max_order=2).narx.feature_names
    ('y[k-1]', 'y[k-2]', 'u[k-1]')
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    settings = Settings() if settings is None else settings
    gross_errors = ""
    if settings.gate is not None:
        screened = screen_records(several, [target], inputs)
        several = list(screened.records)
        if screened.n_found:
            on_missing = OnMissing.skip
            gross_errors = screened.describe()
    moving = _moving(inputs, several)
    notes = [f"{name} never moves and gets no lags" for name in inputs if name not in moving]
    dead_times = estimate_dead_times(several, target, moving)
    shifts = dead_times.shifts(moving)
    notes += dead_times.describe()
    if gross_errors:
        notes.append(gross_errors)
    time_limit = limit_of(settings.training)

    def make_narx(na: int, nb: int, nk: FirstLags) -> Narx:
        lags = _input_lags(moving, nb, nk)
        return Narx({target: na}, lags, target, predict=predict, on_missing=on_missing)

    if settings.demands_linear_part:
        settings.with_linear_lags(make_narx(1, min(1, len(moving)), 1))  # refuses what prevents it
    tried: list[dict[str, Any]] = []
    if isinstance(settings.training, FreeRun):
        grid = _free_run_grid(max_order, has_inputs=bool(moving))
        narxes = {}
        for shifts_of_grid in (shifts, dead_times.largest_shifts(moving)):
            for na, nb, nk in _affordable(grid, several, target, moving, shifts_of_grid):
                first_lags = _first_lags(nk, shifts_of_grid)
                narxes[make_narx(na, nb, first_lags)] = (na, nb, first_lags)
            grid = [(na, nb, nk) for na, nb, nk in grid if nb not in LONG_INPUT_ORDERS]
        try:
            with time_limit.running(), share_of_time(LAGS_IN_FREE_RUN_TIME_SHARE):
                tried, trials = _simulate(narxes, several, settings, settings.training)
        except TimeIsUp:
            tried = []
    if tried:
        equal = _equal_in_free_run(tried)
    else:
        linear = _linear_candidates(several, target, shifts, max_order, on_missing)
        with time_limit.running(), share_of_time(COMPARISON_TIME_SHARE):
            chosen, tried, narx, settings = _choose_one_step_ahead(
                linear, make_narx, several, settings, notes
            )
        chosen["chosen"] = True
        notes += _note_time(time_limit)
        return LagChoice(narx, "one_step", tried, notes, settings, dead_times)
    chosen = min(equal, key=lambda row: row["na"] + len(moving) * row["nb"])
    chosen["chosen"] = True
    narx = make_narx(chosen["na"], chosen["nb"], chosen["nk"])
    assert isinstance(settings.training, FreeRun)
    training = _with_best_routes(settings.training, narx, trials)
    settings = replace(settings, training=training)
    notes += _notes_on_routes(training, narx, trials)
    notes += _note_time(time_limit)
    return LagChoice(narx, "free_run", tried, notes, settings, dead_times)


def _note_time(time_limit: TimeLimit) -> list[str]:
    """Return a note if the time was up before all candidates were compared."""
    if not time_limit.was_reached:
        return []
    return [f"the time of {time_limit.seconds:g} s was up before all candidates were compared"]


def _with_best_routes(training: FreeRun, narx: Narx, trials: Sequence[Trial]) -> FreeRun:
    """Return the training with only those routes that were compared in full with these lags.

    The others were worse already where their quick versions were compared. If no route was compared
    in full, all of them remain.
    """
    in_full = [
        trial.estimator
        for trial in trials
        if trial.narx == narx and not trial.is_quick and not trial.refusal
    ]
    routes = tuple(route for route in training.routes if route in in_full)
    return replace(training, routes=routes or training.routes)


def _notes_on_routes(training: FreeRun, narx: Narx, trials: Sequence[Trial]) -> list[str]:
    """Return a note on the routes that were not compared in full with the chosen lags, and why."""
    quick = [trial for trial in trials if trial.is_quick and trial.narx == narx]
    kept = {route.name for route in training.routes}
    reasons = []
    for trial in quick:
        name = trial.estimator.name
        if name in kept or isinstance(trial.estimator, LinearModel):
            continue
        if trial.refusal:
            reasons.append(trial.refusal)
        elif trial.fits:
            error = "runs away" if trial.total == inf else f"RMSE {trial.rmse:.4g}"
            parts = "part" if len(trial.fits) == 1 else "parts"
            reasons.append(f"{name}: {error} on {len(trial.fits)} held-out {parts}")
    if not reasons:
        return []
    return [f"not among the best quick versions, and left out: {'; '.join(reasons)}"]


@shows_progress("choosing the linear part")
@one_blas_thread
def choose_linear_part(
    records: xr.Dataset | Sequence[xr.Dataset], narx: Narx, settings: Settings
) -> Narx:
    """Return the lags with those of the linear part, if it lowers the held-out error.

    The model with a linear part and that without one predict held-out folds one step ahead, as in
    `choose_lags`. A linear part that the settings demand is not tried, but taken. The models of
    several outputs share their regressors; so the first output decides for all.
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    given = narx
    if settings.gate is not None and narx.max_lag:
        screened = screen_records(several, narx.output_names, narx.input_names)
        several = list(screened.records)
        narx = screened.for_rows(narx)
    chosen = _choose_linear_part(several, narx, settings)
    return replace(chosen, on_missing=given.on_missing)


def _choose_linear_part(several: Sequence[xr.Dataset], narx: Narx, settings: Settings) -> Narx:
    """Return the lags of `choose_linear_part` for records without gross errors."""
    extended = settings.with_linear_lags(narx)
    assert isinstance(settings.linear_part, LinearPart)  # words were replaced
    is_open = settings.linear_part.kind is LinearPartKind.auto and not narx.linear
    is_open = is_open and isinstance(settings.training, MaximumLikelihood)
    if not is_open or not extended.linear:
        return extended
    first = narx.output_names[0]
    judged = replace(narx, target=first) if narx.lags[first] else narx
    judged_with_linear = _with_affordable_linear_lags(judged, several, settings)
    if not judged_with_linear.linear:
        return narx
    with limit_of(settings.training).running(), share_of_time(COMPARISON_TIME_SHARE):
        steps = Steps(2)
        with steps.step():
            starts: list[Start] = []
            largest = largest_counted_error(judged, several, settings, starts=starts)
            error = held_out_error(judged, several, settings, starts=starts, largest=largest)
        with steps.step():
            error_with_linear = held_out_error(
                judged_with_linear, several, settings, largest=largest
            )
    are_complete = error.is_complete and error_with_linear.is_complete
    is_better = are_complete and MAX_EQUAL_ERROR_RATIO * error_with_linear.rmse < error.rmse
    return extended if is_better else narx


def _choose_one_step_ahead(
    linear: _LinearCandidates,
    make_narx: Callable[[int, int, FirstLags], Narx],
    records: Sequence[xr.Dataset],
    settings: Settings,
    notes: list[str],
) -> tuple[dict[str, Any], list[dict[str, Any]], Narx, Settings]:
    """Return the best of all candidates, these, its regressors, and the settings to learn with.

    The candidates are rows of `rank_lags`, to which the errors of the estimators are added. What
    was found out about the errors is added to the notes.
    """
    tried = linear.ranked()
    if not isinstance(settings.training, MaximumLikelihood):
        notes += _note_largest(linear.largest)
        chosen, narx = _choose_by_linear_models(tried, make_narx, records, settings)
        return chosen, tried, narx, settings
    starts: FoldStarts = {}
    if linear.largest < inf:
        linear, tried = _cut_alike(linear, tried, make_narx, records, settings, starts)
    notes += _note_largest(linear.largest)
    chosen, narx, settings = _choose_by_all_estimators(
        linear, tried, make_narx, records, settings, notes, starts
    )
    return chosen, tried, narx, settings


def _cut_alike(
    linear: _LinearCandidates,
    tried: list[dict[str, Any]],
    make_narx: Callable[[int, int, FirstLags], Narx],
    records: Sequence[xr.Dataset],
    settings: Settings,
    starts: FoldStarts,
) -> tuple[_LinearCandidates, list[dict[str, Any]]]:
    """Return the linear models with the errors cut where those of all estimators are, and ranked.

    The residuals of the model with the lags of the best linear candidate decide
    (`largest_counted_error`). What was trained for it is added to `starts`.
    """
    best = tried[0]
    narx = make_narx(best["na"], best["nb"], best["nk"])
    of_folds: list[Start] = []
    largest = largest_counted_error(narx, records, settings, starts=of_folds)
    if largest == inf:  # the time was up
        return linear, tried
    linear = linear._replace(largest=largest)
    tried = linear.ranked()
    for row in tried:
        if make_narx(row["na"], row["nb"], row["nk"]) == narx:
            starts[id(row), MODEL] = of_folds
    return linear, tried


def _note_largest(largest: float) -> list[str]:
    """Return a note that large errors are cut, if they are."""
    if largest == inf:
        return []
    return [
        f"held-out errors beyond {largest:.4g} count as {largest:.4g}, because further gross "
        "errors may have remained in the records"
    ]


def _choose_by_all_estimators(
    linear: _LinearCandidates,
    tried: list[dict[str, Any]],
    make_narx: Callable[[int, int, FirstLags], Narx],
    records: Sequence[xr.Dataset],
    settings: Settings,
    notes: list[str],
    starts: FoldStarts,
) -> tuple[dict[str, Any], Narx, Settings]:
    """Return the best candidate by the errors of all estimators, and what `choose_lags` needs."""
    largest = linear.largest
    scored = _best_by_order(tried)
    entrants = _entrants_of(scored, make_narx, records, settings)
    is_open = _leaves_estimator_open(settings)
    names = _competing(settings, entrants, is_open=is_open)
    smallest = tried[0][LINEAR] if is_open else inf
    smallest = _score_each(
        names, scored, entrants, records, starts, smallest, largest, is_open=is_open
    )
    further = []
    if MODEL in names and not out_of_time():
        further = _further_candidates(linear, tried, scored, smallest)
    if further:
        entrants |= _entrants_of(further, make_narx, records, settings)
        smallest_further = _score_each(
            [MODEL, LINEAR_PART],
            further,
            entrants,
            records,
            starts,
            smallest,
            largest,
            is_open=is_open,
        )
        if smallest_further < MAX_ERROR_RATIO_OF_FURTHER * smallest:
            scored += further
            smallest = smallest_further
    if smallest == inf:  # the time was up before any error was known
        return *_choose_by_linear_models(tried, make_narx, records, settings), settings
    limit = _largest_equal(scored, names, records, make_narx)
    for name in names:
        candidates = tried if name == LINEAR else scored
        if any(_complete_error(row, name) <= limit for row in candidates):
            break
    chosen = _fewest_lags(candidates, name, limit)
    if is_open:
        chosen["estimator"] = name
    narx = make_narx(chosen["na"], chosen["nb"], chosen["nk"])
    if name == LINEAR:
        return chosen, narx, settings.linear()
    narx, settings_of_entrant = entrants[id(chosen)][name]
    if settings.demands_linear_part:
        narx = settings.with_linear_lags(narx)
    if is_open and name in (MODEL, LINEAR_PART):
        settings_of_entrant = _with_variance_factor(settings, chosen, name)
    if is_open and name == MODEL:
        settings_of_entrant = _best_variant(
            chosen, narx, records, settings_of_entrant, starts, largest
        )
    if name == LONG_LINEAR:
        return chosen, narx, settings_of_entrant
    settings_of_entrant = _grow_budget(
        chosen, name, narx, records, settings_of_entrant, starts, largest
    )
    of_chosen = starts.get((id(chosen), chosen.get("estimator", name)))
    noise = choose_noise(records, narx, settings_of_entrant, starts=of_chosen)
    if noise is not None:
        notes.append(str(noise))
        settings_of_entrant = noise.settings
    return chosen, narx, settings_of_entrant


def _further_candidates(
    linear: _LinearCandidates,
    tried: list[dict[str, Any]],
    scored: Sequence[dict[str, Any]],
    smallest: float,
) -> list[dict[str, Any]]:
    """Return the candidates that also compete if the record is nonlinear, without the scored ones.

    There are none if it is not: `smallest` is the error of the best estimator so far.
    """
    ranked_with_squares, error_with_squares = linear.rank_with_squares(tried)
    lines = [tried[0][LINEAR], *(_complete_error(row, LONG_LINEAR) for row in scored)]
    if MIN_LINEAR_ERROR_RATIO * min(smallest, error_with_squares) >= min(lines):
        return []
    further: list[dict[str, Any]] = []
    for row in [*_best_by_order(ranked_with_squares), *_best_of_ranges(tried)]:
        if row not in [*scored, *further]:
            further.append(row)
    return further


def _score_each(
    names: Sequence[str],
    scored: Sequence[dict[str, Any]],
    entrants: dict[int, dict[str, tuple[Narx, Settings]]],
    records: Sequence[xr.Dataset],
    starts: FoldStarts,
    smallest: float,
    largest: float,
    *,
    is_open: bool,
) -> float:
    """Add the errors of the estimators to the candidates, and return the smallest error.

    An error that can no longer come near the smallest one stays incomplete. Nothing more is scored
    once the time of the search is up.
    """
    n_scored = [len(_worth_scoring(name, names, scored)) for name in names if name != LINEAR]
    steps = Steps(sum(n_scored))
    for name in names:
        if name == LINEAR:
            continue  # `rank_lags` has scored it
        for row in _worth_scoring(name, names, scored):
            if name not in entrants[id(row)]:
                continue
            if out_of_time():
                return smallest
            limit = MAX_EQUAL_ERROR_RATIO * smallest
            narx, entrant = entrants[id(row)][name]
            factors = VARIANCE_FACTORS if is_open and name in (MODEL, LINEAR_PART) else [1.0]
            with steps.step():
                _score(row, name, narx, records, entrant, limit, starts, largest, factors)
            smallest = min(smallest, _complete_error(row, name))
    return smallest


def _choose_by_linear_models(
    tried: list[dict[str, Any]],
    make_narx: Callable[[int, int, FirstLags], Narx],
    records: Sequence[xr.Dataset],
    settings: Settings,
) -> tuple[dict[str, Any], Narx]:
    """Return the best candidate by the errors of linear models alone, and its regressors."""
    chosen = _fewest_lags(tried, LINEAR, _largest_equal(tried, [LINEAR], records, make_narx))
    narx = make_narx(chosen["na"], chosen["nb"], chosen["nk"])
    if settings.demands_linear_part:
        narx = settings.with_linear_lags(narx)
    return chosen, narx


def _grow_budget(
    row: dict[str, Any],
    name: str,
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    starts: FoldStarts,
    largest: float,
) -> Settings:
    """Return the settings of the chosen candidate with a budget that has grown where it helps."""
    estimator = row.get("estimator", name)
    error = FoldErrors(row[estimator], N_FOLDS, largest)
    choice = choose_budget(records, narx, settings, error=error, starts=starts[id(row), estimator])
    if choice is None:
        return settings
    for budget, larger_error in choice.errors.items():
        if budget in LARGER:
            _note_error(row, LARGER[budget], larger_error)
    row["budget"] = choice.settings.max_points
    return choice.settings


def _competing(
    settings: Settings, entrants: dict[int, dict[str, Any]], *, is_open: bool
) -> list[str]:
    """Return the names of the estimators that compete, the simplest first."""
    if is_open:
        return [LINEAR, LONG_LINEAR, MODEL, LINEAR_PART]
    has_linear_part = any(LINEAR_PART in entrants_of_row for entrants_of_row in entrants.values())
    if settings.demands_linear_part and has_linear_part:
        return [LINEAR_PART]
    return [MODEL, LINEAR_PART]


def _worth_scoring(
    name: str, names: Sequence[str], scored: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Return the candidates that an estimator is scored with, if these compete.

    A linear part has long lags of its own. Beside other estimators it is scored with the fewest
    lags, and with those with which the model has the smallest error.
    """
    if name == MODEL or len(names) == 1:
        return list(scored)
    fewest = min(scored, key=lambda row: row["na"] + row["nb"])
    best_name = MODEL if name == LINEAR_PART else LINEAR
    best = min(scored, key=lambda row: _complete_error(row, best_name))
    return [fewest] if best is fewest else [fewest, best]


def _leaves_estimator_open(settings: Settings) -> bool:
    """Return whether the settings name no kernel, variance, mean and kind of linear part."""
    assert isinstance(settings.training, MaximumLikelihood)
    assert isinstance(settings.linear_part, LinearPart)  # words were replaced
    return (
        settings.linear_part.kind is LinearPartKind.auto
        and settings.learning is Learning.every_sample
        and settings.mean == AutomaticMean()
        and settings.training.kernel == SquaredExponential()
        and settings.training.record_variance_factor == 1.0
    )


def _entrants_of(
    rows: Sequence[dict[str, Any]],
    make_narx: Callable[[int, int, FirstLags], Narx],
    records: Sequence[xr.Dataset],
    settings: Settings,
) -> dict[int, dict[str, tuple[Narx, Settings]]]:
    """Return the entrants of candidates (`_entrants`), by the `id` of each candidate."""
    entrants = {}
    for row in rows:
        narx = make_narx(row["na"], row["nb"], row["nk"])
        entrants[id(row)] = _entrants(narx, records, settings)
    return entrants


def _entrants(
    narx: Narx, records: Sequence[xr.Dataset], settings: Settings
) -> dict[str, tuple[Narx, Settings]]:
    """Return the regressors and the settings of the estimators with these lags."""
    entrants = {MODEL: (narx, settings)}
    extended = _with_affordable_linear_lags(narx, records, settings)
    if extended.linear:
        entrants[LINEAR_PART] = (extended, settings)
        entrants[LONG_LINEAR] = (extended, settings.linear())
    return entrants


def _score(
    row: dict[str, Any],
    name: str,
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    limit: float,
    starts: FoldStarts,
    largest: float,
    factors: Sequence[float] = (1.0,),
) -> None:
    """Add the held-out error of an estimator to a candidate.

    It is that of the factor of the variance with the smallest error; among errors that differ by
    less than 1 % the first factor is taken.
    """
    of_folds = starts.get((id(row), name), [])
    errors = held_out_errors(
        narx, records, settings, factors, limit, starts=of_folds, largest=largest
    )
    most_folds = max(error.n_folds for error in errors)
    if not most_folds:
        return  # the time was up
    comparable = [error.rmse if error.n_folds == most_folds else inf for error in errors]
    largest_equal = MAX_EQUAL_ERROR_RATIO * min(comparable)
    best = next(i for i, rmse in enumerate(comparable) if rmse <= largest_equal)
    _note_error(row, name, errors[best])
    if factors[best] != 1.0:
        row[f"{name}_variance_factor"] = factors[best]
    starts[id(row), name] = [scaled(start, factors[best]) for start in of_folds]


def _note_error(row: dict[str, Any], name: str, error: FoldErrors) -> None:
    """Add an error to a candidate under this name."""
    row[name] = error.rmse
    if not error.is_complete:
        row[f"{name}_parts"] = error.n_folds


def _with_variance_factor(settings: Settings, row: dict[str, Any], name: str) -> Settings:
    """Return the settings of an estimator with the factor of the variance of its score."""
    factor = row.get(f"{name}_variance_factor", 1.0)
    training: Any = settings.training
    return replace(settings, training=replace(training, record_variance_factor=factor))


def _complete_error(row: dict[str, Any], name: str) -> float:
    """Return the error of an estimator on all folds; infinite if it has none."""
    if f"{name}_parts" in row:
        return inf
    return float(row.get(name, inf))


def _largest_equal(
    rows: Sequence[dict[str, Any]],
    names: Sequence[str],
    records: Sequence[xr.Dataset],
    make_narx: Callable[[int, int, FirstLags], Narx],
) -> float:
    """Return the largest error that counts as equal to the smallest one of these estimators."""
    smallest = min(_complete_error(row, name) for row in rows for name in names)
    target = make_narx(1, 1, 1).target
    output = np.concatenate([record[target].values for record in records])
    rounding_error = ROUNDING_ERROR_STDS * float(np.nanstd(output))
    return max(MAX_EQUAL_ERROR_RATIO * smallest, rounding_error)


def _fewest_lags(rows: Sequence[dict[str, Any]], name: str, limit: float) -> dict[str, Any]:
    """Return the candidate of the fewest lags whose error does not exceed the limit."""
    equal = [row for row in rows if _complete_error(row, name) <= limit]
    return min(equal, key=lambda row: row["na"] + row["nb"])


def _best_variant(
    row: dict[str, Any],
    narx: Narx,
    records: Sequence[xr.Dataset],
    settings: Settings,
    starts: FoldStarts,
    largest: float,
) -> Settings:
    """Return the settings of the best variant of the model without a linear part.

    The given ones win unless another one is better. (A kernel beside a linear part has priors of
    its own, and needs no mean.)
    """
    training: Any = settings.training
    longer = replace(
        training,
        record_length_prior_median=training.length_scale_prior_median,
        record_length_prior_std=training.length_scale_prior_std,
    )
    variants = {
        LONG_SCALES: replace(settings, training=longer),
        CONSTANT_MEAN: replace(settings, mean=ConstantMean()),
    }
    smallest = row[MODEL]
    best = settings
    for variant, changed in variants.items():
        _score(row, variant, narx, records, changed, smallest, starts, largest)
        if MAX_EQUAL_ERROR_RATIO * _complete_error(row, variant) < smallest:
            smallest = row[variant]
            best = changed
            row["estimator"] = variant
    return best


def _with_affordable_linear_lags(
    narx: Narx, records: Sequence[xr.Dataset], settings: Settings
) -> Narx:
    """Return the lags with those of the linear part, if the records are long enough for them.

    Raises
    ------
    ValueError
        The number of lags is given, and larger than a record.
    """
    extended = settings.with_linear_lags(narx)
    if extended.linear and settings.gives_linear_lags:
        extended.check(records)
    sizes = [record.sizes["time"] for record in records]
    n_rows = extended.count_rows(records) if extended.linear else 0
    is_affordable = (
        min(sizes) > extended.max_lag
        and n_rows >= MIN_ROWS_PER_LINEAR_COEFFICIENT * extended.n_features
    )
    return extended if is_affordable else narx


def _free_run_grid(max_order: int, *, has_inputs: bool) -> list[LagNumbers]:
    """Return the candidates that are tried in free run."""
    if not has_inputs:
        return [(na, 0, 1) for na in FREE_RUN_ORDERS]
    grid = [(na, na, nk) for na in FREE_RUN_ORDERS for nk in (0, 1)]
    if max_order >= LONG_INPUTS_FROM_MAX_ORDER:
        grid += [(na, nb, 0) for na in FREE_RUN_ORDERS for nb in LONG_INPUT_ORDERS]
    return [(na, nb, nk) for na, nb, nk in grid if na <= max_order]


def _equal_in_free_run(tried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the candidates whose error in free run counts as equal to that of the first.

    The error is that of the first candidate's model or linear model: of the one with more held-out
    parts, since the other was behind after fewer, and of the better one if both have as many. Only
    errors that were measured in the same way, on as many parts, are compared. If the first
    candidate has no error, because nothing could be trained, it is the only one.
    """
    best = tried[0]
    estimators = [name for name in ("model", "linear") if best.get(name) is not None]
    if not estimators:
        return [best]
    estimator = min(
        estimators,
        key=lambda name: (best[f"{name}_quick"], -best[f"{name}_parts"], best[name]),
    )
    limit = MAX_EQUAL_ERROR_RATIO * best[estimator]
    equal = []
    for row in tried:
        is_comparable = all(
            row.get(f"{estimator}_{how}") == best[f"{estimator}_{how}"]
            for how in ("parts", "quick")
        )
        error = row.get(estimator)
        if is_comparable and error is not None and error <= limit:
            equal.append(row)
    return equal


def _best_by_order(tried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the best candidates with at most 2, 4, 6 and any number of lags, the best first.

    `tried` has all candidates, the best first.
    """
    positions = set()
    for limit in (*SCORED_ORDER_LIMITS, inf):
        for position, row in enumerate(tried):
            if max(row["na"], row["nb"]) <= limit:
                positions.add(position)
                break
    return [tried[position] for position in sorted(positions)]


def _best_of_ranges(tried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the best candidates with 1 to 2, 3 to 4, 5 to 6 and more lags, the best first.

    They are the best with so many lags of the output, and the best with so many of the inputs.
    `tried` has all candidates, the best first. A range without a candidate has none.
    """
    positions = set()
    for count in ("na", "nb"):
        for above, limit in pairwise((0, *SCORED_ORDER_LIMITS, inf)):
            for position, row in enumerate(tried):
                if above < row[count] <= limit:
                    positions.add(position)
                    break
    return [tried[position] for position in sorted(positions)]


def _shorten(narx: Narx) -> str:
    """Return the lags of a model as a short text."""
    return ", ".join(f"{name} {lags[0]} to {lags[-1]}" for name, lags in narx.lags.items() if lags)


def _affordable(
    candidates: Iterable[LagNumbers],
    records: Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    shifts: Mapping[str, int],
) -> list[LagNumbers]:
    """Return the candidates for which the records are long enough.

    `shifts` has the number of lags that are left out of each input, so that nk counts from there.
    """
    largest_shift = max(shifts.values(), default=0)
    sizes = [record.sizes["time"] for record in records]
    affordable = []
    for na, nb, nk in candidates:
        max_lag = max(na, largest_shift + nb + nk - 1)
        n_coefficients = na + len(inputs) * nb + 1
        is_long_enough = n_coefficients * MIN_ROWS_PER_COEFFICIENT <= sum(sizes)
        if max_lag < min(sizes) and is_long_enough:
            affordable.append((na, nb, nk))
    if not affordable:
        raise UserError(
            f"{sum(sizes)} samples are too few to choose lags of {target!r}: give longer records, "
            "or name the lags with narx=orders"
        )
    return affordable


def _simulate(
    narxes: Mapping[Narx, tuple[int, int, FirstLags]],
    records: Sequence[xr.Dataset],
    settings: Settings,
    training: FreeRun,
) -> tuple[list[dict[str, Any]], list[Trial]]:
    """Return the held-out errors of simulations of each candidate, the best first, and the trials.

    The error of a model that could not be trained is None.
    """
    pieces = _spread_pieces(records)
    samples = []
    labels: list[str] = []
    segments: list[list[Segment]] | None = None
    if has_holes(pieces, next(iter(narxes)).signals):
        segments = [segments_of_records(pieces, narx) for narx in narxes]
    for number, narx in enumerate(narxes, start=1):
        rows = narx.dataset(pieces)
        samples.append(
            InitialSamples(narx, rows["regressor"].values, rows["target"].values, consecutive(rows))
        )
        labels.append(f"{_shorten(narx)} ({number} of {len(narxes)})")
    tried: dict[Narx, dict[str, Any]] = {}
    trials = training.compare_lags(
        samples, labels, budget=settings.max_points, seed=settings.seed, segments=segments
    )
    for trial in trials:
        na, nb, nk = narxes[trial.narx]
        row = tried.setdefault(trial.narx, {"na": na, "nb": nb, "nk": nk})
        estimator = "linear" if isinstance(trial.estimator, LinearModel) else "model"
        if estimator not in row:
            row[estimator] = trial.rmse
            row[f"{estimator}_parts"] = len(trial.fits)
            row[f"{estimator}_quick"] = trial.is_quick
    return list(tried.values()), trials


def _spread_pieces(records: Sequence[xr.Dataset]) -> list[xr.Dataset]:
    """Return the records; if they are long, pieces spread over them of a limited total length."""
    fraction = MAX_SIMULATED_SAMPLES / sum(record.sizes["time"] for record in records)
    if fraction >= 1.0:
        return list(records)
    pieces = []
    for record in records:
        n = record.sizes["time"]
        ends = np.linspace(0, n, max(1, n // PIECE_SAMPLES) + 1).astype(int)
        pieces += [record.isel(time=slice(begin, end)) for begin, end in pairwise(ends)]
    n_kept = max(2, int(fraction * len(pieces)))
    kept = np.linspace(0, len(pieces) - 1, n_kept).astype(int)
    return [pieces[i] for i in kept]


def _columns_of(
    na: int, nb: int, nk: int, *, max_na: int, max_input_lag: int, n_inputs: int
) -> list[int]:
    """Return the columns of a candidate's lags.

    All columns are `max_na` lags of the output, from 1, and then the lags from 0 to `max_input_lag`
    of each input, counted without its dead time.
    """
    columns = list(range(na))
    for i in range(n_inputs):
        first = max_na + i * (max_input_lag + 1)
        columns += range(first + nk, first + nk + nb)
    return columns
