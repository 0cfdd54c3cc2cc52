"""Measure how long ten thousand chats take to open, to list and to search.

    python tests/benchmarks/chats_many.py [--chats 10000] [--messages 50] [--keep FILE]

Write chats of random words (some common, most rare, as in real text). Print the time to open the
file, to list it, to start the window on it, to open a chat, and to search for words typed letter by
letter.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from app.state.conversation import Message  # noqa: E402
from app.store.chats import ChatStore  # noqa: E402
from app.store.search import find_said  # noqa: E402

SYLLABLES = "ka lo mi ter ran sol den ver ing the est pro con str all under wor".split()
TYPED = ("soldier", "the", "ka", "kalomi", "terran solden", "proconver", "zzzz", "the ing")


def vocabulary(rng: random.Random, n_word: int = 30_000) -> list[str]:
    words = {"the", "and", "soldier", "river", "what", "why", "of", "a", "to", "in"}
    while len(words) < n_word:
        words.add("".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))))
    return sorted(words, key=lambda word: (len(word), word))


def fill(path: Path, n_chat: int, n_message: int) -> None:
    """Write the chats with the store's own tables, many in one transaction."""
    rng = random.Random(5)
    words = vocabulary(rng)
    weights = [1 / rank for rank in range(1, len(words) + 1)]  # Zipf
    pool = rng.choices(words, weights, k=400_000)
    store = ChatStore.open(path)
    connection = store.connection
    connection.execute("PRAGMA wal_autocheckpoint = 20000")
    for first in range(0, n_chat, 200):
        with store.writing(durable=False):
            for chat in range(first, min(first + 200, n_chat)):
                begin = rng.randrange(len(pool) - 8)
                chat_id = connection.execute(
                    "INSERT INTO chat (title, created_s, changed_s) VALUES (?, ?, ?)",
                    (" ".join(pool[begin : begin + 6]), chat, chat),
                ).lastrowid
                parent = None
                for number in range(n_message):
                    n_word = rng.randint(60, 160) if number % 2 else rng.randint(5, 30)
                    begin = rng.randrange(len(pool) - n_word)
                    parent = connection.execute(
                        "INSERT INTO message (chat_id, parent_id, role, content, ending, "
                        "created_s) VALUES (?, ?, ?, ?, 'finished', ?)",
                        (
                            chat_id, parent, "assistant" if number % 2 else "user",
                            " ".join(pool[begin : begin + n_word]), chat,
                        ),
                    ).lastrowid  # fmt: skip
                connection.execute("UPDATE chat SET leaf_id = ? WHERE id = ?", (parent, chat_id))
    store.close()


def timed(what: str, action: Callable[[], object], n: int = 1) -> float:
    times = []
    for _ in range(n):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    worst = f", worst {1000 * max(times):.1f} ms" if n > 1 else ""
    print(f"{what}: {1000 * statistics.median(times):.1f} ms{worst}", flush=True)
    return max(times)


def start_window(path: Path, folder: Path) -> None:
    """Open the window on the chats and wait until it has been painted."""
    from PySide6.QtWidgets import QApplication

    from app.session.worker_link import EngineLink
    from app.window.main_window import MainWindow

    app = QApplication.instance() or QApplication([])
    window = MainWindow(
        EngineLink(["/nonexistent"]), folder / "settings.json", ChatStore.open(path)
    )
    window.show()
    app.processEvents()
    window.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chats", type=int, default=10_000)
    parser.add_argument("--messages", type=int, default=50)
    parser.add_argument("--keep", type=Path, help="a file to keep, and to use if it is there")
    parser.add_argument("--no-window", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "chats.db"
        if not path.exists():
            timed(
                f"write {options.chats:,} chats of {options.messages} messages",
                lambda: fill(path, options.chats, options.messages),
            )
        print(f"size: {path.stat().st_size / 2**20:.0f} MiB")
        timed("open the file and close it", lambda: ChatStore.open(path).close(), 5)
        store = ChatStore.open(path)
        timed("list all chats", lambda: store.chats(), 5)
        newest = store.chats()[0].id
        timed("open a chat", lambda: store.load(newest), 5)
        slowest = 0.0
        for text in TYPED:
            for n in range(1, len(text) + 1):
                begin = time.perf_counter()
                found = store.search(text[:n])
                took = time.perf_counter() - begin
                slowest = max(slowest, took)
                print(f"search {text[:n]!r}: {1000 * took:.1f} ms, {len(found)} chats")
        print(f"slowest search: {1000 * slowest:.1f} ms")
        for text in TYPED:  # without matches in titles, which may fill the list
            words = text.split()
            timed(
                f"messages with {text!r}",
                lambda words=words: find_said(store.connection, words, {}),
                3,
            )
        said = store.load(newest)
        assert said is not None
        last = said.messages[-1].id
        timed("keep a question", lambda: store.add(newest, last, Message("user", "word " * 20)), 20)
        store.close()
        if not options.no_window:
            timed("start the window", lambda: start_window(path, Path(folder)), 3)


if __name__ == "__main__":
    main()
