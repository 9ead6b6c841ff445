"""Short runs that many tests inspect, and where the references of the tests are found."""

import sys
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from numba import config

from helpers.benchmarks import BOUC_WEN, BUILDING, SECRET_SEED, generate
from helpers.commands import CONF, SHORT_RUN, run_identify
from helpers.records import RECORD_OVERRIDES, SMALL_MODEL, write_record
from helpers.sweeps import QUICK_JOBS, run_sweep

#: folders of modules with plants, simulated and recorded, and with naive formulas
TESTS = Path(__file__).parents[1]
sys.path += map(str, (TESTS, TESTS / "sysid", TESTS / "simulators"))
# without the compiler the results are the same, only slower: tests/sysid and tests/simulators
# compare them
collect_ignore_glob = ["test_*.py"] if config.DISABLE_JIT else []


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Folder of a finished short run with figures."""
    return run_identify(tmp_path_factory.mktemp("runs") / "finished", *SHORT_RUN, "figures=true")


@pytest.fixture(scope="session")
def record(tmp_path_factory):
    """Overrides of an identification from one record that validates on another.

    The tests choose `data.outputs`.
    """
    folder = tmp_path_factory.mktemp("record")
    estimation = write_record(folder / "estimation.csv", n=60, seed=2)
    test = write_record(folder / "test.csv", n=30, seed=5)
    files = (f"data.estimation={estimation}", f"data.test={test}")
    return (*RECORD_OVERRIDES, *SMALL_MODEL, *files)


@pytest.fixture(scope="session")
def swept(tmp_path_factory):
    """Folder of a finished sweep."""
    folder = tmp_path_factory.mktemp("sweeps") / "undisturbed"
    assert run_sweep(folder, *QUICK_JOBS).code == 0
    return folder


@pytest.fixture(scope="session")
def loader():
    """Hydra's loader of configurations of `sysid-identify`."""
    with initialize_config_dir(str(CONF), version_base="1.3", job_name="identify"):
        return GlobalHydra.instance().config_loader()


@pytest.fixture(scope="session")
def oscillator(tmp_path_factory):
    """Benchmark of Bouc-Wen in open loop: measurement noise, no process noise; with figures."""
    folder = tmp_path_factory.mktemp("oscillator") / "bw"
    return generate(folder, *BOUC_WEN, f"seed={SECRET_SEED}", "figures=true")


@pytest.fixture(scope="session")
def building(tmp_path_factory):
    """Benchmark of the building in closed loop: process noise, no measurement noise.

    There are several records, each after a transient.
    """
    folder = tmp_path_factory.mktemp("building") / "house"
    several = ("realisations.estimation=2", "realisations.test=2", "transient=7")
    return generate(folder, *BUILDING, *several)
