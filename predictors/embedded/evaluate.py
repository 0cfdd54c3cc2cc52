"""Measure the exported file through stock llama.cpp: bits per byte, expert use, samples.

The figures hold for the file that ships: quantised weights in llama.cpp's arithmetic. An
evaluation callback reads expert use from the graph's `ffn_moe_topk` tensors.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from predictors.embedded import quiz
from predictors.embedded.prepare import read_rows
from predictors.embedded.prompts import OTHER_PROMPTS, PROMPTS, SAMPLE_SETTINGS

EVAL_WIKITEXT = Path("eval-wikitext2") / "test.txt"


class GgmlTensor(ctypes.Structure):
    """The leading fields of ggml_tensor (ggml.h) that this module needs."""

    _fields_ = [
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    ]


class ExpertUse:
    """Count the chosen experts per layer, and those that a token shares with the previous one."""

    def __init__(self, n_layer: int, n_expert: int) -> None:
        self.count = np.zeros((n_layer, n_expert), dtype=np.int64)
        self.shared = np.zeros(n_layer)
        self.n_pair = np.zeros(n_layer, dtype=np.int64)
        self.callback = llama_cpp.ggml_backend_sched_eval_callback(self._see)

    def _see(self, pointer: int, ask: bool, data: object) -> bool:
        tensor = ctypes.cast(pointer, ctypes.POINTER(GgmlTensor)).contents
        name = bytes(tensor.name)
        if not name.startswith(b"ffn_moe_topk-"):
            return not ask
        if not ask:
            layer = int(name.split(b"-")[1])
            n_used, n_token, stride = tensor.ne[0], tensor.ne[1], tensor.nb[1]
            raw = (ctypes.c_byte * (stride * (n_token - 1) + 4 * n_used)).from_address(tensor.data)
            flat = np.frombuffer(raw, dtype=np.int32)
            chosen = np.lib.stride_tricks.as_strided(flat, (n_token, n_used), (stride, 4)).copy()
            self.count[layer] += np.bincount(chosen.ravel(), minlength=self.count.shape[1])
            same = (chosen[1:, :, None] == chosen[:-1, None, :]).sum()
            self.shared[layer] += same / n_used
            self.n_pair[layer] += max(0, n_token - 1)
        return True

    def table(self) -> list[dict[str, float]]:
        """Return, per layer, the least and greatest share (1 is even) and the overlap."""
        even = self.count.sum(1, keepdims=True) / self.count.shape[1]
        share = self.count / np.maximum(even, 1)
        overlap = self.shared / np.maximum(self.n_pair, 1)
        return [
            {
                "layer": i,
                "share_min": round(float(share[i].min()), 3),
                "share_max": round(float(share[i].max()), 3),
                "overlap": round(float(overlap[i]), 3),
            }
            for i in range(len(share))
        ]


class Scorer:
    """Score texts with the exported file, and watch the routing."""

    def __init__(self, path: Path, n_thread: int) -> None:
        logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise ValueError(f"llama.cpp cannot load {path}")
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.n_vocab = llama_cpp.llama_vocab_n_tokens(self.vocab)
        self.n_ctx = llama_cpp.llama_model_n_ctx_train(self.model)
        self.use = ExpertUse(
            llama_cpp.llama_model_n_layer(self.model), int(self._meta("qwen3moe.expert_count"))
        )
        context = llama_cpp.llama_context_default_params()
        context.n_ctx = context.n_batch = context.n_ubatch = self.n_ctx
        context.n_threads = context.n_threads_batch = n_thread
        context.cb_eval = self.use.callback
        self.context = llama_cpp.llama_init_from_model(self.model, context)
        self.batch = llama_cpp.llama_batch_init(self.n_ctx, 0, 1)

    def _meta(self, key: str) -> str:
        buffer = ctypes.create_string_buffer(64)
        llama_cpp.llama_model_meta_val_str(self.model, key.encode(), buffer, 64)
        return buffer.value.decode()

    def close(self) -> None:
        """Free the model and the context."""
        llama_cpp.llama_batch_free(self.batch)
        llama_cpp.llama_free(self.context)
        llama_cpp.llama_model_free(self.model)

    def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text, with special tokens as plain text."""
        raw = text.encode("utf-8")
        ids = (llama_cpp.llama_token * (len(raw) + 8))()
        n = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), ids, len(ids), False, False)
        assert n >= 0
        return list(ids[:n])

    def bits(self, ids: list[int]) -> float:
        """Return the bits of ids[1:], each given the ids before it. At most n_ctx ids."""
        assert 2 <= len(ids) <= self.n_ctx
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        self.batch.n_tokens = len(ids)
        for i, token in enumerate(ids):
            self.batch.token[i], self.batch.pos[i] = token, i
            self.batch.n_seq_id[i], self.batch.seq_id[i][0], self.batch.logits[i] = 1, 0, 1
        if llama_cpp.llama_decode(self.context, self.batch) != 0:
            raise ValueError("llama.cpp could not decode a row of the held-out text")
        pointer = llama_cpp.llama_get_logits(self.context)
        logits: npt.NDArray[np.float32]
        logits = np.ctypeslib.as_array(pointer, shape=(len(ids), self.n_vocab))[:-1]
        top = logits.max(axis=1)
        log_z = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
        picked = logits[np.arange(len(ids) - 1), ids[1:]]
        return float((log_z - picked).sum()) / math.log(2)


def bits_per_byte(scorer: Scorer, texts: Iterator[str], max_bytes: int) -> tuple[float, int]:
    """Return bits per byte over whole texts, and their bytes. Every token is scored once.

    A text is cut into rows of the context's length. Each row starts with the end mark in an empty
    context, which makes the figure slightly pessimistic for long texts.
    """
    bits, n_byte = 0.0, 0
    for text in texts:
        ids = scorer.tokenize(text)
        for start in range(0, len(ids), scorer.n_ctx - 1):
            bits += scorer.bits([0, *ids[start : start + scorer.n_ctx - 1]])
        n_byte += len(text.encode("utf-8"))
        if n_byte >= max_bytes:
            break
    return bits / max(1, n_byte), n_byte


def wikitext(path: Path) -> str:
    """Return Wikitext-2 as running text, without its `@-@` marks."""
    text = path.read_text(encoding="utf-8")
    for mark, plain in ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."), ("<unk>", "")):
        text = text.replace(mark, plain)
    return text


def samples(
    path: Path, n_thread: int, prompts: tuple[tuple[str, str], ...] = PROMPTS
) -> list[dict[str, str]]:
    """Return unedited answers to fixed prompts, with the file's chat template."""
    llama = llama_cpp.Llama(str(path), n_ctx=1024, n_threads=n_thread, verbose=False)
    out = []
    for kind, prompt in prompts:
        answer: Any = llama.create_chat_completion(
            [{"role": "user", "content": prompt}], **SAMPLE_SETTINGS
        )
        text = str(answer["choices"][0]["message"]["content"])
        out.append({"kind": kind, "prompt": prompt, "answer": text})
    return out


def measure(
    work: Path, data: Path, path: Path, n_thread: int = 1, max_bytes: int = 150_000
) -> dict[str, Any]:
    """Measure bits per byte of held-out text and Wikitext-2, and expert use on held-out text."""
    scorer = Scorer(path, n_thread)
    result: dict[str, Any] = {"file_bytes": path.stat().st_size, "bits_per_byte": {}}
    for source in ("wikipedia", "books", "shakespeare"):
        rows = (str(r["text"]) for r in read_rows(work / "heldout.jsonl") if r["source"] == source)
        value, n_byte = bits_per_byte(scorer, rows, max_bytes)
        result["bits_per_byte"][source] = {"value": round(value, 4), "bytes": n_byte}
    result["experts"] = scorer.use.table()
    if (data / EVAL_WIKITEXT).is_file():
        text = wikitext(data / EVAL_WIKITEXT)
        value, n_byte = bits_per_byte(scorer, iter([text[:max_bytes]]), max_bytes)
        result["bits_per_byte"]["wikitext2"] = {"value": round(value, 4), "bytes": n_byte}
    scorer.close()
    return result


def store(folder: Path, result: dict[str, Any]) -> None:
    """Write `evaluation.json` and print it."""
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (folder / "evaluation.json").write_text(text, encoding="utf-8")
    print(text)


def evaluate(work: Path, data: Path, path: Path, n_thread: int = 1) -> dict[str, Any]:
    """Measure the file, ask it the fixed prompts and store the result under `work`."""
    result = measure(work, data, path, n_thread)
    result["quiz"] = quiz.take(path, n_thread)
    result["samples"] = samples(path, n_thread)
    result["other_samples"] = samples(path, n_thread, OTHER_PROMPTS)
    store(work, result)
    return result
