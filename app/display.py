"""Check whether a window can be opened here, before Qt would abort. Imports no Qt."""

from __future__ import annotations

import ctypes
import os
import sys

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


def why_no_window() -> str | None:
    """Return why no window can be opened here, in one sentence; None if one can."""
    if sys.platform != "linux":
        return None
    platform = os.environ.get("QT_QPA_PLATFORM", "")
    if platform and not platform.startswith(("xcb", "wayland")):
        return _missing(QT_LIBRARIES)  # a platform without a screen was chosen
    if os.environ.get("WAYLAND_DISPLAY"):
        return _missing(QT_LIBRARIES)
    display = os.environ.get("DISPLAY")
    if not display:
        return "There is no display to open a window on."
    missing = _missing(QT_LIBRARIES | XCB_LIBRARIES)
    if missing is None and not _connects():
        return f"The display {display} cannot be reached."
    return missing


def _missing(libraries: dict[str, str]) -> str | None:
    absent = [library for library in libraries if not _loads(library)]
    if not absent:
        return None
    packages = " ".join(libraries[library] for library in absent)
    return (
        f"The window needs system libraries that are not installed ({', '.join(absent)}); "
        f"on Debian and Ubuntu install them with: apt install {packages}"
    )


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
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
