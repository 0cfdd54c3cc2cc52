"""The memory and the cores that this process may use.

On Linux this respects the limits of control groups, versions 1 and 2: a container or a desktop
session may have far less memory than the machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import mmap
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

_PROC = Path("/proc")
_CPUS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class MemoryFacts:
    """Memory in bytes. limited_by: the limit of `available_bytes`, "machine" or "cgroup"."""

    total_bytes: int
    available_bytes: int
    limited_by: str


@dataclass(frozen=True)
class _Group:
    """A control group of this process: its limit, and its use without the page cache."""

    limit_bytes: int
    used_bytes: int


def memory_facts(proc: Path = _PROC) -> MemoryFacts:
    """Return the memory that this process may use now.

    proc: replaces /proc for the control groups in tests.
    """
    machine = psutil.virtual_memory()
    total, available = machine.total, machine.available
    limited_by = "machine"
    for group in _groups(proc):
        total = min(total, group.limit_bytes)
        left = max(0, group.limit_bytes - group.used_bytes)
        if left < available:
            available, limited_by = left, "cgroup"
    return MemoryFacts(total, available, limited_by)


def total_bytes() -> int:
    """Return the memory of the machine, or of this process's tightest control group, in bytes."""
    return memory_facts().total_bytes


def available_bytes() -> int:
    """Return the memory that can be taken now without swapping or being killed, in bytes."""
    return memory_facts().available_bytes


def stalled_share(proc: Path = _PROC) -> float:
    """Return the share of the last ten seconds in which some task waited for memory.

    The source is Linux's pressure stall information for the machine and for this process's control
    groups of version 2. Return 0 where there is none.
    """
    files = [proc / "pressure" / "memory"]
    files += [folder / "memory.pressure" for folder in _folders(proc, "memory")]
    return max(_read_some_avg10(path) for path in files) / 100


def rss_bytes() -> int:
    """Return the resident set of this process, in bytes."""
    return psutil.Process().memory_info().rss


def peak_rss_bytes(proc: Path = _PROC) -> int:
    """Return the largest resident set of this process so far, in bytes; 0 where unknown.

    On Linux, VmHWM counts this program alone; getrusage also counts the program that started it.
    """
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    for line in _read_text(proc / "self" / "status").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) << 10
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


ENGINE_SHORTAGE = 300
"""How much rather the system ends an engine than a window when memory runs out; 0 to 1000."""


def offer_first(adjustment: int = ENGINE_SHORTAGE) -> None:
    """Let the system end this process before others when memory runs out, where there is Linux."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(adjustment), "ascii")


def trim_heap() -> None:
    """Give the free pages of this process's heap back to the system, where there is glibc.

    glibc itself returns only the end of the heap: most memory of a large object stays with the
    process.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def forget_mapped(path: Path) -> None:
    """Take a mapped file out of this process's size. Does nothing where there is no Linux.

    The pages stay in the system's cache and come back when they are read.
    """
    if sys.platform != "linux":
        return
    import ctypes

    madvise = ctypes.CDLL(None).madvise
    for begin, end, _ in mappings(path):
        madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def mappings(path: Path) -> list[tuple[int, int, int]]:
    """Return where this process has mapped a file to read: (begin, end, offset in the file).

    Empty where there is no Linux.
    """
    found, real = [], os.path.realpath(path)
    for line in _read_text(_PROC / "self" / "maps").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[1].startswith("r--") and fields[5] == real:
            begin, end = (int(part, 16) for part in fields[0].split("-"))
            found.append((begin, end, int(fields[2], 16)))
    return found


def physical_cores(proc: Path = _PROC, cpus: Path = _CPUS) -> int:
    """Return the number of physical cores that this process may keep busy, at least 1.

    On Linux, respects the affinity mask and the processor quota of control groups.
    """
    if sys.platform != "linux":
        return psutil.cpu_count(logical=False) or os.cpu_count() or 1
    mine = os.sched_getaffinity(0)
    cores = set()
    for cpu in mine:
        siblings = cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        cores.add(_read_text(siblings) or str(cpu))
    quota = min(_cpu_quotas(proc), default=math.inf)
    return max(1, min(len(cores), math.ceil(quota) if quota < math.inf else len(cores)))


def processors() -> int:
    """Return the number of logical processors that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def oom_kills(proc: Path = _PROC) -> int | None:
    """Return how many processes the system has killed because memory ran out; None if unknown.

    The count is of the whole machine since its start, and includes control groups.
    """
    for line in _read_text(proc / "vmstat").splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill":
            return _int(value)
    return None


def is_busy() -> bool:
    """Return whether the load exceeds the number of processors; False where it is unknown.

    Measurements are then of the load and not of the machine.
    """
    try:
        return os.getloadavg()[0] > (os.cpu_count() or 1)
    except (AttributeError, OSError):
        return False


def control_groups(controller: str, proc: Path = _PROC) -> Iterator[Path]:
    """Yield the folders of this process's control groups, if there are any.

    They come innermost first, up to the root of each mount: those of version 1 for `controller`,
    and those of version 2.
    """
    if sys.platform == "linux":
        yield from _folders(proc, controller)


def _groups(proc: Path) -> Iterator[_Group]:
    """Yield the memory limits of this process's control groups, up to the root's."""
    for folder in _folders(proc, "memory"):
        if (folder / "memory.max").exists():  # version 2
            limit = _read_int(folder / "memory.max")
            used = _read_int(folder / "memory.current")
            cache = _read_stat(folder / "memory.stat", ("inactive_file", "active_file"))
        else:
            limit = _read_int(folder / "memory.limit_in_bytes")
            used = _read_int(folder / "memory.usage_in_bytes")
            cache = _read_stat(folder / "memory.stat", ("total_inactive_file", "total_active_file"))
        # Version 1 writes "no limit" as a number near 2^63, or -1.
        if limit is not None and 0 <= limit < 1 << 60:
            yield _Group(limit, max(0, (used or 0) - cache))


def _cpu_quotas(proc: Path) -> Iterator[float]:
    """Yield the processor quotas of this process's control groups, in cores."""
    for folder in _folders(proc, "cpu"):
        names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")  # version 1
        one = [_int(field) for field in _read_text(folder / "cpu.max").split()]
        for quota, period in ([*one, None, None][:2], [_read_int(folder / name) for name in names]):
            if quota is not None and period is not None and quota > 0 and period > 0:
                yield quota / period


def _folders(proc: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of control_groups()."""
    paths = _own_groups(proc / "self" / "cgroup", controller)
    for line in _read_text(proc / "self" / "mountinfo").splitlines():
        # 36 35 98:0 /root /mount/point options - type source super-options
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        root, mount = _unescape(fields[3]), Path(_unescape(fields[4]))
        if kind[0] == "cgroup2":
            group = paths.get("")
        elif kind[0] == "cgroup" and controller in kind[2].split(","):
            group = paths.get(controller)
        else:
            continue
        if group is None:
            continue
        # In a container the mount shows a part of the tree, which begins at `root`.
        inside = "/" if root == group else group.removeprefix(root.rstrip("/"))
        folder = mount / inside.lstrip("/")
        if ".." in folder.parts:  # outside this namespace
            folder = mount
        while not folder.is_dir() and folder != mount:
            folder = folder.parent
        yield folder
        while folder != mount:
            folder = folder.parent
            yield folder


def _own_groups(path: Path, controller: str) -> dict[str, str]:
    """Return the paths of this process's groups: "" for version 2, `controller` for version 1."""
    paths: dict[str, str] = {}
    for line in _read_text(path).splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        if fields[0] == "0" and fields[1] == "":
            paths[""] = fields[2]
        elif controller in fields[1].split(","):
            paths[controller] = fields[2]
    return paths


def _unescape(text: str) -> str:
    """Undo the octal escapes of mountinfo, where a space is backslash 040."""
    for code in ("040", "011", "012", "134"):
        text = text.replace("\\" + code, chr(int(code, 8)))
    return text


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, ValueError):  # ValueError: not UTF-8, or a zero byte in the path
        return ""


def _read_int(path: Path) -> int | None:
    return _int(_read_text(path))


def _int(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?[0-9]{1,20}", text) else None


def _read_some_avg10(path: Path) -> float:
    """Return "some avg10=" from a file of pressure stall information, in percent."""
    for line in _read_text(path).splitlines():
        kind, _, rest = line.partition(" ")
        name, _, value = rest.partition(" ")[0].partition("=")
        if kind == "some" and name == "avg10":
            with contextlib.suppress(ValueError):
                share = float(value)
                return min(max(share, 0.0), 100.0) if math.isfinite(share) else 0.0
    return 0.0


def _read_stat(path: Path, names: tuple[str, ...]) -> int:
    """Return the sum of the named lines of a memory.stat file, in bytes."""
    total = 0
    for line in _read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name in names:
            total += max(_int(value) or 0, 0)
    return total
