"""The simulated plant: the source of every input, and what a run of every system stores."""

import importlib
import json
from functools import cache

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

N_SAMPLES = 120
#: Those of the inputs of the heater have times that suit no other system.
HEATER_EXCITATIONS = ("heater_flow", "heater_heat")
EXCITATIONS = sorted(
    {path.stem for path in (CONF / "excitation").glob("*.yaml")} - {*HEATER_EXCITATIONS}
)
SYSTEMS = ("building", "bouc_wen", "cascaded_tanks")
OPEN_LOOP = ("controller=none", "weather=none")


def runs_of_every_part():
    """Yield a system, an excitation and overrides; every system and excitation is in one run."""
    yield pytest.param("van_der_pol", "none", OPEN_LOOP, id="van_der_pol")
    yield pytest.param("building", None, (), id="building")
    yield pytest.param("cascaded_tanks", "none", ("controller=level_pi",), id="level_pi")
    yield pytest.param("heater", None, OPEN_LOOP, id="heater")
    for k, excitation in enumerate(EXCITATIONS):
        system = SYSTEMS[k % len(SYSTEMS)]
        yield pytest.param(system, excitation, OPEN_LOOP, id=f"{system}-{excitation}")


def excitation_overrides(excitation, folder):
    """Return the overrides of an excitation; two of them have settings without a default."""
    if excitation is None:
        return ()
    overrides = [f"excitation={excitation}"]
    if excitation == "steps":
        overrides.append("excitation.steps=[[0,0.02],[20,-0.02]]")
    if excitation == "recorded":
        values = 0.05 + ((7 * np.arange(N_SAMPLES)) % 11 - 5) / 500
        np.savetxt(folder / "input.csv", values, header="u", comments="")
        overrides.append(f"excitation.path={folder}/input.csv")
    return overrides


def stack_signals(dataset, signals):
    """Return the values of the signals, one column for each."""
    return np.stack([dataset[signal.name].values for signal in signals], axis=1)


def make_system_of(trajectory):
    """Return the system that a stored trajectory names, with its parameters."""
    module, _, name = trajectory.attrs["system"].rpartition(".")
    system_class = getattr(importlib.import_module(module), name)
    return system_class(**json.loads(trajectory.attrs["parameters"]))


@pytest.mark.parametrize(("system", "excitation", "overrides"), list(runs_of_every_part()))
def test_every_system_excitation_and_controller_runs_and_is_stored(
    system, excitation, overrides, tmp_path
):
    """The phases add up, and the stored inputs and seed give the stored states again."""
    folder = run_identify(
        tmp_path / "run",
        *SMALLEST_RUN,
        "propagation=mean_only",
        f"system={system}",
        *overrides,
        f"duration={N_SAMPLES}samples",
        *excitation_overrides(excitation, tmp_path),
        "narx=auto" if system == "heater" else f"narx={system}",
    )

    stored = load_dataset(folder, "trajectory")
    result = load_dataset(folder, "result")
    summary = load_summary(folder)
    max_lag = int(load_dataset(folder, "narx")["lag"].max())
    masks = phase_masks(result)
    counts = [int(mask.sum()) for mask in masks]
    assert counts == [12, summary["n_seen"], summary["n_validation"]]
    assert sum(counts) == N_SAMPLES - max_lag
    assert counts[2] == N_SAMPLES // 2, "half of the duration is identified"
    assert np.isfinite(result["mean"].values[masks[2]]).all()
    has_controller = "controller=none" not in overrides
    assert ("set_point" in stored) == has_controller

    model = make_system_of(stored)
    inputs = stack_signals(stored, model.inputs) if model.inputs else None
    again = simulate(
        model,
        inputs,
        n_samples=N_SAMPLES,
        seed=int(stored.attrs["seed"]),
        interpolation=Interpolation(stored.attrs["interpolation"]),
    )
    np.testing.assert_array_equal(stack_signals(stored, model.states), again.state)
    np.testing.assert_array_equal(stored["time"], model.dt * np.arange(N_SAMPLES))


@cache
def make_plant(*overrides):
    """Return the plant of `sysid-identify` with these overrides."""
    return plant_of(compose_configuration(*overrides))


@pytest.mark.parametrize(
    ("overrides", "excited", "idle"),
    [
        pytest.param(OPEN_LOOP, {"ambient_temperature", "mass_flow"}, [], id="open loop"),
        pytest.param(
            (*OPEN_LOOP, "excited=[mass_flow]"),
            {"mass_flow"},
            ["ambient_temperature"],
            id="one excited",
        ),
        pytest.param(
            (*OPEN_LOOP, "excited=[]"),
            set(),
            ["ambient_temperature", "mass_flow"],
            id="none excited",
        ),
        pytest.param((), set(), [], id="weather and controller"),
        pytest.param(("weather=none",), {"ambient_temperature"}, [], id="controller"),
    ],
)
def test_every_input_has_one_source(overrides, excited, idle):
    plant = make_plant(*overrides)

    assert set(plant.excitations) == excited
    assert plant.idle == idle
    sources = [*plant.excitations, *plant.weather, *plant.controller.inputs_driven, *plant.idle]
    assert sorted(sources) == sorted(plant.inputs)
    exogenous = plant.exogenous(10, 0)
    assert not any(exogenous[name].any() for name in idle)


@pytest.mark.parametrize(
    "overrides",
    [(), ("excited=[mass_flow,ambient_temperature]",)],
    ids=["all excited", "excited inputs named"],
)
def test_an_input_may_have_its_own_excitation(overrides):
    excitations = (
        "+excitation@excitations.mass_flow=prbs",
        "excitations.mass_flow.amplitude=0.01",
        "excitations.mass_flow.offset=0.05",
        "excitation=multisine",
        "excitation.rms=1",
    )

    plant = make_plant(*OPEN_LOOP, *excitations, *overrides)

    assert plant.excitations["mass_flow"] == PRBS(amplitude=0.01, offset=0.05)
    signals = plant.exogenous(64, seed=3)
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


#: every loop and every interpolation is in one of these cases; all other pairs are slow
QUICK_PAIRS = {
    ("open", Interpolation.held),
    ("open", Interpolation.linear),
    ("open", Interpolation.band_limited),
    ("closed", Interpolation.linear),
    ("closed, snr", Interpolation.held),
    ("autonomous", Interpolation.band_limited),
}


def pairs_of_loop_and_interpolation():
    """Yield all pairs as parameters of a test."""
    for loop in LOOPS:
        for interpolation in Interpolation:
            is_quick = (loop, interpolation) in QUICK_PAIRS
            marks = () if is_quick else pytest.mark.slow
            yield pytest.param(
                loop, interpolation, marks=marks, id=f"{loop}, {interpolation.value}"
            )


@pytest.mark.parametrize(("loop", "interpolation"), list(pairs_of_loop_and_interpolation()))
def test_samples_and_trajectory_are_the_same_numbers(loop, interpolation):
    plant = make_plant(*LOOPS[loop], f"interpolation={interpolation.value}")

    whole = plant.trajectory(50, seed=5)
    samples = list(plant.samples(50, seed=5))

    assert plant.is_open_loop == (not loop.startswith("closed"))
    for name in ("time", "output", "input", "state", "noise", "noise_free_output"):
        of_samples = np.array([getattr(sample, name) for sample in samples])
        assert of_samples.tobytes() == getattr(whole, name).tobytes(), name
    assert whole.interpolation is interpolation
    assert sum(sample.n_clipped for sample in samples) == whole.n_clipped


@pytest.mark.parametrize(("loop", "n_different"), [("open", len(Interpolation)), ("autonomous", 1)])
def test_the_interpolation_of_inputs_changes_a_plant_that_has_inputs(loop, n_different):
    last_states = set()
    for interpolation in Interpolation:
        plant = make_plant(*LOOPS[loop], f"interpolation={interpolation.value}")
        last_states.add(plant.trajectory(50, seed=5).state[-1, 0])

    assert len(last_states) == n_different


def test_measurement_noise_is_on_the_measured_output_alone():
    quiet, noisy = (
        make_plant("system=bouc_wen", f"noise.std={std}").trajectory(200, seed=1)
        for std in (0.0, 1e-5)
    )

    for name in ("input", "state", "noise", "noise_free_output"):
        np.testing.assert_array_equal(getattr(quiet, name), getattr(noisy, name))
    error = noisy.output - noisy.noise_free_output
    expected = 1e-5 * random_streams(1).measurement.standard_normal(200)
    np.testing.assert_allclose(error[:, 0], expected, atol=1e-16)


@pytest.mark.parametrize(
    ("signal", "is_seen"), [("output", True), ("noise_free_output", False)], ids=str
)
def test_the_controller_sees_the_measurement_noise(signal, is_seen):
    """The stored commands follow from the measured output, and not from the noise-free one."""
    whole = make_plant("noise.std=0.5").trajectory(60, seed=1)
    controller = PI()

    memory = controller.initial_state()
    commands = []
    for time, y in zip(whole.time, getattr(whole, signal), strict=True):
        (u,), memory = controller.control(float(time), y.tolist(), memory)
        commands.append(u)

    assert np.array_equal(commands, whole.input[:, 1]) == is_seen
