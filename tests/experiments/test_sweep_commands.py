"""The other commands of the package in a sweep, and the number and the folder of a job in its settings."""

import runpy

import pytest
from generating import BOUC_WEN
from generating import SHORT as SHORT_BENCHMARK
from running import PLAIN
from sweep_command import QUICK, done, outcome, sweep
from validating import QUICK as QUICK_VALIDATION
from validating import csv_file, saved

if PLAIN:
    pytest.skip("sweeps run alike without the compiler", allow_module_level=True)


def test_sweeps_of_validations_lose_only_what_fails(tmp_path):
    for name in ("a", "b"):
        saved(tmp_path / f"{name}.nc")
    (tmp_path / "damaged.nc").write_bytes((tmp_path / "a.nc").read_bytes()[:-500])
    csv_file(tmp_path / "record.csv")
    data = ("data=csv", "data.test=record.csv", "data.inputs=[u]", "data.outputs=[y,z]", "data.dt=0.5", "left_out=[z]")
    given = (*data, "data.units={y: V, z: degC, u: A}", "data.initialisation_window=5", *QUICK_VALIDATION)
    models = "model=a.nc,damaged.nc,missing.nc,b.nc"
    said = sweep(tmp_path / "sweep", models, *given, command="validate")
    assert said.code == 1
    assert "4 jobs: 2 done, 2 failed" in said.out, said.err
    assert done(tmp_path / "sweep") == {0, 3}
    assert "damaged.nc" in outcome(tmp_path / "sweep", 1)["error"]
    assert "missing.nc" in outcome(tmp_path / "sweep", 2)["error"]
    assert "#1 model=damaged.nc: " in said.err
    assert (tmp_path / "sweep" / "3" / "validation.json").is_file()
    saved(tmp_path / "missing.nc")
    said = sweep(tmp_path / "sweep", models, *given, command="validate")
    assert "2 finished already, 2 to run in" in said.out
    assert "4 jobs: 3 done (2 before), 1 failed" in said.out


def test_a_sweep_of_exports_writes_a_file_for_each(tmp_path):
    for name in ("a", "b"):
        saved(tmp_path / f"{name}.nc")
    said = sweep(tmp_path / "sweep", "model=a.nc,b.nc", command="export")
    assert said.code == 0, said
    for number, name in enumerate("ab"):
        assert callable(runpy.run_path(str(tmp_path / "sweep" / str(number) / f"{name}.py"))["predict"])
    said = sweep(tmp_path / "sweep", "model=a.nc,b.nc", command="export")
    assert "2 finished already, 0 to run" in said.out
    saved(tmp_path / "b.nc")
    (tmp_path / "sweep" / "0" / "a.py").unlink()
    said = sweep(tmp_path / "sweep", "model=a.nc,b.nc", command="export")
    assert "(1 anew, damaged or out of date)" in said.out or "(2 anew, damaged or out of date)" in said.out
    assert (tmp_path / "sweep" / "0" / "a.py").is_file()


def test_a_sweep_of_benchmarks_makes_a_folder_for_each_and_loses_only_what_fails(tmp_path):
    given = (*SHORT_BENCHMARK, *BOUC_WEN, "baseline=[mean]", "seed=1,-1,2")
    said = sweep(tmp_path / "sweep", *given, "output=made/${hydra:job.num}", command="generate")
    assert said.code == 1
    assert "3 jobs: 2 done, 1 failed" in said.out, said
    assert "  #1 seed=-1: ValueError: " in said.err
    assert "Warning" not in said.err
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == ["0", "2"]
    said = sweep(tmp_path / "sweep", *given, "output=made/${hydra:job.num}", command="generate")
    assert "2 finished already, 1 to run in" in said.out


def test_the_folder_of_a_job_may_stand_in_its_settings(tmp_path):
    saved(tmp_path / "a.nc")
    given = ("model=a.nc", "output='${hydra:runtime.output_dir}/${name}_${hydra:job.id}.py'", "+name=x,y")
    said = sweep(tmp_path / "sweep", *given, command="export")
    assert said.code == 1
    assert "unknown configuration key 'name'" in said.err
    given = ("model=a.nc", "output='${hydra:runtime.output_dir}/it_${hydra:job.id}.py'")
    said = sweep(tmp_path / "sweep", *given, command="export")
    assert said.code == 0, said
    assert (tmp_path / "sweep" / "0" / "it_0.py").is_file()


def test_the_mistake_of_every_job_is_told_as_one(tmp_path):
    said = sweep(tmp_path / "sweep", *QUICK, "seed=1", "budget=1")
    assert said.code == 1
    assert said.out.startswith("Sweep of 1 job, 1 to run in this process: ")
    assert said.err.splitlines()[0].startswith("  #0: ValueError: ")
