"""A run says when its model is no good, and keeps what it has when it ends early."""

import json
import os
import signal

import numpy as np
import pytest
from running import SHORT, execute

from experiments.interrupt import deferred_interrupt
from experiments.summary import _quality_warnings
from sysid import Identification, OnlineGP, SquaredExponential
from sysid.gp.dictionary import REFRESH_INTERVAL
from sysid.store import read


def summary_of(folder):
    return json.loads((folder / "summary.json").read_text())


def test_ctrl_c_waits_for_the_end_of_the_block():
    done = []

    def write():
        with deferred_interrupt():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["written"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_unexpected_error_keeps_its_type_and_the_results(monkeypatch, tmp_path):
    original, count = Identification.observe_many, []

    def failing(self, regressors, targets, *, follows=None):
        count.append(1)
        if len(count) > 70:
            raise TypeError("a mistake in somebody's criterion")
        return original(self, regressors, targets, follows=follows)

    monkeypatch.setattr(Identification, "observe_many", failing)
    with pytest.raises(TypeError, match="somebody's criterion"):
        execute(tmp_path, *SHORT)
    assert summary_of(tmp_path)["partial"] is True
    assert read(tmp_path / "result.nc", kind="result").sizes["sample"] == 70
    assert read(tmp_path / "trajectory.nc", kind="trajectory").sizes["time"] > 70


@pytest.mark.parametrize(
    ("smse", "coverage", "said"),
    [
        (0.3, 0.95, []),
        (1.2, 0.95, ["no better than no change"]),
        (0.3, 0.6, ["the 95 % band covers 60.0 %"]),
        (0.99, 1.0, ["no better than no change", "the 95 % band covers 100.0 %"]),
    ],
)
def test_a_bad_model_is_called_bad(smse, coverage, said):
    found = _quality_warnings({"smse": smse, "smse_no_change": 1.0, "coverage_95": coverage})
    assert len(found) == len(said)
    assert all(words in line for words, line in zip(said, found, strict=True))


def test_a_stream_that_teaches_nothing_is_named(tmp_path):
    summary = summary_of(execute(tmp_path, *SHORT, "insertion.error_threshold=1e3"))
    assert summary["n_inserted"] == 0
    assert any("no sample asked for a place" in warning for warning in summary["warnings"])


@pytest.mark.parametrize("predict", ["change", "value"])
def test_no_change_means_the_same_for_both_targets(predict, tmp_path):
    folder = execute(tmp_path, *SHORT, f"narx.predict={predict}")
    result = read(folder / "result.nc", kind="result")
    expected = np.zeros(result.sizes["sample"]) if predict == "change" else result["previous"].values
    np.testing.assert_array_equal(result["unchanged"].values, expected)


def test_scheduled_renewals_are_counted_apart_from_repairs():
    generator = np.random.default_rng(0)
    gp = OnlineGP(SquaredExponential(1.0, [1.0]), noise_variance=0.01, budget=4)
    n = 2 * REFRESH_INTERVAL + 1
    gp.update_many(generator.normal(size=(n, 1)), generator.normal(size=n))
    assert (gp.repairs["renewals"], gp.repairs["refactorisations"]) == (2, 0)
