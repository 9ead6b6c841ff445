"""Estimator of scikit-learn for dynamic systems: inputs and outputs over time, one record or
several.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from sysid.arrays import matrix
from sysid.beside import one_blas_thread
from sysid.data.nonlinear_benchmarks import InputOutput
from sysid.data.source import make_record
from sysid.errors import UserError
from sysid.estimators.online_gp import LEAST_SAMPLES, GPRegressor, distinct
from sysid.model.model import JointModel, Model, Origin
from sysid.narx.lags import Lags, Narx, Order, Orders
from sysid.narx.record import TIME_TOLERANCE
from sysid.simulation.forecast import forecast, free_run, warn_of_held
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly, Propagation
from sysid.simulation.validation import validate


class Signals(NamedTuple):
    """Records, one behind the other: as they are given, or after `check_signals` as arrays."""

    inputs: Any  # (n, n_u), None without inputs
    outputs: Any  # (n,) or (n, m), None if they are not given
    lengths: tuple[int, ...] | None = None  # samples of each record; None: one record
    sampling_time: float | None = None  # s, None where it is not stated
    windows: tuple[int | None, ...] = (
        None,
    )  # samples of each record that initialise a model, where it states them

    def cut(self, values: np.ndarray) -> list[np.ndarray]:
        """Values of all samples, record by record."""
        return [values] if self.lengths is None else np.split(values, np.cumsum(self.lengths)[:-1])


def read_signals(u: Any, y: Any = None, groups: ArrayLike | None = None) -> Signals:
    """Signals of one record or of several.

    Parameters
    ----------
    u
        (n, n_u); None; a record with attributes u and y as `nonlinear_benchmarks` has them; or a
        list of arrays or of such records.
    y
        (n,) or (n, m); a list of arrays if u is one, or if there are no inputs; None with records,
        which hold it.
    groups
        (n,) labels that differ between records, each record in one piece.

    Raises
    ------
    ValueError
        Lists or records that do not fit together, groups in several pieces.
    """
    if isinstance(u, InputOutput) or _are(u, InputOutput):
        return _read_records(u, y, groups)
    if _are(u, np.ndarray) or (u is None and _are(y, np.ndarray)):
        return _read_lists(u, y, groups)
    return Signals(u, y, None if groups is None else _lengths(groups))


def check_signals(
    estimator: BaseEstimator, given: Signals, *, n_inputs: int | None, least: int
) -> Signals:
    """Signals as scikit-learn checks them: inputs (n, n_u), outputs (n, m).

    Parameters
    ----------
    estimator
        Its number and names of inputs are set, or compared with where `n_inputs` is known.
    given
    n_inputs
        Known number of inputs.
    least
        Samples at least.

    Raises
    ------
    ValueError, TypeError
        Values that are not finite numbers, too few samples, other inputs than known, groups of
        another length.
    """
    u = given.inputs
    y = given.outputs
    common: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": least}
    if u is None or n_inputs == 0:
        if n_inputs:
            raise UserError(f"expected {n_inputs} inputs (n, {n_inputs}), got None")
        if u is not None and np.shape(u)[1:] != (0,):
            raise UserError(f"expected no inputs, None or an array (n, 0), got shape {np.shape(u)}")
        if u is None and y is None:
            raise UserError(
                "a model without inputs needs to know how many samples: give an array (n, 0)"
            )
        y = None if y is None else check_array(y, ensure_2d=False, input_name="y", **common)
        u = np.empty((len(u if y is None else y), 0))
    elif y is None:
        u = validate_data(estimator, u, reset=n_inputs is None, **common)
    else:
        u, y = validate_data(
            estimator,
            u,
            y,
            reset=n_inputs is None,
            multi_output=True,
            y_numeric=True,
            **common,
        )
    if given.lengths is not None and sum(given.lengths) != len(u):
        raise UserError(
            f"groups: expected one label for each of the {len(u)} samples, got {sum(given.lengths)}"
        )
    return given._replace(
        inputs=u,
        outputs=None if y is None else np.asarray(y, dtype=np.float64).reshape(len(u), -1),
    )


def agree(*times: float | None) -> float | None:
    """Return the one sampling time [s] of all that are known; None if none is.

    Raises
    ------
    ValueError
        Different ones.
    """
    known = [time for time in times if time is not None]
    if known and max(known) - min(known) > TIME_TOLERANCE * max(known):
        raise UserError(
            f"expected one sampling time, got {sorted(set(known))} s: resample the records, or fit to records like them"
        )
    return known[0] if known else None


def _are(values: Any, kind: type) -> bool:
    """Whether this is a list of such things; a list of rows of numbers is none."""
    return (
        isinstance(values, list | tuple)
        and len(values) > 0
        and all(isinstance(value, kind) for value in values)
    )


def _read_records(u: Any, y: Any, groups: ArrayLike | None) -> Signals:
    if y is not None or groups is not None:
        raise UserError(
            "records hold their outputs themselves: leave y and groups out, or give record.u and record.y"
        )
    records: Sequence[InputOutput] = u if isinstance(u, list | tuple) else [u]
    times = [
        None if r.sampling_time is None else float(np.squeeze(r.sampling_time)) for r in records
    ]
    inputs = _stack([np.reshape(r.u, (len(r.u), -1)) for r in records], "inputs")
    outputs = _stack([np.asarray(r.y) for r in records], "outputs")
    lengths = tuple(len(r.y) for r in records) if isinstance(u, list | tuple) else None
    windows = tuple(r.state_initialization_window_length for r in records)
    return Signals(inputs, outputs, lengths, agree(*times), windows)


def _read_lists(u: Any, y: Any, groups: ArrayLike | None) -> Signals:
    if groups is not None:
        raise UserError("groups: a list of records needs none; leave groups out")
    lengths = [tuple(len(np.atleast_1d(a)) for a in given) for given in (u, y) if given is not None]
    if len(set(lengths)) > 1:
        raise UserError(
            f"expected as many outputs as inputs, record by record, got records of {lengths} samples"
        )
    inputs, outputs = (
        None if given is None else _stack(list(given), kind)
        for given, kind in ((u, "inputs"), (y, "outputs"))
    )
    return Signals(inputs, outputs, lengths[0], windows=(None,) * len(lengths[0]))


def _stack(parts: list[np.ndarray], kind: str) -> np.ndarray:
    if len({part.shape[1:] for part in parts}) > 1 or not all(part.ndim for part in parts):
        raise UserError(
            f"expected {kind} of the same channels in all records, got {[part.shape for part in parts]}"
        )
    return np.concatenate(parts)


def _lengths(groups: ArrayLike) -> tuple[int, ...]:
    labels = np.asarray(groups)
    if labels.ndim != 1:
        raise UserError(f"groups: expected one label for each sample, got shape {labels.shape}")
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    if len(starts) > len(set(labels.tolist())):
        raise UserError(
            "groups: expected the samples of each record in one piece, in the order of time; sort them"
        )
    return tuple(np.diff(np.r_[starts, len(labels)]).tolist())


DEFAULT = {"na": 2, "nb": 2, "nk": 1}


def choose_narx(estimator: BaseEstimator, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
    """Lags of the first output by the parameters na, nb, nk, output_lags, input_lags and target of
    an estimator.

    Raises
    ------
    ValueError, TypeError
        Both orders and lags of a signal, lags of another signal, or what `Orders` and `Narx`
        refuse.
    """
    given = estimator.get_params(deep=False)
    for lags, order in (
        ("output_lags", "na"),
        ("input_lags", "nb"),
        ("input_lags", "nk"),
    ):
        if given[lags] is not None and given[order] is not None:
            raise UserError(
                f"{lags}={given[lags]!r} and {order}={given[order]!r} say the same twice: leave one out"
            )
    na, nb, nk = (
        default if given[name] is None else given[name] for name, default in DEFAULT.items()
    )
    orders = Orders(na, nb, nk)
    past = _by_name("output_lags", given["output_lags"], outputs) or orders.output_lags(outputs)
    applied = _by_name("input_lags", given["input_lags"], inputs) or orders.input_lags(inputs)
    target = given["target"] or ("change" if any(past.values()) else "value")
    return Narx(
        past,
        {name: lags for name, lags in applied.items() if lags},
        outputs[0],
        predict=target,  # type: ignore[arg-type]
    )


def _by_name(
    option: str, lags: Lags | Mapping[str, Lags] | None, signals: Sequence[str]
) -> dict[str, Lags]:
    """Lags of every signal; none if the option is left out."""
    if lags is None:
        return {}
    found = dict(lags) if isinstance(lags, Mapping) else dict.fromkeys(signals, lags)
    if unknown := [name for name in found if name not in signals]:
        raise UserError(f"{option}: expected lags of {list(signals)}, got some of {unknown}")
    return found


#: checks of scikit-learn that no model with a memory can pass, with the reason
EXEMPTED_CHECKS = {
    "check_methods_sample_order_invariance": "rows are samples over time: in another order, another experiment",
    "check_methods_subset_invariance": "a prediction depends on the samples before, which a part does not have",
}


Run = tuple[
    np.ndarray, np.ndarray
]  # mean and std of a measurement of all samples of a record, (n, m) output units


@dataclass(kw_only=True, eq=False, repr=False)
class NarxGPRegressor(GPRegressor):
    """Nonlinear ARX model of a dynamic system, ``y[k] = f(past outputs, inputs)``, f an online
    Gaussian process.

    X are the inputs u over time, y the outputs; every row is one sample later than the row before.
    Lags are given as numbers, na, nb, nk as in MATLAB (`sysid.Orders`), or as lists. Several
    outputs have one Gaussian process each over the same regressors. Several records are given as
    lists of arrays, as records of `nonlinear_benchmarks` (which hold u and y), or told apart by
    `groups`; no lag reaches from one into another.

    Parameters
    ----------
    na, nb, nk : int or sequence of int, optional
        Lags 1 to na of each output and nk to nk + nb - 1 of each input; 2, 2 and 1 where nothing
        else is said.
    output_lags, input_lags : int, sequence of int or mapping, optional
        Instead of na, and of nb and nk: 3 for lags 1 to 3, a list of lags for all signals, or lags
        by name.
    target : {"change", "value"}, optional
        What the Gaussian process predicts: y[k] - y[k-1] or y[k]; None: the value if no output has
        a lag.
    sampling_time : float, optional
        Of the records [s]; None: what they state, or 1, samples.
    scoring_horizon : int, optional
        Samples ahead that `score` predicts; None: free run.
    propagation : Propagation, optional
        How uncertainty grows over several samples, about the fed-back mean; None: `sysid.Pathwise`.
    forgetting, gate, selection, standardise, random_state
        As for `OnlineGPRegressor`.
    budget, kernel, training, mean, insertion, acceptance, reduction, learning
        As for `OnlineGPRegressor`; with ``training.n_initial`` rows or fewer, all of them train.

    Attributes
    ----------
    model_ : JointModel
        Can be saved, loaded, validated and exported.
    output_mean_ : ndarray (m,)
        Mean of the outputs it was fitted to.
    n_features_in_, feature_names_in_
        As in scikit-learn: of the inputs u. Inputs without names are called ``u`` or ``u1``,
        ``u2``, ..., outputs ``y`` or ``y1``, ``y2``, ...

    Examples
    --------
    >>> u = np.sin(0.3 * np.arange(200))[:, None]
    >>> y = np.convolve(np.tanh(u[:, 0]), [0.0, 0.5, 0.3])[:200]
    >>> model = NarxGPRegressor(na=1, nb=2, nk=1, budget=30).fit(u[:150], y[:150])
    >>> bool(np.max(np.abs(model.simulate(u[150:], y[150:152]) - y[150:])) < 0.01)
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

    @one_blas_thread
    def fit(self, X: Any, y: Any = None, groups: ArrayLike | None = None) -> Self:
        """Identify from inputs X (n, n_u) or None and outputs y (n,) or (n, m), or lists of them.

        Raises
        ------
        ValueError, TypeError
            Records that are shorter than the lags, values that are not finite, lags that contradict
            each other.
        """
        given = read_signals(X, y, groups)
        if given.outputs is None:
            raise UserError(
                f"{type(self).__name__} requires y to be passed, but the target y is None"
            )
        signals = check_signals(self, given, n_inputs=None, least=LEAST_SAMPLES)
        self._shape = np.asarray(given.outputs).shape[1:]
        if given.inputs is None:
            self.n_features_in_ = 0
        self._inputs = tuple(vars(self).get("feature_names_in_", _number("u", self.n_features_in_)))
        outputs = [distinct(name, self._inputs) for name in _number("y", signals.outputs.shape[1])]
        narx = choose_narx(self, outputs, self._inputs)
        self._sampling_time = agree(given.sampling_time, self.sampling_time)
        records = self._records(signals, outputs, self._sampling_time)
        self.model_ = JointModel(
            tuple(self._identify(replace(narx, target=name), records) for name in outputs)
        )
        self.output_mean_ = signals.outputs.mean(axis=0)
        return self

    def simulate(self, u: Any, y_init: Any = None, return_std: bool = False) -> Any:
        """Free run: outputs (n,) or (n, m) from the inputs and the first outputs.

        Parameters
        ----------
        u
            (n, n_u), a list of them, or records, whose outputs after the first are not looked at;
            (n, 0) without inputs.
        y_init
            First w outputs (w,) or (w, m), returned as they are; lags that reach before them hold
            the first. A list of them for a list of inputs. None: those of the initialisation window
            that a record states.
        return_std
            Whether to return also the standard deviation of a measurement, 0 for the outputs given.
        """
        check_is_fitted(self)
        given = read_signals(u)
        signals = check_signals(
            self, given._replace(outputs=None), n_inputs=self.n_features_in_, least=1
        )
        agree(given.sampling_time, self._sampling_time)
        first = self._first_outputs(given, y_init)
        rule = self._propagation(return_std)
        runs = [
            self._run_freely(one, y, rule)
            for one, y in zip(self._used_inputs(signals), first, strict=True)
        ]
        return self._shape_results(given, runs, return_std)

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
            (n, n_u), a list of them, or records, which hold y.
        y
            Measured outputs. None, as scikit-learn calls it: a free run over all samples, before
            which the outputs were at their mean in estimation and the inputs at their first values.
        horizon
            Samples ahead, >= 1: y[k] from outputs up to k - horizon; None: 1. Samples that lack a
            measured lag are nan. `math.inf`: a free run from the first outputs, as many as the
            largest lag.
        return_std
            Whether to return also the standard deviation of a measurement.
        """
        check_is_fitted(self)
        given = read_signals(X, y)
        if given.outputs is not None:
            ahead = 1 if horizon is None else None if horizon == inf else horizon
            return self._shape_results(given, self._run_ahead(given, ahead, return_std), return_std)  # type: ignore[arg-type]
        if horizon is not None:
            raise UserError(
                f"predict(horizon={horizon}): expected measured outputs y to start from, got none"
            )
        signals = check_signals(self, given, n_inputs=self.n_features_in_, least=1)
        rule = self._propagation(return_std)
        before = self.output_mean_[None]
        runs = [
            self._run_freely(np.concatenate([one[:1], one]), before, rule)
            for one in self._used_inputs(signals)
        ]
        return self._shape_results(given, [(mean[1:], std[1:]) for mean, std in runs], return_std)

    def score(self, X: Any, y: Any = None) -> float:
        """R2 of predictions `scoring_horizon` samples ahead, by default in free run; averaged over
        the outputs.

        The samples at the start of a record that lack a measured lag do not count; -inf after a
        divergence.
        """
        check_is_fitted(self)
        given = read_signals(X, y)
        if given.outputs is None:
            raise UserError("score: expected measured outputs y, got none")
        means = [mean for mean, _ in self._run_ahead(given, self.scoring_horizon, False)]
        start = max(self.model_.models[0].narx.max_lag, self.scoring_horizon or 0)
        measured = given.cut(
            np.asarray(given.outputs, dtype=np.float64).reshape(-1, means[0].shape[1])
        )
        columns = (
            np.concatenate([part[start:] for part in parts]).T for parts in (measured, means)
        )
        return float(
            np.mean([validate(y, mean, window=start).r2 for y, mean in zip(*columns, strict=True)])
        )

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on tables, whose rows know nothing of each other
        return tags

    def _identify(self, narx: Narx, records: list[xr.Dataset]) -> Model:
        rows = narx.dataset(records)
        n = rows.sizes["sample"]
        if n < LEAST_SAMPLES:
            raise UserError(
                f"expected at least {LEAST_SAMPLES} samples after the largest lag {narx.max_lag}, got {n}"
            )
        identification = self._identification(narx, n)
        x = rows["regressor"].values
        t = rows["target"].values
        settings = identification.settings
        if self.standardise:
            identification.start = settings.training.know(
                x, t, mean=settings.mean, seed=settings.seed
            )
        record = rows["record"].values
        identification.observe_many(x, t, follows=np.r_[False, record[1:] == record[:-1]])
        identification.finish()
        if self.standardise:
            identification.calibrate(rows)
        return replace(
            identification.require_model(),
            origin=replace(Origin.of(rows), sampling_time=self._sampling_time),
        )

    def _records(
        self, signals: Signals, outputs: Sequence[str], sampling_time: float | None
    ) -> list[xr.Dataset]:
        """Make data sets of checked records; without a sampling time [s], time counts samples."""
        names = (*self._inputs, *outputs)
        time = sampling_time or 1.0
        pairs = zip(signals.cut(signals.inputs), signals.cut(signals.outputs), strict=True)
        columns = [dict(zip(names, (*u.T, *y.T), strict=True)) for u, y in pairs]
        return [make_record(one, name=str(i), sampling_time=time) for i, one in enumerate(columns)]

    def _first_outputs(self, given: Signals, y_init: Any) -> list[np.ndarray]:
        """First outputs (w, m) of every record: `y_init`, or those of the windows that the records
        state.
        """
        n = len(given.windows)
        m = len(self.model_.models)
        if y_init is not None:
            first = [y_init] if given.lengths is None else list(y_init)
        elif given.outputs is None or not all(given.windows):
            raise UserError(
                "simulate: expected the first outputs y_init (w, m), or records that state an initialisation window"
            )
        else:
            first = [
                y[:window]
                for y, window in zip(
                    given.cut(np.asarray(given.outputs)), given.windows, strict=True
                )
            ]
        if len(first) != n:
            raise UserError(
                f"simulate: expected first outputs of each of {n} records, got {len(first)}"
            )
        return [
            matrix(np.reshape(y, (-1, 1)) if np.ndim(y) == m == 1 else y, m, "y_init")
            for y in first
        ]

    def _run_freely(self, inputs: np.ndarray, first: np.ndarray, rule: Propagation) -> Run:
        """Free run of the model's inputs (n, n_u) from the first outputs (w, m), which it begins
        with.
        """
        run = free_run(self.model_, inputs, first, propagation=rule)
        if run.left is not None:
            _warn_of_divergence(len(first) + run.left, run.value)
        warn_of_held(run.n_held)
        std = np.sqrt(run.variance + self.model_.noise_variance)
        return np.concatenate([first, run.mean]), np.concatenate([np.zeros(first.shape), std])

    def _run_ahead(self, given: Signals, horizon: int | None, with_std: bool) -> list[Run]:
        """Predictions a horizon ahead, without one in free run; nan for samples that lack a
        measured lag.
        """
        signals = check_signals(self, given, n_inputs=self.n_features_in_, least=1)
        outputs = self.model_.output_names
        if (got := signals.outputs.shape[1]) != len(outputs):
            raise UserError(f"expected {len(outputs)} outputs {list(outputs)}, got {got}")
        records = self._records(signals, outputs, agree(given.sampling_time, self._sampling_time))
        # samples that lack a lag
        rule = self._propagation(with_std)
        window = self.model_.models[0].narx.max_lag
        found = forecast(self.model_, records, horizon=horizon, window=window, propagation=rule)
        warn_of_held(found.n_held)
        runs = []
        for record, one in zip(records, found.records, strict=True):
            mean, std = np.full((2, record.sizes["time"], len(outputs)), np.nan)
            mean[one.sample], std[one.sample] = (
                one.mean,
                np.sqrt(one.variance + found.noise_variance),
            )
            if one.diverged is not None:
                _warn_of_divergence(one.diverged.sample, one.diverged.value)
            runs.append((mean, std))
        return runs

    def _propagation(self, with_std: bool) -> Propagation:
        return AboutPath(self.propagation or Pathwise()) if with_std else MeanOnly()

    def _used_inputs(self, signals: Signals) -> list[np.ndarray]:
        """Return the inputs that the model uses, in its order, record by record.

        An input without lags is none of them.
        """
        return signals.cut(
            signals.inputs[:, [self._inputs.index(name) for name in self.model_.input_names]]
        )

    def _shape_results(self, given: Signals, runs: list[Run], return_std: bool) -> Any:
        """Means, or means and standard deviations, as the signals were given: an array, or one for
        each record.
        """
        parts = [
            [part.reshape(len(part), *self._shape) for part in column]
            for column in zip(*runs, strict=True)
        ]
        results = [part[0] if given.lengths is None else part for part in parts]
        return tuple(results) if return_std else results[0]


def _warn_of_divergence(sample: int, value: object) -> None:
    warnings.warn(
        f"the free run diverged at sample {sample} with {value}; from there on it is nan",
        stacklevel=4,
    )


def _number(letter: str, n: int) -> list[str]:
    """Names of n signals.

    >>> _number("y", 1), _number("u", 2)
    (['y'], ['u1', 'u2'])
    """
    return [letter] if n == 1 else [f"{letter}{i + 1}" for i in range(n)]
