"""When a model has a linear part, which lags it has, and identifications with one."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sysid import (
    ConstantMean,
    Fixed,
    FreeRun,
    Identification,
    LagWindow,
    LinearMean,
    LinearPart,
    MaximumAPosteriori,
    Narx,
    SecondOrderSpline,
    Settings,
    SquaredExponential,
    StableSpline,
    WithLinearPart,
    ZeroMean,
    choose_lags,
    choose_linear_part,
    identify,
)
from sysid.errors import UserError, UserTypeError

NARX = Narx({"y": 2}, {"u": 2})
STATIC = Narx({"y": []}, {"u": [0]}, predict="value")
FIXED = Fixed(1.0, [1.0] * 4, 0.01)
WITH_LINEAR = NARX.with_linear({"y": 4, "u": 4})
LINEAR_KERNEL = MaximumAPosteriori(
    kernel=WithLinearPart(SquaredExponential(), StableSpline([3, 5]))
)


def simulate(n, seed=0, noise_std=0.1):
    """Return input and output (n,) of a nonlinear system whose output is measured with noise."""
    generator = np.random.default_rng(seed)
    u = np.repeat(generator.normal(size=n // 5 + 1), 5)[:n]
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.9 * y[k - 1] + 0.2 * np.tanh(2 * u[k - 1]) + 0.05 * y[k - 1] * u[k - 1]
    return u, y + noise_std * generator.normal(size=n)


def record_of(n, **options):
    """Return a record of `simulate`."""
    u, y = simulate(n, **options)
    return xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(float(n))})


class TestLags:
    @pytest.mark.parametrize(
        ("narx", "lags", "expected"),
        [
            (NARX, "auto", {"y": range(1, 15), "u": range(1, 15)}),
            (Narx({"y": 8}, {"u": [0, 1]}), "auto", {"y": range(1, 17), "u": range(14)}),
            (Narx({"y": 30}, {"u": [4]}), "auto", {"y": range(1, 21), "u": range(4, 18)}),
            (NARX, 5, {"y": range(1, 6), "u": range(1, 6)}),
            (NARX, {"u": 3}, {"u": range(1, 4)}),
            (Narx({"y": []}, {"u": 3}, predict="value"), 4, {"u": range(1, 5)}),
        ],
        ids=["few lags", "many lags", "long lags", "a number", "one signal", "no lags of y"],
    )
    def test_of_the_linear_part(self, narx, lags, expected):
        settings = Settings(linear_part=LinearPart(lags=lags))
        extended = settings.with_linear_lags(narx)
        assert dict(extended.linear) == {name: tuple(numbers) for name, numbers in expected.items()}
        assert extended.without_linear() == narx
        assert extended.n_linear == sum(map(len, expected.values()))

    def test_features_of_the_linear_part_come_last(self):
        narx = Narx({"y": 1}, {"u": 1}, linear={"y": 2, "u": [1, 3]})
        assert narx.feature_names == (
            "y[k-1]",
            "u[k-1]",
            "y[k-1] (linear)",
            "y[k-2] (linear)",
            "u[k-1] (linear)",
            "u[k-3] (linear)",
        )
        assert narx.max_lag == 3
        assert Narx.from_dict(narx.to_dict()) == narx

    def test_live_rows_are_those_of_the_batch(self):
        narx = Settings().with_linear_lags(NARX)
        u, y = simulate(30)
        window = LagWindow(narx)
        live = window.observe_many(y[:, None], u[:, None])
        batch = narx.regressors({"y": y, "u": u})
        np.testing.assert_array_equal(live.regressor, batch.regressor)

    @pytest.mark.parametrize(
        ("linear", "words"),
        [({"v": 2}, "'v'"), ({"y": [0, 1]}, ">= 1"), ({"u": 0}, "no lags"), ({"u": [-1]}, ">= 0")],
        ids=str,
    )
    def test_lags_that_cannot_be_are_refused(self, linear, words):
        with pytest.raises(UserError, match=words):
            Narx({"y": 1}, {"u": 1}, linear=linear)


class TestSetting:
    @pytest.mark.parametrize(
        "changes",
        [
            {"learning": "stored"},
            {"mean": LinearMean([0.1] * 4)},
            {"training": FIXED},
            {"linear_part": "none"},
        ],
        ids=["stored", "linear mean", "fixed", "none"],
    )
    def test_some_settings_have_none(self, changes):
        assert Settings(**changes).with_linear_lags(NARX) == NARX

    def test_a_static_function_has_none(self):
        assert Settings().with_linear_lags(STATIC) == STATIC

    @pytest.mark.parametrize("mean", [ZeroMean(), ConstantMean(0.5)], ids=lambda mean: str(mean))
    def test_a_constant_mean_leaves_it(self, mean):
        assert Settings(mean=mean).with_linear_lags(NARX).linear

    @pytest.mark.parametrize(
        ("changes", "narx", "words"),
        [
            ({"learning": "stored"}, NARX, "learning=stored"),
            ({"mean": LinearMean([0.1] * 4)}, NARX, "LinearMean"),
            ({"training": FIXED}, NARX, "Fixed"),
            ({}, STATIC, "static"),
        ],
        ids=["stored", "linear mean", "fixed", "static"],
    )
    def test_where_it_is_impossible_a_demanded_one_is_refused(self, changes, narx, words):
        settings = Settings(linear_part="stable_spline", **changes)
        with pytest.raises(UserError, match=words):
            settings.with_linear_lags(narx)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ({"kind": "spline"}, "kind"),
            ({"lags": 0}, "at least 1"),
            ({"lags": 2.5}, "whole number"),
            ({"lags": "many"}, "auto"),
            ({"lags": {"y": -1}}, "at least 1"),
            ({"decay": "exponential"}, "tuned_correlated"),
        ],
        ids=str,
    )
    def test_impossible_values_are_refused(self, arguments, words):
        with pytest.raises(UserError, match=words):
            LinearPart(**arguments)

    def test_other_objects_are_refused(self):
        with pytest.raises(UserTypeError, match="decay"):
            LinearPart(decay=3)
        with pytest.raises(UserTypeError, match="linear_part"):
            Settings(linear_part=3)

    @pytest.mark.parametrize("training", [FreeRun(), FreeRun(folds=2)], ids=["default", "folds"])
    def test_a_training_with_a_kernel_of_its_own_refuses_its_lags(self, training):
        with pytest.raises(UserError, match=r"FreeRun .*without_linear"):
            Identification(WITH_LINEAR, Settings(training=training))

    @pytest.mark.parametrize(
        ("changes", "narx", "words"),
        [
            ({"learning": "stored"}, WITH_LINEAR, r"learning=stored .*without_linear"),
            ({"training": FIXED}, WITH_LINEAR, r"Fixed estimates no linear part.*without_linear"),
            ({"training": LINEAR_KERNEL}, WITH_LINEAR, r"\(3, 5\) lags, the Narx one of \(4, 4\)"),
            ({"training": LINEAR_KERNEL}, NARX, r"\(3, 5\) lags, but the Narx only 4 features"),
        ],
        ids=["stored", "fixed", "other lags", "no lags"],
    )
    def test_settings_that_do_not_fit_the_lags_are_refused_before_anything_is_learned(
        self, changes, narx, words
    ):
        with pytest.raises(UserError, match=words):
            Identification(narx, Settings(**changes))

    def test_none_takes_the_lags_of_a_linear_part_away(self):
        assert Settings(linear_part="none").with_linear_lags(WITH_LINEAR) == NARX
        assert Settings().with_linear_lags(WITH_LINEAR) == WITH_LINEAR

    def test_lags_of_an_unknown_signal_are_refused(self):
        settings = Settings(linear_part=LinearPart(lags={"v": 3}))
        with pytest.raises(UserError, match="'v'"):
            settings.with_linear_lags(NARX)


def identify_stream(n=700, narx=NARX, block=None, seed=0, **changes):
    """Return the identification of a stream, and the record of its samples."""
    u, y = simulate(n, seed)
    settings = Settings(budget=30, **changes)
    extended = settings.with_linear_lags(narx)
    identification = Identification(extended, settings)
    rows = extended.regressors({"y": y, "u": u})
    records = []
    step = len(rows.target) if block is None else block
    for begin in range(0, len(rows.target), step):
        part = slice(begin, begin + step)
        records.append(identification.observe_many(rows.regressor[part], rows.target[part]))
    return identification, np.concatenate(records)


class TestIdentification:
    def test_a_model_has_the_linear_part_of_its_lags(self):
        identification, _ = identify_stream(linear_part=LinearPart(decay="second_order"))
        gp = identification.require_model().gp
        assert gp.n_linear == 28
        assert gp.kernel.linear.differenced == (0,), "the change of y is predicted"
        assert gp.kernel.linear.decay == SecondOrderSpline()

    def test_a_target_that_is_a_value_is_not_differenced(self):
        identification, _ = identify_stream(narx=Narx({"y": 2}, {"u": 2}, predict="value"))
        assert identification.require_model().gp.kernel.linear.differenced == ()

    @pytest.mark.parametrize("block", [1, 37])
    def test_samples_one_by_one_give_the_bits_of_many_at_once(self, block):
        _, record = identify_stream(gate="none")
        in_blocks, record_of_blocks = identify_stream(block=block, gate="none")
        for name in record.dtype.names:
            np.testing.assert_array_equal(record_of_blocks[name], record[name], err_msg=name)
        assert in_blocks.adaptation.estimates, "hyper-parameters are estimated again"

    def test_past_noise_is_averaged_out(self):
        """The noise sits in the lags; two of them cannot tell it from the signal.

        Single streams scatter between 0.65 and 1: the geometric mean of several counts.
        """
        ratios = []
        for seed in range(8):
            errors = {}
            for linear_part in ("none", "auto"):
                identification, _ = identify_stream(n=2000, seed=seed, linear_part=linear_part)
                model = identification.require_model()
                u, y = simulate(3000, seed=100 + seed)
                rows = model.narx.regressors({"y": y, "u": u})
                error = model.predict(rows.regressor).mean - rows.target
                errors[linear_part] = np.mean(error[-1000:] ** 2)
            ratios.append(errors["auto"] / errors["none"])
        assert np.exp(np.mean(np.log(ratios))) < 0.9

    def test_all_lags_of_a_signal_have_one_scale(self):
        identification, _ = identify_stream()
        scale = identification.require_model().scaling.scale
        assert len(set(scale[4:18])) == 1
        assert len(set(scale[18:32])) == 1
        assert len(set(scale[:2])) == 2

    def test_a_signal_that_never_moves_has_no_coefficients(self):
        _, y = simulate(400)
        narx = Settings().with_linear_lags(NARX)
        rows = narx.regressors({"y": y, "u": np.full(400, 3.0)})
        identification = Identification(narx, Settings(budget=20))
        identification.observe_many(rows.regressor, rows.target)
        gp = identification.require_model().gp
        theta = gp.kernel.linear.root() @ gp.state()["linear"]
        assert np.abs(theta[:14]).max() > 0
        assert np.abs(theta[14:]).max() < 1e-12

    def test_a_wrong_measurement_is_replaced_among_all_lags(self):
        """A gross error of the output must not enter the lags of the linear part either."""
        u, y = simulate(700, noise_std=0.01)
        spoilt = y.copy()
        spoilt[500] += 3.0
        predicted = {}
        for name, output in {"measured": y, "spoilt": spoilt}.items():
            narx = Settings().with_linear_lags(NARX)
            identification = Identification(narx, Settings(budget=30))
            rows = narx.regressors({"y": output, "u": u})
            record = identification.observe_many(rows.regressor, rows.target)
            previous = np.concatenate([[0.0], output])[rows.sample]
            predicted[name] = record["mean"] + previous
        after = slice(501 - 14, 520 - 14)
        difference = predicted["spoilt"][after] - predicted["measured"][after]
        assert np.abs(difference).max() < 0.1

    def test_the_unit_of_the_target_does_not_matter(self):
        """New estimates of the hyper-parameters end at the same place in every unit."""
        settings = Settings()
        narx = settings.with_linear_lags(NARX)
        counts = []
        noise_stds = []
        for unit in (1.0, 1e6):
            u, y = simulate(600, noise_std=0.02)
            rows = narx.regressors({"y": unit * y, "u": u})
            identification = Identification(narx, settings)
            identification.observe_many(rows.regressor, rows.target)
            estimates = identification.adaptation.estimates
            counts.append([estimate.n_evaluations for estimate in estimates])
            noise_stds.append(np.sqrt(identification.model.gp.noise_variance) / unit)
        first, second = counts
        assert len(first) == len(second) > 0
        np.testing.assert_allclose(first, second, atol=2)
        assert noise_stds[1] == pytest.approx(noise_stds[0], rel=0.01)

    def test_two_outputs_share_their_lags(self):
        lags = {"outputs": {"y": 2, "z": 1}, "inputs": {"u": 1}}
        extended = [Settings().with_linear_lags(Narx(**lags, target=name)) for name in "yz"]
        assert extended[0].features == extended[1].features


def noisy_line(n=600):
    """Return a record of a linear system whose output is measured with much noise."""
    generator = np.random.default_rng(0)
    u = generator.normal(size=n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.9 * y[k - 1] + 0.5 * u[k - 1]
    measured = y + 0.3 * generator.normal(size=n)
    return xr.Dataset({"y": ("time", measured), "u": ("time", u)}, {"time": np.arange(float(n))})


def curved_and_short(n=200):
    """Return a short record of a system that is far from linear, with little noise."""
    generator = np.random.default_rng(1)
    u = generator.uniform(-2, 2, size=n)
    y = np.zeros(n)
    for k in range(1, n):
        y[k] = 0.3 * y[k - 1] + np.sin(2 * u[k - 1]) + 0.5 * np.cos(3 * y[k - 1])
    measured = y + 0.02 * generator.normal(size=n)
    return xr.Dataset({"y": ("time", measured), "u": ("time", u)}, {"time": np.arange(float(n))})


class TestRecords:
    @pytest.mark.slow
    def test_the_lags_and_the_linear_part_are_chosen_by_held_out_error(self):
        choice = choose_lags(noisy_line(), "y", ["u"], max_order=2)
        scored = [row for row in choice.tried if "model" in row]
        best = min(min(row["model"], row["with_linear_part"]) for row in scored)
        chosen = next(row for row in choice.tried if "chosen" in row)
        assert choice.narx.linear, "with this noise, a long memory pays"
        assert chosen["with_linear_part"] <= 1.01 * best
        assert "model with a linear part" in str(choice)

    @pytest.mark.slow
    def test_a_demanded_linear_part_is_taken_although_it_does_not_help(self):
        record = curved_and_short()
        free = choose_lags(record, "y", ["u"], max_order=1)
        assert not free.narx.linear
        settings = Settings(linear_part="stable_spline")
        demanded = choose_lags(record, "y", ["u"], max_order=1, settings=settings)
        assert demanded.narx.linear

    @pytest.mark.parametrize(
        "choose",
        [
            lambda record, settings: choose_lags(
                record, "y", ["u"], max_order=1, settings=settings
            ),
            lambda record, settings: choose_linear_part(record, NARX, settings),
        ],
        ids=["choose_lags", "choose_linear_part"],
    )
    def test_given_lags_that_are_longer_than_the_record_are_refused(self, choose):
        settings = Settings(linear_part=LinearPart(lags=300))
        with pytest.raises(UserError, match=r"needs at least 30\d samples per record"):
            choose(record_of(200), settings)

    @pytest.mark.parametrize(
        ("make_record", "helps"), [(noisy_line, True), (curved_and_short, False)]
    )
    def test_given_lags_get_the_linear_part_only_if_it_helps(self, make_record, helps):
        narx = Narx({"y": 1}, {"u": 1})
        chosen = choose_linear_part(make_record(), narx, Settings())
        assert bool(chosen.linear) == helps
        assert chosen.without_linear() == narx

    def test_a_demanded_linear_part_is_not_tried_but_taken(self):
        settings = Settings(linear_part="stable_spline", training=MaximumAPosteriori())
        assert choose_linear_part(record_of(100), NARX, settings).linear

    def test_a_short_record_has_none(self):
        assert choose_linear_part(record_of(60), NARX, Settings()) == NARX

    def test_more_lags_than_samples_are_refused(self):
        settings = Settings(linear_part=LinearPart("stable_spline", lags=300))
        narx = settings.with_linear_lags(NARX)
        with pytest.raises(UserError, match="samples per record"):
            Identification.of_records(record_of(200), narx, settings)

    def test_one_call_decides_about_it(self):
        narx = Narx({"y": 1}, {"u": 1})
        assert identify(noisy_line(), narx, budget=30).model.gp.n_linear
        without = identify(noisy_line(), narx, budget=30, linear_part="none")
        assert not without.model.gp.n_linear


def test_a_model_whose_kernel_has_other_linear_lags_is_refused():
    identification, _ = identify_stream(n=300)
    model = identification.require_model()
    kernel = model.gp.kernel
    linear = replace(kernel.linear, n_lags=[13, 15])
    gp = model.gp.with_hyperparameters(replace(kernel, linear=linear), model.gp.noise_variance)
    with pytest.raises(UserError, match="lags of the Narx"):
        replace(model, gp=gp)


def simulate_armax(n, seed):
    """Return input, output and innovations (n,) of a linear system with coloured noise (ARMAX)."""
    generator = np.random.default_rng(seed)
    u = generator.normal(size=n)
    e = 0.2 * generator.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        coloured = e[k] + 0.6 * e[k - 1]
        y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1] + coloured
    return u, y, e


@pytest.mark.slow
def test_a_linear_system_is_predicted_almost_as_well_as_possible():
    """No predictor has a smaller error than the innovations; the median of four seeds counts."""
    n_learned = 2000
    ratios = []
    for seed in range(4):
        u, y, e = simulate_armax(6000, seed)
        settings = Settings(budget=30)
        narx = settings.with_linear_lags(NARX)
        rows = narx.regressors({"y": y, "u": u})
        is_learned = rows.sample < n_learned
        identification = Identification(narx, settings)
        identification.observe_many(rows.regressor[is_learned], rows.target[is_learned])
        model = identification.require_model()
        error = model.predict(rows.regressor[~is_learned]).mean - rows.target[~is_learned]
        ratios.append(np.mean(error**2) / np.mean(e[rows.sample[~is_learned]] ** 2))
    assert np.median(ratios) < 1.02
