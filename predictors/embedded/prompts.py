"""The ten prompts of the model card. No training chat contains one of them."""

from __future__ import annotations

from typing import Any

PROMPTS = (
    ("begin a story", "Tell me a story about a fox and a crow."),
    ("begin a story", "Write the beginning of a story about a princess."),
    (
        "go on with one",
        "Go on with this story: The old man opened the door and looked into the dark.",
    ),
    ("go on with one", "Continue the story: Once upon a time a little girl lived near the forest."),
    (
        "answer from a passage",
        "Read the passage and answer the question.\n\nTom has a red boat. He sails it on the lake "
        "every Sunday with his sister Anna.\n\nQuestion: What colour is the boat?",
    ),
    (
        "answer from a passage",
        "The river Elm flows from the mountains to the sea. It is 40 miles long.\n\n"
        "Question: Where does the river flow?",
    ),
    ("explain", "What is music?"),
    ("explain", "Explain what a river is."),
    ("add", "What is 3 + 4?"),
    ("add", "What is 12 plus 7?"),
)
# Ten other prompts, of forms that the composed chats do not have.
OTHER_PROMPTS = (
    ("begin a story", "Tell me a story about two brothers who look for a lost dog."),
    ("begin a story", "Write a story in which it never stops raining."),
    ("go on with one", "Go on with this story: Maria put the letter into her pocket and ran."),
    ("go on with one", "The train stopped, and nobody got off. What happened then?"),
    (
        "answer from a passage",
        "Grandmother's clock is made of brass. It stands in the hall and rings at noon.\n\n"
        "Where does the clock stand?",
    ),
    ("answer from a passage", "Ken drinks tea, and Lucy drinks milk. Who drinks milk?"),
    ("explain", "What is a bakery?"),
    ("explain", "What is the difference between a cat and a dog?"),
    ("add", "What is 9 + 30?"),
    ("add", "What is 4 + 5 + 1?"),
)
# Wordings of PROMPTS that chats could contain. A chat with one of them is left out.
KEPT_OUT = (
    "a fox and a crow",
    "a crow and a fox",
    "beginning of a story about a princess.",
    "old man opened the door and looked into the dark",
    "a little girl lived near the forest.",
    "Tom has a red boat",
    "river Elm",
    "What is music?",
    "Explain what a river is.",
    "What is 3 + 4?",
    "What is 12 plus 7?",
)
SAMPLE_SETTINGS: dict[str, Any] = {
    "max_tokens": 320, "temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05,
    "repeat_penalty": 1.0, "seed": 1,
}  # fmt: skip
