"""Time stamps that are read all at once are those that pandas reads one by one."""

import numpy as np
import pandas as pd
import pytest

from sysid import CsvFiles, UserError
from sysid.data.stamps import read_durations, read_stamps

N = 400


@pytest.fixture(scope="module")
def moments():
    """Moments of all years that nanoseconds can count, midnight and noon among them."""
    rng = np.random.default_rng(0)
    random = pd.to_datetime(rng.integers(-9 * 10**18, 9 * 10**18, N)).round("us")
    special = ["2024-02-29", "2023-12-31 12:00", "2000-01-01 00:00:01", "1999-12-31"]
    days = pd.to_datetime(special, format="ISO8601")
    return days.append(random)


@pytest.mark.parametrize(
    ("stamp_format", "is_recognised"),
    [
        ("%m/%d/%Y %I:%M:%S %p", True),
        ("%m/%d/%Y %I:%M %p", True),
        ("%Y-%m-%d %I:%M:%S.%f %p", True),
        ("%d.%m.%Y %H:%M:%S", True),
        ("%d.%m.%Y %H:%M:%S,%f", True),
        ("%Y/%m/%dT%H:%M", True),
        ("%Y-%m-%d", True),
        ("%d-%m-%y %H:%M:%S", False),
        ("%H:%M:%S %d.%m.%Y", False),
    ],
)
def test_stamps_are_those_of_pandas(stamp_format, is_recognised, moments):
    if "%y" in stamp_format:
        moments = moments[(moments.year >= 1970) & (moments.year <= 2068)]
    cells = pd.Series(moments.strftime(stamp_format))
    cells[3] = None
    expected = pd.to_datetime(cells, format=stamp_format, utc=True).astype("M8[ns, UTC]")
    found = read_stamps(cells, cells[0], stamp_format)
    pd.testing.assert_series_equal(found, expected)
    guessed = read_stamps(cells, cells[0], None)
    assert (guessed is not None) == is_recognised
    if is_recognised:
        pd.testing.assert_series_equal(guessed, expected)


def test_numbers_may_have_one_digit():
    cells = pd.Series(["1/2/2024 1:05:00 PM", "1/12/2024 12:05:00 AM", " 11/2/2024 1:5:0 am"])
    expected = ["2024-01-02 13:05", "2024-01-12 00:05", "2024-11-02 01:05"]
    found = read_stamps(cells, cells[0], None)
    assert found.tolist() == [pd.Timestamp(text, tz="UTC") for text in expected]


@pytest.mark.parametrize(
    "text",
    [
        "31.04.2024 00:00:00",
        "29.02.2023 00:00:00",
        "00.01.2024 00:00:00",
        "01.13.2024 00:00:00",
        "01.01.2024 24:00:00",
        "01.01.2024 00:60:00",
        "01.01.2024 00:00:61",
        "01.01.1500 00:00:00",
        "01.01.2024 13:00:00 PM",
        "01.01.2024 00:00:00 AM",
        "01.01.2024 00:00:00Z",
        "soon",
    ],
)
def test_what_is_no_such_stamp_is_left_to_pandas(text):
    cells = pd.Series(["01.01.2024 00:00:00", text])
    assert read_stamps(cells, cells[0], None) is None
    assert read_stamps(cells[1:], text, None) is None


@pytest.mark.parametrize("stamp_format", ["%A %d.%m.%Y", "%d.%m.", "%Y %j", "%d.%m.%Y %I:%M"])
def test_formats_with_other_fields_are_left_to_pandas(stamp_format):
    assert read_stamps(pd.Series(["01.01.2024"]), "01.01.2024", stamp_format) is None


def test_durations_are_those_of_pandas():
    rng = np.random.default_rng(0)
    durations = pd.Series(pd.to_timedelta(rng.integers(0, 9 * 10**18, N)))
    whole = pd.Series(pd.to_timedelta([0, 1, 86_400, 90_061], unit="s"))
    for expected in (durations, whole):
        cells = expected.astype(str)
        pd.testing.assert_series_equal(read_durations(cells), expected.astype("m8[ns]"))
    assert read_durations(pd.Series(["-1 days +23:59:59"])) is None
    assert read_durations(pd.Series(["0 days 25:00:00"])) is None
    assert read_durations(pd.Series(["200000 days 00:00:00"])) is None
    assert read_durations(pd.Series([f"{10**30} days 00:00:00"])) is None


def test_a_column_with_a_long_text_is_left_to_pandas():
    """All texts would get as much room as the longest one."""
    stamps = pd.Series(["01.01.2024 00:00:00", "01.01.2024" + 10**6 * " "])
    assert read_stamps(stamps, stamps[0], None) is None
    assert read_durations(pd.Series(["0 days 00:00:01", 10**6 * "0"])) is None


@pytest.mark.parametrize(
    "stamps",
    [
        ["01/31/2024 11:59:59 PM", "02/01/2024 12:00:00 AM", "02/01/2024 12:00:01 AM"],
        ["31.01.2024 23:59:59", "01.02.2024 00:00:00", "01.02.2024 00:00:01"],
        ["2024-01-31 11:59:59 PM", "2024-02-01 12:00:00 AM", "2024-02-01 12:00:01 AM"],
        ["0 days 23:59:59", "1 days 00:00:00", "1 days 00:00:01"],
    ],
    ids=["12-hour", "day first", "12-hour ISO", "durations"],
)
def test_files_with_such_times_have_their_steps(stamps, tmp_path):
    path = tmp_path / "times.csv"
    path.write_text("time,y\n" + "".join(f"{stamp},{i}\n" for i, stamp in enumerate(stamps)))
    (record,) = CsvFiles(estimation=[str(path)], outputs=["y"], shortest=3).load().estimation
    assert record.attrs["sampling_time"] == 1.0
    path.write_text(path.read_text().replace(stamps[1], "yesterday"))
    with pytest.raises(UserError, match="'yesterday' is neither a number nor a time stamp like"):
        CsvFiles(estimation=[str(path)], outputs=["y"]).load()
