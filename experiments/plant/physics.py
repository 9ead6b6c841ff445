"""Physics beside a model: a system simulated on the measured inputs.

Its states and outputs are signals that the model may have among its regressors.
"""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import xarray as xr
from omegaconf import DictConfig

from experiments.cli.build import build, build_one
from experiments.cli.described import check_classes, check_description, check_texts
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
from simulators.interpolation import late_rows
from simulators.runge_kutta import integrate, stepper
from simulators.settings import is_finite, is_whole
from simulators.system import delays_of, names_of
from sysid import (
    Forecast,
    JointModel,
    LinearMean,
    MaximumLikelihood,
    Measurement,
    Model,
    Narx,
    Recordings,
    Target,
    Training,
)
from sysid.arrays import Array
from sysid.errors import UserError
from sysid.model.description import public_name
from sysid.units import squared_unit

SIGNAL_PREFIX = "physics."  # start of the names of the signals of the physics
VARIANCE_SUFFIX = ".variance"  # end of the name of an output's variance due to uncertain parameters
RESIDUAL = "residual"  # value of narx.predict: the output minus the simulated output
#: fields of the physics that the file of a model keeps
KEPT_FIELDS = ("system", "initial", "starts", "interpolation")
MAX_STORED_STARTS = 10_000  # largest number of runs of an estimation that a file may ask for
MAX_STORED_SUBSTEPS = 100_000  # largest number of steps per sample that a file may ask for
# training samples are taken at a distance at which the residual's autocorrelation is at most this
MAX_AUTOCORRELATION = 0.7
# samples that give the initial state of a record without a stated initialisation window
N_INITIAL_STATE_SAMPLES = 50


@dataclass(frozen=True)
class Physics:
    """Physical model of the plant, and which of its parameters are estimated from records.

    Its signals are those of a simulation without noise on the measured inputs (output error): every
    state and output, named ``physics.NAME``. A state that is an output has the name of the output.
    With ``narx.predict=residual`` the online GP learns ``y[k] - physics.y[k]``: the simulated
    output is the mean function of the model. A free run then needs the output of the plant only for
    the initial state.

    Parameters
    ----------
    system : System
        Equations, parameters, and initial values of the estimation. Its `dt` is that of the
        records.
    free : mapping
        Parameters that are estimated on the estimation records, by name: ``{lower, upper,
        logarithmic}``.
    initial : mapping
        Parameters that are the initial state, by name: ``{lower, upper}``. Each record has its own.
    starts : int
        Runs of the estimation: from the system's own values, and from random ones.
    interpolation : "held", "linear" or "band_limited"
        Course of the measured inputs between their samples (`simulators.Interpolation`). The inputs
        of a simulated plant are held.
    covariance : bool
        Whether the bands of predictions contain the covariance of the estimates.
    """

    system: System
    free: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    initial: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    starts: int = 3
    interpolation: str = "held"
    covariance: bool = False

    def __post_init__(self) -> None:
        Interpolation(self.interpolation)
        self._check_description()

    def _check_description(self) -> None:
        """Raise UserError if the file of a model could not hold this physics.

        That may be so for a system of the user's own, and would be found after all of the work.
        """
        settings = asdict(self.system)
        try:
            json.dumps(settings)
        except (TypeError, ValueError) as error:
            raise UserError(
                f"physics.system: expected settings of numbers, texts and lists, which the file of "
                f"a model can hold, got {type(self.system).__name__} ({error})"
            ) from None
        content = {"system": settings, "free": self.free, "initial": self.initial}
        check_texts(content, title="physics")

    @cached_property
    def free_parameters(self) -> list[FreeParameter]:
        """Estimated parameters that all records share."""
        return [FreeParameter(name, **bounds) for name, bounds in self.free.items()]

    @cached_property
    def initial_parameters(self) -> list[FreeParameter]:
        """Estimated parameters that have their own value in every record."""
        return [FreeParameter(name, own=True, **bounds) for name, bounds in self.initial.items()]

    @cached_property
    def signals(self) -> dict[str, Signal]:
        """Signals by their names in the record: the outputs, then the states that are no outputs.

        A state is an output if both have the same values at random states.
        """
        system = self.system
        states = np.random.default_rng(0).uniform(size=(3, len(system.states)))
        outputs = np.asarray(system.output(states)).T
        hidden_states = [
            signal
            for signal, values in zip(system.states, states.T, strict=True)
            if not any((values == output).all() for output in outputs)
        ]
        return {SIGNAL_PREFIX + signal.name: signal for signal in (*system.outputs, *hidden_states)}

    def join(self, recordings: Recordings, *, seed: int) -> "tuple[FittedPhysics, Recordings]":
        """Estimate the parameters on the estimation records, and add the signals to all records.

        Raises
        ------
        ValueError
            If a signal of the system was not recorded, a free parameter is no field of the system,
            or the initialisation window is too short.
        ArithmeticError
            If no start could be simulated.
        """
        self.check(recordings.inputs, recordings.outputs, recordings.name)
        system = replace(self.system, dt=recordings.sampling_time)
        free = self.free_parameters
        estimated = [*free, *self.initial_parameters]
        records = recordings.estimation
        fit = None
        systems = [system] * len(records)
        record_covariances: list[Array | None] = [None] * len(records)
        covariance = None
        if estimated:
            measured = [_inputs_and_outputs(system, record) for record in records]
            fit = self.estimate(system, measured, estimated, seed, skip_missing=True)
            systems = list(fit.systems)
            if self.covariance:
                record_covariances = [
                    fit.finite_covariance(estimated, number) for number in range(len(records))
                ]
                covariance = fit.finite_covariance(free)
        fitted = FittedPhysics(replace(self, system=systems[0]), fit, seed, covariance)
        joined = replace(
            recordings,
            inputs=(*recordings.inputs, *self.signals),
            estimation=tuple(map(fitted.add, records, systems, record_covariances)),
            validation=tuple(map(fitted.add, recordings.validation)),
            test=tuple(map(fitted.add, recordings.test)),
        )
        return fitted, joined

    def estimate(
        self,
        system: System,
        records: Sequence[tuple[np.ndarray, np.ndarray]],
        free: Sequence[FreeParameter],
        seed: int = 0,
        *,
        skip_missing: bool = False,
        with_covariance: bool = True,
    ) -> GreyBoxFit:
        """Estimate parameters of a system by output error from inputs and outputs of records.

        With `skip_missing` outputs may be missing (nan): their errors do not count.
        """
        return fit_output_error(
            system,
            records,
            free,
            interpolation=Interpolation(self.interpolation),
            starts=self.starts,
            seed=seed,
            skip_missing=skip_missing,
            with_covariance=with_covariance,
        )

    def check(self, inputs: Sequence[str], outputs: Sequence[str], title: str) -> None:
        """Raise UserError unless all signals of the system are among these inputs and outputs."""
        self._check_recorded("inputs", self.system.inputs, inputs, title)
        self._check_recorded("outputs", self.system.outputs, outputs, title)

    def _check_recorded(
        self, kind: str, signals: Sequence[Signal], recorded: Sequence[str], title: str
    ) -> None:
        """Raise UserError unless these signals, inputs or outputs, are among the recorded ones."""
        missing = [signal.name for signal in signals if signal.name not in recorded]
        if missing:
            raise UserError(
                f"physics: {type(self.system).__name__} has the {kind} {missing}, {title} has "
                f"{list(recorded)}: give the signals of the record these names, or take another "
                "system"
            )

    def mean(self, narx: Narx) -> LinearMean:
        """Return the simulated output as the mean function of a model with these regressors.

        Raises
        ------
        ValueError
            If the simulated output is not among the regressors, or if the bands contain a
            covariance and there are lags of an output.
        """
        name = SIGNAL_PREFIX + narx.target
        if self.covariance and any(narx.lags[output] for output in narx.output_names):
            raise UserError(
                "physics.covariance=true expects a model without lags of outputs: take "
                "narx=residual"
            )
        if (name, 0) not in narx.features:
            raise UserError(
                f"narx.predict={RESIDUAL} needs the simulated output: add {name}: [0] to "
                "narx.inputs, or take narx=residual"
            )
        return LinearMean([float(feature == (name, 0)) for feature in narx.features])


def physics_of(config: DictConfig) -> Physics | None:
    """Return the configured physics, if there is one.

    Raises
    ------
    ValueError
        If the physics refuses its settings, or a covariance is requested but no parameters are
        estimated, or the model does not predict the residual.
    """
    if "_target_" not in config.physics:
        return None
    physics: Physics = build(config, "physics")
    is_estimated = "_target_" in config.data and physics.free
    predicts_residual = config.narx.get("predict") == RESIDUAL
    if physics.covariance and not (is_estimated and predicts_residual):
        raise UserError(
            "physics.covariance=true needs parameters estimated from a record (data, "
            "physics.free), and narx.predict=residual; set them, or leave the covariance out"
        )
    return physics


@dataclass(frozen=True)
class ResidualNarx:
    """Regressors of the residual of an output: inputs and signals of the physics, without lags."""

    target: str = ""  # output to predict; empty: the first
    predict: str = RESIDUAL  # the only allowed value
    on_missing: str = "error"  # values that are not finite are an error, or (skip) are skipped

    def narx(self, outputs: Sequence[str], inputs: Sequence[str]) -> Narx:
        """Return the lags for these outputs and inputs."""
        return Narx(
            {self.target or outputs[0]: []},
            {name: [0] for name in inputs},
            predict=Target.value,
            on_missing=self.on_missing,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, eq=False)
class FittedPhysics:
    """Physics with known parameters, and the fit that found them, if they were estimated."""

    physics: Physics
    fit: GreyBoxFit | None = None
    seed: int = 0  # seed of the random starts of the fit
    # (n_p, n_p) covariance of the free parameters, if the bands contain it
    covariance: Array | None = None

    def add(
        self,
        record: xr.Dataset,
        system: System | None = None,
        known: Array | None = None,
        *,
        window: int = 0,
    ) -> xr.Dataset:
        """Return a record with the simulated signals and, if known, their variances.

        Parameters
        ----------
        record
            Record with the signals of the system.
        system
            System with its initial state. None: the initial state is estimated from the first
            samples, which become the initialisation window of the record: they are not scored.
        known
            Covariance of the free parameters and the initial state of the system. Without it there
            are no variances.
        window
            Number of samples that give the initial state; 0: the window that the record states.

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
                start = self._estimate_initial_state(record, n)
                record = record.assign_attrs(initialisation_window=n)
                system = start[0].system
        u, _ = _inputs_and_outputs(system, record)
        interpolation = Interpolation(self.physics.interpolation)
        no_noise = np.zeros((len(u), len(system.noises)))
        states = integrate(system, system.initial_state(), u, no_noise, interpolation).states
        values = self.values(states)
        added = {}
        for i, (name, signal) in enumerate(self.physics.signals.items()):
            attributes = {
                "units": signal.unit,
                "long_name": f"{signal.description}, simulated",
            }
            added[name] = "time", values[:, i], attributes
        if known is not None:
            free = [*self.physics.free_parameters, *self.physics.initial_parameters]
            variances = output_variance(
                system, u, free, known, start=start, interpolation=interpolation
            )
            for signal, variance in zip(system.outputs, variances.T, strict=True):
                attributes = {
                    "units": squared_unit(signal.unit),
                    "long_name": f"what the parameters leave open of {signal.name}",
                }
                added[SIGNAL_PREFIX + signal.name + VARIANCE_SUFFIX] = "time", variance, attributes
        return record.assign(added)

    def held_out(self, records: Sequence[xr.Dataset], parts: int) -> tuple[xr.Dataset, ...]:
        """Return estimation records with cross-fitted physics.

        The records, one behind the other, are cut into folds of equal lengths. For each fold the
        parameters are estimated from the other folds. All records are simulated with these
        parameters, from the known initial states, and the simulated signals replace those in the
        fold. If no parameters are estimated, the records are returned as they are.

        Parameters
        ----------
        records
            Records with the signals of the physics.
        parts
            Number of folds.
        """
        free = self.physics.free_parameters
        if self.fit is None or not free:
            return tuple(records)
        n_samples = [record.sizes["time"] for record in records]
        ends = np.cumsum(n_samples)
        signals = [record[list(self.physics.signals)].copy(deep=True) for record in records]
        edges = np.linspace(0, ends[-1], parts + 1).astype(int).tolist()
        for first, last in pairwise(edges):
            # limits of the fold within each record
            cuts = np.clip(np.subtract.outer([first, last], ends - n_samples), 0, n_samples).T
            estimates = self._estimate_without(records, cuts)
            for record, system, cross_fitted, (low, high) in zip(
                records, self.fit.systems, signals, cuts, strict=True
            ):
                simulated = self.add(record, replace(system, **estimates))
                for name in cross_fitted:
                    cross_fitted[name].values[low:high] = simulated[name].values[low:high]
        return tuple(
            record.assign(cross_fitted)
            for record, cross_fitted in zip(records, signals, strict=True)
        )

    def _estimate_without(self, records: Sequence[xr.Dataset], cuts: Array) -> dict[str, Any]:
        """Return estimates of the free parameters from records without rows low:high.

        `cuts` holds low and high of each record. A remaining piece of a record is left out if it is
        not longer than the number of initial parameters.
        """
        free = self.physics.free_parameters
        initial = self.physics.initial_parameters
        system = self.physics.system
        pieces = []
        for record, (low, high) in zip(records, cuts, strict=True):
            u, y = _inputs_and_outputs(system, record)
            for begin, end in ((0, low), (high, len(u))):
                if end - begin > len(initial):
                    pieces.append((u[begin:end], y[begin:end]))
        fit = self.physics.estimate(
            system,
            pieces,
            [*free, *initial],
            self.seed,
            skip_missing=True,
            with_covariance=False,
        )
        return {parameter.name: getattr(fit.system, parameter.name) for parameter in free}

    def n_first(self, record: xr.Dataset, window: int = 0) -> int:
        """Return how many samples give the initial state of a record and are not scored.

        It is `window` if given, or else the window that the record states, or else 50.
        """
        return window or int(record.attrs["initialisation_window"]) or N_INITIAL_STATE_SAMPLES

    def _estimate_initial_state(self, record: xr.Dataset, n: int) -> tuple[GreyBoxFit, Array]:
        """Estimate the initial state from the first n samples; return the fit and their outputs."""
        free = self.physics.initial_parameters
        system = self.physics.system
        u, y = _inputs_and_outputs(system, record)
        try:
            fit = self.physics.estimate(
                system, [(u[:n], y[:n])], free, with_covariance=self.covariance is not None
            )
        except REFUSALS as error:
            raise UserError(
                f"physics: initial state of record {record.attrs['name']!r} from its first {n} "
                f"samples: {error}"
            ) from error
        return fit, y[:n]

    def values(self, states: np.ndarray) -> np.ndarray:
        """Return the signals (n, n_s) at states (n, n_x)."""
        system = self.physics.system
        hidden_states = [
            i
            for i, signal in enumerate(system.states)
            if SIGNAL_PREFIX + signal.name in self.physics.signals
        ]
        return np.column_stack([np.asarray(system.output(states)), states[:, hidden_states]])

    def follow(self, samples: Iterator[Measurement], inputs: Sequence[str]) -> Iterator[Measured]:
        """Simulate beside samples or blocks of them, and yield them with the signals added.

        `inputs` names the columns of their inputs, which are held from each sample to the next.
        """
        system = self.physics.system
        advance = stepper(self.physics.system)
        delays = delays_of(system)
        columns = [list(inputs).index(name) for name in names_of(system.inputs)]
        state = system.initial_state()
        no_noise = np.zeros(len(system.noises))
        recent = deque[np.ndarray](maxlen=1 + max(delays, default=0))  # inputs that still act
        k = 0
        for sample in samples:
            rows = np.atleast_2d(sample.input)
            states = []
            for row in rows:
                states.append(state.copy())
                recent.append(row[columns])
                acting = recent[-1]
                if any(delays):
                    newest = len(recent) - 1
                    rows_of_columns = late_rows(newest, delays, range(len(delays)))
                    acting = np.array([recent[r][i] for i, r in enumerate(rows_of_columns)])
                advance(k * system.dt, state, acting[None], no_noise)
                k += 1
            joined = np.hstack([rows, self.values(np.array(states))])
            yield Measured(sample.output, joined.reshape(*sample.input.shape[:-1], -1))

    def describe(self) -> str:
        """Return a text for the file of a model; `read_physics` is the inverse."""
        physics = self.physics
        system = self.physics.system
        target = f"{type(system).__module__}.{type(system).__qualname__}"
        content = {
            "system": {"_target_": public_name(target) or target, **asdict(system)},
            "initial": physics.initial,
            "starts": physics.starts,
            "interpolation": physics.interpolation,
        }
        if self.covariance is not None:
            content["free"] = physics.free
            content["covariance"] = self.covariance.tolist()
        return json.dumps(content)

    def estimates(self) -> dict[str, Any]:
        """Return the estimates with their standard errors and the simulation error, for a summary.

        Without a fit the dict is empty.
        """
        fit = self.fit
        if fit is None:
            return {}
        values_and_errors = zip(fit.names, fit.values.tolist(), fit.std.tolist(), strict=True)
        outputs = names_of(self.physics.system.outputs)
        return {
            "parameters": {
                name: {"value": value, "std": std} for name, value, std in values_and_errors
            },
            "rmse": dict(zip(outputs, fit.rmse.tolist(), strict=True)),
            "at_bounds": list(fit.at_bounds),
        }


def read_physics(text: str, trusted: Sequence[str]) -> FittedPhysics:
    """Return the physics that the file of a model describes.

    Parameters
    ----------
    text
        Text that `FittedPhysics.describe` returned.
    trusted
        Modules and classes of the user that the text may name.

    Raises
    ------
    ValueError
        If it names a class that is not trusted, or describes no physics.
    """
    covariance = None
    expected = "physics of the model: expected the text that identification wrote"
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{expected} ({error})") from None
    check_description(content, trusted, title="physics")
    try:
        description: dict[str, Any] = {"_target_": f"{__name__}.Physics"}
        description |= {name: content[name] for name in KEPT_FIELDS}
        if "covariance" in content:
            description |= {"free": content["free"], "covariance": True}
            n_free = len(content["free"])
            covariance = np.array(content["covariance"], dtype=float).reshape([n_free, n_free])
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(f"{expected} ({error})") from None
    _check_fields(description, trusted)
    return FittedPhysics(build_one(description, "physics"), covariance=covariance)


def _check_fields(description: Mapping[str, Any], trusted: Sequence[str]) -> None:
    """Refuse fields of a stored physics that are not of the kind that identification writes.

    Raises
    ------
    ValueError
        If the system is no system, a number of starts or of steps is not possible, or a parameter
        is described by anything but two bounds and flags.
    """
    system = description["system"]
    if not isinstance(system, dict) or "_target_" not in system:
        raise UserError(f"physics.system: expected the settings of a system, got {system!r:.200}")
    own = {name: value for name, value in description.items() if name != "_target_"}
    check_classes(own, trusted, {"system": System}, title="physics")
    numbers = {
        "starts": (description["starts"], MAX_STORED_STARTS),
        "system.substeps": (system.get("substeps", 1), MAX_STORED_SUBSTEPS),
    }
    for name, (value, largest) in numbers.items():
        if not is_whole(value, 1, largest):
            raise UserError(
                f"physics.{name} must be an integer from 1 to {largest}, got {value!r:.200}"
            )
    flags = {"initial": {"logarithmic"}, "free": {"logarithmic", "own"}}
    for group, flags_of_group in flags.items():
        parameters = description.get(group, {})
        if not isinstance(parameters, dict):
            raise UserError(
                f"physics.{group} must map names of parameters to bounds, got {parameters!r:.200}"
            )
        for name, bounds in parameters.items():
            if not _is_range(bounds, flags_of_group):
                raise UserError(
                    f"physics.{group}.{name:.200}: expected lower and upper, finite numbers, and "
                    f"at most the flags {sorted(flags_of_group)}, got {bounds!r:.200}"
                )


def _is_range(bounds: Any, flags: set[str]) -> bool:
    """Whether the range of a parameter has two finite bounds, and at most these flags."""
    if not isinstance(bounds, dict) or not {"lower", "upper"} <= bounds.keys():
        return False
    if not bounds.keys() <= {"lower", "upper"} | flags:
        return False
    are_flags = all(isinstance(bounds[name], bool) for name in flags & bounds.keys())
    return are_flags and is_finite(bounds["lower"]) and is_finite(bounds["upper"])


def variance_at(rows: xr.Dataset, records: Sequence[xr.Dataset], target: str) -> Array:
    """Return the variances (n,) due to uncertain parameters at rows of a lag data set of records.

    They are 0 in records without such variances.
    """
    variances = np.zeros(rows.sizes["sample"])
    name = SIGNAL_PREFIX + target + VARIANCE_SUFFIX
    for number, record in enumerate(records):
        if name in record:
            is_of_record = rows["record"].values == number
            times = rows["time"].values[is_of_record]
            variances[is_of_record] = record[name].sel(time=times)
    return variances


def widen(found: Forecast, joint: JointModel, records: Sequence[xr.Dataset]) -> Forecast:
    """Widen a forecast of records by the variances due to uncertain parameters, if there are any.

    These models feed no output back, so every sample has the variance of one step.
    """
    models = {SIGNAL_PREFIX + model.narx.target + VARIANCE_SUFFIX: model for model in joint.models}
    has_variances = models.keys() <= records[0].keys()
    if not has_variances:
        return found
    widened = []
    for forecast, record in zip(found.records, records, strict=True):
        variances = [
            _variance_of_one_step(model, forecast.regressors, record[name].values[forecast.sample])
            for name, model in models.items()
        ]
        variance = np.where(np.isnan(forecast.variance), np.nan, np.stack(variances, axis=1))
        widened.append(replace(forecast, variance=variance))
    return replace(found, records=tuple(widened) or found.records)


def _variance_of_one_step(model: Model, regressors: Array, parameter_variance: Array) -> Array:
    """Return the calibrated variances of predictions, with those due to uncertain parameters."""
    return model.calibrated(model.predict(regressors).variance + parameter_variance)


def thin(training: Training, recordings: Recordings, target: str) -> Training:
    """Return a training that uses fewer samples of the records.

    The residual of the physics at one sample is nearly that at the next. The distance of the
    samples is the first at which the autocorrelation of ``y - physics.y`` is at most
    `MAX_AUTOCORRELATION`. The prior of the length scales is that of a stream, because the prior for
    records suits many lags of the same signals.
    """
    if not isinstance(training, MaximumLikelihood):
        return training
    n = 0
    for record in recordings.estimation:
        residual = (record[target] - record[SIGNAL_PREFIX + target]).values
        n += len(residual) // _correlation_length(residual)
    return replace(
        training,
        record_samples=max(min(n, training.record_samples), 2),
        record_length_prior_median=training.length_scale_prior_median,
        record_length_prior_std=training.length_scale_prior_std,
    )


def _correlation_length(values: Array) -> int:
    """Return the first lag at which the autocorrelation is at most `MAX_AUTOCORRELATION`.

    It is the number of values if there is no such lag. A missing value counts as the mean.
    """
    centred = np.nan_to_num(values - np.nanmean(values))
    limit = MAX_AUTOCORRELATION * (centred @ centred)
    for lag in range(1, len(centred)):
        if centred[lag:] @ centred[:-lag] <= limit:
            return lag
    return len(centred)


def columns_of(record: xr.Dataset, names: Sequence[str]) -> np.ndarray:
    """Return signals of a record beside each other (n, number of names)."""
    no_columns = np.empty((record.sizes["time"], 0))
    return np.column_stack([no_columns, *(record[name].values for name in names)])


def _inputs_and_outputs(system: System, record: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs (n, n_u) and outputs (n, n_y) of the system in a record."""
    return columns_of(record, names_of(system.inputs)), columns_of(record, names_of(system.outputs))
