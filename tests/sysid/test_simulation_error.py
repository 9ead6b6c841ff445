"""Training for simulation as a whole, by its estimators; what it refuses; plants and published
records.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from free_runs import (
    FREE,
    LAGS,
    PROFILE,
    SIMPLE,
    Given,
    excited,
    linear_candidate,
    random_signals,
    refine,
    samples_of,
    segment_of,
    system,
    wiener,
)
from sysid import (
    BoucWenData,
    CascadedTanksData,
    ConstantMean,
    FreeRun,
    Identification,
    InitialSamples,
    Linear,
    LinearMean,
    Narx,
    Orders,
    OutputErrorRefinement,
    ProfileSearch,
    Scaling,
    Settings,
    SquaredExponential,
    Start,
    ZeroMean,
    choose_lags,
    free_run,
    lag_choice,
    make_record,
)
from sysid.narx.lags import consecutive
from sysid.simulation.segments import segments_of
from sysid.simulation_error import calibration, linear_model
from sysid.simulation_error import training as training_module
from sysid.simulation_error.candidate import (
    Estimator,
    FitResult,
    Refusal,
    range_of,
    squared_error,
)
from sysid.simulation_error.profile_search import Ridge

TRAINING = FreeRun(routes=[replace(PROFILE, evaluations=8)], folds=2)


@pytest.fixture(autouse=True)
def few_draws(request, monkeypatch):
    """Bands from few functions in the trainings: what they are worth is tested by themselves."""
    if "slow" not in request.keywords and "band" not in request.node.name:
        monkeypatch.setattr(calibration, "N_DRAWN_FUNCTIONS", 3)
        monkeypatch.setattr(calibration, "MAX_DRAWN_POINTS", 8)


@pytest.fixture
def no_linear(monkeypatch):
    """Only the estimators of the test are candidates."""
    monkeypatch.setattr(training_module, "LINEAR_MODELS", ())


def prepared(training, samples, known=None, seed=0):
    return training.prepare(
        samples,
        Start() if known is None else known,
        mean=ConstantMean(),
        budget=10,
        seed=seed,
    )


def identified(training, signals):
    rows = SIMPLE.regressors(signals)
    identification = Identification(SIMPLE, Settings(training=training, budget=10))
    identification.observe_many(rows.regressor, rows.target)
    identification.finish()
    return identification


def test_the_model_is_the_candidate_of_the_best_route_and_follows_the_seed(no_linear):
    samples = samples_of(SIMPLE, system())
    fresh = system(50, seed=5)
    first, second = (prepared(TRAINING, samples, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.points.targets, second.points.targets)
    (estimator,) = TRAINING.routes
    candidate = estimator.fit(segments_of(samples), SIMPLE, 10, 0, FREE).candidate
    identification = identified(replace(TRAINING, n_initial=59), system())
    model = identification.model
    np.testing.assert_allclose(
        model.predict(samples.regressors).mean,
        candidate.predict(samples.regressors),
        atol=1e-6,
    )
    run = free_run(model, fresh["u"][:, None], fresh["y"][:1, None])
    assert np.var(run.mean[:, 0] - fresh["y"][1:]) < 0.1 * np.var(fresh["y"])
    assert (model.gp.n_points <= 10, model.limits) == (
        True,
        range_of(segments_of(samples)),
    )
    assert (
        identification.report["route"],
        identification.hyperparameters.warnings,
    ) == ("ProfileSearch", ())


def test_the_route_that_simulates_best_is_taken_and_refusals_are_reported(no_linear):
    signals = system()
    signals["y"] += 3.0
    samples = samples_of(SIMPLE, signals)
    diverges = Given((9.0, 0.0), 1.0)
    refuses = Given(error=Refusal("not with me"))
    routes = [
        Given(intercept=0.0),
        diverges,
        Given(intercept=3.0),
        Given(intercept=5.0),
        refuses,
    ]
    start = prepared(FreeRun(routes=routes, folds=2), samples)
    assert start.mean.intercept == 3.0
    values = segments_of(samples)[0].values
    first = values[: len(values) // 2]  # where those that are worse can win no more
    expected = [
        np.sqrt(np.mean((y - value) ** 2))
        for y, value in ((first, 0.0), (values, 3.0), (first, 5.0))
    ]
    *found, refused = start.report["tried"]
    assert [len(tried["folds"]) for tried in found] == [1, 1, 2, 1]
    found = [tried["held_out_rmse"] for tried in found]
    assert (found[1], start.report["held_out_rmse"]) == (np.inf, found[2])
    np.testing.assert_allclose(np.delete(found, 1), expected)
    assert refused["refusal"] == "Given: not with me"
    alone = prepared(FreeRun(routes=[refuses, diverges], folds=2), samples)
    assert alone.mean.intercept == 1.0
    assert any("runs away" in note for note in alone.hyperparameters.warnings)


def test_processes_change_no_bit_of_the_result(monkeypatch):
    """Fits that are not asked for are begun beforehand, and dropped."""
    samples = samples_of(SIMPLE, system())
    found = []
    routes = [
        replace(PROFILE, evaluations=2),
        PROFILE,
        OutputErrorRefinement(search_points=20, stages=2, iterations=3),
    ]
    for n in ("1", "3"):
        monkeypatch.setenv("PYTHON_CPU_COUNT", n)
        found.append(prepared(FreeRun(routes=routes, folds=4), samples))
    one, three = found
    assert one.report == three.report
    assert one.bands == three.bands
    np.testing.assert_array_equal(one.points.targets, three.points.targets)


def test_blas_keeps_to_one_thread_while_fits_use_the_processors(monkeypatch):
    def look(samples):
        raise RuntimeError(
            max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")
        )

    monkeypatch.setattr(training_module, "segments_of", look)
    with (
        threadpool_limits(2, user_api="blas"),
        pytest.raises(RuntimeError, match=r"^1$"),
    ):
        prepared(FreeRun(routes=[PROFILE], folds=3), samples_of(SIMPLE, system()))


def test_bands_are_those_of_a_typical_part_that_was_held_out(monkeypatch):
    """One part that a fit without it simulates badly does not set them.

    One step ahead the fits without the part say how sure they are, in simulations the model does.
    """
    asked = []
    one_step = iter([1.0, 90.0, 4.0])
    simulated = iter([((1, 1.0), (10, 5.0)), ((1, 2.0), (10, 90.0)), ((1, 3.0), (10, 3.0))])

    def measure(model, pairs, seed, **settings):
        asked.append((model, *pairs[0]))
        return ((1, next(one_step)),) if settings.get("horizons") == () else next(simulated)

    monkeypatch.setattr(training_module, "measure_bands", measure)
    assert prepared(FreeRun(routes=[PROFILE], folds=3), samples_of(SIMPLE, system())).bands == (
        (1, 4.0),
        (10, 5.0),
    )
    for (apart, same_apart, parts), (model, judge, same_parts) in zip(
        asked[:3], asked[3:], strict=True
    ):
        assert model is asked[3][0]
        assert apart is same_apart is judge is not model
        assert parts == same_parts


def test_lags_are_compared_on_the_samples_that_all_of_them_have():
    """The input acts with a delay of five samples; the held-out error of few lags is far larger."""
    u = np.random.default_rng(0).standard_normal(150)
    y = np.zeros(150)
    for k in range(5, 150):
        y[k] = 0.7 * y[k - 1] + np.tanh(u[k - 5])
    narxes = [Narx({"y": 1}, {"u": n}) for n in (1, 3, 5, 8)]
    samples = [samples_of(narx, {"y": y, "u": u}, {"y": y[:90], "u": u[:90]}) for narx in narxes]
    training = FreeRun(routes=[replace(PROFILE, evaluations=40)], folds=2)
    trials = training.compare_lags(samples, ["one", "three", "five", "eight"], budget=10, seed=0)
    assert trials[0].label == "five"
    assert len(trials[0].fits) == 2
    assert {len(trial.fits) for trial in trials if trial.label in ("one", "three")} == {1}
    assert {
        sum(len(part.values) for part in fold.parts) for trial in trials for fold in trial.folds
    } == {112}
    np.testing.assert_array_equal(
        *(np.concatenate([p.values for p in t.folds[0].parts]) for t in trials[:2])
    )
    best = trials[0]
    quick = trials[0].estimator
    assert isinstance(quick, ProfileSearch)
    fits = [quick.fit(fold.rest, best.narx, 10, 0, FREE).candidate for fold in best.folds]
    errors = [squared_error(fit, fold.parts) for fit, fold in zip(fits, best.folds, strict=True)]
    assert best.rmse == pytest.approx(np.sqrt(np.mean(errors)))
    with pytest.raises(
        ValueError, match="no estimator of routes serves these samples with any lags"
    ):
        training.compare_lags([samples_of(SIMPLE, FLAT)], [""], budget=10, seed=0)


@dataclass(frozen=True)
class Coarse(Estimator):
    """Off by a constant for each number of input lags, by another one in its quick version."""

    offsets: tuple[float, ...]
    coarse: tuple[float, ...]

    def quick(self):
        return replace(self, offsets=self.coarse)

    def fit(self, segments, narx, budget, seed, limits):
        n = narx.n_features - 1
        mean = float(np.mean(np.concatenate([segment.values for segment in segments])))
        found = linear_candidate(
            narx, [-1.0] + n * [0.0], mean + self.offsets[n - 1], bounds=(-50.0, 50.0)
        )
        return FitResult(found, 0.01, {})


def test_lags_that_the_quick_search_ranks_best_are_compared_in_full(no_linear, monkeypatch):
    """Three would be the best in full, but are not among the two that are compared so."""
    monkeypatch.setattr(training_module, "N_FINALISTS", 2)
    signals = random_signals(SIMPLE, 90)
    samples = [samples_of(Narx({"y": 1}, {"u": n}), signals) for n in (1, 2, 3)]
    training = FreeRun(routes=[Coarse((2.0, 1.0, 0.0), (3.0, 4.0, 5.0))], folds=2)
    trials = training.compare_lags(samples, ["one", "two", "three"], budget=10, seed=0)
    full = [trial for trial in trials if trial.estimator == training.routes[0]]
    assert ([trial.label for trial in full], full[0] is trials[0]) == (
        ["two", "one"],
        True,
    )
    assert len(trials[0].fits) == 2


def test_fewer_lags_that_only_a_quick_search_finds_as_good_are_not_chosen(no_linear, monkeypatch):
    """Two lags are compared in full; one is as good in the quick search, but far worse in full."""
    monkeypatch.setattr(training_module, "N_FINALISTS", 1)
    offsets = {
        "offsets": (9.0, 9.0, 1.0),
        "coarse": (1.01, 9.0, 1.0),
    }  # by the features beyond the first
    settings = Settings(training=FreeRun(routes=[Coarse(**offsets)], folds=2), budget=10)
    record = make_record(random_signals(SIMPLE, 90), name="r", sampling_time=1.0)
    choice = choose_lags([record], "y", ["u"], settings=settings, max_order=2)
    assert (choice.narx.n_features, choice.tried[0]["model_quick"]) == (4, False)
    as_good = [row for row in choice.tried if row["model"] <= 1.01 * choice.tried[0]["model"]]
    assert [(row["na"], row["model_parts"]) for row in as_good if row["model_quick"]] == [
        (2, 2),
        (1, 2),
        (1, 2),
    ]
    assert [i for i, row in enumerate(choice.tried) if "chosen" in row] == [0]
    assert ["chosen" in line for line in str(choice).splitlines()[1:]] == [
        "quick" not in line for line in str(choice).splitlines()[1:]
    ]


def test_lags_of_long_records_are_compared_on_pieces_of_them(monkeypatch):
    seen = []
    compare = FreeRun.compare_lags
    monkeypatch.setattr(
        FreeRun,
        "compare_lags",
        lambda self, *given, **more: seen.append(given) or compare(self, *given, **more),
    )
    monkeypatch.setattr(lag_choice, "PIECE_SAMPLES", 50)
    monkeypatch.setattr(lag_choice, "MAX_SIMULATED_SAMPLES", 200)
    records = [
        make_record(system(n, seed), name="r", sampling_time=1.0) for n, seed in ((400, 0), (90, 1))
    ]
    settings = Settings(training=FreeRun(routes=[PROFILE], folds=2), budget=10)
    choice = choose_lags(records, "y", ["u"], settings=settings, max_order=2)
    ((samples, labels),) = seen
    assert labels[-1] == "y 1 to 2, u 1 to 2 (4 of 4)"
    assert [len(one.targets) for one in samples] == [50 + 50 + 90 - 3 * n for n in (1, 1, 2, 2)]
    assert (choice.criterion, choice.narx.feature_names[-1]) == ("free_run", "u[k-1]")
    assert "y 1 to 1" in str(choice)


@dataclass(frozen=True)
class Grows(Given):
    """Serves the folds and runs away once it is fitted to everything."""

    def fit(self, segments, narx, budget, seed, limits):
        fit = super().fit(segments, narx, budget, seed, limits)
        n = sum(len(segment.values) for segment in segments)
        grown = linear_candidate(narx, [0.1, 0.0], 0.0) if n == 199 else fit.candidate
        return fit._replace(candidate=grown)


def test_a_model_that_runs_away_gives_way_to_the_next_best_and_a_linear_one_is_always_there(
    caplog,
):
    """The output repeats itself around 3, so that its mean is the best; a linear model knows the
    input.
    """
    signals = {
        "y": 3.0 + 0.3 * np.random.default_rng(0).standard_normal(200),
        "u": excited(200),
    }
    samples = samples_of(SIMPLE, signals)
    with caplog.at_level("INFO", "sysid"):
        start = prepared(
            FreeRun(routes=[Grows(intercept=3.0), Given(intercept=20.0)], folds=2),
            samples,
        )
    assert {"free run: Grows, fold 2 of 2", "free run: Grows, all samples"} <= {*caplog.messages}
    assert "free run: Given, fold 2 of 2" not in caplog.messages  # it can win no more
    tried = {one["route"]: one for one in start.report["tried"]}
    assert "leaves the range" in tried["Grows"]["refusal"]
    assert start.report["route"].startswith("linear")
    assert any(
        "no better model found than a linear one" in note for note in start.hyperparameters.warnings
    )
    assert start.limits == range_of(segments_of(samples))


@dataclass(frozen=True)
class FallsBack(linear_model.LinearModel):
    """As the linear model on held-out parts."""

    name = "falls back"


def test_an_estimator_that_falls_back_to_the_linear_model_on_every_part_is_still_asked_for_all_samples(
    monkeypatch,
):
    monkeypatch.setattr(training_module, "LINEAR_MODELS", training_module.LINEAR_MODELS[-1:])
    start = prepared(FreeRun(routes=[FallsBack()], folds=2), samples_of(SIMPLE, system()))
    rmse = {one["route"]: one["held_out_rmse"] for one in start.report["tried"]}
    assert rmse["falls back"] == rmse["linear output error"]
    assert start.report["route"] == "falls back"
    assert any(
        "no better model found than a linear one" in note for note in start.hyperparameters.warnings
    )


@pytest.mark.parametrize(
    "error", [ValueError("of no one"), np.linalg.LinAlgError("Singular matrix")]
)
def test_an_error_that_is_no_refusal_is_raised_though_another_estimator_serves(error):
    with pytest.raises(type(error), match=str(error)):
        prepared(
            FreeRun(routes=[Given(), Given(error=error)], folds=2),
            samples_of(SIMPLE, system()),
        )


def test_a_regression_beyond_double_precision_is_refused_by_name(no_linear, monkeypatch):
    def fail(*_):
        raise np.linalg.LinAlgError("not positive definite")

    monkeypatch.setattr(Ridge, "weights", fail)
    start = prepared(FreeRun(routes=[PROFILE, Given()], folds=2), samples_of(SIMPLE, system()))
    assert start.report["route"] == "Given"
    assert start.report["tried"][0]["refusal"].startswith(
        "ProfileSearch: double precision does not suffice"
    )


def test_a_saturated_output_stays_within_its_limits():
    signals = system(100, limit=1.0)
    samples = samples_of(SIMPLE, signals)
    start = prepared(TRAINING, samples)
    low = signals["y"][1:].min()
    assert start.limits == (pytest.approx(low - 0.5 * (1.0 - low)), 1.0)
    count = int(np.sum(signals["y"][1:] == 1.0))
    assert any(
        f"{count} samples equal 1 and none is above" in note
        for note in start.hyperparameters.warnings
    )
    pushed = free_run(identified(TRAINING, signals).model, np.full((30, 1), 3.0), np.zeros((1, 1)))
    assert pushed.mean.max() == 1.0
    assert prepared(replace(TRAINING, find_limits=False), samples).limits == range_of(
        segments_of(samples)
    )
    assert prepared(TRAINING, samples, Start(limits=(-2.0, 5.0))).limits == (-2.0, 5.0)


def rows_of(narx, follows):
    """Samples of a random record."""
    rows = narx.regressors(random_signals(narx, 20))
    n = len(follows)
    return InitialSamples(narx, rows.regressor[:n], rows.target[:n], np.array(follows, dtype=bool))


FLAT = system(200) | {"y": np.ones(200)}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: FreeRun(routes=[]), "routes must be estimators"),
        (lambda: FreeRun(folds=1), "folds must be a whole number"),
        (lambda: FreeRun(n_initial=1), "n_initial must be a whole number"),
        (lambda: ProfileSearch(kernels=[]), "stationary kernels"),
        (lambda: ProfileSearch(blocks=[1, 2]), "blocks"),
        (lambda: ProfileSearch(regularisation=-1.0), "regularisation"),
        (
            lambda: OutputErrorRefinement(plain_spreads=(1.0, -2.0)),
            "plain_spreads must be positive",
        ),
        (
            lambda: OutputErrorRefinement(transient=2048),
            "transient must be below window",
        ),
        (
            lambda: OutputErrorRefinement(hold_every=1),
            "hold_every must be a whole number",
        ),
        (lambda: OutputErrorRefinement(powers=(2.0,)), "powers must be numbers"),
        (lambda: OutputErrorRefinement(kernel=Linear()), "stationary kernel"),
        (
            lambda: prepared(
                TRAINING,
                samples_of(SIMPLE, system()),
                Start(scaling=Scaling.identity(2)),
            ),
            "scaling itself",
        ),
        *(
            (
                lambda mean=mean: Settings(training=FreeRun(), mean=mean),
                "expected no mean.*leave it out",
            )
            for mean in (ZeroMean(), ConstantMean(3.0), LinearMean())
        ),
        (
            lambda: prepared(TRAINING, samples_of(SIMPLE, system(7))),
            "expected at least 10 samples.*got 3",
        ),
        (
            lambda: prepared(
                TRAINING,
                rows_of(Narx({"y": []}, {"u": [0]}, predict="value"), [False, True]),
            ),
            "expected lags of the target 'y'",
        ),
        (
            lambda: prepared(TRAINING, rows_of(LAGS["change, gaps"], [False, True, False])),
            "at least 2 samples.*of 1",
        ),
        (lambda: prepared(TRAINING, rows_of(SIMPLE, [])), "expected samples, got none"),
        (
            lambda: TRAINING.train(np.zeros((9, 2)), np.zeros(9), 0),
            "trains a NARX model",
        ),
        (
            lambda: prepared(
                FreeRun(routes=[Given(error=Refusal("no"))]),
                samples_of(SIMPLE, system(7)),
            ),
            "Given: no",
        ),
        (
            lambda: PROFILE.fit([segment_of(SIMPLE, FLAT)], SIMPLE, 10, 0, FREE),
            "'y' does not vary",
        ),
        (lambda: refine(wiener(30), 5), "at least 50 samples beside the transients"),
        (lambda: refine(FLAT, 5), "'y' does not vary"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def heat_exchanger(n, seed):
    """Valve with a dead zone, inlet temperature in steps; water, wall and outlet, of which the last
    is measured.
    """
    generator = np.random.default_rng(seed)

    def steps(low, high, hold):
        changes = np.where(generator.random(n) < 1.0 / hold, np.arange(n), 0)
        return generator.uniform(low, high, n)[np.maximum.accumulate(changes)]

    valve = steps(0.0, 1.0, 25)
    inlet = steps(50.0, 80.0, 60)
    y = np.empty(n)
    water = 40.0
    wall = 35.0
    outlet = 30.0
    for k in range(n):
        y[k] = outlet
        for _ in range(4):
            flow = 0.02 + 0.25 * max(valve[k] - 0.2, 0.0)
            rates = (
                flow * (inlet[k] - water) - 0.15 * (water - wall),
                0.12 * (water - wall) - 0.1 * (wall - outlet),
            )
            outlet += 0.25 * (0.2 * (wall - outlet) - 0.06 * (outlet - 15.0))
            water = water + 0.25 * rates[0]
            wall = wall + 0.25 * rates[1]
    return {
        "y": y + 0.07 * generator.standard_normal(n),
        "valve": valve,
        "inlet": inlet,
    }


@pytest.mark.slow
@pytest.mark.parametrize("lags", [3, 4])
def test_no_number_of_lags_gives_a_model_that_simulates_worse_than_a_linear_one(lags):
    """Earlier versions delivered models that ran away with three and four lags. About 20 s each."""
    narx = Narx({"y": lags}, {"valve": lags, "inlet": lags})
    signals = heat_exchanger(2000, 0)
    fresh = heat_exchanger(2000, 1)
    training = FreeRun(routes=(ProfileSearch(evaluations=60), OutputErrorRefinement()))
    identification = Identification(narx, Settings(training=training, budget=50))
    rows = narx.regressors(signals)
    identification.observe_many(rows.regressor, rows.target)
    identification.finish()
    run = free_run(
        identification.model,
        np.column_stack([fresh["valve"], fresh["inlet"]]),
        fresh["y"][:lags, None],
    )
    segment = segment_of(narx, fresh)
    linear = [
        squared_error(one.fit([segment_of(narx, signals)], narx, 50, 0, FREE).candidate, [segment])
        for one in training_module.LINEAR_MODELS
    ]
    assert np.mean((run.mean[:, 0] - segment.values) ** 2) < 1.05**2 * min(linear)
    assert run.n_held == 0
    assert 0.07**2 / 2 < identification.model.gp.noise_variance < 2 * 0.07**2


@pytest.mark.slow
def test_bouc_wen_at_a_budget_of_100_points(shared_data):
    """One noisy period of the user-made record; best published 7.5e-6 m. About 10 s."""
    recordings = BoucWenData(path=str(shared_data)).load()
    narx = Narx({"displacement": 3}, {"force": 3}, predict="change")
    estimation, test = (
        segment_of(
            narx,
            {name: record[name].values[:8192] for name in ("displacement", "force")},
        )
        for record in (recordings.estimation[0], recordings.test[0])
    )
    found = OutputErrorRefinement().fit([estimation], narx, 100, 0, FREE)
    assert len(found.candidate.weights) == 100
    error = (found.candidate.simulate(test) - test.values)[47:]
    assert np.sqrt(np.mean(error**2)) < 1.1e-5


@pytest.mark.slow
def test_cascaded_tanks(shared_data):
    """100 points, lags 1 to 4 of the level and 0 to 40 of the voltage, 300 evaluations, all from
    estimation data.
    """
    recordings = CascadedTanksData(path=str(shared_data)).load()
    narx = Orders(na=4, nb=41, nk=0).narx(["level"], ["pump_voltage"])
    rows = narx.dataset(recordings.estimation)
    training = FreeRun(
        routes=[ProfileSearch(kernels=[SquaredExponential()], evaluations=300)], folds=2
    )
    identification = Identification(narx, Settings(training=training, budget=100))
    identification.observe_many(
        rows["regressor"].values, rows["target"].values, follows=consecutive(rows)
    )
    identification.finish()
    model = identification.model
    assert model.gp.n_points <= 100
    level = recordings.estimation[0][
        "level"
    ].values  # the tank is full at 10 V; below it never was so empty
    assert model.limits == (
        pytest.approx(level.min() - 0.5 * np.ptp(level), rel=1e-9),
        pytest.approx(level.max()),
    )
    y, u = (recordings.test[0][name].values[:, None] for name in ("level", "pump_voltage"))
    for window in (5, 50):
        run = free_run(model, u, y[:window])
        assert np.sqrt(np.mean((run.mean - y[window:]) ** 2)) < 0.32
