"""Benchmark folders: what is in them, that it is right and repeats, that the answer stays apart,
scores, refusals.
"""

import hashlib
import json
import math
import re
import runpy
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.cli.ends import Refused
from experiments.generate import folder as writing
from experiments.generate.benchmark import count_samples
from experiments.generate.floor import find_floor
from experiments.generate.run import choose_window, run
from experiments.plant.plant import Plant, plant_of
from experiments.sweeps.shared_output import SharedOutput
from helpers import systems
from helpers.benchmarks import (
    BOUC_WEN,
    INITIALISATION_WINDOW,
    RECORD_LENGTHS,
    SHORT_BENCHMARK,
    compose_benchmark,
    generate,
)
from helpers.commands import list_files, read_exact_csv, run_command
from helpers.naive_arx import naive_arx
from simulators import (
    BoucWen,
    Change,
    DivergenceError,
    Interpolation,
    Signal,
    System,
    simulate,
)
from simulators.noise import held_noise
from sysid import Narx, Recordings, StoreError, store

BUILDING = ("system=building",)


def groups(folder, kind):
    """Records of a NetCDF file of a benchmark folder by the name of their group."""
    return store.read_groups(folder / f"{kind}.nc", kind=kind)


def scores(folder):
    return json.loads((folder / "scores.json").read_text())


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def score(folder, *arguments):
    """Run the scoring script of a folder in this process, as its command line does."""
    return run_command(
        "score",
        *arguments,
        main=partial(runpy.run_path, str(folder / "score.py"), run_name="__main__"),
    )


def scored(folder, *arguments):
    """What the scoring script prints as JSON."""
    said = score(folder, *arguments, "--json")
    assert said.code == 0, said
    return json.loads(said.out)


ROOMS = {"_target_": "helpers.systems.TwoRooms", "dt": 0.5}
SECRET = 8_123_456_789_012_345_678
DATA = ("benchmark", "truth", "narx")
FILES = {
    *(f"{kind}.nc" for kind in DATA),
    "CARD.md",
    "benchmark.json",
    "checksums.sha256",
    "configuration.yaml",
}
FILES |= {"score.py", "scores.json", "csv/validation.csv"}
ANSWER = {"truth.nc", "truth_csv/test.csv", "configuration.yaml"}


@pytest.fixture(scope="module")
def oscillator(tmp_path_factory):
    """Bouc-Wen in open loop: measurement noise, no process noise."""
    return generate(
        tmp_path_factory.mktemp("oscillator") / "bw",
        *BOUC_WEN,
        f"seed={SECRET}",
        "figures=true",
    )


@pytest.fixture(scope="module")
def building(tmp_path_factory):
    """Building in closed loop: process noise, no measurement noise; several records after a
    transient.
    """
    folder = tmp_path_factory.mktemp("building") / "house"
    return generate(
        folder,
        *BUILDING,
        "realisations.estimation=2",
        "realisations.test=2",
        "transient=7",
    )


def cells(folder):
    """Text of the card, whose tables have no padding."""
    return re.sub(r" +\|", " |", (folder / "CARD.md").read_text())


def content(folder):
    """Content of all data files: bytes of tables, attributes and digests of arrays."""
    found = {
        name: (folder / name).read_bytes() for name in list_files(folder) if name.endswith(".csv")
    }
    for kind in DATA:
        arrays = {
            key: store.digest(group, group.attrs) for key, group in groups(folder, kind).items()
        }
        found[kind] = (store.header(folder / f"{kind}.nc"), arrays)
    return found


# --- records --------------------------------------------------------------------------------------


def test_the_folder_holds_what_was_simulated_and_its_checksums(oscillator, building):
    """The noise-free output follows from the published input and the equations."""
    own = {
        "csv/estimation.csv",
        "csv/test.csv",
        "truth_csv/test.csv",
        "figures/time_series.png",
    }
    assert list_files(oscillator) == FILES | own
    several = {f"{folder}/test_{i}.csv" for folder in ("csv", "truth_csv") for i in (0, 1)}
    assert list_files(building) == FILES | several | {
        "csv/estimation_0.csv",
        "csv/estimation_1.csv",
    }
    checked = dict(
        line.split("  ")[::-1] for line in (building / "checksums.sha256").read_text().splitlines()
    )
    assert set(checked) == list_files(building) - {"checksums.sha256"}
    assert checked == {
        name: hashlib.sha256((building / name).read_bytes()).hexdigest() for name in checked
    }
    measured = groups(oscillator, "benchmark")
    truth = groups(oscillator, "truth")
    recordings = Recordings.from_groups(measured)
    assert (recordings.sampling_time, recordings.units) == (
        1 / 750,
        {"force": "N", "displacement": "m"},
    )
    sizes = [
        (record.sizes["time"], record.attrs["initialisation_window"])
        for record in recordings.records
    ]
    assert sizes == [(300, 0), (80, INITIALISATION_WINDOW), (150, INITIALISATION_WINDOW)]
    for key, record in truth.items():
        y = measured[key]["displacement"].values
        y0 = record["displacement_noise_free"].values
        again = simulate(BoucWen(), measured[key]["force"].values)
        np.testing.assert_array_equal(again.output[:, 0], y0)
        np.testing.assert_array_equal(record["displacement_noise"], y - y0)
        np.testing.assert_array_equal(record["velocity"], again.state[:, 1])
        states = {"position", "velocity", "restoring_force"}
        assert set(record.data_vars) == {
            "displacement_noise_free",
            "displacement_noise",
            *states,
            "force_noise",
        }
        assert 10 * np.log10(np.var(y0) / np.mean((y - y0) ** 2)) == pytest.approx(40, abs=1.5)


def test_several_records_are_groups_without_their_transient_and_differ(building):
    measured = groups(building, "benchmark")
    truth = groups(building, "truth")
    expected = [
        "estimation/record_0",
        "estimation/record_1",
        "validation",
        "test/record_0",
        "test/record_1",
    ]
    assert list(measured) == list(truth) == expected
    record = measured["validation"]
    answer = truth["validation"]
    plant = plant_of(compose_benchmark(*BUILDING))
    whole = plant.trajectory(RECORD_LENGTHS["validation"], int(answer.attrs["seed"]), transient=7)
    np.testing.assert_array_equal(record["zone_temperature"], whole.output[7:, 0])
    np.testing.assert_array_equal(record["mass_flow"], whole.input[7:, 1])
    np.testing.assert_array_equal(answer["zone_noise"], whole.noise[7:, 0])


def test_a_transient_leaves_the_multisine_exact(tmp_path):
    """Samples before the record continue its periods backwards: rms stays what was asked for, in
    whole periods.
    """
    few = (
        *BOUC_WEN,
        "estimation=0.4s",
        "validation=80samples",
        "test=0.2s",
        "baseline=[mean]",
    )
    after = groups(generate(tmp_path / "bw", *few, "transient=37"), "benchmark")
    for role, record in groups(generate(tmp_path / "plain", *few), "benchmark").items():
        assert record.sizes["time"] == RECORD_LENGTHS[role]
        assert rms(record["force"]) == pytest.approx(50, rel=1e-9)
        np.testing.assert_array_equal(after[role]["force"], record["force"])
    assert groups(tmp_path / "bw", "truth")["test"]["position"][0] != 0
    assert count_samples("test", "1h", 1000.0) == 3  # the fourth interval does not end in time


def test_initial_states_are_drawn_for_every_record(tmp_path):
    few = (
        "system=van_der_pol",
        "baseline=[mean]",
        "noise_paths=4",
        "initialisation_window=null",
        "test=52",
    )
    folder = generate(
        tmp_path / "a",
        *few,
        "initial_states={velocity: [-2,2]}",
        "realisations.test=20",
    )
    drawn = groups(folder, "truth")
    plain = groups(generate(tmp_path / "b", *few), "truth")
    velocity = [float(record["velocity"][0]) for record in drawn.values()]
    assert len(set(velocity)) == 22
    assert -2 <= min(velocity) < -1 < 1 < max(velocity) <= 2
    assert {float(record["position"][0]) for record in drawn.values()} == {1.0}
    noise = (records["validation"]["acceleration_noise"] for records in (drawn, plain))
    np.testing.assert_array_equal(*noise)  # stays as it is
    words = (
        "(uniform, `velocity` from -2 to 2 m/s, the other states as in the parameters; `truth.nc`"
    )
    assert words in (folder / "CARD.md").read_text()
    assert scores(folder)["initialisation_window"] == 5
    assert [choose_window(None, n, lag) for n, lag in ((52, 2), (12, 2), (4, 0), (700, 2))] == [
        5,
        2,
        1,
        50,
    ]


def test_csv_copies_and_lag_data_are_those_of_the_measured_signals(oscillator, building):
    for folder in (oscillator, building):
        for key, record in groups(folder, "benchmark").items():
            columns = read_exact_csv(folder / "csv" / f"{key.replace('/record', '')}.csv")
            assert list(columns) == ["time", *record.data_vars]
            for name, values in columns.items():
                np.testing.assert_array_equal(values, record[name])
    columns = read_exact_csv(building / "truth_csv" / "test_1.csv")
    truth = groups(building, "truth")["test/record_1"]
    assert list(columns) == ["time", "zone_temperature_noise_free"]
    np.testing.assert_array_equal(
        columns["zone_temperature_noise_free"], truth["zone_temperature_noise_free"]
    )
    found = groups(building, "narx")
    measured = groups(building, "benchmark")
    assert list(found) == ["estimation", "validation", "test"]
    rows = found["estimation"]
    narx = Narx.from_dict(json.loads(found["estimation"].attrs["narx"]))
    expected = [narx.dataset(measured[f"estimation/record_{i}"]) for i in (0, 1)]
    for name in ("regressor", "target"):
        np.testing.assert_array_equal(rows[name], np.concatenate([one[name] for one in expected]))


# --- that it repeats, and that the answer stays apart -----------------------------------------------


def test_the_kept_configuration_makes_the_same_data(oscillator, tmp_path):
    kept = OmegaConf.load(oscillator / "configuration.yaml")
    assert not {"output", "figures", "trusted"} & set(kept)
    run(
        OmegaConf.merge(kept, {"output": str(tmp_path / "again"), "figures": False}),
        tmp_path,
    )
    assert content(tmp_path / "again") == content(oscillator)
    assert scores(tmp_path / "again") == scores(oscillator)
    other = content(generate(tmp_path / "other", *BOUC_WEN, "seed=1", "baseline=[mean]"))
    assert not [name for name, found in content(oscillator).items() if other[name] == found]


def test_no_public_file_tells_the_answer(oscillator):
    truth = groups(oscillator, "truth").values()
    seeds = {str(SECRET)} | {str(record.attrs["seed"]) for record in truth}
    assert len(seeds) == 4
    noise_free = {record["displacement_noise_free"].values.tobytes() for record in truth}
    answers = {
        repr(value)
        for value in read_exact_csv(oscillator / "truth_csv" / "test.csv")[
            "displacement_noise_free"
        ][1:]
    }
    for name in list_files(oscillator) - ANSWER:
        raw = (oscillator / name).read_bytes()
        assert not [seed for seed in seeds if seed.encode() in raw], name
        if not name.endswith((".nc", ".png")):
            assert not answers & set(re.split(r"[,\s\"]+", raw.decode())), name
    for kind in ("benchmark", "narx"):
        for group in groups(oscillator, kind).values():
            assert not {"seed", "configuration", "parameters"} & set(group.attrs)
            assert not noise_free & {
                v.values.tobytes() for v in group.variables.values() if v.dtype.kind not in "OU"
            }
        assert not {"seed", "configuration", "creation_time"} & set(
            store.header(oscillator / f"{kind}.nc")
        )
    public, answer = (store.header(oscillator / f"{kind}.nc") for kind in ("benchmark", "truth"))
    assert (
        hashlib.sha256(answer["configuration"].encode()).hexdigest()
        == public["configuration_sha256"]
    )
    assert answer["configuration_sha256"] == public["configuration_sha256"]
    assert (oscillator / "configuration.yaml").read_text().endswith(answer["configuration"])


# --- scores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", Interpolation, ids=lambda member: member.value)
def test_without_process_noise_the_floor_is_the_measurement_noise(between, tmp_path):
    folder = generate(
        tmp_path / "bw", *BOUC_WEN, f"interpolation={between.value}", "baseline=[mean]"
    )
    found = scores(folder)
    expected = rms(
        groups(folder, "truth")["test"]["displacement_noise"].values[INITIALISATION_WINDOW:]
    )
    for task in ("one_step", "free_run"):
        assert found[task]["measurement_noise"]["displacement"]["rmse"] == pytest.approx(
            expected, rel=1e-12
        )
        assert found[task]["noise_floor"]["displacement"] == {
            "rmse": pytest.approx(expected, rel=1e-6),
            "unit": "m",
        }
    assert list(found["free_run"]) == ["measurement_noise", "noise_floor", "mean"]


def test_floor_with_process_noise_counts_the_records_after_transient_and_window(
    building,
):
    """Records simulated again, and their floor: the window of each is left out, and all errors
    count together.
    """
    plant = plant_of(compose_benchmark(*BUILDING))
    found = scores(building)
    errors = {"one_step": [], "free_run": []}
    for record in (groups(building, "truth")[f"test/record_{i}"] for i in (0, 1)):
        whole = plant.trajectory(RECORD_LENGTHS["test"], int(record.attrs["seed"]), transient=7)
        floor = find_floor(whole, ["mass_flow"], 7 + INITIALISATION_WINDOW - 1, 20)
        values = (floor.one_step - whole.output, floor.free_run - whole.output)
        for name, part in zip(errors, values, strict=True):
            errors[name].append(part[7 + INITIALISATION_WINDOW :])
    expected = {
        name: pytest.approx(rms(np.concatenate(parts)), rel=1e-9) for name, parts in errors.items()
    }
    for task, rmse in expected.items():
        assert found[task]["noise_floor"]["zone_temperature"] == {
            "unit": "degC",
            "rmse": rmse,
        }
    assert found["one_step"]["measurement_noise"]["zone_temperature"]["rmse"] == 0


def test_baselines_against_plain_loops(oscillator):
    measured = groups(oscillator, "benchmark")
    found = scores(oscillator)
    u, y, v, z = (
        measured[key][name].values
        for key in ("estimation", "test")
        for name in ("force", "displacement")
    )

    tested = (v[INITIALISATION_WINDOW - 3 :, None], z[INITIALISATION_WINDOW - 3 :])  # three lags
    one_step, free_run = naive_arx((u[:, None], y), tested, 3, 3, 1, 3)
    expected = {
        ("one_step", "mean"): z[INITIALISATION_WINDOW:] - y[3:].mean(),
        ("free_run", "mean"): z[INITIALISATION_WINDOW:] - y[3:].mean(),
        ("one_step", "persistence"): np.diff(z)[INITIALISATION_WINDOW - 1 :],
        ("free_run", "persistence"): z[INITIALISATION_WINDOW:] - z[INITIALISATION_WINDOW - 1],
        ("one_step", "arx"): one_step,
        ("free_run", "arx"): free_run,
    }
    for (task, model), error in expected.items():
        assert found[task][model]["displacement"]["rmse"] == pytest.approx(rms(error), rel=1e-5), (
            task,
            model,
        )
    best = found["one_step"]["noise_floor"]["displacement"]["rmse"]
    assert best < found["one_step"]["online_gp"]["displacement"]["rmse"] < 0.5 * rms(np.diff(z))


# --- the card -------------------------------------------------------------------------------------


def test_the_card_says_what_is_needed(oscillator):
    text = cells(oscillator)
    found = scores(oscillator)
    truth = groups(oscillator, "truth")["test"]
    y0 = truth["displacement_noise_free"].values
    e = truth["displacement_noise"].values
    gp, floor = (
        found["free_run"][key]["displacement"]["rmse"] for key in ("online_gp", "noise_floor")
    )
    for words in (
        "```text\nm y'' + c y' + k y + z = u + w\n",
        "| `mass` | 2.0 | m, kg |",
        "| `displacement` | output, measured | m | measured position of the mass | `benchmark.nc`, `csv/` |",
        hashlib.sha256((oscillator / "benchmark.nc").read_bytes()).hexdigest(),
        f"| estimation | estimation | {RECORD_LENGTHS['estimation']} | 0 | 0 |",
        f"| noise floor | {found['one_step']['noise_floor']['displacement']['rmse']:.4g} |",
        f"| online GP | {found['one_step']['online_gp']['displacement']['rmse']:.4g} | {gp:.4g} | {gp / floor:.3g} |",
        f"| test | `displacement` | {rms(e):.4g} | {10 * np.log10(np.var(y0) / np.mean(e**2)):.2f} |",
    ):
        assert words in text, words
    (picture,) = re.findall(r"\]\(([^)]+)\)", text)
    assert (oscillator / picture).read_bytes().startswith(b"\x89PNG")
    for words in (
        "Closed loop",
        "is no process noise",
        "has no input",
        "seed=",
        "$",
        "\n\n\n",
        str(oscillator.parent),
    ):
        assert words not in text, words


# --- several outputs, systems of others -----------------------------------------------------------


def two_rooms(folder, outputs, *overrides):
    """Benchmark of a system with two outputs, with lags of the given ones; of those of the dynamics
    without any.
    """
    own = (
        *BOUC_WEN[3:],
        "system=bouc_wen",
        "excitation.band=null",
        "excitation.rms=1",
        "baseline=[persistence,arx]",
    )
    narx = (
        {"narx": {"_target_": "sysid.Narx", "outputs": outputs, "inputs": {"heat": 1}}}
        if outputs
        else {}
    )
    return generate(folder, *own, *overrides, trusted=["helpers.systems"], system=ROOMS, **narx)


def test_steps_that_are_too_long_are_named_in_the_card(tmp_path):
    text = cells(
        generate(
            tmp_path / "coarse",
            *BOUC_WEN,
            "system.substeps=1",
            "system.dt=2e-3",
            "figures=false",
        )
    )
    (error,) = re.findall(
        r"over one sample by more than (\S+) standard deviations",
        text.replace("\n", " "),
    )
    assert float(error) > 1e-3
    assert "1 substeps per sample are inaccurate" in text


def test_every_output_is_scored_and_has_baselines_of_its_own(tmp_path):
    """Lags are chosen for each output; those of one give the same scores as alone."""
    folder = two_rooms(tmp_path / "rooms", None)
    found = scores(folder)
    truth = groups(folder, "truth")["test"]
    columns = read_exact_csv(folder / "csv" / "test.csv")
    assert list(columns) == ["time", "heat", "warm_air", "cold_air"]
    for name in ("warm_air", "cold_air"):
        noise = rms(truth[f"{name}_noise"].values[INITIALISATION_WINDOW:])
        assert found["free_run"]["measurement_noise"][name]["rmse"] == pytest.approx(noise)
        assert found["free_run"]["noise_floor"][name]["rmse"] > noise
        change = np.diff(columns[name])[INITIALISATION_WINDOW - 1 :]
        assert found["one_step"]["persistence"][name]["rmse"] == pytest.approx(rms(change))
    np.save(
        tmp_path / "p.npy",
        np.stack([columns["warm_air"] + 0.5, columns["cold_air"] + 0.25], axis=1),
    )
    result = scored(folder, tmp_path / "p.npy")["outputs"]
    assert [result[name]["rmse"] for name in ("warm_air", "cold_air")] == pytest.approx([0.5, 0.25])
    alone = scores(two_rooms(tmp_path / "alone", None, "narx.target=cold_air"))
    assert alone["free_run"]["arx"]["cold_air"] == found["free_run"]["arx"]["cold_air"]
    assert "Lags of the models of `warm_air` and of `narx.nc`: `warm_air[k-1]`" in cells(folder)
    assert "Lags of the models of `cold_air`: `cold_air[k-1]`" in cells(folder)


def test_what_the_lags_do_not_allow_is_not_computed_and_said(tmp_path):
    one = two_rooms(tmp_path / "one", {"cold_air": 2})
    assert (
        set(scores(one)["free_run"]["arx"]) == set(scores(one)["one_step"]["arx"]) == {"cold_air"}
    )
    assert "Not computed: baselines of `warm_air`; narx names no lags of this output" in cells(one)
    assert not re.search(r"substeps per sample are inaccurate", cells(one))
    both = two_rooms(tmp_path / "both", {"cold_air": 1, "warm_air": 1})
    assert (scores(both)["free_run"]["arx"], set(scores(both)["one_step"]["arx"])) == (
        {},
        {"cold_air", "warm_air"},
    )
    assert re.search(r"\| ARX \| [\d.e-]+ \| - \|", cells(both))
    assert (
        "Not computed: free runs of the baselines of `warm_air`; its lags need `cold_air`"
        in cells(both)
    )


# --- the noise floor: the mean over the process noise to come, against formulas -----------------------


START = 5
N = 20
PATHS = 4000


@dataclass(frozen=True)
class Walk(System):
    """Random walk, seen as its square and as it is."""

    states: ClassVar = (Signal("place", "m", "place"),)
    inputs: ClassVar = ()
    outputs: ClassVar = (
        Signal("square", "m^2", "square of the place"),
        Signal("seen", "m", "place"),
    )
    noises: ClassVar = (
        Signal("push", "m/s", "push"),
        Signal("idle", "m/s", "channel without noise"),
    )

    dt: float = 0.5
    substeps: int = 2
    noise: float = 0.3  # m/s
    wave: float = 0.0  # m/s, of the speed that depends on time
    lowest: float = -np.inf  # m

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = noise[0] + parameters[0] * math.cos(time)

    def parameters(self):
        return np.array([self.wave])

    def initial_state(self):
        return np.array([1.0])

    def state_limits(self):
        return np.array([self.lowest]), np.array([np.inf])

    def noise_std(self):
        return np.array([self.noise, 0.0])

    def output(self, state):
        return np.concatenate([state**2, state], axis=-1)


def test_means_of_a_random_walk():
    """One step ahead x^2 and the variance of a step; in free run the mean over paths w and -w, each
    pair alike.
    """
    trajectory = simulate(Walk(), n_samples=N, seed=1)
    found = find_floor(trajectory, (), START, 6)
    x = trajectory.state[:, 0]
    np.testing.assert_allclose(
        found.one_step[1:],
        np.stack([x[:-1] ** 2 + 0.15**2, x[:-1]], axis=1),
        rtol=1e-12,
    )
    np.testing.assert_array_equal(found.one_step[0], [x[0] ** 2, x[0]])
    sequences = [
        np.random.SeedSequence(1, spawn_key=(*b"noise floor", number)) for number in range(3)
    ]
    noises = [
        held_noise(np.random.default_rng(one), N, trajectory.system.noise_std())
        for one in sequences
    ]
    walked = [0.5 * np.cumsum(noise[START:-1, 0]) for noise in noises]
    expected = x[START] ** 2 + np.mean(np.square(walked), axis=0)  # w and -w cancel in the middle
    np.testing.assert_allclose(found.free_run[START + 1 :, 0], expected, rtol=1e-9)
    np.testing.assert_allclose(
        found.free_run[START:, 1], x[START], rtol=1e-12
    )  # and in what is linear
    np.testing.assert_array_equal(
        found.free_run[: START + 1], np.stack([x**2, x], axis=1)[: START + 1]
    )


def test_limits_of_the_states_count():
    """One step from a wall: half of the pushes lead away from it, those against it lead nowhere."""
    trajectory = simulate(Walk(lowest=1.0), n_samples=2, seed=3)
    found = find_floor(trajectory, (), 0, PATHS)
    away = 0.3 * 0.5 / math.sqrt(2 * math.pi)
    assert found.free_run[1, 1] == pytest.approx(1 + away, abs=5 * 0.15 / math.sqrt(PATHS))
    assert found.one_step[1, 1] == pytest.approx(
        1 + 0.3 * 0.5 * math.sqrt(3) / 6, rel=1e-12
    )  # of the rule


def test_the_floor_knows_how_parameters_change():
    """Means of what is linear in the noise: ``x[k+1] = x[k] + a[k] (sin t[k+1] - sin t[k])`` in
    both.
    """
    change = Change("wave", 2.0, start=3.0, end=6.0)
    trajectory = simulate(Walk(changes=[change]), n_samples=N, seed=1)
    found = find_floor(trajectory, (), START, 4)
    x = trajectory.state[:, 0]
    t = trajectory.time
    wave = np.interp(t, [3.0, 6.0], [0.0, 2.0])[:-1]
    steps = wave * np.diff(np.sin(t))
    assert abs(steps[START + 5 :]).min() > 0.01
    np.testing.assert_allclose(found.one_step[1:, 1], x[:-1] + steps, atol=1e-4)  # of Runge-Kutta
    np.testing.assert_allclose(
        found.free_run[START + 1 :, 1], x[START] + np.cumsum(steps[START:]), atol=1e-3
    )


def test_held_and_linear_inputs_together_under_noise():
    """The building is linear in its noise: pairs of paths give the noise-free run, however many
    there are.
    """
    plant = plant_of(compose_benchmark("system=building", "interpolation=linear"))
    trajectory = plant.trajectory(N, 3)
    few, more = (
        find_floor(trajectory, plant.controller.inputs_driven, START, n_paths)
        for n_paths in (4, 20)
    )
    np.testing.assert_array_equal(few.free_run[: START + 1], trajectory.output[: START + 1])
    np.testing.assert_allclose(few.free_run, more.free_run, rtol=1e-9)
    held = find_floor(trajectory, plant.inputs, START, 4)
    assert np.abs(held.free_run - few.free_run).max() > 1e-4


def test_a_floor_that_diverges_is_not_a_number():
    @dataclass(frozen=True)
    class Cliff(Walk):
        @staticmethod
        def drift(time, state, input, noise, parameters, derivative):
            derivative[0] = noise[0] + state[0] ** 9

    trajectory = simulate(Walk(noise=0.0), n_samples=N)
    found = find_floor(
        type(trajectory)(Cliff(), *list(vars(trajectory).values())[1:]), (), START, 4
    )
    assert np.isfinite(found.free_run[: START + 1]).all()
    assert np.isnan(found.free_run[-1]).all()


# --- the scoring script

N_TEST = RECORD_LENGTHS["test"]
#: run as a program where only NumPy and the standard library can be imported
ALONE = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sysid", "simulators", "experiments", "hydra", "xarray", "scipy", "pandas"}:
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Refuse())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def public(oscillator, tmp_path_factory):
    """The folder as it is published: without the answer."""
    copy = shutil.copytree(oscillator, tmp_path_factory.mktemp("public") / "bw")
    shutil.rmtree(copy / "truth_csv")
    (copy / "truth.nc").unlink()
    (copy / "configuration.yaml").unlink()
    return copy


@pytest.fixture(scope="module")
def prediction(oscillator):
    measured = read_exact_csv(oscillator / "csv" / "test.csv")["displacement"].to_numpy()
    return 0.9 * measured + 1e-5 * np.random.default_rng(0).normal(size=len(measured))


def csv_of(values):
    return "\n".join(["displacement", *map(repr, np.asarray(values).tolist())]) + "\n"


def as_csv(path, values):
    path.write_text(csv_of(values))
    return path


def test_numbers_are_right_and_every_format_gives_the_same(
    oscillator, public, prediction, tmp_path
):
    path = as_csv(tmp_path / "p.csv", prediction)
    measured = read_exact_csv(public / "csv" / "test.csv")["displacement"].to_numpy()
    result = scored(public, path)
    rmse = rms((prediction - measured)[INITIALISATION_WINDOW:])
    nrmse = 100 * rmse / np.std(measured[INITIALISATION_WINDOW:])
    assert result["outputs"]["displacement"] == {
        "unit": "m",
        "rmse": pytest.approx(rmse, rel=1e-12),
        "nrmse_percent": pytest.approx(nrmse, rel=1e-12),
        "fit_percent": pytest.approx(100 - nrmse, rel=1e-12),
    }
    assert (result["n_scored"], result["task"]) == (N_TEST - INITIALISATION_WINDOW, "free_run")
    assert "against_noise_free" not in result
    truth = read_exact_csv(oscillator / "truth_csv" / "test.csv")["displacement_noise_free"]
    found = scored(oscillator, path)["against_noise_free"]["displacement"]["rmse"]
    assert found == pytest.approx(rms((prediction - truth)[INITIALISATION_WINDOW:]), rel=1e-12)
    cells = [f"{k},{value!r},x\r\n" for k, value in enumerate(prediction.tolist())]
    (tmp_path / "c.csv").write_text(
        "time, displacement ,force\r\n" + "".join(cells), encoding="utf-8-sig"
    )
    np.save(tmp_path / "flat.npy", prediction)
    np.save(tmp_path / "matrix.npy", prediction[:, np.newaxis])
    changed = prediction.copy()
    changed[:INITIALISATION_WINDOW] = 1e6  # is not scored
    same = as_csv(tmp_path / "w.csv", changed)
    for other in (
        tmp_path / "c.csv",
        tmp_path / "flat.npy",
        tmp_path / "matrix.npy",
        same,
    ):
        assert scored(public, other) == result
    changed[INITIALISATION_WINDOW] = 1e6
    assert scored(public, as_csv(tmp_path / "v.csv", changed)) != result


#: content of a file, or an array for a .npy file, from a good prediction; and words of the refusal
REFUSED = {
    "one missing": (lambda p: csv_of(p[:-1]), [f"{N_TEST - 1} samples", str(N_TEST)]),
    "nan": (
        lambda p: csv_of(np.r_[p[:13], np.nan, p[14:]]),
        ["displacement is nan", "sample 13"],
    ),
    "empty file": (lambda p: "", ["cannot read"]),
    "an empty cell": (
        lambda p: "a,displacement\n" + 4 * "1,2\n" + "1,",
        ["cannot read", "row 4"],
    ),
    "another header": (lambda p: "y" + N_TEST * "\n1.0", ["displacement", "got y"]),
    "turned array": (
        lambda p: p[np.newaxis],
        [f"shape (1, {N_TEST})", "expected (n, 1)"],
    ),
    "pickled": (
        lambda p: np.array([{"a": 1}], dtype=object),
        ["cannot read", "numbers"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused(case, public, prediction, tmp_path):
    make, words = REFUSED[case]
    content = make(prediction)
    path = tmp_path / "p.csv"
    if isinstance(content, str):
        path.write_text(content)
    else:
        path = tmp_path / "p.npy"
        np.save(path, content, allow_pickle=True)
    refused(public, path, *words)


def refused(folder, arguments, *words, start="refused: "):
    said = score(folder, *(arguments if isinstance(arguments, tuple) else (arguments,)))
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith(start)
    assert "Traceback" not in said.err
    for word in words:
        assert word in said.err, said


def test_wrong_files_options_and_folders_are_refused(public, prediction, tmp_path):
    path = as_csv(tmp_path / "p.csv", prediction)
    refused(public, (path, path), "expected 1 prediction file(s)")
    refused(public, tmp_path / "absent.csv", "no file")
    for arguments in ((), (path, "--task", "guess")):
        refused(public, arguments, start="usage")
    copy = shutil.copytree(public, tmp_path / "copy")
    (copy / "csv" / "test.csv").unlink()
    refused(copy, path, "test.csv")
    (copy / "benchmark.json").write_text("{")
    refused(copy, path, "benchmark.json")


def test_runs_as_a_program_without_the_toolbox_and_people_see_floor_and_baselines(
    public, prediction, tmp_path
):
    path = as_csv(tmp_path / "p.csv", prediction)
    command = [
        sys.executable,
        "-W",
        "error",
        "-c",
        ALONE,
        str(public / "score.py"),
        str(path),
        "--json",
    ]
    options = {
        "env": {"PYTHONPATH": "", "PATH": ""},
        "capture_output": True,
        "text": True,
        "timeout": 60,
    }
    process = subprocess.run(command, cwd=tmp_path, **options)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == scored(public, path)
    shown = score(public, path, "--task", "one_step").out
    arx = json.loads((public / "scores.json").read_text())["one_step"]["arx"]["displacement"][
        "rmse"
    ]
    for word in (
        "BoucWen, one_step",
        f"{N_TEST - INITIALISATION_WINDOW} samples",
        "fit",
        " m,",
        "noise_floor",
        format(arx, ".6g"),
    ):
        assert word in shown


def test_several_records_need_several_files(building, tmp_path):
    for i in (0, 1):
        measured = read_exact_csv(building / "csv" / f"test_{i}.csv")["zone_temperature"]
        np.save(tmp_path / f"{i}.npy", measured + 1e-6 * (i + 1))
    files = [tmp_path / "0.npy", tmp_path / "1.npy"]
    result = scored(building, *files)["outputs"]["zone_temperature"]
    assert result["rmse"] == pytest.approx(math.sqrt(2.5) * 1e-6, rel=1e-6)
    assert score(building, files[0]).code == 2
    assert (
        scored(building, *reversed(files))["outputs"]["zone_temperature"]["rmse"]
        > 10 * result["rmse"]
    )


# --- trouble


def left(folder):
    """Everything in a folder, hidden files too."""
    return sorted(path.name for path in folder.iterdir())


def test_a_divergence_names_record_time_and_state_and_leaves_nothing(tmp_path):
    with pytest.raises(
        DivergenceError,
        match=r"record estimation: Building diverged at time .*zone.*substeps",
    ):
        generate(
            tmp_path / "a" / "house",
            *BUILDING,
            "system.radiator_capacity=1",
            "system.substeps=1",
        )
    assert left(tmp_path) == []


def test_a_configuration_of_others_calls_nothing_but_classes_of_the_toolbox(tmp_path):
    for target in ("sysid.store.write_bytes", "experiments.cli.entry.sys.exit"):
        with pytest.raises(ValueError, match=r"noise: .* trust it with \+trusted=\["):
            generate(tmp_path / "bw", *BOUC_WEN, noise={"_target_": target})
        with pytest.raises(ValueError, match=r"excitation\.schedule\.0: "):
            generate(
                tmp_path / "bw",
                *BOUC_WEN,
                trusted=["mine"],
                excitation={"schedule": [{"_target_": target}]},
            )
    assert left(tmp_path) == []


def test_what_is_there_is_not_touched_and_named_before_anything_is_simulated(monkeypatch, tmp_path):
    monkeypatch.setattr(Plant, "trajectory", lambda *_, **__: pytest.fail("simulated"))
    folder = tmp_path / "bw"
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(
        StoreError,
        match=r"bw is a folder with files in it: nothing is overwritten; choose a new",
    ):
        generate(folder, *BOUC_WEN)
    with pytest.raises(StoreError, match=r"output .*notes.txt exists"):
        generate(folder / "notes.txt", *BOUC_WEN)
    with pytest.raises(
        StoreError,
        match=r"could not make the folder .*notes.txt/inner: .*choose an output",
    ):
        generate(folder / "notes.txt" / "inner", *BOUC_WEN)
    assert (folder / "notes.txt").read_text() == "mine"
    assert (left(folder), left(tmp_path)) == (["notes.txt"], ["bw"])


def test_what_goes_wrong_while_writing_leaves_nothing_and_a_folder_that_appears_is_kept(
    monkeypatch, tmp_path
):
    original = writing.fill_card
    failing = [StoreError("disk full"), KeyboardInterrupt(), RuntimeError("bug")]

    def fill_card(*arguments, **options):
        if failing:
            raise failing.pop(0)
        (tmp_path / "bw" / "theirs").write_text("theirs")
        return original(*arguments, **options)

    monkeypatch.setattr(writing, "fill_card", fill_card)
    for error in tuple(map(type, failing)):
        with pytest.raises(error):
            generate(tmp_path / "a" / "bw", *BOUC_WEN, "baseline=[mean]")
        assert left(tmp_path) == []
    (tmp_path / "bw").mkdir()
    with pytest.raises(StoreError, match="folder with files in it"):
        generate(tmp_path / "bw", *BOUC_WEN, "baseline=[mean]")
    assert (left(tmp_path), left(tmp_path / "bw")) == (["bw"], ["theirs"])
    (tmp_path / "bw" / "theirs").unlink()
    monkeypatch.setattr(writing, "fill_card", original)
    assert (generate(tmp_path / "bw", *BOUC_WEN, "baseline=[mean]") / "CARD.md").is_file()


def test_one_folder_for_a_whole_sweep_is_refused(capsys):
    def start(*overrides):
        config = OmegaConf.create({"hydra": {"overrides": {"task": ["seed=1,2", *overrides]}}})
        SharedOutput().on_multirun_start(config)

    with pytest.raises(Refused):
        start("output=X")
    assert "'output=X/${hydra:job.num}'" in capsys.readouterr().err
    for fine in ("output=X/${hydra:job.num}", "output=X,Y", "name=X"):
        start(fine)


@pytest.mark.slow
def test_a_system_of_the_users_own_makes_a_folder_that_starts_another_only_if_trusted(
    tmp_path,
):
    (tmp_path / "mine" / "conf" / "system").mkdir(parents=True)
    shutil.copy(Path(systems.__file__), tmp_path / "mine" / "rooms.py")
    yaml = "_target_: mine.rooms.TwoRooms\ndt: 0.5\nexchange: 0.25\n"
    (tmp_path / "mine" / "conf" / "system" / "rooms.yaml").write_text(yaml)
    secret = "seed=7000000000000000001"
    short = [*SHORT_BENCHMARK, "baseline=[mean]", f"hydra.run.dir={tmp_path}/run"]
    given = [
        "--config-dir",
        "mine/conf",
        "system=rooms",
        "noise.snr_db=30",
        secret,
        "output=published/bench",
        *short,
    ]
    bench = tmp_path / "published" / "bench"
    generate_here = partial(run_command, "generate", cwd=tmp_path)
    said = generate_here(*given)
    assert (said.code, "published/bench" in said.out) == (0, True), said
    assert not [
        words
        for words in ("can be guessed", "Traceback", "Warning")
        if words in said.out + said.err
    ]
    text = re.sub(r" +\|", " |", (bench / "CARD.md").read_text())
    for words in (
        "| `exchange` | 0.25 | between the rooms \\| 1/h |",
        "flow = parameters[0]",
        "sysid-generate --config-dir mine/conf system=rooms noise.snr_db=30 estimation=",
        "Run it in the folder from which `mine.rooms` is imported",
    ):
        assert words in text, words
    assert not [
        hidden for hidden in ("7000000000000000001", "published", str(tmp_path)) if hidden in text
    ]
    again = [
        "--config-dir",
        str(bench),
        "--config-name=configuration",
        "+figures=false",
        f"hydra.run.dir={tmp_path}/r",
    ]
    refused = generate_here(*again, "+output=again", "+trusted=[mine.other]")
    assert (refused.code, (tmp_path / "again").exists()) == (1, False)
    assert "+trusted=[mine.rooms]" in refused.out
    trusted = generate_here(*again, "+output=again", "+trusted=[mine.rooms]")
    assert trusted.code == 0, trusted
    assert (tmp_path / "again" / "csv" / "test.csv").read_bytes() == (
        bench / "csv" / "test.csv"
    ).read_bytes()
    own = {"trusted": ["mine.rooms"], "output": "x", "figures": False}
    with pytest.raises(
        ValueError, match=r"system: 'mine.rooms.TwoRooms' is no class of the toolbox"
    ):
        run(OmegaConf.merge(OmegaConf.load(bench / "configuration.yaml"), own), tmp_path)
