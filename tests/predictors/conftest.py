"""Fixtures of the training tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread. With networks this small, more threads only wait for each other."""
    try:
        import torch
    except ImportError:
        yield
        return
    n_thread = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_thread)
