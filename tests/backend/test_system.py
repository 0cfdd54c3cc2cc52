"""Memory and processor facts from made-up system folders, and where files lie."""

import ctypes
import json
import mmap
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from backend.system import memory, paths
from backend.system.limits import reached_time_limit
from backend.system.memory import memory_facts, physical_cores, stalled_share
from backend.system.processor import OtherPrograms

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux system files")

GIB = 1 << 30


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def rss_of(path: Path) -> int:
    """Return the resident KiB of a mapped file."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.endswith(str(path))]
    return next(int(line.split()[1]) for line in lines[place:] if line.startswith("Rss:"))


@linux
def test_a_mapped_file_leaves_the_size_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "a model.gguf"
    path.write_bytes(b"x" * (1 << 20))

    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert mapped[:: mmap.PAGESIZE] == b"x" * ((1 << 20) // mmap.PAGESIZE)
        before = rss_of(path)
        memory.forget_mapped(path)
        assert before == 1024 and rss_of(path) == 0
        assert mapped[-1:] == b"x"  # it is still there


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a /proc without control groups. The machine has 16 GiB, of which 8 are available."""
    proc = tmp_path / "proc"
    machine = SimpleNamespace(total=16 * GIB, available=8 * GIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: machine)
    write(proc / "self" / "cgroup", "")
    write(proc / "self" / "mountinfo", "")
    return proc


def mount_v2(proc: Path, group: str, root: str = "/", name: str = "unified") -> Path:
    mount = proc.parent / name
    mount.mkdir()
    write(proc / "self" / "cgroup", f"0::{group}\n")
    escaped = str(mount).replace(" ", "\\040")
    write(
        proc / "self" / "mountinfo",
        f"35 24 0:30 {root} {escaped} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
    )
    return mount


@linux
def test_a_limit_below_zero_is_none(proc: Path) -> None:
    group = proc / "group"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("-1\n")
    (proc / "self").mkdir(exist_ok=True)
    (proc / "self" / "cgroup").write_text("0::/\n")
    (proc / "self" / "mountinfo").write_text(f"36 35 0:1 / {group} rw - cgroup2 cgroup rw\n")
    facts = memory_facts(proc)
    assert facts.limited_by == "machine" and facts.available_bytes > 0


def test_a_mount_with_a_zero_byte_is_no_group(proc: Path) -> None:
    (proc / "self").mkdir(exist_ok=True)
    (proc / "self" / "cgroup").write_text("0::/\n")
    (proc / "self" / "mountinfo").write_text("36 35 0:1 / /a\0b rw - cgroup2 cgroup rw\n")
    assert memory_facts(proc).limited_by == "machine"
    assert stalled_share(proc) == 0


def test_a_stall_is_a_share(proc: Path) -> None:
    (proc / "pressure").mkdir(exist_ok=True)
    for value, share in (("12.50", 0.125), ("nan", 0), ("1e400", 0), ("-5", 0), ("500", 1)):
        (proc / "pressure" / "memory").write_text(f"some avg10={value} avg60=0.00 total=0\n")
        assert stalled_share(proc) == share


def test_without_groups_the_machine_counts(proc: Path) -> None:
    assert memory_facts(proc) == memory.MemoryFacts(16 * GIB, 8 * GIB, "machine")


@linux
def test_version_2_limit_of_the_own_group(proc: Path) -> None:
    mount = mount_v2(proc, "/user/app")
    write(mount / "user/app/memory.max", f"{4 * GIB}\n")
    write(mount / "user/app/memory.current", f"{3 * GIB}\n")
    write(
        mount / "user/app/memory.stat",
        f"anon {GIB}\ninactive_file {GIB}\nactive_file {GIB}\nshmem 5\n",
    )
    write(mount / "user/memory.max", "max\n")
    # Of the 3 GiB in use 2 are file pages, which the kernel drops.
    assert memory_facts(proc) == memory.MemoryFacts(4 * GIB, 3 * GIB, "cgroup")


@linux
def test_version_2_limit_of_a_group_further_out_counts(proc: Path) -> None:
    mount = mount_v2(proc, "/user/app", name="with space")
    write(mount / "user/app/memory.max", f"{12 * GIB}\n")
    write(mount / "user/app/memory.current", "0\n")
    write(mount / "user/memory.max", f"{2 * GIB}\n")
    write(mount / "user/memory.current", f"{GIB}\n")
    assert memory_facts(proc) == memory.MemoryFacts(2 * GIB, GIB, "cgroup")


@linux
def test_in_a_container_the_mount_shows_a_part_of_the_tree(proc: Path) -> None:
    mount = mount_v2(proc, "/docker/abc", root="/docker/abc")
    write(mount / "memory.max", f"{GIB}\n")
    write(mount / "memory.current", f"{2 * GIB}\n")
    assert memory_facts(proc) == memory.MemoryFacts(GIB, 0, "cgroup")


@linux
@pytest.mark.parametrize("group", ["/../../elsewhere", "/gone/away"])
def test_a_group_that_cannot_be_seen_leaves_the_outer_limit(proc: Path, group: str) -> None:
    mount = mount_v2(proc, group)
    write(mount / "memory.max", f"{3 * GIB}\n")
    write(mount / "memory.current", "0\n")
    assert memory_facts(proc).total_bytes == 3 * GIB


@linux
def test_version_1_limit(proc: Path) -> None:
    mount = proc.parent / "memory"
    write(proc / "self" / "cgroup", "9:name=systemd:/\n4:memory:/job\n1:cpu,cpuacct:/job\n")
    write(
        proc / "self" / "mountinfo",
        f"35 31 0:32 / {mount} rw,relatime - cgroup cgroup rw,memory\n"
        f"36 31 0:33 / {proc.parent}/cpu rw,relatime - cgroup cgroup rw,cpu,cpuacct\n",
    )
    write(mount / "job/memory.limit_in_bytes", f"{5 * GIB}\n")
    write(mount / "job/memory.usage_in_bytes", f"{2 * GIB}\n")
    write(mount / "job/memory.stat", f"inactive_file 1\ntotal_inactive_file {GIB}\n")
    write(mount / "memory.limit_in_bytes", "9223372036854771712\n")
    write(mount / "memory.usage_in_bytes", f"{9 * GIB}\n")
    assert memory_facts(proc) == memory.MemoryFacts(5 * GIB, 4 * GIB, "cgroup")


@linux
def test_siblings_are_one_core_and_a_quota_counts(
    proc: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpus = tmp_path / "cpus"
    for cpu in range(8):
        pair = f"{cpu % 4},{cpu % 4 + 4}"
        write(cpus / f"cpu{cpu}/topology/thread_siblings_list", pair + "\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert physical_cores(proc, cpus) == 4
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 4, 1})
    assert physical_cores(proc, cpus) == 2
    mount = mount_v2(proc, "/app")
    write(mount / "app/cpu.max", "150000 100000\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert physical_cores(proc, cpus) == 2
    for odd in ("max 100000", "150000 1000?", "150000 -1", "\u00b2 1", "150000", "1" * 400 + " 1"):
        write(mount / "app/cpu.max", odd + "\n")
        assert physical_cores(proc, cpus) == 4
    assert physical_cores(proc, tmp_path / "nothing") == 8


def test_facts_of_this_machine_are_sane() -> None:
    facts = memory_facts()
    assert 0 < facts.available_bytes <= facts.total_bytes
    assert memory.total_bytes() == facts.total_bytes
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)


def test_folders_are_this_applications_own() -> None:
    folders = {paths.data_folder(), paths.cache_folder()}
    assert len(folders) == 2
    for folder in folders:
        assert folder.is_absolute() and "outrider" in str(folder)


def test_embedded_model_is_found_or_missed_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "_roots", lambda: iter([tmp_path]))
    with pytest.raises(FileNotFoundError, match="embedded model is missing"):
        paths.embedded_model()
    write(tmp_path / "assets/embedded/outrider-tiny.gguf", "GGUF")
    assert paths.embedded_model() == tmp_path / "assets/embedded/outrider-tiny.gguf"


def test_the_resident_set_grows_with_what_is_written() -> None:
    before = memory.rss_bytes()
    with mmap.mmap(-1, 64 << 20) as held:  # Python may have an array in memory that it used before
        held.write(b"x" * len(held))
        assert memory.rss_bytes() - before > 48 << 20
    assert memory.peak_rss_bytes() - before > 48 << 20


@linux
def test_the_processor_time_of_other_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psutil, "PROCFS_PATH", str(tmp_path))

    def times(user: int, nice: int, idle: int, mine: int) -> None:
        guests = f"{user // 2} {nice // 2}"  # parts of the first two
        (tmp_path / "stat").write_text(
            f"cpu  {user} {nice} 0 {idle} 0 0 0 0 {guests}\ncpu0 1 2\nbtime 0\n"
        )
        (tmp_path / "7").mkdir(exist_ok=True)
        rest = " ".join(["0"] * 11 + [str(mine)] + ["0"] * 38)
        (tmp_path / "7" / "stat").write_text(f"7 (a (b) c) S {rest}")

    others = OtherPrograms()
    with_nice = OtherPrograms(counts_nice=True)
    times(user=1000, nice=0, idle=1000, mine=500)
    assert others.share([7]) is None  # there is nothing to compare with
    assert with_nice.share([7]) is None
    times(user=1150, nice=50, idle=1100, mine=600)
    assert others.share([7]) == pytest.approx(50 / 300)
    assert with_nice.share([7]) == pytest.approx(100 / 300)
    assert others.share([7, 8]) is None  # a process that has ended
    times(user=1200, nice=50, idle=1100, mine=700)
    assert others.share([7]) is None
    times(user=1201, nice=50, idle=1199, mine=900)
    assert others.share([7]) == 0.0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc keeps such pages")
def test_free_pages_within_the_heap_go_back_to_the_system() -> None:
    libc = ctypes.CDLL(None)
    libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    blocks = [libc.malloc(16 << 10) for _ in range(4096)]  # 64 MiB
    for block in blocks:
        ctypes.memset(block, 1, 16 << 10)
    for block in blocks[:-1]:  # the last one keeps the end of the heap
        libc.free(block)
    before = memory.rss_bytes()
    memory.trim_heap()
    assert before - memory.rss_bytes() > 48 << 20
    libc.free(blocks[-1])


@pytest.mark.parametrize("has_timer", [True, False])
def test_the_end_by_a_time_limit_is_known(has_timer: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has no timer of the system. Its status is that of other ends, too."""
    if not has_timer:
        monkeypatch.delattr(signal, "setitimer", raising=False)
    elif not hasattr(signal, "setitimer"):
        pytest.skip("the system has no such timer")
    without = "" if has_timer else "vars(signal).pop('setitimer', None)"
    code = f"import signal\n{without}\nfrom backend.system.limits import time_limit\n"

    def ends(body: str, limit_s: float) -> bool:
        began_s = time.monotonic()
        command = [sys.executable, "-c", f"{code}with time_limit({limit_s}):\n    {body}"]
        status = subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode
        return reached_time_limit(status, time.monotonic() - began_s, limit_s)

    assert ends("while True: pass", 0.1)
    assert not ends("pass", 60) and not ends("raise SystemExit(1)", 60)


LETTERS = """
import json, os, sys
from backend.system import surroundings
was = surroundings.has_plain_letters()
surroundings.mend()
told = {name: os.environ.get(name) for name in sys.argv[1:]}
print(json.dumps([was, surroundings.has_plain_letters(), told]))
"""


@pytest.mark.usefixtures("turkish_letters")
def test_letters_of_a_language_whose_i_has_another_capital(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        return subprocess.run([sys.executable, *words], capture_output=True, text=True).stdout

    was, now, _ = json.loads(run("-c", LETTERS))
    assert (was, now) == (False, True)
    (tmp_path / "t.jinja").write_text("{{ 'string' | upper }}")
    (tmp_path / "m.json").write_text('[{"role": "user", "content": "Hi"}]')
    shown = run("-m", "backend.cli", "format", str(tmp_path / "t.jinja"), "--messages",
                str(tmp_path / "m.json"))  # fmt: skip
    assert "STRING" in shown
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    for language, plain in ("C.UTF-8", True), ("xx_XX", False):
        monkeypatch.setenv("LC_ALL", language)
        was, now, after = json.loads(run("-c", LETTERS, "LC_ALL", "LC_TIME", "LANG"))
        assert (was, now) == (plain, True)
        told = {"LC_ALL": language, "LC_TIME": "de_DE.UTF-8"}
        assert after.items() >= (told if plain else {"LC_ALL": None, "LC_TIME": None}).items()
        assert plain or after["LANG"] == language
