"""A person's first hours with the window: a model from the hub, a chat, the next start."""

from __future__ import annotations

import numpy as np
from factory import make_mmproj, make_png
from fake_hub import FakeHub

from journeys import models
from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.models import Line
from journeys.window import MESSAGE, STOP, Window

MAX = "Anna has a white dog called Max."
WHICH = "What is the name of the dog?"  # the model knows it from the turn before alone
FORMULA = r"$\bar{x} = \frac{1}{n} \sum_{i=1}^{n} x_i$"
TABLE = "| Fruit | Price |\n|---|---:|\n| apple | 3 |\n| pear | 12 |"


def journey_three_clicks_to_a_model(home: Home, desktop: Desktop, hub: FakeHub) -> None:
    """A listed model comes from the hub and opens, and it remembers the turn before."""
    of_hub = models.small("Of the hub")
    for repository, file in models.listed():
        hub.repositories.setdefault(repository, {})[file] = of_hub
    window = Window(home, desktop)
    desktop.click("Get a larger model\u2026")
    desktop.click("Download")
    window.wait_model("Q4_K_M")
    assert [path.read_bytes() == of_hub for path in home.data.rglob("*.gguf")] == [True]
    window.ask(MAX)
    assert "Max" in window.ask(WHICH)
    assert MAX in window.seen()
    window.quit()


def journey_a_chat_and_the_next_start(home: Home, desktop: Desktop) -> None:
    """Retry and Edit make branches; an answer is changed, deleted and taken back by its menu.

    The next start shows the chat where it was.
    """
    window = Window(home, desktop)
    window.ask(MAX)
    window.ask(WHICH)
    assert "Max" in window.answer_again()
    assert "Max" in window.change("How is the dog called?")
    window.delete_last()
    window.rewrite("The dog is called Max, and it is white.")
    shown = window.questions(), window.answers()
    assert shown[0] == [MAX, "How is the dog called?"]
    window.quit()
    window = Window(home, desktop)
    until(lambda: (window.questions(), window.answers()) == shown, "the chat is as it was")
    assert "Max" in window.ask(WHICH)
    window.quit()


def journey_files(home: Home, desktop: Desktop) -> None:
    """A text is read with the question. An image waits for a model that can see it."""
    text = home.write("notes.txt", b"The dog of Anna is called Max.\n")
    image = home.write("picture.png", make_png(np.zeros((32, 32, 3), np.uint8)))
    window = Window(home, desktop)
    window.attach(text)
    window.attach(image)
    desktop.wait_words("The loaded model cannot see images.")
    desktop.click("Remove picture.png")
    window.ask(WHICH)
    assert "The dog of Anna is called Max." in window.seen()
    window.quit()


def journey_a_pasted_picture_a_formula_a_table(home: Home, desktop: Desktop) -> None:
    """What was copied elsewhere is seen and sent; what a model writes is shown and copied."""
    answer = (FORMULA, f"\n\n{TABLE}", "\n\nThat is all.")
    path = home.write("seer.gguf", models.scripted([Line("\n", answer)]))
    make_mmproj(path.with_name("mmproj-seer.gguf"), models.WIDTH)
    window = Window(home, desktop, path)
    window.wait_model("seer")
    desktop.click(MESSAGE)
    desktop.put("image/png", make_png(np.full((40, 60, 3), 200, np.uint8)))
    desktop.press("ctrl+v")
    desktop.wait("Remove Pasted image")
    window.ask("What is the mean?")
    picture = desktop.wait("Show Pasted image large")
    assert "Your message" in [node.name for node in picture.around]
    desktop.wait_words("Formulas: ")  # they are drawn
    desktop.click("Part of the answer")
    desktop.press("ctrl+a", "ctrl+c")
    assert FORMULA in desktop.taken()
    desktop.wait("Table")
    desktop.click("Copy this table as Markdown")
    assert desktop.taken().strip() == TABLE
    window.quit()


def journey_stop_and_go_on(home: Home, desktop: Desktop) -> None:
    """An answer without an end is stopped, continued, and left behind by a closed window."""
    endless = models.scripted([Line("\n", ("Day ", "and ", "night. "), is_endless=True)])
    window = Window(home, desktop, home.write("endless.gguf", endless))
    window.wait_model("endless")

    def grown(than: int) -> int:
        """Wait for another night; the sign of a growing answer is none."""
        return until(
            lambda: n if (n := "".join(window.answers()).count("night")) > than else 0,
            f"the answer has more than {than} nights",
        )

    window.say("Go on.")
    grown(2)
    desktop.press("Escape")
    stopped = window.wait_answer(1)
    assert stopped.startswith("Day and night. Day and night. ")
    desktop.click("Continue this answer")
    grown(stopped.count("night"))
    desktop.wait(STOP)
    window.quit()
    window = Window(home, desktop)
    assert len(window.wait_answer(1)) > len(stopped)
    window.quit()
