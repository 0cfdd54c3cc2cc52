"""Random scripts for an engine: what people, programs and the system may do to it, by a seed."""

from __future__ import annotations

import base64
import errno
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from factory import can_predict, make_mmproj, make_png, make_tiny

from app.session.history import History
from backend.engine.drafts import Width
from backend.engine.engine import Engine
from backend.engine.moments import Watch
from backend.gguf.header import read_header
from backend.gguf.tables import ONE_SEQUENCE, PREDICTING, STAYS
from backend.methods import cells
from backend.protocol.errors import EngineError
from backend.protocol.request import GroupAnswer, Handle, Prompt, Request
from backend.protocol.settings import DRAFTED_MAX, Sampling
from backend.protocol.statistics import Batch, Statistics

WORDS = "the of and to in is it that for was on are as with his they be at one have this".split()
COMMON = "the end of the words that were said and heard " * 3
GREEDY = Sampling(temperature=0)
RATES = (0.125, 0.25, 0.5, 0.99)
METHODS = ("lru", "promoe", "moe-infinity", "duoserve", "klotski", "promoe-preempt", "outrider")
OWNERS = ("", "chat-1", "chat-2")
FIGURES = ("n_prompt", "n_reused", "n_token")
UNPINNED = bytes(byte & ~cells.PINNED for byte in range(256))
"""A table for the cells that windows are sent."""
OpenEngine = Callable[..., Engine]


class Always(Width):
    """Guesses as much as it can, whatever a pass costs."""

    def choose(self, n_equal: int) -> int:
        return self.n_most if n_equal else 0

    def cost(self, n_equal: int, n: int) -> float:
        return 0.0


class Asked(Handle):
    """Counts what a request is told. n_late: passes with a row of it that began after a cancel."""

    def __init__(self, owner: str, note: Callable[[str, int], None]) -> None:
        super().__init__()
        self.owner, self._note = owner, note
        self.n_ended = self.n_late = 0
        self.given: GroupAnswer | None = None

    def joined(self) -> None:
        self._note("n_prompt", self.follow.n_prompt)
        self._note("n_reused", self.follow.n_reused)

    def wrote(self, piece: Any) -> None:
        assert not self.n_ended, "An answer grows after its end."
        self._note("n_token", piece.token_id >= 0)

    def ended(self, given: GroupAnswer) -> None:
        self.n_ended += 1
        self.given = given


def _copy(states: Path, folder: Path) -> None:
    """Copy what is there, as a crash leaves it: the engine writes and deletes files meanwhile."""
    try:
        shutil.copytree(states, folder)
    except shutil.Error as error:
        faults = [why for *_, why in error.args[0] if f"[Errno {errno.ENOENT}]" not in why]
        assert not faults, faults


class Script:
    """An engine with a tiny model, and random steps that it takes. These rules hold at each step.

    Each request ends once, and grows no more. Of one that was cancelled at most the pass that
    began next has rows. The figures add up. The map that a window makes of the moments is the
    core's. Whether every pass is stock llama.cpp's, the oracle says.

    happened: counts what took place, so that a test can require it. settings: of all engines.
    """

    def __init__(
        self, arch: str, seed: int, folder: Path, open_engine: OpenEngine, **settings: Any
    ) -> None:
        self.happened: Counter[str] = Counter()
        self._chance = chance = random.Random(f"{arch} {seed}")
        self._folder, self._open = folder, open_engine
        folder.mkdir()
        self._path = self._model(arch)
        self._settings = {
            "cache_rate": chance.choice(RATES),
            "method": chance.choice(METHODS),
            "n_ubatch": chance.choice([24, 64, 256]),
            "context_length": 1024,
            "n_sequence": 1 if arch in ONE_SEQUENCE else 3,
            "drafts": "auto",
            **settings,
        }
        self._asked: list[Asked] = []
        self._chats: dict[str, tuple[int, ...]] = {}
        self._counted: dict[int, tuple[Statistics, Counter[str]]] = {}
        self._within: list[Callable[[], None]] = []  # of the next pass
        self._n_fail = 0
        self._reopen()

    def _reopen(self) -> None:
        """Open an engine on the states as they are."""
        self._states = self._folder / f"states-{self.happened['crashed']}"
        self.engine = self._open(self._path, **self._settings)
        self.engine.keep_in(self._states)
        self._watched = Watch()
        self.engine.watch(self._watched)
        model = self.engine.model
        self._history = History(len(model.moe_layers), model.n_expert)

    # Steps.

    def run(self) -> None:
        """Take every kind of step, with passes between them, and have the rest answered."""
        steps = (
            [self._submit] * 9 + [self._cancel] * 4 + [self._change, self._slide, self._keep] * 2
        )
        steps += [
            self._stop,
            self._keep,
            self._forget,
            self._draft,
            self._draft,
            self._fail,
            self._crash,
        ]
        self._chance.shuffle(steps)
        for step in [self._submit, *steps, self._submit]:
            step()
            self._require_ends()
            for _ in range(self._chance.randrange(12)):
                self._step()
        while self._step():
            pass
        assert self.engine.n_open == 0 and all(handle.n_ended == 1 for handle in self._asked)
        for stats, counted in self._counted.values():
            assert [getattr(stats, name) for name in FIGURES] == [counted[n] for n in FIGURES]

    def _submit(self) -> None:
        chance = self._chance
        for _ in range(chance.choice([1, 1, 2, 4])):
            handle = Asked(chance.choice(OWNERS), self._note)
            self._asked.append(handle)
            if chance.random() < 0.05:
                handle.cancel()
            try:
                self.engine.submit(self._request(handle))
            except EngineError as error:
                handle.ended(GroupAnswer(Request(None, GREEDY), fault=error))
                self.happened["refused"] += 1

    def _cancel(self) -> None:
        """Cancel a late request, also one that has ended: now, or within the next pass."""
        if self._asked:
            handle = self._chance.choice(self._asked[-6:])
            self.happened["cancelled"] += not handle.n_ended
            self._now_or_within(handle.cancel)

    def _stop(self) -> None:
        self.happened["stopped"] += self.engine.n_open > 0
        self._now_or_within(self._stop_all)

    def _stop_all(self) -> None:
        self.engine.stop()
        assert all(handle.is_cancelled for handle in self._asked if not handle.n_ended)

    def _now_or_within(self, action: Callable[[], None]) -> None:
        if self._chance.random() < 0.5:
            action()
        else:
            self._within.append(action)

    def _slide(self) -> None:
        """Change the cache between two passes."""
        config = self.engine.loaded.config.decided(cache_rate=self._chance.choice(RATES))
        self.happened["slid"] += self.engine.change_now(config)

    def _change(self) -> None:
        """Change settings between answers, which end."""
        chance, config = self._chance, self.engine.loaded.config
        change: dict[str, Any] = chance.choice([
            {"method": chance.choice(METHODS)}, {"n_ubatch": chance.choice([24, 64])},
            {"cache_rate": 1.0},
        ])  # fmt: skip
        self.engine.change(config.changed(**change))
        self.happened["changed"] += 1

    def _keep(self) -> None:
        """Write some pieces of the states, or all."""
        n_left = self._chance.choice([1, 5, 10_000])
        while n_left and self.engine.keep():
            n_left -= 1
        self.happened["kept"] += n_left > 0

    def _forget(self) -> None:
        owner = self._chance.choice(OWNERS)
        if owner:
            self.engine.forget_kept(owner)
        else:
            self.engine.forget()
        self.happened["forgotten"] += 1

    def _draft(self) -> None:
        """Have the engine guess whatever it costs, or only where it pays."""
        passes, eager = self.engine.passes, Always(DRAFTED_MAX)
        if self._chance.random() < 0.7:
            passes.width = eager
            passes._widths.update(dict.fromkeys((1, 2, 3), eager))
        else:
            passes.width = Width(DRAFTED_MAX)

    def _fail(self) -> None:
        """Have the next pass fail, or the next two, after which its requests end."""
        self._n_fail = self._chance.choice([1, 2])

    def _crash(self) -> None:
        """Open another engine on the states as they are now, perhaps in parts."""
        self.happened["crashed"] += 1
        if self._states.exists():
            _copy(self._states, self._folder / f"states-{self.happened['crashed']}")
        self.engine.close()
        self._reopen()

    def _step(self) -> bool:
        """Compute a pass, and look at what it has left."""
        self._watch_context()
        is_open = self.engine.step()
        runner = self.engine.runner
        if is_open:
            self.happened["right"] += runner.n_right > 0 and runner.n_running > 1
            self.happened["wrong"] += runner.n_drafted > runner.n_right
        self._require_map()
        self._require_ends()
        return is_open

    def _watch_context(self) -> None:
        """Have each pass of the context told of, and some fail."""
        context = self.engine.loaded.context
        if "decode_rows" in vars(context):
            return
        compute = context.decode_rows

        def decode_rows(rows: Any) -> int:
            places = {row.sequence for row in rows}
            for member in self.engine.loaded.scheduler.members:
                handle = member.request.handle
                handle.n_late += handle.is_cancelled and member.place in places
                assert handle.n_late < 2, "A cancelled request is computed."
            for action in self._within:
                action()
            self._within.clear()
            status = compute(rows)
            if self._n_fail:
                self._n_fail -= 1
                self.happened["failed"] += 1
                return status or 1
            return status

        context.decode_rows = decode_rows  # type: ignore[method-assign]

    # Rules.

    def _note(self, name: str, n: int) -> None:
        """Count a figure of the answers since the engine counts anew."""
        stats = self.engine.statistics()
        self._counted.setdefault(id(stats), (stats, Counter()))[1][name] += n

    def _require_ends(self) -> None:
        """Require that those have ended, once, who are not being answered."""
        open_now = [m.request.handle for m in self.engine.loaded.scheduler.requests]
        for handle in self._asked:
            assert handle.n_ended == (handle not in open_now)
            if (given := handle.given) is not None and not given.error:
                n = sum(piece.token_id >= 0 for piece in given.pieces)
                assert n == given.n_token == handle.follow.n_token
                assert 0 <= given.n_reused <= given.n_prompt

    def _require_map(self) -> None:
        """Require that a window sees what the core has, and that its figures add up."""
        before = len(self._history)
        while (message := self._watched.take()) is not None:
            self._history.add(Batch.from_json(message))
        if len(self._history) == before:
            return
        shown = self._history.residency(len(self._history) - 1)
        assert shown == self.engine.residency().translate(UNPINNED), "The window's map is another."
        stats = self.engine.statistics()
        for name in ("hits", "late", "misses", "bytes_read"):
            of_passes = [getattr(figures, name) for figures in self._history.figures]
            of_layers = [getattr(layer, name, 0) for layer in stats.layers]
            assert sum(of_passes) == sum(of_layers) == getattr(stats, name), name

    # Requests.

    def _request(self, handle: Asked) -> Request:
        """Return a request with an image, or a text that may repeat itself, others or a chat."""
        chance = self._chance
        sampling = chance.choice([GREEDY, Sampling(temperature=1.5, seed=chance.randrange(1000))])
        priority: Any = chance.choice(["person", "program", "program"])
        more: dict[str, Any] = {"priority": priority, "owner": handle.owner, "handle": handle}
        n = chance.randrange(1, 40)
        if self.engine.model.chat.images and chance.random() < 0.3:
            pixels = np.random.default_rng(chance.randrange(3)).integers(
                0, 256, (20, 30, 3), np.uint8
            )
            data = base64.b64encode(make_png(pixels)).decode()
            text = {"type": "text", "text": self._text(3)}
            messages = [{"role": "user", "content": [{"type": "image", "data": data}, text]}]
            self.happened["images"] += 1
            return Request(None, sampling, n, messages, **more)
        if handle.owner in self._chats and chance.random() < 0.7:  # goes on with the chat
            prompt: Prompt = (*self._chats[handle.owner], " " + self._text(3))
            return Request(None, sampling, n, prompt=prompt, **more)
        begin = chance.choice(["", COMMON])
        prompt = begin + (self._text(chance.randrange(1, 30)) + " ") * chance.randrange(1, 4)
        return Request(None, sampling, n, prompt=prompt, **more)

    def _text(self, n: int) -> str:
        return " ".join(self._chance.choices(WORDS, k=n))

    def _model(self, arch: str) -> Path:
        """Write a model that has a layer which predicts, or sees images, if it can."""
        path, chance = self._folder / "m.gguf", self._chance
        predicts = arch in PREDICTING and arch not in STAYS and can_predict(arch)
        if predicts and chance.random() < 0.5:
            return make_tiny(arch, "F16" if arch == "deepseek2" else "Q8_0", path, n_nextn=1)
        metadata = read_header(make_tiny(arch, "Q8_0", path)).metadata
        grid = any(key.endswith(".rope.dimension_sections") for key in metadata)
        projector = "qwen2vl_merger" if grid else chance.choice(["mlp", "gemma3"])
        n_embd = int(metadata[f"{metadata['general.architecture']}.embedding_length"])
        make_mmproj(self._folder / "mmproj-tiny.gguf", n_embd, projector=projector)
        return path
