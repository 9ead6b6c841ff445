"""The benchmark command: structure and accuracy of what it writes, never times."""

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from running import PLAIN

from experiments.benchmarks.extended import Problem, double_posterior, extended_posterior
from experiments.benchmarks.material import narx_samples, online_gp
from experiments.benchmarks.plan import Plan, benchmark_names
from experiments.benchmarks.textbook import TextbookGP
from experiments.launch import CONF
from sysid import MeanRelevance

NAMES = [
    "replacement",
    "not_inserted",
    "update",
    "textbook",
    "criterion",
    "memory",
    "accuracy",
    "simulation",
    "monte_carlo",
    "propagation",
    "store",
    "loop",
    "startup",
    "sweep",
    "thresholds",
]


def benchmark(*arguments):
    if PLAIN:
        pytest.skip("what is timed is compiled")
    command = [sys.executable, "-m", "experiments.benchmark", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    done = benchmark("quick=true", f"benchmarks=[{','.join(NAMES)}]", f"hydra.run.dir={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    (folder / "stdout.txt").write_text(done.stdout)
    return folder


@pytest.fixture(scope="module")
def content(folder):
    return json.loads((folder / "benchmark.json").read_text())


def rows_of(content, name):
    return [row for row in content["rows"] if row["benchmark"] == name]


def test_every_benchmark_reports_finite_numbers(content):
    assert [name for name in NAMES if rows_of(content, name)] == NAMES
    assert list(content["seconds"]) == NAMES
    for row in content["rows"]:
        numbers = [row["value"], *row["details"].values()]
        numbers += [row["median"]] if row["median"] is not None else []
        assert all(math.isfinite(number) for number in numbers), row
        assert row["value"] >= 0
        assert (row["target"] is None) == (row["met"] is None)


def test_replacements_are_replacements(content):
    rows = rows_of(content, "replacement")
    assert len(rows) == 2 * 7
    assert all(row["details"]["accepted"] == 1.0 for row in rows)


def test_textbook_keeps_the_same_points(content):
    (row,) = rows_of(content, "textbook")
    assert row["details"]["same points"] == 1.0


def test_scores_of_every_criterion_are_timed_and_how_they_grow(content):
    *sizes, published, compiled = rows_of(content, "criterion")
    assert len(sizes) == 5 * 2
    assert [row["target"] for row in sizes] == 5 * [">= 1", None]
    for row in sizes:
        assert row["value"] == pytest.approx(row["details"]["one published us"] / row["details"]["all ours us"])
    for row in (published, compiled):
        (few, some) = row["details"].values()
        assert row["value"] == pytest.approx(math.log(some / few) / math.log(2))


def test_memory_grows_quadratically(content):
    *sizes, growth = rows_of(content, "memory")
    assert len(sizes) == 2
    assert 1.0 < growth["value"] < 2.1


def test_rounding_errors_stay_near_those_from_scratch(content):
    rows = rows_of(content, "accuracy")
    assert len(rows) == 4 * 2 * 3
    for row in rows:
        assert row["details"]["replacements"] == 2000
        from_scratch = max(row["details"]["Cholesky"], row["details"]["fresh fit"])
        assert row["value"] <= 1000 * from_scratch + 1e-12, row


def test_solve_ivp_is_as_accurate_as_the_simulation_it_is_timed_against(content):
    rows = rows_of(content, "simulation")
    assert [row["target"] for row in rows] == 6 * [">= 100"] + 3 * [None]
    for row, samples in zip(rows, np.repeat([961, 8192, 20 * 8192], 3), strict=True):
        assert row["details"]["samples"] == samples
        assert row["details"]["timed"] == 20
        assert row["details"]["its error"] <= row["details"]["our error"] < 1e-3


def test_only_the_whole_ensemble_has_a_bound(content):
    rows = rows_of(content, "monte_carlo")
    assert [row["target"] for row in rows] == ["<= 0.1", None, None, None, None]
    assert [row["case"].partition(",")[0] for row in rows] == 2 * ["50 x 50"] + 3 * ["50 x 500"]
    one, both, threads = rows[2:]
    assert threads["value"] == pytest.approx(one["value"] / both["value"])


def test_errors_of_free_runs_stand_beside_what_was_predicted_of_them(content):
    rows = rows_of(content, "propagation")
    assert len(rows) == 5
    for row in rows:
        details = row["details"]
        assert details["diverged"] == 0
        for steps in (10, 100):
            assert 0 <= details[f"inside after {steps}"] <= 1
            assert details[f"error after {steps}"] > 0
            assert details[f"std after {steps}"] > 0
    alone, independent, consistent = (row["details"]["std after 100"] for row in rows[:3])
    assert alone < independent < consistent


def test_stored_data_sets_have_the_size_of_their_numbers(content):
    rows = rows_of(content, "store")
    assert [row["case"].partition(": ")[2] for row in rows] == ["write", "read", "write", "read"]
    for row in rows:  # the plain file holds the numbers and a header
        assert row["details"]["MB"] < row["details"]["plain file MB"] < row["details"]["MB"] + 0.05
    building, ensemble = rows[0]["details"]["MB"], rows[2]["details"]["MB"]
    assert building == pytest.approx(961 * 10 * 8 / 1e6)  # time, two inputs, three states, an output, three noises
    assert ensemble == pytest.approx(50 * (50 * 4 + 3) * 8 / 1e6 + 50 * 8 / 1e6)  # two states, output, noise; counts


def test_loop_and_its_parts(content):
    whole, simulation, identification = rows_of(content, "loop")
    assert simulation["details"]["samples"] == whole["details"]["samples"]
    assert identification["details"]["samples"] == whole["details"]["identified"]


def test_console_and_markdown_show_every_row(content, folder):
    written, told = (folder / "benchmark.md").read_text(), (folder / "stdout.txt").read_text()
    for row in content["rows"]:
        assert row["case"] in written
        assert row["case"] in told
    assert content["machine"]["cpu"] in told
    assert "OPENBLAS_NUM_THREADS=" in told


def test_unknown_name_ends_in_one_line(tmp_path):
    done = benchmark("benchmarks=[memory,speed]", f"hydra.run.dir={tmp_path}")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Error: ")]
    assert line == f"Error: benchmarks must be some of {', '.join(NAMES)}, got speed"
    assert "Traceback" not in done.stdout + done.stderr


def settings(**changes):
    return OmegaConf.merge(OmegaConf.load(CONF / "benchmark.yaml"), changes)


@pytest.mark.parametrize("chosen", [["startup", "memory"], ["memory", "startup", "memory"]])
def test_chosen_benchmarks_come_once_and_in_order(chosen):
    assert benchmark_names(settings(benchmarks=chosen), NAMES) == ["memory", "startup"]
    assert benchmark_names(settings(benchmarks="memory"), NAMES) == ["memory"]


def test_default_is_every_benchmark_but_the_one_that_takes_minutes():
    assert benchmark_names(settings(), NAMES) == [name for name in NAMES if name != "thresholds"]


@pytest.mark.parametrize("chosen", [[], [7], "speed"])
def test_benchmarks_that_do_not_exist(chosen):
    with pytest.raises(ValueError, match=r"benchmarks must be some of replacement, .*, got (none|7|speed)$"):
        benchmark_names(settings(benchmarks=chosen), NAMES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sizes": [100]}, "sizes must be at least two different numbers of points"),
        ({"sizes": [1, 100]}, "sizes must be integers of at least 2, got 1"),
        ({"repetitions": 0}, "repetitions must be integers of at least 1, got 0"),
        ({"stretch": 0}, "stretch must be integers of at least 1, got 0"),
        ({"trajectories": 0}, "trajectories must be integers of at least 1, got 0"),
        ({"budget": 10.5}, "budget must be integers of at least 2, got 10.5"),
        ({"duration": "long"}, "duration must be a positive number"),
    ],
)
def test_settings_that_leave_nothing_to_measure(change, message):
    with pytest.raises(ValueError, match=message):
        Plan.of(settings(**change))


def test_extended_reference_solves_the_equations():
    samples = narx_samples(30, noise_variance=1e-2, seed=3)
    gp = online_gp(30)
    cross = gp.kernel(samples.inputs[:5] + 0.1, samples.inputs)
    problem = Problem(gp.kernel(samples.inputs, samples.inputs) + 0.01 * np.eye(30), samples.targets, cross, np.ones(5))
    inverse = np.linalg.inv(problem.covariance)
    for posterior in (extended_posterior(problem), double_posterior(problem)):
        np.testing.assert_allclose(posterior.precision.astype(float), np.diag(inverse), rtol=1e-8)
        np.testing.assert_allclose(posterior.mean.astype(float), cross @ inverse @ samples.targets, rtol=1e-7)
        variance = 1 - np.einsum("ij,jk,ik->i", cross, inverse, cross)
        np.testing.assert_allclose(posterior.variance.astype(float), variance, rtol=1e-6, atol=1e-10)


def test_textbook_gp_decides_as_the_online_gp():
    samples = narx_samples(40, noise_variance=1e-2, seed=1)
    start, rest = samples.part(0, 12), samples.part(12, 40)
    gp = online_gp(12, reduction=MeanRelevance()).fit(*start)
    textbook = TextbookGP(gp.kernel, gp.noise_variance, start)
    for x, y in zip(*rest, strict=True):
        textbook.replace(x, y)
        gp.update(x, y)
        assert sorted(textbook.targets) == sorted(gp.targets)
