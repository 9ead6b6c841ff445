"""What all figures share: numbers, ticks, curves that differ without colours."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments.plots.style import COLORS, draw_band


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
