"""Every option of every group runs, and does what its name says."""

import numpy as np
import pytest
from running import BUDGET, CONF, DATA, PLAIN, SHORT, bits, configured, data_of, execute, phases, summary_of

from sysid import Model

if PLAIN:
    pytest.skip(
        "options choose the same without the compiler; tests/sysid/test_compiled.py compares their numbers",
        allow_module_level=True,
    )


def options(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


INSERTIONS, REDUCTIONS, ACCEPTANCES = (options(group) for group in ("insertion", "reduction", "acceptance"))
WITHOUT_THRESHOLD = [override for override in SHORT if not override.startswith("insertion")]
#: every pair of options of two groups occurs
COMBINATIONS = [
    (INSERTIONS[(i + j) % len(INSERTIONS)], reduction, acceptance)
    for i, reduction in enumerate(REDUCTIONS)
    for j, acceptance in enumerate(ACCEPTANCES)
]


def test_promised_options_exist():
    assert set(INSERTIONS) >= {"always", "variance", "error", "either"}
    criteria = {
        "prior_entropy",
        "predictive_entropy",
        "mean_relevance",
        "marginal_log_likelihood",
        "log_predictive_density",
    }
    assert set(REDUCTIONS) >= criteria
    assert set(ACCEPTANCES) >= criteria | {"none", "matched"}
    assert set(options("weather")) >= {"synthetic", "measured", "epw"}
    assert set(options("training")) >= {"maximum_likelihood", "fixed"}


def test_combinations_cover_every_pair():
    assert {(i, r) for i, r, _ in COMBINATIONS} == {(i, r) for i in INSERTIONS for r in REDUCTIONS}
    assert {(i, a) for i, _, a in COMBINATIONS} == {(i, a) for i in INSERTIONS for a in ACCEPTANCES}


@pytest.mark.parametrize(("insertion", "reduction", "acceptance"), COMBINATIONS)
def test_every_option_runs(insertion, reduction, acceptance, tmp_path):
    thresholds = [
        f"insertion.{name}={value}"
        for name, value in (("variance_threshold", 0.0005), ("error_threshold", 0.02))
        if f"{name}:" in (CONF / "insertion" / f"{insertion}.yaml").read_text()
    ]
    groups = (f"insertion={insertion}", f"reduction={reduction}", f"acceptance={acceptance}")
    folder = execute(tmp_path, *WITHOUT_THRESHOLD, *groups, *thresholds)
    summary, model = summary_of(folder), Model.load(folder / "model.nc")
    assert summary["n_seen"] >= summary["n_inserted"] >= summary["n_accepted"] >= summary["n_revised"] > 0
    assert summary["n_points"] == model.gp.n_points <= BUDGET
    assert np.isfinite([summary["smse"], summary["nlpd"]]).all()
    wanted = reduction if acceptance == "matched" else acceptance
    if acceptance == "none":
        assert summary["n_accepted"] == summary["n_inserted"]
    else:
        assert type(model.gp.acceptance.criterion).__name__ == wanted.title().replace("_", "")
    assert type(model.gp.reduction).__name__ == reduction.title().replace("_", "")
    assert type(model.gp.insertion).__name__.lower().startswith(insertion)


@pytest.mark.parametrize("reference", ["leave_one_out", "in_sample", "published"])
def test_acceptance_references_run_and_are_kept(reference, tmp_path):
    folder = execute(tmp_path, *SHORT, f"acceptance.reference={reference}")
    assert Model.load(folder / "model.nc").gp.acceptance.reference.value == reference


def test_acceptance_references_differ(tmp_path):
    """Seen from within, stored points have small residuals: more candidates exceed the smallest."""
    counts = {
        reference: summary_of(
            execute(
                tmp_path / reference,
                *SHORT,
                "reduction=mean_relevance",
                "insertion.error_threshold=0.001",
                f"acceptance.reference={reference}",
            )
        )["n_accepted"]
        for reference in ("leave_one_out", "in_sample", "published")
    }
    assert counts["in_sample"] == counts["published"] >= counts["leave_one_out"]


def test_fixed_training_starts_empty(tmp_path):
    folder = execute(tmp_path, "training=fixed", *(o for o in SHORT if not o.startswith("training")))
    summary, result = summary_of(folder), data_of(folder, "result")
    initial, online, _ = phases(result)
    assert not initial.any()
    assert summary["n_initial"] == 0
    assert result["n_points"].values[online][0] == 1
    assert result["mean"].values[online][0] == 0.0
    assert result["variance"].values[online][0] == pytest.approx(10.0)
    assert np.isfinite(summary["smse"])
    assert summary["smse_initial"] == pytest.approx(summary["smse_no_change"], rel=1e-12)
    scales = summary["hyperparameters"]["kernel"]["length_scales"]
    assert set(scales.values()) == {100.0}
    assert summary["hyperparameters"]["noise_variance"] == 0.002
    model = Model.load(folder / "model.nc")
    assert np.all(model.scaling.scale == 1.0)
    assert model.mean.value == 0.0


def test_fixed_training_takes_samples_to_start_from(tmp_path):
    short = [o for o in SHORT if not o.startswith("training")]
    folder = execute(tmp_path, "training=fixed", *short, "training.n_initial=15")
    assert summary_of(folder)["n_initial"] == 15


def test_length_scales_of_fixed_training_may_be_a_list(tmp_path):
    scales = list(range(10, 100, 10))
    short = [o for o in SHORT if not o.startswith("training")]
    options = ("training=fixed", "training.n_initial=5", f"training.length_scales={scales}")
    folder = execute(tmp_path, *short, *options)
    kept = summary_of(folder)["hyperparameters"]["kernel"]["length_scales"]
    assert list(kept.values()) == scales


def test_identifying_all_of_the_run_leaves_nothing_to_validate(tmp_path):
    folder = execute(tmp_path, *SHORT, "identified=1", "figures=true")
    summary = summary_of(folder)
    assert summary["smse"] is None
    assert summary["n_validation"] == 0
    assert summary["smse_stream"] > 0
    assert summary["partial"] is False
    assert {path.stem for path in folder.glob("*.nc")} == set(DATA)


def test_identified_fraction_is_what_is_identified(tmp_path):
    result = data_of(execute(tmp_path, *SHORT, "identified=0.75"), "result")
    _, _, after = phases(result)
    assert after.sum() == pytest.approx(0.25 * (len(after) + 2), abs=1)


def test_value_as_target(finished, tmp_path):
    folder = execute(tmp_path, *SHORT, "narx.predict=value")
    rows, change = data_of(folder, "narx"), data_of(finished, "narx")
    np.testing.assert_allclose(rows["target"] - rows["previous"], change["target"], atol=1e-12)
    assert rows["target"].attrs["units"] == "degC"
    summary = summary_of(folder)
    expected = np.var(change["target"].values) / np.var(rows["target"].values)
    assert summary["smse_no_change"] == pytest.approx(expected, rel=0.5)


def test_other_lags(tmp_path):
    lags = ("narx.outputs.zone_temperature=[1,4]", "narx.inputs.mass_flow=[0,2]")
    folder = execute(tmp_path, *SHORT, *lags)
    assert data_of(folder, "narx")["feature"].values.tolist() == [
        "zone_temperature[k-1]",
        "zone_temperature[k-4]",
        "ambient_temperature[k-1]",
        "ambient_temperature[k-2]",
        "ambient_temperature[k-3]",
        "mass_flow[k]",
        "mass_flow[k-2]",
    ]


def test_skipping_missing_samples_changes_nothing_where_none_is_missing(finished, tmp_path):
    folder = execute(tmp_path, *SHORT, "on_missing=skip")
    assert bits(data_of(folder, "result")) == bits(data_of(finished, "result"))
    assert summary_of(folder)["repairs"]["missing_samples"] == 0


def test_constant_feature_is_survived_and_reported(tmp_path):
    steady = ("annual_amplitude", "daily_amplitude", "weather_std")
    folder = execute(tmp_path, *SHORT, *(f"weather.{name}=0" for name in steady))
    summary = summary_of(folder)
    assert summary["constant_features"] == [f"ambient_temperature[k-{lag}]" for lag in (1, 2, 3)]
    assert summary["repairs"]["constant_features"] == 3
    assert any("constant" in warning for warning in summary["warnings"])
    assert np.isfinite(summary["smse"])


def turned_away(summary):
    return [warning for warning in summary["warnings"] if "turned away" in warning]


def test_says_when_acceptance_turned_most_away(caplog, tmp_path):
    caplog.set_level("INFO")
    impossible = ("insertion.error_threshold=0.0001", "budget=5")
    summary = summary_of(execute(tmp_path, *SHORT, *impossible))
    assert summary["n_inserted"] > 2 * summary["n_accepted"]
    (warning,) = turned_away(summary)
    assert "budget of 5" in warning
    assert "threshold" in warning
    assert warning in caplog.text


@pytest.mark.parametrize(
    "override", ["insertion.error_threshold=100", "acceptance=none", "insertion.error_threshold=0.2"]
)
def test_says_nothing_about_acceptance_otherwise(override, caplog, tmp_path):
    caplog.set_level("INFO")
    summary = summary_of(execute(tmp_path, *SHORT, override))
    assert summary["n_inserted"] <= 2 * summary["n_accepted"]
    assert not turned_away(summary)
    assert "turned away" not in caplog.text


def test_closing_summary_is_a_few_lines_with_the_numbers(caplog, tmp_path):
    caplog.set_level("INFO")
    folder = execute(tmp_path, *SHORT)
    summary = summary_of(folder)
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("experiments")]
    assert 3 <= len(lines) <= 8
    text = "\n".join(lines)
    for expected in (f"{summary['smse']:.3g}", str(summary["n_inserted"]), str(folder)):
        assert expected in text


def test_budget_may_be_smaller_than_the_initial_samples(tmp_path):
    folder = execute(tmp_path, *SHORT, "budget=7")
    result = data_of(folder, "result")
    _, online, _ = phases(result)
    assert (result["n_points"].values[online] == 7).all()
    assert Model.load(folder / "model.nc").gp.n_points == 7


@pytest.mark.slow
@pytest.mark.parametrize("insertion", INSERTIONS)
def test_default_thresholds_work_on_a_year(insertion, tmp_path):
    folder = execute(tmp_path, "duration=365d", f"insertion={insertion}", "figures=false")
    summary = summary_of(folder)
    assert summary["smse"] < 0.5


def groups_of(config):
    """Option of every group, by the class that it stands for; None where there is none."""
    names = ("system", "controller", "weather", "excitation", "insertion", "narx", "data")
    return {name: config[name].get("_target_", "").rpartition(".")[2] or None for name in names}


BUILDING = {"system": "Building", "controller": "PI", "weather": "SyntheticWeather", "excitation": "NoExcitation"}
NEUTRAL = {"controller": None, "weather": None, "excitation": "Multisine", "insertion": "Always", "data": None}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ([], BUILDING | {"insertion": "ErrorThreshold", "narx": "Narx", "data": None}),
        (["system=building"], BUILDING | {"insertion": "ErrorThreshold", "narx": "Narx"}),
        (["system=van_der_pol"], NEUTRAL | {"system": "VanDerPol", "narx": "AutomaticNarx"}),
        (["system=bouc_wen"], NEUTRAL | {"system": "BoucWen", "narx": "AutomaticNarx"}),
        (["system=cascaded_tanks"], NEUTRAL | {"system": "CascadedTanks", "narx": "AutomaticNarx"}),
        (["controller=none"], BUILDING | {"controller": None}),
        (["weather=none", "excitation=prbs"], BUILDING | {"weather": None, "excitation": "PRBS"}),
        (["insertion=always", "narx=auto"], BUILDING | {"insertion": "Always", "narx": "AutomaticNarx"}),
        (["narx=auto", "system=building"], BUILDING | {"narx": "AutomaticNarx"}),
        (["system=cascaded_tanks", "controller=level_pi"], {"controller": "PI", "narx": "AutomaticNarx"}),
        (["data=bouc_wen"], NEUTRAL | {"system": None, "data": "BoucWenData", "narx": "Narx"}),
        (["data=boston"], NEUTRAL | {"system": None, "data": "BostonData", "narx": "AutomaticNarx"}),
        (["data=csv"], NEUTRAL | {"system": None, "data": "CsvFiles", "narx": "AutomaticNarx"}),
        (["data=cascaded_tanks", "narx=auto"], {"system": None, "narx": "AutomaticNarx"}),
        (["data=simulated"], BUILDING | {"data": None}),
        (["data=silverbox", "data=simulated"], BUILDING | {"data": None}),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, list) else "",
)
def test_a_system_brings_its_own_groups_and_the_command_line_wins(overrides, expected):
    found = groups_of(configured(*overrides))
    assert found | expected == found


@pytest.mark.parametrize("options", [("system=building",), ("system=cascaded_tanks", "controller=level_pi")])
def test_the_controller_runs_at_the_dt_of_its_system(options):
    config = configured(*options, "system.dt=7.0")
    assert config.controller.dt == 7.0


OWN = """
defaults:
  - override /controller@_global_.controller: none
  - override /weather@_global_.weather: none
  - override /excitation@_global_.excitation: prbs
  - override /narx@_global_.narx: auto
  - override /insertion@_global_.insertion: always
  - _self_

_target_: two_rooms.TwoRooms
exchange: 0.4
"""


def test_a_system_of_a_user_needs_neither_dt_nor_lags_nor_a_controller(tmp_path):
    """Fields that its yaml leaves out keep the defaults of the class, as does what depends on them."""
    from hydra import compose, initialize_config_dir

    from experiments.identification import run

    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "rooms.yaml").write_text(OWN)
    short = ("duration=120samples", "training.n_initial=15", "budget=12", "training.restarts=1", "figures=false")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose("identify", overrides=[f"hydra.searchpath=[file://{tmp_path}]", "system=rooms", *short])
    run(config, tmp_path)
    trajectory, rows = data_of(tmp_path, "trajectory"), data_of(tmp_path, "narx")
    assert trajectory.attrs["dt"] == 0.5
    assert trajectory.sizes["time"] == 120
    assert set(trajectory["heat"].values) == {-1.0, 1.0}
    assert rows["feature"].values.tolist() == [f"{name}[k-{lag}]" for name in ("warm_air", "heat") for lag in (1, 2)]
    assert summary_of(tmp_path)["system"] == "TwoRooms"
