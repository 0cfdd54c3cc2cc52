"""The set-up of `make`: no step is repeated without need; what `make run` starts."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from email.message import EmailMessage
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
linux = pytest.mark.skipif(sys.platform != "linux", reason="what is done on Linux alone")
PYPROJECT = """
[build-system]
requires = ["builder", "engine==1"]
[project]
dependencies = ["engine==1"]
[project.optional-dependencies]
dev = ["tester"]
"""


class Checkout:
    """A checkout with a fake pip that records its requests."""

    def __init__(
        self,
        root: Path,
        prepare: ModuleType,
        monkeypatch: pytest.MonkeyPatch,
        system_packages: tuple[list[str], list[str]] = ([], []),
    ) -> None:
        self.root = root
        self.source = root / ".venv" / "stamps" / "llama.cpp"
        self.calls: list[tuple[str, ...]] = []
        self.versions = ""
        self._prepare = prepare
        monkeypatch.setattr(prepare, "ROOT", root)
        monkeypatch.setattr(prepare, "VENV", root / ".venv")
        monkeypatch.setattr(prepare, "STAMPS", root / ".venv" / "stamps")
        monkeypatch.setattr(prepare, "LLAMA_SOURCE", self.source)
        monkeypatch.setattr(prepare, "_works", lambda _: True)
        monkeypatch.setattr(prepare, "system_packages", lambda **_: system_packages)
        monkeypatch.setattr(prepare, "_pip", self._pip)
        self.write("pyproject.toml", PYPROJECT)
        self.write("CMakeLists.txt", "")
        self.write("backend/native/core.cc", "int x;")
        self.write(".venv/pyvenv.cfg", "version = 3.11.2")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def _pip(self, *arguments: str, what: str = "install", **_: str) -> None:
        self.calls.append(arguments if what == "install" else (what, *arguments))
        if "--constraint" in arguments:
            self.versions = Path(arguments[arguments.index("--constraint") + 1]).read_text("ascii")
        if what == "download":
            archive = Path(arguments[arguments.index("--dest") + 1]) / "llama_cpp_python-1.tar.gz"
            with tarfile.open(archive, "w:gz") as tar:
                for name in ("common/chat.h", "vendor/nlohmann/json.hpp", "src/llama.cpp"):
                    member = tarfile.TarInfo(f"llama_cpp_python-1/vendor/llama.cpp/{name}")
                    tar.addfile(member, io.BytesIO())

    def prepare(self, *, with_tests: bool = False) -> list[tuple[str, ...]]:
        """Prepare. Return the requests to pip."""
        self.calls = []
        self._prepare.prepare(with_tests=with_tests)
        return self.calls


@pytest.fixture
def prepare() -> ModuleType:
    spec = importlib.util.spec_from_file_location("prepare", ROOT / "packaging" / "prepare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    return Checkout(tmp_path, prepare, monkeypatch)


def installs_itself(call: tuple[str, ...]) -> bool:
    return "--editable" in call and "--no-build-isolation" in call


def test_the_second_time_nothing_is_done(checkout: Checkout) -> None:
    dependencies, itself = checkout.prepare()
    assert {"engine==1", "builder"} < set(dependencies)
    assert "tester" not in dependencies
    assert installs_itself(itself)
    assert checkout.prepare() == []


def test_the_tests_add_only_what_they_need(checkout: Checkout) -> None:
    checkout.prepare()
    (dependencies,) = checkout.prepare(with_tests=True)
    assert "tester" in dependencies
    assert checkout.prepare(with_tests=True) == []
    assert checkout.prepare() == []


def test_people_get_the_versions_of_the_lock(
    checkout: Checkout, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are of one system and one Python; others, and the tests, get what is newest."""
    checkout.write("requirements.lock", "# made\nbuilder==3 --hash=sha256:ab\n")
    monkeypatch.setattr(prepare, "LOCK", checkout.root / "requirements.lock")
    here = sys.platform, platform.machine(), sys.version_info[:2]
    monkeypatch.setattr(prepare, "LOCK_IS_FOR", here)
    checkout.prepare()
    assert checkout.versions == "builder==3"
    checkout.write("requirements.lock", "builder==4 --hash=sha256:ab\nllama-cpp-python==1\n")
    (dependencies,) = checkout.prepare()
    assert "builder" in dependencies and checkout.versions == "builder==4"
    assert checkout.prepare() == []
    checkout.prepare(with_tests=True)
    assert checkout.versions == ""
    assert checkout.prepare() == []
    monkeypatch.setattr(prepare, "LOCK_IS_FOR", ("linux", "riscv64", (3, 11)))
    checkout.prepare()
    assert checkout.versions == ""


def test_what_people_told_pip_elsewhere_does_not_matter(
    prepare: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pip itself refuses "user" in an environment, and takes what PYTHONPATH has for installed."""
    wheel, about = tmp_path / "some-1-py3-none-any.whl", "Metadata-Version: 2.1\nName: some\n"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("some-1.dist-info/METADATA", f"{about}Version: 1\n")
        file.writestr("some-1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("some-1.dist-info/RECORD", "")
    (tmp_path / "other" / "some-1.dist-info").mkdir(parents=True)
    (tmp_path / "other" / "some-1.dist-info" / "METADATA").write_text(f"{about}Version: 1\n")
    (tmp_path / "pip.conf").write_text("[install]\nuser = true\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    monkeypatch.setattr(prepare, "PYTHON", Path(sys.executable))
    report = tmp_path / "report"
    prepare._pip("--dry-run", "--no-index", "--report", str(report), str(wheel))
    assert [one["metadata"]["name"] for one in json.loads(report.read_text())["install"]] == [
        "some"
    ]


def test_a_changed_source_builds_only_the_native_part(checkout: Checkout) -> None:
    checkout.prepare()
    checkout.write("backend/native/core.cc", "int y;")
    (call,) = checkout.prepare()
    assert installs_itself(call)
    checkout.write("backend/native/more.h", "")
    assert len(checkout.prepare()) == 1
    assert checkout.prepare() == []


def test_a_source_that_changes_while_it_is_built_is_built_again(
    checkout: Checkout, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pip(*arguments: str, **options: str) -> None:
        checkout._pip(*arguments, **options)
        if installs_itself(arguments):
            checkout.write("backend/native/core.cc", "int z;")

    monkeypatch.setattr(prepare, "_pip", pip)
    checkout.prepare()
    assert len(checkout.prepare()) == 1
    assert checkout.prepare() == []


def test_a_changed_dependency_is_installed(checkout: Checkout) -> None:
    checkout.prepare()
    checkout.write("pyproject.toml", PYPROJECT.replace("engine==1", "engine==2"))
    dependencies, itself = checkout.prepare()
    assert "engine==2" in dependencies
    assert installs_itself(itself)


def test_another_python_or_place_begins_anew(checkout: Checkout) -> None:
    checkout.prepare()
    checkout.write(".venv/pyvenv.cfg", "version = 3.12.1")
    assert len(checkout.prepare()) == 2


def test_llama_cpp_is_built_once_with_remote_devices(
    tmp_path: Path, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's cache could have one without remote devices. Another setting is another build."""
    checkout = Checkout(tmp_path, prepare, monkeypatch)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    checkout.write("pyproject.toml", PYPROJECT.replace("engine==1", "llama-cpp-python==1"))
    source, llama, _dependencies, _ = checkout.prepare()
    assert source[0] == "download" and source[-1] == "llama-cpp-python==1"
    assert llama[-1] == "llama-cpp-python==1" and "--force-reinstall" in llama
    assert checkout.prepare() == []
    assert len(checkout.prepare(with_tests=True)) == 1
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_CUDA=on")
    assert checkout.prepare()[0][-1] == "llama-cpp-python==1"
    assert checkout.prepare() == []


@pytest.mark.parametrize(
    ("release", "macros", "is_off"),
    [
        ((12, 2), "#define __AMX_INT8__ 1", True),  # Debian 12
        ((12, 2), "", False),
        ((12, 4), "#define __AMX_INT8__ 1", False),
        ((14, 2), "#define __AMX_INT8__ 1", False),
        ((4, 2), "#define __AMX_INT8__ 1\n#define __clang__ 1", False),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the compiler is a shell script here")
def test_amx_is_off_where_the_compiler_gets_it_wrong(
    tmp_path: Path,
    prepare: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    release: tuple[int, int],
    macros: str,
    is_off: bool,
) -> None:
    compiler = tmp_path / "c++"
    shown = f"#define __GNUC__ {release[0]}\n#define __GNUC_MINOR__ {release[1]}\n{macros}\n"
    compiler.write_text(f"#!/bin/sh\ncat <<end\n{shown}end\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    given: list[str] = []
    monkeypatch.setattr(prepare, "VENV", tmp_path)
    monkeypatch.setattr(prepare, "_is_stamped", lambda *_: False)
    monkeypatch.setattr(prepare, "_stamp", lambda *_: None)
    monkeypatch.setattr(prepare, "_digest", lambda _: "")
    monkeypatch.setattr(prepare, "_cache", lambda: [])
    monkeypatch.setattr(prepare, "_pip", lambda *_, CMAKE_ARGS: given.append(CMAKE_ARGS))
    prepare._install_llama("llama-cpp-python==1")
    assert ("-mno-amx-int8" in given[0]) == is_off


def test_only_the_missing_sources_are_fetched(
    tmp_path: Path, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = Checkout(tmp_path, prepare, monkeypatch)
    checkout.write("pyproject.toml", PYPROJECT.replace("engine==1", "llama-cpp-python==1"))
    checkout.prepare()
    files = {str(path.relative_to(checkout.source)) for path in checkout.source.rglob("*.*")}
    assert files == {"common/chat.h", "vendor/nlohmann/json.hpp"}
    shutil.rmtree(checkout.source)
    ((what, *_),) = checkout.prepare()
    assert what == "download" and checkout.prepare() == []


def test_a_failed_step_is_done_again(
    checkout: Checkout, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: str, **_: str) -> None:
        if installs_itself(arguments):
            raise prepare.SetupError("No.")

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "_pip", fail)
        assert prepare.main(["run"]) == 1
    (call,) = checkout.prepare()
    assert installs_itself(call)


@linux
@pytest.mark.parametrize("missing", [(["python3-dev"], ["libegl1"]), ([], ["libegl1"])])
def test_without_root_the_command_is_named(
    missing: tuple[list[str], list[str]],
    prepare: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Libraries that Qt needs are only named. Tools that the build needs end the set-up."""
    checkout = Checkout(tmp_path, prepare, monkeypatch, system_packages=missing)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    needed, for_window = missing
    assert prepare.main(["run"]) == (1 if needed else 0)
    assert f"sudo apt-get install {' '.join(needed + for_window)}" in "".join(capsys.readouterr())
    assert bool(checkout.calls) is not bool(needed)


def test_vulkan_needs_packages(
    tmp_path: Path, prepare: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the installed ones first, then with none."""
    monkeypatch.setenv("CMAKE_ARGS", "-DGGML_VULKAN=on")
    monkeypatch.setattr(prepare, "PREFIXES", (str(tmp_path),))
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    for there in ("include/vulkan/vulkan.h", f"share/{prepare.SPIRV_HEADERS[2:]}"):
        (tmp_path / there).parent.mkdir(parents=True)
        (tmp_path / there).touch()
    vulkan = set(prepare.VULKAN_PACKAGES)
    assert not vulkan & set(prepare.system_packages(new_environment=False)[0])
    monkeypatch.setattr(prepare, "PREFIXES", (str(tmp_path / "empty"),))
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "glslc" else name)
    assert vulkan <= set(prepare.system_packages(new_environment=False)[0])
    monkeypatch.setenv("CMAKE_ARGS", "")
    assert not vulkan & set(prepare.system_packages(new_environment=False)[0])


@linux
def test_without_a_display_the_terminal_chat_answers(tmp_path: Path) -> None:
    """Also where PYTHONPATH leads to packages of another Python, as ROS does for all programs."""
    for name in ("numpy", "psutil", "filelock"):
        (tmp_path / f"{name}.py").write_text("raise ImportError")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    }
    done = subprocess.run(
        [sys.executable, "packaging/launch.py"],
        cwd=ROOT,
        env={**environment, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    reason, prompt, answer = done.stdout.split("\n", 2)
    assert "no display" in reason and "terminal" in reason
    assert prompt.startswith("> ")
    assert answer.strip()


@pytest.fixture
def locked() -> Any:
    spec = importlib.util.spec_from_file_location("locked", ROOT / "packaging" / "locked.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_an_audit_says_what_the_index_says(locked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index in a folder: with pages of versions, of names only, and with no page."""
    versions = locked.locked()
    pages = {
        f"numpy/{versions['numpy']}": ("numpy", [{"id": "PYSEC-1", "aliases": ["CVE-1"]}]),
        f"anyio/{versions['anyio']}": ("anyio", [{"id": "CVE-2", "withdrawn": "2026-01-01"}]),
        "diskcache": ("diskcache", [{"id": "GHSA-1", "aliases": ["CVE-2025-69872"]}]),
        "click": ("anyio", []),  # its newest version is another one
    }

    def urlopen(address: str, timeout: float) -> io.BytesIO:
        page = address.removeprefix(f"{locked.API}/").removesuffix("/json")
        if page == f"uvicorn/{versions['uvicorn']}":
            raise urllib.error.URLError("no route")
        if page not in pages:
            raise urllib.error.HTTPError(address, 404, "Not Found", EmailMessage(), None)
        name, known = pages[page]
        about = {"info": {"version": versions[name]}, "vulnerabilities": known}
        return io.BytesIO(json.dumps(about).encode())

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    assert locked.audit(["anyio", "diskcache"]) == []
    assert locked.audit(["numpy", "click"]) == [
        f"numpy {versions['numpy']} has CVE-1: https://osv.dev/CVE-1",
        f"PyPI says nothing about click {versions['click']}.",
    ]
    (said,) = locked.audit(["uvicorn", "anyio"])
    assert "no route" in said and said.endswith("Nothing is known about uvicorn, anyio.")
    assert locked.audit(["left-pad"]) == ["requirements.lock has no left-pad."]


@linux
def test_what_is_shipped_is_locked_and_its_licence_is_known(locked: Any) -> None:
    """Versions may be newer here; `make bundle` refuses those."""
    names = locked.shipped()
    assert {"numpy", "starlette", "anyio", "h11"} <= names <= set(locked.locked())
    assert [fault for fault in locked.faults() if "licence" in fault] == []
