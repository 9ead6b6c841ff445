"""Progress of a live identification on the terminal."""

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any

from tqdm import tqdm

from experiments.job_file import is_multirun
from sysid.identify import Step

EVERY = 250  # samples between two updates of the numbers behind the bar


class Progress:
    """Bar with samples per second, size of the dictionary and running SMSE; silent off a terminal and in a sweep.

    The running SMSE is prequential: squared errors of the predictions so far over the variance of the
    targets so far.
    """

    def __init__(self, n_samples: int) -> None:
        silent = True if is_multirun() else None  # None: unless it is a terminal
        self._bar = tqdm(total=n_samples, unit=" samples", disable=silent, desc="identifying", mininterval=0.2)
        self._n = 0
        self._sum = self._squares = self._errors = 0.0

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.close()

    def step(self, step: Step) -> None:
        """Show what became of one identified sample."""
        report = step.report
        if report is None or self._bar.disable:
            return
        self._n += 1
        self._sum += step.target
        self._squares += step.target**2
        self._errors += (step.target - report.mean) ** 2
        if self._n % EVERY == 0:
            spread = self._squares - self._sum**2 / self._n
            smse = self._errors / spread if spread > 0 else float("nan")
            self._bar.set_postfix_str(f"{report.n_points} points, SMSE {smse:.3f}", refresh=False)

    def counted(self, samples: Iterable[Any]) -> Iterator[Any]:
        """Pass samples on and count them."""
        for sample in samples:
            self._bar.update()
            yield sample
