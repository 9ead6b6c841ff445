"""Order of a system: from its records alone, and the minimal part of a linear one."""

import numpy as np
import pytest

from sysid import order_test
from sysid.narx.from_dynamics import StateSpace, discretise, minimal, transfer_function


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


def simulated(system, decibel, seed):
    """Records with white measurement noise of this ratio."""
    rng = np.random.default_rng(seed)
    outputs, inputs = system(rng)
    std = np.concatenate(outputs).std() * 10 ** (-decibel / 20)
    return [y + std * rng.normal(size=len(y)) for y in outputs], inputs


# --- the true order -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("system", "order"), [(tanks, 2), (van_der_pol, 2), (actuated_spring, 3)])
def test_the_true_order_is_found_at_40_decibel_with_room_to_spare(system, order, seed):
    """The floor is the measurement noise: 40 dB are 1 % of the output."""
    result = order_test(*simulated(system, 40, seed), n_points=200)
    assert result.order == order
    assert result.conclusive
    assert result.unexplained[order - 2] > 1.5 * result.limit  # one lag less
    assert (result.unexplained[order - 1 :] < 0.85 * result.limit).all()
    assert 0.0085 < result.unexplained[order - 1] < 0.013
    cut = order_test(*simulated(system, 40, seed), max_order=order, n_points=100)
    assert (cut.order, cut.conclusive, "raise max_order" in str(cut)) == (order, False, True)
    if seed == 0 and system is not actuated_spring:
        assert order_test(*simulated(system, 300, 0), n_points=200).order == 2  # nor lags without end without noise


def test_a_dead_time_counts_and_an_input_that_acts_at_once_is_read_from_lag_zero():
    u, late, direct = np.random.default_rng(0).normal(size=(1000, 2)), np.zeros(1000), np.zeros(1000)
    for k in range(3, 1000):
        late[k] = 0.5 * late[k - 1] + u[k - 3, 0] + np.tanh(u[k - 1, 1])
        direct[k] = 0.5 * direct[k - 1] + u[k, 0] + 0.3 * np.tanh(u[k, 0])
    result = order_test(late, u)
    assert result.order == 3
    assert result.unexplained[1] > 0.8 * result.unexplained[0]  # the first lags bring nothing
    assert order_test(direct[2:], u[2:, 0], input_start=0, max_order=3).unexplained[0] < 0.01
    assert order_test(direct[2:], u[2:, 0], input_start=1, max_order=3).unexplained[0] > 0.2


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


def test_the_curve_is_its_definition_and_lags_never_reach_across_records():
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


def test_units_seed_and_settings():
    outputs, inputs = simulated(tanks, 40, 0)
    result = order_test(outputs, inputs, n_points=50, seed=1)
    other_units = order_test([1e-6 * y + 300 for y in outputs], [1e5 * u - 7 for u in inputs], n_points=50, seed=1)
    np.testing.assert_allclose(other_units.unexplained, result.unexplained, rtol=1e-5)
    as_lists = order_test(outputs[0].tolist(), inputs[0][:, None], n_points=50, seed=1)
    np.testing.assert_array_equal(as_lists.unexplained, result.unexplained)
    assert (order_test(outputs, inputs, n_points=50, seed=2).unexplained != result.unexplained).all()
    np.testing.assert_allclose(result.limit, 2 * result.unexplained.min())
    wide = order_test(outputs, inputs, n_points=50, factor=3.0, resolution=0.1)
    assert (wide.limit, wide.order) == (pytest.approx(0.3), 1)


NOISE = np.random.default_rng(0).normal(size=(2, 300))
FLAT = np.column_stack([NOISE[1], np.full(300, 0.1)])


@pytest.mark.parametrize(
    ("outputs", "inputs", "options", "message"),
    [
        ([], None, {}, "no records"),
        ([NOISE[0], NOISE[1]], [NOISE[0]], {}, "2 records of the output but 1 of the inputs"),
        (NOISE[0], NOISE[1, :-1], {}, r"\(\[300\], \[299\]\)"),
        (np.ones(300), None, {}, "the output is constant"),
        (NOISE[0], FLAT, {}, "input 1 is constant"),
        (NOISE[0], NOISE[1], {"input_names": ["u", "v"]}, "input_names"),
        (np.append(NOISE[0], np.nan), None, {}, "output of record 0: 1 of 301"),
        ([NOISE[0], NOISE[1, :6]], None, {}, "max_order=6.* 6 samples"),
        (NOISE[0, :60], None, {}, "100 neighbours.* 14 .* 54 "),
        (NOISE[0], None, {"max_order": 0}, "max_order"),
        (NOISE[0], NOISE[1], {"input_start": 2}, "input_start"),
        (NOISE[0], None, {"factor": 1.0}, "factor"),
    ],
)
def test_what_is_wrong_is_named(outputs, inputs, options, message):
    with pytest.raises(ValueError, match=message):
        order_test(outputs, inputs, **options)


def test_wrong_systems_are_named():
    for change, tolerance, message in (({"C": np.eye(2)}, 1e-7, "one output, got 2"), ({}, 0.0, "tolerance")):
        with pytest.raises(ValueError, match=message):
            minimal(CLOSE._replace(**change), tolerance)


# --- the minimal part of a linear system ----------------------------------------------------------


def impulse_response(model, n):
    """h[i] = C A^(i-1) B, by running the system."""
    x, rows = model.B, []
    for _ in range(n):
        rows.append(model.C[0] @ x)
        x = model.A @ x
    return np.array(rows).T


def difference_equation(a, b, n):
    """Impulse response of y[k] = -a_1 y[k-1] - ... + b_1 u[k-1] + ..., one number at a time."""
    y = np.zeros(n)
    for k in range(n):
        y[k] = sum(-a[i] * y[k - 1 - i] for i in range(min(len(a), k))) + (b[k] if k < len(b) else 0.0)
    return y


def partly_hidden(seed):
    """Random system of n states: `seen` of them minimal, `moved` moved by the inputs; in random units."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 8))
    moved = int(rng.integers(1, n + 1))
    seen = int(rng.integers(1, moved + 1))
    A = rng.normal(size=(n, n)) - 1.5 * np.eye(n)
    B, C = rng.normal(size=(n, int(rng.integers(1, 3)))), rng.normal(size=(1, n))
    A[moved:, :moved], B[moved:] = 0, 0
    A[:seen, seen:moved], C[:, seen:moved] = 0, 0
    T = 10.0 ** rng.uniform(-4, 4, size=(n, 1)) * np.linalg.qr(rng.normal(size=(n, n)))[0]
    T_inverse = np.linalg.inv(T)
    return StateSpace(T @ A @ T_inverse, T @ B, C @ T_inverse), n, moved, seen


@pytest.mark.parametrize("seed", range(40))
def test_the_order_is_that_of_the_visible_part_and_the_rest_is_named(seed):
    continuous, n, moved, seen = partly_hidden(seed)
    model = discretise(continuous, 0.2)
    found = minimal(model)
    assert found.order == seen
    assert found.not_moved.shape == (n - moved, n)
    assert found.dropped < 1e-9 < 1e-6 < found.kept
    expected = impulse_response(model, 12)
    np.testing.assert_allclose(impulse_response(found.model, 12), expected, rtol=1e-6, atol=1e-9 * abs(expected).max())
    rng = np.random.default_rng(seed)
    x = np.zeros(n)
    for _ in range(20):
        x = model.A @ x + model.B @ rng.normal(size=model.B.shape[1])
    for row in found.not_moved:
        assert abs(row @ x) < 1e-6 * np.abs(row * x).max()
    for direction in found.not_shown:
        moved = direction
        for _ in range(20):
            assert abs(model.C[0] @ moved) < 1e-6 * np.abs(model.C[0]) @ np.abs(direction)
            moved = model.A @ moved


OSCILLATOR = StateSpace(np.array([[0.0, 1.0], [-1.0, 0.0]]), np.array([[0.0], [1.0]]), np.array([[1.0, 0.0]]))
CLOSE = StateSpace(np.diag([0.5, 0.5 - 1e-5]), np.ones((2, 1)), np.ones((1, 2)))
CHAIN = StateSpace(np.array([[0.9, 0.1], [0.0, 0.8]]), np.empty((2, 0)), np.array([[0.0, 1.0]]))  # without inputs
CROSSED = StateSpace(np.diag([0.5, 0.2]), np.array([[1e-12], [1.0]]), np.array([[1.0, 1e-12]]))  # rounding joins them
HALF_A_PERIOD = discretise(OSCILLATOR, np.pi)  # hides the velocity


def test_the_order_of_small_systems():
    for model, tolerance, order in ((HALF_A_PERIOD, 1e-7, 1), (CHAIN, 1e-7, 1), (CLOSE, 1e-3, 1), (CROSSED, 1e-7, 0)):
        assert minimal(model, tolerance).order == order
    found = minimal(StateSpace(np.diag([0.5, 0.2]), np.zeros((2, 1)), np.ones((1, 2))))  # an input without effect
    assert (found.order, found.not_moved.sum()) == (0, 2.0)
    assert [part.shape for part in transfer_function(found.model)] == [(0,), (1, 0)]


@pytest.mark.parametrize("n", [1, 2, 4])
def test_the_transfer_function_gives_the_impulse_response(n):
    rng = np.random.default_rng(n)
    model = StateSpace(rng.normal(size=(n, n)) / n, rng.normal(size=(n, 2)), rng.normal(size=(1, n)))
    a, b = transfer_function(model)
    assert a.shape == (n,)
    for coefficients, response in zip(b, impulse_response(model, 15), strict=True):
        np.testing.assert_allclose(difference_equation(a, coefficients, 15), response, atol=1e-12)
