"""Models trained for simulation, from the samples to a model that is kept."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import xarray as xr

from sysid.data.cascaded_tanks import CascadedTanksData
from sysid.free_run import free_run
from sysid.identify import Identification, Settings
from sysid.kernels import SquaredExponential, SquaredExponentialForm
from sysid.lag_data import consecutive
from sysid.mean import LinearMean, ZeroMean
from sysid.model import Model
from sysid.narx import Narx
from sysid.orders import Orders
from sysid.output_error import calibration
from sysid.output_error.candidate import Candidate
from sysid.output_error.cross_validation import folds_of, held_out
from sysid.output_error.profile import ProfileSearch
from sysid.output_error.route import Fitted, Route
from sysid.output_error.segment import segments_of
from sysid.output_error.training import FreeRun
from sysid.scaling import Scaling
from sysid.start import InitialSamples, Start

FREE = (-np.inf, np.inf)
NARX = Narx({"y": 1}, {"u": 1})
ROUTE = ProfileSearch(kernels=[SquaredExponentialForm()], evaluations=8, starts=1, blocks=[2], points=8)
QUICK = FreeRun(routes=[ROUTE], folds=2)


@pytest.fixture(autouse=True)
def few_draws(request, monkeypatch):
    """Bands from few functions, except in the long test: what they are worth is tested by themselves."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(calibration, "DRAWS", 3)
        monkeypatch.setattr(calibration, "POINTS", 8)


@dataclass(frozen=True)
class Constant(Route):
    """Always the same value."""

    value: float

    def fit(self, segments, narx, budget, seed, limits):
        p = narx.n_features
        kernel, nothing = SquaredExponential(1.0, np.ones(p)), np.zeros((1, p))
        mean = LinearMean([-1.0] + [0.0] * (p - 1), self.value)  # y[k-1] is the first feature
        candidate = Candidate(narx, Scaling.identity(p), mean, kernel, nothing, np.zeros(1), limits)
        return Fitted(candidate, 0.01, {"value": self.value})


@dataclass(frozen=True)
class Diverges(Route):
    """Runs away."""

    def fit(self, segments, narx, budget, seed, limits):
        found = Constant(0.0).fit(segments, narx, budget, seed, limits)
        candidate = replace(found.candidate, mean=LinearMean([9.0, 0.0], 1.0), bounds=(-50.0, 50.0))
        return found._replace(candidate=candidate)


def record(n=60, seed=0, limit=np.inf):
    generator = np.random.default_rng(seed)
    u, y = generator.standard_normal(n), np.zeros(n)
    for k in range(1, n):
        y[k] = min(0.7 * y[k - 1] + np.tanh(u[k - 1]), limit)
    return {"y": y, "u": u}


def samples_of(narx, signals):
    rows = narx.regressors(signals)
    return InitialSamples(narx, rows.regressor, rows.target, np.arange(len(rows.target)) > 0)


def prepared(training, samples, known=None, budget=10, seed=0):
    return training.prepare(samples, Start() if known is None else known, mean=ZeroMean(), budget=budget, seed=seed)


def identified(training, signals, narx=NARX, budget=10):
    rows = narx.regressors(signals)
    identification = Identification(narx, Settings(training=training, budget=budget))
    identification.observe_many(rows.regressor, rows.target)
    identification.finish()
    return identification


def test_a_model_is_trained_on_all_samples_and_kept(tmp_path):
    identification = identified(QUICK, record())
    model, fresh = identification.model, record(50, seed=5)
    assert model.gp.n_points <= 10
    run = free_run(model, fresh["u"][:, None], fresh["y"][:1, None])
    assert np.var(run.mean[:, 0] - fresh["y"][1:]) < 0.1 * np.var(fresh["y"])
    model.save(tmp_path / "model.nc")
    loaded = Model.load(tmp_path / "model.nc")
    again = free_run(loaded, fresh["u"][:, None], fresh["y"][:1, None])
    np.testing.assert_array_equal(again.mean, run.mean)
    assert loaded.limits == model.limits == FREE
    assert identification.report["route"] == "ProfileSearch"
    assert identification.hyperparameters.warnings == ()


def test_the_model_is_the_candidate_of_the_route():
    samples = samples_of(NARX, record())
    start = prepared(QUICK, samples)
    candidate = ROUTE.fit(segments_of(samples), NARX, 10, 0, FREE).candidate
    identification = Identification(NARX, Settings(training=replace(QUICK, n_initial=59), budget=10))
    identification.observe_many(samples.regressors, samples.targets)
    found = identification.model.predict(samples.regressors).mean
    np.testing.assert_allclose(found, candidate.predict(samples.regressors), atol=1e-6)
    assert start.report["final"]["noise"] == identification.report["final"]["noise"]


def test_the_same_seed_gives_the_same_model():
    samples = samples_of(NARX, record())
    first, second = (prepared(QUICK, samples, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first.points.targets, second.points.targets)
    assert first.hyperparameters.noise_variance == second.hyperparameters.noise_variance
    assert first.hyperparameters.kernel == second.hyperparameters.kernel


def test_the_route_that_simulates_best_is_taken():
    signals = record()
    signals["y"] += 3.0
    samples = samples_of(NARX, signals)
    routes = [Constant(0.0), Diverges(), Constant(3.0), Constant(9.0)]
    start = prepared(FreeRun(routes=routes, folds=2), samples)
    assert start.mean.intercept == 3.0
    values = segments_of(samples)[0].values
    expected = [np.sqrt(np.mean((values - value) ** 2)) for value in (0.0, 3.0, 9.0)]
    found = [tried["held_out_rmse"] for tried in start.report["tried"]]
    assert found[1] == np.inf
    np.testing.assert_allclose(np.delete(found, 1), expected)
    assert start.report["held_out_rmse"] == found[2]
    alone = prepared(FreeRun(routes=[Diverges()], folds=2), samples)
    assert any("diverged" in note for note in alone.hyperparameters.warnings)


@dataclass(frozen=True)
class Refuses(Route):
    """Always."""

    def fit(self, segments, narx, budget, seed, limits):
        raise ValueError("not with me")


def test_a_route_that_refuses_is_reported_and_left_out():
    samples = samples_of(NARX, record())
    start = prepared(FreeRun(routes=[Refuses(), Diverges()], folds=2), samples)
    assert start.report["route"] == "Diverges"
    assert start.report["tried"][0] == {"route": "Refuses", "refusal": "Refuses: not with me", "held_out_rmse": None}
    with pytest.raises(ValueError, match="no route could be fitted: Refuses: not with me"):
        prepared(FreeRun(routes=[Refuses()], folds=2), samples)


def test_a_saturated_output_stays_within_its_limits():
    signals = record(100, limit=1.0)
    start = prepared(QUICK, samples_of(NARX, signals))
    assert start.limits == (-np.inf, 1.0)
    count = int(np.sum(signals["y"][1:] == 1.0))
    assert any(f"{count} samples equal 1 and none is above" in note for note in start.hyperparameters.warnings)
    model = identified(QUICK, signals).model
    pushed = free_run(model, np.full((30, 1), 3.0), np.zeros((1, 1)))
    assert pushed.mean.max() == 1.0
    blind = prepared(replace(QUICK, find_limits=False), samples_of(NARX, signals))
    assert blind.limits == FREE
    assert prepared(QUICK, samples_of(NARX, signals), Start(limits=(-2.0, 5.0))).limits == (-2.0, 5.0)


def test_records_are_simulated_one_by_one():
    narx, (first, second) = Narx({"y": [1, 2]}, {"u": 1}), (record(40), record(40, 1))
    rows = [narx.regressors(signals) for signals in (first, second)]
    x, t = (np.concatenate([getattr(row, name) for row in rows]) for name in ("regressor", "target"))
    follows = np.concatenate([np.arange(38) > 0] * 2)
    start = prepared(QUICK, InitialSamples(narx, x, t, follows))
    segments = segments_of(InitialSamples(narx, x, t, follows))
    errors = held_out(ROUTE, folds_of(segments, 2), narx, budget=10, seed=0, limits=FREE)
    assert start.report["held_out_rmse"] == pytest.approx(errors.rmse)


def test_systems_without_inputs_and_with_other_outputs_are_trained():
    n = np.arange(80)
    y = np.sin(0.4 * n) + 0.3 * np.sin(0.05 * n)
    alone = prepared(QUICK, samples_of(Narx({"y": [1, 2]}), {"y": y}))
    assert alone.scaling.n_features == 2
    narx = Narx({"y": [1, 2], "x": 1}, {"u": [0]}, target="y", predict="value")
    start = prepared(QUICK, samples_of(narx, {"y": y, "x": np.cos(0.4 * n), "u": np.cos(n)}))
    assert start.hyperparameters.kernel.n_features == 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"routes": []}, "routes must be routes"),
        ({"routes": ["profile"]}, "routes must be routes"),
        ({"folds": 1}, "folds must be a whole number of at least 2, got 1"),
        ({"n_initial": 1}, "n_initial must be a whole number of at least 2, got 1"),
        ({"n_initial": True}, "n_initial must be a whole number"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        FreeRun(**settings)


def test_what_cannot_be_trained_is_refused():
    samples = samples_of(NARX, record())
    with pytest.raises(ValueError, match="finds scaling itself"):
        prepared(QUICK, samples, Start(scaling=Scaling.identity(2)))
    with pytest.raises(ValueError, match=r"expected at least 10 samples.*got 6"):
        prepared(QUICK, samples_of(NARX, record(13)))
    static = Narx({"y": []}, {"u": [0]}, predict="value")
    with pytest.raises(ValueError, match="expected lags of the target"):
        prepared(QUICK, samples_of(static, record()))
    with pytest.raises(TypeError, match="trains a NARX model"):
        QUICK.train(samples.regressors, samples.targets, 0)


def test_nothing_is_trained_before_the_end():
    rows = NARX.regressors(record())
    identification = Identification(NARX, Settings(training=QUICK, budget=10))
    identification.finish()
    assert identification.observe_many(rows.regressor, rows.target).mean.size == 0
    assert identification.model is None
    identification.finish()
    assert identification.model is not None
    model = identification.model
    identification.finish()
    assert identification.model is model


def test_rows_that_follow_each_other():
    u, y = np.arange(9.0), np.arange(9.0)
    y[4] = np.nan
    data = [xr.Dataset({"y": ("time", y), "u": ("time", u)}, coords={"time": 0.5 * np.arange(9)}) for _ in range(2)]
    rows = Narx({"y": 1}, {"u": 1}, on_missing="skip").dataset(data)
    np.testing.assert_array_equal(consecutive(rows), [False, True, True, False, True, True] * 2)


@pytest.mark.slow
def test_cascaded_tanks(shared_data):
    """100 points, lags 1 to 4 of the level and 0 to 40 of the voltage, 300 evaluations, all from estimation data."""
    recordings = CascadedTanksData(path=str(shared_data)).load()
    narx = Orders(na=4, nb=41, nk=0).narx(["level"], ["pump_voltage"])
    rows = narx.dataset(recordings.estimation)
    training = FreeRun(routes=[ProfileSearch(kernels=[SquaredExponentialForm()], evaluations=300)], folds=2)
    identification = Identification(narx, Settings(training=training, budget=100))
    identification.observe_many(rows["regressor"].values, rows["target"].values, follows=consecutive(rows))
    identification.finish()
    model = identification.model
    assert model.gp.n_points <= 100
    assert model.limits == (-np.inf, 10.0)
    test = recordings.test[0]
    y, u = test["level"].values[:, None], test["pump_voltage"].values[:, None]
    for window in (5, 50):
        run = free_run(model, u, y[:window])
        assert np.sqrt(np.mean((run.mean - y[window:]) ** 2)) < 0.32
