"""Open loop and closed loop: the method, inputs between their samples, limits, divergence, bad
arguments.
"""

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

from plants import Basin, Lag, Runaway, every_run, random_input
from simulators import (
    PI,
    Building,
    OpenLoop,
    Signal,
    VanDerPol,
    closed_loop,
    collect,
    interpolation,
    simulate,
)
from simulators.interpolation import Interpolation
from simulators.reference_solution import solve_reference, substep_error
from simulators.runge_kutta import WITHOUT_COMPILER, DivergenceError, integrate, stepper
from simulators.weather import SyntheticWeather

every_interpolation = pytest.mark.parametrize("kind", Interpolation)


def ambient(n, seed=0):
    """Exogenous inputs of the building with synthetic weather."""
    return {"ambient_temperature": SyntheticWeather().temperature(900.0 * np.arange(n), seed=seed)}


def run(n=200, *, seed=0, exogenous=None, **options):
    """Record of the building under its PI controller."""
    samples = closed_loop(Building(), PI(), exogenous or ambient(n, seed), seed=seed, **options)
    return collect(samples, Building(), seed=seed)


# --- the method -------------------------------------------------------------------------------------


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


def test_fourth_order_on_known_solutions():
    u = np.zeros((9, 1))
    errors = []
    time = 0.5 * np.arange(9)
    exact = np.stack([1 / (1 + 9 * np.exp(-2.0 * time)), np.exp(np.sin(time))], axis=1)
    np.testing.assert_allclose(solve_reference(Analytic(), exact[0], u, u), exact, rtol=1e-8)
    for substeps in (2, 4, 8, 16):
        errors.append(np.abs(simulate(Analytic(substeps=substeps), u).state - exact).max(axis=0))
    np.testing.assert_allclose(
        np.log2(np.divide(errors[:-1], errors[1:])).mean(axis=0), 4.0, atol=0.2
    )
    assert np.max(errors[-1]) < 1e-6


@pytest.mark.parametrize("substeps", [5, 8])
def test_estimated_error_is_the_true_error_of_one_sample(substeps):
    u = np.column_stack([np.zeros(40), np.linspace(0, 0.1, 40)])
    record = simulate(Building(substeps=substeps), u, seed=1)
    errors = []
    for k in range(39):
        exact = solve_reference(
            record.system, record.state[k], record.input[[k, k]], record.noise[[k, k]]
        )
        errors.append(abs(record.state[k + 1, 0] - exact[1, 0]))
    assert substep_error(record) == pytest.approx(
        15 / 16 * max(errors) / np.diff(record.output[:, 0]).std(), rel=0.1
    )
    assert substep_error(record, n_samples=9) <= substep_error(record)
    stiff = replace(record, system=replace(record.system, substeps=1, radiator_capacity=1e-60))
    assert substep_error(stiff) == np.inf
    rest = VanDerPol(initial_position=0.0, acceleration_noise_std=0.0)
    assert substep_error(simulate(rest, n_samples=5)) == 0


SCRIPT = """
import json, numpy as np
from simulators import PI, Building, closed_loop, collect
ambient = {"ambient_temperature": np.linspace(-5.0, 5.0, 60)}
run = collect(closed_loop(Building(), PI(), ambient, seed=3), Building(), seed=3)
print(json.dumps([run.state.tolist(), run.input.tolist()]))
"""


def test_compiled_equals_plain():
    """Here and in a process where the other of the two runs."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0" if WITHOUT_COMPILER else "1"}
    command = [sys.executable, "-c", SCRIPT]
    other = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    ambient = {"ambient_temperature": np.linspace(-5.0, 5.0, 60)}
    one = collect(closed_loop(Building(), PI(), ambient, seed=3), Building(), seed=3)
    for here, there in zip((one.state, one.input), json.loads(other.stdout), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-12)


# --- inputs between their samples -------------------------------------------------------------------


def by_cosines(u, positions):
    """Trigonometric polynomial through one period of samples, at positions in samples, term by
    term.
    """
    n = len(u)
    total = np.tile(u.mean(axis=0), (len(positions), 1))
    for m in range(1, n // 2 + 1):
        angle = 2 * np.pi * m * np.arange(n) / n
        at = 2 * np.pi * m * positions / n
        share = 1 if 2 * m == n else 2
        total += np.outer(np.cos(at), share / n * np.cos(angle) @ u)
        total += 0 if 2 * m == n else np.outer(np.sin(at), share / n * np.sin(angle) @ u)
    return total


def between_samples(kind, u, factor):
    """An input (n, n_u) at factor times the rate, by its definition."""
    positions = np.arange(factor * (len(u) - 1) + 1) / factor
    if kind is Interpolation.held:
        return u[positions.astype(int)]
    if kind is Interpolation.band_limited:
        return by_cosines(u, positions)
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
    np.testing.assert_allclose(piece.values, between_samples(kind, u, rows), atol=1e-12)


@pytest.mark.parametrize("rows", [1, 16, 17, 8 * 29, 8 * 30])
def test_borders_of_stretches_do_not_show(rows, monkeypatch):
    """Thirty samples of a linear input in stretches of one, two, all but one and all; a later one
    may diverge.
    """
    u = random_input([(-1.0, 1.0)], 30)
    whole = simulate(Lag(rate_noise_std=0.3), u, interpolation="linear", seed=4)
    monkeypatch.setattr(interpolation, "PIECE_ROWS", rows)
    pieces = simulate(Lag(rate_noise_std=0.3), u, interpolation="linear", seed=4)
    np.testing.assert_array_equal(pieces.state, whole.state)
    with pytest.raises(
        DivergenceError,
        match=r"time 1\.2[5-9]\d* s \(sample 12\).*last finite state: level=[1-9]",
    ):
        simulate(
            Runaway(substeps=100, initial_level=0.8),
            np.zeros(40),
            interpolation="linear",
        )


@every_interpolation
def test_a_closed_loop_interpolates_what_comes_from_outside_and_holds_what_is_driven(
    kind,
):
    """Against open-loop runs over single samples, with the input given at sixty times the rate."""
    n = 24
    building = Building(zone_noise_std=0.0, wall_noise_std=0.0, radiator_noise_std=0.0)
    fine = 60
    outside = 5.0 + 5.0 * np.sin(2 * np.pi * np.arange(n) / n)
    record = run(exogenous={"ambient_temperature": outside}, noise=False, interpolation=kind)
    values = between_samples(kind, outside[:, np.newaxis], fine)
    x = [building.initial_state()]
    straight = Interpolation.held if kind is Interpolation.held else Interpolation.linear
    for k in range(n - 1):  # restarted at every sample, where the flow jumps
        part = values[k * fine : (k + 1) * fine + 1]
        u = np.column_stack([part, np.full(fine + 1, record.input[k, 1])])
        path = integrate(
            Building(dt=900.0 / fine, substeps=1),
            x[-1],
            u,
            np.zeros((fine + 1, 3)),
            straight,
        )
        x.append(path.states[-1])
    np.testing.assert_allclose(record.state, x, atol=2e-5)
    assert record.input[:, 1].max() > 0.005


# --- limits and divergence --------------------------------------------------------------------------


@every_interpolation
def test_a_state_is_set_to_its_limit_and_every_such_substep_counted(kind):
    """0.0625 m in each of 8 substeps: the eighth meets the brim, and then all do, until the basin
    runs dry.
    """
    basin = Basin(substeps=8, initial_level=0.53)
    u = np.full(5, 0.5)
    full = simulate(basin, u, interpolation=kind)
    np.testing.assert_array_equal(full.state[:, 0], [0.53, 1.0, 1.0, 1.0, 1.0])
    dry = simulate(basin, -u, interpolation=kind)
    np.testing.assert_allclose(dry.state[:, 0], [0.53, 0.03, 0.0, 0.0, 0.0], atol=1e-15)
    assert (full.n_clipped, dry.n_clipped, simulate(basin, 0 * u).n_clipped) == (
        1 + 3 * 8,
        8 + 2 * 8,
        0,
    )
    samples = list(closed_loop(basin, OpenLoop(dt=1.0), {"drive": u}, interpolation=kind))
    assert [sample.n_clipped for sample in samples] == [0, 1, 8, 8, 8]
    assert collect(samples, basin, seed=0).to_dataset().attrs["clipped_substeps"] == 25


def test_a_state_leaves_its_limit_as_soon_as_the_drift_leads_back():
    path = simulate(Basin(), [4.0, -0.25, -0.25, 0.0])
    np.testing.assert_allclose(path.state[:, 0], [0.5, 1.0, 0.75, 0.5], atol=1e-14)
    path = simulate(
        Basin(initial_level=0.9), [4.0, -3.0], interpolation="linear"
    )  # overflows in six substeps of ten
    assert path.n_clipped == 6
    np.testing.assert_allclose(path.state[-1], 1.0 + 4.0 * 0.4 - 3.5 * (1 - 0.6**2), atol=1e-13)


def test_divergence_is_told_with_time_state_and_advice():
    """x' = x^2 from 0.8 reaches infinity after 1.25 s; a state that is no number is not set to a
    limit.
    """
    state, nothing = (
        np.array([0.8 / (1 - 0.8 * 1.2)]),
        np.zeros(1),
    )  # the solution at 1.2 s
    with pytest.raises(
        DivergenceError,
        match=r"at time 1\.2[5-6]\d* s \(sample 12\): state 'level' became",
    ):
        stepper(Runaway(substeps=1000))(1.2, state, nothing[np.newaxis], nothing)
    assert np.isfinite(state).all()
    with pytest.raises(DivergenceError, match=r"became (inf|nan)"):
        integrate(
            Basin(),
            np.array([0.5]),
            np.array([[0.1], [np.inf], [0.1]]),
            np.zeros((3, 1)),
        )
    with pytest.raises(DivergenceError, match=r"more substeps \(now 1 per dt=900 s\)"):
        simulate(Building(substeps=1), np.tile([0.0, 0.1], (2000, 1)), noise=False)


# --- open and closed loops --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_COMPILER, reason="takes minutes")
def test_a_year_under_control_is_plausible():
    """Comfort, heating and roughness of a synthetic year against known ranges."""
    record = run(35041)
    zone = record.output[:, 0]
    flow = record.input[:, 1]
    assert 15.3 < zone.min() < 16.8 < zone.max() < 30.0
    assert 0.0 <= flow.min() < flow.max() <= 0.1
    assert np.diff(zone).std() == pytest.approx(0.09, abs=0.006)
    assert flow[170 * 96 : 220 * 96].mean() < 0.3 * flow.mean()


def test_samples_are_copies_and_arguments_stay():
    exogenous = ambient(30)
    clean = run(30)
    before = exogenous["ambient_temperature"].copy()
    for k, sample in enumerate(closed_loop(Building(), PI(), exogenous)):
        np.testing.assert_array_equal(sample.state, clean.state[k])
        np.testing.assert_array_equal(sample.input, clean.input[k])
        for array in sample[1:6]:
            array[:] = -1e3
    np.testing.assert_array_equal(exogenous["ambient_temperature"], before)


def test_inputs_may_be_any_real_numbers():
    u = np.array([0, 1, 1, 0])
    expected = simulate(Lag(), u.astype(float)[:, np.newaxis]).state
    for convert in (list, tuple, np.float32, xr.DataArray, lambda u: u > 0):
        np.testing.assert_array_equal(simulate(Lag(), convert(u)).state, expected)
    assert simulate(VanDerPol(), n_samples=np.int64(9)).input.shape == (9, 0)
    for kind in Interpolation:
        np.testing.assert_array_equal(
            simulate(Lag(initial_level=2.0), [3.0], interpolation=kind).state, [[2.0]]
        )


# --- bad arguments ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "u", "options", "kind", "message"),
    [
        *(
            (Lag(), np.zeros(3), {"n_samples": n}, ValueError, "n_samples=")
            for n in (2.5, "3", 0, -1, True, 4)
        ),
        *(
            (Lag(), np.zeros(3), {"interpolation": i}, ValueError, "interpolation=")
            for i in ("cubic", None, 3)
        ),
        (VanDerPol(), None, {}, ValueError, "n_samples"),
        (Lag(), [1.0, np.nan], {}, ValueError, "'drive' is nan at sample 1"),
        (Lag(), np.zeros((3, 2)), {}, ValueError, "shape"),
        (Lag(), [], {}, ValueError, "n.* >= 1"),
        (Lag(), [[1.0], [1.0, 2.0]], {}, ValueError, "rows of one length"),
        *(
            (Lag(), u, {}, TypeError, "real numbers")
            for u in (np.zeros(3, complex), ["1.0"], [1.0, None])
        ),
        (Lag(rate_noise_std=0.1), np.zeros(3), {"seed": -1}, ValueError, "seed=-1"),
        (VanDerPol, None, {"n_samples": 3}, TypeError, r"write VanDerPol\(\)"),
        ("VanDerPol", None, {"n_samples": 3}, TypeError, "expected a system"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_every_run(system, u, options, kind, message):
    for simulation in every_run(system, u, **options):
        with pytest.raises(kind, match=message):
            simulation()


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        ([1.0, 2.0], ValueError),
        ([np.inf], ValueError),
        ([1.2], ValueError),
        (["1"], TypeError),
        ([1j], TypeError),
    ],
)
def test_wrong_starts_are_refused(start, kind):
    with pytest.raises(kind, match="initial"):
        simulate(Basin(), np.zeros(3), initial_state=start)


@pytest.mark.parametrize(
    ("controller", "exogenous", "message"),
    [
        (PI(), {}, "exactly once"),
        (PI(), {"ambient_temperature": [0.0], "wind": [0.0]}, "exactly once"),
        (PI(), {"ambient_temperature": 3.0}, "one length"),
        (PI(output="roof"), ambient(3), "expected outputs among"),
        (PI(input="window"), ambient(3), "exactly once"),
        (PI(dt=600.0), ambient(3), "dt of the system, 900 s, got 600 s"),
    ],
)
def test_wrong_wiring_is_refused_at_the_call(controller, exogenous, message):
    with pytest.raises(ValueError, match=message):
        closed_loop(Building(), controller, exogenous)
    with pytest.raises(TypeError, match="exogenous inputs as a mapping"):
        closed_loop(Building(), controller, np.zeros(3))


def test_a_controller_that_returns_nan_is_named():
    class Broken(PI):
        def control(self, time, output, state):
            return (float("nan") if time > 1000 else 0.01,), state

    samples = closed_loop(Building(), Broken(), ambient(5))
    assert [next(samples).time, next(samples).time] == [0.0, 900.0]
    with pytest.raises(ArithmeticError, match="Broken set 'mass_flow' to nan at time 1800 s"):
        next(samples)
