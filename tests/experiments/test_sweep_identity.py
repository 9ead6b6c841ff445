"""Configurations of jobs, as Hydra composes them; what of them, of code and of files decides a job
or a trajectory.
"""

import json
import os
import sys
from functools import partial

import numpy as np
import pytest
import yaml
from omegaconf import OmegaConf

from experiments.files import identity
from experiments.files.cache import array_digest
from experiments.files.identity import (
    code_digest,
    file_digests,
    identity_of,
    key_of,
    trajectory_key,
)
from experiments.plant.source import SIMULATION_KEYS
from experiments.sweeps.composer import Composer, resolve
from helpers.commands import compose_configuration
from helpers.sweeps import load_sweep_configuration

SETTINGS = {
    **{
        "seed": 1,
        "outputs": "lean",
        "figures": True,
        "cache": "/somewhere",
        "path": None,
    },
    "system": {"_target_": "simulators.VanDerPol", "dt": 0.1, "lags": [1, 2]},
    "hydra": {"launcher": {"_target_": "x"}, "job": {"num": 3}},
}


def test_every_setting_makes_another_job_and_how_it_is_run_does_not():
    before = identity_of("a:b", SETTINGS)
    for change in (
        *(
            {"seed": 2},
            {"seed": "1"},
            {"seed": None},
            {"outputs": "full"},
            {"more": None},
        ),
        *(
            {"system": SETTINGS["system"] | {"dt": 0.1 + 1e-16}},
            {"system": SETTINGS["system"] | {"lags": [2, 1]}},
        ),
        {"system": SETTINGS["system"] | {"_target_": "simulators.BoucWen"}},
    ):
        assert identity_of("a:b", SETTINGS | change) != before
    assert identity_of("a:c", SETTINGS) != before
    for change in (
        {"cache": None},
        {"hydra": {"launcher": {"workers": 7}}},
        {"outputs": None},
        {"figures": False},
    ):
        assert identity_of("a:b", SETTINGS | change) == before
    assert identity_of("a:b", dict(reversed(SETTINGS.items()))) == before
    full = [
        identity_of("a:b", SETTINGS | {"outputs": "full", "figures": figures})
        for figures in (True, False)
    ]
    assert full[0] != full[1]


def test_keys_and_arrays_count_exactly():
    assert (
        len(
            {
                key_of({"a": value})
                for value in (
                    0.1,
                    0.1 + 1e-17,
                    np.nextafter(0.1, 1),
                    "0.1",
                    [0.1],
                    None,
                )
            }
        )
        == 5
    )
    one = np.arange(6.0)
    others = [
        one,
        one.reshape(2, 3),
        one.reshape(3, 2),
        one.astype(int),
        one + np.spacing(one),
        -one,
    ]
    assert len({array_digest(other) for other in others}) == len(others)
    assert array_digest(one.reshape(2, 3)) == array_digest(np.asfortranarray(one.reshape(2, 3)))
    assert array_digest(one[:2], one[2:]) != array_digest(one[:3], one[3:])


def plain(config):
    return OmegaConf.to_container(config, resolve=True)


# --- code


def test_words_do_not_count_and_what_computes_does(tmp_path, monkeypatch):
    def digest(target):
        identity._module_digest.cache_clear()
        return code_digest({"system": [{"deep": {"_target_": target}}]})

    detail = tmp_path / "mine" / "detail.py"
    alone = tmp_path / "alone_in_its_file.py"
    detail.parent.mkdir()
    (tmp_path / "mine" / "plant.py").write_text("class Plant: pass\n")
    alone.write_text("class Plant: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    detail.write_text('"""Words."""\nGAIN = 1\n\n\ndef f(x):\n    return x + 1\n')
    before = digest("mine.plant.Plant")
    assert before not in {
        code_digest(),
        digest("alone_in_its_file.Plant"),
        digest("not_there.Plant"),
    }
    words = '"""Other\nwords."""\n\nGAIN = 1  # of the plant\n\n\ndef f(x):\n    "What."\n\n    return x + 1\n'
    detail.write_text(words)
    assert digest("mine.plant.Plant") == before
    found = {before}
    changes = [
        ("+ 1", "+ 2"),
        ("x + 1", "x - 1"),
        ("GAIN", "GAIM"),
        ("(x)", "(x=1)"),
        ("= 1", "= {'a', 'b'}"),
    ]
    for old, new in changes:
        detail.write_text(words.replace(old, new))
        found.add(digest("mine.plant.Plant"))
    assert len(found) == len(changes) + 1
    assert not {"mine", "mine.plant", "alone_in_its_file"} & sys.modules.keys()
    before = digest(
        "alone_in_its_file.Plant"
    )  # a module in no package counts alone, also one that cannot be imported
    for text in ("class Plant: gain = 2\n", "class Plant: gain = = 2\n"):
        alone.write_text(text)
        assert digest("alone_in_its_file.Plant") != before


def test_the_toolbox_and_versions_count_for_jobs_and_trajectories(monkeypatch):
    def digests():
        return [
            code_digest(),
            identity_of("a:b", SETTINGS),
            trajectory_key(plain(compose_configuration()), 100),
        ]

    found = [digests()]
    for name, value in (
        ("package_versions", '{"numpy": "0"}'),
        ("_own_digest", "other source"),
    ):
        with monkeypatch.context() as context:
            context.setattr(identity, name, lambda value=value: value)
            found.append(digests())
    assert len({one for digests in found for one in digests}) == 9
    own = {
        "a": {"_target_": "sysid.Fixed"},
        "c": {"_target_": "numpy.array"},
        "note": "mine.plant.Plant",
    }
    launcher = {"hydra": {"launcher": {"_target_": "mine.plant.Plant"}}}
    assert code_digest(own) == code_digest(launcher) == found[0][0]


# --- files and folders


def test_files_and_folders_count_by_their_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "records" / "more").mkdir(parents=True)
    (tmp_path / "u").mkdir()
    path = tmp_path / "weather.csv"
    deep = tmp_path / "records" / "more" / "a.csv"
    texts = {
        "n": 3,
        "long": 5000 * "x",
        "null": "a\0b",
        "gone": "gone",
        "e": "",
        "inputs": ["u"],
        "decimal": ".",
    }
    config = {
        "weather": {"file": "weather.csv"},
        "data": [{"folder": "records"}, "records/more"],
        **texts,
    }
    found = []
    for one, two in (("1,2", "3"), ("1,3", "3"), ("1,3", "4"), ("1,2", "3")):
        path.write_text(one)
        deep.write_text(two)
        found.append(file_digests(config))
        assert found[-1].keys() == {"weather.csv", "records", "records/more"}
    assert found[0] == found[3]
    assert found[1]["records"] == found[0]["records"] != found[2]["records"]
    assert found[1]["weather.csv"] != found[0]["weather.csv"]
    deep.rename(deep.with_name("b.csv"))
    assert file_digests(config)["records"] != found[0]["records"]
    assert (
        file_digests(
            {
                "hydra": {"a": "weather.csv"},
                "cache": "records/",
                "output": "records/more",
            }
        )
        == {}
    )


def test_results_below_the_working_folder_are_no_input_and_a_variable_names_data_without_a_path(
    tmp_path, monkeypatch
):
    work = tmp_path / "work"
    (work / "multirun").mkdir(parents=True)
    (work / "a.csv").write_text("1")
    monkeypatch.chdir(work)
    before = file_digests({"path": "."})
    (work / "multirun" / "result").write_text("2")
    assert file_digests({"path": "."}) == before
    monkeypatch.setenv("SYSID_DATA", str(work))
    named = file_digests({"data": {"path": None}})
    assert (named.keys(), file_digests({"data": {"path": "elsewhere"}})) == (
        {"SYSID_DATA"},
        {},
    )
    (work / "a.csv").write_text("3")
    assert file_digests({"path": "."}) != before
    assert file_digests({"data": {"path": None}}) != named


def test_a_file_that_changed_in_place_is_read_again_and_else_once(tmp_path, monkeypatch):
    path = tmp_path / "weather.csv"
    path.write_bytes(b"1,2\n")
    state = path.stat()
    before = file_digests([str(path)])
    path.write_bytes(b"1,3\n")
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns + 1))
    assert file_digests([str(path)]) != before
    monkeypatch.setattr(identity.hashlib, "file_digest", None)
    assert file_digests([str(path)])  # not read a second time

    def refuse(*arguments):
        raise PermissionError

    monkeypatch.setattr(identity, "_content_digest", refuse)
    assert file_digests([str(path)]) == {str(path): "unreadable"}


# --- trajectories

#: two plants that together have every kind of setting
PLANTS = {
    "building": ("system=building",),
    "excited": (
        *("system=bouc_wen", "noise.snr_db=40", "+excitation@excitations.force=prbs"),
        *("excitation=recorded", "excitation.values=[1.0,2.0]"),
    ),
}


def changes_of(content, path=()):
    """Path of every value in nested dicts and lists with another value; an empty dict or list
    counts as a value.
    """
    entries = (
        content.items()
        if isinstance(content, dict)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for name, value in entries:
        yield from changes_of(value, (*path, name))
    if isinstance(content, float):
        yield path, float(np.nextafter(content, 1e9))
    elif isinstance(content, bool | str):
        yield path, not content if isinstance(content, bool) else f"{content}x"
    elif not isinstance(content, dict | list) or not content:
        yield path, [content, 1]


@pytest.mark.parametrize("overrides", PLANTS.values(), ids=PLANTS)
def test_every_setting_of_the_plant_and_every_unknown_one_changes_the_key_of_its_trajectory(
    overrides,
):
    content = plain(compose_configuration(*overrides)) | {"own": {"law": 1}}
    before = trajectory_key(content, 100)
    matter = set()
    plant = set()
    assert before != trajectory_key(content, 101)
    for path, value in changes_of(content):
        place = other = json.loads(json.dumps(content))
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        matter |= {path} if trajectory_key(other, 100) != before else set()
        plant |= {path} if path[0] in SIMULATION_KEYS - {"duration", "identified"} else set()
    assert len(plant) > 20
    assert matter == plant | {("seed",), ("data",), ("own", "law")}


UNRESOLVED = partial(OmegaConf.to_container, resolve=False, enum_to_str=True)


def both(loader, master, overrides, finish=UNRESOLVED):
    """What Hydra and what the composer of sweeps makes of overrides."""
    composer = Composer(loader, master)
    ours = composer.compose(composer.parser.parse_overrides(overrides))
    return [finish(config) for config in (loader.load_sweep_config(master, overrides), ours)]


def test_a_job_is_what_hydra_composes(loader):
    master = load_sweep_configuration(loader, "hydra.verbose=true", "hydra/job_logging=disabled")
    for overrides in (
        [
            "system.dt=30",
            "system=building",
            "insertion.error_threshold=0.05",
            "insertion=error",
        ],
        ["experiment=building_thresholds", "reduction=prior_entropy"],
        [
            "~weather",
            "budget=17",
            "+excitations.a={b:[1,null],c:'x y'}",
            'weather_input="a,b"',
        ],
        ["+narx={_target_:own.Lags,outputs:{y:2}}", "kernel=matern_52", "noise={}"],
        [
            "system=van_der_pol",
            "seed=${budget}",
            "excited=[]",
            "+excitation@excitations.mass_flow=prbs",
        ],
    ):
        one, other = both(loader, master, overrides)
        assert one == other
        assert other["hydra"]["overrides"]["task"] == overrides
        one, other = both(loader, master, overrides, resolve)
        assert one == other


def test_a_job_may_ask_for_its_folder_and_its_values_are_those_of_its_overrides(loader, tmp_path):
    composer = Composer(
        loader, load_sweep_configuration(loader, f"hydra.sweep.dir={tmp_path}/sweep")
    )
    found, _, numbered = composer.job(
        ["weather_input=${hydra:runtime.output_dir}/${hydra:job.id}.csv"], 12
    )
    assert found["weather_input"] == f"{tmp_path}/sweep/12/12.csv"
    assert (found["hydra"]["sweep"]["subdir"], numbered) == ("12", True)
    for text in ("3", "0.5", "true", "null", "'a b'", "[a,'b,c']", "''", "100samples"):
        configuration, values, numbered = composer.job([f"weather_input={text}", "insertion=error"])
        assert (values["insertion"], numbered) == ("error", False)
        value = configuration["weather_input"]
        found = values["weather_input"]
        assert type(found) in (type(None), bool, int, float, str)
        assert (yaml.safe_load(found) if isinstance(value, list) else found) == value
