"""Figures of a collected sweep or search."""

from experiments.collection.figures.catalogue import drawings

__all__ = ["drawings"]
