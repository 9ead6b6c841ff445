"""System identification with budgeted online Gaussian processes."""

from sysid.kernels import SquaredExponential
from sysid.online import OnlineGP
from sysid.report import UpdateReport, UpdateReports

__all__ = ["OnlineGP", "SquaredExponential", "UpdateReport", "UpdateReports"]
