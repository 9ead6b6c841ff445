"""What a model is validated on, all its predictions of those records, and how good they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.cli.progress import doing
from experiments.plant.physics import FittedPhysics, widen
from experiments.plant.plant import Plant
from experiments.plant.source import SIMULATION
from simulators import Controller
from sysid import AboutPath, Divergence, Forecast, JointModel, Narx, Propagation, Recordings, Target, Validation
from sysid.arrays import Array
from sysid.data.source import ROLES
from sysid.errors import UserError
from sysid.simulation.forecast import check_records, forecast
from sysid.simulation.validation import validate

FREE_RUN = "free_run"  # the horizon that has no end
SERIES = ("measured", "mean", "variance")  # of a forecast
#: what systems and sources of data bring for an identification
OF_THE_MODEL = frozenset({"narx", "insertion"})


@dataclass(frozen=True, eq=False)
class Material:
    """Records of one part, and the plant that made them if there is one."""

    source: Recordings  # names of the signals
    part: str  # of the records, or simulation
    records: tuple[xr.Dataset, ...]
    unused: frozenset[str]  # keys of the configuration without effect
    plant: Plant | None = None
    physics: FittedPhysics | None = None  # of the model

    def records_after(self, window: int) -> tuple[xr.Dataset, ...]:
        """Return the records as a model sees them that is given the first samples.

        Physics starts from what these say.
        """
        if self.physics is None:
            return self.records
        return tuple(self.physics.add(record, window=window) for record in self.records)

    @property
    def n_samples(self) -> int:
        """Samples of all records."""
        return sum(record.sizes["time"] for record in self.records)

    def default_window(self, narx: Narx) -> int:
        """Return the window that the records state.

        Where they state nothing, it is what physics needs to start from, or the largest lag.
        """
        if self.physics is not None and self.physics.physics.initial_parameters:
            return max(map(self.physics.n_first, self.records))
        stated = max(int(record.attrs["initialisation_window"]) for record in self.records)
        return stated or max(narx.max_lag, 1)

    @property
    def controller(self) -> Controller | None:
        """Controller that closes a loop around the plant; None without one."""
        return None if self.plant is None or self.plant.is_open_loop else self.plant.controller


def simulate_material(plant: Plant, duration: float | str, seed: int) -> Material:
    """Simulate a plant for a duration, in seconds or with its unit.

    Raises
    ------
    ValueError, ArithmeticError
        A duration that is none, whatever the simulation refuses.
    """
    name = type(plant.system).__name__
    record = plant.trajectory(plant.n_samples(duration), seed).to_dataset()
    record = record.assign_attrs(name=name, sampling_time=float(plant.system.dt), initialisation_window=0)
    recordings = Recordings(name, tuple(plant.inputs), tuple(plant.outputs), test=(record,))
    return Material(recordings, "simulation", (record,), OF_THE_MODEL | {"part", "on_missing"} | plant.unused, plant)


def select_records(recordings: Recordings, part: str | None = None) -> Material:
    """Select the records of one part.

    Without a name it is the test, or the validation where there is no test record.

    Raises
    ------
    ValueError
        If there are none.
    """
    there = [role for role in ROLES if getattr(recordings, role)]
    wanted = part or next((role for role in ("test", "validation") if role in there), "test")
    if wanted not in there:
        others = f"only {', '.join(there)}: name one (data.{wanted}=...), or choose with part={there[0]}"
        raise UserError(f"{recordings.name} has no {wanted} record, {others}")
    return Material(recordings, wanted, getattr(recordings, wanted), SIMULATION | OF_THE_MODEL)


def check_signals(joint: JointModel, material: Material, left_out: Sequence[str]) -> None:
    """Refuse records whose signals are not those of the model; nothing is guessed.

    Raises
    ------
    ValueError
        A model or a table without time; a signal that is missing, that the model does not know, or that is an input
        on one side and an output on the other; a name in `left_out` that is no such signal.
    """
    source = material.source
    physics = () if material.physics is None else material.physics.physics.signals
    if joint.models[0].narx.max_lag == 0 and not physics:
        raise UserError("the model has no lags, it is a static function: there is nothing to simulate")
    if source.is_static:
        raise UserError(f"{source.name} is a table without time: there is nothing to simulate")
    has = f"{source.name} has outputs {list(source.outputs)} and inputs {list(source.inputs)}"
    surplus: list[str] = []
    roles = {"outputs": (joint.output_names, source.outputs), "inputs": (joint.input_names, (*source.inputs, *physics))}
    for role, (names, given) in roles.items():
        if missing := [name for name in names if name not in given]:
            advice = "give every signal the name and the role that it has in the model"
            raise UserError(f"the model needs the {role} {missing}, {has}: {advice}")
        surplus += [name for name in given if name not in names and name not in physics]
    if unknown := [name for name in left_out if name not in surplus]:
        raise UserError(f"left_out: {unknown} is no signal that the model does without, these are {surplus}; {has}")
    if unexpected := [name for name in surplus if name not in left_out]:
        advice = f"ignore them with left_out=[{','.join(surplus)}], or identify a model with them"
        raise UserError(f"the model does not know the signals {unexpected} of {source.name}: {advice}")


# --- predictions ----------------------------------------------------------------------------------


class Case(NamedTuple):
    """One kind of prediction of the same records."""

    horizon: int | None  # samples ahead; None: free run
    window: int  # measured samples that the model is given first

    @property
    def label(self) -> int | str:
        """Horizon for files."""
        return FREE_RUN if self.horizon is None else self.horizon

    @property
    def name(self) -> str:
        """Name of its group in a file."""
        kind = "one_step" if self.horizon == 1 else self.words.replace(" ", "_")
        return f"{kind}_window_{self.window}"

    @property
    def words(self) -> str:
        """Horizon for people."""
        return {None: "free run", 1: "1 step"}.get(self.horizon, f"{self.horizon} steps")


def plan_cases(horizons: Any, windows: Any, default_window: int) -> list[Case]:
    """All horizons, one step first and free run last, for every window; those of the main window first.

    Raises
    ------
    ValueError
        Horizons or windows that are no whole numbers of at least 1, or stand there twice; no window.
    """
    chosen = read_whole("windows", [default_window] if windows is None else windows)
    if not chosen:
        raise UserError("windows must name at least one number of samples, such as [5, 50], or be null")
    ahead = sorted({1, *read_whole("horizons", horizons)})
    return [Case(horizon, window) for window in chosen for horizon in (*ahead, None)]


def read_whole(name: str, values: Any) -> list[int]:
    """Whole numbers of at least 1, each once, from one or a list of them."""
    given = [values] if isinstance(values, int) else values
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if not is_list or not all(type(value) is int and value >= 1 for value in given) or len(set(given)) < len(given):
        must = "whole numbers of samples of at least 1, each once, such as [1, 10]"
        raise UserError(f"{name} must be {must}, got {values!r}")
    return list(given)


@dataclass(frozen=True, eq=False)
class Assessment:
    """Forecasts of every horizon and window.

    The main window is that of the first case; `main` are its horizons 1 and without end.
    """

    joint: JointModel
    material: Material
    propagation: Propagation
    forecasts: dict[Case, Forecast]
    unbounded: dict[Case, tuple[Divergence, ...]]  # where the propagation diverges and the mean does not
    loop: xr.Dataset | None = None  # of `compare_loops`

    @property
    def window(self) -> int:
        """The main window [samples]."""
        return next(iter(self.forecasts)).window

    @property
    def main(self) -> dict[str, Case]:
        """One step ahead and free run after the main window."""
        return {"one_step": Case(1, self.window), FREE_RUN: Case(None, self.window)}

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.joint.output_names

    def unit(self, signal: str) -> str:
        """Return the unit of a signal in the records, or in the model; empty if neither says it."""
        return str(self.material.records[0][signal].attrs.get("units") or self.joint.origin.unit(signal))

    def error_unit(self, signal: str) -> str:
        """Return the unit of an error of a signal, 1 if there is none.

        An error of a temperature in degC is in K.
        """
        return Target.change.unit_of(self.unit(signal)) or "1"

    def series(self, case: Case, output: str, record: int | None = None) -> tuple[Array, Array, Array, float]:
        """Measured values, means, latent variances (n,) and noise variance of one output, of a record or of all."""
        found, i = self.forecasts[case], self.outputs.index(output)
        chosen = [one for one in found.records if record in (None, one.record)]
        y, mean, v = (np.concatenate([getattr(one, n)[:, i] for one in chosen]) for n in SERIES)
        return y, mean, v, float(found.noise_variance[i])

    def score(self, case: Case, output: str, record: int | None = None) -> Validation:
        """All measures of one output, of a record or of all together."""
        origin = self.joint.models[self.outputs.index(output)].origin
        known: Any = origin.output_mean, origin.output_variance
        trivial = None if None in known else known
        return validate(*self.series(case, output, record), trivial=trivial, window=case.window)

    @cached_property
    def scores(self) -> dict[Case, dict[str, Validation]]:
        """All measures by case and output, of all records together."""
        return {case: {name: self.score(case, name) for name in self.outputs} for case in self.forecasts}

    @cached_property
    def of_each_record(self) -> list[tuple[xr.Dataset, Case, str, Validation]]:
        """Measures of each of several records, by output: one step ahead and in free run."""
        records = self.material.records
        each = product(enumerate(records), self.outputs, self.main.values()) if len(records) > 1 else ()
        return [(record, case, name, self.score(case, name, i)) for (i, record), name, case in each]

    def count(self, case: Case) -> dict[str, int]:
        """Count samples that the measures of a case leave out, and predictions that are special."""
        found, n_scored = self.forecasts[case], self.scores[case][self.outputs[0]].n
        special = {"n_filled": found.n_filled, "n_diverged": found.n_lost, "n_held": found.n_held}
        return {"left_out": self.material.n_samples - n_scored, **special}


def assess(
    joint: JointModel, material: Material, cases: Sequence[Case], propagation: Propagation, *, seed: int
) -> Assessment:
    """Predict the records of a material in every case.

    Raises
    ------
    ValueError, TypeError
        Records that do not fit the model, or are not longer than a window or horizon.
    """
    check_records(joint, material.records)
    for record, case in product(material.records, cases):
        n, longest = record.sizes["time"], max(case.window, case.horizon or 0)
        if n <= longest:
            limit = "window" if longest == case.window else "horizon"
            short = f"record {record.attrs['name']!r} of {material.source.name} has {n} samples"
            advice = f"take smaller {limit}s=[...], or longer records"
            raise UserError(f"{short}, expected more than the {limit} of {longest}: {advice}")
    forecasts: dict[Case, Forecast] = {}
    unbounded: dict[Case, tuple[Divergence, ...]] = {}
    for number, case in enumerate(sorted(cases, key=lambda case: case.window), 1):
        shorter = next((before for before in forecasts if before.horizon == case.horizon), None)
        is_own = case.horizon is None or material.physics is not None  # depends on the window
        if is_own or shorter is None or unbounded[shorter] or forecasts[shorter].n_lost:
            with doing(f"predicting, {case.words} after {case.window} samples, {number} of {len(cases)}"):
                forecasts[case], unbounded[case] = _predict(joint, material, case, propagation, seed)
        else:  # of a few steps ahead predictions do not depend on the window
            records, unbounded[case] = [], ()
            for one in forecasts[shorter].records:
                kept = one.sample >= case.window
                part = {name: getattr(one, name)[kept] for name in (*SERIES, "sample", "time", "regressors")}
                n_filled = int((part["sample"] < joint.models[0].narx.max_lag).sum())
                records.append(replace(one, **part, n_filled=n_filled))
            forecasts[case] = replace(forecasts[shorter], window=case.window, records=tuple(records))
    forecasts = {case: forecasts[case] for case in cases}
    return Assessment(joint, material, propagation, forecasts, unbounded)


def _predict(
    joint: JointModel, material: Material, case: Case, propagation: Propagation, seed: int
) -> tuple[Forecast, tuple[Divergence, ...]]:
    """Predict the mean path of the model, and calibrated bands about it (`AboutPath`).

    Say also where these have no bounds any more.
    """
    given, about = material.records_after(case.window), AboutPath(propagation)
    found = forecast(joint, given, horizon=case.horizon, window=case.window, propagation=about, seed=seed)
    found, unbounded = widen(found, joint, given), []
    for one in found.records:
        endless = np.isinf(one.variance).any(axis=1)
        if one.diverged is None and endless.any():
            row = int(endless.argmax())
            k, output = int(one.sample[row]), joint.output_names[int(np.isinf(one.variance[row]).argmax())]
            unbounded.append(Divergence(one.record, k, float(one.time[row]), output, np.inf))
    return found, tuple(unbounded)
