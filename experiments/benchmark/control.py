"""Benchmark of the decisions of a predictive controller."""

import time
from collections.abc import Iterator

import numpy as np

import sysid
from experiments.benchmark.harness import Plan, Row, row
from experiments.benchmark.linear_part import STREAM_NOISE_VARIANCE, stream_with_linear_part

PLAN_HORIZON = 96  # samples of a plan: a day of a building
SAMPLES_PER_MOVE = 4  # for which the planned input is held
N_LEARNED_BEFORE_CONTROL = 1500  # samples that the model has learned
N_DECISIONS = 60  # that are measured
N_WARM_UP_DECISIONS = 5  # before them, which make the solver
N_CONTROL_LINEAR_LAGS = 24  # of each signal in the linear part: 72 features
N_SITUATION_SAMPLES = 200  # past samples that a decision gets
SAMPLES_PER_LIMIT = 24  # for which the lower limit of the output keeps its value
LOWER_LIMITS = (-1.5, -0.5)  # of the output, in turns
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
        horizon=PLAN_HORIZON,
        moves=SAMPLES_PER_MOVE,
        output_limits={"y": ("low", 2.0)},
        price={"u1": 1.0},
        violation=10.0,
    )
    n_past = N_SITUATION_SAMPLES
    outputs = signals["y"][-n_past:].tolist()
    inputs = signals["u1"][-n_past:-1].tolist()
    others = signals["u2"][-n_past:]
    n_coming = PLAN_HORIZON + 1
    seconds = []
    for k in range(N_WARM_UP_DECISIONS + N_DECISIONS):
        coming = np.resize(others, n_coming)
        is_high = (k + np.arange(n_coming)) // SAMPLES_PER_LIMIT % 2
        low = np.array(LOWER_LIMITS)[is_high]
        situation = sysid.Situation(
            float(k),
            {"y": np.array(outputs[-n_past:])},
            {"u1": np.array(inputs[1 - n_past :]), "u2": others[:-1]},
        )
        began = time.perf_counter()
        decision = policy.decide(model, situation, {"u2": coming, "low": low})
        seconds.append(time.perf_counter() - began)
        inputs.append(float(decision.inputs["u1"][0]))
        predictor = sysid.ModelPredictor(model, situation, {"u2": coming}, ["u1"])
        mean = predictor.linearise(np.array([[inputs[-1]]])).mean
        outputs.append(float(mean[0, 0]))
    measured = MS_PER_S * np.array(seconds[N_WARM_UP_DECISIONS:])
    n_moves = PLAN_HORIZON // SAMPLES_PER_MOVE
    name = f"N={plan.budget} horizon {PLAN_HORIZON}, {n_moves} moves"
    yield row(f"{name}: median decision", float(np.median(measured)), "ms", target="<= 20")
    yield row(f"{name}: largest decision", float(measured.max()), "ms", target="<= 500")


def _learned(plan: Plan) -> tuple[dict[str, np.ndarray], sysid.Model]:
    """Return samples, and the model that has learned them."""
    stream = stream_with_linear_part(
        N_LEARNED_BEFORE_CONTROL, N_CONTROL_LINEAR_LAGS, seed=plan.seed
    )
    relevance = sysid.MeanRelevance()
    gp = sysid.OnlineGP(
        stream.kernel,
        noise_variance=STREAM_NOISE_VARIANCE,
        budget=plan.budget,
        learning="every_sample",
        acceptance=sysid.ExceedsMinimum(relevance),
        reduction=relevance,
    )
    gp.update_many(stream.rows.regressor, stream.rows.target)
    return stream.signals, stream.model(gp)
