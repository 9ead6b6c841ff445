"""Properties of every system.

The systems are found by themselves, compared with an adaptive solver and checked against bad
settings.
"""

from dataclasses import asdict, fields, replace

import numpy as np
import pytest

import simulators.systems
from plants import Basin, concrete_classes, random_input
from simulators import (
    Interpolation,
    MeasurementNoise,
    OpenLoop,
    System,
    closed_loop,
    collect,
    simulate,
    simulate_many,
)
from simulators.reference_solution import solve_reference
from simulators.runge_kutta import integrate
from simulators.system import limits_of

SHIPPED_SYSTEMS = concrete_classes(simulators.systems, System)
SYSTEMS = [*SHIPPED_SYSTEMS, Basin]

# Range of each input in its unit; that of a system that is not named here is the default.
INPUT_RANGES = {
    "Building": ((-10.0, 20.0), (0.0, 0.1)),
    "BoucWen": ((-100.0, 100.0),),
    "CascadedTanks": ((1.0, 4.0),),
    "Basin": ((-0.02, 0.02),),
    "Heater": ((10.0, 90.0), (2.0, 6.0)),
    "QuadrupleTank": ((2.5, 3.5), (2.5, 3.5)),
    "Silverbox": ((-0.1, 0.1),),
}
DEFAULT_INPUT_RANGE = (0.5, 1.5)

# Fields beside the initial values that may be negative.
SIGNED_FIELDS = {
    "Building": {"supply_temperature"},
    "BoucWen": {"gamma", "delta"},
    "CascadedTanks": {"pump_threshold"},
    "Heater": {"inlet_temperature"},
    "Silverbox": {
        "gain",
        "cubic",
        "quadratic",
        "input_offset",
        "absolute_stiffness",
        "velocity_stiffness",
        "cubic_damping",
        "quadratic_damping",
        "velocity_damping",
        "displacement_gain",
        "mixed_gain",
        "velocity_gain",
    },
}

# Values that no field may have, and others that some fields may not have.
IMPOSSIBLE_VALUES = [np.nan, np.inf, "much", None, True]
FURTHER_IMPOSSIBLE_VALUES = {
    "Building": {
        "dt": [0.0],
        "substeps": [0, 2.5],
        "zone_capacity": [0.0],
        "wall_resistance": [0.0],
    },
    "BoucWen": {"mass": [0.0], "nu": [0.5]},
    "Heater": {
        "heat_delay": [-1, 2.5],
        "power": [0.0],
        "conductance": [0.0],
        "wall_capacity": [0.0],
        "oil_capacity": [0.0],
        "flow_capacity": [0.0],
    },
    "CascadedTanks": {
        "lower_inflow": [0.0],
        "overflow_fraction": [1.1],
        "overflow_depth": [0.0, 11.0],
        "upper_height": [0.0],
        "initial_upper": [-0.1, 10.5],
        "initial_lower": [-0.1, 10.5],
    },
    "QuadrupleTank": {
        "left_area": [0.0],
        "right_outlet": [0.0],
        "left_gain": [0.0],
        "left_fraction": [1.1],
        "right_fraction": [1.1],
        "height": [0.0],
        "initial_lower_left": [-0.1, 20.5],
        "initial_upper_right": [-0.1, 20.5],
    },
}

# Start, samples and inputs where the drift has the derivatives that the order of convergence needs.
SMOOTH_RUNS = {
    "BoucWen": ([1e-4, 0.1, 5.0], 5, ((40.0, 60.0),)),  # v and z stay positive
    "Silverbox": ([-0.1, 10.0], 4, ((0.0, 0.02),)),  # v stays positive
}

# States and inputs beside those of a random run: the upper tank overflows, or the pump rests.
FURTHER_JACOBIAN_POINTS = {
    "CascadedTanks": [
        ((9.9, 5.0), (8.0,)),
        ((9.81, 9.9), (3.0,)),
        ((9.9, 0.5), (0.3,)),
        ((0.1, 0.1), (-3.0,)),
    ],
}

every_shipped_system = pytest.mark.parametrize("cls", SHIPPED_SYSTEMS, ids=lambda cls: cls.__name__)
every_system = pytest.mark.parametrize("cls", SYSTEMS, ids=lambda cls: cls.__name__)
every_interpolation = pytest.mark.parametrize(
    "interpolation", Interpolation, ids=lambda kind: kind.value
)


def input_ranges_of(cls):
    """Return the range of every input of a system."""
    default = (DEFAULT_INPUT_RANGE,) * len(cls.inputs)
    return INPUT_RANGES.get(cls.__name__, default)


def random_noise(system, n):
    """Return process noise (n, n_w), of standard deviation 0.01 where the system has none."""
    std = system.noise_std()
    std = np.where(std > 0, std, 0.01)
    return np.random.default_rng(1).normal(size=(n, len(std))) * std


def visited_points(cls, n=6):
    """Return states and inputs (n, ...) of a random run, away from its start."""
    system = cls()
    u = random_input(input_ranges_of(cls), 40)
    noise = random_noise(system, 40)
    path = integrate(system, system.initial_state(), u, noise)
    samples = np.linspace(5, 39, n).astype(int)
    return path.states[samples], u[samples]


def relative_deviation(states, exact):
    """Return the largest deviation, relative to the range of each state."""
    largest = np.maximum(np.abs(exact).max(axis=0), 1e-12)
    return (np.abs(states - exact).max(axis=0) / largest).max()


# --- fields and signals ---------------------------------------------------------------------------


@every_shipped_system
def test_every_signal_is_described(cls):
    for signal in (*cls.states, *cls.inputs, *cls.outputs, *cls.noises):
        assert signal.unit
        assert signal.description


@pytest.fixture(scope="module")
def reference_runs():
    """Return the run of every shipped system that meets the limits of its states."""
    return {cls: table_of_run(cls(), run_to_limits(cls)) for cls in SHIPPED_SYSTEMS}


def run_to_limits(cls):
    """Return an input (n, n_u) with which a system meets the limits of its states."""
    return 2 * random_input(input_ranges_of(cls), 200)


def table_of_run(system, u):
    """Return times, states and outputs of a run, side by side."""
    run = simulate(system, u)
    return np.column_stack([run.time, run.state, run.output])


# The field `changes` has its own tests in test_changes.py.
EVERY_FIELD = [
    pytest.param(cls, name, id=f"{cls.__name__}-{name}")
    for cls in SHIPPED_SYSTEMS
    for name in asdict(cls())
    if name != "changes"
]


@pytest.mark.parametrize(("cls", "name"), EVERY_FIELD)
def test_every_field_acts(cls, name, reference_runs):
    system = cls()
    value = getattr(system, name)
    changed_value = value + 1 if isinstance(value, int) else value * 1.01 + 0.0007
    changed = replace(system, **{name: changed_value})
    run = table_of_run(changed, run_to_limits(cls))
    assert not np.array_equal(run, reference_runs[cls])


@every_shipped_system
def test_every_input_acts(cls, reference_runs):
    for column in np.eye(len(cls.inputs)):
        changed_input = run_to_limits(cls) * (1 + 0.01 * column)
        assert not np.array_equal(table_of_run(cls(), changed_input), reference_runs[cls])


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        pytest.param(cls, field.name, id=f"{cls.__name__}-{field.name}")
        for cls in SHIPPED_SYSTEMS
        for field in fields(cls)
    ],
)
def test_fields_that_are_no_numbers_or_impossible_are_refused(cls, name):
    further = FURTHER_IMPOSSIBLE_VALUES.get(cls.__name__, {})
    values = [*IMPOSSIBLE_VALUES, *further.get(name, ())]
    may_be_negative = name in SIGNED_FIELDS.get(cls.__name__, ()) or name.startswith("initial_")
    if not may_be_negative:
        values.append(-1 if name == "substeps" else -1.0)
    for value in values:
        with pytest.raises(ValueError, match=rf"^{cls.__name__}\({name}="):
            cls(**{name: value})


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        pytest.param(cls, name, id=f"{cls.__name__}-{name}")
        for cls in SHIPPED_SYSTEMS
        for name in sorted(SIGNED_FIELDS.get(cls.__name__, ()))
    ],
)
def test_signed_fields_may_be_negative(cls, name):
    system = cls(**{name: -1.0})
    assert getattr(system, name) == -1.0


# --- limits and derivatives -----------------------------------------------------------------------


@every_system
def test_runs_start_within_the_limits(cls):
    u = random_input(input_ranges_of(cls), 3)
    start = cls().initial_state()
    lower, upper = limits_of(cls())
    assert ((lower <= start) & (start <= upper)).all()
    for limits, beyond in ((lower, -np.inf), (upper, np.inf)):
        for i in np.flatnonzero(np.isfinite(limits)):
            x0 = cls().initial_state()
            x0[i] = limits[i]
            assert simulate(cls(), u, initial_state=x0).state[0, i] == limits[i]
            x0[i] = np.nextafter(limits[i], beyond)
            message = rf"{cls.__name__}: expected an initial '{cls.states[i].name}' from"
            with pytest.raises(ValueError, match=message):
                simulate(cls(), u, initial_state=x0)


def jacobian_points(cls):
    """Return states and inputs at which the Jacobian of a system is tested."""
    states, inputs = visited_points(cls)
    points = list(zip(states, inputs, strict=True))
    for state, u in FURTHER_JACOBIAN_POINTS.get(cls.__name__, ()):
        points.append((np.array(state), np.array(u)))
    return points


def check_derivative(matrix, drift, x, scale):
    """Check a Jacobian by central differences of the drift along every component of x."""
    assert matrix.shape[1] == len(x)
    for j in range(len(x)):
        up = x.copy()
        down = x.copy()
        up[j] += 1e-5 * scale[j]
        down[j] -= 1e-5 * scale[j]
        slope = (drift(up) - drift(down)) / (up[j] - down[j])
        size = np.abs(drift(x)) / scale[j] + np.abs(slope)
        error = np.abs(matrix[:, j] - slope)
        np.testing.assert_array_less(error, 1e-6 * size + 1e-12 / scale[j])


@every_shipped_system
def test_jacobian_is_the_derivative_of_the_drift(cls):
    """The drift is that without compiler."""
    system = cls()
    no_noise = np.zeros(len(cls.noises))
    states, inputs = visited_points(cls)
    if system.jacobian(states[0], inputs[0]) is None:
        pytest.skip("no analytic Jacobian")
    state_scale = np.abs(states).max(axis=0)
    input_scale = np.abs(inputs).max(axis=0, initial=0.0)

    def drift(x, u):
        return system.derivative(0.0, x, u, no_noise)

    for state, u in jacobian_points(cls):
        A, B = system.jacobian(state, u)
        assert len(A) == len(B) == len(cls.states)
        check_derivative(A, lambda x, u=u: drift(x, u), state, state_scale)
        check_derivative(B, lambda u, x=state: drift(x, u), u, input_scale)


# --- simulation -----------------------------------------------------------------------------------


def convergence_errors(system, x0, u, noise, interpolation):
    """Return the errors of 1, 2, 4, ... substeps, until one is as small as rounding."""
    exact = solve_reference(
        system,
        x0,
        u,
        noise,
        interpolation=interpolation,
        relative_tolerance=1e-13,
        absolute_tolerance=1e-16,
    )
    assert relative_deviation(exact, exact[:1]) > 1e-3
    errors = []
    for doublings in range(9):
        finer = replace(system, substeps=2**doublings)
        path = integrate(finer, x0, u, noise, interpolation)
        errors.append(relative_deviation(path.states, exact))
        if errors[-1] < 1e-10:
            break
    return errors


@every_system
@every_interpolation
def test_order_of_convergence_is_four(cls, interpolation):
    """The errors are those against DOP853; only errors well above rounding are compared."""
    default_run = (cls().initial_state(), 8, input_ranges_of(cls))
    start, n, ranges = SMOOTH_RUNS.get(cls.__name__, default_run)
    noise = random_noise(cls(), n)
    u = random_input(ranges, n)
    errors = convergence_errors(cls(), np.array(start), u, noise, interpolation)

    assert errors[-1] < 1e-8
    is_polynomial = cls is Basin and interpolation is not Interpolation.band_limited
    if is_polynomial:  # of second degree in time, which the method solves exactly
        assert max(errors) < 1e-13
        return
    compared = [error for error in errors if 1e-11 < error < 1e-3][-4:]
    assert len(compared) >= 3
    orders = np.log2(np.divide(compared[:-1], compared[1:]))
    np.testing.assert_allclose(orders, 4.0, atol=0.5)


@every_system
@every_interpolation
def test_every_way_of_simulating_gives_the_same_bits(cls, interpolation):
    """Open loop, sample by sample, and as one of many."""
    system = cls()
    u = random_input(input_ranges_of(cls), 20)
    options = {
        "interpolation": interpolation.value,
        "measurement": MeasurementNoise(std=0.01),
    }
    open_loop = simulate(system, u, seed=5, **options)

    exogenous = {signal.name: column for signal, column in zip(cls.inputs, u.T, strict=True)}
    samples = closed_loop(
        system, OpenLoop(dt=system.dt), exogenous, n_samples=20, seed=5, **options
    )
    in_loop = collect(samples, system, seed=5, interpolation=interpolation)
    of_many = simulate_many(system, u, seeds=[1, 5], **options)[1]

    for run in (in_loop, of_many):
        for name in ("time", "input", "state", "output", "noise_free_output", "noise"):
            np.testing.assert_array_equal(getattr(run, name), getattr(open_loop, name))
        assert run.n_clipped == open_loop.n_clipped
        assert run.interpolation == interpolation
