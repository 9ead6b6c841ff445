"""The true equations of a simulated plant as what a plan predicts with: the limit of control."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from simulators import PathLinearisation, System, linearise_path
from sysid.arrays import Array
from sysid.control.prediction import PlanPrediction, Situation, read_forecast
from sysid.errors import UserError


class TruePlant:
    """Predicts a plan by the equations of the plant from its true state, without process noise.

    No model that is identified can be expected to plan better. With the derivatives A, B and C of
    `simulators.linearise_path`::

        d mean[i] / d driven[j] = C[i+1] A[i] ... A[j+1] B[j],   j <= i

    Parameters
    ----------
    system : System
        All of its inputs act at once.
    state : (n_x,) array_like
        True state at sample k.
    forecast : mapping of str to (T + 1,) array_like
        Values at the samples k ... k + T of the inputs that are not driven.
    driven : sequence of str
        Inputs that are planned.
    time : float
        Time of sample k [s], for parameters that change.
    noise : bool
        Whether `standard_deviation` counts the process noise; else it is zero.

    Raises
    ------
    ValueError
        A signal is missing, a forecast ends before the plan, or what `linearise_path` refuses.
    """

    def __init__(
        self,
        system: System,
        state: ArrayLike,
        forecast: Mapping[str, ArrayLike],
        driven: Sequence[str],
        *,
        time: float = 0.0,
        noise: bool = True,
    ) -> None:
        self._system = system
        self._state = state
        self._forecast = forecast
        self._time = time
        self._noise = noise
        self._input_names = [signal.name for signal in system.inputs]
        self.driven = tuple(driven)
        self.output_names = tuple(signal.name for signal in system.outputs)

    def linearise(self, driven: Array) -> PlanPrediction:
        """Return the outputs (T, m) of a plan (T, q), and their derivatives (T, m, T, q)."""
        path = self._follow(driven, noise=False)
        n_steps, n_states, n_driven = path.B.shape
        states = np.zeros((n_steps, n_states, n_steps * n_driven))  # derivatives by all inputs
        states[0, :, :n_driven] = path.B[0]
        for i in range(1, n_steps):
            np.matmul(path.A[i], states[i - 1], out=states[i])
            states[i, :, i * n_driven : (i + 1) * n_driven] = path.B[i]
        shape = (n_steps, len(self.output_names), n_steps, n_driven)
        sensitivity = np.matmul(path.C[1:], states).reshape(shape)
        return PlanPrediction(path.outputs[1:], sensitivity)

    def standard_deviation(self, driven: Array) -> Array:
        """Return the standard deviations (T, m) of the outputs along a plan.

        ::

            P[0] = 0,   P[i+1] = A[i] P[i] A[i]' + G[i] W G[i]',   std[i]^2 = diag(C[i] P[i] C[i]')

        with the variances W of the process noise. Measurement noise is left out.
        """
        deviations = np.zeros((len(driven), len(self.output_names)))
        if not self._noise or not self._system.noises:
            return deviations
        path = self._follow(driven, noise=True)
        P = np.zeros(path.A.shape[1:])
        for i in range(len(driven)):
            G = path.G[i] * self._system.noise_std()
            P = path.A[i] @ P @ path.A[i].T + G @ G.T
            C = path.C[i + 1]
            deviations[i] = np.sqrt(np.diagonal(C @ P @ C.T))
        return deviations

    def _follow(self, driven: Array, *, noise: bool) -> PathLinearisation:
        """Return the path of a plan (T, q), linearised."""
        n_steps = len(driven)
        columns = []
        for name in self._input_names:
            if name in self.driven:
                columns.append(driven[:, self.driven.index(name)])
            else:
                columns.append(read_forecast(self._forecast, name, n_steps)[:-1])
        return linearise_path(
            self._system,
            self._state,
            np.column_stack(columns),
            inputs=self.driven,
            noise=noise,
            time=self._time,
        )


@dataclass(frozen=True)
class KnowsPlant:
    """Makes the predictors of a `sysid.PredictiveControl` that knows the plant and its true state.

    It is its setting `predictors`. The situation must have the true state.
    """

    system: System
    noise: bool = True  # whether limits are tightened by the process noise

    def __call__(
        self,
        model: object,
        situation: Situation,
        forecast: Mapping[str, ArrayLike],
        driven: Sequence[str],
    ) -> TruePlant:
        """Return the predictor of a decision; no model is needed.

        Raises
        ------
        ValueError
            If the true state is not known.
        """
        if situation.state is None:
            raise UserError(
                "KnowsPlant: expected the true state of the plant in the situation, got None; "
                "only a simulated plant has one"
            )
        return TruePlant(
            self.system,
            situation.state,
            forecast,
            driven,
            time=situation.time,
            noise=self.noise,
        )
