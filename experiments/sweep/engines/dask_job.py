"""What a Dask worker runs for a job."""

from experiments.sweep.execution import execute
from experiments.sweep.job import Job, Outcome
from experiments.sweep.worker_process import end_with


def run_job(job: Job, driver: int | None) -> Outcome:
    """Run a job in this worker.

    Parameters
    ----------
    job
        What to run.
    driver
        Process that started this worker and that it must not outlive; None: the worker belongs to somebody else.
    """
    if driver is not None:
        end_with(driver)
    return execute(job)
