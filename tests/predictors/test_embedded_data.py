"""Cleaning, hold-out, composition, tokens and streams, on a few made-up files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers")
from predictors.embedded import chats, data, prepare, tokenizer
from predictors.embedded.config import IM_END, IM_START, SPECIAL_TOKENS

ARTICLE = (
    '<doc id="{n}" url="http://en.wikipedia.org/wiki?curid={n}" title="Topic {n}">\nTopic {n}\n\n'
    "Topic {n} is a thing ( ; ) of the kind that has a long history [ [update]] , and number {n} "
    "in a list<br> of such things codice_1. It was described many times by many people since then, "
    "and every description number {n} adds something to those that came before it.\n"
    "This paragraph is the same in every article and should be kept only once in all of them.\n"
    "</doc>\n"
)


def write(path: Path, text: str) -> None:
    """Write a file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a data folder with a trap: an evaluation set that must not be read."""
    root = tmp_path / "data"
    articles = "".join(ARTICLE.format(n=n) for n in range(200))
    write(root / "train-wikipedia" / "text" / "AA" / "wiki_01", articles)
    chapter = (
        "## {t}\n\n" + "There lived _once_ a “king” called {t}, who had a garden. " * 12 + "\n\n"
    )
    for book in range(40):
        text = "# Title: T\n\n-------\n" + "".join(
            chapter.format(t=f"Tale {book}x{i}") for i in range(3)
        )
        write(root / "train-books" / "Author" / f"Book {book}.md", text)
    write(root / "train-shakespeare" / "input.txt", "KING:\nSpeak, sir, of number one.\n\n" * 400)
    rows = [
        {"prompt": f"What is {i}?", "completion": f"It is {i}.<|endoftext|>"} for i in range(60)
    ]
    write(root / "train-t0" / "a_task.jsonl", "\n".join(map(json.dumps, rows)))
    gsm = {"question": "How many?", "answer": "2+2 = <<2+2=4>>4 apples.\n#### 4"}
    write(root / "train-gsm8k" / "train.jsonl", json.dumps(gsm))
    seed = {"instruction": "Add.", "instances": [{"input": "1 2", "output": "3"}]}
    write(root / "train-seed" / "seed_tasks.jsonl", json.dumps(seed))
    write(
        root / "eval-alpaca" / "alpaca_5000.json", '[{"instruction": "SECRET", "output": "SECRET"}]'
    )
    return root


def prepared(folder: Path, work: Path) -> dict[str, int]:
    """Prepare the data with few composed chats. Return the rows of each file."""
    return prepare.prepare(folder, work, n_composed=500)


def test_wikipedia_marks_are_stripped() -> None:
    text = prepare.clean_wikipedia(
        "A dog ( ; ) is an animal (, of old) [ [update]] , and codice_1 <br>not a cat.\n\n.\nEnd."
    )
    assert text == "A dog is an animal (of old), and not a cat.\nEnd."


def test_book_marks_are_stripped() -> None:
    text = prepare.clean_book(
        "## Chapter\n\n“It’s” _very_ **good**,\n\n* * *\n\nsaid [he](http://x).\n"
    )
    assert text == 'Chapter\n\n"It\'s" very good,\n\nsaid he.'


def test_preparation_reads_only_training_sets_and_holds_out_by_document(folder: Path) -> None:
    work = folder.parent / "work"
    counts = prepared(folder, work)
    assert all(counts.values())
    whole = "".join((work / f"{name}.jsonl").read_text("utf-8") for name in counts)
    assert "SECRET" not in whole and "<doc" not in whole and "endoftext" not in whole
    assert "<<" not in whole and "codice" not in whole
    assert whole.count("This paragraph is the same in every article") == 1
    train = {row["text"] for row in prepare.read_rows(work / "train.jsonl")}
    heldout = list(prepare.read_rows(work / "heldout.jsonl"))
    assert {row["source"] for row in heldout} >= {"wikipedia"}
    assert not train & {row["text"] for row in heldout}
    groups = [prepare.is_heldout(d) for d in prepare.books(folder)]
    assert all(groups[i] == groups[i + 1] == groups[i + 2] for i in range(0, len(groups), 3))


def test_preparation_is_reproducible(folder: Path) -> None:
    prepared(folder, folder.parent / "a")
    prepared(folder, folder.parent / "b")
    for name in ("train.jsonl", "heldout.jsonl", "instruct.jsonl"):
        assert (folder.parent / "a" / name).read_bytes() == (
            folder.parent / "b" / name
        ).read_bytes()


def test_a_missing_data_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no training data"):
        prepare.prepare(tmp_path / "nowhere", tmp_path / "work")


def test_conversations_alternate_and_are_not_empty(folder: Path) -> None:
    texts = [
        ("wikipedia", "Topic 1", ARTICLE),
        ("books", "Tale", "Tale\n\nOnce. " + "A b c. " * 90),
    ]
    for chat in chats.compose(folder, texts, seed=1, n_composed=300):
        assert [m["role"] for m in chat] == ["user", "assistant"] * (len(chat) // 2)
        assert all(m["content"].strip() for m in chat)


def test_articles_are_asked_for_as_one_speaks() -> None:
    assert chats.spoken_name("Ceramic", "A ceramic is hard, and every ceramic breaks.") == (
        "a ceramic",
        True,
    )
    assert chats.spoken_name("Lorraine", "The Duchy of Lorraine, in Lorraine.") == (
        "Lorraine",
        False,
    )
    assert chats.spoken_name("Mercury (planet)", "Then came Mercury.") == ("Mercury", False)


def test_the_tokenizer_covers_every_byte_and_keeps_digits_apart(folder: Path) -> None:
    work = folder.parent / "work"
    prepared(folder, work)
    tokenizer.build(work, 400)
    words = tokenizer.load(work)
    assert [words.token_to_id(token) for token in SPECIAL_TOKENS] == [0, 1, 2]
    for text in ("naïve 日本 🙂\r\n\t x", "It's 2026 already"):
        assert words.decode(words.encode(text).ids) == text
    assert len(words.encode("2026").ids) == 4


def test_chat_tokens_weigh_the_answer(folder: Path) -> None:
    work = folder.parent / "work"
    prepared(folder, work)
    tokenizer.build(work, 400)
    words = tokenizer.load(work)
    chat = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    ids, weights = data.chat_tokens(chat, words)
    text = f"{IM_START}user\nHi{IM_END}\n{IM_START}assistant\nHello.{IM_END}\n"
    assert ids == words.encode(text).ids
    learned = words.decode([i for i, w in zip(ids, weights, strict=True) if w == 1.0], False)
    assert learned == f"Hello.{IM_END}"


def test_the_text_stream_visits_every_row_once_an_epoch_and_resumes() -> None:
    tokens = np.arange(101, dtype=np.uint16)
    stream = data.TextStream(tokens, seed=3)
    first = np.concatenate([stream.take(2, 10) for _ in range(5)])
    assert sorted(first[:, 0].tolist()) == list(range(0, 100, 10))
    assert (first[:, 1:] - first[:, :-1] == 1).all()
    again = data.TextStream(tokens, seed=3)
    again.take(4, 10)
    resumed = data.TextStream(tokens, seed=3)
    resumed.restore(again.state())
    assert np.array_equal(resumed.take(6, 10), first[4:])
    second = np.concatenate([stream.take(5, 10) for _ in range(2)])
    assert sorted(second[:, 0].tolist()) == list(range(0, 100, 10))
    assert not np.array_equal(first, second)


def test_the_instruct_stream_visits_every_row_once_an_epoch() -> None:
    ids = np.arange(12, dtype=np.uint16).reshape(6, 2)
    stream = data.InstructStream(ids, np.ones((6, 2), np.float32), seed=3)
    rows = np.concatenate([stream.take(2)[0] for _ in range(3)])
    assert sorted(rows[:, 0].tolist()) == [0, 2, 4, 6, 8, 10]
