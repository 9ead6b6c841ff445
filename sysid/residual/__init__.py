"""Residual tests: what a model has left unexplained in its own past and in the inputs."""

from sysid.residual.battery import most_lags, residual_tests
from sysid.residual.report import LEVEL, CorrelationTest, ResidualReport

__all__ = ["LEVEL", "CorrelationTest", "ResidualReport", "most_lags", "residual_tests"]
