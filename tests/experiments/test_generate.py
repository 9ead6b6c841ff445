"""Benchmark folders: what is in them, that it is right, that it repeats, and that the answer stays apart."""

import csv
import hashlib
import inspect
import json
import re
import time
import tomllib

import netCDF4
import numpy as np
import pytest
from generating import BOUC_WEN, BUILDING, LENGTHS, SHORT, WINDOW, alone, configured, generate, scored
from omegaconf import OmegaConf
from running import PLAIN, ROOT
from two_rooms import TwoRooms

from experiments.benchmark_folder.baselines.arx import Arx
from experiments.benchmark_folder.baselines.mean import Mean
from experiments.benchmark_folder.baselines.online_gp import OnlineGp
from experiments.benchmark_folder.description import equations, notes, parameters, source_of
from experiments.benchmark_folder.remark import below_the_floor, nearly_linear
from experiments.benchmark_folder.split import length
from experiments.plant import plant_of
from simulators import BoucWen, Interpolation, simulate
from sysid import Narx, Recordings, store
from sysid.store import read_groups

if PLAIN:
    pytest.skip("files are written and read alike without the compiler", allow_module_level=True)

SECRET = 8_123_456_789_012_345_678
DATA = ("benchmark.nc", "truth.nc", "narx.nc")
FILES = {
    *DATA,
    "CARD.md",
    "benchmark.json",
    "checksums.sha256",
    "configuration.yaml",
    "score.py",
    "scores.json",
    "csv/estimation.csv",
    "csv/validation.csv",
    "csv/test.csv",
    "truth_csv/test.csv",
}
ANSWER = {"truth.nc", "truth_csv/test.csv", "configuration.yaml"}


@pytest.fixture(scope="module")
def oscillator(tmp_path_factory):
    """Bouc-Wen in open loop: measurement noise, no process noise."""
    return generate(tmp_path_factory.mktemp("oscillator") / "bw", *BOUC_WEN, f"seed={SECRET}", "figures=true")


@pytest.fixture(scope="module")
def building(tmp_path_factory):
    """Building in closed loop: process noise, no measurement noise; several records."""
    folder = tmp_path_factory.mktemp("building") / "house"
    return generate(folder, *BUILDING, "realisations.estimation=2", "realisations.test=2", "transient=7")


def names_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def groups(folder, kind):
    return read_groups(folder / f"{kind}.nc", kind=kind)


def table(path):
    """Rows of a CSV file by column, as Python reads them."""
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    return {name: np.array([float(row[i]) for row in rows]) for i, name in enumerate(header)}


def scores(folder):
    return json.loads((folder / "scores.json").read_text())


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def everything(config):
    """Content of all data files of a fresh folder: bytes of tables, attributes and digests of arrays."""
    found = {name: (config / name).read_bytes() for name in names_in(config) if name.endswith(".csv")}
    for name in DATA:
        kind = name.removesuffix(".nc")
        arrays = {key: store.digest(group, group.attrs) for key, group in groups(config, kind).items()}
        found[name] = (store.header(config / name), arrays)
    return found


# --- what is there --------------------------------------------------------------------------------


def test_the_folder_holds_what_it_should(oscillator, building):
    figures = {f"figures/{name}.png" for name in ("time_series", "spectra", "coverage")}
    assert names_in(oscillator) == FILES | figures
    several = {f"{folder}/test_{i}.csv" for folder in ("csv", "truth_csv") for i in (0, 1)}
    several |= {"csv/estimation_0.csv", "csv/estimation_1.csv"}
    assert names_in(building) == FILES - {"csv/estimation.csv", "csv/test.csv", "truth_csv/test.csv"} | several
    assert not [path for path in oscillator.parent.iterdir() if path != oscillator]


def test_records_have_names_units_and_lengths(oscillator):
    recordings = Recordings.from_groups(groups(oscillator, "benchmark"))
    assert recordings.name == "BoucWen"
    assert (recordings.inputs, recordings.outputs) == (("force",), ("displacement",))
    assert recordings.units == {"force": "N", "displacement": "m"}
    assert recordings.sampling_time == 1 / 750
    for role, n in LENGTHS.items():
        (record,) = getattr(recordings, role)
        assert record.sizes["time"] == n
        assert set(record.data_vars) == {"force", "displacement"}
        assert record.attrs["initialisation_window"] == (0 if role == "estimation" else WINDOW)
        np.testing.assert_array_equal(record["time"], (1 / 750) * np.arange(n))


def test_several_records_are_groups_within_groups_and_differ(building):
    found = groups(building, "benchmark")
    expected = ["estimation/record_0", "estimation/record_1", "validation", "test/record_0", "test/record_1"]
    assert list(found) == list(groups(building, "truth")) == expected
    ambient = [record["ambient_temperature"].values[: LENGTHS["validation"]] for record in found.values()]
    assert len({values.tobytes() for values in ambient}) == len(ambient)


def test_truth_and_measurement_belong_together(oscillator):
    measured, truth = groups(oscillator, "benchmark"), groups(oscillator, "truth")
    for key, record in truth.items():
        y, y0 = measured[key]["displacement"].values, record["displacement_noise_free"].values
        np.testing.assert_array_equal(record["displacement_noise"], y - y0)
        np.testing.assert_array_equal(record["position"], y0)
        assert set(record.data_vars) == {
            *("displacement_noise_free", "displacement_noise"),
            *("position", "velocity", "restoring_force", "force_noise"),
        }
        ratio = 10 * np.log10(np.var(y0) / np.mean((y - y0) ** 2))
        assert ratio == pytest.approx(40, abs=1.5)


def test_records_are_the_simulation_of_the_system(oscillator):
    """The noise-free output follows from the published input and the equations."""
    measured, truth = groups(oscillator, "benchmark"), groups(oscillator, "truth")
    for key, record in measured.items():
        again = simulate(BoucWen(), record["force"].values)
        np.testing.assert_array_equal(again.output[:, 0], truth[key]["displacement_noise_free"])


def test_transients_are_cut_off(building):
    """A record is what follows the transient in the simulation under its seed."""
    config = configured(*BUILDING)
    record, truth = groups(building, "benchmark")["validation"], groups(building, "truth")["validation"]
    assert truth.attrs["transient"] == 7
    whole = plant_of(config).trajectory(LENGTHS["validation"], int(truth.attrs["seed"]), transient=7)
    assert len(whole.time) == LENGTHS["validation"] + 7
    np.testing.assert_array_equal(record["zone_temperature"], whole.output[7:, 0])
    np.testing.assert_array_equal(record["mass_flow"], whole.input[7:, 1])
    np.testing.assert_array_equal(truth["zone_noise"], whole.noise[7:, 0])
    assert record["time"].values[0] == 0


def test_a_transient_leaves_the_multisine_exact(tmp_path):
    """Samples before the record continue its periods backwards: band and rms stay those that were asked for."""
    folder = generate(tmp_path / "bw", *BOUC_WEN, "transient=37", "baseline=[mean]")
    plain = groups(generate(tmp_path / "plain", *BOUC_WEN, "baseline=[mean]"), "benchmark")
    for role, record in groups(folder, "benchmark").items():
        u = record["force"].values
        assert len(u) == LENGTHS[role]
        assert record["time"].values[0] == 0
        assert rms(u) == pytest.approx(50, rel=1e-9)
        lines = np.abs(np.fft.rfft(u)) * 2 / len(u)
        frequency = np.fft.rfftfreq(len(u), 1 / 750)
        assert lines[(frequency < 5 - 1e-6) | (frequency > 150 + 1e-6)].max() < 1e-9
        np.testing.assert_array_equal(u, plain[role]["force"])
        assert groups(folder, "truth")[role]["position"][0] != 0
    assert "| estimation | estimation | " in (folder / "CARD.md").read_text()


def test_durations_are_whole_numbers_of_intervals(tmp_path):
    """One second at 750 Hz is 750 samples, as a period of one second is."""
    lengths = ("estimation=0.4s", "validation=80samples", "test=0.2s")
    folder = generate(tmp_path / "bw", *BOUC_WEN, *lengths, "baseline=[mean]")
    found = {role: record.sizes["time"] for role, record in groups(folder, "benchmark").items()}
    assert found == {"estimation": 300, "validation": 80, "test": 150}
    assert [length("test", text, 1 / 750) for text in ("1s", 750, "750samples", "1min")] == [750, 750, 750, 45000]
    assert length("test", "1d", 900.0) == 96
    assert length("test", "1h", 1000.0) == 3  # the fourth interval does not end in time


def test_csv_copies_give_back_the_bits(oscillator, building):
    for folder in (oscillator, building):
        for key, record in groups(folder, "benchmark").items():
            columns = table(folder / "csv" / f"{key.replace('/record', '')}.csv")
            assert list(columns) == ["time", *record.data_vars]
            for name, values in columns.items():
                np.testing.assert_array_equal(values, record[name])
    columns = table(building / "truth_csv" / "test_1.csv")
    truth = groups(building, "truth")["test/record_1"]
    np.testing.assert_array_equal(columns["zone_temperature_noise_free"], truth["zone_temperature_noise_free"])


def test_lag_data_are_those_of_the_measured_signals(building):
    found, measured = groups(building, "narx"), groups(building, "benchmark")
    assert list(found) == ["estimation", "validation", "test"]
    rows = found["estimation"]
    narx = Narx.from_dict(json.loads(rows.attrs["narx"]))
    n, lags = LENGTHS["estimation"], narx.max_lag
    assert rows.sizes["sample"] == 2 * (n - lags)
    record = measured["estimation/record_1"]
    for i, k in ((0, lags), (n - lags - 1, n - 1)):
        row = rows.isel(sample=n - lags + i)
        assert row["record"] == 1
        assert row["target"] == record["zone_temperature"][k] - record["zone_temperature"][k - 1]
        for feature, value in zip(rows["feature"].values, row["regressor"].values, strict=True):
            name, lag = re.fullmatch(r"(\w+)\[k-(\d)\]", str(feature)).groups()
            assert value == record[name][k - int(lag)]


def test_checksums_are_those_of_sha256sum(oscillator):
    lines = (oscillator / "checksums.sha256").read_text().splitlines()
    found = dict(reversed(line.split("  ", 1)) for line in lines)
    assert set(found) == names_in(oscillator) - {"checksums.sha256"}
    for name, digest in found.items():
        assert hashlib.sha256((oscillator / name).read_bytes()).hexdigest() == digest


# --- that it repeats ------------------------------------------------------------------------------


def test_the_same_configuration_gives_the_same_data(oscillator, tmp_path):
    again = everything(generate(tmp_path / "again", *BOUC_WEN, f"seed={SECRET}"))
    assert len(again) == 7
    assert again == everything(oscillator)
    assert scores(tmp_path / "again") == scores(oscillator)


def test_another_seed_gives_other_data(oscillator, tmp_path):
    other = everything(generate(tmp_path / "other", *BOUC_WEN, "seed=1"))
    assert not [name for name, content in everything(oscillator).items() if other[name] == content]


def test_records_stay_when_there_are_more_of_others(building, tmp_path):
    fewer = groups(generate(tmp_path / "fewer", *BUILDING, "transient=7", "realisations.test=3"), "benchmark")
    before = groups(building, "benchmark")
    for one, two in (("estimation", "estimation/record_0"), ("test/record_1", "test/record_1")):
        assert fewer[one].drop_attrs().equals(before[two].drop_attrs())


def test_the_kept_configuration_makes_the_same_data(oscillator, tmp_path):
    from experiments.generation import run

    kept = OmegaConf.load(oscillator / "configuration.yaml")
    assert "output" not in kept
    run(OmegaConf.merge(kept, {"output": str(tmp_path / "again"), "figures": False}), tmp_path)
    assert everything(tmp_path / "again") == everything(oscillator)


# --- that the answer stays apart ------------------------------------------------------------------


def test_no_public_file_tells_the_answer(oscillator):
    seeds = {str(SECRET)} | {str(record.attrs["seed"]) for record in groups(oscillator, "truth").values()}
    assert len(seeds) == 4
    answers = {repr(value) for value in table(oscillator / "truth_csv" / "test.csv")["displacement_noise_free"][1:]}
    for name in names_in(oscillator) - ANSWER:
        content = (oscillator / name).read_bytes()
        assert not [seed for seed in seeds if seed.encode() in content], name
        if not name.endswith((".nc", ".png")):
            assert not answers & set(re.split(r"[,\s\"]+", content.decode())), name


def test_public_variables_are_measured_ones(oscillator):
    noise_free = {record["displacement_noise_free"].values.tobytes() for record in groups(oscillator, "truth").values()}
    for kind in ("benchmark", "narx"):
        for group in groups(oscillator, kind).values():
            assert not {"seed", "configuration", "parameters"} & set(group.attrs)
            for variable in group.variables.values():
                assert variable.dtype.kind in "OU" or variable.values.tobytes() not in noise_free
        with netCDF4.Dataset(oscillator / f"{kind}.nc") as file:
            assert not {"seed", "configuration", "creation_time"} & set(file.ncattrs())


def test_benchmark_and_answer_can_be_matched(oscillator):
    with netCDF4.Dataset(oscillator / "benchmark.nc") as public, netCDF4.Dataset(oscillator / "truth.nc") as answer:
        assert public.configuration_sha256 == answer.configuration_sha256
        assert hashlib.sha256(answer.configuration.encode()).hexdigest() == public.configuration_sha256
        assert (oscillator / "configuration.yaml").read_text().endswith(answer.configuration)
        assert public.licence == "CC BY 4.0"


# --- what can be reached --------------------------------------------------------------------------


@pytest.mark.parametrize("between", Interpolation, ids=lambda member: member.value)
def test_without_process_noise_the_floor_is_the_measurement_noise(between, tmp_path):
    folder = generate(tmp_path / "bw", *BOUC_WEN, f"interpolation={between.value}")
    truth, found = groups(folder, "truth")["test"], scores(folder)
    expected = rms(truth["displacement_noise"].values[WINDOW:])
    for task in ("one_step", "free_run"):
        assert found[task]["measurement_noise"]["displacement"]["rmse"] == pytest.approx(expected, rel=1e-12)
        assert found[task]["noise_floor"]["displacement"]["rmse"] == pytest.approx(expected, rel=1e-6)


def test_floor_with_process_noise_is_that_of_the_true_system(building):
    """Against simulations that start at the true state: one sample long, and from the end of the window on."""
    one_step, free_run = [], []
    measured, truth = groups(building, "benchmark"), groups(building, "truth")
    system = plant_of(configured(*BUILDING)).system
    for key in ("test/record_0", "test/record_1"):
        u = np.stack([measured[key][name].values for name in ("ambient_temperature", "mass_flow")], axis=1)
        y = measured[key]["zone_temperature"].values
        x = np.stack([truth[key][name].values for name in ("zone", "wall", "radiator")], axis=1)
        for k in range(WINDOW, len(y)):
            reached = simulate(system, u[k - 1 : k + 1], initial_state=x[k - 1], noise=False)
            one_step.append(y[k] - reached.output[1, 0])
        reached = simulate(system, u[WINDOW - 1 :], initial_state=x[WINDOW - 1], noise=False)
        free_run.extend(y[WINDOW:] - reached.output[1:, 0])
    found = scores(building)
    assert found["one_step"]["noise_floor"]["zone_temperature"]["rmse"] == pytest.approx(rms(one_step), rel=1e-9)
    assert found["free_run"]["noise_floor"]["zone_temperature"]["rmse"] == pytest.approx(rms(free_run), rel=1e-9)
    assert found["one_step"]["measurement_noise"]["zone_temperature"]["rmse"] == 0
    assert rms(one_step) < rms(free_run)


def test_in_closed_loop_driven_inputs_stay_held(tmp_path):
    """Without noise the floor is zero only if the floor takes the inputs as the simulation did."""
    silent = [f"system.{name}_noise_std=0" for name in ("zone", "wall", "radiator")]
    found = scores(generate(tmp_path / "silent", *BUILDING, *silent, "interpolation=linear"))
    assert found["one_step"]["noise_floor"]["zone_temperature"]["rmse"] == 0
    assert found["free_run"]["noise_floor"]["zone_temperature"]["rmse"] == 0


def test_baselines_against_plain_loops(oscillator):
    measured, found = groups(oscillator, "benchmark"), scores(oscillator)
    u, y = (measured["estimation"][name].values for name in ("force", "displacement"))
    lags = (1, 2, 3)
    design = [[1.0, *(1e4 * y[k - j] for j in lags), *(u[k - j] for j in lags)] for k in range(3, len(y))]
    weights = np.linalg.lstsq(np.array(design), y[3:], rcond=None)[0]
    v, z = (measured["test"][name].values for name in ("force", "displacement"))
    free = z[:WINDOW].tolist()
    for k in range(WINDOW, len(z)):
        free.append(float(weights @ [1.0, *(1e4 * free[k - j] for j in lags), *(v[k - j] for j in lags)]))
    step = [weights @ [1.0, *(1e4 * z[k - j] for j in lags), *(v[k - j] for j in lags)] for k in range(WINDOW, len(z))]
    expected = {
        ("one_step", "mean"): z[WINDOW:] - y[3:].mean(),
        ("free_run", "mean"): z[WINDOW:] - y[3:].mean(),
        ("one_step", "persistence"): np.diff(z)[WINDOW - 1 :],
        ("free_run", "persistence"): z[WINDOW:] - z[WINDOW - 1],
        ("one_step", "arx"): z[WINDOW:] - step,
        ("free_run", "arx"): z[WINDOW:] - free[WINDOW:],
    }
    for (task, model), error in expected.items():
        assert found[task][model]["displacement"]["rmse"] == pytest.approx(rms(error), rel=1e-5), (task, model)
    best = found["one_step"]["noise_floor"]["displacement"]["rmse"]
    assert all(found["one_step"][model]["displacement"]["rmse"] > best for model in ("arx", "online_gp"))
    assert found["one_step"]["online_gp"]["displacement"]["rmse"] < 0.5 * rms(np.diff(z))


def test_a_baseline_that_runs_away_is_told_so(monkeypatch, tmp_path):
    from sysid.simulation.baselines import LinearArx

    monkeypatch.setattr(LinearArx, "predict", lambda self, regressors, previous: 1e100 * (1 + regressors[:, 0] ** 2))
    folder = generate(tmp_path / "bw", *BOUC_WEN)
    assert scores(folder)["free_run"]["arx"]["displacement"]["rmse"] is None
    assert re.search(r"\| ARX \| [\d.e+]+ \| diverges \|", (folder / "CARD.md").read_text())


def test_baselines_can_be_chosen(tmp_path):
    found = scores(generate(tmp_path / "bw", *BOUC_WEN, "baseline=[mean]"))
    assert list(found["free_run"]) == ["measurement_noise", "noise_floor", "mean"]


# --- the card -------------------------------------------------------------------------------------


def test_the_card_says_what_is_needed(oscillator):
    text = (oscillator / "CARD.md").read_text()
    for words in (
        "m y'' + c y' + k y + z = u + w",
        "z' = alpha y' - beta (gamma |y'| |z|^(nu-1) z + delta y' |z|^nu)",
        "| `mass` | 2.0 | m, kg |",
        "| `stiffness` | 50000.0 | k, N/m |",
        "| `force` | input | N | external force on the mass |",
        "derivative[0] = v",
        "crest factor",
        "snr_db: 40",
        f"first **{WINDOW} samples**",
        "**Licence:** CC BY 4.0",
        "numpy " + np.__version__,
        "Noel and M. Schoukens",
        hashlib.sha256((oscillator / "benchmark.nc").read_bytes()).hexdigest(),
    ):
        assert words in text, words
    assert f"| estimation | estimation | {LENGTHS['estimation']} | 0 | 0 |" in text
    for target in re.findall(r"\]\(([^)]+)\)", text):
        assert (oscillator / target).read_bytes().startswith(b"\x89PNG"), target
    assert "seed=" not in text
    assert str(oscillator.parent) not in text


def test_the_card_shows_the_scores_and_signal_to_noise_ratios(oscillator):
    text, found = (oscillator / "CARD.md").read_text(), scores(oscillator)
    floor = found["one_step"]["noise_floor"]["displacement"]["rmse"]
    assert f"| noise floor | {floor:.4g} |" in text
    truth = groups(oscillator, "truth")["test"]
    y0, e = truth["displacement_noise_free"].values, truth["displacement_noise"].values
    ratio = 10 * np.log10(np.var(y0) / np.mean(e**2))
    assert f"| test | `displacement` | {rms(e):.4g} | {ratio:.2f} |" in text
    u = groups(oscillator, "benchmark")["test"]["force"].values
    assert f"| {np.max(np.abs(u - u.mean())) / np.std(u):.4g} |" in text


def test_the_card_names_the_source_of_every_input(tmp_path):
    """Own excitations are shown with their input; a common one only where it acts."""
    own = ("controller=none", "weather=none", "+excitation@excitations.mass_flow=aprbs", "excitation=none")
    text = (generate(tmp_path / "house", *BUILDING, *own, "narx=building", "baseline=[mean]") / "CARD.md").read_text()
    section = text.split("## Excitation")[1].split("## Noise")[0]
    assert "| `mass_flow` | excitation `APRBS` |" in section
    assert "| `ambient_temperature` | excitation `NoExcitation` |" in section
    shown = OmegaConf.create(re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1])
    assert shown.excitations.mass_flow._target_.endswith("APRBS")
    assert shown.excitations.ambient_temperature._target_.endswith("NoExcitation")
    assert set(shown) == {"excitations"}


def test_the_card_shows_only_what_acts(building):
    section = (building / "CARD.md").read_text().split("## Excitation")[1].split("## Noise")[0]
    assert "| `mass_flow` | controller `PI` |" in section
    assert "| `ambient_temperature` | weather `SyntheticWeather` |" in section
    shown = OmegaConf.create(re.search(r"```yaml\n(.*?)```", section, re.DOTALL)[1])
    assert set(shown) == {"controller", "weather"}


def test_models_have_readable_names_and_captions_stand_once(oscillator):
    text = (oscillator / "CARD.md").read_text()
    for label in ("mean", "persistence", "ARX", "online GP"):
        assert f"| {label} | " in text
        assert f"- *{label}*: " in text
    assert text.count("Signals of the first record of each split") == 1


def test_two_baselines_of_a_kind_keep_their_keys(tmp_path):
    more = "+baseline.stiff={_target_:experiments.benchmark_folder.baselines.arx.Arx,ridge:1.0}"
    text = (generate(tmp_path / "bw", *BOUC_WEN, "baseline=[arx]", more) / "CARD.md").read_text()
    assert "| ARX (arx) | " in text
    assert "| ARX (stiff) | " in text


@pytest.mark.parametrize(
    ("errors", "noted"),
    [
        (([1.0, 1.0], [2.0, 2.0]), True),
        (([1.04, 2.0], [1.0, 2.0]), True),
        (([1.0, 2.0], [1.0, 1.0]), False),
        (([2.0, 1.0], [1.0, 1.0]), False),
        (([1.0, 1.0], [1.0, None]), True),
        (([1.0, None], [1.0, None]), False),
    ],
)
def test_a_benchmark_that_is_nearly_linear_says_so(errors, noted):
    """Errors one step ahead and in free run, of a linear model and of the online GP."""
    found = {
        task: {model: {"y": {"rmse": values[i]}} for model, values in zip(("lin", "gp"), errors, strict=True)}
        for i, task in enumerate(("one_step", "free_run"))
    }
    notes = nearly_linear(found, {"lin": Arx(), "gp": OnlineGp(), "mean": Mean()})
    assert len(notes) == noted
    assert all("`y`: the system is nearly linear at this amplitude" in note for note in notes)
    assert nearly_linear(found, {"gp": OnlineGp()}) == nearly_linear(found, {"lin": Arx()}) == []


def test_a_baseline_below_the_floor_is_explained():
    floor = {"y": {"rmse": 1.0}, "z": {"rmse": None}}
    found = {"noise_floor": floor, "gp": {"y": {"rmse": 0.9}, "z": {"rmse": 0.9}}, "arx": {"y": {"rmse": None}}}
    found["near"] = {"y": {"rmse": 0.99}}
    labels = {"gp": "online GP", "arx": "ARX", "near": "near"}
    for is_open_loop, reason in ((True, "by chance"), (False, "in closed loop the recorded input tells")):
        (note,) = below_the_floor({"free_run": found}, labels, is_open_loop=is_open_loop)
        assert note.startswith("The free run of online GP for `y` lies below the noise floor, ")
        assert reason in note


def test_figures_show_something(oscillator):
    for name in ("time_series", "spectra", "coverage"):
        assert (oscillator / "figures" / f"{name}.png").stat().st_size > 15_000


# --- without the toolbox --------------------------------------------------------------------------


def test_the_data_can_be_read_without_the_toolbox(building):
    script = """
import hashlib, netCDF4
with netCDF4.Dataset("benchmark.nc") as file:
    test = file["test/record_0"]
    print(len(test["zone_temperature"][:]), test["zone_temperature"].units, test["time"].units, file.licence)
for line in open("checksums.sha256"):
    digest, name = line.rstrip("\\n").split("  ")
    assert hashlib.sha256(open(name, "rb").read()).hexdigest() == digest, name
"""
    process = alone(building, script)
    assert process.returncode == 0, process.stderr
    assert process.stdout.split() == [str(LENGTHS["test"]), "degC", "s", "CC", "BY", "4.0"]


def test_the_command_is_installed():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["sysid-generate"] == "experiments.generate:main"


def test_the_defaults_are_made_in_seconds(tmp_path):
    from experiments.generation import run

    start = time.perf_counter()
    run(configured("system=bouc_wen", "excitation.band=[5,150]", "noise.snr_db=40", "name=quick"), tmp_path)
    assert time.perf_counter() - start < 30
    assert (tmp_path / "quick" / "CARD.md").is_file()


# --- several outputs, foreign systems -------------------------------------------------------------


def two_rooms(folder, outputs, *overrides):
    """Benchmark of a system with two outputs, with lags of the given ones; of those of the dynamics without any."""
    from experiments.generation import run

    narx = {"_target_": "sysid.Narx", "outputs": outputs, "inputs": {"heat": 1}}
    white = ("excitation.band=null", "excitation.rms=1")
    own = (f"output={folder}", "system=bouc_wen", "baseline=[persistence,arx]", *overrides)
    config = configured(*SHORT, *BOUC_WEN[3:], *white, *own)
    OmegaConf.set_struct(config, False)
    config.system = {"_target_": "two_rooms.TwoRooms", "dt": 0.5}
    if outputs:
        config.narx = narx
    run(config, folder.parent)
    return folder


def test_several_outputs_are_measured_bounded_and_scored(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = two_rooms(tmp_path / "rooms", {"cold_air": 2})
    found, truth = scores(folder), groups(folder, "truth")["test"]
    for name in ("warm_air", "cold_air"):
        expected = rms(truth[f"{name}_noise"].values[WINDOW:])
        assert found["free_run"]["measurement_noise"][name]["rmse"] == pytest.approx(expected)
        assert found["free_run"]["noise_floor"][name]["rmse"] > expected
    assert set(found["free_run"]["arx"]) == set(found["one_step"]["arx"]) == {"cold_air"}
    assert "Not computed: baselines of `warm_air`; narx names no lags of it" in (folder / "CARD.md").read_text()
    assert "baselines of warm_air; narx names no lags" in caplog.text
    columns = table(folder / "csv" / "test.csv")
    assert list(columns) == ["time", "heat", "warm_air", "cold_air"]
    y = np.stack([columns["warm_air"], columns["cold_air"]], axis=1)
    np.save(tmp_path / "p.npy", y + np.array([0.5, 0.25]))
    result = scored(folder, tmp_path / "p.npy")["outputs"]
    assert result["warm_air"]["rmse"] == pytest.approx(0.5)
    assert result["cold_air"]["rmse"] == pytest.approx(0.25)


def test_every_output_has_its_baselines(tmp_path):
    """Chosen lags are chosen for each output; those of one give the same scores as alone."""
    folder = two_rooms(tmp_path / "rooms", None, "baseline=[mean,persistence,arx,online_gp]")
    found, y = scores(folder), groups(folder, "benchmark")
    for task in ("one_step", "free_run"):
        for model in ("mean", "persistence", "arx", "online_gp", "noise_floor"):
            assert set(found[task][model]) == {"warm_air", "cold_air"}, (task, model)
    for name in ("warm_air", "cold_air"):
        test = y["test"][name].values
        assert found["one_step"]["persistence"][name]["rmse"] == pytest.approx(rms(np.diff(test)[WINDOW - 1 :]))
    alone = scores(two_rooms(tmp_path / "alone", None, "narx.target=cold_air", "baseline=[arx]"))
    assert alone["free_run"]["arx"]["cold_air"] == found["free_run"]["arx"]["cold_air"]
    text = (folder / "CARD.md").read_text()
    assert "Not computed" not in text
    assert "Lags of the models of `warm_air` and of `narx.nc`: `warm_air[k-1]`" in text
    assert "Lags of the models of `cold_air`: `cold_air[k-1]`" in text
    assert re.search(r"\| ARX \| [\d.e-]+ \| [\d.e-]+ \|", text.split("RMSE of `cold_air`")[1])


def test_no_free_run_that_would_need_measured_outputs(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = two_rooms(tmp_path / "rooms", {"cold_air": 1, "warm_air": 1})
    found = scores(folder)
    measured = groups(folder, "benchmark")
    for name in ("warm_air", "cold_air"):
        train, test = (
            {n: r[n].values for n in ("warm_air", "cold_air", "heat")}
            for r in (measured["estimation"], measured["test"])
        )
        rows = [np.stack([np.ones(len(r["heat"]) - 1), *(r[n][:-1] for n in r)], axis=1) for r in (train, test)]
        weights = np.linalg.lstsq(rows[0], train[name][1:], rcond=None)[0]
        expected = rms((test[name][1:] - rows[1] @ weights)[WINDOW - 1 :])
        assert found["one_step"]["arx"][name]["rmse"] == pytest.approx(expected, rel=1e-5)
    assert found["free_run"]["arx"] == {}
    text = (folder / "CARD.md").read_text()
    assert re.search(r"\| ARX \| [\d.e-]+ \| - \|", text)
    for one, other in (("warm_air", "cold_air"), ("cold_air", "warm_air")):
        assert f"Not computed: free runs of the baselines of `{one}`; its lags need `{other}`" in text
        assert f"free runs of the baselines of {one}" in caplog.text


def test_a_system_is_described_as_far_as_it_says(tmp_path, monkeypatch):
    system = TwoRooms(exchange=0.4)
    assert equations(system).startswith("Two rooms, one heated")
    assert notes(system) == ""
    found = {parameter.name: parameter for parameter in parameters(system)}
    assert found["exchange"] == ("exchange", 0.4, "between the rooms | 1/h")
    assert found["dt"].meaning == "h, taken as s"
    assert found["loss"].meaning == ""
    assert "flow = parameters[0]" in source_of(system)
    monkeypatch.setattr(inspect, "getsource", lambda thing: (_ for _ in ()).throw(OSError("no source")))
    assert source_of(system) == ""
    assert [parameter.meaning for parameter in parameters(system)] == [""] * 5
    assert [parameter.value for parameter in parameters(system)] == [0.5, 2, 0.4, 0.2, 0.05]


def test_equations_are_those_of_the_docstring():
    text = equations(BoucWen())
    assert "```text\nm y'' + c y' + k y + z = u + w\nz' = alpha y'" in text
    assert "::" not in text
    assert "Raises" not in text
    assert notes(BoucWen()).startswith("J.-P. Noel")
