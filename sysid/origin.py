"""What a model was identified from: the sampling time, units and spread of its signals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import xarray as xr

Units = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Origin:
    """Facts about the samples that a model was identified from; None, and a signal without unit, are not known.

    New records are compared with them, and the log loss of a prediction refers to the mean and the variance.

    Examples
    --------
    >>> Origin(sampling_time=4.0, units={"y": "V", "u": "V"}).unit("y")
    'V'
    """

    sampling_time: float | None = None  # s; 1 where time counts samples
    units: Mapping[str, str] | Units = ()  # of every signal that has one
    output_mean: float | None = None  # of the target output y, its unit
    output_variance: float | None = None  # unit of the target output squared
    output_range: tuple[float, float] | None = None  # smallest and largest y
    n_samples: int | None = None  # rows of the lag data set

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", tuple(sorted(dict(self.units).items())))
        if self.sampling_time is not None and not 0 < self.sampling_time < inf:
            raise ValueError(f"Origin: sampling_time must be positive and finite [s], got {self.sampling_time}")
        if self.output_range is not None:
            object.__setattr__(self, "output_range", tuple(float(value) for value in self.output_range))

    @classmethod
    def of(cls, rows: xr.Dataset) -> Origin:
        """Facts about the rows of a lag data set (`Narx.dataset`), all of which the model has seen."""
        narx = json.loads(rows.attrs["narx"])
        units = dict(zip(rows["signal"].values.tolist(), rows["unit"].values.tolist(), strict=True))
        if "units" in rows["previous"].attrs:
            units[narx["target"]] = rows["previous"].attrs["units"]
        is_change = narx["predict"] == "change"
        y = rows["target"].values + rows["previous"].values if is_change else rows["target"].values
        return cls(
            sampling_time=float(rows.attrs["sampling_time"]),
            units={str(name): str(unit) for name, unit in units.items() if unit},
            output_mean=float(y.mean()),
            output_variance=float(y.var()),
            output_range=(float(y.min()), float(y.max())),
            n_samples=len(y),
        )

    def unit(self, signal: str) -> str:
        """Unit of a signal; empty if not known."""
        return dict(self.units).get(signal, "")

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, for JSON."""
        return asdict(self) | {"units": dict(self.units)}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> Origin:
        """Inverse of `to_dict`."""
        return cls(**content)
