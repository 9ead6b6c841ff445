"""Rules that say which samples ask for a place in the dictionary."""

from sysid.insertion.always import Always
from sysid.insertion.either import EitherThreshold
from sysid.insertion.error import ErrorThreshold
from sysid.insertion.rule import Insertion
from sysid.insertion.variance import VarianceThreshold

__all__ = ["Always", "EitherThreshold", "ErrorThreshold", "Insertion", "VarianceThreshold"]
