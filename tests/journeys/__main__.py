"""Set up what the journeys need, and run them: python3 tests/journeys [--all] [PYTEST'S ARGUMENTS].

The programs are those that `packaging/prepare.py run` installs: in .venv, if nothing of `dev` was
ever installed there, or else in build/journeys/users. The driver has an environment of its own in
build/journeys/driver. This file needs the standard library only.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WORK = ROOT / "build" / "journeys"
PROGRAMS = {
    "Xvfb": "xvfb",
    "dbus-daemon": "dbus-daemon",
    "matchbox-window-manager": "matchbox-window-manager",
    "xdotool": "xdotool",
    "xclip": "xclip",
}
"""What a screen with a session bus needs, and the Debian packages that have it."""
LAUNCHER = Path("/usr/libexec/at-spi-bus-launcher"), "at-spi2-core"


class SetupError(Exception):
    """The journeys cannot begin. The text is one plain sentence."""


def main() -> int:
    """Return the exit status of pytest."""
    parser = argparse.ArgumentParser(prog="journeys", description=__doc__)
    parser.add_argument("--all", action="store_true", help="those for the night, too")
    parser.add_argument("--programs", type=Path, help="the folder of outrider and outrider-app")
    options, arguments = parser.parse_known_args()
    began = time.monotonic()
    try:
        install_system_packages()
        programs = options.programs or users_environment() / "bin"
        driver = drivers_environment()
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    print(
        f"The programs are in {programs}, set up in {time.monotonic() - began:.0f} s.", flush=True
    )
    shutil.rmtree(WORK / "failures", ignore_errors=True)
    command = [
        driver, "-m", "pytest", "-c", HERE / "pytest.ini", "--confcutdir",
        HERE, "-p", "journeys.fixtures", "--programs", programs.absolute(),
        *(() if options.all else ("-m", "not night")), *arguments,
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    return subprocess.run([*map(str, command)], cwd=HERE, env=environment).returncode


def lacking() -> list[str]:
    """Return the missing Debian packages."""
    missing = [package for name, package in PROGRAMS.items() if shutil.which(name) is None]
    return missing + ([] if LAUNCHER[0].exists() else [LAUNCHER[1]])


def install_system_packages() -> None:
    """Install the missing packages as root, or name them."""
    if (missing := lacking()) and shutil.which("apt-get") and os.geteuid() == 0:
        print(f"Installing system packages: {' '.join(missing)}", flush=True)
        quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        install = ["install", "--yes", "--no-install-recommends", *missing]
        for arguments in (["update"], install):
            command = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", *arguments]
            subprocess.run(command, env=quiet, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if missing := lacking():
        raise SetupError(
            "The journeys need programs that are not installed; install them with: "
            f"sudo apt-get install {' '.join(missing)}"
        )


def users_environment() -> Path:
    """Return the environment that people get, with nothing of `dev` in it."""
    for place in (ROOT / ".venv", WORK / "users"):
        if not foreign(place):
            environment = {**os.environ, "OUTRIDER_VENV": str(place)}
            prepare = ["sh", "packaging/prepare.sh", "run"]
            if subprocess.run(prepare, cwd=ROOT, env=environment).returncode != 0:
                raise SetupError("The programs could not be set up; the reason is above.")
            found = foreign(place)
            if not found:
                return place
    raise SetupError(f"{place} has packages of `dev`: {', '.join(sorted(found))}.")


def foreign(place: Path) -> set[str]:
    """Return the packages of `dev` in an environment that no package for people needs."""
    lock = (ROOT / "packaging/requirements.lock").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    names = {normal(text) for text in project["project"]["optional-dependencies"]["dev"]}
    there = {normal(path.name.split("-")[0]) for path in place.glob("lib/*/*/*.dist-info")}
    return (names & there) - set(re.findall(r"^[\w.-]+(?===)", lock, re.M))


def normal(requirement: str) -> str:
    """Return the name in a requirement as the index of packages writes it."""
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0] if found else "").lower()


def drivers_environment() -> Path:
    """Return the Python of the driver, after installing what it needs."""
    wanted = Path(__file__).with_name("requirements.txt")
    place, stamp = WORK / "driver", WORK / "driver" / "stamp"
    python = place / "bin" / "python"
    digest = hashlib.sha256(f"{sys.version} {place}".encode() + wanted.read_bytes()).hexdigest()
    if not stamp.is_file() or stamp.read_text() != digest:
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r",
                   wanted]  # fmt: skip
        for command in ([sys.executable, "-m", "venv", "--clear", place], install):
            if subprocess.run([*map(str, command)], stdin=subprocess.DEVNULL).returncode != 0:
                raise SetupError("The driver could not be set up; the reason is above.")
        stamp.write_text(digest)
    return python


if __name__ == "__main__":
    sys.exit(main())
