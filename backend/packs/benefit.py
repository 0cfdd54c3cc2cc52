"""Measures the cost and gain of a pack, to offer one. Takes about two seconds."""

from __future__ import annotations

import shutil
from pathlib import Path

from backend import _native
from backend.gguf.model_file import ModelFile
from backend.packs.file import BLOCK_BYTES, Layout, PackError, find, plan_of
from backend.packs.offer import PackOffer
from backend.packs.write import best_layout, place_for, space_needed
from backend.system.memory import physical_cores
from backend.system.paths import exists
from backend.text import text

_READ_S = 0.3
_PRODUCT_S = 0.15


def offer(file: ModelFile, n_thread: int = 0) -> PackOffer | None:
    """Measure the gain of a pack. Return None where the model has one or can have none.

    n_thread: number of compute threads; 0: one per physical core. Raises PackError.
    """
    if not file.is_moe or find(file)[0] is not None:
        return None
    layout = best_layout(file)
    path, plan = place_for(file), plan_of(file, layout)
    try:
        read_gain = _read_gain(file)
        compute_gain = _compute_gain(file, n_thread or physical_cores(), layout)
        free_bytes = shutil.disk_usage(_existing(path.parent)).free
    except (OSError, RuntimeError) as error:
        raise PackError(text("pack.not_measured", reason=str(error))) from None
    used = file.token_expert_bytes
    return PackOffer(
        path=str(path),
        layout=layout,
        needed_bytes=space_needed(path, plan),
        free_bytes=free_bytes,
        read_gain=read_gain,
        compute_gain=compute_gain,
        expert_share=used / max(1, used + file.dense_bytes),
    )


def _read_gain(file: ModelFile) -> float:
    """Return the speed-up of reading whole experts by io_uring over matrices by threads.

    Both are measured on the model's file.
    """
    tensors = next(iter(file.expert_tensors.values()))
    matrix = max(t.matrix_bytes for t in tensors)
    path = str(file.paths[tensors[0].part])

    def speed(n_bytes: int, *, ring: bool) -> float:
        whole = -(-n_bytes // BLOCK_BYTES) * BLOCK_BYTES
        found = _native.measure_reads(path, whole, 4, _READ_S / 2, ring=ring).bytes_per_s
        return float(found)

    packed = apart = 0.0
    for _ in range(2):  # alternate, because the drive's speed drifts
        packed = max(packed, speed(sum(t.matrix_bytes for t in tensors), ring=True))
        apart = max(apart, speed(matrix, ring=False))
    return max(1.0, packed / apart)


def _compute_gain(file: ModelFile, n_thread: int, layout: Layout) -> float:
    """Return the speed-up of computing one token with one layer's matrices."""
    if layout == "file":
        return 1.0
    times = {False: 0.0, True: 0.0}
    for t in next(iter(file.expert_tensors.values())):
        kind = t.type_id, t.shape[0], t.shape[1]
        for repacked in times:
            fastest = repacked and _native.can_repack(*kind)
            times[repacked] += _native.measure_product(*kind, 1, n_thread, fastest, _PRODUCT_S)
    return max(1.0, times[False] / times[True])


def _existing(folder: Path) -> Path:
    """Return the folder, or its nearest parent that exists."""
    while not exists(folder) and folder != folder.parent:
        folder = folder.parent
    return folder
