"""The process that runs the servers of tools: good servers, bad servers, and its end."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from factory import make_png
from fake_hub import reply
from tool_server import group
from waiting import WAIT_S, until

from backend.protocol.messages import Decoder, Message, encode
from backend.system import children

SERVER = Path(__file__).resolve().parents[1] / "tool_server.py"


class Host:
    """A host and its messages. Names of servers are `name` and a suffix."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            children.command("backend.tools.host", *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.name = ""
        self.said: list[Message] = []
        self._inbox: queue.SimpleQueue[Message] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        decoder = Decoder()
        assert self.process.stdout is not None
        while data := self.process.stdout.read(1 << 16):
            for message in decoder.feed(data):
                self._inbox.put(message)

    def tell(self, kind: str, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode({"type": kind, **fields}))

    def start(self, mode: str, *, name: str = "") -> None:
        config = {"command": sys.executable, "args": [str(SERVER), mode]}
        self.tell("start", server=self.name + name, config=config)

    def call(self, tool: str, number: int = 1, name: str = "", **arguments: Any) -> None:
        limit_s = arguments.pop("limit_s", WAIT_S)
        self.tell(
            "call", id=number, server=self.name + name, tool=tool, arguments=arguments,
            limit_s=limit_s, result_chars=1000,
        )  # fmt: skip

    def wait(self, is_it: Callable[[Message], bool]) -> Message:
        """Return the next message that meets a condition, none of an earlier test's server."""
        while True:
            message = self._inbox.get(timeout=WAIT_S)
            if message.get("server", self.name).startswith(self.name):
                self.said.append(message)
                if is_it(message):
                    return message

    def wait_state(self, *states: str, name: str = "") -> Message:
        """Return the news that a server is in one of these states. No other may end its start."""
        found = self.wait(
            lambda m: (
                m["type"] == "server"
                and m["server"] == self.name + name
                and m["state"] != "starting"
            )
        )
        assert found["state"] in states, found
        return found

    def wait_result(self, number: int = 1) -> Message:
        return self.wait(lambda m: m["type"] == "result" and m["id"] == number)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(WAIT_S)


@pytest.fixture(scope="module")
def shared() -> Iterator[Host]:
    """Share one host between most tests, because its start takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUR_WORD", "secret")
        made = Host()
    yield made
    made.close()


@pytest.fixture
def host(shared: Host) -> Iterator[Host]:
    """Return the shared host with a server name that no other test uses."""
    shared.name = f"server {time.monotonic_ns()}"
    shared.said.clear()
    yield shared
    for name in ("", "good", "other"):
        shared.tell("stop", server=shared.name + name)


@pytest.fixture
def own_host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """Return a host for one test, with the arguments that the test names."""
    made = Host(*getattr(request, "param", ()))
    made.name = "it"
    yield made
    made.process.kill()
    made.process.wait()


@pytest.mark.parametrize("mode", ["plain", "mcp"])
def test_a_program_is_asked_and_answers(host: Host, mode: str) -> None:
    host.start(mode)
    tools = {tool["name"]: tool for tool in host.wait_state("ready")["tools"]}
    assert "text" in tools["echo"]["schema"]["properties"]
    host.call("echo", 1, text="Grüße")
    host.call("slow", 2, seconds=0.1)
    host.call("fail", 3)
    results = {}
    while len(results) < 3:
        found = host.wait(lambda m: m["type"] == "result")
        results[found["id"]] = found
    assert (results[1]["text"], results[1]["is_error"]) == ("Grüße", False)
    assert (results[2]["text"], results[3]["is_error"]) == ("done", True)
    assert "it went wrong" in results[3]["text"]
    progress = next(message for message in host.said if message["type"] == "progress")
    assert progress == {"type": "progress", "id": 2, "share": 0.25, "words": "a quarter"}


def test_a_tools_own_json_is_passed_on_as_it_is(host: Host, tmp_path: Path) -> None:
    """Its parameters, arguments and results are never taken for a sentence of the catalogue."""
    host.start("plain", name="good")
    host.wait_state("ready", name="good")
    host.start("plain")
    tools = {tool["name"]: tool for tool in host.wait_state("ready")["tools"]}
    assert tools["keys"]["schema"] == {
        "type": "object",
        "properties": {
            "text_id": {"type": "string"}, "values": {"type": "object"},
            "text": {"type": "string"},
        },
        "required": ["text_id", "values", "text"],
    }  # fmt: skip
    given = {"text_id": "tools.ended", "values": {}, "text": "Delete all."}
    host.call("keys", **given)
    assert json.loads(host.wait_result()["text"]) == given
    content = {"a": given, "text_id": None, "pairs": [["a", 1]]}
    result = {"content": [], "structuredContent": content}
    answer = {"jsonrpc": "2.0", "id": "ID", "result": result}
    (tmp_path / "answer").write_text(json.dumps(answer))
    host.call("file", path=str(tmp_path / "answer"))
    assert json.loads(host.wait_result()["text"]) == content
    host.call("echo", name="good", text="still here")
    assert host.wait_result()["text"] == "still here"


def test_an_address_is_asked_with_its_headers(host: Host, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    server = subprocess.Popen([sys.executable, str(SERVER), "http", str(port_file)])
    try:
        until(port_file.exists)
        url = f"http://127.0.0.1:{port_file.read_text()}/mcp"
        host.tell("start", server=host.name, config={"url": url})
        assert "401" in host.wait_state("failed")["sentence"]
        host.tell(
            "start", server=host.name, config={"url": url, "headers": {"Authorization": "SECRET"}}
        )
        assert [t["name"] for t in host.wait_state("ready")["tools"]] == ["echo", "slow", "fail"]
        host.call("echo", text="x")
        assert host.wait_result()["text"] == "x"
    finally:
        server.kill()
        server.wait()


class WebServer:
    """A server of tools at an address, within the test. `restart` loses its sessions."""

    def __init__(self) -> None:
        self.sessions: set[str] = set()
        self.n_call = 0
        self.lost: tuple[int, bytes] = 404, b""  # the answer where a session is not known
        self.fault = ""  # of the next call: "cut" or "long"
        self.port = 0
        self.open()

    def open(self) -> None:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.answer(self, json.loads(body))

            def do_GET(self) -> None:
                reply(self, 405, {}, b"")

            do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.sessions.clear()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def answer(self, to: BaseHTTPRequestHandler, asked: dict[str, Any]) -> None:
        method, params = asked["method"], asked.get("params", {})
        session = to.headers.get("Mcp-Session-Id", "")
        if method == "initialize":
            session = f"s{time.monotonic_ns()}"
            self.sessions.add(session)
            result: dict[str, Any] = {
                "protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
            }  # fmt: skip
        elif session not in self.sessions:
            status, words = self.lost
            error = {"code": -32000, "message": words.decode()}
            said = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
            kind = {"Content-Type": "application/json"}
            reply(to, status, kind if words else {}, said if words else b"")
            return
        elif "id" not in asked:
            reply(to, 202, {}, b"")
            return
        elif method == "tools/list":
            result = {"tools": [{"name": "echo"}]}
        else:
            self.n_call += 1
            fault, self.fault = self.fault, ""
            if fault == "cut":
                to.close_connection = True
                return
            said = "x" * (33 << 20) if fault == "long" else params["arguments"]["text"]
            result = {"content": [{"type": "text", "text": said}]}
        data = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        with contextlib.suppress(OSError):
            reply(
                to, 200, {"Content-Type": "application/json", "Mcp-Session-Id": session}, data
            )  # fmt: skip


@pytest.fixture
def web_server() -> Iterator[WebServer]:
    made = WebServer()
    yield made
    made.close()


@pytest.fixture
def dead_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks://127.0.0.1:9/")


def test_no_proxy_stands_before_this_machine(
    dead_proxy: None, own_host: Host, web_server: WebServer
) -> None:
    for address in ("127.0.0.1", "localhost"):
        own_host.name = address
        url = web_server.url.replace("127.0.0.1", address)
        own_host.tell("start", server=address, config={"url": url})
        own_host.wait_state("ready")


@pytest.mark.parametrize(
    "lost",
    [(404, b""), (400, b"Bad Request: No valid session ID provided"), (404, b"Session not found"),
     None],
    ids=["404", "no valid session", "not found", "port closed"],
)  # fmt: skip
def test_a_server_that_was_restarted_is_begun_again(
    host: Host, web_server: WebServer, lost: tuple[int, bytes] | None
) -> None:
    """The call that notices it was not taken, so it is made again, once."""
    host.tell("start", server=host.name, config={"url": web_server.url})
    host.wait_state("ready")
    web_server.close()
    web_server.lost = lost or web_server.lost
    if lost is not None:
        web_server.open()
    host.call("echo", text="x")
    if lost is None:
        host.wait(lambda m: m["type"] == "server" and m["state"] == "starting")
        web_server.open()
    result = host.wait_result()
    assert (result["text"], result["is_error"], web_server.n_call) == ("x", False, 1)
    states = [m["state"] for m in host.said if m["type"] == "server"]
    assert states[-2:] == ["starting", "ready"]


def test_a_call_that_may_have_run_is_not_made_again(host: Host, web_server: WebServer) -> None:
    host.tell("start", server=host.name, config={"url": web_server.url})
    host.wait_state("ready")
    web_server.fault = "cut"
    host.call("echo", text="x")
    result = host.wait_result()
    assert result["is_unsure"] and "may have run" in result["text"] and web_server.n_call == 1
    host.wait_state("ready")  # the connection is begun again
    host.call("echo", 2, text="y")
    assert host.wait_result(2)["text"] == "y"


@pytest.mark.parametrize("own_host", [("4",)], indirect=True, ids=["checks each 2 seconds"])
def test_a_server_that_is_gone_is_not_said_to_be_ready(
    own_host: Host, web_server: WebServer
) -> None:
    """Nobody calls it: it is noticed by itself."""
    own_host.tell("start", server="it", config={"url": web_server.url})
    own_host.wait_state("ready")
    web_server.close()
    own_host.wait(lambda m: m["type"] == "server" and m["state"] == "starting")
    assert "connection attempts failed" in own_host.wait_state("failed")["sentence"]


def test_an_answer_that_is_too_long_ends_its_call_only(
    host: Host, web_server: WebServer, tmp_path: Path
) -> None:
    host.tell("start", server=host.name, config={"url": web_server.url})
    host.wait_state("ready")
    web_server.fault = "long"
    host.call("echo", text="x")
    assert "at most 32.0 MiB are taken" in host.wait_result()["text"]
    host.call("echo", 2, text="y")
    assert host.wait_result(2)["text"] == "y"
    host.start("plain", name="good")
    host.wait_state("ready", name="good")
    body = json.dumps({"content": [{"type": "text", "text": "x" * (33 << 20)}]})
    for number, line in enumerate((
        f'{{"jsonrpc":"2.0","id":"ID","result":{body}}}', f'{{"result":{body},"id":"ID"}}'), 3
    ):  # fmt: skip
        (tmp_path / "answer").write_text(line)
        host.call("file", number, name="good", path=str(tmp_path / "answer"))
        assert "at most 32.0 MiB are taken" in host.wait_result(number)["text"]
    host.call("echo", 9, name="good", text="z")
    assert host.wait_result(9)["text"] == "z"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("crash", "has ended"),
        ("floods", "far too many messages"),
        ("garbage", "far too many messages"),
        ("long", "more than 128 MiB"),
    ],
)
def test_a_bad_server_fails_alone(host: Host, mode: str, words: str) -> None:
    host.start("plain", name="good")
    host.wait_state("ready", name="good")
    host.start(mode)
    failed = host.wait_state("failed")
    assert words in failed["sentence"]
    if mode == "crash":
        assert failed["last_words"] == "There is no such folder."
    until(lambda: not group(failed["pid"]))
    host.call("add", name="good", a=1, b=2)
    assert host.wait_result()["text"] == "3"


def test_a_program_that_is_not_there_is_named(host: Host) -> None:
    host.tell("start", server=host.name, config={"command": "no-such-program"})
    assert "no-such-program" in host.wait_state("failed")["sentence"]


@pytest.mark.parametrize("own_host", [("2",)], indirect=True, ids=["2 seconds"])
def test_a_server_that_hangs_at_its_start_is_given_up(own_host: Host) -> None:
    own_host.start("hang")
    failed = own_host.wait_state("failed")
    assert "not ready after 2 seconds" in failed["sentence"]
    assert not failed["pid"] or not group(failed["pid"])  # 0: a busy machine has not started it


def test_a_server_that_hangs_can_be_stopped(host: Host) -> None:
    host.start("hang")
    host.start("hang", name="other")
    host.tell("stop", server=host.name)
    host.wait_state("off")
    assert [m["server"] for m in host.said if m["state"] == "off"][-1:] == [host.name]


def test_a_server_that_ends_in_a_call_is_told_with_its_last_words(host: Host) -> None:
    host.start("exits")
    host.wait_state("ready")
    host.call("echo", text="x")
    result = host.wait_result()
    failed = next((m for m in host.said if m.get("state") == "failed"), None)
    failed = failed or host.wait_state("failed")
    assert result["is_error"]
    assert failed["last_words"] == "I had enough"
    host.start("plain")
    host.wait_state("ready")


def test_a_changed_list_of_tools_is_read_again(host: Host) -> None:
    host.start("changes")
    before = host.wait_state("ready")["tools"]
    host.call("echo", text="x")
    after = host.wait_state("ready")["tools"]
    assert [t["name"] for t in after] == [*(t["name"] for t in before), "new"]


def test_a_call_is_stopped_and_a_slow_one_ended(host: Host) -> None:
    host.start("mcp")
    host.wait_state("ready")
    host.call("slow", 1, seconds=600)
    host.wait(lambda m: m["type"] == "progress")
    host.tell("cancel", id=1)
    assert host.wait_result(1)["text"] == "The call was stopped."
    host.call("slow", 2, seconds=600, limit_s=0.5)
    assert "longer than" in host.wait_result(2)["text"]
    host.call("echo", 3, text="still here")
    assert host.wait_result(3)["text"] == "still here"


ODD_PARTS = [
    {"type": "text", "text": "size 4844", "annotations": {"priority": 2}},
    {"type": "video", "data": "AAAA", "mimeType": "video/mp4"},
    {"type": "image", "data": "iVBORw0KGgo="}, {"type": "text", "text": None}, {"type": "audio"},
    {"type": "resource", "resource": {"text": "inside"}}, {"type": "resource"}, "a word", 7, None,
    {"type": "resource_link", "uri": "file:///a", "size": "large"}, {"no": "type"},
    {"type": "text", "text": "done", "_meta": {"x": 1}, "unknown": True},
]  # fmt: skip
SAID = [
    "size 4844", "[a part that cannot be shown: kind 'video', video/mp4, 3 bytes]",
    "[image, image/png, 8 bytes, not shown: file-1 is a damaged image.]",
    "[a part that cannot be shown: kind 'text']",
    "[a part that cannot be shown: kind 'audio']", "inside",
    "[a part that cannot be shown: kind 'resource']", "a word",
    "[a part that cannot be shown: JSON 7]", "[a part that cannot be shown: JSON null]",
    "[resource file:///a: file:///a]",
    '[a part that cannot be shown: JSON {\n "no": "type"\n}]', "done",
]  # fmt: skip


def test_what_can_be_read_of_a_result_is_kept(host: Host, tmp_path: Path) -> None:
    """B45: one part that is not known, or one odd field, loses no other part."""
    host.start("plain")
    host.wait_state("ready")
    answers: list[tuple[Any, str]] = [
        ({"content": ODD_PARTS, "isError": None}, "\n".join(SAID)),
        ({"content": "all of it"}, "all of it"), ({}, ""), ({"content": None}, ""),
        ({"content": {"type": "text", "text": "alone"}}, "alone"), ("a string", "a string"),
        (["a", {"type": "text", "text": "list"}], "a\nlist"), (None, ""),
        ({"structuredContent": {"a": 1}}, '{\n "a": 1\n}'),
        ({"content": [], "structuredContent": [1], "_meta": 3}, "[\n 1\n]"),
        ({"toolResult": "old"}, "old"), ({"task": 7, "_meta": {}}, '{\n "task": 7\n}'),
        ({"content": [{"type": "text", "text": 5}]}, "5"),
        ({"content": [{"type": "image", "data": "data:image/png;base64,iVBORw0KGgo="}]},
         "[image, image/png, 8 bytes, not shown: file-1 is a damaged image.]"),
    ]  # fmt: skip
    for number, (result, said) in enumerate(answers, 1):
        message = {"id": "ID", "result": result}
        (tmp_path / "answer").write_text(json.dumps(message))
        host.call("file", number, path=str(tmp_path / "answer"))
        found = host.wait_result(number)
        assert (found["text"], found["is_error"]) == (said, False), result
    for number, error in enumerate(("no", {"message": "no"}, {"code": "x", "message": "no"}), 50):
        (tmp_path / "answer").write_text(json.dumps({"jsonrpc": "2.0", "id": "ID", "error": error}))
        host.call("file", number, path=str(tmp_path / "answer"))
        found = host.wait_result(number)
        assert (found["text"], found["is_error"]) == ("The call failed: no", True), error


def test_the_pictures_of_a_result_are_files(host: Host, tmp_path: Path) -> None:
    """B44: one of 9 MiB, too. What is no picture is named, with the reason, and loses no other."""
    host.start("plain")
    host.wait_state("ready")
    small = make_png(np.zeros((40, 40, 3), np.uint8))
    noise = np.random.default_rng(1).integers(0, 256, (1780, 1780, 3), np.uint8)
    large = make_png(noise)
    assert len(large) > 9 << 20
    pictures = [base64.b64encode(data).decode() for data in (small, b"GIF89a broken", large)]
    content = [{"type": "text", "text": "page"}] + [
        {"type": "image", "data": data, "mimeType": "image/png"} for data in pictures
    ]
    blob = {"uri": "file:///shot", "blob": pictures[0], "mimeType": "image/png"}
    content.append({"type": "resource", "resource": blob})
    result = {"content": content}
    (tmp_path / "answer").write_text(json.dumps({"jsonrpc": "2.0", "id": "ID", "result": result}))
    host.call("file", path=str(tmp_path / "answer"))
    found = host.wait_result()
    assert [(file["name"], file["kind"]) for file in found["files"]] == [
        ("file-1", "image"), ("file-2", "image"), ("file-3", "image"),
    ]  # fmt: skip
    data = [base64.b64decode(file["data"]) for file in found["files"]]
    assert data[0] == data[2] == small and len(data[1]) <= 8 << 20
    lines = found["text"].splitlines()
    assert lines[:2] == ["page", f"[image, image/png, {len(small):,} bytes]"]
    assert lines[2].startswith("[image, image/png, 13 bytes, not shown: ")
    assert lines[3:] == [
        f"[image, image/png, {len(large):,} bytes]",
        f"[resource file:///shot, {len(small):,} bytes]",
    ]


def test_one_odd_tool_hides_no_other(host: Host) -> None:
    """Odd fields of a tool, of the list and of the server's greeting are left out."""
    host.start("odd")
    found = host.wait_state("ready")
    assert [tool["name"] for tool in found["tools"]] == ["a", "b", "c", "echo"]
    assert found["tools"][0]["schema"] == {"type": "object"}
    host.call("echo", text="\u00fc")
    assert host.wait_result()["text"] == "\u00fc"


def test_a_result_is_limited_and_cleaned(host: Host, tmp_path: Path) -> None:
    host.start("plain")
    host.wait_state("ready")
    said = "\x1b[31mred\x1b[0m\u202e\u200b" + "y" * 5000 + "end"
    answer = {"jsonrpc": "2.0", "id": "ID", "result": {"content": [{"type": "text", "text": said}]}}
    (tmp_path / "answer").write_text(json.dumps(answer))
    host.call("file", path=str(tmp_path / "answer"))
    result = host.wait_result()
    assert result["text"].startswith("redyyy") and result["text"].endswith("end")
    assert len(result["text"]) < 1100 and result["n_char"] == 5006


@pytest.mark.parametrize(("mode", "n"), [("many", 256), ("pages", 20), ("none", 0)])
def test_a_list_of_tools_has_an_end(host: Host, mode: str, n: int) -> None:
    host.start(mode)
    tools = host.wait_state("ready")["tools"]
    assert [tool["name"] for tool in tools] == [f"t{i}" for i in range(n)]


def test_what_is_no_request_is_passed_over(host: Host) -> None:
    host.tell("call", server="x")
    host.tell("start", server=host.name, config={})
    host.tell("start", server=host.name, config=[])
    host.tell("cancel", id=12345)
    host.tell("unknown")
    host.tell("ping", id=7)
    assert host.wait(lambda m: m.get("type") != "server") == {"type": "pong", "id": 7}


def test_a_server_that_is_not_ready_is_not_called(host: Host) -> None:
    host.start("hang")
    for name in ("", "never started"):
        host.call("echo", name=name, text="x")
        result = host.wait_result()
        assert result["is_error"] and "is not running" in result["text"]


def test_a_server_is_started_anew_in_its_place_and_stopped_once(host: Host) -> None:
    host.start("plain")
    before = host.wait_state("ready")["pid"]
    host.start("plain")
    after = host.wait_state("ready")["pid"]
    assert not group(before) and group(after) == [after]
    host.tell("stop", server=host.name)
    off = host.wait_state("off")
    assert (off["tools"], off["sentence"], off["last_words"]) == ([], "", "")
    assert not group(after)
    host.tell("stop", server=host.name)
    host.tell("ping", id=8)
    host.wait(lambda m: m["type"] == "pong")
    assert [m["state"] for m in host.said if m["type"] == "server"][-1] == "off"
    assert sum(m.get("state") == "off" and m["server"] == host.name for m in host.said) == 1


def test_a_program_has_its_folder_its_variables_and_none_of_ours(
    host: Host, tmp_path: Path
) -> None:
    """What it prints that is no message counts as its last words; three lines are told."""
    code = (
        "import os, sys; print('told before')\n"
        "print('one\\n\\n', os.getcwd(), '\\n', os.environ['A_WORD'], end='', file=sys.stderr)"
        "\nprint(*sorted({'OUR_WORD', 'PATH'} & os.environ.keys()), file=sys.stderr)"
    )
    config = {
        "command": sys.executable, "args": ["-c", code], "cwd": str(tmp_path),
        "env": {"A_WORD": "said "},
    }  # fmt: skip
    host.tell("start", server=host.name, config=config)
    words = host.wait_state("failed")["last_words"].split("\n")
    assert len(words) == 3 and "".join(words).find("OUR_WORD") < 0
    assert {str(tmp_path), "said PATH"} <= {word.strip() for word in words}


@pytest.mark.parametrize(
    ("progress", "share"),
    [({"progress": 5, "total": 4}, 1), ({"progress": -1, "total": 4}, 0), ({"progress": 1}, None),
     ({"progress": 1, "total": 0}, None), ({"progress": 1, "total": -2}, None)],
)  # fmt: skip
def test_progress_is_a_share_or_unknown(
    host: Host, tmp_path: Path, progress: dict[str, int], share: float | None
) -> None:
    told = progress_told(host, tmp_path / "answer", 1, message="w" * 300, **progress)
    assert told == [{"type": "progress", "id": 1, "share": share, "words": "w" * 200}]


def test_a_flood_of_progress_is_thinned(host: Host, tmp_path: Path) -> None:
    told = progress_told(host, tmp_path / "answer", 1000, progress=1)
    assert 1 <= len(told) < 200


def progress_told(host: Host, path: Path, n: int, **params: Any) -> list[Message]:
    """Have a server send its progress so often within a call. Return what is told of it."""
    host.start("plain")
    host.wait_state("ready")
    params["progressToken"] = "ID"
    note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
    result = {"content": [{"type": "text", "text": "done"}]}
    lines = [*[note] * n, {"jsonrpc": "2.0", "id": "ID", "result": result}]
    path.write_text("\n".join(map(json.dumps, lines)))
    host.call("file", path=str(path))
    assert host.wait_result()["text"] == "done"
    return [m for m in host.said if m["type"] == "progress"]


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_all_servers_end_with_the_host(own_host: Host, how: str) -> None:
    """Also a server that ignores the end of its input and SIGTERM ends, with its child."""
    own_host.start("stubborn")
    pid = own_host.wait_state("ready")["pid"]
    until(lambda: len(group(pid)) == 2)
    if how == "closed":
        own_host.close()
    else:  # the window does this when the host is stuck
        own_host.process.kill()
        if os.name == "posix":  # a job object of Windows ends by itself
            os.killpg(pid, 9)
    until(lambda: not group(pid))
