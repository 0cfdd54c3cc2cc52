"""Use the window for long, as a heavy user does. Does it grow, and does it stay quick?

    python tests/benchmarks/long_life.py [--hours 8]        simulated time, a fake worker
    python tests/benchmarks/long_life.py --seconds 3600     real time, real workers and small models

Both drive the real window (off the screen where there is no display): new and old chats with
Markdown, code, formulas and thoughts; stops, retries, joint answers, edits, branches; search,
names, folders, deletion, export; panel, pages, dialogs, menus, themes; models, rates and methods;
dead workers. In simulated time each action advances a clock by what a person would take, and the
window's dates follow that clock. In real time a second process in the worker's memory cgroup
(version 1 or 2, needs root; else there is none) takes memory and gives it back.

Each line describes one state, an empty chat with all else closed: resident memory, descriptors,
threads, widgets, QObjects and Python's wrappers of the window, the size of the chats, and in real
time the worker. A frame is a turn of the event loop that computed for at least 1 ms. "own" is the
processor time of the window's thread, "wall" the time that passed; other programs lengthen the
second only.

The exit status is 1 if after the first quarter the memory of the window or the worker grew by more
than 10 %, descriptors, threads, widgets or objects by more than their spread in that quarter, or if
a frame's own time exceeded 100 ms, or a worker died that this program did not kill.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "app")]
if "DISPLAY" not in os.environ:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import psutil  # noqa: E402
from factory import make_tiny  # noqa: E402
from PySide6.QtCore import (  # noqa: E402
    QEvent,
    QEventLoop,
    QObject,
    QPoint,
    Qt,
    QTimer,
    qInstallMessageHandler,
)
from PySide6.QtTest import QTest  # noqa: E402
from PySide6.QtWidgets import QApplication, QDialog, QLineEdit, QMenu  # noqa: E402
from shiboken6 import Shiboken  # noqa: E402
from window_page import WindowPage  # noqa: E402

import app.library.library  # noqa: E402
import app.session.known_models  # noqa: E402
from app.chat.page import TRIM_MS  # noqa: E402
from app.chat.question import UserBubble  # noqa: E402
from app.panel.expert_map import View  # noqa: E402
from app.session.worker_link import EngineLink  # noqa: E402
from app.state.engine_state import State  # noqa: E402
from app.text import language  # noqa: E402
from app.widgets.page_stack import CHAT  # noqa: E402
from backend.bench.cap import CapRefused, MemoryCap  # noqa: E402
from backend.protocol.client import worker_command  # noqa: E402
from backend.system.paths import embedded_model  # noqa: E402

FAKE_WORKER = [sys.executable, str(ROOT / "tests" / "fake_worker.py")]
ARCHITECTURES = ("qwen3moe", "gpt-oss", "deepseek2", "dense")
METHODS = ("auto", "lru", "promoe", "klotski")
FRAME_MS, LATE_MS = 1.0, 100.0
MAY_GROW = 0.10  # of the memory, after the first quarter
CAP_BYTES = 2 << 30
PAGES = ("settings", "models", "diagnostics", "shortcuts", "about", "server")
HOG = """
import sys
for line in sys.stdin:
    held = None
    held = bytearray(b"x") * (int(line) << 20)
    print(len(held), flush=True)
"""
really_now = time.time


class Frames:
    """The turns of the event loop: a histogram of their times, by 5 %, and the late ones."""

    def __init__(self) -> None:
        self.what = "start"  # the action under way
        self.own, self.wall = Counter[int](), Counter[int]()
        self.worst_ms: dict[str, float] = {}  # of each action, own time
        self.late: list[tuple[str, float]] = []
        self.n_late_wall = 0
        self.skip()
        self._timer = QTimer()
        self._timer.timeout.connect(self._turn)
        self._timer.start(1)

    def skip(self) -> None:
        """Do not count the time since the last turn."""
        self._last = (time.perf_counter(), time.thread_time())

    def _turn(self) -> None:
        before, self._last = self._last, (time.perf_counter(), time.thread_time())
        wall_ms, own_ms = (1000 * (b - a) for a, b in zip(before, self._last, strict=True))
        if own_ms < FRAME_MS:
            return
        self.own[round(math.log(own_ms, 1.05))] += 1
        self.wall[round(math.log(wall_ms, 1.05))] += 1
        self.n_late_wall += wall_ms > LATE_MS
        self.worst_ms[self.what] = max(self.worst_ms.get(self.what, 0.0), own_ms)
        if own_ms > LATE_MS:
            self.late.append((self.what, own_ms))

    @staticmethod
    def words(times: Counter[int]) -> str:
        """Return the percentiles of a histogram in ms."""
        n, shown, seen = times.total(), [], 0
        wanted = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)]
        for place in sorted(times):
            seen += times[place]
            while wanted and seen >= wanted[0][1] * n:
                shown.append(f"{wanted.pop(0)[0]} {1.05**place:.1f}")
        return f"{', '.join(shown)}, most {1.05 ** max(times, default=0):.0f} ms of {n:,}"


def answers(rng: random.Random, n: int) -> list[list[str]]:
    """Return pairs of a thought and an answer, with all that a window formats."""
    words = "once there **was** `a` *tin* soldier who $x^2$ stood and [looked](https://a.b) far"
    made = []
    for number in range(n):
        parts = []
        for _ in range(rng.choice((1, 1, 2, 3, 4, 8, 20))):
            kind = rng.choice(("prose", "prose", "code", "table", "list", "formula", "quote"))
            few = rng.randrange(3, 30) if rng.random() < 0.98 else 400
            if kind == "prose":
                said = " ".join(rng.choices(words.split(), k=4 * few))
                part = f"{said} soldier{rng.randrange(99)}."
            elif kind == "code":
                name = rng.choice(("python", "cpp", "rust", "json", "sh", ""))
                lines = [f"def f{k}(a: int):\n    return 'x' * {k}  # say" for k in range(few)]
                part = f"```{name}\n" + "\n".join(lines) + "\n```"
            elif kind == "table":
                rows = "\n".join(f"| {k} | name {k} | {k * k:,} |" for k in range(few))
                part = "| n | name | square |\n|--:|---|--:|\n" + rows
            elif kind == "list":
                part = "\n".join(f"- item {k} with **some** words" for k in range(few))
            elif kind == "quote":
                part = "\n".join(f"> line {k} of a letter" for k in range(few // 3))
            else:
                part = r"\[ \sum_{i=0}^{n} \frac{x_i^2}{\sqrt{\alpha + \beta}} \leq \int f(x) dx \]"
            parts.append(part)
        thought = "I think about it. " * rng.choice((0, 0, 5, 60))
        made.append([thought, "\n\n".join(parts)])
    return made


class Hog:
    """A process that takes memory beside the worker, in the worker's control group."""

    def __init__(self, join: Path) -> None:
        self._process = subprocess.Popen(
            within(join, [sys.executable, "-c", HOG]),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def hold(self, n_mib: int) -> None:
        """Hold this much; what was held before is given back."""
        assert self._process.stdin is not None and self._process.stdout is not None
        print(n_mib, file=self._process.stdin, flush=True)
        self._process.stdout.readline()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def within(join: Path, command: list[str]) -> list[str]:
    """Return a command that joins a control group and then runs another."""
    return ["sh", "-c", f'echo 0 > "{join}"; exec "$@"', "sh", *command]


class User:
    """A heavy user of one window. real: with real workers, else in simulated time."""

    def __init__(self, folder: Path, seed: int, real: bool) -> None:
        self.rng, self.real, self.folder = random.Random(seed), real, folder
        self.clock_s = 0.0  # simulated
        self.n = Counter[str]()
        self.kinds: list[Counter[str]] = []  # of the QObjects, at each sample
        self.died: list[str] = []  # workers that this program did not kill
        self.cap: MemoryCap | None = None
        self.hog: Hog | None = None
        command = worker_command() if real else FAKE_WORKER
        if real:
            with contextlib.suppress(CapRefused):
                self.cap = MemoryCap(CAP_BYTES, "life")
                self.hog = Hog(self.cap.join_path)
                command = within(self.cap.join_path, command)
        self.models = self._real_models() if real else self._fake_models()
        self.window = WindowPage(EngineLink(command), folder / "settings.json")
        self.window.library.library.may_measure = lambda: False
        self.window.resize(1440, 900)
        self.window.show()
        self.frames = Frames()
        # One of each: PySide leaks 140 bytes for each connection to a slot of Qt's own.
        self._loop, self._wake = QEventLoop(), QTimer(singleShot=True)
        self._wake.timeout.connect(self._loop.quit)
        self.load(self.models[0])

    def _real_models(self) -> list[Path]:
        embedded = embedded_model()
        made = [make_tiny(name, "Q8_0", self.folder / f"{name}.gguf") for name in ARCHITECTURES]
        return [embedded, *made] if embedded is not None else made

    def _fake_models(self) -> list[Path]:
        kinds = (
            {"token_s": 0.0, "n_layer": 8, "n_expert": 16, "n_used": 2},
            {"token_s": 0.0005, "n_layer": 2, "n_expert": 4, "n_used": 1,
             "chat": {"thinking": "switch", "thinks_by_default": True}},
            {"token_s": 0.0, "is_moe": False},
        )  # fmt: skip
        paths = [self.folder / f"model{number}.gguf" for number in range(len(kinds))]
        for path, options in zip(paths, kinds, strict=True):
            options |= {"n_token": 10**6, "answers": answers(self.rng, 150)}
            path.write_text(json.dumps(options), encoding="utf-8")
        return paths

    # Waiting

    def pause(self, time_ms: int = 20) -> None:
        """Let the window work."""
        self._wake.start(time_ms)
        self._loop.exec()

    def wait(self, is_so: Callable[[], bool], limit_s: float = 900.0) -> None:
        """Let the window work until something is so."""
        ends_s = time.monotonic() + limit_s
        while not is_so():
            if time.monotonic() > ends_s:
                state, notice = self.window.engine.state, self.window.notice
                model = self.window.engine.path
                raise SystemExit(f"{self.frames.what}: {model} stays {state}, {notice!r}")
            self.pause(5)

    def wait_idle(self) -> None:
        """Wait for the end of all answers and changes. Start a dead engine again."""
        window = self.window
        self.wait(lambda: not window.session.busy_chats or window.engine.state is State.DEAD)
        self.wait(lambda: window.engine.state in (State.IDLE, State.DEAD, State.EMPTY))
        if window.engine.state in (State.DEAD, State.EMPTY):
            if self.frames.what != "kill":
                self.died.append(f"{self.frames.what}: {window.notice}")
            self.load(self.models[0])

    # Actions, each with the seconds that a person takes

    def load(self, path: Path) -> float:
        """Load a model; if the worker dies meanwhile, count that and try once more."""
        engine, ends = self.window.engine, (State.IDLE, State.DEAD, State.EMPTY)
        self.window.open_model(path)
        self.wait(lambda: engine.state in ends)
        if engine.state is not State.IDLE:
            self.died.append(f"{self.frames.what}, {path.name}: {self.window.notice}")
            self.window.open_model(path)
            self.wait(lambda: engine.state is State.IDLE)
        return 10.0

    def ask(self) -> float:
        """Ask in the open chat; sometimes stop, or write while the answer comes."""
        window, rng = self.window, self.rng
        window.show_chat()
        words = f"Question {self.n['ask']}: " + "tell me of the sea " * rng.randrange(1, 40)
        QTest.keyClicks(window.chat.composer.input, words[:12])
        window.ask(words)
        if rng.random() < 0.15:
            self.pause(rng.randrange(5, 200))
            window.session.stop()
        elif rng.random() < 0.2:
            self.pause(rng.randrange(5, 100))
            bar = window.chat.transcript.verticalScrollBar()
            bar.setValue(rng.randrange(bar.maximum() + 1))
        elif rng.random() < 0.2:  # the answer goes on behind another chat
            self.pause(20)
            self.open_chat()
        self.wait_idle()
        return rng.uniform(5.0, 15.0)

    def new_chat(self) -> float:
        self.window.press("New chat")
        return 1.0

    def open_chat(self) -> float:
        rows = self.window.chats.rows()
        if rows:
            some = rows[: self.rng.choice((5, 50, 5000))]
            self.window.open_chat(self.rng.choice(some).id)
            self.pause(50)
            bar = self.window.chat.transcript.verticalScrollBar()
            for _ in range(5):
                bar.setValue(self.rng.randrange(bar.maximum() + 1))
                self.pause(5)
        return 4.0

    def go_back(self) -> float:
        """Ask in the first chat, which becomes long."""
        first = min((row.id for row in self.window.chats.rows()), default=0)
        if first:
            self.window.open_chat(first)
        return 3.0 + self.ask()

    def _last_answer(self) -> int:
        messages = self.window.session.conversation.messages
        ends = messages and messages[-1].role == "assistant"
        return len(messages) - 1 if ends else -1

    def retry(self) -> float:
        """Ask for another answer, or several, or have a stopped one continued; then look back."""
        window, rng, index = self.window, self.rng, self._last_answer()
        if index < 0:
            return 0.0
        kind = rng.randrange(4)
        if kind == 0:
            window.session.more_answers(index, rng.choice((2, 3)))
        elif kind == 1 and window.session.conversation.messages[index].can_go_on:
            window.session.go_on()
        else:
            window.session.regenerate(index)
        self.wait_idle()
        for _ in range(rng.randrange(3)):
            if (last := self._last_answer()) >= 0:
                window.chats.switch(last, rng.choice((-1, 1)))
                self.pause()
        return 10.0

    def edit(self) -> float:
        """Change a question: a branch begins."""
        bubbles = self.window.chat.transcript.findChildren(UserBubble)
        bubbles = [bubble for bubble in bubbles if bubble.isVisible()]
        if bubbles:
            bubble = self.rng.choice(bubbles)
            bubble.begin_edit()
            self.pause()
            bubble.edited.emit("Another question instead of that one.")
            self.wait_idle()
        return 12.0

    def search(self) -> float:
        """Type in the search, open what was found, leave it."""
        field = self.window.sidebar.search
        self.window.show_chat()
        words = self.rng.choice(("soldier", "sea and", "Question 1", "zzz"))
        QTest.keyClicks(field, words, delay=8)
        self.pause(100)
        field.clear()
        self.pause(80)
        return 6.0

    def find(self) -> float:
        """Find words in the chat."""
        bar = self.window.chat.find_bar
        if self.window.session.conversation.messages:
            bar.begin()
            QTest.keyClicks(bar.words, "soldier", delay=5)
            self.pause(250)
            for _ in range(5):
                bar.step(self.rng.choice((-1, 1)))
                self.pause()
            bar.finish()
        return 6.0

    def name(self) -> float:
        """Rename in the list, pin, put into a folder, delete and take that back."""
        window, rng, rows = self.window, self.rng, self.window.chats.rows()
        if not rows:
            return 0.0
        chat = rng.choice(rows[:30])
        window.sidebar.list.edit_name(chat.id)
        self.pause()
        if (editor := window.sidebar.list.findChild(QLineEdit)) is not None:
            editor.setText(f"Named {self.n['name']}")
            QTest.keyClick(editor, Qt.Key.Key_Return)
        window.chats.pin(chat.id, rng.random() < 0.1)
        window.chats.move(chat.id, rng.choice(("", "", "Work", "Home")))
        self.pause()
        if rng.random() < 0.3:
            window.chats.delete(chat.id)
            self.pause()
            if rng.random() < 0.5 and window.choices:
                window.press("Undo")
        return 8.0

    def menus(self) -> float:
        """Open menus, and close them without choosing."""
        window, rows = self.window, self.window.chats.rows()
        if rows:
            window.sidebar.list.menu_for(rows[0]).popup(QPoint(100, 100))
        self._close_menu()
        if self._last_answer() >= 0:
            with contextlib.suppress(AssertionError):  # no answer is in sight
                window.press("More about this answer")
            self._close_menu()
        window.top_bar.more.click()
        self._close_menu()
        window.top_bar.model.click()
        self._close_menu()
        return 5.0

    def _close_menu(self) -> None:
        self.pause(30)
        while isinstance(menu := QApplication.activePopupWidget(), QMenu):
            menu.close()
        self.pause(5)

    def export(self) -> float:
        """Write a chat, and sometimes read it again."""
        rows = self.window.chats.rows()
        if rows:
            chat = self.rng.choice(rows[:30])
            for name in ("chat.md", "chat.json"):
                self.window.exchange.export(chat.id, self.folder / name)
                self.pause(5)
            if self.rng.random() < 0.2:
                self.window.exchange.import_file(self.folder / name)
        return 10.0

    def panel(self) -> float:
        """Open the panel, ask, look back in its time line, save, close it."""
        window, rng = self.window, self.rng
        while not window.panel.isVisible():
            window.top_bar.panel.click()
        self.ask()
        if n_token := window.panel.moments.n_token:
            window.panel.choose(rng.randrange(n_token))
        for view in View:
            window.panel.show_view(view)
            self.pause(10)
        window.panel.choose(None)
        window.panel.save_tokens(self.folder / "tokens.csv")
        window.panel.save_experts(self.folder / "experts.csv")
        window.panel.save_picture(self.folder / "panel.png")
        if rng.random() < 0.3:
            window._toggle_wide()
            self.pause()
            window._toggle_wide()
        while window.panel.isVisible():
            window.top_bar.panel.click()
        return 30.0

    def pages(self) -> float:
        """Look at the pages, and at the strip of controls."""
        for name in self.rng.sample(PAGES, 3):
            self.window.pages.go(name)
            self.pause(60)
        self.window.show_chat()
        self.window.top_bar.controls.click()
        self.pause()
        self.window.top_bar.controls.click()
        return 15.0

    def dress(self) -> float:
        """Change the colours, the contrast or the size of text, and the size of the window."""
        rng, preferences = self.rng, self.window.preferences
        self.window.pages.go("settings")
        preferences.set("theme", rng.choice(("light", "dark")))
        self.pause()
        if rng.random() < 0.3:
            preferences.set("high_contrast", rng.random() < 0.3)
            self.pause()
            preferences.set("text_percent", rng.choice((100, 100, 115)))
            self.pause()
        self.window.show_chat()
        self.window.resize(rng.choice((700, 1000, 1440)), rng.choice((600, 900)))
        self.pause()
        self.window.resize(1440, 900)
        return 10.0

    def dialogs(self) -> float:
        """Open the dialog of the system prompt, and what the model saw."""
        QTimer.singleShot(150, self._close_dialog)
        self.window.chat_page.edit_preset()
        if self._last_answer() >= 0:
            self.window.chat_page.inspect(self._last_answer())
            self.pause(100)
            self._close_dialog()
        return 15.0

    def _close_dialog(self) -> None:
        for dialog in self.window.findChildren(QDialog):
            if dialog.isVisible():
                dialog.reject()

    def attach(self) -> float:
        """Attach a file, and ask about it."""
        path = self.folder / "notes.txt"
        path.write_text("notes on the sea " * self.rng.randrange(10, 200), encoding="utf-8")
        self.window.chat_page.attach([path])
        self.wait(lambda: not self.window.chat_page.attachments.is_reading)
        took_s = self.ask()
        self.window.chat_page.attachments.clear()  # files that do not fit stay in the draft
        return 10.0 + took_s

    def rate(self) -> float:
        """Change the cache rate, the method or who decides."""
        engine, rng = self.window.engine, self.rng
        if engine.model is not None:
            choice = {"automatic": rng.random() < 0.2, "method": rng.choice(METHODS)}
            choice["cache_rate"] = round(rng.uniform(0.1, 1.0), 2)
            engine.choose(type(engine.asked)(**{**vars(engine.asked), **choice}))
            self.wait_idle()
        return 8.0

    def switch_model(self) -> float:
        return self.load(self.rng.choice(self.models))

    def kill(self) -> float:
        """Kill the worker in an answer, and go on."""
        self.new_chat()
        self.window.ask("Tell me of the sea.")
        self.pause(30)
        if self.window.link.pid:
            psutil.Process(self.window.link.pid).kill()
        self.wait(lambda: self.window.engine.state is State.DEAD)
        self.wait_idle()
        return 30.0

    def take_memory(self) -> float:
        """Have the other process take memory, and give it back."""
        if self.hog is None or self.cap is None:
            return 0.0
        for share in (0.9, 0.5, 0.97, 0.0):
            free = CAP_BYTES - self.cap.memory()["used_bytes"]
            self.frames.skip()
            self.hog.hold(0 if not share else int(share * free) >> 20)
            self.frames.skip()
            self.ask()
            self.pause(1100)  # the worker looks once a second
        return 60.0

    ACTIONS = {
        "ask": 40, "new_chat": 10, "open_chat": 14, "retry": 5, "edit": 3, "search": 4, "find": 3,
        "go_back": 3, "name": 4, "menus": 4, "export": 1.5, "panel": 2, "pages": 2, "dress": 1.5,
        "dialogs": 1.5, "attach": 1.5, "rate": 2, "switch_model": 1, "kill": 0.1,
    }  # fmt: skip

    def act(self) -> None:
        """Do one thing."""
        weights = self.ACTIONS | ({"take_memory": 1.0} if self.hog is not None else {})
        what = self.frames.what = self.rng.choices(list(weights), list(weights.values()))[0]
        self.n[what] += 1
        self.clock_s += getattr(self, what)()
        self.pause(5)

    # Measuring

    def settle(self) -> None:
        """Bring the window and the worker into the state in which they are measured."""
        self.frames.what = "settle"
        window = self.window
        self.wait_idle()
        window.pages.go(CHAT)
        window.session.new_chat()
        while window.panel.isVisible():
            window.top_bar.panel.click()
        window.engine.forget_settings(type(window.engine.asked)())
        self.wait_idle()
        self.load(self.models[0])
        window.engine.dismiss()
        self.pause(TRIM_MS + 300)

    def sizes(self) -> dict[str, float]:
        """Return the figures of the window, and in real time of the worker."""
        self.settle()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        gc.collect()
        mine, chats = psutil.Process(), self.folder / "chats.db"
        objects = self.window.findChildren(QObject)
        self.kinds.append(Counter(thing.metaObject().className() for thing in objects))
        n_object = len(objects)
        objects.clear()  # with the wrappers that this list has made
        wrappers = Shiboken.getAllValidWrappers()
        self.kinds[-1].update(f"{type(thing).__name__}()" for thing in wrappers)
        found = {
            "MiB": mine.memory_info().rss / 2**20, "fd": mine.num_fds(),
            "threads": mine.num_threads(), "widgets": len(QApplication.allWidgets()),
            "objects": n_object, "wrappers": len(wrappers),
            "db MiB": sum(path.stat().st_size for path in chats.parent.glob("chats.db*")) / 2**20,
        }  # fmt: skip
        if self.real:
            worker = psutil.Process(self.window.link.pid)
            found |= {"worker MiB": worker.memory_info().rss / 2**20, "worker fd": worker.num_fds()}
            found["worker threads"] = worker.num_threads()
        self.frames.skip()
        return found

    def close(self) -> None:
        """Quit."""
        self.window.close()
        if self.hog is not None:
            self.hog.close()
        if self.cap is not None:
            time.sleep(0.5)
            self.cap.close()


def faults(samples: list[dict[str, float]], frames: Frames) -> list[str]:
    """Return what broke a limit, in sentences."""
    n_warm = max(len(samples) // 4, 1)
    warm, end = samples[:n_warm], samples[-1]
    found = []
    for key, value in end.items():
        most = max(sample[key] for sample in warm)
        if "MiB" in key:
            limit = most * (1 + MAY_GROW) if key != "db MiB" else math.inf
        else:
            spread = most - min(sample[key] for sample in warm)
            limit = most + spread + (2 if "threads" in key else 0)
        if value > limit:
            found.append(f"{key}: {value:.1f} at the end, at most {most:.1f} in the first quarter")
    if frames.late:
        found.append(f"{len(frames.late)} frames computed for more than {LATE_MS:.0f} ms")
    return found


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=8, help="of simulated time")
    parser.add_argument("--seconds", type=float, help="real time, with real workers")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    real = args.seconds is not None
    length_s = args.seconds if real else 3600 * args.hours
    every_s = min(60.0 if real else 600.0, length_s / 8)
    began_s, real_began_s = time.monotonic(), really_now()
    if not real:
        app.session.known_models.embedded_model = lambda: None
    app.library.library.known_folders = lambda: []  # the models of others are not the measured ones
    qInstallMessageHandler(lambda *_: None)  # what the plugin without a screen cannot do
    qt = QApplication([])
    qt.setStyle("Fusion")
    language.apply(qt, "en")
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        user = User(Path(name), args.seed, real)
        if not real:
            time.time = lambda: real_began_s + user.clock_s

        def now_s() -> float:
            return time.monotonic() - began_s if real else user.clock_s

        while now_s() < length_s:
            user.act()
            if now_s() >= every_s * (len(samples) + 1):
                samples.append(user.sizes())
                said = ", ".join(f"{key} {value:.4g}" for key, value in samples[-1].items())
                late = f"{len(user.frames.late)} late own, {user.frames.n_late_wall} late wall"
                load = f"load {os.getloadavg()[0]:.1f}"
                if not real and len(samples) % 3:
                    continue
                print(f"{now_s() / 60:6.1f} min: {said}; {late}; {load}", flush=True)
        user.close()
    frames = user.frames
    took_s = time.monotonic() - began_s
    print(f"\n{now_s() / 3600:.2f} hours {'real' if real else 'simulated'}, {took_s:.0f} s")
    print("did: " + ", ".join(f"{n} {what}" for what, n in user.n.most_common()))
    for key in samples[-1]:
        values = [sample[key] for sample in samples]
        quarters = [values[int(share * (len(values) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)]
        print(f"{key:>15}: " + "  ".join(f"{value:10.1f}" for value in quarters))
    print(f"frames, own:  {frames.words(frames.own)}; {len(frames.late)} over {LATE_MS:.0f}")
    print(f"frames, wall: {frames.words(frames.wall)}; {frames.n_late_wall} over {LATE_MS:.0f}")
    more = user.kinds[-1] - user.kinds[max(len(samples) // 4, 1) - 1]
    said = ", ".join(f"{n} {kind}" for kind, n in more.most_common(12))
    print(f"more QObjects, and wrappers(), than after the first quarter: {said or 'none'}")
    worst = sorted(frames.worst_ms.items(), key=lambda item: -item[1])[:8]
    print("longest by action, own ms: " + ", ".join(f"{what} {ms:.0f}" for what, ms in worst))
    print(f"load of the machine: {os.getloadavg()}")
    found = faults(samples, frames) + [f"a worker died: {said}" for said in user.died]
    print("\n".join(found) or "Nothing grew, and no frame was late.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
