"""One model per output over the same regressors: what simulation needs to feed every output back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np

from sysid import store
from sysid.model import Model
from sysid.model_file import read_models
from sysid.origin import Origin


@dataclass(frozen=True, eq=False)
class JointModel:
    """Models of all outputs, each with a Gaussian process of its own, sharing the regressors.

    Parameters
    ----------
    models
        One for each output of their `Narx`, in any order; they come in the order of its output names. Their lags are
        the same, only the target differs.

    Raises
    ------
    ValueError
        No model, other lags, an output without a model or with two, another kind of target, sampling time or unit.

    Examples
    --------
    A single output is a joint model of one: ``JointModel.of(model).output_names``.
    """

    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        given = tuple(self.models)
        if not given:
            raise ValueError("JointModel: expected one model per output, got none")
        outputs = given[0].narx.output_names
        targets = [model.narx.target for model in given]
        if sorted(targets) != sorted(outputs):
            raise ValueError(
                f"JointModel: to feed the outputs {list(outputs)} back, expected one model for each, got models of "
                f"{targets}; identify the others with the same lags, or leave them out of the regressors"
            )
        _check_alike(given)
        object.__setattr__(self, "models", tuple(sorted(given, key=lambda model: outputs.index(model.narx.target))))

    @classmethod
    def of(cls, model: Model | JointModel) -> JointModel:
        """A joint model as it is, or a model of the only output as a joint model."""
        return model if isinstance(model, JointModel) else cls((model,))

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in the order of the models."""
        return self.models[0].narx.output_names

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of the regressors."""
        return self.models[0].narx.input_names

    @property
    def origin(self) -> Origin:
        """That of the first model; sampling time and units are the same for all."""
        return self.models[0].origin

    @property
    def noise_variance(self) -> np.ndarray:
        """Noise variances (n_outputs,), units of the outputs squared."""
        return np.array([model.gp.noise_variance for model in self.models])

    def save(self, path: str | PathLike[str], *, attributes: Mapping[str, Any] | None = None) -> None:
        """Write the models to one NetCDF file, complete or not at all: a group for each output, or one data set."""
        if len(self.models) == 1:
            self.models[0].save(path, attributes=dict(attributes or {}))
            return
        groups = {model.narx.target: model.to_dataset() for model in self.models}
        store.write_groups(groups, path, kind="model", attributes=attributes)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> JointModel:
        """Models of a file of `save`, of `Model.save` or of a job; they predict bit for bit as those that were saved.

        Raises
        ------
        sysid.store.StoreError
            Missing, damaged or foreign file, or one whose content does not fit together.
        """
        try:
            return cls(tuple(Model.restored(dataset, path) for dataset in read_models(path).values()))
        except ValueError as error:
            raise store.StoreError(f"{path} cannot be simulated: {error}") from error


def _check_alike(models: tuple[Model, ...]) -> None:
    facts: dict[str, list[Any]] = {
        "lags": [model.narx.lags for model in models],
        "kind of target": [model.narx.predict for model in models],
        "sampling time [s]": [model.origin.sampling_time for model in models],
        "units": [model.origin.units for model in models],
    }
    for name, found in facts.items():
        for model, value in zip(models, found, strict=True):
            if value != found[0]:
                raise ValueError(
                    f"JointModel: expected one {name} for all models, got {found[0]} of {models[0].narx.target!r} and "
                    f"{value} of {model.narx.target!r}; identify both from the same records"
                )
