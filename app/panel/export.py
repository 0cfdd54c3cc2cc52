"""Export of the panel: a table of the tokens, a table of the experts, a picture."""

from __future__ import annotations

import csv
import errno
import io
from array import array
from pathlib import Path

from app.session.history import History
from app.text.language import translate
from backend.methods import cells
from backend.protocol.status import ModelFacts
from backend.system.kept_file import write_whole

_STATES = {cells.ABSENT: "absent", cells.RESIDENT: "resident", cells.ARRIVING: "arriving"}


def tokens_csv(history: History, layers: tuple[int, ...]) -> str:
    """Return a line for each pass of the answer, the pieces of its prompt first.

    Times are in seconds. stall_layer_N_s is the stall of MoE layer N, empty if it was dropped.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(
        ["kind", "token", "begins_s", "total_s", "compute_s", "stall_s", "other_s", "link_busy_s",
         "hits", "late", "misses", "bytes_read", "bytes_wasted", "prefetches_useful",
         "prefetches_wasted", "on_host", *(f"stall_layer_{layer}_s" for layer in layers)]
    )  # fmt: skip
    now_us, n_token = 0, 0
    for index, figures in enumerate(history.figures):
        n_token += figures.n_token
        stalls_us = history.layer_stall_us(index)
        table.writerow(
            [
                "token" if figures.n_token else "prompt",
                n_token if figures.n_token else "",
                *(
                    f"{us / 1e6:.6f}"
                    for us in (
                        now_us, figures.wall_us, figures.compute_us, figures.stall_us,
                        figures.other_us, figures.link_busy_us,
                    )
                ),
                *figures[figures._fields.index("hits") :],
                *(f"{us / 1e6:.6f}" for us in stalls_us or ()),
            ]
        )  # fmt: skip
        now_us += figures.wall_us
    return text.getvalue()


def experts_csv(model: ModelFacts, residency: bytes, uses: array[int], n_token: int) -> str:
    """Return a line for each expert: whether it is in memory, and its uses."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["layer", "expert", "state", "tokens_using_it", "tokens", "bytes"])
    for index, value in enumerate(residency):
        row, expert = divmod(index, model.n_expert)
        table.writerow(
            [model.moe_layers[row], expert, _STATES.get(value & cells.WHERE, ""),
             uses[index] if index < len(uses) else 0, n_token, model.expert_bytes]
        )  # fmt: skip
    return text.getvalue()


def write(path: Path, data: bytes) -> str:
    """Write a file whole or not at all. Return "", or one sentence about the failure."""
    try:
        write_whole(path, data, makes_folder=False, private=False, durable=True)
    except OSError as error:
        return _sentence(path, error)
    return ""


def _sentence(path: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        text = translate("export", "{name} could not be saved: there is no room on the drive.")
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        text = translate("export", "{name} could not be saved: its folder cannot be written to.")
    elif error.errno in (errno.ENOENT, errno.ENOTDIR):
        text = translate("export", "{name} could not be saved: its folder does not exist.")
    else:
        text = translate("export", "{name} could not be saved: {reason}.")
    return text.format(name=path.name, reason=error.strerror or error)
