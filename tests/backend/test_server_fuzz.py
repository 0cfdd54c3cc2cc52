"""Mutated requests never make the server fail, hang or show a traceback.

tests/benchmarks/server_requests.py sends 100,000 of them.
"""

from __future__ import annotations

import asyncio

from benchmarks.server_requests import NATIVE, attack, sample


def test_mutated_requests_are_answered_or_refused() -> None:
    found = asyncio.run(attack(500, seed=3))
    assert found[200] > 100 and found[400] > 100


def test_the_paths_of_llama_cpp_s_server_refuse_what_is_broken() -> None:
    found = asyncio.run(attack(500, seed=5, paths=list(NATIVE)))
    assert found[200] > 50 and found[400] > 50 and found[501] > 50


def test_a_real_server_survives_them() -> None:
    assert sum(sample(40, seed=4).values()) == 40
