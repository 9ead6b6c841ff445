"""Work in other processes."""

import os
import signal
import time

import numpy  # noqa: F401 - loads the BLAS whose threads are counted
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


@pytest.fixture(params=["1", "2"], ids=["1 core", "2 cores"])
def cores(request, monkeypatch):
    """Return a number of cores that the computer has from now on."""
    monkeypatch.setenv("PYTHON_CPU_COUNT", request.param)
    return int(request.param)


@pytest.fixture
def two_cores(monkeypatch):
    """Give the computer two cores."""
    monkeypatch.setenv("PYTHON_CPU_COUNT", "2")


def test_another_process_works_where_there_are_several_cores(cores):
    process_id = Beside(os.getpid).result()
    works_here = process_id == os.getpid()
    assert works_here == (cores == 1)
    assert n_cores() == cores
    assert n_processes() == cores


def test_a_process_that_works_for_another_starts_none(monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", "4")

    def work():
        inner_process_id = Beside(os.getpid).result()
        return n_processes(), inner_process_id == os.getpid()

    n_inner_processes, works_alone = Beside(work).result()
    assert n_inner_processes == 1
    assert works_alone


@pytest.mark.parametrize("variable", [None, "default"])
def test_cores_are_those_that_the_process_is_bound_to(variable, monkeypatch):
    if variable is None:
        monkeypatch.delenv("PYTHON_CPU_COUNT", raising=False)
    else:
        monkeypatch.setenv("PYTHON_CPU_COUNT", variable)
    assert n_cores() == len(os.sched_getaffinity(0))


def test_there_is_at_least_one_core(monkeypatch):
    monkeypatch.setenv("PYTHON_CPU_COUNT", "0")
    assert n_cores() == 1


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_cores_of_the_machine_count_where_a_process_cannot_be_bound(monkeypatch, count, expected):
    monkeypatch.delenv("PYTHON_CPU_COUNT", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert n_cores() == expected
    assert n_processes() == expected


@pytest.mark.parametrize(
    "fail",
    [
        pytest.param(lambda: os._exit(9), id="killed"),
        pytest.param(lambda: 1 / 0, id="failed"),
        pytest.param(signal.pause, id="too slow"),
    ],
)
def test_work_that_fails_in_another_process_is_done_here(two_cores, fail):
    here = os.getpid()

    def work():
        return "done" if os.getpid() == here else fail()

    assert Beside(work).result(timeout=0.2) == "done"


def test_a_result_that_cannot_be_sent_is_made_here(cores):
    def make_function():
        return lambda: 3

    function = Beside(make_function).result()
    assert function() == 3


def test_an_error_is_raised_here(cores):
    with pytest.raises(ZeroDivisionError):
        Beside(lambda: 1 / 0).result()


def test_results_come_in_order_and_no_more_processes_work_than_there_are_cores(cores, tmp_path):
    def work(number):
        path = tmp_path / str(number)
        path.touch()
        n_running = len(list(tmp_path.iterdir()))
        time.sleep(0.05 * (number % 3))
        path.unlink()
        return number, n_running

    results = together([lambda number=number: work(number) for number in range(6)])
    assert [number for number, _ in results] == [0, 1, 2, 3, 4, 5]
    assert max(n_running for _, n_running in results) <= cores


def test_dropped_work_ends(two_cores):
    slow = Beside(signal.pause)
    quick = Beside(lambda: 1)
    wait_for_any([slow, quick])
    assert not slow.is_over
    assert quick.is_over
    process = slow._process
    slow.drop()
    assert process.exitcode == -9
    assert quick.result() == 1


def test_blas_has_one_thread_inside_and_as_many_as_before_outside():
    def count_threads():
        return {
            library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
        }

    with threadpool_limits(2, user_api="blas"):
        assert count_threads() == {2}
        assert one_blas_thread(count_threads)() == {1}
        assert count_threads() == {2}
