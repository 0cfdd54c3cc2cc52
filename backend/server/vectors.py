"""Embeddings of OpenAI's and Ollama's API, and ranking as llama.cpp's server and Jina have it.

A small model beside the engine computes them (backend.server.turns.Embedder).
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from backend.protocol.vectors import Vectors
from backend.server import ollama
from backend.server.ask import (
    FLAG,
    LIST,
    NUMBER,
    OBJECT,
    POSITIVE,
    TEXT,
    TEXTS,
    WHOLE,
    Fields,
    Json,
    RequestRefused,
    check_text,
    either,
)
from backend.server.turns import Embedder

MAX_TEXTS = 2048
"""Maximum of texts of one request, as in OpenAI's reference."""

Inputs = list[str] | list[list[int]]
IsGone = Callable[[], bool]


@dataclass(frozen=True)
class Asked:
    """A valid request: how it is computed, until nobody waits, and how the answer is written."""

    compute: Callable[[Embedder, IsGone], Vectors]
    written: Callable[[str, Vectors], Json]


def read_openai(body: Any) -> Asked:
    """Read the body of /v1/embeddings. Raises RequestRefused."""
    fields = Fields(body)
    inputs = _inputs(fields)
    form = fields.get("encoding_format", TEXT, "float")
    if form not in ("float", "base64"):
        raise fields.refusal("encoding_format", "must be float or base64")
    _keep_length(fields)
    fields.ignore("model", "user")
    fields.others()

    def written(model: str, found: Vectors) -> Json:
        pack = _base64 if form == "base64" else list
        data = [
            {"object": "embedding", "index": i, "embedding": pack(row)}
            for i, row in enumerate(found.rows)
        ]
        return {"object": "list", "data": data, "model": model, "usage": _usage(found)}

    return Asked(lambda embedder, is_gone: embedder.embed(inputs, is_gone=is_gone), written)


def read_ollama(body: Any) -> Asked:
    """Read the body of /api/embed, or of /api/embeddings, which has a prompt."""
    fields = Fields(body)
    began_s = time.monotonic()
    is_old = "prompt" in fields.data
    given = fields.get("prompt", TEXT) if is_old else fields.get("input", either(TEXT, TEXTS))
    inputs = [given] if isinstance(given, str) else given or []
    check_text(inputs)
    if len(inputs) > MAX_TEXTS:
        raise fields.refusal("input", f"must have at most {MAX_TEXTS} texts")
    cuts = fields.get("truncate", FLAG, True)
    _keep_length(fields)
    fields.get("options", OBJECT)
    fields.get("keep_alive", either(TEXT, NUMBER))
    fields.ignore("model")
    fields.others()

    def written(model: str, found: Vectors) -> Json:
        if is_old:
            return {"embedding": found.rows[0] if found.rows else []}
        return {
            "model": ollama.tagged(model),
            "embeddings": found.rows,
            "total_duration": round((time.monotonic() - began_s) * 1e9),
            "prompt_eval_count": found.n_token,
        }

    return Asked(
        lambda embedder, is_gone: embedder.embed(inputs, cuts=cuts, is_gone=is_gone), written
    )


def read_rank(body: Any) -> Asked:
    """Read the body of /v1/rerank. Raises RequestRefused."""
    fields = Fields(body)
    query, given = fields.need("query", TEXT), fields.need("documents", LIST)
    documents = [
        each if isinstance(each, str) else Fields(each, f"documents.{i}").need("text", TEXT)
        for i, each in enumerate(given)
    ]
    if not 0 < len(documents) <= MAX_TEXTS:
        raise fields.refusal("documents", f"must have 1 to {MAX_TEXTS} texts")
    check_text(query, documents)
    n_top = fields.get("top_n", POSITIVE, len(documents))
    shows = fields.get("return_documents", FLAG, False)
    fields.ignore("model", "user")
    fields.others()

    def written(model: str, found: Vectors) -> Json:
        scores = sorted(enumerate(row[0] for row in found.rows), key=lambda s: -s[1])
        results = [
            {"index": i, "relevance_score": score}
            | ({"document": {"text": documents[i]}} if shows else {})
            for i, score in scores[:n_top]
        ]
        return {"model": model, "object": "list", "usage": _usage(found), "results": results}

    return Asked(
        lambda embedder, is_gone: embedder.rank(query, documents, is_gone=is_gone), written
    )


def _inputs(fields: Fields) -> Inputs:
    """Read a text or several, or the tokens of one or of several."""
    given = fields.need("input", either(TEXT, LIST))
    texts = [given] if isinstance(given, str) or _are_tokens(given) else given
    if not 0 < len(texts) <= MAX_TEXTS:
        raise fields.refusal("input", f"must have 1 to {MAX_TEXTS} texts")
    if not (all(isinstance(each, str) for each in texts) or all(map(_are_tokens, texts))):
        raise fields.refusal("input", "must be text, a list of text, tokens, or a list of tokens")
    check_text(texts)
    return texts


def _are_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(WHOLE.test, value))


def _keep_length(fields: Fields) -> None:
    if fields.get("dimensions", WHOLE) is not None:
        raise fields.refusal("dimensions", "cannot be chosen here: the model decides")


def _base64(row: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode("ascii")


def _usage(found: Vectors) -> Json:
    return {"prompt_tokens": found.n_token, "total_tokens": found.n_token}


def no_model() -> RequestRefused:
    """Return the refusal where there is no model for it."""
    return RequestRefused(
        "This server has no model for it: choose a small one in its settings, or start it with "
        "--embedding-model FILE.",
        status=501,
    )
