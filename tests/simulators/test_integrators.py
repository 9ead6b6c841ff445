"""The integrators: order, accuracy, divergence, compiled against plain."""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from plants import Basin, Runaway

from simulators import DivergenceError, Interpolation, Signal, System, closed_loop, simulate, simulate_many
from simulators.controllers.open_loop import OpenLoop
from simulators.integrators import integrate, stepper
from simulators.reference import solve_reference
from simulators.runge_kutta import PLAIN, compile_drift, drift_address
from simulators.systems.building import Building


@dataclass(frozen=True)
class Analytic(System):
    """x1' = r x1 (1 - x1), x2' = x2 cos t: two problems with known solutions."""

    states: ClassVar = (Signal("x1", "1", "logistic"), Signal("x2", "1", "driven by time"))
    inputs: ClassVar = ()
    outputs: ClassVar = (Signal("total", "1", "sum of the states"),)
    noises: ClassVar = ()

    dt: float = 0.5
    substeps: int = 1
    rate: float = 2.0

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = parameters[0] * state[0] * (1 - state[0])
        derivative[-1] = state[-1] * np.cos(time)

    def parameters(self):
        return np.array([self.rate])

    def initial_state(self):
        return np.array([0.1, 1.0])

    def noise_std(self):
        return np.empty(0)

    def output(self, state):
        return state.sum(axis=-1, keepdims=True)

    def solution(self, time):
        return np.stack([1 / (1 + 9 * np.exp(-self.rate * time)), np.exp(np.sin(time))], axis=-1)


def building_run(n=12):
    """Inputs, noise and start of a short run of the building with heating."""
    generator = np.random.default_rng(5)
    u = np.column_stack([generator.uniform(-10, 10, n), generator.uniform(0, 0.1, n)])
    return Building().initial_state(), u, 5e-5 * generator.standard_normal((n, 3))


def observed_order(errors):
    """Slope of log2 error over halvings of the step."""
    return -np.polyfit(np.arange(len(errors)), np.log2(errors), 1)[0]


def test_fourth_order_on_known_solutions():
    errors = []
    for substeps in (2, 4, 8, 16):
        trajectory = simulate(Analytic(substeps=substeps), np.empty((9, 0)))
        errors.append(np.abs(trajectory.state - Analytic().solution(trajectory.time)).max(axis=0))
    for component in np.transpose(errors):
        assert observed_order(component) == pytest.approx(4.0, abs=0.2)
    assert np.max(errors[-1]) < 1e-6


def test_fourth_order_on_building():
    x0, u, w = building_run()
    exact = solve_reference(Building(), x0, u, w, relative_tolerance=1e-12)
    steps = [16, 32, 64]
    errors = [np.abs(integrate(Building(substeps=s), x0, u, w).states - exact).max() for s in steps]
    assert observed_order(errors) == pytest.approx(4.0, abs=0.25)


def test_building_matches_adaptive_reference():
    x0, u, w = building_run()
    exact = solve_reference(Building(), x0, u, w, relative_tolerance=1e-12)
    np.testing.assert_allclose(integrate(Building(), x0, u, w).states, exact, atol=1e-4)
    np.testing.assert_allclose(integrate(Building(substeps=300), x0, u, w).states, exact, atol=1e-8)


def test_reference_matches_known_solution():
    nothing = np.empty((9, 0))
    states = solve_reference(Analytic(), Analytic().initial_state(), nothing, nothing)
    np.testing.assert_allclose(states, Analytic().solution(0.5 * np.arange(9)), rtol=1e-8)


def test_too_few_substeps_diverge_with_advice():
    u = np.column_stack([np.zeros(2000), np.full(2000, 0.1)])
    with pytest.raises(DivergenceError, match=r"Building diverged at time \d") as error:
        simulate(Building(substeps=1), u, noise=False)
    text = str(error.value)
    assert any(f"state '{name}' became" in text for name in ("zone", "wall", "radiator"))
    assert "zone=" in text
    assert "degC" in text
    assert "more substeps (now 1 per dt=900 s)" in text
    assert "nan" not in text.split("last finite state")[1]


@dataclass(frozen=True)
class Explosion(Analytic):
    """x1' = x1^2 reaches infinity at time 1 / x1(0); x2 stays."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = state[0] * state[0]
        derivative[1] = 0.0

    def initial_state(self):
        return np.array([0.8, 1.0])


def test_divergence_time_is_that_of_the_substep():
    with pytest.raises(DivergenceError, match=r"sample 2\): state 'x1'") as error:
        simulate(Explosion(substeps=1000), np.empty((9, 0)))
    time = float(str(error.value).split("at time ")[1].split(" s")[0])
    assert time == pytest.approx(1.25, abs=0.01)


def test_divergence_time_of_a_single_sample():
    nothing, state = np.empty(0), np.array([0.8 / (1 - 0.8), 1.0])  # the solution at time 1
    with pytest.raises(DivergenceError, match=r"at time 1\.25\d* s \(sample 2\)"):
        stepper(Explosion(substeps=1000))(1.0, state, nothing[np.newaxis], nothing)
    assert np.all(np.isfinite(state))


@dataclass(frozen=True)
class Forgetful(Analytic):
    """A drift that forgets a component."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = 1.0


def test_unwritten_derivative_is_named():
    with pytest.raises(ValueError, match=r"Forgetful.drift gave nan for the rate of 'x2'"):
        simulate(Forgetful(), np.empty((2, 0)))


@dataclass(frozen=True)
class Lapsing(Analytic):
    """A drift that stops writing a component after a second."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = 0.0
        if time < 1.0:
            derivative[1] = 0.0


def test_derivative_that_is_not_written_later_is_not_the_old_one():
    with pytest.raises(DivergenceError, match=r"state 'x2' became nan"):
        simulate(Lapsing(), np.empty((9, 0)))


@dataclass(frozen=True)
class OutOfRange(Analytic):
    """A drift that reads a state that is not there."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = state[2]
        derivative[1] = 0.0


def test_wrong_index_is_an_error_not_a_wild_read():
    message = (
        r"^OutOfRange\.drift raised IndexError: index 2 is out of bounds for axis 0 with size 2 \(line \d+ of .*"
        r"test_integrators\.py: derivative\[0\] = state\[2\]\)\. It was called at time 0 with 2 states, 0 inputs, "
        r"0 noises and 1 parameters, .*: correct the drift"
    )
    with pytest.raises(ValueError, match=message):
        simulate(OutOfRange(), np.empty((2, 0)))
    with pytest.raises(ValueError, match=message):
        simulate_many(OutOfRange(), n_samples=2, n_trajectories=2)


def broken(drift):
    """A system of two states with this drift."""
    return type("Broken", (Analytic,), {"drift": staticmethod(drift)})()


def looks_up(time, state, input, noise, parameters, derivative):
    derivative[0] = {"a": 1.0}["b"]


def misspells(time, state, input, noise, parameters, derivative):
    derivative[0] = sate[0]  # noqa: F821


def returns(time, state, input, noise, parameters):
    return state


@pytest.mark.parametrize(
    ("drift", "raised"),
    [
        (looks_up, r"KeyError: 'b' \(line \d+ of .*\{\"a\": 1\.0\}\[\"b\"\]\)"),
        (misspells, r"NameError: name 'sate' is not defined"),
        (returns, r"TypeError: returns\(\) takes 5 positional arguments but 6 were given\. .*as drift\(time, state"),
    ],
)
def test_what_a_drift_raises_is_told_with_its_name(drift, raised):
    with pytest.raises(ValueError, match=rf"^Broken\.drift raised {raised}"):
        simulate(broken(drift), n_samples=3)
    with pytest.raises(ValueError, match=rf"^Broken\.drift raised {raised}"):
        closed_loop(broken(drift), OpenLoop(dt=0.5), {}, n_samples=3)


def prints(time, state, input, noise, parameters, derivative):
    derivative[0] = float(str(state[0]))
    derivative[1] = 0.0


def imports(time, state, input, noise, parameters, derivative):
    import math

    derivative[0] = derivative[1] = math.sin(time)


@pytest.mark.skipif(PLAIN, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("drift", "complaint"),
    [(prints, "could not convert string to float"), (imports, "unsupported opcode")],
)
def test_what_only_the_compiler_refuses_names_the_drift(drift, complaint):
    message = rf"^{drift.__name__}, the drift of a system: expected scalar Python.*{complaint}.*; write the drift"
    with pytest.raises(TypeError, match=message) as error:
        simulate(broken(drift), n_samples=3)
    assert "\n" not in str(error.value)
    with pytest.raises(TypeError, match=message):  # at the call, before the first sample is asked for
        closed_loop(broken(drift), OpenLoop(dt=0.5), {}, n_samples=3)


@pytest.mark.skipif(PLAIN, reason="nothing is compiled")
def test_drift_is_compiled_once_and_refused_with_advice():
    assert compile_drift(Building.drift) is compile_drift(Building.drift)
    assert drift_address(Building.drift) != drift_address(Analytic.drift)

    def unsupported(time, state, input, noise, parameters, derivative):
        derivative[0] = {"a": open}["a"]

    with pytest.raises(TypeError, match=r"unsupported, the drift of a system: expected scalar Python") as error:
        compile_drift(unsupported)
    assert re.search(
        r"got: Untyped global name 'open'.*\(line \d+ of .*test_integrators\.py\); write", str(error.value)
    )
    assert len(str(error.value)) < 500
    assert "\n" not in str(error.value)


SCRIPT = """
import json, numpy as np
from simulators import closed_loop, collect
from simulators.controllers.pi import PI
from simulators.systems.building import Building
ambient = {"ambient_temperature": np.linspace(-5.0, 5.0, 60)}
run = collect(closed_loop(Building(), PI(), ambient, seed=3), Building(), seed=3)
print(json.dumps([run.state.tolist(), run.input.tolist()]))
"""


def closed_loop_in(disable_jit):
    """States and inputs of a short closed loop in a fresh interpreter."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": disable_jit}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_compiled_equals_plain():
    compiled, plain = closed_loop_in("0"), closed_loop_in("1")
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@dataclass(frozen=True)
class Boxed(Analytic):
    """Limits that are wrong in one of several ways."""

    limits: ClassVar = None

    def state_limits(self):
        return self.limits


@pytest.mark.parametrize(
    "limits",
    [
        ([0.0], [1.0]),
        ([0.0, 0.0], [1.0, -1.0]),
        ([0.0, np.nan], [1.0, 1.0]),
        ([0.0, 0.0], [1.0]),
        None,
        ("a", "b"),
    ],
    ids=str,
)
def test_wrong_limits_are_refused(limits):
    system = type("Box", (Boxed,), {"limits": limits})()
    with pytest.raises(
        ValueError, match=r"^Box\.state_limits\(\) returned .*: expected lower and upper limits of 2 states"
    ):
        simulate(system, n_samples=3)


def test_interpolation_by_name():
    x0, u, w = building_run()
    for kind in Interpolation:
        named = integrate(Building(), x0, u, w, kind.value)
        np.testing.assert_array_equal(named.states, integrate(Building(), x0, u, w, kind).states)
    with pytest.raises(
        ValueError, match="interpolation='cubic': expected one of 'held', 'linear', 'band_limited'; change"
    ):
        integrate(Building(), x0, u, w, "cubic")


def test_splitting_a_sample_changes_only_the_substeps():
    x0, u, w = building_run()
    thirds = replace(Building(), dt=300.0, substeps=10)
    fine = integrate(thirds, x0, np.repeat(u, 3, axis=0), np.repeat(w, 3, axis=0)).states
    np.testing.assert_allclose(fine[::3], integrate(Building(), x0, u, w).states, rtol=1e-12)


FILLING = np.full((5, 1), 0.5)  # m/s: 0.0625 m in each of 8 substeps of a second, from 0.53 m to the brim at 1 m


def test_state_is_set_to_its_limit_and_every_such_substep_counted():
    """The eighth substep meets the brim, and then all do, until the basin empties and runs dry."""
    basin, silent = Basin(substeps=8), np.zeros((5, 1))
    path = integrate(basin, np.array([0.53]), FILLING, silent)
    np.testing.assert_array_equal(path.states[:, 0], [0.53, 1.0, 1.0, 1.0, 1.0])
    assert path.n_clipped == 1 + 3 * 8
    path = integrate(basin, np.array([0.53]), -FILLING, silent)
    np.testing.assert_allclose(path.states[:, 0], [0.53, 0.03, 0.0, 0.0, 0.0], atol=1e-15)
    assert path.n_clipped == 8 + 2 * 8
    assert integrate(basin, np.array([0.1]), 0.1 * FILLING, silent).n_clipped == 0


def test_state_leaves_its_limit_as_soon_as_the_drift_leads_back():
    u = np.array([[4.0], [-0.25], [-0.25], [0.0]])
    path = integrate(Basin(), np.array([0.5]), u, np.zeros((4, 1)))
    np.testing.assert_allclose(path.states[:, 0], [0.5, 1.0, 0.75, 0.5], atol=1e-14)


def test_only_the_substeps_that_meet_a_limit_count():
    """u(t) = 4 - 7 t lets the basin overflow in each of the first six substeps of ten, then it empties."""
    path = integrate(Basin(), np.array([0.9]), np.array([[4.0], [-3.0]]), np.zeros((2, 1)), Interpolation.linear)
    assert path.n_clipped == 6
    np.testing.assert_allclose(path.states[-1], 1.0 + 4.0 * 0.4 - 3.5 * (1 - 0.6**2), atol=1e-13)


@pytest.mark.parametrize("interpolation", Interpolation)
def test_stepper_counts_as_the_integrator_does(interpolation, monkeypatch):
    """Sample by sample, and over a record in stretches of one sample."""
    monkeypatch.setattr("simulators.interpolation.PIECE_ROWS", 16)
    basin, silent = Basin(substeps=8), np.zeros((5, 1))
    path = integrate(basin, np.array([0.53]), FILLING, silent, interpolation)
    advance, state, total = stepper(basin), np.array([0.53]), 0
    for k in range(4):
        between = np.repeat(FILLING[k : k + 1], 1 if interpolation is Interpolation.held else 17, axis=0)
        total += advance(float(k), state, between, silent[k])
    assert (state[0], total) == (path.states[-1, 0], path.n_clipped)


def test_divergence_is_noticed_before_a_limit_hides_it():
    """A state that is no number is not set to a limit."""
    with pytest.raises(DivergenceError, match=r"state 'level' became (inf|nan)"):
        integrate(Basin(), np.array([0.5]), np.array([[0.1], [np.inf], [0.1]]), np.zeros((3, 1)))


@pytest.mark.parametrize("interpolation", Interpolation)
def test_divergence_in_a_later_stretch_has_its_own_time(interpolation, monkeypatch):
    """x' = x^2 from 0.8 reaches infinity after 1.25 s; stretches of a linear input are two samples long."""
    monkeypatch.setattr("simulators.interpolation.PIECE_ROWS", 2 * 2 * 100)
    u, x0 = np.zeros((40, 1)), np.array([0.8])
    with pytest.raises(DivergenceError, match=r"Runaway diverged at time 1\.2[5-9]\d* s \(sample 12\)") as error:
        integrate(Runaway(substeps=100), x0, u, np.zeros((40, 1)), interpolation)
    assert re.search(r"last finite state: level=[1-9]\S* V\.", str(error.value))
