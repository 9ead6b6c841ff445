"""Simulation of a system in open loop and in closed loop, and checks of its arguments."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulators.controllers import Controller
from simulators.errors import SimulationError, UserError, UserTypeError
from simulators.interpolation import Interpolation, late_rows
from simulators.noise import draw_noise
from simulators.record import Faults, MeasurementNoise, Sample, Trajectory, sample_times
from simulators.runge_kutta import check_drift, integrate, stepper
from simulators.settings import Array, check_count, read_real
from simulators.system import System, delays_of, limits_of, names_of, read_vector


def set_sampling(system: System, dt: float | None, substeps: int | None) -> System:
    """Return the system with its sampling replaced where given.

    Raises
    ------
    TypeError
        If it is no system.
    """
    if not isinstance(system, System):
        hint = "build one from its class"
        if isinstance(system, type):
            hint = f"write {system.__name__}()"
        raise UserTypeError(f"expected a system to simulate, got {system!r}; {hint}")
    if dt is not None:
        system = replace(system, dt=dt)
    if substeps is not None:
        system = replace(system, substeps=substeps)
    return system


def read_input(system: System, input: ArrayLike | None, n_samples: int | None) -> Array:
    """Return a checked copy of an input as a C-contiguous array (n, n_u).

    For a system without inputs only the number of samples matters.

    Raises
    ------
    ValueError
        If the shape does not fit the system or `n_samples`, `n_samples` is no integer >= 1, or a
        value is not finite.
    TypeError
        If the input is complex, text or anything else but real numbers.
    """
    names = names_of(system.inputs)
    title = type(system).__name__
    if n_samples is not None:
        check_count("n_samples", n_samples)
    if input is None:
        if names or n_samples is None:
            missing = "n_samples for a system without inputs"
            if names:
                missing = f"an input with columns {names}"
            raise UserError(
                f"{title}: expected {missing}, got no input and n_samples={n_samples}; give it"
            )
        return np.zeros((n_samples, 0))
    given = read_real(input, f"{title}: input with columns {names}")
    u = np.array(given, dtype=np.float64, order="C")
    if u.ndim == 1 and len(names) == 1:
        u = u[:, np.newaxis]
    has_columns = u.ndim == 2 and u.shape[1] == len(names)
    if not has_columns or len(u) < 1 or n_samples not in (None, len(u)):
        rows = "n >= 1" if n_samples is None else f"n_samples={n_samples}"
        raise UserError(
            f"{title}: expected an input of shape ({rows}, {len(names)}) with columns {names}, "
            f"got {u.shape}; change it"
        )
    bad = np.argwhere(~np.isfinite(u))
    if len(bad):
        k, i = bad[0]
        raise UserError(
            f"{title}: input '{names[i]}' is {u[k, i]} at sample {k}: "
            "expected finite numbers; repair it"
        )
    return u


def read_start(system: System, initial_state: ArrayLike | None, u: Array) -> Array:
    """Return the checked state (n_x,) at time zero.

    The drift must be finite there with the first input.

    Raises
    ------
    ValueError
        If the shape is wrong, a value is not finite or outside the limits of its state, or the
        drift is not finite.
    TypeError
        If the values are no real numbers.
    """
    if initial_state is None:
        initial_state = read_vector(system, "initial_state")
    x0 = np.array(read_real(initial_state, "initial_state"), dtype=np.float64)
    check_states(system, x0[np.newaxis])
    check_drift(system, x0, u[0])
    return x0


def check_states(system: System, states: Array, *, trajectory: int | None = None) -> None:
    """Check initial states (m, n_x) of one trajectory, or of several.

    Parameters
    ----------
    system : System
    states : (m, n_x) array
    trajectory : int, optional
        Number of the first trajectory; the error then names the trajectory.

    Raises
    ------
    ValueError
        For the first state that has a wrong length, is not finite or is outside its limits.
    """
    lower, upper = limits_of(system)
    title = type(system).__name__

    def title_of(row: int) -> str:
        return title if trajectory is None else f"trajectory {trajectory + row}: {title}"

    n_x = len(system.states)
    are_finite = [False] * len(states)
    if states.shape[1:] == (n_x,):
        is_inside = (lower <= states) & (states <= upper)
        if (is_inside & (abs(states) < np.inf)).all():
            return
        are_finite = [bool(np.isfinite(state).all()) for state in states]
    if not all(are_finite):
        row = are_finite.index(False)
        raise UserError(
            f"{title_of(row)}: expected {n_x} finite initial states {names_of(system.states)}, "
            f"got {states[row].tolist()}; change initial_state"
        )
    row, i = np.argwhere((states < lower) | (states > upper))[0].tolist()
    state = system.states[i]
    raise UserError(
        f"{title_of(row)}: expected an initial '{state.name}' "
        f"from {lower[i]:g} to {upper[i]:g} {state.unit}, "
        f"got {states[row, i]:g}; change initial_state"
    )


def read_exogenous(
    system: System, exogenous: Mapping[str, ArrayLike], n_samples: int | None
) -> Array:
    """Return the inputs (n, n_u) with the exogenous ones in their columns.

    The columns of inputs that the controller drives are zero.

    Raises
    ------
    ValueError
        If the signals have no common length of `n_samples`, or a value is not finite.
    TypeError
        If the values are no real numbers.
    """
    if n_samples is not None:
        check_count("n_samples", n_samples)
    signals = {
        name: read_real(values, f"closed_loop: input {name!r}")
        for name, values in exogenous.items()
    }
    shapes = {name: values.shape for name, values in signals.items()}
    lengths = {shape[0] for shape in shapes.values() if shape}
    n = n_samples if n_samples is not None else min(lengths, default=0)
    if n < 1 or any(shape != (n,) for shape in shapes.values()):
        raise UserError(
            "closed_loop: expected exogenous inputs of one length n_samples >= 1, "
            f"got shapes {shapes} and n_samples={n_samples}; cut them"
        )
    columns = [signals.get(name, np.zeros(n)) for name in names_of(system.inputs)]
    inputs = np.stack(columns, axis=1) if columns else np.zeros((n, 0))
    return read_input(system, inputs, None)


NO_MEASUREMENT_NOISE = MeasurementNoise()


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
    measurement: MeasurementNoise = NO_MEASUREMENT_NOISE,
) -> Trajectory:
    """Simulate a system in open loop.

    Parameters
    ----------
    system : System
        System to simulate.
    input : (n, n_u) or, for a single input, (n,) array_like
        Row k is the input at k dt. The last row is recorded; if the input is held, it has no
        effect.
    n_samples : int, optional
        Number of samples n; needed only without inputs.
    dt : float, optional
        Sampling time [s] instead of the system's own.
    substeps : int, optional
        Runge-Kutta steps per sample instead of the system's own.
    interpolation : Interpolation, optional
        The input between its samples, or the name: held, linear or band_limited.
    initial_state : (n_x,) array_like, optional
        State at time zero instead of the system's own.
    seed : int, optional
        Seed of the run; process and measurement noise are streams of it
        (`simulators.noise.Streams`).
    noise : bool, optional
        Whether there is process noise.
    measurement : MeasurementNoise, optional
        Noise on the outputs; there is none by default.

    Returns
    -------
    Trajectory
        The n samples; its `system` carries the dt and substeps in use.

    Raises
    ------
    ValueError
        If the input or the initial state has the wrong shape, is not finite or lies outside the
        limits; if the drift raises.
    TypeError
        If the input or the initial state is anything but real numbers, or the drift cannot be
        compiled.
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
    system = set_sampling(system, dt, substeps)
    interpolation = Interpolation(interpolation)
    measurement.check(names_of(system.outputs))
    u = read_input(system, input, n_samples)
    x0 = read_start(system, initial_state, u)
    w = _draw_process_noise(system, seed, len(u), noise)
    x, n_clipped = integrate(system, x0, u, w, interpolation)
    y0 = np.array(system.output(x), dtype=np.float64)
    y = measurement.measure(y0, seed)
    time = sample_times(system, len(u))
    return Trajectory(system, seed, time, u, x, y, y0, w, interpolation, n_clipped)


def _draw_process_noise(system: System, seed: int, n_samples: int, noise: bool) -> Array:
    """Return the process noise (n, n_w) of a run; zeros if there is to be no noise."""
    std = read_vector(system, "noise_std")
    if not noise:
        std = np.zeros_like(std)
    return draw_noise(seed, "process", n_samples, std)


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
    measurement: MeasurementNoise = NO_MEASUREMENT_NOISE,
) -> Iterator[Sample]:
    """Simulate a system under a controller, one sample at a time.

    Sample k: the output is measured at k dt, noise included. The controller reads it, and its input
    is held from k dt to (k + 1) dt. With held exogenous inputs a sample depends only on their
    values up to its own row. Instead of a missing reading (nan) the controller reads the last one
    of that sensor, and before the first one the output of the initial state. The samples keep nan.

    Parameters
    ----------
    system : System
        System to simulate.
    controller : Controller
        Controller that reads outputs and drives inputs by name; `OpenLoop` drives none.
    exogenous : mapping of str to (n,) array_like
        Inputs that the controller does not drive.
    n_samples : int, optional
        Number of samples n; needed only without exogenous inputs.
    interpolation : Interpolation, optional
        The exogenous inputs between their samples; driven inputs are held.
    dt, substeps, initial_state, seed, noise
        As in `simulate`.
    measurement : MeasurementNoise, optional
        Noise on the outputs. A signal-to-noise ratio refers to the loop without measurement noise,
        which is simulated first.

    Returns
    -------
    iterator of Sample
        The samples k = 0 to n - 1, each computed when the iterator is advanced.

    Raises
    ------
    ValueError
        At the call: if an input is driven twice or not at all, a name is unknown, a length or shape
        does not fit, or the controller runs at another dt.
    TypeError
        At the call: if the exogenous inputs are no mapping, or not of real numbers.
    DivergenceError
        While iterating: if a state leaves the finite numbers.

    Examples
    --------
    >>> from simulators.controllers import PI
    >>> from simulators.systems.building import Building
    >>> samples = closed_loop(Building(), PI(), {"ambient_temperature": np.zeros(96)}, noise=False)
    >>> next(sample.time / 3600 for sample in samples if sample.input[1] > 0)  # heating starts, h
    1.25
    """
    system = set_sampling(system, dt, substeps)
    interpolation = Interpolation(interpolation)
    measurement.check(names_of(system.outputs))
    check_wiring(system, controller, exogenous)
    u = read_exogenous(system, exogenous, n_samples)
    x0 = read_start(system, initial_state, u)
    w = _draw_process_noise(system, seed, len(u), noise)
    advance = stepper(system)
    delays = delays_of(system)
    dt = float(system.dt)
    read = [names_of(system.outputs).index(name) for name in controller.outputs_read]
    states_read = [names_of(system.states).index(name) for name in controller.states_read]
    driven = [names_of(system.inputs).index(name) for name in controller.inputs_driven]

    def run(u: Array, e: Array, faults: Faults | None) -> Iterator[Sample]:
        """Iterate the loop with measurement noise e (n, n_y).

        The inputs that the controller drives are written into their columns of `u`.
        """
        between = _split_pieces(interpolation, u, system.substeps, delays)
        x = x0.copy()
        y = np.zeros(e.shape[1])
        reading = np.array(system.output(x))  # the last one of every sensor
        memory = controller.initial_state()
        n_clipped = 0
        for k in range(len(u)):
            time = k * dt
            if k > 0:
                inputs = next(between).copy()
                inputs[:, driven] = u[late_rows(k - 1, delays, driven), driven]
                n_clipped = advance((k - 1) * dt, x, inputs, w[k - 1])
            y0 = np.array(system.output(x))
            noisy = y0 + e[k]
            y = noisy if faults is None else faults.read(noisy, y.copy(), k)
            reading = y if faults is None else np.where(np.isnan(y), reading, y)
            values = reading.tolist()
            known = [values[i] for i in read]
            if states_read:
                known += x[states_read].tolist()
            command, memory = controller.control(time, known, memory)
            for i, value in zip(driven, command, strict=True):
                if not math.isfinite(value):
                    raise SimulationError(
                        f"{type(controller).__name__} set '{system.inputs[i].name}' to {value} "
                        f"at time {time:.6g} s: expected a finite number; "
                        "check gains, limits and set-point"
                    )
                u[k, i] = value
            yield Sample(time, y, u[k].copy(), x.copy(), w[k].copy(), y0, n_clipped)

    no_noise = np.zeros((len(u), len(system.outputs)))
    if measurement.snr_db is None:
        std = measurement.std_of(no_noise)
    else:
        noise_free_loop = run(u.copy(), no_noise, None)
        noise_free = np.array([sample.noise_free_output for sample in noise_free_loop])
        std = measurement.std_of(noise_free)
    e = draw_noise(seed, "measurement", len(u), std)
    return run(u, e, measurement.faults(seed, *no_noise.shape))


def _split_pieces(
    interpolation: Interpolation, u: Array, substeps: int, delays: Sequence[int]
) -> Iterator[Array]:
    """Yield the input from each sample to the next; see `Piece.split`."""
    for piece in interpolation.pieces(u, substeps, delays):
        yield from piece.split()


def check_wiring(
    system: System, controller: Controller, exogenous: Mapping[str, ArrayLike]
) -> None:
    """Check that controller and exogenous inputs fit the system.

    Every input must be given exactly once, every output and state that is read must exist, and both
    must have the same dt.

    Raises
    ------
    ValueError
        If one of these conditions does not hold.
    TypeError
        If the exogenous inputs are no mapping.
    """
    if not isinstance(exogenous, Mapping):
        raise UserTypeError(
            "closed_loop: expected exogenous inputs as a mapping of names among "
            f"{names_of(system.inputs)} to arrays (n,), got {type(exogenous).__name__}; "
            "write {name: array}"
        )
    title = f"{type(controller).__name__} on {type(system).__name__}"
    outputs = names_of(system.outputs)
    inputs = names_of(system.inputs)
    given = sorted([*controller.inputs_driven, *exogenous])
    if given != sorted(inputs):
        raise UserError(
            f"{title}: expected each input of {inputs} exactly once, "
            f"got {list(controller.inputs_driven)} driven by the controller "
            f"and {list(exogenous)} exogenous; change exogenous"
        )
    if not set(controller.outputs_read) <= set(outputs):
        raise UserError(
            f"{title}: expected outputs among {outputs}, got {list(controller.outputs_read)}; "
            "change the output of the controller"
        )
    states = names_of(system.states)
    if not set(controller.states_read) <= set(states):
        raise UserError(
            f"{title}: expected states among {states}, got {list(controller.states_read)}; "
            "change the states that the controller reads"
        )
    if controller.dt != system.dt:
        raise UserError(
            f"{title}: expected the controller at the dt of the system, {system.dt:g} s, "
            f"got {controller.dt:g} s; change dt of the controller"
        )
