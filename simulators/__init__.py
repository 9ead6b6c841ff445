"""Simulation of benchmark systems, in open loop and under a controller.

The public names stand in `__init__.pyi`; each is imported when it is first used, so that importing
the package compiles nothing.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
