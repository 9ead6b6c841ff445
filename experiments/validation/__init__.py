"""A stored model against records: one step, several steps, free run, and in the loop of a controller."""
