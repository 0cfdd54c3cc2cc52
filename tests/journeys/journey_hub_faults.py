"""A hub that fails, a full drive, no network: a sentence, nothing lost, and going on works."""

from __future__ import annotations

import contextlib
import hashlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import FakeHub, Fault

from journeys import models
from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.window import Window

REPOSITORY = "acme/Small-GGUF"
N_CUT = 1_000_000
SOON = {"Retry-After": "3"}
ODD = [Fault("cut", N_CUT), Fault("status", status=405)]
"""The first bytes, and then an answer that no time mends."""
DATA = models.small("Of the hub")
DOWNLOAD = "download", REPOSITORY, "small.gguf"


@pytest.fixture(autouse=True)
def repository(hub: FakeHub) -> None:
    """Give the hub a model."""
    hub.repositories[REPOSITORY] = {"small.gguf": DATA}


def says(home: Home, words: str, *arguments: object) -> None:
    """Run a command that fails. Its last sentence has these words, and it leaves no model."""
    said = home.run(*(arguments or DOWNLOAD), status=1).strip().rpartition("\n")[2]
    assert said.startswith("outrider: ") and said.endswith("."), said
    assert words in said
    assert not list(home.data.rglob("*.gguf"))


def succeeds(home: Home, hub: FakeHub, n_kept: int = 0) -> None:
    """Give the command again. It goes on behind the bytes that it has."""
    del hub.requests[:]
    home.run(*DOWNLOAD)
    assert hub.ranges() == [f"bytes={n_kept}-" if n_kept else ""]
    assert [path.read_bytes() == DATA for path in home.data.rglob("*.gguf")] == [True]


def journey_a_hub_that_refuses(home: Home, hub: FakeHub) -> None:
    """The hub refuses to say what it has, and then to give it."""
    for status, words in {401: "HF_TOKEN", 404: "no", 429: "429", 500: "500"}.items():
        hub.api_status = status
        says(home, words)
    hub.api_status = 0
    says(home, "no such repository", "download", "acme/Other")
    hub.gated.add(REPOSITORY)
    says(home, "gated")
    hub.gated.clear()
    hub.faults.append(Fault("status", status=405))
    says(home, "405")
    hub.faults += [Fault("cut", N_CUT), Fault("status", status=429, headers=SOON)]
    home.run(*DOWNLOAD)  # it waits as long as the hub asks, and goes on where it was
    assert hub.ranges()[-2:] == 2 * [f"bytes={N_CUT}-"]
    assert [path.read_bytes() == DATA for path in home.data.rglob("*.gguf")] == [True]


@pytest.mark.night  # it waits a minute for the hub
def journey_a_hub_out_of_order(home: Home, hub: FakeHub) -> None:
    """The hub has the same fault each time, and later none."""
    hub.faults += [Fault("cut", N_CUT), *(Fault("status", status=500) for _ in range(7))]
    says(home, "500")
    hub.faults.clear()
    succeeds(home, hub, N_CUT)


def journey_a_hub_that_recovers(home: Home, hub: FakeHub) -> None:
    """Short faults are not noticed."""
    hub.faults += [Fault("cut", N_CUT), Fault("short", N_CUT), Fault("status", status=500)]
    home.run(*DOWNLOAD)
    assert hub.ranges() == ["", f"bytes={N_CUT}-", *(2 * [f"bytes={2 * N_CUT}-"])]
    assert [path.read_bytes() == DATA for path in home.data.rglob("*.gguf")] == [True]


def journey_a_file_that_changes_on_the_hub(home: Home, hub: FakeHub) -> None:
    """What was received of the file before is not mixed with the new one."""
    before = DATA[:-1] + bytes([DATA[-1] ^ 1])
    hub.repositories[REPOSITORY]["small.gguf"] = before
    hub.faults += ODD
    says(home, "405")
    assert n_received(home) == N_CUT
    hub.repositories[REPOSITORY]["small.gguf"] = DATA
    hub.sha256["small.gguf"] = hashlib.sha256(before).hexdigest()  # the hub is not up to date
    says(home, "small.gguf")
    hub.sha256.clear()
    succeeds(home, hub)


def begun(home: Home, hub: FakeHub) -> subprocess.Popen[bytes]:
    """Begin a download, and wait until it waits for the hub."""
    hub.faults.append(Fault("hold", N_CUT))
    download = home.start("outrider", *DOWNLOAD)
    until(lambda: n_received(home) == N_CUT, "a part was received")
    return download


def n_received(home: Home) -> int:
    """Return the bytes of the incomplete file."""
    return sum(path.stat().st_size for path in home.data.rglob("*.part"))


def journey_no_network(home: Home, hub: FakeHub) -> None:
    """Nobody answers at the hub's address."""
    hub_url = home.variables["HF_ENDPOINT"]
    home.variables["HF_ENDPOINT"] = "http://127.0.0.1:9"
    says(home, "127.0.0.1")
    home.variables["HF_ENDPOINT"] = "http://hub.invalid"
    says(home, "hub.invalid")
    home.variables["HF_ENDPOINT"] = hub_url
    succeeds(home, hub)


@contextlib.contextmanager
def small_drive(folder: Path) -> Iterator[None]:
    """Mount a drive in a folder, or skip the journey."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1g", "journeys", str(folder)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("This user may not mount a drive of its own.")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def resize(folder: Path, size: str) -> None:
    """Change the size of the drive in a folder."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(folder)], check=True)


def journey_a_full_drive(home: Home, hub: FakeHub, is_windows: bool) -> None:
    """The drive becomes full during a download, and has room later."""
    if is_windows:
        pytest.skip("wine calls a full drive an invalid argument, or ends with a page fault")
    drive = home.data / "models"
    with small_drive(drive):
        resize(drive, "64m")
        says(home, "free")  # some room must be left for others
        resize(drive, "1g")
        download = begun(home, hub)
        resize(drive, "2m")
        hub.release.set()
        assert home.ended(download) == 1
        said = home.logs[-1].read_text("utf-8").strip()
        assert said.startswith("outrider: ") and "full" in said and said.endswith(".")
        n_kept = n_received(home)
        assert n_kept >= N_CUT
        resize(drive, "1g")
        succeeds(home, hub, n_kept)


def journey_a_fault_in_the_window(home: Home, desktop: Desktop, hub: FakeHub) -> None:
    """The row says what is wrong, and Try again goes on."""
    for repository, file in models.listed():
        hub.repositories.setdefault(repository, {})[file] = DATA
    hub.faults += ODD
    window = Window(home, desktop)
    desktop.press("ctrl+g")
    desktop.click("Download")
    desktop.wait_words("405")
    desktop.click(re.compile("^Try again: "))
    window.wait_model("Q4_K_M")
    assert hub.ranges()[-1] == f"bytes={N_CUT}-"
    window.quit()
