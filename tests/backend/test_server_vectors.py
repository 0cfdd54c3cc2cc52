"""Embeddings and ranking through the server: the forms, with a small model that is made up."""

from __future__ import annotations

import base64
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from fake_engine import FakeEngine
from later import Later
from served import KEY, Served, asked
from waiting import WAIT_S, until

from backend.protocol.errors import EngineError
from backend.protocol.vectors import Vectors
from backend.server import turns, vectors

ollama, openai = Later("ollama"), Later("openai")

PATHS = ("/v1/embeddings", "/api/embed", "/api/embeddings", "/v1/rerank", "/rerank")


class Small:
    """Makes vectors of the length of a text. gate: it waits for it with each text."""

    name = "small"

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.gate, self.began, self.left = gate, threading.Event(), threading.Event()
        self.n_text = 0
        self.cuts: list[bool] = []

    def embed(
        self,
        inputs: Sequence[str] | Sequence[Sequence[int]],
        *,
        cuts: bool = False,
        is_gone: Callable[[], bool] = lambda: False,
    ) -> Vectors:
        self.cuts.append(cuts)
        rows = []
        for given in inputs:
            self.began.set()
            if self.gate is not None:
                until(lambda: self.gate is None or self.gate.is_set() or is_gone())
            if is_gone():
                self.left.set()
                break
            if given == "bad":
                raise EngineError("A text is bad.")
            self.n_text += 1
            rows.append([float(len(given)), 0.1])
        return Vectors(rows, sum(map(len, inputs)))

    def rank(
        self, query: str, documents: Sequence[str], *, is_gone: Callable[[], bool] = lambda: False
    ) -> Vectors:
        scores = [[float(d.count(query))] for d in documents]
        return Vectors(scores, len(query) + sum(map(len, documents)))


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served(FakeEngine(), embedder=Small())
    yield made
    made.close()


def test_openais_client_gets_vectors_as_numbers_and_in_base64(served: Served) -> None:
    n_before = len(served.host.embedder.cuts)
    client = openai.OpenAI(base_url=served.url + "/v1", api_key=KEY, max_retries=0)
    for given, lengths in (
        ("abc", [3]),
        (["a", "bb"], [1, 2]),
        ([5, 6, 7, 8], [4]),
        ([[5], [6, 7]], [1, 2]),
    ):
        for form in ("float", "base64"):
            found = client.embeddings.create(model="any", input=given, encoding_format=form)
            rows = [
                struct.unpack("<2f", base64.b64decode(e.embedding))
                if isinstance(e.embedding, str)
                else tuple(e.embedding)
                for e in found.data
            ]
            assert [row[0] for row in rows] == lengths
            assert [e.index for e in found.data] == list(range(len(lengths)))
            assert found.usage.prompt_tokens == found.usage.total_tokens == sum(lengths)
            assert found.model == "small"
    assert client.embeddings.create(model="any", input="a").data[0].embedding[0] == 1
    assert not any(served.host.embedder.cuts[n_before:])


def test_ollamas_client_gets_vectors(served: Served) -> None:
    headers = {"Authorization": f"Bearer {KEY}"}
    client = ollama.Client(host=served.url, headers=headers)
    found = client.embed("any", ["a", "bb"], options={"num_ctx": 1}, keep_alive="5m")
    assert [row[0] for row in found.embeddings] == [1, 2]
    assert (found.model, found.prompt_eval_count) == ("small:latest", 3)
    assert found.total_duration >= 0 and served.host.embedder.cuts[-1]
    assert client.embed("any", "abc", truncate=False).embeddings[0][0] == 3
    assert not served.host.embedder.cuts[-1]
    assert client.embed("any", []).embeddings == []
    assert client.embeddings("any", "abcd").embedding[0] == 4


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank"])
def test_documents_are_ranked(served: Served, path: str) -> None:
    body = {"query": "a", "documents": ["b", "aa", {"text": "a b"}], "model": "any"}
    said = served.post(path, body).json()
    assert [(r["index"], r["relevance_score"]) for r in said["results"]] == [(1, 2), (2, 1), (0, 0)]
    assert said["model"] == "small" and said["usage"]["total_tokens"] == 7
    said = served.post(path, {**body, "top_n": 1, "return_documents": True}).json()
    assert said["results"] == [
        {"index": 1, "relevance_score": 2.0, "document": {"text": "aa"}},
    ]


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/embeddings", {}, "input must be text or a list, but is missing."),
        ("/v1/embeddings", {"input": []}, "input must have 1 to 2048 texts."),
        ("/v1/embeddings", {"input": ["a"] * 2049}, "input must have 1 to 2048 texts."),
        ("/v1/embeddings", {"input": ["a", 1]}, "input must be text, a list of text, tokens"),
        ("/v1/embeddings", {"input": [[1], []]}, "input must be text, a list of text, tokens"),
        ("/v1/embeddings", {"input": [True]}, "input must be text, a list of text, tokens"),
        ("/v1/embeddings", {"input": "a", "dimensions": 2}, "dimensions cannot be chosen here"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "int8"}, "must be float or base64"),
        ("/v1/embeddings", {"input": "bad"}, "A text is bad."),
        ("/api/embed", {"input": 1}, "input must be text or a list of text."),
        ("/api/embed", {"input": ["a"] * 2049}, "input must have at most 2048 texts."),
        ("/api/embed", {"input": "a", "dimensions": 2}, "dimensions cannot be chosen here"),
        ("/api/embeddings", {"prompt": ["a"]}, "prompt must be text."),
        ("/v1/rerank", {"documents": ["a"]}, "query must be text, but is missing."),
        ("/v1/rerank", {"query": "a"}, "documents must be a list, but is missing."),
        ("/v1/rerank", {"query": "a", "documents": []}, "documents must have 1 to 2048 texts."),
        ("/v1/rerank", {"query": "a", "documents": [1]}, "documents.0 must be an object."),
        ("/v1/rerank", {"query": "a", "documents": ["a"], "top_n": 0}, "top_n must be a positive"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(
    served: Served, path: str, body: Any, words: str
) -> None:
    answer = served.post(path, body)
    error = answer.json()["error"]
    sentence = error if path.startswith("/api/") else error["message"]
    assert answer.status_code == 400 and words in sentence and sentence.endswith(".")


@pytest.mark.parametrize("path", PATHS)
def test_without_a_small_model_it_is_said_how_to_have_one(path: str) -> None:
    served = Served(FakeEngine())
    try:
        body = {"input": "a", "prompt": "a", "query": "a", "documents": ["a"]}
        answer = served.post(path, body)
        assert answer.status_code == 501 and "--embedding-model FILE" in answer.text
    finally:
        served.close()


def test_it_does_not_wait_for_an_answer_and_not_for_one_that_has_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()
    small = Small(gate)
    engine = FakeEngine(gate=threading.Event())
    served = Served(engine, embedder=small)
    try:
        with asked(served, "/v1/completions", {"prompt": "a"}):
            assert engine.reading.wait(WAIT_S)
            with asked(served, "/v1/embeddings", {"input": ["a"] * 100}):
                assert small.began.wait(WAIT_S)
                monkeypatch.setattr(turns, "MAX_WAITING", 1)
                assert served.post("/v1/embeddings", {"input": "b"}).status_code == 429
            monkeypatch.undo()
            assert small.left.wait(WAIT_S)
            small.gate = None
            assert served.post("/v1/embeddings", {"input": "b"}).status_code == 200
            assert small.n_text == 1
    finally:
        served.close()


def test_as_many_texts_as_openai_takes() -> None:
    assert vectors.MAX_TEXTS == 2048
