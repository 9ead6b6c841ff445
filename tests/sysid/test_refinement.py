"""The refinement: windows, stages, and what it simulates."""

from dataclasses import replace

import numpy as np
import pytest

from free_runs import (
    VALUE,
    WIENER,
    linear_candidate,
    random_signals,
    refine,
    segment_of,
    wiener,
    with_naive_run,
)
from sysid import Model, Narx, OnlineGP, OutputErrorRefinement, free_run
from sysid.simulation_error import refinement
from sysid.simulation_error.candidate import squared_error
from sysid.simulation_error.windows import hold_back, windows_of


@pytest.mark.parametrize(
    ("lengths", "window", "transient"), [((1000,), 2048, 400), ((500, 40, 3), 100, 20)]
)
def test_windows_score_every_sample_once_but_the_transients_of_the_segments(
    lengths, window, transient
):
    segments = [segment_of(VALUE, random_signals(VALUE, n + 2, seed=n)) for n in lengths]
    windows = windows_of(segments, window, transient)
    assert len(windows) >= 4
    scored = np.concatenate([w.values[w.transient :] for w in windows])
    everything = np.concatenate([segment.values for segment in segments])
    assert len(np.unique(scored)) == len(scored) > 0.75 * len(everything)
    assert set(scored) <= set(everything)
    assert max(len(w.values) for w in windows) <= 1.5 * window
    for w in windows:
        assert w.transient <= 0.25 * len(w.values)
        np.testing.assert_array_equal(w.regressors[1:, 0], w.values[:-1])
        assert w.past[-1] == w.regressors[0, 0]


def test_the_refinement_simulates_a_record_that_it_has_not_seen():
    """So does the model that is made of it."""
    refined = refine(wiener(800), 20)
    names = [stage["stage"] for stage in refined.report["stages"]]
    assert (names[0], names[-4:]) == ("linear", ["metric"] * 3 + ["all windows"])
    assert set(names[1:-4]) == {"whitened"}
    _, held = hold_back(windows_of([segment_of(WIENER, wiener(800))], 120, 20), 8, 4)
    last = refined.report["stages"][-1]["held rmse"]  # of all windows
    assert np.sqrt(squared_error(refined.candidate, held)) == pytest.approx(last, rel=1e-4)
    first = refined.candidate.scaling.matrix[0]
    assert abs(first @ [1, 0, 1, 0]) > 0.9 * 2**0.5 * np.linalg.norm(first)
    signals = wiener(300, seed=1)
    new = segment_of(WIENER, signals)
    path = refined.candidate.simulate(new)
    assert (
        np.sqrt(np.mean((path - new.values) ** 2)) < 0.1 * refined.report["stages"][0]["held rmse"]
    )
    assert 0 < refined.latent_variance < 0.1 * np.var(new.values)
    start = refined.candidate.initial_model(1e-4, refined.latent_variance, new.regressors)
    gp = OnlineGP(start.hyperparameters.kernel, noise_variance=1e-4, budget=20).fit(*start.points)
    model = Model(WIENER, start.scaling, start.mean, gp)
    run = free_run(model, signals["u"][:, None], signals["y"][:2, None])
    np.testing.assert_allclose(run.mean[:, 0], path, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("predict", ["value", "change"])
def test_the_refinement_follows_its_seed_and_does_not_depend_on_the_units(predict):
    narx = replace(WIENER, predict=predict)
    signals = wiener(200)
    quick = {"stages": 1, "iterations": 3}
    other = {"u": 0.01 * signals["u"] - 3.0, "y": 1000.0 * signals["y"] + 5000.0}
    first, again, second = (
        refine(s, 10, narx, search_points=10, **quick) for s in (signals, signals, other)
    )
    np.testing.assert_array_equal(again.candidate.weights, first.candidate.weights)
    assert again.report == first.report
    run = second.candidate.simulate(segment_of(narx, other))
    expected = 1000.0 * first.candidate.simulate(segment_of(narx, signals)) + 5000.0
    np.testing.assert_allclose(run, expected, rtol=1e-4)
    assert second.latent_variance == pytest.approx(1e6 * first.latent_variance, rel=1e-3)
    held = [found.report["stages"][-1]["held rmse"] for found in (first, second)]
    assert held[1] == pytest.approx(1e3 * held[0], rel=1e-3)


def test_the_start_and_the_penalty_that_simulate_the_windows_held_back_best_go_on():
    found = refine(wiener(840), 20, plain_spreads=(6.0, 12.0), penalty=0.1, stages=0)
    held = {stage["stage"]: stage["held rmse"] for stage in found.report["stages"][1:4]}
    assert min(held, key=held.get) == "plain 6"
    assert (held["whitened"], found.report["stages"][1]["runs away from"]) == (
        np.inf,
        "larger inputs",
    )
    y, u = (np.std(wiener(840)[name][2:], ddof=0) for name in ("y", "u"))
    np.testing.assert_allclose(
        found.candidate.scaling.matrix,
        np.diag(1 / (6 * np.array([y, y, u, u]))),
        rtol=1e-2,
    )
    of_state = refine(wiener(840), 20, state_spreads=(3.0, 6.0), penalty=0.1, stages=0)
    held = {stage["stage"]: stage["held rmse"] for stage in of_state.report["stages"][1:4]}
    assert min(held, key=held.get) == "state 3"
    assert of_state.candidate.scaling.matrix.shape[0] <= WIENER.n_features
    fewer = refine(wiener(420), 8, plain_spreads=(12.0,), penalty=0.1, stages=0)
    tried = [stage for stage in fewer.report["stages"] if stage["stage"] == "8 points"]
    best = min(tried, key=lambda stage: stage["held rmse"])["penalty"]
    assert best == fewer.report["penalty"] == fewer.report["stages"][-1]["penalty"]
    assert (
        np.diff([stage["held rmse"] for stage in tried])[-1] >= 0
    )  # heavier ones are not tried beyond
    assert (
        len(tried),
        len(fewer.candidate.weights),
        fewer.candidate.weights.any(),
    ) == (2, 8, True)


def test_a_metric_that_moves_finds_the_combination_of_many_lags_on_which_a_function_depends():
    """``y[k] = 0.3 y[k-1] + tanh(2 h'u)``, h of twelve lags: the rows of the regression would fill
    12 dimensions.
    """
    u = np.random.default_rng(0).standard_normal(1500)
    y = np.zeros(1500)
    response = np.sin(np.arange(12)) * 0.8 ** np.arange(12)
    for k in range(12, 1500):
        y[k] = 0.3 * y[k - 1] + np.tanh(2.0 * response @ u[k - 11 : k + 1][::-1])
    narx = Narx({"y": 1}, {"u": range(12)}, predict="value")
    found = refine({"u": u, "y": y}, 20, narx, search_points=40)
    (direction, *rest), stages = found.candidate.scaling.matrix, found.report["stages"]
    assert abs(direction[1:] @ response) > 0.999 * np.linalg.norm(direction) * np.linalg.norm(
        response
    )
    assert not rest
    assert stages[-1]["moves"]
    assert stages[-1]["held rmse"] < 0.02 * np.std(y) < 0.2 * stages[0]["held rmse"]


def test_the_search_from_a_second_start_ends_where_the_first_is_far_ahead(monkeypatch):
    stages = object.__new__(refinement._Stages)
    asked = []
    stages.settings = OutputErrorRefinement(stages=3)

    def change_metric(before, *what):
        asked.append(what)
        return before._replace(held_out_error=0.9 * before.held_out_error)

    stages.change_metric = change_metric
    start = refinement._Stage(None, 1.0, penalty=10.0)
    assert stages.search(start).held_out_error == pytest.approx(0.9**3)
    assert [what[1:] for what in asked] == [(1.0, True), (1.0, True), (1.0, True)]
    assert stages.search(start, rival_error=0.2).held_out_error == pytest.approx(0.9)
    assert len(asked) == 4
    assert stages.metrics_to_try(start)[:3] == [
        (1.0, 1.0, True),
        (1.0, 10.0, True),
        (1.0, 10.0, False),
    ]
    assert stages.metrics_to_try(start._replace(penalty=1.0))[:2] == [
        (1.0, 1.0, True),
        (1.0, 10.0, True),
    ]


def test_weights_that_never_beat_the_linear_model_are_left_out():
    truth = linear_candidate(VALUE, [0.5, -0.2, 0.3, 0.1], 0.1)
    signals = with_naive_run(truth, random_signals(VALUE, 200, seed=1))
    signals["y"] += 0.3 * np.random.default_rng(8).standard_normal(200)
    found = refine(signals, 10, VALUE)
    stages = found.report["stages"]
    assert [stage["stage"] for stage in stages] == ["linear"] + 4 * ["whitened"] + ["all windows"]
    assert [stage["penalty"] for stage in stages[1:5]] == pytest.approx([1e-3, 1e-2, 1e-1, 1.0])
    assert not found.candidate.weights.any()
    assert len(found.candidate.weights) == 10


def test_limits_are_those_of_the_free_run():
    signals = wiener(300)
    signals["y"] = np.clip(signals["y"], -0.5, 0.8)
    found = refine(signals, 8, limits=(-0.5, 0.8), stages=0)
    path = found.candidate.simulate(segment_of(WIENER, signals))
    assert found.candidate.limits == (path.min(), path.max()) == (-0.5, 0.8)
