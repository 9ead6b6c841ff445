"""Runs in which the models of several outputs decide about the inputs together."""

from typing import NamedTuple

import numpy as np
import pytest

from experiments.identify import run as identify_run
from experiments.plant import predictive
from experiments.plant.live import Simulation
from experiments.plant.plant import plant_of
from helpers.commands import (
    SMALLEST_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    run_identify,
)
from simulators import Levels
from sysid import (
    Identification,
    JointModel,
    LagWindow,
    Narx,
    PredictiveControl,
    Settings,
    learn_from,
    store,
)
from sysid.errors import UserError

OUTPUTS = ["left_level", "right_level"]
PUMPS = ["left_pump", "right_pump"]
N_SAMPLES = 120
START = 60  # first sample of a plan
APPLIED = 4
TANKS = (
    "system=quadruple_tank",
    "noise.std=0.05",
    f"duration={N_SAMPLES}samples",
    "linear_part=none",
    "gate=none",
    "limit=false",
)
PLANS = (
    "controller=mpc",
    "controller.policy.horizon=8",
    f"controller.policy.n_applied={APPLIED}",
    "controller.policy.moves=4",
    f"controller.policy.start={5 * START}",
    "controller.policy.max_standard_deviation=null",
)
DESIGN = (
    "excitation=informative",
    "excitation.horizon=10",
    "excitation.candidates=4",
)
LIMITS = "excitation.output_limits={left_level: [5.0, 18.0]}"
ALL_FILES = [option for option in SMALLEST_RUN if not option.startswith("figures")]


class SampleBlock(NamedTuple):
    """Consecutive samples."""

    output: np.ndarray  # (n, 2)
    input: np.ndarray  # (n, 2)


def needs_casadi():
    """Skip a test of plans where CasADi is not installed."""
    pytest.importorskip("casadi")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Folder of a run of the four tanks whose held pumps are replaced by plans."""
    needs_casadi()
    return run_identify(tmp_path_factory.mktemp("joint"), *TANKS, *PLANS, *ALL_FILES)


@pytest.fixture(scope="module")
def plan(folder):
    return store.read(folder / "plan.nc", kind="plan")


@pytest.fixture(scope="module")
def trajectory(folder):
    return load_dataset(folder / "left_level", "trajectory")


def test_plans_of_both_outputs_are_stored_once(folder, plan):
    assert plan["output"].values.tolist() == OUTPUTS
    assert plan["driven"].values.tolist() == PUMPS
    np.testing.assert_array_equal(plan["first_sample"], np.arange(0, N_SAMPLES, APPLIED))
    for name in OUTPUTS:
        assert not (folder / name / "plan.nc").exists()
    assert (folder / "plan.png").stat().st_size > 20_000


def test_plans_begin_when_both_models_are_there(plan):
    reasons = plan["reason"].values
    is_before = plan["first_sample"].values < START
    assert set(reasons[is_before]) == {"there is no model yet", "plans are applied later (start)"}
    assert (reasons[~is_before] == "").mean() > 0.8


def test_the_plant_gets_both_planned_inputs(plan, trajectory):
    for i in np.flatnonzero(plan["reason"].values == ""):
        first = int(plan["first_sample"].values[i])
        for number, name in enumerate(PUMPS):
            planned = plan["input"].values[i, :APPLIED, number]
            applied = trajectory[name].values[first : first + APPLIED]
            np.testing.assert_array_equal(applied, planned)
            assert applied.min() >= 2.0
            assert applied.max() <= 4.0


def test_each_output_has_the_limits_and_the_set_point_of_its_own(plan, trajectory):
    i = int(np.flatnonzero(plan["reason"].values == "")[0])
    np.testing.assert_array_equal(plan["planned_lower"].values[i], 5.0)
    np.testing.assert_array_equal(plan["planned_upper"].values[i], 18.0)
    time = trajectory["time"].values
    for name, levels in (("left_level", (12.0, 14.0)), ("right_level", (13.0, 12.0))):
        set_point = trajectory[f"{name}_set_point"]
        expected = Levels(levels=levels, hold=500.0).set_point(time)
        np.testing.assert_array_equal(set_point, expected)
        assert set_point.attrs["units"] == "cm"


def test_the_summaries_of_both_outputs_count_the_decisions(folder, plan):
    n_planned = int((plan["reason"].values == "").sum())
    for name in OUTPUTS:
        control = load_summary(folder / name)["control"]
        assert control["decisions"] == plan.sizes["decision"]
        assert control["planned"] == n_planned
        assert list(control["outside"]) == OUTPUTS


@pytest.mark.parametrize("target", OUTPUTS)
def test_each_output_is_predicted_as_if_it_were_identified_alone(folder, trajectory, target):
    configuration = compose_configuration(*TANKS, *PLANS, *SMALLEST_RUN)
    settings = identify_run.read_settings(configuration)
    narx = Narx(dict.fromkeys(OUTPUTS, 2), dict.fromkeys(PUMPS, 2), target=target)
    n_identified = int(0.9 * (N_SAMPLES - 1)) + 1
    samples = SampleBlock(
        np.column_stack([trajectory[name].values[:n_identified] for name in OUTPUTS]),
        np.column_stack([trajectory[name].values[:n_identified] for name in PUMPS]),
    )
    blocks = learn_from(
        [samples],
        Identification(narx, settings.learner),
        LagWindow(narx),
        outputs=OUTPUTS,
        inputs=PUMPS,
    )
    expected = np.concatenate([block.record["mean"] for block in blocks])
    found = load_dataset(folder / target, "result")["mean"].values
    np.testing.assert_array_equal(found[: len(expected)], expected)
    assert np.isfinite(expected).sum() > 50


def test_both_models_have_learned_all_samples_before_a_decision(tmp_path, monkeypatch):
    needs_casadi()
    n_learned = []
    combine = predictive.deciding_model

    def watched(identifications):
        model = combine(identifications)
        if model is not None:
            n_learned.append([one.model.gp.n_seen for one in identifications])
        return model

    monkeypatch.setattr(predictive, "deciding_model", watched)
    run_identify(tmp_path, *TANKS, *PLANS, *SMALLEST_RUN, "identified=1.0")
    left, right = np.transpose(n_learned)
    np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(np.diff(left), APPLIED)


def test_a_run_that_ends_early_keeps_the_plans(tmp_path, monkeypatch):
    needs_casadi()
    samples = Simulation.until

    def interrupted(self, n_samples):
        for block in samples(self, n_samples):
            yield block
            if self.n_seen > START + 20:
                raise KeyboardInterrupt

    monkeypatch.setattr(Simulation, "until", interrupted)
    with pytest.raises(identify_run.Stopped):
        run_identify(tmp_path, *TANKS, *PLANS, *SMALLEST_RUN)
    plan = store.read(tmp_path / "plan.nc", kind="plan")
    assert plan.attrs["partial"] == 1
    assert 0 < plan.sizes["decision"] < N_SAMPLES // APPLIED


# --- inputs that are chosen to learn --------------------------------------------------------------


def test_both_inputs_are_chosen_with_both_models(tmp_path):
    folder = run_identify(tmp_path, *TANKS, *DESIGN, LIMITS, *ALL_FILES, "identified=0.8")
    plan = store.read(folder / "plan.nc", kind="plan")
    assert plan["designed"].values.tolist() == PUMPS
    assert plan["output"].values.tolist() == OUTPUTS
    has_plan = np.isfinite(plan["gain"].values)
    assert has_plan.sum() >= 3
    planned = plan["planned_mean"].values[has_plan]
    assert np.isfinite(planned[:, 0]).all()
    trajectory = load_dataset(folder / "right_level", "trajectory")
    for i, first in enumerate(plan["first_sample"].values):
        stretch = plan["input"].values[i]
        stretch = stretch[np.isfinite(stretch).all(axis=1)]
        for number, name in enumerate(PUMPS):
            applied = trajectory[name].values[first : first + len(stretch)]
            np.testing.assert_array_equal(applied, stretch[:, number])
    assert (folder / "plan.png").stat().st_size > 20_000
    for name in OUTPUTS:
        assert load_summary(folder / name)["design"]["decisions"] == plan.sizes["decision"]


# --- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["narx.target=left_level"], "controller=mpc: a plan needs a model for each output among"),
        (
            ["controller.policy.output_limits.middle_level=[1,2]"],
            r"output_limits: \['middle_level'\] are no outputs of QuadrupleTank",
        ),
        (
            ["controller.policy.output_limits.left_level=[1,2,3]"],
            r"output_limits of 'left_level': expected a pair, got \[1, 2, 3\]",
        ),
        (
            ["controller.policy.tracking.left_level=[12.0]"],
            r"tracking of 'left_level': expected a pair, got \[12.0\]",
        ),
        (["controller.policy.inputs.left_pump=[2.0]"], "limits of 'left_pump'"),
        (
            ["controller.schedule.middle_level=${controller.schedule.left_level}"],
            r"controller.schedule: \['middle_level'\] are no outputs of QuadrupleTank",
        ),
        (
            ["controller.schedule.left_level=12"],
            "controller.schedule.left_level: expected a SetPoint",
        ),
        (["controller.policy.moves=[4,5]"], "moves of .4, 5. samples last 9"),
    ],
    ids=lambda value: value[0].partition("=")[0] if isinstance(value, list) else None,
)
def test_bad_plans_are_refused(tmp_path, options, message):
    needs_casadi()
    names = [f"+{one}" if "middle" in one else one for one in options]
    with pytest.raises(UserError, match=message):
        run_identify(tmp_path, *TANKS, *PLANS, *SMALLEST_RUN, *names)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["narx.target=right_level"], "excitation=informative: a plan needs a model for each"),
        (
            ["excitation.output_limits={level: [1, 2]}"],
            r"excitation.output_limits: \['level'\] are no outputs",
        ),
        (["excitation.output_limits={left_level: [1]}"], "left_level"),
    ],
    ids=["target", "output", "length"],
)
def test_bad_designs_are_refused(tmp_path, options, message):
    with pytest.raises(UserError, match=message):
        run_identify(tmp_path, *TANKS, *DESIGN, *SMALLEST_RUN, *options)


def test_models_decide_together_once_all_are_trained():
    rng = np.random.default_rng(0)
    signals = {name: rng.normal(size=160) for name in ("a", "b", "u")}
    identifications = []
    for target in ("b", "a"):
        narx = Narx({"a": 1, "b": 1}, {"u": 1}, target=target)
        settings = Settings(budget=10, linear_part="none")
        identifications.append(Identification(narx, settings))
    assert predictive.deciding_model(()) is None
    assert predictive.deciding_model(identifications[:1]) is identifications[0]
    for number, one in enumerate(identifications):
        assert predictive.deciding_model(identifications) is None
        rows = one.narx.regressors(signals)
        one.observe_many(rows.regressor, rows.target)
        assert (number == 1) == (predictive.deciding_model(identifications) is not None)
    joint = predictive.deciding_model(identifications)
    assert isinstance(joint, JointModel)
    assert joint.output_names == ("a", "b")
    assert joint.models[0] is identifications[1].model


# --- the shipped task -----------------------------------------------------------------------------


@pytest.mark.slow
def test_both_levels_follow_their_set_points(tmp_path):
    needs_casadi()
    settings = ("noise.std=0.05", "duration=1000samples", "limit=false", "figures=false")
    folder = run_identify(tmp_path, "system=quadruple_tank", "controller=mpc", *settings)
    plan = store.read(folder / "plan.nc", kind="plan")
    begin = 500
    assert (plan["reason"].values[plan["first_sample"].values >= begin] == "").mean() > 0.95
    trajectory = load_dataset(folder / "left_level", "trajectory")
    for name in OUTPUTS:
        set_point = trajectory[f"{name}_set_point"].values
        error = trajectory[f"{name}_noise_free"].values - set_point
        is_settled = (np.arange(len(error)) >= begin) & (np.arange(len(error)) % 100 >= 30)
        is_settled &= np.arange(len(error)) % 100 < 80
        assert np.sqrt(np.mean(error[is_settled] ** 2)) < 0.1  # cm; steps are 1 to 3 cm
        assert load_dataset(folder / name, "model") is not None


def test_the_policy_needs_limits_of_its_inputs():
    configuration = compose_configuration("system=heater", "controller=mpc")
    with pytest.raises(UserError, match="the limits of at least one input"):
        plant_of(configuration)
    assert PredictiveControl({"heat": (0.0, 100.0)}).driven == ("heat",)
