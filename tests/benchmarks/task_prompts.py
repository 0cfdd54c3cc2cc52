"""Write prompts of two tasks. Their traces are the input of task_change.py and moepic_gain.py.

    python tests/benchmarks/task_prompts.py --data ../shared/data --out prompts

The files are sums.jsonl (GSM8K's test questions), wiki.jsonl (paragraphs of SQuAD's development
set, from an encyclopaedia) and mixed.jsonl (twenty of each, in turn). Use both sets for evaluation
only.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

N_PROMPT = 160
N_MIXED = 20
LENGTH_MAX = 400  # characters


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    with open(args.data / "eval-gsm8k/test.jsonl", encoding="utf-8") as file:
        sums = [json.loads(line)["question"] for line in file]
    squad = json.loads((args.data / "eval-squad/dev-v2.0.json").read_text(encoding="utf-8"))
    wiki = [p["context"] for article in squad["data"] for p in article["paragraphs"]]
    chance = random.Random(0)
    for prompts in (sums, wiki):
        chance.shuffle(prompts)
    mixed = [p for pair in zip(sums[:N_MIXED], wiki, strict=False) for p in pair]
    args.out.mkdir(parents=True, exist_ok=True)
    for name, prompts in (("sums", sums[:N_PROMPT]), ("wiki", wiki[:N_PROMPT]), ("mixed", mixed)):
        lines = [json.dumps({"prompt": p[:LENGTH_MAX]}) + "\n" for p in prompts]
        (args.out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
