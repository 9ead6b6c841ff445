"""Physics beside a model as C: translated drifts, integrated as by the toolbox."""

from dataclasses import dataclass

import numpy as np
import pytest

from c_models import STRICT, compiler, run
from experiments.export.c_drift import physics_as_c
from experiments.plant.physics import FittedPhysics, Physics
from simulators import (
    BoucWen,
    Building,
    CascadedTanks,
    Heater,
    Servo,
    Silverbox,
    VanDerPol,
    WienerHammerstein,
)
from sysid import (
    AffineMap,
    Model,
    Narx,
    OnlineGP,
    SquaredExponential,
    UserError,
    ZeroMean,
    export_c,
)

SYSTEMS = (
    BoucWen(),
    Building(),
    CascadedTanks(),
    Heater(heat_delay=0),
    Servo(),
    Silverbox(),
    VanDerPol(),
    WienerHammerstein(),
)


@dataclass(frozen=True)
class Bent(CascadedTanks):
    """Tanks whose drift has conditions and functions that the shipped systems do not use."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        """Write the rates."""
        level = state[0]
        if level > 5.0 and not input[0] < 0.0:
            rate = -0.1 * abs(level) ** 1.5
        else:
            rate = 0.2 if -1.0 < level <= 2.0 or level > 1e6 else 0.1
        rate *= 1.0 + 0.01 * time
        derivative[0] = rate + min(input[0], 3.0)
        derivative[1] = parameters[1] * level - state[1] + noise[1]


@dataclass(frozen=True)
class Looping(CascadedTanks):
    """Tanks whose drift has a loop."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        """Write the rates."""
        for i in range(2):
            derivative[i] = -state[i]


def model_beside(physics):
    """Return a small model with the inputs and the signals of the physics."""
    given = [signal.name for signal in physics.system.inputs]
    narx = Narx({"y": 1}, {name: [1] for name in [*given, *physics.signals]})
    gp = OnlineGP(SquaredExponential(1.0, [2.0] * narx.n_features), noise_variance=0.01, budget=8)
    x = np.random.default_rng(0).normal(size=(8, narx.n_features))
    gp.fit(x, np.sin(x[:, 0]))
    return Model(narx, AffineMap.identity(narx.n_features), ZeroMean(), gp)


def exported(system, folder, precision="double", **settings):
    """Export a model beside physics; return what the compiled self-test says."""
    physics = Physics(system, **settings)
    model = model_beside(physics)
    addition = physics_as_c(FittedPhysics(physics), model.narx.input_names, precision=precision)
    export_c(model, folder / "plant.c", precision=precision, addition=addition)
    command = [compiler(), *STRICT, "-DSYSID_TEST", "plant.c", "-o", "plant", "-lm"]
    run(command, folder)
    return run(["./plant"], folder)


@pytest.mark.parametrize("system", [*SYSTEMS, Bent()], ids=lambda system: type(system).__name__)
def test_the_signals_of_the_physics_are_those_of_the_toolbox(system, tmp_path):
    said = exported(system, tmp_path)
    assert float(said.partition("physics  ")[2].split()[0]) < 1e-10


def test_float_is_as_good_as_it_can_be(tmp_path):
    said = exported(Servo(), tmp_path, precision="float")
    assert 1e-12 < float(said.partition("physics  ")[2].split()[0]) < 1e-3


def test_a_drift_that_has_no_translation_is_named(tmp_path):
    with pytest.raises(UserError, match=r"Looping, cannot be exported as C: its drift contains"):
        exported(Looping(), tmp_path)


def test_inputs_that_are_not_held_are_refused(tmp_path):
    with pytest.raises(UserError, match="C knows no input before its time"):
        exported(CascadedTanks(), tmp_path, interpolation="linear")
