"""The benchmark command: structure and accuracy of what it writes, never times."""

import json
import logging
import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from experiments.benchmark import command, dictionary, harness, simulation
from experiments.benchmark import run as session
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
from sysid.simulation.dynamics import Moments

NAMES = [name for name in session.BENCHMARKS if name != "free_run"]


def settings(**changes):
    return OmegaConf.merge(OmegaConf.load(CONF / "benchmark.yaml"), changes)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A quick run of all benchmarks in this process: what it wrote and said, and the processes it
    would start.
    """
    folder = tmp_path_factory.mktemp("benchmark")
    lines = []
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    session.log.addHandler(handler)
    with (
        pytest.MonkeyPatch.context() as patch,
        initialize_config_dir(str(CONF), version_base="1.3"),
    ):
        patch.setattr(command, "ENGINES", {"in process": command.InProcess})
        patch.setattr(command, "identify", lambda *line, **variables: lines.append(line))
        patch.setattr(session.log, "level", logging.INFO)
        patch.setattr(harness.Plan, "rounds", lambda self, size: self.repetitions)
        patch.setattr(simulation, "MAX_STARTS", 4)
        patch.setitem(harness.QUICK, "repetitions", 1)
        patch.setitem(harness.QUICK, "duration", "5d")
        patch.setitem(harness.QUICK, "replacements", 300)
        session.run(settings(quick=True, benchmarks=NAMES), folder)
    session.log.removeHandler(handler)
    content = json.loads((folder / "benchmark.json").read_text())
    rows = {name: [row for row in content["rows"] if row["benchmark"] == name] for name in NAMES}
    return SimpleNamespace(
        folder=folder, lines=lines, said="\n".join(said), content=content, rows=rows
    )


def test_every_benchmark_writes_and_shows_finite_numbers(done):
    assert list(done.content["seconds"]) == [name for name in NAMES if done.rows[name]] == NAMES
    written = (done.folder / "benchmark.md").read_text(encoding="utf-8")
    texts = [done.content["machine"]["cpu"]]
    for row in done.content["rows"]:
        assert all(
            math.isfinite(number)
            for number in (row["value"], row["median"] or 0, *row["details"].values())
        )
        assert (row["target"] is None) == (row["met"] is None)
        texts.append(row["case"])
    assert all(text in written and text in done.said for text in texts)


def test_models_learn_and_score_as_they_should(done):
    assert [row["details"]["accepted"] for row in done.rows["replacement"]] == 2 * 7 * [1.0]
    (textbook,) = done.rows["textbook"]
    assert textbook["details"]["same points"] == 1.0
    for size, row in zip((20, 20, 40, 40), done.rows["memory"], strict=True):
        assert row["value"] == pytest.approx(1e6 * row["details"]["MB"] / (8 * size**2))
        assert row["value"] > 1
    assert len(done.rows["accuracy"]) == 4 * 2 * 3
    for row in done.rows["accuracy"]:
        assert row["details"]["replacements"] == 300
        assert row["value"] <= 1e5 * row["details"]["Cholesky"] + 1e-12, row


def test_a_soak_counts_every_sample_and_one_that_loses_some_is_told(done, monkeypatch):
    rows = done.rows["soak"]
    assert [row["details"].get("samples") for row in rows] == 2 * [
        *range(2000, 10001, 2000),
        None,
        10000,
        None,
    ]
    assert all(row["met"] for row in rows if not row["case"].endswith("memory")), rows
    whole = dictionary._drifting

    def fewer(plan):
        return (
            SimpleNamespace(output=each.output[1:], input=each.input[1:]) for each in whole(plan)
        )

    monkeypatch.setattr(dictionary, "_drifting", fewer)
    table = harness.to_frame(list(dictionary.soak(session.read_plan(settings(quick=True)))))
    told = table[table["case"].str.endswith("counters")]
    assert told[["measured", "met"]].values.tolist() == [["10.0", "NO"]] * 2


def test_simulations_are_as_accurate_as_what_they_are_timed_against(done):
    for row, samples in zip(
        done.rows["simulation"], np.repeat([481, 8192, 20 * 8192], 3), strict=True
    ):
        assert (row["details"]["samples"], row["details"]["timed"]) == (samples, 20)
        assert row["details"]["its error"] <= row["details"]["our error"] < 1e-3
    rows = done.rows["monte_carlo"]
    assert rows[3]["value"] == pytest.approx(rows[1]["value"] / rows[2]["value"])
    for details, numbers in (
        (done.rows["store"][0]["details"], 481 * 10),
        (done.rows["store"][2]["details"], 10200),
    ):
        assert details["MB"] == pytest.approx(
            numbers * 8 / 1e6
        )  # of the building: time, 9 signals; of the ensemble
    alone, independent, consistent, *_ = (
        row["details"]["std after 100"] for row in done.rows["propagation"]
    )
    assert alone < independent < consistent
    mean = np.zeros((3, 100, 1))
    variance = np.ones((3, 100, 1))
    true = np.zeros((3, 100))
    mean[0, 9], variance[:, 9], true[:, 9], variance[2, 99] = 6.0, 4.0, 2.0, np.inf
    found = calibration(Moments(mean, variance), true, 5.0)
    assert found["error after 10"] == pytest.approx(math.sqrt(10))
    assert (found["std after 10"], found["inside after 10"], found["diverged"]) == (
        3.0,
        1.0,
        1,
    )


def test_the_command_is_run_in_its_loop_and_in_processes(done):
    whole, fixed, simulation, *_ = done.rows["loop"]
    assert whole["value"] >= fixed["value"]
    assert fixed["details"]["over simulation alone"] == pytest.approx(
        fixed["value"] / simulation["value"]
    )
    assert whole["details"]["samples"] == 481
    assert 0 < whole["details"]["entered"] < whole["details"]["identified"]
    one, two, _ = done.lines[4:]
    for line, workers in ((one, 1), (two, 2)):
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
    direct_and_swept, again, _ = done.rows["sweep"]
    details = direct_and_swept["details"]
    assert direct_and_swept["value"] == pytest.approx(details["swept s"] - details["direct s"])
    assert 0 < again["value"] < 1
    assert [row["case"] for row in done.rows["jobs"]] == ["8 jobs, in process: driver"]


@pytest.mark.slow
def test_processes_run(tmp_path, monkeypatch):
    monkeypatch.setitem(harness.QUICK, "repetitions", 1)
    monkeypatch.setitem(harness.QUICK, "duration", "3d")
    said = run_command(
        "benchmark",
        "quick=true",
        "benchmarks=[thresholds,jobs]",
        f"hydra.run.dir={tmp_path}",
    )
    assert said.code == 0, said
    engines = 4 + ("SLURM_CONF" in os.environ)
    assert len(json.loads((tmp_path / "benchmark.json").read_text())["rows"]) == 1 + engines


def test_competitors_take_turns(monkeypatch):
    log = []
    clock = SimpleNamespace(now=0.0)

    def job(name, seconds, operations):
        def run():
            log.append(name)
            clock.now += seconds * len(log)  # later rounds take longer

        return Job(run, operations, prepare=lambda: setattr(clock, "now", clock.now + 100.0))

    monkeypatch.setattr(harness, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    seconds = interleave({"a": job("a", 6.0, 2), "b": job("b", 1.0, 1)}, 3)
    assert log == 4 * ["a", "b"]
    assert clock.now == 8 * 100 + 6 * (1 + 3 + 5 + 7) + (2 + 4 + 6 + 8)
    assert {name: times.tolist() for name, times in seconds.items()} == {
        "a": [9.0, 15.0, 21.0],
        "b": [4.0, 6.0, 8.0],
    }
    found = ratio("a", seconds, ("a", "b"), "times", target=">= 2.5")
    assert (found["value"], found["median"], found["met"]) == (2.25, 2.5, False)
    assert found["details"] == {"a us": 9e6, "b us": 4e6}
    assert [harness.row("", value, "", target="<= 2")["met"] for value in (1, 2, 3)] == [
        True,
        True,
        False,
    ]


def test_benchmarks_are_chosen_once_and_tolerances_from_loose_to_tight():
    assert (
        choose("benchmarks", settings().benchmarks, NAMES) == NAMES[:-3]
    )  # the others take minutes
    for given, chosen in (
        (["memory", "update", "memory"], ["update", "memory"]),
        ("memory", ["memory"]),
        ("all", NAMES),
    ):
        assert choose("benchmarks", settings(benchmarks=given).benchmarks, NAMES) == chosen
    np.testing.assert_allclose(simulation.TOLERANCES, 10.0 ** -np.arange(1, 12.5, 0.5))
    asked = []
    found = simulation.loosest(lambda tolerance: asked.append(tolerance) or 5 * tolerance, 5e-3)
    assert (found, len(asked)) == (pytest.approx((1e-3, 5e-3)), 5)
    assert simulation.loosest(lambda tolerance: 5 * tolerance, 1e-20) == pytest.approx(
        (1e-12, 5e-12)
    )


@pytest.mark.slow
def test_models_of_published_records_keep_their_bounds(shared_data, monkeypatch, tmp_path):
    """Of the tanks beside their physics; a record that is not there is left out."""
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    name = "cascaded tanks, physics"
    missing = command.PublishedCase(("data=cascaded_tanks", f"data.path={tmp_path}"), (0.3,))
    cases = {"missing": missing, name: command.PUBLISHED_CASES[name]}
    monkeypatch.setattr(command, "PUBLISHED_CASES", cases)
    monkeypatch.setattr(command, "SIMULATED_CASES", {})
    with initialize_config_dir(str(CONF), version_base="1.3"):
        row, validation, building = command.free_run(session.read_plan(settings()))
    assert (row["case"], row["met"], validation["case"]) == (
        name,
        True,
        f"{name}: its validation",
    )
    assert building["met"]
    for kind in ("one_step", "free_run"):
        assert 0.35 < row["details"][f"{kind}_coverage_50"] < 0.65
        assert 0.88 < row["details"][f"{kind}_coverage_95"] < 0.99
    assert row["details"]["free_run_rmse"] < 0.9 * row["details"]["best_free_run_rmse"]


def test_extended_reference_solves_the_equations():
    samples = narx_samples(30, seed=3)
    gp = online_gp(30)
    cross = gp.kernel(samples.inputs[:5] + 0.1, samples.inputs)
    covariance = gp.kernel(samples.inputs, samples.inputs) + 0.01 * np.eye(30)
    inverse = np.linalg.inv(covariance)
    for compute in (extended_posterior, double_posterior):
        found = compute(covariance, samples.targets, cross, np.ones(5))
        np.testing.assert_allclose(found.precision.astype(float), np.diag(inverse), rtol=1e-8)
        np.testing.assert_allclose(
            found.mean.astype(float), cross @ inverse @ samples.targets, rtol=1e-7
        )
        variance = 1 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        np.testing.assert_allclose(found.variance.astype(float), variance, rtol=1e-6, atol=1e-10)
    if np.finfo(np.longdouble).nmant > 60:  # Ky^-1 of Ky itself gives the targets back
        problem = (covariance, samples.targets, covariance, covariance.diagonal())
        extended = extended_posterior(*problem)
        double = double_posterior(*problem)
        assert (
            np.abs(extended.mean - samples.targets).max()
            < 0.01 * np.abs(double.mean - samples.targets).max()
        )
