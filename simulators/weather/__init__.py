"""Sources of the ambient temperature, one file each."""
