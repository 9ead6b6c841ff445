"""Predictive control: the inputs of the next samples, planned with a model at each decision."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from sysid.arrays import Array, as_number, check_whole
from sysid.control.checks import (
    check_map,
    check_number,
    check_output_limits,
    check_signal,
    check_tracking,
)
from sysid.control.planning import Plan, Problem, QuadraticProgram
from sysid.control.prediction import (
    ModelPredictor,
    Predictor,
    Situation,
    check_driven,
    read_forecast,
)
from sysid.design.candidates import InputLimits
from sysid.errors import UserError, UserTypeError
from sysid.identification import Identification
from sysid.model.model import JointModel, Model
from sysid.narx.lags import Narx
from sysid.simulation.validation import Z_95

#: A signal over the horizon: a number, or the name of a signal of the forecast.
Signal: TypeAlias = float | str

#: Makes the predictor of a decision from the model, the situation, the forecast and the names of
#: the driven inputs. What it returns instead of a predictor is why there is none.
PredictorSource: TypeAlias = Callable[
    [Any, Situation, Mapping[str, ArrayLike], Sequence[str]], "Predictor | str"
]

#: Settings that map planned inputs to values, and those that map outputs to values.
INPUT_SETTINGS = ("price", "quadratic_price", "change_price")
OUTPUT_SETTINGS = ("output_limits", "tracking", "max_standard_deviation", "max_error")

#: Shares of a step that are tried, one after the other, until the cost does not rise.
STEP_SHARES = (1.0, 0.5, 0.25, 0.1)

#: After a step that was shortened the next ones are damped so much more.
DAMPING_FACTOR = 10.0

#: Decisions that the mean square of the standardised errors of plans remembers.
CALIBRATION_MEMORY = 200

#: Decisions with the expected errors that this mean begins with.
CALIBRATION_START = 20


class ControlDecision(NamedTuple):
    """What a policy has decided at a sample, and what it expects.

    The plan has T samples of the m outputs, the first of which is the next sample.
    """

    inputs: dict[str, Array]  # (T,) by driven input, from the present sample on
    mean: Array  # (T, m) planned outputs; (0, 0) if there is no plan
    low: Array  # (T, m) lower ends of the 95 % bands of a measurement
    high: Array  # (T, m) upper ends
    lower: Array  # (T, m) lower limits of the outputs; -inf where there is none
    upper: Array  # (T, m) upper limits
    margin: Array  # (T, m) by which the plan keeps away from the limits
    output_names: tuple[str, ...]
    cost: float  # of the plan; nan if there is none
    n_iterations: int  # quadratic programs solved
    reason: str  # why the fallback decides; "" if the plan does


class Policy(Protocol):
    """What decides about the inputs of a plant, with its present model."""

    @property
    def driven(self) -> tuple[str, ...]:
        """Names of the inputs that are decided."""

    @property
    def horizon(self) -> int:
        """Samples T that it looks ahead: forecasts have T + 1 values."""

    @property
    def n_applied(self) -> int:
        """Samples of a decision that are applied before the next one."""

    def check(self, narx: Narx) -> None:
        """Raise UserError if a model with these lags, or what is installed, cannot serve."""

    def decide(
        self, identification: Any, situation: Situation, forecast: Mapping[str, ArrayLike]
    ) -> ControlDecision:
        """Return the inputs from the present sample on."""


def online_model(
    model: Any, situation: Situation, forecast: Mapping[str, ArrayLike], driven: Sequence[str]
) -> ModelPredictor | str:
    """Return the predictor of an identification or a model, or why there is none.

    Raises
    ------
    TypeError
        If `model` is neither, nor None.
    """
    if isinstance(model, Identification):
        model = model.model
    if model is None:
        return "there is no model yet"
    if not isinstance(model, Model | JointModel):
        raise UserTypeError(
            "PredictiveControl.decide: expected an Identification, a Model or a JointModel, got "
            f"{type(model).__name__}"
        )
    n_known = min((len(values) for values in situation.outputs.values()), default=0)
    if n_known < JointModel.of(model).models[0].narx.max_lag:
        return "there are fewer samples than lags"
    return ModelPredictor(model, situation, forecast, driven)


@dataclass
class PredictiveControl:
    """Plans the inputs over a horizon with the present model, at each decision anew.

    With the moves z (levels of the inputs, each held for some samples), the planned outputs y and
    slacks s >= 0, a decision at sample k minimises::

        sum_j  price u_j + quadratic_price u_j^2
          + sum_i  weight (y_i - reference_i)^2
          + change_price sum (z_b - z_(b-1))^2  +  violation sum (s_i + s_i^2)  +  cost(y, u)

        low <= u <= high,   |u_j - u_(j-1)| <= rate
        lower_i + t std_i - s_i  <=  y_i  <=  upper_i - t std_i + s_i

    over the inputs u_k ... u_(k+T-1) and the outputs y_(k+1) ... y_(k+T). The limits of the inputs
    are kept. Those of the outputs are soft: a slack s, one for each limited output and sample,
    costs `violation`. They are tightened by t standard deviations of a measurement at that sample.
    The slack has the unit of its output.

    It is solved by sequential quadratic programming: the outputs are linearised about the present
    plan (`Predictor.linearise`), the convex quadratic program in the moves and slacks is solved,
    and the step is shortened until the cost does not rise. The curvature of the outputs is left
    out (Gauss-Newton), and a `cost` of your own enters with the positive part of its Hessian. The
    standard deviations are those along the first plan of a decision, and are kept while the plan
    changes (zero-order robust optimisation: Feng, Di Cairano and Quirynen 2020; with Gaussian
    processes: Lahr, Zanelli, Carron and Zeilinger 2023). They are multiplied by the root mean
    square of the standardised errors of the last plans, for each of the `n_applied` samples until
    the next decision; later samples have the factor of the last one. While the fallback decides,
    predictions of the past samples with the applied inputs take the place of plans.

    A plan is applied only if it is trustworthy. Otherwise the decision states the `reason`, holds
    the last inputs, and leaves it to the caller to apply something else.

    Parameters
    ----------
    inputs : mapping of str to InputLimits or (low, high) or (low, high, rate)
        Inputs that are planned, with their limits [unit of the input; rate per sample].
    horizon : int
        Samples T of a plan.
    n_applied : int
        Samples that are applied before the next decision.
    moves : int or sequence of int
        Samples for which an input holds each of its levels. A number: all are held as long, the
        last one at most. Several numbers: they sum to the horizon.
    output_limits : mapping of str to (low, high)
        Limits of outputs: numbers [unit of the output], None, or names of signals of the forecast.
    probability : float, optional
        The limits are tightened so that a measurement is beyond one of them with this probability,
        if the errors are normal: ``t = -Phi^-1(probability)``.
    tightening : float, optional
        t itself, instead of a probability.
    violation : float
        Price of a slack [cost per unit of the output, and per its square].
    price, quadratic_price : mapping of str to float or str
        Price of an input for each sample [cost per unit, and per its square], a number or the
        name of a signal of the forecast.
    change_price : mapping of str to float
        Price of the squared change from one level to the next [cost per squared unit].
    tracking : mapping of str to (reference, weight)
        Outputs that follow a reference, a number or the name of a signal of the forecast [cost per
        squared unit of the output].
    cost : callable or str, optional
        A term of your own, or the dotted name of its function. ``cost(outputs, inputs, forecast)``
        returns a scalar CasADi expression. Each argument maps names to vectors of CasADi symbols:
        outputs (T,), inputs (T,) and signals of the forecast (T + 1,).
    start : float
        Time before which no plan is applied [s].
    iterations : int
        Quadratic programs of a decision, at most. With more the plan is not applied.
    tolerance : float
        A plan is final if no input changes by more than this fraction of its range, or if the cost
        falls, or is expected to fall, by less than this fraction of it. (The cost counts with a
        tenth of the price of full inputs at least.)
    seconds : float, optional
        Time after which a decision is not continued [s], for live plants. With it the same samples
        may lead to other inputs.
    max_standard_deviation : mapping of str to float
        Largest standard deviation of the planned outputs by output [unit of the output].
    max_error : mapping of str to float
        Largest root mean square by output [unit of the output] of the error with which the present
        model predicts the last T samples from the sample before them.
    predictors : callable, optional
        Makes the predictor of a decision, see `PredictorSource`; None: `online_model`.
    solver : str
        Solver of the quadratic programs, a plugin of ``casadi.conic``.

    Attributes
    ----------
    n_decisions : int
    reasons : collections.Counter
        How often which reason has left a decision to the fallback.

    Raises
    ------
    ValueError, TypeError
        A setting is not as described, or limits contradict each other.
    """

    inputs: Mapping[str, Any]
    horizon: int = 96
    n_applied: int = 1
    moves: int | Sequence[int] = 4
    output_limits: Mapping[str, Sequence[Signal | None]] | None = None
    probability: float | None = 0.05
    tightening: float | None = None
    violation: float = 100.0
    price: Mapping[str, Signal] | None = None
    quadratic_price: Mapping[str, Signal] | None = None
    change_price: Mapping[str, float] | None = None
    tracking: Mapping[str, Sequence[Signal]] | None = None
    cost: Callable[..., Any] | str | None = None
    start: float = 0.0  # s
    iterations: int = 10
    tolerance: float = 0.01
    seconds: float | None = None
    max_standard_deviation: Mapping[str, float] | None = None
    max_error: Mapping[str, float] | None = None
    predictors: PredictorSource | None = None
    solver: str = "piqp"
    n_decisions: int = field(default=0, init=False)
    reasons: Counter[str] = field(default_factory=Counter, init=False)
    _last_plan: Array | None = field(default=None, init=False, repr=False)
    _last_decision: ControlDecision | None = field(default=None, init=False, repr=False)
    _program: QuadraticProgram | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, Mapping) or not self.inputs:
            raise UserError(
                "PredictiveControl: expected the limits of at least one input, such as "
                'inputs={"pump": (0, 10)}, or policy.inputs={pump: [0, 10]} of a controller in a '
                f"configuration, got {self.inputs!r}"
            )
        self.inputs = {name: InputLimits.of(name, given) for name, given in self.inputs.items()}
        check_whole(self.horizon, 1, "PredictiveControl: horizon")
        check_whole(self.n_applied, 1, "PredictiveControl: n_applied", below=self.horizon + 1)
        check_whole(self.iterations, 1, "PredictiveControl: iterations")
        for name in ("violation", "tolerance"):
            check_number(name, getattr(self, name), above=0.0)
        check_number("start", self.start)
        if self.seconds is not None:
            check_number("seconds", self.seconds, least=0.0)
        for kind in (*INPUT_SETTINGS, *OUTPUT_SETTINGS):
            check_map(kind, getattr(self, kind))
        check_output_limits(self._map("output_limits"))
        check_tracking(self._map("tracking"))
        for kind in ("max_standard_deviation", "max_error"):
            for name, value in self._map(kind).items():
                check_number(f"{kind} of {name!r}", value, above=0.0)
        self._check_prices()
        if self.predictors is not None and not callable(self.predictors):
            raise UserTypeError(
                f"PredictiveControl: expected a function as predictors, got {self.predictors!r}"
            )
        self._own_function = _function_of(self.cost)
        self._squares = np.ones((self.n_applied, 0))
        self._n_squares = CALIBRATION_START
        self._tightening = self._read_tightening()
        self._lengths = self._read_moves()

    def _check_prices(self) -> None:
        """Raise UserError unless all prices are those of planned inputs, and convex."""
        for kind in INPUT_SETTINGS:
            unknown = [name for name in self._map(kind) if name not in self.inputs]
            if unknown:
                raise UserError(
                    f"PredictiveControl: {kind} names {unknown}, the planned inputs are "
                    f"{list(self.inputs)}"
                )
        for name, value in self._map("price").items():
            check_signal(f"price of {name!r}", value)
        for name, value in self._map("quadratic_price").items():
            check_signal(f"quadratic_price of {name!r}", value, least=0.0)
        for name, value in self._map("change_price").items():
            check_number(f"change_price of {name!r}", value, least=0.0)

    def _read_tightening(self) -> float:
        """Return the number of standard deviations by which limits are tightened."""
        if self.tightening is not None:
            if not isfinite(as_number(self.tightening)):
                raise UserError(
                    f"PredictiveControl: expected a finite tightening, got {self.tightening!r}"
                )
            return float(self.tightening)
        if self.probability is None or not 0 < as_number(self.probability) < 1:
            raise UserError(
                "PredictiveControl: expected a tightening, or a probability above 0 and below 1, "
                f"got tightening={self.tightening!r} and probability={self.probability!r}"
            )
        return -float(ndtri(self.probability))

    def _read_moves(self) -> tuple[int, ...]:
        """Return the samples for which each level is held; they sum to the horizon."""
        if isinstance(self.moves, Sequence):
            lengths = tuple(self.moves)
        else:
            check_whole(self.moves, 1, "PredictiveControl: moves", below=self.horizon + 1)
            n_whole, rest = divmod(self.horizon, self.moves)
            lengths = (self.moves,) * n_whole + ((rest,) if rest else ())
        for length in lengths:
            check_whole(length, 1, "PredictiveControl: moves")
        if sum(lengths) != self.horizon:
            raise UserError(
                f"PredictiveControl: moves of {list(lengths)} samples last {sum(lengths)}, "
                f"expected the horizon of {self.horizon} samples"
            )
        return lengths

    @property
    def driven(self) -> tuple[str, ...]:
        """Names of the inputs that are planned."""
        return tuple(self.inputs)

    def check(self, narx: Narx) -> None:
        """Raise UserError if a model with these lags cannot plan the inputs over the horizon.

        It is also raised if CasADi or the solver is missing, which the first plan would find late.
        """
        self._quadratic_program()
        check_driven(narx, self.driven)
        longest = max(narx.without_linear().largest_lag(name) for name in self.driven)
        if self.horizon < longest:
            raise UserError(
                f"PredictiveControl: the horizon of {self.horizon} samples is shorter than the "
                f"longest lag of the planned inputs, {longest} samples; take a longer one"
            )
        named = dict.fromkeys(name for kind in OUTPUT_SETTINGS for name in self._map(kind))
        unknown = [name for name in named if name not in narx.output_names]
        if unknown:
            raise UserError(
                f"PredictiveControl: {unknown} are no outputs of the model, which has "
                f"{list(narx.output_names)}"
            )

    def decide(
        self, identification: Any, situation: Situation, forecast: Mapping[str, ArrayLike]
    ) -> ControlDecision:
        """Return the inputs from the present sample on.

        Parameters
        ----------
        identification : Identification or Model or JointModel or None
            What is known about the plant; what `predictors` expects.
        situation : Situation
            The last samples, up to the measured output of the present one. Instead of a missing
            output (nan) the last known one counts.
        forecast : mapping of str to (T + 1,) array_like
            Values at the samples k ... k + T of inputs that are not planned, and of all signals
            that settings name. Prices are those at the samples of the inputs, limits and
            references those at the samples of the outputs.

        Raises
        ------
        ValueError, TypeError
            A signal is missing or ends too early, limits contradict each other, the model cannot
            plan the inputs, or the cost is not finite.
        """
        began = time.perf_counter()
        if not isinstance(situation, Situation) or not isinstance(forecast, Mapping):
            raise UserTypeError(
                "PredictiveControl.decide: expected a sysid.Situation and a mapping of forecasts, "
                f"or {{}}, got {type(situation).__name__} and {type(forecast).__name__}"
            )
        decision = self._decide(identification, situation, forecast, began)
        self.n_decisions += 1
        if decision.reason:
            self.reasons[decision.reason] += 1
            self._last_plan = None
            self._last_decision = None
        return decision

    def _decide(
        self,
        identification: Any,
        situation: Situation,
        forecast: Mapping[str, ArrayLike],
        began: float,
    ) -> ControlDecision:
        """Return the inputs from the present sample on."""
        previous = self._previous(situation)
        measured = situation.outputs
        situation = _without_missing(situation)
        self._calibrate(identification, situation, measured)
        predictor = self._predictor(identification, situation, forecast)
        if isinstance(predictor, str):
            return self._without_plan(previous, predictor)
        self._check_outputs(predictor.output_names)
        problem = self._problem(predictor.output_names, previous, forecast)
        if situation.time < self.start:
            return self._without_plan(previous, "plans are applied later (start)")
        reason = self._judge_model(identification, situation)
        if reason:
            return self._without_plan(previous, reason)
        plan = self._first_plan(problem)
        std = predictor.standard_deviation(problem.inputs_of(plan))
        std = std * self._band_factors(len(predictor.output_names))
        for name, largest in self._map("max_standard_deviation").items():
            if not std[:, predictor.output_names.index(name)].max() <= largest:
                return self._without_plan(previous, "the plan is too uncertain")
        if not np.isfinite(std).all():
            return self._without_plan(previous, "the model diverges on the first plan")
        margin = self._tightening * std
        found = self._optimise(predictor, problem.tightened(margin), plan, std, began)
        if not found.reason:
            found = found._replace(lower=problem.lower, upper=problem.upper, margin=margin)
            self._last_decision = found
        return found

    # --- calibration ------------------------------------------------------------------------------

    def _calibrate(
        self, model: Any, situation: Situation, measured: Mapping[str, ArrayLike]
    ) -> None:
        """Include the errors of the last plan in their running mean square.

        If the last decision was left to the fallback, the present model predicts the samples since
        then, with the inputs that were applied. Otherwise bands that a few bad plans have widened
        would stay wide, and no plan would be applied any more.
        """
        last = self._last_decision
        self._last_decision = None
        n_applied = self.n_applied
        if last is not None:
            names = last.output_names
            mean = last.mean[:n_applied]
            std = (last.high - last.mean)[:n_applied] / Z_95
        else:
            past = self._predict_since_last_decision(model, situation)
            if past is None:
                return
            names, mean, std = past
        values = np.column_stack([np.asarray(measured[name])[-n_applied:] for name in names])
        if len(values) < n_applied:
            return
        if self._squares.shape != std.shape:
            self._squares = np.ones(std.shape)
        scaled = np.ones(std.shape)
        np.divide(values - mean, std, out=scaled, where=std > 0)
        scaled = np.where(np.isfinite(scaled), scaled, 1.0)
        # the standard deviations had the present factors already
        self._n_squares = min(self._n_squares + 1, CALIBRATION_MEMORY)
        self._squares += self._squares * (np.square(scaled) - 1.0) / self._n_squares

    def _predict_since_last_decision(
        self, model: Any, situation: Situation
    ) -> tuple[tuple[str, ...], Array, Array] | None:
        """Return outputs, means and standard deviations (n_applied, m) with the applied inputs.

        None before any plan was compared with what came, and if the past cannot be predicted: a
        predictor of one's own may need the true state, which is known at the present only.
        """
        has_planned = self._n_squares > CALIBRATION_START
        may_need_state = self.predictors is not None and situation.state is not None
        if not has_planned or may_need_state:
            return None
        past = self._predict_past(model, situation, self.n_applied)
        if past is None:
            return None
        predictor, driven = past
        names = predictor.output_names
        mean = _mean_of(predictor, driven)
        std = predictor.standard_deviation(driven) * self._band_factors(len(names))
        return names, mean[: self.n_applied], std[: self.n_applied]

    def _band_factors(self, n_outputs: int) -> Array:
        """Return the factors (T, m) of the standard deviations of a plan."""
        if self._squares.shape[1] != n_outputs:
            return np.ones((self.horizon, n_outputs))
        n_more = self.horizon - self.n_applied
        return np.sqrt(np.pad(self._squares, ((0, n_more), (0, 0)), mode="edge"))

    def _map(self, name: str) -> Mapping[str, Any]:
        """Return a setting that maps names of signals to values; empty if it is None."""
        return getattr(self, name) or {}

    def _predictor(
        self, model: Any, situation: Situation, forecast: Mapping[str, ArrayLike]
    ) -> Predictor | str:
        """Return the predictor of a decision, or why there is none."""
        make = online_model if self.predictors is None else self.predictors
        return make(model, situation, forecast, self.driven)

    # --- what is known ----------------------------------------------------------------------------

    def _previous(self, situation: Situation) -> Array:
        """Return the last inputs (q,) that were applied; the middle of their ranges before."""
        previous = []
        for name, limits in self.inputs.items():
            past = situation.inputs.get(name, np.zeros(0))
            previous.append(past[-1] if len(past) else limits.middle)
        return np.array(previous, dtype=np.float64)

    def _check_outputs(self, names: Sequence[str]) -> None:
        """Raise UserError if a setting names an output that is not predicted."""
        for kind in OUTPUT_SETTINGS:
            unknown = [name for name in self._map(kind) if name not in names]
            if unknown:
                raise UserError(
                    f"PredictiveControl: {kind} names {unknown}, the predicted outputs are "
                    f"{list(names)}"
                )

    def _signal(self, given: Signal, forecast: Mapping[str, ArrayLike]) -> Array:
        """Return a signal (T + 1,) at the samples k ... k + T."""
        if isinstance(given, str):
            return read_forecast(forecast, given, self.horizon)
        return np.full(self.horizon + 1, float(given))

    def _problem(
        self, names: Sequence[str], previous: Array, forecast: Mapping[str, ArrayLike]
    ) -> Problem:
        """Return the problem of a decision, without the tightening of its limits."""
        n_steps = self.horizon
        limits = list(self.inputs.values())
        lower = np.full((n_steps, len(names)), -np.inf)
        upper = np.full((n_steps, len(names)), np.inf)
        for name, (low, high) in self._map("output_limits").items():
            o = names.index(name)
            if low is not None:
                lower[:, o] = self._signal(low, forecast)[1:]
            if high is not None:
                upper[:, o] = self._signal(high, forecast)[1:]
            if not (lower[:, o] < upper[:, o]).all():
                i = int(np.argmin(lower[:, o] < upper[:, o]))
                raise UserError(
                    f"output_limits of {name!r}: expected low < high, got {lower[i, o]:g} and "
                    f"{upper[i, o]:g} in {i + 1} samples"
                )
        weight = np.zeros(len(names))
        reference = np.zeros((n_steps, len(names)))
        for name, (signal, value) in self._map("tracking").items():
            reference[:, names.index(name)] = self._signal(signal, forecast)[1:]
            weight[names.index(name)] = value
        prices = []
        for kind in (self._map("price"), self._map("quadratic_price")):
            columns = [self._signal(kind.get(name, 0.0), forecast)[:-1] for name in self.inputs]
            prices.append(np.column_stack(columns))
        quadratic_price = prices[1]
        if not (quadratic_price >= 0).all():
            i, column = np.argwhere(~(quadratic_price >= 0))[0]
            name = list(self.inputs)[column]
            raise UserError(
                f"PredictiveControl: quadratic_price of {name!r}: expected values of at least 0, "
                f"got {quadratic_price[i, column]:g} in {i} samples"
            )
        return Problem(
            lengths=self._lengths,
            low=np.array([one.low for one in limits]),
            high=np.array([one.high for one in limits]),
            rate=np.array([one.rate for one in limits]),
            previous=previous,
            lower=lower,
            upper=upper,
            limited=tuple(names.index(name) for name in self._map("output_limits")),
            violation=self.violation,
            price=prices[0],
            quadratic_price=quadratic_price,
            change_price=np.array(
                [self._map("change_price").get(name, 0.0) for name in self.inputs]
            ),
            reference=reference,
            weight=weight,
            own_cost=self._own_cost(names, forecast),
        )

    def _own_cost(self, names: Sequence[str], forecast: Mapping[str, ArrayLike]) -> Any:
        """Return the cost of the user with the present forecast, or None."""
        if self._own_function is None:
            return None
        signals = {name: read_forecast(forecast, name, self.horizon) for name in forecast}
        program = self._quadratic_program()
        return program.own_cost(self._own_function, names, self.driven, signals, self.horizon)

    def _quadratic_program(self) -> QuadraticProgram:
        """Return what solves the quadratic programs; it is made when it is first needed."""
        if self._program is None:
            self._program = QuadraticProgram(self.solver)
        return self._program

    def _judge_model(self, model: Any, situation: Situation) -> str:
        """Return why the model is not good enough for a plan; empty if it is."""
        if not self.max_error:
            return ""
        n_steps = self.horizon
        past = self._predict_past(model, situation, n_steps)
        if past is None:
            return "the model cannot be judged yet"
        predictor, driven = past
        mean = _mean_of(predictor, driven)
        for name, largest in self._map("max_error").items():
            measured = np.asarray(situation.outputs[name])[-n_steps:]
            error = mean[:, predictor.output_names.index(name)] - measured
            if not np.sqrt(np.mean(np.square(error))) <= largest:
                return "the model is not good enough"
        return ""

    def _predict_past(
        self, model: Any, situation: Situation, n_steps: int
    ) -> tuple[Predictor, Array] | None:
        """Return what predicts the last `n_steps` samples from the one before them, or None.

        With it come the inputs (T, q) that were applied since then, continued by the last ones.
        """
        n_known = min(len(values) for values in situation.outputs.values())
        if n_known <= n_steps:
            return None
        n_earlier = n_known - n_steps
        earlier = Situation(
            situation.time,
            {name: values[:n_earlier] for name, values in situation.outputs.items()},
            {name: values[: n_earlier - 1] for name, values in situation.inputs.items()},
        )
        n_held = self.horizon + 1 - n_steps
        applied = {}
        for name, values in situation.inputs.items():
            since_then = np.asarray(values)[n_earlier - 1 :]
            applied[name] = np.pad(since_then, (0, n_held), mode="edge")
        predictor = self._predictor(model, earlier, applied)
        if isinstance(predictor, str):
            return None
        return predictor, np.column_stack([applied[name][:-1] for name in self.driven])

    # --- the plan ---------------------------------------------------------------------------------

    def _first_plan(self, problem: Problem) -> Array:
        """Return the levels (B, q) to begin with: those of the last plan, or the last inputs."""
        if self._last_plan is None:
            return problem.clip(np.repeat(problem.previous[None], len(self._lengths), axis=0))
        shifted = np.concatenate(
            [
                self._last_plan[self.n_applied :],
                np.repeat(self._last_plan[-1:], self.n_applied, axis=0),
            ]
        )
        return problem.clip(shifted[problem.first_samples])

    def _optimise(
        self, predictor: Predictor, problem: Problem, levels: Array, std: Array, began: float
    ) -> ControlDecision:
        """Improve the levels until they are final, and return the decision."""
        program = self._quadratic_program()
        plan = problem.evaluate(levels, _mean_of(predictor, problem.inputs_of(levels)))
        if not np.isfinite(plan.cost):
            self._refuse_cost(plan)
            return self._without_plan(problem.previous, "the model diverges on the first plan")
        n_iterations = 0
        damping = 1.0
        while True:
            if n_iterations == self.iterations:
                why = "the plan needs more iterations"
                return self._without_plan(problem.previous, why, n_iterations)
            is_late = self.seconds is not None and time.perf_counter() - began > self.seconds
            if is_late:
                why = "the plan needs more seconds"
                return self._without_plan(problem.previous, why, n_iterations)
            derivatives = predictor.linearise(problem.inputs_of(plan.levels)).sensitivity
            solved = program.solve(problem, plan, derivatives, damping)
            n_iterations += 1
            if solved is None:
                why = "the quadratic program was not solved"
                return self._without_plan(problem.previous, why, n_iterations)
            step = solved.levels - plan.levels
            size = float((np.abs(step) / (problem.high - problem.low)).max())
            expected = plan.cost - solved.cost
            small = self.tolerance * (abs(plan.cost) + problem.scale)
            is_final = expected <= small
            if not is_final:
                better, share = self._shorten(predictor, problem, plan, step)
                if better is None:
                    is_final = size <= self.tolerance
                    damping *= DAMPING_FACTOR**2
                else:
                    gained = plan.cost - better.cost
                    is_final = size * share <= self.tolerance
                    is_final |= gained <= small
                    damping *= DAMPING_FACTOR if share < 1 else 1 / DAMPING_FACTOR
                    damping = max(damping, 1.0)
                    plan = better
            if is_final:
                return self._planned(predictor.output_names, problem, plan, std, n_iterations)

    def _shorten(
        self, predictor: Predictor, problem: Problem, plan: Plan, step: Array
    ) -> tuple[Plan | None, float]:
        """Return the plan after the largest share of the step that lowers the cost, and it."""
        for share in STEP_SHARES:
            levels = problem.clip(plan.levels + share * step)
            tried = problem.evaluate(levels, _mean_of(predictor, problem.inputs_of(levels)))
            self._refuse_cost(tried)
            if tried.cost < plan.cost:
                return tried, share
        return None, 0.0

    def _refuse_cost(self, plan: Plan) -> None:
        """Raise UserError if the cost of the user is not finite at finite outputs."""
        if np.isfinite(plan.mean).all() and not np.isfinite(plan.cost):
            raise UserError(
                f"PredictiveControl: the cost is {plan.cost} at a plan within the limits; expected "
                "a finite number"
            )

    def _planned(
        self, names: Sequence[str], problem: Problem, plan: Plan, std: Array, n_iterations: int
    ) -> ControlDecision:
        """Return the decision to apply a plan."""
        driven = problem.inputs_of(plan.levels)
        self._last_plan = driven
        mean = plan.mean
        return ControlDecision(
            {name: driven[:, c] for c, name in enumerate(self.inputs)},
            mean,
            mean - Z_95 * std,
            mean + Z_95 * std,
            problem.lower,
            problem.upper,
            np.zeros_like(mean),
            tuple(names),
            plan.cost,
            n_iterations,
            "",
        )

    def _without_plan(self, previous: Array, why: str, n_iterations: int = 0) -> ControlDecision:
        """Return the decision to hold the last inputs."""
        held = {name: np.full(self.horizon, previous[c]) for c, name in enumerate(self.inputs)}
        nothing = np.zeros((0, 0))
        return ControlDecision(
            held,
            mean=nothing,
            low=nothing,
            high=nothing,
            lower=nothing,
            upper=nothing,
            margin=nothing,
            output_names=(),
            cost=np.nan,
            n_iterations=n_iterations,
            reason=why,
        )


def _without_missing(situation: Situation) -> Situation:
    """Return a situation with the last known output instead of each missing one (nan).

    Samples before the first known value of every output are left out.
    """
    outputs = {name: np.asarray(one, dtype=np.float64) for name, one in situation.outputs.items()}
    are_missing = {name: np.isnan(values) for name, values in outputs.items()}
    if not any(is_missing.any() for is_missing in are_missing.values()):
        return situation
    begin = 0
    for name, is_missing in are_missing.items():
        last_known = np.maximum.accumulate(np.where(is_missing, -1, np.arange(len(is_missing))))
        outputs[name] = outputs[name][last_known]
        begin = max(begin, int(np.count_nonzero(last_known < 0)))
    return situation._replace(
        outputs={name: values[begin:] for name, values in outputs.items()},
        inputs={name: np.asarray(values)[begin:] for name, values in situation.inputs.items()},
    )


def _mean_of(predictor: Predictor, driven: Array) -> Array:
    """Return the outputs (T, m) of a plan (T, q), without derivatives if they can be spared."""
    if isinstance(predictor, ModelPredictor):
        return predictor.mean(driven)
    return predictor.linearise(driven).mean


def _function_of(cost: Callable[..., Any] | str | None) -> Callable[..., Any] | None:
    """Return the function of a cost that may be given by its dotted name."""
    if not isinstance(cost, str):
        return cost
    module, _, name = cost.rpartition(".")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"PredictiveControl: cost: there is no function {cost}: {error}") from None
    if not callable(function):
        raise UserError(f"PredictiveControl: cost: {cost} is no function")
    return function
