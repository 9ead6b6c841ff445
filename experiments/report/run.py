"""Write the page of a run or of a sweep that is there."""

import logging
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.collect.page import write_sweep
from experiments.collect.read import build_dataset, read_results
from experiments.collect.run import count_jobs
from experiments.files.outputs import has_page
from experiments.report.page import write_run
from experiments.sweeps.store import MANIFEST
from sysid.errors import UserError

log = logging.getLogger(__name__)


def run(config: DictConfig, folder: Path) -> None:
    """Write the page of the run or sweep in ``config.folder`` there.

    Raises
    ------
    ValueError
        No folder is named, or Bokeh is not installed.
    sysid.StoreError
        Neither run nor sweep in the folder, a damaged file, or one that cannot be written.
    """
    if not isinstance(config.folder, str) or not config.folder:
        raise UserError("folder: expected the folder of a run or of a sweep, sysid-report outputs/identify/...")
    source = Path(config.folder)
    has_page(OmegaConf.create({"report": True}))  # refuses without Bokeh
    if (source / MANIFEST).is_file():
        found = read_results(source)
        dataset = build_dataset(found)
        path = write_sweep(found, dataset, count_jobs(found, dataset), source)
    else:
        path = write_run(source)
    log.info("Report: %s", path)
