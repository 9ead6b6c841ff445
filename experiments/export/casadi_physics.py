"""The text of the physics beside a model, for a file of CasADi functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.export.standalone_physics import physics_lines, title_of
from experiments.plant.physics import FittedPhysics
from simulators import Interpolation
from sysid.errors import UserError
from sysid.export.casadi_file import check_casadi


def casadi_physics_text(fitted: FittedPhysics) -> dict[str, str]:
    """Return the equations beside a model as functions of CasADi, for `sysid.export_casadi`.

    Raises
    ------
    ValueError
        As `physics_text`; the inputs are not held; or the drift decides by conditions, or uses what
        CasADi does not have.
    """
    physics = fitted.physics
    title = title_of(fitted)
    if Interpolation(physics.interpolation) is not Interpolation.held:
        raise UserError(
            f"{title}: expected inputs that are held, these are {physics.interpolation}: a sample "
            "knows no later input; take format=numpy"
        )
    check_casadi()
    from experiments.export import casadi_with_physics as copied

    _check_drift(fitted, copied.symbolic_drift, title)
    lines = [
        "import math",
        "from collections.abc import Callable",
        "from types import FunctionType",
        *physics_lines(fitted),
        f"CASADI_NAMES = {copied.CASADI_NAMES!r}",
        inspect.getsource(copied.Symbolic),
        inspect.getsource(copied.largest),
        inspect.getsource(copied.smallest),
        inspect.getsource(copied.symbolic_drift),
        inspect.getsource(copied.SamplesWithPhysics),
        "WITH_PHYSICS = SamplesWithPhysics(ModelWithPhysics(MODEL, PHYSICS))",
        "GIVEN_INPUTS = tuple(WITH_PHYSICS.both.names)  # in the order of u",
        *(
            f"{name} = WITH_PHYSICS.{name}"
            for name in ("state", "transition", "step", "simulation", "forecast")
        ),
    ]
    usage = (
        f"The signals {', '.join(physics.signals)} are simulated beside it (PHYSICS): u has the "
        "other inputs, GIVEN_INPUTS. The state is that of the model, then that of the physics, "
        "then the number of the sample."
    )
    return {
        "addition": "\n".join(lines),
        "usage": usage,
        "checks": ", (WITH_PHYSICS.signals(PHYSICS_U), PHYSICS_CHECK.ravel())",
    }


def _check_drift(
    fitted: FittedPhysics, symbolic_drift: Callable[[Any], Callable[..., None]], title: str
) -> None:
    """Raise UserError unless the drift can be evaluated with expressions of CasADi."""
    import casadi

    system = fitted.physics.system
    state = casadi.vertsplit(casadi.MX.sym("x", len(system.states)))
    inputs = [casadi.MX.sym("u") for _ in system.inputs]
    derivative: list[Any] = [None] * len(state)
    noise = np.zeros(len(system.noises))
    parameters = system.parameters()
    try:
        drift = symbolic_drift(type(system).drift)
        drift(casadi.MX.sym("t"), state, inputs, noise, parameters, derivative)
        casadi.vertcat(*derivative)
    except Exception as error:  # of the drift of a user, with arguments that it was not made for
        reason = str(error).splitlines()[0] if str(error) else ""
        raise UserError(
            f"{title} to CasADi: expected a drift that is one formula, without conditions, of "
            f"functions that CasADi has ({type(error).__name__}: {reason}); take format=numpy or "
            "format=c"
        ) from error
