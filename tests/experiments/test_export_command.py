"""`sysid-export`, and models that name classes of the user's own."""

import importlib
import runpy
import sys
from dataclasses import replace

import numpy as np
import pytest

from experiments.export import run as export
from experiments.validate import run as validation
from helpers.commands import compose_configuration
from helpers.records import make_model, save_models
from sysid import StoreError, UserError

REGRESSORS = np.random.default_rng(0).normal(size=(8, 3))
TWO_OUTPUTS = {"outputs": {"y": 1, "z": 1}, "inputs": {"u": [1]}}


def run_export(folder, *overrides):
    """Run `sysid-export` in this process."""
    export.run(compose_configuration(*overrides, command="export"), folder)


def test_an_exported_file_predicts_what_the_model_does(tmp_path):
    save_models(tmp_path / "tank.nc")
    run_export(tmp_path, f"model={tmp_path}/tank.nc")
    exported = runpy.run_path(str(tmp_path / "tank.py"))
    expected = make_model().predict(REGRESSORS).mean
    np.testing.assert_allclose(exported["predict"](REGRESSORS)[0], expected)


def test_a_model_of_two_outputs_is_exported(tmp_path):
    models = (make_model("y", TWO_OUTPUTS), make_model("z", TWO_OUTPUTS))
    save_models(tmp_path / "joint.nc", *models)
    overrides = (f"model={tmp_path}/joint.nc", f"output={tmp_path}/mine.py")
    run_export(tmp_path / "nowhere", *overrides)
    assert runpy.run_path(str(tmp_path / "mine.py"))["OUTPUTS"] == ("y", "z")


def test_one_model_of_two_outputs_predicts_and_cannot_simulate(tmp_path):
    make_model("y", TWO_OUTPUTS).save(tmp_path / "tank.nc")
    run_export(tmp_path, f"model={tmp_path}/tank.nc", f"output={tmp_path}/mine.py")
    exported = runpy.run_path(str(tmp_path / "mine.py"))
    assert exported["TARGETS"] == ("y",)
    assert "simulate" not in exported


def test_a_model_is_exported_as_functions_of_casadi(tmp_path):
    pytest.importorskip("casadi", reason='CasADi: pip install -e ".[control]"')
    save_models(tmp_path / "tank.nc")
    overrides = (f"model={tmp_path}/tank.nc", f"output={tmp_path}/mine.py", "format=casadi")
    run_export(tmp_path, *overrides)
    exported = runpy.run_path(str(tmp_path / "mine.py"))
    mean, _, _ = exported["predict"](REGRESSORS[0], exported["PARAMETERS"])
    expected = make_model().predict(REGRESSORS[:1]).mean
    np.testing.assert_allclose(mean.full()[0], expected)
    np.testing.assert_array_equal(
        exported["parameters"](make_model()).full(), exported["PARAMETERS"].full()
    )


def test_an_export_needs_a_model(tmp_path):
    with pytest.raises(ValueError, match="name the file of the model"):
        run_export(tmp_path)


def test_an_unknown_format_is_answered_with_the_known_ones(tmp_path):
    save_models(tmp_path / "tank.nc")
    with pytest.raises(UserError, match=r"format must be one of numpy.*got fortran"):
        run_export(tmp_path, f"model={tmp_path}/tank.nc", "format=fortran")


@pytest.mark.parametrize("learn", ["true", "false"])
def test_c_is_a_source_with_a_header(learn, tmp_path, caplog):
    caplog.set_level("INFO")
    save_models(tmp_path / "tank.nc")
    run_export(tmp_path, f"model={tmp_path}/tank.nc", "format=c", f"learn={learn}")
    source = (tmp_path / "tank.c").read_text()
    assert "tank_step(" in (tmp_path / "tank.h").read_text()
    assert ("tank_learn(" in source) == (learn == "true")
    assert "of stack" in caplog.text


def test_a_header_is_replaced_only_with_overwrite(tmp_path):
    save_models(tmp_path / "tank.nc")
    (tmp_path / "mine.h").write_text("int mine;\n")
    overrides = (f"model={tmp_path}/tank.nc", "format=c", f"output={tmp_path}/mine.c")
    with pytest.raises(UserError, match=r"mine\.h exists.*overwrite=true"):
        run_export(tmp_path, *overrides)
    assert not (tmp_path / "mine.c").exists()


@pytest.mark.parametrize("option", ["learn=true", "precision=float"])
def test_options_of_c_belong_to_c(option, tmp_path):
    save_models(tmp_path / "tank.nc")
    with pytest.raises(UserError, match="learn and precision belong to format=c"):
        run_export(tmp_path, f"model={tmp_path}/tank.nc", option)


def test_a_file_is_replaced_only_with_overwrite(tmp_path):
    save_models(tmp_path / "tank.nc")
    (tmp_path / "mine.py").write_text("mine = True\n")
    overrides = (f"model={tmp_path}/tank.nc", f"output={tmp_path}/mine.py")
    with pytest.raises(ValueError, match=r"exists.*overwrite=true"):
        run_export(tmp_path, *overrides)
    assert (tmp_path / "mine.py").read_text() == "mine = True\n"
    run_export(tmp_path, *overrides, "overwrite=true")
    assert "predict" in runpy.run_path(str(tmp_path / "mine.py"))


OWN_MEAN = """
from dataclasses import dataclass

from sysid import ZeroMean


@dataclass(frozen=True)
class Own(ZeroMean):
    pass
"""


@pytest.fixture
def model_with_own_mean(tmp_path, monkeypatch):
    """File of a model whose mean is a class of the user's own, in a module that is not loaded."""
    (tmp_path / "own_room.py").write_text(OWN_MEAN)
    monkeypatch.syspath_prepend(str(tmp_path))
    own_mean = importlib.import_module("own_room").Own()
    replace(make_model(), mean=own_mean).save(tmp_path / "model.nc")
    sys.modules.pop("own_room")
    yield tmp_path / "model.nc"
    sys.modules.pop("own_room", None)


@pytest.mark.parametrize(
    ("module", "command", "trusted", "words"),
    [
        (export, "export", [], r"trust it .* \+trusted=\[own_room.Own\]"),
        (validation, "validate", [], r"trust it .* \+trusted=\[own_room.Own\]"),
        # once it is trusted, the export is refused by its name and the validation asks for data
        (export, "export", ["trusted=[own_room.Own]"], r"own_room\.Own cannot be exported"),
        (validation, "validate", ["+trusted=[own_room]"], "data"),
    ],
    ids=["export", "validate", "export trusted", "validate trusted"],
)
def test_an_own_class_must_be_trusted(
    module, command, trusted, words, model_with_own_mean, tmp_path
):
    overrides = (f"model={model_with_own_mean}", *trusted)
    configuration = compose_configuration(*overrides, command=command)
    with pytest.raises((ValueError, StoreError), match=words):
        module.run(configuration, tmp_path)
