"""`sysid-export`: a stored model as one Python file that needs NumPy only."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from experiments.launch import entry

if TYPE_CHECKING:
    import numpy as np

    from experiments.physics import FittedPhysics

N_CHECKED = 20  # samples of the physics that an exported file simulates to check itself

log = logging.getLogger(__name__)
main = entry("export", "experiments.export")


def run(config: DictConfig, folder: Path) -> None:
    """Write the model of the configuration to its output, or to the folder of the run.

    Raises
    ------
    ValueError
        No model is named, it cannot be exported, or the output exists.
    sysid.StoreError
        The model cannot be read, or the file not be written.
    """
    from experiments.build import model_of, trusted_names
    from experiments.options import flag
    from experiments.physics import read_physics
    from sysid import JointModel, Model, export_python
    from sysid.model.model_file import read_models
    from sysid.store import header

    source = model_of(config)
    path = folder / f"{source.stem}.py" if config.output is None else Path(str(config.output))
    if path.exists() and not flag("overwrite", config.overwrite):
        raise ValueError(f"output: {path} exists; name another file, or say overwrite=true")
    log.info("Export %s as one Python file that needs NumPy only", source)
    trusted = trusted_names(config)
    kind = Model if "" in read_models(source) else JointModel  # one model, or those of all outputs
    model, stated = kind.load(source, trusted=trusted), header(source)
    more = physics_text(read_physics(str(stated["physics"]), trusted)) if "physics" in stated else {}
    log.info("Exported: %s; next: python %s checks it", export_python(model, path, **more), path)


def physics_text(fitted: FittedPhysics) -> dict[str, str]:
    """The equations beside a model as Python text, for `sysid.export_python`: the source of the drift, and numbers.

    Raises
    ------
    ValueError
        A drift that needs more than NumPy, math and numbers; outputs, or an initial state, that are not affine;
        parameters that change over time.
    """
    import inspect
    import textwrap
    from dataclasses import replace
    from types import ModuleType

    import numpy as np

    from experiments.physics import START
    from experiments.standalone_physics import ExportedPhysics, LoopWithPhysics, ModelWithPhysics
    from simulators import Interpolation
    from simulators.runge_kutta import integrate
    from simulators.system import limits_of, names_of

    physics, system = fitted.physics, fitted.physics.system
    title = f"the physics of the model, {type(system).__name__}, cannot be exported"
    known = inspect.getclosurevars(type(system).drift)
    needed = {**known.globals, **known.nonlocals}
    constants = {name: value for name, value in needed.items() if isinstance(value, float | int)}
    modules = {name: value.__name__ for name, value in needed.items() if isinstance(value, ModuleType)}
    foreign = sorted(needed.keys() - constants.keys() - modules.keys()) or sorted(
        {*modules.values()} - {"math", "numpy"}
    )
    if foreign:
        raise ValueError(f"{title}: its drift needs {foreign}; write it with numpy, math and numbers alone")
    if physics.interpolation != "held":
        raise ValueError(f"{title}: a file holds inputs between samples; estimate it with physics.interpolation=held")
    if fitted.covariance is not None:
        raise ValueError(f"{title}: a file has no covariance of parameters; identify with physics.covariance=false")
    if system.changes:
        raise ValueError(f"{title}: its parameters change over time; leave out its changes")

    def affine(function: Callable[[np.ndarray], np.ndarray], n: int, what: str) -> tuple[np.ndarray, np.ndarray]:
        """Matrix and offset of a function of n numbers."""
        offset = function(np.zeros(n))
        matrix = np.stack([function(row) - offset for row in np.eye(n)], axis=1) if n else np.zeros((len(offset), 0))
        probe = np.random.default_rng(0).uniform(size=n)
        if not np.allclose(function(probe), offset + matrix @ probe, rtol=1e-9, atol=1e-9):
            raise ValueError(f"{title}: {what} is not affine")
        return matrix, offset

    own = physics.initial_parameters
    low, high = (np.array([getattr(one, end) for one in own]) for end in ("lower", "upper"))

    def initial_state(shares: np.ndarray) -> np.ndarray:
        values = (low + shares * (high - low)).tolist()
        return replace(system, **dict(zip([one.name for one in own], values, strict=True))).initial_state()

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
        "inputs": names_of(system.inputs),
        "outputs": names_of(system.outputs),
        "signals": tuple(physics.signals),
        "matrix": matrix,
        "offset": offset,
        "lowest": lowest,
        "directions": directions,
        "shares": shares,
        "n_first": START,
    }
    u = np.clip(np.random.default_rng(0).normal(size=(N_CHECKED, len(system.inputs))), *system.input_limits())
    states = integrate(system, system.initial_state(), u, np.zeros((N_CHECKED, len(system.noises))), Interpolation.held)
    lines = [
        *(f"import {module} as {name}" for name, module in modules.items() if name not in ("math", "np")),
        *(f"{name} = {value!r}" for name, value in constants.items()),
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
    import numpy as np

    return f"np.array({value.tolist()!r}).reshape({value.shape})" if isinstance(value, np.ndarray) else repr(value)


if __name__ == "__main__":
    main()
