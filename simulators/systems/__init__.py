"""Systems, one file each."""
