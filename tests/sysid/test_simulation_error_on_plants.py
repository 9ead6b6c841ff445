"""Training for simulation on a simulated heat exchanger and on published records: long checks."""

import numpy as np
import pytest

from free_runs import NO_LIMITS, segment_of
from sysid import (
    BoucWenData,
    CascadedTanksData,
    FreeRun,
    Identification,
    Narx,
    Orders,
    OutputErrorRefinement,
    ProfileSearch,
    Settings,
    SquaredExponential,
    free_run,
)
from sysid.narx.lags import consecutive
from sysid.simulation_error.candidate import squared_error
from sysid.simulation_error.training import LINEAR_MODELS

HEAT_EXCHANGER_NOISE_STD = 0.07


def draw_steps(generator, n, low, high, mean_hold):
    """Return levels (n,) that are drawn anew at random times."""
    are_changes = generator.random(n) < 1.0 / mean_hold
    last_change = np.maximum.accumulate(np.where(are_changes, np.arange(n), 0))
    return generator.uniform(low, high, n)[last_change]


def heat_exchanger_record(n, seed):
    """Return a record of a heat exchanger: valve with a dead zone, inlet temperature, outlet.

    The states are the temperatures of water, wall and outlet; only the outlet is measured.
    """
    generator = np.random.default_rng(seed)
    valve = draw_steps(generator, n, 0.0, 1.0, mean_hold=25)
    inlet = draw_steps(generator, n, 50.0, 80.0, mean_hold=60)
    y = np.empty(n)
    water = 40.0
    wall = 35.0
    outlet = 30.0
    for k in range(n):
        y[k] = outlet
        for _ in range(4):
            flow = 0.02 + 0.25 * max(valve[k] - 0.2, 0.0)
            water_rate = flow * (inlet[k] - water) - 0.15 * (water - wall)
            wall_rate = 0.12 * (water - wall) - 0.1 * (wall - outlet)
            outlet_rate = 0.2 * (wall - outlet) - 0.06 * (outlet - 15.0)
            water += 0.25 * water_rate
            wall += 0.25 * wall_rate
            outlet += 0.25 * outlet_rate
    noise = HEAT_EXCHANGER_NOISE_STD * generator.standard_normal(n)
    return {"y": y + noise, "valve": valve, "inlet": inlet}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("n_lags", [3, 4])
def test_no_number_of_lags_gives_a_model_that_simulates_worse_than_a_linear_one(n_lags):
    """Earlier versions delivered models that ran away with three and four lags. About 20 s each."""
    narx = Narx({"y": n_lags}, {"valve": n_lags, "inlet": n_lags})
    record = heat_exchanger_record(2000, 0)
    new = heat_exchanger_record(2000, 1)
    training = FreeRun(routes=(ProfileSearch(evaluations=60), OutputErrorRefinement()))
    identification = Identification(narx, Settings(training=training, budget=50))
    rows = narx.regressors(record)
    identification.observe_many(rows.regressor, rows.target)
    identification.finish()
    model = identification.model

    inputs = np.column_stack([new["valve"], new["inlet"]])
    run = free_run(model, inputs, new["y"][:n_lags, None])

    estimation = segment_of(narx, record)
    test = segment_of(narx, new)
    linear_errors = []
    for linear_model in LINEAR_MODELS:
        fit = linear_model.fit([estimation], narx, 50, 0, NO_LIMITS)
        linear_errors.append(squared_error(fit.candidate, [test]))
    assert np.mean((run.mean[:, 0] - test.values) ** 2) < 1.05**2 * min(linear_errors)
    assert run.n_held == 0
    noise_variance = HEAT_EXCHANGER_NOISE_STD**2
    assert noise_variance / 2 < model.gp.noise_variance < 2 * noise_variance


@pytest.mark.slow
@pytest.mark.long
def test_bouc_wen_at_a_budget_of_100_points(shared_data):
    """One noisy period of the user-made record; best published error 7.5e-6 m. About 10 s."""
    recordings = BoucWenData(path=str(shared_data)).load()
    narx = Narx({"displacement": 3}, {"force": 3}, predict="change")

    def first_period(record):
        signals = {name: record[name].values[:8192] for name in ("displacement", "force")}
        return segment_of(narx, signals)

    estimation = first_period(recordings.estimation[0])
    test = first_period(recordings.test[0])
    candidate = OutputErrorRefinement().fit([estimation], narx, 100, 0, NO_LIMITS).candidate
    assert len(candidate.weights) == 100
    error = candidate.simulate(test) - test.values
    assert np.sqrt(np.mean(error[47:] ** 2)) < 1.1e-5


@pytest.mark.slow
@pytest.mark.long
def test_cascaded_tanks(shared_data):
    """100 points, lags 1 to 4 of the level and 0 to 40 of the voltage, 300 evaluations.

    The model is trained with the estimation record alone.
    """
    recordings = CascadedTanksData(path=str(shared_data)).load()
    narx = Orders(na=4, nb=41, nk=0).narx(["level"], ["pump_voltage"])
    rows = narx.dataset(recordings.estimation)
    search = ProfileSearch(kernels=[SquaredExponential()], evaluations=300)
    training = FreeRun(routes=[search], folds=2)
    identification = Identification(narx, Settings(training=training, budget=100))
    identification.observe_many(
        rows["regressor"].values, rows["target"].values, follows=consecutive(rows)
    )
    identification.finish()
    model = identification.model

    assert model.gp.n_points <= 100
    level = recordings.estimation[0]["level"].values
    # The upper limit is that of the full tank, 10 V; the tank was never empty.
    low, high = model.limits
    assert low == pytest.approx(level.min() - 0.5 * np.ptp(level), rel=1e-9)
    assert high == pytest.approx(level.max())

    test = recordings.test[0]
    y = test["level"].values[:, None]
    u = test["pump_voltage"].values[:, None]
    for window in (5, 50):
        run = free_run(model, u, y[:window])
        assert np.sqrt(np.mean((run.mean - y[window:]) ** 2)) < 0.32
