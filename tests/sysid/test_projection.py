"""Linear combinations of features: the map, and a model that uses one."""

import numpy as np
import pytest

from sysid import OnlineGP, SquaredExponential
from sysid.mean import ConstantMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.projection import Projection
from sysid.scaling import Scaling

NARX = Narx(outputs={"y": 2}, inputs={"u": 1})
MATRIX = np.array([[1.0, 0.5, 0.0], [0.3, -2.0, 1.0]])
OFFSET = np.array([1.0, -2.0, 0.5])


def samples(n=30, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, 3))
    return x, np.sin(x @ MATRIX[0]) + 0.3 * x @ MATRIX[1]


def model(n_coordinates=2):
    x, y = samples()
    projection = Projection(OFFSET, MATRIX[:n_coordinates])
    kernel = SquaredExponential(1.5, [1.0] * n_coordinates)
    gp = OnlineGP(kernel, noise_variance=0.01, budget=20).fit(projection.transform(x), y - 0.25)
    return Model(NARX, projection, ConstantMean(0.25), gp)


def test_coordinates_are_the_product_with_the_matrix():
    x, _ = samples()
    z = Projection(OFFSET, MATRIX).transform(x)
    np.testing.assert_allclose(z, (x - OFFSET) @ MATRIX.T, rtol=1e-13)
    for row, expected in zip(x, z, strict=True):
        np.testing.assert_array_equal(Projection(OFFSET, MATRIX).transform(row), expected)


def test_a_scaling_is_the_projection_by_its_linear_part():
    x, _ = samples()
    scaling = Scaling(OFFSET, np.array([2.0, 3.0, 0.5]))
    np.testing.assert_allclose(
        Projection(scaling.offset, scaling.linear_part()).transform(x), scaling.transform(x), rtol=1e-14
    )


def test_the_model_is_a_gp_with_the_metric_of_the_matrix():
    found, (x, y), (x_new, _) = model(), samples(), samples(seed=1)
    points = found.gp.inputs
    kept = [int(np.flatnonzero(np.all(found.scaling.transform(x) == point, axis=1))[0]) for point in points]
    metric = MATRIX.T @ MATRIX

    def kernel(a, b):
        difference = a[:, None, :] - b[None, :, :]
        return 1.5 * np.exp(-0.5 * np.einsum("ijp,pq,ijq->ij", difference, metric, difference))

    ky = kernel(x[kept], x[kept]) + 0.01 * np.eye(len(kept))
    k = kernel(x_new, x[kept])
    mean, variance = found.predict(x_new)
    np.testing.assert_allclose(mean, 0.25 + k @ np.linalg.solve(ky, y[kept] - 0.25), rtol=1e-8)
    np.testing.assert_allclose(variance, 1.5 - np.sum(k * np.linalg.solve(ky, k.T).T, axis=1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("n_coordinates", [1, 2])
def test_it_survives_a_file_bit_for_bit(n_coordinates, tmp_path):
    found, (x, y) = model(n_coordinates), samples(seed=2)
    found.save(tmp_path / "model.nc")
    again = Model.load(tmp_path / "model.nc")
    assert again.scaling == found.scaling
    for one, other in zip(found.predict(x), again.predict(x), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_equal(found.update(x[0], y[0]), again.update(x[0], y[0]))
    assert list(again.hyperparameters["kernel"]["length_scales"]) == ["z1", "z2"][:n_coordinates]


@pytest.mark.parametrize(
    ("offset", "matrix"),
    [
        ([0.0], [[1.0, 2.0]]),
        ([0.0, 0.0], [1.0, 2.0]),
        ([0.0], np.zeros((0, 1))),
        ([np.nan], [[1.0]]),
        ([0.0], [[np.inf]]),
    ],
)
def test_what_does_not_fit_is_refused(offset, matrix):
    with pytest.raises(ValueError, match=r"Projection: .*(expected|finite)"):
        Projection(np.array(offset), np.array(matrix))


def test_another_number_of_features_or_coordinates_is_refused():
    with pytest.raises(ValueError, match=r"Projection of 3 features expects .* got shape \(2,\)"):
        Projection(OFFSET, MATRIX).transform([1.0, 2.0])
    gp = OnlineGP(SquaredExponential(1.0, [1.0] * 3), noise_variance=0.1, budget=5)
    with pytest.raises(ValueError, match=r"coordinates, got \(2, 3\)"):
        Model(NARX, Projection(OFFSET, MATRIX), ConstantMean(), gp)
