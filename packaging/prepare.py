"""Set up this checkout: system packages, virtual environment, dependencies, native part.

Run `python packaging/prepare.py run` to set up the application, or `... dev` for the tests too.
This file needs the standard library only. A finished step is skipped: it leaves a stamp in .venv
with a digest of its inputs.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("OUTRIDER_VENV", ROOT / ".venv"))
"""packaging/release.py has an environment of its own."""
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMPS = VENV / ".outrider"

PYTHON_OLDEST = (3, 11)
LOCK = Path(__file__).with_name("requirements.lock")
LOCK_IS_FOR = ("linux", "x86_64", (3, 11))
"""The system, processor and Python of its versions. Others get what pyproject.toml allows."""

BUILD_TOOLS = ["cmake>=3.24", "ninja>=1.11"]
"""With these, scikit-build-core needs only a compiler from the system."""
LLAMA_SOURCE = STAMPS / "llama.cpp"
"""llama.cpp's chat layer, which the native part compiles (backend/native/chat/CMakeLists.txt): the
sources that LLAMA_PARTS names, and a file `release` with the requirement that they belong to."""
LLAMA_PARTS = ("LICENSE", "common", "include", "vendor/nlohmann")
LLAMA_ARGS = "-DGGML_RPC=on"
"""Options of llama.cpp's build. With rpc it computes on devices of other machines; the tests use a
device in another process. CMAKE_ARGS follows, for example with the backend of a GPU."""

AMX_MENDED = {11: (11, 5), 12: (12, 4), 13: (13, 3)}
"""The first release of each line of GCC that compiles llama.cpp's use of AMX; 14 does too."""

_ELSEWHERE = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_ROOT")
"""Variables with which pip would find or put packages in another place than the environment. A
user's pip.conf may say "user = true", too."""

PREFIXES = ("/usr", "/usr/local", os.environ.get("VULKAN_SDK", "/usr"))
SPIRV_HEADERS = "*/cmake/SPIRV-Headers/SPIRV-HeadersConfig.cmake"
VULKAN_PACKAGES: dict[str, Callable[[], bool]] = {
    "libvulkan-dev": lambda: any(Path(p, "include/vulkan/vulkan.h").is_file() for p in PREFIXES),
    "glslc": lambda: shutil.which("glslc") is not None,
    "spirv-headers": lambda: any(any(Path(p).glob(SPIRV_HEADERS)) for p in PREFIXES),
}
"""The Debian packages that llama.cpp's Vulkan backend is built with, and whether each is there."""


class SetupError(Exception):
    """The set-up cannot continue. The text is one plain sentence."""


def main(argv: list[str] | None = None) -> int:
    """Set up and return the exit status."""
    parser = argparse.ArgumentParser(description="Set up this checkout.")
    parser.add_argument("what", choices=("run", "dev"), help="dev: set up the tests too")
    what = parser.parse_args(argv).what
    try:
        prepare(with_tests=what == "dev")
    except SetupError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. Run the same command to continue.", file=sys.stderr)
        return 130
    return 0


def prepare(*, with_tests: bool) -> None:
    """Run each step that is out of date. Raise SetupError."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    base = requirements(project, with_tests=False)
    wanted = requirements(project, with_tests=True) if with_tests else base
    new_environment = not _works(PYTHON)
    built_how = [f"CMAKE_ARGS={_cmake_args()}"]
    built_how += [wheel for wheel in (os.environ.get("OUTRIDER_LLAMA"),) if wheel]
    stamps = {"dependencies": base + locked() + built_how}
    if with_tests:
        stamps["dependencies-dev"] = wanted + built_how
    last = list(stamps)[-1]
    installed = not new_environment and _is_stamped(last, _digest(stamps[last]))
    built = not new_environment and _is_stamped("native", _native_digest())
    llama = next((r for r in wanted if r.startswith("llama-cpp-python")), "")
    if installed and built and _has_source(llama):
        return
    install_system_packages(new_environment=new_environment)
    if new_environment:
        _make_environment()
    if not _has_source(llama):
        _say("Getting llama.cpp's sources.")
        _get_llama_source(llama)
    if not installed:
        _say("Installing the dependencies; llama.cpp is compiled, which takes some minutes.")
        if llama:
            _install_llama(llama)
        _install(wanted, [] if with_tests else locked())
        for name, inputs in stamps.items():
            _stamp(name, _digest(inputs))
    if not built:
        _say("Building the native part.")
        build = (
            () if VENV == ROOT / ".venv" else (f"--config-settings=build-dir={STAMPS / 'build'}",)
        )
        digest = _native_digest()  # a source that changes meanwhile is perhaps not in the build
        _pip("--no-build-isolation", "--no-deps", *build, "--editable", str(ROOT))
        _stamp("native", digest)


def requirements(project: dict[str, object], *, with_tests: bool) -> list[str]:
    """Return the requirements to install before the project, from the parsed pyproject.toml."""
    tables = project["project"], project["build-system"]
    assert isinstance(tables[0], dict) and isinstance(tables[1], dict)
    found = [*tables[0]["dependencies"], *tables[1]["requires"], *BUILD_TOOLS]
    if with_tests:
        found += tables[0]["optional-dependencies"]["dev"]
    return list(dict.fromkeys(found))


def locked() -> list[str]:
    """Return the versions of requirements.lock as pip's constraints; none on another system.

    llama-cpp-python is left out: pyproject.toml pins it, and it is built here.
    """
    if (sys.platform, platform.machine(), sys.version_info[:2]) != LOCK_IS_FOR:
        return []
    lines = LOCK.read_text(encoding="ascii").splitlines()
    return [line.split()[0] for line in lines if not line.startswith(("#", "llama-cpp-python"))]


def _install(wanted: list[str], versions: list[str]) -> None:
    """Install requirements. `versions`: of all that may be installed; others are free."""
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder, "constraints.txt")
        constraints.write_text("\n".join(versions), encoding="ascii")
        _pip(*wanted, "--constraint", str(constraints))


def system_packages(*, new_environment: bool) -> tuple[list[str], list[str]]:
    """Return the missing Debian packages: required ones, and those for Qt."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    needed = []
    if new_environment and importlib.util.find_spec("ensurepip") is None:
        needed.append(f"{version}-venv")
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        needed.append(f"{version}-dev")
    if not _compiler():
        needed.append("g++")
    if "GGML_VULKAN=on" in _cmake_args() and "OUTRIDER_LLAMA" not in os.environ:
        needed += [package for package, is_there in VULKAN_PACKAGES.items() if not is_there()]
    sys.path.insert(0, str(ROOT))
    # Needs ROOT in sys.path. The module imports no Qt.
    from app.display import missing_packages

    return needed, missing_packages()


def install_system_packages(*, new_environment: bool) -> None:
    """Install missing packages, or name them. Raise SetupError if a required one is missing."""
    if sys.platform != "linux":
        if not _compiler():
            raise SetupError("Outrider needs a C++ compiler, and none was found.")
        return
    needed, for_window = system_packages(new_environment=new_environment)
    if (needed or for_window) and shutil.which("apt-get") and os.geteuid() == 0:
        _say(f"Installing system packages: {' '.join([*needed, *for_window])}")
        _apt_get("update")
        for packages in (needed, for_window):
            if packages:
                _apt_get("install", "--yes", "--no-install-recommends", *packages)
        needed, for_window = system_packages(new_environment=new_environment)
    command = f"sudo apt-get install {' '.join([*needed, *for_window])}"
    if needed:
        raise SetupError(f"System packages are missing; install them with: {command}")
    if for_window:
        _say(f"The window needs system libraries; install them with: {command}")


def _apt_get(*arguments: str) -> None:
    """Run apt-get and show its errors only. The caller checks which packages exist afterwards."""
    quiet = {"DEBIAN_FRONTEND": "noninteractive", "DEBCONF_NOWARNINGS": "yes"}
    subprocess.run(
        ["apt-get", "-qq", *arguments],
        env={**os.environ, **quiet},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )


def _compiler() -> str | None:
    if os.name == "nt":
        return "cl"  # CMake finds Visual Studio even if it is not on the path
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    return next((name for name in names if name and shutil.which(name.split()[0])), None)


def _make_environment() -> None:
    _say("Making the virtual environment .venv.")
    if _run([sys.executable, "-m", "venv", "--clear", str(VENV)]) != 0:
        raise SetupError("The virtual environment could not be made; the reason is above.")


def _works(python: Path) -> bool:
    """Return whether the environment's Python starts, is new enough, has pip and belongs here."""
    check = (
        f"import os, sys, pip; sys.exit(sys.version_info < {PYTHON_OLDEST!r} "
        f"or not os.path.samefile(sys.prefix, {str(VENV)!r}))"
    )
    try:
        return subprocess.run([python, "-c", check], capture_output=True).returncode == 0
    except OSError:
        return False


def _install_llama(requirement: str) -> None:
    """Install llama.cpp built with LLAMA_ARGS, unless such a build is installed.

    pip's wheel cache ignores CMAKE_ARGS and could return a wheel of another build, so each setting
    has its own cache. OUTRIDER_LLAMA names a wheel to install in place of a build.
    """
    arguments = _cmake_args()
    wheel = os.environ.get("OUTRIDER_LLAMA", requirement)
    if _is_stamped("llama", _digest([wheel, arguments])) or (
        arguments == LLAMA_ARGS and any(VENV.glob("**/llama_cpp/lib/*ggml-rpc*"))
    ):
        return
    _pip("--force-reinstall", "--no-deps", *_cache(), wheel, CMAKE_ARGS=_build_args())
    _stamp("llama", _digest([wheel, arguments]))


def _has_source(requirement: str) -> bool:
    """Return whether llama.cpp's sources of this release are there, or none are needed."""
    try:
        release = (LLAMA_SOURCE / "release").read_text(encoding="ascii")
    except OSError:
        return not requirement
    return release == requirement


def _get_llama_source(requirement: str) -> None:
    """Take what the native part needs from the source distribution of llama-cpp-python.

    The archive stays in pip's cache, from which _install_llama() gets it.
    """
    shutil.rmtree(LLAMA_SOURCE, ignore_errors=True)
    LLAMA_SOURCE.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=STAMPS) as folder:
        source = ("--no-deps", "--no-binary", "llama-cpp-python", "--dest", folder, requirement)
        _pip(*_cache(), *source, what="download")
        for archive in Path(folder).glob("*.tar.gz"):
            _unpack(archive)
    if not (LLAMA_SOURCE / "common" / "chat.h").is_file():
        raise SetupError(f"The source distribution of {requirement} has no sources of llama.cpp.")
    (LLAMA_SOURCE / "release").write_text(requirement, encoding="ascii")


def _unpack(archive: Path) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.partition("/vendor/llama.cpp/")[2]
            is_part = any(name == part or name.startswith(f"{part}/") for part in LLAMA_PARTS)
            data = tar.extractfile(member) if member.isfile() and is_part else None
            if data is not None and ".." not in name.split("/"):
                (LLAMA_SOURCE / name).parent.mkdir(parents=True, exist_ok=True)
                (LLAMA_SOURCE / name).write_bytes(data.read())


def _cache() -> list[str]:
    """Return pip's options for a cache of llama.cpp's build: a folder for each setting."""
    where = subprocess.run([PYTHON, "-m", "pip", "cache", "dir"], capture_output=True, text=True)
    found = where.stdout.strip() if where.returncode == 0 else ""
    setting = _sha256(_build_args().encode())[:16]
    return ["--cache-dir", str((Path(found) if found else STAMPS / "pip") / "outrider" / setting)]


def _cmake_args() -> str:
    return f"{LLAMA_ARGS} {os.environ.get('CMAKE_ARGS', '')}".strip()


def _build_args() -> str:
    """Return the options of the build: those that are asked for, and what the compiler needs."""
    return " ".join([*_without_amx(), _cmake_args()])


@functools.cache
def _without_amx() -> list[str]:
    """Return options that turn AMX off where GCC would miscompile llama.cpp's use of it.

    GCC's bug 114098: before 11.5, 12.4 and 13.3, _tile_loadconfig() loses most of the bytes to
    load, and llama.cpp dies of an illegal instruction. Debian 12 has GCC 12.2.
    """
    compiler = _compiler()
    if os.name == "nt" or compiler is None:
        return []
    command = [*compiler.split(), "-march=native", "-dM", "-E", "-x", "c++", os.devnull]
    shown = subprocess.run(command, capture_output=True, text=True)
    macros = dict(
        line.split(" ", 2)[1:] for line in shown.stdout.splitlines() if line.count(" ") > 1
    )
    if "__AMX_INT8__" not in macros or "__clang__" in macros:
        return []
    release = int(macros["__GNUC__"]), int(macros["__GNUC_MINOR__"])
    if release >= AMX_MENDED.get(release[0], (14, 0)):
        return []
    return ["-DCMAKE_C_FLAGS=-mno-amx-int8", "-DCMAKE_CXX_FLAGS=-mno-amx-int8"]


def _pip(*arguments: str, what: str = "install", **environment: str) -> None:
    command = [str(PYTHON), "-m", "pip", what, "--quiet", "--disable-pip-version-check"]
    if _run([*command, *arguments], **environment) != 0:
        raise SetupError("The installation failed; the reason is above.")


def _run(command: list[str], **environment: str) -> int:
    kept = {name: value for name, value in os.environ.items() if name not in _ELSEWHERE}
    env = {**kept, "PIP_USER": "0", **environment}
    return subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, env=env).returncode


def _native_digest() -> str:
    """Return a digest of all inputs of the native build and the installation."""
    native = ROOT / "backend" / "native"
    files = [ROOT / "pyproject.toml", ROOT / "CMakeLists.txt"]
    files += sorted(path for path in native.rglob("*") if path.is_file())
    return _digest(f"{path.relative_to(ROOT)}\0{_sha256(path.read_bytes())}" for path in files)


def _digest(parts: Iterable[str]) -> str:
    """Return a digest of texts, of this checkout's path and of the environment's Python."""
    environment = (VENV / "pyvenv.cfg").read_text(encoding="utf-8")
    return _sha256("\n".join([str(ROOT), environment, *parts]).encode())


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _is_stamped(name: str, digest: str) -> bool:
    try:
        return (STAMPS / name).read_text(encoding="ascii") == digest
    except OSError:
        return False


def _stamp(name: str, digest: str) -> None:
    STAMPS.mkdir(exist_ok=True)
    (STAMPS / name).write_text(digest, encoding="ascii")


def _say(sentence: str) -> None:
    print(sentence, flush=True)


if __name__ == "__main__":
    sys.exit(main())
