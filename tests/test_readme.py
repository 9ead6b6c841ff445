"""What the README says is what happens: its commands, its Python, its examples of extension."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import config

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
LINES = [line for kind, text in BLOCKS if kind == "bash" for line in text.strip().splitlines()]
COMMANDS = [line for line in LINES if line.startswith(".venv/bin/sysid-")]
SHORT = ["duration=3d", "training.n_initial=20" if config.DISABLE_JIT else "training.n_initial=60"]
HOURS = 24 * 6
INITIAL = "training.n_initial"  # as short as the run


def test_the_two_commands_are_there_and_ci_runs_the_second_literally():
    run = "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/sysid-identify"
    test = 'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/pytest'
    assert run in LINES
    assert test in LINES
    assert test in (ROOT / ".ci" / "run").read_text().splitlines()


def test_there_are_commands_to_run():
    assert len([line for line in COMMANDS if "sysid-identify" in line]) >= 6


def call(arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def weather_file(tmp_path):
    """The hourly record that a command of the README names."""
    hours = np.arange(HOURS)
    rows = [f"{hour + 1},{5 + 4 * np.sin(2 * np.pi * hour / 24):.3f}" for hour in hours]
    (tmp_path / "year.csv").write_text("\n".join(["hour,temp_air_C", *rows]) + "\n")


@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command, tmp_path, weather_file):
    program, *overrides = shlex.split(command)
    module = "experiments." + Path(program).name.removeprefix("sysid-")
    if module == "experiments.benchmark":
        short = ["quick=true", "benchmarks=[memory]", f"hydra.run.dir={tmp_path}/run"]
    else:
        short = [
            *SHORT,
            "budget=20",
            "figures=false",
            f"hydra.run.dir={tmp_path}/run",
            f"hydra.sweep.dir={tmp_path}/run",
        ]
        short = [
            item
            for item in short
            if item.split("=")[0] not in {o.split("=")[0] for o in overrides} - {"duration", INITIAL}
        ]
        overrides = [item for item in overrides if not item.startswith(INITIAL)]
    result = call(["-m", module, *overrides, *short], tmp_path, PYTHONPATH=str(ROOT))
    assert result.returncode == 0, result.stdout + result.stderr
    assert any((tmp_path / "run").rglob("*.json"))


def files_of_the_readme(folder):
    """Write every block that starts with a comment naming its path."""
    for _, text in BLOCKS:
        if match := re.match(r"# (mine/\S+)\n", text):
            path = folder / match[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


@pytest.mark.parametrize("extension", ["reduction=largest_residual", "system=house"])
def test_extension_runs(extension, tmp_path):
    files_of_the_readme(tmp_path)
    line = next(line for line in LINES if extension in line)
    environment, _, *overrides = shlex.split(line)
    assert environment == "PYTHONPATH=."
    arguments = ["-m", "experiments.identify", *overrides, *SHORT, f"hydra.run.dir={tmp_path}/run"]
    result = call(arguments, tmp_path, PYTHONPATH=f".{os.pathsep}{ROOT}")
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["n_seen"] > 0
    configuration = (tmp_path / "run" / ".hydra" / "config.yaml").read_text()
    assert "mine." in configuration
    if extension == "system=house":
        assert summary["system"] == "House"


def test_python_examples_run(tmp_path, capsys):
    """All Python blocks that are not files, in one namespace, with `folder` a finished run."""
    overrides = [*SHORT, "budget=20", "figures=false", f"hydra.run.dir={tmp_path}"]
    assert call(["-m", "experiments.identify", *overrides], ROOT).returncode == 0
    code = [text for kind, text in BLOCKS if kind == "python" and not text.startswith("# mine/")]
    assert len(code) == 3
    if config.DISABLE_JIT:
        code = [text.replace("2000", "200").replace("1500", "300") for text in code]
    namespace = {"folder": tmp_path}
    for text in code:
        exec(compile(text, "README.md", "exec"), namespace)
    assert namespace["identification"].model.gp.n_points == 50
    points, inserted, first_variance = capsys.readouterr().out.split()
    assert int(points) == (37 if config.DISABLE_JIT else 60)
    assert 0 < float(inserted) < 0.6
    assert float(first_variance) == pytest.approx(1.0)
    assert len(namespace["mean"]) == namespace["rows"].sizes["sample"]


def test_nothing_is_left_to_fill_in():
    assert not re.search(r"@\w+@|TODO|FIXME", README)


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
