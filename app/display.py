"""Check whether a window can be opened here, before Qt would abort. Imports no Qt."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from collections.abc import MutableMapping

# The libraries that PySide6-Essentials 6.11 needs, and their Debian packages.
QT_LIBRARIES = {
    "libGL.so.1": "libgl1",
    "libEGL.so.1": "libegl1",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libfontconfig.so.1": "libfontconfig1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libxkbcommon.so.0": "libxkbcommon0",
}
XCB_LIBRARIES = {
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
}
WAYLAND_LIBRARIES = {
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
}
KEYMAPS = "xkb-data"
"""The Debian package of the keyboard layouts, which libxkbcommon reads."""
FONTS = "fonts-dejavu-core"


def why_no_window() -> str | None:
    """Return why no window can be opened here, in one sentence; None if one can."""
    if sys.platform != "linux":
        return None
    platform = os.environ.get("QT_QPA_PLATFORM", "")
    if platform and not platform.startswith(("xcb", "wayland")):
        return _missing(QT_LIBRARIES)  # a platform without a screen was chosen
    reason: str | None = "There is no display to open a window on."
    if wayland := os.environ.get("WAYLAND_DISPLAY"):
        reason = _missing(QT_LIBRARIES | WAYLAND_LIBRARIES, has_keyboard=True)
        if reason is None and _connects_to_wayland(wayland):
            return None
        reason = reason or f"The display {wayland} cannot be reached."
    display = os.environ.get("DISPLAY")
    if not display:
        return reason
    missing = _missing(QT_LIBRARIES | XCB_LIBRARIES, has_keyboard=True)
    if missing is None and not _connects():
        return f"The display {display} cannot be reached."
    return missing


def admit_both(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let Qt go on with X11 or Wayland where the other, of QT_QPA_PLATFORM, is not running.

    Some set it for all sessions. Qt would abort in those of the other kind.
    """
    platform = environment.get("QT_QPA_PLATFORM", "")
    for asked, other in (("wayland", "xcb"), ("xcb", "wayland")):
        if platform.startswith(asked) and ";" not in platform:
            environment["QT_QPA_PLATFORM"] = f"{platform};{other}"


def missing_packages() -> list[str]:
    """Return the Debian packages that a window of X11 or Wayland lacks here."""
    return _packages(QT_LIBRARIES | XCB_LIBRARIES | WAYLAND_LIBRARIES, has_keyboard=True)[1]


def _missing(libraries: dict[str, str], *, has_keyboard: bool = False) -> str | None:
    absent, packages = _packages(libraries, has_keyboard=has_keyboard)
    if not absent:
        return None
    return (
        f"The window needs what is not installed on this system ({', '.join(absent)}); "
        f"on Debian and Ubuntu install it with: apt install {' '.join(packages)}"
    )


def _packages(libraries: dict[str, str], *, has_keyboard: bool) -> tuple[list[str], list[str]]:
    """Return the missing libraries and the Debian packages that have them."""
    absent = [library for library in libraries if not _loads(library)]
    packages = [libraries[library] for library in absent]
    # Without layouts Qt's platform aborts; without a font all letters are boxes.
    if has_keyboard and not _has_keymaps():
        absent, packages = [*absent, "keyboard layouts"], [*packages, KEYMAPS]
    if has_keyboard and "libfontconfig.so.1" not in absent and not _has_font():
        absent, packages = [*absent, "a font"], [*packages, FONTS]
    return absent, packages


def _has_keymaps() -> bool:
    root = os.environ.get("XKB_CONFIG_ROOT") or "/usr/share/X11/xkb"
    return os.path.isdir(os.path.join(root, "rules"))


def _has_font() -> bool:
    """Ask fontconfig, as Qt does, to fill its cache."""

    class FontSet(ctypes.Structure):
        _fields_ = [("nfont", ctypes.c_int)]

    fontconfig = ctypes.CDLL("libfontconfig.so.1")
    fontconfig.FcConfigGetFonts.restype = ctypes.POINTER(FontSet)
    fontconfig.FcConfigGetFonts.argtypes = [ctypes.c_void_p, ctypes.c_int]
    found = fontconfig.FcConfigGetFonts(None, 0)  # of the system
    return bool(found) and found[0].nfont > 0


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _connects_to_wayland(name: str) -> bool:
    """Connect to the compositor's socket that WAYLAND_DISPLAY names, as Qt would."""
    path = os.path.join(os.environ.get("XDG_RUNTIME_DIR", ""), name)
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except (OSError, ValueError):  # a ValueError for a null character
            return False
    return True


def _connects() -> bool:
    """Connect to the X server that DISPLAY names, as Qt would."""
    xcb = ctypes.CDLL("libxcb.so.1")
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connect.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
    xcb.xcb_connection_has_error.argtypes = [ctypes.c_void_p]
    xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    connection = xcb.xcb_connect(None, None)
    failed = bool(xcb.xcb_connection_has_error(connection))
    xcb.xcb_disconnect(connection)
    return not failed
