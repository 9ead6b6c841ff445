"""Operating points of models, and the linear view of the models there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from sysid.arrays import Array, as_number, real_numbers, vector
from sysid.errors import UserError, UserTypeError, warn_user
from sysid.model.gradient import (
    Differentiable,
    gradient_covariance_of,
    gradient_of,
    slopes_by_weights,
    weights_of,
)
from sysid.model.linear_view import Coefficients, LinearView, view_of_coefficients
from sysid.model.local_error import Correction, local_correction
from sysid.model.simulated_signals import SimulatedSignals
from sysid.model.simulation_estimate import SimulationEstimate, estimates_by_simulation
from sysid.narx.lags import Target
from sysid.narx.record import read_records

#: values of the output at which the search for a steady state begins
N_SCANNED = 401
#: the search reaches this far beyond the range of the output, in ranges
SCAN_MARGIN = 1.0
#: largest change of the outputs at a steady state, in their ranges
STEADY_TOLERANCE = 1e-6
#: iterations of Newton's method for the steady state of several outputs
MAX_NEWTON_STEPS = 100
#: shortest step of Newton's method, as a fraction of the full one
LEAST_NEWTON_STEP = 1e-4
#: a model knows little at a point if its standard deviation is this many times the largest at its
#: stored points
MAX_STD_RATIO = 2.0
#: stored points at which the standard deviation is computed
MAX_COMPARED_POINTS = 400
#: names that a message lists
MAX_NAMES_SHOWN = 6
#: a signal at the end of its range is not outside of it: a fraction of the range [-]
RANGE_TOLERANCE = 1e-6

#: the estimates by one step and by simulation disagree if the median difference of their frequency
#: responses exceeds this, in magnitude [dB] or in phase [deg]
MAX_DISAGREEMENT_DB = 1.0
MAX_DISAGREEMENT_DEG = 5.0
#: frequencies at which they are compared: those whose gain is at least this fraction of the largest
COMPARED_GAIN_FRACTION = 0.1

#: smallest and largest value of signals, by name
Ranges = Mapping[str, tuple[float, float]]
#: estimates by simulation, by output; None: the model cannot simulate the record
Estimates = Mapping[str, SimulationEstimate | None]


class Point(NamedTuple):
    """An operating point: the regressor of each model, and how to speak of it."""

    regressors: tuple[Array, ...]  # (p,) of each model
    where: str
    values: Mapping[str, float]
    #: of the inputs and signals of physics beside the models, about which it is linearised
    of_physics: Mapping[str, float] = MappingProxyType({})


def linearize(
    models: Sequence[Differentiable],
    at: Any = None,
    *,
    record: xr.Dataset | None = None,
    ranges: Ranges | None = None,
    of_ranges: str = "the learned records",
    simulated: xr.Dataset | None = None,
    estimates: Estimates | None = None,
    physics: SimulatedSignals | None = None,
) -> LinearView | list[LinearView]:
    """Return the linear view of models of one plant, one for each output; see `Model.linearize`.

    Parameters
    ----------
    models
        The lags of each are its own. Outputs among the lags that have no model count as inputs.
    at, record
        See `Model.linearize`.
    ranges
        Smallest and largest value of the signals in the records that the models learned; None: not
        known.
    of_ranges
        What has these ranges, in notes.
    simulated
        Record that is simulated for the bands; None: `record`, if it is given.
    estimates
        What `estimates_by_simulation` returns for this record, if it is known already.
    physics
        Simulation whose signals are among the features. It becomes a part of the linear system.
    """
    simulated = record if simulated is None else simulated
    if physics is not None:
        simulated = None if simulated is None else physics.add(simulated)
        record = None if record is None else physics.add(record)
    with ExitStack() as stack:
        for model in models:
            stack.enter_context(model.gp.lock)
        if estimates is None and simulated is not None:
            estimates = estimates_by_simulation(models, simulated)
        family = _Family(models, ranges or {}, of_ranges, estimates or {}, physics)
        points, is_single = family.points(at, record)
        views = [family.view(point) for point in points]
    for view in views:
        for note in view.notes:
            warn_user(f"linearize at {view.where}: {note}")
    return views[0] if is_single else views


def ranges_of_records(records: Sequence[xr.Dataset]) -> Ranges:
    """Return the smallest and largest finite value of every signal of records."""
    ranges: dict[str, tuple[float, float]] = {}
    for record in records:
        for name, variable in record.data_vars.items():
            if variable.dims != ("time",) or variable.dtype.kind not in "fiu":
                continue
            values = variable.values[np.isfinite(variable.values)]
            if values.size:
                low, high = ranges.get(str(name), (np.inf, -np.inf))
                ranges[str(name)] = min(low, float(values.min())), max(high, float(values.max()))
    return ranges


class _Family:
    """Models of one plant, with the names of its signals."""

    def __init__(
        self,
        models: Sequence[Differentiable],
        ranges: Ranges,
        of_ranges: str,
        estimates: Estimates,
        physics: SimulatedSignals | None,
    ) -> None:
        self.models = tuple(models)
        self.physics = physics
        self.simulated = () if physics is None else physics.names
        self.estimates = estimates
        self.ranges = ranges
        self.of_ranges = of_ranges
        self.outputs = tuple(model.narx.target for model in models)
        used: dict[str, None] = {}  # a set that keeps the order
        for model in models:
            narx = model.narx
            names = [name for name, _ in narx.features]
            for name in (*narx.output_names, *narx.input_names):
                if name in names and name not in (*self.outputs, *self.simulated):
                    used[name] = None
        if physics is not None:
            used |= dict.fromkeys(physics.inputs)
        of_inputs = {name for model in models for name in model.narx.input_names}
        self.inputs = tuple(sorted(used, key=lambda name: name not in of_inputs))
        self.weights = [weights_of(model) for model in models]
        self.units: dict[str, str] = {}
        for model in models:
            self.units |= dict(model.origin.units)

    # --- operating points -------------------------------------------------------------------------

    def points(self, at: Any, record: xr.Dataset | None) -> tuple[list[Point], bool]:
        """Return the operating points that `at` means, and whether it means a single one."""
        if isinstance(at, Mapping):
            return self._points_of_mapping(at)
        if at is None:
            return [self._steady(self._mean_inputs())], True
        if not np.isnan(as_number(at)):
            return [self._at_time(as_number(at), record)], True
        if isinstance(at, float | np.floating):
            raise UserError(f"linearize: expected a finite time, got {at!r}")
        if isinstance(at, bool | str):
            raise UserTypeError(
                "linearize: at must be a time [s] of a record, values by the name of the signal, "
                f"the values of all features, or a table of inputs, got {at!r}"
            )
        array = real_numbers(at, "linearize: at")
        if array.ndim == 2:
            return self._points_of_grid(array), False
        if array.ndim != 1:
            raise UserError(
                f"linearize: expected a grid (n, {len(self.inputs)}) of the inputs "
                f"{', '.join(self.inputs)}, or one value for each feature, got shape {array.shape}"
            )
        return [self._at_regressor(array)], True

    def _points_of_grid(self, grid: Array) -> list[Point]:
        """Return the steady states of the rows of a grid (n, n_u) of inputs."""
        n = len(self.inputs)
        if grid.shape[1] != n or not len(grid):
            raise UserError(
                f"linearize: expected a grid with {n} columns, the inputs "
                f"{', '.join(self.inputs) or '(none)'}, and at least one row, got shape "
                f"{grid.shape}"
            )
        if not np.isfinite(grid).all():
            raise UserError(f"linearize: expected a grid of finite values, got {grid.tolist()}")
        return [self._steady(dict(zip(self.inputs, row, strict=True))) for row in grid.tolist()]

    def _points_of_mapping(self, at: Mapping[Any, Any]) -> tuple[list[Point], bool]:
        """Return the points of a mapping of inputs, of inputs and outputs, or of features."""
        signals = (*self.inputs, *self.outputs)
        names = [str(name) for name in at]
        features = dict.fromkeys(name for model in self.models for name in _plain_names(model))
        if names and all(name in features for name in names):
            return [self._at_features(at)], True
        unknown = [name for name in names if name not in signals]
        missing = [name for name in self.inputs if name not in names]
        some_outputs = [name for name in self.outputs if name in names]
        if unknown or missing or (some_outputs and len(some_outputs) < len(self.outputs)):
            expected = ", ".join(self.inputs) or "no inputs"
            raise UserError(
                f"linearize: expected values of {expected} for a steady state, also of "
                f"{', '.join(self.outputs)} for a point that need not be one, or of all features "
                f"such as {next(iter(features), '')}, got {', '.join(names) or 'nothing'}"
            )
        values = {}
        for name in names:
            column = real_numbers(at[name], f"linearize: {name}")
            if column.ndim > 1 or column.size == 0:
                raise UserError(
                    f"linearize: expected a number or a list of numbers for {name}, got shape "
                    f"{column.shape}"
                )
            if not np.isfinite(column).all():
                raise UserError(f"linearize: expected finite values of {name}, got {at[name]!r}")
            values[name] = np.atleast_1d(column).astype(np.float64).tolist()
        is_single = all(np.ndim(at[name]) == 0 for name in at)
        points = []
        for combined in product(*values.values()):
            constant = dict(zip(values, combined, strict=True))
            if some_outputs:
                points.append(self._constant(constant, f"constant {self._words(constant)}"))
            else:
                points.append(self._steady(constant))
        return points, is_single

    def _at_features(self, at: Mapping[Any, Any]) -> Point:
        """Return the point of the values of all features by name."""
        given = {str(name): as_number(value) for name, value in at.items()}
        bad = [name for name, value in given.items() if not np.isfinite(value)]
        if bad:
            raise UserError(f"linearize: expected a finite number for {', '.join(bad)}")
        regressors = []
        for model in self.models:
            names = _plain_names(model)
            missing = list(dict.fromkeys(name for name in names if name not in given))
            if missing:
                raise UserError(
                    f"linearize: expected a value for every feature, {_listed(missing)} "
                    f"{'is' if len(missing) == 1 else 'are'} missing"
                )
            regressors.append(np.array([given[name] for name in names]))
        return self._point_of_features(regressors, "the given features", given)

    def _at_regressor(self, values: ArrayLike) -> Point:
        """Return the point of a regressor (p,), if all models have the same features."""
        features = self.models[0].narx.features
        if any(model.narx.features != features for model in self.models):
            raise UserError(
                "linearize: the models have different features: give them by name, or constant "
                "signals"
            )
        array = np.asarray(values)
        if array.shape != (len(features),):
            raise UserError(
                f"linearize: expected one value for each of the {len(features)} features, "
                f"{_listed(self.models[0].narx.feature_names)}, got shape {array.shape}; for "
                f"steady states expected a grid (n, {len(self.inputs)}) of the inputs"
            )
        x = vector(array, len(features), "linearize: at")
        names = _plain_names(self.models[0])
        by_name = dict(zip(names, x.tolist(), strict=True))
        return self._point_of_features([x for _ in self.models], "the given regressor", by_name)

    def _point_of_features(
        self, regressors: Sequence[Array], where: str, values: Mapping[str, float]
    ) -> Point:
        """Return the point of the values of all features by their names.

        Physics is linearised about its signals at the smallest lag that they have there.
        """
        of_physics = {}
        if self.physics is not None:
            features = [feature for model in self.models for feature in model.narx.features]
            for name in (*self.physics.inputs, *self.simulated):
                lags = [lag for signal, lag in features if signal == name]
                if not lags:
                    raise UserError(
                        f"linearize: the physics needs a value of {name}, which is no feature: "
                        "give the inputs of a steady state, or a time of a record"
                    )
                of_physics[name] = values[_plain_name(name, min(lags))]
        return Point(tuple(regressors), where, values, of_physics)

    def _at_time(self, time: float, record: xr.Dataset | None) -> Point:
        """Return the point of the sample of a record at a time."""
        if record is None:
            raise UserError(
                f"linearize: a time ({time:g}) needs a record: linearize(at={time:g}, record=...); "
                "for a steady state give the inputs by name"
            )
        of_physics = () if self.physics is None else (*self.physics.inputs, *self.simulated)
        of_models = (name for model in self.models for name in model.narx.signals)
        signals = tuple(dict.fromkeys((*of_models, *of_physics)))
        (read,) = read_records(record, signals)
        first = max(model.narx.max_lag for model in self.models)
        times = read.time
        step = read.sampling_time
        if len(times) <= first:
            raise UserError(
                f"linearize: the record has {len(times)} samples, expected more than the largest "
                f"lag, {first}"
            )
        k = int(np.argmin(np.abs(times - time)))
        tolerance = 0.5 * step * (1 + 1e-9) if np.isfinite(step) else 0.0
        if k < first or abs(times[k] - time) > tolerance:
            raise UserError(
                f"linearize: the record has samples with all lags from {times[first]:g} to "
                f"{times[-1]:g} {read.time_unit}, got the time {time:g}"
            )
        filled = {name: read.filled(name) for name in signals}
        regressors = []
        values: dict[str, float] = {}
        for model in self.models:
            x = np.array([filled[name][k - lag] for name, lag in model.narx.features])
            values |= dict(zip(_plain_names(model), x.tolist(), strict=True))
            regressors.append(x)
        at_sample = {name: float(filled[name][k]) for name in of_physics}
        known = {**values, **at_sample}
        missing = [name for name, value in known.items() if not np.isfinite(value)]
        if missing:
            raise UserError(
                f"linearize: {', '.join(missing)} are missing at the time {time:g}: take another "
                "time"
            )
        unit = "" if read.time_unit == "1" else f" {read.time_unit}"
        kind = "sample" if read.time_unit == "1" else "time"
        where = f"{kind} {times[k]:g}{unit} of the record"
        return Point(tuple(regressors), where, values, at_sample)

    def _mean_inputs(self) -> dict[str, float]:
        """Return the means of the inputs in the samples of the training."""
        means = {}
        for name in self.inputs:
            of_lags = []
            for model in self.models:
                for (signal, _), offset in zip(
                    model.narx.features, model.scaling.offset, strict=True
                ):
                    if signal == name:
                        of_lags.append(offset)
            if not of_lags:
                raise UserError(
                    f"linearize: the mean of {name}, an input of the physics alone, is not known: "
                    f"give the inputs {', '.join(self.inputs)} by name"
                )
            means[name] = float(np.mean(of_lags))
        return means

    def _constant(self, values: Mapping[str, float], where: str) -> Point:
        """Return the point at which every signal is constant."""
        values = self._with_physics(values)
        of_physics = {}
        if self.physics is not None:
            of_physics = {name: values[name] for name in (*self.physics.inputs, *self.simulated)}
        return Point(tuple(self._regressors(values)), where, values, of_physics)

    def _with_physics(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return constant signals with those of the physics at its steady state."""
        if self.physics is None or all(name in values for name in self.simulated):
            return dict(values)
        return {**values, **self.physics.steady(values)}

    def _regressors(self, values: Mapping[str, float]) -> list[Array]:
        """Return the regressor (p,) of each model at constant signals."""
        return [
            np.array([values[name] for name, _ in model.narx.features]) for model in self.models
        ]

    def _words(self, values: Mapping[str, float]) -> str:
        """Return values of signals in words, such as "heat = 50 %"."""
        words = []
        for name, value in values.items():
            if name in self.simulated:
                continue
            unit = self.units.get(name, "")
            words.append(f"{name} = {value:.4g}" + (f" {unit}" if unit not in ("", "1") else ""))
        return ", ".join(words)

    # --- steady states ----------------------------------------------------------------------------

    def _steady(self, inputs: Mapping[str, float]) -> Point:
        """Return the steady state for constant inputs.

        Raises
        ------
        ValueError
            There is none.
        """
        inputs = self._with_physics(inputs)
        if len(self.models) == 1:
            outputs = self._steady_output(inputs)
        else:
            outputs = self._steady_outputs(inputs)
        values = {**inputs, **outputs}
        return self._constant(values, f"the steady state {self._words(values)}")

    def _excess(self, inputs: Mapping[str, float], outputs: Array) -> Array:
        """Return ``F(y, ..., y, u, ..., u) - y`` (n, m) of constant outputs y (n, m)."""
        excess = np.empty(outputs.shape)
        for i, model in enumerate(self.models):
            x = np.empty((len(outputs), model.narx.n_features))
            for column, (name, _) in enumerate(model.narx.features):
                if name in self.outputs:
                    x[:, column] = outputs[:, self.outputs.index(name)]
                else:
                    x[:, column] = inputs[name]
            mean = model.predict(x).mean
            excess[:, i] = mean - (0.0 if model.narx.predict is Target.change else outputs[:, i])
        return excess

    def _range_of_output(self, model: Differentiable) -> tuple[float, float]:
        """Return the range of the output of a model in its data."""
        known = model.origin.output_range or getattr(model, "range_of_points", (np.inf, -np.inf))
        low, high = known
        if not low < high < np.inf:
            low, high = -1.0, 1.0
        return low, high

    def _scanned(self, model: Differentiable) -> tuple[float, float]:
        """Return between which outputs steady states are searched: the range and a margin."""
        low, high = self._range_of_output(model)
        margin = SCAN_MARGIN * (high - low)
        return max(low - margin, model.limits[0]), min(high + margin, model.limits[1])

    def _steady_output(self, inputs: Mapping[str, float]) -> dict[str, float]:
        """Return the steady output of a single model, that nearest to the middle of its data.

        If there are several, stable ones come first.
        """
        (model,) = self.models
        (output,) = self.outputs
        low, high = self._scanned(model)
        scanned = np.linspace(low, high, N_SCANNED)
        excess = self._excess(inputs, scanned[:, None])[:, 0]

        def excess_at(value: float) -> float:
            return float(self._excess(inputs, np.array([[value]]))[0, 0])

        changes = np.flatnonzero(np.sign(excess[:-1]) * np.sign(excess[1:]) <= 0)
        roots = []
        for k in changes.tolist():
            if excess[k] == 0.0 and excess[k + 1] == 0.0:
                continue  # every output is a steady state there
            # a batch and a single row may differ by rounding
            if excess_at(scanned[k]) * excess_at(scanned[k + 1]) > 0:
                roots.append(float(scanned[k + int(abs(excess[k + 1]) < abs(excess[k]))]))
                continue
            roots.append(float(brentq(excess_at, scanned[k], scanned[k + 1], xtol=1e-14)))
        if not roots:
            self._refuse_unsteady(inputs, scanned, excess)
        first, last = self._range_of_output(model)
        mean = model.origin.output_mean
        middle = 0.5 * (first + last) if mean is None else mean
        stable = [root for root in roots if self._is_stable({**inputs, output: root})]
        return {output: min(stable or roots, key=lambda root: abs(root - middle))}

    def _refuse_unsteady(self, inputs: Mapping[str, float], scanned: Array, excess: Array) -> None:
        """Raise UserError for inputs without a steady state between the scanned outputs."""
        (output,) = self.outputs
        unit = self.units.get(output, "")
        direction = "rises" if excess.mean() > 0 else "falls"
        if not np.abs(excess).max() > 0:
            direction = "stays where it is"
        raise UserError(
            f"linearize: no steady state for {self._words(inputs) or 'this model'} between "
            f"{scanned[0]:.4g} and {scanned[-1]:.4g} {unit}".rstrip()
            + f": {output} {direction} everywhere; give the output, too, or a time of a record"
            + self._of_outside(inputs)
        )

    def _of_outside(self, inputs: Mapping[str, float]) -> str:
        """Return which inputs lie outside of the data, for the end of a message."""
        unknown = dict.fromkeys(self.outputs, float("nan"))
        notes = self._notes(self._regressors({**inputs, **unknown}))
        return f" ({'; '.join(notes)})" if notes else ""

    def _is_stable(self, values: Mapping[str, float]) -> bool:
        """Return whether the linear view at constant signals is stable, by the mean alone."""
        with np.errstate(over="ignore", invalid="ignore"):
            point = self._constant(values, "")
            return self._view(point, (), with_posterior=False).is_stable

    def _steady_outputs(self, inputs: Mapping[str, float]) -> dict[str, float]:
        """Return the steady outputs of several models by Newton's method with shorter steps."""
        ranges = np.array([self._range_of_output(model) for model in self.models])
        width = ranges[:, 1] - ranges[:, 0]
        scanned = np.array([self._scanned(model) for model in self.models])
        starts = [
            np.array([_middle(model, r) for model, r in zip(self.models, ranges, strict=True)])
        ]
        starts += [ranges[:, 0] + share * width for share in (0.25, 0.5, 0.75)]
        for start in starts:
            y = self._newton(inputs, start, width)
            if y is not None and ((y >= scanned[:, 0]) & (y <= scanned[:, 1])).all():
                return dict(zip(self.outputs, y.tolist(), strict=True))
        raise UserError(
            f"linearize: no steady state of {', '.join(self.outputs)} for "
            f"{self._words(inputs) or 'these models'} found near their data; give the outputs, "
            "too, or a time of a record" + self._of_outside(inputs)
        )

    def _newton(self, inputs: Mapping[str, float], start: Array, width: Array) -> Array | None:
        """Return the steady outputs (m,) that Newton's method finds from a start, or None."""
        y = start.copy()
        excess = self._excess(inputs, y[None])[0]
        for _ in range(MAX_NEWTON_STEPS):
            if np.abs(excess / width).max() < STEADY_TOLERANCE**2:
                break
            slopes = self._slopes_of_excess({**inputs, **dict(zip(self.outputs, y, strict=True))})
            try:
                step = -np.linalg.solve(slopes, excess)
            except np.linalg.LinAlgError:
                return None
            fraction = 1.0
            while fraction > LEAST_NEWTON_STEP:
                tried = y + fraction * step
                new = self._excess(inputs, tried[None])[0]
                if np.linalg.norm(new / width) < np.linalg.norm(excess / width):
                    break
                fraction /= 2
            else:
                break
            y, excess = tried, new
        return y if np.abs(excess / width).max() < STEADY_TOLERANCE else None

    def _slopes_of_excess(self, values: Mapping[str, float]) -> Array:
        """Return the derivatives (m, m) of `_excess` by the outputs."""
        slopes = np.zeros((len(self.outputs), len(self.outputs)))
        for i, (model, weights, x) in enumerate(
            zip(self.models, self.weights, self._regressors(values), strict=True)
        ):
            gradient = gradient_of(model, weights, x[None])[0]
            for (name, _), slope in zip(model.narx.features, gradient, strict=True):
                if name in self.outputs:
                    slopes[i, self.outputs.index(name)] += slope
            if model.narx.predict is Target.value:
                slopes[i, i] -= 1.0
        return slopes

    # --- linear view ------------------------------------------------------------------------------

    def view(self, point: Point) -> LinearView:
        """Return the linear view at a point, with notes on where the models know little."""
        outside = [f"{note}: the model extrapolates" for note in self._notes(point.regressors)]
        of_physics = () if self.physics is None else self.physics.notes
        notes = (*outside, *self._notes_of_knowledge(point), *of_physics)
        view = self._view(point, notes, with_posterior=True)
        if view.by_simulation is None:
            return view
        return replace(view, notes=(*notes, *notes_of_disagreement(view, view.by_simulation)))

    def _view(self, point: Point, notes: tuple[str, ...], *, with_posterior: bool) -> LinearView:
        features = {}
        posterior = {}
        by_simulation = {}
        for output, model, weights, x in zip(
            self.outputs, self.models, self.weights, point.regressors, strict=True
        ):
            own = dict.fromkeys(model.narx.features)
            if model.narx.predict is Target.change:
                own |= {(output, 1): None}
            features[output] = tuple(own)
            # a lag may occur twice, in the nonlinear and in the linear part
            joined = np.zeros((len(own), model.narx.n_features))
            for column, feature in enumerate(model.narx.features):
                joined[features[output].index(feature), column] = 1.0
            mean = joined @ gradient_of(model, weights, x[None])[0]
            if model.narx.predict is Target.change:
                mean[features[output].index((output, 1))] += 1.0
            if not with_posterior:
                posterior[output] = Coefficients(mean, np.zeros((len(own), 0)))
                continue
            covariance = joined @ gradient_covariance_of(model, x[None])[0] @ joined.T
            estimate = self.estimates.get(output)
            if estimate is None:
                posterior[output] = Coefficients(mean, calibration_of(model) * _root(covariance))
                continue
            posterior[output] = Coefficients(mean, _root(covariance))
            slopes = joined @ slopes_by_weights(model, x)
            learned = slopes @ model.gp.whitened_root.T
            unknown = _root(covariance - learned @ learned.T)  # what no weights can represent
            by_simulation[output] = Coefficients(
                mean + slopes @ estimate.change, np.hstack([slopes @ estimate.root, unknown])
            )
            correction = self._correction(
                model, estimate, x, features[output], by_simulation[output].mean
            )
            if correction is not None:
                own |= dict.fromkeys(correction.features)
                features[output] = tuple(own)
                posterior[output] = posterior[output].padded(len(own))
                rows = [features[output].index(feature) for feature in correction.features]
                by_simulation[output] = by_simulation[output].added(
                    rows, correction.mean, correction.root, len(own)
                )
        dt = self.models[0].origin.sampling_time
        return view_of_coefficients(
            self.outputs,
            self.inputs,
            features,
            posterior,
            by_simulation,
            physics=None if self.physics is None else self.physics.linear(point.of_physics),
            units=self.units,
            sampling_time=1.0 if dt is None else dt,
            time_unit="samples" if dt is None else "s",
            where=point.where,
            point=point.values,
            notes=notes,
        )

    def _correction(
        self,
        model: Differentiable,
        estimate: SimulationEstimate,
        x: Array,
        features: Sequence[tuple[str, int]],
        coefficients: Array,
    ) -> Correction | None:
        """Return the correction of the inputs' coefficients (p,) near a regressor (p,)."""
        first_lags: dict[str, int] = {}
        feedback = np.zeros(max(lag for _, lag in features))
        for (name, lag), coefficient in zip(features, coefficients, strict=True):
            if name == model.narx.target:
                feedback[lag - 1] += coefficient
            elif name in self.inputs and name in estimate.simulated.inputs:
                first_lags[name] = min(lag, first_lags.get(name, lag))
        return local_correction(estimate.simulated, first_lags, x, feedback)

    def _notes(self, regressors: Sequence[Array]) -> list[str]:
        """Return which signals lie outside of the data, and how far; nan is not compared."""
        notes = {}
        for model, x in zip(self.models, regressors, strict=True):
            of_points = _ranges_of_points(model)
            for (name, _), value in zip(model.narx.features, x.tolist(), strict=True):
                known = self.ranges.get(name) or of_points.get(name)
                if known is None:
                    continue
                low, high = known
                beyond = max(low - value, value - high)
                if not beyond > RANGE_TOLERANCE * (high - low):
                    continue
                title = self.of_ranges if name in self.ranges else "the stored points"
                unit = self.units.get(name, "")
                size = f" {unit}" if unit not in ("", "1") else ""
                far = f" by {100 * beyond / (high - low):.0f} % of this range"
                notes[name] = (
                    f"{name} = {value:.4g}{size} lies outside of {title}, {low:.4g} to "
                    f"{high:.4g}{size}{far if high > low else ''}"
                )
        return list(notes.values())

    def _notes_of_knowledge(self, point: Point) -> list[str]:
        """Return which models know less at the point than at any of their stored points."""
        notes = []
        for output, model, x in zip(self.outputs, self.models, point.regressors, strict=True):
            gp = model.gp
            if gp.n_points < 2:
                continue
            z = model.scaling.transform(x[None])
            _, variance = gp.predict(z)
            _, at_points = gp.predict(gp.inputs[:MAX_COMPARED_POINTS])
            largest = float(np.sqrt(at_points.max()))
            std = float(np.sqrt(variance[0]))
            if std > MAX_STD_RATIO * largest:
                unit = model.narx.predict.unit_of(self.units.get(output, ""))
                notes.append(
                    f"the model of {output} knows little there: its standard deviation is "
                    f"{std:.3g} {unit}".rstrip()
                    + f", at its stored points at most {largest:.3g}"
                )
        return notes


def notes_of_disagreement(view: LinearView, by_simulation: LinearView) -> list[str]:
    """Return which responses differ between the estimates by one step and by simulation."""
    f = view.default_frequencies()
    of_step = view.mean_response(f)
    of_simulation = by_simulation.mean_response(f)
    notes = []
    for i, output in enumerate(view.outputs):
        for j, input in enumerate(view.inputs):
            gains = np.abs(of_step[:, i, j])
            compared = gains > COMPARED_GAIN_FRACTION * gains.max()
            with np.errstate(divide="ignore", invalid="ignore"):
                ratio = of_simulation[compared, i, j] / of_step[compared, i, j]
                decibels = float(np.median(np.abs(20 * np.log10(np.abs(ratio)))))
            degrees = float(np.median(np.abs(np.degrees(np.angle(ratio)))))
            if decibels > MAX_DISAGREEMENT_DB or degrees > MAX_DISAGREEMENT_DEG:
                notes.append(
                    f"the transfer from {input} to {output} is uncertain: errors of one step and "
                    f"of the simulation show responses that differ by {decibels:.1f} dB and "
                    f"{degrees:.0f} deg (medians); noise among the lags biases the former: "
                    "compare by_simulation"
                )
    return notes


def calibration_of(model: Differentiable) -> float:
    """Return the factor by which the deviations of the coefficients of a model are multiplied.

    It is used where no record shows how well the model simulates.

    The posterior assumes that the errors of a sample are white and the hyper-parameters known. The
    errors several samples ahead show where this is too bold: in them errors of the coefficients
    add up. The factor is the largest of `Model.bands`, which were measured on held-out samples, and
    at least 1.
    """
    return max([1.0, *(factor for _, factor in model.bands)])


def _middle(model: Differentiable, ends: Array) -> float:
    """Return the mean output in the data of a model, or the middle of its range."""
    mean = model.origin.output_mean
    return float(ends.mean()) if mean is None else float(mean)


def _listed(names: Sequence[str]) -> str:
    """Return names in one line, of many only the first."""
    shown = ", ".join(names[:MAX_NAMES_SHOWN])
    return shown if len(names) <= MAX_NAMES_SHOWN else f"{shown}, ... ({len(names)} in all)"


def _plain_names(model: Differentiable) -> list[str]:
    """Return the names of the features, those of a linear part without that remark."""
    return [_plain_name(name, lag) for name, lag in model.narx.features]


def _plain_name(name: str, lag: int) -> str:
    """Return the name of a signal at a lag."""
    return f"{name}[k-{lag}]" if lag else f"{name}[k]"


def _ranges_of_points(model: Differentiable) -> dict[str, tuple[float, float]]:
    """Return the ranges of the signals among the stored points; empty if these do not show them."""
    if model.gp.n_points < 2 or model.scaling.matrix is not None:
        return {}
    values = model.scaling.inverse(model.gp.inputs)
    n_features = model.narx.n_features - model.gp.n_linear
    ranges: dict[str, tuple[float, float]] = {}
    for column, (name, _) in enumerate(model.narx.features[:n_features]):
        low = float(values[:, column].min())
        high = float(values[:, column].max())
        if name in ranges:
            low = min(low, ranges[name][0])
            high = max(high, ranges[name][1])
        ranges[name] = low, high
    return ranges


def _root(covariance: Array) -> Array:
    """Return R (p, p) with ``R R' = covariance``, whose negative eigenvalues are rounding."""
    eigenvalues, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return np.asarray(vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))
