"""Regressor with the interface of scikit-learn for dynamic systems.

The data are inputs and outputs over time, of one record or of several.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from sysid.arrays import check_unmasked, matrix
from sysid.beside import one_blas_thread
from sysid.data.clock import MAX_JITTER
from sysid.data.nonlinear_benchmarks import InputOutput
from sysid.data.source import make_record
from sysid.errors import UserError, warn_user
from sysid.estimators.online_gp import MIN_BATCH_ROWS, GPRegressor, numbered_names, unused_name
from sysid.gross_errors import screen_records
from sysid.identification import Identification, Settings
from sysid.lag_choice import choose_linear_part
from sysid.linear_part import LinearPart
from sysid.model.model import JointModel, Model, Origin
from sysid.narx.lags import Lags, Narx, Order, Orders, consecutive
from sysid.narx.record import TIME_TOLERANCE
from sysid.progress_display import shows_progress
from sysid.simulation.forecast import forecast, free_run, warn_of_held
from sysid.simulation.look_ahead import look_ahead, read_coming_inputs
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly, Propagation
from sysid.simulation.validation import validate
from sysid.time_limit import TimeLimit

#: Orders that hold where a parameter is left out: lags 1 and 2 of every signal.
DEFAULT_ORDERS = {"na": 2, "nb": 2, "nk": 1}

#: Checks of scikit-learn that a model with memory cannot pass, with the reason.
EXEMPTED_CHECKS = {
    "check_methods_sample_order_invariance": (
        "rows are samples over time: another order is another experiment"
    ),
    "check_methods_subset_invariance": (
        "a prediction depends on earlier samples, which a subset does not contain"
    ),
}


class Signals(NamedTuple):
    """Signals of all records, one record after the other.

    They are as the user gave them or, after `check_signals`, arrays.
    """

    inputs: Any  # (n, n_u), None without inputs
    outputs: Any  # (n,) or (n, m), None if they are not given
    lengths: tuple[int, ...] | None = None  # samples of each record; None: one record
    sampling_time: float | None = None  # s, None if it is not stated
    #: samples of the initialisation window of each record, None if the record states none
    windows: tuple[int | None, ...] = (None,)

    def cut(self, values: np.ndarray) -> list[np.ndarray]:
        """Split the values of all samples into one array per record."""
        if self.lengths is None:
            return [values]
        ends = np.cumsum(self.lengths)
        return np.split(values, ends[:-1])


class Run(NamedTuple):
    """Prediction of a measurement for all samples of a record."""

    mean: np.ndarray  # (n, m) output units
    std: np.ndarray  # (n, m) output units


def read_signals(u: Any, y: Any = None, groups: ArrayLike | None = None) -> Signals:
    """Return the signals of one record or of several.

    Parameters
    ----------
    u
        (n, n_u); None; a record with attributes u and y as `nonlinear_benchmarks` has them; or a
        list of arrays or of such records.
    y
        (n,) or (n, m). A list of arrays if u is a list, or if there are no inputs. None if u is a
        record or a list of records, which contain the outputs.
    groups
        (n,) labels that differ between records; the samples of a record must be contiguous.

    Raises
    ------
    ValueError
        If lists or records do not fit together, or a group is not contiguous.
    """
    if isinstance(u, InputOutput) or _is_list_of(u, InputOutput):
        return _read_records(u, y, groups)
    for values, name in ((u, "inputs"), (y, "outputs"), (groups, "groups")):
        check_unmasked(values, name)
    if _is_list_of(u, np.ndarray) or (u is None and _is_list_of(y, np.ndarray)):
        return _read_lists(u, y, groups)
    lengths = None if groups is None else _lengths_of_groups(groups)
    for values, name in ((u, "inputs"), (y, "outputs")):
        _check_index(values, name, lengths)
    return Signals(u, y, lengths)


def check_signals(
    estimator: BaseEstimator, given: Signals, *, n_inputs: int | None, min_samples: int
) -> Signals:
    """Return the signals as arrays that scikit-learn has checked.

    Inputs have shape (n, n_u), outputs have shape (n, m).

    Parameters
    ----------
    estimator
        The number and names of its inputs are set, or compared if `n_inputs` is known.
    given
        Signals as the user gave them.
    n_inputs
        Number of inputs, None if it is not known yet.
    min_samples
        Smallest allowed number of samples.

    Raises
    ------
    ValueError, TypeError
        If values are not finite numbers, there are too few samples, the inputs are not the known
        ones, or groups have another length.
    """
    u = given.inputs
    y = given.outputs
    options: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": min_samples}
    if u is None or n_inputs == 0:
        u, y = _check_without_inputs(u, y, n_inputs, options)
    elif y is None:
        u = validate_data(estimator, u, reset=n_inputs is None, **options)
    else:
        u, y = validate_data(
            estimator,
            u,
            y,
            reset=n_inputs is None,
            multi_output=True,
            y_numeric=True,
            **options,
        )
    n = len(u)
    if given.lengths is not None and sum(given.lengths) != n:
        raise UserError(
            f"groups: expected one label for each of the {n} samples, got {sum(given.lengths)}"
        )
    if y is not None:
        y = np.asarray(y, dtype=np.float64).reshape(n, -1)
    return given._replace(inputs=u, outputs=y)


def _check_without_inputs(
    u: Any, y: Any, n_inputs: int | None, options: dict[str, Any]
) -> tuple[np.ndarray, Any]:
    """Return inputs (n, 0) and checked outputs, for a model that has no inputs."""
    if n_inputs:
        raise UserError(f"expected {n_inputs} inputs (n, {n_inputs}), got None")
    if u is not None and np.shape(u)[1:] != (0,):
        raise UserError(f"expected no inputs, None or an array (n, 0), got shape {np.shape(u)}")
    if u is None and y is None:
        raise UserError(
            "a model without inputs needs the number of samples: give an array (n, 0) as inputs"
        )
    if y is None:
        return np.empty((len(u), 0)), None
    y = check_array(y, ensure_2d=False, input_name="y", **options)
    return np.empty((len(y), 0)), y


def common_sampling_time(*times: float | None) -> float | None:
    """Return the sampling time [s] that all known ones agree on; None if none is known.

    Raises
    ------
    ValueError
        If they differ.
    """
    known = [time for time in times if time is not None]
    if not known:
        return None
    if max(known) - min(known) > TIME_TOLERANCE * max(known):
        raise UserError(
            f"expected one sampling time, got {sorted(set(known))} s: resample the records, or "
            "use only records that have the same one"
        )
    return known[0]


def _is_list_of(values: Any, kind: type) -> bool:
    """Return whether this is a list of such objects; a list of rows of numbers is not."""
    if not isinstance(values, list | tuple) or len(values) == 0:
        return False
    return all(isinstance(value, kind) for value in values)


def _check_index(values: Any, name: str, lengths: Sequence[int] | None) -> None:
    """Raise UserError if the index of a table shows that its rows do not follow each other in time.

    Its steps must be equal within each record, whose lengths are given; None: there is one record.
    """
    if not isinstance(values, pd.DataFrame | pd.Series) or isinstance(values.index, pd.RangeIndex):
        return
    index = values.index
    if index.dtype.kind not in "iufmM":
        return
    steps = np.diff(index.to_numpy().astype(np.float64))
    is_within = np.ones(len(steps), dtype=bool)
    if lengths is not None and sum(lengths) == len(index):
        is_within[np.cumsum(lengths)[:-1] - 1] = False
    if not is_within.any():
        return
    step = float(np.median(steps[is_within]))
    is_jump = is_within & ~(np.abs(steps - step) <= MAX_JITTER * step)
    if is_jump.any():
        row = int(np.argmax(is_jump))
        raise UserError(
            f"{name}: expected rows that follow each other in time, the index goes from "
            f"{index[row]} to {index[row + 1]} at row {row + 1}: give a list with one array for "
            "each run, or groups; split with TimeSeriesSplit; or give arrays without an index"
        )


def _read_records(u: Any, y: Any, groups: ArrayLike | None) -> Signals:
    """Return the signals of a record, or of a list of records, that contain their outputs."""
    if y is not None or groups is not None:
        raise UserError(
            "records contain their outputs: leave y and groups out, or give record.u and record.y"
        )
    is_list = isinstance(u, list | tuple)
    records: Sequence[InputOutput] = u if is_list else [u]
    times: list[float | None] = []
    for record in records:
        check_unmasked(record.u, "inputs")
        check_unmasked(record.y, "outputs")
        if record.sampling_time is None:
            times.append(None)
        else:
            times.append(float(np.squeeze(record.sampling_time)))
    inputs = _stack([np.reshape(record.u, (len(record.u), -1)) for record in records], "inputs")
    outputs = _stack([np.asarray(record.y) for record in records], "outputs")
    return Signals(
        inputs=inputs,
        outputs=outputs,
        lengths=tuple(len(record.y) for record in records) if is_list else None,
        sampling_time=common_sampling_time(*times),
        windows=tuple(record.state_initialization_window_length for record in records),
    )


def _read_lists(u: Any, y: Any, groups: ArrayLike | None) -> Signals:
    """Return the signals of lists with one array per record."""
    if groups is not None:
        raise UserError("groups: a list of arrays already separates the records; leave groups out")
    lengths = [_count_samples(arrays) for arrays in (u, y) if arrays is not None]
    if len(set(lengths)) > 1:
        raise UserError(
            "expected as many outputs as inputs, record by record, "
            f"got records of {lengths} samples"
        )
    return Signals(
        inputs=None if u is None else _stack(list(u), "inputs"),
        outputs=None if y is None else _stack(list(y), "outputs"),
        lengths=lengths[0],
        windows=(None,) * len(lengths[0]),
    )


def _count_samples(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    """Return the number of samples of each array."""
    return tuple(len(np.atleast_1d(array)) for array in arrays)


def _stack(parts: list[np.ndarray], kind: str) -> np.ndarray:
    """Return the rows of all records in one array.

    Raises
    ------
    ValueError
        If the records do not have the same channels.
    """
    channels = {part.shape[1:] for part in parts}
    has_scalar = any(part.ndim == 0 for part in parts)
    if len(channels) > 1 or has_scalar:
        raise UserError(
            f"expected {kind} of the same channels in all records, "
            f"got {[part.shape for part in parts]}"
        )
    return np.concatenate(parts)


def _lengths_of_groups(groups: ArrayLike) -> tuple[int, ...]:
    """Return the number of samples of each group of equal labels (n,)."""
    labels = np.asarray(groups)
    if labels.ndim != 1:
        raise UserError(f"groups: expected one label for each sample, got shape {labels.shape}")
    is_start = np.r_[True, labels[1:] != labels[:-1]]
    starts = np.flatnonzero(is_start)
    if len(starts) > len(set(labels.tolist())):
        raise UserError(
            "groups: expected the samples of each record in one piece, in the order of time; "
            "sort them"
        )
    return tuple(np.diff(np.r_[starts, len(labels)]).tolist())


def choose_narx(estimator: BaseEstimator, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
    """Return the lags of the first output that the parameters of an estimator describe.

    The parameters are na, nb, nk, output_lags, input_lags and target.

    Raises
    ------
    ValueError, TypeError
        If a signal has both orders and lags, lags belong to an unknown signal, or `Orders` or
        `Narx` does not accept its arguments.
    """
    parameters = estimator.get_params(deep=False)
    for lags, order in (
        ("output_lags", "na"),
        ("input_lags", "nb"),
        ("input_lags", "nk"),
    ):
        if parameters[lags] is not None and parameters[order] is not None:
            raise UserError(
                f"{lags}={parameters[lags]!r} and {order}={parameters[order]!r} describe the same "
                "lags: leave one out"
            )
    chosen_orders: dict[str, Any] = {
        name: default if parameters[name] is None else parameters[name]
        for name, default in DEFAULT_ORDERS.items()
    }
    orders = Orders(**chosen_orders)
    output_lags: Mapping[str, Lags] = _lags_by_name(
        "output_lags", parameters["output_lags"], outputs
    )
    if not output_lags:
        output_lags = orders.output_lags(outputs)
    input_lags: Mapping[str, Lags] = _lags_by_name("input_lags", parameters["input_lags"], inputs)
    if not input_lags:
        input_lags = orders.input_lags(inputs)
    target = parameters["target"]
    if not target:
        has_output_lags = any(output_lags.values())
        target = "change" if has_output_lags else "value"
    used_input_lags = {name: lags for name, lags in input_lags.items() if lags}
    return Narx(output_lags, used_input_lags, outputs[0], predict=target)


def _lags_by_name(
    option: str, lags: Lags | Mapping[str, Lags] | None, signals: Sequence[str]
) -> dict[str, Lags]:
    """Return the lags of every signal; an empty dictionary if the option is left out."""
    if lags is None:
        return {}
    lags_of = dict(lags) if isinstance(lags, Mapping) else dict.fromkeys(signals, lags)
    unknown = [name for name in lags_of if name not in signals]
    if unknown:
        raise UserError(
            f"{option}: expected lags of {list(signals)}, got lags of unknown signals {unknown}"
        )
    return lags_of


@dataclass(kw_only=True, eq=False, repr=False)
class NarxGPRegressor(GPRegressor):
    """Nonlinear ARX model ``y[k] = f(past outputs, inputs)`` of a dynamic system.

    The function f is an online Gaussian process.

    X are the inputs u over time, y the outputs; every row is one sample later than the row before.
    Lags are given as numbers na, nb, nk, as in MATLAB (`sysid.Orders`), or as lists. Several
    outputs have one Gaussian process each over the same regressors. Several records are given as
    lists of arrays, as records of `nonlinear_benchmarks` (which contain u and y), or as one array
    with `groups`. A lag never reaches from one record into another.

    Parameters
    ----------
    na, nb, nk : int or sequence of int, optional
        Lags 1 to na of each output and nk to nk + nb - 1 of each input; the defaults are 2, 2
        and 1.
    output_lags, input_lags : int, sequence of int or mapping, optional
        Alternatives to na, and to nb and nk: 3 for lags 1 to 3, a list of lags for all signals, or
        lags by name.
    target : {"change", "value"}, optional
        Quantity that the Gaussian process predicts: y[k] - y[k-1] or y[k]; None: the change, or the
        value if no output has a lag.
    sampling_time : float, optional
        Sampling time of the records [s]; None: the one that they state, or else 1 sample.
    scoring_horizon : int, optional
        Samples ahead that `score` predicts; None: free run (simulation).
    propagation : Propagation, optional
        How uncertainty grows over several samples, around the fed-back mean; None:
        `sysid.Pathwise`.
    linear_part : LinearPart or str, optional
        Linear part with a long memory beside the Gaussian process, as in `sysid.Settings`. None:
        it is tried, and taken if it lowers the error on held-out samples. There is none if
        `standardise` is false.
    forgetting, gate, selection, standardise, random_state
        As for `OnlineGPRegressor`.
    budget, kernel, training, mean, insertion, acceptance, reduction, learning
        As for `OnlineGPRegressor`; with ``training.n_initial`` rows or fewer, all rows are used to
        train.

    Attributes
    ----------
    model_ : JointModel
        Can be saved, loaded, validated and exported.
    output_mean_ : ndarray (m,)
        Mean of each output over the samples of `fit`.
    n_features_in_, feature_names_in_
        As in scikit-learn, for the inputs u. Inputs without names are called ``u`` or ``u1``,
        ``u2``, ..., outputs ``y`` or ``y1``, ``y2``, ...

    Examples
    --------
    >>> u = np.sin(0.3 * np.arange(200))[:, None]
    >>> y = np.convolve(np.tanh(u[:, 0]), [0.0, 0.5, 0.3])[:200]
    >>> model = NarxGPRegressor(na=1, nb=2, nk=1, budget=30).fit(u[:150], y[:150])
    >>> bool(np.max(np.abs(model.simulate(u[150:], y[150:164]) - y[150:])) < 0.01)
    True
    """

    na: Order | None = None
    nb: Order | None = None
    nk: Order | None = None
    output_lags: Lags | Mapping[str, Lags] | None = None
    input_lags: Lags | Mapping[str, Lags] | None = None
    target: str | None = None
    sampling_time: float | None = None
    scoring_horizon: int | None = None
    propagation: Propagation | None = None
    linear_part: LinearPart | str | None = None

    @shows_progress("fit")
    @one_blas_thread
    def fit(self, X: Any, y: Any = None, groups: ArrayLike | None = None) -> Self:
        """Identify from inputs X (n, n_u) or None and outputs y (n,) or (n, m), or lists of them.

        Raises
        ------
        ValueError, TypeError
            If records are shorter than the lags, values are not finite, or lags contradict each
            other.
        """
        given = read_signals(X, y, groups)
        if given.outputs is None:
            raise UserError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        signals = check_signals(self, given, n_inputs=None, min_samples=MIN_BATCH_ROWS)
        self._shape = np.asarray(given.outputs).shape[1:]
        if given.inputs is None:
            self.n_features_in_ = 0
        numbered_inputs = numbered_names("u", self.n_features_in_)
        self._inputs = tuple(vars(self).get("feature_names_in_", numbered_inputs))
        numbered_outputs = numbered_names("y", signals.outputs.shape[1])
        outputs = [unused_name(name, self._inputs) for name in numbered_outputs]
        narx = choose_narx(self, outputs, self._inputs)
        self._sampling_time = common_sampling_time(given.sampling_time, self.sampling_time)
        records = self._records(signals, outputs, self._sampling_time)
        settings = self._settings(len(signals.outputs))
        if self.standardise and settings.gate is not None and narx.max_lag:
            screened = screen_records(records, outputs, self._inputs)
            if screened.n_found:
                warn_user(screened.describe())
                records = list(screened.records)
                narx = screened.for_rows(narx)
        limits = [TimeLimit.of(settings.training) for _ in outputs]
        if self.standardise:
            with limits[0].running():
                narx = choose_linear_part(records, narx, settings)
        elif settings.demands_linear_part:
            raise UserError(
                "linear_part=stable_spline: a linear part needs standardise=True, which scales all "
                "lags of a signal alike; take it, or another linear_part"
            )
        models = []
        for name, limit in zip(outputs, limits, strict=True):
            models.append(self._identify(replace(narx, target=name), records, limit))
            for note in limit.describe("training.seconds"):
                warn_user(f"{name}: {note}")
        if models[0].gp.unreached_memory:
            warn_user(models[0].gp.unreached_memory)
        self.model_ = JointModel(tuple(models))
        self.output_mean_ = signals.outputs.mean(axis=0)
        return self

    @shows_progress("simulate")
    def simulate(self, u: Any, y_init: Any = None, return_std: bool = False) -> Any:
        """Return the outputs (n,) or (n, m) of a free run: a simulation from the first outputs.

        Parameters
        ----------
        u
            Inputs (n, n_u), a list of them, or records, of whose outputs only the first are used;
            (n, 0) without inputs.
        y_init
            First w outputs (w,) or (w, m), which the result repeats. Lags that reach before them
            take the first of them. A list of arrays for a list of inputs. None: the outputs of the
            initialisation window that a record states.
        return_std
            Whether to return also the standard deviation of a measurement, which is 0 for the given
            outputs.
        """
        check_is_fitted(self)
        given = read_signals(u)
        only_inputs = given._replace(outputs=None)
        signals = check_signals(self, only_inputs, n_inputs=self.n_features_in_, min_samples=1)
        common_sampling_time(given.sampling_time, self._sampling_time)
        first_outputs = self._first_outputs(given, y_init)
        propagation = self._propagation(return_std)
        runs = [
            self._run_freely(inputs, first, propagation)
            for inputs, first in zip(self._used_inputs(signals), first_outputs, strict=True)
        ]
        return self._shape_results(given, runs, return_std)

    @shows_progress("predict")
    def predict(
        self,
        X: Any,
        y: Any = None,
        *,
        horizon: float | None = None,
        return_std: bool = False,
    ) -> Any:
        """Predict outputs (n,) or (n, m) at the inputs X.

        Parameters
        ----------
        X
            (n, n_u), a list of them, or records, which contain y.
        y
            Measured outputs. None, as scikit-learn calls it: a free run over all samples. Before
            it, the outputs were at their mean in the estimation data and the inputs at their first
            values.
        horizon
            Samples ahead, >= 1: y[k] is predicted from outputs up to k - horizon; None: 1. Samples
            that lack a measured lag are nan. `math.inf`: a free run from the first outputs, as many
            as the largest lag.
        return_std
            Whether to return also the standard deviation of a measurement.
        """
        check_is_fitted(self)
        given = read_signals(X, y)
        if given.outputs is not None:
            n_ahead: int | None
            if horizon is None:
                n_ahead = 1
            elif horizon == inf:
                n_ahead = None  # free run
            else:
                n_ahead = horizon  # type: ignore[assignment]
            runs = self._run_ahead(given, n_ahead, return_std)
            return self._shape_results(given, runs, return_std)
        if horizon is not None:
            raise UserError(
                f"predict(horizon={horizon}): expected measured outputs y to start from, got none"
            )
        signals = check_signals(self, given, n_inputs=self.n_features_in_, min_samples=1)
        propagation = self._propagation(return_std)
        outputs_before = self.output_mean_[None]
        longer_runs = [
            self._run_freely(np.concatenate([inputs[:1], inputs]), outputs_before, propagation)
            for inputs in self._used_inputs(signals)
        ]
        runs = [Run(mean=run.mean[1:], std=run.std[1:]) for run in longer_runs]
        return self._shape_results(given, runs, return_std)

    def ahead(self, inputs: Any, u: Any, y: Any = None) -> pd.DataFrame:
        """Predict the coming samples of a plant from its last ones; see `sysid.look_ahead`.

        Parameters
        ----------
        inputs
            Inputs (n, n_u) of the coming samples; without inputs the number n.
        u, y
            Inputs and outputs of the last samples, the newest last, at least as many as the longest
            lag; or a record, which contains y. Without inputs u is None.
        """
        check_is_fitted(self)
        given = read_signals(u, y)
        signals = check_signals(self, given, n_inputs=self.n_features_in_, min_samples=1)
        if given.outputs is None or given.lengths is not None:
            raise UserError("ahead: expected the last samples of one record, inputs and outputs")
        common_sampling_time(given.sampling_time, self._sampling_time)
        (past_inputs,) = self._used_inputs(signals)
        coming = read_coming_inputs(inputs, self._inputs)
        used: Any = coming[:, [self._inputs.index(name) for name in self.model_.input_names]]
        if not self.model_.input_names:
            used = len(coming)
        return look_ahead(
            self.model_, used, signals.outputs, past_inputs, propagation=self.propagation
        )

    @shows_progress("score")
    def score(self, X: Any, y: Any = None) -> float:
        """Return R2 of predictions `scoring_horizon` samples ahead, averaged over the outputs.

        By default it is that of a free run (simulation). Samples at the start of a record that lack
        a measured lag do not count. The score is -inf if the free run diverged.
        """
        check_is_fitted(self)
        given = read_signals(X, y)
        if given.outputs is None:
            raise UserError("score: expected measured outputs y, got none")
        means = [run.mean for run in self._run_ahead(given, self.scoring_horizon, False)]
        n_outputs = means[0].shape[1]
        outputs = np.asarray(given.outputs, dtype=np.float64).reshape(-1, n_outputs)
        start = max(self.model_.models[0].narx.max_lag, self.scoring_horizon or 0)
        measured = np.concatenate([part[start:] for part in given.cut(outputs)])
        predicted = np.concatenate([mean[start:] for mean in means])
        r2_of_outputs = [
            validate(measured_output, predicted_output, window=start).r2
            for measured_output, predicted_output in zip(measured.T, predicted.T, strict=True)
        ]
        return float(np.mean(r2_of_outputs))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        # Some checks of scikit-learn use tables whose rows are not a sequence over time.
        tags.regressor_tags.poor_score = True
        return tags

    def _settings(self, n_samples: int | None = None, **changes: Any) -> Settings:
        if self.linear_part is not None:
            changes["linear_part"] = self.linear_part
        return super()._settings(n_samples, **changes)

    def _identify(self, narx: Narx, records: list[xr.Dataset], time_limit: TimeLimit) -> Model:
        """Return the model of one output, identified from all records."""
        rows = narx.dataset(records)
        n = rows.sizes["sample"]
        if n < MIN_BATCH_ROWS:
            raise UserError(
                f"expected at least {MIN_BATCH_ROWS} samples after the largest lag {narx.max_lag}, "
                f"got {n}"
            )
        x = rows["regressor"].values
        t = rows["target"].values
        if self.standardise:
            with time_limit.running():
                settings = self._settings(n).in_time().for_linear_lags(narx)
                start = settings.know(narx, x, t)
            identification = Identification(narx, settings, start=start, time_limit=time_limit)
        else:
            identification = self._identification(narx, n)
        identification.observe_many(x, t, follows=consecutive(rows))
        identification.finish()
        if self.standardise:
            identification.calibrate(rows)
        origin = replace(Origin.of(rows), sampling_time=self._sampling_time)
        return replace(identification.require_model(), origin=origin)

    def _records(
        self, signals: Signals, outputs: Sequence[str], sampling_time: float | None
    ) -> list[xr.Dataset]:
        """Return one data set per record; without a sampling time [s], time counts samples."""
        names = (*self._inputs, *outputs)
        inputs_of_records = signals.cut(signals.inputs)
        outputs_of_records = signals.cut(signals.outputs)
        records = []
        for i, (u, y) in enumerate(zip(inputs_of_records, outputs_of_records, strict=True)):
            columns = dict(zip(names, (*u.T, *y.T), strict=True))
            record = make_record(columns, name=str(i), sampling_time=sampling_time or 1.0)
            records.append(record)
        return records

    def _first_outputs(self, given: Signals, y_init: Any) -> list[np.ndarray]:
        """Return the first outputs (w, m) of every record.

        They are `y_init`, or else those of the initialisation windows that the records state.
        """
        n_records = len(given.windows)
        n_outputs = len(self.model_.models)
        if y_init is not None:
            first_outputs = [y_init] if given.lengths is None else list(y_init)
        elif given.outputs is None or not all(given.windows):
            raise UserError(
                "simulate: expected the first outputs y_init (w, m), or records that state an "
                "initialisation window"
            )
        else:
            outputs = given.cut(np.asarray(given.outputs))
            first_outputs = [y[:window] for y, window in zip(outputs, given.windows, strict=True)]
        if len(first_outputs) != n_records:
            raise UserError(
                f"simulate: expected first outputs of each of {n_records} records, "
                f"got {len(first_outputs)}"
            )
        checked = []
        for y in first_outputs:
            if n_outputs == 1 and np.ndim(y) == 1:
                y = np.reshape(y, (-1, 1))
            checked.append(matrix(y, n_outputs, "y_init"))
        return checked

    def _run_freely(self, inputs: np.ndarray, first: np.ndarray, propagation: Propagation) -> Run:
        """Return the free run of inputs (n, n_u) that begins with the first outputs (w, m)."""
        run = free_run(self.model_, inputs, first, propagation=propagation)
        if run.left is not None:
            _warn_of_divergence(len(first) + run.left, run.value)
        warn_of_held(run.n_held)
        std = np.sqrt(run.variance + self.model_.noise_variance)
        return Run(
            mean=np.concatenate([first, run.mean]),
            std=np.concatenate([np.zeros(first.shape), std]),
        )

    def _run_ahead(self, given: Signals, horizon: int | None, with_std: bool) -> list[Run]:
        """Return predictions a horizon ahead, or a free run if the horizon is None.

        Samples that lack a measured lag are nan.
        """
        signals = check_signals(self, given, n_inputs=self.n_features_in_, min_samples=1)
        names = self.model_.output_names
        n_outputs = signals.outputs.shape[1]
        if n_outputs != len(names):
            raise UserError(f"expected {len(names)} outputs {list(names)}, got {n_outputs}")
        sampling_time = common_sampling_time(given.sampling_time, self._sampling_time)
        records = self._records(signals, names, sampling_time)
        forecasts = forecast(
            self.model_,
            records,
            horizon=horizon,
            window=self.model_.models[0].narx.max_lag,
            propagation=self._propagation(with_std),
        )
        warn_of_held(forecasts.n_held)
        runs = []
        for record, predicted in zip(records, forecasts.records, strict=True):
            shape = (record.sizes["time"], n_outputs)
            mean = np.full(shape, np.nan)
            std = np.full(shape, np.nan)
            mean[predicted.sample] = predicted.mean
            std[predicted.sample] = np.sqrt(predicted.variance + forecasts.noise_variance)
            if predicted.diverged is not None:
                _warn_of_divergence(predicted.diverged.sample, predicted.diverged.value)
            runs.append(Run(mean, std))
        return runs

    def _propagation(self, with_std: bool) -> Propagation:
        """Return the propagation of uncertainty, `MeanOnly` without standard deviations."""
        if not with_std:
            return MeanOnly()
        return AboutPath(self.propagation or Pathwise())

    def _used_inputs(self, signals: Signals) -> list[np.ndarray]:
        """Return the inputs that the model uses, in its order, record by record.

        Inputs without lags are left out.
        """
        columns = [self._inputs.index(name) for name in self.model_.input_names]
        return signals.cut(signals.inputs[:, columns])

    def _shape_results(self, given: Signals, runs: list[Run], return_std: bool) -> Any:
        """Return means, or means and standard deviations, in the form of the given signals.

        This is an array for an array, and a list with one array per record for a list.
        """
        mean = self._shape_as_given(given, [run.mean for run in runs])
        if not return_std:
            return mean
        return mean, self._shape_as_given(given, [run.std for run in runs])

    def _shape_as_given(self, given: Signals, parts: list[np.ndarray]) -> Any:
        """Return the values (n, m) of all records in the form of the given signals."""
        shaped = [part.reshape(len(part), *self._shape) for part in parts]
        return shaped[0] if given.lengths is None else shaped


def _warn_of_divergence(sample: int, value: object) -> None:
    """Warn that a free run diverged."""
    warn_user(f"the free run diverged at sample {sample} with {value}; from there on it is nan")
