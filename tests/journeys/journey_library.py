"""The library finds what other programs have on this machine."""

from __future__ import annotations

import hashlib
import json

from journeys import models
from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.window import Window

TITLES = {"small": "Of LM Studio", "fox:latest": "Of Ollama", "crow": "Of the hub"}
"""What the window calls the models, and their names in their files."""


def put_models(home: Home) -> None:
    """Put a model where LM Studio, Ollama and the hub's own tools keep theirs."""
    lm_studio, ollama, hub = map(models.small, TITLES.values())
    home.write(".lmstudio/models/acme/Small-GGUF/small.gguf", lm_studio)
    digest = hashlib.sha256(ollama).hexdigest()
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}"}
    manifest = json.dumps({"schemaVersion": 2, "layers": [layer]}).encode()
    home.write(f".ollama/models/blobs/sha256-{digest}", ollama)
    home.write(".ollama/models/manifests/registry.ollama.ai/library/fox/latest", manifest)
    cache = ".cache/huggingface/hub/models--acme--Crow-GGUF"
    blob = home.write(f"{cache}/blobs/{hashlib.sha256(hub).hexdigest()}", hub)
    link = home.folder / cache / "snapshots" / "c0ffee" / "crow.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(f"../../blobs/{blob.name}")


def journey_models_of_other_programs(home: Home, desktop: Desktop) -> None:
    """Each is found, judged and loaded; the slider changes the cache of the last one."""
    put_models(home)
    window = Window(home, desktop)
    desktop.press("ctrl+m")
    for title, name in TITLES.items():
        desktop.click(title, "cell")
        desktop.wait_words(f"{name:13}, 16.5 MiB in {home.folder}")
    assert len(desktop.find_all("fits in memory", "cell")) == len(TITLES) + 1  # the embedded one
    for title in TITLES:
        desktop.click(title, "cell")
        desktop.click(f"Load {title}")  # shows the chat
        window.wait_model(title)
        desktop.press("ctrl+m")
    desktop.press("Escape")
    desktop.click("Engine settings by hand")
    desktop.drag("Cache rate", "slider", 0.97, 0.5)

    def n_slot() -> float:
        value = desktop.wait("Cache rate", "slider").value or 0
        return value if 8 < value < 24 else 0

    n = until(n_slot, "the slider is in the middle")
    desktop.wait_words(f"{n:g} of 32 experts")
    window.ask("Tell me a story.")
    desktop.wait_words(f"{n:g} of the 32 experts of each layer are kept in memory")
    window.quit()
