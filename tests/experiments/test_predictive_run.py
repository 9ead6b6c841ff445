"""Runs in which the model plans the inputs of the plant (``controller=mpc``)."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.identify.plans import say_control
from experiments.plant.live import Simulation
from experiments.plant.plant import plant_of
from helpers.commands import (
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    run_identify,
)
from simulators import PI, Building, Levels, Weather
from sysid import Identification, Narx, PredictiveControl, Settings, store
from sysid.errors import UserError

pytest.importorskip("casadi")

HORIZON = 16
APPLIED = 4
N_SAMPLES = 400
START = 200  # first sample of a plan
BUILDING = (
    "system=building",
    "controller=mpc",
    f"controller.policy.horizon={HORIZON}",
    f"controller.policy.n_applied={APPLIED}",
    f"controller.policy.start={900 * START}",
    "controller.policy.max_standard_deviation=null",
    f"duration={N_SAMPLES}samples",
    "linear_part=none",
    "limit=false",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a run of the building whose PI is replaced by plans."""
    settings = [option for option in SMALLEST_RUN if not option.startswith("figures")]
    return run_identify(tmp_path_factory.mktemp("mpc"), *BUILDING, *settings)


@pytest.fixture(scope="module")
def plan(folder):
    return store.read(folder / "plan.nc", kind="plan")


def test_a_decision_is_made_every_few_samples(plan):
    np.testing.assert_array_equal(plan["first_sample"], np.arange(0, N_SAMPLES, APPLIED))
    assert plan.sizes["step"] == HORIZON
    assert plan["driven"].values.tolist() == ["mass_flow"]
    assert plan["output"].values.tolist() == ["zone_temperature"]


def test_the_fallback_decides_until_plans_are_applied(folder, plan):
    reasons = plan["reason"].values
    is_before = plan["first_sample"].values < START
    assert set(reasons[is_before]) == {"there is no model yet", "plans are applied later (start)"}
    assert (reasons[~is_before] == "").mean() > 0.8
    trajectory = load_dataset(folder, "trajectory")
    pi = PI()
    state = pi.initial_state()
    for k in range(START):
        temperature = trajectory["zone_temperature"].values[k]
        (flow,), state = pi.control(900.0 * k, [temperature], state)
        assert trajectory["mass_flow"].values[k] == flow


def test_the_plant_gets_the_planned_inputs(folder, plan):
    flow = load_dataset(folder, "trajectory")["mass_flow"].values
    for i in np.flatnonzero(plan["reason"].values == ""):
        first = int(plan["first_sample"].values[i])
        planned = plan["input"].values[i, :APPLIED, 0]
        np.testing.assert_array_equal(flow[first : first + APPLIED], planned)
    assert flow.min() >= 0.0
    assert flow.max() <= 0.1


def test_limits_of_the_plan_are_the_comfort_band_of_the_coming_samples(folder, plan):
    trajectory = load_dataset(folder, "trajectory")
    i = int(np.flatnonzero(plan["reason"].values == "")[0])
    first = int(plan["first_sample"].values[i])
    coming = slice(first + 1, first + 1 + HORIZON)
    for kind, name in (("lower", "comfort_lower"), ("upper", "comfort_upper")):
        np.testing.assert_array_equal(
            plan[f"planned_{kind}"].values[i, :, 0], trajectory[name].values[coming]
        )


def test_a_plan_begins_where_the_plant_is(folder, plan):
    measured = load_dataset(folder, "trajectory")["zone_temperature"].values
    planned = np.flatnonzero(plan["reason"].values == "")
    first = plan["first_sample"].values[planned]
    planned, first = planned[first < N_SAMPLES - 1], first[first < N_SAMPLES - 1]
    error = measured[first + 1] - plan["planned_mean"].values[planned, 0, 0]
    assert np.sqrt(np.mean(np.square(error))) < 0.1  # K; the noise of a sample is 0.04 K


def test_the_summary_counts_the_decisions(folder, plan):
    control = load_summary(folder)["control"]
    n_planned = int((plan["reason"].values == "").sum())
    assert control["decisions"] == plan.sizes["decision"]
    assert control["planned"] == n_planned
    assert sum(control["fallbacks"].values()) == control["decisions"] - n_planned
    words = say_control(control)
    assert f"{n_planned} of {control['decisions']} decisions follow a plan" in words
    assert "there is no model yet (" in words


def test_a_figure_shows_the_plans(tmp_path):
    settings = [option for option in SMALLEST_RUN if not option.startswith("figures")]
    found = run_identify(tmp_path / "run", *BUILDING, *settings, "figures=true")
    assert (found / "plan.png").stat().st_size > 20_000


# --- the parts ------------------------------------------------------------------------------------


def plant(*options):
    return plant_of(compose_configuration(*BUILDING, *options))


def run_of(made, n_samples=50, seed=0):
    """Return the decisions of a simulation of a plant, and its exogenous inputs."""
    signals = made.exogenous(n_samples, seed)
    return made.begin_decisions(signals, n_samples, seed), signals


def test_the_forecast_is_the_coming_weather_and_band():
    made = plant()
    run, signals = run_of(made)
    forecast = run.forecast(20)
    n = HORIZON + 1
    expected = signals["ambient_temperature"][20 : 20 + n]
    np.testing.assert_array_equal(forecast["ambient_temperature"], expected)
    time = 900.0 * np.arange(20, 20 + n)
    lower = made.controller.fallback.schedule.lower(time)
    np.testing.assert_array_equal(forecast["comfort_lower"], lower)
    assert set(forecast) >= {"comfort_upper", "set_point"}
    at_end = run.forecast(49)["ambient_temperature"]
    weather = made.weather["ambient_temperature"]
    whole = weather.temperature(900.0 * np.arange(49, 49 + n), seed=0)
    np.testing.assert_allclose(at_end, whole, rtol=0, atol=1e-12)


def test_errors_of_a_forecast_grow_to_their_standard_deviation():
    run, signals = run_of(
        plant("controller.forecast_error=2.0", "controller.forecast_error_time=900"), 3000
    )
    errors = []
    for k in range(2000):
        coming = signals["ambient_temperature"][k : k + HORIZON + 1]
        errors.append(run.forecast(k)["ambient_temperature"] - coming)
    std = np.std(errors, axis=0)
    assert std[0] == 0.0
    a = np.exp(-1.0)
    assert std[1] == pytest.approx(2.0 * np.sqrt(1 - a**2), rel=0.06)
    assert std[-1] == pytest.approx(2.0, rel=0.06)
    again = run.forecast(7)["ambient_temperature"]
    np.testing.assert_array_equal(run.forecast(7)["ambient_temperature"], again)


class ShortRecord(Weather):
    """Weather whose record ends with the simulation."""

    def temperature(self, time, *, seed=0):
        if np.max(time) > 900.0 * 49:
            raise UserError("the record ends")
        return np.asarray(time) / 900.0


def test_beyond_a_record_of_weather_the_forecast_holds_its_last_value():
    made = replace(plant(), weather={"ambient_temperature": ShortRecord()})
    run, _ = run_of(made)
    ambient = run.forecast(45)["ambient_temperature"]
    np.testing.assert_array_equal(ambient, np.minimum(np.arange(45, 46 + HORIZON), 49))


def test_a_fallback_that_followed_takes_over_without_a_jump():
    pi = PI(schedule=Levels(levels=(21.0,)), integral_gain=0.0)
    state = pi.track(0.0, [20.0], (0.0,), [0.05])
    (flow,), _ = pi.control(900.0, [20.0], state)
    assert flow == pytest.approx(0.05)
    (later,), _ = pi.control(900.0, [20.5], state)
    assert later == pytest.approx(0.05 - 0.5 * pi.proportional_gain)


def test_without_a_fallback_inputs_are_held():
    made = plant("controller.fallback=null", "controller.schedule=null")
    policy = replace(made.controller.policy, output_limits={"zone_temperature": (17.0, 24.0)})
    made = replace(made, controller=replace(made.controller, policy=policy))
    flows = [sample.input[1] for sample in made.samples(20, 0)]
    np.testing.assert_array_equal(flows, 0.05)
    probed = replace(made.controller, probing={"mass_flow": 0.01}, probing_hold=1)
    flows = [sample.input[1] for sample in replace(made, controller=probed).samples(20, 0)]
    np.testing.assert_allclose(sorted(set(flows)), [0.04, 0.06])


def test_probing_is_added_until_plans_are_applied():
    made = plant("controller.probing={mass_flow: 0.01}", "controller.probing_hold=3")
    plain = [sample.input[1] for sample in plant().samples(9, 0)]
    probed = [sample.input[1] for sample in made.samples(9, 0)]
    change = np.array(probed) - plain
    np.testing.assert_allclose(np.abs(change[0]), [0.01])
    assert min(probed) >= 0.0
    later = plant("controller.probing={mass_flow: 0.01}", "controller.policy.start=0")
    np.testing.assert_array_equal([s.input[1] for s in later.samples(9, 0)], plain)


def test_all_samples_before_a_decision_are_learned():
    made = plant("controller.policy.start=0")
    simulation = Simulation(made, 60, 0)
    sizes = [len(block.output) for block in simulation.until(60)]
    assert sizes == [APPLIED] * 15


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["learning=stored"], "controller=mpc needs a model whose bands follow its errors"),
        (["noise.snr_db=40"], "noise.snr_db: .*controller=mpc"),
        (["controller.policy.inputs.mass_flow=[-0.1,0.1]"], "Building takes 0 to"),
        (["controller.policy.inputs.mass_flow=[0.1,0.0]"], "limits low < high"),
        (["controller.policy.horizon=2", "controller.policy.n_applied=1"], "moves"),
        (
            ["controller.policy.horizon=4", "narx.inputs.mass_flow=9"],
            "4 samples is shorter than the longest lag",
        ),
        (["controller.policy.tracking={level: [1.0, 1.0]}"], r"\['level'\] are no outputs"),
        (["controller.fallback.dt=60"], "controller.fallback.dt"),
        (["controller.forecast_error=-1"], "forecast_error: expected at least 0"),
        (["controller.probing={pump: 1}"], r"probing names \['pump'\]"),
        (["controller.probing={mass_flow: much}"], "amplitude of mass_flow of at least 0, got 'mu"),
        (["controller.policy.cost=no_such_module.cost"], "there is no function no_such_module"),
        (["controller.policy.price={mass_flow: energy}"], "coming values of 'energy'"),
        (["controller.policy.solver=ipopt"], "has no solver 'ipopt'"),
    ],
)
def test_bad_options_are_refused(tmp_path, options, message):
    with pytest.raises(Exception, match=message):
        run_identify(tmp_path, *BUILDING, *SMALLEST_RUN, *options)


def test_a_fallback_drives_the_planned_inputs():
    from experiments.plant.predictive import Predictive

    policy = PredictiveControl({"ambient_temperature": (0.0, 1.0)})
    with pytest.raises(UserError, match=r"fallback drives \['mass_flow'\]"):
        Predictive(900.0, policy, PI())


def test_a_system_without_a_task_needs_limits(tmp_path):
    with pytest.raises(UserError, match="the limits of at least one input"):
        plant_of(compose_configuration("system=servo", "controller=mpc"))


def test_signals_that_the_plant_does_not_apply_are_refused():
    run, _ = run_of(plant())
    narx = Narx({"zone_temperature": 1}, {"mass_flow": 1, "simulated": 1})
    with pytest.raises(UserError, match=r"has the signals \['simulated'\]"):
        run.tell(Identification(narx, Settings()))
    assert isinstance(plant().system, Building)
