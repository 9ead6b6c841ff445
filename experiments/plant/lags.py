"""Lags chosen by the toolbox: from the dynamics of a simulated plant, or from the records."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.cli.options import choice
from experiments.plant.plant import Plant
from simulators import DivergenceError
from simulators.settings import check_whole
from sysid import (
    LagChoice,
    Narx,
    OnMissing,
    Recordings,
    Settings,
    Target,
    choose_lags,
    lags_from_dynamics,
)
from sysid.errors import UserError

REHEARSAL = 2000  # samples that are simulated to find operating points
N_POINTS = 40  # operating points


@dataclass(frozen=True)
class AutomaticNarx:
    """Choice of lags, equal for all features of a signal; the other settings are those of `Narx`.

    Simulated plants: the largest lags of the dynamics linearised at points along a noise-free
    simulation of its own (`sysid.narx.from_dynamics`). Records: those of the smallest held-out
    error (`sysid.choose_lags`), one step ahead, or in free run if the training is made for it.
    Static data: no lags, the value from the inputs as they are.

    Raises
    ------
    ValueError
        If `max_order` is not a whole number above 0, or `predict` or `on_missing` is unknown.
    """

    target: str = ""  # output to predict; empty: the first
    predict: str = "change"  # change y[k] - y[k-1], or value y[k]
    on_missing: str = "error"  # error, or skip
    max_order: int = 10  # largest number of lags that is tried for records

    def __post_init__(self) -> None:
        check_whole(self, "max_order", 1)
        choice("predict", Target, self.predict)
        choice("on_missing", OnMissing, self.on_missing)

    def of_plant(self, plant: Plant, n_samples: int, seed: int) -> tuple[Narx, str]:
        """Lags of a simulated plant, and how they were found.

        Raises
        ------
        ValueError
            The target is no output, no operating point could be simulated, or no input moves the
            target.
        """
        system = plant.system
        target = self._target(plant.outputs, type(plant.system).__name__)
        try:
            trajectory = plant.trajectory(min(n_samples, REHEARSAL), seed)
        except DivergenceError as error:
            advice = "or change the excitation, or name the lags"
            raise UserError(f"narx=auto: no operating points, {error}; {advice}") from error
        chosen = np.unique(np.linspace(0, len(trajectory.time) - 1, N_POINTS).astype(int))
        silent = np.zeros(len(system.noises))
        column = plant.outputs.index(target)
        report = lags_from_dynamics(
            lambda state, input: system.derivative(0.0, state, input, silent),
            lambda state: system.output(state)[..., column : column + 1],
            trajectory.state[chosen],
            trajectory.input[chosen],
            system.dt,
            state_names=[signal.name for signal in system.states],
            input_names=plant.inputs,
            output_name=target,
            jacobian=system.jacobian,
        )
        if not report.n_y:
            where = f"along a simulation of {len(trajectory.time)} samples"
            advice = f"excite an input of {plant.inputs} about another operating point (its offset), or name the lags"
            raise UserError(f"narx=auto: nothing moves {target!r} {where}; {advice}")
        settings: Any = {"predict": self.predict, "on_missing": self.on_missing}
        inputs = {name: n for name, n in report.n_u.items() if n}
        return Narx({target: report.n_y}, inputs, target, **settings), str(report)

    def of_records(
        self, recordings: Recordings, settings: Settings
    ) -> tuple[Narx, LagChoice | str]:
        """Lags of the estimation records for these settings of an identification, and how they were
        found.

        Raises
        ------
        ValueError
            The target is no output, or as `sysid.choose_lags`.
        """
        target = self._target(list(recordings.outputs), recordings.name)
        inputs = recordings.inputs
        if recordings.is_static:
            lags = {name: [0] for name in inputs}
            narx = Narx(
                {target: []},
                lags,
                predict=Target.value,
                on_missing=OnMissing(self.on_missing),
            )
            return narx, "static data: no lags"
        options: Any = {
            "predict": Target(self.predict),
            "on_missing": OnMissing(self.on_missing),
        }
        options["max_order"] = self.max_order
        try:
            choice = choose_lags(
                recordings.estimation, target, inputs, settings=settings, **options
            )
        except UserError as error:
            raise UserError(f"narx=auto: {error}") from error
        return choice.narx, choice

    def _target(self, outputs: list[str], title: str) -> str:
        if self.target and self.target not in outputs:
            raise UserError(
                f"narx=auto: target must be one of the outputs {outputs} of {title}, got {self.target!r}"
            )
        return self.target or outputs[0]
