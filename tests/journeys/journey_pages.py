"""Every page of the window, for its names, and what only the settings have."""

from __future__ import annotations

import functools
import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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


class Quiet(SimpleHTTPRequestHandler):
    """Offers the files of a folder, and prints nothing."""

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


def journey_look_for_a_newer_version(home: Home, desktop: Desktop, tmp_path: Path) -> None:
    """The same version is the newest, a newer one has a page, and a server that is gone is said."""
    here = home.run("--version").split()[-1]
    released = tmp_path / "latest.json"
    offer = functools.partial(Quiet, directory=str(tmp_path))
    server = ThreadingHTTPServer(("127.0.0.1", 0), offer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    home.variables["OUTRIDER_RELEASES"] = f"http://127.0.0.1:{server.server_port}"
    window = Window(home, desktop)
    desktop.press("ctrl+comma")

    def look(words: str) -> bool:
        """Look for a newer version, and wait for words. Return whether a page is offered."""
        desktop.click("Look for a newer version")
        desktop.wait_words(words)
        return desktop.find("Open the page of the newer version") is not None

    for version, words in (("99.1", "Version 99.1 is out."), (here, "This is the newest version.")):
        about = {"version": version, "page": "https://example.org/releases"}
        released.write_text(json.dumps(about), "utf-8")
        assert look(words) is (version != here)
    released.unlink()
    assert not look("There is no such file on 127.0.0.1 (HTTP 404).")
    server.shutdown()
    server.server_close()
    assert not look("127.0.0.1 cannot be reached")
    window.quit()
