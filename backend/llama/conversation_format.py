"""A model's conversation format: prompts from messages, and answers split into their parts.

llama.cpp's chat layer (backend._chat) does the work. The tables add the facts that it lacks, as
data. Runs in the process of format_child.py, because templates are not trusted.
"""

from __future__ import annotations

import bisect
import contextlib
import datetime
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from backend import _chat
from backend.llama import generic_calls
from backend.llama.fitting import Fitted, Fitting, texts_joined, with_system, words_of
from backend.llama.guard import MEDIA, Guard, has_images, is_marked, unmarked
from backend.protocol.chat import AnswerText, ChatFacts, Delta, Json, ToolCall, restricts

SWITCHES: Sequence[tuple[str, Any, Any]] = (
    ("enable_thinking", True, False),
    ("thinking", True, False),
    ("thinking_budget", -1, 0),
    ("enable_reasoning", True, False),
    ("reasoning", True, False),
    ("skip_reasoning", False, True),
    ("force_reasoning", True, False),
    ("skip_thinking", False, True),
    ("thinking_mode", "on", "off"),
    ("reasoning_effort", "high", "none"),
    ("reasoning_effort", "high", "no_think"),
)
"""Template variables that switch thinking: name, value for on, value for off. The first with an
effect counts, and all of the same name do."""

WORDS: Sequence[tuple[str, str]] = (
    ("/think", "/no_think"),  # Nemotron Nano v2
    ("detailed thinking on", "detailed thinking off"),
)
"""Words in the system prompt that switch thinking on and off, where a template without such a
variable reads them."""

EFFORTS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""Values of the variable reasoning_effort, weakest first, that templates may name."""


@dataclass(frozen=True)
class Thought:
    """Marks of a thought that a model writes although llama.cpp finds none in its template.

    then: text that may follow the thought and is no content either.
    """

    start: str
    end: str
    then: str = ""


THOUGHTS: Sequence[Thought] = (
    Thought("<think>", "</think>"),
    Thought("◁think▷", "◁/think▷"),
    Thought("[THINK]", "[/THINK]"),
    Thought("<thinking>", "</thinking>"),
    Thought("<thought>", "</thought>"),
    Thought("<|think|>", "<|end|>", "<|begin|>assistant"),  # Solar
    Thought("<|inner_prefix|>", "<|inner_suffix|>"),  # Apertus
    Thought("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"),  # Apriel
)

WRAPPERS: Sequence[tuple[str, str]] = (
    ("<answer>", "</answer>"),  # Hunyuan
    ("<response>", "</response>"),  # ERNIE, Granite 3.3
    ("", "[END FINAL RESPONSE]"),  # Apriel
)
"""Marks around the content. Without a thought before them they count where a template has them; so
does a mark that only ends."""


@dataclass(frozen=True)
class Separator:
    """Text between several messages of one kind in one answer.

    in_template: a mark of the templates that it applies to. message: the header of such a message.
    """

    in_template: str
    message: re.Pattern[str]
    text: str = "\n\n"


SEPARATORS: Sequence[Separator] = (
    Separator("<|channel|>", re.compile(r"<\|channel\|>analysis<\|message\|>")),
    Separator("<|channel|>", re.compile(r"<\|channel\|>(?:commentary|final)<\|message\|>")),
)


_N_SHORT = 64
"""Messages that are rendered without a look at the time.

Half as many show the effect of a template.
"""
_N_LONG = 256
"""Messages that are kept where a template looks back at all messages from each."""
_GROWTH_MAX = 8.0
"""Four times the messages make 4 times the rounds of loops, or 16 times where one looks back."""

_CLOSES_LATER = "\ue000"  # a private-use character, which no mark begins with
_THOUGHT, _CONTENT = "\ue001", "\ue002"
_PROBE = " probe"
_HIDDEN = 0x40000
"""Added to a letter that is hidden from the parser: Unicode has no letters from here on."""
_HIDDEN_LETTERS = f"[{chr(_HIDDEN)}-{chr(2 * _HIDDEN)}]"
_GAP = 770_077_007_700_000
"""Stands in a grammar for JSON that llguidance matches; further gaps have the next numbers."""
_NOTHING: Json = {"reasoning": "", "content": ""}
_ID_CHARS_MAX = 64
_N_CALLS_BEHIND = 64
"""Calls that are read although the parser's form has no place for them; each is a search."""


class ConversationFormat:
    """A chat template. Methods raise RuntimeError, ValueError or MemoryError where it fails.

    control, framing: texts of tokens, as in Guard.
    """

    def __init__(
        self,
        template: str,
        bos: str,
        eos: str,
        control: Sequence[str] = (),
        framing: Sequence[str] = (),
    ) -> None:
        self._source = template
        self._guard = Guard(control, framing, template)
        self._template = _chat.Template(template, bos, eos)
        # llama.cpp finds out a template's marks by comparing prompts. The tokens' texts can mislead
        # it: with "</s>", it looks for another call than Mistral Small 3.2 writes.
        self._bare = _chat.Template(template, "", "") if bos or eos else self._template
        self._facts: ChatFacts | None = None
        self._own_tags: list[tuple[str, str]] = []  # of thoughts, as llama.cpp finds them
        self._looking_back: dict[frozenset[tuple[str, ...]], bool] = {}  # by kinds of messages
        caps = self._template.caps()
        self._fitting = Fitting(template, caps, self._prompt_of, self._guard.words)
        self._switches: dict[str, tuple[Any, Any]] = {}
        self._words: tuple[str, str] | None = None

    def facts(self) -> ChatFacts:
        """Return the abilities of the template, found by rendering a question in several ways."""
        if self._facts is None:
            caps = self._template.caps()
            ask = [{"role": "user", "content": "Hi"}]
            applied = self._apply(ask, {})
            start = applied["thinking_start"]
            self._own_tags = [(start, end) for end in applied["thinking_ends"] if start and end]
            shows_thoughts = bool(applied["supports_thinking"] and start)
            shows_thoughts |= self._marked_thought() is not None
            self._switches = self._find_switches(ask)
            self._words = None if self._switches else self._find_words(ask)
            has_switch = bool(self._switches or self._words)
            self._facts = ChatFacts(
                thinking="switch" if has_switch else "always" if shows_thoughts else "none",
                thinks_by_default=self._is_on(ask) if has_switch else shows_thoughts,
                efforts=self._find_efforts(ask),
                tools=True,
                tools_described=not self._fitting.knows_tools,
                parallel_tool_calls=self._fitting.knows_parallel_calls,
                system=caps["supports_system_role"],
            )
        return self._facts

    def render(self, messages: Sequence[Json], options: Json) -> Json:
        """Return Rendered's fields, with triggers as pairs and what AnswerSplitter needs.

        options: of ChatOptions. A last message of the assistant is continued. The prompt and
        `begun` have the guard's marks.
        """
        with contextlib.suppress(RuntimeError, ValueError):
            self.facts()  # finds the switch of thinking
        messages = [self._split_thought(_readable(message)) for message in messages]
        images = has_images(messages)
        # Everything from here on is marked, except for the inputs of grammars and parsers.
        messages, options = self._guard.messages(messages), self._guarded(options, images)
        applied, way = self._fitted(messages, options)
        calls = [call for m in (*messages, *way.messages) for call in m.get("tool_calls", ())]
        begun: str = applied["begun"] + applied["prefill"]
        starts = [applied["thinking_start"]] if applied["thinking_start"] else []
        known = [mark for row in THOUGHTS for mark in (row.start, row.end, row.then)]
        known += [mark for pair in WRAPPERS for mark in pair]
        preserved = [*applied["preserved"], *starts, *applied["thinking_ends"], *known]
        preserved = list(dict.fromkeys(filter(None, preserved)))
        opened: str = applied["generation_prompt"]
        is_opened = _is_in_thought(opened, starts, applied["thinking_ends"])
        own = [] if is_opened else [i for i, row in enumerate(THOUGHTS) if row.start not in starts]
        marked = None if applied["thinking_start"] else self._marked_thought()
        continued, prompt = applied["continued"], applied["prompt"]
        if not options.get("opens", True) and messages[-1]["role"] != "assistant":
            prompt = prompt.removesuffix(applied["begun"])  # as llama.cpp, whose parser keeps it
        return {
            "prompt": self._guard.resolved(prompt, images),
            "begun": self._guard.resolved(begun, images),
            "grammar": applied["grammar"],
            "grammar_lazy": applied["grammar_lazy"],
            "triggers": applied["triggers"],
            "gaps": applied["gaps"] if applied["grammar"] else [],
            "preserved": preserved,
            "stops": applied["stops"],
            "n_left_out": applied["n_left_out"],
            "fitted": list(way.remarks),
            "thinks": bool(continued["reasoning"])
            if continued["reasoning"] or continued["content"]
            else is_opened,
            "thinking_start": marked.start if marked else applied["thinking_start"],
            "thinking_ends": [marked.end] if marked else applied["thinking_ends"],
            "parser": {
                "format": applied["format"],
                "parser": applied["parser"],
                "opened": self._read_opening(applied, messages, options),
                "prefill": unmarked(applied["prefill"]),
                "continued": continued,
                "marks": preserved,
                "ends": [*(end.strip() for end in applied["thinking_ends"]), *applied["stops"]],
                "start": applied["thinking_start"],
                "starts": [value for kind, value in applied["triggers"] if kind == "word"],
                "thought": _known_thought(applied, is_opened),
                "calls": bool(options["tools"]) and options["tool_choice"] != "none",
                "described": applied["described"],
                "ids": sorted({unmarked(call.get("id", "")) for call in calls}),
                "separators": [
                    i for i, s in enumerate(SEPARATORS) if s.in_template in self._source
                ],
                "thoughts": own,
                "wrappers": [
                    i for i, (start, end) in enumerate(WRAPPERS) if (start or end) in self._source
                ],
            },
        }

    def _read_opening(self, applied: Json, messages: Sequence[Json], options: Json) -> str:
        """Return what opens an answer, as llama.cpp's parser reads it.

        That of DeepSeek V3.2 knows what a question is followed by, and not what a tool's result is.
        """
        opened: str = applied["generation_prompt"]
        if messages[-1]["role"] != "tool":
            return opened
        parser = _chat.Parser(applied["format"], opened, applied["parser"])
        if json.loads(parser.parse(""))["n_read"] >= 0:
            return opened
        return str(self._apply([{"role": "user", "content": "a"}], options)["generation_prompt"])

    def _guarded(self, options: Json, images: bool) -> Json:
        """Return the options with marks in the texts of others, which are the tools."""
        tools, choice = _tools(options)
        return {**options, "tools": self._guard.tools(tools, images), "tool_choice": choice}

    def _split_thought(self, message: Json) -> Json:
        """Return a message whose thought is apart, where marks would hide it from the template.

        Some programs send an answer back with its thought in the content. A template cuts it out
        by its tags, which it cannot find where they are control tokens and have marks. Only an
        answer that begins with the tag is split.
        """
        content = message["content"]
        if message["role"] != "assistant" or not isinstance(content, str):
            return message
        for start, end in () if message.get("reasoning_content") else self._thought_tags():
            looks = re.search(rf"""['"]{re.escape(end)}['"]""", self._source)
            is_hidden = is_marked(self._guard.words(start)) or is_marked(self._guard.words(end))
            if looks and is_hidden and content.lstrip().startswith(start) and end in content:
                thought, _, content = content.lstrip().removeprefix(start).partition(end)
                thought, content = thought.strip("\n"), content.lstrip("\n")
                return {**message, "reasoning_content": thought, "content": content}
        return message

    def _thought_tags(self) -> Iterator[tuple[str, str]]:
        """Yield the tags of thoughts that the template may look for."""
        yield from ((thought.start, thought.end) for thought in THOUGHTS)
        yield from self._own_tags

    def _fitted(self, messages: list[Json], options: Json) -> tuple[Json, Fitted]:
        """Apply the conversation in the first way that the template accepts."""
        refused: list[tuple[Fitted, Exception]] = []
        for way in self._fitting.ways(messages, options):
            if any(way.messages == other.messages for other, _ in refused):
                continue
            asked = {**options, "tools": [], "tool_choice": "none"} if way.describes else options
            told = self._fitting.told(way.messages, asked)
            try:
                if told and told[-1]["role"] == "assistant":
                    applied = self._continued(told, asked)
                else:
                    applied = self._apply_long(told, asked)
            except (RuntimeError, ValueError) as error:
                refused.append((way, error))
                continue
            if way.describes and options.get("json_schema") is None:
                applied |= _described_calls(options)
            return applied, way
        raise min(refused, key=lambda pair: len(pair[0].remarks))[1]

    def _prompt_of(self, messages: list[Json], tools: list[Json], is_exact: bool) -> str:
        """Return the prompt alone of messages with marks."""
        options: Json = {"tools": tools, "tool_choice": "auto"}
        request = self._request(self._fitting.told(messages, options), options)
        request["plain"] = not is_exact
        rendered: Json = json.loads(self._template.render(_dumps(request)))
        return str(rendered["prompt"])

    def _apply(self, messages: Sequence[Json], options: Json, *, continues: bool = False) -> Json:
        """Call llama.cpp, and return its result with every field.

        Only "prompt" and "begun", which is the generation prompt, have the marks of the request.
        """
        request = {**self._request(messages, options), "continues": continues}
        asked = _dumps(request)
        shown: Json = json.loads(self._template.render(asked))
        applied, begun, template = shown, unmarked(shown["generation_prompt"]), self._template
        if self._bare is not self._template or is_marked(asked):
            applied, template = json.loads(self._bare.render(unmarked(asked))), self._bare
            if applied["generation_prompt"] != begun:
                applied = json.loads(self._template.render(unmarked(asked)))
                template = self._template
        applied["gaps"] = [[_GAP, "", "", False]] if request["json_schema"] else []
        is_call = request["tools"] and applied["grammar"] and not request["json_schema"]
        if is_call and options.get("gaps"):
            applied |= _with_gaps(template, request, applied["grammar"])
        applied = {**applied, "prompt": shown["prompt"], "begun": shown["generation_prompt"]}
        if request["grammar"]:
            applied["grammar"], applied["grammar_lazy"] = request["grammar"], False
        if applied["thinking_start"] not in self._source:
            applied["thinking_start"] = ""
        # llama.cpp also names the mark of a call where some models leave a thought open before one.
        ends = applied["thinking_ends"]
        applied["thinking_ends"] = [end for end in ends if ends[0].strip() in end]
        return {**applied, "n_left_out": 0, "prefill": "", "continued": _NOTHING, "described": None}

    def _request(self, messages: Sequence[Json], options: Json) -> Json:
        variables = dict(options.get("variables", {}))
        if effort := options.get("effort"):
            variables["reasoning_effort"] = effort
        thinks = options.get("thinking")
        if self._switches and thinks is None and self._facts is not None:
            thinks = self._facts.thinks_by_default
        elif self._switches:
            for name, values in self._switches.items():
                variables.setdefault(name, values[0 if thinks else 1])
        schema = options.get("json_schema")
        return {
            "messages": self._with_words(messages, options.get("thinking")),
            "tools": options.get("tools", []),
            "tool_choice": options.get("tool_choice", "auto"),
            "parallel_tool_calls": options.get("parallel_tool_calls", True),
            "json_schema": "" if schema is None else _dumps({"const": _GAP}),
            "grammar": options.get("grammar", ""),
            "thinking": variables.get("enable_thinking", thinks is None or thinks) is True,
            "variables": variables,
        }

    def _apply_long(self, messages: Sequence[Json], options: Json) -> Json:
        """Apply any number of messages, without the oldest where the template looks back at all.

        llama.cpp renders all messages three times. Where a few messages have the same prompt
        without its changes to messages, one rendering of all of them is enough.
        """
        if len(messages) <= _N_SHORT:
            return self._apply(messages, options)
        short = _last(messages, _N_SHORT // 2)
        applied = self._apply(short, options)
        request = self._request(messages, options)
        variables = {"enable_thinking": request["thinking"], **_dates(), **request["variables"]}
        if request["tools"]:
            variables["tools"] = request["tools"]

        def plain(kept: Sequence[Json]) -> str:
            told = self._with_words(kept, options.get("thinking"))
            return self._plain(told, **variables) or ""

        def full(kept: Sequence[Json]) -> str:
            asked = _dumps({**self._request(kept, options), "continues": False})
            prompt: str = json.loads(self._template.render(asked))["prompt"]
            return prompt

        is_plain = _kinds(messages) == _kinds(short) and plain(short) == applied["prompt"]
        render = plain if is_plain else full
        kept = messages
        if len(messages) > _N_LONG and (options.get("shorten") or self._looks_back(messages)):
            # In steps, so that a conversation's prompt rarely changes at its beginning.
            n_out = -(-(len(messages) - _N_LONG) // _N_SHORT) * _N_SHORT
            kept = _last(messages, len(messages) - n_out)
        return {**applied, "prompt": render(kept), "n_left_out": len(messages) - len(kept)}

    def _looks_back(self, messages: Sequence[Json]) -> bool:
        """Return whether the work for rendering grows with the square of their number.

        Counted, not timed, so that a slow or busy machine finds the same.
        """
        kinds = frozenset(_kinds(messages))
        if kinds not in self._looking_back:
            brief = [
                {**m, "content": "x"} for m in messages if m["role"] not in ("system", "developer")
            ]
            n_few, n_many = (self._n_round(_last(brief, n)) for n in (_N_SHORT // 2, 2 * _N_SHORT))
            self._looking_back[kinds] = n_many > _GROWTH_MAX * n_few
        return self._looking_back[kinds]

    def _n_round(self, messages: Sequence[Json]) -> int:
        """Return the rounds of the template's loops; 0 where it refuses."""
        try:
            return self._template.count_rounds(_dumps({"messages": messages, "variables": {}}))
        except (RuntimeError, ValueError):
            return 0

    def _continued(self, messages: Sequence[Json], options: Json) -> Json:
        """Apply messages of which the last is an answer to go on with.

        llama.cpp writes a thought, if only an empty one, before every answer that it goes on with.
        Where the answer began otherwise, its beginning is put together here, and used if the parser
        finds the message in it.
        """
        *before, last = messages
        said = AnswerText(last.get("reasoning_content", ""), words_of(last["content"]))
        applied = self._apply_long(before, options)
        if not said.reasoning and not said.content:
            return applied
        result = None
        for asked in self._thinking_variants(options):
            if asked is not options:
                applied = self._apply_long(before, asked)
            for candidate in self._beginnings(applied, before, said, asked):
                result = result or candidate
                if _goes_on(candidate):
                    return candidate
        assert result is not None
        return result

    def _thinking_variants(self, options: Json) -> Iterator[Json]:
        """Yield the options, and the same with thinking switched."""
        yield options
        if self._facts is not None and self._facts.thinking == "switch":
            thinks = options.get("thinking")
            yield {
                **options,
                "thinking": not (self._facts.thinks_by_default if thinks is None else thinks),
            }

    def _beginnings(
        self, applied: Json, before: Sequence[Json], said: AnswerText, options: Json
    ) -> Iterator[Json]:
        """Yield ways to begin an answer with earlier content: the model's way, llama.cpp's."""
        short = _last(before, _N_SHORT // 2)
        opened: str = applied["generation_prompt"]
        marks = self._thought_marks(applied, short, options)
        prefill = said.content
        if said.reasoning:
            start, end = marks
            if _is_in_thought(opened, [applied["thinking_start"]], applied["thinking_ends"]):
                start = ""
            prefill = start + said.reasoning + (end + said.content if said.content else "")
        continued = {"reasoning": unmarked(said.reasoning), "content": unmarked(said.content)}
        yield {
            **applied,
            "prompt": applied["prompt"] + prefill,
            "prefill": prefill,
            "continued": continued,
        }
        again = self._apply([*short, _message_of(said)], options, continues=True)
        yield {
            **again,
            "prompt": applied["prompt"].removesuffix(opened) + again["begun"],
            "n_left_out": applied["n_left_out"],
            "continued": continued,
        }

    def _thought_marks(
        self, applied: Json, messages: Sequence[Json], options: Json
    ) -> tuple[str, str]:
        """Return the text before a thought, and the text between it and the content."""
        if not applied["thinking_start"]:
            row = self._marked_thought() or THOUGHTS[0]
            wrappers = [f"{start}\n" for start, _ in WRAPPERS if start and start in self._source]
            return f"{row.start}\n", f"\n{row.end}{row.then}\n{''.join(wrappers)}"
        marked = _message_of(AnswerText(_THOUGHT, _CONTENT))
        shape = self._apply([*messages, marked], options, continues=True)["generation_prompt"]
        head, _, rest = shape.partition(_THOUGHT)
        between, _, _ = rest.partition(_CONTENT)
        opened: str = applied["generation_prompt"]
        if head.startswith(opened):
            return head.removeprefix(opened), between
        at = head.rfind(applied["thinking_start"])
        return head[max(at, 0) :], between

    def _marked_thought(self) -> Thought | None:
        """Return the marks of thoughts that the template has."""
        return next((row for row in THOUGHTS if row.start in self._source), None)

    def _plain(self, messages: Sequence[Json], **variables: Any) -> str | None:
        """Return the prompt with just these variables, or None where the template refuses them."""
        try:
            request = {"messages": messages, "variables": variables}
            return self._template.render_plain(_dumps(request))
        except (RuntimeError, ValueError):
            return None

    def _find_switches(self, messages: Sequence[Json]) -> dict[str, tuple[Any, Any]]:
        found: dict[str, tuple[Any, Any]] = {}
        for name, on, off in SWITCHES:
            if name in found or name not in self._source:
                continue
            rendered = [self._plain(messages, **{name: value}) for value in (on, off)]
            other = self._plain(messages, **{name: _THOUGHT})
            if isinstance(off, str) and (other == rendered[1] or _THOUGHT in (other or "")):
                continue  # it does not know this value for off
            if None not in rendered and rendered[0] != rendered[1]:
                found[name] = (on, off)
        return found

    def _find_words(self, messages: Sequence[Json]) -> tuple[str, str] | None:
        for words in WORDS:
            if words[1] in self._source:
                on, off = (
                    _behind(self._plain(with_system(messages, word)), messages) for word in words
                )
                if on != off:
                    return words
        return None

    def _with_words(self, messages: Sequence[Json], thinks: bool | None) -> Sequence[Json]:
        if self._words is None or thinks is None:
            return messages
        return with_system(messages, self._words[0 if thinks else 1])

    def _is_on(self, messages: Sequence[Json]) -> bool:
        """Return whether the template thinks where its switch has no value.

        llama.cpp always gives enable_thinking, and "on" is its default. A template that never asks
        whether the variable is defined was written for that.
        """
        name = "enable_thinking"
        asks = re.search(rf"\b{name}\s+(is\s+(not\s+)?\w|if\b)|\b{name}\s*\|", self._source)
        if name in self._switches and not asks:
            return True
        if self._words is not None:
            on_prompt = self._plain(self._with_words(messages, True))
            return _behind(self._plain(messages), messages) == _behind(on_prompt, messages)
        on = {name: values[0] for name, values in self._switches.items()}
        return self._plain(messages) == self._plain(messages, **on)

    def _find_efforts(self, messages: Sequence[Json]) -> tuple[str, ...]:
        if "reasoning_effort" not in self._source and "reasoning_strength" not in self._source:
            return ()
        switched = {name: on for name, (on, _) in self._switches.items()}
        switched.pop("reasoning_effort", None)

        def rendered(effort: str) -> str | None:
            both = {"reasoning_effort": effort, "reasoning_strength": effort}
            return self._plain(messages, **{**switched, **both})

        unknown = rendered(_THOUGHT)
        if unknown is not None and _THOUGHT in unknown:  # it shows any value to the model
            return ("low", "medium", "high")
        different = {e: p for e in EFFORTS if (p := rendered(e)) not in (None, unknown)}
        first = {prompt: effort for effort, prompt in reversed(different.items())}
        return tuple(e for e in different if first[different[e]] == e)


class _Body:
    """Reads what stands behind a thought. Text that is no call is hidden from llama.cpp's parser.

    Where the parser stops, something begins that looks like a call and is none. Its first letter is
    hidden, so that the parser takes it as text and goes on. head: what stands before. ends: signs
    that may stand at the end and are no text. starts: marks that begin calls; where the parser
    takes the first one and all behind it as text, a later one may begin a call.
    """

    def __init__(
        self, parser: _chat.Parser, ends: Sequence[str], starts: Sequence[str], head: str = ""
    ) -> None:
        self._parser, self._ends, self._head = parser, ends, head
        self._start = re.compile("|".join(map(re.escape, starts)) or "(?!)")
        self._hidden: set[int] = set()

    def read(self, text: str, first: int, *, hides: bool, is_final: bool) -> AnswerText:
        """Return the parts of a text. Text that cannot be parsed is content.

        Nothing before `first` is hidden. hides: no call has been shown yet. Until it is final, text
        behind a fault that follows a call is held back: it may be another call.
        """
        found = self._found(text, first, hides=hides)
        n, rest = found["n_read"], ""
        if n < 0:
            n, found = self._readable(self._with_hidden(text))
        answer = _message_in(found)
        if n < len(text) and answer.tool_calls:
            if is_final:
                calls, rest = self._calls_behind(text, n, found, first)
                answer.tool_calls = calls or answer.tool_calls
        elif n < len(text):
            rest = text[max(min(n, found["n_text"]), first) :]
        if not self._is_end(rest):
            answer.content += rest
        for name in ("reasoning", "content"):
            setattr(answer, name, _shown_again(getattr(answer, name)))
        calls = answer.tool_calls
        answer.tool_calls = [replace(c, arguments=_shown_again(c.arguments)) for c in calls]
        return answer

    def _calls_behind(
        self, text: str, n: int, found: Json, first: int = 0
    ) -> tuple[list[ToolCall], str]:
        """Return all calls where the parser stops behind some, and the text behind the last.

        Its form of some templates has one call only. Without a call that it has read, the text is
        read again. n: where it stops; `found` is what it says of the text up to there.
        """
        calls: list[ToolCall] = []
        text = self._with_hidden(text)
        rest = text[n:]
        while found["call"] is not None and len(calls) < _N_CALLS_BEHIND:
            read = _message_in(found).tool_calls
            if n == len(text):
                return [*calls, *read], ""
            calls.append(read[0])
            begin, end = found["call"]
            ends = (m for m in range(n, end, -1) if self._parse_shown(text[:m])["is_whole"])
            rest = text[next(ends, end) :]
            # The next call may stand in the same frame, or in one of its own.
            before = max(found["n_text"], first)
            for other in (text[:begin] + text[end:], text[:before] + rest.lstrip()):
                text = other
                n, found = self._readable(text)
                if found["call"] is not None and found["n_text"] <= before:
                    break
            else:
                break
        return calls, rest

    def _begins_call(self, rest: str, text: str, found: Json) -> bool:
        """Return whether the text behind calls may be the beginning of another one."""
        begin, rest = found["call"][0], rest.strip()
        name = text.find(found["tool_calls"][0][1], begin)
        starts = text[begin:name].strip(), text[found["n_text"] : begin].strip()
        return any(s.startswith(rest) or (s and rest.startswith(s)) for s in starts)

    def _readable(self, text: str) -> tuple[int, Json]:
        """Return how far the parser can read a text in which letters may be hidden, and what."""
        found = self._parse_shown(text)
        n: int = found["n_read"]
        if n < 0:
            lengths = range(1, len(text) + 1)
            n = bisect.bisect(
                lengths, False, key=lambda n: self._parse_shown(text[:n])["n_read"] < 0
            )
        return n, found if n == len(text) else self._parse_shown(text[:n])

    def is_closed(self, text: str, marks: Sequence[str]) -> bool:
        """Return whether a text ends as its form wants, such as by a fence, and not by a mark."""
        found = self._parse(text)
        end = text[found["n_text"] :]
        if not found["is_whole"] or found["n_read"] < len(text) or any(m in end for m in marks):
            return False
        return bool(self._parse(text + _CLOSES_LATER)["n_read"] < 0)

    def end_calls(self, text: str) -> tuple[int, list[ToolCall]]:
        """Return the calls with which a text ends, whole ones, and where they begin.

        Without such calls: the end of what cannot become one.
        """
        found = self._parse(text)
        while found["n_read"] < len(text) or found["ends_in_text"]:
            if found["has_call"] and not found["ends_in_text"]:
                n, part = self._readable(self._with_hidden(text))
                calls, rest = self._calls_behind(text, n, part)
                if calls and (not rest.strip() or self._begins_call(rest, text, part)):
                    return part["n_text"], [] if rest.strip() else calls
            further = self._hide(text, found, 0)
            if further is None:
                return len(text), []
            found = further
        found = self._later_start(text, found, 0)
        return found["n_text"], _message_in(found).tool_calls if found["is_whole"] else []

    def _found(self, text: str, first: int, *, hides: bool) -> Json:
        """Return what the parser finds."""
        found = self._parse(text)
        while hides and found["n_read"] < len(text) and not found["has_call"]:
            further = self._hide(text, found, first)
            if further is None:
                return found
            found = further
        return self._later_start(text, found, first) if hides else found

    def _hide(self, text: str, found: Json, first: int) -> Json | None:
        """Hide the first letter of what is no call; return what the parser says then, if more."""
        at = max(found["n_text"], first)
        if self._is_end(text[at:]) or ord(text[at]) >= _HIDDEN:
            return None
        self._hidden.add(at)
        further = self._parse(text)
        if further["n_text"] > at:
            return further
        self._hidden.remove(at)
        return None

    def _later_start(self, text: str, found: Json, first: int) -> Json:
        """Hide marks of calls that the parser has taken as text, until one begins a call."""
        for start in self._start.finditer(text, first):
            if start.start() >= found["n_text"] or found["has_call"]:
                break
            self._hidden.add(start.start())
            found = self._parse(text)
        return found

    def _is_end(self, text: str) -> bool:
        """Return whether a text is only end marks, and perhaps the beginning of one."""
        for end in self._ends:
            text = text.replace(end, "")
        left = text.strip()
        return left in ("", _CLOSES_LATER) or any(end.startswith(left) for end in self._ends)

    def _parse(self, text: str) -> Json:
        """Return what the parser says of a text, with places in this text."""
        return self._parse_shown(self._with_hidden(text))

    def _with_hidden(self, text: str) -> str:
        if not self._hidden:
            return text
        shifts = dict.fromkeys(self._hidden, _HIDDEN)
        return "".join(chr(ord(c) + shifts.get(i, 0)) for i, c in enumerate(text))

    def _parse_shown(self, text: str) -> Json:
        """Return what the parser says of a text in which letters may be hidden."""
        found: Json = json.loads(self._parser.parse(self._head + text))
        n_head = len(self._head)
        if found["call"] is not None:
            found["call"] = [place - n_head for place in found["call"]]
        return {**found, "n_read": found["n_read"] - n_head, "n_text": found["n_text"] - n_head}


def _shown_again(text: str) -> str:
    """Return a text with the letters that were hidden."""
    return re.sub(_HIDDEN_LETTERS, lambda found: chr(ord(found[0]) - _HIDDEN), text)


class AnswerSplitter:
    """Splits one answer into thought, content and tool calls while it is written.

    parser: what ConversationFormat.render() returned by this name. shown: the text that another
    process has returned for this answer before (AnswerText.to_message()'s fields).

    A thought ends at its first end mark, whatever it quotes: the parser gets a letter in its place.
    Where no end mark follows in the whole answer, a call counts that is whole and ends the answer.
    """

    def __init__(self, parser: Json, shown: Json) -> None:
        read = _chat.Parser(parser["format"], parser["opened"], parser["parser"])
        self._start: str = parser["start"]
        self._marks: list[str] = parser["marks"]
        self._separators = [SEPARATORS[i] for i in parser["separators"]]
        self._known = Thought(*parser["thought"]) if parser["thought"] else None
        self._thoughts = [THOUGHTS[i] for i in parser["thoughts"]]
        self._wrappers: list[int] = parser["wrappers"]
        self._continued: Json = parser["continued"]
        self._described: list[str] | None = parser["described"]
        self._calls: bool = parser["calls"]
        self._ids = {*parser["ids"], *(call_id for _, call_id, *_ in shown["tool_calls"])}
        self._raw: str = parser["prefill"]
        self._begun = ""  # of a thought, in the prompt
        if self._known is not None and not self._known.start:
            _, _, self._begun = parser["opened"].rpartition(self._start)
        self._prompted = _message(read.parse("")).reasoning.strip()  # in the prompt, complete
        self._body = _Body(read, parser["ends"], parser["starts"])
        closed = self._known.start + self._known.end if self._known is not None else ""
        self._open = _Body(
            read, parser["ends"], parser["starts"], closed
        )  # an open thought, as if it were content
        self._shown = AnswerText(
            **{
                "reasoning": self._continued["reasoning"] + shown["reasoning"],
                "content": self._continued["content"].lstrip("\n") + shown["content"],
                "tool_calls": [ToolCall(*call) for _, *call in shown["tool_calls"]],
            }
        )

    def feed(self, text: str, *, is_final: bool) -> Delta:
        """Add text and return what the answer gained. is_final: it is complete."""
        self._raw += text
        delta = self._gained(self._split(is_final), is_final)
        self._shown.add(delta)
        return delta

    def _split(self, is_final: bool) -> AnswerText:
        rows = [*([self._known] if self._known is not None else []), *self._thoughts]
        row, thought, rest, is_open = _own_thought(self._raw, rows, is_final)
        if is_open:
            answer = self._unfinished(thought, is_final)
        elif row is not None and row is self._known:
            # White space alone is no thought for the parser.
            placed = row.start + (_THOUGHT if thought.strip() else thought) + row.end
            answer = self._parsed(placed + rest, len(placed), is_final)
            if _THOUGHT not in answer.reasoning:
                answer.reasoning = self._begun + _THOUGHT
            answer.reasoning = answer.reasoning.replace(_THOUGHT, thought)
        else:
            answer = self._parsed(rest, 0, is_final)
            answer.reasoning = thought or answer.reasoning
        self._tidy(answer, is_final)
        if self._described is not None and not is_open:
            answer.content, answer.tool_calls = generic_calls.read(
                answer.content, self._described, is_final=is_final
            )
        return answer

    def _unfinished(self, thought: str, is_final: bool) -> AnswerText:
        """Return a thought without its end mark, and calls at the end of the whole answer."""
        before, calls = thought, list[ToolCall]()
        if self._described is not None:
            before, calls = generic_calls.read(
                thought, self._described, is_final=is_final, at_end=True
            )
        elif self._calls:
            n, calls = self._open.end_calls(thought)
            before = thought[:n]
        if is_final and not calls:
            before = thought
        return AnswerText(self._begun + before, "", calls if is_final else [])

    def _parsed(self, raw: str, n_thought: int, is_final: bool) -> AnswerText:
        """Return llama.cpp's view of the answer; a broken one is content from its fault on."""
        text = raw
        for separator in self._separators:
            text = _separated(text, separator)
        hides = not self._shown.tool_calls
        answer = self._body.read(text, n_thought, hides=hides, is_final=is_final)
        # Text that could have become a mark stays text.
        if is_final and not answer.tool_calls and not self._body.is_closed(text, self._marks):
            text += _CLOSES_LATER
            longer = self._body.read(text, n_thought, hides=hides, is_final=is_final)
            for name in ("reasoning", "content"):
                whole = getattr(longer, name).removesuffix(_CLOSES_LATER)
                if whole.startswith(getattr(answer, name)) and not longer.tool_calls:
                    setattr(answer, name, whole)
        return answer

    def _tidy(self, answer: AnswerText, is_final: bool) -> None:
        """Remove white space around the thought and wrappers around the content."""
        had_thought = bool(answer.reasoning)
        answer.reasoning = answer.reasoning.strip()
        if self._start and not is_final and self._start.startswith(answer.reasoning):
            answer.reasoning = ""  # a model may open the thought that its prompt has opened
        elif self._start:
            answer.reasoning = answer.reasoning.removeprefix(self._start).lstrip()
        if self._prompted and not self._continued["reasoning"]:
            answer.reasoning = answer.reasoning.removeprefix(self._prompted).lstrip()
        answer.content = answer.content.lstrip("\n")
        for i, (start, end) in enumerate(WRAPPERS):
            if i not in self._wrappers and not (had_thought and start):
                continue
            content = answer.content.lstrip()
            if content.startswith(start):
                inner = content[len(start) :].lstrip("\n")
                answer.content = _before(inner, end, is_final)
                return
            if not is_final and start.startswith(content):
                answer.content = ""
        is_lost = not (answer.reasoning or answer.content or answer.tool_calls)
        if is_final and is_lost and not any(mark in self._raw for mark in self._marks):
            answer.content = self._raw.strip()

    def _gained(self, answer: AnswerText, is_final: bool) -> Delta:
        """Return the difference from the text shown before.

        Where the answer took something back, nothing is, and from there on all in the end.
        """
        shown = self._shown
        calls: dict[int, ToolCall] = {}
        for i, call in enumerate(answer.tool_calls):
            before = shown.tool_calls[i] if i < len(shown.tool_calls) else None
            if before is None:  # a name alone may be quoted
                if call.name and (is_final or len(call.arguments) > len("{")):
                    calls[i] = ToolCall(self._new_id(call.id), call.name, call.arguments)
                else:
                    break
            elif more := _more(before.arguments, call.arguments, False):
                calls[i] = ToolCall("", "", more)
        return Delta(
            _more(shown.reasoning, answer.reasoning, is_final),
            _more(shown.content, answer.content, is_final),
            calls,
        )

    def _new_id(self, written: str) -> str:
        """Return the id that the model wrote, if it is new in the conversation, or another one."""
        new = written
        if not written or written in self._ids or len(written) > _ID_CHARS_MAX:
            named = re.fullmatch(r"(functions\..+):\d+", written[:_ID_CHARS_MAX])
            ids = (f"{named[1]}:{i}" for i in range(len(self._ids) + 1)) if named else ()
            new = next((i for i in ids if i not in self._ids), f"call_{secrets.token_hex(12)}")
        self._ids.add(new)
        return new


def _described_calls(options: Json) -> Json:
    """Return the fields of an applied conversation for calls in the generic form."""
    tools: list[Json] = json.loads(unmarked(_dumps(options["tools"])))
    names = [tool["function"]["name"] for tool in tools]
    triggers = generic_calls.triggers()
    form: Json = {"grammar_lazy": True, "triggers": triggers, "described": names}
    plain = [{"type": "function", "function": {"name": name}} for name in names]
    for known in (tools, plain):  # no grammar exists for some parameters
        parallel = options.get("parallel_tool_calls", True)
        schema = generic_calls.schema(known, parallel=parallel)
        if grammar := _grammar_of(schema):
            # Small models fill the free space of llama.cpp's grammars until they have to end.
            compact = re.sub(r"^space ::= .*$", 'space ::= " "?', grammar, flags=re.MULTILINE)
            return {**form, "grammar": compact}
    raise AssertionError("a grammar of names alone is always made")


def _grammar_of(schema: Json) -> str:
    """Return the grammar of JSON; "" where llama.cpp makes none of the schema."""
    request = {
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [],
        "tool_choice": "none",
        "json_schema": _dumps(schema),
        "variables": {},
    }
    grammar: str = json.loads(_bare_template().render(_dumps(request)))["grammar"]
    return grammar


@cache
def _bare_template() -> _chat.Template:
    return _chat.Template("{% for m in messages %}{{ m.content }}{% endfor %}", "", "")


def _last(messages: Sequence[Json], n: int) -> list[Json]:
    """Return the system prompt and about the last n other messages, from a user's on."""
    n_system = 1 if messages and messages[0]["role"] in ("system", "developer") else 0
    first = max(len(messages) - n, n_system)
    while n_system < first < len(messages) and messages[first]["role"] != "user":
        first += 1
    return [*messages[:n_system], *messages[first:]]


def _kinds(messages: Sequence[Json]) -> set[tuple[str, ...]]:
    """Return what differs between messages except for their texts."""
    return {(m["role"], type(m["content"]).__name__, *sorted(m)) for m in messages}


def _dates() -> Json:
    """Return the variables that llama.cpp adds."""
    now = datetime.datetime.now()
    return {"datetime": now.strftime("%b %d %Y"), "date_string": now.strftime("%d %b %Y")}


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _more(before: str, now: str, is_final: bool) -> str:
    if now.startswith(before) or not is_final:
        return now[len(before) :] if now.startswith(before) else ""
    return now[len(os.path.commonprefix([before, now])) :]


def _message(parsed: str) -> AnswerText:
    return _message_in(json.loads(parsed))


def _message_in(data: Json) -> AnswerText:
    calls = [ToolCall(*call) for call in data["tool_calls"]]
    return AnswerText(data["reasoning"], data["content"], calls)


def _message_of(said: AnswerText) -> Json:
    return {"role": "assistant", "reasoning_content": said.reasoning, "content": said.content}


def _goes_on(applied: Json) -> bool:
    """Return whether the parser appends later text to the content."""
    try:
        parser = _chat.Parser(applied["format"], applied["generation_prompt"], applied["parser"])
        answer = _message(parser.parse(unmarked(applied["prefill"]) + _PROBE))
    except RuntimeError:
        return False
    reasoning: str = applied["continued"]["reasoning"]
    content: str = applied["continued"]["content"]
    if content:
        return answer.content.strip() == (content + _PROBE).strip()
    return answer.reasoning.strip() == (reasoning + _PROBE).strip()


def _known_thought(applied: Json, is_opened: bool) -> list[str]:
    """Return the marks of a thought at the beginning of an answer; empty where none can be."""
    start, ends = applied["thinking_start"], applied["thinking_ends"]
    if not (start and ends) or (start in applied["generation_prompt"] and not is_opened):
        return []
    return ["" if is_opened else start, ends[0].strip()]


def _separated(raw: str, separator: Separator) -> str:
    """Put a separator behind every header of such a message but the first."""
    n = 0

    def header(match: re.Match[str]) -> str:
        nonlocal n
        n += 1
        return match[0] + (separator.text if n > 1 else "")

    return separator.message.sub(header, raw)


def _own_thought(
    raw: str, rows: Sequence[Thought], is_final: bool
) -> tuple[Thought | None, str, str, bool]:
    """Return (row, thought, what follows, whether the thought goes on) of an answer."""
    for row in rows:
        text = raw.lstrip() if row.start else raw
        if text.startswith(row.start):
            thought, found, rest = text[len(row.start) :].partition(row.end)
            if not found:
                return row, _before(text[len(row.start) :], row.end, is_final), "", True
            following = rest.lstrip()
            if row.then and not is_final and row.then.startswith(following):
                return row, thought, "", False
            return row, thought, following.removeprefix(row.then) if row.then else rest, False
        if not is_final and text and row.start.startswith(text):
            return row, "", "", True
    return None, "", raw, False


def _before(text: str, end: str, is_final: bool) -> str:
    """Return the text before an end mark and white space; hold back what may become one."""
    text, found, _ = text.partition(end)
    if found or is_final:
        return text.rstrip()
    for n in range(min(len(end), len(text)), 0, -1):
        if text.endswith(end[:n]):
            text = text[:-n]
            break
    return text.rstrip()


def _is_in_thought(begun: str, starts: Sequence[str], ends: Sequence[str]) -> bool:
    opened = max((begun.rfind(start) for start in starts if start), default=-1)
    return opened >= 0 and all(begun.find(end, opened) < 0 for end in ends)


def _readable(message: Mapping[str, Any]) -> Json:
    """Return a message in the form that llama.cpp reads, from one in OpenAI's form."""
    readable = {key: value for key, value in message.items() if value is not None}
    content = readable.get("content", "")
    if isinstance(content, list):
        content = [
            {"type": "media_marker", "text": MEDIA} if part.get("type") == "image" else part
            for part in content
        ]
        content = texts_joined(content)
        if len(content) == 1 and content[0].get("type") == "text":
            content = content[0]["text"]
    readable["content"] = content
    if calls := readable.get("tool_calls"):
        readable["tool_calls"] = [_readable_call(call) for call in calls]
    return readable


def _readable_call(call: Mapping[str, Any]) -> Json:
    """Return a call whose arguments are an object in JSON, which most templates need."""
    arguments = call["function"].get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            is_object = isinstance(json.loads(arguments), dict)
        except ValueError:
            is_object = False
        arguments = arguments if is_object else json.dumps({"input": arguments})
    return {**call, "type": "function", "function": {**call["function"], "arguments": arguments}}


def _behind(prompt: str | None, messages: Sequence[Json]) -> str:
    """Return the part of a prompt that follows the content of its last message."""
    return (prompt or "").rpartition(messages[-1]["content"])[2]


def _with_gaps(template: _chat.Template, request: Json, plain: str) -> Json:
    """Return the grammar of calls with gaps for JSON, and the numbers that stand there.

    Most formats write all arguments as one object. Others write each parameter by itself; those
    that are no texts are JSON. Others write calls of Python, whose texts and numbers may be JSON.
    Each gap has the tool, the parameter or "", and whether it is text. plain: the grammar without
    gaps.
    """
    tools = json.loads(unmarked(_dumps(request["tools"])))
    tried = [tools]

    def rendered(changed: list[Json]) -> str:
        if changed in tried:  # rendering many tools takes a second
            return ""
        tried.append(changed)
        asked = unmarked(_dumps({**request, "tools": changed}))
        with contextlib.suppress(RuntimeError, ValueError):
            return str(json.loads(template.render(asked))["grammar"])
        return ""

    for is_each, has_texts in ((False, False), (True, True), (True, False)):
        places: list[tuple[str, str, bool]] = []
        grammar = rendered([_tool_with_gaps(tool, places, is_each, has_texts) for tool in tools])
        gaps: list[list[Any]] = [[_GAP + n, *place] for n, place in enumerate(places)]
        found = [gap for gap in gaps if f'"{gap[0]}"' in grammar]
        if texts := [number for number, _, _, is_text in found if is_text]:
            grammar = _with_marks(grammar, plain, texts)
        if found and grammar:
            return {"grammar": grammar, "gaps": found}
    places = []
    grammar = rendered([_tool_with_numbers(tool, places) for tool in tools])
    for n, (_, name, _) in enumerate(places):
        free = f'("{_GAP + n}" "=") python-or-json-value'
        if free not in grammar:
            return {}
        grammar = grammar.replace(free, f'("{name}" "=") "{_GAP + n}"')
    gaps = [[_GAP + n, *place] for n, place in enumerate(places)]
    return {"grammar": grammar, "gaps": gaps} if gaps else {}


def _with_marks(grammar: str, plain: str, numbers: Sequence[int]) -> str:
    """Return a grammar where the same stands before gaps for texts as in the one without them.

    Some formats say beside a parameter whether it is text. Returns "" where that is not possible.
    """
    rules, before = (
        dict(line.split(" ::= ", 1) for line in text.splitlines() if " ::= " in line)
        for text in (grammar, plain)
    )
    names = {body: name for name, body in reversed(rules.items())}
    gaps = {names.get(f'"{number}"', f'"{number}"'): number for number in numbers}
    for name, body in rules.items():
        old = before.get(name, "")
        gap = next((word for word in body.split() if word in gaps), None)
        if gap is None or old.startswith(body.partition(gap)[0]):
            continue
        marked, n_text = re.subn(r"(?<= )until-\d+(?= )", f'"{gaps[gap]}"', old)
        if n_text != 1:
            return ""
        rules[name] = marked
    return "".join(f"{name} ::= {body}\n" for name, body in rules.items())


def _tool_with_gaps(
    tool: Json, places: list[tuple[str, str, bool]], is_each: bool, has_texts: bool
) -> Json:
    """Return a tool with gaps in place of its parameters, or of each. Append their places."""
    function = tool["function"]
    parameters = function.get("parameters")

    def gap(parameter: str, is_text: bool = False) -> Json:
        places.append((function["name"], parameter, is_text))
        return {"type": "integer", "const": _GAP + len(places) - 1}

    if not isinstance(parameters, dict) or not parameters:
        return tool
    if not is_each:
        return {**tool, "function": {**function, "parameters": gap("")}}
    properties = parameters.get("properties")
    if not isinstance(properties, dict):
        return tool
    named = {
        n: gap(n, True) if has_texts and _is_short(one) else one if _may_be_text(one) else gap(n)
        for n, one in properties.items()
    }
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": named}}}


def _tool_with_numbers(tool: Json, places: list[tuple[str, str, bool]]) -> Json:
    """Return a tool with the number of a gap as the name of each text or number that is restricted.

    Append their places.
    """
    function = tool["function"]
    parameters = function.get("parameters")
    properties = parameters.get("properties") if isinstance(parameters, dict) else None
    if not isinstance(properties, dict):
        return tool
    numbers: dict[str, str] = {}
    for name, schema in properties.items():
        is_plain = restricts(schema) and schema.get("type") in ("string", "integer", "number")
        if is_plain and re.fullmatch(r"\w+", name, re.ASCII):
            numbers[name] = str(_GAP + len(places))
            places.append((function["name"], name, False))
    named = {
        numbers.get(name, name): {"type": "integer"} if name in numbers else one
        for name, one in properties.items()
    }
    required = parameters.get("required")
    if isinstance(required, list):
        required = [numbers.get(name, name) if isinstance(name, str) else name for name in required]
        parameters = {**parameters, "required": required}
    return {**tool, "function": {**function, "parameters": {**parameters, "properties": named}}}


def _is_short(schema: Any) -> bool:
    """Return whether a parameter is a text of one line that its schema restricts."""
    if not isinstance(schema, dict) or schema.get("type", "string") != "string":
        return False
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is None:
        return "type" in schema and bool({"pattern", "format"} & schema.keys())
    return isinstance(values, list) and all(
        isinstance(v, str) and re.fullmatch(r"[^\s<]([^\n<]*[^\s<])?", v) for v in values
    )


def _may_be_text(schema: Any) -> bool:
    """Return whether a parameter may be written as plain text."""
    if not isinstance(schema, dict):
        return True
    types = schema.get("type")
    return types is None or "string" in ([types] if isinstance(types, str) else types)


def _tools(options: Json) -> tuple[list[Json], str]:
    """Return the tools and the choice; a named tool is the only one, and required."""
    tools = [{"type": "function", **tool} for tool in options.get("tools", ())]
    choice = options.get("tool_choice", "auto")
    if choice in ("auto", "required", "none"):
        return tools, choice
    return [tool for tool in tools if tool["function"]["name"] == choice], "required"
