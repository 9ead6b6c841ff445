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
    grey_box,
    simulate,
)
from simulators.grey_box import output_variance

COARSE_TANKS = CascadedTanks(substeps=1)
WRONG_COARSE_TANKS = replace(COARSE_TANKS, lower_inflow=0.06, lower_outflow=0.06)
VOLTAGE = 2.5 + 1.2 * np.sin(np.arange(120) / 6) + 0.5 * np.sin(np.arange(120) / 2.3)
LOWER_INFLOW = FreeParameter("lower_inflow", 0.005, 0.5, logarithmic=True)
LOWER_OUTFLOW = FreeParameter("lower_outflow", 0.005, 0.5, logarithmic=True)
LOWER_FLOWS = [LOWER_INFLOW, LOWER_OUTFLOW]
PUMP_GAIN = FreeParameter("pump_gain", 0.005, 0.5, logarithmic=True)
INITIAL_LOWER = FreeParameter("initial_lower", 0.0, 10.0)


def tank_record(seed=0, std=0.05, system=COARSE_TANKS):
    """Return pump voltage and noisy level [V]."""
    noise = MeasurementNoise(std=std)
    return VOLTAGE, simulate(system, VOLTAGE, seed=seed, measurement=noise).output


def fit_tanks(system, records, free, starts=1, **options):
    """Return the fit of tanks to records, from one start if no number is given."""
    return fit_output_error(system, records, free, starts=starts, **options)


# --- missing outputs ------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [[0], [40, 41, 42, 90], range(60, 120)], ids=str)
def test_missing_outputs_do_not_count(missing):
    u, y = tank_record()
    y = y.copy()
    y[list(missing)] = np.nan
    fit = fit_tanks(WRONG_COARSE_TANKS, [(u, y)], LOWER_FLOWS, skip_missing=True)
    whole = fit_tanks(WRONG_COARSE_TANKS, [tank_record()], LOWER_FLOWS)
    assert (abs(fit.values - whole.values) < 4 * fit.std).all()
    simulated = simulate(fit.system, u).output
    assert fit.rmse == pytest.approx(np.sqrt(np.nanmean((simulated - y) ** 2, axis=0)))


@pytest.mark.parametrize(
    ("value", "options"), [(np.nan, {}), (np.inf, {"skip_missing": True})], ids=["nan", "infinite"]
)
def test_outputs_that_are_not_finite_are_refused(value, options):
    u, y = tank_record()
    y = y.copy()
    y[5] = value
    with pytest.raises(ValueError, match="1 values that are not finite"):
        fit_tanks(WRONG_COARSE_TANKS, [(u, y)], LOWER_FLOWS, **options)


# --- several records, and the error ---------------------------------------------------------------


@pytest.fixture(scope="module")
def two_records():
    """Return two records without noise that start at different levels, 2 and 8 V."""
    first = simulate(replace(COARSE_TANKS, initial_lower=2.0), VOLTAGE)
    reversed_voltage = VOLTAGE[::-1]
    second = simulate(replace(COARSE_TANKS, initial_lower=8.0), reversed_voltage)
    return [(VOLTAGE, first.output), (reversed_voltage, second.output)]


def test_records_share_parameters_and_have_initial_states_of_their_own(two_records):
    free = [*LOWER_FLOWS, replace(INITIAL_LOWER, own=True)]
    fit = fit_tanks(WRONG_COARSE_TANKS, two_records, free, starts=2)
    assert fit.names == (
        "lower_inflow",
        "lower_outflow",
        "initial_lower[0]",
        "initial_lower[1]",
    )
    expected = [COARSE_TANKS.lower_inflow, COARSE_TANKS.lower_outflow, 2.0, 8.0]
    np.testing.assert_allclose(fit.values, expected, rtol=1e-5)
    inflow, outflow, first_level, second_level = fit.values
    fitted = replace(WRONG_COARSE_TANKS, lower_inflow=inflow, lower_outflow=outflow)
    assert fit.systems == (
        replace(fitted, initial_lower=first_level),
        replace(fitted, initial_lower=second_level),
    )
    assert fit.n_refused == 0
    assert fit.n_diverged == 0
    assert fit.at_bounds == ()
    assert fit.rmse < 1e-5


def test_one_initial_state_does_not_suit_two_records(two_records):
    guess = replace(WRONG_COARSE_TANKS, initial_lower=5)  # a whole number
    fit = fit_tanks(guess, two_records, [*LOWER_FLOWS, INITIAL_LOWER], starts=2)
    assert fit.systems == (fit.system, fit.system)
    assert fit.rmse[0] > 0.1


def test_error_is_that_of_the_simulation_after_the_window():
    u, y = tank_record()
    spoiled = y.copy()
    spoiled[:7] = 50.0
    fit = fit_tanks(WRONG_COARSE_TANKS, [(u, spoiled)], LOWER_FLOWS, window=7)
    residual = (simulate(fit.system, u).output - y)[7:]
    assert fit.rmse[0] == pytest.approx(np.sqrt(np.mean(residual**2)))
    assert fit.rmse[0] == pytest.approx(0.05, rel=0.2)
    fit_of_clean_record = fit_tanks(WRONG_COARSE_TANKS, [(u, y)], LOWER_FLOWS, window=7)
    np.testing.assert_array_equal(fit.values, fit_of_clean_record.values)


# --- covariances ----------------------------------------------------------------------------------


def test_covariance_is_that_of_naive_sensitivities():
    u, y = tank_record()
    fit = fit_tanks(COARSE_TANKS, [(u, y)], LOWER_FLOWS)
    columns = []
    for name in fit.names:
        value = getattr(fit.system, name)
        h = 1e-4 * value
        ahead = simulate(replace(fit.system, **{name: value + h}), u).output
        behind = simulate(replace(fit.system, **{name: value - h}), u).output
        columns.append((ahead - behind)[:, 0] / (2 * h))
    J = np.array(columns).T
    residual = simulate(fit.system, u).output - y
    noise_variance = np.sum(residual**2) / (len(u) - 2)
    expected = noise_variance * np.linalg.inv(J.T @ J)
    np.testing.assert_allclose(fit.covariance, expected, rtol=1e-3)


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


POOL_PARAMETERS = [FreeParameter("gain", 0, 9), FreeParameter("offset", -9, 9)]
POOL_LEVEL = FreeParameter("initial_level", -9, 9, own=True)
EVERY_PARAMETER = [*POOL_PARAMETERS, POOL_LEVEL]
# Derivatives of the level by gain, offset and initial level.
POOL_BASIS = np.column_stack(
    [
        0.1 * (np.cumsum(VOLTAGE) - VOLTAGE),
        0.1 * np.arange(120),
        np.full(120, 1.0),
    ]
)
N_PARAMETER_DRAWS = 30_000


@pytest.fixture(scope="module")
def pool_output():
    """Return the noisy output (120, 1) of the pool."""
    noise = np.random.default_rng(0).standard_normal((120, 1))
    return simulate(Pool(), VOLTAGE).output + 0.1 * noise


@pytest.fixture(scope="module")
def pool_fit(pool_output):
    """Return the fit of all parameters of the pool."""
    return fit_output_error(Pool(), [(VOLTAGE, pool_output)], EVERY_PARAMETER, starts=1)


def test_variance_of_the_output_is_that_of_drawn_parameters(pool_fit):
    covariance = pool_fit.finite_covariance(EVERY_PARAMETER)
    generator = np.random.default_rng(1)
    draws = generator.multivariate_normal(pool_fit.values, covariance, N_PARAMETER_DRAWS)
    outputs = POOL_BASIS @ draws.T
    variance = output_variance(pool_fit.system, VOLTAGE[:, None], EVERY_PARAMETER, covariance)
    np.testing.assert_allclose(variance[:, 0], outputs.var(axis=1), rtol=0.03)


def test_variance_of_the_output_after_a_fit_of_the_start(pool_fit, pool_output):
    """The initial level is fitted to twelve samples, with the other parameters as they are."""
    u = VOLTAGE[:, None]
    y = pool_output[:12]
    covariance = pool_fit.finite_covariance(POOL_PARAMETERS)
    start = fit_output_error(pool_fit.system, [(u[:12], y)], [POOL_LEVEL], starts=1)

    generator = np.random.default_rng(2)
    draws = generator.multivariate_normal(pool_fit.values[:2], covariance, N_PARAMETER_DRAWS)
    outputs = POOL_BASIS[:, :2] @ draws.T
    fitted_levels = (y - outputs[:12]).mean(axis=0)
    outputs += fitted_levels + start.std[0] * generator.standard_normal(N_PARAMETER_DRAWS)

    variance = output_variance(start.system, u, EVERY_PARAMETER, covariance, start=(start, y))
    np.testing.assert_allclose(variance[:, 0], outputs.var(axis=1), rtol=0.03)


def test_variance_beside_which_no_system_can_be_simulated_is_refused():
    system = replace(Lag(), time_constant=1e-4)
    free = [FreeParameter("time_constant", -1.0, 9.0)]
    message = "no simulation beside this time_constant; change its bounds"
    with pytest.raises(ValueError, match=message):
        output_variance(system, VOLTAGE[:, None], free, np.eye(1))


def test_parameter_on_its_bound_is_reported_without_variance():
    bounded = FreeParameter("lower_inflow", 0.045, 0.1)
    free = [bounded, LOWER_OUTFLOW]
    fit = fit_tanks(WRONG_COARSE_TANKS, [tank_record(std=0.0)], free)
    assert fit.at_bounds == ("lower_inflow",)
    assert fit.values[0] == pytest.approx(0.045, rel=1e-5)
    assert np.isnan(fit.std).tolist() == [True, False]


def test_finite_covariance_replaces_nan_by_zero_and_infinity_by_the_bounds():
    """A parameter on its bound is known; an undetermined one is uniform between its bounds."""
    bounded = FreeParameter("lower_inflow", 0.045, 0.1)
    free = [bounded, LOWER_OUTFLOW]
    fit = fit_tanks(WRONG_COARSE_TANKS, [tank_record(std=0.0)], free)
    undetermined = replace(fit, covariance=np.diag([np.nan, np.inf]))
    expected = np.diag([0.0, 0.495**2 / 12])
    np.testing.assert_allclose(undetermined.finite_covariance(free), expected)


@pytest.fixture(scope="module")
def low_tank_fits():
    """Return a function that gives the standard errors of a fit to a record below the brim."""
    tanks = replace(COARSE_TANKS, initial_upper=3.0)
    u = 0.6 * VOLTAGE
    output = simulate(tanks, u, measurement=MeasurementNoise(std=0.01)).output
    return lambda free: fit_tanks(tanks, [(u, output)], free).std


UPPER_OUTFLOW = FreeParameter("upper_outflow", 0.005, 0.5, logarithmic=True)
UPPER_HEIGHT = FreeParameter("upper_height", 9.5, 30.0)
INITIAL_UPPER = FreeParameter("initial_upper", 0.1, 10.0)


def test_height_that_is_not_reached_has_infinite_variance(low_tank_fits):
    std = low_tank_fits([LOWER_OUTFLOW, UPPER_HEIGHT])
    assert np.isinf(std).tolist() == [False, True]


def test_parameters_in_an_unknown_unit_have_infinite_variance(low_tank_fits):
    """The unit of the upper level is free: only the lower outflow does not depend on it.

    With the gain of the pump the unit is fixed.
    """
    free_unit = low_tank_fits([UPPER_OUTFLOW, *LOWER_FLOWS, PUMP_GAIN, INITIAL_UPPER])
    assert np.isinf(free_unit).tolist() == [True, True, False, True, True]
    fixed_unit = low_tank_fits([UPPER_OUTFLOW, *LOWER_FLOWS, INITIAL_UPPER])
    assert np.isfinite(fixed_unit).all()
    assert free_unit[2] == pytest.approx(fixed_unit[2], rel=0.05)


# --- inputs, starts and failures ------------------------------------------------------------------


def test_inputs_are_interpolated_between_their_samples():
    """The building has two inputs, which are linear between the samples."""
    building = Building(dt=3600.0, substeps=60)
    n = np.arange(60)
    u = np.column_stack([5 + 5 * np.sin(n / 4), 0.02 + 0.02 * np.sin(n / 3)])
    y = simulate(building, u, noise=False, interpolation=Interpolation.linear).output
    free = [
        FreeParameter("zone_resistance", 2e-4, 2e-2, logarithmic=True),
        FreeParameter("initial_wall", -10.0, 40.0),
    ]
    guess = replace(building, zone_resistance=0.004, initial_wall=5.0)
    linear = fit_output_error(guess, [(u, y)], free, starts=1, interpolation="linear")
    held = fit_output_error(guess, [(u, y)], free, starts=1, interpolation="held")
    expected = [building.zone_resistance, building.initial_wall]
    np.testing.assert_allclose(linear.values, expected, rtol=1e-5)
    assert held.rmse[0] > 100 * linear.rmse[0]


def test_a_record_whose_input_is_too_long_to_be_kept_has_the_same_fit(monkeypatch):
    u, _ = tank_record()
    y = simulate(COARSE_TANKS, u, noise=False, interpolation=Interpolation.linear).output
    fits = []
    for n_kept in (grey_box.MAX_KEPT_INPUT_VALUES, 0):
        monkeypatch.setattr(grey_box, "MAX_KEPT_INPUT_VALUES", n_kept)
        fit = fit_tanks(WRONG_COARSE_TANKS, [(u, y)], LOWER_FLOWS, interpolation="linear")
        fits.append(fit.values)
    np.testing.assert_array_equal(*fits)
    np.testing.assert_allclose(
        fits[0], [COARSE_TANKS.lower_inflow, COARSE_TANKS.lower_outflow], rtol=1e-4
    )


def test_more_starts_leave_a_local_minimum_and_the_seed_decides_them():
    """Where the pump never starts, the gradient is zero."""
    stuck = replace(COARSE_TANKS, pump_threshold=6.0)
    free = [FreeParameter("pump_threshold", -2.0, 7.0)]
    records = [tank_record(std=0.0)]
    one_start = fit_output_error(stuck, records, free, starts=1, seed=0)
    four_starts = fit_output_error(stuck, records, free, starts=4, seed=0)
    again = fit_output_error(stuck, records, free, starts=4, seed=0)
    other_seed = fit_output_error(stuck, records, free, starts=4, seed=1)
    assert one_start.rmse[0] > 1.0
    assert four_starts.values[0] == pytest.approx(COARSE_TANKS.pump_threshold, abs=1e-4)
    assert four_starts.scaled_rmse_of_runs[0] == one_start.scaled_rmse_of_runs[0]
    assert len(four_starts.scaled_rmse_of_runs) == 4
    assert four_starts.n_evaluations == again.n_evaluations
    assert again.n_evaluations != other_seed.n_evaluations


def test_without_the_covariance_the_estimates_are_the_same_and_take_fewer_simulations():
    records = [tank_record()]
    whole = fit_tanks(WRONG_COARSE_TANKS, records, LOWER_FLOWS)
    quick = fit_tanks(WRONG_COARSE_TANKS, records, LOWER_FLOWS, with_covariance=False)
    np.testing.assert_array_equal(quick.values, whole.values)
    assert np.isfinite(whole.covariance).all()
    assert np.isnan(quick.covariance).all()
    assert quick.n_evaluations <= whole.n_evaluations - 2 * len(LOWER_FLOWS)


def test_settings_that_the_system_refuses_are_counted():
    truth = replace(COARSE_TANKS, lower_height=5.3)
    free = [FreeParameter("lower_height", 4.0, 10.0), PUMP_GAIN]
    guess = replace(COARSE_TANKS, pump_gain=0.06)
    fit = fit_output_error(guess, [tank_record(system=truth, std=0.0)], free, starts=8)
    np.testing.assert_allclose(fit.values, [5.3, COARSE_TANKS.pump_gain], rtol=1e-4)
    assert fit.n_refused > 0
    assert fit.n_diverged == 0
    assert len(fit.scaled_rmse_of_runs) < 8


STIFF_BUILDING = Building(substeps=2, radiator_capacity=2e6, zone_capacity=5e6)


def test_simulations_that_diverge_are_counted():
    heating = np.tile(np.repeat([0.0, 0.02], 5), 15)
    u = np.column_stack([np.full(150, 5.0), heating])
    records = [(u, simulate(STIFF_BUILDING, u, noise=False).output)]
    free = [FreeParameter("zone_capacity", 1e3, 1e8, logarithmic=True)]
    guess = replace(STIFF_BUILDING, zone_capacity=2e7)
    fit = fit_output_error(guess, records, free, starts=8)
    assert fit.values[0] == pytest.approx(5e6, rel=1e-5)
    assert fit.n_diverged > 0
    assert fit.n_refused == 0


def test_fit_whose_starts_all_diverge_is_an_error():
    building = replace(STIFF_BUILDING, substeps=1, zone_capacity=2e3, wall_capacity=1e4)
    u = np.zeros((400, 2))
    free = [FreeParameter("zone_capacity", 1e3, 3e3)]
    with pytest.raises(ArithmeticError, match="none of 2 starts of Building"):
        fit_output_error(building, [(u, u[:, 0])], free, starts=2)


# --- free parameters and bad arguments ------------------------------------------------------------


@given(
    lower=st.floats(1e-3, 10),
    width=st.floats(0.1, 100),
    share=st.floats(0, 1),
    logarithmic=st.booleans(),
)
def test_shares_and_values_are_inverse(lower, width, share, logarithmic):
    upper = lower + width
    parameter = FreeParameter("a", lower, upper, logarithmic)
    assert parameter.share(parameter.value(share)) == pytest.approx(share, abs=1e-9)
    assert (parameter.value(0.0), parameter.value(1.0)) == pytest.approx((lower, upper))
    middle = np.sqrt(lower * upper) if logarithmic else lower + width / 2
    assert parameter.value(0.5) == pytest.approx(middle)
    h = 1e-6
    slope = (parameter.value(share + h) - parameter.value(share - h)) / (2 * h)
    assert parameter.slope(share) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize(
    "bounds",
    [(1.0, 1.0), (-np.inf, 1.0), (0.0, 1.0, True)],
    ids=["equal", "infinite", "logarithm of zero"],
)
def test_impossible_bounds_are_refused(bounds):
    with pytest.raises(ValueError, match=r"FreeParameter\(lower="):
        FreeParameter("a", *bounds)


GOOD_RECORD = (VOLTAGE, np.zeros(120))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"free": []}, "change free", id="nothing free"),
        pytest.param({"free": [PUMP_GAIN, PUMP_GAIN]}, "each once", id="parameter twice"),
        pytest.param(
            {"free": [replace(PUMP_GAIN, name="gain")]}, r"got \['gain'\]", id="unknown parameter"
        ),
        pytest.param({"free": [replace(PUMP_GAIN, name="dt")]}, r"got \['dt'\]", id="dt"),
        pytest.param(
            {"free": [replace(PUMP_GAIN, name="substeps")]}, r"got \['substeps'\]", id="substeps"
        ),
        pytest.param(
            {"free": [replace(PUMP_GAIN, lower=0.4)]},
            "pump_gain of CascadedTanks to start from 0.4 to 0.5, got 0.04",
            id="start outside the bounds",
        ),
        pytest.param(
            {"records": [(VOLTAGE[:2], np.zeros(2))], "free": LOWER_FLOWS},
            "than the 2 free parameters",
            id="too few samples",
        ),
        pytest.param(
            {"records": [GOOD_RECORD, (VOLTAGE[:9], np.zeros(9))], "window": 9},
            r"window=9.*\[120, 9\] samples",
            id="window as long as a record",
        ),
        pytest.param({"window": -1}, "window=-1", id="negative window"),
        pytest.param(
            {"records": [GOOD_RECORD, (VOLTAGE, np.zeros((120, 2)))]},
            r"record 1, got shape \(120, 2\)",
            id="two outputs",
        ),
        pytest.param(
            {"records": [(VOLTAGE, np.full(120, np.nan))]},
            "record 0, .* 120 values that are not finite",
            id="output of nan",
        ),
        pytest.param(
            {"records": [(np.full(120, np.inf), np.zeros(120))]},
            "'pump_voltage' is inf",
            id="infinite input",
        ),
        pytest.param({"starts": 0}, "starts=0", id="no starts"),
        pytest.param({"interpolation": "cubic"}, "interpolation='cubic'", id="interpolation"),
    ],
)
def test_bad_arguments_are_refused(changes, message):
    arguments = {"records": [GOOD_RECORD], "free": [PUMP_GAIN]} | changes
    with pytest.raises(ValueError, match=message):
        fit_output_error(COARSE_TANKS, **arguments)
