"""The gate costs little where nothing is wrong: real jumps are learned, also among the first."""

import numpy as np
import pytest

from sysid import Identification, Narx, Settings
from sysid.gp.outlier_decisions import is_refuted

N_SAMPLES = 500


def relay(y, u, state):
    """Return the next output of a plant with a relay with hysteresis."""
    if abs(u) > 0.6:
        state["side"] = np.sign(u)
    return 0.5 * y + state.setdefault("side", -1.0) + 0.2 * u


def reset(y, u, state):
    """Return the next output of an integrator that a threshold resets."""
    return 0.0 if y > 1.0 else y + 0.05 * (1.0 + u)


def thermostat(y, u, state):
    """Return the next temperature of a room with an on-off heater."""
    if y < 19.0:
        state["heat"] = 1.5
    elif y > 22.0:
        state["heat"] = 0.0
    return y + 0.05 * (5.0 * u - (y - 10.0)) + state.setdefault("heat", 0.0)


PLANTS = {"relay": (relay, 10), "reset": (reset, 1), "thermostat": (thermostat, 30)}


def stream_of(name, seed):
    """Return the lags and the clean rows of a plant that jumps."""
    step, n_held = PLANTS[name]
    rng = np.random.default_rng(seed)
    u = np.repeat(rng.uniform(-1, 1, N_SAMPLES // n_held + 1), n_held)[:N_SAMPLES]
    y = np.full(N_SAMPLES, 20.0 if name == "thermostat" else 0.0)
    state = {}
    for k in range(1, N_SAMPLES):
        y[k] = step(y[k - 1], u[k - 1], state)
    y += 0.003 * y.std() * rng.normal(size=N_SAMPLES)
    narx = Narx({"y": 2}, {"u": 2})
    return narx, narx.regressors({"y": y, "u": u})


def rmse(narx, rows, **settings):
    """Return the error of the predictions one step ahead."""
    identification = Identification(narx, Settings(budget=40, **settings))
    record = identification.observe_many(rows.regressor, rows.target)
    return np.sqrt(np.nanmean((rows.target - record["mean"]) ** 2))


@pytest.mark.parametrize("name", PLANTS)
def test_the_gate_costs_little_on_a_clean_stream_of_a_plant_that_jumps(name):
    ratios = []
    for seed in range(3):
        narx, rows = stream_of(name, seed)
        ratios.append(rmse(narx, rows) / rmse(narx, rows, gate=None))
    assert np.median(ratios) < 1.15


@pytest.mark.parametrize("seed", [0, 4, 5])
def test_a_jump_at_the_end_of_an_interval_counts_in_the_estimate(seed):
    """The gate refuses nothing in the end, so the model is the same as without it."""
    narx, rows = stream_of("relay", seed)
    gated, ungated = (Identification(narx, Settings(budget=40, gate=gate)) for gate in (4.0, None))
    records = [one.observe_many(rows.regressor, rows.target) for one in (gated, ungated)]
    assert not gated.model.gp.repairs["outliers"]
    n_errors = [[e.n_errors for e in one.adaptation.estimates] for one in (gated, ungated)]
    assert n_errors[0] == n_errors[1]
    np.testing.assert_array_equal(records[0]["mean"], records[1]["mean"])


@pytest.mark.parametrize("seed", [0, 1, 3])
def test_real_jumps_among_the_initial_samples_are_learned(seed):
    rng = np.random.default_rng(seed)
    n = 160
    u = rng.uniform(-1, 1, n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = reset(y[k - 1], u[k - 1], {})
    y += 0.003 * y.std() * rng.normal(size=n)
    narx = Narx({"y": 3}, {"u": 2}, predict="change")
    rows = narx.regressors({"y": y, "u": u})
    identification = Identification(narx, Settings(budget=40))
    identification.observe_many(rows.regressor, rows.target)
    assert identification.n_initial_outliers == 0


@pytest.mark.parametrize(
    ("next_errors", "next_variances", "refuted"),
    [
        ([0.0, 0.8], [0.01, 0.01], True),
        ([0.8, 0.0], [0.01, 0.01], False),
        ([0.9, 1.2], [0.01, 0.01], False),
        ([0.1, 0.8], [0.5, 0.01], False),
    ],
    ids=["wrong", "the plant moved", "the model is wrong", "nothing is known"],
)
def test_a_measurement_is_refuted_only_by_a_next_sample_that_its_replacement_explains(
    next_errors, next_variances, refuted
):
    if_wrong, if_right = zip(next_errors, next_variances, strict=True)
    assert is_refuted(1.0, *if_wrong, *if_right) is refuted
