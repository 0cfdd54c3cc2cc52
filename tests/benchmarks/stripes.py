"""Compare a pack on one drive with one that is striped over two, in turn.

    PYTHONPATH=.:tests .venv/bin/python tests/benchmarks/stripes.py \
        ONE/MODEL.gguf TWO/MODEL.gguf --forced-routing TRACE --rate 0.25 --rounds 5

The two paths are of the same model (a link will do); beside each lies its own pack, made with
`outrider pack ONE/MODEL.gguf --to A` and `outrider pack TWO/MODEL.gguf --to A --to B`. The order of
the two changes from round to round. The first round is cold and not counted.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from backend.bench.child import Job
from backend.bench.turns import Child
from backend.bench.workload import Request, check_trace, forced_rows, n_recorded_prompt
from backend.gguf.model_file import read_model
from backend.packs.file import find
from backend.protocol.settings import EngineConfig
from backend.traces.reading import read_trace


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs=2)
    parser.add_argument("--forced-routing", type=Path, required=True)
    parser.add_argument("--accuracy", type=float, default=0.886)
    parser.add_argument("--rate", type=float, default=0.25)
    parser.add_argument("--method", default="outrider")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    trace = read_trace(args.forced_routing)
    file = check_trace(trace, read_model(args.model[0]))
    requests = [Request(n_recorded_prompt(trace), args.tokens)]
    requests += [Request(args.prefill, 0)] if args.prefill else []
    handle, rows = tempfile.mkstemp(suffix=".npy")
    os.close(handle)
    np.save(rows, forced_rows(trace, file, requests, args.rounds))
    children = {}
    for path in args.model:
        pack, remark = find(read_model(path))
        assert pack is not None, remark
        shares = "/".join(map(str, pack.sources.values()))
        name = f"{len(pack.sources)} drives ({shares})"
        for kind in ("link", "outrider"):
            config = EngineConfig.of(
                method=args.method, cache_rate=args.rate, n_thread=2, n_ubatch=512, pack=True
            )
            job = Job(
                kind, str(path), config, args.rounds, [[r.n_prompt, r.n_decode] for r in requests],
                n_expert_used=file.n_expert_used, forced=rows,
                accuracy=args.accuracy if kind == "outrider" else None,
            )  # fmt: skip
            children[name, kind] = Child(job, 0, f"{name}-{kind}")
    names = list(dict.fromkeys(name for name, _ in children))
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    try:
        for child in children.values():
            child.ask("open")
        for number in range(args.rounds):
            for name in names if number % 2 == 0 else names[::-1]:
                link = children[name, "link"].ask("measure_link")
                turn = children[name, "outrider"].ask("turn")
                found[name].append({"copies": link["whole_bytes_per_s"] / 1e6, **_speeds(turn)})
                print(
                    number, name, {k: round(v, 2) for k, v in found[name][-1].items()}, flush=True
                )
    finally:
        for child in children.values():
            child.close()
        Path(rows).unlink()
    one, two = (found[name][1:] for name in names)
    for what in one[0]:
        ratios = [b[what] / a[what] for a, b in zip(one, two, strict=True)]
        values = " against ".join(f"{median(r[what] for r in rows):.2f}" for rows in (two, one))
        print(
            f"{what}: {values}; ratio {median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
        )


def _speeds(turn: dict[str, Any]) -> dict[str, float]:
    """Return tokens per second, and megabytes read for a decoded token."""
    speeds = {}
    for i, request in enumerate(turn["requests"]):
        for is_decode in (False, True):
            passes = [p for p in request["passes"] if p["is_decode"] == is_decode]
            if passes:
                n = sum(p["n_token"] for p in passes)
                what = "decode" if is_decode else f"prompt {i} of {n}"
                speeds[what] = n / sum(p["wall_s"] for p in passes)
                if is_decode:
                    speeds["MB read"] = sum(p["bytes_read"] for p in passes) / n / 1e6
    return speeds


if __name__ == "__main__":
    main()
