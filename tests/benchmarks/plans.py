"""Print what the engine plans for models of published sizes, by free memory and context.

    python tests/benchmarks/plans.py [NAME ...] [--free 16,24,32] [--contexts 8192,32768,131072]

The files have all tensors of a model as holes, so that llama.cpp can be asked what a context takes;
nothing is computed. A row: GB of keys, values and states, and of checkpoints; tokens of a pass;
experts that each layer keeps, of all of them. `auto` is the context of automatic mode. "-": not
even the experts of a token fit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from factory import PUBLISHED, make_published

from backend.engine.dry_run import DryRun
from backend.gguf.model_file import ModelFile, read_model
from backend.memory.engine_plan import EnginePlan, MachineState, plan_engine
from backend.memory.plan import KvCache, checkpoints, kv_bytes
from backend.protocol.settings import EngineConfig


def cache_bytes(file: ModelFile, made: EnginePlan) -> tuple[int, int]:
    """Return the bytes of keys, values and states, and of all checkpoints."""
    kv = KvCache.of(made.config, made.n_ubatch)
    n, one_bytes = checkpoints(file, made.n_context, kv)
    return kv_bytes(file, made.n_context, kv), n * one_bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PUBLISHED))
    parser.add_argument("--free", default="16,24,32", help="GB")
    parser.add_argument("--contexts", default="8192,32768,131072", help="tokens")
    arguments = parser.parse_args()
    contexts = [0, *map(int, arguments.contexts.split(","))]
    print("model | free GB | context | cache GB | checkpoints GB | pass | experts")
    for name in arguments.names:
        with tempfile.TemporaryDirectory() as folder:
            path = make_published(Path(folder) / "sparse.gguf", name, is_sparse=True)
            dry_run = DryRun(read_model(path))
            file = dry_run.asked(n_output=1)
            for free in map(float, arguments.free.split(",")):
                for n_context in contexts:
                    config = EngineConfig(automatic=True)
                    if n_context:
                        config = config.decided(context_length=n_context)
                    made = plan_engine(file, config, MachineState(round(free * 1e9)))
                    kept, saved = cache_bytes(file, made)
                    few = made.n_slot == made.n_slot_min and made.mapped
                    experts = "-" if few else f"{made.n_slot} of {file.n_expert}"
                    print(
                        f"{name} | {free:g} | {'' if n_context else 'auto '}{made.n_context} | "
                        f"{kept / 1e9:.2f} | {saved / 1e9:.2f} | {made.n_ubatch} | {experts}",
                        flush=True,
                    )
            dry_run.close()


if __name__ == "__main__":
    main()
