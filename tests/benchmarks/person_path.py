"""Walks through the window as a person does, with the embedded model, and measures the window.

    python tests/benchmarks/person_path.py FOLDER               by mouse
    python tests/benchmarks/person_path.py FOLDER --keyboard    by keyboard alone
    python tests/benchmarks/person_path.py FOLDER --measure     send, scroll and start

The measurements are processor time of the window's thread, so that a busy machine counts little.
A picture of each step goes to FOLDER. The steps: first start, curated list, download, chat, stop,
continue, edit, branch, search, find, panel wide, quit, start, follow-up. Each step checks what the
eye would see. The downloads come from a server on this machine that gives every model of the list
the embedded model's bytes. Under Xvfb with a window manager and xdotool the window gets real events
and the pictures are of the screen; without a display Qt draws off the screen.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[number]) for number in (2, 1)]
if "DISPLAY" not in os.environ:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from fake_hub import FakeHub, Fault  # noqa: E402
from PySide6.QtCore import QEventLoop, QPoint, Qt  # noqa: E402
from PySide6.QtTest import QTest  # noqa: E402
from PySide6.QtWidgets import QAbstractButton, QApplication, QWidget  # noqa: E402

from app.session.worker_link import EngineLink  # noqa: E402
from app.state.conversation import Message  # noqa: E402
from app.state.engine_state import State  # noqa: E402
from app.store.chats import ChatStore  # noqa: E402
from app.text import language  # noqa: E402
from app.window.main_window import MainWindow  # noqa: E402
from backend.downloads.curated import curated  # noqa: E402
from backend.protocol.chat import Delta  # noqa: E402
from backend.protocol.client import worker_command  # noqa: E402
from backend.system.paths import embedded_model  # noqa: E402

WAIT_S = 120.0
N_MESSAGE = 1000
Key = Qt.Key
CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
IS_REAL = "DISPLAY" in os.environ and shutil.which("xdotool") is not None
X_NAMES = {Key.Key_Escape: "Escape", Key.Key_Return: "Return", Key.Key_Tab: "Tab",
           Key.Key_Space: "space"}  # fmt: skip


class Person:
    """Uses one window. by_keys: never the mouse."""

    def __init__(self, folder: Path, out: Path, by_keys: bool) -> None:
        self._folder, self._out, self.by_keys = folder, out, by_keys
        self._n_step = 0
        self.window: MainWindow

    def start(self) -> None:
        """Start the application, as packaging/launch.py does."""
        self.window = window = MainWindow(
            EngineLink(worker_command()), self._folder / "settings.json"
        )
        window.show()
        window.open_first()
        QTest.qWaitForWindowActive(window, 5000)
        self.wait(lambda: window.engine.state is State.IDLE)

    def quit(self) -> None:
        """Quit with Ctrl+Q."""
        self.key(Key.Key_Q, CTRL)
        self.wait(lambda: not self.window.isVisible())

    def step(self, name: str) -> None:
        """Take a picture of a step that has succeeded."""
        QTest.qWait(300)
        self._n_step += 1
        kind = "keys" if self.by_keys else "mouse"
        path = str(self._out / f"{kind}-{self._n_step:02}-{name}.png")
        picture = self.window.screen().grabWindow(0) if IS_REAL else self.window.grab()
        picture.save(path)
        print(f"{kind} {self._n_step:2} {name}")

    def wait(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so."""
        end_s = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < end_s, "it never came"
            QTest.qWait(20)

    def focused(self) -> QWidget:
        """Return what has the focus; a person can type only there."""
        widget = QApplication.focusWidget()
        assert widget is not None, "nothing has the focus"
        return widget

    def key(self, key: Qt.Key, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier(0)) -> None:
        """Press a key where the focus is; shortcuts work there."""
        if IS_REAL:
            held = [name for name, one in (("ctrl", CTRL), ("shift", SHIFT)) if modifiers & one]
            xdotool("key", "+".join((*held, X_NAMES.get(key) or chr(key).lower())))
            return
        QTest.keyClick(QApplication.focusWidget() or self.window, key, modifiers)

    def type(self, text: str) -> None:
        """Type where the focus is."""
        if IS_REAL:
            xdotool("type", "--delay", "5", text)
            return
        QTest.keyClicks(self.focused(), text)

    def press(self, name: str, within: QWidget | None = None) -> None:
        """Press the visible button of a name: click it, or reach it with Tab and press Space."""
        QTest.qWait(100)  # a page that has just come lays itself out
        found = [
            button
            for button in (within or self.window).findChildren(QAbstractButton)
            if button.isVisible() and name in (button.text(), button.accessibleName())
        ]
        assert found, f"there is no button {name!r}"
        button = found[-1]
        if not self.by_keys:
            centre = QPoint(button.width() // 2, button.height() // 2)
            if IS_REAL:
                place = button.mapToGlobal(centre)
                xdotool("mousemove", str(place.x()), str(place.y()), "click", "1")
                return
            QTest.mouseClick(button, Qt.MouseButton.LeftButton, pos=centre)
            return
        for _ in range(150):
            if self.focused() is button:
                self.key(Key.Key_Space)
                return
            self.key(Key.Key_Tab)
        raise AssertionError(f"Tab never reaches {name!r}")

    def ask(self, text: str) -> None:
        """Type a question and press Enter."""
        self.type(text)
        self.key(Key.Key_Return)

    def n_char(self) -> int:
        """Return the length of the last answer."""
        last = self.window.session.conversation.last
        return len(last.content) if last is not None and last.role == "assistant" else 0

    def bottom_text(self) -> str:
        """Return the text of the lowest message on the screen."""
        views = self.window.chat.transcript._views
        lowest = max(views, key=lambda view: view.mapTo(self.window, QPoint(0, 0)).y())
        return str(getattr(lowest, "text", ""))


def xdotool(*words: str) -> None:
    """Send a key or a click through the display's server, and handle it."""
    subprocess.run(["xdotool", *words], check=True)
    QTest.qWait(60)


def get_model(person: Person, hub: FakeHub) -> None:
    """Download the suggested model of the curated list, which then opens in a new chat."""
    window, get = person.window, person.window.library.get
    if person.by_keys:
        person.key(Key.Key_G, CTRL)
    else:
        person.press("Get a larger model\u2026")
    person.wait(get.table.isVisible)
    if get.measure.isVisible():
        try:
            person.press("Measure this computer")
        except AssertionError:  # it was measured by itself while the keys were under way
            assert window.library.library.is_measuring or not get.measure.isVisible()
        person.wait(lambda: not get.measure.isVisible())
    assert not hub.requests, "the network was asked before the user asked"
    assert get.sentence.startswith("Suggested for this computer")
    person.step("curated-list")
    hub.faults = [Fault("hold", 6_000_000)]
    person.press("Download", get)
    person.wait(lambda: bool(get.rows) and get.rows[0].download.n_byte >= 6_000_000)
    person.step("downloading")
    hub.release.set()
    person.wait(lambda: window.chat.isVisible() and window.engine.state is State.IDLE)
    assert window.engine.path is not None
    assert window.engine.path.is_relative_to(window.library.downloads.folder)
    person.wait(lambda: QApplication.focusWidget() is window.chat.composer.input)
    person.step("arrived")


def walk(out: Path, by_keys: bool) -> None:
    """Walk through all steps."""
    with tempfile.TemporaryDirectory() as folder, FakeHub() as hub:
        os.environ.update(HF_ENDPOINT=hub.url, NO_PROXY="127.0.0.1", HF_TOKEN_PATH=os.devnull)
        data = embedded_model().read_bytes()
        for model in curated()[1]:
            hub.repositories.setdefault(model.repository, {})[model.file] = data
        person = Person(Path(folder), out, by_keys)
        person.start()
        window = person.window
        window.library.downloads.set_folder(Path(folder) / "models")
        person.step("first-start")
        get_model(person, hub)
        question = "Tell me a fairy tale about a tin soldier who learns to swim."
        if by_keys:
            person.ask(question)
        else:
            person.press(question)
        person.wait(lambda: person.n_char() > 40)
        person.key(Key.Key_Escape)
        person.wait(lambda: window.engine.state is State.IDLE)
        n_char = person.n_char()
        person.step("stopped")
        person.press("Continue this answer" if by_keys else "Continue", window.chat.transcript)
        person.wait(lambda: person.n_char() > n_char and window.engine.state is State.IDLE)
        assert window.panel.words.text(), "the panel says nothing"
        person.step("continued")
        person.press("Change this message" if by_keys else "Edit", window.chat.transcript)
        assert person.focused().accessibleName() == "Your message, to change"
        person.key(Key.Key_A, CTRL)
        person.ask("Tell me a story about the moon.")
        person.wait(lambda: person.n_char() > 40 and window.engine.state is State.IDLE)
        assert window.session.conversation.messages[0].branch == (2, 2)
        person.step("edited")
        person.press("Version before this one", window.chat.transcript)
        person.wait(lambda: window.session.conversation.messages[0].branch == (1, 2))
        person.step("branch")
        if QApplication.focusWidget() is not window.chat.composer.input:
            person.key(Key.Key_L, CTRL)
        person.key(Key.Key_F, CTRL)
        person.type("moon")
        person.wait(lambda: len(window.sidebar.list.titles()) == 1)
        person.step("searched")
        person.key(Key.Key_Escape)
        assert QApplication.focusWidget() is window.chat.composer.input
        person.key(Key.Key_F, CTRL | SHIFT)
        person.type("the")
        person.wait(lambda: window.chat.find_bar.found > 0)
        person.step("found")
        person.key(Key.Key_Escape)
        person.key(Key.Key_E, CTRL | SHIFT)
        person.wait(lambda: window.panel.width() > 1000)
        person.step("panel-wide")
        person.key(Key.Key_E, CTRL | SHIFT)
        person.key(Key.Key_L, CTRL)
        person.type("a draft")
        person.quit()
        person.start()
        window = person.window
        assert window.chat.composer.input.toPlainText() == "a draft"
        person.step("started-again")
        n_message = len(window.session.conversation.messages)
        person.key(Key.Key_A, CTRL)
        person.ask("Tell me a story about the sea.")
        person.wait(lambda: person.n_char() > 40 and window.engine.state is State.IDLE)
        assert len(window.session.conversation.messages) == n_message + 2
        person.wait(
            lambda: person.bottom_text() == window.session.conversation.messages[-1].content
        )
        person.step("follow-up")
        person.quit()


# Measurements


def measure_machine() -> None:
    """Print the time of a million additions, to compare machines and loads."""
    begin_s, total = time.process_time(), 0
    for number in range(10**6):
        total += number
    print(f"a million additions: {1000 * (time.process_time() - begin_s):.0f} ms")


def measure_send(n: int = 12) -> None:
    """Print the window's own share of the time from a click on Send to the first visible text.

    It is the processor time of the window's thread until the request has left, plus that from the
    message with the first text until it is painted. The second figure has also what the thread
    does while the engine computes, such as painting the question. Waiting is in neither.
    """
    with tempfile.TemporaryDirectory() as folder:
        person = Person(Path(folder), Path(folder), False)
        person.start()
        window, shares_s, alls_s = person.window, [], []
        arrived_s: list[float] = []

        def note(delta: Delta, _raw: str) -> None:
            if delta.content and not arrived_s:
                arrived_s.append(time.thread_time())

        # The first receiver of `text`, before the session.
        window.link.text.disconnect(window.session._on_text)
        window.link.text.connect(note)
        window.link.text.connect(window.session._on_text)
        for _ in range(n):
            window.chat.composer.set_text("Tell me a story about the sea.")
            QTest.qWait(300)
            arrived_s.clear()
            begin_s = time.thread_time()
            window.chat.composer.button.click()
            process = window.link._process
            assert process is not None and not process.bytesToWrite()  # the engine has it
            sent_s = time.thread_time() - begin_s
            while not person.n_char():
                QApplication.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents)
            QApplication.processEvents()  # paints it, if that is not done yet
            end_s = time.thread_time()
            shares_s.append(sent_s + end_s - arrived_s[0])
            alls_s.append(end_s - begin_s)
            window.session.stop()
            person.wait(lambda: window.engine.state is State.IDLE)
        window.close()
    for name, times_s in (("send, on the way", shares_s), ("send, all of the thread", alls_s)):
        times_ms = sorted(1000 * time_s for time_s in times_s)
        print(f"{name}: median {statistics.median(times_ms):.1f} ms, longest {times_ms[-1]:.1f} ms")


def measure_scroll() -> None:
    """Print the time of a frame while a chat of N_MESSAGE messages is scrolled."""
    text = "A paragraph of **some** length, with `code` and a list.\n\n- one\n- two\n\n" * 2
    with tempfile.TemporaryDirectory() as folder:
        store = ChatStore.open(Path(folder) / "chats.db")
        chat_id, parent = store.new_chat("Long"), 0
        for number in range(N_MESSAGE):
            role = "assistant" if number % 2 else "user"
            message = Message(role, f"{number}. {text if number % 2 else 'A question?'}")
            store.add(chat_id, parent, message)
            parent = message.id
        window = MainWindow(EngineLink(worker_command()), Path(folder) / "settings.json", store)
        window.resize(1320, 840)
        window.show()
        window.chats.open(chat_id)
        transcript = window.chat.transcript
        person = Person(Path(folder), Path(folder), False)
        person.wait(lambda: len(transcript._views) == N_MESSAGE)
        QTest.qWait(500)
        bar, frames_s = transcript.verticalScrollBar(), []
        for number in range(300):
            begin_s = time.process_time()
            bar.setValue(round(bar.maximum() * number / 300))
            QApplication.processEvents()  # paints the frame
            frames_s.append(time.process_time() - begin_s)
        window.close()
    frames_ms = sorted(1000 * frame_s for frame_s in frames_s)
    print(
        f"scroll: median {statistics.median(frames_ms):.1f} ms, "
        f"99th percentile {frames_ms[round(0.99 * len(frames_ms))]:.1f} ms of a frame"
    )


def measure_start(n: int = 7) -> None:
    """Print the time that a warm start takes, from the process's begin until text is typed."""
    environment = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as folder:
        environment["PYTHONPYCACHEPREFIX"] = folder  # an installed application has its bytecode
        command = [sys.executable, __file__, folder, "--started"]  # and when
        runs = [
            subprocess.run(
                [*command, str(time.time())],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            for _ in range(1 + n)
        ]
    pairs = [tuple(map(float, run.stdout.split()[-2:])) for run in runs[1:]]  # the first is cold
    for name, times_s in zip(("start, processor", "start"), zip(*pairs, strict=True), strict=True):
        print(f"{name}: median {statistics.median(times_s):.2f} s, least {min(times_s):.2f} s")


def start_once(folder: Path, began_s: float) -> None:
    """Start and type a letter. Print the seconds of processor time, and of time, that it took."""
    window = MainWindow(EngineLink(worker_command()), folder / "settings.json")
    window.show()
    window.open_first()
    QTest.qWaitForWindowExposed(window)
    window.chat.composer.input.clear()  # the draft of the start before
    QTest.keyClicks(window.chat.composer.input, "a")
    QApplication.processEvents()
    assert window.chat.composer.input.toPlainText() == "a"
    print(time.process_time(), time.time() - began_s)
    window.close()


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("."))
    parser.add_argument("--keyboard", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    assert embedded_model().is_file()
    app = QApplication([])
    app.setStyle("Fusion")
    language.apply(app, "en")
    if arguments.started:
        start_once(arguments.folder, arguments.started)
    elif arguments.measure:
        measure_machine()
        measure_start()
        measure_send()
        measure_scroll()
    else:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        walk(arguments.folder, arguments.keyboard)
    return 0


if __name__ == "__main__":
    sys.exit(main())
