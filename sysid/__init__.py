"""System identification with budgeted online Gaussian processes.

`__init__.pyi` lists the public names. Each is imported when it is first used, so that importing the
package compiles nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__version__ = "0.1.0"
