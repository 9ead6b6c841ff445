"""The linear part of the model of a run: its share of the prediction, its figure, its warnings."""

from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.identify import figures
from helpers.commands import (
    SHORT_RUN,
    SMALLEST_RUN,
    load_dataset,
    load_summary,
    phase_masks,
    run_identify,
)
from sysid import (
    AffineMap,
    Model,
    Narx,
    OnlineGP,
    Origin,
    SquaredExponential,
    StableSpline,
    WithLinearPart,
    ZeroMean,
)
from sysid import standardised_mean_squared_error as smse

WITH_LINEAR_PART = (*SHORT_RUN, "linear_part=stable_spline")
STEADY_WEATHER = (
    "weather.annual_amplitude=0",
    "weather.daily_amplitude=0",
    "weather.weather_std=0",
)


@pytest.fixture(scope="module")
def finished_with_linear_part(tmp_path_factory):
    """A short run whose model has a linear part."""
    folder = tmp_path_factory.mktemp("linear_part")
    run_identify(folder, *WITH_LINEAR_PART, "figures=true", "report=true")
    return SimpleNamespace(
        folder=folder,
        summary=load_summary(folder),
        model=Model.load(folder / "model.nc"),
    )


def test_the_linear_part_alone_is_scored_on_the_samples_of_the_model(finished_with_linear_part):
    """Prediction of the model less that of the points, sample by sample."""
    model = finished_with_linear_part.model
    gp = model.gp
    result = load_dataset(finished_with_linear_part.folder, "result")
    _, _, after = phase_masks(result)
    x = load_dataset(finished_with_linear_part.folder, "narx")["regressor"].values[after]
    target = result["target"].values[after]
    z = model.scaling.transform(x)
    without_lags = z.copy()
    without_lags[:, -gp.n_linear :] = 0.0  # phi = 0: only the process of the points is left
    of_points, _ = gp.predict(without_lags)
    mean = model.predict(x).mean - of_points
    score = finished_with_linear_part.summary["smse_linear_part"]
    assert score == pytest.approx(smse(target, mean), rel=1e-9)


def test_a_model_without_a_linear_part_has_no_score_of_it(finished):
    assert load_summary(finished)["smse_linear_part"] is None
    assert not (finished / "linear_part.png").exists()


def test_the_last_lines_and_the_page_name_the_linear_part(tmp_path, caplog):
    caplog.set_level("INFO")
    oscillator = ("system=van_der_pol", "duration=200samples", "report=true")
    folder = run_identify(tmp_path, *SMALLEST_RUN, *oscillator, "linear_part=stable_spline")
    score = load_summary(folder)["smse_linear_part"]
    assert f", linear part alone {score:.3g}, no change" in caplog.text
    page = (folder / "report.html").read_text()
    assert "Its linear part alone has an SMSE of" in page


# --- figure ---------------------------------------------------------------------------------------


def test_a_run_draws_its_linear_part(finished_with_linear_part):
    folder = finished_with_linear_part.folder
    image = imread(folder / "linear_part.png")
    assert image.shape[1] > 1000
    assert image[..., :3].std() > 0.01
    assert "linear_part.png" in (folder / "report.html").read_text()


def test_the_figure_shows_every_coefficient_with_its_band(finished_with_linear_part):
    model = finished_with_linear_part.model
    drawn = figures.linear_part(model, "K")
    draws = 20000
    rng = np.random.default_rng(0)
    coefficients = model.gp.draw_posterior(draws, rng).coefficients.T
    units = {
        "zone_temperature": "K / K",
        "ambient_temperature": "K / K",
        "mass_flow": "K / (kg/s)",
    }
    assert [ax.get_title() for ax in drawn.axes] == list(units)
    first = 0
    for ax, (name, unit) in zip(drawn.axes, units.items(), strict=True):
        assert ax.get_ylabel() == f"coefficient [{unit}]"
        (bars,) = ax.containers
        line, _, (band,) = bars
        lags = model.narx.linear_lags[name]
        np.testing.assert_array_equal(line.get_xdata(), lags)
        columns = slice(first, first + len(lags))
        scale = model.scaling.scale[model.narx.n_features - model.gp.n_linear :][columns]
        expected = model.gp.coefficients[columns] / scale
        np.testing.assert_allclose(line.get_ydata(), expected, rtol=1e-9, atol=1e-12)
        segments = np.array(band.get_segments())
        half_width = 0.5 * (segments[:, 1, 1] - segments[:, 0, 1])
        std = coefficients[:, columns].std(axis=0) / scale
        np.testing.assert_allclose(half_width, 1.96 * std, rtol=0.03)
        assert any(not np.any(line.get_ydata()) for line in ax.lines)  # the zero line
        first += len(lags)
    assert "zone_temperature" in drawn.get_suptitle()


def model_of_signals(n_signals, units=()):
    """Return a model whose linear part has two lags of each signal, and which learned nothing."""
    names = [f"u{i}" for i in range(n_signals - 1)]
    lags = {name: [1, 2] for name in ["y", *names]}
    narx = Narx({"y": 1}, {name: [1] for name in names}, target="y", predict="value", linear=lags)
    kernel = WithLinearPart(
        SquaredExponential(1.0, [1.0] * n_signals),
        StableSpline([2] * n_signals, [1.0] * n_signals, [2.0] * n_signals),
    )
    gp = OnlineGP(kernel, noise_variance=0.1, budget=5, learning="every_sample")
    scaling = AffineMap.identity(3 * n_signals)
    return Model(narx, scaling, ZeroMean(), gp, Origin(units=dict(units)))


@pytest.mark.parametrize(("n_signals", "n_panels"), [(1, 1), (2, 2), (4, 4), (8, 6)])
def test_the_figure_has_a_panel_for_each_of_six_signals(n_signals, n_panels):
    figure = figures.linear_part(model_of_signals(n_signals), "")
    figure.draw_without_rendering()
    shown = [ax for ax in figure.axes if ax.get_visible()]
    assert len(shown) == n_panels
    assert ("6 of 8 signals" in figure.get_suptitle()) == (n_signals == 8)


@pytest.mark.parametrize(
    ("target_unit", "signal_unit", "label"),
    [
        ("K", "W", "K / W"),
        ("V", "", "V"),
        ("", "m", "1 / m"),
        ("", "", "1"),
        ("K", "1/s", "K / (1/s)"),
    ],
)
def test_coefficients_have_the_unit_of_the_target_over_that_of_the_signal(
    target_unit, signal_unit, label
):
    figure = figures.linear_part(model_of_signals(1, {"y": signal_unit}.items()), target_unit)
    assert figure.axes[0].get_ylabel() == f"coefficient [{label}]"


# --- signals that never moved ---------------------------------------------------------------------


def test_a_signal_that_never_moved_is_named_once(tmp_path):
    summary = load_summary(run_identify(tmp_path, *WITH_LINEAR_PART, *STEADY_WEATHER))
    features = [f"ambient_temperature[k-{lag}]" for lag in (1, 2, 3)]
    features += [f"ambient_temperature[k-{lag}] (linear)" for lag in range(1, 15)]
    assert summary["constant_features"] == features
    named = [text for text in summary["warnings"] if "ambient_temperature" in text]
    assert named == [
        "constant in the initial samples, and therefore not scaled: ambient_temperature",
        "the linear part does not use ambient_temperature: its coefficients stay zero for a signal "
        "that never moved while the model learned",
    ]


def test_signals_that_move_are_not_named(finished_with_linear_part):
    warnings = " ".join(finished_with_linear_part.summary["warnings"])
    assert "the linear part does not use" not in warnings
    assert "constant in the initial samples" not in warnings
