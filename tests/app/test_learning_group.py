"""The group of the settings about learning from chats, with the real worker and engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import DATA_HOME
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton
from window_samples import WAIT_MS

from app.pages.learning_section import LearningGroup
from app.session.worker_link import EngineLink
from app.state.engine_choice import EngineChoice
from backend.protocol.chat import ChatOptions
from backend.protocol.client import worker_command
from backend.protocol.status import LearningFacts
from backend.system.paths import embedded_model


@pytest.fixture
def link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EngineLink]:
    """Return a link to a worker with a data folder of its own."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path))
    one = EngineLink(worker_command())
    one.start()
    yield one
    one.shut_down()


def click(qtbot: Any, widget: Any) -> None:
    if isinstance(widget, QPushButton):
        qtbot.mouseClick(widget, Qt.MouseButton.LeftButton)
    else:
        widget.click()  # the mark of a box is not at its middle


def test_consent_recording_and_deleting(qtbot: Any, link: EngineLink, tmp_path: Path) -> None:
    group = LearningGroup(link)
    qtbot.addWidget(group)
    assert not group.switch.isEnabled() and group.sentence == "The engine is not running."
    group.show()
    qtbot.waitUntil(group.switch.isEnabled, timeout=WAIT_MS)
    assert not group.switch.isChecked() and not group.delete.isEnabled()
    assert group.sentence == "Nothing is recorded."
    assert group.amount.text() == "There are no recordings."

    click(qtbot, group.switch)
    waiting = "Answers will be recorded once a model is loaded."
    qtbot.waitUntil(lambda: group.sentence == waiting, timeout=WAIT_MS)
    with qtbot.waitSignal(link.loaded, timeout=WAIT_MS):
        link.load(embedded_model(), EngineChoice(automatic=False, cache_rate=0.25, n_thread=1))
    with qtbot.waitSignal(link.done, timeout=WAIT_MS):
        link.generate([{"role": "user", "content": "Hi!"}], {"temperature": 0}, ChatOptions(), 8)
    qtbot.waitUntil(group.delete.isEnabled, timeout=WAIT_MS)
    assert "tokens that training needs" in group.sentence
    assert group.amount.text().endswith("Of each model at most 512\N{NO-BREAK SPACE}MiB are kept.")
    assert list(tmp_path.glob("outrider/recordings/*/*.npz"))

    click(qtbot, group.delete)
    qtbot.waitUntil(lambda: not group.delete.isEnabled(), timeout=WAIT_MS)
    assert group.amount.text() == "There are no recordings."
    assert not list(tmp_path.glob("outrider/recordings/*/*.npz"))
    assert group.switch.isChecked()
    click(qtbot, group.switch)
    qtbot.waitUntil(lambda: group.sentence == "Nothing is recorded.", timeout=WAIT_MS)
    link.shut_down()
    link.died.emit("It is gone.")
    assert not group.switch.isEnabled()


def test_training_is_shown(qtbot: Any, link: EngineLink) -> None:
    group = LearningGroup(link)
    qtbot.addWidget(group)
    said = "Training in the background (50 %)."
    facts = LearningFacts(True, 3 << 20, 512 << 20, 900, 1000, 0.5, True, said)
    group.show_facts(facts)
    assert group.sentence == facts.sentence and group.delete.isEnabled()
    bar = group.findChild(type(group.bar))
    assert bar is not None and not bar.isHidden() and bar.value() == bar.maximum() // 2


def test_consent_cannot_be_given_for_a_model_without_use_but_be_withdrawn(
    qtbot: Any, link: EngineLink
) -> None:
    group = LearningGroup(link)
    qtbot.addWidget(group)
    said = "This model has no experts, so there is nothing to learn."
    for is_allowed in (False, True):
        facts = LearningFacts(is_allowed, 0, 0, 0, 0, None, False, said)
        group.show_facts(facts)
        assert group.switch.isEnabled() == is_allowed and group.sentence == said
