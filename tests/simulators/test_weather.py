"""Synthetic, measured and EPW weather, and every way a record can be wrong."""

import os
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from simulators import EpwWeather, MeasuredWeather, SyntheticWeather

HOUR = 3600.0
DAY = 86400.0
YEAR = 900.0 * np.arange(35041)


def test_synthetic_weather_has_its_spectrum():
    """Stationary from the first hour on, with the correlation exp(-1) after 60 hours."""
    calm = SyntheticWeather(annual_amplitude=0.0, daily_amplitude=0.0, mean=0.0)
    z = np.array([calm.temperature(HOUR * np.arange(24 * 365), seed=seed) for seed in range(20)])
    assert z.std() == pytest.approx(4.0, rel=0.05)
    assert np.mean(z[:, 60:] * z[:, :-60]) / z.var() == pytest.approx(np.exp(-1), abs=0.06)
    starts = [calm.temperature([0.0], seed=seed)[0] for seed in range(1000)]
    assert np.std(starts) == pytest.approx(4.0, rel=0.1)


def test_cycles_peak_when_they_should():
    calm = SyntheticWeather(weather_std=0.0)
    hours = calm.temperature(HOUR * np.arange(24 * 365)).reshape(365, 24)
    daily_mean = hours.mean(axis=1)
    assert np.argmax(hours[0]) == 14
    assert abs(int(np.argmin(daily_mean)) - 15) <= 1
    assert np.ptp(daily_mean) == pytest.approx(20.0, abs=0.01)
    assert hours.mean() == pytest.approx(9.0)
    assert np.ptp(hours[0]) == pytest.approx(6.0, abs=0.1)


def test_synthetic_weather_depends_on_nothing_but_the_seed():
    weather = SyntheticWeather()
    long = weather.temperature(YEAR, seed=4)
    np.testing.assert_array_equal(weather.temperature(YEAR[:500], seed=4), long[:500])
    np.testing.assert_array_equal(weather.temperature(YEAR[:500:4], seed=4), long[:500:4])
    assert not np.allclose(weather.temperature(YEAR, seed=5), long)


def test_impossible_synthetic_weather_is_refused():
    for name, value in (
        ("weather_std", -1.0),
        ("mean", np.nan),
        ("correlation_hours", 0.0),
    ):
        with pytest.raises(ValueError, match=rf"SyntheticWeather\({name}="):
            SyntheticWeather(**{name: value})
    with pytest.raises(ValueError, match="finite times >= 0"):
        SyntheticWeather().temperature([-1.0])


def test_measured_year_is_read_at_its_hours(measured_year):
    rows = Path(measured_year).read_text().splitlines()
    column = rows[0].split(",").index("temp_air_C")
    values = [float(row.split(",")[column]) for row in rows[1:]]
    weather = MeasuredWeather(measured_year)
    np.testing.assert_array_equal(weather.temperature(HOUR * np.arange(8760)), values)
    assert weather.temperature([1.25 * HOUR]) == pytest.approx(0.75 * values[1] + 0.25 * values[2])
    np.testing.assert_array_equal(
        weather.temperature([8759.5 * HOUR, 8760 * HOUR]), [values[-1]] * 2
    )


def csv_file(tmp_path, text, **settings):
    """Write a CSV file and return its weather."""
    path = tmp_path / "weather.csv"
    path.write_text(text)
    return MeasuredWeather(str(path), **settings)


@pytest.mark.parametrize(
    "text",
    [
        "temp_air\n1\n2\n4\n",
        "Temperature,wind\n1,9\n2,9\n4,9\n\n",
        "hour,temp_air_C\n1,1\n2,2\n3,4\n",
        "month,day,hour,dry_bulb\n12,31,23,1\n12,31,24,2\n1,1,1,4\n",
        "month,day,hour,dry_bulb\n2,28,23,1\n2,29,0,2\n2,29,1,4\n",
        "year,month,day,hour_UTC,T2m\n2011,2,28,23,1\n2011,3,1,0,2\n2011,3,1,1,4\n",
        "time,temp_air\n2012-02-28T23:00,1\n2012-02-29T00:00,2\n2012-02-29T01:00,4\n",
        "datetime,temp_air\n2012-03-25 01:00+01:00,1\n2012-03-25 03:00+02:00,2\n2012-03-25 04:00+02:00,4\n",
    ],
)
def test_good_records_are_interpolated_and_the_last_hour_held(tmp_path, text):
    times = HOUR * np.array([0, 0.5, 1, 1.5, 2, 2.5, 3])
    np.testing.assert_allclose(csv_file(tmp_path, text).temperature(times), [1, 1.5, 2, 3, 4, 4, 4])


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
)
def test_bad_records_are_refused_with_their_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        csv_file(tmp_path, text).temperature([0.0])


def test_named_column_is_used_and_missing_one_refused(tmp_path):
    assert csv_file(tmp_path, "temp,roof\n1,2\n", column="roof").temperature([0.0]) == 2
    with pytest.raises(ValueError, match="column='cellar'"):
        csv_file(tmp_path, "temp,roof\n1,2\n", column="cellar").temperature([0.0])


def test_short_record_says_what_is_covered_and_needed(tmp_path):
    weather = csv_file(tmp_path, "temp\n" + "1\n" * 48)
    assert len(weather.temperature([2 * DAY])) == 1
    for time in ([2 * DAY + 1], YEAR):
        with pytest.raises(ValueError, match="covers 2 days"):
            weather.temperature(time)


def test_files_that_are_none_are_told_apart(tmp_path):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"temp\n\xff\xfe\n")
    with pytest.raises(ValueError, match="UTF-8"):
        MeasuredWeather(str(path)).temperature([0.0])
    for weather in (MeasuredWeather, EpwWeather):
        with pytest.raises(ValueError, match="set path"):
            weather().temperature([0.0])
        with pytest.raises(FileNotFoundError, match="change path"):
            weather("nowhere.txt").temperature([0.0])


def epw_file(tmp_path, rows, header="LOCATION,Nowhere,-,-,-,0,50.0,10.0,1.0,100.0"):
    """Write an EPW file from (month, day, hour, dry bulb) and return its weather."""
    lines = [header, *(f"HEADER {i}" for i in range(2, 9))]
    lines += [f"1999,{m},{d},{h},60,?9?9,{t},0.5,80,101300" + ",0" * 25 for m, d, h, t in rows]
    path = tmp_path / "place.epw"
    path.write_text("\n".join(lines) + "\n", encoding="latin-1")
    return EpwWeather(str(path))


def test_epw_file_is_read(tmp_path):
    rows = [(1 + i // 744, 1 + i % 744 // 24, 1 + i % 24, i / 100) for i in range(800)]
    weather = epw_file(tmp_path, rows)
    np.testing.assert_allclose(weather.temperature(HOUR * np.arange(800)), np.arange(800) / 100)
    assert weather.temperature([10.5 * HOUR, 800 * HOUR]) == pytest.approx([0.105, 7.99])


def test_bad_epw_files_are_refused_with_their_line(tmp_path):
    first = (1, 1, 1, 5.0)
    for second, message in (
        ((1, 1, 2, 99.9), "line 10: .* missing"),
        ((1, 1, 3, 5.0), "line 10: .* got 2 hours"),
    ):
        with pytest.raises(ValueError, match=message):
            epw_file(tmp_path, [first, second]).temperature([0.0])
    with pytest.raises(ValueError, match="expected an EPW file"):
        epw_file(tmp_path, [first], header="hour,temp").temperature([0.0])
    path = tmp_path / "short.epw"
    path.write_text("LOCATION\n" * 8 + "1999,1,1\n")
    with pytest.raises(ValueError, match="line 9: expected more than 6 cells, got 3"):
        EpwWeather(str(path)).temperature([0.0])


EPW_HEADER = b"LOCATION,Nowhere\n" * 8
TOO_MANY = b"1999,1,1,1,60,?9,5\n" * 10001


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (EPW_HEADER + b"1" * 10**6, "field larger"),
        (EPW_HEADER + b'"' + TOO_MANY, "field larger"),
        (EPW_HEADER + bytes(10**6), "field larger"),
        (EPW_HEADER + b"\n" * (10001), "at most 10000 lines"),
        (EPW_HEADER + TOO_MANY, "at most 10000 lines"),
        (
            EPW_HEADER + np.random.default_rng(0).bytes(10**6),
            "line 9: expected more than 6 cells",
        ),
        (EPW_HEADER + b"1999,1e300,1,1,60,?9,5", "line 9: expected a whole number"),
        (
            EPW_HEADER + b"1999,1,%s,1,60,?9,5" % (b"9" * 10**5),
            "line 9: expected a whole number",
        ),
        (EPW_HEADER + b"\n1999,1,1,1,60,?9,nan", "line 10: the temperature is missing"),
        (
            EPW_HEADER + b"1999,1,1,1,60,?9,%s" % (b"9" * 10**5),
            "line 9: .* from -90 to 60|line 9: .* missing",
        ),
        (EPW_HEADER + b"1999,1,1,2,60,?9,5\n1999,1,1,1,60,?9,5\n", "got -1 hours"),
        (EPW_HEADER.decode().encode("utf-16"), "expected an EPW file"),
        (EPW_HEADER, "expected an EPW file"),
        (b"", "expected an EPW file"),
        (
            b",".join(b"column%d" % i for i in range(10**4)) + b"\n1",
            "expected 10000 cells",
        ),
        (
            b",".join(b"column%d" % i for i in range(10**4)) + b"\n" + b"," * 9999,
            "0 times; set column",
        ),
        (b"time,temp\n" + b"x" * 10**5 + b",1\n", "expected an ISO time"),
    ],
)
def test_hostile_files_end_in_one_short_line(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr("simulators.weather.MAX_HOURS", 10_000)
    path = tmp_path / "weather"
    path.write_bytes(content)
    kind = (
        MeasuredWeather
        if message.endswith(("10000 cells", "set column", "ISO time"))
        else EpwWeather
    )
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        kind(str(path)).temperature([0.0])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * len(content) + 10**6
    assert len(str(caught.value)) < 1000 + len(str(path))
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(FileNotFoundError, match="change path"):
            EpwWeather(str(path)).temperature([0.0])
