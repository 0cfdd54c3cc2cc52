"""Drafts by a model's layer for multi-token prediction: its guesses, and what they never change."""

from __future__ import annotations

import itertools
import shutil
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from asking import jointly, keep_all, of_chat, of_text
from chats import model as chat_model
from factory import can_predict, make_tiny, spoil
from numpy.typing import NDArray
from oracle import Oracle
from reciter import make_reciter, with_template

from backend.engine import prediction_layer
from backend.engine.drafts import Width
from backend.engine.engine import Engine
from backend.engine.loading import load_plain
from backend.engine.open_answer import OpenAnswer
from backend.engine.prediction_layer import PredictionLayer
from backend.engine.runner import Runner
from backend.gguf.model_file import read_model
from backend.gguf.tables import PREDICTING, STAYS
from backend.llama.api import Context
from backend.protocol.errors import EngineError
from backend.protocol.request import Request
from backend.protocol.settings import DRAFTED_MAX, Sampling

OpenEngine = Callable[..., Engine]
GREEDY = Sampling(temperature=0)
TEXT = "".join(chr(i) for i in range(ord("!"), ord("!") + 80))
PROMPT = "it was one of the words that they had not said "
PREDICTED = [arch for arch in PREDICTING if can_predict(arch)]


class Eager(Width):
    """Asks for as much as it can, also from a layer that is unsure."""

    def choose(self, n_equal: int) -> int:
        return self.n_most

    def cost(self, n_equal: int, n: int) -> float:
        return 0.0


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models, and one whose layer knows the text that the model recites."""
    folder = tmp_path_factory.mktemp("models")
    sizes = {"arch": "glm4moe", "n_nextn": 1}
    found = {
        arch: make_tiny(arch, "F16" if arch == "deepseek2" else "Q8_0", folder / arch, n_nextn=1)
        for arch in PREDICTED
    }
    reciter = make_reciter(folder / "reciter.gguf", TEXT, **sizes)  # type: ignore[arg-type]
    return {**found, "reciter": reciter}


def drafting(open_engine: OpenEngine, path: Path, **settings: Any) -> Engine:
    chosen = {"cache_rate": 0.5, "drafts": "auto", "device": "cpu", **settings}
    engine = open_engine(path, **chosen)
    engine.passes.width = Eager(DRAFTED_MAX)
    return engine


def answer(engine: Engine, prompt: str, n: int, owner: str = "") -> list[int]:
    """Return the tokens of a greedy answer. A piece may follow them, with the rest of the text."""
    return [piece.token_id for piece in engine.answer(of_text(prompt, GREEDY, n, owner=owner))][:n]


def require_best(engine: Engine, prompt: str, tokens: list[int]) -> None:
    """Require that each token is the best one without drafts, up to rounding."""
    asked = Sampling(temperature=0, n_probs=2)
    plain = engine.answer(of_text(prompt, asked, len(tokens)))
    for piece, token in zip(plain, tokens, strict=False):
        if piece.token_id != token:  # only where two tokens are as good
            best, second = piece.chances[1:3]
            assert second.token_id == token and best.logprob - second.logprob < 0.05
            break


def test_the_layer_guesses_where_nothing_repeats(
    open_engine: OpenEngine, models: dict[str, Path], oracle: Oracle
) -> None:
    engine, plain = (
        drafting(open_engine, models["reciter"], drafts=drafts) for drafts in ("auto", "off")
    )
    assert (engine.cache.drafts, plain.cache.drafts) == ("mtp", "off")
    assert not engine.cache.remark
    for prompt in ("\n", "the\n", "\n"):  # others go on where the context has something else
        tokens = answer(engine, prompt, 60)
        assert tokens == answer(plain, prompt, 60)
        statistics = engine.statistics()
        assert statistics.n_accepted == statistics.n_drafted > 45
        assert engine.passes.tokens == plain.passes.tokens
    assert engine.passes.meter.n_pass < 12
    assert oracle.approve()["n_answer"] == 6


@pytest.mark.parametrize(("arch", "n_sequence"), [("qwen35moe", 1), ("glm4moe", 4)])
def test_after_going_back_the_layer_guesses_as_if_it_never_had(
    arch: str,
    n_sequence: int,
    open_engine: OpenEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also after another chat and after a restart.

    It attends to all that it has read, and lacks one state, of the token before the border.
    """
    monkeypatch.setattr(prediction_layer, "_N_WRONG", 1 << 30)  # of a random model all are wrong
    path = chat_model(arch, tmp_path, n_ctx=1024, n_nextn=1)
    guesses: dict[int, list[int]] = {}
    own = PredictionLayer.guess

    def guess(layer: PredictionLayer, tokens: list[int], *_: Any) -> list[int]:
        found = own(layer, tokens, 1, 0.0, lambda: False)
        guesses.setdefault(len(tokens), found)
        return found

    monkeypatch.setattr(PredictionLayer, "guess", guess)

    def opened() -> Engine:
        sizes = {"context_length": 1024, "n_ubatch": 32, "n_sequence": n_sequence}
        engine = drafting(open_engine, path, **sizes)
        engine.keep_in(tmp_path / "states")
        keep(engine)
        return engine

    def keep(engine: Engine) -> None:
        keep_all(engine)

    def said(first: int, prompt: str = PROMPT * 3, owner: str = "chat") -> dict[int, list[int]]:
        tokens = iter(range(first, first + 100))
        monkeypatch.setattr(OpenAnswer, "sample", lambda _self, _row=-1: next(tokens))
        guesses.clear()
        asked = of_chat([{"role": "user", "content": prompt}], GREEDY, 24, owner=owner)
        list(engine.answer(asked))
        return dict(guesses)

    def gone_back(before: dict[int, list[int]], n_most: int = 1) -> dict[int, list[int]]:
        again = said(5)
        statistics = engine.statistics()
        assert 0 < statistics.n_prompt - statistics.n_reused < 16  # behind the checkpoint
        assert before.keys() == again.keys() and len(before) > 15
        assert sum(before[n] != again[n] for n in before) <= n_most
        return again

    engine = opened()
    first = said(5)
    said(105)
    again = gone_back(first, 3)  # the prompt's end is computed in a pass of its own
    keep(engine)
    said(50, "the of and " * 10, "other")
    again = gone_back(again)
    keep(engine)
    engine.close()
    engine = opened()
    gone_back(again)


def test_the_layer_follows_one_answer_of_a_pass(
    open_engine: OpenEngine,
    models: dict[str, Path],
    oracle: Oracle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first one, and a person's as long as she is answered."""
    engine = drafting(open_engine, models["reciter"], n_sequence=3)
    plain = drafting(open_engine, models["reciter"], drafts="off")
    assert engine.cache.drafts == "mtp"
    eager = Eager(DRAFTED_MAX)
    monkeypatch.setattr(engine.passes, "width_beside", lambda _: eager)
    prompts, n_right = ("abc\n", "bc\n", "c\n"), 0
    followed: list[int] = []
    guess = PredictionLayer.guess

    def watched(layer: PredictionLayer, tokens: list[int], *rest: Any) -> list[int]:
        found = guess(layer, tokens, *rest)
        followed.append(next(i for i, text in enumerate(texts) if tokens[: len(text)] == text))
        return found

    texts = [engine.prompts.tokenize(prompt, add_bos=True) for prompt in prompts]
    monkeypatch.setattr(PredictionLayer, "guess", watched)
    urgent = [Request(2, GREEDY, 30, prompt=prompts[2], priority="person")]

    def count(group: Runner) -> None:
        nonlocal n_right
        n_right += group.n_right

    found = jointly(
        engine,
        [Request(i, GREEDY, 60, prompt=prompts[i]) for i in range(2)],
        count,
        urgent=lambda: urgent.pop() if urgent and n_right > 4 else None,
    )
    answers = {given.request.key: given for given in found}
    for i, prompt in enumerate(prompts):
        n = answers[i].n_token
        assert n == (60, 60, 30)[i]
        assert [p.token_id for p in answers[i].pieces][:n] == answer(plain, prompt, n)
    order = [k for k, _ in itertools.groupby(followed)]
    assert order[:2] == [0, 2] and 2 not in order[2:] and n_right > 40
    assert oracle.approve()["n_answer"] == 6


def test_its_experts_are_cached_like_others(
    open_engine: OpenEngine, models: dict[str, Path], oracle: Oracle
) -> None:
    """The layer has as many slots as another; its guesses are those of a layer in memory."""
    path = models["glm4moe"]
    engine = drafting(open_engine, path, cache_rate=0.5)
    in_memory = drafting(open_engine, path, cache_rate=1.0)
    assert answer(engine, PROMPT, 24) == answer(in_memory, PROMPT, 24)
    assert engine.statistics().n_drafted == in_memory.statistics().n_drafted > 0
    assert in_memory.loaded.patches == []
    assert oracle.approve()["n_answer"] == 2
    _, patch = engine.loaded.patches
    (counts,) = patch.counts()
    assert counts.hits > 0 and counts.misses > 0
    file = read_model(path)
    expert_bytes = sum(t.n_bytes for t in file.nextn_experts) // file.n_expert
    assert patch.slab_bytes == engine.cache.n_slot * expert_bytes
    engine.stop()
    assert list(engine.answer(of_text(PROMPT, GREEDY, 3)))  # a stop lasts until the next request


@pytest.mark.parametrize("rate", [0.5, 1.0])
@pytest.mark.parametrize("arch", ["glm4moe", "deepseek2", "qwen35moe"])
def test_wrong_guesses_change_nothing(
    arch: str, rate: float, open_engine: OpenEngine, models: dict[str, Path]
) -> None:
    engine = drafting(open_engine, models[arch], cache_rate=rate)
    plain = drafting(open_engine, models[arch], cache_rate=rate, drafts="off")
    assert engine.loaded.plan.is_plain == (rate == 1.0) and engine.cache.drafts == "mtp"
    for prompt in (PROMPT, PROMPT * 2 + "and", PROMPT[:9]):
        tokens = answer(engine, prompt, 24)
        statistics = engine.statistics()
        assert statistics.n_drafted > statistics.n_accepted
        require_best(plain, prompt, tokens)


def reference(path: Path, texts: list[list[int]], n: int) -> list[list[NDArray[np.float32]]]:
    """Return for texts the logits of n guessed tokens, by the steps of llama.cpp's rule.

    The layer reads all tokens but the last, each with the state before it. It guesses with the last
    token and the last state, and then with its own tokens and states.
    """
    model = load_plain(read_model(path), predicts=True)
    sizes = {"n_context": 256, "n_ubatch": 256, "n_thread": 1}
    target, layer = Context(model, **sizes), Context(model, **sizes, predicts=True)
    target.keep_states()
    found = []
    for tokens in texts:
        target.clear()
        layer.clear()
        assert target.decode(tokens[:-1], 0) == 0
        states = target.states(len(tokens) - 1).copy()
        before = np.vstack([np.zeros_like(states[:1]), states[:-1]])
        assert layer.predict(tokens[:-1], before, 0, with_logits=False) == 0
        token, state, rows = tokens[-1], states[-1:], []
        for position in range(len(tokens) - 1, len(tokens) - 1 + n):
            assert layer.predict([token], state, position, with_logits=True) == 0
            rows.append(layer.logits(1)[0])
            token, state = int(rows[-1].argmax()), layer.states(1).copy()
        found.append(rows)
    for context in (layer, target):
        context.close()
    model.close()
    return found


@pytest.mark.parametrize("arch", sorted(set(PREDICTED) - STAYS))
def test_the_guesses_are_those_of_llama_cpp(
    arch: str,
    open_engine: OpenEngine,
    models: dict[str, Path],
    oracle: Oracle,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Over prompts of several passes and rejected guesses, which llama.cpp computes again."""
    asked: list[tuple[list[int], list[int]]] = []
    guess = PredictionLayer.guess

    def watched(layer: PredictionLayer, tokens: list[int], *rest: Any) -> list[int]:
        asked.append((list(tokens), guess(layer, tokens, *rest)))
        return asked[-1][1]

    monkeypatch.setattr(PredictionLayer, "guess", watched)
    monkeypatch.setattr("backend.engine.prediction_layer._N_WRONG", 1 << 30)  # it reads all texts
    engine = drafting(open_engine, models[arch], n_ubatch=12)
    assert engine.cache.drafts == "mtp" and not engine.cache.remark
    for prompt in (PROMPT, PROMPT * 2, PROMPT[9:]):
        answer(engine, prompt, 10)
        engine.forget()
    assert oracle.approve()["n_answer"] == 3
    texts, guesses = [text for text, _ in asked], [found for _, found in asked]
    n_most = engine.loaded.context.n_back or DRAFTED_MAX
    assert len(texts) > 8 and max(map(len, guesses)) == n_most > 3
    n_alike = 0
    for rows, found in zip(reference(models[arch], texts, n_most), guesses, strict=True):
        for logits, token in zip(rows, found, strict=False):
            if logits.argmax() != token:  # only where two tokens are as good
                assert logits.max() - logits[token] < 0.05
                break
            n_alike += 1
    assert n_alike > 2 * len(texts)


def test_a_layer_that_was_wrong_reads_little_for_another_guess(
    open_engine: OpenEngine, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a prompt in several pieces, too. One that was right reads all of it."""
    predict, n_read = Context.predict, 0

    def counting(context: Context, tokens: list[int], *rest: Any, **options: Any) -> int:
        nonlocal n_read
        n_read += len(tokens)
        return predict(context, tokens, *rest, **options)

    monkeypatch.setattr(Context, "predict", counting)
    for name, reads_all in (("glm4moe", False), ("reciter", True)):
        engine, found = drafting(open_engine, models[name], n_ubatch=64), []
        for prompt in ("the of and\n", PROMPT * 8 + "\n"):
            n_read = 0
            answer(engine, prompt, 24 if not found else 3)
            found.append(n_read)
        n_prompt = engine.statistics().n_prompt
        assert n_prompt > 100
        assert (found[1] >= n_prompt) == reads_all and (found[1] < 64) != reads_all


def test_an_architecture_that_cannot_go_back_says_so(
    open_engine: OpenEngine, models: dict[str, Path]
) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"path": models["qwen3next"]}, "llama.cpp cannot take a token of qwen3next back."),
        ({"path": models["deepseek4"], "n_sequence": 2}, "one request at a time only."),
    ]
    if sys.platform == "linux":
        on_drive = {"path": models["qwen35moe"], "kv_on_drive": True}
        cases.append((on_drive, "possible in memory only."))
    for settings, reason in cases:
        engine = drafting(open_engine, **settings)
        assert engine.cache.drafts == "off" and engine.cache.remark.endswith(reason)
        assert answer(engine, PROMPT, 4) and engine.statistics().n_drafted == 0


@pytest.mark.parametrize(
    ("arch", "drafts"), [("mimo2", "mtp"), ("hy_v3", "mtp"), ("step35", "mtp"), ("glm4moe", "auto")]
)
def test_the_first_of_several_layers_guesses(
    arch: str, drafts: str, open_engine: OpenEngine, tmp_path: Path, oracle: Oracle
) -> None:
    """Where llama.cpp computes one of them; for others it would end the process.

    Experts of the further layers stay in the file.
    """
    path = make_tiny(arch, "Q8_0", tmp_path / "m.gguf", n_nextn=3)
    engine = drafting(open_engine, path)
    tokens, n_drafted = answer(engine, PROMPT, 24), engine.statistics().n_drafted
    assert engine.cache.drafts == drafts and tokens
    assert ("only where it is the only one" in engine.cache.remark) == (drafts == "auto")
    has_patch = drafts == "mtp" and bool(read_model(path).nextn_experts)
    assert len(engine.loaded.patches) == 1 + has_patch
    if drafts == "mtp":
        in_memory = drafting(open_engine, path, cache_rate=1.0)
        assert in_memory.cache.drafts == "mtp" and in_memory.loaded.plan.is_plain
        assert answer(in_memory, PROMPT, 24) == tokens
        assert in_memory.statistics().n_drafted == n_drafted > 0
    assert oracle.approve()["n_answer"] == 1 + (drafts == "mtp")


def test_a_context_is_kept_without_the_draft_that_was_not_accepted(
    open_engine: OpenEngine, models: dict[str, Path], oracle: Oracle, tmp_path: Path
) -> None:
    """A recurrent state has all of its tokens; another engine goes on where the answer ended."""
    first, second = (drafting(open_engine, models["qwen35moe"]) for _ in range(2))
    for engine in (first, second):
        engine.keep_in(tmp_path)
    abandoned = first.answer(of_text(PROMPT * 2, GREEDY, 40, owner="chat"))
    list(islice(abandoned, 5))
    assert first.statistics().n_drafted > first.statistics().n_accepted + 1
    abandoned.close()  # type: ignore[attr-defined]
    tokens = list(first.passes.tokens)
    for engine in (first, second):  # the second learns the file's digest
        keep_all(engine)
    assert first.passes.tokens == tokens
    found = []
    for engine in (second, first):
        found.append([p.token_id for p in engine.answer(of_text((*tokens, 5), GREEDY, 6))])
        assert engine.statistics().n_reused == len(tokens)
    assert found[0] == found[1]
    assert oracle.approve()["n_answer"] == 3


# Texts that come from elsewhere.


@pytest.mark.parametrize("drafts", ["auto", "off"])
def test_the_layer_guesses_behind_a_restored_text(
    drafts: str, open_engine: OpenEngine, models: dict[str, Path], tmp_path: Path
) -> None:
    """Also where a state has nothing of the layer: it then begins in the middle of the text."""
    prompt, found = PROMPT * 8 + "\n", []
    for how in (drafts, "auto"):
        engine = drafting(open_engine, models["reciter"], drafts=how)
        engine.keep_in(tmp_path)
        keep_all(engine)
        found.append(answer(engine, prompt, 40, owner="chat"))
        assert engine.statistics().n_accepted > 25 or how == "off"
        keep_all(engine)
    assert engine.statistics().n_reused > 60 and found[0] == found[1]


def test_other_texts_come_between(open_engine: OpenEngine, models: dict[str, Path]) -> None:
    """Abandoned answers, forgotten contexts and groups leave nothing that a guess would read."""
    engine = drafting(open_engine, models["glm4moe"], n_sequence=2)
    plain = drafting(open_engine, models["glm4moe"], drafts="off")
    expected = answer(plain, PROMPT, 10)
    for _ in range(2):
        assert answer(engine, PROMPT, 10) == expected and engine.statistics().n_drafted > 0
        list(islice(engine.answer(of_text(PROMPT, GREEDY, 40)), 3))
        assert answer(engine, PROMPT, 10) == expected
        engine.forget()
        assert answer(engine, "the " + PROMPT, 4)
        requests = [Request(text, GREEDY, 6, prompt=text) for text in (PROMPT, "of")]
        assert len(list(jointly(engine, requests))) == 2


def test_a_stop_ends_a_guess(
    open_engine: OpenEngine, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = drafting(open_engine, models["reciter"])
    predict, n_predicted = Context.predict, 0

    def stopping(*args: Any, **options: Any) -> int:
        nonlocal n_predicted
        n_predicted += 1
        if n_predicted == 3:
            engine.stop()
        return predict(*args, **options)

    monkeypatch.setattr(Context, "predict", stopping)
    assert 0 < len(answer(engine, "\n", 60)) < 60
    assert n_predicted == 3 and engine.finish_reason == "cancelled"
    assert len(answer(engine, "\n", 60)) == 60


# Files.


def test_a_file_without_all_parts_of_the_layer(
    open_engine: OpenEngine, models: dict[str, Path], tmp_path: Path
) -> None:
    """Without the first part llama.cpp takes the file; without another one it never does."""
    cut = [
        with_template(
            models["glm4moe"], tmp_path / f"{part}.gguf", None, f"blk.3.nextn.{part}.weight"
        )
        for part in ("eh_proj", "hnorm")
    ]
    engine = drafting(open_engine, cut[0])
    assert engine.cache.drafts == "auto" and answer(engine, PROMPT, 8)
    assert engine.cache.remark == (
        "The layer of eh_proj.gguf that predicts further words guesses nothing: parts of it are "
        "missing."
    )
    for drafts in ("auto", "off"):
        with pytest.raises(EngineError, match=r"^llama.cpp could not load hnorm.gguf: .*\.$"):
            drafting(open_engine, cut[1], drafts=drafts)


def test_a_damaged_layer_is_left_out(
    open_engine: OpenEngine, models: dict[str, Path], tmp_path: Path
) -> None:
    """A file with damage in this layer computes what another one computes."""
    path = tmp_path / "damaged.gguf"
    shutil.copy(models["glm4moe"], path)
    spoil(path, "blk.3.nextn.eh_proj.weight")
    engine, whole = drafting(open_engine, path), drafting(open_engine, models["glm4moe"])
    assert (engine.cache.drafts, whole.cache.drafts) == ("auto", "mtp")
    assert not engine.loaded.plan.predicts, "the plan in force is what was loaded"
    assert engine.cache.remark.startswith("The layer of damaged.gguf that predicts further words")
    assert engine.cache.remark.count("\n") == 0 and engine.cache.remark.endswith(".")
    assert answer(engine, PROMPT, 8) == answer(whole, PROMPT, 8)


def test_the_layer_comes_and_goes(
    open_engine: OpenEngine, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights are loaded for drafts only, and its contexts are freed."""
    contexts = []

    class Watched(Context):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            contexts.append(self)

    monkeypatch.setattr("backend.engine.prediction_layer.Context", Watched)
    engine = drafting(open_engine, models["reciter"], drafts="off")
    for changed, drafts, n_open in (
        ({"drafts": "auto"}, "mtp", 1),
        ({"context_length": 256}, "mtp", 1),
        ({"n_sequence": 2}, "mtp", 1),
        ({"cache_rate": 0.6}, "mtp", 1),
        ({"drafts": "off"}, "off", 0),
        ({"drafts": "auto"}, "mtp", 1),
    ):
        engine.change(engine.loaded.config.changed(**changed))
        engine.passes.width = Eager(DRAFTED_MAX)
        assert engine.cache.drafts == drafts
        assert sum(context.is_open for context in contexts) == n_open
        answer(engine, "\n", 30)
        assert (engine.statistics().n_accepted > 15) == (drafts != "off")
    engine.close()
    assert not any(context.is_open for context in contexts)
