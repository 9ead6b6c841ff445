"""Holes of records: missing samples in a row, counted, described and bridged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from sysid.arrays import Array, Indices
from sysid.narx.record import ON_MISSING_ATTRIBUTE, SKIPS_MISSING


def mark_holes(
    record: xr.Dataset, names: Sequence[str], inputs: Sequence[str], bridge_inputs: int
) -> tuple[xr.Dataset, list[str]]:
    """Return a record whose missing values are skipped, and notes on them.

    Holes of inputs of at most `bridge_inputs` samples are interpolated. A record without missing
    values, or one that was marked before, stays as it is.
    """
    signals = {name: record[name].values.astype(np.float64) for name in names}
    notes = bridge_holes([signals], inputs, bridge_inputs)
    missing = [] if may_have_holes(record) else describe_holes([signals], inputs)
    if not notes and not missing:
        return record, []
    marked = record.assign(
        {name: (record[name].dims, values, record[name].attrs) for name, values in signals.items()}
    )
    if missing:
        marked = marked.assign_attrs({ON_MISSING_ATTRIBUTE: SKIPS_MISSING})
    return marked, notes + missing


def find_holes(values: Array) -> Indices:
    """Return the first and the last sample + 1 (m, 2) of the holes of a signal (n,).

    >>> find_holes(np.array([1.0, np.nan, np.nan, 2.0, np.nan])).tolist()
    [[1, 3], [4, 5]]
    """
    is_missing = np.concatenate([[False], ~np.isfinite(values), [False]])
    return np.asarray(np.flatnonzero(np.diff(is_missing.astype(np.int8))).reshape(-1, 2))


def may_have_holes(record: xr.Dataset) -> bool:
    """Return whether missing values of a record were asked to be skipped."""
    return record.attrs.get(ON_MISSING_ATTRIBUTE) == SKIPS_MISSING


def has_holes(records: Sequence[xr.Dataset], names: Sequence[str]) -> bool:
    """Return whether a value of these signals is missing in a record that may have holes."""
    return any(
        may_have_holes(record) and not np.isfinite(record[name].values).all()
        for record in records
        for name in names
    )


def split_records_at_holes(
    records: Sequence[xr.Dataset], names: Sequence[str], shortest: int
) -> list[xr.Dataset]:
    """Return the parts of records between holes of any of these signals.

    They serve methods that need complete records. Parts of fewer than `shortest` samples are left
    out; a record without holes stays as it is.
    """
    parts = []
    for record in records:
        if not has_holes([record], names):
            parts.append(record)
            continue
        is_complete = np.isfinite([record[name].values for name in names]).all(axis=0)
        pieces = find_holes(np.where(is_complete, np.nan, 0.0)).tolist()  # runs of complete samples
        kept = [(first, end) for first, end in pieces if end - first >= shortest]
        for number, (first, end) in enumerate(kept, start=1):
            window = max(int(record.attrs["initialisation_window"]) - first, 0)
            attributes = {
                "name": f"{record.attrs['name']}, segment {number}",
                "initialisation_window": min(window, end - first - 1),
            }
            part = record.isel(time=slice(first, end)).assign_attrs(attributes)
            del part.attrs[ON_MISSING_ATTRIBUTE]
            parts.append(part)
    return parts


def bridge_holes(
    records: Sequence[dict[str, Array]], names: Sequence[str], max_samples: int
) -> list[str]:
    """Interpolate short holes of signals in place, and return a note for each signal.

    The values are on the line between the samples around the hole. Holes at the beginning or the
    end of a record stay.
    """
    notes = []
    for name in names:
        n_bridged = 0
        lengths = []
        for record in records:
            values = record[name]
            for first, end in find_holes(values).tolist():
                if first == 0 or end == len(values) or end - first > max_samples:
                    continue
                around = [first - 1, end]
                values[first:end] = np.interp(np.arange(first, end), around, values[around])
                n_bridged += end - first
                lengths.append(end - first)
        if lengths:
            notes.append(
                f"{n_bridged} missing samples of {name} are interpolated "
                f"({_count_holes(lengths)}, bridge_inputs={max_samples})"
            )
    return notes


def describe_holes(
    records: Sequence[Mapping[str, Array]],
    inputs: Sequence[str] = (),
    option: str = "bridge_inputs",
) -> list[str]:
    """Return a text for each signal that has holes: how many, how long, and what an input needs.

    `option` is the name of the setting that bridges them, as the user writes it.
    """
    texts = []
    longest_of_inputs = 0
    for name in records[0]:
        holes = [find_holes(record[name]) for record in records]
        lengths = np.concatenate([np.diff(ends)[:, 0] for ends in holes])
        if len(lengths):
            n = sum(len(record[name]) for record in records)
            share = f"{100 * lengths.sum() / n:.2g} %"
            texts.append(
                f"{lengths.sum()} of {n} samples of {name} are missing ({share}, "
                f"{_count_holes(lengths)})"
            )
            if name in inputs:
                longest_of_inputs = max(longest_of_inputs, int(max(lengths)))
    if longest_of_inputs:
        texts.append(
            "a free run ends at a hole of an input and begins again after it; "
            f"{option}={longest_of_inputs} interpolates holes of at most so many samples"
        )
    return texts


def _count_holes(lengths: Sequence[int] | Indices) -> str:
    """Return the number of holes and the longest one as text."""
    if len(lengths) == 1:
        return f"1 hole of {lengths[0]}"
    return f"{len(lengths)} holes, the longest of {max(lengths)}"
