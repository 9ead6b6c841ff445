"""Records as CSV: one header line, one row per sample, numbers that come back as they were."""

import xarray as xr


def csv_text(record: xr.Dataset) -> str:
    """Time and all signals of a record; every number is the shortest text that gives back its bits.

    >>> from sysid.data.source import make_record
    >>> print(csv_text(make_record({"u": [0.1, 1 / 3]}, name="", sampling_time=0.5)), end="")
    time,u
    0.0,0.1
    0.5,0.3333333333333333
    """
    names = ["time", *map(str, record.data_vars)]
    columns = [record[name].values.tolist() for name in names]
    rows = (",".join(map(repr, row)) for row in zip(*columns, strict=True))
    return "\n".join([",".join(names), *rows]) + "\n"
