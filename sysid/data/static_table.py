"""Static tables: rows that are independent of each other, split into estimation and test."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sysid.data.published import Table
from sysid.recordings import Recordings, make_record, part


class Column(NamedTuple):
    """Unit and description of a column."""

    unit: str
    long_name: str


def split_rows(
    table: Table,
    described: Mapping[str, Column],
    *,
    name: str,
    target: str,
    n_estimation: int,
    shuffle: bool,
    seed: int,
) -> Recordings:
    """Recordings with one row per sample: the first `n_estimation` rows for estimation, the others for the test.

    ``time`` counts the rows in the order used (units ``1``), the variable ``row`` says where each one stands in
    the file, the attribute ``split`` how they were ordered, and ``static`` is 1.

    Parameters
    ----------
    table
        The rows in file order.
    described
        Unit and description of every column.
    target
        The column that is the output.
    shuffle, seed
        Order the rows by a random permutation of this seed first.

    Raises
    ------
    ValueError
        `n_estimation` leaves no row on one side.
    """
    n = len(table.columns[target])
    if not 1 <= n_estimation < n:
        raise ValueError(f"{name}: expected n_estimation from 1 to {n - 1} of {n} rows, got {n_estimation}")
    order = np.random.default_rng(seed).permutation(n) if shuffle else np.arange(n)
    split = f"shuffled with seed {seed}" if shuffle else "file order"
    whole = make_record(
        {column: values[order] for column, values in table.columns.items()},
        name=name,
        sampling_time=1.0,
        units={column: entry.unit for column, entry in described.items()},
        long_names={column: entry.long_name for column, entry in described.items()},
        attributes=table.attributes | {"static": 1, "split": split},
    )
    whole["time"].attrs.update(units="1", long_name="number of the row in the order used")
    whole["row"] = ("time", order, {"units": "1", "long_name": "number of the row in the file"})
    return Recordings(
        name,
        tuple(column for column in table.columns if column != target),
        (target,),
        estimation=(part(whole, 0, n_estimation, name=f"{name}, estimation"),),
        test=(part(whole, n_estimation, name=f"{name}, test"),),
    )
