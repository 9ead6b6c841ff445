"""Many runs at once: every row is a simulation of its own, with any number of threads."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from plants import Basin, Lag, Runaway, random_input
from simulators import (
    DivergenceError,
    Interpolation,
    MeasurementNoise,
    VanDerPol,
    simulate,
    simulate_many,
)
from simulators.many import _n_cores, spread_seeds
from sysid.beside import n_cores
from sysid.store import read, write

NOISY_LAG = Lag(rate_noise_std=0.4)
N_TRAJECTORIES = 5
TRAJECTORY_INPUTS = np.stack(
    [random_input([(-1.0, 1.0)], 24, seed=i) for i in range(N_TRAJECTORIES)]
)
TRAJECTORY_STARTS = np.random.default_rng(0).uniform(-2, 2, size=(N_TRAJECTORIES, 1))
TIME_CONSTANTS = np.linspace(0.5, 1.5, N_TRAJECTORIES)
TRAJECTORY_SEEDS = [7, 1, 0, 7, 2**40]
# Everything differs between the trajectories.
VARIED = {
    "initial_states": TRAJECTORY_STARTS,
    "parameters": {"time_constant": TIME_CONSTANTS},
    "seeds": TRAJECTORY_SEEDS,
}


def assert_same(trajectory, expected):
    """Check that two records agree bit for bit."""
    for name in ("time", "input", "state", "output", "noise_free_output", "noise"):
        np.testing.assert_array_equal(getattr(trajectory, name), getattr(expected, name))
    np.testing.assert_array_equal(trajectory.n_clipped, expected.n_clipped)
    assert trajectory.interpolation is expected.interpolation


# --- every row is a simulation --------------------------------------------------------------------


@pytest.mark.parametrize("interpolation", Interpolation)
@pytest.mark.parametrize("has_own_inputs", [False, True], ids=["one input", "own inputs"])
@pytest.mark.parametrize("workers", [1, 3, None])
def test_row_is_bit_identical_to_a_simulation(interpolation, has_own_inputs, workers):
    options = {
        "interpolation": interpolation,
        "measurement": MeasurementNoise(snr_db=20.0),
        "dt": 0.2,
        "substeps": 3,
    }
    inputs = TRAJECTORY_INPUTS if has_own_inputs else TRAJECTORY_INPUTS[0]
    many = simulate_many(NOISY_LAG, inputs, workers=workers, **VARIED, **options)
    assert len(many) == N_TRAJECTORIES
    assert many.input.ndim == (3 if has_own_inputs else 2)
    for i, trajectory in enumerate(many):
        system = replace(NOISY_LAG, time_constant=TIME_CONSTANTS[i])
        u = TRAJECTORY_INPUTS[i] if has_own_inputs else TRAJECTORY_INPUTS[0]
        alone = simulate(
            system, u, initial_state=TRAJECTORY_STARTS[i], seed=TRAJECTORY_SEEDS[i], **options
        )
        assert_same(trajectory, alone)
        assert trajectory.system == alone.system
        assert trajectory.seed == alone.seed


def test_trajectories_are_counted_from_both_ends():
    many = simulate_many(NOISY_LAG, TRAJECTORY_INPUTS, **VARIED)
    assert_same(many[-1], many[N_TRAJECTORIES - 1])
    with pytest.raises(IndexError):
        many[N_TRAJECTORIES]


def test_defaults_are_those_of_a_simulation():
    many = simulate_many(NOISY_LAG, TRAJECTORY_INPUTS[0][:, 0], n_trajectories=2, seed=4)
    for trajectory in many:
        assert_same(trajectory, simulate(NOISY_LAG, TRAJECTORY_INPUTS[0], seed=trajectory.seed))


def test_noise_may_be_left_out():
    many = simulate_many(NOISY_LAG, TRAJECTORY_INPUTS[0], n_trajectories=2, noise=False)
    assert_same(many[1], simulate(NOISY_LAG, TRAJECTORY_INPUTS[0], noise=False))


def test_seeds_differ_between_trajectories_and_follow_from_one():
    seeds = spread_seeds(0, 2000)
    seeds_of_another = spread_seeds(1, 2000)
    np.testing.assert_array_equal(seeds, spread_seeds(0, 2000))
    assert len({*seeds, *seeds_of_another}) == 4000
    assert min(seeds.min(), seeds_of_another.min()) >= 0


def test_trajectories_have_independent_noise():
    many = simulate_many(NOISY_LAG, np.zeros(200), n_trajectories=4)
    np.testing.assert_array_equal(many.seeds, spread_seeds(0, 2000)[:4])
    correlation = np.corrcoef(many.noise[:, :, 0])
    assert np.abs(correlation - np.eye(4)).max() < 0.35


def test_arguments_are_not_changed_and_not_kept():
    u = np.ones((3, 10, 1))
    x0 = TRAJECTORY_STARTS[:3].copy()
    time_constants = np.array([1.0, 2.0, 3.0])
    arguments = (u, x0, time_constants)
    before = [array.copy() for array in arguments]
    many = simulate_many(
        NOISY_LAG, u, initial_states=x0, parameters={"time_constant": time_constants}
    )
    for array, copy in zip(arguments, before, strict=True):
        np.testing.assert_array_equal(array, copy)
    u[:] = -1.0
    x0[:] = 9.0
    np.testing.assert_array_equal(many.input, before[0])
    np.testing.assert_array_equal(many.state[:, 0], before[1])


def test_clipped_substeps_are_counted_for_each_trajectory():
    u = np.full(6, 0.2)
    many = simulate_many(Basin(), u, initial_states=[[0.1], [0.95]])
    from_low = simulate(Basin(initial_level=0.1), u).n_clipped
    from_high = simulate(Basin(initial_level=0.95), u).n_clipped
    assert from_low <= 10 < from_high
    assert many.n_clipped.tolist() == [from_low, from_high]
    assert [trajectory.n_clipped for trajectory in many] == [from_low, from_high]
    np.testing.assert_array_equal(many.to_dataset()["clipped_substeps"], [from_low, from_high])


# --- the data set ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return a data set of varied trajectories that was written and read again."""
    path = tmp_path_factory.mktemp("many") / "stored.nc"
    noise = MeasurementNoise(std=0.1)
    many = simulate_many(
        NOISY_LAG, TRAJECTORY_INPUTS, **VARIED, measurement=noise, interpolation="linear"
    )
    write(many.to_dataset(), path, kind="trajectory")
    return read(path, kind="trajectory")


@pytest.mark.parametrize("i", range(N_TRAJECTORIES))
def test_stored_trajectory_can_be_simulated_again(stored, i):
    row = stored.isel(trajectory=i)
    fields = json.loads(stored.attrs["parameters"])
    fields["time_constant"] = float(row["time_constant"])
    again = simulate(
        Lag(**fields),
        row["drive"].values,
        initial_state=row["level"].values[:1],
        seed=int(row["seed"]),
        interpolation=stored.attrs["interpolation"],
        measurement=MeasurementNoise(std=0.1),
    ).to_dataset()
    for name in ("drive", "level", "reading", "reading_noise_free", "drift_noise"):
        np.testing.assert_array_equal(again[name], row[name])


def test_stored_variables_are_described(stored):
    assert all("long_name" in variable.attrs for variable in stored.variables.values())
    assert stored["reading"].attrs["units"] == "V"


def test_input_has_a_dimension_for_trajectories_only_if_it_differs(stored):
    assert stored["drive"].dims == ("trajectory", "time")
    with_one_input = simulate_many(NOISY_LAG, TRAJECTORY_INPUTS[0], n_trajectories=3).to_dataset()
    assert with_one_input["drive"].dims == ("time",)
    assert with_one_input["reading"].dims == ("trajectory", "time")


# --- failures and bad arguments -------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_first_of_several_failures_is_named(workers):
    """x' = x^2 from 0.5 reaches infinity at 2 s, from below zero never."""
    x0 = np.full((20, 1), -1.0)
    x0[[13, 14, 17]] = 0.5
    message = (
        r"^trajectory 13: Runaway diverged at time (1\.9|2\.0)\d* s \(sample (19|20)\): "
        r"state 'level' became"
    )
    with pytest.raises(DivergenceError, match=message):
        simulate_many(Runaway(substeps=100), np.zeros(40), initial_states=x0, workers=workers)


@pytest.mark.parametrize(
    ("system", "options", "message"),
    [
        pytest.param(
            Basin(),
            {"initial_states": [[0.1], [1.0], [1.5]]},
            "trajectory 2: Basin: .*from 0 to 1 m, got 1.5",
            id="start outside the limits",
        ),
        pytest.param(
            Lag(),
            {"initial_states": [[0.1], [np.nan]]},
            "trajectory 1: Lag: expected 1 finite initial states",
            id="start of nan",
        ),
        pytest.param(
            Lag(),
            {"input": [[[0.0]], [[np.inf]]]},
            "trajectory 1: Lag: input 'drive' is inf at sample 0",
            id="infinite input",
        ),
        pytest.param(
            Lag(),
            {"parameters": {"time_constant": [1.0, -1.0]}},
            r"trajectory 1: Lag\(time_constant=-1\.0",
            id="impossible parameter",
        ),
        pytest.param(
            Lag(),
            {"n_trajectories": 2, "measurement": MeasurementNoise(snr_db=3.0)},
            "trajectory 0: .*is constant",
            id="ratio of a constant output",
        ),
        pytest.param(Lag(), {}, "got none; give n_trajectories", id="no number"),
        pytest.param(
            Lag(), {"n_trajectories": 2.5}, r"got \{'n_trajectories': 2.5\}", id="float as number"
        ),
        pytest.param(
            Lag(),
            {"n_trajectories": 3, "seeds": [1, 2]},
            r"got \{'n_trajectories': 3, 'seeds': 2\}",
            id="two numbers",
        ),
        pytest.param(
            Lag(),
            {"initial_states": np.zeros((3, 2))},
            r"shape \(N, 1\).* got \(3, 2\)",
            id="starts of two states",
        ),
        pytest.param(
            Lag(),
            {"n_trajectories": 2, "parameters": {"size": [1.0, 2.0]}},
            r"got \['size'\]",
            id="unknown parameter",
        ),
        pytest.param(
            Lag(),
            {"n_trajectories": 2, "parameters": {"dt": [0.1, 0.2]}},
            r"got \['dt'\]",
            id="varied dt",
        ),
        pytest.param(
            Lag(), {"parameters": [1.0, 2.0]}, "parameters as a mapping", id="parameters as a list"
        ),
        pytest.param(NOISY_LAG, {"seeds": [0, -5]}, "trajectory 1: seed=-5", id="negative seed"),
        pytest.param(Lag(), {"seeds": [0.7, 1.2]}, "seeds that are integers", id="floats as seeds"),
        pytest.param(Lag(), {"n_trajectories": 2, "workers": 0}, "workers=0", id="no workers"),
        pytest.param(
            Lag(), {"n_trajectories": 2, "workers": -1}, "workers=-1", id="negative workers"
        ),
        pytest.param(
            Lag(), {"n_trajectories": 2, "workers": 1.5}, "workers=1.5", id="float as workers"
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(system, options, message):
    arguments = {"input": np.zeros(5)} | options
    with pytest.raises((ValueError, TypeError), match=message):
        simulate_many(system, **arguments)


# --- cores and memory -----------------------------------------------------------------------------


@pytest.mark.parametrize("setting", ["3", "0", "default", ""])
def test_cores_are_counted_as_sysid_counts_them(setting, monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", setting)
    assert _n_cores() == n_cores()


def test_memory_is_that_of_the_result():
    """The peak is the size of the arrays of the result, and one trajectory for each thread."""
    options = {"n_samples": 500, "substeps": 1, "measurement": MeasurementNoise(std=0.1)}
    simulate_many(VanDerPol(), n_trajectories=2, **options)  # compiles
    tracemalloc.start()
    many = simulate_many(VanDerPol(), n_trajectories=1000, **options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    arrays = (many.state, many.output, many.noise_free_output, many.noise)
    size = sum(array.nbytes for array in arrays)
    assert size == 1000 * 500 * 5 * 8
    assert size <= peak < size + 1e6


def test_results_of_simulations_are_described_in_one_line():
    trajectory = simulate(VanDerPol(), n_samples=3000, seed=3)
    assert repr(trajectory) == (
        "Trajectory of VanDerPol: displacement without an input, 3000 samples of 0.1 s, seed 3"
    )
    driven = simulate(Lag(), random_input([(-1.0, 1.0)], 24, seed=0))
    assert "driven by" in repr(driven)
    ensemble = simulate_many(VanDerPol(), n_samples=20, initial_states=np.ones((4, 2)))
    assert repr(ensemble) == (
        "Ensemble of 4 trajectories of VanDerPol: displacement without an input, 20 samples of "
        "0.1 s each"
    )
