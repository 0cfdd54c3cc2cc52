"""Answer 1,000 random JSON schemas with the embedded model, and check every answer.

    python tests/benchmarks/json_schemas.py [--schemas N] [--first SEED] [--model PATH]

Print a line for every wrong answer, and the counts. A schema with a part that no grammar can
enforce must be refused. An answer cut at the limit of tokens is counted separately.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from asking import of_chat  # noqa: E402
from random_schemas import fault, random_schema  # noqa: E402

from backend.engine.engine import Engine, EngineError  # noqa: E402
from backend.protocol.chat import AnswerText, ChatOptions  # noqa: E402
from backend.protocol.settings import EngineConfig, Sampling  # noqa: E402
from backend.system.paths import embedded_model  # noqa: E402

ASKED = [{"role": "user", "content": "Describe a river."}]
MAX_TOKENS = 400


def main() -> int:
    """Answer the schemas. Return 1 if an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--schemas", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--model", type=Path, default=embedded_model())
    args = parser.parse_args()
    engine = Engine.open(args.model, EngineConfig(context_length=1024))
    counts: Counter[str] = Counter()
    n_token, began_s = 0, time.perf_counter()
    for seed in range(args.first, args.first + args.schemas):
        schema = random_schema(random.Random(seed), refusals=True)
        ended, answer = answered(engine, schema, seed)
        if ended == "stop":
            problem = fault(answer.content, schema)
            ended = "wrong" if problem else "valid"
            if problem:
                print(seed, problem, answer.content, schema, sep="\n  ", flush=True)
        counts[ended] += 1
        n_token += engine.statistics().n_token if ended != "refused" else 0
    seconds = time.perf_counter() - began_s
    print(", ".join(f"{n} {name}" for name, n in counts.most_common()))
    print(f"{n_token} tokens in {seconds:.0f} s")
    engine.close()
    return 1 if counts["wrong"] else 0


def answered(engine: Engine, schema: dict[str, object], seed: int) -> tuple[str, AnswerText]:
    """Return why an answer ended, and the answer."""
    answer, options = AnswerText(), ChatOptions(json_schema=schema)
    sampling = Sampling(temperature=1.0, seed=seed)
    try:
        pieces = engine.answer(
            of_chat(ASKED, sampling, MAX_TOKENS, options=options, on_delta=answer.add)
        )
    except EngineError as error:
        return ("refused" if "cannot be held to" in str(error) else str(error)), answer
    for _ in pieces:
        pass
    return engine.finish_reason, answer


if __name__ == "__main__":
    sys.exit(main())
