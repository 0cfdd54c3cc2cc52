"""Drawn formulas in the text of an answer, with a stand-in for the process that draws them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QProcess, Qt
from PySide6.QtGui import QColor, QFontMetrics, QImage, QTextDocument, qGray
from PySide6.QtWidgets import QApplication

from app.chat import formulas
from app.chat.formulas import Drawn, Key, Typesetter
from app.chat.table_card import TableCard
from app.chat.text_block import TextBlock
from app.widgets import slices, theme

SVG = (
    b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 2 2"><rect width="2" height="2"/></svg>'
)


class Stand(Typesetter):
    """Draws a black box for all but what has "foo" in it, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Key] = []
        self.answers: dict[Key, Drawn | None] = {}
        self.width = 2.0

    def is_known(self, key: Key) -> bool:
        return key in self.answers

    def find(self, key: Key) -> Drawn | None:
        if key not in self.answers:
            self.asked.append(key)
        return self.answers.get(key)

    def answer(self) -> None:
        for key in self.asked:
            self.answers[key] = None if "foo" in key[0] else Drawn(SVG, self.width, 1.5, 0.5)
        self.drawn.emit()


@pytest.fixture
def stand(qtbot: Any) -> Iterator[Stand]:
    made = Stand()
    formulas.use(made)
    yield made
    formulas.use(None)


@pytest.fixture
def block(qtbot: Any, stand: Stand) -> TextBlock:
    made = TextBlock()
    qtbot.addWidget(made)
    made.resize(600, 100)
    return made


def drawn(qtbot: Any, stand: Stand, block: TextBlock, source: str) -> TextBlock:
    """Return the block with a text whose formulas are drawn."""
    block.show_markdown(source)
    stand.answer()
    qtbot.waitUntil(slices.is_done)
    return block


def copied(block: TextBlock) -> str:
    block.selectAll()
    return block.createMimeDataFromSelection().text()


def image(block: TextBlock) -> QImage:
    kind = QTextDocument.ResourceType.ImageResource.value
    found: QImage = block.document().resource(kind, "formula:0")
    return found


def test_source_is_shown_until_it_is_drawn(qtbot: Any, stand: Stand, block: TextBlock) -> None:
    source = r"So $\vec{a}$, $\frac{a}{b}$, $x_i^2$ and $\foo{x}$ `$\vec{b}$`."
    block.show_markdown(source)
    assert block.toPlainText() == r"So $\vec{a}$, a/b, xᵢ² and $\foo{x}$ $\vec{b}$."
    assert stand.asked == [(r"\vec{a}", False), (r"\frac{a}{b}", False), (r"\foo{x}", False)]
    drawn(qtbot, stand, block, source)
    assert block.toPlainText() == "So \ufffc, \ufffc, xᵢ² and $\\foo{x}$ $\\vec{b}$."
    assert copied(block) == r"So $\vec{a}$, $\frac{a}{b}$, xᵢ² and $\foo{x}$ $\vec{b}$."
    assert r"$\vec{a}$" in block.accessibleDescription()
    block.show_markdown(source)  # as a streamed block is: at once
    assert block.toPlainText().count("\ufffc") == 2


def test_a_formula_that_stands_alone_is_in_the_middle(
    qtbot: Any, stand: Stand, block: TextBlock
) -> None:
    drawn(qtbot, stand, block, "One 😀:\n$$\n\\vec{a}\n$$\ntwo $\\vec{b}$.\n\n- a\n  $$c$$\n  d")
    assert block.toPlainText() == "One 😀:\n\ufffc\ntwo \ufffc.\na\n\ufffc\nd"
    line = block.document().findBlockByNumber(1)
    assert line.blockFormat().alignment() & Qt.AlignmentFlag.AlignHCenter
    assert copied(block) == "One 😀:\n$$\n\\vec{a}\n$$\ntwo $\\vec{b}$.\na\n$$c$$\nd"


def test_its_colour_is_that_of_the_text(qtbot: Any, stand: Stand, block: TextBlock) -> None:
    found = image(drawn(qtbot, stand, block, r"$\vec{a}$"))
    colours = {found.pixelColor(x, y).name() for x in range(4, 9) for y in range(9, 12)}
    assert colours == {QColor(theme.colour("text")).name()}


@pytest.mark.parametrize("choice", [theme.Choice.LIGHT, theme.Choice.DARK])
def test_colours_are_seen_in_both_themes(qapp: QApplication, choice: theme.Choice) -> None:
    """Blue on black, and white on white, become lighter and darker; the rest has the text's."""
    theme.choose(qapp, choice)
    box = '<rect x="{}" y="0" width="10" height="10" fill="{}"/>'.format
    shown = [("black", theme.colour("text").name()), ("#0000ff", ""), ("#ffffff", "")]
    boxes = "".join(box(10 * index, name) for index, (name, _) in enumerate(shown))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 30 10">{boxes}</svg>'
    made = formulas.picture(svg.encode(), 30, 10, (0, 0, 30, 10), shown[0][1], 1.0)
    found = [made.pixelColor(10 * index + 5, 5) for index in range(3)]
    assert found[0].name() == shown[0][1]
    paper = qGray(theme.colour("window").rgb())
    assert all(abs(qGray(one.rgb()) - paper) >= formulas.CONTRAST for one in found)


def test_the_baseline_is_that_of_the_line(qtbot: Any, stand: Stand, block: TextBlock) -> None:
    """The box reaches from 1.5 above the baseline to 0.5 below; Qt puts the image at its middle."""
    found = image(drawn(qtbot, stand, block, r"$\vec{a}$"))
    rows = [y for y in range(found.height()) if found.pixelColor(5, y).alpha() > 128]
    half_x = QFontMetrics(block.document().defaultFont()).xHeight() / 2
    baseline = (found.height() + half_x) / 2
    n_above, n_below = baseline - rows[0], rows[-1] + 1 - baseline
    assert n_above == pytest.approx(3 * n_below, abs=3) and n_above > 10


def test_one_that_is_too_wide_is_scaled_to_the_column(
    qtbot: Any, stand: Stand, block: TextBlock
) -> None:
    stand.width = 100.0
    drawn(qtbot, stand, block, "$$\\vec{a}$$")
    assert 500 < image(block).width() / image(block).devicePixelRatio() <= 600


def test_another_screen_has_its_own_pixels(
    qtbot: Any, stand: Stand, block: TextBlock, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn(qtbot, stand, block, r"$\vec{a}$")
    before = image(block)
    monkeypatch.setattr(block, "devicePixelRatioF", lambda: 2 * before.devicePixelRatio())
    QApplication.sendEvent(block, QEvent(QEvent.Type.DevicePixelRatioChange))
    qtbot.waitUntil(slices.is_done)
    assert image(block).width() == 2 * before.width()


def test_words_are_found_in_its_source(qtbot: Any, stand: Stand, block: TextBlock) -> None:
    drawn(qtbot, stand, block, r"vec $\vec{a}$ and vector")
    places = [cursor.selectionStart() for cursor in block.find_all("VEC", 9)]
    assert places == [0, 4, 10]


def test_a_text_cannot_name_a_formula(qtbot: Any, stand: Stand, block: TextBlock) -> None:
    drawn(qtbot, stand, block, "\ufde40\ufde5 \ufde49\ufde5 \ufffc $\\vec{a}$ **$\\vec{b}$**")
    assert block.toPlainText() == "�0� �9� \ufffc \ufffc \ufffc"


def test_a_table_copies_its_formulas(qtbot: Any, stand: Stand) -> None:
    card = TableCard()
    qtbot.addWidget(card)
    card.show_text("| a | b |\n|---|---|\n| $\\vec{a}$ and | $|x| \\le \\vec{b}$ |\n")
    stand.answer()
    qtbot.waitUntil(slices.is_done)
    assert r"$\vec{a}$ and" in card.csv() and r"$|x| \le \vec{b}$" in card.csv()


class Broken(QProcess):
    """A process that cannot start, and says so later."""

    def start(self, *_: Any) -> None:
        super().start("/nonexistent/program", [])


class BrokenAtOnce(QProcess):
    """A process that cannot start, and says so before start() returns."""

    def start(self, *_: Any) -> None:
        self.errorOccurred.emit(QProcess.ProcessError.FailedToStart)


def test_the_process_draws_and_what_it_cannot_do_stays_known(qtbot: Any) -> None:
    made = Typesetter()
    keys = [(r"\sqrt{x}", False), (r"\foo", False), ("\\left(" * 20 + "x" + "\\right)" * 20, True)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formulas, "LIMIT_S", 0.3)
        with qtbot.waitSignal(made.drawn, timeout=60_000):
            assert [made.find(key) for key in keys] == [None] * 3
        qtbot.waitUntil(lambda: all(made.is_known(key) for key in keys), timeout=60_000)
    found = made.find(keys[0])
    assert found is not None and 0.5 < found.ascent < 2 and b"<path" in found.svg
    assert made.find(keys[1]) is made.find(keys[2]) is None
    made.close()


@pytest.mark.parametrize("kind", [Broken, BrokenAtOnce])
def test_without_a_process_source_stays(qtbot: Any, kind: type[QProcess]) -> None:
    made = Typesetter(process=kind)
    keys = [("a", False), ("b", True)]
    assert [made.find(key) for key in keys] == [None, None]
    qtbot.waitUntil(lambda: all(made.is_known(key) for key in keys))
    assert [made.find(key) for key in keys] == [None, None]
    assert made.find(("c", False)) is None  # it tries again
    qtbot.waitUntil(lambda: made.is_known(("c", False)))
