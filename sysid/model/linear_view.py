"""The linear view of a model at an operating point: poles, gains, Bode plot, step response."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from sysid.arrays import Array, check_whole, vector
from sysid.errors import UserError
from sysid.model.simulated_signals import LinearSignals
from sysid.units import unit_of_difference

#: draws of the coefficients from their posterior, for the bands
N_DRAWS = 1000
#: draws of which the poles are computed
N_POLE_DRAWS = 200
#: largest number of poles of a linear view: their computation grows with its cube
MAX_POLES = 1000
#: numbers in the matrices whose eigenvalues are the poles of the draws, at most
MAX_POLE_NUMBERS = 8_000_000
#: seed of these draws, so that the same model has the same bands
DRAW_SEED = 0
#: probabilities at the ends of a 95 % band
BAND_ENDS = (0.025, 0.975)
#: frequencies of a response if none are given
N_FREQUENCIES = 200
#: frequencies that are computed at a time
FREQUENCY_BLOCK = 64
#: lowest default frequency, as a fraction of the corner frequency of the slowest pole
LOWEST_OF_CORNER = 0.1
#: least ratio of the lowest to the Nyquist frequency among the default frequencies
LEAST_FREQUENCY_RATIO = 1e-5
#: default duration of a step response, in time constants of the slowest pole
STEP_TIME_CONSTANTS = 5.0
#: least and largest default number of samples of a step response
STEP_SAMPLES = (20, 2000)
#: numbers in the step responses of all draws, at most: of many or long ones there are fewer draws,
MAX_STEP_NUMBERS = 10_000_000
#: but at least this many
LEAST_STEP_DRAWS = 100
#: fraction of the static gain that defines the response time of an input: 1 - 1/e
RESPONSE_FRACTION = 0.632
#: a step response beyond this magnitude has run away; larger numbers would overflow
MAX_STEP_MAGNITUDE = 1e100
#: poles of a smaller magnitude belong to lags that end; they are left out of time constants
LEAST_POLE = 1e-6
#: a model is close to an integrator if this fraction of the drawn ones is unstable
MAX_UNSTABLE = 0.025


@dataclass(frozen=True, eq=False)
class LinearView:
    """Linear difference equation of a model at one operating point, with its posterior.

    ::

        y[k] = sum_l A_l y[k-l] + sum_j B_j u[k-j]

    for deviations of the m outputs y and the n_u inputs u from the operating point. The
    coefficients are partial derivatives of the models by their features. Those of a Gaussian
    process are jointly Gaussian, with the linear part, for given hyper-parameters. The bands are
    quantiles of responses of `N_DRAWS` equations that are drawn from this posterior: a response is
    no linear function of the coefficients, least of all close to the stability limit, where the
    linear propagation of the covariance (the delta method) would fail.

    The posterior assumes that noise enters the equation. Half of the draws are therefore taken from
    another estimate (`by_simulation`), which assumes that noise adds to the simulated output. Where
    the two disagree, the bands contain both. Without a record to simulate, the deviations of the
    draws are multiplied by the largest factor of `Model.bands`, by which errors several samples
    ahead were larger than predicted, if it is above 1. `Model.linearize` makes this object.

    Physics beside the models is simulated with the inputs alone; its n_s signals s are features of
    the models. Both are in series, in one linear system::

        s[k] = A_s s[k-1] + sum_j B_sj u[k-j]
        y[k] = sum_l A_l y[k-l] + sum_j B_j u[k-j] + sum_l C_l s[k-l],   l = 0, 1, ...

    where the first line is the linearised physics at the sampling time. Its parameters count as
    known. The poles are those of the physics and those of the feedback of the models.

    Attributes
    ----------
    outputs, inputs
        Names of the signals. An output that has no model counts as an input.
    units
        Units by signal; those of a difference for gains.
    sampling_time
        Unit: `time_unit`.
    time_unit
        "s", or "samples" if the model does not know its sampling time.
    where
        The operating point in words.
    point
        Values of the signals that are constant at the operating point, by name, or values of all
        features.
    coefficients : pandas.DataFrame
        ``value`` and ``std`` over output, signal and lag.
    notes
        What to know about this operating point, such as that it lies outside of the record.
    simulated
        Names of the signals of physics beside the models. They are inner signals of the linear
        system, neither inputs nor outputs.
    by_simulation : LinearView or None
        The view by the weights that the errors of the model's simulation show
        (`sysid.model.simulation_estimate`): noise among the lags does not bias it. None: there is
        no record, or the model cannot simulate it.
    """

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    units: Mapping[str, str]
    sampling_time: float
    time_unit: str
    where: str
    point: Mapping[str, float]
    coefficients: pd.DataFrame
    notes: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()
    by_simulation: LinearView | None = field(default=None, repr=False, kw_only=True)
    #: (1 + N_DRAWS, L_y, m + n_s, m + n_s) of the outputs and the simulated signals: the posterior
    #: mean, then the draws; ``[:, l - 1]`` is lag l
    A: Array = field(repr=False, kw_only=True)
    #: (1 + N_DRAWS, L_u + 1, m + n_s, n_u): ``[:, j]`` is lag j
    B: Array = field(repr=False, kw_only=True)

    # --- poles and gains --------------------------------------------------------------------------

    @cached_property
    def poles(self) -> NDArray[np.complex128]:
        """Poles (L_y (m + n_s),), those of the largest magnitude first."""
        poles = np.linalg.eigvals(_companion(self.A[:1]))[0].astype(np.complex128)
        return np.asarray(poles[np.argsort(-np.abs(poles), kind="stable")])

    @property
    def is_stable(self) -> bool:
        """Whether all poles lie within the unit circle."""
        return bool((np.abs(self.poles) < 1.0).all())

    @cached_property
    def unstable_fraction(self) -> float:
        """Fraction of the posterior, by its draws, that is unstable."""
        size = max(len(self.poles), 1)
        n_draws = min(N_POLE_DRAWS, max(MAX_POLE_NUMBERS // size**2, 1))
        draws = self.A[1 : 1 + n_draws]
        if not len(draws):
            return 0.0 if self.is_stable else 1.0
        poles = np.linalg.eigvals(_companion(draws))
        return float((np.abs(poles).max(axis=1, initial=0.0) >= 1.0).mean())

    @property
    def time_constants(self) -> Array:
        """Time constants ``-T / log|p|`` of the stable poles p, the longest first [`time_unit`].

        A pair of complex poles has one.
        """
        magnitudes = np.abs(self.poles[self.poles.imag >= 0])
        kept = magnitudes[(magnitudes < 1.0) & (magnitudes > LEAST_POLE)]
        return np.asarray(-self.sampling_time / np.log(kept))

    @cached_property
    def static_gain(self) -> xr.Dataset:
        """Static gains G(1) with 95 % bands: ``gain``, ``low``, ``high`` over output and input.

        They are nan if the linear model is unstable: its step response does not settle. An end of a
        band is infinite if the drawn equations include integrators: from a stable one, a pole that
        moves beyond 1 takes the gain through infinity.
        """
        draws = self._transfer(np.ones(1))[:, 0].real
        if not self.is_stable:
            draws = np.full_like(draws, np.nan)
        margin = np.linalg.det(np.eye(self.A.shape[-1]) - self.A.sum(axis=1))
        is_beyond = margin * margin[0] <= 0
        draws = np.where(is_beyond[:, None, None], np.sign(draws[0]) * np.inf, draws)
        low, high = self._band(draws)
        dims = ("output", "input")
        return self._labelled({"gain": draws[0], "low": low, "high": high}, dims, {})

    @cached_property
    def response_time(self) -> xr.Dataset:
        """Times after a step of each input at which 63.2 % of the static gain is reached.

        This is the dominant time constant, the dead time included. Variables: ``time``, and the 95
        % band ``low`` to ``high`` [`time_unit`], over output and input. nan: not reached, or there
        is no static gain.
        """
        steps = self._steps(self.n_step_samples)
        gains = self._transfer(np.ones(1))[: len(steps), 0].real
        with np.errstate(invalid="ignore"):
            has_risen = steps * np.sign(gains)[..., None] >= RESPONSE_FRACTION * np.abs(
                gains[..., None]
            )
        first = has_risen.argmax(axis=-1)
        times = self.sampling_time * self._crossing(steps, gains, first)
        is_reached = has_risen.any(axis=-1) & (gains != 0)
        times = np.where(is_reached & self.is_stable, times, np.nan)
        # a draw that has not settled within the samples is slower than all of them
        slow = np.where(np.isnan(times), np.inf, times)
        low, high = self._band(slow)
        values = {"time": times[0], "low": low, "high": high}
        return self._labelled(values, ("output", "input"), {})

    @staticmethod
    def _crossing(steps: Array, gains: Array, first: NDArray[np.intp]) -> Array:
        """Return the number of samples, with fractions, at which steps cross 63.2 % of the gain."""
        before = np.maximum(first - 1, 0)
        late = np.take_along_axis(steps, first[..., None], axis=-1)[..., 0]
        early = np.take_along_axis(steps, before[..., None], axis=-1)[..., 0]
        rise = late - early
        with np.errstate(divide="ignore", invalid="ignore"):
            fraction = (RESPONSE_FRACTION * gains - early) / rise
        is_between = (first > 0) & (rise != 0)
        return np.asarray(np.where(is_between, before + fraction, first))

    # --- responses --------------------------------------------------------------------------------

    def default_frequencies(self) -> Array:
        """Return frequencies [cycles per `time_unit`] from below the slowest pole to Nyquist."""
        nyquist = 0.5 / self.sampling_time
        lowest = 0.01 * nyquist
        if len(self.time_constants):
            lowest = min(lowest, LOWEST_OF_CORNER / (2 * np.pi * self.time_constants[0]))
        return np.geomspace(max(lowest, LEAST_FREQUENCY_RATIO * nyquist), nyquist, N_FREQUENCIES)

    def frequency_response(self, frequencies: ArrayLike | None = None) -> xr.Dataset:
        """Return the frequency response with 95 % bands over output, input and frequency.

        Parameters
        ----------
        frequencies : (n,), optional
            Above 0, up to the Nyquist frequency [Hz, or cycles per sample].

        Returns
        -------
        xarray.Dataset
            ``magnitude`` [output unit per input unit] and ``phase`` [deg], unwrapped, each with the
            ends ``_low`` and ``_high`` of its band, at every frequency for itself.

        Raises
        ------
        ValueError
            A frequency is not above 0, or beyond the Nyquist frequency.
        """
        f = self.default_frequencies()
        if frequencies is not None:
            f = vector(frequencies, None, "frequencies")
        nyquist = 0.5 / self.sampling_time
        if not ((f > 0) & (f <= nyquist * (1 + 1e-9))).all():
            raise UserError(
                f"frequency_response: expected frequencies above 0 and up to half the sampling "
                f"rate, {nyquist:.6g}, got {f.min():.6g} to {f.max():.6g}"
            )
        z = np.exp(2j * np.pi * f * self.sampling_time)
        n_outputs, n_inputs = len(self.outputs), len(self.inputs)
        values = {
            name: np.empty((n_outputs, n_inputs, len(f)))
            for name in (
                "magnitude",
                "magnitude_low",
                "magnitude_high",
                "phase",
                "phase_low",
                "phase_high",
            )
        }
        for first in range(0, len(f), FREQUENCY_BLOCK):
            block = slice(first, first + FREQUENCY_BLOCK)
            response = np.moveaxis(self._transfer(z[block]), 1, -1)  # (draws, m, n_u, frequencies)
            magnitude = np.abs(response)
            phase = np.angle(response[0])
            with np.errstate(divide="ignore", invalid="ignore"):
                turned = np.angle(response / response[0])
            deviation_low, deviation_high = self._band(np.nan_to_num(turned))
            values["magnitude"][..., block] = magnitude[0]
            values["magnitude_low"][..., block], values["magnitude_high"][..., block] = self._band(
                magnitude
            )
            values["phase"][..., block] = phase
            values["phase_low"][..., block] = deviation_low
            values["phase_high"][..., block] = deviation_high
        phase = np.unwrap(values["phase"], axis=-1)
        values["phase"] = np.degrees(phase)
        values["phase_low"] = np.degrees(phase + values["phase_low"])
        values["phase_high"] = np.degrees(phase + values["phase_high"])
        unit = "Hz" if self.time_unit == "s" else "1"
        return self._labelled(
            values, ("output", "input", "frequency"), {"frequency": ("frequency", f, unit)}
        )

    def mean_response(self, frequencies: Array) -> NDArray[np.complex128]:
        """Return the frequency response (n, m, n_u) of the mean at frequencies (n,)."""
        z = np.exp(2j * np.pi * frequencies * self.sampling_time)
        return replace(self, A=self.A[:1], B=self.B[:1])._transfer(z)[0]

    def step_response(self, n_samples: int | None = None) -> xr.Dataset:
        """Return the responses to a unit step of each input at time zero, with 95 % bands.

        Parameters
        ----------
        n_samples : int, optional
            Number of samples; by default 5 time constants of the slowest pole, 20 to 2000.

        Returns
        -------
        xarray.Dataset
            ``response``, ``low`` and ``high`` over output, input and time.
        """
        if n_samples is not None:
            check_whole(n_samples, 1, "step_response: n_samples")
        n = n_samples or self.n_step_samples
        steps = self._steps(n)
        low, high = self._band(steps)
        time = self.sampling_time * np.arange(n)
        return self._labelled(
            {"response": steps[0], "low": low, "high": high},
            ("output", "input", "time"),
            {"time": ("time", time, self.time_unit)},
        )

    @property
    def n_step_samples(self) -> int:
        """Number of samples after which the step responses have settled, as far as it is known."""
        least, largest = STEP_SAMPLES
        n = least
        if len(self.time_constants):
            n = int(np.ceil(STEP_TIME_CONSTANTS * self.time_constants[0] / self.sampling_time))
        n += self.B.shape[1]
        return int(min(max(n, least), largest))

    def _steps(self, n: int) -> Array:
        """Return the step responses (1 + draws, m, n_u, n) of the mean and of the draws.

        If they would need too much memory, these are the first draws.
        """
        _, n_lags, m, _ = self.A.shape
        n_inputs = len(self.inputs)
        affordable = MAX_STEP_NUMBERS // max(n * m * n_inputs, 1)
        n_draws = min(len(self.A), 1 + max(affordable, LEAST_STEP_DRAWS))
        summed = np.cumsum(self.B[:n_draws], axis=1)
        last = np.zeros((n_draws, n_lags, m, n_inputs))  # newest first
        steps = np.empty((n, n_draws, m, n_inputs))
        A = np.moveaxis(self.A[:n_draws], 1, 2).reshape(n_draws, m, n_lags * m)
        for k in range(n):
            now = summed[:, min(k, summed.shape[1] - 1)]
            if n_lags:
                now = now + A @ last.reshape(n_draws, n_lags * m, n_inputs)
                now = np.clip(now, -MAX_STEP_MAGNITUDE, MAX_STEP_MAGNITUDE)
                last = np.concatenate([now[:, None], last[:, :-1]], axis=1)
            steps[k] = now
        return np.moveaxis(steps[:, :, : len(self.outputs)], 0, -1)

    def _transfer(self, z: NDArray[Any]) -> NDArray[np.complex128]:
        """Return the transfer functions (1 + draws, n, m, n_u) at points z (n,).

        They are the rows of the outputs in ``G(z) = (I - sum_l A_l z^-l)^-1 sum_j B_j z^-j``.
        """
        _, n_lags, m, _ = self.A.shape
        powers_of_outputs = z[:, None] ** -np.arange(1.0, n_lags + 1)
        powers_of_inputs = z[:, None] ** -np.arange(float(self.B.shape[1]))
        feedback = np.tensordot(powers_of_outputs, self.A, axes=(1, 1))  # (n, draws, m, m)
        numerator = np.tensordot(powers_of_inputs, self.B, axes=(1, 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            if m == 1:
                response: Any = numerator / (1.0 - feedback)
            else:
                response = np.linalg.solve(np.eye(m) - feedback, numerator)
        of_outputs = response[:, :, : len(self.outputs)]
        return np.moveaxis(of_outputs, 1, 0).astype(np.complex128)

    @staticmethod
    def _band(draws: Array) -> tuple[Array, Array]:
        """Return the ends of the 95 % band of draws, the first of which is the mean."""
        if len(draws) == 1:
            return draws[0], draws[0]
        low, high = np.quantile(draws[1:], BAND_ENDS, axis=0, method="inverted_cdf")
        return low, high

    def _labelled(
        self,
        values: Mapping[str, Array],
        dims: tuple[str, ...],
        extra: Mapping[str, tuple[str, Any, str]],
    ) -> xr.Dataset:
        """Return variables over outputs and inputs as a data set."""
        coords: dict[str, Any] = {"output": list(self.outputs), "input": list(self.inputs)}
        for name, (dim, numbers, unit) in extra.items():
            coords[name] = (dim, numbers, {"units": unit})
        return xr.Dataset(
            {name: (dims, array) for name, array in values.items()},
            coords=coords,
            attrs={"operating_point": self.where},
        )

    # --- objects of other libraries ---------------------------------------------------------------

    def to_scipy(self, output: str | None = None, input: str | None = None) -> Any:
        """Return the posterior mean as `scipy.signal.dlti`.

        It is a transfer function (`scipy.signal.TransferFunction`) if the view has one output and
        no physics inside, and one input is named or the only one; otherwise a state-space form, of
        all outputs and inputs or of those that are named.

        Raises
        ------
        ValueError
            There is no such output or input.
        """
        from scipy.signal import dlti  # takes 0.1 s

        dt = self.sampling_time
        i = self._find("output", output, self.outputs)
        j = self._find("input", input, self.inputs)
        A, B, C, D = self.state_space()
        if len(self.outputs) == 1 and j is not None and not self.simulated:
            numerator, denominator = self._polynomials(j)
            return dlti(numerator, denominator, dt=dt)
        rows = slice(None) if i is None else slice(i, i + 1)
        columns = slice(None) if j is None else slice(j, j + 1)
        return dlti(A, B[:, columns], C[rows], D[rows][:, columns], dt=dt)

    def to_control(self) -> Any:
        """Return the posterior mean as a ``StateSpace`` of python-control, with named signals.

        Raises
        ------
        ValueError
            The package is not installed: it is the extra ``[control]``.
        """
        try:
            import control
        except ImportError:
            raise UserError(
                "to_control: python-control is not installed; install the extra [control] "
                "(pip install control), or take to_scipy()"
            ) from None
        A, B, C, D = self.state_space()
        names = [name.replace(".", "_") for name in (*self.inputs, *self.outputs)]
        return control.ss(
            A,
            B,
            C,
            D,
            self.sampling_time,
            inputs=names[: len(self.inputs)],
            outputs=names[len(self.inputs) :],
        )

    def state_space(self) -> tuple[Array, Array, Array, Array]:
        """Return A, B, C, D of the posterior mean.

        The states are the lagged outputs, simulated signals and inputs.
        """
        A_of_lags = self.A[0]
        B_of_lags = self.B[0]
        n_lags, m, _ = A_of_lags.shape
        n_input_lags = len(B_of_lags) - 1
        n_inputs = len(self.inputs)
        n_of_outputs = n_lags * m
        n = n_of_outputs + n_input_lags * n_inputs
        C = np.concatenate(
            [
                A_of_lags.transpose(1, 0, 2).reshape(m, n_of_outputs),
                B_of_lags[1:].transpose(1, 0, 2).reshape(m, n - n_of_outputs),
            ],
            axis=1,
        )
        D = B_of_lags[0]
        A = np.zeros((n, n))
        B = np.zeros((n, n_inputs))
        if n_lags:
            A[:m] = C
            B[:m] = D
            A[m:n_of_outputs, : n_of_outputs - m] = np.eye(n_of_outputs - m)
        if n_input_lags:
            B[n_of_outputs : n_of_outputs + n_inputs] = np.eye(n_inputs)
            A[n_of_outputs + n_inputs :, n_of_outputs : n - n_inputs] = np.eye(
                n - n_of_outputs - n_inputs
            )
        n_outputs = len(self.outputs)
        return A, B, C[:n_outputs], D[:n_outputs]

    def _polynomials(self, j: int) -> tuple[Array, Array]:
        """Return numerator and denominator in z of the only output and input j."""
        of_output = self.A[0, :, 0, 0]
        of_input = self.B[0, :, 0, j]
        degree = max(len(of_output), len(of_input) - 1)
        denominator = np.zeros(degree + 1)
        denominator[0] = 1.0
        denominator[1 : len(of_output) + 1] = -of_output
        numerator = np.zeros(degree + 1)
        numerator[: len(of_input)] = of_input
        leading = np.flatnonzero(numerator)
        return numerator[leading[0] :] if len(leading) else np.zeros(1), denominator

    def _find(self, kind: str, name: str | None, names: tuple[str, ...]) -> int | None:
        """Return the position of a signal; None if it is not named and there are several."""
        if name is None:
            return 0 if len(names) == 1 else None
        if name not in names:
            raise UserError(
                f"to_scipy: {kind} must be one of {', '.join(names) or 'none'}, got {name!r}"
            )
        return names.index(name)

    # --- words ------------------------------------------------------------------------------------

    def gain_unit(self, output: str, input: str) -> str:
        """Return the unit of a gain, such as "K per %"; empty if neither unit is known."""
        of_output = unit_of_difference(self.units.get(output, ""))
        of_input = unit_of_difference(self.units.get(input, ""))
        if of_output and of_input:
            return f"{of_output} per {of_input}"
        return f"{of_output} per unit" if of_output else (f"per {of_input}" if of_input else "")

    def describe(self, output: str, input: str) -> str:
        """Return gain and response time of an input in words.

        Such as "heat: +1.31 K per % (95 %: 1.2 to 1.4), 74 s".
        """
        gains = self.static_gain.sel(output=output, input=input)
        gain, low, high = (float(gains[name]) for name in ("gain", "low", "high"))
        if np.isnan(gain):
            return f"{input}: no static gain, the linear model is unstable"
        words = [f"{gain:+.3g}", self.gain_unit(output, input)]
        text = f"{input}: {' '.join(filter(None, words))}"
        if np.isinf(high) and np.isinf(low):
            text += " (95 %: anything)"
        elif np.isinf(high):
            text += f" (95 %: at least {low:.3g})"
        elif np.isinf(low):
            text += f" (95 %: at most {high:.3g})"
        elif low != high:
            text += f" (95 %: {low:.3g} to {high:.3g})"
        time = float(self.response_time["time"].sel(output=output, input=input))
        if np.isfinite(time):
            text += f", {time:.3g} {self.time_unit}"
        return text

    def sentences(self) -> list[str]:
        """Return gains and response times of all inputs in words, those of each output."""
        lines = []
        for output in self.outputs:
            prefix = f"{output}, " if len(self.outputs) > 1 else ""
            lines += [prefix + self.describe(output, input) for input in self.inputs]
        return lines

    @cached_property
    def stability(self) -> str:
        """Whether the linear model is stable, in words."""
        fraction = self.unstable_fraction
        if not self.is_stable:
            return f"unstable: the largest pole has magnitude {abs(self.poles[0]):.4g}"
        if fraction > MAX_UNSTABLE:
            return (
                f"stable, but {100 * fraction:.0f} % of its posterior is not: long-term gains are "
                "uncertain"
            )
        return "stable"

    def __repr__(self) -> str:
        lines = [f"LinearView of {', '.join(self.outputs)} at {self.where}: {self.stability}"]
        lines += self.sentences()
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines)


def _companion(A: Array) -> Array:
    """Return the companion matrices (draws, L m, L m) of coefficients A (draws, L, m, m)."""
    n_draws, n_lags, m, _ = A.shape
    size = n_lags * m
    companion = np.zeros((n_draws, size, size))
    if n_lags:
        companion[:, :m] = np.moveaxis(A, 1, 2).reshape(n_draws, m, size)
        companion[:, m:, : size - m] = np.eye(size - m)
    return companion


class Coefficients(NamedTuple):
    """Gaussian distribution of p coefficients of a difference equation."""

    mean: Array  # (p,)
    root: Array  # R (p, r), R R' = covariance; without columns if the coefficients are certain

    def padded(self, n: int) -> Coefficients:
        """Return n coefficients: these, and zeros."""
        more = n - len(self.mean)
        return Coefficients(np.pad(self.mean, (0, more)), np.pad(self.root, ((0, more), (0, 0))))

    def added(self, rows: list[int], mean: Array, root: Array, n: int) -> Coefficients:
        """Return n coefficients: these, with an independent Gaussian addition to some rows."""
        own = self.padded(n)
        addition = np.zeros((n, root.shape[1]))
        addition[rows] = root
        own.mean[rows] += mean
        return Coefficients(own.mean, np.hstack([own.root, addition]))


def view_of_coefficients(
    outputs: tuple[str, ...],
    inputs: tuple[str, ...],
    features: Mapping[str, tuple[tuple[str, int], ...]],
    posterior: Mapping[str, Coefficients],
    by_simulation: Mapping[str, Coefficients] | None = None,
    *,
    physics: LinearSignals | None = None,
    **facts: Any,
) -> LinearView:
    """Return the linear view of difference equations with uncertain coefficients.

    Parameters
    ----------
    outputs, inputs
        Names of the signals.
    features
        Signals and lags of the coefficients of each output, each pair once.
    posterior
        Distribution of the coefficients of each output.
    by_simulation
        Another distribution of the coefficients of some outputs, as probable as the first one: half
        of the draws are taken from it. The mean of the view is that of the first.
    physics
        Linear recursion of simulated signals among the features; it counts as certain.
    **facts
        Other fields of `LinearView`.
    """
    others = dict(by_simulation or {})
    is_certain = not any(known.root.size for known in (*posterior.values(), *others.values()))
    n_draws = 0 if is_certain else N_DRAWS
    signals = () if physics is None else physics.names
    _check_number_of_poles((*outputs, *signals), features)
    generator = np.random.default_rng(DRAW_SEED)
    equations = {}
    stds = {}
    for output in outputs:
        mean, root = posterior[output]
        draws = _draw(generator, posterior[output], n_draws)
        variance = np.square(root).sum(axis=1)
        if output in others:
            other = others[output]
            # every other draw, so that any first ones are a fair sample
            draws[1::2] = _draw(generator, other, n_draws)[1::2]
            of_other = np.square(other.root).sum(axis=1)
            variance = 0.5 * (variance + of_other) + 0.25 * np.square(other.mean - mean)
        equations[output] = np.vstack([mean, draws])
        stds[output] = np.sqrt(variance)
    second = None
    if others:
        second = view_of_coefficients(
            outputs, inputs, features, {**posterior, **others}, physics=physics, **facts
        )
    rows = [
        (output, name, lag, value, std)
        for output in outputs
        for (name, lag), value, std in zip(
            features[output], posterior[output].mean, stds[output], strict=True
        )
    ]
    table = pd.DataFrame(rows, columns=["output", "signal", "lag", "value", "std"])
    table = table.set_index(["output", "signal", "lag"])
    if physics is None:
        A, B = _matrices(outputs, inputs, features, equations)
    else:
        A, B = _matrices_in_series(outputs, inputs, features, equations, physics)
    return LinearView(
        outputs,
        inputs,
        coefficients=table,
        simulated=signals,
        by_simulation=second,
        A=A,
        B=B,
        **facts,
    )


def _draw(generator: np.random.Generator, known: Coefficients, n_draws: int) -> Array:
    """Return draws (n_draws, p) of coefficients."""
    normal = generator.standard_normal((n_draws, known.root.shape[1]))
    return np.asarray(known.mean + normal @ known.root.T)


def _largest_lags(
    outputs: tuple[str, ...], features: Mapping[str, tuple[tuple[str, int], ...]]
) -> tuple[int, int]:
    """Return the largest lag of the outputs, and that of the inputs."""
    of_outputs = 0
    of_inputs = 0
    for of_output in features.values():
        for name, lag in of_output:
            if name in outputs:
                of_outputs = max(of_outputs, lag)
            else:
                of_inputs = max(of_inputs, lag)
    return of_outputs, of_inputs


def _check_number_of_poles(
    signals: tuple[str, ...], features: Mapping[str, tuple[tuple[str, int], ...]]
) -> None:
    """Raise UserError for more poles than can be computed, of outputs and simulated signals."""
    n_lags, _ = _largest_lags(signals, features)
    if n_lags * len(signals) > MAX_POLES:
        raise UserError(
            f"linearize: the largest lag of {len(signals)} outputs is {n_lags}, which makes "
            f"{n_lags * len(signals)} poles, expected at most {MAX_POLES}: identify a model "
            "with smaller lags, at a longer sampling time"
        )


def _matrices(
    outputs: tuple[str, ...],
    inputs: tuple[str, ...],
    features: Mapping[str, tuple[tuple[str, int], ...]],
    equations: Mapping[str, Array],
) -> tuple[Array, Array]:
    """Return the coefficients (d, p) of each output as `LinearView.A` and `LinearView.B`."""
    n_output_lags, n_input_lags = _largest_lags(outputs, features)
    d = len(equations[outputs[0]])
    A = np.zeros((d, n_output_lags, len(outputs), len(outputs)))
    B = np.zeros((d, n_input_lags + 1, len(outputs), len(inputs)))
    for i, output in enumerate(outputs):
        for column, (name, lag) in enumerate(features[output]):
            values = equations[output][:, column]
            if name in outputs:
                A[:, lag - 1, i, outputs.index(name)] = values
            else:
                B[:, lag, i, inputs.index(name)] = values
    return A, B


def _matrices_in_series(
    outputs: tuple[str, ...],
    inputs: tuple[str, ...],
    features: Mapping[str, tuple[tuple[str, int], ...]],
    equations: Mapping[str, Array],
    physics: LinearSignals,
) -> tuple[Array, Array]:
    """Return `LinearView.A` and `LinearView.B` of models and the physics among their features.

    The rows and columns of the simulated signals s follow those of the outputs. A coefficient c of
    a signal at the sample itself, ``c s[k]``, is that of the terms in the recursion of s[k].
    """
    m = len(outputs)
    signals = (*outputs, *physics.names)
    n_lags, n_input_lags = _largest_lags(signals, features)
    n_lags = max(n_lags, 1)
    n_input_lags = max(n_input_lags, len(physics.B) - 1)
    d = len(equations[outputs[0]])
    A = np.zeros((d, n_lags, len(signals), len(signals)))
    B = np.zeros((d, n_input_lags + 1, len(signals), len(inputs)))
    A[:, 0, m:, m:] = physics.A
    for column, name in enumerate(physics.inputs):
        B[:, : len(physics.B), m:, inputs.index(name)] = physics.B[:, :, column]
    for i, output in enumerate(outputs):
        for column, (name, lag) in enumerate(features[output]):
            values = equations[output][:, column]
            if name not in signals:
                B[:, lag, i, inputs.index(name)] += values
            elif lag > 0:
                A[:, lag - 1, i, signals.index(name)] += values
            else:
                row = signals.index(name)
                A[:, 0, i] += values[:, np.newaxis] * A[:, 0, row]
                B[:, :, i] += values[:, np.newaxis, np.newaxis] * B[:, :, row]
    return A, B
