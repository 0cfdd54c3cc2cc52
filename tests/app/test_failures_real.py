"""Users' mistakes, with the real worker: one plain sentence, and the window goes on."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from factory import make_split, make_tiny
from window_samples import WAIT_MS, Opener

from app.session.worker_link import EngineLink
from app.state.engine_choice import EngineChoice
from app.state.engine_state import State
from app.state.preset import Preset
from app.window.main_window import MainWindow
from backend.protocol.client import worker_command
from backend.system.paths import embedded_model

CHOICE = EngineChoice(automatic=False, method="lru", context_length=256, n_thread=1)
GREEDY = Preset(sampling={"temperature": 0})  # a drawn first token may end the answer

Check = Callable[[Any, MainWindow, Path], None]


def wait(qtbot: Any, window: MainWindow, state: State) -> None:
    qtbot.waitUntil(lambda: window.engine.state is state, timeout=WAIT_MS)


def load(qtbot: Any, window: MainWindow, path: Path) -> None:
    window.open_model(path)
    wait(qtbot, window, State.IDLE)


def answers(qtbot: Any, window: MainWindow, text: str = "Hello.") -> str:
    """Ask, stop after some words, and return them."""
    assert window.session.send(text), window.engine.state
    return some_words(qtbot, window)


def some_words(qtbot: Any, window: MainWindow) -> str:
    """Wait for some words of the answer, stop it, and return them."""
    session = window.session

    def has_text() -> bool:
        last = session.conversation.last
        return session.engine.state is State.IDLE or (last is not None and len(last.content) > 10)

    qtbot.waitUntil(has_text, timeout=WAIT_MS)
    session.stop()
    wait(qtbot, window, State.IDLE)
    assert session.conversation.last is not None
    return session.conversation.last.content


def refused(qtbot: Any, window: MainWindow, path: Path, *words: str) -> None:
    window.open_model(path)
    wait(qtbot, window, State.EMPTY)
    sentence = window.chat.banner.sentence
    assert window.chat.banner.isVisible()
    assert sentence.count(path.name) == 1 and sentence.endswith(".")
    assert all(word in sentence for word in words), sentence
    assert "Traceback" not in sentence and "Error" not in sentence


def corrupt(qtbot: Any, window: MainWindow, folder: Path) -> None:
    path = folder / "damaged.gguf"
    path.write_bytes(embedded_model().read_bytes()[:200_000])
    refused(qtbot, window, path, "ends")


def not_a_model(qtbot: Any, window: MainWindow, folder: Path) -> None:
    path = folder / "letter.gguf"
    path.write_text("Dear reader,")
    refused(qtbot, window, path, "GGUF")


def not_a_file(qtbot: Any, window: MainWindow, folder: Path) -> None:
    path = folder / "folder.gguf"
    path.mkdir()
    refused(qtbot, window, path)


def not_there(qtbot: Any, window: MainWindow, folder: Path) -> None:
    refused(qtbot, window, folder / "gone.gguf")


def missing_part(qtbot: Any, window: MainWindow, folder: Path) -> None:
    whole = make_tiny("qwen3moe", "Q8_0", folder / "m.gguf")
    parts = make_split(whole, 3)
    parts[1].unlink()
    refused(qtbot, window, parts[0], parts[1].name)


def dense(qtbot: Any, window: MainWindow, folder: Path) -> None:
    path = folder / "dense.gguf"
    make_tiny("dense", "Q8_0", path)
    load(qtbot, window, path)
    assert window.top_bar.rate.asked.text() == "A dense model"
    assert "no experts" in window.top_bar.rate.force.text()
    answers(qtbot, window)


def too_long(qtbot: Any, window: MainWindow, folder: Path) -> None:
    load(qtbot, window, embedded_model())
    text = "word " * 600
    window.chat.composer.input.setPlainText(text)
    window.chat.composer.button.click()
    qtbot.waitUntil(window.chat.banner.isVisible, timeout=WAIT_MS)
    assert "256" in window.chat.banner.sentence  # and the number of its tokens
    assert window.chat.composer.input.toPlainText().split() == text.split()


def deleted_while_open(qtbot: Any, window: MainWindow, folder: Path) -> None:
    path = folder / "mine.gguf"
    shutil.copy(embedded_model(), path)
    load(qtbot, window, path)
    path.unlink()
    qtbot.waitUntil(window.chat.banner.isVisible, timeout=WAIT_MS)
    assert window.chat.banner.sentence.startswith("mine.gguf was deleted or moved.")
    assert answers(qtbot, window)
    window.open_model(path)  # the engine refuses it and keeps the model that it has
    qtbot.waitUntil(lambda: "cannot be used" in window.chat.banner.sentence, timeout=WAIT_MS)
    assert window.engine.state is State.IDLE and window.engine.path == path
    assert answers(qtbot, window)


def full_disk(qtbot: Any, window: MainWindow, folder: Path) -> None:
    load(qtbot, window, embedded_model())
    connection = window.chats.store.connection
    n_page = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {n_page}")
    assert not window.session.send("word " * 20_000)
    assert "the disk is full" in window.chat.banner.sentence
    (file,) = window.chat_page.attachments.attachments  # too long for the field
    assert file.text.startswith("word word")
    again, anyway = window.chat.banner.buttons
    assert (again.text(), anyway.text()) == ("Try again", "Send it anyway")
    anyway.click()  # the text also exceeds the context
    assert some_words(qtbot, window)
    assert answers(qtbot, window)
    connection.execute("PRAGMA max_page_count = 100000")


def one_bad_file_after_the_other(qtbot: Any, window: MainWindow, folder: Path) -> None:
    for case in (corrupt, not_a_model, not_a_file, not_there, missing_part):
        case(qtbot, window, folder)


CASES: tuple[Check, ...] = (
    one_bad_file_after_the_other, dense, too_long, deleted_while_open, full_disk,
)  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_what_goes_wrong_is_said_and_everything_works_on(
    qtbot: Any, open_window: Opener, tmp_path: Path, case: Check
) -> None:
    window = open_window(command=worker_command())
    window.engine.choose(CHOICE)
    window.chats.set_any_preset(GREEDY)
    folder = tmp_path / "models"
    folder.mkdir()
    case(qtbot, window, folder)
    window.session.new_chat()
    window.session.notice.emit(None)
    load(qtbot, window, embedded_model())
    answers(qtbot, window)
    assert not window.chat.banner.isVisible(), window.chat.banner.sentence


def test_a_profile_that_cannot_be_written_is_said_once(qtbot: Any, tmp_path: Path) -> None:
    in_the_way = tmp_path / "profile"
    in_the_way.write_text("")
    window = MainWindow(EngineLink(worker_command()), in_the_way / "settings.json")
    qtbot.addWidget(window)
    window.show()
    try:
        assert window.chat.banner.isVisible()
        window.engine.choose(CHOICE)
        load(qtbot, window, embedded_model())
        assert answers(qtbot, window)
        assert [row.title for row in window.chats.rows()] == ["Hello."]
        window.preferences.set("language", "de")
    finally:
        window.close()
