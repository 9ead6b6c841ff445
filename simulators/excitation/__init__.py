"""Test signals: what all of them share in `role.py`, and one file for each kind."""
