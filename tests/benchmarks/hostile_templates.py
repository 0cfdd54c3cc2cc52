"""Render damaged and hostile chat templates, and count how each ends.

The templates are real ones with parts cut, doubled or swapped and hostile pieces put in
(tests/backend/chat_formats.py), each from its own seed. None may hang, and each refusal must be one
sentence.
"""

from __future__ import annotations

import argparse
import collections
import re
import sys
import time
from pathlib import Path

from backend.llama.api import LlamaError
from backend.llama.chat_format import ChatFormat

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "backend"))
from chat_formats import mutant

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
SENTENCE = re.compile(r"The chat template of m [^\n]+\.")


def main() -> int:
    """Print the counts; the status is 1 where a refusal was no sentence."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    args = parser.parse_args()
    ends: collections.Counter[str] = collections.Counter()
    bad, longest_s = [], 0.0
    for seed in range(args.first, args.first + args.n):
        chat_format = ChatFormat("m", mutant(seed), "<s>", "</s>")
        began_s = time.perf_counter()
        try:
            chat_format.render(CHAT)
            ends["rendered"] += 1
        except LlamaError as error:
            late = "too long" in str(error)
            crash = "ended unexpectedly" in str(error)
            ends["too slow" if late else "crashed" if crash else "refused"] += 1
            if not SENTENCE.fullmatch(str(error)) or "Traceback" in str(error):
                bad.append((seed, str(error)))
        finally:
            chat_format.close()
        longest_s = max(longest_s, time.perf_counter() - began_s)
    print(f"{dict(ends)}, longest {longest_s:.1f} s, no sentence: {bad}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
