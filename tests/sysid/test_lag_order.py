"""Order from records alone: three simulated systems at 40 dB, a naive twin, and every error."""

import numpy as np
import pytest

from sysid.lag_order import OrderTest, order_test


def runge_kutta(rate, state, inputs, dt, substeps=4):
    """States at the start of every sample, the input held over it."""
    states, h = [], dt / substeps
    x = np.array(state, dtype=float)
    for u in inputs:
        states.append(x)
        for _ in range(substeps):
            k1 = rate(x, u)
            k2 = rate(x + h / 2 * k1, u)
            k3 = rate(x + h / 2 * k2, u)
            k4 = rate(x + h * k3, u)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return np.array(states)


def band_limited(n, dt, highest, rng):
    """Random-phase multisine of unit variance up to a frequency [Hz]."""
    spectrum = np.where(np.fft.rfftfreq(n, dt) <= highest, np.exp(2j * np.pi * rng.random(n // 2 + 1)), 0)
    spectrum[0] = 0
    signal = np.fft.irfft(spectrum, n)
    return signal / signal.std()


def tanks(rng, n=1000):
    """Second order, square roots; pump held for six samples plus a little noise."""
    u = np.repeat(rng.uniform(1, 7, n // 6 + 1), 6)[:n] + 0.5 * rng.normal(size=n)

    def rate(x, u):
        a, b = np.sqrt(np.maximum(x, 0))
        return np.array([-0.15 * a + 0.07 * u, 0.15 * a - 0.15 * b])

    return [runge_kutta(rate, [4, 4], u, 4.0)[:, 1]], [u]


def van_der_pol(rng, n_records=20):
    """Second order, no input: records of 5 s, disturbed by held noise of variance 0.1."""

    def rate(x, w):
        return np.array([x[1], 2 * (1 - x[0] ** 2) * x[1] - x[0] + w])

    starts = rng.uniform(-2, 2, size=(n_records, 2))
    return [runge_kutta(rate, x, np.sqrt(0.1) * rng.normal(size=52), 0.1)[:, 0] for x in starts], None


def actuated_spring(rng, n=1000):
    """Third order: hardening spring and mass behind a slow, saturating actuator."""
    u = 1.5 * band_limited(n, 0.4, 0.7, rng)

    def rate(x, u):
        return np.array([x[1], -2 * x[0] - 0.3 * x[0] ** 3 - 0.5 * x[1] + x[2], -1.2 * x[2] + 2 * np.tanh(u)])

    return [runge_kutta(rate, [0, 0, 0], u, 0.4)[:, 0]], [u]


def bouc_wen(rng, n=2000):
    u = 50 * band_limited(n, 1 / 750, 150, rng)

    def rate(x, u):
        y, v, z = x
        return np.array([v, (u - 5e4 * y - 10 * v - z) / 2, 5e4 * v - 1e3 * (0.8 * abs(v) * z - 1.1 * v * abs(z))])

    return [runge_kutta(rate, [0, 0, 0], u, 1 / 750)[:, 0]], [u]


def with_noise(outputs, decibel, rng):
    std = np.concatenate(outputs).std() * 10 ** (-decibel / 20)
    return [y + std * rng.normal(size=len(y)) for y in outputs]


def simulated(system, decibel, seed):
    rng = np.random.default_rng(seed)
    outputs, inputs = system(rng)
    return with_noise(outputs, decibel, rng), inputs


# --- the true order -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("system", "order"), [(tanks, 2), (van_der_pol, 2), (actuated_spring, 3)])
def test_the_true_order_is_found_at_40_decibel_with_room_to_spare(system, order, seed):
    result = order_test(*simulated(system, 40, seed), n_points=200)
    assert result.order == order
    assert result.conclusive
    assert result.unexplained[order - 2] > 1.5 * result.limit  # one lag less
    assert (result.unexplained[order - 1 :] < 0.85 * result.limit).all()


@pytest.mark.parametrize("system", [tanks, van_der_pol, actuated_spring])
def test_the_floor_is_the_measurement_noise(system):
    """40 dB are 1 % of the output."""
    result = order_test(*simulated(system, 40, 5))
    assert 0.0085 < result.unexplained[result.order - 1] < 0.0125


def test_records_without_noise_are_not_given_lags_without_end():
    for system in (tanks, van_der_pol):
        assert order_test(*simulated(system, 300, 0), n_points=200).order == 2


def test_a_weak_state_is_found_only_above_the_noise():
    """The hysteresis of Bouc-Wen: 2 at 40 dB, 3 at 60 dB."""
    assert order_test(*simulated(bouc_wen, 40, 0), n_points=200).order == 2
    assert order_test(*simulated(bouc_wen, 60, 0), n_points=200).order == 3


def test_a_dead_time_counts_although_the_first_lags_bring_nothing():
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=(1000, 2)), np.zeros(1000)
    for k in range(3, 1000):
        y[k] = 0.5 * y[k - 1] + u[k - 3, 0] + np.tanh(u[k - 1, 1])
    result = order_test(y, u)
    assert result.order == 3
    assert result.unexplained[1] > 0.8 * result.unexplained[0]


def test_an_input_that_acts_at_once_is_read_from_lag_zero():
    rng = np.random.default_rng(0)
    u, y = rng.normal(size=1000), np.zeros(1000)
    for k in range(1, 1000):
        y[k] = 0.5 * y[k - 1] + u[k] + 0.3 * np.tanh(u[k])
    assert order_test(y, u, input_start=0, max_order=3).unexplained[0] < 0.01
    assert order_test(y, u, input_start=1, max_order=3).unexplained[0] > 0.2


def test_an_order_at_the_end_of_the_curve_is_not_conclusive():
    result = order_test(*simulated(actuated_spring, 40, 0), max_order=3, n_points=100)
    assert (result.order, result.conclusive) == (3, False)
    assert "order 3 or more: raise max_order" in str(result)


# --- the curve ------------------------------------------------------------------------------------


def naive_curve(records, max_order, n_neighbours):
    """The definition for one input, every sample examined, with loops and normal equations."""
    y_std = np.concatenate([y for y, _ in records]).std()
    u_std = np.concatenate([u for _, u in records]).std()
    curve = []
    for n in range(1, max_order + 1):
        outputs, inputs = [], []
        for y, u in records:
            for k in range(max_order, len(y)):
                outputs.append([y[k - i] / y_std for i in range(n + 1)])
                inputs.append([u[k - i] / u_std for i in range(1, n + 1)])
        outputs, inputs = np.array(outputs), np.array(inputs)
        z = np.hstack([outputs[:, 1:], inputs])
        eigenvalues = []
        for row in z:
            near = np.argsort(((z - row) ** 2).sum(axis=1))[:n_neighbours]
            U = np.hstack([np.ones((n_neighbours, 1)), inputs[near]])
            rest = outputs[near] - U @ np.linalg.lstsq(U, outputs[near], rcond=None)[0]
            eigenvalues.append(np.linalg.eigvalsh(rest.T @ rest)[0] / (n_neighbours - 1 - 2 * n))
        curve.append(np.sqrt(np.mean(eigenvalues)))
    return curve


def test_the_curve_is_its_definition():
    rng = np.random.default_rng(3)
    records = []
    for n in (60, 90):
        u, y = rng.normal(size=n), rng.normal(size=n)
        for k in range(2, n):
            y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + np.tanh(u[k - 1]) + 0.1 * rng.normal()
        records.append((y, u))
    outputs, inputs = zip(*records, strict=True)
    result = order_test(outputs, inputs, max_order=3, neighbours=40)
    assert (result.n_rows, result.n_points, result.n_neighbours) == (144, 144, 40)
    np.testing.assert_allclose(result.unexplained, naive_curve(records, 3, 40), rtol=1e-9)


def test_lags_never_reach_across_records():
    """Every record costs its own first samples; `naive_curve` below checks the values."""
    outputs, inputs = simulated(tanks, 40, 0)
    y, u = outputs[0], inputs[0]
    apart = order_test([y[:500], y[500:]], [u[:500], u[500:]], n_points=100)
    assert apart.n_rows == 2 * (500 - 6)
    assert order_test(y, u, n_points=100).n_rows == 1000 - 6


def test_units_do_not_matter():
    outputs, inputs = simulated(tanks, 40, 0)
    here = order_test(outputs, inputs, n_points=50)
    there = order_test([1e-6 * y + 300 for y in outputs], [1e5 * u - 7 for u in inputs], n_points=50)
    np.testing.assert_allclose(there.unexplained, here.unexplained, rtol=1e-5)


def test_one_record_may_come_as_plain_arrays():
    outputs, inputs = simulated(tanks, 40, 0)
    plain = order_test(outputs[0], inputs[0], n_points=50)
    np.testing.assert_array_equal(plain.unexplained, order_test(outputs, inputs, n_points=50).unexplained)
    listed = order_test(outputs[0].tolist(), inputs[0][:, None], n_points=50)
    np.testing.assert_array_equal(plain.unexplained, listed.unexplained)


def test_the_seed_chooses_the_samples():
    data = simulated(tanks, 40, 0)
    first, same = (order_test(*data, n_points=50, seed=1).unexplained for _ in range(2))
    np.testing.assert_array_equal(first, same)
    assert (order_test(*data, n_points=50, seed=2).unexplained != first).all()


def test_settings_move_the_limit():
    result = order_test(*simulated(tanks, 40, 0), n_points=50)
    np.testing.assert_allclose(result.limit, 2 * result.unexplained.min())
    wide = order_test(*simulated(tanks, 40, 0), n_points=50, factor=3.0, resolution=0.1)
    assert (wide.limit, wide.order) == (pytest.approx(0.3), 1)


def test_the_curve_prints():
    result = OrderTest(np.array([1, 2, 3]), np.array([0.1, 0.01, 0.01]), 0.02, 2, True, 900, 100, 50)
    lines = str(result).splitlines()
    assert lines[0].startswith("order 2 (100 of 900 samples, 50 neighbours each")
    assert lines[1].split() == ["1", "1.00e-01", "#" * 40]
    assert lines[2].split() == ["2", "1.00e-02", "#", "<-", "chosen"]
    assert lines[3].split() == ["3", "1.00e-02", "#"]
    assert "0.00e+00" in str(result._replace(unexplained=np.zeros(3)))


# --- errors ---------------------------------------------------------------------------------------


NOISE = np.random.default_rng(0).normal(size=(2, 300))


@pytest.mark.parametrize(
    ("outputs", "inputs", "options", "message"),
    [
        ([], None, {}, "no records; give at least one"),
        ([NOISE[0], NOISE[1]], [NOISE[0]], {}, "2 records of the output but 1 of the inputs"),
        (NOISE[0], NOISE[1, :-1], {}, r"need one length, got \[\(300, 299\)\]"),
        ([NOISE[0], NOISE[1]], [NOISE, NOISE[0]], {}, r"inputs of record 1: expected shape \(n, 300\)"),
        (np.ones(300), None, {}, "the output is constant"),
        (NOISE[0], np.column_stack([NOISE[1], np.full(300, 0.1)]), {}, "input 1 is constant .* leave it out"),
        (np.append(NOISE[0], np.nan), None, {}, "output of record 0: 1 of 301 values are not finite"),
        ([NOISE[0], NOISE[1, :6]], None, {}, r"max_order=6\): a record has 6 samples, expected at least 7"),
        (NOISE[0], np.column_stack([NOISE[1], np.ones(300)]), {"input_names": ["v", "u"]}, "input 'u' is constant"),
        (NOISE[0], NOISE[1], {"input_names": ["u", "v"]}, r"input_names=\['u', 'v'\]\): expected 1 names"),
        (NOISE[0], NOISE[1], {"input_names": "u"}, r"input_names='u'\): expected 1 names"),
        (NOISE[0], None, {"input_names": ["u"]}, "expected 0 names"),
        (
            NOISE[0, :60],
            None,
            {},
            r"100 neighbours, expected at least 14 .* at most 54 .*; lower max_order or use more samples$",
        ),
        (
            NOISE[0],
            NOISE[1],
            {"neighbours": 25},
            r"25 neighbours, expected at least 26 .*; lower max_order or use more samples, or change neighbours$",
        ),
        (NOISE[0], None, {"max_order": 0}, "whole numbers above zero"),
        (NOISE[0], None, {"n_points": 0}, "whole numbers above zero"),
        (NOISE[0], NOISE[1], {"input_start": 2}, "expected 0 or 1, the first lag"),
        (NOISE[0], None, {"factor": 1.0}, "a factor above 1"),
        (NOISE[0], None, {"resolution": -0.1}, "resolution from 0"),
    ],
)
def test_what_is_wrong_is_named(outputs, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        order_test(outputs, inputs, **options)
