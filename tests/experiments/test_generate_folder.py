"""Folders of `sysid-generate`: what is in them, that it repeats, that the answer stays apart."""

import hashlib
import json
import re
import shutil
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.generate.benchmark import count_samples
from experiments.generate.run import choose_window, run
from experiments.plant.plant import plant_of
from helpers import systems
from helpers.benchmarks import (
    BOUC_WEN,
    BUILDING,
    INITIALISATION_WINDOW,
    MEAN_ONLY,
    RECORD_LENGTHS,
    SECRET_SEED,
    SHORT_BENCHMARK,
    compose_benchmark,
    generate,
    read_benchmark,
    read_card,
    read_scores,
    rms,
)
from helpers.commands import list_files, read_exact_csv, run_command
from simulators import BoucWen, simulate
from sysid import Narx, Recordings, store

DATA_KINDS = ("benchmark", "truth", "narx")

#: files of every benchmark
COMMON_FILES = {
    "benchmark.nc",
    "truth.nc",
    "narx.nc",
    "CARD.md",
    "benchmark.json",
    "checksums.sha256",
    "configuration.yaml",
    "score.py",
    "scores.json",
    "csv/validation.csv",
}

#: files that are not published before the answer is
ANSWER_FILES = {"truth.nc", "truth_csv/test.csv", "configuration.yaml"}


# --- files ----------------------------------------------------------------------------------------


def test_a_folder_of_one_record_for_each_role_is_complete(oscillator):
    assert list_files(oscillator) == COMMON_FILES | {
        "csv/estimation.csv",
        "csv/test.csv",
        "truth_csv/test.csv",
        "figures/time_series.png",
    }


def test_a_folder_of_several_records_is_complete(building):
    assert list_files(building) == COMMON_FILES | {
        "csv/estimation_0.csv",
        "csv/estimation_1.csv",
        "csv/test_0.csv",
        "csv/test_1.csv",
        "truth_csv/test_0.csv",
        "truth_csv/test_1.csv",
    }


def test_checksums_are_those_of_all_other_files(building):
    checksums = {}
    for line in (building / "checksums.sha256").read_text().splitlines():
        checksum, name = line.split("  ")
        checksums[name] = checksum

    assert checksums.keys() == list_files(building) - {"checksums.sha256"}
    for name, checksum in checksums.items():
        assert checksum == hashlib.sha256((building / name).read_bytes()).hexdigest(), name


# --- records --------------------------------------------------------------------------------------


def test_records_have_the_requested_lengths_windows_and_units(oscillator):
    recordings = Recordings.from_groups(read_benchmark(oscillator, "benchmark"))

    assert recordings.sampling_time == 1 / 750
    assert recordings.units == {"force": "N", "displacement": "m"}
    sizes = [record.sizes["time"] for record in recordings.records]
    assert sizes == [300, 80, 150]
    windows = [record.attrs["initialisation_window"] for record in recordings.records]
    assert windows == [0, INITIALISATION_WINDOW, INITIALISATION_WINDOW]


@pytest.mark.parametrize("role", RECORD_LENGTHS)
def test_the_truth_follows_from_the_published_input_and_the_equations(role, oscillator):
    measured = read_benchmark(oscillator, "benchmark")[role]
    truth = read_benchmark(oscillator, "truth")[role]

    again = simulate(BoucWen(), measured["force"].values)

    y = measured["displacement"].values
    noise_free = truth["displacement_noise_free"].values
    noise = y - noise_free
    np.testing.assert_array_equal(again.output[:, 0], noise_free)
    np.testing.assert_array_equal(truth["displacement_noise"], noise)
    np.testing.assert_array_equal(truth["velocity"], again.state[:, 1])
    assert set(truth.data_vars) == {
        "displacement_noise_free",
        "displacement_noise",
        "position",
        "velocity",
        "restoring_force",
        "force_noise",
    }
    signal_to_noise = 10 * np.log10(np.var(noise_free) / np.mean(noise**2))
    assert signal_to_noise == pytest.approx(40, abs=1.5)


def test_several_records_are_groups_without_their_transient(building):
    measured = read_benchmark(building, "benchmark")
    truth = read_benchmark(building, "truth")
    names = [
        "estimation/record_0",
        "estimation/record_1",
        "validation",
        "test/record_0",
        "test/record_1",
    ]
    assert list(measured) == names
    assert list(truth) == names

    plant = plant_of(compose_benchmark(*BUILDING))
    seed = int(truth["validation"].attrs["seed"])
    whole = plant.trajectory(RECORD_LENGTHS["validation"], seed, transient=7)
    np.testing.assert_array_equal(measured["validation"]["zone_temperature"], whole.output[7:, 0])
    np.testing.assert_array_equal(measured["validation"]["mass_flow"], whole.input[7:, 1])
    np.testing.assert_array_equal(truth["validation"]["zone_noise"], whole.noise[7:, 0])


def test_missing_samples_are_in_the_estimation_records_only(tmp_path):
    """They are empty cells of the CSV file, and the card says so."""
    folder = generate(
        tmp_path / "heater",
        "system=heater",
        "noise=outliers",
        "noise.std=0.08",
        "noise.missing=3",
        MEAN_ONLY,
    )
    groups = read_benchmark(folder, "benchmark")
    rows = np.genfromtxt(folder / "csv" / "estimation.csv", delimiter=",", skip_header=1)
    assert np.isnan(rows[:, -1]).sum() == 3
    np.testing.assert_array_equal(groups["estimation"]["temperature"].values, rows[:, -1])
    assert groups["estimation"].attrs["on_missing"] == "skip"
    assert np.isfinite(groups["test"]["temperature"].values).all()
    assert "on_missing" not in groups["test"].attrs
    regressors = read_benchmark(folder, "narx")
    assert regressors["estimation"].attrs["n_missing"] == 3
    assert regressors["estimation"].attrs["n_skipped"] > 3
    assert list(read_benchmark(folder, "truth")) == [
        "estimation",
        "validation",
        "test",
    ]
    card = read_card(folder)
    assert "3 samples are missing. They are empty in `csv/`" in card
    assert " nan " not in card.replace("and nan in", "")


def test_a_transient_leaves_the_multisine_exact(tmp_path):
    """Samples before the record continue its periods: over whole periods the rms stays exact."""
    short = (
        *BOUC_WEN,
        "estimation=0.4s",
        "validation=80samples",
        "test=0.2s",
        MEAN_ONLY,
    )
    with_transient = generate(tmp_path / "with", *short, "transient=37")
    without = generate(tmp_path / "without", *short)

    records_with = read_benchmark(with_transient, "benchmark")
    for role, record in read_benchmark(without, "benchmark").items():
        assert record.sizes["time"] == RECORD_LENGTHS[role]
        assert rms(record["force"]) == pytest.approx(50, rel=1e-9)
        np.testing.assert_array_equal(records_with[role]["force"], record["force"])
    assert read_benchmark(with_transient, "truth")["test"]["position"][0] != 0


def test_a_duration_has_as_many_samples_as_whole_intervals_end_in_it():
    assert count_samples("test", "1h", 1000.0) == 3


VAN_DER_POL = (
    "system=van_der_pol",
    MEAN_ONLY,
    "noise_paths=4",
    "initialisation_window=null",
    "test=52",
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """Folder of records whose initial velocity is drawn."""
    return generate(
        tmp_path_factory.mktemp("drawn") / "a",
        *VAN_DER_POL,
        "initial_states={velocity: [-2,2]}",
        "realisations.test=20",
    )


def test_initial_states_are_drawn_for_every_record(drawn, tmp_path):
    """The noise stays the same."""
    records = read_benchmark(drawn, "truth")
    velocities = [float(record["velocity"][0]) for record in records.values()]
    assert len(set(velocities)) == 22
    assert -2 <= min(velocities) < -1
    assert 1 < max(velocities) <= 2
    assert {float(record["position"][0]) for record in records.values()} == {1.0}

    fixed = read_benchmark(generate(tmp_path / "b", *VAN_DER_POL), "truth")
    noise_with, noise_without = (
        truth["validation"]["acceleration_noise"] for truth in (records, fixed)
    )
    np.testing.assert_array_equal(noise_with, noise_without)


def test_the_card_names_the_states_that_are_drawn(drawn):
    assert (
        "(uniform, `velocity` from -2 to 2 m/s, the other states as in the parameters; `truth.nc`"
    ) in (drawn / "CARD.md").read_text()


def test_a_window_that_is_not_stated_is_chosen(drawn):
    assert read_scores(drawn)["initialisation_window"] == 5


@pytest.mark.parametrize(
    ("n_samples", "max_lag", "window"), [(52, 2, 5), (12, 2, 2), (4, 0, 1), (700, 2, 50)]
)
def test_the_chosen_window_grows_with_the_record(n_samples, max_lag, window):
    assert choose_window(None, n_samples, max_lag) == window


# --- CSV copies and rows --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["oscillator", "building"])
def test_csv_copies_are_the_measured_signals(name, request):
    folder = request.getfixturevalue(name)
    for key, record in read_benchmark(folder, "benchmark").items():
        columns = read_exact_csv(folder / "csv" / f"{key.replace('/record', '')}.csv")
        assert list(columns) == ["time", *record.data_vars]
        for signal, values in columns.items():
            np.testing.assert_array_equal(values, record[signal])


def test_csv_copies_of_the_truth_are_the_noise_free_output(building):
    columns = read_exact_csv(building / "truth_csv" / "test_1.csv")
    truth = read_benchmark(building, "truth")["test/record_1"]
    signal = "zone_temperature_noise_free"
    assert list(columns) == ["time", signal]
    np.testing.assert_array_equal(columns[signal], truth[signal])


def test_rows_with_lags_are_those_of_the_measured_signals(building):
    rows_by_role = read_benchmark(building, "narx")
    assert list(rows_by_role) == ["estimation", "validation", "test"]

    rows = rows_by_role["estimation"]
    narx = Narx.from_dict(json.loads(rows.attrs["narx"]))
    measured = read_benchmark(building, "benchmark")
    of_records = [narx.dataset(measured[f"estimation/record_{i}"]) for i in (0, 1)]
    for name in ("regressor", "target"):
        expected = np.concatenate([record[name] for record in of_records])
        np.testing.assert_array_equal(rows[name], expected)


# --- that it repeats, and that the answer stays apart ---------------------------------------------


def read_content(folder):
    """Return the content of all data files: tables, attributes, and digests of arrays."""
    content = {}
    for name in list_files(folder):
        if name.endswith(".csv"):
            content[name] = (folder / name).read_bytes()
    for kind in DATA_KINDS:
        header = store.header(folder / f"{kind}.nc")
        digests = {
            key: store.digest(group, group.attrs)
            for key, group in read_benchmark(folder, kind).items()
        }
        content[kind] = (header, digests)
    return content


def test_the_stored_configuration_makes_the_same_data(oscillator, tmp_path):
    configuration = OmegaConf.load(oscillator / "configuration.yaml")
    assert not {"output", "figures", "trusted"} & set(configuration)
    output = {"output": str(tmp_path / "again"), "figures": False}

    run(OmegaConf.merge(configuration, output), tmp_path)

    assert read_content(tmp_path / "again") == read_content(oscillator)
    assert read_scores(tmp_path / "again") == read_scores(oscillator)


def test_another_seed_makes_other_data(oscillator, tmp_path):
    other = read_content(generate(tmp_path / "other", *BOUC_WEN, "seed=1", MEAN_ONLY))

    for name, content in read_content(oscillator).items():
        assert other[name] != content, name


def test_no_public_file_contains_a_seed_or_a_noise_free_value(oscillator):
    truth = read_benchmark(oscillator, "truth").values()
    seeds = {str(SECRET_SEED)} | {str(record.attrs["seed"]) for record in truth}
    assert len(seeds) == 4
    table = read_exact_csv(oscillator / "truth_csv" / "test.csv")
    noise_free_values = {repr(value) for value in table["displacement_noise_free"][1:]}

    for name in list_files(oscillator) - ANSWER_FILES:
        content = (oscillator / name).read_bytes()
        assert not [seed for seed in seeds if seed.encode() in content], name
        if not name.endswith((".nc", ".png")):
            words = set(re.split(r"[,\s\"]+", content.decode()))
            assert not noise_free_values & words, name


@pytest.mark.parametrize("kind", ["benchmark", "narx"])
def test_no_public_array_or_attribute_contains_the_answer(kind, oscillator):
    truth = read_benchmark(oscillator, "truth").values()
    noise_free = {record["displacement_noise_free"].values.tobytes() for record in truth}

    header = store.header(oscillator / f"{kind}.nc")
    assert not {"seed", "configuration", "creation_time"} & set(header)
    for group in read_benchmark(oscillator, kind).values():
        assert not {"seed", "configuration", "parameters"} & set(group.attrs)
        for variable in group.variables.values():
            is_text = variable.dtype.kind in "OU"
            assert is_text or variable.values.tobytes() not in noise_free


def test_the_published_digest_is_that_of_the_configuration_in_the_answer(oscillator):
    public = store.header(oscillator / "benchmark.nc")
    answer = store.header(oscillator / "truth.nc")
    configuration = answer["configuration"]

    digest = hashlib.sha256(configuration.encode()).hexdigest()

    assert public["configuration_sha256"] == digest
    assert answer["configuration_sha256"] == digest
    assert (oscillator / "configuration.yaml").read_text().endswith(configuration)


# --- a system of the user -------------------------------------------------------------------------

USER_SYSTEM = "_target_: mine.rooms.TwoRooms\ndt: 0.5\nexchange: 0.25\n"
USER_SEED = "7000000000000000001"


def write_user_system(folder):
    """Write the module `mine.rooms` and its configuration."""
    conf = folder / "mine" / "conf" / "system"
    conf.mkdir(parents=True)
    shutil.copy(Path(systems.__file__), folder / "mine" / "rooms.py")
    (conf / "rooms.yaml").write_text(USER_SYSTEM)


@pytest.mark.slow
def test_a_system_of_the_user_makes_a_folder_that_is_made_again_only_if_trusted(tmp_path):
    write_user_system(tmp_path)
    generate_here = partial(run_command, "generate", cwd=tmp_path)

    result = generate_here(
        "--config-dir",
        "mine/conf",
        "system=rooms",
        "noise.snr_db=30",
        f"seed={USER_SEED}",
        "output=published/bench",
        *SHORT_BENCHMARK,
        MEAN_ONLY,
        f"hydra.run.dir={tmp_path}/run",
    )

    benchmark = tmp_path / "published" / "bench"
    assert result.code == 0, result
    assert "published/bench" in result.out
    for unwanted in ("can be guessed", "Traceback", "Warning"):
        assert unwanted not in result.out + result.err
    card = read_card(benchmark)
    for text in (
        "| `exchange` | 0.25 | between the rooms \\| 1/h |",
        "flow = parameters[0]",
        "sysid-generate --config-dir mine/conf system=rooms noise.snr_db=30 estimation=",
        "Run it in the folder from which `mine.rooms` is imported",
    ):
        assert text in card
    for hidden in (USER_SEED, "published", str(tmp_path)):
        assert hidden not in card

    again = (
        "--config-dir",
        str(benchmark),
        "--config-name=configuration",
        "+figures=false",
        f"hydra.run.dir={tmp_path}/r",
        "+output=again",
    )
    refused = generate_here(*again, "+trusted=[mine.other]")
    assert refused.code == 1
    assert "+trusted=[mine.rooms]" in refused.err
    assert not (tmp_path / "again").exists()

    trusted = generate_here(*again, "+trusted=[mine.rooms]")
    assert trusted.code == 0, trusted
    csv_again = (tmp_path / "again" / "csv" / "test.csv").read_bytes()
    assert csv_again == (benchmark / "csv" / "test.csv").read_bytes()
    shown = "sysid-generate --config-dir path/to/benchmark --config-name configuration "
    assert shown in read_card(tmp_path / "again")

    own = {"trusted": ["mine.rooms"], "output": "x", "figures": False}
    configuration = OmegaConf.merge(OmegaConf.load(benchmark / "configuration.yaml"), own)
    message = r"system: 'mine.rooms.TwoRooms' is no class of the toolbox"
    with pytest.raises(ValueError, match=message):
        run(configuration, tmp_path)
