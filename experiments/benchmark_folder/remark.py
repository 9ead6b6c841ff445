"""What the scores of a benchmark tell about it, in sentences."""

from collections.abc import Mapping
from typing import Any

from experiments.benchmark_folder.baselines.arx import Arx
from experiments.benchmark_folder.baselines.contestant import Contestant
from experiments.benchmark_folder.baselines.online_gp import OnlineGp

AS_GOOD = 1.05  # largest ratio of two errors that count as equal
BY_CHANCE = (
    "by chance: these records are few against their noise; for a fair comparison raise realisations.test, or shorten "
    "the test"
)
BY_THE_INPUT = "which can be: in closed loop the recorded input tells what the noise did"


def nearly_linear(scores: Mapping[str, Any], contestants: Mapping[str, Contestant]) -> list[str]:
    """A note for each output of which a linear model predicts as well as the online GP, in every task."""
    linear = [name for name, contestant in contestants.items() if isinstance(contestant, Arx)]
    gp = [name for name, contestant in contestants.items() if isinstance(contestant, OnlineGp)]
    if not linear or not gp:
        return []
    notes = []
    for output in scores["one_step"][linear[0]]:
        tasks = [task for task in ("one_step", "free_run") if output in scores[task][linear[0]]]
        best = [[_least(scores[task], names, output) for names in (linear, gp)] for task in tasks]
        if all(a <= AS_GOOD * b and a < float("inf") for a, b in best):
            notes.append(
                f"Linear ARX reaches the level of the online GP for `{output}`: the system is nearly linear at this "
                "amplitude, or noise hides the rest; for a nonlinear benchmark raise the amplitude or lower the noise"
            )
    return notes


def below_the_floor(scores: Mapping[str, Any], labels: Mapping[str, str], *, is_open_loop: bool) -> list[str]:
    """A note for each baseline, by its label, that does better in free run than the true system is expected to."""
    free_run, notes = scores["free_run"], []
    reason = BY_CHANCE if is_open_loop else BY_THE_INPUT
    for model, label in labels.items():
        for output, found in free_run[model].items():
            floor = free_run["noise_floor"][output]["rmse"]
            if floor is not None and found["rmse"] is not None and found["rmse"] < floor / AS_GOOD:
                notes.append(f"The free run of {label} for `{output}` lies below the noise floor, {reason}")
    return notes


def _least(scores: Mapping[str, Any], names: list[str], output: str) -> float:
    found = [scores[name][output]["rmse"] for name in names]
    return min(float("inf") if error is None else float(error) for error in found)
