"""Settings of the adaptive training."""

import numpy as np
import pytest

from sysid.adaptation import Adaptation
from sysid.adaptive import Adaptive
from sysid.training import Fixed, MaximumAPosteriori, MaximumLikelihood


@pytest.mark.parametrize("name", ["interval", "window", "sample_size", "after_revised", "max_updates"])
@pytest.mark.parametrize("value", [-1, 2.5, "10", True, None])
def test_counts_are_checked(name, value):
    with pytest.raises(ValueError, match=f"Adaptive: {name} must be a whole number of at least [012], got"):
        Adaptive(**{name: value})


@pytest.mark.parametrize(
    ("name", "least"), [("interval", 1), ("window", 1), ("sample_size", 2), ("after_revised", 0), ("max_updates", 1)]
)
def test_least_counts(name, least):
    assert getattr(Adaptive(**{name: least}), name) == least
    with pytest.raises(ValueError, match=f"{name} must be a whole number of at least {least}, got {least - 1}"):
        Adaptive(**{name: least - 1})


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, np.nan, "0.1", True])
@pytest.mark.parametrize("name", ["significance", "tolerance"])
def test_fractions_are_checked(name, value):
    with pytest.raises(ValueError, match=f"Adaptive: {name} must be a number between 0 and 1, got"):
        Adaptive(**{name: value})


def test_the_settings_of_the_first_training_are_checked_too():
    with pytest.raises(ValueError, match="Adaptive: n_initial must be a whole number of at least 2, got 1"):
        Adaptive(n_initial=1)


def test_the_first_training_is_that_of_maximum_a_posteriori():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 2))
    y = np.sin(x[:, 0])
    assert Adaptive(restarts=1).train(x, y, 3) == MaximumAPosteriori(restarts=1).train(x, y, 3)


def test_who_follows():
    one, other = Adaptive().follow(4), Adaptive().follow(4)
    assert isinstance(one, Adaptation)
    assert one is not other
    assert one.estimates == []
    for training in (Fixed(1.0, 1.0, 0.1), MaximumLikelihood(), MaximumAPosteriori()):
        assert training.follow(4) is None
