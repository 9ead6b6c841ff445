"""Export of identified models, for use without the toolbox."""

from sysid.export.python_file import export_python
from sysid.export.source_text import SourceError

__all__ = ["SourceError", "export_python"]
