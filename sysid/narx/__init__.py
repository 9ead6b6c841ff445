"""Lags: from signals to regressors and targets, live and from records."""
