"""Commands: exit codes, refusals (`refusals.yaml`), what only a process of its own shows, and
`sysid-export`.
"""

import importlib
import io
import os
import re
import runpy
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.benchmark import run as session
from experiments.cli import progress
from experiments.cli.build import build_one
from experiments.cli.ends import is_mistake
from experiments.cli.help import print_help
from experiments.compare import run as comparison
from experiments.export import run as export
from experiments.reproduce import run as reproduction
from experiments.sweeps import search
from experiments.sweeps.composer import Composer
from experiments.validate import run as validation
from helpers.benchmarks import BOUC_WEN, generate
from helpers.commands import (
    DATA_FILES,
    IDENTIFY_COMMAND,
    REFUSALS,
    ROOT,
    SHORT_RUN,
    bytes_of_variables,
    compose_configuration,
    load_dataset,
    load_summary,
    printed_by,
    run_command,
    run_identify,
)
from helpers.records import (
    ONE_STEP_ONLY,
    csv_overrides,
    make_model,
    run_validate,
    save_models,
    validation_overrides,
    write_record,
)
from helpers.sweeps import ENGINE_CLASSES, load_sweep_configuration
from sysid import ErrorThreshold, Identification, Narx, StoreError
from sysid.gp.formula import JIT_DISABLED


def process(arguments, folder, **environment):
    """What a command of its own says, from a foreign working directory, without the variables that
    are None.
    """
    kept = {name: value for name, value in (os.environ | environment).items() if value is not None}
    options = {"env": kept, "capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, *arguments], cwd=folder, **options)
    assert done.returncode == 0, printed_by(done)
    return done


def test_a_run_from_elsewhere_computes_the_same_bits_and_says_nothing_strange(finished, tmp_path):
    done = process([*IDENTIFY_COMMAND[1:], *SHORT_RUN], tmp_path)
    (folder,) = (tmp_path / "outputs" / "identify").iterdir()
    files = {f"{kind}.nc" for kind in DATA_FILES} | {"summary.json"}
    assert files <= {path.name for path in folder.iterdir()}
    assert not list(folder.glob(".*.tmp"))
    for kind in DATA_FILES:
        assert bytes_of_variables(load_dataset(folder, kind)) == bytes_of_variables(
            load_dataset(finished, kind)
        ), kind
    config = OmegaConf.load(folder / ".hydra" / "config.yaml")
    written = OmegaConf.create(load_dataset(folder, "result").attrs["configuration"])
    assert OmegaConf.to_container(config, resolve=True) == OmegaConf.to_container(written)
    assert not [
        word
        for word in ("Warning", "Traceback", "DEBUG", "numba", "samples/s]", "\r")
        if word in printed_by(done)
    ]


@pytest.mark.parametrize(("overrides", "words"), REFUSALS["command line"].items())
def test_mistakes_end_in_a_word_and_not_in_a_traceback(overrides, words, tmp_path):
    (tmp_path / "file").write_text("")
    given = overrides.format(tmp_path).split()
    where = [] if "hydra" in overrides else [f"hydra.run.dir={tmp_path}/run"]
    said = run_command(
        "identify", *sorted([*where, *SHORT_RUN, *given], key=lambda word: word != "-m")
    )
    code = said.code
    text = said.out + said.err
    assert code == 1
    assert "Traceback" not in text
    assert "HYDRA_FULL_ERROR" not in text
    assert "HYDRA_FULL_ERROR" not in os.environ
    assert all(word in text for word in words), text
    assert not overrides.startswith("-m") or text.count("\n") == 1
    assert (tmp_path / "file").read_text() == ""
    assert (tmp_path / "run").exists() == ("Partial results are in" in words), (
        "nothing is left of a refused run"
    )


def test_ctrl_c_ends_with_its_code_and_the_results(monkeypatch, tmp_path):
    """The signal arrives while the command simulates."""
    original = Identification.observe_many
    seen = []

    def observe_many(self, *given, **options):
        seen.append(given)
        if len(seen) == 100:
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *given, **options)

    monkeypatch.setattr(Identification, "observe_many", observe_many)
    monkeypatch.setattr("experiments.plant.live.SAMPLES_PER_BLOCK", 4)
    said = run_command("identify", f"hydra.run.dir={tmp_path}/run", *SHORT_RUN)
    assert (said.code, "Traceback" in said.out + said.err) == (130, False)
    assert f"Run interrupted. Partial results are in {tmp_path}/run" in said.out
    assert {path.stem for path in (tmp_path / "run").glob("*.nc")} == set(DATA_FILES)
    assert load_summary(tmp_path / "run")["partial"] is True

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.identify.run.run", interrupted)
    said = run_command("identify", f"hydra.run.dir={tmp_path}/other", *SHORT_RUN)
    assert (said.code, "Interrupted before all results were written" in said.out) == (
        130,
        True,
    )


def test_overrides_without_effect_are_told(tmp_path):
    """Of an excitation without inputs, and of what the training replaces; a mean or kernel is
    refused.

    What learns has an effect only where samples are left to learn from.
    """
    quick = (
        "training.folds=2",
        "training.routes.0.evaluations=3",
        "training.routes.1.stages=1",
    )
    short = (
        "training.n_initial=60",
        "duration=160samples",
        "training.routes.1.search_points=10",
        "budget=10",
    )
    given = (
        "system=van_der_pol",
        "excitation=prbs",
        "training=free_run",
        "selection=forward",
        "figures=false",
    )
    given = (f"hydra.run.dir={tmp_path}/run", *given, *quick, *short)
    assert (
        "Note: without effect on VanDerPol: excitation=prbs selection=forward"
        in run_command("identify", *given).out
    )
    rules = ("gate=2", "scale=false", "reduction=prior_entropy")
    for more, told in ((), rules[1:2]), (("training.n_initial=null",), rules):
        assert (
            f"prbs selection=forward {' '.join(told)}\n"
            in run_command("identify", *given, *rules, *more).out
        )
    said = run_command("identify", *given, "mean=zero", "kernel=matern_32")
    assert (
        "mean=zero and kernel=matern_32: this training chooses kernel and mean itself" in said.out
    )
    assert said.code != 0


def test_settings_that_follow_a_stream_have_no_effect_on_a_record_and_the_other_way_round(
    tmp_path,
):
    data = csv_overrides(estimation=write_record(tmp_path / "a.csv", n=60))
    few = (
        f"hydra.run.dir={tmp_path}/run",
        "budget=10",
        "figures=false",
        "training.n_initial=12",
    )
    said = run_command("identify", *data, "narx=orders", *few, "training.interval=10").out
    assert "without effect on a.csv: training.interval=10" in said
    said = run_command("identify", *few, "duration=160samples", "training.on_records=true").out
    assert "without effect on Building: training.on_records=true" in said


def test_physics_and_propagation_without_effect_are_told(tmp_path):
    """Beside a simulation nothing of the physics is estimated; without its signals the model does
    not know it.
    """
    few = (
        f"hydra.run.dir={tmp_path}/run",
        "budget=10",
        "figures=false",
        "training.n_initial=12",
    )
    live = (
        "system=cascaded_tanks",
        "physics=cascaded_tanks",
        "duration=99samples",
        "excitation.rms=1",
    )
    idle = (
        "physics.starts=1",
        "physics.free.pump_gain.lower=0.01",
        "mean=zero",
        "propagation=mean_only",
    )
    said = run_command("identify", *few, *live, *idle).out
    assert f"without effect on CascadedTanks: {' '.join(idle)}\n" in said
    assert "does not use the physics" not in said
    said = run_command("identify", *few, *live, "narx=cascaded_tanks").out
    assert "the model does not use the physics" in said
    data = csv_overrides(estimation=write_record(tmp_path / "a.csv", n=60))
    more = ("identified=1", "propagation=mean_only")
    assert (
        "without effect on a.csv: propagation"
        in run_command("identify", *data, "narx=orders", *few, *more).out
    )


def test_help_lists_options_and_loads_nothing_heavy(tmp_path):
    script = (
        "import sys, atexit; from experiments.identify import main; sys.argv[1:] = ['--help']\n"
        "heavy = {'numba', 'numpy', 'scipy', 'xarray', 'netCDF4', 'matplotlib'}\n"
        "atexit.register(lambda: print('heavy:', sorted(heavy & set(sys.modules)))); main()\n"
    )
    shown = process(["-c", script], tmp_path).stdout
    assert shown.endswith("heavy: []\n")
    assert all(
        word in shown for word in ("  reduction ", "mean_relevance;", "budget,", "--help GROUP")
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(JIT_DISABLED or os.cpu_count() == 1, reason="nothing is compiled side by side")
def test_a_first_run_compiles_in_two_processes_and_computes_the_same_bits(finished, tmp_path):
    for folder, times in ((tmp_path / "first", 1), (tmp_path / "next", 0)):
        options = [*IDENTIFY_COMMAND[1:], *SHORT_RUN, f"hydra.run.dir={folder}"]
        done = process(options, tmp_path, NUMBA_CACHE_DIR=f"{tmp_path}/cache")
        assert printed_by(done).count("The first run compiles") == times
        assert len(list((tmp_path / "cache").rglob("dictionary.learn-*.nbc"))) == 1
        for kind in DATA_FILES:
            assert bytes_of_variables(load_dataset(folder, kind)) == bytes_of_variables(
                load_dataset(finished, kind)
            ), kind


def test_help_whose_reader_has_gone_ends_in_silence():
    reader, writer = os.pipe()
    os.close(reader)
    script = Path(sys.executable).parent / "sysid-identify"
    done = subprocess.run([script, "--help"], stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_shows_options_and_their_values_on_demand():
    overview, options, values, own = (
        run_command("identify", "--help", *more).out
        for more in ([], ["narx"], ["narx=orders"], ["values"])
    )
    assert len(overview.splitlines()) < 45
    for path in (ROOT / "conf" / "narx").glob("*.yaml"):
        assert f"  {path.stem} " in options
    assert values == (ROOT / "conf" / "narx" / "orders.yaml").read_text()
    assert "budget: 100  # points of the online GP" in own
    for command in (
        "validate",
        "generate",
        "export",
        "collect",
        "reproduce",
        "benchmark",
    ):
        print_help(command)


@pytest.mark.parametrize("group", ["hydra", "nothing", "nothing=at_all"])
def test_help_of_what_is_no_group_says_so(group):
    said = run_command("identify", "--help", group)
    assert (said.code, said.out) == (
        0,
        f"There is no group {group!r}; sysid-identify --help lists them.\n",
    )


def test_the_line_of_a_terminal_gives_way_to_output(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "__stderr__", screen)
    monkeypatch.setattr(progress.Terminal, "work", ["loading"])
    out = progress.Terminal(screen)
    with progress.doing("training"), progress.doing(progress.COMPILING):
        progress.show()
        out.write("result\n")
        out.write("\rsweep:  50%|##   | 1/2 [00:00<?, ?job/s]")
        progress.show()
    out.write("\rsweep: 100%|####| 2/2 [00:00<?, ?job/s]")
    out.write("note\n")
    out.write("\rsweep: 100%|####| 2/2 [00:00<?, ?job/s]")
    out.write("\n")
    progress.show()
    out.write("end\n")
    shown = re.sub(r", \d+ s|\[00.*?\]", "", screen.getvalue()).replace(progress.ERASE, "<")
    words = "training: compiling, once per machine"
    lines = (
        f"<{words}<result",
        f"\rsweep:  50%|##   | 1/2 <sweep 1/2: {words}<\rsweep: 100%|####| 2/2 <note",
    )
    assert shown == "\n".join([*lines, "\rsweep: 100%|####| 2/2 ", "<loading<end", ""])


def test_folders_of_the_users_do_not_hide_ours_and_own_modules_are_found(tmp_path):
    """A folder that is called as a package of ours; a module and a configuration of the user's own;
    BLAS, figures.
    """
    for name, text in (
        ("experiments/__init__.py", "raise RuntimeError('the wrong package')\n"),
        ("conf/system/own.yaml", "_target_: own_system.Own\n"),
        ("own_system.py", "from simulators import VanDerPol as Own\n"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    given = [
        "--config-dir",
        "conf",
        "system=own",
        "narx=van_der_pol",
        "duration=300samples",
        "figures=false",
    ]
    script = (
        f"import sys, threadpoolctl; sys.argv[1:] = {given!r}; from experiments.identify import main; main()\n"
        "assert 'matplotlib' not in sys.modules\n"
        "pools = [p['num_threads'] for p in threadpoolctl.threadpool_info() if p['user_api'] == 'blas']\n"
        "assert pools and set(pools) == {1}, pools\n"
    )
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    process(["-P", "-c", script], tmp_path, PYTHONPATH=str(ROOT), **threads)


def test_a_refusal_is_a_mistake_and_a_failed_operation_or_a_bug_of_ours_is_none(
    monkeypatch,
):
    def build():
        return build_one({"_target_": "sysid.ErrorThreshold", "error_threshold": 1}, "insertion")

    def failure(call):
        with pytest.raises((ValueError, OSError, TypeError)) as caught:
            call()
        return caught.value

    unknown = {"_target_": "sysid.ErrorThreshold", "threshold": 1}
    mistakes = (
        lambda: Narx({"y": 0}),
        lambda: build_one(unknown, "insertion"),
        Path("/no/such/file").read_text,
    )
    assert all(is_mistake(failure(call)) for call in mistakes)
    assert not is_mistake(failure(lambda: np.zeros(2) + np.zeros(3)))
    bug = eval("lambda self: None + 1", {"__name__": "sysid.gp.rules"})
    monkeypatch.setattr(ErrorThreshold, "__post_init__", bug)
    assert not is_mistake(failure(build))
    raised = eval(
        "lambda self: (_ for _ in ()).throw(ValueError('a bug'))",
        {"__name__": "sysid.gp.rules"},
    )
    monkeypatch.setattr(ErrorThreshold, "__post_init__", raised)
    assert not is_mistake(failure(build)), (
        "a ValueError is a mistake of the user only if it says so"
    )


X = np.random.default_rng(0).normal(size=(8, 3))
BOTH = {"outputs": {"y": 1, "z": 1}, "inputs": {"u": [1]}}


def test_models_are_exported_and_files_replaced_only_when_that_is_said(tmp_path):
    path = f"model={tmp_path}/tank.nc"
    save_models(tmp_path / "tank.nc")
    export.run(compose_configuration(path, command="export"), tmp_path)
    np.testing.assert_allclose(
        runpy.run_path(str(tmp_path / "tank.py"))["predict"](X)[0],
        make_model().predict(X).mean,
    )
    save_models(tmp_path / "joint.nc", make_model("y", BOTH), make_model("z", BOTH))
    joint = (f"model={tmp_path}/joint.nc", f"output={tmp_path}/mine.py")
    export.run(compose_configuration(*joint, command="export"), tmp_path / "nowhere")
    assert runpy.run_path(str(tmp_path / "mine.py"))["OUTPUTS"] == ("y", "z")
    before = (tmp_path / "mine.py").read_text()
    with pytest.raises(ValueError, match="name the file of the model"):
        export.run(compose_configuration(command="export"), tmp_path)
    with pytest.raises(ValueError, match=r"exists.*overwrite=true"):
        export.run(
            compose_configuration(path, f"output={tmp_path}/mine.py", command="export"), tmp_path
        )
    assert (tmp_path / "mine.py").read_text() == before
    make_model("y", BOTH).save(
        tmp_path / "tank.nc"
    )  # one of two outputs: it predicts, and cannot simulate
    export.run(
        compose_configuration(
            path, f"output={tmp_path}/mine.py", "overwrite=true", command="export"
        ),
        tmp_path,
    )
    file = runpy.run_path(str(tmp_path / "mine.py"))
    assert file["TARGETS"] == ("y",)
    assert "simulate" not in file


def test_a_class_of_ones_own_must_be_trusted(tmp_path, monkeypatch):
    """Then the export is refused by its name, and the validation asks for data."""
    lines = (
        "from dataclasses import dataclass",
        "from sysid import ZeroMean",
        "@dataclass(frozen=True)",
    )
    (tmp_path / "own_room.py").write_text("\n".join([*lines, "class Own(ZeroMean): pass", ""]))
    monkeypatch.syspath_prepend(str(tmp_path))
    replace(make_model(), mean=importlib.import_module("own_room").Own()).save(
        tmp_path / "model.nc"
    )
    for act, command, more, words in (
        (export.run, "export", [], r"trust it .* \+trusted=\[own_room.Own\]"),
        (validation.run, "validate", [], r"trust it .* \+trusted=\[own_room.Own\]"),
        (
            export.run,
            "export",
            ["trusted=[own_room.Own]"],
            r"own_room\.Own cannot be exported",
        ),
        (validation.run, "validate", ["+trusted=[own_room]"], "data"),
    ):
        sys.modules.pop("own_room", None)
        with pytest.raises((ValueError, StoreError), match=words):
            act(
                compose_configuration(f"model={tmp_path}/model.nc", *more, command=command),
                tmp_path,
            )


# --- every row of refusals.yaml ends in an error with its words, and nothing is written

LEARNED = [one for one in SHORT_RUN if not one.startswith("insertion")]
ELSEWHERE = ("command line", "search", "collect")
ROWS = [
    (command, *row)
    for command in REFUSALS
    if command not in ELSEWHERE
    for row in REFUSALS[command].items()
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Overrides of a validation of a small model, and of an identification of two records."""
    folder = tmp_path_factory.mktemp("files")
    first, second = (write_record(folder / f"{n}.csv", n=n) for n in (40, 31))
    fitting = [
        *validation_overrides(save_models(folder / "model.nc"), write_record(folder / "test.csv")),
        *ONE_STEP_ONLY,
    ]
    return fitting, csv_overrides(estimation=f"[{first},{second}]")


@pytest.mark.parametrize(
    ("command", "overrides", "words"), ROWS, ids=[" ".join(row[:2]) for row in ROWS]
)
def test_what_is_refused_is_named_and_nothing_is_done(
    command, overrides, words, files, loader, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    given, (fitting, records) = overrides.split(), files
    if given[0].startswith("data="):
        fitting = [one for one in fitting if not one.startswith("data")]
    if given[0].startswith(("data.inputs", "data.outputs")):
        fitting = [one for one in fitting if not one.startswith("data.units")]
    settings = (
        OmegaConf.to_container(OmegaConf.from_dotlist(given))
        if command in (*ENGINE_CLASSES, "optuna")
        else {}
    )
    run = {
        "identify": lambda folder: run_identify(folder, *LEARNED, *given),
        "records": lambda folder: run_identify(folder, *LEARNED, *records, *given),
        "validate": lambda folder: run_validate(folder, *fitting, *given),
        "compare": lambda folder: comparison.run(
            compose_configuration(*given, command="compare"), folder
        ),
        "benchmark": lambda folder: session.run(
            compose_configuration(*given, command="benchmark"), folder
        ),
        "reproduce": lambda folder: reproduction.run(
            compose_configuration(*given, command="reproduce"), folder
        ),
        "generate": lambda folder: generate(folder / "bw", *BOUC_WEN, *given),
        "job": lambda folder: Composer(loader, load_sweep_configuration(loader)).job(given),
        **{
            name: lambda folder, make=make: make(folder, **settings)
            for name, make in ENGINE_CLASSES.items()
        },
        "optuna": lambda folder: search.Settings(**settings),
        "space": lambda folder: search.space_of(given, ["seed"], loader),
    }
    if command in ("optuna", "space"):
        pytest.importorskip("optuna")
    with pytest.raises(Exception) as caught:  # noqa: PT011
        run[command](tmp_path)
    assert is_mistake(caught.value), f"{type(caught.value)} would end in a traceback"
    assert re.search(words, f"{caught.value} {caught.value.__cause__ or ''}", re.DOTALL), (
        caught.value
    )
    assert command != "job" or "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())
