"""Print, for every architecture, how many tokens each way of going on or back reads.

    python tests/benchmarks/going_back.py [ARCH ...] [--parallel 4] [--kv q8_0] [--kv-on-drive]

Each architecture of the factory has the template of its family, or the nearest of the 40 (NEAREST).
A cell is `read` of `new`: the tokens that were computed, and those that no prompt or answer before
has had in this place. A way that reads more than 16 tokens beyond the new ones has a star: they are
what a template opens at the end of a prompt. A picture's positions count as tokens.
"""

from __future__ import annotations

import argparse
import base64
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("", "backend", "engine")]

import numpy as np
from asking import of_chat
from chat_formats import template
from factory import CACHEABLE, make_mmproj, make_png, make_tiny
from reciter import with_template

from backend.engine.engine import Engine
from backend.engine.kept_states import n_equal
from backend.gguf.header import read_header
from backend.protocol.chat import AnswerText, ChatOptions
from backend.protocol.errors import EngineError
from backend.protocol.settings import EngineConfig, Sampling

DEEPSEEK, QWEN, GLM = "deepseek-ai-DeepSeek-V3.2", "Qwen3.5-4B", "GLM-4.6"
KIMI, LING = "Kimi-K2-Thinking", "inclusionai-ling-3.0-flash"
NEAREST = {
    "llama": "meta-llama-Llama-3.1-8B-Instruct", "qwen2moe": "Qwen-Qwen2.5-7B-Instruct",
    "qwen3moe": "Qwen-Qwen3-0.6B", "olmoe": "allenai-OLMoE-1B-7B-Instruct",
    "deepseek2": "deepseek-ai-DeepSeek-V3.1", "gpt-oss": "openai-gpt-oss-120b",
    "granitemoe": "ibm-granite-granite-4.0", "glm4moe": GLM,
    "llama4": "vllm-Llama-4-Scout-notools", "gemma4": "google-gemma-4-31B-it",
    "phimoe": "microsoft-Phi-3.5-mini-instruct", "bailingmoe2": LING, "bailingmoe": LING,
    "ernie4_5-moe": "baidu-ERNIE-4.5-21B-A3B", "hunyuan-moe": "vllm-hunyuan-a13b-notools",
    "minimax-m2": "MiniMax-M2", "minimax-m3": "MiniMax-M2", "minimax-01": "MiniMax-M1",
    "deepseek": "inline-DeepSeek-V2", "mistral4": "mistralai-Ministral-3-14B-Reasoning-2512",
    "deepseek32": DEEPSEEK, "deepseek4": "deepseek-ai-DeepSeek-V4", "glm-dsa": "GLM-4.7-Flash",
    "glm5-next": "GLM-4.7-Flash", "qwen3next": "Qwen3-Coder", "qwen35moe": QWEN, "qwen4exp": QWEN,
    "qwen3vlmoe": "Qwen-Qwen3-0.6B", "kimi-linear": "Kimi-K2-Instruct", "kimi-k3": KIMI,
    "bailingmoe3": LING, "lfm2moe": "LFM2-8B-A1B", "granitehybrid": "ibm-granite-granite-4.0",
    "nemotron_h_moe": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "jamba": "inline-mistralai-Mistral-7B-Instruct-v0.2-mistralai-v1-template-wit",
}  # fmt: skip
OTHER = "Qwen-Qwen2.5-7B-Instruct"
"""For those of whose family there is no template."""
GREEDY = Sampling(temperature=0)
FAR = 16


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str, thought: str = "They are hungry, so they eat.") -> dict[str, Any]:
    return {"role": "assistant", "content": text, "reasoning_content": thought}


SYSTEM = {"role": "system", "content": "the fox and the owl have words for each other. " * 4}
ONE = [SYSTEM, user("what do foxes and owls eat in the winter?")]
TWO = [*ONE, said("they eat mice and eggs."), user("and in the summer?")]
THREE = [*TWO, said("they have more of it then."), user("which of them is the hungry one?")]
EDITED = [*TWO, said("they have more of it then."), user("when do they sleep?")]
EARLIER = [*ONE, said("they eat mice and eggs."), user("and where?")]
TOOLS = tuple(
    {"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in "fg"
)


PIXELS = np.random.default_rng(1).integers(0, 256, (20, 30, 3), np.uint8)
SEEN = [SYSTEM, {"role": "user", "content": [
    {"type": "image", "data": base64.b64encode(make_png(PIXELS)).decode()},
    {"type": "text", "text": "what do they eat in the winter?"},
]}]  # fmt: skip
SEEN_TWO = [*SEEN, said("they eat mice and eggs."), user("and in the summer?")]
SEEN_EDITED = [*SEEN, said("they eat mice and eggs."), user("and where?")]


def see(path: Path) -> None:
    """Write an mmproj file for a model, beside it."""
    metadata = read_header(path).metadata
    grid = any(key.endswith(".rope.dimension_sections") for key in metadata)
    n_embd = int(metadata[f"{metadata['general.architecture']}.embedding_length"])  # type: ignore
    projector = "qwen2vl_merger" if grid else "mlp"
    make_mmproj(path.parent / "mmproj-tiny.gguf", n_embd, projector=projector)


def round_of(number: int) -> list[dict[str, Any]]:
    """Return two calls and their results."""
    calls = [
        {"id": f"call{number}000{i}", "type": "function",
         "function": {"name": name, "arguments": "{}"}}
        for i, name in enumerate("fg")
    ]  # fmt: skip
    results = [
        {"role": "tool", "tool_call_id": call["id"], "name": n, "content": f"{number} {n} is here"}
        for call, n in zip(calls, "fg", strict=True)
    ]
    return [{**said(""), "tool_calls": calls}, *results]


class Ways:
    """Asks one engine after the other, and counts what is read and what is new."""

    def __init__(self, path: Path, config: EngineConfig, folder: Path) -> None:
        self._path, self._config, self._folder = path, config, folder
        self._held: list[list[int]] = []
        self.cells: dict[str, tuple[int, int]] = {}
        self.faults: list[str] = []
        self.open()

    def open(self) -> None:
        self.engine = Engine.open(self._path, self._config)
        self.engine.keep_in(self._folder)

    def restart(self) -> None:
        self.engine.close()
        self.open()

    def ask(
        self,
        way: str,
        messages: list[dict[str, Any]],
        n: int = 5,
        owner: str = "a",
        tools: bool = False,
    ) -> None:
        options = ChatOptions(tools=TOOLS) if tools else ChatOptions()
        text = AnswerText()
        try:
            list(
                self.engine.answer(
                    of_chat(messages, GREEDY, n, options=options, owner=owner, on_delta=text.add)
                )
            )
        except EngineError as error:
            self.faults.append(f"{way}: {error}")
            return
        last, stats = self.engine.last, self.engine.statistics()
        assert last is not None
        self.text = text
        tokens = last.tokens
        prompt = tokens[: stats.n_prompt]
        known = max((n_equal(old, prompt[:-1]) for old in self._held), default=0)
        self.cells[way] = stats.n_prompt - stats.n_reused, len(prompt) - known
        self._held.append(list(tokens))
        while self.engine.keep():  # as when the engine idles
            pass

    def all(self) -> None:
        self.ask("first", ONE)
        self.ask("append", TWO)
        self.ask("again", THREE)
        self.ask("retry", THREE)
        self.ask("more", THREE, owner="")
        self.ask("edit", EDITED)
        self.ask("earlier", EARLIER)
        self.ask("branch", THREE)
        self.ask("another", [user("where is the sea, and what is in it?")], owner="b")
        self.ask("back", THREE)
        self.ask("stop", THREE, 3)
        stopped = self.text.to_message()
        if stopped["content"] or stopped.get("reasoning_content"):
            self.ask("go on", [*THREE, stopped])
        self.restart()
        self.ask("restart", [*THREE, said("the owl is."), user("why?")])
        self.ask("tools", ONE, owner="c", tools=True)
        self.ask("step", [*ONE, *round_of(1)], owner="c", tools=True)
        self.ask("step 2", [*ONE, *round_of(1), *round_of(2)], owner="c", tools=True)
        behind = [*ONE, *round_of(1), *round_of(2), said("yes."), user("and now?")]
        self.ask("question", behind, owner="c", tools=True)
        self.ask("picture", SEEN, owner="d")
        self.ask("behind it", SEEN_TWO, owner="d")
        self.ask("retry it", SEEN_TWO, owner="d")
        self.ask("edit it", SEEN_EDITED, owner="d")
        self.engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archs", nargs="*", default=list(CACHEABLE))
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--kv", default="")
    parser.add_argument("--kv-on-drive", action="store_true")
    arguments = parser.parse_args()
    settings: dict[str, Any] = {
        "n_sequence": arguments.parallel,
        "kv_on_drive": arguments.kv_on_drive,
    }
    if arguments.kv:
        settings["kv_type"] = arguments.kv
    # A head has at least a block of 32 values of a quantised cache.
    heads = {"n_embd": 256, "head_dim": 64, "n_rope": 32} if arguments.kv else {}
    os.environ.setdefault("OUTRIDER_STATES", tempfile.mkdtemp())
    for arch in arguments.archs:
        name = NEAREST.get(arch, OTHER)
        with tempfile.TemporaryDirectory() as folder:
            path = make_tiny(arch, "Q8_0", Path(folder) / "t.gguf", n_ctx=4096, **heads)
            path = with_template(path, Path(folder) / "m.gguf", template(name))
            see(path)
            config = EngineConfig.of(n_thread=1, context_length=4096, **settings)
            try:
                ways = Ways(path, config, Path(folder) / "states")
                ways.all()
            except Exception as error:
                print(f"{arch:15} {name}: {type(error).__name__}: {error}", flush=True)
                continue
        far = {way for way, (read, new) in ways.cells.items() if read > new + FAR}
        cells = [f"{way}{'*' * (way in far)} {r}/{n}" for way, (r, n) in ways.cells.items()]
        print(f"{arch:15} {name}: {', '.join(cells)}", *ways.faults, sep="\n    ", flush=True)


if __name__ == "__main__":
    main()
