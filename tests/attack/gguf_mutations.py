"""Mutations of GGUF files that know the format: keys, arrays, tensors and data."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFValueType
from gguf.constants import GGML_QUANT_SIZES

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?",
           10: "<Q", 11: "<q", 12: "<d"}  # fmt: skip
STRING, ARRAY = 8, 9
WHOLE = [0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 511, 512, 513,
         1023, 1024, 1025, 4096, 32767, 65535, 65536, 1 << 20, (1 << 31) - 1, 1 << 31,
         (1 << 32) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, -1]  # fmt: skip
FRACTIONS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-30, 1e30, 3e38, 1e-5, -1e-5, 2.0, 1e9,
             float("inf"), float("-inf"), float("nan")]  # fmt: skip
TEXTS = [b"", b"\0", b"a", b"\xff\xfe", b"llama", b"none", b"gpt2", b"bert", b"rwkv", b"t5", b"spm",
         b"default", b"qwen2", b"x" * 4000, "ключ".encode(), b"{{ messages }}", b"{% for",
         b"../../etc/passwd", b"%s%n%n", b"yarn", b"linear", b"\n"]  # fmt: skip
KINDS = sorted(int(kind) for kind in GGML_QUANT_SIZES)


@dataclass(frozen=True)
class Tensor:
    """A tensor. `data`: its bytes. offset: within the data section; None: after the one before."""

    name: bytes
    shape: tuple[int, ...]
    kind: int
    data: bytes
    offset: int | None = None


@dataclass
class Model:
    """A GGUF file in parts. keys: name, value type, encoded value."""

    version: int = 3
    keys: list[tuple[bytes, int, bytes]] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)
    n_key: int | None = None
    n_tensor: int | None = None

    @classmethod
    def of(cls, path: Path) -> Model:
        """Read a sound file."""
        reader, model = GGUFReader(path), cls()
        for name, found in reader.fields.items():
            if name.startswith("GGUF."):
                continue
            kinds = [int(kind) for kind in found.types]
            model.keys.append((name.encode(), kinds[0], _encoded(found.contents(), kinds)))
        for t in reader.tensors:
            shape = tuple(int(n) for n in t.shape)
            model.tensors.append(Tensor(t.name.encode(), shape, int(t.tensor_type),
                                        t.data.tobytes()))  # fmt: skip
        return model

    def header(self) -> tuple[bytes, int]:
        """Return the header, padded, and the size of the data section."""
        out = [b"GGUF", struct.pack("<I", self.version & 0xFFFFFFFF)]
        out.append(_u64(len(self.tensors) if self.n_tensor is None else self.n_tensor))
        out.append(_u64(len(self.keys) if self.n_key is None else self.n_key))
        for name, kind, value in self.keys:
            out.append(_text(name) + struct.pack("<I", kind & 0xFFFFFFFF) + value)
        place = 0
        for t in self.tensors:
            offset = place if t.offset is None else t.offset
            out.append(_text(t.name) + struct.pack("<I", len(t.shape)))
            out += [_u64(n) for n in t.shape]
            out.append(struct.pack("<I", t.kind & 0xFFFFFFFF) + _u64(offset))
            place += -(-len(t.data) // 32) * 32
        whole = b"".join(out)
        return whole + bytes(-len(whole) % 32), place

    def build(self) -> bytes:
        """Return the whole file."""
        header, _ = self.header()
        return header + b"".join(t.data + bytes(-len(t.data) % 32) for t in self.tensors)


def _u64(n: int) -> bytes:
    return struct.pack("<Q", n & ((1 << 64) - 1))


def _text(raw: bytes) -> bytes:
    return _u64(len(raw)) + raw


def _encoded(value: object, kinds: list[int]) -> bytes:
    if kinds[0] == STRING:
        assert isinstance(value, str)
        return _text(value.encode())
    if kinds[0] == ARRAY:
        assert isinstance(value, list)
        items = b"".join(_encoded(item, kinds[1:]) for item in value)
        return struct.pack("<I", kinds[1]) + _u64(len(value)) + items
    return struct.pack(SCALARS[kinds[0]], value)


def tensor_bytes(shape: tuple[int, ...], kind: int) -> int | None:
    """Return the size of a tensor's data; None where it has none or too much of it."""
    n_value, (block, n_bytes) = 1, GGML_QUANT_SIZES.get(kind, (1, 0))
    for n in shape:
        n_value *= n
    if not n_bytes or not shape or shape[0] % block or not 0 < n_value < 1 << 26:
        return None
    return n_value // block * n_bytes


class Mutator:
    """Changes a model with the numbers of a seed, and notes what it did in `steps`."""

    def __init__(self, chance: random.Random, others: list[Model]) -> None:
        self._chance, self._others = chance, others
        self.steps: list[str] = []

    def mutate(self, model: Model) -> Model:
        """Return a changed copy."""
        made = Model(model.version, list(model.keys), list(model.tensors))
        acts = [self._value] * 8 + [self._tensor_kind, self._tensor_shape, self._tensor] * 3
        acts += [self._key, self._array, self._array, self._data, self._counts]
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            self._chance.choice(acts)(made)
        return made

    def _note(self, *words: object) -> None:
        self.steps.append(" ".join(str(word)[:60] for word in words))

    def _value(self, model: Model) -> None:
        """Give a key another value of its type."""
        at = self._chance.randrange(len(model.keys))
        name, kind, value = model.keys[at]
        if kind == ARRAY:
            return self._array(model)
        if kind == STRING:
            text = self._chance.choice(TEXTS)
            value = _text(text)
            self._note("set", name, text)
        elif kind in (6, 12):
            fraction = self._chance.choice(FRACTIONS)
            value = struct.pack(SCALARS[kind], fraction)
            self._note("set", name, fraction)
        elif kind not in SCALARS:  # an earlier step gave it a type that does not exist
            return
        else:
            before = struct.unpack(SCALARS[kind], value)[0]
            near = [before + d for d in (-1, 1, before, -before)] + [before // 2]
            number = self._chance.choice(WHOLE if self._chance.random() < 0.5 else near)
            value = _fitting(kind, number)
            self._note("set", name, struct.unpack(SCALARS[kind], value)[0])
        model.keys[at] = (name, kind, value)

    def _key(self, model: Model) -> None:
        """Remove, double, rename, retype or borrow a key."""
        at = self._chance.randrange(len(model.keys))
        name, kind, value = model.keys[at]
        how = self._chance.choice(("remove", "remove", "double", "rename", "retype", "borrow"))
        if how == "remove":
            del model.keys[at]
        elif how == "double":
            model.keys.append(model.keys[at])
        elif how == "rename":
            other = self._chance.choice(model.keys)[0]
            model.keys[at] = (self._chance.choice((b"", b"x", other + b"x", b"\xff")), kind, value)
        elif how == "retype":
            new = self._chance.choice((*SCALARS, STRING, ARRAY, 13, 77))
            size = struct.calcsize(SCALARS.get(new, "<Q"))
            model.keys[at] = (name, new, (value + bytes(8))[:size])
        else:
            donor = self._chance.choice(self._others)
            names = (v for n, _, v in model.keys if n == b"general.architecture")
            prefix = next(names, b"")[8:]
            foreign, kind, value = self._chance.choice(donor.keys)
            name = prefix + b"." + foreign.partition(b".")[2]
            model.keys = [k for k in model.keys if k[0] != name] + [(name, kind, value)]
        self._note(how, "key", name)

    def _array(self, model: Model) -> None:
        """Change the items of an array."""
        arrays = [i for i, key in enumerate(model.keys) if key[1] == ARRAY and len(key[2]) >= 12]
        if not arrays:
            return
        at = self._chance.choice(arrays)
        name, kind, value = model.keys[at]
        item_kind, count = struct.unpack_from("<IQ", value)
        items = _items(value, item_kind, count)
        how = self._chance.choice(("drop", "add", "double", "empty", "item", "type", "count"))
        i = self._chance.randrange(len(items)) if items else 0
        if how == "drop" and items:
            del items[i : i + self._chance.choice((1, 5, len(items)))]
        elif how == "add" and items:
            items += [items[i]] * self._chance.choice((1, 50))
        elif how == "double" and items:
            items[i] = self._chance.choice(items)
        elif how == "empty":
            items = []
        elif how == "item" and items:
            items[i] = (_text(self._chance.choice(TEXTS)) if item_kind == STRING
                        else _any_scalar(item_kind, self._chance))  # fmt: skip
        elif how == "type":
            item_kind = self._chance.choice((*SCALARS, STRING, ARRAY, 99))
        count = self._chance.choice(WHOLE) if how == "count" else len(items)
        value = struct.pack("<I", item_kind) + _u64(count) + b"".join(items)
        model.keys[at] = (name, kind, value)
        self._note(how, "array", name, i)

    def _tensor_kind(self, model: Model) -> None:
        """Give a tensor another type, with data of the right size."""
        at = self._chance.randrange(len(model.tensors))
        t = model.tensors[at]
        kind = self._chance.choice([*KINDS, 4, 43])
        n_bytes = tensor_bytes(t.shape, kind)
        data = t.data if n_bytes is None else self._bytes(n_bytes)
        model.tensors[at] = replace(t, kind=kind, data=data)
        self._note("type", t.name, kind)

    def _tensor_shape(self, model: Model) -> None:
        """Give a tensor another shape, with data of the right size."""
        at = self._chance.randrange(len(model.tensors))
        t = model.tensors[at]
        shape = list(t.shape)
        i = self._chance.randrange(len(shape))
        how = self._chance.choice(("swap", "more", "less", "double", "half", "add", "drop", "odd"))
        if how == "swap":
            shape.reverse()
        elif how == "more":
            shape[i] += 32 if i == 0 else 1
        elif how == "less":
            shape[i] = max(shape[i] - (32 if i == 0 else 1), 1)
        elif how == "double":
            shape[i] *= 2
        elif how == "half":
            shape[i] = max(shape[i] // 2, 1)
        elif how == "add":
            shape.append(self._chance.choice((1, 2)))
        elif how == "drop" and len(shape) > 1:
            del shape[i]
        else:
            shape[i] = self._chance.choice(WHOLE)
        n_bytes = tensor_bytes(tuple(shape), t.kind)
        data = t.data if n_bytes is None else self._bytes(n_bytes)
        model.tensors[at] = replace(t, shape=tuple(shape), data=data)
        self._note("shape", t.name, tuple(shape))

    def _tensor(self, model: Model) -> None:
        """Remove, double, rename, swap or move a tensor, or borrow one."""
        at = self._chance.randrange(len(model.tensors))
        t = model.tensors[at]
        how = self._chance.choice(
            ("remove", "remove", "double", "rename", "swap", "move", "borrow")
        )
        if how == "remove":
            del model.tensors[at]
        elif how == "double":
            model.tensors.append(t)
        elif how == "rename":
            names = (t.name + b"x", b"", b"x" * 64, b"\xff", b"blk.9.attn_q.weight")
            model.tensors[at] = replace(t, name=self._chance.choice(names))
        elif how == "swap":
            other = self._chance.randrange(len(model.tensors))
            a, b = model.tensors[at], model.tensors[other]
            model.tensors[at], model.tensors[other] = (
                replace(a, name=b.name),
                replace(b, name=a.name),
            )
        elif how == "move":
            model.tensors[at] = replace(t, offset=self._chance.choice(WHOLE))
        else:
            model.tensors.append(self._chance.choice(self._chance.choice(self._others).tensors))
        self._note(how, "tensor", t.name)

    def _data(self, model: Model) -> None:
        """Damage a tensor's data."""
        at = self._chance.randrange(len(model.tensors))
        t = model.tensors[at]
        fill = self._chance.choice((b"\xff", b"\0", b"\x7f\x80", b"\x00\x7c"))
        data = (fill * len(t.data))[: len(t.data)]
        model.tensors[at] = replace(t, data=data)
        self._note("fill", t.name, fill.hex())

    def _counts(self, model: Model) -> None:
        """Claim other counts, or another version."""
        which = self._chance.choice(("version", "n_key", "n_tensor"))
        number = self._chance.choice(WHOLE)
        setattr(model, which, number)
        self._note(which, number)

    def _bytes(self, n_bytes: int) -> bytes:
        """Return data whose values are finite in every type."""
        rng = np.random.default_rng(self._chance.randrange(1 << 32))
        return rng.integers(0, 0x3C, n_bytes, np.uint8).tobytes()


def damage(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some changed, cut, doubled or put in."""
    found = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = chance.randrange(len(found) + 1)
        how = chance.randrange(6)
        if how == 0 and at < len(found):
            found[at] = chance.randrange(256)
        elif how == 1 and at < len(found):
            found[at] ^= 1 << chance.randrange(8)
        elif how == 2:
            number = chance.choice(WHOLE) & ((1 << 64) - 1)
            size = chance.choice((4, 8))
            found[at : at + size] = _u64(number)[:size]
        elif how == 3:
            del found[at : at + chance.choice((1, 8, 4096, len(found)))]
        elif how == 4:
            found[at:at] = found[at : at + chance.choice((1, 8, 200))]
        else:
            found[at:at] = chance.randbytes(chance.choice((1, 4, 64)))
    return bytes(found)


def _fitting(kind: int, number: float) -> bytes:
    """Return a number in an integer type, cut to its bits."""
    size = struct.calcsize(SCALARS.get(kind, "<Q"))
    return (int(number) & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _any_scalar(kind: int, chance: random.Random) -> bytes:
    if kind in (6, 12):
        return struct.pack(SCALARS[kind], chance.choice(FRACTIONS))
    return _fitting(kind, chance.choice(WHOLE))


def _items(value: bytes, item_kind: int, count: int) -> list[bytes]:
    """Return the encoded items of an array, fewer than `count` where the value is cut."""
    at, items = 12, []
    for _ in range(count):
        if at + 8 > len(value):
            break
        size = struct.calcsize(SCALARS.get(item_kind, "<Q"))
        if item_kind == STRING:
            size = 8 + int(struct.unpack_from("<Q", value, at)[0])
        items.append(value[at : at + size])
        at += size
    return items


assert int(GGUFValueType.ARRAY) == ARRAY and int(GGUFValueType.STRING) == STRING
