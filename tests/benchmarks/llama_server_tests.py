"""Run the tests of llama.cpp's own server against it and against `outrider serve`.

    python tests/benchmarks/llama_server_tests.py [--sdist FILE] [--cache FOLDER] [PYTEST OPTIONS]

The tests and the server come from the source distribution of llama-cpp-python, which is downloaded
once if no file is given. llama-server is built once, and pytest and what the tests import are
installed once, all in the cache folder. Both servers load the embedded model in place of each model
that a test names; nothing else is downloaded. Texts that the tests' own models would write are not
compared. A test that llama-server fails is set aside.

What llama-server takes on its command line and `outrider serve` takes with each request (seed,
temperature, n_predict, reasoning off) is added to the tests' requests. A chat template, and the
pooling of embeddings, are written into a copy of the model. Pages of all origins are admitted, as
llama-server does unless it is told otherwise.

pytest loads this file as a plugin, too.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "assets/embedded/outrider-tiny.gguf"
VERSION = "0.3.36"
PACKAGES = ("pytest", "requests", "openai", "wget", "filelock", "numpy")
BUILD = (
    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_UI=OFF", "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_APP=OFF", "-DLLAMA_OPENSSL=OFF",
)  # fmt: skip
OTHER = ("test_router", "test_lora", "test_speculative", "test_vision_api", "test_proxy",
         "test_mcp_servers", "test_tools_builtin", "test_stream", "test_rerank")  # fmt: skip
"""Files about several models, adapters, drafts, images or programs that the server starts."""
POOLINGS = {"mean": 1, "cls": 2, "last": 3}
KEY = "dummy"
"""The key that the tests give to OpenAI's client where llama-server asks for none."""
_WHICH, _REPORT, _PYTHON = "TESTED_SERVER", "TESTED_REPORT", "OUTRIDER_PYTHON"
_ROLES = "{% for m in messages %}"
TEMPLATES = {
    "chatml": _ROLES
    + "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    + "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "llama3": _ROLES
    + "<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content }}<|eot_id|>{% endfor %}"
    + "{% if add_generation_prompt %}"
    + "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
    "command-r": _ROLES
    + "<|START_OF_TURN_TOKEN|><|{{ {'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}"
    + "[m.role] }}_TOKEN|>{{ m.content }}<|END_OF_TURN_TOKEN|>{% endfor %}"
    + "{% if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>{% endif %}",
}
"""llama-server's templates by name that the tests use, as templates of a file."""


def main() -> int:
    """Prepare, run the tests twice, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sdist", type=Path)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/llama-server-tests")
    parser.add_argument("--again", action="store_true", help="run llama-server's tests again, too")
    args, options = parser.parse_known_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    source = unpacked(args.sdist, args.cache)
    server, python = built(source, args.cache), prepared(args.cache)
    results = {}
    for which in ("llama-server", "outrider"):
        report = args.cache / f"{which}.json"
        if which == "outrider" or args.again or not report.exists():
            run(which, server, python, source / "tools/server/tests", report, options)
        results[which] = json.loads(report.read_text())
    return show(results["llama-server"], results["outrider"])


def unpacked(sdist: Path | None, cache: Path) -> Path:
    """Return the folder of llama.cpp's source."""
    target = cache / "llama.cpp"
    if not target.exists():
        if sdist is None:
            subprocess.run(
                [sys.executable, "-m", "pip", "download", f"llama-cpp-python=={VERSION}",
                 "--no-binary", "llama-cpp-python", "--no-deps", "-d", str(cache)], check=True,
            )  # fmt: skip
            sdist = cache / f"llama_cpp_python-{VERSION}.tar.gz"
        with tarfile.open(sdist) as archive:
            archive.extractall(cache, filter="data")
        made = cache / f"llama_cpp_python-{VERSION}"
        (made / "vendor/llama.cpp").rename(target)
        shutil.rmtree(made)
    return target


def built(source: Path, cache: Path) -> Path:
    """Return llama-server, built."""
    server = cache / "build/bin/llama-server"
    if not server.exists():
        nice = ["nice", "-n", "10", "cmake"]
        subprocess.run([*nice, "-S", source, "-B", cache / "build", *BUILD], check=True)
        command = [*nice, "--build", cache / "build", "--target", "llama-server", "-j", "2"]
        subprocess.run(command, check=True)
    return server


def prepared(cache: Path) -> Path:
    """Return a Python that has pytest and what the tests import."""
    python = cache / "venv/bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *PACKAGES], check=True)
    return python


def run(
    which: str, server: Path, python: Path, tests: Path, report: Path, options: list[str]
) -> None:
    """Run the tests against a server and write the outcome of each as JSON."""
    env = {
        **os.environ, _WHICH: which, _REPORT: str(report), _PYTHON: sys.executable,
        "LLAMA_SERVER_BIN_PATH": str(server), "PYTHONPATH": str(Path(__file__).parent),
    }  # fmt: skip
    env.setdefault("PORT", "8190")
    left_out = [f"--ignore=unit/{name}.py" for name in OTHER]
    command = [
        python, "-m", "pytest", "-p", Path(__file__).stem, "-q", "-x" if "-x" in options else "-q",
        "-m", "not slow", "-p", "no:cacheprovider", *left_out, *options,
    ]  # fmt: skip
    with report.with_suffix(".log").open("w") as log:
        subprocess.run(command, cwd=tests, env=env, stdout=log, stderr=log, check=False)


def show(reference: dict[str, str], own: dict[str, str]) -> int:
    """Print a line for each file, and the tests that only llama-server passes."""
    files: dict[str, Counter[str]] = defaultdict(Counter)
    missing = []
    for test, outcome in sorted(reference.items()):
        counts = files[test.split("::")[0].removeprefix("unit/")]
        counts["tests"] += 1
        if outcome != "passed":
            continue
        counts["llama-server"] += 1
        if own.get(test) == "passed":
            counts["outrider"] += 1
        elif test in own:
            missing.append(test)
    columns = ("tests", "llama-server", "outrider")
    print(f"| {'file':30} | " + " | ".join(columns) + " |\n|---|" + "--:|" * len(columns))
    for name, counts in files.items():
        print(f"| {name:30} | " + " | ".join(f"{counts[c]:{len(c)}}" for c in columns) + " |")
    total = sum(files.values(), Counter())
    print(f"| {'all':30} | " + " | ".join(f"{total[c]:{len(c)}}" for c in columns) + " |")
    if missing:
        print("\nOnly llama-server passes:", *missing, sep="\n  ")
    return 0


# The plugin of pytest.


def pytest_configure(config: Any) -> None:
    """Have the tests start the server in question."""
    if _WHICH not in os.environ:
        return
    sys.path.insert(0, os.getcwd())
    import utils  # of llama.cpp's tests

    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.match_regex = lambda *_: True
    process = utils.ServerProcess
    process.server_path = None
    if os.environ[_WHICH] == "llama-server":
        _start_llama(process)
    else:
        _start_outrider(process)
    config.pluginmanager.register(_Outcomes(Path(os.environ[_REPORT])))


class _Outcomes:
    """Writes the outcome of each test."""

    def __init__(self, report: Path) -> None:
        self._report, self._found = report, {}
        self._report.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: Any) -> None:
        before = self._found.get(report.nodeid, "passed")
        if report.outcome != "passed" or report.when == "call":
            self._found[report.nodeid] = before if before == "failed" else report.outcome

    def pytest_sessionfinish(self) -> None:
        self._report.write_text(json.dumps(self._found, indent=0))


def _start_llama(process: Any) -> None:
    start = process.start

    def with_model(self: Any, timeout_seconds: int = 60) -> None:
        if self.model_hf_repo or self.model_file:
            self.model_hf_repo = self.model_hf_file = self.model_url = None
            self.model_file = str(MODEL)
        start(self, min(timeout_seconds, 60))

    process.start = with_model


def _start_outrider(process: Any) -> None:
    process.start = _outrider
    for name, i_body in (("make_request", 2), ("make_stream_request", 2)):
        _complete(process, name, i_body)


def _complete(process: Any, name: str, i_body: int) -> None:
    """Add the key and the server's defaults to the requests of a method."""
    from requests.structures import CaseInsensitiveDict  # in the tests' own environment

    inner = getattr(process, name)

    def call(self: Any, method: str, path: str, data: Any = None, headers: Any = None, **more: Any):  # type: ignore[no-untyped-def]
        if self.api_key is None:
            headers = {"Authorization": f"Bearer {KEY}", **(headers or {})}
        if method == "POST" and isinstance(data, dict):
            data = {**_defaults(self, path), **data}
        answer = inner(self, method, path, data, headers, **more)
        if hasattr(answer, "headers"):  # whose names are the same in any case
            answer.headers = CaseInsensitiveDict(answer.headers)
        return answer

    setattr(process, name, call)


def _defaults(self: Any, path: str) -> dict[str, Any]:
    """Return what llama-server takes on its command line."""
    given: dict[str, Any] = {}
    if self.debug and path.endswith("completions"):
        given["verbose"] = True
    if self.reasoning == "off":
        given["chat_template_kwargs"] = {"enable_thinking": False}
    if path.endswith(("completion", "completions", "responses", "messages")):
        given |= {"temperature": self.temperature, "seed": self.seed}
        if self.n_predict and path.endswith(("completion", "completions")):
            given["n_predict"] = self.n_predict
    return given


def _outrider(self: Any, timeout_seconds: int = 60) -> None:
    """Start `outrider serve` in place of llama-server."""
    import utils  # of llama.cpp's tests

    n_slot = self.n_slots or 4
    n_context = (self.n_ctx or 4096) // (1 if self.kv_unified else n_slot)
    folder = Path(self.slot_save_path or os.environ[_REPORT]).parent / f"model-{os.getpid()}"
    model = _model(self, folder)
    command = [
        os.environ[_PYTHON], "-c", "from backend.cli import main; raise SystemExit(main())",
        "serve", str(model), "--models", str(folder), "--port", str(self.server_port),
        "--context", str(n_context), "--parallel", str(n_slot), "--keep-states", "0",
    ]  # fmt: skip
    command += ["--allow-origin", "localhost" if self.cors_origins == "localhost" else "*"]
    if (pooling := POOLINGS.get(self.pooling or "mean")) and self.server_embeddings:
        command += ["--embedding-model", str(_copied(model, folder / "small", pooling=pooling))]
    if self.sleep_idle_seconds:
        command += ["--unload-after", str(self.sleep_idle_seconds / 60)]
    with socket.socket() as probe:
        if not probe.connect_ex(("127.0.0.1", self.server_port)):
            raise RuntimeError("Another program listens on the port.")
    env = {**os.environ, "OUTRIDER_API_KEY": self.api_key or KEY}
    env.pop("PYTHONPATH")
    log = self._log = open(self.log_path, "w") if self.log_path else sys.stdout
    self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env, cwd=ROOT)
    utils.server_instances.add(self)
    end_s = time.time() + timeout_seconds
    while time.time() < end_s:
        try:
            if self.make_request("GET", "/health").status_code == 200:
                self.ready = True
                return
        except OSError:  # it does not listen yet
            pass
        if self.process.poll() is not None:
            raise RuntimeError(f"The server has ended with {self.process.returncode}.")
        time.sleep(0.02)
    raise TimeoutError("The server did not start.")


def _model(self: Any, folder: Path) -> Path:
    """Return a file with the embedded model, by the name and with the template of a test."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model = folder / f"{(self.model_alias or 'model').split(',')[0]}.gguf"
    template = self.chat_template and TEMPLATES.get(self.chat_template, self.chat_template)
    if self.chat_template_file:
        template = Path(self.chat_template_file).read_text()
    if not template:
        os.link(MODEL, model) if model.parent.stat().st_dev == MODEL.stat().st_dev else (
            shutil.copy(MODEL, model)
        )
        return model
    return _copied(MODEL, model, template)


def _copied(path: Path, out: Path, template: str | None = None, pooling: int | None = None) -> Path:
    """Write a copy of a model with a chat template and a pooling. Return its path."""
    write = "import json, sys; from pathlib import Path; from reciter import with_template; "
    write += "with_template(Path(sys.argv[1]), Path(sys.argv[2]), **json.load(sys.stdin))"
    subprocess.run(
        [os.environ[_PYTHON], "-c", write, str(path), str(out)],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'tests'}:{ROOT / 'tests/engine'}"},
        input=json.dumps({"template": template, "pooling": pooling}), text=True, check=True,
    )  # fmt: skip
    return out


if __name__ == "__main__":
    raise SystemExit(main())
