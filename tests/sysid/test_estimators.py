"""Both estimators as scikit-learn knows them: its checks, its versions, names of columns."""

import sys
from dataclasses import replace

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from small_estimators import QUICK, TARGETS, Y1, U, Y, dynamic, online
from sysid.estimators import EXEMPTED_CHECKS, NarxGPRegressor, OnlineGPRegressor
from sysid.gp.formula import JIT_DISABLED

SMALL_ESTIMATORS = [
    OnlineGPRegressor(budget=20, training=replace(QUICK, n_initial=20, max_iterations=20)),
    NarxGPRegressor(na=1, nb=1, budget=8, training=QUICK, gate="none"),
]


def exempted_checks(estimator):
    """Return the checks that must fail for models of time series."""
    return EXEMPTED_CHECKS if isinstance(estimator, NarxGPRegressor) else {}


@pytest.fixture
def no_bands(monkeypatch):
    """Bands of the simulation, which take long, are not measured."""
    monkeypatch.setattr("sysid.identification.MIN_ROWS_FOR_BANDS", 10**9)


@pytest.mark.slow
@pytest.mark.skipif(JIT_DISABLED, reason="the interface is the same without the compiler")
@pytest.mark.usefixtures("no_bands")
@parametrize_with_checks(SMALL_ESTIMATORS, expected_failed_checks=exempted_checks)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [OnlineGPRegressor(), NarxGPRegressor()], expected_failed_checks=exempted_checks
)
def test_checks_of_scikit_learn_with_default_settings(estimator, check):
    check(estimator)


@pytest.fixture
def no_estimators_yet(monkeypatch):
    """Forget that `sysid.estimators` has been imported."""
    for name in list(sys.modules):
        if name.startswith("sysid.estimators"):
            monkeypatch.delitem(sys.modules, name)


INSTALL_HINT = r'1\.6 or newer .*pip install -e "\.\[sklearn\]"'


@pytest.mark.usefixtures("no_estimators_yet")
def test_a_missing_scikit_learn_is_reported(monkeypatch):
    for name in list(sys.modules):
        if name.partition(".")[0] == "sklearn":
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=INSTALL_HINT):
        import sysid.estimators  # noqa: F401


@pytest.mark.usefixtures("no_estimators_yet")
def test_an_old_scikit_learn_is_reported(monkeypatch):
    import sklearn.utils.validation

    monkeypatch.delattr(sklearn.utils.validation, "validate_data")
    with pytest.raises(ImportError, match=INSTALL_HINT):
        import sysid.estimators  # noqa: F401


@pytest.fixture
def pandas():
    """The package pandas, which is optional."""
    return pytest.importorskip("pandas")


@pytest.fixture
def table(pandas):
    """The inputs as a table with names of columns."""
    return pandas.DataFrame(U, columns=["pump", "y"], index=range(5, 45))


def test_columns_name_the_inputs_of_a_dynamic_model(pandas, table):
    estimator = dynamic(na=None, nb=None, output_lags=1, input_lags={"pump": 1})
    estimator.fit(table, pandas.DataFrame(Y))
    feature_names = estimator.model_.models[0].narx.feature_names
    assert feature_names == ("y1[k-1]", "y2[k-1]", "pump[k-1]")


def test_an_output_has_another_name_than_the_columns(table):
    estimator = dynamic().fit(table, Y1)
    assert estimator.model_.output_names == ("y_",)


def test_columns_name_the_features_of_an_online_gp(pandas, table):
    estimator = online().fit(table, pandas.Series(TARGETS))
    assert estimator.models_[0].narx.input_names == ("pump", "y")
    estimator.learn_one({"y": 1.0, "pump": 2.0}, 3.0)
    assert estimator.n_samples_seen_ == 41
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(table.rename(columns={"pump": "valve"}))
