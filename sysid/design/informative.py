"""The choice of the next stretch of the inputs, by what it is expected to tell."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from sysid.arrays import Array, as_number, check_whole, matrix, vector
from sysid.design.candidates import STRETCH_CLASSES, InputLimits, StretchClass, check_ascending
from sysid.design.criteria import DesignCriterion, InformationGain, PlannedOutput
from sysid.errors import UserError, UserTypeError
from sysid.identification import Identification, joint_model
from sysid.identified import IdentifiedModel
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Narx
from sysid.simulation.dynamics import Dynamics, exogenous_rows
from sysid.simulation.forecast import past_outputs
from sysid.simulation.propagation.propagation import follow_mean
from sysid.simulation.spread import project, variance_along
from sysid.simulation.validation import Z_95

# Regressors that stand for the region by default, and decisions whose candidates visited them.
MAX_REGION_POINTS = 100
N_DECISIONS_OF_REGION = 10

# Candidates whose bands are computed at a time, if outputs have limits.
N_JUDGED_TOGETHER = 4

# Fraction of a stretch that is applied if there is no good plan: the model diverges, or the outputs
# are expected to leave their limits.
FALLBACK_FRACTION = 0.25

# A stretch ends early once so many times as many samples as planned are beyond the limits of the
# outputs, the measured and the expected ones together, and more than one sample.
MAX_EXCESS_BEYOND_LIMITS = 2.0


class DesignedInput(NamedTuple):
    """The next stretch of the inputs, and what is expected of it.

    The plan has T samples of the m outputs, from the first one that is not measured yet.
    """

    inputs: dict[str, Array]  # (n,) samples to apply, by input
    mean: Array  # (T, m) predicted outputs; (0, m) if there is no plan
    low: Array  # (T, m) lower ends of the 95 % bands of a measurement
    high: Array  # (T, m) upper ends
    gain: float  # of the criterion, all outputs together; nan if there is no plan
    outside: float  # expected fraction of the planned samples beyond the limits of the outputs
    n_refused: int  # candidates with a larger gain, whose outputs would leave the limits
    fallback: str  # why this is not the best candidate within the limits; "" if it is


class _Candidates(NamedTuple):
    """Stretches of all inputs, and the mean paths of the outputs that they lead to."""

    stretches: Array  # (b, H, number of designed inputs)
    exogenous: Array  # (b, T, p)
    path: Array  # (b, L + T, m) known outputs, then the mean; nan after a path has left the bounds

    def of(self, chosen: Sequence[int] | np.ndarray) -> _Candidates:
        """Return some of the candidates."""
        return _Candidates(self.stretches[chosen], self.exogenous[chosen], self.path[chosen])


class _Risk(NamedTuple):
    """Predicted outputs of some candidates, and how often they would leave their limits."""

    mean: Array  # (b, T, m)
    std: Array  # (b, T, m) of a measurement
    outside: Array  # (b,) expected fraction of the samples


@dataclass
class InformativeInput:
    """Chooses the stretch of the inputs that is expected to tell most about the plant.

    At each decision candidates are drawn within the limits of the inputs. The model simulates the
    plant on each of them. The `criterion` computes what the planned outputs would tell. The
    candidate of the largest gain is taken whose measured outputs stay within `output_limits`, but
    for a fraction of at most `probability` of the planned samples, by the calibrated bands of the
    model, to first order in the errors of its function. If no candidate does, that one is taken
    which leaves the limits least, and if the model diverges on all of them, the inputs are held:
    of these a quarter is applied, which is counted (`n_fallbacks`) and stated in the result. While
    a stretch is applied, `should_end` tells whether the plant contradicts the plan so much that the
    limits are in danger.

    Parameters
    ----------
    limits : mapping of str to InputLimits or (low, high) or (low, high, rate)
        Inputs that are designed, with their limits [unit of the input; rate per sample].
    horizon : int
        Samples H of a candidate. No plan leads farther than the plant moves in this time.
    n_applied : int, optional
        Samples that are applied before the next decision; None: the whole stretch.
    n_candidates : int
        Stretches that are drawn.
    n_refinements : int
        Rounds in which as many variants of the best candidate compete with it: in a part of its
        samples they follow another candidate.
    classes : sequence of StretchClass
        What the candidates are drawn from, in turns.
    criterion : DesignCriterion
        What counts as informative.
    region : (R, p) array_like, optional
        Regressors at which the model shall become good, for criteria that have a region. None: the
        regressors that the candidates of this decision and of the last ones visit.
    output_limits : mapping of str to (low, high)
        Limits of outputs [unit of the output].
    probability : float
        Largest expected fraction of the planned samples beyond these limits.
    seed : int
        Seed of the candidates. Decision k of an object is the same for the same seed, models and
        samples.

    Attributes
    ----------
    n_decisions, n_fallbacks : int
        Decisions so far, and how many of them were not the best candidate within the limits.

    Raises
    ------
    ValueError, TypeError
        A setting is not as described, or limits contradict each other.

    Examples
    --------
    >>> design = InformativeInput({"pump": (0.0, 10.0)}, horizon=4)
    >>> stretch = design.next(None)
    >>> stretch.inputs["pump"].shape, stretch.fallback
    ((4,), 'there is no model yet')
    """

    limits: Mapping[str, Any]
    horizon: int = 100
    n_applied: int | None = None
    n_candidates: int = 30
    n_refinements: int = 0
    classes: Sequence[StretchClass] = STRETCH_CLASSES
    criterion: DesignCriterion = field(default_factory=InformationGain)
    region: ArrayLike | None = None
    output_limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    probability: float = 0.05
    seed: int = 0
    n_decisions: int = field(default=0, init=False)
    n_fallbacks: int = field(default=0, init=False)
    _visited: deque[Array] = field(init=False, repr=False)  # regressors of the last decisions

    def __post_init__(self) -> None:
        if not isinstance(self.limits, Mapping) or not self.limits:
            raise UserError(
                "InformativeInput: expected the limits of at least one input, such as "
                f'limits={{"pump": (0, 10)}}, got {self.limits!r}'
            )
        self.limits = {name: InputLimits.of(name, given) for name, given in self.limits.items()}
        for name, least in (
            ("horizon", 1),
            ("n_candidates", 1),
            ("n_refinements", 0),
            ("seed", 0),
        ):
            check_whole(getattr(self, name), least, f"InformativeInput: {name}")
        self._visited = deque(maxlen=N_DECISIONS_OF_REGION)
        if self.n_applied is None:
            self.n_applied = self.horizon
        check_whole(self.n_applied, 1, "InformativeInput: n_applied", below=self.horizon + 1)
        if not isinstance(self.criterion, DesignCriterion):
            raise UserTypeError(
                "InformativeInput: expected a sysid.DesignCriterion as criterion, got "
                f"{self.criterion!r}"
            )
        classes = self.classes if isinstance(self.classes, Sequence) else ()
        if not classes or not all(isinstance(kind, StretchClass) for kind in classes):
            raise UserTypeError(
                f"InformativeInput: expected classes of candidates, got {self.classes!r}"
            )
        if not 0 <= as_number(self.probability) < 1:
            raise UserError(
                "InformativeInput: expected a probability of at least 0 and below 1, got "
                f"{self.probability!r}"
            )
        if not isinstance(self.output_limits, Mapping):
            raise UserTypeError(
                "InformativeInput: expected output_limits as a mapping from names of outputs, got "
                f"{self.output_limits!r}"
            )
        for name, values in self.output_limits.items():
            check_ascending(name, values)

    def next(
        self,
        model: IdentifiedModel | Identification | Model | JointModel | None,
        outputs: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        forecast: Mapping[str, ArrayLike] | None = None,
    ) -> DesignedInput:
        """Return the next stretch of the inputs.

        Parameters
        ----------
        model
            What is known about the plant. None, or an identification that is not trained yet: one
            candidate is drawn and taken; the classes take turns from one decision to the next.
        outputs : (n, m), optional
            Last measured outputs of the model, in the order of ``narx.output_names``, the newest
            last. Not needed if `model` is what `identify` returns and follows the plant by `step`.
        inputs : (n, n_u) or (n - 1, n_u), optional
            Last applied inputs, in the order of ``narx.input_names``. There is one less than
            outputs if the first sample of the stretch is applied from the last measurement on.
        forecast : mapping of str to (horizon,), optional
            Coming values of inputs that are not designed. By default they keep their last value.

        Raises
        ------
        ValueError
            The model does not have the inputs or the outputs that the limits name, too few samples
            are given, or a forecast ends too early.
        """
        generator = np.random.default_rng([self.seed, self.n_decisions])
        identified, known = self._read(model, outputs, inputs)
        if identified is None:
            stretch = self.draw(1, self._centres(), generator, self.n_decisions)[0]
            designed = self._without_plan(stretch, "there is no model yet")
        else:
            dynamics = Dynamics(identified)
            self._check(dynamics)
            designed = self._choose(dynamics, *known, forecast or {}, generator)
        self.n_decisions += 1
        self.n_fallbacks += designed.fallback != ""
        return designed

    def should_end(
        self,
        designed: DesignedInput,
        n_applied: int,
        model: IdentifiedModel | Identification | Model | JointModel | None,
        outputs: ArrayLike | None = None,
        inputs: ArrayLike | None = None,
        forecast: Mapping[str, ArrayLike] | None = None,
    ) -> bool:
        """Return whether the rest of a stretch should not be applied.

        The model as it is now simulates the rest from the last measurements. The samples that were
        measured beyond the limits of the outputs since the stretch began, and those that are now
        expected in the rest, must be at most twice as many as the larger of `probability` and
        ``designed.outside`` allows for the stretch, or a single one. Without limits of outputs,
        and without a plan, a stretch never ends early.

        Parameters
        ----------
        designed : DesignedInput
            The stretch, as `next` returned it.
        n_applied : int
            Samples of it that have been applied.
        model, outputs, inputs, forecast
            As for `next`, at present. Of the last `n_applied` outputs, those that are given count
            as measured since the stretch began.

        Raises
        ------
        ValueError
            As `next`.
        """
        n_planned = len(next(iter(designed.inputs.values())))
        check_whole(n_applied, 0, "InformativeInput.should_end: n_applied", below=n_planned + 1)
        if not self.output_limits or not len(designed.mean) or n_applied == n_planned:
            return False
        identified, (known_outputs, known_inputs) = self._read(model, outputs, inputs)
        if identified is None:
            return False
        dynamics = Dynamics(identified)
        self._check(dynamics)
        n_rest = n_planned - n_applied
        others = self._coming_others(dynamics.narx, known_inputs, forecast or {}, n_rest)
        rest = np.column_stack([designed.inputs[name][n_applied:] for name in self.limits])
        simulated = self._simulate(dynamics, known_outputs, known_inputs, others, rest[None])
        if not np.isfinite(simulated.path).all():
            return True  # the model diverges
        risk = self._risk(dynamics, simulated)
        n_expected = risk.outside[0] * risk.mean.shape[1]
        since_start = known_outputs[max(0, len(known_outputs) - n_applied) :]
        n_measured = self._count_outside(dynamics.narx, since_start)
        fraction = max(self.probability, designed.outside)
        n_allowed = max(1.0, MAX_EXCESS_BEYOND_LIMITS * fraction * n_planned)
        return bool(n_measured + n_expected > n_allowed)

    # --- what is known ----------------------------------------------------------------------------

    def _read(
        self,
        model: IdentifiedModel | Identification | Model | JointModel | None,
        outputs: ArrayLike | None,
        inputs: ArrayLike | None,
    ) -> tuple[Model | JointModel | None, tuple[Array, Array]]:
        """Return the model, and the last outputs and inputs in its order."""
        nothing = (np.zeros((0, 0)), np.zeros((0, 0)))
        if isinstance(model, Identification):
            model = model.model
        if isinstance(model, IdentifiedModel):
            joint = joint_model(model.identifications.values())
            if joint is None:
                return None, nothing
            if outputs is None and inputs is None:
                outputs, inputs = model.last_samples(joint.models[0].narx)
            model = joint
        if model is None:
            return None, nothing
        if not isinstance(model, Model | JointModel):
            raise UserTypeError(
                "InformativeInput.next: expected what identify returns, an Identification, a Model "
                f"or a JointModel, got {type(model).__name__}"
            )
        if outputs is None or inputs is None:
            raise UserError(
                "InformativeInput.next: expected the last outputs and inputs of the plant, which "
                "only a model that follows it by `step` knows itself"
            )
        narx = JointModel.of(model).models[0].narx
        known_outputs = matrix(outputs, len(narx.output_names), "outputs")
        known_inputs = matrix(inputs, len(narx.input_names), "inputs")
        if not len(known_outputs) or len(known_outputs) - len(known_inputs) not in (0, 1):
            raise UserError(
                "InformativeInput.next: expected as many last inputs as outputs, or one less, got "
                f"{len(known_inputs)} inputs and {len(known_outputs)} outputs"
            )
        n_needed = max(narx.max_lag, 1)
        if len(known_outputs) < n_needed:
            raise UserError(
                f"InformativeInput.next: expected at least {n_needed} outputs, as many as the "
                f"longest lag, got {len(known_outputs)}"
            )
        return model, (known_outputs, known_inputs)

    def _check(self, dynamics: Dynamics) -> None:
        """Raise UserError unless the model has the signals that limits name."""
        for kind, names, known in (
            ("limits", self.limits, dynamics.narx.input_names),
            ("output_limits", self.output_limits, dynamics.narx.output_names),
        ):
            unknown = [name for name in names if name not in known]
            if unknown:
                raise UserError(
                    f"InformativeInput: {kind} name {unknown}, the model has {list(known)}"
                )

    # --- candidates -------------------------------------------------------------------------------

    def _centres(self) -> Array:
        """Return the middle of the range of every designed input."""
        return np.array([limits.middle for limits in self.limits.values()])

    def draw(
        self, n_drawn: int, previous: Array, generator: np.random.Generator, first_class: int = 0
    ) -> Array:
        """Draw candidates (n, H, number of designed inputs) within the limits of the inputs.

        Parameters
        ----------
        n_drawn : int
        previous : (number of designed inputs,)
            Inputs before the first sample.
        generator : numpy.random.Generator
        first_class : int
            The classes take turns, from the class of this number on.
        """
        drawn = np.empty((n_drawn, self.horizon, len(self.limits)))
        for i, stretch in enumerate(drawn):
            kind = self.classes[(first_class + i) % len(self.classes)]
            for j, limits in enumerate(self.limits.values()):
                unit = kind.draw(self.horizon, generator)
                stretch[:, j] = limits.stretch(unit, previous[j])
        return drawn

    def _vary(self, best: Array, previous: Array, generator: np.random.Generator) -> Array:
        """Return variants of a stretch (H, ...), which follow others in a part of their samples."""
        variants = self.draw(self.n_candidates, previous, generator)
        for variant in variants:
            first, last = np.sort(generator.integers(0, self.horizon + 1, size=2))
            variant[:first] = best[:first]
            variant[last:] = best[last:]
            for j, limits in enumerate(self.limits.values()):
                variant[:, j] = limits.keep(variant[:, j], previous[j])
        return variants

    def _simulate(
        self,
        dynamics: Dynamics,
        outputs: Array,
        inputs: Array,
        others: Array,
        stretches: Array,
    ) -> _Candidates:
        """Simulate the mean of the outputs on stretches (b, n, ...).

        `others` (n, n_u) has the coming values of the inputs that are not designed. The plan ends
        with the output that the last sample of the stretch has caused.
        """
        names = dynamics.narx.input_names
        coming = np.repeat(others[None], len(stretches), axis=0)
        for j, name in enumerate(self.limits):
            coming[:, :, names.index(name)] = stretches[:, :, j]
        past = np.repeat(inputs[None], len(stretches), axis=0)
        held = coming[:, -1:]  # an input without delay acts on the last planned output
        whole = np.concatenate([past, coming, held], axis=1)
        rows = np.arange(len(outputs), whole.shape[1])
        exogenous = exogenous_rows(dynamics.narx, whole, rows)
        last = past_outputs(outputs, len(outputs) - 1, dynamics)
        start = np.repeat(last, len(stretches), axis=0)
        path, _ = follow_mean(dynamics, start, exogenous)
        return _Candidates(stretches, exogenous, path)

    # --- choice -----------------------------------------------------------------------------------

    def _choose(
        self,
        dynamics: Dynamics,
        outputs: Array,
        inputs: Array,
        forecast: Mapping[str, ArrayLike],
        generator: np.random.Generator,
    ) -> DesignedInput:
        """Return the best candidate within the limits."""
        columns = [dynamics.narx.input_names.index(name) for name in self.limits]
        previous = inputs[-1, columns] if len(inputs) else self._centres()
        others = self._coming_others(dynamics.narx, inputs, forecast, self.horizon)
        stretches = self.draw(self.n_candidates, previous, generator)
        candidates = self._simulate(dynamics, outputs, inputs, others, stretches)
        region = self._region(dynamics, candidates)
        gains = self._gains(dynamics, candidates, region)
        for _ in range(self.n_refinements):
            if not np.isfinite(gains).any():
                break
            best = candidates.stretches[int(np.nanargmax(gains))]
            variants = self._vary(best, previous, generator)
            tried = self._simulate(dynamics, outputs, inputs, others, variants)
            both = zip(candidates, tried, strict=True)
            candidates = _Candidates(*(np.concatenate(pair) for pair in both))
            gains = np.append(gains, self._gains(dynamics, tried, region))
        if not np.isfinite(gains).any():
            hold = np.repeat(previous[None], self._n_applied_by_fallback, axis=0)
            return self._without_plan(hold, "the model diverges on all candidates")
        return self._best_within_limits(dynamics, candidates, gains)

    def _coming_others(
        self, narx: Narx, inputs: Array, forecast: Mapping[str, ArrayLike], n_coming: int
    ) -> Array:
        """Return the coming inputs (n_coming, n_u), of which the designed ones do not matter."""
        coming = np.zeros((n_coming, len(narx.input_names)))
        for j, name in enumerate(narx.input_names):
            if name in forecast:
                values = vector(forecast[name], None, f"forecast of {name!r}")
                if len(values) < n_coming:
                    raise UserError(
                        f"forecast of {name!r}: expected {n_coming} samples, as many as are "
                        f"planned, got {len(values)}"
                    )
                coming[:, j] = values[:n_coming]
            elif len(inputs):
                coming[:, j] = inputs[-1, j]
        unknown = [name for name in forecast if name not in narx.input_names]
        if unknown:
            raise UserError(f"forecast: {unknown} are no inputs of the model")
        return coming

    def _region(self, dynamics: Dynamics, candidates: _Candidates) -> Array:
        """Return the regressors (R, p) at which the model shall become good.

        By default they are some of those that the candidates of this decision and of the last ones
        visit. A criterion without a region gets none.
        """
        if self.region is not None:
            return matrix(self.region, dynamics.n_features, "region")
        if not self.criterion.has_region:
            return np.zeros((0, dynamics.n_features))
        visited = dynamics.regressors_along(candidates.path, candidates.exogenous)
        is_finite = np.isfinite(visited).all(axis=2)
        self._visited.append(_thin_out(visited[is_finite]))
        return _thin_out(np.concatenate(self._visited))

    def _gains(self, dynamics: Dynamics, candidates: _Candidates, region: Array) -> Array:
        """Return the gain (b,) of every candidate, all outputs together; nan if it diverges."""
        n_candidates, n_steps, n_features = candidates.exogenous.shape
        visited = dynamics.regressors_along(candidates.path, candidates.exogenous)
        is_finite = np.isfinite(candidates.path).all(axis=(1, 2))
        flat = np.where(np.isfinite(visited), visited, 0.0).reshape(-1, n_features)
        gains = np.zeros(n_candidates)
        for model in dynamics.models:
            projected = project(model, flat)
            projected_region = project(model, region)
            for i in np.flatnonzero(is_finite):
                planned = projected.part(slice(i * n_steps, (i + 1) * n_steps))
                gains[i] += self.criterion.gain(PlannedOutput(model.gp, planned, projected_region))
        gains[~is_finite] = np.nan
        return gains

    def _best_within_limits(
        self,
        dynamics: Dynamics,
        candidates: _Candidates,
        gains: Array,
    ) -> DesignedInput:
        """Return the candidate of the largest gain within the limits of the outputs.

        Bands are computed only for candidates that the mean path does not exclude.
        """
        (finite,) = np.nonzero(np.isfinite(gains))
        least_outside = np.full(len(gains), np.inf)
        least_outside[finite] = self._least_outside(dynamics, candidates.of(finite))
        is_possible = least_outside <= self.probability
        by_gain = np.argsort(-gains)
        order = by_gain[is_possible[by_gain]]
        n_excluded = 0
        if not len(order):
            n_excluded = len(finite)
            order = np.argsort(least_outside)[: min(N_JUDGED_TOGETHER, len(finite))]
        n_together = N_JUDGED_TOGETHER if self.output_limits else 1
        least: tuple[float, int, _Risk] | None = None
        for begin in range(0, len(order), n_together):
            chosen = order[begin : begin + n_together]
            risk = self._risk(dynamics, candidates.of(chosen))
            for i, number in enumerate(chosen.tolist()):
                one = _Risk(*(values[i : i + 1] for values in risk))
                outside = float(one.outside[0])
                if outside <= self.probability and not n_excluded:
                    n_refused = int(np.count_nonzero(gains > gains[number]))
                    return self._planned(candidates, number, one, gains, n_refused, "")
                if least is None or outside < least[0]:
                    least = outside, number, one
        assert least is not None
        outside, number, one = least
        why = (
            f"no candidate keeps the outputs within their limits; this one leaves them in "
            f"{100 * outside:.0f} % of the planned samples"
        )
        return self._planned(candidates, number, one, gains, len(finite), why)

    def _least_outside(self, dynamics: Dynamics, candidates: _Candidates) -> Array:
        """Return a lower bound (b,) of the fraction of the samples beyond the limits.

        The band is about the mean path, and at least as wide as the noise: a sample whose mean is
        beyond a limit is beyond it with probability 1/2 at least, and one whose mean is within it
        with the probability that the noise alone gives.
        """
        mean = candidates.path[:, dynamics.n_lags :]
        outside = np.zeros(mean.shape[:2])
        for name, (low, high) in self.output_limits.items():
            i = dynamics.narx.output_names.index(name)
            noise_std = np.sqrt(dynamics.noise_variance[i])
            below = np.minimum(ndtr((low - mean[:, :, i]) / noise_std), 0.5)
            above = np.minimum(ndtr((mean[:, :, i] - high) / noise_std), 0.5)
            outside += below + above
        return np.minimum(outside, 1.0).mean(axis=1)

    def _risk(self, dynamics: Dynamics, candidates: _Candidates) -> _Risk:
        """Predict the outputs of candidates, and how often they would leave their limits."""
        mean = candidates.path[:, dynamics.n_lags :]
        spread = variance_along(dynamics, candidates.path, candidates.exogenous)
        latent = dynamics.calibrated(spread, n_steps=mean.shape[1])
        std = np.sqrt(latent + dynamics.noise_variance)
        outside = np.zeros(mean.shape[:2])
        for name, (low, high) in self.output_limits.items():
            i = dynamics.narx.output_names.index(name)
            below = ndtr((low - mean[:, :, i]) / std[:, :, i])
            above = ndtr((mean[:, :, i] - high) / std[:, :, i])
            outside += below + above
        return _Risk(mean, std, np.minimum(outside, 1.0).mean(axis=1))

    def _planned(
        self,
        candidates: _Candidates,
        number: int,
        risk: _Risk,
        gains: Array,
        n_refused: int,
        fallback: str,
    ) -> DesignedInput:
        """Return a candidate with its plan."""
        half_width = Z_95 * risk.std[0]
        n_applied = self._n_applied_by_fallback if fallback else self.n_applied
        return DesignedInput(
            self._by_input(candidates.stretches[number, :n_applied]),
            risk.mean[0],
            risk.mean[0] - half_width,
            risk.mean[0] + half_width,
            float(gains[number]),
            float(risk.outside[0]),
            n_refused,
            fallback,
        )

    def _without_plan(self, stretch: Array, why: str) -> DesignedInput:
        """Return a stretch (H, number of designed inputs) of which nothing is predicted."""
        nothing = np.zeros((0, max(1, len(self.output_limits))))
        inputs = self._by_input(stretch[: self.n_applied])
        return DesignedInput(inputs, nothing, nothing, nothing, np.nan, np.nan, 0, why)

    @property
    def _n_applied_by_fallback(self) -> int:
        """Samples of a stretch without a good plan that are applied before the next decision."""
        return max(1, round(FALLBACK_FRACTION * (self.n_applied or self.horizon)))

    def _by_input(self, stretch: Array) -> dict[str, Array]:
        """Return the samples (n, number of designed inputs) to apply, by input."""
        return {name: stretch[:, j] for j, name in enumerate(self.limits)}

    def _count_outside(self, narx: Narx, outputs: Array) -> int:
        """Return how many of the measured outputs (n, m) are beyond the limits."""
        is_outside = np.zeros(len(outputs), dtype=bool)
        for name, (low, high) in self.output_limits.items():
            values = outputs[:, narx.output_names.index(name)]
            is_outside |= (values < low) | (values > high)
        return int(is_outside.sum())


def _thin_out(points: Array) -> Array:
    """Return every k-th of the points (n, p), so that at most `MAX_REGION_POINTS` are left."""
    step = -(-len(points) // MAX_REGION_POINTS)
    return points[:: max(step, 1)]
