"""What a run keeps: which files, what they hold, and what they are known by."""
