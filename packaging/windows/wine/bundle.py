"""`make wine-bundle`: bundle the program for Windows under wine, and try archive and installer.

    python packaging/windows/wine/bundle.py [--pictures FOLDER] [the journeys' arguments]

The recipe is the release workflow's, packaging/release.py, run by the CPython of check.py. It
differs in llama.cpp and the native part, which mingw-w64 has built, without Vulkan and with one
build for the CPU, and in versions that packaging/locked.py names. The trial has a prefix of wine of
its own, without a Python, and folders with spaces and umlauts. The journeys (tests/journeys) go in
it, as far as they can. This file needs the standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import getpass
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import check
from check import CACHE, CHECKOUT, PYTHON, ROOT, SITE, CheckError, run, wine

BUNDLE = CHECKOUT / "dist" / "outrider"
DIST = CACHE / "dist"
TRIAL = CACHE / "trial"
DRIVE = TRIAL / "drive_c"
"""Programs start on it: on Z Linux's /proc is visible."""
HOME = DRIVE / "users" / getpass.getuser()
UNPACKED = DRIVE / "Ümlaut Ordner mit Leerzeichen"
INSTALLED = HOME / "AppData" / "Local" / "Programs" / "Outrider"
DATA = HOME / "AppData" / "Local" / "outrider"
SHORTCUT = HOME.joinpath(*"AppData/Roaming/Microsoft/Windows/Start Menu/Programs".split("/"))
CLASSES = r"HKCU\Software\Classes"
SCREEN = ":72"
MORE = {"WINEPREFIX": str(TRIAL), "WINEPATH": "", "DISPLAY": SCREEN}
PACKAGES = {"nsis": "makensis", "xvfb": "Xvfb", "xdotool": "xdotool", "imagemagick": "import"}
"""Debian's packages beside those of check.py, and a program of each."""
STUBS = ("icuuc.dll", "bcryptprimitives.dll")
"""Libraries of Windows that wine lacks, so that its own folder has them in the trial."""
WINDOW_S = 120.0
PROMPT = "Tell me a story about a fox."


def main() -> int:
    """Run the steps and return the exit status."""
    parser = argparse.ArgumentParser(description="Bundle the program for Windows under wine.")
    parser.add_argument("--pictures", type=Path, default=DIST, help="the folder of the pictures")
    options, journeys = parser.parse_known_args()
    pictures = options.pictures
    check.PACKAGES.update(PACKAGES)
    os.environ.setdefault("SOURCE_DATE_EPOCH", run("git", "-C", str(ROOT), "log", "-1",
                                                   "--format=%ct").stdout.strip())  # fmt: skip
    try:
        for step in (
            check.require, check.fetch, check.install_python, check.build_llama,
            check.build_native, check.copy_checkout, bundle, pack, new_prefix,
        ):  # fmt: skip
            check.follow(step)
        with screen(), check.kept_awake(MORE):  # wine looks for a display once
            check.follow(lambda: try_archive(pictures))
            check.follow(lambda: try_installer(pictures))
        check.follow(lambda: try_journeys(journeys))
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def bundle() -> str:
    """Make the bundle as the release workflow does, with PyInstaller."""
    # So that packaging/locked.py finds what the project needs; nothing installs it there.
    about = SITE / f"outrider-{version()}.dist-info"
    about.mkdir(exist_ok=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = "".join(f"Requires-Dist: {one}\n" for one in project["dependencies"])
    (about / "METADATA").write_text(f"Name: outrider\nVersion: {version()}\n{needed}", "utf-8")
    done = check.python("packaging/release.py", "--python", r"C:\python\python.exe", "bundle",
                        shows=True)  # fmt: skip
    if done.returncode != 0:
        raise CheckError("PyInstaller's bundle failed; the reason is above.")
    files = [path for path in BUNDLE.rglob("*") if path.is_file()]
    foreign = [path.name for path in files if path.name.lower() in STUBS]
    if foreign:
        raise CheckError(f"The bundle has {', '.join(foreign)}, which Windows has.")
    return f"the bundle has {len(files)} files, {sum(p.stat().st_size for p in files) / 1e6:.0f} MB"


def pack() -> str:
    """Make the archive and the installer."""
    run(sys.executable, str(CHECKOUT / "packaging" / "release.py"), "zip", "installer")
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    for path in (archive(), installer()):
        shutil.move(BUNDLE.parent / path.name, path)
    return ", ".join(f"{p.name} {p.stat().st_size / 1e6:.1f} MB" for p in sorted(DIST.iterdir()))


def new_prefix() -> str:
    """Make a prefix of wine without a Python."""
    shutil.rmtree(TRIAL, ignore_errors=True)
    TRIAL.mkdir()
    run("wineboot", "--init", more=MORE)
    for name in STUBS:
        shutil.copy(PYTHON / name, DRIVE / "windows" / "system32")
    if list(DRIVE.rglob("python*.exe")):
        raise CheckError("The new prefix of wine has a Python.")
    return "a prefix without a Python"


def try_archive(pictures: Path) -> str:
    """Unpack the archive, answer from it, verify, and open its window."""
    with zipfile.ZipFile(archive()) as packed:
        packed.extractall(UNPACKED)
    folder = UNPACKED / "outrider"
    answer = try_programs(folder, pictures / "archive.png")
    model = folder / "_internal" / "assets" / "embedded" / "outrider-tiny.gguf"
    arguments = ("verify", windows_path(model), "--rates", check.RATES, "--methods", "promoe,lru")
    done = wine(folder / "outrider.exe", *arguments, folder=DRIVE, more=MORE)
    if done.returncode != 0:
        raise CheckError(f"outrider.exe verify failed: {done.stdout}{done.stderr}")
    return f"the archive answers ({answer}), and verifies: {done.stdout.strip().splitlines()[-1]}"


def try_journeys(arguments: Sequence[str]) -> str:
    """Go the journeys in the unpacked archive, with arguments of pytest."""
    command = [sys.executable, str(ROOT / "tests" / "journeys"), "--all", "--programs",
               str(UNPACKED / "outrider"), *arguments]  # fmt: skip
    done = subprocess.run(command, env=check.environment(MORE))
    run("wineserver", "--kill", check=False, more=MORE)
    if done.returncode != 0:
        raise CheckError("Journeys failed under wine; they are named above.")
    return "journeys passed"


def try_programs(folder: Path, picture: Path, while_open: Callable[[], None] = lambda: None) -> str:
    """Try both executables of a folder. Return the answer of the embedded model."""
    said = wine(folder / "outrider.exe", "--version", folder=DRIVE, more=MORE)
    if said.stdout.strip() != f"outrider {version()}":
        raise CheckError(f"outrider.exe --version said: {said.stdout}{said.stderr}")
    arguments = ("chat", "-p", PROMPT, "--max-tokens", "20")
    said = wine(folder / "outrider.exe", *arguments, folder=DRIVE, more=MORE)
    if said.returncode != 0 or not said.stdout.strip():
        raise CheckError(f"outrider.exe chat failed: {said.stdout}{said.stderr}")
    try_window(folder / "outrider-app.exe", picture, while_open)
    return said.stdout.strip()


def try_window(program: Path, picture: Path, while_open: Callable[[], None]) -> None:
    """Open the window, take its picture and close it. Raises CheckError."""
    command = ["wine", str(program)]
    with subprocess.Popen(
        command, cwd=DRIVE, env=check.environment(MORE), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,  # wine must have a pipe
    ) as process:  # fmt: skip
        try:
            wait_for(lambda: find_window() is not None, "outrider-app.exe shows no window")
            wait_for(lambda: (DATA / "chats.db").is_file(), "outrider-app.exe keeps no chats")
            time.sleep(10)  # the model loads meanwhile; nothing is judged by it
            picture.parent.mkdir(parents=True, exist_ok=True)
            run("import", "-display", SCREEN, "-window", "root", str(picture), more=MORE)
            while_open()
            wine("taskkill", "/im", program.name, folder=DRIVE, more=MORE)  # as its cross does
            process.wait(WINDOW_S)
            tasks = "outrider-app.exe leaves processes behind"
            wait_for(lambda: program.name not in wine("tasklist", more=MORE).stdout, tasks)
        except subprocess.TimeoutExpired:
            raise CheckError("outrider-app.exe does not close.") from None
        finally:
            process.kill()


def find_window() -> str | None:
    """Return the window's number, if there is one."""
    found = run("xdotool", "search", "--onlyvisible", "--name", "Outrider", check=False, more=MORE)
    return found.stdout.split()[0] if found.stdout.strip() else None


def try_installer(pictures: Path) -> str:
    """Install, use, install over it, and remove, silently."""
    old = INSTALLED / "_internal" / "of an older version.dll"
    for _ in range(2):  # the second over the first
        if wine(installer(), "/S", folder=DRIVE, more=MORE).returncode != 0:
            raise CheckError("The installer failed.")
        missing = [path for path in BUNDLE.rglob("*")
                   if not (INSTALLED / path.relative_to(BUNDLE)).exists()]  # fmt: skip
        if missing or not (SHORTCUT / "Outrider.lnk").is_file():
            raise CheckError(f"The installer has left out the Start menu, or {missing[:3]}.")
        if old.exists():
            raise CheckError("The installer leaves libraries of an older version.")
        old.touch()
    program = windows_path(INSTALLED / "outrider-app.exe")
    for key, wanted in (
        (rf"{CLASSES}\.gguf", "Outrider.gguf"),
        (rf"{CLASSES}\Outrider.gguf\shell\open\command", f'"{program}" "%1"'),
    ):
        if value(key) != wanted:
            raise CheckError(f"{key} is {value(key)}, and should be {wanted}.")
    answer = try_programs(INSTALLED, pictures / "installed.png", try_over_an_open_window)
    chats = (DATA / "chats.db").read_bytes()
    if wine(INSTALLED / "uninstall.exe", "/S", folder=DRIVE, more=MORE).returncode != 0:
        raise CheckError("uninstall.exe failed.")
    wait_for(lambda: not INSTALLED.exists(), "uninstall.exe leaves files")  # a copy of it goes on
    wait_for(lambda: value(rf"{CLASSES}\.gguf") is None, "uninstall.exe leaves .gguf")
    keys = (rf"{CLASSES}\Outrider.gguf", r"HKCU\Software\Outrider")
    left = [key for key in keys if value(key) is not None]
    if left or (SHORTCUT / "Outrider.lnk").exists():
        raise CheckError(f"uninstall.exe leaves the Start menu's entry, or {left}.")
    if (DATA / "chats.db").read_bytes() != chats:
        raise CheckError("uninstall.exe has changed the chats.")
    return f"installed, answered ({answer}), removed; the chats are left"


def try_over_an_open_window() -> None:
    """Raise CheckError unless the installer refuses."""
    aborted = 2  # of NSIS
    if wine(installer(), "/S", folder=DRIVE, more=MORE).returncode != aborted:
        raise CheckError("The installer replaces the libraries of an open window.")


def value(key: str) -> str | None:
    """Return the unnamed value of a key of the registry; None if there is no such key."""
    done = wine("reg", "query", key, "/ve", folder=DRIVE, more=MORE)
    found = re.search(r"REG_SZ\s+(.*)", done.stdout)
    return found[1].strip() if done.returncode == 0 and found else None


def windows_path(path: Path) -> str:
    """Return the name that Windows has for a path on drive C."""
    return "C:\\" + "\\".join(path.relative_to(DRIVE).parts)


@contextlib.contextmanager
def screen() -> Iterator[None]:
    """Have a display of X11 without a screen."""
    display = subprocess.Popen(
        ["Xvfb", SCREEN, "-screen", "0", "1280x800x24"], stderr=subprocess.DEVNULL
    )
    try:
        wait_for(lambda: Path(f"/tmp/.X11-unix/X{SCREEN[1:]}").exists(), "Xvfb does not start")
        yield
    finally:
        display.terminate()
        display.wait()


def wait_for(holds: Callable[[], bool], otherwise: str) -> None:
    """Wait until a condition holds. Raises CheckError after WINDOW_S."""
    end_s = time.monotonic() + WINDOW_S
    while not holds():
        if time.monotonic() > end_s:
            raise CheckError(f"{otherwise}.")
        time.sleep(0.5)


def archive() -> Path:
    """Return the path of the archive."""
    return DIST / f"outrider-{version()}-windows.zip"


def installer() -> Path:
    """Return the path of the installer."""
    return archive().with_suffix(".exe")


def version() -> str:
    """Return the version that the checkout says."""
    text = (ROOT / "backend" / "__init__.py").read_text("utf-8")
    (found,) = re.findall(r'^__version__ = "(.*)"', text, re.M)
    return str(found)


if __name__ == "__main__":
    sys.exit(main())
