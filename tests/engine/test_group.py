"""Groups of requests that are computed jointly: answers, ends, limits, joining, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from asking import jointly, of_text
from factory import make_tiny
from oracle import Oracle
from reciter import make_reciter
from waiting import WAIT_S

from backend import _native
from backend.engine.engine import Engine
from backend.engine.group_plan import (
    GroupTimes,
    GroupWatch,
    Measured,
    choose,
    plan_group,
    streams_pay,
)
from backend.engine.precedence import Precedence
from backend.engine.runner import Runner
from backend.evaluation.verify import compare
from backend.gguf.model_file import read_model
from backend.methods import cells
from backend.methods.catalogue import CACHED
from backend.methods.cost import PassCost
from backend.protocol.chat import ChatOptions
from backend.protocol.errors import EngineError
from backend.protocol.request import GroupAnswer, Handle, Request
from backend.protocol.settings import Sampling
from backend.text import text

OpenEngine = Callable[..., Engine]

GREEDY = Sampling(temperature=0)
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def asked(key: int, prompt: str, max_tokens: int = -1, *stops: str) -> Request:
    return Request(key, GREEDY, max_tokens, prompt=prompt + "\n", options=ChatOptions(stops=stops))


def by_key(answers: Iterator[GroupAnswer]) -> dict[int, GroupAnswer]:
    found = {}
    for answer in answers:
        assert answer.request.key not in found
        found[answer.request.key] = answer
    return found


@pytest.fixture(scope="module")
def reciter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_reciter(tmp_path_factory.mktemp("group") / "m.gguf", ALPHABET)


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_each_answer_has_its_own_end(rate: float, open_engine: OpenEngine, reciter: Path) -> None:
    engine = open_engine(reciter, cache_rate=rate, n_sequence=3, context_length=768)
    requests = [
        asked(0, "x"),
        asked(1, "one two three", 5),
        asked(2, "yy", -1, "jk"),
        asked(3, "a much longer prompt than the others have", 9),
        asked(4, "z", 1),
        asked(5, "w" * 30),
        asked(6, "v", 26),
    ]
    found = by_key(jointly(engine, iter(requests)))
    texts = {key: answer.text.content for key, answer in found.items()}
    assert texts == {
        0: ALPHABET, 1: "abcde", 2: "abcdefghi", 3: "abcdefghi", 4: "a", 5: ALPHABET, 6: ALPHABET,
    }  # fmt: skip
    ends = {key: answer.finish_reason for key, answer in found.items()}
    assert ends == {0: "stop", 1: "length", 2: "stop", 3: "length", 4: "length", 5: "stop",
                    6: "length"}  # fmt: skip
    assert found[2].stop == "jk" and found[1].n_token == 5 and found[0].n_token == 26


def test_a_group_is_computed_jointly(open_engine: OpenEngine, reciter: Path) -> None:
    engine = open_engine(reciter, n_sequence=4, context_length=512)
    sizes = []
    answers = jointly(
        engine,
        [asked(i, "x" * (i + 1)) for i in range(4)],
        lambda group: sizes.append(group.n_running),
    )
    assert len(list(answers)) == 4
    assert sizes[0] == 4 and len(sizes) == 27  # 26 letters and the end, all four at once


def test_streams_answer_as_one_cache_and_close_their_gaps(
    open_engine: OpenEngine, reciter: Path
) -> None:
    """Prompts of equal and of other lengths; answers that end in any order, and more requests."""
    engine = open_engine(reciter, cache_rate=0.25, n_sequence=4, streams=True, context_length=1024)
    limits = [9, 3, 26, 1, 5, 12, 2]
    for prompts in (["x" * 40] * 7, ["y" * (7 * i + 1) for i in range(7)]):
        sizes: list[int] = []
        found = by_key(
            jointly(
                engine,
                (asked(i, prompt, limits[i]) for i, prompt in enumerate(prompts)),
                lambda group, sizes=sizes: sizes.append(group.n_running),  # type: ignore[misc]
            )
        )
        texts = [found[i].text.content for i in range(7)]
        assert texts == [ALPHABET[:n] for n in limits]
        assert sizes.count(4) >= 1 and sizes.count(1) >= 1


def test_streams_answer_as_stock_llama_cpp(open_engine: OpenEngine, tmp_path: Path) -> None:
    """The tokens depend on the attention: of the wrong cells they would be others."""
    path = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf")
    prompts = [f"request {i} of the words that they had" for i in range(4)]
    tokens = []
    for rate, streams in ((1.0, False), (1.0, True), (0.25, True)):
        engine = open_engine(
            path, cache_rate=rate, n_sequence=4, streams=streams, context_length=1024
        )
        found = by_key(jointly(engine, (asked(i, p, 12 - 3 * i) for i, p in enumerate(prompts))))
        tokens.append([[piece.token_id for piece in found[i].pieces] for i in range(4)])
    assert tokens[0] == tokens[1] == tokens[2]
    assert len({tuple(t) for t in tokens[0]}) == 4


def test_which_groups_have_streams() -> None:
    """Equal lengths without a shared beginning, from eight sequences on."""
    prompts = [[i] * 100 for i in range(8)]
    assert streams_pay(prompts, 100)
    assert not streams_pay(prompts, 99), "most of the time goes into the prompts"
    assert not streams_pay(prompts[:7], 100)
    assert not streams_pay([*prompts[:7], [7] * 99], 100)
    assert streams_pay([[0] * 15 + prompt for prompt in prompts], 200)
    assert not streams_pay([[0] * 16 + prompt for prompt in prompts], 200)


def test_a_seed_gives_the_same_answer_beside_others(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, n_sequence=3, context_length=512)
    sampling = Sampling(temperature=1.5, seed=7)
    requests = [Request(i, sampling, 10, prompt="once upon") for i in range(3)]
    found = by_key(jointly(engine, requests))
    assert len({found[i].text.content for i in range(3)}) == 1


def test_a_shared_beginning_is_computed_once(open_engine: OpenEngine, reciter: Path) -> None:
    engine = open_engine(reciter, n_sequence=3, context_length=1024)
    system = "the same words before every request " * 3
    found = by_key(jointly(engine, (asked(i, system + str(i) * (i + 1), 4) for i in range(6))))
    assert {answer.text.content for answer in found.values()} == {"abcd"}
    stats = engine.statistics()
    n_system = len(engine.prompts.tokenize(system)) - 1
    assert 6 * n_system > stats.n_reused >= 5 * n_system > 0  # the first one's was computed
    assert stats.n_token == 24


def test_what_cannot_be_answered_leaves_the_others_alone(
    open_engine: OpenEngine, reciter: Path
) -> None:
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    image = {"role": "user", "content": [{"type": "image", "data": ""}]}
    requests = [
        asked(0, "x", 3),
        asked(1, "too long " * 300, 3),
        Request(2, GREEDY, 3, [image]),
        asked(3, "y", 3),
    ]
    found = by_key(jointly(engine, requests))
    assert "context holds" in found[1].error and "cannot see images" in found[2].error
    assert found[0].text.content == found[3].text.content == "abc"


def test_a_full_context_ends_an_answer(open_engine: OpenEngine, tmp_path: Path) -> None:
    path = make_reciter(tmp_path / "m.gguf", "ab", ends=False)
    engine = open_engine(path, n_sequence=2, context_length=256)
    found = by_key(jointly(engine, (asked(i, "x") for i in range(2))))
    n_context = engine.n_context
    assert [found[i].finish_reason for i in range(2)] == ["context", "context"]
    assert [found[i].n_prompt + found[i].n_token for i in range(2)] == [n_context + 1] * 2


def test_a_conversation_is_no_longer_than_the_model_was_trained_for(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    """Alone, and beside others, whose context is longer."""
    path = make_reciter(tmp_path / "m.gguf", "ab", ends=False, n_ctx=300)
    engine = open_engine(path, n_sequence=2, context_length=8192)
    assert (engine.loaded.context.n_context, engine.n_context) == (768, 300)
    (found,) = jointly(engine, [asked(0, "x")])
    assert (found.finish_reason, found.n_prompt + found.n_token) == ("context", 301)
    list(engine.answer(of_text("x\n", GREEDY)))
    stats = engine.statistics()
    assert (engine.finish_reason, stats.n_prompt + stats.n_token) == ("context", 301)
    (found,) = jointly(engine, [asked(0, "x" * 600)])
    assert "the context holds only 300" in found.error


def test_a_stop_drops_what_is_not_complete(open_engine: OpenEngine, reciter: Path) -> None:
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    requests = [asked(0, "x", 2), asked(1, "y")]
    found = []
    for answer in jointly(engine, requests):
        found.append((answer.request.key, answer.finish_reason))
        engine.stop()
    assert found == [(0, "length"), (1, "cancelled")]
    assert [a.text.content for a in jointly(engine, [asked(0, "x", 3)])] == ["abc"]


def test_a_conversation_goes_on_after_a_group(open_engine: OpenEngine, reciter: Path) -> None:
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    before = "".join(p.text for p in engine.answer(of_text("hello\n", GREEDY, 5)))
    list(jointly(engine, [asked(0, "x", 2)]))
    after = "".join(p.text for p in engine.answer(of_text("hello\n", GREEDY, 5)))
    assert before == after == "abcde"


def test_sparse_attention_needs_fewer_cells(open_engine: OpenEngine, reciter: Path) -> None:
    """Two requests of 160 tokens run at once in a context of 256, as neither keeps its middle."""
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    n_context = engine.n_context
    requests = [asked(i, chr(120 + i) * 5 + " and more words of it" * 12, 20) for i in range(2)]
    sizes: list[int] = []
    answers = by_key(
        jointly(engine, requests, lambda g: sizes.append(g.n_running), attends=(4, 32))
    )
    assert sum(answer.n_prompt + 20 for answer in answers.values()) > n_context
    assert {answer.text.content for answer in answers.values()} == {ALPHABET[:20]}
    assert sizes.count(2) >= 20  # every decoding pass but the last had both


def test_sparse_attention_sees_only_the_ends(open_engine: OpenEngine, tiny: Path) -> None:
    """The middle of a prompt does not matter, unlike its beginning, its end, and without it."""
    engine = open_engine(tiny, n_sequence=2, context_length=512)

    def tokens(*words: str, attends: tuple[int, int] = (2, 4)) -> list[int]:
        prompt = " ".join(words)
        request = Request(0, GREEDY, 12, prompt=prompt)
        (answer,) = jointly(engine, [request], attends=attends)
        return [piece.token_id for piece in answer.pieces]

    long = ["aa bb cc dd ee ff gg hh"] * 3
    whole = tokens("start", *long, "the end", attends=(0, 0))
    assert tokens("start", *long, "the end", attends=(2, 500)) == whole
    assert tokens("start", *long, "the end") != whole


@pytest.mark.parametrize("arch", ["qwen3moe", "lfm2moe"])
def test_a_conversation_is_kept_between_groups(
    arch: str, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """Also where layers have a state, which can only go on."""
    engine = open_engine(make_tiny(arch, "F16", tmp_path / "m.gguf"), n_sequence=2)

    def tokens(prompt: str, n: int, *, keeps: bool) -> tuple[list[int], int]:
        request = Request(0, GREEDY, n, prompt=prompt)
        (answer,) = jointly(engine, [request], keeps=keeps)
        assert not answer.error
        return [piece.token_id for piece in answer.pieces], answer.n_reused

    first, more = "some words of a chat\n", "some words of a chat\nand what follows\n"
    alone, _ = tokens(more, 6, keeps=False)
    tokens(first, 1, keeps=True)
    tokens("another chat\n", 1, keeps=True)
    found, n_reused = tokens(more, 6, keeps=True)
    assert n_reused == len(engine.prompts.tokenize(first)) > 0
    assert found == alone
    tokens("some words", 2, keeps=True)  # shorter than what is held


def first(key: int, prompt: str, max_tokens: int = -1, **more: Any) -> Request:
    """A request that precedes others."""
    return replace(asked(key, prompt, max_tokens), priority="person", **more)


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("n_sequence", [2, 3, 5])
def test_an_answer_that_precedes_joins_at_once(
    rate: float, n_sequence: int, open_engine: OpenEngine, reciter: Path
) -> None:
    """Also where there is no room: another one then goes on later. None loses or gains a token."""
    engine = open_engine(reciter, cache_rate=rate, n_sequence=n_sequence, context_length=512)
    urgent = {4: first(10, "the person's own"), 20: first(11, "another one", 9)}
    passes = 0
    running: list[tuple[int, int]] = []

    def now() -> Request | None:
        return urgent.pop(passes, None)

    def note(group: Any) -> None:
        nonlocal passes
        passes += 1
        running.append((passes, group.n_running))

    requests = [asked(i, "x" * (i + 1)) for i in range(3)]
    ended = [
        (answer.request.key, answer.text.content, passes)
        for answer in jointly(engine, requests, note, urgent=now)
    ]
    texts = {key: text for key, text, _ in ended}
    assert texts == {0: ALPHABET, 1: ALPHABET, 2: ALPHABET, 10: ALPHABET, 11: ALPHABET[:9]}
    assert max(n for _, n in running) <= n_sequence
    ends = {key: n for key, _, n in ended}
    assert ends[10] == 3 + 27 and ends[11] == 19 + 9  # a token of theirs in every pass


def test_an_answer_that_precedes_has_only_its_own_costs(
    open_engine: OpenEngine, reciter: Path
) -> None:
    engine = open_engine(reciter, cache_rate=0.25, n_sequence=2, context_length=512)
    own = [first(1, "the person's own", 9)]
    counts: list[int] = []

    def now() -> Request | None:
        return own.pop() if own and counts and counts[-1] == 10 else None

    def note(group: Any) -> None:
        counts.append(group.n_token)

    list(jointly(engine, [asked(0, "x")], note, urgent=now))
    assert engine.statistics().n_prompt == len("the person's own")
    assert counts[:11] == [*range(1, 11), 2]  # its first token, and one of the other's


def test_an_answer_that_goes_on_later_keeps_its_costs(
    open_engine: OpenEngine, reciter: Path
) -> None:
    engine = open_engine(reciter, cache_rate=0.25, n_sequence=1, context_length=512)
    own = [first(0, "one of them", 9), first(1, "another", 4)]
    counts: list[int] = []

    def now() -> Request | None:
        return own.pop(0) if own and len(counts) == (0 if len(own) == 2 else 5) else None

    list(jointly(engine, [], lambda group: counts.append(group.n_token), urgent=now))
    # The second takes the place of the first, whose last 4 tokens follow.
    assert counts == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("rate", [0.25, 1.0])
@pytest.mark.parametrize("arch", ["qwen3moe", "lfm2moe"])
def test_a_group_that_is_stopped_within_a_pass_keeps_what_it_has(
    arch: str, rate: float, open_engine: OpenEngine, tmp_path: Path
) -> None:
    """A state goes back to its checkpoint, before the last token of the prompt."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    engine = open_engine(path, cache_rate=rate, n_sequence=2, context_length=512)
    prompts = ["a first prompt of some length\n", "and another one, which differs\n"]

    def tokens(keeps: bool) -> list[tuple[list[int], int]]:
        requests = [Request(i, GREEDY, 6, prompt=prompt) for i, prompt in enumerate(prompts)]
        found = by_key(jointly(engine, requests, keeps=keeps))
        return [([p.token_id for p in found[i].pieces], found[i].n_reused) for i in range(2)]

    expected = tokens(keeps=False)
    context, passes = engine.loaded.context, 0
    real = context.decode_rows

    def stopped(rows: Any) -> int:
        nonlocal passes
        passes += 1
        if passes == 4:
            engine.stop()
        return int(real(rows))

    context.decode_rows = stopped
    requests = [Request(i, GREEDY, 6, prompt=prompt) for i, prompt in enumerate(prompts)]
    gone = by_key(jointly(engine, requests, keeps=True))
    assert [gone[i].finish_reason for i in range(2)] == ["cancelled"] * 2
    del context.decode_rows
    again = tokens(keeps=True)
    assert [t for t, _ in again] == [t for t, _ in expected]
    n_prompt = [len(engine.prompts.tokenize(prompt, add_bos=True)) for prompt in prompts]
    assert [n for _, n in again] == [n - 1 for n in n_prompt]


def test_room_for_more_answers_keeps_the_experts(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(make_tiny("qwen3moe", "F16", tmp_path / "m.gguf"), cache_rate=0.5)
    list(engine.answer(of_text("some words of a chat", GREEDY, 8)))
    where = [cell & cells.WHERE for cell in engine.residency()]
    assert any(where)
    engine.make_room(3)
    assert engine.n_sequence == 3
    assert [cell & cells.WHERE for cell in engine.residency()] == where


@pytest.mark.parametrize("change", [{"context_length": 1024}, {"n_thread": 2}, {"n_ubatch": 32}])
def test_another_context_computes_what_a_new_engine_does(
    change: dict[str, int], open_engine: OpenEngine, tmp_path: Path
) -> None:
    """Also prompts that are longer than a pass was before."""
    path = make_tiny("qwen3moe", "F16", tmp_path / "m.gguf")
    settings = {"cache_rate": 0.5, "context_length": 256, "n_thread": 1}
    engine = open_engine(path, **settings)
    list(engine.answer(of_text("some words of a chat", GREEDY, 8)))
    engine.change(engine.loaded.config.decided(**change))
    fresh = open_engine(path, **{**settings, **change})
    assert engine.n_context == fresh.n_context
    prompt = "some words of a text " * (fresh.n_context // 20)

    def tokens(of: Engine) -> list[int]:
        return [piece.token_id for piece in of.answer(of_text(prompt, GREEDY, 8))]

    assert tokens(engine) == tokens(fresh)


def test_a_state_cannot_forget_single_tokens(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(make_tiny("lfm2moe", "F16", tmp_path / "m.gguf"), n_sequence=2)
    with pytest.raises(EngineError, match="sparse attention"):
        engine.attend(4, 16)


def test_every_method_computes_a_group_as_stock_does(tiny: Path) -> None:
    """Prompts of several lengths, one that joins later, and joint decoding."""
    results = [
        result
        for streams in (False, True)
        for result in compare(
            read_model(tiny),
            [0.25],
            CACHED,
            n_token=24,
            n_thread=1,
            sequences=[2, 9],
            streams=streams,
        )
    ]
    assert len(results) == 4 * len(CACHED)
    assert [(r.method, r.n_sequence) for r in results if not r.lossless] == []
    assert all(r.misses > 0 for r in results)


def test_a_trace_knows_the_sequences(open_engine: OpenEngine, tiny: Path) -> None:
    engine = open_engine(tiny, n_sequence=3, context_length=512)
    shape = engine.shape
    recorder = _native.Recorder(shape.n_layer, shape.n_expert, shape.n_expert_used)
    engine.record(recorder)
    list(jointly(engine, (asked(i, "words " * (i + 2), 4) for i in range(3))))
    engine.record(None)
    found = recorder.take()
    sequences, ends = found["sequences"], found["n_token"].cumsum()
    joint = [(s, e) for s, e, phase in zip(ends - found["n_token"], ends, found["phases"],
                                           strict=True) if phase]  # fmt: skip
    assert len(joint) == 3
    assert all(sorted(set(sequences[s:e])) == sorted(sequences[s:e]) for s, e in joint)
    assert len(set(sequences)) == 3


# The planner.


def times(read_s: float, *, dense_s: float = 1.0, expert_s: float = 0.5) -> GroupTimes:
    """Return times that grow with n, for 8 experts of 2 used, all of them read."""
    rows = tuple(
        Measured(n, dense_s * n, expert_s * n, min(2.0 * n, 8.0)) for n in (1, 2, 4, 8, 16)
    )
    return GroupTimes(rows, 4, 8, 2, read_s, 1.0)


def test_the_smallest_group_that_hides_the_reading() -> None:
    """With t_A = 1, t_E = 0.25 and t_io = 3: of n = 8, 12 >= 8 * 3 fails, of 16 it holds."""
    chosen, paper, binding = choose(times(3.0), 64)
    assert (paper, binding) == (16, 7)
    assert chosen == 16  # a larger one is no faster


def test_no_reading_needs_no_group() -> None:
    assert choose(times(0.0), 64) == (1, 1, 0)


def test_a_group_too_small_to_hide_the_reading() -> None:
    chosen, paper, binding = choose(times(100.0), 32)
    assert (chosen, paper, binding) == (32, 0, 5)


def test_more_requests_are_computed_where_they_are_faster_together() -> None:
    """A pass costs 10 and 0.1 for each sequence, so that larger groups are faster throughout."""
    rows = tuple(Measured(n, 10 + 0.1 * n, 0.0, 2.0) for n in (1, 16))
    chosen, paper, _ = choose(GroupTimes(rows, 4, 8, 2, 0.0, 0.0), 100)
    assert paper == 1 and 80 < chosen <= 100


def test_a_dense_model_is_planned_too() -> None:
    rows = (Measured(1, 1.0, 0.0, 0.0), Measured(4, 1.6, 0.0, 0.0))
    chosen, paper, _ = choose(GroupTimes(rows, 1, 0, 0, 0.0, 0.0), 8)
    assert (chosen, paper) == (8, 1)


def test_the_plan_gives_every_request_its_room(
    open_engine: OpenEngine, reciter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a first group nothing is known, and nothing is computed to know it."""
    monkeypatch.setattr("backend.machines.kept.data_folder", lambda: tmp_path)
    engine = open_engine(reciter, cache_rate=0.25)
    made = plan_group(engine, 0, n_cell=40, n_request=6)
    assert (made.n, made.times, engine.statistics().n_token) == (6, None, 0)
    assert made.config.setup.n_sequence == 6 and made.config.context_length == 240
    assert plan_group(engine, 0, n_cell=40, n_request=126).n == 63  # 64 compute all cells
    assert plan_group(engine, 0, n_cell=40, n_request=64).n == 32  # and a 64th would be alone
    assert plan_group(engine, 64, n_cell=40, n_request=100).n == 64
    for n_request in (3, 6):
        made = plan_group(engine, 3, n_cell=40, n_request=n_request)
        assert (made.n, made.sentence) == (3, text("group.asked", n=3))
    assert plan_group(engine, 3, n_cell=40, n_request=2).sentence == text("group.asked", n=2)


def test_little_memory_is_used_for_more_requests_too(
    open_engine: OpenEngine, reciter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.machines.kept.data_folder", lambda: tmp_path)
    engine = open_engine(reciter, cache_rate=0.25)
    monkeypatch.setattr("backend.engine.group_plan.available_bytes", lambda: 100 << 20)
    few = plan_group(engine, 0, n_cell=16384, n_request=60).n
    assert 1 < few < 60
    monkeypatch.setattr("backend.engine.group_plan.available_bytes", lambda: 50 << 20)
    assert plan_group(engine, 0, n_cell=16384, n_request=60).n < few
    made = plan_group(engine, 60, n_cell=16384, n_request=60)
    assert made.n < 60 and made.sentence == text("group.memory", n=made.n, asked=60, cells=16384)


def watched(engine: Engine, seconds: dict[str, float], n: int) -> tuple[list[list[int]], set[str]]:
    """Answer a planned group of n whose passes cost this by method. Return tokens and methods."""
    made = plan_group(engine, 0, n_cell=40, n_request=n)
    watch, methods = GroupWatch(engine, made), set[str]()
    engine.change(made.config)

    def observe(group: Runner) -> None:
        method = engine.loaded.config.method
        methods.add(method)
        engine.passes.meter.token = PassCost(
            1, seconds[method], 0.5, seconds[method] - 0.5, 0.1, bytes_read=9, misses=8
        )
        watch.observe(group)

    requests = [Request(i, GREEDY, 30, prompt=f"word {i} of") for i in range(n)]
    found = by_key(jointly(engine, requests, observe))
    watch.end()
    return [[piece.token_id for piece in found[i].pieces] for i in range(n)], methods


@pytest.mark.parametrize(("whole_s", "n", "is_faster"), [(0.9, 16, True), (1.1, 16, False)])
def test_layers_are_read_whole_where_a_trial_was_faster(
    whole_s: float,
    n: int,
    is_faster: bool,
    open_engine: OpenEngine,
    tiny: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The trial takes place within the answers, which stay the same. The next plan knows it."""
    monkeypatch.setattr("backend.machines.kept.data_folder", lambda: tmp_path)
    engine = open_engine(tiny, cache_rate=0.25, method="klotski")
    seconds = {"klotski": 1.0, "klotski-layers": whole_s}
    tokens, methods = watched(engine, seconds, n)
    assert methods == {"klotski", "klotski-layers"}
    assert engine.loaded.config.method == ("klotski-layers" if is_faster else "klotski")
    engine.change(replace(engine.loaded.config, method="klotski"))
    made = plan_group(engine, 0, n_cell=40, n_request=n)
    assert made.times is not None and made.times.rows[-1].n == n
    again, methods = watched(engine, seconds, n)
    assert methods == {made.config.method}  # no second trial
    assert again == tokens


def test_a_small_group_tries_nothing(
    open_engine: OpenEngine, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backend.machines.kept.data_folder", lambda: tmp_path)
    engine = open_engine(tiny, cache_rate=0.25, method="klotski")
    assert watched(engine, {"klotski": 1.0}, 15)[1] == {"klotski"}


# What a group leaves, tells and observes.


def test_two_shared_beginnings_follow_each_other(open_engine: OpenEngine, tiny: Path) -> None:
    """The second one takes the place of the first, of which nothing stays."""
    engine = open_engine(tiny, n_sequence=2, context_length=512)
    beginnings = ["the first words of some requests ", "what all of the others begin with "]
    prompts = [begin * 2 + end for begin in beginnings for end in ("one", "other")]

    def tokens(asked_for: list[int]) -> list[list[int]]:
        requests = [Request(i, GREEDY, 7, prompt=prompts[i]) for i in asked_for]
        found = by_key(jointly(engine, requests))
        assert not any(answer.error for answer in found.values())
        return [[piece.token_id for piece in found[i].pieces] for i in asked_for]

    alone = [tokens([i])[0] for i in range(4)]
    assert tokens([0, 1, 2, 3]) == alone
    stats = engine.statistics()
    assert 0.5 * stats.n_prompt > stats.n_reused > 0.4 * stats.n_prompt > 60  # one of two each


def test_a_shared_beginning_is_taken_from_a_conversation_that_is_there(
    open_engine: OpenEngine, tiny: Path
) -> None:
    engine = open_engine(tiny, n_sequence=3, context_length=512)
    begin = "the first words of some requests "
    prompts = [begin * 2 + "one", begin * 2 + "other"]

    def tokens(asked_for: list[str]) -> tuple[list[list[int]], list[int]]:
        requests = [Request(i, GREEDY, 7, prompt=prompt) for i, prompt in enumerate(asked_for)]
        found = by_key(jointly(engine, requests, keeps=True))
        answers = [found[i] for i in range(len(requests))]
        return [[p.token_id for p in a.pieces] for a in answers], [a.n_reused for a in answers]

    alone = []
    for prompt in prompts:
        engine.forget()
        alone += tokens([prompt])[0]
    engine.forget()
    tokens([begin])
    found, n_reused = tokens(prompts)
    assert found == alone
    lengths = [len(engine.prompts.tokenize(begin * n, add_bos=True)) for n in (1, 2)]
    assert all(n - 2 <= got <= n for got, n in zip(n_reused, lengths, strict=True)), n_reused


def test_a_shared_beginning_is_forgotten_with_its_group(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    """An answer behind it has every cell of the context."""
    path = make_reciter(tmp_path / "m.gguf", "ab", ends=False)
    engine = open_engine(path, n_sequence=2, context_length=256)
    shared = "the same words before every request "
    list(jointly(engine, [asked(i, shared + "x" * i, 2) for i in range(2)], keeps=True))
    list(engine.answer(of_text("x\n", GREEDY)))
    stats = engine.statistics()
    assert engine.finish_reason == "context"
    assert stats.n_prompt + stats.n_token == engine.n_context + 1


def test_an_answer_that_grows_takes_the_room_of_what_was_kept(
    open_engine: OpenEngine, tmp_path: Path
) -> None:
    path = make_reciter(tmp_path / "m.gguf", "ab", ends=False)
    engine = open_engine(path, n_sequence=2, context_length=256)
    list(jointly(engine, [asked(i, "xy"[i] * 60, 4) for i in range(2)], keeps=True))
    (answer,) = jointly(engine, [asked(2, "z")], keeps=True)
    assert answer.finish_reason == "context" and not answer.error
    assert answer.n_prompt + answer.n_token == engine.n_context + 1


def test_adaptive_methods_know_of_how_many_answers_a_pass_has_tokens(
    open_engine: OpenEngine, reciter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of several takes longer. One that reads a prompt is not for them."""
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    begun: list[int] = []
    learned: list[int] = []
    monkeypatch.setattr(engine.loaded, "begin_pass", begun.append)
    monkeypatch.setattr(engine.loaded, "observe", lambda *cost: learned.append(begun[-1]))
    list(jointly(engine, [asked(0, "x", 5), asked(1, "y", 9)]))
    assert learned == begun == [2] * (5 - 1) + [1] * (9 - 5)
    list(engine.answer(asked(2, "z", 9)))
    assert learned == begun == [2] * (5 - 1) + [1] * (9 - 5 + 9 - 1)


class Heard(Handle):
    """Notes what it is told. at: it is cancelled at this number of characters; 0: never."""

    splits = "live"

    def __init__(self, at: int = 0) -> None:
        super().__init__()
        self.told: list[tuple[Any, ...]] = []
        self.text = ""
        self._at = at

    def prefilled(self) -> None:
        self.told.append(("prefilled", self.follow.n_done, self.follow.n_prompt))

    def began(self) -> None:
        self.told.append(("began", self.follow.n_prompt, self.follow.n_reused))

    def wrote(self, piece: Any) -> None:
        self.text += piece.text
        if self._at and len(self.text) == self._at:
            self.cancel()


def test_a_handle_is_told_of_each_piece_of_the_prompt_and_once_of_its_end(
    open_engine: OpenEngine, reciter: Path
) -> None:
    engine = open_engine(reciter, n_sequence=2, n_ubatch=32, context_length=256)
    heard = Heard()
    request = replace(asked(0, "x" * 99, 3), handle=heard)
    n = len(engine.prompts.tokenize("x" * 99 + "\n", add_bos=True))
    list(jointly(engine, [request], keeps=True))
    pieces = [("prefilled", done, n) for done in (*range(0, n, 32), n)]
    assert heard.told == [*pieces, ("began", n, 0)] and heard.text == "abc"
    again = replace(request, handle=(heard := Heard()))
    list(jointly(engine, [again], keeps=True))
    pieces = [("prefilled", done, n) for done in (n - 1, n)]
    assert heard.told == [*pieces, ("began", n, n - 1)]


def test_who_has_left_gets_no_further_token(open_engine: OpenEngine, reciter: Path) -> None:
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    leaves = Heard(3)
    goes = replace(asked(0, "x"), handle=leaves)
    found = by_key(jointly(engine, [goes, asked(1, "y", 9)]))
    assert leaves.text == found[0].text.content == "abc" and found[0].n_token == 3
    assert found[1].text.content == ALPHABET[:9]


def test_who_leaves_while_waiting_for_room_is_not_answered(
    open_engine: OpenEngine, reciter: Path
) -> None:
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    sizes: list[int] = []
    leaves = replace(asked(1, "z", 200), handle=Heard())

    def note(group: Runner) -> None:
        sizes.append(group.n_running)
        leaves.handle.cancel()

    answers = jointly(engine, [asked(0, "x", 200), leaves], note)
    gone, stays = answers
    assert (gone.request.key, gone.finish_reason, gone.n_token) == (1, "cancelled", 0)
    assert stays.text.content == ALPHABET and max(sizes) == 1


@pytest.mark.parametrize("rate", [0.25, 1.0])
def test_one_is_cancelled_within_a_pass_and_the_others_go_on(
    rate: float, open_engine: OpenEngine, reciter: Path
) -> None:
    """The pass is whole while anybody waits for a token of it, and ends when nobody does."""
    engine = open_engine(reciter, cache_rate=rate, n_sequence=2, context_length=512)
    goes, stays = (asked(i, "xy"[i] * 20) for i in range(2))
    context, n_pass = engine.loaded.context, 0
    real, status = context.decode_rows, 0

    def decode_rows(rows: Any) -> int:
        nonlocal n_pass, status
        n_pass += 1
        if n_pass == 5:
            goes.handle.cancel()
        if n_pass == 9:
            stays.handle.cancel()
        status = int(real(rows))
        return status

    context.decode_rows = decode_rows
    try:
        found = by_key(jointly(engine, [goes, stays], keeps=True))
    finally:
        del context.decode_rows
    assert [found[i].finish_reason for i in range(2)] == ["cancelled"] * 2
    assert found[1].text.content == ALPHABET[:8] and n_pass == 9
    assert found[0].n_token == 5  # the token of the pass in which it was cancelled, too
    (again,) = jointly(engine, [asked(1, "y" * 20, 9)], keeps=True)
    assert again.text.content == ALPHABET[:9] and again.n_reused == again.n_prompt - 1


@pytest.mark.parametrize("arch", ["qwen3moe", "lfm2moe"])
def test_one_that_arrives_when_all_were_cancelled_within_a_pass_is_answered(
    arch: str, open_engine: OpenEngine, oracle: Oracle, tmp_path: Path
) -> None:
    """Those who take no part in the pass that was lost keep what the context has."""
    path = make_tiny(arch, "F16", tmp_path / "m.gguf")
    engine = open_engine(path, n_sequence=3, context_length=512)
    prompts = ["a first prompt of some length\n", "and another one, which differs\n"]
    requests = [Request(i, GREEDY, 6, prompt=prompt) for i, prompt in enumerate(prompts)]
    # A conversation that is kept beside them; the late one begins with all of it.
    before = Request(3, GREEDY, 3, prompt="what was said before them\n")
    (kept,) = jointly(engine, [replace(before, handle=Handle())])
    said = [piece.token_id for piece in kept.pieces]
    whole = (*engine.prompts.tokenize("what was said before them\n", add_bos=True), *said)
    late = Request(2, GREEDY, 6, prompt=whole)
    (expected,) = jointly(engine, [late])
    (kept,) = jointly(engine, [before], keeps=True)
    context, n_pass = engine.loaded.context, 0
    real = context.decode_rows

    def decode_rows(rows: Any) -> int:
        nonlocal n_pass
        n_pass += 1
        if n_pass == 5:
            for request in requests:
                request.handle.cancel()
        return int(real(rows))

    def arriving() -> Iterator[Request | None]:
        yield from requests
        while n_pass < 5:
            yield None
        yield late

    context.decode_rows = decode_rows
    try:
        again = by_key(jointly(engine, arriving(), keeps=True))
    finally:
        del context.decode_rows
    reasons = [again[i].finish_reason for i in range(3)]
    assert reasons == ["cancelled", "cancelled", expected.finish_reason]
    assert [p.token_id for p in again[2].pieces] == [p.token_id for p in expected.pieces]
    assert again[2].n_reused > 0
    oracle.approve()


def test_a_group_does_not_open_one_that_is_cancelled(
    open_engine: OpenEngine, reciter: Path
) -> None:
    engine = open_engine(reciter, n_sequence=2, context_length=256)
    requests = [asked(i, "x", 3) for i in range(3)]
    for request in requests[:2]:
        request.handle.cancel()
    sizes: list[int] = []
    found = by_key(jointly(engine, requests, lambda group: sizes.append(group.n_running)))
    assert {key: answer.finish_reason for key, answer in found.items()} == {
        0: "cancelled",
        1: "cancelled",
        2: "length",
    }
    assert found[2].text.content == "abc" and max(sizes) == 1


@pytest.mark.parametrize("goes", ["rendered", "running"])
def test_a_prompt_is_no_longer_rendered_for_one_that_was_cancelled(
    goes: str, open_engine: OpenEngine, reciter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for this one: others beside it go on, and their end does not end its rendering."""
    engine = open_engine(reciter, n_sequence=2, context_length=512)
    running = asked(0, "x", 9)
    messages = [{"role": "user", "content": "hello"}]
    rendered = Request(1, GREEDY, 3, messages)
    chat_format = engine.loaded.weights.chat_format
    assert chat_format is not None
    exchange, ended = chat_format._ask_process, []

    def ask(request: Any, limit_s: float, is_stopped: Callable[[], bool]) -> Any:
        chat_format.start()
        process = chat_format._process
        assert process is not None
        if "render" in request:
            (rendered if goes == "rendered" else running).handle.cancel()
            ended.append(goes == "rendered" and process.wait(WAIT_S) is not None)
        return exchange(request, limit_s, is_stopped)

    monkeypatch.setattr(chat_format, "_ask_process", ask)
    found = by_key(jointly(engine, [running, rendered], keeps=True))
    reasons = {key: answer.finish_reason for key, answer in found.items()}
    gone = 1 if goes == "rendered" else 0
    assert reasons == {gone: "cancelled", 1 - gone: "length"} and not found[0].error
    assert ended == [goes == "rendered"]


def test_choices_of_one_handle_end_together_and_others_join_them(
    open_engine: OpenEngine, reciter: Path
) -> None:
    """One that joins after all were cancelled is answered."""
    engine = open_engine(reciter, n_sequence=3, context_length=512)
    whole = Handle()
    choices = [replace(asked(i, "x"), handle=Handle(whole)) for i in range(2)]
    late: list[Request] = [asked(2, "y", 4)]
    n_pass = 0

    def now() -> Request | None:
        return late.pop() if late and n_pass == 6 else None

    def note(_: Any) -> None:
        nonlocal n_pass
        n_pass += 1
        if n_pass == 6:
            whole.cancel()

    found = by_key(jointly(engine, choices, note, urgent=now))
    assert [found[i].finish_reason for i in range(3)] == ["cancelled", "cancelled", "length"]
    assert found[2].text.content == ALPHABET[:4]
    assert [found[i].n_token for i in range(2)] == [7, 7]


class Noted(Precedence):
    """Lets others take part in every pass, or in none. Notes what was asked and observed."""

    lets = True
    made: ClassVar[list[Noted]] = []

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []
        self.observed: list[tuple[int, int, int]] = []
        self.n_disturbed = 0
        self.made.append(self)

    def allows(self, n_other: int) -> bool:
        self.asked.append(n_other)
        return self.lets

    def disturb(self) -> None:
        super().disturb()
        self.n_disturbed = getattr(self, "n_disturbed", 0) + 1

    def observe(self, n_own: int, n_other: int, n_of_prompt: int, took_s: float) -> None:
        assert took_s > 0
        self.observed.append((n_own, n_other, n_of_prompt))


def beside(engine: Engine, monkeypatch: pytest.MonkeyPatch, *, lets: bool) -> Noted:
    """Answer a person who joins a running answer, and is joined by another's prompt."""
    monkeypatch.setattr(Noted, "made", [])
    monkeypatch.setattr(Noted, "lets", lets)
    monkeypatch.setattr("backend.engine.scheduler.Precedence", Noted)
    own, n_pass = [first(10, "the person's own", 9)], 0

    def requests() -> Iterator[Request | None]:
        yield asked(0, "x", 20)
        while n_pass < 8:
            yield None
        yield asked(1, "y" * 19, 2)

    def now() -> Request | None:
        return own.pop() if own and n_pass == 4 else None

    def note(_: Any) -> None:
        nonlocal n_pass
        n_pass += 1

    found = by_key(jointly(engine, requests(), note, urgent=now))
    assert {key: len(answer.text.content) for key, answer in found.items()} == {10: 9, 0: 20, 1: 2}
    (noted,) = Noted.made
    return noted


def test_every_token_of_an_answer_that_precedes_is_observed(
    open_engine: OpenEngine, reciter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first one comes with its prompt. Eight follow alone."""
    engine = open_engine(reciter, n_sequence=4, context_length=512)
    noted = beside(engine, monkeypatch, lets=False)
    assert noted.observed == [(1, 0, 0)] * 8
    assert noted.n_disturbed == 1 + 3  # by its begin, and by each of the three that joined
    # Another's next token; then also a piece of 8 tokens of the prompt that has joined.
    assert noted.asked == [1] * 3 + [1 + 8] * 5


def test_one_prompt_of_others_is_read_at_a_time(
    open_engine: OpenEngine, reciter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noted, "made", [])
    monkeypatch.setattr("backend.engine.scheduler.Precedence", Noted)
    engine = open_engine(reciter, n_sequence=4, context_length=512)
    own, n_pass = [first(10, "the person's own", 9)], 0

    def note(_: Any) -> None:
        nonlocal n_pass
        n_pass += 1

    def requests() -> Iterator[Request | None]:
        while not n_pass:
            yield None
        yield asked(0, "x" * 12, 1)
        yield asked(1, "y" * 12, 1)

    found = by_key(jointly(engine, requests(), note, urgent=lambda: own.pop() if own else None))
    assert [len(found[key].text.content) for key in (10, 0, 1)] == [9, 1, 1]
    n_prompt = len(engine.prompts.tokenize("x" * 12 + "\n", add_bos=True))
    noted = Noted.made[-1]  # the one before was made with the context
    pieces = [n for _, _, n in noted.observed if n]
    assert pieces == [8, n_prompt - 8] * 2 and noted.asked[:4] == pieces


def test_others_are_observed_with_their_prompts(
    open_engine: OpenEngine, reciter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = open_engine(reciter, n_sequence=4, context_length=512)
    noted = beside(engine, monkeypatch, lets=True)
    n_prompt = len(engine.prompts.tokenize("y" * 19 + "\n", add_bos=True))
    pieces = [8, 8, n_prompt - 16]
    assert noted.observed == [
        *[(1, 1, 0)] * 3, *[(1, 1 + n, n) for n in pieces], (1, 2, 0), (1, 1, 0),
    ]  # fmt: skip
    assert noted.asked == [n for _, n, _ in noted.observed]


def test_others_beside_a_persons_prompt_are_fewer_where_less_of_it_is_left(
    open_engine: OpenEngine, reciter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = []

    class Counts(Precedence):
        @staticmethod
        def n_beside_prompt(n_own: int) -> int:
            left.append(n_own)
            return Precedence.n_beside_prompt(n_own)

    monkeypatch.setattr("backend.engine.scheduler.Precedence", Counts)
    engine = open_engine(reciter, n_sequence=2, n_ubatch=32, context_length=512)
    n = len(engine.prompts.tokenize("o" * 70 + "\n", add_bos=True))
    own, n_token = [first(10, "o" * 70, 1)], []

    def now() -> Request | None:
        return own.pop() if own and len(n_token) == 4 else None

    found = by_key(
        jointly(
            engine, [asked(0, "x", 20)], lambda group: n_token.append(group.n_token), urgent=now
        )
    )
    assert found[0].text.content == ALPHABET[:20] and found[10].text.content == "a"
    # A row of each piece is another's next token. Tokens are counted from the join on.
    assert left == [min(n - done, 32) for done in (0, 31, 62)] and 8 <= left[-1] < 16
    assert n_token[3:7] == [4, 1, 2, 4]
