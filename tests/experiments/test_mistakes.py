"""Where an error is told in other words, a fault of ours goes on as it is."""

from collections import Counter
from types import SimpleNamespace as Some

import numpy as np
import pytest

import experiments.generate.baselines
import experiments.generate.benchmark
import experiments.identify.linear
import experiments.plant.lags
import experiments.plant.physics
import experiments.validate.report
import hydra_plugins.sysid_sweep.plugins
import simulators.grey_box
import simulators.many
import sysid.data.source
import sysid.model.model
from experiments.cli.ends import is_mistake
from helpers.records import save_models
from simulators import CascadedTanks
from sysid import JointModel, Model, Narx, OnMissing, Recordings, Settings, Target

try:
    np.zeros(2) + np.zeros(3)
except ValueError as error:
    FAULT = error

RECORDINGS = Some(
    name="r",
    inputs=("u",),
    outputs=("y",),
    is_static=False,
    estimation=(),
    test=(1,),
    validation=(),
)
SOURCE = Some(recordings=lambda: RECORDINGS, physics=None)


def fault(*_, **__):
    raise FAULT


def lags(patch, _):
    patch.setattr(experiments.plant.lags, "choose_lags", fault)
    experiments.plant.lags.AutomaticNarx().of_records(RECORDINGS, Settings())


def physics(patch, _):
    patch.setattr(
        experiments.plant.physics, "_inputs_and_outputs", lambda *_: (np.zeros(3), np.zeros(3))
    )
    fitted = Some(physics=Some(system=None, initial_parameters={}, estimate=fault))
    experiments.plant.physics.FittedPhysics._estimate_initial_state(
        fitted, Some(attrs={"name": "r"}), 3
    )


def report(patch, _):
    patch.setattr(experiments.validate.report, "JointModel", Some(of=fault))
    experiments.validate.report.validate_on_test(SOURCE, Some(), fault, 0)


def linear(patch, _):
    patch.setattr(experiments.identify.linear, "best_arx", fault)
    patch.setattr(experiments.identify.linear, "LinearArx", Some(fit=lambda *_: None))
    narx = Some(target="y", predict=Target.change, on_missing=OnMissing.error)
    result = Some(
        identification=Some(narx=narx),
        source=SOURCE,
        validation=Some(sizes={"sample": 1}),
        notes=[],
    )
    experiments.identify.linear.compare_linear(result, simulates=False)


def baselines(patch, _):
    given = Some(target="y", output_names=("y", "z"))
    found = iter([Narx({"y": 1, "z": 1})])
    patch.setattr(
        experiments.generate.baselines,
        "replace",
        lambda *_, **__: next(found, None) or fault(),
    )
    experiments.generate.baselines.choose_lags(given, Some(outputs=("y", "z"), inputs=()), 9, 0)


def length(patch, _):
    patch.setattr(experiments.generate.benchmark, "samples_of", fault)
    experiments.generate.benchmark.count_samples("test", "1min", 0.5)


def record(patch, _):
    plan = Some(name="test", role="test", seed=0, n_samples=9)
    plant = Some(system=CascadedTanks(), trajectory=fault)
    patch.setattr(experiments.generate.benchmark, "draw_initial_state", lambda *_: None)
    experiments.generate.benchmark.simulate_record(plan, plant, {}, transient=0, window=0)


def sweep(patch, _):
    plugins = hydra_plugins.sysid_sweep.plugins
    for name, value in {
        "_check_sweeps": fault,
        "check_launcher": lambda *_: None,
        "SweepLauncher": Some,
    }.items():
        patch.setattr(plugins, name, value)
    sweeper = plugins.GridSweeper(None)
    sweeper.config, sweeper.hydra_context, sweeper.launcher = (
        Some(),
        Some(config_loader=None),
        Some(),
    )
    sweeper.sweep(["seed=1,2"])


def variation(patch, _):
    system = CascadedTanks()
    patch.setattr(CascadedTanks, "__post_init__", fault)
    simulators.many._vary_system(system, {"dt": np.ones(2)}, 2)


def trajectory(_, __):
    simulators.many._run_in_parallel(fault, 2, 1)


def grey_box(patch, _):
    problem = Some(counts=Counter(), systems=fault, system=CascadedTanks())
    simulators.grey_box.OutputError.simulate(problem, np.zeros(1))


def model_file(patch, folder):
    path = save_models(folder / "model.nc")
    patch.setattr(sysid.OnlineGP, "restore", fault)
    Model.load(path)


def joint_models(patch, _):
    patch.setattr(sysid.model.model, "read_models", lambda _: {"y": None})
    patch.setattr(Model, "restored", fault)
    JointModel.load("model.nc")


def records(patch, _):
    patch.setattr(sysid.data.source, "read_records", fault)
    Recordings("r", ("u",), ("y",))


PLACES = [
    *(
        lags,
        physics,
        report,
        linear,
        baselines,
        length,
        record,
        sweep,
        variation,
        trajectory,
        grey_box,
    ),
    *(model_file, joint_models, records),
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_a_fault_of_ours_is_not_told_as_a_mistake_of_the_user(place, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match="could not be broadcast") as caught:
        place(monkeypatch, tmp_path)
    assert caught.value is FAULT
    assert not is_mistake(caught.value)
