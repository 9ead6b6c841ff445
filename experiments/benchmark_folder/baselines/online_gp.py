"""The online GP of this toolbox, with a fixed budget of points."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import xarray as xr

from experiments.benchmark_folder.baselines.contestant import Contestant
from sysid import (
    AcceptAll,
    Acceptance,
    Always,
    Backward,
    ConstantMean,
    Criterion,
    Identification,
    Insertion,
    MaximumAPosteriori,
    MeanFunction,
    MeanRelevance,
    Model,
    Narx,
    Selection,
    Settings,
    Training,
)
from sysid.narx.lags import consecutive
from sysid.simulation.baselines import Array, Baseline


@dataclass(frozen=True, eq=False)
class Identified(Baseline):
    """Predictive mean of an identified model."""

    narx: Narx
    model: Model

    def predict(self, regressors: Array, previous: Array) -> Array:
        """Mean of the target; see `Baseline.predict`."""
        return np.asarray(self.model.predict(regressors).mean)


@dataclass(frozen=True)
class OnlineGp(Contestant):
    """The online Gaussian process of the toolbox: a fixed number of points, one pass over the estimation records.

    Parameters
    ----------
    budget : int
        Points of the dictionary.
    training, mean, insertion, acceptance, reduction, selection
        As in `sysid.Settings`.
    """

    label: ClassVar = "online GP"

    budget: int = 100  # points
    training: Training = field(default_factory=MaximumAPosteriori)
    mean: MeanFunction = field(default_factory=ConstantMean)
    insertion: Insertion = field(default_factory=Always)
    acceptance: Acceptance = field(default_factory=AcceptAll)
    reduction: Criterion = field(default_factory=MeanRelevance)
    selection: Selection = field(default_factory=Backward)

    def fit(self, narx: Narx, records: Sequence[xr.Dataset], seed: int) -> Baseline:
        """Identify from the stream of lag data, record by record."""
        rows, needed = narx.dataset(records), self.training.n_initial or 0
        if rows.sizes["sample"] < needed:
            raise ValueError(
                f"baseline.online_gp: training.n_initial={needed} needs as many rows, the estimation records give "
                f"{rows.sizes['sample']}; lengthen estimation, lower training.n_initial or leave this baseline out"
            )
        settings = Settings(
            training=self.training,
            mean=self.mean,
            insertion=self.insertion,
            acceptance=self.acceptance,
            reduction=self.reduction,
            selection=self.selection,
            budget=self.budget,
            seed=seed,
        )
        identification = Identification(narx, settings)
        identification.observe_many(rows["regressor"].values, rows["target"].values, follows=consecutive(rows))
        identification.finish()
        assert identification.model is not None
        return Identified(narx, identification.model)
