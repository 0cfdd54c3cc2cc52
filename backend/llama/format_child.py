"""The process that renders conversations and splits answers with llama.cpp's chat layer.

Templates come from model files and are not trusted: one may loop, grow or crash. So they run here,
and the parent (backend/llama/chat_format.py) replaces this process. It writes requests to standard
input and reads one reply for each from standard output, framed as in backend/protocol/messages.py:

    {"template", "bos", "eos", "control", "framing"}
                                       sets the template, and the texts of tokens for its guard
    {"facts"}                          ChatFacts' fields
    {"render", "options"}              messages and ChatOptions -> Rendered's fields
    {"open", "shown", "text", "final"} begins an answer: what render returned as "parser", what was
                                       returned before, its text so far -> Delta's fields
    {"text", "final"}                  further text of that answer -> Delta's fields
    {"schema", "is_text"}              why nothing can be held to what Gap has: {"fault"}

Each request has "limit_s", the processor time that it may take; this process ends when it takes
more, and when its input ends. A request that fails is answered with {"error"}, the reason.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from backend.llama.conversation_format import AnswerSplitter, ConversationFormat
from backend.protocol.messages import Decoder, Message, ProtocolError, encode
from backend.system.limits import limit_memory, time_limit
from backend.system.pipes import die_with_parent, private_pipes
from backend.text import text

_MEMORY_LIMIT_BYTES = 512 << 20
_REASON_CHARS_MAX = 200
_READ_BYTES = 1 << 16


def main() -> int:
    """Answer requests until standard input ends."""
    in_fd, out_fd = private_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    die_with_parent()
    limit_memory(_MEMORY_LIMIT_BYTES)
    decoder, service = Decoder(), Service()
    with os.fdopen(out_fd, "wb") as out:
        while data := os.read(in_fd, _READ_BYTES):
            for request in decoder.feed(data):
                with time_limit(request["limit_s"]):
                    reply = service.reply(request)
                out.write(reply)
                out.flush()
    return 0


def _reason(sentence: str) -> str:
    """Return the sentence in an error of llama.cpp's template engine.

    It adds to each line of the stack "Error: ..." and puts the place in the template before it.
    """
    lines = [line.strip() for line in sentence.splitlines() if line.strip()]
    named = [line.partition("Error: ")[2] for line in lines if "Error: " in line]
    first = (named or lines or ["unknown"])[0]
    return first.removeprefix("Jinja Exception: ").rstrip(".")[:_REASON_CHARS_MAX]


class Service:
    """A template, and the answer that is being read."""

    def __init__(self) -> None:
        self._source: Message = {}
        self._format: ConversationFormat | None = None
        self._splitter: AnswerSplitter | None = None

    def reply(self, request: Message) -> bytes:
        """Return the frame of the reply to a request."""
        try:
            return encode(self._answer(request))
        except MemoryError:
            reason: str = text("template.memory")
        except ProtocolError:
            reason = text("template.long_prompt")
        except Exception as error:
            reason = _reason(str(error) or type(error).__name__)
        return encode({"error": reason})

    def _answer(self, request: Message) -> Message:
        if "template" in request:
            self._source, self._format = request, None
            return {}
        if "render" in request:
            return self._template().render(request["render"], request["options"])
        if "facts" in request:
            return self._template().facts().to_json()
        if "schema" in request:
            from backend.llama.json_matcher import fault  # heavy, and few templates need it

            return {"fault": fault(request["schema"], request["is_text"])}
        if "open" in request:
            self._splitter = AnswerSplitter(request["open"], request["shown"])
        assert self._splitter is not None
        return self._splitter.feed(request["text"], is_final=request["final"]).to_json()

    def _template(self) -> ConversationFormat:
        """Return the template, parsed under the time limit of its first use."""
        if self._format is None:
            source: Any = self._source
            self._format = ConversationFormat(
                source["template"],
                source["bos"],
                source["eos"],
                source["control"],
                source["framing"],
            )
        return self._format


if __name__ == "__main__":
    sys.exit(main())
