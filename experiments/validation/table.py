"""The measures of a validation as a table of text."""

from math import isnan

from experiments.validation.assessment import Assessment
from experiments.validation.options import Case

HEADER = ("horizon", "window", "n", "left out", "RMSE", "fit %", "R2", "SMSE", "MSLL", "NLPD", "50 %", "90 %", "95 %")


def table(assessment: Assessment, output: str) -> list[str]:
    """Lines of the table of one output: a row for each horizon and window, the bands in percent of covered samples."""
    header = [f"RMSE [{assessment.error_unit(output)}]" if name == "RMSE" else name for name in HEADER]
    return aligned([header, *(_row(assessment, case, output) for case in assessment.forecasts)])


def _row(assessment: Assessment, case: Case, output: str) -> list[str]:
    s = assessment.scores[case][output]
    covered = [_fixed(100 * share, 1) for share in (s.coverage_50, s.coverage_90, s.coverage_95)]
    return [
        case.words,
        str(case.window),
        str(s.n),
        str(assessment.n_left_out(case)),
        _short(s.rmse),
        _fixed(s.fit_percent, 2),
        _short(s.r2),
        _short(s.smse),
        _fixed(s.msll, 2),
        _fixed(s.nlpd, 2),
        *covered,
    ]


def _short(value: float) -> str:
    return "-" if isnan(value) else f"{value:.4g}"


def _fixed(value: float, digits: int) -> str:
    return "-" if isnan(value) else f"{value:.{digits}f}"


def aligned(rows: list[list[str]]) -> list[str]:
    """Columns of texts: the first to the left, the others to the right.

    >>> aligned([["a", "b"], ["long", "1.5"]])
    ['a       b', 'long  1.5']
    """
    widths = [max(len(row[j]) for row in rows) for j in range(len(rows[0]))]
    return [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
