"""Published data sets: their records and forms, and downloads from a server on this computer."""

import hashlib
import http.server
import re
import shutil
import sys
import threading
from functools import partial

import numpy as np
import pooch
import pytest
import xarray as xr

from data_sources import (
    files_in,
    hold_back,
    lengths_by_role,
    load_twice_at_once,
    names_of,
    windows_of,
)
from sysid import (
    BostonData,
    BoucWenData,
    CascadedTanksData,
    ConcreteData,
    DataError,
    SilverboxData,
)
from sysid.data import published
from sysid.data.published import Column, Form, PublishedTable, cache_folder, fetch

pytestmark = pytest.mark.usefixtures("cache")

TABLES = [member for member in vars(published).values() if isinstance(member, PublishedTable)]
PUBLISHED_SETS = [
    CascadedTanksData,
    BoucWenData,
    SilverboxData,
    BostonData,
    ConcreteData,
]


# --- measured sets --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "signals", "sampling_time", "lengths", "windows"),
    [
        (
            CascadedTanksData,
            ("pump_voltage", "level"),
            4.0,
            [[1024], [], [1024]],
            [0, 50],
        ),
        (
            BoucWenData,
            ("force", "displacement"),
            1 / 750,
            [[4 * 8192], [], [8192]],
            [0, 0],
        ),
        (
            SilverboxData,
            ("input_voltage", "output_voltage"),
            1 / 610.35,
            [[65062], [], [21688, 40475, 32000]],
            [0, 50, 50, 50],
        ),
    ],
    ids=["tanks", "hysteresis", "Silverbox"],
)
def test_measured_sets_are_split_as_usual(
    source, signals, sampling_time, lengths, windows, shared_data
):
    loaded = source(path=str(shared_data)).load()
    assert loaded.inputs + loaded.outputs == signals
    assert lengths_by_role(loaded) == lengths
    assert loaded.sampling_time == pytest.approx(sampling_time)
    assert windows_of(loaded) == windows
    names = names_of(loaded)
    assert len(set(names)) == len(names)


def test_the_tanks_start_with_the_published_values(shared_data):
    estimation, test = CascadedTanksData(path=str(shared_data)).load().records
    assert estimation.pump_voltage[0] == 3.2567230505556095
    assert estimation.level[0] == 5.205004959182117
    assert test.pump_voltage[0] == 0.9761919656163469
    assert test.level[0] == 4.972762645914397


def test_the_hysteresis_has_an_official_test_and_an_estimation_of_ours(shared_data):
    estimation, test = BoucWenData(path=str(shared_data)).load().records
    assert estimation.attrs["official"] == 0
    assert test.attrs["official"] == 1
    assert estimation.attrs["period"] == 8192
    assert test.attrs["period"] == 8192
    assert test.displacement[0] == 1.899147452880088e-4
    official = BoucWenData(path=str(shared_data), user_made_estimation=False).load()
    assert official.estimation == ()


def test_records_of_the_silverbox_are_parts_of_the_file(shared_data):
    loaded = SilverboxData(path=str(shared_data)).load()
    path = shared_data / "silverbox" / "SNLS80mV.csv"
    columns = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 1))
    starts = (40650, 105712, 100, 100)
    for record, start in zip(loaded.records, starts, strict=True):
        rows = columns[start : start + record.sizes["time"]]
        np.testing.assert_array_equal(record.input_voltage, rows[:, 0])
        np.testing.assert_array_equal(record.output_voltage, rows[:, 1])


# --- static sets ----------------------------------------------------------------------------------

STATIC_SETS = pytest.mark.parametrize(
    ("source", "file", "n_estimation"),
    [
        (BostonData, "boston_housing/boston_housing.csv", 451),
        (ConcreteData, "concrete/concrete.csv", 927),
    ],
)


def load_static(source, folder, **options):
    """Return a static set, and all its rows in the order of estimation and test."""
    static = source(path=str(folder), **options).load()
    return static, xr.concat([*static.estimation, *static.test], "time")


@STATIC_SETS
@pytest.mark.parametrize(
    ("options", "split"),
    [
        ({"shuffle": False, "seed": 0}, "file order"),
        ({"shuffle": True, "seed": 1}, "shuffled with seed 1"),
        ({"shuffle": True, "seed": 2}, "shuffled with seed 2"),
    ],
    ids=["file order", "seed 1", "seed 2"],
)
def test_static_sets_hold_the_rows_of_the_file(
    source, file, n_estimation, options, split, shared_data
):
    header = (shared_data / file).read_text().splitlines()[0].split(",")
    rows = np.loadtxt(shared_data / file, delimiter=",", skiprows=1)
    static, joined = load_static(source, shared_data, **options)
    assert static.is_static
    assert list(static.inputs + static.outputs) == header
    assert lengths_by_role(static) == [[n_estimation], [], [len(rows) - n_estimation]]
    assert static.test[0].attrs["split"] == split
    order = joined.row.values
    assert sorted(order) == list(range(len(rows)))
    columns = np.column_stack([joined[name] for name in header])
    np.testing.assert_array_equal(columns, rows[order])
    np.testing.assert_array_equal(joined.time, np.arange(len(rows)))
    assert joined.time.attrs["units"] == "1"


@STATIC_SETS
def test_static_sets_keep_the_order_of_the_file_or_a_seeded_one(
    source, file, n_estimation, shared_data
):
    def order_of(**options):
        _, joined = load_static(source, shared_data, **options)
        return joined.row.values.tolist()

    in_file_order = order_of(shuffle=False)
    shuffled = order_of(shuffle=True, seed=1)
    assert in_file_order == list(range(len(in_file_order)))
    assert shuffled == order_of(shuffle=True, seed=1)
    assert shuffled != order_of(shuffle=True, seed=2)


@STATIC_SETS
def test_static_sets_need_rows_for_estimation_and_test(source, file, n_estimation, shared_data):
    n_rows = len((shared_data / file).read_text().splitlines()) - 1
    for n in (0, n_rows, 1.5):
        with pytest.raises(ValueError, match=f"n_estimation .* got {n}"):
            source(path=str(shared_data), n_estimation=n).load()


# --- forms of the tables --------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.forms[0]))
def test_every_table_names_its_origin(table):
    urls = [form.url for form in table.forms if form.url]
    assert urls
    pinned_to_a_commit = r"https://raw\.githubusercontent\.com/[^/]+/[^/]+/[0-9a-f]{40}/(.+/)?"
    for url in urls:
        assert re.fullmatch(pinned_to_a_commit, url)
    for name in ("licence", "source", "citation"):
        assert table.attributes[name]
    for unit, long_name in table.columns.values():
        assert unit
        assert long_name


@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.forms[0]))
def test_every_form_of_a_table_holds_the_same_numbers(table, shared_data, tmp_path):
    """Each form is found alone in a folder; all agree, one of them to its 5 digits."""
    reference = table.load(str(shared_data / table.folder))
    for i, form in enumerate(table.forms):
        folder = tmp_path / str(i)
        folder.mkdir()
        for file in form.files:
            shutil.copy(shared_data / table.folder / file, folder)
        record = table.load(str(folder))
        assert record.attrs["file"] == str(form)
        assert list(record.data_vars) == list(table.columns)
        assert list(reference.data_vars) == list(table.columns)
        tolerance = 5e-5 if "dataBenchmark.csv" in form.files else 0.0
        for name in table.columns:
            np.testing.assert_allclose(
                record[name], reference[name], rtol=0, atol=tolerance, err_msg=name
            )


@pytest.mark.parametrize("source", PUBLISHED_SETS)
def test_without_a_copy_the_error_says_what_to_do(source, tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(DataError, match=r"empty.*holds no copy.*data\.path.*SYSID_DATA"):
        source(path=str(empty)).load()
    monkeypatch.setenv("SYSID_DATA", str(empty))
    message = r"SYSID_DATA.*network.*raw\.githubusercontent\.com.*SYSID_CACHE"
    with pytest.raises(DataError, match=message):
        source().load()
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "missing"))
    with pytest.raises(DataError, match=r"SYSID_DATA='.*missing'"):
        source().load()
    assert files_in(tmp_path) == []


def test_a_missing_package_is_named(monkeypatch, shared_data, tmp_path):
    shutil.copy(shared_data / "concrete" / "Concrete_Data.xls", tmp_path)
    monkeypatch.setitem(sys.modules, "xlrd", None)
    message = r"needs the package xlrd.*install -e \"\.\[records\]\""
    with pytest.raises(DataError, match=message):
        ConcreteData(str(tmp_path)).load()


# --- downloads from a server on this computer -----------------------------------------------------

CONTENT = b"u,y\n1.5,2.5\n3.5,4.5\n"
TRUNCATED_CONTENT = CONTENT[:-4]
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path):
    """Return a running server with the `folder` of its files and its `url`."""

    class QuietHandler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            """Log nothing."""

    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "data.csv").write_bytes(CONTENT)
    handler = partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        running.folder = folder
        running.url = f"http://127.0.0.1:{running.server_address[1]}/"
        options = {"poll_interval": 0.01}
        thread = threading.Thread(target=running.serve_forever, kwargs=options)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def log(caplog, monkeypatch):
    """Return the log of pooch, which downloads."""
    monkeypatch.setattr(pooch.get_logger(), "handlers", [caplog.handler])
    return caplog


def toy_table(url):
    """Return a published table of one file at this address."""
    columns = {"u": Column("V", "voltage"), "y": Column("m", "height")}
    form = Form({"data.csv": SHA256}, url=url)
    return PublishedTable("toy", "toy", 0.5, columns, (form,), {"licence": "CC0"})


def test_a_file_is_downloaded_once_and_again_if_it_is_damaged(server, cache, log):
    toy = toy_table(server.url)
    path = cache / "toy" / "data.csv"
    for _ in range(2):
        record = toy.load(None)
        np.testing.assert_array_equal(record["y"], [2.5, 4.5])
        assert record.attrs["licence"] == "CC0"
        assert record.attrs["file"] == "data.csv"
        assert record.attrs["sha256"] == SHA256
    assert log.messages == [f"Downloaded {server.url}data.csv to {path}"]
    assert files_in(cache) == ["toy/data.csv"]
    path.write_bytes(TRUNCATED_CONTENT)
    assert len(toy.load(None)["u"]) == 2
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("page", "message"),
    [("other", f"expected {SHA256}"), ("nothing", "could not fetch.*404")],
    ids=["wrong checksum", "no such file"],
)
def test_a_failed_download_leaves_nothing_and_logs_nothing(page, message, server, cache, log):
    (server.folder / "other").write_bytes(TRUNCATED_CONTENT)
    with pytest.raises(DataError, match=message):
        fetch(server.url + page, SHA256, "toy", "data.csv")
    assert not cache.exists()
    assert log.messages == []
    assert pooch.get_logger().filters == []


@pytest.mark.parametrize(
    ("page", "message"),
    [("other", f"expected {SHA256}"), ("nothing", "could not fetch.*404")],
    ids=["wrong checksum", "no such file"],
)
def test_a_failed_download_removes_only_the_folders_that_it_made(page, message, server, cache):
    (server.folder / "other").write_bytes(TRUNCATED_CONTENT)
    (cache / "empty").mkdir(parents=True)
    for folder in ("empty", "other/deep"):
        with pytest.raises(DataError, match=message):
            fetch(server.url + page, SHA256, folder, "more.csv")
    assert [path.name for path in cache.rglob("*")] == ["empty"]


def test_the_default_cache_has_an_absolute_path(monkeypatch):
    monkeypatch.delenv("SYSID_CACHE")
    assert cache_folder().is_absolute()


def test_a_cache_that_cannot_be_written_is_reported(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="SYSID_CACHE"):
        toy_table("http://127.0.0.1:9/").load(None)
    assert files_in(tmp_path) == ["file"]


def test_local_copies_come_before_a_download_even_if_they_are_changed(
    server, cache, tmp_path, monkeypatch
):
    copy = tmp_path / "copies" / "toy" / "data.csv"
    copy.parent.mkdir(parents=True)
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "copies"))
    toy = toy_table(server.url)
    copy.write_bytes(CONTENT)
    toy.load(None)
    copy.write_bytes(CONTENT + b"5,6\n")
    with pytest.raises(DataError, match=f"expected {SHA256}"):
        toy.load(None)
    assert not cache.exists()
    copy.unlink()
    toy.load(None)
    assert files_in(cache) == ["toy/data.csv"]


def test_two_threads_that_need_the_same_file_download_it_once(server, cache, monkeypatch):
    waiting_download, calls = hold_back(pooch.HTTPDownloader.__call__)
    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", waiting_download)
    for record in load_twice_at_once(lambda: toy_table(server.url).load(None)):
        np.testing.assert_array_equal(record["y"], [2.5, 4.5])
    assert len(calls) == 1
    assert files_in(cache) == ["toy/data.csv"]
