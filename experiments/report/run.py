"""One run of `sysid-report`: write the page of a run or of a sweep that was stored before."""

import logging
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig

from experiments.collect.page import write_sweep
from experiments.collect.read import build_dataset, read_results
from experiments.collect.tables import count_jobs
from experiments.files.outputs import has_page
from experiments.report.page import write_run
from experiments.sweeps.store import MANIFEST_FILE
from sysid import StoreError
from sysid.errors import UserError, UserTypeError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReportSettings:
    """What is shown on the page."""

    folder: Path  # of a run, a validation or a sweep; the page is written there


def run(config: DictConfig, folder: Path) -> None:
    """Write the page of the run or sweep in ``config.folder`` into that folder.

    Raises
    ------
    ValueError
        No folder is named, or Bokeh is not installed.
    sysid.StoreError
        The folder has neither a run nor a sweep, or a damaged file, or the page cannot be written.
    """
    source = read_settings(config).folder
    is_sweep = (source / MANIFEST_FILE).is_file()
    try:
        path = write_sweep_page(source) if is_sweep else write_run(source)
    except (UserError, UserTypeError):
        raise
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RecursionError,
    ) as error:
        raise _describe_content(source, error) from error
    except Exception as error:
        if not type(error).__module__.startswith("jinja2."):
            raise
        raise _describe_content(source, error) from error
    log.info("Report: %s", path)


def _describe_content(source: Path, error: Exception) -> StoreError:
    """Return the error for a folder whose files have another content than the commands write."""
    return StoreError(
        f"the files in {source} do not hold what a run or a sweep writes "
        f"({type(error).__name__}: {error}): they are damaged or were edited; run it again"
    )


def read_settings(config: DictConfig) -> ReportSettings:
    """Read and check the configuration.

    Raises
    ------
    ValueError
        No folder is named, or Bokeh is not installed.
    """
    if not isinstance(config.folder, str) or not config.folder:
        raise UserError(
            "folder: expected the folder of one run or sweep, sysid-report outputs/identify/..., "
            f"got {config.folder}"
        )
    has_page(True)  # raises without Bokeh
    return ReportSettings(Path(config.folder))


def write_sweep_page(source: Path) -> Path:
    """Write the page of a sweep into its folder, and return its path."""
    found = read_results(source)
    dataset = build_dataset(found)
    return write_sweep(found, dataset, count_jobs(found, dataset), source)
