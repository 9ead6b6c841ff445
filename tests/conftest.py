"""One BLAS thread, as in the commands, set before NumPy is imported; local copies of published records."""

import os
from pathlib import Path

import pytest

collect_ignore = ["sysid/sparse_reference/gpflow_values.py"]  # made the reference values; needs GPflow

for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")


@pytest.fixture(scope="session")
def shared_data():
    """Folder with local copies of the published records; without it tests skip, on CI they fail."""
    folder = Path(os.environ.get("SYSID_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not (folder / "cascaded_tanks").is_dir():
        reason = f"no local copies of the published records in {folder}: set SYSID_DATA"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return folder.resolve()
