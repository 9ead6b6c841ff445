"""Physics beside a model as functions of CasADi: as the exported NumPy file computes it."""

import os
import runpy
from dataclasses import dataclass

import numpy as np
import pytest

from experiments.export.casadi_physics import casadi_physics_text
from experiments.export.standalone_physics import physics_text
from experiments.plant.physics import FittedPhysics, Physics
from simulators import BoucWen, Building, CascadedTanks, Servo, Silverbox, VanDerPol
from sysid import (
    AffineMap,
    Model,
    Narx,
    OnlineGP,
    SquaredExponential,
    UserError,
    ZeroMean,
    export_casadi,
    export_python,
)

if os.environ.get("CI"):
    import casadi
else:
    casadi = pytest.importorskip("casadi", reason='CasADi: pip install -e ".[control]"')

SYSTEMS = (BoucWen(), Building(), CascadedTanks(), Servo(), Silverbox(), VanDerPol())


@dataclass(frozen=True)
class Timed(CascadedTanks):
    """Tanks whose drift depends on time, and calls functions in several ways."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        """Write the rates."""
        level = np.maximum(state[0], 0.1)
        derivative[0] = -0.1 * abs(level) ** 1.5 + min(input[0], 3.0, 4.0) * np.sin(0.1 * time)
        derivative[1] = np.arctan2(level, 2.0) - state[1] + 0.0 * np.pi


@dataclass(frozen=True)
class Deciding(CascadedTanks):
    """Tanks whose drift decides by a condition."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        """Write the rates."""
        derivative[0] = 1.0 if state[0] > 0.0 else -1.0
        derivative[1] = -state[1]


def model_beside(physics):
    """Return a small model with the inputs and the signals of the physics, and its own output."""
    given = [signal.name for signal in physics.system.inputs]
    narx = Narx({"y": 2}, {name: [0, 1] for name in [*given, *physics.signals]}, predict="change")
    gp = OnlineGP(SquaredExponential(1.0, [2.0] * narx.n_features), noise_variance=0.01, budget=8)
    x = np.random.default_rng(0).normal(size=(8, narx.n_features))
    gp.fit(x, np.sin(x[:, 0]))
    return Model(narx, AffineMap.identity(narx.n_features), ZeroMean(), gp)


def export_both(system, folder):
    """Return the names of the files for NumPy and for CasADi."""
    physics = Physics(system)
    model = model_beside(physics)
    fitted = FittedPhysics(physics)
    of_numpy = export_python(model, folder / "with_numpy.py", **physics_text(fitted))
    of_casadi = export_casadi(model, folder / "with_casadi.py", **casadi_physics_text(fitted))
    return runpy.run_path(str(of_numpy)), runpy.run_path(str(of_casadi))


@pytest.mark.parametrize("system", [*SYSTEMS, Timed()], ids=lambda system: type(system).__name__)
def test_samples_with_physics_are_those_of_the_file_for_numpy(system, tmp_path):
    """A free run, and a forecast of it, from the first guess of the state of the physics."""
    expected, exported = export_both(system, tmp_path)
    assert exported["self_check"]() < 1e-9
    low, high = system.input_limits()
    n_inputs = len(exported["GIVEN_INPUTS"])
    u = np.clip(np.random.default_rng(1).normal(size=(15, n_inputs)), low, high)
    physics = exported["PHYSICS"]
    of_model = np.linspace(0.1, 0.3, exported["MODEL"].n_states)
    first = np.concatenate([of_model, physics.state(physics.shares), [0.0]])
    mean, last = exported["simulation"](15)(first, u.T, exported["PARAMETERS"])
    forecast_mean, variance, _ = exported["forecast"](15)(first, u.T, exported["PARAMETERS"])
    np.testing.assert_allclose(forecast_mean.full(), mean.full(), rtol=1e-12, atol=1e-12)
    assert (variance.full() > 0).all()
    simulated = simulate_by_hand(expected, u, first)
    assert float(last[-1]) == first[-1] + 15
    np.testing.assert_allclose(mean.full()[0], simulated, rtol=1e-9, atol=1e-9)


def simulate_by_hand(expected, u, first):
    """Return the outputs (n,) of the NumPy model and physics, from a state of the CasADi file."""
    both = expected["WITH_PHYSICS"]
    physics, model = both.physics, both.model
    n_physics = physics.matrix.shape[1]
    own = [both.names.index(name) for name in physics.inputs]
    x = first[-1 - n_physics : -1]
    k = first[-1]
    # the lags of the model: two of the output, one of every input
    y = [first[1], first[0]]
    before = first[2 : 2 + len(model.inputs)]
    outputs = []
    for row in u:
        signals = x[None] @ physics.matrix.T + physics.offset
        now = both.combine(row[None], signals)[0]
        loop_u = np.stack([before, before, now])
        run = model.simulate(loop_u, np.array(y)[:, None])
        outputs.append(run[-1])
        y = [y[-1], outputs[-1]]
        before = now
        x = physics.step(k * physics.dt, x, physics.between(row[own][None])[0])
        k += 1
    return np.array(outputs)


def test_the_first_outputs_give_the_state_of_the_physics(tmp_path):
    """Of a physics whose output the model predicts."""
    physics = Physics(Servo(), initial={"initial_velocity": {"lower": -2.0, "upper": 2.0}})
    name = physics.system.outputs[0].name
    given = [signal.name for signal in physics.system.inputs]
    inputs = {signal: [1] for signal in [*given, *physics.signals]}
    narx = Narx({name: 1}, inputs, predict="value")
    gp = OnlineGP(SquaredExponential(1.0, [2.0] * narx.n_features), noise_variance=0.01, budget=8)
    x = np.random.default_rng(0).normal(size=(8, narx.n_features))
    gp.fit(x, np.sin(x[:, 0]))
    model = Model(narx, AffineMap.identity(narx.n_features), ZeroMean(), gp)
    fitted = FittedPhysics(physics)
    of_numpy = export_python(model, tmp_path / "a.py", **physics_text(fitted))
    of_casadi = export_casadi(model, tmp_path / "b.py", **casadi_physics_text(fitted))
    expected, exported = runpy.run_path(str(of_numpy)), runpy.run_path(str(of_casadi))
    generator = np.random.default_rng(1)
    u = generator.normal(size=(40, 1))
    y = np.cumsum(0.01 * generator.normal(size=20))
    simulated = expected["simulate"](u, y)
    first = exported["state"](u[:20], y)
    mean, _ = exported["simulation"](20)(first, u[20:].T, exported["PARAMETERS"])
    np.testing.assert_allclose(mean.full()[0], simulated[20:], rtol=1e-9, atol=1e-9)


def test_what_no_formula_is_is_refused():
    with pytest.raises(UserError, match=r"Deciding, cannot be .*one formula, without conditions"):
        casadi_physics_text(FittedPhysics(Physics(Deciding())))


def test_inputs_that_are_not_held_are_refused():
    with pytest.raises(UserError, match="knows no later input"):
        casadi_physics_text(FittedPhysics(Physics(CascadedTanks(), interpolation="linear")))
