"""Mean functions: what a model predicts where the Gaussian process knows nothing."""

from sysid.mean.constant import ConstantMean
from sysid.mean.function import MeanFunction
from sysid.mean.linear import LinearMean
from sysid.mean.zero import ZeroMean

__all__ = ["ConstantMean", "LinearMean", "MeanFunction", "ZeroMean"]
