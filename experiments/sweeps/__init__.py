"""Sweeps: many jobs of one command, on this machine or on a cluster, without losing one."""
