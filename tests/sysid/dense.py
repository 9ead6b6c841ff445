"""Dense reference of an online GP that learns every sample.

The values of the function at the points, the coefficients of the linear part and all measurements
are jointly Gaussian. The reference keeps their joint prior covariance. Each posterior is one
conditioning on all measurements so far, by a dense solution: there is no recursion, and no formula
of the toolbox.
"""

import numpy as np
from scipy.linalg import block_diag, sqrtm

import naive
from naive import NaiveGP, Tabulated
from sysid import AcceptAll, Novelty, WithLinearPart

#: Of the noise variance, the part that is added to the covariance of the points.
DIAGONAL = 0.01

SCALE_INTERVAL = 100  # counted samples between two changes of the scale
EXPECTED_SQUARE = 0.9950  # E[min(z^2, 9)] of a standard normal z
INITIAL_MEMORY = 20.0  # samples that the scale remembers at first
MAX_MEMORY = 1000.0  # samples that the scale remembers later

#: Precisions of a likelihood below this part of the largest one are rounding.
MIN_RELATIVE_PRECISION = 1e-9


def linear_prior(kernel):
    """Return the prior covariance of the coefficients of a linear part, if there is one.

    It is that of `StableSpline` with a `Diagonal` decay.
    """
    if not isinstance(kernel, WithLinearPart):
        return np.zeros((0, 0))
    variances = []
    spline = kernel.linear
    for n, variance, memory in zip(spline.n_lags, spline.variances, spline.memories, strict=True):
        variances.append(variance * (np.exp(-np.arange(n) / memory) + 1e-13))
    return np.diag(np.concatenate(variances))


class DenseOnlineGP:
    """Learns what an `OnlineGP` with the same settings learns.

    Samples are named by their rows in an array.

    Parameters
    ----------
    gp : OnlineGP
        Its settings are used, and nothing that it has learned.
    inputs : (n, p)
        Inputs of all samples.
    initial : sequence of int
        Samples that were learned at the beginning.
    initial_targets : sequence of float
    points : sequence of int
        Those of them that are stored, the oldest first.
    """

    def __init__(self, gp, inputs, initial=(), initial_targets=(), points=()):
        self.gp = gp
        self.inputs = inputs
        self.n_seen = len(initial)
        self.points = list(points)
        self.level = 0.0  # of outliers
        self.n_outliers = 0
        self.last = None  # inputs and target of the last sample learned
        self.has_learned_last = True  # whether the last sample seen was learned
        self.recent = []  # number in the stream of each sample learned, and its row
        self._begin(gp.kernel, gp.noise_variance)
        for sample, target in zip(initial, initial_targets, strict=True):
            weights, unexplained = self._project(sample)
            self._measure(weights, unexplained + self.noise, target)

    # --- joint covariance -------------------------------------------------------------------------

    def _begin(self, kernel, noise):
        """Take hyper-parameters; the points and the coefficients have their prior."""
        has_linear_part = isinstance(kernel, WithLinearPart)
        self.P = linear_prior(kernel)
        self.n_linear = len(self.P)
        n_features = self.inputs.shape[1] - self.n_linear
        x = self.inputs[:, :n_features]
        self.lags = self.inputs[:, n_features:]
        self.K = naive.covariance(kernel.kernel if has_linear_part else kernel, x, x)
        self.noise = noise
        self.scale = 1.0  # of all variances
        self.error_scale = 1.0  # of those of the gate, if the others stay
        self.memory = INITIAL_MEMORY
        self.squares = []
        self.prior = self._prior_of_values()  # of the coefficients, then of the points
        self.measured = np.zeros(0)
        self.cross = np.zeros((len(self.prior), 0))  # covariance of these with the measurements
        self.of_measured = np.zeros((0, 0))  # covariance of the measurements

    def _prior_of_points(self):
        n = len(self.points)
        return self.K[np.ix_(self.points, self.points)] + DIAGONAL * self.noise * np.eye(n)

    def _prior_of_values(self):
        return block_diag(self.P, self._prior_of_points())

    def _project(self, sample):
        """Return the weights of the values in the function at a sample.

        Also return the variance that the values of the points leave unexplained.
        """
        k = self.K[self.points, sample]
        weights = np.linalg.solve(self._prior_of_points(), k)
        return np.concatenate([self.lags[sample], weights]), self.K[sample, sample] - k @ weights

    def _measure(self, weights, variance, target):
        """Add a measurement of a weighted sum of the values with noise of this variance."""
        cross = weights @ self.cross
        own = weights @ self.prior @ weights + variance
        self.of_measured = np.block([[self.of_measured, cross[:, None]], [cross, own]])
        self.cross = np.column_stack([self.cross, self.prior @ weights])
        self.measured = np.append(self.measured, target)

    def _condition(self, cross, prior):
        """Return mean and covariance given all measurements.

        `cross` is the covariance with the measurements, `prior` the covariance before them.
        """
        weights = np.linalg.solve(self.of_measured, cross.T)
        return weights.T @ self.measured, prior - cross @ weights

    def predict(self, sample):
        """Return mean and latent variance at a sample."""
        weights, unexplained = self._project(sample)
        prior = weights @ self.prior @ weights + unexplained
        mean, variance = self._condition((weights @ self.cross)[None], prior)
        return float(mean[0]), self.scale * float(variance[0, 0])

    # --- one sample -------------------------------------------------------------------------------

    def learn(self, sample, target, *, is_withheld=False, is_predicted=False):
        """Predict a sample and learn it; return those fields of its report that are compared.

        `is_withheld`: it is predicted only. `is_predicted`: it was predicted before.
        """
        if not self.has_learned_last and not is_predicted:
            self._forget_if_due()
        report = self._learn(sample, target, is_withheld)
        self.has_learned_last = not (report["outlier"] or is_withheld)
        if self.has_learned_last:
            self._forget_if_due()
        return report

    def _learn(self, sample, target, is_withheld):
        gp = self.gp
        self.n_seen += 1
        mean, latent = self.predict(sample)
        error = target - mean
        variance = (latent + self.scale * self.noise) * self.error_scale
        is_beyond = bool(gp.gate and error**2 > gp.gate**2 * variance)
        report = {
            "mean": mean,
            "variance": latent,
            "outlier": is_beyond,
            "inserted": False,
            "accepted": False,
            "removed": None,
            "acceptance_score": np.nan,
            "acceptance_minimum": np.nan,
        }
        if is_withheld:
            self.level += is_beyond
            self.n_outliers += is_beyond
            return report
        report["outlier"] = self._refuses(is_beyond) if gp.gate else False
        if report["outlier"]:
            return report
        if gp.scale or gp.gate:
            self._count_square(sample, target, error**2 / variance, variance)
        self.recent.append((self.n_seen, sample))
        weights, unexplained = self._project(sample)
        self._measure(weights, unexplained + self.noise, target)
        report["inserted"] = self._is_candidate(error, latent, unexplained / self.noise)
        if report["inserted"]:
            report |= self._propose(sample, weights, unexplained)
        self._rescale_if_due()
        return report

    def believe(self, sample, target, *, was_outlier, opens):
        """Learn the last sample after all."""
        self.n_outliers -= was_outlier
        self.n_seen -= 1
        if opens:
            self.level = self.gp.gate_opens_after
        report = self.learn(sample, target, is_predicted=True)
        if opens:
            self.level = self.gp.gate_opens_after
        return report

    def _refuses(self, is_beyond):
        """Return whether the gate refuses a sample."""
        is_open = self.level >= self.gp.gate_opens_after
        if is_beyond:
            self.level += 1.0
            self.n_outliers += not is_open
            return not is_open
        self.level = 0.0 if is_open else max(self.level - 0.2, 0.0)
        return False

    def _is_candidate(self, error, latent, novelty):
        rule = self.gp.insertion
        if isinstance(rule, Novelty):
            return bool(novelty > rule.novelty_threshold)
        return bool(naive.is_candidate(rule, error, latent))

    def _propose(self, sample, weights, unexplained):
        """Store the last sample learned, if there is room or it is accepted."""
        n = len(self.points)
        of_points = weights.copy()
        of_points[: self.n_linear] = 0.0  # the points are values of the process alone
        own = of_points @ self.cross
        own[-1] += unexplained
        prior = of_points @ self.prior
        variance = prior @ of_points + unexplained + DIAGONAL * self.noise
        cross_with_own = np.vstack([self.cross, own])
        prior_with_own = np.block([[self.prior, prior[:, None]], [prior, variance]])
        scores = {}
        removed = None
        if n == self.gp.budget:
            means, _ = self._condition(cross_with_own, prior_with_own)
            scores, removed = self._decide(sample, means[self.n_linear :])
            if removed is None:
                return scores
        self.points.append(sample)
        self.cross = cross_with_own
        self.prior = prior_with_own
        if removed is None:
            return {"accepted": True}
        row = self.n_linear + removed
        self.cross = np.delete(self.cross, row, axis=0)
        self.prior = np.delete(np.delete(self.prior, row, axis=0), row, axis=1)
        return scores | {"accepted": True, "removed": self.points.pop(removed)}

    def _decide(self, sample, means):
        """Return the acceptance scores, and the age of the point that leaves; None: no point does.

        `means` are the posterior means of the values of the points and of the candidate.
        """
        gp = self.gp
        n = len(self.points)
        noise = self.scale * DIAGONAL * self.noise
        points = np.array(self.points)[:, None]
        stored = NaiveGP(Tabulated(self.scale * self.K), noise, points, means[:n])
        scores = {}
        if not isinstance(gp.acceptance, AcceptAll):
            mean, latent = stored.predict_one([sample])
            criterion = gp.acceptance.criterion
            score = naive.acceptance_score(criterion, means[n] - mean, latent, noise)
            minimum = naive.stored_acceptance_scores(gp.acceptance, stored).min()
            scores = {"acceptance_score": score, "acceptance_minimum": minimum}
            if not naive.exceeds(score, minimum):
                return scores, None
        both = stored.plus([sample], means[n])
        return scores, naive.first_lowest(naive.reduction_scores(gp.reduction, both, n))

    # --- scale, forgetting, other hyper-parameters ------------------------------------------------

    def _count_square(self, sample, target, square, variance):
        """Count the squared standardised error of a sample, unless it repeats the one before."""
        x = self.inputs[sample]
        is_repeated = False
        if self.last is not None:
            last_x, last_target = self.last
            is_repeated = np.allclose(x, last_x, rtol=1e-9, atol=0)
            is_repeated &= abs(target - last_target) <= 1e-6 * np.sqrt(variance)
        self.last = (x, target)
        if not is_repeated:
            self.squares.append(min(square, 9.0))

    def _rescale_if_due(self):
        n = len(self.squares)
        if n < SCALE_INTERVAL:
            return
        factor = (self.memory + sum(self.squares) / EXPECTED_SQUARE) / (self.memory + n)
        self.memory = min(self.memory + n, MAX_MEMORY)
        self.squares = []
        if self.gp.scale:
            self.scale *= factor
        else:
            self.error_scale *= factor

    def _forget_if_due(self):
        """Forget if a step is due after the last sample."""
        gp = self.gp
        interval = gp.budget + self.n_linear
        if not gp.forgetting or self.n_seen == 0 or self.n_seen % interval:
            return
        recent = [sample for number, sample in self.recent if number > self.n_seen - 2 * interval]
        n_values = len(self.prior)
        if not recent or n_values == 0:
            return
        weights = np.zeros((n_values, len(recent)))
        precision = np.zeros(len(recent))
        for i, sample in enumerate(recent):
            weights[:, i], unexplained = self._project(sample)
            precision[i] = 1.0 / (self.noise + max(unexplained, 0.0))
        root = np.real(sqrtm(self._prior_of_values()))
        information = root @ (weights * precision) @ weights.T @ root
        alone = np.linalg.inv(np.eye(n_values) + information)
        steps = interval / gp.forgetting**2 * len(recent)
        exponent = -0.5 * steps * alone @ information @ alone
        values, vectors = np.linalg.eigh(0.5 * (exponent + exponent.T))
        kept = root @ (vectors * np.exp(values)) @ vectors.T @ np.linalg.inv(root)
        self.cross = kept @ self.cross
        self.prior = self._prior_of_values()  # what is forgotten returns to it

    def adapt(self, kernel, noise):
        """Take other hyper-parameters, and keep the likelihood of the values of the points."""
        old_prior = self._prior_of_values()
        mean, covariance = self._condition(self.cross, self.prior)
        precision = np.linalg.inv(covariance)
        likelihood = (precision - np.linalg.inv(old_prior)) / self.scale
        information = precision @ mean / self.scale
        self._begin(kernel, noise)
        values, vectors = np.linalg.eigh(0.5 * (likelihood + likelihood.T))
        for value, vector in zip(values, vectors.T, strict=True):
            if value > MIN_RELATIVE_PRECISION * values.max():
                self._measure(vector, 1.0 / value, vector @ information / value)
