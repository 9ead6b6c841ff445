"""How predictions, and what is not known of them, are fed back over many samples."""

from sysid.propagation.about_path import AboutPath
from sysid.propagation.mean_only import MeanOnly
from sysid.propagation.moment_matching import MomentMatching
from sysid.propagation.monte_carlo import MonteCarlo
from sysid.propagation.pathwise import Pathwise
from sysid.propagation.propagation import Moments, Propagation
from sysid.propagation.sequential_conditioning import SequentialConditioning
from sysid.propagation.taylor import Taylor

__all__ = [
    "AboutPath",
    "MeanOnly",
    "MomentMatching",
    "Moments",
    "MonteCarlo",
    "Pathwise",
    "Propagation",
    "SequentialConditioning",
    "Taylor",
]
