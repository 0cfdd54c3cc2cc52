"""Every page of the window, for its names."""

from __future__ import annotations

from journeys.desktop import Desktop
from journeys.fixtures import Home
from journeys.window import Window


def journey_every_page(home: Home, desktop: Desktop) -> None:
    """Each page opens by its key or from the menu; the desktop looks for controls without names."""
    window = Window(home, desktop)
    window.ask("Tell me a story.")
    for key, shown in (
        ("ctrl+k", "Engine controls"), ("ctrl+m", "Search models"), ("ctrl+comma", "Appearance"),
        ("ctrl+d", "Diagnostics"), ("F1", "Keyboard shortcuts"),
    ):  # fmt: skip
        desktop.press(key)
        desktop.wait(shown)
    for item in ("About Outrider", "Local server"):
        desktop.choose("More", item)
        desktop.wait(item, "label")
    desktop.press("Escape")
    desktop.press("ctrl+p")
    desktop.click("Cancel")
    desktop.wait_gone("Cancel")
    window.quit()
