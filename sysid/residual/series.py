"""Checked residuals and inputs of one or several records, one behind the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import matrix

Array: TypeAlias = NDArray[np.float64]
Records: TypeAlias = ArrayLike | Sequence[ArrayLike]


class Series(NamedTuple):
    """Records one behind the other."""

    residuals: Array  # (n, n_outputs)
    inputs: Array  # (n, n_inputs)
    place: NDArray[np.int64]  # (n,) number of each sample in its record, from 0: lag k exists where place >= k
    lengths: tuple[int, ...]  # samples of every record


def series(residuals: Records, inputs: Records | None) -> Series:
    """Checked records; arguments and errors as `sysid.residual.residual_tests`."""
    e = _columns(residuals, "residuals")
    u = [np.empty((len(record), 0)) for record in e] if inputs is None else _columns(inputs, "inputs")
    lengths, driven = tuple(map(len, e)), tuple(map(len, u))
    if lengths != driven:
        raise ValueError(
            f"residual_tests: residuals have records of {list(lengths)} samples, inputs of {list(driven)}; "
            "give the inputs of the same samples, without those of the window"
        )
    place = np.concatenate([np.arange(n) for n in lengths])
    return Series(np.vstack(e), np.vstack(u), place, lengths)


def _columns(records: Records, name: str) -> list[Array]:
    """Every record as (n_i, number of signals)."""
    given = list(records) if isinstance(records, list | tuple) else [np.asarray(records)]
    if not given:
        raise ValueError(f"residual_tests: no record of {name}; give an array, or a list with one array per record")
    if any(np.ndim(record) not in (1, 2) for record in given):
        shapes = [np.shape(record) for record in given]
        raise ValueError(
            f"residual_tests: {name}: expected an array (n,) or (n, number of signals), or a list of such arrays, "
            f"one per record, got shapes {shapes[:5]}"
        )
    columns = [np.asarray(record)[:, None] if np.ndim(record) == 1 else np.asarray(record) for record in given]
    width = columns[0].shape[1]
    return [matrix(record, width, f"{name} of record {i}") for i, record in enumerate(columns)]
