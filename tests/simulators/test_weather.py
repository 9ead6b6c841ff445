"""Synthetic, measured and EPW weather, and every way a record can be wrong."""

from pathlib import Path

import numpy as np
import pytest

from simulators.weather.epw import EpwWeather
from simulators.weather.measured import MeasuredWeather
from simulators.weather.synthetic import SyntheticWeather

HOUR, DAY = 3600.0, 86400.0
YEAR = 900.0 * np.arange(35041)


def test_synthetic_climate_is_central_european():
    years = np.array([SyntheticWeather().temperature(YEAR, seed=seed) for seed in range(12)])
    assert years.mean() == pytest.approx(9.0, abs=0.5)
    assert -20 < np.median(years.min(axis=1)) < -10
    assert 28 < np.median(years.max(axis=1)) < 36
    january, july = years[:, : 31 * 96].mean(), years[:, 181 * 96 : 212 * 96].mean()
    assert july - january == pytest.approx(20.0, abs=2.0)


def test_synthetic_weather_has_its_spectrum():
    calm = SyntheticWeather(annual_amplitude=0.0, daily_amplitude=0.0, mean=0.0)
    z = np.array([calm.temperature(HOUR * np.arange(24 * 365), seed=seed) for seed in range(20)])
    assert z.std() == pytest.approx(4.0, rel=0.05)
    assert np.mean(z[:, 60:] * z[:, :-60]) / z.var() == pytest.approx(np.exp(-1), abs=0.06)


def test_cycles_peak_when_they_should():
    calm = SyntheticWeather(weather_std=0.0)
    day = calm.temperature(HOUR * np.arange(24))
    assert np.argmax(day) == 14
    daily_mean = calm.temperature(HOUR * np.arange(24 * 365)).reshape(365, 24).mean(axis=1)
    assert abs(int(np.argmin(daily_mean)) - 15) <= 1
    assert np.ptp(daily_mean) == pytest.approx(20.0, abs=0.01)


def test_synthetic_weather_depends_on_nothing_but_the_seed():
    weather = SyntheticWeather()
    long = weather.temperature(YEAR, seed=4)
    np.testing.assert_array_equal(weather.temperature(YEAR[:500], seed=4), long[:500])
    np.testing.assert_array_equal(weather.temperature(YEAR[:500:4], seed=4), long[:500:4])
    assert not np.allclose(weather.temperature(YEAR, seed=5), long)


def test_impossible_synthetic_settings_are_refused():
    with pytest.raises(ValueError, match=r"SyntheticWeather\(weather_std=-1"):
        SyntheticWeather(weather_std=-1.0)
    with pytest.raises(ValueError, match="finite times >= 0"):
        SyntheticWeather().temperature([-1.0])


def test_measured_year_is_read_at_its_hours(measured_year):
    rows = Path(measured_year).read_text().splitlines()
    column = rows[0].split(",").index("temp_air_C")
    values = [float(row.split(",")[column]) for row in rows[1:]]
    weather = MeasuredWeather(measured_year)
    np.testing.assert_array_equal(weather.temperature(HOUR * np.arange(8760)), values)
    assert weather.temperature([1.25 * HOUR]) == pytest.approx(0.75 * values[1] + 0.25 * values[2])
    np.testing.assert_array_equal(weather.temperature([8759.5 * HOUR, 8760 * HOUR]), [values[-1]] * 2)
    assert len(weather.temperature(YEAR)) == 35041


def csv_file(tmp_path, text):
    """Write a CSV file and return its weather."""
    path = tmp_path / "weather.csv"
    path.write_text(text)
    return MeasuredWeather(str(path))


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
        ("a,b\n1,2\n", r"found it 0 times; set column to one of \['a', 'b'\]"),
        ("temp,temp_air\n1,2\n", r"found it 2 times; set column to one of \['temp', 'temp_air'\]"),
        ("temp_air\n1\nwarm\n", r"line 3: expected a temperature in degC, got 'warm'"),
        ("temp_air,x\n1,0\n,0\n", r"line 3: expected a temperature in degC, got ''"),
        ("temp_air\n1\nnan\n", r"line 3: the temperature is missing \('nan'\)"),
        ("temp_air\n1\n\n2\n", r"line 3: expected 1 cells, got 0"),
        ("temp_air\n280\n", r"line 2: expected a temperature from -90 to 60 degC, got 280"),
        ("temp_air\n-999\n", r"line 2: expected a temperature from -90"),
        ("hour,temp_air\n1,0\n3,0\n", r"line 3: expected one hour .* got 2 hours"),
        ("hour,temp_air\n1,0\n1,0\n", r"line 3: expected one hour .* got 0 hours"),
        ("hour,temp_air\none,0\n", r"line 2: expected a whole number, got 'one'"),
        ("month,day,hour,temp_air\n1,1,24,0\n1,3,1,0\n", r"line 3: .* got 25 hours"),
        ("month,day,hour,temp_air\n2,30,1,0\n", r"line 2: month 2, day 30 is no date"),
        ("month,day,hour,temp_air\n2,3,99,0\n", r"line 2: expected an hour from 0 to 24, got 99"),
        ("time,temp_air\n2010-01-01T00:00,0\n2010-01-01T00:15,0\n", r"line 3: .* got 0.25 hours"),
        ("time,temp_air\nyesterday,0\n", r"line 2: expected an ISO time .* got 'yesterday'"),
        ("time,temp_air\n2010-01-01T00:00,0\n2010-01-01T01:00Z,0\n", "time zone"),
        ("temp_air,x\n1\n", r"line 2: expected 2 cells, got 1"),
        ("temp_air\n", "expected a header line and hourly rows, got 1 lines"),
        ("", "got 0 lines"),
    ],
)
def test_bad_records_are_refused_with_their_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        csv_file(tmp_path, text).temperature([0.0])


def test_named_column_is_used_and_missing_one_refused(tmp_path):
    path = csv_file(tmp_path, "temp,roof\n1,2\n").path
    assert MeasuredWeather(path, column="roof").temperature([0.0]) == 2
    with pytest.raises(ValueError, match=r"column='cellar'.*set column to one of \['temp', 'roof'\]"):
        MeasuredWeather(path, column="cellar").temperature([0.0])


def test_short_record_says_what_is_covered_and_needed(tmp_path):
    weather = csv_file(tmp_path, "temp\n" + "1\n" * 48)
    assert len(weather.temperature([2 * DAY])) == 1
    with pytest.raises(ValueError, match="covers 2 days"):
        weather.temperature([2 * DAY + 1])
    with pytest.raises(ValueError, match="covers 2 days, 365 days are needed"):
        weather.temperature(YEAR)


def test_binary_file_is_refused(tmp_path):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"temp\n\xff\xfe\n")
    with pytest.raises(ValueError, match="expected a CSV file in UTF-8"):
        MeasuredWeather(str(path)).temperature([0.0])


@pytest.mark.parametrize("weather", [MeasuredWeather, EpwWeather])
def test_missing_path_and_file_are_told_apart(weather):
    with pytest.raises(ValueError, match=r"path=None\): expected a file; set path"):
        weather().temperature([0.0])
    with pytest.raises(FileNotFoundError, match=r"no such file from .*; change path"):
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


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(1, 1, 1, 5.0), (1, 1, 2, 99.9)], r"line 10: the dry-bulb temperature is missing"),
        ([(1, 1, 1, 5.0), (1, 1, 3, 5.0)], r"line 10: .* got 2 hours"),
        ([(1, 1, 1, 5.0), (1, 1, 1, 5.0)], r"line 10: .* got 0 hours"),
        ([(1, 1, 1, 300.0)], r"line 9: expected a temperature from -90"),
        ([], "expected an EPW file"),
    ],
)
def test_bad_epw_rows_are_refused_with_their_line(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        epw_file(tmp_path, rows).temperature([0.0])


def test_other_files_are_no_epw(tmp_path):
    with pytest.raises(ValueError, match="expected an EPW file"):
        epw_file(tmp_path, [(1, 1, 1, 5.0)], header="hour,temp").temperature([0.0])
    path = tmp_path / "short.epw"
    path.write_text("LOCATION\n" * 8 + "1999,1,1\n")
    with pytest.raises(ValueError, match="line 9: expected more than 6 cells, got 3"):
        EpwWeather(str(path)).temperature([0.0])
