"""The process that renders a chat template. A template comes from a model file and is not trusted.

The parent (backend/llama/chat_template.py) writes requests to standard input and reads one reply
to each from standard output, framed as in backend/protocol/messages.py:

    {"template", "bos", "eos"}               sets the template; no reply
    {"messages", "add_generation_prompt",    {"prompt"}, or {"error"} with the reason
     "limit_s"}

The process ends with its input, or when a request takes more than limit_s of processor time.
Jinja's immutable sandbox keeps a template from running other code. Filters, extensions and
variables are those that Transformers gives to templates.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
from typing import Any

from jinja2 import Environment
from jinja2.ext import Extension, LoopControlExtension
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from backend.protocol.messages import Decoder, Message, ProtocolError, encode
from backend.system.limits import limit_memory, time_limit
from backend.system.pipes import die_with_parent, private_pipes

_MEMORY_LIMIT_BYTES = 512 << 20
_REASON_CHARS_MAX = 200
_READ_BYTES = 1 << 16


def main() -> int:
    """Answer requests until standard input ends."""
    in_fd, out_fd = private_pipes()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is for the parent
    die_with_parent()
    limit_memory(_MEMORY_LIMIT_BYTES)
    decoder, renderer = Decoder(), _Renderer()
    with os.fdopen(out_fd, "wb") as out:
        while data := os.read(in_fd, _READ_BYTES):
            for request in decoder.feed(data):
                if "template" in request:
                    renderer.set(request)
                    continue
                with time_limit(request["limit_s"]):
                    reply = renderer.reply(request)
                out.write(reply)
                out.flush()
    return 0


class _Renderer:
    """A template, compiled at the first rendering, which has a time limit."""

    def __init__(self) -> None:
        self._source: Message = {}
        self._template: Any = None

    def set(self, source: Message) -> None:
        self._source, self._template = source, None

    def reply(self, request: Message) -> bytes:
        """Return the frame of the reply to a request."""
        try:
            return encode({"prompt": self._render(request)})
        except MemoryError:
            reason = "it needs too much memory"
        except ProtocolError:
            reason = "it made a prompt of absurd length"
        except Exception as error:
            lines = str(error).splitlines() or [type(error).__name__]
            reason = lines[0].rstrip(".")[:_REASON_CHARS_MAX]
        return encode({"error": reason})

    def _render(self, request: Message) -> str:
        if self._template is None:
            self._template = _environment().from_string(self._source["template"])
        prompt: str = self._template.render(
            messages=request["messages"],
            add_generation_prompt=request["add_generation_prompt"],
            bos_token=self._source["bos"],
            eos_token=self._source["eos"],
            raise_exception=_raise,
            strftime_now=lambda form: datetime.datetime.now().strftime(form),
            tools=None,
            tool_choice=None,
            functions=None,
            function_call=None,
        )
        return prompt


class _Generation(Extension):
    """The tag {% generation %}, which marks answers for training; rendering passes it through."""

    tags = {"generation"}  # noqa: RUF012 (as Jinja declares it)

    def parse(self, parser: Parser) -> Node | list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
    )
    environment.filters["tojson"] = _to_json
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return JSON for a model, where Jinja's own filter returns JSON for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(reason: str) -> None:
    raise ValueError(reason)


if __name__ == "__main__":
    sys.exit(main())
