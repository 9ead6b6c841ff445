"""Where the jobs of a sweep run: one file per engine."""
