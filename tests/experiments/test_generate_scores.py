"""Scores of a benchmark: the measurement noise, the noise floor and the baselines."""

import numpy as np
import pytest

from experiments.generate.floor import find_floor
from experiments.plant.plant import plant_of
from helpers.benchmarks import (
    BOUC_WEN,
    BUILDING,
    INITIALISATION_WINDOW,
    MEAN_ONLY,
    RECORD_LENGTHS,
    compose_benchmark,
    generate,
    generate_two_rooms,
    read_benchmark,
    read_card,
    read_scores,
    rms,
    score_as_json,
)
from helpers.commands import read_exact_csv
from helpers.naive_arx import naive_arx
from simulators import Interpolation, predict_one_step

TASKS = ("one_step", "free_run")


# --- measurement noise and noise floor ------------------------------------------------------------


@pytest.fixture(scope="module", params=Interpolation, ids=lambda member: member.value)
def without_process_noise(request, tmp_path_factory):
    """Folder of a benchmark with measurement noise only, for each interpolation of the input."""
    folder = tmp_path_factory.mktemp("interpolation") / "bw"
    return generate(folder, *BOUC_WEN, f"interpolation={request.param.value}", MEAN_ONLY)


@pytest.mark.parametrize("task", TASKS)
def test_without_process_noise_the_floor_is_the_measurement_noise(task, without_process_noise):
    scores = read_scores(without_process_noise)[task]
    truth = read_benchmark(without_process_noise, "truth")["test"]
    expected = rms(truth["displacement_noise"].values[INITIALISATION_WINDOW:])

    noise = scores["measurement_noise"]["displacement"]
    floor = scores["noise_floor"]["displacement"]
    assert noise["rmse"] == pytest.approx(expected, rel=1e-12)
    assert floor == {"rmse": pytest.approx(expected, rel=1e-6), "unit": "m"}
    assert list(scores) == ["measurement_noise", "noise_floor", "limit", "mean"]
    # The state stays known without process noise: the limit is the floor.
    assert scores["limit"] == ({"displacement": floor} if task == "one_step" else {})


def test_the_floor_with_process_noise_counts_the_records_after_transient_and_window(building):
    """The floor of the records, simulated again; the errors of all records count together."""
    n_transient = 7
    n_skipped = n_transient + INITIALISATION_WINDOW
    plant = plant_of(compose_benchmark(*BUILDING))
    truth = read_benchmark(building, "truth")
    errors = {task: [] for task in TASKS}
    for i in (0, 1):
        seed = int(truth[f"test/record_{i}"].attrs["seed"])
        whole = plant.trajectory(RECORD_LENGTHS["test"], seed, transient=n_transient)
        floor = find_floor(whole, ["mass_flow"], n_skipped - 1, 20)
        for task in TASKS:
            errors[task].append((getattr(floor, task) - whole.output)[n_skipped:])

    scores = read_scores(building)
    for task in TASKS:
        expected = rms(np.concatenate(errors[task]))
        assert scores[task]["noise_floor"]["zone_temperature"] == {
            "unit": "degC",
            "rmse": pytest.approx(expected, rel=1e-9),
        }
    assert scores["one_step"]["measurement_noise"]["zone_temperature"]["rmse"] == 0


def test_the_limit_does_not_know_the_state(building):
    n_transient = 7
    n_skipped = n_transient + INITIALISATION_WINDOW
    plant = plant_of(compose_benchmark(*BUILDING))
    truth = read_benchmark(building, "truth")
    errors = []
    for i in (0, 1):
        seed = int(truth[f"test/record_{i}"].attrs["seed"])
        whole = plant.trajectory(RECORD_LENGTHS["test"], seed, transient=n_transient)
        limit = predict_one_step(whole, 0.0, driven=["mass_flow"])
        errors.append((limit.mean - whole.output)[n_skipped:])

    scores = read_scores(building)
    limit = scores["one_step"]["limit"]["zone_temperature"]["rmse"]
    assert limit == pytest.approx(rms(np.concatenate(errors)), rel=1e-9)
    assert limit > scores["one_step"]["noise_floor"]["zone_temperature"]["rmse"]
    assert scores["free_run"]["limit"] == {}
    assert f"| limit | {limit:.4g} | - | - |" in read_card(building)


# --- baselines ------------------------------------------------------------------------------------


def read_measured(folder, role):
    """Return force and displacement of a record of the oscillator."""
    record = read_benchmark(folder, "benchmark")[role]
    return record["force"].values, record["displacement"].values


@pytest.fixture(scope="module")
def naive_scores(oscillator):
    """RMSE by task and baseline, computed by plain loops; the baselines have three lags."""
    n_lags = 3
    force, displacement = read_measured(oscillator, "estimation")
    test_force, test = read_measured(oscillator, "test")
    scored = test[INITIALISATION_WINDOW:]
    mean_error = rms(scored - displacement[n_lags:].mean())
    last_known = test[INITIALISATION_WINDOW - 1]
    first = INITIALISATION_WINDOW - n_lags
    arx = naive_arx(
        (force[:, None], displacement),
        (test_force[first:, None], test[first:]),
        na=n_lags,
        nb=n_lags,
        nk=1,
        first=n_lags,
    )
    return {
        ("one_step", "mean"): mean_error,
        ("free_run", "mean"): mean_error,
        ("one_step", "persistence"): rms(np.diff(test)[INITIALISATION_WINDOW - 1 :]),
        ("free_run", "persistence"): rms(scored - last_known),
        ("one_step", "arx"): arx[0],
        ("free_run", "arx"): arx[1],
    }


@pytest.mark.parametrize("baseline", ["mean", "persistence", "arx"])
@pytest.mark.parametrize("task", TASKS)
def test_baselines_are_those_of_plain_loops(task, baseline, oscillator, naive_scores):
    rmse = read_scores(oscillator)[task][baseline]["displacement"]["rmse"]
    assert rmse == pytest.approx(naive_scores[task, baseline], rel=1e-5)


def test_the_online_gp_is_between_the_floor_and_half_of_the_persistence(oscillator):
    scores = read_scores(oscillator)["one_step"]
    _, displacement = read_measured(oscillator, "test")
    floor = scores["noise_floor"]["displacement"]["rmse"]
    online_gp = scores["online_gp"]["displacement"]["rmse"]
    assert floor < online_gp < 0.5 * rms(np.diff(displacement))


# --- several outputs ------------------------------------------------------------------------------

ROOM_OUTPUTS = ("warm_air", "cold_air")


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    """Folder of a benchmark of two rooms, whose lags are chosen."""
    return generate_two_rooms(tmp_path_factory.mktemp("rooms") / "rooms", None)


@pytest.fixture(scope="module")
def room_columns(rooms):
    """Columns of the test record of the two rooms."""
    return read_exact_csv(rooms / "csv" / "test.csv")


@pytest.mark.parametrize("name", ROOM_OUTPUTS)
def test_every_output_is_scored(name, rooms, room_columns):
    scores = read_scores(rooms)
    truth = read_benchmark(rooms, "truth")["test"]
    noise = rms(truth[f"{name}_noise"].values[INITIALISATION_WINDOW:])
    change = rms(np.diff(room_columns[name])[INITIALISATION_WINDOW - 1 :])

    free_run = scores["free_run"]
    assert free_run["measurement_noise"][name]["rmse"] == pytest.approx(noise)
    assert free_run["noise_floor"][name]["rmse"] > noise
    assert scores["one_step"]["persistence"][name]["rmse"] == pytest.approx(change)


def test_a_prediction_of_every_output_is_scored(rooms, room_columns, tmp_path):
    assert list(room_columns) == ["time", "heat", *ROOM_OUTPUTS]
    prediction = [room_columns["warm_air"] + 0.5, room_columns["cold_air"] + 0.25]
    np.save(tmp_path / "p.npy", np.stack(prediction, axis=1))

    scores = score_as_json(rooms, tmp_path / "p.npy")["outputs"]

    assert scores["warm_air"]["rmse"] == pytest.approx(0.5)
    assert scores["cold_air"]["rmse"] == pytest.approx(0.25)


def test_every_output_has_its_own_lags(rooms, tmp_path):
    """A benchmark with the lags of one output gives the same scores for this output."""
    one_output = generate_two_rooms(tmp_path / "one", None, "narx.target=cold_air")

    arx, arx_alone = (
        read_scores(folder)["free_run"]["arx"]["cold_air"] for folder in (rooms, one_output)
    )
    assert arx_alone == arx
    card = read_card(rooms)
    assert "Lags of the models of `warm_air` and of `narx.nc`: `warm_air[k-1]`" in card
    assert "Lags of the models of `cold_air`: `cold_air[k-1]`" in card
