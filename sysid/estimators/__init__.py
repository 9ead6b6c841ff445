"""Interfaces of scikit-learn and river; needs the extra ``sklearn``."""

try:
    from sysid.estimators.narx_gp import EXEMPTED_CHECKS, NarxGPRegressor
    from sysid.estimators.online_gp import OnlineGPRegressor
except ImportError as error:
    if (error.name or "").partition(".")[0] != "sklearn":
        raise
    raise ImportError(
        f'sysid.estimators needs scikit-learn 1.6 or newer ({error}): pip install -e ".[sklearn]"'
    ) from error


__all__ = ["EXEMPTED_CHECKS", "NarxGPRegressor", "OnlineGPRegressor"]
