"""Settings of an identification, as `run.py` reads them from the configuration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.files.outputs import RunFiles
from experiments.files.stated import ALL_OUTPUTS, AUTOMATIC_LAGS
from sysid import Propagation, Settings
from sysid.narx.lags import AUTOMATIC_FIRST_LAG


@dataclass(frozen=True)
class LagOptions:
    """The description of the lags, before the source is known.

    Building the lags may need the names of signals (`sysid.Orders`) or the samples themselves
    (`experiments.plant.lags.AutomaticNarx`). Therefore they are built once the source is known.
    """

    description: Mapping[str, Any]  # group narx as plain data, with a `_target_`
    predicts_residual: bool  # whether the target is the output minus that of the physics

    @property
    def are_automatic(self) -> bool:
        """Whether the lags are chosen by the dynamics or by held-out errors."""
        return str(self.description.get("_target_", "")).endswith(AUTOMATIC_LAGS)

    @property
    def are_orders(self) -> bool:
        """Whether numbers of lags are given (``narx=orders``), so that ``narx.nk`` is a key."""
        return "nk" in self.description

    @property
    def begin_with_dead_times(self) -> bool:
        """Whether the lags of any input begin with its dead time (``narx.nk=auto``)."""
        return AUTOMATIC_FIRST_LAG in self._first_lags

    @property
    def all_begin_with_dead_times(self) -> bool:
        """Whether the lags of every input begin with its dead time."""
        return set(self._first_lags) == {AUTOMATIC_FIRST_LAG}

    @property
    def _first_lags(self) -> list[Any]:
        """First lag of all inputs, or those of each, as ``narx.nk`` states them."""
        nk = self.description.get("nk")
        return nk if isinstance(nk, list) else [nk]

    def targets(self, outputs: Sequence[str]) -> list[str] | None:
        """Return the outputs that get a model each; None if ``narx.target`` is no list."""
        target = self.description.get("target", "")
        if target == ALL_OUTPUTS:
            return list(outputs)
        if isinstance(target, list):
            return [str(name) for name in target]
        return None

    def of(self, target: str) -> "LagOptions":
        """Return the same lags for one output."""
        return replace(self, description={**self.description, "target": target})


@dataclass(frozen=True)
class RunSettings:
    """Settings of one identification."""

    learner: Settings  # training, rules and budget of the online GP, and the seed
    lags: LagOptions
    finds_limit: bool  # whether the limit of one-step prediction of a simulated plant is computed
    validates: bool  # whether the model and linear models are simulated on the test records
    propagation: Callable[[], Propagation]  # makes the propagation of uncertainty in a free run
    files: RunFiles
    in_sweep: bool  # whether the run is a job of a sweep; it shows no progress then
    overrides: tuple[str, ...]  # from the command line; overrides without effect are reported
    resolved: Mapping[str, Any]  # the whole configuration as plain data; cache keys contain it
