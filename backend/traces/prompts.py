"""Reads files of prompts: text with one prompt per line, or JSON lines with conversations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_BYTES_MAX = 256 << 20
ROLES = ("system", "user", "assistant")

Message = dict[str, str]


class PromptsError(ValueError):
    """A file of prompts cannot be used. str() is one sentence for the user."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path.name or path} cannot be used as prompts: {reason}.")


@dataclass(frozen=True)
class Prompt:
    """One conversation that lacks its answer. `line` is its line in the file, from 1."""

    messages: tuple[Message, ...]
    line: int

    @property
    def text(self) -> str:
        """The last message."""
        return self.messages[-1]["content"]


def read_prompts(path: Path) -> list[Prompt]:
    """Read prompts. Raise PromptsError.

    Every line that is not blank is a prompt. If the first of them begins with {, every line is a
    JSON object with either `prompt` or `messages`, a list of objects with `role` and `content`.
    """
    path = Path(path)
    try:
        if path.is_file() and path.stat().st_size > FILE_BYTES_MAX:
            raise PromptsError(path, f"it has more than {FILE_BYTES_MAX >> 20} MiB")
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PromptsError(path, "it is not UTF-8 text") from error
    except OSError as error:
        raise PromptsError(path, error.strerror or "it cannot be read") from error
    except ValueError as error:
        if isinstance(error, PromptsError):
            raise
        raise PromptsError(path, "its name is not valid") from error
    lines = [(i, line.strip()) for i, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise PromptsError(path, "it has no prompts")
    if not lines[0][1].startswith("{"):
        return [Prompt(({"role": "user", "content": line},), i) for i, line in lines]
    return [Prompt(_messages(path, i, line), i) for i, line in lines]


def _messages(path: Path, number: int, line: str) -> tuple[Message, ...]:
    where = f"line {number}"
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PromptsError(path, f"{where} is not valid JSON") from error
    if not isinstance(value, dict):
        raise PromptsError(path, f"{where} is not a JSON object")
    if isinstance(value.get("prompt"), str):
        return ({"role": "user", "content": value["prompt"]},)
    messages = value.get("messages")
    if not isinstance(messages, list) or not messages:
        raise PromptsError(path, f"{where} has neither messages nor a prompt")
    found = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("content"), str):
            raise PromptsError(path, f"{where} has a message without a text")
        if message.get("role") not in ROLES:
            raise PromptsError(
                path, f"{where} has a message that is of none of the roles {', '.join(ROLES)}"
            )
        found.append({"role": str(message["role"]), "content": str(message["content"])})
    return tuple(found)
