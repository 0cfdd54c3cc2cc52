"""Formulas, colours of code, and long texts in pieces."""

from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPointF, Qt, QUrl
from PySide6.QtGui import QMouseEvent
from PySide6.QtWidgets import QApplication, QPushButton

from app.chat.code_card import PART_LINES, CodeCard
from app.chat.markdown import highlight
from app.chat.markdown.blocks import PROSE_LINES, BlockSplitter
from app.chat.markdown.latex import readable, replace_math
from app.chat.text_block import TextBlock
from app.state.context_fit import counts, fit
from app.widgets import slices, theme
from backend.text import text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (r"E = mc^2", "E = mc²"), (r"\frac{a+b}{2}", "(a+b)/2"), (r"\sqrt{x}", "√x"),
        (r"\sum_{i=0}^{n} x_i^2 \geq 0", "∑ᵢ₌₀ⁿ xᵢ² ≥ 0"), (r"\alpha \le \infty", "α ≤ ∞"),
        (r"\mathbb{R}^n", "ℝⁿ"), (r"\text{if } x", "if x"), (r"x^{q+Q}", "x^(q+Q)"),
        (r"\frac{\frac{1}{2}}{3}", "(1/2)/3"),
    ],
)  # fmt: skip
def test_formulas_are_readable(formula: str, text: str) -> None:
    assert readable(formula) == text


@pytest.mark.parametrize(
    "text", ["It costs $5 or $6.", "`$x^2$`", "``a $y$ ` b``", "no math", "US$ 5 and $ 6", r"\\$"]
)
def test_what_is_no_formula_stays(text: str) -> None:
    assert replace_math(text) == text


def test_formulas_in_markdown(qtbot: Any) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown(r"So $a_1 * b_1 * c$ and \(x^2\), \[ \frac{1}{2} \] end")
    assert block.toPlainText() == "So a₁ * b₁ * c and x², 1/2 end"


def test_thousands_of_short_lines_are_many_blocks() -> None:
    splitter = BlockSplitter()
    for number in range(2000):
        splitter.append(f"line {number}\n")
    assert max(block.text.count("\n") for block in splitter.blocks) <= PROSE_LINES + 1
    assert "".join(block.text for block in splitter.blocks).count("line") == 2000


def test_a_long_table_has_its_head_again() -> None:
    splitter = BlockSplitter()
    splitter.append("| a | b |\n|---|--:|\n")
    for number in range(100):
        splitter.append(f"| {number} | x |\n")
    assert len(splitter.blocks) > 2
    assert all(block.text.startswith("| a | b |\n|---|--:|\n") for block in splitter.blocks)


def test_an_endless_line_is_cut_at_words() -> None:
    splitter = BlockSplitter()
    for number in range(5000):
        splitter.append(f" word{number}")
    assert max(len(block.text) for block in splitter.blocks) < 10_000
    assert "".join(block.text for block in splitter.blocks).count("word") == 5000


def test_code_has_colours_and_long_code_is_whole(qtbot: Any, qapp: QApplication) -> None:
    theme.apply(qapp, theme.Choice.DARK)
    card = CodeCard("python")
    qtbot.addWidget(card)
    text = "\n".join(f'def f{number}():  # say\n    return "{number}"' for number in range(90))
    for n in range(0, len(text), 37):
        card.show_text(text[: n + 37])
    qtbot.waitUntil(lambda: highlight.is_ready("python"))
    list(card.colour_parts())
    bodies = card.findChildren(TextBlock)
    assert len(bodies) == -(-180 // PART_LINES)
    assert "\n".join(body.toPlainText() for body in bodies) == text
    first = bodies[0].document().begin().layout().formats()
    kinds = {span.format.foreground().color().name() for span in first}
    assert {theme.DARK.code_keyword, theme.DARK.code_comment} <= kinds
    card.findChildren(QPushButton)[0].click()
    assert QApplication.clipboard().text() == text


def test_long_code_comes_in_slices_and_is_copied_whole(
    qtbot: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0.0)
    card = CodeCard("")
    qtbot.addWidget(card)
    text = "\n".join(f"line {number}" for number in range(4 * PART_LINES))

    def shown() -> str:
        return "\n".join(body.toPlainText() for body in card.findChildren(TextBlock))

    card.show_text(text)
    assert len(shown()) < len(text) / 2
    card.findChildren(QPushButton)[0].click()
    assert QApplication.clipboard().text() == text
    qtbot.waitUntil(slices.is_done)
    assert shown() == text


def test_an_unknown_language_is_plain(qtbot: Any) -> None:
    highlight.is_ready("klingon")
    qtbot.waitUntil(lambda: highlight.is_ready("klingon"))
    assert highlight.pieces("klingon", "x") == []


def test_a_long_chat_keeps_its_beginning_and_its_end() -> None:
    turns = [{"role": "system", "content": "S"}]
    for number in range(20):
        turns.append({"role": "user", "content": f"q{number} " + "word " * 50})
        turns.append({"role": "assistant", "content": f"a{number} " + "word " * 50})
    turns.append({"role": "user", "content": "last"})
    short = fit(turns, 3000)
    assert sum(len(turn["content"]) for turn in short) < 3300
    assert short[0] == turns[0] and short[1]["content"].startswith("q0 ")
    assert short[-1] == turns[-1]
    roles = [turn["role"] for turn in short[1:]]
    assert all(a != b for a, b in zip(roles, roles[1:], strict=False))
    assert fit(turns, 10**6) == turns
    alone = [{"role": "user", "content": "word " * 1000 + "end"}]
    assert fit(alone, 100)[0]["content"].endswith("end")


def test_the_counts_of_a_refusal() -> None:
    assert counts(text("engine.prompt_too_long", n=5000, n_context=4096)) == (5000, 4096)
    assert counts(text("chats.disk_full")) is None
    assert counts("The prompt has 5000 tokens, but the context holds only 4096.") is None


def test_a_link_shows_its_target(qtbot: Any) -> None:
    """A model may write one address and link to another."""
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown("[https://bank.example](https://thief.example/a)\n")
    block.resize(400, 100)
    block.show()
    place = QPointF(20, block.height() / 2)
    none = Qt.MouseButton.NoButton
    move = QMouseEvent(
        QEvent.Type.MouseMove, place, place, none, none, Qt.KeyboardModifier.NoModifier
    )
    QApplication.sendEvent(block.viewport(), move)
    assert block.toolTip() == "https://thief.example/a"
    block.highlighted.emit(QUrl())
    assert block.toolTip() == ""
