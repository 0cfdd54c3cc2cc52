"""The servers of tools as the window sees them, and the calls of answers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Signal

from app.session.session import Session
from app.session.tool_host import ToolHost
from app.state.conversation import CallState, Conversation, Ending, Message
from app.state.tool_approval import Call, Calls, Choice, Grants, n_round
from app.text.messages import localized
from backend.protocol.chat import Json
from backend.protocol.messages import Message as HostMessage
from backend.system import children
from backend.text import joined, text
from backend.tools.settings import Imported, Server, ToolSettings, kept_file, read_foreign
from backend.tools.tool import Tool, offered

AWAITED_MS = 30_000  # after the last start of a server, answers no longer wait


@dataclass(frozen=True)
class ServerState:
    """state: "off", "starting", "ready" or "failed". last_words: the end of its standard error."""

    state: str = "off"
    sentence: str = ""
    last_words: str = ""
    tools: tuple[Tool, ...] = ()


class ToolServers(QObject):
    """The user's servers, their states and their tools. Nothing starts before `start`.

    Signals:
        changed: the servers, their states or their tools.
        trouble: (str) the settings could not be read or written; one sentence.
    """

    changed = Signal()
    trouble = Signal(object)

    def __init__(self, path: Path, host: ToolHost, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.host = host
        self._file = kept_file(path)
        self.settings, self.remark = self._file.load(ToolSettings.from_json, ToolSettings())
        self._states: dict[str, ServerState] = {}
        self._awaited: set[str] = set()  # servers that start
        self._told: set[str] = set()  # servers without tools, of which the user knows
        self._timer = QTimer(self, singleShot=True, interval=AWAITED_MS)
        self._timer.timeout.connect(self.stop_waiting)
        host.told.connect(self._on_told)
        host.died.connect(self._on_died)

    def start(self) -> None:
        """Start the servers that are on."""
        for server in self.settings.servers:
            if server.is_on:
                self._start(server)

    def state(self, name: str) -> ServerState:
        """Return the state of a server."""
        return self._states.get(name, ServerState())

    def tools(self, *, with_starting: bool = False) -> dict[str, Tool]:
        """Return the tools that are on, by the names that models see.

        with_starting: also those of servers that start. A server that was lost starts again with
        the tools that it had.
        """
        states = ("ready", "starting") if with_starting else ("ready",)
        found = []
        for server in self.settings.servers:
            if server.is_on and (state := self.state(server.name)).state in states:
                found += [tool for tool in state.tools if tool.name not in server.off]
        return offered(found)

    def definitions(self) -> tuple[Json, ...]:
        """Return the tools that are on, in OpenAI's form."""
        return tuple(tool.definition(name) for name, tool in self.tools().items())

    def awaited(self) -> str:
        """Return the names of the servers whose start an answer waits for; "" without one."""
        return ", ".join(s.name for s in self.settings.servers if s.name in self._awaited)

    def answer_without(self) -> None:
        """Wait no longer for servers that start: the user wants an answer without their tools."""
        self._told |= self._awaited
        self.stop_waiting()

    def stop_waiting(self) -> None:
        """Let answers begin without the tools of servers that have not started yet."""
        self._awaited.clear()
        self.changed.emit()

    def missing(self) -> str:
        """Return which servers that are on give no tools, and why. Tell each failure once."""
        said = []
        for name in [s.name for s in self.settings.servers if s.is_on and s.name not in self._told]:
            if (state := self.state(name)).state == "failed":
                said.append(f"{name}: {localized(state.sentence)}")
            elif state.state == "starting":
                said.append(self.tr("{name}: It has not started yet.").format(name=name))
            else:
                continue
            self._told.add(name)
        return "\n".join([self.tr("The model gets no tools of:"), *said]) if said else ""

    def put(self, server: Server, instead_of: str = "") -> None:
        """Add a server, or replace another. Start it if it is on."""
        old = self.settings.server(instead_of or server.name)
        if old is not None and old.name != server.name:
            self._stop(old.name)
        self._keep(self.settings.with_server(server, instead_of))
        if server.is_on:
            self._start(server)
        else:
            self._stop(server.name)

    def remove(self, name: str) -> None:
        """Stop and forget a server."""
        self._stop(name)
        self._keep(self.settings.without_server(name))

    def switch(self, name: str, is_on: bool) -> None:
        """Switch a server on or off."""
        server = self.settings.server(name)
        if server is not None:
            self.put(replace(server, is_on=is_on))

    def restart(self, name: str) -> None:
        """Start a server again."""
        server = self.settings.server(name)
        if server is not None and server.is_on:
            self._start(server)

    def switch_tool(self, tool: Tool, is_on: bool) -> None:
        """Switch one tool on or off."""
        server = self.settings.server(tool.server)
        if server is not None:
            off = server.off - {tool.name} if is_on else server.off | {tool.name}
            self._keep(self.settings.with_server(replace(server, off=off)))

    def is_always_allowed(self, tool: Tool) -> bool:
        """Return whether the user allowed this tool, defined as it is, for ever."""
        server = self.settings.server(tool.server)
        return server is not None and server.always.get(tool.name) == tool.fingerprint

    def allow_always(self, tool: Tool, is_allowed: bool = True) -> None:
        """Let a tool run without asking, or no longer."""
        server = self.settings.server(tool.server)
        if server is not None:
            always = {k: v for k, v in server.always.items() if k != tool.name}
            if is_allowed:
                always[tool.name] = tool.fingerprint
            self._keep(self.settings.with_server(replace(server, always=always)))

    def set_limits(self, max_rounds: int, limit_s: int) -> None:
        """Set the number of rounds without asking, and the time of a call in seconds."""
        self._keep(replace(self.settings, max_rounds=max_rounds, limit_s=limit_s))

    def take_file(self, path: Path) -> Imported:
        """Add the servers of another application's file, switched off. Raises ValueError."""
        imported = read_foreign(path)
        settings = self.settings
        for server in imported.servers:
            old = settings.server(server.name)
            if old is None or not old.is_same_source(server):
                self._stop(server.name)
                settings = settings.with_server(server)
        self._keep(settings)
        return imported

    def shut_down(self) -> None:
        """End all servers."""
        self.host.close()

    def _keep(self, settings: ToolSettings) -> None:
        self.settings = settings
        if trouble := self._file.save(settings.to_json()):
            self.trouble.emit(trouble)
        self.changed.emit()

    def _start(self, server: Server) -> None:
        self._enter(server.name, ServerState("starting"))
        try:
            config = server.expanded().to_json()
            self.host.send("start", server=server.name, config=config)
        except ValueError as error:  # a variable made it invalid
            self._enter(server.name, ServerState("failed", error.args[0]))
        self.changed.emit()

    def _stop(self, name: str) -> None:
        is_known = name in self._states
        self._enter(name, ServerState())
        if is_known and self.host.is_running:
            self.host.send("stop", server=name)
        self.changed.emit()

    def _enter(self, name: str, state: ServerState) -> None:
        """Set the state of a server. Answers wait for one that starts, also after it was lost."""
        if state.state != "starting":
            self._awaited.discard(name)
        elif self.state(name).state != "starting":
            self._told.discard(name)
            self._awaited.add(name)
            self._timer.start()
        self._states[name] = state

    def _on_told(self, message: HostMessage) -> None:
        server = self.settings.server(message["server"]) if message["type"] == "server" else None
        if server is None or not server.is_on:
            return
        tools = tuple(map(Tool.from_json, message["tools"]))
        if message["state"] == "starting":
            tools = self.state(server.name).tools
        told = message["state"], message["sentence"], message["last_words"]
        self._enter(server.name, ServerState(*told, tools))
        self.changed.emit()

    def _on_died(self, fault: str) -> None:
        ended = ServerState("failed", joined(fault, text("tools.host_ended")))
        for name in self._states:
            self._enter(name, ended)
        self.changed.emit()


class ToolCalls(QObject):
    """Runs the calls of answers: asks, runs, and gives the results back to the session.

    Signals:
        changed: (Conversation, Message) the calls of an answer have changed, shown or not.
    """

    changed = Signal(object, object)

    def __init__(
        self, session: Session, servers: ToolServers, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._session, self.servers = session, servers
        self._grants = Grants()
        self._open: list[Calls] = []  # of one answer each
        self._running: dict[int, tuple[Calls, Call]] = {}  # by the number of the request
        self._allowed_at: dict[int, int] = {}  # rounds when the user last allowed by hand
        self._unsure: set[tuple[str, str]] = set()  # tools and arguments of calls that may have run
        self._n_request = 0
        session.tools, session.tools_awaited = servers.definitions, servers.awaited
        session.tools_missing = servers.missing
        servers.changed.connect(session.tools_changed)
        session.calling = self._calling
        session.calls_made.connect(self.take)
        session.stopped.connect(self.stop)
        session.added.connect(lambda *_: self._drop_left())
        session.branch_begun.connect(lambda *_: self._drop_left())
        servers.host.told.connect(self._on_told)
        servers.host.died.connect(self._on_died)

    def of(self, answer: Message) -> Calls | None:
        """Return the calls of an answer that wait or run."""
        return next((calls for calls in self._open if calls.answer is answer), None)

    def take(self, conversation: Conversation, answer: Message) -> None:
        """Begin with the calls of the last answer of a conversation."""
        if self.of(answer) is not None or conversation.last is not answer:
            return
        n = n_round(conversation)
        if n <= 1:
            self._allowed_at.pop(id(conversation), None)
        is_held = n - self._allowed_at.get(id(conversation), 0) > self.servers.settings.max_rounds
        calls = Calls(conversation, answer, self.servers.tools(with_starting=True), is_held)
        self._open.append(calls)
        for call in calls.asked():
            assert call.tool is not None
            granted = self._grants.covers(conversation, call.tool)
            granted = granted or self.servers.is_always_allowed(call.tool)
            if granted and not is_held and _key(call) not in self._unsure:
                self._run(calls, call)
        self._note(calls)

    def ask_again(self, conversation: Conversation) -> None:
        """Ask about the calls of the last answer that were not run."""
        last = conversation.last
        if last is not None and self.can_ask_again(conversation, last):
            self.take(conversation, last)

    def can_ask_again(self, conversation: Conversation, answer: Message) -> bool:
        """Return whether an answer's calls were not run and can be asked about now."""
        is_left = conversation.last is answer and answer.ending is Ending.FINISHED
        tools = self.servers.tools()
        return (
            is_left
            and bool(answer.tool_calls)
            and self.of(answer) is None
            and all(call.name in tools for call in answer.tool_calls)
        )

    def decide(self, calls: Calls, call: Call, choice: Choice) -> None:
        """Apply the user's choice about a call that asks."""
        may_run = calls.decide(call, choice)
        conversation = calls.conversation
        if may_run and call.tool is not None:
            self._allowed_at[id(conversation)] = n_round(conversation)
            if choice is Choice.CHAT:
                self._grants.add(conversation, call.tool)
            elif choice is Choice.ALWAYS:
                self.servers.allow_always(call.tool)
        for each in may_run:
            self._run(calls, each)
        self._note(calls)

    def stop_call(self, call: Call) -> None:
        """Stop one call that runs. Its result says so, and the answer goes on."""
        for number, (_, running) in self._running.items():
            if running is call:
                self.servers.host.send("cancel", id=number)

    def stop(self, conversation: Conversation) -> None:
        """Stop all calls of a conversation. The answer does not go on."""
        for calls in [calls for calls in self._open if calls.conversation is conversation]:
            self._close(calls)
            if results := calls.stop():
                self._session.take_results(conversation, results, goes_on=False)
            self._show(calls)

    def stop_all(self) -> None:
        """Stop all calls of all conversations."""
        for calls in list(self._open):
            self.stop(calls.conversation)

    def _calling(self) -> list[tuple[Conversation, bool]]:
        return [(calls.conversation, calls.is_running) for calls in self._open]

    def _run(self, calls: Calls, call: Call) -> None:
        assert call.tool is not None
        call.state = CallState.RUNNING
        self._n_request += 1
        self._running[self._n_request] = calls, call
        settings = self.servers.settings
        self.servers.host.send(
            "call",
            id=self._n_request,
            server=call.tool.server,
            tool=call.tool.name,
            arguments=call.arguments,
            limit_s=settings.limit_s,
            result_chars=settings.result_chars,
        )

    def _note(self, calls: Calls) -> None:
        """Show the states. Go on where all calls are settled."""
        if calls.is_settled:
            self._close(calls)
            calls.answer.call_states = {}
            asked_nobody = calls.is_held and all(call.tool is None for call in calls.calls)
            self._session.take_results(
                calls.conversation, calls.results(), goes_on=not asked_nobody
            )
        self._show(calls)

    def _show(self, calls: Calls) -> None:
        is_open = calls in self._open
        calls.answer.call_states = calls.states if is_open else {}
        self._session.report_calls(calls.conversation, calls.answer)
        self.changed.emit(calls.conversation, calls.answer)

    def _close(self, calls: Calls) -> None:
        """Forget the calls of an answer. Those that run are stopped."""
        self._open.remove(calls)
        for number in [n for n, (owner, _) in self._running.items() if owner is calls]:
            del self._running[number]
            self.servers.host.send("cancel", id=number)

    def _drop_left(self) -> None:
        """Stop the calls of answers after which the conversation has gone on."""
        for calls in list(self._open):
            if calls.conversation.last is not calls.answer:
                self._close(calls)
                calls.stop()
                self._show(calls)

    def _on_told(self, message: HostMessage) -> None:
        calls, call = self._running.get(message.get("id", 0), (None, None))
        if calls is None or call is None:
            return
        if message["type"] == "progress":
            call.share, call.words = message["share"], message["words"]
            self.changed.emit(calls.conversation, calls.answer)
        elif message["type"] == "result":
            del self._running[message["id"]]
            state = CallState.FAILED if message["is_error"] else CallState.DONE
            (self._unsure.add if message.get("is_unsure") else self._unsure.discard)(_key(call))
            files = message.get("files", ())
            call.end(state, str(message["text"]), message["n_char"], files)
            self._note(calls)

    def _on_died(self) -> None:
        running, self._running = self._running, {}
        for calls, call in running.values():
            self._unsure.add(_key(call))
            call.end(CallState.FAILED, text("tools.host_ended"))
            self._note(calls)


def _key(call: Call) -> tuple[str, str]:
    """Identify a call that may run twice: its tool and its arguments."""
    tool = call.tool.fingerprint if call.tool is not None else ""
    return tool, json.dumps(call.arguments, sort_keys=True)


def make_tools(
    session: Session, path: Path, parent: QObject, command: Callable[..., list[str]] | None = None
) -> ToolCalls:
    """Return the tools of a window. path: the kept file."""
    make = command or children.command
    servers = ToolServers(path, ToolHost(make("backend.tools.host"), parent), parent)
    return ToolCalls(session, servers, parent)
