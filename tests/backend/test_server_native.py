"""The paths of llama.cpp's own server, their figures, and the readers that they share."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fake_engine import RUNS, FakeEngine
from served import KEY, Served, asked
from waiting import WAIT_S, until

from backend import __version__
from backend.protocol.chat import ChatFacts, Delta
from backend.protocol.settings import CHAIN
from backend.server.ask import (
    Ask,
    Fields,
    Finish,
    Part,
    Progress,
    RequestRefused,
    Timings,
    Token,
    check_text,
    n_chosen,
    read_sampling,
)
from backend.server.figures import Figures
from backend.server.llama_native import CompletionWriter, error_json, read_completion
from backend.server.openai_chat import read_chat
from backend.server.openai_text import read_text

HEADERS = {"Authorization": f"Bearer {KEY}"}
HELLO = [{"role": "user", "content": "how is the weather"}]
PROMPT = "why is it so"
N_PROMPT = 4
RANDOM_SEED = 4294967295


class Engine(FakeEngine):
    """Notes how it was asked for tokens. Its token 9 is no text."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.tokenized: list[tuple[bool, bool]] = []

    def tokenize(self, text: str, *, special: bool = True, add_bos: bool = False) -> list[int]:
        self.tokenized.append((special, add_bos))
        return super().tokenize(text, special=special, add_bos=add_bos)

    def token_bytes(self, tokens: Any) -> list[bytes]:
        return [b"\xff" if token == 9 else b"x" * token for token in tokens]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    made = Served(Engine())
    yield made
    made.close()


def get(served: Served, path: str) -> httpx.Response:
    return httpx.get(served.url + path, headers=HEADERS, timeout=WAIT_S)


def events(served: Served, path: str, body: Any) -> list[Any]:
    """Return what the events of a stream hold."""
    text = served.post(path, {**body, "stream": True}).text
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


# Completions.


def test_a_completion_has_the_fields_of_llama_cpps_server(served: Served) -> None:
    body = {
        "prompt": PROMPT, "n_predict": 5, "seed": 3, "n_probs": 2, "temperature": 0.5, "top_k": 7,
        "stop": ["no"], "return_tokens": True, "ignore_eos": True,
        "logit_bias": [[5, 1.5], ["x", False]],
    }  # fmt: skip
    said = served.post("/completion", body).json()
    timings, settings = said.pop("timings"), said.pop("generation_settings")
    chances = said.pop("completion_probabilities")
    assert said.pop("runs") == RUNS
    assert said == {
        "index": 0, "content": "Easy.It is sunny.", "tokens": [1, 1, 1], "id_slot": -1,
        "stop": True, "model": "fake", "tokens_predicted": 4, "tokens_evaluated": N_PROMPT,
        "prompt": " xxx xx xx xx", "has_new_line": False, "truncated": False, "stop_type": "eos",
        "stopping_word": "", "tokens_cached": N_PROMPT + 4,
    }  # fmt: skip
    assert (timings["cache_n"], timings["prompt_n"], timings["predicted_n"]) == (1, 3, 3)
    top = {"id": 1, "token": "Easy.", "bytes": list(b"Easy."), "logprob": -0.5}
    assert chances[0] == {**top, "top_logprobs": [top, top]}
    assert [chance["token"] for chance in chances] == ["Easy.", "It is ", "sunny."]
    expected = {
        "temperature": 0.5, "top_k": 7, "seed": 3, "samplers": list(CHAIN), "stop": ["no"],
        "max_tokens": 5, "n_predict": 5, "stream": False, "grammar": "", "ignore_eos": True,
        "timings_per_token": False, "chat_format": "Content-only", "lora": [],
        "logit_bias": [
            {"token": 5, "bias": 1.5}, {"token": "x", "bias": None}, {"token": 2, "bias": None}
        ],
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected
    plain = served.post("/completion", {"prompt": PROMPT, "post_sampling_probs": True}).json()
    assert plain["tokens"] == [] and "completion_probabilities" not in plain
    settings = plain["generation_settings"]
    assert (settings["seed"], settings["n_predict"]) == (RANDOM_SEED, -1)
    assert settings["logit_bias"] == []


def test_probabilities_after_the_samplers_are_no_logarithms(served: Served) -> None:
    body = {"prompt": PROMPT, "logprobs": 1, "post_sampling_probs": True}
    chance = served.post("/completion", body).json()["completion_probabilities"][0]
    (top,) = chance["top_probs"]
    assert chance["prob"] == top["prob"] == pytest.approx(math.exp(-0.5))
    assert "logprob" not in chance and "logprob" not in top


def test_a_stream_has_tokens_progress_and_times(served: Served) -> None:
    body = {"prompt": PROMPT, "n_probs": 1, "return_progress": True, "timings_per_token": True}
    *pieces, last = events(served, "/completion", body)
    told, parts = pieces[:2], pieces[2:]
    counts = [{k: v for k, v in t["prompt_progress"].items() if k != "time_ms"} for t in told]
    of_all = {"total": N_PROMPT, "cache": 1}
    assert counts == [{**of_all, "processed": 1}, {**of_all, "processed": N_PROMPT}]
    assert [t["timings"]["prompt_n"] for t in told] == [0, 3]
    assert all(t["content"] == "" and not t["stop"] for t in told)
    assert [part["content"] for part in parts] == ["Easy.", "It is ", "sunny."]
    assert [part["tokens"] for part in parts] == [[1]] * 3
    assert [part["tokens_predicted"] for part in parts] == [1, 2, 3]
    assert [part["timings"]["predicted_n"] for part in parts] == [1, 2, 3]
    assert all(len(part["completion_probabilities"]) == 1 for part in parts)
    assert {part["tokens_evaluated"] for part in pieces} == {N_PROMPT}
    assert {(part["id_slot"], part["index"]) for part in pieces} == {(-1, 0)}
    assert (last["stop"], last["content"], last["tokens"]) == (True, "", [])
    assert last["generation_settings"]["timings_per_token"] is True
    assert last["generation_settings"]["stream"] is True
    plain = events(served, "/completions", {"prompt": PROMPT})
    assert [p["content"] for p in plain] == ["Easy.", "It is ", "sunny.", ""]
    assert not any("timings" in p or "prompt_progress" in p for p in plain[:-1])
    assert all("completion_probabilities" not in p for p in plain)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_openais_paths_tell_progress_times_and_the_prompt_where_asked(
    served: Served, path: str
) -> None:
    body: dict[str, Any] = {"messages": HELLO} if "chat" in path else {"prompt": PROMPT}
    more = {"return_progress": True, "timings_per_token": True, "max_tokens": 9}
    pieces = events(served, path, {**body, **more})
    progress = [p["prompt_progress"]["processed"] for p in pieces if "prompt_progress" in p]
    assert progress == [1, N_PROMPT]
    n_token = [p["timings"]["predicted_n"] for p in pieces if "timings" in p]
    assert n_token[:2] == [0, 0] and n_token[-1] == 3 and sorted(n_token) == n_token
    quiet = events(served, path, body)
    assert not any("prompt_progress" in p for p in quiet)
    assert [p["timings"]["predicted_n"] for p in quiet if "timings" in p] == [3]
    assert [p["runs"] for p in quiet if "timings" in p] == [RUNS]
    prompt = HELLO[0]["content"] if "chat" in path else " xxx xx xx xx"
    said = served.post(path, {**body, "verbose": True}).json()
    assert said["__verbose"]["prompt"] == prompt
    assert said["__verbose"]["timings"] == said["timings"]
    assert said["timings"]["predicted_n"] == 3 and said["runs"] == RUNS
    assert "__verbose" not in served.post(path, body).json()


def test_several_prompts_give_a_list_in_their_order(served: Served) -> None:
    said = served.post("/completion", {"prompt": ["a b", "c"], "n_cmpl": 2}).json()
    assert [one["index"] for one in said] == [0, 1, 2, 3]
    assert [one["tokens_evaluated"] for one in said] == [2, 2, 1, 1]
    assert len(served.post("/completion", {"prompt": ["a", "b"]}).json()) == 2
    fields = ["content", "generation_settings/n_predict", "generation_settings/none", "stop/it"]
    said = served.post("/completion", {"prompt": "a", "response_fields": fields}).json()
    assert said == {"content": "Easy.It is sunny.", "generation_settings/n_predict": -1}


def test_how_an_answer_has_ended() -> None:
    def final(*of: Any, **more: Any) -> Any:
        return CompletionWriter(read_completion({"prompt": "a"}), "m", {}, ()).whole(
            [Part(0, Delta(content="a\nb"))], [Finish(0, *of, **more)]
        )

    for reason, stop_type, is_cut in (
        ("stop", "eos", False), ("tool_calls", "eos", False), ("length", "limit", False),
        ("context", "limit", True),
    ):  # fmt: skip
        said = final(reason, 2, 3, timings=Timings(4, 5))
        assert (said["stop_type"], said["truncated"]) == (stop_type, is_cut)
    assert said["has_new_line"] and said["stopping_word"] == ""
    assert (said["tokens_predicted"], said["tokens_evaluated"], said["tokens_cached"]) == (3, 9, 12)
    said = final("stop", 2, 3, stop="b")
    assert (said["stop_type"], said["stopping_word"]) == ("word", "b")
    assert [n_chosen(3, *of) for of in (("stop", ""), ("stop", "b"), ("length", ""))] == [4, 3, 3]


def test_a_stream_says_at_its_end_whether_a_line_has_ended() -> None:
    for texts, has_line in ((("a\n", "b"), True), (("a", "b"), False)):
        writer = CompletionWriter(read_completion({"prompt": ["a", "b"]}), "m", {}, ())
        for text in texts:
            writer.part(Part(0, Delta(content=text)))
        ends = writer.closing([Finish(0, "stop", 1, 1), Finish(1, "stop", 1, 1)])
        assert [data["has_new_line"] for _, data in ends] == [has_line, False]


def test_bytes_that_are_no_text_are_shown() -> None:
    ask = read_completion({"prompt": "a", "n_probs": 1})
    piece = CompletionWriter(ask, "m", {}, ()).part(
        Part(0, Delta(content="x"), (Token(b"\xc3", -1.0, id=7),), ids=(7,))
    )
    (chance,) = piece[0][1]["completion_probabilities"]
    assert (chance["id"], chance["token"], chance["bytes"]) == (7, "\ufffd", [0xC3])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"lora": [{"id": 0}]}, "lora is not possible here"),
        ({"json_schema": {}}, "json_schema is possible in a chat only"),
        ({"n_cmpl": 0}, "prompt and n_cmpl must ask for 1 to 128 answers."),
        ({"n_cmpl": 129}, "prompt and n_cmpl must ask for 1 to 128 answers."),
        ({"prompt": ["a", "b"], "n_cmpl": 65}, "must ask for 1 to 128"),
        ({"prompt": []}, "must ask for 1 to 128"),
        ({"n_probs": 101}, "n_probs must be a whole number from 0 to 100."),
        ({"n_probs": -1}, "from 0 to 100"),
        ({"n_predict": -2}, "n_predict must be a whole number, or -1."),
        ({"return_tokens": 1}, "return_tokens must be true or false."),
        ({"response_fields": "a"}, "response_fields must be a list of text."),
        ({"prompt": [1, -1]}, "prompt must be text, a list of tokens"),
        ({"prompt": [1, 1 << 31]}, "prompt must be text, a list of tokens"),
        ({"prompt": {"prompt_string": "a", "multimodal_data": ["b"]}}, "prompt.multimodal_data"),
        ({"prompt": {}}, "prompt.prompt_string must be text, but is missing."),
    ],
)
def test_what_cannot_be_completed_is_refused_by_name(served: Served, body: Any, words: str) -> None:
    answer = served.post("/completion", {"prompt": "a", **body})
    error = answer.json()["error"]
    assert answer.status_code == error["code"] == 400 and error["type"] == "invalid_request_error"
    assert words in error["message"]


def test_the_limits_of_completions() -> None:
    for n in (1, 128):
        assert read_completion({"prompt": "a", "n_cmpl": n}).n == n
    for n in (0, 100):
        assert read_completion({"prompt": "a", "n_probs": n}).n_top == n
    for name in ("n_predict", "max_completion_tokens", "max_tokens"):
        assert read_completion({"prompt": "a", name: 0}).max_tokens == 0
    both = read_completion({"prompt": "a", "n_predict": 3, "max_tokens": 4, "t_max_predict_ms": 1})
    assert both.max_tokens == 3 and both.with_prompt and not both.ignored
    assert read_text({"prompt": "a"}).max_tokens == 16 and not read_text({}).with_prompt


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([0, (1 << 31) - 1], ((0, (1 << 31) - 1),)),
        (["a", 1], (("a", 1),)),
        ([[1], [2, "b"]], ((1,), (2, "b"))),
        ({"prompt_string": "a"}, ("a",)),
    ],
)
def test_prompts_are_texts_or_tokens(prompt: Any, prompts: Any) -> None:
    assert read_completion({"prompt": prompt}).prompts == read_text({"prompt": prompt}).prompts
    assert read_text({"prompt": prompt}).prompts == prompts


# Samplers.


def sampled(**fields: Any) -> Any:
    return read_sampling(Fields(fields))


def test_samplers_are_read_by_names_aliases_and_letters() -> None:
    names = ["top-k", "topk", "nucleus", "temp", "typ", "min_p", "XTC"]
    read = ("top_k", "top_k", "top_p", "temperature", "typ_p", "min_p", "xtc")
    assert sampled(samplers=names).samplers == read
    letters = {"e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p"}
    letters |= {"p": "top_p", "m": "min_p", "x": "xtc", "t": "temperature", "i": "infill"}
    assert sampled(samplers="".join(letters)).samplers == tuple(letters.values())
    for odd in ("z", ["none"]):
        with pytest.raises(RequestRefused, match="which is no sampler"):
            sampled(samplers=odd)


def test_seeds_and_other_names() -> None:
    assert [sampled(seed=n).seed for n in (7, -1)] == [7, None]
    assert sampled(seed=RANDOM_SEED + 5).seed == 5 and sampled(seed=-2).seed == RANDOM_SEED - 2
    assert [sampled(top_k=n).top_k for n in (-1, 0, 3)] == [0, 0, 3]
    assert sampled().top_k == 40
    assert sampled(repetition_penalty=1.5).repeat_penalty == 1.5
    assert sampled(repetition_penalty=1.5, repeat_penalty=1.25).repeat_penalty == 1.25
    assert sampled(tfs_z=1, top_a=0, guidance_scale=-1) == sampled()
    for name, value in (("tfs_z", 0.5), ("top_a", 0.1), ("num_beams", 2), ("n_indent", 1)):
        with pytest.raises(RequestRefused, match=f"{name} is not possible here"):
            sampled(**{name: value})


def test_biases_are_of_tokens_or_texts() -> None:
    given = {"5": 1, "hello": False, "012345678": 1, "1234567890": 2, "٣": 1}
    assert sampled(logit_bias=given).logit_bias == (
        (5, 1.0), ("hello", False), (12345678, 1.0), ("1234567890", 2.0), ("٣", 1.0),
    )  # fmt: skip
    pairs = [["5", 1], [0, 2], [(1 << 31) - 1, False]]
    assert sampled(logit_bias=pairs).logit_bias == (
        ("5", 1.0), (0, 2.0), ((1 << 31) - 1, False)
    )  # fmt: skip
    for odd in ([[5]], [[5, 1, 1]], [[5, True]], [[-1, 1]], [[1 << 31, 1]], [[True, 1]], ["ab"]):
        with pytest.raises(RequestRefused, match="must map tokens or texts to numbers or false"):
            sampled(logit_bias=odd)


def test_the_last_message_is_continued_unless_a_new_one_is_asked_for() -> None:
    for switches in ({"continue_final_message": True}, {"continue_final_message": False}):
        assert not read_chat({"messages": HELLO, **switches}).ignored
    both = {"continue_final_message": True, "add_generation_prompt": False}
    assert not read_chat({"messages": HELLO, **both}).ignored
    for opens in (True, False):
        ask = read_chat({"messages": HELLO, "add_generation_prompt": opens})
        assert ask.options.opens is opens and not ask.ignored
    with pytest.raises(RequestRefused, match="contradicts add_generation_prompt"):
        read_chat(
            {"messages": HELLO, "continue_final_message": True, "add_generation_prompt": True}
        )


def test_images_are_no_text_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.server.ask.MAX_TEXT_CHARS", 6)
    image = {"type": "image", "data": "x" * 99}
    check_text(({"role": "u", "content": ["abcde", image]},))
    for more in ("f", {"a": ("f",)}):
        with pytest.raises(RequestRefused, match="more than 6 characters") as refused:
            check_text(({"role": "u", "content": ["abcde", image]},), more)
    assert (refused.value.status, refused.value.code) == (413, "context_length_exceeded")


# What is told of the model and the server.


def test_the_properties_are_those_of_the_model(served: Served) -> None:
    facts = ChatFacts(tools=True, parallel_tool_calls=True, system=False, images=True)
    served.engine.model.chat = facts
    said = get(served, "/props").json()
    served.engine.model.chat = ChatFacts(tools=True)
    defaults = said.pop("default_generation_settings")
    params = defaults["params"]
    assert defaults["n_ctx"] == 100
    assert (params["seed"], params["n_predict"], params["max_tokens"]) == (RANDOM_SEED, -1, -1)
    assert params["samplers"] == list(CHAIN) and params["logit_bias"] == []
    assert said == {
        "total_slots": 4, "model_alias": "fake", "model_path": "fake", "runs": RUNS,
        "modalities": {"vision": True, "video": False, "audio": False},
        "endpoint_slots": True, "endpoint_props": False, "endpoint_metrics": True,
        "chat_template": "{{ messages }}",
        "chat_template_caps": {
            "supports_tools": True, "supports_tool_calls": True,
            "supports_parallel_tool_calls": True, "supports_system_role": False,
        },
        "bos_token": "<s>", "eos_token": "</s>", "build_info": f"b-outrider-{__version__}",
        "is_sleeping": False,
    }  # fmt: skip
    (model,) = get(served, "/v1/models").json()["data"]
    sizes = {"n_vocab": 1000, "n_ctx": 100, "n_ctx_train": 200, "size": 1}
    assert model["meta"] == {**sizes, "runs": RUNS}
    assert get(served, "/version").json() == {"version": __version__}
    assert get(served, "/lora-adapters").json() == []


def test_texts_are_split_and_joined_while_an_answer_is_written() -> None:
    engine = FakeEngine(gate=threading.Event())
    served = Served(engine)
    try:
        with asked(served, "/completion", {"prompt": "a"}):
            assert engine.reading.wait(WAIT_S)
            assert served.post("/tokenize", {"content": "ab c"}).json() == {"tokens": [2, 1]}
            assert served.post("/detokenize", {"tokens": [1]}).json() == {"content": "x"}
            assert served.post("/detokenize", {"tokens": [5000]}).status_code == 400
            assert served.turns.present
    finally:
        served.close()


def test_properties_wait_for_an_engine_that_has_just_begun() -> None:
    """A busy machine may serve a first request before the engine has told its facts."""
    gate, engine = threading.Event(), FakeEngine()

    class Late(FakeEngine):
        @property
        def vocabulary(self) -> Any:
            gate.wait(WAIT_S)
            return engine.vocabulary

        @vocabulary.setter
        def vocabulary(self, _: Any) -> None:
            """Take what the constructor gives."""

    served = Served(Late())
    try:
        with ThreadPoolExecutor() as pool:
            answer = pool.submit(get, served, "/props")
            until(lambda: answer.done() or served.turns.n_open == 1)
            gate.set()
            assert answer.result().json()["chat_template"] == "{{ messages }}"
    finally:
        served.close()


def test_a_model_that_says_nothing_has_no_properties(capsys: pytest.CaptureFixture[str]) -> None:
    engine = FakeEngine()
    del engine.vocabulary
    served = Served(engine)
    try:
        answer = get(served, "/props")
        assert answer.status_code == 503 and answer.json() == {
            "error": {
                "code": 503, "type": "unavailable_error",
                "message": "The model is not loaded yet.",
            }
        }  # fmt: skip
        assert [slot["n_ctx"] for slot in get(served, "/slots").json()] == [0] * 4
        assert "meta" not in get(served, "/v1/models").json()["data"][0]
        assert served.post("/completion", {"prompt": "a"}).status_code == 200
    finally:
        served.close()
    assert "AttributeError" in capsys.readouterr().err


def test_slots_are_the_answers_that_are_computed() -> None:
    engine = FakeEngine(gate=threading.Event())
    served = Served(engine)
    try:
        assert not any(slot["is_processing"] for slot in get(served, "/slots").json())
        with asked(served, "/completion", {"prompt": "a"}):
            assert engine.reading.wait(WAIT_S)
            slots = get(served, "/slots?fail_on_no_slot=1").json()
            metrics = get(served, "/metrics").text
            assert slots == [
                {"id": i, "n_ctx": 100, "speculative": False, "is_processing": i == 0}
                for i in range(4)
            ]
            assert "\nllamacpp:requests_processing 1\n" in metrics
            assert "\nllamacpp:requests_deferred 0\n" in metrics
        until(lambda: not any(s["is_processing"] for s in get(served, "/slots").json()))
    finally:
        served.close()


def test_no_slot_may_be_an_error() -> None:
    engine = FakeEngine(gate=threading.Event())
    served = Served(engine, n_parallel=1)
    try:
        assert get(served, "/slots?fail_on_no_slot=1").status_code == 200
        with asked(served, "/completion", {"prompt": "a"}):
            assert engine.reading.wait(WAIT_S)
            assert len(get(served, "/slots").json()) == 1
            full = get(served, "/slots?fail_on_no_slot=1")
            assert full.status_code == 503
            assert full.json()["error"]["message"] == "No slot is available."
    finally:
        served.close()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/embedding", "computes embeddings by /v1/embeddings only"),
        ("/infill", "does not support infill"),
        ("/lora-adapters", "loads no LoRA adapters"),
        ("/slots/0", "does not save, restore or erase slots"),
        ("/props", "does not support changing global properties"),
        ("/v1/audio/transcriptions", "does not transcribe audio"),
    ],
)
def test_what_is_not_here_is_refused_as_where_it_is_switched_off(
    served: Served, path: str, words: str
) -> None:
    answer = served.post(path, {})
    assert answer.status_code == 501 and answer.headers["x-should-retry"] == "false"
    error = {"code": 501, "message": f"This server {words}.", "type": "not_supported_error"}
    assert answer.json() == {"error": error}


def test_a_refusal_has_what_agents_look_for() -> None:
    refused = RequestRefused("Too long.", code="x", kind="exceeded", more={"n_ctx": 5})
    assert error_json(refused) == {
        "error": {"code": 400, "message": "Too long.", "type": "exceeded", "n_ctx": 5}
    }
    kinds = [
        error_json(RequestRefused("a", status=status))["error"]["type"]
        for status in (400, 401, 403, 404, 413, 429, 500, 501, 503)
    ]
    assert kinds == [
        "invalid_request_error", "authentication_error", "permission_error", "not_found_error",
        "invalid_request_error", "rate_limit_error", "server_error", "not_supported_error",
        "unavailable_error",
    ]  # fmt: skip


# Tokens and templates.


def test_texts_become_tokens_with_their_pieces(served: Served) -> None:
    def tokens(**body: Any) -> Any:
        return served.post("/tokenize", body).json()["tokens"]

    assert tokens(content="ab c") == [2, 1] and served.engine.tokenized[-1] == (True, False)
    assert tokens(content="ab", add_special=True, parse_special=False) == [0, 2]
    assert served.engine.tokenized[-1] == (False, True)
    assert tokens(content="ab ninechars", with_pieces=True) == [
        {"id": 2, "piece": "xx"}, {"id": 9, "piece": [0xFF]},
    ]  # fmt: skip
    assert tokens() == []
    back = served.post("/detokenize", {"tokens": [2, 1]})
    assert back.json() == {"content": "xx x"}
    for odd in ([True], ["a"], [1.0]):
        refused = served.post("/detokenize", {"tokens": odd})
        assert refused.status_code == 400 and "a list of whole numbers" in refused.text
    assert served.post("/detokenize", {"tokens": [1000]}).status_code == 400
    said = served.post("/apply-template", {"messages": HELLO})
    assert said.json() == {"prompt": HELLO[0]["content"]}


def test_a_prompt_of_tokens_is_told_as_text(served: Served) -> None:
    said = served.post("/completion", {"prompt": [3, "a bb", 2]}).json()
    assert said["prompt"] == "xxx x xx xx" and said["tokens_evaluated"] == 4
    assert served.post("/completion", {"prompt": ["a", 2]}).json()["prompt"] == " x xx"


def test_too_much_text_has_no_tokens(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.server.ask.MAX_TEXT_CHARS", 5)
    assert served.post("/tokenize", {"content": "abcde"}).status_code == 200
    assert served.post("/tokenize", {"content": "abcdef"}).status_code == 413


# Times and figures.


def test_times_of_an_answer() -> None:
    assert Timings(2, 3, 0.5, 5, 2.0).to_json() == {
        "cache_n": 2, "prompt_n": 3, "prompt_ms": 500, "prompt_per_token_ms": 500 / 3,
        "prompt_per_second": 6, "predicted_n": 5, "predicted_ms": 2000,
        "predicted_per_token_ms": 500, "predicted_per_second": 2,
    }  # fmt: skip
    nothing = Timings().to_json()
    assert set(nothing.values()) == {0}
    assert Progress(0, 9, 2, 5, Timings(2, 3, 0.0316)).to_json() == {
        "total": 9, "cache": 2, "processed": 5, "time_ms": 32,
    }  # fmt: skip


def values(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    pairs = [line.removeprefix("llamacpp:").split() for line in lines]
    return {name: float(value) for name, value in pairs}


def test_figures_are_sums_and_speeds_those_since_the_last_call() -> None:
    figures = Figures()
    assert set(values(figures.text(0, 0)).values()) == {0}
    figures.add(Timings(2, 30, 0.5, 5, 2.0), 37)
    figures.add(Timings(1, 10, 0.5, 1, 1.0), 12)
    figures.add(Timings(0, 0, 0.0, 0, 1.0), 3)
    for n_running in (1, 3, 4):
        figures.count_pass(n_running)
    figures.add_drafts(2, 8, 6)
    figures.add_drafts(1, 3, 1)
    text = figures.text(2, 7)
    assert values(text) == {
        "prompt_tokens_total": 40, "prompt_tokens_cached_total": 3, "prompt_seconds_total": 1,
        "tokens_predicted_total": 6, "tokens_predicted_seconds_total": 4, "n_decode_total": 3,
        "n_tokens_max": 37, "spec_decode_num_draft_tokens_total": 11,
        "spec_decode_num_accepted_tokens_total": 7, "spec_decode_num_drafts_total": 3,
        "prompt_tokens_seconds": 40, "predicted_tokens_seconds": 1, "requests_processing": 2,
        "requests_deferred": 7, "n_busy_slots_per_decode": 8 / 3,
    } | {"n_busy_slots_per_decode": pytest.approx(8 / 3)}  # fmt: skip
    assert text.count("# TYPE") == text.count("# HELP") == 15 and text.count(" counter\n") == 10
    figures.add(Timings(0, 5, 0.25, 3, 0.5), 8)
    later = values(figures.text(0, 0))
    assert (later["prompt_tokens_seconds"], later["predicted_tokens_seconds"]) == (20, 4)
    assert later["prompt_tokens_total"] == 45
    assert values(figures.text(0, 0))["prompt_tokens_seconds"] == 0


def test_every_answer_counts_in_the_metrics() -> None:
    served = Served(FakeEngine())
    try:
        began = get(served, "/metrics")
        assert began.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert began.headers["process-start-time-unix"].isdigit()
        served.post("/completion", {"prompt": PROMPT})
        served.post("/v1/chat/completions", {"messages": HELLO})
        found = values(get(served, "/metrics").text)
        assert (found["prompt_tokens_total"], found["prompt_tokens_cached_total"]) == (6, 2)
        assert found["tokens_predicted_total"] == found["n_decode_total"] == 6
        assert (found["n_tokens_max"], found["n_busy_slots_per_decode"]) == (N_PROMPT + 3, 1)
        assert found["spec_decode_num_drafts_total"] == 0 < found["prompt_seconds_total"]
    finally:
        served.close()


def test_fields_that_nobody_knows_are_named(served: Served) -> None:
    answer = served.post("/completion", {"prompt": "a", "odd": 1, "an\u00e9": 2})
    assert answer.headers["x-ignored-fields"] == "an?, odd"
    assert "x-ignored-fields" not in served.post("/completion", {"prompt": "a"}).headers
    assert Ask(read_sampling(Fields({}))).ignored == ()
