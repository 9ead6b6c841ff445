"""Strangers can do nothing, whether they reach a port, send a file, or name a group on the command
line; and a drifting plant is reported.
"""

import subprocess
import time
from functools import cache
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

from experiments.cli.mistakes import check_arguments
from experiments.generate import score
from experiments.generate.score import read_predictions
from experiments.identify.summary import _warn_of_drift
from experiments.sweeps import dask_engine
from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.slurm_engine import SlurmQueue
from helpers.commands import compose_configuration, run_command
from helpers.jobs import HANG_TIMEOUT, script_process
from sysid import OnlineGP, PriorEntropy, Settings, SquaredExponential

# --- the command line


@pytest.mark.parametrize(
    "arguments",
    [
        [
            "-m",
            "system=building",
            "system=[building]",
            "system=building,servo",
            "system={dt: 3}",
            "~weather",
        ],
        ["budget=3", "+mine=3", "system='building'", "hydra/launcher=dask"],
    ],
    ids=["a sweep", "a run"],
)
def test_what_hydra_takes_for_a_group_is_not_refused(arguments):
    check_arguments("identify", arguments)


#: overrides that make each command short and that none refuses
QUICK_OVERRIDES = {
    "identify": [
        "duration=80samples",
        "figures=false",
        "validate=false",
        "training.n_initial=20",
        "narx=building",
    ],
    "generate": [
        "estimation=60samples",
        "test=60samples",
        "figures=false",
        "baseline={}",
    ],
    "validate": ["duration=60samples", "figures=false", "model=model.nc"],
    "benchmark": ["quick=true", "benchmarks=[]"],
    "reproduce": ["study=[]", "figures=false"],
    "collect": [],
    "export": ["model=model.nc"],
}
#: values of every kind, most of them wrong for most keys
VALUES = [
    "3",
    "0",
    "-1",
    "1.5",
    "1e300",
    "nan",
    "inf",
    "null",
    "true",
    "text",
    "''",
    "[]",
    "[nan]",
    "[1,2]",
    "[x]",
    "{}",
    "{a:1}",
    "[[1]]",
    "'../../x'",
    "[/tmp/x]",
]


@cache
def keys_of(command):
    """Return all keys of a command, and those of the options that it chooses by itself."""
    configuration = compose_configuration(command=command)
    keys = list(map(str, configuration))
    for group in configuration:
        if isinstance(configuration[group], DictConfig):
            inner_keys = [f"{group}.{name}" for name in configuration[group]]
            keys += [key for key in inner_keys if not key.endswith("_")]
    return keys


@pytest.mark.slow
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    command=st.sampled_from(["identify"] * 3 + ["generate", "validate", *QUICK_OVERRIDES]),
    data=st.data(),
)
def test_no_value_of_an_option_ends_in_a_traceback(command, data, tmp_path_factory):
    """Beside valid options, of which every one is replaced now and then."""
    keys = sorted(data.draw(st.sets(st.sampled_from(keys_of(command)), min_size=1, max_size=2)))
    drawn = [f"{key}={data.draw(st.sampled_from(VALUES))}" for key in keys]
    overrides = QUICK_OVERRIDES[command] + drawn
    started = time.process_time()
    # an error that is no mistake of the user would be raised here
    result = run_command(command, *overrides, cwd=tmp_path_factory.mktemp("run"))
    assert "Traceback" not in result.out + result.err, overrides
    assert time.process_time() - started < 30, overrides


# --- a submission to a benchmark


def write_npy_file(path, shape):
    """Write a file of three zeros whose header states a shape."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    magic = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
    path.write_bytes(magic + header.encode() + bytes(24))


def test_an_array_is_read_if_its_header_is_true(tmp_path):
    path = tmp_path / "predicted.npy"
    write_npy_file(path, "(3,)")
    assert read_predictions(path, ["y"], 3).tolist() == [[0.0]] * 3


@pytest.mark.parametrize("n_expected", [2, 4])
@pytest.mark.parametrize(
    "shape",
    ["(1000000000000000,)", "(9223372036854775807, 2)", "(-5,)", "()", "(3,)", None],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_an_array_is_not_made_because_a_header_claims_it(shape, n_expected, tmp_path):
    path = tmp_path / "predicted.npy"
    if shape is None:
        path.write_bytes(b"")
    else:
        write_npy_file(path, shape)
    with pytest.raises(score.Refused, match=r"predicted\.npy"):
        read_predictions(path, ["y"], n_expected)


# --- clusters


def test_a_folder_that_slurm_would_rename_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Slurm takes % .* hydra\.sweep\.dir .*a%jb"):
        SlurmQueue(tmp_path / "a%jb")
    SlurmQueue(tmp_path / "a%jb", cluster="local")


#: tries to reach addresses, with keys of its own where they are encrypted; prints how each try ends
STRANGER = """
import os, sys
from concurrent.futures import ThreadPoolExecutor
from distributed import Client
from distributed.security import Security

def try_to_enter(address):
    security = Security.temporary() if address.startswith("tls") else None
    try:
        client = Client(address, timeout=2, set_as_default=False, security=security)
    except (OSError, RuntimeError) as error:
        return f"refused: {error}"
    return f"entered: {client}"

with ThreadPoolExecutor() as pool:
    print(*pool.map(try_to_enter, sys.argv[1:]), sep="\\n", flush=True)
os._exit(0)
"""


def refuse_strangers(addresses):
    """Let a stranger try to reach addresses, plainly and encrypted; assert that all tries fail."""
    places = [address.partition("://")[2] for address in addresses]
    tried = [f"{protocol}://{place}" for place in places for protocol in ("tcp", "tls")]
    with script_process(STRANGER, *tried, stdout=subprocess.PIPE, text=True) as stranger:
        lines = stranger.communicate(timeout=HANG_TIMEOUT)[0].splitlines()
    assert len(lines) == len(tried)
    assert all(line.startswith("refused") for line in lines), lines


def test_a_scheduler_refuses_strangers(tmp_path):
    """A cluster without workers: whoever reached it could run code as the owner of the sweep."""
    cluster = DaskCluster(tmp_path)._start(0, str(tmp_path))
    try:
        refuse_strangers([cluster.scheduler_address])
    finally:
        dask_engine._end(cluster, is_local=True)


def test_a_cluster_hands_its_keys_to_its_workers_and_listens_to_this_machine(tmp_path):
    with mock.patch("distributed.LocalCluster") as local_cluster:
        DaskCluster(tmp_path)._start(1, str(tmp_path))
    options = local_cluster.call_args.kwargs
    assert options["security"].require_encryption
    assert options["host"] == "127.0.0.1"
    assert options["dashboard_address"].startswith("127.0.0.1:")
    assert options["worker_dashboard_address"].startswith("127.0.0.1:")


@pytest.mark.slow
def test_a_cluster_with_a_worker_refuses_strangers_and_works(tmp_path):
    with dask_engine._quiet(), DaskCluster(tmp_path, workers=1)._connected(1) as client:
        client.wait_for_workers(1)
        workers = client.scheduler_info()["workers"]
        nannies = [worker["nanny"] for worker in workers.values()]
        addresses = [client.scheduler.address, *workers, *nannies]
        assert len(addresses) == 3
        refuse_strangers(addresses)
        assert client.submit(sum, [1, 2]).result(timeout=HANG_TIMEOUT) == 3


# --- a plant that drifts


def warning_of_drift(growth, n=4000):
    """Return the warning of a stream whose errors grow by this factor, or an empty text."""
    rng = np.random.default_rng(0)
    target = rng.normal(size=n)
    error = rng.normal(size=n) * np.linspace(0.1, 0.1 * growth, n)
    result = SimpleNamespace(
        is_online=np.ones(n, dtype=bool),
        record={"mean": target + error},
        identified={"target": SimpleNamespace(values=target)},
        identification=SimpleNamespace(model=None, settings=Settings()),
    )
    return "".join(_warn_of_drift(result))


def test_a_stream_that_is_predicted_worse_and_worse_is_reported():
    warning = warning_of_drift(4.0)
    assert "SMSE 0.01" in warning
    assert "forgetting=<samples>" in warning


def test_a_plant_that_stays_is_not_reported():
    assert not warning_of_drift(1.3)


def test_a_few_samples_are_not_reported():
    assert not warning_of_drift(4.0, n=500)


@pytest.mark.slow
def test_the_default_gets_worse_on_a_drifting_plant_and_what_is_advised_does_not():
    """The phase of a sine makes one turn in 50 000 samples."""
    n = 100_000
    x = np.random.default_rng(0).uniform(-2, 2, (n, 1))
    noise = np.random.default_rng(1).normal(size=n)
    target = np.sin(2 * x[:, 0] + 2 * np.pi * np.arange(n) / 50_000)

    def smse_of_last_quarter(**options):
        gp = OnlineGP(
            SquaredExponential(1.0, [0.8]),
            noise_variance=0.01,
            budget=50,
            **options,
        )
        predicted = gp.update_many(x, target + 0.1 * noise)["mean"]
        error = predicted[-n // 4 :] - target[-n // 4 :]
        return np.mean(error**2) / np.var(target)

    default = smse_of_last_quarter()
    assert default > 10 * smse_of_last_quarter(forgetting=300)
    assert default > 5 * smse_of_last_quarter(reduction=PriorEntropy())
