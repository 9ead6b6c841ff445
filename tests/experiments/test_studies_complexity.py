"""Table 1: the published way and ours give the same numbers; what the study keeps and shows."""

import math

import numpy as np
import pytest
from reproducing import cells_of, make_plan

from experiments.benchmarks.dictionary import (
    COMPILED,
    CRITERIA,
    PUBLISHED,
    PUBLISHED_SCORES,
    WAYS,
    exponent,
    rounds_for,
    scored,
)
from experiments.plots.style import LABELS
from experiments.studies import paper
from experiments.studies.report import STUDIES, compute_job

STUDY, SIZE = STUDIES["table_1"], 12
LOG_2PI = math.log(2 * math.pi)


def dense_set(case):
    """``Ky`` and targets of the stored points and the candidate."""
    x = np.vstack([case.points.inputs, case.candidate.inputs])
    y = np.concatenate([case.points.targets, case.candidate.targets])
    return case.gp.kernel(x, x) + case.gp.noise_variance * np.eye(len(y)), y


def by_inverses(name, case, i):
    """Score of a point by explicit inverses and determinants."""
    ky, y = dense_set(case)
    noise, keep = case.gp.noise_variance, np.arange(len(y)) != i
    inverse, row = np.linalg.inv(ky[keep][:, keep]), ky[i, keep]
    log_determinant, n = np.linalg.slogdet(ky[keep][:, keep])[1], len(y) - 1
    mean, latent = row @ inverse @ y[keep], ky[i, i] - noise - row @ inverse @ row
    whole = (ky - noise * np.eye(len(y)))[i] @ np.linalg.inv(ky) @ y
    return {
        "prior_entropy": -0.5 * n * (1 + LOG_2PI) - 0.5 * log_determinant,
        "predictive_entropy": 0.5 * (1 + LOG_2PI + math.log(latent)),
        "mean_relevance": (whole - mean) ** 2,
        "log_predictive_density": 0.5 * (LOG_2PI + math.log(latent + noise) + (y[i] - mean) ** 2 / (latent + noise)),
        "marginal_log_likelihood": -0.5 * (y[keep] @ inverse @ y[keep] + log_determinant + n * LOG_2PI),
    }[name]


@pytest.mark.parametrize("name", CRITERIA)
def test_both_ways_give_the_numbers_of_explicit_inverses_up_to_what_all_points_share(name):
    case = scored(SIZE, 3)
    published = np.array([PUBLISHED_SCORES[name](case.published(i)) for i in range(SIZE)])
    np.testing.assert_allclose(published, [by_inverses(name, case, i) for i in range(SIZE)], rtol=1e-8, atol=1e-10)
    ours, again = case.compiled_scores(CRITERIA[name], 2)()
    np.testing.assert_array_equal(ours, again)
    ky, y = dense_set(case)
    half_log_determinant = 0.5 * np.linalg.slogdet(ky)[1]
    shared = {
        "predictive_entropy": 0.5 * (1 + LOG_2PI),
        "prior_entropy": -0.5 * SIZE * (1 + LOG_2PI) - half_log_determinant,
        "marginal_log_likelihood": -0.5 * (y @ np.linalg.solve(ky, y) + len(y) * LOG_2PI) - half_log_determinant,
    }
    np.testing.assert_allclose(ours + shared.get(name, 0.0), published, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(case.numpy_scores(CRITERIA[name])(), ours, rtol=1e-10, atol=1e-12)


def test_exponent_looks_at_large_sizes_and_rounds_become_fewer():
    assert [rounds_for(n, 1000) for n in (20, 100, 200, 1000, 2000)] == [1000, 1000, 250, 10, 5]
    sizes = np.array([20, 100, 200, 400, 800])
    seconds = 1e-9 * sizes**3.0
    seconds[:2] += 1.0
    assert exponent(sizes, seconds) == pytest.approx(3.0)
    assert exponent(sizes[:2], sizes[:2] ** 2.0) == pytest.approx(2.0)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    plan = make_plan(tmp_path_factory.mktemp("table_1"), "rastrigin", table_sizes=(20, 30), repetitions=3)
    compute_job(STUDY.units(plan), plan)
    return STUDY.combine(plan)


def test_store_keeps_quartiles_beside_the_published_times(kept):
    seconds, published = kept["seconds"], kept["seconds_published"]
    assert dict(seconds.sizes) == {"quartile": 3, "way": len(WAYS), "criterion": 5, "points": 2}
    assert (seconds > 0).all()
    assert (seconds.diff("quartile") >= 0).all()
    assert set(PUBLISHED_SCORES) == set(CRITERIA) == set(paper.read_table("table_1").index)
    assert float(published.sel(criterion="mean_relevance", points=20)) == pytest.approx(0.076e-3)
    assert np.isnan(published.sel(points=30)).all()
    middle = seconds.sel(quartile=0.5, way=PUBLISHED, criterion="prior_entropy").values
    slope = math.log(middle[1] / middle[0]) / math.log(1.5)
    assert float(kept["exponent"].sel(way=PUBLISHED, criterion="prior_entropy")) == pytest.approx(slope)


def test_rows_tables_and_figure_are_milliseconds_and_their_ratio(kept):
    rows = STUDY.rows(kept)
    names = "criterion,points,published_ms,published_one_ms,numpy_all_ms,compiled_all_ms,gain"
    assert (",".join(rows), len(rows)) == (names, 10)
    for row in rows.to_dict("records"):
        cell = kept["seconds"].sel(quartile=0.5, criterion=row["criterion"], points=row["points"])
        assert row["published_one_ms"] == pytest.approx(1e3 * float(cell.sel(way=PUBLISHED)))
        assert row["gain"] == pytest.approx(row["points"] * float(cell.sel(way=PUBLISHED) / cell.sel(way=COMPILED)))
    tables = STUDY.tables(kept)
    lines = cells_of(tables["times"])
    assert [line[:2] for line in lines[2:]] == [[label, "20"] for label in LABELS.values()]
    assert ["Mean relevance", "20", "0.0760"] in [line[:3] for line in lines]
    assert tables["growth"].count("\n") == 6
    assert tables["machine"] == kept.attrs["machine"]
    (draw,) = STUDY.figures(kept).values()
    all_scores, one_score = draw().axes
    middle = 1e3 * kept["points"] * kept["seconds"].sel(quartile=0.5, way=PUBLISHED, criterion="prior_entropy")
    assert len(all_scores.lines) == len(CRITERIA) * len(WAYS)
    np.testing.assert_allclose(all_scores.lines[0].get_ydata(), middle)
    hollow = [line for line in one_score.lines if line.get_linestyle() == "None"]
    np.testing.assert_allclose(sorted(line.get_ydata()[0] for line in hollow), [0.054, 0.068, 0.076, 0.083, 0.096])
