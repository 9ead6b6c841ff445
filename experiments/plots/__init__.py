"""Figures and tables: one style, one way to write numbers."""
