"""What all tests rely on."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from factory import make_tiny

if TYPE_CHECKING:
    from backend.engine.engine import Engine

# Whoever starts the tests in the background may have them ignore Ctrl-C. Programs that the tests
# start would inherit that, and those that are told to stop by it would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A remote device stays known to llama.cpp until the process ends. Whoever loads a model afterwards
# without saying where would try to reach it, and llama.cpp ends the process when nobody answers.
DEVICE_TESTS = {"test_device", "test_host_store", "test_hybrid", "test_on_device"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests that add devices come last."""
    items.sort(key=lambda item: item.path.stem in DEVICE_TESTS)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights: three layers of 16 experts, 4 used."""
    return make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture
def open_engine() -> Iterator[Callable[..., Engine]]:
    """Opens engines with one thread, and closes them when the test ends."""
    from backend.engine.engine import Engine
    from backend.protocol.settings import EngineConfig

    opened: list[Engine] = []

    def open_one(path: Path, **settings: Any) -> Engine:
        config = EngineConfig(**{"n_thread": 1, "context_length": 512, **settings})
        opened.append(Engine.open(path, config))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()
