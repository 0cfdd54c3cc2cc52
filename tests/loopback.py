"""A device with memory of its own, without a GPU: llama.cpp's rpc server in another process.

    python tests/loopback.py PORT [N_THREAD]

serves this machine's CPU at 127.0.0.1:PORT until it is ended. Anything else that computes the same
and is reached through ggml's interface behaves alike: the slots are in memory that this process
cannot touch, and every copy crosses a link.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_START_S = 60.0


def is_built() -> bool:
    """Whether the llama.cpp that is installed can speak to remote devices."""
    import llama_cpp

    return any((Path(llama_cpp.__file__).parent / "lib").glob("libggml-rpc.so*"))


needs_rpc = pytest.mark.skipif(not is_built(), reason="llama.cpp was built without RPC")


class Server:
    """A running server; `option` names its device to Outrider."""

    def __init__(self, n_thread: int = 1) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.option = f"rpc://127.0.0.1:{self.port}"
        command = [sys.executable, __file__, str(self.port), str(n_thread)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()

    def _wait(self) -> None:
        from backend.devices import DeviceError, _check_server

        until_s = time.monotonic() + _START_S
        while True:
            try:
                return _check_server("127.0.0.1", self.port)
            except DeviceError:
                if time.monotonic() > until_s or self._process.poll() is not None:
                    raise
            time.sleep(0.05)

    @property
    def resident_bytes(self) -> int:
        """Memory of the server's process (Linux)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def kill(self) -> None:
        """End it at once, as when a cable is pulled. Twice is fine."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def server(n_thread: int = 1) -> Iterator[Server]:
    """Serve until the context ends."""
    running = Server(n_thread)
    try:
        yield running
    finally:
        running.kill()


def main() -> None:
    """Serve the CPU of this machine."""
    import llama_cpp

    folder = Path(llama_cpp.__file__).parent / "lib"
    ggml = ctypes.CDLL(str(folder / "libggml.so.0"))
    rpc = ctypes.CDLL(str(folder / "libggml-rpc.so.0"))
    ggml.ggml_backend_dev_by_type.restype = ctypes.c_void_p
    cpu = ctypes.c_void_p(ggml.ggml_backend_dev_by_type(0))
    n_thread = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    rpc.ggml_backend_rpc_start_server.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_size_t,
        ctypes.POINTER(ctypes.c_void_p),
    ]
    endpoint = f"127.0.0.1:{sys.argv[1]}".encode()
    rpc.ggml_backend_rpc_start_server(endpoint, None, n_thread, 1, ctypes.byref(cpu))


if __name__ == "__main__":
    main()
