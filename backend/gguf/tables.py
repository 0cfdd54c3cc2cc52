"""Tensor types and architectures of the pinned llama.cpp (llama-cpp-python 0.3.36)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TensorType:
    """One ggml_type. A block stores n_value values in n_bytes bytes."""

    type_id: int
    name: str
    n_value: int
    n_bytes: int


def _types(*rows: tuple[int, str, int, int]) -> dict[int, TensorType]:
    return {row[0]: TensorType(*row) for row in rows}


TENSOR_TYPES: dict[int, TensorType] = _types(
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 18),
    (3, "Q4_1", 32, 20),
    (6, "Q5_0", 32, 22),
    (7, "Q5_1", 32, 24),
    (8, "Q8_0", 32, 34),
    (9, "Q8_1", 32, 36),
    (10, "Q2_K", 256, 84),
    (11, "Q3_K", 256, 110),
    (12, "Q4_K", 256, 144),
    (13, "Q5_K", 256, 176),
    (14, "Q6_K", 256, 210),
    (15, "Q8_K", 256, 292),
    (16, "IQ2_XXS", 256, 66),
    (17, "IQ2_XS", 256, 74),
    (18, "IQ3_XXS", 256, 98),
    (19, "IQ1_S", 256, 50),
    (20, "IQ4_NL", 32, 18),
    (21, "IQ3_S", 256, 110),
    (22, "IQ2_S", 256, 82),
    (23, "IQ4_XS", 256, 136),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 56),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 54),
    (35, "TQ2_0", 256, 66),
    (39, "MXFP4", 32, 17),
    (40, "NVFP4", 64, 36),
    (41, "Q1_0", 128, 18),
    (42, "Q2_0", 64, 18),
)
"""By ggml_type number. ggml has removed the types of the missing numbers."""

NOT_COMPUTED = frozenset({"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"})
"""Types without kernels for weights. With such a tensor llama.cpp aborts or crashes."""
OF_NUMBERS = "tid2eid"
"""In the names of tensors that are no weights but numbers of experts, of the type I32."""
IN_VECTORS = frozenset({"F32", "F16", "BF16"})
"""Types of tensors of one dimension (norms, biases). With another one llama.cpp aborts."""

# Limits of llama.cpp and ggml. A file that exceeds one makes llama.cpp abort.
N_DIMENSION_MAX = 4  # GGML_MAX_DIMS
TENSOR_NAME_BYTES_MAX = 63  # GGML_MAX_NAME less the closing zero
N_LAYER_MAX = 512  # LLAMA_MAX_LAYERS
N_EXPERT_MAX = 1024  # LLAMA_MAX_EXPERTS

ARCHITECTURES: frozenset[str] = frozenset(
    """
    afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom
    chameleon chatglm clip codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek
    deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash dots1 dots3note dream eagle3 ernie4_5
    ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1 gemma gemma-embedding gemma2
    gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 glm4moe glm5-next gpt-oss gpt2 gptj gptneox
    granite granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense
    hunyuan-moe hunyuan_vl hy_v3 hy_v4 internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-k3
    kimi-linear laguna lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba mamba2
    maple mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3 mistral3 mistral4
    modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h nemotron_h_moe neo-bert nomic-bert
    nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo
    plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe
    qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 rwkv6qwen2 rwkv7 seed_oss
    smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 step35 t5 t5encoder talkie
    wavtokenizer-dec xverse
    """.split()
)
"""Every value of general.architecture that this llama.cpp knows."""
DIFFUSION = frozenset({"dream", "llada", "llada-moe", "rnd1"})
"""Architectures that write by filling in masked tokens, in no order (llm_arch_is_diffusion).
llama_decode gives no next token for them, and aborts where it is to keep the last logits only."""

# Architectures with recurrent layers besides those with attention.
BY_HEADS = frozenset(
    """
    bailingmoe3 granitehybrid jamba kimi-k3 kimi-linear lfm2 lfm2moe nemotron_h nemotron_h_moe
    plamo2
    """.split()
)
"""A layer without heads for keys and values is recurrent."""
WHOLE_HEADS = frozenset(
    """
    arctic cohere2moe dbrx deepseek dots1 ernie4_5-moe grok hunyuan-moe llama4 mellum olmoe
    qwen2moe qwen3moe smallthinker
    """.split()
)
"""llama.cpp asserts that keys, values and rotated values of a head are equally many."""
HEADS_FILL = frozenset("arctic deepseek grok olmoe qwen2moe".split())
"""The members of WHOLE_HEADS whose heads must together have the width of the embedding."""
ROTATING = frozenset(
    """
    bailingmoe2 gemma4 glm4moe granitemoe lfm2moe minimax-m2 phimoe qwen3next qwen3vlmoe
    """.split()
)
"""With no values of a head to rotate, llama.cpp aborts or computes for ever. Those of WHOLE_HEADS
need more, and others fail by themselves."""
ROTATED_INDEX = frozenset({"deepseek32", "deepseek4", "dots3note", "glm-dsa"})
"""llama.cpp rotates the keys of their indexer with a matrix of 64, 128, 256, ... values, the
largest one that divides a key. For deepseek4 it may be smaller than a key."""
WITH_WINDOWS = {"cohere2moe": 4, "smallthinker": 4}
"""A layer has a window unless n divides its number; llama.cpp asserts that one has. The n holds
where attention.sliding_window_pattern is missing."""
WINDOW_PERIODS = {
    "afmoe": 4, "cohere2moe": -4, "exaone-moe": 4, "gpt-oss": 2, "laguna": -4, "llama4": 4,
    "mellum": 4, "smallthinker": -4,
}  # fmt: skip
"""Every n-th layer sees all tokens, the others a window: the last one of n, of -n the first. It
holds where attention.sliding_window_pattern is missing (load_swa_pattern)."""
FIXED_WINDOWS = {"llama4": 8192, "smallthinker": 4096}
"""The tokens of a window, whatever attention.sliding_window says, unless that is 0. Without the key
smallthinker has none."""
BY_INTERVAL = {"minimax-01": 8, "qwen35": 4, "qwen35moe": 4, "qwen3next": 4, "qwen4exp": 4}
"""Every n-th layer has attention. The number holds where full_attention_interval is missing."""

_EXPERTS = "ffn_gate_inp ffn_gate_exps|ffn_gate_up_exps ffn_down_exps"
_DENSE = "ffn_gate ffn_up ffn_down nextn.eh_proj"
_PREDICTION = "ffn_gate_shexp ffn_up_shexp ffn_down_shexp nextn.eh_proj nextn.enorm nextn.hnorm"
_LATENT = "attn_q_a attn_q_a_norm attn_q_b attn_kv_a_mqa attn_kv_a_norm attn_k_b ffn_norm"
_LOADED_WHOLE = (
    "bailingmoe3 cohere2moe deepseek32 deepseek4 glm-dsa nemotron_h_moe qwen35 qwen35moe qwen3next"
)
PREDICTING: dict[str, tuple[str, ...]] = {
    "deepseek2": (f"{_EXPERTS} {_PREDICTION} {_LATENT}",),
    "glm4moe": (f"{_EXPERTS} {_PREDICTION}",),
    "hy_v3": (f"{_EXPERTS} {_PREDICTION}", _DENSE),
    "mimo2": (f"attn_qkv {_DENSE}",),
    "step35": (f"{_EXPERTS} {_PREDICTION}", _DENSE),
    **dict.fromkeys(_LOADED_WHOLE.split(), ("nextn.eh_proj",)),
}
"""Architectures whose layer for multi-token prediction llama.cpp can compute
(LLM_GRAPH_TYPE_DECODER_MTP), and the tensors that it needs, all of one of the lists; of names with
| between them, one. llama.cpp aborts where one is missing; it refuses a file without the others."""
ONE_OF_SEVERAL = frozenset({"hy_v3", "mimo2", "step35"})
"""Those of which llama.cpp computes one of several layers; with the others it aborts."""
KEEPS_LAST = frozenset({"deepseek4", "mimo2", "step35"})
"""Those whose layer tells the states of the tokens with logits only."""
GOES_BACK = frozenset(
    """
    bailingmoe3 deepseek4 glm5-next kimi-k3 lfm2 lfm2moe nemotron_h nemotron_h_moe qwen35 qwen35moe
    qwen4exp
    """.split()
)
"""Architectures with recurrent states of which llama.cpp can keep snapshots
(llm_arch_supports_rs_rollback). Other ones with recurrent states have no drafts."""
STAYS = frozenset({"qwen3next"})
"""The members of PREDICTING with recurrent states and without snapshots."""
READ_BY_ROWS = {"gemma4": "per_layer_token_embd.weight", "qwen4exp": "per_layer_token_embd.weight"}
"""Tables of which llama.cpp reads the rows of the tokens only (TENSOR_READ_LAZY)..."""
READ_WHOLE_BYTES = 4 << 30
"""... where they are larger than this. Others are loaded (llama_model_loader::lazy_read)."""
IS_COMPRESSED = frozenset({"deepseek4"})
"""Architectures whose layers attend to a window and to compressed keys of several tokens
(attention.compress_ratios)."""
INDEXED_RATIO = 4
"""The ratio at which compressed keys overlap and an indexer chooses among them (DSV4_CSA_RATIO)."""
CACHE_FOR_EACH = frozenset({"deepseek4"})
"""Architectures that llama.cpp gives an attention cache of the whole context for each sequence. It
copies whole sequences only, between sequences of passes only (src/llama-kv-cache-dsv4.cpp)."""
NOT_ESTIMATED = frozenset(
    """
    deepseek32 deepseek4 dots3note glm-dsa glm5-next hy_v4 llama4 qwen4exp
    """.split()
)
"""Architectures whose compute buffers only llama.cpp tells: those with an indexer, and llama4. Our
estimate was 0.56 to 1.08 of them at published sizes; for others it was 0.91 to 1.12."""
ONE_SEQUENCE = frozenset({"minimax-m3"})
"""Architectures that compute something else where several sequences share the cells of a context:
llama.cpp then drops their sparse attention (src/models/minimax-m3.cpp)."""
NOT_PREDICTING = {
    "deepseek2": ("attention.temperature_scale",),
    "glm4moe": ("rope.dimension_sections",),
}
"""Keys with which llama.cpp has no graph for these layers."""
SEEING = {"glm4moe": "rope.dimension_sections"}
"""Keys without which llama.cpp ends the process at an image (src/models/glm4-moe.cpp)."""

CELL_STEP = 256
"""llama.cpp rounds the cells of a context up to a multiple of this."""


def ring_cells(n_window: int, n_cell: int, n_ubatch: int, n_sequence: int) -> int:
    """Return the cells that layers with a window have at least (llama_kv_cache_iswa).

    They are a ring: a cell that its sequence no longer sees is used again. n_cell: of other layers.
    n_sequence: sequences that share the cells.
    """
    n_least = min(n_window * n_sequence + n_ubatch, n_cell)
    return -(-n_least // CELL_STEP) * CELL_STEP


FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K",
    11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S",
    17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M",
    30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4",
}  # fmt: skip
"""llama_ftype of llama.h: the mixture of types that a file states."""

SHARED_WIDTH = {
    "qwen2moe": "feed_forward_length",
    "qwen3next": "feed_forward_length",
    "qwen35moe": "feed_forward_length",
    "qwen4exp": "feed_forward_length",
    "ernie4_5-moe": "",
    "granitemoe": "",
    "granitehybrid": "",
    "step35": "",
}
"""The key that llama.cpp takes for the width of shared experts where its own key is 0, by
architecture; "": it expects no shared experts then. Others derive it, and are not checked."""
