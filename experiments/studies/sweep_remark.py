"""Numbers behind the paper's claims on the error threshold (section 6); their verdicts belong to the guidelines."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from experiments.studies.figure_claims import BUILDING_FLAT, BUILDING_KNEE, VAN_DER_POL_KNEE
from experiments.studies.label import LABELS
from experiments.studies.statement import quartile_text
from experiments.studies.tasks.building import BuildingTask
from experiments.studies.tasks.van_der_pol import VanDerPolTask


def remarks(task: str, part: xr.Dataset) -> str:
    """Numbers of one setting and variant; empty for another task, or without the thresholds they need."""
    part = part.transpose("criterion", "threshold", "seed").dropna("threshold", how="all", subset=["smse"])
    lines = {VanDerPolTask.name: _van_der_pol, BuildingTask.name: _building}[task](part)
    return "\n".join(f"- {line}" for line in lines)


def _van_der_pol(part: xr.Dataset) -> list[str]:
    """Who is lowest below 0.005, and by how much the SMSE rises again."""
    low = part.sel(threshold=part["threshold"] < VAN_DER_POL_KNEE)
    if not low.sizes["threshold"]:
        return []
    smse = low["smse"].values  # (criterion, threshold, seed)
    level = np.exp(np.log(smse).mean(axis=1))
    level = level[:, np.isfinite(level).all(axis=0)]
    wins = np.bincount(level.argmin(axis=0), minlength=len(level))
    names = [LABELS[name] for name in low["criterion"].values.tolist()]
    counts = ", ".join(f"{name} {n}" for name, n in zip(names, wins, strict=True))
    return [
        f"Seeds with the lowest SMSE (geometric mean over the thresholds below {VAN_DER_POL_KNEE:g} m): {counts}.",
        "SMSE at the lowest threshold over the lowest of all thresholds (1: it does not rise again): "
        + _told(names, part["smse"].values[:, 0] / part["smse"].values.min(axis=1)),
    ]


def _building(part: xr.Dataset) -> list[str]:
    """Gain below 0.15 K, SMSE at the lowest threshold, growth of the number of revised points."""
    thresholds = part["threshold"].values
    names = [LABELS[name] for name in part["criterion"].values.tolist()]
    smse, revised = part["smse"].values, part["n_revised"].values
    is_below = thresholds < BUILDING_KNEE - 1e-9
    lines = []
    if is_below.any() and np.isclose(thresholds, BUILDING_KNEE).any():
        at = smse[:, np.flatnonzero(np.isclose(thresholds, BUILDING_KNEE))[0]]
        lines += [
            f"Lowest SMSE below {BUILDING_KNEE:g} K over that at {BUILDING_KNEE:g} K: "
            + _told(names, smse[:, is_below].min(axis=1) / at),
            f"SMSE at {thresholds[0]:g} K over that at {BUILDING_KNEE:g} K: " + _told(names, smse[:, 0] / at),
        ]
    upper = np.flatnonzero(thresholds <= BUILDING_FLAT + 1e-9)
    if len(upper) > 1:
        growth = revised[:, 0] / np.maximum(revised[:, upper[-1]], 1.0)
        between = f"{thresholds[0]:g} K over those at {thresholds[upper[-1]]:g} K"
        lines.append(f"Revised points at {between}: " + _told(names, growth))
    return lines


def _told(names: Sequence[str], values: np.ndarray) -> str:
    """Median and quartiles over seeds (criterion, seed)."""
    return ", ".join(f"{name} {quartile_text(row)}" for name, row in zip(names, values, strict=True)) + "."
