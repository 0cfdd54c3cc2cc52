"""The pack of a model: a second file from which the engine reads experts faster.

Each expert is one range that begins at a block. Its matrices lie in the order of their use, each at
the beginning of a block. In the layout "repacked" they have the layout of the CPU backend's fastest
kernels. The model, the layout and the processor determine a pack, so a pack is valid if its header
equals the one that would be written now.

The file: 8 bytes of magic, version and length of the header (uint32 each, little-endian), the
header as JSON; at the next block a CRC-32 of every expert's range, by layer and expert (uint32, 0:
not written yet); at the next block the ranges.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import ModelFile, TensorInfo
from backend.system.paths import data_folder
from backend.text import Text, joined, text

Layout = Literal["file", "repacked"]
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
SUFFIX = ".pack"
BLOCK_BYTES = 4096

_MAGIC = b"OUTRPACK"
_VERSION = 1
_PREFIX = struct.Struct("<8sII")
_HEADER_BYTES_MAX = 64 << 20
_N_SAMPLE, _SAMPLE_BYTES = 64, 1024
_PART_OF_SPLIT = re.compile(r"-00001-of-\d{5}$")
_ORDER = ("gate_up", "gate", "up", "down")
_ROLE = re.compile(r"ffn_([a-z_]+)_exps")


class PackError(Exception):
    """A pack cannot be used or written; str() is one sentence for the user."""


@dataclass(frozen=True)
class PackedTensor:
    """One matrix of each expert of a layer. place: its offset in an expert's range."""

    tensor: TensorInfo
    place: int
    repacked: bool


@dataclass(frozen=True)
class PackedLayer:
    """The experts of one layer. The first range begins at `offset`; one follows every `stride`."""

    layer: int
    offset: int
    stride: int
    tensors: tuple[PackedTensor, ...]


@dataclass(frozen=True)
class PackPlan:
    """The contents of the pack of a model in a layout."""

    layout: Layout
    n_expert: int
    header: bytes
    """The beginning of the file, up to the checksums."""
    layers: tuple[PackedLayer, ...]
    n_bytes: int
    """Size of the whole file."""


@dataclass(frozen=True)
class Pack:
    """A complete pack that belongs to a model and to this processor."""

    path: Path
    plan: PackPlan
    identity: FileIdentity
    """Identity of the file when its header was checked."""

    def sums(self) -> list[list[int]]:
        """Read the checksums by layer and expert; 0 where nothing was written. Raises OSError."""
        n_layer, n_expert = len(self.plan.layers), self.plan.n_expert
        with self.path.open("rb") as handle:
            handle.seek(len(self.plan.header))
            data = handle.read(4 * n_layer * n_expert)
        if len(data) < 4 * n_layer * n_expert:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.path))
        numbers = struct.unpack(f"<{n_layer * n_expert}I", data)
        return [list(numbers[i * n_expert :][:n_expert]) for i in range(n_layer)]


def beside(file: ModelFile) -> Path:
    """Return the path of the pack beside a model."""
    first = file.paths[0]
    return first.with_name(_PART_OF_SPLIT.sub("", first.stem) + SUFFIX)


def in_data_folder(file: ModelFile) -> Path:
    """Return the path of the pack in the application's data folder."""
    return data_folder() / "packs" / f"{file.fingerprint[:32]}{SUFFIX}"


def find(file: ModelFile) -> tuple[Pack | None, str]:
    """Return the pack of a model or None, and sentences that say why others are not used."""
    remarks: list[str] = []
    for path in (beside(file), in_data_folder(file)) if file.is_moe else ():
        try:
            if path.is_file():
                return read(path, file), ""
        except PackError as error:
            remarks.append(str(error))
        except OSError as error:
            why = text("model.unreadable", reason=error.strerror or str(error))
            remarks.append(text("pack.not_used", file=path.name, reason=why))
    return None, joined(*remarks)


def read(path: Path, file: ModelFile) -> Pack:
    """Read and check the header of a pack. Raises PackError when it does not fit, and OSError."""
    with path.open("rb") as handle:
        found = _json_object(handle.read(_header_bytes(handle.read(_PREFIX.size))))
        identity = FileIdentity.of(handle.fileno())

    def refuse(why: Text) -> PackError:
        again = text("pack.write_again", reason=why)
        return PackError(text("pack.not_used", file=path.name, reason=again))

    if found is None or found.get("layout") not in LAYOUTS:
        raise refuse(text("pack.no_pack"))
    if found.get("version") != _VERSION:
        raise refuse(text("pack.other_version"))
    try:
        plan = plan_of(file, found["layout"])
    except PackError:
        raise refuse(text("pack.needless")) from None
    wanted = _json_object(plan.header[_PREFIX.size :].rstrip(b"\0"))
    assert wanted is not None
    if found.get("model") != wanted["model"] or found.get("sample") != wanted["sample"]:
        raise refuse(text("file.other_model"))
    if found.get("processor") != wanted["processor"]:
        raise refuse(text("pack.other_processor"))
    if found != wanted or identity.size_bytes != plan.n_bytes:
        raise refuse(text("pack.no_pack"))
    return Pack(path, plan, identity)


def plan_of(file: ModelFile, layout: Layout) -> PackPlan:
    """Return the contents of a model's pack. Raises PackError where it can have none."""
    if not file.is_moe:
        raise PackError(text("pack.no_experts"))
    repacks = _repacks if layout == "repacked" else lambda _tensor: False
    kinds = sorted({t.type_id for ts in file.expert_tensors.values() for t in ts if repacks(t)})
    if layout == "repacked" and not kinds:
        raise PackError(text("pack.fast_already"))
    draft = []
    for number, tensors in file.expert_tensors.items():
        place, packed = 0, []
        for t in sorted(tensors, key=_needed_when):
            packed.append(PackedTensor(t, place, repacks(t)))
            place += _to_block(t.matrix_bytes)
        draft.append(PackedLayer(number, 0, place, tuple(packed)))
    description = {
        "version": _VERSION,
        "model": file.fingerprint,
        "sample": sample(file),
        "layout": layout,
        "processor": _fingerprint(kinds),
        "layers": [
            [layer.layer, [[t.tensor.name, t.place, t.repacked] for t in layer.tensors]]
            for layer in draft
        ],
    }
    body = json.dumps(description, separators=(",", ":")).encode()
    header = _PREFIX.pack(_MAGIC, _VERSION, len(body)) + body
    header += bytes(_to_block(len(header)) - len(header))
    offset = len(header) + _to_block(4 * len(draft) * file.n_expert)
    layers = []
    for layer in draft:
        layers.append(PackedLayer(layer.layer, offset, layer.stride, layer.tensors))
        offset += layer.stride * file.n_expert
    return PackPlan(layout, file.n_expert, header, tuple(layers), offset)


def _to_block(n_bytes: int) -> int:
    return -(-n_bytes // BLOCK_BYTES) * BLOCK_BYTES


def _needed_when(tensor: TensorInfo) -> int:
    found = _ROLE.search(tensor.name)
    return _ORDER.index(found[1]) if found and found[1] in _ORDER else len(_ORDER)


def _repacks(tensor: TensorInfo) -> bool:
    from backend import _native  # loads llama.cpp, which a pack in the layout "file" does not need

    return bool(_native.can_repack(tensor.type_id, tensor.shape[0], tensor.shape[1]))


def _fingerprint(type_ids: Sequence[int]) -> str:
    """Return a hash of samples as the CPU backend repacks them; "" where nothing is repacked."""
    if not type_ids:
        return ""
    from backend import _native  # as in _repacks
    from backend.llama.api import log  # heavy: llama_cpp; keeps ggml's lines off standard error

    log.listen(echo=log.echo)
    whole = hashlib.sha256()
    for type_id in type_ids:
        n_column, n_row = 512, 32  # whole blocks of every type
        matrix = random.Random(0).randbytes(_native.matrix_bytes(type_id, n_column, n_row))
        whole.update(_native.repack(matrix, type_id, n_column, n_row))
    return whole.hexdigest()


def sample(file: ModelFile) -> str:
    """Return a hash of samples of the weights: of the experts', if there are some.

    ModelFile.fingerprint does not cover them. Raises OSError.
    """
    tensors = [t for ts in file.expert_tensors.values() for t in ts] or list(file.tensors)
    chance = random.Random(0)
    places: dict[int, list[int]] = {}
    for i in range(_N_SAMPLE):
        t = tensors[i * len(tensors) // _N_SAMPLE]
        places.setdefault(t.part, []).append(t.offset + chance.randrange(t.n_bytes))
    whole = hashlib.sha256()
    for part, offsets in sorted(places.items()):
        with file.paths[part].open("rb") as handle:  # buffered reads are never short
            for offset in sorted(offsets):
                handle.seek(offset)
                whole.update(handle.read(_SAMPLE_BYTES))
    return whole.hexdigest()


def _header_bytes(prefix: bytes) -> int:
    """Return the length of the header after this prefix, or 0 where it is no pack's prefix."""
    if len(prefix) < _PREFIX.size:
        return 0
    magic, _, length = _PREFIX.unpack(prefix)
    return int(length) if magic == _MAGIC and length <= _HEADER_BYTES_MAX else 0


def _json_object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
