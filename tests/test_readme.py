"""What README and documentation state is what happens: commands, Python, examples of extension.

The commands of the README are composed, the first one runs by the script of an installation, and
the first look in Python runs. As `slow`, all commands are composed and run, one of each program by
its script, and all examples in Python run.
The tutorials run when the site is built.
"""

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from filelock import FileLock
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from experiments.cli.config import check_keys
from helpers.commands import ROOT, compose_configuration, run_command

#: folders of docs/ that are written when the site is built
BUILT_FOLDERS = {"build", "generated", "tutorials_run"}


def is_built(path):
    """Return whether a file is written when the site is built."""
    return bool(BUILT_FOLDERS & set(path.relative_to(ROOT).parts))


def read_pages():
    """Return the text of every document, by its path."""
    paths = [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").rglob("*.md")),
    ]
    return {path: path.read_text() for path in paths if not is_built(path)}


PAGES = read_pages()
#: blocks of code of every page: the language and the text of each
BLOCKS = {
    path: re.findall(r"```(\w+)\n(.*?)```", text, flags=re.DOTALL) for path, text in PAGES.items()
}
ALL_BLOCKS = [block for blocks in BLOCKS.values() for block in blocks]
SHELL_LINES = [
    line
    for language, text in ALL_BLOCKS
    if language == "bash"
    for line in text.strip().splitlines()
]
#: command lines of the toolbox, each once
COMMANDS = list(dict.fromkeys(line for line in SHELL_LINES if line.startswith(".venv/bin/sysid-")))
PUBLISHED_RECORDS = ("cascaded_tanks", "bouc_wen", "silverbox", "boston", "concrete")

# overrides that make a command short
SHORT = ["duration=289samples", "training.n_initial=60", "budget=20", "figures=false"]
SHORT_SEARCH = ["narx.max_order=2", "training.record_samples=60", "training.max_iterations=10"]
SHORT_BENCHMARK = [
    "estimation=300",
    "validation=80",
    "test=150",
    "initialisation_window=10",
    "training.n_initial=20",
]
SHORT_FREE_RUN = [
    "training.n_initial=300",
    "training.folds=2",
    "training.routes.0.evaluations=4",
    "budget=20",
    "figures=false",
    "training.routes.1.search_points=20",
    "training.routes.1.stages=1",
    "propagation=mean_only",
]


def split_command(line):
    """Return program, folder of the user's own configuration, and overrides of a command."""
    script, *arguments = shlex.split(line)
    program = script.rpartition("-")[2]
    own_folder = None
    if "--config-dir" in arguments:
        place = arguments.index("--config-dir")
        own_folder = arguments[place + 1]
        del arguments[place : place + 2]
    return program, own_folder, arguments


PROGRAMS = [split_command(line)[0] for line in COMMANDS]
#: the first command of every program
FIRST_COMMANDS = {program: COMMANDS[PROGRAMS.index(program)] for program in dict.fromkeys(PROGRAMS)}
#: the program whose first command runs by default
QUICK_PROGRAM = "identify"
#: programs whose first command does not run by its script, but in this process as all others
WITHOUT_SCRIPT = ("export",)


def test_the_two_commands_are_there_and_ci_runs_the_second_literally():
    run_line = "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/sysid-identify"
    test_line = 'python3 -m venv .venv && .venv/bin/pip install -e ".[test]" && .venv/bin/pytest'
    assert {run_line, test_line} <= set(SHELL_LINES)
    assert test_line in (ROOT / ".ci" / "run").read_text().splitlines()


def test_every_program_is_documented():
    assert set(PROGRAMS) == {path.stem for path in ROOT.glob("conf/*.yaml")} - {"plant"}


@pytest.mark.parametrize("program", FIRST_COMMANDS)
def test_every_program_has_a_script(program):
    (script,) = entry_points(group="console_scripts", name=f"sysid-{program}")
    assert callable(script.load())
    assert (Path(sys.executable).parent / f"sysid-{program}").is_file()


def write_own_files(folder):
    """Write every block of code that starts with a comment naming its path."""
    for _, text in ALL_BLOCKS:
        comment = re.match(r"# (mine/\S+)\n", text)
        if comment:
            path = folder / comment[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


@pytest.fixture(scope="module")
def own_files(tmp_path_factory):
    """Folder with the user's own files of all pages."""
    folder = tmp_path_factory.mktemp("own")
    write_own_files(folder)
    return folder


def without_sweep(override):
    """Return the text of an override, with the first value of a key that is swept."""
    if not override.is_sweep_override():
        return override.input_line
    value = override.value()
    for attribute in ("list", "start"):  # of a choice, of a range or an interval
        value = getattr(value, attribute, value)
    if isinstance(value, list):
        value = value[0]
    return f"{override.key_or_group}={getattr(value, 'text', value)}"


#: by default the commands of the README are composed, all others as `slow`
COMPOSED_COMMANDS = [
    pytest.param(line, id=line, marks=() if line in PAGES[ROOT / "README.md"] else pytest.mark.slow)
    for line in COMMANDS
]


@pytest.mark.parametrize("line", COMPOSED_COMMANDS)
def test_command_composes(line, own_files):
    program, own_folder, arguments = split_command(line)
    texts = [argument for argument in arguments if "=" in argument]
    overrides = [without_sweep(one) for one in OverridesParser.create().parse_overrides(texts)]
    if own_folder:
        overrides.insert(0, f"hydra.searchpath=[file://{own_files}/{own_folder}]")
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            configuration = compose(program, overrides=overrides, return_hydra_config=True)
        OmegaConf.set_struct(configuration, False)
        configuration.pop("hydra")
    else:
        configuration = compose_configuration(*overrides, command=program)
    assert OmegaConf.to_container(configuration, resolve=True)
    check_keys(configuration, program)


def run_python(arguments, folder):
    """Run Python in a process of its own, without the current folder on its path.

    A command finds modules in the current folder by itself.
    """
    process = subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stdout + process.stderr


def run(program, arguments, folder):
    """Run a command in this process."""
    result = run_command(program, *arguments, cwd=folder)
    assert result.code == 0, result


def key_of(override):
    """Return the part of an override before the equals sign."""
    return override.partition("=")[0]


def shortened(overrides, defaults):
    """Return overrides, with those defaults whose keys they do not set.

    Duration and number of initial samples are those of the defaults in any case. A record has no
    duration.
    """
    kept = [text for text in overrides if key_of(text) not in ("duration", "training.n_initial")]
    keys = {key_of(text) for text in kept}
    if any(text.startswith(("data=", "experiment=cascaded_tanks")) for text in overrides):
        keys.add("duration")
    return [*kept, *(text for text in defaults if key_of(text) not in keys)]


def shortened_sweep(overrides):
    """Return the overrides of a sweep with few jobs, on this machine.

    Its first two keys have two values, the others one; a search has three trials.
    """
    few = []
    n_swept = 0
    for override in overrides:
        key, equals, value = override.partition("=")
        is_list = equals and not key.startswith("hydra") and not set("[({") & set(value)
        if not is_list:
            few.append(override.replace("range(0,10)", "range(0,2)"))
            continue
        if "," in value:
            n_swept += 1
        n_values = 2 if n_swept < 3 else 1
        values = value.split(",")[:n_values]
        few.append(f"{key}={','.join(values)}")
    if "experiment=building_thresholds" in overrides:
        few += [
            "insertion.error_threshold=0.1,0.2",
            "reduction=mean_relevance",
            "acceptance=none",
            "seed=0",
        ]
    if "hydra/launcher=slurm" in overrides:
        few += ["hydra.launcher.cluster=local", "hydra.launcher.workers=2"]
    if "hydra/sweeper=optuna" in overrides:
        few.append("hydra.sweeper.n_trials=3")
    return few


def write_records(folder):
    """Write the user's own files that commands name: a year, records of u, y and v."""
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


def shorten_identification(overrides):
    """Return overrides with which an identification, or a sweep of them, takes seconds."""
    is_free_run = any(text.endswith(("=free_run", "_simulation")) for text in overrides)
    kept = shortened_sweep(overrides) if "-m" in overrides else overrides
    kept = shortened(kept, SHORT_FREE_RUN if is_free_run else SHORT)
    if "data=silverbox" in overrides:  # draws along 80 000 samples take a minute
        kept.append("propagation=mean_only")
    searches_lags = not any(text.startswith(("narx", "physics")) for text in overrides)
    if searches_lags and set(overrides) & {"data=csv", "data=cascaded_tanks", "data=silverbox"}:
        kept = shortened(kept, SHORT_SEARCH[:1] if is_free_run else SHORT_SEARCH)
    return kept


def shorten(line):
    """Return program, folder of the user's own configuration, and overrides of a short command."""
    program, own_folder, overrides = split_command(line)
    match program:
        case "identify":
            overrides = shorten_identification(overrides)
        case "benchmark":
            overrides = ["quick=true", "benchmarks=[memory]"]
        case "generate":
            is_heater = "experiment=heater_record" in overrides
            overrides = [*shortened(overrides, SHORT_BENCHMARK), "figures=false"]
            if is_heater:  # of a short record fewer samples may be missing
                overrides.append("noise.missing=2")
        case "reproduce":
            chosen = [text for text in overrides if key_of(text) in ("study", "tasks")]
            if len(chosen) < 2:
                chosen = ["study=table_1"]
            overrides = [*chosen, "quick=true", "figures=false", "workers=1"]
        case "collect":
            overrides = [*overrides, "figures=false"]
        case "compare":
            overrides = [*overrides, "propagation=mean_only"]
        case "validate":
            is_chosen = any(text.startswith("propagation.") for text in overrides)
            propagation = "propagation=taylor" if is_chosen else "propagation=mean_only"
            overrides = shortened(overrides, [propagation, "figures=false", "duration=2d"])
        case "export":
            overrides = shortened(overrides, [])
    return program, own_folder, overrides


def choose_runs():
    """Return the commands that run, each with its mark; equal short commands run once."""
    shortest = {str(shorten(line)): line for line in reversed(COMMANDS)}
    runs = []
    for line in COMMANDS:
        if shortest[str(shorten(line))] == line:
            marks = () if line == FIRST_COMMANDS[QUICK_PROGRAM] else pytest.mark.slow
            runs.append(pytest.param(line, marks=marks, id=line))
    return runs


#: identifications of the models that commands read, by what the command names
IDENTIFICATIONS = {
    "data=csv": [
        "data=csv",
        "data.estimation=train.csv",
        "data.inputs=[u]",
        "data.outputs=[y]",
        "data.dt=0.02",
        *SHORT_SEARCH,
    ],
    "system=building": [],
    "": ["data=cascaded_tanks", *SHORT_SEARCH],
}


@pytest.fixture(scope="module")
def identified(tmp_path_factory):
    """Function that returns the folder of a run that fits the overrides of a command.

    Each run is made once for all workers of pytest.
    """
    of_all_workers = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        of_all_workers = of_all_workers.parent

    def folder_for(overrides):
        kind = next(kind for kind in IDENTIFICATIONS if kind in overrides or kind == "")
        folder = of_all_workers / f"identified_{[*IDENTIFICATIONS].index(kind)}"
        is_made = folder / "is_made"
        with FileLock(f"{folder}.lock"):
            if not is_made.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                write_records(folder)
                short = shortened(IDENTIFICATIONS[kind], SHORT)
                run("identify", [*short, f"hydra.run.dir={folder}/run"], folder)
                is_made.touch()
        return folder / "run"

    return folder_for


def provide_input(program, overrides, folder, identified):
    """Write what a command reads: its sweep, its runs or its model."""
    match program:
        case "collect":
            sweep = f"hydra.sweep.dir={folder / overrides[0]}"
            run("identify", ["-m", "budget=15,20", *SHORT[:2], "figures=false", sweep], folder)
        case "compare" | "report":
            pytest.importorskip("bokeh")
            for name in (override for override in overrides if "=" not in override):
                shutil.copytree(identified(overrides), folder / name)
        case "validate" | "export":
            shutil.copy(identified(overrides) / "model.nc", folder)


def output_of(program, overrides, folder):
    """Return the folder of a command's results, and the overrides that set it."""
    run_folder = folder / "run"
    mode = "sweep" if "-m" in overrides else "run"
    hydra_folder = f"hydra.{mode}.dir={run_folder}"
    match program:
        case "collect" | "report":
            return folder / overrides[0], []
        case "reproduce":
            return run_folder, [f"output={run_folder}"]
        case "generate":
            return run_folder, [f"output={run_folder}/made", hydra_folder]
        case _:
            return run_folder, [hydra_folder]


def needs_published_records(program, overrides):
    """Return whether a command reads, or its input is made from, published records."""
    if program in ("reproduce", "validate", "export", "compare", "report"):
        return True
    return any(name in text for name in PUBLISHED_RECORDS for text in overrides)


def check_exported(overrides, folder):
    """Let an exported file check itself, as its page says."""
    (name,) = [text.removeprefix("output=") for text in overrides if text.startswith("output=")]
    if name.endswith(".py"):
        run_python([name], folder)
        return
    program = folder / "self_test"
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler")
    command = [compiler, str(folder / name), "-DSYSID_TEST", "-lm", "-o", str(program)]
    subprocess.run(command, check=True)
    subprocess.run([str(program)], check=True)


@pytest.mark.parametrize("line", choose_runs())
def test_command_runs(line, tmp_path, identified, request, monkeypatch):
    program, own_folder, overrides = shorten(line)
    if needs_published_records(program, overrides):  # no test downloads
        monkeypatch.setenv("SYSID_DATA", str(request.getfixturevalue("shared_data")))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # workers find this toolbox, not an installed one
    write_records(tmp_path)
    write_own_files(tmp_path)
    provide_input(program, overrides, tmp_path, identified)
    folder, output = output_of(program, overrides, tmp_path)
    arguments = [*overrides, *output]
    if own_folder:
        arguments = ["--config-dir", own_folder, *arguments]
    is_first = line == FIRST_COMMANDS[program]
    if is_first and program not in WITHOUT_SCRIPT:
        script = Path(sys.executable).parent / f"sysid-{program}"
        run_python([str(script), *arguments], tmp_path)
    else:
        run(program, arguments, tmp_path)
    if program == "export":
        check_exported(overrides, tmp_path)
        return
    has_tables = program in ("reproduce", "collect", "compare")
    assert any(folder.rglob("*.csv" if has_tables else "*.json"))
    if program in ("compare", "report"):
        assert (folder / "report.html").is_file()
    if "-m" in overrides:
        outcomes = [json.loads(path.read_text()) for path in folder.rglob("outcome.json")]
        assert len(outcomes) > 1
        assert {outcome["status"] for outcome in outcomes} == {"done"}
    if own_folder:
        assert "mine." in (folder / ".hydra" / "config.yaml").read_text()
    if own_folder and program == "generate":
        assert "y'' + c y' + k y + h y^3 = u" in (folder / "made" / "CARD.md").read_text()


def examples_of(blocks):
    """Return the Python blocks of a page that are not files."""
    return [
        text for language, text in blocks if language == "python" and not text.startswith("# mine/")
    ]


#: Python blocks of every page that has some, by its name
EXAMPLES = {
    path.relative_to(ROOT).as_posix(): examples_of(blocks)
    for path, blocks in BLOCKS.items()
    if examples_of(blocks)
}


def run_examples(name):
    """Run the examples of a page in one namespace; return it and the lines that they print."""
    namespace = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for text in EXAMPLES[name]:
            exec(compile(text, name, "exec"), namespace)
    return SimpleNamespace(names=namespace, lines=printed.getvalue().splitlines())


@pytest.fixture(scope="module")
def example_folder(tmp_path_factory):
    """Folder in which the examples run; it is empty before."""
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def readme(example_folder):
    """Outcome of the examples of the README."""
    with contextlib.chdir(example_folder):
        return run_examples("README.md")


@pytest.fixture(scope="module")
def python_page(example_folder):
    """Outcome of the examples of the page on Python."""
    with contextlib.chdir(example_folder):
        return run_examples("docs/how_to/python.md")


class TestPythonExamples:
    """The blocks of Python that are not files do what their pages state."""

    def test_these_pages_have_examples(self):
        assert list(EXAMPLES) == [
            "README.md",
            "docs/how_to/chosen_inputs.md",
            "docs/how_to/coming_from.md",
            "docs/how_to/linear_view.md",
            "docs/how_to/live.md",
            "docs/how_to/predictive_control.md",
            "docs/how_to/python.md",
        ]

    def test_the_plant_of_ones_own_is_asked_within_its_limits(self):
        page = run_examples("docs/how_to/chosen_inputs.md")
        names = page.names
        with_model = np.ravel(names["outputs"])[3 * 40 :]  # three stretches without a model
        assert (names["design"].n_decisions, names["design"].n_fallbacks) == (8, 3)
        assert np.mean((with_model < 0.5) | (with_model > 4.0)) <= 0.05
        assert page.lines[0] == "8 decisions, 3 without the best plan"

    def test_the_loop_of_ones_own_follows_its_set_point(self):
        page = run_examples("docs/how_to/predictive_control.md")
        names = page.names
        assert set(names["policy"].reasons) == set()
        outputs = np.array(names["outputs"])
        assert abs(outputs[230:240] - 1.5).max() < 0.1
        assert abs(outputs[280:290] - 3.0).max() < 0.1
        assert page.lines[-1] == "without a plan: ''"

    @pytest.mark.slow
    def test_our_lines_for_those_who_come_from_elsewhere_run(self, example_folder):
        with contextlib.chdir(example_folder):
            page = run_examples("docs/how_to/coming_from.md")
        fits = page.names["found"].compare()["fit_percent"]
        assert fits["y", "model", "free run"] > fits["y", "ARX, best", "free run"]
        assert page.names["free_run"].shape == page.names["one_step"].shape == (150, 1)
        assert abs(page.names["predicted"] - page.names["value"]) < 0.2

    @pytest.mark.slow
    def test_the_linear_view_of_the_heater_is_what_its_page_shows(self, example_folder):
        with contextlib.chdir(example_folder):
            page = run_examples("docs/how_to/linear_view.md")
        gains = page.names["view"].static_gain.sel(output="temperature")
        assert (gains["low"] < [2.36, -35.86]).all()
        assert (gains["high"] > [2.36, -35.86]).all()
        assert page.lines[-1] == "truth: [[  2.36 -35.86]]"

    def test_the_first_look_has_eight_lines(self):
        (first,) = EXAMPLES["README.md"]
        assert len([line for line in first.splitlines() if line]) <= 8

    @pytest.mark.slow
    @pytest.mark.long
    def test_the_first_look_prints_what_the_page_shows(self, readme):
        assert readme.names["found"].model.gp.n_points == 100
        number = r"\d+\.\d+"
        shown = re.search(r"```text\n(.*?rmse.*?)```", PAGES[ROOT / "README.md"], re.DOTALL)[1]
        printed = "\n".join(readme.lines)
        assert re.sub(number, "", printed).split() == re.sub(number, "", shown).split()
        np.testing.assert_allclose(
            [float(text) for text in re.findall(number, printed)],
            [float(text) for text in re.findall(number, shown)],
            rtol=0.1,
            atol=2e-4,
        )

    @pytest.mark.slow
    @pytest.mark.long
    @pytest.mark.usefixtures("readme", "python_page")
    def test_the_examples_write_the_files_that_they_name(self, example_folder):
        names = {path.name for path in example_folder.iterdir()}
        assert names == {"van_der_pol.nc", "van_der_pol.py", "own"}
        own_names = {path.name for path in (example_folder / "own").iterdir()} - {"__pycache__"}
        assert own_names == {
            "model.nc",
            "found.png",
            "ensemble.nc",
            "narx_model.nc",
            "narx_model.py",
        }

    @pytest.mark.slow
    @pytest.mark.long
    def test_the_printed_lines_are_those_of_the_page(self, python_page):
        first, live, simulated = python_page.lines
        n_points, inserted, first_variance = first.split()
        assert int(n_points) == 60
        assert 0 < float(inserted) < 0.6
        assert float(first_variance) == pytest.approx(1.0)
        assert re.fullmatch(r"\d+ samples stored; the prediction of the last one is -?[\d.]+", live)
        fit = re.fullmatch(r"fit ([\d.]+) %, R2 0\.\d+", simulated)
        assert float(fit[1]) > 90

    @pytest.mark.slow
    @pytest.mark.long
    def test_the_predictions_are_good(self, python_page):
        names = python_page.names
        error = names["predicted"] - names["y_own"][1000 + names["narx"].max_lag :]
        assert np.sqrt(np.mean(error**2)) < 0.03
        assert np.mean(np.abs(error) < names["half_width"]) > 0.8

    @pytest.mark.slow
    @pytest.mark.long
    def test_models_reports_and_records_are_there(self, python_page):
        names = python_page.names
        assert names["identification"].model.gp.n_points == 50
        assert abs(names["report"].mean) < 5
        assert {"displacement", "displacement_noise_free", "force"} <= set(names["dataset"])
        assert names["ensemble"].output.shape == (20, 52, 1)


@pytest.mark.slow
@pytest.mark.long
def test_the_examples_of_live_use_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = run_examples("docs/how_to/live.md").names
    assert names["after"]["temperature"].mean == pytest.approx(names["temperature"][391], abs=0.5)
    assert list(names["table"]) == ["temperature_mean", "temperature_low", "temperature_high"]
    assert (tmp_path / "model.nc").is_file()


@pytest.fixture
def front_figures():
    """Module that draws the figures of the front page."""
    spec = spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    figures = module_from_spec(spec)
    spec.loader.exec_module(figures)
    return figures


class TestFrontFigures:
    """`docs/figures.py` draws what the front page shows."""

    def test_the_front_page_shows_all_of_them(self, front_figures):
        for name in front_figures.FIGURES:
            assert f"docs/images/front_{name}.svg" in PAGES[ROOT / "README.md"]

    @pytest.mark.slow
    def test_the_online_model_stands_beside_line_and_limit(self, front_figures, monkeypatch):
        monkeypatch.setattr(front_figures, "N_YEAR", 800)
        monkeypatch.setattr(front_figures, "N_ONLINE_SEEDS", 1)
        monkeypatch.setattr(front_figures, "WINDOW_EDGES", (1.0, 2.0, 4.0, 8.0))
        (axis,) = front_figures.draw_online().axes
        model, line, limit = (curve.get_ydata() for curve in axis.lines)
        np.testing.assert_array_equal(limit, 1.0)
        assert len(model) == len(line) == 3
        assert (model > 0.9).all()


def anchor_of(heading):
    """Return the anchor by which a link names a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_nothing_is_left_to_fill_in_and_links_and_pictures_exist(path):
    assert not re.search(r"@\w+@|TODO|FIXME", PAGES[path])
    without_code = re.sub(r"```.*?```|`[^`\n]*`", "", PAGES[path], flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", without_code):
        linked = (path.parent / target).resolve() if target else path
        if is_built(linked):
            continue
        assert linked.is_file(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)", linked.read_text(), flags=re.MULTILINE)
            assert anchor in [anchor_of(heading) for heading in headings]


@pytest.mark.parametrize("folder", ["how_to", "explanation"])
def test_every_page_is_reached_from_its_index_and_from_the_readme(folder):
    pages = {path.stem for path in PAGES if path.parent.name == folder} - {"index"}
    index = PAGES[ROOT / "docs" / folder / "index.md"]
    contents = re.search(r"```\{toctree\}\n:maxdepth: 1\n(.*?)```", index, re.DOTALL)
    assert pages == set(contents[1].split())
    for page in pages:
        assert f"docs/{folder}/{page}.md" in PAGES[ROOT / "README.md"]


def test_the_front_page_of_the_site_shows_the_parts_of_the_readme():
    readme = PAGES[ROOT / "README.md"]
    for option in ("start-after", "end-before"):
        marks = re.findall(rf':{option}: "(.*)"', PAGES[ROOT / "docs" / "index.md"])
        assert len(marks) == 3
        for mark in marks:
            assert mark in readme


def test_the_readme_is_short():
    assert len(PAGES[ROOT / "README.md"].splitlines()) <= 200


def test_every_generated_page_of_names_is_in_the_reference():
    spec = spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    generate = module_from_spec(spec)
    spec.loader.exec_module(generate)
    index = PAGES[ROOT / "docs" / "reference" / "index.md"]
    for page in generate._api():
        assert f"../generated/{page.removesuffix('.rst')}\n" in index
