"""Send the recorded requests of clients to `outrider serve` with the templates of model families.

    python tests/benchmarks/client_families.py [--docs docs/server.md]

The requests are those of tests/data/clients, the templates those of tests/data/chat-formats.zip,
each in a small random model behind a server of its own. An answer is cut after a few tokens: what
counts is that the request is served, and that its answer has the protocol's form. A request that
is refused with every family, because the server lacks what it asks for, is counted apart. --docs:
writes the table between two marks of this document.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from factory import make_tiny
from server_requests import CLIENTS, fault

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("backend", "engine")]

from chat_formats import template
from reciter import with_template

BEGIN = "<!-- clients: made by tests/benchmarks/client_families.py --docs docs/server.md -->"
END = "<!-- end of clients -->"
KEY = "measured"
FAMILIES = {
    "Qwen 2.5": "Qwen-Qwen2.5-7B-Instruct",
    "Qwen 3.5": "Qwen3.5-4B",
    "gpt-oss": "openai-gpt-oss-120b",
    "GLM-4.7": "GLM-4.7-Flash",
    "Mistral 3.2": "Mistral-Small-3.2-24B-Instruct-2506",
    "Gemma 2": "google-gemma-2-2b-it",
    "Gemma 4": "google-gemma-4-31B-it",
    "DeepSeek V3.2": "deepseek-ai-DeepSeek-V3.2",
}
N_TOKEN = 8
_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "num_predict")
_N_CONTEXT = 16384


@dataclass
class Outcome:
    """How the requests of a client ended. n_fitted: served with a changed conversation."""

    n: int = 0
    n_served: int = 0
    n_fitted: int = 0
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def cell(self) -> str:
        """The text of a cell of the table."""
        fitted = f" ({self.n_fitted})" if self.n_fitted else ""
        return f"{self.n_served}/{self.n}{fitted}"


def recorded() -> Iterator[tuple[str, list[dict[str, Any]], int]]:
    """Yield each client, its requests that a text model can serve, and the number of the others."""
    for path in sorted(CLIENTS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        asked = [one for one in data["requests"] if one["gives"] not in ("refused", "unknown")]
        yield data["client"], asked, len(data["requests"]) - len(asked)


def ask(client: httpx.Client, request: dict[str, Any]) -> tuple[bool, str]:
    """Send a request. Return whether its conversation was changed, and why it was not served."""
    body, method = dict(request.get("body") or {}), request.get("method", "POST")
    path = request["path"]
    for name in _LIMITS:
        if name in body:
            body[name] = N_TOKEN
    if path.startswith("/api/"):
        body["options"] = {**body.get("options", {}), "num_predict": N_TOKEN}
    elif method == "POST" and not any(name in body for name in _LIMITS):
        body["max_output_tokens" if "/responses" in path else "max_tokens"] = N_TOKEN
    headers = {n: v.replace("KEY", KEY) for n, v in request.get("headers", {}).items()}
    if "x-api-key" not in headers:
        headers["Authorization"] = f"Bearer {KEY}"
    answer = client.request(method, path, json=body or None, headers=headers)
    if answer.status_code != 200:
        return False, f"{answer.status_code} {answer.text[:300]}"
    wrong = fault(method, path, answer.status_code, answer.content)
    last = answer.text.strip().rpartition("\n\n")[2]
    wrong = wrong or (last[:300] if '"error": {' in last or '"error":{' in last else "")
    return "x-outrider-fitted" in answer.headers, wrong


def run(model: Path, clients: Sequence[tuple[str, list[dict[str, Any]]]]) -> dict[str, Outcome]:
    """Serve a model, and return how the requests of each client end."""
    command = [sys.executable, "-m", "backend.cli", "serve", str(model), "--port", "0"]
    command += ["--context", str(_N_CONTEXT), "--keep-states", "0"]
    env = {**os.environ, "OUTRIDER_API_KEY": KEY}
    found: dict[str, Outcome] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as server:
        assert server.stdout is not None
        try:
            url = server.stdout.readline().split()[-1].removesuffix("/v1")
            with httpx.Client(base_url=url, timeout=120) as client:
                for name, requests in clients:
                    outcome = found[name] = Outcome(len(requests))
                    for request in requests:
                        is_fitted, wrong = ask(client, request)
                        outcome.n_served += not wrong
                        outcome.n_fitted += is_fitted and not wrong
                        if wrong:
                            outcome.refused[request["name"]] = wrong
        finally:
            server.terminate()
    return found


def table(found: dict[str, dict[str, Outcome]], n_lacking: dict[str, int]) -> str:
    """Return the table as Markdown. found: by family and client. n_lacking: by client."""
    head = ["client", *found, "lacking"]
    lines = [head, ["---"] + ["--:"] * (len(head) - 1)]
    for client, n in n_lacking.items():
        lines.append([client, *(found[family][client].cell for family in found), str(n or "")])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> int:
    """Run all, print the table and what was refused, and write the table into the document."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", type=Path)
    args = parser.parse_args()
    clients = [(name, requests) for name, requests, _ in recorded()]
    n_lacking = {name: n for name, _, n in recorded()}
    found: dict[str, dict[str, Outcome]] = {}
    with tempfile.TemporaryDirectory() as folder:
        plain = make_tiny("qwen3moe", "F16", Path(folder) / "plain.gguf", n_ctx=_N_CONTEXT)
        for family, name in FAMILIES.items():
            model = with_template(plain, Path(folder) / f"{name}.gguf", template(name))
            found[family] = run(model, clients)
            for client, outcome in found[family].items():
                for request, why in outcome.refused.items():
                    print(f"{family}, {client}, {request}: {why}", file=sys.stderr)
    made = table(found, n_lacking)
    print(made)
    if args.docs is not None:
        text = args.docs.read_text(encoding="utf-8")
        between = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.S)
        assert between.search(text), f"{args.docs} has no place for the table."
        text = between.sub(lambda _: f"{BEGIN}\n\n{made}\n\n{END}", text)
        args.docs.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
