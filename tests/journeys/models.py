"""Models that are small and real, made from the one that comes along."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from factory import make_tiny
from factory.vocabulary import byte_symbols
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize, quantize

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED = ROOT / "assets" / "embedded" / "outrider-tiny.gguf"
WIDTH = 64
"""Values of an embedding of a scripted model."""
_NAME = b"Outrider Tiny"


def small(name: str = "") -> bytes:
    """Return a small chat model, the embedded one with another name of up to 13 letters."""
    data = EMBEDDED.read_bytes()
    assert data.count(_NAME) == 1 and len(name) <= len(_NAME)
    return data.replace(_NAME, name.encode().ljust(len(_NAME))) if name else data


def listed() -> list[tuple[str, str]]:
    """Return (repository, file) of each model in the list that the programs bring along."""
    list_of_models = ROOT / "backend" / "downloads" / "curated.json"
    about = json.loads(list_of_models.read_text("utf-8"))
    return [(item["repository"], item["file"]) for item in about["models"]]


TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Line:
    """What a scripted model says when its prompt ends with a letter. is_endless: over and over."""

    after: str
    words: tuple[str, ...]
    is_endless: bool = False


def scripted(
    lines: Sequence[Line], template: str = TEMPLATE, context_length: int = 4096, **sizes: int
) -> bytes:
    """Return a model with experts whose next token follows from the last one alone.

    Each of the words of a line is one token. Its weights are random but for the output, which
    compares with the embedding of the token before; so the same is said at any temperature.
    sizes: of the factory's Geometry.
    """
    with tempfile.TemporaryDirectory() as folder:
        sizes = {"n_ctx": context_length, "n_embd": WIDTH, **sizes}
        tiny = make_tiny("qwen3moe", "Q8_0", Path(folder, "tiny.gguf"), **sizes)
        reader, written = GGUFReader(tiny), Path(folder, "scripted.gguf")
        tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        letters = byte_symbols()
        free = iter(range(len(letters), len(tokens)))
        follows: list[tuple[int, int]] = []
        for line in lines:
            said = [next(free) for _ in line.words]
            for token, words in zip(said, line.words, strict=True):
                tokens[token] = "".join(letters[byte] for byte in words.encode())
            end = said[0] if line.is_endless else tokens.index("<|im_end|>")
            follows += pairwise([letters.index(letters[ord(line.after)]), *said, end])
        writer = GGUFWriter(written, "qwen3moe")
        replaced = {"tokenizer.ggml.tokens": tokens, "tokenizer.chat_template": template}
        for key, value in reader.fields.items():
            if not key.startswith("GGUF.") and key != "general.architecture":
                inner = value.types[-1] if value.types[0] is GGUFValueType.ARRAY else None
                writer.add_key_value(
                    key, replaced.get(key, value.contents()), value.types[0], inner
                )
        embedding = next(one for one in reader.tensors if one.name == "token_embd.weight")
        rows = dequantize(embedding.data, embedding.tensor_type)
        output = np.zeros_like(rows)
        for before, after in follows:
            output[after] += 8 * rows[before] / rows.std()
        for tensor in reader.tensors:
            is_output = tensor.name == "output.weight"
            data = quantize(output, tensor.tensor_type) if is_output else tensor.data
            writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return written.read_bytes()


WITH_TOOLS = """\
{% if tools %}<|im_start|>system
You may call these tools:
<tools>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}</tools>
Call one as <tool_call>
{"name": ..., "arguments": {...}}
</tool_call><|im_end|>
{% endif %}{% for message in messages %}{% if message['role'] == 'tool' %}<|im_start|>user
<tool_response>
{{ message['content'] }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message['role'] }}
{{ message['content'] or '' }}{% for call in message['tool_calls'] or [] %}<tool_call>
{"name": "{{ call['function']['name'] }}",\
 "arguments": {{ call['function']['arguments'] | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\
{{ '\t' if messages[-1]['role'] == 'tool' else '\n' }}{% endif %}"""
"""After a tool's message the prompt ends with a tab, so that a scripted model says another line."""
