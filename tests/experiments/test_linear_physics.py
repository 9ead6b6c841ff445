"""Physics as a part of the linear view of a model."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.plant.linear_physics import BAND_LIMITED_NOTE, LinearPhysics, load_physics
from experiments.plant.physics import FittedPhysics, Physics
from experiments.report.page import describe_linearly
from helpers.commands import run_identify
from helpers.records import run_validate, save_models
from simulators import (
    APRBS,
    Building,
    CascadedTanks,
    Heater,
    MeasurementNoise,
    Silverbox,
    excite,
    linearise,
    simulate,
)
from sysid import (
    AffineMap,
    LinearMean,
    LinearView,
    Model,
    Narx,
    OnlineGP,
    Origin,
    SquaredExponential,
    UserError,
    make_record,
    store,
)
from sysid.simulation.empirical_response import empirical_response

# the notes of a view are warnings, too
pytestmark = pytest.mark.filterwarnings("ignore:linearize at:UserWarning")

#: a small change of the input, whose response is linear, relative to the input
STEP = 1e-4
TANKS = CascadedTanks()
SYSTEMS = {
    "tanks": (TANKS, [2.7], "held"),
    "tanks, linear input": (TANKS, [2.7], "linear"),
    "late inputs": (Heater(dt=5.0, heat_delay=4), [50.0, 4.0], "held"),
    "late inputs, linear": (Heater(dt=5.0, heat_delay=4), [50.0, 4.0], "linear"),
    "building": (Building(), [5.0, 0.05], "held"),
}


def physics_of(system, **settings):
    """Return physics without free parameters."""
    return LinearPhysics(FittedPhysics(Physics(system, **settings)))


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_recursion_is_that_of_a_simulation_with_a_small_step(name):
    system, u, interpolation = SYSTEMS[name]
    physics = physics_of(system, interpolation=interpolation)
    point = dict(zip(physics.inputs, u, strict=True))
    steady = physics.steady(point)
    found = physics.linear({**point, **steady})
    n_before, n = 10, 30
    state = np.array([steady[physics.names[i]] for i in physics._columns_of_states])
    for column, value in enumerate(u):
        responses = []
        for sign in (1.0, -1.0):
            inputs = np.tile(u, (n, 1))
            inputs[n_before:, column] += sign * STEP * value
            simulated = simulate(
                system, inputs, initial_state=state, interpolation=interpolation, noise=False
            )
            responses.append(physics.fitted.values(simulated.state))
        expected = (responses[0] - responses[1]) / (2 * STEP * value)
        s = np.zeros((n, len(physics.names)))
        for k in range(1, n):
            s[k] = found.A @ s[k - 1]
            for j, of_lag in enumerate(found.B):
                if k - j >= n_before:
                    s[k] += of_lag[:, column]
        np.testing.assert_allclose(s, expected, atol=1e-5 * np.abs(expected).max())


def test_a_band_limited_input_counts_as_linear_with_a_note():
    silverbox = Silverbox()
    band_limited = physics_of(silverbox, interpolation="band_limited")
    linear = physics_of(silverbox, interpolation="linear")
    values = {**linear.steady({"input_voltage": 0.0}), "input_voltage": 0.0}
    np.testing.assert_array_equal(band_limited.linear(values).B, linear.linear(values).B)
    assert band_limited.notes == (BAND_LIMITED_NOTE,)
    assert linear.notes == ()


def test_signals_are_added_to_a_record_once():
    physics = physics_of(TANKS)
    u = np.full(60, 2.5)
    level = simulate(TANKS, u[:, None], noise=False).output[:, 0]
    record = make_record({"pump_voltage": u, "level": level}, name="tanks", sampling_time=4.0)
    added = physics.add(record)
    np.testing.assert_allclose(added["physics.level"], level)
    assert physics.add(added) is added
    with pytest.raises(UserError, match=r"has the inputs.*pump_voltage"):
        physics.add(record.drop_vars("pump_voltage"))


def test_a_point_without_a_steady_state_is_refused():
    with pytest.raises(UserError, match="physics: steady_state: CascadedTanks"):
        physics_of(TANKS).steady({"pump_voltage": 60.0})


# --- models beside right and wrong equations ------------------------------------------------------


def excited_tanks(seed=0, n=3000):
    """Return a record of the tanks whose pump voltage visits many levels."""
    signal = APRBS(low=-1.0, high=0.3, shortest_hold=40, longest_hold=800, offset=2.7)
    u = excite({"pump_voltage": signal}, n, TANKS.dt, seed=seed)["pump_voltage"]
    trajectory = simulate(TANKS, u[:, None], measurement=MeasurementNoise(snr_db=50), seed=seed)
    return trajectory.to_dataset()


def learn(physics, record, inputs, output_lags):
    """Return a model with these features and fixed hyper-parameters that learned a record."""
    narx = Narx({"level": output_lags}, inputs, predict="value")
    added = physics.add(record)
    rows = narx.dataset(added)
    x = rows["regressor"].values
    y = rows["target"].values
    mean = LinearMean().fitted(x, y)
    std = float(np.std(y - mean(x)))
    gp = OnlineGP(
        SquaredExponential(std**2, [5.0] * narx.n_features), noise_variance=std**2, budget=60
    )
    model = Model(narx, AffineMap.fit(x), mean, gp, Origin.of(rows))
    model.update_many(x, y)
    return model


def errors_of(found, record):
    """Return errors [dB, deg] that 90 % of the excited frequencies of the tanks do not exceed.

    They are those of a linear view, or of the linearisation of other tanks.
    """
    signals = {name: record[name].values for name in ("level", "pump_voltage")}
    spectra = empirical_response([signals], "level", ["pump_voltage"], TANKS.dt)
    f = np.geomspace(*spectra.band(0), 40)
    is_view = isinstance(found, LinearView)
    response = found.mean_response(f) if is_view else found.frequency_response(f)
    ratio = response[:, 0, 0] / linearise(TANKS, [2.7]).frequency_response(f)[:, 0, 0]
    decibels = np.abs(20 * np.log10(np.abs(ratio)))
    degrees = np.degrees(np.abs(np.angle(ratio)))
    return np.quantile(decibels, 0.9), np.quantile(degrees, 0.9)


def test_beside_the_right_equations_the_view_is_their_linearisation():
    physics = physics_of(TANKS)
    record = excited_tanks()
    narx = Narx({"level": []}, {"pump_voltage": [0], "physics.level": [0]}, predict="value")
    x = narx.dataset(physics.add(record))["regressor"].values
    gp = OnlineGP(SquaredExponential(1e-12, [2.0, 2.0]), noise_variance=1e-4, budget=5)
    mean = LinearMean([0.0, 1.0])
    model = Model(narx, AffineMap.fit(x), mean, gp, Origin(sampling_time=4.0))
    model = replace(model, origin=replace(model.origin, output_range=(2.0, 7.0)))
    view = model.linearize({"pump_voltage": 2.7}, physics=physics)
    truth = linearise(TANKS, [2.7])
    assert errors_of(view, record)[0] < 1e-4
    assert errors_of(view, record)[1] < 1e-3
    gain = float(view.static_gain["gain"].item())
    assert gain == pytest.approx(truth.static_gain()[0, 0], rel=1e-6)
    poles = np.sort(view.poles.real)[-2:]
    np.testing.assert_allclose(poles, np.sort(truth.poles.real), rtol=1e-6)


@pytest.mark.parametrize(
    "wrong", [("pump_gain", 0.9), ("lower_outflow", 0.9), ("upper_outflow", 1.1)]
)
def test_beside_wrong_equations_the_model_learns_the_rest(wrong):
    name, factor = wrong
    physics = physics_of(replace(TANKS, **{name: factor * getattr(TANKS, name)}))
    record = excited_tanks()
    inputs = {"pump_voltage": [1, 2], "physics.level": [0, 1, 2], "physics.upper_level": [1]}
    model = learn(physics, record, inputs, 3)
    view = model.linearize({"pump_voltage": 2.7}, physics=physics, record=record)
    for one in (view, view.by_simulation):
        decibels, degrees = errors_of(one, record)
        assert decibels < 1.0
        assert degrees < 5.0
    of_view = np.array(errors_of(view, record))
    of_physics = np.array(errors_of(linearise(physics.fitted.physics.system, [2.7]), record))
    assert (of_view < 0.6 * of_physics).any()


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tanks_run(tmp_path_factory):
    """Folder of an identification beside the right equations of the simulated tanks."""
    return run_identify(
        tmp_path_factory.mktemp("tanks"),
        "system=cascaded_tanks",
        "physics=cascaded_tanks",
        "duration=600samples",
        "noise.snr_db=40",
        "training.n_initial=60",
        "figures=false",
    )


def test_a_validation_has_the_linear_view_of_a_model_beside_physics(tanks_run, tmp_path):
    content = run_validate(
        tmp_path,
        f"model={tanks_run / 'model.nc'}",
        "system=cascaded_tanks",
        "noise.snr_db=40",
        "duration=500samples",
        "seed=1",
        "linear=true",
        "horizons=[1]",
        "propagation=mean_only",
    )
    views = content["linear_view"]
    assert {view["input"] for view in views} == {"pump_voltage"}
    with_truth = [view for view in views if view["true_static_gain"] is not None]
    assert with_truth
    for view in with_truth:
        assert view["static_gain"] == pytest.approx(view["true_static_gain"], rel=0.02)
        assert view["max_error_db"] < 0.2
    assert (tmp_path / "linear_view.png").is_file()


def test_the_page_describes_a_model_beside_physics_from_its_measured_inputs(tanks_run):
    stored = store.read(tanks_run / "model.nc", kind="model")
    described = describe_linearly(stored, tanks_run, str(stored.attrs["physics"]))
    (sentence,) = described["sentences"]
    assert sentence.startswith("pump_voltage: +")
    broken = describe_linearly(stored, tanks_run, "{}")
    assert "expected the text that identification wrote" in broken["reason"]


def test_the_physics_of_a_stored_model_is_loaded_for_its_linear_view(tanks_run, tmp_path):
    model = Model.load(tanks_run / "model.nc")
    physics = load_physics(tanks_run / "model.nc")
    view = model.linearize({"pump_voltage": 2.7}, physics=physics)
    assert view.inputs == ("pump_voltage",)
    assert view.simulated == ("physics.level", "physics.upper_level")
    alone = save_models(tmp_path / "model.nc")
    with pytest.raises(UserError, match="expected a model with physics beside it"):
        load_physics(alone)
