"""Mends what the environment of a process says and libraries cannot read."""

from __future__ import annotations

import contextlib
import locale
import os
import re
from collections.abc import MutableMapping

_PLAIN = ("C.UTF-8", "en_US.UTF-8", "C")
_CAPITAL_I = re.compile(rb"I", re.IGNORECASE | re.LOCALE)
_LETTER = re.compile(rb"\w", re.LOCALE)


def mend(environment: MutableMapping[str, str] = os.environ) -> None:
    """Mend the environment of this process and of its children. Call it before others read it.

    Proxies: desktops write "socks://", which HTTP clients do not know. "socks5h://" is meant, which
    leaves looking up names to the proxy.
    """
    for name, value in list(environment.items()):
        if name.lower().endswith("_proxy") and value.lower().startswith("socks://"):
            environment[name] = f"socks5h{value[5:]}"
    if not has_plain_letters():
        _use_plain_letters(environment)


def has_plain_letters() -> bool:
    """Return whether C's functions have ASCII's letters, and no letter of another byte."""
    return bool(_CAPITAL_I.match(b"i")) and not _LETTER.search(bytes(range(128, 256)))


def _use_plain_letters(environment: MutableMapping[str, str]) -> None:
    """Let the letters of C's functions be those of ASCII. Libraries compare names with them.

    In Turkish the capital of i is not I: PySide then finds no property whose name begins with i,
    and a template's filter "upper" writes STRiNG. In the code pages of Windows, bytes beyond ASCII
    are letters, so "upper" would damage UTF-8. The language, numbers and dates stay the user's.
    """
    if for_all := environment.pop("LC_ALL", ""):  # it would win over LC_CTYPE
        for name in [name for name in environment if name.startswith("LC_")]:
            del environment[name]
        environment["LANG"] = for_all
    for name in _PLAIN:
        with contextlib.suppress(locale.Error):
            environment["LC_CTYPE"] = locale.setlocale(locale.LC_CTYPE, name)
        if has_plain_letters():
            return
