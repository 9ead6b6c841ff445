"""Models, which join a NARX structure, a map of features, a mean function and an online GP."""
