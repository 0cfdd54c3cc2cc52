"""The capital and small letters of C's functions, by which libraries compare names."""

from __future__ import annotations

import contextlib
import locale
import os
import re
from collections.abc import MutableMapping

_PLAIN = ("C.UTF-8", "en_US.UTF-8", "C")
_CAPITAL_I = re.compile(rb"I", re.IGNORECASE | re.LOCALE)
_LETTER = re.compile(rb"\w", re.LOCALE)


def make_plain(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let the letters of C's functions be those of ASCII, in this process and its children.

    In Turkish the capital of i is not I: PySide then finds no property whose name begins with i,
    and a template's filter "upper" writes STRiNG. In the code pages of Windows, bytes beyond ASCII
    are letters, so "upper" would damage UTF-8. The language, numbers and dates stay the user's.
    """
    if are_plain():
        return
    if for_all := environment.pop("LC_ALL", ""):  # it would win over LC_CTYPE
        for name in [name for name in environment if name.startswith("LC_")]:
            del environment[name]
        environment["LANG"] = for_all
    for name in _PLAIN:
        with contextlib.suppress(locale.Error):
            environment["LC_CTYPE"] = locale.setlocale(locale.LC_CTYPE, name)
        if are_plain():
            return


def are_plain() -> bool:
    """Return whether C's functions have ASCII's letters, and no letter of another byte."""
    return bool(_CAPITAL_I.match(b"i")) and not _LETTER.search(bytes(range(128, 256)))
