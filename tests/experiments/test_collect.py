"""The data set of a sweep: every number of every job in the cell of its parameters, every gap known."""

import hashlib
import itertools
import json

import numpy as np
import pytest
import xarray as xr
from sweeping import summary_like, write_failure, write_job, write_manifest, write_sweep

from experiments.collection.axis import LARGEST_SHARE, axes_of, is_grid
from experiments.collection.cells import dataset_of
from experiments.collection.gathering import gather
from experiments.collection.job_result import DAMAGED, DONE, FAILED, MISSING, PARTIAL, results
from experiments.collection.sweep_folder import read_sweep
from experiments.sweeps.store import Entry
from sysid import store

THRESHOLD = "insertion.error_threshold"
VALUES = {THRESHOLD: [0.2, 0.05], "reduction": ["prior_entropy", "mean_relevance"], "seed": [0, 1]}


def collected(folder):
    sweep = read_sweep(folder)
    return dataset_of(gather(sweep, results(sweep)))


def planned(folder):
    return json.loads((folder / "sweep.json").read_text())["jobs"]


def test_every_number_lies_in_the_cell_of_its_parameters(tmp_path):
    found = collected(write_sweep(tmp_path / "s", VALUES, summary_like))
    assert found["smse"].dims == ("error_threshold", "reduction", "seed")
    assert found["error_threshold"].values.tolist() == [0.05, 0.2]  # ascending
    assert found["reduction"].values.tolist() == VALUES["reduction"]  # as in the command
    assert found["seed"].values.tolist() == [0, 1]
    for number, one in enumerate(itertools.product(*VALUES.values())):
        values = dict(zip(VALUES, one, strict=True))
        cell = found.sel(error_threshold=one[0], reduction=one[1], seed=one[2])
        summary = summary_like(values)
        assert cell["number"] == number
        assert cell["status"] == DONE
        assert {name: float(cell[name]) for name in ("smse", "rmse", "n_revised")} == {
            name: summary[name] for name in ("smse", "rmse", "n_revised")
        }
        assert float(cell["times_loop"]) == summary["times"]["loop"]
        assert float(cell["free_run_rmse"]) == summary["free_run"]["rmse"]
    assert "partial" not in found  # told by the status
    assert "seed" not in found.data_vars  # a parameter here


def test_gaps_are_nan_and_counted(tmp_path):
    folder = write_sweep(tmp_path / "s", VALUES, summary_like, skip=(0,), fail=(3,))
    jobs = planned(folder)
    for number, spoil in ((1, b""), (2, b"x" * 10)):  # cut, or of the same size
        path = folder / str(number) / "job.nc"
        content = path.read_bytes()
        path.write_bytes(content[:-1] if not spoil else content[:500] + spoil + content[510:])
    write_job(folder, jobs[4], summary_like(jobs[4]["values"]) | {"partial": True})
    (folder / "5" / "outcome.json").write_text('{"schema": "outc')
    write_job(folder, jobs[6] | {"identity": "of another configuration"}, summary_like(jobs[6]["values"]))
    found = collected(folder)
    by_number = dict(zip(found["number"].values.ravel().tolist(), found["status"].values.ravel().tolist(), strict=True))
    expected = [MISSING, DAMAGED, DAMAGED, FAILED, PARTIAL, DAMAGED, MISSING, DONE]
    assert [by_number[number] for number in range(8)] == expected
    np.testing.assert_array_equal(np.isnan(found["smse"]), found["status"] != DONE)
    counts = {name: found.attrs[f"n_{name}"] for name in ("jobs", "cells", "done", "missing", "failed", "damaged")}
    assert counts == {"jobs": 8, "cells": 8, "done": 1, "missing": 2, "failed": 1, "damaged": 3}
    assert found.attrs["n_partial"] == 1


def test_a_result_with_another_record(tmp_path):
    """Its summary can be read, and still it is not what the job has written."""
    folder = write_sweep(tmp_path / "s", {"seed": [0, 1]}, summary_like)
    outcome = (folder / "1" / "outcome.json").read_text()
    job = planned(folder)[1]
    write_job(folder, job | {"number": 5}, summary_like(job["values"]))
    (folder / "5" / "job.nc").replace(folder / "1" / "job.nc")
    assert (folder / "1" / "outcome.json").read_text() == outcome
    assert (folder / "1" / "job.nc").stat().st_size == json.loads(outcome)["files"]["job.nc"]["bytes"]
    assert collected(folder)["status"].values.tolist() == [DONE, DAMAGED]


def test_what_cannot_be_read_though_it_is_as_written(tmp_path):
    folder = write_sweep(tmp_path / "s", {"seed": [0, 1, 2]}, summary_like)
    jobs = planned(folder)
    store.write(xr.Dataset({"x": 1.0}), folder / "1" / "job.nc", kind="result")
    outcome = json.loads((folder / "1" / "outcome.json").read_text())
    content = (folder / "1" / "job.nc").read_bytes()
    outcome["files"] = {"job.nc": {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}}
    (folder / "1" / "outcome.json").write_text(json.dumps(outcome))
    write_failure(folder, jobs[2], "")
    (folder / "2" / "outcome.json").write_text(json.dumps(outcome | {"identity": jobs[2]["identity"], "files": 3}))
    assert collected(folder)["status"].values.tolist() == [DONE, DAMAGED, DAMAGED]


def test_units_and_meanings(tmp_path):
    folder = write_sweep(tmp_path / "s", {THRESHOLD: [0.1], "insertion.variance_threshold": [0.2]}, summary_like)
    found = collected(folder)
    units = {name: found[name].attrs.get("units") for name in (*found.data_vars, *found.coords)}
    assert units["rmse"] == units["error_threshold"] == units["free_run_rmse"] == "K"
    assert units["hyperparameters_noise_variance"] == units["variance_threshold"] == "K2"
    assert (units["smse"], units["times_loop"], units["free_run_fit_percent"]) == ("1", "s", "%")
    assert found["error_threshold"].attrs["long_name"] == THRESHOLD
    measured = {name for name in found if found[name].attrs.get("measured")}
    assert measured == {"times_setup", "times_loop", "times_training", "times_job", "timed"}
    assert (found["times_job"] == 1.5).all()


def test_no_unit_where_jobs_differ(tmp_path):
    def metric(values):
        return summary_like(values) | {"target_unit": values["unit"]}

    found = collected(write_sweep(tmp_path / "s", {"unit": ["K", "m"]}, metric))
    assert "units" not in found["rmse"].attrs
    assert found["smse"].attrs["units"] == "1"


@pytest.mark.parametrize(
    ("values", "expected", "kind"),
    [
        ([3, 1, 20], [1, 3, 20], "i"),
        ([3, 0.5], [0.5, 3], "f"),
        ([True, False], ["true", "false"], "U"),
        (["b", "a"], ["b", "a"], "U"),
        ([100, None, 50], ["100", "null", "50"], "U"),
        ([[1, 2], "x"], ["[1, 2]", "x"], "U"),
        ([float("inf"), 1], ["Infinity", "1"], "U"),
    ],
)
def test_values_of_a_parameter(values, expected, kind, tmp_path):
    found = collected(write_sweep(tmp_path / "s", {"key": values}, summary_like))
    assert found["key"].values.tolist() == expected
    assert found["key"].dtype.kind == kind


def test_names_of_dimensions(tmp_path):
    values = {"data.duration": [1], "noise.duration": [1], "summary.smse": [2], "sampling@data.sampling": ["grid"]}
    found = collected(write_sweep(tmp_path / "s", values, summary_like))
    assert found["rmse"].dims == ("data_duration", "noise_duration", "summary_smse", "sampling")


def test_one_dimension_where_parameters_form_no_grid(tmp_path):
    jobs = [{"a": 1, "seed": 0}, {"seed": 1, "b": "x"}, {"seed": 2, "a": 2}]
    found = collected(write_sweep(tmp_path / "s", jobs, summary_like, fail=(1,)))
    assert found["smse"].dims == ("job",)
    np.testing.assert_array_equal(found["a"], [1, np.nan, 2])
    assert found["b"].values.tolist() == ["", "x", ""]
    assert found["seed"].values.tolist() == found["job"].values.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(np.isnan(found["smse"]), [False, True, False])


def test_the_first_grid_that_is_too_empty():
    """Just as many cells as allowed, and one more."""

    def decided(n_a, n_b, n_jobs):
        jobs = [Entry(k, "", (), {"a": k % n_a, "b": k % n_b}) for k in range(n_jobs)]
        return is_grid(axes_of(["a", "b"], jobs, ()), jobs)

    assert LARGEST_SHARE == 4
    assert decided(25, 40, 250)
    assert not decided(25, 40, 249)
    assert not decided(20, 20, 20)  # a search


def test_a_search_is_a_row_of_jobs_with_its_objectives(tmp_path):
    folder = write_sweep(tmp_path / "s", {THRESHOLD: [0.1, 0.2], "seed": [0, 1]}, summary_like)
    settings = {"objectives": ["smse", "times.loop", "coverage_95"], "direction": ["minimize", "minimize", "maximize"]}
    (folder / "search.json").write_text(json.dumps({"settings": settings}))
    found = collected(folder)
    assert found["smse"].dims == ("job",)
    assert json.loads(found.attrs["objectives"]) == ["smse", "times_loop"]
    assert json.loads(found.attrs["directions"])["coverage_95"] == "maximize"
    assert "trial" not in found.coords
    (folder / "search.json").write_text("{}")
    with pytest.raises(store.StoreError, match=r"search\.json is damaged"):
        collected(folder)


def test_no_parameter_at_all(tmp_path):
    found = collected(write_sweep(tmp_path / "s", [{}], summary_like))
    assert found["smse"].dims == ("job",)
    assert float(found["smse"][0]) == summary_like({})["smse"]


def test_cells_without_a_job(tmp_path):
    jobs = [{"a": 1, "b": 1}, {"a": 2, "b": 2}]
    found = collected(write_sweep(tmp_path / "s", jobs, summary_like))
    assert found["number"].values.tolist() == [[0, -1], [-1, 1]]
    assert found["status"].values.tolist() == [[DONE, MISSING], [MISSING, DONE]]
    assert np.isnan(found["smse"].values).tolist() == [[False, True], [True, False]]
    assert found.attrs["n_unplanned"] == 2


def test_of_equal_jobs_the_last_one_done_counts(tmp_path):
    """The manifest of a folder with an earlier command may plan the same parameters twice."""
    folder = write_sweep(tmp_path / "s", [{"a": 1, "k": n} for n in range(4)] + [{"a": 2, "k": 4}], summary_like)
    jobs = planned(folder)
    for job in jobs:
        job["values"].pop("k")
    write_manifest(folder, jobs, ["a"])
    write_failure(folder, jobs[2], "ValueError: no")
    (folder / "3" / "outcome.json").unlink()
    found = collected(folder)
    assert found["number"].values.tolist() == [1, 4]
    assert found.attrs["n_superseded"] == 3


def test_a_key_that_a_later_command_has_added(tmp_path):
    """Jobs that differ in a key that the manifest does not call swept stay apart."""
    folder = write_sweep(
        tmp_path / "s", [{"a": 1}, {"a": 1, "budget": 50, "hydra.verbose": True}], summary_like, swept=["a"]
    )
    found = collected(folder)
    assert found["smse"].dims == ("job",)
    np.testing.assert_array_equal(found["budget"], [np.nan, 50])
    assert "verbose" not in found.coords


def test_several_outputs(tmp_path):
    def metric(values):
        return {
            name: summary_like(values) | {"smse": worse + values["seed"]} for name, worse in (("y", 0.1), ("x", 0.3))
        }

    found = collected(write_sweep(tmp_path / "s", {"seed": [0, 1]}, metric, several=True, fail=(1,)))
    assert found["smse"].dims == ("seed", "output")
    assert found["status"].dims == ("seed",)
    np.testing.assert_array_equal(found["smse"].sel(output=["y", "x"]), [[0.1, 0.3], [np.nan, np.nan]])


def test_jobs_of_a_command_with_files_of_its_own(tmp_path):
    folder = write_sweep(tmp_path / "s", {"seed": [0, 1]}, summary_like)
    for own in (folder / "0", folder / "1"):
        outcome = json.loads((own / "outcome.json").read_text())
        (own / "outcome.json").write_text(json.dumps(outcome | {"files": {}, "value": 0.25}))
    found = collected(folder)
    assert found["value"].values.tolist() == [0.25, 0.25]


def test_a_metric_that_some_jobs_do_not_have(tmp_path):
    def metric(values):
        return summary_like(values) | {"training": {"held_out": 3.0} if values["seed"] else None}

    found = collected(write_sweep(tmp_path / "s", {"seed": [0, 1]}, metric))
    np.testing.assert_array_equal(found["training_held_out"], [np.nan, 3.0])


def test_libraries_read_it(tmp_path):
    netCDF4 = pytest.importorskip("netCDF4")
    pandas = pytest.importorskip("pandas")
    found = collected(write_sweep(tmp_path / "s", VALUES, summary_like, fail=(1,)))
    store.write(found, tmp_path / "sweep.nc", kind="sweep")
    xr.testing.assert_identical(store.read(tmp_path / "sweep.nc", kind="sweep").drop_attrs(), found.drop_attrs())
    with xr.open_dataset(tmp_path / "sweep.nc") as opened:
        frame = opened.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc[(0.2, "prior_entropy", 0), "smse"] == summary_like({THRESHOLD: 0.2, "reduction": "x" * 13})["smse"]
    with netCDF4.Dataset(tmp_path / "sweep.nc") as file:
        assert file["reduction"][:].tolist() == VALUES["reduction"]
        assert file["status"].flag_meanings.split()[FAILED] == "failed"
