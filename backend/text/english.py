"""The English templates of all messages, by id: `area.what`.

A template is a sentence, or half of one that another template takes as a value (backend.text.Text
says how numbers are written).
"""

from __future__ import annotations

from collections.abc import Mapping


def QT_TRANSLATE_NOOP(context: str, template: str) -> str:
    """Mark a template for Qt's tools, which collect them by this name."""
    return template


ENGLISH: Mapping[str, str] = {
    # Attached files
    "attach.binary": QT_TRANSLATE_NOOP(
        "messages",
        "{file} is neither text, a PDF, an image nor a document that can be read. Save it as PDF "
        "or text.",
    ),
    "attach.damaged_document": QT_TRANSLATE_NOOP(
        "messages", "{file} is a damaged document. Save it again, or as PDF."
    ),
    "attach.no_text_inside": QT_TRANSLATE_NOOP("messages", "{file} has no text in it."),
    "attach.old_office": QT_TRANSLATE_NOOP(
        "messages",
        "{file} is encrypted, or of an old Office. Save it without a password as .docx, .xlsx, "
        ".pptx or PDF.",
    ),
    "attach.damaged": QT_TRANSLATE_NOOP("messages", "{file} is a damaged PDF."),
    "attach.empty": QT_TRANSLATE_NOOP("messages", "{file} is empty."),
    "attach.encrypted": QT_TRANSLATE_NOOP(
        "messages", "{file} is encrypted. Attach a copy without a password."
    ),
    "attach.folder": QT_TRANSLATE_NOOP(
        "messages", "{file} is a folder. Attach the files that are in it."
    ),
    "attach.no_file": QT_TRANSLATE_NOOP("messages", "{file} is not a file that can be read."),
    "attach.no_text": QT_TRANSLATE_NOOP(
        "messages", "{file} has no text: its pages may be pictures."
    ),
    "attach.damaged_picture": QT_TRANSLATE_NOOP("messages", "{file} is a damaged image."),
    "attach.many_pixels": QT_TRANSLATE_NOOP(
        "messages", "{file} has {n:count} pixels; at most {most:count} can be attached."
    ),
    "attach.other_picture": QT_TRANSLATE_NOOP(
        "messages", "{file} is an image of a kind that cannot be read. Save it as PNG or JPEG."
    ),
    "attach.picture": QT_TRANSLATE_NOOP("messages", "An attached file"),
    "attach.stopped": QT_TRANSLATE_NOOP("messages", "{file} was not read to its end."),
    "attach.too_complex": QT_TRANSLATE_NOOP(
        "messages", "{file} takes too much time or memory to read."
    ),
    "attach.save_picture": QT_TRANSLATE_NOOP(
        "messages",
        "{file} is a {kind} image, which cannot be read here. Save it as PNG or JPEG, and attach "
        "that.",
    ),
    "attach.too_large": QT_TRANSLATE_NOOP(
        "messages", "{file} has {n:size}; at most {most:size} can be attached."
    ),
    "attach.too_long": QT_TRANSLATE_NOOP(
        "messages", "{file} has more than {most:count} characters, the most of one attachment."
    ),
    "attach.too_many_pages": QT_TRANSLATE_NOOP(
        "messages", "{file} has {n:count} pages; at most {most:count} can be attached."
    ),
    "attach.too_many": QT_TRANSLATE_NOOP(
        "messages", "{file} is not attached: a question can have at most {most:count} files."
    ),
    "attach.unreadable": QT_TRANSLATE_NOOP("messages", "{file} cannot be read: {reason}."),
    # Embeddings
    "embedding.empty": QT_TRANSLATE_NOOP("messages", "A text is empty."),
    "embedding.failed": QT_TRANSLATE_NOOP("messages", "llama.cpp could not compute a text."),
    "embedding.no_pooling": QT_TRANSLATE_NOOP(
        "messages", "{file} is no model for embeddings: it names no pooling."
    ),
    "embedding.not_finite": QT_TRANSLATE_NOOP(
        "messages", "The embedding of a text has values that are not finite."
    ),
    "embedding.only_ranks": QT_TRANSLATE_NOOP(
        "messages", "{file} ranks documents and makes no embeddings."
    ),
    "embedding.ranks_not": QT_TRANSLATE_NOOP(
        "messages", "{file} makes embeddings and ranks no documents."
    ),
    "embedding.too_long": QT_TRANSLATE_NOOP(
        "messages", "A text has {n:count} characters, too many for {n_token:count} tokens."
    ),
    # Decisions of the adaptive method
    "auto.again": QT_TRANSLATE_NOOP("messages", "{why}: the alternatives are tried again."),
    "auto.and_eviction": QT_TRANSLATE_NOOP(
        "messages", "{state} and {eviction} decides what leaves"
    ),
    "auto.as_long": QT_TRANSLATE_NOOP("messages", "tried over {n} tokens, a token took as long"),
    "auto.broken_off": QT_TRANSLATE_NOOP(
        "messages", "broken off, because the first tokens took too long"
    ),
    "auto.comma": QT_TRANSLATE_NOOP("messages", "{first}, {next}"),
    "auto.decided": QT_TRANSLATE_NOOP("messages", "{chosen}: {figures}."),
    "auto.eviction": QT_TRANSLATE_NOOP(
        "messages", "Now {new} decides what leaves, instead of {old}"
    ),
    "auto.hits_changed": QT_TRANSLATE_NOOP(
        "messages", "The hit rate went from {before:percent} to {after:percent}"
    ),
    "auto.idle": QT_TRANSLATE_NOOP("messages", "the drive was idle {idle:percent} of the time"),
    "auto.idle_changed": QT_TRANSLATE_NOOP(
        "messages",
        "The idle share of the drive's time went from {before:percent} to {after:percent}",
    ),
    "auto.idle_without": QT_TRANSLATE_NOOP(
        "messages", "without it the drive was idle {idle:percent} of the time"
    ),
    "auto.layers": QT_TRANSLATE_NOOP("messages", "Forecasts are fetched {n} layers ahead"),
    "auto.less_time": QT_TRANSLATE_NOOP(
        "messages", "tried over {n} tokens, a token took {share:percent} less time"
    ),
    "auto.more_time": QT_TRANSLATE_NOOP(
        "messages", "tried over {n} tokens, a token took {share:percent} more time"
    ),
    "auto.one_layer": QT_TRANSLATE_NOOP("messages", "Forecasts are fetched one layer ahead"),
    "auto.prefetch_off": QT_TRANSLATE_NOOP("messages", "Prefetching is off"),
    "auto.prefetch_on": QT_TRANSLATE_NOOP("messages", "Prefetching is on"),
    "auto.prefetch_stays_off": QT_TRANSLATE_NOOP("messages", "Prefetching stays off"),
    "auto.prefetch_stays_on": QT_TRANSLATE_NOOP("messages", "Prefetching stays on"),
    "auto.resident": QT_TRANSLATE_NOOP(
        "messages", "{now:percent} of the experts were there instead of {before:percent}"
    ),
    "auto.still_eviction": QT_TRANSLATE_NOOP(
        "messages", "Still {old} decides what leaves, not {new}"
    ),
    "auto.still_layers": QT_TRANSLATE_NOOP(
        "messages", "Forecasts are still fetched {old} layers ahead, not {new}"
    ),
    "auto.still_one_layer": QT_TRANSLATE_NOOP(
        "messages", "Forecasts are still fetched one layer ahead, not {new}"
    ),
    "auto.time_changed": QT_TRANSLATE_NOOP(
        "messages", "The time of a token went from {before} to {after} ms"
    ),
    "auto.used": QT_TRANSLATE_NOOP("messages", "{used:percent} of what was fetched ahead was used"),
    "auto.used_changed": QT_TRANSLATE_NOOP(
        "messages",
        "The used share of what is fetched ahead went from {before:percent} to {after:percent}",
    ),
    "auto.cache_changed": QT_TRANSLATE_NOOP("messages", "The cache is another one"),
    "auto.jointly": QT_TRANSLATE_NOOP("messages", "With {n} answers at once: {line}"),
    "auto.rate": QT_TRANSLATE_NOOP("messages", "The cache rate is {rate:percent}"),
    # General.
    "newer.no_address": QT_TRANSLATE_NOOP(
        "messages", "This copy was made without an address to look for newer versions."
    ),
    "newer.unreadable": QT_TRANSLATE_NOOP(
        "messages", "{host} does not say in a known form which version is the newest."
    ),
    "fault.missing": QT_TRANSLATE_NOOP(
        "messages", "A part of this program is missing or damaged ({reason}). Install it again."
    ),
    "fault.unexpected": QT_TRANSLATE_NOOP(
        "messages", "Something unexpected failed ({kind}: {reason})."
    ),
    "words.and": QT_TRANSLATE_NOOP("messages", "{first} and {last}"),
    "words.about": QT_TRANSLATE_NOOP("messages", "{what}: {sentence}"),
    # The engine's process.
    "exit.because": QT_TRANSLATE_NOOP(
        "messages", "The engine's process ended unexpectedly: {reason}."
    ),
    "exit.check_failed": QT_TRANSLATE_NOOP(
        "messages", "llama.cpp stopped on a failed check ({check})"
    ),
    "exit.closed": QT_TRANSLATE_NOOP(
        "messages", "The engine's process closed its pipe and was ended."
    ),
    "exit.device_failed": QT_TRANSLATE_NOOP("messages", "the device failed ({device}: {reason})"),
    "exit.device_failed_silently": QT_TRANSLATE_NOOP(
        "messages", "the device failed ({device}), and gave no reason"
    ),
    "exit.device_gone": QT_TRANSLATE_NOOP(
        "messages",
        "The engine's process ended unexpectedly: the remote device no longer answers. What was "
        "said is kept; choose another device, or load the model again when it is back.",
    ),
    "exit.killed": QT_TRANSLATE_NOOP(
        "messages",
        "it was killed (signal 9), most likely because memory ran out; a lower cache rate or a "
        "shorter context needs less",
    ),
    "exit.killed_by_other": QT_TRANSLATE_NOOP(
        "messages",
        "it was killed (signal 9) by the user or another program; the memory had not run out",
    ),
    "exit.model_unreadable": QT_TRANSLATE_NOOP(
        "messages",
        "the model file could not be read any more (signal {signal}); it may have been shortened, "
        "or its drive removed",
    ),
    "exit.no_error": QT_TRANSLATE_NOOP(
        "messages", "The engine's process ended unexpectedly without an error."
    ),
    "exit.out_of_memory": QT_TRANSLATE_NOOP(
        "messages", "memory ran out; a lower cache rate or a shorter context needs less"
    ),
    "exit.out_of_memory_signal": QT_TRANSLATE_NOOP(
        "messages",
        "memory ran out (signal {signal}); a lower cache rate or a shorter context needs less",
    ),
    "exit.signal": QT_TRANSLATE_NOOP("messages", "{what} (signal {signal})"),
    "exit.status": QT_TRANSLATE_NOOP(
        "messages", "The engine's process ended unexpectedly with status {status}."
    ),
    "exit.unexpected": QT_TRANSLATE_NOOP(
        "messages", "something unexpected failed ({kind}: {reason})"
    ),
    "exit.what.access": QT_TRANSLATE_NOOP("messages", "it crashed (access violation)"),
    "exit.what.check": QT_TRANSLATE_NOOP("messages", "it stopped on a failed check"),
    "exit.what.crash": QT_TRANSLATE_NOOP("messages", "it crashed"),
    "exit.what.ended": QT_TRANSLATE_NOOP("messages", "it was ended"),
    "exit.what.instruction": QT_TRANSLATE_NOOP(
        "messages", "it crashed (this processor lacks an instruction that it needs)"
    ),
    "exit.what.library": QT_TRANSLATE_NOOP("messages", "a library that it needs is missing"),
    "exit.what.memory": QT_TRANSLATE_NOOP("messages", "memory ran out"),
    "exit.what.stack": QT_TRANSLATE_NOOP("messages", "it crashed (stack overflow)"),
    "exit.what.told": QT_TRANSLATE_NOOP("messages", "it was told to end"),
    "worker.garbled": QT_TRANSLATE_NOOP(
        "messages", "The engine sent something that could not be understood."
    ),
    "worker.no_answer": QT_TRANSLATE_NOOP("messages", "The engine's process does not answer."),
    "worker.no_progress": QT_TRANSLATE_NOOP(
        "messages", "The engine runs but has made no progress for {minutes} minutes."
    ),
    "worker.not_started": QT_TRANSLATE_NOOP("messages", "The engine could not be started."),
    "worker.not_started_because": QT_TRANSLATE_NOOP(
        "messages", "The engine could not be started: {reason}"
    ),
    "worker.other_version": QT_TRANSLATE_NOOP(
        "messages", "The engine's process is of another version than this program."
    ),
    "worker.silent": QT_TRANSLATE_NOOP(
        "messages", "The engine has not answered for {seconds} seconds."
    ),
    "worker.unsendable": QT_TRANSLATE_NOOP(
        "messages", "The engine made a message that cannot be sent."
    ),
    # Loading and computing.
    "engine.cannot_cache": QT_TRANSLATE_NOOP(
        "messages", "The experts of the architecture {architecture} cannot be cached: {reason}."
    ),
    "engine.cancelled": QT_TRANSLATE_NOOP("messages", "Loading was cancelled."),
    "engine.changed_file": QT_TRANSLATE_NOOP(
        "messages", "{file} was changed or replaced after it was checked; load it again."
    ),
    "engine.embeds": QT_TRANSLATE_NOOP(
        "messages",
        "{file} makes embeddings and writes no text. Choose it as the local server's model for "
        "embeddings.",
    ),
    "engine.no_context": QT_TRANSLATE_NOOP("messages", "The context could not be made: {reason}."),
    "engine.no_images": QT_TRANSLATE_NOOP("messages", "This model cannot see images."),
    "batch.kind": QT_TRANSLATE_NOOP(
        "messages", "{file} cannot be read as requests: its name must end in .jsonl, .csv or .txt."
    ),
    "batch.other_file": QT_TRANSLATE_NOOP(
        "messages", "Line {line} of {file} is no answer to a request; give another name."
    ),
    "batch.no_column": QT_TRANSLATE_NOOP("messages", "{file} has no column named prompt."),
    "batch.long_line": QT_TRANSLATE_NOOP("messages", "The line is longer than {most:size}."),
    "batch.not_utf8": QT_TRANSLATE_NOOP("messages", "The line is not UTF-8 text."),
    "batch.no_object": QT_TRANSLATE_NOOP("messages", "The line is not a JSON object."),
    "batch.no_number": QT_TRANSLATE_NOOP("messages", "A column that needs a number has none."),
    "batch.no_body": QT_TRANSLATE_NOOP("messages", "The request has no body."),
    "batch.url": QT_TRANSLATE_NOOP(
        "messages", "The URL {url} is not known; /v1/chat/completions and /v1/completions are."
    ),
    "group.asked": QT_TRANSLATE_NOOP("messages", "{n} requests are computed at once."),
    "group.first": QT_TRANSLATE_NOOP(
        "messages",
        "{n} requests are computed at once, in as few rounds as memory permits. What is measured "
        "meanwhile plans the next group.",
    ),
    "group.memory": QT_TRANSLATE_NOOP(
        "messages",
        "{n} requests of {cells} tokens are computed at once: memory does not permit {asked}.",
    ),
    "group.not_sparse": QT_TRANSLATE_NOOP(
        "messages",
        "This model has layers with a state, which cannot forget single tokens: sparse attention "
        "is not possible.",
    ),
    "group.one": QT_TRANSLATE_NOOP(
        "messages", "Requests are computed one by one: each may need {cells} tokens of memory."
    ),
    "group.paper": QT_TRANSLATE_NOOP(
        "messages",
        "{n} requests are computed at once: with fewer, computing would wait for the drive "
        "(inequality {binding} of Klotski).",
    ),
    "group.reading": QT_TRANSLATE_NOOP(
        "messages",
        "{n} requests are computed at once, but the drive stays slower than computing "
        "(inequality {binding} of Klotski); a higher cache rate would help.",
    ),
    "group.faster": QT_TRANSLATE_NOOP(
        "messages",
        "{n} requests are computed at once: {n_paper} would hide the drive, and more of them "
        "compute faster together.",
    ),
    "group.most": QT_TRANSLATE_NOOP(
        "messages",
        "{n} requests are computed at once, in as few rounds as memory permits; {n_paper} would "
        "hide the drive.",
    ),
    "group.whole": QT_TRANSLATE_NOOP(
        "messages",
        "The next layer is read whole while one is computed, which was measured to be faster.",
    ),
    "group.streams": QT_TRANSLATE_NOOP(
        "messages", "Their prompts are equally long, so each has an attention cache of its own."
    ),
    "engine.one_sequence": QT_TRANSLATE_NOOP(
        "messages",
        "Answers of this model are computed one after the other: where several share a context, "
        "llama.cpp does not compute its sparse attention.",
    ),
    "engine.no_load": QT_TRANSLATE_NOOP("messages", "llama.cpp could not load {file}: {reason}."),
    "engine.no_memory": QT_TRANSLATE_NOOP(
        "messages",
        "There is not enough memory; a lower cache rate or a shorter context needs less.",
    ),
    "engine.no_model": QT_TRANSLATE_NOOP("messages", "No model is loaded."),
    "engine.no_token": QT_TRANSLATE_NOOP("messages", "There is no such token."),
    "engine.not_finite": QT_TRANSLATE_NOOP(
        "messages",
        "The model computed NaN or infinite values, so the answer was stopped: {reason}.",
    ),
    "engine.not_finite_layer": QT_TRANSLATE_NOOP(
        "messages",
        "Layer {layer} of the model computed NaN or infinite values, so the answer was stopped: "
        "{reason}.",
    ),
    "engine.not_finite_file": QT_TRANSLATE_NOOP(
        "messages", "its file may be damaged, so fetch it again or take another model"
    ),
    "engine.wrong_expert": QT_TRANSLATE_NOOP(
        "messages",
        "Expert {expert} of layer {layer} in memory differed from the model's file, so earlier "
        "answers may be wrong. It is read again; if this comes back, test the machine's memory.",
    ),
    "engine.too_much_sent": QT_TRANSLATE_NOOP(
        "messages", "The chat and its images are larger than {most:size}, the most at once."
    ),
    "draft.no_states": QT_TRANSLATE_NOOP("messages", "llama.cpp does not tell its hidden states"),
    "draft.layer_not_used": QT_TRANSLATE_NOOP(
        "messages",
        "The layer of {file} that predicts further words guesses nothing: {reason}.",
    ),
    "draft.no_graph": QT_TRANSLATE_NOOP(
        "messages", "llama.cpp computes no such layer of {architecture}"
    ),
    "draft.no_way_back": QT_TRANSLATE_NOOP(
        "messages", "llama.cpp cannot take a token of {architecture} back"
    ),
    "draft.no_parts": QT_TRANSLATE_NOOP("messages", "parts of it are missing"),
    "draft.many_layers": QT_TRANSLATE_NOOP(
        "messages",
        "llama.cpp computes such a layer of {architecture} only where it is the only one",
    ),
    "draft.not_alone": QT_TRANSLATE_NOOP(
        "messages", "with its states that is possible for one request at a time only"
    ),
    "draft.in_memory_only": QT_TRANSLATE_NOOP(
        "messages", "with recurrent states that is possible in memory only"
    ),
    "draft.layer_on_device": QT_TRANSLATE_NOOP(
        "messages",
        "The model's layer that predicts further words runs on the processor only, so only "
        "repetitions are guessed.",
    ),
    "draft.layer_too_large": QT_TRANSLATE_NOOP(
        "messages",
        "Memory for the model's layer that predicts further words lacks {missing:size}, so only "
        "repetitions are guessed.",
    ),
    "vision.left_out": QT_TRANSLATE_NOOP(
        "messages", "The chat template of {model} leaves images out, so it cannot be sent any."
    ),
    "vision.no_vision": QT_TRANSLATE_NOOP(
        "messages", "{file} is no file with which a model sees images."
    ),
    "vision.not_loaded": QT_TRANSLATE_NOOP(
        "messages", "{file} cannot be used with this model: {reason}."
    ),
    "vision.old_model": QT_TRANSLATE_NOOP(
        "messages",
        "{model} was converted without what images need. Take a newer file of this model.",
    ),
    "vision.not_read": QT_TRANSLATE_NOOP(
        "messages", "The model could not read an image: {reason}."
    ),
    "vision.too_many_tokens": QT_TRANSLATE_NOOP(
        "messages",
        "An image needs {n:count} tokens in one pass, but memory permits only {most:count}.",
    ),
    "engine.not_pinned": QT_TRANSLATE_NOOP(
        "messages",
        "{bytes:size} of RAM for experts could not be pinned, so copies to devices take longer.",
    ),
    "engine.prompt_too_long": QT_TRANSLATE_NOOP(
        "messages", "The prompt has {n:count} tokens, but the context holds only {n_context:count}."
    ),
    "engine.slots_too_large": QT_TRANSLATE_NOOP(
        "messages",
        "The slots of {tensor} need {bytes:size} in one piece, more than {device} allows; a lower "
        "cache rate needs less.",
    ),
    "engine.stage_weights": QT_TRANSLATE_NOOP("messages", "Reading the weights"),
    "grammar.beginning": QT_TRANSLATE_NOOP(
        "messages", "The grammar does not fit the beginning of the answer in the prompt."
    ),
    "grammar.invalid": QT_TRANSLATE_NOOP("messages", "The grammar is invalid: {reason}."),
    "grammar.no_trigger": QT_TRANSLATE_NOOP(
        "messages", "The grammar has no trigger that says where it begins."
    ),
    "grammar.nul": QT_TRANSLATE_NOOP("messages", "it has a character NUL"),
    "sampling.no_grammar": QT_TRANSLATE_NOOP(
        "messages",
        "Probabilities after sampling cannot be given for an answer that a grammar constrains.",
    ),
    "grammar.stuck": QT_TRANSLATE_NOOP(
        "messages", "No token of the model fits the grammar of the answer."
    ),
    "grammar.too_large": QT_TRANSLATE_NOOP(
        "messages", "The grammar is too large or too deeply nested."
    ),
    "grammar.unparsable": QT_TRANSLATE_NOOP("messages", "it cannot be parsed"),
    "schema.impossible": QT_TRANSLATE_NOOP("messages", "No value fits the JSON schema."),
    "schema.malformed": QT_TRANSLATE_NOOP("messages", "The JSON schema is malformed."),
    "schema.no_library": QT_TRANSLATE_NOOP(
        "messages", "Answers under a JSON schema need the package llguidance, which is missing."
    ),
    "schema.too_complex": QT_TRANSLATE_NOOP("messages", "The JSON schema is too complex."),
    "schema.too_deep": QT_TRANSLATE_NOOP("messages", "The JSON schema is nested too deeply."),
    "schema.unsupported": QT_TRANSLATE_NOOP(
        "messages", "The JSON schema uses {what}, which answers cannot be held to."
    ),
    "schema.unused": QT_TRANSLATE_NOOP(
        "messages", "The chat format of {model} cannot hold answers to a JSON schema."
    ),
    "template.failed": QT_TRANSLATE_NOOP(
        "messages", "The chat template of {model} failed: {reason}."
    ),
    "template.shortened": QT_TRANSLATE_NOOP(
        "messages",
        "The oldest {n} messages were left out, because the chat template would take too long.",
    ),
    "template.no_tools": QT_TRANSLATE_NOOP(
        "messages", "The chat template of {model} has no form for tool calls."
    ),
    "template.too_slow": QT_TRANSLATE_NOOP(
        "messages", "The chat template of {model} takes too long."
    ),
    "engine.context_only_f16": QT_TRANSLATE_NOOP(
        "messages", "The attention cache of {architecture} models can only be of type f16."
    ),
    "engine.context_too_small": QT_TRANSLATE_NOOP(
        "messages", "The attention heads of this model are too small for a cache of type {type}."
    ),
    "engine.no_cache_memory": QT_TRANSLATE_NOOP(
        "messages",
        "There is not enough memory for the expert cache; a lower cache rate needs less.",
    ),
    "engine.no_llama": QT_TRANSLATE_NOOP(
        "messages", "llama-cpp-python {version} is not installed."
    ),
    "engine.no_tokens": QT_TRANSLATE_NOOP("messages", "The text could not be split into tokens."),
    "engine.not_opened": QT_TRANSLATE_NOOP(
        "messages", "The file {file} could not be opened: {reason}."
    ),
    "engine.old_native": QT_TRANSLATE_NOOP(
        "messages",
        "The C++ sources have changed since the native part was built. Run `make native`, and start"
        " again.",
    ),
    "engine.other_llama": QT_TRANSLATE_NOOP(
        "messages", "llama-cpp-python {found} is installed, but Outrider needs exactly {version}."
    ),
    "engine.pass_failed": QT_TRANSLATE_NOOP(
        "messages", "llama.cpp could not compute a token (status {status})."
    ),
    "engine.waiting_many": QT_TRANSLATE_NOOP(
        "messages", "More than {n} requests are waiting for the engine."
    ),
    "template.ended": QT_TRANSLATE_NOOP(
        "messages", "its process ended unexpectedly (status {status})"
    ),
    "template.long_conversation": QT_TRANSLATE_NOOP(
        "messages", "the conversation is too long for it"
    ),
    "template.long_prompt": QT_TRANSLATE_NOOP("messages", "it made a prompt of absurd length"),
    "template.memory": QT_TRANSLATE_NOOP("messages", "it needs too much memory"),
    "template.not_started": QT_TRANSLATE_NOOP(
        "messages", "its process could not be started: {reason}"
    ),
    # Plans: the contents of memory, and why they differ from the settings.
    "runs.cached": QT_TRANSLATE_NOOP(
        "messages",
        "{rate:percent} of the experts are in memory, {n:count} of each layer, chosen by the "
        "method {method}.",
    ),
    "runs.resident": QT_TRANSLATE_NOOP(
        "messages", "Every expert is in memory, so no answer waits for the disk."
    ),
    "runs.uncached": QT_TRANSLATE_NOOP("messages", "llama.cpp runs without the expert cache."),
    "memory.rate_by_hand": QT_TRANSLATE_NOOP(
        "messages",
        "The cache rate is {rate:percent} by hand; automatic it would be {automatic:percent}.",
    ),
    "memory.context_by_hand": QT_TRANSLATE_NOOP(
        "messages",
        "The context is {n:count} tokens by hand; automatic it would be {automatic:count}.",
    ),
    "memory.method_by_hand": QT_TRANSLATE_NOOP(
        "messages",
        "The method is {method} by hand; automatic it would be chosen by what is measured.",
    ),
    "memory.all_resident": QT_TRANSLATE_NOOP("messages", "every expert is in memory"),
    "memory.context": QT_TRANSLATE_NOOP(
        "messages", "A context of {n:count} tokens takes {bytes:size} there."
    ),
    "memory.context_shortened": QT_TRANSLATE_NOOP(
        "messages",
        "The context is {n:count} tokens instead of {wanted:count}, so that more layers fit; it "
        "takes {bytes:size} there.",
    ),
    "memory.cpu_slots": QT_TRANSLATE_NOOP(
        "messages", "Of the CPU's layers it keeps {n} of {all} experts, in {bytes:size}."
    ),
    "memory.dense": QT_TRANSLATE_NOOP("messages", "A dense model has no experts to cache."),
    "memory.mapped": QT_TRANSLATE_NOOP(
        "messages",
        "Memory for the dense part of {dense:size} lacks {missing:size}: it is read from the file "
        "again and again, which is slow.",
    ),
    "memory.fewer_slots": QT_TRANSLATE_NOOP(
        "messages",
        "{free:size} of memory are free: {n} of {all} experts of each layer are kept instead of "
        "{wanted}.",
    ),
    "memory.kept_there": QT_TRANSLATE_NOOP(
        "messages", "Kept there are {n} of {all} experts of each layer, as asked, in {bytes:size}."
    ),
    "memory.kept_there_fewer": QT_TRANSLATE_NOOP(
        "messages",
        "Kept there are {n} of {all} experts of each layer instead of {wanted}, in {bytes:size}; "
        "{left:size} are left to others.",
    ),
    "memory.layers_all": QT_TRANSLATE_NOOP("messages", "All {n} layers are computed by {devices}."),
    "memory.layers_last": QT_TRANSLATE_NOOP(
        "messages",
        "The last {n} of {all} layers are computed by {devices}, whose memory holds no more; the "
        "CPU computes the others.",
    ),
    "memory.layers_none": QT_TRANSLATE_NOOP(
        "messages", "The memory of {devices} holds not even one layer: the CPU computes."
    ),
    "memory.no_experts": QT_TRANSLATE_NOOP("messages", "it is a dense model, without experts"),
    "memory.not_stacked": QT_TRANSLATE_NOOP(
        "messages", "the experts of this {architecture} file are not stored as stacked tensors"
    ),
    "memory.others_need": QT_TRANSLATE_NOOP(
        "messages",
        "Other programs need memory: {n} of {all} experts of each layer are kept instead of "
        "{wanted}.",
    ),
    "memory.others_need_cpu": QT_TRANSLATE_NOOP(
        "messages",
        "Other programs need memory: RAM keeps {n} experts of each layer of the CPU's instead of "
        "{before}.",
    ),
    "memory.others_need_device": QT_TRANSLATE_NOOP(
        "messages",
        "Other programs need the device's memory: {n} of {all} experts of each layer are kept "
        "there instead of {wanted}.",
    ),
    "memory.others_need_store": QT_TRANSLATE_NOOP(
        "messages",
        "Other programs need memory: RAM keeps {n} experts of each layer for the device instead "
        "of {before}.",
    ),
    "memory.prompts": QT_TRANSLATE_NOOP(
        "messages", "Prompts copy the experts once for every {n} tokens."
    ),
    "memory.prompts_staged": QT_TRANSLATE_NOOP(
        "messages",
        "Prompts copy the experts once for every {n} tokens, through {bytes:size} beside the "
        "slots, ahead of the layers that need them.",
    ),
    "memory.ram_all": QT_TRANSLATE_NOOP(
        "messages", "RAM keeps all of them, in {bytes:size}: the file is read once."
    ),
    "memory.ram_less": QT_TRANSLATE_NOOP(
        "messages",
        "RAM keeps {n} of {all} experts of each layer, in {bytes:size} instead of {asked:size}; "
        "the others are read from the file.",
    ),
    "memory.ram_none_asked": QT_TRANSLATE_NOOP(
        "messages", "RAM keeps no experts for devices, as asked."
    ),
    "memory.ram_none_fits": QT_TRANSLATE_NOOP(
        "messages",
        "The {bytes:size} of RAM that may keep experts hold not one of each layer: nearly all are "
        "read from the file.",
    ),
    "memory.ram_some": QT_TRANSLATE_NOOP(
        "messages",
        "RAM keeps {n} of {all} experts of each layer, in {bytes:size}; the others are read from "
        "the file.",
    ),
    "memory.stock_faster": QT_TRANSLATE_NOOP(
        "messages",
        "A cache would save only {saved:size}, so llama.cpp runs unpatched, which is faster.",
    ),
    "memory.stock_faster_all": QT_TRANSLATE_NOOP(
        "messages",
        "llama.cpp runs unpatched, which is faster where the whole model fits into memory.",
    ),
    # Methods.
    "method.auto": QT_TRANSLATE_NOOP(
        "messages",
        "Starts reactive, measures what prefetching and other evictions bring on this machine "
        "with this model, and keeps what pays.",
    ),
    "method.outrider": QT_TRANSLATE_NOOP(
        "messages", "As promoe, but what was used most often of late stays, not what was used last."
    ),
    "method.outrider_recall": QT_TRANSLATE_NOOP(
        "messages",
        "As promoe, but what followed at moments like the present one stays: for slow drives.",
    ),
    "method.promoe": QT_TRANSLATE_NOOP(
        "messages",
        "Prefetches what a predictor expects of the next layers; needed experts overtake, ready "
        "ones are computed first.",
    ),
    "method.moepic": QT_TRANSLATE_NOOP(
        "messages",
        "Keeps the top parts of hot experts and fetches the bottoms while the tops compute; sizes "
        "and cuts are fitted to what was measured.",
    ),
    "method.moepic_uniform": QT_TRANSLATE_NOOP(
        "messages",
        "As moepic, but every layer has the same slots and every expert is cut in the middle.",
    ),
    "method.duoserve": QT_TRANSLATE_NOOP(
        "messages",
        "Passes experts through a few slots: in prompts one after the other, then what is "
        "predicted for the next layer.",
    ),
    "method.moe_infinity": QT_TRANSLATE_NOOP(
        "messages",
        "Remembers which experts past requests used and fetches what the most similar ones did; "
        "one pool for all layers.",
    ),
    "method.klotski": QT_TRANSLATE_NOOP(
        "messages",
        "For many requests at once: computes an expert for all their tokens, hot ones first, while "
        "others are read; the hottest stay in memory or are fetched ahead.",
    ),
    "method.klotski_layers": QT_TRANSLATE_NOOP(
        "messages",
        "A step of Klotski's ablation: the whole next layer is fetched ahead, in the router's "
        "order.",
    ),
    "method.klotski_hot": QT_TRANSLATE_NOOP(
        "messages",
        "The next step: only the hottest experts are fetched ahead, still in the router's order.",
    ),
    "method.klotski_order": QT_TRANSLATE_NOOP(
        "messages",
        "The last step, Klotski as in the paper: the leading layers stay in memory, and the "
        "experts that most tokens need are computed first.",
    ),
    "method.lru": QT_TRANSLATE_NOOP(
        "messages",
        "Reads an expert when its turn to be computed comes, and keeps the most recently used.",
    ),
    "method.lru_overlapped": QT_TRANSLATE_NOOP(
        "messages",
        "As lru, but at the gate all missing experts are ordered, and computed as they arrive.",
    ),
    "method.lfu": QT_TRANSLATE_NOOP(
        "messages",
        "Reads an expert when its turn to be computed comes, and keeps the most often used.",
    ),
    "method.static": QT_TRANSLATE_NOOP(
        "messages", "Keeps a fixed set, the most used of the first tokens; others pass through."
    ),
    "method.random": QT_TRANSLATE_NOOP(
        "messages", "Reads an expert when its turn to be computed comes; any one may leave."
    ),
    "method.unified": QT_TRANSLATE_NOOP(
        "messages", "Stock llama.cpp: the operating system pages the file in and out."
    ),
    "method.layer_offload": QT_TRANSLATE_NOOP(
        "messages", "Stock llama.cpp: the experts are computed by the processor, where they lie."
    ),
    "method.promoe_prefetch": QT_TRANSLATE_NOOP(
        "messages", "The first step of ProMoE's ablation: prefetching, and nothing else."
    ),
    "method.promoe_chunks": QT_TRANSLATE_NOOP(
        "messages", "The second step: prefetching matrix by matrix."
    ),
    "method.promoe_preempt": QT_TRANSLATE_NOOP(
        "messages", "The third step: needed experts overtake predicted ones."
    ),
    "method.promoe_reorder": QT_TRANSLATE_NOOP(
        "messages", "The fourth step: what is ready is computed first."
    ),
    "method.belady": QT_TRANSLATE_NOOP(
        "messages", "The optimal eviction: what is needed last leaves. It knows the trace."
    ),
    "method.oracle": QT_TRANSLATE_NOOP(
        "messages", "Perfect prediction far ahead, with the optimal eviction. It knows the trace."
    ),
    # Devices.
    "device.form": QT_TRANSLATE_NOOP(
        "messages", "A remote device is written rpc://host:port, not {given}."
    ),
    "device.no_rpc_server": QT_TRANSLATE_NOOP(
        "messages", "What answers at {address} is no rpc server of llama.cpp."
    ),
    "device.silent": QT_TRANSLATE_NOOP(
        "messages",
        "The device server at {address} does not answer; it may be serving somebody else.",
    ),
    "device.unknown": QT_TRANSLATE_NOOP(
        "messages", "There is no device {device} here; known are {known}."
    ),
    "device.unreachable": QT_TRANSLATE_NOOP(
        "messages", "No device server can be reached at {address} ({reason})."
    ),
    "device.version": QT_TRANSLATE_NOOP(
        "messages",
        "The rpc server at {address} speaks version {version} of its protocol; version {needed} "
        "is needed.",
    ),
    "device.alone": QT_TRANSLATE_NOOP(
        "messages", "The device {device} cannot be combined with others."
    ),
    "device.empty": QT_TRANSLATE_NOOP(
        "messages", "The device must be auto, cpu, a device's name or rpc://host:port."
    ),
    "device.no_remote": QT_TRANSLATE_NOOP(
        "messages", "llama.cpp could not use the device server: {reason}."
    ),
    # Model files and the library.
    "model.architecture": QT_TRANSLATE_NOOP(
        "messages", "its architecture {architecture} is not known to llama.cpp"
    ),
    "model.bad_value": QT_TRANSLATE_NOOP(
        "messages", "the tensor {tensor} has a value that is NaN or infinite"
    ),
    "model.bad_value_in_block": QT_TRANSLATE_NOOP(
        "messages", "the tensor {tensor} has a value that is NaN or infinite, in block {block}"
    ),
    "model.diffusion": QT_TRANSLATE_NOOP(
        "messages",
        "it is a diffusion model ({architecture}), which fills in a whole answer at once; only "
        "models that write token by token can be used",
    ),
    "model.empty": QT_TRANSLATE_NOOP("messages", "it is empty"),
    "model.folder": QT_TRANSLATE_NOOP("messages", "it is a folder"),
    "model.no_sense": QT_TRANSLATE_NOOP("messages", "its numbers make no sense"),
    "model.no_vocabulary": QT_TRANSLATE_NOOP(
        "messages", "it has no vocabulary, so it can read no text"
    ),
    "model.not_gguf": QT_TRANSLATE_NOOP(
        "messages", "it is not a GGUF file, as it does not begin with the letters GGUF"
    ),
    "model.part_missing": QT_TRANSLATE_NOOP(
        "messages", "part {part} of {n} of the model is missing"
    ),
    "model.path_bytes": QT_TRANSLATE_NOOP(
        "messages", "its path holds bytes that are not UTF-8; rename the file or its folder"
    ),
    "model.truncated": QT_TRANSLATE_NOOP("messages", "it is truncated: {detail}"),
    "model.unreadable": QT_TRANSLATE_NOOP("messages", "it cannot be read ({reason})"),
    "model.unusable": QT_TRANSLATE_NOOP("messages", "{file} cannot be used: {reason}."),
    "library.file_forbidden": QT_TRANSLATE_NOOP("messages", "it may not be read"),
    "library.file_gone": QT_TRANSLATE_NOOP("messages", "the file is gone"),
    "library.folder_below": QT_TRANSLATE_NOOP("messages", "its folder {folder} {trouble}"),
    "library.folder_forbidden": QT_TRANSLATE_NOOP("messages", "may not be read"),
    "library.folder_gone": QT_TRANSLATE_NOOP("messages", "is not there"),
    "library.folder_unreadable": QT_TRANSLATE_NOOP("messages", "cannot be read ({reason})"),
    "library.folders": QT_TRANSLATE_NOOP("messages", "The list of folders"),
    "library.link_broken": QT_TRANSLATE_NOOP("messages", "it is a link to a file that is gone"),
    "library.no_folder": QT_TRANSLATE_NOOP("messages", "is not a folder"),
    "library.part_missing": QT_TRANSLATE_NOOP("messages", "part {part} of {n} is missing"),
    "library.parts_missing": QT_TRANSLATE_NOOP("messages", "the parts {parts} of {n} are missing"),
    "library.parts_missing_many": QT_TRANSLATE_NOOP(
        "messages", "the parts {parts} and more of {n} are missing"
    ),
    "library.too_many_folders": QT_TRANSLATE_NOOP(
        "messages", "has more than {n:count} folders; the others were left out"
    ),
    "checksum.changed": QT_TRANSLATE_NOOP(
        "messages", "{file} changed while it was read. Check it again when nothing writes to it."
    ),
    "checksum.differs": QT_TRANSLATE_NOOP(
        "messages", "{file} is damaged or was changed: its SHA-256 is not what {source} states."
    ),
    "checksum.equal": QT_TRANSLATE_NOOP(
        "messages", "{file} is complete and unchanged: its SHA-256 is what {source} states."
    ),
    "checksum.equal_parts": QT_TRANSLATE_NOOP(
        "messages",
        "All {n} parts are complete and unchanged: their SHA-256 are what {source} states.",
    ),
    "checksum.get_again": QT_TRANSLATE_NOOP("messages", "Download it again."),
    "checksum.repository": QT_TRANSLATE_NOOP("messages", "its repository"),
    "checksum.stopped": QT_TRANSLATE_NOOP("messages", "The check was stopped."),
    "checksum.unknown": QT_TRANSLATE_NOOP(
        "messages",
        "The origin of {file} is not known. Compare its SHA-256 with the one that the page of its "
        "repository shows.",
    ),
    "file.damaged": QT_TRANSLATE_NOOP("messages", "it is damaged ({detail})"),
    "file.foreign": QT_TRANSLATE_NOOP("messages", "it is not a file of Outrider's"),
    "file.incomplete": QT_TRANSLATE_NOOP("messages", "it is cut short or damaged"),
    "file.newer": QT_TRANSLATE_NOOP(
        "messages", "it is of version {version}, and this Outrider knows only up to {newest}"
    ),
    "file.no_folder": QT_TRANSLATE_NOOP("messages", "there is no such folder"),
    "file.no_memory": QT_TRANSLATE_NOOP("messages", "there is not enough memory for it"),
    "file.not_regular": QT_TRANSLATE_NOOP("messages", "it is not a regular file"),
    "file.not_read": QT_TRANSLATE_NOOP("messages", "{file} could not be read: {reason}."),
    "file.not_utf8": QT_TRANSLATE_NOOP("messages", "{file} is not UTF-8 text."),
    "file.not_written": QT_TRANSLATE_NOOP("messages", "{file} could not be written: {reason}."),
    "file.other_kind": QT_TRANSLATE_NOOP(
        "messages", "it is no {kind} file, but says that it is {found}"
    ),
    "file.other_model": QT_TRANSLATE_NOOP("messages", "it was made for another model"),
    "file.other_sizes": QT_TRANSLATE_NOOP("messages", "it was made for a model of other sizes"),
    "file.bad_name": QT_TRANSLATE_NOOP("messages", "its name is not valid"),
    "file.shorter": QT_TRANSLATE_NOOP("messages", "it became shorter while it was read"),
    "file.taken": QT_TRANSLATE_NOOP("messages", "there is something else of that name"),
    "file.truncated": QT_TRANSLATE_NOOP("messages", "it is cut short"),
    "weights.other_predictor": QT_TRANSLATE_NOOP("messages", "it is of the predictor {name}"),
    "weights.too_large": QT_TRANSLATE_NOOP("messages", "it is too large for a predictor"),
    "weights.unfit": QT_TRANSLATE_NOOP("messages", "its contents make no predictor ({detail})"),
    "weights.unknown": QT_TRANSLATE_NOOP(
        "messages", "it is of a predictor called {name}, which this Outrider does not know"
    ),
    "pack.damaged": QT_TRANSLATE_NOOP(
        "messages",
        "{file} is damaged: expert {expert} of layer {layer} is not what was written. "
        "Delete it or write it again.",
    ),
    "pack.file_missing": QT_TRANSLATE_NOOP(
        "messages",
        "its file {file} is missing; connect that drive, or write the pack again",
    ),
    "pack.file_of_other": QT_TRANSLATE_NOOP(
        "messages", "its file {file} is of another pack, or damaged"
    ),
    "pack.folder_twice": QT_TRANSLATE_NOOP("messages", "The folder {folder} is named twice."),
    "pack.fast_already": QT_TRANSLATE_NOOP(
        "messages", "This processor computes this model's experts fastest as they are."
    ),
    "pack.in_use": QT_TRANSLATE_NOOP(
        "messages",
        "{file} is in use, and cannot be replaced. Unload the model, then write the pack again.",
    ),
    "pack.locked": QT_TRANSLATE_NOOP("messages", "{file} is being written by another program."),
    "pack.model_shorter": QT_TRANSLATE_NOOP("messages", "the model's file has become shorter"),
    "pack.needless": QT_TRANSLATE_NOOP(
        "messages", "this processor computes this model's experts fastest as they are"
    ),
    "pack.no_experts": QT_TRANSLATE_NOOP("messages", "This model has no experts to pack."),
    "pack.no_folder": QT_TRANSLATE_NOOP("messages", "There is no folder {folder}."),
    "pack.no_pack": QT_TRANSLATE_NOOP("messages", "it is no pack, or a damaged one"),
    "pack.no_room": QT_TRANSLATE_NOOP(
        "messages", "{file} needs {needed:size}, and only {free:size} are free in {folder}."
    ),
    "pack.not_measured": QT_TRANSLATE_NOOP(
        "messages", "The gain of a pack could not be measured: {reason}."
    ),
    "pack.not_used": QT_TRANSLATE_NOOP("messages", "{file} is not used: {reason}."),
    "pack.other_processor": QT_TRANSLATE_NOOP(
        "messages", "it was made for another processor or llama.cpp"
    ),
    "pack.other_version": QT_TRANSLATE_NOOP("messages", "another version of Outrider made it"),
    "pack.slow_folder": QT_TRANSLATE_NOOP(
        "messages",
        "The drive of {folder} is too slow to help: {speed:size} per second, and another one "
        "reads {others:size}.",
    ),
    "pack.slower": QT_TRANSLATE_NOOP(
        "messages", "its drive reads {pack:size} per second, the model's {model:size}"
    ),
    "pack.stopped": QT_TRANSLATE_NOOP(
        "messages", "Packing was stopped; it continues there when it is asked for again."
    ),
    "pack.write_again": QT_TRANSLATE_NOOP("messages", "{reason}; write the pack again"),
    "gguf.alignment": QT_TRANSLATE_NOOP(
        "messages", "general.alignment is {n}, which is not a power of two from 8 to {most}"
    ),
    "gguf.alignment_type": QT_TRANSLATE_NOOP(
        "messages", "general.alignment is not an unsigned 32-bit integer"
    ),
    "gguf.array_of_arrays": QT_TRANSLATE_NOOP(
        "messages", "{what} is an array of arrays, which is not allowed"
    ),
    "gguf.array_type": QT_TRANSLATE_NOOP(
        "messages", "{what} is an array of the unknown value type {type}"
    ),
    "gguf.became_shorter": QT_TRANSLATE_NOOP(
        "messages", "it became shorter while it was read, inside {what}"
    ),
    "gguf.beyond_end": QT_TRANSLATE_NOOP(
        "messages",
        "it is incomplete: {n:size} of at least {end:size} are here ({what} is missing); download "
        "it again",
    ),
    "gguf.big_endian": QT_TRANSLATE_NOOP(
        "messages", "it is written in big-endian byte order, which is not supported"
    ),
    "gguf.changed": QT_TRANSLATE_NOOP("messages", "it was changed while it was read"),
    "gguf.claims_items": QT_TRANSLATE_NOOP(
        "messages", "{what} claims {n} items, more than the file has room for"
    ),
    "gguf.claims_left": QT_TRANSLATE_NOOP(
        "messages", "{what} claims {n} bytes, more than the file has left"
    ),
    "gguf.claims_most": QT_TRANSLATE_NOOP(
        "messages", "{what} claims {n} bytes, and {most} are allowed"
    ),
    "gguf.dimension": QT_TRANSLATE_NOOP("messages", "a dimension of {what}"),
    "gguf.dimensions": QT_TRANSLATE_NOOP("messages", "{what} has {n} dimensions, not 1 to {most}"),
    "gguf.empty_name": QT_TRANSLATE_NOOP("messages", "{what} is empty"),
    "gguf.ends_inside": QT_TRANSLATE_NOOP("messages", "it ends inside {what}"),
    "gguf.gap": QT_TRANSLATE_NOOP(
        "messages", "the offset of {what} is {offset}, not {expected}: it leaves a gap before"
    ),
    "gguf.implausible": QT_TRANSLATE_NOOP(
        "messages", "{what} is {n}, and more than {most} is not plausible"
    ),
    "gguf.item": QT_TRANSLATE_NOOP("messages", "item {n} of {what}"),
    "gguf.item_type": QT_TRANSLATE_NOOP("messages", "the item type of {what}"),
    "gguf.key": QT_TRANSLATE_NOOP("messages", "the metadata key {key}"),
    "gguf.key_name": QT_TRANSLATE_NOOP("messages", "the name of metadata key {n}"),
    "gguf.length": QT_TRANSLATE_NOOP("messages", "the length of {what}"),
    "gguf.long_header": QT_TRANSLATE_NOOP(
        "messages", "its header is longer than {most:size} at {what}"
    ),
    "gguf.magic": QT_TRANSLATE_NOOP("messages", "the magic bytes"),
    "gguf.many_strings": QT_TRANSLATE_NOOP(
        "messages", "{what} has {n} strings, and {most} in all are allowed"
    ),
    "gguf.n_dimension": QT_TRANSLATE_NOOP("messages", "the number of dimensions of {what}"),
    "gguf.n_key": QT_TRANSLATE_NOOP("messages", "the number of metadata keys"),
    "gguf.n_tensor": QT_TRANSLATE_NOOP("messages", "the number of tensors"),
    "gguf.name_bytes": QT_TRANSLATE_NOOP("messages", "{what} has {n} bytes, not 1 to {most}"),
    "gguf.not_utf8": QT_TRANSLATE_NOOP("messages", "{what} is not valid UTF-8"),
    "gguf.offset": QT_TRANSLATE_NOOP("messages", "the offset of {what}"),
    "gguf.overflow": QT_TRANSLATE_NOOP(
        "messages", "the dimensions of {what} overflow: they multiply to {n} values"
    ),
    "gguf.overlap": QT_TRANSLATE_NOOP(
        "messages", "the offset of {what} is {offset}, not {expected}: it overlaps the one before"
    ),
    "gguf.rows": QT_TRANSLATE_NOOP(
        "messages", "{what} has rows of {n} values, which are not whole {type} blocks of {block}"
    ),
    "gguf.some_item": QT_TRANSLATE_NOOP("messages", "an item of {what}"),
    "gguf.tensor": QT_TRANSLATE_NOOP("messages", "the tensor {tensor}"),
    "gguf.tensor_name": QT_TRANSLATE_NOOP("messages", "the name of tensor {n}"),
    "gguf.tensor_type": QT_TRANSLATE_NOOP("messages", "{what} has the unknown tensor type {type}"),
    "gguf.too_short": QT_TRANSLATE_NOOP(
        "messages", "{what} is {n}, and the file is too short for that"
    ),
    "gguf.twice": QT_TRANSLATE_NOOP("messages", "{what} appears twice"),
    "gguf.type": QT_TRANSLATE_NOOP("messages", "the type of {what}"),
    "gguf.value_type": QT_TRANSLATE_NOOP("messages", "{what} has the unknown value type {type}"),
    "gguf.version": QT_TRANSLATE_NOOP("messages", "the version"),
    "gguf.unknown_version": QT_TRANSLATE_NOOP(
        "messages", "its GGUF version is {version}, and only 2 and 3 are supported"
    ),
    "gguf.zero_dimension": QT_TRANSLATE_NOOP("messages", "{what} has a dimension of zero"),
    "model.groups": QT_TRANSLATE_NOOP("messages", "{key} is {n}, no divisor of {all} experts"),
    "model.heads_fill": QT_TRANSLATE_NOOP(
        "messages", "{key} is {n}, and {n} heads of {size} values do not make the {all} needed"
    ),
    "model.index_length": QT_TRANSLATE_NOOP(
        "messages", "{key} is {value}, and llama.cpp cannot rotate keys of this length"
    ),
    "model.index_short": QT_TRANSLATE_NOOP(
        "messages", "{key} is {value}, but positions turn {n} values of each key"
    ),
    "model.key_items": QT_TRANSLATE_NOOP("messages", "{key} has {n} items for {layers} layers"),
    "model.key_missing": QT_TRANSLATE_NOOP("messages", "{key} is missing"),
    "model.key_not_string": QT_TRANSLATE_NOOP("messages", "{key} is not a string"),
    "model.key_not_whole": QT_TRANSLATE_NOOP("messages", "{key} is not a whole number"),
    "model.key_range": QT_TRANSLATE_NOOP(
        "messages", "{key} is {value}, and {low} to {high} is allowed"
    ),
    "model.key_type": QT_TRANSLATE_NOOP("messages", "{key} is not of the type {type}"),
    "model.layer_beyond": QT_TRANSLATE_NOOP(
        "messages", "{what} belongs to a layer beyond the {n} layers"
    ),
    "model.many_parts": QT_TRANSLATE_NOOP("messages", "split.count is {n}, and {most} are allowed"),
    "model.n_expert": QT_TRANSLATE_NOOP(
        "messages", "{what} holds {n} experts, but expert_count is {all}"
    ),
    "model.negative": QT_TRANSLATE_NOOP("messages", "{key} is {value}, and has to be 0 or more"),
    "model.no_attention": QT_TRANSLATE_NOOP(
        "messages", "{key} gives none of the {n} layers attention over the whole context"
    ),
    "model.no_tensors": QT_TRANSLATE_NOOP("messages", "it has no tensors"),
    "model.no_window": QT_TRANSLATE_NOOP("messages", "{key} gives none of the {n} layers a window"),
    "model.not_finite": QT_TRANSLATE_NOOP(
        "messages", "{key} is {value}, which is not a finite number"
    ),
    "model.not_positive": QT_TRANSLATE_NOOP(
        "messages", "{key} is {value}, and has to be more than 0"
    ),
    "model.other_part": QT_TRANSLATE_NOOP(
        "messages", "{key} does not say that it is part {part} of {n} of the model"
    ),
    "model.part_joined": QT_TRANSLATE_NOOP(
        "messages",
        "it begins as part {part} of {n}, and other parts were put behind it; such parts cannot be "
        "joined in this way: open the first of them as it was downloaded, beside the others",
    ),
    "model.part_name": QT_TRANSLATE_NOOP(
        "messages", "it is part {part} of {n}, so its name has to end in {ending}"
    ),
    "model.part_number": QT_TRANSLATE_NOOP(
        "messages", "split.no is {number}, but the model has {n} parts"
    ),
    "model.part_of_another": QT_TRANSLATE_NOOP(
        "messages", "it is part of another model, as {key} differs"
    ),
    "model.piece": QT_TRANSLATE_NOOP(
        "messages",
        "it is a piece of a file that was cut; join all pieces in their order into {whole}, as "
        "with: {command}",
    ),
    "model.part_tensors": QT_TRANSLATE_NOOP(
        "messages", "split.tensors.count is {n}, but its {parts} parts have {found}"
    ),
    "model.tensor_twice": QT_TRANSLATE_NOOP(
        "messages", "the tensor {tensor} is in part {part} as well"
    ),
    "model.shared_width": QT_TRANSLATE_NOOP(
        "messages",
        "{key} makes the shared experts {wanted} wide, but {what} is {n} wide; llama.cpp does not "
        "load it",
    ),
    "model.three_dimensions": QT_TRANSLATE_NOOP(
        "messages", "{what} has {n} dimensions instead of 3"
    ),
    "model.no_kernel": QT_TRANSLATE_NOOP(
        "messages", "{what} is of the type {type}, with which llama.cpp cannot compute"
    ),
    "model.token_twice": QT_TRANSLATE_NOOP(
        "messages", "the token {token} appears twice in its vocabulary"
    ),
    "model.used_missing": QT_TRANSLATE_NOOP(
        "messages", "{key} is missing or zero, but expert_count is {all}"
    ),
    "model.used_too_many": QT_TRANSLATE_NOOP(
        "messages", "{key} is {n}, more than expert_count, which is {all}"
    ),
    "model.whole_heads": QT_TRANSLATE_NOOP(
        "messages", "{key} is {value}, but has to be {n}, as many as the keys of a head"
    ),
    # Downloads.
    "download.address_form": QT_TRANSLATE_NOOP(
        "messages", "'{given}' is neither a repository, such as owner/name, nor an address."
    ),
    "download.bad_answer": QT_TRANSLATE_NOOP(
        "messages", "{host} gave an answer that was not expected (HTTP {status})."
    ),
    "download.bad_redirect": QT_TRANSLATE_NOOP(
        "messages", "{host} redirects to an address that cannot be used."
    ),
    "download.broke": QT_TRANSLATE_NOOP("messages", "The connection to {host} broke."),
    "download.changed": QT_TRANSLATE_NOOP(
        "messages", "The file on {host} is no longer the one that was listed."
    ),
    "download.circle": QT_TRANSLATE_NOOP(
        "messages", "{host} redirects again and again, and never to a file."
    ),
    "download.damaged": QT_TRANSLATE_NOOP(
        "messages",
        "{file} arrived damaged: its checksum is not the one that {host} states. It has to be "
        "fetched again.",
    ),
    "download.disabled": QT_TRANSLATE_NOOP("messages", "{host} has disabled this repository."),
    "download.drive_full": QT_TRANSLATE_NOOP(
        "messages", "The drive of {folder} is full. What has arrived is kept."
    ),
    "download.encoded": QT_TRANSLATE_NOOP(
        "messages", "{host} sends the file compressed, which was not asked for."
    ),
    "download.expired": QT_TRANSLATE_NOOP(
        "messages",
        "{host} refuses the address (HTTP {status}), which was valid until {at:clock}. Copy a new "
        "one from where you found it.",
    ),
    "download.failed": QT_TRANSLATE_NOOP("messages", "The download failed: {reason}."),
    "download.file_exists": QT_TRANSLATE_NOOP(
        "messages", "There is another file named {file} in {folder}."
    ),
    "download.challenge": QT_TRANSLATE_NOOP(
        "messages", "{host} lets only browsers in at the moment (HTTP {status})."
    ),
    "download.forbidden": QT_TRANSLATE_NOOP(
        "messages", "{host} does not let you have this (HTTP {status})."
    ),
    "download.gated": QT_TRANSLATE_NOOP(
        "messages",
        "This repository is gated: accept its conditions on its page in a browser, and enter a "
        "token of the same account in Get models, or set HF_TOKEN to it.",
    ),
    "download.list": QT_TRANSLATE_NOOP("messages", "The list of downloads"),
    "download.law": QT_TRANSLATE_NOOP(
        "messages", "{host} does not give this for reasons of law (HTTP {status})."
    ),
    "download.locked": QT_TRANSLATE_NOOP(
        "messages", "Another window or program is downloading this file."
    ),
    "download.needs_token": QT_TRANSLATE_NOOP(
        "messages",
        "{host} asks for a token (HTTP 401). Enter yours in Get models, or set HF_TOKEN to it.",
    ),
    "download.network_login": QT_TRANSLATE_NOOP(
        "messages", "The network asks for a login (HTTP 511): open a page in a browser."
    ),
    "download.no_address": QT_TRANSLATE_NOOP(
        "messages", "{address} is not an address to download from."
    ),
    "download.no_file": QT_TRANSLATE_NOOP(
        "messages", "There is no such file on {host} (HTTP {status})."
    ),
    "download.no_file_name": QT_TRANSLATE_NOOP(
        "messages", "The address does not end in the name of a GGUF file."
    ),
    "download.no_model": QT_TRANSLATE_NOOP("messages", "There is no GGUF model in {place}."),
    "download.no_range": QT_TRANSLATE_NOOP(
        "messages", "{host} does not send the rest of the file (HTTP {status})."
    ),
    "download.no_repository": QT_TRANSLATE_NOOP(
        "messages",
        "There is no such repository on {host}, or it is private and needs a token (in Get models, "
        "or HF_TOKEN).",
    ),
    "download.no_revision": QT_TRANSLATE_NOOP(
        "messages", "The repository on {host} has no such revision."
    ),
    "download.no_room": QT_TRANSLATE_NOOP(
        "messages",
        "There is too little room on the drive of {folder}: {needed:size} are needed and "
        "{margin:size} to spare, and {free:size} are free.",
    ),
    "download.no_sense": QT_TRANSLATE_NOOP(
        "messages", "{host} sent an answer that makes no sense."
    ),
    "download.no_size": QT_TRANSLATE_NOOP("messages", "{host} does not say how large the file is."),
    "download.not_there": QT_TRANSLATE_NOOP(
        "messages", "{place} no longer has {file}. Search for its name to find others like it."
    ),
    "download.not_gguf": QT_TRANSLATE_NOOP(
        "messages", "What {host} sends from this address is not a GGUF file."
    ),
    "download.nothing_written": QT_TRANSLATE_NOOP(
        "messages", "Nothing can be written to {folder}."
    ),
    "download.offline": QT_TRANSLATE_NOOP(
        "messages", "HF_HUB_OFFLINE is set, so nothing is downloaded."
    ),
    "download.other_range": QT_TRANSLATE_NOOP(
        "messages", "{host} sent another part of the file than the one that was asked for."
    ),
    "download.out_of_order": QT_TRANSLATE_NOOP(
        "messages", "{host} is out of order at the moment (HTTP {status})."
    ),
    "download.packed": QT_TRANSLATE_NOOP(
        "messages", "it is packed ({file}), and has to be unpacked first"
    ),
    "download.page": QT_TRANSLATE_NOOP(
        "messages", "{host} sent a web page instead. Does a browser show a login there?"
    ),
    "download.parts_there": QT_TRANSLATE_NOOP("messages", "only {n} of its {all} parts are there"),
    "download.part_missing": QT_TRANSLATE_NOOP("messages", "a part of it is missing"),
    "download.payment": QT_TRANSLATE_NOOP(
        "messages", "{host} asks for a payment (HTTP {status}): see its page in a browser."
    ),
    "download.proxy_refused": QT_TRANSLATE_NOOP(
        "messages", "The proxy refused the connection to {host}."
    ),
    "download.proxy_unusable": QT_TRANSLATE_NOOP(
        "messages", "The proxy of the environment cannot be used: {reason}."
    ),
    "download.silent": QT_TRANSLATE_NOOP("messages", "{host} does not answer."),
    "download.raw_pieces": QT_TRANSLATE_NOOP(
        "messages",
        "it is there in raw pieces only ({names}), which have to be joined into one file",
    ),
    "download.storage_refused": QT_TRANSLATE_NOOP(
        "messages", "{host}, to which {hub} redirects, refuses the file (HTTP {status})."
    ),
    "download.token_locked": QT_TRANSLATE_NOOP(
        "messages", "The token of {name} could not be read: {reason}."
    ),
    "download.token_no_form": QT_TRANSLATE_NOOP(
        "messages", "This is no token: it is empty, or has characters that no token has."
    ),
    "download.token_note": QT_TRANSLATE_NOOP("messages", "The note on your token"),
    "download.token_odd": QT_TRANSLATE_NOOP(
        "messages", "The token of {place} has characters that no token has, so it is not sent."
    ),
    "download.token_refused": QT_TRANSLATE_NOOP(
        "messages",
        "{host} refuses the token of {place} (HTTP {status}), so it was asked without the token.",
    ),
    "download.token_stays": QT_TRANSLATE_NOOP(
        "messages",
        "The token of {name} is used no more, but the keyring still has it: {reason}.",
    ),
    "download.token_wrong": QT_TRANSLATE_NOOP(
        "messages",
        "{host} does not know this token (HTTP 401). Copy it again, or make a new one there.",
    ),
    "download.too_many": QT_TRANSLATE_NOOP(
        "messages", "{host} asks to wait, and does not say how long (HTTP {status})."
    ),
    "download.untrusted": QT_TRANSLATE_NOOP(
        "messages",
        "The identity of {host} cannot be checked ({reason}). Install the system's list of "
        "certificates (ca-certificates), or name another list in SSL_CERT_FILE.",
    ),
    "download.unreachable": QT_TRANSLATE_NOOP("messages", "{host} cannot be reached."),
    "download.wait_until": QT_TRANSLATE_NOOP(
        "messages", "{host} asks to wait until {at:clock} (HTTP {status})."
    ),
    "download.write_failed": QT_TRANSLATE_NOOP("messages", "Writing to {folder} failed: {reason}."),
    # The system's keyring; each is a clause.
    "keyring.failed": QT_TRANSLATE_NOOP("messages", "the keyring failed ({reason})"),
    "keyring.locked": QT_TRANSLATE_NOOP("messages", "the keyring stayed locked"),
    "keyring.no_note": QT_TRANSLATE_NOOP(
        "messages", "whose it is could not be written down ({reason})"
    ),
    "keyring.none": QT_TRANSLATE_NOOP("messages", "no keyring runs on this system"),
    "keyring.not_there": QT_TRANSLATE_NOOP("messages", "the keyring no longer has it"),
    "keyring.silent": QT_TRANSLATE_NOOP(
        "messages", "the keyring did not answer within {seconds} s"
    ),
    # Files that are kept, and settings.
    "kept.damaged": QT_TRANSLATE_NOOP("messages", "{what} was damaged; {instead}."),
    "kept.damaged_aside": QT_TRANSLATE_NOOP(
        "messages", "{what} was damaged; {instead} and the old file is {file}."
    ),
    "kept.empty_used": QT_TRANSLATE_NOOP("messages", "an empty one is used"),
    "kept.defaults_used": QT_TRANSLATE_NOOP("messages", "the defaults are used"),
    "kept.not_read": QT_TRANSLATE_NOOP("messages", "{what} could not be read: {reason}."),
    "kept.not_saved": QT_TRANSLATE_NOOP("messages", "{what} could not be saved: {reason}."),
    "settings.file": QT_TRANSLATE_NOOP("messages", "The settings file"),
    "about.licence": QT_TRANSLATE_NOOP("messages", "MIT; the embedded model CC BY-SA 4.0"),
    "window.open_already": QT_TRANSLATE_NOOP(
        "messages",
        "Outrider is open already, and its window does not answer. End that process, then start "
        "again.",
    ),
    "setting.above": QT_TRANSLATE_NOOP(
        "messages", "The setting {name} must be more than {low} and at most {high}, not {value}."
    ),
    "setting.biases": QT_TRANSLATE_NOOP(
        "messages",
        "The setting {name} must be pairs of a token and a number from {low} to {high}.",
    ),
    "setting.texts": QT_TRANSLATE_NOOP(
        "messages", "The setting {name} must be a list of texts, and not empty."
    ),
    "setting.choice": QT_TRANSLATE_NOOP(
        "messages", "The setting {name} must be one of {known}, not {value}."
    ),
    "setting.least": QT_TRANSLATE_NOOP(
        "messages", "The setting {name} must be {low} or more, not {value}."
    ),
    "setting.range": QT_TRANSLATE_NOOP(
        "messages", "The setting {name} must be {low} to {high}, not {value}."
    ),
    "setting.type": QT_TRANSLATE_NOOP("messages", "The setting {name} must be {kind}."),
    "setting.unknown": QT_TRANSLATE_NOOP("messages", "Unknown sampling setting {name}."),
    "kind.biases": QT_TRANSLATE_NOOP("messages", "a list of pairs, each a token and a number"),
    "kind.integer": QT_TRANSLATE_NOOP("messages", "an integer"),
    "kind.names": QT_TRANSLATE_NOOP("messages", "a list of names of settings"),
    "kind.number": QT_TRANSLATE_NOOP("messages", "a number"),
    "kind.switch": QT_TRANSLATE_NOOP("messages", "true or false"),
    "kind.text": QT_TRANSLATE_NOOP("messages", "text"),
    "kind.texts": QT_TRANSLATE_NOOP("messages", "a list of texts"),
    # Chats.
    "chats.begun_new": QT_TRANSLATE_NOOP(
        "messages", "The file of chats was damaged; a new one was begun and the old one is {file}."
    ),
    "chats.busy": QT_TRANSLATE_NOOP("messages", "another program uses the file"),
    "chats.context_full": QT_TRANSLATE_NOOP("messages", "The context is full."),
    "chats.cut_off": QT_TRANSLATE_NOOP("messages", "Cut off here."),
    "chats.damaged": QT_TRANSLATE_NOOP("messages", "the file is damaged"),
    "chats.disk_full": QT_TRANSLATE_NOOP("messages", "the disk is full"),
    "chats.edited": QT_TRANSLATE_NOOP("messages", "Changed by you."),
    "chats.import_damaged": QT_TRANSLATE_NOOP("messages", "it is damaged, or a part is missing"),
    "chats.import_not_chats": QT_TRANSLATE_NOOP("messages", "it is not a file of chats"),
    "chats.import_newer": QT_TRANSLATE_NOOP("messages", "it was written by a newer version"),
    "chats.import_no_form": QT_TRANSLATE_NOOP(
        "messages", "it is neither JSON nor Markdown from this program"
    ),
    "chats.import_no_file": QT_TRANSLATE_NOOP("messages", "{file} is not a file."),
    "chats.import_refused": QT_TRANSLATE_NOOP("messages", "{file} cannot be imported: {reason}."),
    "chats.import_too_large": QT_TRANSLATE_NOOP("messages", "{file} is larger than {most:size}."),
    "chats.newer": QT_TRANSLATE_NOOP(
        "messages",
        "The chats were written by a newer version of Outrider. They are left as they are, and "
        "what is said here is not kept.",
    ),
    "chats.no_folder": QT_TRANSLATE_NOOP("messages", "the folder for them cannot be written"),
    "chats.not_kept": QT_TRANSLATE_NOOP("messages", "The chats cannot be kept: {reason}."),
    "chats.not_read": QT_TRANSLATE_NOOP("messages", "The chats cannot be read: {reason}."),
    "chats.not_written": QT_TRANSLATE_NOOP("messages", "What is said is not being kept: {reason}."),
    "chats.stopped": QT_TRANSLATE_NOOP("messages", "Stopped."),
    # Learning from chats.
    "learning.background": QT_TRANSLATE_NOOP(
        "messages", "Training in the background ({share:percent})."
    ),
    "learning.better": QT_TRANSLATE_NOOP(
        "messages",
        "A better predictor was found ({new:percent1} right instead of {old:percent1}); it is "
        "used when the model is loaded again.",
    ),
    "learning.choice_not_kept": QT_TRANSLATE_NOOP(
        "messages", "The choice could not be kept: {reason}."
    ),
    "learning.ended": QT_TRANSLATE_NOOP("messages", "Training ended unexpectedly."),
    "learning.failed": QT_TRANSLATE_NOOP("messages", "Training came to nothing: {reason}"),
    "learning.idle": QT_TRANSLATE_NOOP(
        "messages", "Training begins when nobody has used the engine for a while."
    ),
    "learning.no_cache": QT_TRANSLATE_NOOP(
        "messages", "This model runs without the expert cache, so nothing is recorded."
    ),
    "learning.no_experts": QT_TRANSLATE_NOOP(
        "messages", "This model has no experts, so there is nothing to learn."
    ),
    "learning.no_inputs": QT_TRANSLATE_NOOP(
        "messages",
        "This model does not show what its experts compute with, so there is nothing to learn.",
    ),
    "learning.no_model": QT_TRANSLATE_NOOP(
        "messages", "Answers will be recorded once a model is loaded."
    ),
    "learning.not_better": QT_TRANSLATE_NOOP(
        "messages",
        "The last training found nothing better ({new:percent1} right instead of {old:percent1}).",
    ),
    "learning.not_recorded": QT_TRANSLATE_NOOP(
        "messages", "An answer could not be recorded: {reason}"
    ),
    "learning.not_started": QT_TRANSLATE_NOOP(
        "messages", "Training could not be started: {reason}."
    ),
    "learning.off": QT_TRANSLATE_NOOP("messages", "Nothing is recorded."),
    "learning.paused": QT_TRANSLATE_NOOP(
        "messages", "Training waits for the engine ({share:percent})."
    ),
    "learning.recorded": QT_TRANSLATE_NOOP(
        "messages", "{n:count} of the {enough:count} tokens that training needs are recorded."
    ),
    # The local server.
    "server.no_origin": QT_TRANSLATE_NOOP(
        "messages", "A page's origin is such as https://chat.example, without a path, not {origin}."
    ),
    "server.no_port": QT_TRANSLATE_NOOP("messages", "Port {port} cannot be used: {reason}."),
    "server.short_key": QT_TRANSLATE_NOOP(
        "messages", "A key that other machines may try must have at least {n} characters."
    ),
    # Servers of tools
    "tools.bad_entry": QT_TRANSLATE_NOOP("messages", "The entry of {name} is damaged."),
    "tools.bad_header": QT_TRANSLATE_NOOP(
        "messages", "A header of {name} has characters that headers cannot have."
    ),
    "tools.bad_name": QT_TRANSLATE_NOOP(
        "messages", "The name of a server needs 1 to {limit} visible characters."
    ),
    "tools.bad_url": QT_TRANSLATE_NOOP(
        "messages", "The address of {name} must begin with http:// or https://."
    ),
    "tools.bad_value": QT_TRANSLATE_NOOP(
        "messages", "An argument or a variable of {name} is too long or cannot be used."
    ),
    "tools.call_failed": QT_TRANSLATE_NOOP("messages", "The call failed: {reason}"),
    "tools.call_stopped": QT_TRANSLATE_NOOP("messages", "The call was stopped."),
    "tools.call_too_slow": QT_TRANSLATE_NOOP(
        "messages", "The call took longer than {seconds} seconds and was ended."
    ),
    "tools.deep_schema": QT_TRANSLATE_NOOP(
        "messages", "It is not offered, because its arguments are nested too deeply."
    ),
    "tools.ended": QT_TRANSLATE_NOOP("messages", "The server has ended."),
    "tools.file": QT_TRANSLATE_NOOP("messages", "The file of tools"),
    "tools.file_damaged": QT_TRANSLATE_NOOP("messages", "{file} is damaged: it is not JSON."),
    "tools.file_too_large": QT_TRANSLATE_NOOP(
        "messages", "{file} is larger than {limit:size} and was not read."
    ),
    "tools.file_without": QT_TRANSLATE_NOOP("messages", "{file} names no servers of tools."),
    "tools.floods": QT_TRANSLATE_NOOP(
        "messages", "The server sent far too many messages and was ended."
    ),
    "tools.forbidden": QT_TRANSLATE_NOOP(
        "messages", "The server refuses access (status {status}). Check the headers."
    ),
    "tools.host_ended": QT_TRANSLATE_NOOP(
        "messages", "The process that runs the servers ended. Start them again."
    ),
    "tools.large_schema": QT_TRANSLATE_NOOP(
        "messages",
        "It is not offered, because the description of its arguments has {n_byte:count} bytes, "
        "more than {limit:count}.",
    ),
    "tools.long_answer": QT_TRANSLATE_NOOP(
        "messages", "The answer has {n:size} or more; at most {limit:size} are taken."
    ),
    "tools.may_have_run": QT_TRANSLATE_NOOP(
        "messages",
        "The connection to the server broke, so the call may have run. Ask before you repeat it.",
    ),
    "tools.long_message": QT_TRANSLATE_NOOP(
        "messages", "The server sent a message of more than {limit:size} and was ended."
    ),
    "tools.needs_input": QT_TRANSLATE_NOOP(
        "messages",
        "{name} was left out: it has a value that only the other application can fill in.",
    ),
    "tools.neither": QT_TRANSLATE_NOOP(
        "messages", "{name} needs a command or an address, and not both."
    ),
    "tools.no_command": QT_TRANSLATE_NOOP(
        "messages",
        "{command} was not found. Enter its whole path, or install it. These folders were "
        "searched: {places}.",
    ),
    "tools.no_file": QT_TRANSLATE_NOOP("messages", "There is no file {command}."),
    "tools.no_folder": QT_TRANSLATE_NOOP("messages", "Its folder {folder} does not exist."),
    "tools.none_used": QT_TRANSLATE_NOOP("messages", "no server is used"),
    "tools.not_executable": QT_TRANSLATE_NOOP(
        "messages", "{command} is no program: the file may not be executed."
    ),
    "tools.no_reason": QT_TRANSLATE_NOOP("messages", "The server gave no reason."),
    "tools.not_ready": QT_TRANSLATE_NOOP("messages", "The server {name} is not running."),
    "tools.not_started": QT_TRANSLATE_NOOP("messages", "It could not be started: {reason}."),
    "tools.not_understood": QT_TRANSLATE_NOOP(
        "messages", "The server sent an answer that could not be understood."
    ),
    "tools.odd_name": QT_TRANSLATE_NOOP(
        "messages", "It is not offered, because its name is too long or has invisible characters."
    ),
    "tools.odd_number": QT_TRANSLATE_NOOP(
        "messages", "It is not offered, because its arguments name a number that JSON cannot say."
    ),
    "tools.old_transport": QT_TRANSLATE_NOOP(
        "messages", "{name} was left out: its transport, SSE, is out of use."
    ),
    "tools.server_failed": QT_TRANSLATE_NOOP("messages", "It could not be used: {reason}"),
    "tools.start_too_slow": QT_TRANSLATE_NOOP(
        "messages", "The server was not ready after {seconds} seconds and was ended."
    ),
    "tools.too_many": QT_TRANSLATE_NOOP("messages", "Only the first {limit} servers were taken."),
    "server.no_key": QT_TRANSLATE_NOOP("messages", "The server needs a key."),
    "server.port_range": QT_TRANSLATE_NOOP(
        "messages", "A port is a number from 0 to 65535, not {port}."
    ),
    # A report on a model
    "report.load": QT_TRANSLATE_NOOP("messages", "Loading the model."),
    "report.machine": QT_TRANSLATE_NOOP("messages", "Measuring the machine."),
    "report.speed": QT_TRANSLATE_NOOP("messages", "Measuring the speed at two cache rates."),
    "report.stock": QT_TRANSLATE_NOOP(
        "messages", "Comparing {n:count} rows of logits with stock llama.cpp."
    ),
    "report.turns": QT_TRANSLATE_NOOP("messages", "Holding three turns of a chat."),
    # The batch log, computed again
    "replay.cut": QT_TRANSLATE_NOOP(
        "messages",
        "The method computed experts in two parts, whose sum rounds differently from llama.cpp's: "
        "nothing behind it is shown.",
    ),
    "replay.hybrid": QT_TRANSLATE_NOOP(
        "messages",
        "The processor computed experts of a device, which rounds differently from llama.cpp: "
        "nothing behind it is shown.",
    ),
    "replay.image_rows": QT_TRANSLATE_NOOP(
        "messages",
        "Pass {number} has other rows of an image than its next ones: {n} of it were "
        "computed instead of {all}.",
    ),
    "replay.image_values": QT_TRANSLATE_NOOP(
        "messages",
        "Pass {number}: the rows of an image are not those that llama.cpp computes of it.",
    ),
    "replay.kernels": QT_TRANSLATE_NOOP(
        "messages",
        "The log was written on another processor, or with other kernels of llama.cpp, "
        "whose last bits may differ.",
    ),
    "replay.logits": QT_TRANSLATE_NOOP(
        "messages",
        "Pass {number}, row {row} (sequence {sequence}, position {position}): the logits "
        "are not those of stock llama.cpp.",
    ),
    "replay.memory": QT_TRANSLATE_NOOP(
        "messages", "Behind pass {number} llama.cpp answered {name} in another way."
    ),
    "replay.no_cell": QT_TRANSLATE_NOOP(
        "messages", "Pass {number} was not computed: the context has no free cell for its rows."
    ),
    "replay.no_context": QT_TRANSLATE_NOOP(
        "messages", "llama.cpp could not make the log's context."
    ),
    "replay.setting": QT_TRANSLATE_NOOP(
        "messages",
        "The log's context has {name}, which is not llama.cpp's default and is not compared.",
    ),
    "replay.no_device": QT_TRANSLATE_NOOP(
        "messages", "A device of the log is missing here: {device}."
    ),
    "replay.no_end": QT_TRANSLATE_NOOP(
        "messages",
        "The log has no end: its process still writes, was killed, or its last lines are missing.",
    ),
    "replay.no_such": QT_TRANSLATE_NOOP(
        "messages", "The log names {name}, which none of its entries before has."
    ),
    "replay.no_model": QT_TRANSLATE_NOOP("messages", "llama.cpp could not load {file}."),
    "replay.no_row": QT_TRANSLATE_NOOP(
        "messages", "Answer {answer}: a token was chosen by row {row}, which has no logits."
    ),
    "replay.not_best": QT_TRANSLATE_NOOP(
        "messages",
        "Answer {answer}: token {token} was chosen, but {best} is the most probable one.",
    ),
    "replay.other_model": QT_TRANSLATE_NOOP(
        "messages", "{file} is not the model of the log any more."
    ),
    "replay.other_text": QT_TRANSLATE_NOOP(
        "messages",
        "Answer {answer}, token {place}: it was chosen by row {row} of pass {number}, but "
        "from position {position} on sequence {sequence} does not hold this answer.",
    ),
    "replay.picture": QT_TRANSLATE_NOOP(
        "messages", "llama.cpp makes other parts of a prompt of an image of the log."
    ),
    "replay.position": QT_TRANSLATE_NOOP(
        "messages",
        "Pass {number}: position {position} of sequence {sequence} was computed, but the "
        "sequence has {n} positions.",
    ),
    "replay.rows": QT_TRANSLATE_NOOP(
        "messages", "Pass {number} has the logits of {n} rows instead of {all}."
    ),
    "replay.sent": QT_TRANSLATE_NOOP(
        "messages", "Answer {answer}: token {token} was sent, but {chosen} was chosen."
    ),
    "replay.state": QT_TRANSLATE_NOOP(
        "messages",
        "The state of positions {begin} to {end} is not the one that stock llama.cpp "
        "computes of these tokens.",
    ),
    "replay.checkpoint": QT_TRANSLATE_NOOP(
        "messages",
        "Behind pass {number} sequence {sequence} went back to a state that is not of its tokens.",
    ),
    "replay.window": QT_TRANSLATE_NOOP(
        "messages",
        "Pass {number} computed position {position} of sequence {sequence} without the whole "
        "window before it.",
    ),
    "replay.status": QT_TRANSLATE_NOOP(
        "messages", "Pass {number} was computed, but llama.cpp alone returns the status {status}."
    ),
    "replay.unknown": QT_TRANSLATE_NOOP(
        "messages", "The log has an entry {name}, which this version does not know."
    ),
    "replay.version": QT_TRANSLATE_NOOP(
        "messages",
        "The log was written with version {version} of llama-cpp-python, and this is {found}.",
    ),
}
