"""Inputs and outputs as they are given to an estimator: one record or several, arrays or records of a package."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data

from sysid.data.exchange import InputOutput
from sysid.record import TIME_TOLERANCE


class Signals(NamedTuple):
    """Records behind each other, as they were given."""

    inputs: Any  # (n, n_u), None without inputs
    outputs: Any  # (n,) or (n, m), None if they are not given
    lengths: tuple[int, ...] | None = None  # samples of each record; None: one record
    sampling_time: float | None = None  # s, None where it is not stated
    windows: tuple[int | None, ...] = (None,)  # samples of each record that initialise a model, where it states them

    def joined(self, parts: list[np.ndarray]) -> Any:
        """Results as the signals were given: one array, or a list of one for each record."""
        return parts[0] if self.lengths is None else parts

    def cut(self, values: np.ndarray) -> list[np.ndarray]:
        """Values of all samples, record by record."""
        return [values] if self.lengths is None else np.split(values, np.cumsum(self.lengths)[:-1])


class Checked(NamedTuple):
    """Records, finite and of the right number of channels."""

    inputs: list[np.ndarray]  # (n, n_u) each
    outputs: list[np.ndarray] | None  # (n, m) each
    shape: tuple[int, ...]  # of an output: () or (m,)


def read_signals(u: Any, y: Any = None, groups: ArrayLike | None = None) -> Signals:
    """Signals of one record or of several.

    Parameters
    ----------
    u
        (n, n_u); None; a record with attributes u and y as `nonlinear_benchmarks` has them; or a list of arrays or
        of such records.
    y
        (n,) or (n, m); a list of arrays if u is one, or if there are no inputs; None with records, which hold it.
    groups
        (n,) labels that differ between records, each record in one piece.

    Raises
    ------
    ValueError
        Lists or records that do not fit together, groups of another length or in several pieces.
    """
    if isinstance(u, InputOutput) or _are(u, InputOutput):
        return _of_records(u, y, groups)
    if _are(u, np.ndarray) or (u is None and _are(y, np.ndarray)):
        return _of_lists(u, y, groups)
    return Signals(u, y, None if groups is None else _lengths(groups, y))


def checked_signals(estimator: BaseEstimator, signals: Signals, *, n_inputs: int | None, least: int) -> Checked:
    """Signals as scikit-learn checks them.

    Parameters
    ----------
    estimator
        Its number and names of inputs are set, or compared with where `n_inputs` is known.
    signals
    n_inputs
        Known number of inputs.
    least
        Samples at least.

    Raises
    ------
    ValueError, TypeError
        Values that are not finite numbers, too few samples, other inputs than known.
    """
    common: dict[str, Any] = {"dtype": np.float64, "ensure_min_samples": least}
    if signals.inputs is None or n_inputs == 0:
        return _without_inputs(signals, n_inputs, common)
    reset = {"reset": n_inputs is None}
    if signals.outputs is None:
        return Checked(signals.cut(validate_data(estimator, signals.inputs, **reset, **common)), None, ())
    more = {"multi_output": True, "y_numeric": True}
    x, y = validate_data(estimator, signals.inputs, signals.outputs, **reset, **more, **common)
    return _checked(signals, x, np.asarray(y, dtype=np.float64))


def _without_inputs(signals: Signals, n_inputs: int | None, common: dict[str, Any]) -> Checked:
    if n_inputs:
        raise ValueError(f"expected {n_inputs} inputs (n, {n_inputs}), got None")
    if signals.inputs is not None and np.shape(signals.inputs)[1:] != (0,):
        raise ValueError(f"expected no inputs, None or an array (n, 0), got shape {np.shape(signals.inputs)}")
    if signals.outputs is None:
        if signals.inputs is None:
            raise ValueError("a model without inputs needs to know how many samples: give an array (n, 0)")
        return Checked(signals.cut(np.asarray(signals.inputs, dtype=np.float64)), None, ())
    y = check_array(signals.outputs, ensure_2d=False, input_name="y", **common)
    return _checked(signals, np.empty((len(y), 0)), y)


def _checked(signals: Signals, x: np.ndarray, y: np.ndarray) -> Checked:
    if signals.lengths is not None and sum(signals.lengths) != len(y):
        raise ValueError(f"groups: expected one label for each of the {len(y)} samples, got {sum(signals.lengths)}")
    return Checked(signals.cut(x), signals.cut(y.reshape(len(y), -1)), y.shape[1:])


def agreed(*times: float | None) -> float | None:
    """The one sampling time [s] of all that are known; None if none is.

    Raises
    ------
    ValueError
        Different ones.
    """
    known = [time for time in times if time is not None]
    if known and max(known) - min(known) > TIME_TOLERANCE * max(known):
        raise ValueError(
            f"expected one sampling time, got {sorted(set(known))} s: resample the records, or fit to records like them"
        )
    return known[0] if known else None


def _are(values: Any, kind: type) -> bool:
    """Whether this is a list of such things; a list of rows of numbers is none."""
    return isinstance(values, list | tuple) and len(values) > 0 and all(isinstance(value, kind) for value in values)


def _of_records(u: Any, y: Any, groups: ArrayLike | None) -> Signals:
    if y is not None or groups is not None:
        raise ValueError("records hold their outputs themselves: leave y and groups out, or give record.u and record.y")
    records: Sequence[InputOutput] = u if isinstance(u, list | tuple) else [u]
    times = [None if r.sampling_time is None else float(np.squeeze(r.sampling_time)) for r in records]
    inputs = _stacked([np.reshape(r.u, (len(r.u), -1)) for r in records], "inputs")
    outputs = _stacked([np.asarray(r.y) for r in records], "outputs")
    lengths = tuple(len(r.y) for r in records) if isinstance(u, list | tuple) else None
    windows = tuple(r.state_initialization_window_length for r in records)
    return Signals(inputs, outputs, lengths, agreed(*times), windows)


def _of_lists(u: Any, y: Any, groups: ArrayLike | None) -> Signals:
    if groups is not None:
        raise ValueError("groups: a list of records needs none; leave groups out")
    shapes = {name: [np.shape(a) for a in given] for name, given in (("u", u), ("y", y)) if given is not None}
    if len({tuple(shape[:1] for shape in found) for found in shapes.values()}) > 1:
        raise ValueError(f"expected as many outputs as inputs, record by record, got arrays of shapes {shapes}")
    inputs, outputs = (
        None if given is None else _stacked(list(given), name) for name, given in (("inputs", u), ("outputs", y))
    )
    lengths = tuple(len(a) for a in (y if u is None else u))
    return Signals(inputs, outputs, lengths, windows=(None,) * len(lengths))


def _stacked(parts: list[np.ndarray], kind: str) -> np.ndarray:
    shapes = {part.shape[1:] for part in parts}
    if len(shapes) > 1 or not all(part.ndim for part in parts):
        raise ValueError(f"expected {kind} of the same channels in all records, got {[part.shape for part in parts]}")
    return np.concatenate(parts)


def _lengths(groups: ArrayLike, y: Any) -> tuple[int, ...]:
    labels = np.asarray(groups)
    if labels.ndim != 1 or len(labels) != len(y):
        raise ValueError(f"groups: expected one label for each of the {len(y)} samples, got shape {labels.shape}")
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    if len(starts) > len(set(labels.tolist())):
        raise ValueError("groups: expected the samples of each record in one piece, in the order of time; sort them")
    return tuple(np.diff(np.r_[starts, len(labels)]).tolist())
