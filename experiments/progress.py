"""Progress of a live identification on the terminal."""

from collections.abc import Iterable, Iterator
from typing import Self

import numpy as np
from tqdm import tqdm

from experiments.job_file import is_multirun
from sysid import Measurement
from sysid.stream import Block

EVERY = 250  # samples between two updates of the numbers behind the bar


class Progress:
    """Bar with samples per second, size of the dictionary and running SMSE; silent off a terminal and in a sweep.

    The running SMSE is prequential: squared errors of the predictions so far over the variance of the
    targets so far.
    """

    def __init__(self, n_samples: int) -> None:
        silent = True if is_multirun() else None  # None: unless it is a terminal
        self._bar = tqdm(total=n_samples, unit=" samples", disable=silent, desc="identifying", mininterval=0.2)
        self._sums = np.zeros(4)  # over the targets: their number, they, their squares, the squared errors

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, block: Block) -> None:
        """Show what became of identified samples."""
        if self._bar.disable or np.isnan(block.record["mean"][-1]):
            return
        is_predicted = ~np.isnan(block.record["mean"])
        target, mean = block.rows.target[is_predicted], block.record["mean"][is_predicted]
        before = self._sums[0]
        self._sums += len(target), target.sum(), target @ target, (target - mean) @ (target - mean)
        n, total, squares, errors = self._sums
        if n // EVERY > before // EVERY:
            smse = errors / spread if (spread := squares - total**2 / n) > 0 else float("nan")
            self._bar.set_postfix_str(f"{block.record['n_points'][-1]} points, SMSE {smse:.3f}", refresh=False)

    def count(self, samples: Iterable[Measurement]) -> Iterator[Measurement]:
        """Pass samples, or blocks of them, on and count them."""
        for sample in samples:
            self._bar.update(1 if sample.output.ndim == 1 else len(sample.output))
            yield sample
