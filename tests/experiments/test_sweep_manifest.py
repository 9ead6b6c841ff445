"""Which sweeps may run in a folder, which job is which, and what is refused before the first job."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from running import PLAIN
from sweep_command import QUICK, ended, manifest, outcome, results, started, sweep, wait_for

from experiments.launch import sweep_name
from experiments.sweeps.identity import identity_of
from experiments.sweeps.store import Manifest, read_manifest

if PLAIN:
    pytest.skip("sweeps are told apart alike without the compiler", allow_module_level=True)


def told(said, code=1):
    """The only line that a refused sweep says."""
    assert said.code == code, said
    (line,) = (said.out + said.err).splitlines()
    return line


def jobs_of(folder):
    return sorted(path.name for path in folder.glob("[0-9]*"))


# --- what is asked for


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["seeed=1,2"], ["unknown key 'seeed'; did you mean 'seed'?"]),
        (["+seeed=1,2"], ["'seeed'", "did you mean 'seed'?"]),
        (["insertion=error", "insertion.error_treshold=0.1,0.2"], ["did you mean 'insertion.error_threshold'?"]),
        (["reduction=mean_relevance,prior_entropi"], ["'prior_entropi' of reduction", "did you mean 'prior_entropy'?"]),
        (["seed=range(3,3)"], ["seed=range(3,3)", "nothing"]),
        (["seed=interval(0,3)"], ["interval", "hydra/sweeper=optuna"]),
        (["seed=1,2", "hydra.sweep.subdir=${seed}"], ["hydra.sweep.subdir", "no effect"]),
        (["seed=1,2", "budget=${budgett}"], ["budgett"]),
    ],
    ids=lambda value: " ".join(value) if "=" in value[0] else "",
)
def test_what_does_not_exist_stops_a_sweep_before_its_first_job(overrides, words, tmp_path):
    line = told(sweep(tmp_path / "sweep", *QUICK, *overrides))
    assert line.startswith("Error: ")
    for word in words:
        assert word in line
    assert list(tmp_path.iterdir()) == []


def test_one_bad_value_of_the_last_job_stops_the_first(tmp_path):
    """A value that only a job can judge costs only that job; a name costs none."""
    line = told(sweep(tmp_path / "sweep", *QUICK, "seed=1,2,3", "reduction=mean_relevance,nonsense"))
    assert "nonsense" in line
    assert jobs_of(tmp_path / "sweep") == []


# --- what is in the folder


def damaged(folder, change):
    """Change the manifest of a finished sweep."""
    path = folder / "sweep.json"
    content = change(json.loads(path.read_text()))
    path.write_text(content if isinstance(content, str) else json.dumps(content))


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


def test_the_manifest_says_which_job_is_which(finished):
    content = manifest(finished)
    assert {name: content[name] for name in ("schema", "schema_version", "project", "command", "swept")} == {
        "schema": "sweep",
        "schema_version": 1,
        "project": "sysid",
        "command": "identify",
        "swept": ["seed"],
    }
    assert [job["number"] for job in content["jobs"]] == [0, 1]
    assert [job["values"]["seed"] for job in content["jobs"]] == [1, 2]
    assert all(job["identity"] == outcome(finished, job["number"])["identity"] for job in content["jobs"])
    assert all(job["overrides"][-1] == f"seed={job['values']['seed']}" for job in content["jobs"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content | {"project": "another"}, ["not the manifest of a sweep of sysid"]),
        (lambda content: content | {"schema": "network"}, ["not the manifest of a sweep of sysid"]),
        (lambda content: [1, 2], ["not the manifest of a sweep of sysid"]),
        (lambda content: content | {"schema_version": 99}, ["schema_version 99", "update"]),
        (lambda content: content | {"schema_version": "new"}, ["damaged", "schema_version"]),
        (lambda content: content | {"version": "0.0.9"}, ["other code", "0.0.9", "hydra.sweep.dir"]),
        (lambda content: content | {"code": "0" * 64}, ["other code", "hydra.sweep.dir"]),
        (lambda content: content | {"command": "validate"}, ["sysid-validate", "not of sysid-identify"]),
        (lambda content: json.dumps(content)[:200], ["damaged"]),
        (lambda content: "", ["damaged"]),
        (lambda content: "\0" * 100, ["damaged"]),
        (lambda content: {name: one for name, one in content.items() if name != "jobs"}, ["damaged", "jobs missing"]),
        (lambda content: {name: one for name, one in content.items() if name != "schema_version"}, ["damaged"]),
        (lambda content: content | {"jobs": [{"number": 0}]}, ["damaged", "jobs"]),
        (lambda content: content | {"jobs": [{**content["jobs"][0], "more": 1}]}, ["damaged", "jobs"]),
        (lambda content: content | {"jobs": 3}, ["damaged", "jobs"]),
        (lambda content: content | {"jobs": [content["jobs"][0]] * 2}, ["damaged", "twice"]),
        (lambda content: content | {"swept": None}, ["damaged", "swept"]),
    ],
    ids=range(18),
)
def test_a_folder_of_another_sweep_is_not_touched(change, words, again):
    damaged(again, change)
    with pytest.raises(ValueError, match=re.escape(str(again))) as caught:
        Manifest.of(again, "identify")
    for word in words:
        assert word in str(caught.value)


def test_what_is_refused_is_told_in_a_line_and_left_as_it_is(again):
    damaged(again, lambda content: content | {"code": "0" * 64})
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in again.rglob("[!.]*") if path.is_file()}
    assert "holds a sweep of other code" in told(sweep(again, *QUICK, "seed=1,2"))
    after = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in again.rglob("[!.]*") if path.is_file()}
    assert before == after


@pytest.mark.parametrize("name", ["notes.txt", "multirun.yaml", "0"])
def test_a_folder_with_other_content_is_not_touched(name, tmp_path):
    folder = tmp_path / "sweep"
    (folder / name).mkdir(parents=True)
    line = told(sweep(folder, *QUICK, "seed=1,2"))
    assert "is not empty" in line
    assert name in line
    assert "hydra.sweep.dir" in line
    assert [path.name for path in folder.glob("[!.]*")] == [name]


def test_a_folder_of_another_command_is_not_touched(again):
    line = told(sweep(again, "model=a.nc,b.nc", command="validate"))
    assert "holds a sweep of sysid-identify, not of sysid-validate" in line


# --- which job is which


def numbers(said):
    """Jobs of a sweep, those that were finished, and those to run."""
    words = said.out.split()
    finished = int(words[words.index("finished") - 1]) if "finished" in words else 0
    return int(words[2]), finished, int(words[words.index("to") - 1])


def test_the_same_command_runs_nothing(again):
    before = {path: path.stat().st_mtime_ns for path in again.glob("*/*")}
    said = sweep(again, *QUICK, "seed=1,2")
    assert said.code == 0
    assert numbers(said) == (2, 2, 0)
    assert "2 done (2 before)" in said.out
    assert before == {path: path.stat().st_mtime_ns for path in again.glob("*/*")}


def test_the_order_of_overrides_and_how_they_are_run_do_not_matter(again):
    order = ("seed=2,1", *reversed(QUICK))
    said = sweep(again, *order, "cache=null", "hydra.verbose=false", "hydra.sweeper.max_batch_size=1")
    assert said.code == 0
    assert said.out.count("1 finished already, 0 to run") == 2  # two batches
    assert jobs_of(again) == ["0", "1"]


def test_more_values_run_only_what_is_new(again):
    assert numbers(sweep(again, *QUICK, "seed=0,1,2")) == (3, 2, 1)
    assert outcome(again, 2)["overrides"][-1] == "seed=0"
    assert numbers(sweep(again, *QUICK, "seed=1", "budget=8,9")) == (2, 1, 1)
    assert set(manifest(again)["swept"]) == {"budget", "seed"}


def test_the_same_job_twice_is_one(tmp_path):
    said = sweep(tmp_path / "sweep", *QUICK, "seed=1,1,2", "training.variance=1.0,1")
    assert said.code == 0
    assert len(jobs_of(tmp_path / "sweep")) == len(manifest(tmp_path / "sweep")["jobs"])
    assert numbers(said)[0] == len(jobs_of(tmp_path / "sweep"))


def test_a_sweep_is_named_after_its_command_whatever_runs_it():
    first = sweep_name("identify", ["seed=1,2", "budget=8"])
    assert first == sweep_name("identify", ["budget=8", "seed=1,2"])
    assert first != sweep_name("identify", ["seed=1,3", "budget=8"])
    assert first.startswith("identify-")
    assert sweep_name("validate", ["seed=1,2", "budget=8"]) != first
    assert sweep_name("identify", ["experiment=mine", "seed=1"]).startswith("mine-")
    as_hydra_has_it = OmegaConf.create({"task": ["seed=1,2", "a=${hydra:job.num}"]}).task
    assert sweep_name("identify", as_hydra_has_it) == sweep_name("identify", ["seed=1,2", "a=${hydra:job.num}"])


SETTINGS = {
    "seed": 1,
    "outputs": "lean",
    "cache": "/somewhere",
    "path": None,
    "system": {"_target_": "simulators.VanDerPol", "dt": 0.1, "lags": [1, 2]},
    "hydra": {"launcher": {"_target_": "x"}, "job": {"num": 3}},
}


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one | {"seed": 2},
        lambda one: one | {"seed": "1"},
        lambda one: one | {"seed": 1.5},
        lambda one: one | {"seed": None},
        lambda one: one | {"outputs": "full"},
        lambda one: one | {"more": None},
        lambda one: {name: value for name, value in one.items() if name != "path"},
        lambda one: one | {"system": one["system"] | {"dt": 0.1 + 1e-16}},
        lambda one: one | {"system": one["system"] | {"lags": [2, 1]}},
        lambda one: one | {"system": one["system"] | {"_target_": "simulators.BoucWen"}},
    ],
    ids=range(10),
)
def test_every_setting_makes_another_job(change):
    assert identity_of("a:b", change(SETTINGS)) != identity_of("a:b", SETTINGS)
    assert identity_of("a:c", SETTINGS) != identity_of("a:b", SETTINGS)


@pytest.mark.parametrize(
    "change",
    [
        lambda one: dict(reversed(one.items())),
        lambda one: one | {"cache": None},
        lambda one: one | {"hydra": {"launcher": {"workers": 7}}},
    ],
    ids=["order", "cache", "launcher"],
)
def test_how_a_job_is_run_makes_no_other_job(change):
    assert identity_of("a:b", change(SETTINGS)) == identity_of("a:b", SETTINGS)


def test_the_code_makes_another_job(monkeypatch):
    before = identity_of("a:b", SETTINGS)
    monkeypatch.setattr("experiments.sweeps.identity._own_digest", lambda: "other")
    assert identity_of("a:b", SETTINGS) != before


def test_the_content_of_a_file_makes_another_job(tmp_path):
    path = tmp_path / "record.csv"
    found = []
    for content in (None, "1,2", "1,3", "1,2"):
        if content is not None:
            path.write_text(content)
            os.utime(path, ns=(0, len(found)))
        found.append(identity_of("a:b", SETTINGS | {"path": str(path)}))
    assert len(set(found)) == 3
    assert found[1] == found[3]


def test_a_manifest_gives_every_job_its_number_for_ever(tmp_path):
    first = Manifest(tmp_path, "identify")
    assert [first.admit(name, [name], {"a": name}) for name in ("x", "y", "x", "z")] == [0, 1, 0, 2]
    first.sweep([])
    first.write()
    again = Manifest.of(tmp_path, "identify")
    assert [again.admit(name, [name], {"a": name}) for name in ("new", "z", "x")] == [3, 2, 0]
    assert read_manifest(tmp_path)["swept"] == ["a"]


def test_a_job_whose_file_has_changed_takes_the_place_of_the_one_before(tmp_path):
    first = Manifest(tmp_path, "identify")
    for name in ("x", "y"):
        first.admit(name, [f"path={name}", "seed=1"], {"path": name})
    first.write()
    again = Manifest.of(tmp_path, "identify")
    assert again.admit("x after a change", ["seed=1", "path=x"], {"path": "x"}) == 0
    assert again.admit("z", ["seed=1", "path=z"], {"path": "z"}) == 2
    again.write()
    assert [job["identity"] for job in read_manifest(tmp_path)["jobs"]] == ["x after a change", "y", "z"]


def test_a_key_is_swept_if_it_is_named_or_differs(tmp_path):
    one = Manifest(tmp_path, "identify")
    for number in range(4):
        one.admit(str(number), [f"n={number}"], {"fixed": 3, "named": 1, "differing": number % 2, "none": None})
    one.sweep(["named"])
    assert one.swept == ["named", "differing"]


# --- two at once


def test_a_second_sweep_in_the_same_folder_ends_and_the_first_goes_on(tmp_path):
    folder = tmp_path / "sweep"
    first = started(folder, *QUICK, "seed=range(0,15)")
    assert wait_for(lambda: len(list(folder.glob("*/outcome.json"))) > 2)
    line = told(sweep(folder, *QUICK, "seed=range(0,15)"))
    assert first.poll() is None, "the first has ended before the second: the test needs more jobs"
    assert f"another sweep runs in {folder} (process {first.pid} on " in line
    assert "since 20" in line
    said = ended(first)
    assert said.code == 0, said
    assert "15 done" in said.out
    assert len(results(folder)) == 15
