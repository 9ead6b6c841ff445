"""The benchmark command: structure and accuracy of what it writes, never times."""

import json
import logging
import math
import os
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from experiments.benchmark import command, dictionary, gate, harness, reading, simulation
from experiments.benchmark import run as benchmark_run
from experiments.benchmark.dictionary import (
    double_posterior,
    extended_posterior,
    narx_samples,
    online_gp,
)
from experiments.benchmark.harness import Job, interleave, ratio
from experiments.benchmark.simulation import calibration
from experiments.cli.config import CONF
from experiments.cli.options import choose
from helpers.commands import run_command
from sysid import CsvFiles
from sysid.simulation.dynamics import Moments

#: all benchmarks but the one that identifies published records for a quarter of an hour
NAMES = [name for name in benchmark_run.BENCHMARKS if name != "free_run"]
#: benchmarks that take less than a second in quick size
FAST_NAMES = [
    "update",
    "not_inserted",
    "textbook",
    "accuracy",
    "memory",
    "store",
    "monte_carlo",
    "gate",
    "reading",
]
#: sizes of a run that takes seconds
QUICK_SIZES = {"repetitions": 1, "duration": "5d", "replacements": 300}


def compose_settings(**changes):
    """Return the configuration of the command with some values changed."""
    return OmegaConf.merge(OmegaConf.load(CONF / "benchmark.yaml"), changes)


def read_quick_plan():
    """Return the plan of a quick run."""
    return benchmark_run.read_plan(compose_settings(quick=True))


def run_benchmarks(folder, names):
    """Run benchmarks in quick size in this process.

    Return the folder, the content of benchmark.json with its rows by benchmark, the logged text,
    and the command lines of processes that the run would have started.
    """
    command_lines = []
    messages = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())
    benchmark_run.log.addHandler(handler)
    with (
        pytest.MonkeyPatch.context() as patch,
        initialize_config_dir(str(CONF), version_base="1.3"),
    ):
        patch.setattr(command, "ENGINES", {"in process": command.InProcess})
        patch.setattr(command, "identify", lambda *line, **variables: command_lines.append(line))
        patch.setattr(benchmark_run.log, "level", logging.INFO)
        patch.setattr(harness.Plan, "rounds", lambda self, size: self.repetitions)
        patch.setattr(simulation, "MAX_STARTS", 4)
        for name, size in QUICK_SIZES.items():
            patch.setitem(harness.QUICK, name, size)
        benchmark_run.run(compose_settings(quick=True, benchmarks=names), folder)
    benchmark_run.log.removeHandler(handler)
    content = json.loads((folder / "benchmark.json").read_text())
    rows = {name: [row for row in content["rows"] if row["benchmark"] == name] for name in names}
    return SimpleNamespace(
        folder=folder,
        command_lines=command_lines,
        messages="\n".join(messages),
        content=content,
        rows=rows,
        names=names,
    )


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """A quick run of all benchmarks."""
    return run_benchmarks(tmp_path_factory.mktemp("benchmark"), NAMES)


@pytest.fixture(scope="module")
def fast_run(tmp_path_factory):
    """A quick run of the fast benchmarks."""
    return run_benchmarks(tmp_path_factory.mktemp("benchmark"), FAST_NAMES)


#: one case for the fast benchmarks, and a slow one for all
FAST_AND_ALL = pytest.mark.parametrize(
    "run", ["fast_run", pytest.param("quick_run", marks=[pytest.mark.slow, pytest.mark.long])]
)


@FAST_AND_ALL
def test_every_benchmark_has_rows_and_a_time(run, request):
    benchmarks = request.getfixturevalue(run)
    with_rows = [name for name in benchmarks.names if benchmarks.rows[name]]
    assert with_rows == benchmarks.names
    assert set(benchmarks.content["seconds"]) == set(benchmarks.names)


@FAST_AND_ALL
def test_every_number_is_finite_and_every_target_is_compared(run, request):
    benchmarks = request.getfixturevalue(run)
    for row in benchmarks.content["rows"]:
        numbers = [row["value"], row["median"] or 0, *row["details"].values()]
        assert all(math.isfinite(number) for number in numbers), row
        assert (row["target"] is None) == (row["met"] is None)


@FAST_AND_ALL
def test_every_case_is_written_and_logged(run, request):
    benchmarks = request.getfixturevalue(run)
    written = (benchmarks.folder / "benchmark.md").read_text(encoding="utf-8")
    texts = [benchmarks.content["machine"]["cpu"]]
    texts += [row["case"] for row in benchmarks.content["rows"]]
    for text in texts:
        assert text in written
        assert text in benchmarks.messages


@pytest.mark.slow
def test_all_replacements_are_accepted_and_the_textbook_removes_the_same_points(quick_run):
    accepted = [row["details"]["accepted"] for row in quick_run.rows["replacement"]]
    assert accepted == 2 * 7 * [1.0]
    (textbook,) = quick_run.rows["textbook"]
    assert textbook["details"]["same points"] == 1.0


def test_the_gate_is_timed_on_each_stream_and_in_each_way_to_pass_it(fast_run):
    cases = [row["case"] for row in fast_run.rows["gate"]]
    assert cases == [f"{name}, {way}" for name in gate.STREAMS for way in gate.WAYS_TO_PASS]
    for row in fast_run.rows["gate"]:
        times = row["details"]
        assert row["value"] == pytest.approx(times["gate us"] / times["no gate us"])


@pytest.mark.parametrize(("name", "jumps"), [("relay", True), ("tanks", False)])
def test_the_relay_jumps_and_the_tanks_do_not(name, jumps):
    """The changes of the output of a relay are of two sizes, with nothing between them."""
    _, signals = gate.STREAMS[name](500, np.random.default_rng(0))
    y = signals["y"]
    change = np.abs(y[1:] - gate.RELAY_POLE * y[:-1])
    is_jump = np.abs(change - gate.RELAY_STEP) < 6 * gate.GATE_NOISE_STD
    assert is_jump.all() == jumps


def test_text_files_of_each_form_are_read(fast_run):
    cases = [row["case"] for row in fast_run.rows["reading"]]
    n_rows = fast_run.content["settings"]["rows"]
    assert cases == [f"{n_rows} rows, {name}" for name in reading.TEXT_FORMS]
    for row in fast_run.rows["reading"]:
        times = row["details"]
        assert row["value"] == pytest.approx(times["sysid us"] / times["pandas us"])


@pytest.mark.parametrize("name", reading.TEXT_FORMS)
def test_both_readers_of_a_text_file_find_the_same_numbers(tmp_path, name):
    form = reading.TEXT_FORMS[name]
    path = tmp_path / "record.csv"
    form.write(reading._table(read_quick_plan()), path)
    files = CsvFiles(estimation=str(path), inputs=["u", "v"], outputs=["y"], **form.records)
    (record,) = files.load().estimation
    table = pd.read_csv(path, **form.pandas)
    assert record.attrs["sampling_time"] == reading.READ_SAMPLING_TIME
    for signal in reading.READ_DECIMALS:
        np.testing.assert_array_equal(record[signal], table[signal])
    n_missing = {signal: int(table[signal].isna().sum()) for signal in reading.READ_DECIMALS}
    has_holes = "empty cells" in name
    assert [n > 0 for n in n_missing.values()] == [has_holes, False, has_holes]


def test_memory_is_stated_in_matrices_of_doubles(fast_run):
    for size, row in zip((20, 20, 40, 40), fast_run.rows["memory"], strict=True):
        assert row["value"] == pytest.approx(1e6 * row["details"]["MB"] / (8 * size**2))
        assert row["value"] > 1


def test_replacements_are_nearly_as_accurate_as_a_fresh_factorisation(fast_run):
    rows = fast_run.rows["accuracy"]
    assert len(rows) == 4 * 2 * 3
    for row in rows:
        assert row["details"]["replacements"] == 300
        assert row["value"] <= 1e5 * row["details"]["Cholesky"] + 1e-12, row


@pytest.mark.slow
def test_a_soak_counts_every_sample(quick_run):
    rows = quick_run.rows["soak"]
    samples_of_one_learning = [2000, 4000, 6000, 8000, 10000, None, 10000, None]
    assert [row["details"].get("samples") for row in rows] == 2 * samples_of_one_learning
    for row in rows:
        assert row["met"] or row["case"].endswith("memory"), row


def test_a_soak_reports_samples_that_the_counters_miss(monkeypatch):
    whole_stream = dictionary._drifting

    def without_first_samples(plan):
        """Yield each block of the stream without its first sample."""
        for block in whole_stream(plan):
            yield SimpleNamespace(output=block.output[1:], input=block.input[1:])

    monkeypatch.setattr(dictionary, "_drifting", without_first_samples)
    table = harness.to_frame(list(dictionary.soak(read_quick_plan())))
    counters = table[table["case"].str.endswith("counters")]
    assert counters[["measured", "met"]].values.tolist() == [["10.0", "NO"]] * 2


@pytest.mark.slow
def test_our_simulation_is_as_accurate_as_the_reference_that_it_is_timed_against(quick_run):
    n_building = 481  # samples of five days
    n_samples = np.repeat([n_building, 8192, 20 * 8192], 3)
    for row, samples in zip(quick_run.rows["simulation"], n_samples, strict=True):
        details = row["details"]
        assert (details["samples"], details["timed"]) == (samples, 20)
        assert details["its error"] <= details["our error"] < 1e-3


def test_many_trajectories_are_compared_with_single_ones(fast_run):
    rows = fast_run.rows["monte_carlo"]
    assert rows[3]["value"] == pytest.approx(rows[1]["value"] / rows[2]["value"])


@pytest.mark.parametrize(
    ("row", "n_numbers"),
    [
        pytest.param(0, 481 * 10, id="building: time and nine signals"),
        pytest.param(2, 10200, id="ensemble"),
    ],
)
def test_the_size_of_a_store_is_that_of_its_numbers(fast_run, row, n_numbers):
    details = fast_run.rows["store"][row]["details"]
    assert details["MB"] == pytest.approx(n_numbers * 8 / 1e6)


@pytest.mark.slow
def test_bands_of_consistent_functions_are_the_widest(quick_run):
    details = [row["details"] for row in quick_run.rows["propagation"]]
    mean_only, independent, consistent = (entry["std after 100"] for entry in details[:3])
    assert mean_only < independent < consistent


def test_calibration_averages_the_trajectories_that_did_not_diverge():
    mean = np.zeros((3, 100, 1))
    variance = np.ones((3, 100, 1))
    true = np.zeros((3, 100))
    mean[0, 9] = 6.0
    variance[:, 9] = 4.0
    true[:, 9] = 2.0
    variance[2, 99] = np.inf
    scores = calibration(Moments(mean, variance), true, 5.0)
    assert scores["error after 10"] == pytest.approx(math.sqrt(10))
    assert scores["std after 10"] == 3.0
    assert scores["inside after 10"] == 1.0
    assert scores["diverged"] == 1


@pytest.mark.slow
def test_the_loop_is_compared_with_simulation_alone(quick_run):
    adaptive, fixed, simulation_alone, *_ = quick_run.rows["loop"]
    assert adaptive["value"] >= fixed["value"]
    ratio_of_times = fixed["value"] / simulation_alone["value"]
    assert fixed["details"]["over simulation alone"] == pytest.approx(ratio_of_times)
    assert adaptive["details"]["samples"] == 481
    assert 0 < adaptive["details"]["entered"] < adaptive["details"]["identified"]


@pytest.mark.slow
def test_a_sweep_runs_with_one_and_two_processes(quick_run):
    one_process, two_processes, _ = quick_run.command_lines[4:]
    for line, workers in ((one_process, 1), (two_processes, 2)):
        assert line[:4] == (
            "-m",
            "duration=5d",
            "insertion.error_threshold=0.1,0.2",
            "seed=range(0,1)",
        )
        assert line[-2:] == (
            "hydra/launcher=joblib",
            f"hydra.launcher.workers={workers}",
        )


@pytest.mark.slow
def test_the_cost_of_a_job_is_its_time_beyond_a_direct_call(quick_run):
    beyond_direct, again, _ = quick_run.rows["sweep"]
    details = beyond_direct["details"]
    assert beyond_direct["value"] == pytest.approx(details["swept s"] - details["direct s"])
    assert 0 < again["value"] < 1
    assert [row["case"] for row in quick_run.rows["jobs"]] == ["8 jobs, in process: driver"]


@pytest.mark.slow
def test_processes_run(tmp_path, monkeypatch):
    monkeypatch.setitem(harness.QUICK, "repetitions", 1)
    monkeypatch.setitem(harness.QUICK, "duration", "3d")
    result = run_command(
        "benchmark",
        "quick=true",
        "benchmarks=[thresholds,jobs]",
        f"hydra.run.dir={tmp_path}",
    )
    assert result.code == 0, result
    n_engines = 4 + ("SLURM_CONF" in os.environ)
    rows = json.loads((tmp_path / "benchmark.json").read_text())["rows"]
    assert len(rows) == 1 + n_engines


def test_competitors_take_turns(monkeypatch):
    """A clock that the jobs advance replaces the real one; later rounds take longer."""
    order = []
    clock = SimpleNamespace(now=0.0)

    def make_job(name, seconds, operations):
        def run():
            order.append(name)
            clock.now += seconds * len(order)

        def prepare():
            clock.now += 100.0

        return Job(run, operations, prepare=prepare)

    monkeypatch.setattr(harness, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    seconds = interleave({"a": make_job("a", 6.0, 2), "b": make_job("b", 1.0, 1)}, 3)
    assert order == 4 * ["a", "b"]
    assert clock.now == 8 * 100 + 6 * (1 + 3 + 5 + 7) + (2 + 4 + 6 + 8)
    assert seconds["a"].tolist() == [9.0, 15.0, 21.0]
    assert seconds["b"].tolist() == [4.0, 6.0, 8.0]
    row = ratio("a", seconds, ("a", "b"), "times", target=">= 2.5")
    assert (row["value"], row["median"], row["met"]) == (2.25, 2.5, False)
    assert row["details"] == {"a us": 9e6, "b us": 4e6}


@pytest.mark.parametrize(("value", "is_met"), [(1, True), (2, True), (3, False)])
def test_a_target_is_met_up_to_its_bound(value, is_met):
    assert harness.row("", value, "", target="<= 2")["met"] is is_met


def test_benchmarks_that_take_minutes_are_not_chosen_by_default():
    assert choose("benchmarks", compose_settings().benchmarks, NAMES) == NAMES[:-3]


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        pytest.param(["memory", "update", "memory"], ["update", "memory"], id="list"),
        pytest.param("memory", ["memory"], id="name"),
        pytest.param("all", NAMES, id="all"),
    ],
)
def test_benchmarks_are_chosen_once_and_in_order(given, chosen):
    assert choose("benchmarks", compose_settings(benchmarks=given).benchmarks, NAMES) == chosen


def test_tolerances_are_tried_from_loose_to_tight():
    np.testing.assert_allclose(simulation.TOLERANCES, 10.0 ** -np.arange(1, 12.5, 0.5))
    tried = []

    def error_of(tolerance):
        tried.append(tolerance)
        return 5 * tolerance

    loosest = simulation.loosest(error_of, 5e-3)
    assert loosest == pytest.approx((1e-3, 5e-3))
    assert len(tried) == 5
    tightest = simulation.loosest(lambda tolerance: 5 * tolerance, 1e-20)
    assert tightest == pytest.approx((1e-12, 5e-12))


@pytest.mark.slow
def test_models_of_published_records_keep_their_bounds(shared_data, monkeypatch, tmp_path):
    """Of the tanks with their physics; a record that is not there is left out."""
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    name = "cascaded tanks, physics"
    missing = command.PublishedCase(("data=cascaded_tanks", f"data.path={tmp_path}"), (0.3,))
    cases = {"missing": missing, name: command.PUBLISHED_CASES[name]}
    monkeypatch.setattr(command, "PUBLISHED_CASES", cases)
    monkeypatch.setattr(command, "SIMULATED_CASES", {})
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plan = benchmark_run.read_plan(compose_settings())
        row, validation, building = command.free_run(plan)
    assert (row["case"], row["met"]) == (name, True)
    assert validation["case"] == f"{name}: its validation"
    assert building["met"]
    for kind in ("one_step", "free_run"):
        assert 0.35 < row["details"][f"{kind}_coverage_50"] < 0.65
        assert 0.88 < row["details"][f"{kind}_coverage_95"] < 0.99
    assert row["details"]["free_run_rmse"] < 0.9 * row["details"]["best_free_run_rmse"]


@pytest.mark.parametrize("compute", [extended_posterior, double_posterior])
def test_reference_posteriors_are_those_of_the_inverse(compute):
    samples = narx_samples(30, seed=3)
    gp = online_gp(30)
    cross = gp.kernel(samples.inputs[:5] + 0.1, samples.inputs)
    covariance = gp.kernel(samples.inputs, samples.inputs) + 0.01 * np.eye(30)
    inverse = np.linalg.inv(covariance)
    posterior = compute(covariance, samples.targets, cross, np.ones(5))
    mean = cross @ inverse @ samples.targets
    variance = 1 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
    np.testing.assert_allclose(posterior.precision.astype(float), np.diag(inverse), rtol=1e-8)
    np.testing.assert_allclose(posterior.mean.astype(float), mean, rtol=1e-7)
    np.testing.assert_allclose(posterior.variance.astype(float), variance, rtol=1e-6, atol=1e-10)


@pytest.mark.skipif(
    np.finfo(np.longdouble).nmant <= 60, reason="long doubles are doubles on this machine"
)
def test_the_extended_reference_is_the_more_accurate_one():
    """With the covariance itself as cross-covariance, the mean has to be the targets."""
    samples = narx_samples(30, seed=3)
    gp = online_gp(30)
    covariance = gp.kernel(samples.inputs, samples.inputs) + 0.01 * np.eye(30)
    problem = (covariance, samples.targets, covariance, covariance.diagonal())
    extended_error = np.abs(extended_posterior(*problem).mean - samples.targets).max()
    double_error = np.abs(double_posterior(*problem).mean - samples.targets).max()
    assert extended_error < 0.01 * double_error
