"""The one style of figures, tables and pages."""
