"""Synthetic, measured and EPW weather, and every way a record can be wrong."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from plants import DAY, HOUR
from simulators import EpwWeather, MeasuredWeather, SyntheticWeather
from simulators.settings import read_csv

QUARTERS_OF_A_YEAR = 900.0 * np.arange(35041)  # s, in steps of a quarter of an hour
HOURS_OF_A_YEAR = HOUR * np.arange(24 * 365)  # s

# --- synthetic weather ----------------------------------------------------------------------------

WITHOUT_CYCLES = SyntheticWeather(annual_amplitude=0.0, daily_amplitude=0.0, mean=0.0)


def test_synthetic_weather_has_its_spectrum():
    """The correlation is exp(-1) after 60 hours."""
    z = np.array([WITHOUT_CYCLES.temperature(HOURS_OF_A_YEAR, seed=seed) for seed in range(20)])
    assert z.std() == pytest.approx(4.0, rel=0.05)
    correlation = np.mean(z[:, 60:] * z[:, :-60]) / z.var()
    assert correlation == pytest.approx(np.exp(-1), abs=0.06)


def test_synthetic_weather_is_stationary_from_the_first_hour():
    starts = [WITHOUT_CYCLES.temperature([0.0], seed=seed)[0] for seed in range(1000)]
    assert np.std(starts) == pytest.approx(4.0, rel=0.1)


def test_cycles_peak_when_they_should():
    """The coldest day is in the middle of January, the warmest hour at 14."""
    only_cycles = SyntheticWeather(weather_std=0.0)
    by_day = only_cycles.temperature(HOURS_OF_A_YEAR).reshape(365, 24)
    daily_mean = by_day.mean(axis=1)
    assert np.argmax(by_day[0]) == 14
    assert abs(int(np.argmin(daily_mean)) - 15) <= 1
    assert np.ptp(daily_mean) == pytest.approx(20.0, abs=0.01)
    assert by_day.mean() == pytest.approx(9.0)
    assert np.ptp(by_day[0]) == pytest.approx(6.0, abs=0.1)


def test_synthetic_weather_depends_on_nothing_but_the_seed():
    weather = SyntheticWeather()
    times = QUARTERS_OF_A_YEAR
    whole = weather.temperature(times, seed=4)
    np.testing.assert_array_equal(weather.temperature(times[:500], seed=4), whole[:500])
    np.testing.assert_array_equal(weather.temperature(times[:500:4], seed=4), whole[:500:4])
    assert not np.allclose(weather.temperature(times, seed=5), whole)


@pytest.mark.parametrize(
    ("name", "value"), [("weather_std", -1.0), ("mean", np.nan), ("correlation_hours", 0.0)]
)
def test_impossible_synthetic_weather_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"SyntheticWeather\({name}="):
        SyntheticWeather(**{name: value})


def test_negative_times_are_refused():
    with pytest.raises(ValueError, match="finite times >= 0"):
        SyntheticWeather().temperature([-1.0])


# --- measured weather -----------------------------------------------------------------------------


def test_measured_year_is_read_at_its_hours(measured_year):
    header, *rows = Path(measured_year).read_text().splitlines()
    column = header.split(",").index("temp_air_C")
    values = [float(row.split(",")[column]) for row in rows]
    weather = MeasuredWeather(measured_year)
    np.testing.assert_array_equal(weather.temperature(HOURS_OF_A_YEAR), values)
    interpolated = 0.75 * values[1] + 0.25 * values[2]
    assert weather.temperature([1.25 * HOUR]) == pytest.approx(interpolated)
    in_the_last_hour = weather.temperature([8759.5 * HOUR, 8760 * HOUR])
    np.testing.assert_array_equal(in_the_last_hour, [values[-1]] * 2)


def weather_of_csv(tmp_path, text, **settings):
    """Write a CSV file and return its weather."""
    path = tmp_path / "weather.csv"
    path.write_text(text)
    return MeasuredWeather(str(path), **settings)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("temp_air\n1\n2\n4\n", id="one column"),
        pytest.param("Temperature,wind\n1,9\n2,9\n4,9\n\n", id="empty last line"),
        pytest.param("hour,temp_air_C\n1,1\n2,2\n3,4\n", id="hours"),
        pytest.param(
            "month,day,hour,dry_bulb\n12,31,23,1\n12,31,24,2\n1,1,1,4\n", id="end of the year"
        ),
        pytest.param("month,day,hour,dry_bulb\n2,28,23,1\n2,29,0,2\n2,29,1,4\n", id="leap day"),
        pytest.param(
            "year,month,day,hour_UTC,T2m\n2011,2,28,23,1\n2011,3,1,0,2\n2011,3,1,1,4\n",
            id="no leap year",
        ),
        pytest.param(
            "time,temp_air\n2012-02-28T23:00,1\n2012-02-29T00:00,2\n2012-02-29T01:00,4\n",
            id="ISO times",
        ),
        pytest.param(
            "datetime,temp_air\n"
            "2012-03-25 01:00+01:00,1\n"
            "2012-03-25 03:00+02:00,2\n"
            "2012-03-25 04:00+02:00,4\n",
            id="summer time begins",
        ),
    ],
)
def test_good_records_are_interpolated_and_the_last_hour_held(tmp_path, text):
    times = HOUR * np.array([0, 0.5, 1, 1.5, 2, 2.5, 3])
    temperatures = weather_of_csv(tmp_path, text).temperature(times)
    np.testing.assert_allclose(temperatures, [1, 1.5, 2, 3, 4, 4, 4])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"0 times; set column to one of \['a', 'b'\]"),
        ("temp,temp_air\n1,2\n", "2 times; set column"),
        ("temp_air\n1\nwarm\n", "line 3: .*'warm'"),
        ("temp_air\n1\nnan\n", "line 3: .*missing"),
        ("temp_air\n1\n\n2\n", "line 3: expected 1 cells, got 0"),
        ("temp_air\n280\n", "line 2: .*from -90 to 60 degC"),
        ("hour,temp_air\n1,0\n3,0\n", "line 3: .* got 2 hours"),
        ("hour,temp_air\none,0\n", "line 2: expected a whole number"),
        ("month,day,hour,temp_air\n1,1,24,0\n1,3,1,0\n", "line 3: .* got 25 hours"),
        ("month,day,hour,temp_air\n2,30,1,0\n", "line 2: month 2, day 30 is no date"),
        ("month,day,hour,temp_air\n2,3,99,0\n", "line 2: expected an hour"),
        (
            "time,temp_air\n2010-01-01T00:00,0\n2010-01-01T00:15,0\n",
            "line 3: .* got 0.25 hours",
        ),
        ("time,temp_air\nyesterday,0\n", "line 2: expected an ISO time"),
        ("time,temp_air\n2010-01-01T00:00,0\n2010-01-01T01:00Z,0\n", "time zone"),
    ],
    ids=[
        "no temperature",
        "two temperatures",
        "word",
        "nan",
        "empty line",
        "kelvin",
        "gap of an hour",
        "hour as a word",
        "gap of a day",
        "February 30",
        "hour 99",
        "quarters of an hour",
        "time as a word",
        "time zone in one line",
    ],
)
def test_bad_records_are_refused_with_their_line(tmp_path, text, message):
    weather = weather_of_csv(tmp_path, text)
    with pytest.raises(ValueError, match=message):
        weather.temperature([0.0])


def test_named_column_is_used(tmp_path):
    weather = weather_of_csv(tmp_path, "temp,roof\n1,2\n", column="roof")
    assert weather.temperature([0.0]) == 2


def test_missing_column_is_refused(tmp_path):
    weather = weather_of_csv(tmp_path, "temp,roof\n1,2\n", column="cellar")
    with pytest.raises(ValueError, match="column='cellar'"):
        weather.temperature([0.0])


@pytest.fixture
def two_days(tmp_path):
    """Return the weather of a record of two days."""
    return weather_of_csv(tmp_path, "temp\n" + "1\n" * 48)


def test_record_reaches_to_the_end_of_its_last_hour(two_days):
    assert len(two_days.temperature([2 * DAY])) == 1


@pytest.mark.parametrize(
    "times", [[2 * DAY + 1], QUARTERS_OF_A_YEAR], ids=["a second more", "a year"]
)
def test_times_after_the_end_of_the_record_are_refused(two_days, times):
    with pytest.raises(ValueError, match="covers 2 days"):
        two_days.temperature(times)


def test_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"temp\n\xff\xfe\n")
    with pytest.raises(ValueError, match="UTF-8"):
        MeasuredWeather(str(path)).temperature([0.0])


# --- EPW files ------------------------------------------------------------------------------------

EPW_LOCATION = "LOCATION,Nowhere,-,-,-,0,50.0,10.0,1.0,100.0"


def weather_of_epw(tmp_path, rows, location=EPW_LOCATION):
    """Write an EPW file of rows (month, day, hour, dry bulb) and return its weather."""
    lines = [location, *(f"HEADER {i}" for i in range(2, 9))]
    for month, day, hour, temperature in rows:
        first_cells = f"1999,{month},{day},{hour},60,?9?9,{temperature},0.5,80,101300"
        lines.append(first_cells + ",0" * 25)
    path = tmp_path / "place.epw"
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return EpwWeather(str(path))


def test_epw_file_is_read(tmp_path):
    rows = []
    for i in range(800):  # hours from the first of January on
        month = 1 + i // 744
        day = 1 + i % 744 // 24
        hour = 1 + i % 24
        rows.append((month, day, hour, i / 100))
    weather = weather_of_epw(tmp_path, rows)
    np.testing.assert_allclose(weather.temperature(HOUR * np.arange(800)), np.arange(800) / 100)
    assert weather.temperature([10.5 * HOUR, 800 * HOUR]) == pytest.approx([0.105, 7.99])


FIRST_EPW_ROW = (1, 1, 1, 5.0)


@pytest.mark.parametrize(
    ("second_row", "message"),
    [
        ((1, 1, 2, 99.9), "line 10: .* missing"),
        ((1, 1, 3, 5.0), "line 10: .* got 2 hours"),
    ],
    ids=["missing temperature", "gap"],
)
def test_bad_rows_of_an_epw_file_are_refused(tmp_path, second_row, message):
    weather = weather_of_epw(tmp_path, [FIRST_EPW_ROW, second_row])
    with pytest.raises(ValueError, match=message):
        weather.temperature([0.0])


def test_file_without_the_header_of_epw_is_refused(tmp_path):
    weather = weather_of_epw(tmp_path, [FIRST_EPW_ROW], location="hour,temp")
    with pytest.raises(ValueError, match="expected an EPW file"):
        weather.temperature([0.0])


def test_short_row_of_an_epw_file_is_refused(tmp_path):
    path = tmp_path / "short.epw"
    path.write_text("LOCATION\n" * 8 + "1999,1,1\n")
    with pytest.raises(ValueError, match="line 9: expected more than 6 cells, got 3"):
        EpwWeather(str(path)).temperature([0.0])


# --- hostile files --------------------------------------------------------------------------------

EPW_HEADER = b"LOCATION,Nowhere\n" * 8
TOO_MANY_ROWS = b"1999,1,1,1,60,?9,5\n" * 10001
RANDOM_BYTES = np.random.default_rng(0).bytes(10**6)
NUMBER_OF_MANY_DIGITS = b"9" * 10**5
TWO_SWAPPED_HOURS = b"1999,1,1,2,60,?9,5\n1999,1,1,1,60,?9,5\n"
MANY_COLUMNS = b",".join(b"column%d" % i for i in range(10**4))


@pytest.mark.parametrize(
    ("weather_class", "content", "message"),
    [
        pytest.param(EpwWeather, EPW_HEADER + b"1" * 10**6, "field larger", id="long field"),
        pytest.param(EpwWeather, EPW_HEADER + b'"' + TOO_MANY_ROWS, "field larger", id="quote"),
        pytest.param(EpwWeather, EPW_HEADER + bytes(10**6), "field larger", id="zeros"),
        pytest.param(
            EpwWeather, EPW_HEADER + b"\n" * (10001), "at most 10000 lines", id="empty lines"
        ),
        pytest.param(
            EpwWeather, EPW_HEADER + TOO_MANY_ROWS, "at most 10000 lines", id="too many rows"
        ),
        pytest.param(
            EpwWeather,
            EPW_HEADER + RANDOM_BYTES,
            "line 9: expected more than 6 cells",
            id="random bytes",
        ),
        pytest.param(
            EpwWeather,
            EPW_HEADER + b"1999,1e300,1,1,60,?9,5",
            "line 9: expected a whole number",
            id="large month",
        ),
        pytest.param(
            EpwWeather,
            EPW_HEADER + b"1999,1,%s,1,60,?9,5" % NUMBER_OF_MANY_DIGITS,
            "line 9: expected a whole number",
            id="day of many digits",
        ),
        pytest.param(
            EpwWeather,
            EPW_HEADER + b"\n1999,1,1,1,60,?9,nan",
            "line 10: the temperature is missing",
            id="temperature of nan",
        ),
        pytest.param(
            EpwWeather,
            EPW_HEADER + b"1999,1,1,1,60,?9,%s" % NUMBER_OF_MANY_DIGITS,
            "line 9: .* from -90 to 60|line 9: .* missing",
            id="temperature of many digits",
        ),
        pytest.param(
            EpwWeather, EPW_HEADER + TWO_SWAPPED_HOURS, "got -1 hours", id="swapped hours"
        ),
        pytest.param(
            EpwWeather, EPW_HEADER.decode().encode("utf-16"), "expected an EPW file", id="UTF-16"
        ),
        pytest.param(EpwWeather, EPW_HEADER, "expected an EPW file", id="header only"),
        pytest.param(EpwWeather, b"", "expected an EPW file", id="empty file"),
        pytest.param(
            MeasuredWeather, MANY_COLUMNS + b"\n1", "expected 10000 cells", id="many columns"
        ),
        pytest.param(
            MeasuredWeather,
            MANY_COLUMNS + b"\n" + b"," * 9999,
            "0 times; set column",
            id="many empty columns",
        ),
        pytest.param(
            MeasuredWeather,
            b"time,temp\n" + b"x" * 10**5 + b",1\n",
            "expected an ISO time",
            id="long time",
        ),
    ],
)
def test_hostile_files_end_in_one_short_line(
    tmp_path, monkeypatch, weather_class, content, message
):
    """Reading them needs little memory, and the message is short."""
    monkeypatch.setattr("simulators.weather.MAX_HOURS", 10_000)
    path = tmp_path / "weather"
    path.write_bytes(content)
    weather = weather_class(str(path))
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        weather.temperature([0.0])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * len(content) + 10**6
    text = str(caught.value)
    assert len(text) < 1000 + len(str(path))
    assert "\n" not in text


# --- files that are not there ---------------------------------------------------------------------

both_classes = pytest.mark.parametrize("weather_class", [MeasuredWeather, EpwWeather])


@both_classes
def test_weather_without_a_path_is_refused(weather_class):
    with pytest.raises(ValueError, match="set path"):
        weather_class().temperature([0.0])


@both_classes
def test_missing_file_is_refused(weather_class):
    with pytest.raises(FileNotFoundError, match="change path"):
        weather_class("nowhere.txt").temperature([0.0])


@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_path_that_is_no_file_is_refused_at_once(tmp_path, kind):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    paths = {"folder": tmp_path, "pipe": pipe, "device": "/dev/zero"}
    with pytest.raises(FileNotFoundError, match="change path"):
        EpwWeather(str(paths[kind])).temperature([0.0])


def test_a_file_of_any_size_without_content_is_not_read(tmp_path):
    path = tmp_path / "year.csv"
    path.write_text("hour,temperature\n0,1\n")
    with open(path, "r+b") as file:
        file.truncate(2**40)  # without content on the disk
    with pytest.raises(ValueError, match="at most 1073741824 bytes"):
        read_csv(path)
