"""A server's tool, and how it is offered to a model."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from backend.protocol.chat import Json
from backend.text import text
from backend.tools.plain_text import clean, clean_json, shorten

NAME_CHARS_MAX = 64
"""Longest name of a tool that models and clients accept."""
_DESCRIPTION_CHARS_MAX = 2_000
_SCHEMA_BYTES_MAX = 16_000
_NAME_CHARS_MAX = 128  # of the server's own name
_HASH_CHARS = 6


@dataclass(frozen=True)
class Tool:
    """A tool as its server describes it. name: the server's name of it.

    schema: the JSON schema of the arguments. fault: why it cannot be offered, a sentence, or "".
    """

    server: str
    name: str
    description: str
    schema: Json
    fault: str = ""

    @classmethod
    def read(cls, server: str, name: str, description: str, schema: Mapping[str, Any]) -> Self:
        """Return a tool from untrusted values, cleaned and limited in size."""
        described = shorten(clean(description), _DESCRIPTION_CHARS_MAX)
        shown, fault, cleaned = clean(name)[:_NAME_CHARS_MAX], "", {}
        try:
            cleaned = clean_json(dict(schema))
        except ValueError:
            fault = text("tools.deep_schema")
        try:
            n_byte = len(json.dumps(cleaned, allow_nan=False))
            if n_byte > _SCHEMA_BYTES_MAX:
                fault = text("tools.large_schema", n_byte=n_byte, limit=_SCHEMA_BYTES_MAX)
        except ValueError:
            fault = text("tools.odd_number")
        if not name or shown != name:
            fault = text("tools.odd_name")
        return cls(server, shown, described, {} if fault else cleaned, fault)

    def to_json(self) -> Json:
        """Return a plain dict."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what to_json wrote. Raises KeyError."""
        return cls(
            str(data["server"]),
            str(data["name"]),
            str(data["description"]),
            dict(data["schema"]),
            data.get("fault") or "",
        )

    @property
    def fingerprint(self) -> str:
        """Identify the tool that a permission is for. It changes with the definition."""
        seen = json.dumps([self.server, self.name, self.description, self.schema], sort_keys=True)
        return hashlib.sha256(seen.encode("ascii")).hexdigest()

    def definition(self, offered_name: str) -> Json:
        """Return OpenAI's form."""
        function = {
            "name": offered_name,
            "description": self.description,
            "parameters": self.schema or {"type": "object", "properties": {}},
        }
        return {"type": "function", "function": function}


def offered(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Return the tools by the names under which a model sees them: server__tool.

    Names are unique and consist of letters, digits, "_" and "-". The name of a tool depends on the
    other tools only where two would have the same.
    """
    usable = [tool for tool in tools if not tool.fault]
    plain = [_plain_name(tool) for tool in usable]
    counts = Counter(plain)
    named: dict[str, Tool] = {}
    for tool, name in zip(usable, plain, strict=True):
        if counts[name] > 1 or len(name) > NAME_CHARS_MAX:
            key = hashlib.sha256(json.dumps([tool.server, tool.name]).encode()).hexdigest()
            name = f"{name[: NAME_CHARS_MAX - _HASH_CHARS - 1]}_{key[:_HASH_CHARS]}"
        named[name] = tool
    return named


def _plain_name(tool: Tool) -> str:
    server, name = (re.sub(r"[^A-Za-z0-9_-]", "_", part) for part in (tool.server, tool.name))
    return f"{server}__{name}"
