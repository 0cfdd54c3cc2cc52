"""The window of layers whose weights are pages of a file (LayerWindow)."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import numpy as np
import pytest

from backend import _native

PAGE = mmap.PAGESIZE


def test_layers_are_read_ahead_and_dropped_in_turn(tmp_path: Path) -> None:
    """Of six layers two stay, and two of the others are read ahead of each one."""
    data = np.random.default_rng(1).integers(0, 256, 6 * 2 * PAGE, np.uint8)
    (tmp_path / "weights").write_bytes(data.tobytes())
    pages = np.memmap(tmp_path / "weights", np.uint8, "r")
    begin = pages.__array_interface__["data"][0]
    # A layer has two tensors, which need not begin with a page.
    layers = [
        [(begin + 2 * PAGE * i + 100, PAGE // 2), (begin + 2 * PAGE * i + PAGE, PAGE)]
        for i in range(6)
    ]
    window = _native.LayerWindow(layers, 2, 2)
    # The layer that is reached, and the layers read ahead and dropped until then.
    steps = [(0, 2, 0), (2, 3, 0), (3, 4, 1), (4, 5, 2), (5, 6, 3), (0, 6, 4), (2, 7, 4), (3, 8, 5)]
    for layer, n_read, n_dropped in steps:
        window.reached(layer)
        until_s = time.monotonic() + 30
        while window.counts != (n_read, n_dropped) and time.monotonic() < until_s:
            time.sleep(0.001)
        assert window.counts == (n_read, n_dropped), layer
        assert np.array_equal(pages, data)
    window.close()
    window.close()


@pytest.mark.parametrize("n_resident", [0, 3])
def test_a_window_that_is_closed_at_once(n_resident: int) -> None:
    window = _native.LayerWindow([[], [], []], n_resident, 1)
    window.reached(1)
    window.close()
