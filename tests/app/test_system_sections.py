"""The settings' sections on graphics cards and on newer versions."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtGui import QDesktopServices
from window_samples import Opener

from backend.downloads import newer
from backend.downloads.errors import DownloadError

PAGE = "https://example.org/outrider"


def test_backends_and_cards_are_named_with_their_troubles(open_window: Opener) -> None:
    window = open_window()
    window.pages.go("settings")
    cards = window.settings_page.cards
    modules = [
        ("/usr/lib/outrider/libggml-cpu-haswell.so", "CPU", ""),
        ("/usr/lib/outrider/libggml-vulkan.so", "", "libvulkan.so.1: cannot open"),
    ]
    window.link.devices.emit([("Vulkan0", "A card")], modules)
    assert cards.cards.text() == "A card (Vulkan0)"
    assert cards.backends.text().splitlines() == [
        "CPU: loaded (libggml-cpu-haswell.so)",
        "libggml-vulkan.so: not used, because libvulkan.so.1: cannot open",
    ]
    assert cards.backends.isVisibleTo(cards) and cards.folder.isVisibleTo(cards)
    window.link.devices.emit([], [])
    assert cards.cards.text() == "None was found that can be used."
    assert not cards.backends.isVisibleTo(cards) and not cards.folder.isVisibleTo(cards)


def test_a_newer_version_is_looked_for_by_a_button_only(
    qtbot: Any, open_window: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[newer.Release | DownloadError] = [
        newer.Release("99.0", PAGE), newer.Release("0.0.1", PAGE), DownloadError("No network."),
    ]  # fmt: skip
    n_asked = 0

    def latest() -> newer.Release:
        nonlocal n_asked
        n_asked += 1
        answer = answers.pop(0)
        if isinstance(answer, DownloadError):
            raise answer
        return answer

    opened: list[QUrl] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", opened.append)
    monkeypatch.setattr(newer, "latest", latest)
    monkeypatch.setenv("OUTRIDER_RELEASES", "https://example.org")
    window = open_window()
    window.pages.go("settings")
    section = window.settings_page.version
    assert (n_asked, section.page.isVisibleTo(section)) == (0, False)
    for words, has_page in (
        ("Version 99.0 is out.", True),
        ("This is the newest version.", False),
        ("No network.", False),
    ):
        section.look.click()
        qtbot.waitUntil(lambda words=words: section.answer.text() == words)
        assert section.page.isVisibleTo(section) == has_page
        assert section.look.isEnabled()
        if has_page:
            section.page.click()
            assert opened == [QUrl(PAGE)]  # None is returned: no program opens it
            assert PAGE in section.answer.text()


def test_a_copy_that_knows_no_address_says_so(
    open_window: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_RELEASES", "")
    section = open_window().settings_page.version
    assert not section.look.isEnabled()
    assert "made without an address" in section.answer.text()
