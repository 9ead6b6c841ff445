"""Several outputs: a model for each over the same regressors, joined in one file."""

import json

import numpy as np
import pytest
from numba import config as numba_config
from running import configured

from experiments.identification import run
from simulators import Signal, VanDerPol
from sysid import JointModel, Model, store

pytestmark = pytest.mark.skipif(numba_config.DISABLE_JIT, reason="a command does the same without the compiler")


def signals(n, seed):
    rng = np.random.default_rng(seed)
    u, a, b = rng.normal(size=n), np.zeros(n), np.zeros(n)
    for k in range(1, n):
        a[k] = 0.8 * a[k - 1] + 0.3 * np.tanh(u[k - 1]) - 0.1 * b[k - 1]
        b[k] = 0.7 * b[k - 1] + 0.2 * a[k - 1] ** 2 + 0.1 * u[k - 1]
    return np.column_stack([u, a, b + 1e-3 * rng.normal(size=n)])


@pytest.fixture
def settings(tmp_path):
    for name, n, seed in (("train", 220, 0), ("test", 90, 1)):
        np.savetxt(tmp_path / f"{name}.csv", signals(n, seed), delimiter=",", header="u,a,b", comments="")
    return (
        *("data=csv", f"data.estimation={tmp_path}/train.csv", f"data.test={tmp_path}/test.csv"),
        *("data.inputs=[u]", "data.outputs=[a,b]", "data.dt=0.1"),
        *("narx=orders", "narx.na=1", "narx.nb=1", "budget=30", "training.n_initial=40", "figures=false"),
        "propagation=taylor",
    )


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "run"
    made.mkdir()
    return made


@pytest.mark.parametrize("target", ["all", "[a,b]"])
def test_every_output_has_a_model_of_the_same_regressors(settings, folder, target):
    score = run(configured(*settings, f"narx.target={target}"), folder)
    joint = JointModel.load(folder / "model.nc")
    assert joint.output_names == ("a", "b")
    x = np.random.default_rng(0).normal(size=(5, 3))
    scores = []
    for name, model in zip("ab", joint.models, strict=True):
        alone = Model.load(folder / name / "model.nc")
        np.testing.assert_array_equal(alone.predict(x).mean, model.predict(x).mean)
        assert alone.narx.target == name
        scores.append(json.loads((folder / name / "summary.json").read_text())["smse"])
    assert score == max(scores) < 0.1
    free_run = json.loads((folder / "validation.json").read_text())["free_run"]
    assert set(free_run) == {"a", "b"}
    assert free_run["a"]["fit_percent"] > 80


def test_one_output_is_identified_as_ever(settings, folder):
    run(configured(*settings, "narx.target=b"), folder)
    assert Model.load(folder / "model.nc").narx.target == "b"
    assert not (folder / "b").exists()


def test_all_of_one_output_is_that_output(settings, folder):
    one = [item for item in settings if not item.startswith("data.outputs")]
    run(configured(*one, "data.outputs=[b]", "narx.target=all"), folder)
    assert Model.load(folder / "model.nc").narx.target == "b"
    assert json.loads((folder / "validation.json").read_text())["free_run"]["n"] > 0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("narx.target=[a]", ["narx.target=['a']", "a model for every output among them"]),
        ("narx.target=[a,a]", ["each output once"]),
        ("narx.target=[a,c]", ["'c'", "must be one of its outputs"]),
        ("narx.target=[]", ["each output once"]),
    ],
)
def test_outputs_that_cannot_be_joined_are_refused_before_anything_is_written(settings, folder, given, words):
    with pytest.raises(ValueError, match="target") as error:
        run(configured(*settings, given), folder)
    for word in words:
        assert word in str(error.value)
    assert not list(folder.iterdir())


def test_lags_of_a_single_output_are_refused(settings, folder):
    with pytest.raises(ValueError, match="take narx=orders or narx=lags"):
        run(configured(*settings[:6], "narx=auto", "narx.target=all"), folder)
    assert not list(folder.iterdir())


class TwoOutputs(VanDerPol):
    outputs = (*VanDerPol.outputs, Signal("speed", "m/s", "measured velocity"))


def test_several_outputs_are_simulated_once(folder, monkeypatch):
    """Both learn from the same samples; a plant that costs hours is not simulated for each of them."""
    from experiments import plant

    original, begun = plant.Plant.samples, []

    def samples(self, *arguments):
        begun.append(arguments)
        return original(self, *arguments)

    monkeypatch.setattr(plant.Plant, "samples", samples)
    lags = ("narx=orders", "narx.na=2", "narx.nb=2", "narx.target=all", "figures=false")
    plant_of_two = ("system=van_der_pol", f"system._target_={__name__}.TwoOutputs", "duration=400samples")
    run(configured(*plant_of_two, "training.n_initial=40", "budget=20", *lags), folder)
    targets = [p.name for p in sorted(folder.iterdir()) if p.is_dir()]
    assert len(targets) > 1
    assert len(begun) == 1
    first, *others = (store.read(folder / name / "trajectory.nc", kind="trajectory") for name in targets)
    assert all(first.identical(other.assign_attrs(first.attrs)) for other in others)
