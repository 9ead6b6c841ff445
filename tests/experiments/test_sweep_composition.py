"""The configurations of the jobs of a sweep are those that Hydra composes; what it cannot compose is told in a line."""

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from running import CONF

from experiments.sweeps.keys import Composer, resolve

REFUSALS = (HydraException, OmegaConfBaseException, ValueError)


@pytest.fixture(scope="module")
def loader():
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="identify"):
        yield GlobalHydra.instance().config_loader()


def master_of(loader, *overrides):
    """Configuration of a sweep as Hydra's main function has it."""
    overrides = [*overrides, "hydra.mode=MULTIRUN"]
    master = loader.load_configuration(config_name="identify", overrides=overrides, run_mode=RunMode.MULTIRUN)
    OmegaConf.set_struct(master.hydra, False)
    return master


def both(loader, master, overrides, finish=None):
    """What Hydra and what the composer of sweeps makes of overrides; the errors where it is none."""
    composer, found = Composer(loader, master), []
    ours = lambda _, lines: composer.compose(composer.parser.parse_overrides(lines))  # noqa: E731
    for compose in (loader.load_sweep_config, ours):
        try:
            config = compose(master, overrides)
            plain = finish(config) if finish else OmegaConf.to_container(config, resolve=False, enum_to_str=True)
        except REFUSALS as error:
            plain = type(error)
        found.append(plain)
    return found


def test_a_job_is_what_hydra_composes(loader):
    master = master_of(loader, "hydra.verbose=true", "hydra/job_logging=disabled")
    for overrides in (
        ["system.dt=30", "system=building", "insertion.error_threshold=0.05", "insertion=error"],
        ["experiment=building_thresholds", "reduction=prior_entropy"],
        ["~weather", "budget=17", "+excitations.a={b:[1,null],c:'x y'}", 'weather_input="a,b"'],
        ["+narx={_target_:own.Lags,outputs:{y:2}}", "kernel=matern_52", "noise={}"],
        ["system=van_der_pol", "seed=${budget}", "excited=[]", "+excitation@excitations.mass_flow=prbs"],
    ):
        one, other = both(loader, master, overrides)
        assert one == other
        assert other["hydra"]["overrides"]["task"] == overrides
        one, other = both(loader, master, overrides, resolve)
        assert one == other


def test_a_job_may_ask_for_its_folder_and_its_values_are_those_of_its_overrides(loader, tmp_path):
    composer = Composer(loader, master_of(loader, f"hydra.sweep.dir={tmp_path}/sweep"))
    found, _, numbered = composer.job(["weather_input=${hydra:runtime.output_dir}/${hydra:job.id}.csv"], 12)
    assert found["weather_input"] == f"{tmp_path}/sweep/12/12.csv"
    assert (found["hydra"]["sweep"]["subdir"], numbered) == ("12", True)
    for text in ("3", "0.5", "true", "null", "'a b'", "[a,'b,c']", "''", "100samples"):
        configuration, values, numbered = composer.job([f"weather_input={text}", "insertion=error"])
        assert (values["insertion"], numbered) == ("error", False)
        value, found = configuration["weather_input"], values["weather_input"]
        assert type(found) in (type(None), bool, int, float, str)
        assert (yaml.safe_load(found) if isinstance(value, list) else found) == value


def test_names_that_do_not_exist_are_told_with_the_nearest(loader):
    composer = Composer(loader, master_of(loader))
    for overrides, message in (
        ("seeed=1", "unknown key 'seeed'; did you mean 'seed'?"),
        ("insertion=error insertion.error_treshold=1", "did you mean 'insertion.error_threshold'?"),
        ("insertion=error error_threshold=1", "did you mean 'insertion.error_threshold'?"),
        ("reduction=mean_relevancy", "unknown option 'mean_relevancy' of reduction; did you mean 'mean_relevance'?"),
        ("redution=mean_relevance", "unknown key 'redution'; did you mean 'reduction'?"),
        ("+seeed=1", "unknown configuration key 'seeed'.*did you mean 'seed'?"),
        ("insertion=error +insertion.treshold=1", "unknown key 'insertion.treshold'"),
        ("insertion=always insertion.error_threshold=1", "unknown key 'insertion.error_threshold'"),
        ("acceptance=yes", "unknown option 'yes' of acceptance.*matched"),
        *(("budget=${seeed}", "seeed"), ("system=7", "must be a string or a list"), ("~nothing", "nothing")),
        ("hydra/launcher=laptop", "unknown option 'laptop' of hydra/launcher"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            composer.job(overrides.split())
        assert "\n" not in str(caught.value)
