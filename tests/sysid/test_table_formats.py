"""MATLAB files, workbooks and Parquet files: what is read, and what is refused."""

import io
import struct
import sys
import zipfile
import zlib

import netCDF4
import numpy as np
import pandas as pd
import pytest
import scipy.io

from sysid import CsvFiles, DataError, Fixed, Narx, identify

N = 150
U = np.sin(0.3 * np.arange(N))
Y = np.cos(0.2 * np.arange(N))
FIXED = Fixed(variance=1.0, length_scales=[1.0, 1.0], noise_variance=0.01)


def load(path, **options):
    """Read a file with the input u and the output y."""
    settings = {"estimation": str(path), "inputs": ["u"], "outputs": ["y"]}
    return CsvFiles(**(settings | options)).load()


def assert_read(loaded, dt):
    """Check the signals u and y and the sampling time."""
    (record,) = loaded.estimation
    np.testing.assert_allclose(record[loaded.inputs[0]], U)
    np.testing.assert_allclose(record[loaded.outputs[0]], Y)
    assert loaded.sampling_time == pytest.approx(dt, rel=1e-12)


IDDATA = {
    "InputData": U[:, None],
    "OutputData": Y[:, None],
    "Ts": 500.0,
    "TimeUnit": "milliseconds",
}
NAMES = {
    "InputName": np.array(["flow"], dtype=object),
    "OutputName": np.array(["level"], dtype=object),
    "OutputUnit": np.array(["m"], dtype=object),
}


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("variables", "options", "dt"),
    [
        pytest.param({"u": U, "y": Y[:, None], "Ts": 0.5}, {}, 0.5, id="arrays"),
        pytest.param({"u": U, "y": Y, "Fs": 8.0, "uVal": U[:40]}, {}, 0.125, id="rate"),
        pytest.param({"u": U, "y": Y, "t": 0.25 * np.arange(N)}, {}, 0.25, id="times"),
        pytest.param({"run": {"u": U, "y": Y, "dt": 0.5}, "who": "me"}, {}, 0.5, id="struct"),
        pytest.param({"z": IDDATA}, {}, 0.5, id="iddata-like"),
        pytest.param(
            {"z": IDDATA | NAMES},
            {"inputs": ["flow"], "outputs": ["level"]},
            0.5,
            id="iddata-like with names",
        ),
        pytest.param(
            {"X": np.stack([U, Y])},
            {"inputs": ["X1"], "outputs": ["X2"], "dt": 2.0},
            2.0,
            id="rows",
        ),
        pytest.param(
            {"u": U.astype(np.float32), "y": Y, "a": {"b": {"y": 2 * Y}}, "Ts": 1},
            {},
            1.0,
            id="the same name in a struct",
        ),
    ],
)
def test_matlab_files_are_read(tmp_path, variables, options, dt, compressed):
    path = tmp_path / "run.mat"
    scipy.io.savemat(path, variables, do_compression=compressed)
    loaded = load(path, **options)
    (record,) = loaded.estimation
    np.testing.assert_allclose(record[loaded.inputs[0]], U, rtol=1e-6)
    np.testing.assert_allclose(record[loaded.outputs[0]], Y)
    assert loaded.sampling_time == pytest.approx(dt, rel=1e-12)
    if "level" in record:
        assert loaded.units == {"level": "m"}


def cell(*values):
    """Return what `scipy.io.savemat` writes as a cell."""
    content = np.empty((1, len(values)), dtype=object)
    content[0] = [value if isinstance(value, str) else np.atleast_2d(value) for value in values]
    return content


EXPERIMENTS = {
    "InputData": cell(U[:100, None], U[100:, None]),
    "OutputData": cell(Y[:100, None], Y[100:, None]),
}


@pytest.mark.parametrize(
    ("fields", "labels"),
    [
        pytest.param({"Ts": cell(0.5, 0.5)}, ["1", "2"], id="numbers"),
        pytest.param(
            {"Ts": 0.5, "ExperimentName": cell("cold", "warm")}, ["cold", "warm"], id="names"
        ),
        pytest.param(
            {"SamplingInstants": cell(0.5 * np.arange(100)[:, None], 0.5 * np.arange(50)[:, None])},
            ["1", "2"],
            id="instants",
        ),
        pytest.param(
            {"Ts": 0.5, "SamplingInstants": cell(np.zeros((0, 0)), np.zeros((0, 0)))},
            ["1", "2"],
            id="empty instants",
        ),
    ],
)
def test_experiments_of_an_iddata_like_struct_are_records(tmp_path, fields, labels):
    path = tmp_path / "run.mat"
    scipy.io.savemat(path, {"z": EXPERIMENTS | fields})
    first, second = load(path).estimation
    np.testing.assert_allclose(first["u"], U[:100])
    np.testing.assert_allclose(second["y"], Y[100:])
    names = [record.attrs["name"] for record in (first, second)]
    assert names == [f"run.mat, experiment {label}" for label in labels]
    assert first.attrs["sampling_time"] == second.attrs["sampling_time"] == 0.5


@pytest.mark.parametrize(
    "input_data",
    [
        pytest.param(cell(np.zeros((100, 0)), np.zeros((50, 0))), id="no columns"),
        pytest.param(cell(np.zeros((0, 0)), np.zeros((0, 0))), id="nothing"),
        pytest.param(np.zeros((0, 0)), id="no cell"),
    ],
)
def test_experiments_without_inputs_are_records(tmp_path, input_data):
    fields = {"OutputData": EXPERIMENTS["OutputData"], "InputData": input_data, "Ts": 0.5}
    scipy.io.savemat(tmp_path / "run.mat", {"z": fields})
    first, second = load(tmp_path / "run.mat", inputs=[]).estimation
    np.testing.assert_allclose(first["y"], Y[:100])
    np.testing.assert_allclose(second["y"], Y[100:])


def instants_of(step):
    return cell(step * np.arange(100)[:, None], step * np.arange(50)[:, None])


TIMED = {name: EXPERIMENTS | {"SamplingInstants": instants_of(0.5)} for name in ("ze", "zv")}
WITH_STEP = EXPERIMENTS | {"Ts": 0.5}
OTHER_STEP = EXPERIMENTS | {"Ts": 0.2}
OF_OTHER = {"inputs": ["zv.u"], "outputs": ["zv.y"]}
SINGLE = {"InputData": U[:, None], "OutputData": Y[:, None], "Ts": 0.5}
SHORT = {"InputData": U[:60, None], "OutputData": Y[:60, None], "Ts": 0.2}
SHORT_CELLS = {
    "InputData": cell(U[:30, None], U[30:60, None]),
    "OutputData": cell(Y[:30, None], Y[30:60, None]),
    "SamplingInstants": cell(0.2 * np.arange(30)[:, None], 0.2 * np.arange(30)[:, None]),
}


@pytest.mark.parametrize(
    ("objects", "options", "lengths", "dt"),
    [
        pytest.param({"ze": WITH_STEP, "zv": SHORT}, {}, [100, 50], 0.5, id="first of two lengths"),
        pytest.param({"ze": WITH_STEP, "zv": SHORT_CELLS}, {}, [100, 50], 0.5, id="other cells"),
        pytest.param({"zv": SHORT_CELLS, "ze": SINGLE}, {}, [30, 30], 0.2, id="shorter one"),
        pytest.param(
            {"ze": WITH_STEP, "zv": SHORT_CELLS}, OF_OTHER, [30, 30], 0.2, id="second by its name"
        ),
        pytest.param({"ze": WITH_STEP, "zv": SINGLE}, {}, [100, 50], 0.5, id="one length"),
        pytest.param({"ze": WITH_STEP, "zv": SINGLE}, OF_OTHER, [150], 0.5, id="single experiment"),
        pytest.param({"ze": WITH_STEP, "zv": OTHER_STEP}, OF_OTHER, [100, 50], 0.2, id="steps"),
        pytest.param(TIMED, {"inputs": ["zv.u"]}, [100, 50], 0.5, id="alike in both"),
        pytest.param(
            {"ze": TIMED["ze"], "zv": SHORT}, {"dt": 0.5}, [100, 50], 0.5, id="step of the other"
        ),
        pytest.param({"ze": EXPERIMENTS, "Ts": 0.5}, {}, [100, 50], 0.5, id="step of the file"),
        pytest.param({"u": U, "y": Y, "ze": WITH_STEP}, {}, [100, 50], 0.5, id="beside arrays"),
    ],
)
def test_experiments_and_times_are_those_of_the_struct_whose_signals_are_used(
    tmp_path, objects, options, lengths, dt
):
    scipy.io.savemat(tmp_path / "run.mat", objects)
    loaded = load(tmp_path / "run.mat", **options)
    assert [record.sizes["time"] for record in loaded.estimation] == lengths
    assert loaded.sampling_time == pytest.approx(dt, rel=1e-12)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param(
            {"OutputData": cell(Y[:90, None], Y[90:, None]), "Ts": 0.5},
            "ze and zv have different experiments",
            id="experiments",
        ),
        pytest.param(
            EXPERIMENTS | {"SamplingInstants": instants_of(0.25)},
            "ze and zv have different times",
            id="times",
        ),
    ],
)
def test_signals_of_structs_that_differ_are_refused(tmp_path, fields, message):
    if "InputData" not in fields:
        fields = fields | {"InputData": cell(U[:90, None], U[90:, None])}
    scipy.io.savemat(tmp_path / "run.mat", {"ze": TIMED["ze"], "zv": fields})
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "run.mat", outputs=["zv.y"])


def test_a_signal_may_have_the_name_of_the_column_of_experiments(tmp_path):
    fields = EXPERIMENTS | {"Ts": 0.5, "InputName": cell("experiment")}
    scipy.io.savemat(tmp_path / "run.mat", {"z": fields})
    first, second = load(tmp_path / "run.mat", inputs=["experiment"]).estimation
    np.testing.assert_allclose(first["experiment"], U[:100])
    np.testing.assert_allclose(second["experiment"], U[100:])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"Ts": cell(0.5, 1.0)}, r"sampling times \[0.5, 1.0\]", id="rates"),
        pytest.param({"InputData": cell(U[:, None])}, "one array for each of the 2", id="number"),
        pytest.param(
            {"InputData": cell(U[:90, None], U[90:, None])}, "InputData has arrays", id="lengths"
        ),
    ],
)
def test_experiments_that_do_not_fit_are_refused(tmp_path, fields, message):
    path = tmp_path / "run.mat"
    scipy.io.savemat(path, {"z": EXPERIMENTS | {"Ts": 0.5} | fields})
    with pytest.raises(ValueError, match=message):
        load(path)


def test_a_stated_sampling_time_must_be_that_of_a_matlab_file(tmp_path):
    scipy.io.savemat(tmp_path / "run.mat", {"u": U, "y": Y, "Ts": 0.5})
    with pytest.raises(ValueError, match=r"states the sampling time 0\.5 s, dt is 0\.2 s"):
        load(tmp_path / "run.mat", dt=0.2)


def write_version_73(path):
    """Write a file as MATLAB does: HDF5 behind 512 bytes, dimensions in the other order."""
    with netCDF4.Dataset(path, "w") as file:
        run = file.createGroup("run")
        for name, owner, values in (("u", file, U), ("y", run, Y), ("Ts", file, [0.5])):
            dimensions = (f"one_{name}", f"n_{name}")
            owner.createDimension(dimensions[0], 1)
            owner.createDimension(dimensions[1], len(values))
            variable = owner.createVariable(name, "f8", dimensions, zlib=True)
            variable[:] = np.atleast_2d(values)
            variable.MATLAB_class = "double"
    content = path.read_bytes()
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    path.write_bytes(head.ljust(512, b"\0") + content)


def test_matlab_files_of_version_73_are_read(tmp_path):
    write_version_73(tmp_path / "run.mat")
    assert_read(load(tmp_path / "run.mat"), 0.5)


def write_cells_of_version_73(path, cells, *, dt=0.5):
    """Write a struct z with cells as MATLAB does: references to transposed arrays and texts."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        elements = file.create_group("#refs#")
        z = file.create_group("z")
        z.attrs["MATLAB_class"] = np.bytes_("struct")
        z["Ts"] = np.array([[dt]])
        z["Ts"].attrs["MATLAB_class"] = np.bytes_("double")
        for name, values in cells.items():
            references = []
            for i, value in enumerate(values):
                if value is None:  # claims 80 GB, of which nothing is stored
                    element = elements.create_dataset("claim", (10**10, 1), "f8", chunks=(1000, 1))
                    references.append([element.ref])
                    continue
                is_text = isinstance(value, str)
                codes = np.array([[ord(character)] for character in value]) if is_text else None
                stored = codes.astype(np.uint16) if is_text else np.asarray(value).T
                element = elements.create_dataset(f"{name}{i}", data=stored)
                element.attrs["MATLAB_class"] = np.bytes_("char" if is_text else "double")
                references.append([element.ref])
            z.create_dataset(name, data=np.array(references, dtype=h5py.ref_dtype))
            z[name].attrs["MATLAB_class"] = np.bytes_("cell")
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    content = path.read_bytes()
    path.write_bytes(head.ljust(512, b"\0") + content[512:])


CELLS_OF_EXPERIMENTS = {
    "InputData": [U[:100, None], U[100:, None]],
    "OutputData": [Y[:100, None], Y[100:, None]],
    "InputName": ["flow"],
    "OutputName": ["level"],
    "OutputUnit": ["m"],
    "ExperimentName": ["cold", "warm"],
}


def test_experiments_of_version_73_are_records(tmp_path):
    write_cells_of_version_73(tmp_path / "run.mat", CELLS_OF_EXPERIMENTS)
    loaded = load(tmp_path / "run.mat", inputs=["flow"], outputs=["level"])
    first, second = loaded.estimation
    np.testing.assert_allclose(first["flow"], U[:100])
    np.testing.assert_allclose(second["level"], Y[100:])
    names = [record.attrs["name"] for record in (first, second)]
    assert names == ["run.mat, experiment cold", "run.mat, experiment warm"]
    assert loaded.sampling_time == 0.5
    assert loaded.units == {"level": "m"}


def test_cells_that_cannot_be_read_are_named(tmp_path, monkeypatch):
    write_cells_of_version_73(tmp_path / "run.mat", CELLS_OF_EXPERIMENTS)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with (
        pytest.warns(UserWarning, match=r"cells of run\.mat needs the package h5py"),
        pytest.raises(ValueError, match="no arrays of numbers"),
    ):
        load(tmp_path / "run.mat", inputs=["flow"], outputs=["level"])


def test_cells_that_claim_too_much_are_refused(tmp_path):
    claiming = {**CELLS_OF_EXPERIMENTS, "InputData": [None]}
    write_cells_of_version_73(tmp_path / "run.mat", claiming)
    with pytest.raises(ValueError, match="its cells claim more than"):
        load(tmp_path / "run.mat", inputs=["flow"], outputs=["level"])


def test_identify_reads_matlab_files(tmp_path):
    scipy.io.savemat(tmp_path / "run.mat", {"u": U, "y": Y, "Ts": 0.5})
    narx = Narx({"y": 1}, {"u": 1})
    with pytest.warns(UserWarning, match=r"the file states the sampling time 0\.5 s"):
        found = identify(tmp_path / "run.mat", narx, budget=5, training=FIXED, identified=1)
    assert_read(found.recordings, 0.5)


def element(kind, content):
    """Return an element of version 5 with its tag."""
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(name, shape, kind=6, *data):
    """Return a matrix of version 5 of this class."""
    parts = [
        element(6, struct.pack("<II", kind, 0)),
        element(5, struct.pack(f"<{len(shape)}i", *shape)),
        element(1, name.encode()),
        *data,
    ]
    return element(14, b"".join(parts))


def compressed(content):
    """Return an element whose content is compressed."""
    packed = zlib.compress(content, 9)
    return struct.pack("<II", 15, len(packed)) + packed


HEAD = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
NESTED = matrix("", (1, 1), 1)
for _ in range(50):
    NESTED = matrix("", (1, 1), 1, NESTED)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"u,y\n1,2\n", "expected a MATLAB file", id="text"),
        pytest.param(HEAD, "no arrays of numbers", id="empty"),
        pytest.param(HEAD + struct.pack("<II", 14, 2**31), "longer than the file", id="length"),
        pytest.param(HEAD + matrix("a", (10**5, 10**5), 1), "claims the shape", id="cells"),
        pytest.param(HEAD + matrix("a", (2**30, 1), 6), "claims the shape", id="numbers"),
        pytest.param(
            HEAD + matrix("a", (1, 1), 6, struct.pack("<II", 9, 2**30)),
            "longer than the one around it",
            id="length inside",
        ),
        pytest.param(HEAD + matrix("a", (1, 1), 1, NESTED), "nested more than", id="nesting"),
        pytest.param(
            HEAD + compressed(element(14, bytes(30_000_000))), "bytes unpacked", id="archive"
        ),
        pytest.param(
            HEAD + matrix("z", (1, 1), 17), r"objects such as iddata are not read", id="object"
        ),
        pytest.param(
            b"MATLAB 7.3 MAT-file".ljust(512) + bytes(2000), "as version 7.3", id="no HDF5"
        ),
    ],
)
def test_bad_matlab_files_are_refused(tmp_path, monkeypatch, content, message):
    monkeypatch.setenv("SYSID_MOST_BYTES", "20e6")
    path = tmp_path / "bad.mat"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        load(path)
    assert "bad.mat" in str(error.value)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_damaged_matlab_file_is_refused_or_read(tmp_path, is_compressed):
    """Each byte in turn is changed, or the file ends there: there is no other error."""
    whole = io.BytesIO()
    variables = {"u": U[:4], "y": Y[:4], "s": {"a": "text", "b": U[:2]}, "Ts": 0.5}
    scipy.io.savemat(whole, variables, do_compression=is_compressed)
    content = whole.getvalue()
    rng = np.random.default_rng(0)
    path = tmp_path / "run.mat"
    n_refused = 0
    for position in range(124, len(content), 5):
        changed = bytearray(content[: position if position % 2 else None])
        changed[min(position, len(changed) - 1)] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            load(path, dt=0.5)
        except (ValueError, DataError):
            n_refused += 1
    assert n_refused > 20


FRAME = pd.DataFrame({"time": 0.5 * np.arange(N), "u [V]": U, "y": Y})
STAMPS = FRAME.assign(time=pd.date_range("2024-05-01", periods=N, freq="500ms"))
CLOCK = FRAME.assign(time=[(pd.Timestamp(0) + pd.Timedelta(t, "s")).time() for t in FRAME.time])
UNITS = pd.concat([pd.DataFrame([["s", "V", "m"]], columns=FRAME.columns), FRAME])


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(FRAME, id="numbers"),
        pytest.param(STAMPS, id="stamps"),
        pytest.param(CLOCK, id="times of day"),
        pytest.param(UNITS, id="row of units"),
    ],
)
def test_workbooks_are_read(tmp_path, frame):
    pytest.importorskip("openpyxl")
    frame.to_excel(tmp_path / "run.xlsx", index=False)
    loaded = load(tmp_path / "run.xlsx")
    assert_read(loaded, 0.5)
    assert loaded.units["u"] == "V"


def test_the_first_of_several_sheets_is_read_and_named(tmp_path):
    pytest.importorskip("openpyxl")
    with pd.ExcelWriter(tmp_path / "run.xlsx") as book:
        FRAME.to_excel(book, sheet_name="run 1", index=False)
        (2 * FRAME).to_excel(book, sheet_name="run 2", index=False)
    loaded = load(tmp_path / "run.xlsx")
    assert_read(loaded, 0.5)
    assert "its first sheet is read, 'run 1' of ['run 1', 'run 2']" in loaded.notes[0]


def test_a_cell_of_a_workbook_is_named_by_its_row(tmp_path):
    pytest.importorskip("openpyxl")
    broken = FRAME.astype(object)
    broken.loc[10, "y"] = "broken"
    broken.to_excel(tmp_path / "run.xlsx", index=False)
    with pytest.raises(ValueError, match=r"run\.xlsx, row 12, column 'y': it holds 'broken'"):
        load(tmp_path / "run.xlsx")


def make_workbook(path, **parts):
    """Write an archive of these parts beside those of a workbook."""
    FRAME.to_excel(path, index=False)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        pytest.param({"big": bytes(60_000_000)}, "claims .* bytes unpacked", id="archive"),
        pytest.param({"x.xml": b'<!DOCTYPE a [<!ENTITY b "c">]><a/>'}, "defines texts", id="DTD"),
    ],
)
def test_workbooks_that_could_grow_are_refused(tmp_path, monkeypatch, parts, message):
    pytest.importorskip("openpyxl")
    monkeypatch.setenv("SYSID_MOST_BYTES", "20e6")
    make_workbook(tmp_path / "run.xlsx", **parts)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "run.xlsx")


@pytest.mark.parametrize("name", ["run.xlsx", "run.parquet"])
def test_a_file_of_another_format_is_refused(tmp_path, name):
    pytest.importorskip("openpyxl" if name == "run.xlsx" else "pyarrow")
    (tmp_path / name).write_bytes(b"u,y\n1,2\n")
    with pytest.raises(ValueError, match=f"{name}: damaged or no"):
        load(tmp_path / name)


@pytest.mark.parametrize("name", ["run.xlsx", "run.parquet", "run.mat"])
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(DataError, match=name):
        load(tmp_path / name)


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(FRAME, id="numbers"),
        pytest.param(STAMPS, id="stamps"),
        pytest.param(STAMPS.set_index("time"), id="index"),
    ],
)
def test_parquet_files_are_read(tmp_path, frame):
    pytest.importorskip("pyarrow")
    frame.to_parquet(tmp_path / "run.parquet")
    assert_read(load(tmp_path / "run.parquet"), 0.5)


def test_a_parquet_file_that_claims_too_much_is_refused(tmp_path):
    pytest.importorskip("pyarrow")
    constant = pd.DataFrame({"u": np.zeros(3_000_000), "y": np.zeros(3_000_000)})
    constant.to_parquet(tmp_path / "run.parquet")
    with pytest.raises(ValueError, match="more than is allowed"):
        load(tmp_path / "run.parquet", dt=1.0)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    (tmp_path / "run.parquet").write_bytes(b"PAR1")
    with pytest.raises(
        DataError, match=r'needs the package pyarrow.*pip install -e "\.\[tables\]"'
    ):
        load(tmp_path / "run.parquet")
