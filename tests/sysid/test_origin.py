"""What a model was identified from."""

import json

import numpy as np
import pytest

from sysid.narx import Narx
from sysid.origin import Origin
from sysid.recordings import make_record

Y = np.array([1.0, 3.0, 2.0, 6.0, 4.0])
U = np.arange(5.0)


def record(y=Y, **options):
    return make_record({"y": y, "u": U}, name="r", sampling_time=0.5, units={"y": "degC", "u": "V"}, **options)


@pytest.mark.parametrize("predict", ["change", "value"])
def test_facts_of_the_rows(predict):
    """Those of y, not of the target: y[1] to y[4], as the first sample only is a lag."""
    origin = Origin.of(Narx({"y": 1}, {"u": [0]}, predict=predict).dataset(record()))
    assert origin.sampling_time == 0.5
    assert origin.units == (("u", "V"), ("y", "degC"))
    assert origin.n_samples == 4
    assert origin.output_mean == pytest.approx(np.mean(Y[1:]))
    assert origin.output_variance == pytest.approx(np.var(Y[1:]))
    assert origin.output_range == (2.0, 6.0)


def test_several_records_count_together():
    origin = Origin.of(Narx({"y": 1}).dataset([record(), record(Y + 10)]))
    assert origin.n_samples == 8
    assert origin.output_range == (2.0, 16.0)


def test_a_target_without_lags_has_its_unit():
    origin = Origin.of(Narx({"y": []}, {"u": [0]}, predict="value").dataset(record()))
    assert origin.unit("y") == "degC"
    assert origin.output_range == (1.0, 6.0)


def test_units_in_any_order_are_the_same_origin():
    assert Origin(units={"a": "m", "b": "s"}) == Origin(units=(("b", "s"), ("a", "m")))
    assert Origin(units={"a": "m"}).unit("b") == ""


def test_back_from_json():
    origin = Origin.of(Narx({"y": 1}, {"u": 1}).dataset(record()))
    assert Origin.from_dict(json.loads(json.dumps(origin.to_dict()))) == origin
    assert Origin.from_dict(json.loads(json.dumps(Origin().to_dict()))) == Origin()


@pytest.mark.parametrize("time", [0.0, -1.0, np.inf, np.nan])
def test_a_sampling_time_is_positive(time):
    with pytest.raises(ValueError, match="sampling_time"):
        Origin(sampling_time=time)
