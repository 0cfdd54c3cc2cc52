"""Chats for the instruct phase, from the instruction sets, and composed from the texts.

A conversation is a list of {"role", "content"} in turns of user and assistant.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

Message = dict[str, str]
Conversation = list[Message]
Text = tuple[str, str, str]  # source, title, text

MAX_PROMPT_CHARS = 1400
MAX_PER_PROMPT_FILE = 45
MAX_GSM8K = 2500
# Answers of these prompts are a letter, a number or yes/no: they teach a chat nothing.
SKIPPED_T0 = re.compile(
    r"index|answer_id|prompt_id|paws|Guess_Title|guess_person|is_correct|Check_if"
)

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"']?\s+(?=[\"'A-Z])")

STORY_ASKS = (
    "Tell me a story.",
    "Tell me a short story.",
    "Please tell me a fairy tale.",
    "Begin a story.",
    "Write the beginning of a story.",
    "Can you tell me a story?",
    "Write a story.",
    "I would like to hear a story.",
)
STORY_ABOUT_ASKS = (
    "Tell me a story about {}.",
    "Write a short story about {}.",
    "Please tell me a tale about {}.",
    "Begin a story about {}.",
)
CONTINUE_ASKS = (
    "Go on with this story: {}",
    "Continue the story: {}",
    "Continue this story.\n\n{}",
    "What happens next? {}",
)
EXPLAIN_ASKS = (
    "What is {}?",
    "Tell me about {}.",
    "Explain {}.",
    "What do you know about {}?",
    "Please describe {}.",
    "Can you explain {}?",
)
WHO_ASKS = ("Who was {}?", "Tell me about {}.", "What do you know about {}?", "Who is {}?")
GREETINGS = (
    "Hello",
    "Hello!",
    "Hi",
    "Hi!",
    "Hey there",
    "Good morning!",
    "Good evening.",
    "Hi, who are you?",
)
GREETING_ANSWERS = (
    "Hello! I can tell you a story, go on with one, or say something about a thing you name.",
    "Good day! Shall I tell you a story?",
    "Hello! What would you like to hear about?",
    "Hello, I am Outrider's small built-in model. Ask me for a story, or ask what something is.",
)
WHO_ARE_YOU = ("Who are you?", "What are you?", "What can you do?", "What is your name?", "Help")
WHO_ARE_YOU_ANSWERS = (
    "I am Outrider's small built-in model. I can tell stories and answer short questions, "
    "but I am often wrong.",
    "I am a very small language model. Ask me for a story, or give me the beginning of one.",
    "I am the small model that comes with Outrider. I like stories best.",
)
THANKS = ("Thank you.", "Thanks!", "Thank you very much!", "That was nice, thanks.")
THANKS_ANSWERS = ("You are welcome!", "With pleasure. Shall I tell you another story?")


def _chat(*turns: str) -> Conversation:
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text.strip()} for i, text in enumerate(turns)]


def sentences(text: str) -> list[str]:
    """Splits at sentence ends that are followed by a capital; good enough for prose."""
    return [part.strip() for part in _SENTENCE_END.split(text) if part.strip()]


def _leading(text: str, max_chars: int) -> str:
    """Whole paragraphs, then whole sentences, from the start of `text`, up to `max_chars`."""
    if len(text) <= max_chars:
        return text
    cut = text[:max_chars]
    ends = [m.end() for m in re.finditer(r"[.!?][\"']?(?=\s)", cut)]
    return cut[: ends[-1]] if ends else ""


def from_t0(data: Path, rng: random.Random) -> Iterator[Conversation]:
    """P3 prompts with answers of at least a word; the literal end mark is stripped."""
    for path in sorted((data / "train-t0").glob("*.jsonl")):
        if SKIPPED_T0.search(path.stem):
            continue
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
        rng.shuffle(rows)
        n_taken = 0
        for row in rows:
            answer = row["completion"].replace("<|endoftext|>", "").strip()
            prompt = row["prompt"].replace("<|endoftext|>", "").strip()
            if n_taken < MAX_PER_PROMPT_FILE and answer and len(prompt) <= MAX_PROMPT_CHARS:
                yield _chat(prompt, answer)
                n_taken += 1


def from_seed(data: Path) -> Iterator[Conversation]:
    """The 175 seed instructions, with their input where they have one."""
    for path in sorted((data / "train-seed").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            for instance in row["instances"]:
                prompt = row["instruction"]
                if instance["input"]:
                    prompt += "\n\n" + instance["input"]
                if len(prompt) <= MAX_PROMPT_CHARS and instance["output"]:
                    yield _chat(prompt, instance["output"][:3000])


def from_gsm8k(data: Path) -> Iterator[Conversation]:
    """Give word problems with their steps; the calculator marks `<<...>>` are stripped."""
    for path in sorted((data / "train-gsm8k").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines()[:MAX_GSM8K]:
            row = json.loads(line)
            steps, _, result = re.sub(r"<<[^>]*>>", "", row["answer"]).partition("\n#### ")
            yield _chat(row["question"], f"{steps}\nThe answer is {result}.")


def sums(n: int, rng: random.Random) -> Iterator[Conversation]:
    """Additions and subtractions of small numbers in several wordings."""
    for _ in range(n):
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        if rng.random() < 0.75:
            ask = rng.choice(
                (
                    f"What is {a} + {b}?",
                    f"What is {a} plus {b}?",
                    f"{a} + {b} =",
                    f"Add {a} and {b}.",
                )
            )
            yield _chat(ask, rng.choice((f"{a} + {b} = {a + b}.", f"{a} plus {b} is {a + b}.")))
        else:
            a, b = max(a, b), min(a, b)
            ask = rng.choice((f"What is {a} - {b}?", f"What is {a} minus {b}?", f"{a} - {b} ="))
            yield _chat(ask, f"{a} - {b} = {a - b}.")


def small_talk(n: int, rng: random.Random) -> Iterator[Conversation]:
    """Greetings, what the model is, thanks."""
    kinds: tuple[tuple[Sequence[str], Sequence[str]], ...] = (
        (GREETINGS, GREETING_ANSWERS),
        (WHO_ARE_YOU, WHO_ARE_YOU_ANSWERS),
        (THANKS, THANKS_ANSWERS),
    )
    for _ in range(n):
        asks, answers = rng.choice(kinds)
        yield _chat(rng.choice(asks), rng.choice(answers))


def from_stories(texts: Sequence[Text], rng: random.Random) -> Iterator[Conversation]:
    """Beginnings of tales and chapters, and passages to go on with."""
    for source, title, text in texts:
        if source != "books":
            continue
        body = text.split("\n\n", 1)[-1] if len(text.split("\n\n", 1)[0]) < 60 else text
        opening = _leading(body, rng.randint(500, 1600))
        if len(opening) > 200 and not re.search(
            r"(?i)chapter|^[IVX]+$|part|preface|contents", title
        ):
            yield _chat(rng.choice(STORY_ASKS), opening)
            name = re.sub(r"^[IVX\d]+[.:]? *", "", title).strip(" .").lower()
            if 3 < len(name) < 40:
                yield _chat(rng.choice(STORY_ABOUT_ASKS).format(name), opening)
        paragraphs = [p for p in body.split("\n\n") if 120 < len(p) < 1200]
        for first, second in zip(paragraphs[::12], paragraphs[1::12], strict=False):
            beginning = " ".join(sentences(first)[: rng.randint(1, 4)])
            following = first[len(beginning) :].strip() or second
            if len(following) > 80 and len(beginning) > 40:
                if rng.random() < 0.3 and following is not second:
                    following = f"{following}\n\n{second}"
                yield _chat(rng.choice(CONTINUE_ASKS).format(beginning), following)


def from_encyclopaedia(texts: Sequence[Text], rng: random.Random) -> Iterator[Conversation]:
    """Ask "What is X?", answered by the first sentences of the article on X."""
    for source, title, text in texts:
        lines = text.split("\n")
        if source != "wikipedia" or not title or len(title) > 40 or title.startswith("List of"):
            continue
        body = next((line for line in lines if line != title and len(line) > 100), "")
        answer = _leading(body, rng.randint(250, 700))
        if len(answer) < 80 or title.split(" ")[0].lower() not in answer.lower():
            continue
        name, is_thing = spoken_name(title, text)
        is_person = not is_thing and re.search(r"\((?:born |\d)|\b(?:he|she|his|her)\b", text[:400])
        for ask in rng.sample(WHO_ASKS if is_person else EXPLAIN_ASKS, 2):
            yield _chat(ask.format(name), answer)


def spoken_name(title: str, text: str) -> tuple[str, bool]:
    """Name an article as one would ask for it ("a ceramic", "Lorraine"), and tell a thing by True.

    A title that the text writes small in the middle of sentences is a common noun.
    """
    name = re.sub(r" \(.*\)", "", title)
    small = name[0].lower() + name[1:]
    n_small = len(re.findall(rf"\b{re.escape(small)}\b", text))
    n_capital = len(re.findall(rf"(?<=[a-z,] ){re.escape(name)}\b", text))
    if small == name or n_small <= n_capital:
        return name, False
    article = re.search(rf"\b([Aa]n?) {re.escape(small)}\b", text)
    return (f"{article.group(1).lower()} {small}" if article else small), True


def follow_ups(chats: Sequence[Conversation], n: int, rng: random.Random) -> Iterator[Conversation]:
    """Chats of two or three turns, joined from short ones, so that turns are no surprise."""
    short = [c for c in chats if sum(len(m["content"]) for m in c) < 700]
    for _ in range(n):
        joined: Conversation = []
        for chat in rng.sample(short, rng.choice((2, 2, 3))):
            joined += chat
        yield joined


def compose(data: Path, texts: Sequence[Text], seed: int) -> list[Conversation]:
    """All conversations of the instruct phase in a shuffled order that `seed` fixes."""
    rng = random.Random(seed)
    parts: tuple[Callable[[], Iterator[Conversation]], ...] = (
        lambda: from_t0(data, rng),
        lambda: from_seed(data),
        lambda: from_gsm8k(data),
        lambda: sums(3000, rng),
        lambda: small_talk(500, rng),
        lambda: from_stories(texts, rng),
        lambda: from_encyclopaedia(texts, rng),
    )
    chats = [chat for part in parts for chat in part()]
    chats += list(follow_ups(chats, len(chats) // 6, rng))
    rng.shuffle(chats)
    return chats
