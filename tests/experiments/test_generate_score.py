"""The scoring script as others run it: right numbers for good files, a word and exit code 2 for bad ones."""

import json
import math
import shutil

import numpy as np
import pytest
from generating import BOUC_WEN, LENGTHS, WINDOW, alone, generate, score, scored, script_of
from running import PLAIN

if PLAIN:
    pytest.skip("files are written and read alike without the compiler", allow_module_level=True)

N = LENGTHS["test"]


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


def as_csv(path, values, header="displacement"):
    path.write_text("\n".join([*([header] if header else []), *map(repr, np.asarray(values).tolist())]) + "\n")
    return path


def test_numbers_are_right(public, measured, prediction, tmp_path):
    result = scored(public, as_csv(tmp_path / "p.csv", prediction))
    found = result["outputs"]["displacement"]
    square = sum((p - y) ** 2 for p, y in zip(prediction[WINDOW:], measured[WINDOW:], strict=True))
    rmse = math.sqrt(square / (N - WINDOW))
    assert found["rmse"] == pytest.approx(rmse, rel=1e-12)
    assert found["nrmse_percent"] == pytest.approx(100 * rmse / np.std(measured[WINDOW:]), rel=1e-12)
    assert found["fit_percent"] == pytest.approx(100 - found["nrmse_percent"], rel=1e-12)
    assert found["unit"] == "m"
    assert result["n_scored"] == N - WINDOW
    assert result["task"] == "free_run"
    assert "against_noise_free" not in result


def test_the_window_is_not_scored(public, prediction, tmp_path):
    changed = prediction.copy()
    changed[:WINDOW] = 1e6
    files = [as_csv(tmp_path / f"{i}.csv", values) for i, values in enumerate((prediction, changed))]
    assert scored(public, files[0]) == scored(public, files[1])
    changed[WINDOW] = 1e6
    assert scored(public, as_csv(tmp_path / "2.csv", changed)) != scored(public, files[0])


def test_with_the_answer_the_noise_free_output_counts_too(folder, prediction, tmp_path):
    truth = np.loadtxt(folder / "truth_csv" / "test.csv", delimiter=",", skiprows=1)[:, 1]
    result = scored(folder, as_csv(tmp_path / "p.csv", prediction))
    expected = np.sqrt(np.mean((prediction - truth)[WINDOW:] ** 2))
    assert result["against_noise_free"]["displacement"]["rmse"] == pytest.approx(expected, rel=1e-12)
    assert scored(folder, as_csv(tmp_path / "t.csv", truth))["against_noise_free"]["displacement"]["rmse"] == 0


def test_every_format_gives_the_same(public, prediction, tmp_path):
    expected = scored(public, as_csv(tmp_path / "p.csv", prediction))
    (tmp_path / "columns.csv").write_text(
        "time, displacement ,force\r\n"
        + "".join(f"{k},{value!r},x\r\n" for k, value in enumerate(prediction.tolist())),
        encoding="utf-8-sig",
    )
    np.save(tmp_path / "flat.npy", prediction)
    np.save(tmp_path / "matrix.npy", prediction[:, np.newaxis])
    bare = as_csv(tmp_path / "bare.csv", prediction, header="")
    for path in (tmp_path / "columns.csv", tmp_path / "flat.npy", tmp_path / "matrix.npy", bare):
        assert scored(public, path) == expected


def test_people_see_scores_beside_floor_and_baselines(public, prediction, tmp_path):
    process = score(public, as_csv(tmp_path / "p.csv", prediction), "--task", "one_step")
    assert process.returncode == 0, process.stderr
    known = json.loads((public / "scores.json").read_text())["one_step"]
    for word in ("BoucWen, one_step", f"{N - WINDOW} samples", "RMSE", "fit", " m,", "noise_floor", "arx"):
        assert word in process.stdout
    assert format(known["arx"]["displacement"]["rmse"], ".6g") in process.stdout
    (public / "scores.json").rename(public / "hidden.json")
    try:
        without = score(public, tmp_path / "p.csv")
    finally:
        (public / "hidden.json").rename(public / "scores.json")
    assert without.returncode == 0
    assert "noise_floor" not in without.stdout


def bad(change):
    def write(path, prediction):
        values = prediction.copy()
        change(values)
        return as_csv(path / "p.csv", values)

    return write


def texts(lines):
    def write(path, prediction):
        (path / "p.csv").write_text("\n".join(lines(list(map(repr, prediction.tolist())))) + "\n")
        return path / "p.csv"

    return write


def content(data, name="p.csv"):
    def write(path, prediction):
        (path / name).write_bytes(data)
        return path / name

    return write


def array(make, name="p.npy"):
    def write(path, prediction):
        np.save(path / name, make(prediction), allow_pickle=True)
        return path / name

    return write


REFUSED = {
    "one missing": (lambda path, p: as_csv(path / "p.csv", p[:-1]), [f"{N - 1} samples", str(N)]),
    "one too many": (lambda path, p: as_csv(path / "p.csv", [*p, 0.0]), [f"{N + 1} samples", str(N)]),
    "nan": (bad(lambda v: v.__setitem__(WINDOW + 3, np.nan)), ["displacement is nan", f"sample {WINDOW + 3}"]),
    "nan in the window": (bad(lambda v: v.__setitem__(0, np.nan)), ["nan at sample 0", "measured outputs"]),
    "infinite": (bad(lambda v: v.__setitem__(7, -np.inf)), ["-inf at sample 7"]),
    "empty file": (content(b""), ["empty"]),
    "only a header": (content(b"displacement\n"), ["0 samples"]),
    "no text": (content(b"\xff\xfe\x00\x01" * 30), ["cannot read"]),
    "a word": (texts(lambda rows: ["displacement", *rows[:4], "high", *rows[5:]]), ["line 6", "'high'"]),
    "an empty cell": (texts(lambda rows: ["a,displacement", *(f"1,{r}" for r in rows[:4]), "1,"]), ["line 6", "''"]),
    "a short row": (texts(lambda rows: ["a,displacement", *(f"1,{r}" for r in rows[:4]), "1"]), ["line 6"]),
    "another header": (texts(lambda rows: ["y", *rows]), ["displacement", "header has y"]),
    "header twice": (texts(lambda rows: ["displacement,displacement", *(f"{r},{r}" for r in rows)]), ["header has"]),
    "two columns": (texts(lambda rows: [f"0.1,{r}" for r in rows]), ["2 columns", "no header"]),
    "short array": (array(lambda p: p[:-1]), [f"{N - 1} samples"]),
    "array with nan": (array(lambda p: np.where(np.arange(N) == 20, np.nan, p)), ["nan at sample 20"]),
    "turned array": (array(lambda p: p[np.newaxis]), [f"shape (1, {N})", "expected (n, 1)"]),
    "scalar": (array(lambda p: np.array(1.0)), ["shape ()"]),
    "texts": (array(lambda p: p.astype(str)), ["real numbers"]),
    "complex": (array(lambda p: p + 0j), ["real numbers"]),
    "pickled": (array(lambda p: np.array([{"a": 1}], dtype=object)), ["cannot read", "NumPy"]),
    "no array": (content(b"displacement\n1\n", "p.npy"), ["cannot read", "NumPy"]),
    "no file": (lambda path, p: path / "absent.csv", ["no file"]),
    "a folder": (lambda path, p: path, ["no file"]),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_files_are_refused(case, public, prediction, tmp_path):
    make, words = REFUSED[case]
    process = score(public, make(tmp_path, prediction))
    assert process.returncode == 2, process.stdout + process.stderr
    assert process.stdout == ""
    assert process.stderr.startswith("refused: ")
    assert "Traceback" not in process.stderr
    for word in words:
        assert word in process.stderr, process.stderr


def test_wrong_numbers_of_files_and_options_are_refused(public, prediction, tmp_path):
    path = as_csv(tmp_path / "p.csv", prediction)
    process = score(public, path, path)
    assert process.returncode == 2
    assert "expected 1 prediction file(s)" in process.stderr
    for arguments in ((), (path, "--task", "guess")):
        process = score(public, *arguments)
        assert process.returncode == 2
        assert "usage" in process.stderr


def test_runs_as_a_program_without_the_toolbox(public, prediction, tmp_path):
    good = alone(tmp_path, script_of(public), as_csv(tmp_path / "p.csv", prediction), "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout) == scored(public, tmp_path / "p.csv")
    wrong = alone(tmp_path, script_of(public), as_csv(tmp_path / "short.csv", prediction[1:]))
    assert wrong.returncode == 2
    assert wrong.stderr == score(public, tmp_path / "short.csv").stderr


def test_help_explains_the_file(public):
    process = score(public, "--help")
    assert process.returncode == 0
    for word in ("one value per sample", ".npy", "initialisation window", "--task"):
        assert word in process.stdout


def test_a_damaged_folder_is_named(public, prediction, tmp_path):
    copy = shutil.copytree(public, tmp_path / "copy")
    path = as_csv(tmp_path / "p.csv", prediction)
    (copy / "csv" / "test.csv").unlink()
    assert "test.csv" in score(copy, path).stderr
    (copy / "benchmark.json").write_text("{")
    process = score(copy, path)
    assert process.returncode == 2
    assert "benchmark.json" in process.stderr


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
