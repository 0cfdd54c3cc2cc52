"""Ask the exported file questions with one right answer: sums and unseen passages."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import llama_cpp

from predictors.embedded import composed, passages
from predictors.embedded.prompts import SAMPLE_SETTINGS

SEED = 2**31 - 1  # no training chats are composed from this seed
N_PASSAGE = 100
SUM_ASKS = ("What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b} =")


def sums(heldout: bool, rng: random.Random) -> list[tuple[str, str]]:
    """Return (question, answer) of every held-out sum, or of equally many others."""
    terms = range(composed.LARGEST_TERM + 1)
    pairs = [(a, b) for a in terms for b in terms]
    chosen = [p for p in pairs if composed.is_heldout_sum(*p) == heldout]
    if not heldout:
        n_heldout = sum(composed.is_heldout_sum(*p) for p in pairs)
        chosen = rng.sample(chosen, min(len(chosen), n_heldout))
    return [(rng.choice(SUM_ASKS).format(a=a, b=b), f"{a} + {b} = {a + b}.") for a, b in chosen]


def questions(rng: random.Random) -> list[tuple[str, str]]:
    """Return (passage with a question, answer) for newly composed passages."""
    turns = (passages.conversation(rng) for _ in range(N_PASSAGE))
    return [(first, answer) for first, answer, *_ in turns]


def share_right(llama: llama_cpp.Llama, asked: list[tuple[str, str]]) -> float:
    """Return the share of answers that are right word for word, at the card's temperature."""
    n_right = 0
    for question, answer in asked:
        found: Any = llama.create_chat_completion(
            [{"role": "user", "content": question}], **SAMPLE_SETTINGS | {"max_tokens": 60}
        )
        n_right += str(found["choices"][0]["message"]["content"]).strip() == answer
    return n_right / max(1, len(asked))


def take(path: Path, n_thread: int) -> dict[str, dict[str, float]]:
    """Return the share of right answers per kind of question, and the number asked."""
    llama = llama_cpp.Llama(str(path), n_ctx=1024, n_threads=n_thread, verbose=False)
    rng = random.Random(SEED)
    kinds = {
        "sums held out": sums(True, rng),
        "sums of the training chats": sums(False, rng),
        "questions about new passages": questions(rng),
    }
    return {
        kind: {"right": round(share_right(llama, asked), 3), "asked": len(asked)}
        for kind, asked in kinds.items()
    }
