"""The pack of a model: a second file from which the engine reads experts faster.

Each expert is one range that begins at a block. Its matrices lie in the order of their use, each at
the beginning of a block. In the layout "repacked" they have the layout of the CPU backend's fastest
kernels. The model, the layout and the processor determine a pack, so a pack is valid if its header
equals the one that would be written now.

The file: 8 bytes of magic, version and length of the header (uint32 each, little-endian), the
header as JSON; at the next block a CRC-32 of every expert's range, by layer and expert (uint32, 0:
not written yet); at the next block the ranges.

A striped pack has its ranges in several files, on drives that are read at once. The file above is
then its head: it names the others and has the checksums of all ranges. Each other file is a header
and ranges.
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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import ModelFile, TensorInfo
from backend.system.paths import data_folder, open_regular
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
_N_FILE_MAX, _SHARES_MAX = 64, 1024


class PackError(Exception):
    """A pack cannot be used or written; str() is one sentence for the user."""


@dataclass(frozen=True)
class PackedTensor:
    """One matrix of each expert of a layer. place: its offset in an expert's range."""

    tensor: TensorInfo
    place: int
    repacked: bool


@dataclass(frozen=True)
class Stripes:
    """The files of a pack. The defaults are those of a pack in one file.

    shares: of the experts, by file; the first file is the head, whose share may be 0. id: the same
    in all files of a pack, and in no other pack. others: paths of the files beside the head.
    """

    shares: tuple[int, ...] = (1,)
    id: str = ""
    others: tuple[Path, ...] = ()


@dataclass(frozen=True)
class PackedLayer:
    """The experts of one layer. Each has a range of `stride` bytes."""

    layer: int
    stride: int
    tensors: tuple[PackedTensor, ...]
    ranges: tuple[tuple[int, int], ...]
    """[expert]: the file, and the offset in it. In a file, one range follows the other."""


@dataclass(frozen=True)
class PackPlan:
    """The contents of the pack of a model in a layout."""

    layout: Layout
    n_expert: int
    headers: tuple[bytes, ...]
    """[file]: its beginning, up to the checksums or the ranges."""
    layers: tuple[PackedLayer, ...]
    sizes: tuple[int, ...]
    """[file]: its size in bytes."""
    stripes: Stripes = field(default_factory=Stripes)

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return sum(self.sizes)

    def paths(self, head: Path) -> list[Path]:
        """Return the paths of the files."""
        return [head, *self.stripes.others]


@dataclass(frozen=True)
class Pack:
    """A complete pack that belongs to a model and to this processor."""

    path: Path
    """Path of the file with the head."""
    plan: PackPlan
    identities: tuple[FileIdentity, ...]
    """[file]: its identity when its header was checked."""

    @property
    def files(self) -> list[tuple[Path, FileIdentity]]:
        """The files and their identities, in order."""
        return list(zip(self.plan.paths(self.path), self.identities, strict=True))

    @property
    def sources(self) -> dict[Path, int]:
        """The files that have experts, and their shares."""
        shares = zip(self.plan.paths(self.path), self.plan.stripes.shares, strict=True)
        return {path: share for path, share in shares if share}

    def sums(self) -> list[list[int]]:
        """Read the checksums by layer and expert; 0 where nothing was written. Raises OSError."""
        n_layer, n_expert = len(self.plan.layers), self.plan.n_expert
        with open(self.path, "rb", opener=open_regular) as handle:
            handle.seek(len(self.plan.headers[0]))
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
    with open(path, "rb", opener=open_regular) as handle:
        found = _description(handle)
        identities = [FileIdentity.of(handle.fileno())]

    def refuse(why: Text) -> PackError:
        again = text("pack.write_again", reason=why)
        return PackError(text("pack.not_used", file=path.name, reason=again))

    if found is None or found.get("layout") not in LAYOUTS:
        raise refuse(text("pack.no_pack"))
    if found.get("version") != _VERSION:
        raise refuse(text("pack.other_version"))
    if (stripes := _stripes(found)) is None:
        raise refuse(text("pack.no_pack"))
    try:
        plan = plan_of(file, found["layout"], stripes)
    except PackError:
        raise refuse(text("pack.needless")) from None
    wanted = _json_object(plan.headers[0][_PREFIX.size :].rstrip(b"\0"))
    assert wanted is not None
    if found.get("model") != wanted["model"] or found.get("sample") != wanted["sample"]:
        raise refuse(text("file.other_model"))
    if found.get("processor") != wanted["processor"]:
        raise refuse(text("pack.other_processor"))
    if found != wanted or identities[0].size_bytes != plan.sizes[0]:
        raise refuse(text("pack.no_pack"))
    for number, other in enumerate(stripes.others, start=1):
        if not other.is_file():
            missing = text("pack.file_missing", file=str(other))
            raise PackError(text("pack.not_used", file=path.name, reason=missing))
        with open(other, "rb", opener=open_regular) as handle:
            header = handle.read(len(plan.headers[number]))
            identities.append(FileIdentity.of(handle.fileno()))
        if (header, identities[-1].size_bytes) != (plan.headers[number], plan.sizes[number]):
            raise refuse(text("pack.file_of_other", file=str(other)))
    return Pack(path, plan, tuple(identities))


def stripes_in(head: Path) -> Stripes:
    """Return the files that a head names, which may be incomplete. Return one file if unreadable.

    Only files that is_stripe() confirms are the pack's.
    """
    try:
        with open(head, "rb", opener=open_regular) as handle:
            return _stripes(_description(handle) or {}) or Stripes()
    except OSError:
        return Stripes()


def is_stripe(stripes: Stripes, number: int) -> bool:
    """Return whether the file of this number (from 1) exists and says that it is this pack's."""
    path = stripes.others[number - 1]
    try:
        if not path.is_file():
            return False
        with open(path, "rb", opener=open_regular) as handle:
            found = _description(handle)
    except OSError:
        return False
    return found is not None and found.get("stripe") == _stripe(stripes, number)


def plan_of(file: ModelFile, layout: Layout, stripes: Stripes | None = None) -> PackPlan:
    """Return the contents of a model's pack. Raises PackError where it can have none."""
    stripes = stripes or Stripes()
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
        draft.append(PackedLayer(number, place, tuple(packed), ()))
    origin = {"version": _VERSION, "model": file.fingerprint, "sample": sample(file)}
    description = {
        **origin,
        "layout": layout,
        "processor": _fingerprint(kinds),
        "layers": [
            [layer.layer, [[t.tensor.name, t.place, t.repacked] for t in layer.tensors]]
            for layer in draft
        ],
    }
    if stripes.others:
        others = [str(path) for path in stripes.others]
        description["stripes"] = {"id": stripes.id, "shares": [*stripes.shares], "others": others}
    headers = [_header(description)]
    for number in range(1, len(stripes.shares)):
        headers.append(_header({**origin, "stripe": _stripe(stripes, number)}))
    ends = [len(header) for header in headers]  # of each file, so far
    ends[0] += _to_block(4 * len(draft) * file.n_expert)
    order = _order(stripes.shares)
    layers = []
    for row, layer in enumerate(draft):
        ranges = []
        for expert in range(file.n_expert):
            number = order[(row + expert) % len(order)]
            ranges.append((number, ends[number]))
            ends[number] += layer.stride
        layers.append(replace(layer, ranges=tuple(ranges)))
    return PackPlan(layout, file.n_expert, tuple(headers), tuple(layers), tuple(ends), stripes)


def _order(shares: Sequence[int]) -> list[int]:
    """Return the files of consecutive experts, until it repeats, spread evenly."""
    credit, order = [0] * len(shares), []
    for _ in range(sum(shares)):
        credit = [have + share for have, share in zip(credit, shares, strict=True)]
        order.append(credit.index(max(credit)))
        credit[order[-1]] -= sum(shares)
    return order


def _header(description: dict[str, Any]) -> bytes:
    body = json.dumps(description, separators=(",", ":")).encode()
    header = _PREFIX.pack(_MAGIC, _VERSION, len(body)) + body
    return header + bytes(_to_block(len(header)) - len(header))


def _stripe(stripes: Stripes, number: int) -> dict[str, Any]:
    """Return what the file of this number says of itself."""
    return {"id": stripes.id, "file": number, "of": len(stripes.shares)}


def _stripes(description: dict[str, Any]) -> Stripes | None:
    """Return the files that a head describes, or None if the description is not valid."""
    found = description.get("stripes")
    if found is None:
        return Stripes()
    try:
        shares, others = tuple(found["shares"]), tuple(Path(path) for path in found["others"])
        is_valid = (
            isinstance(found["id"], str)
            and 1 <= len(others) == len(shares) - 1 < _N_FILE_MAX
            and all(type(share) is int and share >= 0 for share in shares)
            and 1 <= sum(shares) <= _SHARES_MAX
            and all(path.is_absolute() and "\0" not in str(path) for path in others)
        )
    except (TypeError, KeyError, ValueError):
        return None
    return Stripes(shares, found["id"], others) if is_valid else None


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


def _description(handle: BinaryIO) -> dict[str, Any] | None:
    """Read the header of a pack's file. Return None where it has none."""
    return _json_object(handle.read(_header_bytes(handle.read(_PREFIX.size))))


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
