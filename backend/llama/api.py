"""A thin layer over llama_cpp's C functions: models, contexts and samplers as Python objects.

Every pointer has one owner, and close() may be called twice. Operational errors are LlamaError,
one plain sentence each.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from backend import check_native
from backend.gguf.identity import FileIdentity, OpenFiles
from backend.gguf.tables import (
    CACHE_FOR_EACH,
    CELL_STEP,
    GOES_BACK,
    IS_COMPRESSED,
    KEEPS_LAST,
    ring_cells,
)
from backend.llama import of_cpp
from backend.llama.batch_log import (
    BatchLog,
    Run,
    digest,
    digest_at,
    packed,
    runs,
    settings_of,
)
from backend.llama.json_matcher import Vocabulary
from backend.llama.past import UNKNOWN, Made, Past, Step
from backend.llama.row import Row
from backend.llama.splitting import LlamaError as LlamaError
from backend.llama.splitting import Splitter
from backend.system.paths import is_file
from backend.system.spinning import computing
from backend.text import text

check_native()

import llama_cpp  # noqa: E402  (after the checks)

ProgressCallback = Callable[[float], bool]


_WARNING, ERROR = 3, 4
"""GGML_LOG_LEVEL_WARN and GGML_LOG_LEVEL_ERROR."""
_N_WARNING = 64
_CHOSEN = "using full-size SWA cache"
"""The beginning of a warning about llama.cpp's own default (swa_full), which every context has."""
_WHERE = re.compile(r"^\w+: +")
"""The name of llama.cpp's function before a message."""


class _Log:
    """Collects llama.cpp's messages. The errors of a call that failed say why.

    warnings: the different warnings and errors since it was cleared, in their order.
    """

    def __init__(self) -> None:
        self.echo = False
        self.warnings: dict[str, None] = {}
        self._captures: list[tuple[int, list[str]]] = []
        self._level = 0
        self.callback = llama_cpp.llama_log_callback(self._on_message)
        self.listen(echo=False)

    def listen(self, *, echo: bool) -> None:
        """Receive llama.cpp's messages from now on, in place of another listener.

        echo: write them to stderr, too.
        """
        self.echo = echo
        llama_cpp.llama_log_set(self.callback, ctypes.c_void_p(0))

    @contextlib.contextmanager
    def captured(self, level: int = 0) -> Iterator[list[str]]:
        """Return a list that receives the messages from a level on until the context ends."""
        self.listen(echo=self.echo)
        lines: list[str] = []
        self._captures.append((level, lines))
        try:
            yield lines
        finally:
            self._captures = [other for other in self._captures if other[1] is not lines]

    def _on_message(self, level: int, text: bytes, _user_data: int | None) -> None:
        if level != 5:  # GGML_LOG_LEVEL_CONT continues the previous message
            self._level = level
        for least, lines in self._captures:
            if self._level >= least:
                lines.append(text.decode(errors="replace"))
        if self.echo:
            sys.stderr.write(text.decode(errors="replace"))
        if self._level >= _WARNING and len(self.warnings) < _N_WARNING:
            said = _WHERE.sub("", text.decode(errors="replace").strip())
            told = (line for line in said.splitlines() if line and not line.startswith(_CHOSEN))
            self.warnings.update(dict.fromkeys(told))


log = _Log()


def reason_of(errors: Iterable[str]) -> str:
    """Return the first of the errors of a call, without the function's name in front."""
    first = next(filter(None, map(str.strip, errors)), "no reason was given")
    return first.split(": ", 1)[-1].rstrip(".")


def kernels() -> str:
    """Return what llama.cpp says of its kernels and of this processor."""
    return str(llama_cpp.llama_print_system_info().decode(errors="replace"))


class Model:
    """A loaded model. Use the functions of backend.engine.loading to make one.

    files: its files, open until close().
    """

    def __init__(self, pointer: Any, files: OpenFiles, keep_alive: Sequence[object] = ()) -> None:
        self._pointer = pointer
        self.files = files
        self.settings: dict[str, int | float] = {}
        """The parameters of loading that are not llama.cpp's defaults."""
        self._keep_alive = list(keep_alive)
        self.vocab = llama_cpp.llama_model_get_vocab(pointer)
        self.n_vocab: int = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.n_context_trained: int = llama_cpp.llama_model_n_ctx_train(pointer)
        self.architecture = self._metadata("general.architecture")
        self.n_window: int = llama_cpp.llama_model_n_swa(pointer)
        """The tokens that layers with a sliding window see; 0: there are none."""
        if self.architecture in IS_COMPRESSED:  # llama.cpp does not tell it, as it cannot be cut
            self.n_window = int(self._metadata(f"{self.architecture}.attention.sliding_window"))
        self._json_vocabulary: Vocabulary | None = None
        self.splitter = Splitter(self.vocab)
        self.tokenize = self.splitter.tokens
        """Returns the tokens of a text."""

    def _metadata(self, key: str) -> str:
        """Return a value of the file's header as text; "" if it has none."""
        value = ctypes.create_string_buffer(256)
        n = llama_cpp.llama_model_meta_val_str(self._pointer, key.encode(), value, len(value))
        return value.value.decode(errors="replace") if n >= 0 else ""

    @property
    def pointer(self) -> Any:
        """The llama_model pointer."""
        return self._pointer

    def close(self) -> None:
        """Free the model. Contexts must have been closed before."""
        if self._pointer is not None:
            self.splitter.close()
            llama_cpp.llama_model_free(self._pointer)
            self._pointer = None
            self._keep_alive.clear()
            self.files.close()

    def piece(self, token: int, *, special: bool = False) -> bytes:
        """Return the bytes of a token. Control tokens have none, unless `special`."""
        buffer = ctypes.create_string_buffer(64)
        n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = llama_cpp.llama_token_to_piece(self.vocab, token, buffer, len(buffer), 0, special)
        return bytes(buffer.raw[: max(n, 0)])

    def json_vocabulary(self) -> Vocabulary:
        """Return the tokens as JSON is written with them, built at the first use.

        Tokens that may be marks, as "<think>", are left out. Raises MatcherError.
        """
        if self._json_vocabulary is None:
            get_attr, pieces = llama_cpp.llama_vocab_get_attr, self._pieces()
            for token, piece in enumerate(pieces):
                if piece.startswith(b"<") and piece.endswith(b">"):
                    if get_attr(self.vocab, token) & llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED:
                        pieces[token] = b""
            for token in self.ending_tokens:
                pieces[token] = b""
            self._json_vocabulary = Vocabulary(pieces, self.ending_tokens or [self.n_vocab - 1])
        return self._json_vocabulary

    def _pieces(self) -> list[bytes]:
        """Return the bytes of every token, as piece(), in a quarter of the time."""
        buffer, made = ctypes.create_string_buffer(64), llama_cpp.llama_cpp._lib
        read, vocab, size = made.llama_token_to_piece, self.vocab, len(buffer)
        found = []
        for token in range(self.n_vocab):
            n = read(vocab, token, buffer, size, 0, False)
            found.append(buffer.raw[:n] if n >= 0 else self.piece(token))
        return found

    def rare_tokens(self, n: int, written: str) -> list[int]:
        """Return tokens that are not in a text: control tokens, then the last of the vocabulary.

        Raises LlamaError where there are not as many.
        """
        found: list[int] = []
        others = (t for t in reversed(range(self.n_vocab)) if t not in self._control_tokens)
        for token in itertools.chain(self._control_tokens, others):
            if len(found) == n:
                break
            piece = self.piece(token, special=True).decode(errors="replace")
            if piece and piece not in written and not self.ends_answer(token):
                found.append(token)
        if len(found) < n:
            raise LlamaError(text("grammar.too_large"))
        return found

    @functools.cached_property
    def _control_tokens(self) -> dict[int, None]:
        """The control tokens, the last one first."""
        is_control = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL
        every = reversed(range(self.n_vocab))
        get_attr, vocab = llama_cpp.llama_vocab_get_attr, self.vocab
        return {token: None for token in every if get_attr(vocab, token) & is_control}

    def single_tokens(self, texts: Iterable[str]) -> frozenset[int]:
        """Return the tokens of those texts that are one token each."""
        found = (self.tokenize(text) for text in texts)
        return frozenset(tokens[0] for tokens in found if len(tokens) == 1)

    def special_text(self, token: int) -> str:
        """Return the text of a token, also of a control token; "" for token -1."""
        if token < 0:
            return ""
        text: bytes = llama_cpp.llama_vocab_get_text(self.vocab, token)
        return text.decode(errors="replace")

    def special_texts(self) -> tuple[list[str], list[str]]:
        """Return the texts of the control tokens, and of the tokens that a user defined."""
        control, user_defined = [], []
        is_control = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
        get_attr, vocab = llama_cpp.llama_vocab_get_attr, self.vocab
        for token in range(self.n_vocab):
            attr = get_attr(vocab, token)
            if attr & is_control or self.ends_answer(token):
                control.append(self.special_text(token))
            elif attr & llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED:
                user_defined.append(self.special_text(token))
        return control, user_defined

    @property
    def bos(self) -> int:
        """The begin-of-sequence token, or -1."""
        return int(llama_cpp.llama_vocab_bos(self.vocab))

    @property
    def eos(self) -> int:
        """The end-of-sequence token, or -1."""
        return int(llama_cpp.llama_vocab_eos(self.vocab))

    @property
    def adds_bos(self) -> bool:
        """Whether the vocabulary wants a begin-of-sequence token before a text."""
        return bool(llama_cpp.llama_vocab_get_add_bos(self.vocab))

    def is_control(self, token: int) -> bool:
        """Return whether the token is a control token, as that of special_texts()."""
        attr = llama_cpp.llama_vocab_get_attr(self.vocab, token) if token >= 0 else 0
        is_control = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL | llama_cpp.LLAMA_TOKEN_ATTR_UNKNOWN
        return bool(attr & is_control) or (token >= 0 and self.ends_answer(token))

    def ends_answer(self, token: int) -> bool:
        """Return whether the token ends an answer."""
        return bool(llama_cpp.llama_vocab_is_eog(self.vocab, token))

    @functools.cached_property
    def ending_tokens(self) -> tuple[int, ...]:
        """The tokens that end an answer."""
        return tuple(filter(self.ends_answer, range(self.n_vocab)))


@functools.cache
def library_files() -> list[tuple[Path, FileIdentity]]:
    """Return the files of llama.cpp and of the modules with its kernels, loaded or not."""
    folders = [os.path.dirname(llama_cpp.llama_cpp._lib._name)]
    folders += filter(None, os.environ.get("OUTRIDER_BACKENDS", "").split(os.pathsep))
    found: dict[FileIdentity, Path] = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            for path in sorted(Path(folder).iterdir()):
                if any(name in path.name for name in ("ggml", "llama")) and is_file(path):
                    found.setdefault(FileIdentity.of(path), path)
    return [(path, identity) for identity, path in found.items()]


_N_SEQUENCE_MAX = 256
"""LLAMA_MAX_SEQ of llama.cpp (src/llama-cparams.h): the sequence numbers that a cell may have."""
_PARTIAL: int = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY
_PIECE_TOKENS = 256
"""Tokens of a piece of a state: some megabytes, so that a piece fits in memory beside the model."""

# llama_get_logits_ith for the address only: a ctypes pointer takes longer to make.
_logits_address = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32)(
    ctypes.cast(llama_cpp.llama_get_logits_ith, ctypes.c_void_p).value or 0
)


_keep_states = of_cpp(
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
    None,
    *(ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool),
)
_states_address = of_cpp(
    "_Z26llama_get_embeddings_nextnP13llama_context",
    "?llama_get_embeddings_nextn@@YAPEAMPEAUllama_context@@@Z",
    ctypes.c_void_p,
    ctypes.c_void_p,
)


def of_sequence(sequence: int, n: int) -> tuple[Any, Any]:
    """Return n_seq_id and seq_id of a llama_batch with n rows of a sequence."""
    one = (ctypes.c_int32 * 1)(sequence)
    pointer = ctypes.cast(one, ctypes.POINTER(ctypes.c_int32))
    return (ctypes.c_int32 * n)(*[1] * n), (ctypes.POINTER(ctypes.c_int32) * n)(*[pointer] * n)


@dataclass
class _Checkpoint:
    """The part of a sequence of n positions that cannot be cut.

    sequences: those that begin with these positions.

    is_step: the next one of its sequence takes its place. is_common: it leaves last.
    """

    number: int
    n: int
    state: NDArray[np.uint8]
    sequences: set[int]
    is_step: bool = False
    is_common: bool = False


def _bytes(state: NDArray[np.uint8]) -> Any:
    return state.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))


class Context:
    """A llama_context. Its sequences share its n_context cells.

    n_sequence: sequences that a pass may have, numbered from 0. With one, the context has
    llama.cpp's defaults: n_seq_max 1, kv_unified false. n_output: maximum of tokens of a pass with
    logits; 0: all. kv_type: type of the attention cache, the name of a ggml type. stop_flag: a
    backend._native.StopFlag; when set, it ends decode() with status 2. streams: every sequence has
    cells of its own, which none shares (kv_unified false): a pass then has equally many tokens of
    each of its sequences, which follow each other. offloads: a device computes a prompt's layers
    whose weights are in RAM, as by default in llama.cpp (op_offload).
    predicts: it computes the layer for multi-token prediction only, from tokens and the states
    before them. n_back: positions that can be removed at the end where layers have recurrent
    states, which takes a copy of them for each; others can always be removed, but for windows.
    n_checkpoint: copies of states that save() keeps. windows: layers with a sliding window keep the
    cells that it needs, in a ring, where that saves memory; not of streams, nor if it `predicts`.
    """

    def __init__(
        self,
        model: Model,
        *,
        n_context: int,
        n_ubatch: int,
        n_thread: int,
        callback: int | None = None,
        user_data: int | None = None,
        stop_flag: Any = None,
        n_output: int = 0,
        kv_type: str = "f16",
        n_sequence: int = 1,
        streams: bool = False,
        offloads: bool = False,
        predicts: bool = False,
        n_back: int = 0,
        n_checkpoint: int = 0,
        windows: bool = True,
    ) -> None:
        self._model = model
        self.shares = not streams
        n_cell = -(-n_context // CELL_STEP) * CELL_STEP
        n_each = 1 if model.architecture in CACHE_FOR_EACH else n_sequence
        self._n_ring = ring_cells(model.n_window, n_cell, n_ubatch, n_each)
        is_less = model.n_window > 0 and self._n_ring < n_cell
        self.has_ring: bool = windows and is_less and not (streams or predicts)
        """Whether cells before a window are used again, so that a sequence may lack some."""
        # Behind the sequences of passes: llama.cpp's cells have numbers for LLAMA_MAX_SEQ of them,
        # however many a pass may have. So the context of one answer is that of its defaults.
        stays = self.cuts_batches and not predicts
        is_cut = not (stays or streams or model.architecture in CACHE_FOR_EACH)
        self._spare = n_sequence if is_cut and n_sequence < _N_SEQUENCE_MAX else 0
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = n_context
        params.n_batch = n_ubatch
        params.n_ubatch = n_ubatch
        params.n_seq_max = n_sequence
        # Sequences of any length, and of shared beginnings.
        params.kv_unified = n_sequence > 1 and not streams
        params.swa_full = not self.has_ring  # True is llama.cpp's default
        params.n_threads = n_thread
        params.n_threads_batch = n_thread
        n_output = max(n_output, n_sequence) if n_output else 0  # llama.cpp asks for this
        params.n_outputs_max = params.n_outputs_max_per_seq = n_output
        if model.architecture in GOES_BACK:
            params.n_rs_seq = max(min(n_back, n_ubatch - 2), 0)  # llama.cpp asks for longer batches
        if kv_type != "f16":  # quantised values need flash attention
            params.type_k = params.type_v = getattr(llama_cpp, f"GGML_TYPE_{kv_type.upper()}")
            params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED
        if predicts:
            params.ctx_type = llama_cpp.LLAMA_CONTEXT_TYPE_MTP
        params.no_perf = True
        params.op_offload = offloads  # slots of the CPU's layers must stay in RAM
        if callback is not None:
            params.cb_eval = llama_cpp.ggml_backend_sched_eval_callback(callback)
            params.cb_eval_user_data = ctypes.c_void_p(user_data)
        if stop_flag is not None:
            params.abort_callback = llama_cpp.ggml_abort_callback(stop_flag.callback)
            params.abort_callback_data = ctypes.c_void_p(stop_flag.user_data)
        self._stop_flag = stop_flag  # the context refers to it
        self._params = params
        with log.captured(ERROR) as errors:
            self._pointer = llama_cpp.llama_init_from_model(model.pointer, params)
        if not self._pointer:
            raise LlamaError(text("engine.no_context", reason=reason_of(errors)))
        self.n_context: int = llama_cpp.llama_n_ctx(self._pointer)
        self.n_longest: int = min(self.n_context, model.n_context_trained or self.n_context)
        """The tokens that one conversation may have, as in llama.cpp's server."""
        self.n_output: int = n_output
        """The rows of a pass that may have logits; 0: all."""
        self.n_sequence: int = n_sequence
        self.n_ubatch: int = min(n_ubatch, llama_cpp.llama_n_batch(self._pointer))
        self._memory = llama_cpp.llama_get_memory(self._pointer)
        self._batch = llama_cpp.llama_batch_init(self.n_ubatch, 0, 1)
        self.pointer = self._pointer
        self.log: BatchLog | None = None
        self.past = Past()
        self._is_recurrent = self.cuts_batches and not predicts
        self._n_window = 0 if self._is_recurrent else model.n_window
        self._last_rows: list[tuple[int, int, int]] = []  # of the last pass, as of Past.add()
        has_states = (self._is_recurrent or self.has_ring) and self.shares
        self.n_checkpoint: int = n_checkpoint if has_states else 0
        # Sequences in a ring whose cells do not lie as in a fresh context, and whether all may.
        self._displaced: set[int] = set()
        self._has_wrapped = False
        self._checkpoints: list[_Checkpoint] = []  # those used last come last
        self._n_saved = 0
        self.keeps_last = predicts and model.architecture in KEEPS_LAST
        """Whether states() has those of the tokens with logits only."""
        if predicts:
            self.keep_states()

    def close(self) -> None:
        """Free the context."""
        if self._pointer is not None:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._pointer)
            self._pointer = None

    @property
    def is_open(self) -> bool:
        """Whether close() was not called yet."""
        return self._pointer is not None

    def write_to(self, log: BatchLog | None) -> None:
        """Write all later passes to a log. The context is empty."""
        self.log = log
        if log is not None:
            log.write("context", self.settings)

    @property
    def settings(self) -> dict[str, int | float]:
        """The parameters of the context that are not llama.cpp's defaults."""
        return settings_of(self._params, llama_cpp.llama_context_default_params())

    def void(self) -> None:
        """Note that the last pass was not computed as a whole, or not as llama.cpp would."""
        if self.log is not None:
            self.log.write("void")

    def _compute(
        self,
        batch: Any,
        rows: Iterable[tuple[int, int, int]],
        written: Callable[[], tuple[Any, ...]],
    ) -> int:
        """Compute a batch. Return llama_decode's status. Every pass goes through here.

        rows: of Past.add(). written: returns the pass as the log has it.
        """
        status = int(llama_cpp.llama_decode(self._pointer, batch))
        if self._is_recurrent:
            rows = self._last_rows = list(rows)
        if status == 0:
            rows = list(rows)
            self.past.add(rows)
            if self.has_ring and not self._has_wrapped:
                self._has_wrapped = any(self._lacks(*row[1:]) for row in rows)
        if self.log is not None:
            outputs = [i for i in range(batch.n_tokens) if batch.logits[i]] if status == 0 else []
            n_bytes = 4 * self._model.n_vocab
            found = [digest_at(self.logits_address(i), n_bytes) for i in outputs]
            self.log.write(*written(), status, found)
        return status

    def _remember(self, name: str, *arguments: int) -> bool:
        """Change what the context holds, with a function of llama_memory. Return its result.

        Every change goes through here.
        """
        done = getattr(llama_cpp, f"llama_memory_{name}")(self._memory, *arguments)
        if name == "seq_cp":
            self.past.copy(arguments[0], arguments[1], arguments[3])
            if arguments[0] in self._displaced:
                self._displaced.add(arguments[1])
        elif name == "clear":
            self.past.clear()
            self._displaced, self._has_wrapped = set(), False
        elif done:
            self.past.remove(*arguments)
            if arguments[1] <= 0 and arguments[2] < 0:
                self._displaced.discard(arguments[0])
        if self.log is not None:
            self.log.write(name, *arguments, done)
        if self._checkpoints:
            self._follow(name, *arguments, done=bool(done))
        return bool(done)

    def _follow(self, name: str, *arguments: int, done: bool) -> None:
        """Note which sequences still begin with the positions of each checkpoint."""
        for checkpoint in self._checkpoints:
            sequences = checkpoint.sequences
            if name == "clear":
                sequences.clear()
            elif name == "seq_cp":
                source, target, _, end = arguments
                if source in sequences and (end < 0 or end >= checkpoint.n):
                    sequences.add(target)
            elif done and checkpoint.n > arguments[1]:
                sequences.discard(arguments[0])
        for checkpoint in [c for c in self._checkpoints if not c.sequences]:
            self._drop(checkpoint)

    def _drop(self, checkpoint: _Checkpoint) -> None:
        self._checkpoints.remove(checkpoint)
        if self.log is not None:
            self.log.write("drop", checkpoint.number)

    def decode(self, tokens: Sequence[int], position: int, *, all_logits: bool = False) -> int:
        """Compute at most n_ubatch tokens from `position` on. Return llama_decode's status.

        Keep the last token's logits, or every token's.
        """
        end = position + len(tokens)
        places = zip(tokens, range(position, end), strict=True)
        return self.decode_rows([Row(t, at, 0, all_logits or at == end - 1) for t, at in places])

    def _written(self) -> tuple[str, list[Run]]:
        """Return the batch as the log has it: as llama.cpp gets it."""
        b = self._batch
        rows = range(b.n_tokens)
        return "pass", runs((b.token[i], b.pos[i], b.seq_id[i][0], b.logits[i]) for i in rows)

    def decode_rows(self, rows: Sequence[Row]) -> int:
        """Compute at most n_ubatch tokens of any sequences. Return llama_decode's status.

        The tokens of a sequence stand in the order of their positions.
        """
        computing()
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, row in enumerate(rows):
            batch.token[i] = row.token
            batch.pos[i] = row.position
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = row.sequence
            batch.logits[i] = row.has_logits
        of = ((row.token, row.position, row.sequence) for row in rows)
        return self._compute(batch, of, self._written)

    def decode_embeddings(
        self,
        embeddings: NDArray[np.float32],
        positions: NDArray[np.int32],
        part: tuple[int, int] = (0, 0),
        sequence: int = 0,
    ) -> int:
        """Compute at most n_ubatch embeddings of a sequence, such as an image's.

        embeddings: shape (n, n_embd). positions: shape (4, n); models without M-RoPE use the first
        row. part: the image's token, and the number of its embeddings before these. Return
        llama_decode's status. Keep the last one's logits.
        """
        places = np.ascontiguousarray(positions, np.int32)
        return self._decode_values(
            embeddings, places, with_logits=True, part=part, sequence=sequence
        )

    def predict(
        self,
        tokens: Sequence[int],
        states: NDArray[np.float32],
        position: int,
        sequence: int = 0,
        *,
        with_logits: bool,
    ) -> int:
        """Compute at most n_ubatch tokens of a context that `predicts`, from `position` on.

        states: of the token before each one, shape (n, n_state). with_logits: keep the last
        token's. Return llama_decode's status.
        """
        ids = np.asarray(tokens, np.int32)
        places = np.arange(position, position + len(ids), dtype=np.int32)
        return self._decode_values(states, places, ids, with_logits=with_logits, sequence=sequence)

    def _decode_values(
        self,
        values: NDArray[np.float32],
        positions: NDArray[np.int32],
        tokens: NDArray[np.int32] | None = None,
        *,
        with_logits: bool,
        part: tuple[int, int] = (0, 0),
        sequence: int = 0,
    ) -> int:
        """Compute rows of values, with their tokens if any. Return llama_decode's status."""
        computing()
        counts, sequences = of_sequence(sequence, len(values))
        rows, outputs = np.ascontiguousarray(values, np.float32), np.zeros(len(values), np.int8)
        outputs[-1] = with_logits
        ids = tokens if tokens is None else tokens.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))
        batch = llama_cpp.llama_batch(
            n_tokens=len(rows),
            token=ids,
            embd=rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
            pos=positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            n_seq_id=counts,
            seq_id=sequences,
            logits=outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )
        place = int(positions.flat[0])
        return self._compute(
            batch,
            [(-1, place, sequence)],
            lambda: ("image", sequence, *part, len(rows), place, digest(rows), digest(positions)),
        )

    @property
    def n_state(self) -> int:
        """The values of a token's hidden state."""
        return int(llama_cpp.llama_model_n_embd_out(self._model.pointer))

    def keep_states(self) -> None:
        """Keep the hidden state of every token of later passes. Raises LlamaError.

        The last layer then computes all tokens of a prompt, not only the last one.
        """
        if _keep_states is None or _states_address is None:
            raise LlamaError(text("draft.no_states"))
        _keep_states(self._pointer, True, self.keeps_last)
        if self.log is not None:
            self.log.write("keep_states")

    def states(self, n: int) -> NDArray[np.float32]:
        """Return a view of the hidden states of n tokens of the last pass, (n, n_state).

        n: all of them, or of those with logits if keeps_last.
        """
        n_value = n * self.n_state
        values: Any = (ctypes.c_float * n_value).from_address(_states_address(self._pointer))
        return np.frombuffer(values, np.float32).reshape(n, -1)

    def forget_from(self, position: int, sequence: int = 0) -> bool:
        """Remove the positions from this one on. If the model cannot, remove more; return False.

        Those are all positions of the sequence, or of all sequences with recurrent states.
        """
        can_forget = self._can_forget(position, sequence)
        if can_forget and self._remember("seq_rm", sequence, position, -1):
            if self._is_recurrent:
                self._last_rows = [row for row in self._last_rows if row[2] != sequence]
            return True
        if self._n_window:
            self._remember("seq_rm", sequence, -1, -1)
        else:
            self._remember("clear", True)
        return False

    def first(self, sequence: int) -> int:
        """Return the first position of a sequence that layers with a window still have; -1: none.

        They have all positions from there on (llama_kv_cache::apply_ubatch).
        """
        return int(llama_cpp.llama_memory_seq_pos_min(self._memory, sequence))

    def _lacks(self, position: int, sequence: int) -> bool:
        """Return whether the ring has used cells of a sequence, which has this position, again."""
        return position >= self._n_ring if self._is_recurrent else self.first(sequence) > 0

    def _can_forget(self, position: int, sequence: int) -> bool:
        """Return whether the positions from this one on can be removed.

        The next token needs a whole window before it. llama.cpp removes positions anyway, and
        would compute with a part of the window. It keeps recurrent states behind the tokens of the
        last pass only, yet goes back further when asked, to a wrong state
        (llama_memory_recurrent::seq_rm).
        """
        if position <= 0:
            return True
        if self._n_window:
            return 0 <= self.first(sequence) <= max(0, position + 1 - self._n_window)
        if not self._is_recurrent:
            return True
        n = int(llama_cpp.llama_memory_seq_pos_max(self._memory, sequence)) + 1 - position
        return n <= 0 or n < sum(row[2] == sequence for row in self._last_rows)

    def forget(self, sequence: int, begin: int, end: int) -> None:
        """Remove positions of a sequence; those behind them stay. Raises LlamaError."""
        if not self._remember("seq_rm", sequence, begin, end):
            raise LlamaError(text("group.not_sparse"))

    def copy_sequence(self, source: int, target: int, n: int) -> bool:
        """Let an empty sequence begin with the first n positions of another one.

        It has all positions of a stream, or where llama.cpp copies no part of a sequence: then
        go_back() cuts it. Return False where a window before them is not there; the sequence is
        then empty.
        """
        copies_part = self.shares and self._model.architecture not in CACHE_FOR_EACH
        end = n if copies_part else -1
        self._remember("seq_cp", source, target, 0, end)
        if not (self._n_window and self.shares):
            return True
        if not self._can_forget(n, target):
            return self.go_back(n, target)
        if not self.has_ring:
            return True
        # llama.cpp uses no cell of two sequences again, so the copy gets its own.
        own = self._checkpoint_of(target, n)
        is_own = own is not None and self._restore(own, target)
        if self.log is not None:
            self.log.write("drop", self._n_saved)
        if not is_own:
            self.forget_from(0, target)
        return is_own

    def save(
        self, sequence: int, n: int, *, is_step: bool = False, is_common: bool = False
    ) -> None:
        """Save what cannot be cut of the first n positions: recurrent states or the window.

        The attention cache can be cut, and keeps the positions. Recurrent states must be those
        behind the n positions. Where llama.cpp fails, or the window is not there any more, nothing
        is saved. Where there are n_checkpoint, a step of the sequence leaves, or the checkpoint
        that was used longest ago: a step of an agent is soon behind, a question may be edited. The
        beginning of other conversations leaves last.
        """
        if n in self.saved(sequence) or not self._can_forget(n, sequence):
            return
        self._make_room(sequence)
        with self._only(0, n, sequence):
            found = self._checkpoint_of(sequence, n)
        if found is not None:
            found.is_step, found.is_common = is_step, is_common
            self._checkpoints.append(found)

    def _checkpoint_of(self, sequence: int, n: int) -> _Checkpoint | None:
        """Return a new checkpoint of a sequence of n positions; None where llama.cpp fails."""
        size = llama_cpp.llama_state_seq_get_size_ext(self._pointer, sequence, _PARTIAL)
        state = np.empty(size, np.uint8)
        got = llama_cpp.llama_state_seq_get_data_ext(
            self._pointer, _bytes(state), size, sequence, _PARTIAL
        )
        self._n_saved += 1
        if self.log is not None:
            self.log.write("save", self._n_saved, sequence, digest(state), got == size)
        return _Checkpoint(self._n_saved, n, state, {sequence}) if got == size > 0 else None

    def _restore(self, checkpoint: _Checkpoint, sequence: int) -> bool:
        """Let a sequence have what was saved. Return False where llama.cpp fails."""
        state = checkpoint.state
        got = llama_cpp.llama_state_seq_set_data_ext(
            self._pointer, _bytes(state), len(state), sequence, _PARTIAL
        )
        if self.log is not None:
            self.log.write("restore", checkpoint.number, sequence, got == len(state))
        if self.has_ring:
            self._displaced.add(sequence)
        return bool(got == len(state))

    def _make_room(self, sequence: int) -> None:
        """Drop checkpoints until there is room for one more of a sequence."""
        while len(self._checkpoints) >= max(self.n_checkpoint, 1):
            steps = (c for c in self._checkpoints if c.is_step and sequence in c.sequences)
            others = (c for c in self._checkpoints if not c.is_common)
            self._drop(next(steps, next(others, self._checkpoints[0])))

    def checkpoint(self, sequence: int) -> tuple[int, bytes]:
        """Return the last checkpoint of a sequence with its positions; 0 if there is none."""
        of = [c for c in self._checkpoints if sequence in c.sequences]
        last = max(of, key=lambda c: c.n, default=None)
        return (last.n, last.state.tobytes()) if last is not None else (0, b"")

    def load(
        self, state: bytes | bytearray | memoryview, n: int, sequence: int, *, key: str
    ) -> None:
        """Have a checkpoint that another context has saved of the n positions of a sequence.

        key: the name in the log of the state that came with it.
        """
        if not self.n_checkpoint or n in self.saved(sequence):
            return
        self._make_room(sequence)
        self._n_saved += 1
        if self.log is not None:
            steps = self.past.steps(sequence, n)
            is_known = bool(steps) and all(step.tokens for step in steps)
            is_known = is_known and steps[-1].begin + len(steps[-1].tokens) == n
            data = "" if is_known else packed(bytes(state))
            self.log.write("load", self._n_saved, sequence, digest(state), key, n, data)
        saved = np.frombuffer(state, np.uint8).copy()
        self._checkpoints.append(_Checkpoint(self._n_saved, n, saved, {sequence}))

    def saved(self, sequence: int) -> list[int]:
        """Return the numbers of positions to which a sequence can go_back()."""
        return [c.n for c in self._checkpoints if sequence in c.sequences]

    def reachable(self, sequence: int, n: int) -> int:
        """Return the most of the first n positions, of which it has all, that it can go back to."""
        if not self._is_recurrent and self._can_forget(n, sequence):
            return n
        return max((saved for saved in self.saved(sequence) if saved <= n), default=0)

    def go_back(self, position: int, sequence: int = 0) -> bool:
        """Remove the positions from a reachable() one on. Where that fails, remove all of them."""
        if not self._is_recurrent and self._can_forget(position, sequence):
            if self.has_ring and self._lacks(position, sequence):
                self._displaced.add(sequence)
            return self.forget_from(position, sequence)
        of = [c for c in self._checkpoints if sequence in c.sequences and c.n == position]
        # llama.cpp cuts the attention only where no recurrent state lies behind.
        if (
            of
            and self._restore(of[0], sequence)
            and self._remember("seq_rm", sequence, position, -1)
        ):
            self._checkpoints.remove(of[0])
            self._checkpoints.append(of[0])
            return True
        self.forget_from(0, sequence)
        return False

    def take_back(self, position: int, sequence: int) -> int:
        """Go back to a checkpoint before a pass that failed at a position. Return what is left.

        Without a checkpoint that is nothing: recurrent states behind such a pass are not known.
        """
        n = self.reachable(sequence, position)
        if n and self.go_back(n, sequence):
            return n
        self.forget_from(0, sequence)
        return 0

    def clear(self) -> None:
        """Remove all positions of all sequences."""
        self._remember("clear", True)

    @property
    def arithmetic(self) -> tuple[object, ...]:
        """The parameters that decide the last bits of what this context computes, as JSON values.

        The threads are among them: ggml divides the attention of one token over 512 cells or more
        among them, and adds up their results.
        """
        p = self._params
        threads = int(p.n_threads), int(p.n_threads_batch)
        types = int(p.type_k), int(p.type_v), int(p.flash_attn_type)
        kinds = bool(p.op_offload), bool(p.kv_unified), p.n_seq_max > 1
        ring = (int(p.n_ubatch), int(p.n_seq_max)) if self.has_ring else ()
        return *threads, *types, *kinds, int(p.n_rs_seq), *ring

    @property
    def n_piece(self) -> int:
        """The most tokens of a piece of state(); 0: a piece has all tokens of its sequence.

        llama.cpp leaves out of a state what lies behind a sliding window, and a ring has only the
        last tokens.
        """
        n_most = min(self._n_window or _PIECE_TOKENS, _PIECE_TOKENS)
        return 1 << n_most.bit_length() - 1 if self._spare and not self.has_ring else 0

    def state(self, begin: int, end: int, sequence: int = 0) -> bytearray:
        """Return the state of these positions of a sequence; all of them where n_piece is 0.

        Empty if llama.cpp fails, or where layers with a window lack some of the last window.
        """
        first = max(begin, end + 1 - self._n_window)
        if self._n_window and not 0 <= self.first(sequence) <= first:
            return bytearray()
        with self._only(begin, end, sequence):
            n = llama_cpp.llama_state_seq_get_size(self._pointer, sequence)
            state = bytearray(n)
            buffer = (ctypes.c_uint8 * n).from_buffer(state)
            n_got = llama_cpp.llama_state_seq_get_data(self._pointer, buffer, n, sequence)
            if self.log is not None:
                whole = self._spare or sequence
                self.log.write("get", sequence, digest(state), n_got == n, whole)
        return state if n_got == n else bytearray()

    def made(self, begin: int, end: int, sequence: int = 0) -> Made:
        """Return how these positions of a sequence were computed; empty if it is not known.

        Where cells were used again, they do not lie as the same passes would have left them.
        """
        if self._has_wrapped or sequence in self._displaced:
            return UNKNOWN
        return self.past.made(sequence, begin, end, self.settings)

    def set_state(
        self,
        state: bytearray | memoryview,
        end: int,
        sequence: int = 0,
        *,
        begin: int = 0,
        steps: Sequence[Step] = (),
        key: str = "",
    ) -> bool:
        """Append a state of state() to a sequence, which then has `end` positions.

        begin, steps: its first position, and the passes that computed the sequence up to its end.
        key: its name in the log. Return False if llama.cpp refuses it; the sequence is then as
        before, or empty if n_piece is 0.
        """
        n = len(state)
        buffer = (ctypes.c_uint8 * n).from_buffer(state)
        spare = self._spare if self.n_piece else 0
        target = spare or sequence
        try:
            got = llama_cpp.llama_state_seq_set_data(self._pointer, buffer, n, target)
            last = int(llama_cpp.llama_memory_seq_pos_max(self._memory, target))
            is_right = got == n and last == end - 1
            is_known = is_right and self.past.restore(sequence, begin, steps)
            if self.log is not None:
                data = "" if is_known else packed(bytes(state))
                self.log.write("set", target, digest(state), is_right, key, end, data)
            if is_right and spare:
                self._remember("seq_cp", target, sequence, 0, end)
        finally:
            if spare:
                self._remember("seq_rm", target, -1, -1)
        if self.has_ring:
            self._displaced.add(sequence)
        if not is_right and not spare:
            self.forget_from(0, sequence)
        return is_right

    @contextlib.contextmanager
    def _only(self, begin: int, end: int, sequence: int) -> Iterator[None]:
        """Let a sequence have only these positions until the context ends.

        The spare sequence holds them all meanwhile. llama.cpp writes no state of the spare one
        itself, whose number is none of a pass. Where there is no spare one, do nothing.
        """
        if not self._spare:
            yield
            return
        self._remember("seq_cp", sequence, self._spare, -1, -1)
        try:
            self._remember("seq_rm", sequence, -1, begin)
            self._remember("seq_rm", sequence, end, -1)
            yield
        finally:
            self._remember("seq_rm", sequence, -1, -1)
            self._remember("seq_cp", self._spare, sequence, -1, -1)
            self._remember("seq_rm", self._spare, -1, -1)

    @property
    def cuts_batches(self) -> bool:
        """Whether llama.cpp computes sequences of different lengths one after the other.

        It does where layers have recurrent states.
        """
        of = llama_cpp.llama_model_is_recurrent, llama_cpp.llama_model_is_hybrid
        return any(is_so(self._model.pointer) for is_so in of)

    @property
    def n_back(self) -> int:
        """The positions that a recurrent state can go back; 0: none, or there is no such state."""
        return int(llama_cpp.llama_n_rs_seq(self._pointer)) if self.cuts_batches else 0

    @property
    def holds(self) -> bool:
        """Whether a sequence of passes can hold the recurrent state of another one."""
        return self.cuts_batches and self._model.architecture not in CACHE_FOR_EACH

    def logits_address(self, row: int = -1) -> int:
        """Return the address of a token's logits, n_vocab floats, until the next pass.

        row: the token's place in the pass; -1: the last one with logits.
        """
        return int(_logits_address(self._pointer, row))

    def log_probabilities(self, token: int, n: int, row: int = -1) -> list[tuple[int, float]]:
        """Return tokens with the logarithms of their probabilities, from a token's logits.

        `token` first, then the `n` most probable ones, without changes by a sampler.
        """
        logits = self.row_logits(row).astype(np.float64)
        logits -= logits.max()
        logits -= np.log(np.exp(logits).sum())
        n = min(n, len(logits))
        top = np.argpartition(-logits, n - 1)[:n]
        ids = [token, *(int(i) for i in sorted(top, key=lambda i: (-logits[i], i)))]
        return [(i, float(logits[i])) for i in ids]

    def most_probable(self) -> tuple[int, float]:
        """Return the most probable token after the last pass, and its probability."""
        logits = self.row_logits(-1)
        best = int(logits.argmax())
        return best, float(1 / np.exp(logits - logits[best]).sum())

    def row_logits(self, row: int) -> NDArray[np.float32]:
        """Return a view of the logits of a row of the last pass, valid until the next pass."""
        place = self.logits_address(row)
        values: Any = (ctypes.c_float * self._model.n_vocab).from_address(place)
        return np.frombuffer(values, np.float32)

    def logits(self, n_row: int) -> NDArray[np.float32]:
        """Return a copy of the first `n_row` rows of logits, shape (n_row, n_vocab)."""
        pointer = llama_cpp.llama_get_logits(self._pointer)
        n_vocab = self._model.n_vocab
        flat = np.ctypeslib.as_array(pointer, shape=(n_row * n_vocab,))
        return flat.reshape(n_row, n_vocab).copy()
