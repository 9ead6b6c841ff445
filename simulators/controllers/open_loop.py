"""No control: every input comes from outside."""

from collections.abc import Sequence
from dataclasses import dataclass

from simulators.controllers.controller import Controller, Memory


@dataclass(frozen=True)
class OpenLoop(Controller):
    """Controller that reads no output and drives no input, so that an open loop runs sample by sample.

    Examples
    --------
    >>> OpenLoop(dt=900.0).control(0.0, (), ())
    ((), ())
    """

    @property
    def outputs_read(self) -> tuple[str, ...]:
        """No output."""
        return ()

    @property
    def inputs_driven(self) -> tuple[str, ...]:
        """No input."""
        return ()

    def initial_state(self) -> Memory:
        """Return no state."""
        return ()

    def control(self, time: float, output: Sequence[float], state: Memory) -> tuple[Memory, Memory]:
        """Return no input and no state."""
        return (), ()
