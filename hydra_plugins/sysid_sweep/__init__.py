"""Plugins that Hydra finds in this package: launchers and sweepers for multiruns."""
