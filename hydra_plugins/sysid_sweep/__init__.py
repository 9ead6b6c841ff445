"""What Hydra finds of this package: launchers and sweepers for multiruns."""
