"""`sysid-reproduce` from outside: files, gaps, interruption, resuming, other versions, bad input."""

import csv
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import xarray as xr
from numba import config
from reproducing import ROOT, command, configure, make_plan, prepare, start

from experiments import reproduction
from experiments.studies import report, study
from experiments.studies.report import compute_job
from experiments.studies.study import Unit, digest_code, read_part, write_part
from experiments.studies.tasks import TASKS
from sysid import store

processes = pytest.mark.skipif(config.DISABLE_JIT, reason="processes start, end and go on alike without the compiler")
TABLE_COLUMNS = (
    "dataset,setting,criterion,acceptance,reference,threshold,smse,smse_published,n_revised,n_revised_published,"
    "accepted_percent,accepted_percent_published,n_seeds"
)
TWO_TABLES = ("study=[table_2,table_4]", "tasks=[rastrigin,himmelblau]")


def read_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def list_parts(folder):
    """Kept parts by their place under the folder of their version: when they were written."""
    found = (folder / "parts").glob("*/**/*.nc")
    return {"/".join(path.parts[-2:]): path.stat().st_mtime_ns for path in found}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Folder of a quick run of two tables on two tasks, and what it said."""
    if config.DISABLE_JIT:
        pytest.skip("processes")
    folder = tmp_path_factory.mktemp("undisturbed")
    code, text = command(folder, *TWO_TABLES)
    assert code == 0, text
    return folder / "results", text


def test_every_table_has_its_files_with_ours_and_the_published_numbers(undisturbed):
    folder, text = undisturbed
    for name in ("table_2", "table_4"):
        assert (folder / f"{name}.csv").read_text().splitlines()[0] == TABLE_COLUMNS
        assert store.read(folder / f"{name}.nc", kind="study").sizes["seed"] == 2
        assert (folder / f"{name}.md").read_text().startswith("# Table")
    assert "Took" in text
    assert "quick=true" in text
    told = (folder / "report.md").read_text()
    assert 0 < told.index("\n## Table 2") < told.index("\n## Table 4")
    key = {"dataset": "Rastrigin", "setting": "trained", "criterion": "mean_relevance", "threshold": "2.5"}
    rows = [row for row in read_rows(folder / "table_4.csv") if key.items() <= row.items()]
    references = [("none", ""), *(("matched", name) for name in ("leave_one_out", "in_sample", "published"))]
    assert [(row["acceptance"], row["reference"]) for row in rows] == references
    assert {(row["smse_published"], row["n_revised_published"]) for row in rows} == {("0.0232", "68")}
    assert all(float(row["smse"]) > 0 and row["n_seeds"] == "2" for row in rows)


@processes
def test_an_interrupted_run_continues_and_ends_alike(undisturbed, tmp_path):
    process = start(tmp_path, "workers=1", *TWO_TABLES)
    try:
        deadline = time.monotonic() + 200
        while not list(tmp_path.glob("results/parts/*/table_*/*.nc")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, text
    assert "Run interrupted" in text
    assert "the same command goes on" in text
    assert "Traceback" not in text
    kept = list_parts(tmp_path / "results")
    assert 0 < len(kept) < len(list_parts(undisturbed[0]))
    code, text = command(tmp_path, *TWO_TABLES)
    assert code == 0, text
    assert kept.items() <= list_parts(tmp_path / "results").items()
    for name in ("table_2.nc", "table_4.nc"):  # times are measured, not computed
        one, other = (
            store.read(f / name, kind="study").drop_vars("seconds") for f in (undisturbed[0], tmp_path / "results")
        )
        assert one.equals(other)


@processes
def test_a_killed_worker_is_told(tmp_path):
    process = start(tmp_path, "workers=1", *TWO_TABLES)
    try:
        os.kill(find_worker(process.pid), signal.SIGKILL)
        text, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 1, text
    assert "A worker process died" in text
    assert "Traceback" not in text


def find_worker(pid):
    """Process id of a worker, once there is one."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text():
                return int(child)
        time.sleep(0.05)
    raise AssertionError("no worker was started")


@processes
def test_a_folder_that_cannot_be_made_names_the_key(tmp_path):
    (tmp_path / "taken").write_text("a file")
    code, text = command(tmp_path, "output=taken")
    assert code == 1
    assert "set output to another" in text


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
    ids=["study", "no_study", "task", "seeds", "workers", "figures", "output"],
)
def test_bad_settings_are_refused_before_anything_is_computed(tmp_path, monkeypatch, overrides, expected):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=expected):
        reproduction.run(configure(*overrides), tmp_path)
    assert not list(tmp_path.rglob("*.nc"))
    assert [reproduction.make_plan(configure("quick=true", f"seeds={n}")).seeds for n in (1, 10)] == [1, 2]


def test_a_task_without_data_is_a_gap_and_the_others_run(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    unreachable = dict.fromkeys(("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    for name, value in {**unreachable, "SYSID_DATA": tmp_path / "empty", "SYSID_CACHE": tmp_path / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    plan, gaps = reproduction.read_records(make_plan(tmp_path, "rastrigin", "concrete", seeds=1))
    assert list(gaps) == ["concrete"]
    assert "SYSID_DATA" in gaps["concrete"]
    prepare(replace(plan, tasks=("rastrigin",)))
    compute_job((Unit("table_4", "rastrigin"),), plan)
    report.write_study(report.STUDIES["table_4"], plan, gaps, {}, figures=False)
    rows = read_rows(tmp_path / "table_4.csv")
    missing = [row for row in rows if row["dataset"] == "Concrete"]
    assert len(missing) == 36
    assert {(row["smse"], row["n_revised"], row["n_seeds"]) for row in missing} == {("", "", "0")}
    assert all(row["smse"] for row in rows if row["dataset"] == "Rastrigin")
    assert gaps["concrete"].split("|")[0].strip()[:40] in (tmp_path / "table_4.md").read_text()


# --- what identifies a result ---------------------------------------------------------------------


def copy_code(folder):
    """A toolbox of two files."""
    for name in ("sysid/gp.py", "experiments/studies/tasks.py", "experiments/studies/report.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(
            '"""A module."""\n\nN = 600  # rows\n\n\ndef f(x):\n    """Double."""\n    return 2 * x\n'
        )
    (folder / "experiments/studies/published").mkdir()
    (folder / "experiments/studies/published/table_2.csv").write_text("a,b\n1,2\n")
    return digest_code.__wrapped__(folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "is_same"),
    [
        ("experiments/studies/tasks.py", "N = 600", "N = 601", False),
        ("sysid/gp.py", "2 * x", "x * 2", False),
        ("experiments/studies/published/table_2.csv", "2", "3", False),
        ("experiments/studies/tasks.py", "# rows", "# of training", True),
        ("sysid/gp.py", "Double.", "Twice x.", True),
        ("experiments/studies/report.py", "N = 600", "N = 601", True),
    ],
    ids=["task", "numerics", "published", "comment", "docstring", "report"],
)
def test_the_code_that_computes_is_part_of_the_fingerprint(tmp_path, name, old, new, is_same):
    before, path = copy_code(tmp_path), tmp_path / name
    path.write_text(path.read_text().replace(old, new))
    assert (digest_code.__wrapped__(tmp_path) == before) is is_same


def test_packages_and_settings_are_part_of_the_fingerprint_and_tasks_are_not(tmp_path, monkeypatch):
    plan = make_plan(tmp_path, "rastrigin")
    assert plan.fingerprint == make_plan(tmp_path / "other", "tanks").fingerprint
    changes = ({"seeds": 7}, {"budget": 13}, {"code": "other"}, {"quick": False})
    assert len({plan.fingerprint, *(replace(plan, **change).fingerprint for change in changes)}) == 5
    before = digest_code.__wrapped__(ROOT)
    monkeypatch.setattr(study.store, "package_versions", lambda: {"numpy": "0"})
    assert digest_code.__wrapped__(ROOT) != before


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """Folder with table 4 of Rastrigin and Himmelblau; then the tasks are edited, and Rastrigin runs again."""
    folder = tmp_path_factory.mktemp("edited")
    plan = make_plan(folder, "rastrigin", "himmelblau", seeds=1)
    config_of = configure(f"output={folder}", "quick=true", "figures=false", "study=table_4", "seeds=1", "workers=1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduction, "execute", lambda jobs, plan, workers: (compute_job(j, plan) or j for j in jobs))
        for code, tasks in (("some", ("rastrigin", "himmelblau")), ("edited", ("rastrigin",))):
            patch.setattr(
                reproduction, "make_plan", lambda config, c=code, t=tasks: replace(plan, code=c, tasks=tuple(t))
            )
            if code == "edited":
                old = store.read(folder / "table_4.nc", kind="study")
                patch.setitem(TASKS, "rastrigin", replace(TASKS["rastrigin"], draw=TASKS["himmelblau"].draw))
            reproduction.run(config_of, folder)
    return folder, plan, old


def test_an_edit_of_the_tasks_never_mixes_old_results_into_new_tables(edited):
    folder, plan, old = edited
    new = store.read(folder / "table_4.nc", kind="study")
    assert new["dataset"].values.tolist() == ["Rastrigin"]  # Himmelblau is of another version
    assert not new["smse"].sel(dataset="Rastrigin").equals(old["smse"].sel(dataset="Rastrigin"))
    assert new["smse"].sel(dataset="Rastrigin").notnull().any()
    assert len(list((folder / "parts").iterdir())) == 2  # the results of the earlier version are still there
    assert plan.is_kept(Unit("table_4", "himmelblau"))


def test_stores_of_another_version_are_in_no_report_and_no_verdict(edited):
    _, plan, _ = edited
    assert set(replace(plan, code="edited").read_stores(["table_4", "table_2"])) == {"table_4"}
    assert not plan.read_stores(["table_4"])


def test_tasks_of_earlier_runs_stay_in_the_tables(edited):
    _, plan, _ = edited
    assert reproduction.add_kept_tasks("table_4", replace(plan, tasks=("himmelblau",))).tasks == (
        "rastrigin",
        "himmelblau",
    )
    assert reproduction.add_kept_tasks("table_3", replace(plan, tasks=("himmelblau",))).tasks == ("himmelblau",)


def test_other_records_are_other_results(tmp_path, shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    plan, gaps = reproduction.read_records(make_plan(tmp_path, "tanks", "rastrigin"))
    assert not gaps
    assert [task for task, _ in plan.records] == ["tanks"]
    other = replace(plan, records=(("tanks", "another"),))
    assert plan.path_of(Unit("table_2", "tanks")) != other.path_of(Unit("table_2", "tanks"))
    assert plan.path_of(Unit("table_2", "rastrigin")) == other.path_of(Unit("table_2", "rastrigin"))
    attributes = {"fingerprint": plan.fingerprint, "records": '{"tanks": "another"}'}
    store.write(xr.Dataset({"x": 1.0}), tmp_path / "grid.nc", kind="study", attributes=attributes)
    assert [set(each.read_stores(["grid"])) for each in (plan, other)] == [set(), {"grid"}]


def test_a_damaged_part_says_what_to_do(tmp_path):
    plan, unit = make_plan(tmp_path, "rastrigin"), Unit("preparation", "rastrigin", 0)
    write_part(xr.Dataset({"x": 1.0}), unit, plan)
    path = plan.path_of(unit)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(store.StoreError, match="or delete it, and the same command computes it again"):
        read_part(unit, plan)
    compute_job((unit,), plan)  # a kept part is not computed again
    assert path.stat().st_size == 200
