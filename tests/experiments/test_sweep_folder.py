"""Which sweeps may run in a folder, which job is which, what is refused before the first job, what is found again."""

import contextlib
import json
import os
import re
import runpy
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from generating import BOUC_WEN
from generating import SHORT as SHORT_BENCHMARK
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from omegaconf import OmegaConf
from running import PLAIN
from sweep_command import QUICK, ended, manifest, outcome, results, started, sweep
from sweep_jobs import job, wait_until
from validating import QUICK as QUICK_VALIDATION
from validating import csv_file, saved

from experiments.launch import sweep_name
from experiments.sweeps import store
from experiments.sweeps import sweep as sweep_module
from experiments.sweeps.engines import InProcess
from experiments.sweeps.store import Manifest

if PLAIN:
    pytest.skip("sweeps are told apart alike without the compiler", allow_module_level=True)


def told(said):
    """The only line that a refused sweep says."""
    assert said.code == 1, said
    (line,) = (said.out + said.err).splitlines()
    return line


def numbers(said):
    """Jobs of a sweep, those that were finished, and those to run."""
    words = said.out.split()
    finished = int(words[words.index("finished") - 1]) if "finished" in words else 0
    return int(words[2]), finished, int(words[words.index("to") - 1])


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("[!.]*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder of a sweep of two jobs."""
    folder = tmp_path_factory.mktemp("sweeps") / "finished"
    assert sweep(folder, *QUICK, "seed=1,2").code == 0
    return folder


@pytest.fixture
def again(finished, tmp_path):
    """A copy of it."""
    return Path(shutil.copytree(finished, tmp_path / "sweep"))


def test_what_does_not_exist_stops_a_sweep_before_its_first_job(tmp_path):
    for overrides, words in (
        (["seed=1,2,3", "reduction=mean_relevance,prior_entropi"], ["did you mean 'prior_entropy'?"]),
        (["+seeed=1,2"], ["'seeed'", "did you mean 'seed'?"]),
        (["seed=range(3,3)"], ["seed=range(3,3)", "nothing"]),
        (["seed=interval(0,3)"], ["interval", "hydra/sweeper=optuna"]),
        (["seed=1,2", "hydra.sweep.subdir=${seed}"], ["hydra.sweep.subdir", "no effect"]),
    ):
        line = told(sweep(tmp_path / "sweep", *QUICK, *overrides))
        assert line.startswith("Error: ")
        assert all(word in line for word in words)
        assert list(tmp_path.iterdir()) == []


def test_a_folder_of_another_sweep_is_refused_in_a_line_and_left_as_it_is(again, tmp_path):
    own = manifest(again)
    for content, words in (
        (own | {"project": "another"}, "not the manifest of a sweep of sysid"),
        (own | {"schema_version": 99}, "schema_version 99.*update"),
        (own | {"version": "0.0.9"}, "other code.*0.0.9.*hydra.sweep.dir"),
        (own | {"command": "validate"}, "sysid-validate, not of sysid-identify"),
        *(([1, 2], "damaged"), (json.dumps(own)[:200], "damaged")),
        ({name: one for name, one in own.items() if name != "jobs"}, "damaged.*jobs"),
        (own | {"jobs": [{**own["jobs"][0], "more": 1}]}, "damaged.*more"),
        (own | {"jobs": [own["jobs"][0]] * 2}, "damaged.*twice"),
        (own | {"code": "0" * 64}, "other code.*hydra.sweep.dir"),
    ):
        (again / "sweep.json").write_text(content if isinstance(content, str) else json.dumps(content))
        with pytest.raises(ValueError, match=re.escape(str(again)) + ".*" + words):
            Manifest.open(again, "identify")
    before = stamps(again)
    assert "holds a sweep of other code" in told(sweep(again, *QUICK, "seed=1,2"))
    assert stamps(again) == before
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").touch()
    line = told(sweep(tmp_path / "other", *QUICK, "seed=1,2"))
    assert "is not empty (notes.txt" in line
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]


def test_the_manifest_says_which_job_is_which_and_the_same_command_runs_nothing(again):
    content = manifest(again)
    assert (content["schema"], content["project"], content["command"]) == ("sweep", "sysid", "identify")
    assert content["swept"] == ["seed"]
    assert [(job["number"], job["values"]["seed"]) for job in content["jobs"]] == [(0, 1), (1, 2)]
    assert all(job["identity"] == outcome(again, job["number"])["identity"] for job in content["jobs"])
    before = stamps(again / "0") | stamps(again / "1")
    order = ("seed=2,1", *reversed(QUICK), "cache=null", "hydra.verbose=false", "figures=false")
    said = sweep(again, *order, "hydra.sweeper.max_batch_size=1")
    assert said.code == 0
    assert said.out.count("1 finished already, 0 to run") == 2  # two batches
    assert stamps(again / "0") | stamps(again / "1") == before
    assert sorted(path.name for path in again.glob("[0-9]*")) == ["0", "1"]


def test_more_values_run_only_what_is_new_and_the_same_job_twice_is_one(again):
    assert numbers(sweep(again, *QUICK, "seed=0,1,1,2", "training.variance=1.0")) == (3, 0, 3)
    assert numbers(sweep(again, *QUICK, "seed=0,1,2")) == (3, 2, 1)
    assert outcome(again, 5)["overrides"][-1] == "seed=0"
    assert manifest(again)["swept"] == ["seed"]


def test_a_sweep_is_named_after_its_command_whatever_runs_it():
    first = sweep_name("identify", ["seed=1,2", "budget=8"])
    assert first == sweep_name("identify", ["budget=8", "seed=1,2"])
    assert first.startswith("identify-")
    assert first not in (sweep_name("identify", ["seed=1,3", "budget=8"]), sweep_name("validate", ["seed=1,2"]))
    assert sweep_name("identify", ["experiment=mine", "seed=1"]).startswith("mine-")
    as_hydra_has_it = OmegaConf.create({"task": ["seed=1,2", "a=${hydra:job.num}"]}).task
    assert sweep_name("identify", as_hydra_has_it) == sweep_name("identify", ["seed=1,2", "a=${hydra:job.num}"])


def test_a_manifest_gives_every_job_its_number_for_ever(tmp_path):
    first = Manifest(tmp_path, "identify")
    named = [first.admit(name, [f"path={name}", "seed=1"], {"path": name, "seed": 1}) for name in ("x", "y", "x", "z")]
    assert named == [0, 1, 0, 2]
    first.write()
    again = Manifest.open(tmp_path, "identify")
    assert again.swept == ["path"]
    assert again.admit("y after a change of its file", ["seed=1", "path=y"], {"path": "y"}) == 1
    assert again.admit("new", ["path=new"], {"path": "new"}) == 3
    assert again.admit("x", ["path=x", "seed=1", "budget=100"], {"path": "x", "seed": 1, "budget": 100}) == 0
    again.write(["seed"])
    content = manifest(tmp_path)
    assert [job["identity"] for job in content["jobs"]] == ["x", "y after a change of its file", "z", "new"]
    assert content["swept"] == ["path", "seed"]
    assert content["jobs"][0]["values"] == {"path": "x", "seed": 1, "budget": 100}  # the same job in other words


# --- results by content


def test_another_sweep_with_common_jobs_computes_nothing_twice_and_takes_nothing_damaged(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    assert numbers(sweep(first, *QUICK, "seed=1,2,3")) == (3, 0, 3)
    shutil.rmtree(first / "2")
    assert numbers(sweep(second, *QUICK, "seed=0,3,2,1")) == (4, 3, 1)
    assert [outcome(second, number)["number"] for number in range(4)] == [0, 1, 2, 3]
    assert outcome(second, 1)["overrides"][-1] == "seed=3"
    assert results(second)["3"] == results(first)["0"]
    assert numbers(sweep(tmp_path / "third", *QUICK, "seed=1", "cache=null")) == (1, 0, 1)
    for name in ("numbered", "again"):  # what a job may call by its number is its own
        assert numbers(sweep(tmp_path / name, *QUICK, "seed=1,2", "weather_input='a${hydra:job.num}'")) == (2, 0, 2)
    kept = tmp_path / "multirun" / "cache" / "results"
    one, two, three = (kept / outcome(second, number)["identity"] for number in (3, 2, 1))
    (one / "job.nc").write_bytes((one / "job.nc").read_bytes()[:-1])  # in place: of the first sweep as well
    (two / "outcome.json").write_text("{")
    (three / "outcome.json").write_text((one / "outcome.json").read_text())
    assert numbers(sweep(tmp_path / "fourth", *QUICK, "seed=1,2,3")) == (3, 0, 3)
    assert numbers(sweep(tmp_path / "fifth", *QUICK, "seed=1")) == (1, 1, 0)
    assert numbers(sweep(first, *QUICK, "seed=1,2,3")) == (3, 3, 0)


def test_what_a_job_writes_elsewhere_is_not_shared(tmp_path):
    one, two, results = job(tmp_path, 0, "number"), job(tmp_path, 1, "number"), tmp_path / "results"
    two = replace(two, identity=one.identity)
    store.write_outcome(store.Outcome(0, False, error="no"), one)
    store.share(one, results)
    assert not results.exists()
    assert not store.fetch(two, results)
    (tmp_path / "0" / "more").mkdir()
    (tmp_path / "0" / "more" / "a.txt").write_text("1")
    store.write_outcome(store.Outcome(0, True, 0.5), one)
    (tmp_path / "full").write_text("")
    store.share(one, tmp_path / "full")  # no folder: nothing is raised
    store.share(one, results)
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "attempts").write_text("1\n1\n")
    assert store.fetch(two, results) == store.outcome_in(tmp_path / "1") == store.Outcome(1, True, 0.5, stored=True)
    assert (tmp_path / "1" / "more" / "a.txt").read_text() == "1"
    assert not list(results.glob(".*"))
    assert store.count_attempts(tmp_path / "1") == 0


def test_a_result_that_the_driver_does_not_see_is_a_failure(tmp_path, monkeypatch):
    run = InProcess.run

    def forget(self, jobs):
        """As on a machine that sees another folder."""
        for one in run(self, jobs):
            (self.folder / str(one.number) / "outcome.json").unlink()
            yield one

    monkeypatch.setattr(sweep_module.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(InProcess, "run", forget)
    said = sweep(tmp_path / "sweep", *QUICK, "seed=1,2")
    assert said.code == 1
    assert said.err.count("all machines need to see the folder of the sweep") == 2


# --- other commands


def test_sweeps_of_other_commands_are_found_again(tmp_path):
    for name in ("a", "b"):
        saved(tmp_path / f"{name}.nc")
    (tmp_path / "damaged.nc").write_bytes((tmp_path / "a.nc").read_bytes()[:-500])
    csv_file(tmp_path / "record.csv")
    data = ("data=csv", "data.test=record.csv", "data.inputs=[u]", "data.outputs=[y,z]", "data.dt=0.5", "left_out=[z]")
    given = (*data, "data.units={y: V, z: degC, u: A}", "data.initialisation_window=5", *QUICK_VALIDATION)
    for found in ("2 done, 1 failed", "2 done (2 before), 1 failed"):  # by the name of the sweep
        said = sweep(None, "model=a.nc,damaged.nc,b.nc", *given, command="validate", cwd=tmp_path)
        assert said.code == 1
        assert f"3 jobs: {found}" in said.out, said.err
        assert "#1 model=damaged.nc: " in said.err
    given = ("model=a.nc,b.nc", "output='${hydra:runtime.output_dir}/it_${hydra:job.id}.py'")
    for expected in ((2, 0, 2), (2, 2, 0)):
        said = sweep(tmp_path / "sweep", *given, command="export")
        assert (said.code, numbers(said)) == (0, expected)
    for number in range(2):
        file = tmp_path / "sweep" / str(number) / f"it_{number}.py"
        assert callable(runpy.run_path(str(file))["predict"])
    given = (*SHORT_BENCHMARK, *BOUC_WEN, "baseline=[mean]", "seed=1,-1,2", "output=made/${hydra:job.num}")
    said = sweep(tmp_path / "benchmarks", *given, command="generate")
    assert (said.code, numbers(said)) == (1, (3, 0, 3))
    assert "  #1 seed=-1: ValueError: " in said.err
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["0", "2"]


# --- two at once


def test_a_second_sweep_in_the_same_folder_ends_and_the_first_goes_on(tmp_path):
    folder = tmp_path / "sweep"
    first = started(folder, *QUICK, "seed=range(0,40)")
    assert wait_until(lambda: list(folder.glob("*/outcome.json")))
    line = told(sweep(folder, *QUICK, "seed=range(0,40)"))
    assert first.poll() is None, "the first has ended before the second: the test needs more jobs"
    assert f"another sweep runs in {folder} (process {first.pid} on " in line
    said = ended(first)
    assert (said.code, "40 done" in said.out) == (0, True), said


def test_a_folder_never_has_two_owners(tmp_path, monkeypatch):
    """Every sweep that finds nothing to do removes the folder and its lock; a lock on a removed file does not count."""
    owners, ended_ones = [], []

    def own(name):
        for _ in range(300):
            with contextlib.suppress(ValueError), store.hold(tmp_path / "sweep"):
                owners.append(name)
                assert owners == [name]
                owners.remove(name)
        ended_ones.append(name)

    threads = [threading.Thread(target=own, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(ended_ones) == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == []
    lock, removed = store.fcntl.flock, []

    def flock(file, how):  # another sweep lets go of the folder between the opening of its lock and the locking
        if not removed:
            removed.append((tmp_path / ".lock").unlink())
        lock(file, how)

    monkeypatch.setattr(store.fcntl, "flock", flock)
    with store.hold(tmp_path):
        assert os.path.exists(tmp_path / ".lock")
        with pytest.raises(ValueError, match="another sweep"), contextlib.ExitStack() as stack:
            stack.enter_context(store.hold(tmp_path))


def test_the_launcher_of_another_package_under_the_same_name_is_refused(capsys):
    from hydra_plugins.sysid_sweep.plugins import JoblibLauncher, check_launcher  # after Hydra has looked for plugins

    config = OmegaConf.create({"hydra": {"runtime": {"choices": {"hydra/launcher": "joblib"}}}})
    check_launcher(JoblibLauncher(), config)
    with pytest.raises(SystemExit):
        check_launcher(BasicLauncher(), config)
    line = capsys.readouterr().err
    assert "hydra/launcher=joblib is hydra._internal.core_plugins.basic_launcher.BasicLauncher of another" in line
    assert "hydra.launcher._target_=hydra_plugins.sysid_sweep.plugins.JoblibLauncher" in line
    config.hydra.runtime.choices["hydra/launcher"] = "basic"
    check_launcher(BasicLauncher(), config)
