"""CSV files of a user: ways of writing numbers, names and times; gaps; and what is refused."""

import gzip

import numpy as np
import pytest

from data_sources import names_of
from sysid import CsvFiles, DataError

GOOD_FILE = "t,u,y\n0.0,1,10\n0.1,2,20.5\n0.2,-3e-1,3.0E1\n"
HEADER_AND_ROW = "u,y\n1,1\n"
DECIMAL_COMMA = {"delimiter": ";", "decimal": ","}
WITH_SEMICOLONS = GOOD_FILE.replace(",", ";")
WITH_COMMAS = WITH_SEMICOLONS.replace(".", ",")
WITH_TABS = GOOD_FILE.replace(",", "\t")


@pytest.fixture
def load(tmp_path):
    """Return a function that writes text or bytes into a file, and reads it."""

    def load_csv(content=GOOD_FILE, name="run.csv", **options):
        path = tmp_path / name
        if isinstance(content, str):
            content = content.encode()
        path.write_bytes(content)
        settings = {"estimation": str(path), "inputs": ["u"], "outputs": ["y"], "dt": 0.1}
        return CsvFiles(**(settings | options)).load()

    return load_csv


def test_columns_become_signals_and_files_records(load, tmp_path):
    load(name="one.csv")
    tests = [str(tmp_path / "one.csv"), str(tmp_path / "one.csv")]
    loaded = load(units={"y": "mm"}, initialisation_window=1, test=tests)
    assert loaded.inputs == ("u",)
    assert loaded.outputs == ("y",)
    assert loaded.units == {"y": "mm"}
    assert loaded.sampling_time == 0.1
    assert names_of(loaded) == ["run.csv", "one.csv", "one.csv"]
    (record,) = loaded.estimation
    np.testing.assert_array_equal(record.time, [0.0, 0.1, 0.2])
    assert set(record.data_vars) == {"u", "y"}
    assert record.attrs["initialisation_window"] == 1
    assert record.y.attrs["units"] == "mm"


def test_inputs_may_be_missing(load):
    (record,) = load(inputs=[]).estimation
    assert set(record.data_vars) == {"y"}


def test_columns_that_are_not_used_are_named_where_no_input_is(load):
    """A forgotten input would make a model of the output alone."""
    content = "t,u,valve [%],y\n0,1,3,1\n0.1,2,4,2\n0.2,3,5,3\n"
    (record,) = load(content, inputs=[], dt=None, time="t").estimation
    assert "no input is named" in record.attrs["note"]
    assert "data.inputs=[u,valve]" in record.attrs["note"]
    (record,) = load(content, inputs=["u"], dt=None, time="t").estimation
    assert "no input" not in record.attrs.get("note", "")
    (record,) = load("t,y\n0,1\n0.1,2\n0.2,3\n", inputs=[], dt=None, time="t").estimation
    assert "note" not in record.attrs


def test_a_column_of_times_gives_the_sampling_time(load):
    (record,) = load("t,u,y\n5.0,1,1\n5.25,2,2\n5.5,3,3\n", dt=None, time="t").estimation
    np.testing.assert_array_equal(record.time, [5.0, 5.25, 5.5])
    assert record.attrs["sampling_time"] == 0.25
    assert record.time.attrs["units"] == "s"


def test_times_far_from_zero_give_the_sampling_time(load):
    rows = [f"{1.7e9 + 0.01 * i!r},1,2\n" for i in range(50)]
    loaded = load("t,u,y\n" + "".join(rows), dt=None, time="t")
    assert loaded.sampling_time == pytest.approx(0.01, rel=1e-6)


@pytest.mark.parametrize(
    ("content", "options"),
    [
        pytest.param(GOOD_FILE, {}, id="plain"),
        pytest.param(b"\xef\xbb\xbfu,y\n1,10\n2,20.5\n-0.3,30\n", {}, id="byte order mark"),
        pytest.param(
            GOOD_FILE.replace("\n", ",\r\n") + "\r\n,,,\r\n",
            {},
            id="empty column and rows",
        ),
        pytest.param(
            '"t","u","y"\n"0.0","1","10"\n"0.1", 2 ,20.5\n0.2,-0.3,30\n',
            {},
            id="quotes and blanks",
        ),
        pytest.param(WITH_TABS, {"delimiter": r"\t"}, id="tabs named"),
        pytest.param(WITH_TABS, {}, id="tabs found"),
        pytest.param(WITH_COMMAS, DECIMAL_COMMA, id="decimal comma named"),
        pytest.param(WITH_COMMAS, {}, id="decimal comma found"),
        pytest.param("sep=;\n" + WITH_SEMICOLONS, {}, id="separator in the first line"),
        pytest.param(
            "sep=,\nu [m/s],y (°C)\n1,10\n2,20.5\n-0.3,30\n",
            {"dt": 0.1},
            id="units in the header",
        ),
        pytest.param(
            "u [m/s],y [°C]\n1,10\n2,20.5\n-0.3,30\n".encode("cp1252"),
            {"encoding": "cp1252"},
            id="another encoding",
        ),
        pytest.param(
            "y [K];y 2;u\n10;9;1\n20,5;9;2\n30;9;-0,3\n",
            {"outputs": ["y [K]"]},
            id="name with its unit",
        ),
    ],
)
def test_the_same_numbers_may_be_written_in_many_ways(content, options, load):
    loaded = load(content, **options)
    (record,) = loaded.estimation
    (output,) = loaded.outputs
    np.testing.assert_array_equal(record.u, [1.0, 2.0, -0.3])
    np.testing.assert_array_equal(record[output], [10.0, 20.5, 30.0])


@pytest.fixture
def content_with_units():
    """Return a file whose header names units in several ways."""
    return 'time [ms],T out [degC],u1 [%],"flow (l/min)"\n0,1,2,3\n100,1,2,3\n200,1,2,3\n'


def test_units_in_the_header_are_units_of_the_signals(load, content_with_units):
    loaded = load(
        content_with_units,
        inputs=["u1", "flow"],
        outputs=["T out [degC]"],
        units={"flow": "l / min"},
        dt=None,
    )
    assert loaded.units == {"u1": "%", "flow": "l / min", "T out [degC]": "degC"}
    assert loaded.sampling_time == 0.1
    (record,) = loaded.estimation
    assert record["T out [degC]"].attrs["long_name"] == "T out"


def test_an_unknown_column_is_named_together_with_those_that_exist(load, content_with_units):
    options = {"inputs": ["v"], "outputs": ["T out [degC]"], "dt": None}
    with pytest.raises(ValueError, match=r"no columns \['v'\].*'data\.inputs=\[flow\]'"):
        load(content_with_units, **options)


def test_a_name_that_two_columns_have_is_refused(load):
    with pytest.raises(ValueError, match=r"""more than once.*'data\.inputs=\["u \[V\]"\]'"""):
        load("u [V],u [A],y\n1,2,3\n", inputs=["u"])


FIRST_STAMP = np.datetime64("2024-02-29T23:59:59.800")
STAMPS = [str(FIRST_STAMP + np.timedelta64(50 * k, "ms")) for k in range(9)]


def stamps_as(pattern):
    """Return the stamps with year, month, day and time of day in another order."""
    texts = []
    for stamp in STAMPS:
        parts = {"year": stamp[:4], "month": stamp[5:7], "day": stamp[8:10], "clock": stamp[11:]}
        texts.append(pattern.format(**parts))
    return texts


@pytest.mark.parametrize(
    ("texts", "options"),
    [
        pytest.param(STAMPS, {}, id="ISO 8601"),
        pytest.param(
            [stamp.replace(".000", "") + "+01:00" for stamp in STAMPS],
            {},
            id="ISO 8601 with a time zone",
        ),
        pytest.param(stamps_as("{day}.{month}.{year} {clock}"), {}, id="German"),
        pytest.param(
            stamps_as("{month}/{day}/{year} {clock}"),
            {"time": "when"},
            id="American",
        ),
        pytest.param(
            stamps_as("{day}/{month}/{year} {clock}"),
            {"time_format": "%d/%m/%Y %H:%M:%S.%f"},
            id="given format",
        ),
        pytest.param(
            [f"{k * 0.05:.15g}".replace(".", ",") for k in range(9)],
            {},
            id="seconds with a decimal comma",
        ),
        pytest.param([repr(k * 0.05 + 1.7e9) for k in range(9)], {}, id="seconds since 1970"),
        pytest.param(
            [repr(k * 0.05) for k in range(9)],
            {"dt": 0.05, "time": "when"},
            id="seconds and a sampling time",
        ),
    ],
)
def test_times_and_stamps_give_the_sampling_time(load, texts, options):
    name = options.get("time", "Timestamp")
    rows = [f"{text};{k};{k}\n" for k, text in enumerate(texts)]
    loaded = load(f"{name};u;y\n{''.join(rows)}", **{"dt": None} | options)
    (record,) = loaded.estimation
    assert loaded.sampling_time == 0.05  # not 0.05000000000000002
    np.testing.assert_allclose(record.time - record.time[0], 0.05 * np.arange(9), atol=1e-6)
    assert "note" not in record.attrs
    are_stamps = ":" in texts[0]
    start = record.attrs.get("start", "")
    assert start[:8] == ("2024-02-" if are_stamps else "")


def test_times_that_jitter_are_accepted_with_a_note(load):
    jitter = np.random.default_rng(0).uniform(-0.004, 0.004, 41)  # s
    jitter[7] = -0.004
    jitter[8] = 0.004
    times = 0.1 * np.arange(41) + jitter
    rows = [f"{time:.6f},1,2\n" for time in times]
    loaded = load("t,u,y\n" + "".join(rows), dt=None)
    mean_step = (times[-1] - times[0]) / 40
    assert loaded.sampling_time == 0.1 == pytest.approx(mean_step, abs=2e-4)
    (record,) = loaded.estimation
    assert record.attrs["jitter"] == pytest.approx(0.08, abs=1e-5)
    expected = "run.csv: times jitter by up to 8 % of 0.1 s, the mean of 40 steps,"
    assert expected in loaded.notes[0]


def test_a_step_that_is_off_by_more_than_a_tenth_is_refused(load):
    times = 0.1 * np.arange(41)
    times[8:] += 0.012
    rows = [f"{time},1,2\n" for time in times]
    message = r"line 10: the step of time is 0\.112 s where the median of all steps is 0\.1 s"
    with pytest.raises(ValueError, match=message):
        load("t,u,y\n" + "".join(rows), dt=None)


@pytest.fixture
def content_with_gaps():
    """Return 400 rows without 300 to 304; 100, 101 and 230 miss a value, and 210 its time."""
    rows = [[str(0.1 * k), str(k), str(-k)] for k in range(400)]
    rows[100][1] = ""
    rows[101][2] = "nan"
    rows[210][0] = ""
    rows[230][1] = ""
    del rows[300:305]
    lines = [",".join(row) + "\n" for row in rows]
    return "t,u,y\n" + "".join(lines)


def test_missing_values_stay_in_the_record_and_are_counted(load, content_with_gaps):
    loaded = load(content_with_gaps, dt=None, on_missing="skip", initialisation_window=3)
    (record,) = loaded.estimation
    u = np.arange(400.0)
    y = -u
    u[[100, 230]] = np.nan
    y[101] = np.nan
    u[300:305] = np.nan
    y[300:305] = np.nan
    np.testing.assert_array_equal(record.u, u)
    np.testing.assert_array_equal(record.y, y)
    np.testing.assert_allclose(record.time, 0.1 * np.arange(400), atol=1e-12)
    assert record.attrs["initialisation_window"] == 3
    assert record.attrs["on_missing"] == "skip"
    (note,) = loaded.notes
    expected = (
        "7 of 400 samples of u are missing (1.8 %, 3 holes, the longest of 5); "
        "6 of 400 samples of y are missing (1.5 %, 2 holes, the longest of 5); "
        "a free run ends at a hole of an input"
    )
    assert expected in note


def test_short_holes_of_inputs_are_bridged_only_when_asked(load, content_with_gaps):
    loaded = load(content_with_gaps, dt=None, on_missing="skip", bridge_inputs=1)
    (record,) = loaded.estimation
    u = np.arange(400.0)
    u[300:305] = np.nan
    np.testing.assert_allclose(record.u, u)
    assert "2 missing samples of u are interpolated (2 holes, the longest of 1" in loaded.notes[0]
    assert np.isnan(record.y[101])


def test_bridges_need_missing_values_that_are_skipped(load, content_with_gaps):
    with pytest.raises(ValueError, match="bridge_inputs=2 needs on_missing=skip, got error"):
        load(content_with_gaps, dt=None, bridge_inputs=2)


#: rows that are left out of a clock of 0.1 s, and the time that is added from there on [s]
BREAKS = [
    pytest.param(100, 0.05, [100, 100], id="no whole number of steps"),
    pytest.param(100, 150.0, [100, 100], id="too long"),
    pytest.param(100, 1.0, [210], id="ten missing samples"),
    pytest.param(170, 150.0, [170], id="the end is too short"),
]


@pytest.mark.parametrize(("row", "added", "lengths"), BREAKS)
def test_a_gap_of_time_ends_a_record_if_it_cannot_be_counted_in_samples(load, row, added, lengths):
    times = 0.1 * np.arange(200)
    times[row:] += added
    rows = [f"{time:.3f},1,{number % 7}\n" for number, time in enumerate(times)]
    loaded = load("t,u,y\n" + "".join(rows), dt=None, on_missing="skip")
    assert [record.sizes["time"] for record in loaded.estimation] == lengths
    if len(lengths) > 1:
        assert "1 gaps of time end a record, records: 2" in loaded.notes[0]
        assert names_of(loaded) == ["run.csv, segment 1", "run.csv, segment 2"]


def test_gaps_are_refused_unless_they_are_to_be_skipped(load, content_with_gaps):
    message = (
        r"line 102, column 'u': the value is missing, the first of 4.*on_missing=skip, which "
        "counts such values as missing"
    )
    with pytest.raises(ValueError, match=message):
        load(content_with_gaps, dt=None)


def test_records_between_gaps_of_time_that_are_all_too_short_are_refused(load):
    times = np.arange(60.0)
    times[30:] += 5000.0
    content = "t,u,y\n" + "".join(f"{time},1,{time % 7}\n" for time in times)
    message = "2 parts of at most 30 samples, expected one of at least 50"
    with pytest.raises(ValueError, match=message):
        load(content, dt=None, on_missing="skip")


def test_a_short_record_without_gaps_is_kept(load):
    loaded = load("u,y\n" + "1,2\n" * 20, on_missing="skip")
    assert loaded.estimation[0].sizes["time"] == 20
    assert loaded.notes == ()


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        pytest.param(HEADER_AND_ROW + "2,oops\n", {}, "line 3, .*'y'.*'oops'", id="a word"),
        pytest.param(HEADER_AND_ROW + "2,\n", {}, "line 3, .*'y'.*missing", id="no value"),
        pytest.param(HEADER_AND_ROW + "inf,2\n", {}, "line 3, .*'u'.*missing", id="infinity"),
        pytest.param(
            HEADER_AND_ROW + "1_000,2\n",
            {},
            "line 3, .*'u'.*'1_000'",
            id="digits in groups",
        ),
        pytest.param(HEADER_AND_ROW + "\n3,3\n", {}, "line 3, .*missing", id="empty line"),
        pytest.param(HEADER_AND_ROW + "2\n", {}, "line 3, .*'y'.*missing", id="short line"),
        pytest.param(
            HEADER_AND_ROW + "1,5,2,5\n",
            {},
            "line 3.*decimal comma",
            id="decimal comma between commas, later",
        ),
        pytest.param(
            "u,y\n1,5,2,5\n",
            {},
            "line 2.*decimal comma",
            id="decimal comma between commas",
        ),
        pytest.param(
            "u;y\n1,5;2,5\n",
            {"decimal": "."},
            r"line 2, .*'u'.*'1,5'.*data\.decimal=\",\"",
            id="decimal comma where a point is expected",
        ),
        pytest.param("u;y\n1;2\n", {"delimiter": ","}, r"\['u', 'y'\]", id="other delimiter"),
        pytest.param(
            "u;y\n1.5;2,5\n",
            DECIMAL_COMMA,
            r"line 2, .*'u'.*'1.5'.*data\.decimal=\"\.\"",
            id="decimal point where a comma is expected",
        ),
        pytest.param("1,2\n3,4\n", {}, r"\['u', 'y'\].*no header", id="no header"),
        pytest.param('u,y\n"1,2\n3,4\n', {}, "quotes", id="open quotes"),
        pytest.param(
            "t,u,y\n0,1,1\n",
            {"dt": None, "time": "t"},
            "line 2: expected at least two times",
            id="one time",
        ),
        pytest.param(
            "u,height\n3,4\n",
            {},
            r"\['y'\].*\['u', 'height'\]",
            id="missing column",
        ),
        pytest.param("u,y,u\n3,4,5\n", {}, r"\['u', 'u'\].*more than once", id="column twice"),
        pytest.param(
            "u,y,y\n3,4,5\n", {}, r"\['y', 'y'\].*as 'y': rename them$", id="output twice"
        ),
        pytest.param("U,y\n3,4\n", {}, r"no columns \['u'\].*\[U\]'$", id="capital letter"),
        pytest.param(
            "u,y\n" + 5 * "3,4\n" + "3,4,5\n",
            {},
            "run.csv, line 7: 3 cells, expected 2 as in the header: correct the line",
            id="a cell too many",
        ),
        pytest.param("u,y\n", {}, "rows of numbers", id="no rows"),
        pytest.param(GOOD_FILE.encode("utf-16"), {}, "UTF-8", id="not UTF-8"),
        pytest.param(
            "when,u,y\n0,1,1\n",
            {"dt": None},
            "sampling time is not known: set data.dt to seconds, or data.time.*'when'",
            id="no sampling time",
        ),
        pytest.param(
            "t [parsec],u,y\n0,1,1\n",
            {"dt": None},
            "times in 'parsec'",
            id="unknown unit of time",
        ),
        pytest.param(
            "t,u,y\n2024-01-01,1,1\nnoon,1,1\n",
            {"dt": None},
            "line 3: 'noon' is neither",
            id="no time",
        ),
        pytest.param(
            GOOD_FILE.replace("0.2", "0.1"),
            {"dt": None, "time": "t"},
            "line 4: the time is not later",
            id="time twice",
        ),
        pytest.param(
            GOOD_FILE + "0.4,1,1\n",
            {"dt": None, "time": "t"},
            "line 5: the step of time is 0.2 s",
            id="gap of time",
        ),
    ],
)
def test_bad_content_is_named_with_file_line_and_column(content, options, message, load):
    with pytest.raises(ValueError, match=message) as error:
        load(content, **options)
    assert "run.csv" in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"estimation": []}, r"data\.estimation", id="no file"),
        pytest.param({"dt": float("nan")}, "dt=nan", id="sampling time"),
        pytest.param(
            {"dt": 0.2, "time": "t"},
            "line 3: the step of time is 0.1 s where dt is 0.2 s",
            id="sampling time of another file",
        ),
        pytest.param({"time": "when"}, r"\['when'\].*'data\.time|data\.time", id="time"),
        pytest.param(
            {"on_missing": "fill"},
            "on_missing must be one of error, skip",
            id="on_missing",
        ),
        pytest.param({"encoding": "morse"}, "encoding", id="encoding"),
        pytest.param({"delimiter": ",", "decimal": ","}, "decimal", id="two meanings of a comma"),
        pytest.param({"units": {"x": "m"}}, r"units of \['x'\]", id="units of no signal"),
        pytest.param({"inputs": "u"}, "inputs='u'", id="a name instead of a list"),
        pytest.param({"delimiter": ";;"}, "delimiter", id="delimiter"),
        pytest.param({"decimal": "p"}, "decimal 'p'", id="decimal"),
        pytest.param(
            {"initialisation_window": 3},
            "initialisation_window 3",
            id="window as long as the file",
        ),
    ],
)
def test_bad_settings_are_named(options, message, load):
    with pytest.raises(ValueError, match=message):
        load(GOOD_FILE, **options)


def test_a_missing_file_is_named(tmp_path, load):
    path = tmp_path / "missing.csv"
    with pytest.raises(DataError, match=str(path)):
        load(estimation=str(path))


def test_a_folder_instead_of_a_file_is_named(tmp_path, load):
    with pytest.raises(DataError, match=str(tmp_path)):
        load(estimation=str(tmp_path))


# --- names of archives


@pytest.mark.parametrize("suffix", ["gz", "bz2", "zip", "xz", "tar", "tar.gz"])
def test_a_file_is_read_as_it_is_whatever_its_name(load, suffix):
    (record,) = load(name=f"run.csv.{suffix}").estimation
    np.testing.assert_array_equal(record["u"], [1.0, 2.0, -0.3])


def make_sparse_archive():
    """Return the head of an archive of text whose only file claims 3 GB, and stores none of it."""
    head = bytearray(512)
    fields = {0: b"u,y", 100: b"0000644", 124: b"00000000000", 156: b"S", 257: b"ustar  "}
    fields |= {386: b"%011o" % 3_000_000_000, 398: b"%011o" % 0, 483: b"%011o" % 3_000_000_000}
    fields |= {148: b"        "}
    for position, content in fields.items():
        head[position : position + len(content)] = content
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + bytes(1024)


@pytest.mark.parametrize(
    ("suffix", "content"),
    [("tar", make_sparse_archive()), ("csv.gz", gzip.compress(GOOD_FILE.encode()))],
    ids=["tar", "gzip"],  # a gzip archive has the present time
)
def test_an_archive_is_not_unpacked(load, suffix, content):
    with pytest.raises(ValueError, match=r"run\.(tar|csv\.gz)"):
        load(content, name=f"run.{suffix}")


def test_a_file_of_more_than_the_allowed_size_is_not_read(load, tmp_path, monkeypatch):
    monkeypatch.setenv("SYSID_MOST_BYTES", "1e6")
    with pytest.raises(DataError, match="SYSID_MOST_BYTES"):
        load("u,y\n" + "1,1\n" * 300_000)
