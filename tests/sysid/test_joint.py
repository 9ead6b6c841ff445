"""Models of all outputs in one file: the same bits again, and nothing else taken for them."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr

from sysid import OnlineGP, SquaredExponential, store
from sysid.joint import JointModel
from sysid.kernels import Linear, Matern32, Matern52, Product, Sum
from sysid.mean import ConstantMean, LinearMean, MeanFunction, ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.origin import Origin
from sysid.projection import Projection
from sysid.scaling import Scaling
from sysid.store import StoreError


@dataclass(frozen=True)
class Cooling(MeanFunction):
    """A user's own."""

    rate: float

    def __call__(self, regressors):
        return self.rate * np.tanh(regressors[:, 1])


KERNELS = [
    SquaredExponential(1.3, [1.0, 2.0, 0.7]),
    Matern32(0.7, [1.0, 0.5, 2.0]),
    Matern52(0.7, [1.0, 0.5, 2.0]),
    Linear(0.3, [1.0, 0.1, 0.2]),
    Sum([Linear(0.3, [1.0, 0.1, 0.2]), Product([Matern52(1.1, [1.0] * 3), SquaredExponential(0.9, [2.0] * 3)])]),
]
MEANS = [ZeroMean(), ConstantMean(0.3), LinearMean([0.1, -0.2, 0.3], 0.4), Cooling(0.2)]
ORIGIN = Origin(0.5, {"y1": "m", "u": "N"}, 0.1, 2.0, (-1.0, 3.0), 40)


def rows(n, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 3)) * [1.0, 3.0, 0.2] + [0.0, 5.0, 0.0]
    return x, np.sin(x[:, 0]) + 0.1 * x[:, 1]


def model(kernel=KERNELS[0], mean=MEANS[0], n_outputs=1, target=0, scaling=None):
    """Model of one of the outputs y1, y2, ... with features y1[k-1], ..., u[k-1], ..."""
    names = [f"y{i + 1}" for i in range(n_outputs)]
    narx = Narx(dict.fromkeys(names, 1), {"u": 3 - n_outputs}, names[target])
    x, y = rows(14, seed=target)
    scaling = Scaling.fit(x) if scaling is None else scaling
    gp = OnlineGP(kernel, noise_variance=0.01, budget=6).fit(scaling.transform(x[:6]), (y - mean(x))[:6])
    found = Model(narx, scaling, mean, gp, ORIGIN)
    found.update_many(x[6:], y[6:] + target)
    return found


def joint(n_outputs, kernel=KERNELS[0], mean=MEANS[0]):
    return JointModel(tuple(model(kernel, mean, n_outputs, i) for i in range(n_outputs)))


def assert_same_bits(found, expected):
    x, _ = rows(9, seed=5)
    assert [one.narx for one in found.models] == [one.narx for one in expected.models]
    for one, other in zip(found.models, expected.models, strict=True):
        for a, b in zip(one.predict(x), other.predict(x), strict=True):
            np.testing.assert_array_equal(a, b)
        assert (one.mean, one.gp.kernel, one.origin) == (other.mean, other.gp.kernel, other.origin)


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("mean", MEANS, ids=lambda mean: type(mean).__name__)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
def test_every_kernel_mean_and_number_of_outputs_survives(kernel, mean, n_outputs, tmp_path):
    expected = joint(n_outputs, kernel, mean)
    expected.save(tmp_path / "model.nc")
    found = JointModel.load(tmp_path / "model.nc")
    assert_same_bits(found, expected)
    x, y = rows(5, seed=7)
    for one, other in zip(found.models, expected.models, strict=True):
        np.testing.assert_equal(vars(one.update_many(x, y)), vars(other.update_many(x, y)))
    assert_same_bits(found, expected)


def test_a_projection_survives(tmp_path):
    x, _ = rows(14)
    scaling = Projection(x.mean(axis=0), np.array([[1.0, 0.5, 0.0], [0.3, -0.2, 4.0]]))
    expected = JointModel.of(model(SquaredExponential(1.0, [1.0, 2.0]), scaling=scaling))
    expected.save(tmp_path / "model.nc")
    assert_same_bits(JointModel.load(tmp_path / "model.nc"), expected)


def test_plain_xarray_reads_a_file(tmp_path):
    expected = joint(2)
    expected.save(tmp_path / "two.nc")
    expected.models[0].save(tmp_path / "one.nc")
    for path, group in ((tmp_path / "two.nc", "y1"), (tmp_path / "one.nc", None)):
        with xr.open_dataset(path, group=group) as found:
            np.testing.assert_array_equal(found["inputs"].values, expected.models[0].gp.inputs)
            assert json.loads(found.attrs["narx"])["target"] == "y1"
            assert found["feature"].values.tolist() == ["y1[k-1]", "y2[k-1]", "u[k-1]"]
            assert found.attrs["noise_variance"] == 0.01


def test_models_come_in_the_order_of_the_outputs():
    first, second = joint(2).models
    found = JointModel((second, first))
    assert [one.narx.target for one in found.models] == ["y1", "y2"]
    assert (found.output_names, found.input_names, found.origin) == (("y1", "y2"), ("u",), ORIGIN)
    np.testing.assert_array_equal(found.noise_variance, [0.01, 0.01])


def test_of_takes_either():
    one = model()
    assert JointModel.of(one).models == (one,)
    both = joint(2)
    assert JointModel.of(both) is both


def with_origin(one, **facts):
    return replace(one, origin=replace(one.origin, **facts))


def with_narx(one, **facts):
    return replace(one, narx=replace(one.narx, **facts))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda first, second: (), "got none"),
        (lambda first, second: (first,), r"models of \['y1'\]"),
        (lambda first, second: (first, first), r"models of \['y1', 'y1'\]"),
        (lambda first, second: (first, with_origin(second, sampling_time=2.0)), r"sampling time .* 0.5 .* 2.0"),
        (lambda first, second: (first, with_origin(second, units={"u": "kN"})), "units"),
        (lambda first, second: (first, with_narx(second, predict="value")), "kind of target"),
        (lambda first, second: (first, with_narx(second, inputs={"u": [2]})), "lags"),
    ],
)
def test_models_that_do_not_belong_together(change, words):
    with pytest.raises(ValueError, match=words):
        JointModel(change(*joint(2).models))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Bytes of the files of one and of two outputs."""
    folder = tmp_path_factory.mktemp("stored")
    for n in (1, 2):
        joint(n).save(folder / f"{n}.nc")
    return {n: (folder / f"{n}.nc").read_bytes() for n in (1, 2)}


@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999])
def test_a_file_cut_short_is_refused(share, n_outputs, stored, tmp_path):
    path, content = tmp_path / "model.nc", stored[n_outputs]
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(StoreError, match=r"model\.nc"):
        JointModel.load(path)


def edited(path, change):
    """File of two outputs of which the data set of the second went through a function."""
    first, second = (one.to_dataset() for one in joint(2).models)
    store.write_groups({"y1": first, "y2": change(second)}, path, kind="model")
    return path


@pytest.mark.parametrize("name", ["inputs", "targets", "cholesky", "factor", "weights", "whitened", "pivots"])
def test_an_edited_array_is_refused(name, tmp_path):
    """Its checksum is right, but the numbers contradict each other."""
    path = edited(tmp_path / "model.nc", lambda dataset: dataset.assign({name: 1.01 * dataset[name]}))
    with pytest.raises(StoreError, match=r"model\.nc"):
        JointModel.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kernel", '{"class": "nowhere.Kernel"}'),
        ("noise_variance", 0.5),
        ("noise_variance", -1.0),
        ("mean", '{"class": "sysid.mean.linear.LinearMean", "coefficients": [1.0], "intercept": 0.0, "ridge": 0.0}'),
        ("narx", '{"outputs": {"y1": 1}}'),
        ("origin", '{"sampling_time": 7.0}'),
        ("budget", 2),
    ],
)
def test_an_edited_attribute_is_refused(name, value, tmp_path):
    path = edited(tmp_path / "model.nc", lambda dataset: dataset.assign_attrs({name: value}))
    with pytest.raises(StoreError, match=r"model\.nc"):
        JointModel.load(path)


def test_a_group_that_is_missing_is_refused(tmp_path):
    dataset = joint(2).models[0].to_dataset()
    store.write_groups({"y1": dataset}, tmp_path / "model.nc", kind="model")
    with pytest.raises(StoreError, match=r"model\.nc cannot be simulated"):
        JointModel.load(tmp_path / "model.nc")


def test_a_file_of_the_first_version_is_still_read(tmp_path):
    """It has a constant mean, a number, and no origin."""
    expected = replace(model(mean=ConstantMean(0.3)), origin=Origin())
    expected.save(tmp_path / "new.nc")
    content = xr.load_dataset(tmp_path / "new.nc")
    for name in ("mean", "origin"):
        del content.attrs[name]
    kernel = content.attrs["kernel"].replace("kernels.squared_exponential.", "kernels.")
    content.attrs |= {"schema_version": np.int64(1), "target_offset": 0.3, "kernel": kernel}
    content.to_netcdf(tmp_path / "old.nc")
    assert_same_bits(JointModel.load(tmp_path / "old.nc"), JointModel.of(expected))


@pytest.mark.parametrize("version", [0, 99])
def test_a_file_of_another_version_is_refused(version, tmp_path):
    path = tmp_path / "model.nc"
    model().save(path)
    content = xr.load_dataset(path)
    content.attrs["schema_version"] = np.int64(version)
    content.to_netcdf(path)
    with pytest.raises(StoreError, match=f"schema_version {version}"):
        JointModel.load(path)


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(StoreError, match="does not exist"):
        joint(2).save(tmp_path / "missing" / "model.nc")
    assert list(tmp_path.iterdir()) == []
