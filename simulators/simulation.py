"""Simulation of a system in open loop and in closed loop, and the checks of what it starts from."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from simulators.controllers import Controller
from simulators.errors import SimulationError, UserError, UserTypeError
from simulators.interpolation import Interpolation
from simulators.noise import draw_noise
from simulators.record import Faults, MeasurementNoise, Sample, Trajectory, sample_times
from simulators.runge_kutta import check_drift, integrate, stepper
from simulators.settings import Array, check_count, read_real
from simulators.system import System, limits_of, names_of, read_vector


def set_sampling(system: System, dt: float | None, substeps: int | None) -> System:
    """Return the system with its sampling replaced where given.

    Raises
    ------
    TypeError
        If it is no system.
    """
    if not isinstance(system, System):
        hint = (
            f"write {system.__name__}()" if isinstance(system, type) else "build one from its class"
        )
        raise UserTypeError(f"expected a system to simulate, got {system!r}; {hint}")
    system = system if dt is None else replace(system, dt=dt)
    return system if substeps is None else replace(system, substeps=substeps)


def read_input(system: System, input: ArrayLike | None, n_samples: int | None) -> Array:
    """Copy an input to a checked C-contiguous (n, n_u) array; without inputs, only n counts.

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
            wanted = (
                f"an input with columns {names}"
                if names
                else "n_samples for a system without inputs"
            )
            raise UserError(
                f"{title}: expected {wanted}, got no input and n_samples={n_samples}; give it"
            )
        return np.zeros((n_samples, 0))
    u = np.array(
        read_real(input, f"{title}: input with columns {names}"),
        dtype=np.float64,
        order="C",
    )
    if u.ndim == 1 and len(names) == 1:
        u = u[:, np.newaxis]
    if u.ndim != 2 or u.shape[1] != len(names) or len(u) < 1 or n_samples not in (None, len(u)):
        shape = f"({'n >= 1' if n_samples is None else f'n_samples={n_samples}'}, {len(names)})"
        raise UserError(
            f"{title}: expected an input of shape {shape} with columns {names}, got {u.shape}; change it"
        )
    bad = np.argwhere(~np.isfinite(u))
    if len(bad):
        k, i = bad[0]
        raise UserError(
            f"{title}: input '{names[i]}' is {u[k, i]} at sample {k}: expected finite numbers; repair it"
        )
    return u


def read_start(system: System, initial_state: ArrayLike | None, u: Array) -> Array:
    """Return the checked state (n_x,) at time zero; the drift must be finite there with the first
    input.

    Raises
    ------
    ValueError
        If the shape is wrong, a value is not finite or outside the limits of its state, or the
        drift is not finite.
    TypeError
        If the values are no real numbers.
    """
    given = (
        read_vector(system, "initial_state")
        if initial_state is None
        else read_real(initial_state, "initial_state")
    )
    x0 = np.array(given, dtype=np.float64)
    check_states(system, x0[np.newaxis])
    check_drift(system, x0, u[0])
    return x0


def check_states(system: System, states: Array, *, trajectory: int | None = None) -> None:
    """Check initial states (m, n_x), of one trajectory or of several from the given number on.

    Raises
    ------
    ValueError
        For the first one of wrong length, that is not finite or outside its limits; with its number
        if one is given.
    """
    (lower, upper), title = limits_of(system), type(system).__name__

    def name_row(row: int) -> str:
        return title if trajectory is None else f"trajectory {trajectory + row}: {title}"

    n_x = len(system.states)
    is_row = states.shape[1:] == (n_x,)
    if is_row and ((lower <= states) & (states <= upper) & (abs(states) < np.inf)).all():
        return
    fits = np.isfinite(states).all(axis=1) if is_row else np.zeros(len(states), dtype=bool)
    if not fits.all():
        row = int(np.argmin(fits))
        wanted = f"{n_x} finite initial states {names_of(system.states)}"
        found = states[row].tolist()
        raise UserError(f"{name_row(row)}: expected {wanted}, got {found}; change initial_state")
    row, i = np.argwhere((states < lower) | (states > upper))[0].tolist()
    wanted = f"an initial '{system.states[i].name}' from {lower[i]:g} to {upper[i]:g} {system.states[i].unit}"
    raise UserError(
        f"{name_row(row)}: expected {wanted}, got {states[row, i]:g}; change initial_state"
    )


def read_exogenous(
    system: System, exogenous: Mapping[str, ArrayLike], n_samples: int | None
) -> Array:
    """Stack the exogenous inputs as columns of (n, n_u); driven columns are zero.

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
        found = f"shapes {shapes} and n_samples={n_samples}"
        raise UserError(
            f"closed_loop: expected exogenous inputs of one length n_samples >= 1, got {found}; cut them"
        )
    columns = [signals.get(name, np.zeros(n)) for name in names_of(system.inputs)]
    return read_input(system, np.stack(columns, axis=1) if columns else np.zeros((n, 0)), None)


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
        Row k is the input at k dt. The last row is recorded; if the input is held, it has no
        effect.
    n_samples : int, optional
        Number of samples n; needed only without inputs.
    dt : float, optional
        Sampling time [s] instead of the system's own.
    substeps : int, optional
        Runge-Kutta steps per sample instead of the system's own.
    interpolation : Interpolation, optional
        The input between its samples: held, linear or band-limited; its name will do.
    initial_state : (n_x,) array_like, optional
        State at time zero instead of the system's own.
    seed : int, optional
        Seed of the run; process and measurement noise are streams of it
        (`simulators.noise.Streams`).
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
    w = draw_noise(seed, "process", len(u), read_vector(system, "noise_std") * bool(noise))
    x, n_clipped = integrate(system, x0, u, w, interpolation)
    y0 = np.array(system.output(x), dtype=np.float64)
    y = measurement.measure(y0, seed)
    return Trajectory(
        system,
        seed,
        sample_times(system, len(u)),
        u,
        x,
        y,
        y0,
        w,
        interpolation,
        n_clipped,
    )


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

    Sample k: the output is measured at k dt, noise included, the controller sees it, its input is
    held from k dt to (k + 1) dt. With held exogenous inputs a sample depends on their values up to
    its own row only.

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
        Noise on the outputs. A signal-to-noise ratio refers to the loop without measurement noise,
        which is simulated first.

    Returns
    -------
    iterator of Sample
        The samples k = 0 to n - 1, each computed when it is asked for.

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
    w = draw_noise(seed, "process", len(u), read_vector(system, "noise_std") * bool(noise))
    advance = stepper(system)
    dt = float(system.dt)
    read = [names_of(system.outputs).index(name) for name in controller.outputs_read]
    driven = [names_of(system.inputs).index(name) for name in controller.inputs_driven]

    def run(u: Array, e: Array, faults: Faults | None) -> Iterator[Sample]:
        """Iterate the loop with measurement noise e (n, n_y); fill in the driven columns of `u` on
        the way.
        """
        y = np.zeros(e.shape[1])
        between = (
            rows for piece in interpolation.pieces(u, system.substeps) for rows in piece.split()
        )
        x = x0.copy()
        memory = controller.initial_state()
        n_clipped = 0
        for k in range(len(u)):
            time = k * dt
            if k:
                inputs = next(between).copy()
                inputs[:, driven] = u[k - 1, driven]
                n_clipped = advance((k - 1) * dt, x, inputs, w[k - 1])
            y0 = np.array(system.output(x))
            y = y0 + e[k] if faults is None else faults.read(y0 + e[k], y.copy(), k)
            values = y.tolist()
            command, memory = controller.control(time, [values[i] for i in read], memory)
            for i, value in zip(driven, command, strict=True):
                if not math.isfinite(value):
                    raise SimulationError(
                        f"{type(controller).__name__} set '{system.inputs[i].name}' to {value} at time {time:.6g} s: "
                        "expected a finite number; check gains, limits and set-point"
                    )
                u[k, i] = value
            yield Sample(time, y, u[k].copy(), x.copy(), w[k].copy(), y0, n_clipped)

    silent = np.zeros((len(u), len(system.outputs)))
    if measurement.snr_db is None:
        std = measurement.std_of(silent)
    else:
        std = measurement.std_of(
            np.array([sample.noise_free_output for sample in run(u.copy(), silent, None)])
        )
    return run(
        u,
        draw_noise(seed, "measurement", len(u), std),
        measurement.faults(seed, *silent.shape),
    )


def check_wiring(
    system: System, controller: Controller, exogenous: Mapping[str, ArrayLike]
) -> None:
    """Check that every input is given exactly once and every read output exists, at the same dt.

    Raises
    ------
    ValueError
        If not.
    TypeError
        If the exogenous inputs are no mapping.
    """
    if not isinstance(exogenous, Mapping):
        wanted = (
            f"exogenous inputs as a mapping of names among {names_of(system.inputs)} to arrays (n,)"
        )
        raise UserTypeError(
            f"closed_loop: expected {wanted}, got {type(exogenous).__name__}; write {{name: array}}"
        )
    title = f"{type(controller).__name__} on {type(system).__name__}"
    outputs = names_of(system.outputs)
    inputs = names_of(system.inputs)
    given = sorted([*controller.inputs_driven, *exogenous])
    if given != sorted(inputs):
        found = f"{list(controller.inputs_driven)} driven by the controller and {list(exogenous)} exogenous"
        raise UserError(
            f"{title}: expected each input of {inputs} exactly once, got {found}; change exogenous"
        )
    if not set(controller.outputs_read) <= set(outputs):
        read = list(controller.outputs_read)
        raise UserError(
            f"{title}: expected outputs among {outputs}, got {read}; change the output of the controller"
        )
    if controller.dt != system.dt:
        found = f"the dt of the system, {system.dt:g} s, got {controller.dt:g} s"
        raise UserError(f"{title}: expected the controller at {found}; change dt of the controller")
