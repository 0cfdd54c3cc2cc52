"""Keeps the settings that the adaptive method learned, for the next loading."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from pathlib import Path
from typing import Any

from backend.engine.experiment import NO_EXPERIMENT, Experiment
from backend.memory.engine_plan import EnginePlan
from backend.methods.auto import Learned
from backend.methods.tuner import Tuner
from backend.system.kept_file import alone, read_object, write_json

_FORMAT = 1
_N_KEPT_MAX = 200

Key = list[str]
"""The conditions of a measurement: the model, an experiment's changes, and more."""


def key_of(
    fingerprint: str, experiment: Experiment, predictor: str, plan: EnginePlan, n_slot: int
) -> Key:
    """Return what a setting depends on: the model, its source, the machine and the cache.

    fingerprint: of the model. predictor: in a few words. n_slot: experts of a layer.
    """
    tier = plan.tier
    source = (
        "file" if tier.pack is None else f"{tier.pack.plan.layout}, {len(tier.pack.sources)} files"
    )
    speed = round(math.log2(tier.drive.bytes_per_s)) if tier.drive.bytes_per_s > 0 else 0
    machine = f"{plan.n_thread} threads, 2^{speed} B/s, {plan.device_keys}"
    natural = experiment == NO_EXPERIMENT
    numbers = experiment.accuracy, experiment.lookahead, experiment.link_bytes_per_s
    changes = "" if natural else f"{experiment.forced is not None} {numbers}"
    return [fingerprint, changes, predictor, f"{n_slot} experts", source, machine]


class LearnedSettings:
    """The file of settings. It may be deleted at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, key: Key, tuner: Tuner) -> Learned | None:
        """Return the settings learned under exactly these conditions, or None."""
        return self._found(tuner).get(tuple(key))

    def guess(self, key: Key, tuner: Tuner) -> Learned | None:
        """Return a setting for conditions that were not measured; None where nothing is known.

        It is the one that was measured last for this model, or the one that most models have.
        """
        found = self._found(tuner)
        for other, learned in reversed(found.items()):
            if other[:2] == tuple(key[:2]):
                return Learned(learned.setting)
        settings = Counter(found[other].setting for other in found if not other[1])
        return Learned(settings.most_common(1)[0][0]) if settings else None

    def note(self, key: Key, learned: Learned) -> None:
        """Keep learned settings.

        Ignore a failure of the drive: the method then learns them again.
        """
        with alone(self._path), contextlib.suppress(OSError):
            known = [(k, data) for k, data in self._read() if k != key]
            known.append((key, learned.to_json()))
            entries = [{"key": k, **data} for k, data in known[-_N_KEPT_MAX:]]
            write_json(self._path, {"format": _FORMAT, "settings": entries})

    def _found(self, tuner: Tuner) -> dict[tuple[str, ...], Learned]:
        """Return what this tuner's method can use, the newest last."""
        read = ((tuple(key), tuner.learned_from(data)) for key, data in self._read())
        return {key: learned for key, learned in read if learned is not None}

    def _read(self) -> list[tuple[Key, dict[str, Any]]]:
        """Return the entries that can be read, the newest last."""
        file = read_object(self._path)
        entries = file.get("settings")
        if file.get("format") != _FORMAT or not isinstance(entries, list):
            return []
        known = []
        for entry in entries:
            key = entry.get("key") if isinstance(entry, dict) else None
            if (
                isinstance(key, list)
                and len(key) > 1
                and all(isinstance(word, str) for word in key)
            ):
                known.append((key, {name: entry[name] for name in entry if name != "key"}))
        return known
