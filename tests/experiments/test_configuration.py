"""Every yaml composes, repeats the defaults of its class and does what its name says; every class
has a yaml.
"""

import dataclasses
import json
import math
from enum import Enum
from fractions import Fraction
from itertools import zip_longest

import numpy as np
import pytest
import yaml
from hydra.utils import get_class, instantiate
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import simulators
import sysid
from experiments.cli.options import MAX_RUN_SAMPLES, samples_of, seconds, seconds_text
from experiments.identify.run import read_settings
from experiments.plant.lags import AutomaticNarx
from experiments.plant.physics import Physics, ResidualNarx
from helpers.commands import (
    BUDGET,
    CONF,
    SHORT_RUN,
    compose_configuration,
    load_dataset,
    load_summary,
    phase_masks,
    run_identify,
)
from plants import concrete_classes
from sysid import Matern52, Model
from sysid.model.description import name_of

ROLES = {
    "system": simulators.System,
    "controller": simulators.Controller,
    "weather": simulators.Weather,
    "excitation": simulators.Excitation,
    "noise": simulators.MeasurementNoise,
    # this and the next: parts of data=function, no group of their own
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
LATER = (
    AutomaticNarx,
    ResidualNarx,
    sysid.Orders,
)  # become a `Narx` once the signals are known
WITHOUT_YAML = {
    simulators.OpenLoop,
    sysid.AboutPath,
}  # controller=none; what a validation makes of the propagation
CHOICES = {
    "controller/level_pi.yaml",
    "controller/position_loop.yaml",
    "physics/cascaded_tanks.yaml",
    "physics/servo.yaml",
    "physics/silverbox.yaml",
}  # values for one system instead of the defaults of the class
#: launchers and sweepers are compared with their engines
FILES = sorted(
    path for path in CONF.rglob("*.yaml") if path.parent != CONF and "hydra" not in path.parts
)


def named(path):
    return path.relative_to(CONF).as_posix()


def nodes(value):
    """Every mapping with a `_target_` inside a loaded yaml."""
    if isinstance(value, dict) and "_target_" in value:
        yield value
    for item in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from nodes(item)


def options(group):
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


#: groups that no other depends on take their options side by side; a system or data set brings options of others
FREE = [group for group in ROLES if group not in ("system", "data", "function", "sampling")]
CHOSEN = [[f"data={name}"] for name in options("data")] + [
    [f"system={name}"] for name in options("system")
]
CHOSEN += [[f"operating_point={name}"] for name in options("operating_point")]
CHOSEN += [
    [
        f"{group}={name}"
        for group, name in zip(FREE, names, strict=True)
        if name not in (None, "lags")
    ]
    for names in zip_longest(*map(options, FREE))
]


@pytest.mark.parametrize("overrides", CHOSEN, ids=lambda overrides: overrides[0])
def test_every_option_composes_and_instantiates(overrides):
    config = compose_configuration(*overrides)
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    for group in set(ROLES) & set(config):
        found = instantiate(config[group], _convert_="all")
        empty = f"{group}=none" in overrides or found == {}
        assert empty or isinstance(
            found, (*LATER, ROLES[group]) if group == "narx" else ROLES[group]
        ), group
        if f"{group}=none" not in overrides and any(
            text.startswith(f"{group}=") for text in overrides
        ):
            assert found or overrides == ["data=simulated"]


def stated(target):
    """Fields that a yaml states: all, but of a kernel only its parts, since a training fills the
    rest.
    """
    names = {field.name for field in dataclasses.fields(target) if field.init}
    return names & {"parts"} if issubclass(target, sysid.Kernel) else names


def plain(value):
    """Value as a yaml could hold it."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {"_target_": name_of(type(value))} | {
            name: plain(getattr(value, name)) for name in stated(type(value))
        }
    return value


@pytest.mark.parametrize("path", FILES, ids=named)
def test_yaml_names_a_public_class_and_states_its_defaults(path):
    for node in nodes(yaml.safe_load(path.read_text())):
        target = get_class(node["_target_"])
        package = target.__module__.partition(".")[0]
        name = target.__qualname__
        assert node["_target_"] in (f"{package}.{name}", f"{target.__module__}.{name}")
        assert node["_target_"] == f"{package}.{name}" or package == "experiments"
        groups = [
            next(iter(entry)) for entry in node.get("defaults", []) if isinstance(entry, dict)
        ]
        elsewhere = {
            group.rpartition("@")[2] for group in groups if not group.startswith("override")
        }
        assert (set(node) | elsewhere) - {"_target_", "defaults"} == stated(target)
        for field in dataclasses.fields(target):
            default = field.default
            if field.default_factory is not dataclasses.MISSING:
                default = field.default_factory()
            written = node.get(field.name)
            if field.name not in node or default is dataclasses.MISSING or target is sysid.Narx:
                continue  # lags are a choice, not a default
            if (
                dataclasses.is_dataclass(default)
                or str(written).startswith("${")
                or named(path) in CHOICES
            ):
                continue  # its own node is compared
            assert plain(written) == plain(default), field.name
            assert isinstance(written, float) or not isinstance(default, float), (
                f"{field.name}: {written!r}"
            )


@pytest.mark.parametrize("group", sorted(set(ROLES) - {"physics"}))
def test_every_class_has_a_yaml(group):
    files = [yaml.safe_load(path.read_text()) for path in FILES]
    targets = {get_class(node["_target_"]) for file in files for node in nodes(file)}
    found = {
        one for package in (sysid, simulators) for one in concrete_classes(package, ROLES[group])
    }
    assert found - WITHOUT_YAML
    assert found - WITHOUT_YAML <= targets


@pytest.mark.parametrize(
    "path", sorted((CONF / "experiment").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_recipe_composes_wins_over_the_defaults_and_is_listed(path):
    """The first and the last of the values that are swept exist; the help of its command names the
    recipe.
    """
    written = yaml.safe_load(path.read_text())
    command = path.read_text().splitlines()[1].split()[1].removeprefix("sysid-")
    assert f"  {path.stem} " in (CONF / f"{command}.yaml").read_text()
    params = written.pop("hydra", {"sweeper": {"params": {}}})["sweeper"]["params"]
    values = {
        key: str(value).split(",") for key, value in params.items() if "range" not in str(value)
    }
    for end in (0, -1):
        swept = (f"{key}={each[end]}" for key, each in values.items())
        config = compose_configuration(f"experiment={path.stem}", *swept, command=command)
        assert OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        written.pop("defaults", None)
        assert OmegaConf.merge(config, OmegaConf.create(written)) == config
    assert path.stem != "building_thresholds" or math.prod(map(len, values.values())) * 10 == 540


# --- what options do, durations as people write them

THRESHOLDS = {"variance_threshold": 0.0005, "error_threshold": 0.02}
ANY_INSERTION = [override for override in SHORT_RUN if not override.startswith("insertion")]
UNTRAINED = [override for override in SHORT_RUN if not override.startswith("training")]


INSERTIONS, REDUCTIONS, ACCEPTANCES = (
    options(group) for group in ("insertion", "reduction", "acceptance")
)
#: every option of the three groups occurs
COMBINATIONS = [
    (INSERTIONS[i % 5], REDUCTIONS[i % 5], acceptance) for i, acceptance in enumerate(ACCEPTANCES)
]


@pytest.mark.parametrize(("insertion", "reduction", "acceptance"), COMBINATIONS)
def test_every_option_runs(insertion, reduction, acceptance, tmp_path):
    stated = (CONF / "insertion" / f"{insertion}.yaml").read_text()
    thresholds = [
        f"insertion.{name}={value}" for name, value in THRESHOLDS.items() if f"{name}:" in stated
    ]
    groups = (
        f"insertion={insertion}",
        f"reduction={reduction}",
        f"acceptance={acceptance}",
    )
    folder = run_identify(tmp_path, *ANY_INSERTION, *groups, *thresholds)
    summary = load_summary(folder)
    model = Model.load(folder / "model.nc")
    result = load_dataset(folder, "result")
    assert (
        summary["n_seen"]
        >= summary["n_inserted"]
        >= summary["n_accepted"]
        >= summary["n_revised"]
        > 0
    )
    assert summary["n_points"] == model.gp.n_points <= BUDGET
    assert np.isfinite([summary["smse"], summary["nlpd"]]).all()
    if acceptance == "none":
        assert summary["n_accepted"] == summary["n_inserted"]
    else:
        wanted = reduction if acceptance == "matched" else acceptance
        assert type(model.gp.acceptance.criterion).__name__ == wanted.title().replace("_", "")
    assert type(model.gp.reduction).__name__ == reduction.title().replace("_", "")
    online = phase_masks(result)[1]
    large = np.abs(result["target"] - result["mean"]).values >= THRESHOLDS["error_threshold"]
    unsure = result["variance"].values > THRESHOLDS["variance_threshold"]
    expected = {
        "always": online,
        "error": large,
        "variance": unsure,
        "either": large | unsure,
    }
    if insertion in expected:  # novelty is not in the record
        np.testing.assert_array_equal(
            result["inserted"].values[online], expected[insertion][online]
        )


def test_every_training_takes_the_kernel_that_is_chosen(tmp_path):
    for training in ("maximum_a_posteriori", "maximum_likelihood", "adaptive", "fixed"):
        config = compose_configuration("kernel=matern_52", f"training={training}")
        assert instantiate(config.training, _convert_="all").kernel == Matern52()
    few = (
        "training.restarts=1",
        "training.max_iterations=15",
        "identified=0.4",
        "duration=2d",
        "budget=24",
    )
    folder = run_identify(
        tmp_path, *SHORT_RUN, *few, "training.n_initial=20", "kernel=linear_plus_matern_52"
    )
    told = load_summary(folder)["hyperparameters"]["kernel"]
    model = Model.load(folder / "model.nc")
    assert told == model.hyperparameters["kernel"]
    assert all(name in str(told) for name in model.narx.feature_names)


def test_fixed_training_starts_empty_or_from_some_samples(tmp_path):
    folder = run_identify(tmp_path / "empty", "training=fixed", *UNTRAINED, "scale=false")
    summary = load_summary(folder)
    result = load_dataset(folder, "result")
    model = Model.load(folder / "model.nc")
    initial, online, _ = phase_masks(result)
    assert (initial.any(), summary["n_initial"]) == (False, 0)
    first = [result[name].values[online][0] for name in ("n_points", "mean", "variance")]
    assert first == [1, 0.0, pytest.approx(10.0)]
    assert summary["smse_initial"] == pytest.approx(summary["smse_no_change"], rel=1e-12)
    told = summary["hyperparameters"]
    assert (set(told["kernel"]["length_scales"].values()), told["noise_variance"]) == (
        {100.0},
        0.002,
    )
    assert (set(model.scaling.scale), model.mean.value) == ({1.0}, 0.0)
    scales = list(range(10, 100, 10))
    given = (
        "training=fixed",
        "training.n_initial=15",
        f"training.length_scales={scales}",
    )
    some = load_summary(run_identify(tmp_path / "some", *UNTRAINED, *given))
    assert some["n_initial"] == 15
    assert list(some["hyperparameters"]["kernel"]["length_scales"].values()) == scales


def test_doubtful_settings_are_told(finished, caplog, tmp_path):
    """Each by one warning in the summary, which the good run has not; and on the screen."""
    steady = [
        f"weather.{name}=0" for name in ("annual_amplitude", "daily_amplitude", "weather_std")
    ]
    cases = {
        "turned away": (
            "insertion.error_threshold=0.0001",
            "budget=5",
            "learning=stored",
        ),
        "no sample became a candidate": (
            "insertion.error_threshold=1e3",
            "learning=stored",
        ),
        "raise system.substeps": ("system.substeps=1",),
        "constant in the initial samples": tuple(steady),
    }
    for k, (words, overrides) in enumerate(cases.items()):
        caplog.clear()
        caplog.set_level("INFO")
        folder = run_identify(tmp_path / str(k), *SHORT_RUN, *overrides)
        (warning,) = [warning for warning in load_summary(folder)["warnings"] if words in warning]
        assert warning in caplog.text
        assert words == "turned away" or words not in str(load_summary(finished)["warnings"])
    assert load_summary(folder)["constant_features"] == [
        f"ambient_temperature[k-{lag}]" for lag in (1, 2, 3)
    ]
    assert load_summary(folder)["repairs"]["constant_features"] == 3
    result = load_dataset(tmp_path / "0", "result")
    assert (result["n_points"].values[phase_masks(result)[1]] == 5).all(), (
        "a budget below the initial samples"
    )


BUILDING = {
    "system": "Building",
    "controller": "PI",
    "weather": "SyntheticWeather",
    "excitation": "NoExcitation",
}
BUILDING |= {"insertion": "ErrorThreshold", "narx": "Narx", "data": None}
NEUTRAL = {
    "controller": None,
    "weather": None,
    "excitation": "Multisine",
    "insertion": "Always",
    "data": None,
}
NEUTRAL |= {"narx": "AutomaticNarx"}


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
    config = compose_configuration(*overrides.split())
    assert {
        name: config[name].get("_target_", "").rpartition(".")[2] or None for name in expected
    } == expected


@given(
    duration=st.integers(1, 10**6),
    dt=st.integers(1, 10**4),
    decimal=st.sampled_from([0.1, 1 / 750, 0.3]),
)
def test_samples_fit_into_the_duration(duration, dt, decimal):
    """Products of decimals and steps are not exact; a rounding error must not lose a sample."""
    assert samples_of(duration, dt) == Fraction(duration, dt).__floor__() + 1
    assert samples_of(duration * decimal, decimal) == duration + 1
    assert (
        samples_of(f" {duration} samples ", dt) == samples_of(f"{duration}samples", dt) == duration
    )


def test_durations_are_read_and_told():
    read = {"1.5h": 5400, "2e3": 2000, "1e-3s": 0.001, 900: 900, 0.5: 0.5}
    assert {text: seconds(text) for text in read} == read
    told = {90.0: "90s", 120.0: "2min", 7200.0: "2h", 604800.0: "7d"}
    assert {value: seconds_text(value) for value in told} == told
    for wrong in (
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
    ):
        with pytest.raises(ValueError, match=r"365d.*5000samples"):
            seconds(wrong)
    for huge in (f"{MAX_RUN_SAMPLES + 1}samples", "1e300", "0samples", "100000w"):
        with pytest.raises(
            ValueError,
            match=rf"expected 1 to {MAX_RUN_SAMPLES}.*such as 40h \(35040 samples\)",
        ):
            samples_of(huge, 4.109589041095890)


# --- what a run is handed


def test_a_run_is_handed_plain_values_and_objects():
    settings = read_settings(
        compose_configuration("narx=orders", "narx.target=[y,z]", "budget=7", "seed=3")
    )
    json.dumps([settings.resolved, settings.lags.description, settings.overrides])
    assert (settings.learner.budget, settings.learner.seed, settings.files.seed) == (
        7,
        3,
        3,
    )
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
    ("outputs", "in_sweep", "lean", "job"),
    [
        *(
            ("null", False, False, False),
            ("full", False, False, False),
            ("lean", False, True, True),
        ),
        *(
            ("null", True, True, True),
            ("full", True, False, True),
            ("lean", True, True, True),
        ),
    ],
)
def test_which_files_a_run_writes(outputs, in_sweep, lean, job, monkeypatch):
    monkeypatch.setattr("experiments.identify.run.is_multirun", lambda: in_sweep)
    settings = read_settings(compose_configuration(f"outputs={outputs}", "report=true"))
    assert (settings.files.lean, settings.files.job, settings.files.page) == (
        lean,
        job,
        not lean,
    )
    assert settings.in_sweep == in_sweep
