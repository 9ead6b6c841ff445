"""A model kept in a file: the same bits, the same future, and no other file taken for one."""

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
from naive import CRITERIA, INSERTIONS, criterion_name, insertion_rule

from sysid import OnlineGP, SquaredExponential, store
from sysid.acceptance import AcceptAll, ExceedsMinimum
from sysid.criteria import MeanRelevance
from sysid.free_run import free_run
from sysid.insertion import Always
from sysid.mean import ConstantMean, ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.reference import Reference
from sysid.scaling import Scaling
from sysid.store import StoreError

NARX = Narx(outputs={"y": 2}, inputs={"u": [0, 2]})
ACCEPTANCES = [
    AcceptAll(),
    *(ExceedsMinimum(criterion, reference) for criterion in CRITERIA for reference in Reference),
]


def samples(n, seed=0):
    """Regressors in odd units and a target that is far from centred."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 4)) * [10.0, 0.1, 3.0, 1.0] + [300.0, 0.0, -5.0, 1.0]
    return x, 7.0 + np.sin(x[:, 0] / 5) + x[:, 3] * x[:, 1] * 3 + 0.05 * rng.normal(size=n)


def learned(n=40, budget=12, **rules):
    x, y = samples(30)
    scaling, offset = Scaling.fit(x), float(y.mean())
    gp = OnlineGP(SquaredExponential(1.3, [1.0, 2.0, 3.0, 1.5]), noise_variance=0.01, budget=budget, **rules).fit(
        scaling.transform(x[:10]), y[:10] - offset
    )
    model = Model(NARX, scaling, ConstantMean(offset), gp)
    for point, target in zip(*samples(n, seed=1), strict=True):
        model.update(point, target)
    return model


def reloaded(model, folder):
    model.save(folder / "model.nc")
    return Model.load(folder / "model.nc")


def same_future(one, other, seed=2):
    """Both predict and learn the same bits from here on."""
    x, y = samples(25, seed)
    for point, target in zip(x, y, strict=True):
        for a, b in zip(one.predict(x), other.predict(x), strict=True):
            np.testing.assert_array_equal(a, b)
        np.testing.assert_equal(one.update(point, target), other.update(point, target))
    np.testing.assert_array_equal(one.gp.inputs, other.gp.inputs)
    assert one.gp.repairs == other.gp.repairs


@pytest.mark.parametrize("reduction", CRITERIA, ids=criterion_name)
@pytest.mark.parametrize("insertion", INSERTIONS, ids=lambda rule: rule.__name__)
def test_every_rule_and_criterion_survives(insertion, reduction, tmp_path):
    rule = insertion_rule(insertion, 0.3, 0.2)
    model = learned(insertion=rule, reduction=reduction)
    again = reloaded(model, tmp_path)
    assert again.gp.insertion == rule
    assert again.gp.reduction == reduction
    same_future(model, again)


@pytest.mark.parametrize("acceptance", ACCEPTANCES, ids=str)
def test_every_acceptance_survives(acceptance, tmp_path):
    model = learned(acceptance=acceptance, reduction=MeanRelevance(), insertion=Always())
    again = reloaded(model, tmp_path)
    assert again.gp.acceptance == acceptance
    same_future(model, again)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_model_that_is_not_full_goes_on(n, tmp_path):
    model = learned(n=n, budget=30)
    again = reloaded(model, tmp_path)
    assert again.gp.n_points == 10 + n
    same_future(model, again)


def test_an_empty_model_survives(tmp_path):
    kernel = SquaredExponential(1.3, [1.0] * 4)
    gp = OnlineGP(kernel, noise_variance=0.01, budget=5)
    model = Model(NARX, Scaling.identity(4), ConstantMean(0.5), gp)
    again = reloaded(model, tmp_path)
    assert again.gp.n_points == 0
    assert again.predict(np.zeros((1, 4))).mean[0] == 0.5
    same_future(model, again)


def test_everything_else_survives(tmp_path):
    model = learned()
    again = reloaded(model, tmp_path)
    assert again.narx == model.narx
    assert again.scaling == model.scaling
    assert again.mean == model.mean
    assert again.gp.kernel == model.gp.kernel
    assert again.gp.noise_variance == model.gp.noise_variance
    assert again.gp.budget == model.gp.budget
    assert again.hyperparameters == model.hyperparameters
    np.testing.assert_array_equal(again.gp.age_order, model.gp.age_order)


def test_limits_survive_and_bound_the_simulation_only(tmp_path):
    model = replace(learned(), limits=(-np.inf, 20.0))
    again = reloaded(model, tmp_path)
    assert again.limits == (-np.inf, 20.0)
    x, y = samples(20, seed=4)
    np.testing.assert_array_equal(again.predict(x).mean, learned().predict(x).mean)
    u, y_init = 3 * np.random.default_rng(0).normal(size=(50, 1)), y[:3, None]
    bounded, free = (free_run(each, u, y_init).mean for each in (again, learned()))
    assert free.max() > 300.0
    assert bounded.max() == 20.0


def test_limits_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"limits must be two numbers, low < high .* got \(2.0, 1.0\)"):
        replace(learned(), limits=(2.0, 1.0))


def test_a_saved_model_saves_the_same_bits(tmp_path):
    model = learned()
    again = reloaded(model, tmp_path)
    xr.testing.assert_identical(model.to_dataset(), again.to_dataset())


def test_saving_does_not_change_the_model(tmp_path):
    model, untouched = learned(), learned()
    model.save(tmp_path / "model.nc")
    same_future(model, untouched)


def test_constant_features_survive(tmp_path):
    x, y = samples(10)
    x[:, 2] = 4.0
    scaling = Scaling.fit(x)
    gp = OnlineGP(SquaredExponential(1.0, [1.0] * 4), noise_variance=0.1, budget=10)
    model = Model(NARX, scaling, ZeroMean(), gp.fit(scaling.transform(x), y))
    assert reloaded(model, tmp_path).scaling.constant == (2,)


def test_hyperparameters_are_in_the_units_of_the_data():
    model = learned()
    x, _ = samples(20, seed=3)
    described = model.hyperparameters
    scales = described["kernel"]["length_scales"]
    assert list(scales) == list(NARX.feature_names)
    kernel = SquaredExponential(described["kernel"]["variance"], list(scales.values()))
    gp = OnlineGP(kernel, noise_variance=described["noise_variance"], budget=12)
    gp.fit(model.scaling.inverse(model.gp.inputs), model.gp.targets)
    mean, variance = gp.predict(x)
    np.testing.assert_allclose(model.predict(x).mean, mean + described["mean"]["value"], rtol=1e-9)
    np.testing.assert_allclose(model.predict(x).variance, variance, rtol=1e-8, atol=1e-10)
    json.dumps(described, allow_nan=False)


def test_update_reports_what_predict_says():
    model = learned()
    (point, *_), (target, *_) = samples(1, seed=5)
    mean, variance = model.predict(point[None, :])
    report = model.update(point, target)
    assert report.mean == pytest.approx(mean[0], rel=1e-12)
    assert report.variance == pytest.approx(variance[0], rel=1e-9)


def test_attributes_of_the_run_are_kept(tmp_path):
    learned().save(tmp_path / "model.nc", attributes={"seed": 7, "configuration": "budget: 12\n"})
    attributes = store.read(tmp_path / "model.nc", kind="model").attrs
    assert attributes["seed"] == 7
    assert attributes["configuration"] == "budget: 12\n"


# files that are not a model


def test_missing_file(tmp_path):
    with pytest.raises(StoreError, match=r"no file .*model\.nc"):
        Model.load(tmp_path / "model.nc")


def test_foreign_netcdf_file(tmp_path):
    xr.Dataset({"a": ("x", [1.0])}).to_netcdf(tmp_path / "model.nc")
    with pytest.raises(StoreError, match="another origin"):
        Model.load(tmp_path / "model.nc")


def test_file_of_another_kind(tmp_path):
    store.write(xr.Dataset({"a": ("x", [1.0])}), tmp_path / "model.nc", kind="result")
    with pytest.raises(StoreError, match="result"):
        Model.load(tmp_path / "model.nc")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_truncated_file(share, tmp_path):
    path = tmp_path / "model.nc"
    learned().save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StoreError, match=r"model\.nc"):
        Model.load(path)


def edited(folder, change):
    """Model file whose data set went through a function."""
    dataset = learned().to_dataset()
    store.write(change(dataset), folder / "model.nc", kind="model")
    return folder / "model.nc"


@pytest.mark.parametrize("name", list(learned(n=0).to_dataset().data_vars))
def test_missing_variable(name, tmp_path):
    path = edited(tmp_path, lambda dataset: dataset.drop_vars(name))
    with pytest.raises(StoreError, match=r"model\.nc is not a complete model"):
        Model.load(path)


@pytest.mark.parametrize("name", list(learned(n=0).to_dataset().attrs))
def test_missing_attribute(name, tmp_path):
    def change(dataset):
        del dataset.attrs[name]
        return dataset

    with pytest.raises(StoreError, match=name):
        Model.load(edited(tmp_path, change))


NOT_FINITE = '{"class": "sysid.mean.constant.ConstantMean", "value": NaN}'
WRONG = {
    "budget": [1, 5, -1, "many", float("inf"), float("nan")],
    "noise_variance": [-1.0, 0.0, float("nan"), "small"],
    "kernel": ["{}", "no json", '{"class": "os.path.join"}', '{"class": "nowhere.Kernel"}', "[]"],
    "insertion": ['{"class": "sysid.criteria.mean_relevance.MeanRelevance"}'],
    "acceptance": ['{"class": "sysid.insertion.always.Always"}', "null"],
    "reduction": ['{"class": "sysid.insertion.always.Always"}', "3"],
    "narx": ["{}", "[1]", '{"outputs": {}}', '{"outputs": {"y": 2}, "hidden": 3}'],
    "counts": ["[]", "3", "{}", '{"points": "a"}'],
    "constant_features": ["[99]", "null", '["y"]'],
    "mean": ["zero", "{}", NOT_FINITE, '{"class": "sysid.insertion.always.Always"}'],
    "output_limits": [[1.0, 1.0], [2.0, 1.0], 3.0, "none", [float("nan"), 1.0]],
    "origin": ["none", "[]", '{"sampling_time": -1}', '{"unknown": 1}'],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in WRONG for value in WRONG[name]])
def test_wrong_attribute(name, value, tmp_path):
    path = edited(tmp_path, lambda dataset: dataset.assign_attrs({name: value}))
    with pytest.raises(StoreError, match=r"model\.nc"):
        Model.load(path)


SCALED = '{"class": "sysid.mean.constant.ConstantMean", "value": 7.0}'
LIES = {
    "feature_offset": lambda dataset: dataset.assign(feature_offset=dataset["feature_offset"] + 1e-9),
    "feature_scale": lambda dataset: dataset.assign(feature_scale=2 * dataset["feature_scale"]),
    "feature": lambda dataset: dataset.assign_coords(feature=["a", "b", "c", "d"]),
    "mean": lambda dataset: dataset.assign_attrs(mean=SCALED),
    "output_limits": lambda dataset: dataset.assign_attrs(output_limits=[0.0, 10.0]),
    "budget": lambda dataset: dataset.assign_attrs(budget=50),
    "narx": lambda dataset: dataset.assign_attrs(narx=json.dumps(NARX.to_dict() | {"predict": "value"})),
}


@pytest.mark.parametrize("name", LIES)
def test_what_fits_but_was_edited(name, tmp_path):
    with pytest.raises(StoreError, match="edited after it was saved"):
        Model.load(edited(tmp_path, LIES[name]))


def test_more_attributes_of_a_file_do_not_matter(tmp_path):
    path = edited(tmp_path, lambda dataset: dataset.assign_attrs(history="looked at"))
    assert Model.load(path).gp.n_points == 12


@pytest.mark.parametrize("name", ["inputs", "targets", "factor", "weights", "precision", "whitened"])
def test_values_that_are_not_finite(name, tmp_path):
    path = edited(tmp_path, lambda dataset: dataset.assign({name: dataset[name] * np.nan}))
    with pytest.raises(StoreError, match=name):
        Model.load(path)


def test_order_that_is_no_permutation(tmp_path):
    path = edited(tmp_path, lambda dataset: dataset.assign(order=dataset["order"] * 0))
    with pytest.raises(StoreError, match="order"):
        Model.load(path)


def test_scale_that_is_not_positive(tmp_path):
    path = edited(tmp_path, lambda dataset: dataset.assign(feature_scale=-dataset["feature_scale"]))
    with pytest.raises(StoreError, match="scale"):
        Model.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"narx": json.dumps(Narx(outputs={"y": 2}).to_dict())},
        {"kernel": '{"class": "sysid.kernels.SquaredExponential", "variance": 1.0, "length_scales": [1.0]}'},
    ],
    ids=["narx", "kernel"],
)
def test_features_that_do_not_fit_together(change, tmp_path):
    path = edited(tmp_path, lambda dataset: dataset.assign_attrs(change))
    with pytest.raises(StoreError, match=r"model\.nc"):
        Model.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda dataset: dataset.assign(factor=2.0 * dataset["factor"]),
        lambda dataset: dataset.assign(targets=dataset["targets"] + 1.0),
        lambda dataset: dataset.assign_attrs(noise_variance=0.5),
    ],
    ids=["factor", "targets", "noise_variance"],
)
def test_numbers_that_contradict_each_other(change, tmp_path):
    """A model whose factor is not that of its points predicts nonsense: refused, not believed."""
    with pytest.raises(StoreError, match=r"model\.nc"):
        Model.load(edited(tmp_path, change))
