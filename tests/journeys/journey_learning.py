"""The predictor learns from chats, in the window alone."""

from __future__ import annotations

import re
import shutil

import pytest

from journeys import models
from journeys.desktop import Desktop, until
from journeys.fixtures import Home
from journeys.models import Line
from journeys.window import Window

SWITCH = "Record which experts my chats use, and learn from it"
N_RECORDING = 11  # the tenth is held out
N_PROMPT = 6  # of about 500 tokens


@pytest.mark.night  # it learns when nobody has used the engine for 20 s
def journey_learning_from_chats(home: Home, desktop: Desktop) -> None:
    """An answer is recorded after a click; once there is enough, a better predictor is in use."""
    said = models.scripted([Line("\n", ("It ", "is ", "a ", "fox."))], n_layer=2, n_embd=32)
    model = home.write("fox.gguf", said)
    window = Window(home, desktop, model)
    window.wait_model("fox")
    desktop.click("Engine settings by hand")  # nothing is recorded where all experts are in memory
    desktop.drag("Cache rate", "slider", 0.97, 0.4)
    until(lambda: "16 of 16" not in desktop.words(), "some of the experts are in memory")
    window.ask("Who?")
    assert not (home.data / "recordings").exists()
    desktop.press("ctrl+comma")
    desktop.click(SWITCH)
    desktop.wait_words("0 of the 20,000 tokens that training needs are recorded.")
    desktop.press("Escape")
    window.ask("Who?")
    recordings = home.data / "recordings"
    (first,) = until(lambda: list(recordings.rglob("*.npz")), "the answer is recorded")
    window.quit()

    # What many chats would record, made by the command line.
    text = (models.ROOT / "docs" / "guide.md").read_text("utf-8")
    prompts = [text[500 * i : 500 * (i + 1)].replace("\n", " ") for i in range(N_PROMPT)]
    asked = home.write("prompts.txt", "\n".join(prompts).encode())
    made = home.folder / "made.npz"
    wanted = "--inputs", "--scores", "--cache-rate", 0.5, "--out", made
    printed = home.run("trace", model, "--prompts", asked, *wanted)
    found = re.search(r"(\d+) tokens, ", printed)
    assert found and int(found[1]) * (N_RECORDING - 2) > 20_000, printed
    for number in range(2, N_RECORDING + 1):
        shutil.copy(made, first.with_name(f"{number:08}-{found[1]}.npz"))

    window = Window(home, desktop)
    desktop.press("ctrl+comma")
    desktop.wait_words("A better predictor was found")
    assert list((home.data / "predictors").glob("*.learned.predictor"))
    desktop.click("Delete all recordings")
    desktop.wait_words("There are no recordings.")
    assert not list(recordings.rglob("*.npz"))
    window.quit()
