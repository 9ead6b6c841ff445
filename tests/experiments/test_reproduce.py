"""`sysid-reproduce`: files, gaps, interruptions, other versions; tasks and hyper-parameters."""

import csv
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import xarray as xr

from experiments.cli.ends import Stopped
from experiments.reproduce import paper, study
from experiments.reproduce import run as reproduce_run
from experiments.reproduce.report import write_study
from experiments.reproduce.run import compute_unit
from experiments.reproduce.stream import Setting, data_of, hyperparameters_of
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import Unit, digest_code, read_part, write_part
from experiments.reproduce.tasks import STUDY_TASKS, Rows, TaskData, draw_rows, load_task
from helpers.jobs import HANG_TIMEOUT, child_processes, is_alive, script_process, wait_until
from helpers.studies import compose_study, make_plan, prepare_units
from naive import NaiveGP
from sysid import (
    ConcreteData,
    log_marginal_likelihood,
    standardised_mean_squared_error,
    store,
)

QUICK_RUN = (
    "study=table_4",
    "tasks=[rastrigin]",
    "quick=true",
    "figures=false",
    "workers=1",
)


def read_rows(path):
    """Return the rows of a CSV file as dicts of texts."""
    return list(csv.DictReader(path.read_text().splitlines()))


def list_parts(folder):
    """Return the kept parts of a study, and when they were written."""
    paths = (folder / "parts").glob("*/*/*.nc")
    return {"/".join(path.parts[-2:]): path.stat().st_mtime_ns for path in paths}


def run_here(folder, *overrides, n_units=None, error=None):
    """Run the command in this process, without a pool. After `n_units` units, raise `error`."""

    def execute(waves, plan, workers):
        for number, unit in enumerate(chain.from_iterable(waves)):
            if number == n_units:
                raise error
            compute_unit(unit, plan)
            yield unit

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce_run, "execute", execute)
        reproduce_run.run(compose_study(*QUICK_RUN, f"output={folder}", *overrides), folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Folder of a run that nothing has interrupted."""
    return run_here(tmp_path_factory.mktemp("undisturbed"))


def test_a_table_has_its_files_with_ours_and_the_published_numbers(undisturbed):
    assert store.read(undisturbed / "table_4.nc", kind="study").sizes["seed"] == 2
    assert "\n## Table 4" in (undisturbed / "report.md").read_text()
    labels = {
        "dataset": "Rastrigin",
        "setting": "trained",
        "criterion": "mean_relevance",
        "threshold": "2.5",
    }
    all_rows = read_rows(undisturbed / "table_4.csv")
    rows = [row for row in all_rows if labels.items() <= row.items()]
    assert [(row["acceptance"], row["reference"]) for row in rows] == [
        ("none", ""),
        ("matched", "leave_one_out"),
        ("matched", "in_sample"),
        ("matched", "published"),
    ]
    for row in rows:
        assert (row["smse_published"], row["n_revised_published"]) == ("0.0232", "68")
        assert float(row["smse"]) > 0
        assert row["n_seeds"] == "2"


def check_resumed(folder, undisturbed, kept):
    """Run the same command again, and check that it computes nothing twice.

    Its result must be that of the undisturbed run, except for measured times.
    """
    run_here(folder)
    assert kept.items() <= list_parts(folder).items()
    expected = store.read(undisturbed / "table_4.nc", kind="study")
    resumed = store.read(folder / "table_4.nc", kind="study")
    assert resumed.drop_vars("seconds").equals(expected.drop_vars("seconds"))


@pytest.mark.parametrize(
    ("error", "code"),
    [(BrokenProcessPool(), 1), (KeyboardInterrupt(), 130)],
    ids=["worker_died", "interrupted"],
)
def test_a_run_that_ends_early_says_what_is_kept_and_goes_on(undisturbed, tmp_path, error, code):
    message = r"4 of 5 units are kept in .*; the same command goes on"
    with pytest.raises(Stopped, match=message) as stopped:
        run_here(tmp_path, n_units=4, error=error)
    assert stopped.value.exit_code == code
    check_resumed(tmp_path, undisturbed, list_parts(tmp_path))


def test_units_of_a_task_and_seed_are_computed_together_the_longest_first(monkeypatch, tmp_path):
    computed = []
    monkeypatch.setattr(
        reproduce_run, "ProcessPoolExecutor", lambda *_, **__: ThreadPoolExecutor(1)
    )
    monkeypatch.setattr(reproduce_run, "compute_unit", lambda unit, plan: computed.append(unit))
    first_wave = [Unit("a", "rastrigin", 0), Unit("a", "rastrigin", 1)]
    second_wave = [
        Unit("a", "rastrigin", 1),
        Unit("b", "", 0),
        Unit("a", "building", 0),
        Unit("b", "rastrigin", 0),
        Unit("b", "rastrigin", 1),
    ]
    finished = list(reproduce_run.execute([first_wave, second_wave], make_plan(tmp_path), 1))
    assert sorted(finished) == sorted(first_wave + second_wave)
    assert computed[:2] == [Unit("a", "rastrigin", 1), Unit("a", "rastrigin", 0)]
    assert computed[2:] == [
        Unit("b", "", 0),
        Unit("a", "building", 0),
        Unit("a", "rastrigin", 1),
        Unit("b", "rastrigin", 1),
        Unit("b", "rastrigin", 0),
    ]


@pytest.fixture
def quick_run(tmp_path):
    """A quick run in `tmp_path` that has kept a part of its results."""
    streams = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.STDOUT,
        "text": True,
        "cwd": tmp_path,
    }
    script = "from experiments.reproduce import main; main()"
    with script_process(script, *QUICK_RUN, "output=results", **streams) as process:
        assert wait_until(lambda: list(tmp_path.glob("results/parts/*/*/*.nc")))
        yield process


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_its_processes(undisturbed, quick_run, tmp_path):
    quick_run.send_signal(signal.SIGINT)
    text, _ = quick_run.communicate(timeout=HANG_TIMEOUT)
    assert quick_run.returncode == 130, text
    assert "Run interrupted" in text
    assert "Traceback" not in text
    kept = list_parts(tmp_path / "results")
    assert 0 < len(kept) < 5
    check_resumed(tmp_path / "results", undisturbed, kept)


@pytest.mark.slow
def test_the_processes_of_a_command_that_is_killed_end(quick_run):
    workers = child_processes(quick_run.pid)
    quick_run.kill()
    assert workers
    assert wait_until(lambda: not any(map(is_alive, workers)))


def test_a_task_without_data_is_a_gap_and_the_others_run(tmp_path, monkeypatch):
    """Proxies that nobody serves stand for a machine without a network."""
    (tmp_path / "empty").mkdir()
    for name in ("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "cache"))
    plan, gaps = reproduce_run.read_records(make_plan(tmp_path, "rastrigin", "concrete", seeds=1))
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


@pytest.mark.parametrize(("given", "used"), [(1, 1), (10, 2)])
def test_a_quick_run_has_at_most_two_seeds(given, used):
    configuration = compose_study("quick=true", f"seeds={given}")
    assert reproduce_run.make_plan(configuration).seeds == used


def test_tasks_and_folder_are_no_part_of_the_fingerprint(tmp_path):
    plan = make_plan(tmp_path, "rastrigin")
    assert plan.fingerprint == make_plan(tmp_path / "other", "tanks").fingerprint


@pytest.mark.parametrize(
    "change", [{"seeds": 7}, {"budget": 13}, {"code": "other"}, {"quick": False}], ids=str
)
def test_code_and_settings_are_part_of_the_fingerprint(tmp_path, change):
    plan = make_plan(tmp_path, "rastrigin")
    assert replace(plan, **change).fingerprint != plan.fingerprint


def test_edited_code_has_another_digest(monkeypatch):
    before = digest_code()
    monkeypatch.setattr(study, "code_digest", lambda: "edited")
    assert digest_code() != before


def test_other_printed_numbers_have_another_digest(monkeypatch):
    before = digest_code()
    read_table = study.paper.read_table

    def read_doubled(name):
        return read_table(name) * (2.0 if name == "table_3" else 1.0)

    monkeypatch.setattr(study.paper, "read_table", read_doubled)
    assert digest_code() != before


def test_an_edit_never_mixes_old_results_into_new_tables(undisturbed, monkeypatch):
    """An edit of the code, and of a task, happens after the run."""
    plan = reproduce_run.make_plan(compose_study(*QUICK_RUN, f"output={undisturbed}"))
    assert set(plan.read_stores(["table_4", "table_2"])) == {"table_4"}
    old = store.read(undisturbed / "table_4.nc", kind="study")
    monkeypatch.setattr(study, "code_digest", lambda: "edited")
    other_task = replace(STUDY_TASKS["rastrigin"], rows=STUDY_TASKS["himmelblau"].rows)
    monkeypatch.setitem(STUDY_TASKS, "rastrigin", other_task)
    run_here(undisturbed)
    new = store.read(undisturbed / "table_4.nc", kind="study")["smse"]
    assert not new.equals(old["smse"])
    assert new.notnull().any()
    versions = list((undisturbed / "parts").iterdir())
    assert len(versions) == 2  # the results of the earlier version are kept
    assert plan.is_kept(Unit("table_4", "rastrigin"))
    assert not plan.read_stores(["table_4"])


def test_other_records_are_other_results(tmp_path, shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    plan, gaps = reproduce_run.read_records(make_plan(tmp_path, "tanks", "rastrigin"))
    assert not gaps
    assert [task for task, _ in plan.records] == ["tanks"]
    other = replace(plan, records=(("tanks", "another"),))
    of_record = Unit("table_2", "tanks")
    of_function = Unit("table_2", "rastrigin")
    assert plan.path_of(of_record) != other.path_of(of_record)
    assert plan.path_of(of_function) == other.path_of(of_function)
    attributes = {"fingerprint": plan.fingerprint, "records": '{"tanks": "another"}'}
    store.write(
        xr.Dataset({"x": 1.0}),
        tmp_path / "grid.nc",
        kind="study",
        attributes=attributes,
    )
    assert not plan.read_stores(["grid"])
    assert set(other.read_stores(["grid"])) == {"grid"}


def test_a_damaged_part_says_what_to_do(tmp_path):
    plan = make_plan(tmp_path, "rastrigin")
    unit = Unit("preparation", "rastrigin", 0)
    write_part(xr.Dataset({"x": 1.0}), unit, plan)
    path = plan.path_of(unit)
    path.write_bytes(path.read_bytes()[:200])
    advice = "or delete it, and the same command computes it again"
    with pytest.raises(store.StoreError, match=advice):
        read_part(unit, plan)
    compute_unit(unit, plan)  # a kept part is not computed again
    assert path.stat().st_size == 200


# --- the ten tasks: sizes of the paper, scaling by the training part, hyper-parameters

#: numbers of features, of new rows and of test rows, by task
SIZES = {
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
#: tasks that take seconds
SLOW_TASKS = ("building",)
EACH_TASK = [
    pytest.param(name, marks=pytest.mark.slow if name in SLOW_TASKS else ()) for name in SIZES
]


def load(name, seed=0):
    """Return all rows of a task, with a hundred initial ones."""
    return load_task(name, seed, n_initial=100, most_rows=10**6)


@pytest.mark.parametrize("name", EACH_TASK)
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
    tolerance = 1e-9 * data.training_targets.std()
    assert data.training_targets.mean() == pytest.approx(0.0, abs=tolerance)


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


def test_the_test_of_the_building_follows_its_training_part():
    """The lags of the first test rows reach into the training part, so no row is lost there."""
    training, test = draw_rows("building", 0, 1201)
    n_lags = 3
    assert len(training.targets) + len(test.targets) == 1201 - n_lags
    assert not np.isin(test.targets.round(12), training.targets.round(12)).any()


def test_only_the_training_part_decides_the_scaling():
    rng = np.random.default_rng(0)
    inputs = np.column_stack([rng.normal(3, 2, (50, 2)), np.full(50, 7.0)])
    training = Rows(inputs, rng.normal(5, 1, 50))
    test = Rows(np.array([[3.0, 3.0, 8.0]] * 4), np.full(4, 5.0))
    data = TaskData.of(training, test, 10)
    expected = (3.0 - inputs[:, :2].mean(axis=0)) / inputs[:, :2].std(axis=0)
    constant = 1.0  # the constant column is shifted and not scaled
    np.testing.assert_allclose(data.test_inputs, np.tile([*expected, constant], (4, 1)))
    np.testing.assert_allclose(data.test_targets, 5.0 - training.targets.mean())
    np.testing.assert_array_equal(data.training_targets[:10], data.initial_targets)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """Plan of a quick study of Himmelblau's function, with its preparation kept."""
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
    adaptive = hyperparameters_of("himmelblau", 1, Setting.adaptive, plan)
    x = data.initial_inputs
    y = data.initial_targets
    noise_variance = adaptive.noise_variance
    assert len(y) == 60
    likelihood = log_marginal_likelihood(adaptive.kernel, noise_variance, x, y).value
    with_more_noise = log_marginal_likelihood(adaptive.kernel, 100 * noise_variance, x, y).value
    assert likelihood > with_more_noise
    trained = hyperparameters_of("himmelblau", 1, Setting.trained, plan)
    np.testing.assert_array_equal(trained.kernel.parameters(), adaptive.kernel.parameters())


def test_calibration_meets_the_published_initial_error(plan):
    part = read_part(Unit("calibration", "himmelblau"), plan)
    assert bool(part["is_reached"])
    assert float(part["initial_smse"]) == pytest.approx(0.2396, rel=0.02)
    assert np.unique(part["length_scale"]).size == 1
    errors = []
    for seed in range(2):
        data = data_of("himmelblau", seed, plan)
        published = hyperparameters_of("himmelblau", seed, "published", plan)
        variance = np.mean(data.initial_targets**2)
        assert published.kernel.parameters()[0] == pytest.approx(variance)
        trained = hyperparameters_of("himmelblau", seed, "trained", plan)
        expected_noise = np.clip(trained.noise_variance, 1e-4 * variance, variance)
        assert published.noise_variance == pytest.approx(expected_noise)
        gp = NaiveGP(
            published.kernel,
            published.noise_variance,
            data.initial_inputs,
            data.initial_targets,
        )
        mean, _ = gp.predict(data.test_inputs)
        errors.append(standardised_mean_squared_error(data.test_targets, mean))
    assert np.median(errors) == pytest.approx(0.2396, rel=0.02)
