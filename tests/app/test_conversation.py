"""The messages that the engine receives, and how a long conversation is shortened."""

from typing import Any

import pytest

from app.state.context_fit import cannot_fit, fit, half_of, size
from app.state.conversation import Conversation, Ending, Message
from app.state.preset import Preset
from backend.protocol.attachments import Attachment
from backend.protocol.chat import ChatFacts, ChatOptions, Delta, ToolCall

CALLS = [ToolCall("call00001", "add", '{"a": 1}'), ToolCall("call00002", "add", '{"a": 2}')]


def result(call: ToolCall, text: str = "3") -> Message:
    return Message("tool", text, tool_call_id=call.id, name=call.name)


def sent(*messages: Message) -> list[dict[str, Any]]:
    return Conversation(list(messages)).for_engine()


def test_thoughts_and_calls_are_fields_of_their_own() -> None:
    turns = sent(
        Message("user", "q"), Message("assistant", "a", reasoning="t", tool_calls=CALLS[:1]),
        result(CALLS[0]), Message("assistant", "", Ending.WAITING),
    )  # fmt: skip
    assert turns[1] == {
        "role": "assistant", "content": "a", "reasoning_content": "t",
        "tool_calls": [CALLS[0].to_json()],
    }  # fmt: skip
    assert turns[2] == {
        "role": "tool", "content": "3", "name": "add", "tool_call_id": CALLS[0].id,
    }  # fmt: skip
    assert len(turns) == 3


def test_calls_without_results_and_results_without_calls_are_not_sent() -> None:
    turns = sent(
        Message("user", "q"), Message("assistant", "", tool_calls=list(CALLS)),
        result(CALLS[1]), Message("user", "r"), result(CALLS[0]), Message("user", "s"),
    )  # fmt: skip
    assert [turn["role"] for turn in turns] == ["user", "assistant", "tool", "user"]
    assert turns[1]["tool_calls"] == [CALLS[1].to_json()]
    assert turns[3]["content"] == "r\n\ns"


def test_an_answer_stopped_within_its_thought_is_continued_there() -> None:
    stopped = Message("assistant", "", Ending.STOPPED, reasoning="Hm, \n")
    assert sent(Message("user", "q"), stopped)[-1] == {
        "role": "assistant", "content": "", "reasoning_content": "Hm, \n",
    }  # fmt: skip
    later = sent(Message("user", "q"), stopped, Message("user", "r"))
    assert later == [{"role": "user", "content": "q\n\nr"}]


def test_an_answer_gains_its_parts() -> None:
    answer = Message("assistant", "")
    answer.gain(Delta(content="Yes"), "Yes")
    assert answer.raw is None and answer.raw_text == "Yes"
    answer.gain(Delta(tool_calls={0: ToolCall("i", "add", '{"a"')}), '<call>{"a"')
    answer.gain(Delta(reasoning="t", tool_calls={0: ToolCall("", "", ":1}")}), ":1}")
    assert answer.raw == 'Yes<call>{"a":1}'
    assert answer.tool_calls == [ToolCall("i", "add", '{"a":1}')]
    assert (answer.reasoning, answer.content) == ("t", "Yes")


def long_chat(n_round: int) -> list[dict[str, Any]]:
    messages = []
    for number in range(n_round):
        messages += [
            Message("user", f"q{number} " + "word " * 20),
            Message("assistant", "x" * 30, reasoning="t" * 500, tool_calls=list(CALLS)),
            result(CALLS[0], f"r{number} " + "word " * 20), result(CALLS[1]),
            Message("assistant", f"a{number} " + "word " * 20, reasoning="t" * 500),
        ]  # fmt: skip
    return sent(*messages, Message("user", "last"))


@pytest.mark.parametrize("n_char_max", [60, 400, 1000, 3000, 7000])
def test_a_call_is_never_without_its_results(n_char_max: int) -> None:
    short, _ = fit(long_chat(20), n_char_max)
    assert short[-1]["content"].endswith("last") and short[0]["content"].startswith("q0")
    assert size(short) < max(1.3 * n_char_max, n_char_max + 150)
    for index, turn in enumerate(short):
        n_call = len(turn.get("tool_calls", ()))
        following = [turn["role"] for turn in short[index + 1 : index + 1 + n_call]]
        assert following == ["tool"] * n_call
        if turn["role"] == "tool":
            assert short[index - 1]["role"] in ("tool", "assistant")


def test_a_long_result_at_the_end_is_cut_and_stays_with_its_call() -> None:
    turns = sent(
        Message("user", "q"), Message("assistant", "", tool_calls=CALLS[:1]),
        result(CALLS[0], "word " * 5000),
    )  # fmt: skip
    short, _ = fit(turns, 1000)
    assert [turn["role"] for turn in short] == ["user", "assistant", "tool"]
    assert short[1]["tool_calls"] == [CALLS[0].to_json()] and size(short) < 1100


def test_parts_of_a_content_are_shortened_and_images_stay() -> None:
    image = {"type": "image", "data": "…"}
    content = [{"type": "text", "text": "word " * 2000}, image]
    turns: list[dict[str, Any]] = [{"role": "user", "content": content}]
    (turn,), _ = fit(turns, 1000)
    assert turn["content"][1] == image and len(turn["content"][0]["text"]) <= 1000
    double = [*turns, {"role": "user", "content": "end"}]
    (turn,), _ = fit(double, 900)
    assert turn["content"].startswith("word ") and turn["content"].endswith("end")


def test_a_chat_of_ten_thousand_turns_is_known_to_be_too_long() -> None:
    messages = [Message("user" if n % 2 == 0 else "assistant", f"turn {n}") for n in range(10_001)]
    turns = sent(*messages)
    assert cannot_fit(turns, 4096) and not cannot_fit(turns, 1_000_000)
    assert not cannot_fit(turns[:3], 4096)
    short, _ = fit(turns, half_of(turns, 4096))
    assert not cannot_fit(short, 4096)
    assert short[0]["content"].startswith("turn 0") and short[-1] == turns[-1]


def test_options_are_only_those_of_the_template() -> None:
    preset = Preset(thinking=False, effort="high")
    tool = {"type": "function", "function": {"name": "add"}}
    assert preset.options(ChatFacts(), (tool,)) == ChatOptions()
    facts = ChatFacts(thinking="switch", efforts=("low", "high"), tools=True)
    assert preset.options(facts, (tool,)) == ChatOptions((tool,), thinking=False, effort="high")
    assert Preset.from_text(preset.to_text()) == preset
    assert Preset.from_text('{"thinking": 1}') is None


def test_a_chat_with_pictures_goes_on_with_a_model_that_sees_none() -> None:
    """As from another program: pictures of the history are told in words, not a new one."""
    picture = Attachment("a.png", "image", "", data="AAAA").to_json()
    details = {"attachments": [picture]}
    chat = Conversation([
        Message("user", "Who?", details=details), Message("assistant", "Max.", details=details),
        Message("user", "", details=details), Message("user", "And now?"),
    ])  # fmt: skip
    words = "[An image was here. The loaded model cannot see images.]"
    blind = chat.for_engine(sees_images=False)
    assert [turn["content"] for turn in blind] == [f"{words}\nWho?", "Max.", f"{words}\n\nAnd now?"]
    assert chat.for_engine()[0]["content"][0] == {"type": "image", "data": "AAAA"}
    chat.messages[3].details = details
    assert chat.for_engine(sees_images=False)[2]["content"][1]["type"] == "image"


def test_a_tool_s_picture_goes_to_a_model_that_sees() -> None:
    """B44: a blind one is told in words, and none gets Base64 as text."""
    picture = Attachment("shot-1", "image", "", data="AAAA").to_json()
    call = ToolCall("1", "shot", "{}")
    result = Message("tool", "[image]", tool_call_id="1", name="shot",
                     details={"state": "done", "attachments": [picture]})  # fmt: skip
    chat = Conversation([Message("user", "q"), Message("assistant", "", tool_calls=[call]), result])
    image = {"type": "image", "data": "AAAA"}
    about = {"type": "text", "text": "These are the images of the tool results above."}
    seen, blind = chat.for_engine(), chat.for_engine(sees_images=False)
    assert [turn["content"] for turn in seen[2:]] == ["[image]", [image, about]]
    assert [turn["content"] for turn in blind[2:]] == [
        "[image]\n[You cannot see the images of this result. The user can.]"
    ]
    chat.messages.append(Message("user", "and now?"))
    assert chat.for_engine()[3]["content"] == [image, about, {"type": "text", "text": "and now?"}]
    chat.messages[3:] = [Message("assistant", "", Ending.WAITING)]
    assert chat.for_engine() == seen
