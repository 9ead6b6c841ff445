"""What the README says is what happens: its commands, its Python, its examples of extension."""

import json
import os
import re
import shlex
import shutil
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
PUBLISHED = ("cascaded_tanks", "bouc_wen", "silverbox", "boston", "concrete")
SHORT = ["duration=289samples", "training.n_initial=60"]
GENERATED = ["estimation=300", "validation=80", "test=150", "initialisation_window=10", "training.n_initial=20"]
SIMULATED = [
    *("training.n_initial=300", "training.folds=2", "training.routes.0.evaluations=4"),
    *("training.routes.1.search_points=20", "training.routes.1.stages=1", "propagation=mean_only"),
]
HOURS = 24 * 6
INITIAL = "training.n_initial"  # as short as the run
commands = pytest.mark.skipif(config.DISABLE_JIT, reason="a command says and writes the same without the compiler")


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
def files(tmp_path):
    """The user's own files that commands of the README name."""
    hours = np.arange(HOURS)
    rows = [f"{hour + 1},{5 + 4 * np.sin(2 * np.pi * hour / 24):.3f}" for hour in hours]
    (tmp_path / "year.csv").write_text("\n".join(["hour,temp_air_C", *rows]) + "\n")
    record_files(tmp_path)


def record_files(folder):
    """Records of an input u and outputs y and v."""
    for seed, name in enumerate(("train", "test", "a", "b")):
        u = np.random.default_rng(seed).normal(size=400)
        y, v = (np.convolve(np.tanh(u), pole ** np.arange(10))[:400] for pole in (0.8, 0.5))
        np.savetxt(folder / f"{name}.csv", np.column_stack([u, y, v]), delimiter=",", header="u,y,v", comments="")


#: by what a validation has: the identification of the model that it reads
IDENTIFIED = {
    "data=cascaded_tanks": ["data=cascaded_tanks"],
    "data=csv": ["data=csv", "data.estimation=train.csv", "data.inputs=[u]", "data.outputs=[y]", "data.dt=0.02"],
    "system=building": [],
    "output=model.py": [],
}


@pytest.fixture(scope="module")
def model_of(tmp_path_factory, request):
    """Path of a model that fits the overrides of a validation or an export."""
    made = {}

    def model(overrides):
        kind = next(kind for kind in IDENTIFIED if kind in overrides)
        key = tuple(IDENTIFIED[kind])
        if key not in made:
            folder = tmp_path_factory.mktemp("model")
            record_files(folder)
            places = {"SYSID_DATA": str(request.getfixturevalue("shared_data"))} if "tanks" in kind else {}
            arguments = ["-m", "experiments.identify", *shortened(list(key), folder / "run"), "validate=false"]
            result = call(arguments, folder, PYTHONPATH=str(ROOT), **places)
            assert result.returncode == 0, result.stdout + result.stderr
            made[key] = folder / "run" / "model.nc"
        return made[key]

    return model


def shortened(overrides, folder):
    """The overrides of a command, and what makes the run short where they do not say otherwise."""
    short = [
        *(SIMULATED if any(o.endswith(("=free_run", "_simulation")) for o in overrides) else SHORT),
        "budget=20",
        "figures=false",
        f"hydra.run.dir={folder}",
        f"hydra.sweep.dir={folder}",
    ]
    taken = {o.split("=")[0] for o in overrides} - {"duration", INITIAL}
    kept = [item for item in overrides if not item.startswith(INITIAL)]
    return [*kept, *(item for item in short if item.split("=")[0] not in taken)]


def fewer(overrides):
    """A sweep with two values of each key and few trials, on this machine."""
    few = []
    for override in overrides:
        key, equals, value = override.partition("=")
        values = value.split(",")
        plain = equals and not key.startswith("hydra") and not set("[({") & set(value)
        few.append(f"{key}={','.join(values[:2])}" if plain else override.replace("range(0,10)", "range(0,2)"))
    if "experiment=building_thresholds" in overrides:
        few += ["insertion.error_threshold=0.1,0.2", "reduction=mean_relevance", "acceptance=none", "seed=0"]
    if "hydra/launcher=slurm" in overrides:
        few += ["hydra.launcher.cluster=local", "hydra.launcher.workers=2"]
    return few + ["hydra.sweeper.n_trials=3"] * ("hydra/sweeper=optuna" in overrides)


def swept(folder):
    """A sweep to collect."""
    arguments = ["-m", "experiments.identify", *shortened(["-m", "budget=15,20", "seed=0,1"], folder)]
    assert call(arguments, folder.parent, PYTHONPATH=str(ROOT)).returncode == 0


@commands
@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command, tmp_path, files, model_of, request):
    program, *overrides = shlex.split(command)
    program, folder = program.rpartition("-")[2], tmp_path / "run"
    if program == "benchmark":
        overrides = ["quick=true", "benchmarks=[memory]", f"hydra.run.dir={folder}"]
    elif program == "generate":
        given = {o.split("=")[0] for o in overrides}
        short = [o for o in GENERATED if o.split("=")[0] not in given]
        overrides = [*overrides, *short, "figures=false", f"hydra.run.dir={folder}", f"output={folder}/made"]
    elif program == "reproduce":
        given = [o for o in overrides if not o.startswith("output=")]
        few = [] if any(o.startswith("tasks=") for o in given) else ["study=table_4", "tasks=[rastrigin]"]
        overrides = [*given, *few, "quick=true", "figures=false", f"output={folder}"]
    elif program == "collect":
        folder = tmp_path / overrides[0]
        folder.parent.mkdir()
        swept(folder)
    elif program in ("validate", "export"):
        shutil.copy(model_of(overrides), tmp_path / "model.nc")
        quick = ["propagation=taylor", "figures=false", "duration=2d"] if program == "validate" else []
        kept = [o for o in overrides if not o.startswith("duration=")]
        overrides = [*kept, *quick, f"hydra.run.dir={folder}"]
    else:
        overrides = shortened(fewer(overrides) if "-m" in overrides else overrides, folder)
    needed = program == "reproduce" or any(name in o for name in PUBLISHED for o in overrides)  # no test downloads
    places = {"SYSID_DATA": str(request.getfixturevalue("shared_data"))} if needed else {}
    result = call(["-m", f"experiments.{program}", *overrides], tmp_path, PYTHONPATH=str(ROOT), **places)
    assert result.returncode == 0, result.stdout + result.stderr
    if program == "export":
        assert call([str(tmp_path / "model.py")], tmp_path).returncode == 0
        return
    assert any(folder.rglob("*.csv" if program in ("reproduce", "collect") else "*.json"))
    if "-m" in overrides:
        ends = [json.loads(path.read_text())["status"] for path in folder.rglob("outcome.json")]
        assert len(ends) > 1
        assert set(ends) == {"done"}


def files_of_the_readme(folder):
    """Write every block that starts with a comment naming its path."""
    for _, text in BLOCKS:
        if match := re.match(r"# (mine/\S+)\n", text):
            path = folder / match[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


EXTENSIONS = [line for line in LINES if "--config-dir" in line]


def test_both_kinds_of_extension_are_shown():
    assert {"reduction=largest_residual", "system=duffing"} <= {word for line in EXTENSIONS for word in line.split()}
    assert {"sysid-identify", "sysid-generate"} <= {Path(line.split()[1]).name for line in EXTENSIONS}


@commands
@pytest.mark.parametrize("line", EXTENSIONS)
def test_extension_runs(line, tmp_path):
    files_of_the_readme(tmp_path)
    environment, program, *overrides = shlex.split(line)
    assert environment == "PYTHONPATH=."
    folder, generates = tmp_path / "run", program.endswith("generate")
    short = [*GENERATED, f"output={folder}/made"] if generates else SHORT
    arguments = ["-m", f"experiments.{program.rpartition('-')[2]}", *overrides, *short, f"hydra.run.dir={folder}"]
    result = call(arguments, tmp_path, PYTHONPATH=f".{os.pathsep}{ROOT}")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "mine." in (folder / ".hydra" / "config.yaml").read_text()
    if generates:
        assert "y'' + c y' + k y + h y^3 = u" in (folder / "made" / "CARD.md").read_text()
        return
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["n_seen"] > 0
    assert summary["system"] == ("Duffing" if "system=duffing" in line else "Building")


def test_python_examples_run(tmp_path, capsys, monkeypatch):
    """All Python blocks that are not files, in one namespace and an empty folder."""
    monkeypatch.chdir(tmp_path)
    code = [text for kind, text in BLOCKS if kind == "python" and not text.startswith("# mine/")]
    assert len(code) == 6
    if config.DISABLE_JIT:
        code = [text.replace("2000", "200") for text in code]
    namespace = {}
    for text in code:
        exec(compile(text, "README.md", "exec"), namespace)
    first, live, simulated = capsys.readouterr().out.splitlines()
    points, inserted, first_variance = first.split()
    assert float(re.fullmatch(r"fit ([\d.]+) %, R2 0\.\d+", simulated)[1]) > 90
    assert int(points) == (37 if config.DISABLE_JIT else 60)
    assert 0 < float(inserted) < 0.6
    assert float(first_variance) == pytest.approx(1.0)
    assert re.fullmatch(r"\d+ samples entered; -?[\d.]+ was predicted of the last one", live)
    truth = namespace["y_own"][1002:]
    error = namespace["predicted"] - truth
    assert np.sqrt(np.mean(error**2)) < 0.03
    assert np.mean(np.abs(error) < namespace["half_width"]) > 0.8
    assert namespace["identification"].model.gp.n_points == 50
    assert abs(namespace["report"].mean) < 5
    assert {"displacement", "displacement_noise_free", "force"} <= set(namespace["dataset"])
    assert namespace["ensemble"].output.shape == (20, 52, 1)
    assert {path.name for path in (tmp_path / "own").iterdir()} == {
        *("model.nc", "ensemble.nc", "narx_model.nc", "narx_model.py")
    }


def test_nothing_is_left_to_fill_in():
    assert not re.search(r"@\w+@|TODO|FIXME", README)


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).is_file(), target
