"""Files: contents that are read back, refusals, and the effects of failures and of damage."""

import errno
import json
import os
import re
import shutil
import signal
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


def make_dataset(n_samples=2000):
    """Return a data set with one variable of every kind that a file can hold."""
    rng = np.random.default_rng(0)
    flags = {
        "flag_values": np.array([0, 1, 2], dtype=np.int8),
        "flag_meanings": "kept inserted replaced",
    }
    return xr.Dataset(
        {
            "regressor": (
                ("sample", "feature"),
                rng.normal(size=(n_samples, 3)),
                {"units": "K", "long_name": "lagged"},
            ),
            "count": ("sample", np.arange(n_samples) - 5),
            "accepted": ("sample", rng.random(n_samples) > 0.5),
            "action": ("sample", rng.integers(0, 3, n_samples).astype(np.int8), flags),
            "gaps": ("sample", np.where(np.arange(n_samples) % 3, np.nan, -0.0)),
            "single": ("sample", rng.normal(size=n_samples).astype(np.float32)),
            "small": ("feature", [1.0, np.inf, -np.inf]),
            "noise_variance": ((), 3.5),
            "name": ((), "square exponential"),
            "empty": ("none", np.zeros(0)),
        },
        coords={
            "feature": ["y[k-1]", "y[k-2]", "Außentemperatur[k]"],
            "time": ("sample", 0.1 * np.arange(n_samples), {"units": "s", "long_name": "time"}),
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


def make_groups():
    """Return data sets of different lengths under nested names out of alphabetical order."""
    return {
        "validation": make_dataset(7),
        "test/record_1": make_dataset(21).assign_attrs(number=1),
        "test/record_0": make_dataset(20).assign_attrs(number=0),
        "about/units": make_dataset(2000),
    }


def assert_same_dataset(dataset, expected):
    """Assert that data sets are equal bit for bit but for attributes that the store added."""
    dataset = dataset.copy()
    dataset.attrs = {name: dataset.attrs[name] for name in expected.attrs}
    xr.testing.assert_identical(dataset, expected)
    for name, variable in expected.variables.items():
        assert dataset[name].dtype == variable.dtype, name
        assert dataset[name].values.tobytes() == variable.values.tobytes(), name
    assert not dataset.encoding


def list_files(folder):
    """Return the sorted names of everything in a folder."""
    return sorted(path.name for path in Path(folder).iterdir())


@pytest.fixture
def path(tmp_path):
    """Path of a file that a test writes."""
    return tmp_path / "run.nc"


@pytest.fixture
def previous(path):
    """Bytes of a file that already lies at the path and must stay as it is."""
    write(make_dataset(5), path, kind="result")
    return path.read_bytes()


# --- written and read back ------------------------------------------------------------------------


def test_every_type_is_read_back(path):
    original = make_dataset()
    written_path = write(original, path, kind="result", attributes={"note": "mine"})
    loaded = read(path, kind="result")
    assert written_path == path
    assert_same_dataset(loaded, original)
    assert loaded.action.attrs["flag_values"].dtype == np.int8


def test_writing_does_not_change_the_data_set(path):
    original = make_dataset()
    original["count"].encoding["zlib"] = True
    before = original.copy(deep=True)
    write(original, path, kind="result")
    xr.testing.assert_identical(original, before)
    assert original["count"].encoding == {"zlib": True}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_file_that_was_read_is_closed(path):
    write(make_dataset(), path, kind="result")
    read(path, kind="result")
    open_files = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    assert str(path) not in open_files


def test_a_written_file_is_alone_in_its_folder_with_the_usual_permissions(path):
    write(make_dataset(), path, kind="result")
    assert list_files(path.parent) == ["run.nc"]
    ordinary_file = path.with_name("ordinary")
    ordinary_file.write_bytes(b"")
    assert path.stat().st_mode == ordinary_file.stat().st_mode


LONG_CONFIGURATION = "seed: 3\nsystem:\n  mass: 2.0  # kg ü\n" * 4000
COMMIT = "0" * 40


def write_trajectory(path, monkeypatch):
    """Write a trajectory with a long attribute, as code of a known commit does."""
    monkeypatch.setattr(store, "source_commit", lambda: COMMIT)
    attributes = {"configuration": LONG_CONFIGURATION, "seed": 4, "source": "test rig"}
    write(make_dataset(5), path, kind="trajectory", attributes=attributes)


def test_the_file_states_its_origin(path, monkeypatch):
    write_trajectory(path, monkeypatch)
    attributes = read(path, kind="trajectory").attrs
    expected = {
        "schema": "trajectory",
        "schema_version": store.SCHEMA_VERSION,
        "title": store.SCHEMA_TITLES["trajectory"],
        "Conventions": "CF-1.11",
        "source": "test rig",
        "configuration": LONG_CONFIGURATION,
        "source_commit": COMMIT,
    }
    assert expected.items() <= attributes.items()
    iso_time = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00"
    assert re.fullmatch(iso_time, attributes["creation_time"])
    versions = json.loads(attributes["package_versions"])
    packages = {"python", "sysid", "numpy", "scipy", "xarray", "netCDF4", "numba"}
    assert set(versions) == packages
    assert versions["numpy"] == np.__version__


def test_a_data_set_that_is_written_again_states_its_new_origin(path, monkeypatch):
    write_trajectory(path, monkeypatch)
    trajectory = read(path, kind="trajectory")
    monkeypatch.setattr(store, "source_commit", lambda: None)
    write(trajectory, path, kind="result")
    attributes = read(path, kind="result").attrs
    assert attributes["title"] == store.SCHEMA_TITLES["result"]
    assert "source_commit" not in attributes


@pytest.mark.parametrize("reproducible", [False, True], ids=["with_time", "reproducible"])
def test_a_file_with_groups_states_its_origin_once(path, monkeypatch, reproducible):
    write_trajectory(path, monkeypatch)
    groups = {"test/record_1": read(path, kind="trajectory")}
    attributes = {"name": "tanks"}
    write_groups(groups, path, kind="truth", attributes=attributes, reproducible=reproducible)
    with netCDF4.Dataset(path) as file:
        has_creation_time = "creation_time" in file.ncattrs()
        assert file.schema == "truth"
        assert file.title == store.SCHEMA_TITLES["truth"]
        assert file.getncattr("name") == "tanks"
        assert has_creation_time is not reproducible
    given = {"source": "test rig", "configuration": LONG_CONFIGURATION, "seed": 4}
    expected = make_dataset(5).assign_attrs(given)
    loaded = read_groups(path, kind="truth")["test/record_1"]
    xr.testing.assert_identical(loaded, expected)


def write_benchmark(groups, path):
    """Write groups without the time of writing, and return the attributes of the file."""
    written_path = write_groups(groups, path, kind="benchmark", reproducible=True)
    assert written_path == path
    return store.header(path)


def test_groups_are_read_back_in_order(path):
    groups = make_groups()
    write_benchmark(groups, path)
    loaded = read_groups(path, kind="benchmark")
    assert list(loaded) == list(groups)
    for name, group in groups.items():
        assert_same_dataset(loaded[name], group)
        assert loaded[name].attrs.keys() == group.attrs.keys()
    assert list_files(path.parent) == ["run.nc"]


def test_groups_that_were_read_have_the_same_digest(path):
    groups = make_groups()
    header = write_benchmark(groups, path)
    loaded = read_groups(path, kind="benchmark")
    for name, group in groups.items():
        digest = store.digest(group, group.attrs)
        assert store.digest(loaded[name], group.attrs) == digest
    assert write_benchmark(loaded, path) == header


def test_other_content_has_another_digest(path):
    header = write_benchmark(make_groups(), path)
    changed = make_groups()
    changed["validation"]["regressor"][0, 0] += 1e-12
    changed_header = write_benchmark(changed, path)
    assert changed_header["content_sha256"] != header["content_sha256"]


def test_a_digest_includes_the_attributes_that_are_named():
    dataset = make_groups()["test/record_0"]
    assert store.digest(dataset, ["number"]) != store.digest(dataset)


@pytest.fixture(scope="module")
def benchmark_path(tmp_path_factory):
    """Path of a file with two groups: variables of every kind, and one large variable."""
    large = xr.Dataset({"large": (("t", "f"), np.zeros((35000, 12)))})
    path = tmp_path_factory.mktemp("benchmark") / "benchmark.nc"
    return write_groups({"here": make_dataset(), "there": large}, path, kind="benchmark")


@pytest.mark.parametrize(
    ("name", "is_compressed"),
    [
        ("regressor", True),
        ("count", True),
        ("accepted", False),
        ("action", False),
        ("gaps", True),
        ("single", True),
        ("small", False),
        ("time", True),
    ],
)
def test_numbers_are_checksummed_and_large_arrays_compressed(benchmark_path, name, is_compressed):
    with netCDF4.Dataset(benchmark_path) as file:
        filters = file["here"][name].filters()
    assert filters["fletcher32"]
    assert filters["zlib"] is is_compressed


def test_large_arrays_are_shuffled_and_split_into_chunks_of_a_mebibyte(benchmark_path):
    """A variable of less than a mebibyte is one chunk."""
    numbers_per_mebibyte = 2**20 // 8
    with netCDF4.Dataset(benchmark_path) as file:
        assert file["here/regressor"].filters()["shuffle"]
        assert file["here/regressor"].chunking() == [2000, 3]
        assert file["there/large"].chunking() == [numbers_per_mebibyte // 12, 12]


@pytest.mark.parametrize(
    "attributes",
    [
        {"units": "days since 2000-01-01"},
        {"units": "seconds"},
        {"scale_factor": 2.0},
        {"missing_value": 1.0},
    ],
    ids=["date", "duration", "scale_factor", "missing_value"],
)
def test_attributes_do_not_change_how_numbers_are_read(path, attributes):
    big_endian = np.arange(3.0).astype(">f8")
    dataset = xr.Dataset({"x": ("t", big_endian, attributes)})
    write(dataset, path, kind="result")
    loaded = read(path, kind="result").x
    assert loaded.values.tolist() == [0.0, 1.0, 2.0]
    assert loaded.attrs == attributes


# --- source commit --------------------------------------------------------------------------------

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
commit_of = store.source_commit.__wrapped__  # the function without its cache
CLEAN_COMMIT = "[0-9a-f]{40}"
MODIFIED_COMMIT = "[0-9a-f]{40}-modified"


def run_git(folder, *arguments):
    """Run git in a folder, with an author who does not sign commits."""
    options = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    command = ["git", "-C", str(folder), *options, *arguments]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A repository of one commit that ignores one file; tests work on copies."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "sysid").mkdir()
    (folder / "file").write_text("one")
    (folder / ".gitignore").write_text("ignored.py\n")
    run_git(folder, "init")
    run_git(folder, "add", "file", ".gitignore")
    run_git(folder, "commit", "-m", "first")
    return folder


@pytest.fixture
def package(repository, tmp_path):
    """Folder of a package in a copy of the repository."""
    shutil.copytree(repository, tmp_path / "copy")
    return tmp_path / "copy" / "sysid"


def test_a_folder_outside_a_checkout_has_no_source_commit(tmp_path):
    assert commit_of(tmp_path) is None


@needs_git
def test_a_checkout_without_a_commit_has_no_source_commit(tmp_path):
    run_git(tmp_path, "init")
    package = tmp_path / "sysid"
    package.mkdir()
    assert commit_of(package) is None


@needs_git
def test_a_checkout_has_a_source_commit(package):
    assert re.fullmatch(CLEAN_COMMIT, commit_of(package))


@needs_git
def test_a_package_that_is_installed_inside_another_project_has_no_source_commit(package):
    installed = package.parent / "lib" / "site-packages" / "sysid"
    installed.mkdir(parents=True)
    assert commit_of(installed) is None


@needs_git
@pytest.mark.parametrize("name", ["results.csv", "mine.py", "sysid/notes.txt", "sysid/ignored.py"])
def test_files_that_are_not_code_leave_the_source_commit_clean(package, name):
    (package.parent / name).write_text("")
    assert re.fullmatch(CLEAN_COMMIT, commit_of(package))


@needs_git
def test_a_new_module_marks_the_source_commit_as_modified(package):
    (package / "new.py").write_text("")
    assert re.fullmatch(MODIFIED_COMMIT, commit_of(package))


@needs_git
def test_a_changed_file_marks_the_source_commit_as_modified(package):
    (package.parent / "file").write_text("two")
    assert re.fullmatch(MODIFIED_COMMIT, commit_of(package))


@needs_git
def test_without_git_there_is_no_source_commit(package, monkeypatch):
    monkeypatch.setenv("PATH", str(package / "nothing"))
    assert commit_of(package) is None


# --- data sets that are refused -------------------------------------------------------------------

each_attribute_that_cannot_be_stored = pytest.mark.parametrize(
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
    ids=repr,
)


@each_attribute_that_cannot_be_stored
def test_attributes_of_a_data_set_that_cannot_be_stored_are_refused(path, value):
    with pytest.raises(TypeError, match=r"'option' of the data set"):
        write(make_dataset(5), path, kind="result", attributes={"option": value})
    assert list_files(path.parent) == []


@each_attribute_that_cannot_be_stored
def test_attributes_of_a_variable_that_cannot_be_stored_are_refused(path, value):
    dataset = make_dataset(5)
    dataset.gaps.attrs["flag"] = value
    with pytest.raises(TypeError, match="'flag' of variable 'gaps'"):
        write(dataset, path, kind="result")
    assert list_files(path.parent) == []


@pytest.mark.parametrize(
    "values",
    [
        np.zeros(2, dtype=complex),
        np.zeros(2, "M8[ns]"),
        np.array([{}, None]),
        np.zeros(2, dtype=np.float16),
    ],
    ids=["complex", "datetime", "object", "float16"],
)
def test_variables_that_cannot_be_stored_are_refused(path, values):
    bad = xr.Dataset({"x": ("t", values)})
    groups = {"good": make_dataset(3), "bad": bad}
    type_name = re.escape(str(values.dtype))
    with pytest.raises(TypeError, match=rf"'x' is {type_name}"):
        write_groups(groups, path, kind="benchmark")
    assert list_files(path.parent) == []


@pytest.mark.parametrize(
    "names",
    [[], [""], ["a//b"], ["/a"], [3], ["test", "test/record"], ["test/record", "test"]],
    ids=["none", "empty", "two_slashes", "slash_first", "number", "nested", "nested_first"],
)
def test_names_of_groups_that_cannot_be_stored_are_refused(path, previous, names):
    groups = dict.fromkeys(names, make_dataset(3))
    message = r"at least one group|name is text|'test' cannot be stored"
    with pytest.raises(ValueError, match=message):
        write_groups(groups, path, kind="benchmark")
    assert path.read_bytes() == previous
    assert list_files(path.parent) == ["run.nc"]


@pytest.mark.parametrize(
    ("dataset", "attributes"),
    [
        pytest.param(xr.Dataset({"a/b": 1.0}), {}, id="variable"),
        pytest.param(xr.Dataset(), {"": 1.0}, id="attribute"),
    ],
)
def test_names_in_a_data_set_that_cannot_be_stored_are_refused(path, previous, dataset, attributes):
    with pytest.raises(ValueError, match="name is text"):
        write(dataset, path, kind="result", attributes=attributes)
    assert path.read_bytes() == previous
    assert list_files(path.parent) == ["run.nc"]


def test_an_unknown_kind_is_refused(path):
    with pytest.raises(ValueError, match=r"kind .*'gp'"):
        write(make_dataset(5), path, kind="gp")
    with pytest.raises(ValueError, match=r"kind .*'gp'"):
        read(path, kind="gp")


def test_an_attribute_of_the_store_cannot_be_given(path):
    with pytest.raises(ValueError, match="schema_version"):
        write(make_dataset(5), path, kind="result", attributes={"schema_version": 3})


# --- writing that fails ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["absent/run.nc", "file/run.nc", "taken", "x" * 250],
    ids=["absent_folder", "file_as_folder", "folder", "long_name"],
)
def test_a_path_that_cannot_be_written_leaves_nothing(tmp_path, name):
    (tmp_path / "taken").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="could not write") as refusal:
        write(make_dataset(5), tmp_path / name, kind="result")
    assert isinstance(refusal.value, OSError)
    assert list_files(tmp_path) == ["file", "taken"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        pytest.param(OSError(errno.ENOSPC, "full"), StoreError, id="disk_full"),
        pytest.param(KeyboardInterrupt(), KeyboardInterrupt, id="interrupt"),
    ],
)
def test_failure_at_any_step_keeps_the_previous_file(
    path, previous, monkeypatch, step, raised, expected
):
    monkeypatch.setattr(os, step, Mock(side_effect=raised))
    with pytest.raises(expected):
        write(make_dataset(), path, kind="result")
    assert path.read_bytes() == previous
    assert list_files(path.parent) == ["run.nc"]


N_BYTES_WRITTEN = 10**7  # in each file

# For each line of its input, forks a process that writes files of one repeated byte to the same
# path, one after the other, and prints its id. So the toolbox is imported once for all of them.
WRITERS_PROGRAM = f"""
import os, sys
from sysid.store import write_bytes
for _ in sys.stdin:
    writer = os.fork()
    if not writer:
        for number in range(10**6):
            write_bytes(bytes([number % 256]) * {N_BYTES_WRITTEN}, sys.argv[1])
    print(writer, flush=True)
    os.waitpid(writer, 0)
"""


def inode_of(path):
    """Return the inode number of the file at a path, or 0 if there is none."""
    return path.stat().st_ino if path.exists() else 0


def kill_a_writer(writers, path, delay):
    """Start a process that writes the file again and again; kill it some time after its first file.

    The delay is in seconds. A writer that has ended by itself raises `ProcessLookupError`.
    """
    before = inode_of(path)
    writers.stdin.write("\n")
    writers.stdin.flush()
    writer = int(writers.stdout.readline())
    while inode_of(path) == before:
        os.kill(writer, 0)
        time.sleep(0.005)
    time.sleep(delay)
    os.kill(writer, signal.SIGKILL)
    assert wait_for_end(writer)


def wait_for_end(process, seconds=60.0):
    """Wait until no process has this id any more; return whether that is so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.001)
    return False


def remove_temporary_files(path):
    """Remove the temporary files beside the file, and return their number."""
    names = [name for name in list_files(path.parent) if name != path.name]
    for name in names:
        assert re.fullmatch(r"\.run\.nc\.\w+\.tmp", name)
        (path.parent / name).unlink()
    return len(names)


@pytest.mark.slow
def test_a_killed_writer_leaves_a_whole_file(path):
    """A writer that is killed within a file leaves the previous one, and a temporary file."""
    n_kills = 22
    random = np.random.default_rng(0)
    n_kills_while_writing = 0
    command = [sys.executable, "-c", WRITERS_PROGRAM, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as writers:
        for _ in range(n_kills):
            kill_a_writer(writers, path, delay=random.uniform(0.0, 0.2))
            content = path.read_bytes()
            first_byte = content[:1]
            assert content == first_byte * N_BYTES_WRITTEN
            n_kills_while_writing += remove_temporary_files(path)
    assert n_kills_while_writing > 3, "too few kills came while the file was written"


@pytest.mark.skipif(os.name != "posix", reason="folders can be opened on POSIX only")
def test_the_folder_is_flushed_after_the_rename(path, monkeypatch):
    flushed = []  # of each call: is it a folder, and does the file have its final name
    flush = os.fsync

    def note_and_flush(handle):
        is_folder = stat.S_ISDIR(os.fstat(handle).st_mode)
        is_renamed = path.exists()
        flushed.append((is_folder, is_renamed))
        flush(handle)

    monkeypatch.setattr(os, "fsync", note_and_flush)
    write(make_dataset(5), path, kind="result")
    file_before_rename = (False, False)
    folder_after_rename = (True, True)
    assert flushed == [file_before_rename, folder_after_rename]


# --- files that are refused -----------------------------------------------------------------------

each_reader = pytest.mark.parametrize("read_file", [read, read_groups])


@each_reader
def test_a_missing_file_is_refused(path, read_file):
    with pytest.raises(StoreError, match=r"no file .*run\.nc|cannot read .*run\.nc"):
        read_file(path, kind="result")


@each_reader
@pytest.mark.parametrize(
    "content",
    [b"", b"no NetCDF" * 99, b"\x89HDF\r\n\x1a\n" + bytes(500), b"CDF\x01\xff"],
    ids=["empty", "text", "cut_hdf5", "cut_netcdf3"],
)
def test_a_file_of_another_format_is_refused(path, read_file, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"no file .*run\.nc|cannot read .*run\.nc"):
        read_file(path, kind="result")


def incompressible_bytes(n_bytes):
    """Return random bytes, which zlib keeps as they are."""
    return np.random.default_rng(0).integers(0, 256, n_bytes).astype(np.uint8)


def flip_a_bit_of_the_values(content):
    """Return the content with one bit of the stored values flipped."""
    first_values = incompressible_bytes(8).tobytes()
    position = content.find(first_values) + 3
    changed = bytearray(content)
    changed[position] ^= 1
    return changed


@pytest.mark.parametrize("n_bytes", [8, 50_000], ids=["small", "large"])
@pytest.mark.parametrize("has_groups", [False, True], ids=["one_data_set", "groups"])
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(flip_a_bit_of_the_values, id="flipped_bit"),
        pytest.param(lambda content: content[:-1], id="last_byte_cut"),
        pytest.param(lambda content: content[:-100], id="100_bytes_cut"),
        pytest.param(lambda content: content[:-3000], id="3000_bytes_cut"),
    ],
)
def test_a_damaged_file_is_refused(path, n_bytes, has_groups, damage):
    dataset = xr.Dataset({"x": ("t", incompressible_bytes(n_bytes))})
    if has_groups:
        write_groups({"good": make_dataset(5), "bad": dataset}, path, kind="result")
        read_file = read_groups
    else:
        write(dataset, path, kind="result")
        read_file = read
    damaged_content = damage(path.read_bytes())
    path.write_bytes(damaged_content)
    with pytest.raises(StoreError, match="damaged"):
        read_file(path, kind="result")


def test_an_error_of_the_toolbox_is_not_blamed_on_the_file(path, monkeypatch):
    def raise_key_error(*_):
        raise KeyError("a mistake in the toolbox")

    write(make_dataset(5), path, kind="result")
    monkeypatch.setattr(store, "_check_schema", raise_key_error)
    with pytest.raises(KeyError, match="a mistake in the toolbox"):
        read(path, kind="result")


RIGHT_ATTRIBUTES = {"schema": "result", "schema_version": store.SCHEMA_VERSION}


def write_with_xarray(path, attributes):
    """Write a file without the store.

    It has the right attributes, except where `attributes` gives another value, or None for no such
    attribute.
    """
    requested = RIGHT_ATTRIBUTES | attributes
    written = {name: value for name, value in requested.items() if value is not None}
    dataset = xr.Dataset({"x": 1.0}, attrs=written)
    dataset.to_netcdf(path, engine="netcdf4")


def test_a_file_of_another_program_with_the_right_attributes_is_read(path):
    write_with_xarray(path, {})
    assert read(path, kind="result").x == 1.0


NEWER_VERSION = store.SCHEMA_VERSION + 1
OLDER_VERSION = store.SCHEMA_VERSION - 1


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        pytest.param({"schema_version": None}, "another origin", id="no_version"),
        pytest.param({"schema": None}, "another origin", id="no_schema"),
        pytest.param({"schema_version": "two"}, "another origin", id="version_as_text"),
        pytest.param(
            {"schema_version": NEWER_VERSION}, f"schema_version {NEWER_VERSION}, newer", id="newer"
        ),
        pytest.param(
            {"schema_version": OLDER_VERSION}, f"schema_version {OLDER_VERSION}, older", id="older"
        ),
        pytest.param(
            {"schema_version": 0},
            r"schema_version 0, older than this sysid reads \(3\): .*identify or simulate again",
            id="version_zero",
        ),
    ],
)
def test_files_of_another_origin_or_version_are_refused(path, attributes, message):
    write_with_xarray(path, attributes)
    with pytest.raises(StoreError, match=rf"run\.nc.*{message}"):
        read(path, kind="result")


@pytest.mark.parametrize("group_names", ["no list", 3], ids=["text", "number"])
def test_a_file_whose_list_of_groups_is_damaged_is_refused(path, group_names):
    write_with_xarray(path, {"group_names": group_names})
    with pytest.raises(StoreError, match=r"run\.nc.*damaged"):
        read_groups(path, kind="result")


@pytest.mark.parametrize(
    ("read_file", "kind", "message"),
    [
        pytest.param(read, "model", "kind='trajectory'", id="kind"),
        pytest.param(read_groups, "trajectory", r"store\.read$", id="form"),
    ],
)
def test_a_data_set_of_another_kind_or_form_is_refused(path, read_file, kind, message):
    write(make_dataset(5), path, kind="trajectory")
    with pytest.raises(StoreError, match=message):
        read_file(path, kind=kind)


@pytest.mark.parametrize(
    ("read_file", "kind", "message"),
    [
        pytest.param(read, "narx", r"store\.read_groups", id="form"),
        pytest.param(read_groups, "truth", "kind='narx'", id="kind"),
    ],
)
def test_groups_of_another_kind_or_form_are_refused(path, read_file, kind, message):
    write_groups({"test": make_dataset(5)}, path, kind="narx")
    with pytest.raises(StoreError, match=message):
        read_file(path, kind=kind)
