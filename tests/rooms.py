"""Shows the rooms of the code, who uses whom, and their lines: `.venv/bin/python tests/rooms.py`.

A room is a package of backend or app, or predictors or packaging. An arrow leads from a room to one
that it imports. Every import counts, also one in a function or for types only: a reader has to
follow it, too. A circle of modules cannot be read in any order, so there is none (test_rooms.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from test_imports import ROOT, below, imported, module_name, package

PRODUCT = ("app", "backend", "predictors", "packaging")
# No answer passes through these: experiments, training, and what is tried before a release.
LABORATORY = {
    "backend.bench",
    "backend.evaluation",
    "backend.learning",
    "packaging.gpu_check",
    "packaging.windows.wine",
    "predictors",
}
SUFFIXES = {".py", ".cc", ".h", ".c", ".sh"}


def modules(root: Path) -> dict[str, Path]:
    """Return the Python files of the product and of the laboratory by their dotted names."""
    files = (path for folder in PRODUCT for path in sorted((root / folder).rglob("*.py")))
    return {module_name(path.relative_to(root)): path for path in files}


def arrows(root: Path) -> dict[str, set[str]]:
    """Return for each module the other modules that it imports."""
    known = modules(root)
    found: dict[str, set[str]] = {name: set() for name in known}
    for module, path in known.items():
        for name in imported(path):
            while name and name not in known:  # a name in a module
                name = name.rpartition(".")[0]
            found[module] |= {name} - {"", module}
    return found


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return circles, the first name again at the end. Without one arrow of each there is none."""
    left = {name: set(others) for name, others in graph.items()}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(left).prepare()
            return found
        except CycleError as error:
            circle: list[str] = error.args[1]  # each one is imported by the next
            found.append(circle[::-1])
            left[circle[1]].remove(circle[0])


def room(module: str) -> str:
    """Return the room of a module."""
    return package(module) if module.startswith(("app.", "backend.")) else module.split(".")[0]


def lines(root: Path) -> Counter[str]:
    """Return the lines of product, laboratory and tests, data and empty lines included."""
    found: Counter[str] = Counter()
    for folder in (*PRODUCT, "tests"):
        for path in (root / folder).rglob("*"):
            if path.suffix in SUFFIXES and path.is_file():
                name = module_name(path.relative_to(root))
                kind = "laboratory" if below(name, LABORATORY) else "product"
                with path.open("rb") as file:
                    found["tests" if folder == "tests" else kind] += sum(1 for _ in file)
    return found


def main() -> None:
    """Print the rooms with their arrows, the circles, and the lines."""
    graph = arrows(ROOT)
    uses: defaultdict[str, set[str]] = defaultdict(set)
    for module, others in graph.items():
        uses[room(module)] |= {room(other) for other in others} - {room(module)}
    for name, others in sorted(uses.items()):
        print(f"{name}: {', '.join(sorted(others)) or '-'}")
    print(f"{len(uses)} rooms, {sum(map(len, uses.values()))} arrows")
    found = circles(graph)
    print("\n".join(" -> ".join(circle) for circle in found) or "no circle of modules")
    print("lines:", ", ".join(f"{n:,} of {kind}" for kind, n in sorted(lines(ROOT).items())))


if __name__ == "__main__":
    main()
