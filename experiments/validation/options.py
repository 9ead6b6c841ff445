"""What a validation asks for: horizons, windows, which records."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from omegaconf import DictConfig, ListConfig

from sysid.data.source import ROLES

FREE_RUN = "free_run"  # the horizon that has no end


class Case(NamedTuple):
    """One kind of prediction of the same records."""

    horizon: int | None  # samples ahead; None: free run
    window: int  # measured samples that the model is given first

    @property
    def label(self) -> int | str:
        """Horizon for files."""
        return FREE_RUN if self.horizon is None else self.horizon

    @property
    def name(self) -> str:
        """Name of its group in a file."""
        kind = {None: FREE_RUN, 1: "one_step"}.get(self.horizon, f"{self.horizon}_steps")
        return f"{kind}_window_{self.window}"

    @property
    def words(self) -> str:
        """Horizon for people."""
        return {None: "free run", 1: "1 step"}.get(self.horizon, f"{self.horizon} steps")


@dataclass(frozen=True)
class Options:
    """Checked values of the configuration.

    Raises
    ------
    ValueError
        Horizons or windows that are no whole numbers of at least 1 or stand there twice, an unknown part, names that
        are no texts.
    """

    horizons: Sequence[int] = (1, 3, 10)  # samples ahead; one step is always among them
    windows: Sequence[int] | None = None  # samples; None: what the records say, or the largest lag
    part: str | None = None  # of the records; None: test, or validation where there is no test
    left_out: Sequence[str] = ()  # signals of the data that the model does not have
    seed: int = 0
    figures: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "horizons", tuple(sorted({1, *_whole("horizons", self.horizons)})))
        if self.windows is not None:
            windows = _whole("windows", self.windows)
            if not windows:
                raise ValueError("windows must name at least one number of samples, such as [5, 50], or be null")
            object.__setattr__(self, "windows", windows)
        if self.part is not None and self.part not in ROLES:
            raise ValueError(f"part must be one of {', '.join(ROLES)}, or null, got {self.part!r}")
        if not isinstance(self.left_out, list | tuple) or not all(isinstance(name, str) for name in self.left_out):
            raise ValueError(f"left_out must be a list of names of signals, such as [u2], got {self.left_out!r}")
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise ValueError(f"seed must be a whole number of >= 0, got {self.seed!r}")
        if not isinstance(self.figures, bool):
            raise ValueError(f"figures must be true or false, got {self.figures!r}")

    def cases(self, default_window: int) -> list[Case]:
        """All horizons, free run last, for every window; those of the main window first."""
        windows = (default_window,) if self.windows is None else self.windows
        return [Case(horizon, window) for window in windows for horizon in (*self.horizons, None)]


def options_of(config: DictConfig) -> Options:
    """Options of a configuration of `sysid-validate`.

    Raises
    ------
    ValueError
        As `Options`.
    """
    names = ("horizons", "windows", "part", "left_out", "seed", "figures")
    return Options(**{name: _plain(config[name]) for name in names})


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, ListConfig) else value


def _whole(name: str, values: Any) -> tuple[int, ...]:
    given = [values] if isinstance(values, int) else values
    is_list = isinstance(given, list | tuple)
    good = is_list and all(isinstance(v, int) and not isinstance(v, bool) and v >= 1 for v in given)
    if not good or len(set(given)) < len(given):
        raise ValueError(
            f"{name} must be whole numbers of samples of at least 1, each once, such as [1, 10], got {values!r}"
        )
    return tuple(given)
