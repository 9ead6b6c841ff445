"""Files of many rows: whoever reads them, and however fast, the records are the same."""

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from sysid import CsvFiles
from sysid.data import text_table
from sysid.data.csv import read_table

N_LONG = 30_000  # rows of which pandas reads several parts


@pytest.fixture
def load(tmp_path):
    """Return a function that writes a text and reads its record."""

    def load_csv(text, **options):
        path = tmp_path / "run.csv"
        path.write_text(text, encoding="utf-8")
        settings = {"estimation": str(path), "inputs": ["u"], "outputs": ["y"]}
        (record,) = CsvFiles(**(settings | options)).load().estimation
        return record

    return load_csv


def numbers(n_decimals, n=N_LONG):
    """Return normal numbers as texts."""
    values = np.random.default_rng(n_decimals).normal(size=n)
    return [f"{value:.{n_decimals}f}" for value in values]


def write_rows(columns, separator=","):
    """Return a text with these columns of texts."""
    header = separator.join(columns)
    rows = [separator.join(cells) for cells in zip(*columns.values(), strict=True)]
    return "\n".join([header, *rows]) + "\n"


LONG_COLUMNS = {
    "time": [f"{0.5 * k:.1f}" for k in range(N_LONG)],
    "u": numbers(17),
    "y": numbers(4),
}
LATE_TEXT = ["7"] * (N_LONG - 1) + ["end"]
LATE_FLAGS = ["1"] * (N_LONG // 2) + ["True"] * (N_LONG - N_LONG // 2)
LATE_DECIMALS = ["5"] * (N_LONG - 1) + ["0.5"]
QUOTED = ['"a\nb, c"'] * N_LONG
SOME_EMPTY = ["" if k % 7 == 3 else "2" for k in range(N_LONG)]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({}, id="numbers"),
        pytest.param({"run": LATE_TEXT}, id="a text at the end"),
        pytest.param({"run": LATE_FLAGS}, id="flags at the end"),
        pytest.param({"run": LATE_DECIMALS}, id="decimals at the end"),
        pytest.param({"run": QUOTED}, id="quoted line breaks"),
        pytest.param({"run": SOME_EMPTY}, id="empty cells"),
    ],
)
def test_a_table_that_pandas_reads_in_parts_is_that_of_one_text(tmp_path, monkeypatch, more):
    path = tmp_path / "run.csv"
    path.write_text(write_rows(LONG_COLUMNS | more), encoding="utf-8")
    of_one_text = read_table(path)
    asked = []
    read = text_table._read_by_threads
    monkeypatch.setattr(text_table, "MIN_BYTES_FOR_THREADS", 0)
    monkeypatch.setattr(
        text_table, "_read_by_threads", lambda *given: asked.append(given) or read(*given)
    )
    in_parts = read_table(path)
    assert len(asked) == 1
    pd.testing.assert_frame_equal(in_parts, of_one_text, check_exact=True)
    for name in ("u", "y"):
        naive = [float(cell) for cell in LONG_COLUMNS[name]]
        np.testing.assert_array_equal(in_parts[name], naive)


def test_a_record_of_several_megabytes_has_the_numbers_of_its_file(load):
    n = 200_000
    columns = {"time": [f"{0.01 * k:.2f}" for k in range(n)]}
    columns |= {name: numbers(n_decimals, n) for name, n_decimals in {"u": 12, "y": 9}.items()}
    text = write_rows(columns)
    assert len(text) > text_table.MIN_BYTES_FOR_THREADS
    record = load(text)
    assert record.attrs["sampling_time"] == 0.01
    for name in ("u", "y"):
        np.testing.assert_array_equal(record[name], [float(cell) for cell in columns[name]])


@pytest.mark.parametrize("ending", [".zip", ".gz", ".tar", ".xz"])
def test_a_long_text_is_read_whatever_archive_its_name_promises(tmp_path, monkeypatch, ending):
    monkeypatch.setattr(text_table, "MIN_BYTES_FOR_THREADS", 0)
    path = tmp_path / f"run.csv{ending}"
    path.write_text(write_rows(LONG_COLUMNS))
    table = read_table(path)
    np.testing.assert_array_equal(table["y"], [float(cell) for cell in LONG_COLUMNS["y"]])


def naive_seconds(text):
    """Return the seconds of a clock, field by field."""
    fields = text.strip().replace(",", ".").split(":")
    whole, _, decimals = fields[-1].partition(".")
    seconds = 60 * int(fields[-2]) + int(whole)
    if len(fields) == 3:
        seconds += 3600 * int(fields[0])
    return seconds + float(f"0.{decimals or 0}")


def as_arabic(text):
    """Return a text with the digits of Arabic."""
    return text.translate(str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩"))


def whole_fields(s):
    """Return a time as hh:mm:ss."""
    return f"{s // 3600:02.0f}:{s // 60 % 60:02.0f}:{s % 60:02.0f}"


@pytest.mark.parametrize(
    ("form", "step"),
    [
        pytest.param(lambda s: f"{s // 60:.0f}:{s % 60:04.1f}", 62.5, id="one to three digits"),
        pytest.param(
            lambda s: f"{s // 60:02.0f}:{s % 60:09.6f}".rstrip("0") + "0", 2.046875, id="decimals"
        ),
        pytest.param(lambda s: whole_fields(s).removeprefix("0"), 61.0, id="one digit"),
        pytest.param(lambda s: f'" {whole_fields(s)},25 "', 61.0, id="blanks"),
        pytest.param(lambda s: as_arabic(whole_fields(s)), 61.0, id="other digits"),
    ],
)
def test_a_clock_has_the_seconds_of_its_fields(load, form, step):
    clock = [form(step * k) for k in range(800)]
    text = write_rows({"time": clock, "u": numbers(3, 800), "y": numbers(4, 800)})
    record = load(text)
    expected = [naive_seconds(cell.strip('"')) for cell in clock]
    np.testing.assert_allclose(record.time, expected, rtol=1e-14)


@pytest.mark.parametrize("wrong", ["0:01", "0:00:1", "0:00:01.5h", "é", "0:00:01." + 50 * "0"])
def test_the_first_cell_that_is_no_time_is_named(load, wrong):
    clock = [f"0:{k // 60:02d}:{k % 60:02d}" for k in range(200)]
    clock[150] = wrong
    clock[170] = "none"
    text = write_rows({"time": clock, "u": numbers(3, 200), "y": numbers(4, 200)})
    with pytest.raises(ValueError, match=f"line 152.*{re.escape(repr(wrong))} is no time"):
        load(text)


def test_texts_of_rows_that_are_all_shorter_than_the_header_are_read(load):
    u = ["5" if k == 2990 else f"{2 + k % 900}.125" for k in range(3000)]
    rows = "".join(f"{k},{cell},{k % 900}\n" for k, cell in enumerate(u))
    with pytest.raises(ValueError, match=r"line 2, column 'u': '2.125' may be 2125"):
        load("time,u,y,more\n" + rows)


N_GROUPED = 3000  # rows of numbers with separated thousands


def grouped_numbers(thousands, decimal, n_decimals=2, n=N_GROUPED):
    """Return numbers below and above 1000 as texts, those above with separated thousands."""
    values = 10.0 ** np.random.default_rng(n_decimals).uniform(-2, 8, n)
    values[::3] *= -1
    swap = str.maketrans({",": thousands, ".": decimal})
    return [f"{value:,.{n_decimals}f}".translate(swap) for value in values]


def write_grouped(u):
    """Return a text with these inputs, and outputs that show the decimal point."""
    return write_rows({"u": u, "y": numbers(4, len(u))}, separator=";")


@pytest.mark.parametrize("n_decimals", [2, 20])
@pytest.mark.parametrize(
    ("thousands", "decimal"),
    [
        pytest.param(",", ".", id="commas"),
        pytest.param(".", ",", id="points"),
        pytest.param(" ", ".", id="blanks"),
        pytest.param("'", ".", id="apostrophes"),
        pytest.param("\u2019", ",", id="typographic apostrophes"),
        pytest.param("\u00a0", ",", id="blanks without a break"),
        pytest.param("\u202f", ",", id="narrow blanks"),
    ],
)
def test_separated_thousands_are_read_to_the_last_bit(load, thousands, decimal, n_decimals):
    columns = {name: grouped_numbers(thousands, decimal, n_decimals) for name in ("u", "y")}
    columns["u"][7] = ""
    record = load(write_rows(columns, separator=";"), dt=1.0, on_missing="skip")
    for name, cells in columns.items():
        plain = [cell.replace(thousands, "").replace(decimal, ".") for cell in cells]
        expected = [float(cell) if cell else np.nan for cell in plain]
        np.testing.assert_array_equal(record[name], expected)
        are_grouped = [thousands in cell for cell in cells]
        first = cells[are_grouped.index(True)]
        note = f"column '{name}': {sum(are_grouped)} numbers with separated thousands, such as "
        assert note + first in record.attrs["note"]


@pytest.mark.parametrize(
    "wrong",
    [
        "1,23.4",
        "12,34",
        "1,2345.6",
        "0,123.5",
        "1,234.5,6",
        "1,234e5",
        "1,234 567",
        "1\x02234.5",
        "12-3",
        '"1,234.5\n6,789.5"',
    ],
)
def test_a_number_with_other_groups_is_refused(load, wrong):
    u = grouped_numbers(",", ".")
    u[-2] = wrong
    shown = re.escape(repr(wrong.strip('"')))
    with pytest.raises(ValueError, match=f"line {N_GROUPED}, column 'u': it holds {shown}"):
        load(write_grouped(u), dt=1.0)


@pytest.mark.parametrize(
    "other", ["1 234.5", " 1,234.5 ", "1.2345e3", "+1,234.5", "1234.5", "1234.50"]
)
def test_numbers_of_several_forms_stand_in_one_column(load, other):
    u = grouped_numbers(",", ".")
    u[-2] = other
    record = load(write_grouped(u), dt=1.0)
    assert record["u"].values[-2] == 1234.5


def test_a_comma_between_thousands_is_seen_below_decimal_commas(load):
    u = grouped_numbers(".", ",")
    u[-2] = "1,234.5"
    first = next(cell for cell in u if "," in cell)
    with pytest.raises(ValueError, match=f"line 2, column 'u': it holds {re.escape(repr(first))}"):
        load(write_rows({"u": u, "y": u}, separator=";"), dt=1.0)


def test_a_column_of_whole_numbers_beside_stamps_with_points_is_read_once_more(load):
    n = 1500
    stamps = [f"31.01.2024 {k // 60:02d}:{k % 60:02d}" for k in range(1440)]
    stamps += [f"01.02.2024 00:{k:02d}" for k in range(n - 1440)]
    cells = [str(k % 900) if k % 7 else "" for k in range(n)]
    record = load(write_rows({"time": stamps, "u": cells, "y": cells}), on_missing="skip")
    expected = [float(cell) if cell else np.nan for cell in cells[1:]]
    np.testing.assert_array_equal(record["u"], expected)
    cells[-1] = "1.234"
    with pytest.raises(ValueError, match=f"line {n + 1}, column 'u': '1.234' may be 1234"):
        load(write_rows({"time": stamps, "u": cells, "y": cells}), on_missing="skip")


def with_ambiguous_numbers(n, **late):
    """Return a text with 1.234 beside 5, and other cells in the last row."""
    columns = {"u": ["5", "", *["1.234"] * (n - 2)], "y": ["2", "", *["2.345"] * (n - 2)]}
    for name, cell in late.items():
        columns[name][-1] = cell
    return write_rows(columns)


@pytest.mark.parametrize("n", [100, 5000])
@pytest.mark.parametrize("name", ["u", "y"])
def test_one_cell_shows_the_decimal_sign_wherever_it_stands(load, n, name):
    record = load(with_ambiguous_numbers(n, **{name: "1.5"}), dt=1.0, on_missing="skip")
    assert record[name].values[-1] == 1.5
    assert record["u"].values[2] == 1.234


@pytest.mark.parametrize("n", [100, 5000])
def test_a_long_file_without_such_a_cell_is_refused(load, n):
    with pytest.raises(ValueError, match=r"line 4, column 'u': '1.234' may be 1234, with"):
        load(with_ambiguous_numbers(n), dt=1.0, on_missing="skip")


@pytest.mark.parametrize(
    "first_column",
    [
        pytest.param(lambda k: k, id="0, 1, 2"),
        pytest.param(lambda k: 1 + k, id="1, 2, 3"),
        pytest.param(lambda k: 100 * k, id="0, 100, 200"),
        pytest.param(lambda k: 0.1 * k, id="decimals"),
    ],
)
@pytest.mark.parametrize("last", [",9", ","])
def test_rows_with_more_cells_than_names_are_refused(load, first_column, last):
    rows = [f"{first_column(k)},{0.5 + k},{100 + k}{last}" for k in range(60)]
    with pytest.raises(ValueError, match="line 2: more cells than the 3 of the header"):
        load("\n".join(["time,u,y", *rows]) + "\n")


def test_a_short_first_row_is_named(load):
    rows = ["5,6", *["5.0,6.0,7.0"] * 60]
    with pytest.raises(ValueError, match="line 2, column 'y': the value is missing, the first of"):
        load("\n".join(["x,u,y", *rows]) + "\n", dt=1.0)


@pytest.mark.parametrize("separator", [",", "  "])
def test_an_empty_line_below_the_header_is_a_missing_row(load, separator):
    rows = [separator.join((f"{k}.5", f"{k}.25")) for k in range(60)]
    text = "\n".join([f"u{separator}y", "", *rows]) + "\n"
    record = load(text, dt=1.0, on_missing="skip")
    np.testing.assert_array_equal(record["u"], np.arange(60) + 0.5)
    with pytest.raises(ValueError, match="line 2, column 'u': the value is missing"):
        load(text, dt=1.0)


def test_a_record_is_read_without_dask(tmp_path):
    """Its import takes longer than reading a long file."""
    path = tmp_path / "run.csv"
    path.write_text(write_rows({"time": ["0", "1", "2"], "u": ["1"] * 3, "y": ["2"] * 3}))
    program = (
        "import sys; from sysid import CsvFiles;"
        f"CsvFiles(estimation={str(path)!r}, inputs=['u'], outputs=['y']).load();"
        "print('dask' in sys.modules)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"
