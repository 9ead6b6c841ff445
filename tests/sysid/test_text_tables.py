"""Text files of other programs: separators, headers, units, decimal signs, thousands, arrays."""

import gzip
import lzma

import numpy as np
import pandas as pd
import pytest

from sysid import CsvFiles, Fixed, Narx, identify

N = 60
K = np.arange(N)
FIXED = Fixed(variance=1.0, length_scales=[1.0, 1.0], noise_variance=0.01)


@pytest.fixture
def load(tmp_path):
    """Return a function that writes a text or bytes into a file and reads it."""

    def load_text(content, name="run.csv", **options):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        settings = {"estimation": str(path), "inputs": ["u"], "outputs": ["y"]}
        return CsvFiles(**(settings | options)).load()

    return load_text


def text(header, row, end="\n"):
    """Return a header and rows as a text."""
    return end.join([header, *(row(k) for k in K)]) + end


NUMBERS = 990.0 + K  # from 990 to 1049


@pytest.mark.parametrize(
    ("separator", "form", "options"),
    [
        pytest.param(",", lambda v: f'"{v:,.1f}"', {}, id="1,234.5"),
        pytest.param(";", lambda v: f"{v:,.1f}".translate({44: 46, 46: 44}), {}, id="1.234,5"),
        pytest.param(";", lambda v: f"{v:,.0f}", {"decimal": "."}, id="1,234 with a stated point"),
        pytest.param("\t", lambda v: f"{v:,.0f}".replace(",", "."), {"decimal": ","}, id="1.234"),
        pytest.param(";", lambda v: f"{v:,.0f}".replace(",", " "), {}, id="1 234"),
        pytest.param(";", lambda v: f"{v:,.2f}".replace(",", "'"), {}, id="1'234.50"),
        pytest.param(";", lambda v: f"{v:,.0f}".replace(",", "\u202f"), {}, id="narrow blank"),
    ],
)
def test_separated_thousands_are_read_and_counted(load, separator, form, options):
    content = text(separator.join("uy"), lambda k: f"{k % 7}{separator}{form(NUMBERS[k])}")
    loaded = load(content, dt=1.0, **options)
    np.testing.assert_array_equal(loaded.estimation[0].y, NUMBERS)
    assert "column 'y': 50 numbers with separated thousands" in loaded.notes[0]


@pytest.mark.parametrize(
    ("separator", "form"),
    [
        pytest.param(",", lambda v: f'"{v:,.0f}"', id="1,234 in quotes"),
        pytest.param(";", lambda v: f"{v:,.0f}", id="1,234"),
        pytest.param(";", lambda v: f"{v:,.0f}".replace(",", "."), id="1.234"),
        pytest.param("\t", lambda v: f"{v:,.0f}".replace(",", "."), id="1.234 and tabs"),
        pytest.param("\t", lambda v: f"-{v:,.0f}", id="negative"),
    ],
)
def test_thousands_that_could_be_decimals_are_refused(load, separator, form):
    content = text(separator.join("uy"), lambda k: f"{k % 7}{separator}{form(NUMBERS[k])}")
    with pytest.raises(ValueError, match=r"may be -?1000, with separated thousands, or -?1\.000"):
        load(content, dt=1.0)


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda v: f"{v:.3f}", id="three decimals"),
        pytest.param(lambda v: f"{v:.3f}".replace(".", ","), id="three decimals after a comma"),
        pytest.param(lambda v: f"{v:g}", id="mixed"),
    ],
)
def test_three_decimals_are_decimals(load, form):
    values = 1.0 + 0.125 * K
    loaded = load(text("u;y", lambda k: f"{k % 7};{form(values[k])}"), dt=1.0)
    np.testing.assert_allclose(loaded.estimation[0].y, values, atol=1e-12)


def test_a_file_in_which_the_decimal_comma_comes_late_is_read(load):
    content = text("u;y", lambda k: f"{k};{k}" if k < 55 else f"{k};{k},5")
    np.testing.assert_array_equal(load(content, dt=1.0).estimation[0].y[54:56], [54.0, 55.5])


@pytest.mark.parametrize(
    ("header", "row", "options"),
    [
        pytest.param('time,"u; filtered",y', "{t},{u},{y}", {"inputs": ["u; filtered"]}, id=";"),
        pytest.param('time;"u, filtered";y', "{t};{u};{y}", {"inputs": ["u, filtered"]}, id=","),
        pytest.param("time,u | 1,y", "{t},{u},{y}", {"inputs": ["u | 1"]}, id="|"),
        pytest.param('time,"u\n[V]",y', "{t},{u},{y}", {}, id="line break in the header"),
        pytest.param('"time\r\n(s)","u","y (m/s)"', "{t},{u},{y}", {}, id="line breaks of Excel"),
        pytest.param("time u y", "{t} {u} {y}", {}, id="blanks"),
        pytest.param("  time    u   y", "  {t}   {u}  {y}  ", {}, id="aligned"),
        pytest.param("time;u;y\ns;V;m", "{t};{u};{y}", {}, id="row of units"),
        pytest.param("time\tu\ty\n[s]\t[V]\t-", "{t}\t{u}\t{y}", {}, id="units in brackets"),
        pytest.param("time,u,y\ns,V,m\n,Avg,Smp", "{t},{u},{y}", {}, id="units and averages"),
        pytest.param("# time u y", "{t} {u} {y}", {}, id="names in a comment"),
        pytest.param("# a run\n# time,u,y", "{t},{u},{y}", {}, id="two comments"),
        pytest.param("% time,u,y", "{t},{u},{y}", {}, id="comment of MATLAB"),
        pytest.param("# a run\n# of today\ntime,u,y", "{t},{u},{y}", {}, id="names below comments"),
        pytest.param("#one\n#two\ntime;u;y", "{t};{u};{y}", {}, id="comments without a blank"),
        pytest.param("# a, b\ntime,u,y\ns,V,m", "{t},{u},{y}", {}, id="comment, then units"),
        pytest.param("Logger;3\nSerial;7\n\ntime;u;y", "{t};{u};{y}", {}, id="settings above"),
        pytest.param("input u and output y\ntime,u,y", "{t},{u},{y}", {}, id="a sentence"),
        pytest.param("a, b, c\nd\ntime\tu [V]\ty", "{t}\t{u}\t{y}", {}, id="other separators"),
        pytest.param(
            '"TOA5","CR1000"\n"TIME","u","y"\n"s","V","m"\n"","Avg","Smp"',
            "{t},{u},{y}",
            {},
            id="Campbell",
        ),
        pytest.param("\ufefftime,u,y", "{t},{u},{y}", {"encoding": "UTF8"}, id="mark of UTF-8"),
        pytest.param("\ufeffsep=;\ntime;u;y", "{t};{u};{y}", {}, id="mark and separator"),
    ],
)
def test_tables_of_other_programs_are_read(load, header, row, options):
    content = text(header, lambda k: row.format(t=f"{0.5 * k:.1f}", u=f"{0.1 * k:.1f}", y=-k))
    loaded = load(content, **options)
    assert loaded.sampling_time == 0.5
    (record,) = loaded.estimation
    np.testing.assert_allclose(record[loaded.inputs[0]], 0.1 * K)
    np.testing.assert_array_equal(record.y, -K)
    if "V" in header:
        assert loaded.units["u"] == "V"


def test_lines_above_the_names_are_noted_and_counted(load):
    content = text("Logger;3\n\ntime;u;y\ns;V;m", lambda k: f"{k};{k};{'x' if k == 7 else -k}")
    with pytest.raises(ValueError, match="line 12, column 'y': it holds 'x'"):
        load(content)
    loaded = load(content.replace("x", "7"))
    assert (
        "names of the columns stand in line 3; the lines above it are left out" in loaded.notes[0]
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(gzip.compress(b"time,u,y\n0,1,2\n"), "gzip archive: unpack it", id="gzip"),
        pytest.param(lzma.compress(b"time,u,y\n0,1,2\n"), "xz archive: unpack it", id="xz"),
        pytest.param(b"PK\x03\x04" + bytes(40), "name it .xlsx, or unpack it", id="zip"),
        pytest.param(b"\x89HDF\r\n\x1a\n" + bytes(40), "an HDF5 file", id="HDF5"),
        pytest.param(b"PAR1\x15\x04" + bytes(40), "name it .parquet", id="Parquet"),
    ],
)
def test_a_file_that_is_no_text_is_named(load, content, message):
    with pytest.raises(ValueError, match=f"expected text, it is .*{message}"):
        load(content)


def test_a_row_of_units_is_noted_and_scales_the_times(load):
    loaded = load(text("time,u,y\nms,V,degC", lambda k: f"{20 * k},{k},{-k}"))
    assert loaded.sampling_time == 0.02
    assert loaded.units == {"u": "V", "y": "degC"}
    assert "the row below the header has units: time [ms], u [V], y [degC]" in loaded.notes[0]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        pytest.param("u [V],y\nmV,m\n1,2\n", {}, "states the unit 'V', the row below", id="units"),
        pytest.param("u,y\nV,m\n1,2\nx,3\n", {}, "line 4, .*'u'.*'x'", id="line after units"),
        pytest.param("# a\n# u,y\n1,2\nx,3\n", {}, "line 4, .*'x'", id="line after comments"),
        pytest.param('"u\n[V]",y\n1,2\nx,3\n', {}, "line 4, .*'x'", id="line after a line break"),
        pytest.param("u,y\nstart,end\n1,2\n", {}, "line 2, .*'start'", id="words are no units"),
        pytest.param(
            b"\xef\xbb\xbfu,y\n1,2\n", {"encoding": "cp1252"}, "mark of UTF-8", id="two encodings"
        ),
        pytest.param("u,y\nTrue,2\nFalse,3\n", {}, "'True', expected a number", id="flags"),
        pytest.param("1.5 2\n3 4\n", {}, "it has no header.*numbered", id="no header"),
    ],
)
def test_what_cannot_be_meant_is_refused(load, content, options, message):
    with pytest.raises(ValueError, match=message):
        load(content, dt=1.0, **options)


def test_a_stated_unit_is_added_or_agrees_with_that_of_the_file(load):
    loaded = load("u [°C],y\n1,2\n3,4\n", dt=1.0, units={"u": "degC", "y": "m"})
    assert loaded.units == {"u": "degC", "y": "m"}
    with pytest.raises(ValueError, match="stated unit of 'u' is 'mV', that of the file 'V'"):
        load("u [V],y\n1,2\n3,4\n", dt=1.0, units={"u": "mV"})


def test_columns_may_be_named_by_numbers(load):
    content = text(",0,1", lambda k: f"{k},{0.1 * k},{-k}")
    loaded = load(content, inputs=[0], outputs=[1], dt=1.0)
    assert loaded.inputs == ("0",)
    np.testing.assert_array_equal(loaded.estimation[0]["1"], -K)


def test_columns_without_a_header_are_numbered(load):
    content = "\n".join(f" {0.5 * k:8.3f}  {0.1 * k:.4e}   {-k:d}" for k in K)
    loaded = load(content, name="plant.dat", inputs=[2], outputs=[3], time="1")
    assert loaded.sampling_time == 0.5
    np.testing.assert_array_equal(loaded.estimation[0]["3"], -K)
    assert "no header: its columns are numbered from 1 to 3" in loaded.notes[0]


def test_parsed_numbers_are_exact(load):
    rng = np.random.default_rng(0)
    values = rng.normal(size=N) * 10.0 ** rng.integers(-30, 30, N)
    (record,) = load(text("u,y", lambda k: f"{k},{values[k]}"), dt=1.0).estimation
    np.testing.assert_array_equal(record.y, values)


def test_a_table_of_texts_with_units_is_read_as_its_file():
    frame = pd.DataFrame({"time": ["s", *map(str, 0.5 * K)], "u": ["V", *map(str, K)], "y": -1.0})
    frame["y"] = ["m", *map(str, -K)]
    narx = Narx({"y": 1}, {"u": 1})
    with pytest.warns(UserWarning, match="row below the header has units"):
        found = identify(frame, narx, budget=5, training=FIXED, identified=1)
    assert found.recordings.units == {"u": "V", "y": "m"}
    assert found.recordings.sampling_time == 0.5


U = np.sin(0.3 * np.arange(200))
Y = np.cos(0.2 * np.arange(200))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((U[None, :], Y[None, :]), id="row vectors"),
        pytest.param((U[None, :], Y), id="row and vector"),
        pytest.param((U[:, None], Y[None, :]), id="column and row"),
        pytest.param({"u": U[None, :], "y": Y[:, None]}, id="by name"),
    ],
)
def test_row_vectors_are_signals(data):
    narx = Narx({"y": 1}, {"u": 1})
    found = identify(data, narx, dt=0.1, budget=5, training=FIXED, identified=1)
    (record,) = found.recordings.estimation
    np.testing.assert_array_equal(record.u, U)
    np.testing.assert_array_equal(record.y, Y)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((np.stack([U, U]), Y), id="two rows"),
        pytest.param((U, np.stack([Y, Y])), id="two rows of outputs"),
        pytest.param({"u": np.stack([U, U]), "y": Y}, id="by name"),
        pytest.param((U[None, None, :], Y), id="three dimensions"),
    ],
)
def test_signals_in_rows_are_refused_with_their_shape(data):
    with pytest.raises(ValueError, match=r"shape \((1, )?[12], (1, )?200\)"):
        identify(data, outputs=["y"], inputs=["u"], dt=0.1, budget=5)
