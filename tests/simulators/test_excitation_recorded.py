"""Recorded signals, and every way a record can be wrong."""

import numpy as np
import pytest

from simulators.excitation.recorded import Recorded

DT = 0.5  # s
TABLE = "time,u,y\n0.0,1.5,9\n0.5,-2,9\n1.0,3e-1,9\n"


def rng():
    return np.random.default_rng(0)


@pytest.fixture
def csv(tmp_path):
    def write(text):
        path = tmp_path / "record.csv"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def signal(n=3, dt=DT, **settings):
    return Recorded(**settings).signal(n, dt, rng())


def test_a_column_is_read(csv):
    path = csv(TABLE)
    np.testing.assert_array_equal(signal(path=path, column="u"), [1.5, -2.0, 0.3])
    np.testing.assert_array_equal(signal(path=path, column="u", offset=1.0, n=2), [2.5, -1.0])
    np.testing.assert_array_equal(signal(path=path, column="y"), [9, 9, 9])


def test_the_only_column_needs_no_name(csv):
    np.testing.assert_array_equal(signal(path=csv("u\n1\n2\n3\n\n")), [1, 2, 3])
    np.testing.assert_array_equal(signal(path=csv("\ufefftime , u\n5,1\n5.5,2\n6,3\n")), [1, 2, 3])
    np.testing.assert_array_equal(signal(path=csv("t,u\n0,1\n0.5,2\n1,3\n"), time_column="t"), [1, 2, 3])


def test_values_are_taken(csv):
    np.testing.assert_array_equal(signal(values=[1, 2.5, -3]), [1, 2.5, -3])
    np.testing.assert_array_equal(signal(values=np.arange(5.0)), [0, 1, 2])
    np.testing.assert_array_equal(signal(values=range(3)), [0, 1, 2])


def test_a_record_repeats_if_told_to(csv):
    path = csv(TABLE)
    for settings in ({"values": [1.5, -2.0, 0.3]}, {"path": path, "column": "u"}):
        np.testing.assert_array_equal(signal(n=7, repeat=True, **settings), [1.5, -2, 0.3, 1.5, -2, 0.3, 1.5])
        assert Recorded(repeat=True, **settings).period_samples(7, DT) == 3
        assert Recorded(repeat=True, **settings).period_samples(7) == 3
        assert Recorded(**settings).period_samples(7, DT) is None
        with pytest.raises(ValueError, match=r"at least 7 samples, got 3; simulate fewer samples or set repeat"):
            signal(n=7, **settings)


@pytest.mark.parametrize("digits", [6, 4])
def test_printed_times_may_be_rounded(csv, digits):
    rows = "".join(f"{k / 750:.{digits}f},{k}\n" for k in range(300))
    np.testing.assert_array_equal(signal(300, 1 / 750, path=csv("time,u\n" + rows)), np.arange(300))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            "0,1\n0.25,2\n0.5,3\n",
            r"rows every dt=0.5 s, got 0.25 s on average and at row 2 the time 0.25 s instead of 0.5",
        ),
        ("0,1\n0.5,2\n1.5,3\n", r"at row 3 the time 1.5 s instead of 1 s; resample"),
        ("0,1\n0.5,2\n0.5,3\n", r"at row 3 the time 0.5 s"),
        ("0,1\n0.5,2\nx,3\n", r"row 3 of the data: expected a finite number in column 'time', got 'x'"),
    ],
)
def test_times_must_be_those_of_the_samples(csv, rows, message):
    path = csv("time,u\n" + rows)
    with pytest.raises(ValueError, match=message):
        signal(path=path)
    with pytest.raises(ValueError, match=message):
        Recorded(path=path, repeat=True).period_samples(3, DT)


def test_a_drift_of_the_sampling_interval_is_found(csv):
    rows = "".join(f"{k * DT * 1.0005:.9f},{k}\n" for k in range(300))
    with pytest.raises(ValueError, match=r"got 0.50025 s on average"):
        signal(path=csv("time,u\n" + rows))


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        (TABLE, {}, r"expected one column besides the time, got 2; set column to one of \['time', 'u', 'y'\]"),
        ("time\n0\n", {}, r"got 0; set column"),
        (TABLE, {"column": "v"}, r"column='v'.*found it 0 times; set column to one of"),
        ("u,u\n1,2\n", {"column": "u"}, r"found it 2 times"),
        (TABLE, {"column": "u", "time_column": "t"}, r"time_column='t'.*found it 0 times; set time_column"),
        ("u\n1\nx\n3\n", {}, r"row 2 of the data: expected a finite number in column 'u', got 'x'; repair"),
        ("u\n1\nnan\n3\n", {}, r"row 2 .* got 'nan'"),
        ("v,u\n1,2\n1\n", {"column": "u"}, r"row 2 .* got 'no cell'"),
        ("v,u\n1,2\n1,\n", {"column": "u"}, r"row 2 .* got ''"),
        ("u\n", {}, r"expected a header line and rows, got 1 lines"),
        ("", {}, r"expected a header line and rows, got 0 lines"),
    ],
)
def test_files_that_do_not_fit_are_refused(csv, text, settings, message):
    with pytest.raises(ValueError, match=message):
        signal(path=csv(text), **settings)


def test_only_text_is_read(tmp_path):
    path = tmp_path / "record.csv"
    path.write_bytes(b"u\n\xff\xfe\n")
    with pytest.raises(ValueError, match="expected a CSV file in UTF-8"):
        signal(path=str(path))


def test_a_record_must_be_given():
    with pytest.raises(ValueError, match=r"expected a CSV file or values; set path or values"):
        signal()
    with pytest.raises(FileNotFoundError, match=r"nowhere.csv.*no such file.*change path"):
        signal(path="nowhere.csv")
    with pytest.raises(ValueError, match=r"Recorded\(path='a.csv'\): expected only one of path and values"):
        Recorded(path="a.csv", values=[1.0])


@pytest.mark.parametrize("values", [[], 3.0, [1.0, np.nan], [np.inf], ["x"], ["1"], "12", [[1.0, 2.0]], [None]])
def test_impossible_values_are_refused(values):
    with pytest.raises(ValueError, match=r"Recorded\(values=...\): expected finite numbers, at least one"):
        Recorded(values=values)


def test_repeat_is_a_bool():
    with pytest.raises(ValueError, match=r"Recorded\(repeat='no'\): expected true or false"):
        Recorded(values=[1.0], repeat="no")
