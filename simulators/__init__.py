"""Simulation of benchmark systems, in open loop and under a controller."""

from simulators.integrators import DivergenceError
from simulators.simulate import closed_loop, simulate
from simulators.system import Signal, System
from simulators.trajectory import Sample, Trajectory, collect

__all__ = [
    "DivergenceError",
    "Sample",
    "Signal",
    "System",
    "Trajectory",
    "closed_loop",
    "collect",
    "simulate",
]
