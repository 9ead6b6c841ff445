"""Recordings: what they refuse, parts of records, and the way to a file and back."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from sysid import store
from sysid.narx import Narx
from sysid.recordings import Recordings, make_record, part

UNITS = {"u": "V", "y": "m"}


def record(n=30, *, seed=0, window=5, dt=0.5, name="step"):
    values = np.random.default_rng(seed).normal(size=(2, n))
    return make_record(
        {"u": values[0], "y": values[1]},
        name=name,
        sampling_time=dt,
        initialisation_window=window,
        units=UNITS,
        long_names={"u": "voltage", "y": "height"},
        attributes={"licence": "CC0"},
    )


def recordings(**roles):
    return Recordings("rig", ("u",), ("y",), **roles)


def identical(left, right):
    assert (left.name, left.inputs, left.outputs) == (right.name, right.inputs, right.outputs)
    for role in ("estimation", "validation", "test"):
        for a, b in zip(getattr(left, role), getattr(right, role), strict=True):
            xr.testing.assert_identical(a, b)


def test_a_record_has_the_schema():
    made = record(4, dt=0.25, window=2)
    np.testing.assert_array_equal(made.time, [0.0, 0.25, 0.5, 0.75])
    assert made.time.attrs["units"] == "s"
    assert made.u.attrs == {"units": "V", "long_name": "voltage"}
    assert made.attrs == {"licence": "CC0", "name": "step", "sampling_time": 0.25, "initialisation_window": 2}


def test_a_record_is_a_copy():
    values = np.zeros(3)
    made = make_record({"y": values}, name="y", sampling_time=1.0)
    values[0] = 7.0
    assert made.y[0] == 0.0


def test_properties_come_from_the_records():
    rig = recordings(estimation=[record()], test=[record(9, seed=1)])
    assert rig.sampling_time == 0.5
    assert rig.units == UNITS
    assert not rig.is_static
    assert [r.sizes["time"] for r in rig.records] == [30, 9]
    assert isinstance(rig.estimation, tuple)


@pytest.mark.parametrize(
    ("start", "stop", "window", "first", "n"),
    [
        (0, None, 5, 0, 30),
        (2, 20, 3, 2, 18),
        (5, None, 0, 5, 25),
        (11, 12, 0, 11, 1),
        (-4, None, 0, 26, 4),
        (0, -25, 5, 0, 5),
    ],
)
def test_part_keeps_time_and_what_is_left_of_the_window(start, stop, window, first, n):
    whole = record()
    cut = part(whole, start, stop)
    expected = {key: value for key, value in whole.attrs.items() if key != "initialisation_window"}
    assert cut.attrs == expected | {"initialisation_window": window}
    np.testing.assert_array_equal(cut.time, 0.5 * np.arange(first, first + n))
    np.testing.assert_array_equal(cut.y, whole.y.values[first : first + n])
    assert cut.y.attrs == whole.y.attrs
    assert cut.time.attrs == whole.time.attrs
    assert whole.attrs["initialisation_window"] == 5


def test_part_takes_another_window_and_name():
    cut = part(record(), 10, initialisation_window=3, name="tail")
    assert cut.attrs["initialisation_window"] == 3
    assert cut.attrs["name"] == "tail"


def test_parts_of_parts_are_parts():
    xr.testing.assert_identical(part(part(record(), 2, 20), 1, 10), part(record(), 3, 12))


@pytest.mark.parametrize(("start", "stop"), [(30, None), (5, 5), (8, 3)])
def test_empty_parts_are_refused(start, stop):
    with pytest.raises(ValueError, match=r"of a record of 30 samples is empty"):
        part(record(), start, stop)


def test_a_part_needs_a_window():
    with pytest.raises(ValueError, match="no attribute initialisation_window"):
        part(record().drop_attrs(), 3)


def test_hold_out_cuts_every_record():
    held = recordings(estimation=[record(30), record(20, seed=1)]).hold_out(0.25, initialisation_window=2)
    assert [r.sizes["time"] for r in held.estimation] == [22, 15]
    assert [r.sizes["time"] for r in held.validation] == [8, 5]
    assert [r.attrs["initialisation_window"] for r in held.validation] == [2, 2]
    np.testing.assert_array_equal(held.validation[1].time, 0.5 * np.arange(15, 20))


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_hold_out_refuses_other_fractions(fraction):
    with pytest.raises(ValueError, match="fraction above 0 and below 1"):
        recordings(estimation=[record()]).hold_out(fraction)


def test_hold_out_does_not_replace_validation_records():
    with pytest.raises(ValueError, match="no validation records, there are 1"):
        recordings(estimation=[record()], validation=[record()]).hold_out(0.5)


def many():
    members = [record(20 + i, seed=i, name=f"run {i}", window=i) for i in range(12)]
    return recordings(estimation=members, validation=[record(7)], test=[record(8), part(record(40), 3)])


def test_groups_are_named_by_role_and_number():
    keys = list(many().to_groups())
    assert keys[0] == "estimation/record_0"
    assert keys[11:] == ["estimation/record_11", "validation", "test/record_0", "test/record_1"]


def test_groups_carry_the_names_of_inputs_and_outputs():
    for group in many().to_groups().values():
        assert group.attrs["inputs"] == '["u"]'
        assert group.attrs["outputs"] == '["y"]'


def test_groups_lead_back_in_any_order():
    groups = many().to_groups()
    shuffled = dict(sorted(groups.items()))  # record_10 before record_2
    assert list(shuffled) != list(groups)
    identical(Recordings.from_groups(shuffled), many())


def test_a_file_gives_back_what_was_written(tmp_path):
    path = store.write_groups(many().to_groups(), tmp_path / "benchmark.nc", kind="benchmark")
    read = Recordings.from_groups(store.read_groups(path, kind="benchmark"))
    identical(read, many())
    assert type(read.estimation[1].attrs["initialisation_window"]) is int
    assert type(read.estimation[1].attrs["sampling_time"]) is float


def test_another_schema_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(store, "SCHEMA_VERSION", 99)
        path = store.write_groups(many().to_groups(), tmp_path / "benchmark.nc", kind="benchmark")
    with pytest.raises(store.StoreError, match="schema_version 99, newer"):
        store.read_groups(path, kind="benchmark")


@pytest.mark.parametrize("key", ["truth", "estimation/record_x", "estimation/record_0/more", "Estimation"])
def test_other_groups_are_refused(key):
    groups = recordings(estimation=[record()]).to_groups()
    with pytest.raises(ValueError, match="expected groups named estimation, validation, test"):
        Recordings.from_groups({key: groups["estimation"]})


def test_groups_of_different_recordings_are_refused():
    one, other = recordings(estimation=[record()]), replace(recordings(test=[record()]), name="other")
    with pytest.raises(ValueError, match="expected groups with equal attributes"):
        Recordings.from_groups(one.to_groups() | other.to_groups())
    with pytest.raises(ValueError, match="expected groups with equal attributes"):
        Recordings.from_groups({"estimation": record()})


def broken_time():
    made = record()
    times = made.time.values.copy()
    times[10:] += 0.1
    return made.assign_coords(time=("time", times, made.time.attrs))


def with_gap():
    made = record()
    made["y"][7] = np.nan
    return made


def other_units():
    made = record()
    made["u"].attrs["units"] = "mV"
    return made


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"estimation": []}, "expected at least one record"),
        ({"test": [broken_time()]}, "record 0 must increase in equal steps: step 9"),
        ({"estimation": [record()], "test": [with_gap()]}, r"'y' of record 1 is nan at sample 7 .*fill the gap"),
        ({"estimation": [record()], "test": [record(dt=0.4)]}, "one sampling time"),
        ({"estimation": [record()], "test": [other_units()]}, "units 'V' in record 0 and 'mV' in record 1"),
        ({"estimation": [record().drop_vars("u")]}, r"no signals \['u'\]"),
        ({"estimation": [record().drop_attrs(deep=False)]}, "no attributes .*'initialisation_window'"),
        ({"estimation": [record().assign_attrs(sampling_time=0.6)]}, "states sampling_time 0.6 .* steps of 0.5"),
        ({"estimation": [record().assign_attrs(sampling_time=-1.0)]}, "states sampling_time -1"),
        ({"estimation": [record(window=30)]}, "initialisation_window 30, expected a whole number .* 0 to 29"),
        ({"estimation": [record(window=-1)]}, "initialisation_window -1"),
        ({"estimation": [record(window=2.0)]}, r"initialisation_window 2\.0"),
    ],
)
def test_what_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message) as caught:
        recordings(**wrong)
    assert "Recordings('rig')" in str(caught.value)


def test_a_single_data_set_is_no_list_of_records():
    with pytest.raises(TypeError, match=r"must be an xarray\.Dataset"):
        recordings(estimation=record())


@pytest.mark.parametrize(("inputs", "outputs"), [(("u",), ()), (("y",), ("y",)), (("u", "u"), ("y",))])
def test_signals_must_be_named_once_with_an_output(inputs, outputs):
    with pytest.raises(ValueError, match="at least one output and every signal once"):
        Recordings("rig", inputs, outputs, estimation=(record(),))


def test_time_may_count_samples_but_not_in_part_of_the_records():
    counted = record(dt=1.0)
    counted["time"].attrs["units"] = "1"
    assert recordings(estimation=[counted]).sampling_time == 1.0
    with pytest.raises(ValueError, match="one unit of time, record 0 has '1', record 1 's'"):
        recordings(estimation=[counted], test=[record(dt=1.0)])


def test_records_feed_the_lag_data_set_apart():
    rig = recordings(estimation=[record(10), record(6, seed=1)])
    lags = Narx(outputs={"y": [1, 2]}, inputs={"u": [1]}).dataset(rig.estimation)
    assert lags.sizes["sample"] == 8 + 4
    assert lags.attrs["sampling_time"] == 0.5
