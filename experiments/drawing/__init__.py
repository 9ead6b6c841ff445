"""The common style of figures, tables and pages."""
