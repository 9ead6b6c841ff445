"""Bad input, a plant that diverges, an interrupt, a full disk: a clear word, and nothing is lost."""

import resource
import signal

import numpy as np
import pytest
from running import DATA, DAYS, SHORT, configured, data_of, execute, phases, summary_of

from experiments import identification
from experiments.launch import Stopped
from experiments.summary import _quality_warnings
from sysid import MaximumLikelihood, Model, store

ENDS = {"initial": 10, "online": 60, "validation": 24 * 4 * DAYS // 2 + 30}  # samples


@pytest.mark.parametrize(
    ("phase", "error"),
    [
        ("initial", KeyboardInterrupt()),
        ("online", KeyboardInterrupt()),
        ("online", ArithmeticError("the plant exploded")),
        ("validation", ArithmeticError("the plant exploded")),
    ],
    ids=repr,
)
def test_a_run_that_ends_early_is_the_beginning_of_the_whole_one(phase, error, finished, monkeypatch, tmp_path):
    original = identification.live_source

    def ending(samples):
        for k, sample in enumerate(samples):
            if k == ENDS[phase]:
                raise error
            yield sample

    def source(config):
        live = original(config)
        live.simulation.samples = ending(live.simulation.samples)
        return live

    monkeypatch.setattr(identification, "live_source", source)
    error.__traceback__ = None
    with pytest.raises((Stopped, ArithmeticError)) as caught:
        execute(tmp_path, *SHORT)
    interrupt = isinstance(error, KeyboardInterrupt)
    assert getattr(caught.value, "exit_code", None) == (130 if interrupt else None), "a bug keeps its traceback"
    summary, part, whole = summary_of(tmp_path), data_of(tmp_path, "result"), data_of(finished, "result")
    initial, online, after = (int(mask.sum()) for mask in phases(part))
    assert (initial, online, after) == (summary["n_initial"], summary["n_seen"], summary["n_validation"])
    assert initial + online + after == ENDS[phase] - 3
    assert data_of(tmp_path, "trajectory").sizes["time"] == ENDS[phase]
    assert (online > 0, after > 0) == (phase != "initial", phase == "validation")
    assert (summary["smse"] is None) == (phase != "validation")
    names = set(DATA) - ({"model"} if phase == "initial" else set())
    assert {path.stem for path in tmp_path.glob("*.nc")} == names
    assert all(data_of(tmp_path, name).attrs["partial"] == 1 for name in names)
    for name in part.data_vars:
        np.testing.assert_array_equal(part[name], whole[name].values[: part.sizes["sample"]])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), np.linalg.LinAlgError("not positive definite")], ids=repr)
def test_a_failing_training_keeps_the_trajectory(error, monkeypatch, tmp_path):
    def failing(self, inputs, targets, seed):
        raise error

    monkeypatch.setattr(MaximumLikelihood, "train", failing)
    with pytest.raises((Stopped, np.linalg.LinAlgError)):
        execute(tmp_path, *SHORT)
    assert data_of(tmp_path, "trajectory").sizes["time"] > 10
    assert summary_of(tmp_path)["partial"] is True


def test_files_that_cannot_be_written_are_named_and_lose_nothing_else(finished, tmp_path):
    """Files may not grow beyond a limit that the summary, the model and the figures keep."""
    longer = (*SHORT, f"duration={8 * DAYS}d")
    sizes = {path.name: path.stat().st_size for path in execute(tmp_path / "free", *longer).iterdir()}
    kept, lost = {"summary.json", "model.nc"}, {"trajectory.nc", "narx.nc", "result.nc"}
    limit = (max(sizes[name] for name in kept) + min(sizes[name] for name in lost)) // 2
    assert max(sizes[name] for name in kept) < limit < min(sizes[name] for name in lost), sizes
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        with pytest.raises(store.StoreError, match="File too large") as caught:
            execute(tmp_path / "full", *longer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert all(str(tmp_path / "full" / name) in str(caught.value) for name in lost)
    assert {path.name for path in (tmp_path / "full").iterdir()} == kept
    assert Model.load(tmp_path / "full" / "model.nc").gp.n_points == 60
    assert summary_of(tmp_path / "full")["partial"] is False
    with pytest.raises(store.StoreError) as caught:  # a folder that vanishes
        identification.run(configured(*SHORT), tmp_path / "gone")
    for name in ("summary.json", *(f"{kind}.nc" for kind in DATA)):
        assert str(tmp_path / "gone" / name) in str(caught.value)


def test_a_bad_model_is_called_bad():
    poor, band = "no better than no change", "the 95 % band covers "
    cases = [(0.3, 0.95, []), (1.2, 0.95, [poor]), (0.3, 0.6, [f"{band}60.0 %"]), (0.99, 1.0, [poor, f"{band}100.0 %"])]
    for smse, coverage, expected in cases:
        summary = {"smse": smse, "smse_no_change": 1.0, "coverage_95": coverage}
        for can_follow in (True, False):
            found = _quality_warnings(summary, can_follow=can_follow)
            assert all(words in line for words, line in zip(expected, found, strict=True))
            assert all(("training=adaptive" in line) == can_follow for line in found)
