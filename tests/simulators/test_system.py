"""The role of a system: names of signals."""

import pytest

from simulators import Signal, System


@pytest.mark.parametrize(
    ("states", "outputs"),
    [
        ((Signal("a", "1", ""),), (Signal("a", "1", ""),)),
        ((Signal("time", "1", ""),), ()),
        ((Signal("not a name", "1", ""),), ()),
    ],
)
def test_names_that_would_collide_in_a_dataset_are_refused(states, outputs):
    attributes = {"states": states, "inputs": (), "outputs": outputs, "noises": ()}
    with pytest.raises(ValueError, match=r"Clash: signal name .* rename the signal"):
        type("Clash", (System,), attributes)
