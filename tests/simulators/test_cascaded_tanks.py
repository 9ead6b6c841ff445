"""The cascaded tanks: water balance, overflow, the measured records, settings."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import simpson

from simulators import simulate
from simulators.grey_box import FreeParameter, fit_output_error
from simulators.systems.cascaded_tanks import CascadedTanks

TANKS = CascadedTanks()
CALM = np.zeros(2)
levels = st.tuples(st.floats(0, 10), st.floats(0, 10))

#: square-root outlets of equal tanks, half of the overflow, no threshold: what one knows before a fit
GUESS = replace(
    TANKS,
    upper_outflow=0.05,
    lower_inflow=0.05,
    lower_outflow=0.05,
    pump_gain=0.05,
    pump_threshold=0.0,
    overflow_fraction=0.5,
    initial_upper=5.0,
    initial_lower=5.0,
)
FREE = [
    *(
        FreeParameter(name, 0.005, 0.5, logarithmic=True)
        for name in ("upper_outflow", "lower_inflow", "lower_outflow", "pump_gain")
    ),
    FreeParameter("pump_threshold", -2.0, 2.0),
    FreeParameter("overflow_fraction", 0.0, 1.0),
    FreeParameter("initial_upper", 0.0, 10.0),
    FreeParameter("initial_lower", 0.0, 10.0),
]


@pytest.fixture(scope="session")
def measured(shared_data):
    """Columns uEst, yEst, uVal, yVal [V] of the benchmark."""
    path = shared_data / "cascaded_tanks" / "cascaded_tanks.csv"
    return np.genfromtxt(path, delimiter=",", names=True)


def free_run_error(system, measured, record, window):
    """RMSE [V] of the simulation against a measured record after a window."""
    simulated = simulate(system, measured[f"u{record}"], noise=False).output[:, 0]
    return sqrt(np.mean((simulated - measured[f"y{record}"])[window:] ** 2))


def rates_by_hand(tanks, x1, x2, u, w1=0.0, w2=0.0):
    """Flows one by one: pump, outlets, and what cannot stay in the upper tank."""
    inflow = tanks.pump_gain * max(u - tanks.pump_threshold, 0.0)
    outflow = tanks.upper_outflow * sqrt(x1) if x1 > 0 else 0.0
    remaining = inflow - outflow + w1
    start = tanks.upper_height - tanks.overflow_depth
    part = 0.0 if x1 < start else 1.0 if x1 > tanks.upper_height else (x1 - start) / tanks.overflow_depth
    spilled = part * remaining if remaining > 0 else 0.0
    areas = tanks.lower_inflow / tanks.upper_outflow
    lower = areas * (outflow + tanks.overflow_fraction * spilled) + w2
    return [remaining - spilled, lower - (tanks.lower_outflow * sqrt(x2) if x2 > 0 else 0.0)]


def naive_simulation(tanks, u, step):
    """Explicit Euler with tiny steps and clipped levels."""
    x1, x2, states = tanks.initial_upper, tanks.initial_lower, []
    for value in u:
        states.append((x1, x2))
        for _ in range(round(tanks.dt / step)):
            d1, d2 = rates_by_hand(tanks, x1, x2, value)
            x1 = min(max(x1 + step * d1, 0.0), tanks.upper_height)
            x2 = min(max(x2 + step * d2, 0.0), tanks.lower_height)
    return np.array(states)


@given(
    state=st.tuples(st.floats(-1, 11), st.floats(-1, 11)),
    u=st.floats(-5, 15),
    noise=st.tuples(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5)),
)
def test_rates_are_those_of_the_flows(state, u, noise):
    rates = TANKS.derivative(0.0, np.array(state), np.array([u]), np.array(noise))
    np.testing.assert_allclose(rates, rates_by_hand(TANKS, *state, u, *noise), rtol=1e-9, atol=1e-12)


def test_rates_are_the_published_ones_below_the_brim_without_threshold():
    tanks = replace(TANKS, pump_threshold=0.0)
    k1, k2, k3, k4 = tanks.parameters()[:4]
    rates = tanks.derivative(0.0, np.array([4.0, 9.0]), np.array([2.0]), CALM)
    np.testing.assert_allclose(rates, [-2 * k1 + 2 * k4, 2 * k2 - 3 * k3])


@given(u=st.floats(4.0, 10), fraction=st.floats(0, 1))
def test_a_full_upper_tank_passes_on_what_does_not_fit(u, fraction):
    tanks = replace(TANKS, overflow_fraction=fraction)
    excess = tanks.pump_gain * (u - tanks.pump_threshold) - tanks.upper_outflow * sqrt(10.0)
    full, lost = (
        system.derivative(0.0, np.array([10.0, 5.0]), np.array([u]), CALM)
        for system in (tanks, replace(tanks, overflow_fraction=0.0))
    )
    assert excess > 0
    assert full[0] == 0.0
    assert full[1] - lost[1] == pytest.approx(fraction * excess * tanks.lower_inflow / tanks.upper_outflow)


def test_a_tank_fills_to_the_brim_and_empties_to_the_ground():
    states = simulate(TANKS, np.repeat([20.0, -20.0], 400)).state
    np.testing.assert_allclose(states[399], [10.0, 10.0], atol=1e-6)
    np.testing.assert_array_equal(states[-1], [0.0, 0.0])


def test_levels_agree_with_a_naive_simulation_through_both_overflows():
    u = 3.5 + 3.5 * np.sin(np.arange(160) / 16)
    expected = naive_simulation(TANKS, u, step=0.01)
    trajectory = simulate(TANKS, u)
    assert expected.max(axis=0).tolist() == [pytest.approx(10.0, abs=1e-3), 10.0]
    assert trajectory.n_clipped > 0
    np.testing.assert_allclose(trajectory.state, expected, atol=3e-3)


@settings(max_examples=25, deadline=None)
@given(
    u=st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=30),
    start=levels,
    std=st.sampled_from([0.0, 0.1, 10.0]),
    seed=st.integers(0, 9),
)
def test_levels_stay_in_the_tanks_whatever_happens(u, start, std, seed):
    tanks = replace(TANKS, upper_noise_std=std, lower_noise_std=std)
    states = simulate(tanks, u, initial_state=start, seed=seed).state
    assert np.all((states >= 0) & (states <= 10))


@pytest.mark.parametrize("fraction", [0.0, 0.6, 1.0])
def test_water_is_conserved(fraction):
    """In volts of the lower tank: what the pump brings stays, leaves by the outlet or is spilled."""
    tanks = replace(TANKS, dt=0.5, substeps=2, overflow_fraction=fraction, initial_upper=9.0, lower_height=30.0)
    u = np.full(241, 5.0)
    x1, x2 = simulate(tanks, u).state.T
    areas = tanks.lower_inflow / tanks.upper_outflow
    net = tanks.pump_gain * (5.0 - tanks.pump_threshold) - tanks.upper_outflow * np.sqrt(x1)
    spilled = (1 - fraction) * areas * np.clip((x1 - 9.8) / 0.2, 0, 1) * net
    brought = areas * tanks.pump_gain * (5.0 - tanks.pump_threshold) * 120.0
    left = simpson(tanks.lower_outflow * np.sqrt(x2) + spilled, dx=0.5)
    assert x1[-1] > 9.99
    assert areas * (x1[-1] - x1[0]) + x2[-1] - x2[0] == pytest.approx(brought - left, abs=1e-3)


def test_runs_settle_where_the_flows_balance():
    inflow = TANKS.pump_gain * (2.5 - TANKS.pump_threshold)
    roots = np.array([inflow / TANKS.upper_outflow, 0.0])
    roots[1] = TANKS.lower_inflow * roots[0] / TANKS.lower_outflow
    end = simulate(TANKS, np.full(700, 2.5)).state[-1]
    np.testing.assert_allclose(end, roots**2, atol=1e-6)


def test_without_noise_by_default_and_noise_is_a_level_rate():
    u = np.full(2000, 2.5)
    assert not simulate(TANKS, u, seed=3).noise.any()
    noisy = replace(TANKS, upper_noise_std=0.01, lower_noise_std=0.02)
    trajectory = simulate(noisy, u, seed=3)
    np.testing.assert_allclose(trajectory.noise.std(axis=0), [0.01, 0.02], rtol=0.1)
    at, still = (TANKS.derivative(0.0, np.array([5.0, 5.0]), u[:1], w) for w in (np.array([0.01, 0.02]), CALM))
    np.testing.assert_allclose(at - still, [0.01, 0.02])


@given(state=st.tuples(st.floats(0.1, 9.999), st.floats(0.1, 9.999)), u=st.floats(-3, 12))
def test_jacobian_agrees_with_differences(state, u):
    x, h = np.array(state), 1e-6
    q = TANKS.pump_gain * max(u - TANKS.pump_threshold, 0) - TANKS.upper_outflow * sqrt(x[0])
    kinks = (u - TANKS.pump_threshold, x[0] - 9.8, x[0] - 10.0, q)
    if min(map(abs, kinks)) < 1e-4:
        return
    A, B = TANKS.jacobian(x, np.array([u]))

    def difference(dx, du):
        ahead, behind = (TANKS.derivative(0.0, x + s * dx, np.array([u + s * du]), CALM) for s in (h, -h))
        return (ahead - behind) / (2 * h)

    expected = [difference(dx, 0.0) for dx in np.eye(2)]
    np.testing.assert_allclose(A, np.array(expected).T, rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(B[:, 0], difference(CALM, 1.0), rtol=1e-4, atol=1e-7)


def test_jacobian_at_the_brim_is_that_from_below():
    A, B = TANKS.jacobian(np.array([10.0, 5.0]), np.array([8.0]))
    h = 1e-7
    below, above = (TANKS.derivative(0.0, np.array([x1, 5.0]), np.array([8.0]), CALM) for x1 in (10.0 - h, 10.0))
    np.testing.assert_allclose(A[:, 0], (above - below) / h, rtol=1e-4)
    assert B[0, 0] == 0.0


@pytest.mark.parametrize(
    ("state", "u"),
    [
        ((0.0, 5.0), 2.0),
        ((5.0, 0.0), 2.0),
        ((5.0, 5.0), TANKS.pump_threshold),
        ((10.1, 5.0), 2.0),
        ((5.0, 10.1), 2.0),
        ((-1.0, 5.0), 2.0),
    ],
)
def test_no_jacobian_where_there_is_none(state, u):
    assert TANKS.jacobian(np.array(state), np.array([u])) is None


def test_no_jacobian_where_the_overflow_sets_in():
    tanks = replace(TANKS, overflow_depth=0.25)
    assert tanks.jacobian(np.array([9.75, 5.0]), np.array([8.0])) is None
    assert tanks.jacobian(np.array([9.75, 5.0]), np.array([1.0])) is not None


@pytest.mark.parametrize("window", [5, 50])
def test_defaults_reproduce_the_measured_records(measured, window):
    assert free_run_error(TANKS, measured, "Est", window) < 0.262
    assert free_run_error(TANKS, measured, "Val", window) < 0.34


@pytest.mark.slow
def test_fit_of_the_estimation_record_gives_the_defaults(measured):
    records = [(measured["uEst"], measured["yEst"])]
    fit = fit_output_error(GUESS, records, FREE, starts=10)
    defaults = [getattr(TANKS, parameter.name) for parameter in FREE]
    np.testing.assert_allclose(fit.values, defaults, rtol=2e-3)
    assert not fit.at_bounds
    assert np.sum(fit.scaled_rmse_of_runs < 1.001 * fit.scaled_rmse_of_runs.min()) >= 5
    assert fit.rmse[0] == pytest.approx(0.2535, abs=2e-4)
    for window in (5, 50):
        assert free_run_error(fit.system, measured, "Val", window) <= 0.45


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value", "error"), [("pump_threshold", 0.0, 0.44), ("overflow_fraction", 0.0, 0.3)])
def test_threshold_and_overflow_earn_their_place(measured, name, value, error):
    """The best fit of the estimation record without one of them misses it by more than `error`, not by 0.2535 V."""
    free = [parameter for parameter in FREE if parameter.name != name]
    fit = fit_output_error(replace(GUESS, **{name: value}), [(measured["uEst"], measured["yEst"])], free, starts=6)
    assert fit.rmse[0] > error


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("upper_outflow", -0.05, "expected a number > 0"),
        ("lower_inflow", 0.0, "expected a number > 0"),
        ("lower_outflow", float("nan"), "expected a finite number"),
        ("pump_gain", -1.0, "expected a number > 0"),
        ("pump_threshold", float("inf"), "expected a finite number"),
        ("overflow_fraction", 1.1, "expected a number <= 1"),
        ("overflow_fraction", -0.1, "expected a number >= 0"),
        ("overflow_depth", 0.0, "expected a number > 0"),
        ("overflow_depth", 11.0, "expected a number <= 10"),
        ("upper_height", 0.0, "expected a number > 0"),
        ("lower_height", -1.0, "expected a number > 0"),
        ("upper_noise_std", -0.1, "expected a number >= 0"),
        ("lower_noise_std", -0.1, "expected a number >= 0"),
        ("initial_upper", -0.1, "expected a number >= 0"),
        ("initial_upper", 10.5, "expected a number <= 10"),
        ("initial_lower", -0.1, "expected a number >= 0"),
        ("initial_lower", 10.5, "expected a number <= 10"),
    ],
)
def test_impossible_settings_are_refused(field, value, expected):
    with pytest.raises(ValueError, match=rf"CascadedTanks\({field}=.*{expected}.*change {field}"):
        CascadedTanks(**{field: value})


@pytest.mark.parametrize("start", [(-0.1, 5.0), (5.0, 10.1)])
def test_runs_that_start_outside_the_tanks_are_refused(start):
    with pytest.raises(ValueError, match=r"expected an initial '\w+_level' from 0 to 10 V"):
        simulate(TANKS, np.ones(3), initial_state=start)
