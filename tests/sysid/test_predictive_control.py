"""Predictive control: the plan of a decision, its limits, and when the fallback decides."""

import sys
from copy import deepcopy

import numpy as np
import pytest
from scipy.optimize import minimize

from sysid import (
    Identification,
    Narx,
    PlanPrediction,
    PredictiveControl,
    Settings,
    Situation,
)
from sysid.errors import UserError, UserTypeError

pytest.importorskip("casadi")

T = 8  # samples of a plan
LIMITS = {"u": (0.0, 2.0)}
FREE = np.linspace(1.0, 2.0, T)  # output without input


class KnownPlant:
    """Outputs ``y = free + S g(u)`` with a known S and ``g(u) = u + bend u^2``."""

    output_names = ("y",)

    def __init__(self, driven, *, bend=0.0, std=0.0, free=FREE):
        self.driven = tuple(driven)
        self.bend = bend
        self.std = std
        self.free = free
        steps = np.subtract.outer(np.arange(T), np.arange(T))
        self.S = np.where(steps >= 0, 0.6 ** np.maximum(steps, 0), 0.0)

    def mean(self, driven):
        effect = driven + self.bend * np.square(driven)
        return self.free + self.S @ effect.sum(axis=1)

    def linearise(self, driven):
        slope = 1.0 + 2.0 * self.bend * driven
        sensitivity = self.S[:, None, :, None] * slope[None, None]
        return PlanPrediction(self.mean(driven)[:, None], sensitivity)

    def standard_deviation(self, driven):
        return np.full((T, 1), self.std)


def known_plant(**settings):
    """Return what makes the predictor of the known plant."""
    return lambda model, situation, forecast, driven: KnownPlant(driven, **settings)


def policy(inputs=LIMITS, predictors=None, **settings):
    defaults = {"horizon": T, "moves": 2, "tolerance": 1e-6, "iterations": 50}
    predictors = known_plant() if predictors is None else predictors
    return PredictiveControl(inputs, predictors=predictors, **(defaults | settings))


def situation(u=1.0, y=1.0, n=3):
    return Situation(0.0, {"y": np.full(n, y)}, {"u": np.full(n - 1, u)})


def decide(found, forecast=None, **known):
    return found.decide(None, situation(**known), forecast or {})


# --- the plan -------------------------------------------------------------------------------------


def naive_optimum(cost, n_levels, limits, rate=np.inf, previous=1.0):
    """Return the levels that a general optimiser finds from several starts."""
    best = None
    constraints = []
    if np.isfinite(rate):
        change = np.eye(n_levels) - np.eye(n_levels, k=-1)
        first = np.zeros(n_levels)
        first[0] = previous
        for sign in (1.0, -1.0):
            constraints.append(
                {"type": "ineq", "fun": lambda z, s=sign: rate - s * (change @ z - first)}
            )
    for start in np.linspace(*limits, 5):
        found = minimize(
            cost,
            np.full(n_levels, previous if constraints else start),
            bounds=[limits] * n_levels,
            constraints=constraints,
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 1000},
        )
        if best is None or found.fun < best.fun:
            best = found
    return best


@pytest.mark.parametrize("bend", [0.0, 0.3], ids=["linear", "nonlinear"])
@pytest.mark.parametrize("rate", [np.inf, 0.3], ids=["any change", "rate"])
def test_a_plan_tracks_as_a_general_optimiser_does(bend, rate):
    reference = np.append(0.0, np.where(np.arange(T) < 4, 2.0, 4.0))
    found = policy(
        {"u": (0.0, 2.0, rate)},
        known_plant(bend=bend),
        tracking={"y": ("reference", 3.0)},
        price={"u": 0.5},
        quadratic_price={"u": 0.2},
        change_price={"u": 0.4},
    )
    decision = decide(found, {"reference": reference})
    plant = KnownPlant(["u"], bend=bend)

    def cost(levels):
        u = np.repeat(levels, 2)
        y = plant.mean(u[:, None])
        changes = np.diff(np.append(1.0, levels))
        tracking = 3.0 * np.sum((y - reference[1:]) ** 2)
        return tracking + np.sum(0.5 * u + 0.2 * u**2) + 0.4 * np.sum(changes**2)

    expected = naive_optimum(cost, T // 2, (0.0, 2.0), rate)
    assert decision.reason == ""
    assert decision.cost == pytest.approx(expected.fun, rel=1e-4)
    np.testing.assert_allclose(decision.inputs["u"][::2], expected.x, atol=2e-2)
    np.testing.assert_allclose(
        decision.mean[:, 0], plant.mean(decision.inputs["u"][:, None]), atol=1e-9
    )


def test_limits_of_outputs_are_soft_and_tightened():
    lower = np.append(0.0, np.full(T, 3.0))
    margin = 2.0 * 0.1
    found = policy(
        predictors=known_plant(std=0.1),
        output_limits={"y": ("lower", None)},
        tightening=2.0,
        price={"u": 1.0},
        violation=10.0,
        moves=1,
    )
    decision = decide(found, {"lower": lower})
    plant = KnownPlant(["u"])

    def cost(u):
        slack = np.maximum(3.0 + margin - plant.mean(u[:, None]), 0.0)
        return np.sum(u) + 10.0 * np.sum(slack + slack**2)

    expected = naive_optimum(cost, T, (0.0, 2.0))
    assert decision.cost <= expected.fun + 1e-4
    assert decision.mean[1:, 0] == pytest.approx(3.0 + margin, abs=1e-3)
    np.testing.assert_array_equal(decision.lower[:, 0], lower[1:])
    np.testing.assert_allclose(decision.margin, margin)
    np.testing.assert_allclose(decision.high - decision.mean, 1.96 * 0.1, rtol=1e-3)


def test_a_probability_is_that_of_a_normal_error():
    found = policy(predictors=known_plant(std=0.5), output_limits={"y": (0.0, 9.0)})
    assert decide(found).margin[0, 0] == pytest.approx(0.5 * 1.6449, rel=1e-4)


def test_limits_that_no_plan_can_keep_cost_what_they_must():
    found = policy(output_limits={"y": (9.0, 10.0)}, tightening=0.0)
    decision = decide(found)
    assert decision.reason == ""
    np.testing.assert_allclose(decision.inputs["u"], 2.0)


def test_a_tightening_beyond_the_middle_keeps_to_the_middle():
    found = policy(predictors=known_plant(std=1.0), output_limits={"y": (2.0, 3.0)}, tightening=3.0)
    decision = decide(found)
    assert decision.mean[2:, 0] == pytest.approx(2.5, abs=0.1)


def test_several_inputs_share_the_work_by_their_prices():
    limits = {"u": (0.0, 1.0), "v": (0.0, 1.0)}
    found = policy(
        limits, output_limits={"y": (3.5, None)}, price={"u": 1.0, "v": 2.0}, tightening=0.0
    )
    known = Situation(0.0, {"y": np.ones(2)}, {"u": np.zeros(1), "v": np.zeros(1)})
    decision = found.decide(None, known, {})
    assert decision.inputs["u"][-1] > 0.3
    assert decision.inputs["v"][-1] == pytest.approx(0.0, abs=1e-6)


def test_an_input_outside_its_limits_returns_as_fast_as_it_may():
    found = policy({"u": (0.0, 2.0, 0.5)}, price={"u": 1.0}, moves=1)
    decision = decide(found, u=3.0)
    np.testing.assert_allclose(decision.inputs["u"][:4], [2.5, 2.0, 1.5, 1.0], atol=1e-6)


def test_prices_over_time_move_the_work():
    price = np.append(np.full(T // 2, 20.0), np.full(T // 2 + 1, 0.1))
    found = policy(price={"u": "price"}, tracking={"y": (2.5, 1.0)})
    inputs = decide(found, {"price": price}).inputs["u"]
    assert inputs[: T // 2].max() < 1e-3
    assert inputs[T // 2] > 0.5


# --- a cost of one's own --------------------------------------------------------------------------


def squared_error(outputs, inputs, forecast):
    import casadi

    error = outputs["y"] - forecast["reference"][1:]
    return 3.0 * casadi.sumsqr(error) + 0.1 * casadi.sumsqr(inputs["u"])


def test_a_cost_of_ones_own_is_minimised():
    forecast = {"reference": np.linspace(1.0, 4.0, T + 1)}
    own = decide(policy(cost=squared_error), forecast)
    built_in = policy(tracking={"y": ("reference", 3.0)}, quadratic_price={"u": 0.1})
    expected = decide(built_in, forecast)
    assert own.cost == pytest.approx(expected.cost, rel=1e-6)
    np.testing.assert_allclose(own.inputs["u"], expected.inputs["u"], atol=1e-4)


def test_a_concave_cost_goes_to_a_limit():
    def concave(outputs, inputs, forecast):
        return sum(-(inputs["u"][i] ** 2) for i in range(T)) + 100.0

    np.testing.assert_allclose(decide(policy(cost=concave)).inputs["u"], 2.0, atol=1e-6)


def test_a_cost_may_be_named():
    found = policy(cost="test_predictive_control.squared_error")
    assert decide(found, {"reference": np.ones(T + 1)}).reason == ""
    with pytest.raises(UserError, match=r"cost: .*no_such_module"):
        policy(cost="no_such_module.function")


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        (lambda y, u, d: y["y"][0] / 0.0, "the cost is inf"),
        (lambda y, u, d: u["u"], "must be a scalar expression"),
        (lambda y, u, d: y["z"], "failed: 'z'"),
    ],
    ids=["not finite", "vector", "error"],
)
def test_a_bad_cost_is_refused(cost, message):
    with pytest.raises(UserError, match=message):
        decide(policy(cost=cost))


# --- when the fallback decides --------------------------------------------------------------------


def test_without_a_trustworthy_plan_the_inputs_are_held():
    reasons = {
        "there is no model yet": policy(predictors=lambda *_: "there is no model yet"),
        "plans are applied later (start)": policy(start=10.0),
        "the plan is too uncertain": policy(
            predictors=known_plant(std=0.4), max_standard_deviation={"y": 0.3}
        ),
        "the plan needs more iterations": policy(
            predictors=known_plant(bend=2.0), iterations=1, tracking={"y": (4.0, 1.0)}
        ),
        "the plan needs more seconds": policy(seconds=0.0),
        "the model diverges on the first plan": policy(
            predictors=known_plant(free=np.full(T, np.nan))
        ),
    }
    for reason, found in reasons.items():
        decision = decide(found, u=0.7)
        assert decision.reason == reason
        np.testing.assert_array_equal(decision.inputs["u"], np.full(T, 0.7))
        assert dict(found.reasons) == {reason: 1}
        assert found.n_decisions == 1
        assert decision.mean.size == 0


@pytest.mark.parametrize("tightening", [0.0, 2.0])
def test_a_plan_whose_uncertainty_is_infinite_is_not_applied(tightening):
    plant = known_plant(std=np.inf)
    found = policy(predictors=plant, tightening=tightening, output_limits={"y": (0.0, None)})
    assert decide(found).reason == "the model diverges on the first plan"


def test_a_policy_that_has_decided_can_be_copied():
    found = policy(tracking={"y": (3.0, 1.0)})
    decide(found)
    copied = deepcopy(found)
    expected, decision = (decide(one) for one in (found, copied))
    np.testing.assert_array_equal(decision.inputs["u"], expected.inputs["u"])
    assert copied.n_decisions == 2


def test_a_program_that_is_not_solved_leaves_the_decision_to_the_fallback(monkeypatch):
    monkeypatch.setattr("sysid.control.planning.QuadraticProgram.solve", lambda *_: None)
    assert decide(policy()).reason == "the quadratic program was not solved"


def test_no_model_is_the_reason_of_the_online_model():
    narx = Narx({"y": 1}, {"u": 1})
    found = PredictiveControl(LIMITS, horizon=T)
    assert found.decide(None, situation(), {}).reason == "there is no model yet"
    untrained = Identification(narx, Settings())
    assert found.decide(untrained, situation(), {}).reason == "there is no model yet"
    with pytest.raises(UserTypeError, match="got str"):
        found.decide("model.nc", situation(), {})


def identified():
    """Return the identification of ``y[k + 1] = 0.8 y[k] + 0.2 u[k]``, and its signals."""
    rng = np.random.default_rng(0)
    u = np.repeat(rng.uniform(0.0, 2.0, 80), 4)
    y = np.zeros(len(u))
    for k in range(len(u) - 1):
        y[k + 1] = 0.8 * y[k] + 0.2 * u[k] + 1e-3 * rng.normal()
    narx = Narx({"y": 1}, {"u": 1})
    identification = Identification(narx, Settings(budget=30))
    rows = narx.regressors({"y": y, "u": u})
    identification.observe_many(rows.regressor, rows.target)
    return identification, y, u


def test_a_missing_output_counts_as_the_last_known_one_and_does_not_spoil_later_bands():
    seen = []

    def predictors(model, situation, forecast, driven):
        seen.append(situation)
        return KnownPlant(driven, std=0.1)

    found = policy(predictors=predictors, price={"u": 0.1})
    decide(found)
    outputs = {
        "y": np.array([np.nan, 1.0, 2.0, np.nan]),
        "z": np.array([np.nan, np.nan, 5.0, 6.0]),
    }
    inputs = {"u": np.array([0.1, 0.2, 0.3])}
    decision = found.decide(None, Situation(0.0, outputs, inputs), {})

    assert not decision.reason
    assert np.isfinite(decision.high).all()
    assert seen[-1].outputs["y"].tolist() == [2.0, 2.0]
    assert seen[-1].outputs["z"].tolist() == [5.0, 6.0]
    assert seen[-1].inputs["u"].tolist() == [0.3]


def test_without_any_measured_output_the_fallback_decides():
    identification, _, _ = identified()
    nothing = Situation(0.0, {"y": np.full(3, np.nan)}, {"u": np.ones(2)})
    found = PredictiveControl(LIMITS, horizon=T)

    assert found.decide(identification, nothing, {}).reason == "there are fewer samples than lags"


def test_a_loop_of_ones_own_follows_the_reference():
    identification, y, u = identified()
    found = PredictiveControl(LIMITS, horizon=12, moves=3, tracking={"y": ("reference", 1.0)})
    outputs, inputs = y.tolist(), u[:-1].tolist()
    for k in range(60):
        coming = np.where(k + np.arange(13) < 30, 0.5, 1.5)
        known = Situation(float(k), {"y": np.array(outputs)}, {"u": np.array(inputs)})
        decision = found.decide(identification, known, {"reference": coming})
        inputs.append(decision.inputs["u"][0])
        outputs.append(0.8 * outputs[-1] + 0.2 * inputs[-1])
    assert not found.reasons
    np.testing.assert_allclose(outputs[-48:-38], 0.5, atol=0.05)
    np.testing.assert_allclose(outputs[-15:], 1.5, atol=0.05)


def test_equal_decisions_are_equal_bit_by_bit():
    identification, y, u = identified()
    known = Situation(0.0, {"y": y[-20:]}, {"u": u[-20:-1]})
    decisions = []
    for _ in range(2):
        found = PredictiveControl(LIMITS, horizon=12, moves=3, tracking={"y": (1.0, 1.0)})
        decisions.append(found.decide(identification, known, {}))
    np.testing.assert_array_equal(decisions[0].inputs["u"], decisions[1].inputs["u"])


def test_a_model_that_predicts_the_past_badly_does_not_plan():
    identification, y, u = identified()
    settings = {"horizon": 12, "moves": 3, "max_error": {"y": 0.05}}
    known = Situation(0.0, {"y": y[-40:]}, {"u": u[-40:-1]})
    good = PredictiveControl(LIMITS, **settings)
    assert good.decide(identification, known, {}).reason == ""
    shifted = {"y": y[-40:] + np.linspace(0.0, 1.0, 40)}
    bad = PredictiveControl(LIMITS, **settings)
    decision = bad.decide(identification, known._replace(outputs=shifted), {})
    assert decision.reason == "the model is not good enough"
    short = Situation(0.0, {"y": y[-10:]}, {"u": u[-10:-1]})
    decision = PredictiveControl(LIMITS, **settings).decide(identification, short, {})
    assert decision.reason == "the model cannot be judged yet"


# --- calibration ----------------------------------------------------------------------------------


def test_bands_follow_the_errors_of_the_plans():
    found = policy(predictors=known_plant(std=0.1), output_limits={"y": (0.0, None)}, n_applied=2)
    rng = np.random.default_rng(0)
    decision = decide(found)
    for _ in range(300):
        measured = decision.mean[:2, 0] + np.array([0.1, 0.3]) * rng.normal(size=2)
        known = Situation(0.0, {"y": measured}, {"u": np.ones(1)})
        decision = found.decide(None, known, {})
    std = (decision.high - decision.mean)[:, 0] / 1.96
    assert std[0] == pytest.approx(0.1, rel=0.2)
    np.testing.assert_allclose(std[1:], std[1])
    assert std[1] == pytest.approx(0.3, rel=0.2)


def test_bands_that_bad_plans_have_widened_become_narrow_again_under_the_fallback():
    largest = {"y": 0.5}
    found = policy(predictors=known_plant(std=0.1), max_standard_deviation=largest, n_applied=2)
    decision = decide(found)
    n_plans = 0
    while not decision.reason:
        n_plans += 1
        measured = decision.mean[:2, 0] + 2.0
        decision = found.decide(None, Situation(0.0, {"y": measured}, {"u": np.ones(1)}), {})
    n_rejected = 0
    while decision.reason == "the plan is too uncertain":
        n_rejected += 1
        u = np.full(3, decision.inputs["u"][0])
        followed = KnownPlant(("u",)).mean(np.full((T, 1), u[0]))[:2]
        measured = np.append([1.0, 1.0], followed)
        decision = found.decide(None, Situation(0.0, {"y": measured}, {"u": u}), {})

    assert 0 < n_plans < 20
    assert 0 < n_rejected < 200
    assert not decision.reason


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inputs": {}}, "expected the limits of at least one input"),
        ({"inputs": {"u": (2.0, 0.0)}}, "limits low < high"),
        ({"horizon": 0}, "horizon"),
        ({"n_applied": T + 1}, "n_applied"),
        ({"moves": (3, 3)}, r"moves of \[3, 3\] samples last 6, expected the horizon of 8"),
        ({"output_limits": {"y": (2.0, 1.0)}}, "low < high, got 2 and 1"),
        ({"output_limits": {"y": 2.0}}, "expected a pair"),
        ({"tracking": {"y": 2.0}}, "expected a pair"),
        ({"price": {"v": 1.0}}, r"price names \['v'\]"),
        ({"probability": 1.0}, "a probability above 0 and below 1"),
        ({"tightening": np.nan}, "a finite tightening"),
        ({"violation": 0.0}, "violation above 0"),
        ({"violation": "much"}, "expected violation above 0, got 'much'"),
        ({"start": "2w"}, "expected start as a finite number, got '2w'"),
        ({"seconds": -1.0}, "expected seconds of at least 0, got -1.0"),
        ({"price": 3.0}, "expected price as a mapping from names of signals, got 3.0"),
        ({"price": {"u": [1.0]}}, r"price of 'u' as a finite number, or a signal .* got \[1.0\]"),
        ({"quadratic_price": {"u": -1.0}}, "quadratic_price of 'u' of at least 0, or .* got -1.0"),
        ({"change_price": {"u": -1.0}}, "change_price of 'u' of at least 0, got -1.0"),
        ({"tracking": {"y": (1.0, -1.0)}}, "weight of 'y' of at least 0, got -1.0"),
        ({"tracking": {"y": (None, 1.0)}}, "reference of 'y' as a finite number, .* got None"),
        ({"output_limits": {"y": ([1.0], 2.0)}}, r"None, or signals of the forecast, got \[1.0\]"),
        ({"max_error": {"y": np.nan}}, "max_error of 'y' above 0, got nan"),
        ({"max_error": {"z": 1.0}}, r"max_error names \['z'\]"),
        ({"tightening": "much"}, "a finite tightening, got 'much'"),
        ({"solver": "no_such"}, "has no solver 'no_such'"),
        ({"solver": 3}, "has no solver 3"),
        ({"output_limits": {"z": (0.0, 1.0)}}, r"output_limits names \['z'\]"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises((UserError, UserTypeError), match=message):
        decide(policy(**settings))


def test_limits_of_a_forecast_may_not_contradict():
    found = policy(output_limits={"y": ("low", "high")})
    low = np.linspace(0.0, 2.0, T + 1)
    with pytest.raises(UserError, match="low < high, got 1 and 1 in 4 samples"):
        decide(found, {"low": low, "high": np.ones(T + 1)})


def test_a_quadratic_price_of_a_forecast_is_not_negative():
    found = policy(quadratic_price={"u": "tariff"})
    tariff = np.append(np.ones(T - 1), [-0.5, 1.0])
    with pytest.raises(UserError, match=rf"quadratic_price of 'u': .* got -0.5 in {T - 1} samples"):
        decide(found, {"tariff": tariff})


def test_a_forecast_may_not_be_missing_or_end_early():
    found = policy(tracking={"y": ("reference", 1.0)})
    with pytest.raises(UserError, match="expected the coming values of 'reference'"):
        decide(found)
    with pytest.raises(UserError, match="a plan of 8 samples needs 9 values"):
        decide(found, {"reference": np.ones(T)})


def test_a_decision_needs_a_situation_and_a_forecast():
    with pytest.raises(UserTypeError, match=r"mapping of forecasts, .* got Situation and NoneType"):
        policy().decide(None, situation(), None)


def test_a_horizon_reaches_the_longest_lag():
    found = PredictiveControl(LIMITS, horizon=T)
    with pytest.raises(UserError, match=r"8 samples is shorter than the longest lag .* 9 samples"):
        found.check(Narx({"y": 1}, {"u": [9]}))
    with pytest.raises(UserError, match="contain the present u"):
        found.check(Narx({"y": 1}, {"u": [0, 1]}))
    with pytest.raises(UserError, match=r"\['z'\] are no outputs of the model"):
        policy(output_limits={"z": (0, 1)}).check(Narx({"y": 1}, {"u": 1}))
    with pytest.raises(UserError, match=r"\['z'\] are no outputs of the model"):
        policy(max_error={"z": 1.0}).check(Narx({"y": 1}, {"u": 1}))
    found.check(Narx({"y": 1}, {"u": [T]}))


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "casadi", None)
    with pytest.raises(UserError, match=r"install the extra \[control\]"):
        decide(policy())
    with pytest.raises(UserError, match=r"install the extra \[control\]"):
        policy().check(Narx({"y": 1}, {"u": 1}))
