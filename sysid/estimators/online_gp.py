"""Regressor for tables with the interfaces of scikit-learn and river.

The module also contains the base class of both regressors of `sysid.estimators`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sysid.arrays import check_unmasked, check_whole, matrix, vector
from sysid.beside import one_blas_thread
from sysid.errors import UserError, UserTypeError, warn_user
from sysid.gp.adaptation import Adaptive
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Kernel
from sysid.gp.mean import MeanFunction
from sysid.gp.rules import Acceptance, Criterion, Insertion
from sysid.gp.selection import Selection
from sysid.gp.training import Start, Training
from sysid.identification import Identification, Settings
from sysid.model.model import Model
from sysid.narx.lags import Lags, Narx
from sysid.progress_display import shows_progress
from sysid.simulation.look_ahead import table_of_bands

#: A batch must have at least this many rows.
MIN_BATCH_ROWS = 2

#: Parameters that `sysid.Settings` has too, under the same name; None stands for its default.
SETTINGS_PARAMETERS = (
    "mean",
    "insertion",
    "acceptance",
    "reduction",
    "learning",
    "forgetting",
    "gate",
    "selection",
)

#: Options of scikit-learn's check of features and targets.
_CHECK_OPTIONS: dict[str, Any] = {"dtype": np.float64, "y_numeric": True, "multi_output": True}

#: One target, or several by name.
Target = float | Mapping[Hashable, float]


@dataclass(kw_only=True, eq=False, repr=False)
class GPRegressor(RegressorMixin, BaseEstimator):
    """Base class of both regressors: its parameters become the settings of an identification.

    Every output has an identification of its own.
    """

    budget: int = 100
    kernel: Kernel | None = None
    training: Training | None = None
    mean: MeanFunction | None = None
    insertion: Insertion | None = None
    acceptance: Acceptance | None = None
    reduction: Criterion | None = None
    learning: str | None = None
    forgetting: float | str | None = None
    gate: float | str | None = None
    selection: Selection | None = None
    standardise: bool = True
    random_state: Any = 0

    def _settings(self, n_samples: int | None = None, **changes: Any) -> Settings:
        """Return the settings of an identification with these parameters.

        If a batch has fewer samples than the training needs, all of them are used to train.

        Raises
        ------
        TypeError, ValueError
            If the classes of the parameters do not accept their values.
        """
        chosen: dict[str, Any] = changes
        for name in SETTINGS_PARAMETERS:
            value = getattr(self, name)
            if value is not None:
                chosen[name] = value
        return Settings(
            training=self._training(n_samples),
            budget=self.budget,
            seed=self._seed(),
            **chosen,
        )

    def _identification(self, narx: Narx, n_samples: int | None = None) -> Identification:
        """Return an identification of `narx` with the settings that `_settings` returns."""
        settings = self._settings(n_samples)
        scaling = None if self.standardise else AffineMap.identity(narx.n_features)
        return Identification(narx, settings, start=Start(scaling=scaling))

    def _training(self, n_samples: int | None) -> Training:
        """Return the training with the chosen kernel, and at most `n_samples` initial samples."""
        training = Adaptive() if self.training is None else self.training
        if not isinstance(training, Training):
            raise UserTypeError(f"training must be a Training such as Adaptive(), got {training!r}")
        changes: dict[str, Any] = {}
        if self.kernel is not None:
            if "kernel" not in [field.name for field in fields(training)]:  # type: ignore[arg-type]
                raise UserError(
                    f"kernel: {type(training).__name__} chooses its kernel itself; leave kernel out"
                )
            changes["kernel"] = self.kernel
        if n_samples is not None and (training.n_initial is None or training.n_initial > n_samples):
            changes["n_initial"] = n_samples
        if not changes:
            return training
        return replace(training, **changes)  # type: ignore[type-var]

    def _seed(self) -> int:
        """Return `random_state` if it is an integer, else draw one as scikit-learn does."""
        if isinstance(self.random_state, int | np.integer):
            check_whole(int(self.random_state), 0, "random_state")
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def unused_name(wanted: str, taken: Sequence[str]) -> str:
    """Return the wanted name, with underscores appended until it is not taken.

    >>> unused_name("y", ["x", "y"])
    'y_'
    """
    name = wanted
    while name in taken:
        name += "_"
    return name


def numbered_names(letter: str, n: int) -> list[str]:
    """Return names of n signals.

    >>> numbered_names("y", 1), numbered_names("u", 2)
    (['y'], ['u1', 'u2'])
    """
    return [letter] if n == 1 else [f"{letter}{i + 1}" for i in range(n)]


class OnlineGPRegressor(GPRegressor):
    """Gaussian process regression that learns from a stream and stores at most `budget` points.

    The rows come in the order of time. The first ones (``training.n_initial``, or all rows of a
    smaller batch) determine the hyper-parameters. Every later row is predicted and then learned, by
    `sysid.Identification`. Several outputs have one Gaussian process each over the same features.

    `partial_fit` and `learn_one` continue where earlier calls ended. Until they have received
    ``training.n_initial`` rows there is no Gaussian process: the prediction is the mean and the
    standard deviation of all targets so far.

    Parameters
    ----------
    budget : int
        Largest number of stored points.
    kernel : Kernel, optional
        Prototype whose hyper-parameters the training finds, such as ``sysid.Matern52()``; None:
        that of the training.
    training : Training, optional
        None: `sysid.Adaptive`.
    mean, insertion, acceptance, reduction, learning, forgetting, gate, selection : optional
        As in `sysid.Settings`; None: its defaults (``gate="none"``: no gate). Thresholds are in the
        unit of the target.
    standardise : bool
        Whether the training standardises the features; `sysid.Fixed` never does.
    random_state : int, RandomState or None
        Seed of the random starts of the training.

    Attributes
    ----------
    models_ : tuple of Model
        One per output, empty before there are enough rows; each can be saved and exported.
    n_outputs_ : int
    n_samples_seen_ : int
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Examples
    --------
    >>> X = np.linspace(0, 6, 60)[:, None]
    >>> model = OnlineGPRegressor(budget=20).fit(X, np.sin(X[:, 0]))
    >>> mean, std = model.predict([[1.5]], return_std=True)
    >>> bool(abs(mean[0] - np.sin(1.5)) < 0.01)
    True
    """

    _target_names: tuple[Hashable, ...] | None  # None: the targets have no names

    @shows_progress("fit")
    @one_blas_thread
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn rows X (n, p), y (n,) or (n, m), with n >= 2."""
        _check_unmasked_rows(X, y)
        x, targets = validate_data(self, X, y, ensure_min_samples=MIN_BATCH_ROWS, **_CHECK_OPTIONS)
        self._begin(targets, n_samples=len(x))
        self._learn(x, targets)
        for model in self.models_[:1]:
            if model.gp.unreached_memory:
                warn_user(model.gp.unreached_memory)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn more rows X (n, p), y (n,) or (n, m); all or, after an error, none of them."""
        is_first = not self.__sklearn_is_fitted__()
        _check_unmasked_rows(X, y)
        x, targets = validate_data(self, X, y, reset=is_first, **_CHECK_OPTIONS)
        matrix(targets.reshape(len(x), -1), targets[0].size, "y")
        if is_first:
            matrix(x, x.shape[1], "X")
            self._begin(targets)
        if targets.shape[1:] != self._target_shape:
            expected_shape = ("n", *self._target_shape)
            raise UserError(
                f"partial_fit: expected targets of shape {expected_shape} as before, "
                f"got {targets.shape}"
            )
        return self._learn(x, targets)

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return the mean (n,) or (n, m) of the targets at X (n, p).

        With `return_std`, return also the standard deviation of a measurement. It includes the
        uncertainty of the model and the noise.
        """
        check_is_fitted(self)
        check_unmasked(X, "X")
        x = validate_data(self, X, reset=False, dtype=np.float64)
        mean, std = self._moments(x)
        return (mean, std) if return_std else mean

    def ahead(self, X: ArrayLike) -> pd.DataFrame:
        """Predict coming rows X (n, p), whose features are known; learn nothing.

        Rows have no memory: this is `predict` with the 95 % band of a measurement.

        Returns
        -------
        pandas.DataFrame
            Over the number of the row from now on, from 1: for each target NAME the columns
            ``NAME_mean``, ``NAME_low`` and ``NAME_high``. NAME is y, y1, y2, ..., or the name that
            `learn_one` was given.
        """
        mean, std = self.predict(X, return_std=True)
        names: Sequence[Hashable] = numbered_names("y", self.n_outputs_)
        if self._target_names is not None:
            names = self._target_names
        means = mean.reshape(len(mean), -1)
        variances = np.square(std).reshape(len(mean), -1)
        moments = {str(name): (means[:, i], variances[:, i]) for i, name in enumerate(names)}
        return table_of_bands(moments, 1.0)

    def learn_one(self, x: Mapping[Hashable, float], y: Target) -> Self:
        """Learn one sample, as river's regressors do.

        Parameters
        ----------
        x
            Features by name; the same names in every call. After `fit` on an array they are ``x0``,
            ``x1``, ...
        y
            The target, or several targets by name.

        Raises
        ------
        ValueError, TypeError
            If a feature or target is missing or new, or a value is not a finite number. The sample
            is not learned then.
        """
        is_first = not self.__sklearn_is_fitted__()
        if is_first:
            names = tuple(x)
            target_names = tuple(y) if isinstance(y, Mapping) else None
        else:
            names = self._names
            target_names = self._target_names
        row = _values(x, names, "features")
        target = _targets(y, target_names)
        if is_first:
            self.n_features_in_ = len(names)
            if all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)
            self._begin(target[None], names=names)
            self._target_names = target_names
        return self._learn(row[None], target[None])

    def predict_one(self, x: Mapping[Hashable, float]) -> Any:
        """Predict one sample: a number, or a dict of numbers; 0.0 before anything was learned."""
        if not self.__sklearn_is_fitted__():
            return 0.0
        row = _values(x, self._names, "features")
        means, _ = self._moments(row[None])
        mean = means[0]
        if self._target_names is not None:
            return dict(zip(self._target_names, mean.tolist(), strict=True))
        return mean if self._target_shape else float(mean)

    @property
    def models_(self) -> tuple[Model, ...]:
        """Models of the outputs; empty until there are enough rows to train them."""
        models = [identification.model for identification in self._identifications]
        return tuple(model for model in models if model is not None)

    @property
    def n_outputs_(self) -> int:
        """Number of outputs."""
        return len(self._identifications)

    def __sklearn_is_fitted__(self) -> bool:
        return "_identifications" in vars(self)

    def _begin(self, targets: np.ndarray, n_samples: int | None = None, names: Any = None) -> None:
        """Start one empty identification per output, for targets (n,) or (n, m).

        The names of the features are `names`, else those that scikit-learn found, else x0, x1, ...
        """
        if not names:
            numbered = [f"x{j}" for j in range(self.n_features_in_)]
            names = vars(self).get("feature_names_in_", numbered)
        self._names: tuple[Hashable, ...] = tuple(names)
        self._target_names = None
        self._target_shape = targets.shape[1:]
        features: list[str] = []
        for name in self._names:
            features.append(unused_name(str(name), features))
        inputs = {name: [0] for name in features}
        n_outputs = targets[0].size
        identifications = []
        for name in numbered_names("y", n_outputs):
            output_lags: dict[str, Lags] = {unused_name(name, features): []}
            narx = Narx(output_lags, inputs, predict="value")  # type: ignore[arg-type]
            identifications.append(self._identification(narx, n_samples))
        self._identifications = tuple(identifications)
        self._first_targets = np.empty((0, n_outputs))
        self.n_samples_seen_ = 0

    def _learn(self, x: np.ndarray, targets: np.ndarray) -> Self:
        """Learn rows x (n, p), and keep their targets as long as a model is missing."""
        columns = targets.reshape(len(x), -1)
        pairs = list(zip(self._identifications, columns.T, strict=True))
        for identification, column in pairs:  # before any output has learned anything
            identification.check_samples(x, column)
        for identification, column in pairs:
            identification.observe_many(x, column)
        self.n_samples_seen_ += len(x)
        if len(self.models_) < self.n_outputs_:
            self._first_targets = np.vstack([self._first_targets, columns])
        else:
            self._first_targets = np.empty((0, columns.shape[1]))
        return self

    def _moments(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of measurements at x (n, p), shaped like targets."""
        shape = (len(x), *self._target_shape)
        if len(self.models_) < self.n_outputs_:
            mean = np.tile(self._first_targets.mean(axis=0), (len(x), 1))
            std = np.tile(self._first_targets.std(axis=0), (len(x), 1))
            return mean.reshape(shape), std.reshape(shape)
        means = []
        variances = []
        for model in self.models_:
            prediction = model.predict(x)
            means.append(prediction.mean)
            variances.append(prediction.variance + model.gp.noise_variance)
        mean = np.stack(means, axis=1)
        variance = np.stack(variances, axis=1)
        return mean.reshape(shape), np.sqrt(variance).reshape(shape)


def _check_unmasked_rows(X: ArrayLike, y: ArrayLike) -> None:
    """Raise UserError if a feature or a target is masked, which scikit-learn does not see."""
    check_unmasked(X, "X")
    check_unmasked(y, "y")


def _values(given: Mapping[Hashable, float], names: tuple[Hashable, ...], kind: str) -> np.ndarray:
    """Return the values (p,) in the order of the names.

    Raises
    ------
    ValueError
        If the given names are not exactly these names, or there are none.
    """
    if given.keys() != set(names) or not names:
        missing = [name for name in names if name not in given]
        new = [name for name in given if name not in names]
        raise UserError(
            f"expected the {kind} {list(names)} in every sample, got {list(given)}: "
            f"missing {missing}, new {new}"
        )
    return vector([given[name] for name in names], len(names), kind)


def _targets(y: Target, names: tuple[Hashable, ...] | None) -> np.ndarray:
    """Return one target () or, with names, several targets (m,)."""
    if names is None:
        if isinstance(y, Mapping):
            raise UserTypeError(f"y: expected one number, got {y!r}")
        return vector([y], 1, "y")[0]
    if not isinstance(y, Mapping):
        raise UserTypeError(f"y: expected the targets {list(names)}, got {y!r}")
    return _values(y, names, "targets")
