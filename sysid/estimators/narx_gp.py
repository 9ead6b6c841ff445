"""Identification of a dynamic system as an estimator of scikit-learn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any, Self

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from sysid.acceptance import Acceptance
from sysid.criteria import Criterion
from sysid.estimators.lag_choice import chosen_narx
from sysid.estimators.learning import LEAST_SAMPLES, distinct, identification_of
from sysid.estimators.runs import Run, first_outputs, records_of, run_ahead, run_freely, window_of
from sysid.estimators.signals import Signals, agreed, checked_signals, read_signals
from sysid.insertion import Insertion
from sysid.joint import JointModel
from sysid.kernels import Form
from sysid.lag_list import Lags
from sysid.mean import MeanFunction
from sysid.model import Model
from sysid.narx import Narx
from sysid.orders import Order
from sysid.origin import Origin
from sysid.propagation import AboutPath, MeanOnly, Pathwise, Propagation
from sysid.selection import Selection
from sysid.training import Training
from sysid.validation import validate

#: checks of scikit-learn that no model with a memory can pass, with the reason
EXEMPTED_CHECKS = {
    "check_methods_sample_order_invariance": "the rows of X are samples over time: in another order they are another "
    "experiment",
    "check_methods_subset_invariance": "the prediction of a sample depends on the samples before it, which a part of "
    "the rows does not have",
}


class NarxGPRegressor(RegressorMixin, BaseEstimator):
    """Nonlinear ARX model of a dynamic system, ``y[k] = f(past outputs, inputs)``, f an online Gaussian process.

    X are the inputs u over time, y the outputs; every row is one sample later than the row before. Lags are given as
    numbers, na, nb, nk as in MATLAB (`sysid.orders.Orders`), or as lists. Several outputs have one Gaussian process
    each over the same regressors. Several records are given as lists of arrays, as records of `nonlinear_benchmarks`
    (which hold u and y), or told apart by `groups`; no lag reaches from one into another.

    Parameters
    ----------
    na, nb, nk : int or sequence of int, optional
        Lags 1 to na of each output and nk to nk + nb - 1 of each input; 2, 2 and 1 where nothing else is said.
    output_lags, input_lags : int, sequence of int or mapping, optional
        Instead of na, and of nb and nk: 3 for lags 1 to 3, a list of lags for all signals, or lags by name.
    target : {"change", "value"}, optional
        What the Gaussian process predicts: y[k] - y[k-1] or y[k]; None: the value if no output has a lag.
    sampling_time : float, optional
        Of the records [s]; None: what they state, or 1, samples.
    scoring_horizon : int, optional
        Samples ahead that `score` predicts; None: free run.
    propagation : Propagation, optional
        How uncertainty grows over several samples, about the fed-back mean; None: `sysid.propagation.Pathwise`.
    budget, kernel, training, mean, insertion, acceptance, reduction, selection, standardise, random_state
        As for `OnlineGPRegressor`; with ``training.n_initial`` rows or fewer, all of them train.

    Attributes
    ----------
    model_ : JointModel
        Can be saved, loaded, validated and exported.
    output_mean_ : ndarray (m,)
        Mean of the outputs it was fitted to.
    n_features_in_, feature_names_in_
        As in scikit-learn: of the inputs u. Inputs without names are called ``u`` or ``u1``, ``u2``, ..., outputs
        ``y`` or ``y1``, ``y2``, ...

    Examples
    --------
    >>> u = np.sin(0.3 * np.arange(200))[:, None]
    >>> y = np.convolve(np.tanh(u[:, 0]), [0.0, 0.5, 0.3])[:200]
    >>> model = NarxGPRegressor(na=1, nb=2, nk=1, budget=30).fit(u[:150], y[:150])
    >>> bool(np.max(np.abs(model.simulate(u[150:], y[150:152]) - y[150:])) < 0.01)
    True
    """

    def __init__(
        self,
        *,
        na: Order | None = None,
        nb: Order | None = None,
        nk: Order | None = None,
        output_lags: Lags | Mapping[str, Lags] | None = None,
        input_lags: Lags | Mapping[str, Lags] | None = None,
        target: str | None = None,
        sampling_time: float | None = None,
        scoring_horizon: int | None = None,
        propagation: Propagation | None = None,
        budget: int = 100,
        kernel: Form | None = None,
        training: Training | None = None,
        mean: MeanFunction | None = None,
        insertion: Insertion | None = None,
        acceptance: Acceptance | None = None,
        reduction: Criterion | None = None,
        selection: Selection | None = None,
        standardise: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.na, self.nb, self.nk = na, nb, nk
        self.output_lags = output_lags
        self.input_lags = input_lags
        self.target = target
        self.sampling_time = sampling_time
        self.scoring_horizon = scoring_horizon
        self.propagation = propagation
        self.budget = budget
        self.kernel = kernel
        self.training = training
        self.mean = mean
        self.insertion = insertion
        self.acceptance = acceptance
        self.reduction = reduction
        self.selection = selection
        self.standardise = standardise
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, groups: ArrayLike | None = None) -> Self:
        """Identify from inputs X (n, n_u) or None and outputs y (n,) or (n, m), or lists of them.

        Raises
        ------
        ValueError, TypeError
            Records that are shorter than the lags, values that are not finite, lags that contradict each other.
        """
        given = read_signals(X, y, groups)
        if given.outputs is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        signals = checked_signals(self, given, n_inputs=None, least=LEAST_SAMPLES)
        assert signals.outputs is not None
        self._shape = signals.shape
        if given.inputs is None:
            self.n_features_in_ = 0
        self._inputs = tuple(vars(self).get("feature_names_in_", _numbered("u", self.n_features_in_)))
        outputs = [distinct(name, self._inputs) for name in _numbered("y", signals.outputs[0].shape[1])]
        narx = chosen_narx(self, outputs, self._inputs)
        self._sampling_time = agreed(given.sampling_time, self.sampling_time)
        records = records_of(signals, self._inputs, outputs, self._sampling_time)
        self.model_ = JointModel(tuple(self._identified(replace(narx, target=name), records) for name in outputs))
        self.output_mean_ = np.concatenate(signals.outputs).mean(axis=0)
        return self

    def simulate(self, u: Any, y_init: Any = None, return_std: bool = False) -> Any:
        """Free run: outputs (n,) or (n, m) from the inputs and the first outputs.

        Parameters
        ----------
        u
            (n, n_u), a list of them, or records, whose outputs after the first are not looked at; (n, 0) without
            inputs.
        y_init
            First w outputs (w,) or (w, m), returned as they are; lags that reach before them hold the first. A list
            of them for a list of inputs. None: those of the initialisation window that a record states.
        return_std
            Whether to return also the standard deviation of a measurement, 0 for the outputs given.
        """
        check_is_fitted(self)
        given = read_signals(u)
        signals = checked_signals(self, given._replace(outputs=None), n_inputs=self.n_features_in_, least=1)
        agreed(given.sampling_time, self._sampling_time)
        first = first_outputs(given, y_init, len(self.model_.models))
        rule = self._propagation(return_std)
        runs = [run_freely(self.model_, self._used(u), y, rule) for u, y in zip(signals.inputs, first, strict=True)]
        return self._returned(given, runs, return_std)

    def predict(self, X: Any, y: Any = None, *, horizon: float | None = None, return_std: bool = False) -> Any:
        """Outputs (n,) or (n, m) at the inputs X.

        Parameters
        ----------
        X
            (n, n_u), a list of them, or records, which hold y.
        y
            Measured outputs. None, as scikit-learn calls it: a free run over all samples, before which the outputs
            were at their mean in estimation and the inputs at their first values.
        horizon
            Samples ahead, >= 1: y[k] from outputs up to k - horizon; None: 1. Samples that lack a measured lag
            are nan. `math.inf`: a free run from the first outputs, as many as the largest lag.
        return_std
            Whether to return also the standard deviation of a measurement.
        """
        check_is_fitted(self)
        given = read_signals(X, y)
        if given.outputs is not None:
            ahead = 1 if horizon is None else None if horizon == inf else horizon
            return self._returned(given, self._ahead(given, ahead, return_std)[0], return_std)  # type: ignore[arg-type]
        if horizon is not None:
            raise ValueError(f"predict(horizon={horizon}): expected measured outputs y to start from, got none")
        signals = checked_signals(self, given, n_inputs=self.n_features_in_, least=1)
        rule, before = self._propagation(return_std), self.output_mean_[None]
        used = [self._used(u) for u in signals.inputs]
        runs = [run_freely(self.model_, np.concatenate([u[:1], u]), before, rule) for u in used]
        return self._returned(given, [Run(run.mean[1:], run.std[1:]) for run in runs], return_std)

    def score(self, X: Any, y: Any = None) -> float:
        """R2 of predictions `scoring_horizon` samples ahead, by default in free run; averaged over the outputs.

        The samples at the start of a record that lack a measured lag do not count; -inf after a divergence.
        """
        check_is_fitted(self)
        given = read_signals(X, y)
        if given.outputs is None:
            raise ValueError("score: expected measured outputs y, got none")
        runs, measured = self._ahead(given, self.scoring_horizon, False)
        start = max(window_of(self.model_), self.scoring_horizon or 0)
        pairs = zip(
            np.concatenate([y[start:] for y in measured]).T,
            np.concatenate([run.mean[start:] for run in runs]).T,
            strict=True,
        )
        return float(np.mean([validate(target, mean, window=start).r2 for target, mean in pairs]))

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # on tables, whose rows know nothing of each other
        return tags

    def _identified(self, narx: Narx, records: list[xr.Dataset]) -> Model:
        rows = narx.dataset(records)
        n = rows.sizes["sample"]
        if n < LEAST_SAMPLES:
            raise ValueError(f"expected at least {LEAST_SAMPLES} samples after the largest lag {narx.max_lag}, got {n}")
        identification = identification_of(self, narx, n)
        record = rows["record"].values
        follows = np.r_[False, record[1:] == record[:-1]]
        identification.observe_many(rows["regressor"].values, rows["target"].values, follows=follows)
        assert identification.model is not None
        return replace(identification.model, origin=replace(Origin.of(rows), sampling_time=self._sampling_time))

    def _ahead(self, given: Signals, horizon: int | None, with_std: bool) -> tuple[list[Run], list[np.ndarray]]:
        """Predictions a horizon ahead, and the measured outputs, record by record."""
        signals = checked_signals(self, given, n_inputs=self.n_features_in_, least=1)
        assert signals.outputs is not None
        outputs = self.model_.output_names
        if (got := signals.outputs[0].shape[1]) != len(outputs):
            raise ValueError(f"expected {len(outputs)} outputs {list(outputs)}, got {got}")
        records = records_of(signals, self._inputs, outputs, agreed(given.sampling_time, self._sampling_time))
        return run_ahead(self.model_, records, horizon, self._propagation(with_std)), signals.outputs

    def _propagation(self, with_std: bool) -> Propagation:
        return AboutPath(self.propagation or Pathwise()) if with_std else MeanOnly()

    def _used(self, inputs: np.ndarray) -> np.ndarray:
        """Inputs of the model, in its order; an input without lags is none of them."""
        return inputs[:, [self._inputs.index(name) for name in self.model_.input_names]]

    def _returned(self, given: Signals, runs: list[Run], return_std: bool) -> Any:
        columns = (np.concatenate(part) for part in zip(*runs, strict=True))
        shaped = [given.joined(given.cut(column.reshape(len(column), *self._shape))) for column in columns]
        return tuple(shaped) if return_std else shaped[0]


def _numbered(letter: str, n: int) -> list[str]:
    """Names of n signals.

    >>> _numbered("y", 1), _numbered("u", 2)
    (['y'], ['u1', 'u2'])
    """
    return [letter] if n == 1 else [f"{letter}{i + 1}" for i in range(n)]
