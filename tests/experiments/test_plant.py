"""The simulated plant: where every input comes from, and what a run of every system stores."""

import importlib
import json

import numpy as np
import pytest
from running import CONF, PLAIN, bits, configured, data_of, execute, phases, summary_of

from experiments.plant import plant_of
from simulators import PI, PRBS, Interpolation, random_streams, simulate
from sysid import store

if PLAIN:
    pytest.skip(
        "plants are put together alike without the compiler; tests/simulators runs every system",
        allow_module_level=True,
    )

N = 120  # samples
SMALL = (f"duration={N}samples", "training.n_initial=12", "training.restarts=1", "budget=10", "figures=false")
SYSTEMS = sorted(path.stem for path in (CONF / "system").glob("*.yaml") if path.stem != "none")
EXCITATIONS = sorted(path.stem for path in (CONF / "excitation").glob("*.yaml"))
#: operating points at which every system stays within its physical limits
POINT = {"building": (0.05, 0.01), "bouc_wen": (0.0, 20.0), "cascaded_tanks": (4.0, 1.0)}  # offset, amplitude
SCALES = {
    "multisine": ["rms"],
    "filtered_noise": ["std"],
    "aprbs": ["-low", "high"],
    "staircase": ["-low", "high"],
    "none": [],
    "recorded": [],
    "steps": [],
}
OPEN = ("controller=none", "weather=none")
#: an oscillator without inputs is the same under every excitation
OPEN_LOOPS = [(s, e) for s in SYSTEMS for e in EXCITATIONS if s != "van_der_pol" or e in ("multisine", "none")]


def excited(system, excitation, tmp_path):
    """Overrides that excite an input of a system about its operating point."""
    offset, size = POINT.get(system, (0.0, 1.0))
    given = [f"excitation={excitation}", f"excitation.offset={offset}"]
    for name in SCALES.get(excitation, ["amplitude"]):
        given.append(f"excitation.{name.lstrip('-')}={-size if name.startswith('-') else size}")
    if excitation == "steps":
        given.append(f"excitation.steps=[[0,{size}],[20,{-size}]]")
    if excitation == "recorded":
        path = tmp_path / "input.csv"
        path.write_text("u\n" + "\n".join(f"{size * ((7 * k) % 11 - 5) / 5:.6f}" for k in range(N)) + "\n")
        given.append(f"excitation.path={path}")
    return given


def system_of(dataset):
    """System that a stored trajectory names, with its parameters."""
    module, _, name = dataset.attrs["system"].rpartition(".")
    return getattr(importlib.import_module(module), name)(**json.loads(dataset.attrs["parameters"]))


def columns(dataset, signals):
    return np.stack([dataset[signal.name].values for signal in signals], axis=1)


def check_reproduced(folder):
    """Simulate a stored trajectory again from its inputs and its seed alone."""
    stored = store.read(folder / "trajectory.nc", kind="trajectory")
    system = system_of(stored)
    inputs = columns(stored, system.inputs) if system.inputs else None
    again = simulate(
        system,
        inputs,
        n_samples=stored.sizes["time"],
        seed=int(stored.attrs["seed"]),
        interpolation=Interpolation(stored.attrs["interpolation"]),
    )
    np.testing.assert_array_equal(columns(stored, system.states), again.state)
    np.testing.assert_array_equal(stored["time"], system.dt * np.arange(stored.sizes["time"]))


def check_run(folder):
    """A finished run has every file, and its parts add up to the samples with all their lags."""
    summary, result, rows = summary_of(folder), data_of(folder, "result"), data_of(folder, "narx")
    assert {path.name for path in folder.iterdir()} == {
        *(f"{kind}.nc" for kind in ("trajectory", "narx", "result", "model")),
        "summary.json",
    }
    counts = [int(part.sum()) for part in phases(result)]
    assert counts == [12, summary["n_seen"], summary["n_validation"]]
    max_lag = int(rows["lag"].max())
    assert sum(counts) == N - max_lag == rows.sizes["sample"]
    assert counts[2] == N - 1 - (N - 1) // 2, "half of the duration is identified"
    assert np.isfinite(result["mean"].values[phases(result)[2]]).all()
    trajectory = data_of(folder, "trajectory")
    np.testing.assert_array_equal(trajectory["part"], np.arange(N) > (N - 1) // 2)
    assert (trajectory["record"] == 0).all()


@pytest.mark.parametrize(("system", "excitation"), OPEN_LOOPS)
def test_every_system_runs_open_loop_under_every_excitation(system, excitation, tmp_path):
    name = f"narx={system}"  # the lags of an input that rests cannot be read
    folder = execute(tmp_path / "run", *SMALL, f"system={system}", *OPEN, *excited(system, excitation, tmp_path), name)
    check_run(folder)
    check_reproduced(folder)


CLOSED = [("building", "pi", ()), ("cascaded_tanks", "level_pi", ()), ("building", "pi", ("weather=none",))]


@pytest.mark.parametrize(("system", "controller", "more"), CLOSED)
def test_every_system_runs_under_every_controller_that_fits(system, controller, more, tmp_path):
    folder = execute(tmp_path, *SMALL, f"system={system}", f"controller={controller}", *more)
    check_run(folder)
    check_reproduced(folder)
    assert "set_point" in data_of(folder, "trajectory")


def test_every_controller_is_among_those():
    assert {name for _, name, _ in CLOSED} | {"none"} == {path.stem for path in (CONF / "controller").glob("*.yaml")}


def plant(*overrides):
    return plant_of(configured(*overrides))


def refused(*overrides):
    with pytest.raises(ValueError, match=r".") as caught:
        plant(*overrides)
    return str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["excited=[mass_flow]"], ["'mass_flow'", "by the controller and by excitation", "Building"]),
        (["excited=[ambient_temperature]"], ["'ambient_temperature'", "by weather and by excitation"]),
        (["weather_input=mass_flow"], ["'mass_flow'", "by the controller and by weather"]),
        (["+excitation@excitations.mass_flow=prbs"], ["'mass_flow'", "by the controller and by excitation"]),
        (["controller=none", "excited=[mass_flo]"], ["'mass_flo'", "'mass_flow'"]),
        (["controller=none", "+excitation@excitations.heat=prbs"], ["'heat'", "'mass_flow'"]),
        (["weather_input=sun"], ["weather", "'sun'", "'ambient_temperature'"]),
        (["controller=level_pi"], ["controller", "'pump_voltage'", "'mass_flow'"]),
        (["system=bouc_wen", "controller=pi"], ["controller", "'mass_flow'", "'force'"]),
        (["system=bouc_wen", "weather=synthetic"], ["weather", "'ambient_temperature'", "'force'"]),
        (["system=van_der_pol", "excited=[force]"], ["'force'", "VanDerPol", "no inputs"]),
        (["system=none"], ["system=none", "system=building", "data="]),
        (["excited=mass_flow"], ["excited", "list", "mass_flow"]),
        (["excited=[1]"], ["excited", "list", "[1]"]),
        (["interpolation=cubic"], ["interpolation", "held, linear, band_limited", "cubic"]),
        (["noise.std=1", "noise.snr_db=20"], ["std", "snr_db"]),
    ],
    ids=lambda value: ",".join(value) if "=" in value[0] else "",
)
def test_inputs_with_two_sources_and_unknown_names_are_refused(overrides, words):
    message = refused(*overrides)
    for word in words:
        assert word in message, message


SUBSETS = [
    (("controller=none", "weather=none"), {"ambient_temperature", "mass_flow"}, []),
    (("controller=none", "weather=none", "excited=[mass_flow]"), {"mass_flow"}, ["ambient_temperature"]),
    (("controller=none", "weather=none", "excited=[]"), set(), ["ambient_temperature", "mass_flow"]),
    (("controller=none",), {"mass_flow"}, []),
    (("controller=none", "excited=[]"), set(), ["mass_flow"]),
    ((), set(), []),
    (("weather=none",), {"ambient_temperature"}, []),
]


@pytest.mark.parametrize(("overrides", "driven", "idle"), SUBSETS)
def test_every_input_has_one_source(overrides, driven, idle):
    found = plant(*overrides)
    sources = [set(found.excitations), set(found.weather), set(found.controller.inputs_driven), set(found.idle)]
    assert set(found.excitations) == driven
    assert found.idle == idle
    assert sorted(name for names in sources for name in names) == sorted(found.inputs)


def test_idle_inputs_are_zero_and_named(tmp_path):
    options = ("controller=none", "excited=[]", "narx=building")
    trajectory = data_of(execute(tmp_path, *SMALL, *options), "trajectory")
    assert json.loads(trajectory.attrs["idle_inputs"]) == ["mass_flow"]
    assert not trajectory["mass_flow"].any()
    assert np.ptp(trajectory["ambient_temperature"].values) > 0


def test_an_input_may_have_an_excitation_of_its_own():
    found = plant(
        *OPEN,
        "excitation=multisine",
        "excitation.rms=1",
        "+excitation@excitations.mass_flow=prbs",
        "excitations.mass_flow.amplitude=0.01",
        "excitations.mass_flow.offset=0.05",
        "seed=3",
    )
    assert found.excitations["mass_flow"] == PRBS(amplitude=0.01, offset=0.05)
    signals = found.exogenous(64, seed=3)
    np.testing.assert_allclose(np.unique(signals["mass_flow"]), [0.04, 0.06])
    assert np.std(signals["ambient_temperature"]) == pytest.approx(1.0, rel=1e-6)


def test_an_excitation_of_its_own_goes_before_the_common_one():
    own = ("+excitation@excitations.mass_flow=prbs", "excitation=multisine")
    found = plant(*OPEN, "excited=[mass_flow,ambient_temperature]", *own)
    assert {name: type(e).__name__ for name, e in found.excitations.items()} == {
        "mass_flow": "PRBS",
        "ambient_temperature": "Multisine",
    }
    assert plant(*OPEN, "excited=[]", *own).idle == ["ambient_temperature"]


def test_the_signal_of_an_input_stays_when_another_comes():
    alone = plant(*OPEN, "excitation=filtered_noise", "excited=[mass_flow]").exogenous(50, seed=2)
    both = plant(*OPEN, "excitation=filtered_noise").exogenous(50, seed=2)
    np.testing.assert_array_equal(alone["mass_flow"], both["mass_flow"])
    assert not np.array_equal(both["mass_flow"], both["ambient_temperature"])


def test_weather_drives_the_input_that_it_is_given():
    found = plant("system=bouc_wen", "weather=synthetic", "weather_input=force")
    assert not found.excitations
    time = found.system.dt * np.arange(50)
    np.testing.assert_array_equal(found.exogenous(50, 1)["force"], found.weather["force"].temperature(time, seed=1))


LOOPS = {
    "open": ("system=cascaded_tanks", "excitation.offset=4", "system.lower_noise_std=0.01", "noise.std=0.05"),
    "open, snr": ("system=bouc_wen", "noise.snr_db=20"),
    "closed": ("weather=none", "excitation=multisine", "excitation.rms=3", "excitation.offset=5", "noise.std=0.2"),
    "closed, snr": ("system=cascaded_tanks", "controller=level_pi", "noise.snr_db=30"),
    "autonomous": ("system=van_der_pol", "noise.std=0.1"),
}


@pytest.mark.parametrize("interpolation", list(Interpolation), ids=lambda member: member.value)
@pytest.mark.parametrize("loop", LOOPS)
def test_samples_and_trajectory_are_the_same_numbers(loop, interpolation):
    found = plant(*LOOPS[loop], f"interpolation={interpolation.value}")
    assert found.is_open_loop == (not loop.startswith("closed"))
    whole, samples = found.trajectory(50, seed=5), list(found.samples(50, seed=5))
    for name in ("time", "output", "input", "state", "noise", "noise_free_output"):
        assert np.array([getattr(sample, name) for sample in samples]).tobytes() == getattr(whole, name).tobytes()
    assert whole.interpolation is interpolation
    assert sum(sample.n_clipped for sample in samples) == whole.n_clipped


def test_band_limited_inputs_have_whole_periods():
    periodic = plant("system=bouc_wen", "interpolation=band_limited", "excitation.period=25")
    assert periodic.exogenous(50, seed=0)["force"].shape == (50,)
    for found, n, word in (
        (periodic, 60, "period of 'force' is 25"),
        (plant("system=bouc_wen", "interpolation=band_limited", "excitation=filtered_noise"), 50, "'force' is not"),
        (plant("interpolation=band_limited"), 50, "'ambient_temperature'.* weather"),
    ):
        with pytest.raises(ValueError, match=rf"band_limited.*{word}.*linear"):
            found.exogenous(n, seed=0)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("system=building", *OPEN, "excitation=prbs", "excitation.amplitude=1"), ["mass_flow", "-0.95", "0 to inf"]),
        (("system=cascaded_tanks", "excitation=staircase", "excitation.high=20"), ["pump_voltage", "23", "0 to 10 V"]),
    ],
)
def test_excitations_beyond_the_limits_of_an_input_are_refused(overrides, words):
    with pytest.raises(ValueError, match=r"excitation of") as caught:
        plant(*overrides).exogenous(60, seed=0)
    for word in (*words, "offset", "amplitude"):
        assert word in str(caught.value), str(caught.value)


@pytest.mark.parametrize("transient", [0, 7, 130])
def test_a_periodic_signal_is_continued_backwards_over_a_transient(transient):
    found = plant("system=bouc_wen", "excitation.period=25")
    whole, later = found.exogenous(50, 3)["force"], found.exogenous(50, 3, transient=transient)["force"]
    assert len(later) == transient + 50
    np.testing.assert_array_equal(later[transient:], whole)
    np.testing.assert_array_equal(later[25:], later[:-25])


def test_interpolations_differ_between_the_samples():
    ends = {
        member: plant("system=bouc_wen", f"interpolation={member.value}").trajectory(50, seed=0).state[-1, 0]
        for member in Interpolation
    }
    assert len(set(ends.values())) == 3


def test_measurement_noise_is_on_the_measured_output_alone():
    quiet, noisy = (plant("system=bouc_wen", f"noise.std={std}").trajectory(200, seed=1) for std in (0.0, 1e-5))
    for name in ("input", "state", "noise", "noise_free_output"):
        np.testing.assert_array_equal(getattr(quiet, name), getattr(noisy, name))
    error = noisy.output - noisy.noise_free_output
    np.testing.assert_allclose(error[:, 0], 1e-5 * random_streams(1).measurement.standard_normal(200), atol=1e-16)


def test_the_controller_sees_the_noise():
    """Inputs follow the PI law of the measured outputs, not of the true ones."""
    found = plant("noise.std=0.5", "duration=60samples")
    whole, law = found.trajectory(60, seed=1), PI()
    for outputs, same in ((whole.output, True), (whole.noise_free_output, False)):
        memory, inputs = law.initial_state(), []
        for time, y in zip(whole.time, outputs, strict=True):
            (u,), memory = law.control(float(time), y.tolist(), memory)
            inputs.append(u)
        assert np.array_equal(inputs, whole.input[:, 1]) == same


def test_a_noisy_run_stores_both_outputs_and_learns_from_the_measured_one(tmp_path):
    folder = execute(tmp_path, *SMALL, "system=bouc_wen", "excitation.rms=20", "noise.snr_db=20", "narx.predict=value")
    trajectory, rows = data_of(folder, "trajectory"), data_of(folder, "narx")
    error = (trajectory["displacement"] - trajectory["displacement_noise_free"]).values
    ratio = 10 * np.log10(np.var(trajectory["displacement_noise_free"].values) / np.mean(error**2))
    assert ratio == pytest.approx(20, abs=1.5)
    np.testing.assert_array_equal(trajectory["displacement_noise_free"], trajectory["position"])
    np.testing.assert_array_equal(rows["target"], trajectory["displacement"][int(rows["lag"].max()) :])


def test_the_same_seed_gives_the_same_bits(tmp_path):
    first, again, other = (
        execute(tmp_path / name, *SMALL, "system=cascaded_tanks", "excitation.offset=4", f"seed={seed}")
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    )
    for kind in ("trajectory", "narx", "result", "model"):
        assert bits(data_of(first, kind)) == bits(data_of(again, kind))
    assert bits(data_of(first, "trajectory")) != bits(data_of(other, "trajectory"))
