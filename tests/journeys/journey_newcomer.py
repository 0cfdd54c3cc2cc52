"""A person who comes from another program: a model with conditions, and the chats from there."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from factory import make_png
from fake_hub import FakeHub, Fault

from journeys import models
from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.window import Window

REPOSITORY = "acme/Gated-GGUF"
SOON = {"Retry-After": "5"}
TOKEN = "hf_" + 30 * "a"
README = b"# Head\nA small model for journeys, with conditions.\n"
SAYS = {
    "en": {
        "field": "Search models to download", "search": "Search", "fetch": "Download",
        "token": re.compile("^Enter a token"), "check": "Check and keep",
        "page": "Its page says: \u201cA small model for journeys, with conditions.\u201d",
        "waits": "Goes on by itself in", "import": "Import chats from a file",
        "imported": "2 chats imported from export.zip.",
    },
    "de": {
        "field": "Modelle zum Herunterladen suchen", "search": "Suchen", "fetch": "Herunterladen",
        "token": re.compile("^Token eingeben"), "check": "Pr\u00fcfen und behalten",
        "page": "Seine Seite sagt: \u201eA small model for journeys, with conditions.\u201c",
        "waits": "von selbst weiter.", "import": "Chats aus einer Datei importieren",
        "imported": "2 Chats aus export.zip importiert.",
    },
}  # fmt: skip
"""What the window calls its controls, and what it says, in each language."""


def exported(home: Home) -> Path:
    """Write an export of ChatGPT's form: two chats, a picture, and an answer in two versions."""

    def message(role: str, at_s: float, *parts: object) -> dict[str, object]:
        kind = "text" if isinstance(parts[-1], str) and len(parts) == 1 else "multimodal_text"
        content = {"content_type": kind, "parts": list(parts)}
        return {"author": {"role": role}, "create_time": at_s, "content": content}

    picture = {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_01"}
    mapping = {
        "a": {"parent": None, "message": None},
        "b": {"parent": "a", "message": message("user", 1.7e9, picture, "Who is this?")},
        "c": {"parent": "b", "message": message("assistant", 1.7e9, "Anna.")},
        "d": {"parent": "b", "message": message("assistant", 1.7e9, "Anna's dog is called Max.")},
    }
    chats = [
        {"title": title, "create_time": 1.7e9, "mapping": mapping, "current_node": "d"}
        for title in ("The dog of Anna", "Another dog")
    ]
    path = home.write("export.zip", b"")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", json.dumps(chats))
        archive.writestr("file_01-photo.png", make_png(np.zeros((32, 32, 3), np.uint8)))
    return path


@pytest.mark.parametrize("language", ["en", "de"])
def journey_from_another_program(home: Home, desktop: Desktop, hub: FakeHub, language: str) -> None:
    """A gated model comes with a token, after a wait; chats are imported, and shown again."""
    home.variables["LANG"] = {"en": "C.UTF-8", "de": "de_DE.UTF-8"}[language]
    says = SAYS[language]
    data = models.small("With terms")
    hub.repositories[REPOSITORY] = {"small.gguf": data, "README.md": README}
    hub.gated.add(REPOSITORY)
    hub.owners[TOKEN] = "anna"
    hub.faults += [Fault("status", status=429, headers=SOON)]
    window = Window(home, desktop)
    desktop.press("ctrl+g")
    desktop.click(says["field"])
    desktop.type(REPOSITORY)
    desktop.press("Return")
    desktop.wait("small", "cell")
    desktop.click(says["fetch"])
    desktop.click(says["token"])
    desktop.type(TOKEN)
    desktop.click(says["check"])
    desktop.wait_words(says["waits"])
    window.wait_model("small")
    assert [path.read_bytes() for path in home.data.rglob("small.gguf")] == [data]
    assert TOKEN not in "".join(
        path.read_text("utf-8", "replace") for path in home.folder.rglob("*.json")
    )

    desktop.press("ctrl+g")
    desktop.wait_words(says["page"])
    desktop.press("Escape")

    desktop.click(says["import"])
    window.give(exported(home))
    desktop.wait_words(says["imported"])
    asked, said = "Who is this?", "Anna's dog is called Max."
    until(lambda: window.answers() == [said], "the imported chat is shown")
    desktop.wait("2/2")
    assert "Max" in window.ask("How is the dog called?")
    shown = window.questions(), window.answers()
    assert shown[0] == [asked, "How is the dog called?"]
    window.quit()
    window = Window(home, desktop)
    until(lambda: (window.questions(), window.answers()) == shown, "the chat is as it was")
    window.quit()
