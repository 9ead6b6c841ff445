"""The identification of a model: settings, initial samples, training, learning sample by sample.

Callers use `Identification`. It begins with a `Collector`, which gathers the initial samples. The
training makes a model from them, and from then on a `Learner` predicts and learns each sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike

from sysid.arrays import check_instances, check_whole, flags, matrix, member, rows, vector
from sysid.beside import one_blas_thread
from sysid.data.holes import has_holes
from sysid.errors import UserError, UserTypeError
from sysid.exclusive import Exclusive, exclusive
from sysid.far_values import FarValues
from sysid.gp.adaptation import Adaptation, Adaptive
from sysid.gp.block_learning import (
    LEARNED_MENDED,
    LEARNED_OUTLIER,
    LEFT_AT_SUSPECT,
    OUTLIER_OPENS_GATE,
    PLANT_MAY_HAVE_JUMPED,
)
from sysid.gp.dictionary import NOT_PREDICTED, RECORD_DTYPE, UpdateReport
from sysid.gp.kernels import Linear, SquaredExponential
from sysid.gp.linear_part import StableSpline
from sysid.gp.mean import AutomaticMean, ConstantMean, MeanFunction, ZeroMean
from sysid.gp.online import OnlineGP
from sysid.gp.region import Region, count_at_rest
from sysid.gp.rules import (
    Acceptance,
    Always,
    Criterion,
    ExceedsMinimum,
    Insertion,
    Learning,
    MeanRelevance,
    at_least,
)
from sysid.gp.selection import Backward, Selection
from sysid.gp.training import (
    Follower,
    Hyperparameters,
    InitialSamples,
    MaximumAPosteriori,
    MaximumLikelihood,
    Start,
    Training,
)
from sysid.gross_errors import screen_records
from sysid.initial_training import Trained, train
from sysid.linear_part import LinearPart, LinearPartKind
from sysid.markup import notes
from sysid.model.description import refuse_interpolations
from sysid.model.linear_view import LinearView
from sysid.model.model import (
    BYTES_PER_POINT_PAIR,
    NO_OUTPUT_LIMITS,
    JointModel,
    Model,
    max_points,
)
from sysid.narx.lags import Narx, added_variance_of, consecutive, own_lags_of
from sysid.narx.succession import Succession
from sysid.narx.window import LagWindow
from sysid.outliers import (
    NO_VALUES,
    Accepted,
    OutlierHandling,
    range_known_to,
    reach_of,
    recall_range,
    regressors_of_points,
    union,
)
from sysid.progress_display import shows_progress
from sysid.simulation.bands import MIN_ROWS_FOR_BANDS, measure_bands_by_folds
from sysid.simulation.look_ahead import look_ahead
from sysid.simulation.segments import numbered_segments, segments_of_records
from sysid.store import MAX_CONTENT_VARIABLE, max_content_bytes
from sysid.time_limit import TimeLimit, limit_of, out_of_time

#: Largest number of rows passed to the online GP in one call, which returns at the first outlier.
MAX_PIECE_ROWS = 1000

#: Number of rows passed to it in the next call after an outlier; it doubles with each call without
#: one. All rows are prepared, and many of them in vain where the next outlier is near.
MIN_PIECE_ROWS = 32

#: Hyper-parameters are estimated from the rows to which estimated lags add at most this many times
#: the noise variance, if these rows are at least this fraction of all.
MAX_EXACT_VARIANCE_RATIO = 0.1
MIN_EXACT_FRACTION = 0.25
#: value of the setting `budget` that leaves the number of points open
AUTOMATIC_BUDGET = "auto"

#: number of points where the budget is open and cannot be chosen, as in a stream
DEFAULT_BUDGET = 100

#: names of the settings that are passed to the online GP unchanged
ONLINE_GP_SETTINGS = (
    "budget",
    "insertion",
    "acceptance",
    "reduction",
    "scale",
    "forgetting",
)


#: Number of samples in a row that are far from a rest when it has ended. A wrong measurement is
#: part of two samples at most: of two changes, or of one target and one first lag.
N_FAR_SAMPLES = 3


#: settings that are objects, and the class of each
CLASS_OF_OBJECT_SETTING: dict[str, type] = {
    "training": Training,
    "mean": MeanFunction,
    "insertion": Insertion,
    "acceptance": Acceptance,
    "reduction": Criterion,
    "selection": Selection,
}


#: why a model has no linear part if only stored points are learned
OBSTACLE_OF_STORED = (
    "learning=stored learns from the stored points alone, which cannot tell the coefficients of "
    "many lags"
)


@dataclass(frozen=True)
class Settings:
    """How to learn from a stream; the defaults are those of `sysid-identify`."""

    #: how the initial samples give hyper-parameters, and whether these are re-estimated
    training: Training = field(default_factory=Adaptive)
    #: mean function; fitted if the training standardises
    mean: MeanFunction = field(default_factory=AutomaticMean)
    #: which samples become candidates for stored points
    insertion: Insertion = field(default_factory=Always)
    #: which candidates replace a stored point once the budget is reached
    acceptance: Acceptance = field(default_factory=lambda: ExceedsMinimum(MeanRelevance()))
    #: criterion that chooses the stored point to remove
    reduction: Criterion = field(default_factory=MeanRelevance)
    #: what is learned: the stored points alone, or every sample
    learning: Learning | str = Learning.every_sample
    #: whether all variances are rescaled to match the errors, if every sample is learned
    scale: bool = True
    #: memory in samples, for a plant that changes; None or "none": nothing is forgotten
    forgetting: float | str | None = None
    #: largest standardised error of a sample that is learned, if the target has lags
    gate: float | str | None = 4.0
    #: how stored points are selected from the initial samples, if these exceed the budget
    selection: Selection = field(default_factory=Backward)
    #: linear part with a long memory beside the Gaussian process, or its kind as a word; see
    #: `with_linear_lags`
    linear_part: LinearPart | str = field(default_factory=LinearPart)
    #: largest number of stored points; "auto": chosen by held-out error for records (see
    #: `sysid.choose_budget`), 100 for a stream
    budget: int | str = "auto"
    seed: int = 0  # seed of the training's random starts

    def __post_init__(self) -> None:
        check_instances(self, CLASS_OF_OBJECT_SETTING)
        if self.budget != AUTOMATIC_BUDGET:
            if isinstance(self.budget, str):
                raise UserError(
                    f"Settings: budget must be {AUTOMATIC_BUDGET}, or a whole number of at least "
                    f"2, got {self.budget!r}"
                )
            check_whole(self.budget, 2, "Settings: budget")
        check_whole(self.seed, 0, "Settings: seed")
        self._check_memory()
        for name in CLASS_OF_OBJECT_SETTING:
            refuse_interpolations(getattr(self, name))
        if "mean" in self.training.replaces and self.mean != AutomaticMean():
            raise UserError(
                f"Settings: expected no mean, as this training brings its own, got {self.mean}; "
                "leave it out, or choose another training"
            )
        learning = member(Learning, self.learning, "Settings: learning")
        forgetting = at_least(2.0, self.forgetting, "Settings: forgetting")
        gate = at_least(1.0, self.gate, "Settings: gate")
        object.__setattr__(self, "learning", learning)
        object.__setattr__(self, "forgetting", forgetting)
        object.__setattr__(self, "gate", gate)
        if isinstance(self.linear_part, str):
            object.__setattr__(self, "linear_part", LinearPart(self.linear_part))
        if not isinstance(self.linear_part, LinearPart):
            raise UserTypeError(
                "Settings: linear_part must be auto, stable_spline, none or a LinearPart, got "
                f"{self.linear_part!r}"
            )

    def _check_memory(self) -> None:
        """Raise UserError if the matrices of a full budget would not fit into memory."""
        allowed_bytes = max_content_bytes()
        largest = max_points(allowed_bytes)
        if self.max_points > largest:
            needed_bytes = BYTES_PER_POINT_PAIR * (self.max_points + 1) ** 2
            raise UserError(
                f"Settings: a budget of {self.max_points} points needs {needed_bytes:.2g} bytes of "
                f"memory, expected at most {allowed_bytes:.2g} bytes ({largest} points); lower "
                f"budget, or set the environment variable {MAX_CONTENT_VARIABLE}={needed_bytes}"
            )

    @property
    def max_points(self) -> int:
        """Largest number of stored points: the budget, or 100 if it is "auto"."""
        return DEFAULT_BUDGET if isinstance(self.budget, str) else self.budget

    @property
    def demands_linear_part(self) -> bool:
        """Whether a linear part that is impossible is an error."""
        assert isinstance(self.linear_part, LinearPart)  # words were replaced
        return self.linear_part.kind is LinearPartKind.stable_spline

    @property
    def gives_linear_lags(self) -> bool:
        """Whether numbers of lags of the linear part are given; then too many are an error."""
        assert isinstance(self.linear_part, LinearPart)  # words were replaced
        return self.linear_part.lags != "auto"

    def with_linear_lags(self, narx: Narx) -> Narx:
        """Return the lags with those of the linear part that `linear_part` asks for, if any.

        Lags of a linear part that `narx` has already stay, unless `linear_part` is none.

        `sysid.identify`, the estimators and `sysid-identify` call this. In a loop of your own, call
        it before you build rows: a model has a linear part if its `Narx` has lags of one. For
        records, `sysid.choose_linear_part` also finds out whether it helps.

        Raises
        ------
        ValueError
            A linear part is demanded where it is impossible.
        """
        assert isinstance(self.linear_part, LinearPart)  # words were replaced
        return self.linear_part.added_to(narx, self._obstacle_to_linear_part())

    def in_time(self) -> Settings:
        """Return the settings of a linear model if the time of the search is up, else these.

        A linear model is trained in any case (`sysid.MaximumLikelihood.seconds`). A kernel other
        than the default stays.
        """
        training = self.training
        has_default_kernel = (
            isinstance(training, MaximumLikelihood) and training.kernel == SquaredExponential()
        )
        if not has_default_kernel or not out_of_time():
            return self
        return self.linear()

    def linear(self) -> Settings:
        """Return the settings whose Gaussian process is a linear function with a weak prior."""
        training: Any = self.training
        return replace(self, training=replace(training, kernel=Linear()))

    def for_linear_lags(self, narx: Narx) -> Settings:
        """Return the settings whose training also estimates the linear part of these lags.

        Raises
        ------
        ValueError
            The training brings a kernel of its own without a linear part, its kernel has a linear
            part of other lags, or only stored points are learned.
        """
        assert isinstance(self.linear_part, LinearPart)  # words were replaced
        if not narx.linear:
            self._check_kernel(narx)
            return self
        if self.learning is Learning.stored:
            raise UserError(
                f"{OBSTACLE_OF_STORED}: take narx.without_linear(), or another learning"
            )
        if "kernel" in self.training.replaces:
            raise UserError(
                f"the training {type(self.training).__name__} chooses its kernel itself and "
                "estimates no linear part: take narx.without_linear(), or another training"
            )
        training = self.training.with_linear_part(self.linear_part.prototype(narx))
        # None: a training in the cache, or that of a model that is resumed, estimates it already
        settings = self if training is None else replace(self, training=training)
        settings._check_kernel(narx)
        return settings

    def _check_kernel(self, narx: Narx) -> None:
        """Raise UserError if the kernel of the training has a linear part that does not fit."""
        kernel = getattr(self.training, "kernel", None)
        if kernel is None:
            return
        name = type(self.training).__name__
        given = f"the kernel of the training {name} has a linear part of {kernel.linear_lags} lags"
        n_lags = tuple(map(len, narx.linear_lags.values()))
        if n_lags and not kernel.linear_lags:
            raise UserError(
                f"the training {name} estimates no linear part: take narx.without_linear(), or "
                "another training"
            )
        if n_lags and kernel.linear_lags != n_lags:
            raise UserError(
                f"{given}, the Narx one of {n_lags}: give both the same lags, or leave out that of "
                "the kernel"
            )
        if sum(kernel.linear_lags) >= narx.n_features:
            raise UserError(
                f"{given}, but the Narx only {narx.n_features} features: add the lags to it by "
                "with_linear"
            )

    def know(
        self,
        narx: Narx,
        regressors: np.ndarray,
        targets: np.ndarray,
        is_exact: np.ndarray | None = None,
        *,
        near: Hyperparameters | None = None,
    ) -> Start:
        """Return what the training derives from all rows (n, p), (n,) of records.

        Rows at rest with which the records begin are left out if they are more than half of the
        initial samples: they teach nothing about the plant. A training of given hyper-parameters
        learns them, too. The training uses the rows that are exact (n,); None: all are. Only
        `MaximumLikelihood` uses the hyper-parameters `near` of nearly the same rows, at which it
        starts as well.
        """
        first = 0
        n_initial = self.training.n_initial
        if n_initial and self.training.standardise:
            n_at_rest = count_at_rest(regressors, targets, own_lags_of(narx), n_initial)
            first = n_at_rest if 2 * n_at_rest > n_initial else 0
        x = regressors[first:]
        y = targets[first:]
        if is_exact is not None:
            x = x[is_exact[first:]]
            y = y[is_exact[first:]]
        if near is not None and isinstance(self.training, MaximumLikelihood):
            start = self.training.know(x, y, mean=self.mean, seed=self.seed, near=near)
        else:
            start = self.training.know(x, y, mean=self.mean, seed=self.seed)
        return start._replace(n_at_rest=first)

    def know_records(
        self, narx: Narx, records: xr.Dataset | Sequence[xr.Dataset], rows: xr.Dataset
    ) -> Start:
        """Return what the training derives from records, whose lag data set is `rows`.

        Hyper-parameters are those of the rows to which estimated lags add next to nothing, if these
        are at least `MIN_EXACT_FRACTION` of all. A training that simulates also gets the records
        with their holes, which do not end a free run.
        """
        is_exact = None
        if "added_variance" in rows:
            added = rows["added_variance"]
            limit = MAX_EXACT_VARIANCE_RATIO * added.attrs["noise_variance"]
            is_exact = added.values <= limit
            if is_exact.mean() < MIN_EXACT_FRACTION:
                is_exact = None
        start = self.know(narx, rows["regressor"].values, rows["target"].values, is_exact)
        several = [records] if isinstance(records, xr.Dataset) else list(records)
        if "kernel" in self.training.replaces and has_holes(several, narx.signals):
            start = start._replace(segments=segments_of_records(several, narx))
        return start

    def _obstacle_to_linear_part(self) -> str | None:
        """Return what in these settings speaks against a linear part; None: nothing does."""
        if self.learning is Learning.stored:
            return OBSTACLE_OF_STORED
        if not isinstance(self.mean, ConstantMean | ZeroMean):
            return f"the mean function {type(self.mean).__name__} brings a linear part of its own"
        if self.training.with_linear_part(StableSpline([1])) is None:
            return f"the training {type(self.training).__name__} does not estimate it"
        return None


class Collector:
    """The first phase of an identification, which gathers the initial samples.

    A stream may begin at rest, and samples at rest teach nothing about the plant. While every
    sample equals the first one, the collector waits. It goes on waiting until enough samples have
    come after the rest if the samples at rest would be more than half of the initial ones. A rest
    with noise ends where the target moves far outside the region of all samples before (`Region`)
    and stays there for `N_FAR_SAMPLES`. A single wrong measurement does not.

    Parameters
    ----------
    narx : Narx
    n_initial : int or None
        Number of samples that the training needs; None: all samples of the stream.
    waits : bool
        Whether the collector waits until the stream moves.
    n_known_at_rest : int
        Number of samples at rest, if it is known beforehand; the collector does not keep them.

    Attributes
    ----------
    n_collected : int
        Number of samples collected so far, including those at rest that were dropped.
    n_at_rest : int
        Number of samples before the stream moved.
    """

    def __init__(
        self, narx: Narx, n_initial: int | None, *, waits: bool, n_known_at_rest: int = 0
    ) -> None:
        self.n_collected = 0
        self.n_at_rest = n_known_at_rest
        self._narx = narx
        self._n_initial = n_initial
        self._waits = waits and bool(n_initial)
        self._has_moved = False
        # of all samples so far, except those far from it
        self._region = Region(own_lags_of(narx)[:1])
        self._far: list[tuple[np.ndarray, np.ndarray]] = []  # the last samples, if they are far
        self._blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._succession = Succession(narx)
        self._has_skipped = False

    @property
    def is_complete(self) -> bool:
        """Whether as many samples are collected as the training needs."""
        n_initial = self._n_initial
        if n_initial is None or self.n_collected < n_initial or self._far:
            return False
        is_mostly_at_rest = 2 * self.n_at_rest > n_initial
        return not is_mostly_at_rest or self.n_collected - self.n_at_rest >= n_initial

    @property
    def can_train_at_end(self) -> bool:
        """Whether the samples suffice for a training if no others follow."""
        return self.n_collected > 0 and self.n_collected >= (self._n_initial or 0)

    @property
    def n_waited(self) -> int:
        """Number of samples that were collected beyond those that the training needs."""
        if self._n_initial is None:
            return 0
        return max(0, self.n_collected - self._n_initial)

    def take(self, x: np.ndarray, y: np.ndarray, follows: np.ndarray) -> int:
        """Copy samples until there are enough, and return how many were copied.

        At least one is copied even if there are enough already.
        """
        n_dropped = self.n_at_rest - self.n_collected
        if n_dropped > 0 and not self._waits:
            n_dropped = min(n_dropped, len(y))
            self.n_collected += n_dropped
            return n_dropped
        if self._waits:
            return self._take_one_by_one(x, y, follows)
        n_taken = len(y)
        if self._n_initial is not None:
            n_missing = self._n_initial + self.n_at_rest - self.n_collected
            n_taken = min(n_taken, max(1, n_missing))
        self._append(x[:n_taken], y[:n_taken], follows[:n_taken])
        return n_taken

    def _take_one_by_one(self, x: np.ndarray, y: np.ndarray, follows: np.ndarray) -> int:
        """Copy samples until there are enough, and note where the stream moves."""
        for row in range(len(y)):
            sample = slice(row, row + 1)
            self._notice_movement(x[sample], y[sample])
            self._append(x[sample], y[sample], follows[sample])
            if not self._has_moved:
                self.n_at_rest = self.n_collected
                del self._blocks[: -(self._n_initial or 1)]  # all are the same
            if self.is_complete:
                return row + 1
        return len(y)

    def _notice_movement(self, x: np.ndarray, y: np.ndarray) -> None:
        """Compare the next sample (1, p), (1,) with those before."""
        if self._has_moved and self._region.is_far_from(x, y)[0]:
            self._notice_far_sample(x, y)
            return
        self._far.clear()
        if not self._has_moved and self._blocks:
            first_x, first_y, _ = self._blocks[0]
            self._has_moved = not (np.array_equal(x, first_x) and np.array_equal(y, first_y))
            if self._has_moved:
                del self._blocks[:-1]
        self._region.extend(x, y)

    def _notice_far_sample(self, x: np.ndarray, y: np.ndarray) -> None:
        """End the rest at the first of the last samples that are all far from those before."""
        self._far.append((x.copy(), y.copy()))
        if len(self._far) < N_FAR_SAMPLES:
            return
        self.n_at_rest = self.n_collected + 1 - N_FAR_SAMPLES
        for far_x, far_y in self._far:
            self._region.extend(far_x, far_y)
        self._far.clear()

    def skip(self) -> None:
        """Note that the next sample does not come right after the last one."""
        self._has_skipped = True

    def _append(self, x: np.ndarray, y: np.ndarray, follows: np.ndarray) -> None:
        """Copy samples (n, p), (n,); a sample whose lags contradict it follows no other."""
        if not len(y):
            return
        is_next = follows.copy()
        is_next[0] &= self.n_collected > 0 and not self._has_skipped
        is_next[1:] &= self._succession.of_rows(x, y)
        self._has_skipped = False
        if self._blocks:
            last_x, last_y, _ = self._blocks[-1]
            is_next[:1] &= self._succession.between(last_x[-1:], last_y[-1:], x[:1])
        self._blocks.append((x.copy(), y.copy(), is_next))
        self.n_collected += len(y)

    def samples(self) -> InitialSamples:
        """Return the samples collected so far; equal ones at rest are one sample after the rest."""
        regressors = [np.zeros((0, self._narx.n_features))]
        targets = [np.zeros(0)]
        follows = [np.zeros(0, dtype=bool)]
        for block_regressors, block_targets, block_follows in self._blocks:
            regressors.append(block_regressors)
            targets.append(block_targets)
            follows.append(block_follows)
        samples = InitialSamples(
            self._narx,
            np.concatenate(regressors),
            np.concatenate(targets),
            np.concatenate(follows),
        )
        samples.follows[:1] = False
        return samples


class Learner:
    """The second phase of an identification, which predicts each sample and then learns it.

    Parameters
    ----------
    model : Model
    gate : float or None
        Gate of the model; None: no sample is held back as a possible outlier.
    n_mended : dict
        Number of values of each signal but the target that were replaced already.

    Attributes
    ----------
    model : Model
        Replaced by a new object after each re-estimation of the hyper-parameters.
    initial : Model
        Copy of the model before it learned from the stream.
    adaptation : Follower or None
        The object that re-estimates the hyper-parameters; None: they stay.
    outliers : OutlierHandling
    far_values : FarValues
        Which rows have values of inputs or other outputs that are far away.
    learns_records : bool
        Whether the rows are those of whole records, which were screened for gross errors already:
        then no value counts as far. It ends with `finish`.
    n_undone : int
        Number of samples of bursts of wrong measurements that were learned and forgotten again.
    """

    def __init__(self, model: Model, gate: float | None, n_mended: dict[str, int]) -> None:
        self.model = model
        self.initial = replace(model, gp=model.gp.copy(), pending={}, follower=None)
        self.adaptation: Follower | None = None
        self.n_undone = 0
        self._max_piece_rows = MIN_PIECE_ROWS
        self._has_gate = gate is not None
        self.outliers = OutlierHandling(model, has_gate=self._has_gate, n_mended=n_mended)
        self.far_values = FarValues(model.narx)
        self.learns_records = False

    def learn(
        self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None
    ) -> tuple[np.ndarray, UpdateReport | None]:
        """Learn rows, except those with values of other signals that are far away (`FarValues`).

        Returns
        -------
        structured array (n,)
            Record of the rows.
        UpdateReport or None
            New report of the sample before the first row, if it was held back and is learned now.
        """
        if not self._has_gate or self.far_values.are_near(x):
            return self._learn_rows(x, y, follows)
        if self.learns_records:
            self.far_values.learn(x)
            return self._learn_rows(x, y, follows)
        is_next = np.ones(len(y), dtype=bool) if follows is None else np.array(follows, dtype=bool)
        record = np.empty(len(y), dtype=RECORD_DTYPE)
        correction: UpdateReport | None = None
        begin = 0  # first row that is neither learned nor passed over yet
        for row in range(len(y)):
            far = self.far_values.take(x[row], continues=bool(is_next[row]))
            if far is None:
                continue
            report = self._learn_part(slice(begin, row), x, y, is_next, record)
            correction = correction or report
            if not is_next[row] or not self.outliers.mended.follows_last(x[row]):
                self.outliers.mended.errors = {}
            replaced, names = far
            report = self._pass_over(replaced, float(y[row]), names, record[row : row + 1])
            if report is not None and row:
                record[row - 1] = report
            correction = correction or (None if row else report)
            is_next[row + 1 : row + 2] &= is_next[row]
            begin = row + 1
        report = self._learn_part(slice(begin, len(y)), x, y, is_next, record)
        return record, correction or report

    def _learn_part(
        self,
        part: slice,
        x: np.ndarray,
        y: np.ndarray,
        is_next: np.ndarray,
        record: np.ndarray,
    ) -> UpdateReport | None:
        """Learn a part of the rows of a block, which may be empty, and write its record.

        Return the new report of the sample before the part, if it is learned now.
        """
        if part.start == part.stop:
            return None
        record[part], report = self._learn_rows(x[part], y[part], is_next[part])
        return report

    def _pass_over(
        self, x: np.ndarray, y: float, names: list[str], record: np.ndarray
    ) -> UpdateReport | None:
        """Predict a row (n_features,) whose far values were replaced, but do not learn it.

        Its record is written to `record` (1,). `names` are the signals whose newest value is far.
        Return the new report of the sample before it, if that was held back and is learned now.
        """
        outliers = self.outliers
        regressor, target = outliers.mended.mend_next(x, y)
        report = self.skip(1)
        mended = (regressor[np.newaxis], np.array([target]))
        self.model.update_many(*mended, withhold=True, record=record)
        self.model.gp.close_gate()
        if record["outlier"][0]:
            self.far_values.note_outlier()
        outliers.count_mended(names)
        if self.adaptation is not None:
            self.adaptation.observe(*mended, record)
        self._adapt(0)
        record["mean"] += y - target
        self._save_pending()
        return report

    def _learn_rows(
        self, x: np.ndarray, y: np.ndarray, follows: ArrayLike | None
    ) -> tuple[np.ndarray, UpdateReport | None]:
        """Learn rows in pieces, and return what `learn` does.

        A piece ends at an outlier, and where the adaptation has to check the errors.
        """
        outliers = self.outliers
        outliers.begin(x, y, follows)
        record = np.empty(len(y), dtype=RECORD_DTYPE)
        correction: UpdateReport | None = None
        n_done = 0
        while n_done < len(y):
            if outliers.opening is not None:
                self._watch_opening(n_done)
            if outliers.suspect is not None and not self._block_may_decide(n_done):
                report = self._reconsider(n_done)
                if report is not None and n_done:
                    record[n_done - 1] = report
                elif report is not None:
                    correction = report
            if outliers.suspect is None:
                self._adapt(n_done)
            n_done = self._learn_piece(n_done, record)
            if outliers.suspect is None:
                self._adapt(n_done)
        outliers.end()
        if self._has_gate:
            self._save_pending()
        return record, correction

    def _block_may_decide(self, row: int) -> bool:
        """Return whether the loop over a block goes on at a row; see `OutlierHandling`.

        A test of the errors that is due waits for the decision about the sample before the row.
        """
        adaptation = self.adaptation
        is_test_due = adaptation is not None and adaptation.n_until_test <= 0
        return self.outliers.block_may_decide(row) and not is_test_due

    def _learn_piece(self, begin: int, record: np.ndarray) -> int:
        """Learn the rows from `begin` up to the end of a piece, and return the row after it.

        Their predictions and decisions are written to the record (n,) of the block.
        """
        if self._block_may_decide(begin):
            return self._learn_in_block(begin, record)
        gate_is_open = self.model.gp.gate_is_open
        is_held_back = self.outliers.holds_back(begin, gate_is_open=gate_is_open)
        end = begin + 1 if is_held_back else self._end_of_piece(begin, len(record))
        return self._learn_until_outlier(begin, end, record, is_held_back=is_held_back)

    def _end_of_piece(self, begin: int, n_rows: int, max_rows: int | None = None) -> int:
        """Return the row up to which the rows from `begin` on can be learned in one call.

        There, the errors are tested, or an opening of the gate is decided.
        """
        if begin + 1 == n_rows:  # there is nothing to divide, as in a loop of single samples
            return n_rows
        end = min(begin + (max_rows or self._max_piece_rows), n_rows)
        if self.adaptation is not None:
            end = min(end, begin + self.adaptation.n_until_test)
        opening = self.outliers.opening
        if opening is not None and not opening.is_over:
            end = min(end, opening.row_of_decision(n_rows))
        return end

    def _learn_until_outlier(
        self, begin: int, end: int, record: np.ndarray, *, is_held_back: bool
    ) -> int:
        """Learn the rows up to the first outlier, and return the row after it.

        With `is_held_back` there is one row, which is only predicted.
        """
        outliers = self.outliers
        mended = outliers.mended
        opening = outliers.opening
        was_open = self.model.gp.gate_is_open
        learned = self.model.update_many(
            mended.x[begin:end],
            mended.y[begin:end],
            until_outlier=True,
            withhold=is_held_back,
            record=record[begin:end],
        )
        piece = slice(begin, begin + len(learned))
        self._observe(piece, learned)
        if opening is not None and opening.has_ended(piece.stop - 1):
            outliers.end_opening()  # a row of the piece has decided
        has_outlier = bool(record["outlier"][piece.stop - 1])
        self._max_piece_rows = min(2 * self._max_piece_rows, MAX_PIECE_ROWS)
        if has_outlier:
            self._max_piece_rows = MIN_PIECE_ROWS
        gate_is_open = self.model.gp.gate_is_open
        if has_outlier and gate_is_open and not was_open:
            self._open_gate(piece.stop - 1, float(record["mean"][piece.stop - 1]))
        outliers.take_record(piece, learned, is_held_back=is_held_back, gate_is_open=gate_is_open)
        return piece.stop

    def _observe(self, piece: slice, record: np.ndarray) -> None:
        """Pass rows of the block, and their record, to the adaptation."""
        mended = self.outliers.mended
        if self.adaptation is not None:
            measured = (mended.measured_regressors[piece], mended.measured_targets[piece])
            self.adaptation.observe(mended.x[piece], mended.y[piece], record, measured)

    def _learn_in_block(self, begin: int, record: np.ndarray) -> int:
        """Learn rows from `begin` on, and decide about outliers, in compiled code.

        Return the row that comes next.
        """
        outliers = self.outliers
        was_held_back = outliers.suspect is not None
        max_rows = len(record) if outliers.has_constant_mean else self._max_piece_rows
        end = self._end_of_piece(begin, len(record), max_rows)
        outcome = outliers.learn_in_block(self.model, begin, end, record)
        row = outcome.row
        self._observe_block(slice(begin, row), outcome.predicted, was_held_back=was_held_back)
        self._max_piece_rows = min(2 * self._max_piece_rows, MAX_PIECE_ROWS)
        if outliers.suspect is not None:
            self._max_piece_rows = MIN_PIECE_ROWS
        if outcome.reason == OUTLIER_OPENS_GATE:
            last = slice(row - 1, row)
            self._open_gate(row - 1, float(record["mean"][row - 1]))
            outliers.take_record(last, record[last], is_held_back=False, gate_is_open=True)
        elif outcome.reason == LEFT_AT_SUSPECT:
            report = self._reconsider(row)
            if report is not None:
                record[row - 1] = report
        elif outcome.reason == PLANT_MAY_HAVE_JUMPED:
            accepted = outliers.accept_jump(self.model, outcome.n_clipped_ahead)
            self._take_accepted(accepted, row)
            record[row - 1] = accepted.report
        return row

    def _observe_block(self, piece: slice, record: np.ndarray, *, was_held_back: bool) -> None:
        """Pass rows that `_learn_in_block` has learned, and their record, to the adaptation.

        An adaptation takes samples when they are predicted, and does not know whether a sample that
        is held back is stored later. It must not matter to it whether the next row was known
        already. With `was_held_back` there was a suspect before the piece, which may have been
        learned.
        """
        if self.adaptation is None:
            return
        watched = record.copy()
        learned_later = self.outliers.learned_later(piece)
        watched["accepted"][learned_later > 0] = False
        was_outlier = (learned_later == LEARNED_OUTLIER) | (learned_later == LEARNED_MENDED)
        watched["outlier"][was_outlier] = True
        self._observe(piece, watched)
        if was_held_back:
            piece = slice(piece.start - 1, piece.stop)
        self.adaptation.accept_outliers(self.outliers.learned_later(piece) == LEARNED_OUTLIER)

    def _open_gate(self, row: int, mean: float) -> None:
        """Watch the rows after an outlier with this predicted mean, which opened the gate.

        Another opening may be watched already.
        """
        mended = self.outliers.mended
        error, is_clipped = mended.error_of(
            mended.x[row], float(mended.y[row]), mean, mended.learned
        )
        if not self.outliers.may_open(row + 1, error):
            return
        self.outliers.end_opening()
        errors = mended.errors | {(mended.target, row): error}
        before = self.outliers.copy_of(self.model.gp)
        before.close_gate()
        opening = self.outliers.begin_opening(
            self.model, before, errors, row + 1, n_cut=int(is_clipped)
        )
        opening.keep(before)
        opening.follower = self._copy_of_adaptation()
        self.outliers.opening = opening

    def _adapt(self, row: int) -> None:
        """Test the errors before a row, if that is due, and adapt or replace the model.

        No sample may be held back: one that is learned later counts, as every other one does.
        """
        adaptation = self.adaptation
        if adaptation is None:
            return
        self._adapt_hyperparameters(adaptation)
        if adaptation.departed is not None:
            x, y = adaptation.departed
            self._train_again(adaptation)
            self.outliers.mended.learn(x, y)
            self.outliers.restart(self.model, row)

    def _adapt_hyperparameters(self, adaptation: Follower) -> None:
        """Test the errors, if that is due, and take over new hyper-parameters."""
        gp = adaptation.adapted(self.model.gp)
        if gp is not self.model.gp:
            self.model = replace(self.model, gp=gp)

    def _train_again(self, adaptation: Follower) -> None:
        """Replace the model by one that is trained on the samples around a departure."""
        assert isinstance(adaptation, Adaptation)
        assert adaptation.departed is not None
        model = self.model
        x, y = adaptation.departed
        follow_others = np.zeros(len(y), dtype=bool)
        samples = InitialSamples(model.narx, x, y, follow_others)
        training = adaptation.settings
        prepare = partial(
            training.prepare, mean=model.mean, budget=model.gp.budget, seed=adaptation.seed
        )
        known = Start(limits=model.limits)
        trained = train(samples, known, prepare, model.gp.gate if self._has_gate else None)
        gp_settings = {name: getattr(model.gp, name) for name in ONLINE_GP_SETTINGS}
        gp_settings["learning"] = model.gp.learning
        gp_settings["gate"] = model.gp.gate
        gp_settings["gate_opens_after"] = model.gp.gate_opens_after
        renewed = build_model(model.narx, trained, gp_settings, Backward())
        hyperparameters = trained.start.hyperparameters
        assert hyperparameters is not None
        learned = (trained.samples.regressors, trained.samples.targets)
        adaptation.restart(
            renewed.scaling, renewed.mean, learned, renewed.gp, hyperparameters, trained.seconds
        )
        self.model = replace(model, scaling=renewed.scaling, mean=renewed.mean, gp=renewed.gp)

    def finish(self) -> UpdateReport | None:
        """Decide about a sample that is held back, because no other sample follows it.

        Return the new report of the sample if it is learned now.
        """
        self.learns_records = False
        if self.outliers.suspect is None:
            return None
        report = self._reconsider(None)
        self._save_pending()
        return report

    def skip(self, n: int) -> UpdateReport | None:
        """Pass over n samples of the same record that have no row, as `Identification.skip`.

        Return the new report of a sample that was held back, if it is learned now.
        """
        report = None if self.outliers.suspect is None else self._reconsider(None)
        self.outliers.skip(n)
        if self._has_gate:
            self._save_pending()
        return report

    def _reconsider(self, row: int | None) -> UpdateReport | None:
        """Decide about the suspect by the row after it; None: no row follows.

        Return the new report of the suspect if it is learned now.
        """
        accepted = self.outliers.reconsider(self.model, row)
        if accepted is None:
            return None
        self._take_accepted(accepted, row)
        return accepted.report

    def _take_accepted(self, accepted: Accepted, row: int | None) -> None:
        """Go on after the sample before a row was learned after all; None: no row follows."""
        if accepted.opening is not None and row is not None:
            if not accepted.opening.is_over:
                accepted.opening.follower = self._copy_of_adaptation()
            self.outliers.opening = accepted.opening
            self._watch_opening(row)
        if accepted.plant_jumped and self.adaptation is not None:
            self.adaptation.accept_outliers(np.array([True]))

    def _copy_of_adaptation(self) -> Follower | None:
        """Return a copy of the object that re-estimates the hyper-parameters, if it can be copied.

        Without a copy it keeps what it has seen.
        """
        if isinstance(self.adaptation, Adaptation):
            return self.adaptation.copy()
        return self.adaptation

    def _watch_opening(self, row: int) -> None:
        """Compare the next row with the model from before the gate opened.

        If the plant of before has returned, go on with that model.
        """
        outliers = self.outliers
        opening = outliers.opening
        assert opening is not None
        opening.look_ahead()
        if opening.row_of_decision(len(outliers.mended.y)) > row:
            return
        if opening.is_over:
            outliers.end_opening()
            return
        self.n_undone += opening.n_samples - 1 - len(opening.returned)
        self.model = replace(
            opening.model,
            gp=opening.gp,
            follower=opening.follower,
            pending=self.model.pending,
        )
        self.adaptation = opening.follower
        if self.adaptation is not None:
            self._adapt_hyperparameters(self.adaptation)
        for x, y in opening.returned:
            self._learn_returned(x, y)
        outliers.undo(self.model, row)

    def _learn_returned(self, x: np.ndarray, y: np.ndarray) -> None:
        """Learn a sample since the plant of before returned; it was reported already."""
        record = self.model.update_many(x, y, until_outlier=True)
        adaptation = self.adaptation
        if adaptation is None:
            return
        adaptation.observe(x, y, record, (x, y))
        self._adapt_hyperparameters(adaptation)

    def _save_pending(self) -> None:
        """Store in the model what `Identification.resume` needs to continue."""
        pending = self.model.pending
        pending["seen"] = self.model.gp.n_seen
        self.outliers.write_pending(pending)
        pending["others"] = self.far_values.write()


def too_few_rows(settings: Settings, rows: xr.Dataset) -> UserError:
    """Return the error of records that have too few rows for the training."""
    return UserError(
        f"identify: training.n_initial is {settings.training.n_initial}, the records give "
        f"{rows.sizes['sample']} rows; give longer records, or lower n_initial"
    )


class Identification(Exclusive):
    """Identification of a model: collects the initial samples, trains, then learns online.

    Outlier test: a sample whose standardised error is beyond the gate is not learned. Its
    measurement is also a lag of the following samples; there it is replaced by its prediction. If
    the next sample is likelier with the measurement than with its replacement, the plant jumped,
    not the sensor: the sample is then learned, one sample later, its measurement is restored, and
    the gate is open until a sample is within it. The gate also opens after ``2 (n_y + 1)`` outliers
    in a row, n_y the largest lag of the target, or if more than one sample in six is an outlier. If
    the target has no lags, the next sample cannot show whether the one before was wrong: then there
    is no gate.

    Inputs and other outputs are measured, too. A sample is held back until the next one is known if
    it is beyond the gate, or if the newest value of one of these signals jumps by three standard
    deviations. If the next value reverses the jump, and both samples are likelier with the value
    before the jump, that value replaces the newest one among the lags, and the sample is learned.
    Values of the initial samples are replaced in the same way if the Gaussian process trained with
    the replacements predicts each sample better from the others.

    `observe`, `observe_many`, `finish` and `calibrate` hold the `lock` of the object while they
    run. Another thread that saves the model takes it, too: ``with identification.lock: ...``.

    Parameters
    ----------
    narx : Narx
    settings : Settings
    start : Start, optional
        Prior knowledge: scaling, mean, hyper-parameters or stored points.
    time_limit : TimeLimit, optional
        Limit of the search of which the training is a part; None: the running one, or that of the
        training alone.

    Attributes
    ----------
    model : Model or None
        None until the initial samples are collected. Replaced by a new object after each
        re-estimation of the hyper-parameters.
    initial : Model or None
        Copy of the model before it learned from the stream.
    hyperparameters : Hyperparameters or None
        Hyper-parameters of the initial model.
    adaptation : Follower or None
        The object that re-estimates the hyper-parameters while the stream goes on; None: they stay.
    report : dict or None
        What the training tried; None if the training does not report it.
    time_limit : TimeLimit
        Limit of the search; its `was_reached` says whether the model is the best so far only.
    training_seconds : float
        Wall time of the training [s].
    n_waited : int
        Number of samples by which the training was later because the stream began at rest.
    n_initial_outliers : int
        Number of initial samples beyond the gate, which were left out of the training.
    n_forgotten : int
        Number of samples that were forgotten when the lags changed (`change_lags`).
    n_gross_errors : dict
        Number of gross errors of each signal in whole records, which were not learned
        (`sysid.screen_records`); signals without any are left out.
    n_mended : dict
        Number of values of each signal but the target that were replaced.
    correction : UpdateReport or None
        Set by each call of `observe`, `observe_many` and `finish`: the new report of the last
        sample before that call, if it was held back and is learned now. It replaces the last row
        that was returned. None: that row stays valid. The prediction in it does not change; after
        `resume` it is nan.
    """

    def __init__(
        self,
        narx: Narx,
        settings: Settings,
        *,
        start: Start | None = None,
        time_limit: TimeLimit | None = None,
    ) -> None:
        self._renew_lock()
        self.narx = narx
        self.time_limit = limit_of(settings.training) if time_limit is None else time_limit
        #: without the linear part of these lags; None: the training of a resumed model is unknown
        self._given_settings: Settings | None = settings
        self.settings = settings.for_linear_lags(narx)
        self.start = Start() if start is None else start
        self.hyperparameters: Hyperparameters | None = None
        self.report: dict[str, Any] | None = None
        self.training_seconds = 0.0
        self.n_waited = 0
        self.n_initial_outliers = 0
        self.n_forgotten = 0
        self.n_gross_errors: dict[str, int] = {}
        self.correction: UpdateReport | None = None
        training = self.settings.training
        self._follower = training.follow(settings.seed)
        waits = training.standardise and self.start.hyperparameters is None
        self._phase: Collector | Learner = Collector(
            narx, training.n_initial, waits=waits, n_known_at_rest=self.start.n_at_rest
        )
        if training.n_initial == 0:
            self._phase = self._train(self._phase)

    @property
    def gate(self) -> float | None:
        """Gate of the settings; None if the target has no lags.

        Without lags of the target, no row shows whether the row before was an outlier.
        """
        if reach_of(self.narx) == 0:
            return None
        return self.settings.gate  # type: ignore[return-value]  # Settings converts texts

    @property
    def model(self) -> Model | None:
        """Current model; None until the initial samples are collected."""
        return self._phase.model if isinstance(self._phase, Learner) else None

    @model.setter
    def model(self, model: Model) -> None:
        if not isinstance(self._phase, Learner):
            raise AttributeError(
                "Identification: there is no model yet that another could replace; see `resume`"
            )
        self._phase.model = model

    def linearize(
        self, at: Any = None, *, record: xr.Dataset | None = None
    ) -> LinearView | list[LinearView]:
        """Return the linear view of the current model; see `Model.linearize`.

        Raises
        ------
        ValueError, TypeError
            As `Model.linearize` and `require_model`.
        """
        return self.require_model().linearize(at, record=record)

    def require_model(self) -> Model:
        """Return the current model.

        Raises
        ------
        ValueError
            The initial samples are not complete.
        """
        if not isinstance(self._phase, Learner):
            n = self._phase.n_collected
            needed = self.settings.training.n_initial
            message = (
                f"Identification: there is no model yet, {n} of {needed} initial samples are "
                "collected"
            )
            n_at_rest = self._phase.n_at_rest
            if needed is not None and n >= needed:
                message += (
                    f"; the training waits for {needed} samples after the {n_at_rest} at rest; "
                    "excite the plant, or call `finish`"
                )
            raise UserError(message)
        return self._phase.model

    @property
    def initial(self) -> Model | None:
        """Copy of the model before it learned from the stream; None until there is a model."""
        return self._phase.initial if isinstance(self._phase, Learner) else None

    @property
    def adaptation(self) -> Follower | None:
        """The object that re-estimates the hyper-parameters; None: they stay."""
        return self._phase.adaptation if isinstance(self._phase, Learner) else self._follower

    @property
    def n_undone(self) -> int:
        """Number of samples of bursts that were learned, and forgotten again."""
        return self._phase.n_undone if isinstance(self._phase, Learner) else 0

    def __repr__(self) -> str:
        learner = self._phase
        if not isinstance(learner, Learner):
            return f"Identification of {self.narx.target}: {self._waiting_in_words(learner)}"
        return f"Identification, {learner.model.gp.n_seen} samples seen\n{learner.model!r}"

    def _waiting_in_words(self, collector: Collector) -> str:
        """Return how far the collection of the initial samples has come."""
        n_initial = self.settings.training.n_initial
        needed = "" if n_initial is None else f" of {n_initial}"
        return (
            f"{collector.n_collected}{needed} samples collected for the training; there is no "
            "model yet"
        )

    def _repr_html_(self) -> str:
        learner = self._phase
        if not isinstance(learner, Learner):
            return (
                f"<div><b>Identification of {escape(self.narx.target)}</b>: "
                f"{self._waiting_in_words(learner)}</div>"
            )
        warnings = self.time_limit.describe("seconds")
        counts = {
            "initial samples left out as outliers": self.n_initial_outliers,
            "samples of bursts learned and forgotten again": self.n_undone,
        }
        for name, number in self.n_gross_errors.items():
            counts[f"gross errors of {name} in the records, not learned"] = number
        for name, number in self.n_mended.items():
            counts[f"values of {name} that were replaced"] = number
        warnings += [f"{words}: {number}" for words, number in counts.items() if number]
        html = learner.model._repr_html_()
        return f"<div><b>Identification</b>{notes(warnings)}{html}</div>"

    @property
    def n_clipped(self) -> int:
        """Number of predictions in place of rejected measurements that left the learned range.

        They were cut to it, widened by a tenth on each side (`sysid.outliers.MendedRows`).
        """
        return self._phase.outliers.mended.n_clipped if isinstance(self._phase, Learner) else 0

    @property
    def replaced(self) -> dict[tuple[str, int], float]:
        """Measurements that are taken for wrong among the lags of the next sample.

        Keys are the signal and the number of samples before the next one, 1 for the last sample;
        values are the measured value minus the one that replaces it [unit of the signal]. The next
        sample decides about the last one.
        """
        if not isinstance(self._phase, Learner):
            return {}
        errors = self._phase.outliers.mended.errors
        return {(name, -time): error for (name, time), error in errors.items()}

    @property
    def n_mended(self) -> dict[str, int]:
        """Number of values of each signal but the target that were replaced."""
        return dict(self._phase.outliers.n_mended) if isinstance(self._phase, Learner) else {}

    @exclusive
    def observe(
        self, regressor: ArrayLike, target: float, *, follows: bool = True
    ) -> UpdateReport | None:
        """Predict and learn one sample; return None if it is collected as an initial sample.

        `follows` states whether the sample comes right after the one before it, in the same record.
        A training that simulates needs to know where a record begins.
        """
        is_collected = isinstance(self._phase, Collector)
        record = self.observe_many(np.asanyarray(regressor)[None], [target], follows=[follows])
        return None if is_collected else UpdateReport(*record[0].item())

    @exclusive
    def observe_many(
        self,
        regressors: ArrayLike,
        targets: ArrayLike,
        *,
        follows: ArrayLike | None = None,
    ) -> np.ndarray:
        """Predict and learn consecutive samples in compiled code.

        The results are the same, bit for bit, however the samples are divided into blocks.

        Parameters
        ----------
        regressors : (n, n_features)
        targets : (n,)
        follows : (n,) of bool, optional
            Whether each sample comes right after the one before it; None: all do.

        Returns
        -------
        structured array (n,)
            One row per sample, with the fields of `sysid.UpdateReport`. Initial samples are copied
            and collected, not predicted: their mean is nan. If the last row is an outlier, or
            another signal jumps there, the sample is held back until the next call. The returned
            array is not changed later: if the sample is learned in the next call, its new report
            is the `correction` of that call.

        Raises
        ------
        ValueError
            Wrong shape, a value that is not finite, or a sample that the model cannot learn
            (`OnlineGP.update`). Nothing has happened then: no sample was learned or collected, and
            a sample that is held back still waits for the next one.
        other errors
            Errors of the training. The samples up to the last one passed to the training stay
            collected; the training is tried again with each further sample.
        """
        phase = self._phase
        if isinstance(phase, Collector):
            x = matrix(regressors, self.narx.n_features, "regressors")
            y = vector(targets, len(x), "targets")
            follows = flags(follows, len(y), "follows")
            self.correction = None
            return self._collect(phase, x, y, follows)
        x, y = rows(regressors, targets, self.narx.n_features, "regressors")
        if follows is not None:
            follows = flags(follows, len(y), "follows")
        # A single sample is checked where it is learned, unless another is decided about before.
        if len(y) > 1 or phase.outliers.suspect is not None:
            phase.model.check_rows(x, y)
        self.correction = None
        record, self.correction = phase.learn(x, y, follows)
        return record

    @property
    def can_change_lags(self) -> bool:
        """Whether a model with other lags can be trained: the training of a resumed one is known.

        It is if it is `Adaptive`.
        """
        return self._given_settings is not None

    @exclusive
    def change_lags(
        self,
        narx: Narx,
        regressors: ArrayLike,
        targets: ArrayLike,
        *,
        follows: ArrayLike | None = None,
        n_forgotten: int = 0,
    ) -> bool:
        """Replace the model by one with other lags that has learned these rows, and no others.

        The hyper-parameters are estimated anew, as from the first samples of a stream.

        Parameters
        ----------
        narx : Narx
        regressors, targets, follows
            Rows of the new lags, as for `observe_many`.
        n_forgotten : int
            Number of samples of the stream before these rows, for the numbers of the samples in
            the estimates of the adaptation.

        Returns
        -------
        bool
            False if the rows are too few to train a model, but there is one: then nothing changes.

        Raises
        ------
        ValueError
            The lags cannot change (`can_change_lags`); as `observe_many`.
        """
        if self._given_settings is None:
            raise UserError(
                "Identification: the training of this model is not stored with it, so that its "
                "lags cannot change; begin a new identification"
            )
        renewed = Identification(
            narx, self._given_settings, start=self.start, time_limit=self.time_limit
        )
        renewed.n_forgotten = n_forgotten
        renewed.observe_many(regressors, targets, follows=follows)
        if renewed.model is None and self.model is not None:
            return False
        if renewed.model is not None:
            renewed.finish()
        self.narx = narx
        self.settings = renewed.settings
        self.hyperparameters = renewed.hyperparameters
        self.report = renewed.report
        self.training_seconds += renewed.training_seconds
        self.n_waited = renewed.n_waited
        self.n_initial_outliers = renewed.n_initial_outliers
        self.n_forgotten = n_forgotten
        self._follower = renewed._follower
        self._phase = renewed._phase
        return True

    @exclusive
    def check_samples(self, regressors: ArrayLike, targets: ArrayLike) -> None:
        """Raise the ValueError of `observe_many` if it would refuse these samples; do nothing else.

        Call this for all outputs of a plant before the first of their models learns a sample.
        """
        if isinstance(self._phase, Learner):
            self._phase.model.check_samples(regressors, targets)
        else:
            x = matrix(regressors, self.narx.n_features, "regressors")
            vector(targets, len(x), "targets")

    def _collect(
        self, collector: Collector, x: np.ndarray, y: np.ndarray, follows: np.ndarray
    ) -> np.ndarray:
        """Collect initial samples; once they are complete, train and learn the samples left."""
        n_taken = collector.take(x, y, follows)
        while n_taken < len(y) and not collector.is_complete:
            n_taken += collector.take(x[n_taken:], y[n_taken:], follows[n_taken:])
        collected = np.repeat(NOT_PREDICTED, n_taken)
        if not collector.is_complete:
            return collected
        learner = self._train(collector)
        self._phase = learner
        collected["n_points"][-1:] = learner.model.gp.n_points
        record, self.correction = learner.learn(x[n_taken:], y[n_taken:], follows[n_taken:])
        return np.concatenate([collected, record])

    @exclusive
    def finish(self) -> None:
        """End the stream: decide about a sample held back; train if the training uses all samples.

        If the last sample was held back and is learned now, its new report is the `correction`.
        """
        self.correction = None
        if isinstance(self._phase, Collector) and self._phase.can_train_at_end:
            self._phase = self._train(self._phase)
        if isinstance(self._phase, Learner):
            self.correction = self._phase.finish()

    @exclusive
    def skip(self, n_samples: int = 1) -> None:
        """Pass over samples that have no row, for example because their output is missing.

        The next sample belongs to the same record, but does not come right after the last one. A
        sample that was held back is decided about, as by `finish`; if it is learned now, its new
        report is the `correction`. What was taken for wrong stays so: it is replaced among the lags
        of the next sample. Without this call the next sample comes right after the last one, or,
        with ``follows=False``, from another record.

        Parameters
        ----------
        n_samples : int
            Number of samples without a row.
        """
        check_whole(n_samples, 1, "skip: n_samples")
        self.correction = None
        if isinstance(self._phase, Learner):
            self.correction = self._phase.skip(int(n_samples))
        else:
            self._phase.skip()

    @exclusive
    def ahead(
        self, inputs: ArrayLike | Mapping[str, ArrayLike] | int, window: LagWindow
    ) -> pd.DataFrame:
        """Predict the coming samples from the last ones of a loop of your own; learn nothing.

        What is taken for wrong among the last samples is replaced (`replaced`).

        Parameters
        ----------
        inputs : (n, n_u) or (n,) or int
            As for `sysid.look_ahead`.
        window : LagWindow
            Window that has stored all samples of the run so far, of which the last one was
            observed.

        Returns
        -------
        pandas.DataFrame
            As of `sysid.look_ahead`.

        Raises
        ------
        ValueError
            As of `sysid.look_ahead`; there is no model yet, or its regressors contain other
            outputs: simulate these with it, as a `sysid.JointModel`.
        """
        model = self.require_model()
        outputs, before = window.last_samples()
        past = {name: outputs[:, i] for i, name in enumerate(self.narx.output_names)}
        past |= {name: before[:, i] for i, name in enumerate(self.narx.input_names)}
        if isinstance(self._phase, Learner) and self._phase.outliers.mended.ends_with(past):
            for (name, n_ago), error in self.replaced.items():
                if n_ago <= len(outputs):
                    past[name][-n_ago] -= error
        return look_ahead(model, inputs, outputs, before)

    @classmethod
    @shows_progress("training and learning")
    @one_blas_thread
    def of_records(
        cls,
        records: xr.Dataset | Sequence[xr.Dataset],
        narx: Narx,
        settings: Settings,
        *,
        start: Start | None = None,
        time_limit: TimeLimit | None = None,
    ) -> Identification:
        """Learn whole records.

        Gross errors of the records are taken as missing first (`sysid.screen_records`), unless the
        settings have no gate or the model has no lags. Rows that would contain one are left out.

        Parameters
        ----------
        records
            One data set per record, see `Narx.dataset`.
        narx : Narx
        settings : Settings
        start : Start, optional
            Prior knowledge. None: ``settings.training.know`` derives it from all records.
            ``Start()``: no prior knowledge; the first samples give the hyper-parameters, as they
            do for a stream.
        time_limit : TimeLimit, optional
            As for the constructor.

        Returns
        -------
        Identification
            Its `model` has seen all records; `observe_many` continues to learn.

        Raises
        ------
        ValueError
            As `Narx.dataset`; fewer rows than ``settings.training.n_initial``.

        Examples
        --------
        >>> time = np.arange(200.0)
        >>> signals = {"y": ("time", np.sin(0.3 * time)), "u": ("time", np.cos(0.3 * time))}
        >>> record = xr.Dataset(signals, {"time": time})
        >>> found = Identification.of_records(record, Narx({"y": 1}, {"u": 1}), Settings(budget=20))
        >>> found.model.gp.n_points
        20
        """
        n_gross_errors: dict[str, int] = {}
        if settings.gate is not None and narx.max_lag:
            screened = screen_records(records, narx.output_names, narx.input_names)
            records = screened.records
            narx = screened.for_rows(narx)
            n_gross_errors = screened.n_found
        rows = narx.dataset(records)
        x = rows["regressor"].values
        t = rows["target"].values
        if time_limit is None:
            time_limit = limit_of(settings.training)
        with time_limit.running():
            settings = settings.in_time().for_linear_lags(narx)
            if start is None:
                start = settings.know_records(narx, records, rows)
        identification = cls(narx, settings, start=start, time_limit=time_limit)
        identification.n_gross_errors = n_gross_errors
        identification.observe_many(x, t, follows=consecutive(rows))
        identification.finish()
        several = [records] if isinstance(records, xr.Dataset) else list(records)
        identification.calibrate(rows, added=added_variance_of(rows), records=several)
        if identification.model is None:
            raise too_few_rows(identification.settings, rows)
        return identification

    @classmethod
    def resume(cls, model: Model) -> Identification:
        """Continue the identification of a model, for example from a file, bit for bit.

        Samples that the model learned by `Model.update_many` in between are not known. In that case
        no sample is held back, and the hyper-parameters stay. Predictions then replace rejected
        measurements within the range of the outputs in the model (`Origin.output_range`, its
        points), which may be unknown.

        Examples
        --------
        >>> narx = Narx({"y": 1}, {"u": 1})
        >>> signals = {"y": np.sin(0.3 * np.arange(120)), "u": np.cos(0.3 * np.arange(120))}
        >>> rows = narx.regressors(signals)
        >>> identification = Identification(narx, Settings(budget=20))
        >>> _ = identification.observe_many(rows.regressor[:110], rows.target[:110])
        >>> resumed = Identification.resume(identification.model)
        >>> resumed.observe(rows.regressor[110], rows.target[110]).n_points
        20
        """
        gp = model.gp
        pending = model.pending
        gp_settings = {name: getattr(gp, name) for name in ONLINE_GP_SETTINGS}
        settings = Settings(
            training=MaximumAPosteriori(),
            mean=model.mean,
            learning=gp.learning,
            gate=gp.gate,
            **gp_settings,
        )
        identification = cls(model.narx, settings)
        learner = Learner(model, identification.gate, n_mended={})
        identification._phase = learner
        identification._given_settings = None
        if isinstance(model.follower, Adaptation):
            identification._given_settings = replace(settings, training=model.follower.settings)
        if isinstance(model.follower, Adaptation) and model.follower.n_seen == gp.n_seen:
            learner.adaptation = model.follower
        mended = learner.outliers.mended
        mended.learned = range_known_to(model)
        learner.far_values.learn(regressors_of_points(model))
        if pending:
            try:
                last = None
                if pending.get("seen") == gp.n_seen:
                    learner.outliers.recall(pending)
                    last = mended.last
                else:  # the range from before the other samples is a part of the present one
                    mended.learned = union(mended.learned, recall_range(pending) or NO_VALUES)
                learner.far_values.recall(pending.get("others", {}), last)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise UserError(
                    f"the pending samples stored with the model do not fit it: {error}; "
                    "save the model again"
                ) from error
        return identification

    @exclusive
    def calibrate(
        self,
        rows: xr.Dataset,
        judged: xr.Dataset | None = None,
        added: ArrayLike = 0.0,
        records: Sequence[xr.Dataset] = (),
    ) -> None:
        """Measure the widths of the model's bands (`sysid.Model.bands`) on the rows it has learned.

        Each fifth of the rows is predicted by a model with the same hyper-parameters that learns
        from the other rows. With more than `PLENTIFUL_ROWS_PER_POINT` rows for each stored point
        the model itself predicts all rows, because its errors hardly differ from held-out errors
        any more (`sysid.simulation.bands`). Nothing is measured if the training has measured the
        bands, for a plant that changes (`forgetting`), and with fewer than `MIN_ROWS_FOR_BANDS`
        rows.

        Parameters
        ----------
        rows
            Lag data set of the records.
        judged
            Needed where some regressors are estimates that were fitted to the rows: the same data
            set, in which each fifth has the estimates fitted to the other rows. The bands then lie
            between the widths measured with `rows` and those measured with `judged`
            (`sysid.simulation.bands.between`).
        added : (n,), optional
            Variance of each row's one-step prediction that is added to the variance of the model.
        records
            Records of the rows. If they have holes, the simulations go on through them.
        """
        model = self.model
        s = self.settings
        first = self.start.n_at_rest
        x = rows["regressor"].values[first:]
        y = rows["target"].values[first:]
        if model is None or model.bands or s.forgetting or len(y) < MIN_ROWS_FOR_BANDS:
            return
        known = Hyperparameters(model.gp.kernel, model.gp.noise_variance, np.nan)
        start = Start(model.scaling, model.mean, known, limits=model.limits)

        def learn(fold: InitialSamples) -> Model:
            """Return a model with the same hyper-parameters that has learned only these rows."""
            n_initial = min(s.max_points, len(fold.targets))
            training = MaximumAPosteriori(n_initial=n_initial)
            identification = Identification(self.narx, replace(s, training=training), start=start)
            identification.observe_many(fold.regressors, fold.targets, follows=fold.follows)
            return identification.require_model()

        samples = InitialSamples(self.narx, x, y, consecutive(rows)[first:])
        estimates = None if judged is None else judged["regressor"].values[first:]
        if np.ndim(added):
            added = vector(added, first + len(y), "calibrate: added")[first:]
        whole = None
        feeds_back = any(name == self.narx.target for name, _ in self.narx.features)
        if feeds_back and not first and has_holes(records, self.narx.signals):
            whole = numbered_segments(records, self.narx)
        bands = measure_bands_by_folds(
            model, samples, learn, s.seed, estimates=estimates, added=added, whole=whole
        )
        self.model = replace(model, bands=bands)

    def _train(self, collector: Collector) -> Learner:
        """Train on the collected samples, and return the learner of the initial model."""
        s = self.settings
        prepare = partial(s.training.prepare, mean=s.mean, budget=s.max_points, seed=s.seed)
        with self.time_limit.running():
            trained = train(collector.samples(), self.start, prepare, self.gate)
        model = self._initial_model(trained)
        learner = Learner(model, self.gate, trained.n_mended)
        learner.learns_records = self.start.stays
        if self.gate is not None:
            mended = learner.outliers.mended
            mended.learn(trained.samples.regressors, trained.samples.targets)
            learner.far_values.learn(trained.samples.regressors)
            if not len(trained.samples.targets):
                mended.learned = range_known_to(model)  # that of the points of the start
                learner.far_values.learn(regressors_of_points(model))
        self.training_seconds = trained.seconds
        self.hyperparameters = trained.start.hyperparameters
        self.report = trained.start.report
        self.n_initial_outliers = trained.n_outliers
        self.n_waited = collector.n_waited
        if self._follower is not None and not self.start.stays:
            x = trained.samples.regressors
            y = trained.samples.targets
            known = (self.start.scaling, self.start.mean, self.start.hyperparameters)
            is_estimated = all(value is None for value in known)
            self._follower.start(
                model.scaling,
                model.mean,
                x,
                y,
                model.gp.learning,
                n_left_out=collector.n_collected - len(y) + self.n_forgotten,
                own_lags=own_lags_of(self.narx) if is_estimated else None,
            )
            learner.adaptation = self._follower
            learner.model = replace(model, follower=self._follower)
        return learner

    def _initial_model(self, trained: Trained) -> Model:
        """Build the trained model, from the points of the training or from selected samples."""
        s = self.settings
        gp_settings = {name: getattr(s, name) for name in ONLINE_GP_SETTINGS}
        gp_settings["budget"] = s.max_points
        # points of the training represent all samples: only stored points are learned from them
        has_points = trained.start.points is not None
        gp_settings["learning"] = Learning.stored if has_points else s.learning
        gp_settings["gate"] = self.gate
        gp_settings["gate_opens_after"] = 2 * (reach_of(self.narx.without_linear()) + 1)
        return build_model(self.narx, trained, gp_settings, s.selection)


def joint_model(identifications: Iterable[Identification]) -> JointModel | None:
    """Return the current models of all outputs together; None while one of them is not trained.

    Parameters
    ----------
    identifications : iterable of Identification
        One for each output among the lags, which are the same.
    """
    models = [one.model for one in identifications]
    trained = tuple(model for model in models if model is not None)
    return JointModel(trained) if len(trained) == len(models) else None


def build_model(
    narx: Narx, trained: Trained, gp_settings: dict[str, Any], selection: Selection
) -> Model:
    """Build a trained model, from the points of the training or from selected samples.

    Parameters
    ----------
    narx : Narx
    trained : Trained
    gp_settings : dict
        Arguments of `OnlineGP` that the training does not determine.
    selection : Selection

    Raises
    ------
    TypeError
        The training has not determined all that a model needs.
    """
    start = trained.start
    scaling = start.scaling
    mean = start.mean
    hyperparameters = start.hyperparameters
    points = start.points
    if scaling is None or mean is None or hyperparameters is None:
        raise UserTypeError(
            "expected `prepare` of the training to return a scaling, a mean and hyper-parameters"
        )
    gp = OnlineGP(
        hyperparameters.kernel,
        noise_variance=hyperparameters.noise_variance,
        **gp_settings,
    )
    if points is None:
        x = trained.samples.regressors
        y = trained.samples.targets
        gp = selection.fill(gp, scaling.transform(x), y - mean(x))
    else:
        gp.fit(*points)
    return Model(
        narx,
        scaling,
        mean,
        gp,
        limits=start.limits or NO_OUTPUT_LIMITS,
        bands=start.bands or (),
    )
