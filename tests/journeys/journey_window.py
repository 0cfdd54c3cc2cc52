"""A person's first hours with the window: a model from the hub, a chat, the next start."""

from __future__ import annotations

from fake_hub import FakeHub

from journeys import models
from journeys.desktop import Desktop
from journeys.fixtures import Home
from journeys.window import Window


def journey_three_clicks_to_a_model(home: Home, desktop: Desktop, hub: FakeHub) -> None:
    """A listed model comes from the hub and is loaded, and it remembers the turn before."""
    of_hub = models.small("Of the hub")
    for repository, file in models.listed():
        hub.repositories.setdefault(repository, {})[file] = of_hub
    window = Window(home, desktop)
    desktop.click("Get a larger model\u2026")
    desktop.click("Download")
    window.wait_model("Q4")
    assert [path.read_bytes() == of_hub for path in home.data.rglob("*.gguf")] == [True]
    window.ask("Anna has a white dog called Max.")
    assert "Max" in window.ask("What is the name of the dog?")
    window.quit()
