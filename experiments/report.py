"""`sysid-report`: a run or a sweep that is there as one page."""

import logging
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.collect import mark_folder
from experiments.launch import entry
from sysid.errors import UserError

log = logging.getLogger(__name__)
main = entry("report", "experiments.report", mark_folder)


def run(config: DictConfig, folder: Path) -> None:
    """Write the page of the run or sweep in ``config.folder`` there.

    Raises
    ------
    ValueError
        No folder is named, or Bokeh is not installed.
    sysid.StoreError
        Neither run nor sweep in the folder, a damaged file, or one that cannot be written.
    """
    from experiments.collection.read import build_dataset, read_results
    from experiments.collection.run import count_jobs
    from experiments.job_file import has_page
    from experiments.pages.run import write_run
    from experiments.pages.sweep import write_sweep
    from experiments.sweeps.store import MANIFEST

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


if __name__ == "__main__":
    main()
