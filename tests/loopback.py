"""Provide a device with its own memory and no GPU: llama.cpp's rpc server in another process.

    python tests/loopback.py PORT [N_THREAD] [LEDGER]

serves this machine's CPU at 127.0.0.1:PORT until it is killed. As on other devices behind ggml's
interface, the slots are in memory that the client cannot touch, and every copy crosses a link.
LEDGER is a file of three 64-bit numbers (_Ledger). With it, the device's memory has a set size,
other programs may hold a part of it, and the server counts its use.

With OUTRIDER_TEST_DEVICE=Vulkan0 (`make test-gpu DEVICE=Vulkan0`), the tests use this machine's
device of that name in place of the server.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import pytest

_START_S = 60.0
_BYTES = 16 << 30

NAMED = os.environ.get("OUTRIDER_TEST_DEVICE", "")
"""The device that replaces the server, or ""."""


def is_built() -> bool:
    """Return whether the installed llama.cpp supports remote devices."""
    return any((Path(llama_cpp.__file__).parent / "lib").glob("libggml-rpc.so*"))


needs_rpc = pytest.mark.skipif(
    not is_built() and not NAMED, reason="llama.cpp was built without RPC"
)


_model_params = llama_cpp.llama_model_default_params
_NO_DEVICE = (ctypes.c_void_p * 1)(None)


def _on_the_processor() -> Any:
    """Return llama.cpp's default parameters of loading, for the processor alone."""
    params = _model_params()
    params.devices = ctypes.addressof(_NO_DEVICE)
    return params


def _keep_from_devices() -> None:
    """Let stock llama.cpp load on the processor by default, from now on.

    It keeps a remote device until the process ends, and takes all devices where none is named. It
    ends the process if the server of one is gone.
    """
    for module in (llama_cpp, llama_cpp.llama_cpp):
        module.llama_model_default_params = _on_the_processor


class _Ledger:
    """Use of the device's memory in bytes, in a file that both processes map."""

    NAMES = ("total", "taken", "used")
    """Size of the memory; bytes that others hold; bytes of our buffers."""
    SIZE = 8 * len(NAMES)

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self.SIZE)

    def __getitem__(self, name: str) -> int:
        return int(struct.unpack_from("<q", self._memory, 8 * self.NAMES.index(name))[0])

    def __setitem__(self, name: str, value: int) -> None:
        struct.pack_into("<q", self._memory, 8 * self.NAMES.index(name), value)


class Server:
    """A running server. `option` is the name of its device, whose memory has total_bytes."""

    name = "RPC"
    """How the names of the device begin in sentences."""

    def __init__(self, n_thread: int = 1, total_bytes: int = _BYTES) -> None:
        _keep_from_devices()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.option = f"rpc://127.0.0.1:{self.port}"
        with tempfile.NamedTemporaryFile(prefix="ledger-") as file:
            file.write(bytes(_Ledger.SIZE))
            file.flush()
            self._ledger = _Ledger(Path(file.name))
            self._ledger["total"] = total_bytes
            command = [sys.executable, __file__, str(self.port), str(n_thread), file.name]
            self._process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self._wait()

    def _wait(self) -> None:
        # The server's process does not need the backend.
        from backend.memory.devices import DeviceError, _check_server

        until_s = time.monotonic() + _START_S
        while True:
            try:
                return _check_server("127.0.0.1", self.port)
            except DeviceError:
                if time.monotonic() > until_s or self._process.poll() is not None:
                    raise
            time.sleep(0.05)

    @property
    def total_bytes(self) -> int:
        """Return the size of the device's memory."""
        return self._ledger["total"]

    @property
    def taken_bytes(self) -> int:
        """Return the bytes that others hold."""
        return self._ledger["taken"]

    @property
    def free_bytes(self) -> int:
        """Return the free bytes. They may not include a buffer that was freed a moment ago."""
        return self._ledger["total"] - self._ledger["taken"] - self._ledger["used"]

    def take(self, n_bytes: int) -> None:
        """Let others hold n_bytes of the device's memory."""
        self._ledger["taken"] = n_bytes

    def kill(self) -> None:
        """Kill the server at once, as if a cable was pulled. A second call has no effect."""
        self._process.kill()
        self._process.wait()


class _Named(Server):
    """A device of this machine. Tests that set its memory, or kill it, are skipped."""

    name = option = NAMED

    def __init__(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name == "port":  # what looks for the end of the server's process asks for it
            raise AttributeError(name)
        pytest.skip(f"the memory of {NAMED} is not ours to set")

    def kill(self) -> None:
        pytest.skip(f"{NAMED} cannot be killed")


@contextlib.contextmanager
def server(n_thread: int = 1, total_bytes: int = _BYTES) -> Iterator[Server]:
    """Serve until the context ends. The device that replaces the server needs no end."""
    if NAMED:
        if total_bytes != _BYTES:
            pytest.skip(f"the memory of {NAMED} is not ours to set")
        yield _Named()
        return
    running = Server(n_thread, total_bytes)
    try:
        yield running
    finally:
        running.kill()


_POINTER = ctypes.sizeof(ctypes.c_void_p)
_Allocate = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_Free = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_SizePointer = ctypes.POINTER(ctypes.c_size_t)
_GetMemory = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _SizePointer, _SizePointer)


def _exchange(place: int, function: Any) -> int:
    """Replace a function pointer of one of ggml's interfaces. Return the old one."""
    field = ctypes.c_void_p.from_address(place)
    before = field.value
    assert before is not None
    field.value = ctypes.cast(function, ctypes.c_void_p).value
    return before


def _keep_ledger(ggml_cpu_device: int, buffer_type: int, ledger: _Ledger) -> list[object]:
    """Count the device's buffers in the ledger, and report the ledger's memory as the device's.

    Interfaces are those of ggml-backend-impl.h: alloc_buffer is the second function of a buffer
    type, free_buffer the first of a buffer, get_memory the third of a device. Return the callbacks,
    which the caller must keep alive.
    """
    sizes: dict[int, int] = {}
    free_of: dict[int, Any] = {}

    def free_bytes() -> int:
        return max(0, ledger["total"] - ledger["taken"] - ledger["used"])

    @_Free
    def free(buffer: int) -> None:
        ledger["used"] -= sizes.pop(buffer)
        free_of.pop(buffer)(buffer)

    @_Allocate
    def allocate(kind: int, size: int) -> int | None:
        if size > free_bytes():
            return None
        buffer = stock_allocate(kind, size)
        if buffer and size:
            sizes[buffer] = size
            ledger["used"] += size
            free_of[buffer] = _Free(_exchange(buffer, free))
        return buffer

    @_GetMemory
    def get_memory(_device: int, free_out: Any, total_out: Any) -> None:
        free_out[0], total_out[0] = free_bytes(), ledger["total"]

    stock_allocate = _Allocate(_exchange(buffer_type + _POINTER, allocate))
    _exchange(ggml_cpu_device + 2 * _POINTER, get_memory)
    return [free, allocate, get_memory, stock_allocate]


def main() -> None:
    """Serve the CPU of this machine."""
    folder = Path(llama_cpp.__file__).parent / "lib"
    ggml = ctypes.CDLL(str(folder / "libggml.so.0"))
    rpc = ctypes.CDLL(str(folder / "libggml-rpc.so.0"))
    ggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
    device = ggml.ggml_backend_dev_by_type(0)
    cpu = ctypes.c_void_p(device)
    n_thread = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    kept: list[object] = []
    if len(sys.argv) > 3:
        base = ctypes.CDLL(str(folder / "libggml-base.so.0"))
        base.ggml_backend_cpu_buffer_type.restype = ctypes.c_void_p
        kept = _keep_ledger(device, base.ggml_backend_cpu_buffer_type(), _Ledger(Path(sys.argv[3])))
    rpc.ggml_backend_rpc_start_server.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
    ]
    endpoint = f"127.0.0.1:{sys.argv[1]}".encode()
    rpc.ggml_backend_rpc_start_server(endpoint, None, n_thread, 1, ctypes.byref(cpu))
    del kept


if __name__ == "__main__":
    main()
