"""Monte Carlo: every row is a simulation of its own, whatever the others are and however many threads work."""

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from plants import Basin, Lag, Runaway, random_input

from simulators import DivergenceError, Interpolation, MeasurementNoise, simulate, simulate_many
from simulators.monte_carlo import spread_seeds
from simulators.runge_kutta import PLAIN
from simulators.systems.bouc_wen import BoucWen
from simulators.systems.van_der_pol import VanDerPol
from sysid.store import read, write

ARRAYS = ("time", "input", "state", "output", "noise_free_output", "noise")
NOISY = Lag(rate_noise_std=0.4)


def starts(n, low=-2.0, high=2.0, n_x=1, seed=0):
    return np.random.default_rng(seed).uniform(low, high, size=(n, n_x))


def assert_same(one, other):
    """Check that two records agree bit for bit."""
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert (one.system, one.seed, one.n_clipped) == (other.system, other.seed, other.n_clipped)
    assert one.interpolation is other.interpolation


@pytest.mark.parametrize("interpolation", Interpolation)
@pytest.mark.parametrize("own_input", [False, True])
def test_row_is_bit_identical_to_a_simulation(interpolation, own_input):
    """Everything differs between the trajectories: start, parameters, seed and perhaps the input."""
    N, n = 5, 24
    u = np.stack([random_input([(-1.0, 1.0)], n, seed=i) for i in range(N)])
    options = {"interpolation": interpolation, "measurement": MeasurementNoise(snr_db=20.0), "dt": 0.2, "substeps": 3}
    x0, constants, seeds = starts(N), np.linspace(0.5, 1.5, N), [7, 1, 0, 7, 2**40]
    many = simulate_many(
        NOISY,
        u if own_input else u[0],
        initial_states=x0,
        parameters={"time_constant": constants},
        seeds=seeds,
        **options,
    )
    assert len(many) == N
    for i, trajectory in enumerate(many):
        system = replace(NOISY, time_constant=constants[i])
        one = simulate(system, u[i if own_input else 0], initial_state=x0[i], seed=seeds[i], **options)
        assert_same(trajectory, one)
    assert len({row.tobytes() for row in many.state}) == N


def test_defaults_are_those_of_a_simulation():
    u = random_input([(-50.0, 50.0)], 30)
    system = BoucWen(force_noise_std=1.0)
    for trajectory in simulate_many(system, u[:, 0], n_trajectories=2, seed=4):
        assert_same(trajectory, simulate(system, u, seed=trajectory.seed))


@pytest.mark.parametrize("workers", [1, 2, 3, 16])
def test_result_does_not_depend_on_the_number_of_threads(workers):
    run = {"n_samples": 40, "initial_states": starts(11, n_x=2), "seed": 3}
    one, other = simulate_many(VanDerPol(), **run), simulate_many(VanDerPol(), workers=workers, **run)
    for name in (*ARRAYS, "seeds", "n_clipped"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_more_trajectories_and_more_samples_begin_with_the_fewer():
    x0 = starts(9, n_x=2)
    noise = MeasurementNoise(std=0.1)
    few = simulate_many(VanDerPol(), n_samples=20, initial_states=x0[:4], seed=6, measurement=noise)
    more = simulate_many(VanDerPol(), n_samples=33, initial_states=x0, seed=6, measurement=noise)
    np.testing.assert_array_equal(more.seeds[:4], few.seeds)
    for name in ("state", "output", "noise_free_output", "noise"):
        np.testing.assert_array_equal(getattr(more, name)[:4, :20], getattr(few, name))


def test_seeds_differ_between_trajectories_and_follow_from_one():
    one, same, other = (spread_seeds(seed, 2000) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert len({*one, *other}) == 4000
    assert min(one.min(), other.min()) >= 0
    many = simulate_many(NOISY, np.zeros(200), n_trajectories=4)
    np.testing.assert_array_equal(many.seeds, one[:4])
    correlations = np.corrcoef(many.noise[:, :, 0])
    assert np.abs(correlations - np.eye(4)).max() < 0.35


def test_noise_can_be_left_out():
    many = simulate_many(NOISY, np.ones(30), n_trajectories=3, noise=False)
    assert not many.noise.any()
    np.testing.assert_array_equal(many.state[0], many.state[2])


def test_spread_of_trajectories_is_that_of_the_theory():
    """Held noise on a pure integrator: the variance after k samples is k (dt s)^2."""
    N, n, std = (200, 6, 0.3) if PLAIN else (3000, 6, 0.3)
    many = simulate_many(Basin(rate_noise_std=std, depth=1e9, initial_level=1e6), np.zeros(n), n_trajectories=N)
    expected = std * np.sqrt(np.arange(n))
    np.testing.assert_allclose(many.state[..., 0].std(axis=0), expected, rtol=5 / np.sqrt(2 * N))


def test_shared_input_is_stored_once():
    u = random_input([(-1.0, 1.0)], 30)
    shared = simulate_many(NOISY, u, n_trajectories=3)
    np.testing.assert_array_equal(shared.input, u)
    own = simulate_many(NOISY, np.stack([u, u, -u]))
    np.testing.assert_array_equal(own.input, [u, u, -u])
    assert shared.to_dataset()["drive"].dims == ("time",)
    assert own.to_dataset()["drive"].dims == ("trajectory", "time")
    assert shared.to_dataset()["reading"].dims == ("trajectory", "time")


def test_arguments_are_not_changed_and_not_kept():
    u, x0, constants = np.ones((3, 10, 1)), starts(3), np.array([1.0, 2.0, 3.0])
    before = [a.copy() for a in (u, x0, constants)]
    many = simulate_many(NOISY, u, initial_states=x0, parameters={"time_constant": constants})
    for array, copy in zip((u, x0, constants), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    u[:], x0[:] = -1.0, 9.0
    np.testing.assert_array_equal(many.input, before[0])
    np.testing.assert_array_equal(many.state[:, 0], before[1])


def test_trajectories_can_be_taken_from_both_ends_and_walked():
    many = simulate_many(NOISY, np.ones(5), n_trajectories=3)
    assert_same(many[-1], many[2])
    assert [trajectory.seed for trajectory in many] == many.seeds.tolist()
    with pytest.raises(IndexError):
        many[3]


def varied():
    """Ensemble in which everything varies that can."""
    return simulate_many(
        NOISY,
        np.stack([random_input([(-1.0, 1.0)], 25, seed=i) for i in range(4)]),
        initial_states=starts(4),
        parameters={"time_constant": [0.5, 1.0, 2.0, 4.0]},
        measurement=MeasurementNoise(std=0.1),
        interpolation=Interpolation.linear,
        seed=2,
    )


def test_dataset_survives_netcdf_and_the_store(tmp_path):
    many = varied()
    dataset = many.to_dataset()
    dataset.to_netcdf(tmp_path / "many.nc")
    with xr.open_dataset(tmp_path / "many.nc") as file:
        xr.testing.assert_identical(file.load(), dataset)
    write(dataset, tmp_path / "stored.nc", kind="trajectory")
    stored = read(tmp_path / "stored.nc", kind="trajectory")
    for name, values in dataset.variables.items():
        np.testing.assert_array_equal(stored[name].values, values)
    np.testing.assert_array_equal(stored["level"], many.state[..., 0])
    np.testing.assert_array_equal(stored["reading"], many.output[..., 0])
    np.testing.assert_array_equal(stored["reading_noise_free"], many.noise_free_output[..., 0])


def test_dataset_says_how_to_simulate_each_trajectory_again():
    many = varied()
    dataset = many.to_dataset()
    i = 2
    fields = json.loads(dataset.attrs["parameters"]) | {"time_constant": float(dataset["time_constant"][i])}
    again = simulate(
        Lag(**fields),
        dataset["drive"].values[i],
        initial_state=dataset["level"].values[i, :1],
        seed=int(dataset["seed"][i]),
        measurement=MeasurementNoise(std=0.1),
        interpolation=Interpolation(dataset.attrs["interpolation"]),
    )
    np.testing.assert_array_equal(again.output[:, 0], dataset["reading"].values[i])
    assert all("long_name" in variable.attrs for variable in dataset.variables.values())
    assert dataset["reading"].attrs["units"] == "V"


def test_clipped_substeps_are_counted_for_each_trajectory():
    many = simulate_many(Basin(), np.full(6, 0.2), initial_states=[[0.1], [0.95]])
    assert [trajectory.n_clipped for trajectory in many] == many.n_clipped.tolist()
    assert many.n_clipped[0] <= 10 < many.n_clipped[1] == simulate(Basin(initial_level=0.95), np.full(6, 0.2)).n_clipped
    np.testing.assert_array_equal(many.to_dataset()["clipped_substeps"], many.n_clipped)


def test_divergence_names_the_trajectory_the_time_and_the_state():
    """x' = x^2 from 0.5 reaches infinity at 2 s, from below zero never."""
    x0 = np.full((20, 1), -1.0)
    x0[13] = 0.5
    message = r"^trajectory 13: Runaway diverged at time (1\.9|2\.0)\d* s \(sample (19|20)\): state 'level' became"
    with pytest.raises(DivergenceError, match=message) as error:
        simulate_many(Runaway(substeps=100), np.zeros(40), initial_states=x0)
    assert "last finite state: level=" in str(error.value)
    assert "Use more substeps (now 100 per dt=0.1 s)" in str(error.value)


def test_bad_start_names_the_trajectory():
    with pytest.raises(ValueError, match=r"trajectory 2: Basin: expected an initial 'level' from 0 to 1 m, got 1\.5"):
        simulate_many(Basin(), np.zeros(5), initial_states=[[0.1], [1.0], [1.5]])
    with pytest.raises(ValueError, match="trajectory 1: Lag: expected 1 finite initial states"):
        simulate_many(Lag(), np.zeros(5), initial_states=[[0.1], [np.nan]])


def test_bad_input_names_the_trajectory():
    u = np.zeros((3, 5, 1))
    u[2, 4] = np.inf
    with pytest.raises(ValueError, match="trajectory 2: Lag: input 'drive' is inf at sample 4: expected finite"):
        simulate_many(Lag(), u)


def test_bad_parameter_names_the_trajectory():
    with pytest.raises(ValueError, match=r"trajectory 1: Lag\(time_constant=-1\.0\): expected a number > 0"):
        simulate_many(Lag(), np.zeros(5), parameters={"time_constant": [1.0, -1.0]})


def test_constant_output_names_the_trajectory():
    with pytest.raises(ValueError, match=r"trajectory 0: MeasurementNoise.*is constant"):
        simulate_many(Lag(), np.zeros(5), n_trajectories=2, measurement=MeasurementNoise(snr_db=3.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"expected one number N >= 1 of trajectories, got none; give n_trajectories"),
        ({"n_trajectories": 0}, r"N >= 1 of trajectories, got \{'n_trajectories': 0\}"),
        ({"n_trajectories": 3, "seeds": [1, 2]}, r"got \{'n_trajectories': 3, 'seeds': 2\}"),
        ({"initial_states": np.zeros((2, 1)), "parameters": {"time_constant": [1.0]}}, "parameters.*time_constant.*1"),
        ({"n_trajectories": 2, "parameters": {"time_constant": 1.0}}, "one number N >= 1 of trajectories"),
        ({"initial_states": np.zeros(3)}, r"initial_states of shape \(N, 1\), got \(3,\); give one row"),
        ({"initial_states": np.zeros((3, 2))}, r"initial_states of shape \(N, 1\), got \(3, 2\)"),
        (
            {"n_trajectories": 2, "parameters": {"size": [1.0, 2.0]}},
            r"among the fields of Lag .*got \['size'\]; rename",
        ),
        ({"n_trajectories": 2, "parameters": {"dt": [0.1, 0.2]}}, r"other than dt and substeps, got \['dt'\]"),
        ({"n_trajectories": 2, "seed": -1}, "seed=-1: expected an integer >= 0"),
        ({"seeds": [0, -5]}, "trajectory 1: seed=-5: expected an integer >= 0"),
        ({"n_trajectories": 2, "n_samples": 9}, "n_samples=9 rows, got 5"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        simulate_many(NOISY, np.zeros(5), **options)


def test_input_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"Lag: expected an input of shape \(n >= 1, 1\)"):
        simulate_many(Lag(), np.zeros((2, 5, 3)))
    with pytest.raises(ValueError, match=r"VanDerPol: expected .*n_samples >= 1 for a system without inputs"):
        simulate_many(VanDerPol(), n_trajectories=2)


@settings(max_examples=10, deadline=None)
@given(N=st.integers(1, 12), n=st.integers(1, 30), workers=st.integers(1, 4))
def test_any_size_works(N, n, workers):
    many = simulate_many(VanDerPol(), n_samples=n, n_trajectories=N, workers=workers)
    assert many.state.shape == (N, n, 2)
    assert many.output.shape == (N, n, 1)
    assert np.isfinite(many.state).all()


def test_a_thousand_oscillators():
    N = 50 if PLAIN else 1000
    many = simulate_many(VanDerPol(), n_samples=50, initial_states=starts(N, n_x=2))
    assert many.output.shape == (N, 50, 1)
    assert np.abs(many.output).max() < 4.0
    assert_same(
        many[N - 1], simulate(VanDerPol(), n_samples=50, initial_state=starts(N, n_x=2)[-1], seed=many[N - 1].seed)
    )


@pytest.mark.skipif(PLAIN, reason="half a minute without the compiler")
def test_memory_is_that_of_the_result():
    """The peak is the size of the arrays of the result, and what a trajectory per thread needs."""
    N, n = 2000, 500
    options = {"n_samples": n, "substeps": 1, "measurement": MeasurementNoise(std=0.1)}
    simulate_many(VanDerPol(), n_trajectories=2, **options)
    tracemalloc.start()
    many = simulate_many(VanDerPol(), n_trajectories=N, **options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(array.nbytes for array in (many.state, many.output, many.noise_free_output, many.noise))
    assert size == N * n * 5 * 8
    assert size <= peak < size + 1e6


@pytest.mark.parametrize("seeds", [[0.7, 1.2], ["a", "b"]])
def test_seeds_that_are_no_integers_are_refused(seeds):
    with pytest.raises(ValueError, match="expected seeds of integers"):
        simulate_many(VanDerPol(), n_samples=3, seeds=seeds)


@pytest.mark.parametrize("workers", [0, -1])
def test_no_workers_are_refused(workers):
    with pytest.raises(ValueError, match=f"workers={workers}.*at least 1"):
        simulate_many(VanDerPol(), n_samples=3, n_trajectories=2, workers=workers)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_first_of_several_failures_is_named(workers):
    starts = np.zeros((9, 2))
    starts[[3, 4, 7]] = 1e200
    with pytest.raises(DivergenceError, match=r"^trajectory 3: "):
        simulate_many(VanDerPol(), n_samples=5, initial_states=starts, workers=workers)
