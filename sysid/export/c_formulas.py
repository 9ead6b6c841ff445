"""C formulas of kernels, criteria and insertion rules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

import numpy as np

from sysid.errors import UserError
from sysid.export.c_text import template
from sysid.gp.kernels import (
    Kernel,
    Linear,
    Matern32,
    Matern52,
    Product,
    SquaredExponential,
    Sum,
)
from sysid.gp.online import OnlineGP
from sysid.gp.rules import (
    AcceptAll,
    Always,
    Either,
    ErrorThreshold,
    ExceedsMinimum,
    LogPredictiveDensity,
    MarginalLogLikelihood,
    MeanRelevance,
    Novelty,
    PredictiveEntropy,
    PriorEntropy,
    VarianceThreshold,
)
from sysid.model.description import name_of

#: Formula of each kernel that is no sum or product.
KERNELS: dict[type, str] = {
    SquaredExponential: "squared_exponential",
    Matern32: "matern_32",
    Matern52: "matern_52",
    Linear: "linear",
}
#: Formulas of each criterion: reduction, acceptance, and gain, which forgetting weighs by age.
CRITERION_FORMULAS: dict[type, tuple[str, str, str]] = {
    PredictiveEntropy: ("predictive_entropy", "accept_by_entropy", "gain_of_entropy"),
    PriorEntropy: ("prior_entropy", "accept_by_entropy", "gain_of_entropy"),
    MeanRelevance: ("mean_relevance", "accept_by_error", "mean_relevance"),
    LogPredictiveDensity: ("negative_log_density", "negative_log_density", "gain_of_density"),
    MarginalLogLikelihood: ("negative_log_density", "negative_log_density", "gain_of_density"),
}
#: Formula of each insertion rule.
INSERTIONS: dict[type, str] = {
    Always: "always",
    VarianceThreshold: "variance_threshold",
    ErrorThreshold: "error_threshold",
    Either: "either_threshold",
    Novelty: "novelty_threshold",
}

FORMULA_LINE = re.compile(r"^/\* FORMULA (\w+)(?:: ([\w ]+))? \*/\n", re.MULTILINE)


class Covariance(NamedTuple):
    """Covariance function of the stored points, as C."""

    expression: str  # of theta, a and b
    parameters: np.ndarray  # theta
    variances: np.ndarray  # positions in theta that the scale of the variances multiplies
    formulas: list[str]


class LearningRules(NamedTuple):
    """What decides about the points while a model learns, as names of C formulas."""

    insertion: str
    thresholds: np.ndarray
    acceptance: str  # NULL: every candidate is accepted
    reference: str
    reduction: str

    @property
    def formulas(self) -> list[str]:
        """All formulas."""
        return [self.insertion, self.reduction, *([self.acceptance] * (self.acceptance != "NULL"))]


def covariance_of(kernel: Kernel) -> Covariance:
    """Return the covariance function of a kernel without linear part as C.

    Raises
    ------
    ValueError
        The kernel is not part of the toolbox.
    """
    parameters: list[float] = []
    formulas: list[str] = []
    expression = _expression(kernel, parameters, formulas)
    rescaled: list[float] = []
    _expression(kernel.scaled(2.0), rescaled, [])
    is_variance = np.abs(np.array(rescaled) / np.array(parameters) - 2.0) < 0.5
    return Covariance(expression, np.array(parameters), np.flatnonzero(is_variance), formulas)


def _expression(kernel: Kernel, parameters: list[float], formulas: list[str]) -> str:
    """Return a covariance as an expression; append its parameters and the formulas it needs."""
    if isinstance(kernel, Sum | Product):
        operation = " + " if isinstance(kernel, Sum) else " * "
        parts = [_expression(part, parameters, formulas) for part in kernel.parts]
        return f"({operation.join(parts)})"
    if type(kernel) not in KERNELS:
        raise no_formula(kernel)
    name = KERNELS[type(kernel)]
    formulas.append(name)
    first = len(parameters)
    values = kernel.parameters()
    if not isinstance(kernel, Linear):
        values = np.concatenate([values[:1], 1.0 / values[1:]])
    parameters.extend(values.tolist())
    return f"{name}(theta + {first}, a, b, {kernel.n_features})"


def learning_rules_of(gp: OnlineGP) -> LearningRules:
    """Return the rules by which a Gaussian process chooses its points.

    Raises
    ------
    ValueError
        A rule is not part of the toolbox.
    """
    if type(gp.insertion) not in INSERTIONS:
        raise no_formula(gp.insertion)
    acceptance = "NULL"
    reference = "ACCEPT_ALL"
    if isinstance(gp.acceptance, ExceedsMinimum):
        if type(gp.acceptance.criterion) not in CRITERION_FORMULAS:
            raise no_formula(gp.acceptance.criterion)
        _, acceptance, _ = CRITERION_FORMULAS[type(gp.acceptance.criterion)]
        reference = ["ACCEPT_ALL", "LEAVE_ONE_OUT", "IN_SAMPLE"][gp.acceptance.code]
    elif not isinstance(gp.acceptance, AcceptAll):
        raise no_formula(gp.acceptance)
    if type(gp.reduction) not in CRITERION_FORMULAS:
        raise no_formula(gp.reduction)
    reduction, _, gain = CRITERION_FORMULAS[type(gp.reduction)]
    weighs_age = gp.forgetting is not None and not gp.learns_every_sample
    return LearningRules(
        INSERTIONS[type(gp.insertion)],
        np.asarray(gp.insertion.parameters(), dtype=float),
        acceptance,
        reference,
        gain if weighs_age else reduction,
    )


def no_formula(thing: object) -> UserError:
    """Return the error for an object that is not part of the toolbox."""
    return UserError(
        f"{name_of(type(thing))} cannot be exported as C: a file contains only formulas of the "
        "toolbox; evaluate the model in Python with the toolbox, or contribute the formula to "
        "sysid.export"
    )


@cache
def _formulas() -> dict[str, tuple[str, list[str]]]:
    """Return the text of each formula, and the formulas that it needs, by name."""
    _, *pieces = FORMULA_LINE.split(template("formulas.c"))
    names, needed, texts = pieces[::3], pieces[1::3], pieces[2::3]
    return {
        name: (text.strip(), (needs or "").split())
        for name, needs, text in zip(names, needed, texts, strict=True)
    }


def formulas_text(used: Iterable[str]) -> str:
    """Return the text of these formulas, and of those that they need, in the order of the file."""
    known = _formulas()
    needed = set(used)
    for name in [*needed]:
        needed.update(known[name][1])
    return "\n\n".join(text for name, (text, _) in known.items() if name in needed)
