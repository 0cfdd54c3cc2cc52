"""The limits of tools, at their borders: names, values, files, schemas, results and messages."""

from __future__ import annotations

import asyncio
import json
import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from later import Later
from processes import NO_FILE
from waiting import WAIT_S

from backend.text import Text, text
from backend.tools.plain_text import arguments_shown, clean_json, read_arguments, shorten
from backend.tools.settings import Server, ToolSettings, read_foreign
from backend.tools.tool import Tool, offered

exceptions, host, transports, types, methods, results = map(
    Later,
    (
        "mcp.shared.exceptions", "backend.tools.host", "backend.tools.transports", "mcp_types",
        "mcp.types.methods", "backend.tools.results",
    ),
)  # fmt: skip

HIDDEN = "\u2022" * 6


def foreign(tmp_path: Path, content: Any) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


# Servers.


@pytest.mark.parametrize(
    "good",
    [
        {"name": "n" * 60},
        {"command": "c" * 32_768},
        {"args": ("a" * 32_768,)},
        {"env": {"K" * 32_768: "v" * 32_768}},
        {"cwd": "d" * 32_768},
        {"command": "", "url": "https://host/x", "headers": {"A-b_1": "v" * 32_768}},
        {"command": "", "url": "http://127.0.0.1:1/", "headers": {"A": "\t ~"}},
    ],
)
def test_what_is_within_the_limits_is_a_server(good: dict[str, Any]) -> None:
    made = Server(**{"name": "s", "command": "c", **good})
    assert Server.from_json(made.name, json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    "bad",
    [
        {"name": ""}, {"name": "  "}, {"name": "n" * 61}, {"name": "a\u200b"}, {"name": "a\nb\0"},
        {"command": ""}, {"url": "http://host"}, {"command": "c" * 32_769}, {"command": "a\0"},
        {"cwd": "d" * 32_769}, {"cwd": "\0"}, {"args": ("", "a" * 32_769)}, {"args": ("", "\0")},
        {"env": {"K": "v" * 32_769}}, {"env": {"K": "\0"}}, {"env": {"K" * 32_769: ""}},
        {"env": {"": "v"}}, {"env": {"A=B": "v"}}, {"env": {"\0": "v"}},
        {"command": "", "url": "ftp://host"}, {"command": "", "url": "http://"},
        {"command": "", "url": "http:///x"}, {"command": "", "url": "http://a\nb"},
        {"command": "", "url": "http://[::1"}, {"command": "", "url": "host"},
        {"headers": {"A": "v" * 32_769}}, {"headers": {"A B": "v"}}, {"headers": {"": "v"}},
        {"headers": {"A": "ä"}}, {"headers": {"A": "a\r\nB: c"}}, {"headers": {"A:": "v"}},
    ],
)  # fmt: skip
def test_what_is_beyond_them_is_none(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Server(**{"name": "s", "command": "c", **bad})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("args", ["a"] * 256), ("env", {str(n): "v" for n in range(256)}),
        ("off", [str(n) for n in range(256)]), ("always", {str(n): "v" for n in range(256)}),
    ],
)  # fmt: skip
def test_entries_have_a_limit(field: str, value: Any) -> None:
    assert len(getattr(Server.from_json("s", {"command": "c", field: value}), field)) == 256
    more = [*value, "x"] if isinstance(value, list) else {**value, "x": "v"}
    for bad in (more, "x", 3, [3] if isinstance(value, list) else {"x": []}):
        with pytest.raises(ValueError, match="damaged"):
            Server.from_json("s", {"command": "c", field: bad})


def test_an_entry_is_on_only_where_it_says_true() -> None:
    for value in (1, "true", None, [True]):
        assert not Server.from_json("s", {"command": "c", "is_on": value}).is_on
    assert Server.from_json("s", {"command": "c", "is_on": True}).is_on
    assert Server("s", "c", off=frozenset({"b", "a"})).to_json() == {
        "command": "c", "off": ["a", "b"],
    }  # fmt: skip


def test_what_makes_another_source() -> None:
    server = Server("s", "c", ("a",), {"K": "v"}, "/d")
    for same in ({"name": "t"}, {"headers": {"A": "b"}}, {"is_on": True}, {"off": frozenset("a")}):
        assert server.is_same_source(replace(server, **same))
    for other in ({"command": "d"}, {"args": ()}, {"env": {}}, {"cwd": "/e"}):
        assert not server.is_same_source(replace(server, **other))
    assert not Server("s", url="http://a").is_same_source(Server("s", url="http://b"))


def test_every_field_is_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USERPROFILE" if sys.platform == "win32" else "HOME", "/home/me")
    given = {"A": "1", "H": "host"}
    local = Server("s", "c${A}", ("${A:-2}", "${B:-2}", "${B}x"), {"K": "${env:A}"}, "~/${A}")
    found = local.expanded(given)
    assert (found.command, found.args, found.env) == ("c1", ("1", "2", "x"), {"K": "1"})
    assert found.cwd == "/home/me/1"
    web = Server("s", url="http://${H}/x", headers={"A": "b${A}"}).expanded(given)
    assert (web.url, web.headers) == ("http://host/x", {"A": "b1"})


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        (("--token", "a", "b"), f"c --token {HIDDEN} b"),
        (("--token=a", "b"), f"c --token={HIDDEN} b"),
        (("token", "a"), "c token a"),
        (("name=sk-1", "x=y"), f"c name={HIDDEN} x=y"),
        (("a1" * 16,), f"c {HIDDEN}"),
        (("a1" * 15 + "a",), f"c {'a1' * 15}a"),
        (("ab" * 16,), f"c {'ab' * 16}"),
        (("a b", "--n=1"), "c 'a b' --n=1"),
    ],
)
def test_arguments_are_shown_without_secrets(args: tuple[str, ...], shown: str) -> None:
    assert Server("s", "c", args).shown == shown


def test_addresses_are_shown_without_secrets() -> None:
    assert Server("s", url="http://host:1/p").shown == "http://host:1/p"
    assert Server("s", url="http://u:p@host/p?q=1#f").shown == f"http://{HIDDEN}@host/p?{HIDDEN}"


# Settings.


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    [("max_rounds", 1, 1000), ("limit_s", 1, 3600), ("result_chars", 1000, 1_000_000)],
)
def test_limits_of_the_kept_file_have_a_range(name: str, lowest: int, highest: int) -> None:
    for good in (lowest, highest):
        assert getattr(ToolSettings.from_json({"mcpServers": {}, name: good}), name) == good
    for bad in (lowest - 1, highest + 1, float(lowest), True, None, "5"):
        with pytest.raises((ValueError, TypeError)):
            ToolSettings.from_json({"mcpServers": {}, name: bad})
    default = ToolSettings.from_json({"mcpServers": {}})
    assert (default.max_rounds, default.limit_s, default.result_chars) == (25, 120, 20_000)


def test_servers_are_added_renamed_and_removed_in_order() -> None:
    a, b, c = (Server(name, "c", always={"t": "f"}) for name in "abc")
    settings = ToolSettings((a, b)).with_server(c)
    assert settings.servers == (a, b, c)
    assert settings.with_server(replace(a, name="c"), "a").servers == (replace(a, name="c"), b)
    assert settings.without_server("b").servers == (a, c)
    assert settings.without_server("x").servers == settings.servers
    assert settings.server("b") == b and settings.server("x") is None
    changed = settings.with_server(replace(b, cwd="/other")).servers
    assert [bool(server.always) for server in changed] == [True, False, True]


def test_a_foreign_file_has_limits(tmp_path: Path) -> None:
    servers = {f"s{n}": {"command": "c"} for n in range(64)}
    found = read_foreign(foreign(tmp_path, {"mcpServers": servers}))
    assert len(found.servers) == 64 and not found.remarks
    more = read_foreign(foreign(tmp_path, {"mcpServers": {**servers, "last": {"command": "c"}}}))
    assert more.servers == found.servers and more.remarks == (text("tools.too_many", limit=64),)
    whole = json.dumps({"mcpServers": servers})
    assert read_foreign(foreign(tmp_path, whole.ljust(1 << 20))).servers == found.servers
    with pytest.raises(ValueError, match="1"):
        read_foreign(foreign(tmp_path, whole.ljust((1 << 20) + 1)))
    with pytest.raises(ValueError, match=f"absent.json could not be read: {NO_FILE}"):
        read_foreign(tmp_path / "absent.json")


@pytest.mark.parametrize(
    "content",
    [
        {"servers": {"s": {"url": "http://h"}}},
        {"context_servers": {"s": {"serverUrl": "http://h"}}},
        {"mcp": {"servers": {"s": {"httpUrl": "http://h"}}}},
        {"mcpServers": {" s\n": {"url": "http://h", "type": "http", "command": None}}},
    ],
)
def test_forms_of_other_applications(tmp_path: Path, content: Any) -> None:
    assert read_foreign(foreign(tmp_path, content)).servers == (Server("s", url="http://h"),)


@pytest.mark.parametrize("entry", [{"type": "sse"}, {"transport": "sse"}, {"cwd": "${input:a}"}])
def test_what_cannot_be_taken_is_told(tmp_path: Path, entry: dict[str, str]) -> None:
    good = {"command": "c", "args": ["${env:A}", "${A:-${B}}"]}
    found = read_foreign(foreign(tmp_path, {"servers": {"g": good, "s": {**good, **entry}}}))
    assert [server.name for server in found.servers] == ["g"] and len(found.remarks) == 1
    kept = read_foreign(foreign(tmp_path, '{"servers": {"a": {"command": "//x/*y*/,]"}}} // z'))
    assert kept.servers[0].command == "//x/*y*/,]"


# Tools.


def test_descriptions_names_and_schemas_have_limits() -> None:
    def read(name: str = "n", description: str = "", **schema: Any) -> Tool:
        return Tool.read("s", name, description, schema)

    assert read(description="d" * 2000).description == "d" * 2000
    assert "1 of 2,001 characters" in read(description="d" * 2001).description
    assert not read("n" * 128).fault
    assert read("n" * 129).fault == text("tools.odd_name") == read("").fault
    head = len(json.dumps({"a": ""}))
    assert not read(a="x" * (16_000 - head)).fault
    large = read(a="x" * (16_001 - head))
    assert large.fault == text("tools.large_schema", n_byte=16_001, limit=16_000)
    assert large.schema == {} and large.definition("o")["function"]["parameters"] == {
        "type": "object", "properties": {},
    }  # fmt: skip


def test_levels_have_a_limit() -> None:
    def deep(n: int, inner: Any = 1) -> Any:
        for _ in range(n):
            inner = [inner]
        return inner

    assert clean_json(deep(31)) == deep(31)
    with pytest.raises(ValueError):
        clean_json(deep(32))
    assert clean_json({"a\u200b": ["b\u200b", None, 1.5, True]}) == {"a": ["b", None, 1.5, True]}
    assert read_arguments(json.dumps({"a": deep(127)})) == {"a": deep(127)}
    with pytest.raises(ValueError, match="too deeply"):
        read_arguments(json.dumps({"a": deep(128, [])}))
    assert arguments_shown('{"a":[1]}') == '{\n  "a": [\n    1\n  ]\n}'


def test_offered_names_are_as_long_as_permitted() -> None:
    tools = [Tool("s", "n" * n, "", {}) for n in (61, 62)]
    fits, cut = offered(tools)
    assert fits == "s__" + "n" * 61 and len(fits) == 64
    assert len(cut) == 64 and cut.startswith("s__" + "n" * 54 + "_") and cut != fits
    same = offered([Tool("a", "x y", "", {}), Tool("a", "x.y", "", {}), Tool("a", "z", "", {})])
    assert len(same) == 3 and "a__z" in same and "a__x_y" not in same


def test_shortened_text_says_what_is_missing() -> None:
    assert shorten("a" * 75 + "m" + "b" * 25, 100) == (
        "a" * 75 + "\n[... 1 of 101 characters are left out here ...]\n" + "b" * 25
    )


# Results, failures and messages.


def result(*content: Any, structured: Any = None) -> types.CallToolResult:
    return types.CallToolResult(content=list(content), structured_content=structured)


def test_a_result_becomes_text() -> None:
    said = types.TextContent(type="text", text="one")
    image = types.ImageContent(type="image", data="QUJDREVG" * 1000, mime_type="image/png")
    link = types.ResourceLink(type="resource_link", name="n", uri="file:///a")
    inner = types.TextResourceContents(uri="file:///b", text="two")
    blob = types.BlobResourceContents(uri="file:///c", blob="QUJD")
    embedded = [types.EmbeddedResource(type="resource", resource=r) for r in (inner, blob)]
    assert host.text_of(result(said, image, link, *embedded)) == (
        "one\n[image, image/png, 6,000 bytes, not shown]\n[resource n: file:///a]\ntwo\n"
        "[resource file:///c, 3 bytes, not shown]"
    )
    assert host.text_of(result(said, structured={"a": 1})) == "one"
    assert host.text_of(result(structured={"ä": 1})) == '{\n "ä": 1\n}'
    assert host.text_of(result(link, structured={"a": 1})).endswith('{\n "a": 1\n}')
    assert host.text_of(result()) == ""


def test_messages_in_a_list_are_read_one_by_one() -> None:
    said = [{"id": 1, "result": {}}, 7, {"method": "ping", "id": "a"}]
    read = results.read_lines(json.dumps(said).encode())
    assert [getattr(message, "id", None) for message in read] == [1, "a"]
    for line in (b"[1]", b"[starting]"):
        with pytest.raises(ValueError):
            results.read_lines(line)


def test_tools_may_be_named_by_their_keys_or_untold() -> None:
    listed = results.mended("tools/list", {"tools": {"t": {"description": "d"}, "u": 3}})
    assert [tool["name"] for tool in listed["tools"]] == ["t"]
    assert "tools" in results.mended("initialize", {})["capabilities"]
    assert results.mended("initialize", {"capabilities": {}})["capabilities"] == {}


ODD = (None, True, 0, -1, 1.5, "", "x", [], {}, "text", "image", "audio", "resource", "AAAA",
       "image/png", "file:///a", "resource_link", "\u00e9\ud800")  # fmt: skip
NAMES = ("type", "text", "data", "mimeType", "uri", "name", "resource", "blob", "annotations",
         "_meta", "title", "size", "content", "isError", "structuredContent", "resultType", "tools",
         "inputSchema", "description", "nextCursor", "ttlMs", "cacheScope")  # fmt: skip


def odd_value(chance: random.Random, level: int = 0) -> Any:
    kind = chance.random()
    if level > 3 or kind < 0.5:
        return chance.choice(ODD)
    if kind < 0.8:
        names = chance.choices(NAMES, k=chance.randint(0, 5))
        return {name: odd_value(chance, level + 1) for name in names}
    return [odd_value(chance, level + 1) for _ in range(chance.randint(0, 4))]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", "2026-07-28"])
@pytest.mark.parametrize(
    ("method", "key"), [("tools/call", "content"), ("tools/list", "tools")], ids=["call", "list"]
)
def test_every_answer_becomes_a_valid_one(version: str, method: str, key: str) -> None:
    """Whatever a server sends. No text of a part is lost, and no tool with a name."""
    for seed in range(300):
        chance = random.Random(seed)
        given = {name: odd_value(chance) for name in chance.choices(NAMES, k=3)}
        given[key] = [odd_value(chance) for _ in range(chance.randint(0, 4))]
        given[key].append({"type": "text", "text": f"said {seed}", "name": f"tool {seed}"})
        if given.get("resultType") == "input_required":
            continue
        made = results.mended(method, dict(given))
        methods.validate_server_result(method, version, made)
        if method == "tools/list":
            listed = types.ListToolsResult.model_validate(made, by_name=False)
            assert listed.tools[-1].name == f"tool {seed}"
        else:
            said = host.text_of(types.CallToolResult.model_validate(made, by_name=False))
            assert f"said {seed}" in said and len(made["content"]) >= len(given["content"])


def test_a_failure_has_one_line() -> None:
    fault = transports.ServerFault(text("tools.ended"))
    inner = BaseExceptionGroup("h", [fault])
    assert host.why(BaseExceptionGroup("g", [ValueError("x"), inner])) == "x"
    found = host.why(BaseExceptionGroup("g", [ValueError("x"), fault]))
    assert found == text("tools.ended") and isinstance(found, Text)
    assert host.why(transports.ServerFault()) == ""
    assert host.why(ValueError("one\ntwo")) == "one" and host.why(ValueError("  ")) == "ValueError"
    assert host.why(ValueError("x" * 400)) == "x" * 300
    assert host.why(ValueError("a\u200b\x1b[31mb")) == "ab"
    assert host.why(exceptions.MCPError(code=1, message="it is gone\nreally")) == "it is gone"
    odd = "Failed to parse JSON response: 2 validation errors for union[A, B]\nA.id"
    assert host.why(exceptions.MCPError(code=1, message=odd)) == text("tools.not_understood")


def test_messages_have_a_pace() -> None:
    def n_taken(pace: transports.Pace, n_byte: int, now_s: float) -> int:
        for n in range(20_000):
            try:
                pace.count(n_byte, now_s)
            except transports.ServerFault:
                return n
        return 20_000

    assert n_taken(transports.Pace(), 0, 0.0) == transports.N_MESSAGE_BURST == 10_000
    assert n_taken(transports.Pace(), 16 << 10, 0.0) == 5_000, "a long message counts as several"
    pace = transports.Pace()
    assert n_taken(pace, 0, 0.0) == 10_000
    assert math.isclose(n_taken(pace, 0, 2.0), 999, abs_tol=1)
    assert math.isclose(n_taken(pace, 0, 3.0), 499, abs_tol=1)
    assert n_taken(pace, 0, 1e6) == 10_000, "what was not used is not saved up"


def test_a_program_may_end_by_itself_when_its_input_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.tools.transports._ENDS_S", WAIT_S)
    script = "import sys; sys.stdin.read(); open(sys.argv[1], 'x').close()"
    server = Server("s", sys.executable, ("-c", script, str(tmp_path / "ended")))
    program = transports.Program(server)
    assert program.pid == 0 and program.last_words == ""

    async def run() -> None:
        async with program.streams():
            assert program.pid > 0

    asyncio.run(run())
    assert (tmp_path / "ended").exists()


# Commands.


def run_program(server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a server's program to its end and return what it printed."""
    monkeypatch.setattr("backend.tools.transports._shell_path", None)

    async def words() -> str:
        program = transports.Program(server)
        async with asyncio.timeout(WAIT_S), program.streams():
            await program.ended.wait()
        return str(program.last_words).strip()

    return asyncio.run(words())


@pytest.fixture
def nvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of node, which only the person's shell knows; the rest is the desktop's."""
    folder = tmp_path / ".nvm" / "bin"
    folder.mkdir(parents=True)
    for name, code in (("npx", "#!/usr/bin/env node\n"), ("node", "#!/bin/sh\necho node $1 $2\n")):
        (folder / name).write_text(code)
        (folder / name).chmod(0o755)
    shell = tmp_path / "shell"
    shell.write_text(
        f'#!/bin/sh\necho Welcome\nPATH="{folder}:/usr/bin:/bin"\necho $* > {tmp_path}/asked\n'
        'eval "$2"\nsleep 60\n'
    )
    shell.chmod(0o755)
    for name, value in (("PATH", "/usr/bin:/bin"), ("SHELL", str(shell)), ("HOME", str(tmp_path))):
        monkeypatch.setenv(name, value)
    return folder


@pytest.mark.skipif(sys.platform == "win32", reason="there are no login shells")
def test_a_command_is_found_as_in_a_terminal(nvm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B43: by its name in the shell's PATH; by its path with its own folder in the child's PATH."""
    by_name = run_program(Server("s", "npx", ("-y",)), monkeypatch)
    assert by_name == f"node {nvm}/npx -y"
    assert (nvm.parents[1] / "asked").read_text().startswith("-ilc ")
    monkeypatch.setenv("SHELL", "/nonexistent")
    for command in (f"{nvm}/npx", "~/.nvm/bin/npx"):
        assert run_program(Server("s", command, ("-y",)), monkeypatch) == by_name
    server = Server("s", "./npx", ("-y",), cwd=str(nvm))
    assert run_program(server, monkeypatch) == by_name
    server = Server("s", "npx", ("-y",), env={"PATH": f"{nvm}:/bin"})
    assert run_program(server, monkeypatch) == by_name


@pytest.mark.skipif(sys.platform == "win32", reason="there are no login shells")
def test_what_cannot_be_started_is_named_with_its_place(
    nvm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nvm / "plain").write_text("x")
    for server, said in (
        (Server("s", "npz"), "npz was not found. Enter its whole path, or install it. These "
         f"folders were searched: {nvm}, /usr/bin, /bin."),
        (Server("s", "/x/npx"), "There is no file /x/npx."),
        (Server("s", f"{nvm}/plain"), f"{nvm}/plain is no program: the file may not be executed."),
        (Server("s", "npx", cwd="/x"), "Its folder /x does not exist."),
    ):  # fmt: skip
        with pytest.raises(transports.ServerFault) as caught:
            run_program(server, monkeypatch)
        assert caught.value.args[0] == said
