"""Searches: their parameters, their trials, how they go on, and what they refuse."""

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
from helpers.commands import CONF, REFUSALS
from helpers.searches import (
    BEST_THRESHOLD,
    THRESHOLD_RANGE,
    read_search,
    read_search_files,
    read_trials,
    run_search,
    summary_at,
)

if not find_spec("optuna"):  # found without importing it, which takes seconds
    pytest.skip("needs the extra optuna", allow_module_level=True)
pytestmark = pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
RANDOM_SAMPLER = "hydra.sweeper.sampler=optuna.samplers.RandomSampler"
#: from the second trial on, trials depend on the results of those before
LEARNING_SAMPLER = (
    "hydra.sweeper.sampler={_target_: optuna.samplers.TPESampler, "
    "n_startup_trials: 1, multivariate: true}"
)
TWO_JOBS_AT_A_TIME = "hydra.sweeper.n_jobs=2"
LEARNING_SEARCH = (
    "insertion.error_threshold=range(0,0.5,0.1)",
    "budget=range(20,80,20)",
    LEARNING_SAMPLER,
    TWO_JOBS_AT_A_TIME,
)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Folder of a search of five trials, two at a time."""
    folder = tmp_path_factory.mktemp("undisturbed") / "search"
    assert run_search(folder, *LEARNING_SEARCH, n_trials=5).code == 0
    assert len(searches.runs) == 5
    return folder


# --- what is searched

#: an override, settings of its distribution, and values of the parameter by suggested values
PARAMETERS = {
    "interval": (
        "x=interval(0.5,2)",
        {"low": 0.5, "high": 2.0, "log": False},
        {0.5: 0.5, 1.23456789: 1.23457},
    ),
    "logarithmic": (
        "x=tag(log, interval(0.001,1))",
        {"low": 0.001, "high": 1.0, "log": True},
        {0.00123456789: 0.00123457},
    ),
    "logarithmic_whole_numbers": (
        "x=tag(log, int(interval(1,100)))",
        {"low": 1, "high": 100, "log": True},
        {7: 7},
    ),
    "range": ("x=range(20,200,20)", {"low": 20, "high": 180, "step": 20}, {20: 20}),
    "descending_range": ("x=range(3,0,-1)", {"low": 1, "high": 3, "step": 1}, {3: 3}),
    "range_of_fractions": (
        "x=range(0,0.5,0.1)",
        {"low": 0.0, "high": 0.4, "step": 0.1},
        {0.1 + 0.2: 0.3},
    ),
    "choice": ("+x=choice(1,2)", {"choices": ("1", "2")}, {"2": "2"}),
    "options": (
        "reduction=prior_entropy,mean_relevance",
        {"choices": ("prior_entropy", "mean_relevance")},
        {},
    ),
}


@pytest.mark.parametrize(
    ("override", "distribution", "values"), PARAMETERS.values(), ids=PARAMETERS.keys()
)
def test_the_notation_of_a_parameter(override, distribution, values, loader):
    space = space_of([override, "budget=50"], [], loader)
    (parameter,) = space.parameters
    for name, setting in distribution.items():
        assert getattr(parameter.distribution, name) == setting
    for suggested, value in values.items():
        assert parameter.value(suggested) == value
        assert type(parameter.value(suggested)) is type(value)
    key = override.partition("=")[0]
    last_corner = list(space.corners())[-1]
    assert last_corner == ["budget=50", f"{key}={parameter.extremes[-1]}"]


def test_later_overrides_win_and_averaged_ones_are_multiplied(loader):
    overrides = [
        "budget=10,20",
        "seed=range(0,2)",
        "budget=range(20,50,10)",
        "a=1",
        "b=x,y",
        "a=2",
    ]
    space = space_of(overrides, ["seed", "b"], loader)
    assert [parameter.key for parameter in space.parameters] == ["budget"]
    assert space.swept == ("budget", "seed", "b")
    assert space.n_jobs == 4
    assert space.n_combinations == 3
    expected = [["a=2", "budget=30", f"seed={seed}", f"b={b}"] for seed in (0, 1) for b in "xy"]
    assert space.jobs({"budget": 30}) == expected


def test_default_settings_are_those_of_the_configuration():
    """Settings that are refused stand in refusals.yaml."""
    file = OmegaConf.to_container(OmegaConf.load(CONF / "hydra" / "sweeper" / "optuna.yaml"))
    settings = {
        name: value for name, value in file.items() if not name.startswith("_") and name != "params"
    }
    assert Settings(**settings) == Settings()


SUMMARY = {
    "smse": 0.5,
    "nlpd": None,
    "times": {"loop": 2},
    "free_run": None,
    "target": "y",
    "flow": {"smse": 0.1},
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("smse", 0.5),
        ("times.loop", 2.0),
        ("flow.smse", 0.1),
        ("nlpd", None),
        ("free_run.rmse", None),
    ],
)
def test_an_objective_is_a_number_of_a_summary(name, value):
    assert objective(SUMMARY, name) == value


def test_an_objective_that_is_not_a_number_is_missing():
    assert objective({"smse": float("nan")}, "smse") is None


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("times.lop", "times.loop"),
        ("target", "smse"),
        ("smse.x", "smse"),
        ("times", "times.loop"),
    ],
)
def test_an_objective_that_does_not_exist_is_refused(name, nearest):
    with pytest.raises(ValueError, match=f"no number '{name}'.*{nearest}"):
        objective(SUMMARY, name)


# --- a search from end to end


def test_a_search_finds_the_best_and_prints_how_to_repeat_it(tmp_path):
    folder = tmp_path / "search"
    result = run_search(folder, THRESHOLD_RANGE, LEARNING_SAMPLER, n_trials=12)
    assert result.code == 0
    trials = read_trials(folder)
    assert [trial["trial"] for trial in trials] == [str(number) for number in range(12)]
    for trial in trials:
        threshold = float(trial["insertion.error_threshold"])
        assert float(trial["smse"]) == summary_at(threshold, 100, 0)["smse"]
        assert trial["state"] == "done"

    (best,) = read_search(folder)["best"]
    assert best["objectives"]["smse"] == min(float(trial["smse"]) for trial in trials)
    assert abs(best["parameters"]["insertion.error_threshold"] - BEST_THRESHOLD) < 0.05
    jobs = json.loads((folder / "sweep.json").read_text())["jobs"]
    _, *overrides = shlex.split(best["command"])
    assert jobs[best["jobs"][0]]["overrides"] == overrides
    assert result.out.startswith("Search with up to 12 jobs")
    assert result.out.splitlines()[-1].strip() == best["command"]
    assert result.err == ""


@pytest.mark.slow
def test_trials_do_not_depend_on_the_order_in_which_jobs_end(monkeypatch, tmp_path, undisturbed):
    folder = tmp_path / "again"
    run = InProcess.run
    monkeypatch.setattr(InProcess, "run", lambda self, jobs: run(self, list(reversed(jobs))))
    assert run_search(folder, *LEARNING_SEARCH, n_trials=5).code == 0
    assert read_search_files(folder) == read_search_files(undisturbed)


def test_another_seed_of_the_search_gives_other_trials(tmp_path, undisturbed):
    folder = tmp_path / "other"
    assert run_search(folder, *LEARNING_SEARCH, "hydra.sweeper.seed=1", n_trials=2).code == 0
    assert read_trials(folder) != read_trials(undisturbed)[:2]


def test_an_interrupted_search_goes_on_as_if_nothing_had_happened(
    monkeypatch, tmp_path, undisturbed
):
    folder = tmp_path / "search"
    with monkeypatch.context() as context:
        context.setattr(searches, "interrupted_after", 4)
        result = run_search(folder, *LEARNING_SEARCH, n_trials=5)
    assert result.code == 130
    assert "not run" in result.out
    n_finished = 3
    result = run_search(folder, *LEARNING_SEARCH, n_trials=5)
    assert f"5 jobs: 5 done ({n_finished} before)" in result.out
    assert len(searches.runs) == 5 - n_finished
    assert read_search_files(folder) == read_search_files(undisturbed)


@pytest.mark.slow
def test_more_trials_continue_a_search(tmp_path):
    search = (THRESHOLD_RANGE, LEARNING_SAMPLER)
    assert run_search(tmp_path / "continued", *search, n_trials=2).code == 0
    assert run_search(tmp_path / "continued", *search, n_trials=4).code == 0
    assert len(searches.runs) == 2
    assert run_search(tmp_path / "at_once", *search, n_trials=4).code == 0
    assert read_search_files(tmp_path / "continued") == read_search_files(tmp_path / "at_once")


def test_a_trial_counts_by_the_median_over_its_seeds(tmp_path):
    folder = tmp_path / "search"
    search = (THRESHOLD_RANGE, "seed=range(0,3)", TWO_JOBS_AT_A_TIME)
    assert run_search(folder, *search, n_trials=2).code == 0
    assert len(searches.runs) == 6
    for number, trial in enumerate(read_trials(folder)):
        first_job = 3 * number
        seeds = [seed for _, _, seed in searches.runs[first_job : first_job + 3]]
        assert seeds == [0, 1, 2]
        threshold = float(trial["insertion.error_threshold"])
        values = [summary_at(threshold, 100, seed)["smse"] for seed in range(3)]
        assert float(trial["smse"]) == statistics.median(values)
        assert trial["jobs"] == f"{first_job} {first_job + 1} {first_job + 2}"
    command = shlex.split(read_search(folder)["best"][0]["command"])
    assert command[-1] == "seed=0,1,2"


@pytest.mark.slow
def test_two_objectives_have_a_pareto_front(tmp_path):
    folder = tmp_path / "search"
    result = run_search(
        folder,
        "insertion.error_threshold=interval(0,0.49)",
        "hydra.sweeper.objectives=[smse,free_run.rmse]",
        "hydra.sweeper.direction=[minimize,maximize]",
        RANDOM_SAMPLER,
        n_trials=10,
    )
    points = {
        int(trial["trial"]): (float(trial["smse"]), -float(trial["free_run.rmse"]))
        for trial in read_trials(folder)
    }
    table = pd.DataFrame(points, ["smse", "fit"]).T
    front = set(find_front(table, "smse", "fit").index)
    assert 2 < len(front) < 10
    assert {best["trial"] for best in read_search(folder)["best"]} == front
    assert f"{len(front)}, none of which is beaten" in result.out


def test_a_search_ends_when_all_trials_were_run_and_failed_ones_cost_only_themselves(tmp_path):
    """Only four budgets can be tried, and three of them are refused."""
    folder = tmp_path / "search"
    search = ("budget=range(1,17,4)", RANDOM_SAMPLER, TWO_JOBS_AT_A_TIME)
    result = run_search(folder, *search, n_trials=8)
    assert result.code == 1
    trials = read_trials(folder)
    budgets = [budget for _, budget, _ in searches.runs]
    assert budgets == [int(trial["budget"]) for trial in trials]
    assert sorted(budgets) == [1, 5, 9, 13], "a trial was run twice"
    for trial in trials:
        is_done = int(trial["budget"]) >= 10
        assert trial["state"] == ("done" if is_done else "failed")
        assert bool(trial["smse"]) == is_done
        assert ("budget must be at least 10" in trial["error"]) == (not is_done)
    assert read_search(folder)["n_trials"] == {"done": 1, "failed": 3}
    assert "budget must be at least 10" in result.err
    assert "4 jobs: 1 done, 3 failed" in result.out
    assert "3 of 4 trials failed" in result.out
    assert "Ended after 4 of 8 trials" in result.out


def test_a_search_ends_when_its_sampler_suggests_nothing_new(tmp_path):
    folder = tmp_path / "search"
    sampler = (
        "hydra.sweeper.sampler={_target_: optuna.samplers.PartialFixedSampler, "
        "fixed_params: {budget: 5}, "
        "base_sampler: {_target_: optuna.samplers.RandomSampler, seed: 0}}"
    )
    result = run_search(folder, "budget=range(5,50,5)", sampler, n_trials=3)
    assert "Ended after 1 of 3 trials" in result.out
    assert [trial["budget"] for trial in read_trials(folder)] == ["5"]


# --- what is refused before anything is run


@pytest.mark.parametrize(("overrides", "message"), REFUSALS["search"].items())
def test_a_wrong_search_is_refused_before_the_first_job(overrides, message, monkeypatch, tmp_path):
    folder = tmp_path / "search"
    if "pip" in message:
        monkeypatch.setitem(sys.modules, "optuna", None)
    result = run_search(folder, *overrides.split())
    assert result.code == 1, result
    assert message in result.err
    assert len(result.err.splitlines()) == 1, result
    assert not searches.runs
    assert not list(folder.glob("[!.]*"))
