"""Every yaml composes, repeats the defaults of its class and does what its name says; every class
has a yaml.
"""

import dataclasses
import json
import math
from enum import Enum
from fractions import Fraction
from functools import cache
from itertools import zip_longest

import numpy as np
import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import simulators
import sysid
from experiments.cli.options import MAX_RUN_SAMPLES, samples_of, seconds, seconds_text
from experiments.files.stated import ALL_OUTPUTS
from experiments.identify.run import read_settings
from experiments.plant.lags import AutomaticNarx
from experiments.plant.physics import Physics, ResidualNarx
from helpers.commands import (
    BUDGET,
    CONF,
    SHORT_RUN,
    compose_anew,
    compose_configuration,
    load_dataset,
    load_summary,
    phase_masks,
    run_identify,
)
from helpers.kept_configurations import keep_nothing
from plants import concrete_classes
from sysid import Matern52, Model
from sysid.model.description import name_of

#: the base class of the options of each group
ROLES = {
    "system": simulators.System,
    "controller": simulators.Controller,
    "weather": simulators.Weather,
    "excitation": simulators.Excitation,
    "noise": simulators.MeasurementNoise,
    # function and sampling are parts of data=function, and no groups of their own
    "function": simulators.StaticFunction,
    "sampling": simulators.Sampling,
    "data": sysid.DataSource,
    "narx": sysid.Narx,
    "kernel": sysid.Kernel,
    "training": sysid.Training,
    "physics": Physics,
    "mean": sysid.MeanFunction,
    "insertion": sysid.Insertion,
    "reduction": sysid.Criterion,
    "selection": sysid.Selection,
    "acceptance": sysid.Acceptance,
    "propagation": sysid.Propagation,
}
#: classes that become a `Narx` once the signals are known
LATE_LAGS = (AutomaticNarx, ResidualNarx, sysid.Orders)
#: classes without a yaml: controller=none, and what a validation makes of the propagation
WITHOUT_YAML = {
    simulators.OpenLoop,
    sysid.AboutPath,
    sysid.StableSpline,  # linear_part chooses it
    sysid.WithLinearPart,
}
#: files that state values for one system, or one kind, instead of the defaults of the class
VALUES_FOR_ONE_SYSTEM = {
    "control_task/quadruple_tank.yaml",
    "controller/level_pi.yaml",
    "controller/position_loop.yaml",
    "excitation/heater_flow.yaml",
    "excitation/heater_heat.yaml",
    "linear_part/none.yaml",
    "linear_part/stable_spline.yaml",
    "physics/cascaded_tanks.yaml",
    "physics/servo.yaml",
    "physics/silverbox.yaml",
}
#: files of options. Other tests compare launchers and sweepers with their engines
FILES = sorted(
    path for path in CONF.rglob("*.yaml") if path.parent != CONF and "hydra" not in path.parts
)


def name_in_conf(path):
    """Return the name of a file in ``conf/``."""
    return path.relative_to(CONF).as_posix()


def find_nodes(value):
    """Yield every mapping with a `_target_` inside a loaded yaml."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield value
        children = list(value.values())
    elif isinstance(value, list):
        children = value
    else:
        children = []
    for child in children:
        yield from find_nodes(child)


@cache
def nodes_of(path):
    """Return every mapping with a `_target_` in a file."""
    return list(find_nodes(yaml.safe_load(path.read_text())))


def options(group):
    """Return the names of the options of a group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def choices_that_compose():
    """Return overrides that choose every option of every group at least once.

    A system or a data set brings options of other groups, so each is chosen alone. The others take
    their options side by side.
    """
    alone = [
        [f"{group}={name}"]
        for group in ("data", "system", "operating_point")
        for name in options(group)
    ]
    others = [group for group in ROLES if group not in ("system", "data", "function", "sampling")]
    together = []
    for names in zip_longest(*map(options, others)):
        chosen = dict(zip(others, names, strict=True))
        together.append(
            [
                f"{group}={name}"
                for group, name in chosen.items()
                if name is not None and name != "lags"
            ]
        )
    return alone + together


@pytest.mark.parametrize("overrides", choices_that_compose(), ids=lambda overrides: overrides[0])
def test_every_option_composes_and_instantiates(overrides):
    configuration = compose_configuration(*overrides)
    OmegaConf.to_container(configuration, resolve=True, throw_on_missing=True)
    if configuration.narx.get("target") == ALL_OUTPUTS:  # a run makes lags for each output
        configuration.narx.target = ""
    for group in set(ROLES) & set(configuration):
        built = instantiate(configuration[group], _convert_="all")
        is_none = f"{group}=none" in overrides
        is_chosen = any(text.startswith(f"{group}=") for text in overrides)
        if not is_none and built != {}:
            roles = (*LATE_LAGS, ROLES[group]) if group == "narx" else ROLES[group]
            assert isinstance(built, roles), group
        if is_chosen and not is_none:
            assert built or overrides == ["data=simulated"]


def fields_in_yaml(target):
    """Return the fields of a class that a yaml states.

    These are all, but of a kernel only its parts, because a training fills the others, and not the
    lags of a linear part, which `linear_part` adds.
    """
    names = {field.name for field in dataclasses.fields(target) if field.init}
    if target is sysid.Narx:
        names -= {"linear"}
    return names & {"parts"} if issubclass(target, sysid.Kernel) else names


def plain(value):
    """Return a value as a yaml could hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        fields = fields_in_yaml(type(value))
        node = {"_target_": name_of(type(value))}
        return node | {name: plain(getattr(value, name)) for name in fields}
    return value


def default_of(field):
    """Return the default of a field of a dataclass, or MISSING."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@pytest.mark.parametrize("path", FILES, ids=name_in_conf)
def test_yaml_names_a_public_class_and_states_all_of_its_fields(path):
    for node in nodes_of(path):
        target = get_class(node["_target_"])
        package = target.__module__.partition(".")[0]
        public_name = f"{package}.{target.__qualname__}"
        if package == "experiments":
            full_name = f"{target.__module__}.{target.__qualname__}"
            assert node["_target_"] in (public_name, full_name)
        else:
            assert node["_target_"] == public_name
        defaults = [entry for entry in node.get("defaults", []) if isinstance(entry, dict)]
        groups = [next(iter(entry)) for entry in defaults]
        in_other_files = {
            group.rpartition("@")[2]
            for group in groups
            if not group.startswith("override")
            and "@_global_." not in group
            and "@_here_" not in group
        }
        stated = (set(node) | in_other_files) - {"_target_", "defaults"}
        assert stated == fields_in_yaml(target)


@pytest.mark.parametrize("path", FILES, ids=name_in_conf)
def test_yaml_states_the_defaults_of_its_class(path):
    for node in nodes_of(path):
        target = get_class(node["_target_"])
        if target is sysid.Narx or name_in_conf(path) in VALUES_FOR_ONE_SYSTEM:
            continue  # these are choices, not defaults
        for field in dataclasses.fields(target):
            default = default_of(field)
            if field.name not in node or default is dataclasses.MISSING:
                continue
            written = node[field.name]
            if dataclasses.is_dataclass(default) or str(written).startswith("${"):
                continue  # a node of its own is compared
            assert plain(written) == plain(default), field.name
            if isinstance(default, float):
                assert isinstance(written, float), f"{field.name}: {written!r}"


@pytest.mark.parametrize("group", sorted(set(ROLES) - {"physics"}))
def test_every_class_has_a_yaml(group):
    targets = {get_class(node["_target_"]) for path in FILES for node in nodes_of(path)}
    classes = {
        target
        for package in (sysid, simulators)
        for target in concrete_classes(package, ROLES[group])
    }
    assert classes - WITHOUT_YAML
    assert classes - WITHOUT_YAML <= targets


RECIPES = sorted((CONF / "experiment").glob("*.yaml"))


def command_of(recipe):
    """Return the command that the second line of a recipe names."""
    line = recipe.read_text().splitlines()[1]
    return line.split()[1].removeprefix("sysid-")


def swept_values(recipe):
    """Return the values of every key that a recipe sweeps, but those of a range."""
    hydra = yaml.safe_load(recipe.read_text()).get("hydra")
    if hydra is None:
        return {}
    params = hydra["sweeper"]["params"]
    return {
        key: str(value).split(",") for key, value in params.items() if "range" not in str(value)
    }


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_is_listed_in_the_help_of_its_command(recipe):
    assert f"  {recipe.stem} " in (CONF / f"{command_of(recipe)}.yaml").read_text()


@pytest.mark.parametrize("position", [0, -1], ids=["first", "last"])
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_every_recipe_composes_and_wins_over_the_defaults(recipe, position):
    """The first and the last of the values that are swept exist."""
    swept = [f"{key}={values[position]}" for key, values in swept_values(recipe).items()]
    overrides = [f"experiment={recipe.stem}", *swept]
    configuration = compose_configuration(*overrides, command=command_of(recipe))
    assert OmegaConf.to_container(configuration, resolve=True, throw_on_missing=True)
    written = yaml.safe_load(recipe.read_text())
    written.pop("hydra", None)
    written.pop("defaults", None)
    assert OmegaConf.merge(configuration, OmegaConf.create(written)) == configuration


def test_the_recipe_of_the_building_has_540_jobs():
    values = swept_values(CONF / "experiment" / "building_thresholds.yaml")
    n_seeds = 10  # a range
    assert math.prod(map(len, values.values())) * n_seeds == 540


# --- what options do

THRESHOLDS = {"variance_threshold": 0.0005, "error_threshold": 0.02}
#: short runs that leave the choice of the insertion, or of the training, to a test
ANY_INSERTION = [override for override in SHORT_RUN if not override.startswith("insertion")]
ANY_TRAINING = [override for override in SHORT_RUN if not override.startswith("training")]


def combine_rules():
    """Return combinations of insertion, reduction and acceptance in which every option occurs."""
    insertions = options("insertion")
    reductions = options("reduction")
    acceptances = options("acceptance")
    return [
        (insertions[i % 5], reductions[i % 5], acceptance)
        for i, acceptance in enumerate(acceptances)
    ]


def class_name_of(option):
    """Return the name of the class of an option: PriorEntropy of prior_entropy."""
    return option.title().replace("_", "")


@pytest.mark.parametrize(("insertion", "reduction", "acceptance"), combine_rules())
def test_every_rule_does_what_its_name_states(insertion, reduction, acceptance, tmp_path):
    insertion_file = (CONF / "insertion" / f"{insertion}.yaml").read_text()
    thresholds = [
        f"insertion.{name}={value}"
        for name, value in THRESHOLDS.items()
        if f"{name}:" in insertion_file
    ]
    rules = (
        f"insertion={insertion}",
        f"reduction={reduction}",
        f"acceptance={acceptance}",
    )
    folder = run_identify(tmp_path, *ANY_INSERTION, *rules, *thresholds)
    summary = load_summary(folder)
    model = Model.load(folder / "model.nc")
    counts = [summary[f"n_{name}"] for name in ("seen", "inserted", "accepted", "revised")]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0
    assert summary["n_points"] == model.gp.n_points <= BUDGET
    assert np.isfinite([summary["smse"], summary["nlpd"]]).all()
    assert type(model.gp.reduction).__name__ == class_name_of(reduction)
    if acceptance == "none":
        assert summary["n_accepted"] == summary["n_inserted"]
    else:
        criterion = reduction if acceptance == "matched" else acceptance
        assert type(model.gp.acceptance.criterion).__name__ == class_name_of(criterion)
    assert_inserted(insertion, load_dataset(folder, "result"))


def assert_inserted(insertion, result):
    """Compare the inserted samples of a record with the definition of the insertion."""
    _, online, _ = phase_masks(result)
    error = np.abs(result["target"] - result["mean"]).values
    has_large_error = error >= THRESHOLDS["error_threshold"]
    is_uncertain = result["variance"].values > THRESHOLDS["variance_threshold"]
    expected = {
        "always": online,
        "error": has_large_error,
        "variance": is_uncertain,
        "either": has_large_error | is_uncertain,
    }
    if insertion in expected:  # the record does not hold the novelty
        inserted = result["inserted"].values
        np.testing.assert_array_equal(inserted[online], expected[insertion][online])


@pytest.mark.parametrize(
    "training", ["maximum_a_posteriori", "maximum_likelihood", "adaptive", "fixed"]
)
def test_every_training_takes_the_kernel_that_is_chosen(training):
    configuration = compose_configuration("kernel=matern_52", f"training={training}")
    assert instantiate(configuration.training, _convert_="all").kernel == Matern52()


def test_the_summary_has_the_hyperparameters_of_every_part_of_a_kernel(tmp_path):
    few = (
        "training.restarts=1",
        "training.max_iterations=15",
        "training.n_initial=20",
        "identified=0.4",
        "duration=2d",
        "budget=24",
    )
    folder = run_identify(tmp_path, *SHORT_RUN, *few, "kernel=linear_plus_matern_52")
    kernel = load_summary(folder)["hyperparameters"]["kernel"]
    model = Model.load(folder / "model.nc")
    assert kernel == model.hyperparameters["kernel"]
    for name in model.narx.feature_names:
        assert name in str(kernel)


def test_a_fixed_training_starts_from_nothing(tmp_path):
    folder = run_identify(tmp_path, "training=fixed", *ANY_TRAINING, "scale=false")
    summary = load_summary(folder)
    result = load_dataset(folder, "result")
    initial, online, _ = phase_masks(result)
    assert not initial.any()
    assert summary["n_initial"] == 0
    first = [result[name].values[online][0] for name in ("n_points", "mean", "variance")]
    assert first == [1, 0.0, pytest.approx(10.0)]
    assert summary["smse_initial"] == pytest.approx(summary["smse_no_change"], rel=1e-12)
    hyperparameters = summary["hyperparameters"]
    assert set(hyperparameters["kernel"]["length_scales"].values()) == {100.0}
    assert hyperparameters["noise_variance"] == 0.002
    model = Model.load(folder / "model.nc")
    assert set(model.scaling.scale) == {1.0}
    assert model.mean.value == 0.0


def test_a_fixed_training_starts_from_some_samples(tmp_path):
    length_scales = list(range(10, 100, 10))
    training = (
        "training=fixed",
        "training.n_initial=15",
        f"training.length_scales={length_scales}",
    )
    summary = load_summary(run_identify(tmp_path, *ANY_TRAINING, *training))
    assert summary["n_initial"] == 15
    kernel = summary["hyperparameters"]["kernel"]
    assert list(kernel["length_scales"].values()) == length_scales


def run_and_find_warning(folder, overrides, words, caplog):
    """Run with doubtful settings; check that one warning with these words is logged and stored."""
    caplog.set_level("INFO")
    run_identify(folder, *SHORT_RUN, *overrides)
    (warning,) = [text for text in load_summary(folder)["warnings"] if words in text]
    assert warning in caplog.text


@pytest.mark.slow
def test_a_warning_of_a_budget_below_the_initial_samples(finished, caplog, tmp_path):
    overrides = ("insertion.error_threshold=0.0001", "budget=5", "learning=stored")
    run_and_find_warning(tmp_path, overrides, "turned away", caplog)
    assert "turned away" not in str(load_summary(finished)["warnings"])
    result = load_dataset(tmp_path, "result")
    _, online, _ = phase_masks(result)
    assert (result["n_points"].values[online] == 5).all()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("insertion.error_threshold=1e3", "learning=stored"), "no sample became a candidate"),
        (("system.substeps=1",), "raise system.substeps"),
    ],
    ids=["a threshold above all errors", "a coarse integration"],
)
def test_a_warning_of_doubtful_settings(overrides, words, caplog, tmp_path):
    run_and_find_warning(tmp_path, overrides, words, caplog)


def test_a_warning_of_constant_features(caplog, tmp_path):
    steady = ("weather.annual_amplitude=0", "weather.daily_amplitude=0", "weather.weather_std=0")
    run_and_find_warning(tmp_path, steady, "constant in the initial samples", caplog)
    summary = load_summary(tmp_path)
    features = [f"ambient_temperature[k-{lag}]" for lag in (1, 2, 3)]
    assert summary["constant_features"] == features
    assert summary["repairs"]["constant_features"] == 3


#: classes of the groups of the building, and of a system without groups of its own
BUILDING = {
    "system": "Building",
    "controller": "PI",
    "weather": "SyntheticWeather",
    "excitation": "NoExcitation",
    "insertion": "ErrorThreshold",
    "narx": "Narx",
    "data": None,
}
NEUTRAL = {
    "controller": None,
    "weather": None,
    "excitation": "Multisine",
    "insertion": "Always",
    "narx": "AutomaticNarx",
    "data": None,
}


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ("", BUILDING),
        ("system=van_der_pol", NEUTRAL | {"system": "VanDerPol"}),
        (
            "narx=auto insertion=always system=building",
            BUILDING | {"narx": "AutomaticNarx", "insertion": "Always"},
        ),
        (
            "system=cascaded_tanks controller=level_pi",
            NEUTRAL | {"system": "CascadedTanks", "controller": "PI"},
        ),
        ("data=bouc_wen", NEUTRAL | {"system": None, "data": "BoucWenData"}),
        ("data=silverbox data=simulated", BUILDING),
    ],
)
def test_a_system_brings_its_own_groups_and_the_command_line_wins(overrides, expected):
    configuration = compose_configuration(*overrides.split())
    classes = {}
    for group in expected:
        target = configuration[group].get("_target_", "")
        classes[group] = target.rpartition(".")[2] or None
    assert classes == expected


# --- durations as people write them


@given(
    duration=st.integers(1, 10**6),
    dt=st.integers(1, 10**4),
    decimal=st.sampled_from([0.1, 1 / 750, 0.3]),
)
def test_samples_fit_into_the_duration(duration, dt, decimal):
    """Products of decimals and steps are not exact; a rounding error must not lose a sample."""
    assert samples_of(duration, dt) == Fraction(duration, dt).__floor__() + 1
    assert samples_of(duration * decimal, decimal) == duration + 1
    assert samples_of(f" {duration} samples ", dt) == duration
    assert samples_of(f"{duration}samples", dt) == duration


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.5h", 5400), ("2e3", 2000), ("1e-3s", 0.001), (900, 900), (0.5, 0.5)],
)
def test_a_duration_is_read_in_seconds(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("duration", "expected"),
    [(90.0, "90s"), (120.0, "2min"), (7200.0, "2h"), (604800.0, "7d")],
)
def test_a_duration_is_written_in_the_largest_unit(duration, expected):
    assert seconds_text(duration) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        "soon",
        "",
        "5 y",
        "-3d",
        0,
        -1.0,
        "nan",
        "inf",
        "1e400",
        "e",
        "3.5samples",
        None,
    ],
)
def test_a_wrong_duration_is_refused(wrong):
    with pytest.raises(ValueError, match=r"365d.*5000samples"):
        seconds(wrong)


@pytest.mark.parametrize(
    "duration", [f"{MAX_RUN_SAMPLES + 1}samples", "1e300", "0samples", "100000w"]
)
def test_a_number_of_samples_out_of_range_is_refused(duration):
    message = rf"expected 1 to {MAX_RUN_SAMPLES}.*such as 40h \(35040 samples\)"
    with pytest.raises(ValueError, match=message):
        samples_of(duration, 4.109589041095890)


# --- what the tests keep, and what a run is handed


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param("system=bouc_wen kernel=matern_52 budget=7", id="options and a value"),
        pytest.param("", id="defaults", marks=pytest.mark.slow),
        pytest.param("experiment=bouc_wen_simulation", id="a recipe", marks=pytest.mark.slow),
    ],
)
def test_configurations_that_the_tests_keep_are_those_that_hydra_composes(overrides):
    """`helpers.kept_configurations` composes each combination once and copies by pickling."""
    overrides = overrides.split()
    expected = compose_anew(*overrides)
    for _ in range(2):  # the second time, nothing is loaded
        kept = compose_configuration(*overrides)
        assert OmegaConf.to_yaml(kept) == OmegaConf.to_yaml(expected)
        assert OmegaConf.to_yaml(kept, resolve=True) == OmegaConf.to_yaml(expected, resolve=True)
        assert OmegaConf.is_struct(kept) == OmegaConf.is_struct(expected)
        kept.budget = "changed"


def test_a_command_that_tests_run_composes_what_hydra_composes():
    """All of it, with the node of Hydra; what another command has set is not kept."""

    def compose_lines(*lines):
        configuration = compose("identify", list(lines), return_hydra_config=True)
        return OmegaConf.to_yaml(configuration, sort_keys=False)

    lines = ("hydra/launcher=joblib", "kernel=matern_52", "budget=7", "+kernel.own={a: 1}")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        with keep_nothing():
            expected = compose_lines(*lines)
        assert compose_lines(*lines) == expected
        assert compose_lines(*lines[:2], "budget=8") != expected
        assert compose_lines(*lines) == expected


def test_the_tests_choose_an_interpolated_option_as_hydra_does(tmp_path):
    for group in ("a", "b"):
        (tmp_path / group).mkdir()
        for option in ("x", "y"):
            (tmp_path / group / f"{option}.yaml").write_text(f"chosen: {option}\n")
    (tmp_path / "top.yaml").write_text("defaults: [{a: x}, {b: '${a}'}, _self_]\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        for overrides, expected in (([], "x"), (["a=y"], "y"), (["a=y", "b=x"], "x"), ([], "x")):
            assert compose("top", overrides).b.chosen == expected


def test_a_file_that_changes_is_read_again(tmp_path):
    file = tmp_path / "kernel" / "own.yaml"
    file.parent.mkdir()
    values = []
    for text in ("a: 1", "a: 23"):
        file.write_text(text)
        with initialize_config_dir(str(tmp_path), version_base="1.3"):
            values.append(compose("kernel/own").kernel.a)
    assert values == [1, 23]


def test_a_run_is_handed_plain_values_and_objects():
    overrides = ("narx=orders", "narx.target=[y,z]", "budget=7", "seed=3")
    settings = read_settings(compose_configuration(*overrides))
    json.dumps([settings.resolved, settings.lags.description, settings.overrides])
    assert settings.learner.budget == 7
    assert settings.learner.seed == 3
    assert settings.files.seed == 3
    assert yaml.safe_load(settings.files.configuration) == settings.resolved
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.in_sweep = True


@pytest.mark.parametrize(
    ("target", "expected"),
    [("[z,y]", ["z", "y"]), ("all", ["y", "z"]), ("[]", []), ("y", None), ("''", None)],
)
def test_several_outputs_are_those_of_a_list_or_all(target, expected):
    lags = read_settings(compose_configuration("narx=orders", f"narx.target={target}")).lags
    assert lags.targets(["y", "z"]) == expected
    assert lags.of("z").targets(["y", "z"]) is None


@pytest.mark.parametrize(
    ("outputs", "in_sweep", "is_lean", "has_job_file"),
    [
        ("null", False, False, False),
        ("full", False, False, False),
        ("lean", False, True, True),
        ("null", True, True, True),
        ("full", True, False, True),
        ("lean", True, True, True),
    ],
)
def test_which_files_a_run_writes(outputs, in_sweep, is_lean, has_job_file, monkeypatch):
    monkeypatch.setattr("experiments.identify.run.is_multirun", lambda: in_sweep)
    settings = read_settings(compose_configuration(f"outputs={outputs}", "report=true"))
    assert settings.files.lean == is_lean
    assert settings.files.job == has_job_file
    assert settings.files.page == (not is_lean)
    assert settings.in_sweep == in_sweep
