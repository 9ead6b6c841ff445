"""All predictions of one model for the records of one material, and how good they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from experiments.validation.loop import LoopComparison
from experiments.validation.material import Material
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
from sysid.arrays import Array
from sysid.simulation.forecast import check_records
from sysid.simulation.propagation.propagation import variance_about

FREE_RUN = "free_run"  # the horizon that has no end


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
        kind = {None: FREE_RUN, 1: "one_step"}.get(self.horizon, f"{self.horizon}_steps")
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
        raise ValueError("windows must name at least one number of samples, such as [5, 50], or be null")
    ahead = sorted({1, *read_whole("horizons", horizons)})
    return [Case(horizon, window) for window in chosen for horizon in (*ahead, None)]


def read_whole(name: str, values: Any) -> list[int]:
    """Whole numbers of at least 1, each once, from one or a list of them."""
    given = [values] if isinstance(values, int) else values
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if not is_list or not all(type(value) is int and value >= 1 for value in given) or len(set(given)) < len(given):
        raise ValueError(
            f"{name} must be whole numbers of samples of at least 1, each once, such as [1, 10], got {values!r}"
        )
    return list(given)


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

    def series(self, case: Case, output: str) -> tuple[Array, Array, Array, float]:
        """Measured values, means, latent variances (n,) and noise variance of one output, all records together."""
        found, i = self.forecasts[case], self.outputs.index(output)
        measured, mean, variance = (
            np.concatenate([getattr(one, name)[:, i] for one in found.records])
            for name in ("measured", "mean", "variance")
        )
        return measured, mean, variance, float(found.noise_variance[i])

    @cached_property
    def scores(self) -> dict[Case, dict[str, Validation]]:
        """All measures by case and output."""
        scores: dict[Case, dict[str, Validation]] = {case: {} for case in self.forecasts}
        for name, model in zip(self.outputs, self.joint.models, strict=True):
            mean, variance = model.origin.output_mean, model.origin.output_variance
            trivial = None if mean is None or variance is None else (mean, variance)
            for case in self.forecasts:
                scores[case][name] = validate(*self.series(case, name), trivial=trivial, window=case.window)
        return scores

    def count(self, case: Case) -> dict[str, int]:
        """Samples of the records that the measures of a case do not count, and predictions that are special."""
        n_scored, found = next(iter(self.scores[case].values())).n, self.forecasts[case]
        return {
            "left_out": self.material.n_samples - n_scored,
            "n_filled": found.n_filled,
            "n_diverged": found.n_lost,
        }


def default_window(joint: JointModel, material: Material) -> int:
    """What the records state; where they state nothing, the largest lag."""
    stated = max(int(record.attrs["initialisation_window"]) for record in material.records)
    return stated or max(joint.models[0].narx.max_lag, 1)


def check_lengths(cases: Sequence[Case], material: Material) -> None:
    """Refuse records that leave nothing to predict, before anything is computed.

    Raises
    ------
    ValueError
        With the record and the window or horizon.
    """
    for record in material.records:
        for case in cases:
            n, longest = record.sizes["time"], max(case.window, case.horizon or 0)
            if n <= longest:
                limit, key = ("window", "windows") if longest == case.window else ("horizon", "horizons")
                raise ValueError(
                    f"record {record.attrs['name']!r} of {material.title} has {n} samples, expected more than the "
                    f"{limit} of {longest}: take smaller {key}=[...], or longer records"
                )


def assess(
    joint: JointModel,
    material: Material,
    cases: Sequence[Case],
    propagation: Propagation,
    *,
    seed: int,
    loop: LoopComparison | None = None,
) -> Assessment:
    """Predict the records of a material in every case.

    Raises
    ------
    ValueError, TypeError
        Records that do not fit the model, or are not longer than a window or horizon.
    """
    check_records(joint, material.records)
    check_lengths(cases, material)
    forecasts: dict[Case, Forecast] = {}
    unbounded: dict[Case, tuple[Divergence, ...]] = {}
    for case in sorted(cases, key=lambda case: case.window):
        shorter = next((before for before in forecasts if before.horizon == case.horizon), None)
        if case.horizon is None or shorter is None or unbounded[shorter] or forecasts[shorter].n_lost:
            forecasts[case], unbounded[case] = _predict(joint, material, case, propagation, seed)
        else:  # of a few steps ahead predictions do not depend on the window
            records = tuple(_cut(one, case.window, joint) for one in forecasts[shorter].records)
            forecasts[case] = replace(forecasts[shorter], window=case.window, records=records)
            unbounded[case] = ()
    forecasts = {case: forecasts[case] for case in cases}
    return Assessment(joint, material, propagation, forecasts, unbounded, loop)


def _predict(
    joint: JointModel, material: Material, case: Case, propagation: Propagation, seed: int
) -> tuple[Forecast, tuple[Divergence, ...]]:
    """The mean path of the model with the uncertainty of the propagation about it; where that has no bounds any more.

    Measures of the error then depend neither on the propagation nor on draws. With the mean m and the variance v
    of the propagation, the variance about the path p is ``v + (m - p)^2``; infinite from where the propagation
    diverges and the path does not. Of a single step every propagation says the same.
    """
    path = forecast(joint, material.records, horizon=case.horizon, window=case.window, seed=seed)
    if case.horizon == 1 or isinstance(propagation, MeanOnly):
        return path, ()
    spread = forecast(
        joint, material.records, horizon=case.horizon, window=case.window, seed=seed, propagation=propagation
    )
    records = tuple(
        replace(one, variance=variance_about(one.mean, other.mean, other.variance))
        for one, other in zip(path.records, spread.records, strict=True)
    )
    lost = {where.record for where in path.diverged}
    unbounded = tuple(where for where in spread.diverged if where.record not in lost)
    return replace(path, records=records), unbounded


def _cut(one: RecordForecast, window: int, joint: JointModel) -> RecordForecast:
    """Predictions of a record from sample `window` on."""
    kept = one.sample >= window
    columns = ("sample", "time", "measured", "mean", "variance", "regressors")
    n_filled = int((one.sample[kept] < joint.models[0].narx.max_lag).sum())
    return replace(one, **{name: getattr(one, name)[kept] for name in columns}, n_filled=n_filled)
