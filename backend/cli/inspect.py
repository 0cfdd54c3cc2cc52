"""`outrider inspect`: show the contents of a model file, and whether it will run here."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from backend.cli.common import (
    add_engine_options,
    bytes_text,
    engine_config,
    say,
    show_progress,
)
from backend.gguf.model_file import ModelFile, read_model
from backend.library.asked import said_of, with_sizes
from backend.library.checksum import checksum
from backend.memory.plan import (
    N_UBATCH,
    KvCache,
    MemoryPlan,
    largest_ubatch,
    plan,
    slots,
    why_plain,
)
from backend.methods.slots import rate_of, slots_of
from backend.packs.file import Pack, find
from backend.system.memory import MemoryFacts, memory_facts


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file, or any part of a split one")
    add_engine_options(parser, "cache_rate", "context_length", "kv_type")
    add("--json", action="store_true", help="print one JSON object")
    add(
        "--sha256", action="store_true",
        help="only read the whole file, print its SHA-256, and compare it with its repository's",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    if args.sha256:
        return _checksum(args.model, args.json)
    model, asked = read_model(args.model), engine_config(args)
    pack, remark = find(model)
    memory = memory_facts()
    # As in the engine: no longer than the model was trained for.
    context = min(asked.context_length, model.context_length or asked.context_length)
    available = memory.available_bytes
    warnings = None
    if said := said_of(model.path, context):
        warnings, model = said["warnings"], with_sizes(model, said)
    n_slot = slots(model, asked.cache_rate)
    kv = KvCache(asked.kv_type)
    memory_plan = plan(model, n_slot, context, available, kv)
    n_ubatch, why = largest_ubatch(model, memory_plan, context, kv)
    if n_ubatch > N_UBATCH:
        memory_plan = plan(model, n_slot, context, available, replace(kv, n_ubatch=n_ubatch))
    if args.json:
        report = _report(model, memory, memory_plan, context)
        report["plan"] |= {"asked_rate": asked.cache_rate, "kv_type": asked.kv_type}
        report["plan"] |= {"n_ubatch": n_ubatch, "why_ubatch": why}
        report["warnings"] = warnings
        print(json.dumps({**report, "pack": _pack_report(pack, remark)}))
    else:
        is_asked = model.sizes is not None
        rows = _plan_rows(memory_plan, memory, context, asked.cache_rate, is_asked=is_asked)
        lines = [*_lines(model, _pack_text(pack, remark), rows), _verdict(memory_plan)]
        say(*lines, why)
    return 0


def _checksum(path: Path, as_json: bool) -> int:
    """Print the checksums of a model's parts. Return 1 if one differs from the stated checksum."""
    try:
        found = checksum(path, lambda share: show_progress(f"Reading: {share:.0%}"))
    finally:
        show_progress("")
    if as_json:
        files = [vars(part) for part in found.parts]
        print(json.dumps({"files": files, "is_wrong": found.is_wrong, "words": found.sentence}))
    else:
        lines = [f"{part.sha256}  {part.file}" for part in found.parts]
        say(*lines, found.sentence)
    return int(found.is_wrong)


def _report(
    model: ModelFile, memory: MemoryFacts, memory_plan: MemoryPlan, context_length: int
) -> dict[str, Any]:
    return {
        "path": str(model.path),
        "name": model.name,
        "architecture": model.architecture,
        "n_layer": model.n_layer,
        "n_moe_layer": model.n_moe_layer,
        "n_expert": model.n_expert,
        "n_expert_used": model.n_expert_used,
        "dense_bytes": model.dense_bytes,
        "expert_bytes": _mean_expert_bytes(model),
        "expert_bytes_total": model.expert_bytes_total,
        "expert_types": _expert_types(model),
        "file_bytes": model.file_size_bytes,
        "n_part": len(model.paths),
        "context_length": model.context_length,
        "cacheable": why_plain(model) == "",
        "reason": why_plain(model),
        "predicts": model.predicts,
        "why_no_guess": model.why_no_guess,
        "memory": {
            "total_bytes": memory.total_bytes,
            "available_bytes": memory.available_bytes,
            "limited_by": memory.limited_by,
        },
        "plan": {"context_length": context_length, **memory_plan.to_json()},
    }


def _lines(model: ModelFile, pack: str, plan_rows: list[tuple[str, str]]) -> list[str]:
    parts = f" in {len(model.paths)} parts" if len(model.paths) > 1 else ""
    rows = [
        ("Model", model.name),
        ("File", f"{model.path}, {bytes_text(model.file_size_bytes)}{parts}"),
        ("Architecture", model.architecture),
        ("Layers", f"{model.n_layer}, {model.n_moe_layer} of them with routed experts"),
    ]
    if model.n_expert:
        used, numbers = str(model.n_expert_used), model.n_used_by_moe_layer
        used = f"{min(numbers)} to {used}" if numbers else used
        rows.append(("Experts", f"{model.n_expert} a layer, {used} used by a token"))
    if model.is_moe:
        types = ", ".join(_expert_types(model))
        each = bytes_text(_mean_expert_bytes(model))
        rows.append(("One expert", f"{each} in each layer ({types})"))
        rows.append(("All experts", bytes_text(model.expert_bytes_total)))
    why = why_plain(model)
    rows += [
        ("Dense part", bytes_text(model.dense_bytes)),
        ("Context", f"{model.context_length} tokens"),
        ("Cache", f"not used: {why}" if why else "possible: any share of the experts"),
        *([] if why else [("Pack", pack)]),
        *([("Drafts", _drafts_text(model))] if model.n_layer_nextn else []),
        ("", ""),
        *plan_rows,
        ("", ""),
    ]
    return [f"{name:<14}{value}".rstrip() for name, value in rows]


def _drafts_text(model: ModelFile) -> str:
    """Return whether the layers for multi-token prediction guess tokens."""
    if model.predicts:
        return "possible with the layer for multi-token prediction: --drafts auto"
    return f"not by the layer for multi-token prediction: {model.why_no_guess}"


def _pack_text(pack: Pack | None, remark: str) -> str:
    if pack is None:
        return remark or "none; outrider pack makes one, from which experts are read faster"
    paths = ", ".join(str(path) for path, _ in pack.files)
    return f"{paths}, {bytes_text(pack.plan.n_bytes)}, layout '{pack.plan.layout}'"


def _pack_report(pack: Pack | None, remark: str) -> dict[str, Any]:
    if pack is None:
        return {"path": None, "remark": remark}
    plan = pack.plan
    return {
        "path": str(pack.path),
        "others": [str(path) for path in plan.stripes.others],
        "layout": plan.layout,
        "bytes": plan.n_bytes,
        "remark": "",
    }


def _plan_rows(
    memory_plan: MemoryPlan,
    memory: MemoryFacts,
    context_length: int,
    asked_rate: float,
    *,
    is_asked: bool,
) -> list[tuple[str, str]]:
    """Return the memory plan, one row for each part. is_asked: llama.cpp told the sizes."""
    rows = []
    computing = bytes_text(memory_plan.compute_bytes)
    if memory_plan.n_expert:
        share = f"{memory_plan.n_slot} of {memory_plan.n_expert} experts of each layer"
        is_raised = slots_of(asked_rate, memory_plan.n_expert) < memory_plan.n_slot_min
        asked = f"; {asked_rate:g} was asked for" if is_raised else ""
        rows.append(("Cache rate", f"{memory_plan.rate:.4g}: {share}{asked}"))
    where = "free under this control group's limit"
    if memory.limited_by == "machine":
        where = "free on this machine"
    rows += [
        ("Plan", f"for a context of {context_length} tokens"),
        ("  dense part", bytes_text(memory_plan.dense_bytes)),
        ("  experts", bytes_text(memory_plan.expert_bytes)),
        ("  KV cache", bytes_text(memory_plan.kv_bytes)),
        ("  computing", computing if is_asked else f"{computing} (estimate)"),
        ("  program", f"{bytes_text(memory_plan.process_bytes)} (estimate)"),
        ("  together", bytes_text(memory_plan.total_bytes)),
        ("  headroom", f"{bytes_text(memory_plan.headroom_bytes)}, left to other programs"),
        ("  available", f"{bytes_text(memory_plan.available_bytes)} {where}"),
    ]
    return rows


def _verdict(memory_plan: MemoryPlan) -> str:
    """Return one sentence: whether the model fits, and the largest cache rate that fits."""
    best, n_expert = memory_plan.best_n_slot, memory_plan.n_expert
    largest = ""
    if best is not None:  # rounded down to three digits, so that it asks for no more experts
        largest = (
            f"the largest cache rate that fits is {int(rate_of(best, n_expert) * 1000) / 1000}."
        )
    if memory_plan.fits:
        if memory_plan.mode == "plain" or best is None or best <= memory_plan.n_slot:
            return "It fits here."
        return f"It fits here; {largest}"
    if largest:
        return f"It does not fit here; {largest}"
    if n_expert and memory_plan.n_slot > memory_plan.n_slot_min:
        return "It does not fit here, not even at the smallest cache rate."
    return "It does not fit here."


def _mean_expert_bytes(model: ModelFile) -> int:
    """Return the bytes of one routed expert of one layer, averaged over layers; 0 if dense."""
    each = model.expert_bytes_per_layer().values()
    return round(sum(each) / len(each)) if each else 0


def _expert_types(model: ModelFile) -> list[str]:
    """Return the tensor types of the routed experts."""
    return sorted({t.type_name for tensors in model.expert_tensors.values() for t in tensors})
