"""Kill `outrider batch` at random moments, and look whether each request is answered once.

    python tests/benchmarks/batch_kills.py MODEL [--prompts 1000] [--kills 20] [--crashes 5]

The command is started, killed with SIGKILL once a random number of further answers is there, and
started again. Every other kill comes at once, before the first answer. A crash is a SIGSEGV in the
process that computes; the command must then end with a sentence. At the end each request must have
exactly one whole line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
WORDS = ["the river", "a letter", "seven birds", "an old clock", "the last train", "a small town"]


def main() -> int:
    """Run the kills and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--prompts", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--crashes", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("options", nargs="*", help="more options of outrider batch, behind --")
    args = parser.parse_args()
    draw = random.Random(args.seed)
    folder = Path(tempfile.mkdtemp(prefix="batch-kills-"))
    prompts, out = folder / "prompts.jsonl", folder / "answers.jsonl"
    names = [f"request {i}" for i in range(args.prompts)]
    with open(prompts, "w", encoding="utf-8") as file:
        for name in names:
            prompt = "Write of " + " and ".join(draw.choices(WORDS, k=draw.randint(1, 5))) + "."
            line = {"id": name, "prompt": prompt, "max_tokens": draw.randint(1, 24)}
            file.write(json.dumps(line) + "\n")
    command = [sys.executable, "-m", "backend.cli", "batch", args.model, "--prompts", str(prompts)]
    command += ["--out", str(out), "--temperature", "0", *args.options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    crashes = [False] * args.kills + [True] * args.crashes
    draw.shuffle(crashes)
    n_end, n_start, n_all = 0, 0, len(crashes)
    began_s = time.monotonic()
    while True:
        n_start += 1
        before = _n_line(out)
        until = before + (0 if n_end % 2 else draw.randint(1, 2 * args.prompts // n_all))
        delay_s = draw.random() * 5 if until == before else draw.random() * 0.05
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        if n_end < n_all:
            while process.poll() is None and _n_line(out) < until:
                time.sleep(0.002)
            time.sleep(delay_s)
            if crashes[n_end]:
                while process.poll() is None and not (found := _children(process.pid)):
                    time.sleep(0.002)
            if process.poll() is None:
                if crashes[n_end]:
                    found[0].send_signal(signal.SIGSEGV)
                    sentence = process.communicate()[1].strip().splitlines()[-1]
                    assert "SIGSEGV" in sentence and "goes on" in sentence, sentence
                else:
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                what = "crash" if crashes[n_end] else "kill"
                n_end += 1
                print(f"{n_end}, a {what}: {_n_line(out)} of {args.prompts} answers", flush=True)
                continue
        _, errors = process.communicate()
        if process.returncode:
            print(errors)
            return 1
        if n_end >= n_all or _n_line(out) >= args.prompts:
            break
    ids = [json.loads(line)["id"] for line in out.read_text(encoding="utf-8").splitlines()]
    lost, repeated = set(names) - set(ids), len(ids) - len(set(ids))
    print(
        f"{len(ids)} answers after {crashes[:n_end].count(False)} kills, "
        f"{sum(crashes[:n_end])} crashes and {n_start} starts in "
        f"{time.monotonic() - began_s:.0f} s: {len(lost)} lost, {repeated} repeated"
    )
    return 1 if lost or repeated or n_end < n_all else 0


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children()
    except psutil.NoSuchProcess:
        return []


def _n_line(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


if __name__ == "__main__":
    sys.exit(main())
