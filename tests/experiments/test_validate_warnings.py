"""`sysid-validate`: what it refuses, and the numbers that it warns about."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from experiments.validate import report
from experiments.validate.assessment import FREE_RUN_LABEL, Case
from experiments.validate.report import coverage_percents, find_outside
from helpers.records import (
    DT,
    ONE_STEP_ONLY,
    coupled_signals,
    find_warning,
    has_warning,
    make_model,
    read_validation,
    run_validate,
    save_models,
    validation_overrides,
    write_record,
)
from sysid import (
    AffineMap,
    ConstantMean,
    MeanOnly,
    OnlineGP,
    Screened,
    SquaredExponential,
    StableSpline,
    Taylor,
    Validation,
    WithLinearPart,
)
from sysid.store import read, write

N_SAMPLES = 50


@pytest.fixture
def model_file(tmp_path):
    return save_models(tmp_path / "model.nc")


@pytest.fixture
def record_file(tmp_path):
    return write_record(tmp_path / "test.csv", n=N_SAMPLES)


@pytest.fixture
def fitting(model_file, record_file):
    """Overrides of the model file and of a test record that fits it."""
    return (*validation_overrides(model_file, record_file), *ONE_STEP_ONLY)


# --- what is refused ------------------------------------------------------------------------------


def write_infinite_input(model_file, record_file):
    u = coupled_signals(N_SAMPLES, 1)["u"]
    u[20] = np.inf
    write_record(record_file, n=N_SAMPLES, u=u)


def cut_model_file(model_file, record_file):
    content = model_file.read_bytes()
    model_file.write_bytes(content[: len(content) // 2])


def name_another_kernel(model_file, record_file):
    data = read(model_file, kind="model")
    write(data.assign_attrs(kernel="builtins.list"), model_file, kind="model")


def write_another_schema(model_file, record_file):
    write(read(model_file, kind="model"), model_file, kind="study")


def save_static_model(model_file, record_file):
    lags = {"outputs": {"y": []}, "inputs": {"u": [0]}}
    make_model(lags=lags, predict="value").save(model_file)


def save_one_model_of_two_outputs(model_file, record_file):
    make_model("y", {"outputs": {"y": 2, "z": 1}, "inputs": {"u": [1]}}).save(model_file)


@pytest.mark.parametrize(
    ("damage", "message", "outputs"),
    [
        pytest.param(write_infinite_input, "test.csv", ("y",), id="infinite input"),
        pytest.param(cut_model_file, "model.nc", ("y",), id="truncated model"),
        pytest.param(name_another_kernel, "model.nc", ("y",), id="a list as kernel"),
        pytest.param(write_another_schema, "'study'", ("y",), id="another kind of file"),
        pytest.param(save_static_model, "static", ("y",), id="static model"),
        pytest.param(
            save_one_model_of_two_outputs,
            "one model for each",
            ("y", "z"),
            id="output without model",
        ),
    ],
)
def test_records_and_models_that_cannot_be_read_or_simulated_are_refused(
    damage, message, outputs, model_file, record_file, tmp_path
):
    damage(model_file, record_file)
    overrides = validation_overrides(model_file, record_file, outputs=outputs)
    folder = tmp_path / "run"

    with pytest.raises((ValueError, TypeError, OSError)) as caught:
        run_validate(folder, *overrides, *ONE_STEP_ONLY)

    assert message in f"{caught.value} {caught.value.__cause__ or ''}"
    assert list(folder.iterdir()) == []


# --- divergence and limits ------------------------------------------------------------------------


def test_a_divergence_is_reported_with_its_time_and_value(fitting, model_file, tmp_path):
    save_models(model_file, replace(make_model(), mean=ConstantMean(400.0)))

    content = run_validate(tmp_path / "run", *fitting)

    (divergence,) = [entry for entry in content["divergences"] if entry["horizon"] == "free_run"]
    assert content["free_run"]["rmse"] is None
    assert content["free_run"]["n"] == N_SAMPLES - 2
    assert content["free_run"]["n_diverged"] == N_SAMPLES - divergence["sample"]
    assert divergence["output"] == "y"
    assert divergence["time"] == DT * divergence["sample"]
    warning = find_warning(content, "diverges")
    assert f"{divergence['time']:g} s" in warning
    assert f"{divergence['value']:.4g} V" in warning
    assert "skipped" in content["residuals"]["free_run"]
    group = read_validation(tmp_path / "run")["free_run_window_2"]
    assert np.isnan(group["mean"].values[-1, 0])
    assert content["one_step"]["rmse"] > 100
    assert not has_warning(content, "runs into a limit")


def test_a_free_run_that_is_held_at_a_limit_is_warned_about(fitting, model_file, tmp_path):
    model = replace(make_model(), mean=ConstantMean(400.0), limits=(-9.0, 9.0))
    save_models(model_file, model)

    content = run_validate(tmp_path / "run", *fitting)

    mean = read_validation(tmp_path / "run")["free_run_window_2"]["mean"].values
    assert mean.max() == 9.0
    assert content["free_run"]["n_diverged"] == 0
    assert content["free_run"]["n_held"] == len(mean)
    assert content["one_step"]["n_held"] == len(mean)
    words = (
        "the free run after a window of 2 runs into a limit that the data of the model never "
        f"reached, at {len(mean)}"
    )
    assert find_warning(content, words).startswith(words)


# --- regressors outside the stored points ---------------------------------------------------------

#: column of u[k-1]
INPUT_COLUMN = 2


def test_regressors_outside_the_dictionary_are_warned_about(fitting, record_file, tmp_path):
    write_record(record_file, n=N_SAMPLES, u=5 * coupled_signals(N_SAMPLES, 1)["u"])

    content = run_validate(tmp_path / "run", *fitting)

    (warning,) = [text for text in content["warnings"] if "dictionary" in text and "1 step" in text]
    assert "u[k-1] reaches" in warning


def test_a_model_with_a_metric_has_no_region_of_regressors(
    fitting, model_file, record_file, tmp_path
):
    write_record(record_file, n=N_SAMPLES, u=5 * coupled_signals(N_SAMPLES, 1)["u"])
    model = make_model()
    scaling = model.scaling
    metric = AffineMap.of_matrix(scaling.offset, np.diag(1.0 / scaling.scale))
    save_models(model_file, replace(model, scaling=metric))

    content = run_validate(tmp_path / "run", *fitting)

    assert not has_warning(content, "dictionary")


def test_stored_points_are_inside():
    model = make_model()
    points = model.scaling.inverse(model.gp.inputs)

    assert find_outside(model, points) == (0, 0, len(points), "")


def test_regressors_beyond_the_range_of_a_feature_are_outside():
    model = make_model()
    points = model.scaling.inverse(model.gp.inputs)
    u = points[:, INPUT_COLUMN]
    low, high = u.min(), u.max()
    moved = points.copy()
    moved[3, INPUT_COLUMN] = high + 0.06 * (high - low)
    moved[4, 0] = points[:, 0].min() - 0.04 * np.ptp(points[:, 0])  # within the margin
    moved[5] = np.nan  # is ignored

    result = find_outside(model, moved)

    reached = moved[3, INPUT_COLUMN]
    where = f"u[k-1] reaches {reached:.4g} A, the stored points {low:.4g} to {high:.4g}"
    assert result == (1, 0, len(points) - 1, where)


@pytest.mark.parametrize(
    ("distance", "length_scale", "n_beyond"),
    [
        pytest.param(0.1, 200.0, 0, id="a little, and as well determined as the points"),
        pytest.param(0.6, 200.0, 1, id="by far"),
        pytest.param(0.1, 0.5, 1, id="a little, and less determined"),
    ],
)
def test_a_model_of_every_sample_knows_more_than_the_range_of_its_points(
    distance, length_scale, n_beyond
):
    model = make_model()
    kernel = SquaredExponential(0.05, (length_scale,) * 3)
    gp = OnlineGP(kernel, noise_variance=2e-4, budget=14, learning="every_sample")
    gp.fit(model.gp.inputs, model.gp.targets)
    points = model.scaling.inverse(model.gp.inputs)
    highest = points[[points[:, INPUT_COLUMN].argmax()]]
    highest[0, INPUT_COLUMN] += distance * np.ptp(points[:, INPUT_COLUMN])

    assert find_outside(replace(model, gp=gp), highest).n_beyond == n_beyond


@pytest.mark.parametrize(
    ("length_scale", "n_unknown"), [(2.0, 0), (0.05, 1)], ids=["wide kernel", "narrow kernel"]
)
def test_regressors_between_the_points_are_unknown_if_the_points_are_too_far(
    length_scale, n_unknown
):
    model = make_model()
    kernel = SquaredExponential(0.05, (length_scale,) * 3)
    gp = OnlineGP(kernel, noise_variance=2e-4, budget=14)
    gp.fit(model.gp.inputs, model.gp.targets)
    centre = model.scaling.inverse(model.gp.inputs.mean(axis=0, keepdims=True))

    assert find_outside(replace(model, gp=gp), centre) == (0, n_unknown, 1, "")


@pytest.mark.parametrize(
    ("budget", "has_advice"), [(14, True), (50, False)], ids=["full", "not full"]
)
def test_regressors_between_the_points_do_not_leave_their_region(
    budget, has_advice, fitting, model_file, tmp_path
):
    model = make_model()
    gp = OnlineGP(SquaredExponential(0.05, (0.05,) * 3), noise_variance=2e-4, budget=budget)
    gp.fit(model.gp.inputs, model.gp.targets)
    save_models(model_file, replace(model, gp=gp))

    content = run_validate(tmp_path / "run", *fitting)

    warning = find_warning(
        content, "farther from all stored points than the length scales reach, 1"
    )
    assert ("larger budget" in warning) == has_advice
    for warning in content["warnings"]:
        if "leave the region" in warning:
            assert " reaches " in warning


def test_the_features_of_a_linear_part_have_no_region():
    """The process sees the first two features, and the linear part u[k-1]."""
    model = make_model()
    kernel = WithLinearPart(
        SquaredExponential(0.05, (2.0, 2.0)), StableSpline([1], variances=[0.1], memories=[1.0])
    )
    gp = OnlineGP(kernel, noise_variance=2e-4, budget=14, learning="every_sample")
    gp.fit(model.gp.inputs, model.gp.targets)
    points = model.scaling.inverse(model.gp.inputs)
    moved = points.copy()
    moved[3, INPUT_COLUMN] += 0.2 * np.ptp(points[:, INPUT_COLUMN])
    moved[4, 0] = points[:, 0].max() + 0.6 * np.ptp(points[:, 0])

    outside = find_outside(replace(model, gp=gp), moved)

    assert (outside.n_beyond, outside.n_unknown, outside.n_finite) == (1, 0, len(points))
    assert outside.where.startswith(f"{model.narx.feature_names[0]} reaches")


# --- gross errors ---------------------------------------------------------------------------------


def gross_error_warnings(*, n_free=10, rmse=(5.0, 7.0), without=(1.0, 2.0), outputs=("T",)):
    """Return the warnings of records in degC; errors are one step ahead and in free run."""
    main = {"one_step": Case(1, 2), FREE_RUN_LABEL: Case(None, 2)}
    kinds = dict(zip(main, zip(rmse, without, strict=True), strict=True))
    assessment = SimpleNamespace(
        screened=Screened((), {"T": 3, "u": 1}, ()),
        outputs=outputs,
        main=main,
        scores={
            main[kind]: dict.fromkeys(outputs, SimpleNamespace(rmse=error, n=20))
            for kind, (error, _) in kinds.items()
        },
        scores_without_gross_errors={
            kind: dict.fromkeys(outputs, SimpleNamespace(rmse=error, n=n_free))
            for kind, (_, error) in kinds.items()
        },
        error_unit=lambda name: "K",
        unit=lambda name: "degC",
    )
    return [*report._warn_of_gross_errors(assessment)]


FOUND = "the records have gross errors (3 of T, 1 of u)"


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        pytest.param(
            {},
            [
                f"{FOUND}; T: RMSE 1 step 5 K with them, 1 K without the samples that they touch; "
                "RMSE free run 7 K with them, 2 K without the samples that they touch"
            ],
            id="an error of a temperature is in K",
        ),
        pytest.param(
            {"n_free": 0, "without": (np.nan, np.nan)},
            [f"{FOUND}; T: no sample is free of them"],
            id="no sample is free of them",
        ),
        pytest.param(
            {"rmse": (5.0, np.inf), "without": (1.0, np.inf)},
            [f"{FOUND}; T: RMSE 1 step 5 K with them, 1 K without the samples that they touch"],
            id="the free run diverges",
        ),
        pytest.param(
            {"rmse": (np.inf, np.inf), "without": (np.inf, np.inf), "outputs": ("T", "x")},
            [FOUND],
            id="everything diverges",
        ),
    ],
)
def test_gross_errors_are_always_counted(options, warnings):
    assert gross_error_warnings(**options) == warnings


@pytest.mark.parametrize(
    ("gate", "n_found"),
    [("4.0", {"y": 1}), ("none", {}), (None, {"y": 1})],
    ids=["gate", "no gate", "not stated"],
)
def test_a_model_without_a_gate_is_validated_without_screening(
    gate, n_found, fitting, model_file, record_file, tmp_path
):
    y = coupled_signals(200, 1)["y"].copy()
    y[100] += 1000.0
    write_record(record_file, n=200, y=y)
    if gate is not None:
        make_model().save(model_file, attributes={"configuration": f"gate: {gate}\n"})

    content = run_validate(tmp_path / "run", *fitting)

    assert content["gross_errors"]["n_found"] == n_found
    assert has_warning(content, "gross errors") == bool(n_found)


# --- free run against one step --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ("sysid.FreeRun", "although the model is trained for the free run"),
        ("sysid.Adaptive", "if you want to simulate with the model, look at the free run"),
    ],
)
def test_a_model_trained_for_the_free_run_is_not_advised_to_be_judged_by_it(
    training, words, fitting, model_file, tmp_path, monkeypatch
):
    monkeypatch.setattr(report, "MAX_FREE_RUN_ERROR_RATIO", 2.0)
    model = replace(make_model(), mean=ConstantMean(0.05))
    configuration = f"training:\n  _target_: {training}\n"
    model.save(model_file, attributes={"configuration": configuration})

    content = run_validate(tmp_path / "run", *fitting)

    assert find_warning(content, "is far worse than one step ahead").endswith(words)


# --- bands and draws ------------------------------------------------------------------------------


@pytest.fixture
def noisy(fitting, record_file):
    """Overrides of a test record with more noise than the model expects."""
    noise = 0.2 * np.random.default_rng(0).normal(size=N_SAMPLES)
    write_record(record_file, n=N_SAMPLES, y=coupled_signals(N_SAMPLES, 1)["y"] + noise)
    return fitting


def test_bands_that_do_not_cover_are_warned_about(noisy, tmp_path):
    content = run_validate(tmp_path / "run", *noisy)

    assert content["one_step"]["coverage_95"] < 0.8
    warning = find_warning(content, "do not cover")
    assert "1 step" in warning
    assert "free run" in warning
    assert "process_noise" not in warning, "mean_only has no process noise"


@pytest.mark.parametrize(
    ("covered", "is_advised"),
    [
        pytest.param({1: 0.8, None: 0.5}, False, id="one step fails"),
        pytest.param({1: 0.93, None: 0.5}, True, id="the free run fails"),
        pytest.param({1: 0.93, 10: 0.7, None: 0.93}, True, id="ten steps fail"),
        pytest.param({1: 0.8, None: 0.93}, False, id="one step alone"),
    ],
)
@pytest.mark.parametrize(
    "propagation", [Taylor(), Taylor(process_noise=True), MeanOnly()], ids=repr
)
def test_process_noise_is_advised_where_it_may_widen_the_bands(covered, is_advised, propagation):
    """It enters from the second step on."""
    scores = {
        Case(horizon, 5): {"y": Validation(*[0.0] * 7, 0.5, 0.9, level, n=10, window=5)}
        for horizon, level in covered.items()
    }
    assessment = SimpleNamespace(
        forecasts=dict.fromkeys(scores),
        scores=scores,
        window=5,
        outputs=("y",),
        propagation=propagation,
        has_chosen_horizons=True,
    )

    (warning,) = report._warn_of_coverage(assessment)

    may_be_fed_back = propagation == Taylor()
    assert ("process_noise=true" in warning) == (is_advised and may_be_fed_back)


@pytest.mark.parametrize("is_chosen", [True, False], ids=["chosen", "automatic"])
def test_bands_of_horizons_that_nobody_chose_are_no_reason_to_doubt(is_chosen):
    scores = {
        Case(horizon, 5): {"y": Validation(*[0.0] * 7, 0.5, 0.9, level, n=10, window=5)}
        for horizon, level in {1: 0.95, 10: 0.7, None: 0.95}.items()
    }
    assessment = SimpleNamespace(
        forecasts=dict.fromkeys(scores),
        scores=scores,
        window=5,
        main={"one_step": Case(1, 5), "free_run": Case(None, 5)},
        outputs=("y",),
        propagation=MeanOnly(),
        has_chosen_horizons=is_chosen,
    )

    warnings = [*report._warn_of_coverage(assessment)]

    assert len(warnings) == is_chosen
    assert all("10 steps 70.0 %" in warning for warning in warnings)


def test_coverages_are_in_percent_by_the_level_of_their_band():
    score = Validation(*[0.0] * 7, 0.25, 0.5, 0.75, n=10, window=2)
    assert coverage_percents(score) == {50: 25.0, 90: 50.0, 95: 75.0}


@pytest.mark.parametrize(
    ("coverages", "message"),
    [
        pytest.param((42.0, 81.0, 86.0), None, id="close enough"),
        pytest.param(
            (50.0, 90.0, 84.0),
            "95 % band 1 step 84.0 %, 95 % band free run 84.0 %",
            id="95 % band",
        ),
        pytest.param((30.0, 85.0, 90.0), "50 % band 1 step 30.0 %", id="50 % band"),
    ],
)
def test_the_bands_with_the_worst_coverage_are_named(
    coverages, message, noisy, tmp_path, monkeypatch
):
    by_level = dict(zip((50, 90, 95), coverages, strict=True))
    monkeypatch.setattr(report, "coverage_percents", lambda score: by_level)

    content = run_validate(tmp_path / "run", *noisy)

    if message is None:
        assert not has_warning(content, "the bands of y")
    else:
        assert message in find_warning(content, "the bands of y")


def validate_with_draws(folder, overrides, n_draws, monkeypatch):
    """Validate with a limit of the computing time that allows few draws."""
    monkeypatch.setattr("sysid.simulation.propagation.propagation.MAX_DRAWN_STEPS", 125)
    monkeypatch.setattr("sysid.simulation.forecast.MIN_FREE_RUN_DRAWS", 4)
    draws = ("propagation=pathwise", f"propagation.n_samples={n_draws}")
    return run_validate(folder, *overrides, *draws)


def test_bands_of_fewer_draws_than_requested_are_rough(fitting, tmp_path, monkeypatch):
    content = validate_with_draws(tmp_path / "run", (*fitting, "horizons=[3]"), 40, monkeypatch)

    assert find_warning(content, "bands are rough").endswith(
        "than the requested 40 to limit the computing time: 3 steps 2, free run 10"
    )


@pytest.mark.parametrize(
    ("n_draws", "min_draws"),
    [(10, report.MIN_DRAWS), (40, 5)],
    ids=["all that are requested", "enough"],
)
def test_bands_of_enough_draws_are_not_rough(n_draws, min_draws, fitting, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MIN_DRAWS", min_draws)

    content = validate_with_draws(tmp_path / "run", fitting, n_draws, monkeypatch)

    assert not has_warning(content, "bands are rough")


# --- the free run against one step ----------------------------------------------------------------


def test_a_good_free_run_is_not_warned_about(fitting, tmp_path):
    assert not has_warning(run_validate(tmp_path / "run", *fitting), "far worse")


@pytest.fixture
def drifting(fitting, model_file, record_file):
    """Overrides of a model that drifts by 0.05 V at every step, and of an output that does not."""
    model = make_model()
    model.gp.fit(model.gp.inputs, np.zeros(model.gp.n_points))
    save_models(model_file, replace(model, mean=ConstantMean(0.05)))
    write_record(record_file, n=N_SAMPLES, y=0.01 * np.sin(np.arange(N_SAMPLES)))
    return fitting


def test_a_free_run_far_worse_than_one_step_is_warned_about(drifting, tmp_path):
    content = run_validate(tmp_path / "run", *drifting)

    free_run = content["free_run"]["rmse"]
    one_step = content["one_step"]["rmse"]
    assert free_run > 3 * one_step
    warning = find_warning(content, "far worse")
    assert f"RMSE {free_run:.4g} V against {one_step:.4g} V" in warning


def test_a_window_shorter_than_the_lags_is_warned_about(drifting, tmp_path):
    content = run_validate(tmp_path / "run", *drifting, "windows=[1,2]")

    assert has_warning(content, "window of 1 samples is shorter than the largest lag")
