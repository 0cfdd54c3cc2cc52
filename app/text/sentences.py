"""What the parts without Qt say, in the window's language.

The engine, the library, downloads and the file of chats say what they have to say in English, also
on the command line and in logs. The window knows the forms of what users meet, and shows the rest
as it is: what a check of a damaged file found, for one, is for whoever looks into that file.
"""

from __future__ import annotations

import functools
import re

from PySide6.QtCore import QT_TRANSLATE_NOOP

from app.text.language import number, translate

TEMPLATES = (
    # The engine's process
    QT_TRANSLATE_NOOP("sentences", "The engine's process ended unexpectedly."),
    QT_TRANSLATE_NOOP("sentences", "The engine's process ended unexpectedly without an error."),
    QT_TRANSLATE_NOOP("sentences", "The engine's process ended unexpectedly with status {number}."),
    QT_TRANSLATE_NOOP("sentences", "The engine's process ended unexpectedly: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "llama.cpp stopped on a failed check ({check})"),
    QT_TRANSLATE_NOOP(
        "sentences",
        "it was killed (signal 9), most likely because memory ran out; a lower cache rate or a "
        "shorter context needs less",
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "memory ran out; a lower cache rate or a shorter context needs less"
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "memory ran out (signal {number}); a lower cache rate or a shorter context needs less",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "the model file could not be read any more (signal {number}); it may have been shortened, "
        "or its drive removed",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "it crashed (this processor lacks an instruction that it needs) (signal {number})",
    ),
    QT_TRANSLATE_NOOP("sentences", "it crashed (signal {number})"),
    QT_TRANSLATE_NOOP("sentences", "it stopped on a failed check (signal {number})"),
    QT_TRANSLATE_NOOP("sentences", "it was told to end (signal {number})"),
    QT_TRANSLATE_NOOP("sentences", "it was ended (signal {number})"),
    QT_TRANSLATE_NOOP("sentences", "The engine's process does not answer."),
    QT_TRANSLATE_NOOP("sentences", "The engine's process closed its pipe and was ended."),
    QT_TRANSLATE_NOOP("sentences", "The engine could not be started."),
    QT_TRANSLATE_NOOP("sentences", "The engine could not be started: {reason}"),
    QT_TRANSLATE_NOOP("sentences", "The engine's process is of another version than this program."),
    QT_TRANSLATE_NOOP("sentences", "The engine has not answered for {n} seconds."),
    QT_TRANSLATE_NOOP("sentences", "The engine runs but has made no progress for {n} minutes."),
    QT_TRANSLATE_NOOP("sentences", "The engine sent something that could not be understood."),
    QT_TRANSLATE_NOOP("sentences", "The engine failed unexpectedly ({kind}): {reason}"),
    # Loading and computing
    QT_TRANSLATE_NOOP(
        "sentences",
        "There is not enough memory; a lower cache rate or a shorter context needs less.",
    ),
    QT_TRANSLATE_NOOP("sentences", "{file} cannot be used: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "llama.cpp could not load {file}: {reason}."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "{file} was changed or replaced after it was checked; load it again.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The model computed NaN or infinite values, so the answer was stopped: {reason}.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "its file may be damaged, so fetch it again or take another model"
    ),
    QT_TRANSLATE_NOOP("sentences", "the tensor {name} has a value that is NaN or infinite"),
    QT_TRANSLATE_NOOP(
        "sentences", "the tensor {name} has a value that is NaN or infinite, in block {n}"
    ),
    QT_TRANSLATE_NOOP("sentences", "The context could not be made: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "Reading the weights"),
    QT_TRANSLATE_NOOP("sentences", "Loading was cancelled."),
    QT_TRANSLATE_NOOP("sentences", "No model is loaded."),
    QT_TRANSLATE_NOOP("sentences", "A dense model has no experts to cache."),
    QT_TRANSLATE_NOOP("sentences", "every expert is in memory"),
    QT_TRANSLATE_NOOP("sentences", "it is a dense model, without experts"),
    QT_TRANSLATE_NOOP(
        "sentences", "the experts of this {name} file are not stored as stacked tensors"
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "The experts of the architecture {name} cannot be cached: {reason}."
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "{size} of memory are free: {n} of {all} experts of each layer are kept instead of "
        "{wanted}.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Other programs need memory: {n} of {all} experts of each layer are kept instead of "
        "{wanted}.",
    ),
    # Devices
    QT_TRANSLATE_NOOP("sentences", "All {n} layers are computed by {names}."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The last {n} of {all} layers are computed by {names}, whose memory holds no more; the CPU "
        "computes the others.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "The memory of {names} holds not even one layer: the CPU computes."
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The slots of {tensor} need {size} in one piece, more than {device} allows; a lower cache "
        "rate needs less.",
    ),
    QT_TRANSLATE_NOOP("sentences", "A context of {n} tokens takes {size} there."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The context is {n} tokens instead of {wanted}, so that more layers fit; it takes {size} "
        "there.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "Kept there are {n} of {all} experts of each layer, as asked, in {size}."
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Kept there are {n} of {all} experts of each layer instead of {wanted}, in {size}; {left} "
        "are left to others.",
    ),
    QT_TRANSLATE_NOOP("sentences", "Prompts copy the experts once for every {n} tokens."),
    QT_TRANSLATE_NOOP("sentences", "RAM keeps no experts for devices, as asked."),
    QT_TRANSLATE_NOOP("sentences", "RAM keeps all of them, in {size}: the file is read once."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "RAM keeps {n} of {all} experts of each layer, in {size}; the others are read from the "
        "file.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "RAM keeps {n} of {all} experts of each layer, in {size} instead of {wanted}; the others "
        "are read from the file.",
    ),
    QT_TRANSLATE_NOOP("sentences", "Of the CPU's layers it keeps {n} of {all} experts, in {size}."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The {size} of RAM that may keep experts hold not one of each layer: nearly all are read "
        "from the file.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Other programs need memory: RAM keeps {n} experts of each layer for the device instead "
        "of {wanted}.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Other programs need memory: RAM keeps {n} experts of each layer of the CPU's instead of "
        "{wanted}.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Prompts copy the experts once for every {n} tokens, through {size} beside the slots, "
        "ahead of the layers that need them.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Other programs need the device's memory: {n} of {all} experts of each layer are kept "
        "there instead of {wanted}.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "The prompt has {n} tokens, but the context holds only {n_context}."
    ),
    QT_TRANSLATE_NOOP("sentences", "The chat template of {name} failed: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "The chat template of {name} takes too long."),
    QT_TRANSLATE_NOOP("sentences", "The chat template of {name} cannot go on with an answer."),
    # Methods
    QT_TRANSLATE_NOOP(
        "sentences",
        "Starts reactive, measures what prefetching and other evictions bring on this machine "
        "with this model, and keeps what pays.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "As promoe, but what was used most often of late stays, not what was used last.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "As promoe, but what followed at moments like the present one stays: for slow drives.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Prefetches what a predictor expects of the next layers; needed experts overtake, ready "
        "ones are computed first.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Keeps the top parts of hot experts and fetches the bottoms while the tops compute; sizes "
        "and cuts are fitted to what was measured.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "As moepic, but every layer has the same slots and every expert is cut in the middle.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Passes experts through a few slots: in prompts one after the other, then what is "
        "predicted for the next layer.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Remembers which experts past requests used and fetches what the most similar ones did; "
        "one pool for all layers.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Fetches the hottest experts ahead, then what the gate names; all tokens of an expert at "
        "once, hot ones first, and releases it.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Reads an expert when its turn to be computed comes, and keeps the most recently used.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "As lru, but at the gate all missing experts are ordered, and computed as they arrive.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Reads an expert when its turn to be computed comes, and keeps the most often used.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "Keeps a fixed set, the most used of the first tokens; others pass through."
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "Reads an expert when its turn to be computed comes; any one may leave."
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "Stock llama.cpp: the operating system pages the file in and out."
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "Stock llama.cpp: the experts are computed by the processor, where they lie."
    ),
    QT_TRANSLATE_NOOP(
        "sentences", "The first step of ProMoE's ablation: prefetching, and nothing else."
    ),
    QT_TRANSLATE_NOOP("sentences", "The second step: prefetching matrix by matrix."),
    QT_TRANSLATE_NOOP("sentences", "The third step: needed experts overtake predicted ones."),
    QT_TRANSLATE_NOOP("sentences", "The fourth step: what is ready is computed first."),
    QT_TRANSLATE_NOOP("sentences", "A remote device is written rpc://host:port, not {text}."),
    QT_TRANSLATE_NOOP("sentences", "No device server can be reached at {address} ({reason})."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The device server at {address} does not answer; it may be serving somebody else.",
    ),
    QT_TRANSLATE_NOOP("sentences", "What answers at {address} is no rpc server of llama.cpp."),
    # The library
    QT_TRANSLATE_NOOP("sentences", "the file is gone"),
    QT_TRANSLATE_NOOP("sentences", "it is a link to a file that is gone"),
    QT_TRANSLATE_NOOP("sentences", "part {i} of {n} is missing"),
    QT_TRANSLATE_NOOP("sentences", "the parts {list} of {n} are missing"),
    QT_TRANSLATE_NOOP("sentences", "part {i} of {n} of the model is missing"),
    QT_TRANSLATE_NOOP("sentences", "is not there"),
    QT_TRANSLATE_NOOP("sentences", "is not a folder"),
    QT_TRANSLATE_NOOP("sentences", "may not be read"),
    QT_TRANSLATE_NOOP("sentences", "it may not be read"),
    QT_TRANSLATE_NOOP("sentences", "cannot be read ({reason})"),
    QT_TRANSLATE_NOOP("sentences", "it cannot be read ({reason})"),
    QT_TRANSLATE_NOOP("sentences", "it is empty"),
    QT_TRANSLATE_NOOP("sentences", "it is a folder"),
    QT_TRANSLATE_NOOP(
        "sentences", "it is not a GGUF file, as it does not begin with the letters GGUF"
    ),
    QT_TRANSLATE_NOOP("sentences", "it is truncated: {detail}"),
    QT_TRANSLATE_NOOP("sentences", "its architecture {name} is not known to llama.cpp"),
    QT_TRANSLATE_NOOP("sentences", "its numbers make no sense"),
    QT_TRANSLATE_NOOP(
        "sentences", "its path holds bytes that are not UTF-8; rename the file or its folder"
    ),
    QT_TRANSLATE_NOOP("sentences", "The list of folders"),
    QT_TRANSLATE_NOOP("sentences", "The list of downloads"),
    QT_TRANSLATE_NOOP("sentences", "{list} could not be saved: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "{list} was damaged; an empty one is used."),
    QT_TRANSLATE_NOOP(
        "sentences", "{list} was damaged; an empty one is used and the old file is {file}."
    ),
    QT_TRANSLATE_NOOP("sentences", "{list} could not be read: {reason}."),
    # Downloads
    QT_TRANSLATE_NOOP("sentences", "only {n} of its {all} parts are there"),
    QT_TRANSLATE_NOOP(
        "sentences",
        "'{text}' is neither a repository, such as owner/name, nor an address.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "This repository is gated: accept its conditions on its page in a browser, and set "
        "HF_TOKEN to a token of the same account.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "There is no such repository on {host}, or it is private and HF_TOKEN is needed.",
    ),
    QT_TRANSLATE_NOOP("sentences", "The repository on {host} has no such revision."),
    QT_TRANSLATE_NOOP("sentences", "There is no GGUF model in {place}."),
    QT_TRANSLATE_NOOP("sentences", "{host} asks for a token: set HF_TOKEN to yours."),
    QT_TRANSLATE_NOOP("sentences", "{host} does not let you have this."),
    QT_TRANSLATE_NOOP("sentences", "There is no such file on {host}."),
    QT_TRANSLATE_NOOP("sentences", "{host} asks to wait: there were too many requests."),
    QT_TRANSLATE_NOOP("sentences", "{host} is out of order at the moment (HTTP {status})."),
    QT_TRANSLATE_NOOP("sentences", "{host} gave an answer that was not expected (HTTP {status})."),
    QT_TRANSLATE_NOOP("sentences", "{host} sent an answer that makes no sense."),
    QT_TRANSLATE_NOOP("sentences", "{host} does not answer."),
    QT_TRANSLATE_NOOP("sentences", "{host} cannot be reached."),
    QT_TRANSLATE_NOOP("sentences", "The connection to {host} broke."),
    QT_TRANSLATE_NOOP("sentences", "The proxy refused the connection to {host}."),
    QT_TRANSLATE_NOOP("sentences", "The proxy of the environment cannot be used: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "HF_HUB_OFFLINE is set, so nothing is downloaded."),
    QT_TRANSLATE_NOOP("sentences", "What {host} sends from this address is not a GGUF file."),
    QT_TRANSLATE_NOOP("sentences", "The address does not end in the name of a GGUF file."),
    QT_TRANSLATE_NOOP("sentences", "{host} does not say how large the file is."),
    QT_TRANSLATE_NOOP("sentences", "The file on {host} is no longer the one that was listed."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "{file} arrived damaged: its checksum is not the one that {host} states. It has to be "
        "fetched again.",
    ),
    QT_TRANSLATE_NOOP("sentences", "Another window or program is downloading this file."),
    QT_TRANSLATE_NOOP("sentences", "There is another file named {file} in {folder}."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "There is too little room on the drive of {folder}: {needed} are needed and {margin} to "
        "spare, and {free} are free.",
    ),
    QT_TRANSLATE_NOOP("sentences", "The drive of {folder} is full. What has arrived is kept."),
    QT_TRANSLATE_NOOP("sentences", "Nothing can be written to {folder}."),
    QT_TRANSLATE_NOOP("sentences", "Writing to {folder} failed: {reason}."),
    # Settings and chats
    QT_TRANSLATE_NOOP("sentences", "The settings file"),
    QT_TRANSLATE_NOOP("sentences", "{list} was damaged; the defaults are used."),
    QT_TRANSLATE_NOOP(
        "sentences", "{list} was damaged; the defaults are used and the old file is {file}."
    ),
    QT_TRANSLATE_NOOP("sentences", "MIT; the embedded model CC BY-SA 4.0"),
    QT_TRANSLATE_NOOP("sentences", "Cut off here."),
    QT_TRANSLATE_NOOP("sentences", "The chats cannot be kept: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "The chats cannot be read: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "What is said is not being kept: {reason}."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "Outrider is open already, and its window does not answer. End that process, then start "
        "again.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The chats were written by a newer version of Outrider. They are left as they are, and "
        "what is said here is not kept.",
    ),
    QT_TRANSLATE_NOOP(
        "sentences",
        "The file of chats was damaged; a new one was begun and the old one is {file}.",
    ),
    QT_TRANSLATE_NOOP("sentences", "the disk is full"),
    QT_TRANSLATE_NOOP("sentences", "the folder for them cannot be written"),
    QT_TRANSLATE_NOOP("sentences", "another program uses the file"),
    QT_TRANSLATE_NOOP("sentences", "the file is damaged"),
    QT_TRANSLATE_NOOP("sentences", "{file} could not be read: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "{file} is not a file."),
    QT_TRANSLATE_NOOP("sentences", "{file} is not UTF-8 text."),
    QT_TRANSLATE_NOOP("sentences", "{file} cannot be imported: {reason}."),
    QT_TRANSLATE_NOOP("sentences", "it is not a file of chats"),
    QT_TRANSLATE_NOOP("sentences", "it was written by a newer version"),
    QT_TRANSLATE_NOOP("sentences", "it is neither JSON nor Markdown from this program"),
    # Learning from chats
    QT_TRANSLATE_NOOP("sentences", "Nothing is recorded."),
    QT_TRANSLATE_NOOP("sentences", "Answers will be recorded once a model is loaded."),
    QT_TRANSLATE_NOOP("sentences", "This model has no experts, so there is nothing to learn."),
    QT_TRANSLATE_NOOP(
        "sentences", "This model runs without the expert cache, so nothing is recorded."
    ),
    QT_TRANSLATE_NOOP("sentences", "{n} of the {enough} tokens that training needs are recorded."),
    QT_TRANSLATE_NOOP("sentences", "Training begins when nobody has used the engine for a while."),
    QT_TRANSLATE_NOOP("sentences", "Training in the background ({share})."),
    QT_TRANSLATE_NOOP("sentences", "Training waits for the engine ({share})."),
    QT_TRANSLATE_NOOP(
        "sentences",
        "A better predictor was found ({shares}); it is used when the model is loaded again.",
    ),
    QT_TRANSLATE_NOOP("sentences", "The last training found nothing better ({shares})."),
    QT_TRANSLATE_NOOP("sentences", "{new} % right instead of {old} %"),
)
_NUMBER = re.compile(r"[\d,]*\d(\.\d+)?(\s\S+)?")  # and its unit
_PLACE = re.compile(r"\{(\w+)\}")
_END = re.compile(r"(?<=[.!?]) (?=[A-Z'])")


def said(text: str) -> str:
    """Return a sentence, or half of one, in the window's language where its form is known."""
    found = _form(text)
    if found is not None and not any(_END.search(word) for word in found[1].values()):
        template, words = found
        shown = {name: _word(word) for name, word in words.items()}
        return translate("sentences", template).format(**shown)
    sentences = _END.split(text)
    if len(sentences) > 1:
        return " ".join(said(sentence) for sentence in sentences)
    about, colon, rest = text.partition(": ")
    return f"{about}: {said(rest)}" if colon and _form(rest) is not None else text


def _word(word: str) -> str:
    """Return what stands in a place: a number as the language writes it, or half a sentence."""
    return number(word) if _NUMBER.fullmatch(word) else said(word)


@functools.lru_cache(maxsize=256)
def _form(text: str) -> tuple[str, dict[str, str]] | None:
    """Return the template of a text, and what stands in its places."""
    for template, pattern in _patterns():
        if found := pattern.fullmatch(text):
            return template, found.groupdict()
    return None


@functools.cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """All templates, those with the most words of their own first."""
    templates = sorted(map(str, TEMPLATES), key=lambda text: -len(_PLACE.sub("", text)))
    return [(template, _pattern(template)) for template in templates]


def _pattern(template: str) -> re.Pattern[str]:
    pieces = _PLACE.split(template)
    for i in range(len(pieces)):
        pieces[i] = f"(?P<{pieces[i]}>.+?)" if i % 2 else re.escape(pieces[i])
    return re.compile("".join(pieces), re.DOTALL)
