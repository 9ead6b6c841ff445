"""What holds for every system: found by itself, compared with an adaptive solver, checked against
bad settings.
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

SHIPPED = concrete_classes(simulators.systems, System)
SYSTEMS = [*SHIPPED, Basin]
# range of each input in its unit; (0.5, 1.5) for an input of a system that is not named here
INPUTS = {
    "Building": ((-10.0, 20.0), (0.0, 0.1)),
    "BoucWen": ((-100.0, 100.0),),
    "CascadedTanks": ((1.0, 4.0),),
    "Basin": ((-0.02, 0.02),),
    "Silverbox": ((-0.1, 0.1),),
}
SIGNED = {  # fields beside the initial values that may be negative
    "Building": {"supply_temperature"},
    "BoucWen": {"gamma", "delta"},
    "CascadedTanks": {"pump_threshold"},
    "Silverbox": {
        "gain",
        "cubic",
        "quadratic",
        "input_offset",
        "absolute_stiffness",
        "velocity_stiffness",
    }
    | {f"{name}_damping" for name in ("cubic", "quadratic", "velocity")}
    | {f"{name}_gain" for name in ("displacement", "mixed", "velocity")},
}
IMPOSSIBLE = {  # other values that a field may not have
    "Building": {
        "dt": [0.0],
        "substeps": [0, 2.5],
        "zone_capacity": [0.0],
        "wall_resistance": [0.0],
    },
    "BoucWen": {"mass": [0.0], "nu": [0.5]},
    "CascadedTanks": {
        "lower_inflow": [0.0],
        "overflow_fraction": [1.1],
        "overflow_depth": [0.0, 11.0],
    }
    | {
        "upper_height": [0.0],
        "initial_upper": [-0.1, 10.5],
        "initial_lower": [-0.1, 10.5],
    },
}
# start, samples and inputs where the drift has the derivatives that the order of convergence needs
SMOOTH = {
    "BoucWen": ([1e-4, 0.1, 5.0], 5, ((40.0, 60.0),)),  # v and z stay positive
    "Silverbox": ([-0.1, 10.0], 4, ((0.0, 0.02),)),  # v stays positive
}
# states and inputs beside the visited ones: the upper tank overflows, or the pump rests
JACOBIAN_POINTS = {
    "CascadedTanks": [
        ((9.9, 5.0), (8.0,)),
        ((9.81, 9.9), (3.0,)),
        ((9.9, 0.5), (0.3,)),
        ((0.1, 0.1), (-3.0,)),
    ],
}

every_shipped_system = pytest.mark.parametrize("cls", SHIPPED, ids=lambda cls: cls.__name__)
every_system = pytest.mark.parametrize("cls", SYSTEMS, ids=lambda cls: cls.__name__)
every_interpolation = pytest.mark.parametrize(
    "interpolation", Interpolation, ids=lambda kind: kind.value
)


def ranges_of(cls):
    return INPUTS.get(cls.__name__, ((0.5, 1.5),) * len(cls.inputs))


def material(cls, n=12):
    """A system, its initial state, a random input and a random noise path, of 0.01 where the system
    has none.
    """
    system = cls()
    std = system.noise_std()
    w = np.random.default_rng(1).normal(size=(n, len(std))) * np.where(std > 0, std, 0.01)
    return system, system.initial_state(), random_input(ranges_of(cls), n), w


def visited(cls, n=6):
    """States and inputs (n, ...) of a random run, away from its start."""
    system, x0, u, w = material(cls, 40)
    picked = np.linspace(5, 39, n).astype(int)
    return integrate(system, x0, u, w).states[picked], u[picked]


def scaled(states, exact):
    """Largest deviation, relative to the range of each state."""
    return (np.abs(states - exact).max(axis=0) / np.maximum(np.abs(exact).max(axis=0), 1e-12)).max()


@every_shipped_system
def test_every_signal_is_described_and_every_field_and_input_acts(cls):
    """On a run that meets the limits of the states."""
    system = cls()
    u = 2 * random_input(ranges_of(cls), 200)

    def follow(system, u):
        run = simulate(system, u)
        return np.column_stack([run.time, run.state, run.output])

    for signal in (*cls.states, *cls.inputs, *cls.outputs, *cls.noises):
        assert signal.unit
        assert signal.description
    reference = follow(system, u)
    for name, value in asdict(system).items():
        if name == "changes":
            continue  # their own test: test_changes.py
        changed = replace(
            system,
            **{name: value + 1 if isinstance(value, int) else value * 1.01 + 0.0007},
        )
        assert not np.array_equal(follow(changed, u), reference), name
    for column in np.eye(len(cls.inputs)):
        assert not np.array_equal(follow(system, u * (1 + 0.01 * column)), reference)


@every_shipped_system
def test_fields_that_are_no_numbers_or_impossible_are_refused(cls):
    signed = SIGNED.get(cls.__name__, set())
    for field in fields(cls):
        bad = [
            np.nan,
            np.inf,
            "much",
            None,
            True,
            *IMPOSSIBLE.get(cls.__name__, {}).get(field.name, ()),
        ]
        if field.name not in signed and not field.name.startswith("initial_"):
            bad.append(-1 if field.name == "substeps" else -1.0)
        for value in bad:
            with pytest.raises(ValueError, match=rf"^{cls.__name__}\({field.name}="):
                cls(**{field.name: value})
    for name in signed:
        assert getattr(cls(**{name: -1.0}), name) == -1.0


@every_system
def test_runs_start_within_the_limits(cls):
    u = random_input(ranges_of(cls), 3)
    limits = limits_of(cls())
    assert ((limits[0] <= cls().initial_state()) & (cls().initial_state() <= limits[1])).all()
    for side, i in np.argwhere(np.isfinite(limits)):
        x0 = cls().initial_state()
        x0[i] = limits[side, i]
        assert simulate(cls(), u, initial_state=x0).state[0, i] == limits[side, i]
        x0[i] = np.nextafter(limits[side, i], (-np.inf, np.inf)[side])
        with pytest.raises(
            ValueError,
            match=rf"{cls.__name__}: expected an initial '{cls.states[i].name}' from",
        ):
            simulate(cls(), u, initial_state=x0)


@every_shipped_system
def test_jacobian_is_the_derivative_of_the_drift(cls):
    """Central differences of the plain drift, along every state and every input."""
    system = cls()
    x, u = visited(cls)
    points = [
        *zip(x, u, strict=True),
        *(map(np.array, point) for point in JACOBIAN_POINTS.get(cls.__name__, ())),
    ]
    silent = np.zeros(len(cls.noises))
    if system.jacobian(x[0], u[0]) is None:
        pytest.skip("no analytic Jacobian")
    scales = [np.abs(x).max(axis=0), np.abs(u).max(axis=0, initial=0.0)]
    for state, input in points:
        point = (state, input)
        for which, matrix in enumerate(system.jacobian(*point)):
            assert matrix.shape == (len(cls.states), len(point[which]))
            for j in range(len(point[which])):
                up, down = ([a.copy() for a in point] for _ in range(2))
                up[which][j] += 1e-5 * scales[which][j]
                down[which][j] -= 1e-5 * scales[which][j]
                rates = (system.derivative(0.0, *arguments, silent) for arguments in (up, down))
                slope = np.subtract(*rates) / (up[which][j] - down[which][j])
                size = np.abs(system.derivative(0.0, *point, silent)) / scales[which][j] + np.abs(
                    slope
                )
                np.testing.assert_array_less(
                    np.abs(matrix[:, j] - slope), 1e-6 * size + 1e-12 / scales[which][j]
                )


@every_system
@every_interpolation
def test_order_of_convergence_is_four(cls, interpolation):
    """Errors against DOP853 of halved steps, from the first that is small to the last above
    rounding.
    """
    start, n, inputs = SMOOTH.get(cls.__name__, (cls().initial_state(), 8, ranges_of(cls)))
    system = cls()
    x0 = np.array(start)
    u = random_input(inputs, n)
    w = material(cls, n)[-1]
    options = {"relative_tolerance": 1e-13, "absolute_tolerance": 1e-16}
    exact = solve_reference(system, x0, u, w, interpolation=interpolation, **options)
    assert scaled(exact, exact[:1]) > 1e-3
    errors = []
    for substeps in (2**i for i in range(9)):
        path = integrate(replace(system, substeps=substeps), x0, u, w, interpolation)
        errors.append(scaled(path.states, exact))
        if errors[-1] < 1e-10:
            break
    assert errors[-1] < 1e-8
    if cls is Basin and interpolation is not Interpolation.band_limited:
        assert max(errors) < 1e-13  # a polynomial of second degree in time
        return
    counted = [error for error in errors if 1e-11 < error < 1e-3][-4:]
    assert len(counted) >= 3
    np.testing.assert_allclose(np.log2(np.divide(counted[:-1], counted[1:])), 4.0, atol=0.5)


@every_system
@every_interpolation
def test_every_way_of_simulating_gives_the_same_bits(cls, interpolation):
    """Open loop, sample by sample, and as one of many."""
    system = cls()
    u = random_input(ranges_of(cls), 20)
    options = {
        "interpolation": interpolation.value,
        "measurement": MeasurementNoise(std=0.01),
    }
    one = simulate(system, u, seed=5, **options)
    exogenous = {signal.name: column for signal, column in zip(cls.inputs, u.T, strict=True)}
    samples = closed_loop(
        system, OpenLoop(dt=system.dt), exogenous, n_samples=20, seed=5, **options
    )
    many = simulate_many(system, u, seeds=[1, 5], **options)
    for other in (
        collect(samples, system, seed=5, interpolation=interpolation),
        many[1],
    ):
        for name in ("time", "input", "state", "output", "noise_free_output", "noise"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert (other.n_clipped, other.interpolation) == (one.n_clipped, interpolation)
