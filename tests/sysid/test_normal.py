"""The constants of the normal distribution are its quantiles, rounded."""

import pytest
from scipy.stats import norm

from sysid.normal import MEDIAN_OF_NORMAL, STDS_OF_QUANTILE, STDS_PER_MEDIAN_DEVIATION


@pytest.mark.parametrize(
    ("constant", "exact"),
    [
        pytest.param(MEDIAN_OF_NORMAL, norm.ppf(0.75), id="median"),
        pytest.param(STDS_PER_MEDIAN_DEVIATION, 1 / norm.ppf(0.75), id="standard deviation"),
        *(
            pytest.param(stds, norm.ppf((1 + quantile) / 2), id=f"quantile {quantile}")
            for quantile, stds in STDS_OF_QUANTILE.items()
        ),
    ],
)
def test_a_constant_is_a_quantile_of_the_normal_distribution(constant, exact):
    assert constant == pytest.approx(exact, rel=2e-4)
