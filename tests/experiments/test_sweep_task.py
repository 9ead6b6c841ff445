"""One job in one process: what it returns, raises, exceeds, counts on and leaves."""

import contextlib
import json
import os
import re
import signal
import sys
from dataclasses import replace

import pytest
from hydra.conf import HydraConf
from hydra.types import RunMode
from omegaconf import OmegaConf

from experiments.files import identity
from experiments.files.identity import file_digests
from experiments.sweeps.store import TRACE, Limits, damage, forget, read_outcome
from experiments.sweeps.task import (
    DIED_TWICE,
    bytes_of,
    execute,
    hydra_config,
    limits_of,
)
from helpers.jobs import count_starts, make_job, script_process

EXECUTE = """
import sys
from helpers import jobs
from experiments.sweeps.task import execute

if sys.argv[2] == "spinning":
    jobs.spin.compile("void(float64[::1])")  # compiling would let Python speak
execute(jobs.make_job(sys.argv[1], 0, sys.argv[2], time_limit=eval(sys.argv[3]), memory_limit=eval(sys.argv[4])))
"""


def test_what_a_job_returns_is_stored_with_the_digests_of_its_files_and_stands(
    tmp_path,
):
    one = make_job(tmp_path, 7, "written", time_limit=60.0, memory_limit=10**12)
    folder = tmp_path / "7"
    outcome = execute(one)
    assert (outcome.number, outcome.done, outcome.value, outcome.stored) == (
        7,
        True,
        7.0,
        True,
    )
    content = read_outcome(folder)
    assert (content["status"], content["identity"], content["value"]) == (
        "done",
        "identity-7",
        7.0,
    )
    assert (content["overrides"], list(content["files"])) == (
        ["number=7"],
        ["result.txt"],
    )
    assert damage(content, folder) == ""
    left = sorted(path.name for path in folder.iterdir() if path.suffix != ".log")
    assert left == [".hydra", "attempts", "outcome.json", "report.html", "result.txt"]
    (folder / "report.html").write_text("anew")
    assert damage(content, folder) == ""
    (folder / "result.txt").write_text("number 8\n")
    assert damage(content, folder) == "result.txt is damaged"
    assert execute(one) == outcome
    assert count_starts(one) == 1
    outcome = execute(make_job(tmp_path, 0, "undefined"))  # nan: no reader of JSON takes it
    assert (outcome.done, outcome.value) == (True, None)
    json.loads((tmp_path / "0" / "outcome.json").read_text(), parse_constant=pytest.fail)


def test_a_job_that_raises_leaves_or_is_not_there_has_failed(tmp_path):
    errors = {
        "raising": "ValueError: job 0 cannot work",
        "leaving": "the command ended with exit code 3",
        "missing": "AttributeError: .*'missing'",
    }
    for function, error in errors.items():
        (tmp_path / function).mkdir()
        outcome = execute(make_job(tmp_path / function, 0, function))
        content = read_outcome(tmp_path / function / "0")
        assert (outcome.done, content["status"]) == (False, "failed")
        assert re.match(error, outcome.error)
        assert outcome.error == content["error"]
        assert ("in raising" in content["traceback"]) == (function == "raising")
        assert "number: 0" in content["configuration"]
    with pytest.raises(KeyboardInterrupt):  # an interrupt that another error hides is no failure
        execute(make_job(tmp_path, 0, "interrupted"))
    assert not (tmp_path / "0" / "outcome.json").exists()


def test_attempts_that_ended_their_process_are_counted_and_told(tmp_path):
    one = make_job(tmp_path, 0, "written", time_limit=60.0)
    folder = tmp_path / "0"
    folder.mkdir()
    (folder / "attempts").write_text("1\n2\n")
    assert execute(one).error == DIED_TWICE
    assert not (folder / "result.txt").exists()
    for name in (".job.nc.0123abcd.tmp", "notes.txt"):
        (folder / name).touch()
    forget(folder)
    assert {path.name for path in folder.iterdir()} == {"notes.txt"}
    (folder / TRACE).write_text("Timeout!\n  in a loop\n")
    outcome = execute(one)
    assert (outcome.done, outcome.error) == (False, "time limit of 60 s exceeded")
    assert (outcome.traceback, outcome.seconds) == ("Timeout!\n  in a loop\n", 60.0)
    forget(folder)
    (folder / "attempts").write_text("1\n")
    (folder / ".outcome.json.0123abcd.tmp").touch()  # it was killed while it wrote
    assert execute(one).done
    assert not [*folder.glob(".*.tmp")]


def test_a_job_runs_in_the_folder_of_the_sweep_with_one_thread_and_leaves_the_process_as_it_was(
    tmp_path,
):
    before = list(sys.path)
    here = os.getcwd()
    one = make_job(tmp_path, 0, "surroundings")
    assert execute(replace(one, search_path=(*one.search_path, str(tmp_path)))).done
    found = json.loads((tmp_path / "0" / "surroundings.json").read_text())
    assert found["cwd"] == str(tmp_path) != here
    assert found["numba"] == 1
    assert (sys.path, os.getcwd()) == (before, here)
    assert (
        execute(replace(make_job(tmp_path, 1, "written"), cwd=str(tmp_path / "gone"))).error[:17]
        == "FileNotFoundError"
    )


def test_input_files_and_code_are_checked_where_the_job_runs(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    for folder, text in ((tmp_path, "1"), (tmp_path / "there", "2")):
        (folder / "record.csv").write_text(text)
    monkeypatch.chdir(tmp_path)
    one = make_job(tmp_path, 0, "number", path="record.csv", records={"folder": "there"})
    one = replace(one, files=tuple(file_digests(json.loads(one.configuration)).items()))
    assert execute(one).done
    (tmp_path / "0" / "outcome.json").unlink()
    outcome = execute(replace(one, cwd=str(tmp_path / "there")))
    assert "record.csv is not what it was when the sweep was started" in outcome.error
    forget(tmp_path / "0")
    (tmp_path / "there" / "new").touch()
    assert "there is not what it was" in execute(one).error

    one = replace(make_job(tmp_path, 1, "number"), code=identity.code_digest(), text="other words")
    assert execute(one).done
    assert (
        "runs other code or packages"
        in execute(replace(one, folder=str(tmp_path / "2"), code="other")).error
    )
    assert not (tmp_path / "2" / "attempts").exists()
    assert execute(
        replace(one, folder=str(tmp_path / "3"), code="other", text=identity.text_digest())
    ).done


def test_a_folder_that_cannot_be_made_fails_the_job_and_the_node_of_hydra_has_its_types_again(
    tmp_path,
):
    (tmp_path / "0").write_text("a file")
    outcome = execute(make_job(tmp_path, 0, "number"))
    assert (outcome.done, outcome.stored) == (False, False)
    assert "FileExistsError" in outcome.error
    one = make_job(tmp_path, 3, "number")
    content = json.loads(one.configuration)
    content["hydra"]["mode"] = "MULTIRUN"
    found = hydra_config(replace(one, configuration=json.dumps(content)))
    assert (OmegaConf.get_type(found, "hydra"), found.hydra.mode) == (
        HydraConf,
        RunMode.MULTIRUN,
    )


# --- limits


def test_limits_are_read_as_people_write_them():
    assert limits_of("10min", "2GB") == Limits(600.0, 2_000_000_000)
    assert [bytes_of(text) for text in ("1.5 KiB", "3e3", 7, "2.MB")] == [
        1536,
        3000,
        7,
        2_000_000,
    ]
    for wrong in ("much", "-1GB", 0, "nan", "1.2.3MB", "inf"):
        with pytest.raises(ValueError, match=r"hydra\.launcher\.memory_limit must be"):
            limits_of(None, wrong)


def test_a_job_over_a_limit_says_so_and_ends_its_process(tmp_path):
    """One that sleeps, one in a compiled loop that holds the interpreter, one that eats; side by
    side.
    """
    limits = {
        "sleeping": (0.3, None),
        "spinning": (1.0, None),
        "greedy": (None, 600_000_000),
    }
    for name in limits:
        (tmp_path / name).mkdir()
    with contextlib.ExitStack() as stack:
        started = {
            name: stack.enter_context(script_process(EXECUTE, tmp_path / name, name, *both))
            for name, both in limits.items()
        }
        codes = {name: process.wait(timeout=120) for name, process in started.items()}
    found = {name: read_outcome(tmp_path / name / "0") for name in limits}
    assert codes == {
        "sleeping": -signal.SIGKILL,
        "spinning": 1,
        "greedy": -signal.SIGKILL,
    }
    assert (found["sleeping"]["status"], found["sleeping"]["error"]) == (
        "failed",
        "time limit of 0.3 s exceeded",
    )
    assert found["sleeping"]["seconds"] >= 0.3
    assert found["greedy"]["error"].startswith("memory limit of 600 MB exceeded (6")
    assert found["spinning"] is None
    outcome = execute(
        make_job(tmp_path / "spinning", 0, "spinning", time_limit=1.0)
    )  # the next attempt tells
    assert outcome.error == "time limit of 1 s exceeded"
    assert "in spinning" in outcome.traceback
