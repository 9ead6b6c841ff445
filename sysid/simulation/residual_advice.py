"""What a user can do about the structure that residual tests find."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sysid.gp.kernels import Linear
from sysid.gp.training import MaximumLikelihood, Training
from sysid.model.model import Model
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


@dataclass(frozen=True)
class Choices:
    """What was chosen for a model, and what a user can still change."""

    #: whether the lags were chosen automatically; they are not recommended then
    has_automatic_lags: bool
    #: lags of each signal that the automatic choice compared on held-out parts
    tried_lags: Mapping[str, Collection[int]] = field(default_factory=dict)
    #: what may help a model that describes a lag badly, as `find_remedies` returns it
    remedies: Sequence[str] = ()
    #: whether the model minimises the error of the free run: its errors one step ahead then follow
    #: from their own past also where its dynamics are right
    is_for_free_run: bool = False


def find_remedies(
    model: Model,
    training: Training | None = None,
    *,
    n_rows: int = 0,
    is_stream: bool = False,
    budget_is_chosen: bool = False,
    kernel_is_chosen: bool = False,
) -> list[str]:
    """Return what a user can change where a model describes a lag badly that it knows.

    Parameters
    ----------
    model : Model
    training : Training, optional
        Its training; None: it is not known.
    n_rows : int
        Number of rows that the training could have used.
    is_stream : bool
        Whether the hyper-parameters come from the first samples of a stream.
    budget_is_chosen, kernel_is_chosen
        Whether the number of points, or that the model is linear, was chosen by held-out errors.
        Other choices were no better then.
    """
    gp = model.gp
    has_linear_kernel = isinstance(gp.point_kernel, Linear)
    # the points of a linear model that is trained for the free run have no weight
    has_idle_points = gp.n_points > 0 and not gp.targets.any()
    if has_linear_kernel or has_idle_points:
        is_set = has_linear_kernel and not kernel_is_chosen
        return ["take another kernel than the linear one"] if is_set else []
    remedies = []
    if gp.n_points >= gp.budget and not budget_is_chosen:
        remedies.append("raise the budget")
    if isinstance(training, MaximumLikelihood):
        name = "n_initial" if is_stream else "record_samples"
        if getattr(training, name) < n_rows:
            remedies.append(f"give the training more samples ({name})")
    return remedies


def advise(
    report: ResidualReport, narx: Narx, choices: Choices, *, automatic: str = "narx=auto"
) -> list[str]:
    """Return a sentence for each strong correlation of errors one step ahead, with what to do.

    Parameters
    ----------
    report
        Tests of the errors one step ahead. Inputs are named as in `narx`.
    narx
        Lags of the model.
    choices
        What was chosen for the model, and what can be changed.
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
        what_to_do = _advise_on_input(test, narx, choices, automatic)
        advice.append(f"{found}, {what_to_do}")
    if not advice and not choices.is_for_free_run:
        advice += _advise_on_past(report, narx, choices)
    return advice


def _advise_on_input(test: CorrelationTest, narx: Narx, choices: Choices, automatic: str) -> str:
    """Return whether the model knows the lag of an input that its errors contain, and what to do.

    A linear part knows an input, but not its square.
    """
    lag = test.largest_lag
    known = set(narx.lags.get(test.input, ()))
    if test.name == "input":
        known |= set(narx.linear_lags.get(test.input, ()))
    if lag in known:
        remedies = choices.remedies or [
            "nothing is left to set, so learn more samples like those that it predicts badly"
        ]
        return f"which the model knows but describes badly there: {', or '.join(remedies)}"
    if lag in choices.tried_lags.get(test.input, ()):
        return (
            "which the automatic lags leave out, as it did not lower the error on held-out parts "
            "of the learned samples: the samples here may differ from those"
        )
    finds_dead_times = f"; {automatic} finds dead times"
    is_automatic = choices.has_automatic_lags
    if is_automatic or len(narx.output_names) > 1:  # several outputs need the same lags
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
    if lag < max(known):
        return f"but its lags leave this one out: give it this lag{finds_dead_times}"
    return f"but its lags end with {max(known)}: give it lags up to {lag}{finds_dead_times}"


def _advise_on_past(report: ResidualReport, narx: Narx, choices: Choices) -> list[str]:
    """Return advice about errors that can be predicted from their own past."""
    for test in report.tests:
        is_strong = test.p_value <= MAX_P_VALUE and abs(test.largest) >= MIN_AUTOCORRELATION
        if test.name != "autocorrelation" or test.output != narx.target or not is_strong:
            continue
        lags = narx.lags[narx.target]
        if not lags:  # it predicts without feedback
            continue
        what_to_do = f"give {test.output} more lags"
        if not narx.linear:
            what_to_do += ", or a linear part with a long memory"
        if max(choices.tried_lags.get(narx.target, ()), default=0) > max(lags):
            what_to_do = (
                "more lags did not lower the error on held-out parts of the learned samples, so "
                "the samples here differ from those, or a disturbance acts that is not measured"
            )
        return [
            f"the errors of {test.output} can be predicted from their own past (lag "
            f"{test.largest_lag}, {test.largest:+.2f}): {what_to_do}"
        ]
    return []
