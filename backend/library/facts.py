"""The facts of a model for the library, and a cache of them on the drive."""

from __future__ import annotations

import contextlib
import json
import math
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backend.library.asked import asked
from backend.memory.plan import Needs
from backend.system.kept_file import read_object, write_whole
from backend.text import text, to_json

if TYPE_CHECKING:
    from backend.gguf.model_file import ModelFile

_FORMAT = 3
_N_KEPT_MAX = 4096


@dataclass(frozen=True)
class Facts:
    """The facts of a model that passed the checks. Sizes are in bytes.

    n_parameter_active: dense weights, and those of the experts that one token uses.
    token_dense_bytes, token_expert_bytes: bytes of each that decoding one token reads.
    """

    fingerprint: str
    name: str
    architecture: str
    quantisation: str
    n_parameter: int
    n_parameter_active: int
    file_bytes: int
    n_layer: int
    n_moe_layer: int
    n_expert: int
    n_expert_used: int
    context_length: int
    expert_bytes_total: int
    token_dense_bytes: int
    token_expert_bytes: int
    needs: Needs

    @property
    def is_moe(self) -> bool:
        """Whether its experts can be cached."""
        return not self.needs.reason

    @classmethod
    def of(cls, model: ModelFile, n_context: int) -> Facts:
        """Compute the facts of a checked model file. n_context: longest context to plan for."""
        n_total = n_expert_weights = n_expert_active = 0
        for tensor in model.tensors:
            n_total += math.prod(tensor.shape)
        for layer, tensors in model.expert_tensors.items():
            for tensor in tensors:
                n_expert_weights += math.prod(tensor.shape)
                n_expert_active += (
                    math.prod(tensor.shape) // tensor.shape[2] * model.n_used_of(layer)
                )
        return cls(
            fingerprint=model.fingerprint,
            name=model.name,
            architecture=model.architecture,
            quantisation=model.quantisation,
            n_parameter=n_total,
            n_parameter_active=n_total - n_expert_weights + n_expert_active,
            file_bytes=model.file_size_bytes,
            n_layer=model.n_layer,
            n_moe_layer=model.n_moe_layer,
            n_expert=model.n_expert,
            n_expert_used=model.n_expert_used,
            context_length=model.context_length,
            expert_bytes_total=model.expert_bytes_total,
            token_dense_bytes=model.token_dense_bytes,
            token_expert_bytes=model.token_expert_bytes,
            needs=Needs.of(model, min(n_context, model.context_length or n_context)),
        )

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Facts:
        """Undo asdict. Raises KeyError or TypeError for missing or invalid fields."""
        needs = Needs(**data["needs"])
        made = cls(**{**data, "needs": needs})
        for whole in (made, needs):
            for item in fields(whole):
                want = {"int": int, "str": str, "Needs": Needs}[str(item.type)]
                if type(getattr(whole, item.name)) is not want:
                    raise TypeError(f"{item.name} is of the wrong kind")
        return made


class FactsCache:
    """Caches facts and refusals by path, while size and times of every part are unchanged.

    path: a JSON file, which may be deleted at any time; None writes no file. Several threads may
    use a cache.
    """

    def __init__(self, path: Path | None, n_context: int) -> None:
        self._path = path
        self._n_context = n_context
        self._kept: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._changed = False
        self.n_read = 0
        """Headers read because the cache had no valid entry."""
        if path is not None:
            self._kept = _load(path)

    def facts(self, paths: Sequence[Path], stamps: Sequence[tuple[int, ...]]) -> Facts | str:
        """Return the facts of a model with these parts, or a clause why it is refused.

        stamps: of the parts (FileIdentity.stamp).
        """
        stamp = json.loads(json.dumps([self._n_context, *stamps]))
        key = str(paths[0])
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None and kept.get("stamp") == stamp:
            if isinstance(kept.get("refused"), str):
                return str(kept["refused"])
            try:
                return Facts.from_json(kept["facts"])
            except (KeyError, TypeError):
                pass  # an entry of an older version, or damaged: read the header again
        found = self._read(paths[0])
        entry: dict[str, Any] = {"stamp": stamp}
        if isinstance(found, Facts):
            entry["facts"] = asdict(found)
        else:
            entry["refused"] = found
        with self._lock:
            self._kept.pop(key, None)
            self._kept[key] = entry
            self._changed = True
        return found

    def save(self) -> None:
        """Write the file if entries changed. Ignore a failure: headers are then read again."""
        with self._lock:
            if self._path is None or not self._changed:
                return
            newest = dict(list(self._kept.items())[-_N_KEPT_MAX:])
            self._changed = False
        with contextlib.suppress(OSError):
            written = json.dumps(to_json({"format": _FORMAT, "files": newest}))
            write_whole(self._path, written.encode("ascii"))

    def _read(self, path: Path) -> Facts | str:
        from backend.gguf.model_file import ModelFileError, read_model  # numpy: not at start

        self.n_read += 1
        try:
            model = asked(read_model(path), path, self._n_context)
            return Facts.of(model, self._n_context)
        except ModelFileError as error:
            return error.reason
        except (ValueError, IndexError, ArithmeticError, MemoryError, RecursionError):
            return text("model.no_sense")


def _load(path: Path) -> dict[str, dict[str, Any]]:
    data = read_object(path)
    if data.get("format") != _FORMAT:
        return {}
    files = data.get("files")
    if not isinstance(files, dict):
        return {}
    return {key: value for key, value in files.items() if isinstance(value, dict)}
