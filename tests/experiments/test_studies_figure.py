"""What all figures of the studies share: captions, numbers, ticks, curves that differ without colours."""

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from experiments.studies.caption import caption
from experiments.studies.catalogue import STUDIES
from experiments.studies.plan import Plan
from experiments.studies.report import write_report
from experiments.studies.significant import significant
from experiments.studies.style import ORDER, WIDTH, band, log_labels, page
from sysid import store


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0256, 3, "0.0256"),
        (0.25, 3, "0.250"),
        (-5.594, 3, "-5.59"),
        (1e-4, 3, "0.000100"),
        (9.9996e-5, 3, "0.000100"),
        (9.994e-5, 3, "9.99·10⁻⁵"),
        (-7e-07, 1, "-7·10⁻⁷"),
        (9.996, 3, "10.0"),
        (2894.2, 3, "2894"),
        (1.25e10, 3, "1.25·10¹⁰"),
        (0.0, 3, "0"),
        (float("nan"), 3, ""),
        (float("inf"), 3, "inf"),
    ],
)
def test_measured_numbers_keep_their_digits(value, digits, text):
    assert significant(value, digits) == text


def test_every_study_has_a_caption_of_one_sentence():
    for name in STUDIES:
        text = caption(name, name, 7)
        assert text.endswith(".")
        assert "{" not in text
        assert ("7 seeds" in text) is (name not in {"table_1", "figure_rastrigin"})
    with pytest.raises(KeyError):
        caption("table_9", "table_9", 7)


def test_the_name_of_a_figure_tells_its_setting_and_variant():
    assert "setting `adaptive`" in caption("table_4", "table_4_adaptive", 3)
    assert "setting `trained`" in caption("figure_building", "figure_building", 3)
    both = caption("figure_rastrigin", "figure_rastrigin_published_acceptance", 3)
    assert "with (leave-one-out reference) acceptance, in the setting `published`" in both
    assert "offered without acceptance" in caption("figure_rastrigin", "figure_rastrigin_published", 3)
    assert "on its printed tables" in caption("guidelines", "guidelines_printed", 3)
    assert "leave the panels" in caption("figure_building", "figure_building", 3)
    assert "leave the panels" not in caption("figure_van_der_pol", "figure_van_der_pol", 3)
    assert "crosses" in caption("table_3", "table_3_trained", 3)
    assert "crosses" not in caption("table_2", "table_2_trained", 3)


def test_a_caption_stands_below_its_figure_and_headings_go_one_level_down(tmp_path):
    text = "# Title\n\n## Section\n\n### Part\n\nnot a # heading\n"
    (tmp_path / "grid.md").write_text(text)
    store.write(xr.Dataset({"x": 1.0}), tmp_path / "grid.nc", kind="study")
    write_report([STUDIES["grid"]], Plan(tmp_path, ("rastrigin",), seeds=4))
    report = (tmp_path / "report.md").read_text()
    assert report.endswith(text.replace("# T", "## T").replace("## S", "### S").replace("### P", "#### P"))
    assert "over\n4 seeds" in report
    assert "- `adaptive`: as trained at the start" in report


@pytest.mark.parametrize(
    ("limits", "labels"),
    [
        ((1.5e-4, 4.5e-4), ["2", "3", "4"]),
        ((2e-6, 1.5e-5), ["2", "5", "10"]),
        ((2e-7, 1.2e-5), ["3", "10", "30", "100"]),
        ((2e-7, 2e-3), ["1", "10", "100", "1000"]),
    ],
)
def test_a_logarithmic_axis_has_at_least_two_labels(limits, labels):
    ax = Figure().subplots()
    ax.set(yscale="log", ylim=limits)
    log_labels(ax.yaxis)
    ticks = [tick for tick in ax.get_yticks() if limits[0] <= tick <= limits[1]]
    assert len(ticks) >= 2
    power = 10.0 ** np.floor(np.log10(ticks[0]))
    assert [f"{tick / power:.0f}" for tick in ticks][: len(labels)] == labels
    assert not any(ax.yaxis.get_minor_formatter().format_ticks(ticks))


def test_ordinary_numbers_have_no_powers_of_ten():
    ax = Figure().subplots()
    ax.set(xscale="log", xlim=(0.004, 20))
    log_labels(ax.xaxis)
    texts = ax.xaxis.get_major_formatter().format_ticks([0.01, 10.0])
    assert texts == ["0.01", "10"]
    ax.set_xlim(1e-5, 20)
    log_labels(ax.xaxis)
    assert "10^{-2}" in ax.xaxis.get_major_formatter().format_ticks([0.01])[0]


@pytest.mark.parametrize("n", [30, 100])
def test_curves_differ_by_markers_at_places_of_their_own(n):
    ax = Figure().subplots()
    for criterion in ORDER:
        band(ax, np.arange(n), np.arange(3.0 * n).reshape(n, 3), criterion)
    places = [set(range(n)[start::step]) for start, step in (line.get_markevery() for line in ax.lines)]
    assert not places[0] & places[1] | places[0] & places[2] | places[1] & places[2]
    assert all(7 <= len(found) <= 11 for found in places)
    assert len({line.get_marker() for line in ax.lines}) == len(ORDER)


def test_a_band_has_the_median_inside_the_percentiles():
    ax = Figure().subplots()
    values = np.array([[0.0, 1.0, 10.0], [2.0, 3.0, 12.0]])
    band(ax, [0.0, 1.0], values, "mean_relevance")
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [1.0, 3.0])
    edges = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (edges.min(), edges.max()) == pytest.approx((0.05, 11.55))


def test_a_page_is_17_cm_wide():
    figure, axes = page(2, 3, 4.0)
    assert figure.get_size_inches()[0] == WIDTH
    assert round(WIDTH * 2.54, 1) == 17.0
    assert axes.shape == (2, 3)
