"""`sysid-reproduce` from outside: files, gaps, interruption, resuming, bad input."""

import csv
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from numba import config

from experiments.studies.calibration import Calibration
from experiments.studies.execution import Execution, compute_and_keep
from experiments.studies.part import part_path, read_part, write_part
from experiments.studies.report import check_folder, csv_text
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.study import Unit
from sysid import DataError, log_marginal_likelihood, store
from tests.experiments.reproducing import COMMAND, command, configured, environment, quick_plan, said

ALIKE = "processes start, end and go on alike without the compiler"
processes = pytest.mark.skipif(config.DISABLE_JIT, reason=ALIKE)
TABLE_COLUMNS = (
    "dataset,setting,criterion,acceptance,reference,threshold,smse,smse_published,n_revised,n_revised_published,"
    "accepted_percent,accepted_percent_published,n_seeds"
)
TWO_TABLES = ("study=[table_2,table_4]", "tasks=[rastrigin,himmelblau]")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Folder of a quick run of two tables on two tasks."""
    if config.DISABLE_JIT:
        pytest.skip(ALIKE)
    folder = tmp_path_factory.mktemp("undisturbed")
    process = command(folder, *TWO_TABLES)
    assert process.returncode == 0, said(process)
    return folder / "results", said(process)


def parts(folder):
    return {path.relative_to(folder).as_posix(): path for path in (Path(folder) / "parts").rglob("*.nc")}


def same(first, second):
    """Whether two stores hold the same numbers; times are measured, not computed."""
    one, other = (store.read(path, kind="study").drop_vars("seconds", errors="ignore") for path in (first, second))
    return one.equals(other)


def test_every_table_has_its_files(undisturbed):
    folder, text = undisturbed
    for name in ("table_2", "table_4"):
        assert (folder / f"{name}.csv").read_text().splitlines()[0] == TABLE_COLUMNS
        assert store.read(folder / f"{name}.nc", kind="study").sizes["seed"] == 2
        assert (folder / f"{name}.md").read_text().startswith("# Table")
    assert "Took" in text
    assert "quick=true" in text
    report = (folder / "report.md").read_text()
    assert report.index("Table 2") < report.index("Table 4")


def test_rows_of_the_tables_carry_ours_and_the_published_numbers(undisturbed):
    rows = list(csv.DictReader((undisturbed[0] / "table_4.csv").read_text().splitlines()))
    mine = [
        row
        for row in rows
        if (row["dataset"], row["setting"], row["criterion"]) == ("Rastrigin", "trained", "mean_relevance")
        and row["threshold"] == "2.5"
    ]
    assert [(row["acceptance"], row["reference"]) for row in mine] == [
        ("none", ""),
        ("matched", "leave_one_out"),
        ("matched", "in_sample"),
        ("matched", "published"),
    ]
    assert {row["smse_published"] for row in mine} == {"0.0232"}
    assert {row["n_revised_published"] for row in mine} == {"68"}
    assert all(float(row["smse"]) > 0 and row["n_seeds"] == "2" for row in mine)


def test_a_second_run_computes_nothing_again(undisturbed):
    folder, _ = undisturbed
    before = {name: path.stat().st_mtime_ns for name, path in parts(folder).items()}
    victim = folder / "parts" / "table_4" / "himmelblau-1.nc"
    victim.unlink()
    process = command(folder.parent, *TWO_TABLES)
    assert process.returncode == 0, said(process)
    after = {name: path.stat().st_mtime_ns for name, path in parts(folder).items()}
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} == {"parts/table_4/himmelblau-1.nc"}


def started(folder):
    """A run of both tables with one worker, in the background."""
    return subprocess.Popen(
        [*COMMAND, "output=results", "quick=true", "figures=false", "workers=1", *TWO_TABLES],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_an_interrupted_run_continues_and_ends_alike(undisturbed, tmp_path):
    process = started(tmp_path)
    try:
        deadline = time.monotonic() + 200
        while not list(tmp_path.glob("results/parts/table_*/*.nc")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, text
    assert "Run interrupted" in text
    assert "the same command goes on" in text
    assert "Traceback" not in text
    kept = {name: path.stat().st_mtime_ns for name, path in parts(tmp_path / "results").items()}
    assert 0 < len(kept) < len(parts(undisturbed[0]))
    process = command(tmp_path, *TWO_TABLES)
    assert process.returncode == 0, said(process)
    assert all(
        path.stat().st_mtime_ns == kept[name] for name, path in parts(tmp_path / "results").items() if name in kept
    )
    for name in ("table_2.nc", "table_4.nc"):
        assert same(undisturbed[0] / name, tmp_path / "results" / name)


@processes
def test_a_killed_worker_is_told_and_nothing_is_lost(tmp_path):
    process = started(tmp_path)
    try:
        worker = child_of(process.pid)
        os.kill(worker, signal.SIGKILL)
        text, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1, text
    assert "A worker process died" in text
    assert "Traceback" not in text


def child_of(pid):
    """Process id of a worker, once there is one that computes."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                number, parent = int(path.parent.name), int(path.read_text().rpartition(")")[2].split()[1])
                words = (path.parent / "cmdline").read_text()
            except (OSError, ValueError):
                continue
            if parent == pid and "spawn_main" in words:
                return number
        time.sleep(0.05)
    raise AssertionError("no worker was started")


@processes
def test_a_task_without_data_is_a_gap_and_the_others_run(tmp_path):
    (tmp_path / "empty").mkdir()
    unreachable = dict.fromkeys(("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    places = {"SYSID_DATA": str(tmp_path / "empty"), "SYSID_CACHE": str(tmp_path / "cache")}
    process = subprocess.run(
        [*COMMAND, "output=results", "quick=true", "figures=false", "study=table_4", "tasks=[rastrigin,concrete]"],
        cwd=tmp_path,
        env=environment(**unreachable, **places),
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert process.returncode == 0, said(process)
    assert "No data for Concrete, marked as a gap" in said(process)
    assert "SYSID_DATA" in said(process)
    rows = list(csv.DictReader((tmp_path / "results" / "table_4.csv").read_text().splitlines()))
    assert {row["smse"] for row in rows if row["dataset"] == "Concrete"} == {""}
    assert {row["n_seeds"] for row in rows if row["dataset"] == "Concrete"} == {"0"}
    assert all(row["smse"] for row in rows if row["dataset"] == "Rastrigin")
    assert "Concrete" in (tmp_path / "results" / "table_4.md").read_text()


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["study=tabel_4"], r"study must be all, or some of table_1, .*got tabel_4; did you mean 'table_4'\?"),
        (["study=[]"], "study must be all, or some of .*got none"),
        (["tasks=[tank]"], r"tasks must be all, or some of rastrigin, .*got tank; did you mean 'tanks'\?"),
        (["seeds=0"], "seeds must be a whole number of at least 1, got 0"),
        (["workers=1.5"], "workers must be a whole number of at least 1, got 1.5"),
        (["figures=maybe"], "figures must be true or false, got 'maybe'"),
        (["output=null"], "output must be the name of a folder, got None"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_computed(tmp_path, monkeypatch, overrides, expected):
    from experiments.reproduction import run

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=expected):
        run(configured(*overrides), tmp_path)
    assert not list(tmp_path.rglob("*.nc"))


def test_another_study_on_other_tasks_in_the_same_folder_keeps_what_is_there(undisturbed):
    from experiments.reproduction import combined_plan

    plan = quick_plan(undisturbed[0], "himmelblau")
    assert combined_plan("table_2", plan).tasks == ("rastrigin", "himmelblau")
    assert combined_plan("table_3", plan).tasks == ("himmelblau",)


def test_quick_runs_take_two_seeds_at_most():
    from experiments.reproduction import plan_of

    assert [plan_of(configured("quick=true", f"seeds={n}")).seeds for n in (1, 2, 10)] == [1, 2, 2]


@processes
def test_a_folder_that_cannot_be_made_names_the_key(tmp_path):
    (tmp_path / "taken").write_text("a file")
    process = command(tmp_path, "output=taken")
    assert process.returncode == 1
    assert "set output to another" in said(process)


def test_a_damaged_part_says_what_to_do(tmp_path):
    plan, unit = quick_plan(tmp_path, "rastrigin"), Unit("preparation", "rastrigin", 0)
    write_part(xr.Dataset({"x": 1.0}), unit, plan)
    path = part_path(unit, plan)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(store.StoreError, match="or delete it, and the same command computes it again"):
        read_part(unit, plan)


def test_foreign_files_in_the_folder_do_not_matter(tmp_path):
    (tmp_path / "other.nc").write_bytes(b"something else")
    check_folder(quick_plan(tmp_path, "rastrigin"), ["table_2"])


@processes
def test_an_unknown_study_ends_in_one_line(tmp_path):
    process = command(tmp_path, "study=tabel_4")
    assert process.returncode == 1
    assert "Traceback" not in said(process)
    assert "did you mean 'table_4'?" in said(process)


def test_results_of_another_version_are_refused_and_left_alone(undisturbed, tmp_path):
    plan = quick_plan(tmp_path, "rastrigin")
    plan.folder.mkdir(exist_ok=True)
    store.write(xr.Dataset({"x": 1.0}), tmp_path / "table_4.nc", kind="study", attributes={"fingerprint": "older"})
    before = (tmp_path / "table_4.nc").read_bytes()
    with pytest.raises(store.StoreError, match=r"table_4.nc was computed with other settings .*choose another folder"):
        check_folder(plan, ["table_4"])
    assert (tmp_path / "table_4.nc").read_bytes() == before


def test_a_kept_part_of_another_version_is_refused(tmp_path):
    plan = quick_plan(tmp_path, "rastrigin")
    unit = Unit("preparation", "rastrigin", 0)
    write_part(xr.Dataset({"x": 1.0}), unit, quick_plan(tmp_path, "rastrigin", seeds=7))
    with pytest.raises(store.StoreError, match="other settings or another version"):
        Execution(plan, 1).run([[unit]])
    assert read_part(unit, quick_plan(tmp_path, "rastrigin", seeds=7))["x"] == 1.0


def test_other_tasks_of_the_same_folder_do_not_change_what_identifies_a_part(tmp_path):
    assert quick_plan(tmp_path, "rastrigin").fingerprint == quick_plan(tmp_path / "b", "tanks").fingerprint
    assert quick_plan(tmp_path, "tanks").fingerprint != quick_plan(tmp_path, "tanks", budget=13).fingerprint


def test_missing_data_of_a_unit_is_a_gap_and_other_errors_are_not(tmp_path, monkeypatch):
    from experiments.studies.preparation import Preparation

    plan, unit = quick_plan(tmp_path, "rastrigin"), Unit("preparation", "rastrigin", 0)

    def without_data(self, unit, plan):
        raise DataError("put the file there")

    monkeypatch.setattr(Preparation, "compute", without_data)
    gap = compute_and_keep(unit, plan)
    assert gap == ("rastrigin", "put the file there")
    assert not part_path(unit, plan).exists()


def test_preparation_keeps_rows_and_trained_hyperparameters(tmp_path):
    plan = quick_plan(tmp_path, "rastrigin")
    compute_and_keep(Unit("preparation", "rastrigin", 1), plan)
    data, found = data_of("rastrigin", 1, plan), hyperparameters_of("rastrigin", 1, Setting.adaptive, plan)
    here = log_marginal_likelihood(found.kernel, found.noise_variance, data.initial_inputs, data.initial_targets).value
    worse = log_marginal_likelihood(
        found.kernel, 100 * found.noise_variance, data.initial_inputs, data.initial_targets
    ).value
    assert len(data.initial_targets) == 20
    assert here > worse


def test_calibration_meets_the_published_initial_error(tmp_path):
    plan = quick_plan(tmp_path, "himmelblau", n_initial=60, most_rows=200, budget=60)
    for seed in range(2):
        compute_and_keep(Unit("preparation", "himmelblau", seed), plan)
    part = Calibration().compute(Unit("calibration", "himmelblau"), plan)
    assert bool(part["is_reached"])
    assert float(part["initial_smse"]) == pytest.approx(0.2396, rel=0.02)
    assert np.unique(part["length_scale"]).size == 1
    errors = [naive_smse(data_of("himmelblau", seed, plan), part.sel(seed=seed)) for seed in range(2)]
    assert np.median(errors) == pytest.approx(0.2396, rel=0.02)


def naive_smse(data, part):
    def kernel(a, b):
        squared = (((a[:, None] - b) / part["length_scale"].values) ** 2).sum(axis=-1)
        return float(part["variance"]) * np.exp(-0.5 * squared)

    covariance = kernel(data.initial_inputs, data.initial_inputs)
    weights = np.linalg.solve(
        covariance + float(part["noise_variance"]) * np.eye(len(covariance)), data.initial_targets
    )
    error = data.test_targets - kernel(data.test_inputs, data.initial_inputs) @ weights
    return np.mean(error**2) / np.var(data.test_targets)


def test_csv_leaves_nan_empty_and_keeps_whole_numbers():
    assert csv_text([{"a": 1, "b": float("nan"), "c": 0.123456789, "d": "x"}]) == "a,b,c,d\n1,,0.123457,x\n"
