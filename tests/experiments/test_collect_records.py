"""Records of all jobs in the data set of a sweep; memory that does not grow with the jobs."""

import hashlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hydra import compose, initialize_config_dir
from running import CONF
from sweeping import FULL, identity, summary_like, write_manifest, write_outcome, write_sweep

from experiments.collection.run import run
from experiments.job_file import Content, write
from sysid import store

VALUES = {"insertion.error_threshold": [0.2, 0.05], "seed": [0, 1, 2]}


def collect(folder, *overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        run(compose("collect", overrides=[f"folder={folder}", "figures=false", *overrides]), Path())
    return store.read(folder / "sweep.nc", kind="sweep")


def rewrite(folder, number, record):
    """Another record of a finished job."""
    own = folder / str(number)
    contents = {"": Content(FULL | summary_like({}), record, None)}
    write(contents, own / "job.nc", {"seed": 0, "partial": 0})
    content = (own / "job.nc").read_bytes()
    outcome = json.loads((own / "outcome.json").read_text())
    outcome["files"] = {"job.nc": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
    (own / "outcome.json").write_text(json.dumps(outcome))


def test_every_record_lies_in_its_cell(tmp_path):
    folder = write_sweep(tmp_path / "s", VALUES, summary_like, fail=(1,))
    found = collect(folder, "records=[mean,variance]")
    assert found["record_mean"].dims == ("error_threshold", "seed", "sample")
    for number, (threshold, seed) in enumerate(itertools.product(*VALUES.values())):
        cell = found.sel(error_threshold=threshold, seed=seed)
        expected = np.arange(4.0) + number if number != 1 else np.full(4, np.nan)  # as sweeping.py writes it
        np.testing.assert_array_equal(cell["record_mean"], expected)
    assert np.nansum(found["record_variance"]) == 5 * 4
    assert found["record_mean"].attrs["units"] == "K"
    with xr.open_dataset(folder / "sweep.nc") as opened:
        np.testing.assert_array_equal(opened["record_mean"], found["record_mean"])
    plain = collect(folder)
    without = found.drop_vars([name for name in found if "sample" in found[name].dims])
    assert without.drop_attrs().identical(plain.drop_attrs())


def test_records_of_several_outputs_and_of_one_variable(tmp_path):
    def metric(values):
        return {name: summary_like(values) for name in ("y", "x")}

    found = collect(write_sweep(tmp_path / "s", {"seed": [0, 1]}, metric, several=True), "records=mean")
    assert found["record_mean"].dims == ("seed", "output", "sample")
    np.testing.assert_array_equal(
        found["record_mean"], np.arange(4) + np.array([0, 1])[:, None, None] + np.zeros((2, 1))
    )


@pytest.mark.parametrize(
    ("record", "names", "words"),
    [
        (xr.Dataset({"mean": ("sample", np.zeros(5))}), "mean", "same length, got 4 samples .*5 samples"),
        (xr.Dataset({"means": ("sample", np.zeros(4))}), "mean", "has no 'mean'.*did you mean 'means'"),
        (xr.Dataset({"mean": 1.0}), "mean", "no record"),
        (None, "mean", "no record"),
    ],
)
def test_records_that_do_not_fit(record, names, words, tmp_path):
    folder = write_sweep(tmp_path / "s", VALUES, summary_like)
    rewrite(folder, 3, record)
    before = sorted(folder.iterdir())
    with pytest.raises((ValueError, store.StoreError), match=words):
        collect(folder, f"records=[{names}]")
    assert sorted(folder.iterdir()) == before


def test_nothing_is_left_of_a_file_that_could_not_be_finished(tmp_path, monkeypatch):
    folder = write_sweep(tmp_path / "s", VALUES, summary_like)
    collect(folder)
    before = {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def fail(path, output):
        raise OSError("no space left")

    monkeypatch.setattr("experiments.collection.records.read_record", fail)
    with pytest.raises(store.StoreError, match="nothing was changed"):
        collect(folder, "records=mean")
    assert {path: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


GROWTH = """
import sys
from pathlib import Path
from omegaconf import OmegaConf
from experiments.collection.run import run
settings = dict(output=None, metrics=None, figures=False, records=None)
peak = lambda: int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1e3
run(OmegaConf.create({"folder": sys.argv[1], **settings}), Path())
before = peak()
run(OmegaConf.create({"folder": sys.argv[2], **settings}), Path())
print(peak() - before)
"""


@pytest.mark.slow
def test_memory_of_two_thousand_jobs(tmp_path):
    """Their records are a gigabyte together, of which nothing is kept."""
    small = write_sweep(tmp_path / "small", {"seed": [0, 1]}, summary_like)
    rewrite(small, 0, xr.Dataset({"mean": ("sample", np.random.default_rng(0).normal(size=70_000))}))
    content = (small / "0" / "job.nc").read_bytes()
    facts = json.loads((small / "0" / "outcome.json").read_text())["files"]
    large = tmp_path / "large"
    large.mkdir()
    values = {"threshold": [0.1 * k for k in range(50)], "rule": ["a", "b"], "seed": list(range(20))}
    jobs = []
    for number, one in enumerate(itertools.product(*values.values())):
        one = dict(zip(values, one, strict=True))
        jobs.append({"number": number, "identity": identity(one), "overrides": [], "values": one})
        own = large / str(number)
        own.mkdir()
        (own / "job.nc").hardlink_to(small / "0" / "job.nc")
        write_outcome(own, jobs[-1], status="done", files=facts)
    write_manifest(large, jobs, list(values))
    assert len(content) * len(jobs) > 1e9
    command = [sys.executable, "-c", GROWTH, str(small), str(large)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    assert float(done.stdout) < 50  # MB
    assert store.read(large / "sweep.nc", kind="sweep").attrs["n_done"] == 2000
