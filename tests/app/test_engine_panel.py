"""The engine panel with made-up passes: views, keyboard, time line, decisions, files."""

import csv
import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication, QFrame, QPushButton, QWidget
from window_samples import ANSWER, CACHE, GIB, MODEL

from app.chat.answer_footer import footer
from app.panel.expert_map import View
from app.panel.legend import Legend
from app.panel.panel import EnginePanel
from app.panel.time_line import N_COLUMN, Overview
from app.panel.value import Value
from app.text import language
from app.widgets import theme
from app.widgets.theme import Choice
from backend.engine.moments import Watch
from backend.methods.cost import PassCost
from backend.protocol.statistics import Batch, LayerCost, Residency, TokenCost
from backend.protocol.status import Advice, Option

N_LAYER, N_EXPERT, N_TOKEN = 4, 8, 150
MODEL_4 = replace(
    MODEL, n_layer=N_LAYER, moe_layers=(2, 3, 4, 5), n_expert=N_EXPERT, n_expert_used=2
)
FOREVER = 1 << 30


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def residency(number: int) -> bytes:
    """Return a map: in each layer expert 0 is resident and used, one is in flight, one missed."""
    row = bytearray(N_EXPERT)
    row[0] = 1 + 4
    row[1 + number % 6] = 2
    row[7] = 12
    return bytes(row) * N_LAYER


def batches(n_token: int = N_TOKEN, first: int = 0) -> Iterator[Batch]:
    """Return the batches of a prompt and some tokens. Every third token stalls."""
    watch = Watch()
    for number in range(first, n_token + 1):
        stall_s = 0.004 if number % 3 == 0 else 0.0
        cost = PassCost(
            1, 0.006 + stall_s, 0.005, stall_s, stall_s, bytes_read=8000, hits=4, misses=4,
            prefetches_useful=3, prefetches_wasted=1,
        )  # fmt: skip
        stalls_us = (round(1e6 * stall_s), 0, 0, 0)
        watch.add(number, cost, stalls_us, residency(number), is_token=number > 0)
    while (fields := watch.take()) is not None:
        yield Batch.from_json(fields)


@pytest.fixture
def panel(qtbot: Any, qapp: QApplication) -> Iterator[EnginePanel]:
    theme.apply(qapp, Choice.DARK)
    panel = EnginePanel()
    panel.resize(470, 840)
    panel.show()
    qtbot.waitExposed(panel)
    panel.show_model(MODEL_4, CACHE)
    panel.show_residency(Residency(MODEL_4.moe_layers, N_EXPERT, residency(N_TOKEN)))
    yield panel
    panel.close()
    panel.deleteLater()
    # Delete it now: every widget that is left makes the next change of theme slower.
    QCoreApplication.sendPostedEvents(panel, QEvent.Type.DeferredDelete)


def fill(panel: EnginePanel) -> None:
    for batch in batches():
        panel.add_moments(batch)
    panel.show_statistics(replace(ANSWER, n_token=N_TOKEN), False)


# The map


def test_a_cell_says_layer_expert_state_use_and_bytes(panel: EnginePanel) -> None:
    fill(panel)
    text = plain(panel.map.describe(1, 0))
    assert text == (
        "Layer 3, expert 0: in memory, just used, a hit; used by 150 of 150 tokens; 2.5 MiB"
    )
    assert "not in memory, just used, a miss" in panel.map.describe(0, 7)
    assert "used by 0 of" in plain(panel.map.describe(0, 1))


def test_what_the_layer_in_progress_needs_is_framed_and_said(panel: EnginePanel) -> None:
    data = bytearray(residency(0))
    panel.show_residency(Residency(MODEL_4.moe_layers, N_EXPERT, bytes(data)))
    before = panel.map.grab().toImage()
    data[2 * N_EXPERT] |= 16
    panel.show_residency(Residency(MODEL_4.moe_layers, N_EXPERT, bytes(data)))
    assert "held by the layer in progress" in panel.map.describe(2, 0)
    after = panel.map.grab().toImage()
    place = panel.map.cell_rect(2, 0)
    edge = QPoint(place.left() - 2, place.center().y())
    assert before.pixelColor(edge) != after.pixelColor(edge) == QColor(theme.colours().hit)
    assert after.pixelColor(place.center()) == QColor(theme.colours().hit)


def test_what_the_processor_computed_has_a_colour_and_words(panel: EnginePanel) -> None:
    assert "processor" not in panel.parts.legends[0].text()
    panel.show_model(MODEL_4, replace(CACHE, device="CUDA0", hybrid="auto"))
    assert "computed" in panel.parts.legends[0].text()
    data = bytearray(residency(0))
    data[2 * N_EXPERT + 7] |= 32
    panel.show_residency(Residency(MODEL_4.moe_layers, N_EXPERT, bytes(data)))
    place = panel.map.cell_rect(2, 7)
    image = panel.map.grab().toImage()
    assert image.pixelColor(place.center()) == QColor(theme.colours().processor)
    edge = QPoint(place.left() - 2, place.top() - 1)
    assert image.pixelColor(edge) != QColor(theme.colours().hit)  # nothing is in progress
    assert "a miss, computed by the processor" in panel.map.describe(2, 7)
    stats = replace(
        ANSWER, late=10, misses=30, on_host=10, layers=[LayerCost(4, 0, 0, 0, 0, 0.0, on_host=10)]
    )
    panel.show_statistics(stats, False)
    assert plain(panel.stall.describe(2)).endswith("the processor computed 10 experts")
    assert "processor" not in panel.stall.describe(1)
    assert "processor computed 25" in panel.figures.notes[4]


def test_right_guesses_are_counted(panel: EnginePanel) -> None:
    panel.show_statistics(replace(ANSWER, n_drafted=12, n_accepted=9), False)
    assert "9 of 12" in plain(panel.figures.notes[0])
    panel.show_statistics(ANSWER, False)
    assert not panel.figures.notes[0]


def test_use_is_an_alternative_view(qtbot: Any, panel: EnginePanel) -> None:
    fill(panel)

    def colour(expert: int) -> QColor:
        return panel.map.grab().toImage().pixelColor(panel.map.cell_rect(0, expert).center())

    colours = theme.colours()
    assert colour(7) == QColor(colours.stall)
    qtbot.mouseClick(panel.parts.views[View.USE], Qt.MouseButton.LeftButton)
    assert panel.map.view is View.USE
    assert colour(0) == QColor(colours.resident)  # used most, and resident
    assert colour(7) == QColor(colours.other)  # used most, and not resident
    assert colour(3) == QColor(colours.absent)  # never used
    qtbot.mouseClick(panel.parts.views[View.STATE], Qt.MouseButton.LeftButton)
    assert colour(7) == QColor(colours.stall)


def test_the_keyboard_goes_from_cell_to_cell(qtbot: Any, panel: EnginePanel) -> None:
    fill(panel)
    told = panel.map
    without = told.grab().toImage()
    told.setFocus()
    assert told.cursor_cell == (0, 0) and told.accessibleDescription() == told.describe(0, 0)
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Right, Qt.Key.Key_Right):
        qtbot.keyClick(told, key)
    assert told.cursor_cell == (1, 2)
    assert told.accessibleDescription() == told.describe(1, 2)
    assert told.grab().toImage() != without  # the focus can be seen
    qtbot.keyClick(told, Qt.Key.Key_End)
    qtbot.keyClick(told, Qt.Key.Key_PageDown)
    assert told.cursor_cell == (N_LAYER - 1, N_EXPERT - 1)
    for key in (Qt.Key.Key_Right, Qt.Key.Key_Down):
        qtbot.keyClick(told, key)
    assert told.cursor_cell == (N_LAYER - 1, N_EXPERT - 1)
    qtbot.keyClick(told, Qt.Key.Key_Home)
    assert told.cursor_cell == (N_LAYER - 1, 0)
    panel.figures.setFocus()
    told.clearFocus()
    assert "4 layers of 8 experts" in told.accessibleDescription()


# Back over the answer


def test_a_token_of_the_time_line_shows_its_moment(qtbot: Any, panel: EnginePanel) -> None:
    fill(panel)
    assert panel.time_line.maximum() == N_TOKEN - 1
    panel.time_line.setFocus()
    qtbot.keyClick(panel.time_line, Qt.Key.Key_Home)
    qtbot.keyClick(panel.time_line, Qt.Key.Key_Right)
    qtbot.keyClick(panel.time_line, Qt.Key.Key_Right)
    assert panel.moments.token == 2  # the third token is pass 3, which stalled
    assert plain(panel.parts.place.text()) == "token 3 of 150"
    assert panel.map.residency is not None and panel.map.residency.data == residency(3)
    assert panel.stall.stall_s == [0.004, 0, 0, 0]
    assert [plain(value) for value in panel.figures.values] == [
        "100", "50 %", "0 %", "0.00", "50 %", "40 %", "3", "1",
    ]  # fmt: skip
    assert "used by 3 of 3 tokens" in plain(panel.map.describe(0, 0))
    qtbot.keyClick(panel.time_line, Qt.Key.Key_PageUp)
    assert panel.moments.token == 12
    panel.parts.now.click()
    assert panel.moments.token is None and panel.parts.place.text() == ""
    assert panel.figures.values[0] == "19.4"
    assert panel.map.residency.data == residency(N_TOKEN)


def test_a_click_on_a_bar_goes_to_its_token(qtbot: Any, panel: EnginePanel) -> None:
    fill(panel)
    number = panel.strip.numbers[3]
    place = next(
        QPoint(x, 10)
        for x in range(panel.strip.width())
        if panel.strip.token_at(QPoint(x, 10)) == number
    )
    qtbot.mouseClick(panel.strip, Qt.MouseButton.LeftButton, pos=place)
    assert panel.moments.token == number and number in panel.strip.numbers
    told = plain(panel.strip.describe(number))
    assert told.startswith(f"Token {number + 1}: ") and "compute 5 ms" in told
    qtbot.mouseClick(
        panel.time_line, Qt.MouseButton.LeftButton, pos=QPoint(panel.time_line.width() // 2, 5)
    )
    assert abs((panel.moments.token or 0) - N_TOKEN // 2) <= 1


def test_paused_it_stands_still_while_the_answer_goes_on(panel: EnginePanel) -> None:
    told = list(batches(240))
    panel.add_moments(next(iter(batches(99))))
    panel.show_statistics(replace(ANSWER, n_token=99), True)
    panel.parts.pause.click()
    assert panel.moments.token == 98
    values, strip = panel.figures.values, panel.strip.numbers
    for batch in batches(240, first=100):
        panel.add_moments(batch)
    panel.show_statistics(replace(ANSWER, n_token=240, tokens_per_s=3.0), True)
    panel.show_residency(Residency(MODEL_4.moe_layers, N_EXPERT, residency(1)))
    assert panel.figures.values == values and panel.strip.numbers == strip
    assert panel.map.residency is not None and panel.map.residency.data == residency(99)
    panel.parts.pause.click()
    assert panel.moments.token is None and panel.figures.values[0] == "3.0"
    assert panel.strip.numbers.stop == 240 == sum(len(batch.figures) for batch in told) - 1
    assert panel.map.residency.data == residency(1)


def test_the_next_answer_is_shown_as_it_comes(panel: EnginePanel) -> None:
    fill(panel)
    panel.choose(20)
    panel.add_moments(next(iter(batches(9))))
    assert panel.moments.token is None and panel.moments.n_token == 9
    panel.show_model(replace(MODEL_4, path="/other.gguf"), CACHE)
    assert panel.moments.n_token == 0 and not panel.parts.pause.isEnabled()


def test_an_overview_keeps_the_sums_at_any_length() -> None:
    overview = Overview()
    for n_token in (1, 199, 3, 2000, 7):
        overview.add([TokenCost(1.0, 0.5, 0.25)] * n_token)
        assert len(overview.columns) <= N_COLUMN
    sums = [sum(column[part] for column in overview.columns) for part in range(3)]
    assert sums == [2210.0, 1105.0, 552.5]
    assert all(mean == (1.0, 0.5, 0.25) for mean in overview.means())


# In words


def test_what_was_decided_is_told(panel: EnginePanel) -> None:
    assert not panel.decisions.isVisible()
    panel.show_statistics(replace(ANSWER, decisions=("First.", "Second.")), True)
    assert panel.decisions.isVisible() and panel.decisions.last.text() == "Second."
    assert panel.decisions.button.text() == "All 2 decisions"
    panel.decisions.button.click()
    assert panel.decisions.all.text() == "1. First.\n2. Second."
    panel.show_statistics(ANSWER, False)
    assert not panel.decisions.isVisible()


def test_advice_is_said_and_can_be_taken(qtbot: Any, panel: EnginePanel) -> None:
    fill(panel)
    panel.show_advice(Advice(0.4, Option("promoe", 5, 0.625, 6 * GIB, 2.1)))
    assert "A cache of 6.0 GiB instead of 3.8 GiB" in plain(panel.parts.helps.text())
    assert plain(panel.parts.use_it.text()) == "Use a cache of 6.0 GiB"
    with qtbot.waitSignal(panel.rate_wanted) as wanted:
        panel.parts.use_it.click()
    assert wanted.args == [5]
    panel.show_statistics(ANSWER, True)  # another answer begins
    assert not panel.parts.helps.isVisible() and not panel.parts.use_it.isVisible()


def test_asked_for_stands_beside_in_force(panel: EnginePanel) -> None:
    whole = MODEL_4.expert_bytes_total
    panel.show_model(MODEL_4, replace(CACHE, asked_rate=0.5, bytes=whole // 4))
    assert plain(panel.parts.force.text()) == "for experts: asked for 7.6 GiB, in use 3.8 GiB"


def test_the_verdict_comes_first_and_the_counters_are_folded(
    qtbot: Any, panel: EnginePanel
) -> None:
    fill(panel)
    parts = panel.parts

    def top(widget: QWidget) -> int:
        return widget.mapTo(panel, QPoint(0, 0)).y()

    qtbot.waitUntil(lambda: top(panel.map) > top(panel.words) + panel.words.height())
    assert top(panel.strip) > top(panel.map)
    assert panel.words.text() and not panel.figures.isVisible()
    parts.counters.click()
    assert parts.counters.isChecked() and panel.figures.isVisible()


def test_every_word_says_what_it_means_and_which_way_is_better(panel: EnginePanel) -> None:
    fill(panel)
    panel.parts.show_counters(True)
    words = [widget for widget in panel.figures.findChildren(QWidget) if widget.isVisible()]
    assert len(words) == 16
    for widget in words:
        assert "better" in widget.toolTip() or "limit" in widget.toolTip()
    legends = panel.findChildren(Legend)
    assert len(legends) == 3 and all(len(legend.toolTip()) > 80 for legend in legends)
    assert "better" in panel.parts.longest.toolTip()


@pytest.mark.parametrize("code", ["en", "de"])
def test_nothing_is_cut_at_any_width(
    qtbot: Any, qapp: QApplication, panel: EnginePanel, code: str
) -> None:
    panel.close()
    language.apply(qapp, code)
    panel = EnginePanel()
    qtbot.addWidget(panel)
    panel.show()
    panel.show_model(MODEL_4, CACHE)
    fill(panel)
    panel.show_advice(Advice(0.4, Option("promoe", 5, 0.625, 6 * GIB, 2.1)))
    panel.show_mode(True)
    panel.parts.show_counters(True)
    for width in (340, 363, 401, 470):
        panel.resize(width, 900)
        for _ in range(5):
            qapp.processEvents()
        viewport = panel.parts.content.parentWidget()
        for widget in panel.parts.content.findChildren(QWidget):
            if widget.isVisible():
                right = widget.mapTo(viewport, QPoint(widget.width(), 0)).x()
                assert right <= viewport.width(), (width, widget)
        for value in panel.figures.findChildren(Value):
            assert value.width_of(value.text()) <= value.width(), (width, value.text())
    language.apply(qapp, "en")


def test_advice_goes_when_it_was_followed_or_is_on_another_model(panel: EnginePanel) -> None:
    fill(panel)
    advice = Advice(0.4, Option("promoe", 5, 0.625, 6 * GIB, 2.1))
    panel.show_advice(advice)
    panel.show_model(MODEL_4, replace(CACHE, reason="Something else."))
    assert panel.parts.use_it.isVisible()
    panel.show_model(MODEL_4, replace(CACHE, n_slot=5))
    assert not panel.parts.use_it.isVisible() and not panel.parts.helps.isVisible()
    other = replace(MODEL_4, name="other")
    panel.show_model(other, CACHE)
    panel.show_advice(advice)  # came late
    assert not panel.parts.use_it.isVisible()


def test_a_button_that_changes_the_mode_says_so(panel: EnginePanel) -> None:
    fill(panel)
    panel.show_mode(True)
    panel.show_advice(Advice(0.4, Option("promoe", 5, 0.625, 6 * GIB, 2.1)))
    assert "changes to Manual" in panel.parts.use_it.text()
    panel.show_mode(False)
    assert "Manual" not in panel.parts.use_it.text()


def test_the_share_of_waiting_is_the_same_everywhere(panel: EnginePanel) -> None:
    fill(panel)
    panel.show_statistics(ANSWER, False)
    panel.show_advice(Advice(0.27))  # of the decoded tokens as the simulator counts them
    share = plain(panel.figures.values[5])
    assert share == "21 %" and f"waiting {share}" in plain(footer(ANSWER))
    assert f"takes {share}" in plain(panel.words.text()) and "27" not in panel.words.text()


def test_the_pictures_are_explained_once(qtbot: Any, panel: EnginePanel) -> None:
    hint = panel.findChild(QFrame, "hint")
    panel.want_hint()
    panel.show_statistics(ANSWER, True)
    assert not hint.isVisible()
    panel.show_statistics(ANSWER, False)
    assert hint.isVisible()
    with qtbot.waitSignal(panel.parts.hint_read):
        hint.findChild(QPushButton).click()
    panel.show_statistics(ANSWER, True)
    panel.show_statistics(ANSWER, False)
    assert not hint.isVisible()


def test_a_wide_panel_has_the_pictures_beside_the_words(qtbot: Any, panel: EnginePanel) -> None:
    fill(panel)

    def left(widget: QWidget) -> int:
        return widget.mapTo(panel, QPoint(0, 0)).x()

    panel.resize(1400, 900)
    qtbot.waitUntil(lambda: left(panel.map) > left(panel.words) + panel.words.width())
    assert panel.words.height() >= panel.words.heightForWidth(panel.words.width())
    panel.resize(420, 900)
    qtbot.waitUntil(lambda: left(panel.map) < 100)


def test_one_strip_shows_a_short_answer(qtbot: Any, panel: EnginePanel) -> None:
    for batch in batches(20):
        panel.add_moments(batch)
    panel.show_statistics(replace(ANSWER, n_token=20), False)
    assert panel.strip.isVisible() and not panel.time_line.isVisible()
    panel.strip.setFocus()
    qtbot.keyClick(panel.strip, Qt.Key.Key_Left)
    assert panel.moments.token == 18
    qtbot.keyClick(panel.strip, Qt.Key.Key_Home)
    assert panel.moments.token == 0
    panel.choose(None)
    for batch in batches(first=21):
        panel.add_moments(batch)
    panel.show_statistics(replace(ANSWER, n_token=N_TOKEN), False)
    assert panel.time_line.isVisible()


def test_other_programs_are_blamed_during_an_answer_only(panel: EnginePanel) -> None:
    panel.show_others(0.9)
    panel.show_statistics(ANSWER, True)
    assert not panel.parts.causes.isVisible()
    panel.show_others(0.4)
    panel.show_statistics(ANSWER, False)
    assert "Other programs use 40 %" in plain(panel.parts.causes.text())


# Files


def test_tokens_are_saved_as_a_table(panel: EnginePanel, tmp_path: Path) -> None:
    fill(panel)
    path = tmp_path / "tokens.csv"
    panel.save_tokens(path)
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == N_TOKEN + 1
    assert (rows[0]["kind"], rows[0]["token"]) == ("prompt", "")
    assert (rows[3]["token"], rows[3]["stall_s"], rows[3]["hits"]) == ("3", "0.004000", "4")
    assert rows[3]["stall_layer_2_s"] == "0.004000" and rows[4]["stall_layer_2_s"] == "0.000000"
    sums = sum(float(row["total_s"]) for row in rows[:-1])
    assert float(rows[-1]["begins_s"]) == pytest.approx(sums)


def test_experts_are_saved_as_a_table(panel: EnginePanel, tmp_path: Path) -> None:
    fill(panel)
    panel.choose(9)
    panel.save_experts(tmp_path / "experts.csv")
    with open(tmp_path / "experts.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == N_LAYER * N_EXPERT
    first = rows[N_EXPERT]
    assert (first["layer"], first["expert"], first["state"]) == ("3", "0", "resident")
    assert (first["tokens_using_it"], first["tokens"]) == ("10", "10")


def test_the_picture_is_saved_whole(panel: EnginePanel, tmp_path: Path) -> None:
    fill(panel)
    panel.resize(470, 300)  # most of it is scrolled out of view
    panel.save_picture(tmp_path / "engine.png")
    image = QImage(str(tmp_path / "engine.png"))
    assert image.height() > 400 and image.width() >= 440


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "no room on the drive"), (errno.EROFS, "cannot be written to"),
        (errno.EIO, "Input/output error"),
    ],
)  # fmt: skip
def test_a_drive_that_refuses_is_a_sentence(
    panel: EnginePanel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str
) -> None:
    fill(panel)
    told: list[str] = []
    panel.trouble.connect(told.append)

    def refuse(_: int) -> None:
        raise OSError(code, "Input/output error")

    monkeypatch.setattr("os.fsync", refuse)
    panel.save_tokens(tmp_path / "tokens.csv")
    assert len(told) == 1 and told[0].startswith("tokens.csv could not be saved: ")
    assert words in told[0] and told[0].endswith(".")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_is_a_sentence(panel: EnginePanel, tmp_path: Path) -> None:
    fill(panel)
    told: list[str] = []
    panel.trouble.connect(told.append)
    panel.save_picture(tmp_path / "gone" / "engine.png")
    assert told == ["engine.png could not be saved: its folder does not exist."]
