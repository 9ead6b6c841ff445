"""One job in one process: its outcome, its attempts, its limits, and what it leaves."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.conf import HydraConf
from hydra.types import RunMode
from omegaconf import OmegaConf

import experiments
from experiments.files import identity
from experiments.files.identity import file_digests
from experiments.sweeps import task
from experiments.sweeps.store import TRACE, Limits, damage, forget, read_outcome
from experiments.sweeps.task import (
    DIED_TWICE,
    bytes_of,
    execute,
    hydra_config,
    limits_of,
)
from helpers.jobs import HANG_TIMEOUT, count_starts, make_job, script_process

#: a job that sleeps, and one that takes memory: time and memory limit
LIMITS = {"sleeping": (0.3, None), "greedy": (None, 600_000_000)}
#: s until the timer ends a process that has time to store the reason itself: it never does
NO_TIMER = 1e5
#: runs each of the jobs in a child process, below the folder that is its argument, and prints
#: their exit codes; the children are forked, so that nothing is imported more than once
LIMITS_SCRIPT = """
import json, os, sys
from helpers import jobs
from experiments.sweeps import task

limits = {limits}
task.TIMER_DELAY = {timer_delay}
if "spinning" in limits:  # compilation would let other threads run
    jobs.spin.compile("void(float64[::1])")
children = {{}}
for name, (time_limit, memory_limit) in limits.items():
    folder = os.path.join(sys.argv[1], name)
    os.mkdir(folder)
    job = jobs.make_job(folder, 0, name, time_limit=time_limit, memory_limit=memory_limit)
    children[name] = os.fork()
    if children[name] == 0:
        task.execute(job)
        os._exit(0)
statuses = {{name: os.waitpid(pid, 0)[1] for name, pid in children.items()}}
print(json.dumps({{name: os.waitstatus_to_exitcode(status) for name, status in statuses.items()}}))
"""


# --- the configuration of a job


@pytest.mark.parametrize("text", ["${oc.env:HOME}", "a${b}c", "${", r"a\${b}", r"\\${b}\\"])
def test_a_text_that_is_resolved_already_stays_as_it_is(text, tmp_path):
    content = {"x": {"y": [text]}, "z": text, "hydra": {"mode": None, "a": "${z}"}}
    job = replace(make_job(tmp_path, 0, "returning"), configuration=json.dumps(content))
    config = hydra_config(job)
    assert OmegaConf.to_container(config, resolve=True)["x"] == {"y": [text]}
    assert config.z == text
    assert config.hydra.a == text


# --- outcomes


def test_the_outcome_of_a_job_is_stored_with_the_digests_of_its_files(tmp_path):
    folder = tmp_path / "7"
    outcome = execute(make_job(tmp_path, 7, "writing", time_limit=60.0, memory_limit=10**12))
    assert outcome.number == 7
    assert outcome.done
    assert outcome.value == 7.0
    assert outcome.stored
    content = read_outcome(folder)
    assert content["status"] == "done"
    assert content["identity"] == "identity-7"
    assert content["value"] == 7.0
    assert content["overrides"] == ["number=7"]
    assert list(content["files"]) == ["result.txt"]
    left = sorted(path.name for path in folder.iterdir() if path.suffix != ".log")
    assert left == [".hydra", "attempts", "outcome.json", "report.html", "result.txt"]


def test_a_changed_result_is_damage_and_a_page_that_is_written_anew_is_not(tmp_path):
    folder = tmp_path / "7"
    execute(make_job(tmp_path, 7, "writing"))
    content = read_outcome(folder)
    assert damage(content, folder) == ""
    (folder / "report.html").write_text("anew")
    assert damage(content, folder) == ""
    (folder / "result.txt").write_text("number 8\n")
    assert damage(content, folder) == "result.txt is damaged"


def test_a_finished_job_is_not_run_again(tmp_path):
    job = make_job(tmp_path, 7, "writing")
    outcome = execute(job)
    assert execute(job) == outcome
    assert count_starts(job) == 1


def test_not_a_number_is_stored_as_no_value(tmp_path):
    """JSON has no number that stands for it."""
    outcome = execute(make_job(tmp_path, 0, "returning_nan"))
    assert outcome.done
    assert outcome.value is None
    json.loads((tmp_path / "0" / "outcome.json").read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("raising", "ValueError: job 0 cannot work"),
        ("leaving", "the command ended with exit code 3"),
        ("missing", "AttributeError: .*'missing'"),
    ],
)
def test_a_job_that_raises_or_exits_or_does_not_exist_has_failed(tmp_path, function, error):
    outcome = execute(make_job(tmp_path, 0, function))
    content = read_outcome(tmp_path / "0")
    assert not outcome.done
    assert content["status"] == "failed"
    assert re.match(error, outcome.error)
    assert content["error"] == outcome.error
    assert ("in raising" in content["traceback"]) == (function == "raising")
    assert "number: 0" in content["configuration"]


@pytest.mark.parametrize(("number", "error"), [(0, "Unable to allocate"), (1, "")])
def test_a_job_that_gets_no_memory_has_failed_and_the_next_one_runs(tmp_path, number, error):
    outcome = execute(make_job(tmp_path, number, "exhausting"))
    assert not outcome.done
    assert outcome.error.startswith(f"MemoryError: {error}".rstrip(": "))
    assert read_outcome(tmp_path / str(number))["error"] == outcome.error
    assert execute(make_job(tmp_path, 2, "returning")).done


def test_an_interrupt_that_another_error_hides_is_no_failure(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        execute(make_job(tmp_path, 0, "interrupted"))
    assert not (tmp_path / "0" / "outcome.json").exists()


def test_a_folder_that_cannot_be_made_fails_the_job(tmp_path):
    (tmp_path / "0").write_text("a file")
    outcome = execute(make_job(tmp_path, 0, "returning"))
    assert not outcome.done
    assert not outcome.stored
    assert "FileExistsError" in outcome.error


# --- attempts


@pytest.fixture
def attempted_job(tmp_path):
    """A job with a time limit, and its folder, in which attempts may have left something."""
    folder = tmp_path / "0"
    folder.mkdir()
    return make_job(tmp_path, 0, "writing", time_limit=60.0), folder


def test_two_attempts_that_ended_their_process_fail_the_job(attempted_job):
    job, folder = attempted_job
    (folder / "attempts").write_text("1\n2\n")
    assert execute(job).error == DIED_TWICE
    assert not (folder / "result.txt").exists()


def test_a_forgotten_job_leaves_only_files_of_others(attempted_job):
    job, folder = attempted_job
    (folder / "attempts").write_text("1\n2\n")
    execute(job)
    for name in (".job.nc.0123abcd.tmp", "notes.txt"):
        (folder / name).touch()
    forget(folder)
    assert {path.name for path in folder.iterdir()} == {"notes.txt"}


def test_an_attempt_that_left_the_trace_of_its_time_limit_fails_the_job(attempted_job):
    job, folder = attempted_job
    trace = "Timeout!\n  in a loop\n"
    (folder / TRACE).write_text(trace)
    outcome = execute(job)
    assert not outcome.done
    assert outcome.error == "time limit of 60 s exceeded"
    assert outcome.traceback == trace
    assert outcome.seconds == 60.0


def test_an_attempt_that_was_killed_while_it_wrote_is_repeated(attempted_job):
    job, folder = attempted_job
    (folder / "attempts").write_text("1\n")
    (folder / ".outcome.json.0123abcd.tmp").touch()
    assert execute(job).done
    assert not list(folder.glob(".*.tmp"))


# --- surroundings


def test_a_job_runs_in_the_folder_of_the_sweep_with_one_thread(tmp_path):
    path_before = list(sys.path)
    folder_before = os.getcwd()
    job = make_job(tmp_path, 0, "describing")
    assert execute(replace(job, search_path=(*job.search_path, str(tmp_path)))).done
    facts = json.loads((tmp_path / "0" / "surroundings.json").read_text())
    assert facts["cwd"] == str(tmp_path) != folder_before
    assert facts["numba"] == 1
    assert sys.path == path_before
    assert os.getcwd() == folder_before


def test_a_missing_working_folder_fails_the_job(tmp_path):
    job = replace(make_job(tmp_path, 1, "writing"), cwd=str(tmp_path / "gone"))
    assert execute(job).error.startswith("FileNotFoundError")


def test_input_files_are_checked_where_the_job_runs(tmp_path, monkeypatch):
    other_folder = tmp_path / "there"
    other_folder.mkdir()
    (tmp_path / "record.csv").write_text("1")
    (other_folder / "record.csv").write_text("2")
    monkeypatch.chdir(tmp_path)
    job = make_job(tmp_path, 0, "returning", path="record.csv", records={"folder": "there"})
    files = file_digests(json.loads(job.configuration))
    job = replace(job, files=tuple(files.items()))
    assert execute(job).done

    (tmp_path / "0" / "outcome.json").unlink()
    outcome = execute(replace(job, cwd=str(other_folder)))
    assert "record.csv is not what it was when the sweep was started" in outcome.error

    forget(tmp_path / "0")
    (other_folder / "new").touch()
    assert "there is not what it was" in execute(job).error


def test_code_is_checked_where_the_job_runs_and_other_words_in_it_do_not_count(tmp_path):
    job = replace(
        make_job(tmp_path, 1, "returning"), code=identity.code_digest(), text="other words"
    )
    assert execute(job).done

    other_code = replace(job, folder=str(tmp_path / "2"), code="other")
    assert "runs other code or packages" in execute(other_code).error
    assert not (tmp_path / "2" / "attempts").exists()

    same_text = replace(job, folder=str(tmp_path / "3"), code="other", text=identity.text_digest())
    assert execute(same_text).done


@pytest.fixture
def job_of_own_module(tmp_path, monkeypatch):
    """A function that makes a job, which runs a module of the user, after it was written."""
    monkeypatch.setattr(task, "imported_modules", {})
    (tmp_path / "code").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "code"))

    def make(number, value):
        path = tmp_path / "code" / "own_command.py"
        path.write_text(f"import os\n\ndef run(config):\n    return {value}\n")
        importlib.invalidate_caches()
        job = make_job(tmp_path, number, "run", task="own_command:")
        return path, replace(job, modules=(("own_command", identity.module_digest("own_command")),))

    yield make
    sys.modules.pop("own_command", None)


def test_a_module_of_the_user_that_was_edited_after_the_start_is_not_run(job_of_own_module):
    path, job = job_of_own_module(0, 1.0)
    path.write_text(path.read_text().replace("1.0", "20.0"))
    outcome = execute(job)
    assert not outcome.done
    assert "the module own_command" in outcome.error
    assert "is not what it was when the sweep was started" in outcome.error
    assert "own_command" not in sys.modules


def test_a_module_of_the_user_that_is_edited_while_it_is_imported_gives_no_result(
    job_of_own_module, monkeypatch
):
    path, job = job_of_own_module(0, 1.0)
    call = task._call

    def edit_and_call(job):
        path.write_text(path.read_text().replace("1.0", "20.0"))
        return call(job)

    monkeypatch.setattr(task, "_call", edit_and_call)
    assert "is not what it was" in execute(job).error


def test_a_worker_that_has_imported_an_older_module_of_the_user_refuses_the_job(job_of_own_module):
    path, job = job_of_own_module(0, 1.0)
    assert execute(job).value == 1.0
    path.write_text(path.read_text().replace("1.0", "20.0"))
    _, same_code = job_of_own_module(1, 1.0)
    assert execute(same_code).value == 1.0
    _, other_code = job_of_own_module(2, 20.0)
    assert "restart workers" in execute(other_code).error


def test_a_module_of_the_toolbox_that_is_imported_after_an_edit_gives_no_result(
    tmp_path, monkeypatch
):
    name = "experiments.sweeps.shared_output"
    job = replace(make_job(tmp_path, 0, "returning"), code=identity.code_digest())
    monkeypatch.setattr(identity, "_edited_modules", [])
    texts = [dict(package) for package in identity._text_digests()]
    monkeypatch.setattr(identity, "_text_digests", lambda: texts)
    importlib.import_module(name)
    identity._checked_modules.discard(name)
    assert execute(job).done

    of_experiments = texts[identity.PACKAGE_FOLDERS.index(Path(experiments.__file__).parent)]
    of_experiments["sweeps/shared_output.py"] = "digest of the text before an edit"
    identity._checked_modules.discard(name)
    other_job = replace(job, folder=str(tmp_path / "1"))
    assert f"the module {name} of the toolbox was edited" in execute(other_job).error


def test_the_node_of_hydra_has_its_types_again(tmp_path):
    job = make_job(tmp_path, 3, "returning")
    content = json.loads(job.configuration)
    content["hydra"]["mode"] = "MULTIRUN"
    config = hydra_config(replace(job, configuration=json.dumps(content)))
    assert OmegaConf.get_type(config, "hydra") is HydraConf
    assert config.hydra.mode == RunMode.MULTIRUN


# --- limits


def test_limits_are_read_as_people_write_them():
    assert limits_of("10min", "2GB") == Limits(600.0, 2_000_000_000)


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("1.5 KiB", 1536), ("3e3", 3000), (7, 7), ("2.MB", 2_000_000)]
)
def test_a_size_of_memory_is_read_as_people_write_it(text, n_bytes):
    assert bytes_of(text) == n_bytes


@pytest.mark.parametrize("text", ["much", "-1GB", 0, "nan", "1.2.3MB", "inf"])
def test_a_memory_limit_that_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match=r"hydra\.launcher\.memory_limit must be"):
        limits_of(None, text)


def run_over_limits(folder, limits, timer_delay=NO_TIMER):
    """Run jobs over their limits, side by side; return their folders and exit codes.

    The timer ends a process `timer_delay` seconds after its time limit.
    """
    script = LIMITS_SCRIPT.format(limits=limits, timer_delay=timer_delay)
    with script_process(script, folder, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=HANG_TIMEOUT)
    return {name: folder / name for name in limits}, json.loads(out)


def run_into_a_compiled_loop(folder):
    """Run a job that is in its compiled loop when its time is over, however busy the machine is.

    Return the folder above its own, its time limit [s] and the exit code of its process.
    """
    time_limit = 1.0
    while True:
        attempt = folder / f"{time_limit:g}"
        attempt.mkdir()
        limits = {"spinning": (time_limit, None)}
        folders, codes = run_over_limits(attempt, limits, timer_delay=1.0)
        if (folders["spinning"] / "0" / ".spinning").exists():
            return folders["spinning"], time_limit, codes["spinning"]
        time_limit *= 4.0


@pytest.fixture(scope="module")
def jobs_over_limits(tmp_path_factory):
    """Folders and exit codes of jobs that ran over their limits."""
    return run_over_limits(tmp_path_factory.mktemp("limits"), LIMITS)


def test_a_job_over_its_time_limit_says_so_and_ends_its_process(jobs_over_limits):
    folders, codes = jobs_over_limits
    content = read_outcome(folders["sleeping"] / "0")
    assert codes["sleeping"] == -signal.SIGKILL
    assert content["status"] == "failed"
    assert content["error"] == "time limit of 0.3 s exceeded"
    assert content["seconds"] >= 0.3


def test_a_job_over_its_memory_limit_says_so_and_ends_its_process(jobs_over_limits):
    folders, codes = jobs_over_limits
    content = read_outcome(folders["greedy"] / "0")
    assert codes["greedy"] == -signal.SIGKILL
    assert content["error"].startswith("memory limit of 600 MB exceeded (6")


@pytest.mark.slow
def test_a_job_over_its_time_limit_in_compiled_code_ends_and_its_next_attempt_says_so(tmp_path):
    """A compiled loop holds Python's global lock, so that nothing can be written then."""
    folder, time_limit, code = run_into_a_compiled_loop(tmp_path)
    assert code == 1
    assert read_outcome(folder / "0") is None
    outcome = execute(make_job(folder, 0, "spinning", time_limit=time_limit))
    assert outcome.error == f"time limit of {time_limit:g} s exceeded"
    assert "in spinning" in outcome.traceback
