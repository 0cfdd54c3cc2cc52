"""`outrider trace`: answer prompts and record the experts of every token."""

from __future__ import annotations

import argparse
import json
import shutil
import signal
from pathlib import Path
from typing import Any

from backend.cli.common import (
    Interrupts,
    UserError,
    add_engine_options,
    add_sampling_options,
    bytes_text,
    engine_config,
    max_tokens,
    sampling,
    say,
    show_loading,
    show_progress,
    size,
    write_error,
)
from backend.engine.engine import Engine
from backend.engine.recording import Recording
from backend.gguf.model_file import ModelFile, read_model
from backend.methods.slots import rate_of
from backend.protocol.errors import EngineError, UntrustedError
from backend.system.memory import available_bytes
from backend.system.paths import may_write
from backend.traces.prompts import Prompt, read_prompts

_DEFAULT_MAX_BYTES = 2 << 30
_SPARE_BYTES = 64 << 20  # stay free on the drive


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Answer prompts and record the experts of every token, for outrider simulate "
        "and for training predictors. Ctrl-C keeps the recording so far."
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file, or any part of a split one")
    add(
        "--prompts",
        required=True,
        type=Path,
        metavar="FILE",
        help="one prompt per line, or JSON lines with messages or prompt",
    )
    add("--out", required=True, type=Path, metavar="TRACE", help="the trace to write")
    add("--force", action="store_true", help="replace TRACE if it exists")
    add("--inputs", action="store_true", help="also record the input of each MoE layer, in f16")
    add("--scores", action="store_true", help="also record the router's probabilities")
    add("--tokens", type=max_tokens, default=128, metavar="N", help="longest answer (default 128)")
    add(
        "--max-bytes",
        type=size,
        default=_DEFAULT_MAX_BYTES,
        metavar="B",
        help="record no more than this, such as 500M or 4G (default 2G)",
    )
    add_engine_options(parser)
    add_sampling_options(parser, seed=0)
    add("--raw", action="store_true", help="continue the prompts, without a chat template")
    add("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    room_bytes = _room_for(args.out, args.force)
    prompts = read_prompts(args.prompts)
    file = read_model(args.model)
    if not file.is_moe:
        raise UserError(f"{args.model.name} is a dense model: it has no experts to record.")
    engine = Engine.open(args.model, _config(args, file), show_loading)
    try:
        show_progress("")
        if engine.cache.mode == "plain":
            raise UserError(f"{args.model.name} cannot be recorded: {engine.cache.reason}")
        # Arrays grow by doubling, and the old one exists while it is copied.
        limit_bytes = max(min(args.max_bytes, room_bytes, available_bytes() // 3), 1)
        recording = Recording(
            engine, file, scores=args.scores, inputs=args.inputs, max_bytes=limit_bytes
        )
        report = _record(args, engine, recording, prompts)
        if recording.full:
            why = ", as --max-bytes says" if limit_bytes == args.max_bytes else ""
            report["stopped"] = f"There was room for {bytes_text(limit_bytes)} only{why}."
        return _finish(args, engine, recording, report)
    finally:
        engine.close()


def _room_for(path: Path, force: bool) -> int:
    """Return the bytes that may be written there. Raises UserError where nothing can."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"The folder {folder} for the trace does not exist.")
    if path.is_dir():
        raise UserError(f"{path} is a folder, and the trace needs the name of a file.")
    if path.exists() and not force:
        raise UserError(f"{path} exists already; --force replaces it.")
    if not may_write(folder):
        raise UserError(f"Nothing can be written to the folder {folder}.")
    room_bytes = shutil.disk_usage(folder).free - _SPARE_BYTES
    if room_bytes <= 0:
        raise UserError(f"There is no room for a trace in the folder {folder}.")
    return room_bytes


def _config(args: argparse.Namespace, file: ModelFile) -> Any:
    """Return the engine's settings. The rate stays below 1, as only a patched model is recorded."""
    highest = rate_of(file.n_expert - 1, file.n_expert)
    rate = highest if args.cache_rate is None else min(args.cache_rate, highest)
    return engine_config(args, cache_rate=rate)


def _record(
    args: argparse.Namespace, engine: Engine, recording: Recording, prompts: list[Prompt]
) -> dict[str, Any]:
    """Answer the prompts until an error, a limit or Ctrl-C. Return a report."""
    report: dict[str, Any] = {"requests": 0, "left_out": [], "stopped": "", "interrupted": False}
    with Interrupts(engine.stop) as interrupts:
        for i, prompt in enumerate(prompts):
            if interrupts.seen or recording.full:
                break
            try:
                pieces = recording.answer(prompt, sampling(args), args.tokens, raw=args.raw)
            except EngineError as error:  # such as a prompt that is longer than the context
                report["left_out"].append({"line": prompt.line, "reason": str(error)})
                continue
            try:
                for _ in pieces:
                    show_progress(
                        f"prompt {i + 1} of {len(prompts)}: {recording.n_token} tokens, "
                        f"{bytes_text(recording.n_bytes)}"
                    )
                    if recording.full or interrupts.seen:
                        break
            except UntrustedError:
                raise
            except EngineError as error:
                report["stopped"] = str(error)
                break
            finally:
                pieces.close()  # type: ignore[attr-defined]
            report["requests"] += 1
        report["interrupted"] = interrupts.seen
    show_progress("")
    return report


def _finish(
    args: argparse.Namespace, engine: Engine, recording: Recording, report: dict[str, Any]
) -> int:
    """Write the trace and print a report. Return the exit status."""
    for skipped in report["left_out"]:
        write_error(f"The prompt in line {skipped['line']} is left out: {skipped['reason']}")
    if recording.n_token == 0:
        raise UserError(report["stopped"] or "Nothing was recorded.")
    about = {
        "model_name": engine.model.name,
        "prompts": args.prompts.name,
        "raw": args.raw,
        "max_tokens": args.tokens,
        "temperature": args.temperature,
        "seed": args.seed,
    }
    trace = recording.trace(about)
    trace.write(args.out)
    if report["stopped"]:
        write_error(report["stopped"])
    if args.inputs and trace.inputs is None:
        write_error("The layers' inputs are not in it: this model's graph does not show them.")
    elif trace.has_inputs is not None and not trace.has_inputs.all():
        write_error("Some layers' inputs are not in it: this model's graph does not show them.")
    facts = {
        "out": str(args.out),
        "requests": report["requests"],
        "passes": trace.n_pass,
        "tokens": len(trace.tokens),
        "bytes": args.out.stat().st_size,
        "left_out": report["left_out"],
        "stopped": report["stopped"],
    }
    if args.json:
        print(json.dumps(facts))
    else:
        say(
            f"{args.out}: {facts['requests']} requests, {facts['tokens']} tokens, "
            f"{bytes_text(facts['bytes'])}"
        )
    if report["interrupted"]:
        return 128 + signal.SIGINT
    return 0 if recording.full or not report["stopped"] else 1
