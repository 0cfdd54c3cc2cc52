"""Models and engines that several tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from factory import make_tiny

from backend.config import EngineConfig
from backend.engine import Engine


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights: three layers of 16 experts, 4 used."""
    return make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture
def open_engine() -> Iterator[Callable[..., Engine]]:
    """Opens engines with one thread, and closes them when the test ends."""
    opened: list[Engine] = []

    def open_one(path: Path, **settings: Any) -> Engine:
        config = EngineConfig(**{"n_thread": 1, "context_length": 512, **settings})
        opened.append(Engine.open(path, config))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()
