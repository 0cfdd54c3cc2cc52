"""Damaged files that Outrider keeps: chats, states, settings, packs, predictors, traces, lists."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
from asking import of_text, read
from benchmarks.damaged_chats import fill, use
from factory import make_tiny
from test_kept_files import VALUES
from test_trace import make_trace

from app.settings import settings
from app.settings.settings import Settings
from attack.area import Finding
from attack.gguf_mutations import damage
from backend.downloads.manager import Downloads
from backend.engine.engine import Engine
from backend.engine.kept_states import KeptStates
from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import ModelFile, read_model
from backend.library.facts import FactsCache
from backend.library.history import History
from backend.packs import write as packs
from backend.protocol.settings import EngineConfig, Sampling
from backend.traces.container import ContainerError
from backend.traces.reading import read_trace
from backend.weights import file as weights

_kept: dict[str, bytes] = {}
_model: list[ModelFile] = []
_states: list[Path] = []  # the folder of a conversation's states
_tokens: list[int] = []  # of the conversation
_rows: dict[int, bytes] = {}  # the bits of its last logits, by the tokens read from the drive
_CONFIG = EngineConfig(cache_rate=0.5, n_thread=1, context_length=512)
_parts: dict[str, bytes] = {}  # the conversation's files: "1" and "2" are its pieces
_SIZES = weights.PredictorSizes(n_layer=3, n_expert=8, n_expert_used=2, n_embd=4)


def prepare_states(folder: Path) -> None:
    """Keep a conversation of two pieces, and note its logits with 2, 1 and 0 of them."""
    if _parts:
        return
    prepare(folder)
    own = folder / f"states-{os.getpid()}"
    own.mkdir()
    engine = Engine.open(_model[0].path, _CONFIG)
    engine.keep_in(own / "states")
    text = "it was one of the words that " * 45
    list(engine.answer(of_text(text, Sampling(temperature=0), 8, owner="chat")))
    while engine.keep():
        pass
    _tokens.extend(engine.passes.tokens)
    assert engine.passes.keeping is not None
    root, n_piece = engine.passes.keeping.root(), engine.loaded.context.n_piece
    engine.close()
    states = KeptStates(own / "states")
    pieces = states.find(root, _tokens, n_piece)
    states.close()
    assert [piece.end for piece in pieces] == [n_piece, len(_tokens)]
    _parts.update((str(i), piece.path.read_bytes()) for i, piece in enumerate(pieces, 1))
    _parts["experts"] = (own / "states" / "chat" / "experts.used").read_bytes()
    _states.append(own / "states")
    folder = shutil.copytree(own / "states", own / "fewer")
    for gone in (*reversed(pieces), None):
        _rows.update([_logits(folder)])
        if gone:
            (folder / "chat" / gone.path.name).unlink()
    assert sorted(_rows) == [0, n_piece, len(_tokens) - 1]


def prepare(folder: Path) -> None:
    """Make a sound file of each kind."""
    if _kept:
        return
    own = folder / f"files-{os.getpid()}"
    own.mkdir()
    _kept["chats"] = fill(own / "chats.db")
    _model.append(read_model(make_tiny("qwen3moe", "Q8_0", own / "m.gguf", n_layer=2, n_expert=8)))
    _kept["pack"] = packs.write(_model[0], "file", own / "m.pack").path.read_bytes()
    make_trace().write(own / "t.trace")
    _kept["trace"] = (own / "t.trace").read_bytes()
    one = np.ones((6, 4), np.float32)
    arrays = {"l0.s2.w1": one, "l0.s2.b1": one[:, 0], "l0.s2.w2": np.ones((8, 6), np.float32)}
    made = weights.PredictorWeights("learned", _SIZES, arrays, {"activation": 1})
    weights.write(own / "p", "model", made, {"w1": "q4"})
    _kept["predictor"] = (own / "p").read_bytes()
    _kept["settings"] = json.dumps(asdict(Settings())).encode()
    inner = {"n_slot": 1, "tokens_per_s": 1.0, "at_s": 1.0}
    lists = {"format": 1, "folders": ["/x"], "used": {"m": 1.0}, "measured": {"m": inner}}
    _kept["library"] = json.dumps(lists).encode()
    file = {"name": "m.gguf", "url": "http://x/m.gguf", "size_bytes": 9, "sha256": "", "tag": ""}
    job = {"source": "a/b", "name": "m", "folder": "/x", "files": [file], "state": "paused"}
    _kept["downloads"] = json.dumps({"format": 1, "folder": "/x", "downloads": [job]}).encode()
    Facts = FactsCache(own / "facts.json", 512)
    Facts.facts([_model[0].path], [FileIdentity.of(_model[0].path).stamp])
    Facts.save()
    _kept["facts"] = (own / "facts.json").read_bytes()


def attack(seed: int, folder: Path) -> str:
    """Damage a kept file and use it as the program does: it is used, or a sentence says why not."""
    chance = random.Random(f"file {seed}")
    kind = sorted(_kept)[seed % len(_kept)]
    data = _kept[kind]
    if kind == "chats" or chance.random() < 0.7:
        data = damage(data, chance)
    else:
        data = _other_values(data, chance)
    path = folder / {"chats": "chats.db"}.get(kind, "kept.json")
    path.write_bytes(data)
    return f"{kind}: {_USES[kind](path)}"


def _other_values(data: bytes, chance: random.Random) -> bytes:
    """Put another value into the JSON that begins the data, or damage what is no JSON."""
    try:
        whole = json.loads(data)
    except ValueError:
        return damage(data, chance)
    places = [(whole, key) for key in whole]
    while chance.random() < 0.6:
        holder, key = chance.choice(places)
        inner = holder[key]
        if isinstance(inner, dict | list) and inner:
            places = [(inner, k) for k in (inner if isinstance(inner, dict) else range(len(inner)))]
    holder, key = chance.choice(places)
    holder[key] = "HERE"
    return json.dumps(whole).replace('"HERE"', chance.choice(VALUES)).encode("utf-8", "replace")


def _logits(folder: Path) -> tuple[int, bytes]:
    """Go on with the conversation. Return the tokens read from the folder, and the logits' bits."""
    engine = Engine.open(_model[0].path, _CONFIG)
    try:
        engine.keep_in(folder)
        engine.warm("chat")
        while engine.keep():
            pass
        n_known = read(engine, _tokens)
        return n_known, engine.loaded.context.logits(1).tobytes()
    finally:
        engine.close()


def _other_header(data: bytes, chance: random.Random) -> bytes:
    """Put another value into the header of a state, whose checksum is right again."""
    n = struct.unpack_from("<I", data, 12)[0]
    header = _other_values(data[16 : 16 + n], chance)
    head = data[:12] + struct.pack("<I", len(header)) + header
    return head + struct.pack("<I", zlib.crc32(head)) + data[16 + n + 4 :]


def attack_state(seed: int, folder: Path) -> str:
    """Damage a state of a conversation and go on: it is read again, and the logits are the same."""
    chance = random.Random(f"state {seed}")
    name = sorted(_parts)[seed % len(_parts)]
    states = shutil.copytree(_states[0], folder / "states")
    (kept,) = (path for path in states.glob("chat/*") if path.read_bytes() == _parts[name])
    change = damage if chance.random() < 0.7 else _other_header
    kept.write_bytes(change(_parts[name], chance))
    n_known, row = _logits(states)
    if row != _rows.get(n_known):
        raise Finding(f"other logits with {n_known} tokens from the drive")
    return f"{name}: {n_known} tokens from the drive"


def _settings(path: Path) -> str:
    loaded, sentence = settings.load(path)
    require_sentence(sentence or "")
    require_sentence(settings.save(loaded, path) or "")
    return "set aside" if sentence else "used"


def _library(path: Path) -> str:
    history = History(path)
    require_sentence(history.trouble)
    return "set aside" if history.trouble else "used"


def _downloads(path: Path) -> str:
    downloads = Downloads(path, path.parent)
    require_sentence(downloads.trouble)
    return "set aside" if downloads.trouble else "used"


def _facts(path: Path) -> str:
    found = FactsCache(path, 512).facts([_model[0].path], [FileIdentity.of(_model[0].path).stamp])
    return "refused" if isinstance(found, str) else "used"


def _pack(path: Path) -> str:
    try:
        packs.check(packs.read(path, _model[0]))
    except packs.PackError as error:
        require_sentence(str(error))
        return "refused"
    if path.read_bytes() != _kept["pack"]:
        return "padding"  # only bytes that nobody reads may differ
    return "used"


def _trace(path: Path) -> str:
    return _container(lambda: read_trace(path))


def _predictor(path: Path) -> str:
    return _container(lambda: weights.read(path, "model", _SIZES))


def _container(read: Callable[[], object]) -> str:
    try:
        read()
    except ContainerError as error:
        require_sentence(str(error))
        return "refused"
    return "used"


def require_sentence(text: str) -> None:
    """Fail where a text is neither empty nor a plain sentence."""
    if text and (not text.endswith(".") or "\n" in text or "Traceback" in text):
        raise Finding(f"no sentence: {text!r}")


_USES: dict[str, Callable[[Path], str]] = {
    "chats": use,
    "settings": _settings,
    "library": _library,
    "downloads": _downloads,
    "facts": _facts,
    "pack": _pack,
    "trace": _trace,
    "predictor": _predictor,
}
