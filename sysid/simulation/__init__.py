"""Simulation of models: forecasts, their uncertainty, and validation."""
