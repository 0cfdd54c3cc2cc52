"""Read the training sets, clean and deduplicate them, and hold documents out.

Only folders named `train-*` are read. Output files are `train.jsonl` and `heldout.jsonl`, of
{"source", "title", "text"}, and `instruct.jsonl`, of lists of chat messages.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from predictors.embedded import chats

HELDOUT_PER_MILLE = {"wikipedia": 20, "books": 40, "shakespeare": 40}
MIN_PARAGRAPH_CHARS = 40  # shorter paragraphs may repeat and are never dropped
MIN_DOCUMENT_CHARS = 250


@dataclass(frozen=True)
class Document:
    """One text with its title. `source` names the set. A `group` is held out as a whole."""

    source: str
    group: str
    title: str
    text: str


_DOC = re.compile(r'<doc id="(\d+)"[^>]*title="([^"]*)">\n(.*?)</doc>', re.DOTALL)
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,200}>")
_PLACEHOLDER = re.compile(r"\b(?:codice|formula)_\d+")
_UPDATE = re.compile(r"\[ ?\[update\]\]|\[update\]")
_EMPTY_BRACKETS = re.compile(r" ?\((?:[\s,;:–-]|or|and)*\)")
_OPEN_BRACKET = re.compile(r"\((?:[\s,;:]|or )+")
_QUOTES = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "\u00a0": " ", "\u200b": None})


def clean_wikipedia(text: str) -> str:
    """Strip tags, and the marks that missing templates leave: `()`, `codice_1`, ` ,`."""
    text = _TAG.sub("", text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    text = _UPDATE.sub("", _PLACEHOLDER.sub("", text)).translate(_QUOTES)
    text = _OPEN_BRACKET.sub("(", _EMPTY_BRACKETS.sub("", text))
    text = re.sub(r" +([,.;:)])", r"\1", re.sub(r"[ \t]+", " ", text))
    lines = (line.strip() for line in text.split("\n"))
    return "\n".join(line for line in lines if line and line != ".")


def clean_book(text: str) -> str:
    """Return plain paragraphs without Markdown marks, separated by one blank line."""
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", "", text.replace("\r", ""))
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).translate(_QUOTES)
    text = re.sub(r"^\s*(?:-{3,}|\*\s*\*\s*\*|\*{3,})\s*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^>\s?|^#+\s*", "", text, flags=re.MULTILINE)
    text = re.sub(r"(?<!\w)[_*]{1,3}(?=\S)|(?<=\S)[_*]{1,3}(?!\w)", "", text.replace("\\", ""))
    paragraphs = (re.sub(r"[ \t]+", " ", p).strip() for p in re.split(r"\n\s*\n", text))
    return "\n\n".join(p for p in paragraphs if p)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").replace("<|endoftext|>", "")


def wikipedia(data: Path) -> Iterator[Document]:
    """Yield articles of the WikiExtractor files, without short ones and disambiguations."""
    for path in sorted((data / "train-wikipedia").rglob("wiki_*")):
        for number, title, body in _DOC.findall(_read(path)):
            text = clean_wikipedia(body)
            if len(text) >= MIN_DOCUMENT_CHARS and "may refer to" not in text[:300]:
                yield Document("wikipedia", f"wikipedia:{number}", title, text)


def books(data: Path) -> Iterator[Document]:
    """Yield one document per chapter. The book is the group: whole books are held out."""
    for path in sorted((data / "train-books").rglob("*.md")):
        body = _read(path).split("-------", 1)[-1]
        for chapter in re.split(r"^(?=##? )", body, flags=re.MULTILINE):
            heading = re.match(r"##?\s*(.*)", chapter)
            text = clean_book(chapter)
            if len(text) >= MIN_DOCUMENT_CHARS:
                title = heading.group(1).strip() if heading else path.stem
                yield Document("books", f"book:{path.stem}", title, text)


def shakespeare(data: Path) -> Iterator[Document]:
    """Yield the plays in pieces of about 4,000 characters, cut between speeches."""
    for path in sorted((data / "train-shakespeare").glob("*.txt")):
        piece: list[str] = []
        for number, speech in enumerate(_read(path).split("\n\n")):
            piece.append(speech)
            if sum(map(len, piece)) > 4000:
                yield Document("shakespeare", f"shakespeare:{number}", "", "\n\n".join(piece))
                piece = []


def is_heldout(document: Document) -> bool:
    """Return whether a document is held out, by a hash of its group: independent of the others."""
    digest = hashlib.sha256(document.group.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 1000 < HELDOUT_PER_MILLE[document.source]


def deduplicate(documents: Iterable[Document], seen: set[bytes]) -> Iterator[Document]:
    """Drop paragraphs that `seen` already holds, and add the new ones to it."""
    for document in documents:
        kept = []
        for paragraph in document.text.split("\n"):
            key = hashlib.sha256(re.sub(r"\W+", " ", paragraph.lower()).encode()).digest()[:12]
            if len(paragraph) >= MIN_PARAGRAPH_CHARS:
                if key in seen:
                    continue
                seen.add(key)
            kept.append(paragraph)
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
        if len(text) >= MIN_DOCUMENT_CHARS:
            yield Document(document.source, document.group, document.title, text)


def _write(path: Path, rows: Iterable[object]) -> int:
    """Write JSON lines through a temporary file. Return the number of rows."""
    partial, n_row = path.with_suffix(".partial"), 0
    with partial.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            n_row += 1
    partial.replace(path)
    return n_row


def read_rows(path: Path) -> Iterator[dict[str, object]]:
    """Yield the rows of a JSON-lines file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def prepare(
    data: Path, work: Path, seed: int = 1, n_composed: int = chats.N_COMPOSED
) -> dict[str, int]:
    """Write the three files under `work`. Return the number of rows of each.

    n_composed: number of chats composed by rules.
    """
    if not data.is_dir():
        raise FileNotFoundError(f"no training data at {data}")
    work.mkdir(parents=True, exist_ok=True)
    documents = [d for source in (wikipedia, books, shakespeare) for d in source(data)]
    seen: set[bytes] = set()
    # Held-out documents come first, so that the training text loses their paragraphs.
    heldout = list(deduplicate((d for d in documents if is_heldout(d)), seen))
    train = list(deduplicate((d for d in documents if not is_heldout(d)), seen))
    conversations = chats.compose(
        data, [(d.source, d.title, d.text) for d in train], seed, n_composed
    )

    def rows(chosen: list[Document]) -> Iterator[dict[str, str]]:
        for d in chosen:
            yield {"source": d.source, "title": d.title, "text": d.text}

    return {
        "train": _write(work / "train.jsonl", rows(train)),
        "heldout": _write(work / "heldout.jsonl", rows(heldout)),
        "instruct": _write(work / "instruct.jsonl", ({"messages": c} for c in conversations)),
    }
