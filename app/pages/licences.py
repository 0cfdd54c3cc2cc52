"""The parts of this application and their licences."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from backend import __version__
from backend.text import text

# The GNU licences: this application's copies, which a bundle has, too.
_TEXTS = Path(__file__).resolve().parents[2] / "packaging" / "licences"
_LGPL = (
    "Qt and Qt for Python (PySide6, Shiboken6) are used under the GNU Lesser General Public "
    "License, version 3, from unchanged packages of the Qt Company. You may replace them: they are "
    "the shared libraries of the folder PySide6 beside this application, or those of the Python "
    "environment that it runs in. Their source is at https://download.qt.io and "
    "https://code.qt.io, the licence at https://www.gnu.org/licenses/lgpl-3.0.html.\n"
)
_MIT = """Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""
# The direct dependencies; theirs are found from their metadata.
_OWN = (
    "llama-cpp-python", "PySide6-Essentials", "anyio", "charset-normalizer", "filelock",
    "httpx2[socks]", "huggingface_hub", "keyring", "latex2mathml", "llguidance", "mcp", "numpy",
    "platformdirs", "psutil", "pydantic", "pygments", "pypdf", "shiboken6", "starlette", "uvicorn",
    "ziafont", "ziamath",
)  # fmt: skip


@dataclass(frozen=True)
class Component:
    """One part. `version` and `text` are empty if this copy does not contain them."""

    name: str
    version: str
    licence: str
    text: str


def components() -> list[Component]:
    """Return Outrider, llama.cpp, and the installed packages in use, sorted by name."""
    found = {_plain(name): part for name in packages() if (part := component(name))}
    return [_outrider(), _llama_cpp(), *sorted(found.values(), key=lambda c: c.name.lower())]


def _outrider() -> Component:
    licence = (
        "The code is under the MIT licence. The embedded model is under CC BY-SA 4.0, because of "
        "the texts that it was trained on.\n\n" + _MIT
    )
    return Component("Outrider", __version__, text("about.licence"), licence)


def _llama_cpp() -> Component:
    text = f"MIT License\n\nCopyright (c) 2023-2026 The ggml authors\n\n{_MIT}"
    return Component("llama.cpp and ggml", "", "MIT", text)


def packages() -> list[str]:
    """Return the names of all dependencies, direct or not."""
    names: list[str] = []
    waiting, seen = list(_OWN), set[str]()
    while waiting:
        wanted = waiting.pop(0)  # perhaps with extras, such as pyjwt[crypto]
        name, *extras = re.findall(r"[A-Za-z0-9._-]+", wanted)
        if _plain(wanted) in seen:
            continue
        seen.add(_plain(wanted))
        if _plain(name) not in map(_plain, names):
            names.append(name)
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in requirements:
            needed = re.match(r"[A-Za-z0-9._-]+ *(\[[^]]*\])?", requirement)
            extra = re.search(r"extra == [\"']([^\"']+)", requirement)
            if needed and (extra is None or extra[1] in extras):
                waiting.append(needed[0])
    return names


def component(name: str) -> Component | None:
    """Return an installed package with its licence; None if it is not installed."""
    try:
        package = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    about = package.metadata
    stated = about.get_all("License-Expression") or about.get_all("License") or [""]
    is_named = stated[0] not in ("", "UNKNOWN") and len(stated[0]) < 80
    licence = stated[0] if is_named else _classified(about)
    texts = []
    is_qt = _plain(name) in ("pyside6-essentials", "shiboken6")
    for file in (not is_qt and package.files) or []:
        if re.search(r"(?i)(^|/)(licen[cs]e|copying|notice)[^/]*$", str(file)):
            try:
                texts.append(Path(str(file.locate())).read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError):
                continue
    if not texts and licence == "MIT":  # named in the metadata only
        texts = [f"MIT License\n\nCopyright (c) {about['Author']}\n\n{_MIT}"]
    if is_qt:
        files = [_TEXTS / name for name in ("lgpl-3.txt", "gpl-3.txt")]
        texts = [_LGPL, *(path.read_text("utf-8") for path in files if path.is_file())]
        licence = "LGPL-3.0-only"
    return Component(about["Name"], package.version, licence.split("\n")[0], "\n\n".join(texts))


def _classified(about: metadata.PackageMetadata) -> str:
    kinds = [
        line.rpartition(" :: ")[2]
        for line in about.get_all("Classifier") or []
        if line.startswith("License ::")
    ]
    return ", ".join(kinds)


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
