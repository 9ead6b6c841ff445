"""Sweeps: many jobs of one command, on this machine or on a cluster, that can be resumed."""
