"""Kill the window and its worker at random moments, and look for acknowledged data.

    python tests/benchmarks/chat_kills.py [--rounds 200] [--seed 1]

Each round starts a window without a screen on the same file of chats. The window sends, streams
answers, changes questions, asks again, renames, deletes and undoes. It writes to a pipe what it has
shown as done: this is acknowledged. At a random moment the window is killed with SIGKILL, in every
third round its worker first. Then the file must pass its integrity check, and must have every
message, name and deletion acknowledged in this round or an earlier one. An answer may be longer
than acknowledged. A name or a deletion may be replaced by one that began before the kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def window_main(folder: Path, seed: int) -> None:
    """Run the window that will be killed. Act at random until then."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    sys.path[:0] = [str(ROOT), str(TESTS / "app")]
    from PySide6.QtCore import QTimer
    from PySide6.QtWidgets import QApplication

    import app.session.known_models
    from app.session.worker_link import EngineLink
    from app.state.engine_state import State
    from app.window.main_window import MainWindow

    fake_worker = [sys.executable, str(TESTS / "fake_worker.py")]
    app.session.known_models.embedded_model = lambda: None
    qt = QApplication([])
    window = MainWindow(EngineLink(fake_worker), folder / "settings.json")
    rng = random.Random(seed)
    deleted: list[int] = []

    def tell(kind: str, **fields: Any) -> None:
        print(json.dumps({"kind": kind, **fields}), flush=True)

    def shown() -> None:
        """Tell the messages on the screen. Of a growing answer, the stored part counts."""
        for message in window.session.conversation.messages:
            if message.id and message.role == "user":
                tell("message", id=message.id, text=message.content)
            elif message.id and not message.is_live:
                tell("begun", id=message.id, text=message.content)
            elif message.id:
                n_saved = window.chats.n_saved(message)
                tell("begun", id=message.id, text=message.content[:n_saved])

    def act() -> None:
        session, chats = window.session, window.chats
        kind = rng.choice("send send send edit again stop rename delete undo new open wait".split())
        n_message = len(session.conversation.messages)
        if kind == "send" and session.can_send:
            session.send(f"Question {rng.random()} " + "word " * rng.randrange(40))
        elif kind == "edit" and n_message:
            session.edit(rng.randrange(0, n_message, 2), f"Other question {rng.random()}")
        elif kind == "again" and n_message > 1:
            session.regenerate(rng.randrange(1, n_message, 2))
        elif kind == "stop":
            session.stop()
        elif kind == "rename" and chats.open_id:
            title = f"name {rng.random()}"
            tell("renaming", id=chats.open_id, text=title)
            chats.rename(chats.open_id, title)
            tell("renamed", id=chats.open_id, text=title)
        elif kind == "delete" and chats.open_id and n_message > 4:
            deleted.append(chats.open_id)
            tell("deleting", id=deleted[-1])
            chats.delete(deleted[-1])
            tell("deleted", id=deleted[-1])
        elif kind == "undo" and deleted and window.chat.banner.buttons:
            if window.chat.banner.buttons[0].text() == "Undo":
                tell("restoring", id=deleted[-1])
                window.chat.banner.buttons[0].click()
                tell("restored", id=deleted[-1])
        elif kind == "new":
            window.top_bar.new_chat.click()
        elif kind == "open" and chats.rows():
            chats.open(rng.choice(chats.rows()[:5]).id)
        shown()
        if session.engine.state is State.DEAD:
            session.go_on()

    timer = QTimer(window)
    timer.timeout.connect(act)
    telling = QTimer(window)
    telling.timeout.connect(shown)

    def begin(state: State) -> None:
        """Start the kill's clock here: the time while a model loads is not tested."""
        if state is State.IDLE and not timer.isActive():
            tell("ready", pid=window.link.pid)
            timer.start(15)
            telling.start(10)

    withdraw = window.chats.store.withdraw

    def take_back(chat_id: int, messages: list[Any]) -> None:
        for message in messages:
            tell("withdrawing", id=message.id, text=message.content)
        withdraw(chat_id, messages)

    window.chats.store.withdraw = take_back  # type: ignore[method-assign]
    window.engine.state_changed.connect(begin)
    window.show()
    window.open_model(folder / "model.gguf")
    qt.exec()


class Expected:
    """The data acknowledged so far."""

    def __init__(self) -> None:
        self.final: dict[int, str] = {}  # messages that must be equal to these
        self.begun: dict[int, str] = {}  # answers that must begin with these
        self.titles: dict[int, set[str]] = {}  # the last name, and those begun after it
        self.deleted: set[int] = set()
        self.unsure: set[int] = set()  # deletion or return not acknowledged
        self.withdrawn: dict[int, str] = {}  # questions that are messages or drafts, and answers
        self.homes: dict[int, int] = {}  # message id -> chat id, of all messages ever seen
        self.n_told = 0

    def take(self, line: str) -> None:
        try:
            told = json.loads(line)
        except ValueError:
            return  # cut off by the kill
        self.n_told += 1
        kind, number = told["kind"], told.get("id", 0)
        if kind == "message":
            self.final[number] = told["text"]
        elif kind == "begun":
            self.begun[number] = told["text"]
        elif kind == "renaming" and number in self.titles:
            self.titles[number].add(told["text"])
        elif kind == "renamed":
            self.titles[number] = {told["text"]}
        elif kind == "withdrawing":
            self.withdrawn[number] = told["text"]
        elif kind in ("deleting", "restoring"):
            self.unsure.add(number)
        elif kind == "deleted":
            self.unsure.discard(number)
            self.deleted.add(number)
        elif kind == "restored":
            self.unsure.discard(number)
            self.deleted.discard(number)

    def lost(self, path: Path) -> list[str]:
        """Return a sentence for each difference from the acknowledged data."""
        faults = []
        with closing(sqlite3.connect(path)) as reader:
            if reader.execute("PRAGMA integrity_check").fetchone() != ("ok",):
                faults.append("the file is not sound")
            if reader.execute("PRAGMA foreign_key_check").fetchall():
                faults.append("references lead nowhere")
            said = dict(reader.execute("SELECT id, content FROM message"))
            self.homes.update(reader.execute("SELECT id, chat_id FROM message"))
            chats = {
                number: (title, gone is not None)
                for number, title, gone in reader.execute("SELECT id, title, deleted_s FROM chat")
            }
            for number, text in reader.execute(
                "SELECT message_id, content FROM piece ORDER BY message_id, number"
            ).fetchall():
                said[number] += text
            drafts = "\n".join(text for (text,) in reader.execute("SELECT text FROM draft"))
        gone = self.deleted | self.unsure
        for number in [number for number in self.withdrawn if number not in said]:
            question = self.final.pop(number, "")
            self.begun.pop(number, None)
            if question not in drafts and self.homes.get(number) not in gone:
                faults.append(f"question {number} is neither a message nor a draft")
        for number, text in list(self.final.items()):
            if number not in said:
                if self.homes.get(number) in gone:  # purged with its chat
                    del self.final[number]
                else:
                    faults.append(f"message {number} is gone")
            elif said[number] != text:
                faults.append(f"message {number} is {said[number]!r}, not {text!r}")
        for number, text in self.begun.items():
            if number in said and not said[number].startswith(text.rstrip()):
                faults.append(f"answer {number} lost its end: {said[number]!r}, not {text!r}")
            if number not in said and self.homes.get(number) not in gone:
                faults.append(f"answer {number} is gone")
        for number, titles in self.titles.items():
            if number not in gone and chats.get(number, ("",))[0] not in titles:
                faults.append(f"chat {number} has another name")
        for number in self.deleted - self.unsure:
            if number in chats and not chats[number][1]:
                faults.append(f"chat {number} is back")
        return faults


def one_round(folder: Path, seed: int, expected: Expected, worker_first: bool) -> int:
    """Start a window, kill it, and return the number of things that it acknowledged."""
    rng = random.Random(seed)
    process = subprocess.Popen(
        [sys.executable, __file__, "--window", str(folder), "--seed", str(seed)],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    worker = json.loads(process.stdout.readline())["pid"]
    wait_s = rng.uniform(0.05, 1.2)
    if worker_first:
        time.sleep(wait_s * rng.random())
        os.kill(worker, signal.SIGKILL)
    time.sleep(wait_s)
    process.kill()
    before = expected.n_told
    for line in process.stdout:
        expected.take(line)
    process.wait()
    return expected.n_told - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--window", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.window:
        window_main(options.window, options.seed)
        return 0
    n_fault = n_told = 0
    seen: set[str] = set()
    expected = Expected()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "model.gguf").write_text(json.dumps({"token_s": 0.004}))
        for number in range(options.rounds):
            seed = options.seed * 1000 + number
            n_told += one_round(folder, seed, expected, worker_first=number % 3 == 0)
            faults = expected.lost(folder / "chats.db")
            new = set(faults) - seen
            seen |= new
            n_fault += len(new)
            for fault in sorted(new)[:5]:
                print(f"round {number}: {fault}", flush=True)
            if any("broken" in path.name for path in folder.iterdir()):
                print(f"round {number}: the file was set aside")
                n_fault += 1
    print(f"{options.rounds} rounds, {n_told:,} acknowledgements, {n_fault} lost or wrong")
    return 1 if n_fault else 0


if __name__ == "__main__":
    sys.exit(main())
