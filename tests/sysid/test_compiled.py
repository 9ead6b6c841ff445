"""Compiled functions that are kept in files are compiled again once a source has changed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import sysid
from sysid.compiled import COMPILED_FILES

PACKAGE = Path(sysid.__file__).parent

INNER = """
from numba import njit

@njit
def inner(x):
    return x + {added}
"""

OUTER = """
from pathlib import Path

from numba import njit

from inner import inner
from sysid.compiled import cached_njit, stamps_of

FILES = stamps_of([Path(__file__), Path(__file__).with_name("inner.py")])

@{decorator}
def outer(x):
    return inner(x)

print(outer(1.0), sum(outer.stats.cache_hits.values()))
"""


def run(folder):
    """Return the value of the function in a new process, and whether it was in a file."""
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "PYTHONPATH": str(PACKAGE.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("NUMBA_DISABLE_JIT", None)
    command = [sys.executable, str(folder / "outer.py")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    value, n_hits = done.stdout.split()
    return float(value), int(n_hits) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decorator", "value_after_change"),
    [("cached_njit(watched=FILES)", 1001.0), ("njit(cache=True)", 2.0)],
)
def test_a_change_in_another_file_is_noticed(tmp_path, decorator, value_after_change):
    """Numba itself goes on with the function of before, which is why the decorator exists."""
    (tmp_path / "outer.py").write_text(OUTER.format(decorator=decorator))
    inner = tmp_path / "inner.py"
    inner.write_text(INNER.format(added=1))
    assert run(tmp_path) == (2.0, False)
    assert run(tmp_path) == (2.0, True)
    inner.write_text(INNER.format(added=1000))
    assert run(tmp_path)[0] == value_after_change


def test_all_files_with_compiled_functions_are_watched():
    decorators = "inlined|internal|njit|python_entry|shared|_inline"
    marks = re.compile(rf"^ *@({decorators})\b|njit\(", re.MULTILINE)
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if marks.search(path.read_text(encoding="utf-8"))
    }
    assert found - {"compiled.py"} == set(COMPILED_FILES)
