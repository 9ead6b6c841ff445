"""Hyper-parameters that follow the stream, from the command line to the files."""

import json
import logging

import numpy as np
import pytest
from running import BUDGET, N_INITIAL, SHORT, bits, command, data_of, execute, phases, summary_of

from experiments.summary import _quality_warnings
from sysid import Model

FOLLOWING = ("training=adaptive", *SHORT, "training.interval=10", "training.significance=0.2")


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    return execute(tmp_path_factory.mktemp("followed"), *FOLLOWING)


def test_the_files_tell_every_estimate(followed):
    result, summary, model = data_of(followed, "result"), summary_of(followed), Model.load(followed / "model.nc")
    assert result.sizes["estimate"] == summary["n_estimates"] > 0
    at = result["estimate_sample"].values
    initial, online, _ = phases(result)
    assert online[at].all()
    assert ((at + 1 - initial.sum()) % 10 == 0).all()
    np.testing.assert_array_equal(result["estimate_time"].values, result["time"].values[at])
    assert model.gp.noise_variance == result["estimate_noise_variance"].values[-1]
    assert model.gp.noise_variance == summary["hyperparameters"]["noise_variance"]
    scales = list(summary["hyperparameters"]["kernel"]["length_scales"].values())
    np.testing.assert_allclose(result["estimate_length_scale"].values[-1], scales, rtol=1e-12)
    assert list(summary["hyperparameters"]["kernel"]["length_scales"]) == result["feature"].values.tolist()
    seconds = json.loads(result.attrs["estimate_seconds"])
    assert len(seconds) == summary["n_estimates"]
    assert summary["times"]["adaptation"] == pytest.approx(sum(seconds))


def test_the_statistic_is_that_of_the_stored_predictions(followed):
    """Of the first estimate: the errors so far, by the noise of the training."""
    result, initial = data_of(followed, "result"), N_INITIAL
    last, n = int(result["estimate_sample"][0]), int(result["estimate_n_errors"][0])
    assert n == min(last + 1 - initial, 100)
    window = slice(last + 1 - n, last + 1)
    squares = (result["target"] - result["mean"]).values[window] ** 2
    ours = squares / (result["variance"].values[window] + trained_noise(followed))
    assert result["estimate_statistic"].values[0] == pytest.approx(ours.mean(), rel=1e-9)


def trained_noise(folder):
    """Noise variance of the training alone, from a run whose hyper-parameters stay."""
    execute(folder / "once", *SHORT)
    return Model.load(folder / "once" / "model.nc").gp.noise_variance


def test_the_same_run_gives_the_same_bits(followed, tmp_path):
    again = execute(tmp_path, *FOLLOWING)
    for kind in ("result", "model"):
        assert bits(data_of(again, kind)) == bits(data_of(followed, kind))
    kept = [{k: v for k, v in summary_of(f).items() if k != "times"} for f in (again, followed)]
    assert kept[0] == kept[1]


def test_a_person_is_told(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    execute(tmp_path, *FOLLOWING)
    (line,) = [record.message for record in caplog.records if "estimated anew" in record.message]
    assert line.startswith(f"Hyper-parameters estimated anew {summary_of(tmp_path)['n_estimates']} times in")
    assert line.endswith(" K after")


def test_without_it_nothing_is_said(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    folder = execute(tmp_path, *SHORT)
    assert not [record for record in caplog.records if "estimated anew" in record.message]
    assert not [name for name in data_of(folder, "result").variables if name.startswith("estimate")]
    assert summary_of(folder)["n_estimates"] == 0
    assert "adaptation" not in summary_of(folder)["times"]


def test_advice_names_what_is_not_yet_done():
    bad = {"smse": 1.2, "smse_no_change": 1.0, "coverage_95": 0.5}
    assert all("training=adaptive" in line for line in _quality_warnings(bad))
    assert not any("training=adaptive" in line for line in _quality_warnings(bad, can_follow=False))


def test_a_stream_that_ends_early_is_kept(tmp_path, monkeypatch):
    from experiments.launch import Stopped
    from sysid import Identification

    original, calls = Identification.observe_many, []

    def observe(self, regressors, targets, *, follows=None):
        calls.append(1)
        if len(calls) > N_INITIAL + 45:
            raise KeyboardInterrupt
        return original(self, regressors, targets, follows=follows)

    monkeypatch.setattr(Identification, "observe_many", observe)
    with pytest.raises(Stopped):
        execute(tmp_path, *FOLLOWING)
    summary, result = summary_of(tmp_path), data_of(tmp_path, "result")
    assert summary["partial"] is True
    assert result.sizes["estimate"] == summary["n_estimates"] > 0
    assert Model.load(tmp_path / "model.nc").gp.n_points <= BUDGET


def test_a_bad_value_is_named(tmp_path):
    process = command(tmp_path / "run", "training=adaptive", "training.interval=0", *SHORT)
    assert process.returncode == 1
    assert "interval must be a whole number of at least 1, got 0" in process.stdout + process.stderr
    assert "Traceback" not in process.stderr
