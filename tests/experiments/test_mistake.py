"""Mistakes of a user end in one line; bugs of ours, and of the user's classes, keep their traceback."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments.build import build_one
from experiments.mistake import is_bug_of_ours, is_mistake
from sysid import ErrorThreshold, Narx


def raised(call):
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda: Narx({"y": 0}), True),  # refused by a raise of the toolbox
        (lambda: build_one({"_target_": "sysid.ErrorThreshold", "error_threshold": -1}, "insertion"), True),
        (lambda: build_one({"_target_": "sysid.ErrorThreshold", "threshold": 1}, "insertion"), True),
        (lambda: Path("/no/such/file").read_text(), True),
        (lambda: np.zeros(2) + np.zeros(3), False),
        (lambda: int("x"), False),
    ],
    ids=["refusal", "refused value", "unknown key", "no file", "numpy", "test"],
)
def test_a_refusal_is_a_mistake_and_a_failed_operation_is_none(call, expected):
    assert is_mistake(raised(call)) == expected


def test_a_bug_in_a_constructor_of_ours_is_no_mistake(monkeypatch):
    def broken(self):
        return None + 1

    broken.__globals__["__name__"], name = "sysid.gp.rules", broken.__globals__["__name__"]
    try:
        monkeypatch.setattr(ErrorThreshold, "__post_init__", broken)
        error = raised(lambda: build_one({"_target_": "sysid.ErrorThreshold", "error_threshold": 1}, "insertion"))
        assert isinstance(error, TypeError)
        assert is_bug_of_ours(error)
        assert not is_mistake(error)
    finally:
        broken.__globals__["__name__"] = name


@pytest.mark.parametrize(
    ("override", "hint"),
    [
        ("system=buildin", "did you mean 'building'?"),
        ("budgt=3", "did you mean 'budget'?"),
        ("training.n_inital=3", "did you mean 'training.n_initial'?"),
        ("+training.n_inital=3", "did you mean 'training.n_initial'?"),
    ],
)
def test_a_misspelt_name_gets_the_nearest_one(override, hint, tmp_path):
    command = [sys.executable, "-m", "experiments.identify", override]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert hint in (done.stderr + done.stdout).splitlines()[-1]


def test_modules_in_the_current_folder_are_found_after_ours(tmp_path):
    """A folder of the user's that is called as a package of ours does not hide it."""
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments" / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    (tmp_path / "own_system.py").write_text("from simulators import VanDerPol as Own\n")
    script = "import sys; sys.argv[1:] = {!r}; from experiments.identify import main; main()".format(
        ["system=van_der_pol", "system._target_=own_system.Own", "duration=300samples", "figures=false"]
    )
    command = [sys.executable, "-P", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
