"""`sysid-export`: a stored model becomes a Python file."""

import importlib
import runpy
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from running import CONF, PLAIN

from experiments.export import run
from experiments.validation.run import run as validate
from sysid import ConstantMean, JointModel, Model, Narx, OnlineGP, Scaling, SquaredExponential, StoreError

X = np.random.default_rng(0).normal(size=(8, 3))


def model(target="y", outputs=("y",)):
    narx = Narx(dict.fromkeys(outputs, 1), {"u": 3 - len(outputs)}, target)
    gp = OnlineGP(SquaredExponential(1.0, [1.0] * 3), noise_variance=0.01, budget=5)
    found = Model(narx, Scaling.identity(3), ConstantMean(0.2), gp)
    found.update_many(X, np.sin(X.sum(axis=1)))
    return found


def configured(*overrides):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose("export", overrides=list(overrides))


def test_one_output_into_the_folder_of_the_run(tmp_path):
    model().save(tmp_path / "tank.nc")
    run(configured(f"model={tmp_path}/tank.nc"), tmp_path)
    np.testing.assert_allclose(runpy.run_path(str(tmp_path / "tank.py"))["predict"](X)[0], model().predict(X).mean)


def test_two_outputs_into_a_file(tmp_path):
    joint = JointModel(tuple(model(name, ("a", "b")) for name in ("a", "b")))
    joint.save(tmp_path / "model.nc")
    run(configured(f"model={tmp_path}/model.nc", f"output={tmp_path}/mine.py"), tmp_path / "nowhere")
    assert runpy.run_path(str(tmp_path / "mine.py"))["OUTPUTS"] == ("a", "b")


def test_one_of_two_outputs_predicts(tmp_path):
    """The file of `sysid-identify` with lags of a second output holds one model only."""
    model("a", ("a", "b")).save(tmp_path / "model.nc")
    run(configured(f"model={tmp_path}/model.nc"), tmp_path)
    file = runpy.run_path(str(tmp_path / "model.py"))
    assert file["TARGETS"] == ("a",)
    assert "simulate" not in file


@pytest.mark.parametrize(
    ("overrides", "error", "words"),
    [
        ((), ValueError, "model: expected the file of a model"),
        (("model=nowhere.nc",), StoreError, "no file nowhere.nc"),
        (("model={}/model.nc", "output={}/model.txt"), ValueError, r"ends in \.py"),
        (("model={}/model.nc", "output={}/missing/model.py"), StoreError, "does not exist"),
        (("model={}/cut.nc",), StoreError, r"cut\.nc"),
    ],
)
def test_mistakes(overrides, error, words, tmp_path):
    model().save(tmp_path / "model.nc")
    (tmp_path / "cut.nc").write_bytes((tmp_path / "model.nc").read_bytes()[:4000])
    before = sorted(tmp_path.iterdir())
    with pytest.raises(error, match=words):
        run(configured(*(text.format(tmp_path) for text in overrides)), tmp_path)
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_is_replaced_only_when_that_is_said(tmp_path):
    model().save(tmp_path / "model.nc")
    (tmp_path / "mine.py").write_text("precious")
    arguments = (f"model={tmp_path}/model.nc", f"output={tmp_path}/mine.py")
    with pytest.raises(ValueError, match=r"exists.*overwrite=true"):
        run(configured(*arguments), tmp_path)
    assert (tmp_path / "mine.py").read_text() == "precious"
    run(configured(*arguments, "overwrite=true"), tmp_path)
    assert "predict" in (tmp_path / "mine.py").read_text()


OWN = """
from dataclasses import dataclass
from sysid import ZeroMean

@dataclass(frozen=True)
class Own(ZeroMean):
    pass
"""


@pytest.mark.parametrize("override", ["+trusted=[own_room]", "trusted=[own_room.Own]"])
def test_a_class_of_ones_own_must_be_trusted(override, tmp_path, monkeypatch):
    """Then the export is refused by its name, and the validation asks for data."""
    (tmp_path / "own_room.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "model.nc"
    replace(model(), mean=importlib.import_module("own_room").Own()).save(path)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        validation, plain = (compose("validate", overrides=[f"model={path}", *more]) for more in ([override], []))
    sys.modules.pop("own_room")
    for call in (lambda: run(configured(f"model={path}"), tmp_path), lambda: validate(plain, tmp_path)):
        with pytest.raises(StoreError, match=r"trust it .* \+trusted=\[own_room.Own\]"):
            call()
    with pytest.raises(ValueError, match=r"own_room\.Own cannot be exported"):
        run(configured(f"model={path}", override), tmp_path)
    sys.modules.pop("own_room")
    with pytest.raises(ValueError, match="data"):
        validate(validation, tmp_path)
    sys.modules.pop("own_room")


def test_trusted_is_a_list(tmp_path):
    with pytest.raises(ValueError, match="trusted must be a list"):
        run(configured("model=model.nc", "trusted=own_room"), tmp_path)


@pytest.mark.skipif(PLAIN, reason="the command is the same without the compiler")
def test_the_command(tmp_path):
    model().save(tmp_path / "model.nc")
    command = [sys.executable, "-m", "experiments.export", "model=model.nc", "output=model.py", "hydra.run.dir=run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "Exported: model.py\n")
