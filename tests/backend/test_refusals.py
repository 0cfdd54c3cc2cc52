"""Every refusal that reaches a client is a Text with an id, so that a window can translate it."""

import ctypes
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from endless import make_endless
from factory import make_tiny

from backend.cli import main
from backend.gguf.model_file import read_model
from backend.packs import file as packs
from backend.protocol.client import RequestFailed, WorkerClient
from backend.text import Text, from_json
from backend.weights import lookup

LOAD = {"cache_rate": 0.5, "method": "lru", "context_length": 64, "n_thread": 1, "device": "cpu"}
FROM_THE_SYSTEM = {os.strerror(number) for number in range(1, 134)}
if sys.platform == "win32":
    FROM_THE_SYSTEM |= {ctypes.FormatError(number).rstrip(".\r\n ") for number in range(1, 134)}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_endless(tmp_path_factory.mktemp("refusals") / "tiny.gguf")


@pytest.fixture(scope="module")
def worker(tiny: Path) -> Iterator[WorkerClient]:
    with WorkerClient() as client:
        client.request("load", path=str(tiny), **LOAD).final()
        yield client


def require_ids(sentence: Any) -> None:
    """Fail if a sentence, or a phrase among its values, has no id."""
    assert isinstance(sentence, Text), sentence
    for value in sentence.values.values():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Text):
                require_ids(part)
            elif isinstance(part, str) and part not in FROM_THE_SYSTEM:
                names = part.split(", ")
                assert all(len(name.split()) < 3 for name in names), f"{part!r}: {sentence}"


def refusal(worker: WorkerClient, kind: str, **fields: Any) -> str:
    with pytest.raises(RequestFailed) as caught:
        worker.request(kind, **fields).final()
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"", "empty"),
        (b"hello, this is no model", "GGUF"),
        (b"GGUF\x09\0\0\0", "version is 9"),
        (b"GGUF\0\0\0\x03", "big-endian"),
        (b"GGUF\x03\0\0\0" + bytes(8), "number of metadata keys"),
        (b"GGUF\x03\0\0\0" + bytes([255]) * 16, "not plausible"),
        (b"GGUF\x03", "it ends inside the version"),
        (20, "truncated"),
        (2000, "room for"),
        (-1, "incomplete"),
    ],
)
def test_models(
    worker: WorkerClient, tiny: Path, tmp_path: Path, content: bytes | int | None, words: str
) -> None:
    path = tmp_path / "m.gguf"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else tiny.read_bytes()[:content])
    said = refusal(worker, "load", path=str(path), **LOAD)
    assert words in said
    require_ids(said)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cache_rate", 7), ("method", "magic"), ("context_length", 0), ("kv_type", "q9"),
        ("kv_type", "q4_0"), ("n_thread", -1), ("host_bytes", -1), ("device", "cpu,auto"),
        ("device", "a,"), ("device", "rpc://x"), ("device", "nothing here"),
    ],
)  # fmt: skip
def test_settings(worker: WorkerClient, tiny: Path, setting: str, value: object) -> None:
    require_ids(refusal(worker, "load", path=str(tiny), **{**LOAD, setting: value}))


@pytest.mark.parametrize(
    "sampling",
    [{"temperature": -1}, {"temperature": "hot"}, {"repeat_penalty": 0}, {"seed": -1}, {"x": 1}],
)
def test_sampling(worker: WorkerClient, tiny: Path, sampling: dict[str, Any]) -> None:
    worker.request("load", path=str(tiny), **LOAD).final()
    ask = {"prompt": "the of", "max_tokens": 1}
    require_ids(refusal(worker, "generate", sampling=sampling, **ask))


def test_answers(worker: WorkerClient, tiny: Path) -> None:
    worker.request("unload").final()
    ask = {"sampling": {}, "max_tokens": -1}
    require_ids(refusal(worker, "generate", prompt="the", **ask))
    worker.request("load", path=str(tiny), **LOAD).final()
    require_ids(refusal(worker, "generate", prompt="the of " * 400, **ask))
    answer = worker.request("generate", prompt="the", **ask)
    next(iter(answer))
    require_ids(refusal(worker, "configure", **{**LOAD, "method": "magic"}))
    worker.stop(answer)
    answer.final()


def test_the_local_server(worker: WorkerClient) -> None:
    require_ids(refusal(worker, "serve", on=True, port=1 << 16, key="k"))
    require_ids(refusal(worker, "serve", on=True, port=0, key=""))


def test_files_beside_a_model_that_are_not_used(worker: WorkerClient, tmp_path: Path) -> None:
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf")
    file = read_model(path)
    packs.beside(file).write_bytes(b"no pack")
    lookup.beside(file, "learned").write_bytes(b"no weights")
    lookup.beside(file, "popularity").write_bytes(b"PK\x03\x04 cut")
    loaded = worker.request("load", path=str(path), **LOAD).final()
    remark = loaded["cache"]["remark"]
    assert "no pack" in remark and "cut short" in remark and "of Outrider's" in remark
    require_ids(remark)


def test_packing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_tiny("dense", "Q8_0", tmp_path / "m.gguf")
    assert main(["pack", str(path), "--json", "--layout", "file"]) == 1
    told = json.loads(capsys.readouterr().out, object_hook=from_json)
    assert told["error"] == "This model has no experts to pack."
    require_ids(told["error"])
