"""Downloads into the cache, from a server on this computer: once, complete and checked, or not at all."""

import hashlib
import http.server
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pooch
import pytest

from sysid.data import boston, bouc_wen, cascaded_tanks, concrete, silverbox
from sysid.data.cache import cache_folder, fetch
from sysid.data.published import Form, PinnedFile, PublishedTable
from sysid.data.reader import read_csv
from sysid.data.source import DataError

CONTENT = b"u,y\n1.5,2.5\n3.5,4.5\n"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves the files of the server's dictionary; a path that ends in ``cut`` breaks off half-way."""

    def do_GET(self):
        path = self.path.lstrip("/")
        self.server.requested.append(path)
        content = self.server.files.get(path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if path.endswith("cut") else content)

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture
def server(monkeypatch):
    """A running server with `files`, `requested` and `url`."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        running.files, running.requested = {"data.csv": CONTENT, "cut": CONTENT}, []
        running.url = f"http://127.0.0.1:{running.server_address[1]}/"
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """The folder of the cache, empty."""
    monkeypatch.delenv("SYSID_DATA", raising=False)
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def table(url):
    form = Form((PinnedFile("data.csv", SHA256, url),), partial(read_csv, names=("u", "y")))
    return PublishedTable("toy", (form,), {"licence": "CC0"})


def test_a_file_is_downloaded_once(server, cache):
    published = table(server.url + "data.csv")
    for _ in range(2):
        columns, attributes = published.load(None)
        np.testing.assert_array_equal(columns["y"], [2.5, 4.5])
        assert attributes == {"licence": "CC0", "file": "data.csv", "sha256": SHA256}
    assert server.requested == ["data.csv"]
    assert files_in(cache) == [cache / "toy" / "data.csv"]


def test_a_cached_file_needs_no_network(server):
    published = table(server.url + "data.csv")
    published.load(None)
    gone = table("http://127.0.0.1:9/data.csv")
    np.testing.assert_array_equal(gone.load(None).columns["u"], published.load(None).columns["u"])


def test_a_damaged_cached_file_is_fetched_again(server, cache):
    published = table(server.url + "data.csv")
    published.load(None)
    (cache / "toy" / "data.csv").write_bytes(CONTENT[:-4])
    assert len(published.load(None).columns["u"]) == 2
    assert (cache / "toy" / "data.csv").read_bytes() == CONTENT
    assert len(server.requested) == 2


def test_a_wrong_checksum_leaves_nothing(server, cache):
    server.files["data.csv"] = CONTENT.replace(b"4.5", b"4.6")
    with pytest.raises(DataError, match=f"has not the expected sha256 {SHA256}.*nothing was kept") as caught:
        table(server.url + "data.csv").load(None)
    assert "data.path" in str(caught.value)
    assert files_in(cache) == []


def test_a_broken_download_leaves_nothing(server, cache):
    with pytest.raises(DataError, match=r"could not fetch|has not the expected sha256"):
        fetch(server.url + "cut", SHA256, "toy", "data.csv")
    assert not cache.exists()


def test_a_missing_page_is_reported(server, cache):
    with pytest.raises(DataError, match=r"could not fetch .*404"):
        fetch(server.url + "nothing", SHA256, "toy", "data.csv")
    assert not cache.exists()


def test_a_failure_removes_only_the_folders_that_it_made(server, cache):
    fetch(server.url + "data.csv", SHA256, "toy", "data.csv")
    (cache / "empty").mkdir()
    for folder in ("toy", "empty", "other/deep"):
        with pytest.raises(DataError, match="could not fetch"):
            fetch(server.url + "nothing", SHA256, folder, "more.csv")
    assert sorted(path.name for path in cache.rglob("*")) == ["data.csv", "empty", "toy"]


def test_only_a_successful_download_is_spoken_of(server, caplog, monkeypatch):
    logger = pooch.get_logger()
    monkeypatch.setattr(logger, "handlers", [caplog.handler])
    with pytest.raises(DataError):
        fetch(server.url + "nothing", SHA256, "toy", "data.csv")
    assert caplog.messages == []
    assert logger.filters == []
    path = fetch(server.url + "data.csv", SHA256, "toy", "data.csv")
    assert caplog.messages == [f"Downloaded {server.url}data.csv to {path}"]
    fetch(server.url + "data.csv", SHA256, "toy", "data.csv")
    assert len(caplog.messages) == 1


def test_a_refused_connection_is_reported(cache, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(DataError, match=r"could not fetch .*connect to the network.*SYSID_CACHE"):
        fetch("http://127.0.0.1:9/data.csv", SHA256, "toy", "data.csv")
    assert files_in(cache) == []


def test_a_cache_that_cannot_be_written_is_reported(server, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match="writable cache folder with the environment variable SYSID_CACHE"):
        table(server.url + "data.csv").load(None)
    assert files_in(tmp_path) == [tmp_path / "file"]


def test_the_default_cache_is_the_users(monkeypatch):
    monkeypatch.delenv("SYSID_CACHE")
    assert cache_folder().name == "sysid"
    assert cache_folder().is_absolute()


def test_local_copies_come_before_a_download(server, tmp_path, monkeypatch):
    (tmp_path / "copies" / "toy").mkdir(parents=True)
    (tmp_path / "copies" / "toy" / "data.csv").write_bytes(CONTENT)
    monkeypatch.setenv("SYSID_DATA", str(tmp_path / "copies"))
    table(server.url + "data.csv").load(None)
    assert server.requested == []
    (tmp_path / "copies" / "toy" / "data.csv").unlink()
    table(server.url + "data.csv").load(None)
    assert server.requested == ["data.csv"]


def test_a_changed_local_copy_is_not_replaced_by_a_download(server, tmp_path, monkeypatch):
    (tmp_path / "data.csv").write_bytes(CONTENT + b"5,6\n")
    monkeypatch.setenv("SYSID_DATA", str(tmp_path))
    with pytest.raises(DataError, match=f"expected {SHA256}"):
        table(server.url + "data.csv").load(None)
    assert server.requested == []


@pytest.mark.parametrize(
    ("module", "names", "source"),
    [
        (cascaded_tanks, ["TABLE"], cascaded_tanks.CascadedTanksData),
        (bouc_wen, ["TEST", "ESTIMATION"], bouc_wen.BoucWenData),
        (silverbox, ["TABLE"], silverbox.SilverboxData),
        (boston, ["TABLE"], boston.BostonData),
        (concrete, ["TABLE"], concrete.ConcreteData),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_every_published_set_can_be_downloaded(module, names, source, server, shared_data, cache, monkeypatch):
    """The originals, served under the paths of their addresses, pass their checksums and equal the local copies."""
    for name in names:
        original = getattr(module, name)
        forms = [form for form in original.forms if form.is_downloadable]
        for file in (file for form in forms for file in form.files):
            path = file.url.removeprefix("https://raw.githubusercontent.com/")
            server.files[path] = (shared_data / original.folder / file.name).read_bytes()
        moved = tuple(
            replace(
                form,
                files=tuple(
                    replace(file, url=file.url.replace("https://raw.githubusercontent.com/", server.url))
                    for file in form.files
                ),
            )
            for form in original.forms
        )
        monkeypatch.setattr(module, name, replace(original, forms=moved))
    downloaded = source().load()
    assert server.requested
    local = source(path=str(shared_data)).load()
    for left, right in zip(downloaded.records, local.records, strict=True):
        for signal in (*local.inputs, *local.outputs, "time"):
            np.testing.assert_array_equal(left[signal], right[signal])
    assert {path.parent for path in files_in(cache)} == {cache / getattr(module, names[0]).folder}
