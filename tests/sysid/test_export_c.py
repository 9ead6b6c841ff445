"""A model as C99: the same predictions, simulations and decisions, and codes for bad input."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from c_models import CODES, STRICT, CModel, compiler, run
from coupled_models import joint_model, signals
from linear_part_models import KERNEL, joint_model_with_linear_parts, model_with_linear_part
from sysid import (
    AcceptAll,
    AffineMap,
    Always,
    ConstantMean,
    Either,
    ErrorThreshold,
    ExceedsMinimum,
    JointModel,
    Linear,
    LinearMean,
    LogPredictiveDensity,
    MarginalLogLikelihood,
    Matern32,
    Matern52,
    MeanRelevance,
    Model,
    Narx,
    Novelty,
    OnlineGP,
    Origin,
    PredictiveEntropy,
    PriorEntropy,
    Product,
    Scaling,
    SquaredExponential,
    Sum,
    UserError,
    VarianceThreshold,
    WithLinearPart,
    ZeroMean,
    export_c,
    export_python,
    free_run,
)
from sysid.gp.formula import JIT_DISABLED

FLAT = Linear(0.3, [1.0, 0.1, 0.2])
ROUGH = Matern52(1.1, [1.0, 2.0, 0.5])
NESTED = Sum(
    [FLAT, Product([ROUGH, Sum([SquaredExponential(0.9, [2.0] * 3), Matern32(0.5, [1.0] * 3)])])]
)
MEAN = LinearMean([0.1, -0.2, 0.3], 0.4)
N_ROWS = 60  # rows that the models learn in a test


def one_output(kernel=NESTED, mean=MEAN, scaling=None, lags=None, noise_variance=0.01, **settings):
    """Return a model of y with the features y[k-1], u[k], u[k-2], or with other lags."""
    narx = Narx(**({"outputs": {"y": 1}, "inputs": {"u": [0, 2]}} | (lags or {})))
    x, y = samples(14)
    scaling = Scaling.fit(x) if scaling is None else scaling
    gp = OnlineGP(kernel, noise_variance=noise_variance, budget=7, **settings)
    gp.fit(scaling.transform(x[:6]), (y - mean(x))[:6])
    model = Model(narx, scaling, mean, gp, Origin(0.5, {"y": "m", "u": "N"}))
    model.update_many(x[6:], y[6:])
    return model


def samples(n, seed=0):
    """Return regressors with three features (n, 3) and targets (n,)."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(n, 3)) * [1.0, 3.0, 0.2] + [0.0, 5.0, 0.0]
    return x, np.sin(x[:, 0]) + 0.1 * x[:, 1] + 0.05 * generator.normal(size=n)


def combined_features():
    """Return a model whose kernel sees two combinations of its three features."""
    matrix = np.array([[1.0, 0.5, 0.0], [0.3, -0.2, 4.0]])
    scaling = AffineMap.of_matrix([0.0, 5.0, 0.0], matrix)
    kernel = SquaredExponential(1.0, [1.0, 2.0])
    return one_output(kernel, ZeroMean(), scaling, learning="every_sample")


def nothing_learned():
    """Return models of two outputs with a linear part that have seen nothing."""
    gp = OnlineGP(KERNEL, noise_variance=1e-3, budget=5, learning="every_sample")
    models = joint_model_with_linear_parts().models
    return JointModel(tuple(replace(model, gp=gp.copy()) for model in models))


MODELS = {
    "stored points, nested kernels": one_output,
    "limits, constant mean, bands": lambda: replace(
        one_output(Matern32(0.7, [1.0, 0.5, 2.0]), ConstantMean(0.3)),
        limits=(0.3, 0.5),
        bands=((1, 1.4), (10, 2.0)),
    ),
    "combined features": combined_features,
    "no inputs": lambda: one_output(
        lags={"outputs": {"y": [1, 2, 4]}, "inputs": {}, "predict": "value"}
    ),
    "static": lambda: one_output(
        lags={"outputs": {"y": []}, "inputs": {"u": [0], "v": [0], "w": [0]}, "predict": "value"}
    ),
    "two outputs": lambda: joint_model("change"),
    "linear part": lambda: joint_model_with_linear_parts(n_updates=60, predict="change", gate=4.0),
    "nothing learned": nothing_learned,
    "one of two outputs": lambda: model_with_linear_part(n_updates=60),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    """One of the models, which no test changes."""
    return MODELS[request.param]()


@pytest.fixture(scope="module")
def compiled(model, tmp_path_factory):
    """The C of the model, which also learns, at its beginning."""
    return CModel(model, tmp_path_factory.mktemp("exported"), learn=True)


@pytest.fixture
def plant(compiled):
    """The C of the model as it was exported."""
    compiled.call("init")
    return compiled


def run_of(narx, n=40, seed=3):
    """Return outputs (n, n_y) and inputs (n, n_u) for some lags."""
    generator = np.random.default_rng(seed)
    y = generator.normal(size=(n, len(narx.output_names))).cumsum(axis=0) * 0.1
    return y, generator.normal(size=(n, len(narx.input_names)))


def row_at(narx, y, u, k):
    """Return the regressor of sample k."""
    columns = {name: y[:, i] for i, name in enumerate(narx.output_names)}
    columns |= {name: u[:, i] for i, name in enumerate(narx.input_names)}
    return np.array([columns[name][k - lag] for name, lag in narx.features])


def next_input(u, k):
    """Return the input of the sample after sample k."""
    return u[min(k + 1, len(u) - 1)]


def assert_same(found, expected, size=1.0):
    """Assert that values agree to 1e-10 of the size of the output."""
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * size)


# --- predictions and simulations ------------------------------------------------------------------


def test_a_regressor_is_predicted_as_by_the_model(model, plant):
    rows = np.array([row_at(plant.narx, *run_of(plant.narx), k) for k in range(5, 25)])
    for x in rows:
        assert plant.predict(x) == CODES["OK"]
        found = plant.results()
        for i, part in enumerate(plant.models):
            expected = part.predict(x[None])
            assert_same(found["mean"][i], expected.mean[0])
            assert_same(found["variance"][i], expected.variance[0])
            noise = part.gp.noise_variance
            std = np.sqrt(part.calibrated(expected.variance[0]) + noise)
            assert_same(found["std"][i], std)
            assert_same(found["high"][i] - found["low"][i], 2 * 1.959963984540054 * std)


def test_a_step_predicts_the_next_output_once_the_lags_are_full(plant):
    narx = plant.narx
    y, u = run_of(narx)
    first = max(narx.max_lag, narx.predict.value == "change")
    for k in range(len(y) - 1):
        code = plant.step(y[k], u[k], next_input(u, k))
        if k + 1 < first:
            assert code == CODES["WAITING"]
            continue
        assert code == CODES["OK"]
        x = row_at(narx, y, u, k + 1)
        for i, part in enumerate(plant.models):
            before = y[k, narx.output_names.index(part.narx.target)]
            expected = narx.predict.to_value(part.predict(x[None]).mean[0], before)
            assert_same(plant.results()["mean"][i], expected)


def test_a_free_run_is_that_of_the_numpy_export(model, plant, tmp_path):
    if len(plant.models) < len(plant.narx.output_names):
        assert "plant_simulate" not in plant.exported.header.read_text()
        return
    names = {}
    exec(export_python(model, tmp_path / "plant.py").read_text(), names)
    y, u = run_of(plant.narx)
    expected = names["simulate"](u, y[:4]).reshape(len(y), -1)
    code, found = plant.simulate(u, y[:4], n=len(y))
    assert code == CODES["OK"]
    own = np.concatenate([y[:4], free_run(JointModel.of(model), u, y[:4]).mean])
    n = int(np.isfinite(own).all(axis=1).sum())  # what comes after has left all bounds
    size = max(1.0, float(np.abs(own[:n]).max()))
    assert_same(found[:n], own[:n], size)
    np.testing.assert_allclose(found[:n], expected[:n], rtol=1e-7, atol=1e-8 * size)


def test_rows_are_learned_with_the_same_decisions(plant):
    rows = np.array([row_at(plant.narx, *run_of(plant.narx, 80), k) for k in range(5, 75)])
    generator = np.random.default_rng(0)
    for i, part in enumerate(plant.models):
        copy = replace(part, gp=part.gp.copy())
        targets = copy.predict(rows).mean + 0.1 * generator.normal(size=len(rows))
        targets[[20, 21, 40]] += 30.0
        record = copy.update_many(rows, targets)
        for k, x in enumerate(rows):
            assert plant.update(x, targets[k], i) == CODES["OK"]
            report = plant.reports_by_output[i]
            for name in ("outlier", "inserted", "accepted", "slot", "removed", "n_points"):
                assert getattr(report, name) == record[k][name], (k, name)
            assert_same(report.mean, record[k]["mean"])
        for x in rows[::7]:
            plant.predict(x)
            expected = copy.predict(x[None])
            np.testing.assert_allclose(plant.results()["mean"][i], expected.mean[0], atol=1e-8)
            variance = plant.results()["variance"][i]
            np.testing.assert_allclose(variance, expected.variance[0], atol=1e-8)


# --- learning -------------------------------------------------------------------------------------

RULES = {
    "mean relevance": (MeanRelevance(), ExceedsMinimum(MeanRelevance()), Always()),
    "in sample": (
        PredictiveEntropy(),
        ExceedsMinimum(PredictiveEntropy(), "in_sample"),
        VarianceThreshold(1e-4),
    ),
    "prior entropy": (PriorEntropy(), AcceptAll(), Novelty(1e-3)),
    "likelihood": (
        MarginalLogLikelihood(),
        ExceedsMinimum(MarginalLogLikelihood()),
        ErrorThreshold(1e-3),
    ),
    "density": (LogPredictiveDensity(), AcceptAll(), Either(1e-4, 1e-3)),
}


EACH_LEARNING = ("stored", "every_sample")
EACH_RULE = [(name, learning) for name in RULES for learning in EACH_LEARNING]


def model_of_rules(name, learning, narx):
    """Return a model that has learned nothing, with these rules."""
    reduction, acceptance, insertion = RULES[name]
    forgets = learning == "stored" and name == "likelihood"
    gp = OnlineGP(
        SquaredExponential(1.0, [3.0] * narx.n_features),
        noise_variance=0.01,
        budget=12,
        reduction=reduction,
        acceptance=acceptance,
        insertion=insertion,
        learning=learning,
        gate=3.0,
        forgetting=300.0 if forgets else None,
    )
    return Model(narx, AffineMap.identity(narx.n_features), ZeroMean(), gp)


@pytest.fixture(scope="module")
def models_of_rules(tmp_path_factory):
    """The C of one model with an output for each set of rules."""
    names = [f"y{i}" for i in range(len(EACH_RULE))]
    models = [
        model_of_rules(*EACH_RULE[i], Narx(dict.fromkeys(names, 1), target=name, predict="value"))
        for i, name in enumerate(names)
    ]
    joint = JointModel(tuple(models))
    return CModel(joint, tmp_path_factory.mktemp("rules"), learn=True)


@pytest.mark.parametrize("i", range(len(EACH_RULE)), ids=[" ".join(rule) for rule in EACH_RULE])
def test_many_points_enter_with_the_same_decisions(i, models_of_rules):
    plant = models_of_rules
    model = replace(plant.models[i], gp=plant.models[i].gp.copy())
    generator = np.random.default_rng(5)
    x = generator.normal(size=(650, len(EACH_RULE)))
    y = np.sin(x[:, 0]) + 0.1 * x[:, 1] + 0.05 * generator.normal(size=len(x))
    y[::60] += 5.0
    record = model.update_many(x, y)
    names = ("outlier", "inserted", "accepted", "slot", "removed")
    for k in range(len(y)):
        plant.update(x[k], y[k], i)
        report = plant.reports_by_output[i]
        assert [getattr(report, name) for name in names] == [record[k][name] for name in names], k
    if isinstance(model.gp.acceptance, AcceptAll):
        assert record["accepted"].sum() > 500  # so often that the factors are renewed
    assert record["removed"].max() >= 0
    for row in x[::50]:
        plant.predict(row)
        expected = model.predict(row[None])
        np.testing.assert_allclose(plant.results()["mean"][i], expected.mean[0], atol=1e-8)
        np.testing.assert_allclose(plant.results()["variance"][i], expected.variance[0], atol=1e-8)


@pytest.fixture(scope="module")
def linear_plant(tmp_path_factory):
    """The C of a joint model with a linear part, which learns."""
    model = joint_model_with_linear_parts(n_updates=60, predict="change")
    return CModel(model, tmp_path_factory.mktemp("linear"), learn=True)


def feed(plant, n, begin=0, function="learn"):
    """Pass samples of the coupled outputs to a function of the plant; return the last code."""
    data = signals(200, seed=8)
    y = np.stack([data["a"], data["b"]], axis=1)
    for k in range(begin, begin + n):
        code = getattr(plant, function)(y[k], data["u"][k], data["u"][k + 1])
    return code


def test_a_loop_that_learns_learns_the_rows_of_the_record(linear_plant):
    plant = linear_plant
    plant.call("init")
    feed(plant, 60)
    copies = [replace(model, gp=model.gp.copy()) for model in plant.models]
    data = signals(200, seed=8)
    at = {name: values[:60] for name, values in data.items()}
    x = copies[0].narx.regressors(at).regressor[-1]
    for i, copy in enumerate(copies):
        rows = copy.narx.regressors(at)
        copy.update_many(rows.regressor, rows.target)
        plant.predict(x)
        np.testing.assert_allclose(plant.results()["mean"][i], copy.predict(x[None]).mean[0])


def test_a_missing_sample_is_predicted_and_what_follows_it_is_not_learned(linear_plant):
    plant = linear_plant
    plant.call("init")
    data = signals(200, seed=8)
    feed(plant, 20)
    predicted = plant.results()["mean"]
    assert plant.missing(data["u"][20], data["u"][21]) == CODES["OK"]
    after_it = plant.results()["mean"]
    feed(plant, 1, begin=21)
    assert not plant.reports()["learned"].any()
    np.testing.assert_allclose(plant.reports()["mean"] + predicted, after_it)
    feed(plant, 4, begin=22)
    assert not plant.reports()["learned"].any()
    feed(plant, 1, begin=26)  # the largest lag of an output is 5
    assert plant.reports()["learned"].all()


def test_a_stored_state_continues_and_a_damaged_one_is_refused(linear_plant):
    plant = linear_plant
    plant.call("init")
    feed(plant, 30)
    plant.call("seal")
    stored = plant.state.copy()
    feed(plant, 20, begin=30)
    expected = plant.results()
    after = plant.state.copy()
    damaged = stored.copy()
    damaged[-9] ^= 1
    assert plant.call("restore", damaged.ctypes) == CODES["BAD_STATE"]
    assert plant.call("restore", np.zeros_like(stored).ctypes) == CODES["BAD_STATE"]
    assert (plant.state == after).all()
    assert plant.call("restore", stored.ctypes) == CODES["OK"]
    feed(plant, 20, begin=30)
    assert (plant.results()["mean"] == expected["mean"]).all()


def test_the_state_of_another_model_is_refused(linear_plant, tmp_path):
    other = joint_model_with_linear_parts(n_updates=61, predict="change")
    plant = CModel(other, tmp_path, learn=True)
    linear_plant.call("init")
    linear_plant.call("seal")
    assert plant.exported.state_bytes == linear_plant.exported.state_bytes
    assert plant.call("restore", linear_plant.state.ctypes) == CODES["BAD_STATE"]


def test_a_reset_keeps_what_was_learned(linear_plant):
    plant = linear_plant
    plant.call("init")
    feed(plant, 40)
    x = plant.models[0].narx.regressors(signals(30)).regressor[-1]
    plant.predict(x)
    before = plant.results()["mean"]
    plant.call("reset")
    plant.predict(x)
    assert (plant.results()["mean"] == before).all()
    assert feed(plant, 1) == CODES["WAITING"]


# --- bad input ------------------------------------------------------------------------------------

BAD_VALUES = {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf, "huge": 1e80}


@pytest.mark.parametrize("bad", BAD_VALUES.values(), ids=BAD_VALUES)
def test_bad_values_are_codes_and_change_nothing(bad, plant):
    narx = plant.narx
    y, u = run_of(narx)
    for k in range(12):
        plant.learn(y[k], u[k], next_input(u, k))
    before = plant.state.copy()
    wrong_y = y[12].copy()
    wrong_y[-1] = bad
    calls = [("step", wrong_y, u[12], u[13]), ("learn", wrong_y, u[12], u[13])]
    if narx.input_names:
        wrong_u = u[12].copy()
        wrong_u[0] = bad
        calls += [("step", y[12], wrong_u, u[13]), ("learn", y[12], wrong_u, u[13])]
        calls.append(("missing", wrong_u, u[13]))
    if plant.has_lag_0:
        wrong_next = u[13].copy()
        wrong_next[-1] = bad
        calls += [("step", y[12], u[12], wrong_next), ("learn", y[12], u[12], wrong_next)]
    x = row_at(narx, y, u, 12)
    wrong_x = x.copy()
    wrong_x[-1] = bad
    calls += [("predict", wrong_x), ("update", wrong_x, 0.1), ("update", x, bad)]
    for name, *arguments in calls:
        assert getattr(plant, name)(*arguments) == CODES["NOT_FINITE"], name
        assert (plant.state == before).all(), name


def test_calls_before_the_lags_are_full_change_nothing(plant):
    narx = plant.narx
    y, u = run_of(narx)
    first = max(narx.max_lag, narx.predict.value == "change")
    for k in range(first - 1):
        plant.step(y[k], u[k], next_input(u, k))
        before = plant.state.copy()
        assert plant.missing(u[k], u[k + 1]) == CODES["NOT_READY"]
        assert (plant.state == before).all()


def test_impossible_sizes_and_positions_are_codes(plant):
    narx = plant.narx
    y, u = run_of(narx)
    x = row_at(narx, y, u, 12)
    assert plant.update(x, 0.1, len(plant.models) - 1) == CODES["OK"]
    before = plant.state.copy()
    for i in (-1, len(plant.models)):
        assert plant.call("update", i, x, 0.1, plant.reports_by_output) == CODES["BAD_SIZE"]
    if len(plant.models) == len(narx.output_names):
        for n_first in (-1, len(y), len(y) + 1):
            arguments = [u] if narx.input_names else []
            code = plant.call("simulate", *arguments, len(y), n_first, y)
            assert code == CODES["BAD_SIZE"]
    assert (plant.state == before).all()


def test_a_sample_that_is_too_far_is_not_learned(tmp_path):
    model = one_output(FLAT, ZeroMean(), noise_variance=1e-6)
    plant = CModel(model, tmp_path, learn=True)
    before = plant.state.copy()
    far = np.array([1e6, 1e6, 1e6])
    with pytest.raises(UserError, match="below that double precision"):
        model.update(far, 0.0)
    assert plant.update(far, 0.0) == CODES["TOO_FAR"]
    assert (plant.state == before).all()


def test_a_missing_output_without_a_model_is_a_code(tmp_path):
    plant = CModel(model_with_linear_part(), tmp_path)
    data = signals(30)
    y = np.stack([data["a"], data["b"]], axis=1)
    for k in range(10):
        plant.step(y[k], data["u"][k], data["u"][k + 1])
    before = plant.state.copy()
    assert plant.missing(data["u"][10], data["u"][11]) == CODES["NO_MODEL"]
    assert (plant.state == before).all()


def test_a_simulation_that_diverges_is_a_code(tmp_path):
    mean = LinearMean([1e20, 0.0, 0.0])
    model = replace(one_output(SquaredExponential(1.0, [1.0] * 3)), mean=mean)
    plant = CModel(model, tmp_path)
    code, _ = plant.simulate(np.zeros(40), [1.0])
    assert code == CODES["DIVERGED"]


# --- compilers, precisions, refusals --------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang"])
def test_the_file_is_clean_for_compilers_and_sanitizers(name, tmp_path):
    cc = compiler(name)
    model = joint_model_with_linear_parts(n_updates=60, predict="change", gate=4.0)
    for learn, precision in ((True, "double"), (False, "float")):
        export_c(model, tmp_path / "plant.c", learn=learn, precision=precision)
        checks = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        run([cc, *STRICT, "-O2", "-c", "plant.c", "-o", "plant.o"], tmp_path)
        run([cc, *STRICT, *checks, "-DSYSID_TEST", "plant.c", "-o", "checked", "-lm"], tmp_path)
        said = run(["./checked"], tmp_path)
        assert "as exported" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gcc", "clang"])
@pytest.mark.parametrize("learn", [False, True], ids=["fixed", "learns"])
def test_a_file_with_few_points_is_clean_too(name, learn, tmp_path):
    cc = compiler(name)
    x, y = samples(5)
    for n in (0, 2):
        gp = OnlineGP(SquaredExponential(1.0, [1.0] * 3), noise_variance=0.01, budget=5)
        if n:
            gp.fit(x[:n], y[:n])
        export_c(replace(one_output(), gp=gp), tmp_path / "plant.c", learn=learn)
        run([cc, *STRICT, "-O2", "-c", "plant.c", "-o", "plant.o"], tmp_path)


@pytest.mark.slow
def test_the_file_runs_on_an_arm_processor_of_32_bits(tmp_path):
    cc = shutil.which("arm-linux-gnueabihf-gcc")
    emulator = shutil.which("qemu-arm")
    if cc is None or emulator is None:
        pytest.skip(
            "there is no arm-linux-gnueabihf-gcc or no qemu-arm: tests/c_compilers installs them"
        )
    model = joint_model_with_linear_parts(n_updates=60, predict="change")
    for precision in ("double", "float"):
        export_c(model, tmp_path / "plant.c", learn=True, precision=precision)
        run([cc, *STRICT, "-static", "-DSYSID_TEST", "plant.c", "-o", "plant", "-lm"], tmp_path)
        said = run([emulator, "./plant"], tmp_path)
        assert "as exported" in said
        assert "other decisions: 0 of" in said or precision == "float"


def test_the_error_of_float_is_measured_and_small(tmp_path):
    model = joint_model_with_linear_parts(n_updates=60)
    plant = CModel(model, tmp_path, precision="float")
    assert plant.exported.deviation is None or 1e-9 < plant.exported.deviation < 1e-3
    x = model.models[0].narx.regressors(signals(30)).regressor[-1]
    plant.predict(x)
    expected = [part.predict(x[None]).mean[0] for part in model.models]
    np.testing.assert_allclose(plant.results()["mean"], expected, atol=1e-3)


def test_the_self_test_finds_a_changed_digit(tmp_path):
    cc = compiler()
    path = export_c(one_output(), tmp_path / "plant.c").source
    text = path.read_text()
    _, begin, rest = text.partition("WHITENED_0[7] = {\n    ")
    first, comma, after = rest.partition(",")
    changed = text.replace(f"{begin}{first}{comma}", f"{begin}{float(first) + 0.01!r}{comma}")
    assert after
    path.write_text(changed)
    run([cc, "-std=c99", "-DSYSID_TEST", "plant.c", "-o", "plant", "-lm"], tmp_path)
    with pytest.raises(AssertionError, match="NOT the exported model"):
        run(["./plant"], tmp_path)


def test_the_sizes_that_are_told_are_those_of_the_compiler(tmp_path):
    cc = compiler()
    model = joint_model_with_linear_parts(n_updates=60)
    for learn, precision in ((True, "double"), (False, "float")):
        exported = export_c(model, tmp_path / "plant.c", learn=learn, precision=precision)
        (tmp_path / "size.c").write_text(
            '#include <stdio.h>\n#include "plant.h"\n'
            'int main(void) { printf("%d", (int)sizeof(plant_state)); return 0; }\n'
        )
        run([cc, "-std=c99", "size.c", "-o", "size"], tmp_path)
        assert int(run(["./size"], tmp_path)) == exported.state_bytes


def test_names_of_files_and_signals_may_be_anything(tmp_path):
    lags = {"outputs": {'2nd *"zone"': 1}, "inputs": {"é ü": [0, 2]}}
    model = one_output(lags=lags)
    cc = compiler()
    source = export_c(model, tmp_path / "my model-2.c").source
    run([cc, *STRICT, "-DSYSID_TEST", source.name, "-o", "plant", "-lm"], tmp_path)
    assert "as exported" in run(["./plant"], tmp_path)


def test_the_loop_of_the_documentation_compiles(tmp_path):
    page = Path(__file__).parents[2].joinpath("docs/how_to/deploy.md").read_text(encoding="utf-8")
    _, _, code = page.partition("```c\n")
    loop = code.partition("```")[0]
    model = one_output(lags={"inputs": {"u": [1, 2]}})
    export_c(model, tmp_path / "plant.c", learn=True)
    main = "int main(void) { begin(); return sample(1.0, 2.0) != 1.0; }\n"
    (tmp_path / "loop.c").write_text(loop + main)
    run([compiler(), *STRICT, "loop.c", "plant.c", "-o", "loop", "-lm"], tmp_path)
    run(["./loop"], tmp_path)


@dataclass(frozen=True)
class OwnKernel(SquaredExponential):
    """A kernel of the user."""


@dataclass(frozen=True)
class OwnMean(ZeroMean):
    """A mean function of the user."""


@dataclass(frozen=True)
class OwnCriterion(MeanRelevance):
    """A criterion of the user."""


REFUSED = {
    "a kernel of the user": (
        lambda: replace(
            one_output(),
            gp=OnlineGP(OwnKernel(1.0, [1.0] * 3), noise_variance=0.1, budget=3),
        ),
        {},
        "OwnKernel cannot be exported as C",
    ),
    "a mean of the user": (
        lambda: replace(one_output(), mean=OwnMean()),
        {},
        "OwnMean cannot be exported as C",
    ),
    "a criterion of the user": (
        lambda: one_output(reduction=OwnCriterion()),
        {"learn": True},
        "OwnCriterion cannot be exported as C",
    ),
    "forgetting": (
        lambda: one_output(learning="every_sample", forgetting=50.0),
        {"learn": True},
        "learn=true: the model of 'y' forgets",
    ),
    "a precision that there is not": (
        one_output,
        {"precision": "half"},
        "precision must be one of double, float, got half",
    ),
}


@pytest.mark.parametrize(("make", "options", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_exported_is_named(make, options, words, tmp_path):
    if JIT_DISABLED and "OwnKernel" in words:
        pytest.skip("a kernel of the user needs the compiler")
    with pytest.raises(UserError, match=words):
        export_c(make(), tmp_path / "plant.c", **options)
    assert not list(tmp_path.iterdir())


def test_the_name_of_the_file_ends_in_c(tmp_path):
    with pytest.raises(UserError, match=r"a name that ends in \.c"):
        export_c(one_output(), tmp_path / "plant.py")


def test_without_a_compiler_the_file_is_written_unchecked(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    exported = export_c(one_output(), tmp_path / "plant.c")
    assert exported.deviation is None
    assert exported.source.exists()
    assert exported.header.exists()


def test_a_criterion_of_the_user_is_no_obstacle_without_learning(tmp_path):
    assert export_c(one_output(reduction=OwnCriterion()), tmp_path / "plant.c").source.exists()


def test_a_kernel_with_a_linear_part_scales_what_the_kernel_scales():
    kernel = WithLinearPart(NESTED, KERNEL.linear)
    assert kernel.scaled(2.0).kernel == NESTED.scaled(2.0)
