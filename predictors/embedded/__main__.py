"""Command line of the recipe: `python -m predictors.embedded STEP`, STEP `all` for everything."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from predictors.embedded import prepare, tokenizer
from predictors.embedded.config import ModelConfig, TrainConfig

ROOT = Path(__file__).resolve().parents[2]


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m predictors.embedded",
        description="Trains the embedded model. Every step continues where it was stopped.",
    )
    steps = ("prepare", "tokenizer", "train", "export", "evaluate", "plot", "all")
    parser.add_argument("step", choices=steps, nargs="?", default="all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--work", type=Path, default=ROOT / ".work" / "embedded")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "assets" / "embedded" / "outrider-tiny.gguf"
    )
    parser.add_argument("--figure", type=Path, default=ROOT / "docs" / "embedded-loss.png")
    parser.add_argument("--minutes", type=float, default=TrainConfig.budget_minutes)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch chooses")
    parser.add_argument("--pause-file", type=Path, help="train sleeps while this file exists")
    parser.add_argument("--no-compile", action="store_true", help="do not fuse with torch.compile")
    return parser.parse_args(argv)


def _train(args: argparse.Namespace) -> None:
    import torch

    from predictors.embedded.train import train

    if args.threads:
        torch.set_num_threads(args.threads)
    config = TrainConfig(budget_minutes=args.minutes)
    train(args.work, ModelConfig(), config, args.pause_file, fuse=not args.no_compile)


def _export(args: argparse.Namespace) -> None:
    from predictors.embedded.export import export

    print(f"{args.out}: {export(args.work, args.out) / 1e6:.2f} MB")


def _evaluate(args: argparse.Namespace) -> None:
    from predictors.embedded.evaluate import evaluate

    evaluate(args.work, args.data, args.out, args.threads or 1)


def _plot(args: argparse.Namespace) -> None:
    from predictors.embedded.plot import plot

    plot(args.work, args.figure)


def main(argv: list[str] | None = None) -> int:
    """Runs one step or all; returns the exit status."""
    args = _arguments(argv)
    steps: dict[str, Callable[[], object]] = {
        "prepare": lambda: print(prepare.prepare(args.data, args.work)),
        "tokenizer": lambda: print(tokenizer.build(args.work, ModelConfig.n_vocab)),
        "train": lambda: _train(args),
        "export": lambda: _export(args),
        "evaluate": lambda: _evaluate(args),
        "plot": lambda: _plot(args),
    }
    done = {"prepare": args.work / "instruct.jsonl", "tokenizer": args.work / "tokenizer.json"}
    try:
        for name, run in steps.items():
            wanted = (
                args.step == "all" and name != "plot" and not (done.get(name) or ROOT).is_file()
            )
            if wanted or args.step == name:
                run()
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
