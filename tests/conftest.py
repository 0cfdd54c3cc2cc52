"""Settings and fixtures for all tests."""

from __future__ import annotations

import contextlib
import functools
import gc
import locale
import os
import random
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import hypothesis
import pytest
from factory import MADE, make_tiny
from fork_server import fork_children
from oracle import Oracle

if TYPE_CHECKING:
    from backend.engine.engine import Engine
    from backend.protocol.attachments import Picture

# The same examples each time; `make attack` looks for new ones.
hypothesis.settings.register_profile("same", derandomize=True, deadline=None)
hypothesis.settings.load_profile("same")

# Tests read the system's words for errors, which Qt would have in this machine's language.
os.environ["LC_ALL"] = "C.UTF-8"
os.environ.pop("LANGUAGE", None)
with contextlib.suppress(locale.Error):  # macOS has another name
    locale.setlocale(locale.LC_ALL, "")

gc.disable()  # while tests are collected; little of that is garbage

# A shell may start background jobs with Ctrl-C ignored. Child processes would inherit this, and
# the tests that stop them by Ctrl-C would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the order be random, to see that no test needs another."""
    parser.addoption("--shuffle", metavar="SEED", help="run the files, and each's tests, shuffled")


def pytest_collection_finish() -> None:
    """Keep what was imported and collected out of the garbage collections that follow."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests of each file, if --shuffle gives a seed.

    A file's tests stay together, so that its fixtures are made once.
    """
    if seed := config.getoption("shuffle"):
        chance = random.Random(seed)
        places = {item.path: chance.random() for item in items}
        items.sort(key=lambda item: (places[item.path], chance.random()))


@pytest.fixture(scope="session", autouse=True)
def models_of_the_factory(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Write each of the factory's models once for all processes of this run."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each has a folder of its own within
        folder = folder.parent
    (folder / "factory").mkdir(exist_ok=True)
    os.environ[MADE] = str(folder / "factory")


@pytest.fixture(scope="session", autouse=True)
def forked_children() -> Iterator[Callable[..., list[str]]]:
    """Fork the children of all tests: their imports take longer than their work.

    Yield what returns the command of a child that is not forked.
    """
    from backend.system import children

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(children, "command", children.command)  # to be restored
        yield fork_children()


@pytest.fixture(scope="session", autouse=True)
def certificates() -> Iterator[None]:
    """Parse the certificates of the machine once, not for each client of a server."""
    create = ssl.create_default_context
    parsed = functools.cache(lambda _named, *args, **options: create(*args, **options))

    def context(*args: Any, **options: Any) -> ssl.SSLContext:
        names = ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")
        named = tuple(map(os.environ.get, names))
        return parsed(named, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", context)
        yield


@pytest.fixture
def started_children(
    monkeypatch: pytest.MonkeyPatch, forked_children: Callable[..., list[str]]
) -> None:
    """Start the children of this test as the program does: it looks at their ends."""
    monkeypatch.setattr("backend.system.children.command", forked_children)


@pytest.fixture
def turkish_letters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let processes that start from now on have a locale in which the capital of i is no I."""
    if shutil.which("localedef") is None:
        pytest.skip("a locale cannot be made here")

    def points(first: str) -> list[str]:
        return [f"<U{ord(first) + i:04X}>" for i in range(26)]

    small, capital = points("a"), points("A")
    pairs = [pair for i, pair in enumerate(zip(small, capital, strict=True)) if i != 8]
    up = ";".join(f"({a},{b})" for a, b in pairs)
    down = ";".join(f"({b},{a})" for a, b in pairs)
    classes = f"upper {';'.join(capital)}\nlower {';'.join(small)}"
    (tmp_path / "letters").write_text(
        f"escape_char /\nLC_CTYPE\n{classes}\ntoupper {up}\ntolower {down}\nEND LC_CTYPE\n"
    )
    ascii = "".join(f"<U{i:04X}> /x{i:02x}\n" for i in range(128))
    (tmp_path / "bytes").write_text(
        f"<code_set_name> UTF-8\n<escape_char> /\nCHARMAP\n{ascii}END CHARMAP\n"
    )
    names = [tmp_path / name for name in ("letters", "bytes", "locales/xx_XX")]
    make = ["localedef", "-c", "-i", names[0], "-f", names[1], names[2]]
    (tmp_path / "locales").mkdir()
    subprocess.run(make, capture_output=True)  # it warns of what the locale lacks, by its status
    monkeypatch.delenv("LC_ALL", raising=False)
    monkeypatch.setenv("LOCPATH", str(tmp_path / "locales"))
    monkeypatch.setenv("LC_CTYPE", "xx_XX")


@pytest.fixture(autouse=True)
def states_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Return the folder in which workers and servers of this test keep states.

    What the tests before have written does not count in this one's hour.
    """
    if module := sys.modules.get("backend.engine.kept_states"):
        vars(module.HOUR).update(vars(module.Hour()))
    folder = tmp_path_factory.getbasetemp() / f"states-{secrets.token_hex(6)}" / "states"
    monkeypatch.setenv("OUTRIDER_STATES", str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model with random weights: three layers of 16 experts, 4 used."""
    return make_tiny("qwen3moe", "Q8_0", tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.fixture
def known_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have engines decode equal images once, instead of each in a process of its own."""
    from backend.engine import prompts

    monkeypatch.setattr(prompts, "PictureReading", _KnownPicture)


class _KnownPicture:
    """A PictureReading that knows the images of all tests so far."""

    known: ClassVar[dict[str, Picture]] = {}

    def __init__(self, data: str) -> None:
        from backend.attachments.reading import PictureReading

        self._data, self._reading = data, PictureReading(data)

    def run(self) -> Picture:
        if self._data not in self.known:
            self.known[self._data] = self._reading.run()
        return self.known[self._data]

    def stop(self) -> None:
        self._reading.stop()


@pytest.fixture
def oracle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Oracle:
    """Have stock llama.cpp compute what the engines of this test log."""
    return Oracle(tmp_path / "logs", monkeypatch)


@pytest.fixture
def open_engine() -> Iterator[Callable[..., Engine]]:
    """Open engines with one thread. Close them when the test ends."""
    from backend.engine.engine import Engine
    from backend.protocol.settings import EngineConfig

    opened: list[Engine] = []

    def open_one(path: Path, **settings: Any) -> Engine:
        config = EngineConfig.of(**{"n_thread": 1, "context_length": 512, **settings})
        opened.append(Engine.open(path, config))
        return opened[-1]

    yield open_one
    for engine in opened:
        engine.close()
