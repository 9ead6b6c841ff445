"""What delivers samples: the simulated plant, records, functions, physics beside them."""
