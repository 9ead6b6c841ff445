"""A stream of rows offered to an online GP, and how good the model is afterwards."""

import time
from typing import NamedTuple

import numpy as np

from experiments.studies.tasks.task import TaskData
from sysid import (
    AcceptAll,
    Acceptance,
    Criterion,
    ExceedsMinimum,
    Hyperparameters,
    Identification,
    Insertion,
    MarginalLogLikelihood,
    MaximumAPosteriori,
    MeanRelevance,
    Narx,
    OnlineGP,
    PriorEntropy,
    Reference,
    Scaling,
    Settings,
    Start,
    Target,
    Training,
    ZeroMean,
    standardised_mean_squared_error,
    validate,
)

#: the three criteria of the tables; the other two select the same points (section 3.2 of the paper)
CRITERIA: dict[str, Criterion] = {
    "prior_entropy": PriorEntropy(),
    "mean_relevance": MeanRelevance(),
    "marginal_log_likelihood": MarginalLogLikelihood(),
}
#: variants of a table: without acceptance, and with the matched criterion under each reference
VARIANTS = ("none", Reference.leave_one_out.value, Reference.in_sample.value, Reference.published.value)


class Outcome(NamedTuple):
    """What became of a stream."""

    smse: float  # on the test rows
    smse_initial: float  # of the model before the stream
    mean_variance: float  # latent, on the test rows, target unit^2
    coverage_95: float  # on the test rows
    nlpd: float  # nats, on the test rows
    n_offered: int
    n_inserted: int  # that passed the insertion rule
    n_revised: int  # that entered the dictionary
    n_estimates: int  # of hyper-parameters during the stream
    seconds: float

    @property
    def accepted_percent(self) -> float:
        """Share of the inserted points that entered; nan if none was inserted."""
        return 100.0 * self.n_revised / self.n_inserted if self.n_inserted else float("nan")


def offer(identification: Identification, data: TaskData, *, smse_initial: float | None = None) -> Outcome:
    """Offer the stream to an identification that has seen the initial rows, score on the test rows.

    `smse_initial` spares the prediction by the initial model, which is the same under all rules, if it is known.
    """
    start = identification.hyperparameters
    assert start is not None
    begin = time.perf_counter()
    record = identification.observe_many(data.inputs, data.targets)
    seconds = time.perf_counter() - begin
    model, adaptation = identification.model, identification.adaptation
    assert model is not None
    mean, variance = model.predict(data.test_inputs)
    final = validate(data.test_targets, mean, variance, model.gp.noise_variance)
    return Outcome(
        smse=final.smse,
        smse_initial=initial_smse(data, start) if smse_initial is None else smse_initial,
        mean_variance=float(np.mean(variance)),
        coverage_95=final.coverage_95,
        nlpd=final.nlpd,
        n_offered=len(data.targets),
        n_inserted=int(record["inserted"].sum()),
        n_revised=int(record["accepted"].sum()),
        n_estimates=0 if adaptation is None else len(adaptation.estimates),
        seconds=seconds,
    )


def initial_smse(data: TaskData, hyperparameters: Hyperparameters) -> float:
    """SMSE on the test rows of the model of all initial rows."""
    n = len(data.initial_targets)
    gp = OnlineGP(hyperparameters.kernel, noise_variance=hyperparameters.noise_variance, budget=n)
    mean, _ = gp.fit(data.initial_inputs, data.initial_targets).predict(data.test_inputs)
    return standardised_mean_squared_error(data.test_targets, mean)


def identification_of(
    data: TaskData,
    hyperparameters: Hyperparameters,
    insertion: Insertion,
    acceptance: Acceptance,
    reduction: Criterion,
    *,
    budget: int,
    seed: int,
    training: Training | None = None,
) -> Identification:
    """Identification that has seen the initial rows and nothing else; inputs and targets stay as they are scaled.

    `training` follows the stream, if it can (`sysid.Adaptive`); by default the hyper-parameters stay.
    """
    settings = Settings(
        training=MaximumAPosteriori(n_initial=len(data.initial_targets)) if training is None else training,
        insertion=insertion,
        acceptance=acceptance,
        reduction=reduction,
        budget=budget,
        seed=seed,
    )
    p = data.inputs.shape[1]
    start = Start(scaling=Scaling.identity(p), mean=ZeroMean(), hyperparameters=hyperparameters)
    identification = Identification(rows_without_lags(p), settings, start=start)
    identification.observe_many(data.initial_inputs, data.initial_targets)
    return identification


def rows_without_lags(n_features: int) -> Narx:
    """Features as they are: `z1` to `zp` of the same row, the target is `y`."""
    return Narx({"y": []}, {f"z{d + 1}": [0] for d in range(n_features)}, predict=Target.value)


def acceptance_of(criterion: Criterion, variant: str) -> Acceptance:
    """Acceptance of one of the `VARIANTS`."""
    return AcceptAll() if variant == "none" else ExceedsMinimum(criterion, reference=variant)


def distinct_variants(criterion: Criterion) -> dict[str, str]:
    """Each variant to one that makes the same decisions: the published reference is one of the other two."""
    published: Reference = criterion.published_reference
    return {variant: published.value if variant == Reference.published.value else variant for variant in VARIANTS}


def spread(values: np.ndarray) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile, without nan."""
    low, middle, high = np.nanquantile(values, [0.25, 0.5, 0.75])
    return float(low), float(middle), float(high)
