"""Files: what comes back, what is refused, and what a full disk, a kill or damage leaves behind."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import netCDF4
import numpy as np
import pytest
import xarray as xr

from sysid import provenance, store
from sysid.lag_window import LagWindow
from sysid.narx import Narx
from sysid.store import StoreError, read, read_groups, write, write_groups


def example(n=2000):
    rng = np.random.default_rng(0)
    flags = {"flag_values": np.array([0, 1, 2], dtype=np.int8), "flag_meanings": "kept inserted replaced"}
    gaps = np.where(np.arange(n) % 3, np.nan, -0.0)
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
            "gaps": ("sample", gaps),
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


def own(dataset, attributes):
    """The data set with only those attributes that its author gave."""
    dataset = dataset.copy()
    dataset.attrs = {name: dataset.attrs[name] for name in attributes}
    return dataset


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


def test_every_type_comes_back_as_it_was(path):
    original = example()
    assert write(original, path, kind="result") == path
    back = read(path, kind="result")
    xr.testing.assert_identical(own(back, original.attrs), original)
    for name, variable in original.variables.items():
        assert back[name].dtype == variable.dtype, name
        assert back[name].values.tobytes() == variable.values.tobytes(), name
    assert back.action.attrs["flag_values"].dtype == np.int8
    assert files(path.parent) == ["run.nc"]


def test_writing_does_not_change_the_data_set(path):
    original = example()
    original["count"].encoding["zlib"] = True
    before = original.copy(deep=True)
    write(original, path, kind="result", attributes={"seed": 9})
    xr.testing.assert_identical(original, before)
    assert original["count"].encoding == {"zlib": True}


def test_a_lag_data_set_can_be_stored(path):
    data = Narx({"y": 2}).dataset(xr.Dataset({"y": ("time", np.arange(9.0) ** 2)}, coords={"time": np.arange(9.0)}))
    write(data, path, kind="narx")
    back = read(path, kind="narx")
    xr.testing.assert_identical(own(back, data.attrs), data)
    assert LagWindow(Narx.from_dict(json.loads(back.attrs["narx"]))).narx == Narx({"y": 2})


def test_the_file_says_where_it_comes_from(path):
    text = "seed: 3\nsystem:\n  mass: 2.0  # kg ü\n" * 4000
    write(
        example(5),
        path,
        kind="trajectory",
        attributes={"configuration": text, "seed": 4, "source": "test rig"},
    )
    attributes = read(path, kind="trajectory").attrs
    assert attributes["schema"] == "trajectory"
    assert attributes["schema_version"] == store.SCHEMA_VERSION
    assert attributes["Conventions"] == "CF-1.11"
    assert attributes["title"] == store.TITLES["trajectory"]
    assert attributes["source"] == "test rig"
    assert attributes["configuration"] == text
    assert attributes["seed"] == 4
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", attributes["creation_time"])
    versions = json.loads(attributes["package_versions"])
    assert set(versions) == {"python", "sysid", "numpy", "scipy", "xarray", "netCDF4", "numba"}
    assert versions["numpy"] == np.__version__


def test_a_file_written_again_describes_itself(path, monkeypatch):
    monkeypatch.setattr(provenance, "source_commit", lambda: "0" * 40)
    write(example(5), path, kind="trajectory")
    old = read(path, kind="trajectory")
    assert old.attrs["source_commit"] == "0" * 40
    monkeypatch.setattr(provenance, "source_commit", lambda: None)
    write(old, path, kind="result")
    new = read(path, kind="result")
    assert new.attrs["title"] == store.TITLES["result"]
    assert "source_commit" not in new.attrs
    assert new.equals(old)


def later(write_once):
    """Bytes of a file written twice, at different seconds of the clock."""
    first = write_once().read_bytes()
    time.sleep(1.1)
    return first, write_once().read_bytes()


def test_same_data_gives_the_same_bytes(path, monkeypatch):
    monkeypatch.setattr(store, "provenance", lambda: {"creation_time": "then"})
    one, two = later(lambda: write(example(), path, kind="model"))
    assert one == two


def test_numbers_are_checksummed_and_large_arrays_compressed_by_zlib(path):
    write(example(), path, kind="result")
    with netCDF4.Dataset(path) as file:
        for name in ("regressor", "count", "accepted", "action", "gaps", "single", "small", "time"):
            assert file[name].filters()["fletcher32"], name
            assert not file[name].filters()["zstd"]
        assert file["regressor"].filters()["zlib"]
        assert file["regressor"].filters()["complevel"] == 1
        assert file["regressor"].filters()["shuffle"]
        assert file["regressor"].chunking() == [2000, 3]
        assert not file["small"].filters()["zlib"]


def test_chunks_of_large_arrays_hold_a_mebibyte(path):
    write(xr.Dataset({"x": (("t", "f"), np.zeros((35000, 12)))}), path, kind="result")
    with netCDF4.Dataset(path) as file:
        assert file["x"].chunking() == [2**17 // 12, 12]


@pytest.mark.parametrize(
    "attributes",
    [{"units": "days since 2000-01-01"}, {"units": "seconds"}, {"scale_factor": 2.0}, {"missing_value": 1.0}],
)
def test_attributes_do_not_change_how_numbers_are_read(path, attributes):
    original = xr.Dataset({"x": ("t", np.arange(3.0), attributes)})
    write(original, path, kind="result")
    back = read(path, kind="result").x
    assert back.values.tolist() == [0.0, 1.0, 2.0]
    assert back.attrs == attributes


def test_the_file_has_the_usual_permissions(path):
    write(example(5), path, kind="result")
    plain = path.with_name("plain")
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode


def test_big_endian_numbers_keep_their_values(path):
    write(xr.Dataset({"x": ("t", np.arange(5.0).astype(">f8"))}), path, kind="result")
    np.testing.assert_array_equal(read(path, kind="result").x.values, np.arange(5.0))


# --- groups ---------------------------------------------------------------------------------------


def groups_example():
    """Data sets of different lengths under names that are not in alphabetical order, and nested ones."""
    records = {f"test/record_{i}": example(20 + i).assign_attrs(number=i) for i in (1, 0)}
    return {"validation": example(7), "estimation": example(2000), **records, "about/units": example(5)}


def test_groups_come_back_as_they_were_and_in_order(path):
    original = groups_example()
    assert write_groups(original, path, kind="benchmark", attributes={"name": "tanks"}) == path
    back = read_groups(path, kind="benchmark")
    assert list(back) == list(original)
    for group, dataset in original.items():
        xr.testing.assert_identical(back[group], dataset)
        for name, variable in dataset.variables.items():
            assert back[group][name].dtype == variable.dtype, name
            assert back[group][name].values.tobytes() == variable.values.tobytes(), name
        assert not back[group].encoding
    assert files(path.parent) == ["run.nc"]


def test_the_file_of_groups_explains_itself(path):
    write_groups(groups_example(), path, kind="truth", attributes={"name": "tanks"})
    with netCDF4.Dataset(path) as file:
        assert file.schema == "truth"
        assert file.schema_version == store.SCHEMA_VERSION
        assert file.title == store.TITLES["truth"]
        assert file.getncattr("name") == "tanks"
        assert {"creation_time", "package_versions"} <= set(file.ncattrs())
        assert not file.variables
        assert file["test"].groups.keys() == {"record_1", "record_0"}
        assert file["estimation/regressor"].filters()["fletcher32"]
        assert file["estimation/regressor"].filters()["zlib"]
        assert file["test/record_1"].number == 1


def test_groups_lose_what_belongs_to_the_file_that_they_were_read_from(path):
    write(example(5), path, kind="trajectory")
    write_groups({"estimation": read(path, kind="trajectory")}, path, kind="benchmark")
    xr.testing.assert_identical(
        read_groups(path, kind="benchmark")["estimation"], example(5).assign_attrs(source="sysid")
    )


def test_reproducible_groups_have_the_same_bytes(path, monkeypatch):
    one, two = later(lambda: write_groups(groups_example(), path, kind="benchmark", reproducible=True))
    assert one == two
    with netCDF4.Dataset(path) as file:
        assert not {"creation_time", "source_commit"} & set(file.ncattrs())
        assert json.loads(file.package_versions)["numpy"] == np.__version__
    one, two = later(lambda: write_groups(groups_example(), path, kind="benchmark"))
    assert one != two


def test_a_file_without_times_is_whole_to_the_hdf5_library(path):
    """The library checks the checksum of every object header that it opens."""
    content = bytearray(write_groups(groups_example(), path, kind="benchmark").read_bytes())
    root = int.from_bytes(content[36:44], "little")
    assert content[root : root + 5] == b"OHDR\x02"
    assert content[root + 6 : root + 22] == bytes(16)
    content[root + 6] = 1  # a time, but no new checksum
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        read_groups(path, kind="benchmark")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "at least one group"),
        ({"": example(3)}, "name is text, not empty"),
        ({"a//b": example(3)}, "name is text, not empty"),
        ({"/a": example(3)}, "name is text, not empty"),
        ({3: example(3)}, "name is text, not empty"),
        ({"test": example(3), "test/record_0": example(3)}, r"'test' cannot be stored.*\['test/record_0'\]"),
        ({"test/record_0": example(3), "test": example(3)}, r"'test' cannot be stored.*\['test/record_0'\]"),
    ],
)
def test_groups_that_cannot_be_stored_are_named(path, previous, groups, message):
    with pytest.raises(ValueError, match=message):
        write_groups(groups, path, kind="benchmark")
    assert path.read_bytes() == previous
    assert files(path.parent) == ["run.nc"]


def test_a_bad_variable_in_a_group_is_named_and_nothing_is_left(path):
    bad = xr.Dataset({"when": ("t", np.array(["2020-01-01"], dtype="datetime64[ns]"))})
    with pytest.raises(TypeError, match="'when'"):
        write_groups({"good": example(3), "bad": bad}, path, kind="benchmark")
    assert files(path.parent) == []


def test_files_with_and_without_groups_are_told_apart(path):
    write(example(5), path, kind="narx")
    with pytest.raises(StoreError, match=r"holds one data set and no groups: read it with sysid\.store\.read$"):
        read_groups(path, kind="narx")
    write_groups({"test": example(5)}, path, kind="narx")
    with pytest.raises(StoreError, match=r"holds the groups \[\"test\"\]: read it with sysid\.store\.read_groups"):
        read(path, kind="narx")
    with pytest.raises(StoreError, match="holds schema 'narx', expected 'truth'"):
        read_groups(path, kind="truth")
    with pytest.raises(ValueError, match=r"attributes .* are set by"):
        write_groups({"test": example(5)}, path, kind="narx", attributes={"group_names": "mine"})


def test_damage_in_a_group_is_noticed(path):
    values = np.random.default_rng(0).integers(0, 256, 50_000).astype(np.uint8)
    groups = {"good": example(5), "bad": xr.Dataset({"x": ("t", values)})}
    content = bytearray(write_groups(groups, path, kind="benchmark").read_bytes())
    content[content.find(values[:8].tobytes()) + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        read_groups(path, kind="benchmark")
    path.write_bytes(content[:-50])
    with pytest.raises(StoreError, match="truncated"):
        read_groups(path, kind="benchmark")
    with pytest.raises(StoreError, match="no file"):
        read_groups(path.with_name("absent.nc"), kind="benchmark")


# --- source commit --------------------------------------------------------------------------------


def git(folder, *arguments):
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_source_commit_is_that_of_the_packages_own_checkout(tmp_path):
    package = tmp_path / "sysid"
    nested = tmp_path / "lib" / "site-packages" / "sysid"
    for folder in (package, nested):
        folder.mkdir(parents=True)
    assert provenance.source_commit.__wrapped__(package) is None  # no checkout
    git(tmp_path, "init")
    assert provenance.source_commit.__wrapped__(package) is None  # no commit
    git(tmp_path, "commit", "--allow-empty", "-m", "first")
    assert re.fullmatch("[0-9a-f]{40}", provenance.source_commit.__wrapped__(package))
    assert provenance.source_commit.__wrapped__(nested) is None  # installed inside another project


def test_source_commit_without_git(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance.source_commit.__wrapped__() is None


def test_unknown_packages_are_said_to_be_not_installed():
    assert provenance._version("no-such-package-of-ours") == "not installed"


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
        [1, None],
    ],
    ids=repr,
)
def test_attributes_that_would_not_come_back_are_refused(path, value):
    expected = r"attribute 'option' of the data set is .*store json.dumps\(value\)"
    with pytest.raises(TypeError, match=expected):
        write(example(5), path, kind="result", attributes={"option": value})
    labelled = example(5)
    labelled.gaps.attrs["flag"] = value
    with pytest.raises(TypeError, match="attribute 'flag' of variable 'gaps'"):
        write(labelled, path, kind="result")
    assert files(path.parent) == []


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.zeros(2, dtype=complex), "complex128"),
        (np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[ns]"), "datetime64"),
        (np.array([1, 2], dtype="timedelta64[ns]"), "timedelta64"),
        (np.array([{}, None], dtype=object), "object"),
        (np.zeros(2, dtype=np.float16), "float16"),
        (np.zeros(2, dtype=np.longdouble), "float128|longdouble"),
    ],
)
def test_variables_that_would_not_come_back_are_refused(path, values, dtype):
    with pytest.raises(TypeError, match=rf"variable 'x' is ({dtype}).*convert it first"):
        write(xr.Dataset({"x": ("t", values)}), path, kind="result")
    assert files(path.parent) == []


@pytest.mark.parametrize("name", ["", "a/b", 3])
def test_names_that_cannot_be_stored_are_refused(path, name):
    with pytest.raises(ValueError, match="cannot be stored: a name is text"):
        write(xr.Dataset({name: 1.0}), path, kind="result")
    with pytest.raises(ValueError, match="cannot be stored: a name is text"):
        write(xr.Dataset(), path, kind="result", attributes={name: 1.0})


def test_unknown_kind_and_taken_attributes_are_refused(path):
    for call in (lambda: write(example(5), path, kind="gp"), lambda: read(path, kind="gp")):
        with pytest.raises(ValueError, match=r"kind must be one of trajectory, narx, result, model, .*, got 'gp'"):
            call()
    with pytest.raises(ValueError, match=r"\['schema_version'\] are set by sysid.store.write itself"):
        write(example(5), path, kind="result", attributes={"schema_version": 3})


# --- writing that fails ---------------------------------------------------------------------------


def test_missing_folder(tmp_path):
    with pytest.raises(StoreError, match=r"could not write .*the folder .*absent does not exist: create it"):
        write(example(5), tmp_path / "absent" / "run.nc", kind="result")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="does not exist"):
        write(example(5), tmp_path / "file" / "run.nc", kind="result")
    assert files(tmp_path) == ["file"]


def test_name_of_a_folder_and_name_too_long(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(StoreError, match="the name belongs to a folder"):
        write(example(5), tmp_path / "taken", kind="result")
    with pytest.raises(StoreError, match="could not write"):
        write(example(5), tmp_path / ("x" * 250), kind="result")
    assert files(tmp_path) == ["taken"]


@pytest.mark.skipif(os.name != "posix", reason="folder permissions of POSIX")
def test_read_only_folder():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = write(example(5), folder / "run.nc", kind="result")
        before = path.read_bytes()
        folder.chmod(0o555)
        is_root = os.geteuid() == 0
        try:
            if is_root:
                os.seteuid(65534)  # root may write anywhere
            with pytest.raises(StoreError, match=r"run.nc .*Permission denied; .*a folder that you may write to"):
                write(example(9), path, kind="result")
        finally:
            if is_root:
                os.seteuid(0)
            folder.chmod(0o755)
        assert path.read_bytes() == before
        assert files(folder) == ["run.nc"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failure_at_any_step_keeps_the_previous_file(path, previous, monkeypatch, step):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(StoreError, match=r"could not write .*run.nc .*No space left.*free space.*nothing was changed"):
        write(example(), path, kind="result")
    assert path.read_bytes() == previous
    assert files(path.parent) == ["run.nc"]


def test_interruption_by_the_user_keeps_the_previous_file(path, previous, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write(example(), path, kind="result")
    assert path.read_bytes() == previous
    assert files(path.parent) == ["run.nc"]


def script(text, *arguments):
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(text), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
def test_full_disk_keeps_the_previous_file_and_leaves_nothing(path, previous):
    out = script(
        """
        import resource, signal, sys
        import numpy as np, xarray as xr
        from sysid.store import StoreError, read, write
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        large = xr.Dataset({"x": ("t", np.random.default_rng(0).normal(size=200_000))})
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        try:
            write(large, sys.argv[1], kind="result")
        except StoreError as error:
            assert "could not write" in str(error) and "File too large" in str(error), error
            print("refused")
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        write(large, sys.argv[1] + ".later", kind="result")
        assert read(sys.argv[1] + ".later", kind="result").equals(large)
        print("later")
        """,
        path,
    )
    assert out == ["refused", "later"]
    assert path.read_bytes() == previous
    assert files(path.parent) == ["run.nc", "run.nc.later"]


KILLED = """
    import os, random, signal, sys, time
    import numpy as np, xarray as xr
    from sysid.store import read, write
    folder, random = sys.argv[1], random.Random(0)
    old = xr.Dataset({"x": ("t", np.arange(4.0))})
    new = xr.Dataset({"x": ("t", np.random.default_rng(0).normal(size=800_000))})
    start = time.perf_counter()
    write(new, os.path.join(folder, "warm.nc"), kind="result")
    duration = time.perf_counter() - start
    for attempt in range(12):
        inside = os.path.join(folder, str(attempt))
        os.mkdir(inside)
        path = os.path.join(inside, "run.nc")
        if attempt % 3 == 0:
            write(old, path, kind="result")
        before = os.listdir(inside)
        child = os.fork()
        if child == 0:
            write(new, path, kind="result")
            os._exit(0)
        if attempt % 2:  # at any time
            time.sleep(random.uniform(0, 1.2 * duration))
        else:  # while bytes go to the disk
            while os.listdir(inside) == before and os.waitpid(child, os.WNOHANG)[0] == 0:
                pass
            time.sleep(random.choice([0, 0, 0.001, 0.003]))
        try:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        except (ProcessLookupError, ChildProcessError):
            pass
        left = os.listdir(inside)
        other = [name for name in left if name != "run.nc"]
        assert all(name.startswith(".run.nc.") and name.endswith(".tmp") for name in other), left
        if not os.path.exists(path):
            assert attempt % 3, "the previous file is gone"
            print("absent" if not left else "absent,hit")
        else:
            x = read(path, kind="result").x.values
            assert np.array_equal(x, new.x.values) or (attempt % 3 == 0 and np.array_equal(x, old.x.values))
            print("complete" if len(left) == 1 else "complete,hit")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_killed_run_leaves_no_half_file_under_the_final_name(tmp_path):
    out = script(KILLED, tmp_path)
    assert len(out) == 12
    assert any(outcome.endswith("hit") for outcome in out), out  # a kill met a half-written file


# --- reading that is refused ----------------------------------------------------------------------


def test_missing_file_and_folder(tmp_path):
    for path in (tmp_path / "absent.nc", tmp_path):
        with pytest.raises(StoreError, match=rf"no file {re.escape(str(path))}: check the path"):
            read(path, kind="result")


@pytest.mark.parametrize(
    "content", [b"", b"no NetCDF at all" * 99, b"\x89HDF\r\n\x1a\n" + bytes(500), b"CDF\x01\xff" + bytes(3)]
)
def test_other_formats_are_refused(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"cannot read .*run.nc as NetCDF 4 .*truncated, damaged or of another format"):
        read(path, kind="result")


@pytest.mark.parametrize("size", [5, 2000])
@pytest.mark.parametrize("cut", [1, 100, 3000])
def test_truncated_files_are_refused(path, size, cut):
    content = write(example(size), path, kind="result").read_bytes()
    path.write_bytes(content[:-cut])
    with pytest.raises(StoreError, match="truncated"):
        read(path, kind="result")


@pytest.mark.parametrize("size", [8, 50_000])
def test_a_flipped_bit_in_the_data_is_noticed(path, size):
    values = np.random.default_rng(0).integers(0, 256, size).astype(np.uint8)  # zlib keeps such bytes as they are
    content = bytearray(write(xr.Dataset({"x": ("t", values)}), path, kind="result").read_bytes())
    place = content.find(values[:8].tobytes())
    assert place > 0
    content[place + 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        read(path, kind="result")


def test_random_damage_is_refused_or_harmless(path):
    """No error of another type, and no wrong number in an array, from a flipped bit anywhere."""
    original = example().drop_vars(["name", "noise_variance", "unit"])
    content = write(original, path, kind="result").read_bytes()
    rng, refused = np.random.default_rng(1), 0
    for place in rng.integers(0, len(content), 60):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            back = read(path, kind="result")
        except StoreError:
            refused += 1
            continue
        for name in set(back.data_vars) & set(original.data_vars):
            assert back[name].values.tobytes() == original[name].values.tobytes(), (place, name)
    assert refused > 20


@pytest.mark.parametrize("attributes", [{}, {"schema": "result"}, {"schema_version": 1}])
def test_files_of_another_origin_are_refused(path, attributes):
    xr.Dataset({"x": 1.0}, attrs=attributes).to_netcdf(path, engine="netcdf4")
    with pytest.raises(StoreError, match="of another origin: it has no attributes 'schema' and 'schema_version'"):
        read(path, kind="result")


def test_another_kind_is_refused(path):
    write(example(5), path, kind="trajectory")
    with pytest.raises(StoreError, match="holds schema 'trajectory', expected 'model': read it with kind='trajectory'"):
        read(path, kind="model")


NEWER = (store.SCHEMA_VERSION + 1, "newer than .*update sysid")


@pytest.mark.parametrize(("version", "message"), [NEWER, (0, "older than .*write it anew")])
def test_another_schema_version_is_refused(path, monkeypatch, version, message):
    monkeypatch.setattr(store, "SCHEMA_VERSION", version)
    write(example(5), path, kind="result")
    monkeypatch.undo()
    with pytest.raises(StoreError, match=f"schema_version {version}, {message}"):
        read(path, kind="result")


def test_files_of_the_first_version_are_read(path, monkeypatch):
    monkeypatch.setattr(store, "SCHEMA_VERSION", 1)
    write(example(5), path, kind="result")
    monkeypatch.undo()
    np.testing.assert_array_equal(read(path, kind="result")["count"], example(5)["count"])


def test_a_read_file_is_closed_and_independent(path):
    write(example(5), path, kind="result")
    back = read(path, kind="result")
    path.unlink()
    write(back.assign(count=back["count"] + 1), path, kind="result")
    np.testing.assert_array_equal(read(path, kind="result")["count"], back["count"] + 1)
    assert not back.encoding
    if sys.platform == "linux":
        assert not [fd for fd in Path("/proc/self/fd").iterdir() if os.path.realpath(fd) == str(path)]


def test_store_error_is_an_os_error():
    assert issubclass(StoreError, OSError)
