"""Make a byte-level BPE vocabulary of a few hundred tokens, and a ChatML template."""

from __future__ import annotations

from dataclasses import dataclass

_WORDS = (
    "the of and to in is it that for was on are as with his they be at one have this from or "
    "had by not but what all were we when your can said there use an each which she do how"
)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_NORMAL, _CONTROL = 1, 3  # enum llama_token_type


@dataclass(frozen=True)
class Vocabulary:
    """Tokens in order of id, their llama_token_type, and the BPE merges."""

    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    bos_id: int
    eos_id: int
    pad_id: int


def byte_symbols() -> list[str]:
    """Return GPT-2's printable symbol for each of the 256 bytes, by byte value."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    symbols, n_shifted = [], 0
    for byte in range(256):
        if byte in printable:
            symbols.append(chr(byte))
        else:
            symbols.append(chr(256 + n_shifted))
            n_shifted += 1
    return symbols


def tiny_vocabulary() -> Vocabulary:
    """Return 256 byte tokens, merges for some common English words, and three control tokens."""
    tokens = byte_symbols()
    space = tokens[ord(" ")]
    merges: list[str] = []
    for word in _WORDS.split():
        left = space
        for letter in word:
            if left + letter not in tokens:
                tokens.append(left + letter)
                merges.append(f"{left} {letter}")
            left += letter
    n_normal = len(tokens)
    tokens += ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    return Vocabulary(
        tokens=tuple(tokens),
        token_types=(_NORMAL,) * n_normal + (_CONTROL,) * 3,
        merges=tuple(merges),
        bos_id=n_normal,
        eos_id=n_normal + 2,
        pad_id=n_normal,
    )
