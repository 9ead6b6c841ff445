"""The ten tasks of the paper."""
