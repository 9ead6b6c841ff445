"""Automatic lags: from the dynamics of a simulated plant, or from the records."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.cli.options import choice
from experiments.plant.plant import Plant
from simulators import DivergenceError
from simulators.settings import check_whole
from simulators.system import delays_of
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

MAX_REHEARSAL_SAMPLES = 2000  # samples that are simulated to find operating points
N_OPERATING_POINTS = 40  # operating points at which the dynamics are linearised


@dataclass(frozen=True)
class AutomaticNarx:
    """Choice of lags, equal for all features of a signal; the other settings are those of `Narx`.

    For a simulated plant, the dynamics are linearised at points along a noise-free simulation, and
    the largest lags are taken (`sysid.narx.from_dynamics`). For records, the lags of the smallest
    held-out error are taken (`sysid.choose_lags`): one step ahead, or in free run if the training
    is made for it. Static data need no lags: the output is predicted from the inputs of its row.

    Raises
    ------
    ValueError
        If `max_order` is not an integer of at least 1, or `predict` or `on_missing` is unknown.
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
        """Return the lags of a simulated plant, and a text on how they were found.

        Raises
        ------
        ValueError
            If the target is no output, no operating point could be simulated, or no input moves the
            target.
        """
        system = plant.system
        delays = delays_of(system)
        target = self._target(plant.outputs, type(plant.system).__name__)
        try:
            trajectory = plant.trajectory(min(n_samples, MAX_REHEARSAL_SAMPLES), seed)
        except DivergenceError as error:
            raise UserError(
                f"narx=auto: no operating points, {error}; or change the excitation, or name the "
                "lags"
            ) from error
        last = len(trajectory.time) - 1
        chosen = np.unique(np.linspace(0, last, N_OPERATING_POINTS).astype(int))
        no_noise = np.zeros(len(system.noises))
        column = plant.outputs.index(target)
        report = lags_from_dynamics(
            lambda state, input: system.derivative(0.0, state, input, no_noise),
            lambda state: system.output(state)[..., column : column + 1],
            trajectory.state[chosen],
            trajectory.interpolation.delayed(trajectory.input, delays)[chosen],
            system.dt,
            state_names=[signal.name for signal in system.states],
            input_names=plant.inputs,
            output_name=target,
            jacobian=system.jacobian,
        )
        if not report.n_y:
            raise UserError(
                f"narx=auto: nothing moves {target!r} along a simulation of "
                f"{len(trajectory.time)} samples; excite an input of {plant.inputs} about another "
                "operating point (its offset), or name the lags"
            )
        settings: Any = {"predict": self.predict, "on_missing": self.on_missing}
        inputs = {}
        text = str(report)
        for name, delay in zip(plant.inputs, delays, strict=True):
            n_lags = report.n_u[name]
            if n_lags:
                inputs[name] = range(1 + delay, 1 + delay + n_lags)
            if n_lags and delay:
                text += (
                    f"; {name} acts {delay} samples ({delay * system.dt:.4g} s) late, so its lags "
                    f"begin with {1 + delay}"
                )
        return Narx({target: report.n_y}, inputs, target, **settings), text

    def of_records(
        self, recordings: Recordings, settings: Settings
    ) -> tuple[Narx, LagChoice | str]:
        """Return the lags for records and a learner with these settings, and how they were found.

        Raises
        ------
        ValueError
            If the target is no output, or if `sysid.choose_lags` refuses the records.
        """
        target = self._target(list(recordings.outputs), recordings.name)
        inputs = recordings.inputs
        on_missing = OnMissing(self.on_missing)
        if recordings.is_static:
            narx = Narx(
                {target: []},
                {name: [0] for name in inputs},
                predict=Target.value,
                on_missing=on_missing,
            )
            return narx, "static data: no lags"
        try:
            chosen = choose_lags(
                recordings.estimation,
                target,
                inputs,
                settings=settings,
                predict=Target(self.predict),
                on_missing=on_missing,
                max_order=self.max_order,
            )
        except UserError as error:
            raise UserError(f"narx=auto: {error}") from error
        return chosen.narx, chosen

    def _target(self, outputs: list[str], title: str) -> str:
        """Return the output to predict; raise UserError if it is not among the outputs."""
        if self.target and self.target not in outputs:
            raise UserError(
                f"narx=auto: target must be one of the outputs {outputs} of {title}, got "
                f"{self.target!r}"
            )
        return self.target or outputs[0]
