"""Lags: regressors and targets from signals, live and from records."""
