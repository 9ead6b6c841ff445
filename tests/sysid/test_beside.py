"""Work in other processes."""

import os
import time

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from sysid.beside import (
    Beside,
    n_cores,
    n_processes,
    one_blas_thread,
    together,
    wait_for_any,
)

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity"), reason="processes are copied on Linux only"
)


@pytest.fixture(params=["1", "2"])
def cores(request, monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", request.param)
    return int(request.param)


def test_another_process_works_where_there_are_several_cores(cores):
    here = os.getpid()
    one = Beside(os.getpid)
    assert (one.result() == here) == (cores == 1)
    assert n_cores() == n_processes() == cores


def test_a_process_that_does_a_share_for_another_works_alone(monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", "4")
    assert Beside(lambda: (n_processes(), Beside(os.getpid).result() == os.getpid())).result() == (
        1,
        True,
    )


def test_cores_are_those_that_the_process_is_bound_to(monkeypatch):
    monkeypatch.delenv("PYTHON_CPU_COUNT", raising=False)
    assert n_cores() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("PYTHON_CPU_COUNT", "default")
    assert n_cores() == len(os.sched_getaffinity(0))
    monkeypatch.setenv("PYTHON_CPU_COUNT", "0")
    assert n_cores() == 1


@pytest.mark.parametrize(("counted", "expected"), [(6, 6), (None, 1)])
def test_cores_of_the_machine_count_where_a_process_cannot_be_bound(monkeypatch, counted, expected):
    monkeypatch.delenv("PYTHON_CPU_COUNT", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert n_cores() == expected
    assert n_processes() == expected


@pytest.mark.parametrize(
    "fate",
    [
        pytest.param(lambda: os._exit(9), id="killed"),
        pytest.param(lambda: 1 / 0, id="failed"),
        pytest.param(lambda: time.sleep(100), id="too slow"),
    ],
)
def test_what_another_process_cannot_do_is_done_here(monkeypatch, fate):
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    here = os.getpid()
    assert Beside(lambda: "done" if os.getpid() == here else fate()).result(timeout=0.2) == "done"


def test_a_result_that_cannot_be_sent_is_made_here(cores):
    assert Beside(lambda: lambda: 3).result()() == 3


def test_a_mistake_is_raised_here(cores):
    with pytest.raises(ZeroDivisionError):
        Beside(lambda: 1 / 0).result()


def test_results_come_in_order_and_no_more_processes_work_than_there_are_cores(cores, tmp_path):
    def work(number):
        (tmp_path / str(number)).touch()
        running = len(list(tmp_path.iterdir()))
        time.sleep(0.05 * (number % 3))
        (tmp_path / str(number)).unlink()
        return number, running

    numbers, running = zip(*together([lambda n=n: work(n) for n in range(6)]), strict=True)
    assert numbers == tuple(range(6))
    assert max(running) <= cores


def test_what_is_dropped_ends(monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")
    slow = Beside(lambda: time.sleep(100))
    quick = Beside(lambda: 1)
    wait_for_any([slow, quick])
    assert (slow.is_over, quick.is_over) == (False, True)
    process = slow._process
    slow.drop()
    assert process.exitcode == -9
    assert quick.result() == 1


def test_blas_has_one_thread_inside_and_those_of_before_outside():
    def count():
        return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        assert (count(), one_blas_thread(count)(), count()) == ({2}, {1}, {2})
