"""Files of strangers and damaged ones: nothing of them runs, takes memory that they cannot hold, or
ends in a crash.
"""

import json
import sys

import netCDF4
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sysid
from sysid import JointModel, Model, StoreError, store
from sysid.data.stored import StoredRecordings
from sysid.model.model import digest

RNG = np.random.default_rng(0)
SIGNALS = {"y": np.cumsum(RNG.normal(size=60)), "u": RNG.normal(size=60)}


def record(signals=SIGNALS):
    return sysid.make_record(signals, name="rig", sampling_time=1.0, units={"y": "K"})


@pytest.fixture(scope="module")
def model():
    kernel = sysid.SquaredExponential(1.0, [1.0] * 3)
    gp = sysid.OnlineGP(kernel, noise_variance=0.01, budget=20)
    found = Model(
        sysid.Narx({"y": 1}, {"u": 2}),
        sysid.AffineMap.identity(3),
        sysid.ZeroMean(),
        gp,
    )
    x = RNG.normal(size=(30, 3))
    found.update_many(x, np.sin(x.sum(axis=1)))
    return found


def forge(model, path, **attributes):
    """A model file with other attributes, sealed and with the digest of its content, as anybody can
    write it.
    """
    dataset = model.to_dataset().assign_attrs(attributes)
    store.write(dataset.assign_attrs(digest=digest(dataset)), path, kind="model")
    return path


# --- what a file claims


def claiming(path, kind, group=None):
    """A file of kilobytes whose variable has 40 GB, as its chunks were never written."""
    with netCDF4.Dataset(path, "w") as file:
        file.setncatts({"schema": kind, "schema_version": np.int64(store.SCHEMA_VERSION)})
        if group is not None:
            file.setncatts({"group_names": json.dumps([group]), "inputs": "[]"})
        place = file if group is None else file.createGroup(group)
        place.createDimension("time", 5_000_000_000)
        place.createVariable("y", "f8", ("time",), zlib=True, chunksizes=(2**17,))
    assert path.stat().st_size < 20_000


READERS = {
    "model": JointModel.load,
    "trajectory": lambda path: StoredRecordings(path=str(path)).load(),
    "benchmark": lambda path: StoredRecordings(path=str(path)).load(),
    "narx": lambda path: store.read(path, kind="narx"),
    "job": lambda path: store.read_groups(path, kind="job"),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_file_that_claims_more_than_it_can_hold_is_refused_before_it_is_read(kind, tmp_path):
    claiming(
        tmp_path / "claim.nc",
        kind,
        {"benchmark": "estimation", "job": "record"}.get(kind),
    )
    with pytest.raises(StoreError, match=r"claims 40000000000 bytes, more than its .* can hold"):
        READERS[kind](tmp_path / "claim.nc")


def test_one_long_text_does_not_make_all_others_as_long_in_memory(tmp_path):
    texts = np.array(
        ["a" * 50_000] + ["b"] * 5_000, dtype=object
    )  # 1 GB as an array of equal lengths
    store.write(xr.Dataset({"name": ("n", texts)}), tmp_path / "text.nc", kind="narx")
    with pytest.raises(StoreError, match=r"claims 10.* bytes"):
        store.read(tmp_path / "text.nc", kind="narx")


def test_the_memory_of_one_file_has_a_limit_that_can_be_set(tmp_path, monkeypatch, model):
    store.write(record(), tmp_path / "record.nc", kind="trajectory")
    forge(model, tmp_path / "model.nc", budget=9_000)
    with pytest.raises(StoreError, match=r"budget of 9000 points .* SYSID_MOST_BYTES=17\d{9}"):
        Model.load(tmp_path / "model.nc")
    monkeypatch.setattr(store, "MAX_CONTENT_BYTES", 1000)
    with pytest.raises(StoreError, match=r"at most 1000 are allowed.*SYSID_MOST_BYTES=1"):
        store.read(tmp_path / "record.nc", kind="trajectory")


# --- what a forged model asks for


def test_no_name_of_a_class_imports_or_runs_anything(tmp_path, model):
    """Also not what a module loads by itself when it is asked for a part of it."""
    before = {*sys.modules}
    lazy = next(
        name
        for name in ("numpy.f2py", "scipy.odr", "scipy.misc", "numpy.testing")
        if name not in before
    )
    for name in (
        "unittest.__main__.X",
        "numpy.f2py.__main__.X",
        lazy,
        "os.system",
        "sysid.store.write",
        "sysid.Model",
    ):
        forge(model, tmp_path / "model.nc", kernel=json.dumps({"class": name}))
        with pytest.raises(StoreError, match="class"):
            Model.load(tmp_path / "model.nc")
    assert not {*sys.modules} - before


DEEP = "[" * 30_000 + "]" * 30_000  # an attribute of HDF5 may have 64 KiB
WRONG = {
    "budget": [10**6, -1, "x", [1, 2], 1e300],
    "narx": [
        DEEP,
        "3",
        *(
            json.dumps({"outputs": {"y": 1}, "inputs": {"u": n}})
            for n in (2 * 10**9, [2 * 10**9], "x")
        ),
    ],
    "origin": [DEEP, "[]", '{"units": ["a"]}', '{"units": {"y": [1]}}'],
    "counts": [DEEP, "3", "9" * 5000],
    "bands": [DEEP, "3", "[[1]]"],
    "pending": [DEEP, "3"],
    "kernel": [DEEP, "NaN", 3, '{"class": 3}'],
    "output_limits": ["x", 3, [1, 2, 3]],
    "noise_variance": ["x", [1, 2], float("nan")],
    "gate_opens_after": ["x", 1e300],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_forged_attribute_is_refused_in_one_line(name, tmp_path, model):
    for value in WRONG[name]:
        forge(model, tmp_path / "model.nc", **{name: value})
        with pytest.raises(StoreError) as refused:
            Model.load(tmp_path / "model.nc").update(np.zeros(3), 0.0)
        assert len(str(refused.value)) < 2000


# --- names of signals

NAMES = [
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
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_no_file_can_have_is_refused_before_anything_is_computed(name):
    signals = {name: SIGNALS["y"], "u": SIGNALS["u"]}
    data = xr.Dataset(
        {n: ("time", v) for n, v in signals.items()}, coords={"time": np.arange(60.0)}
    )
    data = data.assign_attrs(name="rig", sampling_time=1.0, initialisation_window=0)
    with pytest.raises(ValueError, match=r"cannot be named .*100 printable characters"):
        sysid.Recordings("rig", ("u",), (name,), estimation=(data,))
    with pytest.raises(ValueError, match="cannot be named"):
        sysid.Narx({name: 1})


def test_names_as_people_write_them_are_allowed():
    names = ("T_Außen (°C)", "flow [l per min]", "y.1", "p-2", "x²")
    assert sysid.Narx(dict.fromkeys(names, 1)).output_names == names


def test_units_that_are_no_text_are_refused(tmp_path):
    data = record().assign_attrs(inputs='["u"]', outputs='["y"]')
    data["y"].attrs["units"] = [1, 2]
    store.write(data, tmp_path / "record.nc", kind="trajectory")
    with pytest.raises(TypeError, match=r"units and long_name of signal 'y' .* must be text"):
        StoredRecordings(path=str(tmp_path / "record.nc")).load()


# --- damage


@pytest.fixture(scope="module")
def files(tmp_path_factory, model):
    """A file of every kind: its content, and a name for what is damaged."""
    folder = tmp_path_factory.mktemp("whole")
    model.save(folder / "model.nc")
    data = record().assign_attrs(inputs='["u"]', outputs='["y"]')
    store.write(data, folder / "trajectory.nc", kind="trajectory")
    recordings = sysid.Recordings("rig", ("u",), ("y",), estimation=(record(),), test=(record(),))
    store.write_groups(recordings.to_groups(), folder / "benchmark.nc", kind="benchmark")
    store.write(
        sysid.Narx({"y": 2}, {"u": 2}).dataset([record()]),
        folder / "narx.nc",
        kind="narx",
    )
    return {path.stem: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("text", [b"u[k-2]", b"sampling_time", b"K"])
def test_damage_of_what_has_no_checksum_of_its_own_is_found(text, files, tmp_path):
    """Names of features, attributes, units."""
    assert text in files["narx"]
    content = files["narx"].replace(text, text[:-1] + bytes([text[-1] ^ 1]))
    for damaged in (content, content[:-1], files["narx"][:-1]):
        (tmp_path / "narx.nc").write_bytes(damaged)
        with pytest.raises(StoreError, match="damaged"):
            store.read(tmp_path / "narx.nc", kind="narx")


@pytest.mark.slow
@settings(
    max_examples=400,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(kind=st.sampled_from(sorted({*READERS} - {"job"})), data=st.data())
def test_a_file_whose_bytes_were_changed_is_refused(files, tmp_path, kind, data):
    content = files[kind]
    begin = data.draw(st.integers(0, len(content) - 1))
    end = min(len(content), begin + data.draw(st.integers(0, 40)))
    changed = content[:begin] + data.draw(st.binary(max_size=40)) + content[end:]
    if changed == content:
        return
    (tmp_path / "changed.nc").write_bytes(changed)
    with pytest.raises(StoreError):
        READERS[kind](tmp_path / "changed.nc")
