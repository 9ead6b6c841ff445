"""Searches: what they ask for, what they make of the results, that nothing is lost or asked twice,
what they refuse.
"""

import json
import shlex
import statistics
import sys
from importlib.util import find_spec

import pandas as pd
import pytest
from omegaconf import OmegaConf

import helpers.searches as searches
from experiments.collect.figures import find_front
from experiments.sweeps.engines import InProcess
from experiments.sweeps.search import Settings, objective, space_of
from helpers.commands import REFUSALS
from helpers.searches import (
    BEST_THRESHOLD,
    CONF,
    THRESHOLD_RANGE,
    read_search,
    read_search_files,
    read_trials,
    run_search,
    summary_at,
)

if not find_spec("optuna"):  # an import costs every worker seconds
    pytest.skip("needs the extra optuna", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
RANDOM = "hydra.sweeper.sampler=optuna.samplers.RandomSampler"
#: from the second trial on, trials depend on the results of those before
LEARNING = "hydra.sweeper.sampler={_target_: optuna.samplers.TPESampler, n_startup_trials: 1, multivariate: true}"
FIVE = (
    "insertion.error_threshold=range(0,0.5,0.1)",
    "budget=range(20,80,20)",
    LEARNING,
    "hydra.sweeper.n_jobs=2",
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Folder of a search of five trials, two at a time."""
    folder = tmp_path_factory.mktemp("undisturbed") / "search"
    assert run_search(folder, *FIVE, n_trials=5).code == 0
    assert len(searches.runs) == 5
    return folder


# --- what is searched


def test_notation_of_a_parameter(loader):
    for line, distribution, values in (
        (
            "x=interval(0.5,2)",
            {"low": 0.5, "high": 2.0, "log": False},
            {0.5: 0.5, 1.23456789: 1.23457},
        ),
        (
            "x=tag(log, interval(0.001,1))",
            {"low": 0.001, "high": 1.0, "log": True},
            {0.00123456789: 0.00123457},
        ),
        (
            "x=tag(log, int(interval(1,100)))",
            {"low": 1, "high": 100, "log": True},
            {7: 7},
        ),
        ("x=range(20,200,20)", {"low": 20, "high": 180, "step": 20}, {20: 20}),
        ("x=range(3,0,-1)", {"low": 1, "high": 3, "step": 1}, {3: 3}),
        (
            "x=range(0,0.5,0.1)",
            {"low": 0.0, "high": 0.4, "step": 0.1},
            {0.1 + 0.2: 0.3},
        ),
        ("+x=choice(1,2)", {"choices": ("1", "2")}, {"2": "2"}),
        (
            "reduction=prior_entropy,mean_relevance",
            {"choices": ("prior_entropy", "mean_relevance")},
            {},
        ),
    ):
        (parameter,) = space_of([line, "budget=50"], [], loader).parameters
        made = parameter.distribution
        assert {name: getattr(made, name) for name in distribution} == distribution, line
        for chosen, value in values.items():
            assert parameter.value(chosen) == value
            assert type(parameter.value(chosen)) is type(value)
        key = line.partition("=")[0]
        corners = list(space_of([line, "budget=50"], [], loader).corners())
        assert corners[-1] == ["budget=50", f"{key}={parameter.extremes[-1]}"]


def test_later_overrides_win_and_averaged_ones_are_multiplied(loader):
    lines = [
        "budget=10,20",
        "seed=range(0,2)",
        "budget=range(20,50,10)",
        "a=1",
        "b=x,y",
        "a=2",
    ]
    space = space_of(lines, ["seed", "b"], loader)
    assert [parameter.key for parameter in space.parameters] == ["budget"]
    assert space.swept == ("budget", "seed", "b")
    assert (space.n_jobs, space.n_combinations) == (4, 3)
    expected = [["a=2", "budget=30", f"seed={seed}", f"b={b}"] for seed in (0, 1) for b in "xy"]
    assert space.jobs({"budget": 30}) == expected


def test_settings_are_those_of_the_configuration():
    """Those that are refused: refusals.yaml."""
    file = OmegaConf.to_container(OmegaConf.load(CONF / "hydra" / "sweeper" / "optuna.yaml"))
    settings = {
        name: value for name, value in file.items() if not name.startswith("_") and name != "params"
    }
    assert Settings(**settings) == Settings()


def test_objectives_in_a_summary():
    summary = {
        "smse": 0.5,
        "nlpd": None,
        "times": {"loop": 2},
        "free_run": None,
        "target": "y",
        "flow": {"smse": 0.1},
    }
    expected = {
        "smse": 0.5,
        "times.loop": 2.0,
        "flow.smse": 0.1,
        "nlpd": None,
        "free_run.rmse": None,
    }
    assert {name: objective(summary, name) for name in expected} == expected
    assert objective({"smse": float("nan")}, "smse") is None
    for name, nearest in (
        ("times.lop", "times.loop"),
        ("target", "smse"),
        ("smse.x", "smse"),
        ("times", "times.loop"),
    ):
        with pytest.raises(ValueError, match=f"no number '{name}'.*{nearest}"):
            objective(summary, name)


# --- a search from end to end


def test_finds_the_best_and_says_how_to_repeat_it(tmp_path):
    folder = tmp_path / "search"
    told = run_search(folder, THRESHOLD_RANGE, LEARNING, n_trials=12)
    assert told.code == 0
    rows = read_trials(folder)
    found = read_search(folder)
    assert [row["trial"] for row in rows] == [str(number) for number in range(12)]
    for row in rows:
        threshold = float(row["insertion.error_threshold"])
        assert float(row["smse"]) == summary_at(threshold, 100, 0)["smse"]
        assert row["state"] == "done"
    (best,) = found["best"]
    assert best["objectives"]["smse"] == min(float(row["smse"]) for row in rows)
    assert abs(best["parameters"]["insertion.error_threshold"] - BEST_THRESHOLD) < 0.05
    command = shlex.split(best["command"])
    jobs = json.loads((folder / "sweep.json").read_text())["jobs"]
    assert jobs[best["jobs"][0]]["overrides"] == command[1:]
    assert told.out.startswith("Search with up to 12 jobs")
    assert (told.out.splitlines()[-1].strip(), told.err) == (best["command"], "")


def test_same_search_same_trials_in_whatever_order_jobs_end_another_seed_others(
    monkeypatch, tmp_path, undisturbed
):
    again = tmp_path / "again"
    other = tmp_path / "other"
    run = InProcess.run
    monkeypatch.setattr(InProcess, "run", lambda self, jobs: run(self, list(reversed(jobs))))
    assert run_search(again, *FIVE, n_trials=5).code == 0
    assert read_search_files(again) == read_search_files(undisturbed)
    assert run_search(other, *FIVE, "hydra.sweeper.seed=1", n_trials=5).code == 0
    assert read_trials(other) != read_trials(undisturbed)


def test_interrupted_search_goes_on_and_more_trials_go_further(monkeypatch, tmp_path, undisturbed):
    folder = tmp_path / "search"
    after = 4
    monkeypatch.setattr(searches, "interrupted_after", after)
    told = run_search(folder, *FIVE, n_trials=5)
    assert (told.code, "not run" in told.out) == (130, True)
    monkeypatch.setattr(searches, "interrupted_after", None)
    assert f"5 jobs: 5 done ({after - 1} before)" in run_search(folder, *FIVE, n_trials=5).out
    assert len(searches.runs) == 5 - (after - 1)
    assert read_search_files(folder) == read_search_files(undisturbed)
    more = tmp_path / "more"
    assert run_search(more, THRESHOLD_RANGE, LEARNING, n_trials=3).code == 0
    assert run_search(more, THRESHOLD_RANGE, LEARNING, n_trials=5).code == 0
    assert len(searches.runs) == 2
    assert run_search(tmp_path / "at_once", THRESHOLD_RANGE, LEARNING, n_trials=5).code == 0
    assert read_search_files(more) == read_search_files(tmp_path / "at_once")


def test_median_over_what_is_averaged_over(tmp_path):
    folder = tmp_path / "search"
    assert (
        run_search(
            folder, THRESHOLD_RANGE, "seed=range(0,3)", "hydra.sweeper.n_jobs=2", n_trials=3
        ).code
        == 0
    )
    assert len(searches.runs) == 9
    for place, row in enumerate(read_trials(folder)):
        threshold = float(row["insertion.error_threshold"])
        assert [seed for *_, seed in searches.runs[3 * place : 3 * place + 3]] == [
            0,
            1,
            2,
        ]
        values = [summary_at(threshold, 100, seed)["smse"] for seed in range(3)]
        assert float(row["smse"]) == statistics.median(values)
        assert row["jobs"] == " ".join(str(3 * place + seed) for seed in range(3))
    command = shlex.split(read_search(folder)["best"][0]["command"])
    assert command[-1] == "seed=0,1,2"


def test_pareto_set_of_two_objectives(tmp_path):
    folder = tmp_path / "search"
    two = (
        "hydra.sweeper.objectives=[smse,free_run.rmse]",
        "hydra.sweeper.direction=[minimize,maximize]",
    )
    told = run_search(
        folder, "insertion.error_threshold=interval(0,0.49)", *two, RANDOM, n_trials=10
    )
    points = {
        int(row["trial"]): (float(row["smse"]), -float(row["free_run.rmse"]))
        for row in read_trials(folder)
    }
    unbeaten = {*find_front(pd.DataFrame(points, ["smse", "fit"]).T, "smse", "fit").index}
    assert 2 < len(unbeaten) < 10
    assert {one["trial"] for one in read_search(folder)["best"]} == unbeaten
    assert f"{len(unbeaten)}, none of which is beaten" in told.out


def test_no_trial_is_run_twice_a_failed_one_costs_only_itself_and_a_search_ends(
    tmp_path,
):
    """Where nothing is left to ask, or the sampler asks for nothing new."""
    folder = tmp_path / "search"
    told = run_search(folder, "budget=range(1,17,4)", RANDOM, "hydra.sweeper.n_jobs=2", n_trials=8)
    assert told.code == 1
    rows = read_trials(folder)
    assert [budget for _, budget, _ in searches.runs] == [int(row["budget"]) for row in rows]
    assert sorted(budget for _, budget, _ in searches.runs) == [1, 5, 9, 13]
    for row in rows:
        assert row["state"] == ("failed" if int(row["budget"]) < 10 else "done")
        assert bool(row["smse"]) == (row["state"] == "done")
        assert ("budget must be at least 10" in row["error"]) == (row["state"] == "failed")
    assert read_search(folder)["n_trials"] == {"done": 1, "failed": 3}
    assert "budget must be at least 10" in told.err
    for words in (
        "4 jobs: 1 done, 3 failed",
        "3 of 4 trials failed",
        "Ended after 4 of 8 trials",
    ):
        assert words in told.out
    fixed = "_target_: optuna.samplers.PartialFixedSampler, fixed_params: {budget: 5}"
    line = f"hydra.sweeper.sampler={{{fixed}, base_sampler: {{_target_: optuna.samplers.RandomSampler, seed: 0}}}}"
    assert (
        "Ended after 1 of 3 trials"
        in run_search(tmp_path / "same", "budget=range(5,50,5)", line, n_trials=3).out
    )
    assert [row["budget"] for row in read_trials(tmp_path / "same")] == ["5"]


# --- what is refused before anything is run


@pytest.mark.parametrize(("overrides", "told"), REFUSALS["search"].items())
def test_refused_before_the_first_job(overrides, told, monkeypatch, tmp_path):
    folder = tmp_path / "search"
    if "pip" in told:
        monkeypatch.setitem(sys.modules, "optuna", None)
    said = run_search(folder, *overrides.split())
    assert (said.code, told in said.err, len(said.err.splitlines())) == (1, True, 1), said
    assert not searches.runs
    assert not [path for path in folder.glob("*") if not path.name.startswith(".")]
