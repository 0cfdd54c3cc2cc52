"""A scripted worker through both transports: the same text and the same sentence."""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from window_samples import WAIT_MS

from app.session.worker_link import EngineLink
from backend.protocol.chat import ChatOptions
from backend.protocol.client import WorkerClient, WorkerDied
from backend.protocol.messages import EXIT_PROTOCOL, VERSION

WORKER = [sys.executable, str(Path(__file__).parents[1] / "fake_worker.py")]
HELLO = {"type": "hello", "version": VERSION}
ASKED = [HELLO, {"await": "generate"}, {"type": "text", "id": "generate", "text": "a"}]
DONE = {"type": "done", "id": "generate", "reason": "stop", "stats": {}}
PREFILL = '{"type":"prefill","done":1e999,"total":2}'


def blocking(qtbot: Any, script: list[Any]) -> tuple[str, str]:
    text = ""
    try:
        with WorkerClient([*WORKER, json.dumps(script)]) as client:
            for message in client.request("generate", messages=[], sampling={}, max_tokens=-1):
                text += message.get("text", "")
    except WorkerDied as error:
        return text, str(error)
    return text, ""


def qt(qtbot: Any, script: list[Any]) -> tuple[str, str]:
    link = EngineLink([*WORKER, json.dumps(script)])
    texts: list[str] = []
    ends: list[str] = []
    link.text.connect(lambda _, raw: texts.append(raw))
    link.died.connect(ends.append)
    link.done.connect(lambda *_: ends.append(""))
    link.start()
    link.generate([], {}, ChatOptions())
    qtbot.waitUntil(lambda: bool(ends), timeout=WAIT_MS)
    assert link.is_running == (ends == [""])
    link.shut_down()
    assert len(ends) == 1
    return "".join(texts), ends[0]


@pytest.mark.parametrize("transport", [blocking, qt])
@pytest.mark.parametrize(
    ("script", "text", "words"),
    [
        ([*ASKED, {"type": "text", "id": "generate", "text": "b"}, DONE], "ab", ""),
        ([{"raw": "\0\0\0\0"}], "", "could not be understood"),
        ([{**HELLO, "version": 0}], "", "another version"),
        ([*ASKED, {"raw": "Bus error"}], "a", "could not be understood"),
        ([*ASKED, {"raw": f"\0\0\0{chr(len(PREFILL))}{PREFILL}"}], "a", "could not be understood"),
        ([*ASKED, {"stderr": "GGML_ASSERT(a) failed"}, {"exit": 1}], "a", "failed check (a)"),
        ([*ASKED, {"kill": int(signal.SIGTERM)}], "a", "told to end"),
        (
            [*ASKED, {"type": "error", "message": "Refused."}, {"exit": EXIT_PROTOCOL}],
            "a", "Refused.",
        ),
    ],
    ids="whole empty version garbage infinite check killed refused".split(),
)  # fmt: skip
def test_both_transports_hear_the_same(
    qtbot: Any, transport: Any, script: list[Any], text: str, words: str
) -> None:
    heard, sentence = transport(qtbot, script)
    assert heard == text and words in sentence and bool(words) == bool(sentence)
