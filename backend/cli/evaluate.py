"""`outrider evaluate`: compare predictors of a model's routing."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    cache_rate,
    say,
    whole_number,
)
from backend.evaluation.collect import Limits, collect, read_documents
from backend.evaluation.good_pred import measure, method_of
from backend.evaluation.predictors import Candidate, candidates, evaluate, token_by_token
from backend.gguf.model_file import ModelFile, read_model
from backend.machines import load as load_machine
from backend.methods.catalogue import CACHED
from backend.methods.compose import Learned
from backend.methods.slots import rate_of
from backend.protocol.settings import EngineConfig
from backend.simulation.charts import Line, Panel, line_charts
from backend.simulation.model import router_biases, routers
from backend.simulation.run import Setting
from backend.simulation.run import run as simulate
from backend.traces.reading import read_trace
from backend.traces.trace import Trace, join
from backend.weights.file import read
from backend.weights.lookup import load as load_learned
from backend.weights.lookup import sizes_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Replay a model's routing to all predictors and compare their forecasts with "
        "it, at strides 1 and 2. Every FILE or TRACE is a separate set."
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file, or any part of a split one")
    add("--trace", type=Path, nargs="+", default=[], metavar="TRACE", help="with inputs")
    add("--prompts", type=Path, nargs="+", default=[], metavar="FILE", help="as outrider train")
    add("--texts", type=Path, nargs="+", default=[], metavar="FILE", help="as outrider train")
    add("--weights", type=Path, nargs="+", default=[], metavar="FILE", help="weights files to use")
    add("--tokens", type=whole_number(16), default=2000, metavar="N", help="of each set")
    add("--predictors", metavar="P,P,...", help="only these")
    add("--live", action="store_true", help="also GoodPred in the engine with a slow link")
    add("--machine", metavar="M", help="also GoodPred in the simulator, on this machine")
    add(
        "--method",
        choices=CACHED,
        default="promoe",
        metavar="M",
        help="method with the eviction and schedule for GoodPred (default promoe)",
    )
    add("--cache-rate", type=cache_rate, default=0.25, metavar="R", help="of GoodPred")
    add("--plot", type=Path, metavar="FILE.svg", help="draw the accuracy of each layer")
    add("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    file = read_model(args.model)
    if not file.is_moe:
        raise UserError(f"{args.model.name} is a dense model: it has no experts to predict.")
    learned = _learned(args, file)
    sets = _sets(args, file)
    layers = next(iter(sets.values())).layers
    matrices, biases = routers(file, layers), router_biases(file, layers)
    chosen = candidates(learned, has_routers=bool(matrices))
    if args.predictors:
        chosen = [c for c in chosen if c.label in args.predictors.split(",")]
    if not chosen:
        raise UserError("There is no such predictor for this model.", status=2)
    report: dict[str, Any] = {"model": file.fingerprint, "sets": {}}
    for name, trace in sets.items():
        rows = [s.to_json() for s in evaluate(trace, chosen, matrices, learned, biases)]
        report["sets"][name] = rows
        if not args.json:
            say(*_table(name, rows))
    if args.machine is not None:
        report["simulated"] = _simulated(args, sets, chosen, learned, matrices)
    if args.live:
        report["live"] = _live(args, file, chosen, learned)
    if not args.json:
        for kind in ("simulated", "live"):
            if found := report.get(kind):
                say(*_good_preds(kind, found))
    else:
        print(json.dumps(report))
    if args.plot is not None:
        args.plot.write_text(drawing(report["sets"]), encoding="utf-8")
    return 0


def _learned(args: argparse.Namespace, file: ModelFile) -> Learned:
    found, remark = load_learned(file)
    if remark and not args.json:
        say(remark)
    arrays, numbers = dict(found.arrays), dict(found.numbers)
    for path in args.weights:
        weights = read(path, file.fingerprint, sizes_of(file))
        arrays[weights.name], numbers[weights.name] = weights.arrays, weights.numbers
    return Learned(arrays, numbers)


def _sets(args: argparse.Namespace, file: ModelFile) -> dict[str, Trace]:
    """Return a trace of each set, cut to --tokens."""
    found = {}
    for path in args.trace:
        trace = read_trace(path, file.fingerprint, mapped=True)
        n_pass = int((trace.begins <= args.tokens).sum())
        found[path.stem] = trace.passes(0, max(n_pass - 1, 1))
    config = EngineConfig(
        method="lru-overlapped", cache_rate=rate_of(file.n_expert - 1, file.n_expert), n_thread=1
    )
    for path in (*args.prompts, *args.texts):
        is_text = path in args.texts
        documents = read_documents([] if is_text else [path], [path] if is_text else [])
        with tempfile.TemporaryDirectory() as folder:
            pieces = collect(
                file, documents, Path(folder), Limits(args.tokens), config, lambda *_: True
            )
            found[path.stem] = join(pieces) if len(pieces) > 1 else pieces[0]
    if not found:
        raise UserError("Say what to evaluate on: --trace, --prompts or --texts.", status=2)
    for name, trace in found.items():
        if trace.inputs is None:
            raise UserError(f"The trace {name} does not hold the layers' inputs.")
    return found


_HEAD = (
    f"{'predictor':<15} {'stride':>6} {'accuracy':>8} {'@k+2':>6} {'@2k':>6} {'exact':>6} "
    f"{'any':>6} {'90 %':>5}  accuracy by layer"
)


def _table(name: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["", f"{name}: {rows[0]['tokens'] if rows else 0} tokens", _HEAD]
    for row in sorted(rows, key=lambda row: (row["stride"], -row["accuracy"])):
        layers = " ".join(
            "--" if x is None else f"{100 * x:.0f}" for x in row["layers"]["accuracy"]
        )
        enough = row["fetches_for_90_percent"]
        lines.append(
            f"{row['predictor']:<15} {row['stride']:>6} {row['accuracy']:>8.1%} "
            f"{row['recall_k2']:>6.1%} {row['recall_2k']:>6.1%} {row['exact']:>6.1%} "
            f"{row['any']:>6.1%} {enough or '>':>5}  {layers}"
        )
    return lines


def _simulated(
    args: argparse.Namespace,
    sets: dict[str, Trace],
    chosen: Sequence[Candidate],
    learned: Learned,
    matrices: Sequence[Any],
) -> list[dict[str, Any]]:
    """Return GoodPred for every set's trace, with each token as a separate pass."""
    rows = []
    for name, trace in sets.items():
        setting = Setting(
            token_by_token(trace),
            hardware=load_machine(args.machine),
            routers=matrices,
            learned=learned,
        )
        for candidate in chosen:
            for result in simulate(setting, [method_of(candidate, args.method)], [args.cache_rate]):
                if result.total is not None and result.total.good_pred is not None:
                    rows.append(
                        {
                            "set": name,
                            "predictor": candidate.label,
                            "stride": candidate.stride,
                            "good_pred": round(result.total.good_pred, 4),
                            "accuracy": round(result.total.accuracy or 0.0, 4),
                            "fetch_rate": round(result.total.fetch_rate or 0.0, 4),
                        }
                    )
    return rows


def _live(
    args: argparse.Namespace, file: ModelFile, chosen: Sequence[Candidate], learned: Learned
) -> list[dict[str, Any]]:
    documents = read_documents(args.prompts, args.texts)
    text = "\n".join(
        d.text if isinstance(d.text, str) else "\n".join(m["content"] for m in d.text)
        for d in documents
    )
    if not text:
        raise UserError("GoodPred in the engine needs --prompts or --texts.", status=2)
    n_token = min(args.tokens, 500)
    results = measure(
        file,
        text,
        chosen,
        learned,
        cache_rate=args.cache_rate,
        n_token=n_token,
        base=args.method,
    )
    return [
        {
            "set": "all",
            "predictor": r.label,
            "stride": r.stride,
            "good_pred": round(r.value, 4),
            "accuracy": round(r.accuracy, 4),
            "fetch_rate": round(r.fetch_rate, 4),
            "tokens_per_s": round(r.tokens_per_s, 1),
            "link_mb_per_s": round(r.link_bytes_per_s / 1e6, 2),
        }
        for r in results
    ]


def _good_preds(kind: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    lines = ["", f"GoodPred, {kind}"]
    for row in rows:
        speed = f" {row['tokens_per_s']:.1f} tokens/s" if "tokens_per_s" in row else ""
        lines.append(
            f"{row['set']:<18} {row['predictor']:<15} {row['stride']} {row['good_pred']:.1%} = "
            f"{row['accuracy']:.1%} x {row['fetch_rate']:.1%}{speed}"
        )
    return lines


def drawing(sets: dict[str, list[dict[str, Any]]]) -> str:
    """Return an SVG with a panel for each stride: the accuracy by layer, averaged over sets."""
    panels = []
    for stride in (1, 2):
        rows = [row for rows in sets.values() for row in rows if row["stride"] == stride]
        lines = []
        for label in dict.fromkeys(row["predictor"] for row in rows):
            of_label = [r["layers"]["accuracy"] for r in rows if r["predictor"] == label]
            points = []
            for layer in range(len(of_label[0])):
                values = [v[layer] for v in of_label if v[layer] is not None]
                if values:
                    points.append((float(layer), sum(values) / len(values)))
            lines.append(Line(label, points))
        panels.append(Panel(f"Stride {stride}", "layer", "accuracy", lines, y_percent=True))
    return line_charts(panels)
