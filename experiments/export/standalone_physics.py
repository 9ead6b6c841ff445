"""What an exported model computes of its physics, with NumPy alone, and the text of its file.

The classes are copied into the exported file, behind the text of `sysid.export.standalone`, whose
names they use.
"""

from __future__ import annotations

import inspect
import math  # noqa: F401  # found by name
import sys
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
from simulators.system import delays_of, limits_of, names_of
from sysid.errors import UserError
from sysid.export.standalone import ExportedModel, columns

N_PHYSICS_CHECK_SAMPLES = (
    20  # samples of the physics that an exported file simulates to check itself
)


#: Modules that the drift of an exported physics may use.
KNOWN_MODULES = ("math", "numpy")


class ExportedPhysics(NamedTuple):
    """System of n_x states whose signals ``C x + c`` are inputs of the model."""

    # Called as drift(time, state, input, noise, parameters, derivative); writes the derivative.
    drift: Callable[..., None]
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
    lowest: np.ndarray  # (n_x,) initial state with all n_p parameters at their lower bounds
    directions: np.ndarray  # (n_x, n_p) its change if a parameter goes to its upper bound
    shares: np.ndarray  # (n_p,) first guess of the parameters, 0 at the lower bound, 1 at the upper
    n_first: int  # first outputs from which one-step predictions estimate the initial state

    def simulate(self, u: Any, state: Any = None) -> np.ndarray:
        """Return the signals (n, n_s) for inputs (n, n_u) from an initial state (n_x,)."""
        inputs = columns(u, self.inputs, "u")
        x = np.array(self.state(self.shares) if state is None else state)
        states = np.empty((len(inputs), len(x)))
        for k, rows in enumerate(self.between(inputs)):
            states[k] = x
            x = self.step(k * self.dt, x, rows)
        return states @ self.matrix.T + self.offset

    def between(self, inputs: np.ndarray) -> np.ndarray:
        """Return the inputs (n, 2 s + 1, n_u) at every half of the s steps of a sample.

        The last input is held.
        """
        per_sample = 2 * self.substeps
        if self.interpolation == "held":
            return np.repeat(inputs[:, None], per_sample + 1, axis=1)
        fill_in = upsample if self.interpolation == "band_limited" else interpolate
        dense = fill_in(inputs, per_sample)
        dense = np.concatenate([dense, np.repeat(dense[-1:], 2 * per_sample, axis=0)])
        rows = np.lib.stride_tricks.sliding_window_view(dense, per_sample + 1, axis=0)
        return rows[: len(inputs) * per_sample : per_sample].transpose(0, 2, 1)

    def state(self, shares: np.ndarray) -> np.ndarray:
        """Return the initial state (n_x,) of parameters at these shares (n_p,) of their ranges."""
        return np.asarray(self.lowest + self.directions @ shares)

    def step(self, time: float, state: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the state (n_x,) one sample later; ``rows`` are the inputs of `between`.

        The classical Runge-Kutta method of order four integrates the drift.
        """
        h = self.dt / self.substeps
        x = np.array(state, dtype=float)
        for j in range(self.substeps):
            t = time + j * h
            slopes: list[np.ndarray] = []
            for share in (0.0, 0.5, 0.5, 1.0):
                slope = np.full(len(x), np.nan)
                point = x + share * h * slopes[-1] if slopes else x
                row = rows[round(2 * (j + share))]
                self.drift(t + share * h, point, row, self.noise, self.parameters, slope)
                slopes.append(slope)
            k1, k2, k3, k4 = slopes
            x = x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            x = np.clip(x, self.limits[0], self.limits[1])
        return x

    def first_state(self, u: Any, y: Any) -> np.ndarray:
        """Return the initial state (n_x,) that simulates outputs y (n, n_y) best.

        Levenberg-Marquardt minimises the squared errors over the shares of the parameters.
        """
        inputs = columns(u, self.inputs, "u")
        outputs = columns(y, self.outputs, "y")
        spread = outputs.std(axis=0)
        scale = np.where(spread > 0, spread, 1.0)

        def errors(shares: np.ndarray) -> np.ndarray:
            simulated = self.simulate(inputs[: len(outputs)], self.state(shares))
            scaled = (simulated[:, : len(self.outputs)] - outputs) / scale
            return np.nan_to_num(scaled, nan=1e3).ravel()

        shares = self.shares
        damping = 1e-3
        iterations = 100 if len(self.shares) and outputs.size else 0
        e = errors(shares)
        for _ in range(iterations):
            steps = np.where(shares < 0.5, 1e-6, -1e-6)
            slopes = [(errors(shares + step) - e) / step.sum() for step in np.diag(steps)]
            jacobian = np.stack(slopes, axis=1)
            curvature = jacobian.T @ jacobian
            descent = jacobian.T @ e
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-12)
            trial = np.clip(shares - np.linalg.solve(damped, descent), 0.0, 1.0)
            trial_errors = errors(trial)
            if trial_errors @ trial_errors < e @ e:
                damping = damping / 10.0
                shares = trial
                e = trial_errors
            else:
                damping = damping * 10.0
            if damping > 1e6:
                break
        return self.state(shares)


class ModelWithPhysics(NamedTuple):
    """A model that has signals of the physics among its inputs."""

    model: ExportedModel
    physics: ExportedPhysics

    @property
    def inputs(self) -> list[str]:
        """Inputs of the plant, without the signals of the physics."""
        return [name for name in self.model.inputs if name not in self.physics.signals]

    @property
    def names(self) -> list[str]:
        """All inputs that a user gives: those of the plant, and those of the physics alone."""
        return self.inputs + [name for name in self.physics.inputs if name not in self.inputs]

    def split(self, u: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the given inputs (n, number of names), those of the physics, and its first state.

        The first state is estimated from the first outputs y.
        """
        inputs = columns(u, self.names, "u")
        outputs = columns(y, self.model.outputs, "y")
        physics_inputs = inputs[:, [self.names.index(name) for name in self.physics.inputs]]
        order = [list(self.model.outputs).index(name) for name in self.physics.outputs]
        measured = outputs[:, order]
        state = self.physics.first_state(physics_inputs[: len(measured)], measured)
        return inputs, physics_inputs, state

    def combine(self, inputs: np.ndarray, signals: np.ndarray) -> np.ndarray:
        """Return the inputs of the model (n, n_u) from given inputs and signals of the physics."""
        everything = {name: inputs[:, i] for i, name in enumerate(self.names)}
        everything |= {name: signals[:, i] for i, name in enumerate(self.physics.signals)}
        return np.stack([everything[name] for name in self.model.inputs], axis=1)

    def join(self, u: Any, y_init: Any) -> np.ndarray:
        """Return the inputs of the model from given inputs u.

        The first outputs y_init determine the initial state of the physics.
        """
        inputs, physics_inputs, state = self.split(u, y_init)
        return self.combine(inputs, self.physics.simulate(physics_inputs, state))

    def regressors(self, u: Any, y: Any) -> np.ndarray:
        """Return the regressors (n - L, p) of samples L, ..., n - 1 of inputs u and outputs y.

        The first outputs determine the initial state of the physics.
        """
        outputs = columns(y, self.model.outputs, "y")
        return self.model.regressors(self.join(u, outputs[: self.physics.n_first]), outputs)

    def simulate(self, u: Any, y_init: Any) -> np.ndarray:
        """Return the outputs in free run (simulation) from inputs u and the first outputs y_init.

        The first outputs also determine the initial state of the physics.
        """
        return self.model.simulate(self.join(u, y_init), y_init)

    def start(self, u: Any, y: Any) -> LoopWithPhysics:
        """Return a loop that continues behind the first inputs u and outputs y.

        The first outputs determine the initial state of the physics.
        """
        return LoopWithPhysics(self, u, y)


class LoopWithPhysics:
    """The model and the physics beside a running plant: one sample in, its prediction out."""

    def __init__(self, both: ModelWithPhysics, u: Any, y: Any) -> None:
        """Begin behind the first inputs u and outputs y."""
        if both.physics.interpolation != "held":
            raise ValueError(
                f"start: expected inputs that are held, these are {both.physics.interpolation}: "
                "a loop knows no input before its time; use simulate"
            )
        self.both = both
        self.k = 0
        inputs, physics_inputs, self.state = both.split(u, y)
        signals = both.physics.simulate(physics_inputs, self.state)
        self.loop = both.model.start(both.combine(inputs, signals), y)
        for row in physics_inputs:
            self.advance(row)

    def advance(self, row: np.ndarray) -> None:
        """Bring the physics to the next sample; ``row`` are its inputs."""
        physics = self.both.physics
        self.state = physics.step(self.k * physics.dt, self.state, physics.between(row[None])[0])
        self.k += 1

    def step(self, u: Any, y: Any = None) -> tuple[Any, Any]:
        """Predict the next sample as `Loop.step`; u are the given inputs."""
        both = self.both
        physics = self.both.physics
        inputs = columns(np.reshape(u, (1, -1)), both.names, "u")
        signals = self.state[None] @ physics.matrix.T + physics.offset
        row = both.combine(inputs, signals)[0]
        self.advance(inputs[0, [both.names.index(name) for name in physics.inputs]])
        return self.loop.step(row, y)


# --- the text of a file


def physics_text(fitted: FittedPhysics) -> dict[str, str]:
    """Return the equations beside a model as Python text, for `sysid.export_python`.

    The text holds the source of the drift, and its numbers.

    Raises
    ------
    ValueError
        The drift needs more than NumPy, math and numbers; an output or the initial state is not
        affine; or parameters change over time.
    """
    physics = fitted.physics
    lines = [
        *physics_lines(fitted),
        inspect.getsource(LoopWithPhysics),
        "WITH_PHYSICS = ModelWithPhysics(MODEL, PHYSICS)",
        "regressors = WITH_PHYSICS.regressors",
        "simulate = WITH_PHYSICS.simulate",
        "start = WITH_PHYSICS.start",
    ]
    usage = (
        f"The signals {', '.join(physics.signals)} are simulated beside it (PHYSICS): "
        "u has the other inputs."
    )
    return {
        "addition": "\n".join(lines),
        "usage": usage,
        "checks": ", (PHYSICS.simulate(PHYSICS_U), PHYSICS_CHECK.ravel())",
    }


def physics_lines(fitted: FittedPhysics) -> list[str]:
    """Return the text of the classes, of `PHYSICS`, and of the values that check it.

    Raises
    ------
    ValueError
        As `physics_text`.
    """
    system = fitted.physics.system
    title = title_of(fitted)
    constants, imports = names_of_drift(type(system).drift, title)
    numbers = numbers_of(fitted, title)
    u, checked = simulate_check(fitted)
    drift = textwrap.dedent(inspect.getsource(type(system).drift)).replace("@staticmethod\n", "")
    fields = ", ".join(f"{name}={_literal(value)}" for name, value in numbers.items())
    return [
        "from math import inf  # of a state without a limit",
        *imports,
        *(f"{name} = {value!r}" for name, value in constants.items()),
        "Array = np.ndarray",
        inspect.getsource(interpolate),
        inspect.getsource(upsample),
        inspect.getsource(ExportedPhysics),
        inspect.getsource(ModelWithPhysics),
        drift,
        f"PHYSICS = ExportedPhysics({type(system).drift.__name__}, {fields})",
        f"PHYSICS_U = {_literal(u)}",
        f"PHYSICS_CHECK = {_literal(checked)}",
    ]


def title_of(fitted: FittedPhysics) -> str:
    """Return the beginning of the errors about physics that cannot be exported.

    Raises
    ------
    ValueError
        The physics has what no file simulates: a covariance, parameters that change, a delay.
    """
    system = fitted.physics.system
    title = f"the physics of the model, {type(system).__name__}, cannot be exported"
    if fitted.covariance is not None:
        raise UserError(
            f"{title}: a file has no covariance of parameters; "
            "identify with physics.covariance=false"
        )
    if system.changes:
        raise UserError(f"{title}: its parameters change over time; leave out its changes")
    if any(delays_of(system)):
        raise UserError(
            f"{title}: an input acts late, which a file cannot simulate; shift this input in the "
            "records instead, and give the system no delay"
        )
    return title


def names_of_drift(drift: Callable[..., None], title: str) -> tuple[dict[str, float], list[str]]:
    """Return the constants that a drift uses, by name, and imports of everything else it uses.

    Raises
    ------
    ValueError
        The drift uses something else than numbers, NumPy, math, and functions of these two.
    """
    known = inspect.getclosurevars(drift)
    constants: dict[str, float] = {}
    imports: list[str] = []
    foreign: list[str] = []
    for name, value in {**known.globals, **known.nonlocals}.items():
        if isinstance(value, float | int):
            constants[name] = value
        elif isinstance(value, ModuleType) and value.__name__ in KNOWN_MODULES:
            is_imported = (value.__name__, name) in (("math", "math"), ("numpy", "np"))
            imports += [] if is_imported else [f"import {value.__name__} as {name}"]
        elif (origin := _module_of_function(value)) is not None:
            imports.append(f"from {origin} import {value.__name__} as {name}")
        else:
            foreign.append(name)
    if foreign:
        raise UserError(
            f"{title}: its drift needs {sorted(foreign)}; "
            "write it with numpy, math and numbers alone"
        )
    return constants, imports


def _module_of_function(value: Any) -> str | None:
    """Return the module, NumPy or math, that a function belongs to; None: neither."""
    name = getattr(value, "__name__", None)
    for module in KNOWN_MODULES:
        if isinstance(name, str) and getattr(sys.modules[module], name, None) is value:
            return module
    return None


def numbers_of(fitted: FittedPhysics, title: str) -> dict[str, object]:
    """Return the fields of `ExportedPhysics` but the drift.

    Raises
    ------
    ValueError
        An output or the initial state is not affine.
    """
    physics = fitted.physics
    system = physics.system
    parameters = physics.initial_parameters
    low = np.array([parameter.lower for parameter in parameters])
    high = np.array([parameter.upper for parameter in parameters])

    def outputs(state: np.ndarray) -> np.ndarray:
        return fitted.values(state[None])[0]

    def initial_state(shares: np.ndarray) -> np.ndarray:
        values = (low + shares * (high - low)).tolist()
        names = [parameter.name for parameter in parameters]
        return replace(system, **dict(zip(names, values, strict=True))).initial_state()

    matrix, offset = _affine(outputs, len(system.states), f"{title}: an output")
    directions, lowest = _affine(initial_state, len(parameters), f"{title}: the initial state")
    values = np.array([getattr(system, parameter.name) for parameter in parameters])
    shares = (values - low) / (high - low)  # of the range, even if the estimation takes logarithms
    return {
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


def _affine(
    function: Callable[[np.ndarray], np.ndarray], n: int, title: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return matrix and offset of an affine function of n numbers.

    Raises
    ------
    ValueError
        The function is not affine; ``title`` names it.
    """
    offset = function(np.zeros(n))
    slopes = [function(row) - offset for row in np.eye(n)]
    matrix = np.stack(slopes, axis=1) if slopes else np.zeros((len(offset), 0))
    probe = np.random.default_rng(0).uniform(size=n)
    if not np.allclose(function(probe), offset + matrix @ probe, rtol=1e-9, atol=1e-9):
        raise UserError(f"{title} is not affine")
    return matrix, offset


def simulate_check(fitted: FittedPhysics) -> tuple[np.ndarray, np.ndarray]:
    """Return random inputs (n, n_u), and the signals (n, n_s) that a file must simulate."""
    physics = fitted.physics
    system = physics.system
    low, high = system.input_limits()
    u = np.random.default_rng(0).normal(size=(N_PHYSICS_CHECK_SAMPLES, len(system.inputs)))
    u = np.clip(u, low, high)
    no_noise = np.zeros((N_PHYSICS_CHECK_SAMPLES, len(system.noises)))
    interpolation = Interpolation(physics.interpolation)
    trajectory = integrate(system, system.initial_state(), u, no_noise, interpolation)
    return u, fitted.values(trajectory.states)


def _literal(value: object) -> str:
    """Return the Python text of numbers, names or an array."""
    if isinstance(value, np.ndarray):
        return f"np.array({value.tolist()!r}).reshape({value.shape})"
    return repr(value)
