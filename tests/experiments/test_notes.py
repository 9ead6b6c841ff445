"""Notes of a run: a note checks what is set, and what the data say."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from experiments.identify.causes import (
    WorseningCause,
    explain_coverage,
    find_worsening_cause,
)
from experiments.identify.compared_errors import without_gross_errors
from experiments.identify.linear import _orders as orders_of_line
from experiments.identify.linear import note_linear
from experiments.identify.result import Result
from experiments.identify.summary import (
    _advise_samples,
    _quality_warnings,
    _scores_without_gross_errors,
    _warn_of_data,
    _warn_of_drift,
    _warn_of_gross_errors,
    _warn_of_no_candidates,
    _warn_of_refused_samples,
)
from sysid import (
    AcceptAll,
    AffineMap,
    Always,
    ConstantMean,
    ErrorThreshold,
    ExceedsMinimum,
    FreeRun,
    LinearMean,
    Matern52,
    MaximumAPosteriori,
    MeanFunction,
    MeanRelevance,
    Model,
    Narx,
    OnlineGP,
    Prediction,
    PriorEntropy,
    Screened,
    Settings,
    SquaredExponential,
)

LAGS = Narx({"y": 2}, {"u": 2})
LONG_LAGS = Narx({"y": 12}, {"u": 12})

# --- better linear models -------------------------------------------------------------------------


def linear_notes(
    *,
    settings=None,
    narx=LAGS,
    best=(5, 5, 1),
    lag_choice=None,
    error=2.0,
    physics=None,
    has_automatic_lags=False,
    clean=None,
):
    """Return the notes on a linear model of RMSE 1, one step ahead and in free run.

    `clean` are the errors of the model and of the linear one without gross errors.
    """
    settings = Settings() if settings is None else settings
    na, nb, nk = best
    entry = {"na": na, "nb": nb, "nk": nk, "rmse": 1.0, "free_run_rmse": 1.0}
    own_clean, linear_clean = clean or (None, None)
    for key in ("rmse", "free_run_rmse"):
        entry[without_gross_errors(key)] = linear_clean
    result = SimpleNamespace(
        identification=SimpleNamespace(narx=narx, settings=settings),
        source=SimpleNamespace(
            physics=physics,
            lag_choice=lag_choice,
            recordings=lambda: SimpleNamespace(is_static=False),
        ),
        has_no_feedback=False,
        is_trained_for_free_run=isinstance(settings.training, FreeRun),
    )
    summary = {
        "linear": {"best": entry},
        "linear_lags": None,
        "rmse": error,
        "rmse_without_gross_errors": own_clean,
        "smse_without_gross_errors": own_clean,
        "free_run": {"rmse": error},
        "free_run_without_gross_errors": None if own_clean is None else {"rmse": own_clean},
    }
    return note_linear(summary, result, has_automatic_lags=has_automatic_lags)


def test_automatic_lags_are_not_advised_where_they_are_set():
    assert "narx=auto" in " ".join(linear_notes())
    assert "narx=auto" not in " ".join(linear_notes(has_automatic_lags=True))


def test_gross_errors_do_not_decide_whether_a_line_is_better():
    assert not linear_notes(error=5.0, clean=(0.1, 0.2))
    notes = linear_notes(error=0.5, clean=(0.3, 0.2))
    assert [note.split("(")[0].strip() for note in notes] == [
        "a linear model predicts better one step ahead: RMSE 0.2 against 0.3",
        "a linear model predicts better in free run: RMSE 0.2 against 0.3",
    ]


@pytest.mark.parametrize(
    ("lags", "orders"),
    [
        ({"u": [7, 8], "v": [1, 2]}, {"na": 2, "nb": 2, "nk": [7, 1]}),
        ({"u": [1, 2, 3], "v": [1]}, {"na": 2, "nb": [3, 1], "nk": 1}),
        ({"u": [3, 4], "v": [3, 4]}, {"na": 2, "nb": 2, "nk": 3}),
    ],
)
def test_orders_that_differ_between_the_inputs_are_listed(lags, orders):
    assert orders_of_line(SimpleNamespace(narx=Narx({"y": 2}, lags))) == orders


class Physics(MeanFunction):
    """A mean function that is no constant and no line."""

    def __call__(self, regressors):
        return regressors[:, 0]


WITHOUT_LINEAR_PART = Settings(linear_part="none")
WITH_LINEAR_PART = LAGS.with_linear({"y": range(1, 15), "u": range(1, 15)})


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        pytest.param({}, "; take narx=auto, or more lags", id="own"),
        pytest.param(
            {"best": (1, 1, 1), "narx": WITH_LINEAR_PART}, "; take narx=auto", id="fewer lags"
        ),
        pytest.param(
            {"lag_choice": "chosen", "settings": WITHOUT_LINEAR_PART},
            "; take linear_part=auto",
            id="automatic lags, no linear part by setting",
        ),
        pytest.param(
            {"lag_choice": "chosen", "narx": WITH_LINEAR_PART},
            "",
            id="automatic lags and linear part",
        ),
        pytest.param({"lag_choice": "chosen"}, "", id="a linear part that was not chosen"),
        pytest.param(
            {"lag_choice": "chosen", "settings": Settings(learning="stored")},
            "",
            id="a linear part is impossible",
        ),
        pytest.param(
            {"narx": Narx({"y": 2, "z": 2}, {"u": 2}), "settings": Settings(learning="stored")},
            "; take more lags",
            id="two outputs, which need the same lags",
        ),
        pytest.param(
            {"narx": LONG_LAGS, "settings": Settings(learning="stored")},
            "; take narx=auto",
            id="many lags",
        ),
    ],
)
def test_lags_are_advised_where_other_lags_may_help(options, advice):
    one_step = linear_notes(**options)[0]
    assert one_step.startswith("a linear model predicts better one step ahead")
    assert one_step.endswith(f"){advice}")


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        pytest.param(Settings(), "; take training=free_run", id="defaults"),
        pytest.param(
            Settings(
                mean=LinearMean(), training=MaximumAPosteriori(kernel=Matern52()), learning="stored"
            ),
            "; take training=free_run without a setting of mean and kernel",
            id="settings that the training refuses",
        ),
        pytest.param(Settings(mean=Physics()), "", id="physics beside the model"),
        pytest.param(Settings(training=FreeRun()), "; take narx=auto, or more lags", id="on"),
    ],
)
def test_the_training_for_the_free_run_is_advised_where_it_is_possible(settings, advice):
    free_run = linear_notes(settings=settings)[-1]
    assert free_run.startswith("a linear model predicts better in free run")
    assert free_run.endswith(f"){advice}")


def test_the_training_for_the_free_run_is_not_advised_for_the_residual_of_physics():
    notes = linear_notes(settings=Settings(mean=LinearMean([1.0] * 4)), physics="tanks")
    assert notes[-1].endswith(")")
    assert "training=free_run" in linear_notes(physics="tanks")[-1]


# --- predictions that get worse -------------------------------------------------------------------

N_STREAM = 2000


def model_of(inputs, targets):
    """Return a model of two features that has learned every sample."""
    gp = OnlineGP(
        SquaredExponential(1.0, [0.7, 0.7]),
        noise_variance=0.01,
        budget=40,
        learning="every_sample",
    )
    gp.fit(inputs[:100], targets[:100])
    model = Model(Narx({"y": 1}, {"u": 1}), AffineMap.identity(2), ConstantMean(0.0), gp)
    model.update_many(inputs[100:], targets[100:])
    return model


def stream(kind):
    """Return inputs and targets of a stream that gets worse in its last quarter, and why."""
    rng = np.random.default_rng(1)
    inputs = rng.uniform(-1, 1, (N_STREAM, 2))
    is_last = np.arange(N_STREAM) >= 3 * N_STREAM // 4
    if kind == "region":
        inputs[is_last] += 5.0
    targets = np.sin(3 * inputs[:, 0]) + inputs[:, 1]
    noise = 0.1 * rng.normal(size=N_STREAM)
    if kind == "plant":
        targets = np.where(is_last, 0.5 * targets, targets)
    if kind == "slightly":
        targets = np.where(is_last, targets + 0.07, targets)
    if kind == "drift":
        targets = np.sin(3 * inputs[:, 0] + 0.001 * np.arange(N_STREAM))
    if kind == "noise":
        noise = np.where(is_last, 4 * noise, noise)
    return inputs, targets + noise


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("plant", WorseningCause.changed_plant),
        ("drift", WorseningCause.changed_plant),
        ("slightly", WorseningCause.unclear),
        ("noise", WorseningCause.other),
        ("region", WorseningCause.new_region),
        ("same", WorseningCause.other),
    ],
)
def test_the_cause_of_worse_predictions_is_found(kind, cause):
    inputs, targets = stream(kind)
    assert find_worsening_cause(model_of(inputs, targets), inputs, targets) is cause


def drift_warning(target, mean, kind="plant", **settings):
    """Return the note on a stream with these targets and predictions."""
    inputs, targets = stream(kind)
    rows = {"target": SimpleNamespace(values=target), "regressor": SimpleNamespace(values=inputs)}
    record = np.zeros(N_STREAM, dtype=[("mean", float), ("outlier", bool)])
    record["mean"] = mean
    result = SimpleNamespace(
        is_online=np.ones(N_STREAM, dtype=bool),
        record=record,
        identified=rows,
        identification=SimpleNamespace(
            model=model_of(inputs, targets), settings=Settings(**settings)
        ),
    )
    return "".join(_warn_of_drift(result))


@pytest.mark.parametrize(
    ("kind", "settings", "words", "others"),
    [
        ("plant", {}, "set forgetting=<samples>", "prior_entropy"),
        ("plant", {"learning": "stored"}, "reduction=prior_entropy", "forgetting would not"),
        (
            "plant",
            {"learning": "stored", "reduction": PriorEntropy(), "acceptance": AcceptAll()},
            "set forgetting=<samples>",
            "prior_entropy",
        ),
        ("slightly", {}, "If the plant drifts, old samples", "has changed"),
        ("noise", {}, "forgetting would not help", "set forgetting"),
        ("region", {}, "excite the plant", "set forgetting"),
    ],
    ids=["every sample", "stored", "stored, advice followed", "slightly", "noise", "new region"],
)
def test_forgetting_is_advised_for_a_plant_that_changes(kind, settings, words, others):
    _, target = stream(kind)
    is_last = np.arange(N_STREAM) >= 3 * N_STREAM // 4
    error = np.random.default_rng(0).normal(size=N_STREAM) * np.where(is_last, 0.5, 0.1)
    warning = drift_warning(target, target + error, kind, **settings)
    assert words in warning
    assert others not in warning


def test_a_signal_that_varies_less_is_not_predicted_worse():
    rng = np.random.default_rng(0)
    target = rng.normal(size=N_STREAM) * np.where(np.arange(N_STREAM) < N_STREAM / 2, 1.0, 0.1)
    assert not drift_warning(target, target + 0.05 * rng.normal(size=N_STREAM))


# --- bands that do not cover ----------------------------------------------------------------------


def quality_warnings(**changes):
    summary = {"smse": 0.3, "smse_no_change": 1.0, "coverage_95": 0.95, "n_validation": 500}
    return _quality_warnings(summary | changes)


@pytest.mark.parametrize(
    ("coverage", "n", "width"),
    [
        (1.0, 50, None),
        (1.0, 500, "wide"),
        (0.8, 10, None),
        (0.8, 200, "narrow"),
        (0.95, 10_000, None),
    ],
)
def test_a_coverage_that_chance_explains_is_not_warned_of(coverage, n, width):
    warnings = quality_warnings(coverage_95=coverage, n_validation=n)
    assert len(warnings) == (width is not None)
    if width is not None:
        assert f"is too {width}: the noise and the uncertainty" in warnings[0]


@pytest.mark.parametrize("is_for_one_step", [True, False], ids=["one step", "free run"])
def test_a_model_that_simulates_well_need_not_predict_one_step(is_for_one_step):
    summary = {"smse": 2.5, "smse_no_change": 1.0, "coverage_95": 0.95, "n_validation": 500}
    warnings = _quality_warnings(summary, is_for_one_step=is_for_one_step)
    assert len(warnings) == is_for_one_step


def coverage_cause(
    *,
    lag=None,
    size=1.0,
    own=0.0,
    n_spikes=0,
    offset=0.0,
    n_online=400,
    narx=LAGS,
    lag_choice=None,
    is_for_free_run=False,
):
    """Return the cause for errors with a part of an input at a lag, of a size, with own dynamics.

    The last errors of the stream have the size 1, as many as `n_online`.
    """
    rng = np.random.default_rng(2)
    n = 400
    u = rng.normal(size=n)
    errors = size * rng.normal(size=n)
    if lag is not None:
        errors += 2.0 * np.roll(u, lag)
    for k in range(1, n):
        errors[k] += own * errors[k - 1]
    errors[: 10 * n_spikes : 10] += 20.0
    errors += offset
    signals = xr.Dataset({"u": ("time", u)}, {"time": np.arange(float(n))})
    rows = xr.Dataset(
        {
            "target": ("sample", errors),
            "record": ("sample", np.zeros(n, dtype=int)),
            "time": ("sample", signals["time"].values),
        },
        attrs={"sampling_time": 1.0},
    )
    record = np.zeros(n, dtype=[("mean", float), ("outlier", bool)])
    identified = xr.Dataset({"target": ("sample", rng.normal(size=n))})
    result = SimpleNamespace(
        identification=SimpleNamespace(
            narx=narx, model=SimpleNamespace(gp=SimpleNamespace(noise_variance=0.0))
        ),
        source=SimpleNamespace(inputs=["u"], recordings=lambda: None, lag_choice=lag_choice),
        is_trained_for_free_run=is_for_free_run,
        signals=[signals],
        validation=rows,
        predicted=Prediction(np.zeros(n), np.ones(n)),
        is_untouched=np.ones(n, dtype=bool),
        identified=identified,
        record=record,
        is_online=np.arange(n) >= n - n_online,
    )
    return explain_coverage(result)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"lag": 16}, "errors correlate with u 16 samples before", id="missing lag"),
        pytest.param(
            {"own": 0.8, "size": 0.6}, "errors correlate with those 1 samples before", id="dynamics"
        ),
        pytest.param({"size": 3.0}, "times those at the end of the learned", id="other noise"),
        pytest.param({"size": 5.0, "own": 0.5}, "times those at the end of the learned", id="both"),
        pytest.param(
            {"size": 3.0, "own": 0.5, "n_online": 40}, "times those at the end", id="a short record"
        ),
        pytest.param({}, "do not fit these samples", id="nothing else"),
        pytest.param(
            {"own": 0.8, "size": 0.6, "narx": Narx({"y": []}, {"u": [0]}, predict="value")},
            "do not fit these samples",
            id="static data",
        ),
        pytest.param(
            {"own": 0.8, "size": 0.6, "is_for_free_run": True},
            "do not fit these samples",
            id="errors one step ahead of a model for the free run",
        ),
        pytest.param({"lag": 2, "size": 0.01}, "do not fit|times those", id="a lag it has"),
        pytest.param(
            {"lag": 5, "size": 0.01, "lag_choice": SimpleNamespace(tried_lags={"u": {5}})},
            "do not fit|times those",
            id="a lag that was compared",
        ),
        pytest.param(
            {"n_spikes": 30}, "30 of 400 errors exceed 4 standard deviations", id="spikes"
        ),
        pytest.param(
            {"size": 0.1, "offset": 50.0}, "times those at the end of the", id="all far too large"
        ),
    ],
)
def test_the_cause_of_bands_that_do_not_cover_is_named(options, words):
    cause = coverage_cause(**options)
    assert any(word in cause for word in words.split("|"))


# --- gross errors of the validating samples -------------------------------------------------------


def of_validation(*, n, wrong, n_found=None, is_predicted=True, narx=LAGS):
    """Return a result whose validating record of n samples has these wrong values of the output."""
    times = np.arange(float(n))
    marks = {name: np.zeros(n, dtype=bool) for name in ("y", "u")}
    marks["y"][wrong] = True
    record = xr.Dataset(coords={"time": times})
    found = {"y": len(wrong)} if n_found is None else n_found
    rows = times[narx.max_lag :]
    target = np.isin(rows, wrong) * 10.0
    validation = xr.Dataset(
        {
            "target": ("sample", target),
            "record": ("sample", np.full(len(rows), 3)),
            "time": ("sample", rows),
            "previous": ("sample", np.zeros(len(rows))),
        }
    )
    predicted = np.ones(len(rows)) if is_predicted else np.zeros(0)
    result = SimpleNamespace(
        source=SimpleNamespace(
            screened_validation=Screened((record,), found, (marks,)),
            learned=lambda: (None, None, None),
        ),
        identification=SimpleNamespace(
            narx=narx, model=SimpleNamespace(gp=SimpleNamespace(noise_variance=0.0))
        ),
        validation=validation,
        predicted=Prediction(predicted, np.ones(len(predicted))),
        report=None,
    )
    result.has_gross_errors = Result.has_gross_errors.fget(result)
    result.is_untouched = Result.is_untouched.fget(result)
    return result


@pytest.mark.parametrize(
    ("options", "rmse", "words"),
    [
        pytest.param(
            {"n": 20, "wrong": [5]}, 1.0, "5 K with them, 1 K without the rows", id="some rows"
        ),
        pytest.param(
            {"n": 20, "wrong": range(1, 20, 3)}, np.nan, "no row is free of them", id="every row"
        ),
        pytest.param(
            {"n": 8, "wrong": [4], "narx": LONG_LAGS},
            np.nan,
            "the samples that validate the model have gross errors (1 of y)",
            id="no row at all",
        ),
        pytest.param({"n": 20, "wrong": [], "n_found": {}}, np.nan, "", id="no gross errors"),
    ],
)
def test_rows_that_a_gross_error_touches_are_left_out_of_a_second_score(options, rmse, words):
    result = of_validation(is_predicted=options["n"] > 12, **options)
    scores = _scores_without_gross_errors(result)
    assert scores["rmse_without_gross_errors"] == pytest.approx(rmse, nan_ok=True)
    with_them = 5.0 if options["n"] > 12 else np.nan
    summary = {"rmse": with_them, "target_unit": "degC", **scores}
    notes = _warn_of_gross_errors(summary, result)
    assert len(notes) == bool(words)
    assert all(note.endswith(words) or words in note for note in notes)


# --- few initial samples, no candidates, refused candidates ---------------------------------------


@pytest.mark.parametrize(
    ("n_initial", "is_record", "advice"),
    [
        (100, False, "raise training.n_initial or raise the duration"),
        (600, False, "the rest: raise the duration"),
        (100, True, "the rest: raise training.n_initial"),
        (600, True, ""),
    ],
)
def test_what_cannot_be_raised_is_not_advised(n_initial, is_record, advice):
    recordings = object() if is_record else None
    result = SimpleNamespace(
        learns_a_stream=True,
        source=SimpleNamespace(recordings=lambda: recordings),
        record=np.zeros(1000),
        identification=SimpleNamespace(
            adaptation=object(),
            settings=Settings(training=MaximumAPosteriori(n_initial=n_initial)),
        ),
    )
    assert _advise_samples(result).endswith(advice)
    assert bool(_advise_samples(result)) == bool(advice)


def test_a_model_at_the_limit_of_prediction_is_not_asked_for_more_samples():
    (warning,) = quality_warnings(smse=0.99, smse_limit=0.97)
    assert "nothing can: the limit of one-step prediction is 0.97" in warning
    (warning,) = quality_warnings(smse=0.99, smse_limit=0.5)
    assert "nothing can" not in warning


STORED = SimpleNamespace(gp=SimpleNamespace(learns_every_sample=False))


def refused(settings, **numbers):
    """Return the notes on candidates of a model that learns its stored points only."""
    result = SimpleNamespace(identification=SimpleNamespace(model=STORED, settings=settings))
    summary = {"n_inserted": 0, "n_turned_away": 0, "n_outliers": 0, "n_seen": 100} | numbers
    return [
        *_warn_of_no_candidates(summary, result),
        *_warn_of_refused_samples(summary, result),
    ]


@pytest.mark.parametrize(
    ("insertion", "n_outliers", "words", "others"),
    [
        (ErrorThreshold(1.0), 0, "lower the threshold", "outliers"),
        (Always(), 0, "did not learn from the stream", "threshold"),
        (ErrorThreshold(1.0), 100, "all of them were taken for outliers", "threshold"),
    ],
    ids=["threshold", "no threshold", "outliers"],
)
def test_a_threshold_is_blamed_only_if_it_may_be_the_cause(insertion, n_outliers, words, others):
    note = refused(Settings(insertion=insertion), n_outliers=n_outliers)[0]
    assert words in note
    assert others not in note


@pytest.mark.parametrize("reference", ["leave_one_out", "in_sample"])
def test_a_reference_that_is_set_is_not_advised(reference):
    settings = Settings(
        insertion=ErrorThreshold(0.1), acceptance=ExceedsMinimum(MeanRelevance(), reference)
    )
    (note,) = refused(settings, n_inserted=50, n_turned_away=40)
    assert "try acceptance=none" in note
    assert ("acceptance.reference=in_sample" in note) == (reference != "in_sample")
    assert not refused(replace(settings, insertion=Always()), n_inserted=50, n_turned_away=40)


@pytest.mark.parametrize(
    ("is_stream", "words"),
    [
        (True, ("constant in the initial samples", "initial samples that contradicted")),
        (False, ("constant in the records", "samples of the training that contradicted")),
    ],
    ids=["stream", "records"],
)
def test_the_samples_of_the_training_are_called_what_they_are(is_stream, words):
    inputs, targets = stream("same")
    inputs[:, 1] = 3.0
    model = model_of(inputs, targets)
    scaling = AffineMap.fit(inputs)
    summary = {"repairs": {"missing_samples": 0, "initial_outliers": 2}}
    notes = " ".join(_warn_of_data(summary, replace(model, scaling=scaling), is_stream=is_stream))
    for word in words:
        assert word in notes
