"""SMSE, variance and revised points against the error threshold: every number is that of a single stream."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from experiments.studies.baselines.catalogue import METHODS
from experiments.studies.cells import Cell, outcomes_under
from experiments.studies.execution import compute_and_keep
from experiments.studies.part import read_part, write_part
from experiments.studies.plan import Plan
from experiments.studies.published_table import FULL_GP_VAN_DER_POL, VFE_BUILDING
from experiments.studies.setting import Setting, data_of, hyperparameters_of
from experiments.studies.stream import CRITERIA, VARIANTS, Outcome, acceptance_of, identification_of, offer
from experiments.studies.study import Unit
from experiments.studies.sweep_remark import remarks
from experiments.studies.threshold_sweep import DIMENSIONS, BuildingSweep, VanDerPolSweep, baseline_smse
from sysid import ErrorThreshold

SWEEPS = {"van_der_pol": VanDerPolSweep(), "building": BuildingSweep()}
COUNTED = [name for name in Outcome._fields if name != "seconds"]


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    plan = Plan(tmp_path_factory.mktemp("sweep"), ("van_der_pol",), seeds=1).quickened()
    plan = Plan(**{**vars(plan), "seeds": 1, "most_rows": 60})
    for study in ("preparation", "calibration", "figure_van_der_pol"):
        assert compute_and_keep(Unit(study, "van_der_pol", 0), plan) is None
    return plan


@pytest.fixture(scope="module")
def part(plan):
    return read_part(Unit("figure_van_der_pol", "van_der_pol", 0), plan)


@pytest.mark.parametrize("setting", ["trained", "published"])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_every_number_is_that_of_a_single_stream(plan, part, setting, criterion):
    data = data_of("van_der_pol", 0, plan)
    start = hyperparameters_of("van_der_pol", 0, Setting(setting), plan)
    chosen = CRITERIA[criterion]
    for variant in VARIANTS:
        for threshold in part["threshold"].values[[0, 2, -1]]:
            rule, acceptance = ErrorThreshold(float(threshold)), acceptance_of(chosen, variant)
            identification = identification_of(data, start, rule, acceptance, chosen, budget=plan.budget, seed=0)
            alone = offer(identification, data)
            cell = part.sel(setting=setting, criterion=criterion, variant=variant, threshold=threshold)
            assert [float(cell[name]) for name in COUNTED] == [float(getattr(alone, name)) for name in COUNTED]


def test_the_variants_differ_where_points_are_filtered(part):
    """Otherwise the test above would not tell them apart."""
    low = part.isel(threshold=0).sel(setting="trained")
    assert len(set(low["n_revised"].sel(criterion="prior_entropy", variant=list(VARIANTS[:3])).values)) == 3
    assert (low["n_inserted"].sel(variant="none") == low["n_revised"].sel(variant="none")).all()


def test_adaptive_is_computed_at_its_thresholds_and_variants_only(plan, part):
    adaptive = part["smse"].sel(setting="adaptive")
    assert part["threshold"].values.tolist() == [0.0005, 0.003, 0.0055, 0.008, 0.0105, 0.013]
    expected = np.isin(part["threshold"].values, np.round(0.001 + 0.002 * np.arange(8), 4))
    for variant, criteria in {"none": 3, "leave_one_out": 3, "in_sample": 0, "published": 1}.items():
        has_value = adaptive.sel(variant=variant).notnull().transpose("criterion", "threshold").values
        assert has_value.any(axis=1).sum() == criteria
        assert (has_value == (has_value.any(axis=1)[:, None] & expected)).all()


class Counted:
    """A cell that tells how often it was offered its stream."""

    def __init__(self, revised, inserted=10):
        self.n_offers, self.outcome = 0, Outcome(*[0.0] * 5, 20, inserted, revised, 0, 0.0)

    def offer(self, insertion):
        assert insertion == ErrorThreshold(0.5)
        self.n_offers += 1
        return self.outcome


@pytest.mark.parametrize(("revised", "offers"), [((10, 10, 10), (0, 1, 0)), ((10, 9, 8), (1, 1, 1))])
def test_variants_that_must_agree_are_computed_once(revised, offers):
    cells = {name: Counted(n) for name, n in zip(VARIANTS[:3], revised, strict=True)}
    found = outcomes_under(ErrorThreshold(0.5), cells)
    assert tuple(found) == VARIANTS[:3]
    assert tuple(outcome.n_revised for outcome in found.values()) == revised
    assert tuple(cell.n_offers for cell in cells.values()) == offers


@pytest.mark.parametrize("criterion", CRITERIA)
def test_no_reference_is_stricter_than_leave_one_out(plan, criterion):
    """Scores of a dictionary in both references: what lets variants that agree be computed once."""
    from sysid import OnlineGP

    start, data = hyperparameters_of("van_der_pol", 0, Setting.trained, plan), data_of("van_der_pol", 0, plan)
    n, noise = len(data.initial_targets), start.noise_variance
    gp = OnlineGP(start.kernel, noise_variance=noise, budget=n).fit(data.initial_inputs, data.initial_targets)
    mean, latent = gp.predict(data.initial_inputs)
    left_out = gp.leave_one_out()
    score = type(CRITERIA[criterion]).acceptance
    for i in range(n):
        in_sample = score(data.initial_targets[i] - mean[i], latent[i] + noise, noise)
        without = score(left_out.residual[i], left_out.variance[i], noise)
        assert in_sample <= without + 1e-9 * abs(without)


def made_up(task, seed, plan):
    """SMSE and points that follow simple rules: thresholds times numbers, seeds 1, 2, 3 times."""
    part = SWEEPS[task].blank(plan)
    factor = xr.DataArray([3.0, 1.0, 2.0], dims="criterion")
    filled = part["threshold"] * factor * (seed + 1)
    for name in Outcome._fields:
        part[name] = (filled + 0 * part[name]).transpose(*DIMENSIONS).fillna(filled)
    part["n_revised"] = (100 / part["threshold"] + 0 * part["smse"]).transpose(*DIMENSIONS)
    return part


@pytest.fixture
def full():
    return Plan(Path("nowhere"), tuple(SWEEPS), seeds=3)


def combined(task, plan):
    parts = {Unit(SWEEPS[task].name, task, seed): made_up(task, seed, plan) for seed in (2, 0, 1)}
    return SWEEPS[task].combine(parts, plan)


@pytest.mark.parametrize(("task", "published"), [("van_der_pol", FULL_GP_VAN_DER_POL), ("building", VFE_BUILDING)])
def test_the_store_keeps_names_seeds_and_baselines(full, task, published):
    store = combined(task, full)
    assert store["smse"].dims == (*DIMENSIONS, "seed")
    assert set(Outcome._fields) < set(store.data_vars)
    assert store["variant"].values.tolist() == list(VARIANTS)
    cell = store.isel(setting=0, variant=1, threshold=2).sel(criterion="marginal_log_likelihood")
    np.testing.assert_allclose(cell["smse"], np.array([1, 2, 3]) * 2 * float(cell["threshold"]))
    assert float(store["baseline_smse_published"]) == published
    assert np.isnan(store["baseline_smse"])


def test_rows_are_medians_and_quartiles(full):
    rows = BuildingSweep().rows(combined("building", full))
    assert len(rows) == 2 * 3 * 4 * 9
    (row,) = [r for r in rows if (*list(r.values())[:4],) == ("adaptive", "mean_relevance", "none", 0.1)]
    expected = {"smse": 0.2, "smse_lower_quartile": 0.15, "smse_upper_quartile": 0.25, "n_revised": 1000, "n_seeds": 3}
    assert {name: row[name] for name in expected} == pytest.approx(expected)


def test_thresholds_are_those_of_the_paper():
    assert VanDerPolSweep.thresholds[0] == 0.0005
    assert VanDerPolSweep.thresholds[-1] == 0.015
    np.testing.assert_allclose(np.diff(VanDerPolSweep.thresholds), 0.0005)
    assert (BuildingSweep.thresholds[0], BuildingSweep.thresholds[-1]) == (0.05, 0.25)
    np.testing.assert_allclose(np.diff(BuildingSweep.thresholds), 0.025)


def test_the_markdown_marks_the_lowest(full):
    text = BuildingSweep().markdown(combined("building", full))
    assert "| 0.1 | 0.6 / 1000 | **0.2 / 1000** | 0.4 / 1000 |" in text
    assert "ours not computed yet" in text
    assert "## Setting adaptive, with acceptance (in-sample reference)" in text


def test_remarks_on_van_der_pol(full):
    store = combined("van_der_pol", full).sel(setting="trained", variant="none")
    smse = store["smse"].copy(deep=True)
    below = store["threshold"] < 0.005
    smse[{"seed": 2}] = xr.where((smse["criterion"] == "prior_entropy") & below, 1e-6, smse).isel(seed=2)
    smse.loc[{"criterion": "mean_relevance", "threshold": 0.0005}] = [0.01, 0.02, 0.04]
    text = remarks("van_der_pol", store.assign(smse=smse))
    assert "below 0.005 m): Prior entropy 1, Mean relevance 2, Marginal log likelihood 0." in text
    lowest = np.array([0.01, 0.02, 0.04]) / (0.001 * np.array([1, 2, 3]))
    assert f"Mean relevance {np.median(lowest):.1f} [" in text


def test_remarks_on_the_building(full):
    store = combined("building", full).sel(setting="trained", variant="none")
    lines = remarks("building", store).splitlines()
    assert "Lowest SMSE below 0.15 K over that at 0.15 K: Prior entropy 0.333 [" in lines[0]
    assert "SMSE at 0.05 K over that at 0.15 K: Prior entropy 0.333 [" in lines[1]
    assert "Revised points at 0.05 K over those at 0.125 K: Prior entropy 2.50 [" in lines[2]


def test_the_baseline_is_read_where_it_was_computed(full, tmp_path):
    plan = Plan(tmp_path, ("van_der_pol",), seeds=3)
    assert np.isnan(baseline_smse(plan, "van_der_pol", "full_gp"))
    names = {"order": ["given", "shuffled"], "model": list(METHODS)}
    for seed, smse in enumerate([1e-4, 5e-4, 2e-4]):
        stored = xr.Dataset({"smse": (tuple(names), np.full((2, len(METHODS)), np.nan))}, coords=names)
        stored["smse"].loc[{"order": "given", "model": ["full_gp", "vfe"]}] = [smse, 9.0]
        write_part(stored, Unit("baselines", "van_der_pol", seed), plan)
    assert baseline_smse(plan, "van_der_pol", "full_gp") == 2e-4
    assert baseline_smse(plan, "van_der_pol", "vfe") == 9.0
    assert np.isnan(baseline_smse(plan, "van_der_pol", "ridge"))
    for sweep in SWEEPS.values():
        assert METHODS[sweep.baseline.model].title == sweep.baseline.title.split(",")[0]


def test_figures_have_a_column_per_variant_and_the_baselines(full):
    store = combined("van_der_pol", full).assign(baseline_smse=0.0003)
    figures = VanDerPolSweep().figures(store)
    assert list(figures) == ["figure_van_der_pol", "figure_van_der_pol_published", "figure_van_der_pol_adaptive"]
    axes = np.reshape(figures["figure_van_der_pol_published"]().axes, (3, 3))
    assert [ax.get_title() for ax in axes[0]] == [
        "Without acceptance",
        "Acceptance, leave-one-out",
        "Acceptance, in-sample",
    ]
    smse, _, revised = axes[:, 1]
    np.testing.assert_allclose(smse.lines[1].get_ydata(), 2 * np.array(VanDerPolSweep.thresholds))
    assert [line.get_ydata()[0] for line in smse.lines[3:]] == [FULL_GP_VAN_DER_POL, 0.0003]
    np.testing.assert_allclose(revised.lines[0].get_ydata(), 100 / np.array(VanDerPolSweep.thresholds))
    assert axes[2, 0].get_xlabel() == "Error threshold [m]"


def test_bands_of_bad_seeds_do_not_press_the_medians_down(full):
    store = combined("building", full)
    store["smse"].loc[{"seed": 2, "threshold": 0.25}] *= 100.0
    (smse, *_), *_ = np.reshape(BuildingSweep().figures(store)["figure_building"]().axes, (3, 3))
    highest = max(np.max(line.get_ydata()) for line in smse.lines)
    assert highest < smse.get_ylim()[1] <= 1.25 * highest * (1 + 1e-9)
    low = combined("building", full)
    low["smse"][:] = 0.3
    (smse, *_), *_ = np.reshape(BuildingSweep().figures(low)["figure_building"]().axes, (3, 3))
    assert smse.get_ylim()[1] < 0.36  # room on top only where a band needs it


def test_nothing_is_drawn_without_data(full):
    empty = BuildingSweep().combine({}, full)
    assert empty["smse"].sizes["seed"] == 3
    assert not BuildingSweep().rows(empty)
    assert not BuildingSweep().figures(empty)
    assert "0.3397" in BuildingSweep().markdown(empty)


def test_a_cell_offers_the_whole_stream(plan):
    cell = Cell(Unit("figure_van_der_pol", "van_der_pol", 0), plan, Setting.trained, "mean_relevance", "none")
    assert cell.offer(ErrorThreshold(1e-12)).n_revised == len(data_of("van_der_pol", 0, plan).targets)
