"""`sysid-validate` on a simulated plant: the loop of its controller, closed around the model."""

import numpy as np
import pytest

from experiments.validate.loop import check_controller, close_loop, variance_of_draws
from helpers.commands import run_identify
from helpers.records import (
    LAGS,
    ONE_STEP_ONLY,
    coupled_signals,
    find_warning,
    has_warning,
    make_model,
    read_validation,
    run_validate,
)
from simulators import PI, Levels
from sysid import JointModel, Model, validate
from sysid.simulation.dynamics import Dynamics
from sysid.simulation.validation import Z_95

WINDOW = 4
N_SAMPLES = 25

#: integral control to 0.3 and 0.1 in turn
CONTROLLER = PI(
    0.5, "y", "u", 0.5, 0.4, minimum=-9.0, maximum=9.0, schedule=Levels((0.3, 0.1), 2.0)
)


# --- the loop against a plain one -----------------------------------------------------------------


def naive_loop(model, time, y, offset):
    """Return the outputs and inputs of one loop, computed sample by sample with lists."""
    y = list(y[:WINDOW])
    u = []
    memory = CONTROLLER.initial_state()
    for k in range(len(time)):
        if k >= WINDOW:
            change = model.predict([[y[k - 1], y[k - 2], u[k - 1]]]).mean.item()
            y.append(y[k - 1] + change + offset)
        command, memory = CONTROLLER.control(time[k], [y[k]], memory)
        u.append(command[0])
    return np.array(y), np.array(u)


def close_coupled_loop(dynamics, changes, **settings):
    """Close the loop of the controller over the coupled signals."""
    data = coupled_signals(N_SAMPLES, 3)
    defaults = {
        "controller": CONTROLLER,
        "time": 0.5 * np.arange(N_SAMPLES),
        "outputs": data["y"][:, None],
        "inputs": data["u"][:, None],
        "window": WINDOW,
        "n_paths": 4,
    }
    return close_loop(dynamics, changes, **(defaults | settings))


def test_every_path_has_its_own_controller_and_ends_where_it_diverges():
    """Before the window the inputs of the plant are those of the controller."""
    dynamics = Dynamics(make_model())
    time = 0.5 * np.arange(N_SAMPLES)
    y = coupled_signals(N_SAMPLES, 3)["y"]
    offsets = np.array([0.0, 0.05, -0.02, 1e6])

    y_paths, u_paths = close_coupled_loop(
        dynamics, lambda x: dynamics.targets(x).mean + offsets[:, None]
    )

    for path, offset in enumerate(offsets[:3]):
        outputs, inputs = naive_loop(dynamics.models[0], time, y, offset)
        np.testing.assert_allclose(y_paths[path, :, 0], outputs, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(u_paths[path, :, 0], inputs, rtol=1e-10, atol=1e-12)
    diverging = 3
    assert y_paths[diverging, WINDOW, 0] > 1e5
    assert np.isnan(y_paths[diverging, WINDOW + 1 :]).all()
    assert np.isnan(u_paths[diverging, WINDOW:]).all()


@pytest.mark.parametrize("window", [1, N_SAMPLES], ids=["fewer than the lags", "all samples"])
def test_a_window_that_leaves_no_lags_or_no_samples_is_refused(window):
    dynamics = Dynamics(make_model())
    with pytest.raises(ValueError, match="window from 2"):
        close_coupled_loop(dynamics, lambda x: dynamics.targets(x).mean, window=window)


def test_bands_of_loops_contain_95_percent_of_the_draws():
    rng = np.random.default_rng(0)
    draws = 0.3 + rng.normal(size=(4000, 2))
    mean = np.zeros(2)

    half_width = Z_95 * np.sqrt(variance_of_draws(mean, draws))

    contained = np.mean(np.abs(draws) <= half_width, axis=0)
    assert contained == pytest.approx(0.95, abs=1e-3)


def test_bands_of_loops_are_infinite_if_more_than_5_percent_of_the_draws_diverge():
    draws = 0.3 + np.random.default_rng(0).normal(size=(4000, 2))
    mean = np.zeros(2)
    draws[:100] = np.nan
    assert np.nanmean(np.abs(variance_of_draws(mean, draws))) < 2
    draws[:300] = np.nan
    assert np.isinf(variance_of_draws(mean, draws)).all()
    assert np.isnan(variance_of_draws(np.full(2, np.nan), draws)).all()


@pytest.mark.parametrize(
    ("controller", "lags", "message"),
    [
        pytest.param(
            PI(output="w", input="u"), LAGS, r"PI reads the output 'w'.*\['y'\]", id="output"
        ),
        pytest.param(
            PI(output="y", input="w"), LAGS, r"PI drives the input 'w'.*\['u'\]", id="input"
        ),
        pytest.param(
            PI(output="y", input="u"),
            {"outputs": {"y": 1}, "inputs": {"u": [0, 1]}},
            "lag 0 of 'u'.*PI",
            id="lag 0",
        ),
    ],
)
def test_a_controller_that_does_not_fit_the_model_is_refused(controller, lags, message):
    model = JointModel.of(make_model(lags=lags))
    with pytest.raises(ValueError, match=message):
        check_controller(model, controller)


# --- the loop in a validation ---------------------------------------------------------------------

TANKS = (
    "system=cascaded_tanks",
    "controller=level_pi",
    "noise.std=0.01",
    "controller.schedule.hold=40",
)


@pytest.fixture(scope="module")
def tank_model(tmp_path_factory):
    """File of a model of the simulated tanks."""
    quick = ("training.n_initial=30", "training.restarts=1", "budget=30", "linear_part=none")
    folder = run_identify(
        tmp_path_factory.mktemp("tanks"),
        *TANKS,
        "duration=160samples",
        *quick,
        "validate=false",
        "figures=false",
    )
    return folder / "model.nc"


@pytest.fixture(scope="module")
def tank_overrides(tank_model):
    """Overrides of a validation of the model of the tanks."""
    return (
        f"model={tank_model}",
        *TANKS,
        "duration=60samples",
        "horizons=[1]",
        "windows=[5]",
    )


@pytest.fixture(scope="module")
def validated(tank_overrides, tmp_path_factory):
    """Folder and content of a validation in the loop of the controller."""
    folder = tmp_path_factory.mktemp("validated")
    draws = ("propagation.n_samples=6", "propagation.n_features=20")
    return folder, run_validate(folder, *tank_overrides, *draws)


@pytest.fixture(scope="module")
def loop(validated):
    """The stored group of the closed loop."""
    return read_validation(validated[0])["closed_loop"]


def test_the_controller_closes_its_loop_around_the_model(validated, loop, tank_model):
    folder, content = validated
    measured = read_validation(folder)["free_run_window_5"]["measured"]
    np.testing.assert_array_equal(loop["measured"], measured)
    closed_loop = content["closed_loop"]
    assert closed_loop.keys() == {"n_paths", "outputs", "inputs"}
    assert closed_loop["outputs"].keys() == {"level"}
    assert closed_loop["inputs"].keys() == {"pump_voltage"}

    series = (loop[name].values[:, 0] for name in ("measured", "mean", "variance"))
    noise_variance = Model.load(tank_model).gp.noise_variance
    expected = validate(*series, noise_variance, window=5)._asdict()
    del expected["msll"]  # needs the trivial prediction, which the model knows
    stored = {name: closed_loop["outputs"]["level"][name] for name in expected}
    assert stored == pytest.approx(expected, rel=1e-9)
    assert (expected["n"], closed_loop["n_paths"], loop.sizes["time"]) == (55, 6, 55)
    assert not np.array_equal(loop["applied"], loop["commanded"])
    assert (loop["variance"].values[5:] > 0).all()
    pictures = {path.stem for path in folder.glob("*.png")}
    assert pictures == {"validation", "closed_loop"}


@pytest.mark.parametrize(
    ("level", "command"),
    [("mean", "commanded"), ("measured", "applied")],
    ids=["loop of the model", "loop of the plant"],
)
def test_both_loops_obey_the_controller(level, command, loop):
    """The commands follow from the level of the same loop by the PI law."""
    set_point = np.where(loop["time"].values // 40 % 2 == 0, 4.0, 6.0)
    error = set_point - loop[level].values[:, 0]
    u = loop[command].values[:, 0]
    is_inside_limits = (u > 0) & (u < 10)
    steps = is_inside_limits[:-1] & is_inside_limits[1:]
    assert steps.sum() > 10
    integral_changes = np.diff(u - 0.3 * error)[steps]
    expected = (0.001 * 4.0 * error[:-1])[steps]
    np.testing.assert_allclose(integral_changes, expected, rtol=1e-6, atol=1e-9)


def lags_of_input_tests(content):
    """Return the numbers of lags, less the stated one, of the tests with an input."""
    residuals = content["residuals"]["one_step"]
    return {
        test["n_lags"] - residuals["n_lags"]
        for test in residuals["tests"]
        if test["name"] == "input"
    }


def test_a_validation_with_the_seed_of_the_identification_is_warned_about(
    validated, tank_overrides, tmp_path
):
    _, content = validated
    assert not has_warning(content, "seed")

    content = run_validate(tmp_path, *tank_overrides, *ONE_STEP_ONLY, "seed=0")

    assert find_warning(content, "has the same seed 0 as the identification")
    assert content["closed_loop"]["n_paths"] == 0, "mean_only has no bands"
    assert content["closed_loop"]["outputs"]["level"]["coverage_95"] is None


def test_a_simulation_in_open_loop_has_no_closed_loop(validated, tank_overrides, tmp_path):
    """An input that depends on the output is tested from lag 1, another one from lag 0."""
    open_loop = [text for text in tank_overrides if not text.startswith("controller")]

    content = run_validate(tmp_path, *open_loop, *ONE_STEP_ONLY)

    assert content["closed_loop"] is None
    assert content["free_run"]["n"] == 55
    assert lags_of_input_tests(content) == {1}
    assert lags_of_input_tests(validated[1]) == {0}
