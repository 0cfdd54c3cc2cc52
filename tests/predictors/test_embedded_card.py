"""The model card's tables come from measurements; the quiz asks held-out questions."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from predictors.embedded import card, composed, quiz

RESULT = {
    "bits_per_byte": {
        "wikipedia": {"value": 1.5, "bytes": 1000},
        "wikitext2": {"value": 1.9, "bytes": 2000},
    },
    "experts": [{"layer": 0, "share_min": 0.5, "share_max": 2.0, "overlap": 0.25}],
    "quiz": {"sums held out": {"right": 0.25, "asked": 40}},
    "samples": [{"kind": "add", "prompt": "What is\n\n1?", "answer": "One.\n\nOr two."}],
    "other_samples": [{"kind": "add", "prompt": "Why?", "answer": "So."}],
}
NAMES = ("bits", "experts", "quiz", "samples", "others")


def write(path: Path, text: str) -> Path:
    """Write a file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_figures_go_between_their_marks_and_can_be_renewed(tmp_path: Path) -> None:
    write(tmp_path / "w" / "evaluation.json", json.dumps(RESULT))
    dense = {"bits_per_byte": {"wikipedia": {"value": 1.75, "bytes": 1000}}}
    write(tmp_path / "w" / "reference-dense" / "evaluation.json", json.dumps(dense))
    marks = "\n".join(f"<!-- {name} -->\n<!-- /{name} -->" for name in NAMES)
    path = write(tmp_path / "CARD.md", f"By hand.\n{marks}\nThe end.\n")
    card.fill(path, tmp_path / "w")
    text = path.read_text("utf-8")
    assert text.startswith("By hand.") and text.endswith("The end.\n")
    assert "| text | this file | dense | bytes |" in text
    assert "| Encyclopaedia, held out | 1.500 | 1.750 | 1,000 |" in text
    assert "| Wikitext-2 test, marks undone | 1.900 |  | 2,000 |" in text
    assert "| 0 | 0.50 | 2.00 | 0.25 |" in text and "| sums held out | 40 | 25 % |" in text
    assert "**add**: What is / 1?\n\n> One.\n>\n> Or two." in text
    card.fill(path, tmp_path / "w")
    assert path.read_text("utf-8") == text


def test_a_card_without_a_section_is_named(tmp_path: Path) -> None:
    write(tmp_path / "evaluation.json", json.dumps(RESULT))
    path = write(tmp_path / "CARD.md", "Nothing here.")
    with pytest.raises(ValueError, match="no section bits"):
        card.fill(path, tmp_path)


def test_the_quiz_asks_held_out_sums_and_new_passages() -> None:
    rng = random.Random(1)
    held_out, others = quiz.sums(True, rng), quiz.sums(False, rng)
    assert len(held_out) == len(others) > 20
    for asked, expected in ((held_out, True), (others, False)):
        for question, answer in asked:
            a, _, b, _, c = answer.rstrip(".").split()
            assert int(a) + int(b) == int(c) and a in question and b in question
            assert composed.is_heldout_sum(int(a), int(b)) == expected
    assert len({question for question, _ in quiz.questions(rng)}) > 0.9 * quiz.N_PASSAGE
