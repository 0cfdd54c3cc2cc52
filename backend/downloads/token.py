"""Finds the user's token for the hub, and remembers tokens that the hub refused.

Importing this module loads no network library.
"""

from __future__ import annotations

import os
from pathlib import Path

from backend.text import text

_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_refused: dict[str, str] = {}  # a sentence for each refused token
_last = ""  # the token that `usable` found last


def usable() -> str:
    """Return the user's token; "" if there is none, or if the hub refused it."""
    from huggingface_hub import get_token  # network libraries: not at start

    global _last
    _last = secret = get_token() or ""
    if secret and not (secret.isascii() and secret.isprintable()):
        _refused.setdefault(secret, text("download.token_odd", place=_place(secret)))
    return "" if secret in _refused else secret


def refused(secret: str, host: str, status: int) -> str:
    """Return the sentence on a token that the hub refused."""
    return text("download.token_refused", host=host, place=_place(secret), status=status)


def leave_out(secret: str, sentence: str) -> None:
    """Send this token no more, and give the sentence as the reason."""
    _refused[secret] = sentence


def remark() -> str:
    """Return why the user's token is not sent; "" if it is, or if there is none."""
    return _refused.get(_last, "")


def _place(secret: str) -> str:
    """Return where a token was found: the name of a variable, or the path of a file."""
    from huggingface_hub.constants import HF_TOKEN_PATH  # network libraries: not at start

    for name in _VARIABLES:
        if os.environ.get(name, "").strip() == secret:
            return name
    return str(Path(os.environ.get("HF_TOKEN_PATH", HF_TOKEN_PATH)).expanduser())
