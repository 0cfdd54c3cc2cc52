"""What a journey gets: an empty home with the programs, a desktop, and a stand-in hub."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PureWindowsPath
from typing import IO

import pytest
from fake_hub import FakeHub

from journeys.desktop import Desktop, Screen, until

ROOT = Path(__file__).resolve().parents[2]
FAILURES = ROOT / "build" / "journeys" / "failures"
WINDOW = "Outrider"
END_S = 60
NOT_SEEN = (
    "Wine 8 has no AT-SPI, and a window of Qt hangs there as soon as a client of UI Automation "
    "asks for its first child."
)


class Home:
    """An empty home folder, in which the programs run. Its variables are all that they get."""

    def __init__(self, folder: Path, programs: Path, variables: dict[str, str]) -> None:
        self.folder = self._new_folder(folder)
        self.logs: list[Path] = []
        self._around = folder
        self._programs = programs
        self._running: list[subprocess.Popen[bytes]] = []
        temporary = folder / "tmp"
        temporary.mkdir()
        self.variables = {
            "HOME": str(self.folder), "PATH": f"{programs}:/usr/bin:/bin", "LANG": "C.UTF-8",
            "TMPDIR": str(temporary), **variables,
        }  # fmt: skip

    def _new_folder(self, around: Path) -> Path:
        folder = around / "home"
        folder.mkdir()
        return folder

    def command(self, program: str, arguments: Sequence[object]) -> list[str]:
        """Return what starts a program with arguments."""
        return [str(self._programs / program), *map(self.shown, arguments)]

    def _output(self, log: Path) -> IO[bytes]:
        return log.open("wb")

    def shown(self, value: object) -> str:
        """Return a value as the programs write it; they have paths of their own under wine."""
        return str(value)

    def path(self, shown: str) -> Path:
        """Return the path that the programs have written."""
        return Path(shown)

    @property
    def data(self) -> Path:
        """The folder of chats, models and what was measured."""
        return self.folder / ".local" / "share" / "outrider"

    @property
    def settings(self) -> Path:
        """The file of the settings."""
        return self.folder / ".config" / "outrider" / "settings.json"

    def write(self, name: str, data: bytes) -> Path:
        """Write a file below the home, with its folders. Return its path."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def start(self, program: str, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a program. Its output goes to a file, which a failure keeps."""
        log = self._around / f"{len(self.logs) + 1}-{program}.log"
        self.logs.append(log)
        with self._output(log) as out:
            process = subprocess.Popen(
                self.command(program, arguments), cwd=self.folder, env=self.variables,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        self._running.append(process)
        return process

    def run(self, *arguments: object, status: int = 0, given: str = "") -> str:
        """Run `outrider` to its end with a text as input. Return what it prints, errors too."""
        log = self._around / f"{len(self.logs) + 1}-outrider.log"
        self.logs.append(log)
        called = f"$ outrider {' '.join(map(str, arguments))}\n".encode()
        try:
            done = subprocess.run(
                self.command("outrider", arguments), cwd=self.folder, env=self.variables,
                input=given.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
            )  # fmt: skip
        except subprocess.TimeoutExpired as late:
            log.write_bytes(called + (late.output or b""))
            raise
        log.write_bytes(called + done.stdout)
        said = done.stdout.decode().replace("\r\n", "\n")
        assert done.returncode == status, f"it ended with {done.returncode}: {said}"
        return said

    def ended(self, process: subprocess.Popen[bytes]) -> int:
        """Wait until a program has ended. Return its status."""
        return process.wait(timeout=END_S)

    def close(self) -> None:
        """End what still runs."""
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=END_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def faults(self) -> list[str]:
        """Return where a program has printed a traceback."""
        return [
            f"{log.name}: {said[said.index('Traceback') :]}"
            for log in self.logs if "Traceback" in (said := log.read_text("utf-8", "replace"))
        ]  # fmt: skip


class WineHome(Home):
    """The home of programs for Windows, whose drive C is that of the prefix WINEPREFIX.

    Its profile is emptied before each journey.
    """

    def __init__(self, folder: Path, programs: Path, variables: dict[str, str]) -> None:
        for_wine = {name: value for name, value in os.environ.items() if name.startswith("WINE")}
        self._drive = Path(for_wine["WINEPREFIX"]).absolute() / "drive_c"
        super().__init__(folder, programs, {**for_wine, **variables})

    def _new_folder(self, around: Path) -> Path:
        folder = self._drive / "users" / getpass.getuser()
        shutil.rmtree(folder, ignore_errors=True)
        for name in ("AppData/Local", "AppData/Roaming", "Temp"):
            (folder / name).mkdir(parents=True)
        return folder

    def command(self, program: str, arguments: Sequence[object]) -> list[str]:
        """Return what starts a program with arguments."""
        return ["wine", *super().command(f"{program}.exe", arguments)]

    def _output(self, log: Path) -> IO[bytes]:
        """Return a pipe into the log: Python for Windows cannot write into a file under wine."""
        with log.open("wb") as out:
            writer = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=out)
        assert writer.stdin is not None
        return writer.stdin

    def shown(self, value: object) -> str:
        """Return a value as the programs write it."""
        if not isinstance(value, Path) or not value.is_absolute():
            return str(value)
        return str(PureWindowsPath("C:/", value.relative_to(self._drive)))

    def path(self, shown: str) -> Path:
        """Return the path that the programs have written."""
        return self._drive.joinpath(*PureWindowsPath(shown).parts[1:])

    @property
    def data(self) -> Path:
        """The folder of chats, models and what was measured."""
        return self.folder / "AppData" / "Local" / "outrider"

    @property
    def settings(self) -> Path:
        """The file of the settings."""
        return self.data / "settings.json"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the programs, and what they start."""
    parser.addoption("--programs", type=Path, help="the folder of outrider and outrider-app")
    parser.addoption("--python", default=sys.executable, help="what runs a server of tools")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Keep what is known of a journey that failed, before its programs end."""
    report = yield
    folder = FAILURES / item.name
    if report.failed and not folder.exists():
        keep(folder, getattr(item, "funcargs", {}))
        said = "\n".join(
            f"{log.name}: {log.read_text('utf-8', 'replace')[-1500:]}"
            for log in sorted(folder.glob("*.log"))
        )
        report.sections.append(("What the programs printed", said))
        report.sections.append(("What was kept", f"Screen, tree and output are in {folder}"))
    return report


def keep(folder: Path, fixtures: dict[str, object]) -> None:
    """Write the screen, what the windows say and what the programs printed into a folder."""
    folder.mkdir(parents=True)
    home, screen, hub = (fixtures.get(name) for name in ("home", "screen", "hub"))
    if isinstance(home, Home):
        for log in home.logs:
            shutil.copy(log, folder)
    if isinstance(hub, FakeHub):
        (folder / "hub.txt").write_text("\n".join(map(str, hub.requests)), "utf-8")
    with contextlib.suppress(OSError):  # after the last journey the screen is gone
        if isinstance(screen, Screen):
            screen.picture(folder / "screen.png")
        if isinstance(screen, Desktop):
            (folder / "tree.txt").write_text(screen.tree(), "utf-8")


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Path:
    """Return the folder of the programs."""
    return Path(request.config.getoption("--programs").absolute())


@pytest.fixture(scope="session")
def is_windows(programs: Path) -> bool:
    """Return whether the programs are for Windows, and run under wine."""
    return (programs / "outrider.exe").is_file()


@pytest.fixture(scope="session")
def screen(is_windows: bool) -> Iterator[Screen]:
    """Return the screen of all journeys."""
    screen = Screen() if is_windows else Desktop()
    yield screen
    screen.close()


@pytest.fixture
def desktop(screen: Screen) -> Iterator[Desktop]:
    """Return the screen. Each control that gets the focus must have had a name."""
    if not isinstance(screen, Desktop):
        pytest.skip(NOT_SEEN)
    screen.nameless.clear()
    yield screen
    assert not screen.nameless, f"controls without a name: {sorted(screen.nameless)}"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    """Return a hub on this machine, without models at first."""
    with FakeHub() as hub:
        yield hub


@pytest.fixture
def home(
    tmp_path: Path, programs: Path, is_windows: bool, screen: Screen, hub: FakeHub
) -> Iterator[Home]:
    """Return an empty home."""
    variables = {**screen.environment, "HF_ENDPOINT": hub.url}
    home = (WineHome if is_windows else Home)(tmp_path, programs, variables)
    yield home
    home.close()
    if isinstance(screen, Desktop):
        until(lambda: not screen.windows(), "all windows are closed", END_S)
    assert home.faults() == []
