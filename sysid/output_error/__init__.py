"""Models trained for simulation: their parameters minimise the error of the free run, not that of one step."""
