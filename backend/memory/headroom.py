"""How much of a device's memory others took while an engine ran there: left free next time.

Desktop programs come and go, and llama.cpp's kernels take some memory when they first run. What was
free after a plan was in force and is missing later is what they took.
"""

from __future__ import annotations

from dataclasses import replace

from backend.machines import kept
from backend.memory.devices import Device

_FILE = "devices.json"
_STEP_BYTES = 16 << 20
"""Less than this more than before is not worth writing down."""


def taken_bytes(device: Device) -> int:
    """Return the most that was seen to be taken of this device's memory; 0 where nothing was."""
    said = kept.read(_FILE).get(_key(device))
    return said if isinstance(said, int) and 0 <= said <= 1 << 50 else 0


def with_taken(device: Device) -> Device:
    """Return the device with what others were seen to take of it."""
    return replace(device, taken_bytes=taken_bytes(device))


def note_taken(device: Device, n_bytes: int) -> None:
    """Hear that others took so much; kept where it is more than before."""
    if device.is_remote or n_bytes < taken_bytes(device) + _STEP_BYTES:
        return
    kept.write(_FILE, {**kept.read(_FILE), _key(device): n_bytes})


def _key(device: Device) -> str:
    return f"{device.name} {device.description} {device.total_bytes}"
