"""Commands of the toolbox: each file is one, `python -m experiments.<name>`.

The matrices of an online GP are small: one BLAS thread is fastest for them and leaves the other
cores to other jobs. The limit must be set before NumPy is imported; an explicit setting wins.
"""

import os
import sys

from experiments.interrupt import end_quietly

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
if sys.argv[:1] == ["-m"] or os.path.basename("".join(sys.argv[:1])).startswith("sysid-"):  # not in somebody's script
    end_quietly()
