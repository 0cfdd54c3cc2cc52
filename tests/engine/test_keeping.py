"""States of conversations on the drive: exact, private, within their budget."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from asking import jointly, keep_all, of_text
from asking import read as read_tokens
from factory import make_tiny
from numpy.typing import NDArray
from oracle import Oracle, replayed
from reciter import make_reciter
from waiting import until

from backend.engine import keeping, kept_states
from backend.engine.engine import Engine, EngineError
from backend.engine.keeping import Keeping
from backend.engine.kept_states import DISK_SHARE, Hour, KeptStates, key_of, root_of
from backend.engine.own_answers import OwnAnswers
from backend.engine.runner import Runner
from backend.gguf import identity
from backend.gguf.model_file import read_model
from backend.library import digests
from backend.library.digests import pieces
from backend.llama.api import library_files
from backend.methods import cells
from backend.packs import write as pack
from backend.protocol.client import WorkerClient
from backend.protocol.request import Request
from backend.protocol.settings import EngineConfig, Sampling
from backend.system.paths import embedded_model

OpenEngine = Callable[..., Engine]

ARCHITECTURES = ("qwen3moe", "deepseek2", "gpt-oss", "llama4", "gemma4", "dense")
NOT_CUT = ("qwen3next", "lfm2moe", "nemotron_h_moe")
GREEDY = Sampling(temperature=0)
PROMPT = "it was one of the words that they had not said " * 30  # some 390 tokens
ROOT = root_of(["a model"])


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")

    def model(arch: str) -> Path:
        path = folder / f"{arch}.gguf"
        return path if path.exists() else make_tiny(arch, "Q8_0", path)

    return model


def keep(engine: Engine, owner: str, prompt: str = PROMPT, n: int = 8) -> list[int]:
    """Answer a prompt and keep the conversation. Return its tokens."""
    list(engine.answer(of_text(prompt, GREEDY, n, owner=owner)))
    keep_all(engine)
    return list(engine.passes.tokens)


def logits(engine: Engine, tokens: list[int]) -> tuple[int, NDArray[np.uint32]]:
    """Return the number of tokens that were not computed, and the bits of five tokens' logits."""
    n_known = read_tokens(engine, tokens)
    rows, tokens = [engine.loaded.context.logits(1)], list(tokens)
    for token in (5, 6, 7, 8):
        tokens.append(token)
        assert read_tokens(engine, tokens) == len(tokens) - 1
        rows.append(engine.loaded.context.logits(1))
    return n_known, np.array(rows).view(np.uint32)


@pytest.mark.parametrize(
    ("arch", "rate"),
    [*((arch, 0.25) for arch in (*ARCHITECTURES, *NOT_CUT)), ("qwen3moe", 1.0), ("lfm2moe", 1.0)],
)
def test_restored_logits_are_those_before_bit_by_bit(
    arch: str, rate: float, open_engine: OpenEngine, models: Callable[[str], Path], tmp_path: Path
) -> None:
    before, after = (open_engine(models(arch), cache_rate=rate) for _ in range(2))
    before.keep_in(tmp_path)
    tokens = keep(before, "chat-1")
    longer, branch = [*tokens, 1, 2, 3], [*tokens[:300], 9, 8, 7, 6]
    before.passes.keeping = None  # what follows comes from memory
    after.keep_in(tmp_path)
    n_known, expected = logits(before, longer)
    assert n_known == len(tokens)
    n_read, found = logits(after, longer)
    assert n_read == len(tokens) and np.array_equal(found, expected)

    # A branch shares the beginning only. What cannot be cut is computed again.
    before.forget()
    assert logits(before, tokens)[0] == 0
    after.forget()
    n_known, expected = logits(before, branch)
    n_read, found = logits(after, branch)
    assert n_read == n_known == (0 if arch in NOT_CUT else 300)
    if arch not in NOT_CUT:
        assert np.array_equal(found, expected)


def test_a_quantised_context_is_kept_as_it_is(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = embedded_model()
    sizes = {}
    for kv_type in ("f16", "q8_0"):
        folder = tmp_path / kv_type
        before, after = (open_engine(path, kv_type=kv_type) for _ in range(2))
        before.keep_in(folder)
        tokens = keep(before, "chat-1")
        before.passes.keeping = None
        after.keep_in(folder)
        longer = [*tokens, 1, 2, 3]
        (n_known, expected), (n_read, found) = logits(before, longer), logits(after, longer)
        assert n_read == n_known == len(tokens) and np.array_equal(found, expected)
        sizes[kv_type] = sum(file.stat().st_size for file in folder.glob("*/*"))
    assert sizes["q8_0"] < 0.8 * sizes["f16"]


def test_other_settings_and_models_read_the_prompt(
    open_engine: OpenEngine, models: Callable[[str], Path], tmp_path: Path
) -> None:
    engine = open_engine(models("qwen3moe"))
    engine.keep_in(tmp_path / "states")
    tokens = keep(engine, "chat-1")
    other = make_tiny("qwen3moe", "Q8_0", tmp_path / "other.gguf", seed=1)
    assert other.stat().st_size == models("qwen3moe").stat().st_size
    for path in (models("qwen3moe"), other):
        again = open_engine(path)
        again.keep_in(tmp_path / "states")
        assert read_tokens(again, tokens) == (len(tokens) - 1 if path != other else 0)


def another_attn_q(model: Path, path: Path) -> Path:
    """Write a copy with other weights in one matrix of attention: same header, same experts."""
    shutil.copyfile(model, path)
    tensor = next(t for t in read_model(path).tensors if t.name == "blk.1.attn_q.weight")
    with path.open("r+b") as file:
        file.seek(tensor.offset)
        data = file.read(tensor.n_bytes)
        half = len(data) // 34 // 2 * 34  # whole blocks of Q8_0
        file.seek(tensor.offset)
        file.write(data[half:] + data[:half])
    return path


@pytest.mark.parametrize("place", ["beside", "over", "in secret"])
def test_a_model_with_other_attention_has_its_own_states(
    place: str, open_engine: OpenEngine, models: Callable[[str], Path], tmp_path: Path
) -> None:
    """Its file lies elsewhere, or replaces the first one, or was written into it."""
    first = Path(shutil.copyfile(models("qwen3moe"), tmp_path / "m.gguf"))
    engine = open_engine(first)
    engine.keep_in(tmp_path / "states")
    tokens = keep(engine, "chat-1")
    engine.close()
    other = another_attn_q(first, tmp_path / "other.gguf")
    assert read_model(other).fingerprint == read_model(first).fingerprint
    before = first.stat()
    if place == "over":
        other = other.replace(first)
    elif place == "in secret":
        first.write_bytes(other.read_bytes())
        os.utime(first, ns=(before.st_atime_ns, before.st_mtime_ns))
        other = first
    for _ in range(2):
        again, alone = open_engine(other), open_engine(other)
        again.keep_in(tmp_path / "states")
        n_known, found = logits(again, tokens)
        _, expected = logits(alone, tokens)
        assert n_known == 0 and np.array_equal(found, expected)
        keep_all(again)  # its digest is known the second time


@pytest.mark.parametrize(
    ("arch", "first", "second"),
    [
        ("qwen3moe", {}, {"n_thread": 2}),  # each sums a part of the attention to 512 cells
        ("qwen3moe", {"cache_rate": 0.25}, {"cache_rate": 1.0}),  # repacked weights
        ("", {}, {"kv_type": "q8_0"}),
    ],
)
def test_what_decides_the_last_bits_is_part_of_the_key(
    arch: str,
    first: dict[str, Any],
    second: dict[str, Any],
    open_engine: OpenEngine,
    models: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    path = models(arch) if arch else embedded_model()
    engine = open_engine(path, **first)
    engine.keep_in(tmp_path)
    tokens = keep(engine, "chat-1")
    for settings, n in ((second, 0), (first, len(tokens) - 1)):
        other = open_engine(path, **settings)
        other.keep_in(tmp_path)
        keep_all(other)
        assert read_tokens(other, tokens) == n


@pytest.mark.parametrize(
    "change",
    [
        lambda patch: patch.setenv("GGML_CPU_DISABLE_FUSION", "1"),
        lambda patch: patch.setattr(keeping, "kernels", lambda: "CPU : AVX2 = 1"),
        lambda patch: patch.setattr(keeping, "LLAMA_CPP_PYTHON_VERSION", "0.0.1"),
        lambda patch: patch.setattr(keeping, "library_files", lambda: library_files()[:-1]),
    ],
)
def test_other_kernels_have_other_states(
    change: Callable[[pytest.MonkeyPatch], None],
    open_engine: OpenEngine,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    roots = []
    for is_other in (False, False, True):
        if is_other:
            change(monkeypatch)
        engine = open_engine(tiny)
        engine.keep_in(tmp_path)
        keep_all(engine)
        assert engine.passes.keeping is not None
        roots.append(engine.passes.keeping.root())
    assert all(roots) and roots[0] == roots[1] != roots[2]


def test_states_of_one_pack_are_not_used_with_another(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    """The other one has two experts in each other's place, with their checksums."""
    file = read_model(make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf"))
    made = pack.write(file, "file")
    tokens: list[int] = []
    for is_other in (False, False, True):
        if is_other:
            layer, sums = made.plan.layers[0], len(made.plan.headers[0])
            (_, first), (_, second) = layer.ranges[:2]
            data = bytearray(made.path.read_bytes())
            for a, b, n in ((first, second, layer.stride), (sums, sums + 4, 4)):
                data[a : a + n], data[b : b + n] = data[b : b + n], data[a : a + n]
            made.path.write_bytes(data)
        engine = open_engine(file.path, cache_rate=0.25)
        engine.keep_in(tmp_path / "states")
        assert engine.cache.pack
        keep_all(engine)  # until the digests are known
        tokens = tokens or keep(engine, "chat-1")
        engine.forget()
        assert read_tokens(engine, tokens) == (0 if is_other else len(tokens) - 1)


def root_with(folder: Path, **changes: Any) -> str:
    """Return the root of a loaded model with these changes, by the places "of__name"."""
    parts = [(Path("m.gguf"), "first", "first")]
    plan = SimpleNamespace(
        is_plain=False, mapped=False, repack=False, n_context=512, device_keys=[],
        tier=SimpleNamespace(pack=None), placement=SimpleNamespace(n_gpu_layers=0, shares=[]),
    )  # fmt: skip
    file = SimpleNamespace(
        tensors=[SimpleNamespace(name="output.weight")], paths=[Path("m.gguf")],
        n_expert_used_by_layer=[4, 4],
    )  # fmt: skip
    loaded = SimpleNamespace(
        file=file, plan=plan, placement=plan.placement,
        context=SimpleNamespace(arithmetic="f16", n_piece=256),
        cache=SimpleNamespace(hybrid="off", layout="file"),
        llama=SimpleNamespace(files=SimpleNamespace(states=parts, condemn=lambda _: None)),
    )  # fmt: skip
    for place, value in changes.items():
        of, _, name = place.partition("__")
        assert hasattr(getattr(loaded, of), name)
        setattr(getattr(loaded, of), name, value)
    passes: Any = SimpleNamespace(loaded=loaded)
    found = Keeping(passes, folder, OwnAnswers(1))
    root = found.root()
    found.close()
    return root


FACTORS = [SimpleNamespace(name="rope_factors_long.weight")]


@pytest.mark.parametrize(
    "changes",
    [
        {"file__n_expert_used_by_layer": [4, 2]},
        {"plan__device_keys": ["CUDA0"]},
        {"placement__n_gpu_layers": 1},
        {"placement__shares": [0.5, 0.5]},
        {"cache__hybrid": "on"},
        {"cache__layout": "repacked"},
        {"context__arithmetic": "q8_0"},
        {"context__n_piece": 0},
        {"plan__mapped": True},
        {"plan__is_plain": True},
        {"plan__is_plain": True, "plan__repack": True},
        {"file__tensors": FACTORS},
        {"file__tensors": FACTORS, "plan__n_context": 1024},
    ],
)
def test_a_state_belongs_to_all_that_its_bits_depend_on(
    changes: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "library_files", list)
    monkeypatch.setattr(digests.Digests, "of", lambda _, identity: f"digest of {identity}")
    usual = root_with(tmp_path)
    assert usual == root_with(tmp_path)
    assert usual == root_with(tmp_path, plan__n_context=1024, plan__repack=True), "no matter"
    *_, last = changes
    fewer = {place: value for place, value in changes.items() if place != last}
    assert len({usual, root_with(tmp_path, **changes)}) == 2
    assert not fewer or root_with(tmp_path, **fewer) != root_with(tmp_path, **changes)


def test_nothing_is_kept_until_the_digest_is_known(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request during the computation has its answer, and is kept afterwards."""
    states = tmp_path / "states"
    monkeypatch.setenv("OUTRIDER_STATES", str(states))
    engine = open_engine(tiny)
    engine.keep_in(states)
    tokens = keep(engine, "chat-1")
    kept = {path.name for path in states.glob("*/*.state")}
    assert kept and tokens
    (tmp_path / "digests.json").unlink()

    may_go_on, n_read = threading.Event(), [0]

    def slowly(descriptor: int) -> Iterator[memoryview]:
        for piece in pieces(descriptor):
            n_read[0] += 1
            may_go_on.wait(20)  # a failure ends, too
            yield piece

    monkeypatch.setattr(digests, "pieces", slowly)
    other = open_engine(tiny)
    other.keep_in(states)
    assert other.keep()
    until(lambda: n_read[0] == 1)
    list(other.answer(of_text(PROMPT, GREEDY, 8, owner="chat-2")))
    stats = other.statistics()
    assert stats.n_reused == 0 and list(other.passes.tokens) == tokens
    assert n_read == [1] and not (states / "chat-2").exists()
    may_go_on.set()
    keep_all(other)
    assert {path.name for path in states.glob("chat-2/*.state")} == kept
    assert n_read[0] > 1
    other.forget()
    assert read_tokens(other, [*tokens, 1]) == len(tokens)


def test_another_time_of_change_alone_needs_the_digest_again(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTRIDER_STATES", str(tmp_path / "states"))
    path = Path(shutil.copyfile(tiny, tmp_path / "m.gguf"))
    engine = open_engine(path)
    engine.keep_in(tmp_path / "states")
    tokens = keep(engine, "chat-1")
    for _ in range(2):
        path.chmod(path.stat().st_mode ^ 0o200)
        engine.forget()
        assert logits(engine, tokens)[0] == 0  # the content may be another one
        keep_all(engine)
        engine.forget()
        assert logits(engine, tokens)[0] == len(tokens) - 1

    # Before the digest was known, the first content is not known either.
    (tmp_path / "digests.json").unlink()
    again = open_engine(path)
    again.keep_in(tmp_path / "states")
    path.chmod(path.stat().st_mode ^ 0o200)
    assert logits(again, tokens)[0] == 0
    keep_all(again)
    assert not (tmp_path / "digests.json").exists()
    after = open_engine(path)
    after.keep_in(tmp_path / "states")
    keep_all(after)
    assert logits(after, tokens)[0] == len(tokens) - 1


def test_a_write_that_no_sample_shows_is_found_by_the_digest(
    open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "_PIECE_BYTES", 16)
    monkeypatch.setenv("OUTRIDER_STATES", str(tmp_path / "states"))
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    engine = open_engine(path)
    engine.keep_in(tmp_path / "states")
    keep(engine, "chat-1")
    before, tensor = path.stat(), next(t for t in read_model(path).tensors if "attn_q." in t.name)
    step = before.st_size // 63  # between two pieces
    place = next(i for i in range(tensor.offset + 5, before.st_size) if 99 < i % step < step - 99)
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    list(engine.answer(of_text("the", GREEDY, 4, owner="chat-2")))
    keep_all(engine)
    assert not list((tmp_path / "states").glob("chat-2/*.state"))
    for _ in range(2):
        with pytest.raises(EngineError, match="was changed or replaced"):
            list(engine.answer(of_text("the", GREEDY, 4)))


def test_a_piece_that_is_longer_than_its_place_is_not_read(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    engine = open_engine(tiny)
    engine.keep_in(tmp_path)
    tokens = keep(engine, "chat-1")
    engine.forget()
    assert engine.passes.keeping is not None
    assert engine.passes.keeping.restore(tokens[:80], 0, n_most=255) == 0
    assert engine.passes.keeping.restore(tokens[:80], 0, n_most=256) == 80
    assert engine.passes.keeping.restore(tokens[:95], 80) == 80  # 15 tokens are computed sooner


def test_a_state_that_llama_cpp_refuses_is_deleted(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = open_engine(tiny)
    engine.keep_in(tmp_path)
    tokens = keep(engine, "chat-1")
    assert engine.passes.keeping is not None
    first = f"{engine.passes.keeping.root()}-"
    (path,) = [file for file in tmp_path.glob("*/*.state") if file.name.startswith(first)]
    path.unlink()
    states = KeptStates(tmp_path)
    (piece,), _ = states.missing("chat-1", first[:-1], tokens[:256], 256)
    states.write(piece, bytearray(b"nothing"), lambda: True)
    assert states.wait()
    (path,) = [file for file in tmp_path.glob("*/*.state") if file.name.startswith(first)]
    states.close()
    engine.forget()
    assert read_tokens(engine, tokens) == 0 and not path.exists()
    assert "is read no more: llama.cpp refuses it" in capsys.readouterr().err


def test_branches_share_their_beginning(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    engine = open_engine(tiny, context_length=1024)
    engine.keep_in(tmp_path)
    for owner in ("chat-1", "chat-2"):
        keep(engine, owner, PROMPT + f" and {owner}")
    files = list(tmp_path.glob("*/*.state"))
    assert len({file.stat().st_ino for file in files}) < len(files)
    if os.name == "posix":
        assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    engine.forget_kept("chat-1")
    assert not (tmp_path / "chat-1").exists()
    tokens = list(engine.passes.tokens)
    engine.forget()
    assert read_tokens(engine, tokens) == len(tokens) - 1  # chat 2 still has all


@pytest.mark.parametrize("when", ["answered", "before it is kept", "while it is kept"])
def test_the_state_of_a_deleted_chat_does_not_come_back(
    when: str, open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    """Nor what says which experts it used."""
    engine = open_engine(tiny, context_length=1024, cache_rate=0.5)
    engine.keep_in(tmp_path)
    keep(engine, "chat-1", "the end")  # the model's digest is known
    pieces = engine.answer(of_text(PROMPT, GREEDY, 12, owner="chat-2"))
    if when == "answered":
        next(pieces)
        engine.forget_kept("chat-2")
    n_piece = len(list(pieces))
    assert n_piece > 8
    if when == "while it is kept":
        assert engine.keep()
    if when != "answered":
        engine.forget_kept("chat-2")
    keep_all(engine)
    assert [path.name for path in tmp_path.iterdir()] == ["chat-1"]


def test_of_a_conversation_that_is_forgotten_while_it_is_kept_no_more_is_written(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    """A state of cells that are gone would be read for its tokens."""
    engine = open_engine(tiny, context_length=1024)
    engine.keep_in(tmp_path)
    keep(engine, "chat-1", "the end")  # the model's digest is known
    assert len(keep(engine, "chat-2")) > 256
    list(engine.answer(of_text("then " + PROMPT, GREEDY, 8, owner="chat-3")))
    assert engine.keep()
    engine.forget()
    keep_all(engine)
    assert [len(list(tmp_path.glob(f"chat-{i}/*.state"))) for i in (1, 2, 3)] == [1, 2, 1]


def test_what_is_not_trusted_takes_no_other_chat_with_it(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    """The chat in the context that is not trusted has a state, or is private and has none."""
    engine = open_engine(tiny)
    engine.keep_in(tmp_path)
    assert engine.passes.keeping is not None
    for owner in ("chat-1", "chat-2", ""):
        keep(engine, owner)
        if owner != "chat-1":
            engine.passes.keeping.drop()
        assert [path.name for path in tmp_path.iterdir()] == ["chat-1"]


def test_a_longer_chat_replaces_its_end_only(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    engine = open_engine(tiny, context_length=1024)
    engine.keep_in(tmp_path)
    keep(engine, "chat-1", n=4)
    first = {file.name: file.stat().st_ino for file in tmp_path.glob("*/*.state")}
    n = len(keep(engine, "chat-1", n=20))
    second = {file.name: file.stat().st_ino for file in tmp_path.glob("*/*.state")}
    assert len(first) == 2 and len(second) == -(-n // 256)
    assert len(first.items() & second.items()) == 1


def test_tokens_that_other_passes_computed_replace_the_same_tokens(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    """Asked again, the last token of the prompt is computed alone."""
    engine = open_engine(tiny, context_length=1024)
    engine.keep_in(tmp_path)
    tokens = keep(engine, "chat-1")
    first = {file.name for file in tmp_path.glob("*/*.state")}
    assert keep(engine, "chat-1") == tokens
    second = {file.name for file in tmp_path.glob("*/*.state")}
    assert len(first) == len(second) == 2 and len(first & second) == 1


def test_requests_that_are_answered_jointly_are_restored(
    open_engine: OpenEngine, oracle: Oracle, tiny: Path, tmp_path: Path
) -> None:
    found = []
    for _ in range(2):
        engine = open_engine(tiny, n_sequence=2, context_length=2048)
        engine.keep_in(tmp_path / "states")
        first = Request(0, GREEDY, 1, prompt=PROMPT, owner="server")
        (answer,) = jointly(engine, [first], keeps=True)
        keep_all(engine)
        longer = [Request(i, GREEDY, 6, prompt=f"{PROMPT} and {i}") for i in range(2)]
        texts = [(a.request.key, a.text) for a in jointly(engine, longer, keeps=True)]
        found.append((answer.n_reused, answer.text, sorted(texts, key=lambda pair: pair[0])))
        n_prompt = answer.n_prompt
    assert [n for n, *_ in found] == [0, n_prompt - 1]
    assert found[0][1:] == found[1][1:]
    counts = oracle.approve()
    assert counts["n_state"] > 0 and counts["n_taken"] == 0  # nothing else was in the context


def test_of_joint_answers_each_with_an_owner_is_kept(
    open_engine: OpenEngine, oracle: Oracle, tiny: Path, tmp_path: Path
) -> None:
    """Whatever its sequence is, and whoever began."""
    states = tmp_path / "states"
    engine = open_engine(tiny, n_sequence=4, context_length=2048)
    engine.keep_in(states)
    owners, prompts = ("server", "", "other"), [f"{i} of {PROMPT}" for i in range(3)]
    others = [Request(i, GREEDY, 9, prompt=prompts[i], owner=owners[i]) for i in range(3)]
    own = [Request(3, GREEDY, 9, prompt=PROMPT, priority="person", owner="chat-1")]
    answers = jointly(engine, others, keeps=True, urgent=lambda: own.pop() if own else None)
    texts = {answer.request.key: answer.text.content for answer in answers}
    keep_all(engine)
    kept = sorted(folder.name for folder in states.iterdir() if any(folder.glob("*.state")))
    assert kept == ["chat-1", "other", "server"]
    again = open_engine(tiny, n_sequence=4, context_length=2048)
    again.keep_in(states)
    restored = []
    for i, prompt in ((0, prompts[0]), (1, prompts[1]), (2, prompts[2]), (3, PROMPT)):
        said = "".join(piece.text for piece in again.answer(of_text(prompt, GREEDY, 9)))
        stats = again.statistics()
        restored.append(stats.n_reused == stats.n_prompt - 1)
        assert said == texts[i] or not restored[-1]
    assert restored == [True, False, True, True]
    counts = oracle.approve()
    assert counts["n_state"] > 0 and counts["n_taken"] == 0  # the first log saves what is read
    [alone] = replayed(oracle.logs[1])
    assert alone["n_taken"] > 0 and alone["n_state"] + alone["n_taken"] == counts["n_state"]
    assert not alone["difference"]


def test_a_busy_engine_writes_between_passes(
    open_engine: OpenEngine, oracle: Oracle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One has ended, the other never does. Only passes of one answer say whose the experts are."""
    path, states = make_reciter(tmp_path / "m.gguf", "ab", ends=False), tmp_path / "states"
    engine = open_engine(path, n_sequence=2, context_length=2048)
    engine.keep_in(states)
    keep_all(engine)  # until the digests are known
    monkeypatch.setattr(keeping, "_BUSY_SHARE", 1e9)
    short, endless = (
        Request(name, GREEDY, n, prompt=PROMPT[:n_char] + "\n", owner=name)
        for name, n, n_char in (("short", 9, 1400), ("endless", -1, 300))
    )
    n_late = 0

    def note(group: Runner) -> None:
        nonlocal n_late
        n_late += group.n_running == 1
        if n_file("short") == 2 and n_late > 20:
            endless.handle.cancel()

    def n_file(owner: str) -> int:
        return len(list(states.glob(f"{owner}/*.state")))

    first, last = jointly(engine, [short, endless], note, keeps=True)
    assert (first.finish_reason, last.finish_reason) == ("length", "cancelled")
    assert n_file("short") == 2 and n_file("endless") == 0
    keep_all(engine)
    assert n_file("endless") > 0
    used = {owner: (states / owner / "experts.used").exists() for owner in ("short", "endless")}
    assert used == {"short": False, "endless": True}  # it was alone in the last passes
    again = open_engine(path, n_sequence=2, context_length=2048)
    again.keep_in(states)
    said = "".join(p.text for p in again.answer(of_text(short.prompt or "", GREEDY, 9)))
    stats = again.statistics()
    assert (said, stats.n_reused) == (first.text.content, stats.n_prompt - 1)
    assert oracle.approve()["n_state"] == 2


@pytest.mark.parametrize("arch", ["qwen3moe", "lfm2moe"])
def test_a_regular_end_keeps_what_was_answered(
    arch: str, open_engine: OpenEngine, models: Callable[[str], Path], tmp_path: Path
) -> None:
    first, second = (open_engine(models(arch)) for _ in range(2))
    for engine in (first, second):
        engine.keep_in(tmp_path)
        keep_all(engine)  # it knows the digests then
    list(first.answer(of_text(PROMPT, GREEDY, 8, owner="chat-1")))
    tokens = list(first.passes.tokens)
    first.close()
    assert read_tokens(second, [*tokens, 1]) == len(tokens)


def test_without_a_budget_nothing_is_kept(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    engine = open_engine(tiny)
    engine.keep_in(tmp_path / "states")
    keep(engine, "")
    assert not (tmp_path / "states").exists()
    keep(engine, "chat-1")
    assert (tmp_path / "states" / "chat-1").exists()
    engine.change(engine.loaded.config.decided(kept_mib=0))
    assert not (tmp_path / "states").exists()
    keep(engine, "chat-1")
    assert not (tmp_path / "states").exists()


@pytest.mark.parametrize("arch", ["qwen3moe", "qwen3next"])
def test_what_an_hour_has_no_room_for_is_written_later(
    open_engine: OpenEngine,
    models: Callable[[str], Path],
    arch: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Pieces, and a state in one piece that alone is larger than what an hour has room for."""
    now_s, written = 0.0, list[tuple[float, int]]()

    class Noted(Hour):
        def add(self, n_bytes: int) -> None:
            written.append((now_s, n_bytes))
            super().add(n_bytes)

    engine = open_engine(models(arch), context_length=1024)
    engine.keep_in(tmp_path, Noted(lambda: now_s))
    keep(engine, "chat-1")
    n_hour = int(1.2 * sum(n for _, n in written))
    monkeypatch.setattr(kept_states, "HOUR_BYTES", n_hour)
    assert not engine.is_late
    long = PROMPT * 2
    for n in (8, 12):  # the second answer is given while the first one waits
        said = keep(engine, "chat-1", long, n)
        assert engine.is_late and len(said) == len(engine.prompts.tokenize(long)) + n - 1
    while engine.is_late:
        now_s += 300
        keep_all(engine)
        hour = [n for at_s, n in written if now_s - at_s < 3600]
        assert sum(hour) <= n_hour or len(hour) == 1
        assert now_s < 6 * 3600
    assert now_s >= 3600
    again = open_engine(models(arch), context_length=1024)
    again.keep_in(tmp_path, Hour())
    assert keep(again, "chat-1", long, 12) == said
    assert again.statistics().n_reused == again.statistics().n_prompt - 1


def test_what_is_written_again_leaves_half_of_an_hour_and_is_spread_over_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Notes are written in between."""
    monkeypatch.setattr(kept_states, "HOUR_BYTES", 1_000_000)
    now_s, wrote_s = 0.0, list[float]()
    hour = Hour(lambda: now_s)
    for step in range(2 * 360):
        now_s = 10.0 * step
        hour.add(10)
        if hour.has_room(90_000, is_passing=True):
            hour.add(90_000)
            wrote_s.append(now_s)
        if step == 10:
            assert hour.has_room(549_000) and not hour.has_room(551_000)  # for what is new
    assert wrote_s[:6] == [0.0, 10.0, 20.0, 30.0, 40.0, 370.0]
    assert np.diff(wrote_s[4:]).min() == 330 and wrote_s[10] < 3600 <= wrote_s[11]
    assert all(sum(a <= b < a + 3600 for b in wrote_s) <= 11 for a in wrote_s)
    now_s = 20_000.0
    assert hour.has_room(2_500_000)  # it alone
    hour.add(2_500_000)
    for now_s, has_room in ((20_000 + 2.4 * 3600, False), (20_000 + 2.5 * 3600, True)):
        assert hour.has_room(1) == has_room


def test_a_reopened_chat_finds_its_experts(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path
) -> None:
    settings = {"cache_rate": 0.5, "method": "lru", "context_length": 1024}
    engine = open_engine(tiny, **settings)
    engine.keep_in(tmp_path)
    tokens = keep(engine, "chat-1", n=40)
    used = np.frombuffer((tmp_path / "chat-1" / "experts.used").read_bytes()[-100:-4], "<u2")
    assert used.sum() == 4 * 3 * (39 // 4)  # experts, layers, and every fourth pass

    misses, answers = {}, {}
    for is_warm in (False, True):
        other = open_engine(tiny, **settings)
        other.keep_in(tmp_path)
        list(other.answer(of_text("something else and more", GREEDY, 30)))  # the cache is full
        if is_warm:
            other.warm("chat-1")
            keep_all(other)
            hot = [set(np.argsort(-row)[:4].tolist()) for row in used.reshape(3, 16).astype(int)]
            where = np.frombuffer(other.residency(), np.uint8).reshape(3, 16) & 3
            assert all(where[i, e] == 1 for i, row in enumerate(hot) for e in row)
        prompt = other.prompts.detokenize(tokens[:-1])
        answers[is_warm] = [p.token_id for p in other.answer(of_text(prompt, GREEDY, 8))]
        misses[is_warm] = other.statistics().misses
    assert answers[True] == answers[False]
    assert misses[True] < misses[False]


def test_a_request_ends_the_warming(open_engine: OpenEngine, tiny: Path, tmp_path: Path) -> None:
    engine = open_engine(tiny, cache_rate=0.5)
    engine.keep_in(tmp_path)
    keep(engine, "chat-1", n=20)
    engine.set_cache_rate(0.25)
    engine.set_cache_rate(0.5)  # empty
    engine.warm("chat-1")
    list(engine.answer(of_text("a", GREEDY, 1)))
    before = [cell & cells.WHERE != cells.ABSENT for cell in engine.residency()]
    keep_all(engine)
    assert [cell & cells.WHERE == cells.RESIDENT for cell in engine.residency()] == before


# The files alone.


def write(states: KeptStates, owner: str, tokens: list[int], n_bytes: int = 100) -> None:
    lacking, _ = states.missing(owner, ROOT, tokens, 8)
    for piece in lacking:
        state = bytearray(random.Random(piece.begin).randbytes(n_bytes))
        states.write(piece, state, lambda: True)
        assert states.wait()


def read(states: KeptStates, tokens: list[int]) -> list[bytes]:
    found = states.find(ROOT, tokens, 8)
    return [bytes(state) for _, state in states.states(found)]


def test_every_flipped_byte_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states, tokens = KeptStates(tmp_path / "states"), list(range(24))
    write(states, "chat-1", tokens)
    whole = read(states, tokens)
    assert len(whole) == 3
    good = shutil.copytree(tmp_path / "states", tmp_path / "good")
    for number in range(3):
        path = next(p for p in (good / "chat-1").iterdir() if _is_nth(p, number))
        path = tmp_path / "states" / "chat-1" / path.name
        data = path.read_bytes()
        damaged = [data[:n] for n in range(0, len(data), 7)] + [data + b"\0"]
        for place in range(len(data)):
            flipped = bytearray(data)
            flipped[place] ^= 1 << place % 8
            damaged.append(bytes(flipped))
        for content in damaged:
            path.write_bytes(content)
            assert read(states, tokens) == whole[:number]
            assert not path.exists()
            shutil.copy(good / "chat-1" / path.name, path)
        assert read(states, tokens) == whole
    assert "is read no more" in capsys.readouterr().err
    states.close()


@pytest.mark.parametrize(
    "odd",
    ["1e999", "[" * 100_000, "[3, 1000]", "[3, -9]", "null", '"x"', "[]", '{"tokens": 1e999}'],
)
@pytest.mark.parametrize("key", ["parent", "tokens", "checkpoint", "layer", "n_bytes", ""])
def test_an_odd_header_with_its_checksum_is_noticed(key: str, odd: str, tmp_path: Path) -> None:
    states, tokens = KeptStates(tmp_path), list(range(8))
    write(states, "chat-1", tokens)
    (path,) = tmp_path.glob("*/*.state")
    data = path.read_bytes()
    n = struct.unpack_from("<I", data, 12)[0]
    header = json.loads(data[16 : 16 + n])
    changed = json.dumps({**header, key: "HERE"}).replace('"HERE"', odd) if key else odd
    head = data[:12] + struct.pack("<I", len(changed)) + changed.encode()
    path.write_bytes(head + struct.pack("<I", zlib.crc32(head)) + data[20 + n :])
    assert read(states, tokens) == []
    assert not path.exists()
    states.close()


def _is_nth(path: Path, number: int) -> bool:
    """Return whether this is the piece with this number."""
    return f'"tokens":[{8 * number},'.encode() in path.read_bytes()


def test_what_a_piece_is_of_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = KeptStates(tmp_path)
    chats = [[i] * 8 for i in range(3)]
    for i, tokens in enumerate(chats):
        write(writer, f"chat-{i}", tokens)
    looking, learning = KeptStates(tmp_path), KeptStates(tmp_path)
    assert looking.find(ROOT, [9] * 8, 8) == []  # like none of them
    learning.learn(ROOT)
    assert len(read(learning, chats[0])) == 1  # read behind what learn() reads
    (path,) = (tmp_path / "chat-1").iterdir()
    path.write_bytes(b"damaged")
    for states in (looking, learning):
        assert len(read(states, chats[2])) == 1
        assert states.find(ROOT, [8] * 8, 8) == []
        assert path.exists() and not capsys.readouterr().err
    assert read(looking, chats[1]) == []  # the state is compared with its checksum
    assert not path.exists() and "is read no more" in capsys.readouterr().err
    for states in (writer, looking, learning):
        states.close()


def test_states_of_an_earlier_version_are_deleted_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    states = KeptStates(tmp_path)
    for i in range(4):
        write(states, f"chat-{i}", [i] * 8)
    paths = [next((tmp_path / f"chat-{i}").iterdir()) for i in range(4)]
    for path, version in zip(paths, (0, -1, 1, 0), strict=True):
        data = bytearray(path.read_bytes())
        struct.pack_into("<I", data, 8, struct.unpack_from("<I", data, 8)[0] + version)
        path.write_bytes(data)
    paths[3].write_bytes(b"OUTR")
    states.learn("00" * 16)
    states.close()
    assert [path.exists() for path in paths] == [True, False, True, True]
    assert capsys.readouterr().err.startswith("Chats had 1 states of an earlier version")


def test_the_oldest_states_leave_first(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    chats = [list(range(100 * i, 100 * i + 16)) for i in range(4)]
    for i, tokens in enumerate(chats):
        write(states, f"chat-{i}", tokens, 10_000)
        for file in tmp_path.glob(f"chat-{i}/*"):
            is_first = f"[{100 * i},".encode() in file.read_bytes()
            os.utime(file, (1000, 1000 + 10 * i + is_first))
    assert read(states, chats[0])  # used now
    assert states.make_room(10_000, 60_000, set())
    n_left = [len(states.find(ROOT, tokens, 8)) for tokens in chats]
    assert n_left == [2, 0, 0, 2]
    _, keys = states.missing("chat-0", ROOT, chats[0], 8)
    assert not states.make_room(10_000, 25_000, keys)
    assert len(read(states, chats[0])) == 2
    (piece,), _ = states.missing("chat-9", ROOT, [7] * 8, 8)
    states.write(piece, bytearray(10), lambda: False)
    assert not states.wait() and states.wait()
    assert not (tmp_path / "chat-9").exists()
    states.close()


def test_a_piece_that_is_being_written_goes_with_its_owner(tmp_path: Path) -> None:
    states, may_write = KeptStates(tmp_path), threading.Event()
    for forget in (lambda: states.forget("chat-1"), states.forget_all):
        may_write.clear()
        (piece,), _ = states.missing("chat-1", ROOT, [1] * 8, 8)
        states.write(piece, bytearray(10), lambda: may_write.wait(20))
        threading.Timer(0.1, may_write.set).start()
        forget()
        states.wait()
        assert may_write.is_set() and not list(tmp_path.glob("**/*.state"))
    states.close()


def test_a_branch_of_a_chat_leaves_the_other_one(tmp_path: Path) -> None:
    """A longer one takes the place of its beginning."""
    states, begins = KeptStates(tmp_path), [1] * 8
    for tokens in ([*begins, 2, 3], [*begins, 2, 4], [*begins, 2, 3, 5], [*begins, 2, 3, 6]):
        write(states, "chat-1", tokens)
    ends = [[*begins, 2, 4], [*begins, 2, 3, 5], [*begins, 2, 3, 6]]
    assert [sum(p.n for p in states.find(ROOT, tokens, 8)) for tokens in ends] == [10, 11, 11]
    assert len(list(tmp_path.glob("*/*.state"))) == 4
    states.close()


def test_which_experts_were_used_is_known_of_one_model(tmp_path: Path) -> None:
    states = KeptStates(tmp_path)
    states.write_note("chat-1", "used", "a model", b"used")
    assert states.wait()
    keys = (("chat-1", "a model"), ("chat-1", "b"), ("c", ""))
    found = [states.read_note(owner, "used", model) for owner, model in keys]
    assert found == [b"used", b"", b""]
    states.close()


def test_states_that_are_not_there_are_forgotten(tmp_path: Path) -> None:
    states = KeptStates(tmp_path / "none" / "states")
    for _ in range(2):
        states.forget("nobody")
        states.forget_all()
    assert not (tmp_path / "none").exists()
    write(states, "chat-1", [1] * 8)
    states.forget_all()
    assert not (tmp_path / "none" / "states").exists()
    states.close()


def test_what_two_chats_share_counts_once(tmp_path: Path) -> None:
    states, tokens = KeptStates(tmp_path), list(range(16))
    for owner in ("chat-1", "chat-2"):
        write(states, owner, tokens, 10_000)
    files = list(tmp_path.glob("*/*.state"))
    n_bytes = sum({file.stat().st_ino: file.stat().st_size for file in files}.values())
    assert len(files) == 4
    for file in files:
        os.utime(file, (1000, 1000 + _is_nth(file, 0)))
    assert states.make_room(1000, n_bytes + 1000, set())
    assert all(file.exists() for file in files)
    assert states.make_room(1000, n_bytes + 999, set())
    assert sum(file.exists() for file in files) == 2  # the end of both
    assert len(states.find(ROOT, tokens, 8)) == 1
    states.close()


def test_states_take_a_share_of_what_would_be_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = 0
    usage = SimpleNamespace(disk_usage=lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr("backend.engine.kept_states.shutil", usage)
    states = KeptStates(tmp_path / "states")
    write(states, "chat-1", [1] * 8, 10_000)
    (file,) = (tmp_path / "states" / "chat-1").iterdir()
    n_bytes = file.stat().st_size
    most = int((n_bytes + 10**6) * DISK_SHARE)
    for free, n_new, is_kept in ((10**6, most - n_bytes, True), (10**6, most - n_bytes + 1, False)):
        assert states.make_room(n_new, 10**9, set()) and file.exists() == is_kept
    write(states, "chat-1", [1] * 8, 10_000)
    assert not states.make_room(most + 1, 10**9, set()) and not file.exists()
    states.close()


def test_what_a_killed_process_has_begun_is_deleted_after_an_hour(tmp_path: Path) -> None:
    states, now_s = KeptStates(tmp_path), time.time()
    write(states, "chat-1", [1] * 8)
    old, fresh = tmp_path / "chat-1" / "old.part", tmp_path / "chat-1" / "fresh.part"
    for path, age_s in ((old, 3700), (fresh, 3500)):
        path.write_bytes(b"x")
        os.utime(path, (now_s - age_s, now_s - age_s))
    assert states.make_room(0, 10**9, set())
    assert not old.exists() and fresh.exists() and len(read(states, [1] * 8)) == 1
    states.close()


def test_a_key_is_of_the_tokens_before_and_of_their_passes() -> None:
    made = {"steps": [1, 2], "arithmetic": "x"}
    key = key_of(ROOT, [1, 2], made)
    assert key == key_of(ROOT, (1, 2), dict(reversed(made.items())))
    others = [
        key_of(ROOT, [1, 2]), key_of(ROOT, [1, 3], made), key_of(key, [1, 2], made),
        key_of(ROOT, [1, 2], {**made, "steps": [2, 1]}), root_of(["a"]), root_of(["b"]), key,
    ]  # fmt: skip
    assert len(set(others)) == len(others) and {len(other) for other in others} == {len(ROOT)}


# The worker and its clients.


def ask(client: WorkerClient, owner: str = "") -> tuple[int, int, str]:
    """Return the tokens of the prompt, those not computed, and the answer."""
    reply = client.request(
        "generate",
        messages=[{"role": "user", "content": PROMPT}],
        sampling={"temperature": 0},
        max_tokens=6,
        **({"owner": owner} if owner else {}),
    )
    messages = list(reply)
    started = next(m for m in messages if m["type"] == "started")
    answer = "".join(m["text"] for m in messages if m["type"] == "text")
    return started["n_prompt"], started["n_reused"], answer


def test_a_chat_outlives_sigkill_and_a_deleted_one_leaves_nothing(
    tiny: Path, states_folder: Path
) -> None:
    def n_file(owner: str) -> int:
        return len(list(states_folder.glob(f"{owner}/*.state")))

    config = EngineConfig(context_length=1024, n_thread=1).to_json()
    answers = []
    for _ in range(2):
        client = WorkerClient()
        try:
            assert client.request("load", path=str(tiny), **config).final()["type"] == "loaded"
            answers.append(ask(client, "chat-7"))
            until(lambda: n_file("chat-7") == 2)  # pieces, written while it is idle
            client.request("forget", owner="chat-8")
        finally:
            client.kill()
    n_prompt = answers[0][0]
    assert answers[0][1] == 0 and answers[1] == (n_prompt, n_prompt - 1, answers[0][2])

    with WorkerClient() as client:
        client.request("load", path=str(tiny), **config).final()
        ask(client, "chat-7")
        client.request("forget", owner="chat-7")
        until(lambda: not (states_folder / "chat-7").exists())
        ask(client)
        assert not list(states_folder.glob("*/*"))
