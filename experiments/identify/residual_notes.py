"""Notes on what the errors of a model still contain: tests of its predictions one step ahead."""

import numpy as np

from experiments.identify.result import Result
from experiments.identify.settings import LagOptions
from experiments.validate.report import MAX_RESIDUAL_LAG, MIN_TESTED_PART_SAMPLES
from sysid import ResidualReport, residual_tests
from sysid.choices import choices_of
from sysid.narx.lags import consecutive
from sysid.simulation.residual_advice import Choices, advise
from sysid.simulation.residuals import most_lags


def note_residuals(result: Result, lags: LagOptions) -> list[str]:
    """Return notes on the errors one step ahead of the validation part, with what to do."""
    tests = run_residual_tests(result)
    if tests is None:
        return []
    automatic = "narx=auto"
    finds_dead_times = lags.are_automatic or lags.all_begin_with_dead_times
    if result.source.recordings() is None:  # automatic lags of a plant follow from its equations
        automatic = "narx.nk=auto"
        finds_dead_times |= not lags.are_orders
    choices = open_choices(result, has_automatic_lags=finds_dead_times)
    return advise(tests, result.identification.narx, choices, automatic=automatic)


def open_choices(result: Result, *, has_automatic_lags: bool) -> Choices:
    """Return what was chosen for the model of a run, and what a user can still change."""
    source = result.source
    return choices_of(
        result.identification,
        source.lag_choice,
        source.budget_choice,
        n_rows=len(result.record),
        is_stream=result.learns_a_stream,
        has_automatic_lags=has_automatic_lags,
    )


def run_residual_tests(result: Result) -> ResidualReport | None:
    """Return the tests of the errors one step ahead of the validation part.

    None without lags, when the order of the samples means nothing, and if no part is long enough.
    Samples that a gross error touches are left out.
    Inputs that a controller may set are tested from lag 1 on, because their present value depends
    on the error.
    """
    rows = result.validation
    source = result.source
    recordings = source.recordings()
    narx = result.identification.narx
    if rows is None or not len(result.predicted.mean) or not narx.max_lag:
        return None
    error = rows["target"].values - result.predicted.mean
    is_kept = np.isfinite(error) & result.is_untouched
    record = rows["record"].values
    time = rows["time"].values
    inputs = [name for name in source.inputs if name in result.signals[0]]
    errors = []
    of_inputs = []
    kept = np.flatnonzero(is_kept)
    is_first = ~consecutive(rows)[kept]
    is_first[1:] |= np.diff(kept) > 1
    for kept_part in np.split(kept, np.flatnonzero(is_first[1:]) + 1):
        if len(kept_part) < MIN_TESTED_PART_SAMPLES:
            continue
        begin = int(kept_part[0])
        end = int(kept_part[-1]) + 1
        signals = result.signals[int(record[begin])]
        first = int(np.searchsorted(signals["time"].values, time[begin]))
        part = slice(first, first + end - begin)
        values = np.array([signals[name].values[part] for name in inputs]).T
        if np.isfinite(values).all():
            errors.append(error[begin:end])
            of_inputs.append(values)
    if not errors:
        return None
    n_lags = min(MAX_RESIDUAL_LAG, most_lags([len(part) for part in errors]))
    return residual_tests(
        errors,
        of_inputs if inputs else None,
        n_lags=n_lags,
        input_start=1 if recordings is None else 0,
        output_names=[narx.target],
        input_names=inputs if inputs else None,
    )
