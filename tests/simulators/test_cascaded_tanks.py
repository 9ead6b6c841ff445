"""The cascaded tanks: flows, overflow, Jacobian, the measured records."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators import CascadedTanks, FreeParameter, fit_output_error, simulate

DEFAULT_TANKS = CascadedTanks()

FLOW_COEFFICIENTS = ("upper_outflow", "lower_inflow", "lower_outflow", "pump_gain")
# What one knows before a fit: outlets that follow a square root, equal tanks, half of the overflow
# in the lower tank, no threshold of the pump.
FIRST_GUESS = replace(
    DEFAULT_TANKS,
    upper_outflow=0.05,
    lower_inflow=0.05,
    lower_outflow=0.05,
    pump_gain=0.05,
    pump_threshold=0.0,
    overflow_fraction=0.5,
    initial_upper=5.0,
    initial_lower=5.0,
)
FREE_PARAMETERS = [
    *(FreeParameter(name, 0.005, 0.5, logarithmic=True) for name in FLOW_COEFFICIENTS),
    FreeParameter("pump_threshold", -2.0, 2.0),
    FreeParameter("overflow_fraction", 0.0, 1.0),
    FreeParameter("initial_upper", 0.0, 10.0),
    FreeParameter("initial_lower", 0.0, 10.0),
]


@pytest.fixture(scope="session")
def measured(shared_data):
    """Return the columns uEst, yEst, uVal, yVal [V] of the benchmark."""
    path = shared_data / "cascaded_tanks" / "cascaded_tanks.csv"
    return np.genfromtxt(path, delimiter=",", names=True)


# --- equations ------------------------------------------------------------------------------------


def outflow(coefficient, level):
    """Return the flow out of a tank, V/s."""
    return coefficient * sqrt(level) if level > 0 else 0.0


def spilled_share(tanks, upper_level):
    """Return the share of the net inflow that does not stay in the upper tank [-]."""
    overflow_level = tanks.upper_height - tanks.overflow_depth
    if upper_level < overflow_level:
        return 0.0
    if upper_level > tanks.upper_height:
        return 1.0
    return (upper_level - overflow_level) / tanks.overflow_depth


def naive_rates(tanks, x1, x2, u, w1=0.0, w2=0.0):
    """Return the rates of both levels, flow by flow."""
    inflow = tanks.pump_gain * max(u - tanks.pump_threshold, 0.0)
    upper_outflow = outflow(tanks.upper_outflow, x1)
    net_inflow = inflow - upper_outflow + w1
    spilled = 0.0
    if net_inflow > 0:
        spilled = spilled_share(tanks, x1) * net_inflow
    ratio_of_areas = tanks.lower_inflow / tanks.upper_outflow
    lower_inflow = ratio_of_areas * (upper_outflow + tanks.overflow_fraction * spilled) + w2
    return [net_inflow - spilled, lower_inflow - outflow(tanks.lower_outflow, x2)]


def naive_simulation(tanks, u, step):
    """Return the levels (n, 2) by explicit Euler with tiny steps and clipped levels."""
    x1 = tanks.initial_upper
    x2 = tanks.initial_lower
    states = []
    for value in u:
        states.append((x1, x2))
        for _ in range(round(tanks.dt / step)):
            rate1, rate2 = naive_rates(tanks, x1, x2, value)
            x1 = min(max(x1 + step * rate1, 0.0), tanks.upper_height)
            x2 = min(max(x2 + step * rate2, 0.0), tanks.lower_height)
    return np.array(states)


@given(
    state=st.tuples(st.floats(-1, 11), st.floats(-1, 11)),
    u=st.floats(-5, 15),
    noise=st.tuples(st.floats(-0.5, 0.5), st.floats(-0.5, 0.5)),
)
def test_rates_are_those_of_the_flows(state, u, noise):
    rates = DEFAULT_TANKS.derivative(0.0, np.array(state), np.array([u]), np.array(noise))
    expected = naive_rates(DEFAULT_TANKS, *state, u, *noise)
    np.testing.assert_allclose(rates, expected, rtol=1e-9, atol=1e-12)


def test_levels_agree_with_a_naive_simulation_through_both_overflows():
    u = 3.5 + 3.5 * np.sin(np.arange(160) / 16)
    expected = naive_simulation(DEFAULT_TANKS, u, step=0.01)
    highest_upper, highest_lower = expected.max(axis=0)
    assert highest_upper == pytest.approx(10.0, abs=1e-3)
    assert highest_lower == 10.0
    trajectory = simulate(DEFAULT_TANKS, u)
    assert trajectory.n_clipped > 0
    np.testing.assert_allclose(trajectory.state, expected, atol=3e-3)


@settings(max_examples=25, deadline=None)
@given(
    u=st.lists(st.floats(-1e4, 1e4), min_size=2, max_size=30),
    start=st.tuples(st.floats(0, 10), st.floats(0, 10)),
    std=st.sampled_from([0.0, 0.1, 10.0]),
    seed=st.integers(0, 9),
)
def test_levels_stay_in_the_tanks_whatever_happens(u, start, std, seed):
    tanks = replace(DEFAULT_TANKS, upper_noise_std=std, lower_noise_std=std)
    states = simulate(tanks, u, initial_state=start, seed=seed).state
    assert np.all((states >= 0) & (states <= 10))


# --- Jacobian -------------------------------------------------------------------------------------


def test_jacobian_at_the_brim_is_that_from_below():
    u = np.array([8.0])
    A, B = DEFAULT_TANKS.jacobian(np.array([10.0, 5.0]), u)
    h = 1e-7
    no_noise = np.zeros(2)
    below = DEFAULT_TANKS.derivative(0.0, np.array([10.0 - h, 5.0]), u, no_noise)
    at_brim = DEFAULT_TANKS.derivative(0.0, np.array([10.0, 5.0]), u, no_noise)
    np.testing.assert_allclose(A[:, 0], (at_brim - below) / h, rtol=1e-4)
    assert B[0, 0] == 0.0


TANKS_WITH_LOW_OVERFLOW = replace(DEFAULT_TANKS, overflow_depth=0.25)


@pytest.mark.parametrize(
    ("state", "u"),
    [
        pytest.param((0, 5), 2, id="empty upper tank"),
        pytest.param((5, 0), 2, id="empty lower tank"),
        pytest.param((5, 5), DEFAULT_TANKS.pump_threshold, id="threshold of the pump"),
        pytest.param((10.1, 5), 2, id="above the upper tank"),
        pytest.param((5, 10.1), 2, id="above the lower tank"),
        pytest.param((9.75, 5), 8, id="overflow sets in"),
    ],
)
def test_jacobian_is_none_where_the_drift_has_no_derivative(state, u):
    x = np.array(state, dtype=float)
    assert TANKS_WITH_LOW_OVERFLOW.jacobian(x, np.array([u])) is None


def test_jacobian_exists_at_the_overflow_while_the_tank_empties():
    x = np.array([9.75, 5.0])
    assert TANKS_WITH_LOW_OVERFLOW.jacobian(x, np.array([1.0])) is not None


# --- measured records -----------------------------------------------------------------------------


@pytest.mark.parametrize("window", [5, 50])
@pytest.mark.parametrize(
    ("record", "largest_rmse"), [("Est", 0.262), ("Val", 0.34)], ids=["estimation", "validation"]
)
def test_defaults_reproduce_the_measured_records(measured, record, largest_rmse, window):
    """The error [V] is that of a simulation after the window."""
    run = simulate(DEFAULT_TANKS, measured[f"u{record}"], noise=False)
    errors = run.output[:, 0] - measured[f"y{record}"]
    assert sqrt(np.mean(errors[window:] ** 2)) < largest_rmse


@pytest.mark.slow
def test_fit_of_the_estimation_record_gives_the_defaults(measured):
    records = [(measured["uEst"], measured["yEst"])]
    fit = fit_output_error(FIRST_GUESS, records, FREE_PARAMETERS, starts=10)
    defaults = [getattr(DEFAULT_TANKS, parameter.name) for parameter in FREE_PARAMETERS]
    np.testing.assert_allclose(fit.values, defaults, rtol=2e-3)
    assert not fit.at_bounds
    assert fit.rmse[0] == pytest.approx(0.2535, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("left_out", "smallest_rmse"), [("pump_threshold", 0.44), ("overflow_fraction", 0.3)]
)
def test_fit_without_the_threshold_or_the_overflow_misses_the_record(
    measured, left_out, smallest_rmse
):
    """The complete model misses it by 0.2535 V only."""
    records = [(measured["uEst"], measured["yEst"])]
    guess = replace(FIRST_GUESS, **{left_out: 0.0})
    free = [parameter for parameter in FREE_PARAMETERS if parameter.name != left_out]
    fit = fit_output_error(guess, records, free, starts=6)
    assert fit.rmse[0] > smallest_rmse
