"""Run a model through unpatched llama.cpp: return its logits and its routers' choices."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _TensorHead(ctypes.Structure):
    """The leading fields of struct ggml_tensor (ggml.h)."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    ]


def stock_logits(
    path: Path, tokens: Sequence[int], *, n_threads: int = 1, n_ctx: int = 512
) -> NDArray[np.float32]:
    """Decode tokens in one batch. Return the logits of every position, (n_token, n_vocab).

    Raise RuntimeError if llama.cpp does not load the file or does not decode.
    """
    return logits_of_each(path, [tokens], n_threads=n_threads, n_ctx=n_ctx)[0]


def logits_of_each(
    path: Path, texts: Sequence[Sequence[int]], *, n_threads: int = 1, n_ctx: int = 512
) -> list[NDArray[np.float32]]:
    """Do so for several texts, one after the other, each in an empty context."""
    found = []
    with _context(path, n_threads, n_ctx, None) as (llama_cpp, context, n_vocab):
        for tokens in texts:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
            _decode(llama_cpp, context, tokens)
            flat = np.ctypeslib.as_array(
                llama_cpp.llama_get_logits(context), shape=(len(tokens) * n_vocab,)
            )
            found.append(flat.reshape(len(tokens), n_vocab).copy())
    return found


def routed_experts(
    path: Path, tokens: Sequence[int], *, n_threads: int = 1, n_ctx: int = 512
) -> dict[int, NDArray[np.int32]]:
    """Decode tokens in one batch. Return each layer's chosen experts, (n_token, n_expert_used).

    If an architecture routes twice in a layer, return the last choice.
    """
    chosen: dict[int, NDArray[np.int32]] = {}
    ggml = _ggml_base()

    def watch(address: int, ask: bool, _user_data: int | None) -> bool:
        found = re.fullmatch(rb"ffn_moe_topk-(\d+)", ggml.ggml_get_name(address))
        if found and not ask:
            chosen[int(found[1])] = _read_ids(ggml, address)
        return found is not None

    with _context(path, n_threads, n_ctx, watch) as (llama_cpp, context, _):
        _decode(llama_cpp, context, tokens)
    return chosen


def llama_architectures() -> dict[str, bool]:
    """Return the architectures of the installed llama.cpp, and whether each is a diffusion model's.

    The library exports both functions of src/llama-arch.h, whose numbers begin with 0.
    """
    import llama_cpp  # heavy: not needed to write models

    library = ctypes.CDLL(llama_cpp.llama_cpp._lib._name)
    name_of = library._Z13llm_arch_name8llm_arch
    name_of.restype = ctypes.c_char_p
    is_diffusion = library._Z21llm_arch_is_diffusionRK8llm_arch
    is_diffusion.restype = ctypes.c_bool
    every = (name_of(number).decode() for number in itertools.count())
    names = itertools.takewhile(lambda name: name != "(unknown)", every)
    return {
        name: bool(is_diffusion(ctypes.byref(ctypes.c_int(number))))
        for number, name in enumerate(names)
    }


def _read_ids(ggml: Any, address: int) -> NDArray[np.int32]:
    """Read an int32 matrix that may be a view into longer rows."""
    head = _TensorHead.from_address(address)
    n_used, n_token, row_bytes = head.ne[0], head.ne[1], head.nb[1]
    rows = np.empty((n_token, n_used), dtype=np.int32)
    for token in range(n_token):
        ggml.ggml_backend_tensor_get(
            address, rows[token].ctypes.data, token * row_bytes, n_used * 4
        )
    return rows


def _ggml_base() -> Any:
    """Return ggml-base by its file's name, the copy that llama.cpp has loaded."""
    import llama_cpp  # heavy: not needed to write models

    folder = Path(llama_cpp.__file__).parent / "lib"
    name = "ggml-base.dll" if sys.platform == "win32" else "libggml-base.so.0"
    ggml = ctypes.CDLL(str(folder / name))
    ggml.ggml_get_name.argtypes = [ctypes.c_void_p]
    ggml.ggml_get_name.restype = ctypes.c_char_p
    ggml.ggml_backend_tensor_get.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_size_t] * 2
    ggml.ggml_backend_tensor_get.restype = None
    return ggml


def _decode(llama_cpp: Any, context: Any, tokens: Sequence[int]) -> None:
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    try:
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i] = token
            batch.pos[i] = i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = 1
        status = llama_cpp.llama_decode(context, batch)
    finally:
        llama_cpp.llama_batch_free(batch)
    if status != 0:
        raise RuntimeError(f"llama_decode returned {status}")


@contextlib.contextmanager
def _context(path: Path, n_threads: int, n_ctx: int, watch: Any) -> Iterator[tuple[Any, Any, int]]:
    """Load a model and make a context. watch is a Python eval callback or None."""
    import llama_cpp  # heavy: not needed to write models

    messages: list[str] = []

    def collect(_level: int, text: bytes, _user_data: int | None) -> None:
        messages.append(text.decode(errors="replace"))

    log = llama_cpp.llama_log_callback(collect)
    llama_cpp.llama_log_set(log, ctypes.c_void_p(0))
    model = context = None
    try:
        model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        if not model:
            raise RuntimeError("llama.cpp did not load it: " + "".join(messages[-4:]))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = n_ctx
        params.n_threads = params.n_threads_batch = n_threads
        if watch is not None:
            callback = llama_cpp.llama_cpp.ggml_backend_sched_eval_callback(watch)
            params.cb_eval = callback
        context = llama_cpp.llama_init_from_model(model, params)
        if not context:
            raise RuntimeError("llama.cpp made no context: " + "".join(messages[-4:]))
        n_vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        yield llama_cpp, context, n_vocab
    finally:
        if context:
            llama_cpp.llama_free(context)
        if model:
            llama_cpp.llama_model_free(model)
        _silence(llama_cpp)


def _silence(llama_cpp: Any) -> None:
    """Install a log callback that outlives this call and drops all messages."""
    llama_cpp.llama_log_set(_drop_callback(llama_cpp), ctypes.c_void_p(0))


_kept: list[Any] = []  # keeps the callback alive


def _drop_callback(llama_cpp: Any) -> Any:
    if not _kept:
        _kept.append(llama_cpp.llama_log_callback(lambda _level, _text, _user_data: None))
    return _kept[0]
