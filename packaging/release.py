"""Build the files for users: the bundle, a .deb, an AppImage, their sums, contents and notes.

    python packaging/release.py all        bundle, deb, appimage and what belongs to them
    python packaging/release.py bundle zip installer        on Windows, with NSIS
    python packaging/release.py publish      put what lies in dist where people get it, with gh
    python packaging/release.py --to FOLDER publish         the same into a folder, to try it

or one of the targets. Everything is made in build/release and dist, from the commit that is checked
out, with times of that commit (SOURCE_DATE_EPOCH): the same commit gives the same bytes.
This file needs the standard library only.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
LINUX = HERE / "linux"
WORK = ROOT / "build" / "release"
VENV = WORK / "venv"
DIST = ROOT / "dist"
BUNDLE = DIST / "outrider"
LLAMA = "llama-cpp-python"

MODULAR_ARGS = (
    # Backends are modules beside ggml; the engine loads those that this machine can use. CMake
    # makes a path absolute unless it has a type.
    "-DGGML_BACKEND_DL=on -DCMAKE_INSTALL_BINDIR:STRING=llama_cpp/lib -DGGML_NATIVE=off "
    "-DGGML_CPU_ALL_VARIANTS=on -DGGML_RPC=on -DGGML_VULKAN=on"
)
if sys.platform == "darwin":  # all Macs of a kind have the same processor features, and Metal
    MODULAR_ARGS = "-DGGML_NATIVE=off -DGGML_RPC=on"
EDITS = (
    # llama.cpp's library for its own programs, which nothing here uses, is a fifth of the work.
    ("CMakeLists.txt", "LLAMA_BUILD_COMMON ON CACHE", "LLAMA_BUILD_COMMON OFF CACHE"),
    # The package forgets the builds for several processors, which are targets of their own.
    (
        "CMakeLists.txt",
        "    llama_cpp_python_install_target(ggml-cpu)\n",
        "    llama_cpp_python_install_target(ggml-cpu)\n"
        "    get_property(builds DIRECTORY vendor/llama.cpp/ggml/src\n"
        "                 PROPERTY BUILDSYSTEM_TARGETS)\n"
        '    list(FILTER builds INCLUDE REGEX "^ggml-cpu-")\n'
        '    list(FILTER builds EXCLUDE REGEX "-feats$")\n'
        "    foreach(build ${builds})\n"
        "        llama_cpp_python_install_target(${build})\n"
        "    endforeach()\n",
    ),
    # The Vulkan module would name the folder of the loader that it was linked with.
    (
        "CMakeLists.txt",
        "set(CMAKE_INSTALL_RPATH_USE_LINK_PATH TRUE)",
        "set(CMAKE_INSTALL_RPATH_USE_LINK_PATH FALSE)",
    ),
    # MSVC's std::regex throws after some hundred letters without a space (llama.cpp's issue 9715),
    # and nothing catches it. Others know no such limit; backend/llama/api.py cuts such texts.
    (
        "vendor/llama.cpp/src/unicode.cpp",
        "#include <regex>\n",
        "#define _REGEX_MAX_STACK_COUNT 0\n#include <regex>\n",
    ),
    # GCC 12.2 drops the stores to `tc` (GCC's PR target/114098): the first use of AMX then ends the
    # process.
    (
        "vendor/llama.cpp/ggml/src/ggml-cpu/amx/mmq.cpp",
        "    _tile_loadconfig(&tc);",
        '    __asm__ volatile("" ::"r"(&tc) : "memory");\n    _tile_loadconfig(&tc);',
    ),
)
"""Changes of the sources of llama-cpp-python, which change nothing that is computed."""
DEPENDS = (
    # Qt's libraries that every desktop has and that a bundle must not carry, because they belong to
    # the drivers; and the libraries of GCC 12, which drivers need in a version not older than ours.
    # Downloads need the certificates.
    "ca-certificates, libc6 (>= 2.35), libgcc-s1, libstdc++6 (>= 12), libgl1, libegl1, "
    "libfontconfig1, libfreetype6, libwayland-client0, libwayland-cursor0, libx11-6, "
    "libx11-xcb1, libxcb1, xkb-data, zlib1g"
)

PROGRAMS = {
    "bundle": {"strip": "binutils", "readelf": "binutils", "patchelf": "patchelf"},
    "deb": {"dpkg-deb": "dpkg"},
    "appimage": {"mksquashfs": "squashfs-tools", "cc": "gcc"},
}
"""The programs that a target needs on Linux, and the Debian packages that have them."""
ZSYNC = "outrider-x86_64.AppImage.zsync"
"""The file that an updater of AppImages reads.

An old one asks for it, so its name has no version.
"""
HEAD = "squashfuse_ll squashfuse fuse3 zstd".split()
"""The libraries that are linked into the head of an AppImage; packaging/licences names them."""
BUILD_TOOLS = ("scikit-build-core", "pathspec", "packaging", "cmake", "ninja")


class ReleaseError(Exception):
    """The build cannot continue. The text is one plain sentence."""


def main(argv: list[str] | None = None) -> int:
    """Build the targets that were asked for. Return the exit status."""
    parser = argparse.ArgumentParser(description="Build what users are given.")
    parser.add_argument("targets", nargs="+", choices=sorted(TARGETS))
    parser.add_argument(
        "--python",
        type=Path,
        help="bundle this environment as it is, for a trial: nothing is installed, and versions "
        "that are not those of requirements.lock are only named",
    )
    parser.add_argument("--runtime", type=Path, help="the head of the AppImage, if not our own")
    parser.add_argument("--to", type=Path, help="publish into this folder, not with gh")
    options = parser.parse_args(argv)
    try:
        build = Build(options.python, options.runtime, options.to)
        build.require(options.targets)
        for target in options.targets:
            TARGETS[target](build)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


class Build:
    """One build: its version, times and environment."""

    def __init__(
        self, python: Path | None = None, runtime: Path | None = None, to: Path | None = None
    ) -> None:
        self.version = version()
        self.epoch = commit_time()
        self._python = Path(os.path.abspath(python)) if python else None  # a link stays a link
        self._runtime = runtime
        self.to = to
        self.is_own = python is None
        self.environment = {
            **os.environ,
            "SOURCE_DATE_EPOCH": str(self.epoch),
            "PYTHONHASHSEED": "0",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }

    def require(self, targets: list[str]) -> None:
        """Raise ReleaseError where a program is missing that is needed only after a long time."""
        if sys.platform != "linux":
            return
        names = PROGRAMS if "all" in targets else [name for name in targets if name in PROGRAMS]
        needed = {key: value for name in names for key, value in PROGRAMS[name].items()}
        missing = [program for program in needed if shutil.which(program) is None]
        if missing:
            packages = dict.fromkeys(needed[program] for program in missing)
            raise ReleaseError(
                f"These programs are missing: {', '.join(missing)}. On Debian and Ubuntu install "
                f"them with: apt install {' '.join(packages)}"
            )
        if "appimage" in names and self._runtime is None:
            WORK.mkdir(parents=True, exist_ok=True)
            try:
                self.runtime()
            except ReleaseError:
                raise ReleaseError(
                    "The head of the AppImage cannot be built. On Debian and Ubuntu install what "
                    "it needs with: apt install gcc libsquashfuse-dev libfuse3-dev libzstd-dev"
                ) from None
        if self._python is not None:
            ask = "import sys, PyInstaller; print(sys.version_info >= (3, 11))"
            try:
                said = subprocess.run([self._python, "-c", ask], capture_output=True).stdout
            except OSError as error:
                raise ReleaseError(f"{self._python} does not start: {error.strerror}.") from None
            if said.strip() != b"True":
                raise ReleaseError(f"{self._python} is no Python 3.11 with PyInstaller.")
        elif names:
            # Packages that prepare.py would ask for only after llama.cpp is built. The folder is no
            # package.
            begin = "prepare.install_system_packages(new_environment=not prepare.VENV.exists())"
            more = {"OUTRIDER_VENV": str(VENV)}
            if not self._has_vulkan_tools():
                more["CMAKE_ARGS"] = MODULAR_ARGS
            self.run(
                sys.executable, "-c",
                f"import sys, prepare\ntry: {begin}\n"
                "except prepare.SetupError as error: sys.exit(str(error))",
                folder=HERE, more=more,
            )  # fmt: skip

    @property
    def date(self) -> str:
        """The day of the commit, as 2026-01-31."""
        return datetime.datetime.fromtimestamp(self.epoch, datetime.UTC).date().isoformat()

    @property
    def name(self) -> str:
        """The file name of a download without its suffix."""
        return f"outrider-{self.version}-x86_64"

    def python(self) -> Path:
        """Return the Python whose packages are bundled, after making its environment."""
        if self._python is None:
            self._make_environment()
            self._python = _python_of(VENV)
        return self._python

    def _make_environment(self) -> None:
        wheel = self._llama_wheel()
        flags = _flags(WORK)
        more = {"OUTRIDER_VENV": str(VENV), "OUTRIDER_LLAMA": str(wheel)}
        more |= {"CFLAGS": flags, "CXXFLAGS": flags, "CMAKE_ARGS": MODULAR_ARGS}
        if sys.platform == "linux":
            more["PIP_CONSTRAINT"] = str(_pinned("constraints.txt", hashes=False))
        self.run(sys.executable, str(HERE / "prepare.py"), "run", more=more)

    def _llama_wheel(self) -> Path:
        """Build llama.cpp with its backends as modules, once for each version and setting."""
        pin = next(
            line.strip(' ",') for line in (ROOT / "pyproject.toml").read_text("utf-8").splitlines()
            if line.strip().startswith(f'"{LLAMA}==')
        ).split('"')[0]  # fmt: skip
        key = hashlib.sha256(f"{pin} {MODULAR_ARGS} {EDITS} {sys.version}".encode()).hexdigest()[
            :12
        ]
        folder = WORK / f"llama-{key}"
        found = list(folder.glob("*.whl"))
        if found:
            return found[0]
        tools = WORK / "tools"
        python = _python_of(tools)
        if not python.exists():
            self.run(sys.executable, "-m", "venv", str(tools))
        pip = (str(python), "-m", "pip", "--disable-pip-version-check", "--quiet")
        self.run(*pip, "install", *_exactly("tools.txt", BUILD_TOOLS))
        source = WORK / LLAMA
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir(parents=True)
        self.run(*pip, "download", "--no-deps", "--no-binary", LLAMA, "--no-build-isolation",
                 "--dest", str(source), pin)  # fmt: skip
        with tarfile.open(next(source.glob("*.tar.gz"))) as tar:
            tar.extractall(source, filter="data")
        (unpacked,) = (path for path in source.iterdir() if path.is_dir())
        for name, said, instead in EDITS:
            text = (unpacked / name).read_text("utf-8")
            if text.count(said) != 1:
                raise ReleaseError(f"The sources of {pin} have changed: {name} lacks {said!r}.")
            (unpacked / name).write_text(text.replace(said, instead), "utf-8")
        flags = _flags(unpacked)
        self.run(
            *pip, "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(folder),
            f"-Cbuild-dir={WORK / 'llama-build'}", str(unpacked),
            more={
                "CFLAGS": flags,
                "CXXFLAGS": flags,
                "CMAKE_ARGS": f"{MODULAR_ARGS} {self._vulkan_args()}",
                "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            },
        )  # fmt: skip
        return next(folder.glob("*.whl"))

    def _has_vulkan_tools(self) -> bool:
        """Return whether headers and shader compiler are, or will be, in a folder of their own."""
        system = Path("/etc/os-release")
        is_old = system.is_file() and "bookworm" in system.read_text("utf-8")
        return is_old or bool(os.environ.get("OUTRIDER_VULKAN_TOOLS"))

    def _vulkan_args(self) -> str:
        """Return where headers and shader compiler are, if not where CMake looks by itself."""
        if not self._has_vulkan_tools():
            return ""
        named = os.environ.get("OUTRIDER_VULKAN_TOOLS")
        folder = Path(named) if named else WORK / "vulkan"
        if not named:
            self.run("sh", str(LINUX / "vulkan-tools.sh"), str(folder))
        usr = folder / "usr"
        return (
            f"-DVulkan_INCLUDE_DIR={usr}/include -DVulkan_GLSLC_EXECUTABLE={folder}/glslc "
            f"-DVulkan_LIBRARY={usr}/lib/x86_64-linux-gnu/libvulkan.so.1 "
            f"-DSPIRV-Headers_DIR={usr}/share/cmake/SPIRV-Headers"
        )

    def runtime(self) -> bytes:
        """Return the head of an AppImage, which mounts the image behind it."""
        if self._runtime is not None:
            return self._runtime.read_bytes()
        program = WORK / "runtime"
        WORK.mkdir(parents=True, exist_ok=True)
        self.run(
            os.environ.get("CC", "cc"), "-D_FILE_OFFSET_BITS=64", "-O2", "-s",
            "-Wl,--build-id=none", "-ffunction-sections", "-Wl,--gc-sections", "-o", str(program),
            str(LINUX / "runtime.c"), "-Wl,-Bstatic", *(f"-l{name}" for name in HEAD),
            "-Wl,-Bdynamic", "-lpthread", "-ldl",
        )  # fmt: skip
        return program.read_bytes()

    def run(
        self, *command: str, folder: Path = ROOT, more: Mapping[str, str] | None = None
    ) -> None:
        """Run a program, with `more` in its environment. Raise ReleaseError if it fails."""
        print("+", " ".join(command), flush=True)
        try:
            done = subprocess.run(command, cwd=folder, env={**self.environment, **(more or {})})
        except OSError as error:
            raise ReleaseError(f"{command[0]} cannot be started: {error.strerror}.") from None
        if done.returncode != 0:
            raise ReleaseError(f"{command[0]} failed; the reason is above.")


def _pinned(name: str, only: Container[str] = (), *, hashes: bool = True) -> Path:
    """Write lines of requirements.lock, all or some, into a file of pip's. Return its path.

    llama-cpp-python is left out: it is built here.
    """
    lines = (HERE / "requirements.lock").read_text("ascii").splitlines()
    lines = [x for x in lines if not x.startswith(("#", LLAMA))]
    if only:
        lines = [line for line in lines if line.split("==")[0] in only]
    path = WORK / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{x if hashes else x.split()[0]}\n" for x in lines), "ascii")
    return path


def _exactly(name: str, only: Container[str] = ()) -> tuple[str, ...]:
    """Return pip's options that install lines of requirements.lock, as _pinned() has them."""
    is_linux = sys.platform == "linux"  # the hashes are those of files for Linux
    exact = ("--require-hashes", "--no-deps", "--force-reinstall", "--only-binary", ":all:")
    pinned = _pinned(name, only, hashes=is_linux)
    return (*(exact if is_linux else ()), "--requirement", str(pinned))


def _python_of(environment: Path) -> Path:
    return environment / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _flags(source: Path) -> str:
    """Return compiler flags that keep the paths of this machine out of programs."""
    if os.name == "nt":
        return ""
    return f"-ffile-prefix-map={source}=. -ffile-prefix-map={ROOT}=."


def version() -> str:
    """Return the version, which backend/__init__.py says."""
    return _said("__version__")


def releases_url() -> str:
    """Return the folder of the releases, as the program does (backend/downloads/newer.py)."""
    return os.environ.get("OUTRIDER_RELEASES", _said("RELEASES_URL")).rstrip("/")


def _said(name: str) -> str:
    text = (ROOT / "backend" / "__init__.py").read_text("utf-8")
    found = re.search(rf'^{name} = "([^"]*)"', text, re.M)
    assert found is not None
    return found[1]


def commit_time() -> int:
    """Return SOURCE_DATE_EPOCH, or the time of the commit, in seconds since 1970."""
    if said := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(said)
    try:
        done = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True
        )
    except OSError:
        raise ReleaseError("There is no git, which says the time of the commit.") from None
    if done.returncode != 0:
        raise ReleaseError("This is no git checkout; SOURCE_DATE_EPOCH must say the time.")
    return int(done.stdout)


def bundle(build: Build) -> None:
    """Make dist/outrider, the folder that runs without an installed Python."""
    python = build.python()
    stamp, digest = WORK / "bundle.digest", _bundle_digest()
    if build.is_own:
        if BUNDLE.is_dir() and stamp.is_file() and stamp.read_text("ascii") == digest:
            print("dist/outrider is up to date.", flush=True)
            return
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        only = () if sys.platform == "linux" else ("pyinstaller",)
        build.run(*pip, *_exactly("pinned.txt", only))
        build.run(str(python), str(HERE / "locked.py"))
    else:
        subprocess.run([python, HERE / "locked.py"], cwd=ROOT, env=build.environment)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(BUNDLE, ignore_errors=True)
    shutil.rmtree(WORK / "pyinstaller", ignore_errors=True)
    build.run(
        str(python), "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN",
        "--distpath", str(DIST), "--workpath", str(WORK / "pyinstaller"),
        str(HERE / "outrider.spec"),
    )  # fmt: skip
    _shorten_records(BUNDLE / "_internal")
    if sys.platform == "linux":
        _strip(BUNDLE / "_internal")
        command = BUNDLE / "outrider"
        _copy(LINUX / "outrider", command)
        command.chmod(0o755)
    build.run(str(python), str(HERE / "notices.py"), str(BUNDLE / "_internal"))
    if build.is_own:
        stamp.write_text(digest, "ascii")


def _bundle_digest() -> str:
    """Return a digest of a bundle's sources: `make deb` and `make appimage` share one bundle."""
    digest = hashlib.sha256(f"{ROOT} {sys.version} {MODULAR_ARGS} {EDITS}".encode())
    for folder in ("app", "assets", "backend", "packaging"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and ".so" not in path.suffixes:
                digest.update(f"{path.relative_to(ROOT)}\0{_sha256(path)}\n".encode())
    return digest.hexdigest()


def _shorten_records(folder: Path) -> None:
    """Have each package list only its files that are here.

    Others, such as its commands, name the folder where it was installed.
    """
    for record in folder.glob("*.dist-info/RECORD"):
        record.with_name("direct_url.json").unlink(missing_ok=True)
        lines = record.read_text("utf-8").splitlines(keepends=True)
        here = [line for line in lines if (folder / line.split(",")[0]).is_file()]
        record.write_text("".join(x for x in here if not x.startswith("..")), "utf-8")


def _strip(folder: Path) -> None:
    """Remove the symbols that only a debugger reads from programs built here, and from Python.

    Libraries of wheels stay as they are: those that auditwheel has changed would no longer load.
    """
    found = [*folder.glob("libpython*"), *folder.glob("python3.*/lib-dynload/*.so")]
    for name in ("backend", "llama_cpp/lib"):
        found += folder.glob(f"{name}/*.so*")
    for path in found:
        if not path.is_symlink():
            subprocess.run(["strip", "--strip-unneeded", str(path)], check=True)
            _forget_paths(path)


def _forget_paths(library: Path) -> None:
    """Remove the folders of this machine from a library's search path (pyenv's, Vulkan's)."""
    shown = subprocess.run(["readelf", "-dW", str(library)], capture_output=True, text=True)
    found = re.search(r"R(?:UN)?PATH\).*\[(.*)\]", shown.stdout)
    paths = found[1].split(":") if found else []
    kept = [path for path in paths if path.startswith("$ORIGIN")]
    if kept == paths:
        return
    change = ["--set-rpath", ":".join(kept)] if kept else ["--remove-rpath"]
    try:
        subprocess.run(["patchelf", *change, str(library)], check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ReleaseError(
            f"patchelf is needed: {library.name} names folders of this machine."
        ) from None


def tree(build: Build, usr: Path) -> None:
    """Put bundle, commands, icons, menu entry, file type and metadata in their places."""
    shutil.rmtree(usr, ignore_errors=True)
    shutil.copytree(BUNDLE, usr / "lib" / "outrider", symlinks=True)
    (usr / "bin").mkdir()
    for name in ("outrider", "outrider-app"):
        (usr / "bin" / name).symlink_to(f"../lib/outrider/{name}")
    share = usr / "share"
    _copy(LINUX / "outrider.desktop", share / "applications" / "outrider.desktop")
    _copy(LINUX / "outrider-mime.xml", share / "mime" / "packages" / "outrider.xml")
    metainfo = (LINUX / "app.outrider.Outrider.metainfo.xml").read_text("utf-8")
    metainfo = metainfo.replace("@VERSION@", build.version).replace("@DATE@", build.date)
    _write(share / "metainfo" / "app.outrider.Outrider.metainfo.xml", metainfo)
    build.run(
        str(build.python()), str(HERE / "icons.py"), "png", str(share / "icons" / "hicolor"),
        more={"QT_QPA_PLATFORM": "offscreen"},
    )  # fmt: skip


def deb(build: Build) -> None:
    """Make the Debian package from the bundle."""
    root = WORK / "deb"
    shutil.rmtree(root, ignore_errors=True)
    usr = root / "usr"
    tree(build, usr)
    doc = usr / "share" / "doc" / "outrider"
    for page in ("outrider.1", "outrider-app.1"):
        text = (LINUX / page).read_text("utf-8").replace("@VERSION@", build.version)
        _pack(usr / "share" / "man" / "man1" / f"{page}.gz", text.encode())
    _write(doc / "copyright", (LINUX / "copyright").read_text("utf-8"))
    _pack(doc / "NEWS.gz", (ROOT / "CHANGELOG.md").read_bytes())
    stamp = datetime.datetime.fromtimestamp(build.epoch, datetime.UTC)
    entry = (
        f"outrider ({build.version}) unstable; urgency=medium\n\n  * Release; see NEWS.gz.\n\n"
        f" -- {MAINTAINER}  {stamp:%a, %d %b %Y %H:%M:%S} +0000\n"
    )
    _pack(doc / "changelog.gz", entry.encode())
    overrides = (LINUX / "lintian-overrides").read_text("utf-8")
    _write(usr / "share" / "lintian" / "overrides" / "outrider", overrides)
    _settle(root, build.epoch)
    control = root / "DEBIAN"
    control.mkdir()
    kib = sum(path.lstat().st_size for path in usr.rglob("*") if not path.is_dir()) // 1024
    _write(control / "control", CONTROL.format(version=build.version, kib=kib, depends=DEPENDS))
    sums = [
        f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(root).as_posix()}\n"
        for path in sorted(usr.rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]
    _write(control / "md5sums", "".join(sums))
    _settle(control, build.epoch)
    package = DIST / f"outrider_{build.version}_amd64.deb"
    build.run("dpkg-deb", "--root-owner-group", "-Zxz", "-z6", "--build", str(root), str(package))


def appimage(build: Build) -> None:
    """Make the one-file application from the bundle: a runtime and, behind it, a squashfs."""
    root = WORK / "appimage"
    shutil.rmtree(root, ignore_errors=True)
    tree(build, root / "usr")
    usr = root / "usr"
    (root / "outrider.desktop").symlink_to("usr/share/applications/outrider.desktop")
    (root / "outrider.png").symlink_to("usr/share/icons/hicolor/256x256/apps/outrider.png")
    (root / ".DirIcon").symlink_to("outrider.png")
    _copy(LINUX / "AppRun", root / "AppRun")
    (root / "AppRun").chmod(0o755)
    licences = usr / "share" / "doc" / "outrider" / "copyright"
    _write(licences, (LINUX / "copyright").read_text("utf-8"))
    _settle(root, build.epoch)
    image = WORK / "outrider.squashfs"
    image.unlink(missing_ok=True)
    # Times come from SOURCE_DATE_EPOCH. One processor: the order of blocks does not depend on luck.
    build.run(
        "mksquashfs", str(root), str(image), "-root-owned", "-noappend", "-no-xattrs", "-quiet",
        "-no-progress", "-comp", "zstd", "-Xcompression-level", "19", "-b", "256K",
        "-processors", "1",
    )  # fmt: skip
    file = DIST / f"{build.name}.AppImage"
    releases = releases_url()
    update = f"zsync|{releases}/{ZSYNC}" if releases else ""
    file.write_bytes(_headed(build.runtime(), update) + image.read_bytes())
    file.chmod(0o755)
    os.utime(file, (build.epoch, build.epoch))
    if shutil.which("zsyncmake"):
        build.run("zsyncmake", "-u", file.name, "-o", ZSYNC, str(file), folder=DIST)
    else:
        print("There is no zsyncmake, so an update of the AppImage is fetched whole.")


def windows_zip(build: Build) -> None:
    """Pack the bundle for Windows, with the time of the commit."""
    moment = datetime.datetime.fromtimestamp(build.epoch, datetime.UTC).timetuple()[:6]
    with zipfile.ZipFile(DIST / f"outrider-{build.version}-windows.zip", "w") as archive:
        for path in sorted(BUNDLE.rglob("*")):
            if path.is_file():
                name = (Path("outrider") / path.relative_to(BUNDLE)).as_posix()
                entry = zipfile.ZipInfo(name, moment)
                entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
                archive.writestr(entry, path.read_bytes())


def windows_installer(build: Build) -> None:
    """Make the installer for Windows of the bundle."""
    defined = {
        "VERSION": build.version,
        "BUNDLE": BUNDLE,
        "ICON": ROOT / "build" / "outrider.ico",  # outrider.spec has drawn it
        "LICENCE": ROOT / "LICENSE",
        "OUT": DIST / f"outrider-{build.version}-windows.exe",
    }
    words = [f"-D{name}={value}" for name, value in defined.items()]
    build.run(
        "makensis", "-V2", "-INPUTCHARSET", "UTF8", *words, str(HERE / "windows" / "outrider.nsi")
    )


def _headed(runtime: bytes, update: str) -> bytes:
    """Return a runtime with the mark of an AppImage and the information for its updater."""
    head = bytearray(runtime)
    head[8:11] = b"AI\x02"
    if update:
        at = _section(runtime, b".upd_info")
        data = update.encode()
        if at is None or len(data) >= at[1]:
            raise ReleaseError("The runtime has no room for the address of updates.")
        head[at[0] : at[0] + len(data)] = data
    return bytes(head)


def _section(elf: bytes, name: bytes) -> tuple[int, int] | None:
    """Return offset and size of a section of a 64-bit ELF file, in bytes."""
    (at,) = struct.unpack_from("<Q", elf, 40)
    size, count, strings = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<I20xQQ", elf, at + index * size) for index in range(count)]
    names = headers[strings][1]
    for offset, place, length in headers:
        if elf.startswith(name + b"\0", names + offset):
            return place, length
    return None


def sbom(build: Build) -> None:
    """Write the list of the bundle's parts (CycloneDX 1.6)."""
    done = subprocess.run(
        [str(build.python()), str(HERE / "notices.py"), "--list"],
        capture_output=True, text=True, cwd=ROOT, env=build.environment,
    )  # fmt: skip
    if done.returncode != 0:
        raise ReleaseError(f"The parts cannot be listed: {done.stderr.strip()}")
    parts = [
        _part(name, number, licence, purl)
        for name, number, licence, purl in json.loads(done.stdout)
    ]
    files = [
        {
            "type": "file",
            "name": path.relative_to(BUNDLE).as_posix(),
            "hashes": [{"alg": "SHA-256", "content": _sha256(path)}],
        }
        for path in sorted(BUNDLE.rglob("*"))
        if path.is_file() and not path.is_symlink() and ".so" in path.name
    ]
    subject = {
        "type": "application",
        "name": "outrider",
        "version": build.version,
        "bom-ref": "outrider",
        "licenses": [{"expression": "MIT AND CC-BY-SA-4.0"}],
    }
    day = datetime.datetime.fromtimestamp(build.epoch, datetime.UTC)
    document: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "serialNumber": "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, f"{build.name} {day}")),
        "metadata": {"timestamp": day.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": subject},
        "components": parts + files,
        "dependencies": [{"ref": "outrider", "dependsOn": [p["bom-ref"] for p in parts]}],
    }
    _write(DIST / f"{build.name}.cdx.json", json.dumps(document, indent=1) + "\n")


def _part(name: str, number: str, licence: str, purl: str) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "library", "bom-ref": purl, "name": name, "purl": purl}
    if number:
        found["version"] = number
    if licence:
        found["licenses"] = [{"license": {"name": licence}}]
    return found


def notes(build: Build) -> None:
    """Write the release notes: this version's part of CHANGELOG.md."""
    _write(
        DIST / f"{build.name}.md",
        release_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), build.version),
    )


def release_notes(changelog: str, wanted: str) -> str:
    """Return a version's part of a changelog, without its heading. Raise ReleaseError."""
    found = re.search(rf"^## {re.escape(wanted)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if found is None:
        raise ReleaseError(f"CHANGELOG.md says nothing of {wanted}.")
    return found[1].strip() + "\n"


def latest(build: Build) -> None:
    """Write the file that tells other versions of this one (backend/downloads/newer.py)."""
    releases = releases_url()
    if releases:  # of GitHub's two addresses of a release, people read the page
        page = releases.removesuffix("/download")
        _write(DIST / "latest.json", json.dumps({"version": build.version, "page": page}) + "\n")
    else:
        (DIST / "latest.json").unlink(missing_ok=True)
        print("RELEASES_URL of backend/__init__.py is empty, so there is no latest.json.")


def say_version(build: Build) -> None:
    """Print the version."""
    print(build.version)


def sums(build: Build) -> None:
    """Write the SHA-256 sums of all that was built."""
    files = sorted(path for path in DIST.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    _write(DIST / "SHA256SUMS", "".join(f"{_sha256(path)}  {path.name}\n" for path in files))


def publish(build: Build) -> None:
    """Publish what lies in dist, of all systems, with one list of sums.

    A release is a draft until each of its files is there, so nobody is told of a part of one.
    """
    if not releases_url().startswith("https://"):
        raise ReleaseError("RELEASES_URL of backend/__init__.py names no https address.")
    if ".invalid" in MAINTAINER:
        raise ReleaseError("OUTRIDER_MAINTAINER does not say who answers for the packages.")
    lacking = [file for file in published(build.version) if not (DIST / file).is_file()]
    if lacking:
        raise ReleaseError(f"dist lacks {', '.join(lacking)}.")
    latest(build)
    sums(build)
    names = [*published(build.version), "latest.json", "SHA256SUMS"]
    others = {path.name for path in DIST.iterdir() if path.is_file()} - set(names)
    if others:
        raise ReleaseError(f"dist has files of no release: {', '.join(sorted(others))}.")
    if build.to is not None:
        build.to.mkdir(parents=True, exist_ok=True)
        for name in names:
            shutil.copy2(DIST / name, build.to / name)
        return
    tag, text = f"v{build.version}", DIST / f"{build.name}.md"
    files = [str(DIST / name) for name in names]
    build.run("gh", "release", "create", tag, "--draft", "--verify-tag", "--title",
              f"Outrider {build.version}", "--notes-file", str(text), *files)  # fmt: skip
    build.run("gh", "release", "edit", tag, "--draft=false", "--latest")


def published(version: str) -> list[str]:
    """Return the names of a release's files, but for latest.json and the sums."""
    linux = f"outrider-{version}-x86_64"
    return [
        f"outrider_{version}_amd64.deb",
        *(f"{linux}.{kind}" for kind in ("AppImage", "cdx.json", "md")),
        ZSYNC,
        *(f"outrider-{version}-windows.{kind}" for kind in ("zip", "exe")),
        f"outrider-{version}-macos.dmg",
    ]


def everything(build: Build) -> None:
    """Make all of them."""
    for target in (bundle, deb, appimage, sbom, notes, latest, sums):
        target(build)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _pack(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data, 9, mtime=0))


def _settle(root: Path, epoch: int) -> None:
    """Give all files the rights of a package and the time of the commit."""
    for path in (root, *root.rglob("*")):
        if not path.is_symlink():
            is_program = path.is_dir() or bool(
                path.stat().st_mode & 0o100 and ".so" not in path.name
            )
            path.chmod(0o755 if is_program else 0o644)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


MAINTAINER = (
    os.environ.get("OUTRIDER_MAINTAINER") or "The Outrider authors <outrider@example.invalid>"
)
CONTROL = f"""Package: outrider
Version: {{version}}
Section: misc
Priority: optional
Architecture: amd64
Installed-Size: {{kib}}
Maintainer: {MAINTAINER}
Depends: {{depends}}
Recommends: gnome-keyring | org.freedesktop.secrets, libvulkan1, mesa-vulkan-drivers | vulkan-icd
Description: chat with language models that are larger than your memory
 Outrider runs Mixture-of-Experts models in the GGUF format whose experts do not
 fit in memory. It keeps some of the experts in memory, reads the others before
 they are needed, and shows while it answers what that costs. The answer is that
 of llama.cpp, bit for bit.
 .
 A small model comes along. Graphics cards are used through Vulkan.
"""
TARGETS: dict[str, Callable[[Build], None]] = {
    "bundle": bundle,
    "deb": deb,
    "appimage": appimage,
    "zip": windows_zip,
    "installer": windows_installer,
    "sbom": sbom,
    "notes": notes,
    "latest": latest,
    "version": say_version,
    "sums": sums,
    "publish": publish,
    "all": everything,
}


if __name__ == "__main__":
    sys.exit(main())
