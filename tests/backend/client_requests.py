"""The conversations of the recorded requests in tests/data/clients."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from backend.server.anthropic_messages import read_message
from backend.server.openai_chat import read_chat
from backend.server.openai_responses import Kept, read_response

DATA = Path(__file__).resolve().parents[1] / "data" / "clients"
_READERS = {
    "chat/completions": read_chat,
    "responses": lambda body: read_response(body, Kept()),
    "messages": read_message,
}


@cache
def conversations() -> tuple[tuple[list[dict[str, Any]], dict[str, Any]], ...]:
    """Return the messages and options of requests without images, one of each shape."""
    found: dict[Any, Any] = {}
    for path in sorted(DATA.glob("*.json")):
        for request in json.loads(path.read_text(encoding="utf-8"))["requests"]:
            reader = _READERS.get(request["path"].partition("?")[0].removeprefix("/v1/"))
            if reader is None:
                continue
            ask = reader(request["body"])
            options = ask.options.to_json()
            shape = *((m["role"], *sorted(m)) for m in ask.messages), bool(options.get("tools"))
            if not ask.has_images:
                found.setdefault(shape, (list(ask.messages), options))
    return tuple(found.values())
