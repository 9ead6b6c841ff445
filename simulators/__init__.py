"""Simulation of benchmark systems, in open loop and under a controller."""

from simulators.ensemble import Ensemble
from simulators.integrators import DivergenceError
from simulators.interpolation import Interpolation
from simulators.measurement import MeasurementNoise
from simulators.monte_carlo import simulate_many
from simulators.simulate import closed_loop, simulate
from simulators.system import Signal, System
from simulators.trajectory import Sample, Trajectory, collect

__all__ = [
    "DivergenceError",
    "Ensemble",
    "Interpolation",
    "MeasurementNoise",
    "Sample",
    "Signal",
    "System",
    "Trajectory",
    "closed_loop",
    "collect",
    "simulate",
    "simulate_many",
]
