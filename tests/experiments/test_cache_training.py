"""A training that looks up what the same training made of the same samples before."""

import logging

import numpy as np
import pytest
from numba import config as numba_config

from experiments.sweeps.cache import Cache, CachedTraining
from sysid import Adaptive, ConstantMean, Fixed, InitialSamples, MaximumAPosteriori, Narx, Start, Training, ZeroMean

if numba_config.DISABLE_JIT:
    pytest.skip("nothing here is compiled", allow_module_level=True)

NARX = Narx({"y": [1]}, {}, "y")
SAMPLES = InitialSamples(NARX, np.arange(6.0)[:, None] / 3, np.sin(np.arange(6.0)), np.array([False, *5 * [True]]))


def started(training, cache, samples=SAMPLES, known=None, mean=None, budget=5, seed=0, code="code"):
    wrapped = CachedTraining(training, cache, code)
    known, mean = known or Start(), mean or ConstantMean()
    return wrapped.prepare(samples, known, mean=mean, budget=budget, seed=seed)


QUICK = MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=3)


@pytest.mark.parametrize(
    "other",
    [
        {"samples": SAMPLES._replace(regressors=SAMPLES.regressors + np.spacing(SAMPLES.regressors))},
        {"samples": SAMPLES._replace(targets=-SAMPLES.targets)},
        {"samples": SAMPLES._replace(follows=np.ones(6, dtype=bool))},
        {"samples": SAMPLES._replace(narx=Narx({"y": [2]}, {}, "y"))},
        {"known": Start(limits=(0.0, 1.0))},
        {"known": Start(mean=ConstantMean(0.3))},
        {"mean": ZeroMean()},
        {"budget": 6},
        {"seed": 1},
        {"code": "other"},
        {"training": MaximumAPosteriori(n_initial=6, restarts=1, max_iterations=4)},
        {"training": Adaptive(n_initial=6, restarts=1, max_iterations=3)},
    ],
    ids=str,
)
def test_every_argument_of_a_training_is_part_of_its_key(other, tmp_path):
    started(QUICK, Cache(tmp_path))
    same, cache = Cache(tmp_path), Cache(tmp_path)
    started(QUICK, same)
    started(**({"training": QUICK} | other), cache=cache)
    assert (same.summary(), cache.summary()) == ({"start": {"hits": 1}}, {"start": {"misses": 1}})


class Undescribed(Training):
    """A user's own training that is no dataclass."""

    n_initial = 6
    replaces = frozenset({"kernel"})

    def __init__(self):
        self.times = 0

    @property
    def standardise(self):
        return False

    def train(self, inputs, targets, seed):
        self.times += 1
        return Fixed(1.0, 1.0, 0.1).train(inputs, targets, seed)


def test_a_training_that_cannot_be_described_trains_every_time(tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    training, cache = Undescribed(), Cache(tmp_path)
    starts = [started(training, cache) for _ in range(2)]
    assert (training.times, cache.summary()) == (2, {"start": {"left_out": 2}})
    assert repr(starts[0]) == repr(starts[1])
    assert not list(tmp_path.rglob("*"))
    (levels,) = {record.levelno for record in caplog.records if record.name.startswith("experiments")}
    assert levels == logging.DEBUG


def test_the_wrapped_training_looks_like_the_one_inside(tmp_path):
    for training in (Undescribed(), QUICK, Adaptive(n_initial=7)):
        wrapped = CachedTraining(training, Cache(tmp_path), "code")
        assert isinstance(wrapped, Training)
        assert (wrapped.n_initial, wrapped.standardise) == (training.n_initial, training.standardise)
        assert wrapped.replaces == training.replaces
        assert (wrapped.follow(3) is None) == (training.follow(3) is None)
    assert wrapped.follow(3).settings is training
    inside = Fixed(2.0, 1.0, 0.1)
    assert (
        CachedTraining(inside, Cache(tmp_path), "").train(np.zeros((1, 1)), np.zeros(1), 0)[:2]
        == inside.train(np.zeros((1, 1)), np.zeros(1), 0)[:2]
    )
