"""Chooses tokens with llama.cpp's samplers, also under a grammar."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import llama_cpp
import numpy as np

from backend import _native
from backend.llama.api import Context, LlamaError, Model, log
from backend.llama.guard import tokens_of
from backend.llama.json_matcher import Matcher, MatcherError
from backend.protocol.settings import Sampling
from backend.text import text

if TYPE_CHECKING:
    from backend.llama.chat_format import Rendered, Trigger

_FUNCTIONS = (
    "llama_get_logits_ith",
    "llama_sampler_accept",
    "llama_sampler_apply",
    "llama_sampler_free",
    "llama_sampler_init_grammar",
    "llama_sampler_init_grammar_lazy_patterns",
    "llama_vocab_n_tokens",
)
_PENALTIES = ("penalties", "dry")
_N_ALL = 1 << 17
"""Tokens that a penalty sees that is to see all."""
_MIROSTAT_M = 100  # as in llama.cpp
# llama.cpp's parser of grammars calls itself for every bracket, and the check of rules for every
# rule that another one begins with. Deeper grammars would overflow the stack.
_GRAMMAR_CHARS_MAX = 4_000_000
_RULES_MAX = 20_000
_BRACKETS_MAX = 500
_SPACE, _SHORT_SPACE = r'| " " | "\n"{1,2} [ \t]{0,20}', r'| " " | "\n"{1,2}'
"""White space in llama.cpp's grammars, and its short form: small models never stop writing it."""


class Sampler:
    """llama.cpp's sampler chain for a model, and the grammar of an answer if it has one.

    rendered: the prompt, with the grammar of its answer. covers_prompt: the grammar begins with the
    end of the prompt, `rendered.begun`; a user's own grammar does not. is_forced: a lazy grammar
    constrains without a trigger, from the end of the thought on; unless `parallel`, the answer ends
    with the first call. Raises LlamaError for an invalid grammar.
    """

    def __init__(
        self,
        sampling: Sampling,
        model: Model,
        rendered: Rendered | None = None,
        *,
        covers_prompt: bool = True,
        is_forced: bool = False,
        parallel: bool = True,
    ) -> None:
        self._pointer: Any = llama_cpp.llama_sampler_chain_init(
            llama_cpp.llama_sampler_chain_default_params()
        )
        self._grammar: _Grammar | None = None
        self._probed: _Probed | None = None
        self._n_vocab, self._has_penalties = model.n_vocab, sampling.has_penalties
        try:
            self._fill(sampling, model)
            if sampling.post_sampling_probs and sampling.n_probs:
                self._probed = _Probed(model.n_vocab)
            if rendered is not None and rendered.grammar:
                self._grammar = _Grammar(model, rendered, covers_prompt, is_forced, parallel)
        except BaseException:
            self.close()
            raise

    def _fill(self, sampling: Sampling, model: Model) -> None:
        def add(sampler: Any) -> None:
            llama_cpp.llama_sampler_chain_add(self._pointer, sampler)

        if biases := _biases(sampling, model):
            array = (llama_cpp.llama_logit_bias * len(biases))(*biases)
            add(llama_cpp.llama_sampler_init_logit_bias(model.n_vocab, len(biases), array))
        for sampler in _chain(sampling, model):
            add(sampler)

    def sample(self, context: Context, row: int = -1) -> int:
        """Choose the next token from the logits of a token of the last pass, and accept it.

        row: the token's place in the pass; -1: the last one with logits. Raises LlamaError where no
        token of the model fits the grammar.
        """
        if self._grammar is not None and (due := self._grammar.due):
            token = due.pop(0)
            llama_cpp.llama_sampler_accept(self._pointer, token)
        elif self._probed is not None:
            if self._grammar is not None:
                raise LlamaError(text("sampling.no_grammar"))
            token = self._probed.sample(self._pointer, context, row)
        elif self._grammar is None or not self._grammar.constrains:
            token = int(llama_cpp.llama_sampler_sample(self._pointer, context.pointer, row))
        else:
            token = self._grammar.sample(self._pointer, context.pointer, row)
        if self._grammar is not None:
            token = self._grammar.not_too_early(token)
            self._grammar.accept(token)
        return token

    def see(self, prompt: Iterable[int]) -> None:
        """Let the penalties count the tokens of a prompt, as llama.cpp's server does."""
        if self._has_penalties:
            for token in prompt:
                if 0 <= token < self._n_vocab:  # an image's places have no token
                    llama_cpp.llama_sampler_accept(self._pointer, token)

    def probabilities(self, n: int) -> list[tuple[int, float]] | None:
        """Return the last token and the n most probable ones, with their probabilities.

        They are those after the chain; None unless `Sampling.post_sampling_probs` asks for them.
        """
        return None if self._probed is None else self._probed.top(n)

    def accept(self, tokens: Iterable[int]) -> None:
        """Accept tokens that an earlier sampler chose for the same answer."""
        for token in tokens:
            llama_cpp.llama_sampler_accept(self._pointer, token)
            if self._grammar is not None:
                self._grammar.accept(token)

    @property
    def is_free(self) -> bool:
        """Whether no grammar constrains the answer."""
        return self._grammar is None

    def close(self) -> None:
        """Free the chain."""
        if self._pointer is not None:
            llama_cpp.llama_sampler_free(self._pointer)
            self._pointer = None


def _biases(sampling: Sampling, model: Model) -> list[Any]:
    """Return the numbers to add to the scores of tokens."""
    pairs: list[tuple[int, float]] = []
    for key, given in sampling.logit_bias:
        bias = -math.inf if given is False else given
        tokens = model.tokenize(key, special=False) if isinstance(key, str) else [key]
        pairs += [(token, bias) for token in tokens]
    if sampling.ignore_eos:
        pairs += [(token, -math.inf) for token in model.ending_tokens]
    return [llama_cpp.llama_logit_bias(*pair) for pair in pairs]


def _chain(sampling: Sampling, model: Model) -> Iterator[Any]:
    """Yield the samplers behind the biases, as common/sampling.cpp of llama.cpp adds them."""
    s, init = sampling, llama_cpp
    seed = init.LLAMA_DEFAULT_SEED if s.seed is None else s.seed
    if s.mirostat:
        yield init.llama_sampler_init_temp(s.temperature)
        aim = s.mirostat_tau, s.mirostat_eta
        if s.mirostat == 1:
            yield init.llama_sampler_init_mirostat(model.n_vocab, seed, *aim, _MIROSTAT_M)
        else:
            yield init.llama_sampler_init_mirostat_v2(seed, *aim)
        return
    n_last = _N_ALL if s.repeat_last_n < 0 else s.repeat_last_n
    penalties = s.repeat_penalty, s.frequency_penalty, s.presence_penalty
    makers: dict[str, Callable[[], Any]] = {
        "penalties": lambda: init.llama_sampler_init_penalties(model.n_vocab, n_last, *penalties),
        "dry": lambda: _dry(s, model),
        "top_n_sigma": lambda: init.llama_sampler_init_top_n_sigma(s.top_n_sigma),
        "top_k": lambda: init.llama_sampler_init_top_k(s.top_k),
        "typ_p": lambda: init.llama_sampler_init_typical(s.typical_p, s.min_keep),
        "top_p": lambda: init.llama_sampler_init_top_p(s.top_p, s.min_keep),
        "min_p": lambda: init.llama_sampler_init_min_p(s.min_p, s.min_keep),
        "xtc": lambda: init.llama_sampler_init_xtc(
            s.xtc_probability, s.xtc_threshold, s.min_keep, seed
        ),
        "temperature": lambda: init.llama_sampler_init_temp_ext(
            s.temperature, s.dynatemp_range, s.dynatemp_exponent
        ),
        "infill": lambda: init.llama_sampler_init_infill(model.vocab),
    }
    changed = [name for name in s.samplers if name in _PENALTIES or not s.takes_best]
    for name in changed:
        if name in makers and _is_on(name, s):
            yield makers[name]()
    if s.takes_best:  # the samplers that are left out keep the best token
        yield init.llama_sampler_init_greedy()
    elif "adaptive_p" in s.samplers:
        yield init.llama_sampler_init_adaptive_p(s.adaptive_target, s.adaptive_decay, seed)
    else:
        yield init.llama_sampler_init_dist(seed)


def _is_on(name: str, s: Sampling) -> bool:
    """Return whether a sampler changes anything. llama.cpp adds the others as empty ones."""
    off = {
        "penalties": not (s.repeat_penalty != 1 or s.frequency_penalty or s.presence_penalty),
        "dry": not s.has_dry,
        "top_n_sigma": s.top_n_sigma < 0,
        "top_k": s.top_k <= 0,
        "typ_p": s.typical_p >= 1,
        "top_p": s.top_p >= 1,
        "min_p": s.min_p <= 0,
        "xtc": s.xtc_probability <= 0 or s.xtc_threshold > 0.5,
    }
    return not off.get(name, False)


def _dry(s: Sampling, model: Model) -> Any:
    """Return llama.cpp's sampler DRY."""
    breakers = [one.encode() for one in s.dry_sequence_breakers]
    n_last = _N_ALL if s.dry_penalty_last_n < 0 else s.dry_penalty_last_n
    base = s.dry_base if s.dry_base >= 1 else Sampling().dry_base
    return llama_cpp.llama_sampler_init_dry(
        model.vocab,
        s.dry_multiplier,
        base,
        s.dry_allowed_length,
        n_last,
        (ctypes.c_char_p * len(breakers))(*breakers),
        len(breakers),
    )


class _Probed:
    """Samples as llama_sampler_sample() does, and keeps the probabilities after the chain."""

    def __init__(self, n_vocab: int) -> None:
        self._data = (llama_cpp.llama_token_data * n_vocab)()
        kind = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        self._values: Any = np.frombuffer(memoryview(self._data), kind)
        self._found: list[tuple[int, float]] = []

    def sample(self, chain: Any, context: Context, row: int) -> int:
        """Choose a token and accept it."""
        values = self._values
        values["id"] = np.arange(len(values))
        values["logit"], values["p"] = context.row_logits(row), 0
        candidates = llama_cpp.llama_token_data_array(
            ctypes.cast(self._data, llama_cpp.llama_token_data_p), len(values), -1, False
        )
        llama_cpp.llama_sampler_apply(chain, ctypes.byref(candidates))
        left = values[: candidates.size]
        token, p = (left[name][candidates.selected] for name in ("id", "p"))
        if not left["p"].any():  # a greedy chain gives no probabilities
            left["p"][candidates.selected] = p = 1
        best = left[np.argsort(-left["p"], kind="stable")]
        best = best[best["p"] > 0]
        self._found = [(int(token), float(p))]
        self._found += [(int(i), float(q)) for i, q in zip(best["id"], best["p"], strict=True)]
        llama_cpp.llama_sampler_accept(chain, int(token))
        return int(token)

    def top(self, n: int) -> list[tuple[int, float]]:
        """Return the token, and then the n most probable ones."""
        return self._found[: n + 1]


class _Grammar:
    """A grammar that constrains the whole answer or, if it is lazy, from a trigger on."""

    def __init__(
        self,
        model: Model,
        rendered: Rendered,
        covers_prompt: bool,
        is_forced: bool,
        parallel: bool,
    ) -> None:
        self._model = model
        self._gaps = _Gaps(model, rendered)
        grammar = self._gaps.filled(rendered.grammar)
        _check_size(grammar)
        self._trigger = _Trigger(rendered, is_forced) if rendered.grammar_lazy else None
        starts = model.single_tokens([rendered.thinking_start]) if is_forced else ()
        self._thought = next(iter(starts), -1)  # the token that may come instead of a forced start
        self._ends_early = is_forced and not parallel and model.ends_answer(model.eos)
        ends = rendered.thinking_ends if is_forced else ()
        self._thought_end = model.tokenize(ends[0]) if ends else []
        self.due: list[int] = []
        """The tokens that come next, whatever the model would choose."""
        addresses = {name: _address(name) for name in _FUNCTIONS}
        vocab = ctypes.cast(model.vocab, ctypes.c_void_p).value or 0
        patterns = self._trigger.patterns if self._trigger is not None else []
        self._may_be_quoted = bool(rendered.parser.get("calls"))  # a tool's call begins with it
        self._make: Callable[[], _native.Grammar] = lambda: _native.Grammar(
            addresses, vocab, grammar, patterns
        )
        with log.captured() as lines:
            try:
                self._native = self._make()
                # A forced call begins with a trigger, which this grammar has the model write.
                start = self._trigger.start if self._trigger is not None else ""
                self._start = _native.Grammar(addresses, vocab, start, []) if start else None
            except Exception:
                raise LlamaError(text("grammar.invalid", reason=_reason(lines))) from None
        if self._trigger is None and covers_prompt:
            self._accept_prompt(rendered.begun)

    @property
    def constrains(self) -> bool:
        """Whether the next token may have to fit the grammar."""
        return self._trigger is None or self._trigger.is_near

    def sample(self, chain: Any, context: Any, row: int) -> int:
        """Choose a token that fits. Raises LlamaError if there is none."""
        chain_address, address = (
            ctypes.cast(pointer, ctypes.c_void_p).value or 0 for pointer in (chain, context)
        )
        grammar = self._start or self._native
        if self._may_be_quoted and self._trigger is not None and self._trigger.is_new:
            token = int(self._native.choose(chain_address, address, row, b""))
            if self._is_quoted(token):
                self._wait_again()
                llama_cpp.llama_sampler_accept(chain, token)
                return token
        try:
            if self._start is None and self._gaps:
                token = self._gaps.sample(self._native, chain_address, address, row, self._thought)
                llama_cpp.llama_sampler_accept(chain, token)
            else:
                token = int(grammar.sample(chain_address, address, row, self._thought))
        except MatcherError as error:
            if self._trigger is None:
                raise LlamaError(str(error)) from None
            self._trigger.give_up()  # the schema of a tool is a wish
            return int(llama_cpp.llama_sampler_sample(chain, context, row))
        except RuntimeError:
            raise LlamaError(text("grammar.stuck")) from None
        is_frame = self._start is None and not self._gaps.is_open
        if self._ends_early and is_frame and self._model.piece(token).isspace():
            # The call is complete. llama.cpp's grammars let white space follow without end.
            with contextlib.suppress(RuntimeError):
                self._native.accept(self._model.eos)  # changes nothing, but tells whether it fits
                return self._model.eos
        return token

    def _is_quoted(self, token: int) -> bool:
        """Return whether a token goes on with text behind a mark of a call, as in a quotation.

        A bracket or a line break may begin a call in a wrong form, which the grammar mends.
        """
        text = self._model.piece(token).decode(errors="replace").strip(" \t")
        is_text = text[:1] not in ("\r", "\n", "<", "{", "[", "(")
        is_end = self._model.ends_answer(token)
        return is_text and not is_end and not self._gaps.fits(self._native, token)

    def _wait_again(self) -> None:
        """Wait for the next trigger: the last one began no call."""
        assert self._trigger is not None
        self._native = self._make()
        self._trigger.forget()

    def not_too_early(self, token: int) -> int:
        """Return a chosen token, or the first of the thought's end mark.

        A model that ends its answer within the thought would else make no forced call.
        """
        thinks = self._trigger is not None and self._trigger.thinks
        if not thinks or not self._thought_end or not self._model.ends_answer(token):
            return token
        first, *self.due = self._thought_end
        return first

    def accept(self, token: int) -> None:
        """Advance by a token of the answer. Raises LlamaError if it does not fit."""
        tokens, trigger = [token], self._trigger
        if trigger is not None:
            if token == self._thought:
                trigger.begin_thought()
            starts = self._start is not None and trigger.is_near
            tokens = trigger.feed(token, self._model.piece(token, special=True))
            if trigger.is_found:
                self._start = None
            elif starts and self._start is not None:
                self._start.accept(token)
        self._thought = -1
        try:
            for one in tokens:
                self._gaps.accept(self._native, one)
        except RuntimeError as error:
            if trigger is None:
                is_matcher = isinstance(error, MatcherError)
                raise LlamaError(str(error) if is_matcher else text("grammar.stuck")) from None
            if trigger.is_new and self._may_be_quoted:
                self._wait_again()  # the token with the trigger goes on as text
            else:
                trigger.give_up()  # the text behind the trigger does not fit: it is no call

    def _accept_prompt(self, prompt: str) -> None:
        """Advance by the end of the prompt, with which the grammar begins."""
        tokens = tokens_of(prompt, lambda part, bos: self._model.tokenize(part, add_bos=bos), False)
        # Some vocabularies put a space before the first control token.
        if tokens and self._model.piece(tokens[0], special=True)[:1].isspace():
            tokens = tokens[0 if prompt[:1].isspace() else 1 :]
        try:
            for token in tokens:
                for part in self._parts(token):
                    self._gaps.accept(self._native, part)
        except RuntimeError:
            raise LlamaError(text("grammar.beginning")) from None

    def _parts(self, token: int) -> list[int]:
        """Return the token, or those of its letters where JSON begins or ends within it."""
        if not self._gaps or self._gaps.fits(self._native, token):
            return [token]
        letters = self._model.piece(token).decode(errors="replace")
        return [part for letter in letters for part in self._model.tokenize(letter, special=False)]


class _Gaps:
    """The gaps of a grammar, and the JSON that is being written in one of them.

    In the grammar a token that no answer has stands for the JSON of a schema. Where the grammar
    permits that token, JSON may begin; what the grammar itself permits there comes first, so that
    no JSON begins in a thought. A token of the model lies on one side of the border.

    is_open: JSON is being written.
    """

    def __init__(self, model: Model, rendered: Rendered) -> None:
        try:
            self._vocabulary = model.json_vocabulary() if rendered.gaps else None
        except MatcherError as error:
            raise LlamaError(str(error)) from None
        schemas = list(dict.fromkeys((gap.schema, gap.is_text) for gap in rendered.gaps))
        frame = rendered.grammar + rendered.begun
        tokens = model.rare_tokens(len(schemas), frame) if schemas else []
        self._schemas = dict(zip(tokens, schemas, strict=True))  # by the tokens that stand for them
        stands = {schema: token for token, schema in self._schemas.items()}
        self._places = {gap.number: stands[gap.schema, gap.is_text] for gap in rendered.gaps}
        self._n_vocab = model.n_vocab
        self._began: dict[int, Matcher] = {}  # matchers at their beginnings
        self._json: Matcher | None = None
        try:  # now, unless a model may call one of many tools
            for token in () if rendered.grammar_lazy else self._schemas:
                self._matcher(token).allowed()
        except MatcherError:
            raise LlamaError(text("schema.too_complex")) from None

    def __bool__(self) -> bool:
        return bool(self._schemas)

    @property
    def is_open(self) -> bool:
        return self._json is not None

    def filled(self, grammar: str) -> str:
        """Return the grammar with tokens in its gaps, and less white space around them."""
        if self._places:
            grammar = grammar.replace(_SPACE, _SHORT_SPACE)
        for number, token in self._places.items():
            grammar = grammar.replace(f'"{number}"', f"<[{token}]>")
        return grammar

    def fits(self, grammar: _native.Grammar, token: int) -> bool:
        """Return whether the token may come next."""
        if self._json is not None and self._json.fits(token):
            return True
        if self._json is not None and not self._json.may_end:
            return False
        if token not in self._schemas and grammar.allows(token):
            return True
        return self._json is None and self._beginning(grammar, token) is not None

    def sample(
        self, grammar: _native.Grammar, chain: int, context: int, row: int, also: int
    ) -> int:
        """Choose a token that fits, or `also`. Raises RuntimeError where none fits."""
        token = int(grammar.choose(chain, context, row, b""))
        if token == also or self.fits(grammar, token):
            return token
        permitted = np.zeros(self._n_vocab, np.uint8)
        if self._json is not None:
            permitted |= self._json.allowed()
        if self._json is None or self._json.may_end:
            own = np.frombuffer(grammar.allowed(), np.uint8).copy()
            own[list(self._schemas)] = 0
            permitted |= own
        if self._json is None:
            for near in self._near(grammar):
                permitted |= self._matcher(near).allowed()
        return int(grammar.choose(chain, context, row, permitted.tobytes()))

    def accept(self, grammar: _native.Grammar, token: int) -> None:
        """Go on by a token. Raises RuntimeError where it does not fit."""
        if self._json is None and (token in self._schemas or not grammar.allows(token)):
            begins = self._beginning(grammar, token)
            if begins is not None:
                grammar.accept(begins)
                self._json = self._began.pop(begins)
        if self._json is not None and self._json.fits(token):
            self._json.accept(token)
            if self._json.is_complete:
                self._json = None
            return
        if self._json is not None and not self._json.may_end:
            raise RuntimeError
        self._json = None
        grammar.accept(token)

    def _beginning(self, grammar: _native.Grammar, token: int) -> int | None:
        """Return the token of a gap that is here and whose JSON may begin with a token."""
        return next((t for t in self._near(grammar) if self._matcher(t).fits(token)), None)

    def _near(self, grammar: _native.Grammar) -> list[int]:
        return [token for token in self._schemas if grammar.allows(token)]

    def _matcher(self, token: int) -> Matcher:
        """Return the matcher at the beginning of the JSON that a token stands for."""
        if token not in self._began:
            assert self._vocabulary is not None
            self._began[token] = self._vocabulary.matcher(*self._schemas[token])
        return self._began[token]


class _Trigger:
    """Watches an answer for the text from which on a lazy grammar constrains it.

    No trigger counts within a thought, as in llama.cpp's common/sampling.cpp. llama.cpp would
    search the whole answer again after every token. Where all triggers are words, only the last
    tokens are searched here, and llama.cpp receives no token before a word is found.

    patterns: the triggers as llama.cpp takes them. start: a grammar of the words that may begin a
    forced answer, or "". is_found: a trigger was found.
    """

    def __init__(self, rendered: Rendered, is_forced: bool) -> None:
        if not rendered.triggers:
            raise LlamaError(text("grammar.no_trigger"))
        self._is_forced = is_forced
        kinds = {trigger.kind for trigger in rendered.triggers}
        self._words = [trigger.value.encode() for trigger in rendered.triggers]
        self._is_by_word = kinds <= {"word", "token"}
        self.patterns = [_pattern(trigger) for trigger in rendered.triggers]
        self.start = ""
        if is_forced and self._is_by_word:
            words = (json.dumps(trigger.value) for trigger in rendered.triggers)
            self.start = f"root ::= {' | '.join(words)}"
        elif is_forced:
            self.patterns = []  # it constrains from the first token on
        self._starts = [rendered.thinking_start.encode()] if rendered.thinking_start else []
        self._ends = [end.encode() for end in rendered.thinking_ends]
        self._n_kept = max(map(len, (*self._words, *self._starts, *self._ends))) - 1
        self._thinks = bool(rendered.thinks and self._ends)
        self.is_found = is_forced and not self._is_by_word and not self._thinks
        self.is_new = False
        """Whether nothing but blanks has followed a trigger that was found. It may be quoted."""
        self._gave_up = False
        self._tail: list[tuple[int, bytes]] = []

    @property
    def is_near(self) -> bool:
        """Whether the grammar may constrain the next token."""
        if self._gave_up:
            return False
        if self._is_forced and self._is_by_word:
            return self.is_found or not self._thinks
        return self.is_found or not (self._is_by_word or self._thinks)

    @property
    def thinks(self) -> bool:
        """Whether the answer is within a thought."""
        return self._thinks and not self._gave_up

    def begin_thought(self) -> None:
        """Let a thought come before the forced text."""
        if self._ends:
            self._thinks, self.is_found = True, False

    def give_up(self) -> None:
        """Constrain no further token."""
        self._gave_up = True

    def forget(self) -> None:
        """Wait for another trigger."""
        self.is_found = self.is_new = False
        self._tail.clear()

    def feed(self, token: int, data: bytes) -> list[int]:
        """Add a token. Return the tokens that the grammar must accept now."""
        if self._gave_up:
            return []
        if self.is_found:
            self.is_new &= not data.strip(b" \t")
            return [token]
        self._tail.append((token, data))
        fresh = [token]
        if self._thinks:
            if (end := self._find(self._ends)) is None:
                return self._trimmed()
            self._cut(end)
            self._thinks = False
            if self._is_forced and not self._is_by_word:
                self.is_found = True
                return []
            fresh = [token for token, _ in self._tail]
        if self._is_by_word:
            fresh = []
            if (at := self._find(self._words)) is not None:
                self.is_found, self.is_new = True, not self._is_forced
                self._cut(at)
                return [token for token, _ in self._tail]
        if self._ends and self._find(self._starts) is not None:
            self._thinks = True
            self._tail.clear()
        self._trimmed()
        return fresh

    def _find(self, words: list[bytes]) -> int | None:
        """Return where the first of the words begins in the last tokens."""
        held = b"".join(data for _, data in self._tail)
        return min((at for word in words if (at := held.find(word)) >= 0), default=None)

    def _cut(self, at: int) -> None:
        """Drop the tokens that end before a position."""
        while at >= len(self._tail[0][1]):
            at -= len(self._tail.pop(0)[1])

    def _trimmed(self) -> list[int]:
        """Keep the tokens that may hold the beginning of a word. Return no token."""
        n_held = sum(len(data) for _, data in self._tail)
        while self._tail and n_held - len(self._tail[0][1]) >= self._n_kept:
            n_held -= len(self._tail.pop(0)[1])
        return []


def _pattern(trigger: Trigger) -> str:
    """Return a trigger as a regular expression in ECMAScript."""
    if trigger.kind in ("word", "token"):
        return "".join(f"\\{c}" if c in ".^$|()*+?[]{}\\" else c for c in trigger.value)
    if trigger.kind == "pattern_full":
        return f"^{trigger.value.removeprefix('^').removesuffix('$')}$"
    return trigger.value


def _check_size(grammar: str) -> None:
    """Raise LlamaError for a grammar that llama.cpp's parser may not survive."""
    depth = deepest = 0
    for bracket in re.findall(r"[()]", grammar):
        depth += 1 if bracket == "(" else -1
        deepest = max(deepest, depth)
    is_large = len(grammar) > _GRAMMAR_CHARS_MAX or grammar.count("::=") > _RULES_MAX
    if is_large or deepest > _BRACKETS_MAX:
        raise LlamaError(text("grammar.too_large"))
    if "\0" in grammar:
        raise LlamaError(text("grammar.invalid", reason=text("grammar.nul")))


def _reason(lines: list[str]) -> str:
    """Return the reason why llama.cpp refused a grammar, from its messages."""
    known = [line for line in lines if "symbol" in line or "recursion" in line]
    return known[0].split(": ", 1)[-1].strip(" .\n") if known else text("grammar.unparsable")


def _address(name: str) -> int:
    """Return the address of a function of llama.cpp."""
    function = getattr(llama_cpp.llama_cpp._lib, name)
    return ctypes.cast(function, ctypes.c_void_p).value or 0
