"""`outrider report`: measure a model on this machine, for a report that may be published.

Each part may take until a share of the time. A sentence in its section names the measurements that
failed. The file is written after every part. Everything that loads llama.cpp is another process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from backend.cli.common import (
    UserError,
    bytes_text,
    number_that,
    one_line,
    plain_sentence,
    say,
    show_progress,
)
from backend.cli.session import Answer, Session, Settings
from backend.gguf.model_file import ModelFile, read_model
from backend.library.asked import said_of, with_sizes
from backend.library.machine import is_large, measure_command
from backend.machines import facts, load
from backend.memory.plan import KvCache, kv_bytes
from backend.protocol.chat import ChatOptions, Json
from backend.protocol.client import RequestFailed, WorkerClient, WorkerDied
from backend.protocol.settings import EngineConfig, Sampling
from backend.protocol.status import CacheFacts
from backend.system import children, faults
from backend.system.kept_file import write_whole
from backend.system.memory import is_busy
from backend.system.names import without_models, without_names
from backend.system.paths import cache_folder, data_folder, exists, may_write
from backend.text import Text, text, to_json

_FORMAT = 1
_SECONDS = 285
_N_ROW = 200
_N_TOKEN = 48
_RATE = 0.25
_GRACE_S = 5.0
"""An engine that is told to stop has this long, before its process is ended."""
_SIZE_LABEL = re.compile(r"([0-9]+x)?[0-9.]{1,6}[KMBT](-A[0-9.]{1,6}[KMBT])?")
_SECTIONS = ("Summary", "Machine", "Model", "Engine", "Turns", "Speed", "Stock llama.cpp")
_STORY = (
    "A mill stands at the bend of a river. In spring the water is high, and the wheel turns day "
    "and night. The miller grinds rye and wheat for nine villages, and keeps a sixteenth as his "
    "pay. In a dry summer the wheel stands still for weeks. Then he repairs the sluice, sharpens "
    "the stones and mends the roof. One year a merchant offers him a steam engine. It burns a cart "
    "of wood each day, but it grinds in every season. The villages are small, the woods are large, "
    "and the next mill is a day away."
)
_QUESTIONS = (
    f"{_STORY}\n\nShould the miller buy the engine? Give your reasons.",
    "What would you ask the merchant first?",
    "Now write a short letter from the miller to the merchant.",
)


class _Missing(Exception):
    """Something could not be found out; str() is one sentence."""


class _Report:
    """The facts so far by section and name. is_whole: nothing is missing so far."""

    def __init__(self, out: Path, file: ModelFile) -> None:
        self.out, self.is_whole = out, True
        self._models = (*file.paths, Path(f"{file.name}.gguf"))
        folders = (data_folder(), cache_folder(), Path(tempfile.gettempdir()), Path.cwd())
        self._known = (*file.paths, *(folder / "file" for folder in folders), Path(__file__))
        self._facts: dict[str, dict[str, str]] = {name: {} for name in _SECTIONS}

    def add(self, section: str, found: Mapping[str, object], of: str = "") -> None:
        """Add facts, without names of files, folders, user and machine. of: before each name."""
        for name, value in found.items():
            words = without_models(without_names(str(value), *self._known), *self._models)
            self._facts[section][of + name] = one_line(" ".join(words.split())) or "none"

    def lacks(self, section: str, error: BaseException | str, of: str = "") -> None:
        """Say why something is missing."""
        is_sentence = isinstance(error, str | _Missing | UserError | RequestFailed | WorkerDied)
        sentence = str(error) if is_sentence else plain_sentence(error)  # type: ignore[arg-type]
        self.is_whole = False
        self.add(section, {"missing": sentence}, of)

    def write(self) -> None:
        """Write the file as it is now. Raises OSError."""
        lines = [f"Outrider report {_FORMAT}"]
        for section, found in self._facts.items():
            lines += ["", section, *(f"  {name}: {value}" for name, value in found.items())]
        write_whole(self.out, ("\n".join(lines) + "\n").encode(), makes_folder=False)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.description = (
        "Measure a model on this machine and write a text file: the machine, the model, how it "
        f"runs, three turns of a chat, speed at two cache rates, and {_N_ROW} rows of logits "
        "beside stock llama.cpp's. The file has no paths, names or chats, and is sent nowhere. The "
        "exit status is 0 if nothing is missing or different. Ctrl-C keeps what was measured."
    )
    add = parser.add_argument
    add("model", metavar="MODEL", type=Path, help="a GGUF file, or any part of a split one")
    add(
        "--out",
        metavar="FILE",
        type=Path,
        help="the file to write (default: outrider-report-ARCHITECTURE-DATE.txt in this folder)",
    )
    add(
        "--seconds",
        type=number_that(lambda s: 1 <= s < math.inf, "the time must be at least 1 second"),
        default=_SECONDS,
        metavar="S",
        help=f"the time for all parts; each ends by its share of it (default {_SECONDS})",
    )
    add("--json", action="store_true", help="print the progress as lines of JSON")


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    file = read_model(args.model)
    report = _Report(_file_to_write(args.out, file), file)
    for name in ("SIGTERM", "SIGHUP"):  # as Ctrl-C: its children end, too
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.default_int_handler)
    job = children.Job()  # on Windows, which has no such signals
    with contextlib.suppress(OSError):
        job.add(os.getpid())
    return _Run(report, file, args.seconds, as_json=args.json).run()


def _file_to_write(asked: Path | None, file: ModelFile) -> Path:
    """Return the path of the report. Raises UserError if it cannot be written."""
    date = time.strftime("%Y-%m-%d-%H%M")
    out = (asked or Path(f"outrider-report-{file.architecture}-{date}.txt")).absolute()
    if not out.parent.is_dir():
        raise UserError(f"The folder {out.parent} for the report does not exist.")
    if exists(out):
        raise UserError(f"{out} exists already; --out names another file.")
    if not may_write(out.parent):
        raise UserError(f"Nothing can be written to the folder {out.parent}; --out names a file.")
    return out


class _Run:
    """Runs the parts, one after the other, and holds the engine of a chat between them."""

    def __init__(self, report: _Report, file: ModelFile, seconds: float, *, as_json: bool) -> None:
        self._report, self._file, self._as_json = report, file, as_json
        self._began_s, self._seconds = time.monotonic(), seconds
        self._until_s = 0.0  # the end of the present part
        sampling, config = Sampling(temperature=0.0), EngineConfig(automatic=True)
        self._session = Session(Settings(os.path.abspath(file.path), config, sampling, _N_TOKEN))
        self._cache: CacheFacts | None = None  # as loaded
        self._has_device = self._differs = False
        self._n_row = 0
        self._parts: tuple[tuple[str, Text, float, Callable[[], None]], ...] = (
            ("Machine", text("report.machine"), 0.06, self._devices),
            ("Machine", text("report.machine"), 0.12, self._measure),
            ("Engine", text("report.load"), 0.42, self._load),
            ("Turns", text("report.turns"), 0.60, self._turns),
            ("Speed", text("report.speed"), 0.76, self._speeds),
            ("Stock llama.cpp", text("report.stock", n=_N_ROW), 0.97, self._stock),
        )

    def run(self) -> int:
        """Run all parts and return the exit status."""
        report, status = self._report, 0
        try:
            self._about()
            for number, (section, words, share, part) in enumerate(self._parts):
                self._until_s = self._began_s + share * self._seconds
                self._show(number, words)
                self._write(is_over=False)
                try:
                    part()
                except Exception as error:
                    report.lacks(section, error)
        except KeyboardInterrupt:
            report.lacks("Summary", "It was stopped before its end.")
            status = 128 + signal.SIGINT
        finally:
            self._session.close()
            show_progress("")
        self._write(is_over=True)
        status = status or int(self._differs or not report.is_whole)
        if self._as_json:
            print(json.dumps({"report": str(report.out), "status": status}), flush=True)
        else:
            say(f"The report is in {report.out}. Read it before you send it to anybody.")
        return status

    def _show(self, number: int, words: Text) -> None:
        if self._as_json:
            line = {"part": number, "parts": len(self._parts), "words": to_json(words)}
            print(json.dumps(line), flush=True)
        show_progress(f"{number + 1} of {len(self._parts)}: {words}")

    def _write(self, *, is_over: bool) -> None:
        verdict = f"identical in {self._n_row} rows" if self._n_row else "nothing was compared"
        took_s = time.monotonic() - self._began_s
        summary = {
            "date": time.strftime("%Y-%m-%d"),
            "complete": _yes(is_over and self._report.is_whole),
            "logits": "different" if self._differs else verdict,
            "took": f"{took_s:.0f} s of at most {self._seconds:.0f} s",
        }
        self._report.add("Summary", summary)
        self._report.write()

    # The parts

    def _about(self) -> None:
        """Add what needs no measurement."""
        file = self._file
        found = {**facts.versions(), **facts.hardware(), "busy": _yes(is_busy())}
        self._report.add("Machine", found)
        label = str(file.metadata.get("general.size_label", ""))
        n_used = file.n_used_by_moe_layer or [file.n_expert_used]
        experts = [tensor for of in file.expert_tensors.values() for tensor in of]
        model = {
            "architecture": file.architecture,
            "size label": label if _SIZE_LABEL.fullmatch(label) else "",  # others may be names
            "quantisation": file.quantisation,
            "size": f"{bytes_text(file.file_size_bytes)}, files: {len(file.paths)}",
            "layers": file.n_layer,
            "layers with experts": file.n_moe_layer,
            "experts in a layer": file.n_expert,
            "experts used by a token": f"{min(n_used)} to {max(n_used)}",
            "experts": f"{bytes_text(file.expert_bytes_total)}, {_types(experts)}",
            "other weights": f"{bytes_text(file.dense_bytes)}, {_types(file.dense_tensors)}",
            "longest context": f"{file.context_length} tokens",
            "chat template": _yes(file.chat_template is not None),
        }
        self._report.add("Model", model)

    def _devices(self) -> None:
        """Ask a worker: the driver of a device may end its process."""
        with WorkerClient() as client, _after(self._left_s, client.kill):
            found = client.request("devices", details=True).final()
        self._has_device = bool(found["devices"])
        add = self._report.add
        add("Machine", {"kernels of llama.cpp": found["kernels"].replace(" = 1 |", "")})
        for module in found["modules"]:
            add("Machine", {module["file"]: module["backend"] or module["trouble"]}, "backend ")
        add("Machine", {"devices": len(found["devices"])})
        for one in found["devices"]:
            free, total = bytes_text(one["free_bytes"]), bytes_text(one["total_bytes"])
            add(
                "Machine", {one["name"]: f"{one['description']}, {free} of {total} free"}, "device "
            )

    def _measure(self) -> None:
        """Measure drive, memory and processor."""
        path = self._file.path
        with tempfile.TemporaryDirectory(prefix="outrider-report-") as folder:
            result = Path(folder, "machine.json")
            self._run_child(measure_command(result, path if is_large(path) else None), folder)
            self._report.add("Machine", facts.speeds(load(result)))

    def _load(self) -> None:
        session, began_s = self._session, time.monotonic()
        with self._limited(self._left_s):
            session.start()
        self._cache = cache = CacheFacts.from_json(session.cache)
        n_context = int(session.model["context_length"])
        values = {name: value for name, value in asdict(cache).items() if value != ""}
        took = {"loaded in": f"{time.monotonic() - began_s:.1f} s", "runs": cache.runs}
        context = {"context_length": n_context, "pack": _yes(bool(cache.pack))}
        self._report.add("Engine", {**took, **values, **context})
        planned = kv_bytes(self._file, n_context, KvCache(cache.kv_type))
        self._report.add("Engine", {"context cache planned": bytes_text(planned)})
        said = said_of(self._file.path, n_context, self._left_s)
        if said is None:
            raise _Missing("llama.cpp did not tell what a context takes.")
        real = kv_bytes(with_sizes(self._file, said), n_context, KvCache(cache.kv_type))
        self._report.add("Engine", {"context cache of llama.cpp": bytes_text(real)})

    def _turns(self) -> None:
        """Hold three turns of a chat, and ask the last one again."""
        session = self._loaded()
        thinking = session.chat.thinking
        if thinking == "switch":
            session.settings = replace(session.settings, options=ChatOptions(thinking=False))
        off = ", switched off" if thinking == "switch" else ""
        self._report.add("Turns", {"thinking": thinking + off})
        messages: list[Json] = []
        n_held = 0
        for number, question in enumerate(_QUESTIONS, 1):
            asked = [*messages, {"role": "user", "content": question}]
            answer, n_held = self._turn(f"turn {number}, ", asked, n_held)
            messages = [*asked, answer.text.to_message()]
        answer, _ = self._turn("turn 3 again, ", messages[:-1], n_held)
        peak = bytes_text(answer.stats["peak_rss_bytes"])
        self._report.add("Turns", {"largest memory of the engine": peak})

    def _turn(self, name: str, messages: list[Json], n_held: int) -> tuple[Answer, int]:
        """Ask for an answer. Return it, and the tokens in the context after it.

        n_held: the tokens in the context before.
        """
        answer = self._answer(messages, self._left_s)
        stats = answer.stats
        n_prompt, n_reused, n_token = (stats[n] for n in ("n_prompt", "n_reused", "n_token"))
        again = min(n_prompt - n_reused, max(n_held - n_reused, 0))
        turn = {
            "prompt": f"{n_prompt} tokens",
            "context before": f"{n_held} tokens",
            "reused": f"{n_reused} tokens",
            "read": f"{n_prompt - n_reused} tokens",
            "read again": f"{again} tokens at most",
            "first token": f"{stats['ttft_s']:.3f} s",
            "answer": f"{n_token} tokens, {answer.reason}",
            "decoding": f"{stats['tokens_per_s'] or 0:.2f} token/s",
        }
        self._report.add("Turns", turn, name)
        return answer, n_prompt + n_token

    def _speeds(self) -> None:
        """Measure decoding with the method in force and with a reactive cache, at two rates."""
        session, cache = self._loaded(), self._cache
        assert cache is not None
        half = max(cache.rate / 2, cache.min_rate)
        methods = dict.fromkeys((cache.asked_method, "lru"))
        ways = [("rate in force", cache.rate, name) for name in methods]
        if cache.mode == "plain":
            ways = [("rate in force", 1.0, cache.asked_method)]  # no method has anything to do
        if half < cache.rate:
            ways += [("half the rate", half, name) for name in methods]
        for i, (where, rate, method) in enumerate(ways):
            name = f"{where}, {method}, "
            try:
                session.decide(cache_rate=rate, method=method)
                left_s = self._left_s / (len(ways) - i)
                answer = self._answer([{"role": "user", "content": _STORY}], left_s)
                rate = CacheFacts.from_json(session.cache).rate
                self._report.add("Speed", {"cache rate": f"{rate:.4f}", **_costs(answer)}, name)
            except (_Missing, RequestFailed) as error:
                self._report.lacks("Speed", error, name)

    def _stock(self) -> None:
        """Compare logits with stock llama.cpp's, also on devices if there are any."""
        self._session.close()
        if not self._file.is_moe:
            words = "A dense model runs in stock llama.cpp; nothing is to be compared."
            self._report.add("Stock llama.cpp", {"rows": words})
            return
        cache = self._cache
        rate = max(min(_RATE, cache.rate / 2), cache.min_rate) if cache is not None else 0.0
        devices = ["auto", "cpu"] if self._has_device else ["cpu"]
        for i, device in enumerate(devices):
            try:
                self._compare(device, rate, self._left_s / (len(devices) - i))
            except _Missing as error:
                self._report.lacks("Stock llama.cpp", error, f"{device}, ")

    def _compare(self, device: str, rate: float, limit_s: float) -> None:
        """Have `outrider verify` compare with stock, which gets half of the time."""
        words = ["verify", str(self._file.path), "--json", "--tokens", str(_N_ROW)]
        words += ["--rates", str(rate), "--methods", "promoe", "--device", device]
        words += ["--seconds", f"{0.4 * limit_s:.1f}"]
        with tempfile.TemporaryDirectory(prefix="outrider-report-") as folder:
            command = children.command("backend.cli", *words)
            (found,) = json.loads(self._run_child(command, folder, limit_s))["results"]
        n_row, is_same = found["n_position"], found["identical"]
        self._n_row += n_row
        self._differs |= not is_same
        compared = {
            "rows": n_row,
            "method": found["method"],
            "cache rate": f"{found['rate']:.4f}",
            "experts": _shares(found["hits"], found["late"], found["misses"]),
            "result": "identical" if is_same else "different",
        }
        self._report.add("Stock llama.cpp", compared, f"{device}, ")
        if not is_same:
            first, largest = found["first_position"], found["largest_difference"]
            where = f"{found['n_different']} of {found['n_value']} values, from row {first} on"
            difference = {"difference": f"{where}, by up to {largest:.3g}"}
            self._report.add("Stock llama.cpp", difference, f"{device}, ")
        if n_row < _N_ROW:
            raise _Missing(f"There was time for {n_row} of {_N_ROW} rows.")

    # Helpers of the parts

    @property
    def _left_s(self) -> float:
        return max(self._until_s - time.monotonic(), 0.1)

    def _loaded(self) -> Session:
        if self._cache is None:
            raise _Missing("The model could not be loaded.")
        return self._session

    def _answer(self, messages: list[Json], limit_s: float) -> Answer:
        """Ask for an answer. Raises _Missing after limit_s, and RequestFailed."""
        with self._limited(limit_s):
            answer = self._session.answer(messages, None)
            if answer.fault:
                raise RequestFailed(answer.fault)
        return answer

    @contextlib.contextmanager
    def _limited(self, limit_s: float) -> Iterator[None]:
        """Stop a load or an answer after limit_s. Then raise _Missing."""
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._session.stop()

        with _after(limit_s, stop), _after(limit_s + _GRACE_S, self._session.kill):
            try:
                yield
            except (RequestFailed, WorkerDied):
                if not late.is_set():
                    raise
        if late.is_set():
            raise _Missing(f"It did not end within {limit_s:.0f} s.")

    def _run_child(self, command: Sequence[str], folder: str, limit_s: float = 0.0) -> bytes:
        """Return what a command writes. folder: for its temporary files. Raises _Missing.

        limit_s: by default until the end of the part.
        """
        limit_s = limit_s or self._left_s
        env = {**os.environ, "TMPDIR": folder}
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s, env=env
            )
        except subprocess.TimeoutExpired:
            raise _Missing(f"It did not end within {limit_s:.0f} s.") from None
        said = done.stderr.decode(errors="replace").strip().splitlines()
        if done.returncode != 0 and not done.stdout:
            raise _Missing(said[-1] if said else f"It ended with status {done.returncode}.")
        return done.stdout


@contextlib.contextmanager
def _after(limit_s: float, end: Callable[[], None]) -> Iterator[None]:
    """Call `end` from a thread if the body takes longer than limit_s."""
    timer = faults.timer("time of a part", limit_s, end, faults.no_place)
    try:
        yield
    finally:
        timer.cancel()


def _costs(answer: Answer) -> dict[str, str]:
    """Return the figures of the decoded tokens, by name."""
    tokens, stats = answer.stats["tokens"], answer.stats

    def total(name: str) -> float:
        return float(sum(token[name] for token in tokens))

    all_s = total("compute_s") + total("stall_s") + total("other_s")
    return {
        "decoding": f"{stats['tokens_per_s'] or 0:.2f} token/s",
        "tokens": str(len(tokens)),
        "experts": _shares(total("hits"), total("late"), total("misses")),
        "stall": f"{100 * total('stall_s') / (all_s or 1):.1f} % of the time",
        "read": bytes_text(stats["bytes_read"]),
        "first token": f"{stats['ttft_s']:.3f} s",
    }


def _shares(hits: float, late: float, misses: float) -> str:
    n = hits + late + misses
    if not n:
        return "all in memory"
    return (
        f"{100 * hits / n:.1f} % hits, {100 * late / n:.1f} % late, {100 * misses / n:.1f} % missed"
    )


def _types(tensors: Sequence[Any]) -> str:
    return " ".join(sorted({tensor.type_name for tensor in tensors}))


def _yes(value: bool) -> str:
    return "yes" if value else "no"
