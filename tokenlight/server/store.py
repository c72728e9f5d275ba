# SPDX-License-Identifier: Apache-2.0
"""Stored responses: SQLite, bounded in bytes and age, each readable only by its writer's key.

A row holds one response, its own input, and the turns that both add to the conversation; the row
before it is found by its id. What exceeds a bound is deleted, the oldest first.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tokenlight.base.clock import unix_s
from tokenlight.base.errors import ConfigError, InvalidRequest, ResponseNotFound
from tokenlight.base.log import event, get_log
from tokenlight.text.conversation import Turn

_Result = TypeVar("_Result")

_log = get_log("server")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    owner BLOB NOT NULL,
    previous_id TEXT,
    created_s INTEGER NOT NULL,
    num_bytes INTEGER NOT NULL,
    response BLOB NOT NULL,
    input BLOB NOT NULL,
    turns BLOB NOT NULL
)
"""
_ITEMS = """
CREATE TABLE IF NOT EXISTS items (
    id TEXT NOT NULL,
    response_id TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE
)
"""
_FIND_ITEM = """
SELECT r.response, r.input FROM items AS i JOIN responses AS r ON r.id = i.response_id
WHERE i.id = ? AND r.owner = ? AND r.created_s >= ? ORDER BY r.place DESC LIMIT 1
"""
_CHAIN = """
WITH RECURSIVE chain(id, previous_id, turns, depth) AS (
    SELECT id, previous_id, turns, 0 FROM responses WHERE id = :id AND owner = :owner
        AND created_s >= :oldest_s
    UNION ALL
    SELECT r.id, r.previous_id, r.turns, depth + 1
    FROM responses AS r JOIN chain ON r.id = chain.previous_id AND r.owner = :owner
    WHERE r.created_s >= :oldest_s AND depth < 100000
)
SELECT previous_id, turns FROM chain ORDER BY depth DESC
"""
_turns_decoder = msgspec.msgpack.Decoder(list[Turn])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    id: str
    previous_id: str | None
    response: bytes
    """JSON, as it was sent."""
    input: list[dict[str, Any]]
    """This response's own input items; kept as JSON: clients send numbers that msgpack has not."""
    turns: Sequence[Turn]
    """What this response adds to the conversation: its input and its answer."""


def owner_of(key: str | None) -> bytes:
    """Who may read what is written with this API key. Keys themselves are not stored."""
    return hashlib.sha256((key or "").encode("utf-8", "surrogateescape")).digest()


class ResponseStore:
    """Methods may be awaited from one event loop; SQLite works on a thread, one call at a time."""

    def __init__(self, path: str | None, *, max_bytes: int, max_age_s: float) -> None:
        """Open, or make, the store.

        Args:
            path: a file; None keeps everything in memory, for as long as the server runs.
            max_bytes: of all rows together.
            max_age_s: of a row.

        Raises:
            ConfigError: the file cannot be used.
        """
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._turn = threading.Lock()
        try:
            if path is not None:
                Path(path).touch(mode=0o600)  # others may not read what was said
            self._db = sqlite3.connect(path or ":memory:", check_same_thread=False)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            self._db.execute(_SCHEMA)
            self._db.execute(_ITEMS)
            for column in ("id", "response_id"):
                self._db.execute(f"CREATE INDEX IF NOT EXISTS items_{column} ON items ({column})")
            self._db.commit()
            self._num_bytes: int = self._db.execute(
                "SELECT COALESCE(SUM(num_bytes), 0) FROM responses"
            ).fetchone()[0]
        except (OSError, sqlite3.Error) as fault:
            raise ConfigError(
                f"--response-store {path}: {_reason(fault)}; name a file that this server may write"
            ) from fault

    async def save(self, owner: bytes, stored: StoredResponse) -> None:
        """Write a response; older ones give way. One larger than the bound is not kept.

        A full disk or a file that another process holds costs what would have been kept, which the
        log tells, and not the answer: that is made.
        """
        try:
            await self._on_thread(lambda: self._save(owner, stored))
        except sqlite3.Error as fault:
            _log.error(event("response_not_stored", id=stored.id, reason=fault))

    async def get_response(self, owner: bytes, id: str) -> bytes:
        """The response's JSON.

        Raises:
            ResponseNotFound: there is none of this id that this owner wrote.
        """
        return await self._on_thread(lambda: self._column(owner, id, "response"))

    async def get_input(self, owner: bytes, id: str) -> list[dict[str, Any]]:
        """The response's own input items.

        Raises:
            ResponseNotFound: there is none of this id that this owner wrote.
        """
        data = await self._on_thread(lambda: self._column(owner, id, "input"))
        items: list[dict[str, Any]] = msgspec.json.decode(data)
        return items

    async def get_item(self, owner: bytes, id: str) -> dict[str, Any]:
        """An item of any response's input or output.

        Raises:
            InvalidRequest: there is none of this id that this owner's responses hold.
        """
        return await self._on_thread(lambda: self._item(owner, id))

    async def get_turns(self, owner: bytes, id: str) -> list[Turn]:
        """The whole conversation up to a response's end.

        Raises:
            InvalidRequest: the response, or one before it, is not there any more, or is another's.
        """
        return await self._on_thread(lambda: self._turns(owner, id))

    async def delete(self, owner: bytes, id: str) -> None:
        """Forget a response.

        Raises:
            ResponseNotFound: there is none of this id that this owner wrote.
        """
        await self._on_thread(lambda: self._delete(owner, id))

    def close(self) -> None:
        with self._turn:
            self._db.close()

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    async def _on_thread(self, work: Callable[[], _Result]) -> _Result:
        def locked() -> _Result:
            with self._turn:
                return work()

        return await asyncio.to_thread(locked)

    def _save(self, owner: bytes, stored: StoredResponse) -> None:
        input, turns = msgspec.json.encode(stored.input), msgspec.msgpack.encode(stored.turns)
        num_bytes = len(stored.response) + len(input) + len(turns)
        if num_bytes > self._max_bytes:
            return
        with self._db:
            self._db.execute(
                "INSERT INTO responses"
                " (id, owner, previous_id, created_s, num_bytes, response, input, turns)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(stored.id, owner, stored.previous_id, unix_s(), num_bytes),
                    *(stored.response, input, turns),
                ),
            )
            ids = [(id, stored.id) for id in _item_ids(stored)]
            self._db.executemany("INSERT INTO items (id, response_id) VALUES (?, ?)", ids)
            num_freed_bytes = self._make_room(num_bytes)
        self._num_bytes += num_bytes - num_freed_bytes

    def _make_room(self, num_new_bytes: int) -> int:
        """Delete what is too old, then the oldest until the rest fits; how many bytes went."""
        oldest = self._db.execute(
            "SELECT place, num_bytes, created_s FROM responses ORDER BY place"
        )
        doomed: list[tuple[int]] = []
        num_freed_bytes = 0
        for place, num_bytes, created_s in oldest:
            is_old = created_s < unix_s() - self._max_age_s
            num_kept_bytes = self._num_bytes + num_new_bytes - num_freed_bytes
            if not is_old and num_kept_bytes <= self._max_bytes:
                break
            doomed.append((place,))
            num_freed_bytes += num_bytes
        if doomed:
            self._db.executemany("DELETE FROM responses WHERE place = ?", doomed)
            self._db.execute("PRAGMA incremental_vacuum")
        return num_freed_bytes

    def _column(self, owner: bytes, id: str, column: str) -> bytes:
        row = self._db.execute(
            f"SELECT {column} FROM responses WHERE id = ? AND owner = ? AND created_s >= ?",
            (id, owner, unix_s() - self._max_age_s),
        ).fetchone()
        if row is None:
            raise ResponseNotFound(id)
        found: bytes = row[0]
        return found

    def _item(self, owner: bytes, id: str) -> dict[str, Any]:
        oldest_s = unix_s() - self._max_age_s
        row = self._db.execute(_FIND_ITEM, (id, owner, oldest_s)).fetchone()
        items = _output_items(row[0]) + msgspec.json.decode(row[1]) if row else []
        for item in items:
            if item.get("id") == id:
                found: dict[str, Any] = item
                return found
        raise InvalidRequest(
            f"the item {id!r} is not stored here (any more); send the item itself", param="input"
        )

    def _turns(self, owner: bytes, id: str) -> list[Turn]:
        names = {"id": id, "owner": owner, "oldest_s": unix_s() - self._max_age_s}
        rows = self._db.execute(_CHAIN, names).fetchall()
        if not rows or rows[0][0] is not None:
            raise InvalidRequest(
                f"the conversation of {id!r} is not stored here (any more); send its items in "
                f"'input' instead, or raise --response-store-bytes",
                param="previous_response_id",
            )
        return [turn for _, turns in rows for turn in _turns_decoder.decode(turns)]

    def _delete(self, owner: bytes, id: str) -> None:
        with self._db:
            row = self._db.execute(
                "DELETE FROM responses WHERE id = ? AND owner = ? RETURNING num_bytes", (id, owner)
            ).fetchone()
            if row is None:
                raise ResponseNotFound(id)
            self._num_bytes -= row[0]


def _reason(fault: Exception) -> str:
    """Without the path, which an OSError says again."""
    return (fault.strerror if isinstance(fault, OSError) else None) or str(fault)


def _output_items(response: bytes) -> list[dict[str, Any]]:
    output: list[dict[str, Any]] = msgspec.json.decode(response).get("output", [])
    return output


def _item_ids(stored: StoredResponse) -> list[str]:
    items = [*stored.input, *_output_items(stored.response)]
    return [item["id"] for item in items if isinstance(item.get("id"), str)]
