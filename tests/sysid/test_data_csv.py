"""CSV files of the user's own: what is read, and what the errors say about the rest."""

import numpy as np
import pytest

from sysid.data.csv_file import CsvFiles
from sysid.data.source import DataError

GOOD = "t,u,y\n0.0,1,10\n0.1,2,20.5\n0.2,-3e-1,3.0E1\n"


@pytest.fixture
def write(tmp_path):
    """Write text or bytes into a file and return its path."""

    def write_file(content, name="run.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write_file


def load(path, **options):
    return CsvFiles(**({"estimation": path, "inputs": ["u"], "outputs": ["y"], "dt": 0.1} | options)).load()


def test_columns_become_signals(write):
    read = load(write(GOOD), units={"y": "mm"}, initialisation_window=1)
    (record,) = read.estimation
    assert (read.inputs, read.outputs, read.units, read.sampling_time) == (("u",), ("y",), {"y": "mm"}, 0.1)
    np.testing.assert_array_equal(record.u, [1.0, 2.0, -0.3])
    np.testing.assert_array_equal(record.y, [10.0, 20.5, 30.0])
    np.testing.assert_array_equal(record.time, [0.0, 0.1, 0.2])
    assert set(record.data_vars) == {"u", "y"}
    assert record.attrs["name"] == "run"
    assert record.attrs["initialisation_window"] == 1
    assert record.y.attrs == {"units": "mm", "long_name": "column y of run.csv"}


def test_the_command_line_form(write):
    one, other = write(GOOD, "one.csv"), write(GOOD, "two.csv")
    read = CsvFiles(estimation=one, test=other, inputs=["u"], outputs=["y"], dt=0.02).load()
    assert [record.attrs["name"] for record in read.records] == ["one", "two"]
    assert len(read.estimation) == len(read.test) == 1
    assert read.sampling_time == 0.02


def test_several_files_stay_several_records(write):
    paths = [write(GOOD, f"{i}.csv") for i in range(3)]
    read = load(paths, validation=paths[:2], test=paths[0])
    assert [len(read.estimation), len(read.validation), len(read.test)] == [3, 2, 1]


def test_a_column_of_times_gives_the_sampling_time(write):
    late = write("t,u,y\n5.0,1,1\n5.25,2,2\n5.5,3,3\n")
    (record,) = load(late, dt=None, time="t").estimation
    np.testing.assert_array_equal(record.time, [5.0, 5.25, 5.5])
    assert record.attrs["sampling_time"] == 0.25
    assert record.time.attrs["units"] == "s"


def test_outputs_alone_and_more_columns_than_needed(write):
    read = load(write(GOOD), inputs=[])
    assert set(read.estimation[0].data_vars) == {"y"}


@pytest.mark.parametrize(
    ("content", "options"),
    [
        (b"\xef\xbb\xbfu,y\n1,10\n2,20.5\n-0.3,30\n", {}),
        (GOOD.replace("\n", "\r\n"), {}),
        (GOOD + "\n\n", {}),
        (GOOD.replace("\n", ",\n"), {}),
        ('"t","u","y"\n"0.0","1","10"\n"0.1", 2 ,20.5\n0.2,-0.3,30\n', {}),
        (GOOD.replace(",", ";"), {"delimiter": ";"}),
        (GOOD.replace(",", "\t"), {"delimiter": "\t"}),
        (GOOD.replace(",", "\t"), {"delimiter": r"\t"}),
        (GOOD.replace(",", ";").replace(".", ","), {"delimiter": ";", "decimal": ","}),
    ],
    ids=[
        "mark",
        "line ends",
        "empty end",
        "trailing comma",
        "quotes",
        "semicolon",
        "tab",
        "tab in words",
        "decimal comma",
    ],
)
def test_other_ways_of_writing_the_same(content, options, write):
    (record,) = load(write(content), **options).estimation
    np.testing.assert_array_equal(record.u, [1.0, 2.0, -0.3])
    np.testing.assert_array_equal(record.y, [10.0, 20.5, 30.0])


HEAD = "u,y\n1,1\n"


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (
            HEAD + "2,oops\n",
            {},
            r"line 3 \(row 2 of the data\), column 'y': it holds 'oops', expected a number: correct the cell, or split",
        ),
        (
            HEAD + "2,\n",
            {},
            r"line 3 .*column 'y': it is empty: fill the gap, or split .*\(on_missing=skip does not apply to files\)$",
        ),
        (HEAD + " ,2\n", {}, r"line 3 .*column 'u': it is empty"),
        (
            HEAD + "nan,2\n",
            {},
            r"column 'u': it holds 'nan', not a finite number: fill the gap, .*on_missing=skip does not",
        ),
        (HEAD + "2,-inf\n", {}, r"column 'y': it holds '-inf', not a finite number"),
        (HEAD + "1_000,2\n", {}, r"column 'u': it holds '1_000', expected a number: remove the underscores"),
        (HEAD + "\n3,3\n", {}, r"line 3: the line is empty in the middle .*: fill the gap, or split the record there"),
        (HEAD + "2\n", {}, r"line 3: expected 2 cells as in the header, got 1; complete the line"),
        (
            HEAD + "1,5,2,5\n",
            {},
            r"line 3: expected 2 cells .* got 4; .*comma, .*set 'data\.delimiter=\";\"' 'data\.decimal=\",\"'$",
        ),
        ("u;y\n1,5;2,5\n", {"delimiter": ";"}, r"column 'u': it holds '1,5'.*set 'data\.decimal=\",\"'$"),
        (
            "u;y\n1.5;2,5\n",
            {"delimiter": ";", "decimal": ","},
            r"column 'u': it holds '1.5'.*set 'data\.decimal=\"\.\"'$",
        ),
        ("u;y\n1.000,5;2\n", {"delimiter": ";", "decimal": ","}, r"column 'u': it holds '1\.000,5', expected a number"),
        ("u;y\n1;2\n", {}, r"no columns \['u', 'y'\].*separated by a semicolon: set 'data\.delimiter=\";\"'$"),
        ("u\ty\n1\t2\n", {}, r"separated by a tab: set 'data\.delimiter=\"\\t\"'$"),
        ("1,2\n3,4\n", {}, r"no columns \['u', 'y'\].*seems to have no header"),
        ("u,height\n3,4\n", {}, r"no columns \['y'\], its first line names \['u', 'height'\]; name columns"),
        ("u,y,u\n3,4,5\n", {}, r"columns \['u'\] are there more than once"),
        ("u,y\n", {}, r"expected rows of numbers after the header"),
        ("", {}, r"no columns"),
        (GOOD.encode("utf-16"), {}, r"expected text in UTF-8, got byte 0xff at 0: export it as CSV in UTF-8"),
        (b"PK\x03\x04\x80\x81", {}, r"expected text in UTF-8.*Excel workbook"),
        ('u,y\n"1,2\n3,4\n', {}, r"not a CSV file .*close its quotes"),
    ],
)
def test_bad_content_is_told_with_line_and_column(content, options, message, write):
    path = write(content)
    with pytest.raises(ValueError, match=message) as caught:
        load(path, **options)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([0.0, 0.1, 0.1, 0.2], r"column 't', line 4: expected at least two times .* that increase"),
        ([0.0], r"column 't', line 2: expected at least two times"),
        ([0.0, 0.1, 0.2, 0.4, 0.5], r"line 5: the step of time is 0.2 s where the mean is 0.125 s; resample"),
        ([0.0, 0.333, 0.667, 1.0], r"line 4: .*merely rounded, give dt instead of time"),
    ],
)
def test_times_must_be_uniform(times, message, write):
    path = write("t,u,y\n" + "".join(f"{t},1,2\n" for t in times))
    with pytest.raises(ValueError, match=message):
        load(path, dt=None, time="t")


def test_times_far_from_zero_may_be_rounded(write):
    times = 1.7e9 + 0.01 * np.arange(50)
    path = write("t,u,y\n" + "".join(f"{float(t)!r},1,2\n" for t in times))
    assert load(path, dt=None, time="t").sampling_time == pytest.approx(0.01, rel=1e-6)


def test_records_of_different_sampling_are_refused(write):
    slow, fast = ("t,u,y\n" + "".join(f"{dt * i},1,2\n" for i in range(4)) for dt in (0.5, 0.25))
    with pytest.raises(ValueError, match=r"one sampling time, record 0 has 0\.5 s, record 1 0\.25 s"):
        load([write(slow, "slow.csv"), write(fast, "fast.csv")], dt=None, time="t")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimation": []}, r"set data\.estimation=<file>"),
        ({"outputs": []}, r"set data\.outputs=\[y\]"),
        ({"dt": None}, r"needs one of both: set data\.dt"),
        ({"time": "t"}, r"needs one of both"),
        ({"dt": 0.0}, r"dt=0\.0\) must be a finite number of seconds > 0"),
        ({"dt": float("nan")}, r"must be a finite number of seconds"),
        ({"units": {"x": "m"}}, r"units of \['x'\]\): expected units of \['u', 'y'\] only"),
        ({"units": "V"}, r"units='V'\) must be a mapping: write 'data\.units=\{u: V\}'"),
        ({"inputs": "u"}, r"inputs='u'\) must be a list"),
        ({"delimiter": ";;"}, r"delimiter of one character"),
        ({"delimiter": ",", "decimal": ","}, r"a decimal '.' or ',' other than it"),
        ({"decimal": "p"}, r"decimal 'p'"),
        ({"initialisation_window": 3}, r"initialisation_window 3, expected a whole number of samples from 0 to 2"),
    ],
)
def test_bad_settings_are_refused(options, message, write):
    path = write(GOOD)
    with pytest.raises(ValueError, match=message):
        load(**({"path": path} | {}), **options) if "estimation" not in options else load(None, **options)


def test_a_missing_file_and_a_folder_are_told(tmp_path):
    with pytest.raises(DataError, match=r"no file .*missing\.csv \(seen from"):
        load(str(tmp_path / "missing.csv"))
    with pytest.raises(DataError, match=r"cannot read .*name a CSV file"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    "text", ["u;y\n1;2\n3;4\n", "u\ty\n1\t2\n3\t4\n", "u|y\n1|2\n3|4\n"], ids=["semicolon", "tab", "bar"]
)
def test_the_advice_can_be_pasted_into_a_shell(text, write):
    """What the shell makes of the words, and the parser of overrides of these, reads the file."""
    import shlex

    from hydra.core.override_parser.overrides_parser import OverridesParser

    path = write(text)
    with pytest.raises(ValueError, match="set ") as caught:
        load(path)
    words = shlex.split(str(caught.value).rpartition("set ")[2])
    overrides = OverridesParser.create().parse_overrides(words)
    options = {override.key_or_group.removeprefix("data."): override.value() for override in overrides}
    assert load(path, **options).estimation[0].u.values.tolist() == [1.0, 3.0]


def test_units_need_no_plus_on_the_command_line():
    from hydra import compose, initialize_config_module
    from hydra.utils import instantiate

    with initialize_config_module("conf", version_base="1.3"):
        config = compose("identify", overrides=["data=csv", "data.units={u: V, y: m}"])
    assert instantiate(config.data, _convert_="all").units == {"u": "V", "y": "m"}
