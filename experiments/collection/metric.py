"""The numbers of a summary as metrics: names, units and meanings."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from experiments.job_file import NUMBERS, SQUARED, TIMES, UNIT
from sysid.model.result import squared_unit

#: names that the data set and the table of a sweep need for themselves
RESERVED = frozenset({"status", "number", "output", "job", "sample", "error", "folder", "timed", "trial"})
TIME = "times"  # first part of the name of every time that was measured
JOB_TIME = (TIME, "job")
LONG_NAMES = {
    **{name: meaning for name, (_, meaning) in NUMBERS.items()},
    **{f"{TIME}_{name}": meaning for name, meaning in TIMES.items()},
    "_".join(JOB_TIME): "wall time of the job in its worker",
}
#: unit by the last part of a name: of metrics, and of thresholds, which are in the units of the target
UNITS = {
    **{name: unit for name, (unit, _) in NUMBERS.items()},
    **dict.fromkeys(("held_out_rmse", "error_threshold"), UNIT),
    **dict.fromkeys(("noise_variance", "variance_threshold"), SQUARED),
    **dict.fromkeys(("nrmse", "r2", "msll", "coverage_50", "coverage_90", "n"), "1"),
    "fit_percent": "%",
}

Path = tuple[str, ...]


def numbers_of(summary: Mapping[str, Any], path: Path = ()) -> Iterator[tuple[Path, float]]:
    """Every number of a summary with the keys that lead to it; flags are 0 and 1, texts and lists are left out.

    >>> dict(numbers_of({"smse": 0.1, "times": {"loop": 2}, "partial": False, "warnings": ["w"], "target": "y"}))
    {('smse',): 0.1, ('times', 'loop'): 2.0, ('partial',): 0.0}
    """
    for key, value in summary.items():
        if isinstance(value, Mapping):
            yield from numbers_of(value, (*path, str(key)))
        elif isinstance(value, bool | int | float):
            yield (*path, str(key)), float(value)


class MetricNames:
    """Names of metrics: the keys that lead to them, joined by underscores; no two alike."""

    def __init__(self) -> None:
        self._names: dict[Path, str] = {}
        self._taken: set[str] = set(RESERVED)

    def of(self, path: Path) -> str:
        """Name of the metric that these keys lead to.

        >>> names = MetricNames()
        >>> names.of(("times", "loop")), names.of(("kernel", "y[k-1]")), names.of(("times_loop",)), names.of(("job",))
        ('times_loop', 'kernel_y_k_1', 'times_loop_2', 'job_2')
        """
        if path not in self._names:
            plain = re.sub(r"\W+", "_", "_".join(path)).strip("_")
            name, count = plain, 1
            while name in self._taken:
                count += 1
                name = f"{plain}_{count}"
            self._taken.add(name)
            self._names[path] = name
        return self._names[path]

    @property
    def paths(self) -> dict[str, Path]:
        """Keys that lead to each metric, by its name."""
        return {name: path for path, name in self._names.items()}


def attributes_of(name: str, path: Path, target_unit: str) -> dict[str, Any]:
    """Attributes of a metric: ``units`` where they are known, ``long_name``, and ``measured`` of measured times."""
    measured = path[0] == TIME
    unit = "s" if measured else unit_of(path[-1], target_unit)
    return {
        **({"units": unit} if unit else {}),
        "long_name": LONG_NAMES.get(name, " ".join(path)),
        **({"measured": 1} if measured else {}),
    }


def unit_of(name: str, target_unit: str) -> str:
    """Unit of a metric or parameter of this name; empty if it is not known.

    >>> unit_of("rmse", "K"), unit_of("noise_variance", "K"), unit_of("n_seen", "K"), unit_of("budget", "K")
    ('K', 'K2', '1', '')
    """
    unit = UNITS.get(name, "")
    if unit == SQUARED:
        return squared_unit(target_unit) if target_unit else ""
    return target_unit if unit == UNIT else unit
