"""Naive reference implementations that the tests compare the toolbox with.

They compute everything from scratch, build one GP for each point that is left out, and share no
formula with the toolbox.
"""

from dataclasses import dataclass, fields

import numpy as np

from sysid import (
    AcceptAll,
    Acceptance,
    Always,
    Criterion,
    Either,
    ErrorThreshold,
    ExceedsMinimum,
    Insertion,
    Kernel,
    Linear,
    Matern32,
    Matern52,
    OnlineGP,
    Product,
    Reference,
    SquaredExponential,
    Sum,
    VarianceThreshold,
)
from sysid.gp import rules

LOG_2PI = np.log(2.0 * np.pi)
CRITERIA = [criterion_class() for criterion_class in rules.CRITERIA.values()]
INSERTIONS = [Always, Either, ErrorThreshold, VarianceThreshold]


def criterion_name(criterion: Criterion) -> str:
    """Return the class name of a criterion, which is also its id in the tests."""
    return type(criterion).__name__


def insertion_rule(rule: type, variance_threshold: float, error_threshold: float) -> Insertion:
    """Return an insertion rule with those of the two thresholds that it has as fields."""
    thresholds = {
        "variance_threshold": variance_threshold,
        "error_threshold": error_threshold,
    }
    return rule(**{field.name: thresholds[field.name] for field in fields(rule)})


class Oldest(Criterion):
    """All points have the same score, so the oldest one leaves."""

    @staticmethod
    def reduction(residual, variance, noise_variance):
        return 1.0

    acceptance = reduction
    published_reference = Reference.leave_one_out


# --- kernels --------------------------------------------------------------------------------------

NUS = {Matern32: 1.5, Matern52: 2.5}
LENGTHS = (0.7, 1.9, 1.1)

SE = SquaredExponential(1.3, LENGTHS)
M32 = Matern32(0.8, LENGTHS[::-1])
M52 = Matern52(2.1, LENGTHS)
LINEAR = Linear(0.4, (0.6, 0.05, 1.2))

#: One kernel of every kind, each of three features.
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


@dataclass(frozen=True)
class Tabulated:
    """Covariances of numbered points; a point is given as its number, an array (1,)."""

    values: np.ndarray  # (n, n)


def covariance(kernel, first, second):
    """Return the covariance matrix of two sets of points.

    The squared exponential follows the formula of section 2, the other kernels are those of
    scikit-learn, which is imported here because few tests need it and it takes long to load.
    """
    from sklearn.gaussian_process.kernels import DotProduct, Matern

    if isinstance(kernel, Tabulated):
        return kernel.values[np.ix_(first[:, 0].astype(int), second[:, 0].astype(int))]
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
    """Return the gradient of a function at a vector by central differences of fourth order."""
    differences = []
    for step in h * np.eye(len(at)):
        near = value(at + step) - value(at - step)
        far = value(at + 2 * step) - value(at - 2 * step)
        differences.append(8 * near - far)
    return np.array(differences) / (12 * h)


def exact_cholesky(matrix):
    """Return the lower Cholesky factor of a matrix (n, n) by the textbook in 80-bit arithmetic."""
    a = matrix.astype(np.longdouble)
    lower = np.zeros_like(a)
    for j in range(len(a)):
        lower[j, j] = np.sqrt(a[j, j] - lower[j, :j] @ lower[j, :j])
        lower[j + 1 :, j] = (a[j + 1 :, j] - lower[j + 1 :, :j] @ lower[j, :j]) / lower[j, j]
    return lower


def exact_inverse_of_lower(lower):
    """Return the inverse of a lower triangular matrix (n, n) in 80-bit arithmetic."""
    inverse = np.eye(len(lower), dtype=np.longdouble)
    for i in range(len(lower)):
        inverse[i] = (inverse[i] - lower[i, :i] @ inverse[:i]) / lower[i, i]
    return inverse


def exact_inverse(matrix):
    """Return the inverse of a positive definite matrix (n, n) in 80-bit arithmetic."""
    inverse_of_factor = exact_inverse_of_lower(exact_cholesky(matrix))
    return inverse_of_factor.T @ inverse_of_factor


# --- the model ------------------------------------------------------------------------------------


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
        """Return the mean and the latent variance at points (m, p)."""
        prior = np.diag(covariance(self.kernel, points, points))
        if len(self.targets) == 0:
            return np.zeros(len(points)), prior
        ks = covariance(self.kernel, points, self.inputs)
        inverse = np.linalg.inv(self.ky)
        return ks @ inverse @ self.targets, prior - np.diag(ks @ inverse @ ks.T)

    def predict_one(self, x):
        """Return the mean and the latent variance at one point (p,)."""
        mean, latent = self.predict(np.asarray(x, dtype=float)[None, :])
        return float(mean[0]), float(latent[0])

    def log_likelihood(self):
        """Return the log marginal likelihood of the targets."""
        n = len(self.targets)
        _, log_determinant = np.linalg.slogdet(self.ky)
        weights = np.linalg.solve(self.ky, self.targets)
        return -0.5 * self.targets @ weights - 0.5 * log_determinant - 0.5 * n * LOG_2PI

    def without(self, i):
        """Return the GP without point i."""
        return self.with_data(np.delete(self.inputs, i, axis=0), np.delete(self.targets, i))

    def plus(self, x, y):
        """Return the GP with one more point."""
        return self.with_data(np.vstack([self.inputs, x]), np.append(self.targets, y))

    def with_data(self, inputs, targets):
        """Return a GP with the same hyper-parameters and other points."""
        return NaiveGP(self.kernel, self.noise_variance, inputs, targets)

    def left_out(self, i):
        """Return the residual and the latent variance of point i by the GP without it."""
        mean, latent = self.without(i).predict_one(self.inputs[i])
        return float(self.targets[i]) - mean, latent


def scratch(gp):
    """Return the naive GP of the points that an online GP stores, in slot order."""
    return NaiveGP(gp.kernel, gp.noise_variance, gp.inputs, gp.targets)


# --- criteria and rules ---------------------------------------------------------------------------


def negative_log_density(residual, variance):
    """Return minus the log density of a normal distribution at a residual."""
    return 0.5 * (LOG_2PI + np.log(variance)) + 0.5 * residual**2 / variance


def prior_entropy(model, i):
    """Return minus the joint entropy of the noisy observations without point i."""
    n = len(model.targets) - 1
    _, log_determinant = np.linalg.slogdet(model.without(i).ky)
    return -0.5 * n * (1.0 + LOG_2PI) - 0.5 * log_determinant


def predictive_entropy(model, i):
    """Return the entropy of the latent function at x_i, given the other points."""
    _, latent = model.left_out(i)
    return 0.5 * (1.0 + LOG_2PI) + 0.5 * np.log(latent)


def mean_relevance(model, i):
    """Return the squared change of the mean at x_i when point i is left out."""
    x = model.inputs[i]
    mean_with, _ = model.predict_one(x)
    mean_without, _ = model.without(i).predict_one(x)
    return (mean_with - mean_without) ** 2


def marginal_log_likelihood(model, i):
    """Return the log marginal likelihood of the points without point i."""
    return model.without(i).log_likelihood()


def log_predictive_density(model, i):
    """Return minus the log predictive density of point i, given the other points."""
    residual, latent = model.left_out(i)
    return negative_log_density(residual, latent + model.noise_variance)


PUBLISHED_REDUCTION = {
    "PriorEntropy": prior_entropy,
    "PredictiveEntropy": predictive_entropy,
    "MeanRelevance": mean_relevance,
    "MarginalLogLikelihood": marginal_log_likelihood,
    "LogPredictiveDensity": log_predictive_density,
}

#: Criteria whose acceptance scores the paper evaluates in sample.
IN_SAMPLE = ("PriorEntropy", "PredictiveEntropy", "MeanRelevance")


def reduction_scores(criterion, model, n):
    """Return f_red of the first n points of the model."""
    score = PUBLISHED_REDUCTION[criterion_name(criterion)]
    return np.array([score(model, i) for i in range(n)])


def acceptance_score(criterion, residual, latent, noise):
    """Return f_acc of section 3.3 for a residual and a latent variance."""
    name = criterion_name(criterion)
    if name in ("PriorEntropy", "PredictiveEntropy"):
        return latent
    if name == "MeanRelevance":
        return residual**2
    return negative_log_density(residual, latent + noise)


def stored_acceptance_scores(acceptance, model):
    """Return f_acc of every stored point."""
    criterion = acceptance.criterion
    is_left_out = acceptance.reference is Reference.leave_one_out
    if acceptance.reference is Reference.published:
        is_left_out = criterion_name(criterion) not in IN_SAMPLE
    scores = []
    for i in range(len(model.targets)):
        if is_left_out:
            residual, latent = model.left_out(i)
        else:
            mean, latent = model.predict_one(model.inputs[i])
            residual = model.targets[i] - mean
        scores.append(acceptance_score(criterion, residual, latent, model.noise_variance))
    return np.array(scores)


def is_candidate(rule, error, latent):
    """Return whether algorithm 2 makes a sample a candidate.

    Its variance must exceed a threshold, or its error must reach one.
    """
    if isinstance(rule, Always):
        return True
    variance_threshold = getattr(rule, "variance_threshold", np.inf)
    error_threshold = getattr(rule, "error_threshold", np.inf)
    return latent > variance_threshold or abs(error) >= error_threshold


def matched_and_crossed(criterion: Criterion) -> list[Acceptance]:
    """Return five acceptance rules to combine with a reduction criterion.

    They are none, one by the same criterion for each reference, and one by another criterion.
    """
    other = CRITERIA[(CRITERIA.index(criterion) + 2) % len(CRITERIA)]
    matched = [ExceedsMinimum(criterion, reference) for reference in Reference]
    return [AcceptAll(), *matched, ExceedsMinimum(other)]


class NaiveOnlineGP:
    """Algorithm 1 with a Python list of stored points, and a new GP for every sample.

    Each stored point is a tuple (slot, x, y); the oldest comes first.
    """

    def __init__(self, gp):
        self.gp = gp  # only its settings are used
        self.points = []

    def model(self):
        """Return the naive GP of the stored points."""
        n_points = len(self.points)
        inputs = np.array([x for _, x, _ in self.points]).reshape(n_points, self.gp.n_features)
        targets = np.array([y for _, _, y in self.points])
        return NaiveGP(self.gp.kernel, self.gp.noise_variance, inputs, targets)

    def update(self, x, y):
        """Learn one sample; return the fields of an `UpdateReport` but the reduction score."""
        model = self.model()
        n_points = len(self.points)
        mean, latent = model.predict_one(x)
        report = {
            "mean": mean,
            "variance": latent,
            "inserted": is_candidate(self.gp.insertion, y - mean, latent),
            "accepted": False,
            "slot": -1,
            "removed": -1,
            "n_points": n_points,
            "acceptance_score": np.nan,
            "acceptance_minimum": np.nan,
        }
        if not report["inserted"]:
            return report
        if n_points < self.gp.budget:
            self.points.append((n_points, x, y))
            return report | {"accepted": True, "slot": n_points, "n_points": n_points + 1}
        acceptance = self.gp.acceptance
        if isinstance(acceptance, ExceedsMinimum):
            noise = model.noise_variance
            score = acceptance_score(acceptance.criterion, y - mean, latent, noise)
            minimum = stored_acceptance_scores(acceptance, model).min()
            report["acceptance_score"] = score
            report["acceptance_minimum"] = minimum
            if not exceeds(score, minimum):
                return report
        scores = reduction_scores(self.gp.reduction, model.plus(x, y), n_points)
        slot, _, _ = self.points.pop(first_lowest(scores))
        self.points.append((slot, x, y))
        return report | {"accepted": True, "slot": slot, "removed": slot}


def exceeds(score, minimum):
    """Return whether a score is above a minimum by more than rounding."""
    return score > minimum + 1e-9 * abs(minimum)


def first_lowest(scores):
    """Return the index of the oldest point whose score is the lowest up to rounding."""
    lowest = scores.min()
    rounding = 1e-9 * max(1.0, abs(lowest))
    return int(np.flatnonzero(scores <= lowest + rounding)[0])


def backward_elimination(criterion, model, n_points):
    """Return the indices that stay when the points of lowest f_red are removed one by one."""
    kept = list(range(len(model.targets)))
    while len(kept) > n_points:
        current = model.with_data(model.inputs[kept], model.targets[kept])
        del kept[first_lowest(reduction_scores(criterion, current, len(kept)))]
    return kept


def narx_stream(n, seed, noise_std=0.0):
    """Return lagged regressors (n, 4) of a smooth plant and its next outputs (n,).

    The regressors are standardised and almost collinear.
    """
    rng = np.random.default_rng(seed)
    u = np.convolve(rng.normal(size=n + 3), np.ones(5) / 5, "same")
    y = np.zeros(n + 3)
    for k in range(2, n + 3):
        y[k] = 0.6 * np.tanh(y[k - 1]) + 0.25 * y[k - 2] + 0.5 * u[k - 1]
    x = np.stack([y[1:-2], y[:-3], u[1:-2], u[:-3]], axis=1)
    return (x - x.mean(axis=0)) / x.std(axis=0), y[2:-1] + noise_std * rng.normal(size=n)


def random_stream(n, n_features, seed):
    """Return inputs (n, n_features) and targets (n,) of a nonlinear function with noise.

    The inputs lie in a box that grows, so that new regions are entered all the time.
    """
    rng = np.random.default_rng(seed)
    box_size = np.linspace(0.2, 1.2, n)[:, None]
    x = rng.uniform(-2.0, 2.0, size=(n, n_features)) * box_size
    noise = 0.1 * rng.normal(size=n)
    return x, np.sin(2.0 * x[:, 0]) + 0.5 * x.sum(axis=1) + noise


def online_gp(
    n_features,
    *,
    variance=1.0,
    length_scale=0.8,
    noise_variance=1e-2,
    budget=6,
    **roles,
):
    """Return an online GP with a squared exponential kernel of equal length scales."""
    kernel = SquaredExponential(variance, [length_scale] * n_features)
    return OnlineGP(kernel, noise_variance=noise_variance, budget=budget, **roles)
