"""Many runs at once: every row is a simulation of its own, whatever the others are and however many
threads work.
"""

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

ARRAYS = ("time", "input", "state", "output", "noise_free_output", "noise")
NOISY = Lag(rate_noise_std=0.4)
N = 5
INPUTS = np.stack([random_input([(-1.0, 1.0)], 24, seed=i) for i in range(N)])
STARTS = np.random.default_rng(0).uniform(-2, 2, size=(N, 1))
VARIED = {  # everything differs between the trajectories
    "initial_states": STARTS,
    "parameters": {"time_constant": np.linspace(0.5, 1.5, N)},
    "seeds": [7, 1, 0, 7, 2**40],
}


def assert_same(one, other):
    """Check that two records agree bit for bit."""
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.n_clipped, other.n_clipped)
    assert one.interpolation is other.interpolation


@pytest.mark.parametrize("interpolation", Interpolation)
@pytest.mark.parametrize("own_input", [False, True])
@pytest.mark.parametrize("workers", [1, 3, None])
def test_row_is_bit_identical_to_a_simulation(interpolation, own_input, workers):
    options = {
        "interpolation": interpolation,
        "measurement": MeasurementNoise(snr_db=20.0),
        "dt": 0.2,
        "substeps": 3,
    }
    many = simulate_many(
        NOISY, INPUTS if own_input else INPUTS[0], workers=workers, **VARIED, **options
    )
    assert len(many) == N
    for i, trajectory in enumerate(many):
        system = replace(NOISY, time_constant=VARIED["parameters"]["time_constant"][i])
        u = INPUTS[i if own_input else 0]
        seed = VARIED["seeds"][i]
        one = simulate(system, u, initial_state=STARTS[i], seed=seed, **options)
        assert_same(trajectory, one)
        assert (trajectory.system, trajectory.seed) == (one.system, one.seed)
    assert_same(many[-1], many[N - 1])
    assert many.input.ndim == (3 if own_input else 2)
    with pytest.raises(IndexError):
        many[N]


def test_defaults_are_those_of_a_simulation():
    for trajectory in simulate_many(NOISY, INPUTS[0][:, 0], n_trajectories=2, seed=4):
        assert_same(trajectory, simulate(NOISY, INPUTS[0], seed=trajectory.seed))
    quiet = simulate_many(NOISY, INPUTS[0], n_trajectories=2, noise=False)
    assert_same(quiet[1], simulate(NOISY, INPUTS[0], noise=False))


def test_seeds_differ_between_trajectories_and_follow_from_one():
    one, same, other = (spread_seeds(seed, 2000) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert len({*one, *other}) == 4000
    assert min(one.min(), other.min()) >= 0
    many = simulate_many(NOISY, np.zeros(200), n_trajectories=4)
    np.testing.assert_array_equal(many.seeds, one[:4])
    assert np.abs(np.corrcoef(many.noise[:, :, 0]) - np.eye(4)).max() < 0.35


def test_arguments_are_not_changed_and_not_kept():
    u = np.ones((3, 10, 1))
    x0 = STARTS[:3].copy()
    constants = np.array([1.0, 2.0, 3.0])
    before = [a.copy() for a in (u, x0, constants)]
    many = simulate_many(NOISY, u, initial_states=x0, parameters={"time_constant": constants})
    for array, copy in zip((u, x0, constants), before, strict=True):
        np.testing.assert_array_equal(array, copy)
    u[:], x0[:] = -1.0, 9.0
    np.testing.assert_array_equal(many.input, before[0])
    np.testing.assert_array_equal(many.state[:, 0], before[1])


def test_dataset_survives_the_store_and_says_how_to_simulate_each_trajectory_again(
    tmp_path,
):
    noise = MeasurementNoise(std=0.1)
    many = simulate_many(NOISY, INPUTS, **VARIED, measurement=noise, interpolation="linear")
    write(many.to_dataset(), tmp_path / "stored.nc", kind="trajectory")
    stored = read(tmp_path / "stored.nc", kind="trajectory")
    for i in range(N):
        row = stored.isel(trajectory=i)
        fields = json.loads(stored.attrs["parameters"]) | {
            "time_constant": float(row["time_constant"])
        }
        options = {
            "seed": int(row["seed"]),
            "interpolation": stored.attrs["interpolation"],
            "measurement": noise,
        }
        again = simulate(
            Lag(**fields),
            row["drive"].values,
            initial_state=row["level"].values[:1],
            **options,
        )
        for name in ("drive", "level", "reading", "reading_noise_free", "drift_noise"):
            np.testing.assert_array_equal(again.to_dataset()[name], row[name])
    assert all("long_name" in variable.attrs for variable in stored.variables.values())
    assert stored["reading"].attrs["units"] == "V"
    assert stored["drive"].dims == ("trajectory", "time")
    shared = simulate_many(NOISY, INPUTS[0], n_trajectories=3).to_dataset()
    assert (shared["drive"].dims, shared["reading"].dims) == (
        ("time",),
        ("trajectory", "time"),
    )


def test_clipped_substeps_are_counted_for_each_trajectory():
    many = simulate_many(Basin(), np.full(6, 0.2), initial_states=[[0.1], [0.95]])
    expected = [
        simulate(Basin(initial_level=level), np.full(6, 0.2)).n_clipped for level in (0.1, 0.95)
    ]
    assert [trajectory.n_clipped for trajectory in many] == many.n_clipped.tolist() == expected
    assert expected[0] <= 10 < expected[1]
    np.testing.assert_array_equal(many.to_dataset()["clipped_substeps"], expected)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_the_first_of_several_failures_is_named(workers):
    """x' = x^2 from 0.5 reaches infinity at 2 s, from below zero never."""
    x0 = np.full((20, 1), -1.0)
    x0[[13, 14, 17]] = 0.5
    message = r"^trajectory 13: Runaway diverged at time (1\.9|2\.0)\d* s \(sample (19|20)\): state 'level' became"
    with pytest.raises(DivergenceError, match=message):
        simulate_many(Runaway(substeps=100), np.zeros(40), initial_states=x0, workers=workers)


@pytest.mark.parametrize(
    ("system", "options", "message"),
    [
        (
            Basin(),
            {"initial_states": [[0.1], [1.0], [1.5]]},
            "trajectory 2: Basin: .*from 0 to 1 m, got 1.5",
        ),
        (
            Lag(),
            {"initial_states": [[0.1], [np.nan]]},
            "trajectory 1: Lag: expected 1 finite initial states",
        ),
        (
            Lag(),
            {"input": [[[0.0]], [[np.inf]]]},
            "trajectory 1: Lag: input 'drive' is inf at sample 0",
        ),
        (
            Lag(),
            {"parameters": {"time_constant": [1.0, -1.0]}},
            r"trajectory 1: Lag\(time_constant=-1\.0",
        ),
        (
            Lag(),
            {"n_trajectories": 2, "measurement": MeasurementNoise(snr_db=3.0)},
            "trajectory 0: .*is constant",
        ),
        (Lag(), {}, "got none; give n_trajectories"),
        (Lag(), {"n_trajectories": 2.5}, r"got \{'n_trajectories': 2.5\}"),
        (
            Lag(),
            {"n_trajectories": 3, "seeds": [1, 2]},
            r"got \{'n_trajectories': 3, 'seeds': 2\}",
        ),
        (Lag(), {"initial_states": np.zeros((3, 2))}, r"shape \(N, 1\).* got \(3, 2\)"),
        (
            Lag(),
            {"n_trajectories": 2, "parameters": {"size": [1.0, 2.0]}},
            r"got \['size'\]",
        ),
        (
            Lag(),
            {"n_trajectories": 2, "parameters": {"dt": [0.1, 0.2]}},
            r"got \['dt'\]",
        ),
        (Lag(), {"parameters": [1.0, 2.0]}, "parameters as a mapping"),
        (NOISY, {"seeds": [0, -5]}, "trajectory 1: seed=-5"),
        (Lag(), {"seeds": [0.7, 1.2]}, "seeds that are integers"),
        *(
            (Lag(), {"n_trajectories": 2, "workers": workers}, f"workers={workers}")
            for workers in (0, -1, 1.5)
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(system, options, message):
    with pytest.raises((ValueError, TypeError), match=message):
        simulate_many(system, **({"input": np.zeros(5)} | options))


@pytest.mark.parametrize("given", ["3", "0", "default", ""])
def test_cores_are_counted_as_sysid_counts_them(given, monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", given)
    assert _n_cores() == n_cores()


def test_memory_is_that_of_the_result():
    """The peak is the size of the arrays of the result, and what a trajectory per thread needs."""
    options = {
        "n_samples": 500,
        "substeps": 1,
        "measurement": MeasurementNoise(std=0.1),
    }
    simulate_many(VanDerPol(), n_trajectories=2, **options)
    tracemalloc.start()
    many = simulate_many(VanDerPol(), n_trajectories=1000, **options)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = sum(
        array.nbytes for array in (many.state, many.output, many.noise_free_output, many.noise)
    )
    assert size == 1000 * 500 * 5 * 8
    assert size <= peak < size + 1e6
