"""Physics beside a model: its signals, the residual that a GP learns, in a record and in the loop."""

import json
from dataclasses import replace

import numpy as np
import pytest
from running import configured, data_of, execute, summary_of
from scipy.integrate import solve_ivp
from validating import validate

from experiments.physics import START, FittedPhysics, Physics, ResidualNarx, read_physics
from simulators import Building, CascadedTanks, simulate
from sysid import Narx, Recordings, make_record

TRUTH = CascadedTanks(pump_gain=0.05, lower_outflow=0.05, initial_upper=3.0, initial_lower=4.0)
FREE = {name: {"lower": 0.01, "upper": 0.1} for name in ("pump_gain", "lower_outflow")}
INITIAL = {name: {"lower": 0.0, "upper": 10.0} for name in ("initial_upper", "initial_lower")}
TANKS = Physics(CascadedTanks(), FREE, INITIAL, starts=1)
WINDOW = 40


def tank_record(seed, n=400, sensor=0.0, **start):
    """Levels of the true tanks, read by a sensor that is not linear."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.uniform(1.5, 5.0, n // 20 + 1), 20)[:n]
    trajectory = simulate(replace(TRUTH, **start), u)
    level = trajectory.output[:, 0] + sensor * np.sin(trajectory.output[:, 0])
    signals = {"pump_voltage": u, "level": level + 0.01 * generator.standard_normal(n)}
    return make_record(signals, name=f"tanks {seed}", sampling_time=4.0, initialisation_window=WINDOW), trajectory


def recordings(**settings):
    parts = {
        "estimation": (tank_record(0, **settings)[0],),
        "test": (tank_record(1, initial_upper=6.0, **settings)[0],),
    }
    return Recordings("tanks", ("pump_voltage",), ("level",), **parts)


def test_signals_are_those_of_the_differential_equation():
    fitted, joined = TANKS.join(recordings(), seed=0)
    assert joined.inputs == ("pump_voltage", "physics.level", "physics.upper_level")
    assert fitted.estimates()["parameters"]["pump_gain"]["value"] == pytest.approx(0.05, rel=0.01)
    record, start = joined.test[0], tank_record(1, initial_upper=6.0)[1].state[0]
    u, truth = record["pump_voltage"].values, [start]
    for k in range(100):  # the input is held over each sample
        one = solve_ivp(
            lambda t, x, k=k: TRUTH.derivative(t, x, u[k : k + 1], np.zeros(2)), (0, 4), truth[-1], rtol=1e-9
        )
        truth.append(np.clip(one.y[:, -1], 0, 10))
    upper, lower = np.array(truth[:100]).T
    np.testing.assert_allclose(record["physics.level"].values[:100], lower, atol=0.03)
    np.testing.assert_allclose(record["physics.upper_level"].values[10:100], upper[10:], atol=0.1)
    assert record["physics.upper_level"].attrs["units"] == "V"


def test_the_start_of_a_record_is_what_its_first_samples_say():
    fitted, joined = TANKS.join(recordings(), seed=0)
    record = joined.test[0]
    blind = record.assign(
        level=("time", np.where(np.arange(400) < WINDOW, record["level"].values, 0.0), {"units": "V"})
    )
    np.testing.assert_array_equal(fitted.add(blind)["physics.level"], record["physics.level"])
    early = fitted.add(record, window=5)
    assert (early.attrs["initialisation_window"], record.attrs["initialisation_window"]) == (5, WINDOW)
    assert fitted.add(record.assign_attrs(initialisation_window=0)).attrs["initialisation_window"] == START
    with pytest.raises(ValueError, match=r"record 'tanks 1' from its first 2 samples: .*longer records"):
        fitted.add(record, window=2)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An identification of the residual of tanks whose sensor is not linear, from CSV files."""
    folder = tmp_path_factory.mktemp("physics")
    for name, seed in {"estimation": 0, "test": 1}.items():
        tank_record(seed, n=1000, sensor=0.3)[0][["pump_voltage", "level"]].to_dataframe().to_csv(
            folder / f"{name}.csv"
        )
    files = [f"data.{name}={folder / name}.csv" for name in ("estimation", "test")]
    data = ["data=csv", *files, "data.inputs=[pump_voltage]", "data.outputs=[level]", "data.time=time"]
    data.append(f"data.initialisation_window={WINDOW}")
    settings = ("physics=cascaded_tanks", "physics.starts=1", "figures=false", "propagation=mean_only")
    return execute(folder / "run", *data, *settings), data


def test_the_model_corrects_the_physics_in_free_run(run):
    folder, _ = run
    test, summary = data_of(folder, "trajectory"), summary_of(folder)
    judged = test["part"].values == 1
    measured, simulated = (test[name].values[judged][WINDOW:] for name in ("level", "physics.level"))
    alone = np.sqrt(np.mean((measured - simulated) ** 2))
    assert 0.1 < min(alone, summary["physics"]["rmse"]["level"]) <= alone < 0.4
    assert summary["free_run"]["rmse"] == pytest.approx(summary["rmse"], rel=1e-6)  # no output is fed back
    assert summary["rmse"] < 0.6 * alone
    assert set(summary["physics"]["parameters"]) >= {"pump_gain", "initial_upper[0]"}


def test_a_stored_model_knows_its_physics(run, tmp_path):
    folder, data = run
    settings = ("windows=[40,5]", "horizons=[1]", "propagation=mean_only")
    content = validate(tmp_path, f"model={folder / 'model.nc'}", *data, *settings)
    errors = {(entry["horizon"], entry["window"]): entry["rmse"] for entry in content["horizons"]}
    assert errors["free_run", 40] == pytest.approx(summary_of(folder)["rmse"], rel=1e-6)
    assert errors[1, 5] != errors[1, 40]  # the physics starts from other samples
    assert errors["free_run", 5] < 0.15
    unsaid = [one for one in data if not one.startswith("data.initialisation_window")]
    content = validate(tmp_path / "unsaid", f"model={folder / 'model.nc'}", *unsaid, *settings[1:])
    assert content["free_run"]["window"] == START


def test_physics_runs_beside_a_closed_loop(tmp_path):
    wrong = "physics.system.zone_capacity=1.6e6"
    folder = execute(
        tmp_path / "run", "physics=building", wrong, "duration=5d", "training.n_initial=40", "figures=false"
    )
    found, physics = data_of(folder, "trajectory"), replace(Building(), zone_capacity=1.6e6)
    u = np.column_stack([found[signal.name].values for signal in physics.inputs])
    states = simulate(physics, u, noise=False).state
    for i, name in enumerate(("physics.zone_temperature", "physics.wall", "physics.radiator")):
        np.testing.assert_allclose(found[name], states[:, i], rtol=1e-12)
    seen = data_of(folder, "narx")["regressor"].sel(feature="physics.wall[k-1]")
    np.testing.assert_allclose(seen, states[2:-1, 1], rtol=1e-12)
    assert summary_of(folder)["physics"] == {}


def test_what_cannot_be_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"predict=residual needs the physics.*physics=<system>"):
        execute(tmp_path, "narx.predict=residual", "duration=5d")
    with pytest.raises(ValueError, match=r"CascadedTanks has the inputs \['pump_voltage'\].*names"):
        execute(tmp_path, "physics=cascaded_tanks", "duration=5d")
    with pytest.raises(ValueError, match=r"needs the simulated output: add physics\.level: \[0\]"):
        TANKS.mean(Narx({"level": 2}, {"pump_voltage": 1}))
    assert TANKS.mean(ResidualNarx().narx(["level"], ["pump_voltage", "physics.level"])).coefficients == (0.0, 1.0)
    assert configured("physics=cascaded_tanks", "data=cascaded_tanks").narx.predict == "residual"


def test_the_text_in_a_model_names_only_what_is_trusted():
    text = FittedPhysics(TANKS).describe()
    assert read_physics(text, []).physics.system == TANKS.system
    foreign = json.loads(text)
    foreign["system"]["_target_"] = "os.system"
    with pytest.raises(ValueError, match=r"'os\.system' is no class of the toolbox"):
        read_physics(json.dumps(foreign), [])
    with pytest.raises(ValueError, match="expected the text that identification wrote"):
        read_physics("{}", [])
