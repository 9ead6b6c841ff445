"""The linear views of a model at operating points of the records, beside what they should be.

Beside them stand the best linear model of the records, their empirical frequency response and, for
a simulated plant, its true linearisation.
"""

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from experiments.plant.linear_physics import LinearPhysics
from experiments.plant.plant import Plant
from experiments.validate.assessment import Assessment
from experiments.validate.material import Material
from simulators import LinearSystem, linearise
from simulators.errors import UserError as PlantError
from sysid import JointModel
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.lag_choice import best_arx
from sysid.model.linear_view import LinearView
from sysid.model.operating_point import Estimates, linearize, ranges_of_records
from sysid.model.simulation_estimate import estimates_by_simulation
from sysid.narx.lags import OnMissing
from sysid.simulation.empirical_response import EmpiricalResponse, empirical_response

#: a view is close to the truth at a frequency if its errors are at most these [dB, deg]
CLOSE_DECIBELS = 1.0
CLOSE_DEGREES = 5.0
#: quantiles of an input in the records at which the model is linearised, the other inputs at their
#: median
INPUT_QUANTILES = (0.1, 0.5, 0.9)
#: what the operating points are compared with, in notes
RANGES_TITLE = "these records"
#: frequencies at which views and truth are compared and drawn
N_DRAWN_FREQUENCIES = 120
#: lowest and highest drawn frequency, relative to the lowest and highest excited one
BELOW_EXCITED = 0.3
ABOVE_EXCITED = 3.0


@dataclass(frozen=True, eq=False)
class ViewOfInput:
    """Linear view at one operating point, as seen from one output and one input."""

    output: str
    input: str
    quantile: float  # of the input in the records; the others have their median
    view: LinearView
    response: xr.Dataset  # `LinearView.frequency_response` over frequency
    step: xr.Dataset  # `LinearView.step_response` over time
    truth: NDArray[np.complex128] | None  # true response at the same frequencies
    true_gain: float | None

    def errors(self, band: tuple[float, float]) -> dict[str, float | None]:
        """Return how far the view is from the truth within a band of frequencies.

        Largest and median error of the magnitude [dB] and of the phase [deg], the share of the
        frequencies at which both are small (`CLOSE_DECIBELS`, `CLOSE_DEGREES`), and the shares at
        which the bands cover the truth [-]; None without a truth.
        """
        names = (
            "max_error_db",
            "median_error_db",
            "max_error_deg",
            "median_error_deg",
            "close",
            "coverage_magnitude",
            "coverage_phase",
        )
        f = self.response["frequency"].values
        inside = (f >= band[0] * (1 - 1e-9)) & (f <= band[1] * (1 + 1e-9))
        if self.truth is None or not inside.any():
            return dict.fromkeys(names)
        truth = self.truth[inside]
        found = self.response.isel(frequency=inside)
        decibel = 20 * np.abs(np.log10(found["magnitude"].values / np.abs(truth)))
        phase = np.degrees(np.angle(truth))
        phase += 360 * np.round((found["phase"].values - phase) / 360)
        degrees = np.abs(found["phase"].values - phase)
        magnitude = np.abs(truth)
        is_in_magnitude = (found["magnitude_low"] <= magnitude) & (
            magnitude <= found["magnitude_high"]
        )
        is_in_phase = (found["phase_low"] <= phase) & (phase <= found["phase_high"])
        values = (
            decibel.max(),
            np.median(decibel),
            degrees.max(),
            np.median(degrees),
            ((decibel <= CLOSE_DECIBELS) & (degrees <= CLOSE_DEGREES)).mean(),
            is_in_magnitude.mean(),
            is_in_phase.mean(),
        )
        return {name: float(value) for name, value in zip(names, values, strict=True)}


@dataclass(frozen=True, eq=False)
class LinearViews:
    """Linear views of a model at operating points of records, and what stands beside them."""

    views: tuple[ViewOfInput, ...]
    linear: Mapping[str, LinearView]  # best linear model of the records, by output
    empirical: Mapping[str, EmpiricalResponse]  # of the records, by output
    inputs: tuple[str, ...]  # inputs of the views, in the order of the empirical responses
    notes: tuple[str, ...]

    def of(self, output: str, input: str) -> list[ViewOfInput]:
        """Return the views of one output and one input."""
        return [view for view in self.views if (view.output, view.input) == (output, input)]

    def band(self, output: str, input: str) -> tuple[float, float] | None:
        """Return the frequencies that an input excites in the records; None if not known."""
        if output not in self.empirical:
            return None
        return self.empirical[output].band(self.inputs.index(input))

    def content(self) -> list[dict[str, Any]]:
        """Return the numbers of all views for validation.json."""
        entries = []
        for one in self.views:
            view = one.view
            gains = view.static_gain.sel(output=one.output, input=one.input)
            times = view.response_time.sel(output=one.output, input=one.input)
            band = self.band(one.output, one.input)
            entry: dict[str, Any] = {
                "output": one.output,
                "input": one.input,
                "quantile": one.quantile,
                "operating_point": dict(view.point),
                "where": view.where,
                "words": view.describe(one.output, one.input),
                "stability": view.stability,
                "static_gain": _finite(gains["gain"]),
                "static_gain_low": _finite(gains["low"]),
                "static_gain_high": _finite(gains["high"]),
                "gain_unit": view.gain_unit(one.output, one.input),
                "response_time": _finite(times["time"]),
                "response_time_low": _finite(times["low"]),
                "response_time_high": _finite(times["high"]),
                "time_unit": view.time_unit,
                "true_static_gain": one.true_gain,
                "excited_band": None if band is None else list(band),
            }
            if band is not None:
                entry |= one.errors(band)
            entries.append(entry)
        return entries

    def groups(self) -> dict[str, xr.Dataset]:
        """Return the responses as groups of validation.nc."""
        groups = {}
        for number, one in enumerate(self.views):
            response = one.response
            if one.truth is not None:
                response = response.assign(
                    true_magnitude=("frequency", np.abs(one.truth)),
                    true_phase=("frequency", np.degrees(np.unwrap(np.angle(one.truth)))),
                )
            attributes = {"output": one.output, "input": one.input, "quantile": one.quantile}
            name = f"linear_view_{number}"
            groups[f"{name}_frequency"] = response.assign_attrs(attributes)
            groups[f"{name}_step"] = one.step.assign_attrs(attributes)
        return groups


class _Setting(NamedTuple):
    """What all linear views of a validation share."""

    ranges: Mapping[str, tuple[float, float]]  # of the signals in the records
    estimates: Estimates
    physics: LinearPhysics | None  # beside the model


def refuse_linear_view(joint: JointModel, material: Material) -> None:
    """Raise UserError if a model has no linear view from its inputs to its outputs."""
    if not _inputs_of(joint, material):
        raise UserError(
            "linear=true: the model has no inputs, so that there is no response; leave linear out"
        )


def _inputs_of(joint: JointModel, material: Material) -> tuple[str, ...]:
    """Return the measured inputs of a model and of the physics beside it."""
    if material.physics is None:
        return joint.input_names
    physics = LinearPhysics(material.physics)
    measured = [name for name in joint.input_names if name not in physics.names]
    return tuple(dict.fromkeys((*measured, *physics.inputs)))


def find_linear_views(assessment: Assessment) -> LinearViews:
    """Return the linear views of a validated model at operating points of the records.

    Raises
    ------
    ValueError
        There is no operating point with a steady state, and no sample to take in its place; the
        function of the model has no derivative.
    """
    material = assessment.material
    inputs = _inputs_of(assessment.joint, material)
    physics = None if material.physics is None else LinearPhysics(material.physics)
    records = material.records
    notes: list[str] = []
    empirical = {}
    linear = {}
    dt = records[0].attrs.get("sampling_time")
    units = {name: assessment.unit(name) for name in (*assessment.outputs, *inputs)}
    for output in assessment.outputs:
        try:
            complete = [_complete(record, (output, *inputs)) for record in records]
            empirical[output] = empirical_response(
                complete, output, inputs, assessment.joint.origin.sampling_time or float(dt or 1.0)
            )
        except UserError as error:
            notes.append(f"no empirical frequency response of {output}: {error}")
        try:
            arx = best_arx(records, output, inputs, on_missing=OnMissing.skip)
            linear[output] = arx.linearize(
                units=units, sampling_time=assessment.joint.origin.sampling_time
            )
        except UserError as error:
            notes.append(f"no linear model of {output} beside the linear view: {error}")
    ranges = ranges_of_records(records)
    longest = max(records, key=lambda record: record.sizes["time"])
    estimates = estimates_by_simulation(assessment.joint.models, longest)
    setting = _Setting(ranges, estimates, physics)
    known: dict[tuple[float, ...], LinearView | None] = {}
    chosen: list[tuple[str, float, LinearView]] = []
    for input in inputs:
        for quantile in INPUT_QUANTILES:
            point = _point(records, inputs, input, quantile)
            key = tuple(point.values())
            if key not in known:
                known[key] = _view_at(assessment, point, setting, notes)
            view = known[key]
            if view is not None:
                chosen.append((input, quantile, view))
    n_step_samples = max((view.n_step_samples for _, _, view in chosen), default=1)
    views = []
    for input, quantile, view in chosen:
        truth = None if material.plant is None else _true_system(material.plant, view, notes)
        for output in assessment.outputs:
            one = _view_of(
                view, output, input, quantile, empirical, truth, material.plant, n_step_samples
            )
            views.append(one)
    if not views:
        raise UserError(f"linear=true: no operating point: {'; '.join(notes)}")
    return LinearViews(tuple(views), linear, empirical, tuple(inputs), tuple(dict.fromkeys(notes)))


def _complete(record: xr.Dataset, names: Sequence[str]) -> dict[str, Array]:
    """Return the longest part of signals of a record without missing values."""
    values = np.stack([np.asarray(record[name].values, dtype=np.float64) for name in names])
    is_known = np.isfinite(values).all(axis=0)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_known, [False]]).astype(np.int8)))
    if not len(edges):
        return dict(zip(names, values[:, :0], strict=True))
    begin, end = max(edges.reshape(-1, 2).tolist(), key=lambda part: part[1] - part[0])
    return dict(zip(names, values[:, begin:end], strict=True))


def _point(
    records: Sequence[xr.Dataset], inputs: Sequence[str], chosen: str, quantile: float
) -> dict[str, float]:
    """Return the inputs of an operating point: the chosen one at a quantile, others at medians."""
    point = {}
    for name in inputs:
        values = np.concatenate([record[name].values for record in records])
        point[name] = float(np.nanquantile(values, quantile if name == chosen else 0.5))
    return point


def _view_at(
    assessment: Assessment,
    point: Mapping[str, float],
    setting: _Setting,
    notes: list[str],
) -> LinearView | None:
    """Return the view at the steady state of a point, or at the sample nearest to the point."""
    models = assessment.joint.models
    ranges = setting.ranges
    facts: dict[str, Any] = {
        "ranges": ranges,
        "of_ranges": RANGES_TITLE,
        "estimates": setting.estimates,
        "physics": setting.physics,
    }
    with warnings.catch_warnings():  # the notes of a view are warnings, too
        warnings.simplefilter("ignore", UserWarning)
        try:
            view = linearize(models, dict(point), **facts)
        except UserError as error:
            time, record = _nearest_sample(assessment, point, ranges)
            notes.append(f"{error}; in its place the sample at {time:g} s is linearised")
            with suppress(UserError):
                view = linearize(models, time, record=record, **facts)
                assert isinstance(view, LinearView)
                return view
            return None
    assert isinstance(view, LinearView)
    notes += [f"linear view at {view.where}: {note}" for note in view.notes]
    return view


def _nearest_sample(
    assessment: Assessment,
    point: Mapping[str, float],
    ranges: Mapping[str, tuple[float, float]],
) -> tuple[float, xr.Dataset]:
    """Return the time of the sample whose inputs are nearest to a point, and its record."""
    first = max(model.narx.max_lag for model in assessment.joint.models)
    best = np.inf
    found = (0.0, assessment.material.records[0])
    for record in assessment.material.records:
        distance = np.zeros(record.sizes["time"])
        for name, value in point.items():
            low, high = ranges.get(name, (0.0, 1.0))
            distance += np.square((record[name].values - value) / max(high - low, 1e-300))
        distance[: first + 1] = np.inf
        distance[~np.isfinite(distance)] = np.inf
        k = int(distance.argmin())
        if distance[k] < best:
            best = float(distance[k])
            found = (float(record["time"].values[k]), record)
    return found


def _true_system(plant: Plant, view: LinearView, notes: list[str]) -> LinearSystem | None:
    """Return the true linearisation of a plant at the inputs of a view; None if there is none."""
    means = {name: view.point.get(name) for name in plant.inputs}
    missing = [name for name, value in means.items() if value is None]
    if missing:
        notes.append(
            f"no true linearisation beside the view at {view.where}: it needs constant inputs, and "
            f"there is no constant value of {', '.join(missing)}"
        )
        return None
    try:
        return linearise(
            plant.system,
            [float(value or 0.0) for value in means.values()],
            interpolation=plant.interpolation,
        )
    except PlantError as error:
        notes.append(f"no true linearisation: {error}")
        return None


def _view_of(
    view: LinearView,
    output: str,
    input: str,
    quantile: float,
    empirical: Mapping[str, EmpiricalResponse],
    truth: LinearSystem | None,
    plant: Plant | None,
    n_step_samples: int,
) -> ViewOfInput:
    """Return a view as seen from one output and one input, at the frequencies of the record."""
    nyquist = 0.5 / view.sampling_time
    lowest, highest = view.default_frequencies()[[0, -1]]
    if output in empirical:
        excited = empirical[output].band(view.inputs.index(input))
        if excited is not None:
            lowest = BELOW_EXCITED * excited[0]
            highest = ABOVE_EXCITED * excited[1]
    highest = min(highest, nyquist)
    f = np.geomspace(lowest, highest, N_DRAWN_FREQUENCIES)
    selection = {"output": output, "input": input}
    response = view.frequency_response(f).sel(selection, drop=True)
    step = view.step_response(n_step_samples).sel(selection, drop=True)
    true_response = None
    true_gain = None
    if truth is not None and plant is not None:
        i = plant.outputs.index(output)
        j = plant.inputs.index(input)
        true_response = truth.frequency_response(f)[:, i, j]
        gain = float(truth.static_gain()[i, j])
        true_gain = gain if np.isfinite(gain) else None
    return ViewOfInput(output, input, quantile, view, response, step, true_response, true_gain)


def _finite(value: Any) -> float | None:
    """Return a number, or None if it is not finite."""
    number = float(value)
    return number if np.isfinite(number) else None
