"""From signals to a model in one call, and what one does with it: `identify`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from inspect import signature
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import xarray as xr

from sysid.beside import one_blas_thread
from sysid.data.csv import ON_MISSING, read_table, split_table
from sysid.data.source import Recordings
from sysid.errors import UserError, UserTypeError
from sysid.gp.adaptation import Adaptive
from sysid.gp.dictionary import UpdateReport
from sysid.gp.kernels import Matern32, Matern52, SquaredExponential
from sysid.gp.rules import (
    CRITERIA,
    AcceptAll,
    Always,
    ErrorThreshold,
    ExceedsMinimum,
    Novelty,
    VarianceThreshold,
)
from sysid.gp.training import MaximumAPosteriori, MaximumLikelihood
from sysid.identification import Identification, Settings
from sysid.lag_choice import LagChoice, best_arx, choose_lags
from sysid.model.model import Model, Origin
from sysid.narx.lags import Narx
from sysid.narx.record import read_records
from sysid.narx.window import LagWindow
from sysid.simulation.baselines import LinearArx
from sysid.simulation.forecast import forecast, warn_of_held
from sysid.simulation.propagation.pathwise import Pathwise
from sysid.simulation.propagation.propagation import AboutPath, MeanOnly
from sysid.simulation.validation import Z_95, validate
from sysid.simulation_error.training import FreeRun

#: a record: a data set over time, a table, arrays by name, the path of a CSV file, or inputs and outputs (u, y)
Signals: TypeAlias = (
    "xr.Dataset | pd.DataFrame | Mapping[str, Any] | str | os.PathLike[str] | tuple[Any, Any]"
)

#: what words mean where a setting is an object: the defaults of the class, as on the command line
WORDS: dict[str, dict[str, Any]] = {
    "training": {
        "maximum_a_posteriori": MaximumAPosteriori,
        "maximum_likelihood": MaximumLikelihood,
        "adaptive": Adaptive,
        "free_run": FreeRun,
    },
    "insertion": {
        "always": Always,
        "novelty": Novelty,
        "error": ErrorThreshold,
        "variance": VarianceThreshold,
    },
    "reduction": CRITERIA,
    "acceptance": {"none": AcceptAll}
    | {name: lambda c=c: ExceedsMinimum(c()) for name, c in CRITERIA.items()},
}
KERNELS: dict[str, Any] = {
    "squared_exponential": SquaredExponential,
    "matern_32": Matern32,
    "matern_52": Matern52,
}
PURPOSES = ("prediction", "simulation")


@one_blas_thread
def identify(
    data: Signals | Sequence[Signals],
    narx: Narx | str = "auto",
    settings: Settings | None = None,
    *,
    inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | None = None,
    dt: float | None = None,
    time: str | None = None,
    on_missing: str = "error",
    test: Signals | Sequence[Signals] | None = None,
    identified: float = 0.7,
    purpose: str = "prediction",
    **changes: Any,
) -> IdentifiedModel:
    """Identify a model from records, with the loop and the defaults of `sysid-identify`.

    Parameters
    ----------
    data
        A record or a list of them. A record is an `xarray.Dataset` over ``time`` [s], a
        `pandas.DataFrame`, arrays by name, the path of a CSV file, or a pair (u, y) of arrays (n,)
        or (n, number of signals), named u, y or u1, u2,
        ... unless `inputs` and `outputs` name them.
    narx : Narx or "auto"
        Regressors; "auto": lags of the smallest held-out error, for each output its own.
    settings : Settings, optional
        How to learn; see `changes`.
    inputs, outputs
        Names of the signals; by default those of `narx`.
    dt : float, optional
        Sampling time [s]; None: the median step of the times.
    time : str, optional
        Column of a table with times [s] or time stamps, whose steps may jitter by 10 %. An index of
        time stamps needs no name, nor does a column called time, t, stamp, timestamp, datetime or
        date.
    on_missing : "error" or "skip"
        What to do at a missing value of a table, or a gap of its times: skip it, and go on behind
        it with a record of its own, if that has 50 samples. A warning counts what was left out.
    test
        Records that judge, as `data`. None: the last part of every record judges.
    identified : float
        The part that is learned then; 1: all of it, and nothing judges.
    purpose : "prediction" or "simulation"
        What the model is for: one step ahead, or free run, for which it is trained (`FreeRun`).
    **changes
        Settings, ``budget=50`` for example; where one is an object a word says its defaults, as on
        the command line: ``training="adaptive"``, ``kernel="matern_52"``, ``insertion="novelty"``,
        ``reduction="prior_entropy"``.

    Returns
    -------
    IdentifiedModel

    Raises
    ------
    ValueError, TypeError
        What is missing or does not fit, with what was expected.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, y = rng.normal(size=600), np.zeros(600)
    >>> for k in range(1, 600):
    ...     y[k] = 0.8 * y[k - 1] + np.tanh(u[k - 1]) + 0.01 * rng.normal()
    >>> found = identify((u, y), dt=0.1, budget=40)
    >>> found.model.narx.feature_names
    ('y[k-1]', 'u[k-1]')
    >>> bool(found.validate().loc[("y", "1 step"), "fit_percent"] > 98)
    True
    """
    if purpose not in PURPOSES:
        raise UserError(f"identify: purpose must be one of {', '.join(PURPOSES)}, got {purpose!r}")
    if isinstance(narx, Narx):
        inputs = inputs or narx.input_names
        outputs = outputs or narx.output_names
    elif narx != "auto":
        raise UserError(f'identify: narx must be "auto" or a Narx, got {narx!r}')
    if on_missing not in ON_MISSING[:2]:
        raise UserError(
            f"identify: on_missing must be one of {', '.join(ON_MISSING[:2])}, got {on_missing!r}"
        )
    reader = _Reader(inputs, outputs, dt, time, on_missing)
    estimation = reader.read(data)
    judges = reader.read(test) if test is not None else ()
    recordings = Recordings(
        "data", reader.inputs, reader.outputs, estimation=estimation, test=judges
    )
    if not judges and identified != 1:
        if not 0 < identified < 1:
            raise UserError(
                f"identify: identified must be above 0 and at most 1, got {identified!r}"
            )
        held = recordings.hold_out(1.0 - identified)
        recordings = replace(held, validation=(), test=held.validation)
    chosen = _choose_settings(settings, purpose, changes)
    found = {}
    choices = {}
    targets = [narx.target] if isinstance(narx, Narx) else recordings.outputs
    for target in targets:
        if isinstance(narx, Narx):
            lags = narx
        else:
            choices[target] = choose_lags(
                recordings.estimation, target, recordings.inputs, settings=chosen
            )
            lags = choices[target].narx
        identification = Identification.of_records(recordings.estimation, lags, chosen)
        origin = Origin.of(lags.dataset(recordings.estimation))
        identification.model = replace(identification.require_model(), origin=origin)
        found[target] = identification
    return IdentifiedModel(found, recordings, purpose, choices)


def _choose_settings(settings: Settings | None, purpose: str, changes: dict[str, Any]) -> Settings:
    """Apply changes to settings; some of the changes may be words."""
    chosen = Settings() if settings is None else settings
    kernel = changes.pop("kernel", None)
    if purpose == "simulation":
        if (
            settings is not None and not isinstance(settings.training, FreeRun)
        ) or "training" in changes:
            raise UserError(
                'identify: purpose="simulation" is training=FreeRun(); leave out one of both'
            )
        if settings is None:
            changes["training"] = FreeRun()
    for name, value in changes.items():
        if isinstance(value, str) and name in WORDS:
            if value not in WORDS[name]:
                raise UserError(
                    f"identify: {name} must be one of {', '.join(WORDS[name])}, or an object, got {value!r}"
                )
            kind = WORDS[name][value]
            if needed := [
                one.name for one in signature(kind).parameters.values() if one.default is one.empty
            ]:
                numbers = ", ".join(f"{one}=..." for one in needed)
                raise UserError(
                    f"identify: {name}={value!r} needs a number that is yours; write {name}={kind.__name__}({numbers})"
                )
            changes[name] = kind()
    chosen = replace(chosen, **changes)
    if (
        "reduction" in changes
        and "acceptance" not in changes
        and isinstance(chosen.acceptance, ExceedsMinimum)
    ):
        chosen = replace(
            chosen, acceptance=replace(chosen.acceptance, criterion=chosen.reduction)
        )  # they match
    if kernel is None:
        return chosen
    if not isinstance(chosen.training, MaximumLikelihood):
        raise UserError(
            f"identify: {type(chosen.training).__name__} chooses its kernel; leave kernel out"
        )
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            raise UserError(
                f"identify: kernel must be one of {', '.join(KERNELS)}, or a prototype, got {kernel!r}"
            )
        kernel = KERNELS[kernel]()
    return replace(chosen, training=replace(chosen.training, kernel=kernel))


class _Reader:
    """Turns what a person has into records with the same signals."""

    def __init__(
        self,
        inputs: Sequence[str] | None,
        outputs: Sequence[str] | None,
        dt: float | None,
        time: str | None,
        on_missing: str,
    ) -> None:
        for kind, names in (("inputs", inputs), ("outputs", outputs)):
            if isinstance(names, str):
                raise UserTypeError(
                    f"identify: {kind} must be a list of names, got {names!r}: write [{names!r}]"
                )
        self.inputs, self.outputs, self.dt, self.time = (
            tuple(inputs or ()),
            tuple(outputs or ()),
            dt,
            time,
        )
        self.on_missing = on_missing

    def read(self, data: Any) -> tuple[xr.Dataset, ...]:
        """Read the records of one source or of a list; each part between two gaps is one."""
        given = data if isinstance(data, list) else [data]
        return tuple(record for i, one in enumerate(given) for record in self._records(one, i))

    def _records(self, data: Any, number: int) -> list[xr.Dataset]:
        if isinstance(data, tuple) and len(data) == 2:
            data = self._name(*data)
        if not self.outputs:
            raise UserError("identify: name the signals, inputs=['u'] and outputs=['y']")
        if isinstance(data, xr.Dataset):
            (read,) = read_records(data, (*self.inputs, *self.outputs))
            own = {
                "name": f"record {number}",
                "initialisation_window": 0,
                "static": 0,
            } | data.attrs
            return [data.assign_attrs(own | {"sampling_time": read.sampling_time})]
        if isinstance(data, str | os.PathLike):
            name = Path(data).name
            data = read_table(Path(data))
        elif isinstance(data, pd.DataFrame | Mapping):
            name = f"record {number}"
            data = pd.DataFrame(data)
        else:
            expected = (
                "an xarray.Dataset, a pandas.DataFrame, arrays by name, a path, or a pair (u, y)"
            )
            raise UserTypeError(
                f"identify: expected {expected}, or a list of these, got {type(data).__name__}"
            )
        signals = [*self.inputs, *self.outputs]
        found = split_table(
            data,
            signals,
            name=name,
            dt=self.dt,
            time=self.time,
            on_missing=self.on_missing,
        )
        if "note" in found[0].attrs:
            warnings.warn(found[0].attrs["note"], stacklevel=4)
        return found

    def _name(self, u: Any, y: Any) -> dict[str, Any]:
        """Columns of arrays by name; names that nobody gave are u, y, or with numbers."""
        found: dict[str, Any] = {}
        for kind, letter, values in (("inputs", "u", u), ("outputs", "y", y)):
            columns = (
                np.atleast_2d(np.asarray(values, dtype=float).T)
                if values is not None
                else np.empty((0, 0))
            )
            n = len(columns)
            names = getattr(self, kind) or (
                (letter,) if n == 1 else tuple(f"{letter}{i + 1}" for i in range(n))
            )
            if len(names) != n:
                raise UserError(
                    f"identify: {n} columns for the {kind} {list(names)}; give every signal a column"
                )
            setattr(self, kind, names)
            found |= dict(zip(names, columns, strict=True))
        return found


@dataclass(frozen=True, eq=False)
class IdentifiedModel:
    """Models of the outputs of a plant, one for each, and the records that they are judged by."""

    identifications: Mapping[str, Identification]  # by output; each learns on with `observe`
    recordings: Recordings  # what was learned (estimation), and what judges (test)
    purpose: str
    lag_choices: Mapping[str, LagChoice]  # how the lags were found, unless they were given

    @property
    def models(self) -> dict[str, Model]:
        """Model of every output, as far as it has learned."""
        found = {name: one.model for name, one in self.identifications.items()}
        return {name: model for name, model in found.items() if model is not None}

    @property
    def model(self) -> Model:
        """The model of the only output.

        Raises
        ------
        ValueError
            If there are several: take `models`.
        """
        if len(self.identifications) > 1:
            raise UserError(f"there are models of {list(self.identifications)}: take models[name]")
        return next(iter(self.models.values()))

    def predict(
        self, data: Signals | Sequence[Signals] | None = None, *, horizon: int = 1
    ) -> pd.DataFrame:
        """Every sample predicted so many samples ahead from what was measured before.

        Parameters
        ----------
        data
            As for `identify`; None: the test records.

        Returns
        -------
        pandas.DataFrame
            Over record and time [s]: for each output NAME the columns ``NAME`` (measured),
            ``NAME_mean`` and the 95 % band of a measurement, ``NAME_low`` to ``NAME_high``.
        """
        return self._forecast(data, horizon)

    def simulate(
        self,
        data: Signals | Sequence[Signals] | None = None,
        *,
        window: int | None = None,
    ) -> pd.DataFrame:
        """Free run: all outputs from the inputs and the first `window` outputs; columns as of
        `predict`.

        Outputs after the window are not looked at, and may be missing (nan). The window is the
        largest lag unless stated.
        """
        return self._forecast(data, None, window)

    def _forecast(self, data: Any, horizon: int | None, window: int | None = None) -> pd.DataFrame:
        parts = []
        for name, model in self.models.items():
            first = max(model.narx.max_lag, 1) if window is None else window
            records = [
                _known(record, name, first if horizon is None else None)
                for record in self._records(data)
            ]
            propagation = MeanOnly() if horizon == 1 else Pathwise()
            found = forecast(
                model,
                [one for one, _ in records],
                horizon=horizon,
                window=first,
                propagation=AboutPath(propagation),
            )
            warn_of_held(found.n_held)
            half = [
                Z_95 * np.sqrt(one.variance[:, 0] + found.noise_variance[0])
                for one in found.records
            ]
            frames = []
            for one, width, (_, measured) in zip(found.records, half, records, strict=True):
                mean = one.mean[:, 0]
                columns = {name: measured[one.sample], f"{name}_mean": mean}
                columns |= {f"{name}_low": mean - width, f"{name}_high": mean + width}
                index = pd.MultiIndex.from_product(
                    [[one.record], one.time], names=["record", "time"]
                )
                frames.append(pd.DataFrame(columns, index=index))
            parts.append(pd.concat(frames))
        return pd.concat(parts, axis=1)

    def _records(self, data: Any) -> Sequence[xr.Dataset]:
        if data is not None:
            one = self.recordings
            return _Reader(one.inputs, one.outputs, one.sampling_time, None, "keep").read(data)
        if not self.recordings.test:
            raise UserError("there is no test record (identified=1): give data")
        return self.recordings.test

    @one_blas_thread
    def validate(self, data: Signals | Sequence[Signals] | None = None) -> pd.DataFrame:
        """Measures (`sysid.Validation`) one step ahead and in free run, a row for each output and
        horizon.
        """
        rows = {}
        for horizon, words in ((1, "1 step"), (None, "free run")):
            frame = self._forecast(data, horizon)
            for name, model in self.models.items():
                known: Any = model.origin.output_mean, model.origin.output_variance
                judged = frame[frame[name].notna()]  # the window of another output may be shorter
                std = (judged[f"{name}_high"] - judged[f"{name}_mean"]) / Z_95
                measures = validate(judged[name], judged[f"{name}_mean"], std**2, trivial=known)
                rows[name, words] = measures._asdict()
        return (
            pd.DataFrame(rows)
            .T.sort_index()
            .drop(columns="window")
            .rename_axis(["output", "horizon"])
        )

    def compare(
        self,
        others: Mapping[str, IdentifiedModel] | None = None,
        data: Signals | Sequence[Signals] | None = None,
    ) -> pd.DataFrame:
        """RMSE and fit beside linear ARX models, and beside other models by name, on the same
        records.

        ARX once with the lags of the model, once with those of the smallest held-out error, each
        fitted to the records that the model learned.
        """
        rows = {}
        for title, one in {"model": self, **(others or {})}.items():
            table = one.validate(list(self.recordings.test) if data is None else data)
            for (name, horizon), row in table.iterrows():
                rows[name, title, horizon] = {
                    "rmse": row["rmse"],
                    "fit_percent": row["fit_percent"],
                }
        records = self._records(data)
        for name, model in self.models.items():
            learned = self.recordings.estimation
            same = LinearArx.fit(model.narx, learned)
            best = best_arx(learned, name, self.recordings.inputs)
            for title, arx in (("ARX, same lags", same), ("ARX, best", best)):
                narx = arx.narx
                first = max(arx.narx.max_lag, 1)
                ahead = [_values(narx, rows, arx) for rows in map(narx.dataset, records)]
                free = [
                    (
                        one[name].values[first:],
                        arx.free_run(dict(one), n_initial=first)[first:],
                    )
                    for one in records
                ]
                for horizon, pairs in (("1 step", ahead), ("free run", free)):
                    y, mean = (np.concatenate(part) for part in zip(*pairs, strict=True))
                    measures = validate(y, mean)
                    rows[name, title, horizon] = {
                        "rmse": measures.rmse,
                        "fit_percent": measures.fit_percent,
                    }
        return pd.DataFrame(rows).T.rename_axis(["output", "model", "horizon"])

    def plot(self, data: Signals | Sequence[Signals] | None = None) -> list[Any]:
        """Measurement, prediction (free run if that is the purpose) and 95 % band of the first
        record.

        Returns
        -------
        list of matplotlib axes
            One for each output.
        """
        simulates = self.purpose == "simulation"
        axes = []
        frame = (self.simulate(data) if simulates else self.predict(data)).loc[0]
        for name in self.models:
            unit = self.recordings.estimation[0][name].attrs.get("units", "")
            kind = "free run" if simulates else "1 step"
            names = {name: "measured", f"{name}_mean": kind}
            ax = (
                frame[list(names)]
                .rename(columns=names)
                .plot(color=["#9a9a9a", "#d55e00"], linewidth=1)
            )
            ax.lines[0].set_linewidth(3)  # seen beside a prediction that fits
            band = frame[f"{name}_low"], frame[f"{name}_high"]
            ax.fill_between(
                frame.index,
                *band,
                color="#d55e00",
                alpha=0.25,
                linewidth=0,
                label="95 % band",
            )
            ax.set(xlabel="time [s]", ylabel=f"{name} [{unit}]" if unit else name)
            ax.legend()
            axes.append(ax)
        return axes

    def save(self, path: str | os.PathLike[str]) -> list[Path]:
        """Store the models; `sysid.Model.load` reads them. Several get the names of their outputs
        behind the stem.
        """
        path = Path(path)
        several = len(self.models) > 1
        paths = []
        for name, model in self.models.items():
            paths.append(path.with_name(f"{path.stem}_{name}{path.suffix}") if several else path)
            model.save(paths[-1])
        return paths

    def step(
        self,
        y: Mapping[str, float] | float,
        u: Mapping[str, float] | float | tuple[()] = (),
    ) -> dict[str, UpdateReport]:
        """Predict this sample from the ones before, then learn it: for a loop of your own, one call
        each sample.

        Parameters
        ----------
        y, u
            Measured outputs and applied inputs by name; a number where there is only one.

        Returns
        -------
        dict
            What was predicted and decided, by output; empty until the lags are there. A sample that
            may be an outlier is decided about by the next call: `Identification.correction`.
        """
        given: dict[str, float] = {}
        for kind, values in (("outputs", y), ("inputs", u)):
            names = getattr(self.recordings, kind)
            values = (
                values
                if isinstance(values, Mapping)
                else dict(zip(names, np.atleast_1d(values), strict=True))
            )
            if missing := [name for name in names if name not in values]:
                raise UserError(f"step: expected the {kind} {list(names)}, {missing} are not there")
            given |= values
        reports = {}
        for name, identification in self.identifications.items():
            narx = identification.narx
            window = self._windows[name]
            pair = window.observe(
                *(
                    np.array([given[n] for n in names])
                    for names in (narx.output_names, narx.input_names)
                )
            )
            if pair is not None and (report := identification.observe(*pair)) is not None:
                reports[name] = report
        return reports

    @cached_property
    def _windows(self) -> dict[str, LagWindow]:
        return {
            name: LagWindow(identification.narx)
            for name, identification in self.identifications.items()
        }

    def __repr__(self) -> str:
        parts = [
            f"{name}: {', '.join(m.narx.feature_names)}; {m.gp.n_points} points"
            for name, m in self.models.items()
        ]
        n, judging = (
            sum(one.sizes["time"] for one in rows)
            for rows in (self.recordings.estimation, self.recordings.test)
        )
        return (
            f"IdentifiedModel for {self.purpose}, {n} samples learned, {judging} judge\n"
            + "\n".join(parts)
        )

    def _repr_html_(self) -> str:
        table = f"<pre>{escape(repr(self))}</pre>"
        if self.recordings.test:
            table += self.validate()[["rmse", "fit_percent", "coverage_95", "n"]].to_html(
                float_format="%.4g"
            )
        return table


def _known(record: xr.Dataset, name: str, window: int | None) -> tuple[xr.Dataset, np.ndarray]:
    """Return a record whose outputs after the window are numbers, and what was measured of them."""
    measured = record[name].values
    if window is None:
        return record, measured
    filled = np.where(np.isnan(measured) & (np.arange(len(measured)) >= window), 0.0, measured)
    return record.assign({name: ("time", filled, record[name].attrs)}), measured


def _values(narx: Narx, rows: xr.Dataset, arx: LinearArx) -> tuple[np.ndarray, np.ndarray]:
    """Measured and predicted outputs of the rows of a lag data set."""
    to_value = narx.predict.to_value
    before = rows["previous"].values
    return to_value(rows["target"].values, before), to_value(arx.one_step(rows), before)
