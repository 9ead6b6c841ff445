"""Study `control`: controllers of the building and of the tanks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hydra.utils import instantiate

import simulators
import sysid
from experiments.drawing.style import render
from experiments.plant.comfort import discomfort, heat_of_water
from experiments.reproduce import control, control_loops
from experiments.reproduce import run as reproduce_run
from experiments.reproduce.control_loops import ControlledRun
from experiments.reproduce.report import write_study
from experiments.reproduce.study import Unit, part_of, write_part
from experiments.reproduce.tasks import STUDY_TASKS
from helpers.commands import compose_configuration
from helpers.studies import compose_study, make_plan, table_cells
from sysid.control.predictive import ControlDecision

pytest.importorskip("casadi", reason="the extra [control]")
STUDY = control.ControlStudy()
HEATING_TITLE = STUDY_TASKS[control.HEATING_TASK].title
NOTHING = np.zeros((0, 0))


def test_settings_are_those_of_the_command():
    of_building = compose_configuration("system=building", "controller=mpc", command="identify")
    policy = instantiate(of_building.controller.policy)
    expected = replace(
        control_loops.BUILDING_POLICY, tightening=None, start=control.FULL_SIZES.n_before * 900.0
    )
    assert policy == expected
    of_tanks = compose_configuration("system=cascaded_tanks", "controller=mpc", command="identify")
    n_before = control.FULL_SIZES.n_tanks_before
    expected = replace(control_loops.TANKS_POLICY, start=n_before * control_loops.TANKS.dt)
    assert instantiate(of_tanks.controller.policy) == expected
    assert instantiate(of_tanks.controller.fallback) == control_loops.LEARNING_LEVEL_PI
    for name, value in control_loops.PUMP_PROBING.items():
        assert of_tanks.controller[name] == value
    alone = compose_configuration(
        "system=cascaded_tanks", "controller=level_pi", command="identify"
    )
    shipped = replace(control_loops.LEVEL_PI, schedule=simulators.Levels((4.0, 6.0), 2000.0))
    assert instantiate(alone.controller) == shipped


def test_each_run_is_kept_in_a_file_of_its_own(tmp_path):
    plan = replace(make_plan(tmp_path, *STUDY.tasks), quick=False, seeds=10)
    units = STUDY.units(plan)
    assert len({plan.path_of(unit) for unit in units}) == len(units)
    of_heating = {
        control.split_part(unit.part) for unit in units if unit.task == control.HEATING_TASK
    }
    for name, runs in control.PI_RUNS.items():
        assert {number for other, number in of_heating if other == name} == set(range(len(runs)))
    for name in {*control_loops.PLANNING_MODELS} - {control.FORGETTING_MPC}:
        numbers = {number for other, number in of_heating if other == name}
        assert numbers == set(range(len(control.PLAN_RUNS)))


@pytest.mark.parametrize(("given", "seeds"), [("null", 3), ("10", 10), ("1", 1)])
def test_there_are_three_seeds_unless_their_number_is_given(given, seeds):
    plan = reproduce_run.make_plan(compose_study("study=control", f"seeds={given}"))
    assert {unit.seed for unit in STUDY.units(plan)} == set(range(seeds))


def test_more_seeds_continue_the_default_ones():
    three = reproduce_run.make_plan(compose_study("study=control"))
    ten = reproduce_run.make_plan(compose_study("study=control", "seeds=10"))
    assert three.fingerprint == ten.fingerprint
    assert set(STUDY.units(three)) < set(STUDY.units(ten))


# --- scores ---------------------------------------------------------------------------------------


def test_a_year_is_scored_after_its_first_samples():
    sizes = control.QUICK_SIZES
    setting = control.PISetting(2.0, 5.0, 20.0, 0.1)
    run = control.run_pi(setting, sizes, seed=3)
    row = control.score_heating(run, sizes)
    whole = run.trajectory
    scored = slice(sizes.n_before, sizes.n_before + sizes.n_scored)
    later = replace(
        whole,
        **{
            name: getattr(whole, name)[sizes.n_before : sizes.n_before + sizes.n_scored + 1]
            for name in ("time", "input", "state", "output", "noise_free_output", "noise")
        },
    )
    assert row["heat"] == pytest.approx(heat_of_water(later).sum() / 3.6e6)
    expected = discomfort(whole, simulators.ComfortSchedule())[scored]
    assert row["discomfort"] == pytest.approx(expected.sum())
    assert row["outside"] == pytest.approx((expected > 0).mean())
    periods = range(1, control.N_PERIODS + 1)
    assert sum(row[f"heat_{i}"] for i in periods) == pytest.approx(row["heat"])
    assert sum(row[f"discomfort_{i}"] for i in periods) == pytest.approx(row["discomfort"])


def test_pi_settings_are_factors_of_the_shipped_controller():
    shipped = control.PI_RUNS[control.SHIPPED_PI][0]
    assert shipped == control.PISetting(0.0, 1.0, 1.0, simulators.ComfortSchedule().offset)
    sizes = control.QUICK_SIZES
    found = control.run_pi(shipped, sizes, seed=1).trajectory
    plant = control_loops.building_plant(simulators.PI(), simulators.Building())
    expected = plant.trajectory(sizes.n_before + sizes.n_scored + 1, 1)
    np.testing.assert_array_equal(found.state, expected.state)


def decision(mean, reason=""):
    """Return a decision whose plan has these outputs (T,)."""
    planned = np.array(mean)[:, None] if not reason else NOTHING
    return ControlDecision(
        inputs={},
        mean=planned,
        low=planned,
        high=planned,
        lower=planned,
        upper=planned,
        margin=planned,
        output_names=("level",),
        cost=0.0,
        n_iterations=2,
        reason=reason,
    )


def test_errors_of_plans_are_those_of_the_samples_that_were_planned():
    n = 8
    output = np.arange(n, dtype=float)[:, None]
    trajectory = simulators.simulate(simulators.CascadedTanks(), np.ones(n))
    run = ControlledRun(
        replace(trajectory, output=output),
        [
            (0, decision([1.5, 2.5])),
            (2, decision([3.0, 4.25])),
            (4, decision([], "there is no model yet")),
            (6, decision([7.0, 7.0])),
        ],
        np.array([np.nan, 5.0, 3.0, 4.0, np.nan, 9.0, 9.0, 9.0]),
    )
    np.testing.assert_array_equal(control_loops.errors_ahead(run, 1, 0, n), [-0.5, 0.0, 0.0])
    np.testing.assert_array_equal(control_loops.errors_ahead(run, 2, 0, n), [-0.5, -0.25])
    np.testing.assert_array_equal(control_loops.errors_ahead(run, 2, 1, n), [-0.25])
    row = control.score_decisions(run, 0, n)
    assert row["fallback"] == 0.25
    assert row["iterations"] == 2.0
    assert row["rmse_2"] == pytest.approx(np.sqrt((0.25 + 0.0625) / 2))
    assert control.score_decisions(run, 2, 5)["rmse_learning"] == pytest.approx(np.sqrt(12.5))


# --- runs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("controller", [control.ONLINE_MPC, control.FROZEN_MPC, control.LINE_MPC])
def test_plans_of_a_learned_model_keep_the_band(controller):
    sizes = control.QUICK_SIZES
    unit = Unit("control", control.HEATING_TASK, 0, control.name_part(controller, 0))
    row = control.run_heating(unit, sizes)
    assert (row["margin"], row["violation"]) == control.PLAN_RUNS[0]
    assert row["fallback"] < 0.2
    assert row["rmse_1"] < 0.3
    assert 5 < row["heat"] < 200


def test_the_true_plant_is_predicted_up_to_the_process_noise():
    unit = Unit("control", control.HEATING_TASK, 0, control.name_part(control.TRUE_PLANT_MPC, 1))
    row = control.run_heating(unit, control.QUICK_SIZES)
    assert row["fallback"] == 0.0
    assert 0.01 < row["rmse_1"] < 0.1  # the noise of a sample is about 0.04 K
    assert row["discomfort"] < 2.0


def test_a_lower_price_of_a_violation_saves_heat():
    sizes = control.QUICK_SIZES
    rows = [
        control.run_heating(
            Unit(
                "control",
                control.HEATING_TASK,
                0,
                control.name_part(control.TRUE_PLANT_MPC, number),
            ),
            sizes,
        )
        for number in range(len(control.PLAN_RUNS))
    ]
    heats = [row["heat"] for row in rows]
    degree_hours = [row["discomfort"] for row in rows]
    assert heats == sorted(heats, reverse=True)
    assert degree_hours == sorted(degree_hours)
    assert heats[-1] < heats[0]


def test_a_frozen_model_is_the_one_at_the_first_plan():
    sizes = control.QUICK_SIZES
    task = control_loops.HeatingTask(sizes.n_before)
    n_samples = sizes.n_before + 9
    runs = [
        control_loops.heat_by_plans(control_loops.PLANNING_MODELS[name], task, n_samples, 0)
        for name in (control.ONLINE_MPC, control.FROZEN_MPC)
    ]
    (k, first), (_, frozen) = (run.decisions[sizes.n_before // 4] for run in runs)
    assert k == sizes.n_before
    np.testing.assert_array_equal(first.mean, frozen.mean)
    last, last_frozen = (run.decisions[-1][1] for run in runs)
    assert not np.array_equal(last.mean, last_frozen.mean)


def test_the_plant_changes_when_the_radiator_clogs(monkeypatch):
    sizes = control.QUICK_SIZES
    runs = []

    def run_and_keep(*arguments):
        runs.append(control_loops.heat_by_plans(*arguments))
        return runs[-1]

    monkeypatch.setattr(control, "heat_by_plans", run_and_keep)
    for name in (control.ONLINE_MPC, control.CHANGED_FROM_START):
        unit = Unit("control", control.CLOGGING_TASK, 0, control.name_part(name, 0))
        row = control.run_clogging(unit, sizes)
        assert 0.01 < row["rmse_learning"] < 1.0
        assert 0.01 < row["rmse_changed"] < 1.0
        assert (row["rmse_changed"] == row["rmse_learning"]) == (name == control.CHANGED_FROM_START)
    clogged, clogging, again = (run.trajectory for run in runs)
    np.testing.assert_array_equal(again.output, clogged.output)
    change = sizes.n_before + sizes.n_until_change
    resistance = clogging.system.values_over(clogging.time)["radiator_resistance"]
    assert np.all(resistance[:change] == simulators.Building().radiator_resistance)
    assert np.all(resistance[change:] == control.CHANGED_RESISTANCE)
    assert clogged.system == simulators.Building(radiator_resistance=control.CHANGED_RESISTANCE)


def test_a_model_with_another_past_predicts_the_same_samples():
    """With its own past it predicts them as the model that learned them all along."""
    sizes = control.QUICK_SIZES
    n_samples = sizes.n_before + 60
    first = sizes.n_before + 20
    warm = control.run_pi(control.PI_RUNS[control.SHIPPED_PI][0], sizes, 0).trajectory
    cold = control.run_pi(control.PI_RUNS[control.SHIPPED_PI][0], sizes, 1).trajectory
    errors = control_loops.errors_with_other_past(warm, warm, first, 0)
    settings = control_loops.PLANNING_MODELS[control.ONLINE_MPC].settings(
        sysid.ErrorThreshold(control_loops.STORING_ERROR), 0
    )
    narx = settings.with_linear_lags(control_loops.BUILDING_NARX)
    identification = sysid.Identification(narx, settings)
    rows = narx.regressors(control_loops.signals_of(warm, 0, len(warm.time)))
    record = identification.observe_many(rows.regressor, rows.target)
    expected = (rows.target - record["mean"])[first - narx.max_lag :]
    assert np.isnan(errors[:first]).all()
    np.testing.assert_allclose(errors[first:], expected, rtol=0, atol=1e-9)
    others = control_loops.errors_with_other_past(cold, warm, first, 0)
    assert np.isfinite(others[first:n_samples]).all()
    assert not np.allclose(others[first:], errors[first:])


def test_tanks_do_not_spill():
    sizes = control.QUICK_SIZES
    for name in (control.SHIPPED_PI, control.TRUE_PLANT_MPC):
        unit = Unit("control", control.LEVELS_TASK, 0, control.name_part(name, 0))
        row = control.run_levels(unit, sizes)
        assert sum(row[name] for name in control.SPILL_TITLES) == 0
        assert row["tracking"] < 2.0


# --- files ----------------------------------------------------------------------------------------


def keep_runs(plan, seed, heats):
    """Keep runs of the heating task with these points (discomfort, heat) by controller."""
    for name, points in heats.items():
        for number, (degree_hours, heat) in enumerate(points):
            unit = Unit("control", control.HEATING_TASK, seed, control.name_part(name, number))
            row = {
                "controller": name,
                "number": number,
                "seconds": 1.0,
                "heat": heat,
                "discomfort": degree_hours,
                "margin": 0.1,
                "preheat": 2.0,
                "outside": 0.03,
                "fallback": 0.0,
                "rmse_1": 0.04,
            }
            row |= dict.fromkeys(control.PERIOD_HEATS, heat / control.N_PERIODS)
            row |= dict.fromkeys(control.PERIOD_DISCOMFORTS, degree_hours / control.N_PERIODS)
            write_part(part_of([row]), unit, plan)


@pytest.fixture
def plan(tmp_path):
    """Plan of two seeds with kept runs."""
    plan = make_plan(tmp_path, control.HEATING_TASK, seeds=2)
    for seed, more in enumerate((0.0, 100.0)):
        keep_runs(
            plan,
            seed,
            {
                control.TRUE_PLANT_MPC: [(10.0, 11000.0), (1000.0, 9000.0)],
                control.ONLINE_MPC: [(10.0, 11550.0 + more), (1000.0, 9450.0)],
                control.TUNED_PI: [(20.0, 11500.0), (100.0, 11000.0)],
                control.TIGHTENED_MPC: [(30.0, 11000.0)],
            },
        )
    return plan


def test_heat_is_compared_at_equal_discomfort_seed_by_seed(plan):
    store = STUDY.combine(plan)
    heats = control.heats_at(STUDY.rows(store), 100.0)
    assert heats.loc[0, control.TRUE_PLANT_MPC] == pytest.approx(10000.0)
    assert heats.loc[0, control.ONLINE_MPC] == pytest.approx(10500.0)
    assert heats.loc[1, control.ONLINE_MPC] == pytest.approx(10550.0)
    assert heats.loc[0, control.TUNED_PI] == pytest.approx(11000.0)
    assert np.isnan(heats.loc[0, control.LINE_MPC])
    assert store["heat"].attrs["units"] == "kWh"


def test_the_page_compares_and_counts(plan):
    write_study(STUDY, plan, {}, configuration="", figures=True)
    text = (plan.folder / "control.md").read_text()
    assert "Seeds: 2." in text
    cells = table_cells(text)
    online = next(line for line in cells if line[0] == control.ONLINE_MPC)
    at_50 = np.interp(np.log(50), np.log([10, 1000]), [11000, 9000])
    with_more = np.interp(np.log(50), np.log([10, 1000]), [11650, 9450])
    ratios = [1.05, with_more / at_50]
    expected = f"{np.mean(ratios):.4f} ({ratios[0]:.4f} to {ratios[1]:.4f})"
    assert online[2] == expected
    assert f"At 50 K h `{control.ONLINE_MPC}` needs" in text
    assert "less on 0 of 2 seeds" in text
    assert f"At 200 K h `{control.ONLINE_MPC}` cannot be compared with `{control.TUNED_PI}`" in text
    assert "3.0 % of the samples are outside" in text
    rows = pd.read_csv(plan.folder / "control.csv")
    assert set(rows["seed"]) == {0, 1}
    assert len(rows) == 2 * 7
    for name in ("control", "control_over_year"):
        assert (plan.folder / f"{name}.png").stat().st_size > 1000


def test_a_study_without_results_has_empty_tables(tmp_path):
    plan = make_plan(tmp_path, control.HEATING_TASK, seeds=1)
    keep_runs(plan, 0, {control.TRUE_PLANT_MPC: [(10.0, 11000.0)]})
    store = STUDY.combine(plan)
    tables = STUDY.tables(store)
    assert "cannot be compared" in tables["counts"]
    for draw in STUDY.figures(store).values():
        assert render(draw, "png")["png"]


def test_a_line_is_learned_as_by_least_squares():
    rng = np.random.default_rng(0)
    u = rng.normal(size=800)
    y = np.zeros(800)
    for k in range(2, 800):
        y[k] = 1.5 * y[k - 1] - 0.6 * y[k - 2] + 0.5 * u[k - 1] + 0.1 * rng.normal()
    narx = sysid.Narx({"y": 2}, {"u": 2}, predict="value")
    rows = narx.dataset(sysid.make_record({"u": u, "y": y}, name="stub", sampling_time=1.0))
    x = rows["regressor"].values
    target = rows["target"].values
    settings = control_loops.PLANNING_MODELS[control.LINE_MPC].settings(sysid.Always(), 0)
    assert settings.with_linear_lags(narx) == narx
    identification = sysid.Identification(narx, settings)
    identification.observe_many(x[:700], target[:700])
    found, _ = identification.require_model().predict(x[700:])
    with_constant = np.column_stack([np.ones(len(x)), x])
    solution = np.linalg.lstsq(with_constant[:700], target[:700], rcond=None)[0]
    np.testing.assert_allclose(found, with_constant[700:] @ solution, atol=0.01)


def test_the_table_of_the_clogged_radiator_compares_errors_of_all_samples(tmp_path):
    plan = make_plan(tmp_path, control.CLOGGING_TASK, seeds=1)
    errors = {
        control.ONLINE_MPC: 0.06,
        control.CHANGED_FROM_START: 0.05,
        control.FROZEN_MPC: np.nan,
    }
    for name, error in errors.items():
        row = {"controller": name, "number": 0, "seconds": 1.0, "rmse_learning": error}
        row |= {"rmse_changed": 0.048, "rmse_1": 0.07, "fallback": 0.25}
        unit = Unit("control", control.CLOGGING_TASK, 0, control.name_part(name, 0))
        write_part(part_of([row]), unit, plan)
    table = control.tabulate_clogging(STUDY.rows(STUDY.combine(plan))).set_index("controller")
    ratios = table["over that on the samples of its own loop [1]"]
    assert ratios.to_dict() == {
        control.ONLINE_MPC: "1.200",
        control.FROZEN_MPC: "-",
        control.CHANGED_FROM_START: "1.000",
    }
    ratios = table["over that of the model of the changed plant on the same samples [1]"]
    assert ratios[control.ONLINE_MPC] == "1.250"
    assert set(table["RMSE of the plans [K]"]) == {"0.0700"}
    assert set(table["fallback [%]"]) == {"25"}


def test_online_models_have_the_default_settings():
    settings = control_loops.PLANNING_MODELS[control.ONLINE_MPC].settings(sysid.Always(), 5)
    assert settings == sysid.Settings(insertion=sysid.Always(), budget=100, seed=5)
    forgetting = control_loops.PLANNING_MODELS[control.FORGETTING_MPC].settings(sysid.Always(), 5)
    assert forgetting == replace(settings, forgetting=250.0)
