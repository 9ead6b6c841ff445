"""What strangers may do: nothing, whether they reach a port, send a file, or name a group on the
command line.
"""

import time
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from omegaconf import DictConfig

import sysid
from experiments.cli.mistakes import check_arguments
from experiments.generate import score
from experiments.generate.score import read_predictions
from experiments.identify.summary import _warn_of_drift
from experiments.sweeps import dask_engine
from experiments.sweeps.dask_engine import DaskCluster
from experiments.sweeps.slurm_engine import SlurmQueue
from helpers.commands import compose_configuration, run_command
from helpers.jobs import script_process

# --- the command line


def test_what_hydra_takes_for_a_group_is_not_refused():
    check_arguments(
        "identify",
        [
            "-m",
            "system=building",
            "system=[building]",
            "system=building,servo",
            "system={dt: 3}",
            "~weather",
        ],
    )
    check_arguments("identify", ["budget=3", "+mine=3", "system='building'", "hydra/launcher=dask"])


#: what makes a run short, and refuses nothing
QUICK = {
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
]
VALUES += ["{}", "{a:1}", "[[1]]", "'../../x'", "[/tmp/x]"]


@cache
def keys_of(command):
    """All keys of a command, those of its groups, and values inside of the chosen options."""
    config = compose_configuration(command=command)
    inside = [
        f"{group}.{name}"
        for group in config
        if isinstance(config[group], DictConfig)
        for name in config[group]
    ]
    return [*map(str, config), *(key for key in inside if not key.endswith("_"))]


@pytest.mark.slow
@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(
    command=st.sampled_from(["identify"] * 3 + ["generate", "validate", *QUICK]),
    data=st.data(),
)
def test_no_value_of_an_option_ends_in_a_traceback(command, data, tmp_path_factory):
    """Beside valid options, of which every one is taken now and then."""
    keys = sorted(data.draw(st.sets(st.sampled_from(keys_of(command)), min_size=1, max_size=2)))
    overrides = QUICK[command] + [f"{key}={data.draw(st.sampled_from(VALUES))}" for key in keys]
    started = time.monotonic()
    said = run_command(
        command, *overrides, cwd=tmp_path_factory.mktemp("run")
    )  # a bug of ours is raised
    assert "Traceback" not in said.out + said.err, overrides
    assert time.monotonic() - started < 30, overrides


# --- a submission to a benchmark


@pytest.mark.parametrize(
    "shape",
    ["(1000000000000000,)", "(9223372036854775807, 2)", "(-5,)", "()", "(3,)", None],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_an_array_is_not_made_because_a_header_claims_it(shape, tmp_path):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    content = (
        b""
        if shape is None
        else b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    )
    path = tmp_path / "predicted.npy"
    path.write_bytes(content + bytes(24) * bool(content))
    if shape == "(3,)":
        assert read_predictions(path, ["y"], 3).tolist() == [[0.0]] * 3
    for n in (2, 4):
        with pytest.raises(score.Refused, match=r"predicted\.npy"):
            read_predictions(path, ["y"], n)


# --- clusters


def test_a_folder_that_slurm_would_rename_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"Slurm takes % .* hydra\.sweep\.dir .*a%jb"):
        SlurmQueue(tmp_path / "a%jb")
    SlurmQueue(tmp_path / "a%jb", cluster="local")


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
    return f"in: {client}"

with ThreadPoolExecutor() as pool:
    print(*pool.map(try_to_enter, sys.argv[1:]), sep="\\n", flush=True)
os._exit(0)
"""


def test_a_cluster_that_is_started_takes_no_work_from_who_has_not_its_keys(tmp_path):
    """Whoever reaches a port of its own machine could run code as the owner of the sweep."""
    with dask_engine._quiet(), DaskCluster(tmp_path, workers=1)._connected(1) as client:
        client.wait_for_workers(1)
        workers = client.scheduler_info()["workers"]
        own = [
            client.scheduler.address,
            *workers,
            *(worker["nanny"] for worker in workers.values()),
        ]
        addresses = [
            f"{protocol}://{address.partition('://')[2]}"
            for address in own
            for protocol in ("tcp", "tls")
        ]
        with script_process(STRANGER, *addresses, stdout=-1, text=True) as stranger:
            told = stranger.communicate(timeout=60)[0].splitlines()
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert len(told) == len(addresses) == 6
    assert all(line.startswith("refused") for line in told), told


# --- a plant that drifts


def test_a_stream_that_is_predicted_worse_and_worse_is_told_once():
    """Not of a plant that stays, not of a few samples."""

    def told(growth, n=4000):
        rng = np.random.default_rng(0)
        target = rng.normal(size=n)
        error = rng.normal(size=n) * np.linspace(0.1, 0.1 * growth, n)
        result = SimpleNamespace(is_online=np.ones(n, dtype=bool), record={"mean": target + error})
        result.identified = {"target": SimpleNamespace(values=target)}
        return "".join(_warn_of_drift(result))

    assert "SMSE 0.01" in told(4.0)
    assert "forgetting=<samples>" in told(4.0)
    assert not told(1.3)
    assert not told(4.0, n=500)


@pytest.mark.slow
def test_the_default_of_a_drifting_plant_gets_worse_and_what_is_advised_does_not():
    """A sine whose phase goes round once in 50 000 samples."""
    n = 100_000
    x = np.random.default_rng(0).uniform(-2, 2, (n, 1))
    noise = np.random.default_rng(1).normal(size=n)
    target = np.sin(2 * x[:, 0] + 2 * np.pi * np.arange(n) / 50_000)

    def smse(**settings):
        gp = sysid.OnlineGP(
            sysid.SquaredExponential(1.0, [0.8]),
            noise_variance=0.01,
            budget=50,
            **settings,
        )
        late = gp.update_many(x, target + 0.1 * noise)["mean"][-n // 4 :]
        return np.mean((late - target[-n // 4 :]) ** 2) / np.var(target)

    default = smse()
    assert default > 10 * smse(forgetting=300)
    assert default > 5 * smse(reduction=sysid.PriorEntropy())
