"""Errors of the model and of linear models, with and without the gross errors of the records."""

from collections.abc import Iterable
from math import isfinite
from typing import Any

#: errors of the models
ERRORS = ("rmse", "free_run_rmse", "free_run_fit_percent")


def without_gross_errors(key: str) -> str:
    """Return the name of an error on the samples that no gross error touches."""
    return f"{key}_without_gross_errors"


def errors_to_compare(models: Iterable[dict[str, Any]], key: str) -> str:
    """Return the name under which models are compared: that without gross errors if all have it.

    A model whose error is not known does not count.
    """
    known = [model for model in models if model[key] is not None]
    without = without_gross_errors(key)
    has_all = bool(known) and all(model.get(without) is not None for model in known)
    return without if has_all else key


def errors_of_model(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the errors of the model under the keys that linear models have."""
    free_run = summary["free_run"]
    free_run_rmse = None if free_run is None else free_run["rmse"]
    without = summary.get("free_run_without_gross_errors") or {}
    return {
        "rmse": summary["rmse"],
        "free_run_rmse": free_run_rmse,
        "free_run_diverges": free_run is not None and free_run_rmse is None,
        without_gross_errors("rmse"): known_value(summary.get("rmse_without_gross_errors")),
        without_gross_errors("free_run_rmse"): known_value(without.get("rmse")),
    }


def known_value(value: float | None) -> float | None:
    """Return a finite value; None if it is not known."""
    return value if value is not None and isfinite(value) else None
