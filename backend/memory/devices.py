"""Resolve the device option to devices of this machine and remote ones.

ggml ends the process when a remote device cannot be reached. So a plain socket first asks whether
llama.cpp's rpc server answers at the address; only then is the address passed to ggml.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, replace
from typing import Any

from backend.protocol.settings import DEVICE_AUTO, DEVICE_CPU, REMOTE, check_device
from backend.text import text

TRUST = (
    "A remote device is sent the weights, prompts and answers unencrypted, and whoever reaches its "
    "port controls it: use one only in a network that you trust."
)

_RPC_MAJOR = 7  # protocol version of the pinned llama.cpp (ggml-rpc.h)
_HELLO = 14
_CAPS_BYTES = 24
_TIMEOUT_S = 5.0


class DeviceError(RuntimeError):
    """A device cannot be used; the text is one plain sentence."""


@dataclass(frozen=True)
class Device:
    """A ggml device other than the CPU. Memory in bytes, at the time of the query."""

    name: str
    description: str
    free_bytes: int
    total_bytes: int
    is_remote: bool
    has_pinned_memory: bool
    """The device copies asynchronously from a pinned kind of host memory."""
    shares_memory: bool
    """The device computes in the host's memory, so a copy of the experts would gain nothing."""
    pointer: int
    memory: str = ""
    """ggml's name for its memory."""
    alignment: int = 128
    """Alignment of tensors in its memory, in bytes."""
    taken_bytes: int = 0
    """The most that other programs were seen to take while an engine ran
    (backend.memory.headroom)."""
    number: int = 0
    """Its number among the devices of its server."""

    @classmethod
    def of(cls, info: Any) -> Device:
        """Convert a backend._native.DeviceInfo."""
        names = cls.__dataclass_fields__.keys() - {"taken_bytes", "number"}
        return cls(**{name: getattr(info, name) for name in names})

    @property
    def key(self) -> str:
        """A name that is the same in every process.

        ggml counts the devices of all servers that a process has used: the same device is RPC0 in
        one process and RPC1 in another.
        """
        return f"rpc://{self.description}/{self.number}" if self.is_remote else self.name


def is_remote(option: str) -> bool:
    """Return whether an option names a device on another machine."""
    return any(part.startswith("rpc:") for part in option.split(","))


def available() -> list[Device]:
    """Return the devices of this machine. Opens no connection."""
    from backend import _native  # loads llama.cpp, which checking an option does not need

    return [Device.of(info) for info in _native.list_devices()]


@dataclass(frozen=True)
class Module:
    """A library with a backend of llama.cpp. One of the two texts is empty."""

    file: str
    backend: str
    """ggml's name for the backend, if it was loaded."""
    trouble: str
    """The system's words, if it was not."""


def modules() -> list[Module]:
    """Return the backends that are libraries of their own, in the order of trying them."""
    from backend import _native  # as in available

    return [Module(m.file, m.backend, m.trouble) for m in _native.load_backends()]


def free_bytes(pointer: int) -> int:
    """Return the free bytes of a device's memory now. A remote device must be reachable."""
    from backend import _native  # as in available

    return int(_native.device_free_bytes(pointer))


def resolve(option: str) -> list[Device]:
    """Return the devices of an option; an empty list means the CPU alone.

    "auto" is every device of this machine with memory of its own. Raises DeviceError where a
    device does not exist or does not answer, ValueError as check_device().
    """
    check_device(option)
    if option == DEVICE_CPU:
        return []
    here = available()
    if option == DEVICE_AUTO:
        return [d for d in here if not d.shares_memory]
    found: list[Device] = []
    for part in option.split(","):
        if match := REMOTE.fullmatch(part):
            found += _remote(match[1], int(match[2]))
            continue
        named = [d for d in here if d.name.lower() == part.lower()]
        if not named:
            known = ", ".join(["auto", "cpu", *(d.name for d in here), "rpc://host:port"])
            raise DeviceError(text("device.unknown", device=repr(part), known=known))
        found += named
    return list({d.pointer: d for d in found}.values())


def _remote(host: str, port: int) -> list[Device]:
    from backend import _native  # as in available

    _check_server(host, port)
    try:
        found = [Device.of(info) for info in _native.add_rpc_server(f"{host}:{port}")]
    except RuntimeError as error:
        raise DeviceError(text("device.no_remote", reason=str(error))) from None
    return [replace(device, number=number) for number, device in enumerate(found)]


def _check_server(host: str, port: int) -> None:
    """Send a hello as ggml does. Raises DeviceError."""
    where = f"{host}:{port}"
    hello = struct.pack("<BQ", _HELLO, _CAPS_BYTES) + bytes(_CAPS_BYTES)
    try:
        with socket.create_connection((host, port), timeout=_TIMEOUT_S) as connection:
            connection.settimeout(_TIMEOUT_S)
            connection.sendall(hello)
            answer = b""
            while len(answer) < 9 and (data := connection.recv(64)):
                answer += data
    except TimeoutError:
        raise DeviceError(text("device.silent", address=where)) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise DeviceError(text("device.unreachable", address=where, reason=reason)) from None
    if len(answer) < 9 or struct.unpack("<Q", answer[:8])[0] != _CAPS_BYTES + 4:
        raise DeviceError(text("device.no_rpc_server", address=where))
    if answer[8] != _RPC_MAJOR:
        raise DeviceError(
            text("device.version", address=where, version=answer[8], needed=_RPC_MAJOR)
        )
