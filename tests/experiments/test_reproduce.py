"""`sysid-reproduce`: files, gaps, interruption, resuming, other versions; the ten tasks and their
hyper-parameters.
"""

import csv
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from experiments.cli.ends import Stopped
from experiments.reproduce import paper, study
from experiments.reproduce import run as reproduction
from experiments.reproduce.report import write_study
from experiments.reproduce.run import compute_unit
from experiments.reproduce.stream import Setting, data_of, hyperparameters_of
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import Unit, digest_code, read_part, write_part
from experiments.reproduce.tasks import STUDY_TASKS, Rows, TaskData, draw_rows, load_task
from helpers.jobs import script_process, wait_until
from helpers.studies import compose_study, make_plan, prepare_units
from naive import NaiveGP
from sysid import (
    ConcreteData,
    log_marginal_likelihood,
    standardised_mean_squared_error,
    store,
)

QUICK = (
    "study=table_4",
    "tasks=[rastrigin]",
    "quick=true",
    "figures=false",
    "workers=1",
)


def read_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def list_parts(folder):
    """Kept parts: when they were written."""
    found = (folder / "parts").glob("*/*/*.nc")
    return {"/".join(path.parts[-2:]): path.stat().st_mtime_ns for path in found}


def run_here(folder, *overrides, stop=None):
    """Run the command in this process, without a pool; `stop` is raised after so many units."""

    def execute(waves, plan, workers):
        for i, unit in enumerate(unit for wave in waves for unit in wave):
            if stop and i == stop[0]:
                raise stop[1]
            compute_unit(unit, plan)
            yield unit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "execute", execute)
        reproduction.run(compose_study(*QUICK, f"output={folder}", *overrides), folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run_here(tmp_path_factory.mktemp("undisturbed"))


def test_a_table_has_its_files_with_ours_and_the_published_numbers(undisturbed):
    assert store.read(undisturbed / "table_4.nc", kind="study").sizes["seed"] == 2
    assert "\n## Table 4" in (undisturbed / "report.md").read_text()
    key = {
        "dataset": "Rastrigin",
        "setting": "trained",
        "criterion": "mean_relevance",
        "threshold": "2.5",
    }
    rows = [row for row in read_rows(undisturbed / "table_4.csv") if key.items() <= row.items()]
    references = [
        ("none", ""),
        *(("matched", name) for name in ("leave_one_out", "in_sample", "published")),
    ]
    assert [(row["acceptance"], row["reference"]) for row in rows] == references
    assert {(row["smse_published"], row["n_revised_published"]) for row in rows} == {
        ("0.0232", "68")
    }
    assert all(float(row["smse"]) > 0 and row["n_seeds"] == "2" for row in rows)


def check_resumed(folder, undisturbed, kept):
    """The same command goes on: nothing is computed twice, and what comes out is the same but for
    measured times.
    """
    assert kept.items() <= list_parts(run_here(folder)).items()
    one, other = (
        store.read(f / "table_4.nc", kind="study").drop_vars("seconds")
        for f in (undisturbed, folder)
    )
    assert one.equals(other)


@pytest.mark.parametrize(
    ("error", "code"),
    [(BrokenProcessPool(), 1), (KeyboardInterrupt(), 130)],
    ids=["worker_died", "interrupted"],
)
def test_a_run_that_ends_early_says_what_is_kept_and_goes_on(undisturbed, tmp_path, error, code):
    with pytest.raises(
        Stopped, match=r"4 of 5 units are kept in .*; the same command goes on"
    ) as stopped:
        run_here(tmp_path, stop=(4, error))
    assert stopped.value.exit_code == code
    check_resumed(tmp_path, undisturbed, list_parts(tmp_path))


def test_units_of_a_task_and_seed_are_computed_together_the_longest_first(monkeypatch, tmp_path):
    computed = []
    monkeypatch.setattr(reproduction, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1))
    monkeypatch.setattr(
        reproduction,
        "compute_unit",
        lambda unit, plan: computed.append("-".join(map(str, unit))),
    )
    texts = (
        "a-rastrigin-0 a-rastrigin-1",
        "a-rastrigin-1 b--0 a-building-0 b-rastrigin-0 b-rastrigin-1",
    )
    waves = [[Unit(*text.split("-")[:2], int(text[-1])) for text in wave.split()] for wave in texts]
    found = list(reproduction.execute(waves, make_plan(tmp_path), 1))
    assert sorted(found) == sorted(unit for wave in waves for unit in wave)
    assert computed[:2] == ["a-rastrigin-1", "a-rastrigin-0"]
    assert computed[2:] == [
        "b--0",
        "a-building-0",
        "a-rastrigin-1",
        "b-rastrigin-1",
        "b-rastrigin-0",
    ]


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_its_processes(undisturbed, tmp_path):
    streams = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "cwd": tmp_path,
    }
    script = "from experiments.reproduce import main; main()"
    with script_process(script, *QUICK, "output=results", **streams) as process:
        assert wait_until(lambda: list(tmp_path.glob("results/parts/*/*/*.nc")), 200)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    assert process.returncode == 130, text
    assert "Run interrupted" in text
    assert "Traceback" not in text
    kept = list_parts(tmp_path / "results")
    assert 0 < len(kept) < 5
    check_resumed(tmp_path / "results", undisturbed, kept)


def test_a_task_without_data_is_a_gap_and_the_others_run(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    unreachable = dict.fromkeys(
        ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9"
    )
    for name, value in {
        **unreachable,
        "SYSID_DATA": tmp_path / "empty",
        "SYSID_CACHE": tmp_path / "cache",
    }.items():
        monkeypatch.setenv(name, str(value))
    plan, gaps = reproduction.read_records(make_plan(tmp_path, "rastrigin", "concrete", seeds=1))
    assert list(gaps) == ["concrete"]
    assert "SYSID_DATA" in gaps["concrete"]
    prepare_units(replace(plan, tasks=("rastrigin",)), "table_4")
    write_study(STUDIES["table_4"], plan, gaps, configuration="", figures=False)
    rows = read_rows(tmp_path / "table_4.csv")
    missing = [row for row in rows if row["dataset"] == "Concrete"]
    assert len(missing) == 36
    assert {(row["smse"], row["n_revised"], row["n_seeds"]) for row in missing} == {("", "", "0")}
    assert all(row["smse"] for row in rows if row["dataset"] == "Rastrigin")
    assert gaps["concrete"].split("|")[0].strip()[:40] in (tmp_path / "table_4.md").read_text()


# --- what identifies a result ---------------------------------------------------------------------


def test_code_printed_numbers_and_settings_are_part_of_the_fingerprint_and_tasks_are_not(
    tmp_path, monkeypatch
):
    assert [
        reproduction.make_plan(compose_study("quick=true", f"seeds={n}")).seeds for n in (1, 10)
    ] == [1, 2]
    plan = make_plan(tmp_path, "rastrigin")
    assert plan.fingerprint == make_plan(tmp_path / "other", "tanks").fingerprint
    changes = ({"seeds": 7}, {"budget": 13}, {"code": "other"}, {"quick": False})
    assert (
        len(
            {
                plan.fingerprint,
                *(replace(plan, **change).fingerprint for change in changes),
            }
        )
        == 5
    )
    digests = {digest_code()}
    monkeypatch.setattr(study, "code_digest", lambda: "edited")
    digests.add(digest_code())
    printed = study.paper.read_table
    monkeypatch.setattr(
        study.paper,
        "read_table",
        lambda name: printed(name) * (2.0 if name == "table_3" else 1.0),
    )
    assert len({*digests, digest_code()}) == 3


def test_an_edit_never_mixes_old_results_into_new_tables(undisturbed, monkeypatch):
    plan = reproduction.make_plan(compose_study(*QUICK, f"output={undisturbed}"))
    assert set(plan.read_stores(["table_4", "table_2"])) == {"table_4"}
    old = store.read(undisturbed / "table_4.nc", kind="study")
    monkeypatch.setattr(study, "code_digest", lambda: "edited")
    monkeypatch.setitem(
        STUDY_TASKS,
        "rastrigin",
        replace(STUDY_TASKS["rastrigin"], draw=STUDY_TASKS["himmelblau"].draw),
    )
    run_here(undisturbed)
    new = store.read(undisturbed / "table_4.nc", kind="study")["smse"]
    assert not new.equals(old["smse"])
    assert new.notnull().any()
    assert (
        len(list((undisturbed / "parts").iterdir())) == 2
    )  # the results of the earlier version are still there
    assert plan.is_kept(Unit("table_4", "rastrigin"))
    assert not plan.read_stores(["table_4"])


def test_other_records_are_other_results(tmp_path, shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    plan, gaps = reproduction.read_records(make_plan(tmp_path, "tanks", "rastrigin"))
    assert not gaps
    assert [task for task, _ in plan.records] == ["tanks"]
    other = replace(plan, records=(("tanks", "another"),))
    assert plan.path_of(Unit("table_2", "tanks")) != other.path_of(Unit("table_2", "tanks"))
    assert plan.path_of(Unit("table_2", "rastrigin")) == other.path_of(Unit("table_2", "rastrigin"))
    attributes = {"fingerprint": plan.fingerprint, "records": '{"tanks": "another"}'}
    store.write(
        xr.Dataset({"x": 1.0}),
        tmp_path / "grid.nc",
        kind="study",
        attributes=attributes,
    )
    assert [set(each.read_stores(["grid"])) for each in (plan, other)] == [
        set(),
        {"grid"},
    ]


def test_a_damaged_part_says_what_to_do(tmp_path):
    plan = make_plan(tmp_path, "rastrigin")
    unit = Unit("preparation", "rastrigin", 0)
    write_part(xr.Dataset({"x": 1.0}), unit, plan)
    path = plan.path_of(unit)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(
        store.StoreError, match="or delete it, and the same command computes it again"
    ):
        read_part(unit, plan)
    compute_unit(unit, plan)  # a kept part is not computed again
    assert path.stat().st_size == 200


# --- the ten tasks: sizes of the paper, scaling by the training part, hyper-parameters

SIZES = {  # features, new rows, test rows
    "rastrigin": (2, 500, 1681),
    "rosenbrock": (2, 500, 1681),
    "himmelblau": (2, 500, 1681),
    "six_hump_camel": (2, 500, 1681),
    "van_der_pol": (2, 900, 1000),
    "boston": (13, 351, 55),
    "concrete": (8, 827, 103),
    "tanks": (4, 922, 1022),
    "bouc_wen": (6, 897, 8189),
    "building": (9, 17418, 17520),
}
SLOW = {"building": pytest.mark.slow}


def load(name, seed=0):
    return load_task(name, seed, n_initial=100, most_rows=10**6)


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in SIZES])
def test_rows_are_those_of_the_paper(name, shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    data = load(name)
    p, n_new, n_test = SIZES[name]
    assert data.initial_inputs.shape == (100, p)
    assert data.inputs.shape == (n_new, p)
    assert data.test_inputs.shape == (n_test, p)
    assert n_new == paper.read_table("table_2")["n_new"][STUDY_TASKS[name].title]
    np.testing.assert_allclose(data.training_inputs.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(data.training_inputs.std(axis=0), 1.0, atol=1e-9)
    assert data.training_targets.mean() == pytest.approx(
        0.0, abs=1e-9 * data.training_targets.std()
    )


def test_a_record_keeps_its_order_and_has_a_digest(shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    data = load("concrete")
    recordings = ConcreteData().load()
    strength = recordings.estimation[0][recordings.outputs[0]].values
    np.testing.assert_allclose(np.diff(data.training_targets), np.diff(strength), atol=1e-9)
    assert STUDY_TASKS["concrete"].digest() != STUDY_TASKS["tanks"].digest() != ""
    assert STUDY_TASKS["rastrigin"].digest() == ""


def test_training_and_test_rows_are_of_different_trajectories():
    data = load("van_der_pol")
    assert not np.isin(data.test_targets.round(12), data.training_targets.round(12)).any()
    training, test = draw_rows("building", 0, 1201)
    assert (
        len(training.targets) + len(test.targets) == 1201 - 3
    )  # the lags of the test reach into the training part
    assert not np.isin(test.targets.round(12), training.targets.round(12)).any()


def test_only_the_training_part_decides_the_scaling():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.normal(3, 2, (50, 2)), np.full(50, 7.0)])
    training = Rows(inputs, rng.normal(5, 1, 50))
    test = Rows(np.array([[3.0, 3.0, 8.0]] * 4), np.full(4, 5.0))
    data = TaskData.of(training, test, 10)
    expected = (3.0 - inputs[:, :2].mean(axis=0)) / inputs[:, :2].std(axis=0)
    np.testing.assert_allclose(
        data.test_inputs, np.tile([*expected, 1.0], (4, 1))
    )  # a constant column survives
    np.testing.assert_allclose(data.test_targets, 5.0 - training.targets.mean())
    np.testing.assert_array_equal(data.training_targets[:10], data.initial_targets)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = make_plan(
        tmp_path_factory.mktemp("tasks"),
        "himmelblau",
        n_initial=60,
        most_rows=200,
        budget=60,
    )
    return prepare_units(plan)


def test_preparation_keeps_rows_and_trained_hyperparameters(plan):
    data = data_of("himmelblau", 1, plan)
    found = hyperparameters_of("himmelblau", 1, Setting.adaptive, plan)
    x = data.initial_inputs
    y = data.initial_targets
    noise = found.noise_variance
    assert len(y) == 60
    here, worse = (
        log_marginal_likelihood(found.kernel, factor * noise, x, y).value for factor in (1, 100)
    )
    assert here > worse
    trained = hyperparameters_of("himmelblau", 1, Setting.trained, plan)
    np.testing.assert_array_equal(trained.kernel.parameters(), found.kernel.parameters())


def test_calibration_meets_the_published_initial_error(plan):
    part = read_part(Unit("calibration", "himmelblau"), plan)
    assert bool(part["is_reached"])
    assert float(part["initial_smse"]) == pytest.approx(0.2396, rel=0.02)
    assert np.unique(part["length_scale"]).size == 1
    errors = []
    for seed in range(2):
        data = data_of("himmelblau", seed, plan)
        found = hyperparameters_of("himmelblau", seed, "published", plan)
        variance = np.mean(data.initial_targets**2)
        assert found.kernel.parameters()[0] == pytest.approx(variance)
        trained = hyperparameters_of("himmelblau", seed, "trained", plan).noise_variance
        assert found.noise_variance == pytest.approx(np.clip(trained, 1e-4 * variance, variance))
        gp = NaiveGP(
            found.kernel,
            found.noise_variance,
            data.initial_inputs,
            data.initial_targets,
        )
        errors.append(
            standardised_mean_squared_error(data.test_targets, gp.predict(data.test_inputs)[0])
        )
    assert np.median(errors) == pytest.approx(0.2396, rel=0.02)
