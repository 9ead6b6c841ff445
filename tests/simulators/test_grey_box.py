"""Grey-box fits: recovery of known parameters, their standard errors, failures, bad input."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulators import Interpolation, MeasurementNoise, simulate
from simulators.grey_box import FreeParameter, fit_output_error
from simulators.systems.building import Building
from simulators.systems.cascaded_tanks import CascadedTanks

TANKS = CascadedTanks(substeps=1)
VOLTAGE = 2.5 + 1.2 * np.sin(np.arange(120) / 6) + 0.5 * np.sin(np.arange(120) / 2.3)
OUTLETS = [
    FreeParameter("lower_inflow", 0.005, 0.5, logarithmic=True),
    FreeParameter("lower_outflow", 0.005, 0.5, logarithmic=True),
]
GAIN = FreeParameter("pump_gain", 0.005, 0.5, logarithmic=True)
START = FreeParameter("initial_lower", 0.0, 10.0)
WRONG = replace(TANKS, lower_inflow=0.06, lower_outflow=0.06)


def tank_record(seed=0, std=0.05, system=TANKS):
    """Pump voltage and noisy level [V]."""
    run = simulate(system, VOLTAGE, seed=seed, measurement=MeasurementNoise(std=std))
    return VOLTAGE, run.output


def test_known_parameters_come_back_from_noise_free_records():
    fit = fit_output_error(WRONG, [tank_record(std=0.0)], OUTLETS, starts=3)
    np.testing.assert_allclose(fit.values, [TANKS.lower_inflow, TANKS.lower_outflow], rtol=1e-6)
    assert fit.system == replace(WRONG, lower_inflow=fit.values[0], lower_outflow=fit.values[1])
    assert fit.names == ("lower_inflow", "lower_outflow")
    assert fit.rmse.shape == (1,)
    assert fit.rmse[0] < 1e-6
    assert (fit.n_refused, fit.n_diverged, fit.at_bounds) == (0, 0, ())


def test_error_is_that_of_the_simulation_after_the_window():
    u, y = tank_record()
    spoiled = y.copy()
    spoiled[:7] = 50.0
    fit, same = (fit_output_error(WRONG, [(u, output)], OUTLETS, starts=1, window=7) for output in (spoiled, y))
    residual = (simulate(fit.system, u).output - y)[7:]
    assert fit.rmse[0] == pytest.approx(np.sqrt(np.mean(residual**2)))
    assert fit.rmse[0] == pytest.approx(0.05, rel=0.2)
    np.testing.assert_array_equal(fit.values, same.values)
    assert abs(fit_output_error(WRONG, [(u, spoiled)], OUTLETS, starts=1).values - fit.values).max() > 1e-3


def test_standard_errors_agree_with_the_spread_over_records():
    fits = [fit_output_error(TANKS, [tank_record(seed)], [*OUTLETS, START], starts=1) for seed in range(60)]
    spread = np.std([fit.values for fit in fits], axis=0, ddof=1)
    np.testing.assert_allclose(np.mean([fit.std for fit in fits], axis=0), spread, rtol=0.35)
    correlation = np.corrcoef(np.array([fit.values for fit in fits]).T)[0, 1]
    stated = fits[0].covariance[0, 1] / np.prod(fits[0].std[:2])
    assert stated == pytest.approx(correlation, abs=0.15)


def test_covariance_is_that_of_naive_sensitivities():
    u, y = tank_record()
    fit = fit_output_error(TANKS, [(u, y)], OUTLETS, starts=1)
    columns = []
    for name in fit.names:
        h = 1e-4 * getattr(fit.system, name)
        ahead, behind = (replace(fit.system, **{name: getattr(fit.system, name) + s}) for s in (h, -h))
        columns.append((simulate(ahead, u).output - simulate(behind, u).output)[:, 0] / (2 * h))
    J, e = np.array(columns).T, simulate(fit.system, u).output - y
    np.testing.assert_allclose(fit.covariance, np.sum(e**2) / (len(u) - 2) * np.linalg.inv(J.T @ J), rtol=1e-3)


def test_records_share_parameters_and_own_initial_states():
    truths = [replace(TANKS, initial_lower=level) for level in (2.0, 8.0)]
    inputs = (VOLTAGE, VOLTAGE[::-1])
    records = [(u, simulate(system, u).output) for u, system in zip(inputs, truths, strict=True)]
    own = replace(START, own=True)
    fit = fit_output_error(WRONG, records, [*OUTLETS, own], starts=2)
    assert fit.names == ("lower_inflow", "lower_outflow", "initial_lower[0]", "initial_lower[1]")
    np.testing.assert_allclose(fit.values, [TANKS.lower_inflow, TANKS.lower_outflow, 2.0, 8.0], rtol=1e-5)
    assert [system.initial_lower for system in fit.systems] == fit.values[2:].tolist()
    assert fit.systems[0].lower_inflow == fit.systems[1].lower_inflow == fit.values[0]
    shared = fit_output_error(WRONG, records, [*OUTLETS, START], starts=2)
    assert shared.systems[0] == shared.systems[1]
    assert shared.rmse[0] > 0.1


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
    fit = fit_output_error(wrong, [(u, y)], free, starts=1, interpolation=Interpolation.linear)
    np.testing.assert_allclose(fit.values, [building.zone_resistance, building.initial_wall], rtol=1e-5)
    held = fit_output_error(wrong, [(u, y)], free, starts=1)
    assert held.rmse[0] > 100 * fit.rmse[0]


def test_more_starts_leave_a_local_minimum():
    """From a pump that is too weak to matter the gradient is zero."""
    record = tank_record(std=0.0)
    stuck = replace(TANKS, pump_threshold=6.0)
    free = [FreeParameter("pump_threshold", -2.0, 7.0)]
    one, several = (fit_output_error(stuck, [record], free, starts=starts) for starts in (1, 4))
    assert one.rmse[0] > 1.0
    assert several.values[0] == pytest.approx(TANKS.pump_threshold, abs=1e-4)
    assert several.scaled_rmse_of_runs[0] == one.scaled_rmse_of_runs[0]
    assert len(several.scaled_rmse_of_runs) == 4


def test_the_seed_decides_the_starts():
    arguments = (WRONG, [tank_record()], OUTLETS)
    first, again, other = (fit_output_error(*arguments, starts=3, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.values, again.values)
    assert first.n_evaluations == again.n_evaluations != other.n_evaluations


def test_settings_that_the_system_refuses_are_counted():
    truth = replace(TANKS, lower_height=5.3)
    free = [FreeParameter("lower_height", 4.0, 10.0), GAIN]
    fit = fit_output_error(replace(TANKS, pump_gain=0.06), [tank_record(system=truth, std=0.0)], free, starts=8)
    np.testing.assert_allclose(fit.values, [5.3, TANKS.pump_gain], rtol=1e-4)
    assert fit.n_refused > 0
    assert fit.n_diverged == 0
    assert len(fit.scaled_rmse_of_runs) < 8


def test_simulations_that_diverge_are_counted():
    building = Building(substeps=2, radiator_capacity=2e6, zone_capacity=5e6)
    u = np.column_stack([np.full(150, 5.0), np.tile(np.repeat([0.0, 0.02], 5), 15)])
    y = simulate(building, u, noise=False).output
    free = [FreeParameter("zone_capacity", 1e3, 1e8, logarithmic=True)]
    fit = fit_output_error(replace(building, zone_capacity=2e7), [(u, y)], free, starts=8)
    assert fit.values[0] == pytest.approx(5e6, rel=1e-5)
    assert fit.n_diverged > 0
    assert fit.n_refused == 0
    assert np.all(np.isfinite(fit.scaled_rmse_of_runs))


def test_a_fit_that_cannot_be_simulated_at_all_says_so():
    building = Building(substeps=1, zone_capacity=2e3, wall_capacity=1e4)
    u = np.zeros((400, 2))
    free = [FreeParameter("zone_capacity", 1e3, 3e3)]
    with pytest.raises(ArithmeticError, match="none of 2 starts of Building could be simulated; narrow the bounds"):
        fit_output_error(building, [(u, u[:, 0])], free, starts=2)


def test_a_parameter_on_its_bound_is_reported_without_variance():
    bounded = FreeParameter("lower_inflow", 0.045, 0.1)
    fit = fit_output_error(WRONG, [tank_record(std=0.0)], [bounded, OUTLETS[1]], starts=1)
    assert fit.at_bounds == ("lower_inflow",)
    assert fit.values[0] == pytest.approx(0.045, rel=1e-5)
    assert np.isnan(fit.covariance[0]).all()
    assert np.isnan(fit.std).tolist() == [True, False]


def test_what_the_record_does_not_determine_has_infinite_variance():
    """Below the brim the height does not matter, and the volt of the upper level is free."""
    level = FreeParameter("initial_upper", 0.1, 10.0)
    outflow = FreeParameter("upper_outflow", 0.005, 0.5, logarithmic=True)
    height = FreeParameter("upper_height", 9.5, 30.0)
    tanks = replace(TANKS, initial_upper=3.0)
    u, y = 0.6 * VOLTAGE, simulate(tanks, 0.6 * VOLTAGE, measurement=MeasurementNoise(std=0.01)).output
    alone = fit_output_error(tanks, [(u, y)], [OUTLETS[1], height], starts=1)
    assert np.isinf(alone.std).tolist() == [False, True]
    scale_free = fit_output_error(tanks, [(u, y)], [outflow, *OUTLETS, GAIN, level], starts=1)
    assert np.isinf(scale_free.std).tolist() == [True, True, False, True, True]
    fixed = fit_output_error(tanks, [(u, y)], [outflow, *OUTLETS, level], starts=1)
    assert np.isfinite(fixed.std).all()
    assert scale_free.std[2] == pytest.approx(fixed.std[2], rel=0.05)


@given(lower=st.floats(1e-3, 10), width=st.floats(0.1, 100), share=st.floats(0, 1), logarithmic=st.booleans())
def test_shares_and_values_are_inverse(lower, width, share, logarithmic):
    p = FreeParameter("a", lower, lower + width, logarithmic)
    assert p.share(p.value(share)) == pytest.approx(share, abs=1e-9)
    assert p.value(0.0) == pytest.approx(lower)
    assert p.value(1.0) == pytest.approx(lower + width)
    h = 1e-6
    assert p.slope(share) == pytest.approx((p.value(share + h) - p.value(share - h)) / (2 * h), rel=1e-5)


def test_the_middle_of_a_logarithmic_range_is_the_geometric_mean():
    assert FreeParameter("a", 0.01, 1.0, logarithmic=True).value(0.5) == pytest.approx(0.1)
    assert FreeParameter("a", 0.0, 1.0).value(0.5) == 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lower": 1.0, "upper": 1.0}, "expected a number below upper"),
        ({"lower": float("-inf"), "upper": 1.0}, "expected a finite number"),
        ({"lower": 0.0, "upper": 1.0, "logarithmic": True}, "expected a number > 0 for a logarithmic parameter"),
    ],
)
def test_impossible_bounds_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FreeParameter("a", **arguments)


GOOD = (VOLTAGE, np.zeros(120))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"free": []}, r"expected free parameters among \[.*'upper_outflow'.*got \[\]; change free"),
        ({"free": [GAIN, GAIN]}, r"each once, got \['pump_gain', 'pump_gain'\]"),
        ({"free": [replace(GAIN, name="gain")]}, r"got \['gain'\]"),
        ({"free": [replace(GAIN, name="dt")]}, r"got \['dt'\]"),
        ({"free": [replace(GAIN, name="substeps")]}, r"got \['substeps'\]"),
        (
            {"free": [replace(GAIN, lower=0.4)]},
            "expected pump_gain of CascadedTanks to start from 0.4 to 0.5, got 0.04",
        ),
        ({"records": []}, "expected more errors .* got records of .* samples"),
        ({"records": [(VOLTAGE[:2], np.zeros(2))], "free": OUTLETS}, "than the 2 free parameters, got records of"),
        ({"records": [GOOD, (VOLTAGE[:9], np.zeros(9))], "window": 9}, r"window=9.* got records of \[120, 9\] samples"),
        ({"window": -1}, r"fit_output_error\(window=-1\)"),
        (
            {"records": [GOOD, (VOLTAGE, np.zeros((120, 2)))]},
            r"\['level'\] as columns in record 1, got shape \(120, 2\)",
        ),
        ({"records": [(VOLTAGE, np.full(120, np.nan))]}, "record 0, .* 120 values that are not finite; cut or repair"),
        ({"records": [(VOLTAGE, np.zeros(100))]}, "expected an input of n_samples=100 rows, got 120"),
        ({"records": [(np.full(120, np.inf), np.zeros(120))]}, "input 'pump_voltage' is inf at sample 0"),
        ({"starts": 0}, r"starts=0\): expected an integer >= 1"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"records": [GOOD], "free": [GAIN]} | changes
    with pytest.raises(ValueError, match=message):
        fit_output_error(TANKS, **arguments)
