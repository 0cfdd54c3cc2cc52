"""Change every byte of the first pages of a file of chats; open and use it each time.

    python tests/benchmarks/damaged_chats.py [--step 1] [--pages 2]

After each change the store must list, search, load and change chats, or refuse one chat with a
sentence. A file that is not used must be set aside whole. Print the count of each outcome, and the
failures. The exit status is 1 if there is a failure.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from app.state.conversation import Message  # noqa: E402
from app.store.chats import ChatStore  # noqa: E402
from app.store.exchange import to_json  # noqa: E402
from app.store.schema import StoreError  # noqa: E402

PAGE_BYTES = 4096


def fill(path: Path) -> bytes:
    """Write a file with some chats. Return its bytes."""
    store = ChatStore.open(path)
    for number in range(3):
        chat_id = store.new_chat(f"chat {number}")
        question, answer = Message("user", f"question {number}"), Message("assistant", "an answer")
        store.add(chat_id, 0, question)
        store.add(chat_id, question.id, answer)
    store.close()
    return path.read_bytes()


def use(path: Path) -> str:
    """Open the file and do all that a window does with it. Return the outcome."""
    store = ChatStore.open(path)
    outcome = "set aside" if "broken-1" in store.trouble else "in memory" if store.trouble else ""
    try:
        for row in store.chats():
            assert isinstance(row.title, str) and isinstance(row.changed_s, float)
            conversation = store.load(row.id)
            assert conversation is None or all(
                isinstance(message.content, str) for message in conversation.messages
            )
            to_json(store, [row.id])
        store.search("question")
        chat_id = store.new_chat("new")
        store.add(chat_id, 0, Message("user", "more"))
        store.rename(chat_id, "newer")
    except StoreError as error:
        assert str(error).endswith(".")
        outcome = outcome or "a sentence later"
    finally:
        store.close()
    return outcome or "usable"


def changes(data: bytes, pages: int, step: int) -> Iterator[tuple[int, bytes]]:
    """Yield (place, file with that byte changed), in four ways for each place."""
    for place in range(0, min(pages * PAGE_BYTES, len(data)), step):
        for value in {0x00, 0xFF, data[place] ^ 0x01, data[place] ^ 0x80} - {data[place]}:
            yield place, data[:place] + bytes([value]) + data[place + 1 :]


def run(folder: Path, pages: int, step: int) -> tuple[Counter[str], list[str]]:
    """Try all changes. Return the outcomes and the failures."""
    path = folder / "chats.db"
    data = fill(path)
    outcomes: Counter[str] = Counter()
    failures = []
    for place, changed in changes(data, pages, step):
        for file in folder.iterdir():
            file.unlink()
        path.write_bytes(changed)
        try:
            outcome = use(path)
            aside = path.with_name("chats.broken-1.db")
            assert (outcome == "set aside") == aside.exists()
            assert outcome != "set aside" or aside.read_bytes() == changed
        except Exception:
            outcome = "FAILED"
            failures.append(f"byte {place} = {changed[place]:#x}\n{traceback.format_exc()}")
        outcomes[outcome] += 1
    return outcomes, failures


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", type=int, default=1, help="try every STEP-th byte")
    parser.add_argument("--pages", type=int, default=2, help="pages from the beginning")
    args = parser.parse_args()
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        outcomes, failures = run(Path(folder), args.pages, args.step)
    for failure in failures[:20]:
        print(failure)
    print(", ".join(f"{number} {outcome}" for outcome, number in outcomes.most_common()))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
