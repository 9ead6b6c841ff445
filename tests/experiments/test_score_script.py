"""The scoring script of a benchmark: its numbers, its formats, what it refuses."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from helpers.benchmarks import (
    INITIALISATION_WINDOW,
    RECORD_LENGTHS,
    rms,
    run_score_script,
    score_as_json,
)
from helpers.commands import read_exact_csv

N_TEST = RECORD_LENGTHS["test"]
N_SCORED = N_TEST - INITIALISATION_WINDOW

#: runs a script where only NumPy and the standard library can be imported
RUN_WITHOUT_TOOLBOX = """
import runpy, sys
class Refuse:
    refused = {"sysid", "simulators", "experiments", "hydra", "xarray", "scipy", "pandas"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.refused:
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Refuse())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def remove_answer(folder, copy):
    """Copy a benchmark as it is published: without the answer. Return the copy."""
    shutil.copytree(folder, copy)
    shutil.rmtree(copy / "truth_csv")
    (copy / "truth.nc").unlink()
    (copy / "configuration.yaml").unlink()
    return copy


@pytest.fixture(scope="module")
def public(oscillator, tmp_path_factory):
    """Folder of the benchmark as it is published."""
    return remove_answer(oscillator, tmp_path_factory.mktemp("public") / "bw")


@pytest.fixture(scope="module")
def measured(public):
    """Measured output of the test record."""
    return read_exact_csv(public / "csv" / "test.csv")["displacement"].to_numpy()


@pytest.fixture(scope="module")
def prediction(measured):
    """A prediction of the test record that is not perfect."""
    return 0.9 * measured + 1e-5 * np.random.default_rng(0).normal(size=N_TEST)


@pytest.fixture
def prediction_file(prediction, tmp_path):
    """CSV file of the prediction."""
    return write_prediction(tmp_path / "prediction.csv", prediction)


@pytest.fixture
def scores(public, prediction_file):
    """Scores of the prediction in the published folder."""
    return score_as_json(public, prediction_file)


def csv_text(values):
    """Return a prediction as the text of a CSV file, with every digit."""
    return "\n".join(["displacement", *map(repr, np.asarray(values).tolist())]) + "\n"


def write_prediction(path, values):
    path.write_text(csv_text(values))
    return path


# --- numbers and formats --------------------------------------------------------------------------


def test_scores_are_the_errors_after_the_window(scores, prediction, measured):
    rmse = rms((prediction - measured)[INITIALISATION_WINDOW:])
    nrmse = 100 * rmse / np.std(measured[INITIALISATION_WINDOW:])
    assert scores["outputs"]["displacement"] == {
        "unit": "m",
        "rmse": pytest.approx(rmse, rel=1e-12),
        "nrmse_percent": pytest.approx(nrmse, rel=1e-12),
        "fit_percent": pytest.approx(100 - nrmse, rel=1e-12),
    }
    assert scores["n_scored"] == N_SCORED
    assert scores["task"] == "free_run"


def test_with_the_answer_the_noise_free_output_is_scored_too(
    oscillator, scores, prediction, prediction_file
):
    assert "against_noise_free" not in scores
    truth = read_exact_csv(oscillator / "truth_csv" / "test.csv")["displacement_noise_free"]
    expected = rms((prediction - truth)[INITIALISATION_WINDOW:])

    with_answer = score_as_json(oscillator, prediction_file)

    rmse = with_answer["against_noise_free"]["displacement"]["rmse"]
    assert rmse == pytest.approx(expected, rel=1e-12)


def write_csv_of_a_spreadsheet(folder, prediction):
    """Write several columns, spaces, other line ends and a byte-order mark."""
    lines = ["time, displacement ,force\r\n"]
    for k, value in enumerate(prediction.tolist()):
        lines.append(f"{k},{value!r},x\r\n")
    path = folder / "spreadsheet.csv"
    path.write_text("".join(lines), encoding="utf-8-sig")
    return path


def write_vector(folder, prediction):
    np.save(folder / "vector.npy", prediction)
    return folder / "vector.npy"


def write_matrix(folder, prediction):
    np.save(folder / "matrix.npy", prediction[:, np.newaxis])
    return folder / "matrix.npy"


def write_another_window(folder, prediction):
    changed = prediction.copy()
    changed[:INITIALISATION_WINDOW] = 1e6
    return write_prediction(folder / "window.csv", changed)


@pytest.mark.parametrize(
    "write",
    [write_csv_of_a_spreadsheet, write_vector, write_matrix, write_another_window],
    ids=["spreadsheet", "vector", "matrix", "another window"],
)
def test_every_format_gives_the_same_scores(write, public, prediction, scores, tmp_path):
    assert score_as_json(public, write(tmp_path, prediction)) == scores


def test_the_first_sample_after_the_window_is_scored(public, prediction, scores, tmp_path):
    changed = prediction.copy()
    changed[INITIALISATION_WINDOW] = 1e6

    path = write_prediction(tmp_path / "changed.csv", changed)

    assert score_as_json(public, path) != scores


def test_several_records_need_several_files(building, tmp_path):
    files = []
    for i in (0, 1):
        measured = read_exact_csv(building / "csv" / f"test_{i}.csv")["zone_temperature"]
        np.save(tmp_path / f"{i}.npy", measured + 1e-6 * (i + 1))
        files.append(tmp_path / f"{i}.npy")

    rmse, swapped_rmse = (
        score_as_json(building, *paths)["outputs"]["zone_temperature"]["rmse"]
        for paths in (files, files[::-1])
    )

    assert rmse == pytest.approx(np.sqrt((1**2 + 2**2) / 2) * 1e-6, rel=1e-6)
    assert swapped_rmse > 10 * rmse
    assert run_score_script(building, files[0]).code == 2


# --- as a program ---------------------------------------------------------------------------------


def test_the_script_runs_as_a_program_without_the_toolbox(
    public, prediction_file, scores, tmp_path
):
    script = [str(public / "score.py"), str(prediction_file), "--json"]
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN_WITHOUT_TOOLBOX, *script],
        cwd=tmp_path,
        env={"PYTHONPATH": "", "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == scores


def test_people_see_the_scores_beside_floor_and_baselines(public, prediction_file):
    stored = json.loads((public / "scores.json").read_text())
    arx = stored["one_step"]["arx"]["displacement"]["rmse"]

    shown = run_score_script(public, prediction_file, "--task", "one_step").out

    for text in (
        "BoucWen, one_step",
        f"{N_SCORED} samples",
        "fit",
        " m,",
        "noise_floor",
        format(arx, ".6g"),
    ):
        assert text in shown


# --- what is refused ------------------------------------------------------------------------------


def assert_refused(folder, *arguments, words=(), start="refused: "):
    """Check that the script ends with a line that contains the words, and without a traceback."""
    result = run_score_script(folder, *arguments)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith(start)
    assert "Traceback" not in result.err
    for word in words:
        assert word in result.err


def replace_by_nan(prediction):
    return csv_text(np.where(np.arange(N_TEST) == 13, np.nan, prediction))


#: text of a CSV file or array of a .npy file, from a good prediction; and words of the refusal
BAD_PREDICTIONS = {
    "one sample less": (lambda p: csv_text(p[:-1]), [f"{N_TEST - 1} samples", str(N_TEST)]),
    "nan": (replace_by_nan, ["displacement is nan", "sample 13"]),
    "empty file": (lambda p: "", ["cannot read"]),
    "empty cell": (lambda p: "a,displacement\n" + 4 * "1,2\n" + "1,", ["cannot read", "row 4"]),
    "another header": (lambda p: "y" + N_TEST * "\n1.0", ["displacement", "got y"]),
    "row instead of column": (
        lambda p: p[np.newaxis],
        [f"shape (1, {N_TEST})", "expected (n, 1)"],
    ),
    "pickled objects": (
        lambda p: np.array([{"a": 1}], dtype=object),
        ["cannot read", "numbers"],
    ),
    "complex numbers": (lambda p: p + 0j, ["complex128", "expected real numbers"]),
    "complex single precision": (lambda p: p.astype("c8"), ["complex64", "real numbers"]),
    "flags": (lambda p: p > 0, ["bool", "real numbers"]),
    "texts": (lambda p: p.astype(str), ["<U", "real numbers"]),
    "bytes": (lambda p: p.astype("S"), ["|S", "real numbers"]),
    "dates": (lambda p: np.zeros(len(p), "M8[s]"), ["datetime64", "real numbers"]),
    "durations": (lambda p: np.zeros(len(p), "m8[s]"), ["timedelta64", "real numbers"]),
    "records": (lambda p: np.zeros(len(p), [("displacement", "f8")]), ["real numbers"]),
    "untyped bytes": (lambda p: np.zeros(len(p), "V8"), ["real numbers"]),
    "complex cells": (lambda p: "displacement" + len(p) * "\n1+0j", ["cannot read"]),
    "flags in cells": (lambda p: "displacement" + len(p) * "\nTrue", ["cannot read"]),
    "dates in cells": (lambda p: "displacement" + len(p) * "\n2020-01-01", ["cannot read"]),
    "a single number": (lambda p: np.array(1.0), ["shape ()", "expected (n, 1)"]),
    "three dimensions": (lambda p: p[:, None, None], ["expected (n, 1)"]),
}


@pytest.mark.parametrize("case", BAD_PREDICTIONS)
def test_bad_predictions_are_refused(case, public, prediction, tmp_path):
    make_content, words = BAD_PREDICTIONS[case]
    content = make_content(prediction)
    if isinstance(content, str):
        path = tmp_path / "p.csv"
        path.write_text(content)
    else:
        path = tmp_path / "p.npy"
        np.save(path, content, allow_pickle=True)

    assert_refused(public, path, words=words)


@pytest.mark.parametrize("dtype", ["f4", ">f8", "i4", "u2", "g"])
def test_real_numbers_of_any_kind_are_scored(public, prediction, tmp_path, dtype):
    converted = np.round(1e3 * prediction).astype(int).astype(dtype)
    np.save(tmp_path / "p.npy", converted)
    np.save(tmp_path / "q.npy", converted.astype(float))
    scores = score_as_json(public, tmp_path / "p.npy")
    assert scores == score_as_json(public, tmp_path / "q.npy")


def test_more_files_than_records_are_refused(public, prediction_file):
    assert_refused(
        public, prediction_file, prediction_file, words=["expected 1 prediction file(s)"]
    )


def test_a_file_that_does_not_exist_is_refused(public, tmp_path):
    assert_refused(public, tmp_path / "absent.csv", words=["no file"])


def test_a_call_without_files_shows_the_usage(public):
    assert_refused(public, start="usage")


def test_an_unknown_task_shows_the_usage(public, prediction_file):
    assert_refused(public, prediction_file, "--task", "guess", start="usage")


def test_a_folder_without_its_test_record_is_refused(public, prediction_file, tmp_path):
    copy = shutil.copytree(public, tmp_path / "copy")
    (copy / "csv" / "test.csv").unlink()
    assert_refused(copy, prediction_file, words=["test.csv"])


def test_a_folder_with_a_damaged_description_is_refused(public, prediction_file, tmp_path):
    copy = shutil.copytree(public, tmp_path / "copy")
    (copy / "benchmark.json").write_text("{")
    assert_refused(copy, prediction_file, words=["benchmark.json"])


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"test": [{"measured": "../test.csv", "noise_free": "a.csv"}]}, ["not in its folder"]),
        ({"test": [{"measured": "/dev/zero", "noise_free": "a.csv"}]}, ["not in its folder"]),
        ({"test": [{"measured": "csv/test.csv", "noise_free": "../a"}]}, ["not in its folder"]),
        ({"test": [{"measured": "linked.csv", "noise_free": "a.csv"}]}, ["not in its folder"]),
        ({"test": [{"measured": "pipe.csv", "noise_free": "a.csv"}]}, ["no file"]),
        ({"test": [{"measured": 3}]}, ["damaged or forged"]),
        ({"outputs": "displacement"}, ["damaged or forged"]),
        ({"initialisation_window": 10**9}, ["no sample after"]),
        ({"initialisation_window": "long"}, ["damaged or forged"]),
    ],
    ids=str,
)
def test_a_folder_that_describes_something_else_is_refused(
    public, prediction_file, tmp_path, changed, words
):
    copy = shutil.copytree(public, tmp_path / "copy")
    shutil.copy(public / "csv" / "test.csv", tmp_path / "test.csv")
    (copy / "linked.csv").symlink_to(tmp_path / "test.csv")
    os.mkfifo(copy / "pipe.csv")
    about = json.loads((copy / "benchmark.json").read_text())
    (copy / "benchmark.json").write_text(json.dumps(about | changed))
    assert_refused(copy, prediction_file, words=words)


@pytest.mark.parametrize(
    "scores",
    [
        [],
        {},
        {"free_run": []},
        {"free_run": {"a": 3}},
        {"free_run": {"a": {"y": {}}}},
        {"free_run": {"a": {"y": {"rmse": "small"}}}},
        {"free_run": {"a": {"y": {"rmse": [1.0]}}}},
    ],
    ids=repr,
)
def test_scores_of_another_form_are_refused(public, prediction_file, tmp_path, scores):
    copy = shutil.copytree(public, tmp_path / "copy")
    (copy / "scores.json").write_text(json.dumps(scores))
    assert_refused(copy, prediction_file, words=["scores.json is damaged or forged"])


def test_names_of_a_folder_do_not_act_on_the_terminal(public, prediction_file, tmp_path):
    copy = shutil.copytree(public, tmp_path / "copy")
    about = json.loads((copy / "benchmark.json").read_text())
    about["outputs"][0]["unit"] = "\x1b[2J"
    (copy / "benchmark.json").write_text(json.dumps(about | {"name": "x\x1b]0;mine\x07\u202e"}))
    result = run_score_script(copy, prediction_file)
    assert result.code == 0
    assert result.out.startswith("x\\x1b]0;mine\\x07\\u202e, free_run")
    assert "\x1b" not in result.out


@pytest.mark.parametrize("name", ["prediction.csv", "copy/benchmark.json", "copy/csv/test.csv"])
def test_a_text_of_any_size_without_content_is_not_read(public, prediction_file, tmp_path, name):
    copy = shutil.copytree(public, tmp_path / "copy")
    with open(tmp_path / name, "r+b") as file:
        file.truncate(2**40)  # without content on the disk
    assert_refused(copy, prediction_file, words=["more than 1073741824 bytes"])
