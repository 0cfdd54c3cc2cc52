"""The window under wine, used as by a user: with mouse and keyboard, on a screen of Xvfb.

watched.py runs it, and tells its visible texts and their places. It is opened, asked, given a model
by the file dialog and by a second start, changed, closed, and opened again.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = {"xvfb": "Xvfb", "xdotool": "xdotool", "imagemagick": "import"}
"""Debian's packages, and a program of each."""
SIZE = "1400x900"
TYPED = "größere Übung.gguf"  # with a German keyboard; xdotool loses characters that no key has
NAMED = "Ünï code 模型 🦊.gguf"
QUESTION = "Tell me a story about a fox."
LIMIT_S = 180.0

Told = dict[str, Any]


class WindowError(Exception):
    """The window fails a check. The text is one plain sentence."""


class Walk:
    """The steps of a user.

    environment: of programs under wine, with WINEPREFIX; python: the CPython for Windows; checkout:
    on drive C; pictures: a folder that is made.
    """

    def __init__(
        self, environment: dict[str, str], python: Path, checkout: Path, pictures: Path
    ) -> None:
        self._environment, self._python, self._checkout = environment, python, checkout
        self._prefix = Path(environment["WINEPREFIX"])
        self._drive = self._prefix / "drive_c"
        self._file = self._drive / "window.json"
        self._pictures = pictures
        self._started: list[subprocess.Popen[bytes]] = []
        pictures.mkdir(parents=True, exist_ok=True)

    def go(self) -> str:
        """Do all steps, and return how long they took. Raises WindowError."""
        for folder in self._drive.glob("users/*/AppData/*/outrider"):
            shutil.rmtree(folder)
        embedded = self._checkout / "assets" / "embedded" / "outrider-tiny.gguf"
        local = next(self._drive.glob("users/*/AppData/Local"))
        models = local / "outrider" / "models"  # where the dialog begins
        models.mkdir(parents=True)
        for name in (TYPED, NAMED):
            shutil.copy(embedded, models / name)
        began = time.monotonic()
        with self._screen():
            self.open(embedded.name)
            opened_s = time.monotonic() - began
            self.picture("start")
            answered_s = self.ask()
            self.choose_file()
            n_slot = self.move_slider()
            self.ask()
            self.picture("answer")
            before = self.close()
            self.open(TYPED)
            self.until("remembers the chat", lambda now: now["answers"] == before["answers"])
            self.until("remembers the rate", lambda now: now["slider"][1] == n_slot)
            self.start_again(models / NAMED)
            self.picture("again")
            self.close()
        return (
            f"the window opened in {opened_s:.0f} s, answered in {answered_s:.0f} s, and did "
            f"what was wanted; pictures are in {self._pictures}"
        )

    # Steps

    def open(self, model: str) -> None:
        """Start the application, and wait until it has loaded a model."""
        self._file.unlink(missing_ok=True)
        watched = self._checkout / Path(__file__).resolve().relative_to(ROOT).with_name(
            "watched.py"
        )
        python = (self._python, "-X", "utf8", watched, r"C:\window.json")
        self._start(["wine", "explorer", f"/desktop=outrider,{SIZE}", *python])
        self.until("loads its model", lambda now: is_ready(now, model))

    def ask(self) -> float:
        """Type a question, see the map move and the answer end. Return its seconds."""
        n_answer = len(self.told()["answers"])
        self.click("input")
        self.key("type", "--delay", "30", QUESTION)
        self.until("takes what is typed", lambda now: now["input"] == QUESTION)
        began = time.monotonic()
        self.key("key", "Return")
        seen: dict[tuple[int, ...], bytes] = {}

        def moves(now: Told) -> bool:
            place = tuple(now["places"].get("map", ()))
            pixels = self.pixels(place) if place and now["state"] == "answering" else b""
            return bool(pixels) and seen.setdefault(place, pixels) != pixels

        self.until("moves the map in an answer", moves)
        self.until(
            "ends its answer", lambda now: now["state"] == "idle" and len(now["answers"]) > n_answer
        )
        return time.monotonic() - began

    def choose_file(self) -> None:
        """Type the name of a model into the dialog."""
        self.key("key", "ctrl+o")
        self.until("shows a dialog", lambda now: now["dialogs"])
        time.sleep(2)  # Qt does not know when Windows' own dialog is there
        self.key("type", "--delay", "30", TYPED)
        self.key("key", "Return")
        self.until("opens a model of the dialog", lambda now: is_ready(now, TYPED))

    def move_slider(self) -> int:
        """Drag the slider, and return the experts in each layer then."""
        self.click("manual")
        least, before, most = self.until(
            "shows the slider", lambda now: "slider" in now["places"] and now["state"] == "idle"
        )["slider"]
        x, y, width, height = self.told()["places"]["slider"]
        begin = x + round(8 + (width - 16) * (before - least) / (most - least))
        end = x + round(width * (0.35 if before > (least + most) / 2 else 0.65))
        self.key("mousemove", begin, y + height // 2, "mousedown", 1)
        for step in range(1, 9):
            self.key("mousemove", begin + (end - begin) * step // 8, y + height // 2)
            time.sleep(0.05)
        self.key("mouseup", 1)
        now = self.until(
            "follows the slider",
            lambda now: now["slider"][1] != before and now["n_slot"] == now["slider"][1],
        )
        return int(now["slider"][1])

    def start_again(self, model: Path) -> None:
        """Minimise the window, and start the application again with a model."""
        self.key("key", "alt+space")
        time.sleep(1)
        self.key("key", "n")
        self.until("is minimised", lambda now: now["is_minimised"])
        start = "import sys; from app.main import main; sys.exit(main())"
        path = "C:\\" + str(model.relative_to(self._drive)).replace("/", "\\")
        second = self._start(["wine", self._python, "-X", "utf8", "-c", start, path])
        if second.wait(LIMIT_S) != 0:
            raise WindowError(f"A second start ended with {second.returncode}.")
        self.until("comes forward with the model",
                   lambda now: now["is_front"] and is_ready(now, model.name))  # fmt: skip

    def close(self) -> Told:
        """Close the window, and wait for the end of all its processes."""
        last = self.told()
        self.key("key", "alt+F4")
        end_s = time.monotonic() + LIMIT_S
        while left := self.processes():
            if time.monotonic() > end_s:
                self.picture("failed")
                raise WindowError(f"{len(left)} processes of the closed window still run.")
            time.sleep(0.1)
        return last

    # Hands and eyes

    def told(self) -> Told:
        """Return what the window shows; an empty one before it is there."""
        with contextlib.suppress(FileNotFoundError):
            found: Told = json.loads(self._file.read_text("utf-8"))
            return found
        return {}

    def until(self, what: str, is_so: Callable[[Told], object]) -> Told:
        """Wait until the window shows something. Raises WindowError."""
        end_s = time.monotonic() + LIMIT_S
        while not ((now := self.told()) and is_so(now)):
            if time.monotonic() > end_s:
                self.picture("failed")
                raise WindowError(f"Under wine the window never {what}; it shows {now}.")
            time.sleep(0.1)
        return now

    def click(self, name: str) -> None:
        """Click on the middle of a widget, as soon as it stays where it is."""
        before = None
        while (place := self.told()["places"][name]) != before:
            before = place
            time.sleep(0.5)
        x, y, width, height = place
        self.key("mousemove", x + width // 2, y + height // 2, "click", 1)

    def key(self, *words: str | int) -> None:
        """Let xdotool press keys or move the mouse."""
        subprocess.run(["xdotool", *map(str, words)], env=self._environment, check=True)

    def pixels(self, place: tuple[int, ...]) -> bytes:
        """Return the pixels of a place: x, y, width, height."""
        x, y, width, height = place
        command = ["import", "-window", "root", "-crop", f"{width}x{height}+{x}+{y}", "rgb:-"]
        done = subprocess.run(command, env=self._environment, check=True, stdout=subprocess.PIPE)
        return done.stdout

    def picture(self, name: str) -> None:
        """Keep a picture of the screen, as soon as it has settled."""
        time.sleep(3)
        file = self._pictures / f"{name}.png"
        subprocess.run(["import", "-window", "root", file], env=self._environment, check=True)

    def processes(self) -> list[int]:
        """Return the processes of CPython in the prefix."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                program = (folder / "cmdline").read_bytes().split(b"\0")[0]
                here = f"WINEPREFIX={self._prefix}\0".encode() in (folder / "environ").read_bytes()
                if here and program.endswith(b"python.exe"):
                    found.append(int(folder.name))
        return found

    def _start(self, command: list[str | Path]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, cwd=self._checkout, env=self._environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._started.append(process)
        return process

    @contextlib.contextmanager
    def _screen(self) -> Iterator[None]:
        """Run an X server on a number that is free."""
        command = [
            "Xvfb",
            "-displayfd",
            "1",
            "-noreset",
            "-screen",
            "0",
            f"{SIZE}x24",
            "-nolisten",
            "tcp",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            assert server.stdout is not None
            self._environment["DISPLAY"] = f":{server.stdout.readline().decode().strip()}"
            try:
                subprocess.run(["setxkbmap", "de"], env=self._environment, check=True)
                yield
            finally:
                server.terminate()  # wine's desktop ends with it
                for process in self._started:
                    process.communicate(timeout=LIMIT_S)


def is_ready(now: Told, model: str) -> bool:
    """Return whether the window waits for a question to this model."""
    return now["state"] == "idle" and Path(now["model"].replace("\\", "/")).name == model
