"""Writes and reads of Outrider, to be killed in the middle or to meet faults of the system.

`act` runs in a child and acknowledges what is done. `judge` runs afterwards, without faults, and
requires that all that was acknowledged is there, and that the files can be used.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from asking import of_text
from benchmarks.damaged_chats import fill
from factory import make_tiny
from fake_hub import FakeHub
from test_trace import make_trace

from app.settings import settings
from app.settings.settings import Settings
from app.state.conversation import Message
from app.store.chats import ChatStore
from app.store.schema import StoreError
from attack.area import Finding
from attack.files import require_sentence
from backend.downloads import job as job_module
from backend.downloads import transfer as transfer_module
from backend.downloads.address import parse
from backend.downloads.errors import DownloadError
from backend.downloads.hub import look_up
from backend.downloads.job import INCOMPLETE, Job
from backend.downloads.web import new_client
from backend.engine.engine import Engine
from backend.engine.kept_states import KeptStates, root_of
from backend.gguf.model_file import ModelFile, ModelFileError, read_model
from backend.llama.api import LlamaError
from backend.packs import write as packs
from backend.protocol.errors import EngineError
from backend.protocol.settings import EngineConfig, Sampling
from backend.server.batch_file import AnswerFile, BatchError
from backend.traces.container import ContainerError
from backend.traces.reading import read_trace

Say = Callable[[str], None]
"""Acknowledges something to the parent."""


class SaidSo(Exception):
    """The program reported a failure in a sentence."""


@dataclass(frozen=True)
class Scenario:
    """Reads or writes of the program. prepare: makes the files that `act` finds in the folder."""

    name: str
    prepare: Callable[[Path], None]
    act: Callable[[Path, Say, random.Random], None]
    judge: Callable[[Path, list[str]], None]


_kept: dict[str, bytes] = {}
_models: dict[str, ModelFile] = {}
_hub: list[str] = []
_DATA = random.Random(1).randbytes(300_000)
_TOKENS: dict[str, list[int]] = {}


def prepare(folder: Path) -> None:
    """Make what all cases read: a file of chats, a model and its pack."""
    if _kept:
        return
    own = folder / f"scenarios-{os.getpid()}"
    own.mkdir()
    _kept["chats"] = fill(own / "chats.db")
    path = make_tiny("qwen3moe", "Q8_0", own / "m.gguf", n_layer=2, n_expert=8)
    _models["m"] = read_model(path)
    _kept["pack"] = packs.write(_models["m"], "file", own / "m.pack").path.read_bytes()
    with contextlib.suppress(FileNotFoundError):
        (own / "tokens").unlink()
    child = os.fork()  # llama.cpp's threads stay out of this process, which forks again
    if child == 0:
        tokens = _answer(path)
        (own / "tokens").write_text(" ".join(map(str, tokens)))
        os._exit(0)
    os.waitpid(child, 0)
    _TOKENS["m"] = [int(t) for t in (own / "tokens").read_text().split()]


def prepare_hub(folder: Path) -> None:
    """Start a hub in a process of its own, which ends with this one."""
    prepare(folder)
    if _hub:
        return
    read, write = os.pipe()
    if os.fork() == 0:
        from backend.system.pipes import die_with_parent

        die_with_parent()
        hub = FakeHub()
        hub.repositories["a/b"] = {"m.gguf": _DATA}
        with hub:
            os.write(write, hub.url.encode())
            os.close(write)
            threading.Event().wait()
    os.close(write)
    _hub.append(os.read(read, 200).decode())
    os.environ.update(HF_ENDPOINT=_hub[0], NO_PROXY="127.0.0.1", HF_TOKEN_PATH="/nonexistent/t")
    job_module.MARGIN_BYTES = 0
    transfer_module.WAIT_S = 0.01


def _sentence(error: Exception) -> str:
    """Return what the worker and the command line say of an error."""
    return f"{error.strerror}." if isinstance(error, OSError) else str(error)


# Chats


def _begin_chats(folder: Path) -> None:
    (folder / "chats.db").write_bytes(_kept["chats"])


def _act_chats(folder: Path, say: Say, chance: random.Random) -> None:
    _write_chats(folder / "chats.db", say, chance)


def _act_new_chats(folder: Path, say: Say, chance: random.Random) -> None:
    _write_chats(folder / "data" / "outrider" / "chats.db", say, chance)


def _write_chats(path: Path, say: Say, chance: random.Random) -> None:
    store = ChatStore.open(path)
    if store.trouble:
        raise SaidSo(store.trouble)
    try:
        for number in range(chance.randrange(1, 30)):
            chat_id = store.new_chat(f"new {number}")
            say(f"chat {chat_id} new {number}")
            message = Message("user", f"words {number} " * chance.choice((1, 500)))
            store.add(chat_id, 0, message)
            digest = hashlib.sha256(message.content.encode()).hexdigest()
            say(f"message {message.id} {digest}")
    except StoreError as error:
        raise SaidSo(str(error)) from None
    finally:
        store.close()


def _judge_chats(folder: Path, said: list[str]) -> None:
    _read_chats(folder / "chats.db", {f"chat {n}" for n in range(3)}, said)


def _judge_new_chats(folder: Path, said: list[str]) -> None:
    _read_chats(folder / "data" / "outrider" / "chats.db", set(), said)


def _read_chats(path: Path, before: set[str], said: list[str]) -> None:
    store = ChatStore.open(path)
    try:
        if store.trouble:
            raise Finding(f"the chats were set aside: {store.trouble}")
        titles = {row.id: row.title for row in store.chats()}
        with store.reading():
            (sound,) = store.connection.execute("PRAGMA integrity_check").fetchone()
            messages = dict(store.connection.execute("SELECT id, content FROM message"))
        if sound != "ok" or not before <= set(titles.values()):
            raise Finding(f"the chats are not whole: {sound}, {titles}")
        for line in said:
            kind, number, rest = line.split(" ", 2)
            if kind == "chat" and titles.get(int(number)) != rest:
                raise Finding(f"acknowledged and lost: {line}")
            found = hashlib.sha256(messages.get(int(number), "").encode()).hexdigest()
            if kind == "message" and found != rest:
                raise Finding(f"acknowledged and lost: {line}")
    finally:
        store.close()


# Settings


def _begin_settings(folder: Path) -> None:
    settings.save(Settings(open_chat=1), folder / "settings.json")


def _act_settings(folder: Path, say: Say, chance: random.Random) -> None:
    for number in range(2, chance.randrange(3, 60)):
        trouble = settings.save(Settings(open_chat=number), folder / "settings.json")
        if trouble:
            raise SaidSo(trouble)
        say(str(number))


def _judge_settings(folder: Path, said: list[str]) -> None:
    found, trouble = settings.load(folder / "settings.json")
    last = int(said[-1]) if said else 1
    if trouble or found.open_chat not in (last, last + 1):
        raise Finding(f"the settings are not the last ones: {trouble}, {found.open_chat}, {last}")


# Packs


def _begin_pack(_folder: Path) -> None:
    pass


def _act_pack(folder: Path, say: Say, _chance: random.Random) -> None:
    path = folder / "m.pack"
    try:
        packs.write(_models["m"], "file", path)
        packs.check(packs.read(path, _models["m"]))
    except (packs.PackError, OSError) as error:
        raise SaidSo(_sentence(error)) from None
    say("written")


def _judge_pack(folder: Path, said: list[str]) -> None:
    path = folder / "m.pack"
    if said and not path.exists():
        raise Finding("a written pack is gone")
    if path.exists() and path.read_bytes() != _kept["pack"]:
        raise Finding("a pack is wrong")
    if packs.write(_models["m"], "file", path).path.read_bytes() != _kept["pack"]:
        raise Finding("a pack that goes on is wrong")


def _begin_stripes(folder: Path) -> None:
    for name in ("one", "two"):
        (folder / name).mkdir()


def _write_stripes(folder: Path) -> None:
    places = [folder / "one", folder / "two"]
    packs.write(_models["m"], "file", places[0] / "m.pack", folders=places)


def _act_stripes(folder: Path, say: Say, _chance: random.Random) -> None:
    _write_stripes(folder)
    say("written")


def _judge_stripes(folder: Path, said: list[str]) -> None:
    path = folder / "one" / "m.pack"
    if said and not path.exists():
        raise Finding("a written pack is gone")
    if path.exists():
        packs.check(packs.read(path, _models["m"]))
    _write_stripes(folder)
    packs.check(packs.read(path, _models["m"]))


# Traces (predictors are written and read in the same way)


def _act_trace(folder: Path, say: Say, chance: random.Random) -> None:
    path = folder / "t.trace"
    try:
        for seed in range(chance.randrange(1, 6)):
            trace = make_trace(seed)
            trace.write(path)
            say(str(seed))
            if read_trace(path).tokens.tolist() != trace.tokens.tolist():
                raise Finding("a trace was read otherwise than written")
    except ContainerError as error:
        raise SaidSo(str(error)) from None


def _judge_trace(folder: Path, said: list[str]) -> None:
    path = folder / "t.trace"
    if not path.exists():
        if said:
            raise Finding("a written trace is gone")
        return
    last = int(said[-1]) if said else -1
    tokens = read_trace(path).tokens.tolist()
    if tokens not in (make_trace(last).tokens.tolist() if last >= 0 else [],
                      make_trace(last + 1).tokens.tolist()):  # fmt: skip
        raise Finding("a trace is neither the last one nor the next")


# Downloads


def _job(folder: Path) -> Job:
    with new_client() as client:
        offers = look_up(parse("a/b"), client).offers
    return Job.of(offers[0], "a/b", folder)


def _fetch(job: Job) -> None:
    try:
        with new_client(stall_s=2.0) as client:
            job.run(client, threading.Event(), lambda _n: None)
    except DownloadError as error:
        raise SaidSo(str(error)) from None


def _without_sum(job: Job) -> Job:
    """Return the download as of a server that states no checksum."""
    tag = f'"{hashlib.sha256(_DATA).hexdigest()}"'
    return replace(job, files=tuple(replace(file, sha256="", tag=tag) for file in job.files))


def _act_download(folder: Path, say: Say, _chance: random.Random) -> None:
    _fetch(_job(folder))
    say("done")


def _judge_download(folder: Path, said: list[str]) -> None:
    _judge_job(_job(folder), said)


def _act_no_sum(folder: Path, say: Say, _chance: random.Random) -> None:
    _fetch(_without_sum(_job(folder)))
    say("done")


def _judge_no_sum(folder: Path, said: list[str]) -> None:
    _judge_job(_without_sum(_job(folder)), said)


def _judge_job(job: Job, said: list[str]) -> None:
    target = job.target
    if target.exists() and target.read_bytes() != _DATA:
        raise Finding("a wrong file counts as downloaded")
    if said and not target.exists():
        raise Finding("a downloaded file is gone")
    _fetch(job)
    if target.read_bytes() != _DATA or (target.parent / INCOMPLETE).exists():
        raise Finding("a download that goes on is wrong, or leaves files behind")


# A batch's answers


def _line(number: int) -> dict[str, str]:
    words = f"answer {number} " * (1 + 97 * number % 400)
    return {"id": str(number), "digest": f"d{number}", "answer": words}


def _act_answers(folder: Path, say: Say, chance: random.Random) -> None:
    path = folder / "out.jsonl"
    if chance.random() < 0.5:
        path.touch()  # an earlier run was killed here
    try:
        for first in (0, 10):
            out = AnswerFile(path)
            for number in range(first, first + 10):
                out.add(_line(number))
                say(str(number))
            out.close()
    except BatchError as error:
        raise SaidSo(str(error)) from None


def _judge_answers(folder: Path, said: list[str]) -> None:
    path = folder / "out.jsonl"
    out = AnswerFile(path)
    if lost := set(said) - set(out.done):
        raise Finding(f"answers are gone: {sorted(lost)}")
    for number in range(20):
        if str(number) not in out.done:
            out.add(_line(number))
    out.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    if sorted(lines, key=lambda line: int(line["id"])) != [_line(number) for number in range(20)]:
        raise Finding("an answer is damaged, or is there twice")


# States of conversations

_ROOT = root_of(["m"])
_N_PIECE = 8


def _tokens_of(number: int) -> list[int]:
    return [*range(12), *(1000 * number + i for i in range(10))]


def _state_of(parent: str, tokens: list[int]) -> bytearray:
    return bytearray(random.Random(f"{parent} {tokens}").randbytes(20_000))


def _keep_states(folder: Path) -> None:
    kept = KeptStates(folder / "states")
    try:
        for number in range(4):
            tokens, owner = _tokens_of(number), f"chat{number % 2}"
            for piece in kept.missing(owner, _ROOT, tokens, _N_PIECE)[0]:
                state = _state_of(piece.parent, list(piece.tokens))
                kept.write(piece, state, lambda: True)
                if not kept.wait():
                    raise SaidSo("A state was not kept.")
    finally:
        kept.close()


def _act_states(folder: Path, say: Say, _chance: random.Random) -> None:
    _keep_states(folder)
    kept = KeptStates(folder / "states")
    try:
        kept.forget("chat0")
        say("forgotten")
    finally:
        kept.close()


def _judge_states(folder: Path, said: list[str]) -> None:
    if said and (folder / "states" / "chat0").exists():
        raise Finding("a forgotten state is back")
    for goes_on in (False, True):
        if goes_on:
            _keep_states(folder)
        kept = KeptStates(folder / "states")
        try:
            for number in range(4):
                tokens, n_token = _tokens_of(number), 0
                for piece, state in kept.states(kept.find(_ROOT, tokens, _N_PIECE)):
                    n_token += piece.n
                    if state != _state_of(piece.parent, list(piece.tokens)):
                        raise Finding("a damaged state was accepted")
                if goes_on and n_token < len(tokens):
                    raise Finding(f"only {n_token} of {len(tokens)} tokens have states")
        finally:
            kept.close()


# Answers


def _answer(path: Path) -> list[int]:
    config = EngineConfig(cache_rate=0.25, n_thread=1, context_length=64, pack=False)
    engine = Engine.open(path, config)
    return [p.token_id for p in engine.answer(of_text("the of and", Sampling(temperature=0), 4))]


def _act_answer(_folder: Path, say: Say, _chance: random.Random) -> None:
    try:
        tokens = _answer(_models["m"].path)
    except (EngineError, LlamaError, ModelFileError, OSError) as error:
        raise SaidSo(_sentence(error)) from None
    say(" ".join(map(str, tokens)))


def _judge_answer(_folder: Path, said: list[str]) -> None:
    if said and [int(token) for token in said[0].split()] != _TOKENS["m"]:
        raise Finding(f"another answer: {said[0]} instead of {_TOKENS['m']}")


def _nothing(_folder: Path) -> None:
    pass


CHATS = Scenario("chats", _begin_chats, _act_chats, _judge_chats)
NEW_CHATS = Scenario("new-chats", _nothing, _act_new_chats, _judge_new_chats)
SETTINGS = Scenario("settings", _begin_settings, _act_settings, _judge_settings)
PACK = Scenario("pack", _begin_pack, _act_pack, _judge_pack)
STRIPES = Scenario("stripes", _begin_stripes, _act_stripes, _judge_stripes)
TRACE = Scenario("trace", _nothing, _act_trace, _judge_trace)
DOWNLOAD = Scenario("download", _nothing, _act_download, _judge_download)
NO_SUM = Scenario("no-sum", _nothing, _act_no_sum, _judge_no_sum)
ANSWERS = Scenario("answers", _nothing, _act_answers, _judge_answers)
STATES = Scenario("states", _nothing, _act_states, _judge_states)
ANSWER = Scenario("answer", _nothing, _act_answer, _judge_answer)


def perform(
    scenario: Scenario,
    folder: Path,
    chance: random.Random,
    before: Callable[[], None] = lambda: None,
) -> int:
    """Act in a child. Return 0, or 1 after a sentence. Acknowledgements go to the file `acks`."""
    acks = os.open(folder / "acks", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(word: str) -> None:
        os.writev(acks, [word.encode() + b"\n"])  # faults.c leaves writev alone

    before()
    try:
        scenario.act(folder, say, chance)
    except SaidSo as error:
        require_sentence(str(error))
        return 1
    return 0


def acknowledged(folder: Path) -> list[str]:
    """Return what a child acknowledged."""
    path = folder / "acks"
    return path.read_text().splitlines() if path.exists() else []
