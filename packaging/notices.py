"""List the parts of a bundle with their licences.

    python packaging/notices.py FOLDER   write FOLDER/THIRD-PARTY.txt: every program and library of
                                         the bundle with its parts, then all licences with texts
    python packaging/notices.py --list   print name, version, licence and package URL of each

Run it with the Python whose packages are bundled. The exit status is 1, with a sentence for each,
if a program or library has no known part, or a part has no text.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.pages.licences import Component, component, components  # noqa: E402
from backend import LLAMA_CPP_PYTHON_VERSION  # noqa: E402

DOC = Path("/usr/share/doc")
COMMON = Path("/usr/share/common-licenses")
TEXTS = Path(__file__).parent / "licences"
LLAMA = "llama.cpp and ggml"


class Inside(NamedTuple):
    """A library that others have compiled into theirs.

    It is in the files whose path matches `where` and whose bytes have the mark. file: the name of
    its text in packaging/licences.
    """

    name: str
    licence: str
    where: str
    mark: bytes
    file: str


INSIDE = (
    # The native part.
    Inside("nanobind", "BSD-3-Clause", r"^backend/", b"nanobind", "nanobind"),
    Inside("robin-map", "MIT", r"^backend/", b"nanobind", "robin-map"),
    Inside(
        "JSON for Modern C++", "MIT", r"^(backend|llama_cpp)/", b"[json.exception.", "nlohmann-json"
    ),
    # llama.cpp.
    Inside("stb_image", "MIT", r"^llama_cpp/.*mtmd", b"", "stb"),
    Inside("miniaudio", "MIT-0", r"^llama_cpp/.*mtmd", b"", "miniaudio"),
    Inside("llamafile's sgemm", "MIT", r"^llama_cpp/.*ggml-cpu", b"llamafile", "llamafile-sgemm"),
    Inside("Vulkan-Headers", "Apache-2.0", r"^llama_cpp/.*vulkan", b"", "vulkan-headers"),
    # Qt, as the wheel PySide6-Essentials has it.
    Inside("ICU", "Unicode-3.0", r"/libicu\w+[.]", b"", "icu"),
    Inside("PCRE2", "BSD-3-Clause", r"Qt6Core[.]", b"PCRE2", "pcre2"),
    Inside("double-conversion", "BSD-3-Clause", r"Qt6Core[.]", b"", "double-conversion"),
    Inside("TinyCBOR", "MIT", r"Qt6Core[.]", b"cbor_", "tinycbor"),
    Inside("BLAKE2", "CC0-1.0", r"Qt6Core[.]", b"", "blake2"),
    Inside("HarfBuzz", "MIT", r"Qt6Gui[.]", b"HB_SHAPE", "harfbuzz"),
    Inside("libpng", "libpng-2.0", r"Qt6Gui[.]", b"libpng", "libpng"),
    Inside("MD4C", "MIT", r"Qt6Gui[.]", b"md4c", "md4c"),
    Inside("VulkanMemoryAllocator", "MIT", r"Qt6Gui[.]", b"VmaBlock", "vulkan-memory-allocator"),
    Inside("emoji-segmenter", "Apache-2.0", r"Qt6Gui[.]", b"", "emoji-segmenter"),
    Inside("FreeType", "FTL", r"Qt6Gui[.]dll", b"FreeType", "freetype"),
    Inside("zlib", "Zlib", r"Qt6Core[.]dll", b"", "zlib"),
    Inside("D3D12 Memory Allocator", "MIT", r"Qt6Gui[.]dll", b"D3D12MA", "d3d12-memory-allocator"),
    Inside("libjpeg-turbo", "IJG AND BSD-3-Clause AND Zlib", r"qjpeg[.]", b"", "libjpeg-turbo"),
    Inside("libwebp", "BSD-3-Clause", r"qwebp[.]", b"", "libwebp"),
    # Packages of PyPI.
    Inside("OpenSSL", "Apache-2.0", r"^cryptography/", b"OpenSSL ", "apache-2.0"),
    Inside("libffi", "MIT", r"^_cffi_backend", b"ffi_", "libffi"),
    Inside("STIX Two Math", "OFL-1.1", r"^ziamath/fonts/", b"", "stix"),
    # Python. The licence of its build for Windows has those of bzip2, libffi and OpenSSL.
    Inside("Expat", "MIT", r"pyexpat[.]", b"XML_ERROR_SUSPEND", "expat"),
    Inside("libmpdec", "BSD-2-Clause", r"_decimal[.]", b"", "libmpdec"),
    Inside("zlib", "Zlib", r"^python311[.]dll$", b"", "zlib"),
    Inside("liblzma", "LicenseRef-public-domain", r"^_lzma[.]pyd$", b"", "xz"),
    Inside("SQLite", "blessing", r"^sqlite3[.]dll$", b"", "sqlite"),
    # The head of the AppImage, which is not in the bundle (packaging/release.py, HEAD).
    Inside("squashfuse", "BSD-2-Clause", r"^AppImage$", b"", "squashfuse"),
    Inside("libfuse", "LGPL-2.1-only", r"^AppImage$", b"", "libfuse"),
    Inside("Zstandard", "BSD-3-Clause", r"^AppImage$", b"", "zstd"),
    # The installer for Windows.
    Inside("NSIS", "Zlib AND CPL-1.0", r"^installer$", b"", "nsis"),
)
RUNTIMES = (
    (r"(vcruntime|msvcp|concrt|vcomp|vccorlib|vcamp)140", "Microsoft's runtime of C and C++",
     "LicenseRef-Microsoft-Distributable-Code", "microsoft-runtime"),
    (r"lib(gcc_s_seh|stdc[+][+]|gomp)-", "GCC's runtime libraries",
     "GPL-3.0-only WITH GCC-exception-3.1", "gcc-runtime"),
    (r"libwinpthread-", "winpthreads", "MIT AND BSD-3-Clause", "winpthreads"),
)  # fmt: skip
"""The libraries of compilers for Windows, by the beginning of their names; wheels have copies."""
HEADS = {
    "linux": ("AppImage", "the program at the beginning of the AppImage"),
    "win32": ("installer", "the installer and uninstall.exe"),
}
"""A program that is made around the bundle, as INSIDE and the list of libraries name it."""


def main() -> int:
    """Write what the command line asks for. Return the exit status."""
    if sys.argv[1] == "--list":
        parts = [*components()[1:], _python()]
        json.dump([[p.name, p.version, p.licence, _purl(p)] for p in parts], sys.stdout)
        return 0
    folder = Path(sys.argv[1])
    text, faults = notices(folder)
    (folder / "THIRD-PARTY.txt").write_text(text, "utf-8")
    print("\n".join(faults), file=sys.stderr, end="\n" if faults else "")
    return 1 if faults else 0


def notices(folder: Path) -> tuple[str, list[str]]:
    """Return the text of THIRD-PARTY.txt for a bundle, and a sentence for each fault."""
    parts = {part.name: part for part in [*components()[1:], _python()]}
    libraries, faults = {}, []
    owner_of = Owners(folder)
    for path in sorted([*folder.rglob("*"), *folder.parent.glob("outrider*")]):
        if path.is_symlink() or not path.is_file() or not _is_part(path):
            continue
        owner = owner_of(path)
        name = path.relative_to(folder).as_posix() if folder in path.parents else path.name
        if owner is None:
            faults.append(f"Whose licence {name} has is unknown.")
            continue
        inside = (
            () if owner.name.startswith("lib") else tuple(parts_inside(name, path.read_bytes()))
        )
        for part in (owner, *inside):
            parts.setdefault(part.name, part)
        libraries[name] = [owner.name, *(part.name for part in inside)]
    for kind, words in (HEADS[key] for key in HEADS if key == sys.platform):
        head = tuple(parts_inside(kind, b""))
        parts |= {part.name: part for part in head}
        libraries[words] = [part.name for part in head]
    faults += [f"There is no licence of {part.name}." for part in parts.values() if not part.text]
    text = "Outrider is made of these parts, which others wrote.\n\n"
    text += (
        "First all programs and libraries, each with its parts; then the licence of each part, "
        "under its name.\nLibraries of Debian are unchanged; their sources are at "
        "https://sources.debian.org. Qt names the authors of short\npieces of its code at "
        "https://doc.qt.io/qt-6/licenses-used-in-qt.html.\n\n"
    )
    text += "".join(f"{name}: {', '.join(names)}\n" for name, names in sorted(libraries.items()))
    for part in parts.values():
        heading = f"{part.name} {part.version}".strip()
        text += f"\n{'=' * 100}\n{heading}   {part.licence}\n{'=' * 100}\n\n{part.text}\n"
    return _with_common(text, faults), faults


def parts_inside(name: str, data: bytes) -> Iterable[Component]:
    """Return the libraries that are compiled into a file, by its path in the bundle and bytes."""
    for one in INSIDE:
        if re.search(one.where, name) and one.mark in data:
            text = (TEXTS / f"{one.file}.txt").read_text("utf-8")
            yield Component(one.name, "", one.licence, text)


class Owners:
    """Finds whose a file of a bundle is: a package of PyPI, Python, llama.cpp, or one of Debian."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._python = _python()
        self._own = {part.name: part for part in components()}
        self._of_wheel = {
            line.split(",")[0]: name
            for package in metadata.distributions()
            for name in [package.metadata["Name"]]  # parsed once for each
            for line in (package.read_text("RECORD") or "").splitlines()
            if ".py," not in line
        }
        self._of_python = {path.name for path in Path(sys.base_prefix, "DLLs").glob("*")}  # Windows
        names = sorted(
            path.name for path in folder.glob("*") if path.is_file() and ".so" in path.name
        )
        self._of_debian = _debian_packages(names)

    def __call__(self, path: Path) -> Component | None:
        """Return the part that a file belongs to; None if nothing is known."""
        if self._folder not in path.parents:
            return component("pyinstaller")  # whose start program has Outrider's name
        name = path.relative_to(self._folder).as_posix()
        for beginning, runtime, licence, file in RUNTIMES:
            if re.match(beginning, path.name, re.I):
                return Component(runtime, "", licence, (TEXTS / f"{file}.txt").read_text("utf-8"))
        if name.startswith(("python3", "libpython")) or name in self._of_python:
            return self._python
        if name.startswith("backend/"):
            return self._own["Outrider"]
        if re.fullmatch(r"(llama_cpp/lib/)?(lib)?(ggml|llama|mtmd)[^/]*", name):
            return self._own[LLAMA]
        if name in self._of_wheel:
            return component(self._of_wheel[name])
        return self._of_debian.get(path.name)


def _is_part(path: Path) -> bool:
    """Return whether a file is a program, a library or a font."""
    if path.suffix == ".ttf":
        return True
    with path.open("rb") as file:
        return file.read(4).startswith((b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe"))


def _debian_packages(names: list[str]) -> dict[str, Component]:
    """Return the Debian packages that own files of these names, by name."""
    if not names or shutil.which("dpkg") is None:
        return {}
    asked = subprocess.run(
        ["dpkg", "-S", *(f"*/{name}" for name in names)], capture_output=True, text=True
    )
    owners: dict[str, str] = {}
    for line in asked.stdout.splitlines():
        package, _, path = line.partition(": ")
        owners.setdefault(Path(path).name, package.split(":")[0].split(",")[0])
    packages = sorted(set(owners.values()))
    asked = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *packages],
        capture_output=True, text=True,
    )  # fmt: skip
    versions = dict(line.split(" ", 1) for line in asked.stdout.splitlines() if " " in line)
    found = {}
    for name, package in owners.items():
        file = DOC / package / "copyright"
        if name in names and file.is_file():
            text = file.read_text("utf-8", "replace")
            kinds = dict.fromkeys(re.findall(r"^License: *(\S.*)$", text, re.M))
            found[name] = Component(package, versions.get(package, ""), ", ".join(kinds), text)
    return found


def _with_common(text: str, faults: list[str]) -> str:
    """Append the licences that Debian's copyright files only point to."""
    place = "/usr/share/common-licenses/"
    several = re.compile(place + r"\{([^}]*)\}")
    text = several.sub(lambda m: ", ".join(place + name for name in m[1].split(",")), text)
    pointer = re.compile(place + r"([A-Z][A-Za-z0-9]*(?:-[0-9.]*[0-9])?)")
    names = sorted(set(pointer.findall(text)))
    text = pointer.sub(r'"\1" at the end of this file', text)
    for name in names:
        files = (TEXTS / f"{name.lower()}.txt", COMMON / name)
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            faults.append(f"There is no text of {name} in {COMMON}.")
            continue
        body = file.read_text("utf-8", "replace")
        text += f"\n{'=' * 100}\n{name}\n{'=' * 100}\n\n{body}\n"
    if place in text:
        faults.append(f"A licence is not in the text, which names a file of {place} instead.")
    return text


def _python() -> Component:
    places = [Path(sys.base_prefix), Path(sys.base_prefix, "lib", "python3.11")]
    files = [place / name for place in places for name in ("LICENSE.txt", "LICENSE")]
    files += [DOC / "python3.11" / "copyright", DOC / "libpython3.11-stdlib" / "copyright"]
    text = next((file.read_text("utf-8") for file in files if file.is_file()), "")
    return Component("Python", platform.python_version(), "PSF-2.0", text)


def _purl(part: Component) -> str:
    """Return the package URL (https://github.com/package-url/purl-spec) of a part."""
    if part.name == "Python":
        return f"pkg:generic/python@{part.version}"
    if part.name.startswith("llama.cpp"):
        return f"pkg:generic/llama.cpp?vendored-by=llama-cpp-python@{LLAMA_CPP_PYTHON_VERSION}"
    return f"pkg:pypi/{part.name.lower().replace('_', '-')}@{part.version}"


if __name__ == "__main__":
    sys.exit(main())
