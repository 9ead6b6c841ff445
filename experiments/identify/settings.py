"""What an identification is asked for, as `run.py` reads it from the configuration."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments.files.outputs import RunFiles
from sysid import Propagation, Settings

ALL = "all"  # value of narx.target: every output of the source


@dataclass(frozen=True)
class LagOptions:
    """The lags of the regressors as they are asked for; which they are, the source says.

    What is described may need the names of signals (`sysid.Orders`) or the samples themselves
    (`experiments.plant.lags.AutomaticNarx`): it is built when the source is there.
    """

    description: Mapping[str, Any]  # plain data with a `_target_`, as of the group narx
    predicts_residual: bool  # whether the target is what the physics leaves of the output

    def targets(self, outputs: Sequence[str]) -> list[str] | None:
        """Return the outputs that are to have a model each; None if at most one output is named."""
        named = self.description.get("target", "")
        if named == ALL:
            return list(outputs)
        return [str(name) for name in named] if isinstance(named, list) else None

    def of(self, target: str) -> "LagOptions":
        """Return the same lags for one output."""
        return replace(self, description={**self.description, "target": target})


@dataclass(frozen=True)
class RunSettings:
    """One identification as it is asked for."""

    learner: Settings  # what learns, and the seed of everything random
    lags: LagOptions
    validates: bool  # whether the model, and linear ones, run freely on the test records
    propagation: Callable[[], Propagation]  # makes what carries the uncertainty through a free run
    files: RunFiles
    in_sweep: bool  # whether it is a job of a sweep: nobody watches
    overrides: tuple[str, ...]  # given on the command line, to name those without effect
    resolved: Mapping[str, Any]  # all of the configuration, as plain data: kept trainings go by it
