"""A second start raises the open window and passes it the file to open.

The first window listens on a local socket, one for each data folder, that only its user can open.
The lock on the chats decides which window is the first; the socket only carries the message. So a
socket that a killed window left behind is replaced. Where no chats can be kept, there is no lock:
a window that answers is the first.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from backend.system.kept_file import parse_json
from backend.system.paths import is_folder, may_write
from backend.text import text

SENTENCE = text("window.open_already")
_PATH_BYTES_MAX = 100  # the name of a socket may have 107
_MESSAGE_BYTES_MAX = 1 << 16
_ACTIVATION = "XDG_ACTIVATION_TOKEN"  # a Wayland compositor requires it to raise a window


class SecondStarts(QObject):
    """Receives the messages of second starts.

    Signals:
        started: (str) the absolute path of the file to open, or "".
    """

    started = Signal(str)

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._on_connection)
        name = _name(folder)
        QLocalServer.removeServer(name)  # REQUIRES: this process has the lock, so no other listens
        self._server.listen(name)  # if it fails, a second start reports that no window answers

    def close(self) -> None:
        """Stop listening, also to starts whose message has not been read.

        Call it before the lock on the chats is released: it removes the socket.
        """
        self._server.close()

    def _on_connection(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            socket.readyRead.connect(lambda socket=socket: self._read(socket))
            self._read(socket)

    def _read(self, socket: QLocalSocket) -> None:
        if not self._server.isListening():
            socket.abort()  # that start tries again, and opens a window
            return
        if not socket.canReadLine():
            if socket.bytesAvailable() > _MESSAGE_BYTES_MAX:
                socket.abort()
            return
        try:
            message = parse_json(bytes(socket.readLine(_MESSAGE_BYTES_MAX).data()))
            path, token = str(message["open"]), str(message["activation"])
        except (ValueError, TypeError, KeyError):
            socket.abort()
            return
        if token and "\0" not in token:
            os.environ[_ACTIVATION] = token  # read by Qt's Wayland plug-in
        self.started.emit(path)
        socket.write(b"done\n")
        socket.flush()


def hand_over(folder: Path, path: Path | None, wait_s: float) -> bool:
    """Raise the window that uses a data folder, and let it open a file.

    `path` is absolute. Return whether the window answered within `wait_s` seconds.
    """
    end_s = time.monotonic() + wait_s
    message = {"open": str(path or ""), "activation": os.environ.get(_ACTIVATION, "")}
    socket = QLocalSocket()
    socket.connectToServer(_name(folder))
    if not socket.waitForConnected(int(wait_s * 1000)):
        return False
    if sys.platform == "win32":  # it lets a window come forward only with this process's leave
        import ctypes

        any_process = 0xFFFFFFFF
        ctypes.WinDLL("user32").AllowSetForegroundWindow(any_process)
    socket.write(json.dumps(message).encode("ascii") + b"\n")
    while not socket.canReadLine():
        left_ms = int((end_s - time.monotonic()) * 1000)
        if left_ms <= 0 or not socket.waitForReadyRead(left_ms):
            return False
    return bytes(socket.readLine().data()) == b"done\n"


def _name(folder: Path) -> str:
    """Return the socket's name: in the data folder, unless that is impossible."""
    path = str(folder / "window.socket")
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    if sys.platform == "win32":
        return f"outrider-{key}"  # of a pipe, which lies in no folder
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX and is_folder(folder) and may_write(folder):
        return path
    runtime = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.RuntimeLocation)
    return str(Path(runtime) / f"outrider-{key}")
