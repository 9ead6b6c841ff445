"""Estimator of scikit-learn and river for tables, and what both estimators share."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from sysid.arrays import vector
from sysid.beside import one_blas_thread
from sysid.errors import UserError, UserTypeError
from sysid.gp.adaptation import Adaptive
from sysid.gp.affine_map import AffineMap
from sysid.gp.kernels import Kernel
from sysid.gp.mean import MeanFunction
from sysid.gp.rules import Acceptance, Criterion, Insertion
from sysid.gp.selection import Selection
from sysid.gp.training import Start, Training
from sysid.identification import Identification, Settings
from sysid.model.model import Model
from sysid.narx.lags import Narx

LEAST_SAMPLES = 2  # that a batch is fitted to


@dataclass(kw_only=True, eq=False, repr=False)
class GPRegressor(RegressorMixin, BaseEstimator):
    """What both estimators share: parameters that become the settings of one identification per
    output.
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

    def _identification(self, narx: Narx, n_samples: int | None = None) -> Identification:
        """Identification with these parameters; a batch of fewer samples than the training wants
        trains on all of them.

        Raises
        ------
        TypeError, ValueError
            What the parameters' own classes refuse.
        """
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
        rules = (
            "mean",
            "insertion",
            "acceptance",
            "reduction",
            "learning",
            "forgetting",
            "gate",
            "selection",
        )
        settings = Settings(
            training=replace(training, **changes) if changes else training,  # type: ignore[type-var]
            budget=self.budget,
            seed=self._seed(),
            **{name: getattr(self, name) for name in rules if getattr(self, name) is not None},
        )
        scaling = None if self.standardise else AffineMap.identity(narx.n_features)
        return Identification(narx, settings, start=Start(scaling=scaling))

    def _seed(self) -> int:
        """Return `random_state` if it is a whole number, else draw one as scikit-learn does."""
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def distinct(wanted: str, taken: Sequence[str]) -> str:
    """Return a name that is not taken, with underscores behind it if need be.

    >>> distinct("y", ["x", "y"])
    'y_'
    """
    return wanted if wanted not in taken else distinct(f"{wanted}_", taken)


Target = float | Mapping[Hashable, float]


class OnlineGPRegressor(GPRegressor):
    """Regression with a Gaussian process that learns from a stream and keeps at most `budget`
    points.

    The rows come in the order of time: the first ones (``training.n_initial``, or all of a smaller
    batch) give the hyper-parameters, every later row is predicted and then learned from, by
    `sysid.Identification`. Several outputs have one Gaussian process each over the same features.

    `partial_fit` and `learn_one` go on where the calls before ended. Until they have seen
    ``training.n_initial`` rows there is no Gaussian process yet: mean and standard deviation of the
    targets so far are predicted.

    Parameters
    ----------
    budget : int
        Largest number of stored points.
    kernel : Kernel, optional
        Prototype that the training fills, such as ``sysid.Matern52()``; None: that of the training.
    training : Training, optional
        None: `sysid.Adaptive`.
    mean, insertion, acceptance, reduction, learning, forgetting, gate, selection : optional
        As in `sysid.Settings`; None: its defaults (``gate="none"``: no gate). Thresholds are in the
        unit of the target.
    standardise : bool
        Whether the training standardises the features; `sysid.Fixed` never does.
    random_state : int, RandomState or None
        Seed of the training's random starts.

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

    @one_blas_thread
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn from rows X (n, p), y (n,) or (n, m); n >= 2."""
        x, targets = validate_data(self, X, y, ensure_min_samples=LEAST_SAMPLES, **_CHECKS)
        self._begin(targets, len(x))
        return self._learn(x, targets)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn from more rows X (n, p), y (n,) or (n, m)."""
        is_first = not self.__sklearn_is_fitted__()
        x, targets = validate_data(self, X, y, reset=is_first, **_CHECKS)
        if is_first:
            self._begin(targets)
        if targets.shape[1:] != self._target_shape:
            raise UserError(
                f"partial_fit: expected targets of shape {('n', *self._target_shape)} as before, got {targets.shape}"
            )
        return self._learn(x, targets)

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Mean (n,) or (n, m) of the targets at X (n, p); with `return_std` also the standard
        deviation.

        The standard deviation is that of a measurement: what the model does not know, and the
        noise.
        """
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        mean, std = self._moments(x)
        return (mean, std) if return_std else mean

    def learn_one(self, x: Mapping[Hashable, float], y: Target) -> Self:
        """Learn from one sample, as river's regressors do.

        Parameters
        ----------
        x
            Features by name; the same names in every call. After `fit` on an array they are ``x0``,
            ``x1``, ...
        y
            The target, or several by name.

        Raises
        ------
        ValueError, TypeError
            A feature or target missing or new, a value that is not a finite number. Nothing has
            been learned then.
        """
        is_first = not self.__sklearn_is_fitted__()
        names = tuple(x) if is_first else self._names
        row = _values(x, names, "features")
        target_names = (
            (tuple(y) if isinstance(y, Mapping) else None) if is_first else self._target_names
        )
        target = _targets(y, target_names)
        if is_first:
            self.n_features_in_ = len(names)
            if all(isinstance(name, str) for name in names):
                self.feature_names_in_ = np.array(names, dtype=object)
            self._begin(target[None], names=names)
            self._target_names = target_names
        return self._learn(row[None], target[None])

    def predict_one(self, x: Mapping[Hashable, float]) -> Any:
        """Prediction of one sample, a number or a dict of them; 0.0 before anything was learned."""
        if not self.__sklearn_is_fitted__():
            return 0.0
        mean = self._moments(_values(x, self._names, "features")[None])[0][0]
        if self._target_names is None:
            return float(mean) if not self._target_shape else mean
        return dict(zip(self._target_names, mean.tolist(), strict=True))

    @property
    def models_(self) -> tuple[Model, ...]:
        """Models of the outputs; none before the first rows are there."""
        return tuple(i.model for i in self._identifications if i.model is not None)

    @property
    def n_outputs_(self) -> int:
        """Number of outputs."""
        return len(self._identifications)

    def __sklearn_is_fitted__(self) -> bool:
        return "_identifications" in vars(self)

    def _begin(self, targets: np.ndarray, n_samples: int | None = None, names: Any = None) -> None:
        """Empty identifications for targets (n,) or (n, m) of features that are known."""
        numbered = [f"x{j}" for j in range(self.n_features_in_)]
        self._names: tuple[Hashable, ...] = tuple(
            names or vars(self).get("feature_names_in_", numbered)
        )
        self._target_names = None
        self._target_shape = targets.shape[1:]
        features: list[str] = []
        for name in self._names:
            features.append(distinct(str(name), features))
        m = targets[0].size
        outputs = [distinct("y" if m == 1 else f"y{i + 1}", features) for i in range(m)]
        inputs = {name: [0] for name in features}
        self._identifications = tuple(
            self._identification(Narx({name: []}, inputs, predict="value"), n_samples)  # type: ignore[arg-type]
            for name in outputs
        )
        self._first_targets = np.empty((0, m))
        self.n_samples_seen_ = 0

    def _learn(self, x: np.ndarray, targets: np.ndarray) -> Self:
        columns = targets.reshape(len(x), -1)
        for identification, column in zip(self._identifications, columns.T, strict=True):
            identification.observe_many(x, column)
        self.n_samples_seen_ += len(x)
        collects = len(self.models_) < self.n_outputs_
        self._first_targets = (
            np.vstack([self._first_targets, columns])
            if collects
            else np.empty((0, columns.shape[1]))
        )
        return self

    def _moments(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of measurements at x (n, p), in the shape of the targets."""
        shape = (len(x), *self._target_shape)
        if len(self.models_) < self.n_outputs_:
            first = self._first_targets
            moments = (
                np.tile(value, (len(x), 1)) for value in (first.mean(axis=0), first.std(axis=0))
            )
            return tuple(moment.reshape(shape) for moment in moments)  # type: ignore[return-value]
        found = [(model.predict(x), model.gp.noise_variance) for model in self.models_]
        mean = np.stack([prediction.mean for prediction, _ in found], axis=1)
        variance = np.stack([prediction.variance + noise for prediction, noise in found], axis=1)
        return mean.reshape(shape), np.sqrt(variance).reshape(shape)


_CHECKS: dict[str, Any] = {"dtype": np.float64, "y_numeric": True, "multi_output": True}


def _values(given: Mapping[Hashable, float], names: tuple[Hashable, ...], kind: str) -> np.ndarray:
    """Values (p,) in the order of the names, which must be those given."""
    if given.keys() != set(names) or not names:
        missing = [n for n in names if n not in given]
        new = [n for n in given if n not in names]
        raise UserError(
            f"expected the {kind} {list(names)} in every sample, got {list(given)}: missing {missing}, new {new}"
        )
    return vector([given[name] for name in names], len(names), kind)


def _targets(y: Target, names: tuple[Hashable, ...] | None) -> np.ndarray:
    """One target () or several (m,)."""
    if names is None:
        if isinstance(y, Mapping):
            raise UserTypeError(f"y: expected one number, got {y!r}")
        return vector([y], 1, "y")[0]
    if not isinstance(y, Mapping):
        raise UserTypeError(f"y: expected the targets {list(names)}, got {y!r}")
    return _values(y, names, "targets")
