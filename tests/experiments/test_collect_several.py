"""Several commands in one folder: jobs that do not name a parameter stand at the value of their configuration."""

import json

import numpy as np
import pytest
import yaml
from sweeping import identity, summary_like, write_failure, write_job, write_manifest

from experiments.collection.cells import dataset_of, layout_of
from experiments.collection.gathering import gather
from experiments.collection.job_result import results
from experiments.collection.planning import command_of
from experiments.collection.sweep_folder import read_sweep
from experiments.collection.table import markdown_text
from sysid import store

MEAN = {"_target_": "sysid.MeanRelevance"}
PRIOR = {"_target_": "sysid.PriorEntropy"}
NODES = {"mean_relevance": MEAN, "prior_entropy": PRIOR}
SEEDS = (0, 1)


def entry(number, values):
    overrides = ["system=building", *(f"{key}={value}" for key, value in values.items())]
    return {"number": number, "identity": identity(values), "overrides": overrides, "values": values}


def configured(values):
    """A configuration like that of a job: a budget of 100 and the criterion ``mean_relevance`` if it names no other."""
    node = NODES[values.get("reduction", "mean_relevance")]
    return {"budget": values.get("budget", 100), "seed": values["seed"], "noise": {"std": None}, "reduction": node}


def write_several(folder, planned, configuration=configured, skip=(), fail=()):
    folder.mkdir()
    jobs = [entry(number, values) for number, values in enumerate(planned)]
    write_manifest(folder, jobs, ["seed"])
    for job in jobs:
        text = yaml.safe_dump(configuration(job["values"]))
        if job["number"] in fail:
            write_failure(folder, job, "ValueError: no", configuration=text)
        elif job["number"] not in skip:
            write_job(folder, job, summary_like(job["values"]), configuration=text)
    return folder


def gathered(folder):
    sweep = read_sweep(folder)
    return gather(sweep, results(sweep))


BUDGETS = [{"seed": seed, "budget": budget} for budget in (20, 30, 40) for seed in SEEDS]
PLAIN = [{"seed": seed} for seed in SEEDS]
CRITERION = [{"seed": seed, "reduction": "prior_entropy"} for seed in SEEDS]


def test_jobs_of_four_commands_are_one_grid(tmp_path):
    """The criterion that no job names is that whose file says the same."""
    planned = [*BUDGETS, *PLAIN, *CRITERION]
    found = dataset_of(gathered(write_several(tmp_path / "s", planned, fail=(7,))))
    assert found["smse"].dims == ("seed", "budget", "reduction")
    assert found["budget"].values.tolist() == [20, 30, 40, 100]
    assert found["budget"].dtype.kind == "i"
    assert sorted(found["reduction"].values.tolist()) == ["mean_relevance", "prior_entropy"]
    for number, values in enumerate(planned):
        expected = {"budget": 100, "reduction": "mean_relevance"} | values
        assert found["number"].sel(expected) == number
    assert found.attrs["n_unplanned"] == 6
    assert found.attrs["n_failed"] == 1
    assert "command" not in found.attrs


def test_only_jobs_that_lack_a_key_are_asked(tmp_path, monkeypatch):
    folder = write_several(tmp_path / "s", [*BUDGETS, *PLAIN])
    asked, header = [], store.header
    monkeypatch.setattr(store, "header", lambda path: asked.append(int(path.parent.name)) or header(path))
    gathered(folder)
    assert asked == [6, 7]


def test_an_unfinished_job_takes_what_the_others_agree_in(tmp_path):
    found = dataset_of(gathered(write_several(tmp_path / "a", [*BUDGETS, *PLAIN], skip=(0, 7))))
    assert found["smse"].dims == ("seed", "budget")
    assert found["number"].sel(seed=1, budget=100) == 7

    def by_seed(values):
        return configured(values) | {"budget": values.get("budget", 100 + values["seed"])}

    planned = [*BUDGETS, *PLAIN, {"seed": 2}]
    found = dataset_of(gathered(write_several(tmp_path / "b", planned, by_seed, skip=(8,), fail=(7,))))
    assert found["smse"].dims == ("job",), "they do not agree"
    np.testing.assert_array_equal(found["budget"], [20, 20, 30, 30, 40, 40, 100, 101, np.nan])


@pytest.mark.parametrize(
    ("key", "value", "configuration", "expected"),
    [
        ("noise.std", 0.5, {"noise": {"std": None}}, "null"),
        ("noise.std", 0.5, {"noise": {"std": 0.25}}, 0.25),
        ("noise.std", 0.5, {"noise": {}}, None),
        ("noise.std", 0.5, {"noise": 3}, None),
        ("flag", True, {"flag": False}, "false"),
        ("key", 1, {"key": {"a": 1}}, None),
        ("reduction", "own", {"reduction": {"_target_": "elsewhere.Own"}}, None),
        ("reduction", "prior_entropy", {"reduction": MEAN}, "mean_relevance"),
        ("acceptance", "none", {"acceptance": {"_target_": "sysid.AcceptAll"}}, None),
        ("insertion", "always", {"insertion": {"_target_": "sysid.ErrorThreshold"}}, None),
    ],
)
def test_what_is_taken_from_a_configuration(key, value, configuration, expected, tmp_path):
    """Numbers, texts, flags and null; options only where one file alone says the same."""

    def each(values):
        return {"seed": 0} if key in values else configuration

    folder = write_several(tmp_path / "s", [{"seed": 0, key: value}, {"seed": 1}], each)
    found = dataset_of(gathered(folder))
    assert (found["smse"].dims == ("job",)) == (expected is None)
    if expected is not None:
        name = key.rpartition(".")[2]
        assert found["number"].sel({name: expected, "seed": 1}) == 1


def test_an_option_is_known_by_a_job_that_names_it(tmp_path):
    """Though what is swept inside of it differs; an option that looks like another is not told."""

    def each(values):
        threshold = values.get("insertion.error_threshold", 0.1)
        own = {"_target_": "own.Insertion", "error_threshold": threshold, "other": 1}
        return {"seed": values["seed"], "insertion": own}

    key, swept = "insertion", "insertion.error_threshold"
    named = [{"seed": seed, key: "own", swept: 0.3} for seed in SEEDS]
    found = dataset_of(gathered(write_several(tmp_path / "a", [*named, *PLAIN], each)))
    assert found["smse"].dims == ("seed", "insertion", "error_threshold")
    assert found["number"].sel(seed=1, insertion="own", error_threshold=0.1) == 3
    alike = [{"seed": 0, key: "own"}, {"seed": 1, key: "twin"}, {"seed": 2}]
    found = dataset_of(gathered(write_several(tmp_path / "b", alike, each)))
    assert found["insertion"].values.tolist() == ["own", "twin", ""]


def test_a_command_only_if_it_plans_exactly_these_jobs(tmp_path):
    def command(name, planned):
        return command_of(read_sweep(write_several(tmp_path / name, planned, dict, skip=range(99))))

    grid = "sysid-identify -m system=building seed=0,1 budget=20,30,40"
    assert command("a", BUDGETS) == grid
    assert command("b", BUDGETS[:-1]) == ""
    assert command("c", [*BUDGETS, *PLAIN]) == ""
    assert command("d", [*BUDGETS, {"seed": 0, "budget": 20}]) == ""
    assert command("e", []) == ""
    assert command("f", [{"lags": "[1,2]"}, {"lags": "[3]"}]) == "sysid-identify -m system=building 'lags=[1,2],[3]'"
    path = tmp_path / "a" / "sweep.json"
    content = json.loads(path.read_text())
    content["jobs"][0]["overrides"][0] = "system=van_der_pol"
    path.write_text(json.dumps(content))
    assert command_of(read_sweep(tmp_path / "a")) == ""


def test_overrides_in_words_where_there_is_no_command(tmp_path):
    found = gathered(write_several(tmp_path / "s", [*BUDGETS, *PLAIN]))
    text = markdown_text(found, layout_of(found))
    assert "sysid-identify -m" not in text
    assert "- `budget`: `20`, `30`, `40` (6 of 8 jobs)\n" in text
    assert "- `seed`: `0`, `1`\n" in text


def test_what_a_job_names_counts_whatever_its_configuration_says(tmp_path):
    planned = [{"seed": 0, "a": 1}, {"seed": 1, "b": 2}]
    found = dataset_of(gathered(write_several(tmp_path / "s", planned, lambda values: {"a": 5, "b": 6})))
    assert found["number"].sel(seed=0, a=1, b=6) == 0
    assert found["number"].sel(seed=1, a=5, b=2) == 1
