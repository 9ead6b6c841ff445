"""Test signals that excite the inputs of a system, one file each."""
