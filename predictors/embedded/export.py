"""Write the trained model as a GGUF file in llama.cpp's qwen3moe layout.

Tensor names and metadata keys: llama.cpp, gguf-py/gguf/constants.py, and convert_hf_to_gguf.py,
class Qwen3MoeModel. The output matrix is left out: llama.cpp then uses the embedding.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType as Type
from tokenizers import Tokenizer
from torch import Tensor

from predictors.embedded import checkpoint, tokenizer
from predictors.embedded.config import (
    CHAT_TEMPLATE,
    END_OF_TEXT,
    IM_END,
    SPECIAL_TOKENS,
    ModelConfig,
    from_dict,
)

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Types:
    """GGUF types of the matrices. Answers are most sensitive to attention's values."""

    dense: Type = Type.Q6_K
    values: Type = Type.Q8_0
    expert: Type = Type.Q4_0


def tensors(weights: dict[str, Tensor], config: ModelConfig) -> Iterator[tuple[str, Array]]:
    """Yield (GGUF name, f32 array) of every tensor. Split joined q, k, v and gate, up."""

    def get(name: str) -> Array:
        return weights[name].float().numpy()

    yield "token_embd.weight", get("token_embd")
    yield "output_norm.weight", get("output_norm")
    n_q, n_kv = config.n_head * config.head_dim, config.n_head_kv * config.head_dim
    for i in range(config.n_layer):
        source, target = f"layers.{i}.", f"blk.{i}."
        q, k, v = np.split(get(source + "attn_qkv"), [n_q, n_q + n_kv])
        gate, up = np.split(get(source + "ffn_gate_up_exps"), 2, axis=1)
        yield target + "attn_q.weight", q
        yield target + "attn_k.weight", k
        yield target + "attn_v.weight", v
        yield target + "ffn_gate_exps.weight", gate
        yield target + "ffn_up_exps.weight", up
        for name in ("attn_output", "ffn_gate_inp", "ffn_down_exps"):
            yield f"{target}{name}.weight", get(source + name)
        for name in ("attn_norm", "attn_q_norm", "attn_k_norm", "ffn_norm"):
            yield f"{target}{name}.weight", get(source + name)


def tensor_type(name: str, array: Array, types: Types) -> Type:
    """Return a tensor's type. Norms stay f32, and the router: rounding would change its choices."""
    if array.ndim == 1 or "ffn_gate_inp" in name:
        return Type.F32
    if "_exps" in name:
        return types.expert
    return types.values if "attn_v" in name else types.dense


def quantize(array: Array, kind: Type) -> npt.NDArray[np.generic]:
    """Quantise `array` (f32, [rows..., n]) to `kind`, by llama.cpp if the gguf package cannot."""
    try:
        return gguf.quants.quantize(array, kind)
    except NotImplementedError:
        folder = Path(llama_cpp.__file__).parent / "lib"
        ggml = ctypes.CDLL(str(next(folder.glob("*ggml-base.*"))))
        n_block, n_byte = gguf.GGML_QUANT_SIZES[kind]
        values = np.ascontiguousarray(array)
        n_row, n = values.size // values.shape[-1], values.shape[-1]
        packed = np.empty((*values.shape[:-1], n // n_block * n_byte), np.uint8)
        pointer = ctypes.c_void_p
        ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
        ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, pointer, pointer, *3 * [ctypes.c_int64]]
        ggml.ggml_quantize_chunk.argtypes += [pointer]
        ggml.ggml_quantize_chunk(
            int(kind), values.ctypes.data, packed.ctypes.data, 0, n_row, n, None
        )
        return packed


def add_metadata(writer: gguf.GGUFWriter, config: ModelConfig, name: str) -> None:
    """Add the keys from which llama.cpp builds the graph, and the file's description."""
    writer.add_name(name)
    writer.add_description("A small MoE language model, trained from scratch for Outrider.")
    writer.add_license("cc-by-sa-4.0")
    writer.add_vocab_size(config.n_vocab)
    writer.add_context_length(config.n_ctx)
    writer.add_embedding_length(config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_head_count_kv(config.n_head_kv)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_freq_base)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    writer.add_feed_forward_length(config.n_ff_exp * config.n_expert_used)
    writer.add_expert_feed_forward_length(config.n_ff_exp)
    writer.add_expert_count(config.n_expert)
    writer.add_expert_used_count(config.n_expert_used)


def add_tokenizer(writer: gguf.GGUFWriter, words: Tokenizer) -> None:
    """Add vocabulary, merges, special tokens and the ChatML template."""
    stored = json.loads(words.to_str())["model"]
    entries = sorted(stored["vocab"], key=stored["vocab"].__getitem__)
    special = set(SPECIAL_TOKENS)
    kinds = [gguf.TokenType.CONTROL if e in special else gguf.TokenType.NORMAL for e in entries]
    merges = [m if isinstance(m, str) else " ".join(m) for m in stored["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(entries)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(tokenizer.special_id(words, IM_END))
    writer.add_eot_token_id(tokenizer.special_id(words, IM_END))
    writer.add_pad_token_id(tokenizer.special_id(words, END_OF_TEXT))
    writer.add_bos_token_id(tokenizer.special_id(words, END_OF_TEXT))
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT_TEMPLATE)


def write(
    path: Path,
    weights: dict[str, Tensor],
    config: ModelConfig,
    words: Tokenizer,
    types: Types = Types(),
    name: str = "Outrider Tiny",
) -> int:
    """Write the file through a temporary one. Return its size in bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, "qwen3moe")
    add_metadata(writer, config, name)
    add_tokenizer(writer, words)
    for tensor, array in tensors(weights, config):
        kind = tensor_type(tensor, array, types)
        writer.add_tensor(tensor, quantize(array, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.replace(path)
    return path.stat().st_size


def export(work: Path, folder: Path, path: Path) -> int:
    """Export the checkpoint in `folder` with the tokenizer of `work`. Return the bytes."""
    stored = checkpoint.load(folder)
    if stored is None:
        raise FileNotFoundError(f"no checkpoint under {folder}; run the step pretrain first")
    weights = {name: s["master"] for name, s in stored["optimiser"]["state"].items()}
    config = from_dict(ModelConfig, stored["model_config"])
    return write(path, weights, config, tokenizer.load(work))
