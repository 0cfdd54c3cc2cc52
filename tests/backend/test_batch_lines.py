"""Bad lines of a file of requests, and files that batch must not write or read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from engine.reciter import make_reciter
from filelock import FileLock
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.cli import batch, main
from backend.server.ask import RequestRefused
from backend.server.batch_file import AnswerFile, BatchError, Line, error_line, read_lines

OPTIONS = ["--cache-rate", "0.5", "--threads", "1", "--temperature", "0", "--max-tokens", "2"]
CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reciter(tmp_path_factory.mktemp("batch") / "m.gguf", "abcdefg")


def answers(out: Path) -> dict[str, dict[str, Any]]:
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    found = {line.get("custom_id", line["id"]): line for line in lines}
    assert len(found) == len(lines), "a request was answered twice"
    return found


def words(model: Path, prompts: Path, out: Path) -> list[str]:
    return ["batch", str(model), "--prompts", str(prompts), "--out", str(out), *OPTIONS]


def openai(name: str, **body: Any) -> bytes:
    body = {"messages": [{"role": "user", "content": "hi"}], **body}
    return json.dumps({"custom_id": name, "url": CHAT, "body": body}).encode()


BAD = {
    "digits": openai("digits", n=1).replace(b'"n": 1', b'"max_tokens": ' + b"9" * 401),
    "more digits": openai("more digits", n=1).replace(b'"n": 1', b'"n": ' + b"9" * 5000),
    "no messages": openai("no messages", messages=None),
    "utf-8": openai("utf-8", user="BYTE").replace(b"BYTE", b"\xff\xc3"),
    "nan": openai("nan", temperature=float("nan")),
    "infinite": openai("infinite", logit_bias={"1": float("inf")}),
    "deep": b'{"custom_id": "deep", "body": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "rather deep": openai("rather deep", x=1).replace(b": 1", b": " + b"[" * 600 + b"]" * 600),
    "values": openai("values", x=1).replace(b'"x": 1', b'"x": [' + b"1," * 300_000 + b"1]"),
    "url": b'{"custom_id": "url", "url": ["x"], "body": {}}',
    "body": b'{"custom_id": "body", "body": "x"}',
    "cut": openai("cut")[:-5],
    "system": b'{"id": "system", "messages": null, "system": "s"}',
    "a list": b'{"id": "a list", "messages": {}, "system": "s"}',
}  # fmt: skip


def test_a_bad_line_ends_only_itself(model: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    lines = [
        *BAD.values(),
        b"\x80\x81",
        b"[" * 100_000,
        b'"text"',
        openai("many", max_tokens=1 << 62),
        openai("half", user="\ud83d"),
    ]
    prompts.write_bytes(b"\n".join([openai("first"), *lines, openai("last")]) + b"\n")
    assert main(words(model, prompts, out)) == 0
    found = answers(out)
    n = len(BAD) + 2
    assert found.keys() == {"first", "last", "many", "half", *BAD, str(n), str(n + 1), str(n + 2)}
    for name in ("first", "last", "many", "half"):
        assert found[name]["response"]["status_code"] == 200, found[name]
    for name in BAD.keys() - {"system", "a list"}:
        assert found[name]["response"] is None and found[name]["error"]["message"], name
    assert all(found[name]["error"] for name in ("system", "a list", str(n)))
    before = out.read_bytes()
    assert main(words(model, prompts, out)) == 0
    assert out.read_bytes() == before


def test_a_bad_line_takes_no_other_requests_id(model: Path, tmp_path: Path) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    lines = [openai("2"), b"garbage", openai("4"), b"more of it", b'{"prompt": "a"}', openai("x")]
    prompts.write_bytes(b"\n".join(lines))
    for _ in range(2):
        assert main(words(model, prompts, out)) == 0
        found = answers(out)
        assert found.keys() == {"2", "line 2", "4", "line 4", "5", "x"}
        assert [name for name, line in found.items() if line.get("error")] == ["line 2", "line 4"]


def test_two_requests_of_one_id_are_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    prompts.write_bytes(b"\n".join([openai("x"), openai("x"), openai("y"), openai("x", n=2)]))
    assert main(words(model, prompts, out)) == 1
    assert "Two requests of p.jsonl have the id 'x'." in capsys.readouterr().err
    prompts.write_bytes(b"\n".join([openai("x"), openai("x"), openai("y")]))
    assert main(words(model, prompts, out)) == 0
    assert answers(out).keys() == {"x", "y"}, "the same line twice is one request"


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
places = st.sampled_from(
    [
        "custom_id", "id", "url", "body", "prompt", "messages", "system", "max_tokens", "n", "stop",
        "temperature", "top_k", "seed", "tools", "tool_choice", "logit_bias", "response_format",
        "grammar", "chat_template_kwargs", "stream_options", "reasoning_effort", "logprobs",
    ]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(places, anything, max_size=3), st.dictionaries(places, anything, max_size=2))
def test_anything_in_any_place_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, outer: dict[str, Any], inner: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    good = {"messages": [{"role": "user", "content": "hi"}]}
    path.write_text(json.dumps({**good, "body": {**good, **inner}, **outer}) + "\n", "utf-8")
    [line] = read_lines(path)
    try:
        ask = line.ask({"max_tokens": 5}, "s")
    except RequestRefused as refused:
        assert str(refused)
        written = json.dumps(error_line(line, str(refused)), ensure_ascii=False, allow_nan=False)
        data = json.loads(written.encode("utf-8"))
        assert data.get("custom_id", data["id"]) == line.id
    else:
        assert -1 <= ask.max_tokens < 1 << 63


@pytest.mark.parametrize("kind", ["txt", "csv"])
def test_bytes_that_are_no_utf8_end_only_their_line(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"p.{kind}"
    head = b"id,prompt\n" if kind == "csv" else b""
    rows = [b"1,one", b"\xff,two", b"3,\xfe", b"4,four"]
    path.write_bytes(head + b"\n".join(rows if kind == "csv" else [r[2:] for r in rows]))
    lines = list(read_lines(path))
    bad = [line.id for line in lines if line.error]
    assert len(lines) == 4 and "3" in bad and not {"1", "4"} & set(bad)
    assert lines[3].ask({}).messages[0]["content"] == "four"


def test_a_number_of_a_table_must_be_one(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"prompt,max_tokens,temperature\na,{'9' * 401},\nb,,nan\nc,,inf\nd,3,0.5\n")
    *bad, good = read_lines(path)
    assert [line.error for line in bad] == ["A column that needs a number has none."] * 3
    assert (good.ask({}).max_tokens, good.ask({}).sampling.temperature) == (3, 0.5)


# Failures.


def test_a_batch_whose_requests_all_failed_fails(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    prompts.write_bytes(b"\n".join([BAD["nan"], BAD["url"], openai("x", tools=5)]) + b"\n")
    assert main(words(model, prompts, out)) == 1
    assert "3 answers, 3 of them with an error" in capsys.readouterr().out
    assert main(words(model, prompts, out)) == 1
    said = capsys.readouterr().out
    assert "All 3 requests have a line" in said and "3 of them with an error" in said
    assert "are answered" not in said
    with prompts.open("ab") as file:
        file.write(openai("good") + b"\n")
    assert main(words(model, prompts, out)) == 0, "one has an answer"
    capsys.readouterr()
    assert main(words(model, prompts, out)) == 0
    assert "All 4 requests have a line" in (said := capsys.readouterr().out)
    assert "3 of them with an error" in said
    kept = [line for line in out.read_bytes().splitlines(True) if b'"error": null' in line]
    out.write_bytes(b"".join(kept))
    assert main(words(model, prompts, out)) == 0
    assert len(answers(out)) == 4, "those whose lines were removed were asked again"


# The file of answers.


def line_of(name: str) -> Line:
    return Line(name, 1, "digest")


def test_blank_lines_of_answers_are_passed_over(tmp_path: Path) -> None:
    out = AnswerFile(tmp_path / "out.jsonl")
    out.add(error_line(line_of("a"), "it failed"))
    out.close()
    for blank in (b"\n", b"\r\n", b"  \n\n", b"\n \n"):
        before = out.path.read_bytes() + blank
        out.path.write_bytes(before)
        again = AnswerFile(out.path)
        assert again.done.keys() == {"a"} == again.failed
        again.close()
        assert out.path.read_bytes() == before
    again = AnswerFile(out.path)
    again.add(error_line(line_of("b"), "it failed"))
    again.close()
    last = AnswerFile(out.path)
    assert last.done.keys() == {"a", "b"}
    last.close()


@pytest.mark.parametrize(
    "content",
    [b'{"theme": "dark"}', b"text", b'{"id": "a"}\n{"x', b"\0\0x", b"\0\0x\n",
     b"\0" * 600 + b"\x01\x02", b"\0" * 511 + b"text"],
)  # fmt: skip
def test_a_file_without_answers_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(BatchError, match="is no answer to a request"):
        AnswerFile(path)
    assert path.read_bytes() == content


def test_zeros_after_a_loss_of_power_are_cut(tmp_path: Path) -> None:
    out = AnswerFile(tmp_path / "out.jsonl")
    out.add(error_line(line_of("a"), "it failed"))
    out.close()
    whole = out.path.read_bytes()
    middle = b"\0" * 512 + b"text of an answer" + b"\0" * 900
    for rest in (b"\0" * 100, b'{"id": "b', b"{", b'{"id": "b\0\0', middle, b"\0\0text\0\0"):
        out.path.write_bytes(whole + rest)
        again = AnswerFile(out.path)
        assert again.done.keys() == {"a"}
        again.close()
        assert out.path.read_bytes() == whole
    for first in (b"\0" * 100, middle, b"\0" * 512 + b'text"}\n'):  # of the first answer
        out.path.write_bytes(first)
        AnswerFile(out.path).close()
        assert out.path.read_bytes() == b""


@pytest.mark.skipif(os.name == "nt", reason="devices and pipes of POSIX")
@pytest.mark.parametrize("what", ["device", "link", "pipe", "folder"])
def test_what_is_no_file_is_not_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    out, prompts = tmp_path / "out.jsonl", tmp_path / "p.txt"
    prompts.write_text("one\n")
    if what == "device":
        out = Path("/dev/full")
    elif what == "link":
        out.symlink_to("/dev/zero")
    elif what == "pipe":
        os.mkfifo(out)
    else:
        out.mkdir()
    assert main(words(model, prompts, out)) == 1
    assert "it is not a regular file" in capsys.readouterr().err
    assert not Path(f"{out.resolve()}.lock").exists()
    with pytest.raises(BatchError, match="not a regular file"):
        AnswerFile(out)


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
def test_a_pipe_is_no_file_of_requests(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p.jsonl")
    with pytest.raises(BatchError, match="not a regular file"):
        list(read_lines(tmp_path / "p.jsonl"))


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
@pytest.mark.parametrize("exists", [False, True])
def test_two_batches_do_not_write_one_file(
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    exists: bool,
) -> None:
    monkeypatch.setattr(batch, "_LOCK_S", 0.1)
    prompts, out = tmp_path / "p.txt", tmp_path / "out.jsonl"
    prompts.write_text("one\n")
    if exists:
        out.touch()
    (tmp_path / "link").symlink_to(out)
    (tmp_path / "folder").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    with FileLock(f"{out}.lock"):
        for other in (tmp_path / "link", tmp_path / "folder" / "out.jsonl", Path("link")):
            assert main(words(model, prompts, other)) == 1
            assert "Another outrider batch is writing" in capsys.readouterr().err
    assert out.exists() == exists and (not exists or not out.read_bytes())


@pytest.mark.skipif(os.name == "nt", reason="files are locked by name there")
def test_a_hard_link_leads_no_second_batch_to_a_file(tmp_path: Path) -> None:
    out, link = tmp_path / "out.jsonl", tmp_path / "link.jsonl"
    out.touch()
    os.link(out, link)
    first = AnswerFile(out)
    with pytest.raises(BatchError, match=r"Another outrider batch is writing .*link\.jsonl"):
        AnswerFile(link)
    first.close()
    AnswerFile(link).close()
