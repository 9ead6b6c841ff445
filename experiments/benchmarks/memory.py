"""Memory of an online GP."""

import gc
import tracemalloc
from collections.abc import Iterator

import numpy as np

from experiments.benchmarks.material import Samples, narx_samples, online_gp
from experiments.benchmarks.plan import Plan
from experiments.benchmarks.row import Row
from sysid import OnlineGP

SAMPLES = 10  # learned while the peak is measured


def memory(plan: Plan) -> Iterator[Row]:
    """Bytes that a full `OnlineGP` holds, traced allocations, in matrices of N^2 numbers of 8 bytes.

    ``peak of learning`` in the details: bytes that `update_many` needs on top for some samples.
    """
    samples = narx_samples(max(plan.sizes) + SAMPLES, noise_variance=1e-2, seed=plan.seed)
    held_bytes(min(plan.sizes), samples)  # compiles and fills caches
    held = {size: held_bytes(size, samples) for size in plan.sizes}
    for size, (bytes_held, on_top) in held.items():
        details = {"MB": bytes_held / 1e6, "peak of learning kB": on_top / 1e3}
        yield Row("memory", f"N={size}", bytes_held / (8 * size**2), "N^2 x 8 bytes", details=details)
    slope = np.polyfit(np.log(list(held)), np.log([entry[0] for entry in held.values()]), 1)[0]
    yield Row("memory", "growth with N", float(slope), "exponent")


def held_bytes(size: int, samples: Samples) -> tuple[int, int]:
    """Bytes of a full GP, and the peak on top of them while it learns."""
    gc.collect()
    tracemalloc.start()
    try:
        gp: OnlineGP = online_gp(size).fit(*samples.part(0, size))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        gp.update_many(*samples.part(size, size + SAMPLES))
        return held, tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()
