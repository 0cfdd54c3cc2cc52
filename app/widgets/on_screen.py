"""Keep windows wholly on the screen, with their frames."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMargins, QObject, QPoint, QRect, QSize, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from app.widgets import theme

FRAME_MS = 300  # until the window manager has told a new window's frame
USUAL_FRAME = QMargins(2, 36, 2, 2)  # pixels, on X11 until then


def placed(window: QRect, frame: QMargins, room: QRect) -> QRect:
    """Return a window's place within a room, no larger than it. The frame lies around the place."""
    inner = room.marginsRemoved(frame)
    size = window.size().boundedTo(inner.size())
    x = min(max(window.x(), inner.x()), inner.right() + 1 - size.width())
    y = min(max(window.y(), inner.y()), inner.bottom() + 1 - size.height())
    return QRect(QPoint(x, y), size)


class OnScreen(QObject):
    """Moves and shrinks a window that is shown, or whose screen has gone, into the screen.

    least: the smallest width of a dialog with text of the usual size; what is in it may need more.
    """

    def __init__(self, window: QWidget, least: int = 0) -> None:
        super().__init__(window)
        self._window = window
        self._least = least
        self._fitted = QSize()  # the size that this gave to a larger window
        self._later = QTimer(self, singleShot=True, interval=FRAME_MS)
        self._later.timeout.connect(self.fit)
        window.installEventFilter(self)
        application = QGuiApplication.instance()
        assert isinstance(application, QGuiApplication)
        application.screenRemoved.connect(self._screen_gone)

    @property
    def was_shrunk(self) -> bool:
        """Return whether the window has a size that was not the user's."""
        return self._window.size() == self._fitted

    def _screen_gone(self, _: object) -> None:
        self._later.start()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:  # noqa: D102
        if event.type() == QEvent.Type.Show and not event.spontaneous():
            if self._least and (layout := self._window.layout()) is not None:
                needed = layout.minimumSize().width()  # known once the style is applied
                self._window.setMinimumWidth(max(theme.wide(self._least), needed))
            self.fit()
            if QGuiApplication.platformName() != "offscreen":
                self._later.start()
        elif event.type() == QEvent.Type.WindowStateChange:
            self._later.start()  # it may no longer be maximised
        return super().eventFilter(watched, event)

    def fit(self) -> None:
        """Fit the window, unless it is maximised."""
        window, handle = self._window, self._window.windowHandle()
        if handle is None or window.isMaximized() or window.isFullScreen() or window.isMinimized():
            return
        frame = handle.frameMargins()
        if frame.isNull() and QGuiApplication.platformName() == "xcb":
            frame = USUAL_FRAME
        now = window.geometry()
        place = placed(now, frame, window.screen().availableGeometry())
        if place.size() != now.size():
            window.resize(place.size())
            self._fitted = window.size()
        if place.topLeft() != now.topLeft():
            window.move(place.topLeft() - QPoint(frame.left(), frame.top()))
