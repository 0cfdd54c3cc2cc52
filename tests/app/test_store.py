"""The chats on disk: stored, searched, branched, deleted, exported; and faulty disks."""

import ctypes
import errno
import json
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from window_samples import ANSWER

from app.state.conversation import Ending, Message
from app.state.preset import Preset
from app.store import schema
from app.store.chats import ChatStore, title_of
from app.store.exchange import ImportRefused, import_file, to_json, to_markdown
from app.store.schema import ChatsTaken, StoreError
from app.store.search import match_expression
from backend.protocol.chat import ToolCall
from backend.text import Text, text


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "profile" / "chats.db"


def begin(
    store: ChatStore, question: str = "Why?", answer: str = "Because."
) -> tuple[int, list[Message]]:
    chat_id = store.new_chat(title_of(question))
    said = [Message("user", question), Message("assistant", answer, statistics=ANSWER)]
    store.add(chat_id, 0, said[0])
    store.add(chat_id, said[0].id, said[1])
    return chat_id, said


def texts(store: ChatStore, chat_id: int) -> list[str]:
    conversation = store.load(chat_id)
    assert conversation is not None
    return [message.content for message in conversation.messages]


def test_what_was_said_is_there_after_opening_again(path: Path) -> None:
    store = ChatStore.open(path)
    assert store.trouble == "" and store.is_kept
    chat_id, _ = begin(store)
    store.close()
    again = ChatStore.open(path)
    conversation = again.load(chat_id)
    assert conversation is not None and conversation.title == "Why?"
    question, answer = conversation.messages
    assert (question.role, question.content) == ("user", "Why?")
    assert answer.statistics is not None and answer.ending is Ending.FINISHED
    assert answer.statistics.tokens_per_s == 19.4 and answer.statistics.n_token == 212
    again.close()


def test_an_answer_that_was_being_written_comes_back_cut_off(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id = store.new_chat("x")
    question, answer = Message("user", "q"), Message("assistant", "", Ending.WAITING)
    store.add(chat_id, 0, question)
    store.add(chat_id, question.id, answer)
    for piece in ("Once ", "there ", "was"):
        store.append(answer.id, "", piece, piece)
    # Another reader sees it before the store is closed.
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT count(*) FROM piece").fetchone() == (3,)
    assert texts(store, chat_id)[-1] == "Once there was"
    store._lock.close()  # as if the process had died: the journal stays
    again = ChatStore.open(path)
    conversation = again.load(chat_id)
    assert conversation is not None
    last = conversation.messages[-1]
    assert (last.content, last.ending) == ("Once there was", Ending.CUT_OFF) and last.can_go_on
    assert again.search("there")[0].chat_id == chat_id
    again.close()


def test_branches(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id, (question, first) = begin(store)
    second = Message("assistant", "Second.")
    store.add(chat_id, question.id, second)
    assert second.branch == (2, 2) and texts(store, chat_id) == ["Why?", "Second."]
    store.switch(chat_id, second.id, -1)
    assert texts(store, chat_id) == ["Why?", "Because."]
    further = Message("user", "And?")
    store.add(chat_id, first.id, further)
    other = Message("user", "Why not?")
    store.add(chat_id, 0, other)
    assert texts(store, chat_id) == ["Why not?"]
    store.switch(chat_id, other.id, 1)  # back to the first question and down its newest branch
    conversation = store.load(chat_id)
    assert conversation is not None
    assert [message.content for message in conversation.messages] == ["Why?", "Second."]
    assert [message.branch for message in conversation.messages] == [(1, 2), (2, 2)]
    store.close()


def test_pins_names_and_deletion_with_undo(path: Path) -> None:
    store = ChatStore.open(path)
    first, _ = begin(store, "first")
    second, _ = begin(store, "second")
    assert [row.id for row in store.chats()] == [second, first]
    store.pin(first, True)
    store.rename(second, "  two\nlines ")
    assert [(row.id, row.title) for row in store.chats()] == [
        (first, "first"),
        (second, "two lines"),
    ]
    store.delete(first)
    assert [row.id for row in store.chats()] == [second]
    assert store.load(first) is None and store.search("first") == []
    store.restore(first)
    assert store.search("first")[0].chat_id == first
    store.delete(second)
    store.close()
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT count(*) FROM chat").fetchone() == (1,)
        assert reader.execute("SELECT count(*) FROM message").fetchone() == (2,)
        assert reader.execute("SELECT count(*) FROM word WHERE word MATCH 'second'").fetchone() == (
            0,
        )


def test_what_came_to_nothing_is_withdrawn(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id, said = begin(store)
    more = [Message("user", "more"), Message("assistant", "")]
    store.add(chat_id, said[1].id, more[0])
    store.add(chat_id, more[0].id, more[1])
    store.withdraw(chat_id, more)
    assert texts(store, chat_id) == ["Why?", "Because."]
    store.set_draft(0, "typed in a new chat")
    store.set_draft(chat_id, "Why?")
    store.withdraw(chat_id, said)
    assert store.chats() == [] and store.draft(chat_id) == ""
    assert store.draft(0) == "Why?\n\ntyped in a new chat"
    store.close()


def test_search_finds_beginnings_of_words_and_titles(path: Path) -> None:
    store = ChatStore.open(path)
    one, _ = begin(store, "The Überraschung of the year", "A tin soldier swam in the river")
    two, _ = begin(store, "Other", "Soldiers of fortune")
    assert [found.chat_id for found in store.search("sold")] == [two, one]
    assert [found.chat_id for found in store.search("tin sol")] == [one]
    assert "soldier" in store.search("tin sol")[0].snippet
    assert [found.chat_id for found in store.search("uberr")] == [one]
    assert store.search("nothing here") == []
    store.close()


@pytest.mark.parametrize(
    "text", ['"', "a AND", "NOT", "-", "*", "word:x", "(", "a'b", "NEAR(a b)", "%", "^x", "a OR b"]
)
def test_nothing_in_a_search_is_an_operator(path: Path, text: str) -> None:
    store = ChatStore.open(path)
    begin(store, "alpha", "beta")
    assert store.search(text) == [] or text == "a OR b"
    store.close()


@given(st.text(max_size=30))
@settings(max_examples=60)
def test_any_search_is_possible(text: str) -> None:
    store = ChatStore(schema.Opened(_memory(), None))
    begin(store, "alpha", "beta")
    store.search(text)


def test_the_expression_quotes_words() -> None:
    assert match_expression(["or", "tin"]) == '("or" *) AND ("tin" *)'


def _memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    schema.migrate(connection, schema.STEPS)
    return connection


# Old, new, damaged and unwritable files


def test_an_older_file_is_kept_before_it_is_changed(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id, _ = begin(store)
    store.close()
    steps = (*schema.STEPS, "ALTER TABLE chat ADD COLUMN colour TEXT")
    opened = schema.open_database(path, steps)
    assert opened.trouble == ""
    assert opened.connection.execute("SELECT colour FROM chat").fetchone() == (None,)
    opened.connection.close()
    assert opened.lock is not None
    opened.lock.close()
    version = len(schema.STEPS)
    before = path.with_name(f"chats.version-{version}.db")
    assert os.name != "posix" or stat.S_IMODE(before.stat().st_mode) == 0o600
    with closing(sqlite3.connect(before)) as kept:
        assert kept.execute("PRAGMA user_version").fetchone() == (version,)
        assert kept.execute("SELECT id FROM chat").fetchone() == (chat_id,)


def test_a_step_that_fails_changes_nothing(path: Path) -> None:
    store = ChatStore.open(path)
    begin(store)
    begin(store)
    store.close()
    step = "ALTER TABLE chat ADD COLUMN colour TEXT; CREATE UNIQUE INDEX one ON chat (title)"
    steps = (*schema.STEPS, step)
    opened = schema.open_database(path, steps)
    assert opened.path is None and "cannot be kept" in opened.trouble
    again = ChatStore.open(path)
    assert again.trouble == "" and len(again.chats()) == 2
    again.close()


def test_a_newer_file_is_left_alone(path: Path) -> None:
    ChatStore.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = path.read_bytes()
    store = ChatStore.open(path)
    assert "newer version" in store.trouble and not store.is_kept
    chat_id, _ = begin(store)
    assert texts(store, chat_id)
    store.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize("lasts", [False, True])
def test_a_file_that_cannot_be_read_is_not_set_aside(
    lasts: bool, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ChatStore.open(path)
    begin(store)
    store.close()
    n_left = [99 if lasts else 1]

    class Failing(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            if "quick_check" in sql and n_left[0]:
                n_left[0] -= 1
                sql = "SELECT 'Tree 2 page 2: unable to get the page. error code=10'"
            return super().execute(sql, *values)  # type: ignore[arg-type]

    def open_failing(file: str, flags: int) -> int:
        if Path(file) == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return os.open(file, flags)

    monkeypatch.setattr(schema.sqlite3, "connect", partial(sqlite3.connect, factory=Failing))
    if lasts:
        monkeypatch.setattr(schema, "open_regular", open_failing)
    again = ChatStore.open(path)
    assert again.is_kept != lasts and len(again.chats()) == (0 if lasts else 1)
    assert ("cannot be kept: input/output error" in again.trouble) == lasts
    again.close()
    monkeypatch.undo()
    assert not list(path.parent.glob("*broken*"))
    last = ChatStore.open(path)
    assert last.trouble == "" and len(last.chats()) == 1
    last.close()


@pytest.mark.parametrize("damage", ["text", "middle", "empty tables"])
def test_a_damaged_file_is_set_aside(path: Path, damage: str) -> None:
    store = ChatStore.open(path)
    for number in range(50):
        begin(store, f"question {number}", "word " * 200)
    store.close()
    if damage == "text":
        path.write_text("this is not a database, but it is long enough to be read as one" * 50)
    elif damage == "middle":
        data = bytearray(path.read_bytes())
        data[4096 : len(data) // 2] = b"\x55" * (len(data) // 2 - 4096)
        path.write_bytes(bytes(data))
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("DROP TABLE piece")
    again = ChatStore.open(path)
    assert "was damaged" in again.trouble and "chats.broken-1.db" in again.trouble
    assert again.is_kept and again.chats() == []
    begin(again)
    again.close()
    assert path.with_name("chats.broken-1.db").exists()
    last = ChatStore.open(path)
    assert last.trouble == "" and len(last.chats()) == 1
    last.close()


@pytest.mark.parametrize("value", ["{", "[]", "7", b"\xff"])
def test_damaged_details_of_a_message_lose_only_themselves(path: Path, value: object) -> None:
    store = ChatStore.open(path)
    chat_id, said = begin(store)
    for column in ("details", "tool_calls", "figures"):
        store.connection.execute(f"UPDATE message SET {column} = ?", (value,))
    found = store.load(chat_id)
    assert found is not None and [m.content for m in found.messages] == [m.content for m in said]
    assert [(m.details, m.tool_calls, m.statistics) for m in found.messages] == [({}, [], None)] * 2
    store.close()


def test_where_nothing_can_be_written_the_chats_are_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = ChatStore.open(tmp_path / "file" / "chats.db")
    assert store.trouble.startswith("The chats cannot be kept: ") and store.trouble.endswith(".")
    chat_id, _ = begin(store)
    assert texts(store, chat_id) == ["Why?", "Because."]
    store.close()


class _Heap(ctypes.Structure):
    """mallinfo2 of glibc."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def test_the_pages_of_the_file_are_given_back(path: Path) -> None:
    """A window that was open for long kept 16 MB of the chats, also where none was shown."""
    try:
        info = ctypes.CDLL(None).mallinfo2
    except (AttributeError, TypeError):
        pytest.skip("needs glibc 2.33")
    info.restype = _Heap
    store = ChatStore.open(path)
    chat = store.new_chat("Long", Preset())
    parent = 0
    for number in range(40):
        message = Message("user", f"{number} " * 30_000)
        store.add(chat, parent, message)
        parent = message.id
    store.load(chat)
    before = info().uordblks
    store.free_memory()
    assert before - info().uordblks > 1 << 20
    assert len(store.load(chat).messages) == 40
    store.close()


def test_one_process_at_a_time_has_the_chats(path: Path) -> None:
    store = ChatStore.open(path)
    with pytest.raises(ChatsTaken):
        ChatStore.open(path)
    store.close()
    again = ChatStore.open(path)
    assert again.is_kept
    again.close()


def test_a_full_disk_is_a_sentence_and_nothing_is_half_written(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id, said = begin(store)
    pages = store.connection.execute("PRAGMA page_count").fetchone()[0]
    store.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreError, match="the disk is full"):
        store.add(chat_id, said[1].id, Message("user", "word " * 20_000))
    assert texts(store, chat_id) == ["Why?", "Because."]
    store.connection.execute("PRAGMA max_page_count = 1000000")
    store.add(chat_id, said[1].id, Message("user", "word " * 20_000))
    assert len(texts(store, chat_id)) == 3
    store.close()


def test_half_characters_are_no_trouble(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id, _ = begin(store, "lone \ud800 half", "nul \x00 inside")
    assert texts(store, chat_id) == ["lone ? half", "nul \x00 inside"]
    store.close()


def test_presets_of_chats_and_models(path: Path) -> None:
    store = ChatStore.open(path)
    preset = Preset("Be brief.", {"temperature": 0.2, "top_k": 5})
    chat_id, _ = begin(store)
    assert store.model_preset("m") == Preset()
    store.set_model_preset("m", preset)
    store.set_preset(chat_id, preset)
    conversation = store.load(chat_id)
    assert conversation is not None and conversation.preset == preset
    assert store.model_preset("m") == preset
    store.close()


# Export and import


WORDS = "Look:\n\n```c\nint x;\n```\n\n## You\n\n<!-- 5feceb66 user -->\n\ttabs  \n"


def test_markdown_goes_round(path: Path, tmp_path: Path) -> None:
    store = ChatStore.open(path)
    chat_id, _ = begin(store, "A question\nin two lines", WORDS)
    conversation = store.load(chat_id)
    assert conversation is not None
    file = tmp_path / "chat.md"
    file.write_text(to_markdown(conversation), encoding="utf-8", newline="\n")
    (new,) = import_file(store, file)
    assert new != chat_id and texts(store, new) == ["A question\nin two lines", WORDS]
    again = store.load(new)
    assert again is not None and again.title == "A question in two lines"
    store.close()


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=40),
                min_size=1, max_size=4))  # fmt: skip
@settings(max_examples=40)
def test_any_text_goes_round_in_markdown(
    tmp_path_factory: pytest.TempPathFactory, said: list[str]
) -> None:
    store = ChatStore(schema.Opened(_memory(), None))
    chat_id, parent = store.new_chat("t"), 0
    for words in said:
        message = Message("user", words)
        store.add(chat_id, parent, message)
        parent = message.id
    conversation = store.load(chat_id)
    assert conversation is not None
    file = tmp_path_factory.mktemp("out") / "x.md"
    file.write_bytes(to_markdown(conversation).encode())
    assert texts(store, import_file(store, file)[0]) == said


def test_json_goes_round_with_branches(path: Path, tmp_path: Path) -> None:
    store = ChatStore.open(path)
    chat_id, (question, _) = begin(store, "q", WORDS)
    store.add(chat_id, question.id, Message("assistant", "other", Ending.STOPPED, "Stopped."))
    store.set_preset(chat_id, Preset("Be brief.", {"temperature": 0.5}))
    store.pin(chat_id, True)
    file = tmp_path / "chats.json"
    file.write_text(to_json(store, [chat_id]), encoding="utf-8")
    (new,) = import_file(store, file)
    before, after = store.load(chat_id), store.load(new)
    assert before is not None and after is not None
    assert after.preset == before.preset and after.title == before.title
    assert [replace(message, id=0) for message in after.messages] == [
        replace(message, id=0) for message in before.messages
    ]
    store.switch(new, after.messages[-1].id, -1)
    assert texts(store, new) == ["q", WORDS]
    exported = [json.loads(to_json(store, [chat])) for chat in (chat_id, new)]
    assert exported[0]["chats"][0]["messages"] == exported[1]["chats"][0]["messages"]
    store.close()


def test_a_note_keeps_its_id(path: Path, tmp_path: Path) -> None:
    """Check the file and an export. Older notes without ids are plain text."""
    store = ChatStore.open(path)
    full = text("engine.prompt_too_long", n=9000, n_context=8192)
    notes = [full, "Stopped.", '{"a": 1}', ""]
    chat_id = store.new_chat("q")
    for note in notes:
        store.add(chat_id, 0, Message("assistant", "a", Ending.CUT_OFF, note))
    file = tmp_path / "chats.json"
    file.write_text(to_json(store, [chat_id]), encoding="utf-8")
    (new,) = import_file(store, file)
    for chat in (chat_id, new):
        query = "SELECT id FROM message WHERE chat_id = ? ORDER BY id"
        with store.reading():
            rows = store.connection.execute(query, (chat,)).fetchall()
            kept = [store.message(row[0]).note for row in rows]
        assert kept == notes
        assert isinstance(kept[0], Text) and kept[0].values == full.values
    store.close()


def chats(**chat: object) -> str:
    return json.dumps({"format": "outrider-chats", "version": 1, "chats": [chat]})


@pytest.mark.parametrize(
    "content",
    [
        "", "[]", "{}", "null", "hello", "{" * 100_000, "[" * 100_000,
        '{"format": "outrider-chats", "version": 3, "chats": []}',
        '{"format": "outrider-chats", "version": 1, "chats": [1]}',
        chats(messages=[{"role": "system", "content": "x"}]),
        chats(messages=[{"role": "user"}]),
        chats(messages=[{"role": "user", "content": 5}]),
        chats(messages=[{"role": "user", "content": "x", "parent": 0}]),
        chats(messages=[{"role": "user", "content": "x", "parent": -1}]),
        chats(messages=[{"role": "user", "content": "x", "parent": True}]),
        chats(messages=[{"role": "user", "content": "x", "parent": 7}]),
        chats(messages=[{"role": "user", "content": "x", "ending": "exploded"}]),
        chats(messages=[{"role": "user", "content": "\ud800"}]),
        chats(messages=[{"role": "user", "content": "x", "tool_calls": [{"function": 3}]}]),
        chats(messages=[{"role": "user", "content": "x", "reasoning": 3}]),
        chats(messages=[{"role": "user", "content": "x", "details": []}]),
        chats(messages=[{"role": "user", "content": "x", "figures": {"statistics": 3}}]),
        chats(messages=[{"role": "user", "content": "x", "figures": {"thought_s": 1e300}}]),
        chats(messages=[], leaf=0), chats(messages=[], title=None),
        chats(messages=[], preset={"sampling": {"temperature": float("nan")}}),
        chats(messages=[], preset={"sampling": {"exec": 1}}),
        chats(messages=[], preset=3),
        "<!-- outrider chat 0123abcd -->\n# cut off\n\n<!-- 0123abcd user -->\n## You\n\nx\n",
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused(path: Path, tmp_path: Path, content: str) -> None:
    store = ChatStore.open(path)
    file = tmp_path / "hostile.json"
    file.write_text(content, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(ImportRefused) as refused:
        import_file(store, file)
    sentence = str(refused.value)
    assert sentence.startswith("hostile.json ") and sentence.endswith(".") and len(sentence) < 120
    assert store.chats() == []
    store.close()


def test_what_cannot_be_read_is_refused(path: Path, tmp_path: Path) -> None:
    store = ChatStore.open(path)
    for target in (tmp_path, tmp_path / "missing.json"):
        with pytest.raises(ImportRefused):
            import_file(store, target)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ImportRefused, match="not UTF-8"):
        import_file(store, tmp_path / "bytes.json")
    store.close()


def test_any_damaged_byte_leaves_chats_that_can_be_used() -> None:
    """Try some bytes. tests/benchmarks/damaged_chats.py tries all of them."""
    program = Path(__file__).parents[1] / "benchmarks" / "damaged_chats.py"
    done = subprocess.run(
        [sys.executable, str(program), "--step", "61"], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "set aside" in done.stdout and "usable" in done.stdout


def test_a_title_and_a_preset_of_a_wrong_type_are_exported(tmp_path: Path) -> None:
    store = ChatStore.open(tmp_path / "chats.db")
    chat_id = store.new_chat("title")
    store.connection.execute("UPDATE chat SET title = X'4142', preset = X'7B'")
    data = json.loads(to_json(store, [chat_id]))
    assert (data["chats"][0]["title"], data["chats"][0]["preset"]) == ("AB", None)
    store.close()


# Thoughts, tool calls and their results


CALL = ToolCall("call00001", "get_weather", '{"city": "Wien"}')


def parts() -> list[Message]:
    """Return a question, an answer with a thought and a call, the result, and the next answer."""
    return [
        Message("user", "Weather?", details={"attachments": [{"name": "a.txt"}]}),
        Message("assistant", "I look.", reasoning="Hm,\n</details>", tool_calls=[CALL],
                raw="<think>Hm,\n</details></think>I look.<tool_call>…", thought_s=1.5),
        Message("tool", "22 °C", tool_call_id=CALL.id, name=CALL.name,
                details={"state": "done", "approval": "once"}),
        Message("assistant", "It is warm."),
    ]  # fmt: skip


def add_all(store: ChatStore, chat_id: int, messages: list[Message]) -> None:
    parent = 0
    for message in messages:
        store.add(chat_id, parent, message)
        parent = message.id


def loaded(store: ChatStore, chat_id: int) -> list[Message]:
    conversation = store.load(chat_id)
    assert conversation is not None
    return [replace(message, id=0) for message in conversation.messages]


def test_parts_of_messages_are_kept_apart(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id = store.new_chat("t")
    add_all(store, chat_id, parts())
    store.close()
    again = ChatStore.open(path)
    assert loaded(again, chat_id) == parts()
    assert again.search("warm") and not again.search("Hm")
    again.close()


def test_a_growing_thought_survives_a_killed_process(path: Path) -> None:
    store = ChatStore.open(path)
    chat_id = store.new_chat("t")
    answer = Message("assistant", "", Ending.WAITING)
    store.add(chat_id, 0, answer)
    for piece in (("Hm", "", "<think>Hm"), (", so", "", ", so"), ("", "Yes", "</think>Yes")):
        store.append(answer.id, *piece)
    assert store._lock is not None
    store._lock.close()  # as if the process had died: the journal stays
    again = ChatStore.open(path)
    (last,) = loaded(again, chat_id)
    assert (last.reasoning, last.content, last.raw) == ("Hm, so", "Yes", "<think>Hm, so</think>Yes")
    assert last.ending is Ending.CUT_OFF
    again.close()


def test_a_file_of_version_1_is_migrated(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        schema.migrate(old, schema.STEPS[:1])
        old.execute("PRAGMA foreign_keys = OFF")
        old.execute("INSERT INTO chat VALUES (1, 'old', 1, 1, 2, NULL, 4, 0, NULL)")
        said = [
            (1, None, "user", "<think>q", "finished"),
            (2, 1, "assistant", "  <think>\nalpha\n</think>\n\nbeta", "finished"),
            (3, 2, "user", "gamma", "finished"),
            (4, 3, "assistant", "<think>delta", "streaming"),
            (5, 1, "assistant", "epsilon", "stopped"),
        ]
        old.executemany("INSERT INTO message VALUES (?, 1, ?, ?, ?, ?, '', '{}', 3)", said)
        pieces = [(number, f" p{number}") for number in range(1, 12)]
        old.executemany("INSERT INTO piece VALUES (4, ?, ?)", [*pieces, (12, "</think>zeta")])
    store = ChatStore.open(path)
    assert store.trouble == ""
    first, second, third, last = loaded(store, 1)
    assert (first.content, first.reasoning, third.content) == ("<think>q", "", "gamma")
    assert (second.reasoning, second.content) == ("alpha", "beta")
    assert second.raw_text == "  <think>\nalpha\n</think>\n\nbeta" and second.branch == (1, 2)
    assert last.reasoning == "delta" + "".join(piece for _, piece in pieces)
    assert (last.content, last.ending) == ("zeta", Ending.CUT_OFF)
    assert [bool(store.search(word)) for word in ("beta", "zeta", "alpha", "delta")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert store.connection.execute("PRAGMA foreign_key_check").fetchall() == []
    store.delete(1)
    store.close()
    with closing(sqlite3.connect(path)) as reader:
        assert reader.execute("SELECT count(*) FROM message").fetchone() == (0,)
    with closing(sqlite3.connect(path.with_name("chats.version-1.db"))) as kept:
        assert kept.execute("SELECT count(*) FROM message").fetchone() == (5,)


@pytest.mark.parametrize("kind", ["json", "md"])
def test_parts_go_round(path: Path, tmp_path: Path, kind: str) -> None:
    store = ChatStore.open(path)
    chat_id = store.new_chat("t")
    add_all(store, chat_id, parts())
    conversation = store.load(chat_id)
    assert conversation is not None
    out = to_json(store, [chat_id]) if kind == "json" else to_markdown(conversation)
    file = tmp_path / f"chat.{kind}"
    file.write_text(out, encoding="utf-8", newline="\n")
    (new,) = import_file(store, file)
    expected = parts()
    if kind == "md":  # the Markdown has no figures, approvals or raw text
        assert "<details><summary>Thought</summary>\n\nHm," in out
        for message in expected:
            message.raw, message.details, message.thought_s = None, {}, 0.0
    assert loaded(store, new) == expected
    store.close()


def test_exports_of_version_1_are_read(path: Path, tmp_path: Path) -> None:
    store = ChatStore.open(path)
    whole = "<think>hm</think>\n\nyes"
    said = [
        {"parent": None, "role": "user", "content": "<think>q"},
        {"parent": 0, "role": "assistant", "content": whole},
    ]
    (tmp_path / "old.json").write_text(chats(messages=said, title="t"))
    (tmp_path / "old.md").write_text(
        "<!-- outrider chat 0123abcd -->\n# t\n\n<!-- 0123abcd user -->\n## You\n\n<think>q\n"
        f"\n<!-- 0123abcd assistant -->\n## Answer\n\n{whole}\n\n<!-- 0123abcd end -->\n"
    )
    for name in ("old.json", "old.md"):
        question, answer = loaded(store, import_file(store, tmp_path / name)[0])
        assert (question.content, question.reasoning) == ("<think>q", "")
        assert (answer.content, answer.reasoning, answer.raw) == ("yes", "hm", whole)
    store.close()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (sqlite3.OperationalError("database or disk is full"), "the disk is full"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "the folder for them"),
        (sqlite3.OperationalError("unable to open database file"), "the folder for them"),
        (OSError(errno.EACCES, "Permission denied"), "the folder for them"),
        (OSError(errno.EROFS, "Read-only file system"), "the folder for them"),
        (sqlite3.OperationalError("database is locked"), "another program"),
        (OSError(errno.EIO, "Input/output error"), "input/output error"),
        (sqlite3.OperationalError("disk I/O error."), "disk I/O error"),
    ],
)
def test_a_failure_is_described_in_a_few_words(error: Exception, words: str) -> None:
    assert words in schema.reason(error)


def test_titles_and_drafts_at_their_edges(path: Path) -> None:
    whole = "w" * 30 + " " + "v" * 29  # 60 characters: the longest title that is not cut
    assert title_of(whole) == whole
    assert title_of(whole + "v") == "w" * 30 + "\u2026"
    store = ChatStore.open(path)
    gone, stays = store.new_chat("gone"), store.new_chat("stays")
    for chat_id in (0, gone, stays):
        store.set_draft(chat_id, f"draft {chat_id}")
    store.rename(stays, "a name")
    store.delete(gone)
    store.purge()
    assert store.draft(0) == "draft 0" and store.draft(stays) == f"draft {stays}"
    assert store.draft(gone) == ""
    assert [(row.title, row.is_named) for row in store.chats()] == [("a name", True)]
    store.close()
