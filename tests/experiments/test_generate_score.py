"""The scoring script as others run it: right numbers for good files, a word and exit code 2 for bad ones."""

import json
import math
import shutil
import subprocess
import sys

import numpy as np
import pytest
from generating import BOUC_WEN, LENGTHS, WINDOW, generate, score, scored

N = LENGTHS["test"]
#: run as a program where only NumPy and the standard library can be imported
ALONE = """
import runpy, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sysid", "simulators", "experiments", "hydra", "xarray", "scipy", "pandas"}:
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Refuse())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("scored") / "bw", *BOUC_WEN, "baseline=[mean,arx]")


@pytest.fixture(scope="module")
def public(folder, tmp_path_factory):
    """The folder as it is published: without the answer."""
    copy = shutil.copytree(folder, tmp_path_factory.mktemp("public") / "bw")
    shutil.rmtree(copy / "truth_csv")
    (copy / "truth.nc").unlink()
    (copy / "configuration.yaml").unlink()
    return copy


@pytest.fixture(scope="module")
def measured(folder):
    return np.loadtxt(folder / "csv" / "test.csv", delimiter=",", skiprows=1)[:, 2]


@pytest.fixture(scope="module")
def prediction(measured):
    return 0.9 * measured + 1e-5 * np.random.default_rng(0).normal(size=N)


def as_csv(path, values):
    path.write_text("\n".join(["displacement", *map(repr, np.asarray(values).tolist())]) + "\n")
    return path


def test_numbers_are_right_and_every_format_gives_the_same(folder, public, measured, prediction, tmp_path):
    path = as_csv(tmp_path / "p.csv", prediction)
    result = scored(public, path)
    error = (prediction - measured)[WINDOW:]
    rmse, nrmse = (
        math.sqrt(sum(error**2) / len(error)),
        100 * math.sqrt(sum(error**2) / len(error)) / np.std(measured[WINDOW:]),
    )
    assert result["outputs"]["displacement"] == {
        "unit": "m",
        "rmse": pytest.approx(rmse, rel=1e-12),
        "nrmse_percent": pytest.approx(nrmse, rel=1e-12),
        "fit_percent": pytest.approx(100 - nrmse, rel=1e-12),
    }
    assert (result["n_scored"], result["task"]) == (N - WINDOW, "free_run")
    assert "against_noise_free" not in result
    truth = np.loadtxt(folder / "truth_csv" / "test.csv", delimiter=",", skiprows=1)[:, 1]
    found = scored(folder, path)["against_noise_free"]["displacement"]["rmse"]
    assert found == pytest.approx(np.sqrt(np.mean((prediction - truth)[WINDOW:] ** 2)), rel=1e-12)
    cells = [f"{k},{value!r},x\r\n" for k, value in enumerate(prediction.tolist())]
    (tmp_path / "c.csv").write_text("time, displacement ,force\r\n" + "".join(cells), encoding="utf-8-sig")
    np.save(tmp_path / "flat.npy", prediction)
    np.save(tmp_path / "matrix.npy", prediction[:, np.newaxis])
    changed = prediction.copy()
    changed[:WINDOW] = 1e6  # is not scored
    same = as_csv(tmp_path / "w.csv", changed)
    for other in (tmp_path / "c.csv", tmp_path / "flat.npy", tmp_path / "matrix.npy", same):
        assert scored(public, other) == result
    changed[WINDOW] = 1e6
    assert scored(public, as_csv(tmp_path / "v.csv", changed)) != result


def lines(*texts):
    return "\n".join(texts).encode()


def numbers(change):
    """Bytes of a CSV file of a prediction that was changed."""
    return lambda p: lines("displacement", *map(repr, change(p.copy()).tolist()))


def put(k, value):
    return numbers(lambda p: np.where(np.arange(N) == k, value, p))


#: content of a file, or an array for a .npy file, from a good prediction; and words of the refusal
REFUSED = {
    "one missing": (numbers(lambda p: p[:-1]), [f"{N - 1} samples", str(N)]),
    "nan": (put(WINDOW + 3, np.nan), ["displacement is nan", f"sample {WINDOW + 3}"]),
    "empty file": (lambda p: b"", ["cannot read"]),
    "no text": (lambda p: b"\xff\xfe\x00\x01" * 30, ["cannot read"]),
    "an empty cell": (lambda p: lines("a,displacement", *["1,2"] * 4, "1,"), ["cannot read", "row 4"]),
    "another header": (lambda p: lines("y", *["1.0"] * N), ["displacement", "got y"]),
    "turned array": (lambda p: p[np.newaxis], [f"shape (1, {N})", "expected (n, 1)"]),
    "pickled": (lambda p: np.array([{"a": 1}], dtype=object), ["cannot read", "numbers"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused(case, public, prediction, tmp_path):
    make, words = REFUSED[case]
    content, path = make(prediction), tmp_path / "p.csv"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path = tmp_path / "p.npy"
        np.save(path, content, allow_pickle=True)
    refused(public, path, *words)


def refused(folder, arguments, *words, start="refused: "):
    process = score(folder, *(arguments if isinstance(arguments, tuple) else (arguments,)))
    assert (process.returncode, process.stdout) == (2, "")
    assert process.stderr.startswith(start)
    assert "Traceback" not in process.stderr
    for word in words:
        assert word in process.stderr, process.stderr


def test_wrong_files_options_and_folders_are_refused(public, prediction, tmp_path):
    path = as_csv(tmp_path / "p.csv", prediction)
    refused(public, (path, path), "expected 1 prediction file(s)")
    refused(public, tmp_path / "absent.csv", "no file")
    for arguments in ((), (path, "--task", "guess")):
        refused(public, arguments, start="usage")
    copy = shutil.copytree(public, tmp_path / "copy")
    (copy / "csv" / "test.csv").unlink()
    refused(copy, path, "test.csv")
    (copy / "benchmark.json").write_text("{")
    refused(copy, path, "benchmark.json")


def test_runs_as_a_program_without_the_toolbox_and_people_see_floor_and_baselines(public, prediction, tmp_path):
    path = as_csv(tmp_path / "p.csv", prediction)
    command = [sys.executable, "-W", "error", "-c", ALONE, str(public / "score.py"), str(path), "--json"]
    options = {"env": {"PYTHONPATH": "", "PATH": ""}, "capture_output": True, "text": True, "timeout": 60}
    process = subprocess.run(command, cwd=tmp_path, **options)
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout) == scored(public, path)
    shown = score(public, path, "--task", "one_step").stdout
    arx = json.loads((public / "scores.json").read_text())["one_step"]["arx"]["displacement"]["rmse"]
    for word in ("BoucWen, one_step", f"{N - WINDOW} samples", "fit", " m,", "noise_floor", format(arx, ".6g")):
        assert word in shown
    alone = shutil.copytree(public, tmp_path / "alone")
    (alone / "scores.json").unlink()
    assert "noise_floor" not in score(alone, path).stdout


def test_several_records_need_several_files(tmp_path):
    folder = generate(tmp_path / "bw", *BOUC_WEN, "realisations.test=2", "baseline=[mean]")
    y = [np.loadtxt(folder / "csv" / f"test_{i}.csv", delimiter=",", skiprows=1)[:, 2] for i in (0, 1)]
    error = (1e-6, 2e-6)
    files = [as_csv(tmp_path / f"{i}.csv", y[i] + error[i]) for i in (0, 1)]
    result = scored(folder, *files)
    assert result["outputs"]["displacement"]["rmse"] == pytest.approx(math.sqrt(2.5) * 1e-6, rel=1e-6)
    assert score(folder, files[0]).returncode == 2
    swapped = scored(folder, *reversed(files))
    assert swapped["outputs"]["displacement"]["rmse"] > 10 * result["outputs"]["displacement"]["rmse"]
