"""Rows of the CSV files of tables 2 to 4."""

from experiments.studies.table_summary import Summary

COLUMNS = (
    "dataset",
    "setting",
    "criterion",
    "acceptance",
    "reference",
    "threshold",
    "smse",
    "smse_published",
    "n_revised",
    "n_revised_published",
    "accepted_percent",
    "accepted_percent_published",
    "n_seeds",
)


def long_row(cell: Summary) -> dict[str, object]:
    """Medians of a cell beside the published numbers; without data nan and no seed."""
    accepting = cell.variant != "none"
    values: tuple[object, ...] = (
        cell.dataset,
        cell.setting,
        cell.criterion,
        "matched" if accepting else "none",
        cell.variant if accepting else "",
        cell.median("threshold"),
        cell.smse,
        cell.published.smse,
        cell.median("n_revised"),
        cell.published.n_revised,
        cell.median("accepted_percent"),
        cell.published.accepted_percent,
        cell.n_seeds,
    )
    return dict(zip(COLUMNS, values, strict=True))
