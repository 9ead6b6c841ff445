"""Whether the noise of records has heavy tails, by held-out error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import xarray as xr

from sysid.beside import one_blas_thread
from sysid.gp.kernels import Linear
from sysid.gp.training import MaximumLikelihood, Start
from sysid.held_out import held_out_residuals
from sysid.identification import Settings
from sysid.narx.lags import Narx
from sysid.normal import STDS_PER_MEDIAN_DEVIATION
from sysid.progress import Steps

#: An error is large beyond this many standard deviations, the deviation that of most errors.
LARGE_ERROR_STDS = 4.0

#: Noise with heavy tails is tried if at least this fraction of the errors is large; of Gaussian
#: errors, it is 6e-5.
MIN_LARGE_FRACTION = 0.002

#: The error with it must be below this fraction of the error with Gaussian noise.
MAX_ERROR_RATIO_OF_ROBUST = 0.99


class NoiseChoice(NamedTuple):
    """Whether large errors count less for the hyper-parameters; `str` describes it in a line."""

    narx: Narx
    settings: Settings  #: those of the identification, with the choice
    n_large: int  # held-out errors that are large with Gaussian noise
    n: int  # held-out errors
    #: held-out RMSE [unit of the target], in which large errors count as errors of
    #: `LARGE_ERROR_STDS` standard deviations
    error: float
    error_of_robust: float

    @property
    def is_robust(self) -> bool:
        """Whether the hyper-parameters are estimated for noise with heavy tails."""
        return self.error_of_robust < MAX_ERROR_RATIO_OF_ROBUST * self.error

    def __str__(self) -> str:
        verdict = "count less" if self.is_robust else "count in full"
        verb = "exceeds" if self.n_large == 1 else "exceed"
        return (
            f"{self.n_large} of {self.n} held-out errors {verb} {LARGE_ERROR_STDS:g} robust "
            f"standard deviations; such samples {verdict} for the hyper-parameters "
            f"(training.record_robust): held-out RMSE {self.error:.4g} in full, "
            f"{self.error_of_robust:.4g} if they count less, with such errors cut"
        )


@one_blas_thread
def choose_noise(
    records: Sequence[xr.Dataset],
    narx: Narx,
    settings: Settings,
    *,
    starts: list[Start] | None = None,
) -> NoiseChoice | None:
    """Find out whether the hyper-parameters should be estimated for noise with heavy tails.

    Single wrong measurements that `sysid.screen_records` does not find, and noise with heavy tails,
    make the noise of a Gaussian model too large and its function too smooth or too rough. The model
    and the one with `MaximumLikelihood.record_robust` predict held-out folds one step ahead, as in
    `sysid.choose_lags`. No model predicts the large errors themselves: they count as errors of
    `LARGE_ERROR_STDS` standard deviations.

    Parameters
    ----------
    records
        As for `Narx.dataset`.
    narx
        Regressors.
    settings
        Settings of the identification.
    starts
        As for `sysid.held_out.held_out_error`, of the same model.

    Returns
    -------
    NoiseChoice or None
        None if there is nothing to choose: fewer than `MIN_LARGE_FRACTION` of the errors are large,
        the training estimates no hyper-parameters or does so robustly already, the model is linear,
        or the time of the search is up.
    """
    training = settings.training
    if not isinstance(training, MaximumLikelihood) or training.record_robust:
        return None
    if isinstance(training.kernel, Linear):
        return None
    steps = Steps(2)  # as long as each other; without large errors only the first one
    with steps.step():
        errors = held_out_residuals(narx, records, settings, starts=starts)
    if errors is None:
        return None
    largest = LARGE_ERROR_STDS * STDS_PER_MEDIAN_DEVIATION * float(np.median(np.abs(errors)))
    n_large = int((np.abs(errors) > largest).sum())
    if n_large < MIN_LARGE_FRACTION * len(errors):
        return None
    robust = replace(settings, training=replace(training, record_robust=True))
    with steps.step():
        errors_of_robust = held_out_residuals(narx, records, robust)
    if errors_of_robust is None:
        return None
    error, error_of_robust = (
        float(np.sqrt(np.mean(np.minimum(np.abs(values), largest) ** 2)))
        for values in (errors, errors_of_robust)
    )
    choice = NoiseChoice(narx, settings, n_large, len(errors), error, error_of_robust)
    return choice._replace(settings=robust) if choice.is_robust else choice
