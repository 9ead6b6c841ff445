"""A controller of a simulated plant that plans with the model, while the plant is identified."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import xarray as xr

from experiments.plant.decisions import (
    Variable,
    check_outputs_known,
    deciding_model,
    decision_dataset,
)
from simulators import Controller, Sample, SetPoint, System
from simulators.controllers import Reference
from sysid import ControlDecision, Identification, PredictiveControl, Situation
from sysid.arrays import Array, as_number, check_whole
from sysid.control.predictive import OUTPUT_SETTINGS
from sysid.errors import UserError
from sysid.gp.rules import Learning

#: Samples before the present one that a policy sees beside its horizon, at least.
MIN_PAST_SAMPLES = 500

#: Numbers of the streams of random numbers: errors of forecasts, and signs of the probing signal.
FORECAST_STREAM = 1
PROBING_STREAM = 2

Memory = tuple[float, ...]


@dataclass(frozen=True)
class Predictive(Controller):
    """Controller that asks a policy, with the present model; another controller is its fallback.

    A policy needs the model that is identified while the plant runs. `ControlRun` gives it to the
    policy. Where nobody has told it a model, the fallback decides.

    Parameters
    ----------
    dt : float
        Sampling time [s].
    policy : PredictiveControl
        What decides; each simulation begins with a copy of it.
    fallback : Controller, optional
        Decides where the policy does not; it drives the same inputs. None: the inputs are held,
        before ``policy.start`` in the middle of their ranges.
        While the policy decides, the fallback follows the applied inputs (`Controller.track`), so
        that it takes over without a jump.
    schedule : SetPoint or mapping of str to SetPoint, optional
        Whose references (`SetPoint.references`) are signals of the forecast; None: those of the
        fallback. A mapping has one for each output, by its name, which is put before the names of
        the references, such as ``left_level_set_point``.
    probing : mapping of str to float, optional
        Amplitudes of a random binary signal that is added before ``policy.start`` to the inputs
        of the fallback, or to held inputs, by input [unit of the input]. Without it the model may
        not learn what the inputs do: the fallback computes them from the outputs.
    probing_hold : int
        Samples for which this signal keeps its sign.
    forecast_error : float
        Standard deviation of the error of a forecast far ahead [unit of the input]. It concerns
        the inputs that weather drives.
    forecast_error_time : float
        Time over which these errors become independent [s]; the error of the present value is 0.

    Raises
    ------
    ValueError
        If the fallback drives other inputs, or runs at another sampling time.
    """

    policy: PredictiveControl
    fallback: Controller | None = None
    schedule: SetPoint | Mapping[str, SetPoint] | None = None
    probing: Mapping[str, float] | None = None  # unit of the input
    probing_hold: int = 4  # samples
    forecast_error: float = 0.0  # unit of the input
    forecast_error_time: float = 43200.0  # s

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.policy, PredictiveControl):
            raise UserError(
                f"controller.policy: expected a sysid.PredictiveControl, got {self.policy!r}"
            )
        fallback = self.fallback
        if fallback is not None:
            if sorted(fallback.inputs_driven) != sorted(self.policy.driven):
                raise UserError(
                    f"controller.fallback drives {list(fallback.inputs_driven)}, expected the "
                    f"inputs of the policy, {list(self.policy.driven)}"
                )
            if fallback.dt != self.dt:
                raise UserError(
                    f"controller.fallback.dt: expected that of the controller, {self.dt:g} s, got "
                    f"{fallback.dt:g} s"
                )
        schedules = self.schedule
        if not isinstance(schedules, Mapping):
            schedules = {} if schedules is None else {"": schedules}
        for name, schedule in schedules.items():
            if not isinstance(schedule, SetPoint):
                setting = f"controller.schedule.{name}".rstrip(".")
                raise UserError(
                    f"{setting}: expected a SetPoint, such as simulators.Levels, or one for each "
                    f"output by its name, got {schedule!r}"
                )
        unknown = [name for name in self.probing or {} if name not in self.policy.driven]
        if unknown:
            raise UserError(
                f"controller.probing names {unknown}, the planned inputs are "
                f"{list(self.policy.driven)}"
            )
        for name, amplitude in (self.probing or {}).items():
            if not 0 <= as_number(amplitude) < np.inf:
                raise UserError(
                    f"controller.probing: expected an amplitude of {name} of at least 0, got "
                    f"{amplitude!r}"
                )
        check_whole(self.probing_hold, 1, "controller.probing_hold")
        if not 0 <= as_number(self.forecast_error) < np.inf:
            raise UserError(
                f"controller.forecast_error: expected at least 0, got {self.forecast_error!r}"
            )
        if not 0 < as_number(self.forecast_error_time) < np.inf:
            raise UserError(
                "controller.forecast_error_time: expected a time above 0 s, got "
                f"{self.forecast_error_time!r}"
            )

    @property
    def outputs_read(self) -> tuple[str, ...]:
        """Names of the outputs that the fallback reads, or that the policy limits or tracks."""
        if self.fallback is not None:
            return self.fallback.outputs_read
        named = (*(self.policy.tracking or {}), *(self.policy.output_limits or {}))
        return tuple(dict.fromkeys(named))

    @property
    def inputs_driven(self) -> tuple[str, ...]:
        """Names of the planned inputs."""
        return self.policy.driven

    def references(self, time: Array) -> dict[str, Reference]:
        """Return the signals of the schedule over times (n,) [s]."""
        if self.schedule is None:
            return {} if self.fallback is None else self.fallback.references(time)
        if isinstance(self.schedule, SetPoint):
            return self.schedule.references(time)
        return {
            f"{output}_{name}": reference._replace(
                output=output, description=f"{reference.description} of {output}"
            )
            for output, schedule in self.schedule.items()
            for name, reference in schedule.references(time).items()
        }

    def initial_state(self) -> Memory:
        """Return the state of the fallback."""
        return () if self.fallback is None else self.fallback.initial_state()

    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return the inputs of the fallback, as nobody has told a model."""
        if self.fallback is None:
            return tuple(limits.middle for limits in self.policy.inputs.values()), ()
        inputs, state = self.fallback.control(time, output, state)
        by_name = dict(zip(self.fallback.inputs_driven, inputs, strict=True))
        return tuple(by_name[name] for name in self.inputs_driven), state


#: Fields of a decision that are stored, and their attributes.
CONTROL_FIELDS = {
    "cost": {"long_name": "cost of the plan"},
    "n_iterations": {"long_name": "quadratic programs solved"},
    "reason": {"long_name": "why the fallback decided"},
}

#: Fields of a decision that have a value for each step and output, and their attributes.
PLANNED_FIELDS: dict[str, dict[str, str]] = {
    "mean": {},
    "low": {},
    "high": {},
    "lower": {"long_name": "lower limit of the output"},
    "upper": {"long_name": "upper limit of the output"},
    "margin": {"long_name": "by which the limits were tightened"},
}


class ControlRun:
    """The decisions of a policy in one simulation.

    Parameters
    ----------
    controller : Predictive
    system : System
    signals : mapping of str to (n,) array
        The inputs that the policy does not plan, over the simulation and a horizon more. The
        coming ones are the forecast.
    n_samples : int
        Number of samples n.
    uncertain : sequence of str
        Names of the signals whose forecast has errors.
    seed : int
        Seed of the errors of the forecast.
    """

    kind = "control"

    def __init__(
        self,
        controller: Predictive,
        system: System,
        signals: Mapping[str, Array],
        n_samples: int,
        *,
        uncertain: Sequence[str],
        seed: int,
    ) -> None:
        self.settings = controller
        self.policy = deepcopy(controller.policy)
        self._outputs = [signal.name for signal in system.outputs]
        self._inputs = [signal.name for signal in system.inputs]
        self.states = tuple(signal.name for signal in system.states)
        self._signals = dict(signals)
        self._uncertain = [name for name in uncertain if name in signals]
        self._seed = seed
        self._dt = float(system.dt)
        times = np.asarray(self._dt * np.arange(n_samples), dtype=np.float64)
        self._references = {
            name: np.broadcast_to(np.asarray(reference.values, dtype=np.float64), times.shape)
            for name, reference in controller.references(times).items()
        }
        self._check_names(system)
        #: what decides, one for each output; none: nothing is known about the plant
        self.identifications: tuple[Identification, ...] = ()
        self.decisions: list[tuple[int, ControlDecision]] = []  # with the first sample of each
        self._queue: deque[tuple[float, ...] | None] = deque()  # None: the fallback decides
        self._past_outputs: list[tuple[float, ...]] = []
        self._past_inputs: list[tuple[float, ...]] = []

    def _check_names(self, system: System) -> None:
        """Raise UserError if the policy names what is neither a signal nor a forecast."""
        policy = self.policy
        title = type(system).__name__
        for kind in OUTPUT_SETTINGS:
            unknown = [name for name in getattr(policy, kind) or {} if name not in self._outputs]
            if unknown:
                raise UserError(
                    f"controller.policy.{kind}: {unknown} are no outputs of {title}, which has "
                    f"{self._outputs}"
                )
        schedule = self.settings.schedule
        if isinstance(schedule, Mapping):
            unknown = [name for name in schedule if name not in self._outputs]
            if unknown:
                raise UserError(
                    f"controller.schedule: {unknown} are no outputs of {title}, which has "
                    f"{self._outputs}"
                )
        lows, highs = system.input_limits()
        for (name, unit, _), low, high in zip(system.inputs, lows, highs, strict=True):
            limits = policy.inputs.get(name)
            if limits is not None and (limits.low < low or limits.high > high):
                raise UserError(
                    f"controller.policy.inputs.{name}: {limits.low:g} to {limits.high:g} {unit}, "
                    f"but {title} takes {low:g} to {high:g} {unit}"
                )

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of all outputs of the plant."""
        return tuple(self._outputs)

    @property
    def n_ready(self) -> int:
        """Number of samples until the decision after the next sample's is due."""
        return len(self._queue) or self.policy.n_applied

    def controller(self, dt: float) -> PlannedInputs:
        """Return the controller that applies the decisions."""
        return PlannedInputs(dt, self)

    def plan(self, simulated: Sequence[Sample]) -> None:
        """Do nothing: a decision needs the output of its own sample."""

    def tell(self, *identifications: Identification) -> None:
        """Take the identifications whose models decide from now on, one for each output.

        Raises
        ------
        ValueError
            If models with these lags cannot plan the inputs.
        """
        self.identifications = identifications
        if not identifications:
            return
        check_outputs_known(identifications, "controller=mpc")
        first = identifications[0]
        narx = first.narx
        unknown = [name for name in narx.input_names if name not in self._inputs]
        if unknown:
            raise UserError(
                f"controller=mpc: the model has the signals {unknown}, which the plant does not "
                "apply; leave physics out"
            )
        if first.settings.learning is Learning.stored:
            raise UserError(
                "controller=mpc needs a model whose bands follow its errors, which one with "
                "learning=stored does not have; take learning=every_sample"
            )
        self.policy.check(narx)

    def end_of_learning(self) -> None:
        """Keep the model: the policy goes on with what has been learned."""

    def take(
        self, time: float, output: Sequence[float], true_state: Sequence[float], state: Memory
    ) -> tuple[tuple[float, ...], Memory]:
        """Return the inputs of the next sample, and the next state of the fallback.

        Parameters
        ----------
        time
            s
        output
            Measured values of all outputs.
        true_state
            State of the plant, which only a policy that knows the plant makes use of.
        state
            Of the fallback.
        """
        self._past_outputs.append(tuple(output))
        if not self._queue:
            self._decide(time, true_state)
        planned = self._queue.popleft()
        settings = self.settings
        read = [output[self._outputs.index(name)] for name in settings.outputs_read]
        if planned is not None:
            inputs = planned
            if settings.fallback is not None:
                by_name = dict(zip(settings.inputs_driven, inputs, strict=True))
                applied = [by_name[name] for name in settings.fallback.inputs_driven]
                state = settings.fallback.track(time, read, state, applied)
        elif time < self.policy.start:
            inputs, state = settings.control(time, read, state)
            inputs = self._probe(inputs)
        elif settings.fallback is None and self._past_inputs:
            columns = [self._inputs.index(name) for name in settings.inputs_driven]
            inputs = tuple(self._past_inputs[-1][column] for column in columns)
        else:
            inputs, state = settings.control(time, read, state)
        self._remember(inputs)
        return inputs, state

    def _probe(self, inputs: Sequence[float]) -> tuple[float, ...]:
        """Return inputs of the fallback, or held ones, with the probing signal in their limits."""
        number = len(self._past_inputs) // self.settings.probing_hold
        probed = []
        for i, (name, value) in enumerate(zip(self.settings.inputs_driven, inputs, strict=True)):
            amplitude = (self.settings.probing or {}).get(name, 0.0)
            if amplitude:
                generator = np.random.default_rng([self._seed, PROBING_STREAM, i, number])
                limits = self.policy.inputs[name]
                signed = amplitude if generator.random() < 0.5 else -amplitude
                value = min(max(value + signed, limits.low), limits.high)
            probed.append(float(value))
        return tuple(probed)

    def _remember(self, inputs: Sequence[float]) -> None:
        """Keep all inputs of a sample."""
        k = len(self._past_inputs)
        by_name = dict(zip(self.settings.inputs_driven, inputs, strict=True))
        for name, values in self._signals.items():
            by_name[name] = float(values[k])
        self._past_inputs.append(tuple(by_name[name] for name in self._inputs))

    def _decide(self, time: float, true_state: Sequence[float]) -> None:
        """Decide about the next samples."""
        k = len(self._past_outputs) - 1
        situation = self._situation(time)._replace(state=np.array(true_state))
        model = deciding_model(self.identifications)
        decision = self.policy.decide(model, situation, self.forecast(k))
        self.decisions.append((k, decision))
        n_applied = self.policy.n_applied
        if decision.reason:
            self._queue.extend([None] * n_applied)
            return
        columns = [decision.inputs[name][:n_applied].tolist() for name in self.policy.driven]
        self._queue.extend(zip(*columns, strict=True))

    def _situation(self, time: float) -> Situation:
        """Return the last samples, the output of the present one included."""
        n_past = self.policy.horizon + MIN_PAST_SAMPLES
        if self.identifications:
            n_lags = self.identifications[0].narx.max_lag
            n_past = self.policy.horizon + max(MIN_PAST_SAMPLES, n_lags + 1)
        outputs = np.array(self._past_outputs[-n_past:])
        last = self._past_inputs[-(len(outputs) - 1) :] if len(outputs) > 1 else []
        inputs = np.array(last).reshape(len(last), len(self._inputs))
        return Situation(
            time,
            {name: outputs[:, i] for i, name in enumerate(self._outputs)},
            {name: inputs[:, i] for i, name in enumerate(self._inputs)},
        )

    def forecast(self, k: int) -> dict[str, Array]:
        """Return the coming signals (T + 1,) from sample k on, with the errors of the forecast.

        The error of the value i samples ahead is an Ornstein-Uhlenbeck process that begins at 0,
        with the standard deviation `forecast_error` far ahead::

            e_(i+1) = a e_i + sqrt(1 - a^2) std xi_i,   a = exp(-dt / forecast_error_time)
        """
        n = self.policy.horizon + 1
        coming = {name: values[k : k + n] for name, values in self._signals.items()}
        for number, name in enumerate(self._uncertain):
            if self.settings.forecast_error > 0:
                generator = np.random.default_rng([self._seed, FORECAST_STREAM, number, k])
                coming[name] = coming[name] + self._forecast_errors(n, generator)
        coming |= {name: values[k : k + n] for name, values in self._references.items()}
        return coming

    def _forecast_errors(self, n: int, generator: np.random.Generator) -> Array:
        """Draw the errors (n,) of a forecast, the first of which is 0."""
        a = float(np.exp(-self._dt / self.settings.forecast_error_time))
        shocks = self.settings.forecast_error * np.sqrt(1 - a * a) * generator.standard_normal(n)
        errors = np.zeros(n)
        for i in range(1, n):
            errors[i] = a * errors[i - 1] + shocks[i]
        return errors

    def content(self, n_identified: int, dt: float) -> xr.Dataset:
        """Return all decisions as a data set: decided, planned, predicted.

        Parameters
        ----------
        n_identified
            Does not matter: decisions after the identified part are those of the same model.
        dt
            Sampling time [s].
        """
        n_decisions = len(self.decisions)
        n_steps = self.policy.horizon
        planned = [(i, one) for i, (_, one) in enumerate(self.decisions) if not one.reason]
        names = list(planned[-1][1].output_names) if planned else []
        variables: dict[str, Variable] = {}
        for kind, attributes in PLANNED_FIELDS.items():
            values = np.full((n_decisions, n_steps, len(names)), np.nan, dtype=np.float32)
            for i, one in planned:
                values[i] = getattr(one, kind)
            variables[f"planned_{kind}"] = ("decision", "step", "output"), values, attributes
        inputs = np.full((n_decisions, n_steps, len(self.policy.driven)), np.nan)
        for i, one in planned:
            inputs[i] = np.column_stack([one.inputs[name] for name in self.policy.driven])
        variables["input"] = ("decision", "step", "driven"), inputs
        return decision_dataset(
            self.decisions,
            variables,
            CONTROL_FIELDS,
            dt=dt,
            names={"output": names, "driven": list(self.policy.driven)},
            attributes={"kind": self.kind, "n_applied": self.policy.n_applied},
        )


@dataclass(frozen=True)
class PlannedInputs(Controller):
    """Applies the decisions of a policy; reads all outputs, as its model may need them."""

    run: ControlRun

    @property
    def outputs_read(self) -> tuple[str, ...]:
        """Names of all outputs."""
        return self.run.outputs

    @property
    def states_read(self) -> tuple[str, ...]:
        """Names of all states, for a policy that knows the plant."""
        return self.run.states

    @property
    def inputs_driven(self) -> tuple[str, ...]:
        """Names of the planned inputs."""
        return self.run.policy.driven

    def initial_state(self) -> Memory:
        """Return the state of the fallback."""
        return self.run.settings.initial_state()

    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return the decided inputs of this sample, and the next state of the fallback."""
        n_outputs = len(self.outputs_read)
        return self.run.take(time, output[:n_outputs], output[n_outputs:], state)
