#!/usr/bin/env python3
"""Score predictions of the test outputs of this benchmark.

    python score.py predictions.csv
    python score.py predictions.npy --task one_step
    python score.py record_0.csv record_1.csv --json

Give one file for each test record, in the order of the records.

A prediction file holds one value for every sample of csv/test.csv, from its first sample on:

- CSV with a header line: the columns with the names of the outputs are read, and other columns
  (such as time) are ignored;
- NumPy .npy: an array (n,) for one output, (n, number of outputs) in general.

The first samples of every record, the initialisation window, are not scored: put the measured
outputs there. A file with the wrong length, or with values that are not finite, is refused with
exit code 2.

Name the task that you really solved: in free_run the measured outputs after the window were not
used; in one_step sample k was predicted from the measured samples up to k-1. Both tasks are scored
with the same formulas:

    RMSE   sqrt(mean((y - p)^2))
    NRMSE  RMSE / standard deviation of y, in percent
    fit    100 % - NRMSE

Needs Python 3.8 and NumPy, and nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
MAX_FILE_BYTES = 2**30  # size of a text file; a sparse one of any size takes nothing to send


class Refused(Exception):
    """Raised if a file cannot be scored."""


def main(arguments: list[str] | None = None) -> int:
    """Score the files of the command line and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "predictions", nargs="+", type=Path, help="one CSV or .npy file per test record"
    )
    parser.add_argument(
        "--task",
        choices=("free_run", "one_step"),
        default="free_run",
        help="how the outputs were predicted",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        result = score(options.predictions, options.task)
        text = json.dumps(result, indent=2) if options.json else report(result)
    except Refused as error:
        print(printable(f"refused: {error}"), file=sys.stderr)
        return 2
    print(printable(text))
    return 0


def score(files: list[Path], task: str) -> dict[str, Any]:
    """Return the scores of prediction files, one file for each test record."""
    about = read_about()
    records = about["test"]
    names = [output["name"] for output in about["outputs"]]
    if len(files) != len(records):
        raise Refused(
            f"expected {len(records)} prediction file(s), one per test record, got {len(files)}"
        )
    window = about["initialisation_window"]
    measured = [read_columns(find(record["measured"]), names) for record in records]
    if min(map(len, measured)) <= window:
        raise Refused(f"a test record has no sample after the first {window}")
    predicted = [
        read_predictions(path, names, len(y))
        for path, y in zip(files, measured)  # noqa: B905 (Python 3.8)
    ]
    result = {
        "benchmark": about["name"],
        "task": task,
        "n_scored": sum(len(y) - window for y in measured),
        "initialisation_window": window,
        "outputs": scores(about["outputs"], measured, predicted, window),
    }
    truth_files = [find(record["noise_free"]) for record in records]
    if all(path.is_file() for path in truth_files):
        truth_names = [f"{name}_noise_free" for name in names]
        noise_free = [read_columns(path, truth_names) for path in truth_files]
        result["against_noise_free"] = scores(about["outputs"], noise_free, predicted, window)
    return result


def scores(
    outputs: list[dict[str, str]],
    truth: list[np.ndarray],
    predicted: list[np.ndarray],
    window: int,
) -> dict[str, Any]:
    """Return RMSE, NRMSE and fit of every output, over all records together."""
    y = np.concatenate([values[window:] for values in truth])
    p = np.concatenate([values[window:] for values in predicted])
    with np.errstate(over="ignore"):
        errors = np.sqrt(np.mean((y - p) ** 2, axis=0)).tolist()
    spreads = np.std(y, axis=0).tolist()
    result = {}
    for output, rmse, spread in zip(outputs, errors, spreads):  # noqa: B905 (Python 3.8)
        nrmse = None
        fit = None
        if spread > 0:
            nrmse = 100 * rmse / spread
            fit = 100 - 100 * rmse / spread
        result[output["name"]] = {
            "unit": output["unit"],
            "rmse": rmse,
            "nrmse_percent": nrmse,
            "fit_percent": fit,
        }
    return result


def read_predictions(path: Path, names: list[str], n: int) -> np.ndarray:
    """Read and check predictions (n, number of outputs)."""
    is_npy = path.suffix.lower() == ".npy"
    values = read_npy(path, names, n) if is_npy else read_columns(path, names)
    if len(values) != n:
        length = str(len(values)) if len(values) < n else f"more than {n}"
        raise Refused(
            f"{path} has {length} samples, the test record has {n}: predict every sample of it"
        )
    not_finite = np.argwhere(~np.isfinite(values))
    if len(not_finite):
        k, i = not_finite[0]
        raise Refused(
            f"{path}: {names[i]} is {values[k, i]} at sample {k}; "
            f"{len(not_finite)} value(s) are not finite; "
            "put the measured outputs into the initialisation window"
        )
    return values


def check_file(path: Path) -> None:
    """Refuse what is no file, or a file too large to be read as a whole."""
    if not path.is_file():
        raise Refused(f"no file {path}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise Refused(f"{path} has more than {MAX_FILE_BYTES} bytes: shorten it, or use .npy")


def read_npy(path: Path, names: list[str], n: int) -> np.ndarray:
    """Read the array of a NumPy file as (n, number of outputs).

    At most n + 1 samples are read, enough to see that there are more than n.
    """
    if not path.is_file():
        raise Refused(f"no file {path}")
    try:
        # Mapped into memory, because the header may claim any size.
        stored = np.load(path, mmap_mode="r", allow_pickle=False)
        shape = stored.shape
        kind = stored.dtype.kind
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
    ) as error:
        raise Refused(f"cannot read {path} as an array of numbers: {error}") from error
    if kind not in "iuf":
        raise Refused(
            f"{path} holds {stored.dtype}, expected real numbers: integers or floating point "
            "numbers; complex numbers, flags, texts, times and records are not scored"
        )
    is_column = len(shape) == 1 and len(names) == 1
    if not is_column and shape[1:] != (len(names),):
        raise Refused(
            f"{path} has shape {shape}, expected (n, {len(names)}) "
            f"for the outputs {', '.join(names)}"
        )
    return np.array(stored[: n + 1], dtype=float).reshape(-1, len(names))


def read_columns(path: Path, names: list[str]) -> np.ndarray:
    """Read the named columns of a CSV file (n, number of names)."""
    check_file(path)
    try:
        with path.open(encoding="utf-8-sig") as file:
            header = [cell.strip() for cell in file.readline().split(",")]
            if any(header.count(name) != 1 for name in names):
                raise ValueError(
                    f"expected one column for each of {', '.join(names)}, got {', '.join(header)}"
                )
            return np.loadtxt(
                file,
                delimiter=",",
                ndmin=2,
                usecols=[header.index(name) for name in names],
            )
    except (OSError, ValueError) as error:
        raise Refused(f"cannot read {path}: {error}") from error


def read_about() -> dict[str, Any]:
    """Read what benchmark.json states about the test records and the outputs."""
    about = read_json(HERE / "benchmark.json")
    try:
        return {
            "name": str(about["name"]),
            "initialisation_window": max(int(about["initialisation_window"]), 0),
            "outputs": [
                {"name": str(output["name"]), "unit": str(output["unit"])}
                for output in about["outputs"]
            ],
            "test": [
                {"measured": str(record["measured"]), "noise_free": str(record["noise_free"])}
                for record in about["test"]
            ],
        }
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        raise Refused(f"benchmark.json is damaged or forged ({error!r})") from error


def find(name: str) -> Path:
    """Return the path of a file that benchmark.json names, in its folder."""
    path = HERE / name
    if HERE not in path.resolve().parents:
        raise Refused(
            f"benchmark.json names {name!r}, which is not in its folder: it is damaged or forged"
        )
    return path


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file of this folder."""
    try:
        check_file(path)
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (Refused, OSError, ValueError, TypeError, RecursionError) as error:
        raise Refused(
            f"cannot read {path}: {error}; keep score.py in the folder of the benchmark"
        ) from error


def report(result: dict[str, Any]) -> str:
    """Return the scores in words, followed by those of the noise floor and of the baselines."""
    lines = [
        f"{result['benchmark']}, {result['task']}: {result['n_scored']} samples scored, "
        f"without the first {result['initialisation_window']} samples of each record"
    ]
    for title, key in (("measured", "outputs"), ("noise-free", "against_noise_free")):
        for name, score in result.get(key, {}).items():
            line = f"{name} against {title} output: RMSE {score['rmse']:.6g} {score['unit']}"
            if score["nrmse_percent"] is not None:
                line += f", NRMSE {score['nrmse_percent']:.4g} %, fit {score['fit_percent']:.4g} %"
            lines.append(line)
    if (HERE / "scores.json").is_file():
        lines.append("")
        lines += baseline_lines(read_json(HERE / "scores.json"), result["task"])
    return "\n".join(lines)


def baseline_lines(scores: dict[str, Any], task: str) -> list[str]:
    """Return a line for each score of the noise floor and of the baselines."""
    lines = []
    try:
        for model, by_output in scores[task].items():
            for name, score in by_output.items():
                rmse = "not finite" if score["rmse"] is None else format(score["rmse"], ".6g")
                lines.append(f"  {model:15s} RMSE {rmse} ({name})")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise Refused(f"scores.json is damaged or forged ({error!r})") from error
    return lines


def printable(text: str) -> str:
    """Return a text in which characters that act on a terminal are replaced by their codes."""
    return "".join(
        character
        if character.isprintable() or character == "\n"
        else character.encode("unicode_escape").decode()
        for character in text
    )


if __name__ == "__main__":
    sys.exit(main())
