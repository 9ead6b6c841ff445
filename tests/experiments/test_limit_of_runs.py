"""The limit of one-step prediction beside a run: its samples, its words, and why there is none."""

import multiprocessing

import numpy as np
import pytest
from omegaconf import OmegaConf

from experiments.cli.ends import Stopped
from experiments.identify.limit import describe_limit
from experiments.identify.run import run
from experiments.plant import limit as plant_limit
from experiments.plant.plant import Plant, plant_of
from helpers.commands import (
    SHORT_RUN,
    SMALLEST_RUN,
    compose_configuration,
    fail_after,
    load_dataset,
    load_summary,
    run_identify,
)
from helpers.records import ONE_OUTPUT
from simulators import DivergenceError, predict_one_step
from sysid import standardised_mean_squared_error as smse
from sysid.beside import n_processes

LIMIT_KEYS = ("smse_limit", "rmse_limit", "times_the_limit", "no_limit")
OSCILLATOR = ("system=van_der_pol", "duration=200samples", *SMALLEST_RUN)
TANKS = ("system=cascaded_tanks", "controller=level_pi", "duration=200samples", *SMALLEST_RUN)


def expected_scores(folder, plant, seed, std, *, output=0):
    """Return SMSE and RMSE of the limit on the validation rows in a folder.

    The whole run is simulated again.
    """
    trajectory = load_dataset(folder, "trajectory")
    whole = plant.trajectory(trajectory.sizes["time"], seed)
    mean = predict_one_step(whole, std, driven=plant.controller.inputs_driven).mean[:, output]
    result = load_dataset(folder, "result")
    is_validation = result["phase"].values == 2
    times = result["time"].values[is_validation]
    rows = np.searchsorted(whole.time, times - 0.5 * plant.system.dt)
    y = whole.output[:, output]
    np.testing.assert_allclose(result["target"].values[is_validation], y[rows] - y[rows - 1])
    errors = y[rows] - mean[rows]
    target = y[rows] - y[rows - 1]
    return {
        "smse_limit": smse(target, target - errors),
        "rmse_limit": np.sqrt(np.mean(errors**2)),
    }


def test_the_limit_is_scored_on_the_samples_of_the_model(finished):
    summary = load_summary(finished)
    expected = expected_scores(finished, plant_of(compose_configuration(*SHORT_RUN)), 0, 0.0)
    assert {name: summary[name] for name in expected} == pytest.approx(expected, rel=1e-9)
    ratio = summary["smse"] / summary["smse_limit"]
    assert summary["times_the_limit"] == pytest.approx(ratio, rel=1e-12)
    assert ratio > 1
    assert summary["no_limit"] is None
    assert "limit" in summary["times"]


@pytest.mark.parametrize("overrides", [OSCILLATOR, TANKS], ids=["open loop", "closed loop"])
def test_a_signal_to_noise_ratio_refers_to_the_run_without_measurement_noise(overrides, tmp_path):
    noisy = (*overrides, "noise.snr_db=30", "seed=3")
    summary = load_summary(run_identify(tmp_path, *noisy))
    quiet = plant_of(compose_configuration(*overrides)).trajectory(200, 3)
    std = quiet.output.std(axis=0) * 10 ** (-30 / 20)
    plant = plant_of(compose_configuration(*noisy))
    expected = expected_scores(tmp_path, plant, 3, std)
    assert {name: summary[name] for name in expected} == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ((*OSCILLATOR, "limit=false"), "limit=false"),
        ((*OSCILLATOR, "identified=1"), "there are no samples after the stream"),
        ((*TANKS, "noise=outliers"), "the errors of sensors that fail are not Gaussian"),
        (
            (*TANKS, "narx=lags", "narx.outputs={level: 2}", "narx.inputs={pump_voltage: [0, 1]}"),
            "the regressors contain the present pump_voltage",
        ),
    ],
    ids=["not wanted", "no validation", "failing sensors", "present input"],
)
def test_a_run_without_a_limit_states_why(overrides, reason, tmp_path):
    summary = load_summary(run_identify(tmp_path, *overrides))
    assert summary["no_limit"].startswith(reason)
    assert [summary[name] for name in LIMIT_KEYS[:3]] == [None, None, None]


def test_sensors_that_could_fail_but_do_not_have_a_limit(tmp_path):
    sensors = ("noise=outliers", "noise.share=0", "noise.dropouts=0", "noise.std=0.01")
    assert load_summary(run_identify(tmp_path, *TANKS, *sensors))["no_limit"] is None


def test_a_filter_that_fails_leaves_the_run_as_it_is(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")

    def fail(*arguments, **options):
        raise plant_limit.SimulationError("the filter diverged")

    monkeypatch.setattr(plant_limit, "predict_one_step", fail)
    summary = load_summary(run_identify(tmp_path, *OSCILLATOR))
    assert summary["no_limit"] == "the filter diverged"
    assert summary["smse"] is not None
    assert "The limit of one-step prediction is not known: the filter diverged" in caplog.text


def test_a_record_has_no_limit(record, tmp_path, caplog):
    caplog.set_level("INFO")
    summary = load_summary(run_identify(tmp_path, *record, ONE_OUTPUT))
    assert summary["no_limit"] == "the true equations of a record are not known"
    assert summary["smse_limit"] is None
    assert "limit of" not in caplog.text


def test_a_second_process_finds_the_same_limit(tmp_path, monkeypatch):
    alone = load_summary(run_identify(tmp_path / "alone", *TANKS, "noise.snr_db=30"))
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    assert n_processes() == 2
    beside = load_summary(run_identify(tmp_path / "beside", *TANKS, "noise.snr_db=30"))
    assert [beside[name] for name in LIMIT_KEYS] == [alone[name] for name in LIMIT_KEYS]


def test_a_run_that_is_interrupted_ends_the_second_process(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    simulate = Plant.samples

    def simulate_and_fail(self, *arguments, **options):
        return fail_after(
            simulate(self, *arguments, **options), 150, DivergenceError("the plant exploded")
        )

    monkeypatch.setattr(Plant, "samples", simulate_and_fail)
    with pytest.raises(Stopped, match="the plant exploded"):
        run_identify(tmp_path, *OSCILLATOR)
    assert load_summary(tmp_path)["no_limit"] == "the run is not complete"
    assert not multiprocessing.active_children()


def test_every_output_of_a_system_of_the_user_has_a_limit_from_one_filter(tmp_path, monkeypatch):
    composed = compose_configuration(
        "system=bouc_wen",  # its open loop; the node `system` replaces the system itself
        "excitation.band=null",
        "excitation.rms=1",
        "noise.std=[0.02,0.05]",
        "duration=300samples",
        "narx=orders",
        "narx.na=2",
        "narx.nb=2",
        "narx.target=all",
        *SMALLEST_RUN,
    )
    config = OmegaConf.create(OmegaConf.to_container(composed))
    config.system = {"_target_": "helpers.systems.TwoRooms", "dt": 0.5}
    n_filters = []
    find_one = plant_limit.predict_one_step

    def count(*arguments, **options):
        n_filters.append(1)
        return find_one(*arguments, **options)

    monkeypatch.setattr(plant_limit, "predict_one_step", count)
    run(config, tmp_path)
    assert len(n_filters) == 1
    for output, name in enumerate(("warm_air", "cold_air")):
        summary = load_summary(tmp_path / name)
        expected = expected_scores(
            tmp_path / name, plant_of(config), 0, np.array([0.02, 0.05]), output=output
        )
        assert {key: summary[key] for key in expected} == pytest.approx(expected, rel=1e-9)
        assert summary["times_the_limit"] > 0.9


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "limit", "ratio", "words"),
    [
        (0.2216, 0.2111, 1.05, "1.05 times the limit of 0.211"),
        (0.5, 0.001, 500.0, "500 times the limit of 0.001"),
        (0.1, 0.0, None, "the limit is 0"),
        (0.1, None, None, ""),
        (None, 0.1, None, ""),
    ],
)
def test_the_limit_in_words(score, limit, ratio, words):
    summary = {"smse": score, "smse_limit": limit, "times_the_limit": ratio}
    assert describe_limit(summary) == words


def test_the_last_lines_and_the_page_compare_the_run_with_its_limit(tmp_path, caplog):
    caplog.set_level("INFO")
    folder = run_identify(tmp_path, *OSCILLATOR, "report=true")
    words = describe_limit(load_summary(folder))
    assert "times the limit of" in words
    assert f", {words} (model before the stream" in caplog.text
    page = (folder / "report.html").read_text()
    assert words.partition(" of ")[0] in page


def test_without_noise_the_limit_is_zero_and_there_is_no_ratio(tmp_path, caplog):
    caplog.set_level("INFO")
    summary = load_summary(run_identify(tmp_path, *TANKS))
    assert summary["smse_limit"] == 0
    assert summary["times_the_limit"] is None
    assert ", the limit is 0 (" in caplog.text


# --- the main job ---------------------------------------------------------------------------------


#: SMSE of the exact Kalman predictor on the second half of the year
LIMITS_OF_THE_YEAR = {0: 0.211, 1: 0.228, 2: 0.232, 3: 0.248, 4: 0.248}


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=() if seed == 0 else pytest.mark.slow)
        for seed in LIMITS_OF_THE_YEAR
    ],
)
def test_the_limit_of_the_main_job(seed):
    plant = plant_of(compose_configuration(f"seed={seed}"))
    year = plant.trajectory(35041, seed)
    mean = predict_one_step(year, 0.0, driven=["mass_flow"]).mean[:, 0]
    y = year.output[:, 0]
    target = y[17521:] - y[17520:-1]
    score = smse(target, mean[17521:] - y[17520:-1])
    assert score == pytest.approx(LIMITS_OF_THE_YEAR[seed], abs=0.0005)
