"""Single widgets with made-up data."""

from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPoint, QSize, Qt
from PySide6.QtGui import QColor, QResizeEvent
from PySide6.QtWidgets import QApplication, QLabel, QScrollArea, QVBoxLayout, QWidget
from window_samples import ANSWER, CACHE, GIB, MODEL

from app.chat.answer import AnswerView
from app.chat.composer import Composer
from app.chat.text_block import QUOTE_BAR, TextBlock
from app.chat.transcript import Transcript
from app.controls.rate_control import RateControl, RateState
from app.panel.expert_map import NUMBERS_WIDTH, ExpertMap, map_height
from app.panel.figures import Figures
from app.panel.map_picture import row_top
from app.panel.memory_bar import Memory, MemoryBar
from app.panel.token_strip import TokenStrip
from app.panel.value import Value
from app.state.conversation import Conversation, Ending, Message
from app.state.slot_range import SlotRange
from app.widgets import slices, theme
from app.widgets.elided_label import ElidedLabel
from app.widgets.scroll_column import ScrollColumn
from app.widgets.theme import Choice
from backend.library.estimate import Speed
from backend.protocol.statistics import Residency, Statistics, TokenCost


@pytest.fixture(autouse=True)
def dark(qapp: QApplication) -> None:
    theme.apply(qapp, Choice.DARK)


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


# The slider


STATE = RateState(SlotRange.of(MODEL, CACHE), MODEL, CACHE, 0.25)


def make_rate(qtbot: Any) -> RateControl:
    control = RateControl()
    qtbot.addWidget(control)
    control.show_state(STATE)
    return control


def test_the_slider_says_percent_experts_and_memory(qtbot: Any) -> None:
    control = make_rate(qtbot)
    assert (control.slider.minimum(), control.slider.maximum()) == (8, 128)
    assert plain(control.asked.text()) == "25 % · 32 of 128 experts"
    assert plain(control.force.text()) == "3.8 GiB of memory"
    control.slider.setSliderDown(True)
    control.slider.setValue(64)
    assert plain(control.asked.text()) == "50 % · 64 of 128 experts"
    assert plain(control.force.text()) == "7.6 GiB of memory"  # while it is held
    control.slider.setSliderDown(False)
    control.show_state(replace(STATE, asked_rate=0.5))
    assert plain(control.force.text()) == "7.6 GiB; in force: 32 experts"


def test_the_slider_says_how_fast_it_would_be(qtbot: Any) -> None:
    control = make_rate(qtbot)
    control.speed_of = lambda n_slot: Speed(n_slot / 2, is_measured=n_slot == 32)
    control.show_state(STATE)
    assert plain(control.force.text()) == "3.8 GiB, 16.0 token/s the last time"
    control.slider.setSliderDown(True)
    control.slider.setValue(64)
    assert plain(control.force.text()) == "7.6 GiB, about 32.0 token/s"


def test_what_the_memory_decided_is_said_without_a_slider(qtbot: Any) -> None:
    control = make_rate(qtbot)
    control.show()
    control.show_state(replace(STATE, asked_rate=1.0, automatic=True))
    assert not control.slider.isVisible()
    assert plain(control.asked.text()) == "25 % · 32 of 128 experts"
    assert plain(control.force.text()) == "3.8 GiB of memory"
    whole = replace(CACHE, mode="plain", n_slot=128, method="stock")
    control.show_state(replace(STATE, cache=whole, asked_rate=1.0, automatic=True))
    assert plain(control.asked.text()) == "100 % · 128 of 128 experts"
    assert control.force.text() == "all of it fits in memory"


def test_a_rate_is_chosen_on_release_only(qtbot: Any) -> None:
    control = make_rate(qtbot)
    chosen: list[float] = []
    control.chosen.connect(chosen.append)
    control.slider.setSliderDown(True)
    control.slider.setValue(40)
    control.slider.setValue(64)
    assert chosen == []
    control.slider.setSliderDown(False)
    assert chosen == [0.5]


def test_arrow_keys_choose_after_a_moment(qtbot: Any) -> None:
    control = make_rate(qtbot)
    control.show()
    with qtbot.waitSignal(control.chosen) as signal:
        qtbot.keyClick(control.slider, Qt.Key.Key_Right)
        qtbot.keyClick(control.slider, Qt.Key.Key_Right)
    assert int(signal.args[0] * 128) == 34


def test_what_was_asked_for_and_what_is_in_force_are_both_said(qtbot: Any) -> None:
    control = make_rate(qtbot)
    control.show_state(replace(STATE, asked_rate=0.5, waits=True))
    assert plain(control.force.text()) == "7.6 GiB, from the next answer; now 32 experts"


def test_a_dense_model_has_a_reason_and_no_slider(qtbot: Any) -> None:
    control = make_rate(qtbot)
    dense = replace(MODEL, is_moe=False, n_expert=0)
    cache = replace(CACHE, mode="plain", reason="This model is dense.")
    control.show_state(RateState(None, dense, cache, 0.25))
    assert not control.slider.isEnabled()
    assert control.force.text() == "This model is dense."


# The map


def make_map(qtbot: Any, data: bytes, n_expert: int, size: QSize) -> ExpertMap:
    widget = ExpertMap()
    qtbot.addWidget(widget)
    widget.resize(size)
    layers = tuple(range(1, 1 + len(data) // n_expert))
    widget.show_residency(Residency(layers, n_expert, data))
    return widget


def test_every_kind_of_cell_has_its_colour(qtbot: Any) -> None:
    data = bytes([0, 1, 2, 5, 9, 13, 4, 8])
    widget = make_map(qtbot, data, 8, QSize(NUMBERS_WIDTH + 162, 60))
    picture = widget.grab().toImage()
    colours = theme.colours()
    for expert, name in enumerate(
        ("absent", "resident", "arriving", "hit", "late", "stall", "hit", "late")
    ):
        seen = picture.pixelColor(NUMBERS_WIDTH + expert * 20 + 8, 6)
        assert seen == QColor(getattr(colours, name)), (expert, name)


def test_rows_are_layers(qtbot: Any) -> None:
    n_row, n_expert = 48, 128
    data = bytes(n_expert) * 7 + bytes([1]) * n_expert + bytes(n_expert) * (n_row - 8)
    widget = make_map(qtbot, data, n_expert, QSize(400, 300))
    picture = widget.grab().toImage()
    height = map_height(n_row, 300)
    tops = [row_top(row, n_row, height) for row in range(n_row + 1)]
    assert tops[-1] == 300
    resident = QColor(theme.colours().resident)
    assert picture.pixelColor(NUMBERS_WIDTH + 50, tops[7] + 2) == resident
    assert picture.pixelColor(NUMBERS_WIDTH + 50, tops[6] + 2) != resident
    for row in range(n_row):
        for y in range(tops[row], tops[row + 1]):
            assert widget.cell_at(QPoint(NUMBERS_WIDTH, y)) == (row, 0)
    assert widget.describe(7, 3) == "Layer 8, expert 3: in memory"
    assert widget.cell_at(QPoint(2, 2)) is None


def test_more_experts_than_pixels_are_mixed_not_dropped(qtbot: Any) -> None:
    data = bytes([1, 0] * 512)
    widget = make_map(qtbot, data, 1024, QSize(NUMBERS_WIDTH + 200, 60))
    seen = widget.grab().toImage().pixelColor(NUMBERS_WIDTH + 100, 6)
    colours = theme.colours()
    low, high = sorted((QColor(colours.absent).green(), QColor(colours.resident).green()))
    assert low < seen.green() < high


def test_a_change_of_theme_changes_the_map(qtbot: Any, qapp: QApplication) -> None:
    widget = make_map(qtbot, bytes([1] * 8), 8, QSize(200, 60))
    theme.apply(qapp, Choice.LIGHT)
    seen = widget.grab().toImage().pixelColor(NUMBERS_WIDTH + 8, 6)
    assert seen == QColor(theme.LIGHT.resident)


# Figures, strip and memory


def test_figures_have_values_only_where_something_is_known(qtbot: Any) -> None:
    figures = Figures()
    qtbot.addWidget(figures)
    assert figures.values == ["–"] * 8
    known = replace(ANSWER, bytes_read=10**10, prefetches_useful=1200, prefetches_wasted=8)
    figures.show_statistics(known, False, True)
    assert [plain(value) for value in figures.values] == [
        "19.4", "90 %", "3 %", "1.00", "7 %", "21 %", "1,200", "8",
    ]  # fmt: skip
    kept = replace(known, bytes_from_file=10**9, bytes_from_host=9 * 10**9)
    figures.show_statistics(kept, False, True)
    assert figures.values[3] == "0.10"
    tips = [child.toolTip() for child in figures.findChildren(Value)]
    assert any("from the file" in tip and "from memory" in tip for tip in tips)
    figures.show_statistics(ANSWER, False, False)
    assert figures.values == ["19.4", *["–"] * 7]
    figures.show_limit(1.75)
    assert figures.captions[3].text() == "of 1.75 GB/s"


def test_the_strip_shows_the_newest_token_at_the_right(qtbot: Any) -> None:
    strip = TokenStrip()
    qtbot.addWidget(strip)
    strip.resize(640, 80)
    strip.show_tokens((TokenCost(0.02, 0.0, 0.0),) * 70 + (TokenCost(0.02, 0.02, 0.0),))
    picture = strip.grab().toImage()
    colours = theme.colours()
    assert picture.pixelColor(634, 20) == QColor(colours.stall)
    assert picture.pixelColor(634, 60) == QColor(colours.compute)
    assert picture.pixelColor(630, 60) == QColor(colours.compute)
    assert picture.pixelColor(628, 20) not in (QColor(colours.stall), QColor(colours.compute))


def test_one_slow_token_does_not_flatten_the_others(qtbot: Any) -> None:
    strip = TokenStrip()
    qtbot.addWidget(strip)
    strip.resize(640, 81)
    strip.show_tokens((TokenCost(0.02, 0.0, 0.0),) * 63 + (TokenCost(2.0, 0.0, 0.0),))
    assert strip.scale_s == pytest.approx(0.08)
    assert plain(strip.scale_words) == "0 to 80 ms, slowest 2.0 s"
    picture = strip.grab().toImage()
    assert picture.pixelColor(300, 70) == QColor(theme.colours().compute)
    assert picture.pixelColor(634, 40) == QColor(theme.colours().compute)
    assert picture.pixelColor(634, 0) == QColor(theme.colours().text)
    strip.show_tokens((TokenCost(0.02, 0.0, 0.0), TokenCost(0.03, 0.0, 0.0)))
    assert plain(strip.scale_words) == "0 to 30 ms"


def test_the_memory_adds_up(qtbot: Any) -> None:
    bar = MemoryBar()
    qtbot.addWidget(bar)
    memory = Memory(total=32 * GIB, free=10 * GIB, dense=2 * GIB, experts=7 * GIB)
    bar.show_memory(memory)
    assert sum(n_byte for _, _, n_byte in bar.parts()) == memory.total
    measured = Memory.measure(MODEL, CACHE)
    assert (measured.dense, measured.experts) == (MODEL.dense_bytes, CACHE.bytes)
    assert 0 < measured.free <= measured.total


# Text


def test_markdown_is_shown_and_html_is_not(qtbot: Any) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown('**bold** <img src="file:///etc/passwd"> <blink>tag</blink>\nnext')
    text = block.toPlainText()
    assert text.startswith("bold <img src=") and "<blink>tag</blink>" in text
    assert text.endswith("\nnext") and block.document().blockCount() == 1
    block.show_markdown("![picture](file:///etc/hostname)")
    assert block.loadResource(2, "file:///etc/hostname") is None


@pytest.mark.parametrize(
    ("text", "n_block"),
    [
        ("one\ntwo\n\nthree", 2), ("- one\n- two", 2), ("1. one\n2. two\nmore", 2),
        ("# head\nbody", 2), ("**one**\n*two*", 1),
    ],
)  # fmt: skip
def test_line_breaks_leave_the_structure_alone(qtbot: Any, text: str, n_block: int) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown(text)
    assert block.document().blockCount() == n_block


def test_tables_stay_tables(qtbot: Any) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.show_markdown("| a | b |\n|---|---|\n| 1 | 2 |")
    assert "|" not in block.toPlainText() and "1" in block.toPlainText()


def test_an_answer_grows_and_ends(qtbot: Any) -> None:
    message = Message("assistant", "", Ending.WAITING, progress="Reading the prompt: 3 of 9 tokens")
    view = AnswerView(message)
    qtbot.addWidget(view)
    view.show()
    assert any("Reading the prompt" in label for label in visible_texts(view))
    message.ending, message.content = Ending.STREAMING, "Once there was\n\n```c\nint x;"
    view.refresh()
    qtbot.waitUntil(lambda: "int x;" in "".join(visible_texts(view)))
    message.content += "\n```\nThe end."
    message.ending, message.statistics = Ending.FINISHED, ANSWER
    view.refresh()
    qtbot.waitUntil(lambda: "The end." in "".join(visible_texts(view)))
    shown = "|".join(visible_texts(view))
    assert "212 tokens" in plain(shown) and "\u258d" not in shown
    assert "Reading the prompt" not in shown


def visible_texts(view: AnswerView) -> list[str]:
    texts = [item.toPlainText() for item in view.findChildren(TextBlock) if item.isVisible()]
    return texts + [item.text() for item in view.findChildren(QLabel) if item.isVisible()]


# The transcript


def make_transcript(qtbot: Any) -> tuple[Transcript, Conversation]:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.resize(600, 300)
    transcript.show()
    conversation = Conversation()
    for number in range(6):
        conversation.messages.append(Message("user", f"question {number}"))
        conversation.messages.append(Message("assistant", "word " * 200, statistics=ANSWER))
    conversation.messages[-1].ending = Ending.STREAMING
    transcript.show_conversation(conversation)
    qtbot.waitUntil(lambda: transcript.verticalScrollBar().maximum() > 300)
    return transcript, conversation


def at_end(transcript: Transcript) -> bool:
    bar = transcript.verticalScrollBar()
    return bar.value() == bar.maximum()


def test_the_end_stays_in_view_until_the_user_scrolls_up(qtbot: Any) -> None:
    transcript, conversation = make_transcript(qtbot)
    bar = transcript.verticalScrollBar()
    qtbot.waitUntil(lambda: at_end(transcript))
    before = bar.maximum()
    conversation.messages[-1].content += "more " * 300
    transcript.refresh(len(conversation.messages) - 1)
    qtbot.waitUntil(lambda: bar.maximum() > before)
    assert at_end(transcript)

    bar.setValue(bar.maximum() - 200)
    assert not transcript.follows
    place, before = bar.value(), bar.maximum()
    conversation.messages[-1].content += "more " * 300
    transcript.refresh(len(conversation.messages) - 1)
    qtbot.waitUntil(lambda: bar.maximum() > before)
    assert bar.value() == place

    transcript.follow()
    assert at_end(transcript) and transcript.follows


def test_a_new_question_brings_the_end_into_view(qtbot: Any) -> None:
    transcript, _ = make_transcript(qtbot)
    transcript.verticalScrollBar().setValue(0)
    assert not transcript.follows
    transcript.add(Message("user", "and now?"))
    qtbot.waitUntil(lambda: at_end(transcript))


# The composer


def test_enter_sends_and_shift_enter_makes_a_line(qtbot: Any) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    composer.show()
    composer.show_state(True, False, "")
    sent: list[str] = []
    composer.send.connect(sent.append)
    qtbot.keyClicks(composer.input, "one")
    qtbot.keyClick(composer.input, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    qtbot.keyClicks(composer.input, "two")
    assert sent == [] and composer.input.toPlainText().count("\n") == 1
    qtbot.keyClick(composer.input, Qt.Key.Key_Return)
    assert sent == ["one\ntwo"]


def test_nothing_is_sent_while_that_is_not_possible(qtbot: Any) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    composer.show_state(False, False, "The model is loading")
    sent: list[str] = []
    composer.send.connect(sent.append)
    qtbot.keyClicks(composer.input, "one")
    qtbot.keyClick(composer.input, Qt.Key.Key_Return)
    assert sent == [] and not composer.button.isEnabled()
    composer.show_state(True, False, "")
    assert composer.button.isEnabled()


def test_send_becomes_stop(qtbot: Any) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    composer.show_state(False, True, "")
    assert composer.button.accessibleName().startswith("Stop")
    with qtbot.waitSignal(composer.stop):
        composer.button.click()


def test_the_field_grows_with_its_text(qtbot: Any) -> None:
    composer = Composer()
    qtbot.addWidget(composer)
    composer.resize(400, 100)
    composer.show()
    low = composer.input.height()
    composer.input.setPlainText("\n".join("abcd"))
    assert composer.input.height() > low
    high = composer.input.height()
    composer.input.setPlainText("\n" * 100)
    assert high < composer.input.height() < 12 * low
    composer.input.setPlainText("nobreak" * 400)  # no bar below, however long the text
    assert composer.input.horizontalScrollBar().maximum() <= 1
    assert not composer.input.horizontalScrollBar().isVisible()


def test_a_quotation_has_a_bar(qtbot: Any) -> None:
    block = TextBlock()
    qtbot.addWidget(block)
    block.resize(300, 100)
    bars = []
    for text in ("> said by another", "said by another"):
        block.show_markdown(text)
        block.show()
        shown = block.grab().toImage()
        line = [shown.pixelColor(x, shown.height() // 2).name() for x in range(40)]
        bars.append(line.count(theme.colours().faint))
    assert bars[0] >= QUOTE_BAR and not bars[1]


def test_statistics_that_lack_things_are_read() -> None:
    assert Statistics.from_json({}) == Statistics()
    data = {"layers": [{"layer": 3, "stall_s": 0.5}], "tokens": [{"compute_s": 1}]}
    statistics = Statistics.from_json(data)
    assert statistics.layer_stall_s == {3: 0.5}
    assert statistics.tokens == [TokenCost(1.0, 0.0, 0.0)]


def test_a_kept_answer_has_its_lines_at_once_as_after_a_change_of_theme(qtbot: Any) -> None:
    transcript = Transcript()
    qtbot.addWidget(transcript)
    transcript.show()
    transcript.show_conversation(Conversation([Message("assistant", "A line.")]))
    view = transcript.view(0)
    assert isinstance(view, AnswerView)
    (block,) = view.findChildren(TextBlock)

    def line_height() -> float:
        return float(block.document().begin().blockFormat().lineHeight())

    first = line_height()
    qtbot.wait(1)
    list(view.redress())
    assert line_height() == first > 18


# Lines that are cut


def test_a_line_without_room_is_cut_and_still_known_whole(qtbot: Any) -> None:
    label = ElidedLabel(Qt.TextElideMode.ElideMiddle)
    qtbot.addWidget(label)
    label.setText("a name that is far too long for its place")
    label.resize(label.sizeHint())
    assert label.shown_text() == label.text()
    label.resize(80, label.height())
    assert "\u2026" in label.shown_text()
    assert label.shown_text()[0] == "a"
    assert label.shown_text()[-1] == "e"
    assert label.text() == "a name that is far too long for its place"
    assert label.minimumSizeHint().width() < 80


class FlippingText(QWidget):
    """Text that is higher than 300 pixels when it is at least `wide` wide, and lower otherwise."""

    wide = 1000
    n_resize = 0

    def sizeHint(self) -> QSize:
        is_high = self.width() >= self.wide and self.n_resize < 50  # ends the recursion for a test
        return QSize(100, 302 if is_high else 280)

    minimumSizeHint = sizeHint

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self.sizeHint().height()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.n_resize += 1
        self.updateGeometry()


def n_resize_at_the_edge(qtbot: Any, area: QScrollArea) -> int:
    """Return how often text that just needs a scroll bar, or just does not, is resized."""
    inside, text = QWidget(), FlippingText()
    layout = QVBoxLayout(inside)
    layout.setContentsMargins(0, 0, 0, 0)
    layout.addWidget(text)
    qtbot.addWidget(area)
    area.setWidget(inside)
    area.setWidgetResizable(True)
    area.setFrameShape(QScrollArea.Shape.NoFrame)
    area.resize(400, 300)
    area.show()
    QApplication.processEvents()
    text.wide, text.n_resize = text.width(), 0
    area.resize(400, 299)
    QApplication.processEvents()
    return text.n_resize


def test_text_that_just_needs_a_scroll_bar_has_one_width(qtbot: Any) -> None:
    assert n_resize_at_the_edge(qtbot, QScrollArea()) >= 50  # Qt's own area: the stack overflows
    assert n_resize_at_the_edge(qtbot, ScrollColumn()) < 5


def test_a_scroll_bar_shows_only_when_there_is_something_to_scroll(qtbot: Any) -> None:
    area, inside = ScrollColumn(), QWidget()
    qtbot.addWidget(area)
    area.setWidget(inside)
    area.resize(300, 200)
    area.show()
    bar = area.verticalScrollBar()

    def looks() -> set[str]:
        picture = bar.grab().toImage()
        return {picture.pixelColor(6, y).name() for y in range(picture.height())}

    inside.setMinimumHeight(100)
    QApplication.processEvents()
    width = inside.width()
    assert len(looks()) == 1 and not bar.isEnabled()
    inside.setMinimumHeight(500)
    QApplication.processEvents()
    assert len(looks()) > 1 and bar.isEnabled() and inside.width() == width


def test_sliced_work_goes_on_after_an_error_and_skips_what_was_deleted(qtbot: Any) -> None:
    owner, gone, done = QWidget(), QWidget(), []
    qtbot.addWidget(owner)

    def fail() -> None:
        done.append("fail")
        raise ValueError("one widget's error")

    def last() -> None:
        done.append("last")

    with qtbot.capture_exceptions() as errors:
        slices.later(gone, lambda: done.append("deleted"))
        for work in (fail, last, last):
            slices.later(owner, work)
        gone.deleteLater()
        QApplication.sendPostedEvents(gone, QEvent.Type.DeferredDelete)
        qtbot.waitUntil(slices.is_done)
    assert done == ["fail", "last"]
    assert [str(error) for _, error, _ in errors] == ["one widget's error"]
