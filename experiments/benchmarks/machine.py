"""What the numbers were measured on."""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from sysid.store import provenance

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def machine() -> dict[str, Any]:
    """CPU, cores, versions and BLAS threads.

    ``blas_cpu_per_wall`` is measured: CPU time over wall time of a large product, near 1 for one thread.
    """
    made = provenance()
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.system(),
        "versions": json.loads(made["package_versions"]),
        "blas_threads": {name: os.environ.get(name, "not set") for name in THREAD_VARIABLES},
        "blas_cpu_per_wall": _cpu_per_wall(),
        "extended_precision_bits": int(np.finfo(np.longdouble).nmant) + 1,
        "source_commit": made.get("source_commit"),
        "time": made["creation_time"],
    }


def describe(facts: dict[str, Any]) -> str:
    """Those facts in one line."""
    versions, threads = facts["versions"], facts["blas_threads"]
    parts = [
        f"{facts['cpu']}, {facts['cores']} cores, load {facts['load']}",
        ", ".join(f"{name} {versions[name]}" for name in ("python", "numpy", "scipy", "numba")),
        "BLAS threads: " + ", ".join(f"{name}={value}" for name, value in threads.items()),
        f"CPU/wall time of a product {facts['blas_cpu_per_wall']:.2f}",
    ]
    return "; ".join(parts)


def _cpu() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cpu_per_wall() -> float:
    matrix = np.ones((1000, 1000))
    matrix @ matrix
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(5):
        matrix @ matrix
    return (time.process_time() - cpu) / (time.perf_counter() - wall)
