"""Simulation of a system in open loop and in closed loop."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.controllers.controller import Controller
from simulators.integrators import Stepper, integrate, stepper
from simulators.interpolation import Interpolation
from simulators.measurement import MeasurementNoise
from simulators.start import (
    exogenous_matrix,
    input_matrix,
    names_of,
    noise_of,
    outputs_of,
    process_std,
    sampled,
    start_of,
)
from simulators.system import System
from simulators.trajectory import Sample, Trajectory, sample_times

NOISELESS = MeasurementNoise()


def simulate(
    system: System,
    input: ArrayLike | None = None,
    *,
    n_samples: int | None = None,
    dt: float | None = None,
    substeps: int | None = None,
    interpolation: Interpolation | str = Interpolation.held,
    initial_state: ArrayLike | None = None,
    seed: int = 0,
    noise: bool = True,
    measurement: MeasurementNoise = NOISELESS,
) -> Trajectory:
    """Simulate a system in open loop.

    Parameters
    ----------
    system : System
        System to simulate.
    input : (n, n_u) or, for a single input, (n,) array_like
        Row k is the input at k dt. The last row is recorded; if the input is held, it has no effect.
    n_samples : int, optional
        Number of samples n; needed only without inputs.
    dt : float, optional
        Sampling interval [s] instead of the system's own.
    substeps : int, optional
        Runge-Kutta steps per sample instead of the system's own.
    interpolation : Interpolation, optional
        The input between its samples: held, linear or band-limited; its name will do.
    initial_state : (n_x,) array_like, optional
        State at time zero instead of the system's own.
    seed : int, optional
        Seed of the run; process and measurement noise are streams of it (`simulators.noise.Streams`).
    noise : bool, optional
        False leaves the process noise out.
    measurement : MeasurementNoise, optional
        Noise on the outputs; there is none by default.

    Returns
    -------
    Trajectory
        The n samples; its `system` carries the dt and substeps in use.

    Raises
    ------
    ValueError
        If the input or the initial state has the wrong shape, is not finite or lies outside the limits; if the
        drift raises.
    TypeError
        If the input or the initial state is anything but real numbers, or the drift cannot be compiled.
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
    system, interpolation = sampled(system, dt, substeps), Interpolation(interpolation)
    measurement.check(names_of(system.outputs))
    u = input_matrix(system, input, n_samples)
    x0 = start_of(system, initial_state, u)
    w = noise_of(seed, "process", len(u), process_std(system, noise))
    x, n_clipped = integrate(system, x0, u, w, interpolation)
    y0 = outputs_of(system, x)
    y = y0 + noise_of(seed, "measurement", len(u), measurement.std_of(y0))
    return Trajectory(system, seed, sample_times(system, len(u)), u, x, y, y0, w, interpolation, n_clipped)


def closed_loop(
    system: System,
    controller: Controller,
    exogenous: Mapping[str, ArrayLike],
    *,
    n_samples: int | None = None,
    dt: float | None = None,
    substeps: int | None = None,
    interpolation: Interpolation | str = Interpolation.held,
    initial_state: ArrayLike | None = None,
    seed: int = 0,
    noise: bool = True,
    measurement: MeasurementNoise = NOISELESS,
) -> Iterator[Sample]:
    """Simulate a system under a controller, one sample at a time.

    Sample k: the output is measured at k dt, noise included, the controller sees it, its input is held from
    k dt to (k + 1) dt. With held exogenous inputs a sample depends on their values up to its own row only.

    Parameters
    ----------
    system : System
        System to simulate.
    controller : Controller
        Reads outputs and drives inputs by name; `OpenLoop` drives none.
    exogenous : mapping of str to (n,) array_like
        The inputs that the controller does not drive.
    n_samples : int, optional
        Number of samples n; needed only without exogenous inputs.
    interpolation : Interpolation, optional
        The exogenous inputs between their samples; driven inputs are held.
    dt, substeps, initial_state, seed, noise
        As in `simulate`.
    measurement : MeasurementNoise, optional
        Noise on the outputs. A signal-to-noise ratio refers to the loop without measurement noise, which is
        simulated first.

    Returns
    -------
    iterator of Sample
        The samples k = 0 to n - 1, each computed when it is asked for.

    Raises
    ------
    ValueError
        At the call: if an input is driven twice or not at all, a name is unknown, a length or shape does
        not fit, or the controller runs at another dt.
    TypeError
        At the call: if the exogenous inputs are no mapping, or not of real numbers.
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
    system, interpolation = sampled(system, dt, substeps), Interpolation(interpolation)
    measurement.check(names_of(system.outputs))
    check_wiring(system, controller, exogenous)
    u = exogenous_matrix(system, exogenous, n_samples)
    x0 = start_of(system, initial_state, u)
    w = noise_of(seed, "process", len(u), process_std(system, noise))
    advance, silent = stepper(system), np.zeros((len(u), len(system.outputs)))
    if measurement.needs_output:
        rehearsal = _run(system, controller, advance, interpolation, u.copy(), x0, w, silent)
        std = measurement.std_of(np.array([sample.noise_free_output for sample in rehearsal]))
    else:
        std = measurement.std_of(silent)
    return _run(system, controller, advance, interpolation, u, x0, w, noise_of(seed, "measurement", len(u), std))


def _run(
    system: System,
    controller: Controller,
    advance: Stepper,
    interpolation: Interpolation,
    u: NDArray[np.float64],
    x0: NDArray[np.float64],
    w: NDArray[np.float64],
    e: NDArray[np.float64],
) -> Iterator[Sample]:
    """Iterate the closed loop; the driven columns of `u` are filled in on the way."""
    control, output = controller.control, system.output
    read = [names_of(system.outputs).index(name) for name in controller.outputs_read]
    driven = [names_of(system.inputs).index(name) for name in controller.inputs_driven]
    between = _between(interpolation, system, u)
    x, memory, dt, n_clipped = x0.copy(), controller.initial_state(), float(system.dt), 0
    for k in range(len(u)):
        time = k * dt
        if k:
            inputs = next(between)
            inputs[:, driven] = u[k - 1, driven]
            n_clipped = advance((k - 1) * dt, x, inputs, w[k - 1])
        y0 = np.array(output(x))
        y = y0 + e[k]
        values = y.tolist()
        command, memory = control(time, [values[i] for i in read], memory)
        for i, value in zip(driven, command, strict=True):
            if not math.isfinite(value):
                raise _bad_command(system, controller, time, i, value)
            u[k, i] = value
        yield Sample(time, y, u[k].copy(), x.copy(), w[k].copy(), y0, n_clipped)


def _between(interpolation: Interpolation, system: System, u: NDArray[np.float64]) -> Iterator[NDArray[np.float64]]:
    """Yield the values of the inputs from each sample to the next as the stepper takes them."""
    for piece in interpolation.pieces(u, system.substeps):
        ends = 0 if piece.rows == 1 else 1
        for k in range(piece.last - piece.first):
            yield piece.values[k * piece.rows : (k + 1) * piece.rows + ends].copy()


def _bad_command(system: System, controller: Controller, time: float, index: int, value: float) -> ArithmeticError:
    """Describe a controller that returned a value that is not finite."""
    return ArithmeticError(
        f"{type(controller).__name__} set '{system.inputs[index].name}' to {value} at time {time:.6g} s: "
        "expected a finite number; check gains, limits and set-point"
    )


def check_wiring(system: System, controller: Controller, exogenous: Mapping[str, ArrayLike]) -> None:
    """Check that every input is given exactly once and every read output exists, at the same dt.

    Raises
    ------
    ValueError
        If not.
    TypeError
        If the exogenous inputs are no mapping.
    """
    if not isinstance(exogenous, Mapping):
        raise TypeError(
            "closed_loop: expected exogenous inputs as a mapping of names to arrays (n,), got "
            f"{type(exogenous).__name__}; write {{name: array}} with names among {names_of(system.inputs)}"
        )
    title = f"{type(controller).__name__} on {type(system).__name__}"
    outputs, inputs = names_of(system.outputs), names_of(system.inputs)
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
