"""Formulas that a child process has drawn (backend/formulas/child.py), and the wait for them."""

from __future__ import annotations

import json
import re
from collections import OrderedDict, deque
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from PySide6.QtCore import QObject, QProcess, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QColor, QImage, QPainter, qGray

from app.widgets import theme
from backend.system import children

EM = 20.0  # pixels of an em in what the child answers, as its SIZE says
LIMIT_S = 2.0  # of processor time, for one formula
DEADLINE_MS = 6000  # the same on a busy machine, with the start of the process
IDLE_MS = 60_000
TOGETHER_MS = 100  # answers within this time are told together
N_KEPT_MAX = 1000
N_WAITING_MAX = 500
N_START_MAX = 20  # starts without an answer between them; then all that wait stay source


class Drawn(NamedTuple):
    """A picture of a formula; sizes in em, from the baseline.

    spoken: its words, as backend/formulas/spoken.py names them.
    """

    svg: bytes
    width: float
    ascent: float
    depth: float
    spoken: tuple[str, ...] = ()


Key = tuple[str, bool]
"""LaTeX without its delimiters, and whether it stands alone."""


class Typesetter(QObject):
    """Keeps the drawn formulas, and the process that draws them: none before the first is wanted.

    Signals:
        drawn: some formulas that were waited for have their answer.
    """

    drawn = Signal()

    def __init__(
        self,
        parent: QObject | None = None,
        process: Callable[[QObject], QProcess] = lambda parent: QProcess(parent),
    ) -> None:
        super().__init__(parent)
        self._make_process = process
        self._process: QProcess | None = None
        self._known: OrderedDict[Key, Drawn | None] = OrderedDict()
        self._waiting: deque[Key] = deque()  # the first of them is with the process
        self._is_asked = False
        self._n_start = 0
        self._deadline = QTimer(self, singleShot=True, interval=DEADLINE_MS)
        self._deadline.timeout.connect(self._ended)
        self._idle = QTimer(self, singleShot=True, interval=IDLE_MS)
        self._idle.timeout.connect(self.close)
        self._together = QTimer(self, singleShot=True, interval=TOGETHER_MS)
        self._together.timeout.connect(self.drawn.emit)

    def is_known(self, key: Key) -> bool:
        """Return whether it is clear if a formula can be drawn."""
        return key in self._known

    def find(self, key: Key) -> Drawn | None:
        """Return a drawn formula. None if it cannot be drawn, or not yet: then it is asked for."""
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key]
        if key not in self._waiting and len(self._waiting) < N_WAITING_MAX:
            self._waiting.append(key)
            self._ask()
        return None

    def close(self) -> None:
        """End the process. Another one starts when it is needed."""
        process, self._process = self._process, None
        self._is_asked = False
        self._deadline.stop()
        if process is not None:
            process.blockSignals(True)
            process.kill()
            process.waitForFinished(1000)
            process.deleteLater()

    def _ask(self) -> None:
        """Send the first formula that waits, if the process has none."""
        if not self._waiting:
            self._idle.start()
            return
        if self._is_asked:
            return
        self._idle.stop()
        if self._process is None:
            if self._n_start >= N_START_MAX:
                while self._waiting:
                    self._keep(None)
                self._n_start = 0
                return
            self._n_start += 1
            self._is_asked = True
            self._process = process = self._make_process(self)
            process.setStandardErrorFile(QProcess.nullDevice())
            process.readyReadStandardOutput.connect(self._read)
            process.finished.connect(self._ended)
            process.errorOccurred.connect(self._failed)
            program, *arguments = children.command("backend.formulas.child")
            process.start(program, arguments)
            if self._process is not process:  # it has failed at once, as on Windows
                return
        latex, is_display = self._waiting[0]
        self._is_asked = True
        request = {"latex": latex, "display": is_display, "limit_s": LIMIT_S}
        self._process.write(json.dumps(request).encode() + b"\n")
        self._deadline.start()

    def _read(self) -> None:
        if self._process is None or not self._process.canReadLine():
            return
        answer = json.loads(bytes(self._process.readLine().data()))
        self._n_start = 0
        drawn = None
        if "svg" in answer:
            width, ascent, depth = (answer[name] / EM for name in ("width", "ascent", "depth"))
            words = tuple(answer["spoken"])
            drawn = Drawn(answer["svg"].encode(), width, ascent, depth, words)
        self._keep(drawn)
        self._is_asked = False
        self._deadline.stop()
        self._ask()

    def _keep(self, drawn: Drawn | None) -> None:
        self._known[self._waiting.popleft()] = drawn
        if len(self._known) > N_KEPT_MAX:
            self._known.popitem(last=False)
        if not self._together.isActive():
            self._together.start()

    def _failed(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:
            self._n_start = N_START_MAX
            self._ended()

    def _ended(self) -> None:
        """Give up the formula that the process ended with, or that takes too long."""
        was_asked = self._is_asked
        self.close()
        if was_asked:
            self._keep(None)
        self._ask()


_typesetter: Typesetter | None = None


def use(typesetter: Typesetter | None) -> None:
    """Set what draws the formulas of all answers; without it they stay text."""
    global _typesetter
    _typesetter = typesetter


def typesetter() -> Typesetter | None:
    """Return what draws formulas, if something does."""
    return _typesetter


_COLOUR = re.compile(rb'"(#[0-9a-f]{6})"')
CONTRAST = 90  # of 255, between a colour and what is behind it


@lru_cache(maxsize=128)
def picture(
    svg: bytes, width: int, height: int, place: tuple[float, float, float, float], colour: str,
    ratio: float,
) -> QImage:  # fmt: skip
    """Return a drawn formula as pixels, `ratio` for each of the screen's.

    place: x, y, width and height of the formula in the picture.
    """
    from PySide6.QtSvg import QSvgRenderer  # loads a library; most chats have no such formula

    image = QImage(
        round(width * ratio), round(height * ratio), QImage.Format.Format_ARGB32_Premultiplied
    )
    image.setDevicePixelRatio(ratio)
    image.fill(Qt.GlobalColor.transparent)
    is_coloured = _COLOUR.search(svg) is not None
    if is_coloured:
        svg = svg.replace(b'"black"', f'"{colour}"'.encode())
        svg = _COLOUR.sub(lambda found: f'"{_readable(found[1].decode())}"'.encode(), svg)
    renderer = QSvgRenderer(svg)
    painter = QPainter(image)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    renderer.render(painter, QRectF(*place))
    if not is_coloured:
        painter.setCompositionMode(QPainter.CompositionMode.CompositionMode_SourceIn)
        painter.fillRect(QRectF(0, 0, width, height), QColor(colour))
    painter.end()
    return image


def _readable(colour: str) -> str:
    """Return a colour of a formula, made lighter or darker where the window hides it."""
    made, paper = QColor(colour), qGray(theme.colour("window").rgb())
    for _ in range(12):
        if abs(qGray(made.rgb()) - paper) >= CONTRAST:
            break
        made = made.lighter(125) if paper < 128 else made.darker(125)
    return made.name()
