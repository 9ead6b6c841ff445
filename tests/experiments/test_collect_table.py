"""The tables of a sweep: every job in the CSV file, medians over seeds and failed jobs in the Markdown."""

import io
import math
import re

import numpy as np
import pandas as pd
from sweeping import summary_like, write_sweep

from experiments.collection.cells import layout_of
from experiments.collection.gathering import gather
from experiments.collection.job_result import results
from experiments.collection.sweep_folder import read_sweep
from experiments.collection.table import counts_text, csv_text, markdown_text
from experiments.studies.significant import significant

THRESHOLD = "insertion.error_threshold"
VALUES = {THRESHOLD: [0.2, 0.05], "reduction": ["prior_entropy", "a|b"], "seed": [0, 1, 2]}


def gathered(folder):
    sweep = read_sweep(folder)
    return gather(sweep, results(sweep))


def rows_of(text):
    """Cells of the first Markdown table."""
    lines = next(part for part in text.split("\n\n") if part.startswith("| ")).splitlines()
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[:1] + lines[2:]]


def test_csv_has_a_row_for_each_job_to_the_last_digit(tmp_path):
    found = gathered(write_sweep(tmp_path / "s", VALUES, summary_like, skip=(1,), fail=(4,)))
    frame = pd.read_csv(io.StringIO(csv_text(found)))
    assert frame["number"].tolist() == list(range(12))
    assert frame["status"].value_counts().to_dict() == {"done": 10, "failed": 1, "missing": 1}
    assert frame["error"][4] == "ValueError: it did not work | twice"
    for _, row in frame.iterrows():
        values = {THRESHOLD: row["error_threshold"], "reduction": row["reduction"], "seed": row["seed"]}
        expected = summary_like(values) if row["status"] == "done" else {"smse": math.nan, "times": {"loop": math.nan}}
        np.testing.assert_array_equal(row["smse"], expected["smse"])
        np.testing.assert_array_equal(row["times_loop"], expected["times"]["loop"])


def test_csv_has_a_row_for_each_output(tmp_path):
    def metric(values):
        return {name: summary_like(values) | {"smse": smse} for name, smse in (("y", 0.1), ("x", 0.3))}

    found = gathered(write_sweep(tmp_path / "s", {"seed": [0, 1]}, metric, several=True, fail=(1,)))
    frame = pd.read_csv(io.StringIO(csv_text(found)))
    assert frame["number"].tolist() == [0, 0, 1]
    assert frame["output"].tolist()[:2] == ["x", "y"]
    assert frame["smse"].tolist()[:2] == [0.3, 0.1]
    rows = rows_of(markdown_text(found, layout_of(found)))
    assert rows == [
        ["output", "smse", "coverage_95", "n_revised", "times_loop", "done"],
        ["x", "0.300", "0.910", "500", "5.00", "1/2"],
        ["y", "0.100", "0.910", "500", "5.00", "1/2"],
    ]


def test_medians_and_quartiles_over_the_seeds(tmp_path):
    found = gathered(write_sweep(tmp_path / "s", VALUES, summary_like, fail=(0, 6, 7, 8)))
    header, *rows = rows_of(markdown_text(found, layout_of(found)))
    assert header == ["error_threshold", "reduction", "smse", "coverage_95", "n_revised", "times_loop", "done"]
    assert [row[:2] for row in rows] == [[t, r] for t in ("0.05", "0.2") for r in ("prior_entropy", r"a\|b")]
    assert rows[0][2:] == ["", "", "", "", "0/3"]
    assert rows[2][6] == "2/3"
    frame = pd.DataFrame([summary_like({THRESHOLD: 0.2, "reduction": "a|b", "seed": seed}) for seed in range(3)])
    low, middle, high = (significant(value) for value in frame["smse"].quantile([0.25, 0.5, 0.75]))
    assert rows[3][2] == f"{middle} [{low}, {high}]"


def test_markdown_names_what_has_no_result_and_how_it_was_made(tmp_path):
    folder = write_sweep(tmp_path / "s", VALUES, summary_like, skip=(1,), fail=(4,))
    text = markdown_text(gathered(folder), layout_of(gathered(folder)))
    assert (
        r"| 4 | failed | error_threshold=0.2, reduction=a\|b, seed=1 | ValueError: it did not work \| twice |" in text
    )
    assert "| 1 |" not in text
    assert f"sysid-identify -m budget=20 {THRESHOLD}=0.2,0.05 'reduction=prior_entropy,a|b' seed=0,1,2\n" in text
    assert "numpy" in text
    assert text == markdown_text(gathered(folder), layout_of(gathered(folder)))
    assert csv_text(gathered(folder)) == csv_text(gathered(folder))


def test_counts_in_words(tmp_path):
    def told(name, *arguments, **options):
        found = gathered(write_sweep(tmp_path / name, *arguments, summary_like, **options))
        return counts_text(found, layout_of(found))

    assert told("a", VALUES, fail=(4,), skip=(1, 2)) == (
        "12 jobs: 9 done, 1 failed, 2 missing. Grid: 2 error_threshold x 2 reduction x 3 seed."
    )
    assert "2 of its 4 cells are those of no job" in told("b", [{"a": 1, "b": 1}, {"a": 2, "b": 2}])
    assert "1 jobs have the parameters of others" in told("c", [{"a": 1}, {"a": 1.0}])
    assert "do not form a grid" in told("d", [{"a": 1}, {"b": 1}])


def test_a_job_behind_another_does_not_count_twice(tmp_path):
    found = gathered(write_sweep(tmp_path / "s", [{"seed": 0}, {"seed": 0.0}, {"seed": 1}], summary_like))
    assert [row[-1] for row in rows_of(markdown_text(found, layout_of(found)))] == ["done", "2/2"]


def test_without_seeds_and_without_the_usual_metrics(tmp_path):
    found = gathered(write_sweep(tmp_path / "s", {"budget": [10, 20]}, summary_like))
    found = found._replace(columns={"rmse": found.columns["rmse"]})
    text = markdown_text(found, layout_of(found))
    assert [row[:1] + row[2:] for row in rows_of(text)] == [["budget", "done"], ["10", "1/1"], ["20", "1/1"]]
    assert "over the jobs; rmse [K]." in text
