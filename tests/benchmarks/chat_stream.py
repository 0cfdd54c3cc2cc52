"""Measure the delays of the window while a long answer streams, and the delay of Stop.

    python tests/benchmarks/chat_stream.py [--tokens 20000] [--rate 400] [--stops 20]

A fake engine behind the real worker sends an answer of code, tables, lists and thousands of short
lines. A timer of one millisecond measures the time between two turns of the event loop, as wall
time and as the GUI thread's processor time. Wall time includes the time of other programs. Then
answers are stopped at random moments, and the program measures the time from the key to the end of
the answer in the engine. The screen changes at once. Qt paints into memory, without a screen.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "app")]

from PySide6.QtCore import QEventLoop, QTimer  # noqa: E402
from PySide6.QtWidgets import QApplication  # noqa: E402

import app.session.known_models  # noqa: E402
from app.session.worker_link import EngineLink  # noqa: E402
from app.state.engine_state import State  # noqa: E402
from app.window.main_window import MainWindow  # noqa: E402

FAKE_WORKER = [sys.executable, str(ROOT / "tests" / "fake_worker.py")]


def answer(n_token: int) -> str:
    """Return a text of about this many words, with everything that is slow to show."""
    rng = random.Random(3)
    parts: list[str] = []
    n_word = 0
    while n_word < n_token:
        kind = rng.choice(("prose", "code", "table", "list", "lines", "lines"))
        if kind == "prose":
            part = " ".join(
                rng.choices(("once", "there", "**was**", "`a`", "*tin*", "$x^2$"), k=120)
            )
        elif kind == "code":
            lines = [f"def f{k}(a: int) -> str:\n    return 'x' * {k}  # say" for k in range(40)]
            part = "```python\n" + "\n".join(lines) + "\n```"
        elif kind == "table":
            rows = [f"| {k} | name {k} | {k * k:,} | yes |" for k in range(30)]
            part = "| n | name | square | ok |\n|--:|---|--:|:-:|\n" + "\n".join(rows)
        elif kind == "list":
            part = "\n".join(f"- item {k} with **some** words" for k in range(30))
        else:
            part = "\n".join(f"line {k}" for k in range(200))
        n_word += len(part.split())
        parts.append(part)
    return "\n\n".join(parts)


def pause(time_ms: int) -> None:
    loop = QEventLoop()
    QTimer.singleShot(time_ms, loop.quit)
    loop.exec()


def wait_for(condition: Callable[[], bool], limit_s: float = 240) -> None:
    ends_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > ends_s:
            raise SystemExit("The window did not get so far.")
        pause(5)


class Turns:
    """Measures the gaps between the turns of the event loop."""

    def __init__(self) -> None:
        self.wall_ms: list[float] = []
        self.own_ms: list[float] = []
        self._last = (time.perf_counter(), time.thread_time())
        self._timer = QTimer()
        self._timer.timeout.connect(self._turn)
        self._timer.start(1)

    def _turn(self) -> None:
        now = (time.perf_counter(), time.thread_time())
        self.wall_ms.append(1000 * (now[0] - self._last[0]))
        self.own_ms.append(1000 * (now[1] - self._last[1]))
        self._last = now

    def report(self, what: str) -> None:
        self._timer.stop()
        for name, values in (("wall", sorted(self.wall_ms)), ("own", sorted(self.own_ms))):
            shown = ", ".join(
                f"{label} {values[min(int(share * len(values)), len(values) - 1)]:.1f}"
                for label, share in (("50 %", 0.5), ("99 %", 0.99), ("99.9 %", 0.999), ("all", 1.0))
            )
            late = sum(value > 50 for value in values)
            print(f"{what}, {name} ms: {shown}; {late} of {len(values):,} over 50", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=400.0, help="tokens per second")
    parser.add_argument("--stops", type=int, default=20)
    options = parser.parse_args()
    app.session.known_models.embedded_model = lambda: None
    qt = QApplication([])
    qt.setStyle("Fusion")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "model.gguf"
        model.write_text(
            json.dumps(
                {
                    "text": answer(options.tokens),
                    "token_s": 1 / options.rate,
                    "n_token": 10**6,
                    "n_layer": 4,
                }
            )
        )
        window = MainWindow(EngineLink(FAKE_WORKER), folder / "settings.json")
        window.resize(1440, 900)
        window.show()
        window.open_model(model)
        session = window.session
        wait_for(lambda: session.engine.state is State.IDLE)
        session.send("Write a lot.")
        pause(300)
        turns = Turns()
        wait_for(lambda: session.engine.state is State.IDLE)
        last = session.conversation.last
        assert last is not None and last.statistics is not None
        turns.report(f"an answer of {last.statistics.n_token:,} tokens")
        rng = random.Random(1)
        times_ms = []
        for _ in range(options.stops):
            session.new_chat()
            session.send("Write a lot.")
            pause(rng.randrange(20, 900))
            begin = time.perf_counter()
            session.stop()
            wait_for(lambda: session.engine.state is State.IDLE)
            times_ms.append(1000 * (time.perf_counter() - begin))
        if times_ms:
            print(
                f"{len(times_ms)} stops, ms: half within {statistics.median(times_ms):.0f}, "
                f"all within {max(times_ms):.0f}"
            )
        chat_id = window.chats.rows()[-1].id
        window.chats.open(chat_id)
        session.new_chat()
        turns = Turns()
        pause(50)
        window.chats.open(chat_id)
        pause(4000)
        turns.report("opening that chat again")
        window.close()


if __name__ == "__main__":
    main()
