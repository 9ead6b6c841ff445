"""Plain predictors that a model must beat, one file each."""

from sysid.baselines.baseline import Baseline
from sysid.baselines.linear_arx import LinearArx
from sysid.baselines.mean import Mean
from sysid.baselines.persistence import Persistence

__all__ = ["Baseline", "LinearArx", "Mean", "Persistence"]
