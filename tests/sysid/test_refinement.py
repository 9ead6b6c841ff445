"""The refinement: windows, stages, and what its result simulates."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import (
    KINDS_OF_LAGS,
    WIENER_LAGS,
    constant_record,
    linear_candidate,
    random_signals,
    refine,
    segment_of,
    wiener_record,
    with_naive_run,
)
from sysid import (
    Linear,
    Matern52,
    Model,
    Narx,
    OnlineGP,
    OutputErrorRefinement,
    SquaredExponential,
    free_run,
)
from sysid.simulation.segments import Segment
from sysid.simulation_error import refinement
from sysid.simulation_error.candidate import squared_error
from sysid.simulation_error.windows import hold_back, windows_of


def stage_names(fit):
    """Return the names of the stages in their order."""
    return [stage["stage"] for stage in fit.report["stages"]]


def held_out_rmses(stages):
    """Return the root mean squared error of the windows held back, by stage."""
    return {stage["stage"]: stage["held rmse"] for stage in stages}


# --- windows --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "window", "transient"),
    [((1000,), 2048, 400), ((500, 40, 3), 100, 20)],
    ids=["one segment", "three segments"],
)
def test_windows_score_every_sample_once_but_the_transients_of_the_segments(
    lengths, window, transient
):
    narx = KINDS_OF_LAGS["value"]
    segments = [segment_of(narx, random_signals(narx, n + 2, seed=n)) for n in lengths]
    windows = windows_of(segments, window, transient)

    assert len(windows) >= 4
    scored = np.concatenate([part.values[part.transient :] for part in windows])
    everything = np.concatenate([segment.values for segment in segments])
    assert len(np.unique(scored)) == len(scored)
    assert len(scored) > 0.75 * len(everything)
    assert set(scored) <= set(everything)
    assert max(len(part.values) for part in windows) <= 1.5 * window
    for part in windows:
        assert part.transient <= 0.25 * len(part.values)
        newest_lag = part.regressors[:, 0]
        np.testing.assert_array_equal(newest_lag[1:], part.values[:-1])
        assert newest_lag[0] == part.past[-1]


def windows_with_levels(levels):
    """Return windows of four samples about each level."""
    windows = []
    for level in levels:
        values = level + np.array([0.0, 1.0, 2.0, 3.0])
        windows.append(Segment(values[:, None], values, np.zeros(1)))
    return windows


@pytest.mark.parametrize(
    ("levels", "held"),
    [
        pytest.param([0, 1, 2, 3, 0, 1, 2, 3], [3, 7], id="alike"),
        pytest.param([0, 1, 2, 30, 0, 1, 2, 3], [2, 7], id="a start-up in the middle"),
        pytest.param([0, 1, 2, 3, 0, 1, 2, -30], [3, 6], id="a start-up at the end"),
        pytest.param([30, 1, 2, 3, 0, 1, 2, 3], [3, 7], id="a start-up at the beginning"),
    ],
)
def test_a_window_far_beyond_the_others_is_fitted(levels, held):
    windows = windows_with_levels(levels)
    fitted, held_back = hold_back(windows, 8, 4)
    assert [[w is window for w in windows].index(True) for window in held_back] == held
    assert len(fitted) == 6


# --- the result -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def refined():
    """Fit 20 points to a record of 800 samples."""
    return refine(wiener_record(800), 20)


def test_stages_go_from_a_linear_model_to_all_windows(refined):
    names = stage_names(refined)
    n_starts = names.count("whitened")
    n_metrics = names.count("metric")
    assert min(n_starts, n_metrics) >= 2
    n_resized = names.count("20 points")
    starts_and_metrics = n_starts * ["whitened"] + n_metrics * ["metric"]
    assert names == ["linear", *starts_and_metrics, *n_resized * ["20 points"], "all windows"]
    windows = windows_of([segment_of(WIENER_LAGS, wiener_record(800))], 120, 20)
    _, held_back = hold_back(windows, 8, 4)
    error = np.sqrt(squared_error(refined.candidate, held_back))
    last_stage = refined.report["stages"][-1]
    assert error == pytest.approx(last_stage["held rmse"], rel=1e-4)


def test_metric_finds_the_direction_of_the_nonlinearity(refined):
    direction = refined.candidate.scaling.matrix[0]
    true_direction = np.array([1, 0, 1, 0])  # y[k-1] + u[k-1]
    cosine = direction @ true_direction / (np.linalg.norm(direction) * 2**0.5)
    assert abs(cosine) > 0.9


def test_refinement_and_its_model_simulate_a_new_record(refined):
    signals = wiener_record(300, seed=1)
    new = segment_of(WIENER_LAGS, signals)
    simulated = refined.candidate.simulate(new)
    linear_stage = refined.report["stages"][0]
    rmse = np.sqrt(np.mean((simulated - new.values) ** 2))
    assert rmse < 0.1 * linear_stage["held rmse"]
    assert 0 < refined.latent_variance < 0.1 * np.var(new.values)

    start = refined.candidate.initial_model(1e-4, refined.latent_variance, new.regressors)
    gp = OnlineGP(start.hyperparameters.kernel, noise_variance=1e-4, budget=20)
    gp.fit(*start.points)
    model = Model(WIENER_LAGS, start.scaling, start.mean, gp)
    run = free_run(model, signals["u"][:, None], signals["y"][:2, None])
    np.testing.assert_allclose(run.mean[:, 0], simulated, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("predict", ["value", "change"])
def test_refinement_follows_its_seed_and_does_not_depend_on_the_units(predict):
    narx = replace(WIENER_LAGS, predict=predict)
    signals = wiener_record(200)
    rescaled = {"u": 0.01 * signals["u"] - 3.0, "y": 1000.0 * signals["y"] + 5000.0}
    settings = {"stages": 1, "iterations": 3, "search_points": 10}
    first = refine(signals, 10, narx, **settings)
    again = refine(signals, 10, narx, **settings)
    in_other_units = refine(rescaled, 10, narx, **settings)

    np.testing.assert_array_equal(again.candidate.weights, first.candidate.weights)
    assert again.report == first.report

    run = in_other_units.candidate.simulate(segment_of(narx, rescaled))
    expected = 1000.0 * first.candidate.simulate(segment_of(narx, signals)) + 5000.0
    np.testing.assert_allclose(run, expected, rtol=1e-4)
    expected_variance = 1e6 * first.latent_variance
    assert in_other_units.latent_variance == pytest.approx(expected_variance, rel=1e-3)
    expected_rmse = 1e3 * first.report["stages"][-1]["held rmse"]
    rmse = in_other_units.report["stages"][-1]["held rmse"]
    assert rmse == pytest.approx(expected_rmse, rel=1e-3)


def test_limits_are_those_of_the_free_run():
    signals = wiener_record(300)
    signals["y"] = np.clip(signals["y"], -0.5, 0.8)
    candidate = refine(signals, 8, limits=(-0.5, 0.8), stages=0).candidate
    simulated = candidate.simulate(segment_of(WIENER_LAGS, signals))
    assert candidate.limits == (-0.5, 0.8)
    assert (simulated.min(), simulated.max()) == (-0.5, 0.8)


# --- stages ---------------------------------------------------------------------------------------


ROUGH = {"kernels": (Matern52(),)}


def test_best_of_the_plain_starts_goes_on():
    """Here every regressor by itself suits better than the whitened regressors."""
    signals = wiener_record(840)
    fit = refine(signals, 20, plain_spreads=(6.0, 12.0), penalty=0.1, stages=0, **ROUGH)

    starts = fit.report["stages"][1:4]
    rmses = held_out_rmses(starts)
    assert min(rmses, key=rmses.get) == "plain 6"
    assert max(start["n_iterations"] for start in starts) <= 4
    goes_on = fit.report["stages"][4]
    assert goes_on["stage"] == "plain 6"
    assert goes_on["fitted rmse"] < min(start["fitted rmse"] for start in starts)
    std_y = np.std(signals["y"][2:])
    std_u = np.std(signals["u"][2:])
    length_scales = 6 * np.array([std_y, std_y, std_u, std_u])
    np.testing.assert_allclose(fit.candidate.scaling.matrix, np.diag(1 / length_scales), rtol=1e-2)


def test_best_start_of_the_state_goes_on():
    fit = refine(wiener_record(840), 20, state_spreads=(3.0, 6.0), penalty=0.1, stages=0, **ROUGH)
    rmses = held_out_rmses(fit.report["stages"][1:4])
    assert min(rmses, key=rmses.get) == "state 3"
    n_coordinates = fit.candidate.scaling.matrix.shape[0]
    assert n_coordinates <= WIENER_LAGS.n_features


def product_record(n, seed):
    """Return a record of a plant whose input changes its time constant."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.uniform(0.0, 1.0, n // 30 + 1), 30)[:n]
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = y[k - 1] + 0.1 * (u[k - 1] - (0.2 + u[k - 1]) * y[k - 1])
    return {"u": u, "y": y + 0.003 * generator.standard_normal(n)}


def bent_record(n, seed):
    """Return a record of a plant whose gain has three sharp bends."""
    generator = np.random.default_rng(seed)
    u = generator.uniform(-1.0, 1.0, n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.5 * y[k - 1] + np.abs(np.abs(u[k - 1]) - 0.5)
    return {"u": u, "y": y}


@pytest.mark.parametrize(
    ("make_signals", "kernel"), [(product_record, SquaredExponential), (bent_record, Matern52)]
)
def test_a_smooth_kernel_is_taken_for_a_product_and_a_rough_one_for_a_bend(make_signals, kernel):
    narx = Narx({"y": 1}, {"u": 1}, predict="value")
    new = segment_of(narx, make_signals(1200, 1))

    def refine_with(*kernels):
        candidate = refine(
            make_signals(1200, 0), 20, narx, plain_spreads=(6.0, 12.0), kernels=kernels
        ).candidate
        return type(candidate.kernel), squared_error(candidate, [new])

    alone = [refine_with(Matern52()), refine_with(SquaredExponential())]
    best = min(alone, key=lambda kind_and_error: kind_and_error[1])
    assert best[0] is kernel
    assert refine_with(Matern52(), SquaredExponential()) == best


def test_length_scales_of_the_smooth_kernel_are_twice_as_long():
    scalings = []
    for prototype in (Matern52(), SquaredExponential()):
        fit = refine(wiener_record(400), 10, plain_spreads=(), kernels=(prototype,), stages=0)
        scalings.append(fit.candidate.scaling.matrix)
    np.testing.assert_allclose(scalings[0], 2.0 * scalings[1])


def test_best_penalty_of_fewer_points_goes_on():
    """Heavier penalties are not tried once the error grows."""
    fit = refine(wiener_record(420), 8, plain_spreads=(12.0,), penalty=0.1, stages=0)
    stages = fit.report["stages"]
    with_8_points = [stage for stage in stages if stage["stage"] == "8 points"]
    best = min(with_8_points, key=lambda stage: stage["held rmse"])
    assert best["penalty"] == fit.report["penalty"]
    assert best["penalty"] == stages[-1]["penalty"]
    assert len(with_8_points) == 2
    assert with_8_points[-1]["held rmse"] >= with_8_points[-2]["held rmse"]
    assert len(fit.candidate.weights) == 8
    assert fit.candidate.weights.any()


def test_moving_metric_finds_the_combination_of_many_lags_on_which_a_function_depends():
    """``y[k] = 0.3 y[k-1] + tanh(2 h'u)``, h of twelve lags.

    Without a metric the rows of the regression would fill 12 dimensions.
    """
    u = np.random.default_rng(0).standard_normal(1500)
    y = np.zeros(1500)
    response = np.sin(np.arange(12)) * 0.8 ** np.arange(12)
    for k in range(12, 1500):
        newest_first = u[k - 11 : k + 1][::-1]
        y[k] = 0.3 * y[k - 1] + np.tanh(2.0 * response @ newest_first)
    narx = Narx({"y": 1}, {"u": range(12)}, predict="value")

    fit = refine({"u": u, "y": y}, 20, narx, search_points=40, **ROUGH)

    (direction,) = fit.candidate.scaling.matrix
    cosine = direction[1:] @ response / (np.linalg.norm(direction) * np.linalg.norm(response))
    assert abs(cosine) > 0.999
    linear_stage = fit.report["stages"][0]
    last_stage = fit.report["stages"][-1]
    assert last_stage["moves"]
    assert last_stage["held rmse"] < 0.02 * np.std(y)
    assert linear_stage["held rmse"] > 0.1 * np.std(y)


@pytest.fixture
def stages_that_gain():
    """Return stages in which every change of the metric lowers the error by a tenth.

    The second result lists the metrics that were tried.
    """
    tried_metrics = []

    def change_metric(before, *metric):
        tried_metrics.append(metric)
        return before._replace(held_out_error=0.9 * before.held_out_error)

    stages = object.__new__(refinement._Stages)
    stages.settings = OutputErrorRefinement(stages=3)
    stages.change_metric = change_metric
    return stages, tried_metrics


FIRST_STAGE = refinement._Stage(None, held_out_error=1.0, penalty=10.0)


def test_search_changes_the_metric_as_often_as_the_settings_allow(stages_that_gain):
    stages, tried_metrics = stages_that_gain
    best = stages.search(FIRST_STAGE)
    assert best.held_out_error == pytest.approx(0.9**3)
    lightest_fitted = (1.0, True)  # penalty, moves
    assert [metric[1:] for metric in tried_metrics] == [lightest_fitted] * 3


def test_search_from_a_second_start_ends_when_the_first_is_far_ahead(stages_that_gain):
    stages, tried_metrics = stages_that_gain
    best = stages.search(FIRST_STAGE, rival_error=0.2)
    assert best.held_out_error == pytest.approx(0.9)
    assert len(tried_metrics) == 1


@pytest.mark.parametrize(
    ("penalty", "first_metrics"),
    [
        (10.0, [(1.0, 1.0, True), (1.0, 10.0, True), (1.0, 10.0, False)]),
        (1.0, [(1.0, 1.0, True), (1.0, 10.0, True)]),
    ],
    ids=["raised penalty", "first penalty"],
)
def test_fitted_metrics_are_tried_first(stages_that_gain, penalty, first_metrics):
    """A metric is a power, a penalty, and whether it moves; a raised penalty may be lowered."""
    stages, _ = stages_that_gain
    metrics = stages.metrics_to_try(FIRST_STAGE._replace(penalty=penalty))
    assert metrics[: len(first_metrics)] == first_metrics


def test_weights_that_never_beat_the_linear_model_are_left_out():
    narx = KINDS_OF_LAGS["value"]
    truth = linear_candidate(narx, [0.5, -0.2, 0.3, 0.1], 0.1)
    signals = with_naive_run(truth, random_signals(narx, 200, seed=1))
    signals["y"] += 0.3 * np.random.default_rng(8).standard_normal(200)

    fit = refine(signals, 10, narx)

    first, *starts, last = fit.report["stages"]
    assert (first["stage"], last["stage"]) == ("linear", "all windows")
    assert {stage["stage"] for stage in starts} == {"whitened"}
    penalties = sorted({stage["penalty"] for stage in starts})
    assert penalties == pytest.approx([1e-3, 1e-2, 1e-1, 1.0])
    assert not fit.candidate.weights.any()
    assert len(fit.candidate.weights) == 10


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"plain_spreads": (1.0, -2.0)}, "plain_spreads must be positive"),
        ({"transient": 2048}, "transient must be below window"),
        ({"hold_every": 1}, "hold_every must be a whole number"),
        ({"powers": (2.0,)}, "powers must be numbers"),
        ({"kernels": (Linear(),)}, "stationary kernels"),
        ({"kernels": ()}, "stationary kernels, at least one"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        OutputErrorRefinement(**settings)


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="at least 50 samples beside the transients"):
        refine(wiener_record(30), 5)


def test_output_that_does_not_vary_is_refused():
    with pytest.raises(ValueError, match="'y' does not vary"):
        refine(constant_record(), 5)
