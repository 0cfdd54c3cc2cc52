"""A server of tools, from the settings to an answer that has its result."""

from __future__ import annotations

from pathlib import Path

import pytest

from journeys import models
from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.models import Line
from journeys.window import Window

SERVER = Path(__file__).resolve().parents[1] / "tool_server.py"
CALL = '<tool_call>\n{"name": "letters__echo", "arguments": {"text": "a black crow"}}\n</tool_call>'
ANSWER = "The tool has answered."


def journey_a_tool_is_added_allowed_and_called(
    request: pytest.FixtureRequest, home: Home, desktop: Desktop
) -> None:
    """A server that the mcp package made is added by hand; its tool waits for a permission."""
    caller = models.scripted([Line("\n", (CALL,)), Line("\t", (ANSWER,))], models.WITH_TOOLS)
    window = Window(home, desktop, home.write("caller.gguf", caller))
    window.wait_model("caller")
    desktop.press("ctrl+comma")
    desktop.click("Add a server of tools")
    desktop.click("Name", "text")
    desktop.type("letters")
    desktop.click("Command line", "text")
    desktop.type(f"{request.config.getoption('--python')} {SERVER} mcp")
    desktop.click("Save")
    desktop.wait_words("ready with 3 tools")
    desktop.press("Escape")
    window.say("Echo it.")
    desktop.wait_words("a black crow")
    desktop.click("Allow once: echo")
    desktop.wait_words(ANSWER)
    desktop.click("Result: 12 characters")
    seen = window.seen()
    assert "<tool_response>\na black crow\n</tool_response>" in seen
    window.say("Again.")
    desktop.click("Allow in this chat: echo")  # once was once
    until(lambda: window.answers().count(ANSWER) == 2, "the second answer is there")
    window.say("And again.")
    until(lambda: window.answers().count(ANSWER) == 3, "the third one, without a question")
    window.quit()
