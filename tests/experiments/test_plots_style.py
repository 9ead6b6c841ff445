"""What all figures share: numbers, ticks, curves that differ without colours."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.plots.style import COLORS, draw_band, scale_axis


def test_curves_have_medians_bands_and_markers_of_their_own():
    ax, names = Figure().subplots(), list(COLORS)[:3]
    values = np.array([[0.0, 1.0, 10.0], [2.0, 3.0, 12.0]])
    draw_band(ax, [0.0, 1.0], values, names[0], 0.0)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1.0, 3.0])
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == pytest.approx((0.05, 11.55))
    ax = Figure().subplots()
    for i, name in enumerate(names):
        draw_band(ax, np.arange(30), np.arange(90.0).reshape(30, 3), name, i / 3)
    places = [set(range(30)[start::step]) for start, step in (line.get_markevery() for line in ax.lines)]
    assert not places[0] & places[1] | places[0] & places[2] | places[1] & places[2]
    assert len({line.get_marker() for line in ax.lines}) == 3


@pytest.mark.parametrize(
    ("values", "scale", "limits"),
    [
        ([0.1, np.nan, 10.0], "log", (0.1 / 100**0.06, 10.0 * 100**0.06)),
        ([0.0, 1.0, 100.0], "symlog", (-0.3, 100.0 * 100**0.06)),
        ([1.0, 2.0, np.inf], "linear", (0.94, 2.06)),
        ([-1.0, 10.0], "linear", (-1.66, 10.66)),
        ([5.0], "linear", (4.75, 5.25)),
    ],
)
def test_axes_are_logarithmic_where_positive_values_span_much(values, scale, limits):
    ax = Figure().subplots()
    for axis, found in ((ax.xaxis, ax.get_xlim), (ax.yaxis, ax.get_ylim)):
        scale_axis(axis, np.array(values))
        assert axis.get_scale() == scale
        assert found() == pytest.approx(limits)
    low, high = limits
    if scale == "log":
        assert sum(low <= tick <= high for tick in ax.xaxis.get_majorticklocs()) >= 2
