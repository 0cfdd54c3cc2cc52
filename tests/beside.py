"""All that a pass may have, by a seed: programs, a person, drafts, images, kept states, cancels."""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from asking import jointly, of_text
from factory import can_predict, make_mmproj, make_png, make_tiny

from backend.engine.drafts import Width
from backend.engine.engine import Engine
from backend.engine.runner import Runner
from backend.gguf.header import read_header
from backend.gguf.tables import PREDICTING, STAYS
from backend.protocol.request import Request
from backend.protocol.settings import DRAFTED_MAX, Sampling

WORDS = "the of and to in is it that for was on are as with his they be at one have this".split()
GREEDY = Sampling(temperature=0)
OpenEngine = Callable[..., Engine]


class Always(Width):
    """Guesses as much as it can, whatever a pass costs."""

    def choose(self, n_equal: int) -> int:
        return self.n_most if n_equal else 0

    def cost(self, n_equal: int, n: int) -> float:
        return 0.0


class Beside:
    """Programs, and a person whose chat is on the drive: all that a pass may have, by a seed.

    happened: counts what took place, so that a test can require it. settings: of both engines. The
    first one writes the chat. The second one restores it beside programs; drafts, images and
    prompts with the same beginnings are in its passes, and requests are cancelled within some.
    """

    def __init__(
        self, arch: str, seed: int, folder: Path, open_engine: OpenEngine, **settings: Any
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._chance = chance = random.Random(f"{arch} {seed}")
        folder.mkdir()
        path = self._model(arch, folder)
        settings = {
            "cache_rate": chance.choice([0.125, 0.25, 0.5, 1.0]),
            "method": chance.choice(["lru", "promoe", "moe-infinity", "duoserve"]),
            "n_ubatch": chance.choice([24, 64, 256]),
            "context_length": chance.choice([768, 1024]),
            "drafts": "auto",
            **settings,
        }
        first = self._opened(path, open_engine, settings)
        list(first.answer(of_text(self._text(90), GREEDY, 12, owner="chat-1")))
        while first.keep():
            pass
        self.chat = tuple(first.passes.tokens)
        first.close()
        self.engine = self._opened(path, open_engine, settings)
        while self.engine.keep():  # learns the model's digest
            pass

    @staticmethod
    def _opened(path: Path, open_engine: OpenEngine, settings: dict[str, Any]) -> Engine:
        engine = open_engine(path, n_sequence=3, **settings)
        engine.keep_in(path.parent / "states")
        return engine

    def run(self) -> None:
        """Answer two groups, and a request alone behind each. Requires that no answer fails."""
        engine, chance = self.engine, self._chance
        eager = Always(DRAFTED_MAX)
        for n_group in range(2):
            if chance.random() < 0.8:
                engine.passes.width = eager
                engine.passes._widths.update(dict.fromkeys((1, 2, 3), eager))
            self._answer(n_group)
            list(engine.answer(of_text((*self.chat, self._text(3)), self._sampling(), 6)))
            if chance.random() < 0.5:
                engine.set_cache_rate(chance.choice([0.125, 0.5, 1.0]))

    def _answer(self, n_group: int) -> None:
        engine, chance = self.engine, self._chance
        asked = [self._asked(i, chance.randrange(20, 50)) for i in range(5)]
        chat = (*self.chat, " " + self._text(2))
        persons = [
            self._asked("image or text", 12, priority="person"),
            Request("chat", GREEDY, 20, prompt=chat, priority="person", owner="chat-1"),
        ]
        joins = sorted(chance.sample(range(2, 16), 2), reverse=True)
        cancels = set(chance.sample(range(4, 60), 4))
        ends_all = chance.randrange(20, 60)  # a pass in which nobody is left
        taken: list[Request] = []
        n_pass = 0

        def arriving() -> Iterator[Request]:
            for request in asked:
                taken.append(request)
                yield request

        def urgent() -> Request | None:
            if not persons or n_pass < joins[len(persons) - 2]:
                return None
            taken.append(persons.pop())
            return taken[-1]

        def counted(decode: Callable[..., int]) -> Callable[..., int]:
            def within(*args: Any) -> int:
                nonlocal n_pass
                n_pass += 1
                if n_pass in cancels:
                    chance.choice(taken).handle.cancel()
                    self.happened["cancel"] += 1
                if n_pass == ends_all:
                    for request in taken:
                        request.handle.cancel()
                return int(decode(*args))

            return within

        def watch(group: Runner) -> None:
            self.happened["right"] += group.n_right > 0 and group.n_running == 3
            self.happened["wrong"] += group.n_drafted > group.n_right

        context = engine.loaded.context
        names = ("decode_rows", "decode_embeddings")
        for name in names:
            setattr(context, name, counted(getattr(context, name)))
        try:
            for answer in jointly(engine, arriving(), watch, keeps=True, urgent=urgent):
                assert not answer.error, answer.error
                self.happened["images"] += answer.request.prompt is None and answer.n_token > 0
                if answer.request.key == "chat" and n_group == 0:
                    self.happened["restored"] += answer.n_reused >= len(self.chat) - 1
        finally:
            for name in names:
                delattr(context, name)

    def _model(self, arch: str, folder: Path) -> Path:
        """Write a model that has a layer which predicts, or sees images, if it can."""
        path, chance = folder / "m.gguf", self._chance
        predicts = arch in PREDICTING and arch not in STAYS and can_predict(arch)
        if predicts and chance.random() < 0.5:
            return make_tiny(arch, "F16" if arch == "deepseek2" else "Q8_0", path, n_nextn=1)
        metadata = read_header(make_tiny(arch, "Q8_0", path)).metadata
        grid = any(key.endswith(".rope.dimension_sections") for key in metadata)
        projector = "qwen2vl_merger" if grid else chance.choice(["mlp", "gemma3"])
        n_embd = int(metadata[f"{metadata['general.architecture']}.embedding_length"])
        make_mmproj(folder / "mmproj-tiny.gguf", n_embd, projector=projector)
        return path

    def _text(self, n: int) -> str:
        return " ".join(self._chance.choices(WORDS, k=n))

    def _sampling(self) -> Sampling:
        warm = Sampling(temperature=1.5, seed=self._chance.randrange(1000))
        return self._chance.choice([GREEDY, warm])

    def _asked(self, key: Any, n: int, **more: Any) -> Request:
        """Return a request with an image, or with a text that may repeat itself or others."""
        chance = self._chance
        if self.engine.model.chat.images and chance.random() < 0.4:
            image = np.random.default_rng(chance.randrange(3)).integers(
                0, 256, (20, 30, 3), np.uint8
            )
            data = base64.b64encode(make_png(image)).decode()
            text = {"type": "text", "text": self._text(3)}
            messages = [{"role": "user", "content": [{"type": "image", "data": data}, text]}]
            return Request(key, self._sampling(), n, messages, **more)
        begin = chance.choice(["", "the end of the words that were said and heard " * 3])
        prompt = begin + (self._text(chance.randrange(1, 30)) + " ") * chance.randrange(1, 4)
        return Request(key, self._sampling(), n, prompt=prompt, **more)
