"""Records of plants that change and of sensors that fail, and identifications that learn them."""

from types import MappingProxyType

import numpy as np

import sysid
from sysid import Narx, Settings

NARX = Narx({"y": [1, 2]}, {"u": [1]})
COUPLED_SIGNALS = {"outputs": {"y": 2, "v": 2}, "inputs": {"u": 2}}

#: Estimates the hyper-parameters from the first samples only.
TRAINED_ONCE = sysid.MaximumAPosteriori(n_initial=100, restarts=1)

#: Estimates the hyper-parameters again at nearly every opportunity.
TRAINED_AGAIN = sysid.Adaptive(
    n_initial=100, restarts=1, interval=7, significance=0.5, sample_size=120
)


def held_input(random, n):
    """Return an input (n,) that is drawn from -1 to 1 and held for five samples."""
    return np.repeat(random.uniform(-1, 1, n // 5 + 1), 5)[:n]


def simulate_plant(n, *, change=None, bad=(), jump=(), seed=0):
    """Return the output and the input of a small nonlinear plant.

    The plant is ``y[k] = a tanh(y[k-1]) + 0.2 y[k-2] + 0.5 u[k-1] + w`` with noise w of standard
    deviation 0.02, and a = 0.8. From the sample `change` on, a is 0.5. At the samples `jump` the
    plant itself jumps by 1; at the samples `bad` only its sensor is wrong by 1.
    """
    random = np.random.default_rng(seed)
    u = held_input(random, n)
    w = 0.02 * random.standard_normal(n)
    w[list(jump)] += 1.0
    y = np.zeros(n)
    for k in range(2, n):
        has_changed = change is not None and k >= change
        a = 0.5 if has_changed else 0.8
        y[k] = a * np.tanh(y[k - 1]) + 0.2 * y[k - 2] + 0.5 * u[k - 1] + w[k]
    measured = y.copy()
    measured[list(bad)] += 1.0
    return measured, u


def rows_of(record):
    """Return the lag rows of a record of `simulate_plant`."""
    y, u = record
    return NARX.regressors({"y": y, "u": u})


def simulate_coupled_plant(n, *, wrong=MappingProxyType({}), size=0.4, pulses=(), begin=0, seed=0):
    """Return the signals y, v and u of two coupled outputs, and which values are wrong.

    The noise has standard deviation 0.02. The input has pulses of 6 that last one sample. From the
    sample `begin` on, a value of a signal is wrong by `size` with the probability that `wrong` has
    for this signal.
    """
    random = np.random.default_rng(seed)
    u = held_input(random, n)
    u[list(pulses)] += 6.0
    y = np.zeros(n)
    v = np.zeros(n)
    for k in range(2, n):
        y_noise = 0.02 * random.standard_normal()
        v_noise = 0.02 * random.standard_normal()
        y[k] = 0.7 * np.tanh(y[k - 1]) + 0.2 * v[k - 2] + 0.6 * np.tanh(u[k - 1]) + y_noise
        v[k] = 0.6 * v[k - 1] - 0.3 * y[k - 1] + 0.2 * u[k - 2] + v_noise
    chances = np.random.default_rng([seed, 1]).random((3, n))
    record = {}
    is_wrong = {}
    for (name, values), chance in zip({"y": y, "v": v, "u": u}.items(), chances, strict=True):
        is_wrong[name] = chance < wrong.get(name, 0.0)
        is_wrong[name][:begin] = False
        record[name] = values + size * is_wrong[name]
    return record, is_wrong


def observe_in_blocks(identification, rows, size=None):
    """Learn rows in blocks of `size`, or at once.

    Return the reports, each corrected by the next block if that decides about the row.
    """
    if size is None:
        size = len(rows.target)
    reports = []
    for begin in range(0, len(rows.target), size):
        block = slice(begin, begin + size)
        block_reports = identification.observe_many(rows.regressor[block], rows.target[block])
        if identification.correction is not None:
            reports[-1][-1] = identification.correction
        reports.append(block_reports)
    return np.concatenate(reports)


def learn_plant(record, size=None, **settings):
    """Learn a record of `simulate_plant`, in blocks of `size` or at once.

    Return the identification and the reports.
    """
    rows = rows_of(record)
    settings = {
        "acceptance": sysid.AcceptAll(),
        "reduction": sysid.MarginalLogLikelihood(),
    } | settings
    training = sysid.MaximumAPosteriori(n_initial=60, restarts=1)
    identification = sysid.Identification(NARX, Settings(training=training, budget=30, **settings))
    reports = observe_in_blocks(identification, rows, size)
    return identification, reports


def learn_coupled_plant(record, target, size=None, training=TRAINED_ONCE, **settings):
    """Learn one output of a record of `simulate_coupled_plant`, in blocks of `size` or at once.

    Return the identification and the reports.
    """
    narx = Narx(**COUPLED_SIGNALS, target=target)
    rows = narx.regressors(record)
    options = Settings(training=training, budget=30, **settings)
    identification = sysid.Identification(narx, options)
    reports = observe_in_blocks(identification, rows, size)
    return identification, reports
