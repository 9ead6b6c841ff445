"""From the parameters of an estimator to an identification."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from sysid.identify import Identification, Settings
from sysid.kernels import Form
from sysid.narx import Narx
from sysid.scaling import Scaling
from sysid.start import Start
from sysid.training import MaximumAPosteriori, Training

LEAST_SAMPLES = 2  # that a batch is fitted to

#: parameters of every estimator that are settings of an identification under the same name
SHARED = ("mean", "insertion", "acceptance", "reduction", "selection")


def identification_of(estimator: BaseEstimator, narx: Narx, n_samples: int | None = None) -> Identification:
    """Identification with the parameters of an estimator; a batch of few samples trains on all of them.

    Parameters
    ----------
    estimator
        Its parameters include those of `SHARED`, ``budget``, ``kernel``, ``training``, ``standardise`` and
        ``random_state``; None stands for the default of `sysid.identify.Settings`.
    narx
    n_samples
        Samples of the batch; None if more will come.

    Raises
    ------
    TypeError, ValueError
        What the parameters' own classes refuse.
    """
    given = estimator.get_params(deep=False)
    chosen = {name: given[name] for name in SHARED if given[name] is not None}
    settings = Settings(
        training=_training(given, n_samples), budget=given["budget"], seed=_seed(given["random_state"]), **chosen
    )
    scaling = None if given["standardise"] else Scaling.identity(narx.n_features)
    return Identification(narx, settings, start=Start(scaling=scaling))


def _training(given: dict[str, Any], n_samples: int | None) -> Training:
    training = MaximumAPosteriori() if given["training"] is None else given["training"]
    if not isinstance(training, Training):
        raise TypeError(f"training must be a Training such as MaximumAPosteriori(), got {training!r}")
    changes: dict[str, Any] = {}
    if given["kernel"] is not None:
        changes["kernel"] = _form(given["kernel"], training)
    if n_samples is not None and (training.n_initial is None or training.n_initial > n_samples):
        changes["n_initial"] = n_samples
    return replace(training, **changes) if changes else training  # type: ignore[type-var]


def _form(kernel: Any, training: Training) -> Form:
    if not isinstance(kernel, Form):
        raise TypeError(f"kernel must be a form, such as Matern52Form(), or None, got {kernel!r}")
    if "kernel" not in [field.name for field in fields(training)]:  # type: ignore[arg-type]
        raise ValueError(f"kernel: {type(training).__name__} chooses its kernel itself; leave kernel out")
    return kernel


def _seed(random_state: Any) -> int:
    """A whole number as it is; otherwise one drawn as scikit-learn draws."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def distinct(wanted: str, taken: Sequence[str]) -> str:
    """Name that is not taken, with underscores behind it if need be.

    >>> distinct("y", ["x", "y"])
    'y_'
    """
    return wanted if wanted not in taken else distinct(f"{wanted}_", taken)
