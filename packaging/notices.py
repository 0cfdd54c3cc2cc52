"""List the parts of a bundle with their licences.

    python packaging/notices.py FOLDER   write FOLDER/THIRD-PARTY.txt, all licences with their texts
    python packaging/notices.py --list   print name, version, licence and package URL of each

Run it with the Python whose packages are bundled.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from app.pages.licences import Component, components  # noqa: E402
from backend import LLAMA_CPP_PYTHON_VERSION  # noqa: E402

DOC = Path("/usr/share/doc")


def main() -> int:
    """Write what the command line asks for. Return the exit status."""
    parts = [*components()[1:], _python()]
    if sys.argv[1] == "--list":
        json.dump([[p.name, p.version, p.licence, _purl(p)] for p in parts], sys.stdout)
        return 0
    folder = Path(sys.argv[1])
    parts += _system_libraries(folder)
    text = "Outrider is made of these parts, which others wrote.\n"
    for part in parts:
        head = f"{part.name} {part.version}".strip()
        text += f"\n{'=' * 100}\n{head}   {part.licence}\n{'=' * 100}\n\n{part.text}\n"
    (folder / "THIRD-PARTY.txt").write_text(text, "utf-8")
    return 0


def _python() -> Component:
    text = ""
    for place in (Path(sys.base_prefix), Path(sys.base_prefix) / "lib" / "python3.11"):
        for name in ("LICENSE.txt", "LICENSE"):
            if not text and (place / name).is_file():
                text = (place / name).read_text("utf-8")
    return Component("Python", platform.python_version(), "PSF-2.0", text)


def _purl(part: Component) -> str:
    """Return the package URL (https://github.com/package-url/purl-spec) of a part."""
    if part.name == "Python":
        return f"pkg:generic/python@{part.version}"
    if part.name.startswith("llama.cpp"):
        return f"pkg:generic/llama.cpp?vendored-by=llama-cpp-python@{LLAMA_CPP_PYTHON_VERSION}"
    return f"pkg:pypi/{part.name.lower().replace('_', '-')}@{part.version}"


def _system_libraries(folder: Path) -> list[Component]:
    """Return the Debian packages whose libraries lie in the bundle, with their copyright files.

    Raises nothing where there is no dpkg.
    """
    if shutil.which("dpkg") is None:
        return []
    patterns = [f"*/{path.name}" for path in sorted(folder.glob("*.so*"))]
    owners = subprocess.run(["dpkg", "-S", *patterns], capture_output=True, text=True).stdout
    names = sorted({line.partition(":")[0] for line in owners.splitlines() if ": /" in line})
    packages = {
        name: subprocess.run(
            ["dpkg-query", "-W", "-f", "${Version}", name], capture_output=True, text=True
        ).stdout
        for name in names
    }
    return [
        Component(name, version, "", (DOC / name / "copyright").read_text("utf-8", "replace"))
        for name, version in packages.items()
        if (DOC / name / "copyright").is_file()
    ]


if __name__ == "__main__":
    sys.exit(main())
