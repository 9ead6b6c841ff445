"""Study `boards`: official records beside lines and published errors."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest

import sysid
from experiments.drawing.style import render
from experiments.reproduce import boards
from experiments.reproduce import run as reproduce_run
from experiments.reproduce.report import write_study
from experiments.reproduce.small_records import SMALL_RECORDS, SmallRecord
from experiments.reproduce.studies import STUDIES
from experiments.reproduce.study import Unit, part_of, write_part
from experiments.reproduce.tasks import STUDY_TASKS
from helpers.naive_arx import naive_arx
from helpers.studies import compose_study, make_plan, table_cells
from sysid.data.source import make_record
from sysid.errors import UserError

STUDY = boards.BoardsStudy()
WINDOW = 30  # samples of the test record that are not scored


def simulate_signals(n, seed):
    """Return an input (n,) and the output (n,) of a plant of second order with a saturation."""
    rng = np.random.default_rng(seed)
    u = rng.normal(size=n)
    y = np.zeros(n)
    for k in range(2, n):
        y[k] = 1.2 * y[k - 1] - 0.5 * y[k - 2] + np.tanh(u[k - 1]) + 0.02 * rng.normal()
    return u, y


@dataclass(frozen=True)
class StubRecord(sysid.DataSource):
    """A short simulated record, with several test records."""

    n_tests: int = 1

    def load(self):
        records = []
        for number in range(1 + self.n_tests):
            u, y = simulate_signals(120, number)
            record = make_record(
                {"u": u, "y": y},
                name=f"record {number}",
                sampling_time=1.0,
                initialisation_window=WINDOW if number else 0,
            )
            records.append(record)
        return sysid.Recordings("stub", ("u",), ("y",), (records[0],), (), tuple(records[1:]))


@pytest.fixture
def stub_plan(tmp_path, monkeypatch):
    """Plan of a quick study whose gas furnace is a simulated record."""
    monkeypatch.setitem(boards.SOURCES, "gas_furnace", StubRecord())
    monkeypatch.setattr(boards, "QUICK_SECONDS", 0.1)
    return make_plan(tmp_path, "gas_furnace", seeds=1)


def test_a_record_is_identified_and_scored_by_both_trainings_and_by_lines(stub_plan):
    parts = [STUDY.compute(unit, stub_plan).to_dataframe() for unit in STUDY.units(stub_plan)]
    table = pd.concat(parts).set_index(["model", "horizon"])
    assert set(table.index) == {
        (model, horizon) for model in boards.MODELS for horizon in boards.HORIZONS
    }
    assert set(table["n"]) == {120 - WINDOW}
    ours = table.loc[[*boards.OURS]]
    measures = ["rmse", "coverage_50", "coverage_95", "width_95", "crps", "seconds", "n_points"]
    assert np.isfinite(ours[measures]).all(axis=None)
    assert (ours["crps"] < ours["rmse"]).all()
    assert table.loc[(boards.DEFAULT, "1 step"), "coverage_95"] > 0.5
    lines = table.loc[[boards.BEST_LINE, boards.BEST_LINE_IN_HINDSIGHT]]
    assert lines["n_parameters"].between(3, 25).all()
    assert lines["crps"].isna().all()
    in_hindsight = table.loc[boards.BEST_LINE_IN_HINDSIGHT, "rmse"]
    assert (in_hindsight <= table.loc[boards.BEST_LINE, "rmse"]).all()


def test_each_training_and_the_lines_are_kept_in_a_file_of_their_own(stub_plan):
    plan = replace(stub_plan, seeds=2)
    names = {plan.path_of(unit).name for unit in STUDY.units(plan)}
    assert names == {
        "gas_furnace-lines-0.nc",
        *(f"gas_furnace-{part}-{seed}.nc" for part in ("default", "free_run") for seed in (0, 1)),
    }


def test_lines_have_the_errors_of_least_squares_with_1_to_12_lags():
    recordings = StubRecord(n_tests=2).load()
    signals = [(record["u"].values[:, None], record["y"].values) for record in recordings.records]
    rows = pd.DataFrame(boards.run_lines(recordings)).set_index(["model", "test", "horizon"])
    for number, test in enumerate(signals[1:]):
        errors = [
            naive_arx(signals[0], test, n_lags, n_lags, first_lag, WINDOW)[1]
            for n_lags in range(1, 13)
            for first_lag in (0, 1)
        ]
        hindsight, held_out = (
            rows.loc[(model, number, "free run"), "rmse"]
            for model in (boards.BEST_LINE_IN_HINDSIGHT, boards.BEST_LINE)
        )
        assert hindsight == pytest.approx(min(errors), rel=1e-6)
        assert np.isclose(errors, held_out, rtol=1e-6).any()


def test_both_trainings_are_the_defaults():
    assert boards.make_training(boards.DEFAULT, is_quick=False) == sysid.Settings().training
    assert boards.make_training(boards.FREE_RUN, is_quick=False) == sysid.FreeRun()


# --- small records --------------------------------------------------------------------------------


@pytest.fixture
def small_record(tmp_path, monkeypatch):
    """A record of 101 samples, which lies in the sub-folder of the user's folder."""
    monkeypatch.setenv("SYSID_DATA", str(tmp_path))
    u, y = simulate_signals(141, 0)
    (tmp_path / "gpssm").mkdir()
    pd.DataFrame({"u": u, "y": y}).to_csv(tmp_path / "gpssm" / "own.csv", index=False)
    return SmallRecord("own.csv", 0.5, 141, float(y[70:].std())), u, y


def test_the_second_half_of_a_small_record_begins_from_the_end_of_the_first(small_record):
    source, u, y = small_record
    recordings = source.load()
    (learned,), (test,) = recordings.estimation, recordings.test
    np.testing.assert_array_equal(learned["u"].values, u[:70])
    np.testing.assert_array_equal(test["y"].values, y[20:])
    assert test.attrs["initialisation_window"] == 50
    assert recordings.sampling_time == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_samples": 142}, "expected 142 samples.*got 141"),
        ({"output_std": 7.0}, "the standard deviation 7 of y in the second half, got 141 and"),
        ({"file": "other.csv"}, "does not have other.csv: put other.csv.*SYSID_DATA"),
    ],
    ids=["samples", "standard_deviation", "missing"],
)
def test_a_small_record_that_is_another_or_missing_is_refused(small_record, change, message):
    with pytest.raises(sysid.DataError, match=message):
        replace(small_record[0], **change).load()


def test_without_a_folder_the_small_records_are_gaps(tmp_path, monkeypatch):
    monkeypatch.delenv("SYSID_DATA", raising=False)
    _, gaps = reproduce_run.read_records(make_plan(tmp_path, *SMALL_RECORDS))
    assert [*gaps] == [*SMALL_RECORDS]
    assert "has no public address" in gaps["dryer"]


def test_the_records_of_the_user_are_recognised(shared_data, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    for name, source in SMALL_RECORDS.items():
        if not (shared_data / "gpssm").is_dir():
            pytest.skip("no local copies of the small records")
        recordings = source.load()
        assert recordings.estimation[0].sizes["time"] == source.n_samples // 2, name


# --- tables and figure ----------------------------------------------------------------------------


@pytest.fixture
def kept_plan(tmp_path):
    """Plan of the tanks and the dryer with kept results of two seeds; the dryer has none."""
    plan = make_plan(tmp_path, "tanks", "dryer", seeds=2)
    for seed in range(2):
        rows = []
        errors = {
            boards.DEFAULT: 0.5 + 0.1 * seed,
            boards.FREE_RUN: np.inf,
            boards.BEST_LINE: 0.6,
            boards.BEST_LINE_IN_HINDSIGHT: 0.4,
        }
        for model in boards.OURS if seed else boards.MODELS:
            for horizon in boards.HORIZONS:
                numbers = {"n": 10, "rmse": errors[model], "n_parameters": np.nan}
                if model in boards.OURS:
                    bands = ("coverage_50", "coverage_95", "width_95", "crps")
                    numbers |= dict.fromkeys(bands, 0.9) | {"seconds": 3.0, "n_points": 100}
                    numbers["width_95"] = 0.9 if np.isfinite(errors[model]) else np.inf
                rows.append({"dataset": "Tanks", "model": model, "horizon": horizon, **numbers})
        write_part(part_of(rows), Unit("boards", "tanks", seed, "default"), plan)
    return plan


def test_tables_have_medians_what_diverges_and_what_is_missing(kept_plan):
    texts = STUDY.tables(STUDY.combine(kept_plan))
    assert table_cells(texts["free_run"])[2:] == [
        ["Tanks", "V", "0.550", "diverges", "0.600", "0.400", "0.396"]
    ]
    bands = table_cells(texts["bands"])[2]
    assert bands == [
        *("Tanks", "default", "free run", "90", "90", "0.900", "0.900"),
        *("V", "3", "100", "2", "18.2"),
    ]
    of_diverging = table_cells(texts["bands"])[4]
    assert of_diverging[1:3] + of_diverging[5:7] + of_diverging[-1:] == [
        *("training=free_run", "free run", "no bounds", "0.900", "2 of 2 diverge"),
    ]
    assert texts["gaps"] == "No data: Dryer."
    counts = texts["counts"].splitlines()
    assert (
        "best line on 1 of 1 tests, and better than the best listed error on 0 of 1" in (counts[0])
    )
    assert "best line on 0 of 1 tests" in counts[1]


@pytest.mark.parametrize(
    ("errors", "text"),
    [
        pytest.param([1.0, 2.0, 3.0], "100.0", id="all seeds"),
        pytest.param([1.0, np.inf, 3.0], "1 of 3 diverges", id="one diverges"),
        pytest.param([np.inf, np.inf, 3.0], "2 of 3 diverge", id="two diverge"),
        pytest.param([1.0, np.nan, np.inf], "1 of 2 diverges", id="one is missing"),
        pytest.param([2.0, np.nan, np.nan], "0.0", id="one seed"),
        pytest.param([np.nan, np.nan], "-", id="none"),
    ],
)
def test_the_spread_says_how_many_seeds_diverge(errors, text):
    assert boards.write_spread(np.array(errors)) == text


def test_the_study_writes_its_files(kept_plan):
    write_study(STUDY, kept_plan, {"dryer": "no folder"}, configuration="", figures=True)
    names = ("boards.nc", "boards.csv", "boards.md", "boards.png", "boards.pdf")
    assert all((kept_plan.folder / name).stat().st_size > 100 for name in names)
    text = (kept_plan.folder / "boards.md").read_text()
    assert "polynomial NARX" in text
    assert "$" not in text
    rows = pd.read_csv(kept_plan.folder / "boards.csv")
    assert set(rows["unit"]) == {"V"}


def test_a_figure_of_one_record_that_nothing_is_published_of(tmp_path):
    plan = make_plan(tmp_path, "drives", seeds=1)
    rows = [
        {"dataset": "Drives", "model": model, "horizon": horizon, "n": 10, "rmse": 0.5}
        for model in boards.MODELS
        for horizon in boards.HORIZONS
    ]
    write_part(part_of(rows), Unit("boards", "drives", 0, "lines"), plan)
    draw = STUDY.figures(STUDY.combine(plan))["boards"]
    assert render(draw, "png")["png"].startswith(b"\x89PNG")


def test_without_any_record_the_files_say_so(tmp_path):
    plan = make_plan(tmp_path, "drives", "silverbox", seeds=1)
    write_study(STUDY, plan, {}, configuration="", figures=True)
    text = (tmp_path / "boards.md").read_text()
    assert "No data: Drives; Silverbox, multisine; Silverbox, arrow; " in text
    assert "0 of 0" not in text
    assert not (tmp_path / "boards.png").exists()


def test_published_errors_belong_to_tests_of_the_study_and_state_their_source():
    published = boards.read_published()
    assert set(published["dataset"]) <= set(boards.UNITS)
    assert (published["unit"] == published["dataset"].map(boards.UNITS)).all()
    assert published.notna().all(axis=None)


# --- the command ----------------------------------------------------------------------------------


def chosen(*overrides):
    """Return the settings of the command."""
    return reproduce_run.read_settings(compose_study(*overrides))


def test_all_studies_leave_out_the_boards_and_their_records():
    settings = chosen()
    assert "boards" not in [study.name for study in settings.studies]
    assert not set(SMALL_RECORDS) & set(settings.plan.tasks)


@pytest.mark.parametrize("listed", ["[all,boards]", "[boards,all]", "[all,boards,table_1]"])
def test_the_boards_are_added_to_all_studies(listed):
    settings = chosen(f"study={listed}")
    assert settings.studies == (*chosen("study=all").studies, STUDIES["boards"])
    assert set(boards.SOURCES) <= set(settings.plan.tasks)


@pytest.mark.parametrize("listed", ["all", "[all]", "[all,online]"])
def test_a_study_of_the_report_is_among_all(listed):
    assert chosen(f"study={listed}").studies == chosen().studies


@pytest.mark.parametrize("listed", ["[all,board]", "board", "[]", "null"])
def test_an_unknown_study_is_refused(listed):
    with pytest.raises(UserError, match="study must be all, or some of"):
        chosen(f"study={listed}")


def test_the_boards_are_asked_for_by_name_and_read_no_other_records():
    settings = chosen("study=boards", "seeds=10")
    assert [study.name for study in settings.studies] == ["boards"]
    assert set(settings.plan.tasks) == set(boards.SOURCES)
    units = settings.studies[0].units(settings.plan)
    assert len(units) == (5 * len(boards.OURS) + 1) * len(boards.SOURCES)
    assert all(unit.task in STUDY_TASKS for unit in units)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["gas_furnace", "drives"])
def test_small_records_are_identified(task, shared_data, tmp_path, monkeypatch):
    monkeypatch.setenv("SYSID_DATA", str(shared_data))
    if not (shared_data / "gpssm").is_dir():
        pytest.skip("no local copies of the small records")
    plan = make_plan(tmp_path, task, seeds=1)
    parts = [STUDY.compute(unit, plan).to_dataframe() for unit in STUDY.units(plan)]
    errors = pd.concat(parts).set_index(["model", "horizon"])["rmse"]
    assert np.isfinite(errors).all()
    assert errors[boards.DEFAULT, "1 step"] < 1.2 * errors[boards.BEST_LINE, "1 step"]
