"""A gross error among the samples that validate a model decides nothing in a run."""

import json
import logging

import pytest

from helpers.commands import load_summary, run_identify
from helpers.records import QUICK_MODEL, csv_overrides, simulate_tanh

DT = 0.5  # s
N = 700
N_LEARNED = round(0.7 * N)
WRONG = 595  # a sample that validates the model
SPIKE = 50.0


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of runs on a record without and with a gross error, and what the second one said."""
    u, y = simulate_tanh(N)
    folders = {}
    logger = logging.getLogger("experiments")
    said = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    for name, spike in (("clean", 0.0), ("wrong", SPIKE)):
        y[WRONG] += spike
        folder = tmp_path_factory.mktemp(name)
        path = folder / "record.csv"
        path.write_text("u,y\n" + "\n".join(f"{a:.6f},{b:.6f}" for a, b in zip(u, y, strict=True)))
        said.clear()
        data = csv_overrides(dt=DT, estimation=path)
        folders[name] = run_identify(folder / "run", *data, *QUICK_MODEL, "report=true")
    logger.removeHandler(handler)
    logger.setLevel(level)
    return folders, " ".join(said)


def test_models_are_scored_with_and_without_it(runs):
    folders, _ = runs
    clean = load_summary(folders["clean"])
    wrong = load_summary(folders["wrong"])
    assert clean["free_run_without_gross_errors"] is None
    assert clean["linear"]["best"]["rmse_without_gross_errors"] is None
    assert wrong["gross_errors"]["validation"] == {"y": 1}
    assert wrong["rmse"] > 10 * clean["rmse"]
    assert wrong["rmse_without_gross_errors"] == pytest.approx(clean["rmse"], rel=0.02)
    free_run = wrong["free_run_without_gross_errors"]
    assert free_run["rmse"] == pytest.approx(clean["free_run"]["rmse"], rel=0.02)
    for name in ("same_lags", "best"):
        line = wrong["linear"][name]
        of_clean = clean["linear"][name]
        for key in ("rmse", "free_run_rmse"):
            assert line[key] > 5 * of_clean[key]
            assert line[f"{key}_without_gross_errors"] == pytest.approx(of_clean[key], rel=0.02)


def test_no_verdict_comes_from_it(runs):
    folders, _ = runs
    clean, wrong = (load_summary(folders[name])["warnings"] for name in ("clean", "wrong"))
    about_errors = [note for note in wrong if "gross errors" not in note]
    assert len(about_errors) == len(clean)
    assert not any("no better than" in note for note in about_errors)
    residuals = [
        json.loads((folders[name] / "validation.json").read_text())["residuals"]["one_step"]
        for name in ("clean", "wrong")
    ]
    assert residuals[1]["n"] == residuals[0]["n"] - 2


def test_the_run_and_its_page_state_the_score_without_it_first(runs):
    folders, said = runs
    wrong = load_summary(folders["wrong"])
    rmse = f"{wrong['rmse_without_gross_errors']:.4g}"
    assert f"RMSE {rmse} without gross errors (" in said
    assert said.count("without gross errors (") >= 4  # SMSE, RMSE, free run and both lines
    page = (folders["wrong"] / "report.html").read_text()
    assert "</strong> where no gross error of the record touches a sample" in " ".join(page.split())
    assert "without gross errors" not in (folders["clean"] / "report.html").read_text()
