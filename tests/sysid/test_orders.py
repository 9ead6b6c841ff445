"""Lags as numbers na, nb, nk."""

import pytest

from sysid.narx import Narx, OnMissing, Target
from sysid.orders import Orders


@pytest.mark.parametrize(
    ("na", "nb", "nk", "names"),
    [
        (2, 3, 1, ("y[k-1]", "y[k-2]", "u[k-1]", "u[k-2]", "u[k-3]")),
        (1, 2, 0, ("y[k-1]", "u[k]", "u[k-1]")),
        (1, 1, 4, ("y[k-1]", "u[k-4]")),
        (3, 0, 1, ("y[k-1]", "y[k-2]", "y[k-3]")),
    ],
)
def test_lags_are_those_of_matlab(na, nb, nk, names):
    """y[k] = f(y[k-1], ..., y[k-na], u[k-nk], ..., u[k-nk-nb+1])."""
    assert Orders(na, nb, nk).narx(["y"], ["u"]).feature_names == names


def test_a_list_has_one_order_for_each_signal():
    narx = Orders(na=[2, 1], nb=[1, 2], nk=[0, 3]).narx(["y", "z"], ["u", "v"])
    assert narx == Narx({"y": [1, 2], "z": [1]}, {"u": [0], "v": [3, 4]})
    assert narx.lags == {"y": (1, 2), "z": (1,), "u": (0,), "v": (3, 4)}


def test_a_number_serves_all_signals():
    assert Orders(1, 2, 1).narx(["y", "z"], ["u", "v"]).lags == {"y": (1,), "z": (1,), "u": (1, 2), "v": (1, 2)}


def test_other_settings_are_passed_on():
    narx = Orders(na=0, nb=2, nk=0, predict="value", on_missing="skip").narx(["y"], ["u"])
    assert (narx.predict, narx.on_missing) == (Target.value, OnMissing.skip)
    assert narx.lags == {"y": (), "u": (0, 1)}
    assert Orders(1, 1, 1, target="z").narx(["y", "z"], []).target == "z"


def test_an_output_of_order_0_is_left_out_if_it_is_not_predicted():
    assert Orders(na=[1, 0]).narx(["y", "z"], ["u"]).output_names == ("y",)


@pytest.mark.parametrize("name", ["na", "nb", "nk"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "2", [1, -1], None])
def test_orders_are_whole_numbers(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        Orders(**{name: value})


@pytest.mark.parametrize(("orders", "words"), [({"na": [1, 1]}, "one number na"), ({"nk": [1, 1]}, "one number nk")])
def test_lists_have_the_length_of_the_signals(orders, words):
    with pytest.raises(ValueError, match=words):
        Orders(**orders).narx(["y"], ["u"])


def test_a_change_needs_a_lag():
    with pytest.raises(ValueError, match="value"):
        Orders(na=0).narx(["y"], ["u"])
