"""The rules of imports: packages stand in rows, and each imports only from lower rows."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A package may import itself and the packages of earlier rows of its list.
ROWS = {
    "backend": [
        ["text"],
        ["system", "gguf"],
        ["methods", "traces", "machines"],
        ["weights", "protocol"],
        ["attachments", "formulas", "llama", "server"],
        ["packs", "tools"],
        ["memory", "simulation"],
        ["library"],
        ["engine", "downloads"],
        ["evaluation", "bench"],
        ["learning"],
        ["cli", "worker"],
    ],
    "app": [
        ["text"],
        ["state"],
        ["widgets", "store"],
        ["session"],
        ["settings"],
        ["panel", "chat", "sidebar", "library"],
        ["controls"],
        ["pages"],
        ["window"],
        ["main"],
    ],
}
ROW = {
    f"{root}.{package}": number
    for root, rows in ROWS.items()
    for number, row in enumerate(rows)
    for package in row
}
NO_ROW = {"backend._chat", "backend._native", "app.display", "app.__main__"}

# The modules that a folder may import beside the standard library, with their submodules.
MAY_IMPORT = {
    "app": {
        "app",
        "backend.attachments.reading",  # a child reads the WebP pictures of an export
        "backend.downloads",
        "backend.library",
        "backend.machines",
        "backend.memory.plan",
        "backend.methods.catalogue",
        "backend.methods.cells",
        "backend.methods.slots",
        "backend.packs.offer",
        "backend.protocol",
        "backend.system",
        "backend.text",
        "backend.tools",
        "platformdirs",
        "pygments",
        "PySide6",
        "shiboken6",
    },
    "backend": {
        "anyio",
        "backend",
        "charset_normalizer",
        "filelock",
        "httpx2",
        "huggingface_hub",
        "keyring",
        "latex2mathml",
        "llama_cpp",
        "llguidance",
        "mcp",
        "numpy",
        "platformdirs",
        "predictors.fit",
        "psutil",
        "pydantic",
        "pypdf",
        "PySide6",
        "starlette",
        "uvicorn",
        "ziafont",
        "ziamath",
    },
    "predictors": {
        "backend.gguf",
        "backend.simulation",
        "backend.traces",
        "backend.weights",
        "gguf",
        "llama_cpp",
        "matplotlib",
        "numpy",
        "predictors",
        "psutil",
        "tokenizers",
        "torch",
    },
    "packaging": {
        "app.display",
        "app.main",
        "app.window.main_window",
        "app.pages.licences",
        "app.widgets.icons",
        "backend",
        "check",  # scripts import others of their folder
        "window",
        "factory",
        "loopback",
        "packaging.requirements",
        "PySide6",
    },
}

# Modules that only these files may import, whatever the table above allows.
ONLY_FROM = {
    "backend._chat": {"backend.llama.conversation_format"},
    "backend._native": {
        "backend.bench",
        "backend.engine",
        "backend.evaluation",
        "backend.llama",
        "backend.machines",
        "backend.memory",
        "backend.methods",
        "backend.packs",
        "backend.simulation",
        "backend.traces",
        "backend.weights",
        "packaging.gpu_check",
    },
    "anyio": {"backend.tools.transports"},
    "charset_normalizer": {"backend.attachments.text_files"},
    "backend.tools.host": set(),  # a process of its own
    "backend.tools.transports": {"backend.tools.host"},
    "backend.tools.results": {"backend.tools.host", "backend.tools.transports"},
    "gguf": {"predictors.embedded"},
    "httpx2": {"backend.cli.download", "backend.downloads", "backend.tools.transports"},
    "huggingface_hub": {"backend.downloads"},
    "latex2mathml": {"backend.formulas.child"},
    "llama_cpp": {
        "backend.attachments.pictures",
        "backend.engine.loading",
        "backend.evaluation.replay",
        "backend.evaluation.whole_windows",
        "backend.llama",
        "predictors",
    },
    "llguidance": {"backend.llama.json_matcher"},
    "mcp": {"backend.tools.host", "backend.tools.results", "backend.tools.transports"},
    "predictors": {"backend.cli.train", "backend.learning.child", "predictors"},
    "pydantic": {"backend.tools.host"},
    "pypdf": {"backend.attachments.pdf"},
    "PySide6": {
        "app",
        "backend.attachments.pictures",
        "packaging.icons",
        "packaging.windows.wine.watched",
    },
    "shiboken6": {"app.widgets"},
    "starlette": {
        "backend.server.application",
        "backend.server.guard",
        "backend.server.llama_native",
    },
    "torch": {"predictors.embedded", "predictors.expert_mlp"},
    "uvicorn": {"backend.server.application", "backend.server.guard"},
    "ziafont": {"backend.formulas.child"},
    "ziamath": {"backend.formulas.child"},
}
WITHOUT_QT = ("app.state", "app.store", "app.chat.markdown")

# For each folder of backend/native: the folders and libraries that it may include.
MAY_INCLUDE = {
    "core": ({"core"}, r"(?!)"),
    "live": ({"core", "live"}, r"ggml[a-z-]*\.h"),
    "sampling": ({"sampling"}, r"llama\.h"),
    "sim": ({"core", "sim"}, r"(?!)"),
    "chat": ({"chat"}, r"nanobind/.+|(chat|chat-peg-parser|common|json|log)\.h"),
    "bindings": ({"core", "live", "sampling", "sim", "bindings"}, r"nanobind/.+"),
}
# Each folder of live includes only those before it; the last two do not include each other.
LIVE_ROWS = [["ggml"], ["io"], ["memory"], ["graph"], ["compute"], ["pass", "measure"]]
IS_STANDARD = re.compile(r"[a-z_]+")  # <vector>; not <unistd.h>
NOT_IN_CORE = set(
    "atomic barrier chrono condition_variable ctime filesystem fstream future iostream latch mutex "
    "random semaphore shared_mutex stop_token thread".split()
)
IS_FOR_PROCESSORS = {"crc32.cc": {"arm_acle.h", "immintrin.h"}}  # intrinsic functions
IS_FOR_ONE_SYSTEM = re.compile(r".+_(linux|posix|windows)\.cc")


def below(name: str, prefixes: set[str] | tuple[str, ...]) -> bool:
    """Return whether a dotted name is one of the prefixes or lies below one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def module_name(path: Path) -> str:
    """Return the dotted name of a source file, given relative to the root."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package(name: str) -> str:
    """Return the package that has a row: `backend.gguf` of `backend.gguf.header.read`."""
    return ".".join(name.split(".")[:2])


class Import(NamedTuple):
    """One import statement. `from a import b` is named a.b."""

    name: str
    is_at_start: bool
    """It runs when the module is imported, and an error ends that import."""
    is_caught: bool
    """ImportError is caught around it."""

    @property
    def top(self) -> str:
        return self.name.split(".")[0]


@functools.cache
def imports(path: Path) -> tuple[Import, ...]:
    """Return the import statements of a file. Several tests read all files."""
    return tuple(_imports(ast.parse(path.read_text(encoding="utf-8"))))


def _imports(tree: ast.Module) -> Iterator[Import]:
    todo: list[tuple[ast.AST, bool, bool]] = [(tree, True, False)]
    while todo:
        node, starts, caught = todo.pop()
        parts = list(_statements(node))
        match node:
            case ast.Import():
                yield from (Import(alias.name, starts, caught) for alias in node.names)
            case ast.ImportFrom():
                module = f"{'.' * node.level}{node.module or ''}"
                yield from (Import(f"{module}.{a.name}", starts, caught) for a in node.names)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                starts = caught = False
            case ast.If():  # of a system, or for the type checker
                starts = False
            case ast.Try():
                kinds = " ".join(ast.unparse(h.type) for h in node.handlers if h.type is not None)
                if re.search(r"\b(ImportError|ModuleNotFoundError)\b", kinds):
                    todo += [(part, False, True) for part in node.body]
                    parts = [*node.handlers, *node.orelse, *node.finalbody]
        todo += [(part, starts, caught) for part in parts]


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a part of a module holds: statements, handlers of errors, and cases."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        parts = getattr(node, name, ())
        if isinstance(parts, list):  # the body of a lambda or a condition is an expression
            yield from parts


def imported(path: Path) -> Iterator[str]:
    """Yield the imports of a file as dotted names; `from a import b` is a.b."""
    return (one.name for one in imports(path))


def faults_of_rows(module: str, name: str) -> Iterator[str]:
    """Yield a sentence for each import that does not go to a lower row."""
    here, there = package(module), package(name)
    if here == there or here.split(".")[0] != there.split(".")[0] or here not in ROW:
        return
    if there in ROW and ROW[there] >= ROW[here]:
        yield f"{module} imports {name}, which stands no lower"


def python_faults(root: Path) -> list[str]:
    """Return a sentence for every import that the tables do not allow."""
    faults = []
    for folder, allowed in MAY_IMPORT.items():
        for path in sorted((root / folder).rglob("*.py")):
            module = module_name(path.relative_to(root))
            for name in imported(path):
                if name.split(".")[0] in sys.stdlib_module_names:
                    continue
                # `from backend import __version__` names the package, which loads nothing.
                is_constant = re.fullmatch(r"backend\.(__version__|[A-Z_]+)", name)
                if not below(name, allowed) and not (is_constant and folder == "app"):
                    faults.append(f"{module} imports {name}")
                faults += faults_of_rows(module, name)
                for guarded, importers in ONLY_FROM.items():
                    if below(name, {guarded}) and not below(module, importers):
                        faults.append(f"{module} imports {name}, which is for {sorted(importers)}")
                if below(name, {"PySide6"}) and below(module, WITHOUT_QT):
                    faults.append(f"{module} imports {name}, but works without Qt")
    return faults


def native_faults(root: Path) -> list[str]:
    """Return a sentence for every include that the tables do not allow."""
    faults = []
    native = root / "backend" / "native"
    for folder, (own, foreign) in MAY_INCLUDE.items():
        for path in sorted((native / folder).rglob("*")):
            if path.suffix not in (".cc", ".h"):
                continue
            text = path.read_text(encoding="utf-8")
            for kind, name in re.findall(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', text, re.M):
                if not allows(path, kind == '"', name, native, own, foreign):
                    faults.append(f"{path.relative_to(native)} includes {name}")
                if folder == "core" and name in NOT_IN_CORE:
                    faults.append(f"{path.relative_to(native)} includes {name}")
    return faults


def allows(path: Path, quoted: bool, name: str, native: Path, own: set[str], foreign: str) -> bool:
    """Return whether a file of backend/native may include this. Quoted names begin there."""
    if re.fullmatch(foreign, name):
        return True
    if not quoted:
        if name in IS_FOR_PROCESSORS.get(path.name, ()):
            return True
        return bool(IS_STANDARD.fullmatch(name) or IS_FOR_ONE_SYSTEM.fullmatch(path.name))
    here, there = path.relative_to(native).parts, Path(name).parts
    if not (native / name).is_file() or there[0] not in own:
        return False
    if here[0] == there[0] == "live" and here[1] != there[1]:
        row = {room: number for number, rooms in enumerate(LIVE_ROWS) for room in rooms}
        return row[there[1]] < row[here[1]]
    return True


def test_python_imports() -> None:
    assert python_faults(ROOT) == []


def test_the_journeys_know_nothing_of_the_product() -> None:
    """They see what a person sees; so do the stand-ins that they use."""
    files = [*(ROOT / "tests" / "journeys").glob("*.py"), ROOT / "tests" / "fake_hub.py"]
    assert len(files) > 5
    for path in files:
        for name in imported(path):
            assert not below(name, {"app", "backend", "predictors"}), f"{path} imports {name}"


def test_every_package_has_a_row() -> None:
    found = {
        module_name(path.relative_to(ROOT))
        for root in ROWS
        for path in (ROOT / root).iterdir()
        if (path.suffix == ".py" and path.name != "__init__.py") or (path / "__init__.py").is_file()
    }
    assert found - NO_ROW == set(ROW)


def test_modules_lie_in_packages() -> None:
    """With many modules in the root, a reader does not know where to begin."""
    modules = {root: {path.stem for path in (ROOT / root).glob("*.py")} for root in ROWS}
    assert modules == {"backend": {"__init__"}, "app": {"__init__", "__main__", "main", "display"}}


def test_native_includes() -> None:
    assert native_faults(ROOT) == []


def test_every_folder_of_the_native_part_is_in_the_table() -> None:
    folders = {p.name for p in (ROOT / "backend" / "native").iterdir() if p.is_dir()}
    assert folders == set(MAY_INCLUDE)


def test_the_core_links_nothing() -> None:
    cmake = (ROOT / "backend" / "native" / "core" / "CMakeLists.txt").read_text(encoding="utf-8")
    assert "add_library" in cmake
    assert "target_link_libraries" not in cmake


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("app/x.py", "import torch"),
        ("app/x.py", "from backend import _native"),
        ("app/x.py", "from backend.engine.engine import Engine"),
        ("app/store/x.py", "import PySide6.QtCore"),
        ("app/chat/x.py", "from app.window import drops"),
        ("backend/gguf/x.py", "from backend.engine.engine import Engine"),
        ("backend/packs/x.py", "def f():\n    from backend.memory import plan"),
        ("app/x.py", "def f():\n    import llama_cpp.llama"),
        ("backend/x.py", "from PySide6.QtCore import QObject"),
        ("backend/x.py", "import app.text.units"),
        ("backend/x.py", "import backend._native"),
        ("backend/cli/x.py", "import llama_cpp"),
        ("backend/x.py", "from predictors import embedded"),
        ("predictors/x.py", "from backend import engine"),
        ("predictors/x.py", "import app"),
        ("predictors/x.py", "import torch"),
        ("predictors/x.py", "import gguf"),
        ("packaging/x.py", "import torch"),
    ],
)
def test_what_the_tables_forbid_is_found(tmp_path: Path, file: str, line: str) -> None:
    path = tmp_path / file
    path.parent.mkdir(parents=True)
    path.write_text(line + "\n", encoding="utf-8")
    assert python_faults(tmp_path)


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("core/x.cc", '#include "ggml.h"'),
        ("core/x.cc", '#include "live/memory/slab.h"'),
        ("live/io/x.cc", '#include "live/memory/slab.h"'),
        ("live/memory/x.cc", '#include "slab.h"'),
        ("core/x.cc", "#include <thread>"),
        ("core/evict/x.h", "#include <unistd.h>"),
        ("live/x.cc", "#include <nanobind/nanobind.h>"),
        ("live/x.cc", "# include <sys/mman.h>"),
        ("live/x.cc", '#include "llama.h"'),
        ("live/x.cc", "#include <immintrin.h>"),
    ],
)
def test_what_the_native_table_forbids_is_found(tmp_path: Path, file: str, line: str) -> None:
    native = tmp_path / "backend" / "native"
    for name in ("live/memory/slab.h", file):
        (native / name).parent.mkdir(parents=True, exist_ok=True)
    (native / "live" / "memory" / "slab.h").touch()
    (native / file).write_text(line + "\n", encoding="utf-8")
    assert native_faults(tmp_path)


def test_the_window_and_the_command_line_load_no_engine_and_no_network() -> None:
    """Check the modules of a fresh process, so that indirect imports count."""
    code = (
        "import sys, app.window.main_window, backend.cli.chat, backend.cli.inspect\n"
        "engine = {'llama_cpp', 'torch', 'backend._native', 'predictors'}\n"
        "network = {'httpx2', 'huggingface_hub', 'mcp', 'starlette', 'uvicorn'}\n"
        "formulas = {'latex2mathml', 'ziafont', 'ziamath'}\n"
        "print(sorted((engine | network | formulas) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_training_a_predictor_needs_no_package_of_developers() -> None:
    """Users have neither torch nor gguf.

    The imports of a fresh process show that none is needed.
    """
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'gguf', 'tokenizers', 'matplotlib')))\n"
        "import backend.learning.child, backend.cli.train\n"
        "print(backend.cli.train.METHODS)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    offered = "('learned', 'correlation', 'token_table', 'eam', 'popularity')\n"
    assert (done.stdout, done.stderr) == (offered, "")


def test_on_windows_the_native_part_finds_the_libraries_of_llama_cpp() -> None:
    """It is imported before llama_cpp, which names its folder of libraries to the system."""
    code = (
        "import os, sys\n"
        "folders = []\n"
        "os.add_dll_directory = folders.append\n"
        "sys.platform = 'win32'\n"
        "import backend\n"
        "print([os.path.isdir(folder) for folder in folders], *folders)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("[True] ") and done.stderr == ""
    assert Path(done.stdout.strip()).parts[-2:] == ("llama_cpp", "lib")
