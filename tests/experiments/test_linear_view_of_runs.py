"""`sysid-validate linear=true`: numbers, figure, the truth of a simulated plant, the page."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.report.page import describe_linearly
from experiments.validate import figures
from experiments.validate.linear_figure import POINT_COLORS, draw_linear_views
from experiments.validate.report import tabulate_linear_views
from helpers.records import (
    ONE_STEP_ONLY,
    make_model,
    read_validation,
    run_validate,
    save_models,
    validation_overrides,
    write_record,
)
from simulators import Silverbox, simulate
from sysid import Model, Narx, OnlineGP, Origin, Scaling, SquaredExponential, make_record
from sysid.gp.mean import LinearMean

SYSTEM = ("system=silverbox", "noise.snr_db=60", "duration=400samples")


@pytest.fixture(scope="module")
def silverbox(tmp_path_factory):
    """Return the file of a model of the Silverbox, learned from 800 samples of little noise."""
    system = Silverbox()
    rng = np.random.default_rng(0)
    u = 0.03 * rng.normal(size=(800, 1))
    output = simulate(system, u, n_samples=800, noise=False).noise_free_output[:, 0]
    record = make_record(
        {"output_voltage": output, "input_voltage": u[:, 0]},
        name="e",
        sampling_time=system.dt,
        units={"output_voltage": "V", "input_voltage": "V"},
    )
    narx = Narx({"output_voltage": 2}, {"input_voltage": [1, 2]}, predict="value")
    rows = narx.dataset(record)
    x = rows["regressor"].values
    y = rows["target"].values
    scaling = Scaling.fit(x)
    mean = LinearMean().fitted(x, y)
    gp = OnlineGP(SquaredExponential(1e-3, (4.0,) * 4), noise_variance=1e-9, budget=60)
    model = Model(narx, scaling, mean, gp, Origin.of(rows))
    model.update_many(x, y)
    path = tmp_path_factory.mktemp("models") / "model.nc"
    model.save(path)
    return path


def test_linear_view_of_a_simulated_plant_is_close_to_the_truth(silverbox, tmp_path):
    content = run_validate(
        tmp_path,
        f"model={silverbox}",
        *SYSTEM,
        "linear=true",
        "horizons=[1]",
        "propagation=mean_only",
    )
    views = content["linear_view"]
    assert [view["quantile"] for view in views] == [0.1, 0.5, 0.9]
    middle = views[1]
    assert middle["static_gain"] == pytest.approx(middle["true_static_gain"], rel=0.03)
    assert middle["max_error_db"] < 1.0
    assert middle["max_error_deg"] < 5.0
    assert middle["gain_unit"] == "V per V"
    assert middle["words"].startswith("input_voltage: +1")
    groups = read_validation(tmp_path)
    response = groups["linear_view_1_frequency"]
    assert {"magnitude", "magnitude_low", "phase_high", "true_magnitude"} <= set(response)
    assert groups["linear_view_1_step"].sizes["time"] > 20
    assert min(imread(tmp_path / "linear_view.png").shape[:2]) > 800


@pytest.fixture(scope="module")
def drawn_views(silverbox, tmp_path_factory):
    """The linear views that a validation draws, and the name of their output."""
    drawn = []

    def keep(views, output):
        drawn.append((views, output))
        return draw_linear_views(views, output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw_linear_views", keep)
        run_validate(
            tmp_path_factory.mktemp("drawn"),
            f"model={silverbox}",
            *SYSTEM,
            "linear=true",
            "horizons=[1]",
            "propagation=mean_only",
        )
    return drawn[0]


def test_a_truth_that_is_far_from_the_model_stays_on_the_axes(drawn_views):
    views, output = drawn_views
    far = tuple(replace(one, truth=30.0 * one.truth) for one in views.views)
    magnitude = draw_linear_views(replace(views, views=far), output).axes[0]
    _, top = magnitude.get_ylim()
    low, high = views.band(output, views.inputs[0])
    for one in far:
        f = one.response["frequency"].values
        is_excited = (f >= low) & (f <= high)
        assert is_excited.any()
        assert (20 * np.log10(np.abs(one.truth[is_excited])) < top).all()


def test_views_that_coincide_show_beneath_each_other(drawn_views):
    views, output = drawn_views
    first = views.views[0]
    same = tuple(
        replace(one, response=first.response, step=first.step, truth=None) for one in views.views
    )
    for ax in draw_linear_views(replace(views, views=same), output).axes:
        widths = [line.get_linewidth() for line in ax.lines if line.get_color() in POINT_COLORS]
        assert widths == sorted(widths, reverse=True)
        assert len(set(widths)) == 3


def test_the_log_has_a_short_table_of_the_views(silverbox, tmp_path, caplog):
    with caplog.at_level("INFO"):
        content = run_validate(
            tmp_path,
            f"model={silverbox}",
            *SYSTEM,
            "linear=true",
            "horizons=[1]",
            "propagation=mean_only",
        )
    messages = [record.getMessage() for record in caplog.records]
    title = messages.index("Linear view of output_voltage by input_voltage, gain in V per V")
    header = messages[title + 2].split()
    assert header[:5] == ["at", "gain", "from", "to", "time"]
    for view, row in zip(content["linear_view"], messages[title + 3 : title + 6], strict=True):
        numbers = row.split()
        at = view["operating_point"]["input_voltage"]
        assert float(numbers[0]) == pytest.approx(at, rel=1e-3)
        assert float(numbers[1]) == pytest.approx(view["static_gain"], rel=1e-2)
        assert float(numbers[5]) == pytest.approx(view["true_static_gain"], rel=1e-2)
        assert float(numbers[-1]) == pytest.approx(100 * view["coverage_phase"], abs=0.5)
    assert max(map(len, messages[title : title + 6])) <= 100


def test_a_table_has_dashes_where_there_is_no_gain_and_no_constant_input():
    entry = {
        "input": "u",
        "operating_point": {"u[k-1]": 2.0},
        "quantile": 0.1,
        "static_gain": None,
        "static_gain_low": None,
        "static_gain_high": None,
        "response_time": None,
        "time_unit": "s",
    }
    table = tabulate_linear_views([entry], has_truth=False)
    assert table.splitlines()[1].split() == ["10", "%", "-", "-", "-", "-"]


def test_linear_view_of_records_has_no_truth(tmp_path):
    model = save_models(tmp_path / "model.nc")
    record = write_record(tmp_path / "test.csv", n=200)
    content = run_validate(
        tmp_path / "run", *validation_overrides(model, record), *ONE_STEP_ONLY, "linear=true"
    )
    views = content["linear_view"]
    assert len(views) == 3
    assert all(view["true_static_gain"] is None for view in views)
    assert all("max_error_db" not in view or view["max_error_db"] is None for view in views)
    assert "A" in views[0]["gain_unit"]
    assert not (tmp_path / "run" / "linear_view.png").exists()  # figures=false


def test_without_the_option_there_is_no_linear_view(tmp_path):
    model = save_models(tmp_path / "model.nc")
    record = write_record(tmp_path / "test.csv", n=60)
    content = run_validate(tmp_path / "run", *validation_overrides(model, record), *ONE_STEP_ONLY)
    assert content["linear_view"] is None


def test_a_model_without_inputs_has_no_linear_view(tmp_path):
    lags = {"outputs": {"y": 2}, "inputs": {}}
    model = save_models(tmp_path / "model.nc", make_model(lags=lags))
    record = write_record(tmp_path / "test.csv", n=60)
    with pytest.raises(ValueError, match="linear=true: the model has no inputs"):
        run_validate(
            tmp_path / "run",
            *validation_overrides(model, record),
            *ONE_STEP_ONLY,
            "left_out=[u]",
            "linear=true",
        )


def test_a_flag_is_expected(tmp_path):
    model = save_models(tmp_path / "model.nc")
    record = write_record(tmp_path / "test.csv", n=60)
    with pytest.raises(ValueError, match="linear must be true or false"):
        run_validate(tmp_path / "run", *validation_overrides(model, record), "linear=yes please")


def test_a_point_without_steady_state_is_a_sample_of_the_record(tmp_path):
    """A model that integrates has no steady state: the nearest samples take its place."""
    record = write_record(tmp_path / "test.csv", n=120)
    model = make_model()
    integrator = Model(
        model.narx,
        model.scaling,
        LinearMean([0.0, 0.0, 1.0], 5.0),
        OnlineGP(SquaredExponential(1e-9, (2.0,) * 3), noise_variance=2e-4, budget=5),
        model.origin,
        (-10.0, 10.0),
    )
    path = save_models(tmp_path / "model.nc", integrator)
    content = run_validate(
        tmp_path / "run", *validation_overrides(path, record), *ONE_STEP_ONLY, "linear=true"
    )
    assert all("of the record" in view["where"] for view in content["linear_view"])
    assert any("no steady state" in warning for warning in content["warnings"])


def test_the_page_describes_a_stored_model_in_words(tmp_path):
    described = describe_linearly(make_model().to_dataset(), tmp_path)
    (sentence,) = described["sentences"]
    assert sentence.startswith("u: +")
    assert "V per A" in sentence
    assert describe_linearly(None, tmp_path) is None
    damaged = make_model().to_dataset().assign_attrs(noise_variance=3.0)
    assert "not a complete model" in describe_linearly(damaged, tmp_path)["reason"]
