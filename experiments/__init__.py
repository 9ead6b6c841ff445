"""Commands of the toolbox. Each folder with a `run.py` is one: `sysid-identify` is ``identify/``.

The matrices of an online GP are small: one BLAS thread is fastest for them, and leaves the other
cores to other jobs. The limit must be set before NumPy is imported. A variable that the user has
set is left alone.
"""

import os

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
for _variable in THREAD_VARIABLES:
    os.environ.setdefault(_variable, "1")
