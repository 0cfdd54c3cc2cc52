"""A second start raises the first window. If that one hangs or was killed, no chat is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import WAIT_S, until

from app.window.second_start import SENTENCE

CHILD = Path(__file__).with_name("start_child.py")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and modes are needed")


class Start:
    """A start of the application in a process of its own."""

    def __init__(self, home: Path, runtime: Path, *words: str, wait_s: float = 60.0) -> None:
        names = ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
        own = dict.fromkeys(names, str(home)) | {"XDG_RUNTIME_DIR": str(runtime)}
        home.mkdir(mode=0o700, exist_ok=True)
        self._roots = (home, runtime)
        self.process = subprocess.Popen(
            [sys.executable, str(CHILD), str(wait_s), *words], cwd=home, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=os.environ | own, umask=0o022,
        )  # fmt: skip

    def until(self, true: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read reports of the window until one meets a condition."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told: dict[str, Any] = json.loads(line)
            if true(told):
                return told
        raise AssertionError(self.end())

    def socket(self) -> Path:
        """Return the path of the window's socket."""
        (path,) = [p for root in self._roots for p in root.rglob("*") if p.is_socket()]
        return path

    def order(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def end(self) -> tuple[int, str, str]:
        out, error = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, error


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Return a folder for sockets, whose paths must be short."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.fixture
def start(runtime: Path) -> Iterator[Callable[..., Start]]:
    started: list[Start] = []

    def make(home: Path, *words: str, **more: Any) -> Start:
        started.append(Start(home, runtime, *words, **more))
        return started[-1]

    yield make
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


@pytest.mark.parametrize("folder", ["h", "a folder with a long name " * 5])
def test_the_first_window_comes_forward_with_the_file(
    tmp_path: Path, start: Callable[..., Start], folder: str
) -> None:
    home = tmp_path / folder.strip()
    first = start(home)
    first.until(lambda told: told["kept"])
    first.order("minimise")
    first.until(lambda told: told["minimised"])
    assert start(home).end() == (0, "", "")
    first.until(lambda told: not told["minimised"])
    (home / "m.gguf").write_text("{}")
    assert start(home, "m.gguf").end() == (0, "", "")
    assert first.until(lambda told: told["model"])["model"] == str(home / "m.gguf")
    assert not first.socket().stat().st_mode & 0o077
    assert stat.S_IMODE((home / "outrider").stat().st_mode) == 0o700
    first.order("close")
    assert first.end()[0] == 0


@pytest.mark.usefixtures("turkish_letters")
def test_a_window_where_the_capital_of_i_is_no_i(
    tmp_path: Path, start: Callable[..., Start]
) -> None:
    """PySide finds properties such as "interval" by a capital letter of C."""
    first = start(tmp_path / "home")
    assert first.until(lambda told: told["kept"])


def test_there_is_one_window_also_where_nothing_can_be_written(
    tmp_path: Path, start: Callable[..., Start]
) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "h/outrider").write_text("in the place of the folder")
    first = start(tmp_path / "h")
    first.until(lambda told: not told["kept"])
    first.order("minimise")
    first.until(lambda told: told["minimised"])
    assert start(tmp_path / "h").end()[0] == 0
    first.until(lambda told: not told["minimised"])
    first.order("close")
    assert first.end()[0] == 0


def test_a_killed_window_leaves_nothing_in_the_way(
    tmp_path: Path, start: Callable[..., Start]
) -> None:
    first = start(tmp_path / "h")
    first.until(lambda told: told["kept"])
    first.order("chat")
    first.until(lambda told: told["chats"] == ["a chat"])
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    again = start(tmp_path / "h")
    assert again.until(lambda told: told["chats"])["kept"]
    assert start(tmp_path / "h").end() == (0, "", "")
    again.order("close")
    assert again.end()[0] == 0


def test_a_hung_window_is_said(tmp_path: Path, start: Callable[..., Start]) -> None:
    first = start(tmp_path / "h")
    first.until(lambda told: told["kept"])
    first.process.send_signal(signal.SIGSTOP)
    assert start(tmp_path / "h", wait_s=1.0).end() == (1, "", SENTENCE + "\n")
    first.process.send_signal(signal.SIGCONT)
    first.order("close")
    assert first.end()[0] == 0


def test_a_closing_window_is_not_raised(tmp_path: Path, start: Callable[..., Start]) -> None:
    first = start(tmp_path / "h")
    first.until(lambda told: told["kept"])
    with socket.socket(socket.AF_UNIX) as second:
        second.settimeout(WAIT_S)
        second.connect(str(first.socket()))
        first.order("minimise")
        first.until(lambda told: told["minimised"])  # and has accepted the connection
        first.process.send_signal(signal.SIGSTOP)
        first.order("close")
        second.sendall(b'{"open": "", "activation": ""}\n')
        first.process.send_signal(signal.SIGCONT)  # to find both, and close first
        assert second.recv(1) == b""
    assert first.end()[0] == 0


def test_a_signal_does_not_close_the_window_while_it_is_painted(
    tmp_path: Path, start: Callable[..., Start]
) -> None:
    """Qt would go on painting on what is gone; on Wayland that is a crash."""
    first = start(tmp_path / "h")
    first.until(lambda told: told["kept"])
    first.order("terminate")
    assert first.until(lambda told: "is_visible" in told)["is_visible"]
    assert first.end()[0] == 0


def test_of_many_starts_at_once_one_opens_a_window(
    tmp_path: Path, start: Callable[..., Start]
) -> None:
    starts = [start(tmp_path / "h") for _ in range(2)]
    until(lambda: any(one.process.poll() is not None for one in starts))
    (first,) = [one for one in starts if one.process.poll() is None]
    assert all(one.end()[0] == 0 for one in starts if one is not first)
    assert first.until(lambda told: told["kept"])
    first.order("close")
    assert first.end()[0] == 0
