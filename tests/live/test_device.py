"""A device with memory of its own computes what stock llama.cpp computes on it, bit for bit."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from factory import ARCHITECTURES, QUANTS, make_tiny
from loopback import Server, needs_rpc, server

from backend import devices
from backend.gguf_file import read_model
from backend.loading import Placement
from backend.verify import compare

pytestmark = needs_rpc
CACHEABLE = [a for a in ARCHITECTURES if a not in ("dense", "grovemoe")]
RATES = (0.1, 0.5, 1.0)
ALL_LAYERS = 999


@pytest.fixture(scope="module")
def device() -> Iterator[Server]:
    with server() as running:
        yield running


def n_different(
    path: Path, device: Server, methods: tuple[str, ...], n_gpu_layers: int = ALL_LAYERS
) -> list[int]:
    """Logits that differ from stock's on the same device, for every method and rate."""
    pointers = tuple(d.pointer for d in devices.resolve(device.option))
    placement = Placement(pointers, n_gpu_layers)
    found = list(
        compare(read_model(path), RATES, methods, n_token=48, n_thread=1, placement=placement)
    )
    assert all(f.hits + f.late + f.misses > 0 for f in found)
    assert found[0].misses > 0
    return [f.n_different for f in found]


@pytest.mark.parametrize("arch", CACHEABLE)
def test_every_architecture(arch: str, device: Server, tmp_path: Path) -> None:
    """Waves where experts are late, remap where all are resident, at three rates."""
    quant = QUANTS[CACHEABLE.index(arch) % len(QUANTS)]
    path = make_tiny(arch, quant, tmp_path / "m.gguf")
    assert n_different(path, device, ("promoe",)) == [0, 0, 0]


@pytest.mark.parametrize("arch", ["qwen3moe", "gpt-oss", "qwen3next"])
def test_a_part_of_the_layers(arch: str, device: Server, tmp_path: Path) -> None:
    """The CPU computes the first layers, on slots in its own memory."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    assert n_different(path, device, ("lru",), n_gpu_layers=2) == [0, 0, 0]


def test_methods_that_share_slots(device: Server, tmp_path: Path) -> None:
    path = make_tiny("olmoe", "Q8_0", tmp_path / "m.gguf")
    assert set(n_different(path, device, ("promoe", "lru", "duoserve"))) == {0}


@pytest.mark.parametrize(
    "option", ["rpc://", "rpc://host", "rpc://host:0", "rpc://a b:1", "auto,cpu", "", "x,,y"]
)
def test_a_malformed_option_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=r"\.$"):
        devices.check_option(option)


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(devices.DeviceError, match="no device 'CUDA7' here"):
        devices.resolve("CUDA7")


def test_nobody_listens() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(devices.DeviceError, match="can be reached"):
        devices.resolve(f"rpc://127.0.0.1:{port}")


def test_somebody_else_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.recv(64)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(devices.DeviceError, match="is no rpc server"):
            devices.resolve(f"rpc://127.0.0.1:{other.getsockname()[1]}")
