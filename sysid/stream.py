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
    learner = StreamLearner(
        identification, window, outputs=outputs, inputs=inputs, dead_times=dead_times
    )
    for measurement in samples:
        yield from learner.learn(measurement)


class StreamLearner:
    """Feeds one identification with the measurements of a record, one at a time.

    It is the body of the loop of `learn_from`. Several learners can take the same measurement
    before the next one is made. The models of several outputs do so when they decide about the
    next input together.

    Parameters
    ----------
    identification, window, outputs, inputs, dead_times
        As for `learn_from`.

    Raises
    ------
    ValueError
        The model needs a signal that the samples do not have.
    """

    def __init__(
        self,
        identification: Identification,
        window: LagWindow,
        *,
        outputs: Sequence[str],
        inputs: Sequence[str],
        dead_times: DeadTimeFollower | None = None,
    ) -> None:
        narx = identification.narx
        self._identification = identification
        self._window = window
        self._dead_times = dead_times
        self._y_columns = _columns(narx.output_names, outputs, "outputs")
        self._u_columns = _columns(narx.input_names, inputs, "inputs")
        # sample number of the previous row of this record; None: there is none
        self._last_sample: int | None = None
        self._n_resets = window.n_resets

    def learn(self, measurement: Measurement) -> Iterator[Block]:
        """Learn one sample, or a block of consecutive samples, while the result is iterated.

        Yields
        ------
        Block
            The rows that the samples complete; there may be none.
        """
        window = self._window
        y = measurement.output[..., self._y_columns]
        u = measurement.input[..., self._u_columns]
        estimates = getattr(measurement, "estimates", None)
        if estimates is not None:
            estimates = Estimates(*(values[..., self._y_columns] for values in estimates))
        samples_of_piece: Iterable[Piece] = ((y, u, estimates),)
        if self._dead_times is not None:
            samples_of_piece = self._dead_times.pieces(y, u, estimates, window)
        for piece in samples_of_piece:
            rows = window.observe_many(*piece)
            if len(rows.sample):
                if window.n_resets != self._n_resets:
                    self._n_resets = window.n_resets
                    self._last_sample = None
                record, correction = _observe(self._identification, rows, self._last_sample)
                yield Block(rows, record, correction)
                self._last_sample = int(rows.sample[-1])
            if self._dead_times is not None:
                self._dead_times.follow(self._identification, window)


def _observe(
    identification: Identification, rows: LagRows, last_sample: int | None
) -> tuple[np.ndarray, UpdateReport | None]:
    """Learn the rows of a block, and return their record and the correction of the row before.

    `last_sample` is the number of the sample of the last row in the same record; None: the first
    row begins a record. Samples without a row between two rows are skipped.
    """
    if last_sample is not None and len(rows.sample) == 1 and rows.sample[0] == last_sample + 1:
        record = identification.observe_many(rows.regressor, rows.target)
        return record, identification.correction
    before = rows.sample[0] - 1 if last_sample is None else last_sample
    n_skipped = np.diff(rows.sample, prepend=before) - 1
    pieces = np.split(np.arange(len(n_skipped)), np.flatnonzero(n_skipped[1:]) + 1)
    records: list[np.ndarray] = []
    correction: UpdateReport | None = None
    for piece in pieces:
        corrections = []
        n = int(n_skipped[piece[0]])
        if n:
            identification.skip(n)
            corrections.append(identification.correction)
        follows = None
        if last_sample is None and piece[0] == 0:
            follows = piece > 0
        # a slice, so that a block without holes is not copied
        own = slice(piece[0], piece[-1] + 1)
        record = identification.observe_many(rows.regressor[own], rows.target[own], follows=follows)
        corrections.append(identification.correction)
        for corrected in corrections:
            if corrected is not None and records:
                records[-1][-1] = corrected
            elif corrected is not None:
                correction = corrected
        records.append(record)
    return (records[0] if len(records) == 1 else np.concatenate(records)), correction


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
