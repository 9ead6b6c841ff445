"""Fixtures of the tests of data sources: a cache folder, and downloads that are pretended."""

from pathlib import Path

import nonlinear_benchmarks
import pytest

from data_sources import write_drives

UNUSED_ADDRESS = "http://127.0.0.1:9"  # nobody listens there


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """Return the folder of the cache, which does not exist yet.

    There are no local copies, the home folder is another one, and this computer is the network.
    """
    monkeypatch.delenv("SYSID_DATA", raising=False)
    monkeypatch.setenv("SYSID_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", UNUSED_ADDRESS)
    monkeypatch.setenv("https_proxy", UNUSED_ADDRESS)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def package_downloads(monkeypatch):
    """Replace the download of `nonlinear_benchmarks` by one that writes made-up files.

    Returns the list of the addresses that were asked for.
    """
    urls = []

    def download(url, name, *_, dir_placement, **__):
        folder = Path(dir_placement, name)
        if not folder.exists():
            urls.append(url)
            write_drives(folder)
        return str(folder)

    monkeypatch.setattr(nonlinear_benchmarks.benchmarks, "cashed_download", download)
    return urls
