"""Processes of our own: how they are started, from a checkout and from a bundle."""

import importlib
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import WAIT_S

from backend import __version__
from backend.system import children

ROOT = Path(__file__).resolve().parents[2]
posix = pytest.mark.skipif(os.name == "nt", reason="a shell script stands for the executable")


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def bundle(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Behave as a bundled application. Its executable is a script that starts like a bundle."""
    executable = folder / name
    begin = (
        f"import runpy, sys; sys.executable = {str(executable)!r}; "
        f"sys.path.insert(0, {str(ROOT)!r}); sys.argv[0] = sys.executable; "
        f"runpy.run_path({str(ROOT / 'packaging' / 'bundled.py')!r}, run_name='__main__')"
    )
    executable.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{begin}" "$@"\n')
    executable.chmod(executable.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "executable", str(executable))
    return executable


@pytest.mark.parametrize("module", children.MODULES)
def test_every_child_has_a_main(module: str) -> None:
    assert callable(importlib.import_module(module).main)


def test_a_child_is_this_very_code_from_any_folder(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    (tmp_path / "backend").mkdir()
    (tmp_path / "backend" / "__init__.py").write_text("raise SystemExit('the wrong backend')")
    done = run(children.command("backend.cli", "--version"), tmp_path)
    assert (done.returncode, __version__ in done.stdout) == (0, True), done.stderr


@posix
def test_a_bundled_executable_becomes_its_own_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = bundle(tmp_path, "outrider-app", monkeypatch)
    command = children.command("backend.cli", "--version")
    assert command[0] == str(executable)
    done = run(command, tmp_path)
    assert (done.returncode, __version__ in done.stdout) == (0, True), done.stderr


@posix
def test_a_bundled_executable_is_the_command_line_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run([str(bundle(tmp_path, "outrider", monkeypatch)), "--version"], tmp_path)
    assert (done.returncode, __version__ in done.stdout) == (0, True), done.stderr


@posix
def test_nothing_else_can_be_a_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable = bundle(tmp_path, "outrider", monkeypatch)
    done = run([str(executable), children.MARK, "http.server"], tmp_path)
    assert done.returncode != 0
    assert "no child process" in done.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a setting of glibc")
def test_huge_pages_are_asked_for_beside_the_users_own_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = "glibc.malloc.hugetlb=1"
    for own, wanted in (
        ("", ours),
        ("glibc.malloc.check=0", f"glibc.malloc.check=0:{ours}"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ):
        monkeypatch.setenv("GLIBC_TUNABLES", own)
        environment = children.environment()
        assert environment["GLIBC_TUNABLES"] == wanted
        assert environment["PATH"] == os.environ["PATH"]


def test_numpy_has_one_thread_unless_the_user_wants_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    assert children.environment()["OPENBLAS_NUM_THREADS"] == "1"
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    assert children.environment()["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.skipif(os.name == "nt", reason="descriptors are inherited on POSIX")
def test_a_child_ends_with_the_last_holder_of_its_pipe() -> None:
    """As on macOS, which has no signal for the end of a parent."""
    alive, held = os.pipe()
    program = (
        "import sys, time; from backend.system.pipes import die_at_end_of; "
        "die_at_end_of(int(sys.argv[1])); print('ready', flush=True); time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(alive)],
        cwd=ROOT, pass_fds=[alive], stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        assert child.poll() is None
        os.close(held)
        assert child.wait(WAIT_S) == -signal.SIGKILL
    os.close(alive)


@pytest.mark.skipif(sys.platform != "linux", reason="both ways can be tried on Linux")
@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_memory_beyond_the_limit_is_refused(platform: str) -> None:
    program = (
        f"import psutil, sys; sys.platform = {platform!r}\n"  # psutil asks for it, too
        "from backend.system.limits import limit_memory\n"
        "limit_memory(256 << 20); bytearray(64 << 20)\n"
        "try: bytearray(512 << 20)\n"
        "except MemoryError: print('refused')"
    )
    done = run([sys.executable, "-c", program], ROOT)
    assert done.stdout == "refused\n", done.stderr


@pytest.mark.skipif(os.name != "nt", reason="job objects are of Windows")
def test_a_process_does_nothing_before_it_is_in_its_job(tmp_path: Path) -> None:
    """So that none of its children can begin outside of the job."""
    job = children.Job()

    def start(name: str, flags: int = 0) -> "subprocess.Popen[bytes]":
        code = f"open({str(tmp_path / name)!r}, 'w')"
        return subprocess.Popen([sys.executable, "-c", code], creationflags=flags)

    held = start("held", job.start_flags)
    assert start("free").wait(WAIT_S) == 0  # would have ended later
    assert [path.name for path in tmp_path.iterdir()] == ["free"]
    job.release(held.pid)
    assert held.wait(WAIT_S) == 0
    assert (tmp_path / "held").is_file()
