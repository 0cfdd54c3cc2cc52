"""Colours by name, in a dark and a light set, and the style sheet made of them.

Every colour of the window is defined here. A name means the same thing everywhere: `stall` is
waiting for experts in the map, in the bars and in the strip of tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QColor, QFont, QFontDatabase, QFontInfo, QPalette
from PySide6.QtWidgets import QApplication

from app.widgets.style_sheet import STYLE_SHEET


class Choice(Enum):
    """The user's choice: follow the system, or one of the two sets."""

    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True)
class Colours:
    """One set of colours, as #rrggbb."""

    window: str  # behind everything
    chrome: str  # the bar at the top
    surface: str  # panels
    field: str  # where the user writes
    raised: str  # buttons and cards on a surface
    hover: str
    border: str  # lines between parts
    edge: str  # around fields and of scroll bars: every control that can be used is visible
    bubble: str  # the user's messages
    code: str  # behind code
    text: str
    muted: str  # secondary text
    faint: str  # placeholders, disabled text
    accent: str
    on_accent: str
    focus: str
    warning: str
    danger: str
    on_danger: str
    # Engine panel
    absent: str
    resident: str
    arriving: str
    hit: str
    late: str
    stall: str  # a miss, and the time spent waiting for experts
    processor: str  # an expert that the processor computed because a device lacked it
    compute: str
    other: str
    dense: str
    free: str
    kv: str  # the KV cache, in a memory plan
    # Kinds of code
    code_keyword: str
    code_string: str
    code_comment: str
    code_number: str
    code_name: str


DARK = Colours(
    window="#131518", chrome="#0f1113", surface="#1a1d21", field="#1a1d21",
    raised="#23272d", hover="#2b3037", border="#2a2e35", bubble="#262d3a", code="#0e1012",
    text="#e9ebee", muted="#98a0aa",
    edge="#727a84", faint="#8a929c", accent="#4fbf9f", on_accent="#08211a", focus="#6fd6b8",
    warning="#e3b04b", danger="#d9604f", on_danger="#ffffff",
    absent="#202429", resident="#3a8f79", arriving="#e0a63a", hit="#f5f0c4",
    late="#bb8ae0", stall="#d9604f", processor="#56a8f5", compute="#4779a8", other="#727a85",
    dense="#66739c", free="#2a2f35", kv="#b0708f",
    code_keyword="#c792ea", code_string="#9ece8a", code_comment="#7f8995",
    code_number="#e0a36a", code_name="#7fb4e6",
)  # fmt: skip

LIGHT = Colours(
    window="#fbfbfa", chrome="#f2f2ef", surface="#f4f4f2", field="#ffffff",
    raised="#ffffff", hover="#e8e9e6", border="#dcdedb", bubble="#e4eaf4", code="#f0f0ed",
    text="#1c2024", muted="#5d656e",
    edge="#838b94", faint="#656d77", accent="#17765c", on_accent="#ffffff", focus="#17765c",
    warning="#855a08", danger="#b93c2b", on_danger="#ffffff",
    absent="#eceeeb", resident="#2f8f74", arriving="#b27800", hit="#0c4a3a",
    late="#9557c4", stall="#cf4b39", processor="#2467c9", compute="#3f78b0", other="#7b838c",
    dense="#6a78a8", free="#dfe2df", kv="#b06790",
    code_keyword="#7b3fa8", code_string="#2f6f2f", code_comment="#606871",
    code_number="#9a5410", code_name="#1f5f9f",
)  # fmt: skip

DARK_HIGH = replace(
    DARK, window="#000000", chrome="#000000", surface="#000000", field="#000000", raised="#101214",
    hover="#2b3037", border="#8a929c", bubble="#10203c", code="#000000", text="#ffffff",
    muted="#dfe3e8", edge="#c3c9d0", faint="#b4bac2", accent="#6ff0c8", on_accent="#000000",
    focus="#ffe14a", warning="#ffd06b", danger="#ff8a78", on_danger="#000000", absent="#0a0b0c",
    resident="#45b596", compute="#6aa5e0", other="#9aa3ad", dense="#8f9ed0", kv="#d793b5",
    stall="#ff7863",
)  # fmt: skip
LIGHT_HIGH = replace(
    LIGHT, window="#ffffff", chrome="#ffffff", surface="#ffffff", field="#ffffff",
    raised="#ffffff", hover="#e4e6e3", border="#5d656e", bubble="#e8eefc", code="#ffffff",
    text="#000000", muted="#2c3238", edge="#30363c", faint="#454c54", accent="#00543f",
    focus="#003ea8", warning="#5e3d00", danger="#8f1d0f", absent="#f7f8f6", resident="#1f7a61",
    arriving="#8f5f00", compute="#2a5f96", other="#5f6770", dense="#4c5a8c", kv="#8f4a72",
    stall="#b03323", code_comment="#454c54",
)  # fmt: skip
USUAL_PIXELS = 13  # of text, where the system has no larger one
TEXT_SIZES = (90, 100, 115, 130, 150)
"""The sizes of text to choose from, in per cent of the system's."""

_current = DARK

# The first installed font is used; the system's own interface font comes after Inter.
_FAMILIES = ["Inter", "Segoe UI Variable Text", "Segoe UI", "SF Pro Text", "Cantarell", "Noto Sans"]
_FIXED = ["JetBrains Mono", "Cascadia Mono", "SF Mono", "Menlo", "Consolas", "Noto Sans Mono",
          "DejaVu Sans Mono"]  # fmt: skip


def colours() -> Colours:
    """Return the set in use."""
    return _current


def colour(name: str) -> QColor:
    """Return a colour of the set in use, by its field's name."""
    return QColor(getattr(_current, name))


def fixed_family() -> str:
    """Return the font family for code."""
    return _first_installed(_FIXED, QFontDatabase.SystemFont.FixedFont)


def pixels(app_font: QFont | None = None) -> int:
    """Return the size of ordinary text in pixels, from the system's setting."""
    return min(max(QFontInfo(app_font or QApplication.font()).pixelSize(), 11), 36)


def wide(pixels_of_usual: int) -> int:
    """Return a width chosen for text of the usual size, for text of the chosen size."""
    return round(pixels_of_usual * pixels() / USUAL_PIXELS)


def choose(
    app: QApplication, choice: Choice, has_high_contrast: bool = False, text_percent: int = 100
) -> None:
    """Set colours and font, without the style sheet. A start calls apply() after this.

    Under a style sheet every widget that gets another parent is styled again; that took a fifth of
    the time of a start. text_percent: the size of text, of TEXT_SIZES.
    """
    global _current
    hints = app.styleHints()
    if choice is Choice.SYSTEM:
        hints.unsetColorScheme()
    else:
        dark = choice is Choice.DARK
        hints.setColorScheme(Qt.ColorScheme.Dark if dark else Qt.ColorScheme.Light)
    if _wants_dark(app, choice):
        _current = DARK_HIGH if has_high_contrast else DARK
    else:
        _current = LIGHT_HIGH if has_high_contrast else LIGHT
    family = _first_installed(_FAMILIES, QFontDatabase.SystemFont.GeneralFont)
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    font.setFamily(family)
    usual = max(QFontInfo(font).pixelSize(), USUAL_PIXELS)
    font.setPixelSize(round(usual * text_percent / 100))
    app.setFont(font)
    # At once: a window that is being built gives its parts the font that it has.
    app.sendPostedEvents(None, QEvent.Type.ApplicationFontChange)
    app.setPalette(_palette(_current))


def apply(
    app: QApplication,
    choice: Choice,
    has_high_contrast: bool = False,
    text_percent: int = 100,
    before: Callable[[], None] = lambda: None,
) -> None:
    """Apply the theme. Call it at start, and when the choice or the system's theme changes.

    before: called if all widgets are about to be styled again.
    """
    choose(app, choice, has_high_contrast, text_percent)
    body = pixels(app.font())
    values = {item.name: getattr(_current, item.name) for item in fields(_current)}
    values |= {
        "small": f"{body - 1}px", "body": f"{body}px", "text_size": f"{body + 1}px",
        "large": f"{body + 7}px", "title": f"{body + 11}px", "fixed": fixed_family(),
        "veil": f"#f4{_current.window[1:]}",
    }  # fmt: skip
    sheet = STYLE_SHEET.substitute(values)
    if sheet != app.styleSheet():  # a new style sheet restyles every widget
        before()
        app.setStyleSheet("")  # a sheet in place of another takes three times as long
        app.setStyleSheet(sheet)


def _wants_dark(app: QApplication, choice: Choice) -> bool:
    if choice is not Choice.SYSTEM:
        return choice is Choice.DARK
    scheme = app.styleHints().colorScheme()
    if scheme == Qt.ColorScheme.Unknown:
        return app.style().standardPalette().window().color().lightness() < 128
    return scheme == Qt.ColorScheme.Dark


def _first_installed(families: list[str], fallback: QFontDatabase.SystemFont) -> str:
    installed = set(QFontDatabase.families())
    for family in families:
        if family in installed:
            return family
    return QFontDatabase.systemFont(fallback).family()


def _palette(c: Colours) -> QPalette:
    palette = QPalette()
    roles = QPalette.ColorRole
    for role, value in (
        (roles.Window, c.window), (roles.WindowText, c.text), (roles.Base, c.surface),
        (roles.AlternateBase, c.raised), (roles.Text, c.text), (roles.Button, c.raised),
        (roles.ButtonText, c.text), (roles.ToolTipBase, c.raised), (roles.ToolTipText, c.text),
        (roles.PlaceholderText, c.faint), (roles.Highlight, c.accent),
        (roles.HighlightedText, c.on_accent), (roles.Link, c.accent), (roles.BrightText, c.danger),
        (roles.Light, c.hover), (roles.Mid, c.border), (roles.Dark, c.border),
    ):  # fmt: skip
        palette.setColor(role, QColor(value))
    for role in (roles.Text, roles.WindowText, roles.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(c.faint))
    return palette
