"""Kill `outrider batch` at random moments, and look whether each request is answered once.

    python tests/benchmarks/batch_kills.py MODEL [--prompts 1000] [--kills 20] [--crashes 5]

The command is started, killed with SIGKILL once a random number of further answers is there, and
started again. Every other kill comes at once, before the first answer. A crash is a SIGSEGV in the
process that computes; the command must then say a sentence, and go on or end. At the end each
request must have exactly one whole line. Only a request that was hit alone has an error.
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
    n_end, n_start, n_all, n_on = 0, 0, len(crashes), 0
    began_s = time.monotonic()
    said = open(folder / "errors.txt", "w+b")
    process: subprocess.Popen[bytes] | None = None
    while True:
        if process is None or process.poll() is not None:
            n_start += 1
            process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=said)
        before = _n_line(out)
        until = before + (0 if n_end % 2 else draw.randint(1, 2 * args.prompts // n_all))
        delay_s = draw.random() * 5 if until == before else draw.random() * 0.05
        if n_end >= n_all:
            if process.wait():
                print((folder / "errors.txt").read_text("utf-8"))
                return 1
            break
        while process.poll() is None and _n_line(out) < until:
            time.sleep(0.002)
        time.sleep(delay_s)
        if crashes[n_end]:
            while process.poll() is None and not (found := _children(process.pid)):
                time.sleep(0.002)
        if process.poll() is None:
            what = "crash" if crashes[n_end] else "kill"
            if crashes[n_end]:
                place = said.tell()
                found[0].send_signal(signal.SIGSEGV)
                while process.poll() is None and found[0].is_running():
                    time.sleep(0.002)
                time.sleep(0.5)
                sentence = (folder / "errors.txt").read_bytes()[place:].decode()
                assert "SIGSEGV" in sentence, sentence
                n_on += "asked again" in sentence
            else:
                process.kill()
                process.wait()
            n_end += 1
            print(f"{n_end}, a {what}: {_n_line(out)} of {args.prompts} answers", flush=True)
        elif process.returncode == 0:
            break
    lines = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    ids, n_error = [line["id"] for line in lines], sum("error" in line for line in lines)
    lost, repeated = set(names) - set(ids), len(ids) - len(set(ids))
    print(
        f"{len(ids)} answers after {crashes[:n_end].count(False)} kills, "
        f"{sum(crashes[:n_end])} crashes ({n_on} of them went on) and {n_start} starts in "
        f"{time.monotonic() - began_s:.0f} s: {len(lost)} lost, {repeated} repeated, "
        f"{n_error} with an error"
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
