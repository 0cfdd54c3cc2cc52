"""Records traces to train predictors on, in pieces, so that a recording can be resumed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from backend.engine.engine import Engine, EngineError
from backend.engine.recording import Recording
from backend.gguf.model_file import ModelFile
from backend.memory.plan import N_UBATCH
from backend.protocol.errors import UntrustedError
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.traces.container import ContainerError
from backend.traces.prompts import Message, PromptsError, read_prompts
from backend.traces.reading import read_trace
from backend.traces.trace import Trace

PIECE_BYTES = 192 << 20
"""A piece of the trace is written when it reaches this size."""
TEXT_CHARACTERS = 2400
"""Plain text is cut into documents of at most this length."""

STARTERS = (
    "Tell me a short story about a fox.", "Why is the sky blue?", "What is a river?",
    "Write a letter to an old friend.", "How do I bake bread?", "Explain how a clock works.",
    "What is 17 + 25?", "Give me three ideas for a rainy day.", "Who was Isaac Newton?",
    "Write a poem about the sea.", "How does a computer add numbers?", "What is democracy?",
    "Write a Python function that reverses a list.", "Describe a market in the morning.",
    "What should I know before buying a bicycle?", "Summarise the story of Cinderella.",
    "What is the difference between weather and climate?", "Plan a day in a foreign town.",
    "How do vaccines work?", "Write a dialogue between a cat and a dog.", "What is music?",
    "A train leaves at 9 and arrives at 11:30. How long does it take?", "What is photosynthesis?",
    "Give advice to someone who starts a new job.", "Translate 'good morning' into French.",
    "What makes a good teacher?", "Explain recursion.", "Describe the taste of an apple.",
    "How are mountains made?", "Write the beginning of a detective story.",
)  # fmt: skip
"""Questions whose answers by the model are the training text, without prompts of the user."""


@dataclass(frozen=True)
class Document:
    """A text to compute, or a conversation, which the model answers unless it spoke last."""

    text: str | tuple[Message, ...]

    @property
    def is_question(self) -> bool:
        """Whether the model has to answer."""
        return not isinstance(self.text, str) and self.text[-1]["role"] != "assistant"


def own_questions() -> Iterator[Document]:
    """Yield the questions for a model without prompts, in an endless cycle."""
    while True:
        for text in STARTERS:
            yield Document(({"role": "user", "content": text},))


def read_documents(prompts: Sequence[Path], texts: Sequence[Path]) -> list[Document]:
    """Return the documents of files of prompts (backend.traces.prompts) and of texts, interleaved.

    A file of texts is plain, or has a JSON object with "text" in every line. Raises PromptsError.
    """
    lists = [[Document(p.messages) for p in read_prompts(path)] for path in prompts]
    lists += [[Document(text) for text in _texts(path)] for path in texts]
    places = sorted(
        (i / len(documents), n, i)
        for n, documents in enumerate(lists)
        for i in range(len(documents))
    )  # each file is spread evenly over the whole, so that any part resembles the rest
    return [lists[n][i] for _, n, i in places]


def _texts(path: Path) -> Iterator[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise PromptsError(path, "it cannot be read as UTF-8 text") from error
    if text.lstrip().startswith("{"):
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                yield str(value["text"])
            except (ValueError, KeyError, TypeError) as error:
                raise PromptsError(path, f"line {number} has no text") from error
        return
    for begin in range(0, len(text), TEXT_CHARACTERS):
        if piece := text[begin : begin + TEXT_CHARACTERS].strip():
            yield piece


@dataclass(frozen=True)
class Limits:
    """The most tokens to record: in all, of one document, and of one answer."""

    tokens: int
    document_tokens: int = 400
    answer_tokens: int = 96


def collect(
    file: ModelFile,
    documents: Sequence[Document],
    folder: Path,
    limits: Limits,
    config: EngineConfig,
    progress: Callable[[float, str], bool],
) -> list[Trace]:
    """Compute documents and record their routing in files of `folder`, after those recorded before.

    Without documents the model answers own_questions(). progress(share, text) returns False to
    stop. Raises EngineError, ContainerError.
    """
    source = _source(documents, limits)
    folder.mkdir(parents=True, exist_ok=True)
    pieces = list(_pieces(folder, file, source))
    n_done = sum(int(piece.about["documents"]) for piece in pieces)
    n_token = sum(len(piece.tokens) for piece in pieces)
    if n_token >= limits.tokens or (documents and n_done >= len(documents)):
        return pieces
    config = config.changed(keeps_outputs=True, n_ubatch=config.setup.n_ubatch or N_UBATCH)
    engine = Engine.open(file.path, config, lambda share, text: progress(0.0, text))
    try:
        if engine.cache.mode == "plain":
            raise EngineError(f"{file.path.name} cannot be recorded: {engine.cache.reason}")
        recording = Recording(engine, file, scores=True, inputs=True)
        done, fault = 0, ""
        for number, document in enumerate(documents or own_questions()):
            if number < n_done + done:
                continue
            share = (n_token + recording.n_token) / limits.tokens
            if share >= 1 or not progress(share, f"{n_token + recording.n_token} tokens recorded"):
                break
            try:
                _compute(engine, recording, document, limits, seed=number)
            except UntrustedError:
                raise
            except EngineError as error:  # for instance, a document longer than the context
                if not documents:
                    raise  # own_questions() has no end, and the next question would fail as well
                fault = str(error)
            done += 1
            if recording.n_bytes >= PIECE_BYTES:
                pieces.append(_write(recording, folder, len(pieces), source, done))
                n_token += len(pieces[-1].tokens)
                n_done, done = n_done + done, 0
        if recording.n_token:
            pieces.append(_write(recording, folder, len(pieces), source, done))
        if not pieces:
            raise EngineError(fault or "Nothing was recorded.")
    finally:
        engine.close()
    return pieces


def _compute(
    engine: Engine, recording: Recording, document: Document, limits: Limits, seed: int
) -> None:
    if not document.is_question:
        text = document.text if isinstance(document.text, str) else list(document.text)
        engine.compute(text, limits.document_tokens)
        return
    assert not isinstance(document.text, str)
    engine.forget()
    request = Request(document, Sampling(seed=seed), limits.answer_tokens, list(document.text))
    for _ in engine.answer(request):
        pass


def _write(recording: Recording, folder: Path, number: int, source: str, n: int) -> Trace:
    trace = recording.trace({"documents": n, "source": source})
    trace.write(folder / f"trace-{number:04}.npz")
    return trace


def _source(documents: Sequence[Document], limits: Limits) -> str:
    """Return a digest of documents and limits. A recording is resumed only if it matches."""
    digest = hashlib.sha256(repr((limits.document_tokens, limits.answer_tokens)).encode())
    for document in documents:
        digest.update(repr(document.text).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()[:32]


def _pieces(folder: Path, file: ModelFile, source: str) -> Iterator[Trace]:
    """Yield the pieces of an interrupted recording of the same documents."""
    for number in range(1 << 16):
        path = folder / f"trace-{number:04}.npz"
        try:
            trace = read_trace(path, file.fingerprint, mapped=True)
        except ContainerError:
            return
        if trace.about.get("source") != source:
            return
        yield trace
