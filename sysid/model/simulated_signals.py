"""Signals that are simulated beside a model, such as those of physics, in its linear view."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import xarray as xr

from sysid.arrays import Array


class LinearSignals(NamedTuple):
    """Linear recursion of n_s simulated signals s by n_u inputs u, about an operating point.

    ``s[k] = A s[k-1] + sum_j B_j u[k-j]``
    """

    names: tuple[str, ...]  # of the signals
    inputs: tuple[str, ...]
    A: Array  # (n_s, n_s)
    B: Array  # (J + 1, n_s, n_u); ``[j]`` is lag j


class SimulatedSignals(Protocol):
    """Signals that a simulation of the measured inputs adds to a record.

    A model may have them among its features. They do not depend on its outputs.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """Names (n_s,) of the signals; they determine the state of the simulation."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names (n_u,) of the inputs of the simulation."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know about the linear recursion, as sentences."""

    def add(self, record: xr.Dataset) -> xr.Dataset:
        """Return a record with these signals; if it has them already, as it is."""

    def steady(self, inputs: Mapping[str, float]) -> dict[str, float]:
        """Return the values that the signals keep for constant inputs, by name.

        Raises
        ------
        ValueError
            There are none.
        """

    def linear(self, values: Mapping[str, float]) -> LinearSignals:
        """Return the linear recursion about values of the signals and of the inputs, by name."""
