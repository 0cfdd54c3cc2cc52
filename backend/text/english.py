"""The English templates of all messages, by id: `area.what`.

A template is a sentence, or half of one that another template takes as a value (backend.text.Text
says how numbers are written).
"""

from __future__ import annotations

from collections.abc import Mapping


def QT_TR_NOOP(template: str) -> str:
    """Mark a template for Qt's tools, which collect it by this name in the context ""."""
    return template


ENGLISH: Mapping[str, str] = {
    # Attached files
    "attach.binary": QT_TR_NOOP(
        "{file} is neither text, a PDF, an image nor a document that can be read. Save it as PDF "
        "or text."
    ),
    "attach.damaged_document": QT_TR_NOOP(
        "{file} is a damaged document. Save it again, or as PDF."
    ),
    "attach.no_text_inside": QT_TR_NOOP("{file} has no text in it."),
    "attach.old_office": QT_TR_NOOP(
        "{file} is encrypted, or of an old Office. Save it without a password as .docx, .xlsx, "
        ".pptx or PDF."
    ),
    "attach.damaged": QT_TR_NOOP("{file} is a damaged PDF."),
    "attach.empty": QT_TR_NOOP("{file} is empty."),
    "attach.encrypted": QT_TR_NOOP("{file} is encrypted. Attach a copy without a password."),
    "attach.folder": QT_TR_NOOP("{file} is a folder. Attach the files that are in it."),
    "attach.no_file": QT_TR_NOOP("{file} is not a file that can be read."),
    "attach.no_text": QT_TR_NOOP("{file} has no text: its pages may be pictures."),
    "attach.damaged_picture": QT_TR_NOOP("{file} is a damaged image."),
    "attach.many_pixels": QT_TR_NOOP(
        "{file} has {n:count} pixels; at most {most:count} can be attached."
    ),
    "attach.other_picture": QT_TR_NOOP(
        "{file} is an image of a kind that cannot be read. Save it as PNG or JPEG."
    ),
    "attach.picture": QT_TR_NOOP("An attached file"),
    "attach.stopped": QT_TR_NOOP("{file} was not read to its end."),
    "attach.too_complex": QT_TR_NOOP("{file} takes too much time or memory to read."),
    "attach.save_picture": QT_TR_NOOP(
        "{file} is a {kind} image, which cannot be read here. Save it as PNG or JPEG, and attach "
        "that."
    ),
    "attach.too_large": QT_TR_NOOP("{file} has {n:size}; at most {most:size} can be attached."),
    "attach.too_long": QT_TR_NOOP(
        "{file} has more than {most:count} characters, the most of one attachment."
    ),
    "attach.too_many_pages": QT_TR_NOOP(
        "{file} has {n:count} pages; at most {most:count} can be attached."
    ),
    "attach.too_many": QT_TR_NOOP(
        "{file} is not attached: a question can have at most {most:count} files."
    ),
    "attach.unreadable": QT_TR_NOOP("{file} cannot be read: {reason}."),
    # Embeddings
    "embedding.empty": QT_TR_NOOP("A text is empty."),
    "embedding.failed": QT_TR_NOOP("llama.cpp could not compute a text."),
    "embedding.no_pooling": QT_TR_NOOP("{file} is no model for embeddings: it names no pooling."),
    "embedding.not_finite": QT_TR_NOOP("The embedding of a text has values that are not finite."),
    "embedding.only_ranks": QT_TR_NOOP("{file} ranks documents and makes no embeddings."),
    "embedding.ranks_not": QT_TR_NOOP("{file} makes embeddings and ranks no documents."),
    "embedding.too_long": QT_TR_NOOP(
        "A text has {n:count} characters, too many for {n_token:count} tokens."
    ),
    # Decisions of the adaptive method
    "auto.again": QT_TR_NOOP("{why}: the alternatives are tried again."),
    "auto.and_eviction": QT_TR_NOOP("{state} and {eviction} decides what leaves"),
    "auto.as_long": QT_TR_NOOP("tried over {n} tokens, a token took as long"),
    "auto.broken_off": QT_TR_NOOP("broken off, because the first tokens took too long"),
    "auto.comma": QT_TR_NOOP("{first}, {next}"),
    "auto.decided": QT_TR_NOOP("{chosen}: {figures}."),
    "auto.eviction": QT_TR_NOOP("Now {new} decides what leaves, instead of {old}"),
    "auto.hits_changed": QT_TR_NOOP("The hit rate went from {before:percent} to {after:percent}"),
    "auto.idle": QT_TR_NOOP("the drive was idle {idle:percent} of the time"),
    "auto.idle_changed": QT_TR_NOOP(
        "The idle share of the drive's time went from {before:percent} to {after:percent}"
    ),
    "auto.idle_without": QT_TR_NOOP("without it the drive was idle {idle:percent} of the time"),
    "auto.layers": QT_TR_NOOP("Forecasts are fetched {n} layers ahead"),
    "auto.less_time": QT_TR_NOOP("tried over {n} tokens, a token took {share:percent} less time"),
    "auto.more_time": QT_TR_NOOP("tried over {n} tokens, a token took {share:percent} more time"),
    "auto.one_layer": QT_TR_NOOP("Forecasts are fetched one layer ahead"),
    "auto.prefetch_off": QT_TR_NOOP("Prefetching is off"),
    "auto.prefetch_on": QT_TR_NOOP("Prefetching is on"),
    "auto.prefetch_stays_off": QT_TR_NOOP("Prefetching stays off"),
    "auto.prefetch_stays_on": QT_TR_NOOP("Prefetching stays on"),
    "auto.resident": QT_TR_NOOP(
        "{now:percent} of the experts were there instead of {before:percent}"
    ),
    "auto.still_eviction": QT_TR_NOOP("Still {old} decides what leaves, not {new}"),
    "auto.still_layers": QT_TR_NOOP("Forecasts are still fetched {old} layers ahead, not {new}"),
    "auto.still_one_layer": QT_TR_NOOP("Forecasts are still fetched one layer ahead, not {new}"),
    "auto.time_changed": QT_TR_NOOP("The time of a token went from {before} to {after} ms"),
    "auto.used": QT_TR_NOOP("{used:percent} of what was fetched ahead was used"),
    "auto.used_changed": QT_TR_NOOP(
        "The used share of what is fetched ahead went from {before:percent} to {after:percent}"
    ),
    "auto.cache_changed": QT_TR_NOOP("The cache is another one"),
    "auto.jointly": QT_TR_NOOP("With {n} answers at once: {line}"),
    "auto.rate": QT_TR_NOOP("The cache rate is {rate:percent}"),
    # General.
    "newer.no_address": QT_TR_NOOP(
        "This copy was made without an address to look for newer versions."
    ),
    "newer.unreadable": QT_TR_NOOP(
        "{host} does not say in a known form which version is the newest."
    ),
    "fault.missing": QT_TR_NOOP(
        "A part of this program is missing or damaged ({reason}). Install it again."
    ),
    "fault.unexpected": QT_TR_NOOP("Something unexpected failed ({kind}: {reason})."),
    "words.and": QT_TR_NOOP("{first} and {last}"),
    "words.about": QT_TR_NOOP("{what}: {sentence}"),
    # The engine's process.
    "exit.because": QT_TR_NOOP("The engine's process ended unexpectedly: {reason}."),
    "exit.check_failed": QT_TR_NOOP("llama.cpp stopped on a failed check ({check})"),
    "exit.closed": QT_TR_NOOP("The engine's process closed its pipe and was ended."),
    "exit.device_failed": QT_TR_NOOP("the device failed ({device}: {reason})"),
    "exit.device_failed_silently": QT_TR_NOOP("the device failed ({device}), and gave no reason"),
    "exit.device_gone": QT_TR_NOOP(
        "The engine's process ended unexpectedly: the remote device no longer answers. What was "
        "said is kept; choose another device, or load the model again when it is back."
    ),
    "exit.killed": QT_TR_NOOP(
        "it was killed (signal 9), most likely because memory ran out; a lower cache rate or a "
        "shorter context needs less"
    ),
    "exit.killed_by_other": QT_TR_NOOP(
        "it was killed (signal 9) by the user or another program; the memory had not run out"
    ),
    "exit.model_unreadable": QT_TR_NOOP(
        "the model file could not be read any more (signal {signal}); it may have been shortened, "
        "or its drive removed"
    ),
    "exit.no_error": QT_TR_NOOP("The engine's process ended unexpectedly without an error."),
    "exit.out_of_memory": QT_TR_NOOP(
        "memory ran out; a lower cache rate or a shorter context needs less"
    ),
    "exit.out_of_memory_signal": QT_TR_NOOP(
        "memory ran out (signal {signal}); a lower cache rate or a shorter context needs less"
    ),
    "exit.signal": QT_TR_NOOP("{what} (signal {signal})"),
    "exit.status": QT_TR_NOOP("The engine's process ended unexpectedly with status {status}."),
    "exit.unexpected": QT_TR_NOOP("something unexpected failed ({kind}: {reason})"),
    "exit.what.access": QT_TR_NOOP("it crashed (access violation)"),
    "exit.what.check": QT_TR_NOOP("it stopped on a failed check"),
    "exit.what.crash": QT_TR_NOOP("it crashed"),
    "exit.what.ended": QT_TR_NOOP("it was ended"),
    "exit.what.instruction": QT_TR_NOOP(
        "it crashed (this processor lacks an instruction that it needs)"
    ),
    "exit.what.library": QT_TR_NOOP("a library that it needs is missing"),
    "exit.what.memory": QT_TR_NOOP("memory ran out"),
    "exit.what.stack": QT_TR_NOOP("it crashed (stack overflow)"),
    "exit.what.told": QT_TR_NOOP("it was told to end"),
    "worker.garbled": QT_TR_NOOP("The engine sent something that could not be understood."),
    "worker.no_answer": QT_TR_NOOP("The engine's process does not answer."),
    "worker.no_progress": QT_TR_NOOP(
        "The engine runs but has made no progress for {minutes} minutes."
    ),
    "worker.not_started": QT_TR_NOOP("The engine could not be started."),
    "worker.not_started_because": QT_TR_NOOP("The engine could not be started: {reason}"),
    "worker.other_version": QT_TR_NOOP(
        "The engine's process is of another version than this program."
    ),
    "worker.silent": QT_TR_NOOP("The engine has not answered for {seconds} seconds."),
    "worker.unsendable": QT_TR_NOOP("The engine made a message that cannot be sent."),
    # Loading and computing.
    "engine.cannot_cache": QT_TR_NOOP(
        "The experts of the architecture {architecture} cannot be cached: {reason}."
    ),
    "engine.cancelled": QT_TR_NOOP("Loading was cancelled."),
    "engine.changed_file": QT_TR_NOOP(
        "{file} was changed or replaced after it was checked; load it again."
    ),
    "engine.embeds": QT_TR_NOOP(
        "{file} makes embeddings and writes no text. Choose it as the local server's model for "
        "embeddings."
    ),
    "engine.no_context": QT_TR_NOOP("The context could not be made: {reason}."),
    "engine.no_images": QT_TR_NOOP("This model cannot see images."),
    "batch.kind": QT_TR_NOOP(
        "{file} cannot be read as requests: its name must end in .jsonl, .csv or .txt."
    ),
    "batch.other_file": QT_TR_NOOP(
        "Line {line} of {file} is no answer to a request; give another name."
    ),
    "batch.no_column": QT_TR_NOOP("{file} has no column named prompt."),
    "batch.long_line": QT_TR_NOOP("The line is longer than {most:size}."),
    "batch.not_utf8": QT_TR_NOOP("The line is not UTF-8 text."),
    "batch.no_object": QT_TR_NOOP("The line is not a JSON object."),
    "batch.no_number": QT_TR_NOOP("A column that needs a number has none."),
    "batch.no_body": QT_TR_NOOP("The request has no body."),
    "batch.url": QT_TR_NOOP(
        "The URL {url} is not known; /v1/chat/completions and /v1/completions are."
    ),
    "group.asked": QT_TR_NOOP("{n} requests are computed at once."),
    "group.first": QT_TR_NOOP(
        "{n} requests are computed at once, in as few rounds as memory permits. What is measured "
        "meanwhile plans the next group."
    ),
    "group.memory": QT_TR_NOOP(
        "{n} requests of {cells} tokens are computed at once: memory does not permit {asked}."
    ),
    "group.not_sparse": QT_TR_NOOP(
        "This model has layers with a state, which cannot forget single tokens: sparse attention "
        "is not possible."
    ),
    "group.one": QT_TR_NOOP(
        "Requests are computed one by one: each may need {cells} tokens of memory."
    ),
    "group.paper": QT_TR_NOOP(
        "{n} requests are computed at once: with fewer, computing would wait for the drive "
        "(inequality {binding} of Klotski)."
    ),
    "group.reading": QT_TR_NOOP(
        "{n} requests are computed at once, but the drive stays slower than computing "
        "(inequality {binding} of Klotski); a higher cache rate would help."
    ),
    "group.faster": QT_TR_NOOP(
        "{n} requests are computed at once: {n_paper} would hide the drive, and more of them "
        "compute faster together."
    ),
    "group.most": QT_TR_NOOP(
        "{n} requests are computed at once, in as few rounds as memory permits; {n_paper} would "
        "hide the drive."
    ),
    "group.whole": QT_TR_NOOP(
        "The next layer is read whole while one is computed, which was measured to be faster."
    ),
    "group.streams": QT_TR_NOOP(
        "Their prompts are equally long, so each has an attention cache of its own."
    ),
    "engine.one_sequence": QT_TR_NOOP(
        "Answers of this model are computed one after the other: where several share a context, "
        "llama.cpp does not compute its sparse attention."
    ),
    "engine.no_load": QT_TR_NOOP("llama.cpp could not load {file}: {reason}."),
    "engine.no_memory": QT_TR_NOOP(
        "There is not enough memory; a lower cache rate or a shorter context needs less."
    ),
    "engine.no_model": QT_TR_NOOP("No model is loaded."),
    "engine.no_token": QT_TR_NOOP("There is no such token."),
    "engine.not_finite": QT_TR_NOOP(
        "The model computed NaN or infinite values, so the answer was stopped: {reason}."
    ),
    "engine.not_finite_layer": QT_TR_NOOP(
        "Layer {layer} of the model computed NaN or infinite values, so the answer was stopped: "
        "{reason}."
    ),
    "engine.not_finite_file": QT_TR_NOOP(
        "its file may be damaged, so fetch it again or take another model"
    ),
    "engine.wrong_expert": QT_TR_NOOP(
        "Expert {expert} of layer {layer} in memory differed from the model's file, so earlier "
        "answers may be wrong. It is read again; if this comes back, test the machine's memory."
    ),
    "engine.too_much_sent": QT_TR_NOOP(
        "The chat and its images are larger than {most:size}, the most at once."
    ),
    "draft.no_states": QT_TR_NOOP("llama.cpp does not tell its hidden states"),
    "draft.layer_not_used": QT_TR_NOOP(
        "The layer of {file} that predicts further words guesses nothing: {reason}."
    ),
    "draft.no_graph": QT_TR_NOOP("llama.cpp computes no such layer of {architecture}"),
    "draft.no_way_back": QT_TR_NOOP("llama.cpp cannot take a token of {architecture} back"),
    "draft.no_parts": QT_TR_NOOP("parts of it are missing"),
    "draft.many_layers": QT_TR_NOOP(
        "llama.cpp computes such a layer of {architecture} only where it is the only one"
    ),
    "draft.not_alone": QT_TR_NOOP(
        "with its states that is possible for one request at a time only"
    ),
    "draft.in_memory_only": QT_TR_NOOP("with recurrent states that is possible in memory only"),
    "draft.layer_on_device": QT_TR_NOOP(
        "The model's layer that predicts further words runs on the processor only, so only "
        "repetitions are guessed."
    ),
    "draft.layer_too_large": QT_TR_NOOP(
        "Memory for the model's layer that predicts further words lacks {missing:size}, so only "
        "repetitions are guessed."
    ),
    "vision.left_out": QT_TR_NOOP(
        "The chat template of {model} leaves images out, so it cannot be sent any."
    ),
    "vision.no_vision": QT_TR_NOOP("{file} is no file with which a model sees images."),
    "vision.not_loaded": QT_TR_NOOP("{file} cannot be used with this model: {reason}."),
    "vision.old_model": QT_TR_NOOP(
        "{model} was converted without what images need. Take a newer file of this model."
    ),
    "vision.not_read": QT_TR_NOOP("The model could not read an image: {reason}."),
    "vision.too_many_tokens": QT_TR_NOOP(
        "An image needs {n:count} tokens in one pass, but memory permits only {most:count}."
    ),
    "engine.not_pinned": QT_TR_NOOP(
        "{bytes:size} of RAM for experts could not be pinned, so copies to devices take longer."
    ),
    "engine.prompt_too_long": QT_TR_NOOP(
        "The prompt has {n:count} tokens, but the context holds only {n_context:count}."
    ),
    "engine.slots_too_large": QT_TR_NOOP(
        "The slots of {tensor} need {bytes:size} in one piece, more than {device} allows; a lower "
        "cache rate needs less."
    ),
    "engine.stage_weights": QT_TR_NOOP("Reading the weights"),
    "grammar.beginning": QT_TR_NOOP(
        "The grammar does not fit the beginning of the answer in the prompt."
    ),
    "grammar.invalid": QT_TR_NOOP("The grammar is invalid: {reason}."),
    "grammar.no_trigger": QT_TR_NOOP("The grammar has no trigger that says where it begins."),
    "grammar.nul": QT_TR_NOOP("it has a character NUL"),
    "sampling.no_grammar": QT_TR_NOOP(
        "Probabilities after sampling cannot be given for an answer that a grammar constrains."
    ),
    "grammar.stuck": QT_TR_NOOP("No token of the model fits the grammar of the answer."),
    "grammar.too_large": QT_TR_NOOP("The grammar is too large or too deeply nested."),
    "grammar.unparsable": QT_TR_NOOP("it cannot be parsed"),
    "schema.impossible": QT_TR_NOOP("No value fits the JSON schema."),
    "schema.malformed": QT_TR_NOOP("The JSON schema is malformed."),
    "schema.no_library": QT_TR_NOOP(
        "Answers under a JSON schema need the package llguidance, which is missing."
    ),
    "schema.too_complex": QT_TR_NOOP("The JSON schema is too complex."),
    "schema.too_deep": QT_TR_NOOP("The JSON schema is nested too deeply."),
    "schema.unsupported": QT_TR_NOOP(
        "The JSON schema uses {what}, which answers cannot be held to."
    ),
    "schema.unused": QT_TR_NOOP("The chat format of {model} cannot hold answers to a JSON schema."),
    "template.failed": QT_TR_NOOP("The chat template of {model} failed: {reason}."),
    "template.shortened": QT_TR_NOOP(
        "The oldest {n} messages were left out, because the chat template would take too long."
    ),
    "template.no_tools": QT_TR_NOOP("The chat template of {model} has no form for tool calls."),
    "template.too_slow": QT_TR_NOOP("The chat template of {model} takes too long."),
    "engine.context_only_f16": QT_TR_NOOP(
        "The attention cache of {architecture} models can only be of type f16."
    ),
    "engine.context_too_small": QT_TR_NOOP(
        "The attention heads of this model are too small for a cache of type {type}."
    ),
    "engine.no_cache_memory": QT_TR_NOOP(
        "There is not enough memory for the expert cache; a lower cache rate needs less."
    ),
    "engine.no_llama": QT_TR_NOOP("llama-cpp-python {version} is not installed."),
    "engine.no_tokens": QT_TR_NOOP("The text could not be split into tokens."),
    "engine.not_opened": QT_TR_NOOP("The file {file} could not be opened: {reason}."),
    "engine.old_native": QT_TR_NOOP(
        "The C++ sources have changed since the native part was built. Run `make native`, and start"
        " again."
    ),
    "engine.other_llama": QT_TR_NOOP(
        "llama-cpp-python {found} is installed, but Outrider needs exactly {version}."
    ),
    "engine.pass_failed": QT_TR_NOOP("llama.cpp could not compute a token (status {status})."),
    "engine.waiting_many": QT_TR_NOOP("More than {n} requests are waiting for the engine."),
    "template.ended": QT_TR_NOOP("its process ended unexpectedly (status {status})"),
    "template.long_conversation": QT_TR_NOOP("the conversation is too long for it"),
    "template.long_prompt": QT_TR_NOOP("it made a prompt of absurd length"),
    "template.memory": QT_TR_NOOP("it needs too much memory"),
    "template.not_started": QT_TR_NOOP("its process could not be started: {reason}"),
    # Plans: the contents of memory, and why they differ from the settings.
    "runs.cached": QT_TR_NOOP(
        "{rate:percent} of the experts are in memory, {n:count} of each layer, chosen by the "
        "method {method}."
    ),
    "runs.resident": QT_TR_NOOP("Every expert is in memory, so no answer waits for the disk."),
    "runs.uncached": QT_TR_NOOP("llama.cpp runs without the expert cache."),
    "memory.rate_by_hand": QT_TR_NOOP(
        "The cache rate is {rate:percent} by hand; automatic it would be {automatic:percent}."
    ),
    "memory.context_by_hand": QT_TR_NOOP(
        "The context is {n:count} tokens by hand; automatic it would be {automatic:count}."
    ),
    "memory.method_by_hand": QT_TR_NOOP(
        "The method is {method} by hand; automatic it would be chosen by what is measured."
    ),
    "memory.all_resident": QT_TR_NOOP("every expert is in memory"),
    "memory.context": QT_TR_NOOP("A context of {n:count} tokens takes {bytes:size} there."),
    "memory.context_shortened": QT_TR_NOOP(
        "The context is {n:count} tokens instead of {wanted:count}, so that more layers fit; it "
        "takes {bytes:size} there."
    ),
    "memory.cpu_slots": QT_TR_NOOP(
        "Of the CPU's layers it keeps {n} of {all} experts, in {bytes:size}."
    ),
    "memory.dense": QT_TR_NOOP("A dense model has no experts to cache."),
    "memory.mapped": QT_TR_NOOP(
        "Memory for the dense part of {dense:size} lacks {missing:size}: it is read from the file "
        "again and again, which is slow."
    ),
    "memory.fewer_slots": QT_TR_NOOP(
        "{free:size} of memory are free: {n} of {all} experts of each layer are kept instead of "
        "{wanted}."
    ),
    "memory.kept_there": QT_TR_NOOP(
        "Kept there are {n} of {all} experts of each layer, as asked, in {bytes:size}."
    ),
    "memory.kept_there_fewer": QT_TR_NOOP(
        "Kept there are {n} of {all} experts of each layer instead of {wanted}, in {bytes:size}; "
        "{left:size} are left to others."
    ),
    "memory.layers_all": QT_TR_NOOP("All {n} layers are computed by {devices}."),
    "memory.layers_last": QT_TR_NOOP(
        "The last {n} of {all} layers are computed by {devices}, whose memory holds no more; the "
        "CPU computes the others."
    ),
    "memory.layers_none": QT_TR_NOOP(
        "The memory of {devices} holds not even one layer: the CPU computes."
    ),
    "memory.no_experts": QT_TR_NOOP("it is a dense model, without experts"),
    "memory.not_stacked": QT_TR_NOOP(
        "the experts of this {architecture} file are not stored as stacked tensors"
    ),
    "memory.others_need": QT_TR_NOOP(
        "Other programs need memory: {n} of {all} experts of each layer are kept instead of "
        "{wanted}."
    ),
    "memory.others_need_cpu": QT_TR_NOOP(
        "Other programs need memory: RAM keeps {n} experts of each layer of the CPU's instead of "
        "{before}."
    ),
    "memory.others_need_device": QT_TR_NOOP(
        "Other programs need the device's memory: {n} of {all} experts of each layer are kept "
        "there instead of {wanted}."
    ),
    "memory.others_need_store": QT_TR_NOOP(
        "Other programs need memory: RAM keeps {n} experts of each layer for the device instead "
        "of {before}."
    ),
    "memory.prompts": QT_TR_NOOP("Prompts copy the experts once for every {n} tokens."),
    "memory.prompts_staged": QT_TR_NOOP(
        "Prompts copy the experts once for every {n} tokens, through {bytes:size} beside the "
        "slots, ahead of the layers that need them."
    ),
    "memory.ram_all": QT_TR_NOOP("RAM keeps all of them, in {bytes:size}: the file is read once."),
    "memory.ram_less": QT_TR_NOOP(
        "RAM keeps {n} of {all} experts of each layer, in {bytes:size} instead of {asked:size}; "
        "the others are read from the file."
    ),
    "memory.ram_none_asked": QT_TR_NOOP("RAM keeps no experts for devices, as asked."),
    "memory.ram_none_fits": QT_TR_NOOP(
        "The {bytes:size} of RAM that may keep experts hold not one of each layer: nearly all are "
        "read from the file."
    ),
    "memory.ram_some": QT_TR_NOOP(
        "RAM keeps {n} of {all} experts of each layer, in {bytes:size}; the others are read from "
        "the file."
    ),
    "memory.stock_faster": QT_TR_NOOP(
        "A cache would save only {saved:size}, so llama.cpp runs unpatched, which is faster."
    ),
    "memory.stock_faster_all": QT_TR_NOOP(
        "llama.cpp runs unpatched, which is faster where the whole model fits into memory."
    ),
    # Methods.
    "method.auto": QT_TR_NOOP(
        "Starts reactive, measures what prefetching and other evictions bring on this machine "
        "with this model, and keeps what pays."
    ),
    "method.outrider": QT_TR_NOOP(
        "As promoe, but what was used most often of late stays, not what was used last."
    ),
    "method.outrider_recall": QT_TR_NOOP(
        "As promoe, but what followed at moments like the present one stays: for slow drives."
    ),
    "method.promoe": QT_TR_NOOP(
        "Prefetches what a predictor expects of the next layers; needed experts overtake, ready "
        "ones are computed first."
    ),
    "method.moepic": QT_TR_NOOP(
        "Keeps the top parts of hot experts and fetches the bottoms while the tops compute; sizes "
        "and cuts are fitted to what was measured."
    ),
    "method.moepic_uniform": QT_TR_NOOP(
        "As moepic, but every layer has the same slots and every expert is cut in the middle."
    ),
    "method.duoserve": QT_TR_NOOP(
        "Passes experts through a few slots: in prompts one after the other, then what is "
        "predicted for the next layer."
    ),
    "method.moe_infinity": QT_TR_NOOP(
        "Remembers which experts past requests used and fetches what the most similar ones did; "
        "one pool for all layers."
    ),
    "method.klotski": QT_TR_NOOP(
        "For many requests at once: computes an expert for all their tokens, hot ones first, while "
        "others are read; the hottest stay in memory or are fetched ahead."
    ),
    "method.klotski_layers": QT_TR_NOOP(
        "A step of Klotski's ablation: the whole next layer is fetched ahead, in the router's "
        "order."
    ),
    "method.klotski_hot": QT_TR_NOOP(
        "The next step: only the hottest experts are fetched ahead, still in the router's order."
    ),
    "method.klotski_order": QT_TR_NOOP(
        "The last step, Klotski as in the paper: the leading layers stay in memory, and the "
        "experts that most tokens need are computed first."
    ),
    "method.lru": QT_TR_NOOP(
        "Reads an expert when its turn to be computed comes, and keeps the most recently used."
    ),
    "method.lru_overlapped": QT_TR_NOOP(
        "As lru, but at the gate all missing experts are ordered, and computed as they arrive."
    ),
    "method.lfu": QT_TR_NOOP(
        "Reads an expert when its turn to be computed comes, and keeps the most often used."
    ),
    "method.static": QT_TR_NOOP(
        "Keeps a fixed set, the most used of the first tokens; others pass through."
    ),
    "method.random": QT_TR_NOOP(
        "Reads an expert when its turn to be computed comes; any one may leave."
    ),
    "method.unified": QT_TR_NOOP(
        "Stock llama.cpp: the operating system pages the file in and out."
    ),
    "method.layer_offload": QT_TR_NOOP(
        "Stock llama.cpp: the experts are computed by the processor, where they lie."
    ),
    "method.promoe_prefetch": QT_TR_NOOP(
        "The first step of ProMoE's ablation: prefetching, and nothing else."
    ),
    "method.promoe_chunks": QT_TR_NOOP("The second step: prefetching matrix by matrix."),
    "method.promoe_preempt": QT_TR_NOOP("The third step: needed experts overtake predicted ones."),
    "method.promoe_reorder": QT_TR_NOOP("The fourth step: what is ready is computed first."),
    "method.belady": QT_TR_NOOP(
        "The optimal eviction: what is needed last leaves. It knows the trace."
    ),
    "method.oracle": QT_TR_NOOP(
        "Perfect prediction far ahead, with the optimal eviction. It knows the trace."
    ),
    # Devices.
    "device.form": QT_TR_NOOP("A remote device is written rpc://host:port, not {given}."),
    "device.no_rpc_server": QT_TR_NOOP("What answers at {address} is no rpc server of llama.cpp."),
    "device.silent": QT_TR_NOOP(
        "The device server at {address} does not answer; it may be serving somebody else."
    ),
    "device.unknown": QT_TR_NOOP("There is no device {device} here; known are {known}."),
    "device.unreachable": QT_TR_NOOP("No device server can be reached at {address} ({reason})."),
    "device.version": QT_TR_NOOP(
        "The rpc server at {address} speaks version {version} of its protocol; version {needed} "
        "is needed."
    ),
    "device.alone": QT_TR_NOOP("The device {device} cannot be combined with others."),
    "device.empty": QT_TR_NOOP("The device must be auto, cpu, a device's name or rpc://host:port."),
    "device.no_remote": QT_TR_NOOP("llama.cpp could not use the device server: {reason}."),
    # Model files and the library.
    "model.architecture": QT_TR_NOOP("its architecture {architecture} is not known to llama.cpp"),
    "model.bad_value": QT_TR_NOOP("the tensor {tensor} has a value that is NaN or infinite"),
    "model.bad_value_in_block": QT_TR_NOOP(
        "the tensor {tensor} has a value that is NaN or infinite, in block {block}"
    ),
    "model.diffusion": QT_TR_NOOP(
        "it is a diffusion model ({architecture}), which fills in a whole answer at once; only "
        "models that write token by token can be used"
    ),
    "model.empty": QT_TR_NOOP("it is empty"),
    "model.folder": QT_TR_NOOP("it is a folder"),
    "model.no_sense": QT_TR_NOOP("its numbers make no sense"),
    "model.no_vocabulary": QT_TR_NOOP("it has no vocabulary, so it can read no text"),
    "model.not_gguf": QT_TR_NOOP(
        "it is not a GGUF file, as it does not begin with the letters GGUF"
    ),
    "model.part_missing": QT_TR_NOOP("part {part} of {n} of the model is missing"),
    "model.path_bytes": QT_TR_NOOP(
        "its path holds bytes that are not UTF-8; rename the file or its folder"
    ),
    "model.truncated": QT_TR_NOOP("it is truncated: {detail}"),
    "model.unreadable": QT_TR_NOOP("it cannot be read ({reason})"),
    "model.unusable": QT_TR_NOOP("{file} cannot be used: {reason}."),
    "library.file_forbidden": QT_TR_NOOP("it may not be read"),
    "library.file_gone": QT_TR_NOOP("the file is gone"),
    "library.folder_below": QT_TR_NOOP("its folder {folder} {trouble}"),
    "library.folder_forbidden": QT_TR_NOOP("may not be read"),
    "library.folder_gone": QT_TR_NOOP("is not there"),
    "library.folder_unreadable": QT_TR_NOOP("cannot be read ({reason})"),
    "library.folders": QT_TR_NOOP("The list of folders"),
    "library.link_broken": QT_TR_NOOP("it is a link to a file that is gone"),
    "library.no_folder": QT_TR_NOOP("is not a folder"),
    "library.part_missing": QT_TR_NOOP("part {part} of {n} is missing"),
    "library.parts_missing": QT_TR_NOOP("the parts {parts} of {n} are missing"),
    "library.parts_missing_many": QT_TR_NOOP("the parts {parts} and more of {n} are missing"),
    "library.too_many_folders": QT_TR_NOOP(
        "has more than {n:count} folders; the others were left out"
    ),
    "checksum.changed": QT_TR_NOOP(
        "{file} changed while it was read. Check it again when nothing writes to it."
    ),
    "checksum.differs": QT_TR_NOOP(
        "{file} is damaged or was changed: its SHA-256 is not what {source} states."
    ),
    "checksum.equal": QT_TR_NOOP(
        "{file} is complete and unchanged: its SHA-256 is what {source} states."
    ),
    "checksum.equal_parts": QT_TR_NOOP(
        "All {n} parts are complete and unchanged: their SHA-256 are what {source} states."
    ),
    "checksum.get_again": QT_TR_NOOP("Download it again."),
    "checksum.repository": QT_TR_NOOP("its repository"),
    "checksum.stopped": QT_TR_NOOP("The check was stopped."),
    "checksum.unknown": QT_TR_NOOP(
        "The origin of {file} is not known. Compare its SHA-256 with the one that the page of its "
        "repository shows."
    ),
    "file.damaged": QT_TR_NOOP("it is damaged ({detail})"),
    "file.foreign": QT_TR_NOOP("it is not a file of Outrider's"),
    "file.incomplete": QT_TR_NOOP("it is cut short or damaged"),
    "file.newer": QT_TR_NOOP(
        "it is of version {version}, and this Outrider knows only up to {newest}"
    ),
    "file.no_folder": QT_TR_NOOP("there is no such folder"),
    "file.no_memory": QT_TR_NOOP("there is not enough memory for it"),
    "file.not_regular": QT_TR_NOOP("it is not a regular file"),
    "file.not_read": QT_TR_NOOP("{file} could not be read: {reason}."),
    "file.not_utf8": QT_TR_NOOP("{file} is not UTF-8 text."),
    "file.not_written": QT_TR_NOOP("{file} could not be written: {reason}."),
    "file.other_kind": QT_TR_NOOP("it is no {kind} file, but says that it is {found}"),
    "file.other_model": QT_TR_NOOP("it was made for another model"),
    "file.other_sizes": QT_TR_NOOP("it was made for a model of other sizes"),
    "file.bad_name": QT_TR_NOOP("its name is not valid"),
    "file.shorter": QT_TR_NOOP("it became shorter while it was read"),
    "file.taken": QT_TR_NOOP("there is something else of that name"),
    "file.truncated": QT_TR_NOOP("it is cut short"),
    "weights.other_predictor": QT_TR_NOOP("it is of the predictor {name}"),
    "weights.too_large": QT_TR_NOOP("it is too large for a predictor"),
    "weights.unfit": QT_TR_NOOP("its contents make no predictor ({detail})"),
    "weights.unknown": QT_TR_NOOP(
        "it is of a predictor called {name}, which this Outrider does not know"
    ),
    "pack.damaged": QT_TR_NOOP(
        "{file} is damaged: expert {expert} of layer {layer} is not what was written. "
        "Delete it or write it again."
    ),
    "pack.file_missing": QT_TR_NOOP(
        "its file {file} is missing; connect that drive, or write the pack again"
    ),
    "pack.file_of_other": QT_TR_NOOP("its file {file} is of another pack, or damaged"),
    "pack.folder_twice": QT_TR_NOOP("The folder {folder} is named twice."),
    "pack.fast_already": QT_TR_NOOP(
        "This processor computes this model's experts fastest as they are."
    ),
    "pack.in_use": QT_TR_NOOP(
        "{file} is in use, and cannot be replaced. Unload the model, then write the pack again."
    ),
    "pack.locked": QT_TR_NOOP("{file} is being written by another program."),
    "pack.model_shorter": QT_TR_NOOP("the model's file has become shorter"),
    "pack.needless": QT_TR_NOOP("this processor computes this model's experts fastest as they are"),
    "pack.no_experts": QT_TR_NOOP("This model has no experts to pack."),
    "pack.no_folder": QT_TR_NOOP("There is no folder {folder}."),
    "pack.no_pack": QT_TR_NOOP("it is no pack, or a damaged one"),
    "pack.no_room": QT_TR_NOOP(
        "{file} needs {needed:size}, and only {free:size} are free in {folder}."
    ),
    "pack.not_measured": QT_TR_NOOP("The gain of a pack could not be measured: {reason}."),
    "pack.not_used": QT_TR_NOOP("{file} is not used: {reason}."),
    "pack.other_processor": QT_TR_NOOP("it was made for another processor or llama.cpp"),
    "pack.other_version": QT_TR_NOOP("another version of Outrider made it"),
    "pack.slow_folder": QT_TR_NOOP(
        "The drive of {folder} is too slow to help: {speed:size} per second, and another one "
        "reads {others:size}."
    ),
    "pack.slower": QT_TR_NOOP("its drive reads {pack:size} per second, the model's {model:size}"),
    "pack.stopped": QT_TR_NOOP(
        "Packing was stopped; it continues there when it is asked for again."
    ),
    "pack.write_again": QT_TR_NOOP("{reason}; write the pack again"),
    "gguf.alignment": QT_TR_NOOP(
        "general.alignment is {n}, which is not a power of two from 8 to {most}"
    ),
    "gguf.alignment_type": QT_TR_NOOP("general.alignment is not an unsigned 32-bit integer"),
    "gguf.array_of_arrays": QT_TR_NOOP("{what} is an array of arrays, which is not allowed"),
    "gguf.array_type": QT_TR_NOOP("{what} is an array of the unknown value type {type}"),
    "gguf.became_shorter": QT_TR_NOOP("it became shorter while it was read, inside {what}"),
    "gguf.beyond_end": QT_TR_NOOP(
        "it is incomplete: {n:size} of at least {end:size} are here ({what} is missing); download "
        "it again"
    ),
    "gguf.big_endian": QT_TR_NOOP("it is written in big-endian byte order, which is not supported"),
    "gguf.changed": QT_TR_NOOP("it was changed while it was read"),
    "gguf.claims_items": QT_TR_NOOP("{what} claims {n} items, more than the file has room for"),
    "gguf.claims_left": QT_TR_NOOP("{what} claims {n} bytes, more than the file has left"),
    "gguf.claims_most": QT_TR_NOOP("{what} claims {n} bytes, and {most} are allowed"),
    "gguf.dimension": QT_TR_NOOP("a dimension of {what}"),
    "gguf.dimensions": QT_TR_NOOP("{what} has {n} dimensions, not 1 to {most}"),
    "gguf.empty_name": QT_TR_NOOP("{what} is empty"),
    "gguf.ends_inside": QT_TR_NOOP("it ends inside {what}"),
    "gguf.gap": QT_TR_NOOP(
        "the offset of {what} is {offset}, not {expected}: it leaves a gap before"
    ),
    "gguf.implausible": QT_TR_NOOP("{what} is {n}, and more than {most} is not plausible"),
    "gguf.item": QT_TR_NOOP("item {n} of {what}"),
    "gguf.item_type": QT_TR_NOOP("the item type of {what}"),
    "gguf.key": QT_TR_NOOP("the metadata key {key}"),
    "gguf.key_name": QT_TR_NOOP("the name of metadata key {n}"),
    "gguf.length": QT_TR_NOOP("the length of {what}"),
    "gguf.long_header": QT_TR_NOOP("its header is longer than {most:size} at {what}"),
    "gguf.magic": QT_TR_NOOP("the magic bytes"),
    "gguf.many_strings": QT_TR_NOOP("{what} has {n} strings, and {most} in all are allowed"),
    "gguf.n_dimension": QT_TR_NOOP("the number of dimensions of {what}"),
    "gguf.n_key": QT_TR_NOOP("the number of metadata keys"),
    "gguf.n_tensor": QT_TR_NOOP("the number of tensors"),
    "gguf.name_bytes": QT_TR_NOOP("{what} has {n} bytes, not 1 to {most}"),
    "gguf.not_utf8": QT_TR_NOOP("{what} is not valid UTF-8"),
    "gguf.offset": QT_TR_NOOP("the offset of {what}"),
    "gguf.overflow": QT_TR_NOOP("the dimensions of {what} overflow: they multiply to {n} values"),
    "gguf.overlap": QT_TR_NOOP(
        "the offset of {what} is {offset}, not {expected}: it overlaps the one before"
    ),
    "gguf.rows": QT_TR_NOOP(
        "{what} has rows of {n} values, which are not whole {type} blocks of {block}"
    ),
    "gguf.some_item": QT_TR_NOOP("an item of {what}"),
    "gguf.tensor": QT_TR_NOOP("the tensor {tensor}"),
    "gguf.tensor_name": QT_TR_NOOP("the name of tensor {n}"),
    "gguf.tensor_type": QT_TR_NOOP("{what} has the unknown tensor type {type}"),
    "gguf.too_short": QT_TR_NOOP("{what} is {n}, and the file is too short for that"),
    "gguf.twice": QT_TR_NOOP("{what} appears twice"),
    "gguf.type": QT_TR_NOOP("the type of {what}"),
    "gguf.value_type": QT_TR_NOOP("{what} has the unknown value type {type}"),
    "gguf.version": QT_TR_NOOP("the version"),
    "gguf.unknown_version": QT_TR_NOOP(
        "its GGUF version is {version}, and only 2 and 3 are supported"
    ),
    "gguf.zero_dimension": QT_TR_NOOP("{what} has a dimension of zero"),
    "model.groups": QT_TR_NOOP("{key} is {n}, no divisor of {all} experts"),
    "model.heads_fill": QT_TR_NOOP(
        "{key} is {n}, and {n} heads of {size} values do not make the {all} needed"
    ),
    "model.index_length": QT_TR_NOOP(
        "{key} is {value}, and llama.cpp cannot rotate keys of this length"
    ),
    "model.index_short": QT_TR_NOOP("{key} is {value}, but positions turn {n} values of each key"),
    "model.key_items": QT_TR_NOOP("{key} has {n} items for {layers} layers"),
    "model.key_missing": QT_TR_NOOP("{key} is missing"),
    "model.key_not_string": QT_TR_NOOP("{key} is not a string"),
    "model.key_not_whole": QT_TR_NOOP("{key} is not a whole number"),
    "model.key_range": QT_TR_NOOP("{key} is {value}, and {low} to {high} is allowed"),
    "model.key_type": QT_TR_NOOP("{key} is not of the type {type}"),
    "model.layer_beyond": QT_TR_NOOP("{what} belongs to a layer beyond the {n} layers"),
    "model.many_parts": QT_TR_NOOP("split.count is {n}, and {most} are allowed"),
    "model.n_expert": QT_TR_NOOP("{what} holds {n} experts, but expert_count is {all}"),
    "model.negative": QT_TR_NOOP("{key} is {value}, and has to be 0 or more"),
    "model.no_attention": QT_TR_NOOP(
        "{key} gives none of the {n} layers attention over the whole context"
    ),
    "model.no_tensors": QT_TR_NOOP("it has no tensors"),
    "model.no_window": QT_TR_NOOP("{key} gives none of the {n} layers a window"),
    "model.not_finite": QT_TR_NOOP("{key} is {value}, which is not a finite number"),
    "model.not_positive": QT_TR_NOOP("{key} is {value}, and has to be more than 0"),
    "model.other_part": QT_TR_NOOP("{key} does not say that it is part {part} of {n} of the model"),
    "model.part_joined": QT_TR_NOOP(
        "it begins as part {part} of {n}, and other parts were put behind it; such parts cannot be "
        "joined in this way: open the first of them as it was downloaded, beside the others"
    ),
    "model.part_name": QT_TR_NOOP("it is part {part} of {n}, so its name has to end in {ending}"),
    "model.part_number": QT_TR_NOOP("split.no is {number}, but the model has {n} parts"),
    "model.part_of_another": QT_TR_NOOP("it is part of another model, as {key} differs"),
    "model.piece": QT_TR_NOOP(
        "it is a piece of a file that was cut; join all pieces in their order into {whole}, as "
        "with: {command}"
    ),
    "model.part_tensors": QT_TR_NOOP(
        "split.tensors.count is {n}, but its {parts} parts have {found}"
    ),
    "model.tensor_twice": QT_TR_NOOP("the tensor {tensor} is in part {part} as well"),
    "model.shared_width": QT_TR_NOOP(
        "{key} makes the shared experts {wanted} wide, but {what} is {n} wide; llama.cpp does not "
        "load it"
    ),
    "model.three_dimensions": QT_TR_NOOP("{what} has {n} dimensions instead of 3"),
    "model.no_kernel": QT_TR_NOOP(
        "{what} is of the type {type}, with which llama.cpp cannot compute"
    ),
    "model.token_twice": QT_TR_NOOP("the token {token} appears twice in its vocabulary"),
    "model.used_missing": QT_TR_NOOP("{key} is missing or zero, but expert_count is {all}"),
    "model.used_too_many": QT_TR_NOOP("{key} is {n}, more than expert_count, which is {all}"),
    "model.whole_heads": QT_TR_NOOP(
        "{key} is {value}, but has to be {n}, as many as the keys of a head"
    ),
    # Downloads.
    "download.address_form": QT_TR_NOOP(
        "'{given}' is neither a repository, such as owner/name, nor an address."
    ),
    "download.bad_answer": QT_TR_NOOP(
        "{host} gave an answer that was not expected (HTTP {status})."
    ),
    "download.bad_redirect": QT_TR_NOOP("{host} redirects to an address that cannot be used."),
    "download.broke": QT_TR_NOOP("The connection to {host} broke."),
    "download.certificates_unusable": QT_TR_NOOP(
        "A file that the environment names cannot be used ({named}): {reason}."
    ),
    "download.changed": QT_TR_NOOP("The file on {host} is no longer the one that was listed."),
    "download.circle": QT_TR_NOOP("{host} redirects again and again, and never to a file."),
    "download.damaged": QT_TR_NOOP(
        "{file} arrived damaged: its checksum is not the one that {host} states. It has to be "
        "fetched again."
    ),
    "download.disabled": QT_TR_NOOP("{host} has disabled this repository."),
    "download.drive_full": QT_TR_NOOP("The drive of {folder} is full. What has arrived is kept."),
    "download.encoded": QT_TR_NOOP("{host} sends the file compressed, which was not asked for."),
    "download.expired": QT_TR_NOOP(
        "{host} refuses the address (HTTP {status}), which was valid until {at:clock}. Copy a new "
        "one from where you found it."
    ),
    "download.failed": QT_TR_NOOP("The download failed: {reason}."),
    "download.file_exists": QT_TR_NOOP("There is another file named {file} in {folder}."),
    "download.challenge": QT_TR_NOOP("{host} lets only browsers in at the moment (HTTP {status})."),
    "download.forbidden": QT_TR_NOOP("{host} does not let you have this (HTTP {status})."),
    "download.gated": QT_TR_NOOP(
        "This repository is gated: accept its conditions on its page in a browser, and enter a "
        "token of the same account in Get models, or set HF_TOKEN to it."
    ),
    "download.list": QT_TR_NOOP("The list of downloads"),
    "download.law": QT_TR_NOOP("{host} does not give this for reasons of law (HTTP {status})."),
    "download.locked": QT_TR_NOOP("Another window or program is downloading this file."),
    "download.needs_token": QT_TR_NOOP(
        "{host} asks for a token (HTTP 401). Enter yours in Get models, or set HF_TOKEN to it."
    ),
    "download.network_login": QT_TR_NOOP(
        "The network asks for a login (HTTP 511): open a page in a browser."
    ),
    "download.no_address": QT_TR_NOOP("{address} is not an address to download from."),
    "download.no_file": QT_TR_NOOP("There is no such file on {host} (HTTP {status})."),
    "download.no_file_name": QT_TR_NOOP("The address does not end in the name of a GGUF file."),
    "download.no_model": QT_TR_NOOP("There is no GGUF model in {place}."),
    "download.no_range": QT_TR_NOOP("{host} does not send the rest of the file (HTTP {status})."),
    "download.no_repository": QT_TR_NOOP(
        "There is no such repository on {host}, or it is private and needs a token (in Get models, "
        "or HF_TOKEN)."
    ),
    "download.no_revision": QT_TR_NOOP("The repository on {host} has no such revision."),
    "download.no_room": QT_TR_NOOP(
        "There is too little room on the drive of {folder}: {needed:size} are needed and "
        "{margin:size} to spare, and {free:size} are free."
    ),
    "download.no_sense": QT_TR_NOOP("{host} sent an answer that makes no sense."),
    "download.no_size": QT_TR_NOOP("{host} does not say how large the file is."),
    "download.not_there": QT_TR_NOOP(
        "{place} no longer has {file}. Search for its name to find others like it."
    ),
    "download.not_gguf": QT_TR_NOOP("What {host} sends from this address is not a GGUF file."),
    "download.nothing_written": QT_TR_NOOP("Nothing can be written to {folder}."),
    "download.offline": QT_TR_NOOP("HF_HUB_OFFLINE is set, so nothing is downloaded."),
    "download.other_range": QT_TR_NOOP(
        "{host} sent another part of the file than the one that was asked for."
    ),
    "download.out_of_order": QT_TR_NOOP("{host} is out of order at the moment (HTTP {status})."),
    "download.packed": QT_TR_NOOP("it is packed ({file}), and has to be unpacked first"),
    "download.page": QT_TR_NOOP(
        "{host} sent a web page instead. Does a browser show a login there?"
    ),
    "download.parts_there": QT_TR_NOOP("only {n} of its {all} parts are there"),
    "download.part_missing": QT_TR_NOOP("a part of it is missing"),
    "download.payment": QT_TR_NOOP(
        "{host} asks for a payment (HTTP {status}): see its page in a browser."
    ),
    "download.proxy_refused": QT_TR_NOOP("The proxy refused the connection to {host}."),
    "download.proxy_unusable": QT_TR_NOOP("The proxy of the environment cannot be used: {reason}."),
    "download.silent": QT_TR_NOOP("{host} does not answer."),
    "download.raw_pieces": QT_TR_NOOP(
        "it is there in raw pieces only ({names}), which have to be joined into one file"
    ),
    "download.storage_refused": QT_TR_NOOP(
        "{host}, to which {hub} redirects, refuses the file (HTTP {status})."
    ),
    "download.token_locked": QT_TR_NOOP("The token of {name} could not be read: {reason}."),
    "download.token_no_form": QT_TR_NOOP(
        "This is no token: it is empty, or has characters that no token has."
    ),
    "download.token_note": QT_TR_NOOP("The note on your token"),
    "download.token_odd": QT_TR_NOOP(
        "The token of {place} has characters that no token has, so it is not sent."
    ),
    "download.token_refused": QT_TR_NOOP(
        "{host} refuses the token of {place} (HTTP {status}), so it was asked without the token."
    ),
    "download.token_stays": QT_TR_NOOP(
        "The token of {name} is used no more, but the keyring still has it: {reason}."
    ),
    "download.token_wrong": QT_TR_NOOP(
        "{host} does not know this token (HTTP 401). Copy it again, or make a new one there."
    ),
    "download.too_many": QT_TR_NOOP(
        "{host} asks to wait, and does not say how long (HTTP {status})."
    ),
    "download.untrusted": QT_TR_NOOP(
        "The identity of {host} cannot be checked ({reason}). Install the system's list of "
        "certificates (ca-certificates), or name another list in SSL_CERT_FILE."
    ),
    "download.unreachable": QT_TR_NOOP("{host} cannot be reached."),
    "download.wait_until": QT_TR_NOOP("{host} asks to wait until {at:clock} (HTTP {status})."),
    "download.write_failed": QT_TR_NOOP("Writing to {folder} failed: {reason}."),
    # The system's keyring; each is a clause.
    "keyring.failed": QT_TR_NOOP("the keyring failed ({reason})"),
    "keyring.locked": QT_TR_NOOP("the keyring stayed locked"),
    "keyring.no_note": QT_TR_NOOP("whose it is could not be written down ({reason})"),
    "keyring.none": QT_TR_NOOP("no keyring runs on this system"),
    "keyring.not_there": QT_TR_NOOP("the keyring no longer has it"),
    "keyring.silent": QT_TR_NOOP("the keyring did not answer within {seconds} s"),
    # Files that are kept, and settings.
    "kept.damaged": QT_TR_NOOP("{what} was damaged; {instead}."),
    "kept.damaged_aside": QT_TR_NOOP("{what} was damaged; {instead} and the old file is {file}."),
    "kept.empty_used": QT_TR_NOOP("an empty one is used"),
    "kept.defaults_used": QT_TR_NOOP("the defaults are used"),
    "kept.not_read": QT_TR_NOOP("{what} could not be read: {reason}."),
    "kept.not_saved": QT_TR_NOOP("{what} could not be saved: {reason}."),
    "settings.file": QT_TR_NOOP("The settings file"),
    "about.licence": QT_TR_NOOP("MIT; the embedded model CC BY-SA 4.0"),
    "window.open_already": QT_TR_NOOP(
        "Outrider is open already, and its window does not answer. End that process, then start "
        "again."
    ),
    "setting.above": QT_TR_NOOP(
        "The setting {name} must be more than {low} and at most {high}, not {value}."
    ),
    "setting.biases": QT_TR_NOOP(
        "The setting {name} must be pairs of a token and a number from {low} to {high}."
    ),
    "setting.texts": QT_TR_NOOP("The setting {name} must be a list of texts, and not empty."),
    "setting.choice": QT_TR_NOOP("The setting {name} must be one of {known}, not {value}."),
    "setting.least": QT_TR_NOOP("The setting {name} must be {low} or more, not {value}."),
    "setting.range": QT_TR_NOOP("The setting {name} must be {low} to {high}, not {value}."),
    "setting.type": QT_TR_NOOP("The setting {name} must be {kind}."),
    "setting.unknown": QT_TR_NOOP("Unknown sampling setting {name}."),
    "kind.biases": QT_TR_NOOP("a list of pairs, each a token and a number"),
    "kind.integer": QT_TR_NOOP("an integer"),
    "kind.names": QT_TR_NOOP("a list of names of settings"),
    "kind.number": QT_TR_NOOP("a number"),
    "kind.switch": QT_TR_NOOP("true or false"),
    "kind.text": QT_TR_NOOP("text"),
    "kind.texts": QT_TR_NOOP("a list of texts"),
    # Chats.
    "chats.begun_new": QT_TR_NOOP(
        "The file of chats was damaged; a new one was begun and the old one is {file}."
    ),
    "chats.busy": QT_TR_NOOP("another program uses the file"),
    "chats.context_full": QT_TR_NOOP("The context is full."),
    "chats.cut_off": QT_TR_NOOP("Cut off here."),
    "chats.damaged": QT_TR_NOOP("the file is damaged"),
    "chats.disk_full": QT_TR_NOOP("the disk is full"),
    "chats.edited": QT_TR_NOOP("Changed by you."),
    "chats.import_damaged": QT_TR_NOOP("it is damaged, or a part is missing"),
    "chats.import_not_chats": QT_TR_NOOP("it is not a file of chats"),
    "chats.import_newer": QT_TR_NOOP("it was written by a newer version"),
    "chats.import_no_form": QT_TR_NOOP("it is neither JSON nor Markdown from this program"),
    "chats.import_no_file": QT_TR_NOOP("{file} is not a file."),
    "chats.import_refused": QT_TR_NOOP("{file} cannot be imported: {reason}."),
    "chats.import_too_large": QT_TR_NOOP("{file} is larger than {most:size}."),
    "chats.newer": QT_TR_NOOP(
        "The chats were written by a newer version of Outrider. They are left as they are, and "
        "what is said here is not kept."
    ),
    "chats.no_folder": QT_TR_NOOP("the folder for them cannot be written"),
    "chats.not_kept": QT_TR_NOOP("The chats cannot be kept: {reason}."),
    "chats.not_read": QT_TR_NOOP("The chats cannot be read: {reason}."),
    "chats.not_written": QT_TR_NOOP("What is said is not being kept: {reason}."),
    "chats.stopped": QT_TR_NOOP("Stopped."),
    # Learning from chats.
    "learning.background": QT_TR_NOOP("Training in the background ({share:percent})."),
    "learning.better": QT_TR_NOOP(
        "A better predictor was found ({new:percent1} right instead of {old:percent1}); it is "
        "used when the model is loaded again."
    ),
    "learning.choice_not_kept": QT_TR_NOOP("The choice could not be kept: {reason}."),
    "learning.ended": QT_TR_NOOP("Training ended unexpectedly."),
    "learning.failed": QT_TR_NOOP("Training came to nothing: {reason}"),
    "learning.idle": QT_TR_NOOP("Training begins when nobody has used the engine for a while."),
    "learning.no_cache": QT_TR_NOOP(
        "This model runs without the expert cache, so nothing is recorded."
    ),
    "learning.no_experts": QT_TR_NOOP("This model has no experts, so there is nothing to learn."),
    "learning.no_inputs": QT_TR_NOOP(
        "This model does not show what its experts compute with, so there is nothing to learn."
    ),
    "learning.no_model": QT_TR_NOOP("Answers will be recorded once a model is loaded."),
    "learning.not_better": QT_TR_NOOP(
        "The last training found nothing better ({new:percent1} right instead of {old:percent1})."
    ),
    "learning.not_recorded": QT_TR_NOOP("An answer could not be recorded: {reason}"),
    "learning.not_started": QT_TR_NOOP("Training could not be started: {reason}."),
    "learning.off": QT_TR_NOOP("Nothing is recorded."),
    "learning.paused": QT_TR_NOOP("Training waits for the engine ({share:percent})."),
    "learning.recorded": QT_TR_NOOP(
        "{n:count} of the {enough:count} tokens that training needs are recorded."
    ),
    # The local server.
    "server.no_origin": QT_TR_NOOP(
        "A page's origin is such as https://chat.example, without a path, not {origin}."
    ),
    "server.no_port": QT_TR_NOOP("Port {port} cannot be used: {reason}."),
    "server.short_key": QT_TR_NOOP(
        "A key that other machines may try must have at least {n} characters."
    ),
    # Servers of tools
    "tools.bad_entry": QT_TR_NOOP("The entry of {name} is damaged."),
    "tools.bad_header": QT_TR_NOOP("A header of {name} has characters that headers cannot have."),
    "tools.bad_name": QT_TR_NOOP("The name of a server needs 1 to {limit} visible characters."),
    "tools.bad_url": QT_TR_NOOP("The address of {name} must begin with http:// or https://."),
    "tools.bad_value": QT_TR_NOOP(
        "An argument or a variable of {name} is too long or cannot be used."
    ),
    "tools.call_failed": QT_TR_NOOP("The call failed: {reason}"),
    "tools.call_stopped": QT_TR_NOOP("The call was stopped."),
    "tools.call_too_slow": QT_TR_NOOP("The call took longer than {seconds} seconds and was ended."),
    "tools.deep_schema": QT_TR_NOOP(
        "It is not offered, because its arguments are nested too deeply."
    ),
    "tools.ended": QT_TR_NOOP("The server has ended."),
    "tools.file": QT_TR_NOOP("The file of tools"),
    "tools.file_damaged": QT_TR_NOOP("{file} is damaged: it is not JSON."),
    "tools.file_too_large": QT_TR_NOOP("{file} is larger than {limit:size} and was not read."),
    "tools.file_without": QT_TR_NOOP("{file} names no servers of tools."),
    "tools.floods": QT_TR_NOOP("The server sent far too many messages and was ended."),
    "tools.forbidden": QT_TR_NOOP(
        "The server refuses access (status {status}). Check the headers."
    ),
    "tools.host_ended": QT_TR_NOOP("The process that runs the servers ended. Start them again."),
    "tools.large_schema": QT_TR_NOOP(
        "It is not offered, because the description of its arguments has {n_byte:count} bytes, "
        "more than {limit:count}."
    ),
    "tools.long_answer": QT_TR_NOOP(
        "The answer has {n:size} or more; at most {limit:size} are taken."
    ),
    "tools.may_have_run": QT_TR_NOOP(
        "The connection to the server broke, so the call may have run. Ask before you repeat it."
    ),
    "tools.long_message": QT_TR_NOOP(
        "The server sent a message of more than {limit:size} and was ended."
    ),
    "tools.needs_input": QT_TR_NOOP(
        "{name} was left out: it has a value that only the other application can fill in."
    ),
    "tools.neither": QT_TR_NOOP("{name} needs a command or an address, and not both."),
    "tools.no_command": QT_TR_NOOP(
        "{command} was not found. Enter its whole path, or install it. These folders were "
        "searched: {places}."
    ),
    "tools.no_file": QT_TR_NOOP("There is no file {command}."),
    "tools.no_folder": QT_TR_NOOP("Its folder {folder} does not exist."),
    "tools.none_used": QT_TR_NOOP("no server is used"),
    "tools.not_executable": QT_TR_NOOP("{command} is no program: the file may not be executed."),
    "tools.no_reason": QT_TR_NOOP("The server gave no reason."),
    "tools.not_ready": QT_TR_NOOP("The server {name} is not running."),
    "tools.not_started": QT_TR_NOOP("It could not be started: {reason}."),
    "tools.not_understood": QT_TR_NOOP("The server sent an answer that could not be understood."),
    "tools.odd_name": QT_TR_NOOP(
        "It is not offered, because its name is too long or has invisible characters."
    ),
    "tools.odd_number": QT_TR_NOOP(
        "It is not offered, because its arguments name a number that JSON cannot say."
    ),
    "tools.old_transport": QT_TR_NOOP("{name} was left out: its transport, SSE, is out of use."),
    "tools.server_failed": QT_TR_NOOP("It could not be used: {reason}"),
    "tools.start_too_slow": QT_TR_NOOP(
        "The server was not ready after {seconds} seconds and was ended."
    ),
    "tools.too_many": QT_TR_NOOP("Only the first {limit} servers were taken."),
    "server.no_key": QT_TR_NOOP("The server needs a key."),
    "server.port_range": QT_TR_NOOP("A port is a number from 0 to 65535, not {port}."),
    # A report on a model
    "report.load": QT_TR_NOOP("Loading the model."),
    "report.machine": QT_TR_NOOP("Measuring the machine."),
    "report.speed": QT_TR_NOOP("Measuring the speed at two cache rates."),
    "report.stock": QT_TR_NOOP("Comparing {n:count} rows of logits with stock llama.cpp."),
    "report.turns": QT_TR_NOOP("Holding three turns of a chat."),
    # The batch log, computed again
    "replay.cut": QT_TR_NOOP(
        "The method computed experts in two parts, whose sum rounds differently from llama.cpp's: "
        "nothing behind it is shown."
    ),
    "replay.hybrid": QT_TR_NOOP(
        "The processor computed experts of a device, which rounds differently from llama.cpp: "
        "nothing behind it is shown."
    ),
    "replay.image_rows": QT_TR_NOOP(
        "Pass {number} has other rows of an image than its next ones: {n} of it were "
        "computed instead of {all}."
    ),
    "replay.image_values": QT_TR_NOOP(
        "Pass {number}: the rows of an image are not those that llama.cpp computes of it."
    ),
    "replay.kernels": QT_TR_NOOP(
        "The log was written on another processor, or with other kernels of llama.cpp, "
        "whose last bits may differ."
    ),
    "replay.logits": QT_TR_NOOP(
        "Pass {number}, row {row} (sequence {sequence}, position {position}): the logits "
        "are not those of stock llama.cpp."
    ),
    "replay.memory": QT_TR_NOOP("Behind pass {number} llama.cpp answered {name} in another way."),
    "replay.no_cell": QT_TR_NOOP(
        "Pass {number} was not computed: the context has no free cell for its rows."
    ),
    "replay.no_context": QT_TR_NOOP("llama.cpp could not make the log's context."),
    "replay.setting": QT_TR_NOOP(
        "The log's context has {name}, which is not llama.cpp's default and is not compared."
    ),
    "replay.no_device": QT_TR_NOOP("A device of the log is missing here: {device}."),
    "replay.no_end": QT_TR_NOOP(
        "The log has no end: its process still writes, was killed, or its last lines are missing."
    ),
    "replay.no_such": QT_TR_NOOP("The log names {name}, which none of its entries before has."),
    "replay.no_model": QT_TR_NOOP("llama.cpp could not load {file}."),
    "replay.no_row": QT_TR_NOOP(
        "Answer {answer}: a token was chosen by row {row}, which has no logits."
    ),
    "replay.not_best": QT_TR_NOOP(
        "Answer {answer}: token {token} was chosen, but {best} is the most probable one."
    ),
    "replay.other_model": QT_TR_NOOP("{file} is not the model of the log any more."),
    "replay.other_text": QT_TR_NOOP(
        "Answer {answer}, token {place}: it was chosen by row {row} of pass {number}, but "
        "from position {position} on sequence {sequence} does not hold this answer."
    ),
    "replay.picture": QT_TR_NOOP("llama.cpp makes other parts of a prompt of an image of the log."),
    "replay.position": QT_TR_NOOP(
        "Pass {number}: position {position} of sequence {sequence} was computed, but the "
        "sequence has {n} positions."
    ),
    "replay.rows": QT_TR_NOOP("Pass {number} has the logits of {n} rows instead of {all}."),
    "replay.sent": QT_TR_NOOP("Answer {answer}: token {token} was sent, but {chosen} was chosen."),
    "replay.state": QT_TR_NOOP(
        "The state of positions {begin} to {end} is not the one that stock llama.cpp "
        "computes of these tokens."
    ),
    "replay.checkpoint": QT_TR_NOOP(
        "Behind pass {number} sequence {sequence} went back to a state that is not of its tokens."
    ),
    "replay.window": QT_TR_NOOP(
        "Pass {number} computed position {position} of sequence {sequence} without the whole "
        "window before it."
    ),
    "replay.status": QT_TR_NOOP(
        "Pass {number} was computed, but llama.cpp alone returns the status {status}."
    ),
    "replay.unknown": QT_TR_NOOP("The log has an entry {name}, which this version does not know."),
    "replay.version": QT_TR_NOOP(
        "The log was written with version {version} of llama-cpp-python, and this is {found}."
    ),
}
