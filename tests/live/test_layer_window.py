"""The window of layers whose weights are pages of a file (LayerWindow)."""

from __future__ import annotations

import mmap
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import until

from backend import _native

PAGE = mmap.PAGESIZE


def mapped_layers(path: Path, n_layer: int) -> tuple[np.ndarray, np.ndarray, list[list[object]]]:
    """Return random bytes, a file of them as memory, and layers of it with two tensors each."""
    data = np.random.default_rng(1).integers(0, 256, n_layer * 2 * PAGE, np.uint8)
    path.write_bytes(data.tobytes())
    pages = np.memmap(path, np.uint8, "r")
    begin = pages.__array_interface__["data"][0]
    layers: list[list[object]] = [
        [  # tensors need not begin with a page
            _native.PageRange(begin + 2 * PAGE * i + 100, PAGE // 2),
            _native.PageRange(begin + 2 * PAGE * i + PAGE, PAGE // 2),
        ]
        for i in range(n_layer)
    ]
    return data, pages, layers


def test_layers_are_read_ahead_and_dropped_in_turn(tmp_path: Path) -> None:
    """Of seven layers two stay, and two of the others are read ahead of each one.

    There is room for six: the two, two ahead, the one that is computed, and one that leaves.
    """
    data, pages, layers = mapped_layers(tmp_path / "weights", 7)
    window = _native.LayerWindow(layers, 6 * PAGE, 2)
    # The layer that is reached, and the layers read ahead and dropped until then.
    steps = [
        *[(0, 2, 0), (2, 3, 0), (3, 4, 1), (4, 5, 2), (5, 6, 3), (6, 7, 4)],
        *[(0, 7, 5), (2, 8, 5), (3, 9, 6)],
    ]
    for layer, n_read, n_dropped in steps:
        window.reached(layer)
        until(lambda: window.counts == (n_read, n_dropped))
        assert np.array_equal(pages, data)
    window.close()
    window.close()


@pytest.mark.parametrize(
    ("n_page_room", "n_read"), [(7, 0), (5, 3), (4, 2), (3, 1), (2, 0)], ids="{}".format
)
def test_the_window_is_as_large_as_its_room(tmp_path: Path, n_page_room: int, n_read: int) -> None:
    """All layers fit, or a window of up to three layers ahead, or none does."""
    data, pages, layers = mapped_layers(tmp_path / "weights", 7)
    window = _native.LayerWindow(layers, n_page_room * PAGE, 3)
    window.reached(0)
    until_s = time.monotonic() + (30 if n_read else 0.05)
    while window.counts[0] <= n_read - (n_read > 0) and time.monotonic() < until_s:
        time.sleep(0.001)
    assert window.counts == (n_read, 0)
    assert np.array_equal(pages, data)
    window.close()


@pytest.mark.parametrize("room_bytes", [0, 3])
def test_a_window_that_is_closed_at_once(room_bytes: int) -> None:
    window = _native.LayerWindow([[], [], []], room_bytes, 1)
    window.reached(1)
    window.close()
