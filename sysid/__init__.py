"""System identification with budgeted online Gaussian processes."""

from importlib.metadata import version

from sysid.kernels import SquaredExponential
from sysid.online import OnlineGP
from sysid.report import UpdateReport, UpdateReports

__version__ = version("sysid")

__all__ = ["OnlineGP", "SquaredExponential", "UpdateReport", "UpdateReports"]
