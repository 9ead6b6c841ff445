"""What README and documentation say is what happens: commands, Python, examples of extension.

Every command is composed; the first of each of most programs runs, and all run as `slow`: the first
by the script of an installation, the others in this process. The tutorials run when the site is
built.
"""

import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

sys.path.append(str(Path(__file__).with_name("experiments")))
from helpers.commands import ROOT, run_command

MADE = {
    "build",
    "generated",
    "tutorials_run",
}  # folders of docs/ that are written when the site is built
FILES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGES = {path: path.read_text() for path in FILES if not MADE & set(path.relative_to(ROOT).parts)}
CODE = {
    path: re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL) for path, text in PAGES.items()
}
BLOCKS = [block for blocks in CODE.values() for block in blocks]
LINES = [line for kind, text in BLOCKS if kind == "bash" for line in text.strip().splitlines()]
COMMANDS = list(dict.fromkeys(line for line in LINES if line.startswith(".venv/bin/sysid-")))
PUBLISHED = ("cascaded_tanks", "bouc_wen", "silverbox", "boston", "concrete")
SHORT = ["duration=289samples", "training.n_initial=60", "budget=20", "figures=false"]
GENERATED = [
    "estimation=300",
    "validation=80",
    "test=150",
    "initialisation_window=10",
    "training.n_initial=20",
]
SIMULATED = [
    *(
        "training.n_initial=300",
        "training.folds=2",
        "training.routes.0.evaluations=4",
        "budget=20",
        "figures=false",
    ),
    *(
        "training.routes.1.search_points=20",
        "training.routes.1.stages=1",
        "propagation=mean_only",
    ),
]


def parts(line):
    """Program, folder of the user's own configuration, and overrides of a command."""
    words = shlex.split(line)
    own = words[words.index("--config-dir") + 1] if "--config-dir" in words else None
    return (
        words[0].rpartition("-")[2],
        own,
        [word for word in words[1:] if word not in ("--config-dir", own)],
    )


PROGRAMS = [parts(line)[0] for line in COMMANDS]
FIRST = [line for k, line in enumerate(COMMANDS) if PROGRAMS.index(PROGRAMS[k]) == k]
SLOW = ("benchmark", "collect", "compare", "report", "reproduce")


def test_the_two_commands_are_there_and_ci_runs_the_second_literally():
    run = "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/sysid-identify"
    test = 'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/pytest'
    assert {run, test} <= set(LINES)
    assert test in (ROOT / ".ci" / "run").read_text().splitlines()
    assert set(PROGRAMS) == {path.stem for path in ROOT.glob("conf/*.yaml")} - {"plant"}


def write_own_files(folder):
    """Every block that starts with a comment naming its path."""
    for _, text in BLOCKS:
        if match := re.match(r"# (mine/\S+)\n", text):
            path = folder / match[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


@pytest.mark.parametrize("line", COMMANDS)
def test_command_composes(line, tmp_path):
    """With the first value of each key that is swept."""
    program, own, overrides = parts(line)
    given = [f"hydra.searchpath=[file://{tmp_path}/{own}]"] if own else []
    for override in OverridesParser.create().parse_overrides([o for o in overrides if "=" in o]):
        value = override.value()
        for kind in ("list", "start"):  # of a choice, of a range or an interval
            value = getattr(value, kind, value) if override.is_sweep_override() else value
        value = value[0] if isinstance(value, list) and override.is_sweep_override() else value
        text = getattr(value, "text", value)
        given.append(
            f"{override.key_or_group}={text}"
            if override.is_sweep_override()
            else override.input_line
        )
    write_own_files(tmp_path)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        composed = compose(program, overrides=given, return_hydra_config=True)
    OmegaConf.set_struct(composed, False)
    composed.pop("hydra")
    assert OmegaConf.to_container(composed, resolve=True)
    importlib.import_module("experiments.cli.config").check_keys(composed, program)


def start(arguments, cwd):
    """Run Python without the current folder on its path: a command finds modules there by
    itself.
    """
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def run(program, overrides, cwd):
    said = run_command(program, *overrides, cwd=cwd)
    assert said.code == 0, said


def added(overrides, more):
    """Overrides, and those more that they do not give themselves; the duration is as short in any
    case.
    """
    kept = [o for o in overrides if not o.startswith(("duration=", "training.n_initial="))]
    return [
        *kept,
        *(item for item in more if item.split("=")[0] not in {o.split("=")[0] for o in kept}),
    ]


def fewer(overrides):
    """A sweep with two values of its first two keys, one of the others, and few trials, on this
    machine.
    """
    few = []
    n_swept = 0
    for override in overrides:
        key, equals, value = override.partition("=")
        plain = equals and not key.startswith("hydra") and not set("[({") & set(value)
        n_swept += bool(plain and "," in value)
        first = ",".join(value.split(",")[: 2 if n_swept < 3 else 1])
        few.append(f"{key}={first}" if plain else override.replace("range(0,10)", "range(0,2)"))
    if "experiment=building_thresholds" in overrides:
        few += [
            "insertion.error_threshold=0.1,0.2",
            "reduction=mean_relevance",
            "acceptance=none",
            "seed=0",
        ]
    if "hydra/launcher=slurm" in overrides:
        few += ["hydra.launcher.cluster=local", "hydra.launcher.workers=2"]
    return few + ["hydra.sweeper.n_trials=3"] * ("hydra/sweeper=optuna" in overrides)


def write_records(folder):
    """The user's own files that commands name: a year, records of u, y and v."""
    hours = np.arange(24 * 6)
    rows = [f"{hour + 1},{5 + 4 * np.sin(2 * np.pi * hour / 24):.3f}" for hour in hours]
    (folder / "year.csv").write_text("\n".join(["hour,temp_air_C", *rows]) + "\n")
    for seed, name in enumerate(("train", "test", "a", "b")):
        u = np.random.default_rng(seed).normal(size=400)
        y, v = (np.convolve(np.tanh(u), pole ** np.arange(10))[:400] for pole in (0.8, 0.5))
        np.savetxt(
            folder / f"{name}.csv",
            np.column_stack([u, y, v]),
            delimiter=",",
            header="u,y,v",
            comments="",
        )
        np.savez(folder / "record.npz", u=u, y=y)


def shorten(line):
    """Program, folder of the user's own configuration, and the overrides with which a command takes
    seconds.
    """
    program, own, overrides = parts(line)
    if program == "benchmark":
        overrides = ["quick=true", "benchmarks=[memory]"]
    elif program == "generate":
        overrides = [*added(overrides, GENERATED), "figures=false"]
    elif program == "reproduce":
        kept = [o for o in overrides if o.startswith(("study=", "tasks="))]
        overrides = [
            *(kept if len(kept) == 2 else ["study=table_1"]),
            "quick=true",
            "figures=false",
            "workers=1",
        ]
    elif program == "collect":
        overrides = [*overrides, "figures=false"]
    elif program == "compare":
        overrides = [*overrides, "propagation=mean_only"]
    elif program in ("validate", "export"):
        rule = "taylor" if any(o.startswith("propagation.") for o in overrides) else "mean_only"
        quick = (
            [f"propagation={rule}", "figures=false", "duration=2d"] if program == "validate" else []
        )
        overrides = added(overrides, quick)
    elif program == "identify":
        simulated = any(o.endswith(("=free_run", "_simulation")) for o in overrides)
        long = ["propagation=mean_only"] * (
            "data=silverbox" in overrides
        )  # draws along 80 000 samples take a minute
        overrides = added(
            fewer(overrides) if "-m" in overrides else overrides,
            SIMULATED if simulated else SHORT,
        )
        overrides += long
    return program, own, overrides


#: those that are the same once they are short run once
SHORTENED = {str(shorten(line)): line for line in reversed(COMMANDS)}
RUNS = [
    pytest.param(
        line,
        marks=() if line in FIRST and parts(line)[0] not in SLOW else pytest.mark.slow,
    )
    for line in COMMANDS
    if SHORTENED[str(shorten(line))] == line
]
#: by what a command names: the identification that it reads
IDENTIFIED = {
    "data=csv": [
        "data=csv",
        "data.estimation=train.csv",
        "data.inputs=[u]",
        "data.outputs=[y]",
        "data.dt=0.02",
    ],
    "system=building": [],
    "": ["data=cascaded_tanks"],
}


@pytest.fixture(scope="module")
def identified(tmp_path_factory):
    """Folder of a run that fits the overrides of a command."""
    made = {}

    def folder_for(overrides):
        kind = next(kind for kind in IDENTIFIED if kind in overrides or not kind)
        if kind not in made:
            folder = tmp_path_factory.mktemp("identified")
            write_records(folder)
            run(
                "identify",
                [*added(IDENTIFIED[kind], SHORT), f"hydra.run.dir={folder}/run"],
                folder,
            )
            made[kind] = folder / "run"
        return made[kind]

    return folder_for


@pytest.mark.parametrize("line", RUNS)
def test_command_runs(line, tmp_path, identified, request, monkeypatch):
    """The first of each program by the script that an installation makes, the others in this
    process.
    """
    program, own, overrides = shorten(line)
    folder = tmp_path / "run"
    is_sweep = "-m" in overrides
    if program in ("reproduce", "validate", "export", "compare", "report") or any(
        name in o for name in PUBLISHED for o in overrides
    ):
        monkeypatch.setenv(
            "SYSID_DATA", str(request.getfixturevalue("shared_data"))
        )  # no test downloads
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # workers find this toolbox, not an installed one
    write_records(tmp_path)
    write_own_files(tmp_path)
    if program == "collect":
        folder = tmp_path / overrides[0]
        run(
            "identify",
            [
                "-m",
                "budget=15,20",
                *SHORT[:2],
                "figures=false",
                f"hydra.sweep.dir={folder}",
            ],
            tmp_path,
        )
    elif program in ("compare", "report"):
        pytest.importorskip("bokeh")
        for name in (override for override in overrides if "=" not in override):
            shutil.copytree(identified(overrides), tmp_path / name)
        folder = folder if program == "compare" else tmp_path / overrides[0]
    elif program in ("validate", "export"):
        shutil.copy(identified(overrides) / "model.nc", tmp_path)
    output = {
        "generate": [f"output={folder}/made"],
        "reproduce": [f"output={folder}"],
    }.get(program, [])
    if program not in ("collect", "report", "reproduce"):
        output += [f"hydra.{'sweep' if is_sweep else 'run'}.dir={folder}"]
    given = [*(["--config-dir", own] if own else []), *overrides, *output]
    if line in FIRST:
        start([str(Path(sys.executable).parent / f"sysid-{program}"), *given], tmp_path)
    else:
        run(program, given, tmp_path)
    if program == "export":
        start([str(tmp_path / "model.py")], tmp_path)
        return
    assert any(
        folder.rglob("*.csv" if program in ("reproduce", "collect", "compare") else "*.json")
    )
    assert program not in ("compare", "report") or (folder / "report.html").is_file()
    if is_sweep:
        ends = [json.loads(path.read_text())["status"] for path in folder.rglob("outcome.json")]
        assert len(ends) > 1
        assert set(ends) == {"done"}
    if own:
        assert "mine." in (folder / ".hydra" / "config.yaml").read_text()
    if own and program == "generate":
        assert "y'' + c y' + k y + h y^3 = u" in (folder / "made" / "CARD.md").read_text()


def test_python_examples_run(tmp_path, capsys, monkeypatch):
    """All Python blocks that are not files, those of a page in one namespace, in an empty
    folder.
    """
    monkeypatch.chdir(tmp_path)
    spaces = []
    for path, blocks in CODE.items():
        code = [
            text for kind, text in blocks if kind == "python" and not text.startswith("# mine/")
        ]
        if code:
            spaces.append({})
            capsys.readouterr()
        for text in code:
            exec(compile(text, path.name, "exec"), spaces[-1])
    first_look, namespace = spaces  # README.md, docs/how_to/python.md
    assert first_look["found"].model.gp.n_points == 100
    assert {path.name for path in tmp_path.iterdir()} == {
        "van_der_pol.nc",
        "van_der_pol.py",
        "own",
    }
    first, live, simulated = capsys.readouterr().out.splitlines()
    points, inserted, first_variance = first.split()
    assert float(re.fullmatch(r"fit ([\d.]+) %, R2 0\.\d+", simulated)[1]) > 90
    assert int(points) == 60
    assert 0 < float(inserted) < 0.6
    assert float(first_variance) == pytest.approx(1.0)
    assert re.fullmatch(r"\d+ samples stored; the prediction of the last one is -?[\d.]+", live)
    error = namespace["predicted"] - namespace["y_own"][1002:]
    assert np.sqrt(np.mean(error**2)) < 0.03
    assert np.mean(np.abs(error) < namespace["half_width"]) > 0.8
    assert namespace["identification"].model.gp.n_points == 50
    assert abs(namespace["report"].mean) < 5
    assert {"displacement", "displacement_noise_free", "force"} <= set(namespace["dataset"])
    assert namespace["ensemble"].output.shape == (20, 52, 1)
    files = {"model.nc", "ensemble.nc", "narx_model.nc", "narx_model.py"}
    assert {path.name for path in (tmp_path / "own").iterdir()} - {"__pycache__"} == files


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_nothing_is_left_to_fill_in_and_links_and_pictures_exist(path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", PAGES[path], flags=re.DOTALL)
    assert not re.search(r"@\w+@|TODO|FIXME", PAGES[path])
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", text):
        to = (path.parent / target).resolve() if target else path
        if not MADE & set(to.relative_to(ROOT).parts):
            assert to.is_file(), target
            headings = re.findall(r"^#+ (.*)", to.read_text(), flags=re.MULTILINE) if anchor else []
            assert not anchor or anchor in [
                re.sub(r"[^a-z0-9_ -]", "", h.lower()).replace(" ", "-") for h in headings
            ]


def test_every_page_is_reached_and_the_readme_is_short():
    """From the table of contents of its folder; a reader of README finds the guides and the
    explanations.
    """
    for folder in ("how_to", "explanation"):
        pages = {path.stem for path in PAGES if path.parent.name == folder} - {"index"}
        index = PAGES[ROOT / "docs" / folder / "index.md"]
        assert pages == set(
            re.search(r"```\{toctree\}\n:maxdepth: 1\n(.*?)```", index, re.DOTALL)[1].split()
        )
        assert all(f"docs/{folder}/{page}.md" in PAGES[ROOT / "README.md"] for page in pages)
    assert len(PAGES[ROOT / "README.md"].splitlines()) <= 200
