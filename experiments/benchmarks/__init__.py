"""Measurements behind `sysid-benchmark`: one file per topic, each yields rows of one table."""
