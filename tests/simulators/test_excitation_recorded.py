"""Recorded excitations: values, and columns of CSV files."""

import numpy as np
import pytest

from excitation_signals import draw_signal
from simulators import Recorded


def write_csv(tmp_path, text):
    """Write a CSV file and return its path."""
    path = tmp_path / "record.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


TABLE_OF_TWO_SIGNALS = "time,u,y\n0.0,1.5,9\n0.5,-2,9\n1.0,3e-1,9\n"


@pytest.mark.parametrize(
    ("text", "settings", "expected"),
    [
        pytest.param(
            TABLE_OF_TWO_SIGNALS, {"column": "u"}, [1.5, -2.0, 0.3], id="one of two columns"
        ),
        pytest.param(
            TABLE_OF_TWO_SIGNALS, {"column": "y", "offset": 1.0}, [10, 10, 10], id="offset"
        ),
        pytest.param("u\n1\n2\n3\n\n", {}, [1, 2, 3], id="no time"),
        pytest.param("\ufefftime , u\n5,1\n5.5,2\n6,3\n", {}, [1, 2, 3], id="byte order mark"),
        pytest.param("t,u\n0,1\n0.5,2\n1,3\n", {"time_column": "t"}, [1, 2, 3], id="named time"),
    ],
)
def test_column_of_a_file_is_read(tmp_path, text, settings, expected):
    recorded = Recorded(write_csv(tmp_path, text), **settings)
    np.testing.assert_array_equal(draw_signal(recorded, 3, dt=0.5), expected)


@pytest.fixture(params=["range", "array", "file"])
def source_of_0_1_2(request, tmp_path):
    """Return settings of a recorded excitation with the values 0, 1, 2."""
    if request.param == "range":
        return {"values": range(3)}
    if request.param == "array":
        return {"values": np.arange(3.0)}
    return {"path": write_csv(tmp_path, "u\n0\n1\n2\n")}


def test_record_repeats_on_demand(source_of_0_1_2):
    recorded = Recorded(repeat=True, **source_of_0_1_2)
    np.testing.assert_array_equal(draw_signal(recorded, 7, dt=0.5), [0, 1, 2, 0, 1, 2, 0])


def test_record_that_does_not_repeat_is_too_short_for_more_samples(source_of_0_1_2):
    recorded = Recorded(**source_of_0_1_2)
    assert recorded.period_samples(7) is None
    with pytest.raises(ValueError, match="at least 7 samples, got 3"):
        draw_signal(recorded, 7, dt=0.5)


@pytest.mark.parametrize("digits", [6, 4])
def test_printed_times_may_be_rounded(tmp_path, digits):
    rows = [f"{k / 750:.{digits}f},{k}\n" for k in range(300)]
    recorded = Recorded(write_csv(tmp_path, "time,u\n" + "".join(rows)))
    np.testing.assert_array_equal(draw_signal(recorded, 300, dt=1 / 750), np.arange(300))


SLIGHTLY_SLOWER_ROWS = "".join(f"{k * 0.50025:.9f},{k}\n" for k in range(300))


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        pytest.param(
            "time,u\n0,1\n0.25,2\n0.5,3\n",
            {},
            r"dt=0.5 s, got 0.25 s on average",
            id="another sampling time",
        ),
        pytest.param(
            "time,u\n" + SLIGHTLY_SLOWER_ROWS,
            {},
            "got 0.50025 s on average",
            id="slightly slower",
        ),
        pytest.param("time,u\n0,1\n0.5,2\nx,3\n", {}, r"row 3 .* 'time', got 'x'", id="time as x"),
        pytest.param(
            TABLE_OF_TWO_SIGNALS, {}, "column=None.*'time', 'u', 'y'", id="no column chosen"
        ),
        pytest.param("u,u\n1,2\n", {"column": "u"}, "2 times", id="column twice"),
        pytest.param(
            TABLE_OF_TWO_SIGNALS,
            {"column": "u", "time_column": "t"},
            "time_column='t'",
            id="unknown column of times",
        ),
        pytest.param("u\n1\nnan\n3\n", {}, r"row 2 .* got 'nan'", id="nan"),
        pytest.param(
            "v,u\n1,2\n1\n", {"column": "u"}, r"row 2 .* got 'no cell'", id="missing cell"
        ),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, text, settings, message):
    recorded = Recorded(write_csv(tmp_path, text), **settings)
    with pytest.raises(ValueError, match=message):
        draw_signal(recorded, 3, dt=0.5)


def test_missing_file_is_refused():
    with pytest.raises(FileNotFoundError, match=r"nowhere.csv.*change path"):
        draw_signal(Recorded("nowhere.csv"), 1, dt=0.5)
