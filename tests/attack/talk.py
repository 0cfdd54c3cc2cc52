"""Hostile templates, frames of the pipe, requests to the server, and control groups."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
from benchmarks.server_requests import Mutator, call, fault
from chat_formats import mutant
from fake_engine import FakeEngine
from served import KEY

from attack.area import Finding
from attack.gguf_mutations import WHOLE, damage
from backend.llama.api import LlamaError
from backend.llama.chat_format import ChatFormat
from backend.protocol import messages
from backend.protocol.connection import Connection
from backend.protocol.errors import RequestError
from backend.server.application import make_application
from backend.server.engine_host import EngineThread
from backend.server.turns import Turns
from backend.system import memory

_CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
_SENTENCE = re.compile(r"The chat template of m [^\n]+\.")
_app: list[Any] = []


def attack_template(seed: int, _folder: Path) -> str:
    """Render a damaged or hostile chat template."""
    chat_format = ChatFormat("m", mutant(seed), "<s>", "</s>")
    try:
        chat_format.render(_CHAT)
    except LlamaError as error:
        if not _SENTENCE.fullmatch(str(error)):
            raise Finding(f"no sentence: {str(error)!r}") from None
        return "too slow" if "too long" in str(error) else "refused"
    finally:
        chat_format.close()
    return "rendered"


def prepare_server(_folder: Path) -> None:
    """Make the application of the server, over an engine that is made up."""
    if not _app:
        logging.disable()
        _app.append(make_application(Turns(EngineThread(FakeEngine())), KEY))


def attack_request(seed: int, _folder: Path) -> str:
    """Send a mutated request to the server's application."""
    request = Mutator(seed).request()
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        status, body = asyncio.run(call(_app[0], request))
    if trouble := fault(*request[:2], status, body) or errors.getvalue():
        raise Finding(f"{trouble}\n{request}")
    return str(status)


_REPLIES: list[dict[str, Any]] = [
    {"type": "hello", "version": messages.VERSION, "pid": 1, "engine": "0", "llama_cpp": "0"},
    {"type": "loading", "id": 1, "fraction": 0.5, "stage": "weights"},
    {"type": "pong", "id": 2, "n_token": 3},
    {"type": "error", "id": 1, "message": "It failed."},
    {"type": "unloaded", "id": 1},
    {"type": "counted", "id": 1, "n_token": 5},
    {"type": "waits", "id": 1, "n_before": 2},
    {"type": "loaded", "id": 1, "model": {}, "cache": {}},
    {"type": "devices", "id": 1, "devices": [{"name": "a", "description": "b"}]},
    {"type": "residency", "id": 1, "n_layer": 1, "n_expert": 1, "cells": "AA=="},
]
_ASKS: list[dict[str, Any]] = [
    {"type": "hello", "version": messages.VERSION},
    {"type": "load", "id": 1, "path": "/m", "cache_rate": 0.5, "method": "lru",
     "context_length": 64, "n_thread": 1, "device": "cpu"},
    {"type": "generate", "id": 2, "messages": [{"role": "user", "content": "a"}], "sampling": {},
     "max_tokens": 3},
    {"type": "stop", "id": 2},
    {"type": "serve", "id": 3, "on": True, "port": 0, "key": "k"},
    {"type": "watch", "scope": "all"},
]  # fmt: skip
_ODD: list[Any] = [None, True, "", "a", "\ud800", [], {}, [[]], {"type": 1}, 0.5, -0.0, 1e308]


def attack_frame(seed: int, _folder: Path) -> str:
    """Send mutated frames to both ends of the pipe: a sentence, or the message is understood."""
    chance = random.Random(f"frame {seed}")
    stream = bytearray(messages.encode(_REPLIES[0]) if chance.random() < 0.8 else b"")
    asks = bytearray()
    for _ in range(chance.randrange(1, 6)):
        stream += _frame(chance.choice(_REPLIES), chance)
        asks += _frame(chance.choice(_ASKS), chance)
    connection, ended = Connection(0.0), "open"
    connection.request("load", 0.0, path="/m")
    at = 0
    while at < len(stream):
        step = chance.choice((1, 3, 100, 1 << 20))
        for event in connection.receive(bytes(stream[at : at + step]), 1.0):
            ended = "died" if event.kind == "died" else ended
        at += step
    connection.tick(1e6)
    decoder = messages.Decoder()
    try:
        for message in decoder.feed(bytes(asks)):
            try:
                messages.check_request(message)
            except RequestError as error:
                if not str(error).endswith("."):
                    raise Finding(f"no sentence: {str(error)!r}") from None
    except messages.ProtocolError as error:
        if not str(error).endswith("."):
            raise Finding(f"no sentence: {str(error)!r}") from None
    return ended


def _frame(message: dict[str, Any], chance: random.Random) -> bytes:
    changed = dict(message)
    for _ in range(chance.choice((0, 1, 1, 2))):
        key = chance.choice(list(changed) or ["x"])
        changed[key] = chance.choice([*_ODD, *WHOLE])
        if chance.random() < 0.2:
            del changed[key]
    body = json.dumps(changed).encode()
    frame = len(body).to_bytes(4, "big") + body
    return damage(frame, chance) if chance.random() < 0.3 else frame


def attack_groups(seed: int, folder: Path) -> str:
    """Read limits of memory and processors from made-up control groups of both versions."""
    chance = random.Random(f"groups {seed}")
    proc, mount = folder / "proc", folder / "sys fs"
    (proc / "self").mkdir(parents=True)
    total = chance.choice((1 << 20, 1 << 34))
    version = chance.choice((1, 2))
    group = chance.choice(("/", "/a", "/a/b", "/../c", "/a b", "/x" * 50))
    inside = mount / group.strip("/") if ".." not in group else mount
    for path in (mount, inside):
        path.mkdir(parents=True, exist_ok=True)
        for name in ("memory.max", "memory.current", "memory.stat", "cpu.max", "memory.pressure",
                     "memory.limit_in_bytes", "memory.usage_in_bytes", "cpu.cfs_quota_us",
                     "cpu.cfs_period_us"):  # fmt: skip
            if chance.random() < 0.7 and (version == 2) == ("_" not in name):
                (path / name).write_bytes(_value(name, chance))
    escaped = str(mount).replace(" ", "\\040")
    kind = "cgroup2 cgroup rw" if version == 2 else "cgroup cgroup rw,memory,cpu"
    mountinfo = f"36 35 0:1 / {escaped} rw - {kind}\n".encode()
    own = (f"0::{group}\n" if version == 2 else f"4:memory,cpu:{group}\n").encode()
    (proc / "self" / "mountinfo").write_bytes(_maybe(mountinfo, chance))
    (proc / "self" / "cgroup").write_bytes(_maybe(own, chance))
    machine = SimpleNamespace(total=total, available=total // 2)
    with mock.patch.object(psutil, "virtual_memory", return_value=machine):
        facts = memory.memory_facts(proc)
    if not 0 <= facts.available_bytes <= total or not 0 <= facts.total_bytes <= total:
        raise Finding(f"{facts} of {total}")
    if memory.physical_cores(proc) < 1 or not 0 <= memory.stalled_share(proc) <= 1:
        raise Finding("no core, or a stall that is no share")
    return f"version {version}, {facts.limited_by}"


def _value(name: str, chance: random.Random) -> bytes:
    number = chance.choice([*WHOLE, 1 << 28, 1 << 33])
    sound = {
        "memory.stat": f"anon 5\ninactive_file {number}\ntotal_active_file 7\n",
        "cpu.max": f"{chance.choice(('max', number))} 100000",
        "memory.pressure": f"some avg10={chance.choice(FRACTION)} avg60=0.00 total=0\n",
    }.get(name, f"{chance.choice(('max', number, number))}\n")
    return _maybe(sound.encode(), chance)


FRACTION = ("0.00", "99.99", "100.00", "nan", "-1", "1e400", "")


def _maybe(data: bytes, chance: random.Random) -> bytes:
    return damage(data, chance) if chance.random() < 0.2 else data
