"""Files: what comes back, what is refused, and what a full disk, a kill or damage leaves behind."""

import errno
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path
from unittest.mock import Mock

import netCDF4
import numpy as np
import pytest
import xarray as xr

from sysid import StoreError, store
from sysid.store import read, read_groups, write, write_groups


def example(n=2000):
    """One variable of every kind that a file can hold."""
    rng = np.random.default_rng(0)
    flags = {
        "flag_values": np.array([0, 1, 2], dtype=np.int8),
        "flag_meanings": "kept inserted replaced",
    }
    return xr.Dataset(
        {
            "regressor": (
                ("sample", "feature"),
                rng.normal(size=(n, 3)),
                {"units": "K", "long_name": "lagged"},
            ),
            "count": ("sample", np.arange(n) - 5),
            "accepted": ("sample", rng.random(n) > 0.5),
            "action": ("sample", rng.integers(0, 3, n).astype(np.int8), flags),
            "gaps": ("sample", np.where(np.arange(n) % 3, np.nan, -0.0)),
            "single": ("sample", rng.normal(size=n).astype(np.float32)),
            "small": ("feature", [1.0, np.inf, -np.inf]),
            "noise_variance": ((), 3.5),
            "name": ((), "square exponential"),
            "nobody": ("none", np.zeros(0)),
        },
        coords={
            "feature": ["y[k-1]", "y[k-2]", "Außentemperatur[k]"],
            "time": ("sample", 0.1 * np.arange(n), {"units": "s", "long_name": "time"}),
            "unit": ("feature", ["K", "", "°C"]),
        },
        attrs={
            "seed": 3,
            "wall_time": 0.25,
            "sizes": [1, 2],
            "names": ["a", "b"],
            "nothing": "",
            "big": 2**62,
        },
    )


def groups_example():
    """Data sets of different lengths under names that are not in alphabetical order, and nested
    ones.
    """
    records = {f"test/record_{i}": example(20 + i).assign_attrs(number=i) for i in (1, 0)}
    return {"validation": example(7), **records, "about/units": example(2000)}


def assert_same(found, expected):
    """Bit for bit, with only those attributes that the author gave."""
    found = found.copy()
    found.attrs = {name: found.attrs[name] for name in expected.attrs}
    xr.testing.assert_identical(found, expected)
    for name, variable in expected.variables.items():
        assert found[name].dtype == variable.dtype, name
        assert found[name].values.tobytes() == variable.values.tobytes(), name
    assert not found.encoding


def files(folder):
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.nc"


@pytest.fixture
def previous(path):
    """A file that already has the final name; the bytes it must keep."""
    write(example(5), path, kind="result")
    return path.read_bytes()


# --- what comes back ------------------------------------------------------------------------------


def test_every_type_comes_back_and_the_data_set_is_not_changed(path):
    original = example()
    original["count"].encoding["zlib"] = True
    before = original.copy(deep=True)
    assert write(original, path, kind="result", attributes={"note": "mine"}) == path
    xr.testing.assert_identical(original, before)
    assert original["count"].encoding == {"zlib": True}
    back = read(path, kind="result")
    assert_same(back, original)
    assert back.action.attrs["flag_values"].dtype == np.int8
    if sys.platform == "linux":
        assert not [
            fd for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd) == str(path)
        ]  # it is closed
    assert files(path.parent) == ["run.nc"]
    path.with_name("plain").write_bytes(b"")
    assert path.stat().st_mode == path.with_name("plain").stat().st_mode


@pytest.mark.parametrize("reproducible", [False, True])
def test_the_file_says_where_it_comes_from_and_describes_itself_when_written_again(
    path, monkeypatch, reproducible
):
    text = "seed: 3\nsystem:\n  mass: 2.0  # kg ü\n" * 4000
    monkeypatch.setattr(store, "source_commit", lambda: "0" * 40)
    write(
        example(5),
        path,
        kind="trajectory",
        attributes={"configuration": text, "seed": 4, "source": "test rig"},
    )
    old = read(path, kind="trajectory")
    expected = {
        "schema": "trajectory",
        "schema_version": store.SCHEMA_VERSION,
        "title": store.SCHEMA_TITLES["trajectory"],
    }
    expected |= {
        "Conventions": "CF-1.11",
        "source": "test rig",
        "configuration": text,
        "source_commit": "0" * 40,
    }
    assert expected.items() <= old.attrs.items()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", old.attrs["creation_time"])
    versions = json.loads(old.attrs["package_versions"])
    assert set(versions) == {
        "python",
        "sysid",
        "numpy",
        "scipy",
        "xarray",
        "netCDF4",
        "numba",
    }
    assert versions["numpy"] == np.__version__
    monkeypatch.setattr(store, "source_commit", lambda: None)
    write(old, path, kind="result")
    new = read(path, kind="result")
    assert new.attrs["title"] == store.SCHEMA_TITLES["result"]
    assert "source_commit" not in new.attrs
    write_groups(
        {"test/record_1": old},
        path,
        kind="truth",
        attributes={"name": "tanks"},
        reproducible=reproducible,
    )
    with netCDF4.Dataset(path) as file:
        assert (file.schema, file.title, file.getncattr("name")) == (
            "truth",
            store.SCHEMA_TITLES["truth"],
            "tanks",
        )
        assert ("creation_time" in file.ncattrs()) is not reproducible
    given = example(5).assign_attrs(source="test rig", configuration=text, seed=4)
    xr.testing.assert_identical(read_groups(path, kind="truth")["test/record_1"], given)


def test_groups_come_back_in_order_and_other_content_has_another_digest(path):
    def write_example(groups):
        assert write_groups(groups, path, kind="benchmark", reproducible=True) == path
        return store.header(path)

    original = groups_example()
    changed = groups_example()
    changed["validation"]["regressor"][0, 0] += 1e-12
    first = write_example(original)
    back = read_groups(path, kind="benchmark")
    assert list(back) == list(original)
    for name, group in original.items():
        assert_same(back[name], group)
        assert back[name].attrs.keys() == group.attrs.keys()
        assert store.digest(back[name], group.attrs) == store.digest(group, group.attrs)
    assert write_example(back) == first
    assert write_example(changed)["content_sha256"] != first["content_sha256"]
    assert store.digest(back["test/record_0"], ["number"]) != store.digest(back["test/record_0"])
    assert files(path.parent) == ["run.nc"]


def test_numbers_are_checksummed_and_large_arrays_compressed_in_chunks_of_a_mebibyte(
    path,
):
    large = xr.Dataset({"large": (("t", "f"), np.zeros((35000, 12)))})
    write_groups({"here": example(), "there": large}, path, kind="benchmark")
    with netCDF4.Dataset(path) as file:
        for name in (
            "regressor",
            "count",
            "accepted",
            "action",
            "gaps",
            "single",
            "small",
            "time",
        ):
            assert file["here"][name].filters()["fletcher32"], name
            assert file["here"][name].filters()["zlib"] is (
                name not in ("small", "accepted", "action")
            ), name
        assert file["here/regressor"].filters()["shuffle"]
        assert file["here/regressor"].chunking() == [2000, 3]
        assert file["there/large"].chunking() == [2**17 // 12, 12]


@pytest.mark.parametrize(
    "attributes",
    [
        {"units": "days since 2000-01-01"},
        {"units": "seconds"},
        {"scale_factor": 2.0},
        {"missing_value": 1.0},
    ],
)
def test_attributes_do_not_change_how_numbers_are_read(path, attributes):
    write(
        xr.Dataset({"x": ("t", np.arange(3.0).astype(">f8"), attributes)}),
        path,
        kind="result",
    )
    back = read(path, kind="result").x
    assert back.values.tolist() == [0.0, 1.0, 2.0]
    assert back.attrs == attributes


# --- source commit --------------------------------------------------------------------------------


def git(folder, *arguments):
    identity = (
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "commit.gpgsign=false",
    )
    subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        check=True,
        capture_output=True,
    )


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_source_commit_is_that_of_the_packages_own_checkout(tmp_path, monkeypatch):
    commit = store.source_commit.__wrapped__
    package = tmp_path / "sysid"
    nested = tmp_path / "lib" / "site-packages" / "sysid"
    for folder in (package, nested):
        folder.mkdir(parents=True)
    assert commit(package) is None  # no checkout
    git(tmp_path, "init")
    assert commit(package) is None  # no commit
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    assert re.fullmatch("[0-9a-f]{40}", commit(package))
    assert commit(nested) is None  # installed inside another project
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    for name in ("results.csv", "mine.py", "sysid/notes.txt", "sysid/ignored.py"):
        (tmp_path / name).write_text("")
    assert re.fullmatch("[0-9a-f]{40}", commit(package))
    (package / "new.py").write_text("")
    assert re.fullmatch("[0-9a-f]{40}-modified", commit(package))  # by what git does not know
    (package / "new.py").unlink()
    (tmp_path / "file").write_text("two")
    assert re.fullmatch("[0-9a-f]{40}-modified", commit(package))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert commit(package) is None  # no git


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        True,
        np.True_,
        None,
        {"a": 1},
        [],
        ["one"],
        [1, "a"],
        [[1, 2], [3, 4]],
        [True, False],
        2**70,
        1j,
        b"x",
    ],
)
def test_attributes_that_would_not_come_back_are_refused(path, value):
    with pytest.raises(TypeError, match=r"'option' of the data set"):
        write(example(5), path, kind="result", attributes={"option": value})
    labelled = example(5)
    labelled.gaps.attrs["flag"] = value
    with pytest.raises(TypeError, match="'flag' of variable 'gaps'"):
        write(labelled, path, kind="result")
    assert files(path.parent) == []


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(2, dtype=complex),
        np.zeros(2, "M8[ns]"),
        np.array([{}, None]),
        np.zeros(2, dtype=np.float16),
    ],
)
def test_variables_that_would_not_come_back_are_refused(path, values):
    bad = xr.Dataset({"x": ("t", values)})
    with pytest.raises(TypeError, match=rf"'x' is {re.escape(str(values.dtype))}"):
        write_groups({"good": example(3), "bad": bad}, path, kind="benchmark")
    assert files(path.parent) == []


@pytest.mark.parametrize(
    "names",
    [[], [""], ["a//b"], ["/a"], [3], ["test", "test/record"], ["test/record", "test"]],
)
def test_names_and_groups_that_cannot_be_stored_are_refused(path, previous, names):
    with pytest.raises(
        ValueError, match=r"at least one group|name is text|'test' cannot be stored"
    ):
        write_groups(dict.fromkeys(names, example(3)), path, kind="benchmark")
    for dataset, attributes in (
        (xr.Dataset({"a/b": 1.0}), {}),
        (xr.Dataset(), {"": 1.0}),
    ):
        with pytest.raises(ValueError, match="name is text"):
            write(dataset, path, kind="result", attributes=attributes)
    assert path.read_bytes() == previous
    assert files(path.parent) == ["run.nc"]


def test_unknown_kind_and_taken_attributes_are_refused(path):
    for call in (
        lambda: write(example(5), path, kind="gp"),
        lambda: read(path, kind="gp"),
    ):
        with pytest.raises(ValueError, match=r"kind .*'gp'"):
            call()
    with pytest.raises(ValueError, match="schema_version"):
        write(example(5), path, kind="result", attributes={"schema_version": 3})


# --- writing that fails ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["absent/run.nc", "file/run.nc", "taken", "x" * 250])
def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path, name):
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not write") as caught:
        write(example(5), tmp_path / name, kind="result")
    assert isinstance(caught.value, OSError)
    assert files(tmp_path) == ["file", "taken"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize("raised", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_failure_at_any_step_keeps_the_previous_file(path, previous, monkeypatch, step, raised):
    monkeypatch.setattr(os, step, Mock(side_effect=raised))
    with pytest.raises(StoreError if isinstance(raised, OSError) else KeyboardInterrupt):
        write(example(), path, kind="result")
    assert path.read_bytes() == previous
    assert files(path.parent) == ["run.nc"]


WRITER = """
import sys
from sysid.store import write_bytes
for number in range(10**6):
    write_bytes(bytes([number % 256]) * 10**7, sys.argv[1])
"""


@pytest.mark.slow
def test_kills_of_a_writer_leave_whole_files_only(path):
    """22 SIGKILLs while files of the same name are written one after the other."""
    random = np.random.default_rng(0)
    n_cut = 0
    for _ in range(22):
        before = path.stat().st_ino if path.exists() else 0
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)]) as process:
            deadline = time.monotonic() + 60
            while (
                path.stat().st_ino if path.exists() else 0
            ) == before and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(random.uniform(0.0, 0.2))
            process.kill()
        content = path.read_bytes()
        assert content == content[:1] * 10**7
        left = [name for name in files(path.parent) if name != path.name]
        n_cut += len(left)
        for name in left:
            assert re.fullmatch(r"\.run\.nc\.\w+\.tmp", name)
            (path.parent / name).unlink()
    assert n_cut > 3, "too few kills came while the file was written: the test did too little"


@pytest.mark.skipif(os.name != "posix", reason="folders can be opened on POSIX only")
def test_the_folder_is_flushed_after_the_rename(path, monkeypatch):
    flushed = []
    flush = os.fsync

    def note(handle):
        flushed.append((stat.S_ISDIR(os.fstat(handle).st_mode), path.exists()))
        flush(handle)

    monkeypatch.setattr(os, "fsync", note)
    write(example(5), path, kind="result")
    assert flushed == [(False, False), (True, True)]


# --- reading that is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [None, b"", b"no NetCDF" * 99, b"\x89HDF\r\n\x1a\n" + bytes(500), b"CDF\x01\xff"],
)
def test_missing_files_and_other_formats_are_refused(path, content):
    if content is not None:
        path.write_bytes(content)
    for call in (read, read_groups):
        with pytest.raises(StoreError, match=r"no file .*run\.nc|cannot read .*run\.nc"):
            call(path, kind="result")


@pytest.mark.parametrize("n", [8, 50_000])
@pytest.mark.parametrize("has_groups", [False, True])
def test_a_cut_file_and_a_flipped_bit_are_noticed(path, n, has_groups):
    values = (
        np.random.default_rng(0).integers(0, 256, n).astype(np.uint8)
    )  # zlib keeps such bytes as they are
    data = xr.Dataset({"x": ("t", values)})
    if has_groups:
        write_groups({"good": example(5), "bad": data}, path, kind="result")
    else:
        write(data, path, kind="result")
    content = path.read_bytes()
    flipped = bytearray(content)
    flipped[content.find(values[:8].tobytes()) + 3] ^= 1
    for damaged in (flipped, content[:-1], content[:-100], content[:-3000]):
        path.write_bytes(damaged)
        with pytest.raises(StoreError, match="damaged"):
            (read_groups if has_groups else read)(path, kind="result")


def test_an_error_of_our_own_is_not_the_files_fault(path, monkeypatch):
    write(example(5), path, kind="result")
    monkeypatch.setattr(store, "_check_schema", lambda *_: {}["a mistake in the toolbox"])
    with pytest.raises(KeyError, match="a mistake in the toolbox"):
        read(path, kind="result")


@pytest.mark.parametrize(
    ("call", "attributes", "message"),
    [
        (read, {"schema_version": None}, "another origin"),
        (read, {"schema": None}, "another origin"),
        (read, {"schema_version": "two"}, "another origin"),
        (
            read,
            {"schema_version": store.SCHEMA_VERSION + 1},
            f"schema_version {store.SCHEMA_VERSION + 1}, newer",
        ),
        (
            read,
            {"schema_version": store.SCHEMA_VERSION - 1},
            f"schema_version {store.SCHEMA_VERSION - 1}, older",
        ),
        (
            read,
            {"schema_version": 0},
            r"schema_version 0, older than this sysid reads \(3\): .*identify or simulate again",
        ),
        (read_groups, {"group_names": "no list"}, "damaged"),
        (read_groups, {"group_names": 3}, "damaged"),
        (read, {}, None),
    ],
)
def test_files_of_another_origin_or_version_are_refused(path, call, attributes, message):
    stated = {"schema": "result", "schema_version": store.SCHEMA_VERSION} | attributes
    data = xr.Dataset(
        {"x": 1.0},
        attrs={name: value for name, value in stated.items() if value is not None},
    )
    data.to_netcdf(path, engine="netcdf4")
    if message is None:
        assert read(path, kind="result").x == 1.0
    else:
        with pytest.raises(StoreError, match=rf"run\.nc.*{message}"):
            call(path, kind="result")


def test_files_of_another_kind_or_form_are_refused(path):
    write(example(5), path, kind="trajectory")
    for call, kind, message in (
        (read, "model", "kind='trajectory'"),
        (read_groups, "trajectory", r"store\.read$"),
    ):
        with pytest.raises(StoreError, match=message):
            call(path, kind=kind)
    write_groups({"test": example(5)}, path, kind="narx")
    for call, kind, message in (
        (read, "narx", r"store\.read_groups"),
        (read_groups, "truth", "kind='narx'"),
    ):
        with pytest.raises(StoreError, match=message):
            call(path, kind=kind)
