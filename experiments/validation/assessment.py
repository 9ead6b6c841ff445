"""All predictions of one model for the records of one material, and how good they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from experiments.validation.loop_comparison import LoopComparison
from experiments.validation.material import Material
from experiments.validation.options import Case, Options
from sysid import (
    Divergence,
    Forecast,
    JointModel,
    MeanOnly,
    Propagation,
    RecordForecast,
    Target,
    Validation,
    forecast,
    validate,
)
from sysid.simulation.forecast import check_records
from sysid.simulation.propagation.propagation import variance_about

Array: TypeAlias = NDArray[np.float64]


class Series(NamedTuple):
    """One output of a forecast, all records behind each other; nan where a prediction diverged."""

    measured: Array  # (n,) output unit
    mean: Array  # (n,) output unit
    variance: Array  # (n,) latent, output unit squared
    noise_variance: float  # of a measurement, output unit squared

    @property
    def residual(self) -> Array:
        """``y - mean`` (n,)."""
        return self.measured - self.mean

    @property
    def std(self) -> Array:
        """Standard deviation (n,) of a measurement."""
        return np.sqrt(self.variance + self.noise_variance)


@dataclass(frozen=True, eq=False)
class Assessment:
    """Forecasts of every horizon and window.

    The main window is that of the first case; `one_step` and `free_run` are its horizons 1 and without end.
    """

    joint: JointModel
    material: Material
    propagation: Propagation
    forecasts: dict[Case, Forecast]
    unbounded: dict[Case, tuple[Divergence, ...]]  # where the propagation diverges and the mean does not
    loop: LoopComparison | None = None

    @property
    def window(self) -> int:
        """The main window [samples]."""
        return next(iter(self.forecasts)).window

    @property
    def one_step(self) -> Case:
        """One step ahead after the main window."""
        return Case(1, self.window)

    @property
    def free_run(self) -> Case:
        """Free run after the main window."""
        return Case(None, self.window)

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return self.joint.output_names

    def unit(self, signal: str) -> str:
        """Unit of a signal in the records, or in the model; empty if neither says it."""
        return str(self.material.records[0][signal].attrs.get("units") or self.joint.origin.unit(signal))

    def error_unit(self, signal: str) -> str:
        """Unit of an error of a signal, 1 if there is none; an error of a temperature in degC is in K."""
        return Target.change.unit_of(self.unit(signal)) or "1"

    def series(self, case: Case, output: str) -> Series:
        """One output of one case."""
        found, i = self.forecasts[case], self.outputs.index(output)
        measured, mean, variance = (
            np.concatenate([getattr(one, name)[:, i] for one in found.records])
            for name in ("measured", "mean", "variance")
        )
        return Series(measured, mean, variance, float(found.noise_variance[i]))

    @cached_property
    def scores(self) -> dict[Case, dict[str, Validation]]:
        """All measures by case and output."""
        return {case: {name: self._score(case, name) for name in self.outputs} for case in self.forecasts}

    def _score(self, case: Case, output: str) -> Validation:
        s, origin = self.series(case, output), self.joint.models[self.outputs.index(output)].origin
        trivial = None
        if origin.output_mean is not None and origin.output_variance is not None:
            trivial = (origin.output_mean, origin.output_variance)
        return validate(s.measured, s.mean, s.variance, s.noise_variance, trivial=trivial, window=case.window)

    def n_left_out(self, case: Case) -> int:
        """Samples of the records that the measures of a case do not count."""
        return self.material.n_samples - next(iter(self.scores[case].values())).n


def assess(
    joint: JointModel,
    material: Material,
    options: Options,
    propagation: Propagation,
    *,
    loop: LoopComparison | None = None,
) -> Assessment:
    """Predict the records of a material with every horizon after every window.

    Raises
    ------
    ValueError, TypeError
        Records that do not fit the model, or are not longer than a window or horizon.
    """
    check_records(joint, material.records)
    cases = options.cases(default_window(joint, material))
    check_lengths(cases, material)
    found: dict[Case, Predicted] = {}
    for case in sorted(cases, key=lambda case: case.window):
        shorter = next((before for before in found if before.horizon == case.horizon), None)
        later = None if shorter is None else _later(found[shorter], case, joint.models[0].narx.max_lag)
        found[case] = later or _predicted(joint, material, case, propagation, options.seed)
    forecasts = {case: found[case].forecast for case in cases}
    unbounded = {case: found[case].unbounded for case in cases}
    return Assessment(joint, material, propagation, forecasts, unbounded, loop)


def default_window(joint: JointModel, material: Material) -> int:
    """What the records state; where they state nothing, the largest lag."""
    return material.stated_window or max(joint.models[0].narx.max_lag, 1)


def check_lengths(cases: Sequence[Case], material: Material) -> None:
    """Refuse records that leave nothing to predict, before anything is computed.

    Raises
    ------
    ValueError
        With the record and the window or horizon.
    """
    for record in material.records:
        n, name = record.sizes["time"], record.attrs["name"]
        for case in cases:
            if n <= case.window:
                raise ValueError(
                    f"record {name!r} of {material.title} has {n} samples, expected more than the window of "
                    f"{case.window}: take a smaller one with windows=[...], or longer records"
                )
            if case.horizon is not None and n <= case.horizon:
                raise ValueError(
                    f"record {name!r} of {material.title} has {n} samples, expected more than the horizon of "
                    f"{case.horizon}: take smaller horizons=[...], or longer records"
                )


class Predicted(NamedTuple):
    """Forecast of one case, and where its uncertainty has no bounds any more."""

    forecast: Forecast
    unbounded: tuple[Divergence, ...]


def _predicted(joint: JointModel, material: Material, case: Case, propagation: Propagation, seed: int) -> Predicted:
    """The mean path of the model with the uncertainty of the propagation about it.

    Measures of the error then depend neither on the propagation nor on draws. With the mean m and the variance v
    of the propagation, the variance about the path p is ``v + (m - p)^2``; infinite from where the propagation
    diverges and the path does not. Of a single step every propagation says the same.
    """
    chosen = {"horizon": case.horizon, "window": case.window, "seed": seed}
    path = forecast(joint, material.records, **chosen)  # type: ignore[arg-type]
    if case.horizon == 1 or isinstance(propagation, MeanOnly):
        return Predicted(path, ())
    spread = forecast(joint, material.records, propagation=propagation, **chosen)  # type: ignore[arg-type]
    records = tuple(_about_path(*pair) for pair in zip(path.records, spread.records, strict=True))
    lost = {where.record for where in path.diverged}
    unbounded = tuple(where for where in spread.diverged if where.record not in lost)
    return Predicted(replace(path, records=records), unbounded)


def _about_path(path: RecordForecast, spread: RecordForecast) -> RecordForecast:
    return replace(path, variance=variance_about(path.mean, spread.mean, spread.variance))


def _later(shorter: Predicted, case: Case, max_lag: int) -> Predicted | None:
    """The same predictions after a longer window: of a few steps ahead they do not depend on the window.

    None for a free run, and after a divergence, which has to be found anew.
    """
    if case.horizon is None or shorter.unbounded or shorter.forecast.n_lost:
        return None
    records = tuple(_from(one, case.window, max_lag) for one in shorter.forecast.records)
    return Predicted(replace(shorter.forecast, window=case.window, records=records), ())


def _from(one: RecordForecast, window: int, max_lag: int) -> RecordForecast:
    kept = one.sample >= window
    columns = ("sample", "time", "measured", "mean", "variance", "regressors")
    n_filled = int((one.sample[kept] < max_lag).sum())
    return replace(one, **{name: getattr(one, name)[kept] for name in columns}, n_filled=n_filled)
