"""Inputs that are chosen to learn: criteria, candidates, and the choice within limits."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from coupled_models import joint_model, naive_kernel, signals, unstable
from linear_part_models import joint_model_with_linear_parts, model_with_linear_part
from linear_part_models import naive_posterior as naive_with_linear_part
from sysid import (
    DesignedInput,
    Identification,
    InformationGain,
    InformativeInput,
    InputLimits,
    Narx,
    PlannedOutput,
    RandomNoise,
    RandomRamps,
    RandomSteps,
    RandomSwitches,
    RandomWaves,
    Settings,
    SpaceFilling,
    VarianceReduction,
    free_run,
    identify,
)
from sysid.errors import UserError, UserTypeError
from sysid.simulation.dynamics import Dynamics, exogenous_rows
from sysid.simulation.forecast import past_outputs
from sysid.simulation.propagation.propagation import follow_mean
from sysid.simulation.spread import project, variance_along

CLASSES = (RandomSteps(), RandomWaves(), RandomRamps(), RandomNoise(), RandomSwitches())
LIMITS = {"u": (-1.0, 2.0)}
N_KNOWN = 12  # measured samples before a decision


@pytest.fixture(scope="module")
def joint():
    return joint_model()


@pytest.fixture(scope="module")
def known():
    """Return the last outputs (n, 2) and inputs (n, 1) of the coupled plant."""
    values = signals(N_KNOWN, seed=3)
    return np.column_stack([values["a"], values["b"]]), values["u"][:, None]


def regressors(n, seed, n_features):
    return np.random.default_rng(seed).normal(size=(n, n_features)) * 0.3


# --- covariance -----------------------------------------------------------------------------------


def test_the_covariance_is_that_of_exact_regression(joint):
    model = joint.models[0]
    x = regressors(7, 0, model.narx.n_features)
    z = (x - model.scaling.offset) @ model.scaling.linear_part().T
    gp = model.gp
    gram = naive_kernel(gp.kernel, gp.inputs, gp.inputs) + gp.noise_variance * np.eye(gp.n_points)
    k = naive_kernel(gp.kernel, gp.inputs, z)
    expected = naive_kernel(gp.kernel, z, z) - k.T @ np.linalg.solve(gram, k)
    projected = project(model, x)
    np.testing.assert_allclose(gp.covariance(projected, projected), expected, atol=1e-10)


def test_the_covariance_contains_the_linear_part():
    model = model_with_linear_part()
    x = model.narx.regressors(signals(40, seed=5)).regressor[:9]
    projected = project(model, x)
    found = model.gp.covariance(projected, projected)
    _, expected = naive_with_linear_part(model, x)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    np.testing.assert_allclose(np.diag(found), model.predict(x).variance, rtol=1e-9)


def test_the_covariance_of_parts_is_a_part_of_the_covariance():
    model = model_with_linear_part()
    projected = project(model, model.narx.regressors(signals(40, seed=5)).regressor[:9])
    whole = model.gp.covariance(projected, projected)
    found = model.gp.covariance(projected.part(slice(0, 4)), projected.part(slice(4, 9)))
    np.testing.assert_allclose(found, whole[:4, 4:], atol=1e-12)


# --- criteria -------------------------------------------------------------------------------------


def planned_output(model, n_planned=6, n_region=5):
    p = model.narx.n_features
    planned = project(model, regressors(n_planned, 1, p))
    region = project(model, regressors(n_region, 2, p))
    return PlannedOutput(model.gp, planned, region)


@pytest.mark.parametrize("model", [joint_model().models[1], model_with_linear_part()], ids=str)
def test_the_information_is_that_of_one_sample_after_the_other(model):
    """Chain rule: each sample tells the logarithm of how far it lowers its own variance."""
    output = planned_output(model)
    covariance = output.covariance()
    noise = output.noise_variance
    expected = 0.0
    for t in range(len(covariance)):
        before = covariance[:t, :t] + noise * np.eye(t)
        cross = covariance[:t, t]
        variance = covariance[t, t] - cross @ np.linalg.solve(before, cross)
        expected += 0.5 * np.log(1 + variance / noise)
    assert InformationGain().gain(output) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("model", [joint_model().models[1], model_with_linear_part()], ids=str)
def test_the_reduction_is_that_of_the_variance_over_the_region(model):
    output = planned_output(model)
    noise = output.noise_variance
    both = np.vstack(
        [regressors(6, 1, model.narx.n_features), regressors(5, 2, model.narx.n_features)]
    )
    projected = project(model, both)
    whole = model.gp.covariance(projected, projected)
    precision = np.linalg.inv(whole + 1e-12 * np.eye(11))
    precision[:6, :6] += np.eye(6) / noise  # the six samples are measured
    after = np.diag(np.linalg.inv(precision))[6:]
    expected = np.mean(np.diag(whole)[6:] - after) / noise
    assert VarianceReduction().gain(output) == pytest.approx(expected, rel=1e-3)


def test_the_distance_is_to_the_nearest_point_or_earlier_sample(joint):
    model = joint.models[0]
    output = planned_output(model)
    kernel = model.gp.kernel
    expected = 0.0
    visited = list(model.gp.inputs)
    for x in output.planned.features:
        covariances = naive_kernel(kernel, x[None], np.array(visited))
        expected += 0.5 * (1 - covariances.max() / kernel.variance)
        visited.append(x)
    assert SpaceFilling().gain(output) == pytest.approx(expected)


@pytest.mark.parametrize("criterion", [InformationGain(), VarianceReduction(), SpaceFilling()])
def test_known_samples_tell_less_than_new_ones(joint, criterion):
    model = joint.models[0]
    scale = model.scaling
    points = scale.inverse(model.gp.inputs[:6])
    new = points + 5.0
    p = [project(model, x) for x in (points, new, np.vstack([points, new]))]
    known_gain = criterion.gain(PlannedOutput(model.gp, p[0], p[2]))
    new_gain = criterion.gain(PlannedOutput(model.gp, p[1], p[2]))
    assert new_gain > known_gain


# --- candidates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("n_samples", [1, 2, 50, 333])
def test_candidates_lie_between_the_limits(kind, n_samples):
    drawn = np.array([kind.draw(n_samples, np.random.default_rng(seed)) for seed in range(20)])
    assert drawn.shape == (20, n_samples)
    assert (drawn >= 0).all()
    assert (drawn <= 1).all()
    if n_samples > 2:
        assert (np.ptp(drawn, axis=1) > 0).mean() > 0.9


@pytest.mark.parametrize("kind", CLASSES[:1] + CLASSES[4:], ids=lambda kind: type(kind).__name__)
def test_levels_are_held_as_long_as_they_shall_be(kind):
    kind = replace(kind, shortest=4, longest=7)
    values = kind.draw(400, np.random.default_rng(0))
    changes = np.flatnonzero(np.diff(values))
    held = np.diff(changes)
    assert held.min() >= 4
    assert held.max() <= 7


def test_a_rate_limit_holds_from_the_last_input_on():
    limits = InputLimits(0.0, 1.0, rate=0.1)
    values = limits.clip(np.array([5.0, 5.0, -5.0, 0.0]), 0.85)
    np.testing.assert_allclose(values, [0.95, 1.0, 0.9, 0.8])


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: type(kind).__name__)
def test_a_stretch_of_too_much_power_is_shrunk_towards_the_middle(kind):
    unit = kind.draw(200, np.random.default_rng(2))
    free = InputLimits(-1.0, 3.0).stretch(unit, 1.0)
    power = np.mean((free - 1.0) ** 2)
    limited = InputLimits(-1.0, 3.0, rms=0.5 * np.sqrt(power)).stretch(unit, 1.0)
    np.testing.assert_allclose(limited - 1.0, 0.5 * (free - 1.0))
    unlimited = InputLimits(-1.0, 3.0, rms=1.01 * np.sqrt(power)).stretch(unit, 1.0)
    np.testing.assert_array_equal(unlimited, free)


@pytest.mark.parametrize("n_refinements", [0, 3])
def test_a_chosen_stretch_keeps_its_power(joint, known, n_refinements):
    limits = {"u": InputLimits(-1.0, 2.0, rms=0.4)}
    design = InformativeInput(limits, n_candidates=6, n_refinements=n_refinements)
    stretch = design.next(joint, *known).inputs["u"]
    assert np.sqrt(np.mean((stretch - 0.5) ** 2)) <= 0.4 + 1e-12


@pytest.mark.parametrize("n_refinements", [0, 2])
def test_a_stretch_keeps_limits_and_rates(joint, known, n_refinements):
    design = InformativeInput(
        {"u": (-1.0, 2.0, 0.2)}, horizon=25, n_candidates=8, n_refinements=n_refinements
    )
    outputs, inputs = known
    stretch = design.next(joint, outputs, inputs).inputs["u"]
    assert len(stretch) == 25
    assert stretch.min() >= -1.0
    assert stretch.max() <= 2.0
    changes = np.diff(np.append(inputs[-1], stretch))
    assert np.abs(changes).max() <= 0.2 + 1e-12


# --- choice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_inputs", [N_KNOWN, N_KNOWN - 1])
def test_the_plan_is_the_free_run_of_the_model(joint, known, n_inputs):
    outputs, inputs = known
    design = InformativeInput(LIMITS, horizon=20, n_candidates=4)
    planned = design.next(joint, outputs, inputs[:n_inputs])
    coming = planned.inputs["u"]
    all_inputs = np.concatenate([inputs[:n_inputs, 0], coming, coming[-1:]])[:, None]
    expected = free_run(joint, all_inputs, outputs).mean
    assert len(expected) == 20 + 1 - (N_KNOWN - n_inputs)
    np.testing.assert_allclose(planned.mean, expected, atol=1e-9)
    assert (planned.low < planned.mean).all()
    assert (planned.mean < planned.high).all()


@pytest.mark.parametrize("criterion", [InformationGain(), VarianceReduction(), SpaceFilling()])
def test_the_candidate_of_the_largest_gain_is_chosen(joint, known, criterion):
    """The gain of the choice is not below that of any candidate that is judged alone."""
    outputs, inputs = known
    region = regressors(20, 4, joint.models[0].narx.n_features)
    settings = {"horizon": 15, "criterion": criterion, "region": region}
    gains = []
    for n_candidates in range(1, 7):  # the first candidates are the same
        design = InformativeInput(LIMITS, n_candidates=n_candidates, **settings)
        gains.append(design.next(joint, outputs, inputs).gain)
    assert gains == sorted(gains)
    assert gains[-1] > gains[0]


def test_refinement_does_not_lower_the_gain(joint, known):
    outputs, inputs = known
    gains = []
    for n_refinements in (0, 4):
        design = InformativeInput(LIMITS, horizon=15, n_candidates=5, n_refinements=n_refinements)
        gains.append(design.next(joint, outputs, inputs).gain)
    assert gains[1] > gains[0]


def expected_outside(planned, low, high):
    """Return the fraction of the plan beyond limits, from its bands."""
    std = (planned.high - planned.mean)[:, 0] / norm.ppf(0.975)
    mean = planned.mean[:, 0]
    return float(np.mean(norm.cdf(low, mean, std) + norm.sf(high, mean, std)))


def test_outputs_stay_within_their_limits_with_the_stated_probability(joint, known):
    outputs, inputs = known
    free = InformativeInput(LIMITS, horizon=15).next(joint, outputs, inputs)
    low = np.quantile(free.mean[:, 0], 0.15) - 0.1
    high = np.quantile(free.mean[:, 0], 0.85) + 0.1
    design = InformativeInput(LIMITS, horizon=15, output_limits={"a": (low, high)}, probability=0.3)
    planned = design.next(joint, outputs, inputs)
    found = expected_outside(planned, low, high)
    assert planned.outside == pytest.approx(found, rel=1e-3)
    assert planned.outside <= 0.3 < expected_outside(free, low, high)
    assert planned.n_refused > 0
    assert planned.gain < free.gain
    assert planned.fallback == ""
    assert design.n_fallbacks == 0


def test_the_least_bad_candidate_is_a_fallback_and_counted(joint, known):
    outputs, inputs = known
    design = InformativeInput(LIMITS, horizon=15, output_limits={"b": (50.0, 60.0)})
    planned = design.next(joint, outputs, inputs)
    assert planned.fallback.startswith("no candidate keeps the outputs within their limits")
    assert planned.outside == pytest.approx(1.0)
    assert (design.n_decisions, design.n_fallbacks) == (1, 1)


def test_a_quarter_of_a_fallback_is_applied(joint, known):
    design = InformativeInput(LIMITS, horizon=16, output_limits={"b": (50.0, 60.0)})
    planned = design.next(joint, *known)
    assert len(planned.inputs["u"]) == 4
    assert len(planned.mean) == 17


# --- the end of a stretch -------------------------------------------------------------------------


def planned_within_limits(joint, known):
    """Return a design whose output a has limits, and its first stretch of 15 samples."""
    free = InformativeInput(LIMITS, horizon=15).next(joint, *known)
    low = np.quantile(free.mean[:, 0], 0.15) - 0.1
    high = np.quantile(free.mean[:, 0], 0.85) + 0.1
    design = InformativeInput(LIMITS, horizon=15, output_limits={"a": (low, high)}, probability=0.3)
    planned = design.next(joint, *known)
    assert planned.fallback == ""
    return design, planned


def test_a_stretch_goes_on_while_the_plant_follows_its_plan(joint, known):
    """The plant is the model: its outputs are the planned ones."""
    design, planned = planned_within_limits(joint, known)
    outputs, inputs = known
    for n_applied in range(15):
        seen = np.concatenate([outputs, planned.mean[:n_applied]])
        applied = np.concatenate([inputs, planned.inputs["u"][:n_applied, None]])
        assert not design.should_end(planned, n_applied, joint, seen, applied)


def test_a_stretch_ends_if_too_many_samples_are_beyond_the_limits(joint, known):
    """The measured ones, and those that are expected in the rest."""
    design, planned = planned_within_limits(joint, known)
    outputs, inputs = known
    low, high = design.output_limits["a"]
    n_applied = 10
    dynamics = Dynamics(joint)
    ended = []
    for n_outside in range(n_applied + 1):
        seen = np.concatenate([outputs, np.clip(planned.mean[:n_applied], low, high)])
        seen[N_KNOWN : N_KNOWN + n_outside, 0] = high + 0.01
        applied = np.concatenate([inputs, planned.inputs["u"][:n_applied, None]])
        rest = planned.inputs["u"][None, n_applied:, None]
        simulated = design._simulate(dynamics, seen, applied, np.zeros((5, 1)), rest)
        mean, std, _ = (values[0] for values in design._risk(dynamics, simulated))
        n_expected = np.sum(norm.cdf(low, mean, std) + norm.sf(high, mean, std), axis=0)[0]
        is_too_many = n_outside + n_expected > 2 * max(0.3, planned.outside) * 15
        ended.append(design.should_end(planned, n_applied, joint, seen, applied))
        assert ended[-1] == is_too_many
    assert set(ended) == {False, True}


def test_a_stretch_without_limits_or_plan_does_not_end_early(joint, known):
    free = InformativeInput(LIMITS, horizon=15)
    planned = free.next(joint, *known)
    assert not free.should_end(planned, 3, joint, *known)
    design = InformativeInput(LIMITS, horizon=15, output_limits={"a": (-1e-6, 1e-6)})
    assert not design.should_end(design.next(None), 3, joint, *known)
    limited = design.next(joint, *known)
    assert not design.should_end(limited, len(limited.inputs["u"]), joint, *known)
    assert not design.should_end(limited, 0, None)


def test_a_stretch_ends_if_the_model_diverges_now():
    model = unstable(10.0, output_range=(0.0, 1.0))
    design = InformativeInput(LIMITS, horizon=30, output_limits={"y": (0.0, 1.0)})
    planned = DesignedInput(
        {"u": np.zeros(30)}, np.zeros((31, 1)), *[np.zeros((31, 1))] * 2, 1, 0, 0, ""
    )
    assert design.should_end(planned, 1, model, np.ones((3, 1)), np.full((3, 1), 0.7))


@pytest.mark.parametrize("n_applied", [-1, 16, 1.5])
def test_samples_that_a_stretch_does_not_have_are_refused(joint, known, n_applied):
    design, planned = planned_within_limits(joint, known)
    with pytest.raises(UserError, match="should_end: n_applied"):
        design.should_end(planned, n_applied, joint, *known)


def test_what_excludes_a_candidate_is_a_bound(joint, known):
    """The fraction by the mean path and the noise alone is not above that by the whole band."""
    outputs, inputs = known
    limits = {"a": (-0.2, 0.25), "b": (-0.3, 0.3)}
    design = InformativeInput(LIMITS, horizon=15, output_limits=limits)
    dynamics = Dynamics(joint)
    stretches = design.draw(12, inputs[-1], np.random.default_rng(0))
    others = np.zeros((15, 1))
    candidates = design._simulate(dynamics, outputs, inputs, others, stretches)
    bound = design._least_outside(dynamics, candidates)
    outside = design._risk(dynamics, candidates).outside
    assert (bound <= outside + 1e-12).all()
    assert bound.max() > 0


def test_the_region_is_what_the_candidates_of_all_decisions_visit(joint, known):
    design = InformativeInput(LIMITS, horizon=15, criterion=VarianceReduction())
    dynamics = Dynamics(joint)
    visited = []
    regions = []
    for seed in range(2):
        stretches = design.draw(5, known[1][-1], np.random.default_rng(seed))
        candidates = design._simulate(dynamics, *known, np.zeros((15, 1)), stretches)
        along = dynamics.regressors_along(candidates.path, candidates.exogenous)
        visited.append({tuple(x) for x in along.reshape(-1, dynamics.n_features)})
        regions.append({tuple(x) for x in design._region(dynamics, candidates)})
    assert regions[0] <= visited[0]
    assert regions[1] <= visited[0] | visited[1]
    assert regions[1] & visited[0]
    assert regions[1] & visited[1] - visited[0]


def test_the_same_decision_is_the_same_and_the_next_one_is_not(joint, known):
    outputs, inputs = known
    first, second = (InformativeInput(LIMITS, horizon=10, seed=4) for _ in range(2))
    stretches = [first.next(joint, outputs, inputs), second.next(joint, outputs, inputs)]
    np.testing.assert_array_equal(stretches[0].inputs["u"], stretches[1].inputs["u"])
    assert (first.next(joint, outputs, inputs).inputs["u"] != stretches[0].inputs["u"]).any()


def test_only_the_samples_until_the_next_decision_are_returned(joint, known):
    outputs, inputs = known
    design = InformativeInput(LIMITS, horizon=20, n_applied=5)
    planned = design.next(joint, outputs, inputs)
    assert len(planned.inputs["u"]) == 5
    assert len(planned.mean) == 21


@pytest.mark.parametrize("model", [None, Identification(Narx({"y": 1}, {"u": 1}), Settings())])
def test_without_a_model_the_first_candidate_is_taken(model):
    design = InformativeInput(LIMITS, horizon=30)
    planned = design.next(model)
    assert planned.fallback == "there is no model yet"
    assert planned.inputs["u"].shape == (30,)
    assert np.isnan(planned.gain)
    assert not len(planned.mean)
    assert design.n_fallbacks == 1


def test_a_model_that_diverges_holds_the_input():
    model = unstable(10.0, output_range=(0.0, 1.0))
    planned = InformativeInput(LIMITS, horizon=30).next(
        model, np.ones((3, 1)), np.full((3, 1), 0.7)
    )
    assert planned.fallback == "the model diverges on all candidates"
    np.testing.assert_array_equal(planned.inputs["u"], np.full(8, 0.7))


def test_an_identified_model_knows_its_last_samples():
    rng = np.random.default_rng(0)
    u, v = rng.uniform(-1, 1, size=(2, 300))
    y = np.zeros(300)
    for k in range(1, 300):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 1]) - 0.5 * v[k - 1] + 0.01 * rng.normal()
    narx = Narx({"y": 1}, {"u": 1, "v": 1})
    settings = Settings(budget=20, linear_part="none")
    signals = {"y": y, "u": u, "v": v}
    found = identify(
        signals, narx, settings, inputs=["u", "v"], outputs=["y"], dt=1.0, identified=1
    )
    forecast = {"v": np.linspace(-1, 1, 10)}
    design = InformativeInput(LIMITS, horizon=10)
    with pytest.raises(UserError, match="expected at least 1 samples of this run"):
        design.next(found)
    found.step(y=0.3, u=0.1, v=-0.2)
    planned = design.next(found, forecast=forecast)
    again = InformativeInput(LIMITS, horizon=10)
    plain = again.next(found.model, np.array([[0.3]]), np.array([[0.1, -0.2]]), forecast=forecast)
    np.testing.assert_array_equal(planned.inputs["u"], plain.inputs["u"])
    coming = np.column_stack([planned.inputs["u"], forecast["v"]])
    np.testing.assert_allclose(found.ahead(coming)["y_mean"], planned.mean[:-1, 0], atol=1e-9)


# --- the uncertainty of a plan --------------------------------------------------------------------


def naive_path(dynamics, past, exogenous, errors):
    """Return the outputs (T, m) of one path whose targets have errors (T, m)."""
    outputs = [*past]
    for row, error in zip(exogenous, errors, strict=True):
        x = row.copy()
        for j, (name, lag) in enumerate(dynamics.narx.features):
            if name in dynamics.narx.output_names:
                x[j] = outputs[-lag][dynamics.narx.output_names.index(name)]
        target = np.array([model.predict(x[None]).mean[0] for model in dynamics.models]) + error
        outputs.append(outputs[-1] + target if dynamics.is_change else target)
    return np.array(outputs[len(past) :])


@pytest.mark.parametrize(
    "model",
    [joint_model(), joint_model("change"), joint_model_with_linear_parts()],
    ids=["values", "changes", "linear_parts"],
)
def test_errors_of_the_function_move_a_plan_as_in_a_simulation(model):
    """Outputs are moved by one error at a time; the errors have their posterior covariance."""
    n_steps = 8
    dynamics = Dynamics(model)
    values = signals(40, seed=3)
    past = np.column_stack([values[name] for name in dynamics.narx.output_names])[:12]
    inputs = np.column_stack([values[name] for name in dynamics.narx.input_names])
    exogenous = exogenous_rows(dynamics.narx, inputs, np.arange(12, 12 + n_steps))[None]
    start = past_outputs(past, len(past) - 1, dynamics)
    path, _ = follow_mean(dynamics, start, exogenous)
    shape = (n_steps, dynamics.n_outputs)
    visited = dynamics.regressors_along(path, exogenous)[0]
    step = 1e-5
    expected = np.zeros(shape)
    for i, one in enumerate(dynamics.models):
        moved = []
        for t in range(n_steps):
            error = np.zeros(shape)
            error[t, i] = step
            plus = naive_path(dynamics, start[0], exogenous[0], error)
            minus = naive_path(dynamics, start[0], exogenous[0], -error)
            moved.append((plus - minus) / (2 * step))
        projected = project(one, visited)
        covariance = one.gp.covariance(projected, projected)
        expected += np.einsum("stm,su,utm->tm", np.array(moved), covariance, np.array(moved))
    found = variance_along(dynamics, path, exogenous)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    one_step = [one.predict(visited[:1]).variance[0] for one in dynamics.models]
    np.testing.assert_allclose(found[0], one_step, rtol=1e-9)


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limits": {}}, "at least one input"),
        ({"limits": {"u": (1.0, 1.0)}}, "limits of 'u'.*low < high"),
        ({"output_limits": {"y": (0.0, None)}}, r"low < high, got \[0.0, None\]"),
        ({"output_limits": {"y": 1.0}}, "low < high, got 1.0"),
        ({"output_limits": None}, "expected output_limits as a mapping .* got None"),
        ({"probability": "low"}, "a probability of at least 0 and below 1, got 'low'"),
        ({"classes": 3}, "classes of candidates, got 3"),
        ({"limits": {"u": (0.0, np.inf)}}, "finite limits"),
        ({"limits": {"u": (0.0, 1.0, 0.0)}}, "rate above 0"),
        ({"limits": {"u": "01"}}, r"expected \(low, high\)"),
        ({"limits": {"u": ("a", "b")}}, "limits of 'u'"),
        ({"horizon": 0}, "horizon"),
        ({"n_applied": 101}, "n_applied"),
        ({"n_candidates": 2.5}, "n_candidates"),
        ({"probability": 1.0}, "probability"),
        ({"output_limits": {"y": (2.0, 1.0)}}, "output_limits of 'y'"),
        ({"classes": ()}, "classes of candidates"),
        ({"criterion": "entropy"}, "sysid.DesignCriterion"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(changes, message):
    with pytest.raises((UserError, UserTypeError), match=message):
        InformativeInput(**({"limits": LIMITS} | changes))


@pytest.mark.parametrize("n_samples", [40, 400])
def test_noise_has_its_spread_and_no_higher_frequency_than_it_may(n_samples):
    kind = RandomNoise(std=0.1, highest=0.1)
    drawn = np.array([kind.draw(n_samples, np.random.default_rng(seed)) for seed in range(300)])
    assert np.sqrt(np.mean((drawn - 0.5) ** 2)) == pytest.approx(0.1, rel=0.1)
    change = np.diff(drawn, axis=1)
    assert np.sqrt(np.mean(change**2)) < 2 * np.pi * 0.1 * 0.1


@pytest.mark.parametrize("changes", [{"std": 0.0}, {"std": 0.6}, {"highest": 0.0}])
def test_noise_that_cannot_be_drawn_is_refused(changes):
    with pytest.raises(UserError, match=f"RandomNoise: expected {next(iter(changes))} above 0"):
        RandomNoise(**changes)


def test_without_a_model_the_classes_take_turns():
    design = InformativeInput(LIMITS, horizon=30, classes=[RandomSwitches(), RandomSteps()])
    stretches = [design.next(None).inputs["u"] for _ in range(4)]
    at_limits = [set(stretch) <= {-1.0, 2.0} for stretch in stretches]
    assert at_limits == [True, False, True, False]


def test_no_power_is_refused():
    with pytest.raises(UserError, match="a root mean square above 0, got 0"):
        InputLimits(0.0, 1.0, rms=0)


@pytest.mark.parametrize("kind", [RandomSteps, RandomRamps, RandomSwitches])
def test_holds_in_the_wrong_order_are_refused(kind):
    with pytest.raises(UserError, match="shortest <= longest"):
        kind(shortest=5, longest=4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"limits": {"heat": (0.0, 1.0)}}, r"limits name \['heat'\], the model has \['u'\]"),
        ({"output_limits": {"y": (0.0, 1.0)}}, r"output_limits name \['y'\]"),
        ({"region": np.zeros((3, 1))}, "region"),
    ],
)
def test_signals_that_the_model_does_not_have_are_refused(joint, known, changes, message):
    design = InformativeInput(**({"limits": LIMITS} | changes))
    with pytest.raises(UserError, match=message):
        design.next(joint, *known)


@pytest.mark.parametrize(
    ("n_outputs", "n_inputs", "message"),
    [
        (0, 0, "expected as many last inputs as outputs"),
        (5, 3, "got 3 inputs and 5 outputs"),
        (3, 4, "got 4 inputs and 3 outputs"),
        (1, 1, "as many as the longest lag, got 1"),
    ],
)
def test_too_few_samples_are_refused(joint, known, n_outputs, n_inputs, message):
    outputs, inputs = known
    with pytest.raises(UserError, match=message):
        InformativeInput(LIMITS).next(joint, outputs[:n_outputs], inputs[:n_inputs])


def test_samples_are_needed_unless_the_model_knows_them(joint):
    with pytest.raises(UserError, match="follows it by `step`"):
        InformativeInput(LIMITS).next(joint)
    with pytest.raises(UserTypeError, match="got str"):
        InformativeInput(LIMITS).next("model.nc")


@pytest.mark.parametrize(
    ("forecast", "message"),
    [({"u": [1.0, 2.0]}, "as many as are planned, got 2"), ({"rain": np.zeros(60)}, "no inputs")],
)
def test_a_forecast_must_fit(joint, known, forecast, message):
    with pytest.raises(UserError, match=message):
        InformativeInput(LIMITS).next(joint, *known, forecast=forecast)
