"""Nothing ends silently: threads, timers, tasks, pools, children and callbacks of the product.

The first part lists from the source what is started and by whom. The second part lets each fail in
its first line, and looks at the sentence, the record for the report, and the work that follows.
"""

from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_engine import FakeEngine
from served import KEY, Served
from waiting import until

from backend.attachments.reading import FileReading
from backend.downloads.job import Job
from backend.downloads.manager import Downloads, State
from backend.downloads.offers import RemoteFile
from backend.engine.answer import PartialAnswer, Reading
from backend.engine.embedding_model import EmbeddingModel
from backend.engine.kept_states import KeptStates
from backend.gguf.identity import FileIdentity
from backend.learning.consent import allow
from backend.learning.supervisor import Learner
from backend.library.digests import Digests
from backend.llama.api import LlamaError
from backend.llama.chat_format import CHATML, ChatFormat
from backend.protocol.chat import ChatOptions, Delta
from backend.protocol.client import WorkerClient, WorkerDied
from backend.protocol.errors import RequestError
from backend.protocol.settings import Sampling
from backend.protocol.worker_exit import describe_exit
from backend.server import llama_native, openai_chat, running
from backend.server.engine_host import EngineThread
from backend.server.turns import Turns
from backend.system import children, faults, paths
from backend.text import Text
from backend.worker.advisor import Advisor
from backend.worker.attachments import AttachmentDesk
from backend.worker.local_server import ServerDesk

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(
    path for folder in ("app", "backend", "predictors") for path in (ROOT / folder).rglob("*.py")
)
GUARDS = ROOT / "backend" / "system" / "faults.py"

# What runs beside its caller, by the end of its name.
_NAMES = (
    r"Thread|Timer|start_new_thread|create_task|ensure_future|asyncio[.]gather|TaskGroup|"
    r"run_in_executor|run_coroutine_threadsafe|to_thread|start_soon|"
    r"ThreadPoolExecutor|ProcessPoolExecutor|ThreadPool|Pool|"
    r"QThread|QThreadPool|QRunnable|QProcess|startDetached|QtConcurrent|"
    r"Popen|subprocess[.]run|check_output|check_call|subprocess[.]call|getoutput|"
    r"create_subprocess_exec|create_subprocess_shell|os[.]system|fork|forkpty|posix_spawn|spawnv|"
    r"CFUNCTYPE|WINFUNCTYPE|PYFUNCTYPE|llama_cpp[.]\w+_callback|finalize|atexit[.]register"
)
_STARTS = re.compile(rf"(?:^|[.])(?:{_NAMES})$")
_MAY = re.compile(rf"\b(?:{_NAMES}|from (?:asyncio|atexit|llama_cpp|os|subprocess) import)\b")
_OURS = ("faults.", "platform.")

# Who looks at the error of what is not started by backend.system.faults.
OTHERS = {
    ("app/chat/formulas.py", "QProcess"): "the formula stays its source",
    ("app/controls/pack_offer.py", "QProcess"): "the notice has its last words",
    ("app/library/library.py", "QProcess"): "`failed` has its record",
    ("app/pages/model_report.py", "QProcess"): "the page says that it ended, and with what words",
    ("app/session/tool_host.py", "QProcess"): "`died` has its record",
    ("app/session/worker_link.py", "QProcess"): "describe_exit() reads its traceback",
    ("app/window/presence.py", "QProcess.startDetached"): "notify-send is no part of the product",
    ("backend/bench/turns.py", "subprocess.Popen"): "ChildFailed has its record",
    ("backend/cli/__init__.py", "subprocess.Popen"): "the child says a sentence itself",
    ("backend/cli/report.py", "subprocess.run"): "the part of the report has its last words",
    ("backend/cli/verify.py", "subprocess.Popen"): "UserError has the status",
    ("backend/engine/kept_states.py", "ThreadPoolExecutor"): "every result is looked at, see below",
    ("backend/engine/loading.py", "llama_cpp.llama_progress_callback"): "raised after the load",
    ("backend/evaluation/replay.py", "ctypes.CFUNCTYPE"): "a function of llama.cpp's",
    ("backend/evaluation/replay.py", "llama_cpp.llama_log_callback"): "does nothing",
    ("backend/evaluation/replay.py", "llama_cpp.llama_progress_callback"): "does nothing",
    ("backend/evaluation/verify.py", "subprocess.run"): "describe_exit() reads its traceback",
    ("backend/attachments/pictures.py", "llama_cpp.llama_log_callback"): "does nothing",
    ("backend/library/asked.py", "subprocess.run"): "an estimate takes its place; it records",
    ("backend/learning/supervisor.py", "subprocess.Popen"): "the state has its record",
    ("backend/llama/api.py", "ctypes.CFUNCTYPE"): "a function of llama.cpp's",
    ("backend/llama/api.py", "llama_cpp.ggml_abort_callback"): "native code",
    ("backend/llama/api.py", "llama_cpp.ggml_backend_sched_eval_callback"): "native code",
    ("backend/llama/api.py", "llama_cpp.llama_log_callback"): "sys.unraisablehook records it",
    ("backend/llama/splitting.py", "ThreadPoolExecutor"): "who waits gets the error",
    ("backend/llama/vision.py", "weakref.finalize"): "a function of llama.cpp's",
    ("backend/machines/measure.py", "ThreadPoolExecutor"): "list() takes every result",
    ("backend/protocol/client.py", "subprocess.Popen"): "describe_exit() reads its traceback",
    ("backend/server/application.py", "asyncio.ensure_future"): "lines() takes every result",
    ("backend/server/application.py", "asyncio.to_thread"): "awaited at once",
    ("backend/server/llama_native.py", "asyncio.to_thread"): "awaited at once",
    ("backend/server/bodies.py", "asyncio.to_thread"): "awaited at once",
    ("backend/server/turns.py", "asyncio.to_thread"): "awaited at once",
    ("backend/system/children.py", "subprocess.Popen"): "who asks the child looks for its record",
    ("backend/tools/host.py", "asyncio.create_task"): "waits for events, and cannot fail",
    ("backend/tools/host.py", "asyncio.gather"): "at the end, when nobody listens",
    ("backend/tools/host.py", "asyncio.to_thread"): "awaited at once",
    ("backend/tools/transports.py", "asyncio.create_subprocess_exec"): "ServerFault",
    ("backend/worker/advisor.py", "subprocess.Popen"): "the advice has its record",
    ("predictors/embedded/evaluate.py", "llama_cpp.ggml_backend_sched_eval_callback"): (
        "a tool of developers: the values are missing then"
    ),
}

# Work that is shown nowhere: why nobody has to be told, beside the report.
NO_PLACE = {
    "app/chat/markdown/highlight.py": "the code stays plain",
    "app/store/chats.py": "the journal is written the next time",
    "backend/attachments/reading.py": "the child limits its processor time itself",
    "backend/cli/__init__.py": "the sentence about a crash is a shorter one",
    "backend/cli/report.py": "the part goes on to its own end",
    "backend/engine/answer.py": "its errors are in `fault`",
    "backend/engine/embedding_model.py": "the next text loads the model again",
    "backend/engine/keeping.py": "what was not written is computed again",
    "backend/engine/kept_states.py": "the pieces are read when they are needed",
    "backend/llama/chat_format.py": "the child limits its processor time itself",
    "backend/machines/threads.py": "threads are measured without reads",
    "backend/protocol/client.py": "the worker's last words are missing",
    "backend/server/engine_host.py": "the clients have received the errors of their requests",
    "backend/server/running.py": "the default of a parameter",
    "backend/system/faults.py": "the default of a parameter",
    "backend/system/spinning.py": "threads spin as long as libgomp wants",
    "backend/tools/host.py": "changed tools are seen at the next start",
    "backend/worker/answer_recorder.py": "the answer is shown",
    "backend/worker/main.py": "the next request reports the fault",
}

# A C++ exception that leaves such a thread ends the process; its parent says so (describe_exit).
NATIVE_THREADS = {
    "live/compute/host_work.cc": "passes what compute() throws to the engine's thread",
    "live/io/memory_filler.cc": "calls the system only, which fails by return values",
    "live/io/transfer.cc": "passes what a copy throws to the engine's thread",
    "live/memory/layer_window.cc": "calls the system only, which fails by return values",
}


# What is started


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def started(source: str) -> Iterator[str]:
    """Yield the names of what a module starts beside its caller, without the guards' own."""
    if not _MAY.search(source):  # parsing takes most of the time
        return
    tree = ast.parse(source)
    known = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Call):
            names = [_dotted(node.func)]
        elif isinstance(node, ast.ClassDef):
            names = [_dotted(base) for base in node.bases]
        for name in names:
            first, dot, rest = name.partition(".")
            full = known.get(first, first) + dot + rest
            if _STARTS.search(full) and not name.startswith(_OURS):
                yield name.removeprefix("self.")


def test_every_start_has_a_guard() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in SOURCES
        if path != GUARDS
        for name in started(path.read_text(encoding="utf-8"))
    }
    assert found - set(OTHERS) == set(), "start it by backend.system.faults"
    assert set(OTHERS) - found == set(), "is not in the source any more"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import threading\nthreading.Thread(target=f).start()", "threading.Thread"),
        ("from threading import Timer as T\nT(1, f).start()", "T"),
        ("from threading import Thread\nclass Mine(Thread): pass", "Thread"),
        ("import asyncio\nasyncio.create_task(f())", "asyncio.create_task"),
        ("loop.create_task(f())", "loop.create_task"),
        ("from concurrent.futures import ThreadPoolExecutor as P\nP(1)", "P"),
        ("from PySide6.QtCore import QThread\nclass Mine(QThread): pass", "QThread"),
        ("import subprocess as s\nfrom subprocess import run\nrun([])", "run"),
        ("import os\nos.system('x')", "os.system"),
        ("import llama_cpp\nllama_cpp.llama_log_callback(f)", "llama_cpp.llama_log_callback"),
    ],
)
def test_a_start_without_a_guard_is_found(source: str, name: str) -> None:
    assert list(started(source)) == [name]


def test_work_without_a_place_is_known() -> None:
    uses = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        if "no_place" in path.read_text(encoding="utf-8")
    }
    assert uses == set(NO_PLACE)


def test_no_result_of_a_pool_is_dropped() -> None:
    dropped = [
        f"{path.name}:{node.lineno}"
        for path in SOURCES
        if "PoolExecutor" in (source := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(call := node.value, ast.Call)
        and _dotted(call.func).endswith((".submit", ".map"))
        and not (isinstance(call.args[0], ast.Call) and "guarded" in _dotted(call.args[0].func))
    ]
    assert dropped == []


def test_native_threads_are_known() -> None:
    native = ROOT / "backend" / "native"
    starts = re.compile(
        r"std::(?:thread|jthread|async)\s*\(|(?:threads?_)\s*\(\[|threads_\.emplace_back|pthread_"
    )
    found = {
        path.relative_to(native).as_posix()
        for path in native.rglob("*.cc")
        if starts.search(path.read_text(encoding="utf-8"))
    }
    assert found == set(NATIVE_THREADS)


# Faults in the first line


class Lost(ModuleNotFoundError):
    """The error of the issue: a module that the package does not have."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__("No module named 'lost'")


def lost(*_: object, **__: object) -> Any:
    raise Lost


async def lost_later(*_: object, **__: object) -> Any:
    raise Lost


SENTENCE = (
    "A part of this program is missing or damaged (No module named 'lost'). Install it again."
)


@pytest.fixture(autouse=True)
def nothing_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the errors of other tests."""
    monkeypatch.setattr(faults, "_last", ("", ""))


def assert_recorded() -> None:
    until(lambda: any("No module named 'lost'" in said for said in faults.recent()))


def broken_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every child process fail when its module is imported."""
    start = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from backend.system import children\n"
        "def lost(_): raise ModuleNotFoundError(\"No module named 'lost'\")\n"
        "children.importlib.import_module = lost\n"
        "sys.exit(children.run(sys.argv[1]))"
    )

    def command(module: str, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-c", start, module, *arguments]

    monkeypatch.setattr(children, "command", command)


class Slow(Job):
    """A download without a server."""

    def check_room(self, promised_bytes: int = 0) -> None:
        """There is room."""

    def run(
        self, client: Any, stop: threading.Event, heard: Callable[[int], None], *_: Any
    ) -> None:
        """It is there at once."""


def add(downloads: Downloads, name: str) -> int:
    file = RemoteFile(f"http://x/{name}", f"{name}.gguf", 1000)
    return downloads.add(Slow("x/y", name, downloads.folder, (file,)))


def states(downloads: Downloads) -> list[State]:
    return [item.state for item in downloads.all()]


def test_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    downloads = Downloads(tmp_path / "downloads.json", tmp_path / "models")
    with monkeypatch.context() as patch:
        patch.setattr(Downloads, "_run", lost)
        numbers = [add(downloads, name) for name in "abcd"]  # more than there are places
        until(lambda: states(downloads) == [State.FAILED] * 4)
    assert {str(item.trouble) for item in downloads.all()} == {SENTENCE}
    assert_recorded()
    downloads.resume(numbers[0])
    until(lambda: states(downloads)[0] is State.DONE)
    downloads.shut_down()


def test_downloads_without_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the issue: the network library cannot be imported."""
    downloads = Downloads(tmp_path / "downloads.json", tmp_path / "models")
    monkeypatch.setitem(sys.modules, "backend.downloads.web", None)
    add(downloads, "a")
    until(lambda: states(downloads) == [State.FAILED])
    assert "backend.downloads.web" in downloads.all()[0].trouble
    downloads.shut_down()


def test_downloads_where_no_thread_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    downloads = Downloads(tmp_path / "downloads.json", tmp_path / "models")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        for name in "abc":
            add(downloads, name)
    assert states(downloads) == [State.FAILED] * 3
    downloads.resume(1)
    until(lambda: states(downloads)[0] is State.DONE)
    downloads.shut_down()


def test_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 100)
    files = [(path, FileIdentity.of(path))]
    digests = Digests(tmp_path / "digests.json")
    with monkeypatch.context() as patch:
        patch.setattr(Digests, "_run", lost)
        until(lambda: not digests.compute(files))  # not for ever
    assert_recorded()
    again = Digests(tmp_path / "digests.json")
    until(lambda: not again.compute(files))
    assert again.of(files[0][1])
    again.close()


def test_the_reader_of_an_answer() -> None:
    reader = SimpleNamespace(feed=lost, finish=Delta)
    partial = PartialAnswer(ChatOptions(), [], 0, Sampling(), None, None)
    reading = Reading(reader, lambda _: None, partial)
    reading.feed("text")
    reading.close()
    assert isinstance(reading.fault, Lost)


def test_the_embedding_model_is_freed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = EmbeddingModel.__new__(EmbeddingModel)
    model._lock, model._timer = threading.Lock(), None
    model._loaded = SimpleNamespace(close=lost)  # type: ignore[assignment]
    faults.timer("unload", 0.0, model.close, faults.no_place)
    until(lambda: not model.is_loaded)
    assert_recorded()
    model.close()


def test_what_states_read_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = KeptStates(tmp_path)
    monkeypatch.setattr(KeptStates, "_files", lost)
    states.learn("root")
    assert_recorded()
    states.close()


def worker(injection: str) -> list[str]:
    """Return the command of a worker in which something fails."""
    start = (
        f"import sys; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests')!r}]\n"
        "from backend.worker import main, outbox\n"
        "from backend.system import children\n"
        "def lost(*_): raise ModuleNotFoundError(\"No module named 'lost'\")\n"
        f"{injection}\n"
        "sys.exit(children.run('backend.worker.main'))"
    )
    return [sys.executable, "-P", "-c", start]


@pytest.mark.parametrize(
    "injection",
    [
        "main.Worker._read_all = lost",
        "main.Worker._next = lost",
        "outbox.Outbox._write_all = lost",
        "main.private_pipes = lost",
    ],
)
def test_the_worker_process(injection: str) -> None:
    with pytest.raises(WorkerDied) as died, WorkerClient(worker(injection)) as client:
        client.request("devices").final()
    assert str(died.value) == (
        "The engine's process ended unexpectedly: something unexpected failed "
        "(ModuleNotFoundError: No module named 'lost')."
    )
    assert_recorded()


def test_the_reader_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerClient, "_read_stdout", lost)
    with pytest.raises(WorkerDied) as died:
        WorkerClient()
    assert str(died.value) == SENTENCE
    assert_recorded()


class Told:
    """Takes messages in place of the outbox."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.send = self.offer = self.messages.append


@pytest.mark.parametrize("where", ["AttachmentDesk._read", "FileReading.run"])
def test_attachments(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told = Told()
    desk = AttachmentDesk(told)  # type: ignore[arg-type]
    (tmp_path / "a.txt").write_text("words")
    owner = {"AttachmentDesk": AttachmentDesk, "FileReading": FileReading}[where.split(".")[0]]
    with monkeypatch.context() as patch:
        patch.setattr(owner, where.split(".")[1], lost)
        desk.serve({"type": "attach", "id": 1, "path": str(tmp_path / "a.txt")})
        until(lambda: len(told.messages) == 1)
    assert told.messages[0] == {"type": "attached", "id": 1, "refusal": SENTENCE}
    assert_recorded()
    desk.serve({"type": "attach", "id": 1, "path": str(tmp_path / "a.txt")})  # the id is free
    until(lambda: len(told.messages) == 2)
    assert told.messages[1]["file"]["text"] == "words"


def test_the_process_that_reads_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    with monkeypatch.context() as patch:
        broken_child(patch)
        with pytest.raises(RequestError) as refused:
            FileReading(str(tmp_path / "a.txt")).run()
    assert str(refused.value) == SENTENCE
    assert FileReading(str(tmp_path / "a.txt")).run().text == "words"


def test_the_process_that_renders_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    chat_format = ChatFormat("m", CHATML, "<s>", "</s>")
    with monkeypatch.context() as patch:
        broken_child(patch)
        with pytest.raises(LlamaError) as refused:
            chat_format.render([{"role": "user", "content": "Hello"}])
    assert SENTENCE.rstrip(".") in str(refused.value)
    assert chat_format.render([{"role": "user", "content": "Hello"}]) is not None
    chat_format.close()


def desk_of_server(told: Told) -> ServerDesk:
    return ServerDesk(
        lambda _: None, told.offer, lambda: 0, lambda: None, lambda *_: None, lambda _: None
    )


def serve(desk: ServerDesk, told: Told, *, on: bool = True) -> dict[str, Any]:
    n_before = len(told.messages)
    desk.serve({"type": "serve", "id": 1, "on": on, "port": 0, "key": KEY}, told.send)
    until(lambda: len(told.messages) > n_before)
    return told.messages[-1]


@pytest.mark.parametrize("where", ["_switch", "_follow", "_take_embedder", "_start"])
def test_the_switch_of_the_server(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    desk = desk_of_server(told)
    with monkeypatch.context() as patch:
        patch.setattr(ServerDesk, where, lost)
        reply = serve(desk, told)
    assert (reply["on"], str(reply["trouble"])) == (False, SENTENCE)
    assert_recorded()
    assert serve(desk, told)["on"]
    desk.close()


def test_the_server_of_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()
    desk = desk_of_server(told)
    with monkeypatch.context() as patch:
        patch.setattr(running.RunningServer, "_run", lost)
        serve(desk, told)
        until(lambda: told.messages[-1]["trouble"])
    assert (told.messages[-1]["on"], str(told.messages[-1]["trouble"])) == (False, SENTENCE)
    assert_recorded()
    assert serve(desk, told)["on"]
    desk.close()


def test_the_engine_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(EngineThread, "_run", lost)
    EngineThread(FakeEngine(), failed=said.append)
    until(lambda: said == [SENTENCE])
    assert_recorded()


def test_the_engine_of_a_server_goes_on() -> None:
    engine = FakeEngine()
    engine.idle = engine.keep = lost  # type: ignore[attr-defined]
    host = EngineThread(engine)
    done = threading.Event()
    host.submit(lost)
    host.submit(lambda _: None)
    assert_recorded()
    host.submit(lambda _: done.set())
    until(done.is_set)
    host.close()


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served(FakeEngine())
    yield made
    made.close()


ASKED = {"messages": [{"role": "user", "content": "Hello"}]}


@pytest.mark.parametrize(
    ("path", "body", "owner", "name"),
    [
        ("/v1/chat/completions", ASKED, openai_chat.ChatWriter, "whole"),
        ("/v1/chat/completions", ASKED, Turns, "answer"),
        ("/v1/chat/completions", ASKED, Turns, "_note"),
        ("/tokenize", {"content": "x"}, llama_native.Fields, "__init__"),
    ],
)
def test_a_request(
    path: str, body: dict[str, Any], owner: type, name: str, served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, lost)
        answer = served.post(path, body)
    assert answer.status_code == 500
    assert answer.json()["error"]["message"].startswith("Something unexpected failed in the ")
    assert_recorded()
    assert served.post("/v1/chat/completions", ASKED).status_code == 200


def test_a_stream(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "/v1/chat/completions", {**ASKED, "stream": True}
    with monkeypatch.context() as patch:
        patch.setattr(openai_chat.ChatWriter, "part", lost)
        answer = served.post(*asked)
    assert answer.status_code == 200
    assert "Something unexpected failed in the server." in answer.text
    assert answer.text.rstrip().endswith("data: [DONE]")
    assert_recorded()
    assert "unexpected" not in served.post(*asked).text


@pytest.mark.parametrize("where", ["thread", "child"])
def test_advice(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    engine = SimpleNamespace(
        cache=SimpleNamespace(method="lru", n_slot=1), accuracy=None,
        decoded=SimpleNamespace(
            n_token=20, compute_s=1.0, other_s=0.0, stall_s=1.0, link_busy_s=1.0, bytes_read=1
        ),
        file=SimpleNamespace(path=tmp_path / "model.gguf"),
    )  # fmt: skip
    advisor = Advisor(engine)  # type: ignore[arg-type]
    advisor._is_new = True
    if where == "thread":
        monkeypatch.setattr(Advisor, "_ask", lost)
    else:
        broken_child(monkeypatch)
        written = SimpleNamespace(write=lambda path: path.write_bytes(b""))
        monkeypatch.setattr("backend.traces.trace.join", lambda _: written)
    advisor.advise(told.append)
    until(lambda: told)
    assert str(told[0]["fault"]) == SENTENCE
    assert_recorded()
    advisor.close()


def learner(tmp_path: Path, told: list[Any]) -> Learner:
    def tell(facts: Any) -> None:
        if facts.share is not None:
            time.sleep(0.2)  # the training ends meanwhile, and what it tells must come later
        told.append(facts)

    allow(tmp_path, True)
    made = Learner(tell, tmp_path, idle_s=0.0)
    made._traces = SimpleNamespace(want=lambda *_, **__: None, unwant=lambda _: None)  # type: ignore[assignment]
    return made


def test_the_learner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[Any] = []
    one = learner(tmp_path, told)
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "_run", lost)
        one.act("allow")
        until(lambda: told)
    assert str(one.state().sentence) == SENTENCE
    assert_recorded()
    assert str(one.act("allow").sentence) != SENTENCE  # and another thread
    thread = one._thread
    assert thread is not None and thread.is_alive()
    one.close()


@pytest.mark.parametrize("where", ["follower", "child"])
def test_training(where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[Any] = []
    one = learner(tmp_path, told)
    one._file = SimpleNamespace(path=tmp_path / "model.gguf")  # type: ignore[assignment]
    broken_child(monkeypatch)
    if where == "follower":
        monkeypatch.setattr(Learner, "_follow", lost)
    one._start_child()
    until(lambda: str(one.state().sentence) == SENTENCE)
    assert one._child is None and told[-1].share is None
    assert_recorded()
    one.close()


# Servers of tools


def on_host(check: Callable[[Any, list[dict[str, Any]]], Any]) -> None:
    """Run a check with a host of servers, and the messages that it tells."""
    from backend.tools.host import Host  # takes a second

    async def run() -> None:
        told: list[dict[str, Any]] = []
        host = Host(told.append, 10.0)
        await check(host, told)
        await host.close()

    asyncio.run(run())


async def soon(is_so: Callable[[], object]) -> None:
    for _ in range(20_000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to pass")


START = {"type": "start", "server": "s", "config": {"command": sys.executable, "args": ["-c", ""]}}
CALL = {
    "type": "call", "id": 1, "server": "s", "tool": "t", "arguments": {}, "limit_s": 5,
    "result_chars": 100,
}  # fmt: skip


@pytest.mark.parametrize(
    ("owner", "name", "is_async"),
    [
        ("host._Connection", "_run", True),
        ("host._Connection", "_live", True),
        ("host._Connection", "__init__", False),
        ("host.Host", "_take", False),
        ("transports.Program", "_started", True),
    ],
)
def test_a_server_of_tools(
    owner: str, name: str, is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(host: Any, told: list[dict[str, Any]]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"backend.tools.{owner}.{name}", lost_later if is_async else lost)
            host.take(START)
            await soon(lambda: told and told[-1]["state"] == "failed")
            assert "No module named 'lost'" in told[-1]["sentence"]
        host.take(START)  # the next start is no later than this fault
        await soon(lambda: told[-1]["state"] == "failed" and "lost" not in told[-1]["sentence"])

    on_host(check)


@pytest.mark.parametrize("name", ["_read", "_write", "_read_stderr"])
def test_a_stream_of_a_server_of_tools(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(host: Any, told: list[dict[str, Any]]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"backend.tools.transports.Program.{name}", lost_later)
            host.take({**START, "config": {"command": "cat", "args": []}})
            await soon(lambda: told and told[-1]["state"] == "failed")
            assert str(told[-1]["sentence"]) == SENTENCE
        assert_recorded()

    on_host(check)


@pytest.mark.parametrize("name", ["_call", "_result"])
def test_a_call_of_a_tool(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(host: Any, told: list[dict[str, Any]]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(f"backend.tools.host.Host.{name}", lost_later)
            host.take(CALL)
            await soon(lambda: told)
        assert told[0]["is_error"] and "No module named 'lost'" in told[0]["text"]
        host.take(CALL)  # its number is free
        await soon(lambda: len(told) == 2)
        assert "lost" not in told[1]["text"]

    on_host(check)


# The guards themselves


def test_a_fault_of_failed_is_recorded() -> None:
    thread = faults.Thread("work", lost, failed=lambda _: [][0])
    thread.start()
    thread.join()
    said = "".join(faults.recent())
    assert "No module named 'lost'" in said and "IndexError" in said


def test_an_error_of_ours_is_told_and_not_recorded() -> None:
    def refuse() -> None:
        raise RequestError("The file is too long.")

    said: list[str] = []
    thread = faults.Thread("work", refuse, failed=said.append)
    thread.start()
    thread.join()
    assert said == ["The file is too long."] and faults.recent() == []


def test_what_no_guard_has_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in (
        (sys, "excepthook"), (sys, "unraisablehook"), (threading, "excepthook"),
    ):  # fmt: skip
        monkeypatch.setattr(owner, name, getattr(owner, name))
    said: list[str] = []
    faults.watch(said.append)

    class Dropped:
        def __del__(self) -> None:
            raise KeyError("destructor")

    def fail(word: str) -> None:
        raise KeyError(word)

    Dropped()
    thread = threading.Thread(target=fail, args=("thread",))
    thread.start()
    thread.join()

    async def drop() -> None:
        asyncio.get_running_loop().call_soon(fail, "loop")
        await asyncio.sleep(0)

    asyncio.run(drop())
    try:
        fail("main")
    except KeyError as error:
        sys.excepthook(KeyError, error, None)
    words = ["destructor", "thread", "loop", "main"]
    assert said == [f"Something unexpected failed (KeyError: '{word}')." for word in words]
    assert [word in faults.recent()[i] for i, word in enumerate(words)] == [True] * 4


def test_a_repeated_error_is_recorded_once() -> None:
    for _ in range(100):
        try:
            lost()
        except Lost as error:
            faults.record("loop", error)
    assert len(faults.recent(100)) == 1


def test_the_file_stays_small_and_survives_damage() -> None:
    for number in range(300):
        faults.record(f"work {number}", ValueError("x" * 3000))
    path = paths.faults_file()
    assert path.stat().st_size < 200_000
    if sys.platform != "win32":
        assert path.stat().st_mode & 0o077 == 0
    path.write_bytes(path.read_bytes()[:-1000] + b"\n[]\n{}\n\xff\n")
    assert "work 298" in faults.recent()[-1]
    faults.record("last", ValueError("after damage"))
    assert "after damage" in faults.recent()[-1]


def test_a_drive_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OUTRIDER_STATES", str(tmp_path / "file" / "states"))
    monkeypatch.setattr(faults, "_kept", type(faults._kept)(maxlen=20))
    faults.record("work", ValueError("full"))
    assert "ValueError: full" in faults.recent()[-1]
    assert "ValueError: full" in capsys.readouterr().err


@pytest.mark.usefixtures("started_children")
@pytest.mark.parametrize("module", children.MODULES)
def test_every_child_process_has_the_guard(module: str) -> None:
    start = f"from backend.system.children import run; sys.exit(run({module!r}))"
    assert children.command(module)[-1].endswith(start)
    assert (
        ast.unparse(ast.parse((ROOT / "backend/system/children.py").read_text())).count(
            "import_module("
        )
        == 1
    )  # a bundle's children begin in run(), too


def test_a_child_that_ends_by_an_error_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken_child(monkeypatch)
    command = children.command("backend.library.machine")
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    said = child.communicate()[1]
    assert str(describe_exit(child.returncode, said)) == (
        "The engine's process ended unexpectedly: something unexpected failed "
        "(ModuleNotFoundError: No module named 'lost')."
    )
    fault = faults.of_process(child.pid)
    assert fault == SENTENCE and isinstance(fault, Text)
    assert faults.of_process(child.pid + 1) == ""
