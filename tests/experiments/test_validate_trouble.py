"""Input that does not fit the model: a clear word and nothing written; numbers that deserve a warning: a clear word."""

from dataclasses import replace

import numpy as np
import pytest
from validating import DT, QUICK, csv_file, model, recorded, saved, signals, stored, validate

from experiments.launch import remove_unused
from experiments.validation import assessment, report
from experiments.validation.assessment import plan_cases
from experiments.validation.report import find_outside
from sysid import ConstantMean, Divergence, OnlineGP, SquaredExponential, Validation, forecast
from sysid.store import read, write


@pytest.fixture
def case(tmp_path):
    """A model file, a record, and the overrides that fit."""
    path, record = saved(tmp_path / "model.nc"), csv_file(tmp_path / "test.csv")
    return path, record, [*recorded(path, record), *QUICK]


def refused(folder, *overrides):
    """Message of the error that stops a run; nothing has been written."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        validate(folder, *overrides)
    assert list(folder.iterdir()) == []
    assert isinstance(caught.value, ValueError | TypeError | OSError), caught.value
    return f"{caught.value} {caught.value.__cause__ or ''}"


def test_records_and_models_that_cannot_be_read_or_simulated(case, tmp_path):
    path, record, fitting = case
    content = path.read_bytes()
    csv_file(record, u=np.where(np.arange(50) == 20, np.inf, signals(50, 1)["u"]))
    assert "test.csv" in refused(tmp_path / "run", *fitting)
    csv_file(record)
    path.write_bytes(content[: len(content) // 2])
    assert "model.nc" in refused(tmp_path / "run", *fitting)
    path.write_bytes(content)
    data = read(path, kind="model")
    write(data.assign_attrs(kernel="builtins.list"), path, kind="model")
    assert "model.nc" in refused(tmp_path / "run", *fitting)
    write(data, path, kind="study")
    assert "'study'" in refused(tmp_path / "run", *fitting)
    model(lags={"outputs": {"y": []}, "inputs": {"u": [0]}}, predict="value").save(path)
    assert "static" in refused(tmp_path / "run", *fitting)
    model("y", {"outputs": {"y": 2, "z": 1}, "inputs": {"u": [1]}}).save(path)
    assert "one model for each" in refused(tmp_path / "run", *recorded(path, record, outputs=("y", "z")), *QUICK)


def test_cases_are_every_horizon_after_every_window():
    cases = plan_cases([10, 2], [5, 50], 7)
    assert [tuple(case) for case in cases] == [(h, w) for w in (5, 50) for h in (1, 2, 10, None)]
    assert [tuple(case) for case in plan_cases(3, None, 7)] == [(1, 7), (3, 7), (None, 7)]
    for wrong in ([0], [2.5], [5, 5], "far"):
        with pytest.raises(ValueError, match="whole numbers of samples of at least 1"):
            plan_cases([1], wrong, 7)


def test_divergence_is_told_with_its_time_and_value(case, tmp_path):
    path, _, fitting = case
    saved(path, replace(model(), mean=ConstantMean(400.0)))
    content = validate(tmp_path / "run", *fitting)
    (found,) = [one for one in content["divergences"] if one["horizon"] == "free_run"]
    assert content["free_run"]["rmse"] is None
    assert content["free_run"]["n"] == 48
    assert content["free_run"]["n_diverged"] == 50 - found["sample"]
    assert (found["output"], found["time"]) == ("y", DT * found["sample"])
    warning = next(words for words in content["warnings"] if "diverges" in words)
    assert f"{found['time']:g} s" in warning
    assert f"{found['value']:.4g} V" in warning
    assert "skipped" in content["residuals"]["free_run"]
    measured = stored(tmp_path / "run")["free_run_window_2"]
    assert np.isnan(measured["mean"].values[-1, 0])
    assert content["one_step"]["rmse"] > 100


def test_a_divergence_of_the_uncertainty_alone_is_told(case, tmp_path, monkeypatch):
    def lost(*arguments, propagation=None, **options):
        found = forecast(*arguments, **options)
        diverged = None if propagation is None else Divergence(0, 10, 5.0, "y", 9.0)
        return replace(found, records=tuple(replace(one, diverged=diverged) for one in found.records))

    monkeypatch.setattr(assessment, "forecast", lost)
    warnings = validate(tmp_path / "run", *case[2], "propagation=taylor")["warnings"]
    assert any("the free run of record" in words and "let it diverge, at 5 s" in words for words in warnings)


def test_a_free_run_far_worse_than_one_step_is_told(case, tmp_path):
    path, _, fitting = case
    good = validate(tmp_path / "good", *fitting)
    assert not any("far worse" in words for words in good["warnings"])
    one = model()
    one.gp.fit(one.gp.inputs, np.zeros(one.gp.n_points))
    saved(path, replace(one, mean=ConstantMean(0.05)))  # drifts by 0.05 V at every step
    csv_file(tmp_path / "test.csv", y=0.01 * np.sin(np.arange(50.0)))
    content = validate(tmp_path / "run", *fitting)
    assert content["free_run"]["rmse"] > 3 * content["one_step"]["rmse"]
    (words,) = [words for words in content["warnings"] if "far worse" in words]
    assert f"RMSE {content['free_run']['rmse']:.4g} V against {content['one_step']['rmse']:.4g} V" in words


def test_regressors_outside_the_dictionary_are_told(case, tmp_path):
    csv_file(case[1], u=5 * signals(50, 1)["u"])
    content = validate(tmp_path / "run", *case[2])
    (words,) = [words for words in content["warnings"] if "dictionary" in words and "1 step" in words]
    assert "u[k-1] reaches" in words
    one = model()
    points, low, high = one.scaling.inverse(one.gp.inputs), *one.scaling.inverse(np.sort(one.gp.inputs, 0))[[0, -1], 2]
    n, total, where = find_outside(one, points)
    assert (n, total) == (0, len(points))
    assert "combinations" in where
    far = points.copy()
    far[3, 2] = high + 0.06 * (high - low)
    far[4, 0] = points[:, 0].min() - 0.04 * np.ptp(points[:, 0])
    far[5] = np.nan
    found = f"u[k-1] reaches {far[3, 2]:.4g} A, the stored points {low:.4g} to {high:.4g}"
    assert find_outside(one, far) == (1, len(points) - 1, found)
    centre = one.scaling.inverse(one.gp.inputs.mean(axis=0, keepdims=True))  # between points that say nothing of it
    assert find_outside(one, centre)[0] == 0
    narrow = OnlineGP(SquaredExponential(0.05, (0.05,) * 3), noise_variance=2e-4, budget=14)
    narrow.fit(one.gp.inputs, one.gp.targets)
    assert find_outside(replace(one, gp=narrow), centre)[0] == 1


def test_bands_that_do_not_cover_are_told(case, tmp_path, monkeypatch):
    noisy = signals(50, 1)["y"] + 0.2 * np.random.default_rng(0).normal(size=50)
    csv_file(case[1], y=noisy)
    content = validate(tmp_path / "run", *case[2])
    assert content["one_step"]["coverage_95"] < 0.8
    (words,) = [words for words in content["warnings"] if "do not cover" in words]
    assert "1 step" in words
    assert "free run" in words
    assert "process_noise" not in words  # mean_only has none
    covered = report.cover(Validation(*[0.0] * 7, 0.25, 0.5, 0.75, n=10, window=2))
    assert covered == {50: 25.0, 90: 50.0, 95: 75.0}
    told = validate(tmp_path / "taylor", *case[2], "propagation=taylor")["warnings"]
    assert any("do not cover" in words and "propagation.process_noise=true" in words for words in told)
    for number, (shares, expected) in enumerate(
        (
            ((42.0, 81.0, 86.0), ""),
            ((50.0, 90.0, 84.0), "95 % band 1 step 84.0 %, 95 % band free run 84.0 %"),
            ((30.0, 85.0, 90.0), "50 % band 1 step 30.0 %"),
        )
    ):
        monkeypatch.setattr(report, "cover", lambda score, s=shares: dict(zip((50, 90, 95), s, strict=True)))
        said = [words for words in validate(tmp_path / str(number), *case[2])["warnings"] if "the bands of y" in words]
        assert expected in said[0] if expected else said == []


def test_a_window_shorter_than_the_lags_is_told(case, tmp_path):
    content = validate(tmp_path / "run", *case[2], "windows=[1,2]")
    assert any("window of 1 samples is shorter than the largest lag" in words for words in content["warnings"])
    assert [entry["n_filled"] for entry in content["horizons"]] == [1, 1, 0, 0]


def test_a_folder_that_holds_more_than_hydra_wrote_is_kept(tmp_path):
    for name, kept in (("notes.txt", True), ("validate.log", False)):
        (tmp_path / name / ".hydra").mkdir(parents=True)
        (tmp_path / name / name).write_text("mine")
        remove_unused(tmp_path / name, "validate.log")
        assert (tmp_path / name).exists() == kept
