"""Benchmark folders: simulated records with their noise floor, baselines, data card and scoring script."""
