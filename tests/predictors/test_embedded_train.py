"""A tiny training run: it resumes, exports, and is evaluated."""

# ruff: noqa: E402 (what needs torch is imported after asking for torch)

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
from gguf import GGMLQuantizationType as Type

from predictors.embedded import checkpoint, evaluate, export, tokenizer
from predictors.embedded.__main__ import main
from predictors.embedded.config import INSTRUCT, PRETRAIN, ModelConfig, Stage, TrainConfig, dense
from predictors.embedded.cores import FreeCores
from predictors.embedded.model import Model
from predictors.embedded.train import Run, lr_scale, train

N_VOCAB = 296
SHAPE = ModelConfig(
    n_vocab=N_VOCAB, n_layer=2, n_embd=64, n_head=2, n_head_kv=1, head_dim=32, n_expert=8,
    n_expert_used=2, n_ff_exp=32, n_ctx=64,
)  # fmt: skip
SETTINGS = TrainConfig(budget_minutes=1.0, batch_tokens=128, short_context=32)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Return a work folder with prepared texts and a tokenizer."""
    rng = random.Random(1)
    nouns = ("king", "fox", "crow", "garden", "river", "tower", "ship", "horse")

    def text() -> str:
        return " ".join(f"The {rng.choice(nouns)} saw the {rng.choice(nouns)}." for _ in range(60))

    def rows(n: int) -> str:
        return "\n".join(
            json.dumps({"source": source, "title": "t", "text": text()})
            for source in ("wikipedia", "books") * n
        )

    (tmp_path / "train.jsonl").write_text(rows(6), encoding="utf-8")
    (tmp_path / "heldout.jsonl").write_text(rows(1), encoding="utf-8")
    chat = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": text()[:150]}]
    (tmp_path / "instruct.jsonl").write_text(
        "\n".join(json.dumps({"messages": chat}) for _ in range(20)), encoding="utf-8"
    )
    tokenizer.build(tmp_path, N_VOCAB)
    return tmp_path


@pytest.mark.parametrize(
    ("stage", "elapsed_s"), [(PRETRAIN, 0.0), (PRETRAIN, 40.0), (INSTRUCT, 0.0)]
)
def test_a_stopped_run_continues_exactly(work: Path, stage: Stage, elapsed_s: float) -> None:
    whole = Run(work, SHAPE, SETTINGS, stage)
    whole.now.elapsed_s = elapsed_s
    expected = [whole.step() for _ in range(4)]
    first = Run(work, SHAPE, SETTINGS, stage)
    first.now.elapsed_s = elapsed_s
    actual = [first.step(), first.step()]
    first.save()
    second = Run(work, SHAPE, SETTINGS, stage)
    assert second.now.elapsed_s == elapsed_s and second.n_token == first.n_token
    assert len(second.runs) == 1
    actual += [second.step(), second.step()]
    assert actual == expected


def test_a_run_ends_with_its_budget_and_a_further_call_does_nothing(work: Path) -> None:
    settings = TrainConfig(budget_minutes=0.02, batch_tokens=128, short_context=32)
    train(Run(work, SHAPE, settings, PRETRAIN), fuse=False)
    rows = [json.loads(line) for line in (work / checkpoint.LOG).read_text().splitlines()]
    assert rows[0]["loss"] > 4 and "heldout_wikipedia_bpb" in rows[-1]
    assert len(rows[-1]["expert_share_min"]) == len(rows[-1]["expert_share_max"]) == SHAPE.n_layer
    stored = (work / checkpoint.CHECKPOINT).read_bytes()
    train(Run(work, SHAPE, settings, PRETRAIN), fuse=False)
    assert (work / checkpoint.CHECKPOINT).read_bytes() == stored


def test_runs_follow_one_another_and_can_be_added(work: Path) -> None:
    settings = TrainConfig(budget_tokens=256, batch_tokens=128, short_context=32)
    train(Run(work, SHAPE, settings, PRETRAIN), fuse=False)
    chats = Run(work, SHAPE, settings, INSTRUCT)
    assert chats.wanted and chats.n_token == 256 and chats.fraction == 0.0
    train(chats, fuse=False)
    assert not Run(work, SHAPE, settings, PRETRAIN).wanted
    assert not Run(work, SHAPE, settings, INSTRUCT).wanted
    more = Run(work, SHAPE, settings, PRETRAIN, again=True)
    assert more.wanted and more.n_token == 512
    train(more, fuse=False)
    stored = checkpoint.load(work)
    assert stored is not None and stored["n_token"] == 768
    assert [(r["stage"], r["n_token"]) for r in stored["runs"]] == [
        ("pretrain", 256), ("instruct", 256), ("pretrain", 256),
    ]  # fmt: skip


def test_rates_warm_up_and_fall_by_the_stage() -> None:
    stage = Stage("s", 1.0, long_context_from=0.5, warmup=0.1, decay_from=0.5)
    at = [lr_scale(f, stage, rate=0.6) for f in (0.0, 0.05, 0.1, 0.5, 0.75, 1.0)]
    assert at[0] < at[1] < at[2] == at[3] == 0.6
    assert at[4] == pytest.approx(0.3) and at[5] == pytest.approx(0.006)
    assert lr_scale(1.0, PRETRAIN) == 1.0


def test_the_reference_is_as_wide_as_the_experts_of_a_token(work: Path) -> None:
    config = dense(SHAPE)
    moe_rows = SHAPE.n_layer * SHAPE.n_embd * SHAPE.n_expert  # the router's
    dense_rows = config.n_layer * config.n_embd
    assert config.n_active_parameter() == config.n_parameter()
    assert config.n_parameter() - dense_rows == SHAPE.n_active_parameter() - moe_rows
    line = Run(work, config, SETTINGS, PRETRAIN).step()
    assert line["share_min"] == line["share_max"] == 1.0


def test_an_interrupted_save_leaves_the_old_checkpoint(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.save(work, {"n": 1})

    def fail(values: object, file: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(torch, "save", fail)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(work, {"n": 2})
    assert checkpoint.load(work) == {"n": 1}


def test_the_evaluation_agrees_with_the_training_code(work: Path) -> None:
    words = tokenizer.load(work)
    model = Model(SHAPE, torch.float32, seed=3)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("ffn_gate_inp", "attn_output", "ffn_down_exps")):
                p.mul_(10)
    path = work / "m.gguf"
    weights = {name: p.detach() for name, p in model.named_parameters()}
    export.write(path, weights, SHAPE, words, export.Types(Type.F32, Type.F32, Type.F32))
    scorer = evaluate.Scorer(path, 1)
    text = "The king saw the fox. The fox saw it."
    bits, n_byte = evaluate.bits_per_byte(scorer, iter([text]), 10_000)
    ids = torch.tensor([[0, *words.encode(text).ids]])
    loss, _, counts = model.loss(ids[:, :-1], ids[:, 1:], torch.ones(1, ids.shape[1] - 1))
    assert n_byte == len(text)
    expected = loss.item() * (ids.shape[1] - 1) / math.log(2) / n_byte
    assert bits == pytest.approx(expected, rel=1e-3)
    _, _, counts = model(ids)  # llama.cpp routed the last token too
    assert np.array_equal(scorer.use.count, counts.numpy())
    table = scorer.use.table()
    assert len(table) == 2 and all(0 <= row["overlap"] <= 1 for row in table)
    scorer.close()


def test_wikitext_marks_are_undone(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("a well @-@ known 1 @,@ 000 @.@ 5 <unk>", encoding="utf-8")
    assert evaluate.wikitext(path) == "a well-known 1,000.5 "


def test_free_cores_stay_within_bounds() -> None:
    free = FreeCores(2)
    assert all(1 <= free(least_s=0.0) <= 2 for _ in range(5))


def test_the_command_line_names_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "nowhere")
    assert main(["prepare", "--data", missing, "--work", str(tmp_path / "w")]) == 1
    assert main(["tokenizer", "--work", missing]) == 1
    assert main(["pretrain", "--work", missing]) == 1
    assert main(["export", "--work", missing, "--out", str(tmp_path / "m.gguf")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4 and "no training data" in lines[0]
