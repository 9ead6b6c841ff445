"""Monte Carlo: many trajectories of a system in one call, compiled and in parallel."""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulators.ensemble import Ensemble
from simulators.integrators import follow_pieces, problem_of
from simulators.interpolation import Interpolation
from simulators.measurement import MeasurementNoise
from simulators.simulate import NOISELESS
from simulators.start import (
    check_states,
    input_matrix,
    names_of,
    noise_of,
    process_std,
    sampled,
    start_of,
)
from simulators.system import System
from simulators.trajectory import sample_times
from simulators.vector import real_numbers, start_vector

SHORT = 1000  # Runge-Kutta steps of a trajectory below which threads cost more than they gain


def simulate_many(
    system: System,
    input: ArrayLike | None = None,
    *,
    n_trajectories: int | None = None,
    n_samples: int | None = None,
    initial_states: ArrayLike | None = None,
    parameters: Mapping[str, ArrayLike] | None = None,
    seeds: Sequence[int] | NDArray[np.int64] | None = None,
    seed: int = 0,
    dt: float | None = None,
    substeps: int | None = None,
    interpolation: Interpolation | str = Interpolation.held,
    noise: bool = True,
    measurement: MeasurementNoise = NOISELESS,
    workers: int | None = None,
) -> Ensemble:
    """Simulate many trajectories in open loop, in parallel.

    Trajectory i is bit-identical to ``simulate`` with input i, initial state i, parameters i and seed i, however
    many others there are and however many threads work. Beside the result there is memory for one trajectory
    per thread.

    Parameters
    ----------
    system : System
        System to simulate.
    input : (n, n_u), (n,) or (N, n, n_u) array_like, optional
        One input for all trajectories, or one for each.
    n_trajectories : int, optional
        Number of trajectories N; needed only if nothing else says it.
    n_samples : int, optional
        Number of samples n; needed only without inputs.
    initial_states : (N, n_x) array_like, optional
        States at time zero instead of the system's own.
    parameters : mapping of str to (N,) array_like, optional
        Fields of the system that differ between the trajectories.
    seeds : (N,) sequence of int, optional
        Seeds of the trajectories; otherwise N different ones follow from `seed`.
    seed : int, optional
        Seed of all trajectories together.
    dt, substeps, interpolation, noise, measurement
        As in `simulate`.
    workers : int, optional
        Threads; by default one per processor, or a single one for trajectories so short that threads would wait
        for each other.

    Returns
    -------
    Ensemble
        All trajectories.

    Raises
    ------
    ValueError
        If the numbers of trajectories differ, a field is unknown, or as in `simulate`.
    TypeError
        If `parameters` is no mapping, or as in `simulate`.
    DivergenceError
        If a state leaves the finite numbers; the message names the trajectory.

    Examples
    --------
    >>> from simulators.systems.van_der_pol import VanDerPol
    >>> starts = np.random.default_rng(0).uniform(-2, 2, size=(20, 2))
    >>> simulate_many(VanDerPol(), n_samples=52, initial_states=starts).output.shape
    (20, 52, 1)
    """
    system, interpolation = sampled(system, dt, substeps), Interpolation(interpolation)
    measurement.check(names_of(system.outputs))
    fields = _fields(parameters)
    states = None if initial_states is None else real_numbers(initial_states, "initial_states").astype(np.float64)
    input = None if input is None else real_numbers(input, f"{type(system).__name__}: input")
    shape = () if input is None else input.shape
    N = _number(system, n_trajectories, fields, states, seeds, shape[0] if len(shape) == 3 else None)
    numbers = spread_seeds(seed, N) if seeds is None else _whole(seeds)
    rows = input if len(shape) == 3 else None
    first = input_matrix(system, input if rows is None else rows[0], n_samples)
    ensemble = _empty(_systems(system, fields, N), numbers, first, interpolation, own_input=rows is not None)
    _check_starts(ensemble.systems, states)
    start_of(ensemble.systems[0], None if states is None else states[0], first)
    if workers is None and len(first) * system.substeps < SHORT:
        workers = 1
    _in_parallel(_filler(ensemble, states, rows, noise, measurement), N, workers)
    return ensemble


def _fields(parameters: Mapping[str, ArrayLike] | None) -> dict[str, NDArray[Any]]:
    """Return the values of fields as arrays."""
    if parameters is not None and not isinstance(parameters, Mapping):
        raise TypeError(
            "simulate_many: expected parameters as a mapping of fields of the system to arrays (N,), got "
            f"{type(parameters).__name__}; name the field, say parameters={{'damping': [1.0, 2.0]}}"
        )
    return {name: np.asarray(values) for name, values in (parameters or {}).items()}


def _whole(seeds: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return seeds as integers."""
    given = np.asarray(seeds)
    if given.dtype.kind not in "iu":
        raise ValueError(f"simulate_many: expected seeds of integers >= 0, got {given.dtype}; round them yourself")
    return given.astype(np.int64)


def _check_starts(systems: tuple[System, ...], states: NDArray[np.float64] | None) -> None:
    """Refuse initial states that do not fit the system of their trajectory, and say which trajectory it is."""
    with suppress(ValueError):
        if all(system is systems[0] for system in systems):
            return check_states(systems[0], start_vector(systems[0]) if states is None else states)
    for i, system in enumerate(systems):
        try:
            check_states(system, start_vector(system) if states is None else states[i])
        except ValueError as error:
            raise ValueError(f"trajectory {i}: {error}") from error


def _filler(
    ensemble: Ensemble,
    states: NDArray[np.float64] | None,
    rows: NDArray[Any] | None,
    noise: bool,
    measurement: MeasurementNoise,
) -> Callable[[int], None]:
    """Return the function that simulates trajectory i into its place; what all share is prepared once."""
    systems, interpolation, n = ensemble.systems, ensemble.interpolation, len(ensemble.time)
    shared = tuple(interpolation.pieces(ensemble.input, systems[0].substeps)) if rows is None else ()
    prepare = functools.cache(lambda own: (problem_of(own), process_std(own, noise), own.initial_state()))

    def fill(i: int) -> None:
        own, number, pieces = systems[i], int(ensemble.seeds[i]), shared
        problem, std, start = prepare(own)
        ensemble.noise[i] = w = noise_of(number, "process", n, std)
        if rows is not None:
            ensemble.input[i] = input_matrix(own, rows[i], n)
            pieces = tuple(interpolation.pieces(ensemble.input[i], own.substeps))
        path = follow_pieces(problem, start if states is None else states[i], pieces, w)
        ensemble.state[i], ensemble.n_clipped[i] = path
        ensemble.output[i] = ensemble.noise_free_output[i] = y0 = own.output(path.states)
        if measurement != NOISELESS:
            ensemble.output[i] += noise_of(number, "measurement", n, measurement.std_of(y0))

    return fill


def spread_seeds(seed: int, n: int) -> NDArray[np.int64]:
    """Return n seeds (n,) that follow from one; a longer list begins with the shorter one.

    Raises
    ------
    ValueError
        If the seed is negative.

    Examples
    --------
    >>> bool(spread_seeds(0, 3)[2] == spread_seeds(0, 9)[2])
    True
    """
    if seed < 0:
        raise ValueError(f"seed={seed}: expected an integer >= 0; change the seed")
    words = np.random.SeedSequence(seed).generate_state(n, np.uint64)
    return (words >> np.uint64(1)).astype(np.int64)


def _number(
    system: System,
    n_trajectories: int | None,
    fields: Mapping[str, NDArray],
    states: NDArray[np.float64] | None,
    seeds: Sequence[int] | NDArray[np.int64] | None,
    n_inputs: int | None,
) -> int:
    """Return the number of trajectories on which all arguments agree."""
    if states is not None and states.shape[1:] != (len(system.states),):
        raise ValueError(
            f"simulate_many: expected initial_states of shape (N, {len(system.states)}), got {states.shape}; "
            "give one row per trajectory"
        )
    stated = {
        "n_trajectories": n_trajectories,
        "initial_states": None if states is None else len(states),
        "seeds": None if seeds is None else len(seeds),
        "input": n_inputs,
    } | {f"parameters[{name!r}]": len(values) if values.ndim == 1 else -1 for name, values in fields.items()}
    given = {name: number for name, number in stated.items() if number is not None}
    numbers = set(given.values())
    if len(numbers) != 1 or min(numbers) < 1 or not isinstance(min(numbers), int | np.integer):
        raise ValueError(
            f"simulate_many: expected one number N >= 1 of trajectories, got {given or 'none'}; give n_trajectories, "
            "or initial_states, parameters, seeds and inputs with one row per trajectory"
        )
    return numbers.pop()


def _systems(system: System, fields: Mapping[str, NDArray], n: int) -> tuple[System, ...]:
    """Return the system of each trajectory; what it refuses is told with the number of the trajectory."""
    unknown = sorted(set(fields) - set(asdict(system)) | set(fields) & {"dt", "substeps"})
    if unknown:
        raise ValueError(
            f"simulate_many: expected parameters among the fields of {type(system).__name__} other than dt and "
            f"substeps, got {unknown}; rename them, or simulate other samplings one by one"
        )
    if not fields:
        return (system,) * n
    found = []
    for i in range(n):
        try:
            found.append(replace(system, **{name: values[i].item() for name, values in fields.items()}))
        except ValueError as error:
            raise ValueError(f"trajectory {i}: {error}") from error
    return tuple(found)


def _empty(
    systems: tuple[System, ...],
    seeds: NDArray[np.int64],
    input: NDArray[np.float64],
    interpolation: Interpolation,
    *,
    own_input: bool,
) -> Ensemble:
    """Return an ensemble whose arrays are still to be filled, but for an input (n, n_u) that all share."""
    system, N, n = systems[0], len(systems), len(input)

    def room(width: int) -> NDArray[np.float64]:
        return np.empty((N, n, width))

    return Ensemble(
        systems=systems,
        seeds=seeds,
        time=sample_times(system, n),
        input=room(input.shape[1]) if own_input else input,
        state=room(len(system.states)),
        output=room(len(system.outputs)),
        noise_free_output=room(len(system.outputs)),
        noise=room(len(system.noises)),
        interpolation=interpolation,
        n_clipped=np.zeros(N, dtype=np.int64),
    )


def _in_parallel(fill: Callable[[int], None], n: int, workers: int | None) -> None:
    """Call ``fill(i)`` for every trajectory, in threads: the compiled loops release the interpreter."""
    if workers is not None and (workers < 1 or not isinstance(workers, int | np.integer)):
        raise ValueError(
            f"simulate_many(workers={workers}): expected an integer of at least 1, or None for one per processor"
        )
    n_threads = min(workers or os.cpu_count() or 1, n)

    def part(start: int) -> tuple[int, Exception] | None:
        for i in range(start, n, n_threads):
            try:
                fill(i)
            except (ValueError, ArithmeticError) as error:
                return i, error
        return None

    with ThreadPoolExecutor(n_threads) as pool:
        failures = [failure for failure in pool.map(part, range(n_threads)) if failure]
    if failures:
        i, error = min(failures, key=lambda failure: failure[0])
        raise type(error)(f"trajectory {i}: {error}") from error
