"""Sources of samples: the simulated plant, records, functions, and physics beside them."""
