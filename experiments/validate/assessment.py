"""All predictions of a model of the records that it is validated on, and how good they are."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from experiments.cli.progress import doing
from experiments.plant.physics import widen
from experiments.validate.material import Material
from sysid import (
    AboutPath,
    Divergence,
    Forecast,
    JointModel,
    Propagation,
    Target,
    Validation,
)
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.simulation.forecast import check_records, forecast
from sysid.simulation.validation import validate

FREE_RUN = "free_run"  # the horizon that has no end
SERIES = ("measured", "mean", "variance")  # of a forecast


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
    """All horizons, one step first and free run last, for every window; those of the main window
    first.

    Raises
    ------
    ValueError
        Horizons or windows that are no whole numbers of at least 1, or stand there twice; no
        window.
    """
    chosen = read_whole("windows", [default_window] if windows is None else windows)
    if not chosen:
        raise UserError(
            "windows must name at least one number of samples, such as [5, 50], or be null"
        )
    ahead = sorted({1, *read_whole("horizons", horizons)})
    return [Case(horizon, window) for window in chosen for horizon in (*ahead, None)]


def read_whole(name: str, values: Any) -> list[int]:
    """Whole numbers of at least 1, each once, from one or a list of them."""
    given = [values] if isinstance(values, int) else values
    is_list = isinstance(given, Sequence) and not isinstance(given, str)
    if (
        not is_list
        or not all(type(value) is int and value >= 1 for value in given)
        or len(set(given)) < len(given)
    ):
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
    unbounded: dict[
        Case, tuple[Divergence, ...]
    ]  # where the propagation diverges and the mean does not
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
        return str(
            self.material.records[0][signal].attrs.get("units") or self.joint.origin.unit(signal)
        )

    def error_unit(self, signal: str) -> str:
        """Return the unit of an error of a signal, 1 if there is none.

        An error of a temperature in degC is in K.
        """
        return Target.change.unit_of(self.unit(signal)) or "1"

    def series(
        self, case: Case, output: str, record: int | None = None
    ) -> tuple[Array, Array, Array, float]:
        """Measured values, means, latent variances (n,) and noise variance of one output, of a
        record or of all.
        """
        found = self.forecasts[case]
        i = self.outputs.index(output)
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
        return {
            case: {name: self.score(case, name) for name in self.outputs} for case in self.forecasts
        }

    @cached_property
    def of_each_record(self) -> list[tuple[xr.Dataset, Case, str, Validation]]:
        """Measures of each of several records, by output: one step ahead and in free run."""
        records = self.material.records
        each = (
            product(enumerate(records), self.outputs, self.main.values())
            if len(records) > 1
            else ()
        )
        return [(record, case, name, self.score(case, name, i)) for (i, record), name, case in each]

    def count(self, case: Case) -> dict[str, int]:
        """Count samples that the measures of a case leave out, and predictions that are special."""
        found = self.forecasts[case]
        n_scored = self.scores[case][self.outputs[0]].n
        special = {
            "n_filled": found.n_filled,
            "n_diverged": found.n_lost,
            "n_held": found.n_held,
        }
        return {"left_out": self.material.n_samples - n_scored, **special}


def assess(
    joint: JointModel,
    material: Material,
    cases: Sequence[Case],
    propagation: Propagation,
    *,
    seed: int,
) -> Assessment:
    """Predict the records of a material in every case.

    Raises
    ------
    ValueError, TypeError
        Records that do not fit the model, or are not longer than a window or horizon.
    """
    check_records(joint, material.records)
    for record, case in product(material.records, cases):
        n = record.sizes["time"]
        longest = max(case.window, case.horizon or 0)
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
            with doing(
                f"predicting, {case.words} after {case.window} samples, {number} of {len(cases)}"
            ):
                forecasts[case], unbounded[case] = _predict(
                    joint, material, case, propagation, seed
                )
        else:  # of a few steps ahead predictions do not depend on the window
            records, unbounded[case] = [], ()
            for one in forecasts[shorter].records:
                kept = one.sample >= case.window
                part = {
                    name: getattr(one, name)[kept]
                    for name in (*SERIES, "sample", "time", "regressors")
                }
                n_filled = int((part["sample"] < joint.models[0].narx.max_lag).sum())
                records.append(replace(one, **part, n_filled=n_filled))
            forecasts[case] = replace(
                forecasts[shorter], window=case.window, records=tuple(records)
            )
    forecasts = {case: forecasts[case] for case in cases}
    return Assessment(joint, material, propagation, forecasts, unbounded)


def _predict(
    joint: JointModel,
    material: Material,
    case: Case,
    propagation: Propagation,
    seed: int,
) -> tuple[Forecast, tuple[Divergence, ...]]:
    """Predict the mean path of the model, and calibrated bands about it (`AboutPath`).

    Say also where these have no bounds any more.
    """
    given = material.records_after(case.window)
    about = AboutPath(propagation)
    found = forecast(
        joint,
        given,
        horizon=case.horizon,
        window=case.window,
        propagation=about,
        seed=seed,
    )
    found = widen(found, joint, given)
    unbounded = []
    for one in found.records:
        endless = np.isinf(one.variance).any(axis=1)
        if one.diverged is None and endless.any():
            row = int(endless.argmax())
            k = int(one.sample[row])
            output = joint.output_names[int(np.isinf(one.variance[row]).argmax())]
            unbounded.append(Divergence(one.record, k, float(one.time[row]), output, np.inf))
    return found, tuple(unbounded)
