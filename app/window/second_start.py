"""A second start raises the window that is open already, and hands it the file it was given.

The first window listens on a local socket that only its user may use, one for each data folder. The
lock on the chats says who is first; the socket only carries the message, so one that a killed
window left behind is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path

from PySide6.QtCore import QObject, QStandardPaths, Signal
from PySide6.QtNetwork import QLocalServer, QLocalSocket

from backend.system.kept_file import parse_json
from backend.text import text

SENTENCE = text("window.open_already")
_PATH_BYTES_MAX = 100  # of the 107 that the name of a socket may have
_MESSAGE_BYTES_MAX = 1 << 16
_ACTIVATION = "XDG_ACTIVATION_TOKEN"  # with it a Wayland compositor lets a window come forward


class SecondStarts(QObject):
    """Hears of second starts.

    Signals:
        started: (str) the absolute path of the file to open, or "".
    """

    started = Signal(str)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._server = QLocalServer(self)
        self._server.setSocketOptions(QLocalServer.SocketOption.UserAccessOption)
        self._server.newConnection.connect(self._connected)
        name = _name(folder)
        QLocalServer.removeServer(name)  # REQUIRES: the lock, so nobody else listens there
        self._server.listen(name)  # where that fails, a second start says that nobody answers

    def close(self) -> None:
        """Hear no more."""
        self._server.close()

    def _connected(self) -> None:
        while (socket := self._server.nextPendingConnection()) is not None:
            socket.disconnected.connect(socket.deleteLater)
            socket.readyRead.connect(lambda socket=socket: self._read(socket))
            self._read(socket)

    def _read(self, socket: QLocalSocket) -> None:
        if not socket.canReadLine():
            if socket.bytesAvailable() > _MESSAGE_BYTES_MAX:
                socket.abort()
            return
        try:
            said = parse_json(bytes(socket.readLine(_MESSAGE_BYTES_MAX).data()))
            path, token = str(said["open"]), str(said["activation"])
        except (ValueError, TypeError, KeyError):
            socket.abort()
            return
        if token and "\0" not in token:
            os.environ[_ACTIVATION] = token  # Qt's Wayland part takes it from there
        self.started.emit(path)
        socket.write(b"done\n")
        socket.flush()


def hand_over(folder: Path, path: Path | None, wait_s: float) -> bool:
    """Have the window that uses a data folder come forward and open a file.

    path: absolute. Returns whether the window answered within `wait_s`.
    """
    end_s = time.monotonic() + wait_s
    said = {"open": str(path or ""), "activation": os.environ.get(_ACTIVATION, "")}
    socket = QLocalSocket()
    socket.connectToServer(_name(folder))
    if not socket.waitForConnected(int(wait_s * 1000)):
        return False
    socket.write(json.dumps(said).encode("ascii") + b"\n")
    while not socket.canReadLine():
        left_ms = int((end_s - time.monotonic()) * 1000)
        if left_ms <= 0 or not socket.waitForReadyRead(left_ms):
            return False
    return bytes(socket.readLine().data()) == b"done\n"


def _name(folder: Path) -> str:
    """Return where the window of a data folder listens: in it, unless its name is too long."""
    path = str(folder / "window.socket")
    if len(os.fsencode(path)) <= _PATH_BYTES_MAX:
        return path
    key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
    runtime = QStandardPaths.writableLocation(QStandardPaths.StandardLocation.RuntimeLocation)
    return str(Path(runtime) / f"outrider-{key}")
