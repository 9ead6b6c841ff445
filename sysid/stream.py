"""The loop over a stream of samples: what is measured becomes rows, which are predicted and
learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sysid.errors import UserError
from sysid.gp.dictionary import UpdateReport
from sysid.identification import Identification
from sysid.narx.lags import LagRows
from sysid.narx.window import LagWindow


class Measurement(Protocol):
    """One sample of a stream, or consecutive ones: outputs measured at a time, inputs applied from
    then on.
    """

    @property
    def output(self) -> np.ndarray:
        """Outputs (n_y,), or (n, n_y) of consecutive samples."""

    @property
    def input(self) -> np.ndarray:
        """Inputs (n_u,), or (n, n_u)."""


class Block(NamedTuple):
    """What the loop did with consecutive samples of one record."""

    rows: LagRows
    # (n_rows,) one `UpdateReport` a row; its mean is nan while the initial samples are collected
    record: np.ndarray
    #: in the place of the last row of the block before, whose sample was held back and has been learned now
    correction: UpdateReport | None = None


def learn_from(
    samples: Iterable[Measurement],
    identification: Identification,
    window: LagWindow,
    *,
    outputs: Sequence[str],
    inputs: Sequence[str],
) -> Iterator[Block]:
    """Feed a stream to an identification: the one loop, for live samples and for blocks of a
    record.

    Each sample is predicted before its target is used. The loop is lazy: it asks for the next
    samples when the next block is asked for, so a live closed loop advances with it and can be
    stopped at any time. The last sample of a block may be held back as a possible outlier. What
    became of it then is the `correction` of the next block, or, after the last one, of
    `Identification.finish`.

    Parameters
    ----------
    samples : iterable of Measurement
        One sample or a block of consecutive samples at a time.
    identification : Identification
    window : LagWindow
        Of the same `Narx`; keeps the lags and counts missing samples. Reset it between two records.
    outputs, inputs : sequence of str
        Names of the columns of the samples' outputs and inputs.

    Raises
    ------
    ValueError
        If the model needs a signal that the samples do not have.
    """
    narx = identification.narx
    y_columns = _columns(narx.output_names, outputs, "outputs")
    u_columns = _columns(narx.input_names, inputs, "inputs")
    last = -2  # sample of the row before
    for sample in samples:
        rows = window.observe_many(sample.output[..., y_columns], sample.input[..., u_columns])
        if len(rows.sample):
            is_next = len(rows.sample) == 1 and rows.sample[0] == last + 1
            follows = None if is_next else np.diff(rows.sample, prepend=last) == 1
            record = identification.observe_many(rows.regressor, rows.target, follows=follows)
            yield Block(rows, record, identification.correction)
            last = rows.sample[-1]


def _columns(needed: Sequence[str], present: Sequence[str], kind: str) -> np.ndarray | slice:
    if missing := [name for name in needed if name not in present]:
        raise UserError(
            f"narx needs {kind} {missing}, the samples have {list(present)}; change narx or their source"
        )
    columns = [list(present).index(name) for name in needed]
    return slice(None) if columns == list(range(len(present))) else np.array(columns, dtype=int)
