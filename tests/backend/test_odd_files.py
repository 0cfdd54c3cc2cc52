"""Pipes, sockets, devices, folders and loops of links in the place of files: nothing hangs."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import psutil
import pytest

from app.settings import settings
from app.settings.settings import Settings
from app.store.chats import ChatStore
from backend.downloads.manager import Downloads
from backend.engine.kept_states import KeptStates, key_of, root_of
from backend.gguf.model_file import read_model
from backend.library.places import known_folders
from backend.machines import MachineError, load
from backend.packs import write as packs
from backend.system.kept_file import read_object
from backend.system.paths import open_regular
from backend.tools.settings import read_foreign
from backend.traces.container import ContainerError
from backend.traces.reading import read_trace

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no such files")

_PATIENCE_S = 60


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """Fail where a test waits in a call of the system."""

    def hangs(_number: int, _frame: FrameType | None) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(_PATIENCE_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(path.parent)  # the path of a socket is short
        try:
            made.bind(path.name)
        finally:
            os.chdir(here)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": lambda path: os.mkfifo(path),
    "socket": _socket,
    "folder": Path.mkdir,
    "loop": lambda path: path.symlink_to(path.name),
    "zero": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
}


@pytest.fixture(params=sorted(KINDS))
def odd(request: pytest.FixtureRequest) -> Callable[[Path], Path]:
    """Return a function that makes something at a path that is no file."""

    def make(path: Path) -> Path:
        KINDS[request.param](path)
        return path

    return make


def test_only_files_are_opened(
    odd: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError):
        open_regular(odd(tmp_path / "x"), os.O_RDONLY)
    (tmp_path / "file").write_bytes(b"12")
    with open(tmp_path / "file", "rb", opener=open_regular) as file:
        assert file.read() == b"12"
    regular = os.stat(tmp_path / "file")
    # What was looked at is replaced before it is opened: it is closed again.
    monkeypatch.setattr(os, "stat", lambda _path: regular)
    n_open = psutil.Process().num_fds()
    with pytest.raises(OSError):
        open_regular(tmp_path / "x", os.O_RDONLY)
    assert psutil.Process().num_fds() == n_open
    monkeypatch.undo()
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "none", os.O_RDONLY)
    with pytest.raises(OSError, match="its name is not valid"):
        open_regular("\0", os.O_RDONLY)


def test_kept_values(odd: Callable[[Path], Path], tmp_path: Path) -> None:
    path = odd(tmp_path / "settings.json")
    loaded, sentence = settings.load(path)
    assert loaded == Settings() and sentence and "settings file could not be read" in sentence
    path = odd(tmp_path / "downloads.json")
    assert "could not be read" in Downloads(path, tmp_path).trouble
    assert read_object(path) == {}
    odd(tmp_path / ".lmstudio-home-pointer")
    assert known_folders(tmp_path, {}, "linux") == []


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", ".lock", ".check"])
def test_chats(odd: Callable[[Path], Path], tmp_path: Path, ending: str) -> None:
    path = tmp_path / "chats.db"
    ChatStore.open(path).close()
    before = path.read_bytes()
    place = tmp_path / f"chats.db{ending}"
    place.unlink(missing_ok=True)
    odd(place)
    store = ChatStore.open(path)
    chat_id = store.new_chat("a chat")
    assert [row.id for row in store.chats()] == [chat_id]
    assert store.is_kept or store.trouble.endswith(".")
    store.close()
    assert not ending or path.read_bytes()[:16] == before[:16]


def test_states(odd: Callable[[Path], Path], tmp_path: Path) -> None:
    root, tokens = root_of(["m"]), [1, 2, 3]
    (tmp_path / "chat").mkdir()
    odd(tmp_path / "chat" / f"{root}-{key_of(root, tokens)}.state")
    kept = KeptStates(tmp_path)
    assert kept.find(root, tokens, 8) == [] and kept.read_note("chat", "used", root) == b""
    kept.close()


def test_packs(odd: Callable[[Path], Path], tiny: Path, tmp_path: Path) -> None:
    file = read_model(tiny)
    path = odd(tmp_path / "tiny.pack")
    assert packs.stripes_in(path).others == ()
    with pytest.raises(OSError):
        packs.read(path, file)


def test_what_a_person_names(odd: Callable[[Path], Path], tmp_path: Path) -> None:
    path = odd(tmp_path / "x")
    with pytest.raises(ContainerError):
        read_trace(path)
    with pytest.raises(MachineError):
        load(path)
    with pytest.raises(ValueError, match="could not be read"):
        read_foreign(path)
