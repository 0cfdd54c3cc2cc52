"""A GGUF model, checked before llama.cpp opens the file.

llama.cpp aborts its process on some malformed files and computes wrong sizes for others, so the
engine reads a model here first. read_model reads the headers of all parts of a model, never the
tensors' data. It returns a ModelFile or raises ModelFileError, whose text is one sentence for the
user. backend.gguf.scales checks the data.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import NoReturn

from backend.gguf.header import (
    ArraySummary,
    Header,
    ModelFileError,
    Value,
    quoted,
    read_header,
    read_strings,
    tensor_words,
)
from backend.gguf.identity import FileChangedError, FileIdentity, OpenFiles
from backend.gguf.tables import (
    ARCHITECTURES,
    BY_HEADS,
    BY_INTERVAL,
    DIFFUSION,
    FILE_TYPES,
    HEADS_FILL,
    IN_VECTORS,
    INDEXED_RATIO,
    IS_COMPRESSED,
    N_EXPERT_MAX,
    N_LAYER_MAX,
    NOT_COMPUTED,
    NOT_PREDICTING,
    OF_NUMBERS,
    ONE_OF_SEVERAL,
    PREDICTING,
    READ_BY_ROWS,
    READ_WHOLE_BYTES,
    ROTATED_INDEX,
    ROTATING,
    SHARED_WIDTH,
    STAYS,
    WHOLE_HEADS,
    WITH_WINDOWS,
)
from backend.text import Text, text

__all__ = [
    "ArraySummary",
    "ModelFile",
    "ModelFileError",
    "TensorInfo",
    "Value",
    "read_model",
]

N_PART_MAX = 1024
_PAGE_BYTES = 4096
_TOKENS = "tokenizer.ggml.tokens"
_DISTINCT: set[str] = set()
"""Fingerprints of the files whose tokens were found to be distinct; they cover the tokens."""
_NO_VOCABULARY = ("none", "no_vocab")

_GGUF = b"GGUF"
PIECE_NAME = re.compile(
    r"(?P<whole>.+\.gguf)(?P<mark>[-._](?:part|split)?[-._]?)(?:[0-9]{1,3}|[a-z]{1,2})"
    r"(?:(?P<of>of|-of-)(?P<n>[0-9]{1,3}))?",
    re.IGNORECASE | re.DOTALL,
)
"""The name of a piece of a file that was cut: m.gguf.part1of2, m.gguf-split-a, m.gguf.001."""

_EXPERT_NAME = re.compile(r"blk\.(0|[1-9][0-9]*)\.ffn_(gate|up|down|gate_up)_exps\.weight")
_LAYER_NAME = re.compile(r"blk\.([0-9]+)\.")


@dataclass(frozen=True)
class TensorInfo:
    """One tensor. shape: ne[0..3] in ggml's order; ne[0] is the row length, unused ones are 1.

    offset: of its first byte in the file ModelFile.paths[part].
    """

    name: str
    shape: tuple[int, int, int, int]
    n_dimension: int
    type_name: str
    type_id: int
    part: int
    offset: int
    n_bytes: int

    @property
    def layer(self) -> int | None:
        """The number of its layer, or None."""
        found = _LAYER_NAME.match(self.name)
        return int(found[1]) if found else None

    @property
    def matrix_bytes(self) -> int:
        """Bytes of one matrix of a stack (nb[2]), which is one expert in an expert tensor."""
        return self.n_bytes // (self.shape[2] * self.shape[3])


@dataclass(frozen=True)
class ContextSizes:
    """The memory of a model's context as llama.cpp reports it, in bytes.

    cell_bytes: the attention cache of one token, in f16; window_bytes: the part of it in layers
    that see the last n_window tokens only. state_bytes: the memory of a sequence of any length,
    such as recurrent states. compute_bytes: the compute buffers in RAM, from n_context and n_ubatch
    in tokens. guess_bytes: of the context of a layer for multi-token prediction, from n_context and
    the type of its cache. None: it was not asked for.
    """

    cell_bytes: float
    state_bytes: int
    compute_bytes: Callable[[int, int], int]
    guess_bytes: Callable[[int, str], int] | None = None
    window_bytes: float = 0.0
    n_window: int = 0


@dataclass(frozen=True)
class ModelFile:
    """A model whose headers passed all checks. Sizes are of the tensors' data, in bytes."""

    path: Path
    """The file that was asked for."""
    paths: tuple[Path, ...]
    """All parts in order; a model in one file has one part."""
    version: int
    architecture: str
    metadata: Mapping[str, Value]
    """All keys of the first part. A long array, such as the vocabulary, is an ArraySummary."""
    tensors: tuple[TensorInfo, ...]
    n_layer: int
    """Layers for ordinary decoding, without those for multi-token prediction."""
    n_layer_nextn: int
    n_expert: int
    n_expert_used_by_layer: tuple[int, ...]
    """Per layer, because the number differs between layers in a few models; empty if dense."""
    context_length: int
    file_size_bytes: int
    """The sum over all parts."""
    fingerprint: str
    """Hexadecimal SHA-256 of all headers and file sizes. It does not cover the tensors' data."""
    identities: tuple[FileIdentity | None, ...]
    """Identities of `paths` when checked; None where a header did not come from a file."""
    sizes: ContextSizes | None = field(default=None, compare=False)
    """llama.cpp's own sizes; None: it was not asked (backend.engine.dry_run)."""

    def key(self, name: str, default: Value | None = None) -> Value | None:
        """Return the metadata `<architecture>.<name>`."""
        return self.metadata.get(f"{self.architecture}.{name}", default)

    def open(self, *others: tuple[Path, FileIdentity | None]) -> OpenFiles:
        """Open all parts and other files, to detect that one was changed or replaced.

        Where only the time of change of a part differs, the headers are read and compared again.
        Raises OSError and FileChangedError.
        """
        files = OpenFiles([*zip(self.paths, self.identities, strict=True), *others])
        for (path, found, _), identity in zip(files.states, self.identities, strict=False):
            if identity not in (None, found) and not self._has_header_of(path):
                files.close()
                raise FileChangedError(path)
        return files

    def _has_header_of(self, path: Path) -> bool:
        """Return whether the headers of a model are those of this one."""
        try:
            return read_model(path).fingerprint == self.fingerprint
        except ModelFileError:
            return False

    @property
    def name(self) -> str:
        """The name in the model, or else that of the file."""
        name = self.metadata.get("general.name")
        return name if isinstance(name, str) and name else self.path.stem

    @property
    def chat_template(self) -> str | None:
        """The Jinja source of the model's chat template, or None."""
        template = self.metadata.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None

    @property
    def quantisation(self) -> str:
        """The mixture of types that the file states, or otherwise the type of most bytes."""
        stated = self.metadata.get("general.file_type")
        if isinstance(stated, int) and stated in FILE_TYPES:
            return FILE_TYPES[stated]
        n_bytes: Counter[str] = Counter()
        for tensor in self.tensors:
            n_bytes[tensor.type_name] += tensor.n_bytes
        return max(n_bytes, key=lambda name: n_bytes[name])

    @property
    def n_expert_used(self) -> int:
        """The largest number of experts that one token uses in a layer; 0 if dense."""
        of_layers = [self.n_used_of(layer) for layer in self.expert_tensors]
        return max(of_layers or self.n_expert_used_by_layer, default=0)

    @property
    def n_used_by_moe_layer(self) -> list[int]:
        """The experts that a token uses in each layer with experts; empty: n_expert_used."""
        of_layers = [self.n_used_of(layer) for layer in self.expert_tensors]
        return of_layers if len(set(of_layers)) > 1 else []

    @property
    def n_expert_used_instead(self) -> int:
        """The number of experts per token that loading sets (using); 0: what the file says."""
        stated = self.key("expert_used_count")
        is_other = isinstance(stated, int) and stated != self.n_expert_used
        return self.n_expert_used if self.is_moe and is_other else 0

    @functools.cached_property
    def expert_tensors(self) -> Mapping[int, tuple[TensorInfo, ...]]:
        """The stacked weights of the routed experts, by layer, in the file's order.

        Excludes layers for multi-token prediction (nextn_experts, guess_experts).
        """
        layers: dict[int, list[TensorInfo]] = {}
        for tensor in self.tensors:
            found = _EXPERT_NAME.fullmatch(tensor.name)
            if found and int(found[1]) < self.n_layer:
                layers.setdefault(int(found[1]), []).append(tensor)
        return MappingProxyType({layer: tuple(layers[layer]) for layer in sorted(layers)})

    @functools.cached_property
    def nextn_experts(self) -> tuple[TensorInfo, ...]:
        """The stacked weights of the routed experts of layers for multi-token prediction."""
        behind = (t for t in self.tensors if (t.layer or 0) >= self.n_layer)
        return tuple(t for t in behind if _EXPERT_NAME.fullmatch(t.name))

    @property
    def guess_experts(self) -> tuple[TensorInfo, ...]:
        """Those of nextn_experts that belong to the first layer, which guesses."""
        return tuple(t for t in self.nextn_experts if t.layer == self.n_layer)

    @property
    def is_moe(self) -> bool:
        """Whether there are stacked expert tensors to cache."""
        return bool(self.expert_tensors)

    @property
    def n_moe_layer(self) -> int:
        """The number of layers with routed experts."""
        return len(self.expert_tensors)

    def using(self, n_expert_used: int) -> ModelFile:
        """Return the model with another number of experts per token, which loading applies.

        Raises ValueError, a sentence, where that is impossible.
        """
        if not isinstance(self.key("expert_used_count"), int):
            raise ValueError(f"{self.path.name} does not say one number of experts for all layers.")
        if not 1 <= n_expert_used <= self.n_expert:
            raise ValueError(f"A token cannot use {n_expert_used} of {self.n_expert} experts.")
        n_layer = len(self.n_expert_used_by_layer)
        return replace(self, n_expert_used_by_layer=(n_expert_used,) * n_layer)

    def n_used_of(self, layer: int) -> int:
        """Return the number of experts that a token uses in a layer."""
        used = self.n_expert_used_by_layer
        return used[layer] if layer < len(used) else max(used, default=0)

    def expert_bytes_per_layer(self) -> dict[int, int]:
        """Return by layer the bytes of ONE routed expert: its gate, up and down matrices."""
        return {
            layer: sum(tensor.matrix_bytes for tensor in tensors)
            for layer, tensors in self.expert_tensors.items()
        }

    @functools.cached_property
    def expert_bytes_total(self) -> int:
        """Bytes of all routed experts of all layers."""
        return sum(t.n_bytes for tensors in self.expert_tensors.values() for t in tensors)

    @functools.cached_property
    def nextn_bytes(self) -> int:
        """Bytes of the layers for multi-token prediction, which are loaded for drafts only."""
        return sum(t.n_bytes for t in self.tensors if (t.layer or 0) >= self.n_layer)

    @property
    def predicts(self) -> bool:
        """Whether llama.cpp can guess tokens with a layer for multi-token prediction."""
        return self.n_layer_nextn > 0 and not self.why_no_guess

    @functools.cached_property
    def why_no_guess(self) -> str:
        """Why the layers for multi-token prediction guess nothing, as half a sentence, or "".

        If there are several layers, the first one guesses.
        """
        architecture = self.architecture
        lists, keys = PREDICTING.get(architecture), NOT_PREDICTING.get(architecture, ())
        if not self.n_layer_nextn:
            return ""
        if lists is None or any(map(self.key, keys)):
            return text("draft.no_graph", architecture=architecture)
        if architecture in STAYS:
            return text("draft.no_way_back", architecture=architecture)
        found = {t.name for t in self.tensors if t.layer == self.n_layer}
        is_there = [
            all(
                any(f"blk.{self.n_layer}.{name}.weight" in found for name in names.split("|"))
                for names in needed.split()
            )
            for needed in lists
        ]
        if not any(is_there):
            return text("draft.no_parts")
        if self.n_layer_nextn > 1 and architecture not in ONE_OF_SEVERAL:
            return text("draft.many_layers", architecture=architecture)
        return ""

    @functools.cached_property
    def dense_tensors(self) -> tuple[TensorInfo, ...]:
        """All tensors that are always loaded, except routed experts."""
        experts = {t.name for tensors in self.expert_tensors.values() for t in tensors}
        return tuple(
            t for t in self.tensors if t.name not in experts and (t.layer or 0) < self.n_layer
        )

    @functools.cached_property
    def row_tensors(self) -> tuple[TensorInfo, ...]:
        """Tables that stay in the file: llama.cpp maps them and reads the rows of the tokens."""
        name = READ_BY_ROWS.get(self.architecture)
        return tuple(t for t in self.tensors if t.name == name and t.n_bytes > READ_WHOLE_BYTES)

    @functools.cached_property
    def loaded_tensors(self) -> tuple[TensorInfo, ...]:
        """The dense tensors that are loaded as a whole."""
        return tuple(t for t in self.dense_tensors if t not in self.row_tensors)

    def row_bytes(self, n_token: int) -> int:
        """Return the most bytes of the pages of row_tensors that n_token tokens touch.

        The system may drop these pages, as those of any file.
        """
        n_row = 1
        if heads := self.key("ple.heads_per_ngram"):  # a row for each head of each n-gram
            n_gram = self.key("ple.ngram_size")
            n_row = (
                (n_gram - 1) * heads if isinstance(n_gram, int) and isinstance(heads, int) else 1
            )
        n_byte = 0
        for tensor in self.row_tensors:
            one = tensor.n_bytes // tensor.shape[1]
            n_byte += min(tensor.n_bytes, n_token * n_row * (one // _PAGE_BYTES + 1) * _PAGE_BYTES)
        return n_byte

    @property
    def dense_bytes(self) -> int:
        """Bytes of the dense tensors that are loaded."""
        return sum(t.n_bytes for t in self.loaded_tensors)

    @property
    def token_dense_bytes(self) -> int:
        """Bytes of the dense tensors that decoding a token reads.

        Excludes the embedding, of which one row is read, unless it is the output, too.
        """
        sizes = {t.name: t.n_bytes for t in self.loaded_tensors}
        unread = sizes.get("token_embd.weight", 0) if "output.weight" in sizes else 0
        return self.dense_bytes - unread

    @property
    def token_expert_bytes(self) -> int:
        """Bytes of the routed experts that one token uses."""
        each_bytes = self.expert_bytes_per_layer()
        return sum(each_bytes[layer] * self.n_used_of(layer) for layer in each_bytes)

    @property
    def layer_dense_bytes(self) -> float:
        """Bytes of the dense tensors of one layer, averaged over layers."""
        in_layers = sum(t.n_bytes for t in self.dense_tensors if t.layer is not None)
        return in_layers / self.n_layer

    @property
    def output_bytes(self) -> int:
        """Bytes of the output matrix, which may be the embedding."""
        by_name = {t.name: t for t in self.dense_tensors}
        output = by_name.get("output.weight") or by_name.get("token_embd.weight")
        return output.n_bytes if output else 0


def read_model(path: Path, read: Callable[[Path], Header] = read_header) -> ModelFile:
    """Read and check a model's headers. path: may be any part of a split model.

    read: reads one header, by default from a file. Raises ModelFileError for any fault of the file,
    also where it cannot be opened.
    """
    path = Path(path)
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:  # llama.cpp and the native part take UTF-8 only
        raise ModelFileError(path, text("model.path_bytes")) from None
    try:
        headers = _all_parts(path, read)
    except ModelFileError as error:
        if (piece := PIECE_NAME.fullmatch(path.name)) is None or isinstance(
            error.__cause__, OSError
        ):
            raise
        raise ModelFileError(path, _of_piece(piece)) from error
    first = headers[0]
    architecture = _architecture(first)
    if first.metadata.get("tokenizer.ggml.model") in _NO_VOCABULARY:  # llama.cpp ends at a text
        raise ModelFileError(first.path, text("model.no_vocabulary"))
    numbers = _Numbers(first, architecture)
    n_layer_all = numbers.required("block_count", 1, N_LAYER_MAX)
    n_layer_nextn = numbers.optional("nextn_predict_layers", 0, n_layer_all - 1)
    n_expert = numbers.optional("expert_count", 0, N_EXPERT_MAX)
    used = _experts_used(numbers, n_expert, n_layer_all)
    _check_groups(numbers, n_expert)
    _check_fractions(numbers)
    _check_attention(numbers, n_layer_all - n_layer_nextn)
    _check_windows(numbers, n_layer_all - n_layer_nextn)
    _check_heads(numbers)
    _check_indexer(numbers)
    tensors = _joined(headers)
    _check_tensors(headers, tensors, n_expert, n_layer_all)
    _check_shared(numbers, tensors)
    return ModelFile(
        path=path,
        paths=tuple(header.path for header in headers),
        version=first.version,
        architecture=architecture,
        metadata=MappingProxyType(first.metadata),
        tensors=tensors,
        n_layer=n_layer_all - n_layer_nextn,
        n_layer_nextn=n_layer_nextn,
        n_expert=n_expert,
        n_expert_used_by_layer=used,
        context_length=numbers.required("context_length", 1, (1 << 32) - 1),
        file_size_bytes=sum(header.file_bytes for header in headers),
        fingerprint=_fingerprint(headers),
        identities=tuple(header.identity for header in headers),
    )


def require_distinct_tokens(model: ModelFile) -> None:
    """Raise ModelFileError where a token appears twice; llama.cpp would abort. Raises OSError.

    Takes 1.2 us for each token, so it is done for a load only, and once for equal headers.
    """
    if model.fingerprint in _DISTINCT:
        return
    tokens = model.metadata.get(_TOKENS)
    if isinstance(tokens, ArraySummary) and tokens.item_type == "string":
        found = Counter(read_strings(model.paths[0], tokens))
    elif isinstance(tokens, tuple):
        found = Counter(str(token).encode() for token in tokens)
    else:
        return
    found.pop(b"", None)  # llama.cpp gives empty ones names of their own
    if found and found.most_common(1)[0][1] > 1:
        token = found.most_common(1)[0][0].decode("utf-8", "replace")
        raise ModelFileError(model.paths[0], text("model.token_twice", token=quoted(token)))
    _DISTINCT.add(model.fingerprint)


class _Numbers:
    """Reads and checks the integers below the architecture's prefix."""

    def __init__(self, header: Header, architecture: str) -> None:
        self.header = header
        self.architecture = architecture

    def required(self, name: str, least: int, most: int) -> int:
        key = self.key(name)
        if key not in self.header.metadata:
            self.refuse(text("model.key_missing", key=key))
        return self.optional(name, least, most)

    def optional(self, name: str, least: int, most: int) -> int:
        """Return the value, or 0 if the key is missing."""
        key = self.key(name)
        if key not in self.header.metadata:
            return 0
        return self.checked(name, self.header.metadata[key], least, most)

    def checked(self, name: str, value: Value, least: int, most: int) -> int:
        key = self.key(name)
        if not isinstance(value, int) or isinstance(value, bool):
            self.refuse(text("model.key_not_whole", key=key))
        if not least <= value <= most:
            self.refuse(text("model.key_range", key=key, value=value, low=least, high=most))
        return value

    def key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    def refuse(self, reason: Text) -> NoReturn:
        raise ModelFileError(self.header.path, reason)


def _architecture(header: Header) -> str:
    key = "general.architecture"
    architecture = header.metadata.get(key)
    if architecture is None:
        raise ModelFileError(header.path, text("model.key_missing", key=key))
    if not isinstance(architecture, str):
        raise ModelFileError(header.path, text("model.key_not_string", key=key))
    if architecture not in ARCHITECTURES:
        raise ModelFileError(
            header.path, text("model.architecture", architecture=quoted(architecture))
        )
    if architecture in DIFFUSION:
        raise ModelFileError(header.path, text("model.diffusion", architecture=architecture))
    return architecture


def _experts_used(numbers: _Numbers, n_expert: int, n_layer: int) -> tuple[int, ...]:
    """Return expert_used_count for every layer. The key is one number or an array."""
    name = "expert_used_count"
    key = numbers.key(name)
    value = numbers.header.metadata.get(key, 0)
    values = value if isinstance(value, tuple) else (value,) * n_layer
    if len(values) != n_layer:
        numbers.refuse(text("model.key_items", key=key, n=len(values), layers=n_layer))
    used = tuple(numbers.checked(name, item, 0, (1 << 32) - 1) for item in values)
    if max(used) > n_expert:
        numbers.refuse(text("model.used_too_many", key=key, n=max(used), all=n_expert))
    # In the Hunyuan models, llama.cpp treats a single expert as a dense layer.
    if n_expert and not max(used) and not numbers.architecture.startswith("hunyuan"):
        numbers.refuse(text("model.used_missing", key=key, all=n_expert))
    return used if n_expert else ()


def _check_groups(numbers: _Numbers, n_expert: int) -> None:
    """Refuse groups that do not divide the experts evenly, because llama.cpp aborts on them."""
    n_group = numbers.optional("expert_group_count", 0, max(n_expert - 1, 0))
    if n_group > 1:
        if n_expert % n_group:
            key = numbers.key("expert_group_count")
            numbers.refuse(text("model.groups", key=key, n=n_group, all=n_expert))
        numbers.required("expert_group_used_count", 1, n_group - 1)


def _check_fractions(numbers: _Numbers) -> None:
    """Refuse numbers that would make every logit NaN."""
    prefix = f"{numbers.architecture}."
    for key, value in numbers.header.metadata.items():
        if not key.startswith(prefix):
            continue
        for item in value if isinstance(value, tuple) else (value,):
            if not isinstance(item, float):
                continue
            if not math.isfinite(item):
                numbers.refuse(text("model.not_finite", key=key, value=str(item)))
            if key.endswith(("freq_base", "freq_base_swa")) and item <= 0:
                numbers.refuse(text("model.not_positive", key=key, value=f"{item:g}"))
            if key.endswith("epsilon") and item < 0:
                numbers.refuse(text("model.negative", key=key, value=f"{item:g}"))


def _check_attention(numbers: _Numbers, n_layer: int) -> None:
    """Refuse a model none of whose layers attends to the whole context.

    llama.cpp then has an attention cache without a buffer and aborts at the first token.
    """
    architecture, metadata = numbers.architecture, numbers.header.metadata

    def by_layer(name: str) -> list[Value]:
        value = metadata.get(numbers.key(name), 0)
        return list(value) if isinstance(value, tuple) else [value] * n_layer

    name, of_layers = "attention.head_count_kv", [True] * n_layer
    if architecture in BY_HEADS and numbers.key(name) in metadata:
        n_head, n_ff = by_layer(name), by_layer("feed_forward_length")
        apart = architecture.startswith("nemotron")  # attention and experts are separate layers
        of_layers = [bool(n) and not (apart and ff) for n, ff in zip(n_head, n_ff, strict=False)]
    elif architecture in BY_INTERVAL and numbers.key("attention.recurrent_layers") in metadata:
        name = "attention.recurrent_layers"
        of_layers = [not is_recurrent for is_recurrent in by_layer(name)]
    elif architecture in BY_INTERVAL:
        name = "full_attention_interval"
        every = BY_INTERVAL[architecture]
        if numbers.key(name) in metadata:
            every = numbers.required(name, 1, (1 << 32) - 1)
        of_layers = [(i + 1) % every == 0 for i in range(n_layer)]
    elif architecture == "llama4" and metadata.get(numbers.key("attention.sliding_window")) != 0:
        name = "attention.sliding_window_pattern"  # the layers of its last place attend to all
        every_or_layers = metadata.get(numbers.key(name), 4)
        if isinstance(every_or_layers, tuple):
            of_layers = [not is_chunked for is_chunked in every_or_layers]
        elif isinstance(every_or_layers, int):
            of_layers = [n_layer >= every_or_layers > 0]
    if not any(of_layers[:n_layer]):
        numbers.refuse(text("model.no_attention", key=numbers.key(name), n=n_layer))


def _check_windows(numbers: _Numbers, n_layer: int) -> None:
    """Refuse a model with windows none of whose layers has one; llama.cpp aborts."""
    architecture, metadata = numbers.architecture, numbers.header.metadata
    n_window = metadata.get(numbers.key("attention.sliding_window"), 0)
    if architecture not in WITH_WINDOWS or (architecture == "smallthinker" and not n_window):
        return
    key = numbers.key("attention.sliding_window_pattern")
    pattern = metadata.get(key, WITH_WINDOWS[architecture])
    if isinstance(pattern, tuple):
        has_window = any(pattern)
    elif isinstance(pattern, int):
        has_window = pattern == 0 or (pattern > 1 and n_layer > 1)
    else:
        return
    if not has_window:
        numbers.refuse(text("model.no_window", key=key, n=n_layer))


def _check_heads(numbers: _Numbers) -> None:
    """Refuse heads that llama.cpp asserts against when it builds the graph."""
    architecture, metadata = numbers.architecture, numbers.header.metadata

    def number(name: str, default: int = 0) -> int:
        value = metadata.get(numbers.key(name), default)
        return value if isinstance(value, int) and not isinstance(value, bool) else 0

    n_embd, n_head = number("embedding_length"), number("attention.head_count")
    swa = ("attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa")
    for name in ("rope.dimension_count", "rope.dimension_count_swa"):
        if architecture in ROTATING and number(name, 1) < 1:
            numbers.refuse(text("model.not_positive", key=numbers.key(name), value="0"))
    if architecture not in WHOLE_HEADS or n_head < 1 or n_embd < 1:
        return
    if any(numbers.key(name) in metadata for name in swa):  # whichever holds for the first layer
        return
    of_head = number("attention.key_length", n_embd // n_head)
    for name, default in (
        ("attention.value_length", n_embd // n_head),
        ("rope.dimension_count", of_head),
    ):
        if number(name, default) != of_head:
            n, key = number(name, default), numbers.key(name)
            numbers.refuse(text("model.whole_heads", key=key, value=n, n=of_head))
    if architecture in HEADS_FILL and of_head * n_head != n_embd:
        key = numbers.key("attention.head_count")
        numbers.refuse(text("model.heads_fill", key=key, n=n_head, size=of_head, all=n_embd))


def _check_indexer(numbers: _Numbers) -> None:
    """Refuse keys of an indexer of a length that llama.cpp asserts against."""
    architecture, metadata = numbers.architecture, numbers.header.metadata
    key, n_rot = numbers.key("attention.indexer.key_length"), numbers.key("rope.dimension_count")
    length, n_turned = metadata.get(key), metadata.get(n_rot)
    ratios = metadata.get(numbers.key("attention.compress_ratios"), ())
    if architecture not in ROTATED_INDEX or not isinstance(length, int):
        return
    is_compressed = architecture in IS_COMPRESSED
    if is_compressed and isinstance(ratios, tuple) and INDEXED_RATIO not in ratios:
        return  # no layer has an indexer
    if isinstance(n_turned, int) and length < n_turned:
        numbers.refuse(text("model.index_short", key=key, value=length, n=n_turned))
    n_piece = length // 64
    is_power = n_piece & (n_piece - 1) == 0
    if length < 1 or length % 64 or not (is_power or is_compressed):
        numbers.refuse(text("model.index_length", key=key, value=length))


def _check_tensors(
    headers: list[Header], tensors: tuple[TensorInfo, ...], n_expert: int, n_layer: int
) -> None:
    for tensor in tensors:
        path = headers[tensor.part].path
        is_vector = tensor.n_dimension == 1 and tensor.type_name not in IN_VECTORS
        if (is_vector or tensor.type_name in NOT_COMPUTED) and OF_NUMBERS not in tensor.name:
            what, kind = tensor_words(tensor.name), tensor.type_name
            raise ModelFileError(path, text("model.no_kernel", what=what, type=kind))
        layer = _LAYER_NAME.match(tensor.name)
        if layer and int(layer[1]) >= n_layer:
            what = tensor_words(tensor.name)
            raise ModelFileError(path, text("model.layer_beyond", what=what, n=n_layer))
        if not _EXPERT_NAME.fullmatch(tensor.name):
            continue
        what, n_dimension = tensor_words(tensor.name), tensor.n_dimension
        if n_dimension != 3:
            raise ModelFileError(path, text("model.three_dimensions", what=what, n=n_dimension))
        if tensor.shape[2] != n_expert:
            n = tensor.shape[2]
            raise ModelFileError(path, text("model.n_expert", what=what, n=n, all=n_expert))


def _has_more(header: Header) -> bool:
    """Return whether another GGUF file stands behind the tensors of one."""
    end = max((tensor.offset + tensor.n_bytes for tensor in header.tensors), default=0)
    if not end or end >= header.file_bytes:
        return False
    with contextlib.suppress(OSError), open(header.path, "rb") as file:
        file.seek(end)
        return _GGUF in file.read(_PAGE_BYTES)
    return False


def _of_piece(piece: re.Match[str]) -> Text:
    """Say how the pieces of a file are joined."""
    whole, mark, of, n = piece.group("whole", "mark", "of", "n")
    pieces = f'"{whole}"{mark}*'
    if n and int(n) > 9:  # the alphabet would put 10 before 2
        pieces = " ".join(f'"{whole}"{mark}{i}{of}{n}' for i in (1, 2, "\u2026", int(n)))
    command = f'cat {pieces} > "{whole}"'
    if sys.platform == "win32":
        command = f'copy /b {pieces} "{whole}"'
    return text("model.piece", whole=whole, command=command)


def _check_shared(numbers: _Numbers, tensors: tuple[TensorInfo, ...]) -> None:
    """Refuse shared experts of another width than llama.cpp takes from the header."""
    if (other := SHARED_WIDTH.get(numbers.architecture)) is None:
        return
    key = numbers.key("expert_shared_feed_forward_length")
    wanted = numbers.header.metadata.get(key, 0)
    if not wanted and other:
        key = numbers.key(other)
        wanted = numbers.header.metadata.get(key, 0)
    if not isinstance(wanted, int):
        return
    for tensor in tensors:
        n = tensor.shape[1]
        if tensor.name.endswith(".ffn_up_shexp.weight") and n != wanted:
            what = tensor_words(tensor.name)
            reason = text("model.shared_width", key=key, wanted=int(wanted), what=what, n=n)
            numbers.refuse(reason)


def _all_parts(path: Path, read: Callable[[Path], Header]) -> list[Header]:
    """Read the headers of all parts, in order. A model that is not split has one part."""
    opened = read(path)
    n_part = _split_key(opened, "split.count", "uint16") or 0
    if n_part <= 1:
        return [opened]
    if n_part > N_PART_MAX:
        raise ModelFileError(path, text("model.many_parts", n=n_part, most=N_PART_MAX))
    number = _split_key(opened, "split.no", "uint16")
    if number is None or number >= n_part:
        raise ModelFileError(path, text("model.part_number", number=str(number), n=n_part))
    ending = _part_ending(number, n_part)
    if opened.identity is not None and _has_more(opened):
        raise ModelFileError(path, text("model.part_joined", part=number + 1, n=n_part))
    if not path.name.endswith(ending):
        raise ModelFileError(
            path, text("model.part_name", part=number + 1, n=n_part, ending=ending)
        )
    stem = path.name.removesuffix(ending)
    headers = []
    for i in range(n_part):
        part_path = path.with_name(stem + _part_ending(i, n_part))
        headers.append(opened if i == number else _part(read, part_path, i, n_part, opened))
    n_tensor = _split_key(opened, "split.tensors.count", "int32")
    n_found = sum(len(header.tensors) for header in headers)
    if n_tensor is not None and n_tensor != n_found:
        raise ModelFileError(
            path, text("model.part_tensors", n=n_tensor, parts=n_part, found=n_found)
        )
    return headers


def _part(
    read: Callable[[Path], Header], path: Path, number: int, n_part: int, opened: Header
) -> Header:
    """Read another part of the same model as `opened`. Raises ModelFileError if it is not one."""
    try:
        header = read(path)
    except ModelFileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            missing = text("model.part_missing", part=number + 1, n=n_part)
            raise ModelFileError(path, missing) from error
        raise
    for key, wanted in (("split.no", number), ("split.count", n_part)):
        if _split_key(header, key, "uint16") != wanted:
            raise ModelFileError(path, text("model.other_part", key=key, part=number + 1, n=n_part))
    for key in ("split.tensors.count", "general.architecture", "general.name"):
        mine, other = header.metadata.get(key), opened.metadata.get(key)
        if mine is not None and other is not None and mine != other:
            raise ModelFileError(path, text("model.part_of_another", key=key))
    return header


def _part_ending(number: int, n_part: int) -> str:
    return f"-{number + 1:05d}-of-{n_part:05d}.gguf"


def _split_key(header: Header, key: str, value_type: str) -> int | None:
    """Return a key, and check its type, because llama.cpp does not."""
    value = header.metadata.get(key)
    if value is None:
        return None
    if header.value_types[key] != value_type or not isinstance(value, int):
        raise ModelFileError(header.path, text("model.key_type", key=key, type=value_type))
    return value


def _joined(headers: list[Header]) -> tuple[TensorInfo, ...]:
    """Join the tensors of all parts. Refuse a name that appears twice."""
    tensors: dict[str, TensorInfo] = {}
    for part, header in enumerate(headers):
        for raw in header.tensors:
            if raw.name in tensors:
                other = tensors[raw.name].part + 1
                twice = text("model.tensor_twice", tensor=quoted(raw.name), part=other)
                raise ModelFileError(header.path, twice)
            tensors[raw.name] = TensorInfo(
                name=raw.name,
                shape=raw.shape,
                n_dimension=raw.n_dimension,
                type_name=raw.type.name,
                type_id=raw.type.type_id,
                part=part,
                offset=raw.offset,
                n_bytes=raw.n_bytes,
            )
    if not tensors:
        raise ModelFileError(headers[0].path, text("model.no_tensors"))
    return tuple(tensors.values())


def _fingerprint(headers: list[Header]) -> str:
    whole = hashlib.sha256()
    for header in headers:
        whole.update(header.digest)
        whole.update(header.file_bytes.to_bytes(8, "little"))
    return whole.hexdigest()
