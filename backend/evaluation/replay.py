"""Computes a batch log again with stock llama.cpp, in a process of its own, and compares every bit.

Nothing of the engine takes part: this module loads neither the native part nor backend.llama.api.
It asks llama.cpp for the passes and memory operations of the log, and compares the logits of every
row. It also checks the passes against the requests: the rows of a sequence follow each other, they
are the prompt of an answer and the tokens that were sent, and the row that chose a token belongs to
its answer.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from backend import LLAMA_CPP_PYTHON_VERSION, check_llama_cpp
from backend.gguf.header import ModelFileError
from backend.gguf.model_file import read_model
from backend.gguf.tables import CACHE_FOR_EACH
from backend.llama import function_of, of_cpp
from backend.llama.batch_log import DamagedLog, digest, digest_at, read, unpacked
from backend.llama.guard import MEDIA
from backend.llama.past import Step, steps_of
from backend.system.pipes import die_with_parent
from backend.text import text, to_json

check_llama_cpp()

import llama_cpp  # noqa: E402  (after the check of the version)
from llama_cpp import mtmd_cpp as mtmd  # noqa: E402

from backend.evaluation.whole_windows import (  # noqa: E402
    WholeWindows,
    set_state,
    state_of,
)

_EXPERTS = rb"blk\.[0-9]+\.ffn_(gate|up|down|gate_up)_exps\.weight"
_USED_KEY = "expert_used_count"
_KEEP_STATES = (
    "_Z26llama_set_embeddings_nextnP13llama_contextbb",
    "?llama_set_embeddings_nextn@@YAXPEAUllama_context@@_N1@Z",
)

_ENDS_VERSION = 4
"""Logs from this version on have an entry at their end."""
_BUFFER_TYPE_BYTES = 8 * ctypes.sizeof(ctypes.c_void_p)
"""struct ggml_backend_buffer_type: six functions, a device and a context."""
_NO_CELL = 1
"""llama_decode's status where the context has no free cell for a row."""
_PARTIAL = llama_cpp.LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY

_OF_SEVERAL = ("n_seq_max", "kv_unified")
"""Settings of a context of several sequences that a context of one answer lacks."""
_SETTINGS = frozenset(
    "n_ctx n_batch n_ubatch n_threads n_threads_batch type_k type_v flash_attn_type no_perf "
    "op_offload n_outputs_max n_outputs_max_per_seq n_rs_seq swa_full".split()
) | set(_OF_SEVERAL)
"""The parameters of a context that an engine may choose. All others are llama.cpp's defaults."""

Hashes = list[str] | None
"""Checksums of the logits of a pass's rows; None: they are not compared."""


class Differs(ValueError):
    """The log is not what stock llama.cpp computes; the text is one sentence."""


class NotComputed(RuntimeError):
    """The log cannot be computed here; the text is one sentence."""


@dataclass
class Replayed:
    """The result of a comparison. difference: the first difference, "" if there is none.

    obstacle: why nothing is shown from some entry on, or "". n_void: passes that the engine did not
    compute as a whole, and took back. n_state: states from the drive that were computed, here or
    in a log before. n_taken: those that were computed beside others in a run that is not here.
    n_restored: checkpoints that a sequence went back to. remark: what the log may lack, or "".
    """

    n_pass: int = 0
    n_row: int = 0
    n_answer: int = 0
    n_token: int = 0
    n_void: int = 0
    n_state: int = 0
    n_taken: int = 0
    n_restored: int = 0
    difference: str = ""
    obstacle: str = ""
    remark: str = ""

    @property
    def is_same(self) -> bool:
        """Whether the whole log is what stock llama.cpp computes."""
        return not self.difference and not self.obstacle


@dataclass
class _Answer:
    """An answer so far: the tokens before its next one. chosen: not sent yet, or None."""

    tokens: list[int]
    is_greedy: bool
    chosen: int | None = None


@dataclass(frozen=True)
class _Row:
    """A row of the last pass. end: the positions of its sequence up to it."""

    sequence: int
    end: int
    has_logits: bool


@dataclass
class _Picture:
    """An image of a prompt. n_done: its rows that were computed in the present place."""

    chunk: Any
    n_token: int
    n_pos: int
    is_causal: bool
    n_done: int = 0
    rows: Any = None


@dataclass
class _Part:
    """A part of a conversation that was on the drive. state: as stock llama.cpp computes it.

    n_checkpoint, checkpoint: the tokens of its checkpoint, and the state that cannot be cut there.
    """

    parent: str
    begin: int
    tokens: list[int]
    made: dict[str, Any]
    n_checkpoint: int = 0
    state: bytes | None = None
    checkpoint: bytes = b""

    @property
    def end(self) -> int:
        """The position behind its last token."""
        return self.begin + len(self.tokens)


@dataclass
class _Held:
    """The tokens in the context by sequence and position; None was removed from the middle."""

    of: dict[int, list[int | None]] = field(default_factory=dict)

    def __getitem__(self, sequence: int) -> list[int | None]:
        return self.of.setdefault(sequence, [])

    def remove(self, sequence: int, begin: int, end: int) -> None:
        """Remove positions, as llama_memory_seq_rm: negative ones stand for the first and last."""
        for number in list(self.of) if sequence < 0 else [sequence]:
            tokens = self[number]
            first, last = max(begin, 0), len(tokens) if end < 0 else min(end, len(tokens))
            tokens[first:last] = [None] * max(last - first, 0)
            while tokens and tokens[-1] is None:
                tokens.pop()

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """Copy positions, as llama_memory_seq_cp."""
        if source == target:
            return
        tokens, found = self[target], self[source][: None if end < 0 else end]
        tokens += [None] * (len(found) - len(tokens))
        for place in range(max(begin, 0), len(found)):
            if found[place] is not None:
                tokens[place] = found[place]


@dataclass(frozen=True)
class _Checkpoint:
    """The state that cannot be cut, of a sequence with these tokens."""

    tokens: list[int | None]
    state: bytes


K = TypeVar("K")
V = TypeVar("V")


class _Logged(dict[K, V]):
    """Parts of a log by the names that later entries use."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, name: K) -> V:
        raise Differs(text("replay.no_such", name=f"{self._kind} {name}"))


Shown = dict[str, list[Any]]
"""States that stock llama.cpp has computed: the model and the tokens, by the hash of the state."""


class Replay:
    """Computes the entries of a log. Raises Differs and NotComputed.

    shown: gets the states that the log has saved, and has those of logs before it. logits: receives
    the logits of every row that wants them, n_vocab floats each.
    """

    def __init__(self, shown: Shown, logits: BinaryIO | None = None) -> None:
        self.found = Replayed()
        self._out = logits
        self._silence = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self._silence, ctypes.c_void_p(0))
        mtmd.mtmd_helper_log_set(self._silence, ctypes.c_void_p(0))
        self._kept: list[Any] = []  # what the model's parameters refer to
        self._model: Any = None
        self._context: Any = None
        self._whole: WholeWindows | None = None  # beside a context with a ring
        self._vision: Any = None
        self._batch: Any = None
        self._n_vocab = 0
        self._held = _Held()
        self._answers = _Logged[int, _Answer]("answer")
        # The answers of the rows of the next pass, as planned, with their numbers.
        self._owners: list[tuple[int, _Answer]] = []
        self._last: list[_Row] = []  # of the last pass, if it was computed as a whole
        self._pictures = _Logged[int, _Picture]("image")
        self._parts = _Logged[str, _Part]("state")  # by their keys
        self._checkpoints: dict[int, _Checkpoint] = {}  # by their numbers
        self._ends: dict[int, int] = {}  # of sequences that went back: the positions of their state
        self._several: list[bool] = []  # for each context: several sequences are in use
        self._shown = shown
        self._fingerprint = ""
        self._kernels = ""
        self._is_recurrent = False
        self._has_streams = False  # a state names the sequences that its context could have

    def close(self) -> None:
        """Free the model. A second call does nothing."""
        self._close_context()
        if self._vision:
            for picture in self._pictures.values():
                mtmd.mtmd_input_chunk_free(picture.chunk)
            mtmd.mtmd_free(self._vision)
        if self._model:
            llama_cpp.llama_model_free(self._model)
        self._model = self._vision = None
        self._pictures.clear()
        self._kept.clear()

    def compute(self, path: Path) -> None:
        """Compute the entries of a log and compare them with the recorded results.

        Raises Differs, NotComputed, DamagedLog and OSError.
        """
        self._several = _several(read(path))
        entries = read(path)
        entry = next(entries, None)
        if entry is not None and entry[1] >= _ENDS_VERSION:
            self.found.remark = text("replay.no_end")
        while entry is not None:
            following = next(entries, None)
            is_void = following is not None and following[0] == "void"
            name, *values = entry
            if name == "pass":
                self._pass(*values, is_void=is_void)
            elif name == "image":
                self._image(*values, is_void=is_void)
            elif name == "end":
                self.found.remark = ""
            elif name != "void":
                handle = getattr(self, f"_on_{name}", None)
                if handle is None:
                    raise NotComputed(text("replay.unknown", name=name))
                handle(*values)
            entry = following

    # The loaded model.

    def _on_log(self, _version: int, llama: str, kernels: str) -> None:
        if llama != LLAMA_CPP_PYTHON_VERSION:
            raise NotComputed(text("replay.version", found=LLAMA_CPP_PYTHON_VERSION, version=llama))
        self._kernels = kernels

    def _on_model(self, how: dict[str, Any]) -> None:
        self.close()
        try:
            file = read_model(Path(how["path"]))
        except ModelFileError as error:
            raise NotComputed(str(error)) from None
        if file.fingerprint != how["fingerprint"]:
            raise NotComputed(text("replay.other_model", file=file.path.name))
        self._fingerprint = file.fingerprint
        self._has_streams = file.architecture in CACHE_FOR_EACH
        params = llama_cpp.llama_model_default_params()
        for name, value in how["settings"].items():
            setattr(params, name, value)
        params.progress_callback = llama_cpp.llama_progress_callback()
        self._place(params, how)
        if how["n_expert_used"]:
            overrides: Any = (llama_cpp.llama_model_kv_override * 2)()
            overrides[0].tag = llama_cpp.LLAMA_KV_OVERRIDE_TYPE_INT
            overrides[0].key = f"{file.architecture}.{_USED_KEY}".encode()
            overrides[0].value.val_i64 = how["n_expert_used"]
            params.kv_overrides = overrides
            self._kept.append(overrides)
        self._model = llama_cpp.llama_model_load_from_file(os.fsencode(file.paths[0]), params)
        if not self._model:
            raise NotComputed(text("replay.no_model", file=file.path.name))
        self._n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))
        of = llama_cpp.llama_model_is_recurrent, llama_cpp.llama_model_is_hybrid
        self._is_recurrent = any(is_so(self._model) for is_so in of)
        if how["mmproj"]:
            self._see(how["mmproj"], how["n_thread"])

    def _place(self, params: Any, how: dict[str, Any]) -> None:
        """Set the devices, and the layout of the experts. Raises NotComputed for other kernels."""
        remote = _add_devices(how["backends"], how["device"])
        if self._kernels != llama_cpp.llama_print_system_info().decode(errors="replace"):
            raise NotComputed(text("replay.kernels"))
        by_name = function_of("ggml_backend_dev_by_name", ctypes.c_void_p, ctypes.c_char_p)
        pointers = [remote.get(key) or by_name(key.encode()) for key in how["devices"]]
        if not all(pointers):
            raise NotComputed(text("replay.no_device", device=", ".join(how["devices"])))
        devices = (ctypes.c_void_p * (len(pointers) + 1))(*pointers, None)
        params.devices = ctypes.addressof(devices)
        self._kept.append(devices)
        if how["shares"]:
            shares = (ctypes.c_float * llama_cpp.llama_max_devices())(*how["shares"])
            params.tensor_split = ctypes.cast(shares, ctypes.POINTER(ctypes.c_float))
            self._kept.append(shares)
        if how["experts_as_in_file"]:
            self._keep_layout(params, how["n_cpu_layer"])

    def _keep_layout(self, params: Any, n_layer: int) -> None:
        """Have the CPU compute the experts of its layers in the file's layout.

        llama.cpp chooses the fastest layout for the CPU's own type of buffer. A copy of that type
        has another address, so that llama.cpp takes the layout as it is.
        """
        get = function_of("ggml_backend_cpu_buffer_type")
        size = _BUFFER_TYPE_BYTES
        kind = (ctypes.c_char * size).from_buffer_copy(ctypes.string_at(get(), size))
        layers = b"(%s)" % b"|".join(b"%d" % number for number in range(n_layer))
        overrides = (_BufferOverride * 2)(
            _BufferOverride(_EXPERTS.replace(b"[0-9]+", layers), ctypes.addressof(kind)),
            _BufferOverride(None, None),
        )
        place = type(params).tensor_buft_overrides.offset + ctypes.addressof(params)
        ctypes.c_void_p.from_address(place).value = ctypes.addressof(overrides)
        self._kept += [kind, overrides]

    def _see(self, path: str, n_thread: int) -> None:
        params = mtmd.mtmd_context_params_default()
        params.use_gpu = params.print_timings = False
        params.n_threads = n_thread
        self._vision = mtmd.mtmd_init_from_file(os.fsencode(path), self._model, params)
        if not self._vision:
            raise NotComputed(text("replay.no_model", file=Path(path).name))

    def _on_context(self, settings: dict[str, Any]) -> None:
        self._close_context()
        self._held, self._last = _Held(), []
        self._checkpoints, self._ends = {}, {}
        is_ring = "swa_full" in settings  # its length depends on the sequences
        if not self._several.pop(0) and not self._has_streams and not is_ring:
            # One answer at a time gets the context that everybody's has, whatever the engine made.
            settings = {k: v for k, v in settings.items() if k not in _OF_SEVERAL}
        self._context = self._new_context(settings)
        if is_ring:
            whole = self._new_context({k: v for k, v in settings.items() if k != "swa_full"})
            self._whole = WholeWindows(whole, self._n_vocab)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = llama_cpp.llama_batch_init(llama_cpp.llama_n_batch(self._context), 0, 1)

    def _new_context(self, settings: dict[str, Any]) -> Any:
        params = llama_cpp.llama_context_default_params()
        for name, value in settings.items():
            if name not in _SETTINGS:
                raise NotComputed(text("replay.setting", name=name))
            setattr(params, name, value)
        context = llama_cpp.llama_init_from_model(self._model, params)
        if not context:
            raise NotComputed(text("replay.no_context"))
        return context

    def _close_context(self) -> None:
        if self._context:
            llama_cpp.llama_batch_free(self._batch)
            llama_cpp.llama_free(self._context)
        if self._whole is not None:
            self._whole.close()
        self._context = self._batch = self._whole = None

    def _on_keep_states(self) -> None:
        arguments = ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool
        of_cpp(*_KEEP_STATES, None, *arguments)(self._context, True, False)

    # Passes.

    def _on_plan(self, runs: list[list[int]], *_: Any) -> None:
        self._owners = [(number, self._answers[number]) for number, n in runs for _ in range(n)]

    def _require_own(self, rows: Sequence[_Row]) -> None:
        """Require that rows are tokens of the answers for which they were planned."""
        owners, self._owners = self._owners, []
        for i, ((number, answer), row) in enumerate(zip(owners, rows, strict=False)):
            tokens, position = answer.tokens, row.end - 1
            if position < len(tokens) and self._held[row.sequence][position] != tokens[position]:
                raise self._other_text(number, i, row.sequence, position)

    def _other_text(self, answer: int, row: int, sequence: int, position: int) -> Differs:
        """Return the error about a row that is no token of the answer for which it was planned."""
        place, number = len(self._answers[answer].tokens), self._number - 1
        return Differs(
            text(
                "replay.other_text",
                answer=answer,
                place=place,
                number=number,
                row=row,
                sequence=sequence,
                position=position,
            )
        )

    def _pass(self, runs: list[list[Any]], status: int, hashes: Hashes, *, is_void: bool) -> None:
        batch = self._batch
        rows: list[_Row] = []
        self._require_no_part_of_an_image()
        for sequence, position, tokens, has_logits in runs:
            n_held = self._ends.pop(sequence, len(self._held[sequence]))
            if position != n_held or position != len(self._held[sequence]):
                raise self._misplaced(sequence, position, n_held)
            if all(row.sequence != sequence for row in rows):
                self._require_window(sequence, position)
            for token in tokens:
                i = len(rows)
                batch.token[i], batch.pos[i] = token, len(self._held[sequence])
                batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
                batch.logits[i] = has_logits
                self._held[sequence].append(token)
                rows.append(_Row(sequence, len(self._held[sequence]), bool(has_logits)))
        batch.n_tokens = len(rows)
        self._require_own(rows)
        self._compute(batch, rows, status, hashes, is_void=is_void)

    def _require_window(self, sequence: int, position: int) -> None:
        """Require that a token at a position has all that layers with a sliding window see of it.

        llama.cpp removes and copies positions of a sequence whose window was used again.
        """
        n_window = llama_cpp.llama_model_n_swa(self._model)
        first = max(0, position + 1 - n_window)
        if n_window and None not in self._held[sequence][first:]:
            held = llama_cpp.llama_memory_seq_pos_min(self._memory, sequence)
            if position and not 0 <= held <= first:
                raise self._without_window(position, sequence)
            if position and self._whole is not None:
                window = functools.partial(state_of, self._context, sequence, _PARTIAL)
                self._whole.complete(sequence, first, window)

    def _compute(
        self, batch: Any, rows: list[_Row], status: int, hashes: Hashes, *, is_void: bool
    ) -> None:
        """Compute a batch, whose rows are held already, and compare the logits."""
        found = int(llama_cpp.llama_decode(self._context, batch))
        is_whole = self._whole is not None and self._whole.decode(batch)
        self._last = []
        if found == status == _NO_CELL:
            raise Differs(text("replay.no_cell", number=self._number))
        if status != 0 and found == 0:
            # llama.cpp has removed the rows of a pass that it did not complete.
            for sequence in {row.sequence for row in rows}:
                begin = min(row.end for row in rows if row.sequence == sequence) - 1
                if llama_cpp.llama_memory_seq_rm(self._memory, sequence, begin, -1):
                    self._held.remove(sequence, begin, -1)
                if self._whole is not None:
                    self._whole.remember("seq_rm", sequence, begin, -1)
        if status != 0 or is_void:
            self.found.n_void += 1
            return
        if found != 0:
            raise Differs(text("replay.status", number=self._number, status=found))
        numbers = [i for i, row in enumerate(rows) if row.has_logits]
        if self._out is not None:
            for i in numbers:
                self._out.write(self._logits(i).data)
            self._out.flush()  # verify uses them, too, where it ends this process
        if hashes is not None and len(numbers) != len(hashes):
            raise Differs(text("replay.rows", number=self._number, n=len(hashes), all=len(numbers)))
        for i, expected in zip(numbers, hashes or (), strict=hashes is not None):
            if digest_at(self._logits_address(i), 4 * self._n_vocab) != expected:
                row = rows[i]
                raise Differs(
                    text(
                        "replay.logits",
                        number=self._number,
                        row=i,
                        sequence=row.sequence,
                        position=row.end - 1,
                    )
                )
        if self._whole is not None and is_whole:
            for i in numbers:
                if not self._whole.agrees(i, self._logits(i)):
                    raise self._without_window(rows[i].end - 1, rows[i].sequence)
        self.found.n_row += len(numbers)
        self.found.n_pass += 1
        self._last = rows

    def _without_window(self, position: int, sequence: int) -> Differs:
        """Return the error about a row that lacks a part of its window."""
        number = self._number
        return Differs(text("replay.window", number=number, position=position, sequence=sequence))

    def _logits_address(self, row: int) -> int:
        found = llama_cpp.llama_get_logits_ith(self._context, row)
        return ctypes.cast(found, ctypes.c_void_p).value or 0

    @property
    def _number(self) -> int:
        """The number of the present pass, from 1."""
        return self.found.n_pass + self.found.n_void + 1

    def _misplaced(self, sequence: int, position: int, n: int) -> Differs:
        return Differs(
            text("replay.position", number=self._number, sequence=sequence, position=position, n=n)
        )

    def _on_rounds(self, why: str) -> None:
        if why == "hybrid":
            raise NotComputed(text("replay.hybrid"))
        if why:
            raise NotComputed(text("replay.cut"))

    # Memory.

    def _on_seq_rm(self, sequence: int, begin: int, end: int, logged: bool) -> None:
        # A context of one answer lacks the other sequences, which are empty: see _several().
        is_lacking = sequence >= int(llama_cpp.llama_n_seq_max(self._context))
        done = bool(llama_cpp.llama_memory_seq_rm(self._memory, sequence, begin, end)) or is_lacking
        if self._whole is not None:
            self._whole.remember("seq_rm", sequence, begin, end)
        if done:
            self._require_state(sequence, begin, end)
            self._held.remove(sequence, begin, end)
            self._leave_image()
            if begin <= 0 and end < 0:
                self._ends.pop(sequence, None)
        if done != logged:
            raise Differs(text("replay.memory", number=self._number, name="seq_rm"))

    def _require_state(self, sequence: int, begin: int, end: int) -> None:
        """Require that a recurrent state is known at the new end of a sequence.

        llama.cpp keeps states behind the tokens of the last pass only, yet goes back further when
        it is asked to.
        """
        is_part = self._is_recurrent and begin > 0 and end < 0
        n = len(self._held[sequence]) - begin
        if is_part and n > 0 and self._ends.get(sequence) != begin:
            if n >= sum(row.sequence == sequence for row in self._last):
                raise Differs(text("replay.checkpoint", number=self._number, sequence=sequence))

    def _on_seq_cp(self, source: int, target: int, begin: int, end: int, _logged: None) -> None:
        llama_cpp.llama_memory_seq_cp(self._memory, source, target, begin, end)
        if self._whole is not None:
            self._whole.remember("seq_cp", source, target, begin, end)
        self._held.copy(source, target, begin, end)
        self._ends.pop(target, None)

    def _on_clear(self, data: bool, _logged: None) -> None:
        llama_cpp.llama_memory_clear(self._memory, data)
        if self._whole is not None:
            self._whole.remember("clear", data)
        self._held, self._ends = _Held(), {}
        self._leave_image()

    # States.

    def _on_save(self, number: int, sequence: int, expected: str, is_whole: bool) -> None:
        state, tokens = state_of(self._context, sequence, _PARTIAL), list(self._held[sequence])
        if is_whole and digest(state) != expected:
            raise Differs(text("replay.state", begin=0, end=len(tokens)))
        self._checkpoints[number] = _Checkpoint(tokens, state)
        if self._whole is not None:
            self._whole.save(number, sequence)
        self._shown[expected] = [self._fingerprint, *tokens]

    def _on_load(
        self, number: int, sequence: int, expected: str, key: str, n: int, data: str
    ) -> None:
        tokens, part = self._held[sequence][:n], self._parts[key]
        if data:
            state = unpacked(data)
            is_shown = self._shown.get(digest(state)) == [self._fingerprint, *tokens]
            self.found.n_state += is_shown
            self.found.n_taken += not is_shown
        else:
            if part.state is None:
                self._compute_parts(part)
            state = part.checkpoint
            if n != part.n_checkpoint or digest(state) != expected:
                raise Differs(text("replay.state", begin=0, end=n))
            self.found.n_state += 1
        self._checkpoints[number] = _Checkpoint(list(tokens), state)

    def _on_restore(self, number: int, sequence: int, is_right: bool) -> None:
        """Restore a checkpoint. The tokens behind it are to be removed before the next pass."""
        if not is_right:
            return
        saved, held = self._checkpoints.get(number), self._held[sequence]
        if saved is None or held[: len(saved.tokens)] != saved.tokens:
            raise Differs(text("replay.checkpoint", number=self._number, sequence=sequence))
        if not set_state(self._context, sequence, saved.state, _PARTIAL):
            raise Differs(text("replay.memory", number=self._number, name="state_seq_set_data"))
        if self._whole is not None:
            self._whole.restore(number, sequence, saved.state)
        self._ends[sequence] = len(saved.tokens)
        self.found.n_restored += 1

    def _on_drop(self, number: int) -> None:
        self._checkpoints.pop(number, None)
        if self._whole is not None:
            self._whole.drop(number)

    def _on_get(self, sequence: int, expected: str, is_whole: bool, of: int) -> None:
        state, tokens = state_of(self._context, sequence), self._held[sequence]
        if is_whole and digest(state) != expected:
            begin = next((i for i, token in enumerate(tokens) if token is not None), 0)
            raise Differs(text("replay.state", begin=begin, end=len(tokens)))
        self._shown[expected] = [self._fingerprint, *self._held[of][: len(tokens)]]

    def _on_kept(
        self,
        key: str,
        parent: str,
        begin: int,
        tokens: list[int],
        made: dict[str, Any],
        n_checkpoint: int = 0,
    ) -> None:
        self._parts.setdefault(key, _Part(parent, begin, tokens, made, n_checkpoint))

    def _on_set(
        self, sequence: int, expected: str, is_right: bool, key: str, end: int, data: str
    ) -> None:
        if not is_right:
            return
        part = self._parts.get(key)
        if data:
            state = unpacked(data)
            parts = self._chain(part) if part is not None else []
            tokens = [self._fingerprint, *(token for each in parts for token in each.tokens)]
            is_shown = self._shown.get(digest(state)) == tokens
            self.found.n_state += is_shown
            self.found.n_taken += not is_shown
        else:
            assert part is not None
            if part.state is None:
                self._compute_parts(part)
            state = part.state or b""
            if digest(state) != expected:
                raise Differs(text("replay.state", begin=part.begin, end=end))
            self.found.n_state += 1
        if not set_state(self._context, sequence, state):
            raise Differs(text("replay.memory", number=self._number, name="state_seq_set_data"))
        if self._whole is not None:
            self._whole.set(sequence, state)
        begin, held = (part.begin, part.tokens) if part is not None else (0, [])
        self._held.of[sequence] = [None] * begin + list(held)

    def _chain(self, last: _Part) -> list[_Part]:
        """Return a part and those before it, from the first on."""
        parts = [last]
        while parts[0].begin:
            parts.insert(0, self._parts[parts[0].parent])
        return parts

    def _compute_parts(self, last: _Part) -> None:
        """Compute the states of a part and of those before it, by the passes that they name."""
        parts = self._chain(last)
        context: Any = None
        spare, step, n_done = 0, Step(0), 0
        try:
            for i, part in enumerate(parts):
                if context is None or part.made["context"] != parts[i - 1].made["context"]:
                    if context is not None:
                        _take(context, parts[:i], spare)
                        llama_cpp.llama_free(context)
                    context = self._new_context(part.made["context"])
                    # A number that no pass has; cells have a place for it, as in the engine.
                    spare = int(llama_cpp.llama_n_seq_max(context)) if len(parts) > 1 else 0
                    memory = llama_cpp.llama_get_memory(context)
                    for before in parts[:i]:
                        assert before.state is not None
                        set_state(context, spare, before.state)
                        if spare:
                            llama_cpp.llama_memory_seq_cp(memory, spare, 0, 0, before.end)
                            llama_cpp.llama_memory_seq_rm(memory, spare, -1, -1)
                for following in steps_of(part.made, part.begin):
                    if following == step:
                        continue
                    step = following
                    if step.begin < n_done:
                        llama_cpp.llama_memory_seq_rm(memory, 0, step.begin, -1)
                    self._compute_step(context, step)
                    n_done = step.begin + len(step.tokens)
                    if n_done == part.n_checkpoint:
                        part.checkpoint = state_of(context, 0, _PARTIAL)
            if last.end < n_done:
                llama_cpp.llama_memory_seq_rm(memory, 0, last.end, -1)
            _take(context, parts, spare)
        finally:
            if context is not None:
                llama_cpp.llama_free(context)

    def _compute_step(self, context: Any, step: Step) -> None:
        batch = llama_cpp.llama_batch_init(len(step.tokens), 0, 1)
        batch.n_tokens = len(step.tokens)
        for i, token in enumerate(step.tokens):
            batch.token[i], batch.pos[i] = token, step.begin + i
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, 0
            batch.logits[i] = i == len(step.tokens) - 1
        status = llama_cpp.llama_decode(context, batch)
        llama_cpp.llama_batch_free(batch)
        if status != 0:
            raise Differs(text("replay.status", number=self._number, status=status))

    # Answers.

    def _on_answer(self, number: int, tokens: list[int], _n_prompt: int, is_greedy: bool) -> None:
        self._answers[number] = _Answer(tokens, is_greedy)
        self.found.n_answer += 1

    def _on_chose(self, number: int, row: int, token: int) -> None:
        answer = self._answers[number]
        if row < 0:
            row = max((i for i, r in enumerate(self._last) if r.has_logits), default=-1)
        if not 0 <= row < len(self._last) or not self._last[row].has_logits:
            raise Differs(text("replay.no_row", answer=number, row=row))
        of = self._last[row]
        held = self._held[of.sequence][: of.end]
        if not _is_text(held, answer.tokens):
            pairs = enumerate(zip(held, answer.tokens, strict=False))
            at = next((i for i, (a, b) in pairs if a != b), min(len(held), len(answer.tokens)))
            raise self._other_text(number, row, of.sequence, at)
        if answer.is_greedy:
            best = int(self._logits(row).argmax())
            if best != token:
                raise Differs(text("replay.not_best", answer=number, token=token, best=best))
        answer.chosen = token
        self.found.n_token += 1

    def _logits(self, row: int) -> Any:
        address = self._logits_address(row)
        values: Any = (ctypes.c_float * self._n_vocab).from_address(address)
        return np.frombuffer(values, np.float32)

    def _on_sent(self, number: int, token: int) -> None:
        answer = self._answers[number]
        if answer.chosen != token:
            chosen = "-" if answer.chosen is None else answer.chosen
            raise Differs(text("replay.sent", answer=number, token=token, chosen=chosen))
        answer.chosen = None
        answer.tokens.append(token)

    # Images.

    def _on_picture(self, width: int, height: int, data: str, chunks: Sequence[Any]) -> None:
        rgb = unpacked(data)
        pixels = (ctypes.c_uint8 * len(rgb)).from_buffer_copy(rgb)
        bitmap, output = mtmd.mtmd_bitmap_init(width, height, pixels), mtmd.mtmd_input_chunks_init()
        marker = MEDIA.encode()
        prompt = mtmd.mtmd_input_text(marker, len(marker), False, True)
        bitmaps = (mtmd.mtmd_bitmap_p_ctypes * 1)(bitmap)
        status = mtmd.mtmd_tokenize(self._vision, output, ctypes.byref(prompt), bitmaps, 1)
        n = mtmd.mtmd_input_chunks_size(output) if status == 0 else -1
        if n != len(chunks):
            raise Differs(text("replay.picture"))
        for i, logged in enumerate(chunks):
            chunk = mtmd.mtmd_input_chunks_get(output, i)
            is_image = mtmd.mtmd_input_chunk_get_tokens_image(chunk) is not None
            if is_image != isinstance(logged, dict):
                raise Differs(text("replay.picture"))
            if not isinstance(logged, dict):
                n_text = ctypes.c_size_t()
                tokens = mtmd.mtmd_input_chunk_get_tokens_text(chunk, ctypes.byref(n_text))
                if list(tokens[: n_text.value] if tokens else []) != logged:
                    raise Differs(text("replay.picture"))
                continue
            self._pictures.setdefault(
                logged["token"],
                _Picture(
                    mtmd.mtmd_input_chunk_copy(chunk),
                    mtmd.mtmd_input_chunk_get_n_tokens(chunk),
                    mtmd.mtmd_input_chunk_get_n_pos(chunk),
                    not mtmd.mtmd_decode_use_non_causal(self._vision, None),
                ),
            )
        mtmd.mtmd_input_chunks_free(output)
        mtmd.mtmd_bitmap_free(bitmap)

    def _image(
        self,
        sequence: int,
        token: int,
        begin: int,
        n_row: int,
        position: int,
        values: str,
        places: str,
        status: int,
        hashes: Hashes,
        *,
        is_void: bool,
    ) -> None:
        """Compute rows of an image with stock llama.cpp's own embeddings and positions."""
        picture, held = self._pictures[token], self._held[sequence]
        n_held = self._ends.pop(sequence, len(held))
        if begin != picture.n_done:
            raise Differs(
                text("replay.image_rows", number=self._number, n=begin, all=picture.n_done)
            )
        rows = np.ascontiguousarray(self._embeddings(picture)[begin : begin + n_row])
        positions = self._positions(picture, len(held))[:, begin : begin + n_row]
        positions = np.ascontiguousarray(positions)
        is_there = n_held == len(held) and position == int(positions.flat[0])
        if not is_there or digest(positions) != places:
            raise self._misplaced(sequence, position, n_held)
        if begin == 0:
            self._require_window(sequence, position)
        if digest(rows) != values:
            raise Differs(text("replay.image_values", number=self._number))
        picture.n_done += len(rows)
        outputs = np.zeros(len(rows), np.int8)
        outputs[-1] = 1
        counts = (ctypes.c_int32 * len(rows))(*[1] * len(rows))
        number = ctypes.pointer(ctypes.c_int32(sequence))
        numbers = (ctypes.POINTER(ctypes.c_int32) * len(rows))(*[number] * len(rows))
        batch = llama_cpp.llama_batch(
            n_tokens=len(rows),
            token=None,
            embd=rows.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
            pos=positions.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)),
            n_seq_id=counts,
            seq_id=numbers,
            logits=outputs.ctypes.data_as(ctypes.POINTER(ctypes.c_int8)),
        )
        end = len(held) + picture.n_pos
        if picture.n_done == picture.n_token:
            held += [token] * picture.n_pos
            picture.n_done = 0
        of = [_Row(sequence, end, has_logits=bool(flag)) for flag in outputs]
        llama_cpp.llama_set_causal_attn(self._context, picture.is_causal)
        if self._whole is not None:
            self._whole.is_causal(picture.is_causal)
        self._compute(batch, of, status, hashes, is_void=is_void)
        llama_cpp.llama_set_causal_attn(self._context, True)
        if self._whole is not None:
            self._whole.is_causal(True)

    def _embeddings(self, picture: _Picture) -> Any:
        if picture.rows is None:
            if mtmd.mtmd_encode_chunk(self._vision, picture.chunk) != 0:
                raise NotComputed(text("replay.picture"))
            n_embd = llama_cpp.llama_model_n_embd_inp(self._model)
            found: Any = mtmd.mtmd_get_output_embd(self._vision)
            flat = np.ctypeslib.as_array(found, shape=(picture.n_token * n_embd,))
            picture.rows = flat.reshape(picture.n_token, n_embd).copy()
        return picture.rows

    def _positions(self, picture: _Picture, position: int) -> Any:
        """Return the positions of an image's rows, shape (4, n_token)."""
        rows = np.zeros((4, picture.n_token), np.int32)
        if not mtmd.mtmd_decode_use_mrope(self._vision):
            rows[0] = np.arange(position, position + picture.n_token)
            return rows
        tokens = mtmd.mtmd_input_chunk_get_tokens_image(picture.chunk)
        for i in range(picture.n_token):
            at = mtmd.mtmd_image_tokens_get_decoder_pos(tokens, position, i)
            rows[:, i] = at.t, at.y, at.x, at.z
        return rows

    def _require_no_part_of_an_image(self) -> None:
        for picture in self._pictures.values():
            if picture.n_done:
                raise Differs(
                    text(
                        "replay.image_rows",
                        number=self._number,
                        n=picture.n_token,
                        all=picture.n_done,
                    )
                )

    def _leave_image(self) -> None:
        for picture in self._pictures.values():
            picture.n_done = 0


def _take(context: Any, parts: Sequence[_Part], spare: int) -> None:
    """Copy the states of parts of sequence 0 out of a context.

    spare: a sequence that holds the others meanwhile; 0: a part is the whole sequence.
    """
    memory = llama_cpp.llama_get_memory(context)
    for part in parts:
        if spare:
            llama_cpp.llama_memory_seq_cp(memory, 0, spare, -1, -1)
            llama_cpp.llama_memory_seq_rm(memory, 0, -1, part.begin)
            llama_cpp.llama_memory_seq_rm(memory, 0, part.end, -1)
        part.state = state_of(context, 0)
        if spare:
            llama_cpp.llama_memory_seq_rm(memory, 0, -1, -1)
            llama_cpp.llama_memory_seq_cp(memory, spare, 0, -1, -1)
            llama_cpp.llama_memory_seq_rm(memory, spare, -1, -1)


def _several(entries: Iterator[list[Any]]) -> list[bool]:
    """Return whether other sequences than 0 are in use, for each context of a log."""
    found: list[bool] = []
    n_sequence = 0
    with contextlib.suppress(DamagedLog):  # what is before the damage is computed
        for name, *values in entries:
            if name == "context":
                found.append(False)
                n_sequence = values[0].get("n_seq_max", 1)
            elif name == "seq_cp" and 0 < max(values[:2]) < n_sequence:
                found[-1] = True  # not one behind those of passes
            elif name == "pass" and any(run[0] for run in values[0]):
                found[-1] = True
            elif name == "image" and values[0]:
                found[-1] = True
    return found


@functools.cache
def _load_backend(path: str) -> None:
    """Load a library with a backend, once for all logs."""
    function_of("ggml_backend_load", ctypes.c_void_p, ctypes.c_char_p)(os.fsencode(path))


def _add_devices(backends: Sequence[str], option: str) -> dict[str, int]:
    """Load libraries with backends, and name the devices of other machines to ggml.

    Return the pointers of these devices by backend.memory.devices.Device.key.
    """
    found: dict[str, int] = {}
    pointer, name = ctypes.c_void_p, ctypes.c_char_p
    for path in backends:
        _load_backend(path)
    for part in option.split(","):
        if not part.startswith("rpc://"):
            continue
        register = function_of("ggml_backend_reg_by_name", pointer, name)
        find = function_of("ggml_backend_reg_get_proc_address", pointer, pointer, name)
        address = find(register(b"RPC"), b"ggml_backend_rpc_add_server")
        add = ctypes.CFUNCTYPE(pointer, name)(address)
        server = add(part.removeprefix("rpc://").encode())
        if not server:
            raise NotComputed(text("replay.no_device", device=part))
        count = function_of("ggml_backend_reg_dev_count", ctypes.c_size_t, pointer)
        get = function_of("ggml_backend_reg_dev_get", pointer, pointer, ctypes.c_size_t)
        add_device = function_of("ggml_backend_device_register", None, pointer)
        for i in range(count(server)):
            add_device(get(server, i))
            found[f"{part}/{i}"] = get(server, i)
    return found


def _is_text(held: Sequence[int | None], tokens: Sequence[int]) -> bool:
    """Return whether a sequence holds these tokens; those that were removed may be any."""
    if len(held) != len(tokens):
        return False
    return held == tokens or all(a in (None, b) for a, b in zip(held, tokens, strict=True))


class _BufferOverride(ctypes.Structure):
    """struct llama_model_tensor_buft_override."""

    _fields_ = [("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p)]


def replay(path: Path, shown: Shown, logits: BinaryIO | None = None) -> Replayed:
    """Compute a log again, as Replay. Raises OSError where it cannot be read."""
    computed = Replay(shown, logits)
    try:
        computed.compute(path)
    except Differs as error:
        computed.found.difference = str(error)
    except (DamagedLog, NotComputed) as error:
        computed.found.obstacle = str(error)
    finally:
        computed.close()
    return computed.found


def main() -> int:
    """Compute the logs that the command line names. Print a line of JSON for each.

    `--logits FILE LOG` also writes the logits of a log.
    """
    die_with_parent()
    names, shown = sys.argv[1:], Shown()
    if names[:1] == ["--logits"]:
        with Path(names[1]).open("wb") as out:
            print(json.dumps(to_json(asdict(replay(Path(names[2]), shown, out)))))
        return 0
    all_same = True
    for name in names:
        try:
            found = replay(Path(name), shown)
        except OSError as error:
            reason = error.strerror or str(error)
            found = Replayed(obstacle=text("file.not_read", file=name, reason=reason))
        print(json.dumps(to_json(asdict(found))), flush=True)
        all_same = all_same and found.is_same
    return 0 if all_same else 1


if __name__ == "__main__":
    sys.exit(main())
