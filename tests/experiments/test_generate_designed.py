"""Benchmarks whose estimation records have inputs that a model has chosen."""

import numpy as np
import pytest
import xarray as xr
from omegaconf import OmegaConf

from experiments.generate.designed import Designer
from experiments.generate.run import run
from experiments.plant.plant import plant_of
from helpers.benchmarks import MEAN_ONLY, compose_benchmark, generate
from sysid import InformativeInput, Narx, Settings
from sysid.errors import UserError

HORIZON = 40
TRANSIENT = 30
N_RECORDS = 2
TANKS = (
    "system=cascaded_tanks",
    "narx=cascaded_tanks",
    "excitation=informative",
    f"excitation.horizon={HORIZON}",
    "excitation.candidates=4",
    "excitation.output_limits={level:[1,9]}",
    f"transient={TRANSIENT}",
    f"realisations.estimation={N_RECORDS}",
    MEAN_ONLY,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("designed") / "tanks", *TANKS)


def read(folder, file, group):
    return xr.load_dataset(folder / file, group=group)


def test_estimation_records_have_the_inputs_that_were_decided(folder):
    for number in range(N_RECORDS):
        group = f"estimation/record_{number}"
        pump = read(folder, "benchmark.nc", group)["pump_voltage"].values
        plan = read(folder, "plan.nc", group)
        decided = plan["input"].values.ravel()
        decided = decided[np.isfinite(decided)]  # a stretch may be shorter than the longest one
        np.testing.assert_array_equal(decided[TRANSIENT : TRANSIENT + len(pump)], pump)
        assert np.isfinite(plan["gain"].values[-1])


def test_the_model_goes_on_learning_from_one_record_to_the_next(folder):
    first, second = (read(folder, "plan.nc", f"estimation/record_{k}") for k in range(N_RECORDS))
    assert first["fallback"].values[0] == "there is no model yet"
    assert second["fallback"].values[0].startswith("the record has fewer samples")
    assert np.isfinite(second["gain"].values[1])


def test_no_model_chooses_the_inputs_of_the_test(folder):
    plan = xr.open_groups(folder / "plan.nc")
    assert not any("test" in group or "validation" in group for group in plan)
    pump = read(folder, "benchmark.nc", "test")["pump_voltage"].values
    seed = int(read(folder, "truth.nc", "test").attrs["seed"])
    design = InformativeInput({"pump_voltage": (1.0, 5.0)}, horizon=HORIZON, seed=seed)
    drawn = [design.next(None).inputs["pump_voltage"] for _ in range(-(-180 // HORIZON))]
    expected = np.concatenate(drawn)[TRANSIENT : TRANSIENT + len(pump)]
    np.testing.assert_array_equal(pump, expected)


def test_the_same_configuration_gives_the_same_records(folder, tmp_path):
    config = OmegaConf.load(folder / "configuration.yaml")
    again = OmegaConf.merge(config, {"output": str(tmp_path / "again"), "figures": False})
    run(again, tmp_path)
    for file in sorted((folder / "csv").iterdir()):
        assert (tmp_path / "again" / "csv" / file.name).read_bytes() == file.read_bytes()


def test_the_card_states_who_chose_the_inputs(folder):
    card = (folder / "CARD.md").read_text()
    assert "| `pump_voltage` | a model, in the estimation records |" in card
    assert "**Designed inputs:**" in card
    assert "**Closed loop:**" not in card
    assert "sysid.InformationGain" in card


def test_a_designer_needs_designed_inputs():
    plant = plant_of(compose_benchmark("system=cascaded_tanks"))
    designer = Designer([Narx({"level": 2}, {"pump_voltage": 2})], Settings())
    with pytest.raises(UserError, match="a plant with designed inputs"):
        designer.simulate(plant, 10, 0, transient=0, initial_state=None)


def test_a_controller_that_asks_a_model_makes_no_benchmark(monkeypatch, tmp_path):
    monkeypatch.setattr("experiments.generate.run.starts_from_package", lambda: True)
    config = compose_benchmark("system=cascaded_tanks", "controller=mpc", "excitation=none")
    with pytest.raises(UserError, match=r"controller=mpc: .* a controller that asks a model"):
        run(config, tmp_path)


def test_models_of_all_outputs_choose_the_inputs_together(tmp_path):
    folder = generate(
        tmp_path / "tanks",
        "system=quadruple_tank",
        "excitation=informative",
        "excitation.horizon=40",
        "excitation.candidates=4",
        "realisations.estimation=1",
        MEAN_ONLY,
    )
    plan = read(folder, "plan.nc", "estimation")
    assert plan["output"].values.tolist() == ["left_level", "right_level"]
    assert plan["designed"].values.tolist() == ["left_pump", "right_pump"]
    assert np.isfinite(plan["gain"].values[-1])
    assert np.isfinite(plan["planned_mean"].values[-1, 0]).all()
