"""Inputs of a simulated plant that are chosen to learn, while it is identified."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import xarray as xr

from experiments.plant.decisions import (
    Variable,
    check_outputs_known,
    deciding_model,
    decision_dataset,
)
from simulators import Controller, Excitation, Sample, System
from sysid import (
    DesignCriterion,
    DesignedInput,
    Identification,
    InformationGain,
    InformativeInput,
    JointModel,
    Model,
    Narx,
)
from sysid.arrays import Array
from sysid.design.candidates import InputLimits, check_ascending
from sysid.errors import UserError
from sysid.model.description import describe

#: samples after which it is asked again whether the rest of a stretch may be applied
SAMPLES_BETWEEN_CHECKS = 5

#: settings of an input alone; the others are those of all designed inputs together
SETTINGS_OF_INPUT = ("offset", "low", "high", "rate", "rms")


@dataclass(frozen=True)
class Informative(Excitation):
    """Excitation of an input that is chosen to learn, stretch by stretch.

    It is the configuration of a `sysid.InformativeInput`, see there. `signal` has the stretches
    that are applied as long as there is no model.
    """

    low: float = -1.0  # lowest value about the offset, unit of the input
    high: float = 1.0  # highest value about the offset, unit of the input
    rate: float | None = None  # largest change from one sample to the next; null: any
    #: largest root mean square of a stretch about the middle of the range; null: any
    rms: float | None = None
    horizon: int = 100  # samples of a candidate
    applied: int | None = None  # samples until the next decision; null: the whole stretch
    candidates: int = 30  # stretches that are compared
    refinements: int = 0  # rounds in which variants of the best one compete
    criterion: DesignCriterion = field(default_factory=InformationGain)
    output_limits: Mapping[str, Sequence[float]] | None = None  # unit of the output; null: none
    probability: float = 0.05  # largest expected fraction of samples beyond these limits

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, values in (self.output_limits or {}).items():
            check_ascending(name, values)
        self.limits()

    def deviation(self, n_samples: int, dt: float, generator: np.random.Generator) -> Array:
        """Return stretches that no model has chosen (n,)."""
        run = InformativeInput(
            {"u": self.limits()}, horizon=self.horizon, seed=int(generator.integers(2**31))
        )
        n_stretches = -(-n_samples // self.horizon)
        stretches = [run.next(None).inputs["u"] for _ in range(n_stretches)]
        return np.concatenate(stretches)[:n_samples] - self.offset

    @property
    def pairs(self) -> dict[str, tuple[float, float]]:
        """Limits of the outputs: the lowest and the highest value by name."""
        pairs = {}
        for name, values in (self.output_limits or {}).items():
            low, high = values
            pairs[name] = (float(low), float(high))
        return pairs

    def limits(self) -> InputLimits:
        """Return the limits of the input."""
        rate = np.inf if self.rate is None else self.rate
        rms = np.inf if self.rms is None else self.rms
        return InputLimits(self.offset + self.low, self.offset + self.high, rate, rms)


def check_design(design: Mapping[str, Informative], system: System, *, is_driven: bool) -> None:
    """Raise UserError unless the designed inputs can be those of a system.

    Parameters
    ----------
    design
        By the name of the input.
    system
    is_driven
        Whether a controller drives inputs of the system.
    """
    if not design:
        return
    if is_driven:
        raise UserError(
            "excitation=informative: the inputs of a plant with a controller are not chosen to "
            "learn; take controller=none"
        )
    first, *others = design.values()
    for setting in fields(Informative):
        if setting.name not in SETTINGS_OF_INPUT and any(
            getattr(other, setting.name) != getattr(first, setting.name) for other in others
        ):
            raise UserError(
                f"excitation=informative: {setting.name} belongs to all designed inputs together, "
                f"but {list(design)} have different ones"
            )
    lows, highs = system.input_limits()
    for (name, unit, _), low, high in zip(system.inputs, lows, highs, strict=True):
        if name not in design:
            continue
        limits = design[name].limits()
        if limits.low < low or limits.high > high:
            raise UserError(
                f"excitation=informative: the limits of {name!r} are {limits.low:g} to "
                f"{limits.high:g} {unit}, {type(system).__name__} takes {low:g} to {high:g} "
                f"{unit}: choose excitation.offset, .low and .high so that they stay inside"
            )
    outputs = [signal.name for signal in system.outputs]
    unknown = [name for name in first.pairs if name not in outputs]
    if unknown:
        raise UserError(
            f"excitation.output_limits: {unknown} are no outputs of {type(system).__name__}, which "
            f"has {outputs}"
        )


#: why nothing is planned at the beginning of another record of a plant whose model is known
TOO_FEW_SAMPLES = "the record has fewer samples than the longest lag"

#: Fields of a decision that are stored, and their attributes.
DESIGN_FIELDS = {
    "gain": {"long_name": "gain of the plan"},
    "outside": {"units": "1", "long_name": "expected fraction of samples beyond output limits"},
    "n_refused": {"long_name": "better candidates whose outputs would leave their limits"},
    "fallback": {"long_name": "why this is not the best plan within the limits"},
}


class DesignRun:
    """The designed inputs of one simulation: what was decided, and what is still to be applied.

    Parameters
    ----------
    design
        By the name of the input.
    outputs, inputs
        Names of all signals of the plant, in the order of its samples.
    seed
        Seed of the candidates.
    """

    kind = "design"

    def __init__(
        self,
        design: Mapping[str, Informative],
        outputs: Sequence[str],
        inputs: Sequence[str],
        seed: int,
    ) -> None:
        common = next(iter(design.values()))
        self.names = tuple(design)
        self._outputs = list(outputs)
        self._inputs = list(inputs)
        self._informative = InformativeInput(
            {name: informative.limits() for name, informative in design.items()},
            horizon=common.horizon,
            n_applied=common.applied,
            n_candidates=common.candidates,
            n_refinements=common.refinements,
            criterion=common.criterion,
            output_limits=common.pairs,
            probability=common.probability,
            seed=seed,
        )
        self._queue: deque[tuple[float, ...]] = deque()
        #: what decides, one for each output; none: nothing is known about the plant, or its model
        #: shall be tested
        self.identifications: tuple[Identification, ...] = ()
        self.decisions: list[tuple[int, DesignedInput]] = []  # with the first sample of each
        self.n_ended_early = 0  # stretches whose rest was not applied
        self._planned_outputs: tuple[str, ...] = ()

    @property
    def n_ready(self) -> int:
        """Number of samples that are applied before it is asked again how to go on."""
        n_left = len(self._queue)
        return min(n_left, SAMPLES_BETWEEN_CHECKS) if self.output_limits else n_left

    @property
    def output_limits(self) -> Mapping[str, tuple[float, float]]:
        """Limits of outputs, which the plans keep with the stated probability."""
        return self._informative.output_limits

    def controller(self, dt: float) -> DesignedInputs:
        """Return the controller that applies the designed inputs."""
        return DesignedInputs(dt, self)

    def end_of_learning(self) -> None:
        """Let no model decide: a design would make the test of the model its own."""
        self.tell()

    def plan(self, simulated: Sequence[Sample]) -> None:
        """Decide about the next stretch, unless some samples of the last one may be applied."""
        if self._queue and not self._ends_early(simulated):
            return
        model = self._model()
        if model is None:
            designed = self._informative.next(None)
        else:
            n_known = max(self._narx.max_lag, 1)
            if len(simulated) < n_known:
                designed = self._informative.next(None)._replace(fallback=TOO_FEW_SAMPLES)
            else:
                designed = self._informative.next(model, *self._known(simulated[-n_known:]))
        self.decisions.append((len(simulated), designed))
        self._queue.extend(zip(*(designed.inputs[name] for name in self.names), strict=True))

    def _ends_early(self, simulated: Sequence[Sample]) -> bool:
        """Drop the rest of the stretch that is applied if the outputs would leave their limits.

        Return whether it was dropped. The decision then keeps the samples that were applied.
        """
        model = self._model()
        if model is None or not self.decisions:
            return False
        first, designed = self.decisions[-1]
        n_applied = len(simulated) - first
        n_known = max(self._narx.max_lag, n_applied, 1)
        if n_applied == 0 or len(simulated) < n_known:
            return False
        known = self._known(simulated[-n_known:])
        if not self._informative.should_end(designed, n_applied, model, *known):
            return False
        applied = {name: values[:n_applied] for name, values in designed.inputs.items()}
        self.decisions[-1] = (first, designed._replace(inputs=applied))
        self.n_ended_early += 1
        self._queue.clear()
        return True

    @property
    def _narx(self) -> Narx:
        """Lags of the models that decide."""
        return self.identifications[0].narx

    def _model(self) -> JointModel | Model | None:
        """Return the models that decide, as they are now; None: there are none yet."""
        model = deciding_model(self.identifications)
        return model.model if isinstance(model, Identification) else model

    def _known(self, samples: Sequence[Sample]) -> tuple[Array, Array]:
        """Return the outputs and inputs of the models in these samples."""
        outputs = np.array([sample.output for sample in samples])
        inputs = np.array([sample.input for sample in samples])
        return (
            outputs[:, self._columns(self._narx.output_names)],
            inputs[:, self._columns(self._narx.input_names)],
        )

    def _columns(self, names: Sequence[str]) -> list[int]:
        """Return the columns of signals in the samples of the plant."""
        known = [*self._outputs] if set(names) <= set(self._outputs) else [*self._inputs]
        missing = [name for name in names if name not in known]
        if missing:
            raise UserError(
                f"excitation=informative: the model has the signals {missing}, which the plant "
                "does not apply; leave physics out"
            )
        return [known.index(name) for name in names]

    def take(self) -> tuple[float, ...]:
        """Return the inputs of the next sample, in the order of `names`.

        Where nobody has decided, the next stretch is one without a model: nothing is learned in
        this simulation.
        """
        if not self._queue:
            self.plan(())
        return tuple(float(value) for value in self._queue.popleft())

    def content(self, n_identified: int, dt: float) -> xr.Dataset:
        """Return the decisions about the first samples as a data set: decided, planned, predicted.

        Parameters
        ----------
        n_identified
            Samples that were learned; the later ones have inputs that no model chose.
        dt
            Sampling time [s].
        """
        kept = [(k, designed) for k, designed in self.decisions if k < n_identified]
        n_steps = max((len(designed.mean) for _, designed in kept), default=0)
        names = list(self._planned_outputs)
        shape = (len(kept), n_steps, len(names))
        planned = {name: np.full(shape, np.nan) for name in ("mean", "low", "high")}
        for i, (_, designed) in enumerate(kept):
            for name, values in planned.items():
                rows = getattr(designed, name)
                if len(rows):
                    values[i, : len(rows)] = rows
        longest = max((len(next(iter(one.inputs.values()))) for _, one in kept), default=0)
        inputs = np.full((len(kept), longest, len(self.names)), np.nan)
        for i, (_, designed) in enumerate(kept):
            stretch = np.column_stack([designed.inputs[name] for name in self.names])
            inputs[i, : len(stretch)] = stretch
        dimensions = ("decision", "step", "output")
        variables: dict[str, Variable] = {
            f"planned_{name}": (dimensions, values) for name, values in planned.items()
        }
        variables["input"] = (("decision", "applied", "designed"), inputs)
        return decision_dataset(
            kept,
            variables,
            DESIGN_FIELDS,
            dt=dt,
            names={"output": names, "designed": list(self.names)},
            attributes={
                "kind": self.kind,
                "criterion": describe(self._informative.criterion),
                "output_limits": json.dumps(dict(self.output_limits)),
                "n_ended_early": self.n_ended_early,
            },
        )

    def tell(self, *identifications: Identification) -> None:
        """Take the identifications whose models decide from now on, one for each output.

        Without any, no model decides.

        Raises
        ------
        ValueError
            If an output among the lags has no model.
        """
        self.identifications = identifications
        if identifications:
            check_outputs_known(identifications, "excitation=informative")
            self._planned_outputs = tuple(self._narx.output_names)


@dataclass(frozen=True)
class DesignedInputs(Controller):
    """Applies the inputs that a design has decided; reads no output."""

    run: DesignRun
    outputs_read = ()

    @property
    def inputs_driven(self) -> tuple[str, ...]:
        """Names of the designed inputs."""
        return self.run.names

    def initial_state(self) -> tuple[float, ...]:
        """Return no state."""
        return ()

    def control(
        self, time: float, output: Sequence[float], state: tuple[float, ...]
    ) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the decided inputs of this sample."""
        return self.run.take(), ()
