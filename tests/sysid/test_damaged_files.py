"""Files of strangers and damaged files: none runs code, takes much memory or ends in a crash."""

import json
import sys

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sysid import (
    AffineMap,
    JointModel,
    Model,
    Narx,
    OnlineGP,
    Recordings,
    SquaredExponential,
    StoredRecordings,
    StoreError,
    ZeroMean,
    make_record,
    store,
)
from sysid.model.model import digest

RNG = np.random.default_rng(0)
OUTPUT = np.cumsum(RNG.normal(size=60))
INPUT = RNG.normal(size=60)


def make_rig_record():
    """Return a record of one input and one output."""
    signals = {"y": OUTPUT, "u": INPUT}
    return make_record(signals, name="rig", sampling_time=1.0, units={"y": "K"})


def make_trajectory():
    """Return the record with the names of its inputs and outputs, as a trajectory states them."""
    return make_rig_record().assign_attrs(inputs='["u"]', outputs='["y"]')


@pytest.fixture(scope="module")
def model():
    """A model that has learned thirty samples, which no test changes."""
    kernel = SquaredExponential(1.0, [1.0] * 3)
    gp = OnlineGP(kernel, noise_variance=0.01, budget=20)
    model = Model(Narx({"y": 1}, {"u": 2}), AffineMap.identity(3), ZeroMean(), gp)
    x = RNG.normal(size=(30, 3))
    model.update_many(x, np.sin(x.sum(axis=1)))
    return model


def forge(model, path, **attributes):
    """Write a model file with other attributes and a right digest, as anybody can write it."""
    dataset = model.to_dataset().assign_attrs(attributes)
    sealed = dataset.assign_attrs(digest=digest(dataset))
    store.write(sealed, path, kind="model")


# --- size that a file claims ----------------------------------------------------------------------


def write_claim_of_40_gigabytes(path, kind, group):
    """Write a file of kilobytes with a variable of 40 GB whose chunks were never written."""
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"schema": kind, "schema_version": np.int64(store.SCHEMA_VERSION)})
        holder = file
        if group is not None:
            file.setncatts({"group_names": json.dumps([group]), "inputs": "[]"})
            holder = file.createGroup(group)
        holder.createDimension("time", 5_000_000_000)
        holder.createVariable("y", "f8", ("time",), zlib=True, chunksizes=(2**17,))
    assert path.stat().st_size < 20_000


def load_recordings(path):
    """Load recordings as `sysid-identify` does."""
    return StoredRecordings(path=str(path)).load()


READERS = {
    "model": JointModel.load,
    "trajectory": load_recordings,
    "benchmark": load_recordings,
    "narx": lambda path: store.read(path, kind="narx"),
    "job": lambda path: store.read_groups(path, kind="job"),
}


@pytest.mark.parametrize(
    ("kind", "group"),
    [
        ("model", None),
        ("trajectory", None),
        ("benchmark", "estimation"),
        ("narx", None),
        ("job", "record"),
    ],
)
def test_a_file_that_claims_more_than_it_can_hold_is_refused_before_it_is_read(
    kind, group, tmp_path
):
    path = tmp_path / "claim.nc"
    write_claim_of_40_gigabytes(path, kind, group)
    with pytest.raises(StoreError, match=r"claims 40000000000 bytes, more than its .* can hold"):
        READERS[kind](path)


def test_one_long_text_does_not_make_all_others_as_long_in_memory(tmp_path):
    """As an array of texts of equal lengths, the variable would have 1 GB."""
    path = tmp_path / "text.nc"
    texts = np.array(["a" * 50_000] + ["b"] * 5_000, dtype=object)
    store.write(xr.Dataset({"name": ("n", texts)}), path, kind="narx")
    with pytest.raises(StoreError, match=r"claims 10.* bytes"):
        store.read(path, kind="narx")


def test_a_budget_that_needs_more_memory_than_allowed_is_refused(tmp_path, model):
    path = tmp_path / "model.nc"
    forge(model, path, budget=9_000)
    with pytest.raises(StoreError, match=r"budget of 9000 points .* SYSID_MOST_BYTES=17\d{9}"):
        Model.load(path)


def test_the_memory_of_one_file_has_a_limit_that_can_be_set(tmp_path, monkeypatch):
    path = tmp_path / "record.nc"
    store.write(make_rig_record(), path, kind="trajectory")
    monkeypatch.setenv("SYSID_MOST_BYTES", "1e3")
    with pytest.raises(StoreError, match=r"at most 1000 are allowed.*SYSID_MOST_BYTES=1"):
        store.read(path, kind="trajectory")


@pytest.mark.parametrize("limit", ["", "much", "0", "nan", "inf", "-8e9"])
def test_a_limit_of_memory_that_is_no_number_is_refused_in_one_sentence(
    limit, tmp_path, monkeypatch
):
    path = tmp_path / "record.nc"
    store.write(make_rig_record(), path, kind="trajectory")
    monkeypatch.setenv("SYSID_MOST_BYTES", limit)
    with pytest.raises(StoreError, match=rf"^environment variable SYSID_MOST_BYTES='{limit}'"):
        store.read(path, kind="trajectory")


# --- forged attributes of a model -----------------------------------------------------------------


def name_of_module_not_imported():
    """Return the name of a module that NumPy or SciPy imports only when it is used."""
    lazy_modules = ("numpy.f2py", "scipy.odr", "scipy.misc", "numpy.testing")
    return next(name for name in lazy_modules if name not in sys.modules)


@pytest.mark.parametrize(
    "get_name",
    [
        pytest.param(lambda: "unittest.__main__.X", id="main_module"),
        pytest.param(lambda: "numpy.f2py.__main__.X", id="main_module_of_a_lazy_package"),
        pytest.param(name_of_module_not_imported, id="lazy_module"),
        pytest.param(lambda: "os.system", id="function"),
        pytest.param(lambda: "sysid.store.write", id="function_of_the_toolbox"),
        pytest.param(lambda: "sysid.Model", id="class_of_another_role"),
    ],
)
def test_no_name_of_a_class_imports_or_runs_anything(get_name, tmp_path, model):
    """Not even a module that its package would load by itself when it is asked for it."""
    path = tmp_path / "model.nc"
    forge(model, path, kernel=json.dumps({"class": get_name()}))
    modules_before = set(sys.modules)
    with pytest.raises(StoreError, match="class"):
        Model.load(path)
    assert set(sys.modules) - modules_before == set()


#: an attribute of HDF5 may have 64 KiB
DEEP_LIST = "[" * 30_000 + "]" * 30_000
WRONG_ATTRIBUTES = {
    "budget": [10**6, -1, "x", [1, 2], 1e300],
    "narx": [
        DEEP_LIST,
        "3",
        '{"outputs": {"y": 1}, "inputs": {"u": 2000000000}}',
        '{"outputs": {"y": 1}, "inputs": {"u": [2000000000]}}',
        '{"outputs": {"y": 1}, "inputs": {"u": "x"}}',
    ],
    "origin": [DEEP_LIST, "[]", '{"units": ["a"]}', '{"units": {"y": [1]}}'],
    "counts": [DEEP_LIST, "3", "9" * 5000],
    "bands": [DEEP_LIST, "3", "[[1]]"],
    "pending": [DEEP_LIST, "3"],
    "kernel": [DEEP_LIST, "NaN", 3, '{"class": 3}'],
    "output_limits": ["x", 3, [1, 2, 3]],
    "noise_variance": ["x", [1, 2], float("nan")],
    "gate_opens_after": ["x", 1e300],
}


def wrong_attributes():
    """Yield a case for every value of an attribute that no model has."""
    for name, values in WRONG_ATTRIBUTES.items():
        for i, value in enumerate(values):
            yield pytest.param(name, value, id=f"{name}-{i}")


@pytest.mark.parametrize(("name", "value"), list(wrong_attributes()))
def test_a_forged_attribute_is_refused_with_a_short_message(name, value, tmp_path, model):
    path = tmp_path / "model.nc"
    forge(model, path, **{name: value})
    with pytest.raises(StoreError) as refusal:
        Model.load(path).update(np.zeros(3), 0.0)
    assert len(str(refusal.value)) < 2000


# --- names and units of signals -------------------------------------------------------------------

each_impossible_name = pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "/tmp/x",
        ".",
        "-v",
        "{a}",
        "x" * 300,
        "v [m/s]",
        "a\nb",
        "$^$",
        " a",
        "a\\b",
    ],
    ids=lambda name: repr(name[:10]),
)


@each_impossible_name
def test_recordings_refuse_a_name_that_no_file_can_have(name):
    data = xr.Dataset(
        {name: ("time", OUTPUT), "u": ("time", INPUT)},
        coords={"time": np.arange(60.0)},
        attrs={"name": "rig", "sampling_time": 1.0, "initialisation_window": 0},
    )
    with pytest.raises(ValueError, match=r"cannot be named .*100 printable characters"):
        Recordings("rig", ("u",), (name,), estimation=(data,))


@each_impossible_name
def test_a_model_refuses_a_name_that_no_file_can_have(name):
    with pytest.raises(ValueError, match="cannot be named"):
        Narx({name: 1})


@pytest.mark.parametrize("name", ["T_Außen (°C)", "flow [l per min]", "y.1", "p-2", "x²"])
def test_names_as_people_write_them_are_allowed(name):
    assert Narx({name: 1}).output_names == (name,)


def test_units_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "record.nc"
    trajectory = make_trajectory()
    trajectory["y"].attrs["units"] = [1, 2]
    store.write(trajectory, path, kind="trajectory")
    with pytest.raises(TypeError, match=r"units and long_name of signal 'y' .* must be text"):
        load_recordings(path)


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def contents(tmp_path_factory, model):
    """Bytes of a whole file of every kind but a job."""
    folder = tmp_path_factory.mktemp("whole")
    record = make_rig_record()
    recordings = Recordings("rig", ("u",), ("y",), estimation=(record,), test=(record,))
    rows = Narx({"y": 2}, {"u": 2}).dataset([record])
    model.save(folder / "model.nc")
    store.write(make_trajectory(), folder / "trajectory.nc", kind="trajectory")
    store.write_groups(recordings.to_groups(), folder / "benchmark.nc", kind="benchmark")
    store.write(rows, folder / "narx.nc", kind="narx")
    return {path.stem: path.read_bytes() for path in folder.iterdir()}


def assert_is_noticed(damaged_content, path):
    """Assert that a damaged file of lagged rows is refused."""
    path.write_bytes(damaged_content)
    with pytest.raises(StoreError, match="damaged"):
        store.read(path, kind="narx")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"u[k-2]", id="feature"),
        pytest.param(b"sampling_time", id="attribute"),
        pytest.param(b"K", id="unit"),
    ],
)
def test_damage_of_a_text_without_a_checksum_of_its_own_is_noticed(text, contents, tmp_path):
    path = tmp_path / "narx.nc"
    whole = contents["narx"]
    assert text in whole
    other_text = text[:-1] + bytes([text[-1] ^ 1])
    damaged = whole.replace(text, other_text)
    assert_is_noticed(damaged, path)
    assert_is_noticed(damaged[:-1], path)


def test_a_file_without_its_last_byte_is_noticed(contents, tmp_path):
    assert_is_noticed(contents["narx"][:-1], tmp_path / "narx.nc")


@pytest.mark.slow
@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(kind=st.sampled_from(sorted(READERS.keys() - {"job"})), data=st.data())
def test_a_file_whose_bytes_were_changed_is_refused(contents, tmp_path, kind, data):
    content = contents[kind]
    begin = data.draw(st.integers(0, len(content) - 1))
    end = min(len(content), begin + data.draw(st.integers(0, 40)))
    changed = content[:begin] + data.draw(st.binary(max_size=40)) + content[end:]
    if changed == content:
        return
    path = tmp_path / "changed.nc"
    path.write_bytes(changed)
    with pytest.raises(StoreError):
        READERS[kind](path)
