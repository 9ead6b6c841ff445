"""Physics beside a model: a system simulated on the measured inputs, whose states and outputs
become signals.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.cli.build import build, build_one, check_trusted
from experiments.cli.ends import REFUSALS
from experiments.plant.measured import Measured
from simulators import (
    FreeParameter,
    GreyBoxFit,
    Interpolation,
    Signal,
    System,
    fit_output_error,
)
from simulators.grey_box import output_variance
from simulators.runge_kutta import integrate, stepper
from simulators.system import names_of
from sysid import (
    Forecast,
    JointModel,
    LinearMean,
    MaximumLikelihood,
    Measurement,
    Narx,
    Recordings,
    Target,
    Training,
)
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.model.description import public_name

PREFIX = "physics."  # of the names of its signals
VARIANCE = ".variance"  # behind the name of an output: what its parameters leave open
RESIDUAL = "residual"  # value of narx.predict: what the simulation leaves of an output
KEPT = ("system", "initial", "starts", "interpolation")  # of it, in the file of a model
CORRELATED = 0.7  # autocorrelation
START = 50  # samples that give the initial state of a record that states no initialisation window


@dataclass(frozen=True)
class Physics:
    """Physical model of the plant that is identified, and what of it is estimated from records.

    Its signals are those of a simulation without noise on the measured inputs (output error): every
    state and output, named ``physics.NAME``; a state that is an output goes by the name of the
    output. With ``narx.predict=residual`` the online GP learns ``y[k] - physics.y[k]``: the
    simulated output is the mean function of the model, and a free run needs no output of the plant
    but those that give the initial state.

    Parameters
    ----------
    system : System
        Equations, parameters, and where the estimation starts from. Its `dt` is that of the
        records.
    free : mapping
        Parameters that are estimated on the estimation records, by name: ``{lower, upper,
        logarithmic}``.
    initial : mapping
        Parameters that are the initial state, by name, each record has its own: ``{lower, upper}``.
    starts : int
        Runs of the estimation, from the system's own values and from random ones.
    interpolation : "held", "linear" or "band_limited"
        What the measured inputs do between their samples (`simulators.Interpolation`). Beside a
        simulation they are held.
    covariance : bool
        Whether the bands of what is predicted with it carry the covariance of the estimates.
    """

    system: System
    free: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    initial: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    starts: int = 3
    interpolation: str = "held"
    covariance: bool = False

    def __post_init__(self) -> None:
        Interpolation(self.interpolation)

    @cached_property
    def free_parameters(self) -> list[FreeParameter]:
        """Parameters that all records share."""
        return [FreeParameter(name, **bounds) for name, bounds in self.free.items()]

    @cached_property
    def initial_parameters(self) -> list[FreeParameter]:
        """Parameters of which every record has its own."""
        return [FreeParameter(name, own=True, **bounds) for name, bounds in self.initial.items()]

    @cached_property
    def signals(self) -> dict[str, Signal]:
        """Signals of the physics by their names in the record: outputs, then states that are no
        outputs.
        """
        system = self.system
        probe = np.random.default_rng(0).uniform(size=(3, len(system.states)))
        outputs = np.asarray(system.output(probe)).T
        states = zip(system.states, probe.T, strict=True)
        hidden = [
            signal for signal, values in states if not any((values == y).all() for y in outputs)
        ]
        return {PREFIX + signal.name: signal for signal in (*system.outputs, *hidden)}

    def join(self, recordings: Recordings, *, seed: int) -> "tuple[FittedPhysics, Recordings]":
        """Estimate the free parameters on the estimation records, and add the signals to all
        records.

        Raises
        ------
        ValueError
            A signal of the system that was not recorded; no free parameter among the fields; a
            window too short.
        ArithmeticError
            If no start could be simulated.
        """
        self.check(recordings.inputs, recordings.outputs, recordings.name)
        system = replace(self.system, dt=recordings.sampling_time)
        free = self.free_parameters
        measured = [_measured(system, record) for record in recordings.estimation]
        every = [*free, *self.initial_parameters]
        known: list[Array | None] = [None] * (len(measured) + 1)
        fit = None
        systems = [system] * len(measured)
        if every:
            fit = self.estimate(system, measured, every, seed)
            systems = list(fit.systems)
            if self.covariance:
                known = [
                    *(fit.finite_covariance(every, r) for r in range(len(measured))),
                    fit.finite_covariance(free),
                ]
        fitted = FittedPhysics(replace(self, system=systems[0]), fit, seed, known.pop())
        estimation = tuple(map(fitted.add, recordings.estimation, systems, known))
        others: Any = {
            role: tuple(map(fitted.add, getattr(recordings, role)))
            for role in ("validation", "test")
        }
        return fitted, replace(
            recordings,
            inputs=(*recordings.inputs, *self.signals),
            estimation=estimation,
            **others,
        )

    def estimate(
        self,
        system: System,
        records: Sequence[tuple[np.ndarray, np.ndarray]],
        free: Sequence[FreeParameter],
        seed: int = 0,
    ) -> GreyBoxFit:
        """Estimate free parameters by output error, with the inputs as they are between their
        samples.
        """
        between = Interpolation(self.interpolation)
        return fit_output_error(
            system, records, free, interpolation=between, starts=self.starts, seed=seed
        )

    def check(self, inputs: Sequence[str], outputs: Sequence[str], title: str) -> None:
        """Refuse records without the signals of the system."""
        system = self.system
        for kind, signals, given in (
            ("inputs", system.inputs, inputs),
            ("outputs", system.outputs, outputs),
        ):
            if missing := [signal.name for signal in signals if signal.name not in given]:
                has = f"{type(system).__name__} has the {kind} {missing}, {title} has {list(given)}"
                advice = "give the signals of the record these names, or take another system"
                raise UserError(f"physics: {has}: {advice}")

    def mean(self, narx: Narx) -> LinearMean:
        """Return the simulated output as mean function of a model with these regressors.

        Raises
        ------
        ValueError
            If the simulated output is not among them; lags of an output where the bands carry a
            covariance.
        """
        name = PREFIX + narx.target
        if self.covariance and any(narx.lags[output] for output in narx.output_names):
            raise UserError(
                "physics.covariance=true expects a model without lags of outputs: take narx=residual"
            )
        if (name, 0) not in narx.features:
            advice = f"add {name}: [0] to narx.inputs, or take narx=residual"
            raise UserError(f"narx.predict={RESIDUAL} needs the simulated output: {advice}")
        return LinearMean([float(feature == (name, 0)) for feature in narx.features])


def physics_of(config: DictConfig) -> Physics | None:
    """Return the configured physics, if there is one.

    Raises
    ------
    ValueError
        What the physics refuses; a covariance where none is estimated, or where the model has no
        use for it.
    """
    physics = build(config, "physics") if "_target_" in config.physics else None
    is_estimated = "_target_" in config.data and physics is not None and physics.free
    is_residual = config.narx.get("predict") == RESIDUAL
    if physics is not None and physics.covariance and not (is_estimated and is_residual):
        needed = (
            "parameters estimated from a record (data, physics.free), and narx.predict=residual"
        )
        raise UserError(
            f"physics.covariance=true needs {needed}; set them, or leave the covariance out"
        )
    return physics


@dataclass(frozen=True)
class ResidualNarx:
    """Regressors of what the physics leaves of an output: inputs, and signals of the physics, at
    the sample itself.
    """

    target: str = ""  # output to predict; empty: the first
    predict: str = RESIDUAL  # nothing else

    def narx(self, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
        """Lags of these outputs and inputs."""
        return Narx(
            {self.target or outputs[0]: []},
            {name: [0] for name in inputs},
            predict=Target.value,
        )


@dataclass(frozen=True, eq=False)
class FittedPhysics:
    """Physics whose parameters are known, and how they were found."""

    physics: Physics
    fit: GreyBoxFit | None = None
    seed: int = 0  # of the random starts of the fit
    covariance: Array | None = None  # (n_p, n_p) of the free parameters, where the bands carry it

    def add(
        self,
        record: xr.Dataset,
        system: System | None = None,
        known: Array | None = None,
        *,
        window: int = 0,
    ) -> xr.Dataset:
        """Simulate on the inputs of a record, and add the signals to it, and the variances that
        parameters leave open.

        Parameters
        ----------
        record
            With the signals of the system.
        system
            With its initial state; without one the initial state is estimated from the first
            samples, which are then the initialisation window of the record: they are not judged.
        known
            Covariance of its free parameters and its initial state; without one there are no
            variances.
        window
            So many; 0: as the record says.

        Raises
        ------
        ValueError
            If the first samples do not give an initial state.
        simulators.DivergenceError
            If the simulation diverges.
        """
        start = None
        if system is None:
            system = self.physics.system
            known = self.covariance
            if self.physics.initial_parameters:
                n = self.n_first(record, window)
                start = self._start(record, n)
                record = record.assign_attrs(initialisation_window=n)
                system = start[0].system
        (u, _), between = (
            _measured(system, record),
            Interpolation(self.physics.interpolation),
        )
        states = integrate(
            system,
            system.initial_state(),
            u,
            np.zeros((len(u), len(system.noises))),
            between,
        ).states
        values = self.values(states)
        added = {}
        for i, (name, signal) in enumerate(self.physics.signals.items()):
            about = {
                "units": signal.unit,
                "long_name": f"{signal.description}, simulated",
            }
            added[name] = "time", values[:, i], about
        if known is not None:
            free = [*self.physics.free_parameters, *self.physics.initial_parameters]
            variances = output_variance(system, u, free, known, start=start, interpolation=between)
            for signal, variance in zip(system.outputs, variances.T, strict=True):
                about = {
                    "units": f"{signal.unit}2",
                    "long_name": f"what the parameters leave open of {signal.name}",
                }
                added[PREFIX + signal.name + VARIANCE] = "time", variance, about
        return record.assign(added)

    def held_out(self, records: Sequence[xr.Dataset], parts: int) -> tuple[xr.Dataset, ...]:
        """Estimation records with the signals of the physics whose parameters do not know the part
        that a sample is in.

        The records, one behind the other, are cut into parts of equal lengths; for each the
        parameters are estimated from the other parts, and all of the records is simulated with
        them, from the initial states that are known. Physics without estimated parameters gives the
        records back.
        """
        free = self.physics.free_parameters
        if self.fit is None or not free:
            return tuple(records)
        system = self.physics.system
        initial = self.physics.initial_parameters
        n = [record.sizes["time"] for record in records]
        ends = np.cumsum(n)
        signals = [record[list(self.physics.signals)].copy(deep=True) for record in records]
        for first, last in pairwise(np.linspace(0, ends[-1], parts + 1).astype(int).tolist()):
            cuts = np.clip(np.subtract.outer([first, last], ends - n), 0, n).T
            pieces = []
            for record, (low, high) in zip(records, cuts, strict=True):
                u, y = _measured(system, record)
                pieces += [
                    (u[a:b], y[a:b]) for a, b in ((0, low), (high, len(u))) if b - a > len(initial)
                ]
            fit = self.physics.estimate(system, pieces, [*free, *initial], self.seed)
            found = {parameter.name: getattr(fit.system, parameter.name) for parameter in free}
            for record, own, known, (low, high) in zip(
                records, self.fit.systems, signals, cuts, strict=True
            ):
                simulated = self.add(record, replace(own, **found))
                for name in known:
                    known[name].values[low:high] = simulated[name].values[low:high]
        return tuple(record.assign(known) for record, known in zip(records, signals, strict=True))

    def n_first(self, record: xr.Dataset, window: int = 0) -> int:
        """Return how many samples give the initial state of a record and are not judged.

        It is `window` if given, or what the record says, or 50.
        """
        return window or int(record.attrs["initialisation_window"]) or START

    def _start(self, record: xr.Dataset, n: int) -> tuple[GreyBoxFit, Array]:
        """Estimate of the initial state from the first n samples of a record, and the outputs of
        these.
        """
        free = self.physics.initial_parameters
        system = self.physics.system
        u, y = _measured(system, record)
        try:
            return self.physics.estimate(system, [(u[:n], y[:n])], free), y[:n]
        except REFUSALS as error:
            where = f"record {record.attrs['name']!r} from its first {n} samples"
            raise UserError(f"physics: initial state of {where}: {error}") from error

    def values(self, states: np.ndarray) -> np.ndarray:
        """Signals (n, n_s) of states (n, n_x)."""
        system = self.physics.system
        hidden = [
            i
            for i, signal in enumerate(system.states)
            if PREFIX + signal.name in self.physics.signals
        ]
        return np.column_stack([np.asarray(system.output(states)), states[:, hidden]])

    def follow(self, samples: Iterator[Measurement], inputs: Sequence[str]) -> Iterator[Measured]:
        """Simulate beside samples or blocks of them, their inputs in this order, held from each
        sample to the next.
        """
        system = self.physics.system
        advance = stepper(self.physics.system)
        columns = [list(inputs).index(name) for name in names_of(system.inputs)]
        state = system.initial_state()
        silent = np.zeros(len(system.noises))
        k = 0
        for sample in samples:
            rows = np.atleast_2d(sample.input)
            states = []
            for row in rows:
                states.append(state.copy())
                advance(k * system.dt, state, row[None, columns], silent)
                k += 1
            joined = np.hstack([rows, self.values(np.array(states))])
            yield Measured(sample.output, joined.reshape(*sample.input.shape[:-1], -1))

    def describe(self) -> str:
        """Text for the file of a model; `read_physics` is the inverse."""
        physics = self.physics
        system = self.physics.system
        target = f"{type(system).__module__}.{type(system).__qualname__}"
        content = {"system": {"_target_": public_name(target) or target, **asdict(system)}}
        kept = {
            "initial": physics.initial,
            "starts": physics.starts,
            "interpolation": physics.interpolation,
        }
        if self.covariance is not None:
            kept |= {"free": physics.free, "covariance": self.covariance.tolist()}
        return json.dumps(content | kept)

    def estimates(self) -> dict[str, Any]:
        """Estimates with their standard errors, and the error of the simulation, for a summary."""
        if self.fit is None:
            return {}
        found = zip(self.fit.names, self.fit.values.tolist(), self.fit.std.tolist(), strict=True)
        parameters = {name: {"value": value, "std": std} for name, value, std in found}
        rmse = dict(
            zip(
                names_of(self.physics.system.outputs),
                self.fit.rmse.tolist(),
                strict=True,
            )
        )
        return {
            "parameters": parameters,
            "rmse": rmse,
            "at_bounds": list(self.fit.at_bounds),
        }


def read_physics(text: str, trusted: Sequence[str]) -> FittedPhysics:
    """Physics of the file of a model.

    Raises
    ------
    ValueError
        A class that nobody trusts, or a text that describes no physics.
    """
    covariance = None
    try:
        content = json.loads(text)
        description = {
            "_target_": f"{__name__}.Physics",
            **{name: content[name] for name in KEPT},
        }
        if "covariance" in content:
            description |= {"free": content["free"], "covariance": True}
            covariance = np.array(content["covariance"], dtype=float).reshape(
                [len(content["free"])] * 2
            )
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(
            f"physics of the model: expected the text that identification wrote ({error})"
        ) from None
    check_trusted(description, trusted)
    return FittedPhysics(build_one(description, "physics"), covariance=covariance)


def variance_at(rows: xr.Dataset, records: Sequence[xr.Dataset], target: str) -> Array:
    """Variances (n,) that the parameters leave open at the rows of a lag data set of records; 0
    where none are said.
    """
    found = np.zeros(rows.sizes["sample"])
    name = PREFIX + target + VARIANCE
    for number, record in enumerate(records):
        if name in record:
            own = rows["record"].values == number
            found[own] = record[name].sel(time=rows["time"].values[own])
    return found


def widen(found: Forecast, joint: JointModel, records: Sequence[xr.Dataset]) -> Forecast:
    """Widen a forecast of records by the variances that the parameters leave open, if any.

    No output is fed back there, so every sample has the variance of one step.
    """
    models = {PREFIX + model.narx.target + VARIANCE: model for model in joint.models}
    wider = []
    for one, record in (
        zip(found.records, records, strict=True) if models.keys() <= records[0].keys() else ()
    ):
        bands = [
            model.calibrated(
                model.predict(one.regressors).variance + record[name].values[one.sample]
            )
            for name, model in models.items()
        ]
        wider.append(
            replace(
                one,
                variance=np.where(np.isnan(one.variance), np.nan, np.stack(bands, axis=1)),
            )
        )
    return replace(found, records=tuple(wider) or found.records)


def thin(training: Training, recordings: Recordings, target: str) -> Training:
    """Let a training use fewer samples of the records.

    What physics leaves of one sample, it leaves of its neighbours.

    The distance of the samples is the first at which the autocorrelation of ``y - physics.y`` is at
    most `CORRELATED`. The prior of the length scales is that of a stream: that of records is made
    for many lags of the same signals.
    """
    if not isinstance(training, MaximumLikelihood):
        return training
    n = 0
    for record in recordings.estimation:
        left = (record[target] - record[PREFIX + target]).values
        left = left - left.mean()
        same = CORRELATED * (left @ left)
        n += len(left) // next(
            (k for k in range(1, len(left)) if left[k:] @ left[:-k] <= same), len(left)
        )
    median = training.length_scale_prior_median
    std = training.length_scale_prior_std
    n = max(min(n, training.record_samples), 2)
    return replace(
        training,
        record_samples=n,
        record_length_prior_median=median,
        record_length_prior_std=std,
    )


def columns_of(record: xr.Dataset, names: Sequence[str]) -> np.ndarray:
    """Signals of a record beside each other (n, number of names)."""
    return np.column_stack(
        [np.empty((record.sizes["time"], 0)), *(record[name].values for name in names)]
    )


def _measured(system: System, record: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs (n, n_u) and outputs (n, n_y) of the system in a record."""
    return columns_of(record, names_of(system.inputs)), columns_of(record, names_of(system.outputs))
