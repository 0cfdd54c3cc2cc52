"""No answer comes from values that are not finite or from a file that has changed."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import of_text
from factory import make_split, make_tiny, spoil
from processes import DATA_HOME

from backend.cli import main
from backend.engine.engine import Engine, EngineError
from backend.engine.loading import CachedModel, load_native, load_plain
from backend.gguf.identity import FileIdentity
from backend.gguf.model_file import ModelFile, read_model
from backend.llama.api import ERROR, LlamaError, log
from backend.packs import write as pack
from backend.packs.file import LAYOUTS
from backend.protocol.settings import EngineConfig, Sampling

OpenEngine = Callable[..., Engine]
GREEDY = Sampling(temperature=0)
CHANGED = r"was changed or replaced after it was checked; load it again\."


def say(engine: Engine) -> int:
    """Answer and return the number of pieces."""
    return len(list(engine.answer(of_text("the", GREEDY, 4))))


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a model with two layers of 8 experts."""
    monkeypatch.setenv(DATA_HOME, str(tmp_path / "data"))
    return make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_layer=2, n_expert=8)


# Values that are not finite.


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_an_expert_with_a_nan_ends_the_answer_and_is_named(
    rate: float, model: Path, open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a cache rate of 1.0 the file is mapped, like one that exceeds memory."""
    spoil(model, "blk.1.ffn_down_exps.weight")
    monkeypatch.setattr("backend.engine.loading.load_plain", load_mapped)
    engine = open_engine(model, cache_rate=rate)
    named = r"Layer 1 of .* NaN .* 'blk\.1\.ffn_down_exps\.weight' .* block 0\."
    with pytest.raises(EngineError, match=named):
        say(engine)
    assert engine.passes.tokens == []


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_whose_sound_weights_overflow_is_named(
    layer: int, rate: float, model: Path, open_engine: OpenEngine
) -> None:
    name = f"blk.{layer}.ffn_norm.weight"
    with model.open("r+b") as file:
        norm = next(t for t in read_model(model).tensors if t.name == name)
        file.seek(norm.offset)
        file.write(np.full(norm.n_bytes // 4, 3e38, np.float32).tobytes())
    engine = open_engine(model, cache_rate=rate)
    with pytest.raises(EngineError, match=rf"^Layer {layer} of the model computed NaN .* file may"):
        say(engine)
    assert engine.passes.tokens == []


def load_mapped(file: ModelFile, *_: object, **__: object) -> Any:
    return load_plain(file, repack=False)


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_a_dense_weight_with_a_nan_is_refused_when_it_is_loaded(
    rate: float, model: Path, open_engine: OpenEngine
) -> None:
    """What llama.cpp said of another call before is not the reason."""
    spoil(model, "blk.1.attn_q.weight")
    log.callback(ERROR, b"decode: failed to initialize batch\n", None)
    with pytest.raises(EngineError, match=r"m\.gguf cannot be used: .*'blk\.1\.attn_q\.weight'"):
        open_engine(model, cache_rate=rate)


@pytest.mark.parametrize("command", ["chat", "verify", "trace"])
def test_commands_say_it(
    command: str, model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    spoil(model, "blk.1.ffn_down_exps.weight")
    (tmp_path / "p.txt").write_text("the\n")
    words = {
        "chat": ["-p", "the", "--cache-rate", "0.25"],
        "verify": [],
        "trace": ["--prompts", str(tmp_path / "p.txt"), "--out", str(tmp_path / "t.trace")],
    }[command]
    assert main([command, str(model), *words]) == 1
    shown = capfd.readouterr()
    assert "NaN or infinite" in shown.err and "Traceback" not in shown.err
    assert not (tmp_path / "t.trace").exists()


def test_no_pack_is_made_of_a_nan(model: Path, tmp_path: Path) -> None:
    file = read_model(spoil(model, "blk.1.ffn_up_exps.weight"))
    with pytest.raises(pack.PackError, match=r"'blk\.1\.ffn_up_exps\.weight' .* in block 0\."):
        pack.write(file, "file")
    assert not list(tmp_path.glob("*.pack*"))


# Files that change.


def write_into(path: Path) -> None:
    """Overwrite one byte with the same value."""
    with path.open("r+b") as file:
        last = file.seek(-1, os.SEEK_END)
        byte = file.read(1)
        file.seek(last)
        file.write(byte)


def put_over(path: Path) -> None:
    """Replace a file by another one with the same bytes."""
    other = path.with_name("other")
    shutil.copy2(path, other)
    other.replace(path)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def write_in_secret(path: Path) -> None:
    """Change a weight, and set the time of modification back."""
    flip(path, next(t for t in read_model(path).tensors if t.name == "blk.1.attn_q.weight").offset)


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("change", [write_into, write_in_secret, put_over, cut])
def test_a_file_that_changes_ends_the_answers(
    change: Callable[[Path], None], rate: float, model: Path, open_engine: OpenEngine
) -> None:
    engine = open_engine(model, cache_rate=rate)
    assert say(engine) == 4
    change(model)
    for _ in range(2):
        with pytest.raises(EngineError, match=r"m\.gguf " + CHANGED):
            say(engine)
    with pytest.raises(EngineError, match=CHANGED):
        engine.set_cache_rate(0.5)


def test_the_answer_in_which_the_file_is_written_to_ends(
    model: Path, open_engine: OpenEngine
) -> None:
    engine = open_engine(model)
    answer = engine.answer(of_text("the", GREEDY, 9))
    next(answer)
    write_into(model)
    with pytest.raises(EngineError, match=CHANGED):
        next(answer)


def test_a_file_that_is_gone_is_still_open(model: Path, open_engine: OpenEngine) -> None:
    engine = open_engine(model)
    model.unlink()
    assert say(engine) == 4


def link(path: Path) -> None:
    os.link(path, path.with_name(f"{path.name}.link"))


def rename(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.renamed"))


def make_read_only(path: Path) -> None:
    path.chmod(0o400)


@pytest.mark.parametrize("change", [link, make_read_only, rename])
def test_a_file_with_the_same_content_is_still_the_same(
    change: Callable[[Path], None], model: Path, open_engine: OpenEngine
) -> None:
    """Also where a setting needs the model to be loaded again."""
    packed = pack.write(read_model(model), "file").path
    engine = open_engine(model, cache_rate=0.25)
    answer = engine.answer(of_text("the", GREEDY, 9))
    next(answer)
    for path in (model, packed):
        change(path)
    assert len(list(answer)) == 8
    assert say(engine) == 4
    if change is not rename:
        assert engine.cache.pack == str(packed)
        assert engine.set_cache_rate(1.0).mode == "plain" and say(engine) == 4
        assert engine.set_cache_rate(0.25).pack == str(packed) and say(engine) == 4


def test_another_header_with_the_same_times_is_refused(
    model: Path, open_engine: OpenEngine
) -> None:
    file = read_model(model)
    data, before = model.read_bytes(), model.stat()
    model.write_bytes(data.replace(b"blk.1.attn_q.", b"blk.1.attn_r."))
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(LlamaError, match=CHANGED):
        load_plain(file)
    model.write_bytes(data)
    os.utime(model, ns=(before.st_atime_ns, before.st_mtime_ns))
    load_plain(file).close()


def test_each_part_and_the_pack_are_looked_at(model: Path, open_engine: OpenEngine) -> None:
    parts = make_split(model, 2)
    packed = pack.write(read_model(parts[0]), "file").path
    for path in (parts[1], packed):
        engine = open_engine(parts[0])
        assert engine.cache.pack == str(packed)
        assert say(engine) == 4
        write_into(path)
        with pytest.raises(EngineError, match=path.name + " " + CHANGED):
            say(engine)


def test_a_striped_pack_is_looked_at(model: Path, tmp_path: Path, open_engine: OpenEngine) -> None:
    """A file that is damaged or changed ends the answer. Without it, the model's own is read."""
    (tmp_path / "b").mkdir()
    written = pack.write(read_model(model), "file", folders=[tmp_path, tmp_path / "b"])
    (other, _) = written.files[1]
    engine = open_engine(model, cache_rate=0.25)
    assert engine.cache.pack == str(written.path) and say(engine) == 4
    before = list(engine.passes.tokens)
    write_into(other)
    with pytest.raises(EngineError, match=re.escape(other.name) + " " + CHANGED):
        say(engine)
    engine.close()
    for layer in written.plan.layers:
        for number, offset in layer.ranges:
            if number == 1:
                flip(other, offset + 5)
    engine = open_engine(model, cache_rate=0.25)
    with pytest.raises(EngineError, match=r"m\.pack is damaged: expert \d of layer \d .* again\."):
        say(engine)
    engine.close()
    other.unlink()
    engine = open_engine(model, cache_rate=0.25)
    assert engine.cache.pack == "" and f"its file {other} is missing" in engine.cache.remark
    assert say(engine) == 4 and engine.passes.tokens == before


@pytest.mark.parametrize("load", [load_plain, load_native, lambda f: CachedModel(f, n_thread=1)])
def test_a_file_that_changes_between_check_and_loading(
    load: Callable[[ModelFile], object], model: Path
) -> None:
    file = read_model(model)
    put_over(model)
    with pytest.raises(LlamaError, match=CHANGED):
        load(file)


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("change", [write_into, put_over])
def test_a_file_that_changes_while_it_is_loaded(
    change: Callable[[Path], None], rate: float, model: Path
) -> None:
    changes = [change]

    def progress(_fraction: float, _stage: str) -> bool:
        if changes:
            changes.pop()(model)
        return True

    with pytest.raises(EngineError, match=CHANGED):
        Engine.open(model, EngineConfig(n_thread=1, cache_rate=rate), progress)


def test_a_model_that_changes_while_it_is_packed(model: Path, tmp_path: Path) -> None:
    file = read_model(model)

    def progress(_done: int, _total: int) -> bool:
        write_into(model)
        return True

    with pytest.raises(pack.PackError, match=CHANGED):
        pack.write(file, "file", progress=progress)
    assert not list(tmp_path.glob("*.pack*"))


# Bytes that are wrong although their file looks the same.


def flip(path: Path, place: int) -> None:
    """Change a byte of a file, and keep its time of change."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("method", ["lru", "promoe", "klotski"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_pack_ends_the_answer_that_reads_it(
    layout: pack.Layout, method: str, model: Path, open_engine: OpenEngine
) -> None:
    """The first read of each expert is checked, in one piece or matrix by matrix."""
    make_tiny("qwen3moe", "Q4_0", model, n_layer=2, n_expert=8)  # every processor repacks it
    file = read_model(model)
    packed = pack.write(file, layout)
    engine = open_engine(model, method=method, cache_rate=0.25)
    assert engine.cache.pack and say(engine) == 4
    engine.close()
    layer = packed.plan.layers[1]
    for expert in range(packed.plan.n_expert):
        flip(packed.path, layer.ranges[expert][1] + layer.tensors[1].place + 5)
    engine = open_engine(model, method=method, cache_rate=0.25)
    with pytest.raises(EngineError, match=r"m\.pack is damaged: expert \d of layer 1 .* again\."):
        say(engine)


def test_a_wrong_byte_in_memory_is_found_between_answers(
    model: Path, open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = FileIdentity.of
    untold = lambda file: true(file)._replace(changed_ns=0)  # noqa: E731  no time of change
    monkeypatch.setattr(FileIdentity, "of", untold)
    engine = open_engine(model, cache_rate=0.5)
    assert say(engine) == 4
    for _ in range(20):
        engine.idle()
        assert say(engine) == 4
    for tensors in read_model(model).expert_tensors.values():
        for t in tensors:
            for expert in range(t.shape[2]):  # the file changes instead of the memory
                flip(model, t.offset + expert * t.matrix_bytes + 5)
    engine.idle()
    with pytest.raises(EngineError, match=r"Expert \d of layer [01] in memory differed"):
        say(engine)
    assert say(engine) == 4  # all experts were read again
    engine.idle()
    assert say(engine) == 4


def test_a_vocabulary_without_the_pieces_of_a_text_is_refused(tmp_path: Path) -> None:
    """llama.cpp then splits into tokens of number -1."""
    path = make_tiny("dense", "Q8_0", tmp_path / "m.gguf")
    data = path.read_bytes()
    assert data.count(b"\4\0\0\0\0\0\0\0gpt2") == 1
    path.write_bytes(data.replace(b"\4\0\0\0\0\0\0\0gpt2", b"\4\0\0\0\0\0\0\0rwkv"))
    with pytest.raises(EngineError, match="could not be split"):
        engine = Engine.open(path, EngineConfig(device="cpu", context_length=64))
        list(engine.answer(of_text("the of and", Sampling(temperature=0), 4)))
