"""Plan the memory of a model with a number of slots, before anything is loaded.

Weights are as large as the file's header says. The size of a context is llama.cpp's own where it
was asked (ModelFile.sizes). For a header alone, as of a model that is not here yet, attention cache
and states are computed as llama.cpp does, and the compute buffer is estimated from the largest
intermediates of its graphs (but see NOT_ESTIMATED). Tests compare all with llama.cpp's allocations.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from backend.gguf.tables import (
    BY_INTERVAL,
    CACHE_FOR_EACH,
    CELL_STEP,
    FIXED_WINDOWS,
    INDEXED_RATIO,
    IS_COMPRESSED,
    WINDOW_PERIODS,
    ring_cells,
)
from backend.methods.slots import rate_of, slots_of
from backend.protocol.settings import KV_TYPES, EngineConfig
from backend.text import text

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

N_UBATCH = 512
"""Smallest automatic n_ubatch, in tokens; a shorter context has a smaller one."""
MAX_UBATCH = 4096
"""Largest n_ubatch: with it, reading all experts once takes far less time than computing."""
N_UBATCHES = tuple(N_UBATCH << i for i in range((MAX_UBATCH // N_UBATCH).bit_length()))
"""The automatic ones. In a shorter context, its length is the largest."""

N_PREDICTION = 512
"""Tokens that a layer for multi-token prediction reads in one pass, at most."""

_WAVE_PAIRS = 8192  # maximum of pairs in a wave on a device (max_device_pair of live/compute)
_KV_BLOCK = 32  # values in a block of q8_0 and q4_0
WINDOWS_KEPT_BYTES = 256 << 20
"""The most bytes of checkpoints of windows, whose ring goes back about a pass by itself."""
PROCESS_BYTES = 64 << 20
"""Measured: 45 to 56 MiB for interpreter, libraries and buffers."""
_HEADROOM_MIN_BYTES = 256 << 20
_HEADROOM_SHARE = 1 / 16

# Architectures with a second attention mask that the file does not mention.
_CHUNKED = frozenset({"llama4"})
# Architectures for which llama.cpp turns flash attention off.
_WITHOUT_FLASH = frozenset({"grok"})


@dataclass(frozen=True)
class KvCache:
    """How a context keeps keys, values and states, whatever its length.

    kv_type: of the attention cache. n_sequence: llama.cpp's n_seq_max; each has recurrent states of
    its own. n_ubatch: tokens of a pass. windows: layers with a window keep its cells, and those of
    a pass; otherwise all cells. n_checkpoint: copies of states that the engine keeps. on_drive: the
    attention cache is a file, of which the largest layer and the next one have to be in memory.
    """

    kv_type: str = "f16"
    n_sequence: int = 1
    n_ubatch: int = N_UBATCH
    windows: bool = True
    n_checkpoint: int = EngineConfig().n_checkpoint
    on_drive: bool = False

    @classmethod
    def of(cls, config: EngineConfig, n_ubatch: int) -> KvCache:
        """Return what settings decide, with passes of n_ubatch tokens."""
        return cls(
            config.kv_type, config.n_seq_max, n_ubatch, config.windows, config.n_checkpoint,
            config.setup.kv_on_drive,
        )  # fmt: skip


KV_CACHE = KvCache()
"""That of one sequence, in f16."""


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of a model, in bytes, with `n_slot` experts per layer in memory.

    mode: "cached", or "plain" without an expert cache. reason: why the mode is plain. n_slot_min:
    experts per layer that one token needs. headroom_bytes stay free for other programs.
    best_n_slot: the largest number that fits; None where not even the smallest does.
    """

    mode: str
    reason: str
    n_expert: int
    n_slot: int
    n_slot_min: int
    best_n_slot: int | None
    dense_bytes: int
    expert_bytes: int
    kv_bytes: int
    compute_bytes: int
    process_bytes: int
    total_bytes: int
    headroom_bytes: int
    available_bytes: int

    @property
    def rate(self) -> float:
        """The cache rate of n_slot."""
        return rate_of(self.n_slot, self.n_expert)

    @property
    def fits(self) -> bool:
        """Whether the total and the headroom fit into the available memory."""
        return self.total_bytes + self.headroom_bytes <= self.available_bytes

    def to_json(self) -> dict[str, Any]:
        """Return the fields and `fits`; all numbers of slots except n_slot become rates."""
        fields = {**asdict(self), "rate": self.rate, "fits": self.fits}
        least, best = fields.pop("n_slot_min"), fields.pop("best_n_slot")
        fields["min_rate"] = rate_of(least, self.n_expert)
        fields["best_rate"] = None if best is None else rate_of(best, self.n_expert)
        return fields


@dataclass(frozen=True)
class Needs:
    """The numbers of a model file that a plan depends on, at one context. Sizes in bytes.

    reason: why there is no expert cache, or "". slot_bytes: one expert of every layer. n_slot_min:
    experts per layer that one token needs.
    """

    reason: str
    n_expert: int
    n_slot_min: int
    slot_bytes: int
    dense_bytes: int
    kv_bytes: int
    compute_bytes: int

    @classmethod
    def of(cls, model: ModelFile, context_length: int, kv: KvCache = KV_CACHE) -> Needs:
        """Read the numbers from a model file, for a context in tokens."""
        n, one_bytes = checkpoints(model, context_length, kv)
        return cls(
            reason=why_plain(model),
            n_expert=model.n_expert,
            n_slot_min=slots(model, 0.0),
            slot_bytes=sum(model.expert_bytes_per_layer().values()),
            dense_bytes=model.dense_bytes + model.row_bytes(context_length),
            kv_bytes=kv_bytes(model, context_length, kv) + n * one_bytes,
            compute_bytes=compute_bytes(model, context_length, kv.n_ubatch),
        )


def plan(
    model: ModelFile,
    n_slot: int,
    context_length: int,
    available_bytes: int,
    kv: KvCache = KV_CACHE,
) -> MemoryPlan:
    """Plan the memory of `model` with `n_slot` slots in each layer and a context in tokens."""
    return plan_needs(Needs.of(model, context_length, kv), n_slot, available_bytes)


def largest_ubatch(
    model: ModelFile, made: MemoryPlan, context_length: int, kv: KvCache = KV_CACHE
) -> tuple[int, str]:
    """Return the largest n_ubatch, in tokens, and one sentence with the reason.

    It fits beside `made`, a plan with N_UBATCH, and is no longer than the context. Each partial
    batch of a prompt reads its experts once, so larger batches read less. Layers with a window
    have a cell for each of its tokens.
    """

    def passing_bytes(n: int) -> int:
        of_cache = kv_bytes(model, context_length, replace(kv, n_ubatch=n, on_drive=False))
        return of_cache + compute_bytes(model, context_length, n)

    n_context = max(1, min(context_length, MAX_UBATCH))
    n = min(N_UBATCH, n_context)
    if made.mode == "plain":
        return n, f"Prompts are computed in pieces of {n} tokens, as llama.cpp does."
    room_bytes = made.available_bytes - made.headroom_bytes - made.total_bytes
    room_bytes += passing_bytes(N_UBATCH)
    while n < n_context:
        larger = min(2 * n, n_context)
        missing_bytes = passing_bytes(larger) - room_bytes
        if missing_bytes > 0:
            more = f"{larger} would need {missing_bytes / (1 << 20):.0f} MiB more than is free"
            break
        n, more = larger, ""
    else:
        more = "as long as the context" if n == context_length else "larger ones gain nothing"
    return n, f"Prompts read the experts once for every {n} tokens: {more}."


def plan_needs(needs: Needs, n_slot: int, available_bytes: int) -> MemoryPlan:
    """Plan as `plan` does, from numbers that were read before.

    n_slot is raised to the number that one token needs. Without a cache, it is every expert.
    """
    reason = needs.reason
    n_slot = needs.n_expert if reason else min(max(n_slot, needs.n_slot_min), needs.n_expert)
    if not reason and n_slot == needs.n_expert:
        reason = text("memory.all_resident")
    fixed = {
        "dense_bytes": needs.dense_bytes,
        "kv_bytes": needs.kv_bytes,
        "compute_bytes": needs.compute_bytes,
        "process_bytes": PROCESS_BYTES,
    }
    expert_bytes = needs.slot_bytes * n_slot
    headroom = headroom_bytes(available_bytes)
    room_bytes = available_bytes - headroom - sum(fixed.values())
    return MemoryPlan(
        mode="plain" if reason else "cached",
        reason=reason,
        n_expert=needs.n_expert,
        n_slot=n_slot,
        n_slot_min=needs.n_slot_min,
        best_n_slot=_best_n_slot(needs, room_bytes),
        expert_bytes=expert_bytes,
        total_bytes=expert_bytes + sum(fixed.values()),
        headroom_bytes=headroom,
        available_bytes=available_bytes,
        **fixed,
    )


def headroom_bytes(available_bytes: int) -> int:
    """Return the bytes that stay free for other programs."""
    return max(_HEADROOM_MIN_BYTES, int(available_bytes * _HEADROOM_SHARE))


def why_plain(model: ModelFile) -> str:
    """Return why this model cannot be cached, as half a sentence; empty where it can be."""
    if model.is_moe:
        return ""
    if model.n_expert == 0:
        return text("memory.no_experts")
    return text("memory.not_stacked", architecture=model.architecture)


def slots(model: ModelFile, cache_rate: float) -> int:
    """Return how many experts per layer are resident at a cache rate.

    This is the rate's share, rounded down, and at least the number that one token uses.
    """
    if not model.is_moe:
        return model.n_expert
    n_least = max(model.n_expert_used, 1)
    return min(max(slots_of(cache_rate, model.n_expert), n_least), model.n_expert)


def why_no_kv_type(model: ModelFile, kv_type: str) -> str:
    """Return a sentence that says why the attention cache cannot be of this type, or ""."""
    if kv_type == "f16":
        return ""
    if model.architecture in _WITHOUT_FLASH:
        return text("engine.context_only_f16", architecture=model.architecture)
    value_length = _number(model, "attention.value_length") or _key_length(model)
    if _key_length(model) % _KV_BLOCK or value_length % _KV_BLOCK:
        return text("engine.context_too_small", type=kv_type)
    return ""


def kv_bytes(model: ModelFile, context_length: int, kv: KvCache = KV_CACHE) -> int:
    """Return the bytes of llama.cpp's attention cache in memory, and of all recurrent states."""
    layers = kv_bytes_by_layer(model, context_length, kv)
    return min(sum(layers), 2 * max(layers, default=0)) if kv.on_drive else sum(layers)


def checkpoints(model: ModelFile, context_length: int, kv: KvCache = KV_CACHE) -> tuple[int, int]:
    """Return how many checkpoints a context keeps, and the bytes of one.

    A checkpoint has what cannot be cut of a sequence: recurrent states, and windows where older
    cells are used again; of others it has nothing.
    """
    state_bytes = sum(kv_bytes_by_layer(model, 0))
    n_window, n_cell = windowed(model)[0], _whole_cells(context_length)
    n_wanted, n_ring = kv.n_checkpoint, n_cell
    if n_window and kv.windows:
        n_ring = ring_cells(n_window, n_cell, kv.n_ubatch, 1)
    if n_ring >= n_cell:
        return n_wanted, state_bytes
    some_bytes, all_bytes = (
        kv_bytes(model, context_length, replace(kv, n_sequence=1, windows=keeps, on_drive=False))
        for keeps in (True, False)
    )
    n_bytes = (all_bytes - some_bytes) // (n_cell - n_ring) * n_window
    if not state_bytes:
        n_wanted = min(n_wanted, WINDOWS_KEPT_BYTES // max(n_bytes, 1))
    return n_wanted, state_bytes + n_bytes


def prediction_bytes(
    model: ModelFile, context_length: int, n_ubatch: int, kv_type: str, n_slot: int
) -> int:
    """Return the bytes of RAM that guessing with a layer for multi-token prediction takes.

    They hold its weights with n_slot of its experts, its attention cache and compute buffer, and
    twice the states of a pass. Where all experts are in memory, those of further such layers are,
    too; otherwise they stay in the file.
    """
    n_stream = _number(model, "hyper_connection.count") if model.architecture == "deepseek4" else 1
    states = 2 * n_ubatch * _number(model, "embedding_length") * n_stream * 4
    weights = model.nextn_bytes
    if n_slot < model.n_expert:
        experts, of_first = (
            sum(t.n_bytes for t in found) for found in (model.nextn_experts, model.guess_experts)
        )
        weights += of_first * n_slot // model.n_expert - experts
    if model.sizes is not None and model.sizes.guess_bytes is not None:
        return weights + states + model.sizes.guess_bytes(context_length, kv_type)
    n_cell = -(-context_length // CELL_STEP) * CELL_STEP
    layers = range(model.n_layer, model.n_layer + model.n_layer_nextn)
    n_value = sum(_kv_values(model, layer) - _indexer_values(model, layer) for layer in layers)
    kv = int(n_cell * n_value * KV_TYPES[kv_type] / 8)
    return weights + states + kv + compute_bytes(model, context_length, N_PREDICTION)


def kv_bytes_by_layer(model: ModelFile, context_length: int, kv: KvCache = KV_CACHE) -> list[int]:
    """Return the bytes of kv_bytes() for each layer, also of what is on the drive."""
    n_cell, n_sequence = _whole_cells(context_length), kv.n_sequence
    n_cache = n_sequence if model.architecture in CACHE_FOR_EACH else 1
    (n_window, windowed_layers), n_ring = windowed(model), n_cell
    if n_window and kv.windows:
        n_ring = ring_cells(n_window, n_cell, kv.n_ubatch, n_sequence if n_cache == 1 else 1)
    layers = []
    for layer in range(model.n_layer):
        n_own = n_ring if layer in windowed_layers else n_cell
        n_value, n_state = n_own * _kv_values(model, layer), 0
        if model.architecture in IS_COMPRESSED:
            n_value, n_state = _compressed_values(model, layer, n_cell, n_own)
        elif _is_recurrent(model, layer):
            n_value, n_state = 0, _state_values(model)
        cache_bytes = int(n_cache * n_value * KV_TYPES[kv.kv_type] / 8)
        layers.append(cache_bytes + 4 * n_sequence * n_state)
    if model.sizes is None or not sum(layers):
        return layers
    # llama.cpp tells the sum only.
    sizes, type_share = model.sizes, n_cache * KV_TYPES[kv.kv_type] / KV_TYPES["f16"]
    cells_bytes = n_cell * sizes.cell_bytes - (n_cell - n_ring) * sizes.window_bytes
    ratio = (cells_bytes * type_share + n_sequence * sizes.state_bytes) / sum(layers)
    return [round(n_bytes * ratio) for n_bytes in layers]


def wave_bytes(model: ModelFile, n_ubatch: int) -> int:
    """Return the bytes that a device needs to compute waves, beside llama.cpp's own buffers.

    They hold, for batches of n_ubatch tokens: the kept inputs and slot numbers of the batch; for
    each (token, expert) pair of the largest wave its input, its hidden rows and four numbers (the
    output overwrites the input); and the graph of a single token's wave, without overlap.
    """
    n_embd = _number(model, "embedding_length")
    n_ff = _number(model, "expert_feed_forward_length") or _number(model, "feed_forward_length")
    n_used = max(1, model.n_expert_used)
    n_pair = min(_WAVE_PAIRS, n_ubatch * n_used)
    hidden = 2 * n_ff if n_ff <= n_embd else 3 * n_ff
    per_token = 4 * (n_embd + n_used)
    single = 4 * n_used * (2 * n_embd + 3 * n_ff)
    return n_ubatch * per_token + n_pair * (4 * (n_embd + hidden) + 16) + single


def compute_bytes(model: ModelFile, context_length: int, n_ubatch: int = N_UBATCH) -> int:
    """Return the bytes of llama.cpp's compute buffer for a prefill of n_ubatch tokens.

    They are estimated where llama.cpp was not asked.
    The buffer is as large as the larger of two stages: attention, or a MoE layer, where each token
    has one row per used expert and the attention mask (f16) is still in place. The logits of one
    token (n_outputs_max) usually take less.
    """
    if model.sizes is not None:
        return model.sizes.compute_bytes(context_length, n_ubatch)
    n_embd = _number(model, "embedding_length")
    n_used = max(1, model.n_expert_used)
    n_ff = _number(model, "expert_feed_forward_length") or _number(model, "feed_forward_length")
    n_head = max(_per_layer(model, "attention.head_count"))
    n_window, n_cell = windowed(model)[0], _whole_cells(context_length)
    mask = 2 * (n_cell + (ring_cells(n_window, n_cell, n_ubatch, 1) if n_window else 0))
    logits = 4 * (_vocabulary(model) + 2 * n_ubatch * n_embd)
    # Gate, up and their product. The output reuses the memory of two of them if it fits there.
    beside = (n_used + 2) * n_embd if 2 * n_ff < n_embd else 0
    experts = 4 * (3 * n_embd + 3 * n_used * n_ff + beside)
    heads = 4 * 4 * n_head * _key_length(model)
    if model.architecture in _WITHOUT_FLASH:  # all scores at once, and a mask in f32
        mask, heads = 2 * mask, heads + 4 * n_head * n_cell
    if model.architecture == "minimax-m3":  # a mask in f32 for all, and two for each head of blocks
        mask += 4 * n_cell * (1 + 2 * _number(model, "attention.indexer.head_count"))
    decays = 0
    if model.architecture == "minimax-01":  # for each head and pair of tokens, three times
        decays = 3 * 4 * n_head * n_ubatch**2
    return max(logits, n_ubatch * (mask + max(experts, heads)) + decays)


def _best_n_slot(needs: Needs, room_bytes: int) -> int | None:
    """Return the most slots that fit into `room_bytes`; None where too few do."""
    if needs.slot_bytes == 0:
        return needs.n_expert if room_bytes >= 0 else None
    n_slot = min(room_bytes // needs.slot_bytes, needs.n_expert)
    return n_slot if n_slot >= needs.n_slot_min else None


def _is_recurrent(model: ModelFile, layer: int) -> bool:
    if _per_layer(model, "attention.head_count_kv", "attention.head_count")[layer] == 0:
        return True
    interval = _number(model, "full_attention_interval")
    interval = interval or BY_INTERVAL.get(model.architecture, 0)
    return bool(interval) and (layer + 1) % interval != 0


def _kv_values(model: ModelFile, layer: int) -> int:
    """Return how many values one token adds to the attention cache of a layer."""
    n_head_kv = _per_layer(model, "attention.head_count_kv", "attention.head_count")[layer]
    key, value = _key_length(model), _number(model, "attention.value_length")
    indexer = _indexer_values(model, layer)
    pattern = model.key("attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and layer < len(pattern) and pattern[layer]:
        key = _number(model, "attention.key_length_swa") or key
        value = _number(model, "attention.value_length_swa") or value
    if _number(model, "attention.key_length_mla"):
        return n_head_kv * key + indexer  # latent attention: the values are part of the keys
    values = n_head_kv * (key + (value or key))
    if indexer and model.architecture != "qwen4exp":
        indexer += value or key  # llama.cpp keeps values there, too, which nothing reads
    return values + indexer


def windowed(model: ModelFile) -> tuple[int, frozenset[int]]:
    """Return the tokens that layers with a window see, and those layers; 0 where there are none.

    Where llama.cpp was not asked, a model whose layers are not known has none.
    """
    architecture, n_layer = model.architecture, range(model.n_layer)
    n_window = _number(model, "attention.sliding_window")
    fixed = FIXED_WINDOWS.get(architecture, 0)
    if n_window or (architecture in _CHUNKED and model.key("attention.sliding_window") is None):
        n_window = fixed or n_window
    if model.sizes is not None:
        n_window = model.sizes.n_window
    pattern = model.key("attention.sliding_window_pattern", WINDOW_PERIODS.get(architecture))
    if architecture in IS_COMPRESSED:
        layers = frozenset(n_layer)
    elif isinstance(pattern, tuple):
        layers = frozenset(i for i in n_layer if i < len(pattern) and pattern[i])
    elif isinstance(pattern, int):
        n, full = abs(pattern), -1 if WINDOW_PERIODS.get(architecture, 1) > 0 else 0
        layers = frozenset(i for i in n_layer if n == 0 or i % n != full % n)
    else:
        layers = frozenset()
    return (n_window, layers) if n_window and (layers or model.sizes) else (0, frozenset())


def _compressed_values(model: ModelFile, layer: int, n_cell: int, n_own: int) -> tuple[int, int]:
    """Return the values of a layer's attention cache, and of states (f32), for one sequence.

    Keys are values, too. A layer keeps those of n_own cells, and a compressed one of every few of
    all tokens, with the tokens that make the next one.
    """
    ratios = _per_layer(model, "attention.compress_ratios")
    key, ratio = _key_length(model), ratios[layer]
    if ratio == 0:
        return n_own * key, 0
    n_few = _whole_cells(-(-n_cell // ratio))
    if ratio != INDEXED_RATIO:
        return n_own * key + n_few * key, 2 * ratio * key
    both = key + _number(model, "attention.indexer.key_length")
    return n_own * key + n_few * both, 2 * (2 * ratio) * (2 * both)


def _whole_cells(n_token: int) -> int:
    return -(-n_token // CELL_STEP) * CELL_STEP


def _indexer_values(model: ModelFile, layer: int) -> int:
    """Return how many values a token adds to the cache that sparse attention chooses tokens by.

    It has one head, in the layers that have weights for it.
    """
    if layer not in _indexed_layers(model):
        return 0
    n_kind = 3 if _number(model, "attention.indexer.kpool") else 1  # keys, gates and pooled keys
    return n_kind * _number(model, "attention.indexer.key_length")


def _indexed_layers(model: ModelFile) -> set[int]:
    if not _number(model, "attention.indexer.key_length"):
        return set()
    return {t.layer for t in model.tensors if ".indexer." in t.name and t.layer is not None}


def _state_values(model: ModelFile) -> int:
    """Return the number of values in a layer's recurrent state, including its convolution."""
    n_head = _per_layer(model, "attention.head_count")[0]
    if model.architecture == "minimax-01":
        return n_head * _key_length(model) ** 2
    if kda := _number(model, "kda.head_dim"):  # Kimi delta attention: q, k and v are convolved
        return n_head * kda * (3 * (_number(model, "ssm.conv_kernel") or 4) - 3 + kda)
    n_state, n_inner = _number(model, "ssm.state_size"), _number(model, "ssm.inner_size")
    n_group = _number(model, "ssm.group_count")
    convolution = max(0, _number(model, "ssm.conv_kernel") - 1)
    short = max(0, _number(model, "shortconv.l_cache") - 1) * _number(model, "embedding_length")
    return convolution * (n_inner + 2 * n_group * n_state) + n_state * n_inner + short


def _key_length(model: ModelFile) -> int:
    length = _number(model, "attention.key_length")
    if length:
        return length
    n_head = max(_per_layer(model, "attention.head_count"))
    return _number(model, "embedding_length") // max(1, n_head)


def _vocabulary(model: ModelFile) -> int:
    """Return the number of tokens in the vocabulary: the rows of the embedding."""
    for tensor in model.tensors:
        if tensor.name == "token_embd.weight":
            return tensor.shape[1]
    return _number(model, "vocab_size")


def _number(model: ModelFile, name: str) -> int:
    """Return an integer of the metadata: the maximum of an array, 0 if it is missing."""
    value = model.key(name)
    if isinstance(value, tuple):
        value = max((item for item in value if isinstance(item, int)), default=0)
    return value if isinstance(value, int) else 0


def _per_layer(model: ModelFile, name: str, otherwise: str = "") -> tuple[int, ...]:
    """Return an integer per layer. The metadata has one number for all layers or an array."""
    value = model.key(name)
    if value is None and otherwise:
        value = model.key(otherwise)
    n_layer = model.n_layer + model.n_layer_nextn
    if isinstance(value, tuple):
        items = [item if isinstance(item, int) else 0 for item in value]
        return tuple(items[:n_layer] + [0] * (n_layer - len(items)))
    return (value if isinstance(value, int) else 0,) * n_layer
