"""The building: heat balance, steady state, settings."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import simpson

from simulators import simulate
from simulators.systems.building import Building

temperatures = st.floats(-30, 60)


def heat_flows(building, state, input):
    """Net heat into the building [W] by water and through the wall."""
    water = building.water_heat_capacity * input[..., 1] * (building.supply_temperature - state[..., 2])
    return water + (input[..., 0] - state[..., 1]) / building.wall_resistance


def stored_heat(building, state):
    """Heat in zone, wall and radiator above 0 degC [J]."""
    return state @ [building.zone_capacity, building.wall_capacity, building.radiator_capacity]


def steady_state(building, ambient, flow):
    """Solution of the heat balance by hand: all heat passes radiator, zone and wall in series."""
    resistance = building.zone_resistance + building.wall_resistance
    total = resistance + building.radiator_resistance
    c = building.water_heat_capacity * flow
    Q = c * (building.supply_temperature - ambient) / (1 + c * total)
    zone = ambient + Q * resistance
    return np.array([zone, ambient + Q * building.wall_resistance, zone + Q * building.radiator_resistance])


@given(state=st.tuples(*[temperatures] * 3), ambient=temperatures, flow=st.floats(0, 0.1))
def test_rates_balance_the_heat_flows(state, ambient, flow):
    building, x, u = Building(), np.array(state), np.array([ambient, flow])
    rates = building.derivative(0.0, x, u, np.zeros(3))
    balance = heat_flows(building, x, u)
    assert stored_heat(building, rates) == pytest.approx(balance, rel=1e-9, abs=1e-6)


@given(channel=st.integers(0, 2), rate=st.floats(-1e-3, 1e-3))
def test_noise_is_a_temperature_rate(channel, rate):
    building = Building()
    x, u, w = building.initial_state(), np.array([0.0, 0.01]), np.zeros(3)
    w[channel] = rate
    change = building.derivative(0.0, x, u, w) - building.derivative(0.0, x, u, np.zeros(3))
    np.testing.assert_allclose(change, w, atol=1e-15)


def test_heat_is_conserved_over_a_run():
    building = replace(Building(), dt=30.0, substeps=1)
    generator = np.random.default_rng(0)
    levels = np.column_stack([generator.uniform(-10, 10, 8), generator.uniform(0, 0.1, 8)])
    u = np.vstack([np.repeat(levels, 30, axis=0), levels[-1:]])
    x = simulate(building, u, noise=False).state
    pieces = [slice(30 * i, 30 * i + 31) for i in range(8)]
    flows = [heat_flows(building, x[piece], level) for piece, level in zip(pieces, levels, strict=True)]
    brought = sum(simpson(flow, dx=30.0) for flow in flows)
    stored = stored_heat(building, x[-1]) - stored_heat(building, x[0])
    assert abs(brought) > 1e5
    assert stored == pytest.approx(brought, rel=1e-5)


@given(ambient=st.floats(-20, 30), flow=st.floats(0, 0.1))
def test_steady_state_is_an_equilibrium(ambient, flow):
    rest = steady_state(Building(), ambient, flow)
    rates = Building().derivative(0.0, rest, np.array([ambient, flow]), np.zeros(3))
    np.testing.assert_allclose(rates, 0.0, atol=1e-12)


def test_runs_settle_at_the_steady_state():
    u = np.tile([-14.0, 0.05], (31 * 24, 1))
    end = simulate(Building(), u, dt=3600.0, substeps=40, noise=False).state[-1]
    np.testing.assert_allclose(end, steady_state(Building(), -14.0, 0.05), atol=2e-3)


@settings(max_examples=20, deadline=None)
@given(ambient=st.floats(-20, 35), flow=st.floats(0, 0.1))
def test_temperatures_stay_between_the_extremes(ambient, flow):
    x = simulate(Building(), np.tile([ambient, flow], (20, 1)), noise=False).state
    assert x.min() >= min(ambient, 15.0) - 1e-6
    assert x.max() <= 60.0 + 1e-6


def test_output_is_the_zone_for_any_leading_axes():
    states = np.arange(24.0).reshape(2, 4, 3)
    np.testing.assert_array_equal(Building().output(states), states[:, :, [0]])


@given(ambient=st.floats(-20, 30), flow=st.floats(0.001, 0.1))
def test_jacobian_gives_the_gain_of_the_steady_state(ambient, flow):
    """-A^-1 B against the slope of the heat balance by hand; the eigenvalues are those of a stable system."""
    building, u = Building(), np.array([ambient, flow])
    A, B = building.jacobian(steady_state(building, ambient, flow), u)
    assert (np.linalg.eigvals(A).real < 0).all()
    for i, h in enumerate((1e-3, 1e-6)):
        up, down = u.copy(), u.copy()
        up[i] += h
        down[i] -= h
        slope = (steady_state(building, *up) - steady_state(building, *down)) / (2 * h)
        np.testing.assert_allclose(-np.linalg.solve(A, B)[:, i], slope, rtol=1e-4, atol=1e-6 * np.abs(slope).max())


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("dt", 0.0, "expected a number > 0"),
        ("substeps", 0, "expected an integer from 1"),
        ("substeps", 2.5, "expected an integer from 1"),
        ("zone_capacity", -1.0, "expected a number > 0"),
        ("wall_resistance", float("nan"), "expected a finite number"),
        ("zone_noise_std", -1e-5, "expected a number >= 0"),
        ("initial_wall", "warm", "expected a finite number"),
    ],
)
def test_impossible_settings_are_refused(field, value, expected):
    with pytest.raises(ValueError, match=rf"Building\({field}=.*{expected}.*change {field}"):
        Building(**{field: value})
