"""Small random models for embeddings and for ranking, of BERT's architecture or nomic-bert-moe."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

_N_EMBD, _N_FF, _N_HEAD, _N_LAYER, _N_EXPERT = 64, 96, 4, 2, 8
_WORDS = "the cat dog sat ran on mat a red blue sky is of and to".split()


def make_embedder(
    path: Path,
    pooling: gguf.PoolingType | None = gguf.PoolingType.MEAN,
    n_context: int = 64,
    arch: str = "bert",
    *,
    is_causal: bool = False,
) -> Path:
    """Write a model with a vocabulary of some words and all letters. Return its path.

    pooling: None: the file names none. arch: bert, or nomic-bert-moe, which has experts in every
    second layer. is_causal: says the header; nothing else differs.
    """
    letters = [chr(c) for c in range(33, 127)]
    words = ["\u2581" + word for word in [*_WORDS, *letters]]
    tokens = list(dict.fromkeys(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words, *letters]))
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(n_context)
    writer.add_embedding_length(_N_EMBD)
    writer.add_block_count(_N_LAYER)
    writer.add_feed_forward_length(_N_FF)
    writer.add_head_count(_N_HEAD)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(is_causal)
    has_experts = arch == "nomic-bert-moe"
    if has_experts:
        writer.add_moe_every_n_layers(2)
        writer.add_expert_count(_N_EXPERT)
        writer.add_expert_used_count(2)
    if pooling is not None:
        writer.add_pooling_type(pooling)
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 4 + [1] * (len(tokens) - 4))
    writer.add_token_type_count(2)
    writer.add_bos_token_id(2)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    random = np.random.default_rng(0)

    def add(name: str, *shape: int, of: float = 0.0) -> None:
        values = random.normal(of, 0.3, shape).astype(np.float32)
        writer.add_tensor(name, values)

    add("token_embd.weight", len(tokens), _N_EMBD)
    if not has_experts:  # which turns its heads
        add("position_embd.weight", n_context, _N_EMBD)
    add("token_types.weight", 2, _N_EMBD)
    norms = ["token_embd_norm"]
    for i in range(_N_LAYER):
        norms += [f"blk.{i}.attn_output_norm", f"blk.{i}.layer_output_norm"]
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{i}.{name}.weight", _N_EMBD, _N_EMBD)
            add(f"blk.{i}.{name}.bias", _N_EMBD)
        if has_experts and i % 2 == 1:
            add(f"blk.{i}.ffn_gate_inp.weight", _N_EXPERT, _N_EMBD)
            add(f"blk.{i}.ffn_up_exps.weight", _N_EXPERT, _N_FF, _N_EMBD)
            add(f"blk.{i}.ffn_down_exps.weight", _N_EXPERT, _N_EMBD, _N_FF)
            continue
        add(f"blk.{i}.ffn_up.weight", _N_FF, _N_EMBD)
        add(f"blk.{i}.ffn_up.bias", _N_FF)
        add(f"blk.{i}.ffn_down.weight", _N_EMBD, _N_FF)
        add(f"blk.{i}.ffn_down.bias", _N_EMBD)
    for name in norms:
        add(f"{name}.weight", _N_EMBD, of=1.0)
        add(f"{name}.bias", _N_EMBD)
    if pooling == gguf.PoolingType.RANK:
        writer.add_classifier_output_labels(["score"])
        add("cls.weight", _N_EMBD, _N_EMBD)
        add("cls.bias", _N_EMBD)
        add("cls.output.weight", 1, _N_EMBD)
        add("cls.output.bias", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
