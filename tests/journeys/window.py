"""The window as a person uses it: the chat, and the start and the end of the program."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from journeys.at_spi import Node, What
from journeys.desktop import Desktop, until
from journeys.fixtures import Home

MESSAGE = "Message"
SEND = re.compile("^Send ")
STOP = re.compile("^Stop ")
RETRY = "Ask for another answer"
READY = re.compile(r"^Model: .+[KMG]iB$")  # the size of a model is known once it is loaded
SECOND = "2/2"  # the number of a version, and how many there are
NAMES: dict[str, dict[What, What]] = {
    "en": {},
    "de": {
        MESSAGE: "Nachricht", SEND: re.compile("^Senden "), RETRY: "Eine andere Antwort anfordern",
        READY: re.compile(r"^Modell: .+[KMG]iB$"), "Answer": "Antwort",
        "Part of the answer": "Teil der Antwort", "Your message": "Eigene Nachricht",
        "File name:": "Dateiname:",
    },
}  # fmt: skip
"""What a window of another language calls the controls that are named above and below."""


class Window:
    """A window of `outrider-app` in the language of the home; `ask` and what it needs know it."""

    def __init__(self, home: Home, desktop: Desktop, *arguments: object) -> None:
        self._home, self.desktop = home, desktop
        self._names = NAMES[home.variables["LANG"][:2].replace("C.", "en")]
        self._process: subprocess.Popen[bytes] = home.start("outrider-app", *arguments)
        desktop.wait(self.name(MESSAGE))

    def name(self, english: What) -> What:
        """Return what the window calls a control."""
        return self._names.get(english, english)

    def quit(self) -> None:
        """Leave the program as its menu does, and wait until it has ended without a fault."""
        self.desktop.press("ctrl+q")
        assert self._home.ended(self._process) == 0

    def wait_model(self, name: str) -> None:
        """Wait until a model is loaded whose title has this name."""
        until(lambda: any(name in node.name for node in self._named(READY)), f"{name} is loaded")

    def say(self, text: str) -> None:
        """Write a message and send it, without waiting for the answer."""
        self.desktop.click(self.name(MESSAGE))
        self.desktop.type(text)
        self.desktop.wait(self.name(SEND))
        self.desktop.press("Return")

    def ask(self, text: str) -> str:
        """Send a message. Return the whole answer."""
        n_before = len(self.answers())
        self.say(text)
        return self.wait_answer(n_before + 1)

    def wait_answer(self, n: int) -> str:
        """Wait until there are n answers and none is written any more. Return the last one."""

        def is_over() -> bool:
            return len(self._named("Answer")) == n == len(self._named(RETRY))

        until(is_over, f"there are {n} whole answers")
        return self.answers()[-1]

    def answer_again(self) -> str:
        """Ask for another answer in place of the last one, which had none so far. Return it."""
        n = len(self.answers())
        self.desktop.click(RETRY, nth=-1)
        self.desktop.wait(SECOND)
        return self.wait_answer(n)

    def change(self, text: str) -> str:
        """Ask something else in place of the last question, for the first time. Return the answer.

        The answer to it is the last one of the chat.
        """
        n, before = len(self.answers()), self.questions()
        self.desktop.click("Change this message", nth=-1)
        self.desktop.wait("Your message, to change")
        self.desktop.press("ctrl+a")
        self.desktop.type(text)
        self.desktop.press("Return")
        until(lambda: self.questions() == [*before[:-1], text], "the other question is shown")
        return self.wait_answer(n)

    def rewrite(self, text: str) -> None:
        """Change the text of the last answer."""
        before = self.answers()
        self.desktop.choose("More about this answer", "Change the answer", nth=-1)
        self.desktop.wait("The answer, to change")
        self.desktop.press("ctrl+a")
        self.desktop.type(text)
        self.desktop.press("ctrl+Return")
        until(lambda: self.answers() == [*before[:-1], text], "the changed answer is shown")

    def delete_last(self) -> None:
        """Delete the last answer, and take that back."""
        before = self.answers()
        self.desktop.choose("More about this answer", "Delete", nth=-1)
        until(lambda: self.answers() == before[:-1], "the answer is gone")
        self.desktop.click("Undo")
        until(lambda: self.answers() == before, "the answer is back")

    def attach(self, path: Path) -> None:
        """Attach a file to the next message, and wait until it was read."""
        self.desktop.press("ctrl+u")
        self.give(path)
        self.desktop.wait(f"Remove {path.name}")

    def give(self, path: Path) -> None:
        """Give a path to the dialog for files."""
        field = self.name("File name:")
        self.desktop.wait(field, "text")
        self.desktop.type(str(path))
        self.desktop.press("Return")
        self.desktop.wait_gone(field)

    def seen(self) -> str:
        """Return the prompt of the last answer, as the window shows what the model saw."""
        self.desktop.choose("More about this answer", "What the model saw\u2026", nth=-1)
        prompt = until(
            lambda: [one.text for one in self._named("Prompt") if "\n" in one.text], "a prompt"
        )
        self.desktop.click("Close")
        self.desktop.wait_gone("Prompt")
        return prompt[0]

    def answers(self) -> list[str]:
        """Return the texts of the answers that are shown, in order."""
        part = self.name("Part of the answer")
        return [_text(node, part) for node in self._named("Answer")]

    def questions(self) -> list[str]:
        """Return the texts of the messages that are shown, in order."""
        shown, name = self._named("Your message"), self.name("Your message")
        return [_text(node, name) for node in shown if node.role == "filler"]

    def _named(self, name: What) -> list[Node]:
        return self.desktop.find_all(self.name(name))


def _text(node: Node, part: What) -> str:
    return "\n".join(one.text for one in node.walk() if one.name == part and one.text)
