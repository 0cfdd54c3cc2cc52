"""The input method of a Linux desktop, where Qt's packages lack its plug-in."""

from __future__ import annotations

import re
from collections.abc import Iterable, MutableMapping
from pathlib import Path

from PySide6.QtCore import QLibraryInfo

_BUILT_IN = {"", "none", "simple", "wayland", "xim"}  # need no plug-in
_said: list[str] = []


def said() -> str:
    """Return what was chosen instead of the desktop's input method, in English; "" if nothing."""
    return " ".join(_said)


def plug_ins() -> list[str]:
    """Return the names of the plug-ins that are here."""
    folder = Path(QLibraryInfo.path(QLibraryInfo.LibraryPath.PluginsPath))
    files = folder.glob("platforminputcontexts/*plugin*")
    return [re.sub(r"^lib|(platforminputcontext)?plugin.*$", "", file.name) for file in files]


def choose(environment: MutableMapping[str, str], available: Iterable[str]) -> None:
    """Name an input method that works, before the application starts.

    fcitx also speaks the protocol of ibus, whose plug-in Qt has. Others are left out: keys, dead
    keys and Wayland's own protocol work then.
    """
    _said.clear()
    asked = environment.get("QT_IM_MODULES") or environment.get("QT_IM_MODULE", "")
    names = asked.lower().split(";")
    known = _BUILT_IN | set(available)
    if any(name in known for name in names):
        return
    environment.pop("QT_IM_MODULES", None)
    if "ibus" in known and any(name.startswith("fcitx") for name in names):
        environment["QT_IM_MODULE"] = "ibus"
        _said.append(f"ibus's protocol in place of {asked}, whose plug-in is not in this package")
    else:
        environment.pop("QT_IM_MODULE", None)
        _said.append(f"none: {asked} has no plug-in in this package; QT_IM_MODULE=ibus is known")
