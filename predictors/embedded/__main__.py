"""Command line of the recipe: `python -m predictors.embedded STEP`; STEP `all` runs everything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from predictors.embedded import card, prepare
from predictors.embedded.config import STAGES, ModelConfig, TrainConfig, dense, of_shape

ROOT = Path(__file__).resolve().parents[2]
MINUTES = {"pretrain": 75.0, "instruct": 45.0, "reference": 60.0, "shape": 20.0}
SHAPE_ON_TEXT = 0.65
"""The share of a shape's minutes that it trains on text; the rest is on chats."""
# Duration of each step of `all` on two processor cores, in words.
DURATION = {
    "prepare": "about a minute",
    "tokenizer": "about half a minute",
    "pretrain": f"{MINUTES['pretrain']:.0f} minutes",
    "instruct": f"{MINUTES['instruct']:.0f} minutes",
    "balance": "a minute",
    "export": "some seconds",
    "evaluate": "about three minutes",
}
DURATIONS = (
    "On two processor cores that do nothing else: "
    + "; ".join(f"{step} {words}" for step, words in DURATION.items())
    + f"; reference {MINUTES['reference']:.0f} minutes. shape takes "
    f"{MINUTES['shape']:.0f} minutes by default and needs prepare and tokenizer first; a model of "
    "another shape whose routing can judge a policy needs an hour alone: --minutes 60."
)


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m predictors.embedded",
        description="Train the embedded model. Every step continues where it was stopped. "
        "The step shape trains and exports a model with other numbers of experts, for its routing.",
        epilog=DURATIONS,
    )
    steps = (*DURATION, "reference", "shape", "plot", "card", "all")
    parser.add_argument("step", choices=steps, nargs="?", default="all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--work", type=Path, default=ROOT / ".work" / "embedded")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "assets" / "embedded" / "outrider-tiny.gguf"
    )
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "embedded-loss.png")
    parser.add_argument("--minutes", type=float, default=0.0, help="budget of a training step")
    parser.add_argument("--tokens", type=int, default=0, help="budget in tokens instead of minutes")
    parser.add_argument("--rate", type=float, default=1.0, help="multiplies the learning rates")
    parser.add_argument("--again", action="store_true", help="add a run to a finished step")
    parser.add_argument(
        "--kind", choices=("dense", "moe"), default="dense", help="what the step reference trains"
    )
    parser.add_argument(
        "--shape", default="64x6", help="experts and used experts of the step shape (64x6)"
    )
    parser.add_argument("--threads", type=int, default=0, help="0: torch chooses")
    parser.add_argument("--pause-file", type=Path, help="training sleeps while this file exists")
    parser.add_argument("--no-compile", action="store_true", help="do not fuse with torch.compile")
    return parser.parse_args(argv)


def _tokenizer(args: argparse.Namespace) -> None:
    from predictors.embedded.tokenizer import build  # imports tokenizers

    print(build(args.work, ModelConfig.n_vocab))


def _run(
    args: argparse.Namespace, model: ModelConfig, config: TrainConfig, stage: str, folder: Path
) -> bool:
    # The steps before training do without torch, which is slow to import.
    import torch

    from predictors.embedded.train import Run, train

    if args.threads:
        torch.set_num_threads(args.threads)
    run = Run(args.work, model, config, STAGES[stage], folder, args.again)
    return train(run, args.pause_file, fuse=not args.no_compile)


def _train(args: argparse.Namespace, step: str) -> bool:
    minutes = args.minutes or MINUTES[step]
    config = TrainConfig(budget_minutes=minutes, budget_tokens=args.tokens, rate=args.rate)
    if step != "reference":
        return _run(args, ModelConfig(), config, step, args.work)
    model = dense(ModelConfig()) if args.kind == "dense" else ModelConfig()
    return _run(args, model, config, "alone", args.work / f"reference-{args.kind}")


def _balance(args: argparse.Namespace) -> None:
    from predictors.embedded.balance import balance  # imports torch

    print(f"steps of each layer's router: {balance(args.work)}")


def _export(args: argparse.Namespace, folder: Path, out: Path) -> None:
    from predictors.embedded.export import export  # imports torch

    print(f"{out}: {export(args.work, folder, out) / 1e6:.2f} MB")


def _evaluate(args: argparse.Namespace) -> None:
    from predictors.embedded.evaluate import evaluate  # imports llama_cpp

    evaluate(args.work, args.data, args.out, args.threads or 1)


def _reference(args: argparse.Namespace) -> None:
    from predictors.embedded.evaluate import measure, store  # imports llama_cpp

    if not _train(args, "reference"):
        return
    folder = args.work / f"reference-{args.kind}"
    _export(args, folder, folder / "model.gguf")
    result = measure(args.work, args.data, folder / "model.gguf", args.threads or 1)
    store(folder, result)


def _shape(args: argparse.Namespace) -> bool:
    """Train and export a model of another shape by the same recipe, for its routing."""
    model, folder = of_shape(args.shape), args.work / f"shape-{args.shape}"
    minutes = args.minutes or MINUTES["shape"]
    for step, share in (("pretrain", SHAPE_ON_TEXT), ("instruct", 1 - SHAPE_ON_TEXT)):
        tokens = round(share * args.tokens)
        # So few tokens need small batches: more steps.
        config = TrainConfig(share * minutes, tokens, 2048, 256, args.rate)
        if not _run(args, model, config, step, folder):
            return False
    _export(args, folder, folder / f"outrider-{args.shape}.gguf")
    return True


def _plot(args: argparse.Namespace) -> None:
    from predictors.embedded.plot import plot  # imports torch and matplotlib

    plot(args.work, args.figure)


def _card(args: argparse.Namespace) -> None:
    card.fill(args.out.with_name("MODEL_CARD.md"), args.work)


def main(argv: list[str] | None = None) -> int:
    """Run one step or all. Return the exit status."""
    args = _arguments(argv)
    steps: dict[str, Callable[[], object]] = {
        "prepare": lambda: print(prepare.prepare(args.data, args.work)),
        "tokenizer": lambda: _tokenizer(args),
        "pretrain": lambda: _train(args, "pretrain"),
        "instruct": lambda: _train(args, "instruct"),
        "balance": lambda: _balance(args),
        "export": lambda: _export(args, args.work, args.out),
        "evaluate": lambda: _evaluate(args),
        "reference": lambda: _reference(args),
        "shape": lambda: _shape(args),
        "plot": lambda: _plot(args),
        "card": lambda: _card(args),
    }
    done = {"prepare": args.work / "instruct.jsonl", "tokenizer": args.work / "tokenizer.json"}
    wanted = [args.step]
    if args.step == "all":
        wanted = [name for name in DURATION if name not in done or not done[name].is_file()]
        print("; ".join(f"{name}: {DURATION[name]}" for name in wanted), flush=True)
    try:
        for name in wanted:
            if steps[name]() is False:
                print(f"stopped in the step {name}; the same command continues", flush=True)
                break
    except ModuleNotFoundError as error:  # of the optional dependencies
        print(f"This step needs {error.name}: pip install {error.name}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
