"""The cascaded tanks: flows, overflow, Jacobian, the measured records."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulators import CascadedTanks, FreeParameter, fit_output_error, simulate

TANKS = CascadedTanks()
CALM = np.zeros(2)

RATES = ("upper_outflow", "lower_inflow", "lower_outflow", "pump_gain")
#: square-root outlets of equal tanks, half of the overflow, no threshold: what one knows before a fit
OTHERS = {
    "pump_threshold": 0.0,
    "overflow_fraction": 0.5,
    "initial_upper": 5.0,
    "initial_lower": 5.0,
}
GUESS = replace(TANKS, **dict.fromkeys(RATES, 0.05), **OTHERS)
FREE = [
    *(FreeParameter(name, 0.005, 0.5, logarithmic=True) for name in RATES),
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


def rates_by_hand(tanks, x1, x2, u, w1=0.0, w2=0.0):
    """Flows one by one: pump, outlets, and what cannot stay in the upper tank."""
    inflow = tanks.pump_gain * max(u - tanks.pump_threshold, 0.0)
    outflow = tanks.upper_outflow * sqrt(x1) if x1 > 0 else 0.0
    remaining = inflow - outflow + w1
    start = tanks.upper_height - tanks.overflow_depth
    part = (
        0.0
        if x1 < start
        else 1.0
        if x1 > tanks.upper_height
        else (x1 - start) / tanks.overflow_depth
    )
    spilled = part * remaining if remaining > 0 else 0.0
    areas = tanks.lower_inflow / tanks.upper_outflow
    lower = areas * (outflow + tanks.overflow_fraction * spilled) + w2
    return [
        remaining - spilled,
        lower - (tanks.lower_outflow * sqrt(x2) if x2 > 0 else 0.0),
    ]


def naive_simulation(tanks, u, step):
    """Explicit Euler with tiny steps and clipped levels."""
    x1 = tanks.initial_upper
    x2 = tanks.initial_lower
    states = []
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
    np.testing.assert_allclose(
        rates, rates_by_hand(TANKS, *state, u, *noise), rtol=1e-9, atol=1e-12
    )


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
    start=st.tuples(st.floats(0, 10), st.floats(0, 10)),
    std=st.sampled_from([0.0, 0.1, 10.0]),
    seed=st.integers(0, 9),
)
def test_levels_stay_in_the_tanks_whatever_happens(u, start, std, seed):
    tanks = replace(TANKS, upper_noise_std=std, lower_noise_std=std)
    states = simulate(tanks, u, initial_state=start, seed=seed).state
    assert np.all((states >= 0) & (states <= 10))


def test_jacobian_at_the_brim_is_that_from_below():
    A, B = TANKS.jacobian(np.array([10.0, 5.0]), np.array([8.0]))
    h = 1e-7
    below, above = (
        TANKS.derivative(0.0, np.array([x1, 5.0]), np.array([8.0]), CALM) for x1 in (10.0 - h, 10.0)
    )
    np.testing.assert_allclose(A[:, 0], (above - below) / h, rtol=1e-4)
    assert B[0, 0] == 0.0


def test_no_jacobian_where_there_is_none():
    """At an empty tank, at the threshold of the pump, outside the tanks, and where the overflow
    sets in.
    """
    tanks = replace(TANKS, overflow_depth=0.25)
    threshold = TANKS.pump_threshold
    for state, u in [
        ((0, 5), 2),
        ((5, 0), 2),
        ((5, 5), threshold),
        ((10.1, 5), 2),
        ((5, 10.1), 2),
        ((9.75, 5), 8),
    ]:
        assert tanks.jacobian(np.array(state, dtype=float), np.array([u])) is None
    assert tanks.jacobian(np.array([9.75, 5.0]), np.array([1.0])) is not None


def test_defaults_reproduce_the_measured_records(measured):
    """RMSE [V] of the free run after 5 samples and after 50."""
    for record, largest in (("Est", 0.262), ("Val", 0.34)):
        errors = (
            simulate(TANKS, measured[f"u{record}"], noise=False).output[:, 0]
            - measured[f"y{record}"]
        )
        for window in (5, 50):
            assert sqrt(np.mean(errors[window:] ** 2)) < largest


@pytest.mark.slow
def test_fit_of_the_estimation_record_gives_the_defaults(measured):
    """The best fit without the threshold, or without the overflow, misses the record by more than
    0.2535 V.
    """
    records = [(measured["uEst"], measured["yEst"])]
    fit = fit_output_error(GUESS, records, FREE, starts=10)
    np.testing.assert_allclose(
        fit.values, [getattr(TANKS, parameter.name) for parameter in FREE], rtol=2e-3
    )
    assert not fit.at_bounds
    assert fit.rmse[0] == pytest.approx(0.2535, abs=2e-4)
    for name, error in (("pump_threshold", 0.44), ("overflow_fraction", 0.3)):
        free = [parameter for parameter in FREE if parameter.name != name]
        assert (
            fit_output_error(replace(GUESS, **{name: 0.0}), records, free, starts=6).rmse[0] > error
        )
