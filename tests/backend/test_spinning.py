"""Threads that wait for each other: when and how they are made to sleep."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest
from waiting import until

from backend.system.spinning import Contention, Sleepers, libgomp

MS = 1_000_000


def test_waiting_for_a_processor_is_contention_until_it_is_over_for_long() -> None:
    contention = Contention()
    assert not contention.observe(200 * MS, 5 * MS)
    assert contention.observe(100 * MS, 100 * MS)
    for _ in range(3):
        assert contention.observe(200 * MS, 1 * MS)
    assert contention.observe(200 * MS, 30 * MS)  # neither: the count starts again
    assert [contention.observe(200 * MS, 0) for _ in range(4)] == [True] * 3 + [False]


def test_a_thread_that_hardly_ran_tells_nothing() -> None:
    contention = Contention()
    assert not contention.observe(1 * MS, 10 * MS)
    contention.observe(100 * MS, 100 * MS)
    for _ in range(20):
        assert contention.observe(1 * MS, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="of libgomp")
def test_sleepers_are_more_threads_than_processors_and_end() -> None:
    import llama_cpp  # noqa: F401  (loads libgomp)

    if not libgomp():
        pytest.skip("llama.cpp was built without libgomp")
    before = len(os.listdir("/proc/self/task"))
    sleepers = Sleepers(ctypes.CDLL(libgomp()[0]))
    n_processor = len(os.sched_getaffinity(0))
    until(lambda: len(os.listdir("/proc/self/task")) > before + n_processor)
    sleepers.end()
    until(lambda: len(os.listdir("/proc/self/task")) <= before)
