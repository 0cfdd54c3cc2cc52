"""Write measured figures and samples into the marked sections of the model card.

A marked section stands between `<!-- NAME -->` and `<!-- /NAME -->`; the rest is written by hand.
References are folders `reference-NAME` with an `evaluation.json` under the work folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SOURCES = {
    "wikipedia": "Encyclopaedia, held out",
    "books": "Books, held out (whole books)",
    "shakespeare": "Shakespeare, held out",
    "wikitext2": "Wikitext-2 test, marks undone",
}


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def bits(result: dict[str, Any], references: dict[str, dict[str, Any]]) -> str:
    """Return the table of bits per byte: this file, then the references."""
    names = ["this file", *references]
    lines = [_row("text", *names, "bytes"), _row(*["---"] * (len(names) + 2))]
    for source, title in SOURCES.items():
        found = [r["bits_per_byte"].get(source) for r in (result, *references.values())]
        if found[0] is not None:
            values = [f"{f['value']:.3f}" if f else "" for f in found]
            lines.append(_row(title, *values, f"{found[0]['bytes']:,}"))
    return "\n".join(lines)


def experts(result: dict[str, Any]) -> str:
    """Return the table of expert use per layer."""
    lines = [_row("layer", "least", "most", "shared with the token before"), _row(*["---"] * 4)]
    for r in result["experts"]:
        shares = (r["share_min"], r["share_max"], r["overlap"])
        lines.append(_row(r["layer"], *(f"{share:.2f}" for share in shares)))
    return "\n".join(lines)


def right_answers(result: dict[str, Any]) -> str:
    """Return the table of questions with one right answer."""
    lines = [_row("questions", "asked", "right word for word"), _row(*["---"] * 3)]
    for kind, r in result["quiz"].items():
        lines.append(_row(kind, r["asked"], f"{100 * r['right']:.0f} %"))
    return "\n".join(lines)


def answers(samples: list[dict[str, str]]) -> str:
    """Return prompts and unedited answers as Markdown."""
    parts = []
    for sample in samples:
        quoted = "\n".join(("> " + line).strip() for line in sample["answer"].strip().split("\n"))
        prompt = sample["prompt"].replace("\n\n", " / ").replace("\n", " / ")
        parts.append(f"**{sample['kind']}**: {prompt}\n\n{quoted}")
    return "\n\n".join(parts)


def fill(card: Path, work: Path) -> None:
    """Replace the marked sections of the card with the contents of `evaluation.json`."""
    result = json.loads((work / "evaluation.json").read_text(encoding="utf-8"))
    references = {
        path.parent.name.removeprefix("reference-"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(work.glob("reference-*/evaluation.json"))
    }
    sections = {
        "bits": bits(result, references),
        "experts": experts(result),
        "quiz": right_answers(result),
        "samples": answers(result["samples"]),
        "others": answers(result["other_samples"]),
    }
    text = card.read_text(encoding="utf-8")
    for name, section in sections.items():
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if not end:
            raise ValueError(f"{card} has no section {name}")
        text = f"{before}{begin}\n{section}\n\n{end}{after}"
    card.write_text(text, encoding="utf-8")
