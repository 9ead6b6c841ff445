"""Study `excitation`: designed inputs beside fixed excitations of the same power."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import simulators
import sysid
from experiments.drawing.style import render
from experiments.reproduce import excitation
from experiments.reproduce.excitation import (
    DESIGN_CRITERIA,
    EXCITATIONS,
    FIXED_EXCITATIONS,
    RMS_OVER_HALF_RANGE,
    TRUE_PLANT,
    Sizes,
    Stand,
    best_fixed,
    choose_by_true_plant,
    count_successes,
    fixed_signal,
    needed_samples,
    score,
    tabulate_end,
)
from experiments.reproduce.excited_plants import EXCITED_PLANTS, ForcedVanDerPol
from experiments.reproduce.report import write_study
from experiments.reproduce.run import compute_unit
from experiments.reproduce.tasks import STUDY_TASKS
from helpers.studies import make_plan
from sysid.simulation.forecast import free_run

STUDY = excitation.ExcitationStudy()
TANKS = EXCITED_PLANTS["excited_tanks"]
CHECKS = [25, 50, 75]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """A quick plan of which all units are kept."""
    plan = make_plan(tmp_path_factory.mktemp("excitation"), "excited_tanks", seeds=1)
    for unit in STUDY.units(plan):
        compute_unit(unit, plan)
    return plan


@pytest.fixture(scope="module")
def store(plan):
    return STUDY.combine(plan)


def made_store(**errors):
    """Return a store of one plant and two seeds with errors one step ahead by excitation."""
    values = np.full((1, len(EXCITATIONS), len(CHECKS), 2), np.nan)
    for name, of_checks in errors.items():
        number = EXCITATIONS.index(name.replace("_", " "))
        values[0, number] = np.array(of_checks)[:, None] * [0.9, 1.1]
    dims = ("dataset", "excitation", "samples", "seed")
    coordinates = {
        "dataset": ["plant"],
        "excitation": [*EXCITATIONS],
        "samples": CHECKS,
        "seed": [0, 1],
    }
    names = ("one_step", "free_run")
    return xr.Dataset(dict.fromkeys(names, (dims, values)), coords=coordinates)


# --- plants and signals ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", EXCITED_PLANTS)
@pytest.mark.parametrize("kind", FIXED_EXCITATIONS)
def test_fixed_excitations_have_the_same_power_within_the_limits(task, kind):
    plant = EXCITED_PLANTS[task]
    signal = fixed_signal(kind, plant, 600, seed=3)
    half_range = 0.5 * (plant.high - plant.low)
    deviation = (signal - 0.5 * (plant.low + plant.high)) / half_range
    assert np.sqrt(np.mean(deviation**2)) == pytest.approx(RMS_OVER_HALF_RANGE, rel=1e-6)
    assert np.abs(deviation).max() <= 1 + 1e-12
    assert STUDY_TASKS[task].title == plant.title


def test_the_force_of_the_oscillator_is_an_acceleration():
    free = simulators.simulate(simulators.VanDerPol(), n_samples=30, noise=False)
    forced = simulators.simulate(ForcedVanDerPol(), np.zeros(30), noise=False)
    np.testing.assert_allclose(forced.output, free.output, rtol=1e-12)
    pushed = simulators.simulate(ForcedVanDerPol(), np.full(2, 3.0), noise=False, dt=1e-4)
    still = simulators.simulate(ForcedVanDerPol(), np.zeros(2), noise=False, dt=1e-4)
    change = (pushed.state - still.state)[1, 1]
    assert change == pytest.approx(3.0 * 1e-4, rel=1e-3)
    system = ForcedVanDerPol()
    A, B = system.jacobian(np.array([0.5, -1.0]), np.array([2.0]))
    step = 1e-6
    rates = [
        system.derivative(0.0, np.array([0.5, -1.0]), np.array([2.0 + sign * step]), np.zeros(1))
        for sign in (1, -1)
    ]
    np.testing.assert_allclose((rates[0] - rates[1]) / (2 * step), B[:, 0], atol=1e-8)
    assert A.shape == (2, 2)


def test_stretches_of_a_stand_are_one_simulation():
    """A plant without noise does not notice where stretches end."""
    plant = EXCITED_PLANTS["excited_silverbox"]
    exact = simulators.Silverbox()
    signal = fixed_signal("steps", plant, 90, seed=0)
    whole = simulators.simulate(exact, signal).output
    settings = sysid.Settings(linear_part="none")
    stand = Stand(replace(plant, system=exact), settings, seed=0)
    for stretch in np.split(signal, [20, 60]):
        stand.apply(stretch)
    np.testing.assert_allclose(stand.outputs, whole, atol=1e-12)
    np.testing.assert_array_equal(stand.excited, signal)


def test_errors_are_those_of_the_free_run_and_of_one_step():
    stand = Stand(TANKS, sysid.Settings(linear_part="none", budget=15), seed=1)
    stand.apply(fixed_signal("steps", TANKS, 200, seed=1))
    model = stand.identification.require_model()
    test = [(stand.outputs[:60], stand.inputs[:60]), (stand.outputs[90:170], stand.inputs[90:170])]
    errors = {"one_step": [], "free_run": []}
    measured = []
    for outputs, inputs in test:
        run = free_run(model, inputs, outputs[:2], propagation=sysid.MeanOnly())
        errors["free_run"].append(run.mean[:, 0] - outputs[2:, 0])
        signals = {"level": outputs[:, 0], "pump_voltage": inputs[:, 0]}
        rows = TANKS.narx.regressors(signals)
        errors["one_step"].append(model.predict(rows.regressor).mean - rows.target)
        measured.append(outputs[2:, 0])
    spread = np.std(np.concatenate(measured))
    found = score(model, test)
    for name, parts in errors.items():
        expected = np.sqrt(np.mean(np.concatenate(parts) ** 2)) / spread
        assert found[name] == pytest.approx(expected, rel=1e-9)


def test_the_true_plant_chooses_what_makes_the_model_best():
    """The choice is that of trying every candidate by hand, and changes nothing."""
    stand = Stand(TANKS, sysid.Settings(linear_part="none", budget=15), seed=1)
    stand.apply(fixed_signal("steps", TANKS, 150, seed=1))
    test = [(stand.outputs[20:90], stand.inputs[20:90])]
    candidates = np.array([fixed_signal("steps", TANKS, 25, seed) for seed in range(4)])
    products = []
    for candidate in candidates:
        other = Stand(TANKS, sysid.Settings(linear_part="none", budget=15), seed=1)
        other.apply(fixed_signal("steps", TANKS, 150, seed=1))
        other.apply(candidate)
        found = score(other.identification.require_model(), test)
        products.append(found["one_step"] * found["free_run"])
    chosen = choose_by_true_plant(candidates, stand, test)
    np.testing.assert_array_equal(chosen, candidates[np.argmin(products)])
    assert stand.n_samples == 150


# --- the study ------------------------------------------------------------------------------------


def test_every_excitation_has_errors_at_every_score_of_a_model(store):
    sizes = Sizes.of(make_plan("unused", "excited_tanks"))
    assert store["samples"].values.tolist() == sizes.checks
    with_model = store["one_step"].sel(samples=sizes.checks[-1])
    assert np.isfinite(with_model).all()
    assert (store["power"].dropna("samples", how="all") <= 1.001).all()
    assert ((store["outside"] >= 0) | np.isnan(store["outside"])).all()


def test_designed_inputs_keep_the_power(store):
    last = store.isel(samples=-1, seed=0, dataset=0)["power"]
    assert (last.sel(excitation=[*DESIGN_CRITERIA, TRUE_PLANT]) <= RMS_OVER_HALF_RANGE + 1e-9).all()


def test_a_unit_is_the_same_when_it_is_computed_again(plan, store):
    unit = STUDY.units(plan)[0]
    again = STUDY.compute(unit, plan).to_dataframe()
    kept = store["one_step"].sel(excitation="variance", seed=0).values.ravel()
    computed = again[again["excitation"] == "variance"].set_index("samples")["one_step"]
    np.testing.assert_array_equal(computed.reindex(store["samples"].values).values, kept)


def test_files_have_tables_and_figures(plan):
    write_study(STUDY, plan, {}, configuration="", figures=True)
    text = (plan.folder / "excitation.md").read_text()
    assert "Tanks, simulated" in text
    assert "$" not in text
    for name in ("excitation_one_step", "excitation_free_run", "excitation_plane"):
        assert (plan.folder / f"{name}.png").stat().st_size > 5_000


def test_needed_samples_are_those_of_the_first_median_that_is_small_enough():
    store = made_store(
        steps=[0.9, 0.5, 0.4],
        noise=[0.8, 0.6, 0.5],
        information=[0.5, 0.3, 0.2],
        variance=[0.9, 0.8, 0.7],
        true_plant=[0.4, 0.4, 0.4],
    )
    best = best_fixed(store, "one_step").loc["plant"]
    assert best["excitation"] == "steps"
    assert best["error"] == pytest.approx(0.4)
    needed = needed_samples(store, "one_step").loc["plant"]
    expected = {"steps": 75, "noise": np.inf, "information": 50, "variance": np.inf}
    for name, count in (expected | {TRUE_PLANT: 25}).items():
        assert needed[name] == count
    assert np.isnan(needed["PRBS"])
    ends = tabulate_end(store, "one_step").iloc[0]
    assert (ends["steps"], ends["noise"], ends["information"]) == ("1.00", "1.25", "0.50")
    sentences = list(count_successes(store))
    assert sentences[-1].startswith("`true plant`: one step: at most half of the samples on 1 of 1")
    assert "more than 1.1 times as many on 1" in sentences[1]


def test_an_excitation_that_was_not_computed_is_left_out():
    store = made_store(steps=[0.9, 0.5, 0.4])
    sentences = list(count_successes(store))
    assert all("on 0 of 0 plants" in sentence for sentence in sentences)
    assert isinstance(needed_samples(store, "one_step"), pd.DataFrame)


def test_figures_show_what_is_known():
    store = made_store(steps=[0.9, 0.5, 0.4], variance=[0.5, np.inf, 0.2])
    content = render(lambda: excitation.draw_errors(store, "one_step"), "png")
    assert len(content["png"]) > 5_000
