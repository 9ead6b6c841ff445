"""Lags chosen from the dynamics of a plant or from records, and `narx=orders`."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from experiments.identify.run import narx_of, read_settings, source_of
from experiments.plant.lags import AutomaticNarx
from experiments.plant.plant import Plant
from helpers.commands import SMALLEST_RUN, compose_configuration, load_dataset, run_identify
from helpers.records import csv_overrides, write_record
from helpers.systems import TwoRooms
from simulators import Interpolation, MeasurementNoise, Multisine, OpenLoop
from sysid import (
    FreeRun,
    MaximumAPosteriori,
    Narx,
    OnMissing,
    ProfileSearch,
    Recordings,
    Settings,
    SquaredExponential,
    Target,
    make_record,
)

#: settings that train a model in a moment
QUICK = Settings(
    training=MaximumAPosteriori(n_initial=30, restarts=1, max_iterations=20, record_samples=60),
    budget=20,
)

BUILDING_LAGS = {"zone_temperature": 3, "ambient_temperature": 3, "mass_flow": 3}
TANK_LAGS = {"level": 2, "pump_voltage": 2}

#: published orders, or those that follow from the physics of each system
KNOWN_LAGS = {
    "building": (("narx=auto",), BUILDING_LAGS),
    "building, open loop": (("narx=auto", "controller=none"), BUILDING_LAGS),
    "van_der_pol": (("system=van_der_pol",), {"displacement": 2}),
    "tanks, open loop": (("system=cascaded_tanks", "excitation.offset=4"), TANK_LAGS),
    "tanks, closed loop": (("system=cascaded_tanks", "controller=level_pi"), TANK_LAGS),
    "bouc_wen": (("system=bouc_wen", "excitation.rms=50"), {"displacement": 3, "force": 3}),
}


def choose_narx(*overrides):
    """Return the lags that `sysid-identify` takes with these overrides."""
    config = compose_configuration("duration=120samples", *overrides)
    return narx_of(read_settings(config).lags, source_of(config), Settings())


@pytest.mark.parametrize("case", KNOWN_LAGS)
def test_known_orders_are_found_and_logged(case, caplog):
    caplog.set_level("INFO")
    overrides, expected = KNOWN_LAGS[case]

    narx = choose_narx(*overrides)

    output, *inputs = expected
    assert narx == Narx({output: expected[output]}, {name: expected[name] for name in inputs})
    for signal, n_lags in expected.items():
        assert f"{n_lags} of {signal}" in caplog.text


@dataclass(frozen=True)
class OneWay(TwoRooms):
    """Two rooms of which the heated one warms the other and is not influenced by it.

    One state explains the heated room, two explain the other room.
    """

    @staticmethod
    def drift(time, state, input, noise, parameters, derivative):
        derivative[0] = input[0] - parameters[0] * state[0] + noise[0]
        derivative[1] = parameters[1] * (state[0] - state[1])


@pytest.fixture(scope="module")
def one_way_plant():
    system = OneWay(noise=0.0)
    excitation = {"heat": Multisine(rms=1.0)}
    return Plant(
        system, OpenLoop(system.dt), {}, excitation, MeasurementNoise(), Interpolation.held
    )


@pytest.mark.parametrize(
    ("target", "output", "order"),
    [("", "warm_air", 1), ("cold_air", "cold_air", 2)],
    ids=["first output by default", "second output"],
)
def test_every_output_has_its_own_lags(target, output, order, one_way_plant):
    narx, _ = AutomaticNarx(target=target).of_plant(one_way_plant, 60, seed=0)

    assert narx == Narx({output: order}, {"heat": order}, output)


@pytest.fixture(scope="module")
def second_order_records():
    """Two records of a system of second order, with another output that is of no order."""
    records = []
    n_samples = 700
    for seed in (0, 1):
        u = np.random.default_rng(seed).normal(size=n_samples)
        y = np.zeros(n_samples)
        for k in range(2, n_samples):
            y[k] = 1.5 * y[k - 1] - 0.7 * y[k - 2] + np.tanh(u[k - 1])
        signals = {"u": u, "y": y, "z": y[::-1] ** 2 + u}
        records.append(make_record(signals, name="r", sampling_time=1.0))
    return tuple(records)


@pytest.fixture(scope="module")
def recordings_with_wild_tests(second_order_records):
    """The records for the estimation; those for validation and test are noise without dynamics."""
    u, y = np.random.default_rng(3).normal(size=(2, 400))
    wild = make_record({"u": u, "y": 5 * y}, name="wild", sampling_time=1.0)
    return Recordings("r", ("u",), ("y",), second_order_records, validation=(wild,), test=(wild,))


@pytest.mark.parametrize("max_order", [1, 4])
def test_lags_one_step_ahead_are_those_of_the_estimation_records(
    max_order, recordings_with_wild_tests
):
    automatic = AutomaticNarx(max_order=max_order, predict="value")

    narx, choice = automatic.of_records(recordings_with_wild_tests, QUICK)

    assert len(narx.lags["y"]) == min(max_order, 2)
    assert 1 in narx.lags["u"]
    assert narx.predict == Target.value
    assert choice.criterion == "one_step"
    assert len(choice.tried) == 2 * max_order**2


@pytest.mark.parametrize("max_order", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_lags_in_free_run_are_those_of_the_estimation_records(
    max_order, recordings_with_wild_tests
):
    search = ProfileSearch(kernels=[SquaredExponential()], evaluations=20)
    settings = replace(QUICK, training=FreeRun(routes=[search], folds=2))

    narx, choice = AutomaticNarx(max_order=max_order).of_records(
        recordings_with_wild_tests, settings
    )

    assert min(max_order, 2) <= len(narx.lags["y"]) <= max_order
    assert choice.criterion == "free_run"
    assert len(choice.tried) == 2 * min(max_order, 4)
    assert choice.tried[0]["model_parts"] == 2


@pytest.mark.parametrize(
    ("target", "output"), [("", "y"), ("z", "z")], ids=["first output by default", "second output"]
)
def test_the_target_of_records_may_be_chosen(target, output, second_order_records):
    recordings = Recordings("r", ("u",), ("y", "z"), second_order_records)

    narx, _ = AutomaticNarx(target=target, max_order=1).of_records(recordings, QUICK)

    assert narx.target == output
    assert narx.output_names == (output,)


def test_records_may_have_no_inputs():
    time = np.arange(500)
    y = np.sin(0.3 * time) + 0.5 * np.sin(0.3 * time + 1)
    record = make_record({"y": y}, name="r", sampling_time=1.0)
    recordings = Recordings("r", (), ("y",), (record,))

    narx, _ = AutomaticNarx(max_order=3).of_records(recordings, QUICK)

    assert narx == Narx({"y": 2})


def test_orders_are_those_of_the_signals_of_the_plant():
    narx = choose_narx("narx=orders", "narx.na=1", "narx.nb=[2,1]", "narx.nk=[0,3]")

    assert narx.lags == {
        "zone_temperature": (1,),
        "ambient_temperature": (0, 1),
        "mass_flow": (3,),
    }
    assert narx.predict is Target.change


def test_orders_are_those_of_the_signals_of_the_records(tmp_path):
    data = csv_overrides("y", "u,z", estimation=write_record(tmp_path / "a.csv"))

    narx = choose_narx("narx=orders", *data, "narx.nb=1", "narx.predict=value", "on_missing=skip")

    assert narx.lags == {"y": (1, 2), "u": (1,), "z": (1,)}
    assert narx.predict is Target.value
    assert narx.on_missing is OnMissing.skip


def test_orders_are_the_regressors_of_the_model_of_a_run(tmp_path):
    orders = ("narx=orders", "narx.na=1", "narx.nb=1", "narx.nk=2", "linear_part=none")
    quick = (*SMALLEST_RUN, "duration=120samples", "validate=false")

    folder = run_identify(tmp_path / "run", *quick, *orders)

    features = load_dataset(folder, "model")["feature"].values.tolist()
    assert features == ["zone_temperature[k-1]", "ambient_temperature[k-2]", "mass_flow[k-2]"]
