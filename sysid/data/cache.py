"""The user's cache of downloaded files."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sysid.data.source import DataError

CACHE_VARIABLE = "SYSID_CACHE"  # names another folder
TIMEOUT = 30.0  # s, to connect and between two packets


def cache_folder() -> Path:
    """Folder of the cache: that of `CACHE_VARIABLE`, else the operating system's place for caches."""
    import pooch

    return Path(os.environ.get(CACHE_VARIABLE) or pooch.os_cache("sysid"))


@contextmanager
def made(folder: Path) -> Iterator[None]:
    """Make a folder of the cache; after an error inside, the folders that were made for it go again if empty.

    Raises
    ------
    DataError
        It cannot be made.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"cannot write to the cache {cache_folder()} ({error.strerror}): name a writable cache folder with the "
            f"environment variable {CACHE_VARIABLE}"
        ) from error
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for place in missing:
                if place.exists():
                    place.rmdir()
        raise


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
    place = cache_folder() / folder
    with made(place):
        try:
            return _retrieve(url, sha256, place, name)
        except ValueError as error:
            raise DataError(
                f"{url} has not the expected sha256 {sha256} ({error}): nothing was kept; try again, and if it stays "
                "so use a local copy of the original"
            ) from error
        except OSError as error:
            raise DataError(
                f"could not fetch {url} into {place} ({type(error).__name__}: {error}): connect to the network; if the "
                f"cache cannot be written, name a writable cache folder with the environment variable {CACHE_VARIABLE}"
            ) from error


def _retrieve(url: str, sha256: str, place: Path, name: str) -> Path:
    """Do what `fetch` does; pooch speaks of a download when it has succeeded, not before."""
    import pooch

    download, done = pooch.HTTPDownloader(timeout=TIMEOUT), []

    def noted(*arguments: Any, **options: Any) -> None:
        download(*arguments, **options)
        done.append(url)

    logger = pooch.get_logger()
    logger.addFilter(_is_warning)
    try:
        path = Path(pooch.retrieve(url, f"sha256:{sha256}", fname=name, path=place, downloader=noted))
    finally:
        logger.removeFilter(_is_warning)
    if done:
        logger.info("Downloaded %s to %s", url, path)
    return path


def _is_warning(record: logging.LogRecord) -> bool:
    """Whether a message is a warning, or worse."""
    return record.levelno >= logging.WARNING
