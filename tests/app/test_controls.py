"""The engine's settings and the strip below the chat, with a fake engine."""

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QComboBox, QFileDialog, QWidgetItem
from window_samples import WAIT_MS, Model, Opener, let_go

from app.controls.remote_device import RemoteDialog
from app.settings import settings
from app.state.engine_choice import EngineChoice
from app.state.engine_state import State
from app.widgets.fields import Number
from app.window.main_window import MainWindow
from backend.text import text, to_json


def plain(text: str) -> str:
    return text.replace("\u00a0", " ")


def wait_idle(qtbot: Any, window: MainWindow) -> None:
    qtbot.waitUntil(lambda: window.engine.state is State.IDLE, timeout=WAIT_MS)


def sent(window: MainWindow) -> list[EngineChoice]:
    """Return a list that gets every request to the engine from now on."""
    told: list[EngineChoice] = []
    configure = window.link.configure

    def spy(choice: EngineChoice) -> None:
        told.append(choice)
        configure(choice)

    window.link.configure = spy  # type: ignore[method-assign]
    return told


def pick(window: MainWindow, name: str, value: object) -> None:
    field = window.controls.strip.controls[name]
    field.setCurrentIndex(field.findData(value))
    field.activated.emit(field.currentIndex())


def test_by_hand_it_goes_on_with_what_is_in_force(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    told = sent(window)
    window.top_bar.mode.automatic.click()
    wait_idle(qtbot, window)
    assert told[-1].automatic
    assert told[-1].to_message()["cache_rate"] == 1.0
    assert not window.top_bar.rate.slider.isVisible()
    assert window.engine.cache is not None and window.engine.cache.mode == "plain"
    window.top_bar.mode.manual.click()
    wait_idle(qtbot, window)
    assert told[-1] == EngineChoice(
        automatic=False, cache_rate=1.0, method="auto", context_length=4096
    )
    assert window.top_bar.rate.slider.isVisible()
    assert len(told) == 2


def test_all_switches_say_the_same(qtbot: Any, open_window: Opener, model: Model) -> None:
    window = open_window(model())
    switches = (window.top_bar.mode, window.controls.strip.mode, window.settings_page.mode)
    for number, switch in enumerate(switches):
        wanted = number % 2 == 0
        (switch.automatic if wanted else switch.manual).click()
        wait_idle(qtbot, window)
        assert window.engine.asked.automatic is wanted
        assert [other.automatic.isChecked() for other in switches] == [wanted] * 3


def test_the_strip_is_hidden_at_the_start(open_window: Opener) -> None:
    window = open_window()
    assert window.isVisible() and not window.controls.strip.isVisible()


def test_the_strip_shows_what_is_asked_for_beside_what_is_in_force(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    told = sent(window)
    strip = window.controls.strip
    qtbot.keyClick(window, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    assert strip.isVisible()
    assert strip.force["method"].text() == "in force: promoe"
    pick(window, "method", "lru")
    wait_idle(qtbot, window)
    assert told[-1].method == "lru" and strip.force["method"].text() == "in force: lru"
    assert "its turn" in strip.sentence
    pick(window, "context_length", 8192)
    wait_idle(qtbot, window)
    assert plain(strip.force["context_length"].text()) == "in force: 8,192 tokens"
    assert window.engine.n_context == 8192
    threads = strip.controls["n_thread"]
    assert isinstance(threads, Number)
    threads.setValue(7)
    threads.editingFinished.emit()
    wait_idle(qtbot, window)
    assert told[-1].n_thread == 7
    assert strip.force["n_thread"].text() == "in force: 2"  # this engine has only two
    qtbot.keyClick(window, Qt.Key.Key_K, Qt.KeyboardModifier.ControlModifier)
    assert not strip.isVisible()


def test_every_method_has_a_sentence(open_window: Opener) -> None:
    (listed,) = [
        box for box in open_window().controls.strip.findChildren(QComboBox)
        if box.findData("promoe") >= 0
    ]  # fmt: skip
    role = Qt.ItemDataRole.ToolTipRole
    sentences = [str(listed.itemData(row, role) or "") for row in range(listed.count())]
    assert listed.count() > 10 and min(map(len, sentences)) > 30
    assert "auto" not in [listed.itemText(row) for row in range(listed.count())]


def test_devices_are_those_that_the_worker_knows(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    device = window.controls.strip.controls["device"]
    qtbot.waitUntil(lambda: device.count() == 4, timeout=WAIT_MS)
    assert [device.itemData(i) for i in range(3)] == ["auto", "cpu", "FAKE0"]
    told = sent(window)
    pick(window, "device", "FAKE0")
    wait_idle(qtbot, window)
    assert told[-1].device == "FAKE0"


def test_what_becomes_of_missing_experts_is_asked_where_a_device_computes(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    window = open_window(model())
    window.top_bar.controls.click()
    strip = window.controls.strip
    hybrid = strip.controls["hybrid"]
    assert not hybrid.isVisible()
    qtbot.waitUntil(lambda: strip.controls["device"].count() == 4, timeout=WAIT_MS)
    pick(window, "device", "FAKE0")
    wait_idle(qtbot, window)
    assert hybrid.isVisible() and strip.force["hybrid"].text() == "in force: copy"
    told = sent(window)
    pick(window, "hybrid", "auto")
    wait_idle(qtbot, window)
    assert told[-1].to_message()["hybrid"] == "auto"
    assert strip.force["hybrid"].text() == "in force: both"
    assert "but for rounding" in strip.sentence
    assert settings.load(tmp_path / "settings.json")[0].engine.hybrid == "auto"
    window.engine.set_rate(1.0)  # nothing is missing
    wait_idle(qtbot, window)
    assert hybrid.isVisible() and not hybrid.isEnabled()
    pick(window, "device", "cpu")
    wait_idle(qtbot, window)
    assert not hybrid.isVisible() and "rounding" not in strip.sentence


def test_during_an_answer_settings_wait_for_the_next(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path = model(holds=15)
    window = open_window(path)
    window.top_bar.controls.click()
    window.session.send("Tell me a story.")
    qtbot.waitUntil(lambda: window.engine.state is State.ANSWERING, timeout=WAIT_MS)
    told = sent(window)
    pick(window, "method", "lru")
    assert told == []
    assert "with the next answer" in window.controls.strip.sentence
    assert window.controls.strip.force["method"].text() == "in force: promoe"
    let_go(path)
    qtbot.waitUntil(lambda: bool(told), timeout=WAIT_MS)
    wait_idle(qtbot, window)
    assert window.controls.strip.force["method"].text() == "in force: lru"


def test_a_change_that_fails_leaves_what_is_in_force(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(change_error="The context could not be made."))
    window.engine.choose(EngineChoice(automatic=False, context_length=8192))
    qtbot.waitUntil(window.chat.banner.isVisible, timeout=WAIT_MS)
    assert "could not be made" in window.chat.banner.sentence
    wait_idle(qtbot, window)
    assert window.engine.asked.context_length == 4096


def test_choices_are_there_at_the_next_start(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    path = model()
    window = open_window(path)
    window.top_bar.controls.click()
    pick(window, "method", "moepic")
    wait_idle(qtbot, window)
    window.close()
    kept = json.loads((tmp_path / "settings.json").read_text())
    of_model = kept["models"][str(path)]
    assert (of_model["method"], of_model["automatic"]) == ("moepic", False)
    again = open_window(path)
    assert again.controls.strip.isVisible()
    assert again.engine.cache is not None and again.engine.cache.method == "moepic"


def test_the_embedded_model_shows_the_cache_even_when_it_is_automatic(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded = model("outrider-tiny")
    monkeypatch.setattr("app.session.known_models.embedded_model", lambda: embedded)
    window = open_window()
    window.engine.choose(EngineChoice())
    window.open_first()
    wait_idle(qtbot, window)
    assert window.engine.cache is not None and window.engine.cache.n_slot == 8
    assert window.top_bar.mode.automatic.isChecked()
    assert window.top_bar.rate.force.text() == "Demo: cache kept small on purpose"
    assert window.engine.rate_for(embedded) == 0.25
    assert window.engine.rate_for(model("another")) == 1.0  # the largest that memory permits


# Memory


def test_a_cache_that_gave_memory_back_is_said(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    path = model(n_slot_left=None)
    window = open_window(path)
    path.write_text(json.dumps({"n_slot_left": 5}))
    qtbot.waitUntil(window.chat.banner.isVisible, timeout=WAIT_MS)
    assert window.chat.banner.sentence == "Other programs need memory: 5 experts are kept."
    assert plain(window.top_bar.rate.asked.text()).startswith("25 % · 8 of 32")
    assert "in force: 5 experts" in window.top_bar.rate.force.text()
    path.write_text(json.dumps({"n_slot_left": 8}))
    qtbot.waitUntil(
        lambda: window.engine.cache is not None and window.engine.cache.n_slot == 8,
        timeout=WAIT_MS,
    )
    assert "memory is free again" in window.chat.banner.sentence.lower()
    assert "in force" not in window.top_bar.rate.force.text()


# Packs


def script(*lines: object, status: int = 0, trouble: str = "") -> list[str]:
    said = "".join(f"print({json.dumps(line)!r}, flush=True);" for line in lines)
    end = f"print({trouble!r}, file=sys.stderr); sys.exit({status})"
    return [sys.executable, "-c", f"import sys;{said}{end}"]


OFFER = {
    "path": "/m.pack", "layout": "repacked", "needed_bytes": 3 << 30, "free_bytes": 9 << 30,
    "read_gain": 2.0, "compute_gain": 1.5, "expert_share": 0.5, "fits": True,
}  # fmt: skip


def test_a_pack_is_offered_with_its_size_and_gain_and_written(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.controls.pack_offer.is_large", lambda _: True)
    commands = {
        ("--offer",): script(OFFER),
        (): script({"done_bytes": 1, "total_bytes": 4}, {"path": "/m.pack", "used": True}),
    }
    monkeypatch.setattr(
        "app.controls.pack_offer.pack_command", lambda path, *options: commands[options]
    )
    window = open_window(model())
    window.top_bar.controls.click()
    strip = window.controls.strip
    assert strip.offer == "" and not strip.pack.isVisible()
    window.session.send("Hello")
    qtbot.waitUntil(strip.pack.isVisible, timeout=WAIT_MS)
    assert "second file of 3.0 GiB" in plain(strip.offer) and "1." in strip.offer
    wait_idle(qtbot, window)
    loads: list[Path] = []
    monkeypatch.setattr(window.engine, "open_model", loads.append)
    strip.pack.click()
    assert "being packed" in strip.offer and strip.unpack.isVisible()
    qtbot.waitUntil(lambda: bool(loads), timeout=WAIT_MS)
    assert "packed: about 1." in window.chat.banner.sentence
    assert strip.offer == "" and not strip.unpack.isVisible()


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ((), "The drive is full."),
        (({"error": to_json(text("pack.no_experts"))},), "This model has no experts to pack."),
    ],
)
def test_a_pack_that_fails_is_said(
    qtbot: Any,
    open_window: Opener,
    model: Model,
    monkeypatch: pytest.MonkeyPatch,
    lines: tuple[dict[str, object], ...],
    sentence: str,
) -> None:
    monkeypatch.setattr("app.controls.pack_offer.is_large", lambda _: True)
    commands = {
        ("--offer",): script(OFFER),
        (): script(*lines, status=1, trouble="The drive is full."),
    }
    monkeypatch.setattr(
        "app.controls.pack_offer.pack_command", lambda path, *options: commands[options]
    )
    window = open_window(model())
    window.top_bar.controls.click()
    window.session.send("Hello")
    qtbot.waitUntil(window.controls.strip.pack.isVisible, timeout=WAIT_MS)
    wait_idle(qtbot, window)
    window.controls.strip.pack.click()
    qtbot.waitUntil(window.chat.banner.isVisible, timeout=WAIT_MS)
    assert window.chat.banner.sentence == sentence
    assert window.controls.strip.pack.isVisible()  # the user can try again


def test_packing_can_be_stopped_and_what_was_written_be_deleted(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("app.controls.pack_offer.is_large", lambda _: True)
    gone = tmp_path / "deleted"
    half = json.dumps({"done_bytes": 2, "total_bytes": 4})
    commands = {
        ("--offer",): script(OFFER),
        (): [sys.executable, "-c", f"import time; print({half!r}, flush=True); time.sleep(600)"],
        ("--delete",): [sys.executable, "-c", f"open({str(gone)!r}, 'w')"],
    }
    monkeypatch.setattr(
        "app.controls.pack_offer.pack_command", lambda path, *options: commands[options]
    )
    window = open_window(model())
    window.top_bar.controls.click()
    strip = window.controls.strip
    window.session.send("Hello")
    qtbot.waitUntil(strip.pack.isVisible, timeout=WAIT_MS)
    wait_idle(qtbot, window)
    strip.pack.click()
    qtbot.waitUntil(lambda: "50 %" in plain(strip.offer), timeout=WAIT_MS)
    strip.unpack.click()
    assert "Packing was stopped" in window.chat.banner.sentence
    assert strip.pack.isVisible() and not gone.exists()
    window.chat.banner.buttons[0].click()
    qtbot.waitUntil(gone.exists, timeout=WAIT_MS)


def test_a_pack_can_be_written_onto_two_drives(
    qtbot: Any, open_window: Opener, model: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is offered where one drive has no room for it, too."""
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("needs a second file system")
    monkeypatch.setattr("app.controls.pack_offer.is_large", lambda _: True)
    offer = {**OFFER, "path": str(tmp_path / "m.pack"), "free_bytes": 1, "fits": False}
    asked: list[tuple[str, ...]] = []

    def command(_: Path, *options: str) -> list[str]:
        asked.append(options)
        return script(offer if options == ("--offer",) else {"done_bytes": 1, "total_bytes": 4})

    monkeypatch.setattr("app.controls.pack_offer.pack_command", command)
    window = open_window(model())
    window.top_bar.controls.click()
    strip = window.controls.strip
    window.session.send("Hello")
    qtbot.waitUntil(strip.stripe.isVisible, timeout=WAIT_MS)
    assert not strip.pack.isVisible()
    wait_idle(qtbot, window)
    for folder in (tmp_path, other):
        monkeypatch.setattr(QFileDialog, "getExistingDirectory", lambda *_, f=folder: str(f))
        strip.stripe.click()
        if folder is tmp_path:
            assert "is on the drive where the pack" in window.chat.banner.sentence
    assert asked == [("--offer",), ("--to", str(tmp_path), "--to", str(other))]
    assert "being packed" in strip.offer and not strip.stripe.isVisible()


def test_another_machine_is_used_once_it_is_trusted(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model())
    told = sent(window)
    pick(window, "device", "")  # another machine...
    (dialog,) = window.findChildren(RemoteDialog)
    assert dialog.isVisible() and not dialog.use.isEnabled()
    dialog.address.setText("rpc://nowhere")
    dialog.use.click()
    assert "rpc://host:port" in dialog.sentence and not told
    dialog.address.setText("127.0.0.1:50052")
    assert "rpc://127.0.0.1:50052 is sent" in dialog.warning
    dialog.use.click()
    wait_idle(qtbot, window)
    assert [choice.device for choice in told] == ["rpc://127.0.0.1:50052"]
    assert settings.load(window.preferences.path)[0].trusted_devices == ["rpc://127.0.0.1:50052"]
    pick(window, "device", "cpu")
    wait_idle(qtbot, window)
    pick(window, "device", "rpc://127.0.0.1:50052")  # now it is in the list, so no question comes
    wait_idle(qtbot, window)
    assert told[-1].device == "rpc://127.0.0.1:50052"
    window.reset_settings()
    assert window.controls.strip.controls["device"].findData("rpc://127.0.0.1:50052") < 0


def test_the_strip_says_that_the_model_guesses_with_a_layer_of_its_own(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    window = open_window(model(predicts=True))
    strip = window.controls.strip
    window.top_bar.controls.click()
    assert "guesses" not in strip.sentence
    pick(window, "drafts", "auto")
    wait_idle(qtbot, window)
    assert strip.force["drafts"].text() == "in force: automatic"
    assert "Drafts: a layer of the model itself guesses the next tokens" in strip.sentence


def test_another_machine_of_the_settings_file_is_asked_about(
    qtbot: Any, open_window: Opener, model: Model, tmp_path: Path
) -> None:
    kept = {"automatic": False, "method": "promoe", "device": "rpc://10.0.0.9:7000"}
    (tmp_path / "settings.json").write_text(json.dumps(kept))
    window = open_window(model())
    told = sent(window)
    banner = window.chat.banner
    qtbot.waitUntil(banner.isVisible, timeout=WAIT_MS)
    assert "rpc://10.0.0.9:7000 is sent" in banner.sentence
    assert window.engine.asked.device == "auto" and not told
    banner.buttons[0].click()
    wait_idle(qtbot, window)
    assert told[-1].device == "rpc://10.0.0.9:7000"
    assert window.settings.trusted_devices == ["rpc://10.0.0.9:7000"]


def test_settings_belong_to_a_model(qtbot: Any, open_window: Opener, model: Model) -> None:
    """What is set by hand for one model is not in force for another, and comes back with it."""
    first, second = model("first"), model("second")
    window = open_window()
    window.engine.choose(EngineChoice())
    window.open_model(first)
    window.wait_state(State.IDLE)
    window.controls.choose_automatic(False)
    asked = replace(window.engine.asked, cache_rate=0.5, context_length=1024, n_thread=3)
    window.engine.choose(asked)
    window.wait_state(State.IDLE)
    assert (window.engine.n_context, window.engine.asked.automatic) == (1024, False)
    window.open_model(second)
    window.wait_state(State.IDLE)
    assert window.engine.asked == EngineChoice(n_thread=3)  # threads belong to the machine
    assert (window.engine.rate_for(first), window.engine.rate_for(second)) == (0.5, 1.0)
    window.close()
    again = open_window(first)
    assert not again.engine.asked.automatic and again.engine.asked.context_length == 1024
    again.reset_settings()
    again.wait_state(State.IDLE)
    assert again.engine.own == {} and again.engine.asked == EngineChoice()


def test_an_option_by_hand_says_what_it_overrides(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    sentence = "The context is 1,024 tokens by hand; automatic it would be 32,768."
    window = open_window(model(overridden=sentence))
    window.controls.strip.show()
    assert f" {sentence} 25\xa0% of the experts" in window.controls.strip.sentence


def test_no_field_of_the_strip_has_a_wrapped_layout_item(
    qtbot: Any, open_window: Opener, model: Model
) -> None:
    # The strip moves its fields, which frees their items. Qt may give a new widget the address of
    # one, and PySide then returns the item's wrapper in place of the widget.
    strip = open_window(model()).controls.strip
    items = [found for found in gc.get_objects() if type(found) is QWidgetItem]
    wrapped = [item.widget() for item in items]
    assert not {strip.controls["method"], strip.controls["device"], strip.mode} & set(wrapped)
