"""`training.seconds` in runs and sweeps, and the budget of records; the clock is a made-up one."""

import json
from itertools import count

import pytest

from experiments.cli import progress
from helpers.commands import (
    compose_configuration,
    list_files,
    load_dataset,
    load_summary,
    run_command,
    run_identify,
)
from helpers.records import SMALL_MODEL, csv_overrides, has_warning, write_record
from helpers.sweeps import run_sweep
from sysid import time_limit

NOTE = "training.seconds=0.5 ended the search before it was complete"
QUICK = ("training.n_initial=12", "training.restarts=1", "figures=false", "validate=false")
QUICK += ("training.max_iterations=3", "training.record_samples=40")


@pytest.fixture
def no_time(monkeypatch):
    """Let every look at the clock take a second."""
    clock = count(100.0)
    monkeypatch.setattr(time_limit, "read_clock", lambda: next(clock))
    monkeypatch.setenv("PYTHON_CPU_COUNT", "1")


@pytest.fixture
def record(tmp_path):
    """Return the overrides of a record of 150 samples."""
    return csv_overrides(estimation=write_record(tmp_path / "record.csv", n=150))


# --- a limit of the time --------------------------------------------------------------------------


@pytest.mark.parametrize("lags", ["narx=auto", "narx=orders"])
def test_a_run_that_was_ended_by_its_limit_is_marked(lags, record, no_time, tmp_path):
    run_identify(tmp_path / "run", *record, *QUICK, lags, "training.seconds=0.5")
    summary = load_summary(tmp_path / "run")
    assert summary["unfinished"] is True
    assert has_warning(summary, NOTE)
    for kind in ("result", "model"):
        assert load_dataset(tmp_path / "run", kind).attrs["unfinished"] == 1
    assert "Linear" in load_dataset(tmp_path / "run", "model").attrs["kernel"]


@pytest.mark.parametrize(("limit", "mark"), [("null", None), ("1e6", False)])
def test_a_complete_run_is_not_marked(limit, mark, record, tmp_path):
    settings = (*QUICK, *SMALL_MODEL, "narx=orders", f"training.seconds={limit}")
    run_identify(tmp_path / "run", *record, *settings)
    summary = load_summary(tmp_path / "run")
    assert summary["unfinished"] is mark
    assert not has_warning(summary, "ended the search")
    assert load_dataset(tmp_path / "run", "result").attrs["unfinished"] == 0


@pytest.mark.parametrize("seconds", ["0", "-3", "soon", ".inf", "true"])
@pytest.mark.parametrize("training", ["adaptive", "free_run"])
def test_a_limit_that_is_no_positive_number_is_refused(seconds, training, tmp_path):
    result = run_command(
        "identify",
        f"training={training}",
        f"training.seconds={seconds}",
        f"hydra.run.dir={tmp_path}/run",
    )
    assert result.code == 1
    assert "seconds must be a" in result.out


@pytest.mark.slow
def test_a_limited_training_neither_uses_nor_fills_the_cache(record, tmp_path):
    def starts_in_cache():
        files = list_files(tmp_path / "cache") if (tmp_path / "cache").exists() else set()
        return {name for name in files if name.startswith("start/") and name.endswith(".nc")}

    settings = (*record, *QUICK, *SMALL_MODEL, "narx=orders", f"cache={tmp_path}/cache")
    run_identify(tmp_path / "limited", *settings, "training.seconds=1e6")
    assert starts_in_cache() == set()
    run_identify(tmp_path / "free", *settings)
    kept = starts_in_cache()
    assert kept
    run_identify(tmp_path / "limited_again", *settings, "training.seconds=1e6")
    assert starts_in_cache() == kept
    assert "start" not in load_summary(tmp_path / "limited_again")["times"].get("cache", {})


@pytest.mark.slow
def test_a_limited_job_is_not_shared_with_other_sweeps(tmp_path):
    jobs = ("system=van_der_pol", "duration=300samples", *SMALL_MODEL)
    run_sweep(tmp_path / "limited", *jobs, "training.seconds=1e6", "seed=1")
    assert not (tmp_path / "multirun" / "cache" / "results").exists()
    assert json.loads((tmp_path / "limited" / "0" / "outcome.json").read_text())["status"] == "done"
    assert (tmp_path / "limited" / "0" / "job.nc").is_file()
    run_sweep(tmp_path / "free", *jobs, "seed=1")
    assert len(list((tmp_path / "multirun" / "cache" / "results").iterdir())) == 1


def test_the_progress_line_tells_how_far_the_work_is(monkeypatch):
    monkeypatch.setattr(progress.Terminal, "work", ["loading"])
    with progress.doing("choosing the lags") as add:
        add("step 2 of 9")
        with progress.doing("training"):
            add("step 3 of 9, about 4 s more")
            expected = ["loading", "choosing the lags, step 3 of 9, about 4 s more", "training"]
            assert progress.Terminal.work == expected
    assert progress.Terminal.work == ["loading"]


# --- the budget -----------------------------------------------------------------------------------


def test_the_budget_of_a_record_is_told_and_kept(record, tmp_path, caplog):
    caplog.set_level("INFO")
    settings = (*QUICK, "narx=orders", "linear_part=none")
    record_of_200 = csv_overrides(estimation=write_record(tmp_path / "longer.csv", n=200))
    run_identify(tmp_path / "run", *record_of_200, *settings)
    choice = load_summary(tmp_path / "run")["budget_choice"]
    assert [tried["points"] for tried in choice["tried"]][:2] == [100, 200]
    assert load_dataset(tmp_path / "run", "model").attrs["budget"] == choice["points"]
    assert f"Budget chosen: {choice['points']} points" in caplog.text
    assert "with 100 points or more" in caplog.text


def test_no_larger_budget_is_announced_where_none_is_tried(record, tmp_path, caplog):
    caplog.set_level("INFO")
    fixed = ("training=fixed", "mean=zero", "narx=orders", "figures=false", "validate=false")
    run_identify(tmp_path / "run", *record, *fixed)
    assert "with 100 points:" in caplog.text


@pytest.mark.parametrize("source", ["a number", "a stream"])
def test_another_budget_is_not_chosen(source, record, tmp_path):
    if source == "a number":
        run_identify(tmp_path / "run", *record, *QUICK, "narx=orders", "budget=30")
    else:
        settings = ("system=van_der_pol", "duration=300samples", *SMALL_MODEL, "budget=auto")
        run_identify(tmp_path / "run", *settings)
    assert load_summary(tmp_path / "run")["budget_choice"] is None
    budget = load_dataset(tmp_path / "run", "model").attrs["budget"]
    assert budget == (30 if source == "a number" else 100)


def test_the_default_is_that_of_python():
    from sysid import Settings

    assert compose_configuration().budget == Settings().budget == "auto"
