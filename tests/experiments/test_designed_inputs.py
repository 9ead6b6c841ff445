"""Runs in which the model chooses the inputs of the plant (``excitation=informative``)."""

import json

import numpy as np
import pytest

from experiments.files.cache import Cache, simulate_once
from experiments.plant.designed import Informative
from experiments.plant.live import Simulation
from experiments.plant.plant import plant_of
from helpers.commands import (
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    run_identify,
)
from sysid import InformativeInput, store

HORIZON = 20
APPLIED = 10
N_SAMPLES = 240
N_IDENTIFIED = 120
TANKS = (
    "system=cascaded_tanks",
    "excitation=informative",
    f"excitation.horizon={HORIZON}",
    f"excitation.applied={APPLIED}",
    "excitation.candidates=6",
    f"duration={N_SAMPLES}samples",
    "narx=cascaded_tanks",
    "linear_part=none",
    "limit=false",
    "gate=none",
)
LIMITS = "excitation.output_limits={level:[3.0,6.0]}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a run whose plans keep the level between 3 and 6 V."""
    settings = [option for option in SMALLEST_RUN if not option.startswith("figures")]
    return run_identify(tmp_path_factory.mktemp("designed"), *TANKS, *settings, LIMITS)


@pytest.fixture(scope="module")
def plan(folder):
    return store.read(folder / "plan.nc", kind="plan")


def decided_inputs(plan):
    """Return the inputs (n,) of all decisions, one after the other."""
    inputs = plan["input"].values.ravel()
    return inputs[np.isfinite(inputs)]


def test_a_decision_is_made_for_every_stretch(plan):
    """A quarter of a stretch is applied if its outputs would leave their limits."""
    n_applied = np.isfinite(plan["input"].values[:, :, 0]).sum(axis=1)
    np.testing.assert_array_equal(plan["first_sample"], np.cumsum([0, *n_applied[:-1]]))
    leaves_limits = np.char.startswith(plan["fallback"].values.astype(str), "no candidate")
    assert leaves_limits.any()
    assert (n_applied[leaves_limits] == round(APPLIED / 4)).all()
    assert n_applied[~leaves_limits].max() == APPLIED
    assert plan["time"].values[1] == 4.0 * APPLIED


def test_stretches_that_end_early_are_counted(folder, plan):
    """Beyond the first decisions, whose limits no model keeps."""
    n_applied = np.isfinite(plan["input"].values[:, :, 0]).sum(axis=1)
    keeps_limits = plan["fallback"].values == ""
    n_short = int((n_applied[keeps_limits] < APPLIED).sum())
    design = load_summary(folder)["design"]
    assert n_short <= design["ended_early"] == int(plan.attrs["n_ended_early"])


def test_the_plant_gets_the_inputs_that_were_decided(folder, plan):
    pump = load_dataset(folder, "trajectory")["pump_voltage"].values
    assert plan["designed"].values.tolist() == ["pump_voltage"]
    np.testing.assert_array_equal(pump[:N_IDENTIFIED], decided_inputs(plan)[:N_IDENTIFIED])
    assert pump.min() >= 1.0
    assert pump.max() <= 5.0


def test_without_a_model_nothing_is_planned(plan):
    no_model = plan["fallback"].values == "there is no model yet"
    n_without = int(no_model.sum())
    assert 1 <= n_without < len(no_model)
    assert no_model[:n_without].all()
    assert np.isnan(plan["planned_mean"].values[no_model]).all()
    assert np.isfinite(plan["gain"].values[~no_model]).all()


def test_a_plan_begins_where_the_plant_is(folder, plan):
    """The first planned output is a prediction one step ahead: its inputs have been applied."""
    level = load_dataset(folder, "trajectory")["level"].values
    with_plan = np.flatnonzero(np.isfinite(plan["gain"].values))
    first = plan["first_sample"].values[with_plan]
    planned = plan["planned_mean"].values[with_plan, 0, 0]
    errors = np.abs(planned - level[first])
    assert np.median(errors) < 0.3 * np.std(level)
    assert plan["output"].values.tolist() == ["level"]


def test_the_model_learns_from_all_samples_before_it_decides(folder, plan):
    """The first sample of a stretch was predicted from the plan's own model: it knew all before.

    Without a gate no sample is held back as a possible outlier, and learned after the decision.
    """
    result = load_dataset(folder, "result")
    sample = np.rint(result["time"].values / 4.0).astype(int)
    mean = dict(zip(sample, (result["previous"] + result["mean"]).values, strict=True))
    with_plan = np.flatnonzero(np.isfinite(plan["gain"].values))[1:]
    first = plan["first_sample"].values[with_plan]
    planned = plan["planned_mean"].values[with_plan, 0, 0]
    np.testing.assert_allclose([mean[k] for k in first], planned, rtol=0, atol=1e-6)


def test_the_summary_counts_decisions_and_excursions(folder, plan):
    summary = load_summary(folder)["design"]
    level = load_dataset(folder, "trajectory")["level"].values[:N_IDENTIFIED]
    first = int(plan["first_sample"].values[np.isfinite(plan["gain"].values)][0])
    is_outside = (level < 3.0) | (level > 6.0)
    assert summary["decisions"] == plan.sizes["decision"]
    assert sum(summary["fallbacks"].values()) == int((plan["fallback"].values != "").sum())
    assert summary["outside"]["level"]["limits"] == [3.0, 6.0]
    assert summary["outside"]["level"]["with_model"] == pytest.approx(is_outside[first:].mean())
    assert summary["outside"]["level"]["all"] == pytest.approx(is_outside.mean())
    assert json.loads(plan.attrs["output_limits"]) == {"level": [3.0, 6.0]}


def test_what_was_chosen_is_told_and_drawn(folder, capsys):
    assert (folder / "plan.png").stat().st_size > 10_000
    summary = load_summary(folder)
    from experiments.identify.plans import say_design

    words = say_design(summary["design"])
    n_decisions = summary["design"]["decisions"]
    start = f"Inputs chosen to learn: {n_decisions} decisions, without the best plan: "
    assert words.startswith(start)
    assert "there is no model yet" in words
    assert "level beyond 3 to 6 in" in words


def test_the_same_run_is_the_same(folder, tmp_path):
    again = run_identify(tmp_path, *TANKS, *SMALLEST_RUN, LIMITS)
    for name in ("pump_voltage", "level"):
        values = [load_dataset(one, "trajectory")[name].values for one in (folder, again)]
        np.testing.assert_array_equal(*values)


def test_no_model_chooses_the_inputs_that_test_it(folder, plan):
    """They continue the draws without a model, of the decision that would have come next."""
    pump = load_dataset(folder, "trajectory")["pump_voltage"].values[N_IDENTIFIED:]
    design = InformativeInput({"pump_voltage": (1.0, 5.0)}, horizon=HORIZON, n_applied=APPLIED)
    design.n_decisions = plan.sizes["decision"]
    stretches = [design.next(None).inputs["pump_voltage"] for _ in range(12)]
    # the rest of the stretch with which the identified part ends is applied first
    expected = np.concatenate([decided_inputs(plan)[N_IDENTIFIED:], *stretches])
    np.testing.assert_array_equal(pump, expected[: len(pump)])


def test_a_trajectory_that_depends_on_the_model_is_not_cached(tmp_path):
    plant = plant_of(compose_configuration(*TANKS))
    make = simulate_once({}, Cache(tmp_path))
    simulation = make(plant, N_SAMPLES, 0)
    assert type(simulation) is Simulation
    assert simulation.decisions is not None


def test_inputs_of_one_plant_may_have_limits_of_their_own(tmp_path):
    plant = plant_of(
        compose_configuration(
            "system=heater",
            "excitation=informative",
            "excitation@excitations.flow=informative",
            *(f"excitations.flow.{name}" for name in ("offset=4", "low=-2", "high=2")),
        )
    )
    limits = {name: one.limits() for name, one in plant.design.items()}
    assert (limits["heat"].low, limits["heat"].high) == (10.0, 90.0)
    assert (limits["flow"].low, limits["flow"].high) == (2.0, 6.0)


def test_the_power_of_an_input_has_its_limit():
    excitation = Informative(low=-2.0, high=2.0, offset=3.0, rms=0.4, horizon=25)
    assert excitation.limits().rms == 0.4
    signal = excitation.signal(200, 4.0, np.random.default_rng(0))
    stretches = signal.reshape(-1, 25) - 3.0
    assert np.sqrt(np.mean(stretches**2, axis=1)).max() <= 0.4 + 1e-12


def test_the_signal_of_the_excitation_is_that_before_there_is_a_model():
    excitation = Informative(low=-1.0, high=2.0, offset=3.0, rate=0.5, horizon=20)
    signal = excitation.signal(50, 4.0, np.random.default_rng(0))
    assert signal.shape == (50,)
    assert signal.min() >= 2.0
    assert signal.max() <= 5.0
    assert np.ptp(signal) > 0
    begins_a_stretch = np.arange(1, 50) % 20 == 0
    assert np.abs(np.diff(signal)[~begins_a_stretch]).max() <= 0.5 + 1e-12
