"""Errors put into the engine on purpose: stock llama.cpp, given the log, finds each of them.

Every scenario runs twice: as it is, and with the error. The oracle approves the first log, and says
what is wrong in the second.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from asking import jointly, of_chat, of_text, read
from factory import make_mmproj, make_tiny
from oracle import Oracle, replayed
from reciter import make_reciter
from test_drafts import Always
from test_images import asked, image
from test_oracle import GREEDY, PROMPT, keep, say

from backend.engine import scheduler as scheduler_module
from backend.engine.engine import Engine, EngineError
from backend.engine.keeping import Keeping
from backend.engine.kept_states import KeptStates
from backend.engine.open_answer import OpenAnswer
from backend.engine.passes import Passes
from backend.engine.scheduler import PassPlan
from backend.gguf.header import read_header
from backend.gguf.model_file import read_model
from backend.llama.api import Context
from backend.llama.row import Row
from backend.llama.sampler import Sampler
from backend.llama.vision import Vision
from backend.packs import write as pack
from backend.protocol.request import Request
from backend.protocol.settings import DRAFTED_MAX

pytestmark = pytest.mark.usefixtures("known_pictures")
OpenEngine = Callable[..., Engine]


class Scene:
    """What a scenario needs. wrong: whether it makes its error."""

    def __init__(
        self, open_engine: OpenEngine, folder: Path, patch: pytest.MonkeyPatch, wrong: bool
    ) -> None:
        self.open, self.patch, self.wrong = open_engine, patch, wrong
        self.folder = folder / ("wrong" if wrong else "right")
        self.folder.mkdir()

    def model(self, arch: str = "qwen3moe", name: str = "m", **options: Any) -> Path:
        return make_tiny(arch, "Q8_0", self.folder / f"{name}.gguf", **options)

    def replace(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        """Put make(the function) in place of a function, if this is the wrong run."""
        if self.wrong:
            self.patch.setattr(owner, name, make(getattr(owner, name)))


# States.


def a_byte_of_a_state(scene: Scene) -> None:
    def flipping(states: Any) -> Any:
        def flipped(self: KeptStates, pieces: Any) -> Iterator[Any]:
            for piece, state in states(self, pieces):
                state[len(state) // 2] ^= 1
                yield piece, state

        return flipped

    path = scene.model()
    for _ in range(2):
        engine = scene.open(path)
        engine.keep_in(scene.folder / "states")
        read(engine, [*keep(engine, PROMPT), 1])
        scene.replace(KeptStates, "states", flipping)


def a_state_of_another_model(scene: Scene) -> None:
    scene.replace(Keeping, "root", lambda _root: lambda _self: "00" * 16)
    tokens: list[int] = []
    for seed in (1, 2):
        engine = scene.open(scene.model(name=f"m{seed}", seed=seed))
        engine.keep_in(scene.folder / "states")
        tokens = tokens or keep(engine, PROMPT)
        read(engine, [*tokens, 1])


# Sequences.


def joint(scene: Scene) -> None:
    """Compute three answers of 61 tokens jointly."""
    engine = scene.open(scene.model(), n_sequence=3, context_length=1024)
    prompts = ("the end of it", "one", "a word that they had")
    found = jointly(engine, (Request(i, GREEDY, 61, prompt=p) for i, p in enumerate(prompts)))
    assert len(list(found)) == 3


def once(at: int) -> Callable[[], bool]:
    """Return a function whose call with this number returns True."""
    calls = iter(range(1 << 30))
    return lambda: next(calls) == at


def rows_of_a_group(scene: Scene) -> None:
    """Two answers get each other's token in one pass of 61."""
    is_time = once(30)

    def swapping(compute: Any) -> Any:
        def swapped(self: Passes, plan: PassPlan[Any], last_s: float) -> Any:
            if is_time():
                a, b = plan.rows[0], plan.rows[1]
                rows = [
                    Row(b.token, a.position, a.sequence, a.has_logits),
                    Row(a.token, b.position, b.sequence, b.has_logits),
                    *plan.rows[2:],
                ]
                plan = plan._replace(rows=rows)
            return compute(self, plan, last_s)

        return swapped

    scene.replace(Passes, "compute", swapping)
    joint(scene)


def a_row_of_a_prompt(scene: Scene) -> None:
    """The first pass of a prompt has a wrong token. It is stopped before a token is chosen."""
    is_time = once(0)

    def changing(compute: Any) -> Any:
        def changed(self: Passes, plan: PassPlan[Any], last_s: float) -> Any:
            row = plan.rows[0]
            if is_time():
                wrong = Row(row.token ^ 1, row.position, row.sequence, row.has_logits)
                plan = plan._replace(rows=[wrong, *plan.rows[1:]])
            return compute(self, plan, last_s)

        return changed

    scene.replace(Passes, "compute", changing)
    engine = scene.open(scene.model(), n_ubatch=32)
    request = of_text(PROMPT, GREEDY, 5, lambda n_done, _: n_done and request.handle.cancel())
    assert not list(engine.answer(request))


def choices_of_a_group(scene: Scene) -> None:
    """One answer of three chooses one of its 61 tokens from the logits of its neighbour's row."""
    is_time = once(50)

    def swapping(sample: Any) -> Any:
        return lambda self, row=-1: sample(self, row - (row > 0 and is_time()))

    scene.replace(OpenAnswer, "sample", swapping)
    joint(scene)


def logits_of_a_group(scene: Scene) -> None:
    """The same below what the log says."""
    is_time = once(50)

    def swapping(sample: Any) -> Any:
        return lambda self, context, row=-1: sample(self, context, row - (row > 0 and is_time()))

    scene.replace(Sampler, "sample", swapping)
    joint(scene)


def a_token_that_was_not_chosen(scene: Scene) -> None:
    is_time = once(50)

    def other(add: Any) -> Any:
        return lambda self, token: add(self, token ^ 1 if is_time() else token)

    scene.replace(OpenAnswer, "add", other)
    joint(scene)


def a_position_behind_a_rollback(scene: Scene) -> None:
    """The engine goes back one position too few, and takes the token there for the prompt's."""

    def longer(n_equal: Any) -> Any:
        def wrong(a: Any, b: Any) -> int:
            n = int(n_equal(a, b))
            return n + (0 < n < min(len(a), len(b)))

        return wrong

    engine = scene.open(scene.model())
    say(engine, "the end of the words")
    scene.replace(scheduler_module, "n_equal", longer)
    say(engine, "the end of my words")


def a_sequence_that_stays(scene: Scene) -> None:
    engine = scene.open(scene.model())
    say(engine, "the end of the words")
    scene.replace(Context, "forget_from", lambda _forget: lambda *_: True)
    with contextlib.suppress(EngineError):  # llama.cpp refuses the positions
        say(engine, "other words")


def a_draft_that_is_wrong(scene: Scene) -> None:
    """A drafted token is accepted although the sampler chose another one."""

    class Right(int):
        def __eq__(self, other: object) -> bool:
            return True

        def __ne__(self, other: object) -> bool:
            return False

        __hash__ = int.__hash__

    def lenient(guess: Any) -> Any:
        return lambda *args: list(map(Right, guess(*args)))

    path = make_reciter(scene.folder / "m.gguf", "abcdefgh")
    engine = scene.open(path, drafts="auto")
    engine.passes.width = Always(DRAFTED_MAX)
    scene.replace(OpenAnswer, "guess", lenient)
    say(engine, "abcxyzabcxyz\n", 40)


def rows_of_an_image(scene: Scene) -> None:
    path = scene.model()
    n_embd = read_header(path).metadata["qwen3moe.embedding_length"]
    make_mmproj(scene.folder / "mmproj-tiny.gguf", int(n_embd), projector="mlp")
    scene.replace(Vision, "encode", lambda encode: lambda *args: encode(*args)[::-1])
    engine = scene.open(path, device="cpu")
    assert list(engine.answer(of_chat(asked("What is ", image(1), "?"), GREEDY, 4)))


# Experts.


def mixed(path: Path, half: bool = False) -> Path:
    """Copy a model, with experts of the first MoE layer in other places, or the half of each."""
    other = path.with_suffix(".mixed")
    shutil.copy(path, other)
    tensors = read_model(path).expert_tensors[min(read_model(path).expert_tensors)]
    with other.open("r+b") as file:
        for tensor in tensors:
            n = tensor.matrix_bytes
            file.seek(tensor.offset)
            experts = [file.read(n) for _ in range(tensor.n_bytes // n)]
            turned = [*experts[1:], experts[0]]
            cut = n // 2 if half else 0
            file.seek(tensor.offset)
            for a, b in zip(experts, turned, strict=True):
                file.write(a[:cut] + b[cut:])
    return other


@contextlib.contextmanager
def reads_of(engine: Engine, other: Path) -> Iterator[None]:
    """Let the experts of an engine come from another file. The engine notices nothing."""
    path = engine.file.path
    own = engine.loaded.llama.files.descriptors
    found = [int(name) for name in os.listdir("/proc/self/fd")]
    links = {fd: f"/proc/self/fd/{fd}" for fd in found if fd not in own}
    of = [fd for fd, link in links.items() if os.path.realpath(link) == str(path)]
    assert of
    import fcntl  # not on Windows

    kept = {fd: os.dup(fd) for fd in of}
    for fd in of:
        handle = os.open(other, os.O_RDONLY | fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT)
        os.dup2(handle, fd)
        os.close(handle)
    try:
        yield
    finally:
        for fd, before in kept.items():
            os.dup2(before, fd)
            os.close(before)


def a_slot_behind_a_resize(scene: Scene) -> None:
    """After a resize, slots have other experts than the engine believes."""
    path = scene.model()
    engine = scene.open(path, cache_rate=0.25)
    say(engine, "the end of the words")
    engine.set_cache_rate(0.5)
    source = mixed(path) if scene.wrong else path
    with reads_of(engine, source):
        say(engine, "the end of other words")
    say(engine, "and the words")


def a_slot_that_is_read(scene: Scene) -> None:
    """A slot is half overwritten with another expert while a pass computes with it."""
    path = scene.model()
    engine = scene.open(path, cache_rate=0)
    answer = engine.answer(of_text("the end of the words", GREEDY, 20))
    for _ in range(8):
        next(answer)
    with reads_of(engine, mixed(path, half=True) if scene.wrong else path):
        next(answer)
    assert len(list(answer)) >= 11


def an_expert_of_a_pack(scene: Scene) -> None:
    """Two experts of a pack change places, with their checksums."""
    file = read_model(scene.model())
    made = pack.write(file, "file")
    if scene.wrong:
        layer, sums = made.plan.layers[0], len(made.plan.headers[0])
        with made.path.open("r+b") as handle:
            places = [layer.ranges[e][1] for e in range(16)], [sums + 4 * e for e in range(16)]
            for offsets, n in zip(places, (layer.stride, 4), strict=True):
                found = []
                for offset in offsets:
                    handle.seek(offset)
                    found.append(handle.read(n))
                for offset, data in zip(offsets, [*found[1:], found[0]], strict=True):
                    handle.seek(offset)
                    handle.write(data)
    engine = scene.open(file.path, cache_rate=0.25)
    assert engine.cache.pack
    say(engine, "the end of the words")


SCENARIOS = {
    a_byte_of_a_state: "replay.state",
    a_state_of_another_model: "replay.state",
    rows_of_a_group: "replay.other_text",
    a_row_of_a_prompt: "replay.other_text",
    choices_of_a_group: "replay.other_text",
    logits_of_a_group: "replay.not_best",
    a_token_that_was_not_chosen: "replay.sent",
    a_position_behind_a_rollback: "replay.other_text",
    a_sequence_that_stays: "replay.position",
    a_draft_that_is_wrong: "replay.other_text",
    rows_of_an_image: "replay.image_values",
    a_slot_behind_a_resize: "replay.logits",
    a_slot_that_is_read: "replay.logits",
    an_expert_of_a_pack: "replay.logits",
}
LINUX = (a_slot_behind_a_resize, a_slot_that_is_read)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_an_error_is_found(
    scenario: Callable[[Scene], None],
    open_engine: OpenEngine,
    oracle: Oracle,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if scenario in LINUX and not sys.platform.startswith("linux"):
        pytest.skip("the files of another process's descriptors are named in /proc")
    scenario(Scene(open_engine, tmp_path, monkeypatch, wrong=False))
    n_right = len(oracle.logs)
    scenario(Scene(open_engine, tmp_path, monkeypatch, wrong=True))
    found = replayed(*oracle.logs)
    right, wrong = found[:n_right], found[n_right:]
    assert [one["difference"] or one["obstacle"] for one in right] == [""] * n_right
    assert not any(one["obstacle"] for one in wrong)
    differences = [one["difference"]["text_id"] for one in wrong if one["difference"]]
    assert differences[:1] == [SCENARIOS[scenario]]
