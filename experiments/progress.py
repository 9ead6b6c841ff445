"""Progress of a live identification on the terminal."""

from collections.abc import Iterable, Iterator
from typing import Self

from tqdm import tqdm

from experiments.job_file import is_multirun
from sysid import Measurement
from sysid.stream import Block


class Progress:
    """Bar with samples per second and the size of the dictionary; silent off a terminal and in a sweep."""

    def __init__(self, n_samples: int) -> None:
        silent = True if is_multirun() else None  # None: unless it is a terminal
        self._bar = tqdm(total=n_samples, unit=" samples", disable=silent, desc="identifying", mininterval=0.2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def show(self, block: Block) -> None:
        """Show what became of identified samples."""
        self._bar.set_postfix_str(f"{block.record['n_points'][-1]} points", refresh=False)

    def count(self, samples: Iterable[Measurement]) -> Iterator[Measurement]:
        """Pass samples, or blocks of them, on and count them."""
        for sample in samples:
            self._bar.update(1 if sample.output.ndim == 1 else len(sample.output))
            yield sample
