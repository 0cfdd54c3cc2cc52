"""The build of releases: what can be tested without building one."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def release() -> ModuleType:
    return loaded("release")


def loaded(name: str) -> ModuleType:
    """Return a module of the folder packaging, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "packaging" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_release_notes_are_the_part_of_the_changelog(release: ModuleType) -> None:
    changelog = "# Changes\n\n## 1.2.0\n\n- new\n\n### More\n\n- x\n\n## 1.1.0 (old)\n\n- old\n"
    assert release.release_notes(changelog, "1.2.0") == "- new\n\n### More\n\n- x\n"
    assert release.release_notes(changelog, "1.1.0") == "- old\n"
    with pytest.raises(release.ReleaseError, match="says nothing of 1[.]1[.]$"):
        release.release_notes(changelog.replace("1.1.0", "2"), "1.1")


@pytest.mark.skipif(
    sys.platform != "linux" or not (shutil.which("cc") and shutil.which("ld")),
    reason="an AppImage begins with a program for Linux",
)
def test_the_head_of_an_appimage_is_marked_and_says_where_updates_are(
    release: ModuleType, tmp_path: Path
) -> None:
    program = tmp_path / "program"
    source = (
        'const volatile char where[64] __attribute__((section(".upd_info"), used)) = {0};\n'
        "int main(void) { return where[0] == 'z' ? 7 : 3; }"
    )
    subprocess.run(
        ["cc", "-O0", "-x", "c", "-", "-o", program], input=source.encode(), check=True, timeout=60
    )
    head = release._headed(program.read_bytes(), "zsync|https://example.org/x.zsync")
    assert (head[:4], head[8:11]) == (b"\x7fELF", b"AI\x02")
    assert len(head) == program.stat().st_size
    program.write_bytes(head)
    assert subprocess.run([program], timeout=60).returncode == 7
    with pytest.raises(release.ReleaseError, match="no room"):
        release._headed(head, "x" * 64)


linux = pytest.mark.skipif(sys.platform != "linux", reason="packages for Linux")


@linux
@pytest.mark.parametrize(
    ("target", "packages"),
    [("bundle", "binutils patchelf"), ("all", "binutils patchelf dpkg squashfs-tools gcc")],
)
def test_programs_are_asked_for_before_anything_is_built(
    release: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: str,
    packages: str,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setitem(release.TARGETS, target, lambda _: pytest.fail("it has begun"))
    assert release.main([target]) == 1
    assert capsys.readouterr().err.endswith(f"apt install {packages}\n")


@linux
@pytest.mark.parametrize("has_tools", [True, False])
def test_what_vulkan_is_built_with_is_asked_for_at_the_beginning(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, has_tools: bool
) -> None:
    """Where the build does not bring it: Debian 12 gets that of Debian 13."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(release, "PROGRAMS", {"bundle": {}})
    monkeypatch.setattr(release.Build, "_has_vulkan_tools", lambda _: has_tools)
    asked: list[dict[str, str]] = []
    monkeypatch.setattr(release.Build, "run", lambda *_, more, **__: asked.append(more))
    release.Build().require(["bundle"])
    assert ["GGML_VULKAN=on" in more.get("CMAKE_ARGS", "") for more in asked] == [not has_tools]


@linux
def test_an_environment_that_cannot_be_bundled_is_named(
    release: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    monkeypatch.setattr(release, "PROGRAMS", {"bundle": {}})
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    whys = {tmp_path / "no": "does not start", old: "with PyInstaller"}
    whys[Path("/bin/true")] = "with PyInstaller"
    for python, why in whys.items():
        assert release.main(["--python", str(python), "bundle"]) == 1
        said = capsys.readouterr().err
        assert str(python) in said and why in said and said.count("\n") == 1


@linux
def test_what_builds_a_release_is_pinned(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(release, "WORK", tmp_path)
    lines = release._pinned("tools.txt", release.BUILD_TOOLS).read_text().splitlines()
    assert sorted(line.split("==")[0] for line in lines) == sorted(release.BUILD_TOOLS)
    assert all("--hash=sha256:" in line for line in lines)
    names = {x.split("==")[0] for x in release._pinned("all.txt", hashes=False).read_text().split()}
    assert {"nanobind", "pyinstaller", "pyinstaller-hooks-contrib", "numpy"} < names


@linux
def test_every_library_is_named_with_its_licence(tmp_path: Path) -> None:
    """Those that are compiled into others, too. What nobody knows is a fault."""
    folder = tmp_path / "_internal"
    for name, data in (
        ("backend/_native.so", b"\x7fELF nanobind"),
        ("PySide6/Qt/lib/libQt6Gui.so.6", b"\x7fELF HB_SHAPE"),
        ("PySide6/Qt/lib/libQt6Gui.txt", b"HB_SHAPE"),
        ("libstrange.so.7", b"\x7fELF"),
        ("PySide6/Qt6Gui.dll", b"MZ FreeType"),
        ("PySide6/msvcp140_1.dll", b"MZ"),
        ("llama_cpp/lib/ggml-cpu.dll", b"MZ"),
        ("llama_cpp/lib/libstdc++-6.dll", b"MZ"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (tmp_path / "outrider-app").write_bytes(b"no program")
    text, faults = loaded("notices").notices(folder)
    assert "Whose licence libstrange.so.7 has is unknown." in faults
    lines = text.splitlines()
    assert "backend/_native.so: Outrider, nanobind, robin-map" in lines
    qt = next(line for line in lines if line.startswith("PySide6/Qt/lib/libQt6Gui.so.6: "))
    assert "PySide6" in qt and "HarfBuzz" in qt and "MD4C" not in qt  # its mark is not in the file
    assert any(line.startswith("HarfBuzz   MIT") for line in lines)
    assert "Whose licence PySide6/Qt6Gui.dll has is unknown." in faults  # no wheel of Windows here
    assert "PySide6/msvcp140_1.dll: Microsoft's runtime of C and C++" in lines
    assert "llama_cpp/lib/ggml-cpu.dll: llama.cpp and ggml" in lines
    assert "llama_cpp/lib/libstdc++-6.dll: GCC's runtime libraries" in lines
    assert sum("squashfuse" in line for line in lines) > 1
    assert not any("libQt6Gui.txt" in line or "common-licenses" in line for line in lines)


@linux
def test_no_licence_is_only_pointed_to() -> None:
    """Debian's copyright files name files that other systems lack, some several in braces."""
    notices, faults = loaded("notices"), list[str]()
    place = "/usr/share/common-licenses/"
    said = f"See {place}{{LGPL-3,GPL-3}}, and {place}Apache-2.0."
    text = notices._with_common(said, faults)
    assert not faults and "common-licenses" not in text
    for heading in ("\nLGPL-3\n==", "\nGPL-3\n==", "\nApache-2.0\n=="):
        assert text.count(heading) == 1
    notices._with_common(f"See {place}[GPL].", faults)
    assert len(faults) == 1


def test_the_archive_for_windows_has_the_bundle_and_the_times_of_the_commit(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr(release, "BUNDLE", tmp_path / "outrider")
    monkeypatch.setattr(release, "DIST", tmp_path)
    (tmp_path / "outrider" / "_internal").mkdir(parents=True)
    files = {"outrider.exe": b"MZ", "_internal/a b.txt": b"x"}
    for name, data in files.items():
        (tmp_path / "outrider" / name).write_bytes(data)
    assert release.main(["zip"]) == 0
    (path,) = tmp_path.glob("outrider-*-windows.zip")
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        found = {entry.filename: archive.read(entry) for entry in entries}
    assert found == {f"outrider/{name}": data for name, data in files.items()}
    assert {entry.date_time for entry in entries} == {(2023, 11, 14, 22, 13, 20)}


HOST = "https://github.com/someone/outrider/releases/latest/download"


@pytest.fixture
def built(release: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return a stand-in for dist with all files of a release, and who publishes it."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setenv("OUTRIDER_RELEASES", HOST)
    monkeypatch.setattr(release, "MAINTAINER", "Someone <someone@example.org>")
    folder = tmp_path / "dist"
    monkeypatch.setattr(release, "DIST", folder)
    (folder / "outrider").mkdir(parents=True)
    for name in release.published(release.version()):
        (folder / name).write_text(name)
    return folder


def test_what_is_published_has_sums_and_tells_older_versions(
    release: ModuleType, built: Path, tmp_path: Path
) -> None:
    (built / "SHA256SUMS").write_text("those of one system")
    to = tmp_path / "releases"
    assert release.main(["--to", str(to), "publish"]) == 0
    names = {path.name for path in to.iterdir()}
    assert names == {*release.published(release.version()), "latest.json", "SHA256SUMS"}
    lines = (to / "SHA256SUMS").read_text().splitlines()
    found = dict(reversed(line.split("  ")) for line in lines)
    assert found == {
        name: hashlib.sha256((to / name).read_bytes()).hexdigest()
        for name in names - {"SHA256SUMS"}
    }
    said = json.loads((to / "latest.json").read_text())
    assert said == {"version": release.version(), "page": HOST.removesuffix("/download")}


def test_a_release_is_a_draft_until_it_is_whole(
    release: ModuleType, monkeypatch: pytest.MonkeyPatch, built: Path
) -> None:
    said: list[tuple[str, ...]] = []
    monkeypatch.setattr(release.Build, "run", lambda self, *command: said.append(command))
    assert release.main(["publish"]) == 0
    (create, edit) = said
    tag = f"v{release.version()}"
    assert create[:6] == ("gh", "release", "create", tag, "--draft", "--verify-tag")
    assert {Path(word).name for word in create if str(built) in word} == {
        *release.published(release.version()), "latest.json", "SHA256SUMS"
    }  # fmt: skip
    assert edit == ("gh", "release", "edit", tag, "--draft=false", "--latest")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("lacks", r"dist lacks outrider-.*-macos[.]dmg[.]$"),
        ("more", r"dist has files of no release: outrider_0[.]0[.]0_amd64[.]deb[.]$"),
        ("address", "names no https address"),
        ("maintainer", "who answers for the packages"),
    ],
)
def test_half_a_release_is_not_published(
    release: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    built: Path,
    tmp_path: Path,
    wrong: str,
    said: str,
) -> None:
    if wrong == "lacks":
        (built / f"outrider-{release.version()}-macos.dmg").unlink()
    elif wrong == "more":
        (built / "outrider_0.0.0_amd64.deb").touch()
    elif wrong == "address":
        monkeypatch.setenv("OUTRIDER_RELEASES", "")
    else:
        monkeypatch.setattr(release, "MAINTAINER", "Outrider <outrider@example.invalid>")
    assert release.main(["--to", str(tmp_path / "releases"), "publish"]) == 1
    assert re.search(said, capsys.readouterr().err.strip())
    assert not (tmp_path / "releases").exists()


def test_pyinstaller_is_the_same_for_both_systems() -> None:
    locks = [ROOT / "packaging" / place / "requirements.lock" for place in ("", "windows/wine")]
    linux, windows = (
        {line.split()[0] for line in lock.read_text().splitlines() if line.startswith("pyinst")}
        for lock in locks
    )
    assert linux == windows and len(linux) == 2


def test_icons_hold_all_sizes(tmp_path: Path) -> None:
    for kind in ("ico", "icns"):
        subprocess.run(
            [sys.executable, ROOT / "packaging" / "icons.py", kind, tmp_path / f"x.{kind}"],
            check=True, timeout=120, env={**os.environ, "QT_QPA_PLATFORM": "offscreen"},
        )  # fmt: skip
    data = (tmp_path / "x.ico").read_bytes()
    kind, count = struct.unpack_from("<HH", data, 2)
    assert kind == 1
    sizes = []
    for i in range(count):
        side, _, _, _, _, _, n_byte, at = struct.unpack_from("<BBBBHHII", data, 6 + 16 * i)
        image = data[at : at + n_byte]
        width, height = struct.unpack_from(">II", image, 16)
        assert (image[:4], width, height) == (b"\x89PNG", side or 256, side or 256)
        sizes.append(width)
    assert sizes == [16, 24, 32, 48, 64, 128, 256]
    data = (tmp_path / "x.icns").read_bytes()
    assert (data[:4], struct.unpack_from(">I", data, 4)[0]) == (b"icns", len(data))
