"""Selection of the points of a dictionary from a whole record, offline."""

from sysid.selection.backward import Backward
from sysid.selection.forward import Forward
from sysid.selection.selection import Selection

__all__ = ["Backward", "Forward", "Selection"]
