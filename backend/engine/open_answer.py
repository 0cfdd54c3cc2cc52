"""One request while it is answered: its tokens, what a context holds of them, and its text."""

from __future__ import annotations

import codecs
import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from backend.engine.answer import Chance, PartialAnswer, Piece, Reading, StopFilter
from backend.engine.drafts import BY_MODEL, SURE, Lookup, Trial, Width
from backend.engine.error import engine_errors
from backend.engine.scheduler import Placed
from backend.protocol.chat import AnswerText
from backend.protocol.errors import EngineError
from backend.protocol.request import GroupAnswer, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backend.engine.prediction_layer import PredictionLayer
    from backend.llama.api import Context

OpenReader = Callable[[Any], Any]
Remember = Callable[[str, Any, "Sequence[int]"], None]


class OpenAnswer(Placed):
    """The answer to a request: chooses its tokens, cuts its text at `stops`, tells its handle.

    raw: its text with all control tokens, in pieces. finish_reason: "stop", "length", "context" or
    "cancelled". n_token: the tokens of this part of the answer, without one that ends it. n_equal:
    tokens that were equal before the last guess, or BY_MODEL. was_asked: a model's layer has
    guessed last. trial: of guesses whose right ones are computed again, or None. may_draft: tokens
    may be guessed. open_reader: splits its text, if the handle wants that. remember: receives its
    owner, its rendered prompt and its tokens. failure: why its passes cannot be computed, or None.
    failed_at: the positions before the last pass of it that failed.
    """

    def __init__(
        self,
        request: Request,
        partial: PartialAnswer,
        context: Context,
        stops: Sequence[str],
        open_reader: OpenReader,
        remember: Remember,
        *,
        may_draft: bool = False,
    ) -> None:
        super().__init__(
            partial.tokens,
            request.max_tokens,
            precedes=request.precedes,
            images=partial.images,
            border=partial.border,
            opening=partial.opening,
            owner="" if request.is_further else request.owner,
            is_step=[m["role"] for m in (partial.messages or [])[-1:]] == ["tool"],
        )
        self.request, self.partial = request, partial
        self.given: GroupAnswer | None = None
        """The whole answer, once it has ended."""
        self.raw: list[str] = []
        self.pieces: list[Piece] = []
        self.finish_reason = "cancelled"
        self.failure: EngineError | None = None
        self.failed_at = -1
        self.row = -1  # of the last pass: its logits have chosen the last token
        self._llama, self._context, self._open_reader = partial.llama, context, open_reader
        self._remember = remember
        self._lookup = Lookup() if may_draft else None
        self.n_equal, self.was_asked = 0, False
        self.trial: Trial | None = None
        self._text: list[str] = []
        self._stop_filter = StopFilter(stops)
        rendered = partial.rendered
        preserved = () if rendered is None else rendered.preserved
        self._preserved = self._llama.single_tokens(preserved)
        self._decoder, self._raw_decoder = map(_utf8_decoder, partial.undecoded)
        self._reading: Reading | None = None
        self._log = context.log
        if self._log is not None:
            is_greedy = partial.sampling.is_greedy and partial.sampler.is_free
            self.log_number = self._log.begin_answer(
                self.tokens, partial.n_prompt, is_greedy=is_greedy
            )

    def begin(self) -> None:
        """Tell how the conversation fits its template, and begin to split the answer."""
        rendered, handle = self.partial.rendered, self.request.handle
        if rendered is None:
            return  # a raw answer is its pieces
        if rendered.fitted:
            handle.fitted(rendered.fitted)
        if handle.splits == "live":
            with engine_errors():
                self._reading = Reading(self._open_reader(rendered), handle.delta, self.partial)

    # Choosing tokens.

    @property
    def stop_text(self) -> str:
        """The stop that ended the answer, or ""."""
        return self._stop_filter.stop

    @property
    def has_ended(self) -> bool:
        """Whether the answer has reached its end, its limit or a stop."""
        return self.finish_reason != "cancelled"

    def sample(self, row: int = -1) -> int:
        """Choose the next token from the logits of a row of the last pass. Raises LlamaError."""
        self.row = row
        token = int(self.partial.sampler.sample(self._context, row))
        if self._log is not None:
            self._log.write("chose", self.log_number, row, token)
        return token

    def add(self, token: int) -> None:
        """Add a token, and with the last one the rest of the text."""
        max_tokens = self.max_tokens
        if self._log is not None:
            self._log.write("sent", self.log_number, token)
        if self._llama.ends_answer(token):
            self.finish_reason = "stop"
            self._end(token)
            return
        if max_tokens == 0:  # the prompt was to be read, and nothing else
            self.finish_reason = "length"
            return
        self.n_token += 1
        self.tokens.append(token)
        self._tell(self._piece(token))
        if self.stop_text:
            self.finish_reason = "stop"
        elif 0 <= max_tokens <= self.n_token:
            self.finish_reason = "length"
            self._end()

    def end(self, reason: str) -> None:
        """End an answer that has not ended itself, with the rest of its text."""
        self.finish_reason = reason
        self._end()

    @property
    def fault(self) -> BaseException | None:
        """The error of what splits the answer, of the handle's delta(), or of its passes."""
        return self._misread or self.failure

    @property
    def _misread(self) -> BaseException | None:
        return None if self._reading is None else self._reading.fault

    def guess(
        self,
        width: Width,
        n_most: int,
        layer: PredictionLayer | None,
        is_stopped: Callable[[], bool],
    ) -> list[int]:
        """Return at most n_most tokens that may follow. May be empty.

        layer: guesses where the text does not repeat itself, or None. is_stopped: ends its guess.
        """
        if self._lookup is None:
            return []
        guessed, self.n_equal = self._lookup.find(self.tokens, width.n_most)
        if layer is not None and self.n_equal < SURE:
            self.n_equal = BY_MODEL
        n = max(min(width.choose(self.n_equal), n_most), 0)
        self.was_asked = layer is not None and self.n_equal == BY_MODEL and n > 0
        if layer is not None and self.was_asked:
            guessed = layer.guess(self.tokens, n, width.cost(BY_MODEL, n), is_stopped)
        return list(itertools.takewhile(lambda t: not self._llama.ends_answer(t), guessed[:n]))

    # Its text.

    def _tell(self, piece: Piece) -> None:
        """Keep a piece, and tell the handle of it."""
        self.pieces.append(piece)
        self.request.handle.follow.wrote(piece)
        if self._reading is not None:
            self._reading.feed(piece.text)

    def _piece(self, token: int) -> Piece:
        model = self._llama
        raw = model.piece(token, special=True)
        visible = raw if token in self._preserved else model.piece(token)
        piece = Piece(
            token,
            self._show(self._decoder.decode(visible)),
            self._raw_decoder.decode(raw),
            self._chances(token),
        )
        self.raw.append(piece.raw)
        return piece

    def _chances(self, token: int) -> tuple[Chance, ...]:
        n = self.partial.sampling.n_probs
        if n == 0:
            return ()
        after = self.partial.sampler.probabilities(n)
        if after is not None:
            chances = [(i, math.log(p)) for i, p in after]
        else:
            chances = self._context.log_probabilities(token, n, self.row)
        return tuple(Chance(i, self._llama.piece(i, special=True), p) for i, p in chances)

    def _show(self, text: str) -> str:
        shown = self._stop_filter.feed(text)
        self._text.append(shown)
        return shown

    def _end(self, token: int = -1) -> None:
        """Tell the rest of the text: the text of a final token, and the text that was held back."""
        has_ended, rest = self.finish_reason == "stop", b""
        if has_ended:
            ending = self._llama.piece(token, special=True)
            self.raw.append(self._raw_decoder.decode(ending, final=True))
            rest = ending if token in self._preserved else b""
        text = ""
        if has_ended or self.partial.messages is None:  # otherwise the character can be continued
            text = self._show(self._decoder.decode(rest, final=True))
        rest_of_text = self._stop_filter.rest()
        self._text.append(rest_of_text)
        if text := text + rest_of_text:
            self._tell(Piece(-1, text))

    # Its end.

    def so_far(self) -> PartialAnswer | None:
        """Return the answer, to be continued; None if it has no token, has ended or was misread."""
        partial = self.partial
        has_no_token = len(self.tokens) == partial.n_prompt or self._misread is not None
        if self.finish_reason == "stop" or has_no_token or partial.messages is None:
            return None
        text, is_split = partial.text + "".join(self._text), self.request.handle.splits
        return replace(
            partial,
            tokens=self.tokens,
            text=text,
            shown=self.given.text if is_split and self.given else AnswerText(content=text),
            undecoded=(self._decoder.getstate()[0], self._raw_decoder.getstate()[0]),
        )

    def finish(self, fault: BaseException | None = None) -> GroupAnswer:
        """Return the answer, as far as it was written. Its handle has all of it then.

        fault: why it ends here, if the answer itself has none.
        """
        if not self.has_ended:
            self._end()
        if raw := "".join(self.raw)[sum(len(piece.raw) for piece in self.pieces) :]:
            self._tell(Piece(-1, "", raw))  # of the token that ended the answer
        text = self._split()
        fault = self.fault or fault
        partial = self.partial
        if fault is None and partial.messages is not None:
            answer = self.tokens[partial.n_prompt :]
            self._remember(self.request.owner, partial.rendered, answer)
        reason = self.finish_reason if fault is None else ""
        self.given = GroupAnswer(
            self.request,
            text,
            tuple(self.pieces),
            "tool_calls" if reason == "stop" and text.tool_calls else reason,
            self.stop_text,
            self.partial.n_prompt,
            self.n_token,
            self.n_reused,
            fault,
        )
        return self.given

    def _split(self) -> AnswerText:
        """Return the text of the whole answer, split as clients receive it."""
        if self._reading is not None:
            self._reading.close()
            return self._reading.shown
        written = "".join(piece.text for piece in self.pieces)
        if not self.request.handle.splits:
            return AnswerText(content=written)
        with engine_errors():
            reader = self._open_reader(self.partial.rendered)
            reader.feed(written)
            reader.finish()
        shown: AnswerText = reader.shown
        return shown

    def close(self) -> None:
        """Free the sampler, and end the reading."""
        self.partial.sampler.close()
        if self._reading is not None:
            self._reading.close()


def _utf8_decoder(undecoded: bytes) -> codecs.IncrementalDecoder:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.setstate((undecoded, 0))
    return decoder
