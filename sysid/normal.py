"""Quantiles of the normal distribution, by which robust estimates become standard deviations."""

#: median of the magnitude of a normal variable, in its standard deviations
MEDIAN_OF_NORMAL = 0.6745

#: standard deviation of a normal variable, in medians of its magnitude: the reciprocal, rounded by
#: itself
STDS_PER_MEDIAN_DEVIATION = 1.4826

#: quantiles of the magnitude of a normal variable, in its standard deviations
STDS_OF_QUANTILE = {0.9: 1.645, 0.95: 1.96}
