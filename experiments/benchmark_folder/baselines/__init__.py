"""Models that a benchmark is scored with, one file per model."""
