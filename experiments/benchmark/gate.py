"""Benchmark of the time that the outlier test takes on streams without outliers."""

from collections.abc import Callable, Iterator
from copy import deepcopy

import numpy as np

import simulators
import sysid
from experiments.benchmark.harness import Job, Plan, Row, interleave, ratio
from sysid.arrays import Array
from sysid.narx.lags import LagRows

LEARNED_SAMPLES_PER_POINT = 30  # samples of a stream for each point, after the initial ones
GATE_STDS = 4.0  # errors beyond so many standard deviations are held back: the default
INITIAL_SAMPLES_PER_POINT = 2  # samples from which the hyper-parameters are estimated
GATE_NOISE_STD = 0.01  # of the measured output, in its unit
RELAY_POLE = 0.8  # of the output that a relay drives
RELAY_STEP = 0.3  # of that output in one sample, with the sign of the input
SWITCHING_POLE = 0.7  # of the plant that switches its gain
GAINS = (-2.0, -1.0, 1.0, 2.0)  # between which it switches
SHORTEST_TIME_BETWEEN_SWITCHES = 10  # samples
LONGEST_TIME_BETWEEN_SWITCHES = 50  # samples
TANK_LEVELS = simulators.APRBS(
    low=-2.5, high=2.5, shortest_hold=40.0, longest_hold=200.0, offset=3.25
)  # V, s
GATED_NAME = "gate"  # name of the runs with the outlier test
UNGATED_NAME = "no gate"  # name of the runs without it

Stream = tuple[sysid.Narx, dict[str, Array]]


def gate(plan: Plan) -> Iterator[Row]:
    """Time streams without outliers with the outlier test (`gate`) against those without it.

    A relay and a plant that switches its gain jump: many samples are beyond the gate, and are
    learned one sample later. The level of two tanks is smooth. Hyper-parameters stay. The samples
    are passed together, or one by one as a live loop passes them.
    """
    n_initial = INITIAL_SAMPLES_PER_POINT * plan.budget
    n_samples = n_initial + LEARNED_SAMPLES_PER_POINT * plan.budget
    for name, simulate in STREAMS.items():
        narx, signals = simulate(n_samples, np.random.default_rng(plan.seed))
        rows = narx.regressors(signals)
        for way, learn in WAYS_TO_PASS.items():
            jobs = {
                GATED_NAME: _job(narx, rows, GATE_STDS, learn, plan),
                UNGATED_NAME: _job(narx, rows, None, learn, plan),
            }
            seconds = interleave(jobs, plan.repetitions)
            yield ratio(
                f"{name}, {way}",
                seconds,
                (GATED_NAME, UNGATED_NAME),
                UNGATED_NAME,
                target="<= 1.5",
            )


def _job(
    narx: sysid.Narx,
    rows: LagRows,
    gate: float | None,
    learn: Callable[[sysid.Identification, LagRows], None],
    plan: Plan,
) -> Job:
    """Return the job of learning all rows after the initial ones."""
    n_initial = INITIAL_SAMPLES_PER_POINT * plan.budget
    settings = sysid.Settings(
        sysid.MaximumLikelihood(n_initial=n_initial),
        gate=gate,
        budget=plan.budget,
        linear_part="none",
        seed=plan.seed,
    )
    trained = sysid.Identification(narx, settings)
    trained.observe_many(rows.regressor[:n_initial], rows.target[:n_initial])
    later = LagRows(rows.regressor[n_initial:], rows.target[n_initial:], rows.sample[n_initial:])
    learner = [trained]

    def prepare() -> None:
        """Take a new copy of the trained identification."""
        learner[0] = deepcopy(trained)

    def run() -> None:
        """Learn the rows with this copy."""
        learn(learner[0], later)

    return Job(run, len(later.target), prepare)


def _learn_together(identification: sysid.Identification, rows: LagRows) -> None:
    """Pass all rows in one call."""
    identification.observe_many(rows.regressor, rows.target)


def _learn_one_by_one(identification: sysid.Identification, rows: LagRows) -> None:
    """Pass each row in a call of its own."""
    for regressor, target in zip(rows.regressor, rows.target, strict=True):
        identification.observe(regressor, target)


def _relay(n: int, rng: np.random.Generator) -> Stream:
    """Return n samples of ``y[k+1] = 0.8 y[k] + 0.3 sign(u[k])`` with normal inputs."""
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = RELAY_POLE * y[k - 1] + RELAY_STEP * np.sign(u[k - 1])
    return _measured(y, u, 2, rng)


def _switching_gain(n: int, rng: np.random.Generator) -> Stream:
    """Return n samples of ``y[k+1] = 0.7 y[k] + g u[k]``, whose gain g changes at random times."""
    u = rng.uniform(-1.0, 1.0, n)
    y = np.zeros(n)
    gain = 1.0
    n_left = 0
    for k in range(1, n):
        if n_left == 0:
            gain = float(rng.choice(GAINS))
            n_left = int(
                rng.integers(SHORTEST_TIME_BETWEEN_SWITCHES, LONGEST_TIME_BETWEEN_SWITCHES)
            )
        n_left -= 1
        y[k] = SWITCHING_POLE * y[k - 1] + gain * u[k - 1]
    return _measured(y, u, 2, rng)


def _tanks(n: int, rng: np.random.Generator) -> Stream:
    """Return n samples of the cascaded tanks."""
    system = simulators.CascadedTanks()
    pump = TANK_LEVELS.signal(n, system.dt, rng)
    record = simulators.simulate(system, pump, seed=0)
    return _measured(record.output[:, 0], record.input[:, 0], 3, rng)


def _measured(y: Array, u: Array, n_lags: int, rng: np.random.Generator) -> Stream:
    """Return the lags and the signals, with measurement noise on the output."""
    noise = GATE_NOISE_STD * rng.normal(size=len(y))
    return sysid.Narx({"y": n_lags}, {"u": n_lags}), {"y": y + noise, "u": u}


#: the plants by name
STREAMS: dict[str, Callable[[int, np.random.Generator], Stream]] = {
    "relay": _relay,
    "switching gain": _switching_gain,
    "tanks": _tanks,
}

#: how the samples are passed
WAYS_TO_PASS: dict[str, Callable[[sysid.Identification, LagRows], None]] = {
    "together": _learn_together,
    "one by one": _learn_one_by_one,
}
