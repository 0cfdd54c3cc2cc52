"""Make old-home.tar.xz with the programs of an older version, driven as a journey drives them.

    PYTHONPATH=tests build/journeys/driver/bin/python tests/journeys/data/make_old_home.py PROGRAMS

PROGRAMS: the folder of `outrider` and `outrider-app` in a clone of that version, with torch and
gguf for its training; 19eeec0f made the present file, after psutil was installed. The paths of the
home and of the hub become @HOME@ and @HUB@; the journey writes those of its own in their place.
"""

from __future__ import annotations

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from fake_hub import FakeHub, Fault
from gguf import GGMLQuantizationType, GGUFReader
from journeys import models
from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.window import Window

MADE = Path(__file__).with_name("old-home.tar.xz")
REPOSITORY = "acme/Old-GGUF"
QUESTIONS = "What is white?\nWho sleeps?\nWhere is the dog?\nWhen does Anna come?\n"
TOOLS = b"""{"mcpServers": {"notes": {"command": "notes-server", "args": ["--read"],
"env": {"FOLDER": "/notes"}}}}"""


def coarse(model: bytes) -> bytes:
    """Return a model whose routers and experts have few different weights, to be packed small."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        path.write_bytes(model)
        written = bytearray(model)
        for tensor in GGUFReader(path).tensors:
            if tensor.tensor_type is GGMLQuantizationType.Q8_0 and "blk." in tensor.name:
                blocks = np.frombuffer(tensor.data.tobytes(), np.uint8).reshape(-1, 34).copy()
                blocks[:, :2] = blocks[0, :2]
                weights = blocks[:, 2:].view(np.int8)
                weights[:] = 100 * np.sign(weights)
                begin = tensor.data_offset
                written[begin : begin + blocks.size] = blocks.tobytes()
        return bytes(written)


def use(home: Home, desktop: Desktop, hub: FakeHub) -> None:
    """Use the programs until the home has all that a home can have."""
    said = models.Line("\n", ("Max ", "is ", "white, ", "and ", "he ", "sleeps."))
    model = coarse(models.scripted([said], n_layer=2, n_embd=32, n_ff_exp=32))
    hub.repositories[REPOSITORY] = {"old.gguf": model}
    home.run("download", REPOSITORY, "old.gguf")
    (path,) = home.data.rglob("old.gguf")
    questions = home.write("questions.txt", QUESTIONS.encode())
    home.run("train", path, "--prompts", questions, "--stride", 1, "--tokens", 400,
             "--minutes", 0.2, "--cache-rate", 0.5)  # fmt: skip
    questions.unlink()
    home.write(f"{home.data}/recordings/consent.json", b'{"record": true}\n')
    home.write(f"{home.settings.parent}/tools.json", TOOLS)
    for repository, file in models.listed():
        hub.repositories.setdefault(repository, {})[file] = model
    window = Window(home, desktop, path)
    window.wait_model("old")
    desktop.click("Engine settings by hand")  # nothing is recorded where all experts are in memory
    desktop.drag("Cache rate", "slider", 0.97, 0.4)
    until(lambda: "16 of 16" not in desktop.words(), "some of the experts are in memory")
    window.ask("Who is white?")
    window.ask("What does he do?")
    window.answer_again()
    window.change("What does Max do?")
    desktop.press("ctrl+n")
    window.ask("A second chat.")
    desktop.click("Message")
    desktop.type("Not sent yet")
    until(lambda: desktop.wait("Message").text == "Not sent yet", "it is typed")
    desktop.press("ctrl+comma")
    desktop.click("System", "combo box")
    desktop.press("Down", "Down", "Return")  # dark
    desktop.wait("Dark", "combo box")
    hub.faults.append(Fault("hold", 100_000))
    desktop.press("ctrl+g")
    desktop.click("Download")
    until(lambda: any(path.stat().st_size for path in home.data.rglob("*.part")), "it began")
    desktop.press("Escape")
    desktop.wait("Message")
    window.quit()


def pack(home: Home, hub: FakeHub) -> None:
    """Pack the home without what differs from machine to machine."""
    shutil.rmtree(home.folder / ".cache", ignore_errors=True)
    for path in home.folder.rglob("*.json"):
        written = path.read_text("utf-8").replace(str(home.folder), "@HOME@")
        path.write_text(written.replace(hub.files_url, "@FILES@").replace(hub.url, "@HUB@"))
    for path in home.folder.rglob("*"):
        assert str(home.folder).encode() not in (path.read_bytes() if path.is_file() else b""), path
    with tarfile.open(MADE, "w:xz", preset=9) as archive:
        archive.add(home.folder, "home", filter=plain)


def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without the name of who made it."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    screen = Desktop()
    with FakeHub() as stand_in, tempfile.TemporaryDirectory() as around:
        variables = {**screen.environment, "HF_ENDPOINT": stand_in.url}
        old = Home(Path(around), Path(sys.argv[1]).absolute(), variables)
        try:
            use(old, screen, stand_in)
            pack(old, stand_in)
        finally:
            old.close()
            screen.close()
