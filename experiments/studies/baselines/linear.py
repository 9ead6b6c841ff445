"""Linear models by least squares."""

import numpy as np
import xarray as xr

from experiments.studies.baselines.method import Fitted, Material, Method
from experiments.studies.stream import rows_without_lags
from experiments.studies.tasks.building import NARX
from sysid import standardised_mean_squared_error
from sysid.simulation.baselines import LinearArx

RIDGES = (0.0, 1e-3, 1e-2, 0.1, 0.3, 1.0, 3.0, 10.0)  # mean squares of the standardised features
FOLDS = 5  # of consecutive rows


class Linear(Method):
    """Linear ARX: the features are the lags."""

    name, title = "linear_arx", "Linear ARX"
    note = "least squares; the variance of a prediction is that of the training residuals"

    def fit(self, material: Material) -> Fitted:
        """Least squares on all rows."""
        data = material.data
        return _fitted(data.training_inputs, data.training_targets, self.ridge(material))

    def ridge(self, material: Material) -> float:
        """None."""
        return 0.0


class Bilinear(Linear):
    """Least squares in the lags of the Building and the products of a flow with any lag: the plant is bilinear."""

    name, title = "bilinear", "Bilinear least squares"
    note = "least squares in the lags and the products of a flow with any lag: what an equation of these lags reaches"

    def is_for(self, task: str, n_rows: int, seed: int) -> bool:
        """The Building."""
        return task == "building"

    def fit(self, material: Material) -> Fitted:
        """Least squares on all rows."""
        data = material.data
        fitted = _fitted(with_flow_products(data.training_inputs), data.training_targets, 0.0)
        return fitted._replace(predict=lambda x: fitted.predict(with_flow_products(x)))


class Ridge(Linear):
    """Ridge regression of the tables, penalty by cross-validation over blocks of rows."""

    name, title = "ridge", "Ridge"
    note = f"penalty by {FOLDS}-fold cross-validation over consecutive training rows"

    def is_for(self, task: str, n_rows: int, seed: int) -> bool:
        """The two tables."""
        return task in {"boston", "concrete"}

    def ridge(self, material: Material) -> float:
        """Smallest squared error of the left-out folds."""
        data = material.data
        return min(RIDGES, key=lambda ridge: _left_out_error(data.training_inputs, data.training_targets, ridge))


class RidgeInHindsight(Ridge):
    """The penalty that is best on the test rows: no honest model, but what no ridge regression can beat."""

    name, title = "ridge_hindsight", "Ridge, hindsight"
    note = "penalty chosen on the TEST rows: a bound, not a model"

    def ridge(self, material: Material) -> float:
        """Smallest error on the test rows."""
        data = material.data

        def error(ridge: float) -> float:
            mean, _ = _fitted(data.training_inputs, data.training_targets, ridge).predict(data.test_inputs)
            return standardised_mean_squared_error(data.test_targets, mean)

        return min(RIDGES, key=error)


def with_flow_products(inputs: np.ndarray) -> np.ndarray:
    """Lags (n, 9) of the Building and their products with each lag of the flow, every pair once (n, 33)."""
    flows = [i for i, name in enumerate(NARX.feature_names) if name.startswith("mass_flow")]
    pairs = [(i, j) for i in flows for j in range(inputs.shape[1]) if j not in flows or j >= i]
    return np.column_stack([inputs, *(inputs[:, i] * inputs[:, j] for i, j in pairs)])


def _fitted(inputs: np.ndarray, targets: np.ndarray, ridge: float) -> Fitted:
    columns = {f"z{d + 1}": ("time", column) for d, column in enumerate(inputs.T)}
    rows = xr.Dataset({"y": ("time", targets), **columns}, {"time": np.arange(float(len(targets)))})
    model = LinearArx.fit(rows_without_lags(inputs.shape[1]), rows, ridge=ridge)

    def predict(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return model.predict(x, np.full(len(x), np.nan)), np.zeros(len(x))

    return Fitted(predict, float(np.mean((targets - predict(inputs)[0]) ** 2)), model.coefficients.nbytes + 8)


def _left_out_error(inputs: np.ndarray, targets: np.ndarray, ridge: float) -> float:
    error = 0.0
    for fold in np.array_split(np.arange(len(targets)), FOLDS):
        others = np.delete(np.arange(len(targets)), fold)
        mean, _ = _fitted(inputs[others], targets[others], ridge).predict(inputs[fold])
        error += float(((targets[fold] - mean) ** 2).sum())
    return error
