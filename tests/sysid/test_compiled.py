"""The compiled run and the plain Python run of the same code agree.

Run as a script it writes the reports of a fixed stream to a file, which is how the other mode is reached.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from naive import (
    COMPILED,
    CRITERIA,
    INSERTIONS,
    criterion_name,
    insertion_rule,
    matched_and_crossed,
    online_gp,
    random_stream,
)

from sysid import SquaredExponential
from sysid.gp import log_marginal_likelihood
from sysid.online import UpdateReport

DECISIONS = ("inserted", "accepted", "slot", "removed", "n_points")


def fixed_runs():
    """Reports, state and predictions of a fixed stream for every criterion, acceptance and insertion."""
    arrays = {}
    for criterion in CRITERIA:
        for case, acceptance in enumerate(matched_and_crossed(criterion)):
            insertion = insertion_rule(INSERTIONS[case % len(INSERTIONS)], 0.01, 0.1)
            x, y = random_stream(130, 2, seed=case)
            gp = online_gp(2, budget=9, insertion=insertion, acceptance=acceptance, reduction=criterion)
            reports = gp.update_many(x, y)
            name = f"{criterion_name(criterion)}-{case}"
            arrays |= {f"{name}-{field}": getattr(reports, field) for field in UpdateReport._fields}
            gp.reduce_to(gp.n_points - 2)
            arrays |= {f"{name}-state-{key}": value for key, value in gp.state().items()}
            mean, variance = gp.predict(x[:20])
            arrays |= {f"{name}-predicted-mean": mean, f"{name}-predicted-variance": variance}
            arrays[f"{name}-fit"] = online_gp(2, budget=5, reduction=criterion).fit(x[:12], y[:12]).inputs
    likelihood = log_marginal_likelihood(SquaredExponential(1.0, [0.5, 2.0]), 1e-2, x, y)
    return arrays | {"likelihood": np.array(likelihood.value), "gradient": likelihood.gradient}


@pytest.fixture(scope="module")
def both_modes(tmp_path_factory):
    path = tmp_path_factory.mktemp("compiled") / "other.npz"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1" if COMPILED else "0"}
    finished = subprocess.run(
        [sys.executable, str(Path(__file__)), str(path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    with np.load(path) as other:
        return fixed_runs(), dict(other)


def test_the_other_run_was_in_the_other_mode(both_modes):
    assert bool(both_modes[1].pop("compiled")) is not COMPILED
    assert both_modes[0].keys() == both_modes[1].keys()


@pytest.mark.parametrize("criterion", CRITERIA, ids=criterion_name)
def test_compiled_equals_plain(both_modes, criterion):
    here, there = both_modes
    names = [name for name in here if name.startswith(f"{criterion_name(criterion)}-")]
    assert len(names) > 80
    replaced = 0
    for name in names:
        assert here[name].dtype == there[name].dtype, name
        if name.split("-")[-1] in DECISIONS or here[name].dtype.kind != "f":
            np.testing.assert_array_equal(here[name], there[name], err_msg=name)
        else:
            np.testing.assert_allclose(here[name], there[name], rtol=1e-10, atol=1e-10, err_msg=name)
        replaced += np.count_nonzero(here[name] >= 0) if name.endswith("-removed") else 0
    assert replaced > 100


def test_likelihood_is_the_same(both_modes):
    for name in ("likelihood", "gradient"):
        np.testing.assert_allclose(both_modes[0][name], both_modes[1][name], rtol=1e-10)


if __name__ == "__main__":
    np.savez(sys.argv[1], compiled=COMPILED, **fixed_runs())
