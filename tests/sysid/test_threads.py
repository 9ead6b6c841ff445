"""Models in several threads, and in processes that are forked beside them."""

import copy
import multiprocessing
import os
import pickle
import sys
import threading
from contextlib import suppress
from functools import cache

import numpy as np
import pytest

from sysid import (
    Identification,
    LinearPart,
    MaximumAPosteriori,
    Model,
    Narx,
    OnlineGP,
    Settings,
    SquaredExponential,
    export_python,
    free_run,
)

RNG = np.random.default_rng(0)
X = RNG.uniform(-2, 2, (2000, 2))
Y = np.sin(2 * X[:, 0]) * X[:, 1]
N_BEFORE = 200
N_TOTAL = 900
PROBE = X[-70:]


@pytest.fixture(autouse=True)
def hasty_threads():
    """Let threads take turns much more often than they usually do."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def make_gp(learning, **options):
    """Return a GP that has learned the first samples."""
    kernel = SquaredExponential(1.0, [0.7, 1.5])
    gp = OnlineGP(kernel, noise_variance=1e-4, budget=40, learning=learning, **options)
    gp.update_many(X[:N_BEFORE], Y[:N_BEFORE])
    return gp


def beside(work, *others):
    """Do work in this thread while other threads repeat theirs; return the errors of these."""
    errors = []
    is_over = threading.Event()

    def repeat(other):
        try:
            while not is_over.is_set():
                other()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=[other]) for other in others]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    return errors


def learn_one_by_one(gp, begin, end):
    """Learn samples in calls of their own."""
    for k in range(begin, end):
        gp.update(X[k], float(Y[k]))


@pytest.mark.parametrize(
    "options",
    [
        {"learning": "stored"},
        {"learning": "every_sample"},
        {"learning": "every_sample", "forgetting": 100.0},
    ],
    ids=lambda options: "_".join(options),
)
def test_predictions_beside_a_thread_that_learns_are_those_of_some_state(options):
    gp = make_gp(**options)
    alone = make_gp(**options)
    learn_one_by_one(alone, N_BEFORE, N_TOTAL)
    found = []

    def look():
        mean, variance = gp.predict(PROBE)
        found.append(np.abs(mean).max() < 20 and (variance >= 0).all())
        assert gp.inputs.shape == (40, 2)
        assert gp.copy().drift() < 1e-6

    errors = beside(lambda: learn_one_by_one(gp, N_BEFORE, N_TOTAL), look)
    assert not errors
    assert found
    assert all(found)
    for mine, expected in zip(gp.predict(PROBE), alone.predict(PROBE), strict=True):
        np.testing.assert_array_equal(mine, expected)


@pytest.mark.parametrize("learning", ["stored", "every_sample"])
def test_two_threads_that_learn_leave_sound_factors(learning):
    gp = make_gp(learning)
    middle = (N_BEFORE + N_TOTAL) // 2
    thread = threading.Thread(target=learn_one_by_one, args=(gp, N_BEFORE, middle))
    thread.start()
    learn_one_by_one(gp, middle, N_TOTAL)
    thread.join()
    mean, _ = gp.predict(PROBE)
    assert gp.n_seen == N_TOTAL
    assert gp.drift() < 1e-6
    assert np.sqrt(np.mean((mean - Y[-70:]) ** 2)) < 0.1


@cache
def rows_of_a_plant():
    """Return lags, and regressors and targets of a plant with an outlier now and then."""
    n = 500
    u = RNG.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + 0.5 * np.tanh(u[k - 1]) + 0.02 * RNG.normal()
    narx = Narx({"y": 2}, {"u": 2})
    rows = narx.regressors({"y": y + 3.0 * (np.arange(n) % 97 == 0), "u": u})
    return narx, rows.regressor, rows.target


def identification():
    """Return an identification that has a model."""
    narx, x, t = rows_of_a_plant()
    training = MaximumAPosteriori(n_initial=40)
    found = Identification(narx, Settings(budget=20, training=training, linear_part=LinearPart()))
    found.observe_many(x[:60], t[:60])
    return found


def test_models_that_a_second_thread_saves_are_those_of_some_sample(tmp_path):
    _, x, t = rows_of_a_plant()
    found = identification()
    expected = {}
    alone = identification()
    for k in range(60, 200):
        alone.observe(x[k], float(t[k]))
        expected[alone.model.gp.n_seen] = alone.model.to_dataset().attrs["digest"]
    saved = []

    def save():
        with found.lock:
            saved.append(found.model.to_dataset())
        free_run(found.model, x[:12, 2:3], t[:4, None])

    def learn():
        for k in range(60, 200):
            found.observe(x[k], float(t[k]))

    errors = beside(learn, save)
    assert not errors
    for dataset in saved:
        model = Model.from_dataset(dataset)
        if model.gp.n_seen > 60:
            assert dataset.attrs["digest"] == expected[model.gp.n_seen]


USES_OF_A_GP = {
    "update": lambda gp: gp.update(X[0], 0.0),
    "update_many": lambda gp: gp.update_many(X[:3], Y[:3]),
    "fit": lambda gp: gp.fit(X[:3], Y[:3]),
    "absorb": lambda gp: gp.absorb(X[:3], Y[:3]),
    "predict": lambda gp: gp.predict(PROBE),
    "predict one": lambda gp: gp.predict(PROBE[:1]),
    "state": lambda gp: gp.state(),
    "restore": lambda gp: gp.restore(make_gp("every_sample").state(), [0] * 8),
    "exact_form": lambda gp: gp.exact_form(),
    "draw_targets": lambda gp: gp.draw_targets(3, np.random.default_rng(0)),
    "copy": lambda gp: gp.copy(),
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": pickle.dumps,
    "reduce_to": lambda gp: gp.reduce_to(5),
    "with_hyperparameters": lambda gp: gp.with_hyperparameters(gp.kernel, gp.noise_variance),
    "leave_one_out": lambda gp: gp.leave_one_out(),
    "candidate_scores": lambda gp: gp.candidate_scores(X[:2], Y[:2]),
    "drift": lambda gp: gp.drift(),
    "counts": lambda gp: gp.counts(),
    "inputs": lambda gp: gp.inputs,
    "targets": lambda gp: gp.targets,
    "coefficients": lambda gp: gp.coefficients,
}

USES_OF_AN_IDENTIFICATION = {
    "observe": lambda found: found.observe(np.zeros(4), 0.0),
    "finish": lambda found: found.finish(),
}

USES_OF_A_MODEL = {
    "save": lambda model: model.to_dataset(),
    "predict": lambda model: model.predict(np.zeros((1, 4))),
    "update": lambda model: model.update(np.zeros(4), 0.0),
    "linear coefficients": lambda model: model.linear_coefficients,
    "free run": lambda model: free_run(model, np.zeros((4, 1)), np.zeros((2, 1))),
    "export": lambda model: export_python(model, "unused.txt"),
}


def waits_for(lock, use):
    """Return whether a use in another thread begins only when this thread gives the lock back."""
    is_over = threading.Event()

    def work():
        with suppress(ValueError):
            use()
        is_over.set()

    thread = threading.Thread(target=work)
    with lock:
        thread.start()
        was_over = is_over.wait(0.02)
    thread.join(60.0)
    return not was_over and is_over.is_set()


@pytest.mark.parametrize("name", USES_OF_A_GP)
def test_whoever_uses_a_gp_waits_for_the_thread_that_holds_it(name):
    gp = make_gp("every_sample")
    assert waits_for(gp.lock, lambda: USES_OF_A_GP[name](gp))


@pytest.mark.parametrize("name", USES_OF_AN_IDENTIFICATION)
def test_whoever_feeds_an_identification_waits_for_the_thread_that_holds_it(name):
    found = identification()
    assert waits_for(found.lock, lambda: USES_OF_AN_IDENTIFICATION[name](found))


@pytest.mark.parametrize("name", USES_OF_A_MODEL)
def test_whoever_uses_a_model_waits_for_the_thread_that_holds_its_gp(name):
    model = identification().model
    assert waits_for(model.gp.lock, lambda: USES_OF_A_MODEL[name](model))


def test_a_prediction_that_has_begun_is_over_before_another_thread_learns(monkeypatch):
    gp = make_gp("every_sample")
    expected = gp.predict(PROBE)
    basis = OnlineGP._basis
    learner = threading.Thread(target=learn_one_by_one, args=(gp, N_BEFORE, N_BEFORE + 50))

    def slow_basis(self):
        if not learner.is_alive():
            learner.start()
            learner.join(0.05)
        return basis(self)

    monkeypatch.setattr(OnlineGP, "_basis", slow_basis)
    found = gp.predict(PROBE)
    learner.join()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "duplicate", [copy.copy, copy.deepcopy, lambda gp: pickle.loads(pickle.dumps(gp))]
)
def test_a_copy_has_a_lock_of_its_own(duplicate):
    gp = make_gp("every_sample")
    with gp.lock:
        other = duplicate(gp)
        thread = threading.Thread(target=other.update, args=(X[300], 0.0))
        thread.start()
        thread.join(10.0)
        assert not thread.is_alive()
    assert (gp.n_seen, other.n_seen) == (N_BEFORE, N_BEFORE + 1)


def in_a_fork(work):
    """Return what a forked process sends."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)

    def send():
        try:
            sender.send(work())
        except Exception as error:
            sender.send(error)

    process = fork.Process(target=send)
    process.start()
    found = receiver.recv() if receiver.poll(60.0) else "nothing came"
    process.join()
    return found


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_beside_a_thread_that_learns_ends_in_an_error_instead_of_waiting_for_ever():
    gp = make_gp("stored")
    free = make_gp("stored")
    is_held = threading.Event()
    may_end = threading.Event()

    def hold():
        with gp.lock:
            is_held.set()
            may_end.wait(60.0)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(60.0)
    try:
        error = in_a_fork(lambda: gp.predict(PROBE))
        mean, _ = in_a_fork(lambda: free.predict(PROBE))
    finally:
        may_end.set()
        thread.join()
    assert isinstance(error, RuntimeError)
    assert "half changed" in str(error)
    np.testing.assert_array_equal(mean, free.predict(PROBE)[0])
    np.testing.assert_array_equal(gp.predict(PROBE)[0], mean)
