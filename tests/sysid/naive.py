"""Deliberately naive references: everything from scratch, one GP per left-out point, no shared formula."""

import importlib
import inspect
import pkgutil
from dataclasses import dataclass, fields
from types import ModuleType

import numpy as np
from numba import config

import sysid.criteria
import sysid.insertion
from sysid import OnlineGP, SquaredExponential
from sysid.acceptance import AcceptAll, Acceptance, ExceedsMinimum
from sysid.criteria import Criterion
from sysid.insertion import Insertion
from sysid.reference import Reference

COMPILED = not config.DISABLE_JIT
LOG_2PI = np.log(2.0 * np.pi)


def concrete_classes(package: ModuleType, role: type) -> list[type]:
    """Every concrete class of a role that a module of the package defines, by name."""
    found = set()
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        for member in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(member) and issubclass(member, role) and not inspect.isabstract(member):
                found.add(member)
    return sorted(found - {role}, key=lambda member: member.__name__)


CRITERIA = [criterion() for criterion in concrete_classes(sysid.criteria, Criterion)]
INSERTIONS = concrete_classes(sysid.insertion, Insertion)


def criterion_name(criterion: Criterion) -> str:
    return type(criterion).__name__


def insertion_rule(rule: type, variance_threshold: float, error_threshold: float) -> Insertion:
    """Rule with one of two thresholds for each of its fields, by what the field's name says."""
    values = {"variance": variance_threshold, "error": error_threshold}
    return rule(**{field.name: values[field.name.split("_")[0]] for field in fields(rule)})


@dataclass(frozen=True)
class NaiveGP:
    """GP of section 2 by explicit inverses."""

    variance: float
    length_scales: tuple[float, ...]
    noise_variance: float
    inputs: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)

    def kernel(self, first, second):
        out = np.empty((len(first), len(second)))
        for i, x in enumerate(first):
            for j, z in enumerate(second):
                out[i, j] = self.variance * np.exp(-0.5 * np.sum(((x - z) / np.array(self.length_scales)) ** 2))
        return out

    @property
    def ky(self):
        difference = (self.inputs[:, None, :] - self.inputs[None, :, :]) / np.array(self.length_scales)
        k = self.variance * np.exp(-0.5 * (difference**2).sum(axis=2))
        return k + self.noise_variance * np.eye(len(self.targets))

    def predict(self, points):
        """Mean and latent variance at points (m, p)."""
        if len(self.targets) == 0:
            return np.zeros(len(points)), np.full(len(points), self.variance)
        ks, inverse = self.kernel(points, self.inputs), np.linalg.inv(self.ky)
        return ks @ inverse @ self.targets, self.variance - np.diag(ks @ inverse @ ks.T)

    def predict_one(self, x):
        mean, latent = self.predict(np.asarray(x, dtype=float)[None, :])
        return float(mean[0]), float(latent[0])

    def log_likelihood(self):
        n, (_, log_determinant) = len(self.targets), np.linalg.slogdet(self.ky)
        return -0.5 * self.targets @ np.linalg.solve(self.ky, self.targets) - 0.5 * log_determinant - 0.5 * n * LOG_2PI

    def without(self, i):
        return self.with_data(np.delete(self.inputs, i, axis=0), np.delete(self.targets, i))

    def plus(self, x, y):
        return self.with_data(np.vstack([self.inputs, x]), np.append(self.targets, y))

    def with_data(self, inputs, targets):
        return NaiveGP(self.variance, self.length_scales, self.noise_variance, inputs, targets)

    def left_out(self, i):
        """Residual and latent variance of point i by the GP without it."""
        mean, latent = self.without(i).predict_one(self.inputs[i])
        return float(self.targets[i]) - mean, latent


def negative_log_density(residual, variance):
    return 0.5 * (LOG_2PI + np.log(variance)) + 0.5 * residual**2 / variance


def prior_entropy(model, i):
    """Minus the joint entropy of the noisy observations without point i."""
    n, (_, log_determinant) = len(model.targets) - 1, np.linalg.slogdet(model.without(i).ky)
    return -0.5 * n * (1.0 + LOG_2PI) - 0.5 * log_determinant


def predictive_entropy(model, i):
    """Entropy of the latent function at x_i, given the others."""
    return 0.5 * (1.0 + LOG_2PI) + 0.5 * np.log(model.left_out(i)[1])


def mean_relevance(model, i):
    """Squared change of the mean at x_i when point i is left out."""
    x = model.inputs[i]
    return (model.predict_one(x)[0] - model.without(i).predict_one(x)[0]) ** 2


def marginal_log_likelihood(model, i):
    return model.without(i).log_likelihood()


def log_predictive_density(model, i):
    residual, latent = model.left_out(i)
    return negative_log_density(residual, latent + model.noise_variance)


PUBLISHED_REDUCTION = {
    "PriorEntropy": prior_entropy,
    "PredictiveEntropy": predictive_entropy,
    "MeanRelevance": mean_relevance,
    "MarginalLogLikelihood": marginal_log_likelihood,
    "LogPredictiveDensity": log_predictive_density,
}

#: f_acc of section 3.3 as a function of (residual, latent variance, noise variance)
PUBLISHED_ACCEPTANCE = {
    "PriorEntropy": lambda r, latent, noise: latent,
    "PredictiveEntropy": lambda r, latent, noise: latent,
    "MeanRelevance": lambda r, latent, noise: r**2,
    "MarginalLogLikelihood": lambda r, latent, noise: negative_log_density(r, latent + noise),
    "LogPredictiveDensity": lambda r, latent, noise: negative_log_density(r, latent + noise),
}

PUBLISHED_REFERENCE = {
    "PriorEntropy": "in_sample",
    "PredictiveEntropy": "in_sample",
    "MeanRelevance": "in_sample",
    "MarginalLogLikelihood": "leave_one_out",
    "LogPredictiveDensity": "leave_one_out",
}


def plain(formula):
    """Formula without its compiled wrapper."""
    return getattr(formula, "py_func", formula)


def reduction_score(criterion, model, i):
    """f_red of point i of the model; a criterion that the paper does not know uses its own formula."""
    if criterion_name(criterion) in PUBLISHED_REDUCTION:
        return PUBLISHED_REDUCTION[criterion_name(criterion)](model, i)
    residual, latent = model.left_out(i)
    return plain(type(criterion).reduction)(residual, latent + model.noise_variance, model.noise_variance)


def reduction_scores(criterion, model, n):
    return np.array([reduction_score(criterion, model, i) for i in range(n)])


def acceptance_score(criterion, residual, latent, noise):
    if criterion_name(criterion) in PUBLISHED_ACCEPTANCE:
        return PUBLISHED_ACCEPTANCE[criterion_name(criterion)](residual, latent, noise)
    return plain(type(criterion).acceptance)(residual, latent + noise, noise)


def resolved_reference(acceptance):
    name = acceptance.reference.value
    if name != "published":
        return name
    known = PUBLISHED_REFERENCE.get(criterion_name(acceptance.criterion))
    return known or acceptance.criterion.published_reference.value


def stored_acceptance_scores(acceptance, model):
    """f_acc of every stored point."""
    scores = []
    for i in range(len(model.targets)):
        if resolved_reference(acceptance) == "leave_one_out":
            residual, latent = model.left_out(i)
        else:
            mean, latent = model.predict_one(model.inputs[i])
            residual = model.targets[i] - mean
        scores.append(acceptance_score(acceptance.criterion, residual, latent, model.noise_variance))
    return np.array(scores)


def wants_place(rule, error, latent):
    """Algorithm 2: a variance above its threshold or an error of at least its own."""
    known = {"Always", "EitherThreshold", "ErrorThreshold", "VarianceThreshold"}
    if type(rule).__name__ not in known:
        return bool(plain(type(rule).formula)(error, latent, rule.parameters()))
    if type(rule).__name__ == "Always":
        return True
    return latent > getattr(rule, "variance_threshold", np.inf) or abs(error) >= getattr(
        rule, "error_threshold", np.inf
    )


class NaiveOnlineGP:
    """Algorithm 1 with a Python list of (slot, x, y), oldest first, and new GPs for every sample."""

    def __init__(self, variance, length_scales, noise_variance, budget, insertion, acceptance, reduction):
        self.settings = (variance, tuple(length_scales), noise_variance)
        self.budget, self.insertion, self.acceptance, self.reduction = (
            budget,
            insertion,
            acceptance,
            reduction,
        )
        self.points = []

    def model(self):
        inputs = np.array([x for _, x, _ in self.points]).reshape(len(self.points), len(self.settings[1]))
        return NaiveGP(*self.settings, inputs, np.array([y for _, _, y in self.points]))

    def update(self, x, y):
        """Dictionary with the fields of an `UpdateReport` but the reduction score."""
        model, nan = self.model(), float("nan")
        mean, latent = model.predict_one(x)
        report = {"mean": mean, "variance": latent, "inserted": wants_place(self.insertion, y - mean, latent)}
        report |= {"accepted": False, "slot": -1, "removed": -1, "n_points": len(self.points)}
        report |= {"acceptance_score": nan, "acceptance_minimum": nan}
        if not report["inserted"]:
            return report
        if len(self.points) < self.budget:
            report |= {"accepted": True, "slot": len(self.points), "n_points": len(self.points) + 1}
            self.points.append((len(self.points), x, y))
            return report
        if isinstance(self.acceptance, ExceedsMinimum):
            noise = model.noise_variance
            score = acceptance_score(self.acceptance.criterion, y - mean, latent, noise)
            least = stored_acceptance_scores(self.acceptance, model).min()
            report |= {"acceptance_score": score, "acceptance_minimum": least}
            if not score > least:
                return report
        scores = reduction_scores(self.reduction, model.plus(x, y), len(self.points))
        slot, _, _ = self.points.pop(first_lowest(scores))
        self.points.append((slot, x, y))
        return report | {"accepted": True, "slot": slot, "removed": slot}


def first_lowest(scores):
    """Oldest of the points whose score is the lowest up to rounding."""
    return int(np.flatnonzero(scores <= scores.min() + 1e-9 * max(1.0, abs(scores.min())))[0])


def backward_elimination(criterion, model, n_points):
    """Indices that stay when the point of lowest f_red goes, one by one."""
    kept = list(range(len(model.targets)))
    while len(kept) > n_points:
        current = model.with_data(model.inputs[kept], model.targets[kept])
        del kept[first_lowest(reduction_scores(criterion, current, len(kept)))]
    return kept


def narx_stream(n, seed, noise_std=0.0):
    """Lagged regressors (n, 4), standardised and almost collinear, and the next output of a smooth plant."""
    rng = np.random.default_rng(seed)
    u = np.convolve(rng.normal(size=n + 3), np.ones(5) / 5, "same")
    y = np.zeros(n + 3)
    for k in range(2, n + 3):
        y[k] = 0.6 * np.tanh(y[k - 1]) + 0.25 * y[k - 2] + 0.5 * u[k - 1]
    x = np.stack([y[1:-2], y[:-3], u[1:-2], u[:-3]], axis=1)
    return (x - x.mean(axis=0)) / x.std(axis=0), y[2:-1] + noise_std * rng.normal(size=n)


def random_stream(n, n_features, seed):
    """Inputs from a growing box, so that there is news all the time, and a nonlinear target with noise."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(n, n_features)) * np.linspace(0.2, 1.2, n)[:, None]
    return x, np.sin(2.0 * x[:, 0]) + 0.5 * x.sum(axis=1) + 0.1 * rng.normal(size=n)


def matched_and_crossed(criterion: Criterion) -> list[Acceptance]:
    """No acceptance, the criterion's own with every reference, and that of another criterion."""
    position = [criterion_name(other) for other in CRITERIA].index(criterion_name(criterion))
    other = CRITERIA[(position + 2) % len(CRITERIA)]
    matched = [ExceedsMinimum(criterion, reference) for reference in Reference]
    return [AcceptAll(), *matched, ExceedsMinimum(other)]


def online_gp(n_features, *, variance=1.0, length_scale=0.8, noise_variance=1e-2, budget=6, **roles):
    return OnlineGP(
        SquaredExponential(variance, [length_scale] * n_features),
        noise_variance=noise_variance,
        budget=budget,
        **roles,
    )


def scratch(gp):
    """Naive GP of what an online GP stores, by slot."""
    return NaiveGP(gp.kernel.variance, gp.kernel.length_scales, gp.noise_variance, gp.inputs, gp.targets)
