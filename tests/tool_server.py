"""Servers of tools for tests, good and bad, run as a script: tool_server.py MODE [ARGUMENT].

mcp: a server made with the mcp package. http PORT_FILE: the same at an address; it writes its port
to the file. All other modes implement the protocol themselves and start at once:

plain: the tools below. crash: ends with words on standard error. hang: never answers. floods,
garbage, long: sends messages, words or one line without end. exits: ends in the middle of a call.
changes: has another list of tools after a call. many, pages: lists 100 tools or one on each of
endless pages. none: has no tools to list. odd: says what breaks the rules of MCP. stubborn: ignores
the end of its input and SIGTERM, and starts a child that also ignores them.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECRET = "SECRET"


def group(pgid: int) -> list[int]:
    """Return the running processes of a group; on Windows, a process and its children."""
    if sys.platform == "win32":
        import psutil  # the servers start faster without

        def is_console(process: psutil.Process) -> bool:  # each console program has one
            try:
                return "conhost" in " ".join(process.cmdline()[:1])
            except (OSError, psutil.Error):  # it ends
                return False

        every = psutil.process_iter(["pid", "ppid"])
        own = [p for p in every if pgid in (p.info["pid"], p.info["ppid"])]
        return [p.pid for p in own if not is_console(p)]
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == pgid and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def schema(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


TOOLS: dict[str, dict[str, Any]] = {
    "echo": schema(text="string"),
    "add": schema(a="number", b="number"),
    "slow": schema(seconds="number"),
    "fail": schema(),
    "file": schema(path="string"),
    "leave": schema(),
    "keys": schema(text_id="string", values="object", text="string"),
}


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(number: Any, name: str, arguments: dict[str, Any], token: Any) -> None:
    result: dict[str, Any] = {}
    if name == "echo":
        said = arguments["text"]
    elif name == "add":
        said = str(arguments["a"] + arguments["b"])
    elif name == "slow":
        progress = {"progressToken": token, "progress": 1, "total": 4, "message": "a quarter"}
        say({"method": "notifications/progress", "params": progress})
        time.sleep(float(arguments["seconds"]))
        said = "done"
    elif name == "file":  # the bytes of a file: the answer that a test wants from this server
        sys.stdout.flush()
        data = Path(arguments["path"]).read_bytes().replace(b'"ID"', json.dumps(number).encode())
        os.write(1, data + b"\n")
        return
    elif name == "keys":
        said = json.dumps(arguments)
    elif name == "leave":
        os._exit(4)
    else:
        result, said = {"isError": True}, "it went wrong"
    say({"id": number, "result": {**result, "content": [{"type": "text", "text": said}]}})


def plain(mode: str) -> None:
    tools = dict(TOOLS)
    for line in sys.stdin.buffer:  # UTF-8, whatever the language of the system is
        message = json.loads(line)
        method, number = message.get("method"), message.get("id")
        if method == "initialize":
            info = {"name": "tests", "version": "1"}
            capabilities = {} if mode == "none" else {"tools": {"listChanged": True}}
            version = message["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
            if mode == "odd":
                result = {"protocolVersion": version, "capabilities": {"tools": True, "logging": 1}}
            say({"id": number, "result": result})
        elif method == "tools/list":
            listed = [
                {"name": name, "description": f"It is {name}.", "inputSchema": arguments}
                for name, arguments in tools.items()
            ]
            result = {"tools": listed}
            if mode == "odd":
                odd = [
                    {"name": "a"}, {"name": "b", "description": 3, "inputSchema": []}, None,
                    {"name": "c", "inputSchema": {}, "annotations": "x", "outputSchema": 4},
                    {"description": "It has no name."},
                ]  # fmt: skip
                result = {"tools": [*odd, listed[0]], "nextCursor": 0}
            if mode in ("many", "pages"):
                begin = int(message.get("params", {}).get("cursor", 0))
                end = begin + (100 if mode == "many" else 1)
                names = [f"t{n}" for n in range(begin, end)]
                listed = [{"name": name, "inputSchema": schema()} for name in names]
                result = {"tools": listed, "nextCursor": str(end)}
            say({"id": number, "result": result})
        elif method == "tools/call":
            if mode == "exits":
                print("I had enough", file=sys.stderr, flush=True)
                os._exit(3)
            if mode == "changes":
                tools["new"] = schema()
                say({"method": "notifications/tools/list_changed"})
            params = message["params"]
            token = params.get("_meta", {}).get("progressToken")
            call(number, params["name"], params.get("arguments") or {}, token)
        elif number is not None:
            say({"id": number, "error": {"code": -32601, "message": "Method not found"}})


def flood(mode: str) -> None:
    note = {"method": "notifications/message", "params": {"level": "info", "data": "x"}}
    try:
        if mode == "long":
            while True:
                os.write(1, b"x" * 65536)
        while True:
            if mode == "garbage":
                print("Listening on stdio...", flush=True)
            else:
                say(note)
    except OSError:
        os._exit(0)


def stubborn() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if sys.argv[2:] != ["child"]:
        subprocess.Popen([sys.executable, __file__, "stubborn", "child"])
        plain("plain")
    while True:
        time.sleep(60)


def with_package(mode: str) -> None:
    import anyio
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.server.mcpserver.exceptions import ToolError

    server = MCPServer("tests")

    @server.tool()
    def echo(text: str) -> str:
        """Say it again."""
        return text

    @server.tool()
    async def slow(seconds: float, context: Context) -> str:
        """Take a while."""
        await context.report_progress(1, 4, "a quarter")
        await anyio.sleep(seconds)
        return "done"

    @server.tool()
    def fail() -> str:
        """Go wrong."""
        raise ToolError("it went wrong")

    if mode == "mcp":
        server.run()
        return
    import socket

    import uvicorn
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse

    app = server.streamable_http_app()

    async def guarded(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and Request(scope).headers.get("authorization") != SECRET:
            await PlainTextResponse("no", 401)(scope, receive, send)
            return
        await app(scope, receive, send)

    listener = socket.create_server(("127.0.0.1", 0))
    Path(sys.argv[2] + ".part").write_text(str(listener.getsockname()[1]))
    os.replace(sys.argv[2] + ".part", sys.argv[2])
    uvicorn.Server(uvicorn.Config(guarded, log_level="critical")).run([listener])


if __name__ == "__main__":
    mode = sys.argv[1]
    if mode == "crash":
        sys.exit("There is no such folder.")
    if mode == "hang":
        time.sleep(600)
    elif mode in ("floods", "garbage", "long"):
        flood(mode)
    elif mode == "stubborn":
        stubborn()
    elif mode in ("mcp", "http"):
        with_package(mode)
    else:
        plain(mode)
