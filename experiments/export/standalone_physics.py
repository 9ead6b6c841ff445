"""What an exported model computes of its physics, with NumPy alone: the classes, which are copied
into its file.

They stand there behind `sysid.export.standalone`, whose names it uses.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from experiments.plant.physics import N_INITIAL_STATE_SAMPLES, FittedPhysics
from simulators import Interpolation
from simulators.interpolation import interpolate, upsample
from simulators.runge_kutta import integrate
from simulators.system import limits_of, names_of
from sysid.errors import UserError
from sysid.export.standalone import ExportedModel, columns

N_CHECKED = 20  # samples of the physics that an exported file simulates to check itself


class ExportedPhysics(NamedTuple):
    """System of n_x states whose signals ``C x + c`` are inputs of the model."""

    drift: Callable[
        ..., None
    ]  # (time, state, input, noise, parameters, derivative) -> None, writes the derivative
    parameters: np.ndarray
    limits: np.ndarray  # (2, n_x) of the states
    noise: np.ndarray  # (n_w,) zeros
    dt: float  # s
    substeps: int  # Runge-Kutta steps per sample
    interpolation: str  # of the inputs between samples: held, linear or band_limited
    inputs: Sequence[str]
    outputs: Sequence[str]
    signals: Sequence[str]  # outputs first
    matrix: np.ndarray  # (n_s, n_x) C
    offset: np.ndarray  # (n_s,) c
    lowest: np.ndarray  # (n_x,) initial state whose parameters are at their lower bounds
    directions: np.ndarray  # (n_x, n_p) from there to their upper bounds
    shares: np.ndarray  # (n_p,) of these that the estimate of the initial state starts from, 0 to 1
    n_first: int  # first outputs that say the initial state one step ahead

    def simulate(self, u: Any, state: Any = None) -> np.ndarray:
        """Signals (n, n_s) from inputs (n, n_u) and an initial state (n_x,)."""
        inputs = columns(u, self.inputs, "u")
        x = np.array(self.state(self.shares) if state is None else state)
        states = np.empty((len(inputs), len(x)))
        for k, rows in enumerate(self.between(inputs)):
            states[k] = x
            x = self.step(k * self.dt, x, rows)
        return states @ self.matrix.T + self.offset

    def between(self, inputs: np.ndarray) -> np.ndarray:
        """Inputs (n, 2 s + 1, n_u) at every half of the s steps from a sample to the next; the last
        one is held.
        """
        per_sample = 2 * self.substeps
        if self.interpolation == "held":
            return np.repeat(inputs[:, None], per_sample + 1, axis=1)
        dense = (upsample if self.interpolation == "band_limited" else interpolate)(
            inputs, per_sample
        )
        dense = np.concatenate([dense, np.repeat(dense[-1:], 2 * per_sample, axis=0)])
        rows = np.lib.stride_tricks.sliding_window_view(dense, per_sample + 1, axis=0)
        return rows[: len(inputs) * per_sample : per_sample].transpose(0, 2, 1)

    def state(self, shares: np.ndarray) -> np.ndarray:
        """Initial state (n_x,) of parameters at these shares (n_p,) of their ranges."""
        return np.asarray(self.lowest + self.directions @ shares)

    def step(self, time: float, state: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """State (n_x,) one sample later, by the classical Runge-Kutta method of order four; rows as
        of `between`.
        """
        h = self.dt / self.substeps
        x = np.array(state, dtype=float)
        for j in range(self.substeps):
            t = time + j * h
            slopes: list[np.ndarray] = []
            for share in (0.0, 0.5, 0.5, 1.0):
                rate = np.full(len(x), np.nan)
                there = x + share * h * slopes[-1] if slopes else x
                self.drift(
                    t + share * h,
                    there,
                    rows[round(2 * (j + share))],
                    self.noise,
                    self.parameters,
                    rate,
                )
                slopes.append(rate)
            k1, k2, k3, k4 = slopes
            x = np.clip(
                x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4),
                self.limits[0],
                self.limits[1],
            )
        return x

    def first_state(self, u: Any, y: Any) -> np.ndarray:
        """Initial state (n_x,) with which the simulation is nearest to outputs y (n, n_y):
        Levenberg-Marquardt.
        """
        inputs = columns(u, self.inputs, "u")
        outputs = columns(y, self.outputs, "y")
        spread = outputs.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)

        def errors(shares: np.ndarray) -> np.ndarray:
            simulated = self.simulate(inputs[: len(outputs)], self.state(shares))
            return np.nan_to_num(
                (simulated[:, : len(self.outputs)] - outputs) / scale, nan=1e3
            ).ravel()

        shares = self.shares
        damping = 1e-3
        iterations = 100 if len(self.shares) and outputs.size else 0
        e = errors(shares)
        for _ in range(iterations):
            steps = np.where(shares < 0.5, 1e-6, -1e-6)
            jacobian = np.stack(
                [(errors(shares + step) - e) / step.sum() for step in np.diag(steps)],
                axis=1,
            )
            curvature = jacobian.T @ jacobian
            descent = jacobian.T @ e
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-12)
            trial = np.clip(shares - np.linalg.solve(damped, descent), 0.0, 1.0)
            found = errors(trial)
            better = found @ found < e @ e
            damping = damping / 10.0 if better else damping * 10.0
            if better:
                shares = trial
                e = found
            if damping > 1e6:
                break
        return self.state(shares)


class ModelWithPhysics(NamedTuple):
    """A model some of whose inputs are signals of the physics."""

    model: ExportedModel
    physics: ExportedPhysics

    @property
    def inputs(self) -> list[str]:
        """Inputs of the plant, without the signals of the physics."""
        return [name for name in self.model.inputs if name not in self.physics.signals]

    @property
    def names(self) -> list[str]:
        """All inputs that are given: those of the model, and those that only the physics has."""
        return self.inputs + [name for name in self.physics.inputs if name not in self.inputs]

    def split(self, u: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Inputs that are given (n, number of names), those of the physics, and its initial state
        by first outputs.
        """
        inputs = columns(u, self.names, "u")
        outputs = columns(y, self.model.outputs, "y")
        own = inputs[:, [self.names.index(name) for name in self.physics.inputs]]
        measured = outputs[
            :, [list(self.model.outputs).index(name) for name in self.physics.outputs]
        ]
        return inputs, own, self.physics.first_state(own[: len(measured)], measured)

    def combine(self, inputs: np.ndarray, signals: np.ndarray) -> np.ndarray:
        """Inputs of the model (n, n_u) from those that are given and the signals of the physics."""
        everything = {name: inputs[:, i] for i, name in enumerate(self.names)}
        everything |= {name: signals[:, i] for i, name in enumerate(self.physics.signals)}
        return np.stack([everything[name] for name in self.model.inputs], axis=1)

    def join(self, u: Any, y_init: Any) -> np.ndarray:
        """Inputs of the model from those of the plant, and from the first outputs, which say the
        initial state.
        """
        inputs, own, state = self.split(u, y_init)
        return self.combine(inputs, self.physics.simulate(own, state))

    def regressors(self, u: Any, y: Any) -> np.ndarray:
        """Regressors (n - L, p) of samples L, ..., n - 1 of inputs u and outputs y; the first say
        the initial state.
        """
        outputs = columns(y, self.model.outputs, "y")
        return self.model.regressors(self.join(u, outputs[: self.physics.n_first]), outputs)

    def simulate(self, u: Any, y_init: Any) -> np.ndarray:
        """Outputs in free run from inputs u and the first outputs y_init, which say the initial
        state.
        """
        return self.model.simulate(self.join(u, y_init), y_init)

    def start(self, u: Any, y: Any) -> LoopWithPhysics:
        """Loop of your own behind the first inputs u and outputs y, which say the initial state."""
        return LoopWithPhysics(self, u, y)


class LoopWithPhysics:
    """The model and the physics beside a running plant: one sample in, its prediction out."""

    def __init__(self, both: ModelWithPhysics, u: Any, y: Any) -> None:
        """Begin behind these first samples."""
        if both.physics.interpolation != "held":
            known = "a loop knows no input before its time; use simulate"
            raise ValueError(
                f"start: expected inputs that are held, these are {both.physics.interpolation}: {known}"
            )
        self.both = both
        self.k = 0
        inputs, own, self.state = both.split(u, y)
        self.loop = both.model.start(
            both.combine(inputs, both.physics.simulate(own, self.state)), y
        )
        for row in own:
            self.advance(row)

    def advance(self, own: np.ndarray) -> None:
        """Bring the physics to the next sample."""
        physics = self.both.physics
        self.state = physics.step(self.k * physics.dt, self.state, physics.between(own[None])[0])
        self.k += 1

    def step(self, u: Any, y: Any = None) -> tuple[Any, Any]:
        """As `Loop.step`; u are the inputs of the plant."""
        both = self.both
        physics = self.both.physics
        inputs = columns(np.reshape(u, (1, -1)), both.names, "u")
        row = both.combine(inputs, self.state[None] @ physics.matrix.T + physics.offset)[0]
        self.advance(inputs[0, [both.names.index(name) for name in physics.inputs]])
        return self.loop.step(row, y)


# --- the text of a file


def physics_text(fitted: FittedPhysics) -> dict[str, str]:
    """The equations beside a model as Python text, for `sysid.export_python`: the source of the
    drift, and numbers.

    Raises
    ------
    ValueError
        A drift that needs more than NumPy, math and numbers; outputs, or an initial state, that are
        not affine; parameters that change over time.
    """
    physics = fitted.physics
    system = fitted.physics.system
    title = f"the physics of the model, {type(system).__name__}, cannot be exported"
    known = inspect.getclosurevars(type(system).drift)
    needed = {**known.globals, **known.nonlocals}
    constants = {name: value for name, value in needed.items() if isinstance(value, float | int)}
    modules = {
        name: value.__name__ for name, value in needed.items() if isinstance(value, ModuleType)
    }
    foreign = needed.keys() - constants.keys() - modules.keys() or {*modules.values()} - {
        "math",
        "numpy",
    }
    if foreign:
        raise UserError(
            f"{title}: its drift needs {sorted(foreign)}; write it with numpy, math and numbers alone"
        )
    if fitted.covariance is not None:
        raise UserError(
            f"{title}: a file has no covariance of parameters; identify with physics.covariance=false"
        )
    if system.changes:
        raise UserError(f"{title}: its parameters change over time; leave out its changes")

    def affine(
        function: Callable[[np.ndarray], np.ndarray], n: int, what: str
    ) -> tuple[np.ndarray, np.ndarray]:
        """Matrix and offset of a function of n numbers."""
        offset = function(np.zeros(n))
        matrix = (
            np.stack([function(row) - offset for row in np.eye(n)], axis=1)
            if n
            else np.zeros((len(offset), 0))
        )
        probe = np.random.default_rng(0).uniform(size=n)
        if not np.allclose(function(probe), offset + matrix @ probe, rtol=1e-9, atol=1e-9):
            raise UserError(f"{title}: {what} is not affine")
        return matrix, offset

    own = physics.initial_parameters
    low, high = (np.array([getattr(one, end) for one in own]) for end in ("lower", "upper"))

    def initial_state(shares: np.ndarray) -> np.ndarray:
        values = (low + shares * (high - low)).tolist()
        return replace(
            system, **dict(zip([one.name for one in own], values, strict=True))
        ).initial_state()

    matrix, offset = affine(lambda x: fitted.values(x[None])[0], len(system.states), "an output")
    directions, lowest = affine(initial_state, len(own), "the initial state")
    shares = np.array([one.share(getattr(system, one.name)) for one in own])
    drift = textwrap.dedent(inspect.getsource(type(system).drift)).replace("@staticmethod\n", "")
    numbers = {
        "parameters": system.parameters(),
        "limits": limits_of(system),
        "noise": np.zeros(len(system.noises)),
        "dt": float(system.dt),
        "substeps": system.substeps,
        "interpolation": physics.interpolation,
        "inputs": names_of(system.inputs),
        "outputs": names_of(system.outputs),
        "signals": tuple(physics.signals),
        "matrix": matrix,
        "offset": offset,
        "lowest": lowest,
        "directions": directions,
        "shares": shares,
        "n_first": N_INITIAL_STATE_SAMPLES,
    }
    u = np.clip(
        np.random.default_rng(0).normal(size=(N_CHECKED, len(system.inputs))),
        *system.input_limits(),
    )
    between = Interpolation(physics.interpolation)
    silent = np.zeros((N_CHECKED, len(system.noises)))
    states = integrate(system, system.initial_state(), u, silent, between)
    lines = [
        "from math import inf  # limits that there are not",
        *(
            f"import {module} as {name}"
            for name, module in modules.items()
            if name not in ("math", "np")
        ),
        *(f"{name} = {value!r}" for name, value in constants.items()),
        "Array = np.ndarray",
        inspect.getsource(interpolate),
        inspect.getsource(upsample),
        inspect.getsource(ExportedPhysics),
        inspect.getsource(ModelWithPhysics),
        inspect.getsource(LoopWithPhysics),
        drift,
        f"PHYSICS = ExportedPhysics({type(system).drift.__name__}, "
        + ", ".join(f"{name}={_literal(value)}" for name, value in numbers.items())
        + ")",
        f"PHYSICS_U, PHYSICS_CHECK = {_literal(u)}, {_literal(fitted.values(states.states))}",
        "WITH_PHYSICS = ModelWithPhysics(MODEL, PHYSICS)",
        "regressors, simulate, start = WITH_PHYSICS.regressors, WITH_PHYSICS.simulate, WITH_PHYSICS.start",
    ]
    usage = f"The signals {', '.join(physics.signals)} are simulated beside it (PHYSICS): u has the other inputs."
    return {
        "addition": "\n".join(lines),
        "usage": usage,
        "checks": ", (PHYSICS.simulate(PHYSICS_U), PHYSICS_CHECK.ravel())",
    }


def _literal(value: object) -> str:
    """Python text of numbers, names or an array."""
    return (
        f"np.array({value.tolist()!r}).reshape({value.shape})"
        if isinstance(value, np.ndarray)
        else repr(value)
    )
