"""`narx=orders`: lags as numbers, for the signals of whatever is identified."""

import json

import generating
import numpy as np
import pytest
from running import PLAIN, configured, data_of, execute

from experiments.identification import narx_of, source_of
from sysid import OnMissing, Target


def chosen(*overrides):
    config = configured("narx=orders", *overrides)
    return narx_of(config, source_of(config))


def test_signals_are_those_of_the_plant():
    narx = chosen("narx.na=1", "narx.nb=[2,1]", "narx.nk=[0,3]", "duration=60samples")
    assert narx.lags == {"zone_temperature": (1,), "ambient_temperature": (0, 1), "mass_flow": (3,)}
    assert narx.predict is Target.change


def test_signals_are_those_of_the_records(tmp_path):
    (tmp_path / "a.csv").write_text("u,v,y\n" + "".join(f"{k % 3},{k % 5},{k % 7}\n" for k in range(30)))
    data = ("data=csv", f"data.estimation={tmp_path}/a.csv", "data.inputs=[u,v]", "data.outputs=[y]", "data.dt=1")
    narx = chosen(*data, "narx.nb=1", "narx.predict=value", "on_missing=skip")
    assert narx.lags == {"y": (1, 2), "u": (1,), "v": (1,)}
    assert (narx.predict, narx.on_missing) == (Target.value, OnMissing.skip)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("narx.na=-1",), r"na.*must be a whole number"),
        (("narx.nb=[1,1,1]",), "one number nb"),
        (("narx.na=0", "narx.nb=0"), "lags"),
        (("narx.target=mass_flow",), "target"),
    ],
)
def test_wrong_orders_are_refused(overrides, words):
    with pytest.raises(ValueError, match=words):
        chosen("duration=60samples", *overrides)


def test_a_run_identifies_with_them(tmp_path):
    short = ("duration=60samples", "training.n_initial=10", "training.restarts=1", "budget=8", "figures=false")
    folder = execute(tmp_path, *short, "narx=orders", "narx.na=1", "narx.nb=1", "narx.nk=2")
    names = ["zone_temperature[k-1]", "ambient_temperature[k-2]", "mass_flow[k-2]"]
    assert data_of(folder, "model")["feature"].values.tolist() == names


@pytest.mark.skipif(PLAIN, reason="a benchmark is made alike without the compiler")
def test_a_benchmark_has_them(tmp_path):
    folder = generating.generate(tmp_path / "set", "system=van_der_pol", "narx=orders", "narx.na=3", "narx.nb=0")
    from sysid.store import read_groups

    rows = next(iter(read_groups(folder / "narx.nc", kind="narx").values()))
    lags = json.loads(rows.attrs["narx"])
    assert lags["outputs"] == {"displacement": [1, 2, 3]}
    assert np.isfinite(rows["regressor"].values).all()
