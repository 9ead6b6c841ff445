"""Recordings: the schema of a record, its parts, and what is no recording."""

import re
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from data_sources import assert_same_recordings, lengths_by_role, record, recordings
from sysid import Recordings, StoredRecordings, make_record, store
from sysid.data.source import part, split_at_holes


def test_a_record_has_the_schema_and_is_a_copy():
    values = np.arange(4.0)
    made = make_record(
        {"y": values},
        name="step",
        sampling_time=0.25,
        initialisation_window=2,
        units={"y": "V"},
        long_names={"y": "voltage"},
        attributes={"licence": "CC0"},
    )
    values[0] = 7.0
    assert made.y.values.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert made.time.values.tolist() == [0.0, 0.25, 0.5, 0.75]
    assert made.time.attrs["units"] == "s"
    assert made.y.attrs == {"units": "V", "long_name": "voltage"}
    assert made.attrs == {
        "licence": "CC0",
        "name": "step",
        "sampling_time": 0.25,
        "initialisation_window": 2,
    }


def test_recordings_know_what_their_records_share():
    rig = recordings(estimation=[record()], test=[record(9)])
    assert rig.sampling_time == 0.5
    assert rig.units == {"u": "V", "y": "m"}
    assert not rig.is_static
    assert lengths_by_role(rig) == [[30], [], [9]]


@pytest.mark.parametrize(
    ("start", "stop", "window"),
    [(0, None, 5), (2, 20, 3), (11, 12, 0), (-4, None, 0), (0, -25, 5)],
)
def test_a_part_keeps_the_time_and_the_rest_of_the_window(start, stop, window):
    whole = record()
    bounds = (start,) if stop is None else (start, stop)
    samples = whole.isel(time=slice(start, stop))
    expected = samples.assign_attrs(initialisation_window=window)
    xr.testing.assert_identical(part(whole, *bounds), expected)
    assert whole.attrs["initialisation_window"] == 5


def test_a_part_may_have_a_window_and_a_name_and_be_cut_again():
    tail = part(record(), 10, initialisation_window=3, name="tail")
    assert tail.attrs["initialisation_window"] == 3
    assert tail.attrs["name"] == "tail"
    part_of_a_part = part(part(record(), 2, 20), 1, 10)
    xr.testing.assert_identical(part_of_a_part, part(record(), 3, 12))


def test_hold_out_cuts_the_end_of_every_record():
    rig = recordings(estimation=[record(30), record(20, seed=1)])
    divided = rig.hold_out(0.25, initialisation_window=2)
    assert lengths_by_role(divided) == [[22, 15], [8, 5], []]
    assert [cut.attrs["initialisation_window"] for cut in divided.validation] == [2, 2]
    np.testing.assert_array_equal(divided.validation[1].y, rig.estimation[1].y[15:])
    with pytest.raises(ValueError, match="validation"):
        divided.hold_out(0.5)


@pytest.mark.parametrize("fraction", [0.0, 1.0])
def test_hold_out_leaves_something_on_both_sides(fraction):
    with pytest.raises(ValueError, match="fraction"):
        recordings(estimation=[record()]).hold_out(fraction)


def many_records():
    """Return recordings whose records need numbers of two digits."""
    estimation = []
    for i in range(12):
        estimation.append(record(20 + i, seed=i, name=f"run {i}", window=i))
    return recordings(
        estimation=estimation,
        validation=[record(7)],
        test=[record(8), part(record(40), 3)],
    )


def test_groups_and_files_lead_back_in_any_order(tmp_path):
    groups = many_records().to_groups()
    names = list(groups)
    assert names[0] == "estimation/record_0"
    assert names[11] == "estimation/record_11"
    assert names[12:] == ["validation", "test/record_0", "test/record_1"]
    sorted_by_name = dict(sorted(groups.items()))  # record_10 before record_2
    path = store.write_groups(sorted_by_name, tmp_path / "benchmark.nc", kind="benchmark")
    loaded = StoredRecordings(path=str(path)).load()
    assert_same_recordings(loaded, many_records())
    attributes = loaded.estimation[1].attrs
    assert type(attributes["initialisation_window"]) is int
    assert type(attributes["sampling_time"]) is float


def record_with(signal, **attributes):
    """Return a record with another attribute of one signal."""
    changed = record(dt=1.0)
    changed[signal].attrs.update(attributes)
    return changed


@pytest.mark.parametrize(
    ("roles", "message"),
    [
        pytest.param(
            {"test": [record().assign_coords(time=np.arange(30) ** 2)]},
            "time of record 0",
            id="uneven time",
        ),
        pytest.param(
            {"estimation": [record(), record().where(record().time != 3.5)]},
            "of record 1 is nan at sample 7",
            id="missing value",
        ),
        pytest.param(
            {"estimation": [record()], "test": [record(dt=0.4)]},
            "one sampling time",
            id="two sampling times",
        ),
        pytest.param(
            {"estimation": [record(dt=1.0)], "test": [record_with("u", units="mV")]},
            "'u', record 0 has 'V', record 1 'mV'",
            id="two units",
        ),
        pytest.param(
            {"estimation": [record_with("time", units="1"), record(dt=1.0)]},
            "one unit of time",
            id="two units of time",
        ),
        pytest.param(
            {"estimation": [record().drop_attrs(deep=False)]},
            "'initialisation_window'",
            id="no attributes",
        ),
        pytest.param(
            {"estimation": [record().assign_attrs(sampling_time=0.6)]},
            "sampling_time 0.6",
            id="wrong sampling time",
        ),
        pytest.param(
            {"estimation": [record(window=30)]},
            "initialisation_window 30",
            id="window as long as the record",
        ),
        pytest.param(
            {"estimation": [record(window=2.0)]},
            r"initialisation_window 2\.0",
            id="window that is no integer",
        ),
    ],
)
def test_wrong_records_are_named(roles, message):
    with pytest.raises(ValueError, match=rf"the records of rig.*{message}"):
        recordings(**roles)


@pytest.mark.parametrize("name", ["truth", "estimation/record_x", "estimation/record_0/more"])
def test_groups_with_other_names_are_refused(name):
    with pytest.raises(ValueError, match="groups named"):
        Recordings.from_groups({name: record()})


def test_groups_of_different_recordings_are_refused():
    rig = recordings(test=[record()])
    groups = rig.to_groups()
    other_groups = replace(rig, name="other").to_groups()
    with pytest.raises(ValueError, match="groups with equal attributes"):
        Recordings.from_groups(groups | {"validation": other_groups["test"]})


@pytest.mark.parametrize("name", ["/estimation", "estimation/record_0", "estimation/record_00"])
def test_two_groups_of_one_record_are_refused(name):
    groups = recordings(estimation=[record()]).to_groups()
    assert [*groups] == ["estimation"]
    with pytest.raises(ValueError, match="are the same record"):
        Recordings.from_groups(groups | {name: record(9)})


def test_a_record_instead_of_a_list_of_records_is_refused():
    with pytest.raises(TypeError, match=r"must be an xarray\.Dataset"):
        recordings(estimation=record())


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        pytest.param(("u",), (), id="no output"),
        pytest.param(("y",), ("y",), id="a signal twice"),
    ],
)
def test_recordings_need_an_output_and_every_signal_once(inputs, outputs):
    with pytest.raises(ValueError, match="at least one output and every signal once"):
        Recordings("rig", inputs, outputs, estimation=(record(),))


def test_a_test_that_is_learned_is_noted():
    learned = record()
    other = learned.assign(y=learned["y"] + 1.0)
    recordings = Recordings("rig", ("u",), ("y",), estimation=(learned,), test=(other, learned))
    (note,) = recordings.notes
    assert re.match("the test record 'step' has the same samples as the estimation record", note)
    assert Recordings("rig", ("u",), ("y",), estimation=(learned,), test=(other,)).notes == ()


@pytest.mark.parametrize(("n", "fraction"), [(1, 0.3), (2, 0.1), (1, 0.9)])
def test_a_record_that_is_too_short_to_hold_a_part_out_is_refused(n, fraction):
    recordings = Recordings(
        "rig", ("u",), ("y",), estimation=(part(record(), 0, n, initialisation_window=0),)
    )
    with pytest.raises(ValueError, match=rf"rig: .* of a record with {n} samples cannot be held"):
        recordings.hold_out(fraction)


@pytest.mark.parametrize(("start", "stop"), [(30, None), (8, 3)])
def test_an_empty_part_is_refused(start, stop):
    with pytest.raises(ValueError, match="is empty"):
        part(record(), start, stop)


def test_records_are_split_at_holes_for_methods_that_need_complete_ones():
    y = np.arange(300.0)
    y[[100, 250]] = np.nan
    u = np.ones(300)
    u[101] = np.nan
    holed = make_record(
        {"u": u, "y": y},
        name="r",
        sampling_time=1.0,
        initialisation_window=5,
        attributes={"on_missing": "skip"},
    )
    whole = make_record({"u": u[:50], "y": y[:50]}, name="w", sampling_time=1.0)
    recordings = Recordings("holed", ("u",), ("y",), estimation=(holed, whole))
    split = split_at_holes(recordings, 60)
    assert [record.attrs["name"] for record in split.estimation] == [
        "r, segment 1",
        "r, segment 2",
        "w",
    ]
    first, second, last = split.estimation
    np.testing.assert_array_equal(first["y"], np.arange(100.0))
    np.testing.assert_array_equal(second["y"], np.arange(102.0, 250.0))
    assert (first.attrs["initialisation_window"], second.attrs["initialisation_window"]) == (5, 0)
    assert "on_missing" not in second.attrs
    assert last.identical(whole)
    with pytest.raises(ValueError, match="no estimation record has 200 samples in a row"):
        split_at_holes(replace(recordings, estimation=(holed,)), 200)


def test_missing_values_are_refused_unless_the_record_says_that_they_are_skipped():
    y = np.array([1.0, np.nan, 2.0])
    record = make_record({"y": y}, name="r", sampling_time=1.0)
    with pytest.raises(ValueError, match="'y' of record 0 is nan at sample 1"):
        Recordings("r", (), ("y",), estimation=(record,))
    skipping = record.assign_attrs(on_missing="skip")
    recordings = Recordings("r", (), ("y",), estimation=(skipping,))
    groups = recordings.to_groups()
    assert Recordings.from_groups(groups).estimation[0].attrs["on_missing"] == "skip"


@pytest.mark.parametrize("sampling_time", [-1.0, 0.0, np.nan, np.inf, "1", None, True], ids=repr)
def test_a_sampling_time_that_is_no_positive_number_is_refused(sampling_time):
    with pytest.raises(ValueError, match="sampling_time must be a number of seconds > 0, got"):
        make_record({"y": np.zeros(4)}, name="rig", sampling_time=sampling_time)


@pytest.mark.parametrize(
    "signals",
    [{"y": np.zeros(4), "u": np.zeros(3)}, {"y": np.zeros((4, 1))}, {"y": 1.0}, {}],
    ids=["two lengths", "matrix", "number", "none"],
)
def test_signals_of_other_shapes_make_no_record(signals):
    with pytest.raises(ValueError, match=r"expected signals \(n,\) of one length, got shapes"):
        make_record(signals, name="rig", sampling_time=1.0)
