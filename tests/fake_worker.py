"""A fake worker. Only the option `template` loads a part of llama.cpp, its chat layer.

It is the real worker around a fake engine: within the tests' process (WorkerInside), or as a script
without an argument. The "model file" is a JSON object of
options that say how the engine behaves: n_layer, n_expert, n_used, is_moe, reason, load_s,
load_error, token_s, n_token, text, echo, hang_after, holds (waits after so many tokens until
`let_go` of window_samples.py), change_s, change_error, prefill_s, crash_on_load, context_error,
reason_at_end, n_slot_left, n_sequence, chat (of ChatFacts), thought (said before the text), answers
(pairs of a thought and a text, said in turn), calls (pairs of a tool's name and its arguments, made
after the text until a result is there), calls_again (also after a result), template (a file) with
outputs (the output before and after a result, parsed by llama.cpp's chat layer). Any file that is
not JSON is refused. A path in `NAMED` needs no file. With the option `obeys` the last message of a
conversation is a command: "count N" makes N tokens, "say JSON" makes those of a list of [raw text,
fields of a Delta], and any other text makes tokens until it is stopped. After three tokens "hang"
computes without end, "crash" kills the process, "abort" fails a check, "fail" raises an
EngineError, "odd" an unexpected error.

As a script with an argument, a script in JSON, it only plays that script; see `play`.
"""

import functools
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from stepping import Stepping

from backend.memory import devices
from backend.methods.slots import slots_of
from backend.protocol.attachments import as_text
from backend.protocol.chat import ChatOptions, Delta, ToolCall
from backend.protocol.messages import Decoder, encode
from backend.protocol.request import GroupAnswer, Handle, Request
from backend.protocol.status import VocabularyFacts
from backend.worker import main as worker

WORDS = (
    "Once there was a tin soldier who stood on a window sill and watched the river all day long. "
)
EXPERT_BYTES = 2_500_000
NAMED: dict[str, dict[str, Any]] = {
    "slow": {"load_s": 10.0},
    "broken": {"load_error": "The file is broken."},
    "shelved.gguf": {"n_token": 3},
    "arrived.gguf": {"n_layer": 2},  # a downloaded file is no script
    **{
        name: {"obeys": True, "n_layer": 2, "n_expert": 4, "n_used": 1, "token_s": 0.0}
        for name in ("model", "other")
    },
    "joint": {
        "obeys": True, "n_layer": 2, "n_expert": 4, "n_used": 1, "token_s": 0.0, "n_sequence": 3
    },
}  # fmt: skip


class Refused(RuntimeError):
    """An error with a sentence for the user, like the real engine's."""

    __module__ = "backend.engine.engine"


class _Facts(SimpleNamespace):
    runs = "The fake runs."

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


class FakeEngine(Stepping):
    """Repeats the same words, at the speed that its options give."""

    shape = None

    def __init__(
        self, path: Path, options: dict[str, Any], rate: float, method: str, life: "Life"
    ) -> None:
        self.options, self.life = options, life
        super().__init__()
        self.n_sequence = options.get("n_sequence", 1)
        self._n_joined = 0
        self.is_moe = options.get("is_moe", True)
        n_layer = options.get("n_layer", 12) if self.is_moe else 0
        self.n_expert = options.get("n_expert", 32) if self.is_moe else 0
        self.n_used = options.get("n_used", 4)
        self.method = method
        self.file = _Facts(is_moe=False)  # there is nothing to learn from it
        self.device = self.hybrid = ""
        self.drafts = "off"
        self.model = _Facts(
            name=path.stem,
            path=str(path),
            architecture="fake",
            n_layer=n_layer + 1,
            moe_layers=list(range(1, n_layer + 1)),
            n_expert=self.n_expert,
            n_expert_used=self.n_used if self.is_moe else 0,
            expert_bytes=EXPERT_BYTES,
            expert_bytes_total=EXPERT_BYTES * n_layer * self.n_expert,
            dense_bytes=600_000_000,
            file_bytes=600_000_000 + EXPERT_BYTES * n_layer * self.n_expert,
            context_length=4096,
            trained_length=options.get("trained_length", 4096),
            is_moe=self.is_moe,
            chat=options.get("chat", {}),
        )
        self.raw, self.fitted = "", ()
        self.vocabulary = VocabularyFacts(1000, "<s>", "</s>", (2,), "{{ messages }}")
        self.finish_reason, self.stop_text = "stop", ""
        self._random = random.Random(7)
        self._n_prompt = self._n_answer = 0
        self._tokens: deque[dict[str, Any]] = deque(maxlen=64)
        self._sums: Counter[str] = Counter()
        self._is_copying = False
        self._layers = [
            {"layer": layer, "hits": 0, "late": 0, "misses": 0, "bytes_read": 0, "stall_s": 0.0}
            for layer in self.model.moe_layers
        ]
        self.cache = self._cache(rate)
        self._resident = [
            self._random.sample(range(self.n_expert), self.cache.n_slot) for _ in self._layers
        ]
        self._used = bytes(len(self._layers) * self.n_expert)

    def _cache(self, rate: float) -> _Facts:
        if not self.is_moe:
            reason = self.options.get("reason", "This model is dense: it has no experts to cache.")
            return _Facts(
                asked_rate=rate, rate=1.0, min_rate=1.0, n_slot=0, bytes=0, mode="plain",
                reason=reason, method="", asked_method=self.method, n_thread=2, kv_type="f16",
            )  # fmt: skip
        n_slot = max(slots_of(rate, self.n_expert), self.n_used)
        plain = n_slot == self.n_expert
        return _Facts(
            asked_rate=rate,
            rate=n_slot / self.n_expert,
            min_rate=self.n_used / self.n_expert,
            n_slot=n_slot,
            bytes=EXPERT_BYTES * n_slot * len(self.model.moe_layers),
            mode="plain" if plain else "cached",
            reason="Every expert is in memory." if plain else "",
            method=self.method,
            asked_method=self.method,
            n_thread=2,
            kv_type="f16",
            device=self.device,
            hybrid=self.hybrid,
            drafts=self.drafts,
            overridden=self.options.get("overridden", ""),
        )

    def mind_memory(self) -> None:
        """Give memory back once the "model file" says so."""
        n_slot = _options(Path(self.model.path)).get("n_slot_left")
        if n_slot is not None and n_slot != self.cache.n_slot:
            asked_rate = self.cache.asked_rate
            self.cache = self._cache(n_slot / self.n_expert)
            self.cache.asked_rate = asked_rate
            self.cache.reason = f"Other programs need memory: {n_slot} experts are kept."

    def keep_in(self, folder: Path) -> None:
        pass

    is_late = False

    def keep(self) -> bool:
        self._is_copying = False
        return False

    def warm(self, owner: str) -> None:
        pass

    def forget_kept(self, owner: str) -> None:
        pass

    def idle(self) -> None:
        pass

    def change(self, config: Any) -> _Facts:
        if "change_error" in self.options:
            raise Refused(self.options["change_error"])
        self.method = config.method
        self.device = config.device if config.device.startswith("FAKE") else "cpu"
        self.hybrid = config.hybrid if self.device != "cpu" else "off"
        has_layer = self.options.get("predicts") and config.drafts != "off"
        self.drafts = "mtp" if has_layer else config.drafts
        self.model.context_length = config.context_length
        self.options.pop("reason_at_end", None)
        self.life.sleep(self.options.get("change_s", 0.0))
        self.cache = self._cache(config.cache_rate)
        self._resident = [
            self._random.sample(range(self.n_expert), self.cache.n_slot) for _ in self._layers
        ]
        return self.cache

    def change_now(self, config: Any) -> bool:
        if "plain" in (self.cache.mode, self._cache(config.cache_rate).mode):
            return False
        self.change(config)
        return True

    def answer(self, request: Request, *, is_alone: bool = True) -> Iterator[SimpleNamespace]:
        messages, asked, options = list(request.messages), request.options, self.options
        handle = request.handle if is_alone else Handle()
        splits = handle.splits == "live" and request.prompt is None
        if request.prompt is not None:
            messages = [{"role": "user", "content": request.prompt}]
        if "context_error" in options:
            raise Refused(options["context_error"])
        self.raw = ""
        self._tokens.clear()
        self._sums.clear()
        self._is_copying = True
        for layer in self._layers:
            layer.update(hits=0, late=0, misses=0, bytes_read=0, stall_s=0.0)
        self.finish_reason = options.get("reason_at_end", "stop")
        self._n_prompt = sum(len(str(turn["content"]).split()) for turn in messages) + 4
        usual = [[options.get("thought", ""), options.get("text", WORDS * 4)]]
        answers = options.get("answers", usual)
        thought, text = answers[self._n_answer % len(answers)]
        self._n_answer += 1
        number = self._n_answer
        if options.get("echo"):
            text = json.dumps(asked.to_json() if options["echo"] == "options" else messages)
        last = messages[-1]
        goes_on = last["role"] == "assistant"
        if goes_on:
            text = " And he went on."
        thought = thought if asked.thinking is not False else ""
        thought = thought if not goes_on or not last["content"] else ""
        again = options.get("calls_again", False)
        calls = options.get("calls", ()) if again or last["role"] != "tool" else ()
        if options.get("obeys"):
            text = as_text(last["content"]).rpartition("\n")[2]
            pieces = _obey(text, self.life)
        elif "template" in options:
            has_result = any(turn["role"] == "tool" for turn in messages)
            pieces = self._written(messages, asked, options["outputs"][has_result])
            self.finish_reason = "stop" if has_result else "tool_calls"
        else:
            words = iter((text,)) if options.get("echo") else _cut(text)  # an echo is one token
            pieces = itertools.islice(_say(thought, words, calls), options.get("n_token", 10_000))
            self.finish_reason = "tool_calls" if calls else self.finish_reason
        handle.follow.joined(self._n_prompt, self.statistics().n_reused)
        for done in range(0, self._n_prompt + 1, 8):
            handle.follow.prefilled(min(done, self._n_prompt))
            self.life.sleep(options.get("prefill_s", 0.0))
        handle.follow.began()
        for index, (piece, delta) in enumerate(pieces, 1):
            if request.handle.is_cancelled:
                self.finish_reason = "cancelled"
                return
            if index - 1 == options.get("hang_after"):
                self.life.sleep(3600)
            while index - 1 == options.get("holds") and not self._is_let_go(number):
                if request.handle.is_cancelled:
                    break
                self.life.sleep(0.005)
            if index == 4 and options.get("obeys"):
                _fault(text, self.life)
            self.life.sleep(options.get("token_s", 0.005))
            self._count()
            self.raw += piece
            if splits and delta:
                handle.delta(delta)
            written = SimpleNamespace(token_id=index, text=piece, raw=piece, chances=())
            handle.follow.wrote(written)
            yield written

    def _is_let_go(self, number: int) -> bool:
        """Return whether a test lets an answer of this worker go on (window_samples.let_go)."""
        return Path(self.model.path).with_suffix(f".go{number}").exists()

    def _written(
        self, messages: list[dict[str, Any]], asked: ChatOptions, raw: str
    ) -> Iterator[tuple[str, Delta]]:
        """Yield what the chat layer reads in an answer that arrives in small pieces."""
        form = self._chat_format
        rendered = form.render(messages, asked)
        assert rendered is not None
        reader = form.reader(rendered)
        for begin in range(0, len(raw), 5):
            piece = raw[begin : begin + 5]
            yield piece, reader.feed(piece)
        yield "", reader.finish()

    @functools.cached_property
    def _chat_format(self) -> Any:
        from backend.llama.chat_format import ChatFormat  # llama.cpp; half of the time of a start

        return ChatFormat("fake", Path(self.options["template"]).read_text(), "<s>", "</s>")

    def make_room(self, n_sequence: int) -> None:
        """Leave the requests of the server to be answered one after the other."""

    def submit(self, request: Request) -> Handle:
        """Have a token of the answer written in each step; number i beside others says it first."""
        self._n_joined = self._n_joined + 1 if self.answering else 0
        self.answering.append((request, self._beside(request, self._n_joined)))
        return request.handle

    def _beside(self, request: Request, number: int) -> Iterator[SimpleNamespace]:
        if len(self.answering) == 1 and not number:
            yield from self.answer(request)
            return
        request.handle.follow.joined(8, 0)
        request.handle.follow.began()
        if self.options.get("obeys") is None:
            _write(request, f"({number}) ")
        for piece in self.answer(request, is_alone=False):
            _write(request, piece.text)
            yield piece

    def end_of(self, request: Request) -> GroupAnswer:
        reason = "cancelled" if request.handle.is_cancelled else self.finish_reason
        return GroupAnswer(request, finish_reason=reason)

    def tokenize(self, text: str, *, special: bool = True) -> list[int]:
        return [1] * len(text.split())

    def count_image(self, data: str) -> int:
        return 16

    def format(self, messages: list[dict[str, Any]], options: ChatOptions) -> str:
        if "format_error" in self.options:
            raise Refused(self.options["format_error"])
        if "template" in self.options:
            return self._chat_format.render(messages, options).prompt
        return json.dumps([messages, options.to_json()])

    def _count(self) -> None:
        """Count the made-up figures of one token."""
        stall_s = 0.0
        hits = late = misses = 0
        used = bytearray(len(self._layers) * self.n_expert)
        for row, layer in enumerate(self._layers):
            resident = self._resident[row]
            for expert in self._random.sample(range(self.n_expert), self.n_used):
                place = row * self.n_expert + expert
                if expert in resident or self._random.random() < 0.6:
                    layer["hits"] += 1
                    hits += 1
                    used[place] = 4
                else:
                    is_late = self._random.random() < 0.3
                    layer["late" if is_late else "misses"] += 1
                    late, misses = late + is_late, misses + (not is_late)
                    used[place] = 8 if is_late else 12
                    layer["stall_s"] += 0.0004 * (1 + 5 / (row + 1))
                    stall_s += 0.0004 * (1 + 5 / (row + 1))
                    layer["bytes_read"] += EXPERT_BYTES
                if expert not in resident and resident:
                    resident[self._random.randrange(len(resident))] = expert
        self._used = bytes(used)
        self._tokens.append(
            {
                "compute_s": 0.03 + self._random.random() * 0.004, "stall_s": stall_s,
                "other_s": 0.001, "hits": hits, "late": late, "misses": misses,
            }
        )  # fmt: skip
        self._sums.update(self._tokens[-1], n_token=1)

    def prefilled(self) -> tuple[int, int] | None:
        return None

    def statistics(self) -> _Facts:
        n_token = self._sums["n_token"]
        parts = {
            name: self._sums[name]
            for name in ("compute_s", "stall_s", "other_s", "hits", "late", "misses")
        }
        total_s = parts["compute_s"] + parts["stall_s"] + parts["other_s"]
        bytes_read = sum(layer["bytes_read"] for layer in self._layers)
        return _Facts(
            n_prompt=self._n_prompt, n_reused=0, n_token=n_token, ttft_s=0.8,
            tokens_per_s=n_token / total_s if total_s else 0.0,
            bytes_read=bytes_read, bytes_useful=bytes_read, bytes_wasted=0,
            prefetches_useful=0, prefetches_wasted=0, peak_rss_bytes=1 << 30,
            layers=[dict(layer) for layer in self._layers], tokens=list(self._tokens), **parts,
        )  # fmt: skip

    def watch(self, watch: Any) -> None:
        pass

    def residency(self) -> bytes:
        data = bytearray(len(self._layers) * self.n_expert)
        arriving = random.Random(self._sums["n_token"])
        for row, resident in enumerate(self._resident):
            for expert in resident:
                data[row * self.n_expert + expert] = 1
            if self._sums and self._is_copying and len(resident) < self.n_expert:
                data[row * self.n_expert + arriving.randrange(self.n_expert)] = 2
        return bytes(value | use for value, use in zip(data, self._used, strict=True))

    def close(self) -> None:
        if "_chat_format" in vars(self):
            self._chat_format.close()


def _write(request: Request, text: str) -> None:
    """Have the handle of a request receive a token of its answer."""
    if request.prompt is None:
        request.handle.delta(Delta(content=text))
    piece = SimpleNamespace(raw=text, text=text, token_id=1, chances=())
    request.handle.follow.wrote(piece)


def _cut(text: str) -> Iterator[str]:
    """Return words with the space before them, like tokens."""
    start = 0
    for index, letter in enumerate(text):
        if letter in " \n" and index > start:
            yield text[start:index]
            start = index
    yield text[start:]


def _plain(words: Iterator[str]) -> Iterator[tuple[str, Delta]]:
    return ((word, Delta(content=word)) for word in words)


def _say(thought: str, words: Iterator[str], calls: Any) -> Iterator[tuple[str, Delta]]:
    """Yield the raw text and the delta of each token of an answer."""
    if thought:
        yield "<think>", Delta()
        yield from ((word, Delta(reasoning=word)) for word in _cut(thought))
        yield "</think>", Delta()
    yield from _plain(words)
    for index, (name, arguments) in enumerate(calls):
        yield f"<call>{name} ", Delta(tool_calls={index: ToolCall(f"call{index:05}", name, "")})
        for word in _cut(arguments):
            yield word, Delta(tool_calls={index: ToolCall("", "", word)})


def _obey(order: str, life: "Life") -> Iterator[tuple[str, Delta]]:
    word, _, number = order.partition(" ")
    for index in itertools.count(1):
        if word == "count" and index > int(number):
            return
        if word == "say":
            yield from ((raw, Delta.from_json(fields)) for raw, fields in json.loads(number))
            return
        life.sleep(0.0 if word == "count" else 0.001)
        yield f"w{index} ", Delta(content=f"w{index} ")


def _fault(order: str, life: "Life") -> None:
    while order == "hang":
        life.sleep(1)
    if order == "crash":
        life.sleep(0.1)  # send the three tokens first
        life.crash()
    if order == "abort":
        life.crash("ggml.c:12: GGML_ASSERT(a == b) failed")
    if order == "fail":
        raise Refused("The model's file could not be read any more.")
    if order == "odd":
        raise KeyError("surprise")


def _options(path: Path) -> dict[str, Any]:
    """Read the options. Raises OSError or ValueError if the file is missing or no JSON."""
    return NAMED.get(path.name) or json.loads(path.read_text(encoding="utf-8"))


def check_fake(path: Path) -> None:
    """Refuse what open_fake refuses because of the file itself."""
    try:
        _options(path)
    except ValueError:
        raise Refused("The file does not begin with the GGUF magic.") from None


class Life:
    """How long the process of a fake engine lives: here until the test's end."""

    def __init__(self) -> None:
        self._is_over = threading.Event()

    def end(self) -> None:
        """Wake what sleeps."""
        self._is_over.set()

    def sleep(self, seconds: float) -> None:
        if self._is_over.wait(seconds):
            raise Refused("The test has ended.")

    def crash(self, last_words: str = "") -> NoReturn:
        raise AssertionError("This needs a process: open_window(command=FAKE_WORKER).")


class _Process(Life):
    """That of a process of its own, whose standard output is the pipe."""

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def crash(self, last_words: str = "") -> NoReturn:
        if last_words:
            print(last_words, file=sys.stderr, flush=True)
            os.abort()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


def open_noisy(path: Path, config: Any, progress: Callable[[float, str], bool]) -> FakeEngine:
    print("a library's print must not disturb the messages", flush=True)
    os.write(1, b"nor must one from native code")
    return open_fake(path, config, progress, _Process())


def open_fake(
    path: Path, config: Any, progress: Callable[[float, str], bool], life: Life
) -> FakeEngine:
    check_fake(path)
    options = _options(path)
    if "load_error" in options:
        raise Refused(options["load_error"])
    if options.get("crash_on_load"):
        life.crash()
    load_s = options.get("load_s", 0.0)
    for step in range(11):
        if not progress(step / 10, "reading the dense weights"):
            raise Refused("Loading was cancelled.")
        life.sleep(load_s / 10)
    return FakeEngine(path, options, config.cache_rate, config.method, life)


def play(script: list[Any]) -> None:
    """Play the steps in order, then wait for the end of standard input.

    A step that is a message is sent; its "id" names the kind of request that it answers. Other
    steps are {"await": kind of request}, {"raw": text of bytes to send}, {"stderr": text},
    {"exit": status} and {"kill": signal}.
    """
    decoder, inbox, numbers = Decoder(), deque[dict[str, Any]](), dict[str, int]()
    for step in script:
        if "type" in step:
            if "id" in step:
                step = {**step, "id": numbers[step["id"]]}
            os.write(1, encode(step))
        elif "raw" in step:
            os.write(1, step["raw"].encode("latin-1"))
        elif "stderr" in step:
            os.write(2, step["stderr"].encode())
        elif "exit" in step:
            os._exit(step["exit"])
        elif "kill" in step:
            os.kill(os.getpid(), step["kill"])
        while step.get("await", "") not in numbers and "await" in step:
            while not inbox:
                inbox += decoder.feed(os.read(0, 1 << 16))
            message = inbox.popleft()
            numbers[message["type"]] = message.get("id", 0)
    while os.read(0, 1 << 16):
        pass


DEVICE = SimpleNamespace(name="FAKE0", description="make-believe", free_bytes=1, total_bytes=2)

if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(play(json.loads(sys.argv[1])))
    devices.available = lambda: [DEVICE]  # type: ignore[assignment, list-item]
    sys.exit(worker.main(open_noisy, check_fake))  # type: ignore[arg-type]
