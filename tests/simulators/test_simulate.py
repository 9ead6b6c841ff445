"""Open loop and closed loop: the method, inputs between their samples, limits, divergence."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st

from plants import Basin, Lag, Runaway, random_input, ways_to_simulate
from simulators import (
    PI,
    Building,
    DivergenceError,
    Interpolation,
    OpenLoop,
    Signal,
    SyntheticWeather,
    VanDerPol,
    closed_loop,
    collect,
    interpolation,
    simulate,
    substep_error,
)
from simulators.reference_solution import solve_reference
from simulators.runge_kutta import WITHOUT_COMPILER, integrate, stepper

every_interpolation = pytest.mark.parametrize("kind", Interpolation)
each_way_to_simulate = pytest.mark.parametrize(
    "way", range(3), ids=["alone", "in a set", "in a loop"]
)


def synthetic_ambient(n, seed=0):
    """Return the exogenous inputs of the building with synthetic weather."""
    return {"ambient_temperature": SyntheticWeather().temperature(900.0 * np.arange(n), seed=seed)}


def simulate_loop(n=200, *, seed=0, exogenous=None, **options):
    """Return a record of the building under its PI controller."""
    if exogenous is None:
        exogenous = synthetic_ambient(n, seed)
    samples = closed_loop(Building(), PI(), exogenous, seed=seed, **options)
    return collect(samples, Building(), seed=seed)


# --- the method -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Analytic(Lag):
    """x1' = r x1 (1 - x1), x2' = x2 cos t: two problems with known solutions."""

    states: ClassVar = (
        Signal("x1", "1", "logistic"),
        Signal("x2", "1", "driven by time"),
    )
    dt: float = 0.5

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = 2.0 * state[0] * (1 - state[0])
        derivative[-1] = state[-1] * np.cos(time)

    def initial_state(self):
        return np.array([0.1, 1.0])


def test_known_solutions_are_approximated_with_order_four():
    u = np.zeros((9, 1))
    time = 0.5 * np.arange(9)
    exact = np.stack([1 / (1 + 9 * np.exp(-2.0 * time)), np.exp(np.sin(time))], axis=1)
    np.testing.assert_allclose(solve_reference(Analytic(), exact[0], u, u), exact, rtol=1e-8)
    errors = []
    for substeps in (2, 4, 8, 16):
        states = simulate(Analytic(substeps=substeps), u).state
        errors.append(np.abs(states - exact).max(axis=0))
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders.mean(axis=0), 4.0, atol=0.2)
    assert np.max(errors[-1]) < 1e-6


def heated_building_record(substeps):
    """Return a record of the building with more and more heating."""
    u = np.column_stack([np.zeros(40), np.linspace(0, 0.1, 40)])
    return simulate(Building(substeps=substeps), u, seed=1)


@pytest.mark.parametrize("substeps", [5, 8])
def test_estimated_error_is_the_true_error_of_one_sample(substeps):
    record = heated_building_record(substeps)
    errors = []
    for k in range(39):
        held_input = record.input[[k, k]]
        held_noise = record.noise[[k, k]]
        exact = solve_reference(record.system, record.state[k], held_input, held_noise)
        errors.append(abs(record.state[k + 1, 0] - exact[1, 0]))
    spread_of_changes = np.diff(record.output[:, 0]).std()
    expected = 15 / 16 * max(errors) / spread_of_changes
    assert substep_error(record) == pytest.approx(expected, rel=0.1)
    assert substep_error(record, n_samples=9) <= substep_error(record)


def test_estimated_error_of_steps_that_diverge_is_infinite():
    record = heated_building_record(substeps=5)
    stiff = replace(record.system, substeps=1, radiator_capacity=1e-60)
    assert substep_error(replace(record, system=stiff)) == np.inf


def test_estimated_error_at_rest_is_zero():
    at_rest = VanDerPol(initial_position=0.0, acceleration_noise_std=0.0)
    assert substep_error(simulate(at_rest, n_samples=5)) == 0


SCRIPT = """
import json, numpy as np
from simulators import PI, Building, closed_loop, collect
ambient = {"ambient_temperature": np.linspace(-5.0, 5.0, 60)}
run = collect(closed_loop(Building(), PI(), ambient, seed=3), Building(), seed=3)
print(json.dumps([run.state.tolist(), run.input.tolist()]))
"""


def test_compiled_simulation_equals_plain_python():
    """One of both runs here, the other one in a process."""
    disable_compiler = "0" if WITHOUT_COMPILER else "1"
    process = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "NUMBA_DISABLE_JIT": disable_compiler},
        capture_output=True,
        text=True,
        check=True,
    )
    states, inputs = json.loads(process.stdout)
    ambient = {"ambient_temperature": np.linspace(-5.0, 5.0, 60)}
    run = collect(closed_loop(Building(), PI(), ambient, seed=3), Building(), seed=3)
    np.testing.assert_allclose(run.state, states, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(run.input, inputs, rtol=1e-12, atol=1e-12)


# --- inputs between their samples -----------------------------------------------------------------


def trigonometric_polynomial(u, positions):
    """Return the trigonometric polynomial through one period of samples, term by term.

    Positions are in samples.
    """
    n = len(u)
    total = np.tile(u.mean(axis=0), (len(positions), 1))
    for m in range(1, n // 2 + 1):
        angle = 2 * np.pi * m * np.arange(n) / n
        angle_at_positions = 2 * np.pi * m * positions / n
        is_nyquist = 2 * m == n
        factor = 1 if is_nyquist else 2
        cosine_amplitude = factor / n * np.cos(angle) @ u
        total += np.outer(np.cos(angle_at_positions), cosine_amplitude)
        if not is_nyquist:
            sine_amplitude = factor / n * np.sin(angle) @ u
            total += np.outer(np.sin(angle_at_positions), sine_amplitude)
    return total


def interpolate_by_definition(kind, u, factor):
    """Return an input (n, n_u) at a factor times its rate, by the definition of the kind."""
    positions = np.arange(factor * (len(u) - 1) + 1) / factor
    if kind is Interpolation.held:
        return u[positions.astype(int)]
    if kind is Interpolation.band_limited:
        return trigonometric_polynomial(u, positions)
    return np.column_stack([np.interp(positions, np.arange(len(u)), column) for column in u.T])


@given(
    n=st.integers(1, 25),
    substeps=st.integers(1, 5),
    kind=st.sampled_from(Interpolation),
)
def test_values_between_samples_are_those_of_the_definition(n, substeps, kind):
    u = np.random.default_rng(0).normal(size=(n, 2))
    (piece,) = kind.pieces(u, substeps)
    rows = 1 if kind is Interpolation.held else 2 * substeps
    assert (piece.first, piece.last, piece.rows) == (0, n - 1, rows)
    assert piece.values.flags.c_contiguous
    expected = interpolate_by_definition(kind, u, rows)
    np.testing.assert_allclose(piece.values, expected, atol=1e-12)


# Rows of a piece: one sample, two, all but one and all of thirty.
every_piece_size = pytest.mark.parametrize("rows", [1, 16, 17, 8 * 29, 8 * 30])


@every_piece_size
def test_simulation_in_pieces_gives_the_same_bits(rows, monkeypatch):
    u = random_input([(-1.0, 1.0)], 30)
    system = Lag(rate_noise_std=0.3)
    whole = simulate(system, u, interpolation="linear", seed=4)
    monkeypatch.setattr(interpolation, "PIECE_ROWS", rows)
    in_pieces = simulate(system, u, interpolation="linear", seed=4)
    np.testing.assert_array_equal(in_pieces.state, whole.state)


@every_piece_size
def test_divergence_in_a_later_piece_is_reported_with_its_time(rows, monkeypatch):
    monkeypatch.setattr(interpolation, "PIECE_ROWS", rows)
    system = Runaway(substeps=100, initial_level=0.8)
    message = r"time 1\.2[5-9]\d* s \(sample 12\).*last finite state: level=[1-9]"
    with pytest.raises(DivergenceError, match=message):
        simulate(system, np.zeros(40), interpolation="linear")


@every_interpolation
def test_closed_loop_interpolates_exogenous_inputs_and_holds_those_of_the_controller(kind):
    """Against open-loop runs over single samples, with the input given at sixty times the rate."""
    n = 24
    factor = 60
    outside = 5.0 + 5.0 * np.sin(2 * np.pi * np.arange(n) / n)
    exogenous = {"ambient_temperature": outside}
    record = simulate_loop(exogenous=exogenous, noise=False, interpolation=kind)

    fine_outside = interpolate_by_definition(kind, outside[:, np.newaxis], factor)
    fine_building = Building(dt=900.0 / factor, substeps=1)
    fine_kind = Interpolation.held if kind is Interpolation.held else Interpolation.linear
    no_noise = np.zeros((factor + 1, 3))
    states = [Building().initial_state()]
    for k in range(n - 1):  # restarted at every sample, where the flow jumps
        outside_part = fine_outside[k * factor : (k + 1) * factor + 1]
        flow = np.full(factor + 1, record.input[k, 1])
        u = np.column_stack([outside_part, flow])
        path = integrate(fine_building, states[-1], u, no_noise, fine_kind)
        states.append(path.states[-1])
    np.testing.assert_allclose(record.state, states, atol=2e-5)
    assert record.input[:, 1].max() > 0.005


# --- limits and divergence ------------------------------------------------------------------------

# In each of 8 substeps the level changes by 0.0625 m at a flow of 0.5 m/s.
SLOWLY_FILLED_BASIN = Basin(substeps=8, initial_level=0.53)
FLOW = np.full(5, 0.5)  # m/s


@every_interpolation
def test_state_above_its_limit_is_set_to_it_and_counted(kind):
    """The eighth substep meets the brim, and then all do."""
    full = simulate(SLOWLY_FILLED_BASIN, FLOW, interpolation=kind)
    np.testing.assert_array_equal(full.state[:, 0], [0.53, 1.0, 1.0, 1.0, 1.0])
    assert full.n_clipped == 1 + 3 * 8


@every_interpolation
def test_state_below_its_limit_is_set_to_it_and_counted(kind):
    empty = simulate(SLOWLY_FILLED_BASIN, -FLOW, interpolation=kind)
    np.testing.assert_allclose(empty.state[:, 0], [0.53, 0.03, 0.0, 0.0, 0.0], atol=1e-15)
    assert empty.n_clipped == 8 + 2 * 8


def test_state_within_its_limits_is_not_counted():
    assert simulate(SLOWLY_FILLED_BASIN, 0 * FLOW).n_clipped == 0


@every_interpolation
def test_clipped_substeps_of_a_loop_are_counted_by_sample(kind):
    controller = OpenLoop(dt=1.0)
    samples = list(
        closed_loop(SLOWLY_FILLED_BASIN, controller, {"drive": FLOW}, interpolation=kind)
    )
    assert [sample.n_clipped for sample in samples] == [0, 1, 8, 8, 8]
    record = collect(samples, SLOWLY_FILLED_BASIN, seed=0)
    assert record.to_dataset().attrs["clipped_substeps"] == 25


def test_state_leaves_its_limit_as_soon_as_the_drift_leads_back():
    path = simulate(Basin(), [4.0, -0.25, -0.25, 0.0])
    np.testing.assert_allclose(path.state[:, 0], [0.5, 1.0, 0.75, 0.5], atol=1e-14)


def test_state_leaves_its_limit_within_a_sample():
    """The basin overflows in six of the ten substeps."""
    path = simulate(Basin(initial_level=0.9), [4.0, -3.0], interpolation="linear")
    assert path.n_clipped == 6
    expected = 1.0 + 4.0 * 0.4 - 3.5 * (1 - 0.6**2)
    np.testing.assert_allclose(path.state[-1], expected, atol=1e-13)


def test_divergence_is_reported_with_its_time_and_state():
    """x' = x^2 from 0.8 reaches infinity after 1.25 s; the step begins at 1.2 s."""
    state = np.array([0.8 / (1 - 0.8 * 1.2)])
    no_input = np.zeros((1, 1))
    no_noise = np.zeros(1)
    step = stepper(Runaway(substeps=1000))
    message = r"at time 1\.2[5-6]\d* s \(sample 12\): state 'level' became"
    with pytest.raises(DivergenceError, match=message):
        step(1.2, state, no_input, no_noise)
    assert np.isfinite(state).all()


def test_state_that_is_no_number_is_not_set_to_a_limit():
    u = np.array([[0.1], [np.inf], [0.1]])
    with pytest.raises(DivergenceError, match=r"became (inf|nan)"):
        integrate(Basin(), np.array([0.5]), u, np.zeros((3, 1)))


def test_divergence_is_reported_with_advice():
    u = np.tile([0.0, 0.1], (2000, 1))
    with pytest.raises(DivergenceError, match=r"more substeps \(now 1 per dt=900 s\)"):
        simulate(Building(substeps=1), u, noise=False)


# --- open and closed loops ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_COMPILER, reason="takes minutes")
def test_year_under_control_is_plausible():
    """Comfort, heating and roughness of a synthetic year against known ranges."""
    record = simulate_loop(35041)
    zone = record.output[:, 0]
    flow = record.input[:, 1]
    summer = slice(170 * 96, 220 * 96)
    assert 15.3 < zone.min() < 16.8 < zone.max() < 30.0
    assert 0.0 <= flow.min() < flow.max() <= 0.1
    assert np.diff(zone).std() == pytest.approx(0.09, abs=0.006)
    assert flow[summer].mean() < 0.3 * flow.mean()


def test_samples_are_copies_and_arguments_stay():
    exogenous = synthetic_ambient(30)
    before = exogenous["ambient_temperature"].copy()
    expected = simulate_loop(30)
    for k, sample in enumerate(closed_loop(Building(), PI(), exogenous)):
        np.testing.assert_array_equal(sample.state, expected.state[k])
        np.testing.assert_array_equal(sample.input, expected.input[k])
        for array in sample[1:6]:
            array[:] = -1e3
    np.testing.assert_array_equal(exogenous["ambient_temperature"], before)


@pytest.mark.parametrize(
    "u",
    [
        [0, 1, 1, 0],
        (0, 1, 1, 0),
        np.float32([0, 1, 1, 0]),
        xr.DataArray([0, 1, 1, 0]),
        np.array([False, True, True, False]),
    ],
    ids=["list", "tuple", "single precision", "DataArray", "bool"],
)
def test_inputs_may_be_any_real_numbers(u):
    expected = simulate(Lag(), np.array([[0.0], [1.0], [1.0], [0.0]])).state
    np.testing.assert_array_equal(simulate(Lag(), u).state, expected)


def test_number_of_samples_may_be_an_integer_of_numpy():
    assert simulate(VanDerPol(), n_samples=np.int64(9)).input.shape == (9, 0)


@every_interpolation
def test_input_of_one_sample_gives_the_initial_state(kind):
    run = simulate(Lag(initial_level=2.0), [3.0], interpolation=kind)
    np.testing.assert_array_equal(run.state, [[2.0]])


# --- bad arguments --------------------------------------------------------------------------------


@each_way_to_simulate
@pytest.mark.parametrize("n_samples", [2.5, "3", 0, -1, True, 4])
def test_wrong_numbers_of_samples_are_refused(n_samples, way):
    run = ways_to_simulate(Lag(), np.zeros(3), n_samples=n_samples)[way]
    with pytest.raises(ValueError, match="n_samples="):
        run()


@each_way_to_simulate
@pytest.mark.parametrize("kind", ["cubic", None, 3])
def test_unknown_interpolations_are_refused(kind, way):
    run = ways_to_simulate(Lag(), np.zeros(3), interpolation=kind)[way]
    with pytest.raises(ValueError, match="interpolation="):
        run()


@each_way_to_simulate
@pytest.mark.parametrize(
    ("u", "error", "message"),
    [
        ([1.0, np.nan], ValueError, "'drive' is nan at sample 1"),
        (np.zeros((3, 2)), ValueError, "shape"),
        ([], ValueError, "n.* >= 1"),
        ([[1.0], [1.0, 2.0]], ValueError, "rows of one length"),
        (np.zeros(3, complex), TypeError, "real numbers"),
        (["1.0"], TypeError, "real numbers"),
        ([1.0, None], TypeError, "real numbers"),
    ],
    ids=["nan", "two inputs", "no samples", "ragged", "complex", "texts", "None"],
)
def test_wrong_inputs_are_refused(u, error, message, way):
    run = ways_to_simulate(Lag(), u)[way]
    with pytest.raises(error, match=message):
        run()


@each_way_to_simulate
@pytest.mark.parametrize(
    ("system", "u", "options", "error", "message"),
    [
        pytest.param(VanDerPol(), None, {}, ValueError, "n_samples", id="no number of samples"),
        pytest.param(
            Lag(rate_noise_std=0.1),
            np.zeros(3),
            {"seed": -1},
            ValueError,
            "seed=-1",
            id="negative seed",
        ),
        pytest.param(
            VanDerPol, None, {"n_samples": 3}, TypeError, r"write VanDerPol\(\)", id="class"
        ),
        pytest.param(
            "VanDerPol", None, {"n_samples": 3}, TypeError, "expected a system", id="name"
        ),
    ],
)
def test_other_arguments_that_do_not_fit_are_refused(system, u, options, error, message, way):
    run = ways_to_simulate(system, u, **options)[way]
    with pytest.raises(error, match=message):
        run()


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ([1.0, 2.0], ValueError),
        ([np.inf], ValueError),
        ([1.2], ValueError),
        (["1"], TypeError),
        ([1j], TypeError),
    ],
    ids=["two states", "infinite", "outside the limits", "text", "complex"],
)
def test_wrong_starts_are_refused(start, error):
    with pytest.raises(error, match="initial"):
        simulate(Basin(), np.zeros(3), initial_state=start)


@pytest.mark.parametrize(
    ("controller", "exogenous", "message"),
    [
        (PI(), {}, "exactly once"),
        (PI(), {"ambient_temperature": [0.0], "wind": [0.0]}, "exactly once"),
        (PI(), {"ambient_temperature": 3.0}, "one length"),
        (PI(output="roof"), synthetic_ambient(3), "expected outputs among"),
        (PI(input="window"), synthetic_ambient(3), "exactly once"),
        (PI(dt=600.0), synthetic_ambient(3), "dt of the system, 900 s, got 600 s"),
    ],
    ids=[
        "missing input",
        "unknown input",
        "number as input",
        "unknown output",
        "unknown driven input",
        "another sampling time",
    ],
)
def test_wrong_wiring_is_refused_at_the_call(controller, exogenous, message):
    with pytest.raises(ValueError, match=message):
        closed_loop(Building(), controller, exogenous)


def test_exogenous_inputs_without_names_are_refused():
    with pytest.raises(TypeError, match="exogenous inputs as a mapping"):
        closed_loop(Building(), PI(), np.zeros(3))


class BrokenPI(PI):
    """PI controller that returns nan after 1000 s."""

    def control(self, time, output, state):
        flow = float("nan") if time > 1000 else 0.01
        return (flow,), state


def test_controller_that_returns_nan_is_named():
    samples = closed_loop(Building(), BrokenPI(), synthetic_ambient(5))
    assert next(samples).time == 0.0
    assert next(samples).time == 900.0
    message = "BrokenPI set 'mass_flow' to nan at time 1800 s"
    with pytest.raises(ArithmeticError, match=message):
        next(samples)
