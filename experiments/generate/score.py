#!/usr/bin/env python3
"""Score predictions of the test outputs of this benchmark.

    python score.py predictions.csv
    python score.py predictions.npy --task one_step
    python score.py record_0.csv record_1.csv --json        (one file per test record, in their
    order)

A prediction file holds one value per sample of csv/test.csv, from its first sample on:

- CSV with a header line: the columns named as the outputs are read, others (such as time) are not;
- NumPy .npy: an array (n,) for one output, (n, number of outputs) in general.

The first samples of every record, the initialisation window, are not scored: put the measured
outputs there. A file of the wrong length, or with values that are not finite, is refused: exit code
2.

Tasks: free_run, where the measured outputs after the window were not used, and one_step, where
sample k was predicted from the measured samples up to k-1. The formula is the same; say truthfully
which it was.

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


class Refused(Exception):
    """A file cannot be scored."""


def main(arguments: list[str] | None = None) -> int:
    """Score the files of the command line; returns the exit code."""
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
        help="what was predicted",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    try:
        result = score(options.predictions, options.task)
    except Refused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 2
    print(json.dumps(result, indent=2) if options.json else report(result))
    return 0


def score(files: list[Path], task: str) -> dict[str, Any]:
    """Scores of prediction files, one per test record."""
    about = read_json(HERE / "benchmark.json")
    records = about["test"]
    names = [output["name"] for output in about["outputs"]]
    if len(files) != len(records):
        raise Refused(
            f"expected {len(records)} prediction file(s), one per test record, got {len(files)}"
        )
    window = int(about["initialisation_window"])
    measured = [read_columns(HERE / record["measured"], names) for record in records]
    predicted = [read_predictions(path, names, len(y)) for path, y in zip(files, measured)]  # noqa: B905 (Python 3.8)
    result = {
        "benchmark": about["name"],
        "task": task,
        "n_scored": sum(len(y) - window for y in measured),
    }
    result.update(
        initialisation_window=window,
        outputs=scores(about["outputs"], measured, predicted, window),
    )
    truths = [HERE / record["noise_free"] for record in records]
    if all(path.is_file() for path in truths):
        noise_free = [
            read_columns(path, [f"{name}_noise_free" for name in names]) for path in truths
        ]
        result["against_noise_free"] = scores(about["outputs"], noise_free, predicted, window)
    return result


def scores(
    outputs: list[dict[str, str]],
    truth: list[np.ndarray],
    predicted: list[np.ndarray],
    window: int,
) -> dict[str, Any]:
    """RMSE, NRMSE and fit of every output, over all records together."""
    y, p = (np.concatenate([values[window:] for values in parts]) for parts in (truth, predicted))
    with np.errstate(over="ignore"):
        rmse = np.sqrt(np.mean((y - p) ** 2, axis=0)).tolist()
    result = {}
    for output, error, spread in zip(outputs, rmse, np.std(y, axis=0).tolist()):  # noqa: B905 (Python 3.8)
        nrmse, fit = (
            (100 * error / spread, 100 - 100 * error / spread) if spread > 0 else (None, None)
        )
        result[output["name"]] = {
            "unit": output["unit"],
            "rmse": error,
            "nrmse_percent": nrmse,
            "fit_percent": fit,
        }
    return result


def read_predictions(path: Path, names: list[str], n: int) -> np.ndarray:
    """Predictions (n, number of outputs), checked."""
    if not path.is_file():
        raise Refused(f"no file {path}")
    values = (
        read_npy(path, names, n) if path.suffix.lower() == ".npy" else read_columns(path, names)
    )
    if len(values) != n:
        found = len(values) if len(values) < n else f"more than {n}"
        raise Refused(
            f"{path} has {found} samples, the test record has {n}: predict every sample of it"
        )
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        k, i = bad[0]
        found = f"{path}: {names[i]} is {values[k, i]} at sample {k}, {len(bad)} value(s) are not finite"
        raise Refused(f"{found}; put the measured outputs into the initialisation window")
    return values


def read_npy(path: Path, names: list[str], n: int) -> np.ndarray:
    """Array of a NumPy file as (n, number of outputs); of more than n samples one more."""
    try:
        values = np.load(
            path, mmap_mode="r", allow_pickle=False
        )  # mapped: the header may claim any size
        values = values[: n + 1].astype(float)
    except (
        OSError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
    ) as error:
        raise Refused(f"cannot read {path} as an array of numbers: {error}") from error
    if values.ndim == 1 and len(names) == 1:
        return values[:, np.newaxis]
    if values.ndim != 2 or values.shape[1] != len(names):
        raise Refused(
            f"{path} has shape {values.shape}, expected (n, {len(names)}) for the outputs {', '.join(names)}"
        )
    return values


def read_columns(path: Path, names: list[str]) -> np.ndarray:
    """Columns of a CSV file (n, number of names), by its header line."""
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


def read_json(path: Path) -> dict[str, Any]:
    """Content of a JSON file of this folder."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise Refused(
            f"cannot read {path}: {error}; keep score.py in the folder of the benchmark"
        ) from error


def report(result: dict[str, Any]) -> str:
    """Scores in words, beside the noise floor and the baselines."""
    told = f"{result['n_scored']} samples scored, the first {result['initialisation_window']} of each record are not"
    lines = [f"{result['benchmark']}, {result['task']}: {told}"]
    for title, key in (("measured", "outputs"), ("noise-free", "against_noise_free")):
        for name, found in result.get(key, {}).items():
            line = f"{name} against {title} output: RMSE {found['rmse']:.6g} {found['unit']}"
            if found["nrmse_percent"] is not None:
                line += f", NRMSE {found['nrmse_percent']:.4g} %, fit {found['fit_percent']:.4g} %"
            lines.append(line)
    if (HERE / "scores.json").is_file():
        lines.append("")
        for model, found in read_json(HERE / "scores.json")[result["task"]].items():
            for name in found:
                value = found[name]["rmse"]
                lines.append(
                    f"  {model:15s} RMSE {'not finite' if value is None else format(value, '.6g')} ({name})"
                )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
