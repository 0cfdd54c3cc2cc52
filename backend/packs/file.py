"""The pack of a model: a second file with its experts as the engine reads them fastest.

Each expert is one range that begins at a block, its matrices in the order in which they are needed,
each at a block of its own; in the layout "repacked" they are laid out as the CPU backend's fastest
kernels want them. What a pack looks like follows from the model, the layout and the processor, so a
pack is valid if its header is the one that would be written now.

The file: 8 bytes of magic, version and length of the header (uint32 each, little-endian), the
header as JSON; at the next block a CRC-32 of every expert's range, by layer and expert (uint32, 0:
not written yet); at the next block the ranges.
"""

from __future__ import annotations

import hashlib
import json
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
    """A pack that cannot be used or made; str() is one sentence for the user."""


@dataclass(frozen=True)
class PackedTensor:
    """One matrix of each of a layer's experts. `place`: of its first byte in an expert's range."""

    tensor: TensorInfo
    place: int
    repacked: bool


@dataclass(frozen=True)
class PackedLayer:
    """The experts of one layer: the first range begins at `offset`, one every `stride` bytes."""

    layer: int
    offset: int
    stride: int
    tensors: tuple[PackedTensor, ...]


@dataclass(frozen=True)
class PackPlan:
    """What the pack of a model in a layout looks like."""

    layout: Layout
    n_expert: int
    header: bytes
    """The beginning of the file, up to the checksums."""
    layers: tuple[PackedLayer, ...]
    n_bytes: int
    """Of the whole file."""

    def places(self, part: int) -> dict[str, tuple[int, int, int, bool]]:
        """By tensor what a backend._native.TensorPlace is made of, the file being `part`."""
        return {
            t.tensor.name: (part, layer.offset + t.place, layer.stride, t.repacked)
            for layer in self.layers
            for t in layer.tensors
        }


@dataclass(frozen=True)
class Pack:
    """A complete pack that belongs to a model and to this processor."""

    path: Path
    plan: PackPlan
    identity: FileIdentity
    """Of the file whose header was checked."""


def beside(file: ModelFile) -> Path:
    """Where the pack lies beside a model."""
    first = file.paths[0]
    return first.with_name(_PART_OF_SPLIT.sub("", first.stem) + SUFFIX)


def in_data_folder(file: ModelFile) -> Path:
    """Where the pack lies in the application's data folder."""
    return data_folder() / "packs" / f"{file.fingerprint[:32]}{SUFFIX}"


def find(file: ModelFile) -> tuple[Pack | None, str]:
    """Return the pack of a model, if there is one, and why others are not used, for the user."""
    remarks: list[str] = []
    for path in (beside(file), in_data_folder(file)) if file.is_moe else ():
        try:
            if path.is_file():
                return read(path, file), ""
        except PackError as error:
            remarks.append(str(error))
        except OSError as error:
            remarks.append(f"{path.name} is not used: it cannot be read ({error.strerror}).")
    return None, " ".join(remarks)


def read(path: Path, file: ModelFile) -> Pack:
    """Check the header of a pack. Raises PackError when it does not fit, OSError."""
    with path.open("rb") as handle:
        said = _said(handle.read(_header_bytes(handle.read(_PREFIX.size))))
        identity = FileIdentity.of(handle.fileno())

    def refuse(why: str) -> PackError:
        again = "outrider pack makes it anew"
        return PackError(f"{path.name} is not used: {why}; {again}.")

    if said is None or said.get("layout") not in LAYOUTS:
        raise refuse("it is no pack, or a damaged one")
    if said.get("version") != _VERSION:
        raise refuse("another version of Outrider made it")
    try:
        plan = plan_of(file, said["layout"])
    except PackError as error:
        raise refuse(str(error).rstrip(".").lower()) from None
    mine = _said(plan.header[_PREFIX.size :].rstrip(b"\0"))
    assert mine is not None
    if said.get("model") != mine["model"] or said.get("sample") != mine["sample"]:
        raise refuse("it was made for another model")
    if said.get("processor") != mine["processor"]:
        raise refuse("it was made for another processor or llama.cpp")
    if said != mine or identity.size_bytes != plan.n_bytes:
        raise refuse("it is no pack, or a damaged one")
    return Pack(path, plan, identity)


def plan_of(file: ModelFile, layout: Layout) -> PackPlan:
    """What the pack of a model would look like. Raises PackError where there can be none."""
    if not file.is_moe:
        raise PackError("This model has no experts to pack.")
    repacks = _repacks if layout == "repacked" else lambda _tensor: False
    kinds = sorted({t.type_id for ts in file.expert_tensors.values() for t in ts if repacks(t)})
    if layout == "repacked" and not kinds:
        raise PackError("This processor computes this model's experts fastest as they are.")
    draft = []
    for number, tensors in file.expert_tensors.items():
        place, packed = 0, []
        for t in sorted(tensors, key=_needed_when):
            packed.append(PackedTensor(t, place, repacks(t)))
            place += _to_block(t.matrix_bytes)
        draft.append(PackedLayer(number, 0, place, tuple(packed)))
    said = {
        "version": _VERSION,
        "model": file.fingerprint,
        "sample": _sample(file),
        "layout": layout,
        "processor": _fingerprint(kinds),
        "layers": [
            [layer.layer, [[t.tensor.name, t.place, t.repacked] for t in layer.tensors]]
            for layer in draft
        ],
    }
    text = json.dumps(said, separators=(",", ":")).encode()
    header = _PREFIX.pack(_MAGIC, _VERSION, len(text)) + text
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
    from backend import _native

    return bool(_native.can_repack(tensor.type_id, tensor.shape[0], tensor.shape[1]))


def _fingerprint(type_ids: Sequence[int]) -> str:
    """What the CPU backend makes of a sample of each type; empty where nothing is laid out anew."""
    if not type_ids:
        return ""
    from backend import _native
    from backend.llama.api import log  # ggml would tell of every matrix on standard error

    log.listen(echo=log.echo)
    whole = hashlib.sha256()
    for type_id in type_ids:
        n_column, n_row = 512, 32  # whole blocks of every type
        matrix = random.Random(0).randbytes(_native.matrix_bytes(type_id, n_column, n_row))
        whole.update(_native.repack(matrix, type_id, n_column, n_row))
    return whole.hexdigest()


def _sample(file: ModelFile) -> str:
    """A hash of pieces from all over the experts: the fingerprint does not cover their data."""
    tensors = [t for ts in file.expert_tensors.values() for t in ts]
    chance = random.Random(0)
    places: dict[int, list[int]] = {}
    for i in range(_N_SAMPLE):
        t = tensors[i * len(tensors) // _N_SAMPLE]
        places.setdefault(t.part, []).append(t.offset + chance.randrange(t.n_bytes))
    whole = hashlib.sha256()
    for part, offsets in sorted(places.items()):
        with file.paths[part].open("rb") as handle:  # buffered, so that no read is short
            for offset in sorted(offsets):
                handle.seek(offset)
                whole.update(handle.read(_SAMPLE_BYTES))
    return whole.hexdigest()


def _header_bytes(prefix: bytes) -> int:
    """The length that a file's beginning says, or 0 where it is no pack's."""
    if len(prefix) < _PREFIX.size:
        return 0
    magic, _, length = _PREFIX.unpack(prefix)
    return int(length) if magic == _MAGIC and length <= _HEADER_BYTES_MAX else 0


def _said(text: bytes) -> dict[str, Any] | None:
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None
