"""Random initial states of the records of a benchmark, and records that are short."""

import json

import numpy as np
import pytest
from generating import SHORT, configured, generate
from running import PLAIN

from experiments.benchmark_folder.start import Starts
from simulators import VanDerPol
from sysid.store import read_groups

if PLAIN:
    pytest.skip("files are written and read alike without the compiler", allow_module_level=True)

RANGES = "initial_states={position: [-2,2], velocity: [-2,2]}"
NUMBER = 20


def starts(folder):
    """Position and velocity at the start of every record."""
    records = read_groups(folder / "truth.nc", kind="truth")
    return {key: (float(r["position"][0]), float(r["velocity"][0])) for key, r in records.items()}


def test_the_set_of_the_paper_is_one_command(tmp_path):
    """20 starts for estimation and 20 for test, 5 s each, under the default window."""
    from experiments.generation import run

    folder = tmp_path / "vdp"
    lengths = ["estimation=52", "test=52", f"realisations.estimation={NUMBER}", f"realisations.test={NUMBER}"]
    own = ["system=van_der_pol", RANGES, *lengths, "figures=false", "validation=60", f"output={folder}"]
    run(configured(*own), tmp_path)
    rows = read_groups(folder / "narx.nc", kind="narx")
    assert rows["estimation"].sizes["sample"] == rows["test"].sizes["sample"] == 50 * NUMBER
    first = starts(folder)
    values = np.array(list(first.values()))
    assert len(np.unique(values)) == values.size == 2 * (2 * NUMBER + 1)
    assert (np.abs(values) <= 2).all()
    assert (values.min(axis=0) < -1.2).all()
    assert (values.max(axis=0) > 1.2).all()
    found = json.loads((folder / "scores.json").read_text())
    assert found["initialisation_window"] == 5
    one_step = {model: values["displacement"]["rmse"] for model, values in found["one_step"].items()}
    assert one_step["noise_floor"] < one_step["online_gp"] < one_step["persistence"]
    assert found["free_run"]["noise_floor"]["displacement"]["rmse"] > one_step["noise_floor"]
    text = (folder / "CARD.md").read_text()
    assert "a random initial state of its own (uniform, `position` from -2 to 2 m, `velocity` from -2 to 2 m/s" in text


def test_a_state_without_a_range_keeps_the_systems_own(tmp_path):
    folder = generate(
        tmp_path / "vdp", "system=van_der_pol", "initial_states={velocity: [-2,2]}", "baseline=[mean]", "noise_paths=4"
    )
    found = starts(folder)
    assert {position for position, _ in found.values()} == {1.0}
    assert len({velocity for _, velocity in found.values()}) == 3
    assert "the other states as in the parameters" in (folder / "CARD.md").read_text()


def test_draws_belong_to_the_seed_and_to_the_state():
    both = Starts(VanDerPol(), {"position": (-2.0, 2.0), "velocity": (5.0, 5.0)})
    one = Starts(VanDerPol(), {"position": (-2.0, 2.0)})
    for seed in (0, 1, 2**62):
        x, again, alone = both.draw(seed), both.draw(seed), one.draw(seed)
        np.testing.assert_array_equal(x, again)
        assert x[0] == alone[0]
        assert (x[1], alone[1]) == (5.0, 0.0)
    many = np.array([one.draw(seed)[0] for seed in range(400)])
    assert np.mean(many) == pytest.approx(0, abs=0.25)
    assert np.std(many) == pytest.approx(4 / np.sqrt(12), rel=0.1)
    assert Starts(VanDerPol(), {}).draw(0) is None


def test_the_noise_stays_as_it_is(tmp_path):
    same = ("system=van_der_pol", "baseline=[mean]", "noise_paths=4")
    folders = [generate(tmp_path / "a", *same), generate(tmp_path / "b", *same, RANGES)]
    one, two = (read_groups(folder / "truth.nc", kind="truth")["test"] for folder in folders)
    np.testing.assert_array_equal(one["acceleration_noise"], two["acceleration_noise"])
    assert one["position"][0] != two["position"][0]


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["initial_states={speed: [0,1]}"], ["'speed'", "['position', 'velocity']"]),
        (["initial_states={position: [2,-2]}"], ["initial_states.position=[2, -2]", "lowest and highest"]),
        (["initial_states={position: [0,1,2]}"], ["initial_states.position", "two numbers"]),
        (["initial_states={position: 3}"], ["initial_states.position", "two numbers"]),
        (["initial_states={position: '12'}"], ["initial_states.position", "two numbers"]),
        (["initial_states={position: [0,.inf]}"], ["initial_states.position", "two numbers"]),
        (["initial_states={position: [false,true]}"], ["initial_states.position", "two numbers"]),
        (["initial_states=[position]"], ["initial_states must map", "position: [-1, 1]"]),
        (["initial_states=1"], ["initial_states must map", "got 1"]),
        (
            ["system=cascaded_tanks", "initial_states={upper_level: [5,11]}"],
            ["initial_states.upper_level=[5, 11]", "limits 0 to 10 V"],
        ),
    ],
    ids=lambda value: value[-1] if "=" in value[-1] else "",
)
def test_bad_initial_states_are_refused_before_anything_is_simulated(overrides, words, monkeypatch, tmp_path):
    from experiments.plant import Plant

    monkeypatch.setattr(Plant, "trajectory", lambda *_, **__: pytest.fail("simulated"))
    with pytest.raises(ValueError, match="initial_states") as caught:
        generate(tmp_path / "vdp", "system=van_der_pol", *overrides)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("test", "expected"), [(52, 5), (12, 2), (4, 2), (700, 50)])
def test_short_records_have_short_windows(test, expected, tmp_path):
    lengths = ["validation=700", f"test={test}"]
    short = [item for item in SHORT if not item.startswith("initialisation_window")]
    from experiments.generation import run

    folder = tmp_path / "vdp"
    own = ["system=van_der_pol", "baseline=[mean]", "noise_paths=4", f"output={folder}"]
    run(configured(*short, *own, *lengths), tmp_path)
    assert json.loads((folder / "benchmark.json").read_text())["initialisation_window"] == expected


def test_records_that_are_too_short_for_the_lags_are_refused(tmp_path):
    with pytest.raises(ValueError, match="initialisation_window=2 leaves nothing to judge of records of 3 samples"):
        generate(tmp_path / "vdp", "system=van_der_pol", "initialisation_window=null", "test=3")
