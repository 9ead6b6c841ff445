"""Rates of writing and reading files."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import xarray as xr

from experiments.benchmarks.monte_carlo import SAMPLES, ensemble
from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row
from experiments.benchmarks.sampled_problem import building_problem
from experiments.benchmarks.timing import Job, interleave
from experiments.options import seconds
from sysid.store import read, write

KIND = "trajectory"


def store(plan: Plan) -> Iterator[Row]:
    """Data sets written to a temporary folder and read into memory, in MB of the data set per second.

    Ours: `sysid.store` with checksums, compression, checks and a flush to the disk when it writes. ``plain`` in
    the details: `Dataset.to_netcdf` and `xarray.load_dataset` with none of these. What is read was written just
    before and comes from the memory of the operating system.
    """
    datasets = {
        f"building, {plan.duration}": building_problem(seconds(plan.duration), plan.seed).trajectory.to_dataset(),
        f"Van der Pol, {plan.trajectories} trajectories": ensemble(plan, SAMPLES).to_dataset(),
    }
    for case, dataset in datasets.items():
        with TemporaryDirectory(prefix="sysid-benchmark-") as folder:
            yield from _rows(case, dataset, Path(folder), plan)


def _rows(case: str, dataset: xr.Dataset, folder: Path, plan: Plan) -> Iterator[Row]:
    own, plain = folder / "own.nc", folder / "plain.nc"
    jobs = {
        "write": Job(lambda: write(dataset, own, kind=KIND)),
        "plain write": Job(lambda: dataset.to_netcdf(plain, engine="netcdf4")),
        "read": Job(lambda: read(own, kind=KIND)),
        "plain read": Job(lambda: xr.load_dataset(plain, engine="netcdf4", decode_times=False)),
    }
    megabytes = dataset.nbytes / 1e6
    rates = {name: megabytes / taken for name, taken in interleave(jobs, plan.repetitions).items()}
    sizes = {"MB": megabytes, "file MB": own.stat().st_size / 1e6, "plain file MB": plain.stat().st_size / 1e6}
    for name in ("write", "read"):
        rate, beside = rates[name], {"plain MB/s": rates[f"plain {name}"].max()}
        yield Row("store", f"{case}: {name}", rate.max(), "MB/s", float(np.median(rate)), details=beside | sizes)
