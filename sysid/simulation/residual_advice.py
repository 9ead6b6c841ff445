"""What a user can do about the structure that residual tests find."""

from sysid.narx.lags import Narx
from sysid.simulation.residuals import CorrelationTest, ResidualReport

#: There is advice only about correlations of at least this size: smaller ones are found in long
#: records of nearly every model, and explain less than 6 % of the variance of its errors.
MIN_ADVISED_CORRELATION = 0.25

#: There is advice about the past errors only from this correlation on.
MIN_AUTOCORRELATION = 0.5

#: largest p-value of a test that leads to advice
MAX_P_VALUE = 1e-4

#: tests of an input, with the words for what the errors contain
INPUT_TESTS = {"input": "{}", "squared_input": "the square of {}"}


def advise(
    report: ResidualReport, narx: Narx, *, has_automatic_lags: bool, automatic: str = "narx=auto"
) -> list[str]:
    """Return a sentence for each strong correlation of errors one step ahead, with what to do.

    Parameters
    ----------
    report
        Tests of the errors one step ahead. Inputs are named as in `narx`.
    narx
        Lags of the model.
    has_automatic_lags
        Whether the lags were chosen automatically; they are not recommended then.
    automatic
        How automatic lags are written.
    """
    if narx.max_lag == 0:
        return []
    advice = []
    strongest: dict[tuple[str, str], CorrelationTest] = {}
    for test in report.tests:
        if test.p_value > MAX_P_VALUE or test.output != narx.target:
            continue
        if test.name in INPUT_TESTS and abs(test.largest) >= MIN_ADVISED_CORRELATION:
            key = test.output, test.input
            if key not in strongest or abs(test.largest) > abs(strongest[key].largest):
                strongest[key] = test
    for (output, name), test in strongest.items():
        contents = INPUT_TESTS[test.name].format(name)
        found = f"the errors of {output} still contain {contents} at lag {test.largest_lag}"
        found += f" ({test.largest:+.2f})"
        what_to_do = _advise_on_input(test, narx, has_automatic_lags, automatic)
        advice.append(f"{found}, {what_to_do}")
    if not advice:
        advice += _advise_on_past(report, narx)
    return advice


def _advise_on_input(
    test: CorrelationTest, narx: Narx, has_automatic_lags: bool, automatic: str
) -> str:
    """Return whether the model knows the lag of an input that its errors contain, and what to do.

    A linear part knows an input, but not its square.
    """
    lag = test.largest_lag
    known = set(narx.lags.get(test.input, ()))
    if test.name == "input":
        known |= set(narx.linear_lags.get(test.input, ()))
    if lag in known:
        return (
            "which the model knows but describes badly there: raise the budget, or give the "
            "training more samples"
        )
    finds_dead_times = f"; {automatic} finds dead times"
    if has_automatic_lags or len(narx.output_names) > 1:  # several outputs need the same lags
        finds_dead_times = ""
    if not known:
        return f"which is not among the lags of the model: give {test.input} this lag" + (
            finds_dead_times
        )
    if lag < min(known):
        return (
            f"but its lags begin with {min(known)}: begin with {lag}, as with narx=lags"
            f"{finds_dead_times}"
        )
    return f"but its lags end with {max(known)}: give it lags up to {lag}{finds_dead_times}"


def _advise_on_past(report: ResidualReport, narx: Narx) -> list[str]:
    """Return advice about errors that can be predicted from their own past."""
    for test in report.tests:
        is_strong = test.p_value <= MAX_P_VALUE and abs(test.largest) >= MIN_AUTOCORRELATION
        if test.name != "autocorrelation" or test.output != narx.target or not is_strong:
            continue
        has_lags = bool(narx.lags[narx.target])
        if not has_lags:  # it predicts without feedback
            continue
        linear_part = "" if narx.linear else ", or a linear part with a long memory"
        return [
            f"the errors of {test.output} can be predicted from their own past (lag "
            f"{test.largest_lag}, {test.largest:+.2f}): give {test.output} more lags{linear_part}"
        ]
    return []
