"""What goes on beside a chat: finding words, titles, notifications, the tray, the cache rate."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtWidgets import QApplication, QWidget
from window_samples import ENDLESS, WAIT_MS, Model, Opener

from app.session.local_server import ServerFacts
from app.session.titles import clean
from app.state.engine_state import State
from app.text import language
from backend.library.estimate import speed_after
from backend.protocol.statistics import Statistics


def shown_y(window: Any) -> int:
    """Return the y of the found place within the transcript's viewport."""
    bar, transcript = window.chat.find_bar, window.chat.transcript
    block, cursor = bar._found[bar._place]
    place = block.viewport().mapTo(transcript.viewport(), QPoint(0, 0)).y()
    return int(place + block.cursorRect(cursor).center().y())


def search(qtbot: Any, window: Any, n_more_than: int) -> Any:
    """Look for "needle" in the chat, and wait for so many places. Return the bar."""
    bar = window.chat.find_bar
    bar.begin()
    qtbot.keyClicks(bar.words, "needle")
    qtbot.waitUntil(lambda: bar.found > n_more_than, timeout=WAIT_MS)
    return bar


def test_words_are_found_in_the_chat(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(text="A needle and hay. " + "More hay.\n\n" * 30))
    for number in range(3):
        window.ask(f"Question {number}")
        window.wait_state(State.IDLE)
    action = next(a for a in window.actions() if a.shortcut().toString() == "Ctrl+Shift+F")
    action.trigger()
    bar = window.chat.find_bar
    assert bar.isVisible() and bar.words.hasFocus()
    qtbot.keyClicks(bar.words, "needle")
    qtbot.waitUntil(lambda: bar.found > 0, timeout=WAIT_MS)
    n_found = bar.found
    assert bar.count.text() == f"{n_found} of {n_found}"
    height = window.chat.transcript.viewport().height()
    qtbot.waitUntil(lambda: 0 <= shown_y(window) <= height, timeout=WAIT_MS)
    qtbot.keyClick(bar.words, Qt.Key.Key_Return)
    assert bar.count.text() == f"1 of {n_found}"
    qtbot.waitUntil(lambda: 0 <= shown_y(window) <= height, timeout=WAIT_MS)
    block, _ = bar._found[0]
    assert block.extraSelections()
    qtbot.keyClick(bar.words, Qt.Key.Key_Escape)
    assert not bar.isVisible() and not block.extraSelections()
    assert QApplication.focusWidget() is window.chat.composer.input


@pytest.mark.parametrize(
    "change",
    [
        lambda window: window.ask("Another needle?"),
        lambda window: window.session.edit(4, "A needle?"),
        lambda window: window.session.regenerate(5),
        lambda window: window.chats.edit_answer(5, "One needle in a heap."),
        lambda window: window.chats.delete_message(4),
        lambda window: window.preferences.set("theme", "dark"),
        lambda window: window.preferences.set("text_percent", 150),
    ],
    ids=["asked", "edited", "regenerated", "rewritten", "deleted", "theme", "size"],
)
def test_what_changes_while_words_are_searched_is_searched_again(
    qtbot: Any, open_window: Opener, model: Model, change: Callable[[Any], None]
) -> None:
    window = open_window(model(text="A needle, `hay` and a needle. "))
    for number in range(3):
        window.ask(f"Question {number}")
        window.wait_state(State.IDLE)
    bar, transcript = search(qtbot, window, n_more_than=3), window.chat.transcript
    for _ in range(3):
        qtbot.keyClick(bar.words, Qt.Key.Key_Return)
    assert bar.count.text() == f"3 of {bar.found}"
    change(window)
    window.wait_state(State.IDLE)

    def is_settled() -> bool:
        blocks = transcript.text_blocks() if transcript.is_whole else []
        n_there = sum(block.toPlainText().count("needle") for block in blocks)
        n_marked = sum(len(block.extraSelections()) for block in blocks)
        return 0 < n_there == n_marked == bar.found

    qtbot.waitUntil(is_settled, timeout=WAIT_MS)
    assert bar.count.text() == f"3 of {bar.found}"
    qtbot.keyClick(bar.words, Qt.Key.Key_Return)
    assert bar.count.text() == f"4 of {bar.found}"


def test_the_next_place_is_found_at_once_after_a_change(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text="A needle. "))
    window.ask("A question")
    window.wait_state(State.IDLE)
    bar = search(qtbot, window, n_more_than=0)
    window.session.edit(0, "Where is the needle?")
    qtbot.keyClick(bar.words, Qt.Key.Key_Return)  # before the bar searches again by itself
    window.wait_state(State.IDLE)
    qtbot.waitUntil(lambda: bar.found > 1, timeout=WAIT_MS)
    qtbot.keyClick(bar.words, Qt.Key.Key_Return)
    assert bar.present is not None and bar.present.selectedText() == "needle"


def test_words_are_found_while_an_answer_grows(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text="A needle in hay. " * 2000, token_s=0.03))
    window.ask("A question")
    bar = search(qtbot, window, n_more_than=1)
    n_found = bar.found
    qtbot.waitUntil(lambda: bar.found > n_found, timeout=WAIT_MS)
    assert window.answer.is_live
    window.session.stop()
    window.wait_state(State.IDLE)


def test_marks_go_with_the_text_in_which_they_were(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    """Qt would read the place of a mark in a text that is deleted, which ends the program."""
    window = open_window(model(text="Straw and hay. "))
    window.ask("A question")
    window.wait_state(State.IDLE)
    bar = window.chat.find_bar
    bar.begin()
    qtbot.keyClicks(bar.words, "needle")
    qtbot.waitUntil(lambda: bar.count.text() == "Nothing found.", timeout=WAIT_MS)
    (block,) = window.chat.transcript.text_blocks()[1:]
    hay = "Hay before another needle"
    for text, n_kept in ((hay, 0), (f"{hay}, and a needle.", 1), ("A needle.", 0)):
        block.show_markdown(text)
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        assert [mark.cursor.selectedText() for mark in block.extraSelections()] == (
            ["needle"] * n_kept
        )
        bar.search()
        assert len(block.extraSelections()) == bar.found == text.count("needle")
        assert window.chat.transcript.follows  # what was sought before leads nowhere


def test_an_idle_model_writes_the_title(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(text="Tin Soldiers at Sea"))
    window.ask("Tell me at length of the soldiers, please")
    window.wait_state(State.IDLE)
    before = window.answer.statistics, window.panel.words.text()
    assert window.chats.rows()[0].title.startswith("Tell me at length")
    window.titles.ask()
    title = "Tin Soldiers at SeaTin Soldiers at"
    qtbot.waitUntil(lambda: window.chats.rows()[0].is_named, timeout=WAIT_MS)
    assert window.chats.rows()[0].title.startswith(title[:19])
    assert (window.answer.statistics, window.panel.words.text()) == before
    assert len(window.session.conversation.messages) == 2 and window.state is State.IDLE
    window.chats.rename(window.chats.open_id, "Mine")
    window.titles.ask()
    assert window.chats.rows()[0].title == "Mine"


def test_a_title_is_never_in_the_way(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model(token_s=0.05, n_token=30))
    window.ask("A question")
    window.wait_state(State.IDLE)
    window.titles.ask()
    window.ask("The next question")
    window.wait_text(5)
    window.wait_state(State.IDLE)
    assert window.answer.content.startswith("Once there was")
    assert len(window.session.conversation.messages) == 4
    assert window.chats.rows()[0].title == "A question"  # the title was stopped


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ('"A Trip to Rome."', "A Trip to Rome"),
        ("**Title: Red Skies**\nMore", "Red Skies"),
        ("# Titel: Der Wind", "Der Wind"),
        ("- **Title:** 'Basics of C#'.", "Basics of C#"),
        ("Titles of nobility", "Titles of nobility"),
        ("标题：《春天的故事》。", "春天的故事"),
        ("「タイトル：猫の名前」", "猫の名前"),
        ("", ""),
        ("word " * 40, ""),
    ],
)
def test_titles_are_cleaned(written: str, title: str) -> None:
    assert clean(written) == title


def test_a_ready_answer_is_told_if_the_window_is_not_active(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window(model())
    told: list[tuple[str, str]] = []
    window.presence.tell = lambda *words: told.append(words)
    monkeypatch.setattr(window, "isActiveWindow", lambda: False)
    window.ask("A question")
    window.wait_state(State.IDLE)
    [(title, words)] = told
    assert title == "The answer is ready: A question" and words.startswith("Once there was")
    window.settings.notify = False
    window.ask("Another")
    window.wait_state(State.IDLE)
    window.settings.notify = True
    monkeypatch.setattr(window, "isActiveWindow", lambda: True)
    window.ask("Once more")
    window.wait_state(State.IDLE)
    assert len(told) == 1


def test_without_a_tray_closing_ends_the_window(open_window: Opener, model: Model) -> None:
    window = open_window(model())
    assert not window.settings.tray and not window.presence.stays
    window.close()
    assert not window.isVisible() and not window.link.is_running


def test_the_slider_forecasts_every_position_and_stands_still(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    window.resize(1320, 840)
    window.ask()
    window.wait_state(State.IDLE)
    rate, slots = window.top_bar.rate, window.engine.slots
    assert slots is not None
    places = set()
    for n_slot in range(slots.n_slot_min, slots.n_expert + 1):
        rate.slider.setValue(n_slot)
        QApplication.processEvents()
        assert "token/s" in rate.force.text(), n_slot
        assert rate.asked.shown_text() == rate.asked.text()
        places.add((rate.slider.mapTo(window, QPoint(0, 0)).x(), rate.slider.width()))
    assert len(places) == 1


@pytest.mark.parametrize("code", ["en", "de"])
def test_the_bar_cuts_no_word(
    qapp: QApplication, open_window: Opener, model: Model, code: str
) -> None:
    """At widths from 900 on, in both modes, with a server, and with a rate that waits."""
    language.apply(qapp, code)
    window = open_window(model())
    window.ask()
    window.wait_state(State.IDLE)
    bar, rate = window.top_bar, window.top_bar.rate
    assert window.engine.slots is not None
    for has_server in (False, True):
        bar.show_server(ServerFacts(on=has_server, n_open=1))
        for mode in ("automatic", "manual", "waits"):
            of_mode = {"automatic": mode == "automatic", "waits": mode == "waits"}
            for width in range(900, 1401, 100):
                window.resize(width, 700)
                rate.show_state(replace(rate._state, asked_rate=1.0, **of_mode))
                for _ in range(3):
                    QApplication.processEvents()
                where = (has_server, mode, width)
                for label in (rate.asked, rate.force):
                    assert label.shown_text() in (label.text(), label.short), where
                parts = [p for p in bar.children() if isinstance(p, QWidget) and p.isVisible()]
                parts.sort(key=lambda part: part.x())
                for part, next_part in itertools.pairwise(parts):
                    assert part.geometry().right() < next_part.x(), (where, part)
                    has_room = part.width() >= part.sizeHint().width()
                    assert has_room or part in (rate, bar.model), (where, part)
                assert bar.rect().contains(parts[-1].geometry()), where


def test_a_rate_is_applied_in_the_middle_of_an_answer(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(text=ENDLESS, token_s=0.03))
    rate = window.top_bar.rate
    assert not rate.apply.isVisible()
    window.ask()
    window.wait_text(30)
    window.move_rate(24)
    assert rate.apply.isVisible() and "from the next answer" in rate.force.text()
    n_char = len(window.answer.content)
    rate.apply.click()
    qtbot.waitUntil(lambda: window.engine.cache.n_slot == 24, timeout=WAIT_MS)
    qtbot.waitUntil(lambda: len(window.answer.content) > n_char + 20, timeout=WAIT_MS)
    assert len(window.session.conversation.messages) == 2
    assert not rate.apply.isVisible()
    window.session.stop()


def test_more_slots_promise_more_speed() -> None:
    answer = Statistics(n_token=100, tokens_per_s=10.0, stall_s=5.0, compute_s=5.0)
    speeds = [speed_after(answer, 8, 32, n) for n in (4, 8, 16, 32)]
    values = [speed.tokens_per_s for speed in speeds if speed is not None]
    assert values == sorted(values) and values[1] == 10.0 and values[3] == pytest.approx(20.0)
    assert speed_after(Statistics(n_token=2, tokens_per_s=9.0), 8, 32, 16) is None
