"""Models in simulation: forecasts, their uncertainty, validation."""
