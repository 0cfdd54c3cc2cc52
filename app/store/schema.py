"""The database file: its tables, its versions, and its replacement if it cannot be used."""

from __future__ import annotations

import errno
import functools
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from app.store.tagged_thoughts import split
from backend.system.kept_file import make_file, make_folder
from backend.system.paths import exists, open_regular
from backend.text import text

BUSY_S = 0.25  # longest wait of the window for another process
CHECKED_BYTES = 32 << 20  # larger files are not checked whole at start

# Step n migrates a database from version n to version n + 1. Never change a step; add one.
STEPS: tuple[str, ...] = (
    """
    CREATE TABLE chat (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        title TEXT NOT NULL,
        is_pinned INTEGER NOT NULL DEFAULT 0,
        created_s REAL NOT NULL,
        changed_s REAL NOT NULL,
        deleted_s REAL,           -- set: gone for the user, purged later
        leaf_id INTEGER REFERENCES message ON DELETE SET NULL,  -- the end of what is shown
        slides INTEGER NOT NULL DEFAULT 0,
        preset TEXT               -- JSON; NULL: as the model has it
    );
    CREATE INDEX chat_changed ON chat (changed_s);
    CREATE TABLE message (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id INTEGER NOT NULL REFERENCES chat ON DELETE CASCADE,
        parent_id INTEGER REFERENCES message ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
        content TEXT NOT NULL,
        ending TEXT NOT NULL,
        note TEXT NOT NULL DEFAULT '',
        figures TEXT NOT NULL DEFAULT '{}',  -- JSON
        created_s REAL NOT NULL
    );
    CREATE INDEX message_chat ON message (chat_id, parent_id);
    CREATE INDEX message_parent ON message (parent_id);
    CREATE INDEX message_live ON message (id) WHERE ending IN ('waiting', 'streaming');
    -- What an answer gained since its row was written; joined into it when it ends.
    CREATE TABLE piece (
        message_id INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,
        number INTEGER NOT NULL,
        text TEXT NOT NULL,
        PRIMARY KEY (message_id, number)
    ) WITHOUT ROWID;
    CREATE TABLE preset (model TEXT PRIMARY KEY, data TEXT NOT NULL) WITHOUT ROWID;
    CREATE VIRTUAL TABLE word USING fts5 (
        content, content = 'message', content_rowid = 'id', detail = none, prefix = '2 3',
        tokenize = "unicode61 remove_diacritics 2"
    );
    CREATE TRIGGER word_insert AFTER INSERT ON message BEGIN
        INSERT INTO word (rowid, content) VALUES (new.id, new.content);
    END;
    CREATE TRIGGER word_delete AFTER DELETE ON message BEGIN
        INSERT INTO word (word, rowid, content) VALUES ('delete', old.id, old.content);
    END;
    CREATE TRIGGER word_update AFTER UPDATE OF content ON message
    WHEN old.content IS NOT new.content BEGIN
        INSERT INTO word (word, rowid, content) VALUES ('delete', old.id, old.content);
        INSERT INTO word (rowid, content) VALUES (new.id, new.content);
    END;
    """,
    """
    CREATE TABLE new_message (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id INTEGER NOT NULL REFERENCES chat ON DELETE CASCADE,
        parent_id INTEGER REFERENCES message ON DELETE CASCADE,
        role TEXT NOT NULL CHECK (role IN ('user', 'assistant', 'tool')),
        content TEXT NOT NULL,
        reasoning TEXT NOT NULL DEFAULT '',
        raw TEXT,                                -- as the model wrote it; NULL: as the content
        tool_calls TEXT NOT NULL DEFAULT '[]',   -- JSON, in OpenAI's form
        tool_call_id TEXT NOT NULL DEFAULT '',   -- of a tool's message
        name TEXT NOT NULL DEFAULT '',           -- of the tool
        details TEXT NOT NULL DEFAULT '{}',      -- JSON: attachments, approvals
        ending TEXT NOT NULL,
        note TEXT NOT NULL DEFAULT '',
        figures TEXT NOT NULL DEFAULT '{}',      -- JSON
        created_s REAL NOT NULL
    );
    -- The text of an answer was kept whole, with its thought between tags.
    INSERT INTO new_message (
        id, chat_id, parent_id, role, content, reasoning, raw, ending, note, figures, created_s
    )
    SELECT id, chat_id, parent_id, role,
        CASE role WHEN 'assistant' THEN answer_of(CAST(whole AS BLOB)) ELSE whole END,
        CASE role WHEN 'assistant' THEN thought_of(CAST(whole AS BLOB)) ELSE '' END,
        CASE WHEN role = 'assistant' AND answer_of(CAST(whole AS BLOB)) IS NOT whole THEN whole END,
        ending, note, figures, created_s
    FROM (
        SELECT *, CAST(content AS TEXT) || coalesce((
            SELECT group_concat(text, '') FROM (
                SELECT text FROM piece WHERE message_id = message.id ORDER BY number
            )
        ), '') AS whole FROM message
    );
    DROP TABLE message;
    ALTER TABLE new_message RENAME TO message;
    CREATE INDEX message_chat ON message (chat_id, parent_id);
    CREATE INDEX message_parent ON message (parent_id);
    CREATE INDEX message_live ON message (id) WHERE ending IN ('waiting', 'streaming');
    DROP TABLE piece;
    CREATE TABLE piece (
        message_id INTEGER NOT NULL REFERENCES message ON DELETE CASCADE,
        number INTEGER NOT NULL,
        reasoning TEXT NOT NULL,
        content TEXT NOT NULL,
        raw TEXT NOT NULL,
        PRIMARY KEY (message_id, number)
    ) WITHOUT ROWID;
    INSERT INTO word (word) VALUES ('rebuild');
    CREATE TRIGGER word_insert AFTER INSERT ON message BEGIN
        INSERT INTO word (rowid, content) VALUES (new.id, new.content);
    END;
    CREATE TRIGGER word_delete AFTER DELETE ON message BEGIN
        INSERT INTO word (word, rowid, content) VALUES ('delete', old.id, old.content);
    END;
    CREATE TRIGGER word_update AFTER UPDATE OF content ON message
    WHEN old.content IS NOT new.content BEGIN
        INSERT INTO word (word, rowid, content) VALUES ('delete', old.id, old.content);
        INSERT INTO word (rowid, content) VALUES (new.id, new.content);
    END;
    """,
    """
    ALTER TABLE chat ADD COLUMN folder TEXT NOT NULL DEFAULT '';
    -- 0: the title is the beginning of the first question.
    ALTER TABLE chat ADD COLUMN is_named INTEGER NOT NULL DEFAULT 1;
    -- What was typed but not sent; 0 stands for a new chat.
    CREATE TABLE draft (chat_id INTEGER PRIMARY KEY, text TEXT NOT NULL);
    """,
    """
    -- JSON: attachments that were pasted, and are in no file.
    CREATE TABLE draft_paste (chat_id INTEGER PRIMARY KEY, files TEXT NOT NULL);
    """,
    """
    -- Parts of words, and scripts without spaces.
    CREATE VIRTUAL TABLE word_part USING fts5 (
        content, content = 'message', content_rowid = 'id', detail = none, tokenize = "trigram"
    );
    INSERT INTO word_part (word_part) VALUES ('rebuild');
    CREATE TRIGGER part_insert AFTER INSERT ON message BEGIN
        INSERT INTO word_part (rowid, content) VALUES (new.id, new.content);
    END;
    CREATE TRIGGER part_delete AFTER DELETE ON message BEGIN
        INSERT INTO word_part (word_part, rowid, content) VALUES ('delete', old.id, old.content);
    END;
    CREATE TRIGGER part_update AFTER UPDATE OF content ON message
    WHEN old.content IS NOT new.content BEGIN
        INSERT INTO word_part (word_part, rowid, content) VALUES ('delete', old.id, old.content);
        INSERT INTO word_part (rowid, content) VALUES (new.id, new.content);
    END;
    """,
)


class ChatsTaken(Exception):
    """Another process has the chats open."""


class StoreError(Exception):
    """The database could not be read or written; str() is one sentence for the user."""


@dataclass
class Opened:
    """An open database. Without `path` it is in memory, and `trouble` says why.

    turn: held by the connection that changes the database.
    """

    connection: sqlite3.Connection
    path: Path | None
    trouble: str = ""
    lock: sqlite3.Connection | None = None
    turn: threading.Lock = field(default_factory=threading.Lock)


def open_database(path: Path, steps: Sequence[str] = STEPS) -> Opened:
    """Open the file; create a missing one, migrate an older one.

    A damaged file is renamed and a new one created. SQLite calls a failed read damage, too: the
    file is damaged if it can be read and is found damaged twice. If it cannot be read, or nothing
    can be written, the chats are in memory. Raises only ChatsTaken.
    """
    try:
        make_folder(path.parent)
        lock = _lock(path)
    except (OSError, sqlite3.Error) as error:
        return _in_memory(steps, text("chats.not_kept", reason=reason(error)))
    for _ in range(2):
        try:
            try:
                return Opened(_open_file(path, steps), path, lock=lock)
            except sqlite3.Error as error:
                if not is_damage(error):
                    raise
            _read_all(path)
        except _Newer:
            lock.close()
            return _in_memory(steps, text("chats.newer"))
        except (OSError, sqlite3.Error) as error:
            lock.close()
            return _in_memory(steps, text("chats.not_kept", reason=reason(error)))
    kept = _set_aside(path)
    try:
        connection = _open_file(path, steps)
    except (OSError, sqlite3.Error) as error:
        lock.close()
        return _in_memory(steps, text("chats.not_kept", reason=reason(error)))
    return Opened(connection, path, text("chats.begun_new", file=kept), lock)


def _read_all(path: Path) -> None:
    """Read the file and its journal. Raises OSError where a part cannot be read."""
    for part in (path, path.with_name(path.name + "-wal")):
        if exists(part):
            with open(part, "rb", opener=open_regular) as file:
                while file.read(1 << 20):
                    pass


def reason(error: Exception) -> str:
    """Describe a failure of the database or the file system in a few words."""
    told = str(error)
    if "disk is full" in told or (isinstance(error, OSError) and error.errno == errno.ENOSPC):
        return text("chats.disk_full")
    if "readonly" in told or "unable to open" in told:
        return text("chats.no_folder")
    if "locked" in told or "busy" in told:
        return text("chats.busy")
    if isinstance(error, OSError):
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return text("chats.no_folder")
        return (error.strerror or told).lower()
    return text("chats.damaged") if is_damage(error) else told.rstrip(".")


def is_damage(error: Exception) -> bool:
    """Return whether an error means that the file is damaged."""
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and (code & 0xFF) in codes


def mark_for_check(path: Path) -> None:
    """Make the next start check the whole file, whatever its size."""
    with suppress(OSError):
        _mark_path(path).touch()


class _Newer(Exception):
    """The file has a newer version than this program knows."""


def connect(target: str | Path) -> sqlite3.Connection:
    """Connect with a file that is open already, or with a new database in memory."""
    connection = sqlite3.connect(
        target, timeout=BUSY_S, isolation_level=None, check_same_thread=False
    )
    connection.text_factory = _text
    connection.execute("PRAGMA foreign_keys = ON")
    # A checkpoint waits for the disk, so the store runs it in a thread.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("PRAGMA cache_size = -16000")
    connection.execute("PRAGMA fullfsync = ON")  # on macOS, as kept_file.sync()
    return connection


def _text(data: bytes) -> str:
    """Decode a text of the file. A damaged byte costs one character, not the chat."""
    return data.decode("utf-8", "replace")


def _open_file(path: Path, steps: Sequence[str]) -> sqlite3.Connection:
    """Open the file on disk. Raises OSError, sqlite3.Error and _Newer."""
    make_file(path)  # SQLite gives the journal the same permissions
    for part in (path.with_name(f"{path.name}{ending}") for ending in ("-wal", "-shm")):
        if os.path.lexists(part):
            os.close(open_regular(part, os.O_RDONLY))
    connection = connect(path)
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        mark = _mark_path(path)
        if exists(mark) or path.stat().st_size <= CHECKED_BYTES:
            if connection.execute("PRAGMA quick_check (1)").fetchone()[0] != "ok":
                raise _damage_error()
            mark.unlink(missing_ok=True)
        version = _version(connection)
        if version < 0:
            raise _damage_error()
        if version > len(steps):
            raise _Newer
        if 0 < version < len(steps):
            _back_up(connection, path.with_name(f"{path.stem}.version-{version}{path.suffix}"))
        migrate(connection, steps)
        if _definitions(connection) != _sound_definitions(tuple(steps)):
            raise _damage_error()
    except (ValueError, TypeError, OverflowError) as error:  # raised by Python for a damaged row
        connection.close()
        raise _damage_error() from error
    except BaseException:
        connection.close()
        raise
    return connection


def migrate(connection: sqlite3.Connection, steps: Sequence[str]) -> None:
    """Apply the missing steps, each as one transaction."""
    for number, name in enumerate(("thought_of", "answer_of")):
        connection.create_function(
            name, 1, lambda data, part=number: split(_text(data))[part], deterministic=True
        )
    # A step may drop a table that others refer to, and create it again.
    connection.execute("PRAGMA foreign_keys = OFF")
    try:
        for version in range(_version(connection), len(steps)):
            connection.executescript(
                f"BEGIN IMMEDIATE; {steps[version]}; PRAGMA user_version = {version + 1}; COMMIT;"
            )
    except sqlite3.Error:
        if connection.in_transaction:
            connection.rollback()
        raise
    finally:
        connection.execute("PRAGMA foreign_keys = ON")


def _empty(steps: Sequence[str]) -> sqlite3.Connection:
    connection = connect(":memory:")
    migrate(connection, steps)
    return connection


def _definitions(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
    """Return the definitions of tables, indices and triggers, without SQLite's own."""
    return connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' "
        "AND NOT (type = 'table' AND name LIKE 'word_%') ORDER BY name"
    ).fetchall()


@functools.cache
def _sound_definitions(steps: tuple[str, ...]) -> list[tuple[object, ...]]:
    with closing(_empty(steps)) as connection:
        return _definitions(connection)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _back_up(connection: sqlite3.Connection, target: Path) -> None:
    make_file(target)
    with closing(sqlite3.connect(target)) as copy:
        connection.backup(copy)


def _damage_error() -> sqlite3.DatabaseError:
    error = sqlite3.DatabaseError("the file is damaged")
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error


def _in_memory(steps: Sequence[str], sentence: str) -> Opened:
    return Opened(_empty(steps), None, sentence)


def _lock(path: Path) -> sqlite3.Connection:
    """Lock a file beside the database until this process ends.

    Raises ChatsTaken if another process holds the lock.
    """
    beside = path.with_name(path.name + ".lock")
    make_file(beside)
    lock = sqlite3.connect(beside, timeout=0, isolation_level=None, check_same_thread=False)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" in str(error):
            raise ChatsTaken from None
        raise
    return lock


def _set_aside(path: Path) -> str:
    """Rename a damaged database and its journal to the first free name; return it."""
    for number in range(1, 1000):
        kept = path.with_name(f"{path.stem}.broken-{number}{path.suffix}")
        if not exists(kept):
            break
    for ending in ("", "-wal", "-shm"):
        with suppress(OSError):
            os.replace(f"{path}{ending}", f"{kept}{ending}")
    _mark_path(path).unlink(missing_ok=True)
    return kept.name


def _mark_path(path: Path) -> Path:
    return path.with_name(path.name + ".check")


@contextmanager
def indexed_at_once(connection: sqlite3.Connection) -> Iterator[None]:
    """Index the messages that are inserted inside at the end, not one by one.

    A trigger makes FTS5 write what it has gathered after each message, which takes three times as
    long. REQUIRES: the caller is within a transaction, which undoes this too.
    """
    made = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE name IN ('word_insert', 'part_insert')"
    ).fetchall()
    last = connection.execute("SELECT coalesce(max(id), 0) FROM message").fetchone()[0]
    for name, _ in made:
        connection.execute(f"DROP TRIGGER {name}")
    yield
    for table in ("word", "word_part"):
        connection.execute(
            f"INSERT INTO {table} (rowid, content) SELECT id, content FROM message WHERE id > ?",
            (last,),
        )
    for _, sql in made:
        connection.execute(sql)
