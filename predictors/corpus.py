"""Sample the public training and evaluation sets for predictors of the embedded model.

`python -m predictors.corpus --data DIR --out DIR` writes train-texts.jsonl and train-chats.jsonl
from the training sets, and one file per evaluation set. `outrider train` and `outrider evaluate`
read these files.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
N_CHARACTER = 2400  # maximum length of a text; a recording is shorter
EVALUATIONS = ("eval-wikitext2", "eval-squad", "eval-alpaca", "eval-gsm8k", "eval-chat")


def chat(question: str, answer: str) -> Row:
    """Return a conversation of one question and its answer."""
    roles = (("user", question), ("assistant", answer))
    return {"messages": [{"role": role, "content": text} for role, text in roles]}


def _lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def train_texts(data: Path, draw: random.Random) -> Iterator[Row]:
    """Yield passages of Wikipedia, books and Shakespeare, at random positions."""
    articles = []
    for path in sorted(p for p in (data / "train-wikipedia").rglob("*") if p.is_file()):
        text = path.read_text("utf-8", "ignore")
        articles += re.findall(r"<doc[^>]*>(.*?)</doc>", text, re.DOTALL)
    for article in draw.sample(articles, min(len(articles), 700)):
        yield {"text": article.strip()[:N_CHARACTER]}
    for path in sorted((data / "train-books").rglob("*.md")):
        text = path.read_text("utf-8", "ignore")
        for _ in range(4):
            begin = draw.randrange(max(1, len(text) - N_CHARACTER))
            yield {"text": text[begin : begin + N_CHARACTER]}
    plays = (data / "train-shakespeare" / "input.txt").read_text("utf-8")
    for _ in range(20):
        begin = draw.randrange(len(plays) - N_CHARACTER)
        yield {"text": plays[begin : begin + N_CHARACTER]}


def train_chats(data: Path, draw: random.Random) -> Iterator[Row]:
    """Yield T0 prompts, seed tasks and sums with answers, and questions without an answer."""
    for path in sorted((data / "train-t0").glob("*.jsonl")):
        rows = _lines(path)
        for number, row in enumerate(draw.sample(rows, min(len(rows), 8))):
            answer = str(row["completion"]).replace("<|endoftext|>", "").strip()
            found = chat(str(row["prompt"]).strip()[:N_CHARACTER], answer)
            if number == 0:
                found["messages"].pop()
            yield found
    for row in _lines(data / "train-gsm8k" / "train.jsonl")[:400]:
        yield chat(row["question"], row["answer"])
    for row in _lines(data / "train-seed" / "seed_tasks.jsonl"):
        instance = row["instances"][0]
        asked = "\n".join(filter(None, (row["instruction"], instance["input"])))
        yield chat(asked[:N_CHARACTER], instance["output"])
        yield {"messages": chat(row["instruction"][:N_CHARACTER], "")["messages"][:1]}


def wikitext2(data: Path, draw: random.Random) -> Iterator[Row]:
    """Yield passages of the test text."""
    text = (data / "eval-wikitext2" / "test.txt").read_text("utf-8")
    for _ in range(16):
        begin = draw.randrange(len(text) - N_CHARACTER)
        yield {"text": text[begin : begin + N_CHARACTER]}


def squad(data: Path, draw: random.Random) -> Iterator[Row]:
    """Yield passages with a question and its answer."""
    articles = json.loads((data / "eval-squad" / "dev-v2.0.json").read_text("utf-8"))["data"]
    for article in draw.choices(articles, k=24):
        passage = draw.choice(article["paragraphs"])
        asked = passage["qas"][0]
        answer = asked["answers"][0]["text"] if asked["answers"] else "It is not said."
        yield chat(f"{passage['context']}\n{asked['question']}", answer)


def alpaca(data: Path, draw: random.Random) -> Iterator[Row]:
    """Yield instructions with their answers."""
    rows = json.loads((data / "eval-alpaca" / "alpaca_5000.json").read_text("utf-8"))
    for row in draw.sample(rows, 60):
        asked = "\n".join(filter(None, (row["instruction"], row["input"])))
        yield chat(asked, row["output"])


def gsm8k(data: Path, draw: random.Random) -> Iterator[Row]:
    """Yield word problems with their solutions."""
    for row in draw.sample(_lines(data / "eval-gsm8k" / "test.jsonl"), 32):
        yield chat(row["question"], row["answer"])


def chats(data: Path, draw: random.Random) -> Iterator[Row]:
    """Yield questions that people asked chat models, with one model's answers."""
    folder = data / "eval-chat"
    answers = {
        row["uid"]: row["messages"][-1]["content"]["answer"]
        for row in _lines(folder / "arena-hard-v0.1-gpt-3.5-turbo-0125.jsonl")
    }
    rows = [r for r in _lines(folder / "arena-hard-v0.1-question.jsonl") if r["uid"] in answers]
    for row in draw.sample(rows, 28):
        yield chat(row["prompt"][:800], answers[row["uid"]])


_MAKERS: dict[str, Callable[[Path, random.Random], Iterator[Row]]] = {
    "train-texts": train_texts,
    "train-chats": train_chats,
    **dict(zip(EVALUATIONS, (wikitext2, squad, alpaca, gsm8k, chats), strict=True)),
}


def write(data: Path, out: Path, seed: int = 1) -> list[Path]:
    """Write all files and return their paths. Equal data and seed give equal files."""
    out.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, make in _MAKERS.items():
        draw = random.Random(seed)
        rows = list(make(data, draw))
        draw.shuffle(rows)
        paths.append(out / f"{name}.jsonl")
        paths[-1].write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return paths


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="predictors.corpus", description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    for path in write(args.data, args.out):
        print(f"{path}: {len(path.read_text('utf-8').splitlines())} documents")


if __name__ == "__main__":
    main()
