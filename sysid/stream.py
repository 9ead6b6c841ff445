"""The loop over a stream: samples become regressor rows, which are predicted and then learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from sysid.dead_time_lags import DeadTimeFollower, Piece
from sysid.errors import UserError
from sysid.gp.dictionary import UpdateReport
from sysid.identification import Identification
from sysid.narx.lags import LagRows
from sysid.narx.window import Estimates, LagWindow


class Measurement(Protocol):
    """One sample of a stream, or several consecutive samples.

    A sample holds the outputs measured at one time and the inputs applied from that time on.
    """

    @property
    def output(self) -> np.ndarray:
        """Outputs (n_y,) of one sample, or (n, n_y) of n consecutive samples."""

    @property
    def input(self) -> np.ndarray:
        """Inputs (n_u,) of one sample, or (n, n_u) of n consecutive samples."""


class Block(NamedTuple):
    """Consecutive samples of one record, and how each of them was predicted and learned."""

    rows: LagRows
    #: (n_rows,) one `UpdateReport` per row; its mean is nan while initial samples are collected
    record: np.ndarray
    #: Replaces the last row of the previous block, if that sample was held back and is learned now.
    correction: UpdateReport | None = None


def learn_from(
    samples: Iterable[Measurement],
    identification: Identification,
    window: LagWindow,
    *,
    outputs: Sequence[str],
    inputs: Sequence[str],
    dead_times: DeadTimeFollower | None = None,
) -> Iterator[Block]:
    """Feed a stream to an identification, sample by sample or in blocks of a record.

    Each sample is predicted before its target is used. The loop is lazy: it requests the next
    samples only when the caller requests the next block, so a live closed loop advances with it
    and can be stopped at any time. The last sample of a block may be held back as a possible
    outlier. If it is learned later, its new report is the `correction` of the next block, or the
    `correction` of the identification after `Identification.finish`.

    Parameters
    ----------
    samples : iterable of Measurement
        One sample or a block of consecutive samples at a time. A block may also have `estimates`
        (`sysid.narx.window.Estimates`, of all outputs), which take the place of missing outputs
        among the lags.
    identification : Identification
    window : LagWindow
        Window of the same `Narx` structure. It keeps the lags and counts missing samples. Reset it
        between two records.
    outputs, inputs : sequence of str
        Names of the columns of the samples' outputs and inputs.
    dead_times : DeadTimeFollower, optional
        Looks for the dead times of the inputs while the stream goes on, and changes the lags of
        `identification` and `window` where they do not begin with them. None: the lags stay.

    Yields
    ------
    Block
        The rows that the samples complete, with the report of each.

    Raises
    ------
    ValueError
        The model needs a signal that the samples do not have.
    """
    narx = identification.narx
    y_columns = _columns(narx.output_names, outputs, "outputs")
    u_columns = _columns(narx.input_names, inputs, "inputs")
    last_sample = -2  # sample number of the previous row; -2: there is none
    for measurement in samples:
        y = measurement.output[..., y_columns]
        u = measurement.input[..., u_columns]
        estimates = getattr(measurement, "estimates", None)
        if estimates is not None:
            estimates = Estimates(*(values[..., y_columns] for values in estimates))
        samples_of_piece: Iterable[Piece] = ((y, u, estimates),)
        if dead_times is not None:
            samples_of_piece = dead_times.pieces(y, u, estimates, window)
        for piece in samples_of_piece:
            rows = window.observe_many(*piece)
            if len(rows.sample):
                if len(rows.sample) == 1 and rows.sample[0] == last_sample + 1:
                    follows = None  # a single row that follows the previous one
                else:
                    follows = np.diff(rows.sample, prepend=last_sample) == 1
                record = identification.observe_many(rows.regressor, rows.target, follows=follows)
                yield Block(rows, record, identification.correction)
                last_sample = rows.sample[-1]
            if dead_times is not None:
                dead_times.follow(identification, window)


def _columns(needed: Sequence[str], present: Sequence[str], kind: str) -> np.ndarray | slice:
    """Return the columns of the needed signals; a slice if they are all columns in order."""
    missing = [name for name in needed if name not in present]
    if missing:
        raise UserError(
            f"narx needs {kind} {missing}, the samples have {list(present)}; "
            "change narx or the source of the samples"
        )
    positions = [list(present).index(name) for name in needed]
    if positions == list(range(len(present))):
        return slice(None)
    return np.array(positions, dtype=int)
