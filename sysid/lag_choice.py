"""Lags of a record chosen by held-out error: of linear models for all candidates, of the model itself for the best."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from scipy.signal import lfilter, lfiltic

from sysid.arrays import Array
from sysid.gp.training import MaximumLikelihood
from sysid.narx.lags import Narx, OnMissing, Target, consecutive
from sysid.stream import Identification, Settings

LONG = (20, 40)  # lags of the inputs that are tried too where the free run counts
LONG_FROM = 10  # unless fewer lags than these are the most that may be tried
BLOCKS = 5  # parts of the record that are held out in turn from a linear model
HELD_OUT = (1, 3)  # of these, not the last: the parts that are held out from the model
WITHIN = (2, 4, 6)  # numbers of lags; up to each, and among all, the best linear model is judged by the model too
AS_GOOD = 1.01  # largest ratio of two errors that count as equal: then the fewest lags are taken
ROWS_PER_COEFFICIENT = 4  # fewer rows: a candidate is not tried
MOST_JUDGED = 10_000  # rows that are learned and predicted while lags are judged
SEARCH_SAMPLES = 300  # that hyper-parameters are estimated from while lags are judged


class LagChoice(NamedTuple):
    """Lags and how they were found; `str` says it in a few lines."""

    narx: Narx
    criterion: str  # one_step or free_run
    tried: list[dict[str, Any]]  # as of `rank_lags`, with the held-out RMSE of the `model` of some
    notes: list[str]

    def __str__(self) -> str:
        what = "in free run" if self.criterion == "free_run" else "one step ahead"
        lines = [f"{_shorten(self.narx)}; RMSE {what} on held-out parts:"]
        for row in [row for row in self.tried if "model" in row] or self.tried[:4]:
            by_model = f", model {row['model']:.4g}" if "model" in row else ""
            lines.append(f"  na={row['na']} nb={row['nb']} nk={row['nk']}: linear {row['linear']:.4g}{by_model}")
        return "\n".join([*lines, *self.notes])


def rank_lags(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    free_run: bool = False,
    max_order: int = 10,
    on_missing: OnMissing = OnMissing.error,
) -> list[dict[str, Any]]:
    """Held-out errors of linear models with na lags of the output and nb lags from nk on of each input, the best first.

    Each is fitted by least squares to four fifths of the rows and judged on the fifth, in turns: one step ahead, or
    simulating it.

    Parameters
    ----------
    records
        As for `Narx.dataset`.
    target, inputs
        Names of the output and of the inputs.
    free_run
        Whether the fifth is simulated.
    max_order
        Largest number of lags; where the free run counts 20 and 40 lags of the inputs are tried too.

    Returns
    -------
    list of dict
        Numbers ``na``, ``nb``, ``nk`` and the RMSE ``linear`` [unit of the output], infinite where it diverges.

    Raises
    ------
    ValueError
        An output that is constant, records that are too short for any candidate.
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    orders, long = range(1, max_order + 1), LONG if free_run and max_order >= LONG_FROM else ()
    sizes = [record.sizes["time"] for record in several]
    candidates = [
        (na, nb, nk)
        for na, nb, nk in product(orders, [*orders, *long] if inputs else [0], (1, 0) if inputs else [1])
        if max(na, nb + nk - 1) < min(sizes) and (na + len(inputs) * nb + 1) * ROWS_PER_COEFFICIENT <= sum(sizes)
    ]
    if not candidates:
        raise ValueError(f"{sum(sizes)} samples are too few to choose lags of {target!r}: name them with narx=orders")
    most = max(na for na, _, _ in candidates), max(nb + nk - 1 for _, nb, nk in candidates)
    lags = {name: range(most[1] + 1) for name in inputs}
    rows = Narx({target: most[0]}, lags, target, predict=Target.value, on_missing=on_missing).dataset(several)
    if not np.ptp(rows["target"].values) > 0:
        raise ValueError(f"{target!r} is constant: there is nothing to learn")
    models = _LinearModels(rows, most, len(inputs), free_run=free_run)
    tried = [{"na": na, "nb": nb, "nk": nk, "linear": models.error(na, nb, nk)} for na, nb, nk in candidates]
    return sorted(tried, key=lambda row: row["linear"])


def choose_lags(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    settings: Settings | None = None,
    free_run: bool = False,
    max_order: int = 10,
    predict: Target = Target.change,
    on_missing: OnMissing = OnMissing.error,
) -> LagChoice:
    """Choose lags of the output and of the inputs by held-out error.

    With `free_run` those of the linear model that simulates best. Otherwise the best linear models of few lags and of
    many (see `rank_lags`) are learned by the model itself, with these settings, and judged one step ahead on two of
    five parts that were left out. Of errors within 1 % the fewest lags win. An input that never moves gets no lags.

    Parameters and errors are those of `rank_lags`; `settings` are those of the identification.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, y = rng.normal(size=1000), np.zeros(1000)
    >>> for k in range(2, 1000):
    ...     y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1] + 0.01 * rng.normal()
    >>> record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(1000.0)})
    >>> choose_lags(record, "y", ["u"], free_run=True).narx.feature_names
    ('y[k-1]', 'y[k-2]', 'u[k-1]')
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    moving = [name for name in inputs if any(np.ptp(record[name].values) != 0 for record in several)]
    notes = [f"{name} never moves and gets no lags" for name in inputs if name not in moving]
    tried = rank_lags(several, target, moving, free_run=free_run, max_order=max_order, on_missing=on_missing)

    def narx_of(row: dict[str, Any]) -> Narx:
        lags = {name: range(row["nk"], row["nk"] + row["nb"]) for name in moving}
        return Narx({target: row["na"]}, lags, target, predict=predict, on_missing=on_missing)

    settings = Settings() if settings is None else settings
    judged, error = tried, "linear"
    if not free_run and isinstance(settings.training, MaximumLikelihood):
        few = [next((row for row in tried if max(row["na"], row["nb"]) <= n), None) for n in (*WITHIN, inf)]
        judged, error = [row for row in tried if any(row is one for one in few)], "model"
        for row in judged:
            row["model"] = _held_out_error(narx_of(row), several, settings)
    good = [row for row in judged if row[error] <= AS_GOOD * min(row[error] for row in judged)]
    chosen = min(good, key=lambda row: row["na"] + len(moving) * row["nb"])
    return LagChoice(narx_of(chosen), "free_run" if free_run else "one_step", tried, notes)


def _shorten(narx: Narx) -> str:
    return ", ".join(f"{name} {lags[0]} to {lags[-1]}" for name, lags in narx.lags.items() if lags)


class _LinearModels:
    """Held-out errors of linear models that differ in their lags, from the moments of all lags, part by part."""

    def __init__(self, rows: xr.Dataset, most: tuple[int, int], n_inputs: int, *, free_run: bool) -> None:
        x, y = rows["regressor"].values, rows["target"].values
        self._most, self._n_inputs, self._free_run = most, n_inputs, free_run
        self._offset, self._scale = y.mean(), y.std()
        centred = x - x.mean(axis=0)
        spread = centred.std(axis=0)
        z = np.column_stack([np.ones(len(y)), centred / np.where(spread > 0, spread, 1.0)])
        self._z, self._t = z, (y - self._offset) / self._scale
        self._x, self._spread = x, np.where(spread > 0, spread, 1.0)
        ends = np.linspace(0, len(y), BLOCKS + 1).astype(int)
        self._parts = [slice(begin, end) for begin, end in pairwise(ends)]
        joined = np.column_stack([z, self._t])
        self._moments = [joined[part].T @ joined[part] for part in self._parts]
        self._follows = consecutive(rows)

    def error(self, na: int, nb: int, nk: int) -> float:
        """Root mean square of the held-out errors of all parts."""
        most_na, most_lag = self._most
        own = [1 + lag for lag in range(na)]
        applied = [1 + most_na + i * (most_lag + 1) + lag for i in range(self._n_inputs) for lag in range(nk, nk + nb)]
        columns = np.array([0, *own, *applied])
        total, squares, n = sum(self._moments), 0.0, 0
        for part, moments in zip(self._parts, self._moments, strict=True):
            rest = total - moments
            theta = np.linalg.lstsq(rest[np.ix_(columns, columns)], rest[columns, -1], rcond=1e-13)[0]
            if self._free_run:
                error = self._simulate(theta, columns, na, part) - self._t[part]
                squares += float(error @ error)
            else:
                both = np.append(-theta, 1.0)
                chosen = np.append(columns, len(moments) - 1)
                squares += max(0.0, float(both @ moments[np.ix_(chosen, chosen)] @ both))
            n += part.stop - part.start
        return float(self._scale * np.sqrt(squares / n)) if np.isfinite(squares) else inf

    def _simulate(self, theta: Array, columns: Array, na: int, part: slice) -> Array:
        """Simulated targets of a part, standardised; each of its pieces without a gap starts from measured lags."""
        own, driven = columns[1 : na + 1], columns[na + 1 :]
        feedback = theta[1 : na + 1] * self._scale / self._spread[own - 1]  # of the output itself, standardised
        shift = feedback @ ((self._offset - self._x[:, own - 1].mean(axis=0)) / self._scale)
        force = theta[0] + shift + self._z[part][:, driven] @ theta[na + 1 :]
        past = (self._x[part][:, own - 1] - self._offset) / self._scale
        starts = np.flatnonzero(~self._follows[part])
        simulated = np.empty(len(force))
        with np.errstate(over="ignore", invalid="ignore"):
            for begin, end in pairwise([*sorted({0, *starts.tolist()}), len(force)]):
                state = lfiltic([1.0], [1.0, *-feedback], past[begin])
                simulated[begin:end] = lfilter([1.0], [1.0, *-feedback], force[begin:end], zi=state)[0]
        return simulated


def _held_out_error(narx: Narx, records: Sequence[xr.Dataset], settings: Settings) -> float:
    """One-step error of the model on parts of the records that it has not learned from."""
    rows = narx.dataset(records)
    x, t, follows = rows["regressor"].values, rows["target"].values, consecutive(rows)
    learned = np.ones(len(t), dtype=bool)
    ends = np.linspace(0, len(t), BLOCKS + 1).astype(int)
    for block in HELD_OUT:
        learned[ends[block] : ends[block + 1]] = False
        follows[ends[block + 1]] = False
    if (step := len(t) // MOST_JUDGED + 1) > 1:  # long records are thinned, then no row follows another
        thinned = np.arange(len(t)) % step == 0
        held_out, learned, follows = ~learned & thinned, learned & thinned, np.zeros(len(t), dtype=bool)
    else:
        held_out = ~learned
    training: Any = settings.training
    n = min(training.n_initial, int(learned.sum()))
    quick = replace(training, record_samples=min(training.record_samples, SEARCH_SAMPLES), n_initial=n)
    start = quick.know(x[learned], t[learned], mean=settings.mean, seed=settings.seed)
    identification = Identification(narx, replace(settings, training=quick), start=start)
    identification.observe_many(x[learned], t[learned], follows=follows[learned])
    assert identification.model is not None
    error = identification.model.predict(x[held_out]).mean - t[held_out]
    return float(np.sqrt(np.mean(error**2)))
