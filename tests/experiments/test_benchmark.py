"""The benchmark command: structure and accuracy of what it writes, never times."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.benchmarks.extended import Problem, double_posterior, extended_posterior
from experiments.benchmarks.material import narx_samples, online_gp
from experiments.benchmarks.textbook import TextbookGP
from sysid.criteria import MeanRelevance

NAMES = [
    "replacement",
    "not_inserted",
    "update",
    "textbook",
    "criterion",
    "memory",
    "accuracy",
    "loop",
    "startup",
]


def benchmark(*arguments):
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_DISABLE_JIT"}
    command = [sys.executable, "-m", "experiments.benchmark", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parents[2]
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("benchmark")
    done = benchmark("quick=true", f"hydra.run.dir={folder}")
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


def test_memory_grows_quadratically(content):
    *sizes, growth = rows_of(content, "memory")
    assert len(sizes) == 2
    assert 1.0 < growth["value"] < 2.1


def test_rounding_errors_stay_near_those_of_cholesky(content):
    rows = rows_of(content, "accuracy")
    assert len(rows) == 4 * 2 * 3
    for row in rows:
        assert row["details"]["replacements"] == 2000
        assert row["value"] <= 1000 * row["details"]["Cholesky"] + 1e-12, row


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


def test_chosen_benchmarks_only(tmp_path):
    done = benchmark("quick=true", "benchmarks=[memory]", f"hydra.run.dir={tmp_path}")
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "benchmark.json").read_text())
    assert {row["benchmark"] for row in content["rows"]} == {"memory"}


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("benchmarks=[memory,speed]", ["benchmarks must be some of", ", ".join(NAMES), "got speed"]),
        ("benchmarks=[]", ["benchmarks must be some of", "got none"]),
        ("sizes=[100]", ["sizes must be at least two different"]),
        ("sizes=[1,100]", ["sizes must be integers of at least 2, got 1"]),
        ("repetitions=0", ["repetitions must be integers of at least 1, got 0"]),
        ("duration=long", ["duration must be a positive number", "'long'"]),
    ],
)
def test_mistakes_end_in_one_line(argument, words, tmp_path):
    done = benchmark(argument, f"hydra.run.dir={tmp_path}")
    assert done.returncode == 1
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Error: ")]
    assert all(word in line for word in words), line
    assert "Traceback" not in done.stdout + done.stderr


def test_extended_reference_solves_the_equations():
    samples = narx_samples(30, noise_variance=1e-2, seed=3)
    gp = online_gp(30)
    cross = gp.kernel(samples.inputs[:5] + 0.1, samples.inputs)
    problem = Problem(
        gp.kernel(samples.inputs, samples.inputs) + 0.01 * np.eye(30), samples.targets, cross, np.ones(5)
    )
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
