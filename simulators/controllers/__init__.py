"""Controllers and their set-points, one file each."""
