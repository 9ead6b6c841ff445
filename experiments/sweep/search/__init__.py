"""Sweeps that search: each trial is chosen from the results of those before."""
