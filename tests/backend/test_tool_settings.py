"""Servers of tools: the forms of other applications, the kept file, secrets, names and sizes."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backend.protocol.chat import ChatOptions
from backend.tools.plain_text import arguments_shown, clean, read_arguments, revealed, shorten
from backend.tools.settings import Server, ToolSettings, is_foreign, kept_file, read_foreign
from backend.tools.tool import NAME_CHARS_MAX, Tool, offered

CLAUDE = {
    "mcpServers": {
        "files": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/texts"],
            "env": {"API_KEY": "sk-0123456789", "DEBUG": 1},
        }
    },
    "theme": "dark",
}
CURSOR = {"mcpServers": {"web": {"url": "https://example.org/mcp", "headers": {"X-Key": "abc"}}}}
VS_CODE = """{
  // the servers of this folder
  "inputs": [{"id": "key", "type": "promptString", "password": true}],
  "servers": {
    "web": {"type": "http", "url": "https://example.org/mcp//x"}, /* one */
    "asks": {"command": "x", "env": {"KEY": "${input:key}"}},
    "old": {"type": "sse", "url": "https://example.org/sse"},
  },
}"""


def foreign(tmp_path: Path, content: object) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def test_other_applications_files_are_read_and_their_servers_are_off(tmp_path: Path) -> None:
    (files,) = read_foreign(foreign(tmp_path, CLAUDE)).servers
    assert (files.name, files.command, files.args[0], files.is_on) == ("files", "npx", "-y", False)
    assert files.env == {"API_KEY": "sk-0123456789", "DEBUG": "1"}
    (web,) = read_foreign(foreign(tmp_path, CURSOR)).servers
    assert (web.url, dict(web.headers)) == ("https://example.org/mcp", {"X-Key": "abc"})
    found = read_foreign(foreign(tmp_path, VS_CODE))
    assert [server.url for server in found.servers] == ["https://example.org/mcp//x"]
    assert len(found.remarks) == 2
    assert "asks" in found.remarks[0] and "old" in found.remarks[1]


def test_files_of_servers_are_known_by_their_names() -> None:
    ours = ("mcp.json", ".mcp.json", "claude_desktop_config.json", "cline_mcp_settings.json")
    others = ("package.json", "chats.json", "mcp.txt", "tcmcp.json")
    assert [is_foreign(Path(name)) for name in ours + others] == [True] * 4 + [False] * 4


@pytest.mark.parametrize("name", ["always", "is_on", "off"])
def test_a_foreign_file_gives_no_permission(tmp_path: Path, name: str) -> None:
    entry = {"command": "x", "is_on": True, "always": {"t": "f"}, "off": ["t"]}
    (server,) = read_foreign(foreign(tmp_path, {"mcpServers": {"s": entry}})).servers
    assert not getattr(server, name)


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", "[" * 100_000, '{"a":' * 50_000, "/*" * 100_000,
        '{"mcpServers": {}}',
        '{"mcpServers": []}', '{"mcpServers": {"a": 3}}', '{"mcpServers": {"a": {"command": 3}}}',
        '{"mcpServers": {"a": {"command": "x", "url": "http://y"}}}',
        '{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}',
        '{"mcpServers": {"": {"command": "x"}}}', '{"mcpServers": {"a": {"command": "x\\u0000"}}}',
        '{"mcpServers": {"a": {"command": "x", "args": "-y"}}}',
        '{"mcpServers": {"a": {"command": "x", "env": {"A=B": "c"}}}}',
        '{"mcpServers": {"a": {"url": "http://y", "headers": {"A": "b\\r\\nC: d"}}}}',
        '{"mcp": {"mcp": {}}}', '"' * 99_999, "x" * (2 << 20),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path: Path, content: str) -> None:
    with pytest.raises(ValueError) as refused:
        read_foreign(foreign(tmp_path, content))
    sentence = str(refused.value)
    assert sentence.endswith(".") and "\n" not in sentence and len(sentence) < 150


def test_settings_are_kept_privately_and_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "tools.json"
    server = Server("s", "x", ("-y",), {"KEY": "v"}, is_on=True, off=frozenset({"t"}))
    settings = ToolSettings((server, Server("w", url="http://y/")), max_rounds=3)
    assert kept_file(path).save(settings.to_json()) == ""
    if os.name == "posix":  # on Windows by inheritance from the user's folder
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert kept_file(path).load(ToolSettings.from_json, ToolSettings()) == (settings, "")
    path.write_text('{"mcpServers": {"s": {"command": 3}}}')
    loaded, sentence = kept_file(path).load(ToolSettings.from_json, ToolSettings())
    assert loaded == ToolSettings() and "no server is used" in sentence


def test_a_changed_command_loses_its_permissions() -> None:
    server = Server("s", "x", always={"t": "f"})
    settings = ToolSettings((Server("a", "a"), server, Server("b", "b")))
    renamed = settings.with_server(replace(server, name="n"), instead_of="s")
    assert [s.name for s in renamed.servers] == ["a", "n", "b"]
    assert renamed.servers[1].always
    changed = settings.with_server(replace(server, args=("--all",)))
    assert not changed.servers[1].always


@pytest.mark.parametrize(
    ("server", "secrets", "shown"),
    [
        (
            Server("s", "x", ("--api-key", "hunter2", "/a/b c")),
            ["hunter2"],
            ["/a/b c", "--api-key"],
        ),
        (Server("s", "x", ("--token=hunter2", "sk-abc")), ["hunter2", "sk-abc"], ["--token"]),
        (Server("s", "x", env={"KEY": "hunter2"}), ["hunter2"], ["x"]),
        (
            Server("s", url="https://me:hunter2@example.org/mcp?key=hunter2"),
            ["hunter2"],
            ["example.org/mcp"],
        ),
    ],
)
def test_secrets_are_not_shown(server: Server, secrets: list[str], shown: list[str]) -> None:
    assert not any(secret in server.shown for secret in secrets)
    assert all(words in server.shown for words in shown)


def test_variables_of_the_environment_are_filled_in() -> None:
    server = Server("s", "x", ("${env:A}", "${B:-c}", "${A}"), {"K": "a${A}"})
    filled = server.expanded({"A": "1"})
    assert (filled.args, filled.env) == (("1", "c", "1"), {"K": "a1"})


def tool(server: str = "s", name: str = "t", description: str = "", **schema: Any) -> Tool:
    return Tool.read(server, name, description, {"type": "object", **schema})


def test_names_are_valid_unique_and_stable() -> None:
    tools = [
        tool("a b", "t"), tool("a_b", "t"), tool("a.b", "x" * 100), tool("a", "b__t"),
        tool("a__b", "t"), tool("ä", "ö"), tool("s", "t"),
    ]  # fmt: skip
    named = offered(tools)
    assert list(named.values()) == tools
    assert named["s__t"] == tools[-1]
    assert all(len(name) <= NAME_CHARS_MAX for name in named)
    assert all(name.isascii() and name.replace("-", "_").isidentifier() for name in named)
    assert offered(tools[::-1]) == named
    options = ChatOptions(tools=tuple(t.definition(name) for name, t in named.items()))
    assert ChatOptions.from_message(json.loads(json.dumps(options.to_json()))) == options


def test_descriptions_and_schemas_are_limited() -> None:
    long = tool(description="word " * 10_000)
    assert len(long.description) < 2200 and not long.fault
    wide = tool(properties={str(n): {"type": "string"} for n in range(2000)})
    assert "bytes" in wide.fault and wide.schema == {}
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"properties": {"a": deep}}
    assert "deeply" in Tool.read("s", "t", "", deep).fault
    assert "invisible" in tool(name="a\u200b").fault and "name" in tool(name="").fault
    assert offered([wide, tool(name="a\u200b")]) == {}


def test_a_changed_definition_is_another_fingerprint() -> None:
    tools = [
        tool(), tool(description="Other."), tool(properties={"a": {}}), tool(name="u"),
        tool(server="v"),
    ]  # fmt: skip
    assert len({found.fingerprint for found in tools}) == len(tools)
    assert Tool.from_json(json.loads(json.dumps(tools[2].to_json()))) == tools[2]


ORDINARY = [
    "Grüße, naïve façade: 10 € – “quoted” … \t tab\nline", "العربية فارسی می‌خواهم", "हिन्दी क्‍ष",
    "👨‍👩‍👧 ❤️ 🏳️‍🌈 👍🏽", "日本語 한국어 中文", "<|im_end|> <b>x</b> [a](b)", "a\u00a0b",
]  # fmt: skip


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b[31mred\x1b[0m \x1b[2K\x1b[1A", "red "),
        ("\x1b]8;;http://x.org\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title", ""),
        ("\x9b31mred", "red"),
        ("a\u202eb\u2066c\u200bd\ufeffe\u00adf", "abcdef"),
        ("".join(chr(0xE0000 + ord(c)) for c in "obey"), ""),
        ("a\u200db \u200c", "ab "),
        ("nul\0bell\a", "nulbell"),
        ("one\r\ntwo\rthree\u2028four", "one\ntwo\nthree\nfour"),
        ("lone \ud800", "lone \ufffd"),
        ("\ufdd0", ""),
    ],
)
def test_hidden_text_is_removed_or_shown(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert clean(revealed(text)) == revealed(text)


def test_arguments_hide_nothing() -> None:
    written = json.dumps({"path": "a\u202eb\u200b", "n": 1})
    assert json.loads(arguments_shown(written)) == {"path": "a\u202eb\u200b", "n": 1}
    assert "\\u202e" in arguments_shown(written) and "\u202e" not in arguments_shown(written)
    assert arguments_shown("not\u200b JSON") == "not\\u200b JSON"
    for wrong in ("[1]", "{", "3", "[" * 100_000):
        with pytest.raises(ValueError):
            read_arguments(wrong)
    assert read_arguments(" ") == {}


def test_long_text_keeps_its_beginning_and_end() -> None:
    short = shorten("a" * 500 + "b" * 500, 100)
    assert short.startswith("a" * 75) and short.endswith("b" * 25) and "900" in short
    assert shorten("a" * 100, 100) == "a" * 100
