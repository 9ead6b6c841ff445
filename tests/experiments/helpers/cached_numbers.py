"""An array as a kind of content that a cache keeps."""

import numpy as np
import xarray as xr

from experiments.files.cache import Kind

VALUES = np.arange(2000.0) / 3
NUMBERS = Kind(
    "numbers",
    "Numbers",
    lambda v: xr.Dataset({"x": ("n", v)}),
    lambda found: found["x"].values,
)
