"""Lags of a record chosen by held-out error.

One step ahead that of linear models for all candidates, of the model itself for the best. In free
run that of quick versions of the estimators of the training, for a coarse grid.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise, product
from math import inf
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from sysid.errors import UserError
from sysid.gp.training import InitialSamples, MaximumLikelihood
from sysid.identification import Identification, Settings
from sysid.narx.lags import Narx, OnMissing, Target, consecutive
from sysid.simulation.baselines import LinearArx
from sysid.simulation_error.linear_model import LinearModel
from sysid.simulation_error.training import FreeRun

# lags of the output and of the inputs that are tried in free run
ORDERS = (1, 2, 3, 4, 6)
LONG = (10, 20, 41)
LONG_FROM = 10  # the latter unless fewer lags than these are the most that may be tried
# samples of a piece, and of all that are simulated of longer records
PIECE = 2000
MOST_COMPARED = 10_000
BLOCKS = 5  # parts of the record that are held out in turn from a linear model
HELD_OUT = (1, 3)  # of these, not the last: the parts that are held out from the model
WITHIN = (
    2,
    4,
    6,
)  # numbers of lags; up to each, and among all, the best linear model is judged by the model too
AS_GOOD = 1.01  # largest ratio of two errors that count as equal: then the fewest lags are taken
EXACT = 1e-7  # standard deviations of the output: errors below are rounding, and equal
ROWS_PER_COEFFICIENT = 4  # fewer rows: a candidate is not tried
MOST_JUDGED = 10_000  # rows that are learned and predicted while lags are judged
MOST_TOLD = 4  # lags that are told of
SEARCH_SAMPLES = 300  # that hyper-parameters are estimated from while lags are judged


class LagChoice(NamedTuple):
    """Lags and how they were found; `str` says it in a few lines."""

    narx: Narx
    criterion: str  # one_step or free_run
    #: as of `rank_lags`, with the held-out RMSE of the `model` of some; in free run of all, the number of `parts` that
    #: were simulated, fewer where lags could win no more, and whether by a `quick` version of the training; one is
    #: `chosen`
    tried: list[dict[str, Any]]
    notes: list[str]

    def __str__(self) -> str:
        what = "in free run" if self.criterion == "free_run" else "one step ahead"
        lines = [
            f"{_shorten(self.narx)}; RMSE {what} on held-out parts, unit of {self.narx.target}:"
        ]
        judged = [row for row in self.tried if "model" in row] or self.tried
        for row in judged[:MOST_TOLD]:
            errors = [
                f"{name} {row[name]:.4g}{_how(row, name)}"
                for name in ("linear", "model")
                if row.get(name) is not None
            ]
            chosen = ", chosen" if "chosen" in row else ""
            lines.append(
                f"  na={row['na']} nb={row['nb']} nk={row['nk']}: {', '.join(errors)}{chosen}"
            )
        return "\n".join([*lines, *self.notes])


def _how(row: dict[str, Any], name: str) -> str:
    """How an error in free run was found; empty one step ahead."""
    return (
        f" ({row[f'{name}_parts']} parts{', quick' * row[f'{name}_quick']})"
        if f"{name}_parts" in row
        else ""
    )


def rank_lags(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    max_order: int = 10,
    on_missing: OnMissing = OnMissing.error,
) -> list[dict[str, Any]]:
    """Held-out errors of linear models with na lags of the output and nb lags from nk on of each
    input, the best first.

    Each is fitted by least squares to four fifths of the rows and judged on the fifth one step
    ahead, in turns.

    Parameters
    ----------
    records
        As for `Narx.dataset`.
    target, inputs
        Names of the output and of the inputs.
    max_order
        Largest number of lags.

    Returns
    -------
    list of dict
        Numbers ``na``, ``nb``, ``nk`` and the RMSE ``linear`` [unit of the output].

    Raises
    ------
    ValueError
        An output that is constant, records that are too short for any candidate.
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    orders = range(1, max_order + 1)
    every = product(orders, orders if inputs else [0], (1, 0) if inputs else [1])
    candidates = _affordable(every, several, target, inputs)
    most = (
        max(na for na, _, _ in candidates),
        max(nb + nk - 1 for _, nb, nk in candidates),
    )
    lags = {name: range(most[1] + 1) for name in inputs}
    rows = Narx(
        {target: most[0]}, lags, target, predict=Target.value, on_missing=on_missing
    ).dataset(several)
    if not np.ptp(rows["target"].values) > 0:
        raise UserError(f"{target!r} is constant: there is nothing to learn")
    models = _LinearModels(rows, most, len(inputs))
    tried = [
        {"na": na, "nb": nb, "nk": nk, "linear": models.error(na, nb, nk)}
        for na, nb, nk in candidates
    ]
    return sorted(tried, key=lambda row: row["linear"])


def best_arx(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    predict: Target = Target.change,
    on_missing: OnMissing = OnMissing.error,
) -> LinearArx:
    """Linear model with the lags of the smallest held-out error, the first of `rank_lags`, fitted
    to all rows.
    """
    best = rank_lags(records, target, inputs, on_missing=on_missing)[0]
    lags = {name: range(best["nk"], best["nk"] + best["nb"]) for name in inputs}
    return LinearArx.fit(
        Narx({target: best["na"]}, lags, target, predict=predict, on_missing=on_missing),
        records,
    )


def choose_lags(
    records: xr.Dataset | Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
    *,
    settings: Settings | None = None,
    max_order: int = 10,
    predict: Target = Target.change,
    on_missing: OnMissing = OnMissing.error,
) -> LagChoice:
    """Choose lags of the output and of the inputs by held-out error.

    The best linear models of few lags and of many (see `rank_lags`) are learned by the model
    itself, with these settings, and judged one step ahead on two of five parts that were left out.
    Of errors within 1 %, or of the size of rounding, the fewest lags win. An input that never moves
    gets no lags.

    If the training is `FreeRun`, the error is that of the simulation of held-out parts, for 1, 2,
    3, 4 and 6 lags of the output, as many of the inputs, or 10, 20 and 41 of them
    (`FreeRun.compare_lags`). Again the fewest within 1 % win. Long records are judged by pieces
    spread over them.

    Parameters and errors are those of `rank_lags`; `settings` are those of the identification.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> u, y = rng.normal(size=1000), np.zeros(1000)
    >>> for k in range(2, 1000):
    ...     y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + u[k - 1] + 0.01 * rng.normal()
    >>> record = xr.Dataset({"y": ("time", y), "u": ("time", u)}, {"time": np.arange(1000.0)})
    >>> choose_lags(record, "y", ["u"], max_order=4).narx.feature_names
    ('y[k-1]', 'y[k-2]', 'u[k-1]')
    """
    several = [records] if isinstance(records, xr.Dataset) else list(records)
    moving = [
        name for name in inputs if any(np.ptp(record[name].values) != 0 for record in several)
    ]
    notes = [f"{name} never moves and gets no lags" for name in inputs if name not in moving]
    settings = Settings() if settings is None else settings

    def narx_of(na: int, nb: int, nk: int) -> Narx:
        lags = {name: range(nk, nk + nb) for name in moving}
        return Narx({target: na}, lags, target, predict=predict, on_missing=on_missing)

    def take_fewest(rows: Sequence[dict[str, Any]]) -> Narx:
        chosen = min(rows, key=lambda row: row["na"] + len(moving) * row["nb"])
        chosen["chosen"] = True
        return narx_of(chosen["na"], chosen["nb"], chosen["nk"])

    if isinstance(settings.training, FreeRun):
        candidates = [(na, na, nk) for na in ORDERS for nk in (0, 1)]
        candidates += [(na, nb, 0) for na in ORDERS for nb in LONG if max_order >= LONG_FROM]
        grid = (
            [lags for lags in candidates if lags[0] <= max_order]
            if moving
            else [(na, 0, 1) for na in ORDERS]
        )
        narxes = {narx_of(*lags): lags for lags in _affordable(grid, several, target, moving)}
        tried = _simulate(narxes, several, settings, settings.training)
        best = tried[0]
        name = min(("model", "linear"), key=lambda name: tried[0].get(name) or inf)
        how = [f"{name}_parts", f"{name}_quick"]
        alike = [
            row for row in tried if [row.get(key) for key in how] == [best[key] for key in how]
        ]
        narx = take_fewest(
            [row for row in alike if (row[name] or inf) <= AS_GOOD * (best[name] or inf)]
        )
        return LagChoice(narx, "free_run", tried, notes)
    tried = rank_lags(several, target, moving, max_order=max_order, on_missing=on_missing)
    judged = tried
    error = "linear"
    if isinstance(settings.training, MaximumLikelihood):
        few = [
            next((row for row in tried if max(row["na"], row["nb"]) <= n), None)
            for n in (*WITHIN, inf)
        ]
        judged = [row for row in tried if any(row is one for one in few)]
        error = "model"
        for row in judged:
            row["model"] = _held_out_error(
                narx_of(row["na"], row["nb"], row["nk"]), several, settings
            )
    least = EXACT * float(np.nanstd(np.concatenate([record[target].values for record in several])))
    good = [
        row
        for row in judged
        if row[error] <= max(AS_GOOD * min(row[error] for row in judged), least)
    ]
    return LagChoice(take_fewest(good), "one_step", tried, notes)


def _shorten(narx: Narx) -> str:
    return ", ".join(f"{name} {lags[0]} to {lags[-1]}" for name, lags in narx.lags.items() if lags)


def _affordable(
    candidates: Iterable[tuple[int, int, int]],
    records: Sequence[xr.Dataset],
    target: str,
    inputs: Sequence[str],
) -> list[tuple[int, int, int]]:
    """Numbers na, nb, nk for which the records are long enough."""
    sizes = [record.sizes["time"] for record in records]
    found = [
        (na, nb, nk)
        for na, nb, nk in candidates
        if max(na, nb + nk - 1) < min(sizes)
        and (na + len(inputs) * nb + 1) * ROWS_PER_COEFFICIENT <= sum(sizes)
    ]
    if not found:
        raise UserError(
            f"{sum(sizes)} samples are too few to choose lags of {target!r}: name them with narx=orders"
        )
    return found


def _simulate(
    narxes: dict[Narx, tuple[int, int, int]],
    records: Sequence[xr.Dataset],
    settings: Settings,
    training: FreeRun,
) -> list[dict[str, Any]]:
    """Held-out errors of simulations with several lags, the best first; a model that refuses has
    none.
    """
    share = MOST_COMPARED / sum(record.sizes["time"] for record in records)
    pieces = list(records)
    if share < 1.0:
        cuts = [
            np.linspace(0, n, max(1, n // PIECE) + 1).astype(int)
            for n in (one.sizes["time"] for one in records)
        ]
        pieces = [
            one.isel(time=slice(*ends))
            for one, all_ in zip(records, cuts, strict=True)
            for ends in pairwise(all_)
        ]
        pieces = [
            pieces[i]
            for i in np.linspace(0, len(pieces) - 1, max(2, int(share * len(pieces)))).astype(int)
        ]
    samples = []
    labels = list[str]()
    for narx in narxes:
        rows = narx.dataset(pieces)
        samples.append(
            InitialSamples(narx, rows["regressor"].values, rows["target"].values, consecutive(rows))
        )
        labels.append(f"{_shorten(narx)} ({len(labels) + 1} of {len(narxes)})")
    found: dict[Narx, dict[str, Any]] = {}
    for trial in training.compare_lags(samples, labels, budget=settings.budget, seed=settings.seed):
        row = found.setdefault(
            trial.narx, dict(zip(("na", "nb", "nk"), narxes[trial.narx], strict=True))
        )
        name = "linear" if isinstance(trial.estimator, LinearModel) else "model"
        if name not in row:
            row |= {
                name: trial.rmse,
                f"{name}_parts": len(trial.fits),
                f"{name}_quick": trial.is_quick,
            }
    return list(found.values())


class _LinearModels:
    """Held-out errors of linear models that differ in their lags, from the moments of all lags,
    part by part.
    """

    def __init__(self, rows: xr.Dataset, most: tuple[int, int], n_inputs: int) -> None:
        x = rows["regressor"].values
        y = rows["target"].values
        self._most, self._n_inputs, self._scale = most, n_inputs, y.std()
        centred = x - x.mean(axis=0)
        spread = centred.std(axis=0)
        scaled = centred / np.where(spread > 0, spread, 1.0)
        joined = np.column_stack([np.ones(len(y)), scaled, (y - y.mean()) / self._scale])
        ends = np.linspace(0, len(y), BLOCKS + 1).astype(int)
        self._moments = [joined[begin:end].T @ joined[begin:end] for begin, end in pairwise(ends)]
        self._n = len(y)

    def error(self, na: int, nb: int, nk: int) -> float:
        """Root mean square of the held-out errors of all parts."""
        most_na, most_lag = self._most
        own = [1 + lag for lag in range(na)]
        applied = [
            1 + most_na + i * (most_lag + 1) + lag
            for i in range(self._n_inputs)
            for lag in range(nk, nk + nb)
        ]
        columns = np.array([0, *own, *applied])
        total = sum(self._moments)
        squares = 0.0
        for moments in self._moments:
            rest = total - moments
            theta = np.linalg.lstsq(rest[np.ix_(columns, columns)], rest[columns, -1], rcond=1e-13)[
                0
            ]
            both = np.append(-theta, 1.0)
            chosen = np.append(columns, len(moments) - 1)
            squares += max(0.0, float(both @ moments[np.ix_(chosen, chosen)] @ both))
        return float(self._scale * np.sqrt(squares / self._n))


def _held_out_error(narx: Narx, records: Sequence[xr.Dataset], settings: Settings) -> float:
    """One-step error of the model on parts of the records that it has not learned from."""
    rows = narx.dataset(records)
    x = rows["regressor"].values
    t = rows["target"].values
    follows = consecutive(rows)
    learned = np.ones(len(t), dtype=bool)
    ends = np.linspace(0, len(t), BLOCKS + 1).astype(int)
    for block in HELD_OUT:
        learned[ends[block] : ends[block + 1]] = False
        follows[ends[block + 1]] = False
    if (
        step := len(t) // MOST_JUDGED + 1
    ) > 1:  # long records are thinned, then no row follows another
        thinned = np.arange(len(t)) % step == 0
        held_out = ~learned & thinned
        learned = learned & thinned
        follows = np.zeros(len(t), dtype=bool)
    else:
        held_out = ~learned
    training: Any = settings.training
    n = min(training.n_initial, int(learned.sum()))
    quick = replace(
        training,
        record_samples=min(training.record_samples, SEARCH_SAMPLES),
        n_initial=n,
    )
    start = quick.know(x[learned], t[learned], mean=settings.mean, seed=settings.seed)
    identification = Identification(narx, replace(settings, training=quick), start=start)
    identification.observe_many(x[learned], t[learned], follows=follows[learned])
    error = identification.require_model().predict(x[held_out]).mean - t[held_out]
    return float(np.sqrt(np.mean(error**2)))
