"""Deliberately naive references: everything from scratch, one GP per left-out point, no shared
formula.
"""

from dataclasses import dataclass, fields

import numpy as np
from sklearn.gaussian_process.kernels import DotProduct, Matern

from sysid.gp import rules
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

LOG_2PI = np.log(2.0 * np.pi)
CRITERIA = [kind() for kind in rules.CRITERIA.values()]
INSERTIONS = [rules.Always, rules.Either, rules.ErrorThreshold, rules.VarianceThreshold]


def criterion_name(criterion: rules.Criterion) -> str:
    return type(criterion).__name__


def insertion_rule(
    rule: type, variance_threshold: float, error_threshold: float
) -> rules.Insertion:
    """Rule with one of two thresholds for each of its fields, by what the field's name says."""
    values = {"variance": variance_threshold, "error": error_threshold}
    return rule(**{field.name: values[field.name.split("_")[0]] for field in fields(rule)})


class Oldest(rules.Criterion):
    """All points are worth the same, so the oldest leaves."""

    reduction = staticmethod(lambda residual, variance, noise_variance: 1.0)
    acceptance = reduction
    published_reference = rules.Reference.leave_one_out


# --- kernels ----------------------------------------------------------------------------------------

NUS = {Matern32: 1.5, Matern52: 2.5}
LENGTHS = (0.7, 1.9, 1.1)

SE = SquaredExponential(1.3, LENGTHS)
M32 = Matern32(0.8, LENGTHS[::-1])
M52 = Matern52(2.1, LENGTHS)
LINEAR = Linear(0.4, (0.6, 0.05, 1.2))

#: one kernel of every kind
FAMILY = {
    "squared_exponential": SE,
    "matern_32": M32,
    "matern_52": M52,
    "linear": LINEAR,
    "sum": Sum([LINEAR, SE]),
    "product": Product([LINEAR, M52]),
    "sum_of_three": Sum([M32, LINEAR, SE]),
    "nested": Sum([Product([SE, Sum([LINEAR, M32])]), M52]),
    "product_of_products": Product([Product([SE, M32]), LINEAR, Sum([M52, M52])]),
}


def covariance(kernel, first, second):
    """Covariance matrix by the formula of section 2, and of scikit-learn's kernels for the
    others.
    """
    if isinstance(kernel, Sum):
        return sum(covariance(part, first, second) for part in kernel.parts)
    if isinstance(kernel, Product):
        return np.prod([covariance(part, first, second) for part in kernel.parts], axis=0)
    if isinstance(kernel, Linear):
        root = np.sqrt(kernel.weight_variances)
        return DotProduct(np.sqrt(kernel.offset_variance))(first * root, second * root)
    if isinstance(kernel, SquaredExponential):
        difference = (first[:, None, :] - second[None, :, :]) / np.array(kernel.length_scales)
        return kernel.variance * np.exp(-0.5 * (difference**2).sum(axis=2))
    return kernel.variance * Matern(kernel.length_scales, nu=NUS[type(kernel)])(first, second)


def finite_differences(value, at, h):
    """Central differences of fourth order of a function at a vector, one entry per component."""
    steps = [
        8 * (value(at + d) - value(at - d)) - value(at + 2 * d) + value(at - 2 * d)
        for d in h * np.eye(len(at))
    ]
    return np.array(steps) / (12 * h)


# --- the model --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NaiveGP:
    """GP of section 2 by explicit inverses."""

    kernel: Kernel
    noise_variance: float
    inputs: np.ndarray  # (n, p)
    targets: np.ndarray  # (n,)

    @property
    def ky(self):
        k = covariance(self.kernel, self.inputs, self.inputs)
        return k + self.noise_variance * np.eye(len(self.targets))

    def predict(self, points):
        """Mean and latent variance at points (m, p)."""
        prior = np.diag(covariance(self.kernel, points, points))
        if len(self.targets) == 0:
            return np.zeros(len(points)), prior
        ks = covariance(self.kernel, points, self.inputs)
        inverse = np.linalg.inv(self.ky)
        return ks @ inverse @ self.targets, prior - np.diag(ks @ inverse @ ks.T)

    def predict_one(self, x):
        mean, latent = self.predict(np.asarray(x, dtype=float)[None, :])
        return float(mean[0]), float(latent[0])

    def log_likelihood(self):
        n, (_, log_determinant) = len(self.targets), np.linalg.slogdet(self.ky)
        return (
            -0.5 * self.targets @ np.linalg.solve(self.ky, self.targets)
            - 0.5 * log_determinant
            - 0.5 * n * LOG_2PI
        )

    def without(self, i):
        return self.with_data(np.delete(self.inputs, i, axis=0), np.delete(self.targets, i))

    def plus(self, x, y):
        return self.with_data(np.vstack([self.inputs, x]), np.append(self.targets, y))

    def with_data(self, inputs, targets):
        return NaiveGP(self.kernel, self.noise_variance, inputs, targets)

    def left_out(self, i):
        """Residual and latent variance of point i by the GP without it."""
        mean, latent = self.without(i).predict_one(self.inputs[i])
        return float(self.targets[i]) - mean, latent


def scratch(gp):
    """Naive GP of what an online GP stores, by slot."""
    return NaiveGP(gp.kernel, gp.noise_variance, gp.inputs, gp.targets)


# --- criteria and rules -----------------------------------------------------------------------------


def negative_log_density(residual, variance):
    return 0.5 * (LOG_2PI + np.log(variance)) + 0.5 * residual**2 / variance


def prior_entropy(model, i):
    """Minus the joint entropy of the noisy observations without point i."""
    n, (_, log_determinant) = (
        len(model.targets) - 1,
        np.linalg.slogdet(model.without(i).ky),
    )
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

#: criteria that the paper judges in sample
IN_SAMPLE = ("PriorEntropy", "PredictiveEntropy", "MeanRelevance")


def reduction_scores(criterion, model, n):
    """f_red of the first n points of the model."""
    return np.array([PUBLISHED_REDUCTION[criterion_name(criterion)](model, i) for i in range(n)])


def acceptance_score(criterion, residual, latent, noise):
    """f_acc of section 3.3."""
    if criterion_name(criterion) in ("PriorEntropy", "PredictiveEntropy"):
        return latent
    if criterion_name(criterion) == "MeanRelevance":
        return residual**2
    return negative_log_density(residual, latent + noise)


def stored_acceptance_scores(acceptance, model):
    """f_acc of every stored point."""
    reference = acceptance.reference.value
    if reference == "published":
        reference = (
            "in_sample" if criterion_name(acceptance.criterion) in IN_SAMPLE else "leave_one_out"
        )
    scores = []
    for i in range(len(model.targets)):
        if reference == "leave_one_out":
            residual, latent = model.left_out(i)
        else:
            mean, latent = model.predict_one(model.inputs[i])
            residual = model.targets[i] - mean
        scores.append(
            acceptance_score(acceptance.criterion, residual, latent, model.noise_variance)
        )
    return np.array(scores)


def wants_place(rule, error, latent):
    """Algorithm 2: a variance above its threshold or an error of at least its own."""
    if isinstance(rule, rules.Always):
        return True
    limits = {"variance_threshold": np.inf, "error_threshold": np.inf} | vars(rule)
    return latent > limits["variance_threshold"] or abs(error) >= limits["error_threshold"]


def matched_and_crossed(criterion: rules.Criterion) -> list[rules.Acceptance]:
    """No acceptance, the criterion's own with every reference, and that of another criterion."""
    other = CRITERIA[(CRITERIA.index(criterion) + 2) % len(CRITERIA)]
    matched = [rules.ExceedsMinimum(criterion, reference) for reference in rules.Reference]
    return [rules.AcceptAll(), *matched, rules.ExceedsMinimum(other)]


class NaiveOnlineGP:
    """Algorithm 1 with a Python list of (slot, x, y), oldest first, and new GPs for every
    sample.
    """

    def __init__(self, gp):
        self.gp = gp  # its settings only
        self.points = []

    def model(self):
        inputs = np.array([x for _, x, _ in self.points]).reshape(
            len(self.points), self.gp.n_features
        )
        return NaiveGP(
            self.gp.kernel,
            self.gp.noise_variance,
            inputs,
            np.array([y for _, _, y in self.points]),
        )

    def update(self, x, y):
        """Dictionary with the fields of an `UpdateReport` but the reduction score."""
        model = self.model()
        nan = float("nan")
        mean, latent = model.predict_one(x)
        report = {
            "mean": mean,
            "variance": latent,
            "inserted": wants_place(self.gp.insertion, y - mean, latent),
        }
        report |= {
            "accepted": False,
            "slot": -1,
            "removed": -1,
            "n_points": len(self.points),
        }
        report |= {"acceptance_score": nan, "acceptance_minimum": nan}
        if not report["inserted"]:
            return report
        if len(self.points) < self.gp.budget:
            report |= {
                "accepted": True,
                "slot": len(self.points),
                "n_points": len(self.points) + 1,
            }
            self.points.append((len(self.points), x, y))
            return report
        if isinstance(self.gp.acceptance, rules.ExceedsMinimum):
            noise = model.noise_variance
            score = acceptance_score(self.gp.acceptance.criterion, y - mean, latent, noise)
            least = stored_acceptance_scores(self.gp.acceptance, model).min()
            report |= {"acceptance_score": score, "acceptance_minimum": least}
            if not score > least:
                return report
        scores = reduction_scores(self.gp.reduction, model.plus(x, y), len(self.points))
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
    """Lagged regressors (n, 4), standardised and almost collinear, and the next output of a smooth
    plant.
    """
    rng = np.random.default_rng(seed)
    u = np.convolve(rng.normal(size=n + 3), np.ones(5) / 5, "same")
    y = np.zeros(n + 3)
    for k in range(2, n + 3):
        y[k] = 0.6 * np.tanh(y[k - 1]) + 0.25 * y[k - 2] + 0.5 * u[k - 1]
    x = np.stack([y[1:-2], y[:-3], u[1:-2], u[:-3]], axis=1)
    return (x - x.mean(axis=0)) / x.std(axis=0), y[2:-1] + noise_std * rng.normal(size=n)


def random_stream(n, n_features, seed):
    """Inputs from a growing box, so that there is news all the time, and a nonlinear target with
    noise.
    """
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, size=(n, n_features)) * np.linspace(0.2, 1.2, n)[:, None]
    return x, np.sin(2.0 * x[:, 0]) + 0.5 * x.sum(axis=1) + 0.1 * rng.normal(size=n)


def online_gp(
    n_features,
    *,
    variance=1.0,
    length_scale=0.8,
    noise_variance=1e-2,
    budget=6,
    **roles,
):
    return OnlineGP(
        SquaredExponential(variance, [length_scale] * n_features),
        noise_variance=noise_variance,
        budget=budget,
        **roles,
    )
