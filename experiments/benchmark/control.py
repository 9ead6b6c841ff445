"""Benchmark of the decisions of a predictive controller."""

import time
from collections.abc import Iterator

import numpy as np

import sysid
from experiments.benchmark.dictionary import narx_samples
from experiments.benchmark.harness import Plan, Row, row
from sysid.narx.lags import Target

HORIZON = 96  # samples of a plan: a day of a building
MOVES = 4  # samples for which the planned input is held
N_LEARNED = 1500  # samples that the model has learned
N_DECISIONS = 60  # that are measured
N_FIRST = 5  # decisions before them, which make the solver
COLUMNS = {"y": 0, "u1": 3, "u2": 6}  # of the signals among the regressors of `narx_samples`
N_LAGS = 3  # of each signal in the Gaussian process: 9 features
N_LINEAR_LAGS = 24  # of each signal in the linear part: 72 features
NOISE_VARIANCE = 1e-2  # over the signal variance
MS_PER_S = 1e3


def predictive_control(plan: Plan) -> Iterator[Row]:
    """Time the decisions of a predictive controller in a loop on the mean of its own model.

    The model has 9 features of the process and 72 of the linear part. Each decision plans one input
    over 96 samples in 24 moves, within limits of the output that change over time, with a forecast
    of the other input. Without CasADi there is no row.
    """
    try:
        import casadi  # noqa: F401
    except ImportError:
        return
    signals, model = _learned(plan)
    policy = sysid.PredictiveControl(
        {"u1": (-2.0, 2.0)},
        horizon=HORIZON,
        moves=MOVES,
        output_limits={"y": ("low", 2.0)},
        price={"u1": 1.0},
        violation=10.0,
    )
    outputs = signals["y"][-200:].tolist()
    inputs = signals["u1"][-200:-1].tolist()
    others = signals["u2"][-200:]
    seconds = []
    for k in range(N_FIRST + N_DECISIONS):
        coming = np.resize(others, HORIZON + 1)
        low = np.where((k + np.arange(HORIZON + 1)) // 24 % 2, -0.5, -1.5)
        situation = sysid.Situation(
            float(k),
            {"y": np.array(outputs[-200:])},
            {"u1": np.array(inputs[-199:]), "u2": others[:199]},
        )
        began = time.perf_counter()
        decision = policy.decide(model, situation, {"u2": coming, "low": low})
        seconds.append(time.perf_counter() - began)
        inputs.append(float(decision.inputs["u1"][0]))
        predictor = sysid.ModelPredictor(model, situation, {"u2": coming}, ["u1"])
        mean = predictor.linearise(np.array([[inputs[-1]]])).mean
        outputs.append(float(mean[0, 0]))
    measured = MS_PER_S * np.array(seconds[N_FIRST:])
    name = f"N={plan.budget} horizon {HORIZON}, {HORIZON // MOVES} moves"
    yield row(f"{name}: median decision", float(np.median(measured)), "ms", target="<= 20")
    yield row(f"{name}: largest decision", float(measured.max()), "ms", target="<= 500")


def _learned(plan: Plan) -> tuple[dict[str, np.ndarray], sysid.Model]:
    """Return samples, and the model that has learned them."""
    samples = narx_samples(N_LEARNED, noise_variance=NOISE_VARIANCE, seed=plan.seed)
    signals = {
        name: np.ascontiguousarray(samples.inputs[:, column]) for name, column in COLUMNS.items()
    }
    narx = sysid.Narx({"y": N_LAGS}, {"u1": N_LAGS, "u2": N_LAGS}, predict=Target.value)
    narx = narx.with_linear(dict.fromkeys(COLUMNS, N_LINEAR_LAGS))
    rows = narx.regressors(signals)
    kernel = sysid.WithLinearPart(
        sysid.SquaredExponential(1.0, [3.0] * (N_LAGS * len(COLUMNS))),
        sysid.StableSpline(
            [N_LINEAR_LAGS] * len(COLUMNS), [0.1] * len(COLUMNS), [3.0] * len(COLUMNS)
        ),
    )
    relevance = sysid.MeanRelevance()
    gp = sysid.OnlineGP(
        kernel,
        noise_variance=NOISE_VARIANCE,
        budget=plan.budget,
        learning="every_sample",
        acceptance=sysid.ExceedsMinimum(relevance),
        reduction=relevance,
    )
    gp.update_many(rows.regressor, rows.target)
    scaling = sysid.AffineMap.identity(narx.n_features)
    return signals, sysid.Model(narx, scaling, sysid.ZeroMean(), gp)
