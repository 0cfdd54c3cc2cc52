"""Threads that wait for each other: when and how they are made to sleep."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from backend.system.spinning import Contention

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


SLEEPERS = """
import ctypes, os
import llama_cpp  # loads libgomp
from backend.system.spinning import Sleepers, libgomp
from waiting import until

def n_thread():
    return len(os.listdir("/proc/self/task"))

if not libgomp():
    raise SystemExit("no libgomp")
before = n_thread()
sleepers = Sleepers(ctypes.CDLL(libgomp()[0]))
until(lambda: n_thread() > before + len(os.sched_getaffinity(0)))
sleepers.end()
until(lambda: n_thread() == before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="of libgomp")
def test_sleepers_are_more_threads_than_processors_and_end() -> None:
    """In a process of its own: other tests' threads begin and end at any time in this one."""
    command, tests = [sys.executable, "-c", SLEEPERS], Path(__file__).parent.parent
    done = subprocess.run(command, capture_output=True, text=True, cwd=tests)
    if done.stderr.strip() == "no libgomp":
        pytest.skip("llama.cpp was built without libgomp")
    assert done.returncode == 0, done.stderr
