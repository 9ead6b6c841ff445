"""The user's cache of downloaded files."""

import os
from pathlib import Path

from sysid.data.source import DataError

CACHE_VARIABLE = "SYSID_CACHE"  # names another folder
TIMEOUT = 30.0  # s, to connect and between two packets


def cache_folder() -> Path:
    """Folder of the cache: that of `CACHE_VARIABLE`, else the operating system's place for caches."""
    import pooch

    return Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("sysid"))


def fetch(url: str, sha256: str, folder: str, name: str) -> Path:
    """Return the cached file, downloaded once; it appears in the cache complete and checked, or not at all.

    Parameters
    ----------
    url, sha256
        Where the file is and its SHA-256, in hexadecimal. A cached file with another one is fetched again.
    folder, name
        Place in the cache.

    Raises
    ------
    DataError
        No network, no such file there, another checksum, a cache that cannot be written.
    """
    import pooch

    place = cache_folder() / folder
    downloader = pooch.HTTPDownloader(timeout=TIMEOUT)
    try:
        return Path(pooch.retrieve(url, f"sha256:{sha256}", fname=name, path=place, downloader=downloader))
    except ValueError as error:
        raise DataError(
            f"{url} has not the expected sha256 {sha256} ({error}): nothing was kept; try again, and if it stays so "
            "use a local copy of the original"
        ) from error
    except OSError as error:
        raise DataError(
            f"could not fetch {url} into {place} ({type(error).__name__}: {error}): connect to the network; if "
            f"the cache cannot be written, name a writable cache folder with the environment variable {CACHE_VARIABLE}"
        ) from error
