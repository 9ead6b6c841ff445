"""The card of a benchmark: what it contains, what it leaves out, what it warns about."""

import hashlib
import re

import numpy as np
import pytest

from helpers.benchmarks import (
    BOUC_WEN,
    MEAN_ONLY,
    RECORD_LENGTHS,
    generate,
    generate_two_rooms,
    read_benchmark,
    read_card,
    read_scores,
    rms,
)


@pytest.fixture(scope="module")
def card(oscillator):
    return read_card(oscillator)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("```text\nm y'' + c y' + k y + z = u + w\n", id="equation"),
        pytest.param("| `mass` | 2.0 | m, kg |", id="parameter"),
        pytest.param(
            "| `displacement` | output, measured | m | measured position of the mass | "
            "`benchmark.nc`, `csv/` |",
            id="signal",
        ),
        pytest.param(
            f"| estimation | estimation | {RECORD_LENGTHS['estimation']} | 0 | 0 |", id="record"
        ),
    ],
)
def test_the_card_describes_system_and_records(text, card):
    assert text in card


def test_the_card_contains_the_checksum_of_the_data(card, oscillator):
    assert hashlib.sha256((oscillator / "benchmark.nc").read_bytes()).hexdigest() in card


def test_the_card_contains_the_scores(card, oscillator):
    scores = read_scores(oscillator)
    floor, gp = (
        {task: scores[task][model]["displacement"]["rmse"] for task in ("one_step", "free_run")}
        for model in ("noise_floor", "online_gp")
    )
    ratio = gp["free_run"] / floor["free_run"]
    assert f"| noise floor | {floor['one_step']:.4g} |" in card
    assert f"| online GP | {gp['one_step']:.4g} | {gp['free_run']:.4g} | {ratio:.3g} |" in card


def test_the_card_contains_the_noise(card, oscillator):
    truth = read_benchmark(oscillator, "truth")["test"]
    noise_free = truth["displacement_noise_free"].values
    noise = truth["displacement_noise"].values
    signal_to_noise = 10 * np.log10(np.var(noise_free) / np.mean(noise**2))
    assert f"| test | `displacement` | {rms(noise):.4g} | {signal_to_noise:.2f} |" in card


def test_the_card_shows_the_figure(card, oscillator):
    (picture,) = re.findall(r"\]\(([^)]+)\)", card)
    assert (oscillator / picture).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "text",
    ["Closed loop", "is no process noise", "has no input", "seed=", "$", "\n\n\n"],
)
def test_the_card_leaves_out_what_does_not_apply(text, card):
    assert text not in card


def test_the_card_leaves_out_the_folder(card, oscillator):
    assert str(oscillator.parent) not in card


def test_steps_that_are_too_long_are_named_in_the_card(tmp_path):
    folder = generate(
        tmp_path / "coarse", *BOUC_WEN, "system.substeps=1", "system.dt=2e-3", MEAN_ONLY
    )

    text = read_card(folder)
    (error,) = re.findall(
        r"over one sample by more than (\S+) standard deviations", text.replace("\n", " ")
    )
    assert float(error) > 1e-3
    assert "1 substeps per sample are inaccurate" in text


def test_baselines_of_an_output_without_lags_are_not_computed(tmp_path):
    folder = generate_two_rooms(tmp_path / "rooms", {"cold_air": 2})

    scores = read_scores(folder)
    card = read_card(folder)
    assert scores["free_run"]["arx"].keys() == {"cold_air"}
    assert scores["one_step"]["arx"].keys() == {"cold_air"}
    assert "Not computed: baselines of `warm_air`; narx names no lags of this output" in card
    assert "substeps per sample are inaccurate" not in card


def test_free_runs_that_need_another_output_are_not_computed(tmp_path):
    folder = generate_two_rooms(tmp_path / "rooms", {"cold_air": 1, "warm_air": 1})

    scores = read_scores(folder)
    card = read_card(folder)
    assert scores["free_run"]["arx"] == {}
    assert scores["one_step"]["arx"].keys() == {"cold_air", "warm_air"}
    assert re.search(r"\| ARX \| [\d.e-]+ \| - \|", card)
    assert (
        "Not computed: free runs of the baselines of `warm_air`; its lags need `cold_air`"
    ) in card
