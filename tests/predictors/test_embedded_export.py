"""The exported file in stock llama.cpp: same tokens, same logits, the chat template inside."""

# ruff: noqa: E402 (what needs torch is imported after asking for torch)

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
import llama_cpp
from gguf import GGMLQuantizationType as Type
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, models

from predictors.embedded import export
from predictors.embedded.config import IM_END, IM_START, SPECIAL_TOKENS, ModelConfig
from predictors.embedded.model import Model
from predictors.embedded.tokenizer import empty_tokenizer, train_tokenizer

LOGIT_TOLERANCE = 2e-2

TEXTS = (
    "Once upon a time there was a king who had three daughters, and it's said he'd lost two.",
    "  indented\n\n\tand\ttabs \n \n  trailing   ",
    "I'LL we've THEY'RE don't o'clock 'quoted' ''double''",
    "12 + 345 = 357; 3.14159, 1,000,000; x2y3",
    "naïve café, Ωmega, Привет мир, 日本語テキスト, العربية, हिन्दी",
    "emoji 🙂🙃👩‍👩‍👧 and symbols ©®™ — “quotes” … \u00a0nbsp\u2003em",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "a\r\nb\rc\n\n\nd     e",
    "!!!??? ...---*** ((())) [x] {y} `z` ~|\\/",
    "",
    " ",
)


@pytest.fixture(scope="module")
def words() -> Tokenizer:
    """Return a small tokenizer, trained on the test texts and repetitions."""
    return train_tokenizer(iter([*TEXTS[:1], *TEXTS[2:4]] * 4 + [" the and of to in"] * 9), 360)


@pytest.fixture(scope="module")
def config(words: Tokenizer) -> ModelConfig:
    """Return a tiny model's shape. Its rows are whole blocks of the quantised types."""
    return ModelConfig(
        n_vocab=words.get_vocab_size(), n_layer=3, n_embd=64, n_head=4, n_head_kv=2,
        head_dim=32, n_expert=8, n_expert_used=3, n_ff_exp=32, n_ctx=128,
    )  # fmt: skip


@pytest.fixture(scope="module")
def model(config: ModelConfig) -> Model:
    """Return an untrained model whose norms and outputs are so large that every part matters."""
    model = Model(config, torch.float32, seed=11)
    torch.manual_seed(12)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif name.endswith(("attn_output", "ffn_down_exps")):
                p.mul_(10)
            elif name.endswith("ffn_gate_inp"):
                p.mul_(20)
    return model


def load(path: Path, n_ctx: int = 128) -> llama_cpp.Llama:
    """Load the file in stock llama.cpp, with logits of every position."""
    return llama_cpp.Llama(
        str(path), n_ctx=n_ctx, n_batch=n_ctx, n_threads=2, logits_all=True, verbose=False
    )


def write(path: Path, model: Model, words: Tokenizer, dense: Type, expert: Type) -> None:
    """Export an untrained model."""
    weights = {name: p.detach() for name, p in model.named_parameters()}
    export.write(path, weights, model.config, words, export.Types(dense, dense, expert))


@pytest.mark.parametrize("kind", [Type.F32, Type.F16])
def test_logits_equal_the_training_codes(
    tmp_path: Path, model: Model, words: Tokenizer, kind: Type
) -> None:
    path = tmp_path / "m.gguf"
    write(path, model, words, kind, kind)
    llama = load(path)
    tokens = torch.randint(3, model.config.n_vocab, (100,), generator=torch.manual_seed(13))
    llama.eval(tokens.tolist())
    actual = np.array(llama.scores[:100])
    expected = model.logits(tokens[None])[0].numpy()
    assert expected.std() > 0.1
    assert np.abs(actual - expected).max() < LOGIT_TOLERANCE


@pytest.mark.parametrize("expert", [Type.Q4_0, Type.Q8_0])
def test_quantised_logits_stay_close(
    tmp_path: Path, model: Model, words: Tokenizer, expert: Type
) -> None:
    path = tmp_path / "m.gguf"
    write(path, model, words, Type.Q8_0, expert)
    llama = load(path)
    tokens = torch.randint(3, model.config.n_vocab, (60,), generator=torch.manual_seed(14))
    llama.eval(tokens.tolist())
    actual, expected = np.array(llama.scores[:60]), model.logits(tokens[None])[0].numpy()
    assert np.corrcoef(actual.ravel(), expected.ravel())[0, 1] > 0.9


def test_types_that_only_llama_cpp_writes_are_read_back() -> None:
    values = np.random.default_rng(15).standard_normal((2, 3, 256)).astype(np.float32)
    packed = export.quantize(values, Type.Q6_K)
    read = dequantize(packed.reshape(6, -1), Type.Q6_K).reshape(values.shape)
    assert 0 < np.abs(read - values).max() < 0.1


def test_tokens_are_those_of_the_tokenizers_library(
    tmp_path: Path, model: Model, words: Tokenizer
) -> None:
    path = tmp_path / "m.gguf"
    write(path, model, words, Type.F16, Type.F16)
    llama = load(path)
    for text in TEXTS:
        ids = llama.tokenize(text.encode("utf-8"), add_bos=True, special=True)
        assert ids == words.encode(text).ids, text
        assert llama.detokenize(ids, special=True).decode("utf-8") == text
    assert llama.token_eos() == words.token_to_id(IM_END)


def test_the_chat_template_is_chatml(tmp_path: Path, model: Model, words: Tokenizer) -> None:
    path = tmp_path / "m.gguf"
    write(path, model, words, Type.F16, Type.F16)
    llama = load(path)
    assert llama.metadata["general.architecture"] == "qwen3moe"
    answer = llama.create_chat_completion(
        [{"role": "user", "content": "Hello"}], max_tokens=3, temperature=0.0
    )
    prompt = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert answer["usage"]["prompt_tokens"] == len(words.encode(prompt).ids)


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="run the step pretrain first"):
        export.export(tmp_path, tmp_path, tmp_path / "m.gguf")


SHIPPED = Path(__file__).resolve().parents[2] / "assets" / "embedded" / "outrider-tiny.gguf"
STORY = (
    f"{IM_START}user\nTell me a story about a fox.{IM_END}\n{IM_START}assistant\nOnce upon a time "
    "there was a fox who lived in a deep forest. Every morning he went for a walk to the river. "
    "One day he met a crow with some fine cheese, and the crow said that it was very hungry."
)


def vocabulary(path: Path) -> Tokenizer:
    """Return the tokenizer of an exported file."""
    reader = GGUFReader(path)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    merges = [
        tuple(merge.split(" ")) for merge in reader.fields["tokenizer.ggml.merges"].contents()
    ]
    words = empty_tokenizer()
    words.model = models.BPE({token: i for i, token in enumerate(tokens)}, merges)
    words.add_special_tokens(list(SPECIAL_TOKENS))
    return words


def read(path: Path, config: ModelConfig) -> dict[str, torch.Tensor]:
    """Return the weights of an exported file for the training code, dequantised."""
    stored = {}
    for tensor in GGUFReader(path).tensors:
        values = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        shape = [int(n) for n in reversed(tensor.shape)]
        stored[tensor.name.removesuffix(".weight")] = torch.from_numpy(values.reshape(shape))
    weights = {name: stored[name] for name in ("token_embd", "output_norm")}
    for i in range(config.n_layer):
        source, target = f"blk.{i}.", f"layers.{i}."
        qkv = [stored[source + name] for name in ("attn_q", "attn_k", "attn_v")]
        gate_up = [stored[source + name] for name in ("ffn_gate_exps", "ffn_up_exps")]
        weights[target + "attn_qkv"] = torch.cat(qkv)
        weights[target + "ffn_gate_up_exps"] = torch.cat(gate_up, dim=1)
        same = "attn_output ffn_gate_inp ffn_down_exps attn_norm attn_q_norm attn_k_norm ffn_norm"
        weights |= {target + name: stored[source + name] for name in same.split()}
    return weights


@dataclass(frozen=True)
class Shipped:
    """The embedded model, a text, and the logits of the training code."""

    config: ModelConfig
    weights: dict[str, torch.Tensor]
    words: Tokenizer
    ids: list[int]
    logits: np.ndarray


@pytest.fixture(scope="module")
def shipped() -> Shipped:
    config = ModelConfig()
    weights = read(SHIPPED, config)
    model = Model(config, torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(weights[name])
    words = vocabulary(SHIPPED)
    ids = words.encode(STORY).ids
    return Shipped(config, weights, words, ids, model.logits(torch.tensor([ids]))[0].numpy())


@pytest.mark.parametrize(("kind", "share"), [(Type.F32, 1.0), (Type.F16, 0.95)])
def test_logits_of_the_shipped_weights_equal_the_training_codes(
    tmp_path: Path, shipped: Shipped, kind: Type, share: float
) -> None:
    """In f16 a token may go to another expert if two have nearly equal scores."""
    ids, expected = shipped.ids, shipped.logits
    types = export.Types(kind, kind, kind)
    path = tmp_path / "m.gguf"
    export.write(path, shipped.weights, shipped.config, shipped.words, types)
    llama = load(path)
    assert llama.tokenize(STORY.encode(), add_bos=False, special=True) == ids
    llama.eval(ids)
    actual = np.array(llama.scores[: len(ids)])
    within = np.abs(actual - expected).max(axis=1) < LOGIT_TOLERANCE
    assert expected.std() > 0.5 and within.mean() >= share
