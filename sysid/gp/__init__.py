"""Gaussian processes: kernels, the online GP and its rules, training, sparse baselines."""
