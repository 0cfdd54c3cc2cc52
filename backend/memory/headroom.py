"""Remember how much of a device's memory others took while an engine ran, and leave it free.

Desktop programs come and go, and llama.cpp's kernels take some memory when they first run. The
amount is the memory that was free when a plan came into force and is missing later.
"""

from __future__ import annotations

from dataclasses import replace

from backend.machines import kept
from backend.memory.devices import Device

UNMEASURED_BYTES = 512 << 20
"""Stays free on a device on which no kernel has run yet."""
_FILE = "devices.json"
_STEP_BYTES = 16 << 20
"""Smaller increases are not written down."""


def taken_bytes(device: Device) -> int:
    """Return the largest amount that others were seen to take of this device's memory, or 0."""
    return _noted(device) or 0


def is_measured(device: Device) -> bool:
    """Return whether an engine ran on this device before. True for a remote one."""
    return device.is_remote or _noted(device) is not None


def with_taken(device: Device) -> Device:
    """Return the device with its `taken_bytes` filled in."""
    n_bytes = taken_bytes(device) if is_measured(device) else UNMEASURED_BYTES
    return replace(device, taken_bytes=n_bytes)


def note_taken(device: Device, n_bytes: int) -> None:
    """Note that others took n_bytes. Keep the number where it is larger than before."""
    if device.is_remote:
        return
    before = _noted(device)
    if before is None or n_bytes >= before + _STEP_BYTES:
        kept.write(_FILE, {**kept.read(_FILE), _key(device): max(n_bytes, 0)})


def _noted(device: Device) -> int | None:
    n_bytes = kept.read(_FILE).get(_key(device))
    return n_bytes if isinstance(n_bytes, int) and 0 <= n_bytes <= 1 << 50 else None


def _key(device: Device) -> str:
    return f"{device.key} {device.description} {device.total_bytes}"
