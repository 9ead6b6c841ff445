"""Grey-box fits: recovery of known parameters, their standard errors, failures, bad input."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plants import Lag
from simulators import (
    Building,
    CascadedTanks,
    FreeParameter,
    Interpolation,
    MeasurementNoise,
    fit_output_error,
    simulate,
)
from simulators.grey_box import output_variance

TANKS = CascadedTanks(substeps=1)
VOLTAGE = 2.5 + 1.2 * np.sin(np.arange(120) / 6) + 0.5 * np.sin(np.arange(120) / 2.3)
OUTLETS = [
    FreeParameter(name, 0.005, 0.5, logarithmic=True) for name in ("lower_inflow", "lower_outflow")
]
GAIN = FreeParameter("pump_gain", 0.005, 0.5, logarithmic=True)
START = FreeParameter("initial_lower", 0.0, 10.0)
WRONG = replace(TANKS, lower_inflow=0.06, lower_outflow=0.06)


def tank_record(seed=0, std=0.05, system=TANKS):
    """Pump voltage and noisy level [V]."""
    return VOLTAGE, simulate(
        system, VOLTAGE, seed=seed, measurement=MeasurementNoise(std=std)
    ).output


def test_records_share_parameters_and_own_initial_states():
    truths = [replace(TANKS, initial_lower=level) for level in (2.0, 8.0)]
    inputs = (VOLTAGE, VOLTAGE[::-1])
    records = [(u, simulate(system, u).output) for u, system in zip(inputs, truths, strict=True)]
    fit = fit_output_error(WRONG, records, [*OUTLETS, replace(START, own=True)], starts=2)
    assert fit.names == (
        "lower_inflow",
        "lower_outflow",
        "initial_lower[0]",
        "initial_lower[1]",
    )
    np.testing.assert_allclose(
        fit.values, [TANKS.lower_inflow, TANKS.lower_outflow, 2.0, 8.0], rtol=1e-5
    )
    found = dict(zip(("lower_inflow", "lower_outflow"), fit.values, strict=False))
    assert fit.systems == tuple(
        replace(WRONG, initial_lower=level, **found) for level in fit.values[2:]
    )
    assert (fit.n_refused, fit.n_diverged, fit.at_bounds) == (0, 0, ())
    assert fit.rmse < 1e-5
    shared = fit_output_error(
        replace(WRONG, initial_lower=5), records, [*OUTLETS, START], starts=2
    )  # a whole number
    assert shared.systems[0] == shared.systems[1] == shared.system
    assert shared.rmse[0] > 0.1


def test_error_is_that_of_the_simulation_after_the_window():
    u, y = tank_record()
    spoiled = y.copy()
    spoiled[:7] = 50.0
    fit, same = (
        fit_output_error(WRONG, [(u, output)], OUTLETS, starts=1, window=7)
        for output in (spoiled, y)
    )
    residual = (simulate(fit.system, u).output - y)[7:]
    assert fit.rmse[0] == pytest.approx(np.sqrt(np.mean(residual**2)))
    assert fit.rmse[0] == pytest.approx(0.05, rel=0.2)
    np.testing.assert_array_equal(fit.values, same.values)


def test_covariance_is_that_of_naive_sensitivities():
    u, y = tank_record()
    fit = fit_output_error(TANKS, [(u, y)], OUTLETS, starts=1)
    columns = []
    for name in fit.names:
        h = 1e-4 * getattr(fit.system, name)
        ahead, behind = (
            replace(fit.system, **{name: getattr(fit.system, name) + s}) for s in (h, -h)
        )
        columns.append((simulate(ahead, u).output - simulate(behind, u).output)[:, 0] / (2 * h))
    J = np.array(columns).T
    e = simulate(fit.system, u).output - y
    np.testing.assert_allclose(
        fit.covariance, np.sum(e**2) / (len(u) - 2) * np.linalg.inv(J.T @ J), rtol=1e-3
    )


@dataclass(frozen=True)
class Pool(Lag):
    """x' = b u + c, linear in b, c and its first level."""

    gain: float = 2.0  # b
    offset: float = -5.0  # c, V/s

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = parameters[0] * input[0] + parameters[1] + noise[0]

    def parameters(self):
        return np.array([self.gain, self.offset])


def test_variance_of_the_output_is_that_of_drawn_parameters():
    generator = np.random.default_rng(0)
    free = [FreeParameter("gain", 0, 9), FreeParameter("offset", -9, 9)]
    every = [*free, FreeParameter("initial_level", -9, 9, own=True)]
    y = simulate(Pool(), VOLTAGE).output + 0.1 * generator.standard_normal((120, 1))
    fit = fit_output_error(Pool(), [(VOLTAGE, y)], every, starts=1)
    basis = 0.1 * np.column_stack(
        [np.cumsum(VOLTAGE) - VOLTAGE, np.arange(120), np.full(120, 10.0)]
    )
    known = fit.finite_covariance(every)
    shared = fit.finite_covariance(free)
    drawn = basis @ generator.multivariate_normal(fit.values, known, 100_000).T
    u = VOLTAGE[:, None]
    np.testing.assert_allclose(
        output_variance(fit.system, u, every, known)[:, 0], drawn.var(axis=1), rtol=0.03
    )
    start = fit_output_error(fit.system, [(u[:12], y[:12])], every[2:], starts=1)
    drawn = basis[:, :2] @ generator.multivariate_normal(fit.values[:2], shared, 100_000).T
    drawn += (y[:12] - drawn[:12]).mean(axis=0) + start.std[0] * generator.standard_normal(100_000)
    found = output_variance(start.system, u, every, shared, start=(start, y[:12]))
    np.testing.assert_allclose(found[:, 0], drawn.var(axis=1), rtol=0.03)
    with pytest.raises(
        ValueError, match="no simulation beside this time_constant; change its bounds"
    ):
        output_variance(
            replace(Lag(), time_constant=1e-4),
            u,
            [FreeParameter("time_constant", -1.0, 9.0)],
            np.eye(1),
        )


def test_a_system_with_two_inputs_between_its_samples():
    building = Building(dt=3600.0, substeps=60)
    n = np.arange(60)
    u = np.column_stack([5 + 5 * np.sin(n / 4), 0.02 + 0.02 * np.sin(n / 3)])
    y = simulate(building, u, noise=False, interpolation=Interpolation.linear).output
    free = [
        FreeParameter("zone_resistance", 2e-4, 2e-2, logarithmic=True),
        FreeParameter("initial_wall", -10.0, 40.0),
    ]
    wrong = replace(building, zone_resistance=0.004, initial_wall=5.0)
    fit, held = (
        fit_output_error(wrong, [(u, y)], free, starts=1, interpolation=i)
        for i in ("linear", "held")
    )
    np.testing.assert_allclose(
        fit.values, [building.zone_resistance, building.initial_wall], rtol=1e-5
    )
    assert held.rmse[0] > 100 * fit.rmse[0]


def test_more_starts_leave_a_local_minimum_and_the_seed_decides_them():
    """From a pump that is too weak to matter the gradient is zero."""
    stuck = replace(TANKS, pump_threshold=6.0)
    free = [FreeParameter("pump_threshold", -2.0, 7.0)]
    one, several, again, other = (
        fit_output_error(stuck, [tank_record(std=0.0)], free, starts=starts, seed=seed)
        for starts, seed in ((1, 0), (4, 0), (4, 0), (4, 1))
    )
    assert one.rmse[0] > 1.0
    assert several.values[0] == pytest.approx(TANKS.pump_threshold, abs=1e-4)
    assert several.scaled_rmse_of_runs[0] == one.scaled_rmse_of_runs[0]
    assert len(several.scaled_rmse_of_runs) == 4
    assert several.n_evaluations == again.n_evaluations != other.n_evaluations


def test_settings_that_the_system_refuses_are_counted():
    truth = replace(TANKS, lower_height=5.3)
    free = [FreeParameter("lower_height", 4.0, 10.0), GAIN]
    fit = fit_output_error(
        replace(TANKS, pump_gain=0.06),
        [tank_record(system=truth, std=0.0)],
        free,
        starts=8,
    )
    np.testing.assert_allclose(fit.values, [5.3, TANKS.pump_gain], rtol=1e-4)
    assert fit.n_refused > 0 == fit.n_diverged
    assert len(fit.scaled_rmse_of_runs) < 8


def test_simulations_that_diverge_are_counted():
    building = Building(substeps=2, radiator_capacity=2e6, zone_capacity=5e6)
    u = np.column_stack([np.full(150, 5.0), np.tile(np.repeat([0.0, 0.02], 5), 15)])
    records = [(u, simulate(building, u, noise=False).output)]
    free = [FreeParameter("zone_capacity", 1e3, 1e8, logarithmic=True)]
    fit = fit_output_error(replace(building, zone_capacity=2e7), records, free, starts=8)
    assert fit.values[0] == pytest.approx(5e6, rel=1e-5)
    assert fit.n_diverged > 0 == fit.n_refused
    stiff = replace(building, substeps=1, zone_capacity=2e3, wall_capacity=1e4)
    long = np.zeros((400, 2))
    with pytest.raises(ArithmeticError, match="none of 2 starts of Building"):
        fit_output_error(
            stiff,
            [(long, long[:, 0])],
            [FreeParameter("zone_capacity", 1e3, 3e3)],
            starts=2,
        )


def test_a_parameter_on_its_bound_is_reported_without_variance():
    bounded = FreeParameter("lower_inflow", 0.045, 0.1)
    fit = fit_output_error(WRONG, [tank_record(std=0.0)], [bounded, OUTLETS[1]], starts=1)
    assert fit.at_bounds == ("lower_inflow",)
    assert fit.values[0] == pytest.approx(0.045, rel=1e-5)
    assert np.isnan(fit.std).tolist() == [True, False]
    loose = replace(fit, covariance=np.diag([np.nan, np.inf])).finite_covariance(
        [bounded, OUTLETS[1]]
    )
    np.testing.assert_allclose(
        loose, np.diag([0.0, 0.495**2 / 12])
    )  # known; uniform between the bounds


def test_what_the_record_does_not_determine_has_infinite_variance():
    """Below the brim the height does not matter, and the volt of the upper level is free."""
    level = FreeParameter("initial_upper", 0.1, 10.0)
    outflow = FreeParameter("upper_outflow", 0.005, 0.5, logarithmic=True)
    height = FreeParameter("upper_height", 9.5, 30.0)
    tanks = replace(TANKS, initial_upper=3.0)
    u = 0.6 * VOLTAGE
    records = [(u, simulate(tanks, u, measurement=MeasurementNoise(std=0.01)).output)]
    free = (
        [OUTLETS[1], height],
        [outflow, *OUTLETS, GAIN, level],
        [outflow, *OUTLETS, level],
    )
    alone, scale_free, fixed = (
        fit_output_error(tanks, records, parameters, starts=1).std for parameters in free
    )
    assert np.isinf(alone).tolist() == [False, True]
    assert np.isinf(scale_free).tolist() == [True, True, False, True, True]
    assert np.isfinite(fixed).all()
    assert scale_free[2] == pytest.approx(fixed[2], rel=0.05)


@given(
    lower=st.floats(1e-3, 10),
    width=st.floats(0.1, 100),
    share=st.floats(0, 1),
    logarithmic=st.booleans(),
)
def test_shares_and_values_are_inverse(lower, width, share, logarithmic):
    p = FreeParameter("a", lower, lower + width, logarithmic)
    h = 1e-6
    assert p.share(p.value(share)) == pytest.approx(share, abs=1e-9)
    assert (p.value(0.0), p.value(1.0)) == pytest.approx((lower, lower + width))
    middle = np.sqrt(lower * (lower + width)) if logarithmic else lower + width / 2
    assert p.value(0.5) == pytest.approx(middle)
    assert p.slope(share) == pytest.approx(
        (p.value(share + h) - p.value(share - h)) / (2 * h), rel=1e-5
    )


def test_impossible_bounds_are_refused():
    for bounds in ((1.0, 1.0), (-np.inf, 1.0), (0.0, 1.0, True)):
        with pytest.raises(ValueError, match=r"FreeParameter\(lower="):
            FreeParameter("a", *bounds)


GOOD = (VOLTAGE, np.zeros(120))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"free": []}, "change free"),
        ({"free": [GAIN, GAIN]}, "each once"),
        *(
            ({"free": [replace(GAIN, name=name)]}, rf"got \['{name}'\]")
            for name in ("gain", "dt", "substeps")
        ),
        (
            {"free": [replace(GAIN, lower=0.4)]},
            "pump_gain of CascadedTanks to start from 0.4 to 0.5, got 0.04",
        ),
        (
            {"records": [(VOLTAGE[:2], np.zeros(2))], "free": OUTLETS},
            "than the 2 free parameters",
        ),
        (
            {"records": [GOOD, (VOLTAGE[:9], np.zeros(9))], "window": 9},
            r"window=9.*\[120, 9\] samples",
        ),
        ({"window": -1}, "window=-1"),
        (
            {"records": [GOOD, (VOLTAGE, np.zeros((120, 2)))]},
            r"record 1, got shape \(120, 2\)",
        ),
        (
            {"records": [(VOLTAGE, np.full(120, np.nan))]},
            "record 0, .* 120 values that are not finite",
        ),
        ({"records": [(np.full(120, np.inf), np.zeros(120))]}, "'pump_voltage' is inf"),
        ({"starts": 0}, "starts=0"),
        ({"interpolation": "cubic"}, "interpolation='cubic'"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        fit_output_error(TANKS, **({"records": [GOOD], "free": [GAIN]} | changes))
