"""The simulated plant: where every input comes from, and what a run of every system stores."""

import importlib
import json

import numpy as np
import pytest

from experiments.plant.plant import plant_of
from helpers.commands import (
    CONF,
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    phase_masks,
    run_identify,
)
from simulators import PI, PRBS, Interpolation, random_streams, simulate

N = 120  # samples
EXCITATIONS = sorted(path.stem for path in (CONF / "excitation").glob("*.yaml"))
OPEN = ("controller=none", "weather=none")
RUNS = [
    ("van_der_pol", "none", OPEN),
    ("building", None, ()),
    ("cascaded_tanks", "none", ("controller=level_pi",)),
]
RUNS += [
    (("building", "bouc_wen", "cascaded_tanks")[k % 3], name, OPEN)
    for k, name in enumerate(EXCITATIONS)
]


def excited(excitation, folder):
    """Overrides of an excitation; most are about the operating point of the system by
    themselves.
    """
    np.savetxt(
        folder / "input.csv",
        0.05 + ((7 * np.arange(N)) % 11 - 5) / 500,
        header="u",
        comments="",
    )
    own = {
        "steps": "excitation.steps=[[0,0.02],[20,-0.02]]",
        "recorded": f"excitation.path={folder}/input.csv",
    }
    return (
        f"excitation={excitation}",
        *([own[excitation]] if excitation in own else []),
    )


def columns(dataset, signals):
    return np.stack([dataset[signal.name].values for signal in signals], axis=1)


@pytest.mark.parametrize(
    ("system", "excitation", "more"), RUNS, ids=lambda value: value if value else ""
)
def test_every_system_excitation_and_controller_runs_and_is_stored(
    system, excitation, more, tmp_path
):
    """The parts add up, and the stored inputs and seed give the stored states again."""
    given = (
        f"duration={N}samples",
        *(excited(excitation, tmp_path) if excitation else ()),
    )
    folder = run_identify(
        tmp_path / "run", *SMALLEST_RUN, f"system={system}", *more, *given, f"narx={system}"
    )
    stored = load_dataset(folder, "trajectory")
    result = load_dataset(folder, "result")
    summary = load_summary(folder)
    counts = [int(part.sum()) for part in phase_masks(result)]
    assert counts == [12, summary["n_seen"], summary["n_validation"]]
    assert sum(counts) == N - int(load_dataset(folder, "narx")["lag"].max())
    assert counts[2] == N // 2, "half of the duration is identified"
    assert np.isfinite(result["mean"].values[phase_masks(result)[2]]).all()
    assert ("set_point" in stored) == (OPEN[0] not in more)
    module, _, name = stored.attrs["system"].rpartition(".")
    found = getattr(importlib.import_module(module), name)(**json.loads(stored.attrs["parameters"]))
    applied = columns(stored, found.inputs) if found.inputs else None
    settings = {
        "seed": int(stored.attrs["seed"]),
        "interpolation": Interpolation(stored.attrs["interpolation"]),
    }
    again = simulate(found, applied, n_samples=N, **settings)
    np.testing.assert_array_equal(columns(stored, found.states), again.state)
    np.testing.assert_array_equal(stored["time"], found.dt * np.arange(N))


def plant(*overrides):
    return plant_of(compose_configuration(*overrides))


@pytest.mark.parametrize(
    ("overrides", "driven", "idle"),
    [
        (OPEN, {"ambient_temperature", "mass_flow"}, []),
        ((*OPEN, "excited=[mass_flow]"), {"mass_flow"}, ["ambient_temperature"]),
        ((*OPEN, "excited=[]"), set(), ["ambient_temperature", "mass_flow"]),
        ((), set(), []),
        (("weather=none",), {"ambient_temperature"}, []),
    ],
)
def test_every_input_has_one_source(overrides, driven, idle):
    found = plant(*overrides)
    sources = [
        *found.excitations,
        *found.weather,
        *found.controller.inputs_driven,
        *found.idle,
    ]
    assert (set(found.excitations), found.idle) == (driven, idle)
    assert sorted(sources) == sorted(found.inputs)
    assert not any(found.exogenous(10, 0)[name].any() for name in idle)


def test_an_input_may_have_an_excitation_of_its_own():
    own = (
        "+excitation@excitations.mass_flow=prbs",
        "excitations.mass_flow.amplitude=0.01",
    )
    own += (
        "excitations.mass_flow.offset=0.05",
        "excitation=multisine",
        "excitation.rms=1",
    )
    for more in ((), ("excited=[mass_flow,ambient_temperature]",)):
        found = plant(*OPEN, *own, *more)
        assert found.excitations["mass_flow"] == PRBS(amplitude=0.01, offset=0.05)
        signals = found.exogenous(64, seed=3)
        np.testing.assert_allclose(np.unique(signals["mass_flow"]), [0.04, 0.06])
        assert np.std(signals["ambient_temperature"]) == pytest.approx(1.0, rel=1e-6)


LOOPS = {
    "open": (
        "system=cascaded_tanks",
        "excitation.offset=4",
        "system.lower_noise_std=0.01",
        "noise.std=0.05",
    ),
    "closed": (
        "weather=none",
        "excitation=multisine",
        "excitation.rms=3",
        "excitation.offset=5",
        "noise.std=0.2",
    ),
    "closed, snr": ("system=cascaded_tanks", "controller=level_pi", "noise.snr_db=30"),
    "autonomous": ("system=van_der_pol", "noise.std=0.1"),
}


@pytest.mark.parametrize("loop", LOOPS)
def test_samples_and_trajectory_are_the_same_numbers(loop):
    ends = []
    for interpolation in Interpolation:
        found = plant(*LOOPS[loop], f"interpolation={interpolation.value}")
        assert found.is_open_loop == (not loop.startswith("closed"))
        whole = found.trajectory(50, seed=5)
        samples = list(found.samples(50, seed=5))
        for name in ("time", "output", "input", "state", "noise", "noise_free_output"):
            assert (
                np.array([getattr(sample, name) for sample in samples]).tobytes()
                == getattr(whole, name).tobytes()
            )
        assert whole.interpolation is interpolation
        assert sum(sample.n_clipped for sample in samples) == whole.n_clipped
        ends.append(whole.state[-1, 0])
    assert len(set(ends)) == {"open": 3, "autonomous": 1}.get(loop, len(set(ends)))


def test_noise_is_on_the_measured_output_alone_and_the_controller_sees_it():
    quiet, noisy = (
        plant("system=bouc_wen", f"noise.std={std}").trajectory(200, seed=1) for std in (0.0, 1e-5)
    )
    for name in ("input", "state", "noise", "noise_free_output"):
        np.testing.assert_array_equal(getattr(quiet, name), getattr(noisy, name))
    error = noisy.output - noisy.noise_free_output
    np.testing.assert_allclose(
        error[:, 0],
        1e-5 * random_streams(1).measurement.standard_normal(200),
        atol=1e-16,
    )
    whole = plant("noise.std=0.5").trajectory(60, seed=1)
    law = PI()
    for outputs, same in ((whole.output, True), (whole.noise_free_output, False)):
        memory = law.initial_state()
        inputs = []
        for time, y in zip(whole.time, outputs, strict=True):
            (u,), memory = law.control(float(time), y.tolist(), memory)
            inputs.append(u)
        assert np.array_equal(inputs, whole.input[:, 1]) == same
