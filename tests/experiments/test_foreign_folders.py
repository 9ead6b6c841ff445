"""Folders and caches of strangers: nothing outside of them is read, written, linked or deleted."""

import hashlib
import json
import os
import socket
from pathlib import Path

import numpy as np
import pytest

from experiments.collect.read import read_results
from experiments.files.cache import TRAJECTORY, Cache
from experiments.reproduce.run import run as reproduce
from experiments.sweeps import store
from helpers.commands import SMALLEST_RUN, compose_configuration, run_command
from helpers.jobs import make_job
from helpers.sweeps import run_sweep
from helpers.written_sweeps import make_summary, write_sweep
from simulators import Sample
from sysid import StoreError

CONTENT = b"import os\n"
SECRET = b"a secret of the user\n"
STATED = {"bytes": len(CONTENT), "sha256": hashlib.sha256(CONTENT).hexdigest()}


@pytest.fixture
def home(tmp_path):
    """Folder of the user, with files that nobody else may read or change."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "secret.txt").write_bytes(SECRET)
    (folder / "module.py").write_bytes(b"x = 1\n")
    return folder


def read_all(folder):
    """Return the bytes of all files of a folder, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# --- kept results of a shared cache


@pytest.fixture
def kept(home, tmp_path):
    """A job, and the folder of its kept result, which another user has made."""
    job = make_job(home / "sweep", 0, "returning")
    results = tmp_path / "cache" / "results"
    (results / job.identity).mkdir(parents=True)
    return job, results


def keep(kept, files, **changed):
    """Write the outcome of a kept result."""
    job, results = kept
    content = {
        "schema": "outcome",
        "schema_version": 1,
        "identity": job.identity,
        "number": 0,
        "status": "done",
        "value": 1.0,
        "seconds": 1.0,
        "files": files,
    }
    (results / job.identity / "outcome.json").write_text(json.dumps(content | changed))


def fetch(kept, home):
    """Fetch a kept result; check that the files of the user are as before. Return the outcome."""
    before = read_all(home)
    outcome = store.fetch(*kept)
    after = {name: content for name, content in read_all(home).items() if "sweep/" not in name}
    assert after == before
    return outcome


def place(path):
    """Write the content that an outcome states."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENT)


def test_a_kept_result_of_known_files_is_taken(kept, home):
    job, results = kept
    place(results / job.identity / "y" / "model.nc")
    keep(kept, {"y/model.nc": STATED})
    assert fetch(kept, home) == store.Outcome(0, True, 1.0, seconds=1.0, stored=True)
    assert Path(job.folder, "y", "model.nc").read_bytes() == CONTENT


@pytest.mark.parametrize(
    "name",
    [
        "../module.py",
        "../../module.py",
        "../../x.nc",
        "y/../../../x.nc",
        "./job.nc",
        "y//job.nc",
        "y/",
        "..",
        "",
        "{home}/x.nc",
        "module.py",
        "run.sh",
        "job.nc.pth",
        ".hydra/config.yaml",
        "y/.profile.txt",
        "attempts",
        "outcome.json",
        "job\0.nc",
        "job\n.nc",
        "\ud800.nc",
        "a" * 5000 + ".nc",
    ],
)
def test_a_kept_result_names_files_of_known_kinds_within_its_folder(kept, home, name):
    job, results = kept
    name = name.format(home=home)
    places = [results / job.identity / name, Path(job.folder) / name]
    try:
        if ".." in name and not name.endswith(".."):
            place(places[0])
    except (OSError, ValueError):
        pass
    before = set(read_all(home))
    keep(kept, {name: STATED})
    assert store.fetch(job, results) is None
    assert set(read_all(home)) == before
    assert (home / "module.py").read_bytes() == b"x = 1\n"


def link_file(folder, home):
    (folder / "job.nc").symlink_to(home / "secret.txt")


def link_folder(folder, home):
    (folder / "y").symlink_to(home)


def make_pipe(folder, home):
    os.mkfifo(folder / "job.nc")


def link_device(folder, home):
    (folder / "job.nc").symlink_to("/dev/zero")


def make_folder(folder, home):
    (folder / "job.nc").mkdir()


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (link_file, "job.nc"),
        (link_folder, "y/secret.txt"),
        (make_pipe, "job.nc"),
        (link_device, "job.nc"),
        (make_folder, "job.nc"),
    ],
)
def test_a_kept_result_of_links_pipes_or_devices_is_not_taken(kept, home, spoil, name):
    job, results = kept
    spoil(results / job.identity, home)
    keep(kept, {name: {"bytes": len(SECRET), "sha256": hashlib.sha256(SECRET).hexdigest()}})
    assert fetch(kept, home) is None
    assert not Path(job.folder, name).exists()


@pytest.mark.parametrize("place_of_link", ["outcome", "result", "store"])
def test_links_in_place_of_a_kept_result_are_not_followed(kept, home, place_of_link, tmp_path):
    job, results = kept
    folder = results / job.identity
    place(folder / "job.nc")
    keep(kept, {"job.nc": STATED})
    linked = {"outcome": folder / "outcome.json", "result": folder, "store": results}
    path = linked[place_of_link]
    moved = path.rename(tmp_path / "elsewhere")
    path.symlink_to(moved)
    assert store.fetch(job, results) is None
    assert moved.exists()


@pytest.mark.parametrize("is_pipe", [True, False], ids=["pipe", "deep"])
def test_an_outcome_that_never_ends_is_none(kept, home, is_pipe):
    job, results = kept
    path = results / job.identity / "outcome.json"
    if is_pipe:
        os.mkfifo(path)
    else:
        path.write_text('{"a":' * 100_000)
    assert store.fetch(job, results) is None


def test_a_file_that_is_exchanged_after_its_check_is_not_taken(kept, home, monkeypatch):
    job, results = kept
    place(results / job.identity / "job.nc")
    keep(kept, {"job.nc": STATED})
    link_inner = store.link_inner

    def exchange_and_link(folder, name, target):
        (folder / name).unlink()
        (folder / name).symlink_to(home / "secret.txt")
        link_inner(folder, name, target)

    monkeypatch.setattr(store, "link_inner", exchange_and_link)
    assert fetch(kept, home) is None
    assert not os.path.lexists(Path(job.folder, "job.nc"))


@pytest.mark.parametrize(
    "changed",
    [
        {"files": []},
        {"files": {"job.nc": 3}},
        {"files": {"job.nc": {"bytes": -1, "sha256": "a"}}},
        {"files": {"job.nc": {"bytes": "1", "sha256": "a"}}},
        {"number": "../.."},
        {"identity": ["a"]},
        {"seconds": "long"},
        {"value": [1]},
        {"value": 10**400},
        {"host": {}},
        {"pid": []},
        {"status": "almost"},
    ],
    ids=repr,
)
def test_an_outcome_of_another_form_is_none(kept, changed):
    job, results = kept
    keep(kept, **{"files": {}} | changed)
    assert store.read_outcome(results / job.identity) is None


def test_files_of_more_than_the_allowed_size_are_not_read(kept, monkeypatch):
    job, results = kept
    folder = results / job.identity
    with open(folder / "a.nc", "wb") as file:
        file.truncate(2**40)  # without content on the disk
    keep(kept, {"a.nc": {"bytes": 2**40, "sha256": "0" * 64}})
    assert "SYSID_MOST_BYTES" in store.damage(store.read_outcome(folder), folder)


def test_nothing_is_kept_of_a_job_whose_outcome_names_other_files(home, tmp_path):
    job = make_job(home / "sweep", 0, "returning")
    store.write_outcome(store.Outcome(0, True, 0.5), job)
    outcome = json.loads(Path(job.folder, "outcome.json").read_text())
    stated = {"bytes": len(SECRET), "sha256": hashlib.sha256(SECRET).hexdigest()}
    outcome["files"] = {"../../secret.txt": stated}
    Path(job.folder, "outcome.json").write_text(json.dumps(outcome))
    store.share(job, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_a_job_is_not_kept_through_a_folder_that_another_user_has_linked(home, tmp_path):
    job = make_job(tmp_path / "sweep", 0, "returning")
    store.write_outcome(store.Outcome(0, True, 0.5), job)
    (tmp_path / "results").symlink_to(home)
    before = read_all(home)
    store.share(job, tmp_path / "results")
    assert read_all(home) == before


# --- other content of a shared cache


def read_cache(folder, key="a"):
    """Obtain samples that are computed here or read from a cache."""
    samples = {name: np.zeros((3, 2)) for name in Sample._fields}
    return Cache(folder).obtain(TRAJECTORY, key, lambda: samples)


@pytest.mark.parametrize("name", ["trajectory", "trajectory/a.lock", "trajectory/a.nc"])
def test_links_in_a_cache_are_not_followed(home, tmp_path, name):
    cache = tmp_path / "cache"
    (cache / name).parent.mkdir(parents=True)
    target = home if name == "trajectory" else home / "secret.txt"
    (cache / name).symlink_to(target)
    before = read_all(home)
    assert len(read_cache(cache)["time"]) == 3
    assert read_all(home) == before


def test_a_pipe_in_a_cache_stops_nothing(tmp_path):
    (tmp_path / "trajectory").mkdir()
    os.mkfifo(tmp_path / "trajectory" / "a.nc")
    assert len(read_cache(tmp_path)["time"]) == 3
    assert (tmp_path / "trajectory" / "a.nc").is_file(), "it is not replaced by the result"


# --- folders of sweeps


def make_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def link_out(path):
    path.symlink_to(path.parents[2] / "home" / "secret.txt")


def link_relatively(path):
    path.symlink_to("../../home/secret.txt")


def link_a_folder(path):
    path.symlink_to(path.parents[2] / "home")


def link_to_a_link(path):
    path.with_name("first").symlink_to(path.parents[2] / "home")
    path.symlink_to("first")


#: what may stand in a folder that somebody sent: how it is made, and words of the refusal
SPOILED = {
    "link": (link_out, "leads out of the folder"),
    "relative link": (link_relatively, "leads out of the folder"),
    "linked folder": (link_a_folder, "leads out of the folder"),
    "link to a link": (link_to_a_link, "leads out of the folder"),
    "pipe": (os.mkfifo, "no file"),
    "socket": (make_socket, "no file"),
}


@pytest.fixture
def sent_sweep(home, tmp_path, monkeypatch):
    """The folder of a sweep with one job."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sent" / "sweep"
    return write_sweep(folder, {"seed": [0]}, make_summary)


@pytest.mark.parametrize("name", [".lock", "sweep.log", "1", "attempts", "multirun.yaml"])
@pytest.mark.parametrize("case", SPOILED)
def test_a_sweep_folder_that_leads_out_of_itself_is_not_read(sent_sweep, home, case, name):
    make, words = SPOILED[case]
    make(sent_sweep / name)
    before = read_all(home)
    with pytest.raises(StoreError, match=words):
        read_results(sent_sweep)
    assert read_all(home) == before


@pytest.mark.parametrize("case", SPOILED)
def test_a_sweep_folder_that_leads_out_of_itself_is_not_resumed(sent_sweep, home, case):
    make, words = SPOILED[case]
    make(sent_sweep / ".lock")
    before = read_all(home)
    result = run_sweep(sent_sweep, "seed=0", "duration=50samples")
    assert result.code == 1
    assert words in result.err
    assert "Traceback" not in result.err
    assert read_all(home) == before


def test_links_within_a_sweep_folder_are_read(sent_sweep):
    (sent_sweep / "newest").symlink_to("0")
    assert list(read_results(sent_sweep).jobs["status"]) == ["done"]


@pytest.mark.parametrize(
    "name", ["../../../home/secret.txt", "/dev/zero", "pipe", "{home}/secret.txt"]
)
def test_an_outcome_makes_a_collection_read_nothing_else(sent_sweep, home, name):
    outcome = json.loads((sent_sweep / "0" / "outcome.json").read_text())
    stated = {"bytes": len(SECRET), "sha256": hashlib.sha256(SECRET).hexdigest()}
    outcome["files"][name.format(home=home)] = stated
    (sent_sweep / "0" / "outcome.json").write_text(json.dumps(outcome))
    assert list(read_results(sent_sweep).jobs["status"]) == ["damaged"]


@pytest.mark.parametrize("kind", ["manifest", "summaries"])
def test_a_sweep_whose_jobs_all_have_names_of_their_own_is_refused(tmp_path, kind):
    n_jobs, n_names = (1500, 0) if kind == "manifest" else (40, 30_000)
    values = [{"seed": number} for number in range(n_jobs)]
    if kind == "manifest":
        values = [{f"a{number}": 1} for number in range(n_jobs)]

    def make(values):
        seed = values.get("seed", 0)
        return make_summary({}) | {f"n{seed}_{i}": 1.0 for i in range(n_names)}

    skip = range(1, n_jobs) if kind == "manifest" else range(2, n_jobs)
    write_sweep(tmp_path / "s", values, make, skip=skip)
    with pytest.raises(StoreError, match=r"would make a table of \d+ cells"):
        read_results(tmp_path / "s")


@pytest.mark.parametrize(
    "changed",
    [
        {"schema_version": "1"},
        {"swept": "seed"},
        {"swept": [["a"]]},
        {"command": ["identify"]},
        {"code": 3},
        {"jobs": [{"number": 0, "identity": "x", "overrides": "a", "values": {}}]},
        {"jobs": [{"number": 0, "identity": [], "overrides": [], "values": {}}]},
        {"jobs": [{"number": 0, "identity": "x", "overrides": [], "values": []}]},
        {"jobs": 3},
    ],
    ids=repr,
)
def test_a_manifest_of_another_form_is_damaged(sent_sweep, changed):
    content = json.loads((sent_sweep / "sweep.json").read_text())
    (sent_sweep / "sweep.json").write_text(json.dumps(content | changed))
    with pytest.raises(ValueError, match="is damaged"):
        read_results(sent_sweep)


@pytest.mark.parametrize("name", ["parts", "parts/0123", "parts/0123/0.nc"])
def test_the_results_of_a_study_are_not_kept_behind_a_link(home, tmp_path, name):
    folder = tmp_path / "study"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(home)
    config = compose_configuration(f"output={folder}", command="reproduce")
    before = read_all(home)
    with pytest.raises(StoreError, match="leads out of the folder"):
        reproduce(config, folder)
    assert read_all(home) == before


# --- folders of runs

REFUSED_RUN = ("duration=1samples", "hydra.run.dir=sent/run")  # refused after Hydra wrote its files


@pytest.fixture
def sent_run(home, tmp_path, monkeypatch):
    """The folder of a run that somebody sent."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sent" / "run"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize("name", ["identify.log", ".hydra", ".hydra/config.yaml"])
@pytest.mark.parametrize("case", SPOILED)
def test_a_run_writes_nothing_through_its_folder(sent_run, home, case, name):
    make, words = SPOILED[case]
    (sent_run / name).parent.mkdir(exist_ok=True)
    if name == ".hydra/config.yaml" and "link" in case:
        (sent_run / name).symlink_to(home / "secret.txt")
    else:
        make(sent_run / name)
    before = read_all(home)
    result = run_command("identify", *REFUSED_RUN)
    assert result.code == 1
    assert words in result.err
    assert "Traceback" not in result.err
    assert read_all(home) == before


def test_a_run_writes_into_a_folder_with_other_links(sent_run, home):
    """A folder in which somebody works may have links to data elsewhere."""
    (sent_run / "data").symlink_to(home)
    result = run_command("identify", *REFUSED_RUN)
    assert "Error: duration 1samples" in result.out
    assert (sent_run / "identify.log").exists()


def test_outputs_are_not_written_through_a_link(sent_run, home):
    (sent_run / "z").symlink_to(home)
    rows = "".join(f"{k},{k % 3},{k % 5},{k % 7}\n" for k in range(80))
    Path("r.csv").write_text(f"time,u,y,z\n{rows}")
    record = ("data=csv", "data.estimation=r.csv", "data.inputs=[u]", "data.outputs=[y,z]")
    lags = ("narx=orders", "narx.target=all")
    result = run_command("identify", *SMALLEST_RUN, *record, *lags, "hydra.run.dir=sent/run")
    assert result.code == 1
    assert "leads out of the folder" in result.out
    assert set(read_all(home)) == {"secret.txt", "module.py"}
