"""What enters a simulation: whole numbers count as numbers, anything else is refused with what came."""

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest
import xarray as xr
from plants import Lag, concrete_systems

from simulators import Interpolation, Signal, System, closed_loop, simulate, simulate_many
from simulators.controllers.open_loop import OpenLoop
from simulators.grey_box import fit_output_error
from simulators.output_error import FreeParameter
from simulators.systems.van_der_pol import VanDerPol
from simulators.vector import deviation_vector, parameter_vector, start_vector


@dataclass(frozen=True)
class Duffing(System):
    """x'' = u - d x' - k x - x^3 with whole numbers in every field."""

    states: ClassVar = (Signal("position", "m", "position"), Signal("velocity", "m/s", "velocity"))
    inputs: ClassVar = (Signal("force", "N", "force"),)
    outputs: ClassVar = (Signal("seen", "m", "position"),)
    noises: ClassVar = (Signal("gust", "N", "noise"),)
    dt: float = 1
    substeps: int = 20
    damping: float = 1
    stiffness: float = 2
    start: float = 1
    gust_std: float = 3

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = state[1]
        derivative[1] = input[0] - parameters[0] * state[1] - parameters[1] ** -1 * state[0] - state[0] ** 3 + noise[0]

    def parameters(self):
        return np.array([self.damping, self.stiffness])

    def initial_state(self):
        return np.array([self.start, 0])

    def noise_std(self):
        return np.array([self.gust_std])


def in_floats(system):
    return replace(system, **{f.name: float(getattr(system, f.name)) for f in fields(system) if f.name != "substeps"})


def accepted(system, name):
    """The system with this field as the first whole number that it takes, near its value; None if it takes none."""
    value = getattr(system, name)
    for whole in sorted(range(-60, 90), key=lambda number: abs(number - value)):
        try:
            return replace(system, **{name: whole})
        except ValueError:
            continue
    return None


@pytest.mark.parametrize("cls", concrete_systems(), ids=lambda cls: cls.__name__)
def test_every_field_of_every_system_may_be_a_whole_number(cls):
    """One field after the other, and all together: vectors of floats, equal to those of the same floats."""
    names = [f.name for f in fields(cls) if f.name != "substeps"]
    together, given = cls(), 0
    for name in names:
        together = accepted(together, name) or together
        for system in (accepted(cls(), name), together):
            if system is None:
                continue
            given += 1
            assert simulate(system, np.ones((1, len(cls.inputs)))).state.dtype == np.float64
            for vector in (parameter_vector, start_vector, deviation_vector):
                assert vector(system).dtype == np.float64
                np.testing.assert_array_equal(vector(system), vector(in_floats(system)))
    assert given > len(names)


@pytest.mark.parametrize("system", [Duffing(), VanDerPol(damping=2), VanDerPol(damping=3, acceleration_noise_std=1)])
def test_systems_of_whole_numbers_are_simulated_as_those_of_floats(system):
    n = 5
    u = np.arange(n * len(system.inputs)).reshape(n, -1)
    one, other = simulate(system, u), simulate(in_floats(system), u.astype(float))
    for name in ("state", "noise", "output"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(simulate_many(system, u, seeds=[0])[0].state, other.state)
    exogenous = {signal.name: column for signal, column in zip(system.inputs, u.T, strict=True)}
    loop = closed_loop(system, OpenLoop(dt=system.dt), exogenous, n_samples=n)
    np.testing.assert_array_equal([sample.state for sample in loop], other.state)


def test_parameters_of_an_ensemble_may_be_whole_numbers():
    whole, floats = (
        simulate_many(VanDerPol(), n_samples=9, seeds=[0, 0, 0], parameters={"damping": values})
        for values in ([1, 2, 3], [1.0, 2.0, 3.0])
    )
    np.testing.assert_array_equal(whole.state, floats.state)


@dataclass(frozen=True)
class Stating(Lag):
    """A lag that states whatever it is told."""

    told: ClassVar[dict[str, Any]] = {}

    def parameters(self):
        return self.told.get("parameters", super().parameters())

    def initial_state(self):
        return self.told.get("initial_state", super().initial_state())

    def noise_std(self):
        return self.told.get("noise_std", super().noise_std())


@pytest.mark.parametrize("method", ["parameters", "initial_state", "noise_std"])
@pytest.mark.parametrize(
    "value", [np.array([np.nan]), [1j], "ab", [[1.0]], 1.0, None, [[1.0], [1.0, 2.0]], np.array([np.inf])], ids=str
)
def test_a_vector_that_is_none_is_told_with_class_and_method(method, value):
    system = type("Odd", (Stating,), {"told": {method: value}})()
    message = rf"Odd\.{method}\(\) returned .*: expected a vector of .*finite numbers; return np\.array"
    with pytest.raises(ValueError, match=message):
        simulate(system, np.zeros(3))
    with pytest.raises(ValueError, match=message):
        simulate_many(system, np.zeros(3), n_trajectories=2)


@pytest.mark.parametrize("method", ["initial_state", "noise_std"])
def test_a_vector_of_another_length_is_refused(method):
    system = type("Long", (Stating,), {"told": {method: np.zeros(2)}})()
    with pytest.raises(
        ValueError, match=rf"Long\.{method}\(\) returned array.*: expected a vector of 1 finite numbers"
    ):
        simulate(system, np.zeros(3))


def test_a_start_that_is_no_vector_names_its_trajectory():
    @dataclass(frozen=True)
    class Fragile(Lag):
        def initial_state(self):
            return np.full(1 if self.initial_level < 1 else 2, self.initial_level)

    with pytest.raises(ValueError, match=r"^trajectory 1: Fragile\.initial_state\(\) returned"):
        simulate_many(Fragile(), np.zeros(3), parameters={"initial_level": [0.0, 1.0]})


BAD_INPUTS = [
    (np.zeros(3, complex), TypeError, "expected real numbers, got ndarray of type complex128"),
    (["1.0", "2.0"], TypeError, "expected real numbers, got list of type <U3"),
    ([1.0, None], TypeError, "expected real numbers, got list of type object"),
    ({"drive": [1.0]}, TypeError, "expected real numbers, got dict of type object"),
    ([[1.0], [1.0, 2.0]], ValueError, "expected rows of one length"),
]


@pytest.mark.parametrize(("values", "kind", "message"), BAD_INPUTS)
def test_inputs_and_starts_that_are_no_real_numbers_are_refused(values, kind, message):
    with pytest.raises(kind, match=rf"Lag: input with columns \['drive'\]: {message}"):
        simulate(Lag(), values)
    with pytest.raises(kind, match=rf"Lag: input: {message}"):
        simulate_many(Lag(), values, n_trajectories=2)
    with pytest.raises(kind, match=rf"closed_loop: input 'drive': {message}"):
        closed_loop(Lag(), OpenLoop(dt=0.1), {"drive": values})
    with pytest.raises(kind, match=rf"initial_state: {message}"):
        simulate(Lag(), np.zeros(3), initial_state=values)
    with pytest.raises(kind, match=rf"initial_states: {message}"):
        simulate_many(Lag(), np.zeros(3), initial_states=values)


@pytest.mark.parametrize("convert", [list, tuple, np.float32, xr.DataArray, lambda u: u > 0])
def test_real_numbers_of_any_kind_are_inputs(convert):
    u = np.array([0, 1, 1, 0])
    np.testing.assert_array_equal(simulate(Lag(), convert(u)).state, simulate(Lag(), u).state)


@pytest.mark.parametrize("n_samples", [2.5, "3", 0, -1, True, np.float64(3)])
def test_numbers_of_samples_are_integers(n_samples):
    runs = [
        lambda: simulate(VanDerPol(), n_samples=n_samples),
        lambda: simulate(Lag(), np.zeros(3), n_samples=n_samples),
        lambda: simulate_many(VanDerPol(), n_samples=n_samples, n_trajectories=2),
        lambda: closed_loop(VanDerPol(), OpenLoop(dt=0.1), {}, n_samples=n_samples),
    ]
    for run in runs:
        with pytest.raises(ValueError, match=r"n_samples=.*: expected an integer >= 1; change n_samples"):
            run()
    assert len(simulate(VanDerPol(), n_samples=np.int64(3)).time) == 3


def test_numbers_of_trajectories_and_workers_are_integers():
    with pytest.raises(ValueError, match=r"one number N >= 1 of trajectories, got \{'n_trajectories': 2\.5\}"):
        simulate_many(VanDerPol(), n_samples=3, n_trajectories=2.5)
    with pytest.raises(ValueError, match=r"workers=1\.5\): expected an integer of at least 1"):
        simulate_many(VanDerPol(), n_samples=3, n_trajectories=2, workers=1.5)


def test_interpolation_may_be_named():
    u = np.sin(np.arange(9.0))
    for kind in Interpolation:
        record = simulate(Lag(), u, interpolation=kind.value)
        assert record.interpolation is kind
        np.testing.assert_array_equal(record.state, simulate(Lag(), u, interpolation=kind).state)
        many = simulate_many(Lag(), u, n_trajectories=1, interpolation=kind.value)
        assert many.interpolation is kind
        np.testing.assert_array_equal(many.state[0], record.state)
        loop = closed_loop(Lag(), OpenLoop(dt=0.1), {"drive": u}, interpolation=kind.value)
        np.testing.assert_array_equal([sample.state for sample in loop], record.state)


@pytest.mark.parametrize("value", ["cubic", None, 3])
def test_unknown_interpolations_are_refused(value):
    message = rf"interpolation={value!r}: expected one of 'held', 'linear', 'band_limited'; change interpolation"
    runs = [
        lambda: simulate(Lag(), np.zeros(3), interpolation=value),
        lambda: simulate_many(Lag(), np.zeros(3), n_trajectories=1, interpolation=value),
        lambda: closed_loop(Lag(), OpenLoop(dt=0.1), {"drive": np.zeros(3)}, interpolation=value),
        lambda: fit_output_error(
            Lag(), [(np.ones(9), np.ones(9))], [FreeParameter("time_constant", 0.5, 2.0)], interpolation=value
        ),
    ]
    for run in runs:
        with pytest.raises(ValueError, match=message):
            run()


@pytest.mark.parametrize("parameters", [[1.0, 2.0], np.ones(3), "damping", 2.0])
def test_parameters_that_are_no_mapping_are_refused(parameters):
    message = (
        rf"parameters as a mapping of fields .* got {type(parameters).__name__}; name the field, say parameters=\{{'"
    )
    with pytest.raises(TypeError, match=message):
        simulate_many(VanDerPol(), n_samples=3, parameters=parameters)


def test_exogenous_inputs_that_are_no_mapping_are_refused():
    message = r"closed_loop: expected exogenous inputs as a mapping .*got ndarray; .* names among \['drive'\]"
    with pytest.raises(TypeError, match=message):
        closed_loop(Lag(), OpenLoop(dt=0.1), np.zeros(3))


def test_a_class_in_place_of_a_system_is_told():
    with pytest.raises(TypeError, match=r"expected a system to simulate, got <class .*; write VanDerPol\(\)"):
        simulate(VanDerPol, n_samples=3)
    with pytest.raises(TypeError, match="expected a system to simulate, got 'VanDerPol'; build one"):
        simulate_many("VanDerPol", n_samples=3, n_trajectories=2)
