"""Count how JSON schemas of others are held: compiled, refused, unsound, too strict, milliseconds.

    python tests/benchmarks/schema_sets.py FOLDER [--walks N] [--vocabulary MODEL.gguf]

FOLDER: official-suite.tar.xz (JSON-Schema-Test-Suite) and real-schemas.jsonl.xz, a line for each
schema with "id", "schema" and "tests" ("data", "valid"). Unsound: an instance that is labelled
invalid is accepted, or the package jsonschema refuses a random walk through what is permitted. Too
strict: a valid instance is refused in the order of its names and in that of the schema. The
milliseconds are processor time: of preparing and compiling twice, without a vocabulary and for it,
and of the mask of the next token in a walk over a model's vocabulary.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import statistics
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jsonschema

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).resolve().parents[1])]

from random_schemas import BYTES, END, Refusal, accepts, held, walk  # noqa: E402

from backend.llama.json_matcher import MatcherError, Vocabulary  # noqa: E402

DRAFTS = {"draft7": jsonschema.Draft7Validator, "draft2020-12": jsonschema.Draft202012Validator}
_MASKED_MAX = 60

Case = tuple[str, Any, Sequence[tuple[Any, bool]], Any]


def main() -> int:
    """Print the counts of both sets. Return 1 if an answer was unsound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--walks", type=int, default=4)
    parser.add_argument("--vocabulary", type=Path)
    args = parser.parse_args()
    large = None if args.vocabulary is None else of_model(args.vocabulary)
    n_unsound = 0
    for name, cases in (("official", official(args.folder)), ("real", real(args.folder))):
        counts, refusals, times = counted(cases, args.walks, large)
        print(f"{name}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
        for what, values in times.items():
            values.sort()
            typical, rare = statistics.median(values), values[len(values) * 99 // 100]
            print(f"  {what}: median {typical:.2f} ms, 1 in 100 {rare:.1f}, most {values[-1]:.1f}")
        for sentence, n in refusals.most_common(12):
            print(f"  {n} refused: {sentence[:110]}")
        n_unsound += counts["unsound"]
    return 1 if n_unsound else 0


def official(folder: Path) -> Iterator[Case]:
    """Yield the groups of the official suite; formats are optional there, as all in `optional`."""
    with tarfile.open(folder / "official-suite.tar.xz") as archive:
        for member in sorted(archive.getmembers(), key=lambda m: m.name):
            parts = Path(member.name).parts
            draft = next((name for name in DRAFTS if name in parts), "")
            if not draft or "tests" not in parts or not member.name.endswith(".json"):
                continue
            file = archive.extractfile(member)
            assert file is not None
            for i, group in enumerate(json.load(file)):
                tests = [(test["data"], test["valid"]) for test in group["tests"]]
                yield f"{'/'.join(parts[-3:])} {i}", group["schema"], tests, DRAFTS[draft]


def real(folder: Path) -> Iterator[Case]:
    """Yield the real schemas."""
    with lzma.open(folder / "real-schemas.jsonl.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            tests = [(test["data"], test["valid"]) for test in item["tests"]]
            yield item["id"], item["schema"], tests, DRAFTS["draft2020-12"]


def of_model(path: Path) -> Vocabulary:
    """Return the vocabulary of a GGUF file, which may have nothing else."""
    import llama_cpp

    from backend.gguf.identity import OpenFiles
    from backend.llama.api import Model

    parameters = llama_cpp.llama_model_default_params()
    parameters.vocab_only = True
    pointer = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    began_s = time.process_time()
    vocabulary = Model(pointer, OpenFiles([])).json_vocabulary()
    print(f"vocabulary: built in {time.process_time() - began_s:.2f} s")
    return vocabulary


def counted(
    cases: Iterator[Case], n_walk: int, large: Vocabulary | None
) -> tuple[Counter[str], Counter[str], dict[str, list[float]]]:
    """Return the counts, why schemas were refused, and the milliseconds."""
    vocabulary = Vocabulary(BYTES, [END])
    counts, refusals = Counter(schemas=0, compiled=0, refused=0, unsound=0), Counter[str]()
    times: dict[str, list[float]] = {"compile": []}
    for name, schema, tests, validator in cases:
        if not isinstance(schema, dict):
            continue
        counts["schemas"] += 1
        began_s = time.process_time()
        try:
            _, not_held = held(schema, vocabulary if large is None else large)
        except Refusal as refusal:
            counts["refused"] += 1
            refusals[str(refusal)] += 1
            continue
        times["compile"].append((time.process_time() - began_s) * 1000)
        counts["compiled"] += 1
        counts["said what is not held"] += bool(not_held)
        for data, is_valid in tests:
            orders = (data, ordered(data, ranks(schema)))
            fits = any(accepts(held(schema, vocabulary)[0], written(one)) for one in orders)
            counts["valid"] += is_valid
            counts["too strict"] += is_valid and not fits
            if fits and not is_valid:
                unsound(counts, name, schema, data, not_held)
        judge = jsonschema.validators.validator_for(schema, default=validator)(schema)
        rng = random.Random(name)
        for _ in range(n_walk):
            counts["walks"] += 1
            answer = walk(held(schema, vocabulary)[0], rng)
            if answer is None:
                counts["cut"] += 1
            elif not judged(judge, answer):
                unsound(counts, name, schema, answer, not_held)
        if large is not None:
            times.setdefault("mask", []).extend(masks(schema, large, rng))
    return counts, refusals, times


def unsound(counts: Counter[str], name: str, schema: Any, data: Any, not_held: Any) -> None:
    """Count an answer that is invalid, unless it was said that something is not held."""
    counts["invalid where that was said" if not_held else "unsound"] += 1
    if not not_held:
        print(f"UNSOUND {name}: {data!r:.300} {json.dumps(schema):.500}", flush=True)


def judged(judge: Any, answer: bytes) -> bool:
    """Return whether jsonschema accepts an answer. What it cannot judge counts as accepted."""
    try:
        value = json.loads(answer.decode())
    except ValueError:
        return False
    try:
        return bool(judge.is_valid(value))
    except Exception:  # of references that it would fetch, and expressions that Python lacks
        return True


def masks(schema: Any, vocabulary: Vocabulary, rng: random.Random) -> list[float]:
    """Return the milliseconds for every mask of a random answer in tokens."""
    matcher, times = held(schema, vocabulary)[0], []
    while len(times) < _MASKED_MAX and not matcher.is_complete:
        began_s = time.process_time()
        try:
            permitted = matcher.allowed().nonzero()[0]
        except MatcherError:
            break
        times.append((time.process_time() - began_s) * 1000)
        if not permitted.size:
            break
        matcher.accept(int(rng.choice(permitted)))
    return times


def written(data: Any) -> bytes:
    """Return an instance as answers are written."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def ranks(schema: Any) -> dict[str, int]:
    """Return the places of names in the order in which a schema mentions them."""
    found: dict[str, int] = {}
    waiting = [schema]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, dict):
            if isinstance(node.get("properties"), dict):
                for name in node["properties"]:
                    found.setdefault(name, len(found))
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found


def ordered(data: Any, places: dict[str, int]) -> Any:
    """Return an instance with its names in the order of their places."""
    if isinstance(data, dict):
        names = sorted(data, key=lambda name: places.get(name, len(places)))
        return {name: ordered(data[name], places) for name in names}
    return [ordered(one, places) for one in data] if isinstance(data, list) else data


if __name__ == "__main__":
    sys.exit(main())
