"""Random scripts for an engine: stock llama.cpp computes each of their passes, and rules hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from oracle import Oracle
from scripts import Script

from backend.engine.engine import Engine

pytestmark = pytest.mark.usefixtures("known_pictures")


@pytest.mark.parametrize(
    ("arch", "seed"),
    [
        ("qwen3moe", 4),
        ("gpt-oss", 13),  # an image behind a copy in a ring
        ("deepseek2", 1),  # with a layer that guesses
        ("gemma4", 2),
        ("llama4", 0),
        ("minimax-m3", 0),  # one request at a time
        ("qwen3next", 3),  # these three go back to checkpoints
        ("lfm2moe", 2),
        ("jamba", 3),
    ],
)
def test_a_random_script(
    arch: str, seed: int, open_engine: Callable[..., Engine], oracle: Oracle, tmp_path: Path
) -> None:
    """`make attack` has all architectures and further seeds."""
    script = Script(arch, seed, tmp_path / "script", open_engine)
    script.run()
    script.engine.close()
    counts = oracle.approve()
    assert counts["n_pass"] > 40 and counts["n_taken"] == 0, counts
    assert counts["n_void"] >= script.happened["failed"] > 0
    assert all(script.happened[name] for name in ("images", "crashed", "forgotten", "changed"))
