"""A kind of content that a cache can keep: an array of numbers."""

import numpy as np
import xarray as xr

from experiments.files.cache import Kind

VALUES = np.arange(2000.0) / 3


def to_dataset(values):
    """Return the data set that stands for an array in the cache."""
    return xr.Dataset({"x": ("n", values)})


def from_dataset(dataset):
    """Return the array that a data set of the cache stands for."""
    return dataset["x"].values


NUMBERS = Kind("numbers", "Numbers", to_dataset, from_dataset)
