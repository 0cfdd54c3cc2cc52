"""Markdown as models write it is shown as it was meant; what is code stays as it is."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QTextCursor, QTextFormat

from app.chat.answer import AnswerView
from app.chat.text_block import TextBlock
from app.state.conversation import Ending, Message
from app.widgets import slices, theme


@pytest.fixture
def block(qtbot: Any) -> TextBlock:
    made = TextBlock()
    qtbot.addWidget(made)
    return made


def looks(block: TextBlock, name: str) -> list[str]:
    """Return the pieces of text that have a look: bold, italic, struck, raised, lowered, fixed."""
    cursor = QTextCursor(block.document())
    pieces, was = [], False
    while not cursor.atEnd():
        cursor.movePosition(QTextCursor.MoveOperation.NextCharacter)
        look = cursor.charFormat()
        letter = block.document().characterAt(cursor.position() - 1)
        has = (
            letter != "\u2029"
            and {
                "bold": look.fontWeight() > 500,
                "italic": look.fontItalic(),
                "struck": look.fontStrikeOut(),
                "raised": look.verticalAlignment() == look.VerticalAlignment.AlignSuperScript,
                "lowered": look.verticalAlignment() == look.VerticalAlignment.AlignSubScript,
                "fixed": look.background().style() != Qt.BrushStyle.NoBrush,
            }[name]
        )
        if has:
            pieces.append(pieces.pop() + letter if was else letter)
        was = has
    return pieces


@pytest.mark.parametrize(
    ("source", "bold"),
    [
        ("**注意：**正文", "注意："), ("这是**“如何更好”**的问题", "“如何更好”"),
        ("**模块（Module）**信息", "模块（Module）"), ("* **具体：**与其说", "具体："),
        ("これは**重要（必読）**です", "重要（必読）"), ("**Achtung:**bitte", "Achtung:"),
        ("Nimm **(a)**und", "(a)"), ("das **„Wort“**teil", "„Wort“"), ("2**3**4", "3"),
        ("**bold**text", "bold"), ("한국어 **“인용”**은", "“인용”"), ("| **甲：**乙 |", "甲："),
        ("**a.**b **c**", "a. c"),
    ],
)  # fmt: skip
def test_bold_beside_any_letter_or_punctuation(block: TextBlock, source: str, bold: str) -> None:
    block.show_markdown(source)
    assert " ".join(looks(block, "bold")) == bold and "*" not in block.toPlainText()


@pytest.mark.parametrize(
    "source",
    [
        "a ** b ** c", "x**(n-1) + y**(n-1)", "f(*args)*2 + (*b)*c", "2*3*4 = a*b*c", "f(x)*g(y)*2",
        "call __init__ and __main__.py", "snake_case_word and _private",
    ],
)  # fmt: skip
def test_stars_that_are_no_emphasis_stay(block: TextBlock, source: str) -> None:
    block.show_markdown(source)
    assert block.toPlainText() == source and not looks(block, "bold") + looks(block, "italic")


@pytest.mark.parametrize(
    "source",
    [
        "Make a fix (~2000 lines) and delete the old file (~5000 lines).",
        "Copy ~/.bashrc to ~/.zshrc", "20~30 Grad, 40~50 %", "~$120B (~$55 to NVIDIA)",
        "~6~ and ~7~", "`~a` ~b ~c~", "~5 to ~10",
    ],
)  # fmt: skip
def test_a_single_tilde_strikes_nothing_out(block: TextBlock, source: str) -> None:
    block.show_markdown(source + " ~~old~~ new")
    assert block.toPlainText() == f"{source.replace('`', '')} old new"
    assert looks(block, "struck") == ["old"]


def test_harmless_tags_have_their_look(block: TextBlock) -> None:
    block.show_markdown(
        "Press <kbd>Ctrl</kbd>; H<sub>2</sub>O 😀, x<sup>2</sup>, <b>b</b> <em>i</em> <s>s</s>\n\n"
        "<details>\n<summary>More</summary>\n\nHidden.\n</details>"
    )
    assert block.toPlainText() == "Press Ctrl; H2O 😀, x2, b i s\nMore\nHidden."
    kinds = ("fixed", "lowered", "raised", "bold", "italic", "struck")
    assert [looks(block, kind) for kind in kinds] == [
        ["Ctrl"], ["2"], ["2"], ["b", "More"], ["i"], ["s"],
    ]  # fmt: skip


def test_a_tag_of_a_break_breaks_the_line_except_in_code(block: TextBlock) -> None:
    block.show_markdown("one<br>two<br/>\nthree")
    assert block.toPlainText() == "one\ntwo\nthree" and block.document().blockCount() == 1
    block.show_markdown("| a |\n|---|\n| mix<br>stir<br/>bake |\n| keep `a<br>b` |")
    assert block.toPlainText().split("\n") == ["", "a", "mix", "stir", "bake", "keep a<br>b", ""]
    source = "    code ~a ~b <br> **注意：**正"
    block.show_markdown(source)
    assert block.toPlainText() == source.strip()


@pytest.mark.parametrize(
    "tag", ["<script>x</script>", '<img src="x">', "the <b> tag", "</sub>", "<q>"]
)
def test_other_tags_and_tags_alone_stay_text(block: TextBlock, tag: str) -> None:
    block.show_markdown(f"so {tag} end")
    assert block.toPlainText() == f"so {tag} end"


def test_footnotes_and_pictures_have_their_words(block: TextBlock) -> None:
    block.show_markdown("So.[^1] And[^b]\n\n[^1]: https://a.example/x\n[^b]: a book")
    text = block.toPlainText()
    assert text == "So.1 Andb\n1\u2002https://a.example/x \nb\u2002a book"
    assert looks(block, "raised") == ["1", "b", "1", "b"]
    block.show_markdown(
        "![a cat](https://x.example/c.png), ![b](c.png), [![d](e.png)](https://f.g)"
    )
    assert block.toPlainText() == "a cat, b, d" and "\ufffc" not in block.document().toRawText()


def test_lines_of_quotations_and_items_stay_lines(block: TextBlock) -> None:
    block.show_markdown("> one\n> two\n\n- a\n  b\n- c")
    assert block.toPlainText() == "one\ntwo\na\nb\nc" and block.document().blockCount() == 3


def test_each_line_runs_by_its_first_letter_and_paths_keep_their_direction(
    block: TextBlock,
) -> None:
    block.show_markdown("افتح /home/a/b.txt.\nHello world.")
    assert block.document().blockCount() == 2
    assert "\u2066/home/a/b.txt\u2069." in block.toPlainText()
    block.selectAll()
    assert block.createMimeDataFromSelection().text() == "افتح /home/a/b.txt.\nHello world."


def test_marks_of_our_own_in_a_text_are_no_marks(block: TextBlock) -> None:
    block.show_markdown("a \ufdd4b\ufdd5 \ufdd0 \ufdef ~1 ~2")
    assert block.toPlainText() == "a \ufffdb\ufffd \ufffd \ufffd ~1 ~2"


def test_a_whole_heading_has_its_size(block: TextBlock) -> None:
    for source in ("## **1. Bold**", "## a **b** `c` d", "## *a* [b](https://c.d) e"):
        block.show_markdown(source)
        cursor, sizes = QTextCursor(block.document()), set()
        while cursor.movePosition(QTextCursor.MoveOperation.NextCharacter):
            sizes.add(cursor.charFormat().property(QTextFormat.Property.FontSizeAdjustment))
        assert sizes == {2}, source


def test_underscores_mean_what_stars_mean(block: TextBlock) -> None:
    block.show_markdown("_a_ and __b c__, *emphasis*text")
    assert looks(block, "italic") == ["a", "emphasis"] and looks(block, "bold") == ["b c"]


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("see https://e.com/foo_(bar)?a=b&c=d.", "https://e.com/foo_(bar)?a=b&c=d"),
        ("(https://e.com/c)", "https://e.com/c"), ("http://localhost:8080/x, or", "http://localhost:8080/x"),
        ("见https://e.com/c。后", "https://e.com/c"), ("见 https://e.com/c。后面", "https://e.com/c"),
        ("(见https://e.com/c?a=1)中文，(d)", "https://e.com/c?a=1"),
        ("https://e.com/@me/a#b_c", "https://e.com/@me/a#b_c"), ("<https://q.r>", "https://q.r"),
        ("[https://a.b/(c)](https://d.e)", "https://d.e"), ("[t](https://a.b/c_d_e)", "https://a.b/c_d_e"),
        ('<a href="https://x.y/z">go</a>', "https://x.y/z"), ("`http://localhost:1/(c)`", ""),
    ],
)  # fmt: skip
def test_an_address_is_a_link(block: TextBlock, source: str, address: str) -> None:
    block.show_markdown(source)
    cursor, found = QTextCursor(block.document()), set()
    while cursor.movePosition(QTextCursor.MoveOperation.NextCharacter):
        found.add(cursor.charFormat().anchorHref())
    assert found - {""} == ({address} - {""})
    assert "<" not in block.toPlainText()


def test_alerts_spans_and_hard_breaks_have_no_signs(block: TextBlock) -> None:
    block.show_markdown("> [!NOTE]\n> hi\n\none\\\ntwo <span style='color:red'>red</span>")
    assert block.toPlainText() == "Note\nhi\none\ntwo red" and looks(block, "bold") == ["Note"]


def test_rows_without_a_table_stay_lines(block: TextBlock) -> None:
    source = "| a | b\n| 1 | 2\n\n+---+\n| x |\n+---+"
    block.show_markdown(source)
    assert block.toPlainText() == source.replace("\n\n", "\n")


def shown(block: TextBlock, source: str) -> list[str]:
    """Return the lines of the window, with the level of a heading and the mark of an item."""
    block.show_markdown(source)
    lines, paragraph = [], block.document().begin()
    while paragraph.isValid():
        level, items = paragraph.blockFormat().headingLevel(), paragraph.textList()
        mark = "#" * level + " " if level else f"{items.itemText(paragraph)} " if items else ""
        lines.append(mark + paragraph.text().replace("\u2028", "/").replace("\xa0", " "))
        paragraph = paragraph.next()
    return lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("<ol><li>A</li><li>B</li></ol><h3>Head</h3>text", ["1. A", "2. B", "### Head", "text"]),
        ("a <li>b</li> </ul>", ["a <li>b</li> </ul>"]),
        ("First:\n5. a\n6. b", ["First:", "5. a", "6. b"]), ("In\n2024. x", ["In", "2024. x"]),
        ("1. a\n   x\n2. b", ["1. a/x", "2. b"]), ("a b.\n---\nc", ["a b.", "", "c"]),
        ("---\nfirst\n\n---\nbody", ["", "", "first", "", "body"]), ("T\n---\nb", ["## T", "b"]),
        ("text\n***\nrule\n___", ["text", "", "rule", ""]), ("#a\n#b\n# c", ["#a/#b", "# c"]),
        ("a <!-- c\n\nd -->b `<!-- e -->`", ["a b <!-- e -->"]), ("a <!-- b", ["a <!-- b"]),
        ("p/\n├── a/\n│   └── b\n    └── c", ["p//├── a//│   └── b/    └── c"]),
    ],
)  # fmt: skip
def test_lists_rules_and_drawings_keep_their_lines(
    block: TextBlock, source: str, lines: list[str]
) -> None:
    assert shown(block, source) == lines


def test_a_table_of_html_is_a_table(block: TextBlock) -> None:
    block.show_markdown(
        "x <table><tr><th>a</th><th>b</th></tr>\n<tr><td>1|2<br>3<td><b>c</b></tr></table> y"
    )
    assert block.toPlainText().split() == ["x", "a", "b", "1|2", "3", "c", "y"]
    assert any("c" in piece for piece in looks(block, "bold"))


@pytest.mark.parametrize(
    ("source", "levels"),
    [
        ("1. a\n  - b\n    - c\n2. d\n - e", [1, 2, 3, 1, 2]), ("1. a\n- b", [1, 1]),
        ("10. a\n   - b\n     text\n11. c", [1, 2, 1]), ("1. a\n   - b\n\n2. c", [1, 2, 1]),
    ],
)  # fmt: skip
def test_bullets_below_a_number_belong_to_it(
    block: TextBlock, source: str, levels: list[int]
) -> None:
    block.show_markdown(source)
    found, paragraph = [], block.document().begin()
    while paragraph.isValid():
        found.append(paragraph.textList().format().indent())
        paragraph = paragraph.next()
    assert found == levels


def test_letters_beside_struck_text_and_escaped_pipes_of_code(block: TextBlock) -> None:
    block.show_markdown("~~删除~~线 `~~a~~` x~~b~~y ~~~c~~")
    assert looks(block, "struck") == ["删除", "b"]
    block.show_markdown("| a |\n|---|\n| `x \\| y` |\n\n`z \\| z`")
    assert "x | y" in block.toPlainText() and "z \\| z" in block.toPlainText()


def test_lines_of_indented_code_stand_together(block: TextBlock) -> None:
    block.show_markdown("a\n\n    one\n    two\n\nb")
    first = block.document().begin().next()
    assert first.text() == "one" and first.blockFormat().bottomMargin() == 0
    assert first.next().blockFormat().bottomMargin() > 0


def test_the_bar_of_a_quotation_stands_beside_it(block: TextBlock) -> None:
    """Within the item of a list it is right of the bullet; between paragraphs it has no gap."""
    block.resize(300, 200)
    places = []
    for source in ("> a\n>\n> b", "- x\n  > a\n  >\n  > b"):
        block.show_markdown(source)
        image, colour = block.viewport().grab().toImage(), theme.colour("faint").name()
        spots = [
            (x, y) for x in range(0, 60) for y in range(image.height())
            if image.pixelColor(x, y).name() == colour
        ]  # fmt: skip
        rows = {y for _, y in spots}
        assert rows == set(range(min(rows), max(rows) + 1))
        places.append(min(x for x, _ in spots))
    assert places[1] == places[0] + block.document().indentWidth()


def links(block: TextBlock) -> list[str]:
    """Return the address of the link at each letter, "" without one."""
    cursor, found = QTextCursor(block.document()), []
    while cursor.movePosition(QTextCursor.MoveOperation.NextCharacter):
        found.append(cursor.charFormat().anchorHref())
    return found


def test_references_reach_over_the_blocks_of_an_answer(qtbot: Any) -> None:
    prose = "word " * 400 + "\n\n"
    text = f"[old][2] and [t][1]\n{prose}| a |\n|---|\n| [b][1] |\n\n`[1]: https://no.org`\n{prose}"
    message = Message("assistant", text + "[1]: https://d.e/sou", Ending.STREAMING)
    view = AnswerView(message)
    qtbot.addWidget(view)
    qtbot.waitUntil(slices.is_done)
    first, table, *_ = view.blocks_in_order()
    assert not any(links(first) + links(table)), "the definition is not complete"
    message.content += "rce\n[2]: https://f.g"
    view.refresh(now=True)
    qtbot.waitUntil(slices.is_done)
    assert set(links(first)) == {"", "https://d.e/source"} and set(links(table)) == set(
        links(first)
    )
    message.ending = Ending.FINISHED
    view.refresh()
    qtbot.waitUntil(slices.is_done)
    assert set(links(first)) == {"", "https://d.e/source", "https://f.g"}


def test_references_are_links_and_their_list_stays(block: TextBlock) -> None:
    block.show_markdown("see [t][1], [u], [v][9]\n\n[1]: https://d.e\n[U]: https://f.g 'x'")
    found = links(block)
    text = block.toPlainText()
    assert found[text.index("t")] == "https://d.e" and found[text.index("u")] == "https://f.g"
    assert "[v][9]" in text and "[1]: https://d.e" in text and "[t]" not in text
