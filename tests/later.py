"""Modules that are imported when a test first uses them."""

from __future__ import annotations

import importlib
from typing import Any


class Later:
    """A module that is imported when it is first used.

    Each process of pytest-xdist collects all tests. A library that takes seconds to import is then
    imported only by the processes that run its tests.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks everything in a test module whether it is a fixture
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)
