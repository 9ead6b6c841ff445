"""What a model as functions of CasADi computes of its physics.

The classes and functions are copied into the exported file, behind the text of
`sysid.export.casadi_formulas` and of `experiments.export.standalone_physics`, whose names they use.
The toolbox itself imports this file only to export one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import casadi
import numpy as np

from experiments.export.standalone_physics import ModelWithPhysics
from sysid.export.casadi_formulas import SampleFunctions

#: Functions of math and NumPy that have another name in CasADi.
CASADI_NAMES = {
    "abs": "fabs",
    "absolute": "fabs",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "maximum": "fmax",
    "minimum": "fmin",
    "pow": "power",
    "where": "if_else",
}


class Symbolic:
    """Functions and constants of math and NumPy for expressions of CasADi."""

    def __getattr__(self, name: str) -> Any:
        """Return the function of CasADi, or the constant, of this name."""
        constant = getattr(math, name, None)
        if isinstance(constant, float):
            return constant
        return getattr(casadi, CASADI_NAMES.get(name, name))


def largest(*values: Any) -> Any:
    """Return the largest of expressions, as max does for numbers."""
    result = values[0]
    for value in values[1:]:
        result = casadi.fmax(result, value)
    return result


def smallest(*values: Any) -> Any:
    """Return the smallest of expressions, as min does for numbers."""
    result = values[0]
    for value in values[1:]:
        result = casadi.fmin(result, value)
    return result


def symbolic_drift(drift: Callable[..., None]) -> Callable[..., None]:
    """Return a drift whose functions of math and NumPy are those of CasADi."""
    symbolic = Symbolic()
    names = dict(drift.__globals__)
    for name in drift.__code__.co_names:
        value: Any = names.get(name)
        if value is math or value is np:
            names[name] = symbolic
        elif callable(value) and (
            getattr(value, "__module__", None) in ("math", "numpy") or isinstance(value, np.ufunc)
        ):
            names[name] = getattr(symbolic, value.__name__)
    names.update(max=largest, min=smallest, abs=casadi.fabs)
    return FunctionType(
        drift.__code__, names, drift.__name__, drift.__defaults__, drift.__closure__
    )


class SamplesWithPhysics(SampleFunctions):
    """Functions of one sample of a model and of the physics beside it.

    The state is that of the model, then that of the physics, then the number of the sample.
    """

    def __init__(self, both: ModelWithPhysics) -> None:
        """Build the functions."""
        self.both = both
        model: Any = both.model
        self.model = model
        physics = both.physics
        self.n_physics = physics.matrix.shape[1]
        self.n_states = model.n_states + self.n_physics + 1
        self.n_inputs = len(both.names)
        self.n_parameters = model.n_parameters
        self.n_output_states = model.n_output_states
        self.drift = symbolic_drift(physics.drift)
        self.advance_physics = self.build_physics()
        state, u, parameters = self.symbols(1)
        errors = casadi.MX.sym("errors", self.n_output_states, self.n_output_states)
        of_model, of_physics, k = casadi.vertsplit(
            state, [0, model.n_states, self.n_states - 1, self.n_states]
        )
        inputs = self.inputs_of(of_physics, u)
        following = self.advance_physics(of_physics, u, k)
        names_in = ["state", "u", "parameters"]
        after, y = model.transition(of_model, inputs, parameters)
        self.transition = casadi.Function(
            "transition",
            [state, u, parameters],
            [casadi.vertcat(after, following), y],
            names_in,
            ["next", "mean"],
        )
        after, y, variance, noise_variance = model.step(of_model, inputs, parameters)
        self.step = casadi.Function(
            "step",
            [state, u, parameters],
            [casadi.vertcat(after, following), y, variance, noise_variance],
            names_in,
            ["next", "mean", "variance", "noise_variance"],
        )
        after, y, variance, covariance = model.spread(of_model, inputs, parameters, errors)
        self.spread = casadi.Function(
            "spread",
            [state, u, parameters, errors],
            [casadi.vertcat(after, following), y, variance, covariance],
        )

    def build_physics(self) -> Any:
        """Return the function of the next state of the physics, and of the next sample number."""
        x = casadi.MX.sym("x", self.n_physics)
        u = casadi.MX.sym("u", self.n_inputs)
        k = casadi.MX.sym("k")
        own = [u[self.both.names.index(name)] for name in self.both.physics.inputs]
        following = casadi.vertcat(self.advance(x, own, k), k + 1)
        return casadi.Function("physics", [x, u, k], [following])

    def inputs_of(self, of_physics: Any, u: Any) -> Any:
        """Return the inputs of the model from the state of the physics and the given inputs."""
        physics = self.both.physics
        signals = casadi.DM(physics.matrix) @ of_physics + casadi.DM(physics.offset)
        values = []
        for name in self.model.inputs:
            if name in physics.signals:
                values.append(signals[list(physics.signals).index(name)])
            else:
                values.append(u[self.both.names.index(name)])
        return casadi.vertcat(*values)

    def advance(self, state: Any, inputs: Sequence[Any], k: Any) -> Any:
        """Return the state of the physics one sample later; the inputs are held.

        The classical Runge-Kutta method of order four integrates the drift.
        """
        physics = self.both.physics
        h = physics.dt / physics.substeps
        x = state
        for j in range(physics.substeps):
            t = k * physics.dt + j * h
            slopes: list[Any] = []
            for share in (0.0, 0.5, 0.5, 1.0):
                point = x + share * h * slopes[-1] if slopes else x
                derivative = [casadi.MX(np.nan)] * self.n_physics
                elements = casadi.vertsplit(point) if self.n_physics else []
                self.drift(
                    t + share * h, elements, inputs, physics.noise, physics.parameters, derivative
                )
                slopes.append(casadi.vertcat(*derivative))
            k1, k2, k3, k4 = slopes
            x = x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
            x = casadi.fmin(casadi.fmax(x, physics.limits[0]), physics.limits[1])
        return x

    def signals(self, u: Any) -> np.ndarray:
        """Return the signals of the physics (n, n_s) from its first state, as `PHYSICS.simulate`.

        u (n, n_u) are the inputs of the physics.
        """
        physics = self.both.physics
        x = physics.state(physics.shares)
        rows = []
        for k, row in enumerate(u):
            rows.append(physics.matrix @ x + physics.offset)
            given = np.zeros(self.n_inputs)
            given[[self.both.names.index(name) for name in physics.inputs]] = row
            x = self.advance_physics(x, given, k).full()[:-1, 0]
        return np.array(rows)

    def state(self, u: Any, y: Any) -> np.ndarray:
        """Return the state after samples of the given inputs u (n, n_u) and outputs y (n, m).

        The outputs determine the initial state of the physics.
        """
        both = self.both
        inputs, physics_inputs, x = both.split(u, y)
        signals = both.physics.simulate(physics_inputs, x)
        for k, row in enumerate(physics_inputs):
            x = both.physics.step(k * both.physics.dt, x, both.physics.between(row[None])[0])
        of_model = self.model.state(both.combine(inputs, signals), y)
        return np.concatenate([of_model, x, [len(inputs)]])
