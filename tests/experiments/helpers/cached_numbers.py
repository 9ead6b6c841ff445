"""An array as a kind of content that a cache keeps, and work that several processes need."""

import time

import numpy as np
import xarray as xr

from experiments.files.cache import Cache, Kind, counts_of

VALUES = np.arange(2000.0) / 3
NUMBERS = Kind(
    "numbers",
    "Numbers",
    lambda values: xr.Dataset({"x": ("n", values)}),
    lambda dataset: dataset["x"].values,
)
N_ASKING = 3


def obtain_beside_others(folder, name, seconds):
    """Obtain the array from a cache that others use too, and return what this cache counts.

    Whoever computes it does so until all have asked, and then for some seconds. Empty files in the
    folder mark who asks and who computes.
    """

    def compute():
        (folder / f"{name}.computes").touch()
        while len(list(folder.glob("*.asks"))) < N_ASKING:
            time.sleep(0.01)
        time.sleep(seconds)
        return VALUES

    cache = Cache(folder / "cache")
    (folder / f"{name}.asks").touch()
    values = cache.obtain(NUMBERS, "key", compute)
    assert values.tobytes() == VALUES.tobytes()
    return counts_of(cache)["cache"]
