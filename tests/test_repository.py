"""The repository: its files, its size, and the consistency of versions and links."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import backend

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"app", "assets", "backend", "docs", "packaging", "predictors", "tests"}
MODEL = Path("assets/embedded/outrider-tiny.gguf")
TREE_BYTES_MAX = 28 << 20
FILE_BYTES_MAX = 1_000_000


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    """Return the tracked files that exist, relative to the root."""
    try:
        done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    except OSError:
        pytest.skip("git is not installed")
    if done.returncode != 0:
        pytest.skip("this is not a git checkout")
    paths = [Path(name) for name in done.stdout.decode().split("\0") if name]
    return [path for path in paths if (ROOT / path).is_file()]


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_top_level_is_fixed(tracked: list[Path]) -> None:
    folders = {path.parts[0] for path in tracked if len(path.parts) > 1}
    assert {name for name in folders if not name.startswith(".")} <= FOLDERS


def test_the_tree_is_small(tracked: list[Path]) -> None:
    sizes_bytes = {path: (ROOT / path).stat().st_size for path in tracked}
    assert sum(sizes_bytes.values()) < TREE_BYTES_MAX
    large = {path for path, size_bytes in sizes_bytes.items() if size_bytes > FILE_BYTES_MAX}
    assert large <= {MODEL}


def test_nothing_built_is_tracked(tracked: list[Path]) -> None:
    assert [path for path in tracked if path.suffix in (".so", ".pyd", ".dylib", ".pyc")] == []


def test_the_packaging_folder_hides_no_library() -> None:
    """With an __init__.py it would hide the library `packaging`, which pytest needs."""
    assert (ROOT / "packaging").is_dir()
    assert not (ROOT / "packaging" / "__init__.py").exists()


def test_what_is_left_out_under_wine_is_there_and_has_a_reason() -> None:
    lines = (ROOT / "packaging/windows/wine/left_out.txt").read_text("utf-8").splitlines()
    for line in (line for line in lines if line and not line.startswith("#")):
        name, gap, reason = line.partition("  ")
        file, _, test = name.partition("::")
        assert gap and len(reason.strip()) > 10, line
        assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text("utf-8") + "def (", line


def test_one_version(project: dict[str, Any]) -> None:
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["scikit-build"]["metadata"]["version"]["input"] == "backend/__init__.py"
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(backend.__version__)}\b", changelog, re.M)


def test_one_llama_cpp_python(project: dict[str, Any]) -> None:
    pin = f"llama-cpp-python=={backend.LLAMA_CPP_PYTHON_VERSION}"
    assert pin in project["project"]["dependencies"]
    assert pin in project["build-system"]["requires"]


def test_torch_is_for_predictors_only(project: dict[str, Any]) -> None:
    def wants_torch(requirements: list[str]) -> bool:
        return any(re.match(r"torch\b", requirement) for requirement in requirements)

    extras = project["project"]["optional-dependencies"]
    assert not wants_torch(project["project"]["dependencies"])
    assert {name for name, wanted in extras.items() if wants_torch(wanted)} == {"predictors", "dev"}


def test_actions_are_pinned_by_their_commit() -> None:
    """A tag can be moved to other code, which would run with the secrets of a release."""
    for path in sorted((ROOT / ".github/workflows").glob("*.yml")):
        used = re.findall(r"uses: (.+)", path.read_text(encoding="utf-8"))
        assert used
        for action in used:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), action


def test_the_readme_names_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("run", "test"):
        assert f"make {target}" in readme
        assert re.search(rf"^{target}:", makefile, re.M)


def test_every_document_is_in_their_list() -> None:
    docs = ROOT / "docs"
    listed = set(re.findall(r"\]\(([\w/-]+\.md)\)", (docs / "README.md").read_text("utf-8")))
    there = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert listed == there - {"README.md"}


def test_a_native_part_of_other_sources_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    native = tmp_path / "backend" / "native"
    (native / "core").mkdir(parents=True)
    for name in ("b.cc", "core/a.h", "core_last.cc", "CMakeLists.txt"):
        (native / name).write_text(f"// {name}\n")
    library = tmp_path / "installed" / "_native.so"
    library.parent.mkdir()
    built_from = library.with_name("_native.sources")
    monkeypatch.setattr(backend, "__file__", str(tmp_path / "backend" / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: SimpleNamespace(origin=str(library)))
    backend.check_native()  # a build that is not of a checkout writes nothing
    cmake = shutil.which("cmake", path=str(Path(sys.executable).parent)) or "cmake"
    script = ROOT / "backend" / "native" / "sources.cmake"
    defined = [f"-Dfolder={native}", f"-Dbuilt_from={built_from}"]
    subprocess.run([cmake, *defined, "-P", script], check=True)
    backend.check_native()
    (native / "CMakeLists.txt").write_text("# It is no source.\n")
    backend.check_native()
    for change in (
        lambda: (native / "b.cc").write_text("// changed\n"),
        lambda: (native / "b.cc").unlink(),
        lambda: (native / "new.cc").write_text("// new\n"),
    ):
        change()
        with pytest.raises(ImportError, match="Run `make native`, and start again."):
            backend.check_native()
        subprocess.run([cmake, *defined, "-P", script], check=True)
        backend.check_native()
    (native / "new.cc").write_text("// changed\n")
    shutil.rmtree(native)  # an installed program has no sources
    backend.check_native()


def test_an_old_native_part_is_told_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise ImportError("It is old.")

    monkeypatch.setattr(backend, "check_native", refuse)
    monkeypatch.delitem(sys.modules, "backend.llama.api", raising=False)
    with pytest.raises(ImportError, match="It is old."):
        importlib.import_module("backend.llama.api")
