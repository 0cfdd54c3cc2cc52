"""`outrider trace`: it records the model's routing, and no input ends in a traceback."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from asking import of_text
from endless import make_endless
from factory import make_tiny
from gguf import GGUFReader
from processes import NO_FILE
from waiting import WAIT_S

from backend.cli import main
from backend.engine.engine import Engine
from backend.engine.recording import Recording
from backend.gguf.model_file import read_model
from backend.protocol.settings import EngineConfig, Sampling
from backend.traces.prompts import Prompt, PromptsError, read_prompts
from backend.traces.reading import read_trace
from backend.traces.trace import DECODE, PREFILL, Trace

ROOT = Path(__file__).resolve().parents[2]
posix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_endless(tmp_path_factory.mktemp("trace") / "tiny.gguf")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("one two\n\n  three\nfour five six\n", encoding="utf-8")
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["trace", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def check_one_sentence(result: tuple[int, str, str], words: str, status: int = 1) -> None:
    assert result[0] == status, result
    assert result[1] == ""
    assert result[2].startswith("outrider: ") and result[2].endswith(".\n")
    assert result[2].count("\n") == 1
    assert words in result[2], result[2]


# Recording.


def test_a_trace_of_some_prompts(
    tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.trace"
    words = (tiny, "--prompts", prompts, "--out", out, "--tokens", 4, "--temperature", 0)
    status, said, err = run(capsys, *words, "--threads", 1, "--json")
    assert (status, err) == (0, "")
    facts = json.loads(said)
    trace = read_trace(out, read_model(tiny).fingerprint)
    assert (facts["requests"], facts["passes"], facts["left_out"]) == (3, 12, [])
    assert facts["tokens"] == len(trace.tokens) and facts["bytes"] == out.stat().st_size
    # The last token of an answer is not computed: nothing follows it.
    assert trace.phases.tolist() == [PREFILL, DECODE, DECODE, DECODE] * 3
    assert trace.requests.tolist() == [i for i in range(3) for _ in range(4)]
    assert trace.layers == tuple(range(trace.n_layer)) and trace.n_expert_used == 2
    assert trace.about["max_tokens"] == 4
    assert trace.about["layer_dense_bytes"] > 0 and trace.about["output_bytes"] > 0
    assert trace.inputs is None and trace.scores is None and trace.weights is not None
    assert trace.shape().expert_bytes(0) == read_model(tiny).expert_bytes_per_layer()[0]
    assert len(trace.future()) == 12


def record(
    path: Path, rate: float, method: str, *, more: bool = False
) -> tuple[Trace, list[list[int]]]:
    """Record two prompts. Return the trace and the tokens of the answers.

    more: with scores and inputs.
    """
    config = EngineConfig(cache_rate=rate, method=method, n_thread=1, context_length=256)
    engine = Engine.open(path, config)
    try:
        recording = Recording(engine, read_model(path), scores=more, inputs=more)
        answers = []
        for text in ("one two three", "one two four"):
            prompt = Prompt(({"role": "user", "content": text},), 1)
            pieces = recording.answer(prompt, Sampling(temperature=0), 6, raw=True)
            n_token = [piece.token_id for piece in pieces]
            answers.append(n_token[: engine.statistics().n_token])
        recording.close()
        trace = recording.trace({})
        engine.forget()
        list(engine.answer(of_text("no more", Sampling(temperature=0), 3)))
        assert recording.n_token == 0
        return trace, answers
    finally:
        engine.close()


def test_every_prompt_is_recorded_from_its_first_token_on(tiny: Path) -> None:
    trace, answers = record(tiny, 0.5, "lru")
    for request, answer in zip(trace.each_request(), answers, strict=True):
        assert request.phases.tolist() == [PREFILL] + [DECODE] * 5
        assert request.tokens[-5:].tolist() == answer[:-1]
    first, second = trace.each_request()
    assert first.tokens[0] == second.tokens[0]  # not the leftovers of the prompt before


def test_the_routing_is_that_of_the_router_on_the_inputs(tmp_path: Path) -> None:
    """Inputs, weights and scores agree, and the experts with the best scores are chosen."""
    path = make_tiny("qwen3moe", "Q8_0", tmp_path / "m.gguf", n_expert=16, n_expert_used=4)
    trace, _ = record(path, 0.25, "promoe", more=True)
    assert trace.inputs is not None and trace.scores is not None and trace.weights is not None
    assert trace.has_inputs is not None and trace.has_inputs.all()
    assert trace.n_routed[0].tolist() == [trace.n_token[0]] * (trace.n_layer - 1) + [1]
    tensors = {t.name: t.data for t in GGUFReader(path).tensors}
    for layer, number in enumerate(trace.layers):
        routed = trace.routed[:, layer]
        inputs = trace.inputs[routed, layer].astype(np.float32)
        logits = inputs @ tensors[f"blk.{number}.ffn_gate_inp.weight"].astype(np.float32).T
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        expected = odds / odds.sum(axis=1, keepdims=True)
        scores = trace.scores[routed, layer].astype(np.float32)
        assert np.allclose(scores, expected, atol=4e-3)
        ids = trace.ids[routed, layer].astype(int)
        weights = trace.weights[routed, layer]
        assert np.array_equal(np.take_along_axis(trace.scores[routed, layer], ids, 1), weights)
        smallest = np.sort(scores, axis=1)[:, -4]
        assert (weights.min(axis=1).astype(np.float32) >= smallest - 1e-3).all()


def test_what_is_routed_does_not_depend_on_the_cache(tiny: Path) -> None:
    first, answers = record(tiny, 0.25, "promoe")
    for rate, method in ((0.5, "lru"), (0.875, "promoe")):
        other, again = record(tiny, rate, method)
        assert answers == again
        assert np.array_equal(first.tokens, other.tokens)
        assert np.array_equal(first.ids, other.ids)
        assert np.array_equal(first.weights, other.weights)


def test_conversations_in_json_lines(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]},
        {"prompt": "hello"},
    ]
    prompts = tmp_path / "p.jsonl"
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = (tiny, "--prompts", prompts, "--out", tmp_path / "x", "--tokens", 2, "--inputs")
    status, said, _ = run(capsys, *words, "--scores", "--threads", 1)
    assert status == 0 and "2 requests" in said
    trace = read_trace(tmp_path / "x")
    assert trace.inputs is not None and trace.scores is not None
    assert trace.n_embd == trace.inputs.shape[2] > 0


def test_the_limit_keeps_what_fits(
    tiny: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (tiny, "--prompts", prompts, "--out", tmp_path / "x", "--threads", 1)
    status, said, err = run(capsys, *words, "--tokens", 200, "--max-bytes", "2K", "--json")
    assert status == 0 and "--max-bytes" in err
    assert json.loads(said)["stopped"] in err
    trace = read_trace(tmp_path / "x")
    assert 0 < trace.n_bytes <= 2048


def test_a_prompt_that_is_too_long_is_left_out(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "p.txt"
    prompts.write_text("short\n" + "very long " * 200 + "\nshort again\n")
    words = (tiny, "--prompts", prompts, "--out", tmp_path / "x", "--context", 64, "--threads", 1)
    status, said, err = run(capsys, *words, "--tokens", 2)
    assert status == 0 and "2 requests" in said
    assert err.count("\n") == 1 and "line 2 is left out" in err
    prompts.write_text("very long " * 200)
    check = run(capsys, *words, "--tokens", 2, "--force")
    assert check[0] == 1 and "Nothing was recorded." in check[2]


@posix
def test_ctrl_c_keeps_what_was_recorded(tiny: Path, prompts: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.trace"
    command = [sys.executable, "-m", "backend.cli", "trace", str(tiny), "--prompts", str(prompts)]
    command += ["--out", str(out), "--tokens", "-1", "--context", "4096", "--threads", "1"]
    command += ["--temperature", "0"]
    marker = (
        "import sys, backend.engine.recording as r\n"
        "class Shown(r.Recording):\n"
        "    @property\n"
        "    def n_token(self):\n"
        "        n = super().n_token\n"
        "        if n > 200: print('recording', flush=True)\n"
        "        return n\n"
        "r.Recording = Shown\n"
        "from backend.cli import main\n"
        f"sys.exit(main({command[3:]!r}))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", marker], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"recording\n"
        process.send_signal(signal.SIGINT)
        said, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130, err
    assert b"Traceback" not in err and b"requests" in said
    trace = read_trace(out)
    assert trace.n_pass > 100 and trace.requests[-1] == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["prompts.txt", "x.trace"]


# Bad input.


def test_bad_input_is_one_sentence(
    tiny: Path,
    prompts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is loaded for it."""
    monkeypatch.setattr("backend.engine.engine.Engine.open", None)
    out = tmp_path / "x"
    empty, text = tmp_path / "empty", tmp_path / "text"
    empty.write_text(" \n\n")
    text.write_bytes(b"\xff\xfe\x00")
    for model, file, target, words in (
        (tiny, tmp_path / "none", out, NO_FILE),
        (tiny, empty, out, "no prompts"),
        (tiny, text, out, "not UTF-8"),
        (tiny, tmp_path, out, "directory" if os.name == "posix" else "denied"),
        (tiny, prompts, tmp_path / "no" / "x", "does not exist"),
        (tiny, prompts, tmp_path, "is a folder"),
        (tiny, prompts, prompts, "--force"),
        (prompts, prompts, out, "not a GGUF file"),
        (tmp_path / "none", prompts, out, NO_FILE),
    ):
        check_one_sentence(run(capsys, model, "--prompts", file, "--out", target), words)
    assert not out.exists()
    assert prompts.read_text().startswith("one two")


def test_a_dense_model_and_one_that_cannot_be_cached(
    prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arch, words in (("dense", "dense model"), ("grovemoe", "cannot be recorded")):
        model = make_tiny(arch, "F16", tmp_path / f"{arch}.gguf")
        result = run(capsys, model, "--prompts", prompts, "--out", tmp_path / "x")
        check_one_sentence(result, words)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "MODEL"),
        (["m"], "--prompts"),
        (["m", "--prompts", "p"], "--out"),
        (["m", "--prompts", "p", "--out", "x", "--max-bytes", "2X"], "'2X'"),
        (["m", "--prompts", "p", "--out", "x", "--max-bytes", "0"], "'0'"),
        (["m", "--prompts", "p", "--out", "x", "--tokens", "0"], "at least 1"),
    ],
)
def test_wrong_use_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_one_sentence(run(capsys, *words), sentence, status=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"prompt": "a"}\n{', "line 2 is not valid JSON"),
        ('{"prompt": "a"}\nhello', "line 2 is not valid JSON"),
        ('{"prompt": "a"}\n[1]', "line 2 is not a JSON object"),
        ('{"prompt": 3}', "line 1 has neither"),
        ('{"messages": []}', "line 1 has neither"),
        ('{"messages": [3]}', "message without a text"),
        ('{"messages": [{"role": "user", "content": null}]}', "message without a text"),
        ('{"messages": [{"role": "boss", "content": ""}]}', "none of the roles"),
        ('{"prompt": ' + "[" * 100_000, "not valid JSON"),
    ],
)
def test_prompts_that_make_no_sense(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "p").write_text(text)
    with pytest.raises(PromptsError, match=words) as refused:
        read_prompts(tmp_path / "p")
    assert str(refused.value).endswith(".")


def test_prompts_in_lines(tmp_path: Path) -> None:
    (tmp_path / "p").write_bytes(b"\xef\xbb\xbfone\r\n\r\n two \r\n")
    found = read_prompts(tmp_path / "p")
    assert [(p.text, p.line) for p in found] == [("one", 1), ("two", 3)]
