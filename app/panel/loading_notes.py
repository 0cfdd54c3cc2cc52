"""The warnings of llama.cpp while it loads a model, in plain words.

The parts of lines are of llama.cpp as llama-cpp-python 0.3.36 has it; a test looks for them there.
"""

from __future__ import annotations

from PySide6.QtCore import QT_TRANSLATE_NOOP

from app.text import units
from app.text.language import translate

N_SHOWN = 2

_CONTROL = QT_TRANSLATE_NOOP(
    "verdict",
    "The file does not mark some control signs of its vocabulary as such; llama.cpp does. "
    "You need not do anything.",
)
_VOCABULARY = QT_TRANSLATE_NOOP(
    "verdict",
    "The vocabulary of the file has small faults, which llama.cpp has corrected. You need not do "
    "anything.",
)
_LACKS_SIGN = QT_TRANSLATE_NOOP(
    "verdict",
    "The vocabulary of the file lacks a sign. If answers are bad, look for a newer file of this "
    "model.",
)
_END_UNSURE = QT_TRANSLATE_NOOP(
    "verdict",
    "The file's signs for the end of an answer do not agree. If answers do not end, look for a "
    "newer file of this model.",
)
_END_CORRECTED = QT_TRANSLATE_NOOP(
    "verdict",
    "llama.cpp corrected the file's signs for the end of an answer. You need not do anything.",
)
_NO_SPLIT = QT_TRANSLATE_NOOP(
    "verdict",
    "The file does not say how text is cut into tokens, so its answers may be worse. Look for "
    "a newer file of this model.",
)
_SHORTER = QT_TRANSLATE_NOOP(
    "verdict", "The model was trained for a longer context than the one that is set."
)
_LONGER = QT_TRANSLATE_NOOP(
    "verdict",
    "The context that is set is longer than the model was trained for. Long chats may get worse "
    "answers.",
)
_UNUSED = QT_TRANSLATE_NOOP(
    "verdict", "The file has parts that llama.cpp does not use. You need not do anything."
)
_NOT_MAPPED = QT_TRANSLATE_NOOP(
    "verdict", "The system could not map the file into memory, so loading may take longer."
)
_NOT_LOCKED = QT_TRANSLATE_NOOP(
    "verdict", "The system did not keep the model in RAM, so it may move parts to the drive."
)
_OTHER_DEVICE = QT_TRANSLATE_NOOP(
    "verdict", "The device cannot compute a part of this model, so the processor does."
)
_WORSE = QT_TRANSLATE_NOOP(
    "verdict", "llama.cpp does not compute this kind of model fully, so answers may be worse."
)
_SLOW_IMAGES = QT_TRANSLATE_NOOP("verdict", "The processor reads images, which takes longer.")
_COARSE_IMAGES = QT_TRANSLATE_NOOP(
    "verdict", "Places within images may be found less exactly: this model expects larger images."
)
_BALANCING = QT_TRANSLATE_NOOP(
    "verdict", "The system moves memory between processors (NUMA balancing), which may be slower."
)

WORDS: dict[str, object] = {
    # llama-vocab.cpp
    "control-looking token": _CONTROL,
    "attribute to USER_DEFINED": _VOCABULARY,
    "empty token at index": _VOCABULARY,
    "bad special token: ": _VOCABULARY,
    "out of vocab range, disabling": _VOCABULARY,
    "newline token, using special_pad_id": _VOCABULARY,
    "but newline token not found": _VOCABULARY,
    " dummy tokens": _VOCABULARY,
    "for Gemma4": "",
    "Mask token": _LACKS_SIGN,
    "not in special_eog_ids": _END_UNSURE,
    "special_eog_ids contains both": _END_CORRECTED,
    "is a normal token here, removing it from EOG list": _END_CORRECTED,
    "EOG token id %d is out of range": _END_CORRECTED,
    "missing pre-tokenizer type": _NO_SPLIT,
    "GENERATION QUALITY WILL BE DEGRADED": "",  # the line before says so
    "CONSIDER REGENERATING THE MODEL": "",
    "*******": "",
    # llama-context.cpp, and caches
    "full capacity of the model will not be utilized": _SHORTER,
    "possible training context overflow": _LONGER,
    "is not divisible by n_seq_max": "",
    "setting new yarn_attn_factor": "",
    "graph reuse disabled": "",
    "does not match expectation of": "",
    "retrying without pipeline parallelism": "",
    "not supported, set to disabled": "",
    "backend sampling not supported": "",
    "cannot be offloaded to the backend": "",
    "flash_attn is not compatible with Grok": "",
    "SPLIT_MODE_TENSOR being used for a single device": "",
    "model default pooling_type": "",
    "context type MTP requested": "",
    "overridden to %u to match": "",
    "padding V cache to": "",
    "sharing with layer": "",
    "attention rotation force disabled": "",
    "using full-size SWA cache": "",
    "is assigned to device": _OTHER_DEVICE,
    # models
    "Phi SWA is currently disabled": _WORSE,
    "running DENSE attention": _WORSE,
    # llama-model-loader.cpp, llama-mmap.cpp
    "has unused tensor": _UNUSED,
    "Bad metadata override": "",
    "unknown type ": "",
    "mmap is not supported": _NOT_MAPPED,
    "mmap is not available": _NOT_MAPPED,
    "Falling back to buffered": _NOT_MAPPED,
    "tensor overrides to CPU are used with mmap": "",
    "madvise(": "",
    "fadvise(": "",
    "munmap failed": "",
    "mlock": _NOT_LOCKED,
    "VirtualUnlock": "",
    "VirtualLock": _NOT_LOCKED,
    "ProcessWorkingSetSize failed": _NOT_LOCKED,
    "PrefetchVirtualMemory failed": "",
    "UnmapViewOfFile failed": "",
    "CloseHandle failed": "",
    # ggml
    "numa_balancing is enabled": _BALANCING,
    "kleidiai": "",
    # mtmd, clip.cpp
    "require at minimum 1024 image tokens": _COARSE_IMAGES,
    "if you encounter problems with accuracy": "",
    "more info: ": "",
    "ffn up/down are swapped": "",
    "vision is known to have degraded quality": _WORSE,
    "audio input is in experimental stage": _WORSE,
    "flash attention not supported by": _SLOW_IMAGES,
    "falling back to CPU": _SLOW_IMAGES,
    "uses unsupported operators by the backend": _SLOW_IMAGES,
    "the performance will be suboptimal": "",
    "list of unsupported ops": "",
    "op params": "",
    "type = ": "",
    "flash attention is ": "",
    "please report this on github": "",
    "https://github.com/ggml-org/": "",
}
"""The words for a line, by a part of it; "": nothing that a person has to know."""


def in_words(lines: list[str]) -> list[str]:
    """Return what llama.cpp's lines mean for a person: at most N_SHOWN, and how many more."""
    said: dict[str, None] = {}
    n_other = 0
    for line in lines:
        words = next((words for part, words in WORDS.items() if part.split("%")[0] in line), None)
        if words is None:
            n_other += 1
        elif words:
            said[translate("verdict", str(words))] = None
    found = list(said)[:N_SHOWN]
    if n_more := len(said) - len(found) + n_other:
        more = translate("verdict", "llama.cpp has {n} more notes on this file; see Diagnostics.")
        if n_more == 1:
            more = translate("verdict", "llama.cpp has a note on this file; see Diagnostics.")
        found.append(more.format(n=units.number(n_more)))
    return found
