"""Study `online`: every method on the same stream."""

import numpy as np
import pytest
from reproducing import make_plan

import sysid
from experiments.studies import online
from experiments.studies.study import Unit, part_of, write_part
from experiments.studies.tasks import STREAMS, draw_rows

STUDY = online.OnlineStudy()


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return make_plan(tmp_path_factory.mktemp("online"), tasks=("clogged", "failing_sensor", "van_der_pol"), seeds=1)


@pytest.fixture(scope="module")
def parts(plan):
    return {unit: STUDY.compute(unit, plan).to_dataframe().set_index("model") for unit in STUDY.units(plan)}


def test_every_method_predicts_the_same_rows(parts):
    for found in parts.values():
        assert [*found.index] == [*online.METHODS]
        assert np.isfinite(found[["smse", "nlpd", "coverage_95", "n_numbers"]]).all(axis=None)
        in_stream = found.drop(index=["linear", "full_gp"])
        assert np.isfinite(in_stream["smse_stream"]).all()
        np.testing.assert_allclose(in_stream[[*online.PARTS]].mean(axis=1), in_stream["smse_stream"], rtol=0.2)
        assert 0.5 < found.loc["every_sample", "smse"] / found.loc["KRLS-T", "smse"] < 2


def test_a_row_is_what_the_online_gp_itself_gives(parts, plan):
    unit = next(unit for unit in parts if unit.task == "van_der_pol")
    training, test = draw_rows(unit.task, unit.seed)
    n = plan.n_initial
    settings = sysid.Settings(
        training=sysid.MaximumAPosteriori(n_initial=n), insertion=sysid.Novelty(), acceptance=sysid.AcceptAll(),
        reduction=sysid.MarginalLogLikelihood(), budget=plan.budget,
    )  # fmt: skip
    found = sysid.Identification(online.TASKS["van_der_pol"].narx, settings)
    last = n + plan.most_rows
    found.observe_many(training.inputs[:last], training.targets[:last])
    chosen = slice(plan.most_rows)
    expected = found.model.predict(test.inputs[chosen]).mean
    smse = sysid.standardised_mean_squared_error(test.targets[chosen], expected)
    assert parts[unit].loc["every_sample", "smse"] == pytest.approx(smse, rel=1e-9)
    centred = np.column_stack([training.inputs[:last], np.ones(last)])
    weights = np.linalg.lstsq(centred, training.targets[:last])[0]
    linear = np.column_stack([test.inputs[chosen], np.ones(len(test.targets[chosen]))]) @ weights
    smse = sysid.standardised_mean_squared_error(test.targets[chosen], linear)
    assert parts[unit].loc["linear", "smse"] == pytest.approx(smse, rel=1e-6)


def test_streams_change_and_fail_as_they_say():
    steady, _ = STREAMS["steady"].draw(0)
    clogged, after = STREAMS["clogged"].draw(0)
    failing, clean = STREAMS["failing_sensor"].draw(0)
    changed = np.flatnonzero(clogged.targets != steady.targets)
    assert 1490 < changed[0] < 1510
    assert 0.02 < np.mean(abs(failing.targets - steady.targets) > 0.3) < 0.06  # each is a part of two targets
    assert abs(clean.targets).max() < 0.3
    assert not np.array_equal(after.targets, clean.targets)
    building, _ = STREAMS["changed_building"].draw(0)
    usual, _ = draw_rows("building", 0)
    assert 8750 < np.flatnonzero(building.targets != usual.targets)[0] < 8765


def test_the_report_has_a_table_for_each_task_and_two_figures(parts, plan):
    for unit, found in parts.items():
        write_part(part_of(found.reset_index().to_dict("records")), unit, plan)
    store = STUDY.combine(plan)
    tables = STUDY.tables(store)
    assert tables["rows"].count("## ") == 3
    assert "| every_sample " in tables["ratios"]
    figures = {name: draw() for name, draw in STUDY.figures(store).items()}
    lines = figures["online_over_time"].axes[0].lines
    np.testing.assert_allclose(lines[0].get_ydata(), 1.0)  # RLS against itself


@pytest.mark.parametrize("name", ["sliding_window", "random", "reservoir"])
def test_an_exact_gp_of_some_of_the_rows(plan, name):
    case = online.case_of(Unit("online", "van_der_pol"), plan)
    stream, mean, _, counts = online.METHODS[name](case)
    first, n, budget = plan.n_initial, len(case.stream.targets), case.budget
    kept, generator, n_revised = list(range(first - budget, first)), np.random.default_rng(case.seed), 0
    for k in range(first, first + n):
        place = {"sliding_window": k % budget}.get(name)
        if place is None:
            place = generator.integers(budget if name == "random" else k + 1)
        if place < budget:
            kept[place], n_revised = k, n_revised + 1
    assert counts["n_revised"] == n_revised
    rows = online.Rows(*(np.concatenate([a, b]) for a, b in zip(case.initial, case.stream, strict=True)))
    scaled, found = case.scaled(rows), case.found
    gp = sysid.OnlineGP(found.kernel, noise_variance=found.noise_variance, budget=budget)
    gp.fit(scaled.inputs[kept], scaled.targets[kept])
    expected = gp.predict(case.scaled(case.test).inputs)[0] + case.mean(case.test.inputs)
    np.testing.assert_allclose(mean, expected, atol=1e-8)
    assert np.isfinite(stream).all()
