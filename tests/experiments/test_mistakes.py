"""Code that explains an error in other words does not explain a bug of the toolbox."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf

import experiments.generate.baselines
import experiments.generate.benchmark
import experiments.identify.linear
import experiments.plant.lags
import experiments.plant.physics
import experiments.plant.recorded
import experiments.validate.report
import hydra_plugins.sysid_sweep.plugins
import simulators.grey_box
import simulators.many
import sysid.data.source
import sysid.model.model
from experiments.cli.build import model_of
from experiments.cli.ends import is_mistake
from helpers.commands import compose_configuration, run_command
from helpers.records import save_models
from simulators import CascadedTanks
from sysid import JointModel, Model, Narx, OnlineGP, Recordings, Settings


def error_of_a_bug():
    """Return the error that NumPy raises if shapes do not fit."""
    try:
        np.zeros(2) + np.zeros(3)
    except ValueError as error:
        return error
    return None


BUG = error_of_a_bug()


def raise_bug(*arguments, **options):
    """Raise the error of a bug."""
    raise BUG


def do_nothing(*arguments, **options):
    """Take the place of a function that does not matter here."""


#: stand-ins for recordings of one output, and for their source
RECORDINGS = SimpleNamespace(
    name="r",
    inputs=("u",),
    outputs=("y",),
    is_static=False,
    estimation=(),
    test=(1,),
    validation=(),
)
SOURCE = SimpleNamespace(
    recordings=lambda: RECORDINGS,
    learned=lambda: RECORDINGS.estimation,
    physics=None,
    lag_choice=None,
)


# each function calls code that explains errors, with a bug in what this code calls


def choose_lags_automatically(monkeypatch, folder):
    monkeypatch.setattr(experiments.plant.lags, "choose_lags", raise_bug)
    experiments.plant.lags.AutomaticNarx().of_records(RECORDINGS, Settings())


def estimate_initial_state(monkeypatch, folder):
    def inputs_and_outputs(*arguments):
        return np.zeros(3), np.zeros(3)

    monkeypatch.setattr(experiments.plant.physics, "_inputs_and_outputs", inputs_and_outputs)
    physics = SimpleNamespace(system=None, initial_parameters={}, estimate=raise_bug)
    fitted = SimpleNamespace(physics=physics, covariance=None)
    record = SimpleNamespace(attrs={"name": "r"})
    experiments.plant.physics.FittedPhysics._estimate_initial_state(fitted, record, 3)


def validate_on_test(monkeypatch, folder):
    joint_model = SimpleNamespace(of=raise_bug)
    monkeypatch.setattr(experiments.validate.report, "JointModel", joint_model)
    experiments.validate.report.validate_on_test(SOURCE, SimpleNamespace(), raise_bug, 0)


def compare_with_linear_models(monkeypatch, folder):
    linear_arx = SimpleNamespace(fit=do_nothing)
    monkeypatch.setattr(experiments.identify.linear, "best_arx", raise_bug)
    monkeypatch.setattr(experiments.identify.linear, "LinearArx", linear_arx)
    result = SimpleNamespace(
        identification=SimpleNamespace(narx=Narx({"y": 1})),
        source=SOURCE,
        validation=SimpleNamespace(sizes={"sample": 1}),
        notes=[],
        dead_times=None,
    )
    experiments.identify.linear.compare_linear(result, simulates=False)


def choose_lags_of_a_baseline(monkeypatch, folder):
    """The lags of the first output are found; those of the second end in a bug."""
    narx = SimpleNamespace(target="y", output_names=("y", "z"))
    lags_of_outputs = [Narx({"y": 1, "z": 1})]

    def replace(*arguments, **options):
        if not lags_of_outputs:
            raise BUG
        return lags_of_outputs.pop()

    monkeypatch.setattr(experiments.generate.baselines, "replace", replace)
    task = SimpleNamespace(outputs=("y", "z"), inputs=())
    experiments.generate.baselines.choose_lags(narx, task, 9, 0)


def count_samples_of_a_record(monkeypatch, folder):
    monkeypatch.setattr(experiments.generate.benchmark, "samples_of", raise_bug)
    experiments.generate.benchmark.count_samples("test", "1min", 0.5)


def simulate_a_record(monkeypatch, folder):
    plan = SimpleNamespace(name="fit", role="estimation", seed=0, n_samples=9)
    plant = SimpleNamespace(system=CascadedTanks(), trajectory=raise_bug)
    monkeypatch.setattr(experiments.generate.benchmark, "draw_initial_state", do_nothing)
    experiments.generate.benchmark.simulate_record(plan, plant, {}, transient=0, window=0)


def sweep_a_grid(monkeypatch, folder):
    plugins = hydra_plugins.sysid_sweep.plugins
    monkeypatch.setattr(plugins, "_check_sweeps", raise_bug)
    monkeypatch.setattr(plugins, "check_launcher", do_nothing)
    monkeypatch.setattr(plugins, "SweepLauncher", SimpleNamespace)
    sweeper = plugins.GridSweeper(None)
    sweeper.config = SimpleNamespace()
    sweeper.hydra_context = SimpleNamespace(config_loader=None)
    sweeper.launcher = SimpleNamespace()
    sweeper.sweep(["seed=1,2"])


def vary_a_system(monkeypatch, folder):
    system = CascadedTanks()
    monkeypatch.setattr(CascadedTanks, "__post_init__", raise_bug)
    simulators.many._vary_system(system, {"dt": np.ones(2)}, 2)


def simulate_in_parallel(monkeypatch, folder):
    simulators.many._run_in_parallel(raise_bug, 2, 1)


def simulate_a_grey_box(monkeypatch, folder):
    problem = SimpleNamespace(counts=Counter(), systems=raise_bug, system=CascadedTanks())
    simulators.grey_box.OutputError.simulate(problem, np.zeros(1))


def load_a_model(monkeypatch, folder):
    path = save_models(folder / "model.nc")
    monkeypatch.setattr(OnlineGP, "restore", raise_bug)
    Model.load(path)


def load_joint_models(monkeypatch, folder):
    monkeypatch.setattr(sysid.model.model, "read_models", lambda path: {"y": None})
    monkeypatch.setattr(Model, "restored", raise_bug)
    JointModel.load("model.nc")


def read_recordings(monkeypatch, folder):
    monkeypatch.setattr(sysid.data.source, "read_records", raise_bug)
    Recordings("r", ("u",), ("y",))


@pytest.mark.parametrize(
    "call",
    [
        choose_lags_automatically,
        estimate_initial_state,
        validate_on_test,
        compare_with_linear_models,
        choose_lags_of_a_baseline,
        count_samples_of_a_record,
        simulate_a_record,
        sweep_a_grid,
        vary_a_system,
        simulate_in_parallel,
        simulate_a_grey_box,
        load_a_model,
        load_joint_models,
        read_recordings,
    ],
    ids=lambda call: call.__name__,
)
def test_a_bug_is_not_explained_as_a_mistake_of_the_user(call, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="could not be broadcast") as caught:
        call(monkeypatch, tmp_path)
    assert caught.value is BUG
    assert not is_mistake(caught.value)


@pytest.mark.parametrize("reason", ["Unable to allocate 7.28 TiB for an array", ""])
def test_what_does_not_fit_into_memory_ends_in_one_line(reason, tmp_path, monkeypatch):
    def fail(config):
        raise MemoryError(reason)

    monkeypatch.setattr("experiments.identify.run.read_settings", fail)
    done = run_command("identify", "duration=400samples", cwd=tmp_path)
    assert done.code == 1
    assert "Traceback" not in done.out + done.err
    assert f"Error: not enough memory{f' ({reason})' if reason else ''}: ask for fewer" in done.out


@pytest.mark.parametrize(
    ("argument", "advice"),
    [
        ("purpose=simulation", "training=free_run"),
        ("max_points=50", "budget="),
        ("inputs=[u]", "data.inputs="),
        ("test=a.csv", "data.test="),
    ],
)
def test_an_argument_of_python_is_answered_with_the_one_of_the_command(argument, advice):
    done = run_command("identify", argument)
    assert done.code == 1
    assert advice in done.err
    assert done.err.count("\n") == 1


def test_a_typed_duration_is_refused_for_a_record_before_it_is_read(monkeypatch):
    config = compose_configuration("data=csv", "data.estimation=missing.csv")
    overrides = ("data=csv", "data.estimation=missing.csv")
    monkeypatch.setattr(experiments.plant.recorded, "given_overrides", lambda: overrides)
    experiments.plant.recorded.refuse_simulation(config)
    given = (*overrides, "duration=4h")
    monkeypatch.setattr(experiments.plant.recorded, "given_overrides", lambda: given)
    with pytest.raises(ValueError, match="duration=4h would only"):
        experiments.plant.recorded.refuse_simulation(config)


@pytest.mark.parametrize("has_runs", [True, False], ids=["runs", "no runs"])
def test_a_missing_model_is_answered_with_one_that_exists(tmp_path, monkeypatch, has_runs):
    monkeypatch.chdir(tmp_path)
    advice = "name the model.nc"
    if has_runs:
        for name in ("1", "2"):
            folder = tmp_path / "outputs" / "identify" / name
            folder.mkdir(parents=True)
            (folder / "model.nc").write_text("")
        advice = "model=outputs/identify/2/model.nc"
    with pytest.raises(ValueError, match=f"no.nc: there is no such file; .*{advice}"):
        model_of(OmegaConf.create({"model": "no.nc"}))
