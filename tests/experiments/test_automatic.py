"""Lags that the toolbox chooses: from the dynamics of a plant, or from records."""

from dataclasses import dataclass

import numpy as np
import pytest
from running import PLAIN, configured, data_of, execute, summary_of
from two_rooms import TwoRooms

from experiments.automatic import N_POINTS, REHEARSAL, AutomaticNarx
from experiments.identification import narx_of, source_of
from experiments.plant import Plant, plant_of
from simulators import Interpolation, MeasurementNoise, Multisine, OpenLoop
from sysid import Narx, OnMissing, Recordings, Target, make_record
from sysid.data.source import part

SMALL = ("duration=120samples", "training.n_initial=12", "training.restarts=1", "budget=10", "figures=false")
TANKS = ("system=cascaded_tanks", "excitation.offset=4")
FORCED = ("system=bouc_wen", "excitation.rms=50")
#: published orders, and what the physics of each system say
KNOWN = {
    "building": (("narx=auto",), {"zone_temperature": 3}, {"ambient_temperature": 3, "mass_flow": 3}),
    "van der pol": (("system=van_der_pol",), {"displacement": 2}, {}),
    "tanks": (TANKS, {"level": 2}, {"pump_voltage": 2}),
    "tanks in closed loop": (("system=cascaded_tanks", "controller=level_pi"), {"level": 2}, {"pump_voltage": 2}),
    "bouc-wen": (FORCED, {"displacement": 3}, {"force": 3}),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_orders_are_found_and_reported(name, caplog, tmp_path):
    caplog.set_level("INFO")
    overrides, outputs, inputs = KNOWN[name]
    folder = execute(tmp_path, *SMALL, *overrides)
    lags = [f"{signal}[k-{lag}]" for signal, n in (outputs | inputs).items() for lag in range(1, n + 1)]
    assert data_of(folder, "narx")["feature"].values.tolist() == lags
    (report,) = (r.getMessage() for r in caplog.records if r.getMessage().startswith("Lags chosen"))
    for signal, n in (outputs | inputs).items():
        assert f"{n} of {signal}" in report
    assert np.isfinite(summary_of(folder)["rmse"])


def chosen(*overrides):
    config = configured(*overrides)
    return narx_of(config, source_of(config))


def test_settings_beside_the_lags_are_passed_on():
    narx = chosen("narx=auto", "narx.predict=value", "on_missing=skip", "duration=60samples")
    assert (narx.predict, narx.on_missing, narx.target) == (Target.value, OnMissing.skip, "zone_temperature")
    assert chosen("narx=auto", "duration=60samples").predict is Target.change


def test_lags_are_found_where_the_weather_alone_moves_the_plant():
    assert chosen("narx=auto", "controller=none", "duration=60samples").max_lag == 3


def test_lags_by_hand_stay_as_they_are():
    assert dict(chosen("narx.outputs.zone_temperature=5").outputs)["zone_temperature"] == (1, 2, 3, 4, 5)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["narx=auto", "narx.target=mass_flow"], ["narx=auto", "target", "zone_temperature", "mass_flow"]),
        (["narx=auto", "narx.max_order=0"], ["max_order", "1", "0"]),
        (["narx=auto", "narx.max_order=1.5"], ["max_order", "1.5"]),
        (["narx=auto", "narx.predict=guess"], ["predict", "change, value", "guess"]),
        (["narx=auto", "on_missing=guess"], ["on_missing", "error, skip", "guess"]),
        (["controller=none", "excitation=multisine", "excitation.rms=1"], ["excitation", "mass_flow", "offset"]),
        (["narx=auto", "system.substeps=1", "system.radiator_capacity=1"], ["narx=auto", "diverged", "substeps"]),
        (["system=cascaded_tanks", "excited=[]"], ["narx=auto", "level", "pump_voltage", "offset"]),
    ],
    ids=lambda value: ",".join(value) if "=" in value[0] else "",
)
def test_what_cannot_be_chosen_is_refused(overrides, words, tmp_path):
    with pytest.raises(ValueError, match=r".") as caught:
        execute(tmp_path, *SMALL, *overrides)
    for word in words:
        assert word in str(caught.value), str(caught.value)
    assert not list(tmp_path.iterdir())


def test_the_rehearsal_is_bounded(monkeypatch):
    """The choice costs the same for an hour and for a century."""
    lengths, original = [], Plant.trajectory

    def trajectory(self, n_samples, seed):
        lengths.append(n_samples)
        return original(self, min(n_samples, 60), seed)

    monkeypatch.setattr(Plant, "trajectory", trajectory)
    plant = plant_of(configured("system=van_der_pol"))
    for n in (30, 10**9):
        narx, report = AutomaticNarx().of_plant(plant, n, seed=0)
        assert narx == Narx({"displacement": 2})
    assert lengths == [30, REHEARSAL]
    assert f"the largest of {N_POINTS} operating points" in report


@dataclass(frozen=True)
class OneWay(TwoRooms):
    """The heated room warms the other and feels nothing of it: one state explains it, two the other."""

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = input[0] - parameters[0] * state[0] + noise[0]
        derivative[1] = parameters[1] * (state[0] - state[1])


@pytest.mark.parametrize(
    ("target", "expected", "order"), [("", "warm_air", 1), ("warm_air", "warm_air", 1), ("cold_air", "cold_air", 2)]
)
def test_every_output_has_lags_of_its_own(target, expected, order):
    narx, _ = AutomaticNarx(target=target).of_plant(one_way(), 60, seed=0)
    assert narx == Narx({expected: order}, {"heat": order}, expected)


def test_an_unknown_output_is_named():
    with pytest.raises(ValueError, match=r"target must be one of the outputs \['warm_air', 'cold_air'\] of OneWay"):
        AutomaticNarx(target="warm").of_plant(one_way(), 60, seed=0)


def one_way():
    system = OneWay(noise=0.0)
    return Plant(system, OpenLoop(system.dt), {}, {"heat": Multisine(rms=1.0)}, MeasurementNoise(), Interpolation.held)


def second_order(n, seed):
    rng = np.random.default_rng(seed)
    u, y = rng.normal(size=n), np.zeros(n)
    for k in range(2, n):
        y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + np.tanh(u[k - 1])
    return make_record({"u": u, "y": y, "z": y[::-1] ** 2 + u}, name="r", sampling_time=1.0)


@pytest.fixture(scope="module")
def records():
    n = 300 if PLAIN else 700
    return second_order(n, 0), second_order(n, 1)


@pytest.mark.parametrize("max_order", [1, 4])
def test_records_are_tested_for_their_order(max_order, records):
    recordings = Recordings("r", ("u",), ("y",), records, test=(part(records[0], 0, 5),))
    narx, report = AutomaticNarx(max_order=max_order, predict="value").of_records(recordings)
    order = min(max_order, 2)
    assert narx == Narx({"y": order}, {"u": order}, "y", predict=Target.value)
    assert report.startswith(f"order {order}")
    assert ("raise max_order" in report) == (max_order == 1)


def test_only_the_estimation_records_choose(records):
    """A test record of pure noise must not change the order."""
    noise = np.random.default_rng(3).normal(size=(2, 400))
    wild = make_record({"u": noise[0], "y": 5 * noise[1]}, name="wild", sampling_time=1.0)
    for test in ((), (wild,)):
        recordings = Recordings("r", ("u",), ("y",), records, validation=test, test=test)
        assert AutomaticNarx(max_order=3).of_records(recordings)[0].max_lag == 2


def test_records_without_inputs_have_lags_of_the_output_alone():
    time = np.arange(500)
    record = make_record({"y": np.sin(0.3 * time) + 0.5 * np.sin(0.3 * time + 1)}, name="r", sampling_time=1.0)
    narx, _ = AutomaticNarx(max_order=3).of_records(Recordings("r", (), ("y",), (record,)))
    assert narx == Narx({"y": 2})


def test_the_target_of_records_may_be_chosen(records):
    recordings = Recordings("r", ("u",), ("y", "z"), records)
    assert AutomaticNarx(max_order=1).of_records(recordings)[0].target == "y"
    assert AutomaticNarx(target="z", max_order=1).of_records(recordings)[0].output_names == ("z",)
    with pytest.raises(ValueError, match=r"target must be one of the outputs \['y', 'z'\] of r, got 'u'"):
        AutomaticNarx(target="u").of_records(recordings)


def test_static_data_have_no_lags():
    table = make_record(
        {"a": [1.0, 2.0], "b": [3.0, 5.0], "y": [0.0, 1.0]}, name="t", sampling_time=1.0, attributes={"static": 1}
    )
    narx, report = AutomaticNarx().of_records(Recordings("t", ("a", "b"), ("y",), (table,)))
    assert narx == Narx({"y": []}, {"a": [0], "b": [0]}, predict=Target.value)
    assert report == "static data: no lags"
