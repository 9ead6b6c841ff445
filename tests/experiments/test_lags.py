"""Lags that the toolbox chooses, from the dynamics of a plant or from records, and
`narx=orders`.
"""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import sysid
from experiments.identify.run import narx_of, read_settings, source_of
from experiments.plant.lags import AutomaticNarx
from experiments.plant.plant import Plant
from helpers.commands import SMALLEST_RUN, compose_configuration, load_dataset, run_identify
from helpers.records import csv_overrides, write_record
from helpers.systems import TwoRooms
from simulators import Interpolation, MeasurementNoise, Multisine, OpenLoop


def chosen(*overrides):
    config = compose_configuration("duration=120samples", *overrides)
    return narx_of(read_settings(config).lags, source_of(config), sysid.Settings())


@pytest.mark.parametrize(
    ("overrides", "outputs", "inputs"),
    [  # published orders, and what the physics of each system say
        (
            "narx=auto",
            {"zone_temperature": 3},
            {"ambient_temperature": 3, "mass_flow": 3},
        ),
        (
            "narx=auto controller=none",
            {"zone_temperature": 3},
            {"ambient_temperature": 3, "mass_flow": 3},
        ),
        ("system=van_der_pol", {"displacement": 2}, {}),
        (
            "system=cascaded_tanks excitation.offset=4",
            {"level": 2},
            {"pump_voltage": 2},
        ),
        (
            "system=cascaded_tanks controller=level_pi",
            {"level": 2},
            {"pump_voltage": 2},
        ),
        ("system=bouc_wen excitation.rms=50", {"displacement": 3}, {"force": 3}),
    ],
)
def test_known_orders_are_found_and_reported(overrides, outputs, inputs, caplog):
    caplog.set_level("INFO")
    narx = chosen(*overrides.split())
    if "controller=none" in overrides:  # without flow nothing shows what flow does
        inputs = {name: n for name, n in inputs.items() if name in dict(narx.inputs)}
    assert narx == sysid.Narx(outputs, inputs)
    for signal, n in (outputs | inputs).items():
        assert f"{n} of {signal}" in caplog.text


@dataclass(frozen=True)
class OneWay(TwoRooms):
    """The heated room warms the other and feels nothing of it: one state explains it, two the
    other.
    """

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = input[0] - parameters[0] * state[0] + noise[0]
        derivative[1] = parameters[1] * (state[0] - state[1])


def test_every_output_has_lags_of_its_own():
    system = OneWay(noise=0.0)
    heat = {"heat": Multisine(rms=1.0)}
    plant = Plant(system, OpenLoop(system.dt), {}, heat, MeasurementNoise(), Interpolation.held)
    for target, name, order in (("", "warm_air", 1), ("cold_air", "cold_air", 2)):
        narx, _ = AutomaticNarx(target=target).of_plant(plant, 60, seed=0)
        assert narx == sysid.Narx({name: order}, {"heat": order}, name)


@pytest.fixture(scope="module")
def records():
    made = []
    for seed in (0, 1):
        u = np.random.default_rng(seed).normal(size=700)
        y = np.zeros(700)
        for k in range(2, 700):
            y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + np.tanh(u[k - 1])
        made.append(
            sysid.make_record({"u": u, "y": y, "z": y[::-1] ** 2 + u}, name="r", sampling_time=1.0)
        )
    return tuple(made)


TRAINING = sysid.MaximumAPosteriori(n_initial=30, restarts=1, max_iterations=20, record_samples=60)
QUICK = sysid.Settings(training=TRAINING, budget=20)


@pytest.mark.parametrize("max_order", [1, 4])
def test_lags_are_those_of_the_estimation_records_alone(max_order, records):
    noise = np.random.default_rng(3).normal(size=(2, 400))
    wild = sysid.make_record({"u": noise[0], "y": 5 * noise[1]}, name="wild", sampling_time=1.0)
    recordings = sysid.Recordings("r", ("u",), ("y",), records, validation=(wild,), test=(wild,))
    narx, choice = AutomaticNarx(max_order=max_order, predict="value").of_records(recordings, QUICK)
    assert len(narx.lags["y"]) == min(max_order, 2)
    assert 1 in narx.lags["u"]
    assert (narx.predict, choice.criterion, len(choice.tried)) == (
        sysid.Target.value,
        "one_step",
        2 * max_order**2,
    )
    search = sysid.ProfileSearch(kernels=[sysid.SquaredExponential()], evaluations=20)
    training = sysid.FreeRun(routes=[search], folds=2)
    narx, choice = AutomaticNarx(max_order=max_order).of_records(
        recordings, replace(QUICK, training=training)
    )
    assert (
        min(max_order, 2) <= len(narx.lags["y"]) <= max_order,
        choice.criterion,
    ) == (True, "free_run")
    assert [len(choice.tried), choice.tried[0]["model_parts"]] == [
        2 * min(max_order, 4),
        2,
    ]


def test_the_target_of_records_may_be_chosen_and_inputs_may_be_missing(records):
    recordings = sysid.Recordings("r", ("u",), ("y", "z"), records)
    assert AutomaticNarx(max_order=1).of_records(recordings, QUICK)[0].target == "y"
    assert AutomaticNarx(target="z", max_order=1).of_records(recordings, QUICK)[0].output_names == (
        "z",
    )
    time = np.arange(500)
    record = sysid.make_record(
        {"y": np.sin(0.3 * time) + 0.5 * np.sin(0.3 * time + 1)},
        name="r",
        sampling_time=1.0,
    )
    narx, _ = AutomaticNarx(max_order=3).of_records(
        sysid.Recordings("r", (), ("y",), (record,)), QUICK
    )
    assert narx == sysid.Narx({"y": 2})


def test_orders_take_the_signals_of_the_plant_or_the_records(tmp_path):
    narx = chosen("narx=orders", "narx.na=1", "narx.nb=[2,1]", "narx.nk=[0,3]")
    assert narx.lags == {
        "zone_temperature": (1,),
        "ambient_temperature": (0, 1),
        "mass_flow": (3,),
    }
    assert narx.predict is sysid.Target.change
    data = csv_overrides("y", "u,z", estimation=write_record(tmp_path / "a.csv"))
    narx = chosen("narx=orders", *data, "narx.nb=1", "narx.predict=value", "on_missing=skip")
    assert narx.lags == {"y": (1, 2), "u": (1,), "z": (1,)}
    assert (narx.predict, narx.on_missing) == (sysid.Target.value, sysid.OnMissing.skip)
    given = (
        "duration=120samples",
        "narx=orders",
        "narx.na=1",
        "narx.nb=1",
        "narx.nk=2",
    )
    folder = run_identify(tmp_path / "run", *SMALLEST_RUN, *given)
    names = ["zone_temperature[k-1]", "ambient_temperature[k-2]", "mass_flow[k-2]"]
    assert load_dataset(folder, "model")["feature"].values.tolist() == names
