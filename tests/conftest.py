"""What all tests rely on."""

from __future__ import annotations

import signal

import pytest

# Whoever starts the tests in the background may have them ignore Ctrl-C. Programs that the tests
# start would inherit that, and those that are told to stop by it would never end.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A remote device stays known to llama.cpp until the process ends. Whoever loads a model afterwards
# without saying where would try to reach it, and llama.cpp ends the process when nobody answers.
DEVICE_TESTS = {"test_device", "test_on_device"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests that add devices come last."""
    items.sort(key=lambda item: item.path.stem in DEVICE_TESTS)
