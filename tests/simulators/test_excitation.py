"""Every excitation keeps its contract; several inputs have independent signals."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
import yaml

import simulators.excitation
from simulators.excitation.excitation import Excitation, excite
from simulators.excitation.filtered_noise import FilteredNoise
from simulators.excitation.multisine import Multisine
from simulators.excitation.none import NoExcitation
from simulators.excitation.prbs import PRBS
from simulators.noise import random_streams

CONF = Path(__file__).parents[2] / "conf" / "excitation"
UNIT = yaml.safe_load((CONF.parent / "operating_point" / "unit.yaml").read_text())
FILES = sorted(CONF.glob("*.yaml"))
NEEDED = {"recorded": {"values": [float(k % 7) for k in range(5000)]}}  # what an option cannot work without
DT = 0.02  # s


def concrete():
    """Every concrete excitation in the modules of the room."""
    found = set()
    for module in pkgutil.iter_modules(simulators.excitation.__path__, "simulators.excitation."):
        for member in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(member) and issubclass(member, Excitation) and not inspect.isabstract(member):
                found.add(member)
    return found


def settings_of(path):
    """What a yaml says, for a system with the operating point of a unit."""
    text = path.read_text()
    for name, value in UNIT.items():
        text = text.replace(f"${{operating_point.{name}}}", "null" if value is None else str(value))
    return yaml.safe_load(text)


def option(path):
    """The excitation of a yaml."""
    settings = {**settings_of(path), **NEEDED.get(path.stem, {})}
    module, _, name = settings.pop("_target_").rpartition(".")
    return getattr(importlib.import_module(module), name)(**settings)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def excitation(request):
    return option(request.param)


def test_every_class_has_a_yaml_and_every_yaml_a_class():
    assert len(concrete()) == len(FILES) >= 10
    assert {type(option(path)) for path in FILES} == concrete()


def test_every_class_stands_in_its_own_file():
    assert len({cls.__module__ for cls in concrete()}) == len(concrete())


def test_yaml_states_the_defaults_and_their_units(excitation):
    path = next(path for path in FILES if type(option(path)) is type(excitation))
    plain = type(excitation)()
    assert replace(excitation, **({"values": None} if path.stem in NEEDED else {})) == plain
    written = settings_of(path)
    assert set(written) - {"_target_"} == {field.name for field in fields(plain)}
    for line in path.read_text().splitlines()[2:]:
        assert "#" in line or line.lstrip().startswith("- "), line


@pytest.mark.parametrize("n", [16, 100, 1001, 4096])
def test_signal_is_a_contiguous_vector_of_finite_floats(excitation, n):
    u = excitation.signal(n, DT, rng())
    assert u.shape == (n,)
    assert u.dtype == np.float64
    assert u.flags.c_contiguous
    assert np.all(np.isfinite(u))


def test_signal_is_that_of_the_generator(excitation):
    first, again, other = (excitation.signal(500, DT, rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    name = type(excitation).__name__
    drawn = not np.array_equal(first, other)
    assert drawn == (name in {"Multisine", "PRBS", "APRBS", "FilteredNoise"}), name


def test_signal_belongs_to_its_caller(excitation):
    excitation.signal(300, DT, rng())[:] = 99.0
    assert not np.any(excitation.signal(300, DT, rng()) == 99.0)


def test_offset_is_added(excitation):
    moved = replace(excitation, offset=excitation.offset + 3.25)
    np.testing.assert_allclose(
        moved.signal(300, DT, rng()), excitation.signal(300, DT, rng()) + 3.25, rtol=0, atol=1e-13
    )


def test_period_is_a_period(excitation):
    n = 400
    P = excitation.period_samples(n, DT)
    if P is None:
        assert type(excitation).__name__ in {"APRBS", "FilteredNoise", "Steps", "Staircase", "Recorded", "NoExcitation"}
    else:
        assert isinstance(P, int)
        assert n <= P  # defaults cover the record once


@pytest.mark.parametrize("n", [0, -1, 2.0, True, None])
def test_a_record_needs_samples(excitation, n):
    with pytest.raises(ValueError, match=r"n_samples=.*expected an integer >= 1"):
        excitation.signal(n, DT, rng())


@pytest.mark.parametrize("dt", [0.0, -1.0, np.nan, np.inf, "1", None])
def test_a_record_needs_a_sampling_interval(excitation, dt):
    with pytest.raises(ValueError, match=r"dt=.*expected a sampling interval > 0 s"):
        excitation.signal(10, dt, rng())


@pytest.mark.parametrize("offset", [np.nan, np.inf, "1", None])
def test_offset_must_be_finite(excitation, offset):
    with pytest.raises(ValueError, match=r"offset=.*expected a finite number"):
        replace(excitation, offset=offset)


def test_settings_are_hashable_and_equal_by_value(excitation):
    assert hash(excitation) == hash(replace(excitation))
    assert excitation == replace(excitation)
    assert excitation != replace(excitation, offset=1.0)


def test_inputs_get_their_signals_by_name():
    signals = excite({"b": NoExcitation(offset=1.0), "a": Multisine(rms=2.0)}, 64, DT, seed=5)
    assert list(signals) == ["b", "a"]
    np.testing.assert_array_equal(signals["b"], np.ones(64))
    assert np.sqrt(np.mean(signals["a"] ** 2)) == pytest.approx(2.0)
    assert excite({}, 64, DT, seed=5) == {}


def test_an_input_keeps_its_signal_whatever_the_others_do():
    alone = excite({"u2": FilteredNoise()}, 50, DT, seed=5)["u2"]
    for others in ({"u1": PRBS(), "u2": FilteredNoise()}, {"u2": FilteredNoise(), "u3": Multisine(), "u": PRBS()}):
        np.testing.assert_array_equal(excite(others, 50, DT, seed=5)["u2"], alone)


def test_the_generator_of_an_input_is_split_off_the_excitation_stream():
    """What a seed means must not change: stream 2 of the seed, then the letters of the name."""
    child = np.random.default_rng(np.random.SeedSequence(5, spawn_key=(2, ord("u"), ord("1"))))
    signal = excite({"u1": FilteredNoise()}, 20, DT, seed=5)["u1"]
    np.testing.assert_array_equal(signal, child.standard_normal(20))


def test_inputs_seeds_and_streams_are_independent():
    n = 4000
    noise = FilteredNoise()
    both = excite({"u1": noise, "u2": noise}, n, DT, seed=5)
    other = excite({"u1": noise}, n, DT, seed=6)
    streams = [stream.standard_normal(n) for stream in random_streams(5)]
    signals = [*both.values(), *other.values(), *streams]
    correlation = np.corrcoef(signals)[:3] - np.eye(len(signals))[:3]
    assert np.abs(correlation).max() < 5 / np.sqrt(n)


@pytest.mark.parametrize("wrong", [1.0, None, Multisine])
def test_only_excitations_excite(wrong):
    with pytest.raises(TypeError, match=r"expected an Excitation for input 'u'"):
        excite({"u": wrong}, 10, DT, seed=0)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match=r"seed=-1"):
        excite({"u": Multisine()}, 10, DT, seed=-1)


def test_a_user_adds_an_excitation_with_one_class():
    @dataclass(frozen=True)
    class Ramp(Excitation):
        slope: float = 1.0

        def deviation(self, n_samples, dt, generator):
            return self.slope * dt * np.arange(n_samples)

    ramp = Ramp(2.0, offset=1.0)
    np.testing.assert_allclose(ramp.signal(3, 0.5, rng()), [1.0, 2.0, 3.0])
    assert ramp.period_samples(3) is None


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_yaml_says_what_it_is(path):
    assert re.match(r"# [A-Z]", path.read_text())
