"""What strangers may do: nothing, whether they reach a port, send a file, or name a group on the command line."""

from sweep_jobs import driven

from experiments.sweeps import dask_engine
from experiments.sweeps.dask_engine import DaskCluster

# --- the cluster that a sweep starts


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
        own = [client.scheduler.address, *workers, *(worker["nanny"] for worker in workers.values())]
        addresses = [f"{protocol}://{address.partition('://')[2]}" for address in own for protocol in ("tcp", "tls")]
        with driven(STRANGER, *addresses, stdout=-1, text=True) as stranger:
            told = stranger.communicate(timeout=60)[0].splitlines()
        assert client.submit(sum, [1, 2]).result(timeout=60) == 3
    assert len(told) == len(addresses) == 6
    assert all(line.startswith("refused") for line in told), told
