"""What holds for every system: found by itself, compared with an adaptive solver, checked against bad settings."""

import json
from collections import defaultdict
from dataclasses import MISSING, asdict, fields, replace
from typing import NamedTuple

import numpy as np
import pytest
from plants import Basin, concrete_systems, random_input

from simulators import Interpolation, MeasurementNoise, closed_loop, collect, simulate, simulate_many
from simulators.controllers.open_loop import OpenLoop
from simulators.integrators import integrate, limits_of
from simulators.reference import solve_reference
from simulators.runge_kutta import PLAIN

SHIPPED = concrete_systems()
SYSTEMS = [*SHIPPED, Basin]
INPUTS = {  # range of each input in its unit; (0.5, 1.5) for an input of a system that is not named here
    "Building": ((-10.0, 20.0), (0.0, 0.1)),
    "BoucWen": ((-100.0, 100.0),),
    "CascadedTanks": ((1.0, 4.0),),
    "Basin": ((-0.02, 0.02),),
}
SIGNED = {  # fields beside the initial values that may be negative
    "Building": {"supply_temperature"},
    "BoucWen": {"gamma", "delta"},
    "CascadedTanks": {"pump_threshold"},
}


class Smooth(NamedTuple):
    """Where the drift of a system has the derivatives that the order of convergence needs."""

    start: tuple[float, ...] | None = None  # None: the system's own
    n: int = 8  # samples
    inputs: tuple[tuple[float, float], ...] | None = None  # None: as in INPUTS


SMOOTH = defaultdict(Smooth, BoucWen=Smooth((1e-4, 0.1, 5.0), 5, ((40.0, 60.0),)))  # v and z stay positive
TOLERANCE = defaultdict(lambda: 1e-8, BoucWen=2e-6)  # where v or z changes its sign, the order is lost

every_shipped_system = pytest.mark.parametrize("cls", SHIPPED, ids=lambda cls: cls.__name__)
every_system = pytest.mark.parametrize("cls", SYSTEMS, ids=lambda cls: cls.__name__)
every_interpolation = pytest.mark.parametrize("interpolation", Interpolation, ids=lambda kind: kind.value)


def ranges_of(cls):
    return INPUTS.get(cls.__name__, ((0.5, 1.5),) * len(cls.inputs))


def noise_of(system, n, seed=1):
    """Noise path with the standard deviations of the system, 0.01 where there is none."""
    std = system.noise_std()
    return np.random.default_rng(seed).normal(size=(n, len(std))) * np.where(std > 0, std, 0.01)


def material(cls, n=12, seed=0):
    """A system, its initial state, a random input and a random noise path."""
    system = cls()
    return system, system.initial_state(), random_input(ranges_of(cls), n, seed), noise_of(system, n)


def visited(cls, n=6):
    """States, inputs and noises (n, ...) of a random run, away from its start."""
    system, x0, u, w = material(cls, 40)
    picked = np.linspace(5, 39, n).astype(int)
    return integrate(system, x0, u, w).states[picked], u[picked], w[picked]


def extremes(cls):
    """Points (state, input, noise): visited, and with a state at a limit or close to it and extreme inputs."""
    points = list(zip(*visited(cls), strict=True))
    lower, upper = limits_of(cls())
    x, _, w = points[0]
    for i in np.flatnonzero(np.isfinite(upper - lower)):
        for share in (0.0, 0.01, 0.99, 1.0):
            for inputs in np.transpose(ranges_of(cls)):
                state = x.copy()
                state[i] = lower[i] + share * (upper[i] - lower[i])
                points.append((state, inputs, 0 * w))
    return points


def drift_at(cls, points, parameters):
    """Rates (m, n_x) at points (state, input, noise) with given parameters."""
    rates = np.full((len(points), len(cls.states)), np.nan)
    for (x, u, w), row in zip(points, rates, strict=True):
        cls.drift(0.0, x, u, w, parameters, row)
    return rates


def scaled(states, exact):
    """Largest deviation, relative to the range of each state."""
    return (np.abs(states - exact).max(axis=0) / np.maximum(np.abs(exact).max(axis=0), 1e-12)).max()


def test_systems_are_found():
    names = {cls.__name__ for cls in SYSTEMS}
    assert {"Building", "VanDerPol", "BoucWen"} <= names
    assert len(names) == len(SYSTEMS)


@every_shipped_system
def test_signals_say_what_they_are(cls):
    for signal in (*cls.states, *cls.inputs, *cls.outputs, *cls.noises):
        assert signal.name.isidentifier()
        assert signal.unit
        assert signal.description
    assert cls.states
    assert cls.outputs
    assert len(cls.__doc__.splitlines()) > 1


@every_system
def test_vectors_have_the_length_of_their_signals(cls):
    system = cls()
    assert system.initial_state().shape == (len(cls.states),)
    assert system.noise_std().shape == (len(cls.noises),)
    assert system.parameters().ndim == 1
    for vector in (system.initial_state(), system.noise_std(), system.parameters()):
        assert vector.dtype == np.float64
        assert np.isfinite(vector).all()
    lower, upper = system.state_limits()
    assert lower.shape == upper.shape == (len(cls.states),)
    assert (lower < upper).all()


@every_system
def test_output_takes_states_of_any_shape(cls):
    system, n_x, n_y = cls(), len(cls.states), len(cls.outputs)
    states = visited(cls, 6)[0]
    rows = np.stack([system.output(state) for state in states])
    assert rows.shape == (6, n_y)
    np.testing.assert_array_equal(system.output(states), rows)
    np.testing.assert_array_equal(system.output(states.reshape(2, 3, n_x)), rows.reshape(2, 3, n_y))


@every_system
def test_drift_only_reads_its_arguments(cls):
    for x, u, w in extremes(cls):
        arguments = [x, u, w, cls().parameters()]
        before = [a.copy() for a in arguments]
        cls.drift(3.0, *arguments, np.empty(len(cls.states)))
        for one, other in zip(arguments, before, strict=True):
            np.testing.assert_array_equal(one, other)


@every_shipped_system
def test_every_parameter_is_used_and_there_are_no_more(cls):
    parameters, points = cls().parameters(), extremes(cls)
    reference = drift_at(cls, points, parameters)
    assert np.isfinite(reference).all()
    idle = []
    for i, value in enumerate(parameters):
        for change in (1e-3, -1e-3):
            other = parameters.copy()
            other[i] = value * (1 + change) if value else change
            if not np.array_equal(drift_at(cls, points, other), reference):
                break
        else:
            idle.append(i)
    assert not idle


@every_system
def test_every_input_and_every_noise_acts(cls):
    x, u, w = visited(cls)
    parameters = cls().parameters()
    reference = drift_at(cls, list(zip(x, u, w, strict=True)), parameters)
    for signal, position in ((u, 1), (w, 2)):
        for i in range(signal.shape[1]):
            changed = [x, u.copy(), w.copy()]
            changed[position][:, i] += 0.01
            assert (drift_at(cls, list(zip(*changed, strict=True)), parameters) != reference).any()


def shown(system):
    """All that a simulation reads of a system."""
    arrays = (system.parameters(), system.noise_std(), system.initial_state(), *system.state_limits())
    states = np.linspace(0.5, 1.5, len(system.states))
    return [system.dt, system.substeps, *np.concatenate(arrays), *system.output(states)]


@every_system
def test_every_field_is_read(cls):
    system = cls()
    for name, value in asdict(system).items():
        changes = [value + 1] if isinstance(value, int) else [value * 1.01 + 0.001, value * 0.99 + 0.001]
        assert any(shown(replace(system, **{name: change})) != shown(system) for change in changes), name


@every_system
def test_settings_survive_json_and_can_be_compared(cls):
    system = replace(cls(), dt=cls().dt / 3)
    assert cls(**json.loads(json.dumps(asdict(system)))) == system != cls()
    assert len({system, cls(), cls()}) == 2
    assert all(field.default is not MISSING for field in fields(cls))


@every_shipped_system
@pytest.mark.parametrize("value", [np.nan, np.inf, "much", None, True], ids=str)
def test_fields_that_are_no_numbers_are_refused(cls, value):
    for field in fields(cls):
        with pytest.raises(ValueError, match=rf"^{cls.__name__}\({field.name}=.*\): expected .*; change {field.name}$"):
            cls(**{field.name: value})


@every_shipped_system
def test_negative_fields_are_refused_unless_signed(cls):
    signed = SIGNED.get(cls.__name__, set())
    positive = [f.name for f in fields(cls) if f.name not in signed and not f.name.startswith("initial_")]
    assert len(positive) >= 3
    for name in positive:
        with pytest.raises(ValueError, match=rf"^{cls.__name__}\({name}=-1.*\): expected .*; change {name}"):
            cls(**{name: -1 if isinstance(getattr(cls(), name), int) else -1.0})
    for name in signed:
        assert getattr(cls(**{name: -1.0}), name) == -1.0


@every_system
def test_initial_state_is_within_the_limits(cls):
    lower, upper = limits_of(cls())
    x0 = cls().initial_state()
    assert (lower <= x0).all()
    assert (x0 <= upper).all()


def finite_limits():
    for cls in SYSTEMS:
        for side, limit in enumerate(limits_of(cls())):
            for i in np.flatnonzero(np.isfinite(limit)):
                yield pytest.param(cls, side, i, id=f"{cls.__name__}-{cls.states[i].name}-{('lower', 'upper')[side]}")


@pytest.mark.parametrize(("cls", "side", "i"), list(finite_limits()))
def test_initial_state_outside_the_limits_is_refused(cls, side, i):
    limit = limits_of(cls())[side, i]
    u = random_input(ranges_of(cls), 3)
    x0 = cls().initial_state()
    x0[i] = limit
    assert simulate(cls(), u, initial_state=x0).state[0, i] == limit
    x0[i] = np.nextafter(limit, (-np.inf, np.inf)[side])
    name = cls.states[i].name
    with pytest.raises(ValueError, match=rf"{cls.__name__}: expected an initial '{name}' from .*change initial_state"):
        simulate(cls(), u, initial_state=x0)


@every_shipped_system
def test_jacobian_is_the_derivative_of_the_drift(cls):
    """Central differences of the plain drift, along every state and every input, at visited points."""
    system = cls()
    x, u, _ = visited(cls)
    silent = np.zeros(len(cls.noises))
    if system.jacobian(x[0], u[0]) is None:
        pytest.skip("no analytic Jacobian")
    scales = [np.abs(x).max(axis=0), np.abs(u).max(axis=0, initial=0.0)]
    for point in zip(x, u, strict=True):
        for matrix, which in zip(system.jacobian(*point), (0, 1), strict=True):
            assert matrix.shape == (len(cls.states), len(point[which]))
            for j in range(len(point[which])):
                h = 1e-5 * scales[which][j]
                up, down = ([a.copy() for a in point] for _ in range(2))
                up[which][j] += h
                down[which][j] -= h
                rates = (system.derivative(0.0, *arguments, silent) for arguments in (up, down))
                slope = np.subtract(*rates) / (up[which][j] - down[which][j])
                size = np.abs(system.derivative(0.0, *point, silent)) / scales[which][j] + np.abs(slope)
                np.testing.assert_array_less(np.abs(matrix[:, j] - slope), 1e-6 * size + 1e-12 / scales[which][j])


def plain_runge_kutta(system, x, u_of, w, substeps):
    """One sample of the classical method as in a textbook; `u_of` takes positions from 0 to 1."""
    h = system.dt / substeps

    def f(position, state):
        return system.derivative(0.0, state, u_of(position), w)

    for j in range(substeps):
        a, b, c = j / substeps, (j + 0.5) / substeps, (j + 1) / substeps
        k1 = f(a, x)
        k2 = f(b, x + h / 2 * k1)
        k3 = f(b, x + h / 2 * k2)
        k4 = f(c, x + h * k3)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return x


@every_system
def test_compiled_integration_equals_a_plain_one(cls):
    """Held and straight inputs, the drift in plain Python, the method as in a textbook."""
    system, x0, u, w = material(cls, 5)
    for interpolation, slope in ((Interpolation.held, 0.0), (Interpolation.linear, 1.0)):
        states = [x0]
        for k in range(4):
            rise = slope * (u[k + 1] - u[k])
            states.append(
                plain_runge_kutta(system, states[-1], lambda p, k=k, r=rise: u[k] + p * r, w[k], system.substeps)
            )
        path = integrate(system, x0, u, w, interpolation)
        np.testing.assert_allclose(path.states, states, rtol=1e-9, atol=1e-13)
        assert path.n_clipped == 0


@every_system
@every_interpolation
def test_fine_integration_agrees_with_dop853(cls, interpolation):
    system, x0, u, w = material(cls)
    options = {"relative_tolerance": 1e-10, "absolute_tolerance": 1e-14}
    exact = solve_reference(system, x0, u, w, interpolation=interpolation, **options)
    path = integrate(replace(system, substeps=10 * system.substeps), x0, u, w, interpolation)
    assert scaled(path.states, exact) < TOLERANCE[cls.__name__]
    assert path.n_clipped == 0
    assert scaled(path.states, path.states[:1]) > 1e-3


@every_system
@every_interpolation
def test_order_of_convergence_is_four(cls, interpolation):
    """Errors of halved steps, from the first that is small to the last above rounding."""
    smooth = SMOOTH[cls.__name__]
    system, x0, _, w = material(cls, smooth.n)
    x0 = x0 if smooth.start is None else np.array(smooth.start)
    u = random_input(smooth.inputs or ranges_of(cls), smooth.n)
    options = {"relative_tolerance": 1e-13, "absolute_tolerance": 1e-16}
    exact = solve_reference(system, x0, u, w, interpolation=interpolation, **options)
    errors = []
    for substeps in (2**i for i in range(9)):
        path = integrate(replace(system, substeps=substeps), x0, u, w, interpolation)
        errors.append(scaled(path.states, exact))
        if errors[-1] < 1e-10:
            break
    assert errors[-1] < 1e-8
    counted = [error for error in errors if 1e-11 < error < 1e-3][-4:]
    if cls is Basin and interpolation is not Interpolation.band_limited:
        assert max(errors) < 1e-13  # a polynomial of second degree in time
        return
    assert len(counted) >= 3
    np.testing.assert_allclose(np.log2(np.divide(counted[:-1], counted[1:])), 4.0, atol=0.5)


@every_system
@every_interpolation
def test_refined_noise_path_is_the_same_noise(cls, interpolation):
    """A path at dt, and each of its values three times at dt/3, lead through the same states."""
    system, x0, u, w = material(cls)
    fine = replace(system, dt=system.dt / 3)
    coarse = replace(system, substeps=3 * system.substeps)
    positions = np.arange(3 * 11 + 1) / 3
    between = {
        Interpolation.held: np.repeat(u, 3, axis=0)[:34],
        Interpolation.linear: np.stack([np.interp(positions, np.arange(12), c) for c in u.T] or [positions], axis=1),
        Interpolation.band_limited: fourier(u, 3),
    }[interpolation]
    between = np.ascontiguousarray(between[:, : len(cls.inputs)])
    one = integrate(coarse, x0, u, w, interpolation).states
    other = integrate(fine, x0, between, np.repeat(w, 3, axis=0)[: len(between)], interpolation).states
    assert scaled(other[::3][:12], one) < 1e-9


def fourier(u, factor):
    """One period of the trigonometric polynomial through the samples, at factor times the rate."""
    n = len(u)
    spectrum = np.fft.fft(u, axis=0)
    angles = 2j * np.pi * np.fft.fftfreq(n) * n
    at = np.arange(n * factor) / (n * factor)
    return (np.exp(np.outer(at, angles)) @ spectrum).real / n


@every_system
def test_same_seed_same_record_longer_begins_with_shorter(cls):
    u = random_input(ranges_of(cls), 30)
    n = {} if cls.inputs else {"n_samples": 30}
    noise = MeasurementNoise(std=0.1)
    whole, again, other = (
        simulate(cls(), u if cls.inputs else None, seed=seed, measurement=noise, **n) for seed in (3, 3, 4)
    )
    part = simulate(cls(), u[:11] if cls.inputs else None, seed=3, measurement=noise, **(n and {"n_samples": 11}))
    for name in ("state", "output", "noise", "noise_free_output"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(again, name))
        np.testing.assert_array_equal(getattr(whole, name)[:11], getattr(part, name))
    assert (whole.output != other.output).all()
    assert (whole.noise != other.noise).all() == (cls().noise_std() > 0).any()


@every_system
@every_interpolation
def test_every_way_of_simulating_gives_the_same_bits(cls, interpolation):
    """Open loop, sample by sample, and as one of many; the record explains itself."""
    system, u = cls(), random_input(ranges_of(cls), 20)
    options = {"interpolation": interpolation, "measurement": MeasurementNoise(std=0.01)}
    one = simulate(system, u, seed=5, **options)
    exogenous = {signal.name: column for signal, column in zip(cls.inputs, u.T, strict=True)}
    samples = closed_loop(system, OpenLoop(dt=system.dt), exogenous, n_samples=20, seed=5, **options)
    many = simulate_many(system, u, seeds=[1, 5], **options)
    for other in (collect(samples, system, seed=5, interpolation=interpolation), many[1]):
        for name in ("time", "input", "state", "output", "noise_free_output", "noise"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert other.n_clipped == one.n_clipped
    dataset = one.to_dataset()
    for signal in (*cls.states, *cls.inputs, *cls.outputs, *cls.noises):
        assert dataset[signal.name].attrs == {"units": signal.unit, "long_name": signal.description}
    assert dataset.attrs["system"].endswith(cls.__name__)
    assert dataset.attrs["interpolation"] == interpolation.value


@pytest.mark.skipif(PLAIN, reason="minutes without the compiler")
@every_system
def test_long_runs_stay_finite(cls):
    u = random_input(ranges_of(cls), 3000, seed=2)
    many = simulate_many(cls(), np.stack([u, u[::-1]]), seeds=[0, 1])
    assert np.isfinite(many.state).all()
    lower, upper = limits_of(cls())
    assert (lower <= many.state).all()
    assert (many.state <= upper).all()
