"""Commands of the toolbox: each folder with a `run.py` is one, `sysid-identify` is
``experiments/identify/``.

The matrices of an online GP are small: one BLAS thread is fastest for them and leaves the other
cores to other jobs. The limit must be set before NumPy is imported; an explicit setting wins.
"""

import os

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
for _name in THREAD_VARIABLES:
    os.environ.setdefault(_name, "1")
