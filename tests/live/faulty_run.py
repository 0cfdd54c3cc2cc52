"""Compare a model with stock llama.cpp while reads fail. Print one JSON object.

    python faulty_run.py MODEL [--truncate BYTES] [--only SETTING]

With --truncate the file is cut after it was opened, and restored at the end.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from equality import Cached, Logits, n_different, stock_logits
from layouts import one_pool

from backend import _native
from backend.gguf.model_file import read_model


def promoe(cached: Cached, expected: dict[int, Logits]) -> list[int]:
    return [o.n_different for o in cached.compare(0.25, "promoe", expected)]


def lru(cached: Cached, expected: dict[int, Logits]) -> list[int]:
    return [o.n_different for o in cached.compare(0.25, "lru", expected)]


def parts_in_one_pool(cached: Cached, expected: dict[int, Logits]) -> list[int]:
    """Compare parts of all layers in one pool with the same parts all resident."""
    shares = dict.fromkeys(range(cached.shape.n_layer), 0.5)
    cached.setup(one_pool(cached.shape, 2 * cached.shape.n_expert_used + 1, shares))
    found = cached.logits(1)
    whole = cached.expected_when_cut(list(shares.values()), {1: expected[1]})
    return [n_different(found, whole[1])]


SETTINGS = {"promoe": promoe, "parts in one pool": parts_in_one_pool, "lru": lru}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--truncate", type=int)
    parser.add_argument("--only", choices=SETTINGS)
    arguments = parser.parse_args()
    file = read_model(arguments.model)
    fault = os.environ.pop("OUTRIDER_FAULT", "none")  # the reference is read without faults
    expected = stock_logits(file, (33, 1), n_thread=1)
    os.environ["OUTRIDER_FAULT"] = fault
    cached = Cached(file, n_thread=1)
    data = arguments.model.read_bytes()
    if arguments.truncate is not None:
        with arguments.model.open("r+b") as handle:
            handle.truncate(arguments.truncate)
    found = {"errors": [], "n_different": []}
    for name, compare in SETTINGS.items():
        if arguments.only not in (None, name):
            continue
        try:
            found["n_different"] += compare(cached, expected)
        except AssertionError as error:
            found["errors"].append(str(error).split("\n")[0])
    if arguments.truncate is not None:
        arguments.model.write_bytes(data)
        cached.patch.begin_pass(_native.Phase.decode)  # all copies in flight have ended
        cached.patch.end_pass()
        found["n_different_after"] = promoe(cached, expected) + parts_in_one_pool(cached, expected)
    counts, times = cached.patch.counts(), cached.patch.times()
    found["stall_us"] = times.stall_us
    found["stall_us_by_layer"] = sum(cached.patch.stall_us_by_layer())
    found["callback_us"] = times.callback_us
    found["misses"] = sum(c.misses for c in counts)
    cached.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
