"""Facts of this machine and program for reports that a person may publish, by name."""

from __future__ import annotations

import contextlib
import platform
import re
import sys
from pathlib import Path

from backend import LLAMA_CPP_PYTHON_VERSION, __version__
from backend.machines import Hardware
from backend.system.memory import memory_facts, physical_cores, processors

_GIB = 1 << 30
_DRIVER = Path("/proc/driver/nvidia/version")


def versions() -> dict[str, str]:
    """Return the versions of the program and of the system."""
    return {
        "Outrider": __version__,
        "llama-cpp-python": LLAMA_CPP_PYTHON_VERSION,
        "Python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}{_distribution()}",
        "bundled": str(bool(getattr(sys, "frozen", False))),
    }


def hardware() -> dict[str, str]:
    """Return the processor and the memory that this process may use, and the driver of a card."""
    memory = memory_facts()
    found = {
        "processor": _processor(),
        "physical cores": f"{physical_cores()} of {processors()} logical processors",
        "memory": f"{memory.total_bytes / _GIB:.1f} GiB",
        "available": f"{memory.available_bytes / _GIB:.1f} GiB, limited by {memory.limited_by}",
    }
    with contextlib.suppress(OSError, IndexError):
        found["driver"] = _DRIVER.read_text(errors="replace").splitlines()[0]
    return found


def speeds(machine: Hardware | None) -> dict[str, str]:
    """Return the measured values; nothing for None."""
    if machine is None:
        return {}
    return {
        "drive": f"{machine.link_gb_per_s:.2f} GB/s, {machine.link_latency_us:.0f} us",
        "drive, how": machine.sources.get("link_gb_per_s", ""),
        "memory speed": f"{machine.memory_gb_per_s:.1f} GB/s",
        "computing": f"{machine.tflop_per_s:.3f} TFLOP/s",
    }


def _distribution() -> str:
    with contextlib.suppress(OSError):
        return f", {platform.freedesktop_os_release().get('PRETTY_NAME', '')}"
    return ""


def _processor() -> str:
    """Return the processor's name, as far as the system tells it."""
    with contextlib.suppress(OSError):
        info = Path("/proc/cpuinfo").read_text(errors="replace")
        if found := re.search(r"^(?:model name|Model)\s*: *(.+)$", info, re.MULTILINE):
            return found[1]
    return platform.processor() or platform.machine()
