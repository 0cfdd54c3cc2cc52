"""The documents: links, commands, figures and lengths."""

from __future__ import annotations

import argparse
import importlib
import re
import runpy
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from backend.cli import COMMANDS
from backend.cli.common import Parser, UserError

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "packaging/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)
ADDED = {"lfu-prefetch": "lru", "--most-tokens": "--max-tokens"}
"""Names that the examples of docs/howto add to the program, and existing ones to try instead."""
LINES_MAX = {
    "docs/architecture.md": 200,
    "docs/benchmarks.md": 120,
    "docs/devices.md": 150,
    "CHANGELOG.md": 60,
}
FIGURES = re.compile(r"(?<![\w.,-])\d+(?:,\d{3})*(?:\.\d+)?(?![\w.]*\w)")
MEASURED = re.compile(
    r"(\d[\d.,]*)(?: to (\d[\d.,]*))? ?(?:tokens per second|token/s|GB/s|% of the time)"
)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# Links


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors that GitHub makes of a document's headings."""
    headings = re.findall(r"^#+ (.+)$", text_of(path), re.M)
    return frozenset(re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-") for words in headings)


def dead_links(document: Path, text: str) -> list[str]:
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = document.parent / file if file else document
        if not path.exists() or (
            anchor and path.suffix == ".md" and anchor not in anchors(path.resolve())
        ):
            dead.append(f"{name_of(document)}: {target}")
    return dead


def dead_lines(document: Path, text: str) -> list[str]:
    """Return the `file:line` that do not exist, from the root, the native part or the document."""
    dead = []
    for file, line in re.findall(r"([\w./-]+\.(?:py|cc|h|md|sh|toml|json)):(\d+)", text):
        roots = (ROOT, ROOT / "backend/native", document.parent)
        found = [root / file for root in roots if (root / file).is_file()]
        if not found or len(text_of(found[0]).splitlines()) < int(line):
            dead.append(f"{name_of(document)}: {file}:{line}")
    return dead


def test_links_and_lines_lead_somewhere() -> None:
    assert len(DOCUMENTS) > 30
    for dead in (dead_links, dead_lines):
        assert [words for path in DOCUMENTS for words in dead(path, text_of(path))] == []


def test_a_dead_link_is_noticed() -> None:
    guide = ROOT / "docs" / "guide.md"
    text = "[a](no.md) [b](guide.md#first-start) [c](#nowhere) [d](README.md) `setup.py:1`"
    assert dead_links(guide, text) == ["docs/guide.md: no.md", "docs/guide.md: #nowhere"]
    assert dead_lines(guide, text + " core/core.h:1 core/core.h:99999") == [
        "docs/guide.md: setup.py:1",
        "docs/guide.md: core/core.h:99999",
    ]


# Commands


def code_lines(text: str) -> list[str]:
    """Return the lines of the code blocks, indented or fenced; continued lines are joined."""
    found: list[str] = []
    is_fenced, may_begin = False, True
    for line in text.splitlines():
        if line.strip().startswith("```"):
            is_fenced = not is_fenced
        elif is_fenced or (line.startswith("    ") and may_begin):
            if found and found[-1].endswith("\\"):
                found[-1] = f"{found[-1][:-1].rstrip()} {line.strip()}"
            else:
                found.append(line.strip())
        else:
            may_begin = not line.strip()
    return found


def commands(text: str) -> Iterator[tuple[str, bool]]:
    """Yield (command, is explained) for `outrider SUB …` and `make X` of the code blocks.

    Settings of the environment before a command are left out. Two spaces begin an explanation.
    """
    for line in code_lines(text):
        line = re.sub(r"^\$ ", "", line)
        line = re.sub(r"^(?:[A-Z][A-Z_]*=(?:'[^']*'|\"[^\"]*\"|\S)*\s+)+", "", line)
        command, *explained = re.split(r"\s{2,}|\s#\s", line.removeprefix(".venv/bin/"), maxsplit=1)
        if re.match(r"(?:outrider|make) (?:-|[a-z])[a-z-]*(?: |$)", command):
            yield command, bool(explained)


@cache
def parser_of(name: str) -> argparse.ArgumentParser:
    parser = Parser(prog=f"outrider {name}")
    importlib.import_module(f"backend.cli.{name}").add_options(parser)
    return parser


@cache
def make_targets() -> frozenset[str]:
    found = re.findall(r"^([a-z][\w .-]*):(?!=)", text_of(ROOT / "Makefile"), re.M)
    return frozenset(" ".join(found).split())


def wrong(command: str, is_explained: bool = False) -> str:
    """Return why a command would be refused, or "". An explained one may lack what it needs."""
    for example, there in ADDED.items():
        command = command.replace(example, there)
    tool, *words = shlex.split(command.replace("[MODEL]", "MODEL"))
    if tool == "make":
        named = [word for word in words if "=" not in word and not word.startswith("-")]
        return ", ".join(f"no target {word}" for word in named if word not in make_targets())
    if words[0] in ("--help", "--version", "version"):
        return ""
    if words[0] not in COMMANDS:
        return f"no command {words[0]}"
    try:
        parser_of(words[0]).parse_args(words[1:])
    except UserError as error:
        if not (is_explained and "required" in str(error)):
            return str(error)
    return ""


def test_commands_in_code_blocks_parse() -> None:
    found = [(path, *line) for path in DOCUMENTS for line in commands(text_of(path))]
    assert len(found) > 40
    refused = [
        f"{name_of(path)}: {command}: {why}"
        for path, command, is_explained in found
        if (why := wrong(command, is_explained))
    ]
    assert refused == []


def test_commands_in_sentences_name_what_there_is() -> None:
    """A sentence leaves out what a command needs, so only its name and options are looked up."""
    refused = []
    for path in DOCUMENTS:
        for tool, name, rest in re.findall(
            r"(?<!`)`(outrider|make)\s+([a-z-]+)([^`]*)`(?!`)", text_of(path)
        ):
            if tool == "make":
                known = name in make_targets()
            elif name in COMMANDS:
                options = set(re.findall(r"(?<!\S)--[a-z][a-z0-9-]*", rest)) - ADDED.keys()
                known = options <= set(re.findall(r"--[a-z0-9-]+", parser_of(name).format_help()))
            else:
                known = name == "version"
            if not known:
                refused.append(f"{name_of(path)}: {tool} {name}{rest}")
    assert refused == []


@pytest.mark.parametrize(
    ("text", "whys"),
    [
        ("    outrider chat MODEL --device cpu\n", [""]),
        ("    $ .venv/bin/outrider chat [MODEL]   talk\n", [""]),
        ("    A=1 outrider verify M --no-such\n", ["Unrecognized"]),
        ("    outrider simulate X \\\n        --no-such 3\n", ["Unrecognized"]),
        ("    outrider batch MODEL   answers\n", [""]),
        ("```\nmake nothing\nmake test ARGS='-k a'\n```\n", ["no target", ""]),
        ("words\n    outrider none\n\n    outrider none\n", ["no command"]),
        ("    outrider: a message\n    outrider 25.0%   38\n", []),
    ],
)
def test_a_wrong_command_is_noticed(text: str, whys: list[str]) -> None:
    found = [wrong(command, is_explained) for command, is_explained in commands(text)]
    assert len(found) == len(whys)
    assert all(a.startswith(b) and bool(a) == bool(b) for a, b in zip(found, whys, strict=True))


# Figures


def is_in(figure: str, figures: set[str]) -> bool:
    """Return whether a figure stands among others, as it is or with more digits."""
    digits = len(figure.partition(".")[2])
    value = float(figure.replace(",", ""))
    others = (float(other.replace(",", "")) for other in figures)
    return any(abs(round(other, digits) - value) < 1e-9 for other in others)


def unlike(text: str, benchmarks: str) -> list[str]:
    """Return the measured figures of a document that do not stand in the benchmarks.

    Measured is a number of a row of a table whose heading says "tokens per second": all numbers of
    such a row must stand below one heading of the benchmarks. In a paragraph that links to the
    benchmarks, measured is a number with a unit of speed, or a share of the time; it must stand
    anywhere in them. A rounded number is the same.
    """
    sections = [set(FIGURES.findall(s)) for s in re.split(r"^#+ ", benchmarks, flags=re.M)]
    found = []
    for block in re.split(r"\n\s*\n", text):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        if rows and re.search(r"tokens? per second|token/s", rows[0]):
            for row in rows[2:]:
                figures = FIGURES.findall(row.replace("*", ""))
                if not any(all(is_in(f, section) for f in figures) for section in sections):
                    found.append(row)
        elif "benchmarks.md" in block:
            words = " ".join(block.split())
            figures = [f.rstrip(".,") for pair in MEASURED.findall(words) for f in pair if f]
            found += [f for f in figures if not is_in(f, set().union(*sections))]
    return found


def test_figures_are_those_of_the_benchmarks() -> None:
    benchmarks = text_of(ROOT / "docs" / "benchmarks.md")
    readme = text_of(ROOT / "README.md")
    assert "tokens per second" in readme and "docs/benchmarks.md" in readme
    for document in (readme, text_of(ROOT / "docs" / "guide.md")):
        assert unlike(document, benchmarks) == []


def test_another_figure_is_noticed() -> None:
    benchmarks = "# A\n12 layers: 33.34 against 0.44\n# B\n56.2 token/s, 2.1 GB/s\n"
    table = "| tokens per second | LRU | Outrider |\n|---|---|---|\n| 12 layers | 0.44 | **{}** |\n"
    assert unlike(table.format("33.3"), benchmarks) == []
    assert unlike(table.format("33.4"), benchmarks) == ["| 12 layers | 0.44 | **33.4** |"]
    assert unlike(table.format("56.2"), benchmarks) == ["| 12 layers | 0.44 | **56.2** |"]
    words = "It has 33.3 to 56.2 tokens per second at {} GB/s (benchmarks.md)."
    assert unlike(words.format("2.1"), benchmarks) == []
    assert unlike(words.format("2.2"), benchmarks) == ["2.2"]


# Lengths


def test_the_files_that_the_architecture_names_are_there() -> None:
    """From the root, backend or its native part; a bare name somewhere in them."""
    named = re.findall(r"`([\w./*-]+\.(?:py|cc|h))`", text_of(ROOT / "docs" / "architecture.md"))
    roots = (ROOT, ROOT / "backend", ROOT / "backend" / "native")
    lost = [
        name
        for name in named
        if not any(list(root.glob(name if "/" in name else f"**/{name}")) for root in roots[::-1])
    ]
    assert len(named) > 30 and lost == []


def test_the_pictures_of_the_architecture_are_as_drawn() -> None:
    program = ROOT / "docs" / "images" / "architecture.py"
    names = runpy.run_path(str(program))
    for name, picture in names["PICTURES"].items():
        assert names["draw"](picture) == text_of(program.with_name(name)), name


@pytest.mark.parametrize(("name", "most"), LINES_MAX.items())
def test_a_document_is_short(name: str, most: int) -> None:
    assert len(text_of(ROOT / name).splitlines()) <= most


def test_the_logs_are_short() -> None:
    logs = [path for path in DOCUMENTS if path.parent == ROOT / "docs" / "log"]
    assert logs
    assert sum(len(text_of(path).splitlines()) for path in logs if path.name != "README.md") <= 1500


# The style guide of CONTRIBUTING.md

# A reader of "Of a new measurement." or "What is left." has to guess the noun.
FORBIDDEN = re.compile(
    r'(?:"""|(?<!\S)(?:#:?|//) )(?:Of|What)\b|\b(?:[Ss]o many|[Aa]new|[Ll]ikewise)\b'
)


def forbidden(text: str) -> list[str]:
    """Return the lines with a form that the style guide forbids in comments and docstrings."""
    lines = text.splitlines()
    found = []
    for line, before in zip(lines, ["", *lines], strict=False):
        match = FORBIDDEN.search(line)
        goes_on = before.lstrip().startswith(("#", "//"))  # within a comment, "What" is a word
        if match and not (goes_on and match[0].startswith(("#", "/"))):
            found.append(line.strip())
    return found


def test_comments_say_their_nouns() -> None:
    folders = ("app", "backend", "predictors", "packaging")
    files = [path for name in folders for path in (ROOT / name).rglob("*.*")]
    sources = [path for path in files if path.suffix in (".py", ".cc", ".h", ".c")]
    assert len(sources) > 500
    assert {name_of(path): lines for path in sources if (lines := forbidden(text_of(path)))} == {}


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ('X = 1\n"""Of a measurement."""', 1),
        ("x = 1  # What is left", 1),
        ("// One of so many.", 1),
        ("int x;  // made anew", 1),
        ("# The rest:\n# What is left, is kept.", 0),
        ('"""Return what is left of it."""', 0),
    ],
)
def test_a_forbidden_form_is_found(text: str, n: int) -> None:
    assert len(forbidden(text)) == n
