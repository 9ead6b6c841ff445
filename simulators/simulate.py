"""Simulation of a system in open loop and in closed loop."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.controllers.controller import Controller
from simulators.integrators import Stepper, check_drift, integrate, stepper
from simulators.noise import held_noise, random_streams
from simulators.system import Signal, System
from simulators.trajectory import Sample, Trajectory, sample_times


def simulate(
    system: System,
    input: ArrayLike,
    *,
    dt: float | None = None,
    substeps: int | None = None,
    initial_state: ArrayLike | None = None,
    seed: int = 0,
    noise: bool = True,
) -> Trajectory:
    """Simulate a system in open loop with a held input.

    Parameters
    ----------
    system : System
        System to simulate.
    input : (n, n_u) array_like
        Row k is applied from k dt to (k + 1) dt; the last row is recorded but has no effect.
    dt : float, optional
        Sampling interval [s] instead of the system's own.
    substeps : int, optional
        Runge-Kutta steps per sample instead of the system's own.
    initial_state : (n_x,) array_like, optional
        State at time zero instead of the system's own.
    seed : int, optional
        Seed of the run; the process noise is its first stream (`simulators.noise.Streams`).
    noise : bool, optional
        False leaves the process noise out.

    Returns
    -------
    Trajectory
        The n samples; its `system` carries the dt and substeps in use.

    Raises
    ------
    ValueError
        If the input or the initial state has the wrong shape or is not finite.
    DivergenceError
        If a state leaves the finite numbers.

    Examples
    --------
    Two hours without heating at 0 degC outside:

    >>> from simulators.systems.building import Building
    >>> trajectory = simulate(Building(), np.zeros((9, 2)), noise=False)
    >>> np.round(trajectory.output[::4, 0], 2)
    array([20.  , 17.61, 16.06])
    """
    system = _sampled(system, dt, substeps)
    u = _finite_matrix(system, input)
    x0 = _start(system, initial_state, u)
    w = _process_noise(system, len(u), seed, noise)
    x = integrate(system, x0, u, w)
    return Trajectory(system, seed, sample_times(system, len(u)), u, x, _outputs(system, x), w)


def closed_loop(
    system: System,
    controller: Controller,
    exogenous: Mapping[str, ArrayLike],
    *,
    n_samples: int | None = None,
    dt: float | None = None,
    substeps: int | None = None,
    initial_state: ArrayLike | None = None,
    seed: int = 0,
    noise: bool = True,
) -> Iterator[Sample]:
    """Simulate a system under a controller, one sample at a time.

    Sample k: the output is measured at k dt, the controller sees it, its input and the exogenous inputs
    are held from k dt to (k + 1) dt. A sample depends on exogenous values up to its own row only.

    Parameters
    ----------
    system : System
        System to simulate.
    controller : Controller
        Reads outputs and drives inputs by name.
    exogenous : mapping of str to (n,) array_like
        The inputs that the controller does not drive.
    n_samples : int, optional
        Number of samples n; needed only without exogenous inputs.
    dt, substeps, initial_state, seed, noise
        As in `simulate`.

    Returns
    -------
    iterator of Sample
        The samples k = 0 to n - 1, each computed when it is asked for.

    Raises
    ------
    ValueError
        At the call: if an input is driven twice or not at all, a name is unknown, a length or shape does
        not fit, or the controller runs at another dt.
    DivergenceError
        While iterating: if a state leaves the finite numbers.

    Examples
    --------
    >>> from simulators.controllers.pi import PI
    >>> from simulators.systems.building import Building
    >>> samples = closed_loop(Building(), PI(), {"ambient_temperature": np.zeros(96)}, noise=False)
    >>> next(sample.time / 3600 for sample in samples if sample.input[1] > 0)  # heating starts, h
    1.25
    """
    system = _sampled(system, dt, substeps)
    _check_wiring(system, controller, exogenous)
    u = _exogenous_matrix(system, exogenous, n_samples)
    x0 = _start(system, initial_state, u)
    w = _process_noise(system, len(u), seed, noise)
    return _run(system, controller, stepper(system), u, x0, w)


def _run(
    system: System,
    controller: Controller,
    advance: Stepper,
    u: NDArray[np.float64],
    x0: NDArray[np.float64],
    w: NDArray[np.float64],
) -> Iterator[Sample]:
    """Iterate the closed loop; the driven columns of `u` are filled in on the way."""
    control, output = controller.control, system.output
    read = [_names(system.outputs).index(name) for name in controller.outputs_read]
    driven = [_names(system.inputs).index(name) for name in controller.inputs_driven]
    x, memory, dt = x0.copy(), controller.initial_state(), float(system.dt)
    for k in range(len(u)):
        time = k * dt
        if k:
            advance((k - 1) * dt, x, u[k - 1], w[k - 1])
        y = np.array(output(x))
        values = y.tolist()
        command, memory = control(time, [values[i] for i in read], memory)
        for i, value in zip(driven, command, strict=True):
            if not math.isfinite(value):
                raise _bad_command(system, controller, time, i, value)
            u[k, i] = value
        yield Sample(time, y, u[k].copy(), x.copy(), w[k].copy())


def _bad_command(system: System, controller: Controller, time: float, index: int, value: float) -> ArithmeticError:
    """Describe a controller that returned a value that is not finite."""
    return ArithmeticError(
        f"{type(controller).__name__} set '{system.inputs[index].name}' to {value} at time {time:.6g} s: "
        "expected a finite number; check gains, limits and set-point"
    )


def _sampled(system: System, dt: float | None, substeps: int | None) -> System:
    """Return the system with its sampling replaced where given."""
    system = system if dt is None else replace(system, dt=dt)
    return system if substeps is None else replace(system, substeps=substeps)


def _names(signals: tuple[Signal, ...]) -> list[str]:
    """Return the names of signals."""
    return [signal.name for signal in signals]


def _outputs(system: System, state: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the outputs (n, n_y) of states (n, n_x) as an array of their own."""
    return np.array(system.output(state), dtype=np.float64)


def _process_noise(system: System, n: int, seed: int, drawn: bool) -> NDArray[np.float64]:
    """Draw the process noise (n, n_w) of a run, or zeros."""
    std = system.noise_std()
    return held_noise(random_streams(seed).process, n, std if drawn else np.zeros_like(std))


def _finite_matrix(system: System, input: ArrayLike) -> NDArray[np.float64]:
    """Copy an input to a checked C-contiguous (n, n_u) array."""
    names = _names(system.inputs)
    u = np.array(input, dtype=np.float64, order="C")
    if u.ndim != 2 or u.shape[1] != len(names) or len(u) < 1:
        raise ValueError(
            f"{type(system).__name__}: expected an input of shape (n >= 1, {len(names)}) with columns "
            f"{names}, got {u.shape}; stack the signals as columns"
        )
    bad = np.argwhere(~np.isfinite(u))
    if len(bad):
        k, i = bad[0]
        raise ValueError(
            f"{type(system).__name__}: input '{names[i]}' is {u[k, i]} at sample {k}: expected finite "
            "numbers; repair the input"
        )
    return u


def _start(system: System, initial_state: ArrayLike | None, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the checked state at time zero; the drift must be finite there."""
    default = system.initial_state()
    x0 = np.array(default if initial_state is None else initial_state, dtype=np.float64)
    if x0.shape != (len(system.states),) or not np.all(np.isfinite(x0)):
        raise ValueError(
            f"{type(system).__name__}: expected {len(system.states)} finite initial states "
            f"{_names(system.states)}, got {x0.tolist()}; change initial_state"
        )
    check_drift(system, x0, u[0])
    return x0


def _check_wiring(system: System, controller: Controller, exogenous: Mapping[str, ArrayLike]) -> None:
    """Check that every input is given exactly once and every read output exists, at the same dt."""
    title = f"{type(controller).__name__} on {type(system).__name__}"
    outputs, inputs = _names(system.outputs), _names(system.inputs)
    given = sorted([*controller.inputs_driven, *exogenous])
    if given != sorted(inputs):
        raise ValueError(
            f"{title}: expected each input of {inputs} exactly once, got {list(controller.inputs_driven)} "
            f"driven by the controller and {list(exogenous)} exogenous; give the missing and drop the others"
        )
    if not set(controller.outputs_read) <= set(outputs):
        raise ValueError(
            f"{title}: expected outputs among {outputs}, the controller reads "
            f"{list(controller.outputs_read)}; change the output of the controller"
        )
    if controller.dt != system.dt:
        raise ValueError(
            f"{title}: expected the controller at the dt of the system, {system.dt:g} s, got "
            f"{controller.dt:g} s; change dt of the controller"
        )


def _exogenous_matrix(system: System, exogenous: Mapping[str, ArrayLike], n_samples: int | None) -> NDArray[np.float64]:
    """Stack the exogenous inputs as columns of (n, n_u); driven columns are zero."""
    signals = {name: np.asarray(values, dtype=np.float64) for name, values in exogenous.items()}
    shapes = {name: values.shape for name, values in signals.items()}
    lengths = {shape[0] for shape in shapes.values() if shape}
    n = n_samples if n_samples is not None else min(lengths, default=0)
    if n < 1 or any(shape != (n,) for shape in shapes.values()):
        raise ValueError(
            f"closed_loop: expected exogenous inputs of one length n_samples >= 1, got shapes {shapes} and "
            f"n_samples={n_samples}; cut the signals to the same length"
        )
    columns = [signals.get(name, np.zeros(n)) for name in _names(system.inputs)]
    return _finite_matrix(system, np.stack(columns, axis=1) if columns else np.zeros((n, 0)))
