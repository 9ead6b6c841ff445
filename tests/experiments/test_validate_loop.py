"""The loop of a controller around an identified model, and models that are validated when they are identified."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
from running import execute, summary_of
from scipy.stats import norm
from validating import LAGS, QUICK, csv_file, model, signals, stored, validate

from experiments import identification
from experiments.launch import Stopped
from experiments.validation.loop import check_controller, close_loop, variance_of_draws
from simulators import PI, Controller
from sysid import JointModel, Model
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.validation import Z_95

WINDOW, N = 4, 25
TANKS = ("system=cascaded_tanks", "controller=level_pi", "noise.std=0.01", "controller.schedule.hold=40")


@dataclass(frozen=True)
class Feedback(Controller):
    """Integral control to 0.3."""

    output: str = "y"
    input: str = "u"

    @property
    def outputs_read(self):
        return (self.output,)

    @property
    def inputs_driven(self):
        return (self.input,)

    def initial_state(self):
        return (0.0,)

    def control(self, time, output, state):
        error = 0.3 + 0.1 * np.sin(time) - output[0]
        total = state[0] + 0.2 * error
        return (0.5 * error + total,), (total,)


def naive_loop(one, controller, time, y, u, window, offset=0.0):
    """One loop by hand, with lists."""
    y, u, memory = list(y[:window]), [], controller.initial_state()
    for k in range(len(time)):
        if k >= window:
            y.append(y[k - 1] + one.predict([[y[k - 1], y[k - 2], u[k - 1]]]).mean.item() + offset)
        command, memory = controller.control(time[k], [y[k]], memory)
        u.append(command[0])
    return np.array(y), np.array(u)


@pytest.fixture(scope="module")
def loop():
    """Dynamics of a model, and signals of a plant; its inputs before the window are those of the controller."""
    time, data = 0.5 * np.arange(N), signals(N, 3)
    return Dynamics(model()), time, data["y"][:, None], data["u"][:, None]


def test_every_path_has_a_controller_of_its_own_and_ends_where_it_diverges(loop):
    dynamics, time, y, u = loop
    offsets, controller = np.array([0.0, 0.05, -0.02, 1e6]), Feedback(0.5)
    settings = {"controller": controller, "time": time, "outputs": y, "inputs": u}
    settings |= {"window": WINDOW, "n_paths": 4}
    y_paths, u_paths = close_loop(dynamics, lambda x: dynamics.targets(x).mean + offsets[:, None], **settings)
    for path, offset in enumerate(offsets[:3]):
        outputs, inputs = naive_loop(dynamics.models[0], controller, time, y[:, 0], u[:, 0], WINDOW, offset)
        np.testing.assert_allclose(y_paths[path, :, 0], outputs, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(u_paths[path, :, 0], inputs, rtol=1e-10, atol=1e-12)
    assert y_paths[3, WINDOW, 0] > 1e5
    assert np.isnan(y_paths[3, WINDOW + 1 :]).all()
    assert np.isnan(u_paths[3, WINDOW:]).all()
    for window in (1, N):
        with pytest.raises(ValueError, match="window from 2"):
            close_loop(dynamics, lambda x: dynamics.targets(x).mean, **(settings | {"window": window}))


def test_bands_of_loops_hold_so_many_of_them():
    rng = np.random.default_rng(0)
    drawn, mean = 0.3 + rng.normal(size=(4000, 2)), np.zeros(2)
    half = Z_95 * np.sqrt(variance_of_draws(mean, drawn))
    assert np.mean(np.abs(drawn) <= half, axis=0) == pytest.approx(0.95, abs=1e-3)
    drawn[:100] = np.nan
    assert np.nanmean(np.abs(variance_of_draws(mean, drawn))) < 2
    drawn[:300] = np.nan
    assert np.isinf(variance_of_draws(mean, drawn)).all()
    assert np.isnan(variance_of_draws(np.full(2, np.nan), drawn)).all()


def test_a_controller_that_does_not_fit_the_model():
    direct = {"outputs": {"y": 1}, "inputs": {"u": [0, 1]}}
    for controller, lags, words in (
        (PI(output="w", input="u"), LAGS, r"PI reads the output 'w'.*\['y'\]"),
        (PI(output="y", input="w"), LAGS, r"PI drives the input 'w'.*\['u'\]"),
        (PI(output="y", input="u"), direct, "lag 0 of 'u'.*PI"),
    ):
        with pytest.raises(ValueError, match=words):
            check_controller(JointModel.of(model(lags=lags)), controller)


@pytest.fixture(scope="module")
def tanks(tmp_path_factory):
    """Model of the simulated tanks, and a validation in the loop of their controller."""
    folder = tmp_path_factory.mktemp("tanks")
    learned = ("duration=160samples", "training.n_initial=30", "training.restarts=1", "budget=30", "figures=false")
    execute(folder / "identified", *TANKS, *learned)
    checked = (f"model={folder}/identified/model.nc", *TANKS, "duration=60samples", "horizons=[1]", "windows=[5]")
    content = validate(folder / "validated", *checked, "propagation.n_samples=6", "propagation.n_features=20")
    return folder, checked, content


def test_the_controller_closes_its_loop_around_the_model(tanks):
    folder, _, content = tanks
    group = stored(folder / "validated")["closed_loop"]
    one = Model.load(folder / "identified" / "model.nc")
    measured = stored(folder / "validated")["free_run_window_5"]["measured"]
    np.testing.assert_array_equal(group["measured"], measured)
    found = content["closed_loop"]
    assert found.keys() == {"n_paths", "outputs", "inputs"}
    assert (found["outputs"].keys(), found["inputs"].keys()) == ({"level"}, {"pump_voltage"})
    error = (group["measured"] - group["mean"]).values[:, 0]
    assert found["outputs"]["level"]["rmse"] == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-12)
    predictive = norm(group["mean"], np.sqrt(group["variance"] + one.gp.noise_variance))
    nlpd = -predictive.logpdf(group["measured"]).mean()
    assert found["outputs"]["level"]["nlpd"] == pytest.approx(nlpd, rel=1e-9)
    assert (found["outputs"]["level"]["n"], found["n_paths"]) == (55, 6)
    assert group.sizes["time"] == 55
    assert not np.array_equal(group["applied"], group["commanded"])
    assert (group["variance"].values[5:] > 0).all()
    assert {path.stem for path in (folder / "validated").glob("*.png")} == {"validation", "closed_loop"}


def test_both_loops_obey_the_controller(tanks):
    """Commands follow from the level of their own loop alone: recomputed with the PI law from the stored level."""
    group = stored(tanks[0] / "validated")["closed_loop"]
    set_point = np.where(group["time"].values // 40 % 2 == 0, 4.0, 6.0)
    for read, driven in (("mean", "commanded"), ("measured", "applied")):
        command, error = group[driven].values[:, 0], set_point - group[read].values[:, 0]
        inside = (command > 0) & (command < 10)
        steps = inside[:-1] & inside[1:]
        assert steps.sum() > 10
        change = np.diff(command - 0.3 * error)[steps]
        np.testing.assert_allclose(change, (0.001 * 4.0 * error[:-1])[steps], rtol=1e-6, atol=1e-9)


def test_a_simulation_in_open_loop(tanks, tmp_path):
    _, checked, content = tanks
    again = validate(tmp_path / "again", *checked, *QUICK, "seed=0")
    assert again["closed_loop"]["n_paths"] == 0
    assert again["closed_loop"]["outputs"]["level"]["coverage_95"] is None
    open_loop = [override for override in checked if not override.startswith("controller")]
    alone = validate(tmp_path / "open", *open_loop, *QUICK)
    assert (alone["closed_loop"], alone["free_run"]["n"]) == (None, 55)
    for run, from_lag_0 in ((content, 0), (alone, 1)):  # an input that answers to the output is tested from lag 1
        found = run["residuals"]["one_step"]
        assert {t["n_lags"] for t in found["tests"] if t["name"] == "input"} == {found["n_lags"] + from_lag_0}


RECORD = ("data=csv", "data.inputs=[u]", "data.outputs=[y]", "data.dt=0.5", "data.units={y:V}", "narx=lags")
SMALL = ("training.n_initial=12", "training.restarts=1", "budget=15", "figures=false", "propagation=mean_only")
OWN_LAGS = ("+narx.outputs.y=2", "+narx.inputs.u=[1]")


@pytest.fixture
def record(tmp_path):
    files = (csv_file(tmp_path / "estimation.csv", n=60, seed=2), csv_file(tmp_path / "test.csv", n=30, seed=5))
    return (*RECORD, *SMALL, *OWN_LAGS, *(f"data.{path.stem}={path}" for path in files))


def test_an_identification_from_a_record_validates_on_its_test(record, tmp_path):
    folder = execute(tmp_path / "run", *record)
    one, summary = Model.load(folder / "model.nc"), summary_of(folder)
    content = json.loads((folder / "validation.json").read_text())
    data, y = signals(30, 5), list(signals(30, 5)["y"][:2])
    for k in range(2, 30):
        y.append(y[k - 1] + one.predict([[y[k - 1], y[k - 2], data["u"][k - 1]]]).mean.item())
    rmse = np.sqrt(np.mean((np.array(y) - data["y"])[2:] ** 2))
    assert content["free_run"]["rmse"] == pytest.approx(rmse, rel=1e-9)
    assert summary["free_run"] == content["free_run"]
    assert content["one_step"]["rmse"] == pytest.approx(summary["rmse"], rel=1e-9)
    assert set(content["warnings"]) <= set(summary["warnings"])
    assert stored(folder).keys() >= {"one_step_window_2", "free_run_window_2", "residual_tests_one_step"}
    y = signals(60, 2)["y"][2:]
    assert (one.origin.sampling_time, one.origin.n_samples, dict(one.origin.units)) == (0.5, 58, {"y": "V"})
    assert (one.origin.output_mean, one.origin.output_variance) == pytest.approx((y.mean(), y.var()), rel=1e-12)


def test_what_is_not_or_cannot_be_validated_is_told_and_the_rest_is_there(record, tmp_path):
    half = ("data.outputs=[y,z]", "+narx.outputs.z=1", "narx.target=y")  # one of two outputs is predicted
    for without in (("validate=false",), ("data.test=[]", "identified=1"), half):
        folder = execute(tmp_path / without[0], *record, *without)
        assert summary_of(folder)["free_run"] is None
        assert not list(folder.glob("validation*"))
        assert (folder / "model.nc").exists()
        told = any("not validated in free run" in words for words in summary_of(folder)["warnings"])
        assert told == (without == half)


def test_an_interrupt_while_validating_keeps_the_identification(record, tmp_path, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(identification, "validate_on_test", interrupted)
    with pytest.raises(Stopped) as caught:
        execute(tmp_path / "run", *record)
    assert caught.value.exit_code == 130
    assert summary_of(tmp_path / "run")["partial"] is False
    assert Model.load(tmp_path / "run" / "model.nc").gp.n_points == 15
    assert not list((tmp_path / "run").glob("validation*"))
