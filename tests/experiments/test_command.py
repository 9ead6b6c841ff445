"""A command from its start to its exit code: in a process of its own, interrupted, and with notes.

`test_refusals.py` tests what commands refuse, `test_help.py` their help.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.cli.build import build_one
from experiments.cli.ends import is_mistake
from helpers.commands import (
    DATA_FILES,
    IDENTIFY_COMMAND,
    ROOT,
    SHORT_RUN,
    SMALLEST_RUN,
    bytes_of_variables,
    load_dataset,
    load_summary,
    printed_by,
    run_command,
    run_identify,
)
from helpers.records import csv_overrides, write_record
from sysid import ErrorThreshold, Identification, Narx
from sysid.gp.formula import JIT_DISABLED

#: longer than any name of a file
LONG = "a" * 300


def run_process(arguments, folder, **environment):
    """Run Python in a process of its own, from a folder, without the variables that are None."""
    variables = os.environ | environment
    process = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={name: value for name, value in variables.items() if value is not None},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, printed_by(process)
    return process


def assert_same_bits(folder, expected_folder):
    """Compare the variables of the data files of two runs."""
    for kind in DATA_FILES:
        dataset = load_dataset(folder, kind)
        expected = load_dataset(expected_folder, kind)
        assert bytes_of_variables(dataset) == bytes_of_variables(expected), kind


# --- processes of their own


@pytest.mark.slow
def test_a_run_from_elsewhere_computes_the_same_bits_and_prints_nothing_strange(finished, tmp_path):
    process = run_process([*IDENTIFY_COMMAND[1:], *SHORT_RUN], tmp_path)
    (folder,) = (tmp_path / "outputs" / "identify").iterdir()
    files = {f"{kind}.nc" for kind in DATA_FILES} | {"summary.json"}
    assert files <= {path.name for path in folder.iterdir()}
    assert not list(folder.glob(".*.tmp"))
    assert_same_bits(folder, finished)
    composed = OmegaConf.load(folder / ".hydra" / "config.yaml")
    stored = OmegaConf.create(load_dataset(folder, "result").attrs["configuration"])
    assert OmegaConf.to_container(composed, resolve=True) == OmegaConf.to_container(stored)
    for word in ("Warning", "Traceback", "DEBUG", "numba", "samples/s]", "\r"):
        assert word not in printed_by(process)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(JIT_DISABLED or os.cpu_count() == 1, reason="nothing is compiled side by side")
def test_a_first_run_compiles_in_two_processes_and_computes_the_same_bits(tmp_path):
    """Without a gate, half as much is compiled."""
    overrides = (*SHORT_RUN, "gate=none")
    expected = run_identify(tmp_path / "expected", *overrides)
    cache = tmp_path / "cache"
    for folder, n_notes in ((tmp_path / "first", 1), (tmp_path / "next", 0)):
        arguments = [*IDENTIFY_COMMAND[1:], *overrides, f"hydra.run.dir={folder}"]
        process = run_process(arguments, tmp_path, NUMBA_CACHE_DIR=str(cache))
        assert printed_by(process).count("The first run compiles") == n_notes
        assert len(list(cache.rglob("dictionary.learn-*.nbc"))) == 1
        assert_same_bits(folder, expected)


#: Runs the command in a process that has no thread variables; figures are off, BLAS has one thread.
#: What takes long to import and is not needed is not imported.
RUN_OWN_SYSTEM = """
import sys
import threadpoolctl
from experiments.identify import main

sys.argv[1:] = {arguments!r}
main()
unwanted = {{'matplotlib', 'scipy.signal', 'scipy.stats', 'casadi'}} & set(sys.modules)
assert not unwanted, unwanted
pools = threadpoolctl.threadpool_info()
threads = [pool['num_threads'] for pool in pools if pool['user_api'] == 'blas']
assert threads and set(threads) == {{1}}, threads
"""


@pytest.mark.slow
def test_folders_of_the_user_do_not_hide_the_toolbox_and_own_modules_are_found(tmp_path):
    """The working folder has a folder named like ours, a module and a configuration."""
    files = {
        "experiments/__init__.py": "raise RuntimeError('the wrong package')\n",
        "conf/system/own.yaml": "_target_: own_system.Own\n",
        "own_system.py": "from simulators import VanDerPol as Own\n",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    arguments = [
        "--config-dir",
        "conf",
        "system=own",
        "narx=van_der_pol",
        "duration=100samples",
        *SMALLEST_RUN,
    ]
    script = RUN_OWN_SYSTEM.format(arguments=arguments)
    no_threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"))
    run_process(["-P", "-c", script], tmp_path, PYTHONPATH=str(ROOT), **no_threads)


# --- runs that are interrupted


def test_ctrl_c_ends_with_its_code_and_keeps_the_results(monkeypatch, tmp_path):
    """The signal arrives while the command simulates."""
    observe_many = Identification.observe_many
    n_calls = 0

    def observe_and_interrupt(self, *arguments, **options):
        nonlocal n_calls
        n_calls += 1
        if n_calls == 100:
            os.kill(os.getpid(), signal.SIGINT)
        return observe_many(self, *arguments, **options)

    monkeypatch.setattr(Identification, "observe_many", observe_and_interrupt)
    monkeypatch.setattr("experiments.plant.live.SAMPLES_PER_BLOCK", 4)
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *SHORT_RUN)
    assert result.code == 130
    assert "Traceback" not in result.out + result.err
    assert f"Run interrupted. Partial results are in {tmp_path}/run" in result.out
    assert {path.stem for path in (tmp_path / "run").glob("*.nc")} == set(DATA_FILES)
    assert load_summary(tmp_path / "run")["partial"] is True


def test_ctrl_c_before_there_are_results_ends_with_its_code(monkeypatch, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("experiments.identify.run.run", interrupt)
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *SHORT_RUN)
    assert result.code == 130
    assert "Interrupted before all results were written" in result.out


# --- notes on settings without effect

SMALL_RUN = ("training.n_initial=12", "budget=10", "figures=false")
#: a short training for the free run, of a system without inputs
FREE_RUN = (
    "system=van_der_pol",
    "excitation=prbs",
    "training=free_run",
    "selection=forward",
    "figures=false",
    "duration=160samples",
    "training.n_initial=60",
    "training.folds=2",
    "training.routes.0.evaluations=3",
    "training.routes.1.stages=1",
    "training.routes.1.search_points=10",
    "budget=10",
)
RULES = ("gate=2", "scale=false", "reduction=prior_entropy")


@pytest.mark.parametrize(
    ("overrides", "ignored"),
    [
        pytest.param([], [], id="groups", marks=pytest.mark.slow),
        pytest.param(RULES, ["scale=false"], id="rules", marks=pytest.mark.slow),
        # no samples are left to learn from: neither the gate nor the reduction has an effect
        pytest.param([*RULES, "training.n_initial=null"], RULES, id="rules without learning"),
    ],
)
def test_settings_that_the_training_replaces_are_listed(overrides, ignored, tmp_path):
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *FREE_RUN, *overrides)
    expected = " ".join(["excitation=prbs", "selection=forward", *ignored])
    assert f"Note: without effect on VanDerPol: {expected}\n" in result.out


def test_a_kernel_and_a_mean_are_refused_if_the_training_chooses_them(tmp_path):
    overrides = ("mean=zero", "kernel=matern_32")
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *FREE_RUN, *overrides)
    message = "mean=zero and kernel=matern_32: this training chooses kernel and mean itself"
    assert message in result.out
    assert result.code != 0


@pytest.fixture
def estimation_record(tmp_path):
    """Overrides of a record in the file ``a.csv``."""
    record = csv_overrides(estimation=write_record(tmp_path / "a.csv", n=60))
    return (*record, "narx=orders")


def test_settings_that_follow_a_stream_have_no_effect_on_a_record(estimation_record, tmp_path):
    overrides = (*estimation_record, *SMALL_RUN, "training.interval=10")
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *overrides)
    assert "without effect on a.csv: training.interval=10" in result.out


def test_settings_of_records_have_no_effect_on_a_stream(tmp_path):
    overrides = (*SMALL_RUN, "duration=160samples", "training.on_records=true")
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *overrides)
    assert "without effect on Building: training.on_records=true" in result.out


#: a simulation with the physics of the same system, whose parameters are known
SIMULATED_PHYSICS = (
    "system=cascaded_tanks",
    "physics=cascaded_tanks",
    "duration=99samples",
    "excitation.rms=1",
)


def test_estimation_settings_of_the_physics_have_no_effect_on_a_simulation(tmp_path):
    ignored = (
        "physics.starts=1",
        "physics.free.pump_gain.lower=0.01",
        "mean=zero",
        "propagation=mean_only",
    )
    overrides = (*SMALL_RUN, *SIMULATED_PHYSICS, *ignored)
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *overrides)
    assert f"without effect on CascadedTanks: {' '.join(ignored)}\n" in result.out
    assert "does not use the physics" not in result.out


def test_physics_without_its_signals_among_the_lags_is_not_used(tmp_path):
    overrides = (*SMALL_RUN, *SIMULATED_PHYSICS, "narx=cascaded_tanks")
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *overrides)
    assert "the model does not use the physics" in result.out


def test_propagation_has_no_effect_without_a_free_run(estimation_record, tmp_path):
    overrides = (*estimation_record, *SMALL_RUN, "identified=1", "propagation=mean_only")
    result = run_command("identify", f"hydra.run.dir={tmp_path}/run", *overrides)
    assert "without effect on a.csv: propagation" in result.out


# --- which errors are mistakes of the user


def build_insertion(**settings):
    """Build an insertion rule as a configuration names it."""
    return build_one({"_target_": "sysid.ErrorThreshold", **settings}, "insertion")


def error_of(function):
    """Return the error that a function raises."""
    with pytest.raises((ValueError, OSError, TypeError)) as caught:
        function()
    return caught.value


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda: Narx({"y": 0}), id="a value"),
        pytest.param(lambda: build_insertion(threshold=1), id="a setting"),
        pytest.param(Path("/no/such/file").read_text, id="a file"),
    ],
)
def test_a_refusal_and_a_failed_operation_are_mistakes(function):
    assert is_mistake(error_of(function))


def test_an_error_of_a_library_is_no_mistake():
    assert not is_mistake(error_of(lambda: np.zeros(2) + np.zeros(3)))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("lambda self: None + 1", id="TypeError"),
        # a ValueError is a mistake of the user only if the toolbox raises it as one
        pytest.param("lambda self: (_ for _ in ()).throw(ValueError('a bug'))", id="ValueError"),
    ],
)
def test_a_bug_of_the_toolbox_is_no_mistake(source, monkeypatch):
    bug = eval(source, {"__name__": "sysid.gp.rules"})
    monkeypatch.setattr(ErrorThreshold, "__post_init__", bug)
    assert not is_mistake(error_of(lambda: build_insertion(error_threshold=1)))


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        pytest.param("benchmark", ["seed=x,-1"], id="benchmark"),
        pytest.param("compare", ["runs=[a],[b]"], id="compare"),
        pytest.param("reproduce", ["seeds=0,-1"], id="reproduce"),
        pytest.param("report", ["folder=a,b"], id="report"),
        pytest.param("collect", ["folder=a,b"], id="collect"),
    ],
)
def test_a_mistake_in_a_multirun_of_hydras_own_launcher_ends_in_one_line(
    command, arguments, tmp_path
):
    result = run_command(command, "-m", *arguments, cwd=tmp_path)
    assert result.code == 1
    assert "Error: " in result.out + result.err
    assert "Traceback" not in result.out + result.err


@pytest.mark.parametrize(
    ("command", "argument"),
    [
        pytest.param("collect", f"metrics=[{LONG}]", id="list"),
        pytest.param("compare", f"runs=[{LONG}]", id="runs"),
        pytest.param("report", LONG, id="folder"),
        pytest.param("export", LONG, id="model"),
        pytest.param("validate", f"{LONG}.nc", id="file"),
        pytest.param("identify", f"{LONG}=1", id="key"),
        pytest.param("identify", f"~{LONG}", id="deleted key"),
        pytest.param("identify", f"system={LONG}", id="option"),
    ],
)
def test_an_argument_longer_than_the_name_of_a_file_ends_in_one_line(command, argument, tmp_path):
    result = run_command(command, argument, cwd=tmp_path)
    assert result.code == 1
    text = result.out + result.err
    assert text.count("\n") == 1
    assert text.startswith("Error: ")


def test_a_list_longer_than_the_name_of_a_file_is_an_override(tmp_path):
    runs = ",".join(f"'{tmp_path}/run_{number}'" for number in range(20))
    result = run_command("compare", f"runs=[{runs}]", cwd=tmp_path)
    assert f"{tmp_path}/run_0" in result.out + result.err
    assert result.code == 1


@pytest.mark.parametrize(
    "override",
    [
        f"training.noise_bounds=[1e-8,{'1' * 400}]",
        f"training.variance_bounds=[{'1' * 400},1]",
        f"insertion.error_threshold={'1' * 400}",
        f"training.interval={'1' * 400}",
    ],
    ids=["second bound", "first bound", "number", "count"],
)
def test_a_number_that_no_float_can_hold_is_refused(override, tmp_path):
    result = run_command("identify", "insertion=error", override, cwd=tmp_path)
    assert result.code == 1
    assert "must be a number of at most 308 digits, got 400" in result.out + result.err
