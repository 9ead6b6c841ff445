"""`sysid-reproduce`: files, gaps, interruption, resuming, other versions, bad input."""

import csv
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace

import pytest
import xarray as xr
from reproducing import ROOT, configure, make_plan, prepare

from experiments import reproduction
from experiments.launch import Stopped
from experiments.reproduction import STUDIES, compute_unit, write_study
from experiments.studies import study
from experiments.studies.study import Unit, digest_code, read_part, write_part
from experiments.studies.tasks import TASKS
from sysid import store

TABLE_COLUMNS = (
    "dataset,setting,criterion,acceptance,reference,threshold,smse,smse_published,n_revised,n_revised_published,"
    "accepted_percent,accepted_percent_published,n_seeds"
)
QUICK = ("study=table_4", "tasks=[rastrigin]", "quick=true", "figures=false", "workers=1")


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
        reproduction.run(configure(*QUICK, f"output={folder}", *overrides), folder)
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return run_here(tmp_path_factory.mktemp("undisturbed"))


def test_a_table_has_its_files_with_ours_and_the_published_numbers(undisturbed):
    assert (undisturbed / "table_4.csv").read_text().splitlines()[0] == TABLE_COLUMNS
    assert store.read(undisturbed / "table_4.nc", kind="study").sizes["seed"] == 2
    assert "\n## Table 4" in (undisturbed / "report.md").read_text()
    key = {"dataset": "Rastrigin", "setting": "trained", "criterion": "mean_relevance", "threshold": "2.5"}
    rows = [row for row in read_rows(undisturbed / "table_4.csv") if key.items() <= row.items()]
    references = [("none", ""), *(("matched", name) for name in ("leave_one_out", "in_sample", "published"))]
    assert [(row["acceptance"], row["reference"]) for row in rows] == references
    assert {(row["smse_published"], row["n_revised_published"]) for row in rows} == {("0.0232", "68")}
    assert all(float(row["smse"]) > 0 and row["n_seeds"] == "2" for row in rows)


def check_resumed(folder, undisturbed, kept):
    """The same command goes on: nothing is computed twice, and what comes out is the same but for measured times."""
    assert kept.items() <= list_parts(run_here(folder)).items()
    one, other = (store.read(f / "table_4.nc", kind="study").drop_vars("seconds") for f in (undisturbed, folder))
    assert one.equals(other)


@pytest.mark.parametrize(
    ("error", "code"), [(BrokenProcessPool(), 1), (KeyboardInterrupt(), 130)], ids=["worker_died", "interrupted"]
)
def test_a_run_that_ends_early_says_what_is_kept_and_goes_on(undisturbed, tmp_path, error, code):
    with pytest.raises(Stopped, match=r"4 of 5 units are kept in .*; the same command goes on") as stopped:
        run_here(tmp_path, stop=(4, error))
    assert stopped.value.exit_code == code
    check_resumed(tmp_path, undisturbed, list_parts(tmp_path))


@pytest.mark.slow
def test_ctrl_c_ends_the_command_and_its_processes(undisturbed, tmp_path):
    command = [sys.executable, "-m", "experiments.reproduce", *QUICK, "output=results"]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, **streams)
    try:
        deadline = time.monotonic() + 200
        while not list(tmp_path.glob("results/parts/*/*/*.nc")) and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, text
    assert "Run interrupted" in text
    assert "Traceback" not in text
    kept = list_parts(tmp_path / "results")
    assert 0 < len(kept) < 5
    check_resumed(tmp_path / "results", undisturbed, kept)


def test_a_task_without_data_is_a_gap_and_the_others_run(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    unreachable = dict.fromkeys(("https_proxy", "http_proxy", "HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    for name, value in {**unreachable, "SYSID_DATA": tmp_path / "empty", "SYSID_CACHE": tmp_path / "cache"}.items():
        monkeypatch.setenv(name, str(value))
    plan, gaps = reproduction.read_records(make_plan(tmp_path, "rastrigin", "concrete", seeds=1))
    assert list(gaps) == ["concrete"]
    assert "SYSID_DATA" in gaps["concrete"]
    prepare(replace(plan, tasks=("rastrigin",)), "table_4")
    write_study(STUDIES["table_4"], plan, gaps, configure("figures=false"))
    rows = read_rows(tmp_path / "table_4.csv")
    missing = [row for row in rows if row["dataset"] == "Concrete"]
    assert len(missing) == 36
    assert {(row["smse"], row["n_revised"], row["n_seeds"]) for row in missing} == {("", "", "0")}
    assert all(row["smse"] for row in rows if row["dataset"] == "Rastrigin")
    assert gaps["concrete"].split("|")[0].strip()[:40] in (tmp_path / "table_4.md").read_text()


# --- what identifies a result ---------------------------------------------------------------------


def test_code_printed_numbers_and_settings_are_part_of_the_fingerprint_and_tasks_are_not(tmp_path, monkeypatch):
    assert [reproduction.make_plan(configure("quick=true", f"seeds={n}")).seeds for n in (1, 10)] == [1, 2]
    plan = make_plan(tmp_path, "rastrigin")
    assert plan.fingerprint == make_plan(tmp_path / "other", "tanks").fingerprint
    changes = ({"seeds": 7}, {"budget": 13}, {"code": "other"}, {"quick": False})
    assert len({plan.fingerprint, *(replace(plan, **change).fingerprint for change in changes)}) == 5
    digests = {digest_code()}
    monkeypatch.setattr(study, "code_digest", lambda: "edited")
    digests.add(digest_code())
    printed = study.paper.read_table
    monkeypatch.setattr(study.paper, "read_table", lambda name: printed(name) * (2.0 if name == "table_3" else 1.0))
    assert len({*digests, digest_code()}) == 3


def test_an_edit_never_mixes_old_results_into_new_tables(undisturbed, monkeypatch):
    plan = reproduction.make_plan(configure(*QUICK, f"output={undisturbed}"))
    assert set(plan.read_stores(["table_4", "table_2"])) == {"table_4"}
    old = store.read(undisturbed / "table_4.nc", kind="study")
    monkeypatch.setattr(study, "code_digest", lambda: "edited")
    monkeypatch.setitem(TASKS, "rastrigin", replace(TASKS["rastrigin"], draw=TASKS["himmelblau"].draw))
    run_here(undisturbed)
    new = store.read(undisturbed / "table_4.nc", kind="study")["smse"]
    assert not new.equals(old["smse"])
    assert new.notnull().any()
    assert len(list((undisturbed / "parts").iterdir())) == 2  # the results of the earlier version are still there
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
    store.write(xr.Dataset({"x": 1.0}), tmp_path / "grid.nc", kind="study", attributes=attributes)
    assert [set(each.read_stores(["grid"])) for each in (plan, other)] == [set(), {"grid"}]


def test_a_damaged_part_says_what_to_do(tmp_path):
    plan, unit = make_plan(tmp_path, "rastrigin"), Unit("preparation", "rastrigin", 0)
    write_part(xr.Dataset({"x": 1.0}), unit, plan)
    path = plan.path_of(unit)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(store.StoreError, match="or delete it, and the same command computes it again"):
        read_part(unit, plan)
    compute_unit(unit, plan)  # a kept part is not computed again
    assert path.stat().st_size == 200
